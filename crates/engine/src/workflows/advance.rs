//! Advances runs: evaluates join rules and conditions, starts ready steps, and moves from section to section.
//!
//! Each flush advances the runs with new events, in turns: a run may start at most [`STARTS_PER_TURN_MAX`] jobs and
//! calls before the next run has its turn. A flush starts at most [`STARTS_PER_FLUSH_MAX`]; the rest follows in the
//! next one.
//!
//! # Invariants
//! - A run moves to its next section only when all steps of the current one have ended.
//! - Only this module decides that a pending step starts, is skipped, or fails because of its dependencies.

use model::RunId;
use model::run::{RunCause, RunStatus, StepCause, StepStatus};
use model::workflow::{Section, Verdict};
use mutation::{Mutation, is_on};

use super::StepDetails;
use super::scope::RunScope;
use crate::context::Context;
use crate::jobs::Jobs;
use crate::workflows::Workflows;

/// Maximum number of jobs and calls that one flush starts, so that its batch stays small enough to commit.
const STARTS_PER_FLUSH_MAX: usize = 4_000;
/// Maximum number that one run starts before the next run has its turn.
const STARTS_PER_TURN_MAX: usize = 500;

impl Workflows {
    /// Advances every run with new events.
    pub(crate) fn advance_runs(&mut self, cx: &mut Context, jobs: &mut Jobs, left: &mut usize) {
        while *left > 0 {
            let Some(id) = self.to_advance.pop_front() else { return };
            let Some(run) = self.runs.get_mut(&id) else { continue };
            run.to_advance = false;
            let mut turn = STARTS_PER_TURN_MAX.min(*left);
            let before = turn;
            self.advance_run(cx, jobs, id, &mut turn);
            // A run whose steps are all skipped also counts: its end may start other runs.
            *left -= (before - turn).max(1);
            if turn == 0 {
                self.mark_for_advance(id);
            }
        }
    }

    /// Returns how many jobs and calls one flush may start.
    pub(crate) fn start_budget() -> usize {
        STARTS_PER_FLUSH_MAX
    }

    fn advance_run(&mut self, cx: &mut Context, jobs: &mut Jobs, id: RunId, left: &mut usize) {
        let Some(run) = self.runs.get_mut(&id) else { return };
        if run.state.status == RunStatus::Waiting {
            // Carried-over results marked its steps for evaluation; they are evaluated when the run starts.
            run.to_evaluate.clear();
            return;
        }
        loop {
            self.evaluate_steps(cx, jobs, id);
            self.begin_ready(cx, jobs, id, left);
            self.start_elements(cx, jobs, id, left);
            let Some(run) = self.runs.get(&id) else { return };
            if !run.to_evaluate.is_empty() {
                continue;
            }
            let section_over = run.open[run.section()] == 0;
            if *left == 0 || !section_over || !run.begins_steps() {
                return;
            }
            self.leave_section(cx, jobs, id);
        }
    }

    /// Evaluates the join rule, and then the condition, of each marked step.
    fn evaluate_steps(&mut self, cx: &mut Context, jobs: &mut Jobs, id: RunId) {
        while let Some(run) = self.runs.get_mut(&id) {
            let Some(step) = run.to_evaluate.pop_front() else { return };
            let node = run.plan.node(step);
            let known = run.step(step);
            if known.status() != StepStatus::Pending
                || node.section != run.state.section
                || run.ready.contains(&step)
            {
                continue;
            }
            match node.join.verdict(known.counts) {
                Verdict::Wait if is_on(Mutation::EngineStartsStepsEarly) => {
                    self.evaluate_condition(cx, jobs, id, step)
                }
                Verdict::Wait => {}
                Verdict::Start => self.evaluate_condition(cx, jobs, id, step),
                Verdict::Skip => {
                    self.end_step(
                        cx,
                        jobs,
                        id,
                        step,
                        (StepStatus::Skipped, StepCause::JoinRule),
                        StepDetails::default(),
                    );
                }
                Verdict::UpstreamFailed => {
                    self.end_step(
                        cx,
                        jobs,
                        id,
                        step,
                        (StepStatus::UpstreamFailed, StepCause::JoinRule),
                        StepDetails::default(),
                    );
                }
            }
        }
    }

