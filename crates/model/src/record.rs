//! Rows, as the engine changes them and stores keep them.
//!
//! A [`Batch`] is what one commit makes durable: the changed rows, each once, and the events that
//! watchers hear of after it. What never changes about a job ([`JobHead`]) is apart from what does
//! ([`JobState`]), so that a store rewrites only the latter.

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
    BackfillId, Epoch, ExecutionId, Fence, JobId, RunId, ScheduleId, ShardId, WorkerId, WorkflowId,
};
use crate::lifecycle::Cause;
use crate::queue::QueueSettings;
use crate::run::{
    ElementBatch, RunCause, RunHead, RunState, RunStatus, StepCause, StepOrigin, StepRecord, StepStatus,
    TriggerRefusal, WorkflowHead, WorkflowState,
};
use crate::spec::JobSpec;
use crate::status::{ExecutionStatus, JobStatus};
use crate::time::{Duration, Timestamp};
use crate::worker::{Admission, Capabilities, Capacity, WorkerStatus};

/// What a job was asked to be. Written once, and again only by an update before its start.
#[derive(Debug, Clone, PartialEq)]
pub struct JobHead {
    /// The spec, parsed.
    pub spec: Arc<JobSpec>,
    /// The same as [compact JSON](JobSpec::compact_json); what is stored and sent to workers.
    pub body: Arc<str>,
    /// The ended job that this one repeats.
    pub retry_of: Option<JobId>,
    /// The schedule that it belongs to.
    pub origin: Option<Arc<Origin>>,
    /// The run and step that it belongs to.
    pub step: Option<Arc<StepOrigin>>,
}

/// One recorded transition of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HistoryEntry {
    /// When it was decided.
    pub at: Timestamp,
    /// The status before; absent for the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<JobStatus>,
    /// The status after.
    pub to: JobStatus,
    /// What happened.
    pub cause: Cause,
    /// The number of the execution that it concerns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execution: Option<u32>,
    /// Who did it, or what is known beyond the cause.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub detail: Option<Box<str>>,
}

/// Why an execution, and with its last one a job, ended as it did.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct Outcome {
    /// The process's exit code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// The signal that killed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// A stable word for what went wrong (`exit_code`, `signal`, `timeout`, `out_of_memory`,
    /// `start_failed`, `worker_lost`, …); absent on success.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub error: Option<Box<str>>,
    /// One line for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub message: Option<Box<str>>,
    /// What the task wrote to `$BELFRY_OUTPUT`, as JSON text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub output: Option<Arc<str>>,
    /// The versions of artifacts that it read and stored. In a report only: the engine moves them to the row of the
    /// execution.
    #[serde(skip)]
    pub files: Option<Box<Files>>,
}

/// The versions of artifacts that an execution read and stored.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct Files {
    /// Those that it read, in the order of the job's inputs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inputs: Vec<FileVersion>,
    /// Those that it stored, in the order of the job's outputs; an optional one that was not there is left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outputs: Vec<FileVersion>,
}

/// One version of an artifact, and where its file stood in the folder of the execution.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FileVersion {
    /// The name of the artifact.
    pub artifact: String,
    /// The SHA-256 of its bytes, in hex.
    pub sha256: String,
    /// Its path.
    pub path: String,
}

impl FileVersion {
    /// The version as a job's input names it: `NAME@sha256:HEX`.
    pub fn reference(&self) -> String {
        format!("{}@sha256:{}", self.artifact, self.sha256)
    }
}

/// What an execution used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct Usage {
    /// How long it ran.
    pub run_time: Duration,
    /// CPU time, user and system.
    pub cpu_time: Duration,
    /// The most memory that it held, in bytes.
    pub peak_memory_bytes: u64,
    /// Bytes of framed log.
    pub log_bytes: u64,
}

/// All of a job that changes.
#[derive(Debug, Clone, PartialEq)]
pub struct JobState {
    /// Where it stands.
    pub status: JobStatus,
    /// Grows with every committed change of the job; its ETag.
    pub version: u64,
    /// When it last changed.
    pub updated_at: Timestamp,
    /// When it enters its queue next: its `run_at`, or the end of its backoff.
    pub due_at: Timestamp,
    /// When it entered its queue for the first time.
    pub queued_at: Option<Timestamp>,
    /// When an execution started first.
    pub started_at: Option<Timestamp>,
    /// When it reached a final status.
    pub finished_at: Option<Timestamp>,
    /// How many executions it has had.
    pub executions: u32,
    /// How many of them ran and failed.
    pub run_failures: u32,
    /// How many of them could not be started.
    pub start_failures: u32,
    /// The fence of its newest execution.
    pub fence: Fence,
    /// Its newest execution.
    pub execution: Option<ExecutionId>,
    /// Where its newest execution is, or was.
    pub worker: Option<WorkerId>,
    /// When somebody asked to cancel it.
    pub cancel_requested_at: Option<Timestamp>,
    /// Why its last execution ended as it did.
    pub outcome: Option<Box<Outcome>>,
    /// Every transition so far.
    pub history: Vec<HistoryEntry>,
    /// From when on retention may delete it; set when it ended.
    pub expires_at: Option<Timestamp>,
    /// The runs that its end started.
    pub started: ThinVec<RunId>,
    /// Its last checkpoint.
    pub checkpoint: Option<Box<Checkpoint>>,
}

