//! Schedules, what became of their instants, backfills and calendars, as the API shows them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{LedgerReason, Warning};
use crate::calendar::CalendarSpec;
use crate::firing::{BackfillStatus, FiringCause, FiringOutcome, Pause, ScheduleStatus};
use crate::id::{BackfillId, JobId, RunId, ScheduleId};
use crate::run::RunStatus;
use crate::schedule::{OverlapPolicy, ScheduleSpec};
use crate::status::JobStatus;
use crate::time::{Duration, Timestamp};
use crate::timing::{Cron, Timing};

/// A schedule.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Schedule {
    /// Its id.
    pub id: ScheduleId,
    /// Its name, unique in its namespace.
    pub name: String,
    /// The tenant that it belongs to.
    pub namespace: String,
    /// Who answers for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Its labels.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// What it is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Whether it fires.
    pub status: ScheduleStatus,
    /// Who paused it, and why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause: Option<Pause>,
    /// Its rules in short: `0 2 * * *`, `every 15m`, `on demand`.
    pub when: String,
    /// The time zone of its rules.
    pub zone: String,
    /// Which version of its spec: grows with every change of the spec.
    pub generation: u64,
    /// Grows with every change that somebody asked for; the number in its ETag.
    pub version: u64,
    /// When it was made.
    pub created_at: Timestamp,
    /// When somebody last changed it.
    pub updated_at: Timestamp,
    /// Its next firing; none while it is paused, or has no time left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_at: Option<Timestamp>,
    /// Its last firing that created a job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<LastFiring>,
    /// How many of its instants created a job.
    pub fired: u64,
    /// How many created none.
    pub skipped: u64,
    /// Firings that wait for their turn, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub buffered: Vec<Buffered>,
    /// How its runs went.
    pub track: ScheduleTrack,
    /// What is late or stuck at this moment; in lists only with `health=true`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health: Option<ScheduleHealth>,
    /// Its newest runs, the newest first; only in lists with `runs=N`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runs: Option<Vec<ScheduleRun>>,
    /// What it was asked to be; in lists only with `specs=true`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spec: Option<Box<ScheduleSpec>>,
    /// What whoever created or changed it should know, such as that it never fires; only in the answer
    /// to that request.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<Warning>,
}

/// The last firing of a schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LastFiring {
    /// Its nominal instant.
    pub scheduled_for: Timestamp,
    /// The job that it created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_id: Option<JobId>,
    /// Instead of a job: the run of a workflow that it created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
}

/// A run of a schedule, in short.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ScheduleRun {
    /// The job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_id: Option<JobId>,
    /// Instead of a job: the run of a workflow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
    /// The nominal instant that it is for.
    pub scheduled_for: Timestamp,
    /// Where it stands.
    pub status: WorkStatus,
    /// When an execution started first, or the turn of a run of a workflow came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    /// When it reached a final status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Timestamp>,
}

/// Where a run of a schedule stands: the word of its job, or of its run of a workflow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the statuses of jobs and of runs say it")]
pub enum WorkStatus {
    Ready,
    Waiting,
    Running,
    Paused,
    Retrying,
    Stopping,
    Succeeded,
    Failed,
    Cancelled,
    Expired,
}

impl From<JobStatus> for WorkStatus {
    fn from(status: JobStatus) -> Self {
        match status {
            JobStatus::Ready => Self::Ready,
            JobStatus::Waiting => Self::Waiting,
            JobStatus::Running => Self::Running,
            JobStatus::Retrying => Self::Retrying,
            JobStatus::Succeeded => Self::Succeeded,
            JobStatus::Failed => Self::Failed,
            JobStatus::Cancelled => Self::Cancelled,
            JobStatus::Expired => Self::Expired,
        }
    }
}

impl From<RunStatus> for WorkStatus {
    fn from(status: RunStatus) -> Self {
        match status {
            RunStatus::Waiting => Self::Waiting,
            RunStatus::Running => Self::Running,
            RunStatus::Paused => Self::Paused,
            RunStatus::Stopping => Self::Stopping,
            RunStatus::Succeeded => Self::Succeeded,
            RunStatus::Failed => Self::Failed,
            RunStatus::Cancelled => Self::Cancelled,
            RunStatus::Retrying => Self::Retrying,
        }
    }
}

