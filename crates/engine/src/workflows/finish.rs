//! Ends of steps and runs.
//!
//! [`Workflows::end_step`] ends a step, counts its outcome for its dependents and, with the failure policy
//! `fail_fast`, stops the run. [`Workflows::close_run`] ends a run: the next run of its workflow starts, and its
//! schedule, its calling step or the triggers that listen to it are notified.
//!
//! # Invariants
//! - A final status never changes, except by a retry of the run ([`retry`](super::retry)).
//! - The section counts in `Run::open` equal the number of unfinished steps.
//!
//! # Cost
//! O(dependents) for each step; O(steps) for each failed run.

use std::sync::Arc;

use model::run::{Caller, RunCause, RunStatus, StepCause, StepKey, StepStatus};
use model::workflow::Section;
use model::workflow::template::fill;
use model::{RunId, Timestamp, limits};
use mutation::{Mutation, is_on};
use serde_json::{Map, Value};

use super::plan::{StepAction, deadline};
use super::scope::RunScope;
use super::{Run, StepDetails};
use crate::context::Context;
use crate::jobs::Jobs;
use crate::timer::Timer;
use crate::workflows::Workflows;

impl Run {
    /// Returns whether the end of a step counts as a failure of the run.
    pub(super) fn counts_as_failed(&self, step: u32) -> bool {
        let bad = matches!(
            self.step(step).status(),
            StepStatus::Failed | StepStatus::UpstreamFailed | StepStatus::Cancelled
        );
        bad && !self.plan.node(step).continue_on_failure
    }

    /// Returns when the last of its started steps ended.
    fn last_end(&self) -> Option<Timestamp> {
        let states = self.steps.iter().filter_map(|step| step.state.as_deref());
        states.filter(|state| state.started_at.is_some()).filter_map(|state| state.finished_at).max()
    }
}

impl Workflows {
    /// Moves a step to a final status. Its dependents are evaluated when the run is advanced next.
    pub(super) fn end_step(
        &mut self,
        cx: &mut Context,
        jobs: &mut Jobs,
        id: RunId,
        step: u32,
        (to, cause): (StepStatus, StepCause),
        also: StepDetails,
    ) {
        let Some(run) = self.runs.get(&id) else { return };
        let plan = Arc::clone(&run.plan);
        let node = plan.node(step);
        let status = run.step(step).status();
        let held_slot = status == StepStatus::Running && node.each.is_none();
        self.arm_step(cx, id, step, None);
        let also = match node.timeout.filter(|_| cause == StepCause::TimedOut) {
            // The timeout is the relevant reason, not how its job was stopped.
            Some(timeout) => {
                let verb = if status == StepStatus::Waiting { "waited" } else { "ran" };
                let more = also.message.filter(|_| node.each.is_some());
                let more = more.map(|more| format!("; {more}")).unwrap_or_default();
                let message = format!("{verb} longer than the step's timeout of {timeout}{more}");
                StepDetails { message: Some(message.into()), ..also }
            }
            None => also,
        };
        self.transition_step(cx, id, step, to, cause, also);
        let Some(run) = self.runs.get_mut(&id) else { return };
        let keeps = run.keeps_elements(step);
        let known = run.step_mut(step);
        let tally = known.elements.as_ref().map(|elements| elements.tally());
        if !keeps {
            // From now on the results of the elements are in the step's row.
            known.elements = None;
        }
        if let Some(state) = known.state.as_deref_mut() {
            state.ending = None;
            state.element_counts = tally.or(state.element_counts);
        }
        run.live -= u32::from(held_slot);
        run.ready.remove(&step);
        run.with_pending_elements.remove(&step);
        run.open[node.section as usize] -= 1;
        if node.each.is_some() {
            self.broadcasts.remove(&(id, step));
        }
        self.count_for_dependents(id, step);
        self.settle_receiving_steps(cx, jobs, id, step);
        let Some(run) = self.runs.get(&id) else { return };
        let stops = plan.fails_fast()
            && node.section == Section::Steps
            && run.counts_as_failed(step)
            && matches!(run.state.status, RunStatus::Running | RunStatus::Paused);
        if stops {
            let name = &node.name;
            self.begin_stopping(cx, jobs, id, RunCause::FailFast, Some(&format!("step `{name}` {to}")));
        }
        self.mark_for_advance(id);
    }

    /// Counts the outcome of a step for each of its dependents.
    pub(super) fn count_for_dependents(&mut self, id: RunId, step: u32) {
        let Some(run) = self.runs.get_mut(&id) else { return };
        let plan = Arc::clone(&run.plan);
        let node = plan.node(step);
        let status = run.step(step).status();
        let untold = usize::from(is_on(Mutation::EngineNotifiesOneStepLess));
        for &dependent in node.dependents.iter().skip(untold) {
            let counts = &mut run.step_mut(dependent).counts;
            match status {
                StepStatus::Succeeded => counts.succeeded += 1,
                StepStatus::Failed | StepStatus::Cancelled if node.continue_on_failure => {
                    counts.succeeded += 1
                }
                StepStatus::Failed | StepStatus::Cancelled => counts.failed += 1,
                StepStatus::UpstreamFailed => counts.upstream_failed += 1,
                StepStatus::Skipped => counts.skipped += 1,
                StepStatus::Pending | StepStatus::Running | StepStatus::Waiting => continue,
            }
            if run.step(dependent).status() == StepStatus::Pending {
                run.to_evaluate.push_back(dependent);
            }
        }
    }

