//! Response bodies of the REST API, and the request bodies that belong to no other module.
//!
//! The server writes the responses and the client reads them. Clients must ignore unknown response fields, so that a
//! newer server can add fields. The server rejects requests with unknown fields (`deny_unknown_fields`).
//!
//! The doc comments here are the descriptions in `docs/openapi.json`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::checkpoint::Checkpoint;
use crate::firing::{FiringOutcome, Origin};
use crate::id::{
    BackfillId, ExecutionId, Fence, JobId, RunId, ScheduleId, ServerId, ServiceId, WorkerId, WorkflowId,
};
use crate::lifecycle::Cause;
use crate::namespace::{NamespaceSettings, NamespaceUsage};
use crate::quantity::{Bytes, Millicores};
use crate::queue::QueueSettings;
use crate::record::{Files, Outcome, Usage};
use crate::run::{StepOrigin, TriggerRefusal};
use crate::service::ReplicaOrigin;
use crate::spec::{ExecutionHealth, HealthStatus, JobSpec, PriorityClass};
use crate::status::{ExecutionStatus, JobStatus};
use crate::time::{Duration, Timestamp};
use crate::worker::{Admission, Capabilities, Capacity, Health, WorkerStatus};

mod access;
mod alerts;
mod audit;
mod bulk;
mod code;
mod failures;
mod monitors;
mod notices;
mod schedules;
mod secrets;
mod services;
mod statistics;
mod usage;
mod workflows;

pub use access::*;
pub use alerts::*;
pub use audit::*;
pub use bulk::*;
pub use code::Code;
pub use failures::*;
pub use monitors::*;
pub use notices::*;
pub use schedules::*;
pub use secrets::*;
pub use services::*;
pub use statistics::*;
pub use usage::*;
pub use workflows::*;

/// A job: one unit of work with all its executions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Job {
    /// ID of the job, assigned by the server.
    pub id: JobId,
    /// Display name of the job; need not be unique.
    pub name: String,
    /// Namespace (tenant) of the job.
    pub namespace: String,
    /// Owner of the job: the person or team responsible for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Queue of the job.
    pub queue: String,
    /// Priority class of the job.
    #[serde(default)]
    pub priority_class: PriorityClass,
    /// Priority of the job within its queue and its priority class, from 0 (last) to 100 (first).
    pub priority: u8,
    /// Labels of the job.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Current status of the job.
    pub status: JobStatus,
    /// Version of the job; increases with every change and is the value of the ETag.
    pub version: u64,
    /// Job that this job retries. Absent if this job is not a manual retry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_of: Option<JobId>,
    /// Schedule and scheduled time that created the job. Absent for other jobs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
    /// Workflow run and step that created the job. Absent for other jobs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<StepOrigin>,
    /// Replica of a service that the job is. Absent for other jobs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replica: Option<ReplicaOrigin>,
    /// Time at which the job was submitted.
    pub created_at: Timestamp,
    /// Time from which the job may start: its `run_at`, or the end of its retry delay.
    pub due_at: Timestamp,
    /// Time at which the job first entered its queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queued_at: Option<Timestamp>,
    /// Start time of the first execution of the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    /// Start time of the newest execution of the job. Absent until that execution starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execution_started_at: Option<Timestamp>,
    /// Time at which the job reached a final status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Timestamp>,
    /// Time of the last change of the job.
    pub updated_at: Timestamp,
    /// Time of the request to cancel the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancel_requested_at: Option<Timestamp>,
    /// Completion deadline of the job. Absent if it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finish_by: Option<Timestamp>,
    /// Whether the completion deadline passed before the job ended.
    #[serde(default)]
    pub overdue: bool,
    /// Time from which retention may delete the job. Absent until the job has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// Number of executions of the job so far.
    pub executions: u32,
    /// Number of executions that started and then failed.
    pub run_failures: u32,
    /// Number of executions that could not be started.
    pub start_failures: u32,
    /// Number of executions that were lost with their worker.
    #[serde(default)]
    pub losses: u32,
    /// ID of the newest execution of the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execution_id: Option<ExecutionId>,
    /// Worker of the newest execution of the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker_id: Option<WorkerId>,
    /// Result of the newest ended execution of the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<JobResult>,
    /// Workflow runs that the end of the job triggered.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub started_runs: Vec<RunId>,
    /// Last checkpoint of the job; the next execution resumes from it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<Checkpoint>,
    /// Spec of the job as submitted, with defaults. Absent in lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spec: Option<Box<JobSpec>>,
}

