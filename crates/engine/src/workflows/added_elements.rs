//! Elements that running tasks add to a step of their run, in batches.
//!
//! A step whose list is `added_by` other steps starts with the existing elements and processes further ones
//! while those steps are running. Tasks of its own elements may add elements as well. The list is complete
//! once all adding steps have ended, and the step ends after that. Each batch has its own row, so adding
//! costs O(batch), however long the list is.
//!
//! A batch belongs to the step or element whose task named it. If the next execution of that task adds a
//! batch with the same name, nothing is added. So elements that a task added before it failed are neither
//! lost nor processed twice.

use std::sync::Arc;

use model::run::{Adder, BatchKey, ElementBatch, StepKey, StepStatus};
use model::{JobId, Refusal, RunId, limits};
use serde_json::Value;

use super::elements::Elements;
use super::growing::Growing;
use super::plan::{ForEachPlan, List};
use super::{Run, index};
use crate::context::Context;
use crate::jobs::Jobs;
use crate::output::{Added, Reply};
use crate::workflows::Workflows;

impl Run {
    /// Returns whether tasks add the elements of a step.
    pub(super) fn grows(&self, step: u32) -> bool {
        matches!(self.plan.nodes[index(step)].each, Some(ForEachPlan { list: List::Added, .. }))
    }

    /// Returns whether the list of a step is complete, apart from its own elements.
    pub(super) fn is_whole(&self, step: u32) -> bool {
        self.plan.node(step).adders.iter().all(|&adder| self.step(adder).status().is_final())
    }

    /// Returns whether a step that should have added elements failed, so that some may be missing.
    pub(super) fn lacks_elements(&self, step: u32) -> bool {
        self.missing_adder(step).is_some()
    }

    /// Returns the first step that should have added elements and failed.
    pub(super) fn missing_adder(&self, step: u32) -> Option<u32> {
        self.plan.node(step).adders.iter().copied().find(|&adder| self.counts_as_failed(adder))
    }

    /// Returns the elements of a growing step, which may not have started yet.
    fn growing(&mut self, step: u32) -> &mut Elements {
        self.step_mut(step).elements.get_or_insert_with(|| Box::new(Elements::growing()))
    }
}

impl Workflows {
    /// Adds elements on behalf of the task of a job: to the named step, or without a name to the only step
    /// that it may add to.
    pub(crate) fn add_elements(
        &mut self,
        cx: &Context,
        jobs: &Jobs,
        job: JobId,
        name: Option<&str>,
        batch: &str,
        elements: Vec<Value>,
    ) -> Result<Reply, Refusal> {
        let now = cx.now;
        let key = jobs.get(job).and_then(|job| job.step.as_ref()).map(|origin| origin.key());
        let in_no_run = || Refusal::ElementsNotAccepted { step: name.map(Into::into), allowed: Vec::new() };
        let StepKey { run: id, step: own, item } = key.ok_or_else(in_no_run)?;
        let run = self.runs.get_mut(&id).ok_or_else(in_no_run)?;
        let step = adds_to(run, own, name)?;
        let shown = Arc::clone(&run.plan.node(step).name);
        let by = Adder { step: own, item };
        let known = run.step(step);
        let growing = known.elements.as_deref().and_then(Elements::as_growing);
        let place = growing.and_then(|growing| growing.batches().get(&(by, Box::from(batch))).copied());
        if let Some((first, count)) = place {
            let total = growing.map_or(0, Growing::len);
            return Ok(Reply::ElementsAdded(Added { step: shown, first, count, total, new: false }));
        }
        let state = known.state.as_deref();
        if known.status().is_final() || state.is_some_and(|state| state.ending.is_some()) {
            return Err(Refusal::StepEnded { run: id, step: shown.as_ref().into(), status: known.status() });
        }
        let total = growing.map_or(0, |growing| growing.list.len());
        if total + elements.len() > limits::ITEMS_MAX {
            let most = limits::ITEMS_MAX;
            return Err(Refusal::ElementLimit { run: id, step: shown.as_ref().into(), limit: most });
        }
        let text = serde_json::to_string(&elements).expect("values are written as JSON");
        let (first, count) = run.growing(step).add(by, batch, elements);
        let total = run.growing(step).total();
        let is_running = run.step(step).status() == StepStatus::Running;
        if is_running {
            run.with_pending_elements.insert(step);
            run.step_mut(step).state.iter_mut().for_each(|state| state.total = Some(total));
        }
        self.write_batch(ElementBatch {
            key: BatchKey { run: id, step, first },
            by,
            name: batch.into(),
            count,
            elements: text.into(),
            added_at: now,
        });
        if is_running {
            self.touch_step(id, step);
            self.mark_for_advance(id);
        }
        Ok(Reply::ElementsAdded(Added { step: shown, first, count, total, new: true }))
    }

