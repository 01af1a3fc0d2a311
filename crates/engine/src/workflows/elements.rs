//! Mapped steps (task mapping): the elements start in order, end independently, and the step ends after
//! them.
//!
//! A list that follows from parameters and earlier steps is not stored; a rebuilt engine evaluates it again.
//! A running element is known by its job or called run, an ended one by its row; all others have not started.
//!
//! # Invariants
//! - An element starts at most once, unless a retry of the run resets it.
//! - `going + done <= total`, and `places` has `total` entries.
//! - A mapped step never ends while one of its elements is running.
//!
//! # Cost
//! A flush starts a bounded number of elements, however long the list is. An element takes 24 bytes.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::firing::Work;
use model::run::{
    Adder, Caller, ElementCounts, EndedCall, StepCause, StepKey, StepRecord, StepState, StepStatus,
};
use model::spec::Constraint;
use model::worker::WorkerStatus;
use model::{RunId, Timestamp, limits};
use serde_json::Value;

use super::growing::Growing;
use super::plan::{self, ForEachPlan};
use super::scope::{Element, RunScope, outcome_text};
use super::{Run, Step, StepDetails, index};
use crate::context::Context;
use crate::jobs::Jobs;
use crate::workers::placement::pin_to;
use crate::workflows::Workflows;

/// Elements of a step that has started, or that carries over results.
#[derive(Debug)]
pub(super) struct Elements {
    list: List,
    total: u32,
    /// All elements before this one have started.
    next: u32,
    /// State of each element, by its index.
    places: Vec<ElementState>,
    /// Number of running elements.
    running: u32,
    /// Number of ended elements.
    done: u32,
    succeeded: u32,
    failed: u32,
    /// Ended runs that calls of elements continue, by the index of the element.
    ended_calls: BTreeMap<u32, Arc<EndedCall>>,
    /// Artifacts that succeeded elements stored, by index; only of elements that reported them.
    stored: BTreeMap<u32, Arc<str>>,
    /// End time of the element that ended last.
    last_end: Option<Timestamp>,
}

#[derive(Debug)]
enum List {
    /// Not evaluated yet: after a restart, until it is needed for the first time.
    NotEvaluated,
    Whole(Arc<[Value]>),
    Growing(Box<Growing>),
}

impl List {
    fn values(&self) -> &[Value] {
        match self {
            Self::NotEvaluated => &[],
            Self::Whole(list) => list,
            Self::Growing(growing) => &growing.list,
        }
    }
}

#[derive(Debug, Clone, Default)]
enum ElementState {
    /// Not started.
    #[default]
    Pending,
    /// Running, as this job or run.
    Running(Work),
    Ended {
        status: StepStatus,
        output: Option<Arc<str>>,
    },
}

/// Returns the running jobs and called runs of a step.
pub(super) fn work_of(step: &Step) -> Vec<Work> {
    let Some(state) = step.state.as_deref().filter(|state| state.status == StepStatus::Running) else {
        return Vec::new();
    };
    match step.elements.as_deref() {
        Some(elements) => elements.running().map(|(_, work)| work).collect(),
        None => state.job.map(Work::Job).or(state.called.map(Work::Run)).into_iter().collect(),
    }
}

/// Converts a number of elements, or the index of one, to an index into a list.
fn count_of(number: u32) -> usize {
    number as usize
}

impl Elements {
    pub(super) fn new(total: u32) -> Self {
        let places = vec![ElementState::Pending; count_of(total)];
        Self {
            list: List::NotEvaluated,
            total,
            next: 0,
            places,
            running: 0,
            done: 0,
            succeeded: 0,
            failed: 0,
            ended_calls: BTreeMap::new(),
            stored: BTreeMap::new(),
            last_end: None,
        }
    }

    /// Creates the empty list of a step that tasks add elements to.
    pub(super) fn growing() -> Self {
        Self { list: List::Growing(Box::default()), ..Self::new(0) }
    }

    pub(super) fn as_growing(&self) -> Option<&Growing> {
        match &self.list {
            List::Growing(growing) => Some(growing),
            _ => None,
        }
    }

