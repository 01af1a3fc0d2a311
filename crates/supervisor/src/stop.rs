//! Early ends of executions: stops, timeouts, failed health checks, grace periods, and the shutdown of the supervisor.

use model::{ExecutionId, Fence, StopReason};
use mutation::{Mutation, is_on};

use crate::agenda::Alarm;
use crate::execution::{EndReason, Execution, Phase, Task};
use crate::journal::Entry;
use crate::{Action, BootMillis, ClockReading, Payloads, Report, Supervisor};

impl<P: Payloads> Supervisor<P> {
    pub(crate) fn stop_requested(
        &mut self,
        now: ClockReading,
        execution: ExecutionId,
        fence: Fence,
        grace: u64,
        discard: bool,
        reason: StopReason,
    ) {
        let Some(held) = self.executions.get_mut(&execution) else {
            return self.stop_unknown(now.boot, execution, fence, discard);
        };
        held.discard |= discard;
        let fence = held.fence;
        match &mut held.phase {
            Phase::Waiting(_) | Phase::Starting(_) => {
                self.record_end(execution, fence, Report::stopped_before_start());
            }
            Phase::Launching(_) => self.stop_launching(now, execution, grace, reason),
            Phase::Running(_) => {
                self.end_task(now, execution, EndReason::Stopped(reason), grace);
                self.set_alarm(now, execution);
            }
            Phase::Storing(storing) => {
                let mut end = storing.1.clone();
                P::stop_while_storing(&mut end);
                self.record_end(execution, fence, Report::Ended(Box::new(end)));
            }
            Phase::Ended(_) if discard => self.drop_acknowledged(now.boot, execution),
            Phase::Ended(_) => self.queue_report(execution),
        }
    }

    /// Handles a stop for an execution that is not held. If it arrives before the assignment, the execution must
    /// never start. If it arrives after the acknowledged end, it is late, or the server's store has lost that end;
    /// the server repeats the stop until it gets an answer.
    fn stop_unknown(&mut self, now: BootMillis, execution: ExecutionId, fence: Fence, discard: bool) {
        match (self.forgotten.contains(execution), discard) {
            (true, true) => {}
            (true, false) => self.report_already_run(execution, fence),
            (false, true) => {
                self.forgotten.insert_acknowledged(execution, now);
                self.journal.note(Entry::Forgotten { execution });
            }
            (false, false) => {
                self.record_end(
                    execution,
                    fence,
                    Report::refused("stopped", "the execution was stopped before it reached the worker"),
                );
            }
        }
    }

    /// Ends a running execution whose startup or liveness check has failed too often since `since`.
    pub(crate) fn check_failed(
        &mut self,
        now: ClockReading,
        execution: ExecutionId,
        fence: Fence,
        since: BootMillis,
    ) {
        let has_lease = self.has_lease(now.boot);
        let Some(held) = self.executions.get(&execution).filter(|held| held.fence == fence) else { return };
        let Execution { policy, phase: Phase::Running(task), .. } = held else { return };
        let may_run = has_lease || policy.at_most_once;
        // A frozen execution answers no check, so the failure proves nothing.
        if !may_run || task.was_frozen_since(since) || task.verdict != EndReason::ByItself {
            return;
        }
        let grace = policy.grace;
        self.end_task(now, execution, EndReason::Unhealthy, grace);
        self.set_alarm(now, execution);
    }

    /// Sends SIGTERM to an execution, and kills it after `grace`.
    pub(crate) fn end_task(
        &mut self,
        now: ClockReading,
        execution: ExecutionId,
        verdict: EndReason,
        grace: u64,
    ) {
        let Some(task) = self.task_mut(execution).filter(|task| !task.has_exited) else { return };
        let is_first = task.verdict == EndReason::ByItself;
        task.verdict = task.verdict.or(verdict);
        // A frozen process cannot handle SIGTERM, and without a lease it must not run to do so.
        if grace == 0 || task.frozen_since.is_some() {
            task.is_killed = true;
            return self.actions.push_back(Action::Kill(vec![execution]));
        }
        let kill_at = now.boot.saturating_add(grace);
        task.kill_at = Some(task.kill_at.map_or(kill_at, |before| before.min(kill_at)));
        if is_first {
            let reason = match verdict {
                EndReason::Stopped(reason) => reason,
                EndReason::Unhealthy => StopReason::Unhealthy,
                _ => StopReason::TimedOut,
            };
            self.actions.push_back(Action::Terminate(execution, reason));
        }
    }

