//! Rows that a retry of an ended run takes over from that run.
//!
//! A user can retry a run from its failed steps, from one step, or from the start. [`carried`] decides which steps and
//! elements are repeated, and lists the jobs and calls that would start a second time. The engine uses the result to
//! accept or refuse the retry, and to create the rows of the new run.
//!
//! # Invariants
//! - A step that succeeded is not repeated, unless the user requested it or an upstream step is repeated.
//! - An `at_most_once` job that the retry would start again is always in [`Carried::again`].
//!
//! # Cost
//! O(n log n) in the steps, dependencies and rows of the run.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{Adder, ElementBatch, EndedCall, RunHead, StepCause, StepKey, StepRecord, StepState, StepStatus};
use crate::RunId;
use crate::firing::Work;
use crate::spec::Delivery;
use crate::workflow::{Action, Definition, Section, StepSpec, WorkflowSpec};

/// First steps of a retry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetryFrom<'a> {
    /// All steps that did not succeed.
    Failed,
    /// This step, with any status, and all other steps that did not succeed.
    Step(&'a str),
    /// All steps; nothing is taken over.
    Start,
}

/// Rows that a retry takes over from an ended run.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Carried {
    /// Rows of steps and elements.
    pub records: Vec<StepRecord>,
    /// Repeated steps over added elements, and the part of the elements that is taken over.
    lists: BTreeMap<u32, ElementCarryOver>,
    /// Steps, and elements of failed steps, that are not repeated.
    done: BTreeSet<Adder>,
    /// Work of the ended run that the retry starts again: `at_most_once` jobs and called runs.
    pub again: Vec<RepeatedWork>,
}

/// A job or a call of an ended run that a retry starts again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RepeatedWork {
    /// Step or element of the ended run.
    pub key: StepKey,
    /// The `at_most_once` job, or the called run. `None` for a list whose elements ran in an earlier run.
    pub work: Option<Work>,
    /// Whether the next call may continue the called run; not allowed if the input of the step may have changed.
    pub may_continue: bool,
    /// Number of elements of the list, if the work belongs to an element.
    total: Option<u32>,
}

/// Part of the added elements of a step that is taken over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ElementCarryOver {
    /// All elements: only some are repeated, with their old index.
    All,
    /// Elements from tasks that are not repeated; repeated tasks add theirs again.
    FromFinished,
}

impl Carried {
    /// Returns whether batches of any step may be taken over.
    pub fn carries_elements(&self) -> bool {
        !self.lists.is_empty()
    }

    /// Returns whether a batch of elements is taken over; its elements may get another index.
    pub fn takes(&self, batch: &ElementBatch) -> bool {
        let whole_step = Adder { item: None, ..batch.by };
        match self.lists.get(&batch.key.step) {
            Some(ElementCarryOver::All) => true,
            Some(ElementCarryOver::FromFinished) => {
                self.done.contains(&whole_step) || self.done.contains(&batch.by)
            }
            None => false,
        }
    }

    /// Makes the next call of a step or element continue an ended run.
    pub fn continue_call(&mut self, again: &RepeatedWork, call: Arc<EndedCall>) {
        let state = StepState {
            continues: Some(call),
            total: again.total,
            ..StepState::new(StepStatus::Pending, StepCause::CarriedOver)
        };
        self.records.push(StepRecord { key: again.key, state });
    }
}

