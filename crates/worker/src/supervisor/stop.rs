//! What ends or halts a task: stops, timeouts, and a lease that has run out.

use model::{ExecutionId, Fence};
use proto::v1;
use proto::v1::finished::How;
use proto::v1::report;
use rustix::process::Signal;

use super::execution::{Ending, Phase, refused};
use super::poller::Alarm;
use super::{Body, Supervisor};
use crate::clock::{BootMillis, boot_millis};
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
            Phase::Launching { stop: pending, .. } => {
                *pending = Some(pending.map_or(stop.grace_ms, |before| before.min(stop.grace_ms)));
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
        if self.forgotten_set.contains(&id) {
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
        } else if task.ending.is_none()
            && task.frozen_since.is_none()
            && task.timeout_at.is_some_and(|at| at <= now)
        {
            let grace = task.order.spec.grace.as_millis();
            self.end_task(id, Ending::TimedOut, grace);
        }
    }

    // The lease.

    /// The lease goes until `until`: what was frozen thaws.
    pub(super) fn renew_lease(&mut self, until: BootMillis) {
        if until <= self.lease_until || until <= boot_millis() {
            return;
        }
        self.lease_until = until;
        if let Some(fuse) = &mut self.fuse {
            fuse.tell_lease(until);
        }
        // Before anything thaws: if we are stopped in between, nobody else would freeze it again.
        self.flush_fuse();
        self.poller.alarm(until, Alarm::Lease);
        let frozen: Vec<_> =
            self.running().filter(|(_, t)| t.frozen_since.is_some()).map(|(id, _)| id).collect();
        self.thaw(&frozen);
        self.admit_waiting();
    }

    /// Freezes what may run elsewhere, if the lease has run out.
    pub(super) fn check_lease(&mut self) {
        if self.has_lease() {
            return;
        }
        let now = boot_millis();
        let ids: Vec<_> = self
            .running()
            .filter(|(_, task)| !task.is_exempt() && task.frozen_since.is_none())
            .map(|(id, _)| id)
            .collect();
        if ids.is_empty() {
            return;
        }
        tracing::warn!(executions = ids.len(), "the lease has run out, executions are frozen");
        let roots: Vec<_> = ids.iter().filter_map(|id| Some(self.task(*id)?.root(*id))).collect();
        tree::freeze(&roots);
        let orphaned_at = now + self.config.orphan_limit.as_millis();
        for id in ids {
            self.poller.alarm(orphaned_at, Alarm::Orphan(id));
            self.task_mut(id).into_iter().for_each(|task| task.frozen_since = Some(now));
        }
    }

    /// The fuse has frozen everything that is not exempt: at the end of a lease, or just before we
    /// renewed it.
    pub(super) fn fuse_has_frozen(&mut self) {
        if !self.has_lease() {
            return self.check_lease();
        }
        let ids: Vec<_> = self.running().filter(|(_, task)| !task.is_exempt()).map(|(id, _)| id).collect();
        self.thaw(&ids);
    }

    /// Lets tasks go on; the time that they were frozen counts towards no timeout.
    fn thaw(&mut self, ids: &[ExecutionId]) {
        let now = boot_millis();
        let roots: Vec<_> = ids.iter().filter_map(|id| Some(self.task(*id)?.root(*id))).collect();
        if roots.is_empty() {
            return;
        }
        for id in ids {
            let Some(task) = self.task_mut(*id) else { continue };
            let frozen = task.frozen_since.take().map_or(0, |since| now.saturating_sub(since));
            let Some(at) = &mut task.timeout_at else { continue };
            *at += frozen;
            let at = *at;
            self.poller.alarm(at, Alarm::Task(*id));
        }
        tree::thaw(&roots);
        tracing::info!(executions = roots.len(), "the lease is renewed, executions go on");
    }

    /// Kills a task that has been frozen for too long.
    pub(super) fn check_orphan(&mut self, id: ExecutionId) {
        let limit = self.config.orphan_limit.as_millis();
        let now = boot_millis();
        if self.task(id).and_then(|task| task.frozen_since).is_some_and(|since| since + limit <= now) {
            tracing::warn!(execution_id = %id, "frozen for too long, killed");
            self.end_task(id, Ending::Orphaned, 0);
        }
    }
}