    /// Adds a batch of a task. Returns the index of its first element, and their number.
    pub(super) fn add(&mut self, by: Adder, name: &str, elements: Vec<Value>) -> (u32, u32) {
        let List::Growing(growing) = &mut self.list else { return (self.total, 0) };
        let place = growing.push(by, name, elements);
        self.total = growing.len();
        self.places.resize(count_of(self.total), ElementState::Pending);
        place
    }

    pub(super) fn tally(&self) -> ElementCounts {
        ElementCounts { succeeded: self.succeeded, failed: self.failed }
    }

    pub(super) fn total(&self) -> u32 {
        self.total
    }

    /// Returns whether the list contains a value.
    pub(super) fn has(&self, value: &Value) -> bool {
        self.list.values().contains(value)
    }

    /// Appends an element. Returns false if the list has reached its maximum length.
    pub(super) fn push(&mut self, value: Value) -> bool {
        let List::Whole(list) = &self.list else { return false };
        if list.len() >= limits::ITEMS_MAX {
            return false;
        }
        self.list = List::Whole(list.iter().cloned().chain([value]).collect());
        self.total += 1;
        self.places.push(ElementState::Pending);
        true
    }

    /// Returns the list as stored in the step's row; `None` if it is not evaluated yet.
    pub(super) fn as_json(&self) -> Option<Arc<str>> {
        let is_there = !matches!(self.list, List::NotEvaluated);
        is_there.then(|| Value::Array(self.list.values().to_vec()).to_string().into())
    }

    /// Returns the artifacts that succeeded elements stored.
    pub(super) fn stored(&self) -> &BTreeMap<u32, Arc<str>> {
        &self.stored
    }

    /// Records the artifacts that a succeeded element stored.
    pub(super) fn record_files(&mut self, item: u32, files: Option<Arc<str>>) {
        self.stored.extend(files.map(|files| (item, files)));
    }

    pub(super) fn record_end_time(&mut self, at: Option<Timestamp>) {
        self.last_end = self.last_end.max(at);
    }

    /// Makes the call of an element continue an ended run.
    pub(super) fn continue_call(&mut self, item: u32, call: Arc<EndedCall>) {
        self.ended_calls.insert(item, call);
    }

    pub(super) fn take_ended_call(&mut self, item: u32) -> Option<Arc<EndedCall>> {
        self.ended_calls.remove(&item)
    }

