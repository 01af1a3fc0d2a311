//! Workflows, and the runs that have not ended, each with its steps.
//!
//! A step whose row is lost would be taken for one that has not begun, and be done twice. So a run is set
//! aside with any row of it that cannot be read; its jobs go on by themselves.

use std::collections::HashMap;
use std::sync::Arc;

use model::record::LiveRow;
use model::run::StepRecord;
use model::workflow::Definition;
use model::{RunId, WorkflowId};
use rusqlite::{Connection, OptionalExtension, Statement};

use super::{CHUNK, Loading, id_key};
use crate::codec::{Damage, open_definition};
use crate::rows::{self, Fields, RUN_COLUMNS, STEP_COLUMNS, Table, WORKFLOW_COLUMNS, WORKFLOW_REST};
use crate::sqlite::error::Failure;
use crate::sqlite::quarantine::Damaged;
use crate::sqlite::rows::{Sorted, key_of};

/// Definitions by their hashes, each read once.
type Definitions = HashMap<u128, Result<(Arc<Definition>, Arc<str>), Damage>>;

impl Loading<'_> {
    pub(super) fn workflows(&mut self) -> Result<(), Failure> {
        let sql = format!("SELECT {WORKFLOW_COLUMNS} FROM workflows t {WORKFLOW_REST} ORDER BY t.id");
        let mut statement = self.connection.prepare(&sql)?;
        let mut found = statement.query([])?;
        let mut chunk = Sorted::default();
        while let Some(row) = found.next()? {
            if row.bits(0, "id").is_ok_and(|bits| !self.shards.owns(WorkflowId::from_bits(bits).shard())) {
                continue;
            }
            chunk.push(Table::Workflows, row, rows::workflow(row))?;
            if chunk.good.len() >= CHUNK {
                self.send(std::mem::take(&mut chunk))?;
            }
        }
        self.send(chunk)
    }

    pub(super) fn runs(&mut self) -> Result<(), Failure> {
        let sql = format!(
            "SELECT {RUN_COLUMNS} FROM runs t INDEXED BY runs_live LEFT JOIN run_heads h ON h.id = t.id
             WHERE t.status < 4 ORDER BY t.id"
        );
        let mut statement = self.connection.prepare(&sql)?;
        let steps = format!("SELECT {STEP_COLUMNS} FROM steps t WHERE t.run = ?1 ORDER BY t.step, t.item");
        let mut steps = self.connection.prepare(&steps)?;
        let mut definitions = Definitions::new();
        let mut found = statement.query([])?;
        let mut chunk = Sorted::default();
        while let Some(row) = found.next()? {
            if row.bits(0, "id").is_ok_and(|bits| !self.shards.owns(RunId::from_bits(bits).shard())) {
                continue;
            }
            let connection = self.connection;
            let run = row.bits(4, "definition").and_then(|hash| {
                let known = definitions.entry(hash).or_insert_with(|| read_definition(connection, hash));
                rows::run(row, known.clone()?)
            });
            match run {
                Ok((id, live)) => {
                    let (records, damaged) = read_steps(&mut steps, id)?;
                    if damaged.is_empty() {
                        chunk.good.push(live);
                        chunk.good.extend(records.into_iter().map(|record| LiveRow::Step(Box::new(record))));
                    } else {
                        let (key, reason) = (id_key(id.to_bits()), "a step of it cannot be read".into());
                        chunk.damaged.push(Damaged { table: Table::Runs, key, reason });
                        chunk.damaged.extend(damaged);
                    }
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

fn read_definition(connection: &Connection, hash: u128) -> Result<(Arc<Definition>, Arc<str>), Damage> {
    let absent = |error: rusqlite::Error| Damage::decode("definition", error);
    let sql = "SELECT body FROM run_definitions WHERE hash = ?1";
    let body: Option<Vec<u8>> =
        connection.query_row(sql, [hash.to_be_bytes()], |row| row.get(0)).optional().map_err(absent)?;
    open_definition(hash, &body.ok_or_else(|| Damage::decode("definition", "it is not there"))?)
}

/// The rows of a run's steps, and those of them that cannot be read.
fn read_steps(statement: &mut Statement<'_>, run: RunId) -> Result<(Vec<StepRecord>, Vec<Damaged>), Failure> {
    let mut found = statement.query([run.to_bits().to_be_bytes()])?;
    let (mut records, mut damaged) = (Vec::new(), Vec::new());
    while let Some(row) = found.next()? {
        match rows::step(row) {
            Ok(record) => records.push(record),
            Err(damage) => damaged.push(Damaged::new(Table::Steps, key_of(Table::Steps, row)?, &damage)),
        }
    }
    Ok((records, damaged))
}
