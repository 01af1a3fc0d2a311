//! Workflows: decide which jobs the steps of a run create, and when.
//!
//! ```text
//! start ─> advance ──┬─ join rule, condition ──> skipped, upstream_failed
//!    ^       ^       └─ a slot is free ────────> begin: job | call | list | approval | wait
//!    │       │                                          │
//!    │       └───────────── finish <── outcome ─────────┘
//!    └── the next run's turn <── the run's end
//! ```
//!
//! - [`apply`]: create, change and delete workflows.
//! - [`start`]: start runs; [`scheduled`]: runs of schedules; [`trigger`]: runs started by the end of a job
//!   or another run.
//! - [`advance`]: decides the next actions of a run; each flush calls it for the runs with new events.
//! - [`begin`], [`elements`]: start steps. [`job`]: creates the jobs of steps and handles their ends.
//! - [`added_elements`]: elements that running tasks add to a step.
//! - [`finish`]: ends steps and runs. [`retry`]: retries a failed run.
//! - [`ended_call`]: ended called runs that such a retry continues.
//! - [`control`]: cancel, pause, resume, mark and approve. [`wait`]: timers and events. [`late_workers`]: workers
//!   that join during a broadcast.
//! - [`plan`]: compiled definitions. [`scope`]: values that expressions can refer to. [`files`] and
//!   [`producers`]: artifacts that steps pass to later steps.
//! - [`explain`]: waiting reasons. [`check`]: invariants. [`restore`]: rebuilds runs from their rows.
//!
//! # Invariants
//! - The end of a step and the start of its dependents are decided in one flush, and so in one commit. Only
//!   dependents beyond the limit of one flush start later.
//! - The next actions follow from the rows of a run and its definition alone. A rebuilt engine has all of
//!   this state, so a crash between two commits loses and repeats nothing.
//! - A running step has its job, its called run or its elements, once all signals are delivered. A waiting step has its timer, or waits for a
//!   user or an event. A pending step has an unfinished dependency, or is held by a limit, a pause or the turn
//!   of its run.
//! - A run ends after all of its steps, if it is not retried; its outcome follows from the outcomes of all
//!   steps.
//!
//! # Cost
//! The end of a step costs one operation for each of its dependents. A pending step takes about 60 bytes; a
//! started one about 300 bytes and its job. An element of a list takes 24 bytes and, while it is running, its
//! job.

mod added_elements;
mod advance;
mod apply;
mod begin;
mod check;
mod control;
mod elements;
mod ended_call;
mod explain;
mod files;
mod finish;
mod growing;
mod job;
mod late_workers;
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
use model::record::{Change, EventKind, RunKeyRecord};
use model::run::{
    ElementBatch, EndedCall, RunCause, RunHead, RunHistoryEntry, RunState, RunStatus, StepCause,
    StepDecision, StepKey, StepRecord, StepState, StepStatus, WorkflowHead, WorkflowState, lifecycle,
};
use model::workflow::UpstreamCounts;
use model::{Refusal, RunId, Timestamp, WorkflowId, WorkflowSpec, limits};

use crate::context::Context;
use crate::input::WorkflowRequest;
use crate::jobs::Jobs;
use crate::output::Reply;
use elements::Elements;
use ended_call::KeptRows;
use plan::{Plan, Plans, index};
pub(crate) use scheduled::NotStarted;
use scheduled::Resolved;
use trigger::Listeners;

/// A workflow and its unfinished runs.
#[derive(Debug)]
pub(crate) struct Workflow {
    namespace: Arc<str>,
    name: Arc<str>,
    /// Spec that runs of schedules and triggers start with.
    spec: Arc<WorkflowSpec>,
    max_parallel_runs: usize,
    state: WorkflowState,
    /// Unfinished runs that have started.
    active: BTreeSet<RunId>,
    /// Runs that wait for their turn, in order.
    waiting: BTreeSet<RunId>,
    /// Hash of the spec, to detect an unchanged spec.
    body_hash: u128,
    /// Spec that is not yet written to the store; `None` if it is written.
    head: Option<Arc<WorkflowHead>>,
    new: bool,
    dirty: bool,
}

