//! Timers: the ordered set of future actions of the engine.
//!
//! Timers at the same time fire in a fixed order. The code that ends a state disarms the timers of that
//! state. [`crate::Engine`] also checks each timer when it fires, so a stale one has no effect.
//!
//! # Cost
//! O(log n); about 50 bytes per timer, because the nodes of a tree that grows at its end are half full.

use std::collections::BTreeSet;
use std::sync::Arc;

use model::{ExecutionId, JobId, RunId, ScheduleId, ServiceId, Timestamp, WorkerId};

/// An action at a time.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timer {
    /// A job becomes ready, or its backoff ends.
    JobReady(JobId),
    /// Start deadline of a job.
    StartBy(JobId),
    /// Completion deadline of a job.
    FinishBy(JobId),
    /// An execution should have been reported: repeat the last message to its worker.
    Remind(ExecutionId),
    /// End of the wait for the result of an execution whose worker is lost.
    ResultWait(ExecutionId),
    /// The lease of a worker may have ended.
    Lease(WorkerId),
    /// A worker that refused an execution is available again.
    Declined(WorkerId),
    /// Next scheduled time of a schedule, or its next catch-up.
    Schedule(ScheduleId),
    /// A schedule makes its reservation for the next firing, or releases it.
    Reserve(ScheduleId),
    /// Timeout of a run; also its start deadline while it waits, or the end of its backoff.
    Run(RunId),
    /// A replica of a service may have become available, or the progress deadline of its rollout has passed.
    Service(ServiceId),
    /// End of a step's wait, or its timeout.
    Step(RunId, u32),
    /// The rate limit of a queue allows another job.
    Rate(Arc<str>),
    /// Search for expired idempotency keys.
    PurgeKeys,
    /// Sample of the levels of queues and workers.
    SampleLevels,
    /// End of the reconciliation after lost commits.
    Reconciled,
}

/// All armed timers.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    armed: BTreeSet<(Timestamp, Timer)>,
    /// Timers of schedules that fired during the current hold.
    held: BTreeSet<(Timestamp, Timer)>,
    holds_schedules: bool,
}

impl Timers {
    /// Arms a timer. Arming it twice for the same time has no further effect.
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

    pub(crate) fn is_armed(&self, at: Timestamp, timer: Timer) -> bool {
        let armed = (at, timer);
        self.armed.contains(&armed) || self.held.contains(&armed)
    }

    /// Holds back timers of schedules when they fire, or releases all that were held.
    pub(crate) fn hold_schedules(&mut self, hold: bool) {
        self.holds_schedules = hold;
        if !hold {
            self.armed.append(&mut self.held);
        }
    }

    /// Removes and returns the first timer that is due at `now`.
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

    /// Returns the time of the first timer.
    pub(crate) fn next(&self) -> Option<Timestamp> {
        self.armed.first().map(|(at, _)| *at)
    }
}
