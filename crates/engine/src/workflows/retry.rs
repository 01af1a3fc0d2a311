//! Automatic retries of a failed run, by the retry policy of its workflow.
//!
//! ```text
//! steps ended, run would fail ──> retrying ── backoff ──> running: steps without success are pending
//! ```
//!
//! A retry continues the same run. The run has not ended before its last retry, so nothing is reported to its
//! schedule, triggers or caller. It keeps its place among the runs of its workflow. It repeats the same steps
//! as a manual retry would ([`model::run::repeated_steps`]). `on_failure` and `finally` run after the last retry.
//!
//! # Invariants
//! - A run that waits for a retry has no running step in `steps`, and its timer is armed.
//! - Steps that must not be repeated are not: steps that the policy calls final, and jobs that run at most
//!   once.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::RunId;
use model::run::{
    EndedCall, RetryFrom, RunCause, RunStatus, StepCause, StepKey, StepRecord, StepState, StepStatus,
    repeated_steps,
};
use model::workflow::{RunFailure, Section, UpstreamCounts};

use super::elements::Elements;
use super::{Run, StepDetails, index};
use crate::context::Context;
use crate::jobs::backoff;
use crate::workflows::Workflows;

impl Run {
    /// Returns whether the policy allows another retry.
    pub(super) fn has_retries_left(&self) -> bool {
        self.state.failures() < self.plan.definition.workflow.retry.max_retries
    }

    /// Returns whether the elements of an ended step are needed for a retry: to repeat some of them, or, for
    /// a list that tasks added, to know the list.
    pub(super) fn keeps_elements(&self, step: u32) -> bool {
        let ended_well = matches!(self.step(step).status(), StepStatus::Succeeded | StepStatus::Skipped);
        let in_steps = self.plan.node(step).section == Section::Steps && self.state.section == Section::Steps;
        let another = self.state.next_attempt_at().is_some() || self.has_retries_left();
        // Dependents of a carried-over step are repeated, but not the step itself.
        let carried =
            self.step(step).state.as_ref().is_some_and(|state| state.cause == StepCause::CarriedOver);
        in_steps && another && (!ended_well || self.grows(step) && !carried)
    }

    /// Drops the elements of ended steps that no retry needs.
    pub(super) fn drop_elements(&mut self) {
        for step in 0..u32::try_from(self.steps.len()).unwrap_or(u32::MAX) {
            if self.step(step).status().is_final() && !self.keeps_elements(step) {
                self.step_mut(step).elements = None;
            }
        }
    }

    /// Returns the steps that a retry repeats; the value tells whether a repeated step precedes them.
    pub(super) fn repeated_steps(&self) -> BTreeMap<u32, bool> {
        let status_of = |step| Some(self.step(step).status());
        repeated_steps(&self.plan.definition.workflow, status_of, RetryFrom::Failed)
    }

    /// Returns whether a user decided that a step does not succeed.
    fn was_set_by_user(&self, step: u32) -> bool {
        let cause = self.step(step).state.as_ref().map(|state| state.cause);
        let by_somebody =
            [StepCause::Marked, StepCause::Rejected, StepCause::JobCancelled, StepCause::RunCancelled];
        self.counts_as_failed(step) && cause.is_some_and(|cause| by_somebody.contains(&cause))
    }

    /// Returns whether a step has started that must not start again.
    ///
    /// A call that continues its ended run repeats only what did not succeed in that run. If a step before it is
    /// repeated (`after_another`), it calls the workflow from its first step.
    fn is_final(&self, step: u32, after_another: bool) -> bool {
        let began =
            self.step(step).state.as_ref().is_some_and(|state| {
                state.started_at.is_some() || after_another && state.continues.is_some()
            });
        let definition = &self.plan.definition;
        let Some(spec) = definition.workflow.steps.get(index(step)).filter(|_| began) else { return false };
        definition.workflow.retry.final_steps.contains(&spec.name)
            || definition.is_at_most_once(&spec.action) && (after_another || !self.continues_calls(step))
    }

    /// Returns whether the next calls of an ended step continue their ended runs and start no `at_most_once` job
    /// again.
    fn continues_calls(&self, step: u32) -> bool {
        let known = self.step(step);
        match (known.elements.as_deref(), known.state.as_deref()) {
            (Some(elements), _) => elements.continues_calls(),
            (None, state) => state
                .and_then(|state| state.continues.as_ref())
                .is_some_and(|call| !call.repeats_at_most_once),
        }
    }

    /// Returns whether a failure is followed by a retry.
    fn may_retry_run(&self, cause: RunCause) -> bool {
        let failure = match cause {
            RunCause::StepFailed | RunCause::FailFast => RunFailure::StepFailed,
            RunCause::TimedOut => RunFailure::TimedOut,
            _ => return false,
        };
        let count = u32::try_from(self.steps.len()).unwrap_or(u32::MAX);
        self.has_retries_left()
            && !self.plan.definition.workflow.retry.final_causes.contains(&failure)
            && !(0..count).any(|step| self.was_set_by_user(step))
            && !self.repeated_steps().iter().any(|(&step, &after_another)| self.is_final(step, after_another))
    }
}

