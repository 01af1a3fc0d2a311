//! The worker's lease: without it, executions that may be retried elsewhere are frozen.

use model::ExecutionId;
use mutation::{Mutation, is_on};

use crate::agenda::Alarm;
use crate::execution::{Execution, Phase};
use crate::{Action, BootMillis, ClockReading, Payloads, Supervisor};

impl<P: Payloads> Supervisor<P> {
    /// Renews the lease until `until`, and thaws the frozen executions.
    pub(crate) fn lease_renewed(&mut self, now: ClockReading, until: BootMillis) {
        if until <= self.lease_until || until <= now.boot {
            return;
        }
        let had_ended = !self.has_lease(now.boot);
        self.lease_until = until;
        self.agenda.set(Alarm::Lease, Some(until));
        // Before any thaw: if the supervisor is stopped in between, only the fuse can freeze the executions again.
        self.actions.push_back(Action::PublishLease(until));
        let frozen = |held: &Execution<P>| match &held.phase {
            Phase::Running(task) => task.frozen_since.is_some(),
            Phase::Launching(_) => had_ended,
            _ => false,
        };
        self.thaw(now, frozen);
        self.admit_waiting(now.boot);
    }

    /// Freezes the executions that may be retried elsewhere, if the lease has expired.
    pub(crate) fn check_lease(&mut self, now: ClockReading) {
        if self.has_lease(now.boot) || is_on(Mutation::SupervisorIgnoresLeaseExpiry) {
            return;
        }
        let mut running = Vec::new();
        for (id, held) in self.executions.iter_mut().filter(|(_, held)| !held.policy.at_most_once) {
            match &mut held.phase {
                Phase::Running(task) if task.frozen_since.is_none() => running.push(*id),
                // The fuse freezes the process, and may exit before it reports that.
                Phase::Launching(launching) => launching.freezes.mark_frozen(now),
                _ => {}
            }
        }
        if running.is_empty() {
            return;
        }
        self.mark_all_frozen(now, &running, now);
        self.actions.push_back(Action::Freeze(running));
    }

    /// Records that these executions are frozen since `at`.
    fn mark_all_frozen(&mut self, now: ClockReading, executions: &[ExecutionId], at: ClockReading) {
        for execution in executions {
            if let Some(task) = self.task_mut(*execution) {
                task.mark_frozen(at);
                self.set_alarm(now, *execution);
            }
        }
    }

    /// Processes the report of the fuse that all executions that need a lease are frozen. This happens when a lease
    /// expires, or shortly before it is renewed.
    pub(crate) fn fuse_froze(&mut self, now: ClockReading, at: ClockReading) {
        let mut frozen = Vec::new();
        for (id, held) in self.executions.iter_mut().filter(|(_, held)| !held.policy.at_most_once) {
            match &mut held.phase {
                Phase::Running(task) if task.started <= at.boot => frozen.push(*id),
                Phase::Launching(launching) => launching.freezes.mark_frozen(at),
                _ => {}
            }
        }
        self.mark_all_frozen(now, &frozen, at);
        if self.has_lease(now.boot) {
            self.thaw_all(now);
        } else {
            self.check_lease(now);
        }
    }

    /// Processes the exit of a fuse, which may have frozen executions without reporting it.
    pub(crate) fn fuse_lost(&mut self, now: ClockReading) {
        if self.has_lease(now.boot) {
            self.thaw_all(now);
        }
    }

    fn thaw_all(&mut self, now: ClockReading) {
        self.thaw(now, |held| matches!(held.phase, Phase::Running(_) | Phase::Launching(_)));
    }

    /// Thaws executions that need a lease; their frozen time counts towards no timeout.
    fn thaw(&mut self, now: ClockReading, is_frozen: impl Fn(&Execution<P>) -> bool) {
        let (mut thawed, mut launching_again) = (Vec::new(), Vec::new());
        let mut forgets_launches = is_on(Mutation::SupervisorLeavesLaunchesFrozen);
        for (id, held) in &mut self.executions {
            if held.policy.at_most_once || !is_frozen(held) {
                continue;
            }
            match &mut held.phase {
                Phase::Running(task) => task.mark_thawed(now),
                Phase::Launching(_) if std::mem::take(&mut forgets_launches) => continue,
                Phase::Launching(launching) => {
                    launching.freezes.mark_thawed(now);
                    launching_again.push(*id);
                }
                _ => continue,
            }
            thawed.push(*id);
        }
        for execution in &thawed {
            self.set_alarm(now, *execution);
        }
        if !thawed.is_empty() {
            self.actions.push_back(Action::Thaw(thawed));
        }
        // Their timeouts count again. They are checked only after all pending events, because the fuse may still
        // report since when they were frozen.
        for execution in launching_again {
            self.agenda.set(Alarm::Execution(execution), Some(now.boot));
        }
    }
}
