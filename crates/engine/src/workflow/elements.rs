//! A step goes over a list: its elements begin in order, each ends by itself, and the step ends with them.
//!
//! The list is not stored where it follows from parameters and earlier steps: it is evaluated again by a
//! rebuilt engine. An element that goes on is known by its job or called run, one that ended by its row; so
//! the rest begin from the first that is neither. However long the list is, a flush begins a bounded number.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::firing::Work;
use model::run::{Adder, Caller, EndedCall, StepCause, StepKey, StepRecord, StepState, StepStatus, Tally};
use model::spec::{Constraint, Operator};
use model::worker::WorkerStatus;
use model::{RunId, Timestamp, limits};
use serde_json::Value;

use super::added::Growing;
use super::files::past;
use super::plan::{self, Each};
use super::scope::{Element, RunScope};
use super::{Also, Run, Step, index};
use crate::engine::Engine;
use crate::placement::WORKER_LABEL;

/// The elements of a step that goes on.
#[derive(Debug)]
pub(super) struct Elements {
    list: List,
    total: u32,
    /// Every element before this one began.
    next: u32,
    /// Where each stands, by its number.
    places: Vec<Place>,
    /// How many go on.
    going: u32,
    /// How many ended.
    done: u32,
    succeeded: u32,
    failed: u32,
    /// The ended runs that the calls of elements continue, by the numbers of those.
    ended_calls: BTreeMap<u32, Arc<EndedCall>>,
    /// What those that succeeded stored, by their numbers; only of those that told.
    stored: BTreeMap<u32, Arc<str>>,
    /// When the last of those that ended did.
    last_end: Option<Timestamp>,
}

/// The values of the elements.
#[derive(Debug)]
enum List {
    /// Not there until it is needed for the first time after a restart.
    Later,
    Whole(Arc<[Value]>),
    Growing(Box<Growing>),
}

impl List {
    fn values(&self) -> &[Value] {
        match self {
            Self::Later => &[],
            Self::Whole(list) => list,
            Self::Growing(growing) => &growing.list,
        }
    }
}

/// Where an element stands.
#[derive(Debug, Clone, Default)]
enum Place {
    /// It did not begin.
    #[default]
    Waits,
    /// By this job or run.
    Goes(Work),
    Ended {
        status: StepStatus,
        output: Option<Arc<str>>,
    },
}

/// What goes on of a step.
pub(super) fn work_of(step: &Step) -> Vec<Work> {
    let Some(state) = step.state.as_deref().filter(|state| state.status == StepStatus::Running) else {
        return Vec::new();
    };
    match step.elements.as_deref() {
        Some(elements) => elements.going().map(|(_, work)| work).collect(),
        None => state.job.map(Work::Job).or(state.called.map(Work::Run)).into_iter().collect(),
    }
}

/// A number of elements, or of one of them, as a place in a list.
fn count_of(number: u32) -> usize {
    number as usize
}

impl Elements {
    pub(super) fn new(total: u32) -> Self {
        let places = vec![Place::Waits; count_of(total)];
        Self {
            list: List::Later,
            total,
            next: 0,
            places,
            going: 0,
            done: 0,
            succeeded: 0,
            failed: 0,
            ended_calls: BTreeMap::new(),
            stored: BTreeMap::new(),
            last_end: None,
        }
    }

    /// None yet, of a step that others add to.
    pub(super) fn growing() -> Self {
        Self { list: List::Growing(Box::default()), ..Self::new(0) }
    }

    pub(super) fn as_growing(&self) -> Option<&Growing> {
        match &self.list {
            List::Growing(growing) => Some(growing),
            _ => None,
        }
    }

    /// Adds what a task added. Returns the number of the first of it, and how many there are.
    pub(super) fn add(&mut self, by: Adder, name: &str, elements: Vec<Value>) -> (u32, u32) {
        let List::Growing(growing) = &mut self.list else { return (self.total, 0) };
        let place = growing.push(by, name, elements);
        self.total = growing.len();
        self.places.resize(count_of(self.total), Place::Waits);
        place
    }

