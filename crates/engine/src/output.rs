//! What an engine decides: rows to commit, and effects to release once they are.

use std::sync::Arc;

use model::api::{ApplyChange, Reservation};
use model::calendar::CalendarRecord;
use model::firing::{FiringOutcome, Origin, ScheduleStatus, Work};
use model::queue::QueueSettings;
use model::record::{Batch, QueueRecord};
use model::run::{RunStatus, StepOrigin, StepStatus};
use model::validate::Problem;
use model::why::{RunWhy, StepWhy, Why};
use model::{
    BackfillId, Duration, ExecutionId, Fence, JobId, JobStatus, RunId, ScheduleId, Timestamp, WorkerId,
    WorkflowId,
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

/// A request that was not granted. Nothing was changed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// No live job has this id: it ended, or never was.
    #[error("{job} is not live: it has ended, or never was")]
    NotLive {
        /// Which.
        job: JobId,
    },
    /// Another execution speaks for the job by now, or none.
    #[error("{execution} is not the current execution of its job: it ended or was replaced, or never was")]
    NotCurrent {
        /// Which.
        execution: ExecutionId,
    },
    /// It has an execution, so its spec stays.
    #[error("{job} has started: only a job that has not started can be changed")]
    Started {
        /// Which.
        job: JobId,
    },
    /// Somebody changed it meanwhile.
    #[error("expected version {expected}, but it has version {found} by now")]
    VersionMismatch {
        /// What the request was based on.
        expected: u64,
        /// What there is.
        found: u64,
    },
    /// An idempotency key was used for something else.
    #[error("the idempotency key of jobs[{index}] was used for another submission, which made {job}")]
    KeyReused {
        /// Which of the submission's jobs.
        index: usize,
        /// What the key had made.
        job: JobId,
    },
    /// Two jobs of one submission have the same idempotency key and differ.
    #[error("the idempotency key of jobs[{index}] stands at another job of the same submission")]
    KeyRepeated {
        /// Which of the submission's jobs.
        index: usize,
    },
    /// No such worker.
    #[error("there is no worker {worker}")]
    NoWorker {
        /// Which.
        worker: WorkerId,
    },
    /// No such schedule.
    #[error("there is no schedule {schedule}")]
    NoSchedule {
        /// Which.
        schedule: ScheduleId,
    },
    /// It was to be new.
    #[error("there is a schedule `{name}` already: {schedule}")]
    ScheduleExists {
        /// Its name.
        name: Arc<str>,
        /// Which.
        schedule: ScheduleId,
    },
    /// A schedule's timing cannot be used.
    #[error("the timing of schedules[{index}] cannot be used")]
    BadTiming {
        /// Which of the request's schedules.
        index: usize,
        /// What is wrong, with paths relative to the schedule.
        problems: Vec<Problem>,
    },
    /// As many runs of the schedule are not over as may be.
    #[error(
        "schedule `{name}` has {runs} runs that are not over, and its overlap policy lets it have no more"
    )]
    RunsNotOver {
        /// Its name.
        name: Arc<str>,
        /// How many.
        runs: usize,
    },
    /// No such backfill is running.
    #[error("{backfill} is not running: it has ended, or never was")]
    NoBackfill {
        /// Which.
        backfill: BackfillId,
    },
    /// What is not decided yet, and what a running backfill does already, is no work for another.
    #[error(
        "nothing of this range is left to run{}",
        .running.map(|id| format!(": {id} is running and has it")).unwrap_or_default()
    )]
    NothingToBackfill {
        /// A running backfill that has some of it.
        running: Option<BackfillId>,
    },
    /// As many backfills are running as may be.
    #[error("{most} backfills are running already")]
    TooManyBackfills {
        /// How many.
        most: usize,
    },
    /// A calendar cannot be used.
    #[error("the calendar cannot be used")]
    BadCalendar {
        /// What is wrong.
        problems: Vec<Problem>,
    },
    /// No such calendar.
    #[error("there is no calendar `{name}` in namespace `{namespace}`")]
    NoCalendar {
        /// Of which namespace.
        namespace: Arc<str>,
        /// Which.
        name: Arc<str>,
    },
    /// Something names the calendar, so it stays.
    #[error("calendar `{name}` is in use by {user}")]
    CalendarInUse {
        /// Which.
        name: Arc<str>,
        /// One that names it, such as "schedule `nightly`".
        user: String,
    },
    /// No such workflow.
    #[error("there is no workflow {workflow}")]
    NoWorkflow {
        /// Which.
        workflow: WorkflowId,
    },
    /// It was to be new.
    #[error("there is a workflow `{name}` already: {workflow}")]
    WorkflowExists {
        /// Its name.
        name: Arc<str>,
        /// Which.
        workflow: WorkflowId,
    },
    /// Runs of it wait for their turn, which only it can give them.
    #[error("{count} runs of {workflow} wait for their turn, such as {run}: cancel them first")]
    RunsWaiting {
        /// Which.
        workflow: WorkflowId,
        /// The first of them.
        run: RunId,
        /// How many there are.
        count: usize,
    },
    /// As many runs wait for their turn as may.
    #[error("{most} runs of workflow `{name}` wait for their turn already")]
    TooManyRuns {
        /// Its name.
        name: Arc<str>,
        /// How many may.
        most: usize,
    },
    /// An idempotency key was used for something else.
    #[error("the idempotency key was used to start something else, which is {run}")]
    RunKeyReused {
        /// What the key had started.
        run: RunId,
    },
    /// A definition that cannot be run.
    #[error("the definition cannot be run: {reason}")]
    BadDefinition {
        /// Why.
        reason: String,
    },
    /// No live run has this id: it ended, or never was.
    #[error("{run} is not live: it has ended, or never was")]
    NoRun {
        /// Which.
        run: RunId,
    },
    /// The run is not going on.
    #[error("{run} is {status}: only a run that goes on can do this")]
    NotRunning {
        /// Which.
        run: RunId,
        /// Where it stands.
        status: RunStatus,
    },
    /// The run has no such step.
    #[error("{run} has no step `{step}`")]
    NoStep {
        /// Which run.
        run: RunId,
        /// The name that was asked for.
        step: Box<str>,
    },
    /// The task may not add elements there.
    #[error("{}", not_an_adder(.step.as_deref(), .may))]
    NotAnAdder {
        /// Where it was to; none if it did not say.
        step: Option<Box<str>>,
        /// Where it may.
        may: Vec<Arc<str>>,
    },
    /// A step has as many elements as it may.
    #[error("step `{step}` of {run} would have more than {most} elements")]
    ListFull {
        /// Of which run.
        run: RunId,
        /// Which.
        step: Box<str>,
        /// How many it may have.
        most: usize,
    },
    /// The step has ended.
    #[error("step `{step}` of {run} is {status} already")]
    StepOver {
        /// Of which run.
        run: RunId,
        /// Which.
        step: Box<str>,
        /// Where it stands.
        status: StepStatus,
    },
    /// A step cannot be marked as this.
    #[error("a step cannot be marked {status}: expected succeeded, failed or skipped")]
    NoMark {
        /// As what.
        status: StepStatus,
    },
    /// The step asks nobody for approval.
    #[error("step `{step}` of {run} is no approval")]
    NoApproval {
        /// Of which run.
        run: RunId,
        /// Which.
        step: Box<str>,
    },
    /// The step has not come to ask for approval.
    #[error("step `{step}` of {run} has not begun: nobody is asked yet")]
    NotAsked {
        /// Of which run.
        run: RunId,
        /// Which.
        step: Box<str>,
    },
    /// Somebody else is to approve.
    #[error("step `{step}` is approved or rejected by {}", .approvers.join(", "))]
    NotApprover {
        /// Which.
        step: Box<str>,
        /// Who may.
        approvers: Vec<String>,
    },
    /// No step waits for the event, or is to.
    #[error("no step of {run} waits for event `{event}`, or is still to")]
    NobodyWaits {
        /// Which run.
        run: RunId,
        /// The event.
        event: Box<str>,
    },
    /// An event brings too much.
    #[error("the payload has {found} bytes: expected at most {most}")]
    PayloadTooLarge {
        /// How many.
        found: usize,
        /// How many it may have.
        most: usize,
    },
    /// The queue has no settings.
    #[error("queue `{queue}` has no settings: it was never set up, or they were deleted")]
    NoQueue {
        /// Its name.
        queue: Box<str>,
    },
    /// The queue has jobs, so its settings stay.
    #[error("cannot delete queue `{queue}`: {waiting} jobs wait and {running} jobs run in it")]
    QueueInUse {
        /// Its name.
        queue: Box<str>,
        /// How many jobs wait.
        waiting: u64,
        /// How many jobs run.
        running: u32,
    },
    /// It is connected, so it cannot be removed.
    #[error("worker {worker} is connected: stop it first")]
    WorkerConnected {
        /// Which.
        worker: WorkerId,
    },
}

fn not_an_adder(step: Option<&str>, may: &[Arc<str>]) -> String {
    match (step, may) {
        (_, []) => {
            "no step goes over what this task adds: expected a workflow that names its step in `added_by`"
                .into()
        }
        (Some(step), may) => format!("this task does not add to step `{step}`: expected {}", may.join(", ")),
        (None, may) => format!("this task adds to more than one step: say which of {}", may.join(", ")),
    }
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
