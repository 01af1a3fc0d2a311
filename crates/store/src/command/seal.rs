//! Seals the changes of a batch: turns them into [`RowChange`]s, in the order in which a store applies them.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};

use model::firing::{BackfillHead, BackfillState, LedgerRecord, ScheduleHead, ScheduleState};
use model::record::{Change, ExecutionRecord, JobHead, JobState, KeyRecord, RunKeyRecord};
use model::run::{RunHead, RunState, StepRecord, WorkflowHead};
use model::service::ServiceHead;
use model::{JobId, RunId, ScheduleId, ServiceId, WorkflowId};
use mutation::{Mutation, is_on};

use super::rows::{
    BackfillColumns, ExecutionColumns, JobColumns, JobHeadColumns, Key, KeyColumns, Labels, LedgerRow,
    NamedHead, RowChange, RunColumns, RunHeadColumns, ScheduleColumns,
};
use crate::batch::{heads_for_executions, to_json};
use crate::codec::{
    self, Context, calendar_context, definition_hash, seal_backfill, seal_backfill_head, seal_checkpoint,
    seal_definition, seal_elements, seal_execution, seal_head, seal_history, seal_ledger, seal_run,
    seal_run_head, seal_schedule, seal_schedule_head, seal_service, seal_service_head, seal_state, seal_step,
    seal_text, seal_workflow, seal_workflow_head, step_columns,
};

/// A batch that breaks an invariant of the engine, found before anything was written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the new {what} {id} has no head")]
pub(crate) struct MissingHead {
    what: &'static str,
    id: String,
}

impl MissingHead {
    fn of(what: &'static str, id: impl ToString) -> Self {
        Self { what, id: id.to_string() }
    }
}

/// Passes each changed row of a batch to `each`.
///
/// The order matters. Expired keys are deleted before new ones are added. New executions take names from their jobs as
/// of before the batch, so executions come before jobs. A ledger entry takes its namespace from its schedule, so it
/// comes while the schedule exists: before its removal, and after its creation. The name of a removed schedule,
/// workflow or service is free for a new one.
pub(crate) fn seal<'a, E: From<MissingHead>>(
    changes: &'a [Change],
    mut each: impl FnMut(RowChange<'a>) -> Result<(), E>,
) -> Result<(), E> {
    for change in changes {
        if let Change::PurgeKeys { shard, expired_before } = change {
            each(RowChange::PurgeKeys { shard: shard.0, expired_before: expired_before.as_micros() })?;
        }
    }
    let heads = heads_for_executions(changes);
    for change in changes {
        if let Change::Execution { new, record } = change {
            each(execution(*new, record, &heads))?;
        }
    }
    seal_schedules(changes, &mut each)?;
    seal_workflows(changes, &mut each)?;
    seal_services(changes, &mut each)?;
    for change in changes {
        each(match change {
            Change::Execution { .. }
            | Change::PurgeKeys { .. }
            | Change::Schedule { .. }
            | Change::RemoveSchedule(_)
            | Change::Ledger(_)
            | Change::Backfill { .. }
            | Change::Workflow { .. }
            | Change::RemoveWorkflow(_)
            | Change::Run { .. }
            | Change::Step(_)
            | Change::ElementBatch(_)
            | Change::RunKey(_)
            | Change::Service { .. }
            | Change::RemoveService(_) => continue,
            Change::Job { id, new: true, head: Some(head), state } => {
                let (state, head) = (job_columns(*id, state), job_head(*id, head));
                RowChange::NewJob { id: id.to_bits().to_be_bytes(), state, head }
            }
            Change::Job { id, new: true, head: None, .. } => return Err(MissingHead::of("job", id).into()),
            Change::Job { id, new: false, head, state } => RowChange::Job {
                id: id.to_bits().to_be_bytes(),
                state: job_columns(*id, state),
                head: head.as_ref().map(|head| job_head(*id, head)),
            },
            Change::Checkpoint(record) => RowChange::Checkpoint {
                job: record.job.to_bits().to_be_bytes(),
                version: record.version,
                content_type: &record.content_type,
                saved_at: record.saved_at.as_micros(),
                data: seal_checkpoint(record).into(),
            },
            Change::Key(_) if is_on(Mutation::StoreForgetsKeys) => continue,
            Change::Key(key) => RowChange::Key(job_key(key)),
            Change::Worker(record) => {
                let id = record.id.to_bits();
                let record = seal_text(Context::of(id), &to_json(&**record)).into();
                RowChange::Worker { id: id.to_be_bytes(), record }
            }
            Change::RemoveWorker(id) => RowChange::RemoveWorker(id.to_bits().to_be_bytes()),
            Change::Queue(record) => {
                let name = &record.name;
                let record = seal_text(Context::of_text(name), &to_json(&**record)).into();
                RowChange::Queue { name, record }
            }
            Change::RemoveQueue(name) => RowChange::RemoveQueue(name),
            Change::Namespace(record) => {
                let name = &record.name;
                let record = seal_text(Context::of_text(name), &to_json(&**record)).into();
                RowChange::Namespace { name, record }
            }
            Change::RemoveNamespace(name) => RowChange::RemoveNamespace(name),
            Change::Calendar(record) => {
                let (namespace, name) = (&record.spec.namespace, &record.spec.name);
                let record = seal_text(calendar_context(namespace, name), &to_json(&**record)).into();
                RowChange::Calendar { namespace, name, record }
            }
            Change::RemoveCalendar { namespace, name } => RowChange::RemoveCalendar { namespace, name },
        })?;
    }
    Ok(())
}