    /// Returns the running elements, in order.
    pub(super) fn running(&self) -> impl Iterator<Item = (u32, Work)> + '_ {
        let going = |(item, place): (u32, &ElementState)| match place {
            ElementState::Running(work) => Some((item, *work)),
            _ => None,
        };
        (0..).zip(&self.places).filter_map(going).take(count_of(self.running))
    }

    /// Returns whether there are elements that have not started.
    pub(super) fn has_waiting(&self) -> bool {
        self.running + self.done < self.total
    }

    pub(super) fn running_count(&self) -> u32 {
        self.running
    }

    /// Returns the job or called run of a running element.
    pub(super) fn work_of(&self, item: u32) -> Option<Work> {
        match self.places.get(count_of(item)) {
            Some(ElementState::Running(work)) => Some(*work),
            _ => None,
        }
    }

    /// Marks an element as running.
    pub(super) fn begin(&mut self, item: u32, work: Work) {
        if let Some(place @ ElementState::Pending) = self.places.get_mut(count_of(item)) {
            *place = ElementState::Running(work);
            self.running += 1;
            self.ended_calls.remove(&item);
        }
    }

    /// Counts an ended element. Returns false if it is not in the list, or had ended before.
    pub(super) fn count_end(&mut self, item: u32, status: StepStatus, output: Option<Arc<str>>) -> bool {
        match self.places.get_mut(count_of(item)) {
            None | Some(ElementState::Ended { .. }) => return false,
            Some(place) => {
                self.running -= u32::from(matches!(place, ElementState::Running(_)));
                *place = ElementState::Ended { status, output };
            }
        }
        self.done += 1;
        match status {
            StepStatus::Succeeded => self.succeeded += 1,
            StepStatus::Failed => self.failed += 1,
            _ => {}
        }
        true
    }

    /// Returns whether the next call of every element that ended without success continues an ended run, and
    /// starts no `at_most_once` job again.
    pub(super) fn continues_calls(&self) -> bool {
        (0..).zip(&self.places).all(|(item, place)| match place {
            ElementState::Ended { status, .. } if *status != StepStatus::Succeeded => {
                self.ended_calls.get(&item).is_some_and(|call| !call.repeats_at_most_once)
            }
            _ => true,
        })
    }

    /// Resets ended elements: all of them, or those that did not succeed. Returns their indexes, with the ended
    /// runs that their next calls continue: none if all are reset.
    pub(super) fn reset_ended(&mut self, all: bool) -> Vec<(u32, Option<Arc<EndedCall>>)> {
        if all {
            self.ended_calls.clear();
        }
        let mut again = Vec::new();
        for (item, place) in (0..).zip(&mut self.places) {
            let ended = matches!(place, ElementState::Ended { status, .. } if all || *status != StepStatus::Succeeded);
            if ended {
                *place = ElementState::Pending;
                self.stored.remove(&item);
                again.push((item, self.ended_calls.get(&item).cloned()));
            }
        }
        if all {
            self.succeeded = 0;
        }
        (self.next, self.failed, self.done) = (0, 0, self.succeeded);
        again
    }

    /// Returns the next element that has not started.
    fn next(&mut self) -> Option<u32> {
        let waits = |place: Option<&ElementState>| matches!(place, None | Some(ElementState::Pending));
        while self.next < self.total && !waits(self.places.get(count_of(self.next))) {
            self.next += 1;
        }
        (self.next < self.total).then_some(self.next)
    }

    /// Returns the outputs of all elements in order, with null for an element without output; `None` if they
    /// are too large.
    fn collected(&self) -> Option<Arc<str>> {
        let mut text = String::from("[");
        for (i, place) in self.places.iter().enumerate() {
            if i > 0 {
                text.push(',');
            }
            let output = match place {
                ElementState::Ended { status: StepStatus::Succeeded, output } => output.as_deref(),
                _ => None,
            };
            match output {
                Some(output) if serde_json::from_str::<&serde_json::value::RawValue>(output).is_ok() => {
                    text.push_str(output);
                }
                Some(output) => text.push_str(&Value::from(output).to_string()),
                None => text.push_str("null"),
            }
            if text.len() > limits::COLLECTED_BYTES_MAX {
                return None;
            }
        }
        text.push(']');
        Some(text.into())
    }
}

impl Workflows {
    /// Starts a mapped step and evaluates the list.
    pub(super) fn begin_elements(&mut self, cx: &mut Context, jobs: &mut Jobs, id: RunId, step: u32) {
        if self.runs.get(&id).is_some_and(|run| run.grows(step)) {
            return self.begin_growing(cx, jobs, id, step);
        }
        let list = match self.list_of(jobs, id, step) {
            Ok(list) => list,
            Err(reason) => {
                return self.end_step(
                    cx,
                    jobs,
                    id,
                    step,
                    (StepStatus::Failed, StepCause::BadReference),
                    StepDetails::message(reason),
                );
            }
        };
        let total = u32::try_from(list.len()).unwrap_or(u32::MAX);
        let Some(run) = self.runs.get_mut(&id) else { return };
        let is_decided_now = run.is_broadcast(step);
        let known = run.step_mut(step);
        // Elements carried over from an earlier run are already present.
        let carried = known.elements.take().filter(|elements| elements.total == total);
        let mut elements = carried.unwrap_or_else(|| Box::new(Elements::new(total)));
        let items = is_decided_now.then(|| Value::Array(list.to_vec()).to_string().into());
        elements.list = List::Whole(list);
        known.elements = Some(elements);
        let state = known
            .state
            .get_or_insert_with(|| Box::new(StepState::new(StepStatus::Pending, StepCause::UpstreamEnded)));
        (state.total, state.items) = (Some(total), items);
        if total == 0 {
            let also = StepDetails { output: Some("[]".into()), ..StepDetails::message("the list is empty") };
            return self.end_step(
                cx,
                jobs,
                id,
                step,
                (StepStatus::Succeeded, StepCause::ElementsSucceeded),
                also,
            );
        }
        self.mark_live(cx, id, step, StepStatus::Running, None);
        if is_decided_now {
            self.broadcasts.insert((id, step));
        }
        if let Some(run) = self.runs.get_mut(&id) {
            run.with_pending_elements.insert(step);
        }
        self.settle_elements(cx, jobs, id, step);
    }

