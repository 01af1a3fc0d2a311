//! Writes jobs, their executions, checkpoints and idempotency keys.

use model::JobId;
use rusqlite::params;
use rusqlite::types::ToSql;

use super::Apply;
use super::pending::{
    JobNames, PendingExecution, PendingJob, execution_exists_already, exists_already, job_id, not_among_live,
};
use crate::codec::{open_head, parse_spec};
use crate::command::rows::{Blob, ExecutionColumns, JobColumns, JobHeadColumns, Key, KeyColumns, Labels};
use crate::sqlite::error::Failure;
use crate::sqlite::statements::Statements;

impl PendingJob<'_> {
    pub(super) fn write(&self, id: &Key, statements: &mut Statements<'_>) -> Result<(), Failure> {
        let Self { stored, state, head, .. } = self;
        match (head, stored) {
            (Some(head), false) => {
                if state.ended && statements.job_look.exists([id])? {
                    return Err(exists_already(id));
                }
                insert(id, state, head, statements)?;
                put_labels(id, &head.labels, statements)
            }
            (Some(head), true) => {
                replace_labels(id, &head.labels, statements)?;
                if state.ended {
                    insert(id, state, head, statements)?;
                    return delete(id, statements);
                }
                statements.job_update_all.execute(&all_columns(id, state, head)[..])?;
                Ok(())
            }
            (None, _) => change_state(id, state, statements),
        }
    }
}

fn insert(
    id: &Key,
    state: &JobColumns<'_>,
    head: &JobHeadColumns<'_>,
    statements: &mut Statements<'_>,
) -> Result<(), Failure> {
    let statement = match state.ended {
        true => &mut statements.job_insert_ended,
        false => &mut statements.job_insert,
    };
    statement.execute(&all_columns(id, state, head)[..])?;
    Ok(())
}

fn delete(id: &Key, statements: &mut Statements<'_>) -> Result<(), Failure> {
    statements.job_delete.execute([id])?;
    Ok(())
}

fn change_state(id: &Key, state: &JobColumns<'_>, statements: &mut Statements<'_>) -> Result<(), Failure> {
    let JobColumns { status, worker, expires_at, ended, state, history } = state;
    let statement = match ended {
        true => &mut statements.job_end,
        false => &mut statements.job_update,
    };
    statement.execute(params![id, status, worker, expires_at, state, history])?;
    if *ended {
        delete(id, statements)?;
    }
    Ok(())
}

fn put_labels(id: &Key, labels: &Labels<'_>, statements: &mut Statements<'_>) -> Result<(), Failure> {
    for (key, value) in labels {
        statements.label_insert.execute(params![key, value, id])?;
    }
    Ok(())
}

fn replace_labels(id: &Key, labels: &Labels<'_>, statements: &mut Statements<'_>) -> Result<(), Failure> {
    let sealed: Vec<u8> = statements.job_head.query_row([id], |row| row.get(0))?;
    delete_labels(statements, job_id(id), &sealed)?;
    put_labels(id, labels, statements)
}

impl PendingExecution<'_> {
    pub(super) fn write(&self, id: &Key, statements: &mut Statements<'_>) -> Result<(), Failure> {
        let ExecutionColumns { job, number, fence, worker, status, ended, rest, .. } = &self.row;
        if let Some(JobNames { namespace, name }) = &self.names {
            if *ended && statements.execution_same.exists(params![id, job, number])? {
                return Err(execution_exists_already(id));
            }
            let statement = match ended {
                true => &mut statements.execution_insert_ended,
                false => &mut statements.execution_insert,
            };
            statement.execute(params![id, job, number, fence, worker, status, namespace, name, rest])?;
            return Ok(());
        }
        let statement = match ended {
            true => &mut statements.execution_end,
            false => &mut statements.execution_update,
        };
        if statement.execute(params![id, job, number, fence, worker, status, rest])? != 1 {
            return Err(not_among_live(id));
        }
        if *ended {
            statements.execution_delete.execute([id])?;
        }
        Ok(())
    }
}

impl Apply<'_, '_, '_> {
    pub(super) fn checkpoint(
        &mut self,
        job: &Key,
        version: u64,
        content_type: &str,
        saved_at: i64,
        data: &Blob<'_>,
    ) -> Result<(), Failure> {
        self.statements.checkpoint_put.execute(params![job, version, content_type, saved_at, data])?;
        Ok(())
    }

    pub(super) fn key(&mut self, columns: &KeyColumns) -> Result<(), Failure> {
        let KeyColumns { shard, expires_at, key, body, work } = columns;
        let row = params![shard, expires_at, key, body, work, self.now];
        match self.statements.key_insert.execute(row)? {
            1 => Ok(()),
            _ => Err(Failure::Broken(format!(
                "the idempotency key {:032x} of the job {} belongs to another job",
                u128::from_be_bytes(*key),
                job_id(work)
            ))),
        }
    }
}

/// Returns the columns of a job, in the order of the table.
fn all_columns<'a>(
    id: &'a Key,
    state: &'a JobColumns<'_>,
    head: &'a JobHeadColumns<'_>,
) -> [&'a dyn ToSql; 15] {
    [
        id,
        &state.status,
        &state.worker,
        &state.expires_at,
        &head.namespace,
        &head.owner,
        &head.queue,
        &head.name,
        &state.state,
        &state.history,
        &head.head,
        &head.schedule,
        &head.backfill,
        &head.run,
        &head.service,
    ]
}

/// Deletes the labels that an encoded head contains.
pub(in crate::sqlite) fn delete_labels(
    statements: &mut Statements<'_>,
    id: JobId,
    head: &[u8],
) -> Result<(), Failure> {
    // Parsing is expensive, and most jobs have no labels. If a head cannot be decoded, its labels stay; lists skip
    // labels without a job.
    let Some(spec) = open_head(id, head)
        .ok()
        .filter(|head| head.body.contains("\"labels\""))
        .and_then(|head| parse_spec(head.body).ok())
    else {
        return Ok(());
    };
    for (key, value) in &spec.labels {
        statements.label_delete.execute(params![key, value, id.to_bits().to_be_bytes()])?;
    }
    Ok(())
}