fn execution<'a>(
    new: bool,
    record: &'a ExecutionRecord,
    heads: &HashMap<JobId, &'a JobHead>,
) -> RowChange<'a> {
    let row = ExecutionColumns {
        id: record.id.to_bits().to_be_bytes(),
        job: record.job.to_bits().to_be_bytes(),
        number: record.number,
        fence: record.fence.0,
        worker: record.worker.to_bits().to_be_bytes(),
        status: record.status.code(),
        ended: record.status.is_final(),
        rest: seal_execution(record).into(),
    };
    match new {
        true => {
            let names = heads.get(&record.job).map(|head| (&*head.spec.namespace, &*head.spec.name));
            RowChange::NewExecution { row, names }
        }
        false => RowChange::Execution(row),
    }
}

fn job_columns(id: JobId, state: &JobState) -> JobColumns<'_> {
    let columns = codec::StateColumns::of(state);
    JobColumns {
        status: columns.status,
        ended: state.status.is_final(),
        worker: columns.worker,
        expires_at: columns.expires_at,
        state: seal_state(id, &columns, state).into(),
        history: seal_history(id, &state.history).into(),
    }
}

fn job_head(id: JobId, head: &JobHead) -> JobHeadColumns<'_> {
    let origin = head.origin.as_ref();
    JobHeadColumns {
        namespace: &head.spec.namespace,
        owner: head.spec.owner.as_deref(),
        queue: &head.spec.queue,
        name: &head.spec.name,
        head: seal_head(id, head).into(),
        schedule: origin.map(|origin| origin.schedule.to_bits().to_be_bytes()),
        backfill: origin.and_then(|origin| origin.backfill).map(|id| id.to_bits().to_be_bytes()),
        run: head.step.as_ref().map(|step| step.run.to_bits().to_be_bytes()),
        service: head.replica.as_ref().map(|replica| replica.service.to_bits().to_be_bytes()),
        labels: labels(&head.spec.labels),
    }
}

fn labels(labels: &BTreeMap<String, String>) -> Labels<'_> {
    labels.iter().map(|(key, value)| (&**key, &**value)).collect()
}

fn job_key(key: &KeyRecord) -> KeyColumns {
    KeyColumns {
        shard: key.job.shard().0,
        expires_at: key.expires_at.as_micros(),
        key: key.key.to_be_bytes(),
        body: key.body.to_be_bytes(),
        work: key.job.to_bits().to_be_bytes(),
    }
}

fn run_key(key: &RunKeyRecord) -> KeyColumns {
    KeyColumns {
        shard: key.run.shard().0,
        expires_at: key.expires_at.as_micros(),
        key: key.key.to_be_bytes(),
        body: key.body.to_be_bytes(),
        work: key.run.to_bits().to_be_bytes(),
    }
}