/// Returns the rows that a retry of an ended run takes over.
///
/// These are steps that succeeded or were skipped, unless the retry starts at them or upstream of them. Of a failed
/// mapped step, the succeeded elements are taken over. A mapped step over workers takes over none, because the workers
/// may have changed. `on_failure` and `finally` are repeated in each retry.
///
/// `all` contains all rows of the ended run, in any order.
pub fn carried(definition: &Definition, all: &[StepRecord], from: RetryFrom<'_>) -> Carried {
    let spec = &definition.workflow;
    let rows: BTreeMap<u32, &StepRecord> = all
        .iter()
        .filter(|record| record.key.item.is_none())
        .map(|record| (record.key.step, record))
        .collect();
    let again = match from {
        RetryFrom::Start => (0..).zip(&spec.steps).map(|(step, _)| (step, true)).collect(),
        _ => repeated_steps(spec, |step| rows.get(&step).map(|record| record.state.status), from),
    };
    let sections = spec.all_steps().map(|(section, _)| section).collect::<Vec<_>>();
    // The list may change if an upstream step is repeated; the set of workers may change at any time.
    let has_same_list = |step: u32| {
        let is_free = |s: &StepSpec| from == RetryFrom::Step(&s.name) || s.is_broadcast();
        again.get(&step) == Some(&false) && !spec.steps.get(step as usize).is_some_and(is_free)
    };
    let keeps = |record: &&StepRecord| {
        let (step, item) = (record.key.step, record.key.item);
        if sections.get(step as usize) != Some(&Section::Steps) {
            return false;
        }
        // A call that never started in the ended run keeps the run that it should have continued.
        let continues =
            record.state.unstarted_call().is_some() && record.state.status != StepStatus::Succeeded;
        match (again.contains_key(&step), item) {
            // The row of the step contains its elements.
            (false, item) => item.is_none(),
            (true, Some(_)) => {
                has_same_list(step) && (record.state.status == StepStatus::Succeeded || continues)
            }
            (true, None) => has_same_list(step) && continues,
        }
    };
    let total_of = |step: u32| rows.get(&step).and_then(|record| record.state.total);
    let kept = all.iter().filter(keeps).cloned().map(|mut record| {
        record.state.total = record.state.total.or(total_of(record.key.step));
        record
    });
    let records: Vec<_> = kept.collect();
    let has_elements: BTreeSet<u32> =
        all.iter().filter(|record| record.key.item.is_some()).map(|record| record.key.step).collect();
    let begun = |record: &StepRecord| {
        let StepKey { step, item, .. } = record.key;
        // `on_failure` and `finally` run in each retry, so their steps are always repeated.
        let is_again = sections.get(step as usize) != Some(&Section::Steps) || again.contains_key(&step);
        let spec = spec.step_at(step as usize).filter(|_| is_again)?;
        let matters = match &spec.action {
            Action::Job(job) => job.delivery == Delivery::AtMostOnce,
            Action::Workflow(_) => true,
            Action::Approval(_) | Action::Wait(_) => false,
        };
        let state = &record.state;
        let continued = state.continues.as_ref().map(|call| call.run);
        let work = state.job.map(Work::Job).or(state.called.or(continued).map(Work::Run));
        let total = state.total.or(total_of(step));
        // The elements of a list that was taken over are rows of the earlier run.
        let unseen = spec.for_each.is_some()
            && item.is_none()
            && total.is_some_and(|total| total > 0)
            && !has_elements.contains(&step);
        // Also true for a call that never started: it still continues its ended run.
        let ended_well = state.status == StepStatus::Succeeded;
        let stays = has_same_list(step) && (ended_well || state.unstarted_call().is_some());
        if !matters || stays || (work.is_none() && !unseen) {
            return None;
        }
        let may_continue = matches!(work, Some(Work::Run(_))) && has_same_list(step);
        Some(RepeatedWork { key: record.key, work, may_continue, total: item.and(total) })
    };
    let again_begun = all.iter().filter_map(begun).collect();
    let growing = (0..).zip(&spec.steps).filter(|(_, step)| !step.adders().is_empty()).map(|(step, _)| step);
    let kept = |step| {
        (step, if has_same_list(step) { ElementCarryOver::All } else { ElementCarryOver::FromFinished })
    };
    Carried {
        lists: growing.filter(|step| again.contains_key(step)).map(kept).collect(),
        done: records.iter().map(|record| Adder { step: record.key.step, item: record.key.item }).collect(),
        records,
        again: again_begun,
    }
}