/// Result of an execution.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, ToSchema)]
pub struct JobResult {
    /// Exit code of the process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// Number of the signal that terminated the process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// Stable error code for programs. Absent on success.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Human-readable message about the result, in one line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Output of the execution: the JSON value that the process wrote to `$BELFRY_OUTPUT`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub output: Option<serde_json::Value>,
}

impl From<&Outcome> for JobResult {
    fn from(outcome: &Outcome) -> Self {
        Self {
            exit_code: outcome.exit_code,
            signal: outcome.signal,
            error: outcome.error.as_deref().map(str::to_owned),
            message: outcome.message.as_deref().map(str::to_owned),
            output: outcome.output.as_deref().and_then(|text| serde_json::from_str(text).ok()),
        }
    }
}

/// Response to the submission of one job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SubmittedJob {
    /// ID of the job.
    pub id: JobId,
    /// Whether this request created the job. False if an earlier request with the same idempotency key did.
    pub created: bool,
}

/// Response to the submission of several jobs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SubmittedJobs {
    /// One entry for each job of the request, in the order of the request.
    pub jobs: Vec<SubmittedJob>,
}

/// Request to submit several jobs in one transaction: all are accepted or none.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SubmitJobs {
    /// Specs of the jobs, 1 to 10,000.
    pub jobs: Vec<JobSpec>,
}

/// Request to cancel a job.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CancelJob {
    /// Reason for the cancellation, recorded in the history of the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Response to the cancellation of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CancelledJob {
    /// ID of the job.
    pub id: JobId,
    /// Status of the job: `cancelled`, or `running` while its execution is being stopped.
    pub status: JobStatus,
}

/// Recorded status transition of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JobEvent {
    /// Time at which the server decided the transition.
    pub at: Timestamp,
    /// Status of the job before the transition. Absent for the first one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<JobStatus>,
    /// Status of the job after the transition.
    pub to: JobStatus,
    /// Cause of the transition.
    pub cause: Cause,
    /// Cause of the transition as an English sentence.
    pub message: String,
    /// Number of the execution that the transition concerns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execution: Option<u32>,
    /// Details beyond the cause, for example the user who requested the transition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// Execution of a job: one attempt on one worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Execution {
    /// ID of the execution.
    pub id: ExecutionId,
    /// ID of the job.
    pub job_id: JobId,
    /// Name of the job.
    pub job_name: String,
    /// Namespace (tenant) of the job.
    pub namespace: String,
    /// Number of the execution within the job, from 1.
    pub number: u32,
    /// Fencing token of the execution; a newer execution of the same job has a higher one.
    pub fence: Fence,
    /// ID of the worker that runs the execution.
    pub worker_id: WorkerId,
    /// Current status of the execution.
    pub status: ExecutionStatus,
    /// Time at which the server assigned the execution to the worker.
    pub assigned_at: Timestamp,
    /// Start time of the execution.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    /// End time of the execution.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Timestamp>,
    /// Result of the execution. Absent until the execution has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<JobResult>,
    /// Resource usage of the execution.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// Artifact versions that the execution read and stored. Absent until the execution has ended, or if the worker
    /// did not report them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<Files>,
    /// ID of the job that preempts the execution: the execution is stopped so that this job can run in its place. Absent
    /// for other executions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preempted_by: Option<JobId>,
    /// Health and ports of the execution. Absent for jobs without ports and health checks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health: Option<ExecutionHealth>,
}