    /// Restores a batch. The batches of a step come by position, and before the rows of steps.
    ///
    /// # Errors
    /// The contradiction with the run.
    pub(crate) fn restore_batch(&mut self, batch: &ElementBatch) -> Result<(), String> {
        let BatchKey { run: id, step, .. } = batch.key;
        let run = self.runs.get_mut(&id).ok_or("its run is not live")?;
        run.keep_restored(None, Some(batch));
        take_batch(run, step, batch)
    }

    /// Carries over a batch of the retried run; it is appended to the batches carried over before.
    pub(super) fn carry_batch(&mut self, id: RunId, batch: &ElementBatch) {
        let Some(run) = self.runs.get_mut(&id) else { return };
        let step = batch.key.step;
        // Batches of steps that this run does not have are ignored.
        if index(step) >= run.steps.len() || !run.grows(step) {
            return;
        }
        let key = BatchKey { run: id, step, first: run.growing(step).total() };
        let batch = ElementBatch { key, ..batch.clone() };
        if take_batch(run, step, &batch).is_ok() {
            self.write_batch(batch);
        }
    }

    /// Ends the steps that only waited for further elements of this one.
    pub(super) fn settle_receiving_steps(&mut self, cx: &mut Context, jobs: &mut Jobs, id: RunId, step: u32) {
        let Some(run) = self.runs.get(&id) else { return };
        let plan = Arc::clone(&run.plan);
        for &filled in plan.node(step).adds_elements_to.iter().filter(|&&filled| filled != step) {
            self.settle_elements(cx, jobs, id, filled);
        }
    }
}

/// Adds a batch at the position in its row.
fn take_batch(run: &mut Run, step: u32, batch: &ElementBatch) -> Result<(), String> {
    if index(step) >= run.steps.len() || !run.grows(step) {
        return Err("nothing can be added to its step".into());
    }
    let elements: Vec<Value> =
        serde_json::from_str(&batch.elements).map_err(|error| format!("its elements: {error}"))?;
    let has = run.growing(step).total();
    if has != batch.key.first || u32::try_from(elements.len()) != Ok(batch.count) {
        let (first, count) = (batch.key.first, batch.count);
        return Err(format!("{count} elements from {first}, but the step has {has} before them"));
    }
    run.growing(step).add(batch.by, &batch.name, elements);
    Ok(())
}

/// Returns the step that a task of step `own` adds to.
fn adds_to(run: &Run, own: u32, name: Option<&str>) -> Result<u32, Refusal> {
    let fills = &run.plan.node(own).adds_elements_to;
    let named = name.and_then(|name| run.plan.place(name)).filter(|step| fills.contains(step));
    match (named, name, &**fills) {
        (Some(step), ..) | (None, None, &[step]) => Ok(step),
        _ => Err(Refusal::ElementsNotAccepted {
            step: name.map(Into::into),
            allowed: fills.iter().map(|&step| Arc::clone(&run.plan.node(step).name)).collect(),
        }),
    }
}