    pub(super) fn tally(&self) -> Tally {
        Tally { succeeded: self.succeeded, failed: self.failed }
    }

    pub(super) fn total(&self) -> u32 {
        self.total
    }

    /// Whether the list has this.
    pub(super) fn has(&self, value: &Value) -> bool {
        self.list.values().contains(value)
    }

    /// Makes the list one longer. False if it is as long as it may be.
    pub(super) fn push(&mut self, value: Value) -> bool {
        let List::Whole(list) = &self.list else { return false };
        if list.len() >= limits::ITEMS_MAX {
            return false;
        }
        self.list = List::Whole(list.iter().cloned().chain([value]).collect());
        self.total += 1;
        self.places.push(Place::Waits);
        true
    }

    /// The list, as it is kept where it follows from nothing else.
    pub(super) fn as_json(&self) -> Option<Arc<str>> {
        let is_there = !matches!(self.list, List::Later);
        is_there.then(|| Value::Array(self.list.values().to_vec()).to_string().into())
    }

    /// What the elements stored that succeeded.
    pub(super) fn stored(&self) -> &BTreeMap<u32, Arc<str>> {
        &self.stored
    }

    /// Notes what an element stored that succeeded.
    pub(super) fn note_files(&mut self, item: u32, files: Option<Arc<str>>) {
        self.stored.extend(files.map(|files| (item, files)));
    }

    /// Notes when an element ended.
    pub(super) fn note_end(&mut self, at: Option<Timestamp>) {
        self.last_end = self.last_end.max(at);
    }

    /// Lets the call of an element continue an ended run.
    pub(super) fn continue_call(&mut self, item: u32, call: Arc<EndedCall>) {
        self.ended_calls.insert(item, call);
    }

    pub(super) fn take_ended_call(&mut self, item: u32) -> Option<Arc<EndedCall>> {
        self.ended_calls.remove(&item)
    }

