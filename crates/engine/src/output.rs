//! Output of an engine: rows to commit, and effects to release after the commit.
//!
//! [`Engine::flush`](crate::Engine::flush) returns an [`Output`]. The driver commits its batch in one
//! transaction and then releases its effects in order: replies to clients, messages to workers. [`View`] is
//! the state that metrics and lists show; no decision depends on it.
//!
//! # Invariants
//! - An effect never becomes visible before the commit of its batch. [`Effect::Grant`] is the only exception.
//! - [`Effect::Welcome`] comes before all other effects of its session.

use std::sync::Arc;

use model::api::{ApplyChange, Reservation};
use model::calendar::CalendarRecord;
use model::firing::{FiringOutcome, Origin, ScheduleStatus, Work};
use model::namespace::{NamespaceSettings, NamespaceUsage};
use model::queue::QueueSettings;
use model::record::{Batch, NamespaceRecord, QueueRecord};
use model::run::{RunStatus, StepOrigin, StepStatus};
use model::service::{ReplicaOrigin, ScalingMetric};
use model::why::{RunWhy, StepWhy, Why};
use model::{
    BackfillId, Duration, ExecutionId, Fence, JobId, JobStatus, Refusal, RunId, ScheduleId, ServiceId,
    StopReason, Timestamp, WorkerId, WorkflowId,
};

use crate::clock::ClockView;
use crate::input::{Session, Ticket};

/// Result of all inputs since the last flush.
#[derive(Debug, Default)]
pub struct Output {
    /// Changes to commit in one transaction.
    pub batch: Batch,
    /// Effects to release after the commit, in order.
    pub effects: Vec<Effect>,
}

/// An action visible outside the server, released after the commit of its batch.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Reply to a request.
    Reply {
        /// Ticket of the request.
        ticket: Ticket,
        /// Result of the request.
        reply: Result<Reply, Refusal>,
    },
    /// Accepts a session of a worker. The first effect of the session.
    Welcome {
        /// The worker that opened the session.
        worker: WorkerId,
        /// The accepted session.
        session: Session,
        /// Interval between two heartbeats.
        heartbeat_interval: Duration,
        /// Lease of the worker, from the sending of its last answered heartbeat.
        lease: Duration,
    },
    /// Answer to a heartbeat. The only effect that may be released before the commit of its batch.
    Grant {
        /// The worker that sent the heartbeat.
        worker: WorkerId,
        /// Session of the worker.
        session: Session,
        /// Number of the heartbeat.
        seq: u64,
        /// Lease from the sending of the heartbeat; zero if the session is unknown and the worker must open a
        /// new one.
        lease: Duration,
    },
    /// Assigns an execution to a worker.
    Assign {
        /// The worker that runs the execution.
        worker: WorkerId,
        /// Session of the worker.
        session: Session,
        /// The execution.
        assignment: Assignment,
    },
    /// Stops an execution on a worker.
    Stop {
        /// The worker that runs the execution.
        worker: WorkerId,
        /// Session of the worker.
        session: Session,
        /// The execution to stop.
        execution: ExecutionId,
        /// Fence of the execution.
        fence: Fence,
        /// Time between SIGTERM and SIGKILL; zero kills immediately.
        grace: Duration,
        /// Whether the worker discards the outcome instead of reporting it.
        discard: bool,
        /// Reason, for the task.
        reason: StopReason,
    },
    /// Acknowledges a report.
    Ack {
        /// The worker that sent the report.
        worker: WorkerId,
        /// Session of the worker.
        session: Session,
        /// The reported execution.
        execution: ExecutionId,
        /// Fence of the execution.
        fence: Fence,
        /// Whether the worker may remove the execution from its journal.
        last: bool,
    },
}

/// An execution assigned to a worker.
#[derive(Debug, Clone, PartialEq)]
pub struct Assignment {
    /// ID of the execution.
    pub execution: ExecutionId,
    /// Job of the execution.
    pub job: JobId,
    /// Fence of the execution.
    pub fence: Fence,
    /// Attempt number, from 1.
    pub number: u32,
    /// The job's spec as JSON.
    pub body: Arc<str>,
    /// Firing that created the job, if a schedule did.
    pub origin: Option<Arc<Origin>>,
    /// Run and step of the job, if it belongs to a workflow.
    pub step: Option<Arc<StepOrigin>>,
    /// Replica that the job is, if it belongs to a service.
    pub replica: Option<Arc<ReplicaOrigin>>,
    /// Version of the checkpoint to resume from.
    pub checkpoint: Option<u64>,
}

