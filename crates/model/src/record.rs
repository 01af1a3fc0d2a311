//! Rows of the store, as the engine changes them.
//!
//! A [`Batch`] is one commit: the changed rows, each once, and the events that the server publishes after it. The
//! parts of a job that do not change ([`JobHead`]) are separate from those that do ([`JobState`]), so that a store
//! rewrites only the latter. Workflow runs, schedules and backfills have the same two parts.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use thin_vec::ThinVec;
use utoipa::ToSchema;

use crate::calendar::CalendarRecord;
use crate::checkpoint::{Checkpoint, CheckpointRecord};
use crate::firing::{
    BackfillHead, BackfillState, BackfillStatus, FiringOutcome, LedgerRecord, Origin, ScheduleHead,
    ScheduleState,
};
use crate::id::{
    BackfillId, Epoch, ExecutionId, Fence, JobId, RunId, ScheduleId, ServiceId, ShardId, WorkerId, WorkflowId,
};
use crate::lifecycle::Cause;
use crate::namespace::NamespaceSettings;
use crate::quantity::{Bytes, Millicores};
use crate::queue::QueueSettings;
use crate::run::{
    ElementBatch, RunCause, RunHead, RunState, RunStatus, StepCause, StepOrigin, StepRecord, StepStatus,
    TriggerRefusal, WorkflowHead, WorkflowState,
};
use crate::service::{ReplicaOrigin, RolloutStatus, ServiceHead, ServiceState};
use crate::spec::{ExecutionHealth, HealthStatus, JobSpec, UpstreamJob};
use crate::statistics::CommitStatistics;
use crate::status::{ExecutionStatus, JobStatus};
use crate::time::{Duration, Timestamp};
use crate::worker::{Admission, Capabilities, Capacity, WorkerStatus};

/// Fixed part of a job. Written at submission, and again only by an update before the start.
#[derive(Debug, Clone, PartialEq)]
pub struct JobHead {
    /// Parsed spec of the job.
    pub spec: Arc<JobSpec>,
    /// Spec as [compact JSON](JobSpec::compact_json); stored, and sent to workers.
    pub body: Arc<str>,
    /// Ended job that this job retries.
    pub retry_of: Option<JobId>,
    /// Schedule and scheduled time that created the job.
    pub origin: Option<Arc<Origin>>,
    /// Workflow run and step that created the job.
    pub step: Option<Arc<StepOrigin>>,
    /// Replica of a service that the job is.
    pub replica: Option<Arc<ReplicaOrigin>>,
}

/// Recorded status transition of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HistoryEntry {
    /// Time at which the engine decided the transition.
    pub at: Timestamp,
    /// Status before the transition; absent for the first one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<JobStatus>,
    /// Status after the transition.
    pub to: JobStatus,
    /// Cause of the transition.
    pub cause: Cause,
    /// Number of the execution that the transition concerns, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execution: Option<u32>,
    /// Details beyond the cause, for example the user who requested the transition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub detail: Option<Box<str>>,
}

/// Result of an execution. The last one is also the result of its job.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct Outcome {
    /// Exit code of the process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// Number of the signal that terminated the process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// Stable error code (`exit_code`, `signal`, `timeout`, `out_of_memory`, `start_failed`, `worker_lost`, …).
    /// Absent on success.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub error: Option<Box<str>>,
    /// Human-readable message about the result, in one line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub message: Option<Box<str>>,
    /// JSON text that the process wrote to `$BELFRY_OUTPUT`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub output: Option<Arc<str>>,
    /// Artifact versions that the execution read and stored. Present only in a report of a worker: the engine moves
    /// them to the row of the execution.
    #[serde(skip)]
    pub files: Option<Box<Files>>,
}

/// Artifact versions that an execution read and stored.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct Files {
    /// Versions that the execution read, in the order of the inputs of the job.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inputs: Vec<FileVersion>,
    /// Versions that the execution stored, in the order of the outputs of the job. A missing optional output is left
    /// out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outputs: Vec<FileVersion>,
}

/// Version of an artifact, with the path of its file in the working directory of the execution.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FileVersion {
    /// Name of the artifact.
    pub artifact: String,
    /// SHA-256 hash of the content, in lower-case hex.
    pub sha256: String,
    /// Path of the file, relative to the working directory of the execution.
    pub path: String,
}

impl FileVersion {
    /// Returns the version in the form of a job input: `NAME@sha256:HEX`.
    pub fn reference(&self) -> String {
        format!("{}@sha256:{}", self.artifact, self.sha256)
    }
}

