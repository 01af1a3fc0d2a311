//! Judges a history while it is recorded, slice by slice, so that it need not be kept.
//!
//! A job is finished when its last row is final, its executions have ended, and no event about it came for [`QUIET`].
//! A request is finished when its answer is certain. Finished objects are judged and their events dropped. All others
//! are carried into the next slice, as is everything about schedules and workflow runs. State between commits, such
//! as limits, is followed over all slices.
//!
//! A later event about a dropped job looks like an event about a job that never existed. So a violation found here is
//! judged once more on the whole history by [`check`](super::check), and the excerpts of slices are not used.
//!
//! # Cost
//! Memory is bounded by the live objects, plus a few dozen bytes for each job and key that ever existed.

use foldhash::fast::FixedState;
use indexmap::IndexSet;
use model::{Duration, ExecutionId, JobId, Timestamp};

use super::facts::{ExecutionFacts, Facts, JobFacts, RequestFacts};
use super::memory::Memory;
use super::{Findings, Report, cluster, jobs, limits, preemptions, runs, schedules, services, triggers};
use crate::history::{Answer, Ask, Event, History, Row, Setup, TaskStep, What};

/// Minimum time without events about a job before it counts as finished.
const QUIET: Duration = Duration::from_secs(15);

type Set<T> = IndexSet<T, FixedState>;

/// State that is carried from slice to slice.
#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) memory: Memory,
    pub(super) limits: limits::State,
    pub(super) preemptions: preemptions::Preemptions,
    pub(super) services: services::Services,
    pub(super) order: jobs::Order,
    pub(super) triggers: triggers::Triggers,
    pub(super) findings: Findings,
}

/// Judges a history that arrives in slices.
#[derive(Debug)]
pub struct Judge {
    /// Events of unfinished objects, and new events.
    window: History,
    state: State,
}

impl Judge {
    /// Creates a judge for a history with these bounds. The store must not lose commits: later events would decide
    /// how to judge earlier ones.
    pub fn new(setup: Setup) -> Self {
        Self { window: History { setup, events: Vec::new() }, state: State::default() }
    }

    /// Number of carried events. The next slice should be at least as long, because all carried events are visited
    /// again.
    pub fn carried(&self) -> usize {
        self.window.events.len()
    }

    /// Adds the next events, and judges the objects that are finished by the last one. Leaves `events` empty.
    pub fn take(&mut self, events: &mut Vec<Event>) {
        let from = self.carried();
        self.window.events.append(events);
        let Some(last) = self.window.events.last() else { return };
        let over = self.state.judge_finished(&self.window, from, last.at - QUIET);
        self.window.events.retain_mut(|event| over.leaves(event));
    }

    /// Adds the last events, and judges everything that is left.
    pub fn finish(mut self, events: &mut Vec<Event>) -> Report {
        let from = self.carried();
        self.window.events.append(events);
        self.state.judge_the_rest(&self.window, from);
        super::report(self.state.findings, &self.window)
    }
}

/// Finished objects, whose events are dropped from later slices.
#[derive(Debug)]
struct FinishedObjects {
    jobs: Set<JobId>,
    executions: Set<ExecutionId>,
    requests: Set<u64>,
    since: Timestamp,
}

impl FinishedObjects {
    /// Returns whether the event is kept, after dropping its rows about finished objects.
    fn leaves(&self, event: &mut Event) -> bool {
        match &mut event.what {
            // This event identifies the execution of a checkpoint.
            What::Asked { ask: Ask::Save { execution, .. }, .. } => !self.executions.contains(execution),
            What::Asked { request, .. } | What::Answered { request, .. } => !self.requests.contains(request),
            What::Heard { execution, .. } | What::Found { execution, .. } | What::Task { execution, .. } => {
                !self.executions.contains(execution)
            }
            What::Commit(commit) => {
                commit.rows.retain(|row| match row {
                    Row::Job(row) => !self.jobs.contains(&row.job),
                    Row::Execution(row) => !self.jobs.contains(&row.job),
                    Row::Checkpoint { job, .. } => !self.jobs.contains(job),
                    Row::Key { .. }
                    | Row::Worker { .. }
                    | Row::Queue { .. }
                    | Row::Namespace { .. }
                    | Row::Backfill { .. }
                    | Row::Workflow(_)
                    | Row::ServiceRemoved(_) => false,
                    // The first row shows that the service exists.
                    Row::Service(row) => row.new,
                    _ => true,
                });
                !commit.rows.is_empty()
            }
            // Only the newest ownership before the end of the faults counts.
            What::Owned { .. } => event.at > self.since,
            What::Read { .. }
            | What::Fault { .. }
            | What::ServicesDue
            | What::Rebuilt { .. }
            | What::Inconsistent { .. } => false,
            What::StoreFull { .. }
            | What::TailLost { .. }
            | What::Stray { .. }
            | What::Woke { .. }
            | What::Crashed { .. }
            | What::Calm
            | What::End { .. } => true,
        }
    }
}

