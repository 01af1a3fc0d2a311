//! [`Commits`]: writes a batch row by row inside the writer's transaction. `schedules` writes the rows of schedules,
//! `workflows` those of workflows and their runs, `services` those of services.
//!
//! Leases are checked first: an operation that is refused for its leases has changed nothing, so the other operations
//! of the transaction continue. Any other inconsistency breaks an invariant of the engine and stops the store: for
//! example, a row is missing, or a number or key is used twice.

mod schedules;
mod services;
mod workflows;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use async_trait::async_trait;
use model::checkpoint::CheckpointRecord;
use model::record::{Batch, Change, ExecutionRecord, JobHead, JobState, KeyRecord, Lease, LiveRow};
use model::{ExecutionId, JobId, Timestamp, WorkerId};
use mutation::{Mutation, is_on};
use rusqlite::{OptionalExtension, params};
use tokio::sync::mpsc::Sender;

use super::error::{Failure, Phase};
use super::leases::check_leases;
use super::operation::{Operation, StatisticsId};
use super::statements::Statements;
use super::{SqliteStore, file, load, readers};
use crate::batch::{Counters, EVENTS_PER_ROW, first_shard_without_lease, heads_for_executions, to_json};
use crate::changelog::Changelog;
use crate::codec::{
    Context, StateColumns, calendar_context, open_head, parse_spec, seal_checkpoint, seal_counted,
    seal_events, seal_execution, seal_head, seal_history, seal_state, seal_text,
};
use crate::{Commits, Committed, EventSeq, Loaded, StoreError};

#[async_trait]
impl Commits for SqliteStore {
    async fn load(&self, leases: &[Lease], rows: Sender<Vec<LiveRow>>) -> Result<Loaded, StoreError> {
        self.writer.done(Operation::Resume).await?;
        let (leases, trust, durable) = (leases.to_vec(), self.trust.clone(), self.durable.clone());
        // On its own connection: a load takes long, and waits for the receiver of the rows.
        let load = move || {
            file::open_reader(&trust.path)
                .and_then(|connection| {
                    let load = |connection: &_| load::load(connection, &leases, &rows);
                    readers::in_transaction(&connection, &durable, load)
                })
                .map_err(|failure| trust.judge(failure, Phase::Change))
        };
        let (outcome, seen) = tokio::task::spawn_blocking(load)
            .await
            .map_err(|error| StoreError::Unavailable { source: error.into() })??;
        self.durable.reached(seen).await;
        self.trust.check()?;
        if !outcome.damaged.is_empty() {
            self.quarantine(outcome.damaged).await?;
        }
        Ok(outcome.loaded)
    }

    async fn commit(&self, leases: &[Lease], batch: Arc<Batch>) -> Result<Committed, StoreError> {
        let (leases, statistics) = (leases.to_vec(), StatisticsId::draw());
        self.writer.committed(Operation::Commit { leases, batch, statistics }).await
    }

    /// One batch in its fsync, one being written, and one to bridge the time between the two.
    fn commits_ahead(&self) -> usize {
        3
    }

    fn has_reserve(&self) -> bool {
        true
    }

    /// No second server can open the file, so there is no standby.
    fn changelog(&self) -> Option<&dyn Changelog> {
        None
    }
}

/// Updates the counts of jobs.
pub(super) fn write_counters(statements: &mut Statements<'_>, counters: &Counters) -> Result<(), Failure> {
    for (namespace, status, by) in counters.changes() {
        statements.count.execute(params![namespace, status, by])?;
    }
    Ok(())
}

/// Writes a whole batch; the caller commits the transaction.
///
/// `next_event` is the position of the next event; it is advanced by the number of events.
pub(super) fn commit(
    statements: &mut Statements<'_>,
    leases: &[Lease],
    batch: &Batch,
    statistics: StatisticsId,
    next_event: &mut u64,
) -> Result<Committed, Failure> {
    check_leases(statements, leases)?;
    if let Some(shard) = first_shard_without_lease(leases, batch) {
        return Err(Failure::Fenced(shard));
    }
    let mut apply = Apply { statements, now: batch.now, counters: Counters::default() };
    apply.changes(&batch.changes)?;
    let first_event = EventSeq(*next_event);
    *next_event = apply.events(*next_event, batch)?;
    apply.statistics(statistics, batch)?;
    let Apply { statements, counters, .. } = apply;
    write_counters(statements, &counters)?;
    statements.advance.execute(params![batch.now.as_micros(), *next_event])?;
    Ok(Committed { first_event, extended: false, space_low: false })
}