    /// Checks the time limits of an execution.
    pub(crate) fn check_task(&mut self, now: ClockReading, execution: ExecutionId) {
        let orphan_limit = self.limits.orphan_limit;
        let Some(held) = self.executions.get_mut(&execution) else { return };
        let grace = held.policy.grace;
        let Phase::Running(task) = &mut held.phase else { return };
        let is_over = |at: Option<BootMillis>| at.is_some_and(|at| at <= now.boot);
        if task.has_exited {
            return;
        }
        if is_over(task.orphaned_at(now, orphan_limit)) {
            self.end_task(now, execution, EndReason::Orphaned, 0);
        } else if is_over(task.kill_at) && !task.is_killed {
            task.is_killed = true;
            self.actions.push_back(Action::Kill(vec![execution]));
        } else if is_over(task.times_out_at(now)) {
            self.end_task(now, execution, EndReason::TimedOut, grace);
        }
        self.set_alarm(now, execution);
    }

    /// Sets the alarm of a running execution to its next time limit.
    pub(crate) fn set_alarm(&mut self, now: ClockReading, execution: ExecutionId) {
        let orphan_limit = self.limits.orphan_limit;
        let Some(task) = self.task_mut(execution) else { return };
        let at = task.next_limit(now, orphan_limit);
        self.agenda.set(Alarm::Execution(execution), at);
    }

    /// Kills all executions; those that were not launched are reported as refused.
    pub(crate) fn shut_down(&mut self, now: ClockReading) {
        if std::mem::replace(&mut self.shutting_down, true) {
            return;
        }
        for execution in std::mem::take(&mut self.held_back) {
            self.drop_launch(execution);
        }
        let (mut running, mut launching, mut unstarted) = (Vec::new(), Vec::new(), Vec::new());
        for (id, Execution { fence, phase, .. }) in &mut self.executions {
            match phase {
                Phase::Running(task) => {
                    if !task.has_exited {
                        task.verdict = task.verdict.or(EndReason::ShutDown);
                        task.is_killed = true;
                    }
                    running.push(*id);
                }
                Phase::Launching(_) => launching.push(*id),
                Phase::Waiting(_) | Phase::Starting(_) => unstarted.push((*id, *fence)),
                Phase::Storing(_) | Phase::Ended(_) => {}
            }
        }
        if !running.is_empty() {
            self.actions.push_back(Action::Kill(running));
        }
        for (execution, fence) in unstarted {
            let detail = "the worker's supervisor was stopped before the execution started";
            self.record_end(execution, fence, Report::refused("stopped", detail));
        }
        if !launching.is_empty() {
            self.kill_launching(now.boot, launching, EndReason::ShutDown);
        }
    }
}

impl Task {
    /// Returns whether the task is frozen, or may have been frozen since `at`.
    fn was_frozen_since(&self, at: BootMillis) -> bool {
        self.frozen_since.is_some() || self.thawed_at.is_some_and(|thawed| at <= thawed)
    }

    /// Returns when the timeout is reached; `None` while the task is frozen, or once it is being ended.
    fn times_out_at(&mut self, now: ClockReading) -> Option<BootMillis> {
        if self.verdict != EndReason::ByItself || is_on(Mutation::SupervisorIgnoresTimeouts) {
            return None;
        }
        self.timeout.as_mut()?.due(now)
    }

    /// Returns when the orphan limit is reached. Suspended time of the machine does not count, because the worker
    /// could not reach a server then.
    fn orphaned_at(&self, now: ClockReading, limit: u64) -> Option<BootMillis> {
        let since = self.frozen_since.filter(|_| !self.is_killed)?;
        Some(since.boot + limit + now.suspended.saturating_sub(since.suspended))
    }

    fn next_limit(&mut self, now: ClockReading, orphan_limit: u64) -> Option<BootMillis> {
        if self.has_exited || self.is_killed {
            return None;
        }
        let limits = [self.kill_at, self.times_out_at(now), self.orphaned_at(now, orphan_limit)];
        limits.into_iter().flatten().min()
    }
}
