//! Load of calendars, schedules and running backfills.
//!
//! A backfill cannot continue without its schedule, so both are quarantined if the schedule cannot be decoded. The jobs
//! of such a schedule continue on their own.

use std::collections::HashSet;

use model::record::LiveRow;
use model::{ScheduleId, ShardId};
use rusqlite::Connection;

use super::{Bad, CHUNK, Loading, Shards, id_key};
use crate::rows::{
    self, BACKFILL_COLUMNS, BACKFILL_REST, Fields, RawSchedule, SCHEDULE_COLUMNS, SCHEDULE_REST, Table,
};
use crate::sqlite::error::Failure;
use crate::sqlite::quarantine::DamagedRow;
use crate::sqlite::rows::{Decoded, key_of};
use crate::sqlite::views;

impl Loading<'_> {
    pub(super) fn calendars(&mut self) -> Result<(), Failure> {
        let calendars = views::calendars(self.connection, None)?;
        self.damaged.extend(calendars.damaged);
        self.send_all(calendars.good.into_iter().map(LiveRow::Calendar).collect())
    }

    /// Sends the schedules, and returns the IDs of those that could not be decoded.
    pub(super) fn schedules(&mut self) -> Result<HashSet<ScheduleId>, Failure> {
        let (connection, shards) = (self.connection, &self.shards);
        let decode = |raw: RawSchedule| raw.decode().map_err(|damage| bad(raw.id, damage.to_string()));
        let read = |send: &mut dyn FnMut(Vec<RawSchedule>) -> Result<(), Failure>| {
            read_schedules(connection, shards, send)
        };
        let decoded = super::decode_in_background(self.rows, read, decode)?;
        Ok(self.take(decoded))
    }

    /// Sends the running backfills, except those whose schedule is lost.
    pub(super) fn backfills(&mut self, lost: &HashSet<ScheduleId>) -> Result<(), Failure> {
        let sql = format!(
            "SELECT {BACKFILL_COLUMNS} FROM backfills t INDEXED BY backfills_running {BACKFILL_REST}
             WHERE t.status = 0 ORDER BY t.id"
        );
        let mut statement = self.connection.prepare(&sql)?;
        let mut found = statement.query([])?;
        let mut chunk = Decoded::default();
        while let Some(row) = found.next()? {
            if row.bits(0, "id").is_ok_and(|bits| !self.shards.owns(shard_of(bits))) {
                continue;
            }
            match rows::backfill(row) {
                Ok(found) if lost.contains(&found.head.schedule) => {
                    let reason = format!("its schedule {} cannot be read", found.head.schedule);
                    let key = id_key(found.head.id.to_bits());
                    chunk.damaged.push(DamagedRow::new(Table::Backfills, key, reason));
                }
                decoded => {
                    let decoded = decoded.map(|row| LiveRow::Backfill { head: row.head, state: row.state });
                    chunk.push(Table::Backfills, row, decoded)?;
                }
            }
        }
        self.send(chunk)
    }
}

fn shard_of(bits: u128) -> ShardId {
    ScheduleId::from_bits(bits).shard()
}

fn bad(id: ScheduleId, reason: String) -> Bad<ScheduleId> {
    (Some(id), DamagedRow::new(Table::Schedules, id_key(id.to_bits()), reason))
}

fn read_schedules(
    connection: &Connection,
    shards: &Shards,
    send: &mut dyn FnMut(Vec<RawSchedule>) -> Result<(), Failure>,
) -> Result<Vec<Bad<ScheduleId>>, Failure> {
    let sql = format!("SELECT {SCHEDULE_COLUMNS} FROM schedules t {SCHEDULE_REST} ORDER BY t.id");
    let mut statement = connection.prepare(&sql)?;
    let mut found = statement.query([])?;
    let mut bad = Vec::new();
    let mut chunk = Vec::with_capacity(CHUNK);
    while let Some(row) = found.next()? {
        let id = row.bits(0, "id").map(ScheduleId::from_bits);
        if id.as_ref().is_ok_and(|id| !shards.owns(id.shard())) {
            continue;
        }
        match id.clone().and_then(|id| RawSchedule::read(row, id)) {
            Ok(raw) => chunk.push(raw),
            Err(damage) => {
                let key = key_of(Table::Schedules, row)?;
                bad.push((id.ok(), DamagedRow::new(Table::Schedules, key, &damage)));
            }
        }
        if chunk.len() == CHUNK {
            send(std::mem::replace(&mut chunk, Vec::with_capacity(CHUNK)))?;
        }
    }
    send(chunk)?;
    Ok(bad)
}
