//! Workflows: which jobs exist, and when.
//!
//! ```text
//! start ─> advance ──┬─ join rule, condition ──> skipped, upstream_failed
//!    ^       ^       └─ a slot is free ────────> begin: job | call | list | approval | wait
//!    │       │                                          │
//!    │       └───────────── finish <── outcome ─────────┘
//!    └── the next run's turn <── the run's end
//! ```
//!
//! [`apply`] takes workflows, [`start`] starts runs; [`advance`] decides what is next in a run and is called
//! by every flush for each run that something happened to; [`begin`] and [`elements`] begin steps, [`job`]
//! makes their jobs and hears of their ends; [`finish`] ends steps and runs; [`control`] is what somebody
//! asks of a run, [`wait`] what time and events bring, [`late`] what workers bring that come late; [`scheduled`] starts runs of schedules and [`trigger`]
//! those that the end of something else starts; [`scope`] holds the values that expressions speak of;
//! [`added`] takes the elements that running tasks add; [`files`] lets steps read what steps before them stored;
//! [`retry`] tries a run again that failed; [`explain`] says why a step stands where it stands, [`restore`]
//! rebuilds all of it from rows.
//!
//! # Always true
//! - A step's end and the beginning of whatever follows from it are decided in one flush, so they are one
//!   commit, unless more begins at once than one flush may.
//! - What is next follows from the rows of a run and its definition alone. Nothing is remembered that a
//!   rebuilt engine could not know, so a crash between two commits loses nothing and repeats nothing.
//! - A step that goes on has its job, its called run or its elements, or its timer, or it waits for somebody
//!   by name. A pending one has a need that has not ended, or is held by a limit, a pause or its run's turn.
//! - A run ends once all of its steps have, and no other try of it is to come; its outcome is that of all of
//!   its steps.
//!
//! # Cost
//! A step's end costs one look at each edge that leaves it. A pending step takes about 60 bytes, one that
//! began about 300 and its job; an element of a list takes 24 bytes and, while it goes on, its job.

mod added;
mod advance;
mod apply;
mod begin;
mod check;
mod control;
mod elements;
mod explain;
mod files;
mod finish;
mod job;
mod late;
mod plan;
mod producers;
mod restore;
mod retry;
mod scheduled;
mod scope;
mod start;
mod trigger;
mod wait;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use foldhash::fast::FixedState;
use indexmap::IndexMap;
use model::record::{Change, Event, EventKind, RunKeyRecord};
use model::run::{
    ElementBatch, RunCause, RunHead, RunHistoryEntry, RunState, RunStatus, StepCause, StepKey, StepRecord,
    StepState, StepStatus, WorkflowHead, WorkflowState, lifecycle,
};
use model::workflow::NeedCounts;
use model::{RunId, Timestamp, WorkflowId, WorkflowSpec, limits};

use crate::engine::Engine;
use crate::input::{Ticket, WorkflowRequest};
use elements::Elements;
pub(crate) use job::JobEnd;
use plan::{Plan, Plans, index};
use scheduled::Resolved;
use trigger::Listeners;

/// A workflow, and its runs that have not ended.
#[derive(Debug)]
pub(crate) struct Workflow {
    namespace: Arc<str>,
    name: Arc<str>,
    /// What runs of schedules start with.
    spec: Arc<WorkflowSpec>,
    max_parallel_runs: usize,
    state: WorkflowState,
    /// Runs that go on.
    active: BTreeSet<RunId>,
    /// Runs that wait for their turn, in order.
    waiting: BTreeSet<RunId>,
    /// Tells whether a new spec is another one.
    body_hash: u128,
    /// Its spec, while that is still to be written.
    head: Option<Arc<WorkflowHead>>,
    new: bool,
    dirty: bool,
}

