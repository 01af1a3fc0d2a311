//! Load of workflows and live runs. The elements that tasks added to a run, and its steps, are loaded with the run.
//!
//! A step without its row would look as if it had not started, and would run twice. Missing elements would change the
//! indexes of later ones. So if any row of a run cannot be decoded, the run is quarantined. Its jobs continue on their
//! own.

use model::record::LiveRow;
use model::{RunId, WorkflowId};
use rusqlite::{Connection, Row, Statement};

use super::{CHUNK, Loading, id_key};
use crate::codec::DecodeError;
use crate::rows::{
    self, ELEMENTS_COLUMNS, Fields, RUN_COLUMNS, RUN_REST, STEP_COLUMNS, Table, WORKFLOW_COLUMNS,
    WORKFLOW_REST,
};
use crate::sqlite::error::Failure;
use crate::sqlite::quarantine::DamagedRow;
use crate::sqlite::rows::Decoded;
use crate::sqlite::views::DefinitionCache;

impl Loading<'_> {
    pub(super) fn workflows(&mut self) -> Result<(), Failure> {
        let sql = format!("SELECT {WORKFLOW_COLUMNS} FROM workflows t {WORKFLOW_REST} ORDER BY t.id");
        let mut statement = self.connection.prepare(&sql)?;
        let mut found = statement.query([])?;
        let mut chunk = Decoded::default();
        while let Some(row) = found.next()? {
            if row.bits(0, "id").is_ok_and(|bits| !self.shards.owns(WorkflowId::from_bits(bits).shard())) {
                continue;
            }
            chunk.push(Table::Workflows, row, rows::workflow(row).map(LiveRow::from))?;
            if chunk.good.len() >= CHUNK {
                self.send(std::mem::take(&mut chunk))?;
            }
        }
        self.send(chunk)
    }

    pub(super) fn runs(&mut self) -> Result<(), Failure> {
        let sql = format!(
            "SELECT {RUN_COLUMNS} FROM runs t INDEXED BY runs_live {RUN_REST}
             WHERE t.status < 4 ORDER BY t.id"
        );
        let mut statement = self.connection.prepare(&sql)?;
        let mut parts = Parts::prepare(self.connection)?;
        let mut pins = DefinitionCache::new(self.connection);
        let mut found = statement.query([])?;
        let mut chunk = Decoded::default();
        while let Some(row) = found.next()? {
            if row.bits(0, "id").is_ok_and(|bits| !self.shards.owns(RunId::from_bits(bits).shard())) {
                continue;
            }
            let run = rows::run(row, |hash| pins.pinned(hash));
            pins.check()?;
            match run {
                Ok(run) => {
                    let id = run.id;
                    let found = parts.of(id)?;
                    match found.damaged.first() {
                        None => {
                            chunk.good.push(run.into());
                            chunk.good.extend(found.good);
                        }
                        Some(first) => {
                            let reason = format!("a row in `{}` cannot be read", first.table.name());
                            let key = id_key(id.to_bits());
                            chunk.damaged.push(DamagedRow::new(Table::Runs, key, reason));
                        }
                    }
                    chunk.damaged.extend(found.damaged);
                }
                Err(damage) => chunk.push(Table::Runs, row, Err(damage))?,
            }
            if chunk.good.len() >= CHUNK {
                self.send(std::mem::take(&mut chunk))?;
            }
        }
        self.send(chunk)
    }
}

/// Prepared queries for the rows of a run other than its own row.
struct Parts<'c> {
    elements: Statement<'c>,
    steps: Statement<'c>,
}

impl<'c> Parts<'c> {
    fn prepare(connection: &'c Connection) -> Result<Self, Failure> {
        let elements = format!(
            "SELECT {ELEMENTS_COLUMNS} FROM element_batches t WHERE t.run = ?1 ORDER BY t.step, t.first"
        );
        let steps = format!("SELECT {STEP_COLUMNS} FROM steps t WHERE t.run = ?1 ORDER BY t.list, t.number");
        Ok(Self { elements: connection.prepare(&elements)?, steps: connection.prepare(&steps)? })
    }

    /// Returns the batches of elements that tasks added to a run, and the steps of the run.
    fn of(&mut self, run: RunId) -> Result<Decoded<LiveRow>, Failure> {
        let mut sorted = Decoded::default();
        read(&mut self.elements, run, Table::ElementBatches, &mut sorted, |row| {
            rows::elements(row).map(|batch| LiveRow::ElementBatch(Box::new(batch)))
        })?;
        read(&mut self.steps, run, Table::Steps, &mut sorted, |row| {
            rows::step(row).map(|record| LiveRow::Step(Box::new(record)))
        })?;
        Ok(sorted)
    }
}

fn read(
    statement: &mut Statement<'_>,
    run: RunId,
    table: Table,
    sorted: &mut Decoded<LiveRow>,
    decode: impl Fn(&Row<'_>) -> Result<LiveRow, DecodeError>,
) -> Result<(), Failure> {
    let mut found = statement.query([run.to_bits().to_be_bytes()])?;
    while let Some(row) = found.next()? {
        sorted.push(table, row, decode(row))?;
    }
    Ok(())
}