    /// Starts a step that tasks add elements to, with the elements added so far.
    fn begin_growing(&mut self, cx: &mut Context, jobs: &mut Jobs, id: RunId, step: u32) {
        let Some(run) = self.runs.get_mut(&id) else { return };
        let known = run.step_mut(step);
        let elements = known.elements.get_or_insert_with(|| Box::new(Elements::growing()));
        let total = elements.total;
        let state = known
            .state
            .get_or_insert_with(|| Box::new(StepState::new(StepStatus::Pending, StepCause::UpstreamEnded)));
        state.total = Some(total);
        run.with_pending_elements.insert(step);
        self.mark_live(cx, id, step, StepStatus::Running, None);
        self.settle_elements(cx, jobs, id, step);
    }

    fn list_of(&self, jobs: &Jobs, id: RunId, step: u32) -> Result<Arc<[Value]>, String> {
        let gone = || "the run no longer exists".to_owned();
        let run = self.runs.get(&id).ok_or_else(gone)?;
        let kept = run.step(step).state.as_ref().and_then(|state| state.items.as_deref());
        if let Some(kept) = kept {
            return serde_json::from_str(kept).map_err(|error| format!("list: {error}"));
        }
        let each = run.plan.node(step).each.as_ref().ok_or_else(gone)?;
        let list: Arc<[Value]> = match &each.list {
            plan::List::Items(items) => return Ok(Arc::clone(items)),
            plan::List::Shards(count) => return Ok((0..*count).map(Value::from).collect()),
            plan::List::Workers(constraints) => return Ok(self.workers_with(jobs, constraints)),
            // The list is stored in the rows of its batches.
            plan::List::Added => return Err(gone()),
            plan::List::Expression(expression) => match expression.evaluate(&RunScope::of_step(id, run)) {
                Ok(Value::Array(list)) => list.into(),
                Ok(other) => return Err(format!("the value is {other}: expected a list")),
                Err(error) => return Err(format!("list: {error}")),
            },
        };
        if list.len() > limits::ITEMS_MAX {
            return Err(format!(
                "the list has {} elements: expected at most {}",
                list.len(),
                limits::ITEMS_MAX
            ));
        }
        let sizes = list.iter().map(|item| item.to_string().len());
        match sizes.enumerate().find(|(_, len)| *len > limits::ITEM_BYTES_MAX) {
            Some((i, len)) => Err(format!(
                "element {i} of the list has {len} bytes: expected at most {}",
                limits::ITEM_BYTES_MAX
            )),
            None => Ok(list),
        }
    }

    /// Returns the ids of all workers that are not lost and have these labels.
    fn workers_with(&self, jobs: &Jobs, constraints: &[Constraint]) -> Arc<[Value]> {
        let there = jobs.workers().filter(|worker| worker.record.status != WorkerStatus::Lost);
        let fits = there.filter(|worker| constraints.iter().all(|c| c.holds(&worker.record.labels)));
        fits.map(|worker| Value::String(worker.record.id.to_string())).collect()
    }

    /// Starts elements of every step of a run that has some left, as far as its limits allow.
    pub(super) fn start_elements(&mut self, cx: &mut Context, jobs: &mut Jobs, id: RunId, left: &mut usize) {
        while let Some(run) = self.runs.get(&id) {
            let (Some(&step), true) = (run.with_pending_elements.first(), run.begins_steps()) else { return };
            if *left == 0 || run.live >= run.plan.max_parallel() {
                return;
            }
            if !self.begin_element(cx, jobs, id, step, left)
                && let Some(run) = self.runs.get_mut(&id)
            {
                run.with_pending_elements.remove(&step);
            }
        }
    }

