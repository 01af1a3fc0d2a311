//! Firings: what became of every instant of a schedule, and what came of it.
//!
//! A *nominal instant* is a time that the rules of a schedule name. Each gets one record in the
//! *fire ledger*, with its outcome: the job or the run that it created, or why it created none.

mod detail;

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use thin_vec::ThinVec;
use utoipa::ToSchema;

use crate::id::{BackfillId, JobId, RunId, ScheduleId};
use crate::schedule::{OverlapPolicy, ScheduleSpec};
use crate::time::Timestamp;
use crate::workflow::Call;

pub use detail::{Detail, DetailCode};

/// What a firing creates: a job, or a run of a workflow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Work {
    /// A job.
    Job(JobId),
    /// A run.
    Run(RunId),
}

impl Work {
    /// The job, if it is one.
    pub fn job(self) -> Option<JobId> {
        match self {
            Self::Job(job) => Some(job),
            Self::Run(_) => None,
        }
    }

    /// The run, if it is one.
    pub fn run(self) -> Option<RunId> {
        match self {
            Self::Run(run) => Some(run),
            Self::Job(_) => None,
        }
    }

    /// The bits of its id.
    pub fn to_bits(self) -> u128 {
        match self {
            Self::Job(job) => job.to_bits(),
            Self::Run(run) => run.to_bits(),
        }
    }

    /// When it was created, as its id knows it.
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

/// Where a job or a run of a schedule comes from. Given to a job's task as `BELFRY_SCHEDULE`,
/// `BELFRY_SCHEDULED_FOR`, `BELFRY_INTERVAL_START` and `BELFRY_INTERVAL_END`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Origin {
    /// The schedule.
    pub schedule: ScheduleId,
    /// Its name when the job was created.
    #[schema(value_type = String)]
    pub name: Arc<str>,
    /// Its generation.
    pub generation: u64,
    /// The nominal instant, without jitter and delays.
    pub scheduled_for: Timestamp,
    /// The nominal instant before: the interval of data that this run is for begins here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval_start: Option<Timestamp>,
    /// Where that interval ends: the nominal instant.
    pub interval_end: Timestamp,
    /// What brought it about.
    pub cause: FiringCause,
    /// The backfill that it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backfill: Option<BackfillId>,
    /// Until when it may start for the first time, by the schedule's starting deadline.
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
    /// Skipped because the starting deadline had passed.
    SkippedDeadline,
    /// Missed, and not caught up: the policy catches up no firing, or none that old.
    SkippedPolicy,
    /// Skipped because the rules were replaced, or the schedule completed or was deleted, before the firing started.
    SkippedReplaced,
    /// Dropped because too many firings were waiting.
    Shed,
    /// Not started: the workflow does not exist, or does not accept the parameters of the schedule.
    NotStarted,
}

impl FiringOutcome {
    /// All of them.
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
        Self::Shed,
        Self::NotStarted,
    ];

    /// Its stable word.
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
            Self::Shed => "shed",
            Self::NotStarted => "not_started",
        }
    }

    /// Whether it created a job.
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
                "`{}` is no outcome of a firing: expected one of `{all}`",
                text.chars().take(64).collect::<String>()
            )
        })
    }
}

/// One line of the fire ledger: what became of a nominal instant, or of a row of consecutive ones
/// that shared an outcome without a job.
///
/// Unique by schedule, generation, `first`, cause and backfill. Written again when it changes: when
/// a buffered firing gets its turn, or when the next instant shares the outcome.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LedgerRecord {
    /// Whose.
    pub schedule: ScheduleId,
    /// Under which of its generations.
    pub generation: u64,
    /// The nominal instant, or the first of a row.
    pub first: Timestamp,
    /// The last of the row; `first` for a single one.
    pub last: Timestamp,
    /// How many instants it stands for.
    pub count: u64,
    /// False if there are more than `count`: they were too many to be counted.
    pub exact: bool,
    /// What became of it.
    pub outcome: FiringOutcome,
    /// What brought it about.
    pub cause: FiringCause,
    /// The backfill that it belongs to.
    pub backfill: Option<BackfillId>,
    /// The job or the run that it created.
    #[serde(alias = "job")]
    pub work: Option<Work>,
    /// When it, or the last of the row, was decided.
    pub decided_at: Timestamp,
    /// Which filter held it, who triggered it and why, and the like.
    pub detail: Option<Box<str>>,
    /// The version of the time zone database that it was computed with.
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

impl ScheduleStatus {
    /// Its stable word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Paused => "paused",
            Self::Completed => "completed",
        }
    }
}

/// Who paused a schedule, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Pause {
    /// Since when.
    pub at: Timestamp,
    /// Who: a user, or `belfry` after too many failures.
    #[schema(value_type = String)]
    pub by: Box<str>,
    /// What they said about it.
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

/// A firing that waits for its turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BufferedFiring {
    /// Its nominal instant.
    pub scheduled_for: Timestamp,
    /// What brought it about: the timer, a catch-up, or somebody.
    pub cause: FiringCause,
    /// The generation under which it was decided.
    pub generation: u64,
    /// Who triggered it and why.
    pub detail: Option<Box<str>>,
    /// The idempotency key that it came with, and the hash of what was asked under it.
    pub key: Option<(u128, u128)>,
}