/// A firing that waits for its turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Buffered {
    /// Its nominal instant.
    pub scheduled_for: Timestamp,
    /// What brought it about.
    pub cause: FiringCause,
}

/// How the runs of a schedule went so far.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, ToSchema)]
pub struct ScheduleTrack {
    /// Runs that ended well.
    pub succeeded: u64,
    /// Runs that ended otherwise.
    pub failed: u64,
    /// The part of them that ended well, from 0 to 1; absent before the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub success_rate: Option<f64>,
    /// Runs in a row that ended like the last one: above zero well, below zero badly.
    pub streak: i32,
    /// How long one in ten of the last successful runs took at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_p10: Option<Duration>,
    /// How long half of them took at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_p50: Option<Duration>,
    /// How long nine of ten took at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_p90: Option<Duration>,
    /// How long nineteen of twenty took at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_p95: Option<Duration>,
    /// How long 99 of 100 took at most: the longest of the last ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_p99: Option<Duration>,
}

/// What is late or stuck of a schedule at this moment.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, ToSchema)]
pub struct ScheduleHealth {
    /// How many of its runs are not over.
    pub open_runs: u64,
    /// Those that should have started by now.
    pub late_now: Vec<TroubledRun>,
    /// Those that run far longer than they should.
    pub stuck_now: Vec<TroubledRun>,
}

/// A run that is late or stuck.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TroubledRun {
    /// The job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_id: Option<JobId>,
    /// Instead of a job: the run of a workflow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
    /// Its nominal instant.
    pub scheduled_for: Timestamp,
    /// When it should have started, or ended.
    pub expected_by: Timestamp,
}

/// Several schedules, applied all or none.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ApplySchedules {
    /// At least one, at most 10,000.
    pub schedules: Vec<ScheduleSpec>,
}

/// What applying several schedules did, in their order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AppliedSchedules {
    /// One for each schedule of the request.
    pub schedules: Vec<AppliedSchedule>,
}

/// What applying a schedule did, or would do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AppliedSchedule {
    /// Its id; absent if it would be created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<ScheduleId>,
    /// Its name.
    pub name: String,
    /// The tenant that it belongs to.
    pub namespace: String,
    /// What was done.
    pub change: ApplyChange,
    /// Its generation now.
    pub generation: u64,
    /// Its version now.
    pub version: u64,
    /// What somebody should know about it, such as that it never fires; none of what is unchanged.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<Warning>,
}

/// What applying a named thing did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names say it")]
pub enum ApplyChange {
    Created,
    Changed,
    Unchanged,
}

impl ApplyChange {
    /// Its stable word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Changed => "changed",
            Self::Unchanged => "unchanged",
        }
    }
}

/// What to say when pausing.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PauseSchedule {
    /// Why, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// How to fire now.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TriggerSchedule {
    /// Why, for people; recorded in the ledger.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What it does while earlier runs are not over, instead of the schedule's own policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overlap: Option<OverlapPolicy>,
}

/// What became of a trigger.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TriggeredSchedule {
    /// The schedule.
    pub schedule_id: ScheduleId,
    /// `fired`, `buffered`, or why it created nothing.
    pub outcome: FiringOutcome,
    /// The job that it created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_id: Option<JobId>,
    /// Instead of a job: the run of a workflow that it created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
    /// The instant that it is recorded under.
    pub scheduled_for: Timestamp,
}

/// A draft to look at: nothing is stored.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PreviewSchedule {
    /// The timing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timing: Option<Timing>,
    /// Instead of a timing: a cron expression alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cron: Option<Cron>,
    /// The zone of that expression; UTC where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// How many firings; 20 where absent, at most 1,000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 1000)]
    pub n: Option<u32>,
    /// From when on; now where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Timestamp>,
    /// Whose calendars are meant; `default` where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The name of the schedule that it is to be; decides what `H` and `~` mean.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// The next firings of a schedule or of a draft.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Preview {
    /// In order; fewer than were asked for if there are no more.
    pub firings: Vec<PreviewFiring>,
    /// The timing in words.
    pub words: Words,
    /// What somebody should know before it is used.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<Warning>,
    /// The time zone.
    pub zone: String,
    /// The version of the time zone database that was used.
    pub tzdb: String,
}

