//! Checks of triggers (I19): the end of a job or run starts the runs that listen to it, in its own commit. If it
//! starts none, the workflow records the reason.
//!
//! This implements the rule of the workflows page a second time, in a simple form, from commit to commit. Several
//! ends in one commit have no order in the history. For a join with up to [`ORDERS_OF`] of them, any order is
//! accepted; with more, the commit is not judged. A commit that changes the workflow itself is not judged either.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::firing::Work;
use model::limits;
use model::run::{Ended, RunCause, RunTrigger, TriggerRefusalReason, TriggerState};
use model::workflow::{Action, Source, SourceKind, TriggerSources, TriggerSpec};
use model::{JobStatus, RunId, RunStatus, Timestamp, WorkflowId, WorkflowSpec};

use super::facts::Facts;
use super::{Findings, Invariant};
use crate::history::{Commit, Row, RunRow, WorkflowRow};

/// Maximum number of ends for which all orders are tried.
const ORDERS_OF: usize = 4;

/// State of workflows and runs, from commit to commit.
#[derive(Debug, Default)]
pub(super) struct Triggers {
    workflows: BTreeMap<WorkflowId, WorkflowState>,
    runs: BTreeMap<RunId, LiveRun>,
}

#[derive(Debug)]
struct WorkflowState {
    spec: Arc<WorkflowSpec>,
    /// State of each of its triggers.
    states: Vec<TriggerState>,
    /// Ends that each of its joins has collected, by source.
    kept: Vec<CollectedEnds>,
}

type CollectedEnds = BTreeMap<usize, End>;

#[derive(Debug)]
struct LiveRun {
    spec: Arc<WorkflowSpec>,
    is_called: bool,
    /// Scheduled time, or time of creation.
    since: Timestamp,
    chain: Vec<Arc<str>>,
}

/// The end of a job or run.
#[derive(Debug, Clone)]
struct End {
    work: Work,
    at: Timestamp,
    since: Timestamp,
    chain: Vec<Arc<str>>,
}

/// The end of a job or run, with the fields that sources match.
#[derive(Debug)]
struct MatchedEnd<'a> {
    end: End,
    namespace: &'a str,
    name: &'a str,
    labels: &'a BTreeMap<String, String>,
    status: JobStatus,
}

/// What a trigger should do, or did, in a commit.
#[derive(Debug, Default)]
struct TriggerActions {
    /// The ends named by each of its new runs.
    started: BTreeSet<Vec<Work>>,
    refused: Vec<(Work, TriggerRefusalReason)>,
    /// Ends that a join holds after the commit, by source.
    kept: BTreeMap<usize, Work>,
}

impl Triggers {
    pub(super) fn take(&mut self, facts: &Facts<'_>, index: usize, commit: &Commit, findings: &mut Findings) {
        let mut changed = BTreeMap::new();
        let mut new: Vec<(&RunRow, &RunTrigger)> = Vec::new();
        for row in &commit.rows {
            match row {
                Row::Run(row) => {
                    self.begin(row);
                    new.extend(row.trigger.as_deref().map(|trigger| (&**row, trigger)));
                }
                Row::Workflow(row) => {
                    changed.insert(row.workflow, &**row);
                }
                _ => {}
            }
        }
        if self.runs.is_empty() && self.workflows.is_empty() && changed.is_empty() {
            return;
        }
        let ends = self.ends(facts, commit);
        let here: BTreeSet<Work> = ends.iter().map(|told| told.end.work).collect();
        for (row, trigger) in &new {
            if !trigger.ended.iter().filter_map(work_of).any(|work| here.contains(&work)) {
                let message = "not started in the commit of the end that triggered it";
                findings.add(Invariant::I19, row.run, message, [index]);
            }
        }
        for (&id, known) in &self.workflows {
            let rewritten = |row: &WorkflowRow| row.spec.is_some() || row.removed;
            let own = changed.get(&id).copied();
            if own.is_some_and(rewritten) {
                continue;
            }
            let callees_change = changed.values().any(|row| rewritten(row));
            for (number, trigger) in known.spec.triggers.iter().enumerate() {
                let seen = known.seen(number, own, &new);
                let judged = Judged { all: &self.workflows, known, number, trigger, callees_change, seen };
                if let Err(message) = judged.compare(&ends) {
                    let name = &known.spec.name;
                    let message = format!("trigger {number} of workflow `{name}`: {message}");
                    findings.add(Invariant::I19, id, message, [index]);
                }
            }
        }
        changed.into_values().for_each(|row| self.change(row));
        let over = commit.rows.iter().filter_map(|row| match row {
            Row::Run(row) if row.status.is_final() => Some(row.run),
            _ => None,
        });
        over.for_each(|run| drop(self.runs.remove(&run)));
    }