    /// Starts the next element of a step. Returns false if none may start now; the change that allows it
    /// marks the step again.
    fn begin_element(
        &mut self,
        cx: &mut Context,
        jobs: &mut Jobs,
        id: RunId,
        step: u32,
        left: &mut usize,
    ) -> bool {
        self.ensure_list(jobs, id, step);
        let Some(run) = self.runs.get_mut(&id) else { return false };
        let plan = Arc::clone(&run.plan);
        let Some(each) = plan.node(step).each.as_ref() else { return false };
        let known = run.step_mut(step);
        let ending = known.state.as_ref().is_none_or(|state| state.ending.is_some());
        let Some(elements) = known.elements.as_deref_mut() else { return false };
        let full = elements.running >= each.max_parallel;
        if ending || full || elements.failed > each.max_failed {
            return false;
        }
        let Some(item) = elements.next() else { return false };
        let value = elements.list.values().get(count_of(item)).cloned();
        let element = Element { index: item, total: elements.total, value: value.unwrap_or_default() };
        *left -= 1;
        let begun = if self.calls(id, step) {
            self.call(cx, jobs, Caller { run: id, step, element: Some(item) }, Some(&element)).map(Work::Run)
        } else {
            self.create_job(cx, jobs, id, step, Some(&element)).map(Work::Job)
        };
        let Some(run) = self.runs.get_mut(&id) else { return false };
        match begun {
            Ok(work) => {
                run.live += 1;
                if let Some(elements) = run.step_mut(step).elements.as_deref_mut() {
                    elements.begin(item, work);
                }
            }
            Err(reason) => {
                let (status, cause) = (StepStatus::Failed, StepCause::BadReference);
                self.end_element(cx, jobs, (id, step, item), (status, cause), StepDetails::message(reason));
            }
        }
        true
    }

    /// Evaluates the list again if that is needed for the first time after a restart.
    pub(super) fn ensure_list(&mut self, jobs: &Jobs, id: RunId, step: u32) {
        let run = self.runs.get(&id);
        let elements = run.and_then(|run| run.step(step).elements.as_deref());
        if elements.is_none_or(|elements| !matches!(elements.list, List::NotEvaluated)) {
            return;
        }
        let list = self.list_of(jobs, id, step).unwrap_or_else(|_| Arc::new([]));
        if let Some(elements) = self.elements_mut(id, step) {
            elements.list = List::Whole(list);
        }
    }

    pub(super) fn elements_mut(&mut self, id: RunId, step: u32) -> Option<&mut Elements> {
        self.runs.get_mut(&id)?.step_mut(step).elements.as_deref_mut()
    }

    /// Handles the end of an element and writes its row.
    pub(super) fn end_element(
        &mut self,
        cx: &mut Context,
        jobs: &mut Jobs,
        (id, step, item): (RunId, u32, u32),
        (status, cause): (StepStatus, StepCause),
        also: StepDetails,
    ) {
        let now = cx.now;
        let work = self.elements_mut(id, step).and_then(|elements| elements.work_of(item));
        let started_at = work.and_then(|work| self.started_at(jobs, work));
        let Some(run) = self.runs.get_mut(&id) else { return };
        let Some(elements) = run.step_mut(step).elements.as_deref_mut() else { return };
        if !elements.count_end(item, status, also.output.clone()) {
            return;
        }
        elements.record_files(item, also.files.clone().filter(|_| status == StepStatus::Succeeded));
        let ended_at = also.ended_at.unwrap_or(now);
        let ended_at = Some(ended_at.max(started_at.unwrap_or(ended_at)).min(now));
        elements.record_end_time(ended_at);
        run.live -= u32::from(work.is_some());
        let mut state = StepState::new(status, cause);
        state.started_at = started_at;
        match work {
            Some(Work::Job(job)) => state.job = Some(job),
            Some(Work::Run(called)) => state.called = Some(called),
            None => {}
        }
        (state.finished_at, state.output, state.message) = (ended_at, also.output, also.message);
        state.files = also.files;
        state.continues = also.continues;
        if let (Some(call), Some(elements)) = (&state.continues, self.elements_mut(id, step)) {
            elements.continue_call(item, Arc::clone(call));
        }
        let key = StepKey { run: id, step, item: Some(item) };
        self.write_element(StepRecord { key, state });
        // A slot is free for another element, or for another step.
        if let Some(run) = self.runs.get_mut(&id) {
            run.with_pending_elements.insert(step);
        }
        self.settle_elements(cx, jobs, id, step);
        self.mark_for_advance(id);
    }

    /// Returns when a job or called run first started.
    fn started_at(&self, jobs: &Jobs, work: Work) -> Option<Timestamp> {
        match work {
            Work::Job(job) => jobs.get(job)?.state.started_at,
            Work::Run(run) => self.runs.get(&run)?.state.started_at,
        }
    }