/// Resource usage of an execution.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct Usage {
    /// Run time of the execution.
    pub run_time: Duration,
    /// CPU time of the execution, user and system together.
    pub cpu_time: Duration,
    /// Peak memory usage, in bytes.
    pub peak_memory_bytes: u64,
    /// Size of the log, in bytes, including the framing of its entries.
    pub log_bytes: u64,
    /// Statistics of what the worker measured every 5 seconds. Absent for executions that were shorter than that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured: Option<Box<MeasuredUsage>>,
}

/// Statistics of what a worker measured during an execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct MeasuredUsage {
    /// Number of measurements.
    pub measurements: u32,
    /// CPU use: 95th percentile, at most 5 % too high.
    pub cpu_p95: Millicores,
    /// CPU use: maximum between two measurements.
    pub cpu_max: Millicores,
    /// Memory use: mean.
    pub memory_mean: Bytes,
    /// Memory use: 95th percentile, at most 5 % too high.
    pub memory_p95: Bytes,
    /// Bytes read from disks. Processes that ended unnoticed by their parents are not included.
    pub read_bytes: u64,
    /// Bytes written to disks. Processes that ended unnoticed by their parents are not included.
    pub written_bytes: u64,
}

/// Variable part of a job.
#[derive(Debug, Clone, PartialEq)]
pub struct JobState {
    /// Current status of the job.
    pub status: JobStatus,
    /// Version of the job; increases with every committed change and is the value of the ETag.
    pub version: u64,
    /// Time of the last change.
    pub updated_at: Timestamp,
    /// Time at which the job enters its queue: its `run_at`, the end of its last upstream job, or the end of its retry
    /// delay.
    pub due_at: Timestamp,
    /// Upstream jobs that have not ended.
    pub upstream: ThinVec<UpstreamJob>,
    /// Time at which the job first entered its queue.
    pub queued_at: Option<Timestamp>,
    /// Start time of the first execution.
    pub started_at: Option<Timestamp>,
    /// Time at which the job reached a final status.
    pub finished_at: Option<Timestamp>,
    /// Number of executions so far.
    pub executions: u32,
    /// Number of executions that started and then failed.
    pub run_failures: u32,
    /// Number of executions that could not be started.
    pub start_failures: u32,
    /// Number of executions that were lost with their worker.
    pub losses: u32,
    /// Whether the completion deadline passed before the job ended.
    pub overdue: bool,
    /// Fencing token of the newest execution.
    pub fence: Fence,
    /// Newest execution.
    pub execution: Option<ExecutionId>,
    /// Worker of the newest execution.
    pub worker: Option<WorkerId>,
    /// Time of the request to cancel the job.
    pub cancel_requested_at: Option<Timestamp>,
    /// Result of the newest ended execution.
    pub outcome: Option<Box<Outcome>>,
    /// Status transitions so far; at most [`crate::limits::HISTORY_MAX`] are kept.
    pub history: Vec<HistoryEntry>,
    /// Time from which retention may delete the job; set when the job ends.
    pub expires_at: Option<Timestamp>,
    /// Workflow runs that the end of the job triggered.
    pub started: ThinVec<RunId>,
    /// Last checkpoint of the job; the next execution resumes from it.
    pub checkpoint: Option<Box<Checkpoint>>,
}

/// Execution of a job: one attempt on one worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecutionRecord {
    /// ID of the execution.
    pub id: ExecutionId,
    /// Job of the execution.
    pub job: JobId,
    /// Number of the execution within the job, from 1.
    pub number: u32,
    /// Fencing token; a newer execution of the same job has a higher one.
    pub fence: Fence,
    /// Worker that runs the execution.
    pub worker: WorkerId,
    /// Current status of the execution.
    pub status: ExecutionStatus,
    /// Time at which the engine assigned the execution to the worker.
    pub assigned_at: Timestamp,
    /// Time at which the server received the start report.
    pub started_at: Option<Timestamp>,
    /// Time at which the server received the end report, or decided that the execution ended.
    pub finished_at: Option<Timestamp>,
    /// Result of the execution.
    pub outcome: Option<Outcome>,
    /// Resource usage of the execution.
    pub usage: Option<Usage>,
    /// Artifact versions that the execution read and stored. Absent if the worker did not report them.
    pub files: Option<Box<Files>>,
    /// Job that preempts the execution: the execution is stopped so that this job can run in its place.
    pub preempted_by: Option<JobId>,
    /// Health and ports of the execution. Absent until the worker reports them, and for jobs without ports and health
    /// checks.
    pub health: Option<Box<ExecutionHealth>>,
}

