//! Helpers for the commit of a batch that all stores share.

use std::collections::{BTreeMap, HashMap};

use model::record::{Batch, Change, JobHead, Lease};
use model::{JobId, ShardId};
use serde::Serialize;

/// Number of events of a batch in one row; a reader decodes at most this many events more than it requested.
pub(crate) const EVENTS_PER_ROW: usize = 256;

/// Changes of the job counts, by namespace and status code. A count that was not changed has none.
#[derive(Debug, Default)]
pub(crate) struct Counters(BTreeMap<Box<str>, [Option<i64>; 8]>);

impl Counters {
    pub(crate) fn add(&mut self, namespace: &str, status: u8, by: i64) {
        // Most batches have one or two namespaces: check before allocating a key.
        if !self.0.contains_key(namespace) {
            self.0.insert(namespace.into(), [None; 8]);
        }
        if let Some(count) = self.0.get_mut(namespace).and_then(|counts| counts.get_mut(usize::from(status)))
        {
            *count.get_or_insert(0) += by;
        }
    }

    /// Adds the changes of one batch to those of several. A count that a batch leaves as it was is not changed by it, so the
    /// rows do not depend on the batches that are added together.
    pub(crate) fn absorb(&mut self, batch: &mut Self) {
        for (namespace, status, by) in batch.changes() {
            self.add(namespace, status, by);
        }
        batch.0.clear();
    }

    /// Returns each changed count, also if its changes cancel each other: namespace, status code, difference.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&str, u8, i64)> {
        self.0.iter().flat_map(|(namespace, counts)| {
            let changed = (0u8..).zip(counts).filter_map(|(status, by)| by.map(|by| (status, by)));
            changed.map(|(status, by)| (&**namespace, status, by))
        })
    }

    /// Returns each count that is another one now: namespace, status code, difference.
    pub(crate) fn changes(&self) -> impl Iterator<Item = (&str, u8, i64)> {
        self.all().filter(|(_, _, by)| *by != 0)
    }
}

/// Returns the lowest shard that the batch changes without a lease.
pub(crate) fn first_shard_without_lease(leases: &[Lease], batch: &Batch) -> Option<ShardId> {
    let foreign = |shard: &ShardId| !leases.iter().any(|lease| lease.shard == *shard);
    batch.changes.iter().filter_map(Change::shard).filter(foreign).min()
}

/// Returns the heads of the jobs in the batch; empty if the batch has no new executions, which alone need them.
pub(crate) fn heads_for_executions(changes: &[Change]) -> HashMap<JobId, &JobHead> {
    if !changes.iter().any(|change| matches!(change, Change::Execution { new: true, .. })) {
        return HashMap::new();
    }
    let head = |change| match change {
        &Change::Job { id, head: Some(ref head), .. } => Some((id, &**head)),
        _ => None,
    };
    changes.iter().filter_map(head).collect()
}

/// Encodes a record as JSON.
pub(crate) fn to_json<T: Serialize>(record: &T) -> String {
    serde_json::to_string(record).expect("records are plain data")
}
