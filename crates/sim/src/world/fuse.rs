//! The fuse of a worker: a separate process that freezes tasks when the lease is not renewed.
//!
//! The product's core decides; the process, its alarm and its messages are modelled. The fuse runs while the
//! supervisor is paused. It may die; the supervisor then starts another fuse, which may also die immediately.

use model::Duration;
use supervisor::BootMillis;

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
    core: supervisor::Fuse,
    /// Time of its alarm.
    alarm: Option<BootMillis>,
}

impl World {
    /// Starts a fuse, and passes it the end of the lease.
    pub(super) fn start_fuse(&mut self, worker: usize) {
        let supervisor = &mut self.workers[worker].supervisor;
        let until = supervisor.core.lease_until();
        let is_broken = supervisor.fuse.is_broken;
        supervisor.fuse = Fuse { is_alive: supervisor.up && !is_broken, is_broken, ..Fuse::default() };
        if until > 0 {
            self.tell_fuse(worker, until);
        }
    }

    pub(super) fn tell_fuse(&mut self, worker: usize, until: BootMillis) {
        let fuse = &mut self.workers[worker].supervisor.fuse;
        if fuse.is_alive {
            let alarm = fuse.core.lease_renewed(until);
            self.arm_fuse(worker, alarm);
        }
    }

    fn arm_fuse(&mut self, worker: usize, at: BootMillis) {
        let supervisor = &mut self.workers[worker].supervisor;
        supervisor.fuse.alarm = Some(at);
        let life = supervisor.life;
        let late = self.worker_dice.millis(0, LATE_MILLIS);
        let wait = self.until(worker, at);
        self.put_in(wait + late, WorldEvent::Fuse { worker, life, at });
    }

    /// Lets an alarm fire that was due while the machine was suspended.
    pub(super) fn wake_fuse(&mut self, worker: usize) {
        if let Some(alarm) = self.workers[worker].supervisor.fuse.alarm {
            self.arm_fuse(worker, alarm);
        }
    }

    pub(super) fn check_fuse(&mut self, worker: usize, life: u32, at: BootMillis) {
        let moment = self.moment(worker);
        let this = &mut self.workers[worker];
        let supervisor = &mut this.supervisor;
        let fuse = &mut supervisor.fuse;
        if supervisor.life != life || this.paused || !fuse.is_alive || fuse.alarm != Some(at) {
            return;
        }
        fuse.alarm = None;
        let Some(check) = fuse.core.alarm_fired(moment.boot) else { return };
        let is_launching = !supervisor.launching.is_empty();
        let guarded = supervisor.tasks.iter().filter(|(_, task)| task.can_be_frozen());
        let guarded: Vec<_> = guarded.map(|(id, _)| *id).collect();
        let frozen = guarded.len();
        guarded.into_iter().for_each(|execution| self.freeze(worker, execution));
        if check.must_report(frozen) {
            self.supervisor_in(worker, Duration::ZERO, SupervisorMessage::Froze { since: moment });
        }
        self.arm_fuse(worker, check.next_alarm(moment.boot, is_launching));
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
        }
    }
}
