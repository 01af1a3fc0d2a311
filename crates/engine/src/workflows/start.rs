//! Starts runs: on request of a user, for a step that calls a workflow, or for a schedule or trigger.
//!
//! [`Workflows::admit_run`] is the common path: it creates the run and starts it, if the workflow's limit of
//! parallel runs allows, or lets it wait for its turn. A retry of a run carries over the results of its
//! predecessor ([`Workflows::carry`]).
//!
//! # Invariants
//! - An idempotency key leads to one run.
//! - A called run starts immediately; it does not count towards the limit of its workflow.
//!
//! # Cost
//! O(steps) per run. The plan is shared by all runs of a definition.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use model::record::{Change, RunKeyRecord};
use model::run::{
    Caller, EndedCall, RunCause, RunHead, RunState, RunStatus, StepCause, StepKey, StepRecord, StepState,
    StepStatus,
};
use model::workflow::{Definition, Section};
use model::{Refusal, RunId, Timestamp, WorkflowId, limits};
use rand::Rng;
use serde_json::{Map, Value};
use thin_vec::ThinVec;

use super::plan::{deadline, index};
use super::{Plan, Run, Step};
use crate::context::Context;
use crate::input::{CarriedResults, Key, NewRun};
use crate::jobs::Jobs;
use crate::names::shard_of;
use crate::output::Reply;
use crate::timer::Timer;
use crate::workflows::Workflows;

impl Run {
    pub(super) fn new(head: Arc<RunHead>, plan: Arc<Plan>, state: RunState) -> Self {
        let mut steps = Vec::with_capacity(plan.nodes.len());
        let mut open = [0; 3];
        for node in &plan.nodes {
            let mut step = Step::default();
            step.counts.needs = u32::try_from(node.needs.len()).unwrap_or(u32::MAX);
            open[node.section as usize] += 1;
            steps.push(step);
        }
        Self {
            head,
            plan,
            state,
            steps,
            to_evaluate: VecDeque::new(),
            ready: BTreeSet::new(),
            with_pending_elements: BTreeSet::new(),
            live: 0,
            open,
            new: false,
            dirty: false,
            to_advance: false,
            kept: None,
        }
    }
}

fn initial_state(now: Timestamp, steps: usize) -> RunState {
    let mut counts = [0; 8];
    counts[usize::from(StepStatus::Pending.code())] = u32::try_from(steps).unwrap_or(u32::MAX);
    RunState {
        status: RunStatus::Running,
        section: Section::Steps,
        version: 0,
        created_at: now,
        started_at: None,
        finished_at: None,
        updated_at: now,
        pause: None,
        stopping: None,
        retry: None,
        skip_finally: false,
        counts,
        output: None,
        history: Vec::new(),
        expires_at: None,
        started: ThinVec::new(),
    }
}

impl Workflows {
    pub(super) fn start_run(
        &mut self,
        cx: &mut Context,
        jobs: &mut Jobs,
        new: NewRun,
        actor: &Arc<str>,
    ) -> Result<Reply, Refusal> {
        if let Some(known) = new.key.and_then(|key| self.keys.get(&key.key)) {
            return match new.key.is_some_and(|key| key.body == known.body) {
                true => Ok(Reply::RunStarted { run: known.run, new: false }),
                false => Err(Refusal::RunIdempotencyKeyReused { run: known.run }),
            };
        }
        if let Some(id) = new.workflow {
            let workflow = self.all.get(&id).ok_or(Refusal::WorkflowNotFound { workflow: id })?;
            if workflow.waiting.len() >= limits::WAITING_RUNS_MAX {
                let name = Arc::clone(&workflow.name);
                return Err(Refusal::WaitingRunLimit { name, limit: limits::WAITING_RUNS_MAX });
            }
        }
        let plan = self
            .plans
            .of(&new.definition, &new.body, new.priority, &mut cx.profiles)
            .map_err(|reason| Refusal::InvalidDefinition { reason })?;
        let head = RunHead {
            workflow: new.workflow,
            generation: new.generation,
            number: 0,
            definition: Arc::clone(&plan.definition),
            body: Arc::clone(&plan.body),
            parameters: new.parameters,
            actor: Arc::clone(actor),
            note: new.note,
            caller: None,
            retry_of: new.retry_of,
            priority: new.priority,
            origin: new.origin,
            trigger: None,
        };
        let run = match new.workflow {
            Some(id) => self.admit_run(cx, jobs, id, head, plan, &new.carried),
            None => self.start_run_without_workflow(cx, jobs, head, plan, &new.carried),
        };
        self.store_start_key(cx, new.key, run);
        Ok(Reply::RunStarted { run, new: true })
    }

