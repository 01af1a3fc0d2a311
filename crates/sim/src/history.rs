//! The record of what happened, as independent recorders saw it: the only input of the checker.
//!
//! - The **client** records its requests, and what it knows of the answers.
//! - The **store** recorder records every committed batch, in commit order.
//! - The **witnesses** are the tasks themselves: they record when they started, were halted, resumed and ended.
//! - The **nemesis** records every fault that it injects.
//!
//! A history is a file of JSON lines: a [`Setup`], then one [`Event`] per line, in the order in which the harness saw
//! them, with times of the harness clock. Simulated and real clusters write the same format.

use std::collections::BTreeMap;
use std::io::{self, BufRead, Write};
use std::sync::Arc;

use model::firing::{BackfillStatus, Gap, LedgerRecord, Origin, ScheduleStatus};
use model::id::Epoch;
use model::namespace::NamespaceSettings;
use model::queue::QueueSettings;
use model::record::HistoryEntry;
use model::run::{Caller, RunHistoryEntry, RunTrigger, StepCause, StepOrigin, TriggerState};
use model::service::{ReplicaOrigin, Rollout};
use model::spec::HealthStatus;
use model::worker::{Admission, Capacity, WorkerStatus};
use model::{
    BackfillId, Duration, ExecutionId, ExecutionStatus, Fence, JobId, JobSpec, JobStatus, RunId, RunStatus,
    ScheduleId, ScheduleSpec, ServiceId, ServiceSpec, StepStatus, Timestamp, WorkerId, WorkflowId,
    WorkflowSpec,
};
use serde::{Deserialize, Serialize};

/// A whole history.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct History {
    /// The bounds for the whole history.
    pub setup: Setup,
    /// The events, in order.
    pub events: Vec<Event>,
}

/// The bounds by which the checker judges a history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setup {
    /// Length of a worker lease, from the sending of a heartbeat.
    pub lease: Duration,
    /// Length of the leadership lease.
    pub shard_lease: Duration,
    /// Maximum overlap of tasks after a suspended machine resumed: the wake-up time of the fuse.
    pub wake_slack: Duration,
    /// Maximum time by which a task exceeds its timeout, or a schedule fires late, after the faults ended.
    pub tolerance: Duration,
    /// Source of the store's records.
    #[serde(default)]
    pub store: StoreView,
}

/// How completely the store recorder saw the commits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StoreView {
    /// Every batch, at the time of its commit.
    #[default]
    Commits,
    /// The event feed, combined with the rows at the end: every transition, in commit order. It contains no batch
    /// boundaries, no server or epoch of a commit, and no exact commit time. An event was committed at the latest
    /// when the feed delivered it.
    Feed,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(6),
            shard_lease: Duration::from_secs(5),
            wake_slack: Duration::from_millis(50),
            tolerance: Duration::from_secs(15),
            store: StoreView::default(),
        }
    }
}

/// A recorded event.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Time on the clock of the harness.
    pub at: Timestamp,
    /// The event.
    pub what: What,
}

