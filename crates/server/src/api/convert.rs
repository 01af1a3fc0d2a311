//! Conversion of rows and of the engine's view to API types.
//!
//! Handlers call these functions for every row of a response. Status and history come from the row, live values
//! (reservations, queue lengths, health) from the engine's view, which only the leader has.
//!
//! Also defines the `type` of every event in the feed: `event_types` lists them all, so that a filter with an unknown
//! type can be refused.

use engine::output::{QueueView, WorkerView};
use model::api::{
    Allocated, Artifact, Execution, FeedEvent, FeedRefusal, Job, JobEvent, JobResult, Queue, Worker,
};
use model::firing::{BackfillStatus, finish_deadline};
use model::record::{
    Event, EventKind, HistoryEntry, JobState, QueueRecord, ScheduleEvent, ServiceEvent, WorkerRecord,
    WorkflowEvent,
};
use model::service::RolloutStatus;
use model::spec::Summary;
use model::worker::WorkerStatus;
use model::{JobSpec, JobStatus, ScheduleSpec, Timestamp};
use store::EventSeq;
use store::query::{self, ExecutionRow, JobRow, ScheduleRow};

use super::problem::ApiError;

/// Returns a job of a list, without its spec.
pub(super) fn job(row: &JobRow) -> Result<Job, ApiError> {
    let summary: Summary = serde_json::from_str(&row.body).map_err(|error| ApiError::internal(&error))?;
    let state = &row.state;
    Ok(Job {
        id: row.id,
        name: summary.name,
        namespace: summary.namespace,
        owner: summary.owner,
        queue: summary.queue,
        priority_class: summary.priority_class,
        priority: summary.priority,
        labels: summary.labels,
        status: state.status,
        version: state.version,
        retry_of: row.retry_of,
        origin: row.origin.as_deref().cloned(),
        step: row.step.as_deref().cloned(),
        replica: row.replica.as_deref().cloned(),
        created_at: row.id.created_at(),
        due_at: state.due_at,
        queued_at: state.queued_at,
        started_at: state.started_at,
        execution_started_at: execution_started_at(state),
        finished_at: state.finished_at,
        updated_at: state.updated_at,
        cancel_requested_at: state.cancel_requested_at,
        expires_at: state.expires_at,
        executions: state.executions,
        run_failures: state.run_failures,
        start_failures: state.start_failures,
        losses: state.losses,
        overdue: state.overdue,
        finish_by: summary
            .finish_by
            .map(|by| finish_deadline(by, row.origin.as_deref(), summary.run_at, row.id.created_at())),
        execution_id: state.execution,
        worker_id: state.worker,
        result: state.outcome.as_deref().map(JobResult::from),
        started_runs: state.started.to_vec(),
        checkpoint: state.checkpoint.as_deref().cloned(),
        spec: None,
    })
}

/// Returns the start of the newest execution, if it has started.
fn execution_started_at(state: &JobState) -> Option<Timestamp> {
    let newest = state.executions;
    let mut backwards = state.history.iter().rev();
    let started = backwards.find(|entry| entry.to == JobStatus::Running && entry.execution == Some(newest));
    started.map(|entry| entry.at)
}

/// Returns a job with its spec.
pub(super) fn job_with_spec(row: &JobRow) -> Result<Job, ApiError> {
    Ok(Job { spec: Some(Box::new(spec(row)?)), ..job(row)? })
}

/// Returns the spec of a job.
pub(super) fn spec(row: &JobRow) -> Result<JobSpec, ApiError> {
    serde_json::from_str(&row.body).map_err(|error| ApiError::internal(&error))
}

/// Returns the spec of a schedule.
pub(super) fn schedule_spec(row: &ScheduleRow) -> Result<ScheduleSpec, ApiError> {
    serde_json::from_str(&row.body).map_err(|error| ApiError::internal(&error))
}

pub(super) fn job_event(entry: &HistoryEntry) -> JobEvent {
    JobEvent {
        at: entry.at,
        from: entry.from,
        to: entry.to,
        cause: entry.cause,
        message: entry.cause.sentence().to_owned(),
        execution: entry.execution,
        detail: entry.detail.as_deref().map(str::to_owned),
    }
}