fn seal_schedules<'a, E: From<MissingHead>>(
    changes: &'a [Change],
    each: &mut impl FnMut(RowChange<'a>) -> Result<(), E>,
) -> Result<(), E> {
    let removed = |change: &Change| match change {
        Change::RemoveSchedule(id) => Some(*id),
        _ => None,
    };
    let removed: HashSet<ScheduleId> = changes.iter().filter_map(removed).collect();
    if !removed.is_empty() {
        for change in changes {
            match change {
                Change::Ledger(record) if removed.contains(&record.schedule) => each(ledger(record))?,
                _ => {}
            }
        }
        for change in changes {
            if let Change::RemoveSchedule(id) = change {
                each(RowChange::RemoveSchedule(id.to_bits().to_be_bytes()))?;
            }
        }
    }
    for change in changes {
        if let Change::Schedule { id, new, head, state } = change {
            let (key, state) = (id.to_bits().to_be_bytes(), schedule_columns(*id, state));
            let head = head.as_ref().map(|head| schedule_head(*id, head));
            each(match (new, head) {
                (true, Some(head)) => RowChange::NewSchedule { id: key, state, head },
                (true, None) => return Err(MissingHead::of("schedule", id).into()),
                (false, head) => RowChange::Schedule { id: key, state, head },
            })?;
        }
    }
    for change in changes {
        match change {
            Change::Ledger(record) if !removed.contains(&record.schedule) => each(ledger(record))?,
            Change::Backfill { id, head, state } => {
                let (key, state) = (id.to_bits().to_be_bytes(), backfill_columns(*id, state));
                each(match head {
                    Some(head) => new_backfill(key, head, state),
                    None => RowChange::Backfill { id: key, state },
                })?;
            }
            _ => {}
        }
    }
    Ok(())
}

fn schedule_columns(id: ScheduleId, state: &ScheduleState) -> ScheduleColumns<'_> {
    let columns = codec::ScheduleColumns::of(state);
    let state = seal_schedule(id, &columns, state).into();
    ScheduleColumns { status: columns.status, next_at: columns.next_at, state }
}

fn schedule_head(id: ScheduleId, head: &ScheduleHead) -> NamedHead<'_> {
    NamedHead {
        namespace: &head.spec.namespace,
        name: &head.spec.name,
        owner: head.spec.owner.as_deref(),
        head: seal_schedule_head(id, head).into(),
        labels: labels(&head.spec.labels),
    }
}

fn ledger(record: &LedgerRecord) -> RowChange<'_> {
    let columns = codec::LedgerColumns::of(record);
    RowChange::Ledger(LedgerRow {
        first: columns.first,
        schedule: columns.schedule.to_bits().to_be_bytes(),
        generation: columns.generation,
        cause: columns.cause,
        backfill: columns.backfill.map(|id| id.to_bits().to_be_bytes()),
        last: columns.last,
        count: columns.count,
        outcome: columns.outcome,
        work: columns.work.map(u128::to_be_bytes),
        decided_at: columns.decided_at,
        rest: seal_ledger(record).into(),
    })
}

fn backfill_columns(id: model::BackfillId, state: &BackfillState) -> BackfillColumns<'_> {
    let columns = codec::BackfillColumns::of(state);
    let sealed = seal_backfill(id, state).into();
    BackfillColumns { status: columns.status, finished_at: columns.finished_at, state: sealed }
}

fn new_backfill<'a>(id: Key, head: &BackfillHead, state: BackfillColumns<'a>) -> RowChange<'a> {
    let schedule = head.schedule.to_bits().to_be_bytes();
    RowChange::NewBackfill { id, schedule, state, head: seal_backfill_head(head).into() }
}

