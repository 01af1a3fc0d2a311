//! Requests of users about a run: cancel, pause, resume, mark a step, approve or reject a step.
//!
//! # Invariants
//! - A cancelled or paused run starts no further steps of its section; called runs follow the calling run.
//! - The outcome that a user sets for a step takes precedence over all later reasons to end it.

use std::sync::Arc;

use model::firing::{Pause, Work};
use model::run::{RunCause, RunStatus, StepCause, StepDecision, StepStatus};
use model::workflow::Section;
use model::{JobId, Refusal, RunId};
use serde_json::json;

use super::elements::work_of;
use super::plan::StepAction;
use super::{Run, StepDetails};
use crate::context::Context;
use crate::jobs::Jobs;
use crate::output::Reply;
use crate::workflows::Workflows;

impl Workflows {
    pub(super) fn live_run(&self, id: RunId) -> Result<&Run, Refusal> {
        let run = self.runs.get(&id).filter(|run| !run.state.status.is_final());
        run.ok_or(Refusal::RunNotLive { run: id })
    }

    pub(crate) fn find_step(&self, id: RunId, name: &str) -> Result<u32, Refusal> {
        let run = self.live_run(id)?;
        run.plan.place(name).ok_or_else(|| Refusal::StepNotFound { run: id, step: name.into() })
    }

    pub(crate) fn run_reply(&self, id: RunId) -> Result<Reply, Refusal> {
        let run = self.runs.get(&id).ok_or(Refusal::RunNotLive { run: id })?;
        Ok(Reply::Run { status: run.state.status, version: run.state.version })
    }

    /// Cancels a run: stops its running steps, starts no further ones, and still runs `finally` unless
    /// `skip_finally` is set. A second cancel changes nothing, except that it may set `skip_finally`.
    pub(crate) fn cancel_run(
        &mut self,
        cx: &mut Context,
        jobs: &mut Jobs,
        id: RunId,
        actor: &str,
        reason: Option<&str>,
        skip_finally: bool,
    ) -> Result<Reply, Refusal> {
        self.live_run(id)?;
        let detail = match reason {
            Some(reason) => format!("{actor}: {reason}"),
            None => actor.to_owned(),
        };
        self.begin_stopping(cx, jobs, id, RunCause::CancelRequested, Some(&detail));
        if skip_finally {
            self.skip_finally_section(cx, jobs, id);
        }
        self.run_reply(id)
    }

    fn skip_finally_section(&mut self, cx: &mut Context, jobs: &mut Jobs, id: RunId) {
        let goes_on = |run: &&mut Run| !run.state.skip_finally && !run.state.status.is_final();
        let Some(run) = self.runs.get_mut(&id).filter(goes_on) else { return };
        run.state.skip_finally = true;
        self.touch_run(cx, id);
        self.stop_section(cx, jobs, id);
    }

    /// Stops the running steps of a run; `cause` decides its outcome.
    pub(super) fn begin_stopping(
        &mut self,
        cx: &mut Context,
        jobs: &mut Jobs,
        id: RunId,
        cause: RunCause,
        detail: Option<&str>,
    ) {
        let Some(run) = self.runs.get_mut(&id) else { return };
        match run.state.status {
            RunStatus::Waiting => self.close_waiting(cx, jobs, id, RunStatus::Cancelled, cause, detail),
            RunStatus::Running | RunStatus::Paused | RunStatus::Retrying => {
                self.cancel_next_retry(cx, id);
                let Some(run) = self.runs.get_mut(&id) else { return };
                run.state.stopping = Some(cause);
                run.state.pause = None;
                let in_finally = run.state.section == Section::Finally;
                self.transition_run(cx, id, RunStatus::Stopping, cause, detail);
                if !in_finally {
                    self.stop_section(cx, jobs, id);
                }
                self.mark_for_advance(id);
            }
            RunStatus::Stopping | RunStatus::Succeeded | RunStatus::Failed | RunStatus::Cancelled => {}
        }
    }

