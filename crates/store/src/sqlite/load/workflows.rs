//! Workflows, and the runs that have not ended, each with its steps.
//!
//! A step whose row is lost would be taken for one that has not begun, and be done twice. So a run is set
//! aside with any row of it that cannot be read; its jobs go on by themselves.

use model::record::LiveRow;
use model::run::StepRecord;
use model::{RunId, WorkflowId};
use rusqlite::Statement;

use super::{CHUNK, Loading, id_key};
use crate::rows::{
    self, Fields, RUN_COLUMNS, RUN_REST, STEP_COLUMNS, Table, WORKFLOW_COLUMNS, WORKFLOW_REST,
};
use crate::sqlite::error::Failure;
use crate::sqlite::quarantine::Damaged;
use crate::sqlite::rows::{Sorted, key_of};
use crate::sqlite::views::Pins;

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
        let steps = format!("SELECT {STEP_COLUMNS} FROM steps t WHERE t.run = ?1 ORDER BY t.list, t.number");
        let mut steps = self.connection.prepare(&steps)?;
        let mut pins = Pins::new(self.connection);
        let mut found = statement.query([])?;
        let mut chunk = Sorted::default();
        while let Some(row) = found.next()? {
            if row.bits(0, "id").is_ok_and(|bits| !self.shards.owns(RunId::from_bits(bits).shard())) {
                continue;
            }
            let run = rows::run(row, |hash| pins.pinned(hash));
            pins.check()?;
            match run {
                Ok(run) => {
                    let id = run.id;
                    let (records, damaged) = read_steps(&mut steps, id)?;
                    if damaged.is_empty() {
                        chunk.good.push(run.into());
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
