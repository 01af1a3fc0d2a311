//! Executions that a thread is starting.
//!
//! The thread waits until the program is loaded. That may take for ever: the program is on a disk that is gone, or the
//! fuse froze the process before. So the loop knows the process from its birth, and stops it, ends it at its timeout
//! and thaws it like one that runs. One that was killed before its program was loaded is reported like a task that
//! was started and killed.

use std::path::PathBuf;
use std::sync::Arc;

use model::ExecutionId;

use super::Supervisor;
use super::countdown::Pauses;
use super::execution::{Ending, Execution, Phase};
use super::launcher::Birth;
use super::poller::Alarm;
use crate::clock::{BootMillis, Moment, boot_millis};
use crate::process::tree::{self, Root};

/// After this time the log says that a program is not loaded.
const SLOW: BootMillis = 10_000;
/// Until a process is killed again that was killed and that its thread still waits for: at first, and at most. Each time
/// costs a look at all processes, and one that waits for a disk that is gone does not die.
const KILL_AGAIN: BootMillis = 100;
const KILL_AGAIN_MAX: BootMillis = 10_000;

/// An execution that is being started.
#[derive(Debug, Default)]
pub(super) struct Launching {
    pub(super) exempt: bool,
    /// Its control group, to find its processes by before their main process is known.
    pub(super) procs: Option<PathBuf>,
    pub(super) birth: Arc<Birth>,
    /// The timeout of the task, in milliseconds.
    pub(super) timeout: Option<u64>,
    /// When it was frozen.
    pub(super) pauses: Pauses,
    /// When it is killed, if it was asked to end.
    pub(super) kill_at: Option<BootMillis>,
    /// Why it was killed, if it was.
    pub(super) ending: Option<Ending>,
    /// How often it was killed.
    kills: u32,
    /// Whether the log says that it is slow.
    is_told: bool,
}

impl Launching {
    pub(super) fn new(exempt: bool, timeout: Option<u64>) -> Self {
        Self { exempt, timeout, ..Self::default() }
    }

    /// Whether it is still to be started.
    pub(super) fn is_wanted(&self) -> bool {
        self.kill_at.is_none() && self.ending.is_none()
    }

    /// Why it is to be killed at `now`.
    fn ending_at(&self, now: Moment) -> Option<Ending> {
        let is_over = |at: Option<BootMillis>| at.is_some_and(|at| at <= now.boot);
        self.ending
            .or_else(|| is_over(self.kill_at).then_some(Ending::Stopped))
            .or_else(|| is_over(self.times_out_at(now)).then_some(Ending::TimedOut))
    }

    /// When it reaches its timeout; `None` while it is frozen or waits for a thread.
    fn times_out_at(&self, now: Moment) -> Option<BootMillis> {
        self.pauses.countdown(self.birth.began()?, self.timeout?).due(now)
    }

    /// When it is to be looked at again.
    fn look_at(&self, now: Moment) -> BootMillis {
        [self.kill_at, self.times_out_at(now)].into_iter().flatten().fold(now.boot + SLOW, BootMillis::min)
    }

    fn is_slow(&self, now: Moment) -> bool {
        !self.pauses.is_open() && self.birth.began().is_some_and(|began| began.boot + SLOW <= now.boot)
    }
}

impl Supervisor {
    /// Why no task can be started, where every thread has waited for a program for long.
    pub(super) fn trouble(&self) -> Option<String> {
        let now = Moment::now();
        let is_stuck = |execution: &Execution| match &execution.phase {
            Phase::Launching(launching) => launching.is_slow(now),
            _ => false,
        };
        let stuck = self.executions.values().filter(|execution| is_stuck(execution)).count();
        (stuck >= self.launcher.threads()).then(|| {
            format!("cannot start tasks: {stuck} programs are not loaded yet, does their file system answer?")
        })
    }

    /// Executions that are being started: whether they go on without a lease, and their processes.
    pub(super) fn launching(&self) -> impl Iterator<Item = (bool, Root)> {
        self.executions.iter().filter_map(|(id, execution)| match &execution.phase {
            Phase::Launching(launching) => Some((launching.exempt, self.launching_root(*id, launching))),
            _ => None,
        })
    }

    fn launching_root(&self, id: ExecutionId, launching: &Launching) -> Root {
        let pid = launching.birth.pid();
        let is_reaped = pid.is_some_and(|pid| self.early_exits.contains(pid));
        Root { pid, is_reaped, procs: launching.procs.clone(), ..Root::of(id) }
    }

    pub(super) fn launching_mut(&mut self, id: ExecutionId) -> Option<&mut Launching> {
        match &mut self.executions.get_mut(&id)?.phase {
            Phase::Launching(launching) => Some(launching),
            _ => None,
        }
    }

    /// Has an execution looked at that a thread was asked to start.
    pub(super) fn watch_launch(&mut self, id: ExecutionId) {
        let timeout = self.launching_mut(id).and_then(|launching| launching.timeout);
        let look_at = boot_millis().saturating_add(timeout.unwrap_or(SLOW).min(SLOW));
        self.poller.alarm(look_at, Alarm::Launch(id));
    }

    /// Looks at an execution whose start takes long.
    pub(super) fn check_launch(&mut self, id: ExecutionId) {
        // The fuse may have frozen it while we stood still.
        self.hear_fuse();
        let now = Moment::now();
        let Some(launching) = self.launching_mut(id) else { return };
        if let Some(ending) = launching.ending_at(now) {
            return self.kill_launching(&[id], ending);
        }
        if launching.is_slow(now) && !std::mem::replace(&mut launching.is_told, true) {
            let pid = launching.birth.pid();
            tracing::warn!(execution_id = %id, pid, "a program is not loaded yet: does its file system answer?");
        }
        let look_at = launching.look_at(now);
        self.poller.alarm(look_at, Alarm::Launch(id));
    }

    /// Asks an execution to end that is being started; it is killed after `grace_ms` where it is not started by then.
    pub(super) fn stop_launching(&mut self, id: ExecutionId, grace_ms: u64) {
        let (now, has_lease) = (boot_millis(), self.has_lease());
        let Some(launching) = self.launching_mut(id) else { return };
        // What is frozen cannot answer a SIGTERM, and without a lease it must not run to do so.
        let may_run = has_lease || launching.exempt;
        let kill_at = if may_run { now.saturating_add(grace_ms) } else { now };
        let kill_at = launching.kill_at.map_or(kill_at, |before| before.min(kill_at));
        launching.kill_at = Some(kill_at);
        if kill_at <= now {
            self.kill_launching(&[id], Ending::Stopped);
        } else {
            self.poller.alarm(kill_at, Alarm::Launch(id));
        }
    }

    /// Kills executions that are being started, or keeps their threads from starting them.
    pub(super) fn kill_launching(&mut self, ids: &[ExecutionId], ending: Ending) {
        for id in ids {
            let Some(launching) = self.launching_mut(*id) else { continue };
            launching.ending.get_or_insert(ending);
            launching.birth.forbid();
            // Its thread may be about to create the process.
            let again = (KILL_AGAIN << launching.kills.min(16)).min(KILL_AGAIN_MAX);
            launching.kills += 1;
            self.poller.alarm(boot_millis() + again, Alarm::Launch(*id));
        }
        let roots: Vec<_> = self.launching().map(|(_, root)| root).collect();
        let roots: Vec<_> = roots.into_iter().filter(|root| ids.contains(&root.execution)).collect();
        if !roots.is_empty() {
            tree::kill(&roots);
        }
    }
}
