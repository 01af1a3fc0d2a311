//! Requests and responses of the REST API for schedules, the ledger, backfills and calendars.
//!
//! In this order: the schedule as it is shown, with its runs, statistics and health; apply, pause and trigger;
//! previews and upcoming firings; ledger entries; backfills; calendars. The spec that users write is
//! [`ScheduleSpec`]. The texts of the types and fields are the descriptions in the OpenAPI document.

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

/// A schedule: creates a job or a workflow run at each of its scheduled times.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Schedule {
    /// ID of the schedule, assigned by the server.
    pub id: ScheduleId,
    /// Name of the schedule, unique in its namespace.
    pub name: String,
    /// Namespace (tenant) of the schedule.
    pub namespace: String,
    /// Owner of the schedule: the person or team responsible for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Labels of the schedule.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Purpose of the schedule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Current status of the schedule.
    pub status: ScheduleStatus,
    /// User who paused the schedule, with time and note. Absent if the schedule is not paused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause: Option<Pause>,
    /// Rules of the schedule in short form, for example `0 2 * * *`, `every 15m` or `on demand`.
    pub when: String,
    /// Time zone of the rules, as an IANA name.
    pub zone: String,
    /// Generation of the spec; increases with every change of the spec.
    pub generation: u64,
    /// Version of the schedule; increases with every change by a user and is the value of the ETag.
    pub version: u64,
    /// Time at which the schedule was created.
    pub created_at: Timestamp,
    /// Time of the last change by a user.
    pub updated_at: Timestamp,
    /// Time of the next firing. Absent if the schedule is paused or has no further firing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_at: Option<Timestamp>,
    /// Last firing that created a job or a workflow run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<LastFiring>,
    /// Number of scheduled times that created a job or a workflow run.
    pub fired: u64,
    /// Number of scheduled times that created nothing.
    pub skipped: u64,
    /// Firings that wait for the end of earlier runs, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub buffered: Vec<Buffered>,
    /// Statistics of the ended runs of the schedule.
    pub statistics: ScheduleStatistics,
    /// Late and stuck runs of the schedule. In lists only with `health=true`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health: Option<ScheduleHealth>,
    /// Newest runs of the schedule, newest first. Only in lists with `runs=N`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runs: Option<Vec<ScheduleRun>>,
    /// Spec of the schedule, with defaults. In lists only with `specs=true`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spec: Option<Box<ScheduleSpec>>,
    /// Warnings about the spec, for example that the schedule never fires. Only in the response to the request that
    /// created or changed the schedule.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<Warning>,
}

/// Last firing of a schedule that created a job or a workflow run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LastFiring {
    /// Scheduled time of the firing.
    pub scheduled_for: Timestamp,
    /// Job that the firing created. Absent if it created a workflow run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_id: Option<JobId>,
    /// Workflow run that the firing created. Absent if it created a job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
}

/// Summary of a run of a schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ScheduleRun {
    /// ID of the job. Absent if the run is a workflow run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_id: Option<JobId>,
    /// ID of the workflow run. Absent if the run is a job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
    /// Scheduled time of the firing that created the run.
    pub scheduled_for: Timestamp,
    /// Current status of the job or the workflow run.
    pub status: WorkStatus,
    /// Start time of the first execution of the job, or start time of the workflow run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    /// Time at which the run reached a final status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Timestamp>,
}

/// Status of a run of a schedule: the status of its job, or of its workflow run.
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

/// Firing that waits for the end of earlier runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Buffered {
    /// Scheduled time of the firing.
    pub scheduled_for: Timestamp,
    /// Cause of the firing.
    pub cause: FiringCause,
}

/// Statistics of the ended runs of a schedule.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, ToSchema)]
pub struct ScheduleStatistics {
    /// Number of runs that succeeded.
    pub succeeded: u64,
    /// Number of runs that ended in any other way.
    pub failed: u64,
    /// Fraction of the ended runs that succeeded, from 0 to 1. Absent before the first run has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub success_rate: Option<f64>,
    /// Number of consecutive runs with the result of the last run; positive for successes, negative for failures.
    pub streak: i32,
    /// 10th percentile of the durations of the last successful runs, at most 32.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_p10: Option<Duration>,
    /// 50th percentile (median) of the durations of the last successful runs, at most 32.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_p50: Option<Duration>,
    /// 90th percentile of the durations of the last successful runs, at most 32.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_p90: Option<Duration>,
    /// 95th percentile of the durations of the last successful runs, at most 32.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_p95: Option<Duration>,
    /// 99th percentile of the durations of the last successful runs, at most 32: the longest of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_p99: Option<Duration>,
}