/// What a recorder saw.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// Client: it sends a request, for the first time or repeatedly.
    Asked {
        /// Number of the request, the same for each attempt.
        request: u64,
        /// The request.
        ask: Ask,
    },
    /// Client: the result of an attempt.
    Answered {
        /// Number of the request.
        request: u64,
        /// What the client knows.
        answer: Answer,
    },
    /// Client: it reads a job that was acknowledged.
    Read {
        /// The job.
        job: JobId,
        /// Whether the job was found.
        found: bool,
    },
    /// Store: a batch was committed.
    Commit(Box<Commit>),
    /// Store: a server acquired or renewed all shards.
    Owned {
        /// The server.
        server: u32,
        /// Epoch of the shards.
        epoch: Epoch,
        /// End of the lease.
        until: Timestamp,
    },
    /// The volume of the store became full, or has space again.
    StoreFull {
        /// Whether it is full.
        full: bool,
    },
    /// Store: the newest commits were lost.
    TailLost {
        /// Number of lost commits as far as known; after a database failover, the number of events in them.
        commits: u32,
        /// No lost commit is older than this, and the history contains none of their contents. If this is `None`, the
        /// history contains them, and little can be judged.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        since: Option<Timestamp>,
    },
    /// Server: the leader learns of an execution that a worker holds and that the store lost.
    Stray {
        /// The worker.
        worker: WorkerId,
        /// The execution.
        execution: ExecutionId,
    },
    /// Worker: an assignment arrived.
    Heard {
        /// The worker.
        worker: WorkerId,
        /// The execution.
        execution: ExecutionId,
        /// Its fence.
        fence: Fence,
    },
    /// Worker: the checkpoint that it passes to a task.
    Found {
        /// The execution that receives it.
        execution: ExecutionId,
        /// Content of the checkpoint.
        data: u64,
    },
    /// Witness: an event of a task.
    Task {
        /// The execution.
        execution: ExecutionId,
        /// The event.
        step: TaskStep,
    },
    /// Nemesis: a fault begins or ends.
    Fault {
        /// Description of the fault.
        fault: String,
        /// Whether the fault begins.
        begins: bool,
    },
    /// Nemesis: a suspended machine resumes.
    Woke {
        /// The worker.
        worker: WorkerId,
    },
    /// Nemesis: the supervisor of a worker crashed, and lost what it had not written to its journal.
    Crashed {
        /// The worker.
        worker: WorkerId,
    },
    /// Harness: an engine was rebuilt from the rows and compared with the running one.
    Rebuilt {
        /// The server of the running engine.
        server: u32,
        /// The first difference; `None` if the engines are equal.
        difference: Option<String>,
    },
    /// Harness: a core reported an inconsistency.
    Inconsistent {
        /// The server.
        server: u32,
        /// Description of the inconsistency.
        what: String,
    },
    /// Nemesis: all faults have ended, and clients create no more work. From here on everything must end.
    Calm,
    /// Harness: by now, each service must have its desired replicas, or its rollout must have failed. Clients have resumed
    /// and promoted all rollouts, and now delete all services.
    ServicesDue,
    /// Harness: the history ends here.
    End {
        /// Executions whose reports workers still hold, because they were not acknowledged.
        unacknowledged: Vec<ExecutionId>,
    },
}

/// A client request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names say it")]
pub enum Ask {
    /// Submits a job; `tag` identifies it and is unique to this request.
    Submit {
        tag: String,
        key: Option<String>,
    },
    Cancel {
        job: JobId,
    },
    Update {
        job: JobId,
    },
    Queue {
        name: String,
    },
    Namespace {
        name: String,
    },
    Apply {
        name: String,
    },
    Pause {
        schedule: ScheduleId,
    },
    Resume {
        schedule: ScheduleId,
    },
    Delete {
        schedule: ScheduleId,
    },
    Trigger {
        schedule: ScheduleId,
    },
    Backfill {
        schedule: ScheduleId,
        count: u32,
    },
    ApplyWorkflow {
        name: String,
    },
    /// Starts a run of the workflow with this name.
    Start {
        workflow: String,
    },
    /// Adds elements to a step, on behalf of a running task.
    Add(Added),
    /// Saves a checkpoint of a running task; its content is unique.
    Save {
        execution: ExecutionId,
        data: u64,
    },
    /// Changes a run; `what` names the operation.
    Run {
        run: RunId,
        what: String,
    },
    ApplyService {
        name: String,
    },
    /// Changes a service; `what` names the operation.
    Service {
        service: ServiceId,
        what: String,
    },
}

/// What a client knows about the result of its request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// The job was accepted.
    Submitted {
        /// Id of the job.
        job: JobId,
    },
    /// The schedule was applied.
    Applied {
        /// Id of the schedule.
        schedule: ScheduleId,
    },
    /// The run was started.
    Started {
        /// Id of the run.
        run: RunId,
    },
    /// The elements were added.
    Added {
        /// Number of the first element.
        first: u32,
        /// Number of elements.
        count: u32,
    },
    /// The checkpoint was saved.
    Saved {
        /// Its version within the job.
        version: u64,
    },
    /// The service was applied.
    ServiceApplied {
        /// Id of the service.
        service: ServiceId,
    },
    /// The request succeeded.
    Done,
    /// The request certainly had no effect.
    Refused {
        /// Error code.
        code: String,
    },
    /// It is unknown whether the request took effect.
    Unknown,
}

/// An event of a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskStep {
    /// The task started.
    Started {
        /// The job.
        job: JobId,
        /// The fence.
        fence: Fence,
        /// The worker.
        worker: WorkerId,
    },
    /// The task was halted: it is frozen, or its machine is suspended.
    Halted,
    /// The task resumed.
    Resumed,
    /// The task ended by itself.
    Ended {
        /// Its exit code.
        exit: i32,
    },
    /// The task was killed.
    Killed,
}

