//! Writes schedules, their ledger and their backfills.
//!
//! A firing updates one small row, and adds one ledger entry and one job. It looks up nothing but the
//! namespace of the entry, in the row that was just updated.
//!
//! The last safeguard of "one scheduled time, one job" is in `line`: an entry with a job never gets another
//! one. Labels have rows of their own; the old ones are found by the old head.

use std::collections::HashSet;
use std::sync::Arc;

use model::firing::{BackfillHead, BackfillState, LedgerRecord, ScheduleHead, ScheduleState};
use model::record::Change;
use model::{BackfillId, ScheduleId};
use rusqlite::{OptionalExtension, params};

use super::Apply;
use crate::codec::{
    BackfillColumns, LedgerColumns, ScheduleColumns, open_schedule_head, parse_schedule_spec, seal_backfill,
    seal_backfill_head, seal_ledger, seal_schedule, seal_schedule_head,
};
use crate::sqlite::error::Failure;

impl Apply<'_, '_> {
    /// Writes the changes of schedules in a batch.
    ///
    /// A ledger entry takes its namespace from its schedule. So entries are written while the schedule exists: before
    /// its removal, and after its creation. The name of a removed schedule is free for a new one.
    pub(super) fn schedules(&mut self, changes: &[Change]) -> Result<(), Failure> {
        let removed = self.remove_schedules(changes)?;
        for change in changes {
            if let Change::Schedule { id, new, head, state } = change {
                match (new, head) {
                    (true, Some(head)) => self.new_schedule(*id, head, state)?,
                    (true, None) => {
                        return Err(Failure::Broken(format!("the new schedule {id} has no head")));
                    }
                    (false, head) => self.schedule(*id, head.as_ref(), state)?,
                }
            }
        }
        for change in changes {
            match change {
                Change::Ledger(record) if !removed.contains(&record.schedule) => self.line(record)?,
                Change::Backfill { id, head: Some(head), state } => self.new_backfill(*id, head, state)?,
                Change::Backfill { id, head: None, state } => self.backfill(*id, state)?,
                _ => {}
            }
        }
        Ok(())
    }

    /// Writes the last ledger entries of the schedules that the batch removes, then removes the schedules.
    fn remove_schedules(&mut self, changes: &[Change]) -> Result<HashSet<ScheduleId>, Failure> {
        let removed = |change: &Change| match change {
            Change::RemoveSchedule(id) => Some(*id),
            _ => None,
        };
        let removed: HashSet<_> = changes.iter().filter_map(removed).collect();
        if removed.is_empty() {
            return Ok(removed);
        }
        for change in changes {
            match change {
                Change::Ledger(record) if removed.contains(&record.schedule) => self.line(record)?,
                _ => {}
            }
        }
        for id in &removed {
            let key = id.to_bits().to_be_bytes();
            self.delete_schedule_labels(*id)?;
            self.statements.schedule_head_delete.execute([key])?;
            self.statements.schedule_delete.execute([key])?;
        }
        Ok(removed)
    }

    fn new_schedule(
        &mut self,
        id: ScheduleId,
        head: &ScheduleHead,
        state: &ScheduleState,
    ) -> Result<(), Failure> {
        let (key, columns) = (id.to_bits().to_be_bytes(), ScheduleColumns::of(state));
        self.statements.schedule_insert.execute(params![
            key,
            columns.status,
            columns.next_at,
            head.spec.namespace,
            head.spec.name,
            head.spec.owner,
            seal_schedule(id, &columns, state),
        ])?;
        self.statements.schedule_head_insert.execute(params![key, seal_schedule_head(id, head)])?;
        self.put_schedule_labels(id, head)
    }

