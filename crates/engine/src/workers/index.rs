//! All workers, with an index of eligible workers for each shape that is placed often.
//!
//! Visiting each worker for each job is expensive in a large cluster. So frequent shapes have an index
//! ([`EligibleIndex`]): the eligible workers in order of their score. An index is brought up to date when it is
//! used, from the log of changed workers, so an unused shape costs nothing. No change is missed, because
//! workers are changed through [`Workers`] only.
//!
//! # Invariants
//! - [`Workers::best`] returns the same worker with and without an index.
//!
//! # Cost
//! A placement costs O(log n) for each worker that changed since the last placement of that shape: usually
//! the one that got that job. A shape without an index costs O(n).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Deref;
use std::sync::Arc;

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use indexmap::IndexMap;
use model::WorkerId;

use super::Worker;
use super::placement::{best_of, is_eligible, score};
use crate::profile::Shape;

/// Minimum number of workers for an index: with fewer workers a full search is as fast. Debug builds use
/// indexes almost always, so that all tests and simulations compare both results.
const INDEX_WORKERS_MIN: usize = if cfg!(debug_assertions) { 2 } else { 64 };
/// Maximum number of shapes with an index.
const INDEXES_MAX: usize = 32;
/// A shape that was not requested in this many placements may lose its index to another.
const IDLE_AFTER: u64 = 1_000;

/// Workers by their ids.
#[derive(Debug, Default)]
pub(crate) struct Workers {
    all: BTreeMap<WorkerId, Worker>,
    /// Log of changed workers, oldest first.
    changed: VecDeque<WorkerId>,
    /// Number of changes that are no longer in the log.
    dropped_changes: u64,
    indexes: IndexMap<u64, EligibleIndex, FixedState>,
    /// Number of placements so far.
    asked: u64,
}

/// Eligible workers for a shape, in order of their score.
#[derive(Debug)]
struct EligibleIndex {
    shape: Arc<Shape>,
    /// Number of changes that it contains; `None` before it is filled.
    seen: Option<u64>,
    order: BTreeSet<(u64, WorkerId)>,
    ranks: HashMap<WorkerId, u64, FixedState>,
    /// Number of the placement that used it last.
    asked: u64,
}

impl Deref for Workers {
    type Target = BTreeMap<WorkerId, Worker>;

    fn deref(&self) -> &Self::Target {
        &self.all
    }
}

impl Workers {
    pub(crate) fn get_mut(&mut self, id: &WorkerId) -> Option<&mut Worker> {
        self.log_change(*id);
        self.all.get_mut(id)
    }

    pub(crate) fn get_or_insert_with(&mut self, id: WorkerId, new: impl FnOnce() -> Worker) -> &mut Worker {
        self.log_change(id);
        self.all.entry(id).or_insert_with(new)
    }

    pub(crate) fn insert(&mut self, id: WorkerId, worker: Worker) {
        self.log_change(id);
        self.all.insert(id, worker);
    }

    pub(crate) fn remove(&mut self, id: &WorkerId) {
        self.log_change(*id);
        self.all.remove(id);
    }

    /// Removes all workers. Their rows are about to be read again.
    pub(crate) fn clear(&mut self) {
        self.dropped_changes += self.changed.len() as u64 + 1;
        self.changed.clear();
        self.all.clear();
    }

    /// Returns every worker, mutable. Invalidates all indexes.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (&WorkerId, &mut Worker)> {
        self.dropped_changes += self.changed.len() as u64 + 1;
        self.changed.clear();
        self.all.iter_mut()
    }

    fn log_change(&mut self, id: WorkerId) {
        // An index that is this far behind is cheaper to rebuild.
        if self.changed.len() > self.all.len() {
            self.changed.pop_front();
            self.dropped_changes += 1;
        }
        self.changed.push_back(id);
    }

    /// Returns the best worker for a shape with this id; prefers a worker other than `avoid`.
    pub(crate) fn best(&mut self, id: u64, shape: &Arc<Shape>, avoid: Option<WorkerId>) -> Option<WorkerId> {
        self.asked += 1;
        if self.all.len() < INDEX_WORKERS_MIN || !self.has_index(id, shape) {
            return best_of(shape, self.all.values(), avoid, None);
        }
        let shortlist = self.indexes.get_mut(&id)?;
        shortlist.asked = self.asked;
        shortlist.catch_up(&self.all, &self.changed, self.dropped_changes);
        let best = shortlist.best(avoid);
        debug_assert_eq!(best, best_of(shape, self.all.values(), avoid, None), "index and full search agree");
        best
    }

    /// Returns whether a shape has an index. Creates one if there is space, or replaces one that is idle.
    fn has_index(&mut self, id: u64, shape: &Arc<Shape>) -> bool {
        if self.indexes.contains_key(&id) {
            return true;
        }
        if self.indexes.len() >= INDEXES_MAX {
            let idlest = self.indexes.iter().min_by_key(|(_, shortlist)| shortlist.asked);
            let Some((&other, shortlist)) = idlest else { return false };
            if self.asked - shortlist.asked < IDLE_AFTER {
                return false;
            }
            self.indexes.swap_remove(&other);
        }
        self.indexes.insert(id, EligibleIndex::new(shape));
        true
    }
}