/// Late and stuck runs of a schedule.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, ToSchema)]
pub struct ScheduleHealth {
    /// Number of runs of the schedule that have not ended.
    pub open_runs: u64,
    /// Runs that should have started by now.
    pub late_runs: Vec<LateOrStuckRun>,
    /// Runs that exceed their expected duration.
    pub stuck_runs: Vec<LateOrStuckRun>,
}

/// Late or stuck run of a schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LateOrStuckRun {
    /// ID of the job. Absent if the run is a workflow run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_id: Option<JobId>,
    /// ID of the workflow run. Absent if the run is a job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
    /// Scheduled time of the firing that created the run.
    pub scheduled_for: Timestamp,
    /// Time by which a late run should have started, or a stuck run should have ended.
    pub expected_by: Timestamp,
}

/// Request to apply several schedules in one transaction: all are applied or none.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ApplySchedules {
    /// Specs of the schedules, 1 to 10,000.
    pub schedules: Vec<ScheduleSpec>,
}

/// Response to a request to apply several schedules.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AppliedSchedules {
    /// One entry for each schedule of the request, in the order of the request.
    pub schedules: Vec<AppliedSchedule>,
}

/// Result of applying a schedule, or the expected result in a dry run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AppliedSchedule {
    /// ID of the schedule. Absent in a dry run that would create the schedule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<ScheduleId>,
    /// Name of the schedule.
    pub name: String,
    /// Namespace (tenant) of the schedule.
    pub namespace: String,
    /// Change of the schedule.
    pub change: ApplyChange,
    /// Generation of the schedule after the change.
    pub generation: u64,
    /// Version of the schedule after the change.
    pub version: u64,
    /// Warnings about the spec, for example that the schedule never fires. Empty for an unchanged schedule.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<Warning>,
}

/// Result of applying a schedule, a workflow or another named object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names say it")]
pub enum ApplyChange {
    Created,
    Changed,
    Unchanged,
}

impl ApplyChange {
    /// Returns the stable name of the change, as in JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Changed => "changed",
            Self::Unchanged => "unchanged",
        }
    }
}

/// Request to pause a schedule.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PauseSchedule {
    /// Reason for the pause.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// Request to fire a schedule immediately.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TriggerSchedule {
    /// Reason for the firing, recorded in the ledger.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Overlap policy of this firing [default: the policy of the schedule].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overlap: Option<OverlapPolicy>,
}

/// Result of firing a schedule by hand.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TriggeredSchedule {
    /// ID of the schedule.
    pub schedule_id: ScheduleId,
    /// Outcome of the firing: `fired`, `buffered`, or the reason why it created nothing.
    pub outcome: FiringOutcome,
    /// Job that the firing created. Absent if it created a workflow run or nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_id: Option<JobId>,
    /// Workflow run that the firing created. Absent if it created a job or nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
    /// Time under which the ledger records the firing.
    pub scheduled_for: Timestamp,
}

/// Request to preview the firings of a draft. The server stores nothing.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PreviewSchedule {
    /// Timing of the draft. Required unless `cron` is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timing: Option<Timing>,
    /// Cron expression of the draft, instead of `timing`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cron: Option<Cron>,
    /// Time zone of `cron`, as an IANA name [default: UTC].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// Number of firings to list, 1 to 1,000 [default: 20].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 1000)]
    pub count: Option<u32>,
    /// Start of the preview [default: now].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Timestamp>,
    /// Namespace of the calendars that the timing refers to [default: `default`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Name of the future schedule; determines the hashed values of `H` and `~`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// Preview of the next firings of a schedule or of a draft.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Preview {
    /// Firings in chronological order; fewer than requested if the schedule has no more.
    pub firings: Vec<PreviewFiring>,
    /// Description of the timing in natural language.
    pub description: TimingDescription,
    /// Warnings about the timing, for example that it never fires.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<Warning>,
    /// Time zone of the rules, as an IANA name.
    pub zone: String,
    /// Version of the time zone database that the server used.
    pub tzdb: String,
}

/// Description of a timing in natural language.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct TimingDescription {
    /// English description.
    pub en: String,
    /// Chinese description.
    #[serde(rename = "zh-CN")]
    pub zh_cn: String,
}

/// Predicted firing of one schedule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PreviewFiring {
    /// Scheduled time of the firing.
    pub at: Timestamp,
    /// Scheduled time as local time of the time zone, with its UTC offset.
    pub local: String,
    /// Indexes in `timing.rules` of the rules that produce the firing, from 0.
    pub rules: Vec<usize>,
    /// Adjustments of the time by a clock change or a calendar: `gap_shifted`, `overlap_first`, `overlap_second`,
    /// `rolled`, `clock_change` (the clocks change on that day).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub adjustments: Vec<String>,
}

