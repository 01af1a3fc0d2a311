//! Workflows and runs are rebuilt from rows.
//!
//! A run's rows say where its steps stand. Everything else is counted anew: what the needs of each step came
//! to, what goes on, which elements of a list are left. Then every pending step is asked again; what it is
//! told follows from the same rows, so nothing that was decided is decided otherwise.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::firing::Work;
use model::run::{Caller, RunHead, RunState, RunStatus, StepCause, StepKey, StepRecord, StepStatus};
use model::run::{WorkflowHead, WorkflowState};
use model::{JobId, RunId, WorkflowId};

use super::elements::Elements;
use super::plan::{deadline, index};
use super::{Also, Run, Workflow};
use crate::engine::Engine;
use crate::schedule::name_hash;
use crate::timer::Timer;

impl Engine {
    pub(crate) fn restore_workflow(&mut self, id: WorkflowId, head: &WorkflowHead, state: WorkflowState) {
        self.now = self.now.max(state.updated_at);
        self.workflows.names.insert(name_hash(&head.spec.namespace, &head.spec.name), id);
        self.workflows.listeners.add(id, &head.spec);
        self.workflows.all.insert(id, Workflow::new(head, state));
    }

    /// Forgets a workflow as if its row had never come. Comes before the start.
    pub(crate) fn forget_workflow(&mut self, id: WorkflowId) {
        let Some(workflow) = self.workflows.all.swap_remove(&id) else { return };
        self.workflows.names.swap_remove(&name_hash(&workflow.namespace, &workflow.name));
        self.workflows.listeners.remove(id, &workflow.spec);
    }

    /// Forgets a run with its steps as if their rows had never come. Comes before the start.
    pub(crate) fn forget_run(&mut self, id: RunId) {
        self.workflows.runs.swap_remove(&id);
    }

    /// Takes in the row of a run.
    ///
    /// # Errors
    /// Why it cannot be run any more.
    pub(crate) fn restore_run(
        &mut self,
        id: RunId,
        head: Arc<RunHead>,
        state: RunState,
    ) -> Result<(), String> {
        if state.status.is_final() {
            return Err("it has ended".into());
        }
        let plans = &mut self.workflows.plans;
        let plan = plans.of(&head.definition, &head.body, head.priority, &mut self.profiles)?;
        self.now = self.now.max(state.updated_at);
        self.workflows.runs.insert(id, Run::new(head, plan, state));
        Ok(())
    }