/// Returns what the next call of a step takes over from an ended run that the step called.
///
/// `all` contains all rows of the ended run, in any order; rows of failed calls contain what these calls take over.
/// `batches` contains all batches of added elements. Unlike a manual retry, this cannot look up whether a job has
/// started: every `at_most_once` job that exists counts as started.
pub fn ended_call<'a>(
    run: RunId,
    head: &RunHead,
    all: &[StepRecord],
    batches: impl IntoIterator<Item = &'a ElementBatch>,
) -> EndedCall {
    let definition = &head.definition;
    let mut carried = carried(definition, all, RetryFrom::Failed);
    let calls: BTreeMap<StepKey, &Arc<EndedCall>> =
        all.iter().filter_map(|record| Some((record.key, record.state.continues.as_ref()?))).collect();
    let mut repeats_at_most_once = false;
    for again in std::mem::take(&mut carried.again) {
        if let Some(&call) = calls.get(&again.key).filter(|_| again.may_continue) {
            repeats_at_most_once |= call.repeats_at_most_once;
            carried.continue_call(&again, Arc::clone(call));
        } else {
            let step = definition.workflow.step_at(again.key.step as usize);
            repeats_at_most_once |= step.is_some_and(|step| definition.is_at_most_once(&step.action));
        }
    }
    let batches = batches.into_iter().filter(|batch| carried.takes(batch)).cloned().collect();
    let parameters = (*head.parameters).clone();
    EndedCall { run, parameters, records: carried.records, batches, repeats_at_most_once }
}

