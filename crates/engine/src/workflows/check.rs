//! Invariants of workflows, and the comparison with a rebuilt engine.
//!
//! [`Workflows::check_workflows`] runs after each flush of a test and in the simulator. It counts again what the runs
//! maintain: statuses, unfinished steps, running work, timers.
//! [`Workflows::workflow_difference`] compares the rows, and what is derived from them, of two engines over the same
//! rows: also the rows that a called run keeps for its next call.

use std::collections::BTreeSet;

use model::RunId;
use model::firing::Work;
use model::run::{ElementCounts, RunState, RunStatus, StepState, StepStatus, WorkflowState};
use model::workflow::{Section, UpstreamCounts};

use super::elements::{Elements, work_of};
use super::ended_call::KeptRows;
use super::growing::{Batches, Growing};
use super::plan::deadline;
use super::{Run, Step, Workflow, Workflows};
use crate::context::Context;
use crate::difference::{Difference, first};
use crate::jobs::Jobs;
use crate::timer::Timer;

impl Workflows {
    /// Checks the invariants of the [folder's page](super) for each run.
    pub(crate) fn check_workflows(&self, cx: &Context, jobs: &Jobs) -> Result<(), String> {
        self.check_listeners()?;
        let mut work = BTreeSet::new();
        for (&id, run) in &self.runs {
            self.check_run(cx, jobs, id, run, &mut work)?;
        }
        let broadcast = |(id, run): (&RunId, &Run), step| {
            let goes_on = run.step(step).status() == StepStatus::Running;
            (goes_on && run.is_broadcast(step)).then_some((*id, step))
        };
        let count = |run: &Run| u32::try_from(run.steps.len()).unwrap_or(u32::MAX);
        let runs = self.runs.iter();
        let found = runs.flat_map(|(id, run)| (0..count(run)).filter_map(move |s| broadcast((id, run), s)));
        if found.collect::<BTreeSet<_>>() != self.broadcasts {
            return Err("the running broadcasts differ from the registered ones".into());
        }
        for (id, job) in jobs.iter() {
            if job.step.is_some() && !work.contains(&Work::Job(id)) {
                return Err(format!("{id} is not the current job of its step"));
            }
        }
        for (&id, run) in &self.runs {
            if run.head.caller.is_some() && !work.contains(&Work::Run(id)) {
                return Err(format!("{id} is not the current call of its step"));
            }
        }
        for (&id, workflow) in &self.all {
            if !workflow.waiting.is_empty() && workflow.is_below_run_limit() {
                return Err(format!("runs of {id} are waiting below the limit of parallel runs"));
            }
        }
        Ok(())
    }

    fn check_run(
        &self,
        cx: &Context,
        jobs: &Jobs,
        id: RunId,
        run: &Run,
        work: &mut BTreeSet<Work>,
    ) -> Result<(), String> {
        if run.state.status.is_final() {
            return Err(format!("{id} is {}, but still live after a flush", run.state.status));
        }
        let mut counts = [0; 8];
        let (mut open, mut live) = ([0; 3], 0);
        for (step, known) in (0..).zip(&run.steps) {
            let status = known.status();
            counts[usize::from(status.code())] += 1;
            open[run.plan.node(step).section as usize] += u32::from(!status.is_final());
            let own = self.check_step(cx, jobs, id, run, step)?;
            live += own.len();
            work.extend(own);
        }
        if counts != run.state.counts {
            return Err(format!("{id} counts {:?}, expected {counts:?}", run.state.counts));
        }
        if open != run.open || u32::try_from(live) != Ok(run.live) {
            return Err(format!(
                "{id} has {open:?} open and {live} live, but counts {:?} and {}",
                run.open, run.live
            ));
        }
        if let Some(at) = deadline(run).filter(|_| run.state.status == RunStatus::Retrying)
            && (!cx.wall_timers.is_armed(at, Timer::Run(id)) || open[Section::Steps as usize] > 0)
        {
            return Err(format!("{id} retries at {at}, but has no timer, or unfinished steps"));
        }
        if run.state.status == RunStatus::Retrying && run.state.next_attempt_at().is_none() {
            return Err(format!("{id} is retrying without a retry time"));
        }
        let stands_still = run.begins_steps() && live == 0 && !run.to_advance;
        let waits = counts[usize::from(StepStatus::Waiting.code())] > 0;
        if stands_still && !waits && run.state.status != RunStatus::Paused {
            return Err(format!("{id} is {}, but no event will advance it", run.state.status));
        }
        Ok(())
    }

