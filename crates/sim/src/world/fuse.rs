//! The fuse of a worker: a separate process that freezes tasks when the lease is not renewed.
//!
//! It runs while the supervisor is paused. It may die; the supervisor then starts another fuse, which may also die
//! immediately.

use model::Duration;
use supervisor::BootMillis;

use super::plan::Mutation;
use super::supervisor::SupervisorMessage;
use super::{World, WorldEvent};

/// Maximum delay of the fuse, in milliseconds.
const LATE_MILLIS: u64 = 40;

/// State of a fuse process.
#[derive(Debug, Default)]
pub(super) struct Fuse {
    is_alive: bool,
    /// Whether every new fuse dies immediately.
    is_broken: bool,
    lease_until: BootMillis,
}

impl World {
    /// Starts a fuse, and passes it the end of the lease.
    pub(super) fn start_fuse(&mut self, worker: usize) {
        let supervisor = &mut self.workers[worker].supervisor;
        let until = supervisor.core.lease_until();
        supervisor.fuse.is_alive = supervisor.up && !supervisor.fuse.is_broken;
        if until > 0 {
            self.tell_fuse(worker, until);
        }
    }

    pub(super) fn tell_fuse(&mut self, worker: usize, until: BootMillis) {
        let fuse = &mut self.workers[worker].supervisor.fuse;
        if fuse.is_alive {
            fuse.lease_until = until;
            let wait = self.until(worker, until);
            self.check_fuse_in(worker, wait);
        }
    }

    fn check_fuse_in(&mut self, worker: usize, wait: Duration) {
        let life = self.workers[worker].supervisor.life;
        let late = self.worker_dice.millis(0, LATE_MILLIS);
        self.put_in(wait + late, WorldEvent::Fuse { worker, life });
    }

    /// Wakes the fuse when a task starts: it also watches tasks that start after the end of the lease.
    pub(super) fn wake_fuse(&mut self, worker: usize) {
        let boot = self.moment(worker).boot;
        let fuse = &self.workers[worker].supervisor.fuse;
        if fuse.is_alive && fuse.lease_until <= boot {
            self.check_fuse_in(worker, Duration::ZERO);
        }
    }

    pub(super) fn check_fuse(&mut self, worker: usize, life: u32) {
        let moment = self.moment(worker);
        let this = &self.workers[worker];
        let supervisor = &this.supervisor;
        if supervisor.life != life || this.paused || !supervisor.fuse.is_alive {
            return;
        }
        let broken = supervisor.paused && self.plan.has(Mutation::FuseDoesNotFire);
        if supervisor.fuse.lease_until > moment.boot || broken {
            return;
        }
        let guarded: Vec<_> =
            supervisor.tasks.iter().filter(|(_, task)| task.can_be_frozen()).map(|(id, _)| *id).collect();
        if !guarded.is_empty() {
            guarded.into_iter().for_each(|execution| self.freeze(worker, execution));
            self.supervisor_in(worker, Duration::ZERO, SupervisorMessage::Froze { since: moment });
        }
    }

    /// Kills the fuse; until it is mended, every new fuse dies too.
    pub(super) fn break_fuse(&mut self, worker: usize) {
        let this = &mut self.workers[worker];
        // A failure of supervisor and fuse at the same time is not covered by a guarantee.
        if this.supervisor.up && !this.supervisor.paused && !this.paused {
            this.supervisor.fuse.is_alive = false;
            this.supervisor.fuse.is_broken = true;
            self.tell_supervisor(worker, SupervisorMessage::FuseLost);
        }
    }

    pub(super) fn mend_fuse(&mut self, worker: usize) {
        if std::mem::take(&mut self.workers[worker].supervisor.fuse.is_broken) {
            self.start_fuse(worker);
            self.wake_fuse(worker);
        }
    }
}
