//! What happened, as independent recorders saw it: the one format that the checker reads.
//!
//! - The **client** writes what it asked and what it knows of the answer.
//! - The **store** writes every committed batch, in the order of the commits.
//! - The **witness** are the tasks themselves: when they started, stood still, went on and ended.
//! - The **nemesis** writes what it did to everybody.
//!
//! A history is a file of JSON lines: a [`Setup`], then one [`Event`] a line in the order in which the
//! harness saw them, on the clock of the harness. Simulated and real clusters write the same.

use std::io::{self, BufRead, Write};
use std::sync::Arc;

use model::firing::{BackfillStatus, Gap, LedgerRecord, Origin, ScheduleStatus};
use model::id::Epoch;
use model::queue::QueueSettings;
use model::record::HistoryEntry;
use model::run::{Caller, RunHistoryEntry, RunTrigger, StepCause, StepOrigin, TriggerState};
use model::worker::{Capacity, WorkerStatus};
use model::{
    BackfillId, Duration, ExecutionId, ExecutionStatus, Fence, JobId, JobSpec, JobStatus, RunId, RunStatus,
    ScheduleId, ScheduleSpec, StepStatus, Timestamp, WorkerId, WorkflowId, WorkflowSpec,
};
use serde::{Deserialize, Serialize};

/// A whole history.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct History {
    /// What holds for all of it.
    pub setup: Setup,
    /// What happened, in order.
    pub events: Vec<Event>,
}

/// What holds for a whole history: the bounds that the checker judges by.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setup {
    /// How long a worker may go on after a beat.
    pub lease: Duration,
    /// How long the ownership of a shard lasts.
    pub shard_lease: Duration,
    /// How long tasks may overlap after a whole machine stood still: the fuse's wake-up time.
    pub wake_slack: Duration,
    /// How much longer than asked a task may run, and how late a schedule may be once all is calm.
    pub tolerance: Duration,
    /// How closely the store was watched.
    #[serde(default)]
    pub store: StoreView,
}

/// How closely the store recorder saw what was committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StoreView {
    /// Every batch as it was committed, when it was.
    #[default]
    Commits,
    /// The feed of events set beside the rows as they stood in the end: every step, in the order of the
    /// commits. It knows neither where a batch began and ended, nor who committed it under which
    /// ownership, nor when exactly it became durable: only that it had when the feed told of it.
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

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// When, on the clock of the harness.
    pub at: Timestamp,
    /// What.
    pub what: What,
}

/// What a recorder saw.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// Client: it asks, for the first time or again.
    Asked {
        /// Names the request; the same for each attempt.
        request: u64,
        /// What it wants.
        ask: Ask,
    },
    /// Client: what an attempt came to.
    Answered {
        /// Of which request.
        request: u64,
        /// What it knows.
        answer: Answer,
    },
    /// Client: it looks for a job that it was told of.
    Read {
        /// Which.
        job: JobId,
        /// Whether it was there.
        found: bool,
    },
    /// Store: a batch became durable.
    Commit(Box<Commit>),
    /// Store: a server got or prolonged the ownership of all shards.
    Owned {
        /// Which server.
        server: u32,
        /// Which ownership.
        epoch: Epoch,
        /// Until when.
        until: Timestamp,
    },
    /// Store: the newest commits are gone.
    TailLost {
        /// How many, as far as it is known: of a database that failed over, the events in them.
        commits: u32,
        /// Nothing older than this is among them; the history has nothing of what was in them. Where it is
        /// not known, and the history has them, little can be judged.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        since: Option<Timestamp>,
    },
    /// Server: an owner learns of an execution that a worker holds and that the store forgot.
    Stray {
        /// Where.
        worker: WorkerId,
        /// Which.
        execution: ExecutionId,
    },
    /// Worker: an assignment arrived.
    Heard {
        /// Where.
        worker: WorkerId,
        /// Which execution.
        execution: ExecutionId,
        /// Under which fence.
        fence: Fence,
    },
    /// Worker: what it gives a task that an execution before it saved.
    Found {
        /// Which execution.
        execution: ExecutionId,
        /// What it is.
        data: u64,
    },
    /// Witness: a task did something.
    Task {
        /// Of which execution.
        execution: ExecutionId,
        /// What.
        step: TaskStep,
    },
    /// Nemesis: a fault begins or ends.
    Fault {
        /// Which.
        fault: String,
        /// Whether it begins.
        begins: bool,
    },
    /// Nemesis: a whole machine goes on after it stood still.
    Woke {
        /// Which.
        worker: WorkerId,
    },
    /// Nemesis: the supervisor of a worker crashed and lost what it had not written to its journal.
    Crashed {
        /// Which worker.
        worker: WorkerId,
    },
    /// Harness: an engine was rebuilt from the rows beside a running one.
    Rebuilt {
        /// On which server.
        server: u32,
        /// The first thing in which the two differ.
        difference: Option<String>,
    },
    /// Harness: an engine found itself inconsistent.
    Inconsistent {
        /// On which server.
        server: u32,
        /// What it says.
        what: String,
    },
    /// Nemesis: all faults are over, and no more work comes: from here on everything must end.
    Calm,
    /// Harness: the history ends here.
    End {
        /// Reports that workers still keep, for nobody acknowledged them.
        unacknowledged: Vec<ExecutionId>,
    },
}

