//! Executions whose program is being loaded.
//!
//! Loading may take forever: the disk of the program may not respond, or the fuse may have frozen the process before.
//! So stops, timeouts, freezes and thaws apply from the creation of the process, not from its first instruction. An
//! execution that was killed before its program was loaded is reported as started and killed.

use model::{ExecutionId, StopReason};

use crate::agenda::Alarm;
use crate::countdown::LaunchFreezes;
use crate::event::{EarlyExit, LaunchFailure};
use crate::execution::{EndReason, Execution, Phase, Task};
use crate::{Action, BootMillis, ClockReading, Payloads, Report, Supervisor};

/// Time in milliseconds after which a launch counts as slow; also the interval between checks.
const SLOW: BootMillis = 10_000;
/// First and maximum delay in milliseconds before a launch is killed again if its thread still waits. Each kill costs
/// a scan of all processes, and a process that waits for a dead disk does not exit.
const KILL_RETRY_FIRST: BootMillis = 100;
const KILL_RETRY_MAX: BootMillis = 10_000;

/// What the shell must launch.
#[derive(Debug)]
pub enum Launch<P: Payloads> {
    /// An execution for which nothing was prepared yet.
    First(Box<P::StartRequest>),
    /// A prepared launch that waited because the lease had expired.
    Retry,
}

/// State of a launch.
#[derive(Debug)]
pub(crate) struct Launching {
    /// Time at which a thread began the launch, if it is known.
    began: Option<ClockReading>,
    /// Freezes during the launch.
    pub(crate) freezes: LaunchFreezes,
    /// Time at which it is killed, after a stop request.
    kill_at: Option<BootMillis>,
    /// Reason of the stop request.
    stop_reason: StopReason,
    /// Reason for killing it; `ByItself` if it was not killed.
    verdict: EndReason,
    /// Number of kills.
    kills: u32,
}

impl Default for Launching {
    fn default() -> Self {
        Self {
            began: None,
            freezes: LaunchFreezes::default(),
            kill_at: None,
            stop_reason: StopReason::Cancelled,
            verdict: EndReason::ByItself,
            kills: 0,
        }
    }
}

impl Launching {
    fn is_active(&self) -> bool {
        self.kill_at.is_none() && self.verdict == EndReason::ByItself
    }

    /// Returns when the timeout is reached; `None` while the launch is frozen or waits for a thread.
    fn times_out_at(&self, now: ClockReading, timeout: Option<u64>) -> Option<BootMillis> {
        self.freezes.countdown(self.began?, timeout?).due(now)
    }

    /// Returns the reason for killing the launch at `now`, if any.
    fn end_reason_at(&self, now: ClockReading, timeout: Option<u64>) -> Option<EndReason> {
        let is_over = |at: Option<BootMillis>| at.is_some_and(|at| at <= now.boot);
        (self.verdict != EndReason::ByItself)
            .then_some(self.verdict)
            .or_else(|| is_over(self.kill_at).then_some(EndReason::Stopped(self.stop_reason)))
            .or_else(|| is_over(self.times_out_at(now, timeout)).then_some(EndReason::TimedOut))
    }

    fn is_slow(&self, now: ClockReading) -> bool {
        !self.freezes.is_open() && self.began.is_some_and(|began| began.boot + SLOW <= now.boot)
    }
}

impl<P: Payloads> Supervisor<P> {
    /// Returns the number of launches that have been loading their program for a long time.
    pub fn slow_launches(&self, now: ClockReading) -> usize {
        let is_slow = |held: &&Execution<P>| matches!(&held.phase, Phase::Launching(launching) if launching.is_slow(now));
        self.executions.values().filter(is_slow).count()
    }

    pub(crate) fn launching_mut(&mut self, execution: ExecutionId) -> Option<(&mut Launching, Option<u64>)> {
        let held = self.executions.get_mut(&execution)?;
        match &mut held.phase {
            Phase::Launching(launching) => Some((launching, held.policy.timeout)),
            _ => None,
        }
    }

    pub(crate) fn watch_launch(&mut self, now: BootMillis, execution: ExecutionId) {
        let Some((_, timeout)) = self.launching_mut(execution) else { return };
        let look_at = now.saturating_add(timeout.unwrap_or(SLOW).min(SLOW));
        self.agenda.set(Alarm::Execution(execution), Some(look_at));
    }

    pub(crate) fn launch_observed(
        &mut self,
        now: ClockReading,
        execution: ExecutionId,
        began: Option<ClockReading>,
    ) {
        let Some((launching, timeout)) = self.launching_mut(execution) else { return };
        launching.began = launching.began.or(began);
        if let Some(verdict) = launching.end_reason_at(now, timeout) {
            return self.kill_launching(now.boot, vec![execution], verdict);
        }
        // A launch that waits for a thread begins now at the earliest.
        let times_out_at = match launching.began {
            Some(_) => launching.times_out_at(now, timeout),
            None => timeout.map(|timeout| now.boot.saturating_add(timeout)),
        };
        let limits = [launching.kill_at, times_out_at];
        let look_at = limits.into_iter().flatten().fold(now.boot + SLOW, BootMillis::min);
        self.agenda.set(Alarm::Execution(execution), Some(look_at));
    }

