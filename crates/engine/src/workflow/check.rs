//! What must hold of workflows after every flush, and what a rebuilt engine must know of them as well.

use std::collections::BTreeSet;

use model::RunId;
use model::run::{RunStatus, StepKey, StepStatus};

use super::Run;
use super::elements::Work;
use crate::engine::Engine;
use crate::timer::Timer;

impl Engine {
    /// Checks everything that this folder's page says always holds, for each run.
    pub(crate) fn check_workflows(&self) -> Result<(), String> {
        let mut work = BTreeSet::new();
        for (&id, run) in &self.workflows.runs {
            self.check_run(id, run, &mut work)?;
        }
        for (&id, job) in &self.jobs {
            if job.step.is_some() && !work.contains(&Work::Job(id)) {
                return Err(format!("{id} belongs to a step that does not know it"));
            }
        }
        for (&id, run) in &self.workflows.runs {
            if run.head.caller.is_some() && !work.contains(&Work::Run(id)) {
                return Err(format!("{id} was called by a step that does not know it"));
            }
        }
        for (&id, workflow) in &self.workflows.all {
            if !workflow.waiting.is_empty() && workflow.has_room() {
                return Err(format!("runs of {id} wait for their turn, and there is room"));
            }
        }
        Ok(())
    }

    fn check_run(&self, id: RunId, run: &Run, work: &mut BTreeSet<Work>) -> Result<(), String> {
        if run.state.status.is_final() {
            return Err(format!("{id} is {} and still live after a flush", run.state.status));
        }
        let mut counts = [0; 8];
        let (mut open, mut live) = ([0; 3], 0);
        for (step, known) in (0..).zip(&run.steps) {
            let status = known.status();
            counts[usize::from(status.code())] += 1;
            open[run.plan.node(step).section as usize] += u32::from(!status.is_final());
            let own = self.check_step(id, run, step)?;
            live += own.len();
            work.extend(own);
        }
        if counts != run.state.counts {
            return Err(format!("{id} counts {:?} instead of {counts:?}", run.state.counts));
        }
        if open != run.open || u32::try_from(live) != Ok(run.live) {
            return Err(format!(
                "{id} has {open:?} open and {live} live, not {:?} and {}",
                run.open, run.live
            ));
        }
        let stands_still = run.begins_steps() && live == 0 && !run.stirred;
        let waits = counts[usize::from(StepStatus::Waiting.code())] > 0;
        if stands_still && !waits && run.state.status != RunStatus::Paused {
            return Err(format!("{id} is {} and nothing would ever bring it on", run.state.status));
        }
        Ok(())
    }

    /// What goes on of a step.
    fn check_step(&self, id: RunId, run: &Run, step: u32) -> Result<Vec<Work>, String> {
        let known = run.step(step);
        let node = run.plan.node(step);
        let name = &node.name;
        let state = known.state.as_deref();
        if let Some(wake_at) = state.filter(|state| state.status.is_live()).and_then(|state| state.wake_at)
            && !self.agenda.is_armed(wake_at, Timer::Step(id, step))
        {
            return Err(format!("step `{name}` of {id} wakes at {wake_at}, and nothing is armed for it"));
        }
        if known.status() != StepStatus::Running {
            return Ok(Vec::new());
        }
        let Some(state) = state else { return Ok(Vec::new()) };
        let work: Vec<Work> = match known.elements.as_deref() {
            Some(elements) => elements.live.values().copied().collect(),
            None => state.job.map(Work::Job).or(state.called.map(Work::Run)).into_iter().collect(),
        };
        for one in &work {
            let there = match one {
                Work::Job(job) => self.jobs.contains_key(job),
                Work::Run(run) => self.workflows.runs.contains_key(run),
            };
            if !there {
                return Err(format!("step `{name}` of {id} has {one:?}, which is not live"));
            }
        }
        let may_begin = run.filling.contains(&step);
        if work.is_empty() && !(may_begin && (run.stirred || !run.begins_steps() || run.live > 0)) {
            return Err(format!("step `{name}` of {id} is running, and nothing of it goes on"));
        }
        Ok(work)
    }

    /// One line for each workflow, run and step that a rebuilt engine knows as well.
    pub(crate) fn digest_workflows(&self, lines: &mut Vec<String>) {
        for (id, workflow) in &self.workflows.all {
            let runs = (&workflow.active, &workflow.waiting);
            lines.push(format!("{id} {} {:?} {runs:?}", workflow.name, workflow.state));
        }
        for (&id, run) in &self.workflows.runs {
            lines.push(format!("{id} {:?} {} live, {:?} open", run.state, run.live, run.open));
            for (step, known) in (0..).zip(&run.steps) {
                let key = StepKey { run: id, step, item: None };
                let asks = !known.status().is_final();
                let counts = asks.then_some(known.counts);
                let elements = known.elements.as_deref().map(|elements| {
                    (elements.total(), elements.succeeded(), elements.failed(), &elements.live)
                });
                let ready = run.ready.contains(&step);
                lines.push(format!("{key:?} {:?} {counts:?} {elements:?} {ready}", known.state));
            }
        }
    }
}
