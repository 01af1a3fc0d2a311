//! The journal of a modelled supervisor.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ::model::{ExecutionId, Fence};
use proto::v1;

/// What outlives a power cut; clones are the same disk.
#[derive(Debug, Clone, Default)]
pub struct Disk(Arc<Mutex<Journal>>);

#[derive(Debug, Default)]
pub(super) struct Journal {
    /// Starts that were written down, of what is not forgotten.
    pub(super) started: BTreeMap<ExecutionId, Fence>,
    /// Outcomes that nobody has acknowledged.
    pub(super) ended: BTreeMap<ExecutionId, v1::Report>,
    /// What was here and must not come again.
    pub(super) forgotten: BTreeSet<ExecutionId>,
}

impl Disk {
    pub(super) fn journal(&self) -> MutexGuard<'_, Journal> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The executions whose outcomes nobody has acknowledged.
    pub fn unacknowledged(&self) -> Vec<ExecutionId> {
        let journal = self.journal();
        journal
            .started
            .keys()
            .chain(journal.ended.keys())
            .copied()
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect()
    }
}