/// Instants that were missed and are to be made up for: each after `after`, up to `until`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gap {
    /// Everything up to here is decided, or belongs to an older gap.
    pub after: Timestamp,
    /// The end, inclusive.
    pub until: Timestamp,
}

/// What a schedule was asked to be. Written again with every generation.
#[derive(Debug, Clone, PartialEq)]
pub struct ScheduleHead {
    /// The spec, parsed and filled.
    pub spec: Arc<ScheduleSpec>,
    /// The same spec as JSON.
    pub body: Arc<str>,
}

/// How the runs of a schedule went so far.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Track {
    /// Runs that ended well.
    pub succeeded: u64,
    /// Runs that ended otherwise.
    pub failed: u64,
    /// Runs in a row that ended like the last one: above zero well, below zero badly.
    pub streak: i32,
    /// How long the last successful runs took, in milliseconds, oldest first; at most
    /// [`Track::DURATIONS_MAX`].
    pub durations: Vec<u32>,
}

impl Track {
    /// How many run times are kept.
    pub const DURATIONS_MAX: usize = 32;

    /// The run time below which `percent` of the kept ones lie, by nearest rank.
    pub fn percentile(&self, percent: u32) -> Option<crate::Duration> {
        let mut sorted = self.durations.clone();
        sorted.sort_unstable();
        let rank = (sorted.len() * percent as usize).div_ceil(100).max(1);
        sorted.get(rank - 1).map(|&millis| crate::Duration::from_millis(u64::from(millis)))
    }
}

/// All of a schedule that changes without a new generation.
#[derive(Debug, Clone, PartialEq)]
pub struct ScheduleState {
    /// Which version of its spec: grows with every change of the spec.
    pub generation: u64,
    /// Grows with every change that somebody asked for; its ETag.
    pub version: u64,
    /// When it was made.
    pub created_at: Timestamp,
    /// When somebody last changed it.
    pub updated_at: Timestamp,
    /// Whether it fires.
    pub status: ScheduleStatus,
    /// Who paused it.
    pub pause: Option<Box<Pause>>,
    /// Every nominal instant up to this one is decided, but for those that are owed.
    pub cursor: Timestamp,
    /// Missed instants that are to be made up for, oldest first. They do not overlap.
    pub owed: ThinVec<Gap>,
    /// The last nominal instant that no filter held, whatever became of it.
    pub previous: Option<Timestamp>,
    /// What a fixed delay is counted from: the end of the last run. None while one is open.
    pub delay_from: Option<Timestamp>,
    /// The next nominal instant that no filter holds, if there is one.
    pub next_at: Option<Timestamp>,
    /// Firings by the timer and by catch-up that created a job or a run: those that `max_firings` counts.
    pub fired: u64,
    /// Instants that created none.
    pub skipped: u64,
    /// The nominal instant of the last firing, and what it created.
    pub last: Option<(Timestamp, Work)>,
    /// The nominal instant of the last manual firing: each has one of its own.
    pub last_manual: Option<Timestamp>,
    /// Firings that wait for their turn, in order.
    pub buffer: ThinVec<BufferedFiring>,
    /// The newest ledger record without a job, while the next instant may still extend it.
    pub open_record: Option<Box<LedgerRecord>>,
    /// How its runs went.
    pub track: Option<Box<Track>>,
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

/// What a backfill was asked to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackfillHead {
    /// Which.
    pub id: BackfillId,
    /// Of which schedule.
    pub schedule: ScheduleId,
    /// Its nominal instants with the one before each, in the order in which they are run.
    pub instants: Arc<[(Timestamp, Option<Timestamp>)]>,
    /// The range that was asked for: from, inclusive.
    pub from: Timestamp,
    /// The range that was asked for: until, inclusive.
    pub until: Timestamp,
    /// How many of its runs there may be at once.
    pub concurrency: u32,
    /// What its runs are, as JSON, as it was when somebody asked: the spec of its jobs with their priority,
    /// or [which workflow](ScheduledRun) is started.
    pub body: Arc<str>,
    /// The generation of the schedule that it is from.
    pub generation: u64,
    /// What its runs do while other runs of the schedule are not over: `buffer_all` waits for them,
    /// `allow_all` does not.
    pub overlap: OverlapPolicy,
    /// Who asked.
    pub actor: Arc<str>,
    /// What they said about it.
    pub note: Option<Box<str>>,
    /// When.
    pub created_at: Timestamp,
}

/// What a schedule or a backfill starts a run of. The workflow is taken as it is when a run starts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScheduledRun {
    /// The namespace of the workflow.
    pub namespace: String,
    /// The workflow and its parameters, which may refer to the firing.
    pub workflow: Call,
    /// The priority of its jobs, instead of what their specs say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<u8>,
}

/// How far a backfill is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackfillState {
    /// Where it stands.
    pub status: BackfillStatus,
    /// How many of its instants were started.
    pub started: u32,
    /// How many of its runs succeeded.
    pub succeeded: u32,
    /// How many ended otherwise.
    pub failed: u32,
    /// When it ended.
    pub finished_at: Option<Timestamp>,
}