impl State {
    fn judge_finished(&mut self, window: &History, from: usize, quiet_since: Timestamp) -> FinishedObjects {
        let mut facts = Facts::of(window);
        cluster::rebuilds(&facts, from, &mut self.findings);
        self.follow_commits(&facts, from);
        jobs::note_asks(&facts, &mut self.memory);
        facts.requests.retain(|_, request| is_certain(request));
        jobs::requests(&facts, &mut self.memory, &mut self.findings);
        let jobs = facts.jobs.iter().filter(|(_, job)| is_over(&facts, job, quiet_since));
        let jobs: Set<JobId> = jobs.map(|(id, _)| *id).collect();
        facts.jobs.retain(|id, _| jobs.contains(id));
        let executions: Set<_> = facts.jobs.values().flat_map(|job| &job.executions).copied().collect();
        facts.executions.retain(|id, _| executions.contains(id));
        facts.are_settled = true;
        runs::starts(&facts, &mut self.findings);
        runs::overlaps(&facts, &mut self.findings);
        jobs::check(&facts, &mut self.memory, &mut self.findings);
        runs::check(&facts, &mut self.findings);
        schedules::in_time(&facts, &mut self.findings);
        self.memory.jobs.extend(&jobs);
        let since = facts.calm.map_or(quiet_since, |(_, calm)| calm - QUIET);
        FinishedObjects { jobs, executions, requests: facts.requests.keys().copied().collect(), since }
    }

    /// Judges everything that is left, and everything that is only judged at the end.
    pub(super) fn judge_the_rest(&mut self, history: &History, from: usize) {
        let facts = Facts::of(history);
        runs::starts(&facts, &mut self.findings);
        runs::overlaps(&facts, &mut self.findings);
        cluster::rebuilds(&facts, from, &mut self.findings);
        if facts.lost_tail {
            return;
        }
        jobs::note_asks(&facts, &mut self.memory);
        jobs::requests(&facts, &mut self.memory, &mut self.findings);
        jobs::check(&facts, &mut self.memory, &mut self.findings);
        self.follow_commits(&facts, from);
        runs::check(&facts, &mut self.findings);
        schedules::check(&facts, &mut self.findings);
        schedules::in_time(&facts, &mut self.findings);
        super::workflows::check(&facts, &mut self.findings);
        self.services.finish(&facts, &mut self.findings);
        cluster::check(&facts, &mut self.findings);
    }

    /// Follows the state between commits, from this event on.
    fn follow_commits(&mut self, facts: &Facts<'_>, from: usize) {
        let mut due = facts.services_due.filter(|due| *due >= from);
        for &(index, commit) in facts.commits.iter().filter(|(index, _)| *index >= from) {
            if let Some(due) = due.take_if(|due| *due < index) {
                self.services.judge_desired(due, &mut self.findings);
            }
            self.order.take(facts, index, commit, &mut self.findings);
            self.limits.take(facts, index, commit, &mut self.findings);
            self.preemptions.take(facts, index, commit, &mut self.findings);
            if facts.exact() {
                self.services.take(facts, index, commit, &mut self.findings);
                self.triggers.take(facts, index, commit, &mut self.findings);
            }
        }
        if let Some(due) = due {
            self.services.judge_desired(due, &mut self.findings);
        }
    }
}

/// Whether the client will not repeat the request.
fn is_certain(request: &RequestFacts<'_>) -> bool {
    let certain = |answer: &Answer| match answer {
        Answer::Refused { code } => code != "loading",
        Answer::Unknown => false,
        _ => true,
    };
    request.answers.iter().any(|(_, answer)| certain(answer))
}

fn is_over(facts: &Facts<'_>, job: &JobFacts<'_>, quiet_since: Timestamp) -> bool {
    let quiet = |index: usize| facts.at(index) <= quiet_since;
    let ended = |execution: &ExecutionFacts<'_>| {
        let nobody_runs = |step: &TaskStep| matches!(step, TaskStep::Ended { .. } | TaskStep::Killed);
        execution.rows.last().is_some_and(|(_, row)| row.status.is_final())
            && execution.steps.last().is_none_or(|(index, _, step)| nobody_runs(step) && quiet(*index))
            && execution.heard.last().is_none_or(|index| quiet(*index))
    };
    job.origin.is_none()
        && job.step.is_none()
        && job.rows.last().is_some_and(|(index, row)| row.status.is_final() && quiet(*index))
        && job.executions.iter().all(|id| facts.executions.get(id).is_some_and(ended))
}
