//! What an engine is told: requests, workers' messages, and the passing of time.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::calendar::CalendarSpec;
use model::firing::{Origin, ScheduleHead};
use model::queue::QueueSettings;
use model::record::{JobHead, Outcome, Usage};
use model::run::{ElementBatch, StepRecord, StepStatus, WorkflowHead};
use model::schedule::OverlapPolicy;
use model::worker::{Admission, Capabilities, Capacity, Health};
use model::workflow::Definition;
use model::{BackfillId, ExecutionId, Fence, JobId, RunId, ScheduleId, Timestamp, WorkerId, WorkflowId};

/// Names a request that waits for its reply; given out by the driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// Names one connection of a worker; the driver never gives one out twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Session(pub u64);

/// Everything that an engine is told.
#[derive(Debug, Clone)]
pub enum Input {
    /// Creates jobs: all or none.
    Submit {
        /// Who waits.
        ticket: Ticket,
        /// At least one. Validated by the caller.
        jobs: Vec<NewJob>,
    },
    /// Replaces the spec of a job that has not started.
    Update {
        /// Who waits.
        ticket: Ticket,
        /// Which job.
        job: JobId,
        /// Its new spec. Namespace and idempotency key stay as they were.
        head: Arc<JobHead>,
        /// Refused if the job has another version by now.
        expected_version: Option<u64>,
        /// Who asked.
        actor: Arc<str>,
    },
    /// Ends a job that has not ended; a running one is stopped first.
    Cancel {
        /// Who waits.
        ticket: Ticket,
        /// Which job.
        job: JobId,
        /// Who asked.
        actor: Arc<str>,
        /// What they said about it.
        reason: Option<Box<str>>,
    },
    /// Asks why a job stands where it stands. Changes nothing.
    Why {
        /// Who waits.
        ticket: Ticket,
        /// Which job.
        job: JobId,
    },
    /// A worker opened a session.
    Join(Box<Join>),
    /// A worker lives.
    Beat {
        /// Which.
        worker: WorkerId,
        /// In which session.
        session: Session,
        /// The beat's number, for the grant that answers it.
        seq: u64,
        /// How its machine is.
        health: Health,
    },
    /// A worker's session closed. Says nothing about the worker: its lease does.
    Disconnect {
        /// Which.
        worker: WorkerId,
        /// Which session; an older one than the current changes nothing.
        session: Session,
    },
    /// A worker reports about an execution.
    Report {
        /// Which worker.
        worker: WorkerId,
        /// In which session; reports of older sessions are dropped, for they are repeated.
        session: Session,
        /// Which execution.
        execution: ExecutionId,
        /// Under which fence.
        fence: Fence,
        /// What.
        report: Report,
    },
    /// A running task asks for something, for its job.
    Task {
        /// Who waits; nobody where a report brought it.
        ticket: Option<Ticket>,
        /// Which execution.
        execution: ExecutionId,
        /// Under which fence.
        fence: Fence,
        /// What.
        request: Box<TaskRequest>,
    },
    /// Lets work be placed on a worker, or not.
    SetAdmission {
        /// Who waits.
        ticket: Ticket,
        /// Which worker.
        worker: WorkerId,
        /// What is let in.
        admission: Admission,
    },
    /// Forgets a lost worker.
    RemoveWorker {
        /// Who waits.
        ticket: Ticket,
        /// Which.
        worker: WorkerId,
    },
    /// Sets up a queue.
    SetQueue {
        /// Who waits.
        ticket: Ticket,
        /// Its name.
        name: String,
        /// How it lets jobs through. Validated by the caller.
        settings: QueueSettings,
        /// Refused if the queue has another version by now; 0 means that it was never set up.
        expected_version: Option<u64>,
    },
    /// Deletes the settings of a queue; refused while the queue has jobs.
    RemoveQueue {
        /// Who waits.
        ticket: Ticket,
        /// Its name.
        name: String,
    },
    /// Asks something of schedules, backfills and calendars.
    Schedule {
        /// Who waits.
        ticket: Ticket,
        /// What.
        request: Box<ScheduleRequest>,
        /// Who asked.
        actor: Arc<str>,
    },
    /// Asks something of workflows and their runs.
    Workflow {
        /// Who waits.
        ticket: Ticket,
        /// What.
        request: Box<WorkflowRequest>,
        /// Who asked.
        actor: Arc<str>,
    },
    /// Nothing but the passing of time.
    Tick,
}

/// What a running task asks for. Only the current execution of a job is heard.
#[derive(Debug, Clone)]
pub enum TaskRequest {
    /// Keeps this for the next execution of the job, instead of what was kept before.
    SaveCheckpoint {
        /// What the bytes are. Validated by the caller.
        content_type: Box<str>,
        /// The bytes. Their number is validated by the caller.
        data: Arc<[u8]>,
        /// Of both; what was saved last is not saved again.
        hash: u128,
        /// Refused if the last checkpoint has another version; 0 means that there is none.
        expected_version: Option<u64>,
    },
    /// Adds elements to a step of the run that the job belongs to.
    AddElements {
        /// The name of that step; none where there is only one that the task may add to.
        step: Option<Box<str>>,
        /// What the task calls them; the same name again adds nothing. Validated by the caller.
        batch: Box<str>,
        /// At least one. Their number and sizes are validated by the caller.
        elements: Vec<serde_json::Value>,
    },
}

