//! Writes schedules, their ledger and their backfills.
//!
//! A firing updates one small row, and adds one ledger entry and one job. It looks up nothing but the
//! namespace of the entry, in the row that was just updated.
//!
//! The last safeguard of "one scheduled time, one job" is in `ledger`: an entry with a job never gets another
//! one. Labels have rows of their own; the old ones are found by the old head.

use model::{BackfillId, ScheduleId, Timestamp};
use rusqlite::{OptionalExtension, params};

use super::Apply;
use crate::codec::{firing_cause, open_schedule_head, parse_schedule_spec};
use crate::command::rows::{BackfillColumns, Blob, Key, Labels, LedgerRow, NamedHead, ScheduleColumns};
use crate::sqlite::error::Failure;

impl Apply<'_, '_, '_> {
    pub(super) fn remove_schedule(&mut self, id: &Key) -> Result<(), Failure> {
        self.delete_schedule_labels(id)?;
        self.statements.schedule_head_delete.execute([id])?;
        self.statements.schedule_delete.execute([id])?;
        Ok(())
    }

    pub(super) fn new_schedule(
        &mut self,
        id: &Key,
        state: &ScheduleColumns<'_>,
        head: &NamedHead<'_>,
    ) -> Result<(), Failure> {
        let ScheduleColumns { status, next_at, state } = state;
        let row = params![id, status, next_at, head.namespace, head.name, head.owner, state];
        self.statements.schedule_insert.execute(row)?;
        self.statements.schedule_head_insert.execute(params![id, head.head])?;
        self.put_schedule_labels(id, &head.labels)
    }

    pub(super) fn schedule(
        &mut self,
        id: &Key,
        state: &ScheduleColumns<'_>,
        head: Option<&NamedHead<'_>>,
    ) -> Result<(), Failure> {
        let ScheduleColumns { status, next_at, state } = state;
        let changed = match head {
            None => self.statements.schedule_update.execute(params![id, status, next_at, state])?,
            Some(head) => {
                let row = params![id, status, next_at, head.namespace, head.name, head.owner, state];
                self.statements.schedule_update_all.execute(row)?
            }
        };
        if changed != 1 {
            let id = schedule_id(id);
            return Err(Failure::Broken(format!("the changed schedule {id} does not exist")));
        }
        if let Some(head) = head {
            self.delete_schedule_labels(id)?;
            self.statements.schedule_head_update.execute(params![id, head.head])?;
            self.put_schedule_labels(id, &head.labels)?;
        }
        Ok(())
    }

    fn put_schedule_labels(&mut self, id: &Key, labels: &Labels<'_>) -> Result<(), Failure> {
        for (key, value) in labels {
            self.statements.schedule_label_insert.execute(params![key, value, id])?;
        }
        Ok(())
    }

    /// Deletes the labels in the head. If the head cannot be decoded, the labels stay; lists skip labels without a
    /// schedule.
    fn delete_schedule_labels(&mut self, id: &Key) -> Result<(), Failure> {
        let sealed: Option<Vec<u8>> =
            self.statements.schedule_head.query_row([id], |row| row.get(0)).optional()?;
        let spec = sealed
            .as_deref()
            .and_then(|sealed| open_schedule_head(schedule_id(id), sealed).ok())
            .and_then(|body| parse_schedule_spec(body).ok());
        for (label, value) in spec.iter().flat_map(|spec| &spec.labels) {
            self.statements.schedule_label_delete.execute(params![label, value, id])?;
        }
        Ok(())
    }

    /// Writes a ledger entry. An entry with a job never gets another job, which is the last safeguard of "one scheduled
    /// time, one job": an engine that attempts it no longer has the record of what has fired.
    pub(super) fn ledger(&mut self, row: &LedgerRow<'_>) -> Result<(), Failure> {
        let changed = self.statements.ledger_put.execute(params![
            row.first,
            row.schedule,
            row.generation,
            row.cause,
            row.backfill.as_ref().map_or(&[][..], <[u8; 16]>::as_slice),
            row.last,
            row.count,
            row.outcome,
            row.work,
            row.decided_at,
            row.rest,
        ])?;
        match changed {
            1 => Ok(()),
            _ => Err(Failure::Broken(format!(
                "the scheduled time {} of the schedule {} (generation {}, {}) has a job and cannot get another one",
                Timestamp::from_micros(row.first),
                schedule_id(&row.schedule),
                row.generation,
                firing_cause("cause", row.cause)
                    .map_or_else(|error| error.to_string(), |cause| cause.to_string()),
            ))),
        }
    }

    pub(super) fn new_backfill(
        &mut self,
        id: &Key,
        schedule: &Key,
        state: &BackfillColumns<'_>,
        head: &Blob<'_>,
    ) -> Result<(), Failure> {
        let BackfillColumns { status, finished_at, state } = state;
        let row = params![id, schedule, status, finished_at, state];
        self.statements.backfill_insert.execute(row)?;
        self.statements.backfill_head_insert.execute(params![id, head])?;
        Ok(())
    }

    pub(super) fn backfill(&mut self, id: &Key, state: &BackfillColumns<'_>) -> Result<(), Failure> {
        let BackfillColumns { status, finished_at, state } = state;
        match self.statements.backfill_update.execute(params![id, status, finished_at, state])? {
            1 => Ok(()),
            _ => {
                let id = BackfillId::from_bits(u128::from_be_bytes(*id));
                Err(Failure::Broken(format!("the changed backfill {id} does not exist")))
            }
        }
    }
}

fn schedule_id(key: &Key) -> ScheduleId {
    ScheduleId::from_bits(u128::from_be_bytes(*key))
}
