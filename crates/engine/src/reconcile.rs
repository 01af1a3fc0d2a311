//! After the store forgot commits: nothing that must not be done twice is started before every worker
//! was heard.
//!
//! A database that was restored, or whose standby took over without the last commits, may have started
//! work that no row tells of. Its workers are still there: each says what it holds when it opens a
//! session, and stops what nobody knows; one that is not heard ends by itself within its lease. So for
//! one lease, as a new owner gives it to every worker, waiting jobs that are not `at_least_once` are held
//! back instead of standing in their queues.
//!
//! No two executions of a job overlap by this. That one was started among the commits that are gone is not
//! known of a job, so it is started again, also if it is `at_most_once`.

use std::collections::BTreeSet;

use model::spec::Delivery;
use model::{JobId, JobStatus, ShardId, Timestamp, WorkerId};
use mutation::{Mutation, is_on};

use crate::engine::Engine;
use crate::input::Held;
use crate::job::Job;
use crate::timer::Timer;

/// Shards whose last commits may be gone, and what is held back for that.
#[derive(Debug, Default)]
pub(crate) struct Reconciling {
    shards: BTreeSet<ShardId>,
    /// Until then, on the steady clock.
    until: Timestamp,
    held_back: BTreeSet<JobId>,
    strays: Vec<Stray>,
}

/// An execution that a worker holds and no live row tells of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stray {
    /// What the worker says of it.
    pub held: Held,
    /// Where.
    pub worker: WorkerId,
}

impl Reconciling {
    pub(crate) fn is_over(&self) -> bool {
        self.shards.is_empty()
    }

    pub(crate) fn holds(&self, id: JobId) -> bool {
        self.held_back.contains(&id)
    }

    fn concerns(&self, id: JobId, job: &Job) -> bool {
        self.shards.contains(&id.shard()) && job.profile.delivery != Delivery::AtLeastOnce
    }

    /// A job left the place where it waits. Says whether it was held back.
    pub(crate) fn let_go(&mut self, id: JobId) -> bool {
        self.held_back.remove(&id)
    }
}

impl Engine {
    /// Says that the last commits of these shards may be gone. Comes after the rows and before
    /// [`start`](Self::start).
    pub fn distrust(&mut self, shards: &[ShardId]) {
        if !is_on(Mutation::EngineTrustsAStoreThatForgot) {
            self.reconciling.shards.extend(shards);
        }
    }

    /// Whether work is held back because of [`distrust`](Self::distrust).
    pub fn is_reconciling(&self) -> bool {
        !self.reconciling.is_over()
    }

    /// Executions that workers were found to hold since the last call, and that the store forgot, or keeps among
    /// those that ended. The ones that run were told to stop.
    pub fn take_strays(&mut self) -> Vec<Stray> {
        std::mem::take(&mut self.reconciling.strays)
    }

    /// Gives every worker one lease to be heard, and takes out of the queues what waits for that.
    pub(crate) fn begin_reconciling(&mut self) {
        if !self.is_reconciling() {
            return;
        }
        self.reconciling.until = self.steady + self.first_lease();
        self.chores.arm(self.reconciling.until, Timer::Reconciled);
        for (&id, job) in &self.jobs {
            if job.state.status == JobStatus::Waiting && self.reconciling.concerns(id, job) {
                self.queues.remove(id, job);
                self.reconciling.held_back.insert(id);
            }
        }
    }

    /// When what is held back goes on, on the steady clock.
    pub(crate) fn reconciled_at(&self) -> Timestamp {
        self.reconciling.until
    }

    /// Puts a waiting job into its queue, or aside while it is held back.
    pub(crate) fn stand_in_line(&mut self, id: JobId) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        if self.reconciling.concerns(id, job) {
            self.reconciling.held_back.insert(id);
        } else {
            self.queues.push(id, job);
            self.dispatch_wanted = true;
        }
    }

    pub(crate) fn found_stray(&mut self, held: Held, worker: WorkerId) {
        if self.is_reconciling() {
            self.reconciling.strays.push(Stray { held, worker });
        }
    }

    /// Every worker was heard, or its lease is over.
    pub(crate) fn on_reconciled(&mut self) {
        self.reconciling.shards.clear();
        for id in std::mem::take(&mut self.reconciling.held_back) {
            self.stand_in_line(id);
        }
    }
}