/// Predicted firing in a list over all schedules.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UpcomingFiring {
    /// Scheduled time of the firing.
    pub at: Timestamp,
    /// ID of the schedule.
    pub schedule_id: ScheduleId,
    /// Name of the schedule.
    pub name: String,
    /// Namespace (tenant) of the schedule.
    pub namespace: String,
    /// Median duration of the last successful runs of the schedule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_p50: Option<Duration>,
}

/// Predicted firings of all schedules.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Upcoming {
    /// Firings in chronological order.
    pub items: Vec<UpcomingFiring>,
    /// End of the complete range: `items` holds all firings before this time. If the range is shorter than requested,
    /// pass this time as `from` to get the rest.
    pub until: Timestamp,
    /// Schedules with more firings than the requested limit; their further firings are missing in `items`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub truncated: Vec<ScheduleId>,
}

/// Entry of the ledger: the outcome of a scheduled time, or of several consecutive ones.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LedgerEntry {
    /// ID of the schedule.
    pub schedule_id: ScheduleId,
    /// Generation of the schedule that produced the scheduled time.
    pub generation: u64,
    /// Scheduled time, or the first one of several consecutive ones with the same outcome.
    pub scheduled_for: Timestamp,
    /// Last scheduled time of the entry; equal to `scheduled_for` if the entry has only one.
    pub last: Timestamp,
    /// Number of scheduled times in the entry.
    pub count: u64,
    /// Whether `count` is exact. False if there are more times than `count`, because they were too many to count.
    pub exact: bool,
    /// Outcome of the scheduled times.
    pub outcome: FiringOutcome,
    /// Cause of the firing.
    pub cause: FiringCause,
    /// Backfill that the entry belongs to. Absent for other firings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backfill_id: Option<BackfillId>,
    /// Job that the firing created. Absent if it created a workflow run or nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_id: Option<JobId>,
    /// Current status of that job. Absent if retention has deleted the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_status: Option<JobStatus>,
    /// Workflow run that the firing created. Absent if it created a job or nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
    /// Current status of that workflow run. Absent if retention has deleted the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_status: Option<RunStatus>,
    /// Time at which the server decided the outcome.
    pub decided_at: Timestamp,
    /// Details of the outcome, for example the filter that excluded the time, or the user who fired the schedule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// Details in a machine-readable form, for translation. Absent if `detail` has no known form.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<LedgerReason>,
    /// Version of the time zone database that the computation used.
    pub tzdb: String,
}

/// Page of the ledger of a schedule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Ledger {
    /// Entries of the page, latest scheduled time first.
    pub items: Vec<LedgerEntry>,
    /// Cursor for the next page (`?cursor=`). Absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
    /// Number of scheduled times by outcome, from `from` on. Only with `counts=true`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<BTreeMap<String, u64>>)]
    pub counts: Option<BTreeMap<FiringOutcome, u64>>,
}

/// Overlap policies that a backfill accepts.
#[derive(ToSchema)]
#[serde(rename_all = "snake_case")]
#[expect(dead_code, reason = "the document's view of `OverlapPolicy`")]
enum BackfillOverlap {
    BufferAll,
    AllowAll,
}

/// Request to backfill a past range of a schedule.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StartBackfill {
    /// Start of the range, inclusive.
    pub from: Timestamp,
    /// End of the range, inclusive; cannot be in the future.
    pub until: Timestamp,
    /// Whether to run the newest scheduled time first [default: false].
    #[serde(default)]
    pub newest_first: bool,
    /// Maximum number of concurrent runs of the backfill, 1 to 1,000 [default: 1].
    #[serde(default = "one")]
    pub concurrency: u32,
    /// Priority of the jobs of the backfill, from 0 (last) to 100 (first) [default: 10, so that current work starts
    /// first].
    #[serde(default = "backfill_priority")]
    pub priority: u8,
    /// Overlap policy: `buffer_all` waits for other runs of the schedule within its limit of concurrent runs;
    /// `allow_all` does not wait.
    #[serde(default = "buffer_all")]
    #[schema(value_type = BackfillOverlap, default = "buffer_all")]
    pub overlap: OverlapPolicy,
    /// Scheduled times with an existing run that the backfill repeats [default: none].
    #[serde(default)]
    pub reprocess: Reprocess,
    /// Reason for the backfill.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

