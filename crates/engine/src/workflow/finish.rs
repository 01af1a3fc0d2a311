//! Steps and runs end.

use std::sync::Arc;

use model::run::{Caller, RunCause, RunStatus, StepCause, StepStatus};
use model::workflow::Section;
use model::workflow::template::fill;
use model::{RunId, Timestamp, limits};
use mutation::{Mutation, is_on};
use serde_json::{Map, Value};

use super::plan::{Act, deadline};
use super::scope::RunScope;
use super::{Also, Run};
use crate::engine::Engine;
use crate::timer::Timer;

impl Run {
    /// Whether a step ended in a way that counts as a failure of the run.
    pub(super) fn counts_as_failed(&self, step: u32) -> bool {
        let bad = matches!(
            self.step(step).status(),
            StepStatus::Failed | StepStatus::UpstreamFailed | StepStatus::Cancelled
        );
        bad && !self.plan.node(step).continue_on_failure
    }

    /// When the last of its steps ended; of those that began.
    fn last_end(&self) -> Option<Timestamp> {
        let states = self.steps.iter().filter_map(|step| step.state.as_deref());
        states.filter(|state| state.started_at.is_some()).filter_map(|state| state.finished_at).max()
    }
}

impl Engine {
    /// Ends a step for good. The steps that need it are asked by the next look at its run.
    pub(super) fn end_step(&mut self, id: RunId, step: u32, to: StepStatus, cause: StepCause, also: Also) {
        let Some(run) = self.workflows.runs.get(&id) else { return };
        let plan = Arc::clone(&run.plan);
        let node = plan.node(step);
        let status = run.step(step).status();
        let held_slot = status == StepStatus::Running && node.each.is_none();
        self.arm_step(id, step, None);
        let also = match node.timeout.filter(|_| cause == StepCause::TimedOut) {
            // How its job was stopped says less than why.
            Some(timeout) => {
                let verb = if status == StepStatus::Waiting { "waited" } else { "ran" };
                let more = also.message.filter(|_| node.each.is_some());
                let more = more.map(|more| format!("; {more}")).unwrap_or_default();
                let message = format!("{verb} longer than the step's timeout of {timeout}{more}");
                Also { message: Some(message.into()), ..also }
            }
            None => also,
        };
        self.step_step(id, step, to, cause, also);
        let Some(run) = self.workflows.runs.get_mut(&id) else { return };
        let keeps = run.keeps_elements(step);
        let known = run.step_mut(step);
        let tally = known.elements.as_ref().map(|elements| elements.tally());
        if !keeps {
            // What they did is in its row from here on.
            known.elements = None;
        }
        if let Some(state) = known.state.as_deref_mut() {
            state.ending = None;
            state.tally = tally.or(state.tally);
        }
        run.live -= u32::from(held_slot);
        run.ready.remove(&step);
        run.filling.remove(&step);
        run.open[node.section as usize] -= 1;
        if node.each.is_some() {
            self.workflows.broadcasts.remove(&(id, step));
        }
        self.tell_dependents(id, step);
        self.settle_filled(id, step);
        let Some(run) = self.workflows.runs.get(&id) else { return };
        let stops = plan.fails_fast()
            && node.section == Section::Steps
            && run.counts_as_failed(step)
            && matches!(run.state.status, RunStatus::Running | RunStatus::Paused);
        if stops {
            let name = &node.name;
            self.begin_stopping(id, RunCause::FailFast, Some(&format!("step `{name}` {to}")));
        }
        self.stir(id);
    }