impl EligibleIndex {
    fn new(shape: &Arc<Shape>) -> Self {
        let (order, ranks) = (BTreeSet::new(), HashMap::default());
        Self { shape: Arc::clone(shape), seen: None, order, ranks, asked: 0 }
    }

    /// Applies the changes since it was last used.
    fn catch_up(&mut self, all: &BTreeMap<WorkerId, Worker>, changed: &VecDeque<WorkerId>, forgotten: u64) {
        let unseen = self.seen.and_then(|seen| seen.checked_sub(forgotten));
        match unseen.and_then(|unseen| usize::try_from(unseen).ok()) {
            Some(seen) => changed.range(seen..).for_each(|id| self.update_worker(*id, all.get(id))),
            None => {
                self.order.clear();
                self.ranks.clear();
                all.iter().for_each(|(id, worker)| self.update_worker(*id, Some(worker)));
            }
        }
        self.seen = Some(forgotten + changed.len() as u64);
    }

    fn update_worker(&mut self, id: WorkerId, worker: Option<&Worker>) {
        let worker = worker.filter(|worker| is_eligible(&self.shape, worker, None));
        let rank = worker.map(|worker| score(&self.shape, worker));
        let before = match rank {
            Some(rank) => self.ranks.insert(id, rank),
            None => self.ranks.remove(&id),
        };
        if before == rank {
            return;
        }
        if let Some(before) = before {
            self.order.remove(&(before, id));
        }
        self.order.extend(rank.map(|rank| (rank, id)));
    }

    fn best(&self, avoid: Option<WorkerId>) -> Option<WorkerId> {
        let ids = || self.order.iter().map(|&(_, id)| id);
        ids().find(|&id| Some(id) != avoid).or_else(|| ids().next())
    }
}

#[cfg(test)]
mod tests {
    use model::record::WorkerRecord;
    use model::spec::{JobSpec, Placement};
    use model::worker::{Admission, Capabilities, Capacity, WorkerStatus};
    use model::{Bytes, JobId, Millicores, Timestamp};
    use proptest::prelude::*;

    use super::*;
    use crate::input::Session;
    use crate::profile::Profiles;

    fn worker(number: u128) -> Worker {
        let record = WorkerRecord {
            id: WorkerId::from_bits(number),
            name: "w".into(),
            address: None,
            version: "1".into(),
            labels: BTreeMap::new(),
            capacity: Capacity {
                cpu: Millicores(1_000),
                memory: Bytes(1 << 30),
                custom: [].into(),
                slots: 4,
            },
            capabilities: Capabilities { runtimes: vec!["process".into()], ..Capabilities::default() },
            status: WorkerStatus::Ready,
            admission: Admission::Open,
            created_at: Timestamp::default(),
            updated_at: Timestamp::default(),
            last_heartbeat_at: None,
        };
        let mut worker = Worker::new(Arc::new(record));
        worker.session = Some(Session(1));
        worker
    }

    /// One shape more than can have an index, with both placement policies.
    fn shapes() -> Vec<(u64, Arc<Shape>)> {
        let mut profiles = Profiles::default();
        let shape = |n: usize| {
            let mut spec = JobSpec::command(["true"]);
            spec.resources.cpu = Some(Millicores(100 + 10 * u32::try_from(n).unwrap()));
            spec.placement = if n.is_multiple_of(2) { Placement::Pack } else { Placement::Spread };
            let profile = profiles.of(&spec);
            (profile.shape_id, Arc::clone(&profile.shape))
        };
        (0..=INDEXES_MAX).map(shape).collect()
    }

    proptest! {
        /// E1. After any sequence of changes; `best` itself compares both results.
        #[test]
        fn index_and_full_search_return_the_same_worker(
            steps in prop::collection::vec((0u8..8, 0u128..12, 0usize..=INDEXES_MAX, 0u64..2_000), 1..300),
        ) {
            let shapes = shapes();
            let mut workers = Workers::default();
            for (what, number, shape, pass) in steps {
                let id = WorkerId::from_bits(number);
                match what {
                    0 => workers.insert(id, worker(number)),
                    1 => workers.remove(&id),
                    2 => workers.iter_mut().for_each(|(_, worker)| worker.session = Some(Session(2))),
                    3 => {
                        if let Some(worker) = workers.get_mut(&id) {
                            worker.session = None;
                        }
                    }
                    4 => {
                        let running = workers.get(&id).and_then(|worker| worker.jobs.first().copied());
                        if let Some((worker, job)) = workers.get_mut(&id).zip(running) {
                            worker.release(job, &shapes[0].1);
                        }
                    }
                    5 => workers.asked += pass,
                    _ => {
                        let (shape_id, shape) = &shapes[shape];
                        let best = workers.best(*shape_id, shape, (pass % 2 == 0).then_some(id));
                        if let Some(worker) = best.and_then(|best| workers.get_mut(&best)) {
                            worker.reserve(JobId::from_bits(u128::from(pass)), &shapes[0].1);
                        }
                    }
                }
                prop_assert!(workers.indexes.len() <= INDEXES_MAX);
                prop_assert!(workers.changed.len() <= 13, "at most the number of workers ever, and one");
            }
        }
    }
}
