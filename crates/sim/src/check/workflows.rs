//! Checks of workflow runs: each step by its join rule, once, and the run according to its steps.
//!
//! - `chain`: legal transitions of the run and its steps (I4, I5). `once`: one job or called run for each
//!   step in each attempt.
//! - `order`: each step at the time when it was decided. `elements`: lists that tasks extended.
//! - `outcome`, `ends_are_committed_together`, `triggered`: the end of a run, and the runs that it started
//!   (all I19).
//!
//! The join rules are implemented a second time here, in a simple form, over the status of the dependencies
//! of a step when it was decided. Outcomes that a user set and steps that were stopped are exempt from them.

use std::collections::{BTreeMap, BTreeSet};

use model::firing::Work;
use model::limits;
use model::run::{Ended, RunCause, StepCause, lifecycle};
use model::workflow::{JoinRule, Section, StepSpec};
use model::{RunId, RunStatus, StepStatus};

use super::facts::{Facts, RunFacts};
use super::{Findings, Invariant};
use crate::history::Added;

pub(super) fn check(facts: &Facts<'_>, findings: &mut Findings) {
    triggered(facts, findings);
    for (&id, run) in &facts.workflow_runs {
        chain(id, run, findings);
        once(facts, id, run, findings);
        order(id, run, findings);
        elements(id, run, findings);
        outcome(id, run, findings);
        if facts.exact() {
            ends_are_committed_together(facts, id, run, findings);
        }
        if facts.calm.is_some()
            && facts.end.is_some()
            && let Some((at, row)) = run.rows.last().filter(|(_, row)| !row.status.is_final())
        {
            findings.add(Invariant::I26, id, format!("still {} at the end", row.status), [*at]);
        }
    }
}

/// I4, I5: one chain of legal transitions for the run and its steps, and none after the end.
fn chain(id: RunId, run: &RunFacts<'_>, findings: &mut Findings) {
    let mut last: Option<(usize, RunStatus)> = None;
    for (index, row) in &run.rows {
        for step in &row.steps {
            let from = last.map(|(_, status)| status);
            if step.from != from {
                let message = format!("a transition to {from:?} is followed by one from {:?}", step.from);
                findings.add(Invariant::I4, id, message, last.map(|(at, _)| at).into_iter().chain([*index]));
            }
            if !lifecycle::is_legal_for_run(step.from, step.to, step.cause) {
                let message =
                    format!("illegal transition from {:?} to {}: {}", step.from, step.to, step.cause);
                findings.add(Invariant::I5, id, message, [*index]);
            }
            last = Some((*index, step.to));
        }
    }
    let end = run.end().map(|(at, _)| at);
    for (&(step, item), rows) in &run.steps {
        // A retry of the run may reset the step, in the commit that starts the retry.
        let changed = rows.windows(2).find_map(|pair| {
            let [(_, before), (next, _)] = pair else { return None };
            (before.status.is_final() && !run.tries.contains(next)).then_some(*next)
        });
        if let Some(next) = changed {
            findings.add(Invariant::I5, id, format!("step {step} {item:?} changed after its end"), [next]);
        }
        if let (Some(end), Some((late, _))) = (end, rows.last())
            && *late > end
        {
            findings.add(Invariant::I5, id, format!("step {step} changed after the run"), [end, *late]);
        }
    }
}

/// I19: each attempt of the run has one job or called run for each step and element; none for a step that never
/// began. The number of retries stays within the policy of the workflow.
fn once(facts: &Facts<'_>, id: RunId, run: &RunFacts<'_>, findings: &mut Findings) {
    let most = run.spec.map_or(0, |spec| spec.retry.max_retries as usize);
    if run.tries.len() > most {
        let message = format!("{} retries exceed the maximum of {most}", run.tries.len());
        findings.add(Invariant::I19, id, message, run.tries.iter().copied());
    }
    for (&(step, item), work) in &run.work {
        let begun = || work.iter().filter_map(|work| facts.begin_of(*work)).map(|(index, _)| index);
        let mut in_try = BTreeSet::new();
        if let Some(twice) = begun().find(|&index| !in_try.insert(run.tries_before(index))) {
            let message = format!("step {step} {item:?} has {} jobs or runs", work.len());
            findings.add(Invariant::I19, id, message, begun().filter(|&index| index <= twice));
        }
        let last_try = run.tries.last().copied().unwrap_or(0);
        let places = || begun().filter(|&index| index >= last_try);
        let never_began = run.last(step, None).is_some_and(|row| {
            let by_rule =
                matches!(row.cause, StepCause::JoinRule | StepCause::Condition | StepCause::NotFailed);
            by_rule && matches!(row.status, StepStatus::Skipped | StepStatus::UpstreamFailed)
        });
        if never_began && places().next().is_some() {
            findings.add(Invariant::I19, id, format!("step {step} never began, but has work"), places());
        }
        if let Some((end, _)) = run.end()
            && places().any(|begun| begun > end)
        {
            findings.add(Invariant::I19, id, format!("step {step} began after the run ended"), places());
        }
    }
}