/// What a client wants.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names say it")]
pub enum Ask {
    /// A job; `tag` is its name, and no other request has it.
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
    /// A run of the workflow of this name.
    Start {
        workflow: String,
    },
    /// Elements for a step, on behalf of a running task.
    Add(Added),
    /// A checkpoint of a running task; no other has the same content.
    Save {
        execution: ExecutionId,
        data: u64,
    },
    /// Something of a run, in a word.
    Run {
        run: RunId,
        what: String,
    },
}

/// What a client knows of its request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// The job is accepted.
    Submitted {
        /// Which.
        job: JobId,
    },
    /// The schedule is there.
    Applied {
        /// Which.
        schedule: ScheduleId,
    },
    /// The run is started.
    Started {
        /// Which.
        run: RunId,
    },
    /// The elements are there.
    Added {
        /// The number of the first of them.
        first: u32,
        /// How many there are.
        count: u32,
    },
    /// The checkpoint is kept.
    Saved {
        /// Which one of its job's it is.
        version: u64,
    },
    /// It was done.
    Done,
    /// It was not done, for certain.
    Refused {
        /// Why, in a word.
        code: String,
    },
    /// It was done, or not.
    Unknown,
}

/// What a task did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskStep {
    /// It started.
    Started {
        /// For which job.
        job: JobId,
        /// Under which fence.
        fence: Fence,
        /// Where.
        worker: WorkerId,
    },
    /// It stands still: frozen, or its machine is.
    Halted,
    /// It goes on.
    Resumed,
    /// It ended by itself.
    Ended {
        /// With this exit code.
        exit: i32,
    },
    /// It was killed.
    Killed,
}

/// A durable batch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Commit {
    /// By which server.
    pub server: u32,
    /// Under which ownership.
    pub epoch: Epoch,
    /// When it was decided, on the clock of the harness.
    pub decided_at: Timestamp,
    /// Engine time of the batch.
    pub now: Timestamp,
    /// Its rows.
    pub rows: Vec<Row>,
}

/// A row as it was committed.
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
        capacity: Capacity,
    },
    Queue {
        name: String,
        settings: QueueSettings,
    },
    Schedule(Box<ScheduleRow>),
    ScheduleRemoved(ScheduleId),
    Ledger(Box<LedgerRecord>),
    Backfill {
        backfill: BackfillId,
        status: BackfillStatus,
        /// Whose instants it runs, and how many of them at once at most; with its first row.
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
}

/// Names what a task added to a step.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Added {
    /// Of which run.
    pub run: RunId,
    /// The number of the step that goes over it.
    pub step: u32,
    /// The step, or element of one, whose task added it.
    pub by: (u32, Option<u32>),
    /// What the task calls it.
    pub batch: String,
}