    /// Takes in the row of a step, or of an element that ended; rows of steps before those of their
    /// elements.
    ///
    /// # Errors
    /// What it contradicts.
    pub(crate) fn restore_step(&mut self, record: StepRecord) -> Result<(), String> {
        let StepKey { run: id, step, item } = record.key;
        let run = self.workflows.runs.get_mut(&id).ok_or("its run is not live")?;
        if index(step) >= run.steps.len() {
            return Err(format!("its run has {} steps", run.steps.len()));
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
        if !record.state.status.is_final() && record.state.continues.is_none() {
            // It is to be done again.
            return Ok(());
        }
        // An element that an earlier run did comes before its step began.
        let total = known.state.as_ref().and_then(|state| state.total).or(record.state.total);
        let total = total.ok_or("its step has no elements")?;
        let elements = known.elements.get_or_insert_with(|| of(total));
        if let Some(call) = record.state.continues {
            elements.continue_call(item, call);
            return Ok(());
        }
        let succeeded = record.state.status == StepStatus::Succeeded;
        elements.note_files(item, record.state.files.filter(|_| succeeded));
        elements.note_end(record.state.finished_at);
        if !elements.note(item, record.state.status, record.state.output) {
            return Err(format!("its step has {total} elements, or has it already"));
        }
        Ok(())
    }

    /// Goes on with every run from where its rows stand. Called once every row is there, and before
    /// jobs whose executions are lost are given up.
    pub(crate) fn find_work(&mut self) {
        for (work, key) in self.work_of_steps() {
            let Some(run) = self.workflows.runs.get_mut(&key.run) else { continue };
            let Some(step) = run.steps.get_mut(index(key.step)) else { continue };
            if let (Some(item), Some(elements)) = (key.item, step.elements.as_deref_mut()) {
                elements.begin(item, work);
            }
        }
        let ids: Vec<RunId> = self.workflows.runs.keys().copied().collect();
        for &id in &ids {
            self.recount(id);
        }
    }

    /// What goes on, and for which step: jobs and called runs know where they come from.
    fn work_of_steps(&self) -> BTreeMap<Work, StepKey> {
        let of_job = |(&id, job): (&JobId, &crate::job::Job)| {
            Some((Work::Job(id), job.step.as_ref().map(|origin| origin.key())?))
        };
        let jobs = self.jobs.iter().filter_map(of_job);
        let runs = self.workflows.runs.iter().filter_map(|(&id, run)| {
            let Caller { run, step, item } = run.head.caller?;
            Some((Work::Run(id), StepKey { run, step, item }))
        });
        jobs.chain(runs).collect()
    }

    fn recount(&mut self, id: RunId) {
        let Some(run) = self.workflows.runs.get_mut(&id) else { return };
        let plan = Arc::clone(&run.plan);
        let (mut ended, mut broadcasts) = (Vec::new(), Vec::new());
        for (place, node) in plan.nodes.iter().enumerate() {
            let Ok(step) = u32::try_from(place) else { break };
            let known = run.step_mut(step);
            let status = known.status();
            let going = known.elements.as_deref().map_or(0, Elements::count_going);
            if status.is_final() {
                run.open[node.section as usize] -= 1;
                ended.push(step);
            } else if status == StepStatus::Running && node.each.is_some() {
                run.live += going;
                run.filling.insert(step);
                broadcasts.extend(run.is_broadcast(step).then_some((id, step)));
            } else if status == StepStatus::Running {
                run.live += 1;
            }
        }
        run.drop_elements();
        self.workflows.broadcasts.extend(broadcasts);
        for step in ended {
            self.tell_dependents(id, step);
        }
        let Some(run) = self.workflows.runs.get(&id) else { return };
        if let Some(workflow) = run.head.workflow.and_then(|id| self.workflows.all.get_mut(&id)) {
            let waits = run.state.status == RunStatus::Waiting;
            if waits { &mut workflow.waiting } else { &mut workflow.active }.insert(id);
        }
    }

    /// Arms the timers of every run, and lets each be looked at by the next flush.
    pub(crate) fn start_runs(&mut self) {
        let ids: Vec<RunId> = self.workflows.runs.keys().copied().collect();
        for id in ids {
            self.resume_timers(id);
            self.resume_steps(id);
            let waits =
                self.workflows.runs.get(&id).is_some_and(|run| run.state.status == RunStatus::Waiting);
            if !waits {
                self.ask_section(id);
            }
        }
        let workflows: Vec<WorkflowId> = self.workflows.all.keys().copied().collect();
        for id in workflows {
            self.give_turns(id);
        }
    }

    fn resume_timers(&mut self, id: RunId) {
        let Some(run) = self.workflows.runs.get(&id) else { return };
        let in_steps = run.state.section == model::workflow::Section::Steps;
        if let Some(deadline) = deadline(run).filter(|_| in_steps) {
            self.agenda.arm(deadline, Timer::Run(id));
        }
        for (step, known) in (0..).zip(&run.steps) {
            let live = known.state.as_deref().filter(|state| state.status.is_live());
            if let Some(wake_at) = live.and_then(|state| state.wake_at) {
                self.agenda.arm(wake_at, Timer::Step(id, step));
            }
        }
    }

    /// A step whose job is not there has nothing that would end it, which no commit of ours makes. One
    /// that is being stopped, or over a list, is settled again.
    fn resume_steps(&mut self, id: RunId) {
        let Some(run) = self.workflows.runs.get(&id) else { return };
        let running = (0..).zip(&run.steps).filter(|(_, step)| step.status() == StepStatus::Running);
        let running: Vec<(u32, bool)> = running
            .map(|(number, step)| {
                let state = step.state.as_deref();
                let job = state.and_then(|state| state.job).is_some_and(|job| self.jobs.contains_key(&job));
                let called = state.and_then(|state| state.called);
                let called = called.is_some_and(|called| self.workflows.runs.contains_key(&called));
                (number, job || called || step.elements.is_some())
            })
            .collect();
        for (step, there) in running {
            if there {
                self.settle_elements(id, step);
            } else {
                self.end_step(id, step, StepStatus::Failed, StepCause::JobMissing, Also::default());
            }
        }
    }
}