/// A timing in words.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct Words {
    /// In English.
    pub en: String,
    /// In Chinese.
    #[serde(rename = "zh-CN")]
    pub zh_cn: String,
}

/// One firing to come.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PreviewFiring {
    /// The instant.
    pub at: Timestamp,
    /// The same on the wall of the zone, with its offset.
    pub local: String,
    /// Which rules name it, by their place in `timing.rules`.
    pub rules: Vec<usize>,
    /// What a change of the clocks or a calendar did to it: `gap_shifted`, `overlap_first`,
    /// `overlap_second`, `rolled`, `clock_change` (the clocks change on that day).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub marks: Vec<String>,
}

/// A firing to come, of any schedule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UpcomingFiring {
    /// When.
    pub at: Timestamp,
    /// The schedule.
    pub schedule_id: ScheduleId,
    /// Its name.
    pub name: String,
    /// The tenant that it belongs to.
    pub namespace: String,
    /// How long its runs usually take: the median of the last ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_p50: Option<Duration>,
}

/// Firings to come.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Upcoming {
    /// In order.
    pub items: Vec<UpcomingFiring>,
    /// Everything until then is in `items`; less than was asked for if there was too much. What follows
    /// is had by asking again with this as `from`.
    pub until: Timestamp,
    /// Schedules that fire oftener than was asked for: what they fire behind their last item is left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cut: Vec<ScheduleId>,
}

/// One line of the fire ledger.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LedgerEntry {
    /// Whose.
    pub schedule_id: ScheduleId,
    /// Under which of its generations.
    pub generation: u64,
    /// The nominal instant, or the first of a row that shared an outcome.
    pub scheduled_for: Timestamp,
    /// The last of the row; the same for a single one.
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
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backfill_id: Option<BackfillId>,
    /// The job that it created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_id: Option<JobId>,
    /// Where that job stands; absent once its retention is over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_status: Option<JobStatus>,
    /// Instead of a job: the run of a workflow that it created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
    /// Where that run stands; absent once its retention is over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_status: Option<RunStatus>,
    /// When it was decided.
    pub decided_at: Timestamp,
    /// Which filter held it, who triggered it and why, and the like.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// The same taken apart, for pages in another language; absent where it has none of the known forms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<LedgerReason>,
    /// The version of the time zone database that it was computed with.
    pub tzdb: String,
}

/// One page of a fire ledger.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Ledger {
    /// The newest instant first.
    pub items: Vec<LedgerEntry>,
    /// For the next page (`?cursor=`); absent on the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
    /// With `counts=true`: how many instants had each outcome, since `from`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<BTreeMap<String, u64>>)]
    pub counts: Option<BTreeMap<FiringOutcome, u64>>,
}

/// The overlap policies that a backfill may have.
#[derive(ToSchema)]
#[serde(rename_all = "snake_case")]
#[expect(dead_code, reason = "the document's view of `OverlapPolicy`")]
enum BackfillOverlap {
    BufferAll,
    AllowAll,
}

/// A past range to make up for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StartBackfill {
    /// From when on, inclusive.
    pub from: Timestamp,
    /// Until when, inclusive; not in the future.
    pub until: Timestamp,
    /// Whether the newest instant is run first.
    #[serde(default)]
    pub newest_first: bool,
    /// How many of its runs there may be at once; 1 to 1,000.
    #[serde(default = "one")]
    pub concurrency: u32,
    /// The priority of its jobs: low, so that the work of today goes first.
    #[serde(default = "backfill_priority")]
    pub priority: u8,
    /// `buffer_all` waits for other runs of the schedule as its limit says; `allow_all` does not.
    #[serde(default = "buffer_all")]
    #[schema(value_type = BackfillOverlap, default = "buffer_all")]
    pub overlap: OverlapPolicy,
    /// Which instants are run that have a run already.
    #[serde(default)]
    pub reprocess: Reprocess,
    /// Why, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

impl StartBackfill {
    /// A backfill of a range with every default.
    pub fn new(from: Timestamp, until: Timestamp) -> Self {
        Self {
            from,
            until,
            newest_first: false,
            concurrency: one(),
            priority: backfill_priority(),
            overlap: buffer_all(),
            reprocess: Reprocess::default(),
            note: None,
        }
    }
}

