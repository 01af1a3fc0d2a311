//! Firings: the outcome of each scheduled time, and the state of schedules and backfills.
//!
//! A *scheduled time* is a time that the rules of a schedule name, without jitter and delays. Each has one record in
//! the *ledger*, with its outcome: the job or run that it created, or the reason why it created none.
//!
//! The engine writes these rows and the store keeps them; the API returns them in types of its own.

mod detail;

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use thin_vec::ThinVec;
use utoipa::ToSchema;

use crate::id::{BackfillId, JobId, RunId, ScheduleId};
use crate::schedule::{OverlapPolicy, ScheduleSpec};
use crate::spec::FinishBy;
use crate::status::words;
use crate::time::Timestamp;
use crate::workflow::Call;

pub use detail::{Detail, DetailCode};

/// Job or workflow run that a firing created.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Work {
    /// A job.
    Job(JobId),
    /// A workflow run.
    Run(RunId),
}

impl Work {
    /// Returns the ID of the job, or `None` for a run.
    pub fn job(self) -> Option<JobId> {
        match self {
            Self::Job(job) => Some(job),
            Self::Run(_) => None,
        }
    }

    /// Returns the ID of the run, or `None` for a job.
    pub fn run(self) -> Option<RunId> {
        match self {
            Self::Run(run) => Some(run),
            Self::Job(_) => None,
        }
    }

    /// Returns the ID of the job or run as a number.
    pub fn to_bits(self) -> u128 {
        match self {
            Self::Job(job) => job.to_bits(),
            Self::Run(run) => run.to_bits(),
        }
    }

    /// Returns the creation time, which is part of the ID.
    pub fn created_at(self) -> Timestamp {
        match self {
            Self::Job(job) => job.created_at(),
            Self::Run(run) => run.created_at(),
        }
    }
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Job(job) => job.fmt(f),
            Self::Run(run) => run.fmt(f),
        }
    }
}

impl From<JobId> for Work {
    fn from(job: JobId) -> Self {
        Self::Job(job)
    }
}

impl From<RunId> for Work {
    fn from(run: RunId) -> Self {
        Self::Run(run)
    }
}

/// Cause of a firing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum FiringCause {
    /// The scheduled time was reached.
    Timer,
    /// Catch-up of a missed firing: no server could process the scheduled time when it was reached.
    CatchUp,
    /// A user triggered the schedule.
    Manual,
    /// A backfill of a past range.
    Backfill,
    /// A user retried an ended run.
    Retry,
}

impl fmt::Display for FiringCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Timer => "timer",
            Self::CatchUp => "catch_up",
            Self::Manual => "manual",
            Self::Backfill => "backfill",
            Self::Retry => "retry",
        })
    }
}

/// Returns the completion deadline of a job that was created at `created_at`, by a schedule if it has an origin.
pub fn finish_deadline(
    finish_by: FinishBy,
    origin: Option<&Origin>,
    run_at: Option<Timestamp>,
    created_at: Timestamp,
) -> Timestamp {
    let counts_from = match origin {
        None => run_at.unwrap_or(created_at),
        Some(origin) => match origin.cause {
            FiringCause::Timer | FiringCause::Manual => origin.scheduled_for,
            // The scheduled time may be long past.
            FiringCause::CatchUp | FiringCause::Backfill | FiringCause::Retry => created_at,
        },
    };
    finish_by.at.unwrap_or_else(|| counts_from + finish_by.after.unwrap_or_default())
}

/// Firing that created a job or a run. The tasks of a job have its values in the environment variables
/// `BELFRY_SCHEDULE`, `BELFRY_SCHEDULED_FOR`, `BELFRY_INTERVAL_START` and `BELFRY_INTERVAL_END`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Origin {
    /// ID of the schedule.
    pub schedule: ScheduleId,
    /// Name of the schedule at the time of the firing.
    #[schema(value_type = String)]
    pub name: Arc<str>,
    /// Generation of the schedule at the time of the firing.
    pub generation: u64,
    /// Scheduled time of the firing, without jitter and delays.
    pub scheduled_for: Timestamp,
    /// Start of the data interval of the firing: the previous scheduled time. Absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval_start: Option<Timestamp>,
    /// End of the data interval of the firing: the scheduled time.
    pub interval_end: Timestamp,
    /// Cause of the firing.
    pub cause: FiringCause,
    /// ID of the backfill that created the firing. Absent if no backfill did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backfill: Option<BackfillId>,
    /// Latest time of the first start, by the start deadline of the schedule. Absent if there is no deadline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_by: Option<Timestamp>,
}