    pub(crate) fn launch_held_back(&mut self, execution: ExecutionId) {
        let is_wanted = self.launching_mut(execution).is_some_and(|(launching, _)| {
            launching.began = None;
            launching.is_active()
        });
        if is_wanted && !self.shutting_down {
            self.held_back.push_back(execution);
        } else {
            self.drop_launch(execution);
        }
    }

    /// Ends an execution that was prepared and never launched.
    pub(crate) fn drop_launch(&mut self, execution: ExecutionId) {
        self.actions.push_back(Action::DropLaunch(execution));
        self.launch_cancelled(execution);
    }

    pub(crate) fn launch_cancelled(&mut self, execution: ExecutionId) {
        self.refuse_launch(execution, Report::stopped_before_start());
    }

    pub(crate) fn launch_failed(&mut self, execution: ExecutionId, failure: LaunchFailure) {
        let report = match failure {
            LaunchFailure::Failed(failure) => Report::StartFailed(failure),
            LaunchFailure::DiskFull => Report::disk_full(),
        };
        self.refuse_launch(execution, report);
    }

    fn refuse_launch(&mut self, execution: ExecutionId, report: Report<P>) {
        let Some(held) = self.executions.get(&execution) else { return };
        if matches!(held.phase, Phase::Launching(_)) {
            self.record_end(execution, held.fence, report);
        }
    }

    /// Stops an execution that is being launched: it is killed if it is not launched within `grace`.
    pub(crate) fn stop_launching(
        &mut self,
        now: ClockReading,
        execution: ExecutionId,
        grace: u64,
        reason: StopReason,
    ) {
        if let Some(at) = self.held_back.iter().position(|held| *held == execution) {
            self.held_back.remove(at);
            return self.drop_launch(execution);
        }
        let Some(held) = self.executions.get_mut(&execution) else { return };
        // A frozen process cannot handle SIGTERM, and without a lease it must not run to do so.
        let may_run = now.boot < self.lease_until || held.policy.at_most_once;
        let Phase::Launching(launching) = &mut held.phase else { return };
        let kill_at = if may_run { now.boot.saturating_add(grace) } else { now.boot };
        let kill_at = launching.kill_at.map_or(kill_at, |before| before.min(kill_at));
        (launching.kill_at, launching.stop_reason) = (Some(kill_at), reason);
        if kill_at <= now.boot {
            self.kill_launching(now.boot, vec![execution], EndReason::Stopped(reason));
        } else {
            self.actions.push_back(Action::ObserveLaunch(execution));
        }
    }

    /// Kills executions that are being launched, or prevents their launch.
    pub(crate) fn kill_launching(
        &mut self,
        now: BootMillis,
        executions: Vec<ExecutionId>,
        verdict: EndReason,
    ) {
        for execution in &executions {
            let Some((launching, _)) = self.launching_mut(*execution) else { continue };
            launching.verdict = launching.verdict.or(verdict);
            // The thread may be about to create the process.
            let again = (KILL_RETRY_FIRST << launching.kills.min(16)).min(KILL_RETRY_MAX);
            launching.kills += 1;
            self.agenda.set(Alarm::Execution(*execution), Some(now + again));
        }
        self.actions.push_back(Action::KillLaunches(executions));
    }

    /// Processes a loaded program, and applies stops and freezes that occurred during the launch.
    pub(crate) fn launched(
        &mut self,
        now: ClockReading,
        execution: ExecutionId,
        at: ClockReading,
        exit: Option<EarlyExit>,
    ) {
        let Some((launching, timeout)) = self.launching_mut(execution) else { return };
        let Launching { freezes: pauses, kill_at, stop_reason, verdict, .. } = std::mem::take(launching);
        let task = Task {
            started: at.boot,
            timeout: timeout.map(|limit| pauses.countdown(at, limit)),
            kill_at: None,
            is_killed: false,
            // Otherwise the process exited by itself before it was killed.
            verdict: if exit == Some(EarlyExit::Killed) { verdict } else { EndReason::ByItself },
            frozen_since: None,
            thawed_at: None,
            has_exited: exit.is_some(),
        };
        self.set_phase(execution, Phase::Running(Box::new(task)));
        self.agenda.set(Alarm::Execution(execution), None);
        self.queue_report(execution);
        if exit.is_some() {
            return;
        }
        // First, because a frozen task is killed without a grace period.
        self.check_lease(now);
        if verdict != EndReason::ByItself {
            self.end_task(now, execution, verdict, 0);
        } else if let Some(kill_at) = kill_at {
            let grace = kill_at.saturating_sub(now.boot);
            self.end_task(now, execution, EndReason::Stopped(stop_reason), grace);
        }
        if self.shutting_down {
            self.end_task(now, execution, EndReason::ShutDown, 0);
        }
        self.set_alarm(now, execution);
    }
}
