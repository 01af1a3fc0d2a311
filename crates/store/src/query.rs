//! Filters, pages and rows of the queries that the API and the dashboard send to a store.
//!
//! A filter has a field for each condition; its default matches everything, and `lists` defines what a
//! condition means for every store. A *row* is what a query returns: the head and the state of an object,
//! where lists omit histories. A page continues after the last ID of the page before, so objects that are
//! created meanwhile do not move it.
//!
//! The types contain the model's own records. The API converts them to its types, so that a change here is no
//! change of the API.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::firing::{
    BackfillHead, BackfillState, FiringCause, FiringOutcome, Origin, ScheduleState, ScheduleStatus,
};
use model::record::{Event, ExecutionRecord, JobState};
use model::run::{RunHead, RunState, RunStatus, StepOrigin, WorkflowHead, WorkflowState};
use model::service::{ReplicaOrigin, ServiceHead, ServiceState};
use model::{
    BackfillId, ExecutionStatus, JobId, JobStatus, RunId, ScheduleId, ServiceId, Timestamp, WorkerId,
    WorkflowId,
};
use serde::{Deserialize, Serialize};

/// Page of a list: items with smaller IDs than `after`, newest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Page<Id> {
    /// Last ID of the previous page. `None` for the first page.
    pub after: Option<Id>,
    /// Maximum number of items; at least 1.
    pub limit: usize,
}

/// One page of a list.
#[derive(Debug, Clone, PartialEq)]
pub struct Paged<T> {
    /// Items, in the order of the list.
    pub items: Vec<T>,
    /// Whether further items follow.
    pub more: bool,
}

/// Filter for jobs. All given conditions must match.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct JobFilter {
    /// Any of these IDs; empty matches all. At most some thousands: each is a parameter of the query.
    pub ids: Vec<JobId>,
    /// Any of these statuses; empty matches all.
    pub statuses: Vec<JobStatus>,
    /// Namespace; `None` matches all.
    pub namespace: Option<String>,
    /// Owner of the job.
    pub owner: Option<String>,
    /// Queue of the job.
    pub queue: Option<String>,
    /// Name of the job.
    pub name: Option<String>,
    /// Substring of the name, case-insensitive.
    pub text: Option<String>,
    /// Labels; the job must have all of them.
    pub labels: BTreeMap<String, String>,
    /// Worker of the newest execution.
    pub worker: Option<WorkerId>,
    /// Minimum creation time, inclusive.
    pub created_after: Option<Timestamp>,
    /// Maximum creation time, exclusive.
    pub created_before: Option<Timestamp>,
    /// Schedule of the job, with any cause of the firing.
    pub schedule: Option<ScheduleId>,
    /// Backfill that created the job.
    pub backfill: Option<BackfillId>,
    /// Workflow run that created the job.
    pub run: Option<RunId>,
    /// Name of the workflow whose run created the job; called runs are included.
    pub workflow: Option<String>,
    /// Service whose replica the job is.
    pub service: Option<ServiceId>,
}

/// Stored job.
#[derive(Debug, Clone, PartialEq)]
pub struct JobRow {
    /// ID of the job.
    pub id: JobId,
    /// Spec as JSON.
    pub body: Arc<str>,
    /// Ended job that this job retries.
    pub retry_of: Option<JobId>,
    /// Schedule and scheduled time that created the job.
    pub origin: Option<Arc<Origin>>,
    /// Workflow run and step that created the job.
    pub step: Option<Arc<StepOrigin>>,
    /// Replica of a service that the job is.
    pub replica: Option<Arc<ReplicaOrigin>>,
    /// State of the job; without history in lists.
    pub state: JobState,
}

/// Number of jobs in each status; a status without jobs may be missing.
pub type Counts = BTreeMap<JobStatus, u64>;

/// Filter for executions. All given conditions must match.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ExecutionFilter {
    /// Job of the execution.
    pub job: Option<JobId>,
    /// Worker of the execution.
    pub worker: Option<WorkerId>,
    /// Namespace of the job.
    pub namespace: Option<String>,
    /// Any of these statuses; empty matches all.
    pub statuses: Vec<ExecutionStatus>,
}