    /// The elements that go on, in order.
    pub(super) fn going(&self) -> impl Iterator<Item = (u32, Work)> + '_ {
        let going = |(item, place): (u32, &Place)| match place {
            Place::Goes(work) => Some((item, *work)),
            _ => None,
        };
        (0..).zip(&self.places).filter_map(going).take(count_of(self.going))
    }

    /// Whether there are elements that have not begun.
    pub(super) fn has_waiting(&self) -> bool {
        self.going + self.done < self.total
    }

    /// How many elements go on.
    pub(super) fn count_going(&self) -> u32 {
        self.going
    }

    /// What an element goes on by.
    pub(super) fn work_of(&self, item: u32) -> Option<Work> {
        match self.places.get(count_of(item)) {
            Some(Place::Goes(work)) => Some(*work),
            _ => None,
        }
    }

    /// An element that waits goes on from now on.
    pub(super) fn begin(&mut self, item: u32, work: Work) {
        if let Some(place @ Place::Waits) = self.places.get_mut(count_of(item)) {
            *place = Place::Goes(work);
            self.going += 1;
            self.ended_calls.remove(&item);
        }
    }

    /// Counts an element that ended; one that is not in the list, or ended before, is not counted.
    pub(super) fn note(&mut self, item: u32, status: StepStatus, output: Option<Arc<str>>) -> bool {
        match self.places.get_mut(count_of(item)) {
            None | Some(Place::Ended { .. }) => return false,
            Some(place) => {
                self.going -= u32::from(matches!(place, Place::Goes(_)));
                *place = Place::Ended { status, output };
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

    /// Lets elements that ended wait again: all of them, or those that did not end well. Returns which.
    pub(super) fn wait_again(&mut self, all: bool) -> Vec<u32> {
        let mut again = Vec::new();
        for (item, place) in (0..).zip(&mut self.places) {
            let ended =
                matches!(place, Place::Ended { status, .. } if all || *status != StepStatus::Succeeded);
            if ended {
                *place = Place::Waits;
                self.stored.remove(&item);
                again.push(item);
            }
        }
        if all {
            self.succeeded = 0;
        }
        (self.next, self.failed, self.done) = (0, 0, self.succeeded);
        again
    }

    /// The next element that has not begun.
    fn next(&mut self) -> Option<u32> {
        let waits = |place: Option<&Place>| matches!(place, None | Some(Place::Waits));
        while self.next < self.total && !waits(self.places.get(count_of(self.next))) {
            self.next += 1;
        }
        (self.next < self.total).then_some(self.next)
    }

    /// What its elements gave, in order, with null where one gave nothing; nothing if that is too large.
    fn collected(&self) -> Option<Arc<str>> {
        let mut text = String::from("[");
        for (i, place) in self.places.iter().enumerate() {
            if i > 0 {
                text.push(',');
            }
            let output = match place {
                Place::Ended { status: StepStatus::Succeeded, output } => output.as_deref(),
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

impl Engine {
    /// A step over a list begins: the list is there from now on.
    pub(super) fn begin_elements(&mut self, id: RunId, step: u32) {
        if self.workflows.runs.get(&id).is_some_and(|run| run.grows(step)) {
            return self.begin_growing(id, step);
        }
        let list = match self.list_of(id, step) {
            Ok(list) => list,
            Err(reason) => {
                return self.end_step(
                    id,
                    step,
                    StepStatus::Failed,
                    StepCause::BadReference,
                    Also::message(reason),
                );
            }
        };
        let total = u32::try_from(list.len()).unwrap_or(u32::MAX);
        let Some(run) = self.workflows.runs.get_mut(&id) else { return };
        let is_decided_now = run.is_broadcast(step);
        let known = run.step_mut(step);
        // Elements that an earlier run did are here already.
        let carried = known.elements.take().filter(|elements| elements.total == total);
        let mut elements = carried.unwrap_or_else(|| Box::new(Elements::new(total)));
        let items = is_decided_now.then(|| Value::Array(list.to_vec()).to_string().into());
        elements.list = List::Whole(list);
        known.elements = Some(elements);
        let state = known
            .state
            .get_or_insert_with(|| Box::new(StepState::new(StepStatus::Pending, StepCause::NeedsOver)));
        (state.total, state.items) = (Some(total), items);
        if total == 0 {
            let also = Also { output: Some("[]".into()), ..Also::message("the list is empty") };
            return self.end_step(id, step, StepStatus::Succeeded, StepCause::ItemsOver, also);
        }
        self.goes_on(id, step, StepStatus::Running, None);
        if is_decided_now {
            self.workflows.broadcasts.insert((id, step));
        }
        if let Some(run) = self.workflows.runs.get_mut(&id) {
            run.filling.insert(step);
        }
        self.settle_elements(id, step);
    }

    /// A step that others add to begins, with what they added so far.
    fn begin_growing(&mut self, id: RunId, step: u32) {
        let Some(run) = self.workflows.runs.get_mut(&id) else { return };
        let known = run.step_mut(step);
        let elements = known.elements.get_or_insert_with(|| Box::new(Elements::growing()));
        let total = elements.total;
        let state = known
            .state
            .get_or_insert_with(|| Box::new(StepState::new(StepStatus::Pending, StepCause::NeedsOver)));
        state.total = Some(total);
        run.filling.insert(step);
        self.goes_on(id, step, StepStatus::Running, None);
        self.settle_elements(id, step);
    }

    /// The list that a step goes over.
    fn list_of(&self, id: RunId, step: u32) -> Result<Arc<[Value]>, String> {
        let gone = || "the run no longer exists".to_owned();
        let run = self.workflows.runs.get(&id).ok_or_else(gone)?;
        let kept = run.step(step).state.as_ref().and_then(|state| state.items.as_deref());
        if let Some(kept) = kept {
            return serde_json::from_str(kept).map_err(|error| format!("list: {error}"));
        }
        let each = run.plan.node(step).each.as_ref().ok_or_else(gone)?;
        let list: Arc<[Value]> = match &each.list {
            plan::List::Items(items) => return Ok(Arc::clone(items)),
            plan::List::Shards(count) => return Ok((0..*count).map(Value::from).collect()),
            plan::List::Workers(constraints) => return Ok(self.workers_with(constraints)),
            // It is in the rows of its batches.
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

    /// Every worker that is there and has these labels, by its id.
    fn workers_with(&self, constraints: &[Constraint]) -> Arc<[Value]> {
        let there = self.workers.values().filter(|worker| worker.record.status != WorkerStatus::Lost);
        let fits = there.filter(|worker| constraints.iter().all(|c| c.holds(&worker.record.labels)));
        fits.map(|worker| Value::String(worker.record.id.to_string())).collect()
    }

    /// Begins elements of every step of a run that has some left, as far as its limits let it.
    pub(super) fn fill_elements(&mut self, id: RunId, left: &mut usize) {
        while let Some(run) = self.workflows.runs.get(&id) {
            let (Some(&step), true) = (run.filling.first(), run.begins_steps()) else { return };
            if *left == 0 || run.live >= run.plan.max_parallel() {
                return;
            }
            if !self.begin_element(id, step, left)
                && let Some(run) = self.workflows.runs.get_mut(&id)
            {
                run.filling.remove(&step);
            }
        }
    }

    /// Begins the next element of a step. False if none may begin now; whoever changes that lets the
    /// step be filled again.
    fn begin_element(&mut self, id: RunId, step: u32, left: &mut usize) -> bool {
        self.ensure_list(id, step);
        let Some(run) = self.workflows.runs.get_mut(&id) else { return false };
        let plan = Arc::clone(&run.plan);
        let Some(each) = plan.node(step).each.as_ref() else { return false };
        let known = run.step_mut(step);
        let ending = known.state.as_ref().is_none_or(|state| state.ending.is_some());
        let Some(elements) = known.elements.as_deref_mut() else { return false };
        let full = elements.going >= each.max_parallel;
        if ending || full || elements.failed > each.max_failed {
            return false;
        }
        let Some(item) = elements.next() else { return false };
        let value = elements.list.values().get(count_of(item)).cloned();
        let element = Element { index: item, total: elements.total, value: value.unwrap_or_default() };
        *left -= 1;
        let begun = if self.calls(id, step) {
            self.call(Caller { run: id, step, item: Some(item) }, Some(&element)).map(Work::Run)
        } else {
            self.create_job(id, step, Some(&element)).map(Work::Job)
        };
        let Some(run) = self.workflows.runs.get_mut(&id) else { return false };
        match begun {
            Ok(work) => {
                run.live += 1;
                if let Some(elements) = run.step_mut(step).elements.as_deref_mut() {
                    elements.begin(item, work);
                }
            }
            Err(reason) => {
                let (status, cause) = (StepStatus::Failed, StepCause::BadReference);
                self.end_element(id, step, item, status, cause, Also::message(reason));
            }
        }
        true
    }

    /// After a restart the list is evaluated again when it is needed for the first time.
    pub(super) fn ensure_list(&mut self, id: RunId, step: u32) {
        let run = self.workflows.runs.get(&id);
        let elements = run.and_then(|run| run.step(step).elements.as_deref());
        if elements.is_none_or(|elements| !matches!(elements.list, List::Later)) {
            return;
        }
        let list = self.list_of(id, step).unwrap_or_else(|_| Arc::new([]));
        if let Some(elements) = self.elements_mut(id, step) {
            elements.list = List::Whole(list);
        }
    }

    pub(super) fn elements_mut(&mut self, id: RunId, step: u32) -> Option<&mut Elements> {
        self.workflows.runs.get_mut(&id)?.step_mut(step).elements.as_deref_mut()
    }

    /// An element ended. Its row is written once, here.
    pub(super) fn end_element(
        &mut self,
        id: RunId,
        step: u32,
        item: u32,
        status: StepStatus,
        cause: StepCause,
        also: Also,
    ) {
        let now = self.now;
        let work = self.elements_mut(id, step).and_then(|elements| elements.work_of(item));
        let started_at = work.and_then(|work| self.started_at(work));
        let Some(run) = self.workflows.runs.get_mut(&id) else { return };
        let Some(elements) = run.step_mut(step).elements.as_deref_mut() else { return };
        if !elements.note(item, status, also.output.clone()) {
            return;
        }
        elements.note_files(item, also.files.clone().filter(|_| status == StepStatus::Succeeded));
        let ended_at = also.ended_at.unwrap_or(now);
        let ended_at = Some(ended_at.max(started_at.unwrap_or(ended_at)).min(now));
        elements.note_end(ended_at);
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
        let key = StepKey { run: id, step, item: Some(item) };
        self.workflows.ended_elements.push(StepRecord { key, state });
        // A slot is free: for another element, and for other steps.
        if let Some(run) = self.workflows.runs.get_mut(&id) {
            run.filling.insert(step);
        }
        self.settle_elements(id, step);
        self.stir(id);
    }

    /// When a job or a called run started first.
    fn started_at(&self, work: Work) -> Option<Timestamp> {
        match work {
            Work::Job(job) => self.jobs.get(&job)?.state.started_at,
            Work::Run(run) => self.workflows.runs.get(&run)?.state.started_at,
        }
    }

    /// An element that an earlier run did, or whose call continues a run that an earlier one called.
    pub(super) fn carry_element(&mut self, record: StepRecord) {
        let StepKey { run: id, step, item } = record.key;
        let Some(run) = self.workflows.runs.get_mut(&id) else { return };
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
            self.workflows.ended_elements.push(record);
        } else if elements.note(item, record.state.status, record.state.output.clone()) {
            elements.note_files(item, record.state.files.clone());
            self.workflows.ended_elements.push(record);
        }
    }

    /// Ends a step over a list once its elements decided it, and nothing of them goes on.
    pub(super) fn settle_elements(&mut self, id: RunId, step: u32) {
        let Some(run) = self.workflows.runs.get(&id) else { return };
        let known = run.step(step);
        let Some(state) = known.state.as_deref().filter(|state| state.status == StepStatus::Running) else {
            return;
        };
        let (Some(each), Some(elements)) = (run.plan.node(step).each.as_ref(), known.elements.as_deref())
        else {
            return;
        };
        let idle = elements.going == 0;
        if let Some((status, cause)) = state.ending {
            if idle {
                let output = (status == StepStatus::Succeeded).then(|| elements.collected()).flatten();
                let files = (status == StepStatus::Succeeded).then(|| elements.collected_files()).flatten();
                let also = Also { message: Some(told(elements).into()), output, files, ended_at: None };
                self.end_step(id, step, status, cause, also);
            }
            return;
        }
        let enough = each.enough.is_some_and(|enough| elements.succeeded >= enough);
        if enough && !idle {
            return self.stop_step(id, step, (StepStatus::Succeeded, StepCause::ItemsOver));
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
                let what = past(run.step(adder).status());
                format!("step `{}`, which adds to the list, {what}", run.plan.node(adder).name)
            }
            None => told(elements),
        };
        // A list that grows is over once its last adder is.
        let ended_at = elements.last_end.filter(|_| !run.grows(step));
        let also = Also { message: Some(message.into()), output, files, ended_at };
        let (status, cause) = match good {
            true => (StepStatus::Succeeded, StepCause::ItemsOver),
            false if unfinished && !(too_many || short) => (StepStatus::Failed, StepCause::ListUnfinished),
            false => (StepStatus::Failed, StepCause::ItemsFailed),
        };
        self.end_step(id, step, status, cause, also);
    }

    /// What keeps the job of an element on its own worker.
    pub(super) fn pinned(element: &Element) -> Constraint {
        let values = element.value.as_str().map(str::to_owned).into_iter().collect();
        Constraint { label: WORKER_LABEL.to_owned(), operator: Operator::In, values }
    }
}

fn told(elements: &Elements) -> String {
    let Elements { succeeded, failed, total, .. } = elements;
    format!("{succeeded} of {total} elements succeeded, {failed} failed")
}

impl Run {
    /// Whether the elements of a step each run on their own worker.
    pub(super) fn is_broadcast(&self, step: u32) -> bool {
        matches!(self.plan.nodes[index(step)].each, Some(Each { list: plan::List::Workers(_), .. }))
    }
}