/// Server: one process of the cluster. All servers of a cluster share one store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Server {
    /// ID of the server; every start of the process gets a new one.
    pub id: ServerId,
    /// Configured name of the server.
    pub name: String,
    /// URL at which workers and the other servers reach this server. Absent if the server is not reachable for them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Version of the server program.
    pub version: String,
    /// Start time of the server.
    pub started_at: Timestamp,
    /// Whether the server is the leader: it owns the shards and makes all decisions.
    pub leader: bool,
    /// Number of shards that the server owns.
    pub shards: u16,
    /// Highest epoch of the shards that the server owns. The epoch increases with every change of ownership. Absent
    /// if the server owns no shard.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u64>,
    /// Replication lag of a standby: the age of the newest change of live rows that it has applied. A standby with a
    /// lag can take over at once. Absent for the leader, for a standby that is still loading, and if following is
    /// turned off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lag: Option<Duration>,
    /// Whether the server is draining: it hands its shards over and accepts no new ones.
    pub draining: bool,
    /// Whether this server sent the response.
    pub responder: bool,
}

/// Member of a Raft cluster (`server.store = raft`). It stays a member while its server does not run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClusterMember {
    /// ID of the member, 16 hexadecimal digits. A server whose data folder is lost gets another one.
    #[schema(example = "e61bf32a0b7fc072")]
    pub id: String,
    /// Configured name of its server.
    pub name: String,
    /// `HOST:PORT` at which the other members reach its server.
    pub address: String,
    /// What the member does in the cluster.
    pub role: MemberRole,
    /// Whether the server of the member answers the leader.
    pub running: bool,
    /// Time since the server last answered the leader. Absent if it has not answered since this leader was elected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_contact: Option<Duration>,
    /// Number of entries of the log that the member does not have yet.
    pub missing_entries: u64,
    /// The copy of the store that the leader sends to the member, because the log no longer has all that it needs. Absent
    /// otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copying: Option<CopyProgress>,
}

/// How far a copy of the store was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CopyProgress {
    /// What the receiver has.
    pub sent: Bytes,
    /// Size of the copy.
    pub total: Bytes,
}

/// What a member of a cluster does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum MemberRole {
    /// Is elected, and writes the log.
    Leader,
    /// Votes, and follows the leader.
    Voter,
    /// Follows the leader and does not vote, because it has just joined.
    Learner,
}

/// Worker: an agent process that runs executions on a machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Worker {
    /// ID of the worker.
    pub id: WorkerId,
    /// Name of the worker.
    pub name: String,
    /// Version of the worker agent.
    pub version: String,
    /// Host name or IP address under which tasks of the worker can be reached. Absent if it is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Labels of the worker, used by placement constraints.
    pub labels: BTreeMap<String, String>,
    /// Connection status of the worker.
    pub status: WorkerStatus,
    /// Whether the worker accepts new executions: `open`, `cordoned` or `draining`.
    pub admission: Admission,
    /// Total resources and slots of the worker.
    pub capacity: Capacity,
    /// Features that the worker supports.
    pub capabilities: Capabilities,
    /// Resources that are allocated to executions on the worker.
    pub allocated: Allocated,
    /// Resources that are reserved on the worker for upcoming firings of schedules.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reservations: Vec<Reservation>,
    /// Health of the machine of the worker. Absent until the first report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health: Option<Health>,
    /// Time of the last heartbeat of the worker. For a worker that is lost and has sent none to this server: the time
    /// of its last known heartbeat, or the time at which it was declared lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_heartbeat_at: Option<Timestamp>,
    /// Time at which the worker first registered.
    pub created_at: Timestamp,
    /// Time of the last status change of the worker.
    pub updated_at: Timestamp,
}

/// Resources that are allocated to the executions of a worker.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct Allocated {
    /// Number of executions on the worker.
    pub executions: u32,
    /// CPU allocated to executions, in millicores.
    pub cpu: Millicores,
    /// Memory allocated to executions, in bytes.
    pub memory: Bytes,
    /// Custom resources allocated to executions, by name of the resource.
    #[serde(default)]
    pub custom: BTreeMap<String, u64>,
}

