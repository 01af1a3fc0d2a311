//! What the REST API answers, as JSON. The server writes these, the client reads them.
//!
//! Clients must ignore fields that they do not know; requests with unknown fields are refused.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::checkpoint::Checkpoint;
use crate::firing::{FiringOutcome, Origin};
use crate::id::{BackfillId, ExecutionId, Fence, JobId, RunId, ScheduleId, ServerId, WorkerId, WorkflowId};
use crate::lifecycle::Cause;
use crate::quantity::{Bytes, Millicores};
use crate::queue::QueueSettings;
use crate::record::{Files, Outcome, Usage};
use crate::run::{StepOrigin, TriggerRefusal};
use crate::spec::JobSpec;
use crate::status::{ExecutionStatus, JobStatus};
use crate::time::{Duration, Timestamp};
use crate::worker::{Admission, Capabilities, Capacity, Health, WorkerStatus};

mod code;
mod notices;
mod schedules;
mod workflows;

pub use code::Code;
pub use notices::*;
pub use schedules::*;
pub use workflows::*;

/// A job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Job {
    /// Its id.
    pub id: JobId,
    /// What people call it.
    pub name: String,
    /// The tenant that it belongs to.
    pub namespace: String,
    /// Who answers for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// The queue where it waits.
    pub queue: String,
    /// 0 (last) to 100 (first).
    pub priority: u8,
    /// Its labels.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Where it stands.
    pub status: JobStatus,
    /// Grows with every change; the number in its ETag.
    pub version: u64,
    /// The ended job that it repeats.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_of: Option<JobId>,
    /// The schedule that it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
    /// The run and step of a workflow that it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<StepOrigin>,
    /// When it was submitted.
    pub created_at: Timestamp,
    /// When it is, or was, due: its `run_at`, or the end of its backoff.
    pub due_at: Timestamp,
    /// When it entered its queue for the first time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queued_at: Option<Timestamp>,
    /// When an execution started first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    /// Start time of its newest execution, once that has started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execution_started_at: Option<Timestamp>,
    /// When it reached a final status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Timestamp>,
    /// When it last changed.
    pub updated_at: Timestamp,
    /// When somebody asked to cancel it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancel_requested_at: Option<Timestamp>,
    /// When retention may delete it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// How many executions it has had.
    pub executions: u32,
    /// How many of them ran and failed.
    pub run_failures: u32,
    /// How many of them could not be started.
    pub start_failures: u32,
    /// Its newest execution.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execution_id: Option<ExecutionId>,
    /// Where its newest execution is, or was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker_id: Option<WorkerId>,
    /// What came of its newest ended execution.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<JobResult>,
    /// The runs that its end started.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub started_runs: Vec<RunId>,
    /// Its last checkpoint, which its next execution goes on from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<Checkpoint>,
    /// What it was asked to be; left out of lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spec: Option<Box<JobSpec>>,
}

/// What came of an execution.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, ToSchema)]
pub struct JobResult {
    /// The process's exit code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// The signal that killed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// A stable word for what went wrong; absent on success.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// One line for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The values that the task wrote to `$BELFRY_OUTPUT`.
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

/// What a submission of one job answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SubmittedJob {
    /// The job.
    pub id: JobId,
    /// False where the idempotency key had made it before.
    pub created: bool,
}

/// What a submission of several jobs answers, in their order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SubmittedJobs {
    /// One for each job of the request.
    pub jobs: Vec<SubmittedJob>,
}

/// Several jobs, accepted all or none.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SubmitJobs {
    /// At least one, at most 10,000.
    pub jobs: Vec<JobSpec>,
}

/// What to say when cancelling.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CancelJob {
    /// Recorded in the job's history.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// What a cancel answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CancelledJob {
    /// The job.
    pub id: JobId,
    /// `cancelled`, or `running` while its execution is being stopped.
    pub status: JobStatus,
}