/// Registered worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WorkerRecord {
    /// ID of the worker; created together with its journal.
    pub id: WorkerId,
    /// Name of the worker.
    pub name: String,
    /// Version of the worker agent.
    pub version: String,
    /// Address under which tasks of the worker can be reached: a host name or an IP address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Labels of the worker; placement constraints select workers by them.
    pub labels: std::collections::BTreeMap<String, String>,
    /// Total resources and slots of the worker.
    pub capacity: Capacity,
    /// Features that the worker supports.
    pub capabilities: Capabilities,
    /// Connection status of the worker.
    pub status: WorkerStatus,
    /// Whether an operator lets new executions be placed on the worker.
    pub admission: Admission,
    /// Time at which the worker first registered.
    pub created_at: Timestamp,
    /// Time of the last status change.
    pub updated_at: Timestamp,
    /// Time of the last heartbeat of a lost worker. If no server of that time received one: the time at which the
    /// worker was declared lost.
    #[serde(default, skip_serializing_if = "Option::is_none", alias = "heard_at")]
    pub last_heartbeat_at: Option<Timestamp>,
}

/// Configured namespace.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct NamespaceRecord {
    /// Name of the namespace.
    pub name: String,
    /// Quota of the namespace, and its highest priority class.
    pub settings: NamespaceSettings,
    /// Version of the settings; increases with every change and is the value of the ETag.
    pub version: u64,
    /// Time of the last change.
    pub updated_at: Timestamp,
}

/// Configured queue.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct QueueRecord {
    /// Name of the queue.
    pub name: String,
    /// Limits, weights and pause of the queue.
    pub settings: QueueSettings,
    /// Version of the settings; increases with every change and is the value of the ETag.
    pub version: u64,
    /// Time of the last change.
    pub updated_at: Timestamp,
}

/// Used idempotency key of a job. Kept even if retention deletes the job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyRecord {
    /// Hash of the namespace and the key.
    pub key: u128,
    /// Hash of the submitted body; a second request with another body is rejected.
    pub body: u128,
    /// Job that the first request created.
    pub job: JobId,
    /// Time from which the key may be deleted.
    pub expires_at: Timestamp,
}

/// Used idempotency key of a workflow run. Kept even if retention deletes the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunKeyRecord {
    /// Hash of the namespace, the workflow and the key.
    pub key: u128,
    /// Hash of the request body; a second request with another body is rejected.
    pub body: u128,
    /// Run that the first request started.
    pub run: RunId,
    /// Time from which the key may be deleted.
    pub expires_at: Timestamp,
}

/// Event for watchers. Kept for a limited time, so that a watcher can resume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Time at which the engine decided the change.
    pub at: Timestamp,
    /// Namespace of the object; `None` for workers and queues.
    pub namespace: Option<Arc<str>>,
    /// Type of the event, with its data.
    pub kind: EventKind,
}