/// A committed batch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Commit {
    /// The server that sent it.
    pub server: u32,
    /// Epoch of the shards.
    pub epoch: Epoch,
    /// When the engine decided it, on the clock of the harness.
    pub decided_at: Timestamp,
    /// Engine time of the batch.
    pub now: Timestamp,
    /// Its rows.
    pub rows: Vec<Row>,
}

/// A row of a committed batch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names say it")]
pub enum Row {
    Job(Box<JobRow>),
    Execution(Box<ExecutionRow>),
    Key {
        key: String,
        job: JobId,
    },
    Worker {
        worker: WorkerId,
        status: WorkerStatus,
        /// Whether it gets new executions.
        #[serde(default)]
        admission: Admission,
        capacity: Capacity,
    },
    Queue {
        name: String,
        settings: QueueSettings,
    },
    Namespace {
        namespace: String,
        settings: NamespaceSettings,
    },
    Schedule(Box<ScheduleRow>),
    ScheduleRemoved(ScheduleId),
    Ledger(Box<LedgerRecord>),
    Backfill {
        backfill: BackfillId,
        status: BackfillStatus,
        /// With its first row: the schedule, and the maximum number of concurrent runs.
        asked: Option<(ScheduleId, u32)>,
    },
    Workflow(Box<WorkflowRow>),
    Run(Box<RunRow>),
    Step(Box<StepRow>),
    Elements {
        added: Added,
        first: u32,
        count: u32,
    },
    Checkpoint {
        job: JobId,
        version: u64,
        data: u64,
    },
    Service(Box<ServiceRow>),
    ServiceRemoved(ServiceId),
}

/// Identifies elements that a task added to a step.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Added {
    /// The run.
    pub run: RunId,
    /// Number of the mapped step.
    pub step: u32,
    /// The step or element whose task added them.
    pub by: (u32, Option<u32>),
    /// Name of the batch, given by the task.
    pub batch: String,
}

/// Fields of a job row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobRow {
    /// Id of the job.
    pub job: JobId,
    /// Whether this is the first row of the job.
    pub new: bool,
    /// The spec, if this row wrote it.
    pub spec: Option<Arc<JobSpec>>,
    /// With the spec: the firing that created the job.
    pub origin: Option<Arc<Origin>>,
    /// With the spec: the step of a run that created the job.
    #[serde(default)]
    pub step: Option<Arc<StepOrigin>>,
    /// With the spec: the replica of a service that the job is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replica: Option<Arc<ReplicaOrigin>>,
    /// Status after this commit.
    pub status: JobStatus,
    /// Version of the row.
    pub version: u64,
    /// When the job next enters its queue.
    pub due_at: Timestamp,
    /// Number of executions so far.
    pub executions: u32,
    /// Number of executions that ran and failed.
    pub run_failures: u32,
    /// Number of executions that could not be started.
    pub start_failures: u32,
    /// Number of executions that were lost with their worker.
    #[serde(default)]
    pub losses: u32,
    /// Whether the completion deadline passed before the end.
    #[serde(default)]
    pub overdue: bool,
    /// The newest fence.
    pub fence: Fence,
    /// Whether a cancellation was requested.
    pub cancel_requested: bool,
    /// The transitions that this row adds to the history.
    pub steps: Vec<HistoryEntry>,
}

/// Fields of an execution row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecutionRow {
    /// Id of the execution.
    pub execution: ExecutionId,
    /// The job.
    pub job: JobId,
    /// Whether this is the first row of the execution.
    pub new: bool,
    /// Number of the execution, from 1.
    pub number: u32,
    /// Its fence.
    pub fence: Fence,
    /// The worker.
    pub worker: WorkerId,
    /// Status after this commit.
    pub status: ExecutionStatus,
    /// Engine time of the assignment.
    pub assigned_at: Timestamp,
    /// Whether the worker reported that the task started.
    pub started: bool,
    /// Exit code of the task.
    pub exit: Option<i32>,
    /// Job that preempts the execution.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preempted_by: Option<JobId>,
    /// Engine time of the start, as far as known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    /// Health that the worker reported last, and the engine time of its last change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health: Option<(HealthStatus, Timestamp)>,
}