    fn begin(&mut self, row: &RunRow) {
        let (Some(spec), Some(made)) = (row.spec.as_ref().filter(|_| row.new), row.steps.first()) else {
            return;
        };
        let since = row.origin.as_deref().map_or(made.at, |origin| origin.scheduled_for);
        let chain = row.trigger.as_deref().map(|trigger| trigger.chain.clone()).unwrap_or_default();
        let (spec, is_called) = (Arc::clone(spec), row.caller.is_some());
        self.runs.insert(row.run, LiveRun { spec, is_called, since, chain });
    }

    /// Returns all ends in a commit to which triggers may listen: jobs that are not steps, and runs that no other run
    /// called.
    fn ends<'a>(&'a self, facts: &Facts<'a>, commit: &Commit) -> Vec<MatchedEnd<'a>> {
        let mut ends = Vec::new();
        for row in &commit.rows {
            match row {
                Row::Job(row) if row.status.is_final() => {
                    let Some(job) = facts.jobs.get(&row.job).filter(|job| job.step.is_none()) else {
                        continue;
                    };
                    let (Some(spec), Some(last)) = (job.spec, row.steps.last()) else { continue };
                    let since = job.origin.map_or(row.job.created_at(), |origin| origin.scheduled_for);
                    let chain = vec![spec.name.as_str().into()];
                    ends.push(MatchedEnd {
                        end: End { work: row.job.into(), at: last.at, since, chain },
                        namespace: &spec.namespace,
                        name: &spec.name,
                        labels: &spec.labels,
                        status: row.status,
                    });
                }
                Row::Run(row) if row.status.is_final() => {
                    let Some(run) = self.runs.get(&row.run).filter(|run| !run.is_called) else { continue };
                    let Some(last) = row.steps.last() else { continue };
                    let mut chain = run.chain.clone();
                    chain.push(run.spec.name.as_str().into());
                    ends.push(MatchedEnd {
                        end: End { work: row.run.into(), at: last.at, since: run.since, chain },
                        namespace: &run.spec.namespace,
                        name: &run.spec.name,
                        labels: &run.spec.labels,
                        status: in_words_of_jobs(row.status, last.cause),
                    });
                }
                _ => {}
            }
        }
        ends
    }

    /// Handles a changed spec or new trigger states. A join keeps its collected ends.
    fn change(&mut self, row: &WorkflowRow) {
        if row.removed {
            self.workflows.remove(&row.workflow);
            return;
        }
        let states = row.triggers.clone();
        let kept = states.iter().map(kept_by).collect();
        match (self.workflows.get_mut(&row.workflow), &row.spec) {
            (Some(known), None) => (known.states, known.kept) = (states, kept),
            (_, Some(spec)) => {
                self.workflows.insert(row.workflow, WorkflowState { spec: Arc::clone(spec), states, kept });
            }
            (None, None) => {}
        }
    }
}