/// What a job's row tells.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobRow {
    /// Which.
    pub job: JobId,
    /// Whether it is written for the first time.
    pub new: bool,
    /// What it was asked to be, where that was written.
    pub spec: Option<Arc<JobSpec>>,
    /// The schedule that it belongs to; with the spec.
    pub origin: Option<Arc<Origin>>,
    /// The step of a run that it belongs to; with the spec.
    #[serde(default)]
    pub step: Option<Arc<StepOrigin>>,
    /// Where it stands.
    pub status: JobStatus,
    /// Which version of it.
    pub version: u64,
    /// When it enters its queue next.
    pub due_at: Timestamp,
    /// Executions so far.
    pub executions: u32,
    /// Those that ran and failed.
    pub run_failures: u32,
    /// Those that could not be started.
    pub start_failures: u32,
    /// The newest fence.
    pub fence: Fence,
    /// Whether somebody asked to cancel it.
    pub cancel_requested: bool,
    /// The transitions that this row adds.
    pub steps: Vec<HistoryEntry>,
}

/// What an execution's row tells.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecutionRow {
    /// Which.
    pub execution: ExecutionId,
    /// Of which job.
    pub job: JobId,
    /// Whether it is written for the first time.
    pub new: bool,
    /// Which try.
    pub number: u32,
    /// Its fence.
    pub fence: Fence,
    /// Where.
    pub worker: WorkerId,
    /// Where it stands.
    pub status: ExecutionStatus,
    /// Engine time of its assignment.
    pub assigned_at: Timestamp,
    /// Whether it was heard to have started.
    pub started: bool,
    /// The exit code of its task.
    pub exit: Option<i32>,
}

/// What a schedule's row tells.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ScheduleRow {
    /// Which.
    pub schedule: ScheduleId,
    /// Whether it is written for the first time.
    pub new: bool,
    /// What it was asked to be, where that was written.
    pub spec: Option<Arc<ScheduleSpec>>,
    /// Which of its specs.
    pub generation: u64,
    /// Where it stands.
    pub status: ScheduleStatus,
    /// Up to where its instants are decided.
    pub cursor: Timestamp,
    /// Those before that are still to be made up for.
    #[serde(default)]
    pub owed: Vec<Gap>,
    /// When it was made, in engine time.
    pub created_at: Timestamp,
}

/// What the row of a workflow tells.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WorkflowRow {
    /// Which.
    pub workflow: WorkflowId,
    /// What it is, where that was written.
    pub spec: Option<Arc<WorkflowSpec>>,
    /// What each of its triggers has done.
    pub triggers: Vec<TriggerState>,
    /// Whether it was removed.
    #[serde(default)]
    pub removed: bool,
}

/// What the row of a run tells.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunRow {
    /// Which.
    pub run: RunId,
    /// Whether it is written for the first time.
    pub new: bool,
    /// What it does; with its first row.
    pub spec: Option<Arc<WorkflowSpec>>,
    /// The schedule that it belongs to; with the spec.
    pub origin: Option<Arc<Origin>>,
    /// The step that called it; with the spec.
    pub caller: Option<Caller>,
    /// The trigger that started it; with the spec.
    #[serde(default)]
    pub trigger: Option<Arc<RunTrigger>>,
    /// The runs that its end started.
    #[serde(default)]
    pub started: Vec<RunId>,
    /// Where it stands.
    pub status: RunStatus,
    /// Which version of it.
    pub version: u64,
    /// The transitions that this row adds.
    pub steps: Vec<RunHistoryEntry>,
}

/// What the row of a step, or of an element of one, tells.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepRow {
    /// Of which run.
    pub run: RunId,
    /// Its number.
    pub step: u32,
    /// Which element of it.
    pub item: Option<u32>,
    /// Where it stands.
    pub status: StepStatus,
    /// Why.
    pub cause: StepCause,
}

impl History {
    /// Writes it as JSON lines.
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

    /// Reads JSON lines.
    ///
    /// # Errors
    /// Those of `input`; and for a line that is no event, with its number.
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

    /// A number that two histories share only if they are the same.
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
                .expect("a hasher takes everything, and ids are no floats");
        }
        sink.0.finish()
    }
}