/// Fields of a service row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ServiceRow {
    /// Id of the service.
    pub service: ServiceId,
    /// Whether this is the first row of the service.
    pub new: bool,
    /// The spec, if this row wrote it.
    pub spec: Option<Arc<ServiceSpec>>,
    /// With the spec: the revision whose template each kept revision has.
    #[serde(default)]
    pub templates: BTreeMap<u64, u64>,
    /// Whether the service is being deleted.
    pub deleting: bool,
    /// Version of the row.
    pub version: u64,
    /// Desired number of replicas.
    pub replicas: u32,
    /// Rollout of the current revision.
    pub rollout: Rollout,
    /// Last revision that was rolled out completely.
    pub stable_revision: Option<u64>,
}

/// Fields of a schedule row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ScheduleRow {
    /// Id of the schedule.
    pub schedule: ScheduleId,
    /// Whether this is the first row of the schedule.
    pub new: bool,
    /// The spec, if this row wrote it.
    pub spec: Option<Arc<ScheduleSpec>>,
    /// Generation of the spec.
    pub generation: u64,
    /// Status after this commit.
    pub status: ScheduleStatus,
    /// Up to this time all scheduled times are decided.
    pub cursor: Timestamp,
    /// Missed ranges before the cursor that are still to be caught up.
    #[serde(default)]
    pub owed: Vec<Gap>,
    /// Engine time of the creation.
    pub created_at: Timestamp,
}

/// Fields of a workflow row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WorkflowRow {
    /// Id of the workflow.
    pub workflow: WorkflowId,
    /// The spec, if this row wrote it.
    pub spec: Option<Arc<WorkflowSpec>>,
    /// State of each trigger.
    pub triggers: Vec<TriggerState>,
    /// Whether the workflow was removed.
    #[serde(default)]
    pub removed: bool,
}

/// Fields of a run row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunRow {
    /// Id of the run.
    pub run: RunId,
    /// Whether this is the first row of the run.
    pub new: bool,
    /// With the first row: the spec.
    pub spec: Option<Arc<WorkflowSpec>>,
    /// With the spec: the firing that created the run.
    pub origin: Option<Arc<Origin>>,
    /// With the spec: the step that called the run.
    pub caller: Option<Caller>,
    /// With the spec: the trigger that started the run.
    #[serde(default)]
    pub trigger: Option<Arc<RunTrigger>>,
    /// The runs that the end of this run started.
    #[serde(default)]
    pub started: Vec<RunId>,
    /// Status after this commit.
    pub status: RunStatus,
    /// Version of the row.
    pub version: u64,
    /// The transitions that this row adds to the history.
    pub steps: Vec<RunHistoryEntry>,
}

/// Fields of a row of a step, or of an element of a mapped step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepRow {
    /// The run.
    pub run: RunId,
    /// Number of the step.
    pub step: u32,
    /// Number of the element; `None` for the step itself.
    pub item: Option<u32>,
    /// Status after this commit.
    pub status: StepStatus,
    /// Cause of the status.
    pub cause: StepCause,
}

impl History {
    /// Writes the history as JSON lines.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write(&self, mut out: impl Write) -> io::Result<()> {
        serde_json::to_writer(&mut out, &self.setup)?;
        for event in &self.events {
            out.write_all(b"\n")?;
            serde_json::to_writer(&mut out, event)?;
        }
        out.write_all(b"\n")
    }

    /// Reads a history from JSON lines.
    ///
    /// # Errors
    /// Those of `input`, and [`io::ErrorKind::InvalidData`] for an invalid line, with its number.
    pub fn read(input: impl BufRead) -> io::Result<Self> {
        let mut history = Self::default();
        for (index, line) in input.lines().enumerate() {
            let line = line?;
            let bad = |error: serde_json::Error| {
                let what = if index == 0 { "a setup" } else { "an event" };
                io::Error::new(io::ErrorKind::InvalidData, format!("line {}: not {what}: {error}", index + 1))
            };
            if index == 0 {
                history.setup = serde_json::from_str(&line).map_err(bad)?;
            } else if !line.trim().is_empty() {
                history.events.push(serde_json::from_str(&line).map_err(bad)?);
            }
        }
        Ok(history)
    }

    /// Returns a hash of the whole history; equal histories have equal hashes.
    pub fn fingerprint(&self) -> u64 {
        use std::hash::{BuildHasher, Hasher};
        struct Sink(foldhash::fast::FoldHasher<'static>);
        impl Write for Sink {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                self.0.write(bytes);
                Ok(bytes.len())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let mut sink = Sink(foldhash::fast::FixedState::with_seed(0x5eed_0010).build_hasher());
        for event in &self.events {
            serde_json::to_writer(&mut sink, event)
                .expect("a hasher never fails, and a history contains no floats as keys");
        }
        sink.0.finish()
    }
}