/// Type of an event, with its data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum EventKind {
    /// A job changed its status.
    Job {
        /// ID of the job.
        job: JobId,
        /// Status before the transition.
        from: Option<JobStatus>,
        /// Status after the transition.
        to: JobStatus,
        /// Cause of the transition.
        cause: Cause,
        /// Execution that the transition concerns.
        execution: Option<ExecutionId>,
        /// Worker of that execution.
        worker: Option<WorkerId>,
        /// Schedule that created the job.
        #[serde(default)]
        schedule: Option<ScheduleId>,
    },
    /// A worker reported the start of an execution.
    Started {
        /// Job of the execution.
        job: JobId,
        /// ID of the execution.
        execution: ExecutionId,
        /// Worker that runs the execution.
        worker: WorkerId,
    },
    /// The completion deadline of a job passed before the job ended.
    Overdue {
        /// ID of the job.
        job: JobId,
        /// Completion deadline of the job.
        finish_by: Timestamp,
        /// Schedule that created the job.
        #[serde(default)]
        schedule: Option<ScheduleId>,
    },
    /// A worker changed its status or its admission.
    Worker {
        /// ID of the worker.
        worker: WorkerId,
        /// Status after the change.
        status: WorkerStatus,
        /// Admission after the change.
        admission: Admission,
    },
    /// The settings of a queue changed.
    Queue {
        /// Name of the queue.
        queue: Arc<str>,
    },
    /// A schedule was created, changed, paused, resumed, completed or deleted.
    Schedule {
        /// ID of the schedule.
        schedule: ScheduleId,
        /// Name of the schedule.
        name: Arc<str>,
        /// Type of the change.
        what: ScheduleEvent,
    },
    /// A scheduled time created no job, although no filter excluded the time.
    Skipped {
        /// ID of the schedule.
        schedule: ScheduleId,
        /// Name of the schedule.
        name: Arc<str>,
        /// Scheduled time, or the last one of several consecutive ones.
        scheduled_for: Timestamp,
        /// Outcome of the scheduled time: why it created no job.
        outcome: FiringOutcome,
    },
    /// A backfill started or ended.
    Backfill {
        /// ID of the backfill.
        backfill: BackfillId,
        /// ID of the schedule.
        schedule: ScheduleId,
        /// Status after the change.
        status: BackfillStatus,
    },
    /// A calendar was created, changed or deleted.
    Calendar {
        /// Name of the calendar.
        calendar: Arc<str>,
    },
    /// A workflow was created, changed or deleted.
    Workflow {
        /// ID of the workflow.
        workflow: WorkflowId,
        /// Name of the workflow.
        name: Arc<str>,
        /// Type of the change.
        what: WorkflowEvent,
    },
    /// A source of a trigger ended, and the trigger started no run.
    NotTriggered {
        /// ID of the workflow.
        workflow: WorkflowId,
        /// Name of the workflow.
        name: Arc<str>,
        /// Index of the trigger in the workflow spec, from 0.
        trigger: u32,
        /// Job or run that ended, and the reason why its end started no run.
        refusal: Box<TriggerRefusal>,
    },
    /// A worker became ready after a mapped step over workers had started.
    LateWorker {
        /// ID of the run.
        run: RunId,
        /// Name of the step.
        step: Arc<str>,
        /// ID of the worker.
        worker: WorkerId,
        /// Whether the step runs on this worker too.
        included: bool,
    },
    /// A workflow run changed its status.
    Run {
        /// ID of the run.
        run: RunId,
        /// Name of the workflow.
        workflow: Arc<str>,
        /// Status before the transition.
        from: Option<RunStatus>,
        /// Status after the transition.
        to: RunStatus,
        /// Cause of the transition.
        cause: RunCause,
        /// Schedule that started the run.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        schedule: Option<ScheduleId>,
    },
    /// A step of a run changed its status. Elements of a mapped step have no such events: their jobs have.
    Step {
        /// ID of the run.
        run: RunId,
        /// Name of the step.
        step: Arc<str>,
        /// Status before the transition.
        from: StepStatus,
        /// Status after the transition.
        to: StepStatus,
        /// Cause of the transition.
        cause: StepCause,
        /// Job of the step.
        job: Option<JobId>,
    },
    /// The health of an execution changed.
    Health {
        /// Job of the execution.
        job: JobId,
        /// ID of the execution.
        execution: ExecutionId,
        /// Status after the change.
        status: HealthStatus,
    },
    /// A service was created, changed, scaled or deleted.
    Service {
        /// ID of the service.
        service: ServiceId,
        /// Name of the service.
        name: Arc<str>,
        /// Type of the change.
        what: ServiceEvent,
    },
    /// A rollout of a service changed its status.
    Rollout {
        /// ID of the service.
        service: ServiceId,
        /// Name of the service.
        name: Arc<str>,
        /// Revision of the rollout.
        revision: u64,
        /// Status after the change.
        status: RolloutStatus,
        /// Whether the rollout is paused.
        paused: bool,
    },
    /// The number of available or of desired replicas of a service changed.
    Availability {
        /// ID of the service.
        service: ServiceId,
        /// Name of the service.
        name: Arc<str>,
        /// Number of available replicas.
        available: u32,
        /// Desired number of replicas.
        replicas: u32,
    },
}

/// Type of the change of a service in an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names say it")]
pub enum ServiceEvent {
    Created,
    Changed,
    Scaled,
    Deleting,
    Deleted,
}

/// Type of the change of a workflow in an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names say it")]
pub enum WorkflowEvent {
    Created,
    Changed,
    Deleted,
}

/// Type of the change of a schedule in an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names say it")]
pub enum ScheduleEvent {
    Created,
    Changed,
    Paused,
    Resumed,
    Completed,
    Deleted,
}