/// One try of a job on one worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecutionRecord {
    /// Its id.
    pub id: ExecutionId,
    /// Whose try it is.
    pub job: JobId,
    /// Which try, from 1.
    pub number: u32,
    /// Its fence.
    pub fence: Fence,
    /// Where.
    pub worker: WorkerId,
    /// Where it stands.
    pub status: ExecutionStatus,
    /// When it was given to the worker.
    pub assigned_at: Timestamp,
    /// When the server heard that it started.
    pub started_at: Option<Timestamp>,
    /// When the server heard, or decided, that it ended.
    pub finished_at: Option<Timestamp>,
    /// Why it ended as it did.
    pub outcome: Option<Outcome>,
    /// What it used.
    pub usage: Option<Usage>,
    /// The versions of artifacts that it read and stored; absent where its worker did not tell.
    pub files: Option<Box<Files>>,
}

/// A worker as it is known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WorkerRecord {
    /// Its id, made together with its journal.
    pub id: WorkerId,
    /// What people call it.
    pub name: String,
    /// The version of its agent.
    pub version: String,
    /// What constraints are matched against.
    pub labels: std::collections::BTreeMap<String, String>,
    /// What it has.
    pub capacity: Capacity,
    /// What it can.
    pub capabilities: Capabilities,
    /// Whether it is there.
    pub status: WorkerStatus,
    /// Whether an operator lets work be placed on it.
    pub admission: Admission,
    /// When it was first seen.
    pub created_at: Timestamp,
    /// When its status last changed.
    pub updated_at: Timestamp,
    /// Of a lost worker: when it was last heard, or when it was taken for lost where no server of that time had heard it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heard_at: Option<Timestamp>,
}

/// A queue as it was set up.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct QueueRecord {
    /// Its name.
    pub name: String,
    /// How it lets jobs through.
    pub settings: QueueSettings,
    /// Grows with every change; its ETag.
    pub version: u64,
    /// When it last changed.
    pub updated_at: Timestamp,
}

/// An idempotency key that was used. Outlives its job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyRecord {
    /// Hash of the namespace and the key.
    pub key: u128,
    /// Hash of what was submitted under it.
    pub body: u128,
    /// The job that it made.
    pub job: JobId,
    /// When it may be forgotten.
    pub expires_at: Timestamp,
}

/// An idempotency key that a run was started under. Outlives its run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunKeyRecord {
    /// Hash of the namespace, the workflow and the key.
    pub key: u128,
    /// Hash of what was asked under it.
    pub body: u128,
    /// The run that it started.
    pub run: RunId,
    /// When it may be forgotten.
    pub expires_at: Timestamp,
}

/// Something that happened, for watchers; kept for a while so that they can resume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// When it was decided.
    pub at: Timestamp,
    /// The namespace that it belongs to; none for workers.
    pub namespace: Option<Arc<str>>,
    /// What happened.
    pub kind: EventKind,
}

