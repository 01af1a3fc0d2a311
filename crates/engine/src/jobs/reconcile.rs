//! Reconciliation after the store lost commits: jobs that must not run twice wait until all workers have
//! reported.
//!
//! A restored database, or a database standby without the last commits, may have lost the rows of started
//! executions. Their workers still run them. When a worker opens a session, it lists the executions that it
//! holds, and stops those that no server knows. The executions of a worker that does not connect end within
//! its lease. So for one lease, as a new owner grants it to every worker, waiting jobs that are not
//! `at_least_once` are held back instead of entering their queues.
//!
//! This prevents overlapping executions of a job. A job whose start is among the lost commits is started
//! again, even if it is `at_most_once`, because no row shows that it was started.

use std::collections::BTreeSet;

use model::spec::Delivery;
use model::{JobId, JobStatus, ShardId, Timestamp, WorkerId};
use mutation::{Mutation, is_on};

use crate::context::Context;
use crate::input::Held;
use crate::jobs::Job;
use crate::jobs::Jobs;
use crate::timer::Timer;

/// Shards that may have lost commits, and the jobs that are held back.
#[derive(Debug, Default)]
pub(crate) struct Reconciliation {
    shards: BTreeSet<ShardId>,
    /// End of the reconciliation; steady time.
    until: Timestamp,
    held_back: BTreeSet<JobId>,
    orphaned: Vec<OrphanedExecution>,
}

/// An execution that a worker holds and no live row mentions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OrphanedExecution {
    /// The execution as the worker lists it.
    pub held: Held,
    /// The worker that holds it.
    pub worker: WorkerId,
}

impl Reconciliation {
    pub(crate) fn is_over(&self) -> bool {
        self.shards.is_empty()
    }

    pub(crate) fn holds(&self, id: JobId) -> bool {
        self.held_back.contains(&id)
    }

    fn concerns(&self, id: JobId, job: &Job) -> bool {
        self.shards.contains(&id.shard()) && job.profile.delivery != Delivery::AtLeastOnce
    }

    /// Removes a job that no longer waits. Returns whether it was held back.
    pub(crate) fn release(&mut self, id: JobId) -> bool {
        self.held_back.remove(&id)
    }
}

impl Jobs {
    /// Adds shards that may have lost their last commits.
    pub(crate) fn assume_lost_commits(&mut self, shards: &[ShardId]) {
        if !is_on(Mutation::EngineSkipsReconciliation) {
            self.reconciliation.shards.extend(shards);
        }
    }

    pub(crate) fn is_reconciling(&self) -> bool {
        !self.reconciliation.is_over()
    }

    /// Returns the executions that no live row mentions and that workers listed since the last call.
    pub(crate) fn take_orphaned_executions(&mut self) -> Vec<OrphanedExecution> {
        std::mem::take(&mut self.reconciliation.orphaned)
    }

    /// Grants every worker one lease to report, and removes the affected jobs from their queues.
    pub(crate) fn start_reconciliation(&mut self, cx: &mut Context) {
        if self.reconciliation.is_over() {
            return;
        }
        self.reconciliation.until = cx.steady + self.first_lease(cx);
        cx.steady_timers.arm(self.reconciliation.until, Timer::Reconciled);
        for (&id, job) in &self.all {
            if job.state.status == JobStatus::Waiting && self.reconciliation.concerns(id, job) {
                self.queues.remove(job.queued(id));
                self.reconciliation.held_back.insert(id);
            }
        }
    }

    /// Returns when the jobs that are held back are released; steady time.
    pub(crate) fn reconciled_at(&self) -> Timestamp {
        self.reconciliation.until
    }

    /// Puts a waiting job into its queue, or holds it back during a reconciliation.
    pub(crate) fn enqueue_or_hold(&mut self, id: JobId) {
        let Some(job) = self.all.get_mut(&id) else { return };
        if self.reconciliation.concerns(id, job) {
            self.reconciliation.held_back.insert(id);
        } else {
            self.queues.push(job.queued(id));
            self.dispatch_wanted = true;
        }
    }

    pub(crate) fn record_orphan(&mut self, held: Held, worker: WorkerId) {
        if !self.reconciliation.is_over() {
            self.reconciliation.orphaned.push(OrphanedExecution { held, worker });
        }
    }

    /// Releases the held jobs: every worker has reported, or its lease has ended.
    pub(crate) fn on_reconciled(&mut self) {
        self.reconciliation.shards.clear();
        for id in std::mem::take(&mut self.reconciliation.held_back) {
            self.enqueue_or_hold(id);
        }
    }
}
