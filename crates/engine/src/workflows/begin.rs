//! Starts a step whose dependencies have ended, whose condition is true, and for which a slot is free.
//!
//! [`advance`](super::advance) calls this module for each step that may start. What starts depends on the step: a
//! [job](super::job), a call of another workflow, [elements](super::elements), an approval, or a wait.
//!
//! # Invariants
//! - A step whose values cannot be filled in fails with the reason; nothing of it starts.
//! - A wait or a timeout has its timer armed.

use std::sync::Arc;

use model::expression::EvaluationError;
use model::firing::Work;
use model::run::{Caller, EndedCall, StepCause, StepState, StepStatus};
use model::workflow::template::fill;
use model::{Duration, RunId, Timestamp, limits};
use serde_json::Map;

use super::StepDetails;
use super::plan::StepAction;
use super::scope::{Element, RunScope};
use crate::context::Context;
use crate::jobs::Jobs;
use crate::workflows::Workflows;

impl Workflows {
    pub(super) fn begin_step(&mut self, cx: &mut Context, jobs: &mut Jobs, id: RunId, step: u32) {
        let Some(run) = self.runs.get(&id) else { return };
        let plan = Arc::clone(&run.plan);
        let node = plan.node(step);
        let came_early = run.step(step).state.as_ref().is_some_and(|state| state.output.is_some());
        if node.each.is_some() {
            return self.begin_elements(cx, jobs, id, step);
        }
        match &node.act {
            StepAction::Job(_) => {
                let work = self.create_job(cx, jobs, id, step, None).map(Work::Job);
                self.begin_work(cx, jobs, id, step, work);
            }
            StepAction::Call(_) => {
                let work = self.call(cx, jobs, Caller { run: id, step, element: None }, None).map(Work::Run);
                self.begin_work(cx, jobs, id, step, work);
            }
            StepAction::Approval(approval) => match approval.asks(&RunScope::of_step(id, run)) {
                Ok(asks) => {
                    self.mark_live(cx, id, step, StepStatus::Waiting, None);
                    let run = self.runs.get_mut(&id);
                    let state = run.and_then(|run| run.step_mut(step).state.as_deref_mut());
                    state.into_iter().for_each(|state| state.asks = Some(Box::new(asks.clone())));
                }
                Err(error) => self.bad_reference(cx, jobs, id, step, error),
            },
            StepAction::Event { .. } if came_early => self.end_with_event(cx, jobs, id, step),
            StepAction::Event { .. } => self.mark_live(cx, id, step, StepStatus::Waiting, None),
            StepAction::For(length) => self.wait_until(cx, jobs, id, step, cx.now + *length),
            StepAction::Until(_) => match self.end_of_wait(cx, id, step) {
                Ok(until) => self.wait_until(cx, jobs, id, step, until),
                Err(error) => self.bad_reference(cx, jobs, id, step, error.to_string()),
            },
        }
    }

    fn begin_work(
        &mut self,
        cx: &mut Context,
        jobs: &mut Jobs,
        id: RunId,
        step: u32,
        work: Result<Work, String>,
    ) {
        let work = match work {
            Ok(work) => work,
            Err(reason) => return self.bad_reference(cx, jobs, id, step, reason),
        };
        if let Some(run) = self.runs.get_mut(&id) {
            let fresh = || Box::new(StepState::new(StepStatus::Pending, StepCause::UpstreamEnded));
            let state = run.step_mut(step).state.get_or_insert_with(fresh);
            match work {
                Work::Job(job) => state.job = Some(job),
                Work::Run(called) => state.called = Some(called),
            }
        }
        self.mark_live(cx, id, step, StepStatus::Running, None);
    }

    /// Marks a step as running or waiting from now until `until` or its timeout, whichever is first.
    pub(super) fn mark_live(
        &mut self,
        cx: &mut Context,
        id: RunId,
        step: u32,
        status: StepStatus,
        until: Option<Timestamp>,
    ) {
        let Some(run) = self.runs.get(&id) else { return };
        let node = run.plan.node(step);
        let timeout = node.timeout.map(|timeout: Duration| cx.now + timeout);
        let holds_slot = status == StepStatus::Running && node.each.is_none();
        self.transition_step(cx, id, step, status, StepCause::UpstreamEnded, StepDetails::default());
        if let Some(run) = self.runs.get_mut(&id) {
            run.live += u32::from(holds_slot);
        }
        self.arm_step(cx, id, step, until.into_iter().chain(timeout).min());
    }