    /// Stops every unfinished step of the run's current section.
    fn stop_section(&mut self, cx: &mut Context, jobs: &mut Jobs, id: RunId) {
        let Some(run) = self.runs.get(&id) else { return };
        let plan = Arc::clone(&run.plan);
        for step in plan.steps_of(run.state.section) {
            self.stop_step(cx, jobs, id, step, (StepStatus::Cancelled, StepCause::Stopped));
        }
    }

    /// Ends a step with `ending`: immediately if it has no running work, otherwise after that has stopped.
    pub(super) fn stop_step(
        &mut self,
        cx: &mut Context,
        jobs: &mut Jobs,
        id: RunId,
        step: u32,
        ending: (StepStatus, StepCause),
    ) {
        let Some(run) = self.runs.get_mut(&id) else { return };
        let (status, cause) = ending;
        match run.step(step).status() {
            StepStatus::Pending | StepStatus::Waiting => {
                self.end_step(cx, jobs, id, step, (status, cause), StepDetails::default())
            }
            StepStatus::Running => {
                let known = run.step_mut(step);
                let Some(state) = known.state.as_deref_mut() else { return };
                // Stopping the run does not change the outcome that a user has set.
                if !matches!(state.ending, Some((_, StepCause::Marked))) || cause == StepCause::Marked {
                    state.ending = Some(ending);
                }
                let work = work_of(known);
                self.touch_step(id, step);
                for work in work {
                    self.stop_work(cx, jobs, work);
                }
                self.settle_elements(cx, jobs, id, step);
            }
            _ => {}
        }
    }

    fn stop_work(&mut self, cx: &mut Context, jobs: &mut Jobs, work: Work) {
        match work {
            Work::Job(job) => self.cancel_step_job(cx, jobs, job),
            Work::Run(run) => self.begin_stopping(cx, jobs, run, RunCause::ParentStopped, None),
        }
    }

    fn cancel_step_job(&mut self, cx: &mut Context, jobs: &mut Jobs, job: JobId) {
        // If the job has ended meanwhile, its signal ends the step.
        let _ = jobs.try_cancel(cx, job, "the run", Some("the step was stopped"));
    }

    /// Returns the running runs that steps of a run, or their elements, called.
    fn called_runs(&self, id: RunId) -> Vec<RunId> {
        let Some(run) = self.runs.get(&id) else { return Vec::new() };
        run.steps.iter().flat_map(work_of).filter_map(Work::run).collect()
    }

    /// Pauses a run and the runs that it called: no further steps start. Running jobs and waits continue.
    pub(super) fn pause_run(
        &mut self,
        cx: &mut Context,
        id: RunId,
        actor: &Arc<str>,
        note: Option<Box<str>>,
    ) -> Result<Reply, Refusal> {
        let status = self.live_run(id)?.state.status;
        if !matches!(status, RunStatus::Running | RunStatus::Retrying | RunStatus::Paused) {
            return Err(Refusal::RunNotRunning { run: id, status });
        }
        if status != RunStatus::Paused {
            if status == RunStatus::Retrying {
                self.disarm_deadline_of(cx, id);
            }
            let pause = Pause { at: cx.now, by: actor.as_ref().into(), note: note.clone() };
            let detail = pause.to_string();
            if let Some(run) = self.runs.get_mut(&id) {
                run.state.pause = Some(Box::new(pause));
            }
            self.transition_run(cx, id, RunStatus::Paused, RunCause::PauseRequested, Some(&detail));
            for called in self.called_runs(id) {
                let _ = self.pause_run(cx, called, actor, note.clone());
            }
        }
        self.run_reply(id)
    }