/// An unfinished run, or a run that has ended since the last flush.
#[derive(Debug)]
pub(crate) struct Run {
    head: Arc<RunHead>,
    plan: Arc<Plan>,
    state: RunState,
    /// Steps by their number.
    steps: Vec<Step>,
    /// Pending steps whose join rule must be evaluated.
    to_evaluate: VecDeque<u32>,
    /// Pending steps that may start as soon as a slot is free.
    ready: BTreeSet<u32>,
    /// Mapped steps that may have elements to start.
    with_pending_elements: BTreeSet<u32>,
    /// Number of running jobs and called runs.
    live: u32,
    /// Number of unfinished steps of each section.
    open: [u32; 3],
    /// Whether its head is not yet written to the store.
    new: bool,
    dirty: bool,
    /// Whether it is in `Workflows::to_advance`.
    to_advance: bool,
    /// Rows that its next call may take over; only of a called run.
    kept: Option<Box<KeptRows>>,
}

#[derive(Debug, Default)]
struct Step {
    /// Stored state; `None` while the step is pending.
    state: Option<Box<StepState>>,
    /// Number of its dependencies by outcome.
    counts: UpstreamCounts,
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

    /// Whether the status of the run allows steps to start.
    fn begins_steps(&self) -> bool {
        matches!(self.state.status, RunStatus::Running | RunStatus::Stopping)
    }

    fn section(&self) -> usize {
        self.state.section as usize
    }
}

/// All workflows and runs, with their shared plans.
#[derive(Debug, Default)]
pub(crate) struct Workflows {
    all: IndexMap<WorkflowId, Workflow, FixedState>,
    /// Ids by [`crate::names::name_hash`].
    names: IndexMap<u128, WorkflowId, FixedState>,
    runs: IndexMap<RunId, Run, FixedState>,
    /// Running steps with one element per worker.
    broadcasts: BTreeSet<(RunId, u32)>,
    /// Triggers by the jobs and workflows whose ends they listen to.
    listeners: Listeners,
    plans: Plans,
    /// Workflows with the workflows that they call. Filled on demand, and cleared when any workflow changes.
    resolved: BTreeMap<WorkflowId, Result<Resolved, String>>,
    /// Idempotency keys of run starts.
    keys: IndexMap<u128, RunKeyRecord, FixedState>,
    /// Workflows with changed rows, each once.
    changed: Vec<WorkflowId>,
    /// Runs with changed rows, each once.
    changed_runs: Vec<RunId>,
    /// Steps with changed rows, each once.
    changed_steps: Vec<(RunId, u32)>,
    /// Batches of elements that are not yet written.
    added: Vec<ElementBatch>,
    /// Ended elements that are not yet written.
    ended_elements: Vec<StepRecord>,
    /// Runs with new events, in the order of their turns; each once.
    to_advance: VecDeque<RunId>,
}

impl Workflows {
    /// While runs are `held`, runs that would advance do not count.
    pub(crate) fn is_idle(&self, held: bool) -> bool {
        self.changed.is_empty()
            && self.changed_runs.is_empty()
            && self.changed_steps.is_empty()
            && self.added.is_empty()
            && self.ended_elements.is_empty()
            && (held || self.to_advance.is_empty())
    }

    /// Returns the entry of the idempotency key of a run start.
    pub(crate) fn key(&self, key: u128) -> Option<&RunKeyRecord> {
        self.keys.get(&key)
    }

    /// Adds an idempotency key. Its row is written by the caller.
    pub(crate) fn insert_key(&mut self, record: RunKeyRecord) {
        self.keys.insert(record.key, record);
    }

    /// Keeps only the idempotency keys that `stays` accepts. Returns whether any was removed.
    pub(crate) fn retain_keys(&mut self, stays: impl Fn(&RunKeyRecord) -> bool) -> bool {
        let before = self.keys.len();
        self.keys.retain(|_, key| stays(key));
        self.keys.len() < before
    }