/// A run that has not ended, and until the next flush one that just did.
#[derive(Debug)]
pub(crate) struct Run {
    head: Arc<RunHead>,
    plan: Arc<Plan>,
    state: RunState,
    /// By their numbers.
    steps: Vec<Step>,
    /// Pending steps whose join rule is to be asked.
    asked: VecDeque<u32>,
    /// Pending steps that may begin as soon as there is a slot.
    ready: BTreeSet<u32>,
    /// Steps over a list that may have elements to begin.
    filling: BTreeSet<u32>,
    /// Jobs and called runs that go on.
    live: u32,
    /// How many steps of each section have not ended.
    open: [u32; 3],
    /// Whether its head is still to be written.
    new: bool,
    dirty: bool,
    /// Whether it stands among those to advance.
    stirred: bool,
}

/// A step of a run.
#[derive(Debug, Default)]
struct Step {
    /// What is stored of it; nothing while it is pending.
    state: Option<Box<StepState>>,
    /// How what it needs ended so far.
    counts: NeedCounts,
    elements: Option<Box<Elements>>,
    dirty: bool,
}

impl Step {
    fn status(&self) -> StepStatus {
        self.state.as_ref().map_or(StepStatus::Pending, |state| state.status)
    }
}

impl Run {
    fn step(&self, step: u32) -> &Step {
        &self.steps[index(step)]
    }

    fn step_mut(&mut self, step: u32) -> &mut Step {
        &mut self.steps[index(step)]
    }

    /// Whether steps may begin.
    fn begins_steps(&self) -> bool {
        matches!(self.state.status, RunStatus::Running | RunStatus::Stopping)
    }

    /// The number of its section.
    fn section(&self) -> usize {
        self.state.section as usize
    }
}

/// All workflows and runs, and what they share.
#[derive(Debug, Default)]
pub(crate) struct Workflows {
    all: IndexMap<WorkflowId, Workflow, FixedState>,
    /// By [`crate::schedule::name_hash`].
    names: IndexMap<u128, WorkflowId, FixedState>,
    runs: IndexMap<RunId, Run, FixedState>,
    /// Steps over workers that go on.
    broadcasts: BTreeSet<(RunId, u32)>,
    /// Who listens to the ends of jobs and runs.
    listeners: Listeners,
    plans: Plans,
    /// Workflows with those that they call, as far as somebody asked since one of them changed.
    resolved: BTreeMap<WorkflowId, Result<Resolved, String>>,
    /// Idempotency keys that runs were started under.
    pub(crate) keys: IndexMap<u128, RunKeyRecord, FixedState>,
    /// Workflows whose rows changed, each once.
    changed: Vec<WorkflowId>,
    /// Runs whose rows changed, each once.
    changed_runs: Vec<RunId>,
    /// Steps whose rows changed, each once.
    changed_steps: Vec<(RunId, u32)>,
    /// Batches of elements that tasks added.
    added: Vec<ElementBatch>,
    /// Elements that ended.
    ended_elements: Vec<StepRecord>,
    /// Runs that something happened to, in turn; each once.
    stirred: VecDeque<RunId>,
}

impl Workflows {
    /// While runs are `held`, those that would advance are no reason to act.
    pub(crate) fn is_idle(&self, held: bool) -> bool {
        self.changed.is_empty()
            && self.changed_runs.is_empty()
            && self.changed_steps.is_empty()
            && self.added.is_empty()
            && self.ended_elements.is_empty()
            && (held || self.stirred.is_empty())
    }

    fn find(&self, namespace: &str, name: &str) -> Option<WorkflowId> {
        let id = self.names.get(&crate::schedule::name_hash(namespace, name)).copied()?;
        let found = self.all.get(&id)?;
        (*found.namespace == *namespace && *found.name == *name).then_some(id)
    }
}

/// Rows of elements, each once: one that was to be done again may have ended again in the same flush.
fn last_of_each(records: Vec<StepRecord>) -> Vec<StepRecord> {
    if records.iter().all(|record| record.state.status.is_final()) {
        return records;
    }
    let last: BTreeMap<StepKey, StepRecord> =
        records.into_iter().map(|record| (record.key, record)).collect();
    last.into_values().collect()
}

/// What a step's state gets with a transition.
#[derive(Debug, Default)]
struct Also {
    message: Option<Box<str>>,
    output: Option<Arc<str>>,
    files: Option<Arc<str>>,
    /// When its work ended, if that is known better than when it was reported.
    ended_at: Option<Timestamp>,
}

