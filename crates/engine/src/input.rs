//! Inputs of an engine: requests, messages of workers, and the passing of time.
//!
//! The driver creates them: the server from REST and gRPC requests, the simulator from its model of clients
//! and workers. [`Engine::handle`](crate::Engine::handle) processes them. Requests carry a [`Ticket`] and get
//! exactly one [`Effect::Reply`](crate::Effect::Reply) with it; messages of workers carry a [`Session`].
//!
//! # Invariants
//! - Specs, sizes and hashes are validated or computed by the caller; the engine checks only what depends on
//!   its state (versions, limits, fences).
//! - A refused request changes nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::calendar::CalendarSpec;
use model::firing::{Origin, ScheduleHead};
use model::namespace::NamespaceSettings;
use model::queue::QueueSettings;
use model::record::{JobHead, Outcome, Usage};
use model::run::{ElementBatch, StepRecord, StepStatus, WorkflowHead};
use model::schedule::OverlapPolicy;
use model::service::ScalingMetric;
use model::spec::HealthStatus;
use model::worker::{Admission, Capabilities, Capacity, Health};
use model::workflow::Definition;
use model::{
    BackfillId, ExecutionId, Fence, JobId, JobStatus, RunId, ScheduleId, ServiceId, ServiceSpec, Timestamp,
    WorkerId, WorkflowId,
};

/// Identifies a request that waits for its reply; assigned by the driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// Identifies one connection of a worker; the driver never assigns one twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Session(pub u64);

/// Everything that an engine processes.
#[derive(Debug, Clone)]
pub enum Input {
    /// Creates jobs: all or none.
    Submit {
        /// Ticket for the reply.
        ticket: Ticket,
        /// At least one. Validated by the caller.
        jobs: Vec<NewJob>,
    },
    /// Replaces the spec of a job that has not started.
    Update {
        /// Ticket for the reply.
        ticket: Ticket,
        /// The job to change.
        job: JobId,
        /// The new spec. Namespace and idempotency key do not change.
        head: Arc<JobHead>,
        /// Expected version of the job; the request is refused if the job has another version.
        expected_version: Option<u64>,
        /// User who sent the request.
        actor: Arc<str>,
    },
    /// Ends a job that has not ended. A running job is stopped first.
    Cancel {
        /// Ticket for the reply.
        ticket: Ticket,
        /// The job to cancel.
        job: JobId,
        /// User who sent the request.
        actor: Arc<str>,
        /// Reason that the user gave.
        reason: Option<Box<str>>,
    },
    /// Requests the waiting reasons of a job. Changes nothing.
    Why {
        /// Ticket for the reply.
        ticket: Ticket,
        /// The job to explain.
        job: JobId,
    },
    /// A worker opened a session.
    Join(Box<Join>),
    /// A heartbeat of a worker.
    Heartbeat {
        /// The worker that sent the heartbeat.
        worker: WorkerId,
        /// Session of the worker.
        session: Session,
        /// Number of the heartbeat, repeated in the grant that answers it.
        seq: u64,
        /// Health of the machine.
        health: Health,
    },
    /// A session of a worker closed. The worker is not lost by this; only the end of its lease decides that.
    Disconnect {
        /// The worker whose session closed.
        worker: WorkerId,
        /// The closed session; ignored if it is older than the current one.
        session: Session,
    },
    /// A worker reports about an execution.
    Report {
        /// The worker that reports.
        worker: WorkerId,
        /// Session of the worker. Reports of older sessions are dropped, because the worker repeats them in
        /// the new session.
        session: Session,
        /// The reported execution.
        execution: ExecutionId,
        /// Fence of the execution.
        fence: Fence,
        /// Content of the report.
        report: Report,
    },
    /// A request of a running task on behalf of its job.
    Task {
        /// Ticket for the reply; `None` if the request arrived with a worker's report.
        ticket: Option<Ticket>,
        /// The execution that sent the request.
        execution: ExecutionId,
        /// Fence of the execution.
        fence: Fence,
        /// The request.
        request: Box<TaskRequest>,
    },
    /// Allows or prevents placement on a worker: cordon, drain, or reopen.
    SetAdmission {
        /// Ticket for the reply.
        ticket: Ticket,
        /// The worker to change.
        worker: WorkerId,
        /// The new admission.
        admission: Admission,
    },
    /// Removes a lost worker.
    RemoveWorker {
        /// Ticket for the reply.
        ticket: Ticket,
        /// The worker to remove.
        worker: WorkerId,
    },
    /// Creates or replaces the settings of a queue.
    SetQueue {
        /// Ticket for the reply.
        ticket: Ticket,
        /// Name of the queue.
        name: String,
        /// The new settings: limits, rate, weights. Validated by the caller.
        settings: QueueSettings,
        /// Expected version; the request is refused if the queue has another version. 0 means that the queue
        /// has no settings.
        expected_version: Option<u64>,
    },
    /// Deletes the settings of a queue. Refused while the queue has jobs.
    RemoveQueue {
        /// Ticket for the reply.
        ticket: Ticket,
        /// Name of the queue.
        name: String,
    },
    /// Creates or replaces the settings of a namespace.
    SetNamespace {
        /// Ticket for the reply.
        ticket: Ticket,
        /// Name of the namespace.
        name: String,
        /// The new settings: quota and highest priority class. Validated by the caller.
        settings: NamespaceSettings,
        /// Expected version; the request is refused if the namespace has another version. 0 means that the namespace
        /// has no settings.
        expected_version: Option<u64>,
    },
    /// Deletes the settings of a namespace: its jobs have no limits then.
    RemoveNamespace {
        /// Ticket for the reply.
        ticket: Ticket,
        /// Name of the namespace.
        name: String,
    },
    /// A request about schedules, backfills or calendars.
    Schedule {
        /// Ticket for the reply.
        ticket: Ticket,
        /// The request.
        request: Box<ScheduleRequest>,
        /// User who sent the request.
        actor: Arc<str>,
    },
    /// A request about workflows or their runs.
    Workflow {
        /// Ticket for the reply.
        ticket: Ticket,
        /// The request.
        request: Box<WorkflowRequest>,
        /// User who sent the request.
        actor: Arc<str>,
    },
    /// A request about services.
    Service {
        /// Ticket for the reply.
        ticket: Ticket,
        /// The request.
        request: Box<ServiceRequest>,
        /// User who sent the request.
        actor: Arc<str>,
    },
    /// A worker reported the health of executions.
    Health {
        /// The worker.
        worker: WorkerId,
        /// Session of the worker.
        session: Session,
        /// The executions whose health has changed.
        reports: Vec<HealthReport>,
    },
    /// The server read metrics that scale services: of other systems, or measurements of workers.
    Metrics {
        /// Values of the metrics.
        readings: Vec<MetricReading>,
    },
    /// Advances time without a request or a message.
    Tick,
}