    /// Returns why a run will not succeed, as far as that is decided.
    pub(super) fn fails(&self, id: RunId) -> Option<RunCause> {
        let run = self.runs.get(&id)?;
        if run.state.stopping.is_some() {
            return run.state.stopping;
        }
        let bad = [StepStatus::Failed, StepStatus::UpstreamFailed, StepStatus::Cancelled];
        if bad.iter().all(|status| run.state.counts[usize::from(status.code())] == 0) {
            return None;
        }
        let steps = 0..u32::try_from(run.steps.len()).unwrap_or(u32::MAX);
        steps.into_iter().any(|step| run.counts_as_failed(step)).then_some(RunCause::StepFailed)
    }

    /// Stores the outputs of a run whose steps succeeded. If they cannot be evaluated, the run fails.
    pub(super) fn gather_outputs(&mut self, cx: &Context, id: RunId) {
        if self.fails(id).is_some() {
            return;
        }
        let outputs = self.outputs_of(id);
        let Some(run) = self.runs.get_mut(&id) else { return };
        match outputs {
            Ok(output) => run.state.output = output,
            Err(_) => run.state.stopping = Some(RunCause::OutputFailed),
        }
        self.touch_run(cx, id);
    }

    /// Returns the outputs of a run as JSON; `None` if its workflow declares none.
    fn outputs_of(&self, id: RunId) -> Result<Option<Arc<str>>, String> {
        let Some(run) = self.runs.get(&id) else { return Ok(None) };
        let outputs = &run.plan.definition.workflow.outputs;
        if outputs.is_empty() {
            return Ok(None);
        }
        let scope = RunScope::of_step(id, run);
        let mut filled = Map::new();
        for (name, value) in outputs {
            let value = fill(value, &scope).map_err(|error| format!("output `{name}`: {error}"))?;
            filled.insert(name.clone(), value);
        }
        let text = Value::Object(filled).to_string();
        if text.len() > limits::OUTPUT_BYTES_MAX {
            let (len, most) = (text.len(), limits::OUTPUT_BYTES_MAX);
            return Err(format!("the outputs have {len} bytes: expected at most {most}"));
        }
        Ok(Some(text.into()))
    }

    pub(super) fn disarm_deadline_of(&mut self, cx: &mut Context, id: RunId) {
        let Some(run) = self.runs.get(&id) else { return };
        if let Some(deadline) = deadline(run) {
            cx.wall_timers.disarm(deadline, Timer::Run(id));
        }
    }

    /// Ends a run whose steps have all ended.
    pub(super) fn end_run(&mut self, cx: &mut Context, jobs: &mut Jobs, id: RunId) {
        let cause = self.fails(id).unwrap_or(RunCause::Succeeded);
        let status = match cause {
            RunCause::Succeeded => RunStatus::Succeeded,
            RunCause::CancelRequested | RunCause::ParentStopped => RunStatus::Cancelled,
            _ => RunStatus::Failed,
        };
        let detail = self.failed_step(id, cause);
        let by_itself = matches!(
            cause,
            RunCause::Succeeded | RunCause::StepFailed | RunCause::FailFast | RunCause::OutputFailed
        );
        let ended_at = self.runs.get(&id).filter(|_| by_itself).and_then(Run::last_end);
        self.close_run_at(cx, jobs, id, ended_at.unwrap_or(cx.now), (status, cause), detail.as_deref());
    }

    /// Returns the reason of a failure for display: the first failed step, or the output that cannot be
    /// evaluated.
    pub(super) fn failed_step(&self, id: RunId, cause: RunCause) -> Option<String> {
        let run = self.runs.get(&id)?;
        if cause == RunCause::OutputFailed {
            return self.outputs_of(id).err();
        }
        if !matches!(cause, RunCause::StepFailed | RunCause::FailFast) {
            return None;
        }
        let failed = |step: &u32| {
            let began = matches!(run.step(*step).status(), StepStatus::Failed | StepStatus::Cancelled);
            began && run.counts_as_failed(*step)
        };
        let step = (0..u32::try_from(run.steps.len()).unwrap_or(u32::MAX)).find(failed)?;
        let name = &run.plan.node(step).name;
        let message = run.step(step).state.as_ref().and_then(|state| state.message.as_deref());
        Some(match message {
            Some(message) => format!("step `{name}`: {message}"),
            None => format!("step `{name}`"),
        })
    }

