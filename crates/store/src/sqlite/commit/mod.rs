//! [`Commits`]: writes a batch row by row inside the writer's transaction. `pending` collects the changes of jobs and
//! executions, and `jobs` writes them; `schedules` writes the rows of schedules, `workflows` those of workflows and their
//! runs, `services` those of services.
//!
//! Leases are checked first: an operation that is refused for its leases has changed nothing, so the other operations
//! of the transaction continue. Any other inconsistency breaks an invariant of the engine and stops the store: for
//! example, a row is missing, or a number or key is used twice.

mod jobs;
mod pending;
mod schedules;
mod services;
mod workflows;

use std::sync::Arc;

use async_trait::async_trait;
use model::record::{Batch, Lease, LiveRow};
use rusqlite::params;
use rusqlite::types::{ToSql, ToSqlOutput, ValueRef};
use tokio::sync::mpsc::Sender;

pub(super) use self::jobs::delete_labels;
pub(super) use self::pending::Pending;
use super::error::{Failure, Phase};
use super::leases::check_leases;
use super::operation::Operation;
use super::statements::Statements;
use super::{SqliteStore, file, load, readers};
use crate::batch::{EVENTS_PER_ROW, first_shard_without_lease};
use crate::changelog::Changelog;
use crate::codec::{seal_counted, seal_encoded_events, seal_events};
use crate::command::rows::{Blob, RowChange};
use crate::command::seal::{MissingHead, seal};
use crate::command::{AfterRows, Command, EventsRow, SealedCommit, StatisticsId};
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
        self.writer.committed(Command::commit(leases, batch)).await
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
pub(super) fn write_counters<'a>(
    statements: &mut Statements<'_>,
    changes: impl Iterator<Item = (&'a str, u8, i64)>,
) -> Result<(), Failure> {
    for (namespace, status, by) in changes {
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
    let mut pending = Pending::default();
    let mut apply = Apply { statements, now: batch.now.as_micros(), pending: &mut pending };
    seal(&batch.changes, |row| apply.row(row))?;
    let first_event = EventSeq(*next_event);
    for events in batch.events.chunks(EVENTS_PER_ROW) {
        let newest = events.iter().map(|event| event.at).max().unwrap_or(batch.now);
        let sealed = seal_events(*next_event, events).into();
        apply.events(next_event, events.len(), newest.as_micros(), &sealed)?;
    }
    if !batch.statistics.is_empty() {
        apply.statistics(statistics, &seal_counted(batch.now, &batch.statistics).into())?;
    }
    pending.reach(batch.now.as_micros(), *next_event);
    pending.write(statements)?;
    Ok(Committed { first_event, extended: false, space_low: false })
}

/// Writes a whole batch from a log, like [`commit`], but the rows that stay in `pending`; passes each of its rows to `see`.
pub(super) fn commit_sealed<'a>(
    statements: &mut Statements<'_>,
    commit: &SealedCommit<'a>,
    pending: &mut Pending<'a>,
    next_event: &mut u64,
    mut see: impl FnMut(&RowChange<'_>),
) -> Result<Committed, Failure> {
    check_leases(statements, &commit.leases)?;
    let mut apply = Apply { statements, now: commit.now.as_micros(), pending };
    let AfterRows { events, statistics } = commit.rows(|row| {
        see(&row);
        apply.row(row)
    })?;
    let first_event = EventSeq(*next_event);
    for EventsRow { count, newest_at, encoded } in events {
        let sealed = seal_encoded_events(*next_event, encoded.0.into_owned()).into();
        apply.events(next_event, count as usize, newest_at.as_micros(), &sealed)?;
    }
    if let Some((id, sealed)) = statistics {
        apply.statistics(id, &sealed)?;
    }
    pending.reach(commit.now.as_micros(), *next_event);
    Ok(Committed { first_event, extended: false, space_low: false })
}

/// Writes the rows of one batch.
struct Apply<'t, 'c, 'a> {
    statements: &'t mut Statements<'c>,
    /// Time of the batch, in Unix microseconds.
    now: i64,
    pending: &'t mut Pending<'a>,
}