/// What an event tells.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum EventKind {
    /// A job changed its status.
    Job {
        /// Which.
        job: JobId,
        /// The status before.
        from: Option<JobStatus>,
        /// The status after.
        to: JobStatus,
        /// Why.
        cause: Cause,
        /// The execution that it concerns.
        execution: Option<ExecutionId>,
        /// The worker of that execution.
        worker: Option<WorkerId>,
        /// The schedule that the job belongs to.
        #[serde(default)]
        schedule: Option<ScheduleId>,
    },
    /// A running execution was heard to have started.
    Started {
        /// Whose.
        job: JobId,
        /// Which.
        execution: ExecutionId,
        /// Where.
        worker: WorkerId,
    },
    /// A worker came, went, or was let in or out.
    Worker {
        /// Which.
        worker: WorkerId,
        /// Whether it is there now.
        status: WorkerStatus,
        /// Whether work may be placed on it now.
        admission: Admission,
    },
    /// A queue was set up anew.
    Queue {
        /// Which.
        queue: Arc<str>,
    },
    /// A schedule was made, changed or removed, or changed its status.
    Schedule {
        /// Which.
        schedule: ScheduleId,
        /// Its name.
        name: Arc<str>,
        /// What happened to it.
        what: ScheduleEvent,
    },
    /// An instant of a schedule created no job though its rules let it through.
    Skipped {
        /// Which schedule.
        schedule: ScheduleId,
        /// Its name.
        name: Arc<str>,
        /// Which instant, or the last of a row.
        scheduled_for: Timestamp,
        /// Why.
        outcome: FiringOutcome,
    },
    /// A backfill began or ended.
    Backfill {
        /// Which.
        backfill: BackfillId,
        /// Of which schedule.
        schedule: ScheduleId,
        /// Where it stands now.
        status: BackfillStatus,
    },
    /// A calendar was made, changed or removed.
    Calendar {
        /// Its name.
        calendar: Arc<str>,
    },
    /// A workflow was made, changed or removed.
    Workflow {
        /// Which.
        workflow: WorkflowId,
        /// Its name.
        name: Arc<str>,
        /// What happened to it.
        what: WorkflowEvent,
    },
    /// Something ended that a workflow listens to, and no run was started.
    NotTriggered {
        /// Which workflow.
        workflow: WorkflowId,
        /// Its name.
        name: Arc<str>,
        /// Which of its triggers, from 0.
        trigger: u32,
        /// What ended, and why it started nothing.
        refusal: Box<TriggerRefusal>,
    },
    /// A worker came while a step over workers went on.
    LateWorker {
        /// Of which run.
        run: RunId,
        /// The name of the step.
        step: Arc<str>,
        /// Which worker.
        worker: WorkerId,
        /// Whether the step is done on it too.
        included: bool,
    },
    /// A run changed its status.
    Run {
        /// Which.
        run: RunId,
        /// The name of its workflow.
        workflow: Arc<str>,
        /// The status before.
        from: Option<RunStatus>,
        /// The status after.
        to: RunStatus,
        /// Why.
        cause: RunCause,
    },
    /// A step of a run changed its status. The elements of one are told by their jobs.
    Step {
        /// Of which run.
        run: RunId,
        /// Its name.
        step: Arc<str>,
        /// The status before.
        from: StepStatus,
        /// The status after.
        to: StepStatus,
        /// Why.
        cause: StepCause,
        /// Its job.
        job: Option<JobId>,
    },
}

/// What happened to a workflow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names say it")]
pub enum WorkflowEvent {
    Created,
    Changed,
    Deleted,
}

/// What happened to a schedule.
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

/// One changed row.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// A job. With a `head` it is new or was updated; else only its state is rewritten. One that
    /// has reached a final status leaves the live rows for the history.
    Job {
        /// Which.
        id: JobId,
        /// Whether no store has it yet.
        new: bool,
        /// What it was asked to be, where that is to be written.
        head: Option<Arc<JobHead>>,
        /// All of it that changes.
        state: Box<JobState>,
    },
    /// An execution; `new` as with jobs. An ended one leaves the live rows for the history.
    Execution {
        /// Whether no store has it yet.
        new: bool,
        /// The whole row.
        record: Box<ExecutionRecord>,
    },
    /// The last checkpoint of a job, with its bytes; replaces the one before. It goes with its job.
    Checkpoint(Box<CheckpointRecord>),
    /// An idempotency key was used.
    Key(KeyRecord),
    /// Keys of jobs and of runs that expired before this time may go; of these shards only.
    ForgetKeys {
        /// Whose.
        shard: ShardId,
        /// Until when.
        expired_before: Timestamp,
    },
    /// A worker.
    Worker(Arc<WorkerRecord>),
    /// A worker was removed for good.
    RemoveWorker(WorkerId),
    /// A queue.
    Queue(Arc<QueueRecord>),
    /// The settings of a queue were deleted.
    RemoveQueue(Box<str>),
    /// A schedule. With a `head` it is new or has a new generation; else only its state is rewritten.
    Schedule {
        /// Which.
        id: ScheduleId,
        /// Whether no store has it yet.
        new: bool,
        /// What it was asked to be, where that is to be written.
        head: Option<Arc<ScheduleHead>>,
        /// All of it that changes.
        state: Box<ScheduleState>,
    },
    /// A schedule was deleted. Its ledger stays until retention takes it.
    RemoveSchedule(ScheduleId),
    /// A line of the fire ledger, new or written again. One that names a job is never given another.
    Ledger(Box<LedgerRecord>),
    /// A backfill; with a `head` it is new. One that is not running leaves the live rows.
    Backfill {
        /// Which.
        id: BackfillId,
        /// What it was asked to do, where that is to be written.
        head: Option<Arc<BackfillHead>>,
        /// How far it is.
        state: BackfillState,
    },
    /// A workflow. With a `head` it is new or has a new generation; else only its state is rewritten.
    Workflow {
        /// Which.
        id: WorkflowId,
        /// Whether no store has it yet.
        new: bool,
        /// What it was asked to be, where that is to be written.
        head: Option<Arc<WorkflowHead>>,
        /// All of it that changes.
        state: WorkflowState,
    },
    /// A workflow was deleted. Its runs go on, and are kept.
    RemoveWorkflow(WorkflowId),
    /// A run; with a `head` it is new. One that has reached a final status leaves the live rows for the
    /// history, with all of its steps.
    Run {
        /// Which.
        id: RunId,
        /// What it was asked to be, where that is to be written.
        head: Option<Arc<RunHead>>,
        /// All of it that changes.
        state: Box<RunState>,
    },
    /// A step of a run, or one element of it; the whole row, new or written again.
    Step(Box<StepRecord>),
    /// A task added elements to a step; always new.
    ElementBatch(Box<ElementBatch>),
    /// An idempotency key was used to start a run.
    RunKey(RunKeyRecord),
    /// A calendar.
    Calendar(Arc<CalendarRecord>),
    /// A calendar was deleted.
    RemoveCalendar {
        /// Of which namespace.
        namespace: Arc<str>,
        /// Which.
        name: Arc<str>,
    },
}

