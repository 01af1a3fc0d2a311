//! One batch, row by row, inside the writer's transaction.
//!
//! Leases are looked at first: an operation that is refused for them has changed nothing, so the
//! other operations of the transaction go on. Everything else that does not fit (a row that should be
//! there and is not, a number or key used twice) breaks a promise of the engine and stops the store.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use model::record::{Batch, Change, ExecutionRecord, JobHead, JobState, KeyRecord, Lease};
use model::{ExecutionId, JobId, ShardId, Timestamp, WorkerId};
use rusqlite::{OptionalExtension, params};

use super::codec::{
    Context, StateColumns, open_head, parse_spec, seal_events, seal_execution, seal_head, seal_history,
    seal_state, seal_text,
};
use super::error::Failure;
use super::statements::Statements;
use crate::{Committed, EventSeq};

/// Events of a batch that share a row; a reader decodes at most this many more than it asked for.
const EVENTS_A_ROW: usize = 256;

/// By how much the number of jobs changes: namespace, then status by its code.
#[derive(Debug, Default)]
pub(super) struct Counters(BTreeMap<Box<str>, [i64; 8]>);

impl Counters {
    pub(super) fn add(&mut self, namespace: &str, status: u8, by: i64) {
        // Most batches have one or two namespaces: look before making a key.
        if !self.0.contains_key(namespace) {
            self.0.insert(namespace.into(), [0; 8]);
        }
        if let Some(count) = self.0.get_mut(namespace).and_then(|counts| counts.get_mut(usize::from(status)))
        {
            *count += by;
        }
    }

    pub(super) fn write(&self, statements: &mut Statements<'_>) -> Result<(), Failure> {
        for (namespace, counts) in &self.0 {
            for (status, &by) in counts.iter().enumerate().filter(|(_, by)| **by != 0) {
                statements.count.execute(params![namespace, status, by])?;
            }
        }
        Ok(())
    }
}

/// Whether every lease still holds, and none of these shards belongs to somebody else.
pub(super) fn check_leases(statements: &mut Statements<'_>, leases: &[Lease]) -> Result<(), Failure> {
    for lease in leases {
        if !statements.lease_holds.exists(params![lease.shard.0, lease.epoch.0])? {
            return Err(Failure::Fenced(lease.shard));
        }
    }
    Ok(())
}

/// The rows of a batch must be of leased shards.
fn check_shards(leases: &[Lease], batch: &Batch) -> Result<(), Failure> {
    let foreign = |shard: &ShardId| !leases.iter().any(|lease| lease.shard == *shard);
    let shards = batch.changes.iter().filter_map(|change| match change {
        Change::Job { id, .. } => Some(id.shard()),
        Change::Execution { record, .. } => Some(record.job.shard()),
        Change::Key(key) => Some(key.job.shard()),
        Change::ForgetKeys { shard, .. } => Some(*shard),
        Change::Worker(_) | Change::RemoveWorker(_) | Change::Queue(_) => None,
    });
    match shards.filter(foreign).min() {
        Some(shard) => Err(Failure::Fenced(shard)),
        None => Ok(()),
    }
}

/// Writes a whole batch; the caller commits it.
///
/// `next_event` is the place of the next event, and is moved on.
pub(super) fn commit(
    statements: &mut Statements<'_>,
    leases: &[Lease],
    batch: &Batch,
    next_event: &mut u64,
) -> Result<Committed, Failure> {
    check_leases(statements, leases)?;
    check_shards(leases, batch)?;
    let mut apply = Apply { statements, now: batch.now, counters: Counters::default() };
    apply.changes(&batch.changes)?;
    let first_event = EventSeq(*next_event);
    *next_event = apply.events(*next_event, batch)?;
    let Apply { statements, counters, .. } = apply;
    counters.write(statements)?;
    statements.advance.execute(params![batch.now.as_micros(), *next_event])?;
    Ok(Committed { first_event })
}

struct Apply<'s, 'c> {
    statements: &'s mut Statements<'c>,
    now: Timestamp,
    counters: Counters,
}

