//! Timers and events of a run and its steps.

use std::sync::Arc;

use model::run::{RunCause, RunStatus, StepCause, StepDecision, StepState, StepStatus};
use model::workflow::{OnTimeout, Section};
use model::{Refusal, RunId, limits};

use super::StepDetails;
use super::plan::{StepAction, deadline};
use crate::context::Context;
use crate::jobs::Jobs;
use crate::output::Reply;
use crate::workflows::Workflows;

impl Workflows {
    /// Handles the timer of a run: its timeout, its start deadline, or the end of its backoff.
    pub(crate) fn on_run_timeout(&mut self, cx: &mut Context, jobs: &mut Jobs, id: RunId) {
        let Some(run) = self.runs.get(&id) else { return };
        let passed = deadline(run).is_some_and(|deadline| deadline <= cx.now);
        if passed && run.state.status == RunStatus::Waiting {
            return self.close_waiting(cx, jobs, id, RunStatus::Failed, RunCause::Expired, None);
        }
        if passed && run.state.status == RunStatus::Retrying {
            return self.start_next_retry(cx, id);
        }
        let goes_on = matches!(run.state.status, RunStatus::Running | RunStatus::Paused);
        if passed && goes_on && run.state.section == Section::Steps {
            self.begin_stopping(cx, jobs, id, RunCause::TimedOut, None);
        }
    }

    /// Handles the timer of a step: the end of its wait, or its timeout.
    pub(crate) fn on_step_timer(&mut self, cx: &mut Context, jobs: &mut Jobs, id: RunId, step: u32) {
        let Some(run) = self.runs.get(&id) else { return };
        let Some(state) = run.step(step).state.as_deref() else { return };
        let status = state.status;
        if state.wake_at.is_none_or(|wake_at| wake_at > cx.now) || !status.is_live() {
            return;
        }
        let on_timeout = match &run.plan.node(step).act {
            StepAction::Approval(approval) => approval.on_timeout,
            StepAction::Event { on_timeout, .. } => *on_timeout,
            _ => OnTimeout::Fail,
        };
        let wait_is_over = self.end_of_wait(cx, id, step).is_ok_and(|end| end <= cx.now);
        if status == StepStatus::Running {
            self.arm_step(cx, id, step, None);
            return self.stop_step(cx, jobs, id, step, (StepStatus::Failed, StepCause::TimedOut));
        }
        if wait_is_over {
            return self.end_step(
                cx,
                jobs,
                id,
                step,
                (StepStatus::Succeeded, StepCause::TimeReached),
                StepDetails::default(),
            );
        }
        let to = match on_timeout {
            OnTimeout::Fail => StepStatus::Failed,
            OnTimeout::Succeed => StepStatus::Succeeded,
            OnTimeout::Skip => StepStatus::Skipped,
        };
        self.end_step(cx, jobs, id, step, (to, StepCause::TimedOut), StepDetails::default());
    }

    /// Ends a step whose event has arrived. It fails if the payload does not match the step's declared
    /// output.
    pub(super) fn end_with_event(&mut self, cx: &mut Context, jobs: &mut Jobs, id: RunId, step: u32) {
        let Some(run) = self.runs.get(&id) else { return };
        let payload = run.step(step).state.as_deref().and_then(|state| state.output.as_deref());
        let spec = run.plan.definition.workflow.step_at(super::index(step));
        match spec.and_then(|spec| spec.output_problems(payload)) {
            None => self.end_step(
                cx,
                jobs,
                id,
                step,
                (StepStatus::Succeeded, StepCause::EventReceived),
                StepDetails::default(),
            ),
            Some(broken) => {
                self.end_step(
                    cx,
                    jobs,
                    id,
                    step,
                    (StepStatus::Failed, StepCause::BadOutput),
                    StepDetails::message(broken),
                );
            }
        }
    }

    /// Delivers an event to a run: steps that wait for it end, and steps that will wait for it later need not
    /// wait.
    pub(super) fn take_event(
        &mut self,
        cx: &mut Context,
        jobs: &mut Jobs,
        id: RunId,
        event: &str,
        payload: &Arc<str>,
        actor: &Arc<str>,
    ) -> Result<Reply, Refusal> {
        let run = self.live_run(id)?;
        if payload.len() > limits::OUTPUT_BYTES_MAX {
            return Err(Refusal::PayloadTooLarge { found: payload.len(), limit: limits::OUTPUT_BYTES_MAX });
        }
        let waits = |(place, node): (usize, &super::plan::StepPlan)| {
            let named = matches!(&node.act, StepAction::Event { name, .. } if **name == *event);
            let step = u32::try_from(place).ok().filter(|_| named)?;
            let known = run.step(step);
            let open = match known.status() {
                StepStatus::Waiting => true,
                // The first early event counts.
                StepStatus::Pending => known.state.as_ref().is_none_or(|state| state.output.is_none()),
                _ => false,
            };
            open.then_some(step)
        };
        let steps: Vec<u32> = run.plan.nodes.iter().enumerate().filter_map(waits).collect();
        if steps.is_empty() {
            return Err(Refusal::EventNotAwaited { run: id, event: event.into() });
        }
        let said = StepDecision { at: cx.now, by: actor.as_ref().into(), note: None };
        for &step in &steps {
            let Some(run) = self.runs.get_mut(&id) else { break };
            let waits = run.step(step).status() == StepStatus::Waiting;
            let known = run.step_mut(step);
            let state = known.state.get_or_insert_with(|| {
                Box::new(StepState::new(StepStatus::Pending, StepCause::EventReceived))
            });
            state.decision = Some(Box::new(said.clone()));
            state.output = Some(Arc::clone(payload));
            if waits {
                self.end_with_event(cx, jobs, id, step);
            } else {
                self.touch_step(id, step);
            }
        }
        Ok(Reply::EventTaken { steps: steps.len() })
    }
}
