//! Requests that create, change or delete workflows. A run keeps the definition that it started with, so
//! these requests do not affect existing runs.

use std::collections::BTreeSet;
use std::sync::Arc;

use model::api::ApplyChange;
use model::record::{Change, EventKind, WorkflowEvent};
use model::run::{WorkflowHead, WorkflowState};
use model::{Refusal, WorkflowId};
use rand::Rng;

use super::Workflow;
use super::trigger::states_of;
use crate::context::Context;
use crate::input::{Expected, NewWorkflow};
use crate::names::{name_hash, shard_of};
use crate::output::{AppliedWorkflow, Reply};
use crate::workflows::Workflows;

impl Workflow {
    pub(super) fn new(head: &WorkflowHead, mut state: WorkflowState) -> Self {
        state.triggers.resize_with(head.spec.triggers.len(), Default::default);
        Self {
            namespace: head.spec.namespace.as_str().into(),
            name: head.spec.name.as_str().into(),
            spec: Arc::clone(&head.spec),
            max_parallel_runs: max_parallel_runs(head),
            state,
            active: BTreeSet::new(),
            waiting: BTreeSet::new(),
            body_hash: name_hash("", &head.body),
            head: None,
            new: false,
            dirty: false,
        }
    }

    /// Returns whether another run may start.
    pub(super) fn is_below_run_limit(&self) -> bool {
        self.active.len() < self.max_parallel_runs
    }
}

fn max_parallel_runs(head: &WorkflowHead) -> usize {
    head.spec.max_parallel_runs.map_or(usize::MAX, |most| most.max(1) as usize)
}

impl Workflows {
    /// Creates or changes all workflows, or none.
    pub(super) fn apply_workflows(
        &mut self,
        cx: &mut Context,
        workflows: &[NewWorkflow],
    ) -> Result<Reply, Refusal> {
        for new in workflows {
            self.check_workflow(new)?;
        }
        Ok(Reply::AppliedWorkflows(workflows.iter().map(|new| self.apply_workflow(cx, &new.head)).collect()))
    }

    fn check_workflow(&self, new: &NewWorkflow) -> Result<(), Refusal> {
        let spec = &new.head.spec;
        let known = self.find(&spec.namespace, &spec.name);
        let found = known.and_then(|id| self.all.get(&id)).map_or(0, |found| found.state.version);
        match (new.expected, known) {
            (Expected::Absent, Some(workflow)) => {
                Err(Refusal::WorkflowExists { name: spec.name.as_str().into(), workflow })
            }
            (Expected::Version(expected), _) if expected != found => {
                Err(Refusal::VersionMismatch { expected, found })
            }
            _ => Ok(()),
        }
    }

    fn apply_workflow(&mut self, cx: &mut Context, head: &Arc<WorkflowHead>) -> AppliedWorkflow {
        let (id, change) = match self.find(&head.spec.namespace, &head.spec.name) {
            None => (self.create_workflow(cx, head), ApplyChange::Created),
            Some(id) => (id, self.change_workflow(cx, id, head)),
        };
        let state = self.all.get(&id).map(|workflow| &workflow.state);
        let (generation, version) = state.map(|state| (state.generation, state.version)).unwrap_or_default();
        AppliedWorkflow { workflow: id, change, generation, version }
    }

    fn create_workflow(&mut self, cx: &mut Context, head: &Arc<WorkflowHead>) -> WorkflowId {
        let now = cx.now;
        let hash = name_hash(&head.spec.namespace, &head.spec.name);
        let shard = shard_of(hash, cx.shards);
        let id = WorkflowId::from_bits(cx.ids.next(now, shard, cx.rng.next_u64()));
        let state = WorkflowState {
            generation: 1,
            version: 1,
            created_at: now,
            updated_at: now,
            runs: 0,
            triggers: Vec::new(),
        };
        let mut workflow = Workflow::new(head, state);
        workflow.head = Some(Arc::clone(head));
        workflow.new = true;
        self.names.insert(hash, id);
        self.listeners.add(id, &head.spec);
        self.all.insert(id, workflow);
        self.resolved.clear();
        self.touch_workflow(id);
        self.emit_workflow_event(cx, id, WorkflowEvent::Created);
        id
    }

    fn change_workflow(&mut self, cx: &mut Context, id: WorkflowId, head: &Arc<WorkflowHead>) -> ApplyChange {
        let now = cx.now;
        let Some(workflow) = self.all.get_mut(&id) else { return ApplyChange::Unchanged };
        let body_hash = name_hash("", &head.body);
        if workflow.body_hash == body_hash {
            return ApplyChange::Unchanged;
        }
        workflow.body_hash = body_hash;
        workflow.state.triggers = states_of(&head.spec, Some((&workflow.spec, &workflow.state.triggers)));
        self.listeners.remove(id, &workflow.spec);
        self.listeners.add(id, &head.spec);
        workflow.spec = Arc::clone(&head.spec);
        workflow.max_parallel_runs = max_parallel_runs(head);
        workflow.head = Some(Arc::clone(head));
        workflow.state.generation += 1;
        workflow.state.version += 1;
        workflow.state.updated_at = now;
        self.resolved.clear();
        self.touch_workflow(id);
        self.emit_workflow_event(cx, id, WorkflowEvent::Changed);
        self.start_waiting_runs(cx, id);
        ApplyChange::Changed
    }

    /// Deletes a workflow without waiting runs; its running runs continue to their end.
    pub(super) fn delete_workflow(
        &mut self,
        cx: &mut Context,
        id: WorkflowId,
        expected: Option<u64>,
    ) -> Result<Reply, Refusal> {
        let workflow = self.all.get(&id).ok_or(Refusal::WorkflowNotFound { workflow: id })?;
        let found = workflow.state.version;
        if let Some(expected) = expected.filter(|&expected| expected != found) {
            return Err(Refusal::VersionMismatch { expected, found });
        }
        if let Some(run) = workflow.waiting.first() {
            return Err(Refusal::RunsWaiting { workflow: id, run: *run, count: workflow.waiting.len() });
        }
        self.emit_workflow_event(cx, id, WorkflowEvent::Deleted);
        if let Some(workflow) = self.all.swap_remove(&id) {
            self.names.swap_remove(&name_hash(&workflow.namespace, &workflow.name));
            self.listeners.remove(id, &workflow.spec);
            self.resolved.clear();
            if !workflow.new {
                cx.write(Change::RemoveWorkflow(id));
            }
        }
        Ok(Reply::WorkflowDeleted)
    }

    fn emit_workflow_event(&mut self, cx: &mut Context, id: WorkflowId, what: WorkflowEvent) {
        let Some(workflow) = self.all.get(&id) else { return };
        let kind = EventKind::Workflow { workflow: id, name: Arc::clone(&workflow.name), what };
        let namespace = Some(Arc::clone(&workflow.namespace));
        cx.emit(namespace, kind);
    }
}