pub(super) fn execution(row: &ExecutionRow) -> Execution {
    let record = &row.record;
    Execution {
        id: record.id,
        job_id: record.job,
        job_name: row.job_name.to_string(),
        namespace: row.namespace.to_string(),
        number: record.number,
        fence: record.fence,
        worker_id: record.worker,
        status: record.status,
        assigned_at: record.assigned_at,
        started_at: record.started_at,
        finished_at: record.finished_at,
        result: record.outcome.as_ref().map(JobResult::from),
        usage: record.usage.clone(),
        files: record.files.as_deref().cloned(),
        preempted_by: record.preempted_by,
        health: record.health.as_deref().cloned(),
    }
}

/// Returns a worker, with the engine's last view of it.
pub(super) fn worker(record: WorkerRecord, view: Option<&WorkerView>) -> Worker {
    let allocated = view.map(|view| Allocated {
        executions: view.running,
        cpu: view.cpu_reserved,
        memory: view.memory_reserved,
        custom: view.custom_reserved.clone(),
    });
    Worker {
        id: record.id,
        name: record.name,
        version: record.version,
        address: record.address,
        labels: record.labels,
        status: record.status,
        admission: record.admission,
        capacity: record.capacity,
        capabilities: record.capabilities,
        allocated: allocated.unwrap_or_default(),
        reservations: view.map(|view| view.reservations.clone()).unwrap_or_default(),
        health: view.and_then(|view| view.health.clone()),
        last_heartbeat_at: view.and_then(|view| view.last_heartbeat_at).or(record.last_heartbeat_at),
        created_at: record.created_at,
        updated_at: record.updated_at,
    }
}

/// Returns a queue from its row, from the engine's last view of it, or from both.
pub(super) fn queue(name: &str, record: Option<&QueueRecord>, view: Option<&QueueView>) -> Queue {
    let settings = record.map(|record| &record.settings).or(view.map(|view| &view.settings));
    Queue {
        name: name.to_owned(),
        settings: settings.cloned().unwrap_or_default(),
        version: record.map_or(0, |record| record.version),
        waiting: view.map_or(0, |view| view.waiting),
        running: view.map_or(0, |view| view.running),
        oldest_waiting_since: view.and_then(|view| view.oldest),
    }
}

pub(super) fn artifact(row: query::Artifact) -> Artifact {
    Artifact {
        namespace: row.namespace,
        name: row.name,
        sha256: row.sha256,
        size_bytes: row.size_bytes,
        created_at: row.created_at,
        created_by: row.created_by,
    }
}

/// Names of event types, except those of jobs, runs and steps, which contain the new status.
macro_rules! event_words {
    ($($variant:ident = $text:literal;)*) => {
        #[derive(Clone, Copy)]
        enum EventWord { $($variant,)* }

        impl EventWord {
            const ALL: &'static [Self] = &[$(Self::$variant,)*];

            const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }
        }
    };
}

event_words! {
    ExecutionStarted = "execution.started";
    JobOverdue = "job.overdue";
    WorkerReady = "worker.ready";
    WorkerLost = "worker.lost";
    WorkerExpected = "worker.expected";
    QueueUpdated = "queue.updated";
    ScheduleCreated = "schedule.created";
    ScheduleChanged = "schedule.changed";
    SchedulePaused = "schedule.paused";
    ScheduleResumed = "schedule.resumed";
    ScheduleCompleted = "schedule.completed";
    ScheduleDeleted = "schedule.deleted";
    ScheduleSkipped = "schedule.skipped";
    BackfillStarted = "backfill.started";
    BackfillCompleted = "backfill.completed";
    BackfillCancelled = "backfill.cancelled";
    CalendarUpdated = "calendar.updated";
    WorkflowCreated = "workflow.created";
    WorkflowChanged = "workflow.changed";
    WorkflowDeleted = "workflow.deleted";
    WorkflowNotTriggered = "workflow.not_triggered";
    StepLateWorker = "step.late_worker";
    ExecutionHealth = "execution.health";
    ServiceCreated = "service.created";
    ServiceChanged = "service.changed";
    ServiceScaled = "service.scaled";
    ServiceDeleting = "service.deleting";
    ServiceDeleted = "service.deleted";
    ServiceAvailability = "service.availability";
    RolloutProgressing = "rollout.progressing";
    RolloutAwaitingPromotion = "rollout.awaiting_promotion";
    RolloutCompleted = "rollout.completed";
    RolloutFailed = "rollout.failed";
}

/// Returns the `type` of an event in the feed: one of [`event_types`], or `other` for a kind without a name.
pub(super) fn event_type(event: &Event) -> String {
    match &event.kind {
        EventKind::Job { to, .. } => job_type(*to),
        EventKind::Run { to, .. } => run_type(*to),
        EventKind::Step { to, .. } => step_type(*to),
        kind => event_word(kind).map_or("other", EventWord::as_str).to_owned(),
    }
}

