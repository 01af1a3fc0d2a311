//! Waiting reasons of the steps of a run.

use model::firing::Work;
use model::run::{ApprovalRequest, RunStatus, StepStatus};
use model::why::{NextAttempt, OpenEnum, RunWhy, StepReason, StepWhy, UpstreamStep};
use model::worker::WorkerStatus;
use model::workflow::{Action, Verdict};
use model::{Refusal, RunId, WorkerId};

use super::Run;
use super::elements::Elements;
use super::plan::{StepAction, index};
use crate::jobs::Jobs;
use crate::output::Reply;
use crate::workflows::Workflows;

/// Maximum number of upstream steps, or of workers, that an explanation lists.
const NEEDS_SHOWN: usize = 100;

impl Workflows {
    pub(super) fn explain_step(&self, jobs: &Jobs, id: RunId, name: &str) -> Result<Reply, Refusal> {
        let run = self.live_run(id)?;
        let step =
            run.plan.place(name).ok_or_else(|| Refusal::StepNotFound { run: id, step: name.into() })?;
        Ok(Reply::StepWhy(Box::new(self.step_why(jobs, id, run, step))))
    }

    pub(super) fn explain_run(&self, jobs: &Jobs, id: RunId, most: usize) -> Result<Reply, Refusal> {
        let run = self.live_run(id)?;
        let with = |wanted: fn(StepStatus) -> bool| {
            let steps = (0..).zip(&run.steps).filter(move |(_, step)| wanted(step.status()));
            steps.map(|(number, _)| number)
        };
        let again: Vec<u32> =
            run.next_attempt().iter().flat_map(|_| run.repeated_steps().into_keys()).collect();
        let open = with(StepStatus::is_live).chain(again);
        let open = open.chain(with(|status| status == StepStatus::Pending));
        let more = open.clone().count().saturating_sub(most);
        let steps = open.take(most).map(|step| self.step_why(jobs, id, run, step)).collect();
        Ok(Reply::RunWhy(Box::new(RunWhy { run: id, next_attempt: run.next_attempt(), steps, more })))
    }

    fn step_why(&self, jobs: &Jobs, id: RunId, run: &Run, step: u32) -> StepWhy {
        let status = run.step(step).status();
        let reasons = match status {
            StepStatus::Pending => self.pending_reasons(id, run, step),
            StepStatus::Running => {
                let lost = self.lost_workers(jobs, run, step);
                running_reasons(run, step).into_iter().chain(lost).collect()
            }
            StepStatus::Waiting => waiting_reasons(run, step),
            _ => {
                let state = run.step(step).state.as_deref();
                let over = state.map(|state| StepReason::Ended {
                    cause: state.cause,
                    message: state.message.as_deref().map(Into::into),
                });
                let again = run.next_attempt().filter(|_| run.repeated_steps().contains_key(&step));
                over.into_iter().chain(again.map(StepReason::RunRetrying)).collect()
            }
        };
        let (step, reasons) = (run.plan.node(step).name.as_ref().into(), OpenEnum::list(reasons));
        StepWhy { run: id, step, status, reasons }
    }

    /// Returns the lost or removed workers that elements of a broadcast wait for.
    fn lost_workers(&self, jobs: &Jobs, run: &Run, step: u32) -> Option<StepReason> {
        let elements = run.step(step).elements.as_deref().filter(|_| run.is_broadcast(step))?;
        let worker_of = |work: Work| {
            let item = jobs.get(work.job()?)?.step.as_deref()?.element.as_ref()?;
            item.value.parse::<WorkerId>().ok()
        };
        let wanted = elements.running().filter_map(|(_, work)| worker_of(work));
        let mut lost = wanted.filter_map(|id| match jobs.worker(id) {
            Some(worker) if worker.record.status != WorkerStatus::Lost => None,
            Some(worker) => Some(worker.record.name.clone()),
            None => Some(id.to_string()),
        });
        let workers: Vec<_> = lost.by_ref().take(NEEDS_SHOWN).collect();
        let more = lost.count();
        (!workers.is_empty()).then_some(StepReason::LostWorkers { workers, more })
    }