    /// Checks one step and returns its running work.
    fn check_step(
        &self,
        cx: &Context,
        jobs: &Jobs,
        id: RunId,
        run: &Run,
        step: u32,
    ) -> Result<Vec<Work>, String> {
        let known = run.step(step);
        let node = run.plan.node(step);
        let name = &node.name;
        let state = known.state.as_deref();
        if let Some(wake_at) = state.filter(|state| state.status.is_live()).and_then(|state| state.wake_at)
            && !cx.wall_timers.is_armed(wake_at, Timer::Step(id, step))
        {
            return Err(format!("step `{name}` of {id} wakes at {wake_at}, but its timer is not armed"));
        }
        if known.status() != StepStatus::Running {
            return Ok(Vec::new());
        }
        let work = work_of(known);
        for one in &work {
            let there = match one {
                Work::Job(job) => jobs.contains(*job),
                Work::Run(run) => self.runs.contains_key(run),
            };
            if !there {
                return Err(format!("step `{name}` of {id} has {one:?}, which is not live"));
            }
        }
        let may_begin = run.with_pending_elements.contains(&step);
        if work.is_empty()
            && run.is_whole(step)
            && !(may_begin && (run.to_advance || !run.begins_steps() || run.live > 0))
        {
            return Err(format!("step `{name}` of {id} is running, but has no running work"));
        }
        Ok(work)
    }

    /// Returns the first workflow or run that differs from another engine over the same rows.
    pub(crate) fn workflow_difference(&self, other: &Self) -> Option<Difference> {
        let here = self.all.iter().map(|(id, workflow)| (id, of_workflow(workflow)));
        first(here, |id| other.all.get(id).map(of_workflow))
            .or_else(|| {
                // An engine that has not evaluated the steps of a run yet does not know which of them are
                // ready.
                let stirred = |engine: &Self, id| engine.runs.get(id).is_some_and(|run| run.to_advance);
                let knows = |id| !stirred(self, id) && !stirred(other, id);
                let here = self.runs.iter().map(|(id, run)| (id, of_run(run, knows(id))));
                first(here, |id| other.runs.get(id).map(|run| of_run(run, knows(id))))
            })
            .or_else(|| {
                let counts = |engine: &Self| {
                    let Workflows { all, runs, keys, .. } = engine;
                    (all.len(), runs.len(), keys.len())
                };
                let (here, there) = (counts(self), counts(other));
                (here != there).then(|| Difference {
                    subject: "numbers of workflows, runs and run keys".into(),
                    here: format!("{here:?}"),
                    there: format!("{there:?}"),
                })
            })
    }
}

fn of_workflow(workflow: &Workflow) -> (&str, &WorkflowState, &BTreeSet<RunId>, &BTreeSet<RunId>) {
    (&workflow.name, &workflow.state, &workflow.active, &workflow.waiting)
}

/// State of a step: its row, the outcomes of its dependencies while they matter, and its running work.
#[derive(Debug, PartialEq)]
struct StepSnapshot<'a> {
    state: Option<&'a StepState>,
    counts: Option<UpstreamCounts>,
    elements: Option<(u32, ElementCounts)>,
    batches: Option<&'a Batches>,
    going: Option<Vec<(u32, Work)>>,
    ready: bool,
}

type RunSnapshot<'a> = (&'a RunState, u32, [u32; 3], Vec<StepSnapshot<'a>>, Option<&'a KeptRows>);

fn of_run(run: &Run, knows_ready: bool) -> RunSnapshot<'_> {
    let ready = |number: u32| knows_ready && run.ready.contains(&number);
    let steps = (0..).zip(&run.steps).map(|(number, step)| of_step(step, ready(number)));
    (&run.state, run.live, run.open, steps.collect(), run.kept.as_deref())
}

fn of_step(step: &Step, ready: bool) -> StepSnapshot<'_> {
    let elements = step.elements.as_deref();
    StepSnapshot {
        state: step.state.as_deref(),
        counts: (!step.status().is_final()).then_some(step.counts),
        elements: elements.map(|e| (e.total(), e.tally())),
        batches: elements.and_then(Elements::as_growing).map(Growing::batches),
        going: elements.map(|e| e.running().collect()),
        ready,
    }
}