fn event_word(kind: &EventKind) -> Option<EventWord> {
    use EventWord as Word;
    Some(match kind {
        EventKind::Started { .. } => Word::ExecutionStarted,
        EventKind::Overdue { .. } => Word::JobOverdue,
        EventKind::Worker { status: WorkerStatus::Ready, .. } => Word::WorkerReady,
        EventKind::Worker { status: WorkerStatus::Lost, .. } => Word::WorkerLost,
        EventKind::Worker { status: WorkerStatus::Expected, .. } => Word::WorkerExpected,
        EventKind::Queue { .. } => Word::QueueUpdated,
        EventKind::Schedule { what: ScheduleEvent::Created, .. } => Word::ScheduleCreated,
        EventKind::Schedule { what: ScheduleEvent::Changed, .. } => Word::ScheduleChanged,
        EventKind::Schedule { what: ScheduleEvent::Paused, .. } => Word::SchedulePaused,
        EventKind::Schedule { what: ScheduleEvent::Resumed, .. } => Word::ScheduleResumed,
        EventKind::Schedule { what: ScheduleEvent::Completed, .. } => Word::ScheduleCompleted,
        EventKind::Schedule { what: ScheduleEvent::Deleted, .. } => Word::ScheduleDeleted,
        EventKind::Skipped { .. } => Word::ScheduleSkipped,
        EventKind::Backfill { status: BackfillStatus::Running, .. } => Word::BackfillStarted,
        EventKind::Backfill { status: BackfillStatus::Completed, .. } => Word::BackfillCompleted,
        EventKind::Backfill { status: BackfillStatus::Cancelled, .. } => Word::BackfillCancelled,
        EventKind::Calendar { .. } => Word::CalendarUpdated,
        EventKind::Workflow { what: WorkflowEvent::Created, .. } => Word::WorkflowCreated,
        EventKind::Workflow { what: WorkflowEvent::Changed, .. } => Word::WorkflowChanged,
        EventKind::Workflow { what: WorkflowEvent::Deleted, .. } => Word::WorkflowDeleted,
        EventKind::NotTriggered { .. } => Word::WorkflowNotTriggered,
        EventKind::LateWorker { .. } => Word::StepLateWorker,
        EventKind::Health { .. } => Word::ExecutionHealth,
        EventKind::Service { what: ServiceEvent::Created, .. } => Word::ServiceCreated,
        EventKind::Service { what: ServiceEvent::Changed, .. } => Word::ServiceChanged,
        EventKind::Service { what: ServiceEvent::Scaled, .. } => Word::ServiceScaled,
        EventKind::Service { what: ServiceEvent::Deleting, .. } => Word::ServiceDeleting,
        EventKind::Service { what: ServiceEvent::Deleted, .. } => Word::ServiceDeleted,
        EventKind::Availability { .. } => Word::ServiceAvailability,
        EventKind::Rollout { status: RolloutStatus::Progressing, .. } => Word::RolloutProgressing,
        EventKind::Rollout { status: RolloutStatus::AwaitingPromotion, .. } => Word::RolloutAwaitingPromotion,
        EventKind::Rollout { status: RolloutStatus::Completed, .. } => Word::RolloutCompleted,
        EventKind::Rollout { status: RolloutStatus::Failed, .. } => Word::RolloutFailed,
        _ => return None,
    })
}

fn job_type(to: JobStatus) -> String {
    format!("job.{to}")
}

fn run_type(to: model::RunStatus) -> String {
    format!("run.{to}")
}

fn step_type(to: model::run::StepStatus) -> String {
    format!("step.{to}")
}

/// Returns all event types that a client can request.
pub(super) fn event_types() -> impl Iterator<Item = String> {
    let jobs = JobStatus::ALL.iter().copied().map(job_type);
    let runs = model::RunStatus::ALL.iter().copied().map(run_type);
    let steps = model::run::StepStatus::ALL.iter().copied().map(step_type);
    let others = EventWord::ALL.iter().map(|word| word.as_str().to_owned());
    jobs.chain(runs).chain(steps).chain(others)
}