struct Apply<'s, 'c> {
    statements: &'s mut Statements<'c>,
    now: Timestamp,
    counters: Counters,
}

impl Apply<'_, '_> {
    fn changes(&mut self, changes: &[Change]) -> Result<(), Failure> {
        // Expired keys are deleted before new ones are added. New executions take names from their jobs as of before
        // the batch, so executions come before jobs.
        for change in changes {
            if let Change::PurgeKeys { shard, expired_before } = change {
                let expired = params![shard.0, expired_before.as_micros()];
                self.statements.keys_forget.execute(expired)?;
                self.statements.run_keys_forget.execute(expired)?;
            }
        }
        let heads = heads_for_executions(changes);
        for change in changes {
            if let Change::Execution { new, record } = change {
                self.execution(*new, record, &heads)?;
            }
        }
        self.schedules(changes)?;
        self.workflows(changes)?;
        self.services(changes)?;
        for change in changes {
            match change {
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
                | Change::RemoveService(_) => {}
                Change::Job { id, new: true, head: Some(head), state } => self.new_job(*id, head, state)?,
                Change::Job { id, new: true, head: None, .. } => {
                    return Err(Failure::Broken(format!("the new job {id} has no head")));
                }
                Change::Job { id, new: false, head, state } => self.job(*id, head.as_ref(), state)?,
                Change::Checkpoint(record) => self.checkpoint(record)?,
                Change::Key(_) if is_on(Mutation::StoreForgetsKeys) => {}
                Change::Key(key) => self.key(key)?,
                Change::Worker(record) => self.put_worker(record.id, &to_json(&**record))?,
                Change::RemoveWorker(id) => {
                    self.statements.worker_delete.execute([id.to_bits().to_be_bytes()])?;
                }
                Change::Queue(record) => self.put_queue(&record.name, &to_json(&**record))?,
                Change::RemoveQueue(name) => {
                    self.statements.queue_delete.execute([name])?;
                }
                Change::Namespace(record) => self.put_namespace(&record.name, &to_json(&**record))?,
                Change::RemoveNamespace(name) => {
                    self.statements.namespace_delete.execute([name])?;
                }
                Change::Calendar(record) => {
                    self.put_calendar(&record.spec.namespace, &record.spec.name, &to_json(&**record))?;
                }
                Change::RemoveCalendar { namespace, name } => {
                    self.statements.calendar_delete.execute(params![namespace, name])?;
                }
            }
        }
        Ok(())
    }

    fn new_job(&mut self, id: JobId, head: &JobHead, state: &JobState) -> Result<(), Failure> {
        self.insert_job(id, head, state)?;
        self.counters.add(&head.spec.namespace, state.status.code(), 1);
        self.put_labels(id, &head.spec.labels)
    }

    fn insert_job(&mut self, id: JobId, head: &JobHead, state: &JobState) -> Result<(), Failure> {
        let columns = StateColumns::of(state);
        let statement = match state.status.is_final() {
            true => &mut self.statements.job_insert_ended,
            false => &mut self.statements.job_insert,
        };
        statement.execute(params![
            id.to_bits().to_be_bytes(),
            columns.status,
            columns.worker,
            columns.expires_at,
            head.spec.namespace,
            head.spec.owner,
            head.spec.queue,
            head.spec.name,
            seal_state(id, &columns, state),
            seal_history(id, &state.history),
            seal_head(id, head),
            head.origin.as_ref().map(|origin| origin.schedule.to_bits().to_be_bytes()),
            head.origin.as_ref().and_then(|origin| origin.backfill).map(|id| id.to_bits().to_be_bytes()),
            head.step.as_ref().map(|step| step.run.to_bits().to_be_bytes()),
            head.replica.as_ref().map(|replica| replica.service.to_bits().to_be_bytes()),
        ])?;
        Ok(())
    }

    fn job(&mut self, id: JobId, head: Option<&Arc<JobHead>>, state: &JobState) -> Result<(), Failure> {
        let key = id.to_bits().to_be_bytes();
        let mut rows = self.statements.job_look.query([key])?;
        let Some(row) = rows.next()? else {
            return Err(Failure::Broken(format!("the changed job {id} is not live")));
        };
        let namespace = row.get_ref(1)?.as_str().map_err(rusqlite::Error::from)?;
        self.counters.add(namespace, row.get(0)?, -1);
        if head.is_none() {
            self.counters.add(namespace, state.status.code(), 1);
        }
        drop(rows);
        if let Some(head) = head {
            self.counters.add(&head.spec.namespace, state.status.code(), 1);
            self.replace_labels(id, head)?;
        }
        match (head, state.status.is_final()) {
            (None, false) => self.update_state(id, state),
            (None, true) => self.end_job(id, state),
            (Some(head), false) => self.update_job(id, head, state),
            (Some(head), true) => {
                self.insert_job(id, head, state)?;
                self.statements.job_delete.execute([key])?;
                Ok(())
            }
        }
    }