/// Change of one row.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// A job. With a `head`, the job is new or was updated; otherwise only its state is rewritten. A job with a final
    /// status moves from the live rows to the history.
    Job {
        /// ID of the job.
        id: JobId,
        /// Whether the row is new in the store.
        new: bool,
        /// Fixed part, if it must be written.
        head: Option<Arc<JobHead>>,
        /// Variable part.
        state: Box<JobState>,
    },
    /// An execution. An ended execution moves from the live rows to the history.
    Execution {
        /// Whether the row is new in the store.
        new: bool,
        /// Complete row.
        record: Box<ExecutionRecord>,
    },
    /// The last checkpoint of a job, with its content. It replaces the earlier one, and is deleted with the job.
    Checkpoint(Box<CheckpointRecord>),
    /// A used idempotency key of a job.
    Key(KeyRecord),
    /// Deletes the expired idempotency keys of the jobs and runs of a shard.
    PurgeKeys {
        /// Shard of the keys.
        shard: ShardId,
        /// Deletes keys that expired before this time.
        expired_before: Timestamp,
    },
    /// A worker, new or changed.
    Worker(Arc<WorkerRecord>),
    /// Deletes a worker.
    RemoveWorker(WorkerId),
    /// A queue, new or changed.
    Queue(Arc<QueueRecord>),
    /// Deletes the settings of a queue.
    RemoveQueue(Box<str>),
    /// A namespace with settings, new or changed.
    Namespace(Arc<NamespaceRecord>),
    /// Deletes the settings of a namespace.
    RemoveNamespace(Box<str>),
    /// A schedule. With a `head`, the schedule is new or has a new generation; otherwise only its state is rewritten.
    Schedule {
        /// ID of the schedule.
        id: ScheduleId,
        /// Whether the row is new in the store.
        new: bool,
        /// Fixed part, if it must be written.
        head: Option<Arc<ScheduleHead>>,
        /// Variable part.
        state: Box<ScheduleState>,
    },
    /// Deletes a schedule. Its ledger stays until retention deletes it.
    RemoveSchedule(ScheduleId),
    /// An entry of the ledger, new or rewritten. An entry with a job never gets another job.
    Ledger(Box<LedgerRecord>),
    /// A backfill. With a `head`, the backfill is new. A backfill that is not running leaves the live rows.
    Backfill {
        /// ID of the backfill.
        id: BackfillId,
        /// Fixed part, if it must be written.
        head: Option<Arc<BackfillHead>>,
        /// Variable part.
        state: BackfillState,
    },
    /// A workflow. With a `head`, the workflow is new or has a new generation; otherwise only its state is rewritten.
    Workflow {
        /// ID of the workflow.
        id: WorkflowId,
        /// Whether the row is new in the store.
        new: bool,
        /// Fixed part, if it must be written.
        head: Option<Arc<WorkflowHead>>,
        /// Variable part.
        state: WorkflowState,
    },
    /// Deletes a workflow. Its runs continue, and are kept.
    RemoveWorkflow(WorkflowId),
    /// A run. With a `head`, the run is new. A run with a final status moves from the live rows to the history, with
    /// all its steps.
    Run {
        /// ID of the run.
        id: RunId,
        /// Fixed part, if it must be written.
        head: Option<Arc<RunHead>>,
        /// Variable part.
        state: Box<RunState>,
    },
    /// A step of a run, or an element of a mapped step: the complete row, new or rewritten.
    Step(Box<StepRecord>),
    /// Elements that a task added to a step; always a new row.
    ElementBatch(Box<ElementBatch>),
    /// A used idempotency key of a run.
    RunKey(RunKeyRecord),
    /// A service. With a `head`, the service is new or has a new spec or revision; otherwise only its state is rewritten.
    Service {
        /// ID of the service.
        id: ServiceId,
        /// Whether the row is new in the store.
        new: bool,
        /// Fixed part, if it must be written.
        head: Option<Arc<ServiceHead>>,
        /// Variable part.
        state: Box<ServiceState>,
    },
    /// Deletes a service. Its jobs have ended, and are kept.
    RemoveService(ServiceId),
    /// A calendar, new or changed.
    Calendar(Arc<CalendarRecord>),
    /// Deletes a calendar.
    RemoveCalendar {
        /// Namespace of the calendar.
        namespace: Arc<str>,
        /// Name of the calendar.
        name: Arc<str>,
    },
}

