//! The worker's lease: without it, executions that may be started elsewhere are frozen.

use model::ExecutionId;
use mutation::{Mutation, is_on};

use crate::agenda::Alarm;
use crate::execution::{Execution, Phase};
use crate::{Action, BootMillis, Moment, Payloads, Supervisor};

impl<P: Payloads> Supervisor<P> {
    /// The lease lasts until `until`: what was frozen is thawed.
    pub(crate) fn lease_renewed(&mut self, now: Moment, until: BootMillis) {
        if until <= self.lease_until || until <= now.boot {
            return;
        }
        let had_ended = !self.has_lease(now.boot);
        self.lease_until = until;
        self.agenda.set(Alarm::Lease, Some(until));
        // Before anything thaws: if the supervisor is stopped in between, only the fuse can freeze it again.
        self.actions.push_back(Action::TellLease(until));
        let frozen = |held: &Execution<P>| match &held.phase {
            Phase::Running(task) => task.frozen_since.is_some(),
            Phase::Launching(_) => had_ended,
            _ => false,
        };
        self.thaw(now, frozen);
        self.admit_waiting(now.boot);
    }

    /// Freezes what may run elsewhere, if the lease has ended.
    pub(crate) fn check_lease(&mut self, now: Moment) {
        if self.has_lease(now.boot) || is_on(Mutation::SupervisorIgnoresTheEndOfItsLease) {
            return;
        }
        let mut running = Vec::new();
        for (id, held) in self.executions.iter_mut().filter(|(_, held)| !held.terms.at_most_once) {
            match &mut held.phase {
                Phase::Running(task) if task.frozen_since.is_none() => running.push(*id),
                // The fuse freezes it, and may die before it says so.
                Phase::Launching(launching) => launching.pauses.halt(now),
                _ => {}
            }
        }
        if running.is_empty() {
            return;
        }
        self.halted(now, &running, now);
        self.actions.push_back(Action::Freeze(running));
    }

    /// These executions are frozen since `at`.
    fn halted(&mut self, now: Moment, executions: &[ExecutionId], at: Moment) {
        for execution in executions {
            if let Some(task) = self.task_mut(*execution) {
                task.halt(at);
                self.set_alarm(now, *execution);
            }
        }
    }

    /// The fuse has frozen everything that needs a lease: at the end of a lease, or just before it was renewed.
    pub(crate) fn fuse_froze(&mut self, now: Moment, at: Moment) {
        let mut frozen = Vec::new();
        for (id, held) in self.executions.iter_mut().filter(|(_, held)| !held.terms.at_most_once) {
            match &mut held.phase {
                Phase::Running(task) if task.started <= at.boot => frozen.push(*id),
                Phase::Launching(launching) => launching.pauses.halt(at),
                _ => {}
            }
        }
        self.halted(now, &frozen, at);
        if self.has_lease(now.boot) {
            self.thaw_all(now);
        } else {
            self.check_lease(now);
        }
    }

    /// A fuse has ended that may have frozen executions and did not say so.
    pub(crate) fn fuse_lost(&mut self, now: Moment) {
        if self.has_lease(now.boot) {
            self.thaw_all(now);
        }
    }

    fn thaw_all(&mut self, now: Moment) {
        self.thaw(now, |held| matches!(held.phase, Phase::Running(_) | Phase::Launching(_)));
    }

    /// Lets executions that need a lease continue; the time for which they were frozen counts towards no timeout.
    fn thaw(&mut self, now: Moment, is_frozen: impl Fn(&Execution<P>) -> bool) {
        let (mut thawed, mut launching_again) = (Vec::new(), Vec::new());
        let mut forgets_launches = is_on(Mutation::SupervisorLeavesLaunchesFrozen);
        for (id, held) in &mut self.executions {
            if held.terms.at_most_once || !is_frozen(held) {
                continue;
            }
            match &mut held.phase {
                Phase::Running(task) => task.resume(now),
                Phase::Launching(_) if std::mem::take(&mut forgets_launches) => continue,
                Phase::Launching(launching) => {
                    launching.pauses.resume(now);
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
        // Their timeouts count again. They are looked at after all that waits to be heard: the fuse may still have to say
        // since when they were frozen.
        for execution in launching_again {
            self.agenda.set(Alarm::Execution(execution), Some(now.boot));
        }
    }
}