impl<'a> Apply<'_, '_, 'a> {
    fn row(&mut self, change: RowChange<'a>) -> Result<(), Failure> {
        match change {
            RowChange::NewExecution { row, names } => self.pending.add_execution(row, names, self.statements),
            RowChange::Execution(row) => self.pending.change_execution(row),
            RowChange::NewJob { id, state, head } => self.pending.add_job(id, state, head),
            RowChange::Job { id, state, head } => self.pending.change_job(id, state, head, self.statements),
            RowChange::PurgeKeys { shard, expired_before } => {
                self.statements.keys_forget.execute(params![shard, expired_before])?;
                self.statements.run_keys_forget.execute(params![shard, expired_before])?;
                Ok(())
            }
            RowChange::RemoveSchedule(id) => self.remove_schedule(&id),
            RowChange::NewSchedule { id, state, head } => self.new_schedule(&id, &state, &head),
            RowChange::Schedule { id, state, head } => self.schedule(&id, &state, head.as_ref()),
            RowChange::Ledger(row) => self.ledger(&row),
            RowChange::NewBackfill { id, schedule, state, head } => {
                self.new_backfill(&id, &schedule, &state, &head)
            }
            RowChange::Backfill { id, state } => self.backfill(&id, &state),
            RowChange::RemoveWorkflow(id) => self.remove_workflow(&id),
            RowChange::NewWorkflow { id, generation, state, head } => {
                self.new_workflow(&id, generation, &state, &head)
            }
            RowChange::Workflow { id, generation, state, head } => {
                self.workflow(&id, generation, &state, head.as_ref())
            }
            RowChange::NewRun { id, state, head } => self.new_run(&id, &state, &head),
            RowChange::Run { id, state } => self.run(&id, &state),
            RowChange::Step { run, list, number, status, state, pins } => {
                self.step(&run, (list, number), status, &state, &pins)
            }
            RowChange::Elements { run, step, first, batch } => self.elements(&run, step, first, &batch),
            RowChange::RunKey(columns) => self.run_key(&columns),
            RowChange::RemoveService(id) => self.remove_service(&id),
            RowChange::NewService { id, state, head } => self.new_service(&id, &state, &head),
            RowChange::Service { id, state, head } => self.service(&id, &state, head.as_ref()),
            RowChange::Checkpoint { job, version, content_type, saved_at, data } => {
                self.checkpoint(&job, version, content_type, saved_at, &data)
            }
            RowChange::Key(columns) => self.key(&columns),
            RowChange::Worker { id, record } => done(self.statements.worker_put.execute(params![id, record])),
            RowChange::RemoveWorker(id) => done(self.statements.worker_delete.execute([id])),
            RowChange::Queue { name, record } => {
                done(self.statements.queue_put.execute(params![name, record]))
            }
            RowChange::RemoveQueue(name) => done(self.statements.queue_delete.execute([name])),
            RowChange::Namespace { name, record } => {
                done(self.statements.namespace_put.execute(params![name, record]))
            }
            RowChange::RemoveNamespace(name) => done(self.statements.namespace_delete.execute([name])),
            RowChange::Calendar { namespace, name, record } => {
                done(self.statements.calendar_put.execute(params![namespace, name, record]))
            }
            RowChange::RemoveCalendar { namespace, name } => {
                done(self.statements.calendar_delete.execute(params![namespace, name]))
            }
        }
    }

    /// Writes a row of events, and advances the position of the next event by their number.
    fn events(
        &mut self,
        next_event: &mut u64,
        count: usize,
        newest_at: i64,
        sealed: &Blob<'_>,
    ) -> Result<(), Failure> {
        self.statements.event_insert.execute(params![*next_event, count, newest_at, sealed])?;
        *next_event += count as u64;
        Ok(())
    }

    fn statistics(&mut self, id: StatisticsId, sealed: &Blob<'_>) -> Result<(), Failure> {
        self.statements.statistics_insert.execute(params![id.0, self.now, sealed])?;
        Ok(())
    }
}

fn done(changed: rusqlite::Result<usize>) -> Result<(), Failure> {
    changed?;
    Ok(())
}

impl From<MissingHead> for Failure {
    fn from(error: MissingHead) -> Self {
        Self::Broken(error.to_string())
    }
}

impl ToSql for Blob<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(ValueRef::Blob(&self.0)))
    }
}