    /// Counts the end of a step for each step that needs it.
    pub(super) fn tell_dependents(&mut self, id: RunId, step: u32) {
        let Some(run) = self.workflows.runs.get_mut(&id) else { return };
        let plan = Arc::clone(&run.plan);
        let node = plan.node(step);
        let status = run.step(step).status();
        let untold = usize::from(is_on(Mutation::EngineTellsOneStepLess));
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
                run.asked.push_back(dependent);
            }
        }
    }

    /// Why a run will not succeed, as far as that is decided.
    pub(super) fn fails(&self, id: RunId) -> Option<RunCause> {
        let run = self.workflows.runs.get(&id)?;
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

    /// Keeps what a run gives, once its steps ended well. If it cannot be given, the run will fail.
    pub(super) fn gather_outputs(&mut self, id: RunId) {
        if self.fails(id).is_some() {
            return;
        }
        let outputs = self.outputs_of(id);
        let Some(run) = self.workflows.runs.get_mut(&id) else { return };
        match outputs {
            Ok(output) => run.state.output = output,
            Err(_) => run.state.stopping = Some(RunCause::OutputFailed),
        }
        self.touch_run(id);
    }

    /// What a run gives, as JSON; nothing if its workflow declares no outputs.
    fn outputs_of(&self, id: RunId) -> Result<Option<Arc<str>>, String> {
        let Some(run) = self.workflows.runs.get(&id) else { return Ok(None) };
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

    pub(super) fn disarm_deadline_of(&mut self, id: RunId) {
        let Some(run) = self.workflows.runs.get(&id) else { return };
        if let Some(deadline) = deadline(run) {
            self.agenda.disarm(deadline, Timer::Run(id));
        }
    }

    /// Every step of a run has ended.
    pub(super) fn end_run(&mut self, id: RunId) {
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
        let ended_at = self.workflows.runs.get(&id).filter(|_| by_itself).and_then(Run::last_end);
        self.close_run_at(id, ended_at.unwrap_or(self.now), status, cause, detail.as_deref());
    }

    /// What made a run fail, for people: the first step that did, or the output that it cannot give.
    pub(super) fn failed_step(&self, id: RunId, cause: RunCause) -> Option<String> {
        let run = self.workflows.runs.get(&id)?;
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

    /// Ends a run that never had its turn. None of its steps ever begins, those of `finally` neither: there is
    /// nothing to clean up.
    pub(super) fn close_waiting(
        &mut self,
        id: RunId,
        status: RunStatus,
        cause: RunCause,
        detail: Option<&str>,
    ) {
        let Some(run) = self.workflows.runs.get(&id) else { return };
        let count = u32::try_from(run.steps.len()).unwrap_or(u32::MAX);
        for step in 0..count {
            self.stop_step(id, step, (StepStatus::Cancelled, StepCause::Stopped));
        }
        self.close_run(id, status, cause, detail);
    }

    /// Ends a run for good: its workflow's next run has its turn, and the step that called it ends.
    pub(super) fn close_run(&mut self, id: RunId, status: RunStatus, cause: RunCause, detail: Option<&str>) {
        self.close_run_at(id, self.now, status, cause, detail);
    }

    /// As [`close_run`](Self::close_run), of a run that ended at an instant: before now if that could not be reported at
    /// once.
    fn close_run_at(
        &mut self,
        id: RunId,
        ended_at: Timestamp,
        status: RunStatus,
        cause: RunCause,
        detail: Option<&str>,
    ) {
        let now = self.now;
        self.disarm_deadline_of(id);
        let retention = self.config.retention;
        let Some(run) = self.workflows.runs.get_mut(&id) else { return };
        run.state.finished_at = Some(ended_at.min(now));
        run.state.expires_at = Some(now + run.plan.definition.workflow.retention.unwrap_or(retention));
        let head = Arc::clone(&run.head);
        self.step_run(id, status, cause, detail);
        if let Some(workflow) = head.workflow {
            if let Some(known) = self.workflows.all.get_mut(&workflow) {
                known.active.remove(&id);
                known.waiting.remove(&id);
            }
            self.give_turns(workflow);
        }
        self.tell_schedule_of(id, cause);
        match head.caller {
            Some(caller) => self.on_called_over(id, caller, detail),
            None => self.tell_listeners_of_run(id, cause),
        }
    }

    /// A run that a step called has ended.
    fn on_called_over(&mut self, id: RunId, caller: Caller, detail: Option<&str>) {
        let Some(run) = self.workflows.runs.get(&id) else { return };
        let (status, cause) = match run.state.status {
            RunStatus::Succeeded => (StepStatus::Succeeded, StepCause::RunSucceeded),
            RunStatus::Cancelled => (StepStatus::Cancelled, StepCause::RunCancelled),
            _ => (StepStatus::Failed, StepCause::RunFailed),
        };
        let output = run.state.output.clone().filter(|_| status == StepStatus::Succeeded);
        let files = (status == StepStatus::Succeeded).then(|| run.files(id)).flatten();
        let also = Also { message: detail.map(Into::into), output, files, ended_at: run.state.finished_at };
        self.on_work_over(caller.run, caller.step, caller.item, status, cause, also);
    }

    /// The job, or the called run, of a step or of one of its elements is over.
    pub(super) fn on_work_over(
        &mut self,
        id: RunId,
        step: u32,
        item: Option<u32>,
        status: StepStatus,
        cause: StepCause,
        also: Also,
    ) {
        let Some(run) = self.workflows.runs.get(&id) else { return };
        let Some(state) = run.step(step).state.as_deref().filter(|state| state.status == StepStatus::Running)
        else {
            return;
        };
        let promise = run.plan.definition.workflow.step_at(super::index(step));
        let broken = promise
            .filter(|_| status == StepStatus::Succeeded)
            .and_then(|spec| spec.broken_promise(also.output.as_deref()));
        let (status, cause, also) = match broken {
            Some(broken) => {
                (StepStatus::Failed, StepCause::BadOutput, Also { message: Some(broken.into()), ..also })
            }
            None => (status, cause, also),
        };
        if let Some(item) = item {
            return self.end_element(id, step, item, status, cause, also);
        }
        // What somebody decided about it counts more than how it ended; that it took too long, or was to
        // be stopped, counts less than that it succeeded meanwhile.
        let (status, cause) = match state.ending {
            Some((status, StepCause::Marked)) => (status, StepCause::Marked),
            Some((to, why)) if status != StepStatus::Succeeded => (to, why),
            _ => (status, cause),
        };
        self.end_step(id, step, status, cause, also);
    }

    /// Whether a step calls a workflow instead of running a job.
    pub(super) fn calls(&self, id: RunId, step: u32) -> bool {
        self.workflows.runs.get(&id).is_some_and(|run| matches!(run.plan.node(step).act, Act::Call(_)))
    }
}