    pub(crate) fn has_runs_to_advance(&self) -> bool {
        !self.to_advance.is_empty()
    }

    fn find(&self, namespace: &str, name: &str) -> Option<WorkflowId> {
        let id = self.names.get(&crate::names::name_hash(namespace, name)).copied()?;
        let found = self.all.get(&id)?;
        (*found.namespace == *namespace && *found.name == *name).then_some(id)
    }
}

/// Keeps the last row of each element: an element that was reset may have ended again in the same flush.
fn last_rows(records: Vec<StepRecord>) -> Vec<StepRecord> {
    if records.iter().all(|record| record.state.status.is_final()) {
        return records;
    }
    let last: BTreeMap<StepKey, StepRecord> =
        records.into_iter().map(|record| (record.key, record)).collect();
    last.into_values().collect()
}

/// Details of a step's transition.
#[derive(Debug, Default)]
struct StepDetails {
    message: Option<Box<str>>,
    output: Option<Arc<str>>,
    files: Option<Arc<str>>,
    /// When its work ended, if that is known more exactly than the report.
    ended_at: Option<Timestamp>,
    /// Ended run that the next call continues.
    continues: Option<Arc<EndedCall>>,
}

impl StepDetails {
    fn message(message: impl Into<Box<str>>) -> Self {
        Self { message: Some(message.into()), ..Self::default() }
    }
}

impl Workflows {
    /// Processes a request about workflows and runs.
    ///
    /// # Errors
    /// The reason why the request is refused.
    pub(crate) fn handle(
        &mut self,
        cx: &mut Context,
        jobs: &mut Jobs,
        request: WorkflowRequest,
        actor: &Arc<str>,
    ) -> Result<Reply, Refusal> {
        match request {
            WorkflowRequest::Apply { workflows } => self.apply_workflows(cx, &workflows),
            WorkflowRequest::Delete { workflow, expected_version } => {
                self.delete_workflow(cx, workflow, expected_version)
            }
            WorkflowRequest::Start(new) => self.start_run(cx, jobs, *new, actor),
            WorkflowRequest::Cancel { run, reason, skip_finally } => {
                self.cancel_run(cx, jobs, run, actor, reason.as_deref(), skip_finally)
            }
            WorkflowRequest::Pause { run, note } => self.pause_run(cx, run, actor, note),
            WorkflowRequest::Resume { run } => self.resume_run(cx, run, actor),
            WorkflowRequest::Mark { run, step, status, note } => {
                let decision = StepDecision { at: cx.now, by: actor.as_ref().into(), note };
                self.mark_step(cx, jobs, run, &step, status, decision)
            }
            WorkflowRequest::Decide { run, step, approve, note } => {
                let decision = StepDecision { at: cx.now, by: actor.as_ref().into(), note };
                self.decide_approval(cx, jobs, run, &step, approve, decision)
            }
            WorkflowRequest::Event { run, event, payload } => {
                self.take_event(cx, jobs, run, &event, &payload, actor)
            }
            WorkflowRequest::Why { run, step } => self.explain_step(jobs, run, &step),
            WorkflowRequest::WhyRun { run, most } => self.explain_run(jobs, run, most),
        }
    }

    /// Marks a run to be advanced by the next flush.
    fn mark_for_advance(&mut self, id: RunId) {
        if let Some(run) = self.runs.get_mut(&id).filter(|run| !run.to_advance) {
            run.to_advance = true;
            self.to_advance.push_back(id);
        }
    }

    fn touch_workflow(&mut self, id: WorkflowId) {
        if let Some(workflow) = self.all.get_mut(&id).filter(|workflow| !workflow.dirty) {
            workflow.dirty = true;
            self.changed.push(id);
        }
    }

    /// Marks a run's row as changed. Its version increases once per flush.
    fn touch_run(&mut self, cx: &Context, id: RunId) {
        let now = cx.now;
        let Some(run) = self.runs.get_mut(&id) else { return };
        run.state.updated_at = now;
        if !run.dirty {
            run.dirty = true;
            run.state.version += 1;
            self.changed_runs.push(id);
        }
    }