/// Stored execution.
#[derive(Debug, Clone, PartialEq)]
pub struct ExecutionRow {
    /// The execution itself.
    pub record: ExecutionRecord,
    /// Namespace of the job.
    pub namespace: Arc<str>,
    /// Name of the job.
    pub job_name: Arc<str>,
}

/// Filter for schedules. All given conditions must match.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ScheduleFilter {
    /// Namespace; `None` matches all.
    pub namespace: Option<String>,
    /// Owner of the schedule.
    pub owner: Option<String>,
    /// Status of the schedule.
    pub status: Option<ScheduleStatus>,
    /// Labels; the schedule must have all of them.
    pub labels: BTreeMap<String, String>,
    /// Substring of the name, case-insensitive.
    pub text: Option<String>,
    /// Maximum next scheduled time, exclusive.
    pub due_before: Option<Timestamp>,
}

/// Stored schedule.
#[derive(Debug, Clone, PartialEq)]
pub struct ScheduleRow {
    /// ID of the schedule.
    pub id: ScheduleId,
    /// Spec as JSON.
    pub body: Arc<str>,
    /// State of the schedule.
    pub state: ScheduleState,
}

/// Number of schedules in each status; a status without schedules is missing.
pub type ScheduleCounts = BTreeMap<ScheduleStatus, u64>;

/// Filter for ledger entries. All given conditions must match.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LedgerFilter {
    /// Schedule of the entry; it may have been deleted since.
    pub schedule: Option<ScheduleId>,
    /// Namespace of the schedule; deleted schedules are included.
    pub namespace: Option<String>,
    /// Any of these outcomes; empty matches all.
    pub outcomes: Vec<FiringOutcome>,
    /// Any of these causes of the firing; empty matches all.
    pub causes: Vec<FiringCause>,
    /// Backfill that the entry belongs to.
    pub backfill: Option<BackfillId>,
    /// Minimum scheduled time, inclusive; compared with the last scheduled time of an entry.
    pub from: Option<Timestamp>,
    /// Maximum scheduled time, exclusive; compared with the first scheduled time of an entry.
    pub until: Option<Timestamp>,
}

/// Position of an entry in the ledger: its first scheduled time, then the rest of its unique key. A position never
/// changes, so a list can continue after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LedgerPosition {
    /// First scheduled time, in Unix microseconds.
    pub first_micros: i64,
    /// Bits of the schedule's ID.
    pub schedule: u128,
    /// Generation of the schedule.
    pub generation: u64,
    /// Code of the cause. A code never changes its meaning.
    pub cause: u8,
    /// Bits of the backfill's ID; zero if the entry belongs to no backfill.
    pub backfill: u128,
}

/// Number of scheduled times for each outcome; an outcome without any is missing.
pub type LedgerCounts = BTreeMap<FiringOutcome, u64>;

/// Stored backfill.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackfillRow {
    /// Request of the backfill.
    pub head: BackfillHead,
    /// Progress of the backfill.
    pub state: BackfillState,
}

/// Position in the event feed; increases with every event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub struct EventSeq(pub u64);

/// Page of the event feed, in order.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct EventPage {
    /// Events, each with its position.
    pub events: Vec<(EventSeq, Event)>,
    /// Oldest position that is still stored. A reader that requests an older one has missed events.
    pub oldest: EventSeq,
    /// Position of the newest event; zero before the first event.
    pub newest: EventSeq,
}

/// One version of an artifact.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Artifact {
    /// Namespace of the artifact.
    pub namespace: String,
    /// Name that all versions share.
    pub name: String,
    /// SHA-256 of the content, in lower-case hex; identifies the version.
    pub sha256: String,
    /// Size of the content.
    pub size_bytes: u64,
    /// Time of the upload.
    pub created_at: Timestamp,
    /// Uploader: a principal or an execution.
    pub created_by: String,
}

/// Reason for the deletion of an artifact version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum DeletionReason {
    /// Request of a user.
    Request,
    /// End of the retention.
    Retention,
}