impl Apply<'_, '_> {
    fn changes(&mut self, changes: &[Change]) -> Result<(), Failure> {
        // Room for new keys is made first. New executions take names from their jobs as these stood
        // before the batch, so they come before the jobs.
        for change in changes {
            if let Change::ForgetKeys { shard, expired_before } = change {
                self.statements.keys_forget.execute(params![shard.0, expired_before.as_micros()])?;
            }
        }
        let heads = heads_for_executions(changes);
        for change in changes {
            if let Change::Execution { new, record } = change {
                self.execution(*new, record, &heads)?;
            }
        }
        for change in changes {
            match change {
                Change::Execution { .. } | Change::ForgetKeys { .. } => {}
                Change::Job { id, new: true, head: Some(head), state } => self.new_job(*id, head, state)?,
                Change::Job { id, new: true, head: None, .. } => {
                    return Err(Failure::Broken(format!("the new job {id} came without its head")));
                }
                Change::Job { id, new: false, head, state } => self.job(*id, head.as_ref(), state)?,
                Change::Key(key) => self.key(key)?,
                Change::Worker(record) => self.put_worker(record.id, &to_json(&**record))?,
                Change::RemoveWorker(id) => {
                    self.statements.worker_delete.execute([id.to_bits().to_be_bytes()])?;
                }
                Change::Queue(record) => self.put_queue(&record.name, &to_json(&**record))?,
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
        ])?;
        Ok(())
    }

    fn job(&mut self, id: JobId, head: Option<&Arc<JobHead>>, state: &JobState) -> Result<(), Failure> {
        let key = id.to_bits().to_be_bytes();
        let mut rows = self.statements.job_look.query([key])?;
        let Some(row) = rows.next()? else {
            return Err(Failure::Broken(format!("the job {id} was changed and is not among the live ones")));
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
            Failure::Broken(format!("the execution {} was changed and is not among the live ones", record.id))
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
        // The first has no other beside it, or its number is taken.
        if record.number > 1
            && self.statements.execution_rival.exists(params![job, record.number, record.fence.0])?
        {
            return Err(Failure::Broken(format!(
                "the fence {} of execution {} of the job {} does not grow with its number",
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

    /// Writes the events and answers with the place after the last.
    fn events(&mut self, mut next: u64, batch: &Batch) -> Result<u64, Failure> {
        for events in batch.events.chunks(EVENTS_A_ROW) {
            let newest = events.iter().map(|event| event.at).max().unwrap_or(batch.now);
            let sealed = seal_events(next, events);
            self.statements.event_insert.execute(params![next, events.len(), newest.as_micros(), sealed])?;
            next += events.len() as u64;
        }
        Ok(next)
    }
}

fn no_job(execution: ExecutionId, job: JobId) -> Failure {
    Failure::Broken(format!("the execution {execution} was made for the job {job}, which is not live"))
}

/// The heads in the batch, where it has new executions that may need them.
fn heads_for_executions(changes: &[Change]) -> HashMap<JobId, &JobHead> {
    if !changes.iter().any(|change| matches!(change, Change::Execution { new: true, .. })) {
        return HashMap::new();
    }
    let head = |change| match change {
        &Change::Job { id, head: Some(ref head), .. } => Some((id, &**head)),
        _ => None,
    };
    changes.iter().filter_map(head).collect()
}

fn to_json<T: serde::Serialize>(record: &T) -> String {
    serde_json::to_string(record).expect("records are plain data")
}

/// Deletes the labels that a sealed head has.
pub(super) fn delete_labels(statements: &mut Statements<'_>, id: JobId, head: &[u8]) -> Result<(), Failure> {
    // Parsing is dear and most jobs have none. A head that cannot be read leaves its labels behind;
    // lists pass over labels without a job.
    let Some(spec) = open_head(id, head)
        .ok()
        .filter(|(body, _)| body.contains("\"labels\""))
        .and_then(|(body, _)| parse_spec(body).ok())
    else {
        return Ok(());
    };
    for (key, value) in &spec.labels {
        statements.label_delete.execute(params![key, value, id.to_bits().to_be_bytes()])?;
    }
    Ok(())
}