/// Reply to a successful request.
#[derive(Debug, Clone, PartialEq)]
pub enum Reply {
    /// The submitted jobs, in the order of the request.
    Submitted(Vec<Submitted>),
    /// The job was changed.
    Updated {
        /// The new version.
        version: u64,
    },
    /// The job is cancelled, or will be once its execution has stopped.
    Cancelling {
        /// Current status: `cancelled`, or `running` while the execution is being stopped.
        status: JobStatus,
        /// New version of the job.
        version: u64,
    },
    /// The checkpoint is saved.
    CheckpointSaved {
        /// Version of the checkpoint. Unchanged if the same data was saved before.
        version: u64,
    },
    /// The elements were added, or had been added before.
    ElementsAdded(Added),
    /// Explanation of a job's status.
    Why(Box<Why>),
    /// The worker was changed or removed.
    Worker,
    /// The queue after the change.
    Queue(Arc<QueueRecord>),
    /// The settings of the queue were deleted.
    QueueRemoved,
    /// The namespace after the change.
    Namespace(Arc<NamespaceRecord>),
    /// The settings of the namespace were deleted.
    NamespaceRemoved,
    /// The applied schedules, in the order of the request.
    Applied(Vec<Applied>),
    /// The schedule was paused, resumed or deleted.
    Schedule {
        /// New status of the schedule.
        status: ScheduleStatus,
        /// New version of the schedule.
        version: u64,
    },
    /// A schedule was triggered.
    Triggered {
        /// Outcome: fired, buffered, or skipped by the overlap policy.
        outcome: FiringOutcome,
        /// Job or run that the firing created.
        work: Option<Work>,
        /// Scheduled time under which the firing is recorded.
        scheduled_for: Timestamp,
    },
    /// The backfill was started or cancelled.
    Backfill {
        /// ID of the backfill.
        backfill: BackfillId,
    },
    /// The calendar after the change.
    Calendar(Arc<CalendarRecord>),
    /// The calendar was deleted.
    CalendarRemoved,
    /// The applied workflows, in the order of the request.
    AppliedWorkflows(Vec<AppliedWorkflow>),
    /// The applied services, in the order of the request.
    AppliedServices(Vec<AppliedService>),
    /// A service was changed.
    Service {
        /// New version of the service.
        version: u64,
        /// Current revision.
        revision: u64,
        /// Desired number of replicas.
        replicas: u32,
    },
    /// The workflow was deleted.
    WorkflowDeleted,
    /// A run was started; it is running, or is queued behind other runs of its workflow.
    RunStarted {
        /// ID of the run.
        run: RunId,
        /// False if the same request had created the run before, under the same idempotency key.
        new: bool,
    },
    /// A run was changed.
    Run {
        /// New status of the run.
        status: RunStatus,
        /// New version of the run.
        version: u64,
    },
    /// A step was changed.
    Step {
        /// New status of the step: `running` while its jobs are being stopped.
        status: StepStatus,
        /// New version of the run.
        version: u64,
    },
    /// An event was delivered.
    EventTaken {
        /// Number of steps that waited for the event.
        steps: usize,
    },
    /// Explanation of a step's status.
    StepWhy(Box<StepWhy>),
    /// Explanation of the steps of a run.
    RunWhy(Box<RunWhy>),
}

/// Result of applying a schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Applied {
    /// ID of the schedule.
    pub schedule: ScheduleId,
    /// Whether the schedule was created, changed or left unchanged.
    pub change: ApplyChange,
    /// Generation after the request.
    pub generation: u64,
    /// Version after the request.
    pub version: u64,
    /// Next scheduled firing; `None` if there is none, or none until a run of the schedule ends.
    pub next_at: Option<Timestamp>,
}

/// Result of applying a workflow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AppliedWorkflow {
    /// ID of the workflow.
    pub workflow: WorkflowId,
    /// Whether the workflow was created, changed or left unchanged.
    pub change: ApplyChange,
    /// Generation after the request.
    pub generation: u64,
    /// Version after the request.
    pub version: u64,
}

