//! What an engine decides: rows to commit, and effects to release once they are.

use std::sync::Arc;

use model::api::{ApplyChange, Reservation};
use model::calendar::CalendarRecord;
use model::firing::{FiringOutcome, Origin, ScheduleStatus, Work};
use model::queue::QueueSettings;
use model::record::{Batch, QueueRecord};
use model::run::{RunStatus, StepOrigin, StepStatus};
use model::why::{RunWhy, StepWhy, Why};
use model::{
    BackfillId, Duration, ExecutionId, Fence, JobId, JobStatus, Refusal, RunId, ScheduleId, Timestamp,
    WorkerId, WorkflowId,
};

use crate::clock::ClockView;
use crate::input::{Session, Ticket};

/// What came of a number of inputs.
#[derive(Debug, Default)]
pub struct Output {
    /// What is to be made durable.
    pub batch: Batch,
    /// What is to be done once it is, in order.
    pub effects: Vec<Effect>,
}

/// Something that the world hears of, after the commit of its batch and not before.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Answers a request.
    Reply {
        /// Which.
        ticket: Ticket,
        /// With what.
        reply: Result<Reply, Refusal>,
    },
    /// Accepts a worker's session. Comes before everything else in it.
    Welcome {
        /// Which worker.
        worker: WorkerId,
        /// Which session.
        session: Session,
        /// How often it is to beat.
        heartbeat_interval: Duration,
        /// How long it may go on after a beat that nobody answered.
        lease: Duration,
    },
    /// Answers a beat. The one effect that may be released before its batch's commit.
    Grant {
        /// Which worker.
        worker: WorkerId,
        /// Which session.
        session: Session,
        /// Which beat.
        seq: u64,
        /// From the sending of the beat on; zero if the session is unknown and must be opened anew.
        lease: Duration,
    },
    /// Gives an execution to a worker.
    Assign {
        /// Which worker.
        worker: WorkerId,
        /// In which session.
        session: Session,
        /// What.
        assignment: Assignment,
    },
    /// Ends an execution on a worker.
    Stop {
        /// Which worker.
        worker: WorkerId,
        /// In which session.
        session: Session,
        /// Which execution.
        execution: ExecutionId,
        /// Under which fence.
        fence: Fence,
        /// Between SIGTERM and SIGKILL; zero kills at once.
        grace: Duration,
        /// Whether its outcome is no longer of interest.
        discard: bool,
    },
    /// Acknowledges a report.
    Ack {
        /// Which worker.
        worker: WorkerId,
        /// In which session.
        session: Session,
        /// Which execution.
        execution: ExecutionId,
        /// Under which fence.
        fence: Fence,
        /// Whether the worker may forget the execution.
        last: bool,
    },
}

/// An execution as a worker gets it.
#[derive(Debug, Clone, PartialEq)]
pub struct Assignment {
    /// Which execution.
    pub execution: ExecutionId,
    /// Of which job.
    pub job: JobId,
    /// Its fence.
    pub fence: Fence,
    /// Which try, from 1.
    pub number: u32,
    /// The job's spec as JSON.
    pub body: Arc<str>,
    /// The schedule that the job belongs to.
    pub origin: Option<Arc<Origin>>,
    /// The run and step that the job belongs to.
    pub step: Option<Arc<StepOrigin>>,
    /// The version of the checkpoint that it goes on from.
    pub checkpoint: Option<u64>,
}

