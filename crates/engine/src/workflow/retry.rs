//! A run that failed is tried again by the policy of its workflow.
//!
//! ```text
//! steps are over, the run is about to fail ──> retrying ── backoff ──> running: what did not end well is pending
//! ```
//!
//! Another try is of the same run: until its last one is over, the run has not ended, so nobody who waits for its
//! end hears of it, and it keeps its place among the runs of its workflow. What is done again is what a retry
//! by hand would do again ([`model::run::done_again`]). `on_failure` and `finally` come after the last try.
//!
//! # Always true
//! - A run that waits for its next try has no step of `steps` that goes on, and its timer is armed.
//! - Nothing begins twice that may not: a step that its policy calls final, or a job that runs at most once.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::RunId;
use model::run::{
    RetryFrom, RunCause, RunStatus, StepCause, StepKey, StepRecord, StepState, StepStatus, done_again,
};
use model::workflow::{NeedCounts, RunFailure, Section};

use super::elements::Elements;
use super::{Also, Run, index};
use crate::engine::Engine;
use crate::job::backoff;

impl Run {
    /// Whether another try may follow this one by its policy.
    fn has_tries_left(&self) -> bool {
        self.state.failures() < self.plan.definition.workflow.retry.max_retries
    }

    /// Whether the elements of a step that ended are to be known for another try: which of them are done again,
    /// or, of a list that tasks added, what they are.
    pub(super) fn keeps_elements(&self, step: u32) -> bool {
        let ended_well = matches!(self.step(step).status(), StepStatus::Succeeded | StepStatus::Skipped);
        let in_steps = self.plan.node(step).section == Section::Steps && self.state.section == Section::Steps;
        let another = self.state.next_try_at().is_some() || self.has_tries_left();
        // What was taken over comes before nothing that is done again.
        let carried = self.step(step).state.as_ref().is_some_and(|state| state.cause == StepCause::Carried);
        in_steps && another && (!ended_well || self.grows(step) && !carried)
    }

    /// Lets go of the elements of steps that ended, where no other try asks for them.
    pub(super) fn drop_elements(&mut self) {
        for step in 0..u32::try_from(self.steps.len()).unwrap_or(u32::MAX) {
            if self.step(step).status().is_final() && !self.keeps_elements(step) {
                self.step_mut(step).elements = None;
            }
        }
    }

    /// The steps that another try does again.
    pub(super) fn done_again(&self) -> BTreeMap<u32, bool> {
        let status_of = |step| Some(self.step(step).status());
        done_again(&self.plan.definition.workflow, status_of, RetryFrom::Failed)
    }

    /// Whether somebody decided that a step does not succeed.
    fn was_decided(&self, step: u32) -> bool {
        let cause = self.step(step).state.as_ref().map(|state| state.cause);
        let by_somebody =
            [StepCause::Marked, StepCause::Rejected, StepCause::JobCancelled, StepCause::RunCancelled];
        self.counts_as_failed(step) && cause.is_some_and(|cause| by_somebody.contains(&cause))
    }

    /// Whether a step began that may not begin again.
    ///
    /// A call that has not begun and continues an ended run repeats nothing, unless a step before it is done again
    /// (`after_another`): then it calls the workflow from its first step.
    fn is_final(&self, step: u32, after_another: bool) -> bool {
        let began =
            self.step(step).state.as_ref().is_some_and(|state| {
                state.started_at.is_some() || after_another && state.continues.is_some()
            });
        let definition = &self.plan.definition;
        let Some(spec) = definition.workflow.steps.get(index(step)).filter(|_| began) else { return false };
        definition.workflow.retry.final_steps.contains(&spec.name) || definition.is_at_most_once(&spec.action)
    }

    /// Whether a failure is followed by another try.
    fn may_try_again(&self, cause: RunCause) -> bool {
        let failure = match cause {
            RunCause::StepFailed | RunCause::FailFast => RunFailure::StepFailed,
            RunCause::TimedOut => RunFailure::TimedOut,
            _ => return false,
        };
        let count = u32::try_from(self.steps.len()).unwrap_or(u32::MAX);
        self.has_tries_left()
            && !self.plan.definition.workflow.retry.final_causes.contains(&failure)
            && !(0..count).any(|step| self.was_decided(step))
            && !self.done_again().iter().any(|(&step, &after_another)| self.is_final(step, after_another))
    }
}