/// Resources that are reserved on a worker: for the next firing of a schedule, or for a waiting job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Reservation {
    /// ID of the schedule. Absent in a reservation for a job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule_id: Option<ScheduleId>,
    /// Name of the schedule. Absent in a reservation for a job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<String>,
    /// Scheduled time of the firing that the reservation is for. Absent in a reservation for a job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduled_for: Option<Timestamp>,
    /// Waiting job that the reservation is for. Absent in a reservation for a schedule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<JobId>,
    /// Reserved CPU, in millicores.
    pub cpu: Millicores,
    /// Reserved memory, in bytes.
    pub memory: Bytes,
}

/// Namespace: a tenant, with its quota and what its jobs use of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Namespace {
    /// Name of the namespace.
    pub name: String,
    /// Settings of the namespace: quota and highest priority class.
    pub settings: NamespaceSettings,
    /// Version of the settings and value of the ETag; 0 if the namespace has only default settings.
    pub version: u64,
    /// What the jobs of the namespace use.
    pub usage: NamespaceUsage,
}

/// Queue of jobs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Queue {
    /// Name of the queue.
    pub name: String,
    /// Settings of the queue: concurrency limit, rate limit, weights and pause.
    pub settings: QueueSettings,
    /// Version of the settings and value of the ETag; 0 if the queue has only default settings.
    pub version: u64,
    /// Number of jobs that wait in the queue.
    pub waiting: u64,
    /// Number of jobs of the queue that run.
    pub running: u64,
    /// Time at which the longest-waiting job entered the queue. Absent if no job waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest_waiting_since: Option<Timestamp>,
}

/// Version of an artifact.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Artifact {
    /// Namespace (tenant) of the artifact.
    pub namespace: String,
    /// Name of the artifact, shared by all its versions.
    pub name: String,
    /// SHA-256 hash of the content in lower-case hex; identifies the version.
    pub sha256: String,
    /// Size of the content, in bytes.
    pub size_bytes: u64,
    /// Time at which the version was stored.
    pub created_at: Timestamp,
    /// Creator of the version: a user, a token or an execution.
    pub created_by: String,
}

/// Page of a list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct List<T> {
    /// Items of the page; newest first unless the endpoint states another order.
    pub items: Vec<T>,
    /// Cursor for the next page (`?cursor=`). Absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// Line of a log, or a part of a long line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LogEntry {
    /// Offset from which to continue reading after this entry (`?offset=`).
    pub next_offset: u64,
    /// Time at which the line was written, by the clock of the worker.
    pub at: Timestamp,
    /// Source of the line: `stdout`, `stderr`, or `notice` for messages of Belfry.
    pub stream: String,
    /// Text of the line; bytes that are not valid UTF-8 are replaced by U+FFFD.
    pub text: String,
    /// Original bytes in base64. Present only if they are not valid UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<String>,
}

/// Line of a log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LogLine {
    /// Number of the line in the selected streams, from 1.
    pub number: u64,
    /// Time at which the end of the line was written, by the clock of the worker.
    pub at: Timestamp,
    /// Source of the line: `stdout`, `stderr`, or `notice` for messages of Belfry.
    pub stream: String,
    /// Text of the line without its end; bytes that are not valid UTF-8 are replaced by U+FFFD. Of a line with more than
    /// 4 KiB, the part around the match.
    pub text: String,
    /// Whether `text` is only a part of the line.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
}

/// Line of a log that matches a search.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LogHit {
    /// The line that matches.
    #[serde(flatten)]
    pub line: LogLine,
    /// Lines before it, in the order of the log.
    pub before: Vec<LogLine>,
    /// Lines after it, in the order of the log.
    pub after: Vec<LogLine>,
}

/// Response to a search in a log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LogSearch {
    /// Lines that match, in the order of the log.
    pub items: Vec<LogHit>,
    /// Number of lines from the beginning of the log that have been searched.
    pub lines: u64,
    /// Cursor with which the search continues. Absent at the end of the log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
    /// Whether nothing will be appended to the log.
    pub complete: bool,
}