    fn wait_until(&mut self, cx: &mut Context, jobs: &mut Jobs, id: RunId, step: u32, until: Timestamp) {
        if until <= cx.now {
            self.end_step(
                cx,
                jobs,
                id,
                step,
                (StepStatus::Succeeded, StepCause::TimeReached),
                StepDetails::default(),
            );
        } else {
            self.mark_live(cx, id, step, StepStatus::Waiting, Some(until));
        }
    }

    /// Returns when the wait of a step ends: after a duration from its start, or at a given time.
    pub(super) fn end_of_wait(
        &self,
        cx: &Context,
        id: RunId,
        step: u32,
    ) -> Result<Timestamp, EvaluationError> {
        let gone = || EvaluationError("the run no longer exists".into());
        let run = self.runs.get(&id).ok_or_else(gone)?;
        match &run.plan.node(step).act {
            StepAction::For(length) => {
                let started_at = run.step(step).state.as_ref().and_then(|state| state.started_at);
                Ok(started_at.unwrap_or(cx.now) + *length)
            }
            StepAction::Until(template) => {
                let text = template.render(&RunScope::of_step(id, run))?;
                text.trim().parse().map_err(|_| {
                    let shown: String = text.chars().take(64).collect();
                    let expected = "expected RFC 3339, such as 2026-11-21T08:00:00Z";
                    EvaluationError(format!("`{shown}` is not a time: {expected}").into())
                })
            }
            _ => Ok(Timestamp::MAX),
        }
    }

    fn bad_reference(&mut self, cx: &mut Context, jobs: &mut Jobs, id: RunId, step: u32, reason: String) {
        self.end_step(
            cx,
            jobs,
            id,
            step,
            (StepStatus::Failed, StepCause::BadReference),
            StepDetails::message(reason),
        );
    }

    /// Starts the run that a step, or one of its elements, calls.
    ///
    /// # Errors
    /// A reference without a value, or parameters that the called workflow does not accept.
    pub(super) fn call(
        &mut self,
        cx: &mut Context,
        jobs: &mut Jobs,
        caller: Caller,
        element: Option<&Element>,
    ) -> Result<RunId, String> {
        let Some(run) = self.runs.get(&caller.run) else {
            return Err("the run no longer exists".into());
        };
        let plan = Arc::clone(&run.plan);
        let StepAction::Call(call) = &plan.node(caller.step).act else {
            return Err("the step calls no workflow".into());
        };
        let Some((definition, body)) = plan.calls.get(&call.name) else {
            return Err(format!("workflow `{}` does not exist", call.name));
        };
        if let Some(ended) = self.take_ended_call(caller) {
            let parameters = ended.parameters.clone();
            return self.start_called(cx, jobs, caller, (definition, body), parameters, Some(&ended));
        }
        let Some(run) = self.runs.get(&caller.run) else {
            return Err("the run no longer exists".into());
        };
        let scope = RunScope { id: caller.run, run, element };
        let mut given = Map::new();
        for (name, value) in &call.parameters {
            let value = fill(value, &scope).map_err(|error| format!("parameters.{name}: {error}"))?;
            given.insert(name.clone(), value);
        }
        let complete =
            model::workflow::complete(&definition.workflow.parameters, &given).map_err(|problems| {
                let told: Vec<_> =
                    problems.iter().map(|(name, problem)| format!("{name}: {problem}")).collect();
                format!("workflow `{}`: {}", call.name, told.join("; "))
            })?;
        let len = serde_json::to_string(&complete).map_or(0, |text| text.len());
        if len > limits::RUN_PARAMETERS_BYTES_MAX {
            let most = limits::RUN_PARAMETERS_BYTES_MAX;
            return Err(format!("the parameters have {len} bytes: expected at most {most}"));
        }
        self.start_called(cx, jobs, caller, (definition, body), complete, None)
    }

    /// Takes the ended run that a call continues; only the first call does.
    fn take_ended_call(&mut self, caller: Caller) -> Option<Arc<EndedCall>> {
        let step = self.runs.get_mut(&caller.run)?.step_mut(caller.step);
        match caller.element {
            None => step.state.as_deref_mut()?.continues.take(),
            Some(item) => step.elements.as_deref_mut()?.take_ended_call(item),
        }
    }
}