/// Value of a metric that scales a service.
#[derive(Debug, Clone, PartialEq)]
pub struct MetricReading {
    /// The service.
    pub service: ServiceId,
    /// The metric; never a queue, which the engine counts itself.
    pub metric: ScalingMetric,
    /// Value of the metric, or why there is none.
    pub value: Result<f64, Arc<str>>,
}

/// Health of an execution, as its worker reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HealthReport {
    /// ID of the execution.
    pub execution: ExecutionId,
    /// Fence of the execution.
    pub fence: Fence,
    /// Result of the health checks.
    pub status: HealthStatus,
    /// Result of the last failed check, in one line.
    pub detail: Option<Box<str>>,
    /// Numbers of the ports of the execution, by name.
    pub ports: BTreeMap<String, u16>,
}

/// A request about services.
#[derive(Debug, Clone)]
pub enum ServiceRequest {
    /// Creates services or replaces their specs: all or none.
    Apply {
        /// At least one. Validated by the caller.
        services: Vec<NewService>,
    },
    /// Deletes a service: its replicas are stopped, and then its row is deleted.
    Delete {
        /// The service to delete.
        service: ServiceId,
        /// Expected version; the request is refused if the service has another version.
        expected_version: Option<u64>,
    },
    /// Changes the desired number of replicas.
    Scale {
        /// The service to scale.
        service: ServiceId,
        /// Desired number of replicas. Validated by the caller.
        replicas: u32,
        /// Expected version; the request is refused if the service has another version.
        expected_version: Option<u64>,
    },
    /// Replaces all replicas by new ones with the same template.
    Restart {
        /// The service to restart.
        service: ServiceId,
    },
    /// Returns to the template of an earlier revision.
    Rollback {
        /// The service to change.
        service: ServiceId,
        /// Number of the revision [default: the last one that was rolled out completely, before the current one].
        revision: Option<u64>,
    },
    /// Pauses the rollout: no replica of an older revision is replaced until it is resumed.
    PauseRollout {
        /// The service.
        service: ServiceId,
    },
    /// Resumes a paused rollout.
    ResumeRollout {
        /// The service.
        service: ServiceId,
    },
    /// Promotes the canaries: the rollout replaces the other replicas.
    PromoteRollout {
        /// The service.
        service: ServiceId,
    },
}

