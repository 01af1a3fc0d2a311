//! Ended called runs that an automatic retry of a calling run continues.
//!
//! ```text
//! called run fails ──> its rows ──> ended_call ──> row of the calling step ── retry ──> next called run
//! ```
//!
//! A manual retry reads the rows of the called run from the store. The engine reads nothing from the store, so it
//! keeps the rows of a called run until the run ends, as long as a calling run may be retried. Both kinds of retry
//! take over the same rows ([`model::run::carried`]).
//!
//! # Invariants
//! - A called run has [`KeptRows`] if one of its callers may be retried; they equal its rows in the store.
//!
//! # Cost
//! One row for each ended element of a called run; O(n log n) in its rows when it ends without success.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::RunId;
use model::run::{BatchKey, ElementBatch, EndedCall, RunCause, StepKey, StepRecord, StepState, ended_call};
use model::workflow::Section;

use super::{Run, Workflows};

/// Most bytes that a next call takes over, because they are in the row of the calling step. A larger run is called again
/// from its first step.
const BYTES_MAX: usize = 8 << 20;

/// Rows of a called run that its next call may take over; the rows of its steps are in [`Run`].
#[derive(Debug, Default, PartialEq)]
pub(super) struct KeptRows {
    /// Rows of elements, by step and index.
    elements: BTreeMap<(u32, u32), StepState>,
    batches: BTreeMap<BatchKey, ElementBatch>,
}

impl KeptRows {
    fn insert(&mut self, record: &StepRecord) {
        let StepKey { step, item: Some(item), .. } = record.key else { return };
        self.elements.insert((step, item), record.state.clone());
    }
}

impl Run {
    /// Keeps rows that are about to be restored; [`Workflows::keep_rows`] decides later whether they are needed.
    pub(super) fn keep_restored(&mut self, element: Option<&StepRecord>, batch: Option<&ElementBatch>) {
        if self.head.caller.is_some() {
            let kept = self.kept.get_or_insert_default();
            element.into_iter().for_each(|record| kept.insert(record));
            kept.batches.extend(batch.map(|batch| (batch.key, batch.clone())));
        }
    }
}

impl Workflows {
    /// Writes the row of an element.
    pub(super) fn write_element(&mut self, record: StepRecord) {
        let run = self.runs.get_mut(&record.key.run);
        if let Some(kept) = run.and_then(|run| run.kept.as_deref_mut()) {
            kept.insert(&record);
        }
        self.ended_elements.push(record);
    }

    /// Writes a batch of added elements.
    pub(super) fn write_batch(&mut self, batch: ElementBatch) {
        let run = self.runs.get_mut(&batch.key.run);
        if let Some(kept) = run.and_then(|run| run.kept.as_deref_mut()) {
            kept.batches.insert(batch.key, batch.clone());
        }
        self.added.push(batch);
    }

    /// Begins or stops to keep the rows of a run, depending on whether one of its callers may be retried.
    pub(super) fn keep_rows(&mut self, id: RunId) {
        let may_continue = self.may_be_continued(id);
        if let Some(run) = self.runs.get_mut(&id) {
            run.kept = may_continue.then(|| run.kept.take().unwrap_or_default());
        }
    }

    /// Returns whether an automatic retry of a calling run may continue this run.
    fn may_be_continued(&self, id: RunId) -> bool {
        let mut called = self.runs.get(&id);
        while let Some(caller) = called.and_then(|run| run.head.caller) {
            let Some(run) = self.runs.get(&caller.run) else { return false };
            // `on_failure` and `finally` are not retried.
            if run.plan.node(caller.step).section != Section::Steps {
                return false;
            }
            if run.has_retries_left() {
                return true;
            }
            called = Some(run);
        }
        false
    }

    /// Returns what the next call takes over from a run that has ended without success; `None` if no retry
    /// continues it.
    pub(super) fn ended_call(&self, id: RunId) -> Option<Arc<EndedCall>> {
        let run = self.runs.get(&id)?;
        // All its steps succeeded: to continue it would fail again at once.
        let is_complete = run.state.history.last().is_some_and(|last| last.cause == RunCause::OutputFailed);
        let kept = run.kept.as_deref().filter(|_| !is_complete && self.may_be_continued(id))?;
        let steps = (0..).zip(&run.steps).filter_map(|(step, known)| {
            let state = known.state.as_deref()?.clone();
            Some(StepRecord { key: StepKey { run: id, step, item: None }, state })
        });
        let elements = kept.elements.iter().map(|(&(step, item), state)| StepRecord {
            key: StepKey { run: id, step, item: Some(item) },
            state: state.clone(),
        });
        let rows: Vec<StepRecord> = steps.chain(elements).collect();
        let call = ended_call(id, &run.head, &rows, kept.batches.values());
        (call.size() <= BYTES_MAX).then(|| Arc::new(call))
    }
}
