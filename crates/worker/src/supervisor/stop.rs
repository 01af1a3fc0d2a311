//! What ends or halts a task: stops, timeouts, and a lease that has run out.

use model::{ExecutionId, Fence};
use proto::v1;
use proto::v1::finished::How;
use proto::v1::report;
use rustix::process::Signal;

use super::execution::{Ending, Phase, refused};
use super::fuse_link::FuseLink;
use super::launching::Launching;
use super::poller::Alarm;
use super::{Body, Supervisor};
use crate::clock::{BootMillis, Moment, boot_millis};
use crate::process::tree;
use crate::supervisor::journal::Forgotten;

impl Supervisor {
    // Stops.

    pub(super) fn take_stops(&mut self, stops: Vec<v1::Stop>) {
        for stop in stops {
            match stop.execution_id.parse::<ExecutionId>() {
                Ok(id) => self.take_stop(id, &stop),
                Err(error) => tracing::error!(%error, "a stop has no proper id"),
            }
        }
    }

    fn take_stop(&mut self, id: ExecutionId, stop: &v1::Stop) {
        let Some(execution) = self.executions.get_mut(&id) else {
            return self.stop_unknown(id, stop);
        };
        execution.discard |= stop.discard;
        let fence = execution.fence;
        match &mut execution.phase {
            Phase::Waiting(_) | Phase::Starting(_) => {
                self.decline(id, fence, refused("stopped", "it was stopped before it started"));
            }
            Phase::Launching(_) => {
                self.give_up_held_back(id);
                self.stop_launching(id, stop.grace_ms);
            }
            Phase::Running(_) => self.end_task(id, Ending::Stopped, stop.grace_ms),
            Phase::Storing { finished, .. } => {
                let mut finished = (**finished).clone();
                finished.how = How::Stopped.into();
                "stopped while its outputs were stored".clone_into(&mut finished.detail);
                self.conclude(id, report::Body::Finished(finished));
            }
            Phase::Ended { .. } if stop.discard => self.forget(id),
            Phase::Ended { .. } => self.announce(id),
        }
    }

    /// A stop may come before its assignment: then that must never start. One that comes after the end was acknowledged
    /// is late, or of a server whose store forgot that end: it asks until it is told.
    fn stop_unknown(&mut self, id: ExecutionId, stop: &v1::Stop) {
        if self.forgotten.contains(id) {
            if !stop.discard {
                self.tell_over_before(id, Fence(stop.fence));
            }
            return;
        }
        if stop.discard {
            self.remember(id);
            self.note(Body::Forgotten(Forgotten { execution_id: id.to_string() }));
        } else {
            self.decline(id, Fence(stop.fence), refused("stopped", "it was stopped before it came here"));
        }
    }

    /// Asks a task to end, and kills it after `grace_ms`.
    pub(super) fn end_task(&mut self, id: ExecutionId, ending: Ending, grace_ms: u64) {
        let Some(task) = self.task_mut(id).filter(|task| task.is_alive()) else { return };
        let first = task.ending.is_none();
        task.ending.get_or_insert(ending);
        // What is frozen cannot answer a SIGTERM, and without a lease it must not run to do so.
        let at_once = grace_ms == 0 || task.frozen_since.is_some();
        let kill_at = if at_once { 0 } else { boot_millis() + grace_ms };
        let kill_at = task.kill_at.map_or(kill_at, |before| before.min(kill_at));
        task.kill_at = Some(kill_at);
        if at_once {
            self.kill_tasks(&[id]);
        } else {
            if first {
                tree::signal_group(task.pid, Signal::TERM);
            }
            self.poller.alarm(kill_at, Alarm::Task(id));
        }
    }

    /// Ends a task that has reached its timeout, kills one that has used up its grace.
    pub(super) fn check_task(&mut self, id: ExecutionId) {
        let now = boot_millis();
        let Some(task) = self.task(id).filter(|task| task.is_alive()) else { return };
        if task.kill_at.is_some_and(|at| at <= now) {
            self.kill_tasks(&[id]);
        } else if task.ending.is_none() {
            self.check_timeout(id);
        }
    }

    fn check_timeout(&mut self, id: ExecutionId) {
        // The fuse may have frozen it while we stood still.
        self.hear_fuse();
        let now = Moment::now();
        let Some(task) = self.task_mut(id).filter(|task| task.is_alive()) else { return };
        let grace = task.order.spec.grace.as_millis();
        // Nothing while it is frozen: it is looked at again when it thaws.
        let Some(at) = task.timeout.as_mut().and_then(|timeout| timeout.due(now)) else { return };
        if at <= now.boot {
            self.end_task(id, Ending::TimedOut, grace);
        } else {
            self.poller.alarm(at, Alarm::Task(id));
        }
    }

    // The lease.