/// Result of the deletion of a version of an artifact.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ArtifactDeletion {
    /// The version was deleted.
    Deleted,
    /// The version does not exist.
    Absent,
    /// The version was not deleted: this run needs it.
    Pinned(RunId),
}

/// Filter for artifact versions. All given conditions must match.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ArtifactFilter {
    /// Namespace of the artifact.
    pub namespace: Option<String>,
    /// Name of the artifact.
    pub name: Option<String>,
    /// Hash of one version.
    pub sha256: Option<String>,
    /// Whether to return only the newest version of each name.
    pub newest_only: bool,
    /// Position in the list after which the page starts: namespace, name and creation time.
    pub after: Option<(String, String, Timestamp)>,
}

/// Quarantined row: a row that could not be decoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quarantined {
    /// Table that contained the row.
    pub table: String,
    /// Key of the row, as text.
    pub key: String,
    /// Reason why the row could not be decoded.
    pub reason: String,
    /// Time of the quarantine.
    pub at: Timestamp,
}

/// Filter for workflows. All given conditions must match.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WorkflowFilter {
    /// Namespace; `None` matches all.
    pub namespace: Option<String>,
    /// Owner of the workflow.
    pub owner: Option<String>,
    /// Labels; the workflow must have all of them.
    pub labels: BTreeMap<String, String>,
    /// Substring of the name, case-insensitive.
    pub text: Option<String>,
}

/// Stored workflow, with its newest spec.
#[derive(Debug, Clone, PartialEq)]
pub struct WorkflowRow {
    /// ID of the workflow.
    pub id: WorkflowId,
    /// Spec of the newest generation.
    pub head: WorkflowHead,
    /// State of the workflow.
    pub state: WorkflowState,
}

/// Filter for runs. All given conditions must match.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RunFilter {
    /// Namespace; `None` matches all.
    pub namespace: Option<String>,
    /// Workflow of the run; a run that another run called has none.
    pub workflow: Option<WorkflowId>,
    /// Name of the workflow; called runs are included.
    pub name: Option<String>,
    /// Substring of the name, case-insensitive.
    pub text: Option<String>,
    /// Any of these statuses; empty matches all.
    pub statuses: Vec<RunStatus>,
    /// Run that called the run.
    pub caller: Option<RunId>,
    /// Schedule whose firing started the run; runs that it called are not included.
    pub schedule: Option<ScheduleId>,
    /// Backfill that started the run; runs that it called are not included.
    pub backfill: Option<BackfillId>,
    /// Minimum creation time, inclusive.
    pub created_after: Option<Timestamp>,
    /// Maximum creation time, exclusive.
    pub created_before: Option<Timestamp>,
}

/// Stored run.
#[derive(Debug, Clone, PartialEq)]
pub struct RunRow {
    /// ID of the run.
    pub id: RunId,
    /// Request and definition of the run.
    pub head: Arc<RunHead>,
    /// State of the run; without history in lists.
    pub state: RunState,
}

/// Filter for services. All given conditions must match.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ServiceFilter {
    /// Namespace; `None` matches all.
    pub namespace: Option<String>,
    /// Owner of the service.
    pub owner: Option<String>,
    /// Labels; the service must have all of them.
    pub labels: BTreeMap<String, String>,
    /// Substring of the name, case-insensitive.
    pub text: Option<String>,
}

/// Stored service, with its revisions.
#[derive(Debug, Clone, PartialEq)]
pub struct ServiceRow {
    /// ID of the service.
    pub id: ServiceId,
    /// Spec and revisions of the service.
    pub head: ServiceHead,
    /// State of the service.
    pub state: ServiceState,
}

/// Live replica of a service: a job that has not ended, and its live execution.
#[derive(Debug, Clone, PartialEq)]
pub struct ReplicaRow {
    /// ID of the job.
    pub job: JobId,
    /// Namespace of the job and its service.
    pub namespace: Arc<str>,
    /// Service, revision and number of the replica.
    pub replica: Arc<ReplicaOrigin>,
    /// State of the job, without its history.
    pub state: JobState,
    /// Execution that has not ended, with its health. `None` if the job waits for a worker or for its restart.
    pub execution: Option<ExecutionRecord>,
}
