//! Reads of single live rows by key, for a standby.
//!
//! All rows are read in one transaction, from one snapshot, in the order of a load.

use std::collections::BTreeSet;

use model::changelog::{LiveKey, ReloadedRows};
use model::record::LiveRow;
use rusqlite::Connection;

use super::error::Failure;
use super::load;
use super::quarantine::DamagedRow;
use super::rows::Decoded;
use super::views::{self, DefinitionCache};
use crate::rows::{
    self, BACKFILL_COLUMNS, BACKFILL_REST, ELEMENTS_COLUMNS, EXECUTION_COLUMNS, Fields, JOB_COLUMNS,
    RUN_COLUMNS, RUN_REST, RawJob, RawSchedule, SCHEDULE_COLUMNS, SCHEDULE_REST, SERVICE_COLUMNS,
    SERVICE_REST, STEP_COLUMNS, Table, WORKFLOW_COLUMNS, WORKFLOW_REST,
};

/// Reads the live rows of `keys`.
pub(super) fn live_rows(connection: &Connection, keys: &[LiveKey]) -> Result<ReloadedRows, Failure> {
    // The order of the keys is that of a load, except that services come before jobs.
    let (keys, services): (BTreeSet<_>, BTreeSet<_>) =
        keys.iter().copied().partition(|key| !matches!(key, LiveKey::Service(_)));
    let mut reading = Reading { connection, found: ReloadedRows { rows: Vec::new(), unreadable: 0 } };
    let is_job = |key: &LiveKey| matches!(key, LiveKey::Job(_));
    for key in keys.iter().filter(|key| !is_job(key)).chain(&services) {
        reading.read(*key)?;
    }
    for key in keys.iter().filter(|key| is_job(key)) {
        reading.read(*key)?;
    }
    // A load sends all executions after all jobs.
    let (mut rows, executions): (Vec<_>, Vec<_>) =
        reading.found.rows.into_iter().partition(|row| !matches!(row, LiveRow::Execution(_)));
    rows.extend(executions);
    Ok(ReloadedRows { rows, ..reading.found })
}

struct Reading<'c> {
    connection: &'c Connection,
    found: ReloadedRows,
}

impl Reading<'_> {
    fn read(&mut self, key: LiveKey) -> Result<(), Failure> {
        match key {
            LiveKey::Workers => {
                let workers = load::workers(self.connection)?;
                self.add(workers, LiveRow::Worker);
            }
            LiveKey::Queues => {
                let queues = load::queues(self.connection)?;
                self.add(queues, LiveRow::Queue);
            }
            LiveKey::Namespaces => {
                let namespaces = load::namespaces(self.connection)?;
                self.add(namespaces, LiveRow::Namespace);
            }
            LiveKey::Calendars => {
                let calendars = views::calendars(self.connection, None)?;
                self.add(calendars, LiveRow::Calendar);
            }
            LiveKey::Schedule(id) => {
                let sql =
                    format!("SELECT {SCHEDULE_COLUMNS} FROM schedules t {SCHEDULE_REST} WHERE t.id = ?1");
                self.rows(&sql, id.to_bits(), Table::Schedules, |row| {
                    let id = row.bits(0, "id").map(model::ScheduleId::from_bits)?;
                    RawSchedule::read(row, id)?.decode()
                })?;
            }
            LiveKey::Backfill(id) => {
                let sql = format!(
                    "SELECT {BACKFILL_COLUMNS} FROM backfills t {BACKFILL_REST} WHERE t.id = ?1 AND t.status = 0"
                );
                self.rows(&sql, id.to_bits(), Table::Backfills, |row| {
                    rows::backfill(row).map(|row| LiveRow::Backfill { head: row.head, state: row.state })
                })?;
            }
            LiveKey::Workflow(id) => {
                let sql =
                    format!("SELECT {WORKFLOW_COLUMNS} FROM workflows t {WORKFLOW_REST} WHERE t.id = ?1");
                self.rows(&sql, id.to_bits(), Table::Workflows, |row| {
                    rows::workflow(row).map(LiveRow::from)
                })?;
            }
            LiveKey::Run(id) => self.run(id.to_bits())?,
            LiveKey::Service(id) => {
                let sql = format!("SELECT {SERVICE_COLUMNS} FROM services t {SERVICE_REST} WHERE t.id = ?1");
                self.rows(&sql, id.to_bits(), Table::Services, |row| rows::service(row).map(LiveRow::from))?;
            }
            LiveKey::Job(id) => {
                let sql = format!("SELECT {JOB_COLUMNS}, t.history FROM jobs t WHERE t.id = ?1");
                self.rows(&sql, id.to_bits(), Table::Jobs, |row| {
                    let id = row.bits(0, "id").map(model::JobId::from_bits)?;
                    RawJob::read(row, id)?.decode()
                })?;
                let sql =
                    format!("SELECT {EXECUTION_COLUMNS} FROM executions t WHERE t.job = ?1 ORDER BY t.id");
                self.rows(&sql, id.to_bits(), Table::Executions, |row| {
                    rows::execution(row).map(|found| LiveRow::Execution(Box::new(found.record)))
                })?;
            }
        }
        Ok(())
    }

    /// Reads a live run, with its added elements and its steps.
    fn run(&mut self, id: u128) -> Result<(), Failure> {
        let sql = format!("SELECT {RUN_COLUMNS} FROM runs t {RUN_REST} WHERE t.id = ?1 AND t.status < 4");
        let mut definitions = DefinitionCache::new(self.connection);
        let before = self.found.rows.len() as u64 + self.found.unreadable;
        self.rows(&sql, id, Table::Runs, |row| {
            rows::run(row, |hash| definitions.pinned(hash)).map(LiveRow::from)
        })?;
        definitions.check()?;
        if self.found.rows.len() as u64 + self.found.unreadable == before {
            return Ok(());
        }
        let sql = format!(
            "SELECT {ELEMENTS_COLUMNS} FROM element_batches t WHERE t.run = ?1 ORDER BY t.step, t.first"
        );
        self.rows(&sql, id, Table::ElementBatches, |row| {
            rows::elements(row).map(|batch| LiveRow::ElementBatch(Box::new(batch)))
        })?;
        let sql = format!("SELECT {STEP_COLUMNS} FROM steps t WHERE t.run = ?1 ORDER BY t.list, t.number");
        self.rows(&sql, id, Table::Steps, |row| rows::step(row).map(|record| LiveRow::Step(Box::new(record))))
    }

    fn rows(
        &mut self,
        sql: &str,
        id: u128,
        table: Table,
        mut decode: impl FnMut(&rusqlite::Row<'_>) -> Result<LiveRow, crate::codec::DecodeError>,
    ) -> Result<(), Failure> {
        let mut statement = self.connection.prepare_cached(sql)?;
        let mut found = statement.query([id.to_be_bytes()])?;
        let mut sorted = Decoded::default();
        while let Some(row) = found.next()? {
            sorted.push(table, row, decode(row))?;
        }
        self.add(sorted, |row| row);
        Ok(())
    }

    /// Adds the rows that could be decoded; counts and logs the others.
    fn add<T>(&mut self, sorted: Decoded<T>, live: impl Fn(T) -> LiveRow) {
        self.found.unreadable += sorted.damaged.len() as u64;
        sorted.damaged.iter().for_each(DamagedRow::log_damage);
        self.found.rows.extend(sorted.good.into_iter().map(live));
    }
}