/// Result of applying a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AppliedService {
    /// ID of the service.
    pub service: ServiceId,
    /// Whether the service was created, changed or left unchanged.
    pub change: ApplyChange,
    /// Current revision after the request.
    pub revision: u64,
    /// Version after the request.
    pub version: u64,
}

/// A job created by a submission, now or earlier under the same idempotency key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Submitted {
    /// ID of the job.
    pub job: JobId,
    /// False if the same submission had created the job before, under the same idempotency key.
    pub new: bool,
}

/// Result of adding elements to a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Added {
    /// Name of the step that runs for the elements.
    pub step: Arc<str>,
    /// Index of the first element of the batch in the step's list, from 0.
    pub first: u32,
    /// Number of elements in the batch.
    pub count: u32,
    /// Number of elements that the step has now.
    pub total: u32,
    /// False if the same batch had been added before.
    pub new: bool,
}

/// Current state for metrics and lists; no decision depends on it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct View {
    /// Live jobs by status: ready, waiting, running, retrying.
    pub live: std::collections::BTreeMap<JobStatus, u64>,
    /// Queues that have jobs or settings.
    pub queues: Vec<QueueView>,
    /// Namespaces that have settings or live jobs.
    pub namespaces: Vec<NamespaceView>,
    /// All known workers.
    pub workers: Vec<WorkerView>,
    /// Numbers of services and replicas.
    pub services: ServiceCounts,
    /// Metrics that scale services, for the server to read: all except queues.
    pub metrics_to_read: Vec<(ServiceId, ScalingMetric)>,
    /// Schedules by status.
    pub schedules: std::collections::BTreeMap<ScheduleStatus, u64>,
    /// Number of decided scheduled times since the engine started, by outcome.
    pub firings: std::collections::BTreeMap<FiringOutcome, u64>,
    /// Difference between engine time and the wall clock.
    pub clock: ClockView,
    /// Purge limit: rows that expired before it may be deleted. Zero in a default view, so that nothing is
    /// purged.
    pub purge_before: Timestamp,
}

/// Numbers of services and replicas.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ServiceCounts {
    /// Number of services.
    pub services: u64,
    /// Number of services with fewer available replicas than desired.
    pub degraded: u64,
    /// Sum of the desired replicas.
    pub desired: u64,
    /// Sum of the available replicas.
    pub available: u64,
    /// Number of rollouts that have failed.
    pub failed_rollouts: u64,
}

/// State of a namespace.
#[derive(Debug, Clone, PartialEq)]
pub struct NamespaceView {
    /// Name of the namespace.
    pub name: String,
    /// Settings of the namespace.
    pub settings: NamespaceSettings,
    /// Version of the settings; 0 if the namespace has none.
    pub version: u64,
    /// What its jobs use.
    pub usage: NamespaceUsage,
}

/// State of a queue.
#[derive(Debug, Clone, PartialEq)]
pub struct QueueView {
    /// Name of the queue.
    pub name: String,
    /// Limits, rate and weights.
    pub settings: QueueSettings,
    /// Version of the settings; 0 if the queue has none.
    pub version: u64,
    /// Number of waiting jobs.
    pub waiting: u64,
    /// Number of running jobs.
    pub running: u64,
    /// Time at which the oldest waiting job became ready.
    pub oldest: Option<Timestamp>,
}

/// State of a worker.
#[derive(Debug, Clone, PartialEq)]
pub struct WorkerView {
    /// ID of the worker.
    pub id: WorkerId,
    /// Whether the worker is connected, expected or lost.
    pub status: model::worker::WorkerStatus,
    /// Number of executions on the worker.
    pub running: u32,
    /// CPU reserved by its executions.
    pub cpu_reserved: model::Millicores,
    /// Memory reserved by its executions.
    pub memory_reserved: model::Bytes,
    /// Custom resources reserved by its executions.
    pub custom_reserved: std::collections::BTreeMap<String, u64>,
    /// Reservations for future firings of schedules.
    pub reservations: Vec<Reservation>,
    /// Health of the machine; `None` until the first heartbeat.
    pub health: Option<model::worker::Health>,
    /// Time of the last heartbeat or hello message.
    pub last_heartbeat_at: Option<Timestamp>,
}