impl Also {
    fn message(message: impl Into<Box<str>>) -> Self {
        Self { message: Some(message.into()), ..Self::default() }
    }
}

impl Engine {
    /// Takes a request; each ends in one reply.
    pub(crate) fn on_workflow_request(&mut self, ticket: Ticket, request: WorkflowRequest, actor: &Arc<str>) {
        let reply = match request {
            WorkflowRequest::Apply { workflows } => self.apply_workflows(&workflows),
            WorkflowRequest::Delete { workflow, expected_version } => {
                self.delete_workflow(workflow, expected_version)
            }
            WorkflowRequest::Start(new) => self.start_run(*new, actor),
            WorkflowRequest::Cancel { run, reason, skip_finally } => {
                self.cancel_run(run, actor, reason.as_deref(), skip_finally)
            }
            WorkflowRequest::Pause { run, note } => self.pause_run(run, actor, note),
            WorkflowRequest::Resume { run } => self.resume_run(run, actor),
            WorkflowRequest::Mark { run, step, status, note } => {
                self.mark_step(run, &step, status, actor, note)
            }
            WorkflowRequest::Decide { run, step, approve, note } => {
                self.decide_approval(run, &step, approve, actor, note)
            }
            WorkflowRequest::Event { run, event, payload } => self.take_event(run, &event, &payload, actor),
            WorkflowRequest::Why { run, step } => self.explain_step(run, &step),
            WorkflowRequest::WhyRun { run, most } => self.explain_run(run, most),
        };
        self.reply(ticket, reply);
    }

    /// Lets a run be looked at by the next flush.
    fn stir(&mut self, id: RunId) {
        if let Some(run) = self.workflows.runs.get_mut(&id).filter(|run| !run.stirred) {
            run.stirred = true;
            self.workflows.stirred.push_back(id);
        }
    }

    fn touch_workflow(&mut self, id: WorkflowId) {
        if let Some(workflow) = self.workflows.all.get_mut(&id).filter(|workflow| !workflow.dirty) {
            workflow.dirty = true;
            self.workflows.changed.push(id);
        }
    }

    /// Marks a run's row as changed.
    fn touch_run(&mut self, id: RunId) {
        let now = self.now;
        let Some(run) = self.workflows.runs.get_mut(&id) else { return };
        run.state.updated_at = now;
        if !run.dirty {
            run.dirty = true;
            run.state.version += 1;
            self.workflows.changed_runs.push(id);
        }
    }

    /// Marks a step's row as changed.
    fn touch_step(&mut self, id: RunId, step: u32) {
        if let Some(run) = self.workflows.runs.get_mut(&id)
            && !std::mem::replace(&mut run.step_mut(step).dirty, true)
        {
            self.workflows.changed_steps.push((id, step));
        }
    }

    /// Changes a run's status, records it and tells watchers.
    ///
    /// # Panics
    /// If the step does not stand in the table of legal transitions.
    fn step_run(&mut self, id: RunId, to: RunStatus, cause: RunCause, detail: Option<&str>) {
        let at = self.now;
        let Some(run) = self.workflows.runs.get_mut(&id) else { return };
        let from = (!run.state.history.is_empty()).then_some(run.state.status);
        assert!(
            lifecycle::is_legal_for_run(from, to, cause),
            "{id} cannot go from {from:?} to {to} because of {cause}"
        );
        run.state.status = to;
        let detail = detail.map(Into::into);
        run.state.history.push(RunHistoryEntry { at, from, to, cause, detail });
        if run.state.history.len() > limits::HISTORY_MAX {
            run.state.history.remove(limits::HISTORY_MAX / 4);
        }
        let kind = EventKind::Run { run: id, workflow: Arc::clone(&run.plan.name), from, to, cause };
        let namespace = Some(Arc::clone(&run.plan.namespace));
        self.pending.events.push(Event { at, namespace, kind });
        self.touch_run(id);
    }

