//! Rebuilds workflows and runs from rows.
//!
//! The rows of a run contain the state of its steps. Everything else is counted again: the outcomes of each
//! step's dependencies, the running jobs and called runs, and the remaining elements of lists. Then every
//! pending step is evaluated again. The result depends on the same rows, so every decision is the same.
//!
//! # Callers
//! [`Engine::restore`](crate::Engine::restore) for each row, [`Engine::start`](crate::Engine::start) after
//! the last row, and the [`Follower`](crate::Follower) of a standby.
//!
//! # Cost
//! O(steps + elements + edges) for each live run.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::firing::Work;
use model::run::{Caller, RunHead, RunState, RunStatus, StepCause, StepKey, StepRecord, StepStatus};
use model::run::{WorkflowHead, WorkflowState};
use model::{JobId, RunId, WorkflowId};

use super::elements::Elements;
use super::plan::{deadline, index};
use super::{Run, StepDetails, Workflow};
use crate::context::Context;
use crate::jobs::Jobs;
use crate::names::name_hash;
use crate::timer::Timer;
use crate::workflows::Workflows;

impl Workflows {
    pub(crate) fn restore_workflow(
        &mut self,
        cx: &mut Context,
        id: WorkflowId,
        head: &WorkflowHead,
        state: WorkflowState,
    ) {
        cx.now = cx.now.max(state.updated_at);
        self.names.insert(name_hash(&head.spec.namespace, &head.spec.name), id);
        self.listeners.add(id, &head.spec);
        self.all.insert(id, Workflow::new(head, state));
    }

    /// Removes a workflow as if its row had never been restored. Only before the start.
    pub(crate) fn remove_restored_workflow(&mut self, id: WorkflowId) {
        let Some(workflow) = self.all.swap_remove(&id) else { return };
        self.names.swap_remove(&name_hash(&workflow.namespace, &workflow.name));
        self.listeners.remove(id, &workflow.spec);
    }

    /// Removes a run with its steps as if their rows had never been restored. Only before the start.
    pub(crate) fn remove_restored_run(&mut self, id: RunId) {
        self.runs.swap_remove(&id);
    }

    /// Restores a run from its row.
    ///
    /// # Errors
    /// The reason why it cannot be run any more.
    pub(crate) fn restore_run(
        &mut self,
        cx: &mut Context,
        id: RunId,
        head: Arc<RunHead>,
        state: RunState,
    ) -> Result<(), String> {
        if state.status.is_final() {
            return Err("it has ended".into());
        }
        let plans = &mut self.plans;
        let plan = plans.of(&head.definition, &head.body, head.priority, &mut cx.profiles)?;
        cx.now = cx.now.max(state.updated_at);
        self.runs.insert(id, Run::new(head, plan, state));
        Ok(())
    }

    /// Restores a step, or an ended element. Rows of steps come before those of their elements.
    ///
    /// # Errors
    /// The contradiction with the run or the step.
    pub(crate) fn restore_step(&mut self, record: StepRecord) -> Result<(), String> {
        let StepKey { run: id, step, item } = record.key;
        let run = self.runs.get_mut(&id).ok_or("its run is not live")?;
        if index(step) >= run.steps.len() {
            return Err(format!("the run has only {} steps", run.steps.len()));
        }
        let grows = run.grows(step);
        let of = |total| Box::new(if grows { Elements::growing() } else { Elements::new(total) });
        let known = run.step_mut(step);
        let Some(item) = item else {
            if let Some(total) = record.state.total {
                known.elements.get_or_insert_with(|| of(total));
            }
            known.state = Some(Box::new(record.state));
            return Ok(());
        };
        run.keep_restored(Some(&record), None);
        let known = run.step_mut(step);
        let is_ended = record.state.status.is_final();
        if !is_ended && record.state.continues.is_none() {
            // The element was reset and has not ended again.
            return Ok(());
        }
        // The row of a carried-over element comes before its step has started.
        let total = known.state.as_ref().and_then(|state| state.total).or(record.state.total);
        let total = total.ok_or("the step has no elements")?;
        let elements = known.elements.get_or_insert_with(|| of(total));
        if let Some(call) = record.state.continues {
            elements.continue_call(item, call);
        }
        if !is_ended {
            return Ok(());
        }
        let succeeded = record.state.status == StepStatus::Succeeded;
        elements.record_files(item, record.state.files.filter(|_| succeeded));
        elements.record_end_time(record.state.finished_at);
        if !elements.count_end(item, record.state.status, record.state.output) {
            return Err(format!("the step has only {total} elements, or has this element already"));
        }
        Ok(())
    }