/// Outcome of a scheduled time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum FiringOutcome {
    /// Created a job or a run within a second of the scheduled time.
    Fired,
    /// Created a job or a run more than a second late: after an outage, or after waiting for earlier runs.
    FiredLate,
    /// Waiting for earlier runs to end.
    Buffered,
    /// Merged into another firing.
    Coalesced,
    /// Skipped because earlier runs had not ended.
    SkippedOverlap,
    /// Skipped by a calendar, or by a set of dates or weekdays.
    SkippedCalendar,
    /// Skipped by a time window of the day, or by a cron exclusion.
    SkippedWindow,
    /// Skipped because the schedule was paused.
    SkippedPause,
    /// Skipped because the start deadline had passed.
    SkippedDeadline,
    /// Missed, and not caught up: the policy catches up no firing, or none that old.
    SkippedPolicy,
    /// Skipped because the rules were replaced, or the schedule completed or was deleted, before the firing started.
    SkippedReplaced,
    /// Skipped because too many firings were waiting.
    SkippedLimit,
    /// Not started: the workflow does not exist, or does not accept the parameters of the schedule.
    NotStarted,
}

impl FiringOutcome {
    /// All outcomes.
    pub const ALL: [Self; 13] = [
        Self::Fired,
        Self::FiredLate,
        Self::Buffered,
        Self::Coalesced,
        Self::SkippedOverlap,
        Self::SkippedCalendar,
        Self::SkippedWindow,
        Self::SkippedPause,
        Self::SkippedDeadline,
        Self::SkippedPolicy,
        Self::SkippedReplaced,
        Self::SkippedLimit,
        Self::NotStarted,
    ];

    /// Returns the stable name in the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Fired => "fired",
            Self::FiredLate => "fired_late",
            Self::Buffered => "buffered",
            Self::Coalesced => "coalesced",
            Self::SkippedOverlap => "skipped_overlap",
            Self::SkippedCalendar => "skipped_calendar",
            Self::SkippedWindow => "skipped_window",
            Self::SkippedPause => "skipped_pause",
            Self::SkippedDeadline => "skipped_deadline",
            Self::SkippedPolicy => "skipped_policy",
            Self::SkippedReplaced => "skipped_replaced",
            Self::SkippedLimit => "skipped_limit",
            Self::NotStarted => "not_started",
        }
    }

    /// Returns whether the firing created a job or a run.
    pub const fn fired(self) -> bool {
        matches!(self, Self::Fired | Self::FiredLate)
    }
}

impl fmt::Display for FiringOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl std::str::FromStr for FiringOutcome {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|outcome| outcome.as_str() == text).ok_or_else(|| {
            let all = Self::ALL.map(Self::as_str).join("`, `");
            format!(
                "`{}` is not an outcome of a firing: expected one of `{all}`",
                text.chars().take(64).collect::<String>()
            )
        })
    }
}