/// A request that was granted.
#[derive(Debug, Clone, PartialEq)]
pub enum Reply {
    /// The jobs, in the order of the submission.
    Submitted(Vec<Submitted>),
    /// The job was changed and has this version now.
    Updated {
        /// The new version.
        version: u64,
    },
    /// The job is cancelled, or will be once its execution has stopped.
    Cancelling {
        /// Where it stands now: `cancelled`, or `running` while it is being stopped.
        status: JobStatus,
        /// The new version.
        version: u64,
    },
    /// The checkpoint is saved.
    CheckpointSaved {
        /// Its version: that of the last one where it is the same.
        version: u64,
    },
    /// The elements are there.
    ElementsAdded(Added),
    /// Why a job stands where it stands.
    Why(Box<Why>),
    /// The worker was changed or removed.
    Worker,
    /// The queue as it is now.
    Queue(Arc<QueueRecord>),
    /// The settings of a queue are deleted.
    QueueRemoved,
    /// The schedules, in the order of the request.
    Applied(Vec<Applied>),
    /// The schedule was paused, resumed or deleted.
    Schedule {
        /// Where it stands now.
        status: ScheduleStatus,
        /// Its version now.
        version: u64,
    },
    /// A schedule was triggered.
    Triggered {
        /// What became of it: fired, buffered, or skipped by its overlap policy.
        outcome: FiringOutcome,
        /// The job or the run that it created.
        work: Option<Work>,
        /// The instant that it is recorded under.
        scheduled_for: Timestamp,
    },
    /// The backfill was begun, or cancelled.
    Backfill {
        /// Which.
        backfill: BackfillId,
    },
    /// The calendar as it is now.
    Calendar(Arc<CalendarRecord>),
    /// The calendar was deleted.
    CalendarRemoved,
    /// The workflows, in the order of the request.
    AppliedWorkflows(Vec<AppliedWorkflow>),
    /// The workflow was deleted.
    WorkflowDeleted,
    /// A run was started; it goes on, or waits for its turn.
    RunStarted {
        /// Which.
        run: RunId,
        /// False where its idempotency key had been used for the same.
        new: bool,
    },
    /// A run was changed.
    Run {
        /// Where it stands now.
        status: RunStatus,
        /// Its version now.
        version: u64,
    },
    /// A step was changed.
    Step {
        /// Where it stands now: `running` while what goes on of it is being stopped.
        status: StepStatus,
        /// The version of its run now.
        version: u64,
    },
    /// An event was taken.
    EventTaken {
        /// How many steps it was for.
        steps: usize,
    },
    /// Why a step stands where it stands.
    StepWhy(Box<StepWhy>),
    /// Why the steps of a run stand where they stand.
    RunWhy(Box<RunWhy>),
}

/// What came of applying a schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Applied {
    /// Which.
    pub schedule: ScheduleId,
    /// What was done.
    pub change: ApplyChange,
    /// Its generation now.
    pub generation: u64,
    /// Its version now.
    pub version: u64,
    /// When it fires next by itself; none if it never does, or not until a run of it ends.
    pub next_at: Option<Timestamp>,
}

/// What came of applying a workflow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AppliedWorkflow {
    /// Which.
    pub workflow: WorkflowId,
    /// What was done.
    pub change: ApplyChange,
    /// Its generation now.
    pub generation: u64,
    /// Its version now.
    pub version: u64,
}

/// A job that a submission made, or had made before under the same key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Submitted {
    /// Which.
    pub job: JobId,
    /// False where its idempotency key had been used for the same submission.
    pub new: bool,
}

/// What a task added.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Added {
    /// The name of the step that goes over it.
    pub step: Arc<str>,
    /// The number of its first element in the step's list.
    pub first: u32,
    /// How many elements it has.
    pub count: u32,
    /// How many the step has by now.
    pub total: u32,
    /// Whether it was added now; false if it was there already, as it is now.
    pub new: bool,
}

/// What is going on now, for metrics and for lists that show rates; nothing is decided by it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct View {
    /// Live jobs by status: ready, waiting, running, retrying.
    pub live: std::collections::BTreeMap<JobStatus, u64>,
    /// Every queue that has jobs or was set up.
    pub queues: Vec<QueueView>,
    /// Every worker.
    pub workers: Vec<WorkerView>,
    /// Schedules by status.
    pub schedules: std::collections::BTreeMap<ScheduleStatus, u64>,
    /// Instants of schedules that were decided since the engine began, by outcome.
    pub firings: std::collections::BTreeMap<FiringOutcome, u64>,
    /// How engine time and the wall clock stand to each other.
    pub clock: ClockView,
    /// What expired before this may be deleted; the beginning of time before the engine began.
    pub purge_before: Timestamp,
}

/// A queue now.
#[derive(Debug, Clone, PartialEq)]
pub struct QueueView {
    /// Its name.
    pub name: String,
    /// How it lets jobs through.
    pub settings: QueueSettings,
    /// The version of its settings; 0 if nobody set it up.
    pub version: u64,
    /// Jobs that wait in it.
    pub waiting: u64,
    /// Jobs of it that run.
    pub running: u64,
    /// When the job that waits longest entered it.
    pub oldest: Option<Timestamp>,
}

/// A worker now.
#[derive(Debug, Clone, PartialEq)]
pub struct WorkerView {
    /// Which.
    pub id: WorkerId,
    /// Whether it is there.
    pub status: model::worker::WorkerStatus,
    /// Executions that it has.
    pub running: u32,
    /// What they have set aside of its CPU.
    pub cpu_reserved: model::Millicores,
    /// What they have set aside of its memory.
    pub memory_reserved: model::Bytes,
    /// What they have set aside of its custom resources.
    pub custom_reserved: std::collections::BTreeMap<String, u64>,
    /// Room that is kept on it for schedules.
    pub reservations: Vec<Reservation>,
    /// How its machine is; unknown until its first beat.
    pub health: Option<model::worker::Health>,
    /// When it was last heard.
    pub heard_at: Option<Timestamp>,
}