/// One recorded transition of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JobEvent {
    /// When it was decided.
    pub at: Timestamp,
    /// The status before; absent for the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<JobStatus>,
    /// The status after.
    pub to: JobStatus,
    /// What happened.
    pub cause: Cause,
    /// The same as a sentence.
    pub message: String,
    /// The number of the execution that it concerns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execution: Option<u32>,
    /// Who did it, or what is known beyond the cause.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// One try of a job on one worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Execution {
    /// Its id.
    pub id: ExecutionId,
    /// Whose try it is.
    pub job_id: JobId,
    /// The name of that job.
    pub job_name: String,
    /// The tenant.
    pub namespace: String,
    /// Which try, from 1.
    pub number: u32,
    /// Its fence.
    pub fence: Fence,
    /// Where.
    pub worker_id: WorkerId,
    /// Where it stands.
    pub status: ExecutionStatus,
    /// When it was given to the worker.
    pub assigned_at: Timestamp,
    /// When it started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Timestamp>,
    /// What came of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<JobResult>,
    /// What it used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// The versions of artifacts that it read and stored, once it has ended; absent where its worker did not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<Files>,
}

/// A server: one of those that share a store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Server {
    /// Its id; another one after each start.
    pub id: ServerId,
    /// What people call it.
    pub name: String,
    /// Where the other servers and the workers reach it; absent where they cannot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// The version of its program.
    pub version: String,
    /// When it started.
    pub started_at: Timestamp,
    /// Whether it is the one that decides: it owns the shards.
    pub leads: bool,
    /// How many shards it owns.
    pub shards: u16,
    /// The highest epoch under which it owns them: how often ownership has changed; absent if it owns none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u64>,
    /// How old the newest is that it knows of the live rows, if it follows what the one that decides does with them, and
    /// so can take over at once; absent if it decides itself, has not read them yet, or is not to follow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lag: Option<Duration>,
    /// Whether somebody asked it to give its shards away and to take none.
    pub draining: bool,
    /// Whether it is the one that answered.
    pub answered: bool,
}

/// A worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Worker {
    /// Its id.
    pub id: WorkerId,
    /// What people call it.
    pub name: String,
    /// The version of its agent.
    pub version: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Whether it is there.
    pub status: WorkerStatus,
    /// Whether work may be placed on it.
    pub admission: Admission,
    /// What it has.
    pub capacity: Capacity,
    /// What it can.
    pub capabilities: Capabilities,
    /// What its executions have set aside of it.
    pub reserved: Reserved,
    /// Room that is kept on it for the next firings of schedules.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reservations: Vec<Reservation>,
    /// How its machine is; absent until it first said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health: Option<Health>,
    /// When it was last heard. Of a lost worker that this server has not heard: when it was last heard before, or was
    /// taken for lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heard_at: Option<Timestamp>,
    /// When it was first seen.
    pub created_at: Timestamp,
    /// When its status last changed.
    pub updated_at: Timestamp,
}

/// What executions have set aside of a worker.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct Reserved {
    /// How many there are.
    pub executions: u32,
    /// CPU.
    pub cpu: Millicores,
    /// Memory.
    pub memory: Bytes,
    /// Custom resources.
    #[serde(default)]
    pub custom: BTreeMap<String, u64>,
}

/// Room that is kept on a worker for the next firing of a schedule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Reservation {
    /// The schedule.
    pub schedule_id: ScheduleId,
    /// Its name.
    pub schedule: String,
    /// The instant that it is for.
    pub scheduled_for: Timestamp,
    /// CPU.
    pub cpu: Millicores,
    /// Memory.
    pub memory: Bytes,
}

/// A queue.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Queue {
    /// Its name.
    pub name: String,
    /// How it lets jobs through.
    pub settings: QueueSettings,
    /// The number in its ETag; 0 for a queue that nobody set up.
    pub version: u64,
    /// Jobs that wait in it.
    pub waiting: u64,
    /// Jobs of it that run.
    pub running: u64,
    /// When the job that waits longest entered it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest_waiting_since: Option<Timestamp>,
}