const fn one() -> u32 {
    1
}

const fn backfill_priority() -> u8 {
    10
}

const fn buffer_all() -> OverlapPolicy {
    OverlapPolicy::BufferAll
}

/// Which instants a backfill runs that have a run already.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Reprocess {
    /// None of them.
    #[default]
    None,
    /// Those whose last run ended badly.
    Failed,
    /// All of them.
    All,
}

/// What a backfill would start, for a dry run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BackfillPlan {
    /// The instants, in the order in which they would be run.
    pub instants: Vec<Timestamp>,
    /// Those of the range that would be left out; the first 1,000 of them.
    pub left_out: Vec<LeftOut>,
    /// How many would be left out in all.
    pub left_out_count: u64,
}

/// An instant that a backfill leaves out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LeftOut {
    /// Which.
    pub at: Timestamp,
    /// Why.
    pub reason: LeftOutReason,
    /// Which filter holds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// The job that it has already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_id: Option<JobId>,
    /// Instead of a job: the run of a workflow that it has already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
}

/// Why a backfill leaves an instant out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum LeftOutReason {
    /// A filter of the timing holds it.
    Held,
    /// It has a run that ended well.
    Succeeded,
    /// It has a run that ended badly, and those are not to be repeated.
    Failed,
    /// It has a run that is not over.
    NotOver,
    /// It had a run that is no longer kept.
    Forgotten,
}

/// A backfill.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Backfill {
    /// Its id.
    pub id: BackfillId,
    /// Of which schedule.
    pub schedule_id: ScheduleId,
    /// The name of that schedule; absent once it is deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<String>,
    /// Where it stands.
    pub status: BackfillStatus,
    /// The range: from, inclusive.
    pub from: Timestamp,
    /// The range: until, inclusive.
    pub until: Timestamp,
    /// How many runs it has in all.
    pub total: u64,
    /// How many were started.
    pub started: u32,
    /// How many succeeded.
    pub succeeded: u32,
    /// How many ended otherwise.
    pub failed: u32,
    /// How many of its runs there may be at once.
    pub concurrency: u32,
    /// What its runs do while other runs of the schedule are not over.
    pub overlap: OverlapPolicy,
    /// The generation of the schedule that it is from.
    pub generation: u64,
    /// Who asked.
    pub created_by: String,
    /// What they said about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// When.
    pub created_at: Timestamp,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Timestamp>,
}

/// How to cancel a backfill.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CancelBackfill {
    /// Whether its runs are cancelled too; else they go on.
    #[serde(default)]
    pub cancel_runs: bool,
}

/// A calendar.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Calendar {
    /// Its name.
    pub name: String,
    /// The tenant that it belongs to; absent for built-in ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Whether it is part of Belfry, and cannot be changed.
    #[serde(default)]
    pub built_in: bool,
    /// What it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The last day that it is known for, where it comes from published years.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = Date)]
    pub known_until: Option<jiff::civil::Date>,
    /// The number in its ETag; 0 for built-in ones.
    pub version: u64,
    /// When it was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_at: Option<Timestamp>,
    /// When it last changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub updated_at: Option<Timestamp>,
    /// What it was asked to be; left out of lists, and absent for built-in ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spec: Option<Box<CalendarSpec>>,
}

/// Days of a calendar.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CalendarDays {
    /// The days of the range that belong to it, in order.
    #[schema(value_type = Vec<String>)]
    pub days: Vec<jiff::civil::Date>,
    /// The last day that it is known for, where it comes from published years.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = Date)]
    pub known_until: Option<jiff::civil::Date>,
}

/// What was read from an iCalendar text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ImportedCalendar {
    /// The calendar, to be looked at; saved if a name was given.
    pub spec: CalendarSpec,
    /// Whether it was saved.
    pub saved: bool,
    /// Events that were not taken over, and why.
    pub ignored: Vec<IgnoredEvent>,
}

/// An event of an iCalendar text that was not taken over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct IgnoredEvent {
    /// The line where it begins.
    pub line: usize,
    /// Why.
    pub reason: String,
}