/// What is asked of schedules, backfills and calendars.
#[derive(Debug, Clone)]
pub enum ScheduleRequest {
    /// Creates schedules or gives them new specs: all or none.
    Apply {
        /// At least one. Validated by the caller.
        schedules: Vec<NewSchedule>,
    },
    /// Skips the firings of a schedule until it is resumed. Its runs go on.
    Pause {
        /// Which.
        schedule: ScheduleId,
        /// Why, for people.
        note: Option<Box<str>>,
        /// Refused if it has another version by now.
        expected_version: Option<u64>,
    },
    /// Lets a paused schedule fire again. What was due meanwhile stays skipped.
    Resume {
        /// Which.
        schedule: ScheduleId,
        /// Refused if it has another version by now.
        expected_version: Option<u64>,
    },
    /// Forgets a schedule and cancels its backfills. Its runs go on; its ledger is kept for a while.
    Delete {
        /// Which.
        schedule: ScheduleId,
        /// Refused if it has another version by now.
        expected_version: Option<u64>,
    },
    /// Fires now, also while paused or completed.
    Trigger {
        /// Which.
        schedule: ScheduleId,
        /// Instead of the schedule's own overlap policy.
        overlap: Option<OverlapPolicy>,
        /// Why, for people.
        reason: Option<Box<str>>,
        /// A second trigger under the same key answers with the first one's job.
        key: Option<Key>,
    },
    /// Makes up for a past range.
    Backfill(Box<NewBackfill>),
    /// Starts no further run of a backfill.
    CancelBackfill {
        /// Which.
        backfill: BackfillId,
        /// Whether its runs are cancelled too.
        cancel_runs: bool,
    },
    /// Sets up a calendar.
    SetCalendar {
        /// What it is. Validated by the caller.
        spec: Box<CalendarSpec>,
        /// Refused if it has another version by now; 0 means that there is none.
        expected_version: Option<u64>,
    },
    /// Deletes a calendar that no schedule and no other calendar names.
    RemoveCalendar {
        /// Of which namespace.
        namespace: Arc<str>,
        /// Which.
        name: Arc<str>,
        /// Refused if it has another version by now.
        expected_version: Option<u64>,
    },
}

/// What is asked of workflows and their runs.
#[derive(Debug, Clone)]
pub enum WorkflowRequest {
    /// Creates workflows or gives them new specs: all or none. Runs are not touched.
    Apply {
        /// At least one. Validated by the caller.
        workflows: Vec<NewWorkflow>,
    },
    /// Forgets a workflow of which no run waits for its turn.
    Delete {
        /// Which.
        workflow: WorkflowId,
        /// Refused if it has another version by now.
        expected_version: Option<u64>,
    },
    /// Starts a run.
    Start(Box<NewRun>),
    /// Stops a run; `finally` still runs.
    Cancel {
        /// Which.
        run: RunId,
        /// Why, for people.
        reason: Option<Box<str>>,
        /// Whether `on_failure` and `finally` are left out, or stopped if they go on.
        skip_finally: bool,
    },
    /// Begins no further steps of a run until it is resumed.
    Pause {
        /// Which.
        run: RunId,
        /// Why, for people.
        note: Option<Box<str>>,
    },
    /// Lets a paused run go on.
    Resume {
        /// Which.
        run: RunId,
    },
    /// Decides what becomes of a step that has not ended.
    Mark {
        /// Of which run.
        run: RunId,
        /// Its name.
        step: Box<str>,
        /// `succeeded`, `failed` or `skipped`.
        status: StepStatus,
        /// Why, for people.
        note: Option<Box<str>>,
    },
    /// Approves or rejects a step that waits for it.
    Decide {
        /// Of which run.
        run: RunId,
        /// Its name.
        step: Box<str>,
        /// Whether it is approved.
        approve: bool,
        /// Why, for people.
        note: Option<Box<str>>,
    },
    /// Something happened that steps of a run may wait for.
    Event {
        /// Which run.
        run: RunId,
        /// The name of the event.
        event: Box<str>,
        /// What it brings, as JSON.
        payload: Arc<str>,
    },
    /// Asks why a step stands where it stands. Changes nothing.
    Why {
        /// Of which run.
        run: RunId,
        /// Its name.
        step: Box<str>,
    },
    /// Asks why the steps of a run that have not ended stand where they stand. Changes nothing.
    WhyRun {
        /// Which run.
        run: RunId,
        /// The most steps that are told of.
        most: usize,
    },
}

/// A workflow to create or to change.
#[derive(Debug, Clone)]
pub struct NewWorkflow {
    /// What it is asked to be.
    pub head: Arc<WorkflowHead>,
    /// Refused if this does not hold.
    pub expected: Expected,
}