/// Entry of the ledger: the outcome of a scheduled time, or of consecutive scheduled times with the same outcome
/// and no job.
///
/// Unique by schedule, generation, `first`, cause and backfill. The record is updated when a waiting firing starts,
/// and when the next scheduled time has the same outcome.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LedgerRecord {
    /// ID of the schedule.
    pub schedule: ScheduleId,
    /// Generation of the schedule.
    pub generation: u64,
    /// Scheduled time, or the first of several.
    pub first: Timestamp,
    /// Last of several scheduled times; equal to `first` for a single one.
    pub last: Timestamp,
    /// Number of scheduled times in the record.
    pub count: u64,
    /// Whether `count` is exact; if not, there are more scheduled times, which were too many to count.
    pub exact: bool,
    /// Outcome of the scheduled times.
    pub outcome: FiringOutcome,
    /// Cause of the firing.
    pub cause: FiringCause,
    /// ID of the backfill that created the firing. Absent if no backfill did.
    pub backfill: Option<BackfillId>,
    /// Job or run that the firing created.
    #[serde(alias = "job")]
    pub work: Option<Work>,
    /// Time at which the last scheduled time of the record was processed.
    pub decided_at: Timestamp,
    /// Detail of the outcome, for example the filter that excluded the time, or the user who triggered the firing.
    /// See [`Detail`].
    pub detail: Option<Box<str>>,
    /// Version of the time zone database with which the scheduled times were computed.
    pub tzdb: Arc<str>,
}

/// Status of a schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ScheduleStatus {
    /// The schedule fires.
    Active,
    /// Firings are skipped until a user resumes the schedule.
    Paused,
    /// No firing is left: the last scheduled time has passed, or the maximum number of firings is reached.
    Completed,
}

words! {
    ScheduleStatus, "a status of a schedule", { Active = "active"; Paused = "paused"; Completed = "completed"; }
}

/// Pause of a schedule: time, user and note.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Pause {
    /// Time of the pause.
    pub at: Timestamp,
    /// User who paused the schedule; `belfry` after too many consecutive failures.
    #[schema(value_type = String)]
    pub by: Box<str>,
    /// Note of the user, as free text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub note: Option<Box<str>>,
}

impl fmt::Display for Pause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "paused by {}", self.by)?;
        self.note.as_deref().map_or(Ok(()), |note| write!(f, ": {note}"))
    }
}

/// A firing that waits for earlier runs to end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BufferedFiring {
    /// Scheduled time of the firing.
    pub scheduled_for: Timestamp,
    /// Cause of the firing: timer, catch-up or manual trigger.
    pub cause: FiringCause,
    /// Generation of the schedule when the firing was processed.
    pub generation: u64,
    /// User who triggered the firing, and the reason.
    pub detail: Option<Box<str>>,
    /// Hash of the idempotency key of the request, and hash of its content.
    pub key: Option<(u128, u128)>,
}

/// Range of missed scheduled times that wait for catch-up: later than `after`, up to `until`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gap {
    /// Start of the range, exclusive. All times up to here are processed or belong to an older gap.
    pub after: Timestamp,
    /// End of the range, inclusive.
    pub until: Timestamp,
}

/// Spec of a schedule as stored; written with every new generation.
#[derive(Debug, Clone, PartialEq)]
pub struct ScheduleHead {
    /// Parsed spec, with the fields that the job takes from the schedule.
    pub spec: Arc<ScheduleSpec>,
    /// The spec as JSON.
    pub body: Arc<str>,
}

/// Statistics of the ended runs of a schedule.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RunStatistics {
    /// Number of runs that succeeded.
    pub succeeded: u64,
    /// Number of runs that ended in any other way.
    pub failed: u64,
    /// Number of consecutive runs with the result of the last run; positive for successes, negative for failures.
    pub streak: i32,
    /// Durations of the last successful runs in milliseconds, oldest first; at most [`RunStatistics::DURATIONS_MAX`].
    pub durations: Vec<u32>,
}

impl RunStatistics {
    /// Maximum number of stored durations.
    pub const DURATIONS_MAX: usize = 32;

    /// Returns a percentile of the stored durations by nearest rank, or `None` if there are none.
    pub fn percentile(&self, percent: u32) -> Option<crate::Duration> {
        let mut sorted = self.durations.clone();
        sorted.sort_unstable();
        let rank = (sorted.len() * percent as usize).div_ceil(100).max(1);
        sorted.get(rank - 1).map(|&millis| crate::Duration::from_millis(u64::from(millis)))
    }
}