impl Engine {
    /// The steps of a run are over. If it is about to fail and may be tried again, it waits for that from now on.
    pub(super) fn waits_for_next_try(&mut self, id: RunId) -> bool {
        let Some(cause) = self.fails(id) else { return false };
        let Some(run) = self.workflows.runs.get(&id).filter(|run| run.may_try_again(cause)) else {
            return false;
        };
        let plan = Arc::clone(&run.plan);
        let detail = self.failed_step(id, cause);
        let now = self.now;
        let Some(run) = self.workflows.runs.get_mut(&id) else { return false };
        let retry = run.state.retry.get_or_insert_default();
        retry.failures += 1;
        let wait = backoff(&plan.definition.workflow.retry.backoff, retry.failures, &mut self.rng);
        retry.next_at = Some(now + wait);
        run.state.stopping = None;
        self.step_run(id, RunStatus::Retrying, cause, detail.as_deref());
        self.arm_deadline_of(id);
        true
    }

    /// The backoff of a run is over: what did not end well is pending again, with what came after it.
    pub(super) fn begin_next_try(&mut self, id: RunId) {
        let now = self.now;
        let Some(run) = self.workflows.runs.get_mut(&id) else { return };
        let plan = Arc::clone(&run.plan);
        let again = run.done_again();
        let retry = run.state.retry.get_or_insert_default();
        (retry.next_at, retry.began_at) = (None, Some(now));
        for &step in again.keys() {
            // The list may be another one once a step that it may come from was done again.
            let is_same = !plan.node(step).needs.iter().any(|need| again.contains_key(need));
            self.reset_step(id, step, is_same);
        }
        self.count_needs_again(id);
        self.workflows.runs.get_mut(&id).into_iter().for_each(Run::drop_elements);
        self.step_run(id, RunStatus::Running, RunCause::BackoffOver, None);
        self.arm_deadline_of(id);
        self.ask_section(id);
    }

    /// Makes a step pending that ended. Of its elements those that ended well stay, if its list is the same.
    fn reset_step(&mut self, id: RunId, step: u32, list_is_same: bool) {
        let Some(run) = self.workflows.runs.get_mut(&id) else { return };
        let grows = run.grows(step);
        run.open[Section::Steps as usize] += 1;
        let known = run.step_mut(step);
        let Some(before) = known.state.clone() else { return };
        let reset = match known.elements.as_deref_mut() {
            Some(elements) => elements.wait_again(!list_is_same),
            // Those of a step that ended well are known by its row alone.
            None => (0..before.total.unwrap_or(0)).collect(),
        };
        if !list_is_same && !grows {
            known.elements = None;
        }
        let total = known.elements.as_deref().map(Elements::total);
        self.step_step(id, step, StepStatus::Pending, StepCause::RunRetried, Also::default());
        if let Some(run) = self.workflows.runs.get_mut(&id) {
            let items = before.items.filter(|_| list_is_same);
            // A call that has not begun still continues its ended run.
            let continues = before.continues.filter(|_| list_is_same);
            let fresh = StepState::new(StepStatus::Pending, StepCause::RunRetried);
            run.step_mut(step).state = Some(Box::new(StepState { total, items, continues, ..fresh }));
        }
        for item in reset {
            let key = StepKey { run: id, step, item: Some(item) };
            let state = StepState::new(StepStatus::Pending, StepCause::RunRetried);
            self.workflows.ended_elements.push(StepRecord { key, state });
        }
    }

    /// Counts anew how the needs of each step ended.
    fn count_needs_again(&mut self, id: RunId) {
        let Some(run) = self.workflows.runs.get_mut(&id) else { return };
        for step in &mut run.steps {
            step.counts = NeedCounts { needs: step.counts.needs, ..NeedCounts::default() };
        }
        let count = u32::try_from(run.steps.len()).unwrap_or(u32::MAX);
        let ended: Vec<u32> = (0..count).filter(|&step| run.step(step).status().is_final()).collect();
        for step in ended {
            self.tell_dependents(id, step);
        }
    }

    /// A run that waits for its next try, or was paused while it did, will have none.
    pub(super) fn leave_out_next_try(&mut self, id: RunId) {
        if self.workflows.runs.get(&id).is_none_or(|run| run.state.next_try_at().is_none()) {
            return;
        }
        self.disarm_deadline_of(id);
        let retry = self.workflows.runs.get_mut(&id).and_then(|run| run.state.retry.as_deref_mut());
        if let Some(retry) = retry {
            retry.next_at = None;
        }
    }
}