/// A run to start.
#[derive(Debug, Clone)]
pub struct NewRun {
    /// Of which workflow; of none where its definition was given with the request, and is kept nowhere else.
    pub workflow: Option<WorkflowId>,
    /// Which generation of it; zero where there is none.
    pub generation: u64,
    /// What it does: the spec of that generation, with those that it calls. Validated by the caller.
    pub definition: Arc<Definition>,
    /// The definition [as JSON](Definition::to_json).
    pub body: Arc<str>,
    /// Its parameters, [complete](model::workflow::complete).
    pub parameters: Arc<serde_json::Map<String, serde_json::Value>>,
    /// The priority of its jobs, instead of what their specs say.
    pub priority: Option<u8>,
    /// Why, for people.
    pub note: Option<Box<str>>,
    /// The ended run that it tries again.
    pub retry_of: Option<RunId>,
    /// What it takes over from that one.
    pub carried: Takeover,
    /// The firing that it belongs to, where it tries a run of a schedule again.
    pub origin: Option<Arc<Origin>>,
    /// A second start under the same key answers with the first one's run.
    pub key: Option<Key>,
}

/// What a run takes over from the one that it tries again.
#[derive(Debug, Clone, Default)]
pub struct Takeover {
    /// Steps and elements that are not done again.
    pub records: Vec<StepRecord>,
    /// What tasks that are not done again added to steps that are; those of a step by their places.
    pub batches: Vec<ElementBatch>,
}

/// A schedule to create or to change.
#[derive(Debug, Clone)]
pub struct NewSchedule {
    /// What it is asked to be.
    pub head: Arc<ScheduleHead>,
    /// Refused if this does not hold.
    pub expected: Expected,
}

/// What a request about a named thing expects to find.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    /// Whatever there is.
    Any,
    /// Nothing.
    Absent,
    /// This version.
    Version(u64),
}

/// A past range of a schedule to make up for.
#[derive(Debug, Clone)]
pub struct NewBackfill {
    /// Of which schedule.
    pub schedule: ScheduleId,
    /// Its nominal instants with the one before each, in the order in which they are to run; at least
    /// one. Computed by the caller.
    pub instants: Arc<[(Timestamp, Option<Timestamp>)]>,
    /// From when on, inclusive.
    pub from: Timestamp,
    /// Until when, inclusive.
    pub until: Timestamp,
    /// How many of its runs there may be at once; at least 1.
    pub concurrency: u32,
    /// The priority of its jobs.
    pub priority: u8,
    /// `buffer_all` waits for other runs of the schedule as its limit says; `allow_all` does not.
    pub overlap: OverlapPolicy,
    /// Why, for people.
    pub note: Option<Box<str>>,
}

/// A job to create.
#[derive(Debug, Clone)]
pub struct NewJob {
    /// What it is asked to be.
    pub head: Arc<JobHead>,
    /// Its idempotency key, hashed by the caller.
    pub key: Option<Key>,
    /// Who asked.
    pub actor: Arc<str>,
}

/// An idempotency key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key {
    /// Hash of the namespace and the key.
    pub key: u128,
    /// Hash of what was submitted.
    pub body: u128,
}

/// What a worker says of itself when it opens a session.
#[derive(Debug, Clone)]
pub struct Join {
    /// Which worker.
    pub worker: WorkerId,
    /// The new session.
    pub session: Session,
    /// What people call it.
    pub name: String,
    /// The version of its agent.
    pub version: String,
    /// What constraints are matched against.
    pub labels: BTreeMap<String, String>,
    /// What it has.
    pub capacity: Capacity,
    /// What it can.
    pub capabilities: Capabilities,
    /// The executions that its journal has and that are not forgotten.
    pub held: Vec<Held>,
}

/// An execution that a worker's journal has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Held {
    /// Which.
    pub execution: ExecutionId,
    /// Under which fence.
    pub fence: Fence,
    /// False once only its report waits.
    pub running: bool,
    /// Of which job, if the worker still knows.
    pub job: Option<JobId>,
}

/// What a worker reports about an execution.
#[derive(Debug, Clone, PartialEq)]
pub enum Report {
    /// It started.
    Started,
    /// It was not started and never will be under this fence.
    Refused {
        /// Why.
        reason: Box<str>,
    },
    /// It could not be started; nothing of the task ran.
    StartFailed {
        /// A stable word and a line for people.
        outcome: Outcome,
    },
    /// It ended.
    Finished {
        /// How.
        how: How,
        /// With what.
        outcome: Outcome,
        /// What it used.
        usage: Usage,
    },
}

/// How an execution ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// By itself, well.
    Succeeded,
    /// By itself, badly; or killed by its memory limit.
    Failed,
    /// Stopped because the server asked.
    Stopped,
    /// Killed by its run timeout.
    TimedOut,
    /// It went down with its supervisor or machine, by no fault of its own.
    Interrupted,
}