impl Workflows {
    /// Handles the end of a run's steps. If the run would fail and may be retried, it waits for the retry
    /// from now on.
    pub(super) fn schedule_next_retry(&mut self, cx: &mut Context, id: RunId) -> bool {
        let Some(cause) = self.fails(id) else { return false };
        let Some(run) = self.runs.get(&id).filter(|run| run.may_retry_run(cause)) else {
            return false;
        };
        let plan = Arc::clone(&run.plan);
        let detail = self.failed_step(id, cause);
        let now = cx.now;
        let Some(run) = self.runs.get_mut(&id) else { return false };
        let retry = run.state.retry.get_or_insert_default();
        retry.failures += 1;
        let wait = backoff(&plan.definition.workflow.retry.backoff, retry.failures, &mut cx.rng);
        retry.next_at = Some(now + wait);
        run.state.stopping = None;
        self.transition_run(cx, id, RunStatus::Retrying, cause, detail.as_deref());
        self.arm_deadline_of(cx, id);
        true
    }

    /// Starts a retry after its backoff: steps without success are pending again, with their dependents.
    pub(super) fn start_next_retry(&mut self, cx: &mut Context, id: RunId) {
        let now = cx.now;
        let Some(run) = self.runs.get_mut(&id) else { return };
        let plan = Arc::clone(&run.plan);
        let again = run.repeated_steps();
        let retry = run.state.retry.get_or_insert_default();
        (retry.next_at, retry.started_at) = (None, Some(now));
        for &step in again.keys() {
            // The list may differ once a step that it may come from is repeated.
            let is_same = !plan.node(step).needs.iter().any(|need| again.contains_key(need));
            self.reset_step(cx, id, step, is_same);
        }
        self.count_needs_again(id);
        self.runs.get_mut(&id).into_iter().for_each(Run::drop_elements);
        self.transition_run(cx, id, RunStatus::Running, RunCause::BackoffEnded, None);
        self.arm_deadline_of(cx, id);
        self.evaluate_section(id);
    }

    /// Resets an ended step to pending. If its list is unchanged, succeeded elements keep their results.
    fn reset_step(&mut self, cx: &mut Context, id: RunId, step: u32, list_is_same: bool) {
        let Some(run) = self.runs.get_mut(&id) else { return };
        let grows = run.grows(step);
        run.open[Section::Steps as usize] += 1;
        let known = run.step_mut(step);
        let Some(before) = known.state.clone() else { return };
        let reset: Vec<(u32, Option<Arc<EndedCall>>)> = match known.elements.as_deref_mut() {
            Some(elements) => elements.reset_ended(!list_is_same),
            // The elements of a succeeded step are known only by its row.
            None => (0..before.total.unwrap_or(0)).map(|item| (item, None)).collect(),
        };
        if !list_is_same && !grows {
            known.elements = None;
        }
        let total = known.elements.as_deref().map(Elements::total);
        self.transition_step(
            cx,
            id,
            step,
            StepStatus::Pending,
            StepCause::RunRetried,
            StepDetails::default(),
        );
        if let Some(run) = self.runs.get_mut(&id) {
            let items = before.items.filter(|_| list_is_same);
            // The next call continues the ended run.
            let continues = before.continues.filter(|_| list_is_same);
            let fresh = StepState::new(StepStatus::Pending, StepCause::RunRetried);
            run.step_mut(step).state = Some(Box::new(StepState { total, items, continues, ..fresh }));
        }
        for (item, continues) in reset {
            let key = StepKey { run: id, step, item: Some(item) };
            let fresh = StepState::new(StepStatus::Pending, StepCause::RunRetried);
            let total = total.filter(|_| continues.is_some());
            self.write_element(StepRecord { key, state: StepState { continues, total, ..fresh } });
        }
    }

    /// Counts the outcomes of each step's dependencies again.
    fn count_needs_again(&mut self, id: RunId) {
        let Some(run) = self.runs.get_mut(&id) else { return };
        for step in &mut run.steps {
            step.counts = UpstreamCounts { needs: step.counts.needs, ..UpstreamCounts::default() };
        }
        let count = u32::try_from(run.steps.len()).unwrap_or(u32::MAX);
        let ended: Vec<u32> = (0..count).filter(|&step| run.step(step).status().is_final()).collect();
        for step in ended {
            self.count_for_dependents(id, step);
        }
    }

    /// Cancels the next retry of a run that waits for it, or that was paused while it waited.
    pub(super) fn cancel_next_retry(&mut self, cx: &mut Context, id: RunId) {
        if self.runs.get(&id).is_none_or(|run| run.state.next_attempt_at().is_none()) {
            return;
        }
        self.disarm_deadline_of(cx, id);
        let retry = self.runs.get_mut(&id).and_then(|run| run.state.retry.as_deref_mut());
        if let Some(retry) = retry {
            retry.next_at = None;
        }
    }
}