/// I19: an end starts a run once, and both rows name each other.
fn triggered(facts: &Facts<'_>, findings: &mut Findings) {
    let mut seen = BTreeSet::new();
    for (&id, run) in &facts.workflow_runs {
        if let Some((end, row)) = run.end() {
            for started in &row.started {
                let known = facts.workflow_runs.get(started).and_then(|started| started.trigger);
                if !known.is_some_and(|trigger| trigger.ended.iter().any(|ended| ended.run_id == Some(id))) {
                    let message = format!("its end started {started}, whose row does not name it");
                    findings.add(Invariant::I19, id, message, [end]);
                }
            }
        }
        let (Some(trigger), Some(&(begun, _))) = (run.trigger, run.rows.first()) else { continue };
        let work = |ended: &Ended| ended.job_id.map(Work::Job).or(ended.run_id.map(Work::Run));
        let ends: Vec<_> = trigger.ended.iter().filter_map(work).collect();
        let name = run.spec.map(|spec| spec.name.as_str());
        if !seen.insert((name, trigger.number, ends.clone())) {
            findings.add(Invariant::I19, id, format!("{ends:?} started two runs of {name:?}"), [begun]);
        }
        if trigger.chain.len() > limits::TRIGGER_CHAIN_MAX {
            let message = format!("its trigger chain has {} ends", trigger.chain.len());
            findings.add(Invariant::I19, id, message, [begun]);
        }
    }
}

/// Result of a step, as downstream steps see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Good,
    Failed,
    UpstreamFailed,
    Skipped,
}

fn end_of(status: StepStatus, spec: &StepSpec) -> Option<End> {
    match status {
        StepStatus::Pending | StepStatus::Running | StepStatus::Waiting => None,
        StepStatus::Succeeded => Some(End::Good),
        StepStatus::Failed | StepStatus::Cancelled if spec.continue_on_failure => Some(End::Good),
        StepStatus::Failed | StepStatus::Cancelled => Some(End::Failed),
        StepStatus::UpstreamFailed => Some(End::UpstreamFailed),
        StepStatus::Skipped => Some(End::Skipped),
    }
}

/// Whether a step runs, by the table of join rules on the workflows page.
fn join_rule_allows(rule: JoinRule, ends: &[Option<End>]) -> bool {
    let bad = |end: End| matches!(end, End::Failed | End::UpstreamFailed);
    let all = |holds: &dyn Fn(End) -> bool| ends.iter().all(|end| end.is_some_and(holds));
    let one = |holds: &dyn Fn(End) -> bool| ends.iter().any(|end| end.is_some_and(holds));
    let good = |end: End| end == End::Good;
    let skipped = |end: End| end == End::Skipped;
    ends.is_empty()
        || match rule {
            JoinRule::AllSuccess => all(&good),
            JoinRule::AllFailed => all(&bad),
            JoinRule::AllDone => all(&|_| true),
            JoinRule::AllDoneMinOneSuccess => all(&|_| true) && one(&good),
            JoinRule::AllSkipped => all(&skipped),
            JoinRule::OneFailed => one(&bad),
            JoinRule::OneSuccess => one(&good),
            JoinRule::OneDone => one(&|end| matches!(end, End::Good | End::Failed)),
            JoinRule::NoneFailed => all(&|end| !bad(end)),
            JoinRule::NoneFailedMinOneSuccess => all(&|end| !bad(end)) && one(&good),
            JoinRule::NoneSkipped => all(&|end| !skipped(end)),
            JoinRule::Always => true,
        }
}

/// I19: a step begins only if its join rule allows it, and is skipped only if the rule does not.
fn order(id: RunId, run: &RunFacts<'_>, findings: &mut Findings) {
    let Some(spec) = run.spec else { return };
    let all: Vec<(Section, &StepSpec)> = spec.all_steps().collect();
    let number: BTreeMap<&str, u32> = (0..).zip(&all).map(|(n, (_, step))| (step.name.as_str(), n)).collect();
    let asked =
        (0u32..).zip(&all).flat_map(|(step, of)| run.decided(step).into_iter().map(move |at| (of, at)));
    for ((section, spec), (index, row)) in asked {
        let ends: Vec<Option<End>> = spec
            .needs
            .iter()
            .filter_map(|need| number.get(need.as_str()))
            .map(|need| end_of(run.status_at(*need, None, index), all[*need as usize].1))
            .collect();
        let lets_it = join_rule_allows(spec.join, &ends);
        let name = &spec.name;
        match row.cause {
            StepCause::Marked | StepCause::Stopped | StepCause::CarriedOver => continue,
            StepCause::NotFailed | StepCause::NotAfterCancel | StepCause::SkippedByCancel => continue,
            StepCause::JoinRule if lets_it => {
                let message = format!("step `{name}` was skipped, but its rule {:?} allows it", spec.join);
                findings.add(Invariant::I19, id, message, [index]);
            }
            StepCause::JoinRule => continue,
            _ if !lets_it => {
                let message =
                    format!("step `{name}` began, but its rule {:?} does not allow it: {ends:?}", spec.join);
                findings.add(Invariant::I19, id, message, [index]);
            }
            _ => {}
        }
        let open = (0u32..).zip(&all).find(|(other, (earlier, _))| {
            earlier < section && !run.status_at(*other, None, index).is_final()
        });
        if let Some((_, (_, open))) = open {
            let message = format!("step `{name}` began before `{}` of an earlier section ended", open.name);
            findings.add(Invariant::I19, id, message, [index]);
        }
    }
}