/// Returns the steps of the section `steps` that are repeated; the value is true if an upstream step is repeated too.
/// `status_of` returns the status of a step.
pub fn repeated_steps(
    spec: &WorkflowSpec,
    status_of: impl Fn(u32) -> Option<StepStatus>,
    from: RetryFrom<'_>,
) -> BTreeMap<u32, bool> {
    let names: BTreeMap<&str, u32> =
        (0..).zip(&spec.steps).map(|(i, step)| (step.name.as_str(), i)).collect();
    let ended_well = |step: u32| matches!(status_of(step), Some(StepStatus::Succeeded | StepStatus::Skipped));
    let begins_at = |step: u32, name: &str| !ended_well(step) || from == RetryFrom::Step(name);
    let mut dependents: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for (step, spec) in (0..).zip(&spec.steps) {
        for need in spec.needs.iter().chain(spec.adders()).filter_map(|need| names.get(need.as_str())) {
            dependents.entry(*need).or_default().push(step);
        }
    }
    let mut again: BTreeMap<u32, bool> = BTreeMap::new();
    let mut open: Vec<u32> = Vec::new();
    for (step, spec) in (0..).zip(&spec.steps) {
        if begins_at(step, &spec.name) {
            again.insert(step, false);
            open.push(step);
        }
    }
    while let Some(step) = open.pop() {
        for &dependent in dependents.get(&step).into_iter().flatten() {
            let known = again.contains_key(&dependent);
            if again.insert(dependent, true) != Some(true) && !known {
                open.push(dependent);
            }
        }
    }
    again
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::WorkflowSpec;
    use crate::run::{StepCause, StepKey, StepState};
    use crate::spec::JobSpec;
    use crate::workflow::StepSpec;

    fn told(ends: &[(&str, &[&str], StepStatus)], from: RetryFrom<'_>) -> String {
        let steps = ends.iter().map(|(name, needs, _)| {
            StepSpec::job(*name, JobSpec::command(["true"])).needs(needs.iter().copied())
        });
        let mut spec = WorkflowSpec::new("w", steps.collect());
        spec.finally.push(StepSpec::job("clean", JobSpec::command(["true"])));
        let definition = Definition::of(spec);
        let row = |step: u32, status| {
            let key = StepKey { run: RunId::from_bits(1), step, item: None };
            StepRecord { key, state: StepState::new(status, StepCause::JobSucceeded) }
        };
        let mut records: Vec<_> = (0..).zip(ends).map(|(i, (.., status))| row(i, *status)).collect();
        records.push(row(u32::try_from(ends.len()).unwrap(), StepStatus::Succeeded));
        let carried = carried(&definition, &records, from);
        carried.records.iter().map(|record| ends[record.key.step as usize].0).collect::<Vec<_>>().join(" ")
    }

    const ENDS: &[(&str, &[&str], StepStatus)] = &[
        ("a", &[], StepStatus::Succeeded),
        ("b", &["a"], StepStatus::Failed),
        ("c", &["a"], StepStatus::Succeeded),
        ("after_b", &["b"], StepStatus::UpstreamFailed),
        ("cleanup", &["b", "c"], StepStatus::Succeeded),
        ("after_c", &["c"], StepStatus::Skipped),
    ];

    /// C2. A succeeded step is not repeated, unless an upstream step is.
    #[test]
    fn a_retry_repeats_failed_steps_and_their_downstream_steps() {
        assert_eq!(told(ENDS, RetryFrom::Failed), "a c after_c");
    }

    /// C2, D2. A failed call is reported. A call that never started still continues its ended run, and repeats
    /// nothing. A retry from the start repeats everything that started.
    #[test]
    fn repeated_calls_and_at_most_once_jobs_are_reported() {
        let mut pay = JobSpec::command(["true"]);
        pay.delivery = Delivery::AtMostOnce;
        let call =
            Action::Workflow(crate::workflow::Call { name: "inner".into(), parameters: BTreeMap::new() });
        let steps = vec![
            StepSpec::job("pay", pay),
            StepSpec::new("failed", call.clone()),
            StepSpec::new("waits", call),
            StepSpec::job("plain", JobSpec::command(["true"])),
        ];
        let definition = Definition::of(WorkflowSpec::new("w", steps));
        let record = |step, status, change: fn(&mut StepState)| {
            let mut state = StepState::new(status, StepCause::JobFailed);
            change(&mut state);
            StepRecord { key: StepKey { run: RunId::from_bits(1), step, item: None }, state }
        };
        let job = |state: &mut StepState| state.job = Some(crate::JobId::from_bits(7));
        let records = vec![
            record(0, StepStatus::Failed, job),
            record(1, StepStatus::Failed, |state| state.called = Some(RunId::from_bits(2))),
            record(2, StepStatus::Cancelled, |state| {
                let (parameters, records, batches, repeats_at_most_once) = Default::default();
                let run = RunId::from_bits(3);
                let call = EndedCall { run, parameters, records, batches, repeats_at_most_once };
                state.continues = Some(Arc::new(call));
            }),
            record(3, StepStatus::Failed, job),
        ];
        let again = |from| {
            let carried = carried(&definition, &records, from);
            carried.again.iter().map(|again| (again.key.step, again.may_continue)).collect::<Vec<_>>()
        };
        assert_eq!(again(RetryFrom::Failed), [(0, false), (1, true)]);
        assert_eq!(again(RetryFrom::Step("waits")), [(0, false), (1, true), (2, false)]);
        assert_eq!(again(RetryFrom::Start), [(0, false), (1, false), (2, false)]);
        let kept = carried(&definition, &records, RetryFrom::Failed).records;
        assert_eq!(kept.iter().map(|record| record.key.step).collect::<Vec<_>>(), [2]);
    }

    /// C2, D2. A retry repeats `on_failure` and `finally`, so their `at_most_once` jobs count as repeated.
    #[test]
    fn repeated_at_most_once_jobs_of_on_failure_and_finally_are_reported() {
        let once = |name| {
            let mut spec = JobSpec::command(["true"]);
            spec.delivery = Delivery::AtMostOnce;
            StepSpec::job(name, spec)
        };
        let mut spec = WorkflowSpec::new("w", vec![StepSpec::job("work", JobSpec::command(["false"]))]);
        spec.on_failure = vec![once("refund"), StepSpec::job("alert", JobSpec::command(["true"]))];
        spec.finally = vec![once("report"), once("skipped")];
        let definition = Definition::of(spec);
        let record = |step: u32, status, has_job: bool| {
            let mut state = StepState::new(status, StepCause::JobSucceeded);
            state.job = has_job.then(|| crate::JobId::from_bits(u128::from(step) + 1));
            StepRecord { key: StepKey { run: RunId::from_bits(1), step, item: None }, state }
        };
        let records = vec![
            record(0, StepStatus::Failed, true),
            record(1, StepStatus::Succeeded, true),
            record(2, StepStatus::Succeeded, true),
            record(3, StepStatus::Failed, true),
            record(4, StepStatus::Skipped, false),
        ];
        for from in [RetryFrom::Failed, RetryFrom::Step("work"), RetryFrom::Start] {
            let carried = carried(&definition, &records, from);
            let again: Vec<_> = carried.again.iter().map(|a| (a.key.step, a.work, a.may_continue)).collect();
            let job = |bits| Some(Work::Job(crate::JobId::from_bits(bits)));
            assert_eq!(again, [(1, job(2), false), (3, job(4), false)]);
            assert_eq!(carried.records, []);
        }
    }

    /// C2.
    #[test]
    fn a_retry_from_a_step_also_repeats_failed_steps() {
        assert_eq!(told(ENDS, RetryFrom::Step("c")), "a");
        assert_eq!(told(ENDS, RetryFrom::Step("a")), "");
    }
}