/// A service to create or change.
#[derive(Debug, Clone)]
pub struct NewService {
    /// The spec, with the fields that jobs take from the service.
    pub spec: Arc<ServiceSpec>,
    /// The spec as JSON.
    pub body: Arc<str>,
    /// Condition on the current state of the service.
    pub expected: Expected,
}

/// A request of a running task. Refused unless it comes from the current execution of the job.
#[derive(Debug, Clone)]
pub enum TaskRequest {
    /// Saves a checkpoint for the next execution of the job; replaces the previous checkpoint.
    SaveCheckpoint {
        /// Media type of the data. Validated by the caller.
        content_type: Box<str>,
        /// The data. Its size is validated by the caller.
        data: Arc<[u8]>,
        /// Hash of content type and data. If it equals the hash of the last checkpoint, nothing is saved.
        hash: u128,
        /// Expected version; the request is refused if the last checkpoint has another version. 0 means that
        /// there is none.
        expected_version: Option<u64>,
    },
    /// Adds elements to a step of the run that the job belongs to.
    AddElements {
        /// Name of the step; `None` if the task may add to one step only.
        step: Option<Box<str>>,
        /// Name of the batch within the task; a repeated name adds nothing. Validated by the caller.
        batch: Box<str>,
        /// The elements, at least one. Their number and sizes are validated by the caller.
        elements: Vec<serde_json::Value>,
    },
}

/// A request about schedules, backfills or calendars.
#[derive(Debug, Clone)]
pub enum ScheduleRequest {
    /// Creates schedules or replaces their specs: all or none.
    Apply {
        /// At least one. Validated by the caller.
        schedules: Vec<NewSchedule>,
    },
    /// Pauses a schedule: its firings are skipped until it is resumed. Its runs continue.
    Pause {
        /// The schedule to pause.
        schedule: ScheduleId,
        /// Reason, shown to users.
        note: Option<Box<str>>,
        /// Expected version; the request is refused if the schedule has another version.
        expected_version: Option<u64>,
    },
    /// Resumes a paused schedule. Firings during the pause stay skipped.
    Resume {
        /// The schedule to resume.
        schedule: ScheduleId,
        /// Expected version; the request is refused if the schedule has another version.
        expected_version: Option<u64>,
    },
    /// Deletes a schedule and cancels its backfills. Its runs continue; its ledger is kept for the retention
    /// period.
    Delete {
        /// The schedule to delete.
        schedule: ScheduleId,
        /// Expected version; the request is refused if the schedule has another version.
        expected_version: Option<u64>,
    },
    /// Triggers a schedule now, also while it is paused or completed.
    Trigger {
        /// The schedule to trigger.
        schedule: ScheduleId,
        /// Overlap policy for this firing [default: the policy of the schedule].
        overlap: Option<OverlapPolicy>,
        /// Reason, shown to users.
        reason: Option<Box<str>>,
        /// Idempotency key: a second trigger with the same key returns the job of the first.
        key: Option<Key>,
    },
    /// Starts a backfill of a past range.
    Backfill(Box<NewBackfill>),
    /// Cancels a backfill: it starts no further runs.
    CancelBackfill {
        /// The backfill to cancel.
        backfill: BackfillId,
        /// Whether the runs of the backfill are cancelled too.
        cancel_runs: bool,
    },
    /// Creates or replaces a calendar.
    SetCalendar {
        /// The new spec. Validated by the caller.
        spec: Box<CalendarSpec>,
        /// Expected version; the request is refused if the calendar has another version. 0 means that there
        /// is none.
        expected_version: Option<u64>,
    },
    /// Deletes a calendar. Refused while a schedule or another calendar names it.
    RemoveCalendar {
        /// Namespace of the calendar.
        namespace: Arc<str>,
        /// Name of the calendar.
        name: Arc<str>,
        /// Expected version; the request is refused if the calendar has another version.
        expected_version: Option<u64>,
    },
}