    fn checkpoint(&mut self, record: &CheckpointRecord) -> Result<(), Failure> {
        self.statements.checkpoint_put.execute(params![
            record.job.to_bits().to_be_bytes(),
            record.version,
            record.content_type,
            record.saved_at.as_micros(),
            seal_checkpoint(record),
        ])?;
        Ok(())
    }

    fn update_state(&mut self, id: JobId, state: &JobState) -> Result<(), Failure> {
        let columns = StateColumns::of(state);
        self.statements.job_update.execute(params![
            id.to_bits().to_be_bytes(),
            columns.status,
            columns.worker,
            columns.expires_at,
            seal_state(id, &columns, state),
            seal_history(id, &state.history),
        ])?;
        Ok(())
    }

    fn update_job(&mut self, id: JobId, head: &JobHead, state: &JobState) -> Result<(), Failure> {
        let columns = StateColumns::of(state);
        self.statements.job_update_all.execute(params![
            id.to_bits().to_be_bytes(),
            columns.status,
            columns.worker,
            columns.expires_at,
            head.spec.namespace,
            head.spec.owner,
            head.spec.queue,
            head.spec.name,
            seal_state(id, &columns, state),
            seal_history(id, &state.history),
            seal_head(id, head),
            head.origin.as_ref().map(|origin| origin.schedule.to_bits().to_be_bytes()),
            head.origin.as_ref().and_then(|origin| origin.backfill).map(|id| id.to_bits().to_be_bytes()),
            head.step.as_ref().map(|step| step.run.to_bits().to_be_bytes()),
            head.replica.as_ref().map(|replica| replica.service.to_bits().to_be_bytes()),
        ])?;
        Ok(())
    }

    fn end_job(&mut self, id: JobId, state: &JobState) -> Result<(), Failure> {
        let key = id.to_bits().to_be_bytes();
        let columns = StateColumns::of(state);
        self.statements.job_end.execute(params![
            key,
            columns.status,
            columns.worker,
            columns.expires_at,
            seal_state(id, &columns, state),
            seal_history(id, &state.history),
        ])?;
        self.statements.job_delete.execute([key])?;
        Ok(())
    }

    fn put_labels(&mut self, id: JobId, labels: &BTreeMap<String, String>) -> Result<(), Failure> {
        for (key, value) in labels {
            self.statements.label_insert.execute(params![key, value, id.to_bits().to_be_bytes()])?;
        }
        Ok(())
    }

    fn replace_labels(&mut self, id: JobId, head: &JobHead) -> Result<(), Failure> {
        let sealed: Vec<u8> =
            self.statements.job_head.query_row([id.to_bits().to_be_bytes()], |row| row.get(0))?;
        delete_labels(self.statements, id, &sealed)?;
        self.put_labels(id, &head.spec.labels)
    }

    fn execution(
        &mut self,
        new: bool,
        record: &ExecutionRecord,
        heads: &HashMap<JobId, &JobHead>,
    ) -> Result<(), Failure> {
        if new {
            return self.new_execution(record, heads);
        }
        let missing = || {
            Failure::Broken(format!("the changed execution {} is not among the live executions", record.id))
        };
        let ended = record.status.is_final();
        let statement = match ended {
            true => &mut self.statements.execution_end,
            false => &mut self.statements.execution_update,
        };
        let changed = statement.execute(params![
            record.id.to_bits().to_be_bytes(),
            record.job.to_bits().to_be_bytes(),
            record.number,
            record.fence.0,
            record.worker.to_bits().to_be_bytes(),
            record.status.code(),
            seal_execution(record),
        ])?;
        if changed != 1 {
            return Err(missing());
        }
        if ended {
            self.statements.execution_delete.execute([record.id.to_bits().to_be_bytes()])?;
        }
        Ok(())
    }