    fn touch_step(&mut self, id: RunId, step: u32) {
        if let Some(run) = self.runs.get_mut(&id)
            && !std::mem::replace(&mut run.step_mut(step).dirty, true)
        {
            self.changed_steps.push((id, step));
        }
    }

    /// Changes a run's status, adds it to the history and emits an event.
    ///
    /// # Panics
    /// If the transition is not in the table of legal transitions.
    fn transition_run(
        &mut self,
        cx: &mut Context,
        id: RunId,
        to: RunStatus,
        cause: RunCause,
        detail: Option<&str>,
    ) {
        let at = cx.now;
        let Some(run) = self.runs.get_mut(&id) else { return };
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
        let (workflow, schedule) = (Arc::clone(&run.plan.name), run.firing().map(|origin| origin.schedule));
        let kind = EventKind::Run { run: id, workflow, from, to, cause, schedule };
        let namespace = Some(Arc::clone(&run.plan.namespace));
        cx.emit(namespace, kind);
        self.touch_run(cx, id);
    }

    /// Changes a step's status, emits an event and updates the counts of the run. The caller handles the
    /// consequences.
    ///
    /// # Panics
    /// If the transition is not in the table of legal transitions.
    fn transition_step(
        &mut self,
        cx: &mut Context,
        id: RunId,
        step: u32,
        to: StepStatus,
        cause: StepCause,
        also: StepDetails,
    ) {
        let now = cx.now;
        let Some(run) = self.runs.get_mut(&id) else { return };
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
        state.continues = also.continues.or(state.continues.take());
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
        cx.emit(namespace, kind);
        self.touch_step(id, step);
        self.touch_run(cx, id);
    }

    /// Writes changed workflows and runs as rows, and removes runs that have ended.
    pub(crate) fn drain(&mut self, changes: &mut Vec<Change>) {
        for id in std::mem::take(&mut self.changed) {
            let Some(workflow) = self.all.get_mut(&id) else { continue };
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
        for id in std::mem::take(&mut self.changed_runs) {
            let Some(run) = self.runs.get_mut(&id) else { continue };
            run.dirty = false;
            let head = std::mem::take(&mut run.new).then(|| Arc::clone(&run.head));
            changes.push(Change::Run { id, head, state: Box::new(run.state.clone()) });
            if run.state.status.is_final() {
                ended.push(id);
            }
        }
        for (id, step) in std::mem::take(&mut self.changed_steps) {
            let Some(run) = self.runs.get_mut(&id) else { continue };
            run.step_mut(step).dirty = false;
            let key = StepKey { run: id, step, item: None };
            let state = run.step(step).state.as_deref().cloned();
            changes.extend(state.map(|state| Change::Step(Box::new(StepRecord { key, state }))));
        }
        let added = std::mem::take(&mut self.added);
        changes.extend(added.into_iter().map(|batch| Change::ElementBatch(Box::new(batch))));
        let elements = last_rows(std::mem::take(&mut self.ended_elements));
        changes.extend(elements.into_iter().map(|record| Change::Step(Box::new(record))));
        for id in ended {
            self.runs.swap_remove(&id);
        }
    }

    /// Arms the timer of a step for the end of its wait or its timeout; `None` disarms it.
    fn arm_step(&mut self, cx: &mut Context, id: RunId, step: u32, wake_at: Option<Timestamp>) {
        let Some(run) = self.runs.get_mut(&id) else { return };
        let Some(state) = run.step_mut(step).state.as_deref_mut() else { return };
        let before = std::mem::replace(&mut state.wake_at, wake_at);
        if before == wake_at {
            return;
        }
        let timer = crate::timer::Timer::Step(id, step);
        if let Some(before) = before {
            cx.wall_timers.disarm(before, timer.clone());
        }
        if let Some(wake_at) = wake_at {
            cx.wall_timers.arm(wake_at, timer);
        }
        self.touch_step(id, step);
    }
}
