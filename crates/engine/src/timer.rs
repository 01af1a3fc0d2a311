//! The agenda: what is to happen at which instant.
//!
//! An ordered set, so that equal instants fire in a fixed order. Timers that lose their meaning are
//! disarmed by whoever ends the state that armed them; [`crate::Engine`] checks each again as it
//! fires, so that a stale one does nothing.
//!
//! # Cost
//! O(log n); about 50 bytes a timer, as the nodes of a tree that grows at its end are half full.

use std::collections::BTreeSet;
use std::sync::Arc;

use model::{ExecutionId, JobId, RunId, ScheduleId, Timestamp, WorkerId};

/// Something to do at an instant.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timer {
    /// A job's time, or the end of its backoff.
    Due(JobId),
    /// A job's starting deadline.
    Deadline(JobId),
    /// An execution that should have reported by now: say again what was said.
    Remind(ExecutionId),
    /// The end of the wait for the result of an execution whose worker is lost.
    Unknown(ExecutionId),
    /// A worker's lease may have run out.
    Lease(WorkerId),
    /// A worker that declined work may be asked again.
    Declined(WorkerId),
    /// A schedule's next instant, or its turn to catch up.
    Schedule(ScheduleId),
    /// A schedule's time to keep room for its next firing, or to let go of it.
    Reserve(ScheduleId),
    /// A run's timeout.
    Run(RunId),
    /// The end of a step's wait, or of its timeout.
    Step(RunId, u32),
    /// A queue's rate lets another job through.
    Rate(Arc<str>),
    /// Idempotency keys may have expired.
    ForgetKeys,
    /// What was held back because commits may be lost goes on.
    Reconciled,
}

/// All armed timers.
#[derive(Debug, Default)]
pub(crate) struct Agenda {
    armed: BTreeSet<(Timestamp, Timer)>,
    /// Timers of schedules that came due while these are held.
    held: BTreeSet<(Timestamp, Timer)>,
    holds_schedules: bool,
}

impl Agenda {
    /// Arms a timer. Arming the same one for the same instant twice is arming it once.
    pub(crate) fn arm(&mut self, at: Timestamp, timer: Timer) {
        self.armed.insert((at, timer));
    }

    /// Disarms a timer that was armed for `at`, if it was.
    pub(crate) fn disarm(&mut self, at: Timestamp, timer: Timer) {
        let armed = (at, timer);
        if !self.armed.remove(&armed) {
            self.held.remove(&armed);
        }
    }

    /// Whether a timer is armed for `at`.
    pub(crate) fn is_armed(&self, at: Timestamp, timer: Timer) -> bool {
        let armed = (at, timer);
        self.armed.contains(&armed) || self.held.contains(&armed)
    }

    /// Holds timers of schedules back as they come due, or lets all of them go.
    pub(crate) fn hold_schedules(&mut self, hold: bool) {
        self.holds_schedules = hold;
        if !hold {
            self.armed.append(&mut self.held);
        }
    }

    /// Takes the first timer whose instant is not after `now`.
    pub(crate) fn pop_due(&mut self, now: Timestamp) -> Option<Timer> {
        while self.armed.first()?.0 <= now {
            let (at, timer) = self.armed.pop_first()?;
            if !(self.holds_schedules && matches!(timer, Timer::Schedule(_))) {
                return Some(timer);
            }
            self.held.insert((at, timer));
        }
        None
    }

    /// When the first timer is due.
    pub(crate) fn next(&self) -> Option<Timestamp> {
        self.armed.first().map(|(at, _)| *at)
    }
}