    fn new_execution(
        &mut self,
        record: &ExecutionRecord,
        heads: &HashMap<JobId, &JobHead>,
    ) -> Result<(), Failure> {
        let job = record.job.to_bits().to_be_bytes();
        // Execution 1 is the first of its job; a second one with this number fails as a duplicate.
        if record.number > 1
            && self.statements.execution_rival.exists(params![job, record.number, record.fence.0])?
        {
            return Err(Failure::Broken(format!(
                "the fence {} of execution {} of the job {} does not increase with its number",
                record.fence, record.number, record.job
            )));
        }
        let (namespace, name) = match heads.get(&record.job) {
            Some(head) => (head.spec.namespace.clone(), head.spec.name.clone()),
            None => self
                .statements
                .job_names
                .query_row([job], |row| Ok((row.get(0)?, row.get(1)?)))
                .optional()?
                .ok_or_else(|| no_job(record.id, record.job))?,
        };
        let statement = match record.status.is_final() {
            true => &mut self.statements.execution_insert_ended,
            false => &mut self.statements.execution_insert,
        };
        statement.execute(params![
            record.id.to_bits().to_be_bytes(),
            job,
            record.number,
            record.fence.0,
            record.worker.to_bits().to_be_bytes(),
            record.status.code(),
            namespace,
            name,
            seal_execution(record),
        ])?;
        Ok(())
    }

    fn key(&mut self, key: &KeyRecord) -> Result<(), Failure> {
        let changed = self.statements.key_insert.execute(params![
            key.job.shard().0,
            key.expires_at.as_micros(),
            key.key.to_be_bytes(),
            key.body.to_be_bytes(),
            key.job.to_bits().to_be_bytes(),
            self.now.as_micros(),
        ])?;
        match changed {
            1 => Ok(()),
            _ => Err(Failure::Broken(format!(
                "the idempotency key {:032x} of the job {} belongs to another job",
                key.key, key.job
            ))),
        }
    }

    fn put_worker(&mut self, id: WorkerId, json: &str) -> Result<(), Failure> {
        let sealed = seal_text(Context::of(id.to_bits()), json);
        self.statements.worker_put.execute(params![id.to_bits().to_be_bytes(), sealed])?;
        Ok(())
    }

    fn put_queue(&mut self, name: &str, json: &str) -> Result<(), Failure> {
        let sealed = seal_text(Context::of_text(name), json);
        self.statements.queue_put.execute(params![name, sealed])?;
        Ok(())
    }

    fn put_namespace(&mut self, name: &str, json: &str) -> Result<(), Failure> {
        let sealed = seal_text(Context::of_text(name), json);
        self.statements.namespace_put.execute(params![name, sealed])?;
        Ok(())
    }

    fn put_calendar(&mut self, namespace: &str, name: &str, json: &str) -> Result<(), Failure> {
        let sealed = seal_text(calendar_context(namespace, name), json);
        self.statements.calendar_put.execute(params![namespace, name, sealed])?;
        Ok(())
    }

    fn statistics(&mut self, id: StatisticsId, batch: &Batch) -> Result<(), Failure> {
        if !batch.statistics.is_empty() {
            let sealed = seal_counted(batch.now, &batch.statistics);
            self.statements.statistics_insert.execute(params![id.0, batch.now.as_micros(), sealed])?;
        }
        Ok(())
    }

    /// Writes the events, and returns the position after the last one.
    fn events(&mut self, mut next: u64, batch: &Batch) -> Result<u64, Failure> {
        for events in batch.events.chunks(EVENTS_PER_ROW) {
            let newest = events.iter().map(|event| event.at).max().unwrap_or(batch.now);
            let sealed = seal_events(next, events);
            self.statements.event_insert.execute(params![next, events.len(), newest.as_micros(), sealed])?;
            next += events.len() as u64;
        }
        Ok(next)
    }
}

/// Deletes the labels that an encoded head contains.
pub(super) fn delete_labels(statements: &mut Statements<'_>, id: JobId, head: &[u8]) -> Result<(), Failure> {
    // Parsing is expensive, and most jobs have no labels. If a head cannot be decoded, its labels stay; lists skip
    // labels without a job.
    let Some(spec) = open_head(id, head)
        .ok()
        .filter(|head| head.body.contains("\"labels\""))
        .and_then(|head| parse_spec(head.body).ok())
    else {
        return Ok(());
    };
    for (key, value) in &spec.labels {
        statements.label_delete.execute(params![key, value, id.to_bits().to_be_bytes()])?;
    }
    Ok(())
}

fn no_job(execution: ExecutionId, job: JobId) -> Failure {
    Failure::Broken(format!("the new execution {execution} belongs to the job {job}, which is not live"))
}