/// I19: the elements that tasks added form one list without gaps, with each batch once. A succeeded step has
/// processed all elements that existed; a later retry of its run may add more.
fn elements(id: RunId, run: &RunFacts<'_>, findings: &mut Findings) {
    let mut lists: BTreeMap<u32, (u32, BTreeSet<&Added>)> = BTreeMap::new();
    for &(index, (added, first, count)) in &run.added {
        let (total, batches) = lists.entry(added.step).or_default();
        if first != *total {
            let message = format!("{added:?} begins at {first}, but {total} elements precede it");
            findings.add(Invariant::I19, id, message, [index]);
        }
        if !batches.insert(added) {
            findings.add(Invariant::I19, id, format!("{added:?} was added twice"), [index]);
        }
        *total = first + count;
    }
    let Some(spec) = run.spec else { return };
    for step in lists.into_keys() {
        let all_count = spec
            .all_steps()
            .nth(step as usize)
            .is_some_and(|(_, step)| step.for_each.as_ref().is_some_and(|each| each.min_succeeded.is_none()));
        let rows = run.steps.get(&(step, None)).into_iter().flatten();
        let ends = rows.filter(|(_, row)| all_count && row.cause == StepCause::ElementsSucceeded);
        for (end, _) in ends {
            let here = run.added.iter().filter(|(index, (added, ..))| index <= end && added.step == step);
            let total = here.map(|(_, (_, first, count))| first + count).max().unwrap_or(0);
            let open = (0..total).find(|&item| !run.status_at(step, Some(item), *end).is_final());
            if let Some(item) = open {
                let message = format!("step {step} succeeded, but element {item} of {total} did not end");
                findings.add(Invariant::I19, id, message, [*end]);
            }
        }
    }
}

/// I19: the result of a run follows from all of its steps.
fn outcome(id: RunId, run: &RunFacts<'_>, findings: &mut Findings) {
    let (Some(spec), Some((index, row))) = (run.spec, run.end()) else { return };
    let cause = row.steps.last().map(|step| step.cause);
    // A run that never became `running` began no step.
    let had_its_turn =
        run.rows.iter().flat_map(|(_, row)| &row.steps).any(|step| step.to == RunStatus::Running);
    if !had_its_turn {
        return;
    }
    let mut failed = None;
    for (number, (_, step)) in (0u32..).zip(spec.all_steps()) {
        let status = run.status_at(number, None, index);
        if !status.is_final() {
            let message = format!("ended while step `{}` is {status}", step.name);
            findings.add(Invariant::I19, id, message, [index]);
        }
        let bad = matches!(status, StepStatus::Failed | StepStatus::UpstreamFailed | StepStatus::Cancelled);
        if bad && !step.continue_on_failure {
            failed = Some(&step.name);
        }
    }
    let message = match (row.status, failed, cause) {
        (RunStatus::Succeeded, Some(step), _) => format!("succeeded, but step `{step}` did not"),
        (RunStatus::Failed, None, Some(RunCause::StepFailed | RunCause::FailFast)) => {
            "failed, but none of its steps did".to_owned()
        }
        _ => return,
    };
    findings.add(Invariant::I19, id, message, [index]);
}

/// I19: the end of a step's job or called run, and the end of the step, are in one commit.
fn ends_are_committed_together(facts: &Facts<'_>, id: RunId, run: &RunFacts<'_>, findings: &mut Findings) {
    let mut lost = BTreeSet::new();
    for (&(step, item), work) in &run.work {
        for end in work.iter().filter_map(|work| facts.end_of(*work)) {
            let own = run.status_at(step, item, end).is_final() || run.tries.contains(&end);
            if !own && !run.status_at(step, None, end).is_final() {
                lost.insert((step, item, end));
            }
        }
    }
    for (step, item, end) in lost {
        let message = format!("the work of step {step} {item:?} ended, but the step did not");
        findings.add(Invariant::I19, id, message, [end]);
    }
}