impl StartBackfill {
    /// Returns a backfill of the range with default options.
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

/// Scheduled times with an existing run that a backfill repeats.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Reprocess {
    /// Repeats none of them.
    #[default]
    None,
    /// Repeats those whose last run did not succeed.
    Failed,
    /// Repeats all of them.
    All,
}

/// Runs that a backfill would start, for a dry run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BackfillPlan {
    /// Scheduled times that the backfill would run, in order of execution.
    pub scheduled_times: Vec<Timestamp>,
    /// Scheduled times of the range that the backfill would leave out; at most 1,000.
    pub left_out: Vec<LeftOut>,
    /// Total number of scheduled times that the backfill would leave out.
    pub left_out_count: u64,
}

/// Scheduled time that a backfill leaves out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LeftOut {
    /// Scheduled time.
    pub at: Timestamp,
    /// Reason why the backfill leaves the time out.
    pub reason: LeftOutReason,
    /// Filter that excludes the time. Present only for the reason `excluded`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// Existing job for the time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_id: Option<JobId>,
    /// Existing workflow run for the time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
}

/// Reason why a backfill leaves a scheduled time out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum LeftOutReason {
    /// A filter of the timing excludes the time.
    Excluded,
    /// The time has a run that succeeded.
    Succeeded,
    /// The time has a run that failed, and the backfill does not repeat failed runs.
    Failed,
    /// The time has a run that has not ended.
    NotEnded,
    /// The time had a run that retention has deleted.
    Purged,
}

/// A backfill: runs of a schedule for a past range.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Backfill {
    /// ID of the backfill, assigned by the server.
    pub id: BackfillId,
    /// ID of the schedule.
    pub schedule_id: ScheduleId,
    /// Name of the schedule. Absent after the schedule was deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<String>,
    /// Current status of the backfill.
    pub status: BackfillStatus,
    /// Start of the range, inclusive.
    pub from: Timestamp,
    /// End of the range, inclusive.
    pub until: Timestamp,
    /// Total number of runs of the backfill.
    pub total: u64,
    /// Number of runs that were started.
    pub started: u32,
    /// Number of runs that succeeded.
    pub succeeded: u32,
    /// Number of runs that ended in any other way.
    pub failed: u32,
    /// Maximum number of concurrent runs of the backfill.
    pub concurrency: u32,
    /// Overlap policy of the runs towards other runs of the schedule.
    pub overlap: OverlapPolicy,
    /// Generation of the schedule at the start of the backfill.
    pub generation: u64,
    /// User who started the backfill.
    pub created_by: String,
    /// Reason for the backfill, as given by that user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Time at which the backfill was created.
    pub created_at: Timestamp,
    /// Time at which the backfill ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Timestamp>,
}

/// Request to cancel a backfill.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CancelBackfill {
    /// Whether to cancel the started runs of the backfill too; otherwise they continue [default: false].
    #[serde(default)]
    pub cancel_runs: bool,
}

/// A calendar: a set of days that schedules refer to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Calendar {
    /// Name of the calendar.
    pub name: String,
    /// Namespace (tenant) of the calendar. Absent for built-in calendars.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Whether the calendar is built into Belfry and cannot be changed.
    #[serde(default)]
    pub built_in: bool,
    /// Description of the calendar.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Last day for which the calendar has data. Present only for calendars of published years.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = Date)]
    pub known_until: Option<jiff::civil::Date>,
    /// Version of the calendar and value of the ETag; 0 for built-in calendars.
    pub version: u64,
    /// Time at which the calendar was created. Absent for built-in calendars.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_at: Option<Timestamp>,
    /// Time of the last change of the calendar. Absent for built-in calendars.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub updated_at: Option<Timestamp>,
    /// Spec of the calendar. Absent in lists and for built-in calendars.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spec: Option<Box<CalendarSpec>>,
}

/// Days of a calendar within a requested range.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CalendarDays {
    /// Days of the range that belong to the calendar, in order.
    #[schema(value_type = Vec<String>)]
    pub days: Vec<jiff::civil::Date>,
    /// Last day for which the calendar has data. Present only for calendars of published years.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = Date)]
    pub known_until: Option<jiff::civil::Date>,
}

/// Result of importing an iCalendar file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ImportedCalendar {
    /// Calendar that the file describes. Saved only if the request names it.
    pub spec: CalendarSpec,
    /// Whether the calendar was saved.
    pub saved: bool,
    /// Events that the import ignored, with the reason.
    pub ignored: Vec<IgnoredEvent>,
}

/// Event of an iCalendar file that the import ignored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct IgnoredEvent {
    /// Number of the line where the event begins, from 1.
    pub line: usize,
    /// Reason why the import ignored the event.
    pub reason: String,
}