    /// Finds the running work of every run from the rows. Called after the last row, and before jobs with
    /// lost executions are given up.
    pub(crate) fn find_work(&mut self, jobs: &Jobs) {
        for (work, key) in self.work_of_steps(jobs) {
            let Some(run) = self.runs.get_mut(&key.run) else { continue };
            let Some(step) = run.steps.get_mut(index(key.step)) else { continue };
            if let (Some(item), Some(elements)) = (key.item, step.elements.as_deref_mut()) {
                elements.begin(item, work);
            }
        }
        let ids: Vec<RunId> = self.runs.keys().copied().collect();
        for &id in &ids {
            self.keep_rows(id);
            self.recount(id);
        }
    }

    /// Returns the running jobs and called runs, with the step that each belongs to.
    fn work_of_steps(&self, jobs: &Jobs) -> BTreeMap<Work, StepKey> {
        let of_job = |(id, job): (JobId, &crate::jobs::Job)| {
            Some((Work::Job(id), job.step.as_ref().map(|origin| origin.key())?))
        };
        let jobs = jobs.iter().filter_map(of_job);
        let runs = self.runs.iter().filter_map(|(&id, run)| {
            let Caller { run, step, element: item } = run.head.caller?;
            Some((Work::Run(id), StepKey { run, step, item }))
        });
        jobs.chain(runs).collect()
    }

    fn recount(&mut self, id: RunId) {
        let Some(run) = self.runs.get_mut(&id) else { return };
        let plan = Arc::clone(&run.plan);
        let (mut ended, mut broadcasts) = (Vec::new(), Vec::new());
        for (place, node) in plan.nodes.iter().enumerate() {
            let Ok(step) = u32::try_from(place) else { break };
            let known = run.step_mut(step);
            let status = known.status();
            let going = known.elements.as_deref().map_or(0, Elements::running_count);
            if status.is_final() {
                run.open[node.section as usize] -= 1;
                ended.push(step);
            } else if status == StepStatus::Running && node.each.is_some() {
                run.live += going;
                run.with_pending_elements.insert(step);
                broadcasts.extend(run.is_broadcast(step).then_some((id, step)));
            } else if status == StepStatus::Running {
                run.live += 1;
            }
        }
        run.drop_elements();
        self.broadcasts.extend(broadcasts);
        for step in ended {
            self.count_for_dependents(id, step);
        }
        let Some(run) = self.runs.get(&id) else { return };
        if let Some(workflow) = run.head.workflow.and_then(|id| self.all.get_mut(&id)) {
            let waits = run.state.status == RunStatus::Waiting;
            if waits { &mut workflow.waiting } else { &mut workflow.active }.insert(id);
        }
    }

    /// Arms the timers of every run, and marks each to be advanced by the next flush.
    pub(crate) fn start_runs(&mut self, cx: &mut Context, jobs: &mut Jobs) {
        let ids: Vec<RunId> = self.runs.keys().copied().collect();
        for id in ids {
            self.resume_timers(cx, id);
            self.resume_steps(cx, jobs, id);
            let waits = self.runs.get(&id).is_some_and(|run| run.state.status == RunStatus::Waiting);
            if !waits {
                self.evaluate_section(id);
            }
        }
        let workflows: Vec<WorkflowId> = self.all.keys().copied().collect();
        for id in workflows {
            self.start_waiting_runs(cx, id);
        }
    }

    fn resume_timers(&mut self, cx: &mut Context, id: RunId) {
        let Some(run) = self.runs.get(&id) else { return };
        let in_steps = run.state.section == model::workflow::Section::Steps;
        if let Some(deadline) = deadline(run).filter(|_| in_steps) {
            cx.wall_timers.arm(deadline, Timer::Run(id));
        }
        for (step, known) in (0..).zip(&run.steps) {
            let live = known.state.as_deref().filter(|state| state.status.is_live());
            if let Some(wake_at) = live.and_then(|state| state.wake_at) {
                cx.wall_timers.arm(wake_at, Timer::Step(id, step));
            }
        }
    }

    /// Ends a running step whose job does not exist; no commit of the engine causes this. Decides stopped
    /// steps and mapped steps again.
    fn resume_steps(&mut self, cx: &mut Context, jobs: &mut Jobs, id: RunId) {
        let Some(run) = self.runs.get(&id) else { return };
        let running = (0..).zip(&run.steps).filter(|(_, step)| step.status() == StepStatus::Running);
        let running: Vec<(u32, bool)> = running
            .map(|(number, step)| {
                let state = step.state.as_deref();
                let job = state.and_then(|state| state.job).is_some_and(|job| jobs.contains(job));
                let called = state.and_then(|state| state.called);
                let called = called.is_some_and(|called| self.runs.contains_key(&called));
                (number, job || called || step.elements.is_some())
            })
            .collect();
        for (step, there) in running {
            if there {
                self.settle_elements(cx, jobs, id, step);
            } else {
                self.end_step(
                    cx,
                    jobs,
                    id,
                    step,
                    (StepStatus::Failed, StepCause::JobMissing),
                    StepDetails::default(),
                );
            }
        }
    }
}