impl WorkflowState {
    /// Returns what a trigger did in a commit: the new runs that name it, and the ends that it refused. The row names
    /// only the last refused end, so the others get the same name.
    fn seen(
        &self,
        number: usize,
        own: Option<&WorkflowRow>,
        new: &[(&RunRow, &RunTrigger)],
    ) -> TriggerActions {
        let of_this = |row: &RunRow, trigger: &RunTrigger| {
            let spec = row.spec.as_deref();
            trigger.number as usize == number
                && spec
                    .is_some_and(|spec| spec.name == self.spec.name && spec.namespace == self.spec.namespace)
        };
        let mine = new.iter().filter(|(row, trigger)| of_this(row, trigger));
        let started = mine.map(|(_, trigger)| trigger.ended.iter().filter_map(work_of).collect()).collect();
        let before = self.states.get(number).map_or(0, |state| state.refused);
        let now = own.and_then(|row| row.triggers.get(number));
        let count = now.map_or(0, |state| state.refused.saturating_sub(before));
        let last = now.and_then(|state| state.last_refusal.as_deref());
        let last = last.and_then(|last| Some((work_of(&last.ended)?, last.reason)));
        let refused = last.map_or_else(Vec::new, |last| vec![last; usize::try_from(count).unwrap_or(0)]);
        // Without a row, the join keeps its ends.
        let kept = now.map(kept_by).or_else(|| self.kept.get(number).cloned()).unwrap_or_default();
        TriggerActions { started, refused, kept: works(&kept) }
    }
}

/// A trigger, and what it did in the judged commit.
struct Judged<'a> {
    all: &'a BTreeMap<WorkflowId, WorkflowState>,
    known: &'a WorkflowState,
    number: usize,
    trigger: &'a TriggerSpec,
    /// Whether the commit changes a workflow that this one may call.
    callees_change: bool,
    seen: TriggerActions,
}

impl Judged<'_> {
    /// Compares what the trigger did with the rule.
    ///
    /// # Errors
    /// Describes what it should have done.
    fn compare(&self, ends: &[MatchedEnd<'_>]) -> Result<(), String> {
        let (sources, joins) = (self.trigger.listens.sources(), self.trigger.listens.joins());
        let namespace = self.known.spec.namespace.as_str();
        let is_heard = |told: &&MatchedEnd<'_>| {
            told.namespace == namespace && sources.iter().any(|source| listens(source, told))
        };
        let heard: Vec<_> = ends.iter().filter(is_heard).collect();
        if joins && heard.len() > ORDERS_OF {
            return Ok(());
        }
        let orders = if joins { orders(heard.len()) } else { vec![(0..heard.len()).collect()] };
        let mut wrong = None;
        for order in orders {
            let mut due = TriggerActions::default();
            let mut kept = self.known.kept.get(self.number).cloned().unwrap_or_default();
            order.iter().for_each(|&place| self.hear(heard[place], &mut kept, &mut due));
            due.kept = works(&kept);
            if self.fits(&due) {
                return Ok(());
            }
            wrong.get_or_insert(due);
        }
        let (seen, due) = (&self.seen, wrong.unwrap_or_default());
        Err(format!("expected {due:?} from the ends of this commit, but got {seen:?}"))
    }

    fn fits(&self, due: &TriggerActions) -> bool {
        let last = self.seen.refused.last();
        due.started == self.seen.started
            && due.kept == self.seen.kept
            && due.refused.len() == self.seen.refused.len()
            && last.is_none_or(|last| due.refused.contains(last))
    }

    /// Applies the rule to one end.
    fn hear(&self, told: &MatchedEnd<'_>, kept: &mut CollectedEnds, due: &mut TriggerActions) {
        for (place, source) in self.trigger.listens.sources().iter().enumerate() {
            if !listens(source, told) {
                continue;
            }
            let end = &told.end;
            if self.trigger.paused {
                due.refused.push((end.work, TriggerRefusalReason::Paused));
                continue;
            }
            if source.within.is_some_and(|within| end.at.since(end.since) > within) {
                due.refused.push((end.work, TriggerRefusalReason::Late));
                continue;
            }
            let ends: Vec<End> = match &self.trigger.listens {
                TriggerSources::To(_) => vec![end.clone()],
                TriggerSources::All { sources, window } => {
                    kept.remove(&place);
                    let old: Vec<usize> = kept
                        .iter()
                        .filter(|(_, old)| end.at.since(old.at) > *window)
                        .map(|(at, _)| *at)
                        .collect();
                    for at in old {
                        let old = kept.remove(&at).expect("the key was just found");
                        due.refused.push((old.work, TriggerRefusalReason::OutsideWindow));
                    }
                    kept.insert(place, end.clone());
                    if kept.len() < sources.len() {
                        continue;
                    }
                    std::mem::take(kept).into_values().collect()
                }
            };
            match self.refusal(&ends) {
                Some(reason) => due.refused.push((end.work, reason)),
                None => drop(due.started.insert(ends.iter().map(|end| end.work).collect())),
            }
        }
    }

    /// Returns why these ends start nothing, or `None`. If the reason depends on data that the history does not
    /// contain, the recorded reason is accepted.
    fn refusal(&self, ends: &[End]) -> Option<TriggerRefusalReason> {
        if ends.iter().any(|end| end.chain.len() > limits::TRIGGER_CHAIN_MAX) {
            return Some(TriggerRefusalReason::ChainTooLong);
        }
        let spec = &self.known.spec;
        let said = |reason| self.seen.refused.iter().any(|(_, said)| *said == reason).then_some(reason);
        let calls = calls(spec).next().is_some();
        if calls && !self.callees_change && !self.is_whole(spec, limits::TRIGGER_CHAIN_MAX) {
            return Some(TriggerRefusalReason::BadWorkflow);
        }
        let may_change = said(TriggerRefusalReason::BadWorkflow).filter(|_| calls && self.callees_change);
        let may_have_none = said(TriggerRefusalReason::BadParameters)
            .filter(|_| !spec.parameters.is_empty() || !self.trigger.parameters.is_empty());
        let may_be_full =
            said(TriggerRefusalReason::TooManyRuns).filter(|_| spec.max_parallel_runs.is_some());
        may_change.or(may_have_none).or(may_be_full)
    }

    /// Whether every workflow that it calls exists, recursively.
    fn is_whole(&self, spec: &WorkflowSpec, depth: usize) -> bool {
        depth > 0
            && calls(spec).all(|name| {
                let mut there = self.all.values().map(|known| &*known.spec);
                let called = there.find(|known| known.name == name && known.namespace == spec.namespace);
                called.is_some_and(|called| self.is_whole(called, depth - 1))
            })
    }
}

