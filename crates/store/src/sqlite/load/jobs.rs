//! Load of live jobs and their executions.
//!
//! A job and its newest execution belong together: if one of the two cannot be decoded, both are quarantined.

use std::collections::HashSet;

use model::record::LiveRow;
use model::{ExecutionId, JobId};
use rusqlite::Connection;

use super::{Bad, CHUNK, Loading, Shards, id_key};
use crate::rows::{self, EXECUTION_COLUMNS, Fields, JOB_COLUMNS, RawJob, Table};
use crate::sqlite::error::Failure;
use crate::sqlite::quarantine::DamagedRow;
use crate::sqlite::rows::{Decoded, key_of};

impl Loading<'_> {
    /// Returns the executions that can be decoded, and the IDs of the others.
    ///
    /// The executions are held in memory until the jobs are loaded: there are far fewer executions than jobs.
    pub(super) fn executions(&mut self) -> Result<(Vec<LiveRow>, HashSet<ExecutionId>), Failure> {
        let mut statement =
            self.connection.prepare(&format!("SELECT {EXECUTION_COLUMNS} FROM executions t"))?;
        let mut found = statement.query([])?;
        let (mut good, mut lost) = (Decoded::default(), HashSet::new());
        while let Some(row) = found.next()? {
            let decoded = rows::execution(row).map(|found| found.record);
            match decoded {
                Ok(record) if !self.shards.owns(record.job.shard()) => {}
                Ok(record) => good.good.push(LiveRow::Execution(Box::new(record))),
                Err(damage) => {
                    lost.extend(row.bits(0, "id").map(ExecutionId::from_bits));
                    good.push(Table::Executions, row, Err(damage))?;
                }
            }
        }
        self.damaged.append(&mut good.damaged);
        Ok((good.good, lost))
    }

    /// Sends the jobs, and returns the IDs of the jobs that cannot be decoded or continued.
    pub(super) fn jobs(&mut self, lost: &HashSet<ExecutionId>) -> Result<HashSet<JobId>, Failure> {
        let (connection, shards) = (self.connection, &self.shards);
        let decode = |job: RawJob| {
            let row = job.decode().map_err(|damage| bad(job.id, damage.to_string()))?;
            match lost_execution(&row, lost) {
                Some(id) => Err(bad(job.id, format!("its execution {id} cannot be read"))),
                None => Ok(row),
            }
        };
        let read =
            |send: &mut dyn FnMut(Vec<RawJob>) -> Result<(), Failure>| read_jobs(connection, shards, send);
        let decoded = super::decode_in_background(self.rows, read, decode)?;
        Ok(self.take(decoded))
    }

    pub(super) fn send_executions(
        &mut self,
        executions: Vec<LiveRow>,
        bad: &HashSet<JobId>,
    ) -> Result<(), Failure> {
        let (orphans, good): (Vec<_>, Vec<_>) = executions
            .into_iter()
            .partition(|row| matches!(row, LiveRow::Execution(record) if bad.contains(&record.job)));
        for row in orphans {
            if let LiveRow::Execution(record) = row {
                let reason = format!("its job {} cannot be read", record.job);
                let key = id_key(record.id.to_bits());
                self.damaged.push(DamagedRow::new(Table::Executions, key, reason));
            }
        }
        self.send_all(good)
    }
}

fn bad(id: JobId, reason: String) -> Bad<JobId> {
    (Some(id), DamagedRow::new(Table::Jobs, id_key(id.to_bits()), reason))
}

fn read_jobs(
    connection: &Connection,
    shards: &Shards,
    send: &mut dyn FnMut(Vec<RawJob>) -> Result<(), Failure>,
) -> Result<Vec<Bad<JobId>>, Failure> {
    let mut statement = connection.prepare(&format!("SELECT {JOB_COLUMNS}, t.history FROM jobs t"))?;
    let mut found = statement.query([])?;
    let mut bad = Vec::new();
    let mut chunk = Vec::with_capacity(CHUNK);
    while let Some(row) = found.next()? {
        let id = row.bits(0, "id").map(JobId::from_bits);
        if id.as_ref().is_ok_and(|id| !shards.owns(id.shard())) {
            continue;
        }
        match id.clone().and_then(|id| RawJob::read(row, id)) {
            Ok(raw) => chunk.push(raw),
            Err(damage) => {
                let key = key_of(Table::Jobs, row)?;
                bad.push((id.ok(), DamagedRow::new(Table::Jobs, key, &damage)));
            }
        }
        if chunk.len() == CHUNK {
            send(std::mem::replace(&mut chunk, Vec::with_capacity(CHUNK)))?;
        }
    }
    send(chunk)?;
    Ok(bad)
}

fn lost_execution(row: &LiveRow, lost: &HashSet<ExecutionId>) -> Option<ExecutionId> {
    match row {
        LiveRow::Job { state, .. } => state.execution.filter(|id| lost.contains(id)),
        _ => None,
    }
}