/// A request about workflows or their runs.
#[derive(Debug, Clone)]
pub enum WorkflowRequest {
    /// Creates workflows or replaces their specs: all or none. Existing runs do not change.
    Apply {
        /// At least one. Validated by the caller.
        workflows: Vec<NewWorkflow>,
    },
    /// Deletes a workflow. Refused while runs of it are queued.
    Delete {
        /// The workflow to delete.
        workflow: WorkflowId,
        /// Expected version; the request is refused if the workflow has another version.
        expected_version: Option<u64>,
    },
    /// Starts a run.
    Start(Box<NewRun>),
    /// Cancels a run; its `finally` section still runs.
    Cancel {
        /// The run to cancel.
        run: RunId,
        /// Reason, shown to users.
        reason: Option<Box<str>>,
        /// Whether `on_failure` and `finally` are skipped, or stopped if they are running.
        skip_finally: bool,
    },
    /// Pauses a run: no further steps start until it is resumed.
    Pause {
        /// The run to pause.
        run: RunId,
        /// Reason, shown to users.
        note: Option<Box<str>>,
    },
    /// Resumes a paused run.
    Resume {
        /// The run to resume.
        run: RunId,
    },
    /// Sets the outcome of a step that has not ended.
    Mark {
        /// Run of the step.
        run: RunId,
        /// Name of the step.
        step: Box<str>,
        /// The outcome: `succeeded`, `failed` or `skipped`.
        status: StepStatus,
        /// Reason, shown to users.
        note: Option<Box<str>>,
    },
    /// Approves or rejects a step that waits for an approval.
    Decide {
        /// Run of the step.
        run: RunId,
        /// Name of the step.
        step: Box<str>,
        /// Whether the step is approved.
        approve: bool,
        /// Reason, shown to users.
        note: Option<Box<str>>,
    },
    /// An event that steps of a run may wait for.
    Event {
        /// The run that receives the event.
        run: RunId,
        /// Name of the event.
        event: Box<str>,
        /// Payload as JSON.
        payload: Arc<str>,
    },
    /// Requests the waiting reasons of a step. Changes nothing.
    Why {
        /// Run of the step.
        run: RunId,
        /// Name of the step.
        step: Box<str>,
    },
    /// Requests the waiting reasons of all steps of a run that have not ended. Changes nothing.
    WhyRun {
        /// The run to explain.
        run: RunId,
        /// Maximum number of explained steps.
        most: usize,
    },
}

/// A workflow to create or change.
#[derive(Debug, Clone)]
pub struct NewWorkflow {
    /// Spec and namespace of the workflow.
    pub head: Arc<WorkflowHead>,
    /// Expected state; the request is refused if it does not hold.
    pub expected: Expected,
}

/// Request to start a run.
#[derive(Debug, Clone)]
pub struct NewRun {
    /// Workflow of the run; `None` if the request contained the definition, which is then stored only in the
    /// run.
    pub workflow: Option<WorkflowId>,
    /// Generation of the workflow; 0 if there is no workflow.
    pub generation: u64,
    /// Spec of that generation, with the workflows that it calls. Validated by the caller.
    pub definition: Arc<Definition>,
    /// The definition [as JSON](Definition::to_json).
    pub body: Arc<str>,
    /// Parameters of the run, [with all defaults](model::workflow::complete).
    pub parameters: Arc<serde_json::Map<String, serde_json::Value>>,
    /// Priority of the run's jobs [default: the priority in their specs].
    pub priority: Option<u8>,
    /// Reason, shown to users.
    pub note: Option<Box<str>>,
    /// The ended run that this run retries.
    pub retry_of: Option<RunId>,
    /// Results carried over from the retried run.
    pub carried: CarriedResults,
    /// Firing that the run belongs to; set when it retries a run of a schedule.
    pub origin: Option<Arc<Origin>>,
    /// Idempotency key: a second start with the same key returns the run of the first.
    pub key: Option<Key>,
}