    /// Creates the next run of a workflow. It starts immediately if the limit allows, otherwise it waits for
    /// its turn.
    pub(super) fn admit_run(
        &mut self,
        cx: &mut Context,
        jobs: &mut Jobs,
        id: WorkflowId,
        head: RunHead,
        plan: Arc<Plan>,
        carried: &CarriedResults,
    ) -> RunId {
        let actor = Arc::clone(&head.actor);
        let run = RunId::from_bits(cx.ids.next(cx.now, id.shard(), cx.rng.next_u64()));
        let Some(workflow) = self.all.get_mut(&id) else { return run };
        workflow.state.runs += 1;
        let (number, has_room) = (workflow.state.runs, workflow.is_below_run_limit());
        if has_room { &mut workflow.active } else { &mut workflow.waiting }.insert(run);
        self.touch_workflow(id);
        self.insert_run(cx, run, RunHead { number, ..head }, plan);
        self.carry(cx, jobs, run, carried);
        if has_room {
            self.transition_run(cx, run, RunStatus::Running, RunCause::Started, Some(&actor));
            self.begin_run(cx, run);
        } else {
            self.transition_run(cx, run, RunStatus::Waiting, RunCause::Queued, Some(&actor));
            self.arm_deadline_of(cx, run);
        }
        run
    }

    /// Creates a run without a workflow. No limit applies, so it starts immediately.
    fn start_run_without_workflow(
        &mut self,
        cx: &mut Context,
        jobs: &mut Jobs,
        head: RunHead,
        plan: Arc<Plan>,
        carried: &CarriedResults,
    ) -> RunId {
        let actor = Arc::clone(&head.actor);
        let entropy = cx.rng.next_u64();
        let shard = shard_of(u128::from(entropy), cx.shards);
        let run = RunId::from_bits(cx.ids.next(cx.now, shard, entropy));
        self.insert_run(cx, run, head, plan);
        self.carry(cx, jobs, run, carried);
        self.transition_run(cx, run, RunStatus::Running, RunCause::Started, Some(&actor));
        self.begin_run(cx, run);
        run
    }

    /// Stores the idempotency key of a start, so that a repeated request finds the run.
    fn store_start_key(&mut self, cx: &mut Context, key: Option<Key>, run: RunId) {
        let Some(Key { key, body }) = key else { return };
        let record = RunKeyRecord { key, body, run, expires_at: cx.now + cx.config.key_retention };
        self.keys.insert(key, record);
        cx.write(Change::RunKey(record));
    }

    fn insert_run(&mut self, cx: &Context, id: RunId, head: RunHead, plan: Arc<Plan>) {
        let state = initial_state(cx.now, plan.nodes.len());
        let mut run = Run::new(Arc::new(head), plan, state);
        run.new = true;
        self.runs.insert(id, run);
        self.touch_run(cx, id);
    }

    /// Starts the run that a step calls, in the shard of the calling run and without waiting.
    ///
    /// # Errors
    /// The reason why the definition of the called workflow cannot be run.
    pub(super) fn start_called(
        &mut self,
        cx: &mut Context,
        jobs: &mut Jobs,
        caller: Caller,
        (definition, body): (&Arc<Definition>, &Arc<str>),
        parameters: Map<String, Value>,
        continues: Option<&EndedCall>,
    ) -> Result<RunId, String> {
        let Some(parent) = self.runs.get(&caller.run) else {
            return Err("the run no longer exists".into());
        };
        let head = Arc::clone(&parent.head);
        let plan = self.plans.of(definition, body, head.priority, &mut cx.profiles)?;
        let head = RunHead {
            workflow: None,
            generation: 0,
            number: 0,
            definition: Arc::clone(definition),
            body: Arc::clone(body),
            parameters: Arc::new(parameters),
            actor: Arc::clone(&head.actor),
            note: None,
            caller: Some(caller),
            retry_of: continues.map(|ended| ended.run),
            priority: head.priority,
            origin: head.origin.clone(),
            trigger: None,
        };
        let id = RunId::from_bits(cx.ids.next(cx.now, caller.run.shard(), cx.rng.next_u64()));
        self.insert_run(cx, id, head, plan);
        self.keep_rows(id);
        if let Some(EndedCall { records, batches, .. }) = continues {
            self.carry(cx, jobs, id, &CarriedResults { records: records.clone(), batches: batches.clone() });
        }
        self.transition_run(cx, id, RunStatus::Running, RunCause::Started, None);
        self.begin_run(cx, id);
        Ok(id)
    }