/// One version of an artifact.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Artifact {
    /// The tenant.
    pub namespace: String,
    /// The name that versions share.
    pub name: String,
    /// Hash of the bytes, in lower-case hex; names the version.
    pub sha256: String,
    /// How many bytes.
    pub size_bytes: u64,
    /// When it was stored.
    pub created_at: Timestamp,
    /// Who stored it: a principal or an execution.
    pub created_by: String,
}

/// One page of a list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct List<T> {
    /// In the list's order: newest first, where nothing else is said.
    pub items: Vec<T>,
    /// For the next page (`?cursor=`); absent on the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// One line, or piece of a line, of a log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LogEntry {
    /// Where reading goes on behind it (`?offset=`).
    pub next_offset: u64,
    /// When it was written, on the worker's clock.
    pub at: Timestamp,
    /// `stdout`, `stderr`, or `notice` for words of Belfry itself.
    pub stream: String,
    /// What was written; bytes that are not UTF-8 are shown as U+FFFD.
    pub text: String,
    /// The bytes that were written, in base64, if they are not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<String>,
}

/// Something that happened, in the feed of `/events`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FeedEvent {
    /// Its place in the feed.
    pub seq: u64,
    /// When it was decided.
    pub at: Timestamp,
    /// `job.waiting`, `job.running`, …, `execution.started`, `worker.ready`, `worker.lost`,
    /// `queue.updated`, `schedule.created`, `schedule.paused`, `schedule.skipped`,
    /// `backfill.completed`, `calendar.updated`, `workflow.changed`, `workflow.not_triggered`, `run.running`,
    /// `run.failed`, `step.succeeded`, `step.late_worker`, ….
    #[serde(rename = "type")]
    pub kind: String,
    /// The tenant; absent for workers and queues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The job that it concerns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_id: Option<JobId>,
    /// The job's status before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<JobStatus>,
    /// The job's status after.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<JobStatus>,
    /// Why the job changed its status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<Cause>,
    /// The execution that it concerns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execution_id: Option<ExecutionId>,
    /// The worker that it concerns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker_id: Option<WorkerId>,
    /// The worker's status now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker_status: Option<WorkerStatus>,
    /// The worker's admission now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker_admission: Option<Admission>,
    /// The queue that it concerns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// The schedule that it concerns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule_id: Option<ScheduleId>,
    /// The name of that schedule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<String>,
    /// The nominal instant that created no job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduled_for: Option<Timestamp>,
    /// Why it created none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<FiringOutcome>,
    /// The backfill that it concerns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backfill_id: Option<BackfillId>,
    /// The workflow that it concerns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workflow_id: Option<WorkflowId>,
    /// The name of that workflow, or of the workflow of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workflow: Option<String>,
    /// The run of a workflow that it concerns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
    /// The step of that run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// The calendar that it concerns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calendar: Option<String>,
    /// Which trigger of the workflow started nothing, and why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_triggered: Option<FeedRefusal>,
}

/// Why a trigger of a workflow started nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FeedRefusal {
    /// Which trigger, from 0.
    pub trigger: u32,
    /// What ended, and why it started nothing.
    #[serde(flatten)]
    pub refusal: TriggerRefusal,
}

/// Why a request was refused: an RFC 9457 problem document.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// A page that explains the code; relative to the server's address.
    #[serde(rename = "type")]
    pub kind: String,
    /// What kind of refusal it is.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// What happened, to which object.
    pub detail: String,
    /// A stable word for programs.
    pub code: String,
    /// What to do next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// Every field that is wrong.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<FieldError>,
    /// The request's id, as in the server's log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
    /// Seconds after which it may be tried again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<u64>,
}

/// What is wrong with one field.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FieldError {
    /// The field as a JSON pointer (`/run/process/env/FOO`) into the body, or `?limit` for a
    /// parameter of the query.
    pub pointer: String,
    /// The field as a path (`run.process.env.FOO`).
    pub path: String,
    /// What was found and what was expected.
    pub detail: String,
}
