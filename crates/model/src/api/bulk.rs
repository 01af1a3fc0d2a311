//! Changes of many jobs with one request: cancel, retry, update.
//!
//! A request names the jobs ([`JobSelection`]) and handles at most [`BULK_JOBS_MAX`] of them; `next_cursor` in the
//! response continues with the rest. So a client can show progress, and an interrupted client continues where it
//! stopped.

use super::{
    BTreeMap, BackfillId, Deserialize, JobId, JobStatus, RunId, ScheduleId, Serialize, ServiceId, Timestamp,
    ToSchema, WorkerId,
};

/// Maximum number of jobs that one request for many jobs handles.
pub const BULK_JOBS_MAX: u32 = 1_000;

/// Jobs of a request: either listed by ID, or all jobs that match the conditions. At least one ID or condition is
/// required.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct JobSelection {
    /// IDs of the jobs, at most 1000; cannot be combined with conditions.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 1_000)]
    pub ids: Vec<JobId>,
    /// Any of these statuses [default: for a cancel, the statuses of jobs that have not ended; for a retry, `failed` and
    /// `expired`; for an update, `ready` and `waiting`]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub status: Vec<JobStatus>,
    /// Owner of the job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Namespace of the job; `*` selects all namespaces.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Queue of the job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// Name of the job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Text that the name of the job contains. Letter case is ignored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Labels, of which the job must have all.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Worker of the newest execution of the job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker_id: Option<WorkerId>,
    /// Schedule of the job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schedule: Option<ScheduleId>,
    /// Backfill of the job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backfill: Option<BackfillId>,
    /// Workflow run of the job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<RunId>,
    /// Name of the workflow whose run created the job; runs that other runs called are included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workflow: Option<String>,
    /// Service whose replica the job is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service: Option<ServiceId>,
    /// Start of the range of submission times, inclusive.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created_after: Option<Timestamp>,
    /// End of the range of submission times, exclusive.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created_before: Option<Timestamp>,
}

impl JobSelection {
    /// Selects jobs by their IDs.
    pub fn of(ids: impl IntoIterator<Item = JobId>) -> Self {
        Self { ids: ids.into_iter().collect(), ..Self::default() }
    }
}

/// Request to cancel many jobs.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CancelJobs {
    /// Jobs to cancel.
    pub jobs: JobSelection,
    /// Reason for the cancellation, recorded in the history of each job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 1_000)]
    pub reason: Option<String>,
}

/// Request to retry many ended jobs: each becomes a new job with the same spec.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RetryJobs {
    /// Jobs to retry.
    pub jobs: JobSelection,
}

/// Request to change the specs of many jobs that have not started.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UpdateJobs {
    /// Jobs to change.
    pub jobs: JobSelection,
    /// Merge patch (RFC 7386) of the spec of each job, as in `PATCH /api/v1/jobs/{id}`.
    #[schema(value_type = Object)]
    pub patch: serde_json::Map<String, serde_json::Value>,
}

/// Response to a request for many jobs.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct ChangedJobs {
    /// Jobs that were changed, or would be changed in a dry run.
    pub changed: Vec<ChangedJob>,
    /// Jobs that were not changed, grouped by reason.
    pub refused: Vec<RefusedJobs>,
    /// Cursor of the remaining jobs. Absent once all selected jobs were handled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// Job that a request for many jobs changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ChangedJob {
    /// ID of the job. A running job that was cancelled ends once its execution has stopped.
    pub id: JobId,
    /// ID of the new job that a retry created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retried_as: Option<JobId>,
    /// Whether an earlier request with the same idempotency key had created `retried_as`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub already_retried: bool,
}

/// Jobs that a request for many jobs did not change, for one reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RefusedJobs {
    /// Error code, as in a refused request for one job.
    pub code: String,
    /// Description of the error for the first of these jobs.
    pub detail: String,
    /// IDs of the jobs.
    pub jobs: Vec<JobId>,
}
