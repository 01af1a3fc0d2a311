//! Writes workflows, their runs, and the steps of the runs.
//!
//! The end of a step and the start of the next one take two small rows and the row of the run. A definition is written
//! once, whatever the number of its runs.

use model::WorkflowId;
use model::record::{Change, RunKeyRecord};
use model::run::{ElementBatch, RunHead, RunState, StepRecord, WorkflowHead, WorkflowState};
use model::{RunId, WorkflowSpec};
use rusqlite::{OptionalExtension, params};

use super::Apply;
use crate::codec::{
    RunColumns, definition_hash, open_workflow_head, seal_definition, seal_elements, seal_run, seal_run_head,
    seal_step, seal_workflow, seal_workflow_head, step_columns,
};
use crate::sqlite::error::Failure;

impl Apply<'_, '_> {
    /// Writes the changes of workflows and runs in a batch. The name of a removed workflow is free for a new one.
    pub(super) fn workflows(&mut self, changes: &[Change]) -> Result<(), Failure> {
        for change in changes {
            if let Change::RemoveWorkflow(id) = change {
                let key = id.to_bits().to_be_bytes();
                self.delete_workflow_labels(*id)?;
                self.statements.workflow_heads_delete.execute([key])?;
                self.statements.workflow_delete.execute([key])?;
            }
        }
        for change in changes {
            match change {
                Change::Workflow { id, new, head, state } => {
                    self.workflow(*id, *new, head.as_deref(), state)?;
                }
                Change::Run { id, head: Some(head), state } => self.new_run(*id, head, state)?,
                Change::Run { id, head: None, state } => self.run(*id, state)?,
                Change::Step(record) => self.step(record)?,
                Change::ElementBatch(batch) => self.elements(batch)?,
                Change::RunKey(key) => self.run_key(key)?,
                _ => {}
            }
        }
        Ok(())
    }

    fn workflow(
        &mut self,
        id: WorkflowId,
        new: bool,
        head: Option<&WorkflowHead>,
        state: &WorkflowState,
    ) -> Result<(), Failure> {
        let (key, sealed) = (id.to_bits().to_be_bytes(), seal_workflow(id, state));
        if !new && head.is_some() {
            self.delete_workflow_labels(id)?;
        }
        let changed = match head.map(|head| &*head.spec) {
            None if new => {
                return Err(Failure::Broken(format!("the new workflow {id} has no head")));
            }
            None => self.statements.workflow_update.execute(params![key, state.generation, sealed])?,
            Some(WorkflowSpec { namespace, name, owner, .. }) => {
                let row = params![key, state.generation, namespace, name, owner, sealed];
                match new {
                    true => self.statements.workflow_insert.execute(row)?,
                    false => self.statements.workflow_update_all.execute(row)?,
                }
            }
        };
        if changed != 1 {
            return Err(Failure::Broken(format!("the changed workflow {id} does not exist")));
        }
        if let Some(head) = head {
            let sealed = seal_workflow_head(id, state.generation, head);
            self.statements.workflow_head_insert.execute(params![key, state.generation, sealed])?;
            for (label, value) in &head.spec.labels {
                self.statements.workflow_label_insert.execute(params![label, value, key])?;
            }
        }
        Ok(())
    }

    /// Deletes the labels in the newest spec. If the spec cannot be decoded, the labels stay; lists skip labels without
    /// a workflow.
    fn delete_workflow_labels(&mut self, id: WorkflowId) -> Result<(), Failure> {
        let key = id.to_bits().to_be_bytes();
        let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?));
        let found: Option<(u64, Vec<u8>)> =
            self.statements.workflow_head.query_row([key], read).optional()?;
        let head = found.and_then(|(generation, sealed)| open_workflow_head(id, generation, &sealed).ok());
        for (label, value) in head.iter().flat_map(|head| &head.spec.labels) {
            self.statements.workflow_label_delete.execute(params![label, value, key])?;
        }
        Ok(())
    }

    fn new_run(&mut self, id: RunId, head: &RunHead, state: &RunState) -> Result<(), Failure> {
        let (key, columns) = (id.to_bits().to_be_bytes(), RunColumns::of(state));
        let spec = &head.definition.workflow;
        self.statements.run_insert.execute(params![
            key,
            columns.status,
            head.workflow.map(|workflow| workflow.to_bits().to_be_bytes()),
            head.caller.map(|caller| caller.run.to_bits().to_be_bytes()),
            head.origin.as_ref().map(|origin| origin.schedule.to_bits().to_be_bytes()),
            head.origin.as_ref().and_then(|origin| origin.backfill).map(|id| id.to_bits().to_be_bytes()),
            spec.namespace,
            spec.name,
            columns.expires_at,
            seal_run(id, &columns, state),
        ])?;
        let hash = definition_hash(&head.body);
        let body = seal_definition(hash, &head.body);
        self.statements.run_definition_insert.execute(params![hash.to_be_bytes(), body])?;
        let sealed = seal_run_head(id, hash, head);
        self.statements.run_head_insert.execute(params![key, hash.to_be_bytes(), sealed])?;
        Ok(())
    }

    fn run(&mut self, id: RunId, state: &RunState) -> Result<(), Failure> {
        let (key, columns) = (id.to_bits().to_be_bytes(), RunColumns::of(state));
        let sealed = seal_run(id, &columns, state);
        let row = params![key, columns.status, columns.expires_at, sealed];
        match self.statements.run_update.execute(row)? {
            1 => Ok(()),
            _ => Err(Failure::Broken(format!("the changed run {id} is not live"))),
        }
    }

    fn run_key(&mut self, key: &RunKeyRecord) -> Result<(), Failure> {
        let changed = self.statements.run_key_insert.execute(params![
            key.run.shard().0,
            key.expires_at.as_micros(),
            key.key.to_be_bytes(),
            key.body.to_be_bytes(),
            key.run.to_bits().to_be_bytes(),
            self.now.as_micros(),
        ])?;
        match changed {
            1 => Ok(()),
            _ => Err(Failure::Broken(format!(
                "the idempotency key {:032x} of the run {} belongs to another run",
                key.key, key.run
            ))),
        }
    }

    fn step(&mut self, record: &StepRecord) -> Result<(), Failure> {
        let (key, state) = (record.key, &record.state);
        let run = key.run.to_bits().to_be_bytes();
        let (list, number) = step_columns(key);
        let row = params![run, list, number, state.status.code(), seal_step(key, state)];
        self.statements.step_put.execute(row)?;
        for version in state.pinned_versions() {
            self.statements.artifact_pin.execute(params![run, version.artifact, version.sha256])?;
        }
        Ok(())
    }

    fn elements(&mut self, batch: &ElementBatch) -> Result<(), Failure> {
        let key = batch.key;
        let row = params![key.run.to_bits().to_be_bytes(), key.step, key.first, seal_elements(batch)];
        self.statements.elements_insert.execute(row)?;
        Ok(())
    }
}
