//! Writes workflows, their runs, and the steps of the runs.
//!
//! The end of a step and the start of the next one take two small rows and the row of the run. A definition is written
//! once, whatever the number of its runs.

use std::borrow::Cow;

use model::{RunId, WorkflowId};
use rusqlite::{OptionalExtension, params};

use super::Apply;
use crate::codec::open_workflow_head;
use crate::command::rows::{Blob, Key, KeyColumns, NamedHead, RunColumns, RunHeadColumns};
use crate::sqlite::error::Failure;

impl Apply<'_, '_, '_> {
    pub(super) fn remove_workflow(&mut self, id: &Key) -> Result<(), Failure> {
        self.delete_workflow_labels(id)?;
        self.statements.workflow_heads_delete.execute([id])?;
        self.statements.workflow_delete.execute([id])?;
        Ok(())
    }

    pub(super) fn new_workflow(
        &mut self,
        id: &Key,
        generation: u64,
        state: &Blob<'_>,
        head: &NamedHead<'_>,
    ) -> Result<(), Failure> {
        let row = params![id, generation, head.namespace, head.name, head.owner, state];
        self.statements.workflow_insert.execute(row)?;
        self.put_workflow_head(id, generation, head)
    }

    pub(super) fn workflow(
        &mut self,
        id: &Key,
        generation: u64,
        state: &Blob<'_>,
        head: Option<&NamedHead<'_>>,
    ) -> Result<(), Failure> {
        let changed = match head {
            None => self.statements.workflow_update.execute(params![id, generation, state])?,
            Some(head) => {
                self.delete_workflow_labels(id)?;
                let row = params![id, generation, head.namespace, head.name, head.owner, state];
                self.statements.workflow_update_all.execute(row)?
            }
        };
        if changed != 1 {
            let id = workflow_id(id);
            return Err(Failure::Broken(format!("the changed workflow {id} does not exist")));
        }
        head.map_or(Ok(()), |head| self.put_workflow_head(id, generation, head))
    }

    fn put_workflow_head(&mut self, id: &Key, generation: u64, head: &NamedHead<'_>) -> Result<(), Failure> {
        self.statements.workflow_head_insert.execute(params![id, generation, head.head])?;
        for (label, value) in &head.labels {
            self.statements.workflow_label_insert.execute(params![label, value, id])?;
        }
        Ok(())
    }

    /// Deletes the labels in the newest spec. If the spec cannot be decoded, the labels stay; lists skip labels without
    /// a workflow.
    fn delete_workflow_labels(&mut self, id: &Key) -> Result<(), Failure> {
        let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?));
        let found: Option<(u64, Vec<u8>)> = self.statements.workflow_head.query_row([id], read).optional()?;
        let head = found
            .and_then(|(generation, sealed)| open_workflow_head(workflow_id(id), generation, &sealed).ok());
        for (label, value) in head.iter().flat_map(|head| &head.spec.labels) {
            self.statements.workflow_label_delete.execute(params![label, value, id])?;
        }
        Ok(())
    }

    pub(super) fn new_run(
        &mut self,
        id: &Key,
        state: &RunColumns<'_>,
        head: &RunHeadColumns<'_>,
    ) -> Result<(), Failure> {
        self.statements.run_insert.execute(params![
            id,
            state.status,
            head.workflow,
            head.caller,
            head.schedule,
            head.backfill,
            head.namespace,
            head.name,
            state.expires_at,
            state.state,
        ])?;
        self.statements.run_definition_insert.execute(params![head.hash, head.definition])?;
        self.statements.run_head_insert.execute(params![id, head.hash, head.head])?;
        Ok(())
    }

    pub(super) fn run(&mut self, id: &Key, state: &RunColumns<'_>) -> Result<(), Failure> {
        let RunColumns { status, expires_at, state } = state;
        match self.statements.run_update.execute(params![id, status, expires_at, state])? {
            1 => Ok(()),
            _ => Err(Failure::Broken(format!("the changed run {} is not live", run_id(id)))),
        }
    }

    pub(super) fn run_key(&mut self, columns: &KeyColumns) -> Result<(), Failure> {
        let KeyColumns { shard, expires_at, key, body, work } = columns;
        let row = params![shard, expires_at, key, body, work, self.now];
        match self.statements.run_key_insert.execute(row)? {
            1 => Ok(()),
            _ => Err(Failure::Broken(format!(
                "the idempotency key {:032x} of the run {} belongs to another run",
                u128::from_be_bytes(*key),
                run_id(work)
            ))),
        }
    }

    pub(super) fn step(
        &mut self,
        run: &Key,
        (list, number): (i64, i64),
        status: u8,
        state: &Blob<'_>,
        pins: &[(Cow<'_, str>, Cow<'_, str>)],
    ) -> Result<(), Failure> {
        self.statements.step_put.execute(params![run, list, number, status, state])?;
        for (artifact, sha256) in pins {
            self.statements.artifact_pin.execute(params![run, artifact, sha256])?;
        }
        Ok(())
    }

    pub(super) fn elements(
        &mut self,
        run: &Key,
        step: u32,
        first: u32,
        batch: &Blob<'_>,
    ) -> Result<(), Failure> {
        self.statements.elements_insert.execute(params![run, step, first, batch])?;
        Ok(())
    }
}

fn workflow_id(key: &Key) -> WorkflowId {
    WorkflowId::from_bits(u128::from_be_bytes(*key))
}

fn run_id(key: &Key) -> RunId {
    RunId::from_bits(u128::from_be_bytes(*key))
}