    fn pending_reasons(&self, id: RunId, run: &Run, step: u32) -> Vec<StepReason> {
        let node = run.plan.node(step);
        let mut reasons = Vec::new();
        if run.state.status == RunStatus::Waiting {
            let workflow = run.head.workflow.and_then(|id| self.all.get(&id));
            reasons.extend(workflow.map(|workflow| StepReason::RunWaiting {
                running: workflow.active.len(),
                limit: workflow.max_parallel_runs,
                ahead: workflow.waiting.iter().take_while(|other| **other != id).count(),
            }));
        }
        reasons.extend(run.next_attempt().map(StepReason::RunRetrying));
        if node.section > run.state.section {
            reasons
                .push(StepReason::LaterSection { section: node.section, current_section: run.state.section });
        }
        if let Some(pause) = &run.state.pause {
            reasons.push(StepReason::Paused { by: pause.by.as_ref().into(), since: pause.at });
        }
        if node.join.verdict(run.step(step).counts) == Verdict::Wait {
            let open = node.needs.iter().filter(|&&need| !run.step(need).status().is_final());
            let needs: Vec<_> = open.clone().take(NEEDS_SHOWN).map(|&need| need_view(run, need)).collect();
            let more = open.count() - needs.len();
            reasons.push(StepReason::Upstream { join: node.join, needs, more });
        } else if run.ready.contains(&step) && run.live >= run.plan.max_parallel() {
            reasons.push(StepReason::ParallelSteps { running: run.live, limit: run.plan.max_parallel() });
        }
        if reasons.is_empty() {
            reasons.push(StepReason::NextBatch);
        }
        reasons
    }
}

impl Run {
    /// Returns the message and the approvers of a step that waits for approval.
    pub(super) fn asks(&self, step: u32) -> ApprovalRequest {
        if let Some(asks) = self.step(step).state.as_deref().and_then(|state| state.asks.as_deref()) {
            return asks.clone();
        }
        // A step that an older version started has no evaluated message, so the texts of the spec are used.
        match self.plan.definition.workflow.step_at(index(step)).map(|spec| &spec.action) {
            Some(Action::Approval(approval)) => {
                ApprovalRequest { message: approval.message.clone(), approvers: approval.approvers.clone() }
            }
            _ => ApprovalRequest::default(),
        }
    }

    /// Returns the next attempt that the run waits for.
    fn next_attempt(&self) -> Option<NextAttempt> {
        let at = self.state.next_attempt_at()?;
        let max = self.plan.definition.workflow.retry.max_retries + 1;
        let at = Some(at).filter(|_| self.state.status == RunStatus::Retrying);
        Some(NextAttempt { number: self.state.failures() + 1, max, at })
    }
}

fn need_view(run: &Run, step: u32) -> UpstreamStep {
    UpstreamStep { step: run.plan.node(step).name.as_ref().into(), status: run.step(step).status() }
}

fn stopping(run: &Run, step: u32) -> Option<StepReason> {
    let state = run.step(step).state.as_deref()?;
    let (final_status, cause) = state.ending?;
    Some(StepReason::Stopping { final_status, cause })
}

fn running_reasons(run: &Run, step: u32) -> Vec<StepReason> {
    let known = run.step(step);
    let Some(state) = known.state.as_deref() else { return Vec::new() };
    let mut reasons: Vec<_> = stopping(run, step).into_iter().collect();
    if let Some(elements) = known.elements.as_deref() {
        reasons.push(StepReason::Elements {
            total: elements.total(),
            running: elements.running_count() as usize,
            succeeded: elements.tally().succeeded,
            failed: elements.tally().failed,
        });
    }
    // A pause blocks the elements that have not started; running elements continue.
    let waits = known.elements.as_deref().is_some_and(Elements::has_waiting);
    if let Some(pause) = run.state.pause.as_ref().filter(|_| waits) {
        reasons.push(StepReason::Paused { by: pause.by.as_ref().into(), since: pause.at });
    }
    let node = run.plan.node(step);
    let open = node.adders.iter().filter(|&&adder| !run.step(adder).status().is_final());
    let steps: Vec<_> = open.take(NEEDS_SHOWN).map(|&adder| need_view(run, adder)).collect();
    if !steps.is_empty() {
        reasons.push(StepReason::AddingSteps { steps });
    }
    reasons.extend(state.job.map(|job| StepReason::Job { job }));
    reasons.extend(state.called.map(|run| StepReason::CalledRun { run }));
    reasons
}

fn waiting_reasons(run: &Run, step: u32) -> Vec<StepReason> {
    let state = run.step(step).state.as_deref();
    let until = state.and_then(|state| state.wake_at);
    vec![match &run.plan.node(step).act {
        StepAction::Approval(_) => {
            let ApprovalRequest { message, approvers } = run.asks(step);
            StepReason::Approval { approvers, message, until }
        }
        StepAction::Event { name, .. } => StepReason::Event { event: name.as_ref().into(), until },
        _ => StepReason::Time { until },
    }]
}