    /// Starts a run: its timeout counts from now, and its first steps are evaluated.
    pub(super) fn begin_run(&mut self, cx: &mut Context, id: RunId) {
        self.disarm_deadline_of(cx, id);
        let now = cx.now;
        let Some(run) = self.runs.get_mut(&id) else { return };
        run.state.started_at = Some(now);
        self.arm_deadline_of(cx, id);
        self.evaluate_section(id);
    }

    pub(super) fn arm_deadline_of(&mut self, cx: &mut Context, id: RunId) {
        if let Some(deadline) = self.runs.get(&id).and_then(deadline) {
            cx.wall_timers.arm(deadline, Timer::Run(id));
        }
    }

    /// Marks every pending step of the run's section for evaluation.
    pub(super) fn evaluate_section(&mut self, id: RunId) {
        let Some(run) = self.runs.get_mut(&id) else { return };
        let section = run.state.section;
        let plan = Arc::clone(&run.plan);
        let pending = plan.steps_of(section).filter(|&step| run.step(step).status() == StepStatus::Pending);
        let pending: Vec<u32> = pending.collect();
        run.to_evaluate.extend(pending);
        self.mark_for_advance(id);
    }

    /// Starts waiting runs of a workflow in order, as far as its limit allows.
    pub(super) fn start_waiting_runs(&mut self, cx: &mut Context, id: WorkflowId) {
        while let Some(workflow) = self.all.get_mut(&id).filter(|workflow| workflow.is_below_run_limit()) {
            let Some(run) = workflow.waiting.pop_first() else { return };
            workflow.active.insert(run);
            self.transition_run(cx, run, RunStatus::Running, RunCause::SlotAvailable, None);
            self.begin_run(cx, run);
        }
    }

    /// Carries over the results of an earlier run. Results of steps that this run does not have are ignored.
    fn carry(&mut self, cx: &mut Context, jobs: &mut Jobs, id: RunId, carried: &CarriedResults) {
        let now = cx.now;
        for batch in &carried.batches {
            self.carry_batch(id, batch);
        }
        for record in &carried.records {
            let StepKey { step, item, .. } = record.key;
            let Some(run) = self.runs.get_mut(&id) else { return };
            let known = index(step) < run.steps.len() && run.step(step).status() == StepStatus::Pending;
            let StepState { status, job, called, output, decision, .. } = &record.state;
            let carries = matches!(status, StepStatus::Succeeded | StepStatus::Skipped);
            if let Some(call) = record.state.continues.as_ref().filter(|_| known && !carries) {
                self.carry_call(id, (step, item), record.state.total, call);
                continue;
            }
            if !known || !carries {
                continue;
            }
            let mut state = StepState::new(StepStatus::Pending, StepCause::CarriedOver);
            (state.job, state.called, state.decision) = (*job, *called, decision.clone());
            (state.total, state.element_counts) = (record.state.total, record.state.element_counts);
            state.started_at = record.state.started_at;
            match item {
                None => {
                    run.step_mut(step).state = Some(Box::new(state));
                    let also = super::StepDetails {
                        output: output.clone(),
                        message: record.state.message.clone(),
                        files: record.state.files.clone(),
                        ..super::StepDetails::default()
                    };
                    self.end_step(cx, jobs, id, step, (*status, StepCause::CarriedOver), also);
                }
                Some(item) if *status == StepStatus::Succeeded => {
                    (state.status, state.output) = (*status, output.clone());
                    state.finished_at = record.state.finished_at.or(Some(now));
                    state.files = record.state.files.clone();
                    let key = StepKey { run: id, step, item: Some(item) };
                    self.carry_element(StepRecord { key, state });
                }
                Some(_) => {}
            }
        }
    }

    /// Makes the call of a step, or of one of its elements, continue an ended run once it starts.
    fn carry_call(
        &mut self,
        id: RunId,
        (step, item): (u32, Option<u32>),
        total: Option<u32>,
        call: &Arc<EndedCall>,
    ) {
        let mut state = StepState::new(StepStatus::Pending, StepCause::CarriedOver);
        state.continues = Some(Arc::clone(call));
        match item {
            None => {
                let Some(run) = self.runs.get_mut(&id) else { return };
                run.step_mut(step).state = Some(Box::new(state));
                self.touch_step(id, step);
            }
            Some(item) => {
                state.total = total;
                self.carry_element(StepRecord { key: StepKey { run: id, step, item: Some(item) }, state });
            }
        }
    }
}