/// Event in the feed of `/events`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FeedEvent {
    /// Sequence number of the event in the feed.
    pub seq: u64,
    /// Time at which the server decided the change.
    pub at: Timestamp,
    /// Type of the event, for example `job.waiting`, `job.running`, `job.overdue`, `execution.started`, `worker.ready`,
    /// `worker.lost`, `queue.updated`, `schedule.created`, `schedule.paused`, `schedule.skipped`,
    /// `backfill.completed`, `calendar.updated`, `workflow.changed`, `workflow.not_triggered`, `run.running`,
    /// `run.failed`, `step.succeeded`, `step.late_worker`, `service.availability`, `rollout.completed` or `execution.health`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Namespace (tenant) of the event. Absent for events of workers and queues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// ID of the job that the event concerns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_id: Option<JobId>,
    /// Status of the job before the event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<JobStatus>,
    /// Status of the job after the event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<JobStatus>,
    /// Cause of the status change of the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<Cause>,
    /// Completion deadline of the job, in the event `job.overdue`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finish_by: Option<Timestamp>,
    /// ID of the execution that the event concerns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execution_id: Option<ExecutionId>,
    /// ID of the worker that the event concerns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker_id: Option<WorkerId>,
    /// Status of the worker after the event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker_status: Option<WorkerStatus>,
    /// Admission of the worker after the event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker_admission: Option<Admission>,
    /// Name of the queue that the event concerns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// ID of the schedule that the event concerns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule_id: Option<ScheduleId>,
    /// Name of the schedule that the event concerns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<String>,
    /// Scheduled time of the firing that created no job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduled_for: Option<Timestamp>,
    /// Outcome of the firing: why it created no job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<FiringOutcome>,
    /// ID of the backfill that the event concerns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backfill_id: Option<BackfillId>,
    /// ID of the workflow that the event concerns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workflow_id: Option<WorkflowId>,
    /// Name of the workflow that the event concerns, also for events of its runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workflow: Option<String>,
    /// ID of the workflow run that the event concerns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
    /// Name of the step of the workflow run that the event concerns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// Name of the calendar that the event concerns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calendar: Option<String>,
    /// Trigger of the workflow that started no run, with the reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_triggered: Option<FeedRefusal>,
    /// ID of the service that the event concerns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_id: Option<ServiceId>,
    /// Name of the service that the event concerns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<String>,
    /// Revision whose rollout the event concerns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<u64>,
    /// Number of available replicas of the service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub available: Option<u32>,
    /// Desired number of replicas of the service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<u32>,
    /// Health of the execution.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health: Option<HealthStatus>,
}

/// Reason why a trigger of a workflow started no run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FeedRefusal {
    /// Index of the trigger in the workflow spec, from 0.
    pub trigger: u32,
    /// Job or run that ended, and the reason why its end started no run.
    #[serde(flatten)]
    pub refusal: TriggerRefusal,
}

/// Error response: an RFC 9457 problem document.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// URL of a page that explains the error code, relative to the address of the server.
    #[serde(rename = "type")]
    pub kind: String,
    /// Summary of the error code in English.
    pub title: String,
    /// HTTP status code.
    pub status: u16,
    /// What failed, on which object, and why.
    pub detail: String,
    /// Stable error code for programs.
    pub code: String,
    /// Suggested next action of the caller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// All invalid fields of the request.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<FieldError>,
    /// ID of the request, as in the log of the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
    /// Seconds after which the client may retry the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<u64>,
}

/// Error of one field of the request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FieldError {
    /// Invalid field as a JSON pointer into the body (`/run/process/env/FOO`), or `?limit` for a query parameter.
    pub pointer: String,
    /// Invalid field as a dotted path (`run.process.env.FOO`).
    pub path: String,
    /// Found value and expected value of the field.
    pub detail: String,
}