    /// Ends a run that was still waiting for its turn. None of its steps starts, not even those of `finally`,
    /// because there is nothing to clean up.
    pub(super) fn close_waiting(
        &mut self,
        cx: &mut Context,
        jobs: &mut Jobs,
        id: RunId,
        status: RunStatus,
        cause: RunCause,
        detail: Option<&str>,
    ) {
        let Some(run) = self.runs.get(&id) else { return };
        let count = u32::try_from(run.steps.len()).unwrap_or(u32::MAX);
        for step in 0..count {
            self.stop_step(cx, jobs, id, step, (StepStatus::Cancelled, StepCause::Stopped));
        }
        self.close_run(cx, jobs, id, status, cause, detail);
    }

    /// Moves a run to a final status: starts the next run of its workflow, and ends the step that called it.
    pub(super) fn close_run(
        &mut self,
        cx: &mut Context,
        jobs: &mut Jobs,
        id: RunId,
        status: RunStatus,
        cause: RunCause,
        detail: Option<&str>,
    ) {
        self.close_run_at(cx, jobs, id, cx.now, (status, cause), detail);
    }

    /// Does the same as [`close_run`](Self::close_run) with an earlier end time, because the end could not be
    /// reported immediately.
    fn close_run_at(
        &mut self,
        cx: &mut Context,
        jobs: &mut Jobs,
        id: RunId,
        ended_at: Timestamp,
        (status, cause): (RunStatus, RunCause),
        detail: Option<&str>,
    ) {
        let now = cx.now;
        self.disarm_deadline_of(cx, id);
        let retention = cx.config.retention;
        let Some(run) = self.runs.get_mut(&id) else { return };
        run.state.finished_at = Some(ended_at.min(now));
        run.state.expires_at = Some(now + run.plan.definition.workflow.retention.unwrap_or(retention));
        let head = Arc::clone(&run.head);
        self.transition_run(cx, id, status, cause, detail);
        if let Some(workflow) = head.workflow {
            if let Some(known) = self.all.get_mut(&workflow) {
                known.active.remove(&id);
                known.waiting.remove(&id);
            }
            self.start_waiting_runs(cx, workflow);
        }
        self.report_to_schedule(cx, id);
        match head.caller {
            Some(caller) => self.on_called_run_ended(cx, jobs, id, caller, detail),
            None => self.notify_listeners_of_run(cx, jobs, id, cause),
        }
    }

    /// Handles the end of a run that a step called.
    fn on_called_run_ended(
        &mut self,
        cx: &mut Context,
        jobs: &mut Jobs,
        id: RunId,
        caller: Caller,
        detail: Option<&str>,
    ) {
        let Some(run) = self.runs.get(&id) else { return };
        let (status, cause) = match run.state.status {
            RunStatus::Succeeded => (StepStatus::Succeeded, StepCause::RunSucceeded),
            RunStatus::Cancelled => (StepStatus::Cancelled, StepCause::RunCancelled),
            _ => (StepStatus::Failed, StepCause::RunFailed),
        };
        let output = run.state.output.clone().filter(|_| status == StepStatus::Succeeded);
        let files = (status == StepStatus::Succeeded).then(|| run.files(id)).flatten();
        let ended_at = run.state.finished_at;
        let continues = if status == StepStatus::Succeeded { None } else { self.ended_call(id) };
        let also = StepDetails { message: detail.map(Into::into), output, files, ended_at, continues };
        self.on_work_ended(
            cx,
            jobs,
            StepKey { run: caller.run, step: caller.step, item: caller.element },
            (status, cause),
            also,
        );
    }

    /// Handles the end of the job or called run of a step or of one of its elements.
    pub(super) fn on_work_ended(
        &mut self,
        cx: &mut Context,
        jobs: &mut Jobs,
        key: StepKey,
        (status, cause): (StepStatus, StepCause),
        also: StepDetails,
    ) {
        let StepKey { run: id, step, item } = key;
        let Some(run) = self.runs.get(&id) else { return };
        let Some(state) = run.step(step).state.as_deref().filter(|state| state.status == StepStatus::Running)
        else {
            return;
        };
        let promise = run.plan.definition.workflow.step_at(super::index(step));
        let broken = promise
            .filter(|_| status == StepStatus::Succeeded)
            .and_then(|spec| spec.output_problems(also.output.as_deref()));
        let (status, cause, also) = match broken {
            Some(broken) => (
                StepStatus::Failed,
                StepCause::BadOutput,
                StepDetails { message: Some(broken.into()), ..also },
            ),
            None => (status, cause, also),
        };
        if let Some(item) = item {
            return self.end_element(cx, jobs, (id, step, item), (status, cause), also);
        }
        // The outcome that a user set takes precedence. A timeout or stop takes effect only if the work did
        // not succeed meanwhile.
        let (status, cause) = match state.ending {
            Some((status, StepCause::Marked)) => (status, StepCause::Marked),
            Some((to, why)) if status != StepStatus::Succeeded => (to, why),
            _ => (status, cause),
        };
        self.end_step(cx, jobs, id, step, (status, cause), also);
    }

    /// Returns whether a step calls a workflow instead of running a job.
    pub(super) fn calls(&self, id: RunId, step: u32) -> bool {
        self.runs.get(&id).is_some_and(|run| matches!(run.plan.node(step).act, StepAction::Call(_)))
    }
}