    pub(super) fn resume_run(
        &mut self,
        cx: &mut Context,
        id: RunId,
        actor: &Arc<str>,
    ) -> Result<Reply, Refusal> {
        let status = self.live_run(id)?.state.status;
        if status == RunStatus::Paused {
            let Some(run) = self.runs.get_mut(&id) else { return self.run_reply(id) };
            run.state.pause = None;
            if run.state.next_attempt_at().is_some() {
                self.transition_run(cx, id, RunStatus::Retrying, RunCause::ResumeRequested, Some(actor));
                self.arm_deadline_of(cx, id);
            } else {
                self.transition_run(cx, id, RunStatus::Running, RunCause::ResumeRequested, Some(actor));
            }
            self.mark_for_advance(id);
            for called in self.called_runs(id) {
                let _ = self.resume_run(cx, called, actor);
            }
        }
        self.run_reply(id)
    }

    /// Sets the outcome of an unfinished step on behalf of a user. Its running work is stopped first.
    pub(super) fn mark_step(
        &mut self,
        cx: &mut Context,
        jobs: &mut Jobs,
        id: RunId,
        name: &str,
        status: StepStatus,
        decision: StepDecision,
    ) -> Result<Reply, Refusal> {
        let step = self.find_step(id, name)?;
        let run = self.live_run(id)?;
        if run.state.status == RunStatus::Waiting {
            return Err(Refusal::RunNotRunning { run: id, status: RunStatus::Waiting });
        }
        let known = run.step(step).status();
        if known.is_final() {
            return Err(Refusal::StepEnded { run: id, step: name.into(), status: known });
        }
        if !matches!(status, StepStatus::Succeeded | StepStatus::Failed | StepStatus::Skipped) {
            return Err(Refusal::InvalidMark { status });
        }
        self.record_decision(id, step, decision);
        self.stop_step(cx, jobs, id, step, (status, StepCause::Marked));
        self.step_reply(id, step)
    }

    /// Approves or rejects a step that waits for an approval.
    pub(super) fn decide_approval(
        &mut self,
        cx: &mut Context,
        jobs: &mut Jobs,
        id: RunId,
        name: &str,
        approve: bool,
        decision: StepDecision,
    ) -> Result<Reply, Refusal> {
        let step = self.find_step(id, name)?;
        let run = self.live_run(id)?;
        if !matches!(run.plan.node(step).act, StepAction::Approval(_)) {
            return Err(Refusal::NotAnApproval { run: id, step: name.into() });
        }
        match run.step(step).status() {
            StepStatus::Waiting => {}
            StepStatus::Pending => return Err(Refusal::ApprovalNotPending { run: id, step: name.into() }),
            status => return Err(Refusal::StepEnded { run: id, step: name.into(), status }),
        }
        let approvers = run.asks(step).approvers;
        if !approvers.is_empty() && !approvers.iter().any(|name| **name == *decision.by) {
            return Err(Refusal::NotApprover { step: name.into(), approvers });
        }
        let output =
            json!({"by": decision.by, "note": decision.note.as_deref().unwrap_or_default()}).to_string();
        self.record_decision(id, step, decision);
        let also = StepDetails { output: Some(output.into()), ..StepDetails::default() };
        let (to, cause) = match approve {
            true => (StepStatus::Succeeded, StepCause::Approved),
            false => (StepStatus::Failed, StepCause::Rejected),
        };
        self.end_step(cx, jobs, id, step, (to, cause), also);
        self.step_reply(id, step)
    }

    fn record_decision(&mut self, id: RunId, step: u32, decision: StepDecision) {
        let Some(run) = self.runs.get_mut(&id) else { return };
        let known = run.step_mut(step);
        let state = known.state.get_or_insert_with(|| {
            Box::new(model::run::StepState::new(StepStatus::Pending, StepCause::Marked))
        });
        state.decision = Some(Box::new(decision));
        self.touch_step(id, step);
    }

    pub(crate) fn step_reply(&self, id: RunId, step: u32) -> Result<Reply, Refusal> {
        let run = self.runs.get(&id).ok_or(Refusal::RunNotLive { run: id })?;
        Ok(Reply::Step { status: run.step(step).status(), version: run.state.version })
    }
}