    /// The lease goes until `until`: what was frozen thaws.
    pub(super) fn renew_lease(&mut self, until: BootMillis) {
        if until <= self.lease_until || until <= boot_millis() {
            return;
        }
        let has_lapsed = !self.has_lease();
        self.lease_until = until;
        if self.fuse.as_ref().is_some_and(FuseLink::is_stopped) {
            tracing::error!("the fuse was stopped, it is replaced");
            self.replace_fuse();
        } else if let Some(fuse) = &mut self.fuse {
            fuse.tell_lease(until);
        }
        // Before anything thaws: if we are stopped in between, nobody else would freeze it again.
        self.flush_fuse();
        self.launcher.tell_lease(until);
        self.poller.alarm(until, Alarm::Lease);
        let frozen: Vec<_> =
            self.running().filter(|(_, t)| t.frozen_since.is_some()).map(|(id, _)| id).collect();
        self.thaw(&frozen);
        if has_lapsed {
            self.thaw_launching();
        }
        self.admit_waiting();
    }

    /// Freezes what may run elsewhere, if the lease has run out.
    pub(super) fn check_lease(&mut self) {
        if self.has_lease() {
            return;
        }
        let ids: Vec<_> = self
            .running()
            .filter(|(_, task)| !task.is_exempt() && task.frozen_since.is_none())
            .map(|(id, _)| id)
            .collect();
        if ids.is_empty() {
            return;
        }
        tracing::warn!(executions = ids.len(), "the lease has run out, executions are frozen");
        tree::freeze(&self.roots(&ids));
        self.halted(&ids, Moment::now());
    }

    /// These tasks are frozen since `at`.
    fn halted(&mut self, ids: &[ExecutionId], at: Moment) {
        let orphaned_at = boot_millis() + self.config.orphan_limit.as_millis();
        for id in ids {
            let Some(task) = self.task_mut(*id) else { continue };
            let is_known = task.frozen_since.is_some();
            task.halt(at);
            if !is_known {
                self.poller.alarm(orphaned_at, Alarm::Orphan(*id));
            }
        }
    }

    /// The fuse has frozen everything that is not exempt, since `at`: at the end of a lease, or just before we
    /// renewed it.
    pub(super) fn fuse_has_frozen(&mut self, at: Moment) {
        let ids: Vec<_> = self
            .running()
            .filter(|(_, task)| !task.is_exempt() && task.started <= at.boot)
            .map(|(id, _)| id)
            .collect();
        self.halted(&ids, at);
        for launching in self.launching_unexempt() {
            launching.pauses.halt(at);
        }
        if !self.has_lease() {
            return self.check_lease();
        }
        self.thaw_all();
    }

    /// Lets go on whatever the fuse may have frozen.
    pub(super) fn thaw_all(&mut self) {
        let ids: Vec<_> = self.running().filter(|(_, task)| !task.is_exempt()).map(|(id, _)| id).collect();
        self.thaw(&ids);
        self.thaw_launching();
    }

    /// Lets what the fuse may have frozen before we heard that it was started go on.
    fn thaw_launching(&mut self) {
        let now = Moment::now();
        for launching in self.launching_unexempt() {
            launching.pauses.resume(now);
        }
        let roots: Vec<_> = self.launching().filter(|(exempt, _)| !exempt).map(|(_, root)| root).collect();
        if !roots.is_empty() {
            tree::thaw(&roots);
        }
    }

    fn launching_unexempt(&mut self) -> impl Iterator<Item = &mut Launching> {
        self.executions.values_mut().filter_map(|execution| match &mut execution.phase {
            Phase::Launching(launching) if !launching.exempt => Some(&mut **launching),
            _ => None,
        })
    }

    /// Lets tasks go on; the time that they were frozen counts towards no timeout.
    fn thaw(&mut self, ids: &[ExecutionId]) {
        let now = Moment::now();
        let roots = self.roots(ids);
        if roots.is_empty() {
            return;
        }
        for id in ids {
            if let Some(at) = self.task_mut(*id).and_then(|task| task.resume(now)) {
                self.poller.alarm(at, Alarm::Task(*id));
            }
        }
        tree::thaw(&roots);
        tracing::info!(executions = roots.len(), "under a valid lease, executions go on");
    }

    /// Kills a task that has been frozen for too long.
    pub(super) fn check_orphan(&mut self, id: ExecutionId) {
        let limit = self.config.orphan_limit.as_millis();
        let Some(since) = self.task(id).and_then(|task| task.frozen_since) else { return };
        let now = Moment::now();
        // While the machine was suspended no server could be reached, and none is to blame.
        let suspended = now.asleep.saturating_sub(since.asleep);
        let orphaned_at = since.boot + limit + suspended;
        if orphaned_at > now.boot {
            return self.poller.alarm(orphaned_at, Alarm::Orphan(id));
        }
        tracing::warn!(execution_id = %id, "frozen for too long, killed");
        self.end_task(id, Ending::Orphaned, 0);
    }
}