/// Results that a run carries over from the run that it retries.
#[derive(Debug, Clone, Default)]
pub struct CarriedResults {
    /// Records of steps and elements that are not run again.
    pub records: Vec<StepRecord>,
    /// Batches that tasks which are not run again added to steps which are; sorted by position within a step.
    pub batches: Vec<ElementBatch>,
}

/// A schedule to create or change.
#[derive(Debug, Clone)]
pub struct NewSchedule {
    /// Spec and namespace of the schedule.
    pub head: Arc<ScheduleHead>,
    /// Expected state; the request is refused if it does not hold.
    pub expected: Expected,
}

/// Expected state of a named object before a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    /// Any state.
    Any,
    /// The object must not exist.
    Absent,
    /// The object must exist with this version.
    Version(u64),
}

/// Request to start a backfill of a past range.
#[derive(Debug, Clone)]
pub struct NewBackfill {
    /// Schedule to backfill.
    pub schedule: ScheduleId,
    /// Scheduled times in the order of their runs, each with the scheduled time before it; at least one.
    /// Computed by the caller.
    pub scheduled_times: Arc<[(Timestamp, Option<Timestamp>)]>,
    /// Start of the range, inclusive.
    pub from: Timestamp,
    /// End of the range, inclusive.
    pub until: Timestamp,
    /// Maximum number of concurrent runs of the backfill; at least 1.
    pub concurrency: u32,
    /// Priority of the backfill's jobs.
    pub priority: u8,
    /// Overlap policy: `buffer_all` respects the schedule's limit of concurrent runs; `allow_all` ignores it.
    pub overlap: OverlapPolicy,
    /// Reason, shown to users.
    pub note: Option<Box<str>>,
}

/// A job to create.
#[derive(Debug, Clone)]
pub struct NewJob {
    /// Spec and namespace of the job.
    pub head: Arc<JobHead>,
    /// Idempotency key, hashed by the caller.
    pub key: Option<Key>,
    /// User who sent the request.
    pub actor: Arc<str>,
    /// Final statuses of upstream jobs that had ended when the caller read them. The engine has live jobs only.
    pub ended: Vec<(JobId, JobStatus)>,
}

/// Hashed idempotency key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key {
    /// Hash of the namespace and the key.
    pub key: u128,
    /// Hash of the request, to detect a reused key.
    pub body: u128,
}

/// Hello message of a worker that opens a session.
#[derive(Debug, Clone)]
pub struct Join {
    /// ID of the worker.
    pub worker: WorkerId,
    /// ID of the new session.
    pub session: Session,
    /// Display name of the worker.
    pub name: String,
    /// Version of the worker's agent.
    pub version: String,
    /// Host name or IP address under which its tasks can be reached.
    pub address: Option<String>,
    /// Labels that constraints are matched against.
    pub labels: BTreeMap<String, String>,
    /// Resources and slots.
    pub capacity: Capacity,
    /// Supported runtimes and enforceable limits.
    pub capabilities: Capabilities,
    /// Executions in the worker's journal that the server has not acknowledged as ended.
    pub held: Vec<Held>,
}

/// An execution in a worker's journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Held {
    /// ID of the execution.
    pub execution: ExecutionId,
    /// Fence of the execution.
    pub fence: Fence,
    /// Whether it is running; false once only its report is pending.
    pub running: bool,
    /// Job of the execution, if the worker knows it.
    pub job: Option<JobId>,
}

/// Report of a worker about an execution.
#[derive(Debug, Clone, PartialEq)]
pub enum Report {
    /// The execution started.
    Started,
    /// The worker refused the execution and will never start it under this fence.
    Refused {
        /// Reason for the refusal.
        reason: Box<str>,
    },
    /// The execution failed to start; no part of the task ran.
    StartFailed {
        /// Stable error code and a message.
        outcome: Outcome,
    },
    /// The execution ended.
    Finished {
        /// How the execution ended.
        how: ExecutionEnd,
        /// Exit code, output and error.
        outcome: Outcome,
        /// Resources that the execution used.
        usage: Usage,
    },
}

/// How an execution ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExecutionEnd {
    /// Exited by itself, successfully.
    Succeeded,
    /// Exited by itself with an error, or exceeded its memory limit and was killed.
    Failed,
    /// Stopped at the server's request.
    Stopped,
    /// Exceeded its run timeout and was killed.
    TimedOut,
    /// Ended with its supervisor or machine; not counted as a failure of the job.
    Interrupted,
}