fn listens(source: &Source, told: &MatchedEnd<'_>) -> bool {
    let kind = match told.end.work {
        Work::Job(_) => SourceKind::Job,
        Work::Run(_) => SourceKind::Workflow,
    };
    source.kind == kind
        && source.name == told.name
        && source.on.includes(told.status)
        && source.labels.iter().all(|(name, value)| told.labels.get(name) == Some(value))
}

fn calls(spec: &WorkflowSpec) -> impl Iterator<Item = &str> {
    spec.all_steps().filter_map(|(_, step)| match &step.action {
        Action::Workflow(call) => Some(call.name.as_str()),
        _ => None,
    })
}

fn in_words_of_jobs(status: RunStatus, cause: RunCause) -> JobStatus {
    match status {
        _ if cause == RunCause::Expired => JobStatus::Expired,
        RunStatus::Succeeded => JobStatus::Succeeded,
        RunStatus::Cancelled => JobStatus::Cancelled,
        _ => JobStatus::Failed,
    }
}

fn work_of(ended: &Ended) -> Option<Work> {
    ended.job_id.map(Work::Job).or(ended.run_id.map(Work::Run))
}

fn works(kept: &CollectedEnds) -> BTreeMap<usize, Work> {
    kept.iter().map(|(place, end)| (*place, end.work)).collect()
}

fn kept_by(state: &TriggerState) -> CollectedEnds {
    let kept = state.waiting_events.iter().filter_map(|kept| {
        let since = kept.scheduled_for.unwrap_or(kept.created_at);
        let end = End { work: work_of(&kept.ended)?, at: kept.ended.at, since, chain: kept.chain.clone() };
        Some((kept.source as usize, end))
    });
    kept.collect()
}

/// Returns all permutations of `0..count`.
fn orders(count: usize) -> Vec<Vec<usize>> {
    let Some(last) = count.checked_sub(1) else { return vec![Vec::new()] };
    let mut all = Vec::new();
    for order in orders(last) {
        for place in 0..count {
            let mut longer = order.clone();
            longer.insert(place, last);
            all.push(longer);
        }
    }
    all
}
