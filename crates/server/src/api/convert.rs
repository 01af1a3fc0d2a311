//! Rows as what the API shows.

use engine::output::{QueueView, ReservationView, WorkerView};
use model::JobSpec;
use model::api::{
    Artifact, Execution, FeedEvent, FeedRefusal, Job, JobEvent, JobResult, Queue, Reservation, Reserved,
    Worker,
};
use model::firing::BackfillStatus;
use model::record::{
    Event, EventKind, HistoryEntry, QueueRecord, ScheduleEvent, WorkerRecord, WorkflowEvent,
};
use model::spec::Summary;
use model::worker::WorkerStatus;
use store::EventSeq;
use store::query::{self, ExecutionRow, JobRow};

use super::problem::Trouble;

/// A job of a list: all but its spec.
pub(super) fn job(row: &JobRow) -> Result<Job, Trouble> {
    let summary: Summary = serde_json::from_str(&row.body).map_err(|error| Trouble::internal(&error))?;
    let state = &row.state;
    Ok(Job {
        id: row.id,
        name: summary.name,
        namespace: summary.namespace,
        owner: summary.owner,
        queue: summary.queue,
        priority: summary.priority,
        labels: summary.labels,
        status: state.status,
        version: state.version,
        retry_of: row.retry_of,
        origin: row.origin.as_deref().cloned(),
        step: row.step.as_deref().cloned(),
        created_at: row.id.created_at(),
        due_at: state.due_at,
        queued_at: state.queued_at,
        started_at: state.started_at,
        finished_at: state.finished_at,
        updated_at: state.updated_at,
        cancel_requested_at: state.cancel_requested_at,
        expires_at: state.expires_at,
        executions: state.executions,
        run_failures: state.run_failures,
        start_failures: state.start_failures,
        execution_id: state.execution,
        worker_id: state.worker,
        result: state.outcome.as_deref().map(JobResult::from),
        started_runs: state.started.to_vec(),
        checkpoint: state.checkpoint.as_deref().cloned(),
        spec: None,
    })
}

/// A job with its spec.
pub(super) fn job_with_spec(row: &JobRow) -> Result<Job, Trouble> {
    Ok(Job { spec: Some(Box::new(spec(row)?)), ..job(row)? })
}

/// The spec of a job.
pub(super) fn spec(row: &JobRow) -> Result<JobSpec, Trouble> {
    serde_json::from_str(&row.body).map_err(|error| Trouble::internal(&error))
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
        usage: record.usage,
    }
}

/// A worker, with what the engine last showed of it.
pub(super) fn worker(record: WorkerRecord, view: Option<&WorkerView>) -> Worker {
    let reserved = view.map(|view| Reserved {
        executions: view.running,
        cpu: view.cpu_reserved,
        memory: view.memory_reserved,
        custom: view.custom_reserved.clone(),
    });
    Worker {
        id: record.id,
        name: record.name,
        version: record.version,
        labels: record.labels,
        status: record.status,
        admission: record.admission,
        capacity: record.capacity,
        capabilities: record.capabilities,
        reserved: reserved.unwrap_or_default(),
        reservations: view
            .map(|view| view.reservations.iter().map(reservation).collect())
            .unwrap_or_default(),
        health: view.and_then(|view| view.health.clone()),
        heard_at: view.and_then(|view| view.heard_at),
        created_at: record.created_at,
        updated_at: record.updated_at,
    }
}

fn reservation(view: &ReservationView) -> Reservation {
    Reservation {
        schedule_id: view.schedule,
        schedule: view.name.clone(),
        scheduled_for: view.scheduled_for,
        cpu: view.cpu,
        memory: view.memory,
    }
}

/// A queue from its row, from what the engine last showed of it, or from both.
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

/// The word for what happened, `type` in the feed.
pub(super) fn event_type(event: &Event) -> String {
    match &event.kind {
        EventKind::Job { to, .. } => format!("job.{to}"),
        EventKind::Started { .. } => "execution.started".to_owned(),
        EventKind::Worker { status, .. } => match status {
            WorkerStatus::Ready => "worker.ready".to_owned(),
            WorkerStatus::Lost => "worker.lost".to_owned(),
            WorkerStatus::Expected => "worker.expected".to_owned(),
        },
        EventKind::Queue { .. } => "queue.updated".to_owned(),
        EventKind::Schedule { what, .. } => format!("schedule.{}", schedule_word(*what)),
        EventKind::Skipped { .. } => "schedule.skipped".to_owned(),
        EventKind::Backfill { status, .. } => format!(
            "backfill.{}",
            match status {
                BackfillStatus::Running => "started",
                BackfillStatus::Completed => "completed",
                BackfillStatus::Cancelled => "cancelled",
            }
        ),
        EventKind::Calendar { .. } => "calendar.updated".to_owned(),
        EventKind::Workflow { what, .. } => format!(
            "workflow.{}",
            match what {
                WorkflowEvent::Created => "created",
                WorkflowEvent::Changed => "changed",
                WorkflowEvent::Deleted => "deleted",
            }
        ),
        EventKind::LateWorker { .. } => "step.late_worker".to_owned(),
        EventKind::NotTriggered { .. } => "workflow.not_triggered".to_owned(),
        EventKind::Run { to, .. } => format!("run.{to}"),
        EventKind::Step { to, .. } => format!("step.{to}"),
        _ => "other".to_owned(),
    }
}

const fn schedule_word(what: ScheduleEvent) -> &'static str {
    match what {
        ScheduleEvent::Created => "created",
        ScheduleEvent::Changed => "changed",
        ScheduleEvent::Paused => "paused",
        ScheduleEvent::Resumed => "resumed",
        ScheduleEvent::Completed => "completed",
        ScheduleEvent::Deleted => "deleted",
    }
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
    };
    match &event.kind {
        EventKind::Job { job, from, to, cause, execution, worker, schedule } => {
            shown.schedule_id = *schedule;
            shown.job_id = Some(*job);
            (shown.from, shown.to, shown.cause) = (*from, Some(*to), Some(*cause));
            (shown.execution_id, shown.worker_id) = (*execution, *worker);
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
        EventKind::Run { run, workflow, .. } => {
            (shown.run_id, shown.workflow) = (Some(*run), Some(workflow.to_string()));
        }
        EventKind::Step { run, step, job, .. } => {
            (shown.run_id, shown.step, shown.job_id) = (Some(*run), Some(step.to_string()), *job);
        }
        _ => {}
    }
    shown
}

/// The job that an event concerns.
pub(super) fn event_job(event: &Event) -> Option<model::JobId> {
    match &event.kind {
        EventKind::Job { job, .. } | EventKind::Started { job, .. } => Some(*job),
        _ => None,
    }
}