    fn schedule(
        &mut self,
        id: ScheduleId,
        head: Option<&Arc<ScheduleHead>>,
        state: &ScheduleState,
    ) -> Result<(), Failure> {
        let (key, columns) = (id.to_bits().to_be_bytes(), ScheduleColumns::of(state));
        let sealed = seal_schedule(id, &columns, state);
        let changed = match head {
            None => {
                let row = params![key, columns.status, columns.next_at, sealed];
                self.statements.schedule_update.execute(row)?
            }
            Some(head) => {
                let (spec, statements) = (&head.spec, &mut *self.statements);
                let (status, next_at) = (columns.status, columns.next_at);
                let row = params![key, status, next_at, spec.namespace, spec.name, spec.owner, sealed];
                statements.schedule_update_all.execute(row)?
            }
        };
        if changed != 1 {
            return Err(Failure::Broken(format!("the changed schedule {id} does not exist")));
        }
        if let Some(head) = head {
            self.delete_schedule_labels(id)?;
            self.statements.schedule_head_update.execute(params![key, seal_schedule_head(id, head)])?;
            self.put_schedule_labels(id, head)?;
        }
        Ok(())
    }

    fn put_schedule_labels(&mut self, id: ScheduleId, head: &ScheduleHead) -> Result<(), Failure> {
        for (key, value) in &head.spec.labels {
            let row = params![key, value, id.to_bits().to_be_bytes()];
            self.statements.schedule_label_insert.execute(row)?;
        }
        Ok(())
    }

    /// Deletes the labels in the head. If the head cannot be decoded, the labels stay; lists skip labels without a
    /// schedule.
    fn delete_schedule_labels(&mut self, id: ScheduleId) -> Result<(), Failure> {
        let key = id.to_bits().to_be_bytes();
        let sealed: Option<Vec<u8>> =
            self.statements.schedule_head.query_row([key], |row| row.get(0)).optional()?;
        let spec = sealed
            .as_deref()
            .and_then(|sealed| open_schedule_head(id, sealed).ok())
            .and_then(|body| parse_schedule_spec(body).ok());
        for (label, value) in spec.iter().flat_map(|spec| &spec.labels) {
            self.statements.schedule_label_delete.execute(params![label, value, key])?;
        }
        Ok(())
    }

    /// Writes a ledger entry. An entry with a job never gets another job, which is the last safeguard of "one scheduled
    /// time, one job": an engine that attempts it no longer has the record of what has fired.
    fn line(&mut self, record: &LedgerRecord) -> Result<(), Failure> {
        let columns = LedgerColumns::of(record);
        let changed = self.statements.ledger_put.execute(params![
            columns.first,
            columns.schedule.to_bits().to_be_bytes(),
            columns.generation,
            columns.cause,
            columns.backfill_key(),
            columns.last,
            columns.count,
            columns.outcome,
            columns.work.map(u128::to_be_bytes),
            columns.decided_at,
            seal_ledger(record),
        ])?;
        match changed {
            1 => Ok(()),
            _ => Err(Failure::Broken(format!(
                "the scheduled time {} of the schedule {} (generation {}, {}) has a job and cannot get {}",
                record.first,
                record.schedule,
                record.generation,
                record.cause,
                record.work.map_or_else(|| "none".to_owned(), |work| work.to_string()),
            ))),
        }
    }

    fn new_backfill(
        &mut self,
        id: BackfillId,
        head: &BackfillHead,
        state: &BackfillState,
    ) -> Result<(), Failure> {
        let (key, columns) = (id.to_bits().to_be_bytes(), BackfillColumns::of(state));
        self.statements.backfill_insert.execute(params![
            key,
            head.schedule.to_bits().to_be_bytes(),
            columns.status,
            columns.finished_at,
            seal_backfill(id, state),
        ])?;
        self.statements.backfill_head_insert.execute(params![key, seal_backfill_head(head)])?;
        Ok(())
    }

    fn backfill(&mut self, id: BackfillId, state: &BackfillState) -> Result<(), Failure> {
        let columns = BackfillColumns::of(state);
        let changed = self.statements.backfill_update.execute(params![
            id.to_bits().to_be_bytes(),
            columns.status,
            columns.finished_at,
            seal_backfill(id, state),
        ])?;
        match changed {
            1 => Ok(()),
            _ => Err(Failure::Broken(format!("the changed backfill {id} does not exist"))),
        }
    }
}