impl Change {
    /// Returns the shard of the row: that of its job, schedule, service, workflow or run. Returns `None` for workers, queues,
    /// namespaces and calendars, which all shards share.
    ///
    /// A commit may change only rows of leased shards, so each new variant must have its shard here.
    pub fn shard(&self) -> Option<ShardId> {
        match self {
            Self::Job { id, .. } => Some(id.shard()),
            Self::Execution { record, .. } => Some(record.job.shard()),
            Self::Checkpoint(record) => Some(record.job.shard()),
            Self::Key(key) => Some(key.job.shard()),
            Self::PurgeKeys { shard, .. } => Some(*shard),
            Self::Schedule { id, .. } | Self::RemoveSchedule(id) => Some(id.shard()),
            Self::Ledger(record) => Some(record.schedule.shard()),
            Self::Backfill { id, .. } => Some(id.shard()),
            Self::Workflow { id, .. } | Self::RemoveWorkflow(id) => Some(id.shard()),
            Self::Run { id, .. } => Some(id.shard()),
            Self::Service { id, .. } | Self::RemoveService(id) => Some(id.shard()),
            Self::Step(record) => Some(record.key.run.shard()),
            Self::ElementBatch(batch) => Some(batch.key.run.shard()),
            Self::RunKey(key) => Some(key.run.shard()),
            Self::Worker(_)
            | Self::RemoveWorker(_)
            | Self::Queue(_)
            | Self::RemoveQueue(_)
            | Self::Namespace(_)
            | Self::RemoveNamespace(_)
            | Self::Calendar(_)
            | Self::RemoveCalendar { .. } => None,
        }
    }
}

/// Changes of one commit.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Batch {
    /// Engine time of the batch; never less than that of an earlier batch.
    pub now: Timestamp,
    /// Changed rows, each row at most once.
    pub changes: Vec<Change>,
    /// Events for watchers, in order; published after the commit.
    pub events: Vec<Event>,
    /// What happened since the batch before.
    pub statistics: CommitStatistics,
}

impl Batch {
    /// Whether the batch has no changes, no events and no statistics.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.events.is_empty() && self.statistics.is_empty()
    }
}

/// Live row, as a store returns it when a leader loads the live rows.
#[derive(Debug, Clone, PartialEq)]
pub enum LiveRow {
    /// A job that has not ended.
    Job {
        /// ID of the job.
        id: JobId,
        /// Fixed part.
        head: JobHead,
        /// Variable part.
        state: Box<JobState>,
    },
    /// An execution that has not ended.
    Execution(Box<ExecutionRecord>),
    /// An idempotency key of a job that has not expired.
    Key(KeyRecord),
    /// A worker, ready or lost.
    Worker(WorkerRecord),
    /// A queue with its settings.
    Queue(QueueRecord),
    /// A namespace with its settings.
    Namespace(NamespaceRecord),
    /// A calendar with its spec.
    Calendar(CalendarRecord),
    /// A schedule that was not deleted.
    Schedule {
        /// ID of the schedule.
        id: ScheduleId,
        /// Fixed part.
        head: ScheduleHead,
        /// Variable part.
        state: Box<ScheduleState>,
    },
    /// A backfill that is running.
    Backfill {
        /// Fixed part.
        head: BackfillHead,
        /// Variable part.
        state: BackfillState,
    },
    /// A workflow that was not deleted.
    Workflow {
        /// ID of the workflow.
        id: WorkflowId,
        /// Fixed part.
        head: WorkflowHead,
        /// Variable part.
        state: WorkflowState,
    },
    /// A run that has not ended.
    Run {
        /// ID of the run.
        id: RunId,
        /// Fixed part.
        head: Arc<RunHead>,
        /// Variable part.
        state: Box<RunState>,
    },
    /// A step of a run that has not ended, or an element of a mapped step.
    Step(Box<StepRecord>),
    /// Elements that a task added to a step of a run that has not ended.
    ElementBatch(Box<ElementBatch>),
    /// An idempotency key of a run that has not expired.
    RunKey(RunKeyRecord),
    /// A service that was not deleted.
    Service {
        /// ID of the service.
        id: ServiceId,
        /// Fixed part.
        head: ServiceHead,
        /// Variable part.
        state: Box<ServiceState>,
    },
}

/// Right to change the rows of a shard. A commit with an outdated epoch is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// Leased shard.
    pub shard: ShardId,
    /// Epoch of the lease; increases with every change of ownership.
    pub epoch: Epoch,
}
