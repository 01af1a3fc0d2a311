//! From an assignment to a launch.
//!
//! A held execution is not started again: its report is repeated. An execution whose end was acknowledged recently is
//! refused. A new execution first waits for a lease, and then for its start to be durable.

use model::ExecutionId;
use mutation::{Mutation, is_on};

use crate::execution::{Ended, Execution, Phase};
use crate::journal::{Effect, Entry};
use crate::launch::{Launch, Launching};
use crate::{Assigned, BootMillis, ClockReading, Payloads, Report, Supervisor};

impl<P: Payloads> Supervisor<P> {
    pub(crate) fn agent_connected(&mut self, slots: usize) {
        self.slots = slots;
        // A new agent has no list of the outputs that the previous one was storing.
        let storing = self.executions.iter().filter(|(_, held)| matches!(held.phase, Phase::Storing(_)));
        self.to_store = storing.map(|(id, _)| *id).collect();
    }

    pub(crate) fn assigned(&mut self, now: ClockReading, assigned: Assigned<P>) {
        let Assigned { execution, fence, job, policy: terms, order, disk_full } = assigned;
        if self.executions.contains_key(&execution) {
            return self.queue_report(execution);
        }
        if self.forgotten.contains(execution) && !is_on(Mutation::SupervisorRestartsAcknowledgedExecutions) {
            return self.report_already_run(execution, fence);
        }
        // The remaining space is for the ends of running executions.
        if disk_full {
            return self.record_end(execution, fence, Report::disk_full());
        }
        let order = match order {
            Ok(order) => order,
            Err(failure) => return self.record_end(execution, fence, Report::StartFailed(failure)),
        };
        if self.active >= self.slots {
            let detail = format!("all {} slots of the worker are in use", self.slots);
            return self.record_end(execution, fence, Report::refused("no_room", detail));
        }
        let held = Execution { job, policy: terms, ..Execution::new(fence, Phase::Waiting(Box::new(order))) };
        self.insert(execution, held);
        self.waiting.push_back(execution);
        self.admit_waiting(now.boot);
    }

    /// Records the starts of waiting executions in the journal, if there is a valid lease.
    pub(crate) fn admit_waiting(&mut self, now: BootMillis) {
        if self.shutting_down || !self.has_lease(now) {
            return;
        }
        while let Some(execution) = self.waiting.pop_front() {
            let Some(held) = self.executions.get_mut(&execution) else { continue };
            held.phase.begin();
            let Execution { fence, phase: Phase::Starting(_), .. } = held else { continue };
            self.journal.record(Entry::Started { execution, fence: *fence }, Effect::Launch(execution));
            if is_on(Mutation::SupervisorStartsBeforeItsJournal) {
                self.ready.push_back(execution);
            }
        }
    }

    /// Returns whether [`Self::next_launch`] may return a launch at `now`.
    pub fn can_launch(&self, now: BootMillis) -> bool {
        let waits = !self.ready.is_empty() || !self.held_back.is_empty();
        waits && !self.shutting_down && self.has_lease(now)
    }

    /// Removes and returns the next execution to launch at `now`; its start is durable.
    ///
    /// The shell answers with [`Event::Launched`](crate::Event::Launched),
    /// [`LaunchHeldBack`](crate::Event::LaunchHeldBack), [`LaunchCancelled`](crate::Event::LaunchCancelled) or
    /// [`LaunchFailed`](crate::Event::LaunchFailed).
    pub fn next_launch(&mut self, now: BootMillis) -> Option<(ExecutionId, Launch<P>)> {
        if !self.can_launch(now) {
            return None;
        }
        if let Some(execution) = self.held_back.pop_front() {
            self.watch_launch(now, execution);
            return Some((execution, Launch::Retry));
        }
        while let Some(execution) = self.ready.pop_front() {
            let Some(held) = self.executions.get_mut(&execution) else { continue };
            let Some(order) = held.phase.launch(Launching::default()) else { continue };
            self.watch_launch(now, execution);
            return Some((execution, Launch::First(order)));
        }
        None
    }
}

impl<P: Payloads> Phase<P> {
    /// Changes a waiting execution to starting.
    fn begin(&mut self) {
        self.change(|phase| match phase {
            Self::Waiting(order) => (Self::Starting(order), ()),
            other => (other, ()),
        });
    }

    /// Changes a starting execution to launching; returns its order.
    fn launch(&mut self, launching: Launching) -> Option<Box<P::StartRequest>> {
        self.change(|phase| match phase {
            Self::Starting(order) => (Self::Launching(Box::new(launching)), Some(order)),
            other => (other, None),
        })
    }

    fn change<T>(&mut self, change: impl FnOnce(Self) -> (Self, T)) -> T {
        let nothing = Self::Ended(Ended { report: Report::Started, is_durable: false, has_folder: false });
        let (phase, result) = change(std::mem::replace(self, nothing));
        *self = phase;
        result
    }
}