/// State of a schedule: everything that changes without a new generation.
#[derive(Debug, Clone, PartialEq)]
pub struct ScheduleState {
    /// Generation of the spec; increases with every change of the spec.
    pub generation: u64,
    /// Version of the schedule; increases with every change by a user and is the value of the ETag.
    pub version: u64,
    /// Time at which the schedule was created.
    pub created_at: Timestamp,
    /// Time of the last change by a user.
    pub updated_at: Timestamp,
    /// Current status of the schedule.
    pub status: ScheduleStatus,
    /// Pause of the schedule. `None` if it is not paused.
    pub pause: Option<Box<Pause>>,
    /// All scheduled times up to this one are processed, except those in `owed`.
    pub cursor: Timestamp,
    /// Ranges of missed scheduled times that wait for catch-up, oldest first; they do not overlap.
    pub owed: ThinVec<Gap>,
    /// Last scheduled time that no filter excluded, with any outcome.
    pub previous: Option<Timestamp>,
    /// Start of a fixed delay: the end of the last run. `None` while a run has not ended.
    pub delay_from: Option<Timestamp>,
    /// Next scheduled time that no filter excludes, if any.
    pub next_at: Option<Timestamp>,
    /// Number of firings by timer and catch-up that created a job or a run. `max_firings` limits this number.
    pub fired: u64,
    /// Number of scheduled times that created no job or run.
    pub skipped: u64,
    /// Scheduled time of the last firing, and the job or run that it created.
    pub last: Option<(Timestamp, Work)>,
    /// Scheduled time of the last manual firing; each manual firing has a different one.
    pub last_manual: Option<Timestamp>,
    /// Firings that wait for earlier runs to end, in order.
    pub buffer: ThinVec<BufferedFiring>,
    /// Newest ledger record without a job, as long as the next scheduled time may extend it.
    pub open_record: Option<Box<LedgerRecord>>,
    /// Statistics of the ended runs.
    pub statistics: Option<Box<RunStatistics>>,
}

/// Status of a backfill.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum BackfillStatus {
    /// The backfill starts runs.
    Running,
    /// All runs of the backfill have ended.
    Completed,
    /// A user cancelled the backfill; no further run is started.
    Cancelled,
}

/// Request of a backfill; written once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackfillHead {
    /// ID of the backfill.
    pub id: BackfillId,
    /// ID of the schedule.
    pub schedule: ScheduleId,
    /// Scheduled times, each with the one before it, in the order of the runs.
    pub scheduled_times: Arc<[(Timestamp, Option<Timestamp>)]>,
    /// Start of the requested range, inclusive.
    pub from: Timestamp,
    /// End of the requested range, inclusive.
    pub until: Timestamp,
    /// Maximum number of concurrent runs of the backfill.
    pub concurrency: u32,
    /// Action of the schedule at the time of the request, as JSON: the spec of the jobs with their priority, or a
    /// [`ScheduledRun`].
    pub body: Arc<str>,
    /// Generation of the schedule at the time of the request.
    pub generation: u64,
    /// Policy of the runs while other runs of the schedule have not ended: `buffer_all` waits for them, `allow_all`
    /// does not.
    pub overlap: OverlapPolicy,
    /// User who requested the backfill.
    pub actor: Arc<str>,
    /// Note of the user, as free text.
    pub note: Option<Box<str>>,
    /// Time of the request.
    pub created_at: Timestamp,
}

/// Workflow that a schedule or a backfill starts. Each run uses the definition of the workflow at the start of the
/// run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScheduledRun {
    /// Namespace of the workflow.
    pub namespace: String,
    /// Name and parameters of the workflow; the parameters can refer to the firing.
    pub workflow: Call,
    /// Priority of the jobs, which overrides the priority in their specs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<u8>,
}

/// Progress of a backfill.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackfillState {
    /// Current status of the backfill.
    pub status: BackfillStatus,
    /// Number of scheduled times for which a run was started.
    pub started: u32,
    /// Number of runs that succeeded.
    pub succeeded: u32,
    /// Number of runs that ended in any other way.
    pub failed: u32,
    /// Time at which the backfill ended. `None` while it is running.
    pub finished_at: Option<Timestamp>,
}