fn seal_workflows<'a, E: From<MissingHead>>(
    changes: &'a [Change],
    each: &mut impl FnMut(RowChange<'a>) -> Result<(), E>,
) -> Result<(), E> {
    for change in changes {
        if let Change::RemoveWorkflow(id) = change {
            each(RowChange::RemoveWorkflow(id.to_bits().to_be_bytes()))?;
        }
    }
    for change in changes {
        each(match change {
            Change::Workflow { id, new, head, state } => {
                let (key, generation) = (id.to_bits().to_be_bytes(), state.generation);
                let head = head.as_ref().map(|head| workflow_head(*id, generation, head));
                let state = seal_workflow(*id, state).into();
                match (new, head) {
                    (true, Some(head)) => RowChange::NewWorkflow { id: key, generation, state, head },
                    (true, None) => return Err(MissingHead::of("workflow", id).into()),
                    (false, head) => RowChange::Workflow { id: key, generation, state, head },
                }
            }
            Change::Run { id, head, state } => {
                let (key, state) = (id.to_bits().to_be_bytes(), run_columns(*id, state));
                match head {
                    Some(head) => RowChange::NewRun { id: key, state, head: run_head(*id, head) },
                    None => RowChange::Run { id: key, state },
                }
            }
            Change::Step(record) => step(record),
            Change::ElementBatch(batch) => RowChange::Elements {
                run: batch.key.run.to_bits().to_be_bytes(),
                step: batch.key.step,
                first: batch.key.first,
                batch: seal_elements(batch).into(),
            },
            Change::RunKey(key) => RowChange::RunKey(run_key(key)),
            _ => continue,
        })?;
    }
    Ok(())
}

fn workflow_head(id: WorkflowId, generation: u64, head: &WorkflowHead) -> NamedHead<'_> {
    NamedHead {
        namespace: &head.spec.namespace,
        name: &head.spec.name,
        owner: head.spec.owner.as_deref(),
        head: seal_workflow_head(id, generation, head).into(),
        labels: labels(&head.spec.labels),
    }
}

fn run_columns(id: RunId, state: &RunState) -> RunColumns<'_> {
    let columns = codec::RunColumns::of(state);
    let state = seal_run(id, &columns, state).into();
    RunColumns { status: columns.status, expires_at: columns.expires_at, state }
}

fn run_head(id: RunId, head: &RunHead) -> RunHeadColumns<'_> {
    let (origin, hash) = (head.origin.as_ref(), definition_hash(&head.body));
    RunHeadColumns {
        workflow: head.workflow.map(|workflow| workflow.to_bits().to_be_bytes()),
        caller: head.caller.map(|caller| caller.run.to_bits().to_be_bytes()),
        schedule: origin.map(|origin| origin.schedule.to_bits().to_be_bytes()),
        backfill: origin.and_then(|origin| origin.backfill).map(|id| id.to_bits().to_be_bytes()),
        namespace: &head.definition.workflow.namespace,
        name: &head.definition.workflow.name,
        hash: hash.to_be_bytes(),
        definition: seal_definition(hash, &head.body).into(),
        head: seal_run_head(id, hash, head).into(),
    }
}

fn step(record: &StepRecord) -> RowChange<'_> {
    let (key, state) = (record.key, &record.state);
    let (list, number) = step_columns(key);
    let pins = state.pinned_versions().into_iter();
    RowChange::Step {
        run: key.run.to_bits().to_be_bytes(),
        list,
        number,
        status: state.status.code(),
        state: seal_step(key, state).into(),
        pins: pins.map(|version| (Cow::Owned(version.artifact), Cow::Owned(version.sha256))).collect(),
    }
}

fn seal_services<'a, E: From<MissingHead>>(
    changes: &'a [Change],
    each: &mut impl FnMut(RowChange<'a>) -> Result<(), E>,
) -> Result<(), E> {
    for change in changes {
        if let Change::RemoveService(id) = change {
            each(RowChange::RemoveService(id.to_bits().to_be_bytes()))?;
        }
    }
    for change in changes {
        if let Change::Service { id, new, head, state } = change {
            let (key, state) = (id.to_bits().to_be_bytes(), seal_service(*id, state).into());
            let head = head.as_ref().map(|head| service_head(*id, head));
            each(match (new, head) {
                (true, Some(head)) => RowChange::NewService { id: key, state, head },
                (true, None) => return Err(MissingHead::of("service", id).into()),
                (false, head) => RowChange::Service { id: key, state, head },
            })?;
        }
    }
    Ok(())
}

fn service_head(id: ServiceId, head: &ServiceHead) -> NamedHead<'_> {
    NamedHead {
        namespace: &head.spec.namespace,
        name: &head.spec.name,
        owner: head.spec.owner.as_deref(),
        head: seal_service_head(id, head).into(),
        labels: labels(&head.spec.labels),
    }
}