pub(super) fn feed_event(seq: EventSeq, event: &Event) -> FeedEvent {
    let mut shown = FeedEvent {
        seq: seq.0,
        at: event.at,
        kind: event_type(event),
        namespace: event.namespace.as_deref().map(str::to_owned),
        job_id: None,
        from: None,
        to: None,
        cause: None,
        finish_by: None,
        execution_id: None,
        worker_id: None,
        worker_status: None,
        worker_admission: None,
        queue: None,
        schedule_id: None,
        schedule: None,
        scheduled_for: None,
        outcome: None,
        backfill_id: None,
        workflow_id: None,
        workflow: None,
        run_id: None,
        step: None,
        calendar: None,
        not_triggered: None,
        service_id: None,
        service: None,
        revision: None,
        available: None,
        replicas: None,
        health: None,
    };
    match &event.kind {
        EventKind::Job { job, from, to, cause, execution, worker, schedule } => {
            shown.schedule_id = *schedule;
            shown.job_id = Some(*job);
            (shown.from, shown.to, shown.cause) = (*from, Some(*to), Some(*cause));
            (shown.execution_id, shown.worker_id) = (*execution, *worker);
        }
        EventKind::Overdue { job, finish_by, schedule } => {
            (shown.job_id, shown.finish_by, shown.schedule_id) = (Some(*job), Some(*finish_by), *schedule);
        }
        EventKind::Started { job, execution, worker } => {
            shown.job_id = Some(*job);
            (shown.execution_id, shown.worker_id) = (Some(*execution), Some(*worker));
        }
        EventKind::Worker { worker, status, admission } => {
            shown.worker_id = Some(*worker);
            (shown.worker_status, shown.worker_admission) = (Some(*status), Some(*admission));
        }
        EventKind::Queue { queue } => shown.queue = Some(queue.to_string()),
        EventKind::Schedule { schedule, name, .. } => {
            (shown.schedule_id, shown.schedule) = (Some(*schedule), Some(name.to_string()));
        }
        EventKind::Skipped { schedule, name, scheduled_for, outcome } => {
            (shown.schedule_id, shown.schedule) = (Some(*schedule), Some(name.to_string()));
            (shown.scheduled_for, shown.outcome) = (Some(*scheduled_for), Some(*outcome));
        }
        EventKind::Backfill { backfill, schedule, .. } => {
            (shown.backfill_id, shown.schedule_id) = (Some(*backfill), Some(*schedule));
        }
        EventKind::Calendar { calendar } => shown.calendar = Some(calendar.to_string()),
        EventKind::Workflow { workflow, name, .. } => {
            (shown.workflow_id, shown.workflow) = (Some(*workflow), Some(name.to_string()));
        }
        EventKind::LateWorker { run, step, worker, .. } => {
            (shown.run_id, shown.step, shown.worker_id) = (Some(*run), Some(step.to_string()), Some(*worker));
        }
        EventKind::NotTriggered { workflow, name, trigger, refusal } => {
            (shown.workflow_id, shown.workflow) = (Some(*workflow), Some(name.to_string()));
            let refusal = (**refusal).clone();
            shown.not_triggered = Some(FeedRefusal { trigger: *trigger, refusal });
        }
        EventKind::Run { run, workflow, schedule, .. } => {
            (shown.run_id, shown.workflow) = (Some(*run), Some(workflow.to_string()));
            shown.schedule_id = *schedule;
        }
        EventKind::Health { job, execution, status } => {
            (shown.job_id, shown.execution_id, shown.health) = (Some(*job), Some(*execution), Some(*status));
        }
        EventKind::Service { service, name, .. } => {
            (shown.service_id, shown.service) = (Some(*service), Some(name.to_string()));
        }
        EventKind::Rollout { service, name, revision, .. } => {
            (shown.service_id, shown.service) = (Some(*service), Some(name.to_string()));
            shown.revision = Some(*revision);
        }
        EventKind::Availability { service, name, available, replicas } => {
            (shown.service_id, shown.service) = (Some(*service), Some(name.to_string()));
            (shown.available, shown.replicas) = (Some(*available), Some(*replicas));
        }
        EventKind::Step { run, step, job, .. } => {
            (shown.run_id, shown.step, shown.job_id) = (Some(*run), Some(step.to_string()), *job);
        }
        _ => {}
    }
    shown
}

/// Returns the job of an event, if it has one.
pub(super) fn event_job(event: &Event) -> Option<model::JobId> {
    match &event.kind {
        EventKind::Job { job, .. }
        | EventKind::Started { job, .. }
        | EventKind::Overdue { job, .. }
        | EventKind::Health { job, .. } => Some(*job),
        _ => None,
    }
}
