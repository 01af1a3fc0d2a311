//! Writes jobs, their executions, checkpoints and idempotency keys.

use model::JobId;
use rusqlite::types::ToSql;
use rusqlite::{OptionalExtension, params};

use super::Apply;
use crate::codec::{open_head, parse_spec};
use crate::command::rows::{Blob, ExecutionColumns, JobColumns, JobHeadColumns, Key, KeyColumns, Labels};
use crate::sqlite::error::Failure;
use crate::sqlite::statements::Statements;

impl Apply<'_, '_> {
    pub(super) fn new_job(
        &mut self,
        id: &Key,
        state: &JobColumns<'_>,
        head: &JobHeadColumns<'_>,
    ) -> Result<(), Failure> {
        self.insert_job(id, state, head)?;
        self.counters.add(head.namespace, state.status, 1);
        self.put_labels(id, &head.labels)
    }

    fn insert_job(
        &mut self,
        id: &Key,
        state: &JobColumns<'_>,
        head: &JobHeadColumns<'_>,
    ) -> Result<(), Failure> {
        let statement = match state.ended {
            true => &mut self.statements.job_insert_ended,
            false => &mut self.statements.job_insert,
        };
        statement.execute(&all_columns(id, state, head)[..])?;
        Ok(())
    }

    pub(super) fn job(
        &mut self,
        id: &Key,
        state: &JobColumns<'_>,
        head: Option<&JobHeadColumns<'_>>,
    ) -> Result<(), Failure> {
        let mut rows = self.statements.job_look.query([id])?;
        let Some(row) = rows.next()? else {
            let id = job_id(id);
            return Err(Failure::Broken(format!("the changed job {id} is not live")));
        };
        let namespace = row.get_ref(1)?.as_str().map_err(rusqlite::Error::from)?;
        self.counters.add(namespace, row.get(0)?, -1);
        if head.is_none() {
            self.counters.add(namespace, state.status, 1);
        }
        drop(rows);
        if let Some(head) = head {
            self.counters.add(head.namespace, state.status, 1);
            self.replace_labels(id, &head.labels)?;
        }
        match (head, state.ended) {
            (None, ended) => self.change_state(id, state, ended),
            (Some(head), false) => self.change_head(id, state, head),
            (Some(head), true) => {
                self.insert_job(id, state, head)?;
                self.statements.job_delete.execute([id])?;
                Ok(())
            }
        }
    }

    fn change_state(&mut self, id: &Key, state: &JobColumns<'_>, ended: bool) -> Result<(), Failure> {
        let statement = match ended {
            true => &mut self.statements.job_end,
            false => &mut self.statements.job_update,
        };
        let JobColumns { status, worker, expires_at, state, history, .. } = state;
        statement.execute(params![id, status, worker, expires_at, state, history])?;
        if ended {
            self.statements.job_delete.execute([id])?;
        }
        Ok(())
    }

    fn change_head(
        &mut self,
        id: &Key,
        state: &JobColumns<'_>,
        head: &JobHeadColumns<'_>,
    ) -> Result<(), Failure> {
        self.statements.job_update_all.execute(&all_columns(id, state, head)[..])?;
        Ok(())
    }

    fn put_labels(&mut self, id: &Key, labels: &Labels<'_>) -> Result<(), Failure> {
        for (key, value) in labels {
            self.statements.label_insert.execute(params![key, value, id])?;
        }
        Ok(())
    }

    fn replace_labels(&mut self, id: &Key, labels: &Labels<'_>) -> Result<(), Failure> {
        let sealed: Vec<u8> = self.statements.job_head.query_row([id], |row| row.get(0))?;
        delete_labels(self.statements, job_id(id), &sealed)?;
        self.put_labels(id, labels)
    }

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

    pub(super) fn execution(&mut self, row: &ExecutionColumns<'_>) -> Result<(), Failure> {
        let statement = match row.ended {
            true => &mut self.statements.execution_end,
            false => &mut self.statements.execution_update,
        };
        let ExecutionColumns { id, job, number, fence, worker, status, rest, .. } = row;
        let changed = statement.execute(params![id, job, number, fence, worker, status, rest])?;
        if changed != 1 {
            let id = execution_id(id);
            return Err(Failure::Broken(format!(
                "the changed execution {id} is not among the live executions"
            )));
        }
        if row.ended {
            self.statements.execution_delete.execute([id])?;
        }
        Ok(())
    }

    pub(super) fn new_execution(
        &mut self,
        row: &ExecutionColumns<'_>,
        names: Option<(&str, &str)>,
    ) -> Result<(), Failure> {
        let ExecutionColumns { id, job, number, fence, worker, status, rest, .. } = row;
        // Execution 1 is the first of its job; a second one with this number fails as a duplicate.
        if *number > 1 && self.statements.execution_rival.exists(params![job, number, fence])? {
            return Err(Failure::Broken(format!(
                "the fence {fence} of execution {number} of the job {} does not increase with its number",
                job_id(job)
            )));
        }
        let (namespace, name) = match names {
            Some((namespace, name)) => (namespace.to_owned(), name.to_owned()),
            None => self
                .statements
                .job_names
                .query_row([job], |row| Ok((row.get(0)?, row.get(1)?)))
                .optional()?
                .ok_or_else(|| {
                    let (execution, job) = (execution_id(id), job_id(job));
                    Failure::Broken(format!(
                        "the new execution {execution} belongs to the job {job}, which is not live"
                    ))
                })?,
        };
        let statement = match row.ended {
            true => &mut self.statements.execution_insert_ended,
            false => &mut self.statements.execution_insert,
        };
        statement.execute(params![id, job, number, fence, worker, status, namespace, name, rest])?;
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

fn job_id(key: &Key) -> JobId {
    JobId::from_bits(u128::from_be_bytes(*key))
}

fn execution_id(key: &Key) -> model::ExecutionId {
    model::ExecutionId::from_bits(u128::from_be_bytes(*key))
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