    /// Changes a step's status, records it and tells watchers. Counts are kept; what follows from it is
    /// the caller's.
    ///
    /// # Panics
    /// If the step does not stand in the table of legal transitions.
    fn step_step(&mut self, id: RunId, step: u32, to: StepStatus, cause: StepCause, also: Also) {
        let now = self.now;
        let Some(run) = self.workflows.runs.get_mut(&id) else { return };
        let from = run.step(step).status();
        assert!(
            lifecycle::is_legal_for_step(from, to, cause),
            "step {step} of {id} cannot go from {from} to {to} because of {cause}"
        );
        let known = run.step_mut(step);
        let state = known.state.get_or_insert_with(|| Box::new(StepState::new(from, cause)));
        (state.status, state.cause) = (to, cause);
        if to.is_live() {
            state.started_at.get_or_insert(now);
        } else if to.is_final() {
            let ended_at = also.ended_at.unwrap_or(now);
            state.finished_at = Some(ended_at.max(state.started_at.unwrap_or(ended_at)).min(now));
        }
        state.message = also.message.or(state.message.take());
        state.output = also.output.or(state.output.take());
        state.files = also.files.or(state.files.take());
        let job = state.job;
        for (status, count) in run.state.counts.iter_mut().enumerate() {
            if status == usize::from(from.code()) {
                *count = count.saturating_sub(1);
            }
            if status == usize::from(to.code()) {
                *count += 1;
            }
        }
        let name = Arc::clone(&run.plan.node(step).name);
        let kind = EventKind::Step { run: id, step: name, from, to, cause, job };
        let namespace = Some(Arc::clone(&run.plan.namespace));
        self.pending.events.push(Event { at: now, namespace, kind });
        self.touch_step(id, step);
        self.touch_run(id);
    }

    /// Turns everything that changed about workflows and runs into rows, and lets go of runs that ended.
    pub(crate) fn drain_workflows(&mut self, changes: &mut Vec<Change>) {
        for id in std::mem::take(&mut self.workflows.changed) {
            let Some(workflow) = self.workflows.all.get_mut(&id) else { continue };
            workflow.dirty = false;
            let new = std::mem::take(&mut workflow.new);
            changes.push(Change::Workflow {
                id,
                new,
                head: workflow.head.take(),
                state: workflow.state.clone(),
            });
        }
        let mut ended = Vec::new();
        for id in std::mem::take(&mut self.workflows.changed_runs) {
            let Some(run) = self.workflows.runs.get_mut(&id) else { continue };
            run.dirty = false;
            let head = std::mem::take(&mut run.new).then(|| Arc::clone(&run.head));
            changes.push(Change::Run { id, head, state: Box::new(run.state.clone()) });
            if run.state.status.is_final() {
                ended.push(id);
            }
        }
        for (id, step) in std::mem::take(&mut self.workflows.changed_steps) {
            let Some(run) = self.workflows.runs.get_mut(&id) else { continue };
            run.step_mut(step).dirty = false;
            let key = StepKey { run: id, step, item: None };
            let state = run.step(step).state.as_deref().cloned();
            changes.extend(state.map(|state| Change::Step(Box::new(StepRecord { key, state }))));
        }
        let added = std::mem::take(&mut self.workflows.added);
        changes.extend(added.into_iter().map(|batch| Change::ElementBatch(Box::new(batch))));
        let elements = last_of_each(std::mem::take(&mut self.workflows.ended_elements));
        changes.extend(elements.into_iter().map(|record| Change::Step(Box::new(record))));
        for id in ended {
            self.workflows.runs.swap_remove(&id);
        }
    }

    /// The timer of a step, for the end of its wait or of its timeout.
    fn arm_step(&mut self, id: RunId, step: u32, wake_at: Option<Timestamp>) {
        let Some(run) = self.workflows.runs.get_mut(&id) else { return };
        let Some(state) = run.step_mut(step).state.as_deref_mut() else { return };
        let before = std::mem::replace(&mut state.wake_at, wake_at);
        if before == wake_at {
            return;
        }
        let timer = crate::timer::Timer::Step(id, step);
        if let Some(before) = before {
            self.agenda.disarm(before, timer.clone());
        }
        if let Some(wake_at) = wake_at {
            self.agenda.arm(wake_at, timer);
        }
        self.touch_step(id, step);
    }
}