    /// Carries over an element of an earlier run: its result, or the ended run that its call continues.
    pub(super) fn carry_element(&mut self, record: StepRecord) {
        let StepKey { run: id, step, item } = record.key;
        let Some(run) = self.runs.get_mut(&id) else { return };
        let (Some(item), Some(total)) = (item, record.state.total) else { return };
        let grows = run.grows(step);
        let known = run.step_mut(step);
        let elements = match &mut known.elements {
            Some(elements) => elements,
            None if grows => return,
            none => none.insert(Box::new(Elements::new(total))),
        };
        if let Some(call) = &record.state.continues {
            elements.continue_call(item, Arc::clone(call));
            self.write_element(record);
        } else if elements.count_end(item, record.state.status, record.state.output.clone()) {
            elements.record_files(item, record.state.files.clone());
            self.write_element(record);
        }
    }

    /// Ends a mapped step once its outcome is decided and none of its elements is running.
    pub(super) fn settle_elements(&mut self, cx: &mut Context, jobs: &mut Jobs, id: RunId, step: u32) {
        let Some(run) = self.runs.get(&id) else { return };
        let known = run.step(step);
        let Some(state) = known.state.as_deref().filter(|state| state.status == StepStatus::Running) else {
            return;
        };
        let (Some(each), Some(elements)) = (run.plan.node(step).each.as_ref(), known.elements.as_deref())
        else {
            return;
        };
        let idle = elements.running == 0;
        if let Some((status, cause)) = state.ending {
            if idle {
                let output = (status == StepStatus::Succeeded).then(|| elements.collected()).flatten();
                let files = (status == StepStatus::Succeeded).then(|| elements.collected_files()).flatten();
                let also = StepDetails { output, files, ..StepDetails::message(told(elements)) };
                self.end_step(cx, jobs, id, step, (status, cause), also);
            }
            return;
        }
        let enough = each.enough.is_some_and(|enough| elements.succeeded >= enough);
        if enough && !idle {
            return self.stop_step(cx, jobs, id, step, (StepStatus::Succeeded, StepCause::ElementsSucceeded));
        }
        let too_many = elements.failed > each.max_failed;
        let all = elements.done == elements.total && run.is_whole(step);
        if !idle || !(too_many || enough || all) {
            return;
        }
        let short = each.enough.is_some_and(|enough| elements.succeeded < enough);
        let unfinished = run.lacks_elements(step);
        let good = enough || !(too_many || short || unfinished);
        let output = good.then(|| elements.collected()).flatten();
        let files = good.then(|| elements.collected_files()).flatten();
        let message = match run.missing_adder(step).filter(|_| unfinished && !(too_many || short)) {
            Some(adder) => {
                let what = outcome_text(run.step(adder).status());
                format!("step `{}`, which adds to the list, {what}", run.plan.node(adder).name)
            }
            None => told(elements),
        };
        // A growing list is complete once its last adder has ended.
        let ended_at = elements.last_end.filter(|_| !run.grows(step));
        let also = StepDetails { output, files, ended_at, ..StepDetails::message(message) };
        let (status, cause) = match good {
            true => (StepStatus::Succeeded, StepCause::ElementsSucceeded),
            false if unfinished && !(too_many || short) => (StepStatus::Failed, StepCause::ListUnfinished),
            false => (StepStatus::Failed, StepCause::ElementsFailed),
        };
        self.end_step(cx, jobs, id, step, (status, cause), also);
    }

    /// Returns the constraint that binds the job of an element to its worker.
    pub(super) fn pinned(element: &Element) -> Constraint {
        pin_to(element.value.as_str().map(str::to_owned))
    }
}

fn told(elements: &Elements) -> String {
    let Elements { succeeded, failed, total, .. } = elements;
    format!("{succeeded} of {total} elements succeeded, {failed} failed")
}

impl Run {
    /// Returns whether the step has one element per worker, each bound to its worker.
    pub(super) fn is_broadcast(&self, step: u32) -> bool {
        matches!(self.plan.nodes[index(step)].each, Some(ForEachPlan { list: plan::List::Workers(_), .. }))
    }
}