    fn evaluate_condition(&mut self, cx: &mut Context, jobs: &mut Jobs, id: RunId, step: u32) {
        let Some(run) = self.runs.get(&id) else { return };
        let scope = RunScope::of_step(id, run);
        let holds = run.plan.node(step).when.as_ref().map(|when| when.evaluate(&scope));
        match holds {
            None | Some(Ok(serde_json::Value::Bool(true))) => {
                if let Some(run) = self.runs.get_mut(&id) {
                    run.ready.insert(step);
                }
            }
            Some(Ok(serde_json::Value::Bool(false))) => {
                self.end_step(
                    cx,
                    jobs,
                    id,
                    step,
                    (StepStatus::Skipped, StepCause::Condition),
                    StepDetails::default(),
                );
            }
            Some(other) => {
                let reason = match other {
                    Ok(value) => format!("the condition evaluates to {value}: expected true or false"),
                    Err(error) => format!("condition: {error}"),
                };
                let also = StepDetails::message(reason);
                self.end_step(cx, jobs, id, step, (StepStatus::Failed, StepCause::ConditionFailed), also);
            }
        }
    }

    fn begin_ready(&mut self, cx: &mut Context, jobs: &mut Jobs, id: RunId, left: &mut usize) {
        while let Some(run) = self.runs.get_mut(&id) {
            if *left == 0 || !run.begins_steps() || run.live >= run.plan.max_parallel() {
                return;
            }
            let Some(step) = run.ready.pop_first() else { return };
            *left -= 1;
            self.begin_step(cx, jobs, id, step);
        }
    }

    /// Starts the next section after the end of a section's last step, or ends the run.
    fn leave_section(&mut self, cx: &mut Context, jobs: &mut Jobs, id: RunId) {
        let Some(run) = self.runs.get_mut(&id) else { return };
        let section = run.state.section;
        if section == Section::Steps {
            self.disarm_deadline_of(cx, id);
            self.gather_outputs(cx, id);
            if self.schedule_next_retry(cx, id) {
                return;
            }
        }
        let Some(run) = self.runs.get_mut(&id) else { return };
        let next = match section {
            Section::Steps => Section::OnFailure,
            Section::OnFailure => Section::Finally,
            Section::Finally => return self.end_run(cx, jobs, id),
        };
        run.state.section = next;
        run.drop_elements();
        self.touch_run(cx, id);
        let why_not = match (next, self.fails(id)) {
            _ if self.skips_finally(id) => Some(StepCause::SkippedByCancel),
            (Section::OnFailure, None) => Some(StepCause::NotFailed),
            (Section::OnFailure, Some(RunCause::CancelRequested | RunCause::ParentStopped)) => {
                Some(StepCause::NotAfterCancel)
            }
            _ => None,
        };
        match why_not {
            Some(why_not) => self.skip_section(cx, jobs, id, next, why_not),
            None => self.evaluate_section(id),
        }
    }

    fn skips_finally(&self, id: RunId) -> bool {
        self.runs.get(&id).is_some_and(|run| run.state.skip_finally)
    }

    fn skip_section(
        &mut self,
        cx: &mut Context,
        jobs: &mut Jobs,
        id: RunId,
        section: Section,
        why_not: StepCause,
    ) {
        let Some(run) = self.runs.get(&id) else { return };
        let plan = std::sync::Arc::clone(&run.plan);
        for step in plan.steps_of(section) {
            let pending = self.runs.get(&id).is_some_and(|run| !run.step(step).status().is_final());
            if pending {
                self.end_step(cx, jobs, id, step, (StepStatus::Skipped, why_not), StepDetails::default());
            }
        }
    }
}