impl Change {
    /// The shard that the row belongs to: that of its job, schedule, workflow or run. `None` for workers, queues and
    /// calendars, which all shards share.
    ///
    /// A commit may change rows of leased shards only, so a new variant must say here what it belongs to.
    pub fn shard(&self) -> Option<ShardId> {
        match self {
            Self::Job { id, .. } => Some(id.shard()),
            Self::Execution { record, .. } => Some(record.job.shard()),
            Self::Checkpoint(record) => Some(record.job.shard()),
            Self::Key(key) => Some(key.job.shard()),
            Self::ForgetKeys { shard, .. } => Some(*shard),
            Self::Schedule { id, .. } | Self::RemoveSchedule(id) => Some(id.shard()),
            Self::Ledger(record) => Some(record.schedule.shard()),
            Self::Backfill { id, .. } => Some(id.shard()),
            Self::Workflow { id, .. } | Self::RemoveWorkflow(id) => Some(id.shard()),
            Self::Run { id, .. } => Some(id.shard()),
            Self::Step(record) => Some(record.key.run.shard()),
            Self::ElementBatch(batch) => Some(batch.key.run.shard()),
            Self::RunKey(key) => Some(key.run.shard()),
            Self::Worker(_)
            | Self::RemoveWorker(_)
            | Self::Queue(_)
            | Self::RemoveQueue(_)
            | Self::Calendar(_)
            | Self::RemoveCalendar { .. } => None,
        }
    }
}

/// What one commit makes durable.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Batch {
    /// Engine time of the batch; never less than that of an earlier one.
    pub now: Timestamp,
    /// Changed rows, each at most once.
    pub changes: Vec<Change>,
    /// What watchers hear of afterwards, in order.
    pub events: Vec<Event>,
}

impl Batch {
    /// Whether there is nothing to commit.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.events.is_empty()
    }
}

/// One live row, as a store hands it back.
#[derive(Debug, Clone, PartialEq)]
pub enum LiveRow {
    /// A job that has not ended.
    Job {
        /// Which.
        id: JobId,
        /// What it was asked to be.
        head: JobHead,
        /// Where it stands.
        state: Box<JobState>,
    },
    /// An execution that has not ended.
    Execution(Box<ExecutionRecord>),
    /// An idempotency key that is still remembered.
    Key(KeyRecord),
    /// A worker.
    Worker(WorkerRecord),
    /// A queue.
    Queue(QueueRecord),
    /// A calendar.
    Calendar(CalendarRecord),
    /// A schedule.
    Schedule {
        /// Which.
        id: ScheduleId,
        /// What it was asked to be.
        head: ScheduleHead,
        /// Where it stands.
        state: Box<ScheduleState>,
    },
    /// A backfill that is running.
    Backfill {
        /// What it was asked to do.
        head: BackfillHead,
        /// How far it is.
        state: BackfillState,
    },
    /// A workflow.
    Workflow {
        /// Which.
        id: WorkflowId,
        /// What it was asked to be.
        head: WorkflowHead,
        /// How it stands.
        state: WorkflowState,
    },
    /// A run that has not ended.
    Run {
        /// Which.
        id: RunId,
        /// What it was asked to be.
        head: Arc<RunHead>,
        /// Where it stands.
        state: Box<RunState>,
    },
    /// A step, or an element of one, of a run that has not ended.
    Step(Box<StepRecord>),
    /// Elements that a task added to a step of a run that has not ended.
    ElementBatch(Box<ElementBatch>),
    /// An idempotency key of a run that is still remembered.
    RunKey(RunKeyRecord),
}

/// The right to change a shard: which ownership this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    /// The shard.
    pub shard: ShardId,
    /// Which ownership.
    pub epoch: Epoch,
}
