//! Where an execution stands on this worker, and what is reported about it.
//!
//! ```text
//! Waiting ─journal─> Starting ─> Launching ─exec─> Running ─> (Storing) ─journal─> Ended ─ack─> forgotten
//!    └────────────────┴──────────────┴─ refused, or failed to start ─────────────────┘
//! ```

use std::os::fd::OwnedFd;

use model::spec::{Delivery, JobSpec};
use model::{ExecutionId, Fence};
use proto::v1::finished::How;
use proto::v1::{self, report};

use super::checkpoint::Followed;
use super::countdown::Countdown;
use super::folders::Folder;
use super::launching::Launching;
use super::poller::Token;
use crate::clock::{BootMillis, Moment, unix_millis};
use crate::process::cgroup::Group;
use crate::process::spawn::{Exit, own_peak_memory, signal_name};
use crate::process::tree::Root;

/// An execution that is held.
#[derive(Debug)]
pub(super) struct Execution {
    pub(super) fence: Fence,
    pub(super) phase: Phase,
    /// Whether its report is to be sent.
    pub(super) dirty: bool,
    /// Whether the server no longer wants to hear of it.
    pub(super) discard: bool,
    /// Whether its folder is to be removed once its end is durable.
    pub(super) has_folder: bool,
}

/// Where an execution stands.
#[derive(Debug)]
pub(super) enum Phase {
    /// Nothing is written down yet; it waits for a lease.
    Waiting(Box<Order>),
    /// Its start is in the journal, or on the way there.
    Starting(Box<Order>),
    /// A thread is starting it; it may run already.
    Launching(Box<Launching>),
    /// Its process runs, or what that left behind is being killed.
    Running(Box<Task>),
    /// It ran well, and its outputs are being stored.
    Storing { assignment: Box<v1::Assignment>, finished: Box<v1::Finished> },
    /// It is over. Reported only once it is durable.
    Ended { report: Box<v1::Report>, durable: bool },
}

impl Phase {
    /// The job, as long as its assignment is at hand.
    pub(super) fn job_id(&self) -> Option<&str> {
        let assignment = match self {
            Self::Waiting(order) | Self::Starting(order) => &order.assignment,
            Self::Running(task) => &task.order.assignment,
            Self::Storing { assignment, .. } => assignment,
            Self::Launching(_) | Self::Ended { .. } => return None,
        };
        Some(&assignment.job_id)
    }
}

/// What is to be started.
#[derive(Debug)]
pub(super) struct Order {
    pub(super) assignment: v1::Assignment,
    pub(super) spec: JobSpec,
    /// Whether the agent has filled a folder for it.
    pub(super) staged: bool,
    /// The versions of artifacts in that folder.
    pub(super) inputs: Vec<v1::FileVersion>,
}

impl Order {
    /// Whether it goes on without a lease, because it will not be started anywhere else.
    pub(super) fn is_exempt(&self) -> bool {
        self.spec.delivery == Delivery::AtMostOnce
    }
}

/// A task that was started.
#[derive(Debug)]
pub(super) struct Task {
    pub(super) order: Order,
    pub(super) pid: i32,
    /// Its folder, until it has ended.
    pub(super) folder: Option<Folder>,
    /// By what its door is watched.
    pub(super) door: Option<Token>,
    /// How far the file that it writes checkpoints to was followed.
    pub(super) checkpoint: Followed,
    pub(super) started: BootMillis,
    pub(super) started_unix_millis: i64,
    /// The most memory that was seen in its main process, in bytes.
    pub(super) seen_memory: u64,
    /// Its standard output and standard error, until they are closed.
    pub(super) pipes: [Option<(Token, OwnedFd)>; 2],
    pub(super) group: Option<Group>,
    /// What is left of its timeout.
    pub(super) timeout: Option<Countdown>,
    /// When it is killed, once it was asked to end.
    pub(super) kill_at: Option<BootMillis>,
    /// Why we end it, if we do.
    pub(super) ending: Option<Ending>,
    pub(super) frozen_since: Option<Moment>,
    /// How its main process ended.
    pub(super) exit: Option<Exit>,
    pub(super) exited: BootMillis,
}

/// Why we end a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    Stopped,
    TimedOut,
    /// It was frozen for too long.
    Orphaned,
    /// The supervisor itself was told to end.
    Shutdown,
}

impl Task {
    /// Which processes are its own, as far as their marks say.
    pub(super) fn root(&self, execution: ExecutionId) -> Root {
        let procs = self.group.as_ref().and_then(Group::procs_path);
        Root { pid: Some(self.pid), is_reaped: self.exit.is_some(), procs, ..Root::of(execution) }
    }

    /// It was frozen at `at`, by whomever.
    pub(super) fn halt(&mut self, at: Moment) {
        self.frozen_since = Some(self.frozen_since.filter(|since| since.boot <= at.boot).unwrap_or(at));
        if let Some(timeout) = &mut self.timeout {
            timeout.halt(at);
        }
    }

    /// It goes on at `now`; returns when it reaches its timeout, if it has one.
    pub(super) fn resume(&mut self, now: Moment) -> Option<BootMillis> {
        self.frozen_since = None;
        let timeout = self.timeout.as_mut()?;
        timeout.resume(now);
        timeout.due(now)
    }

    pub(super) fn is_exempt(&self) -> bool {
        self.order.is_exempt()
    }

    /// What is reported of how it ended, without its output and log.
    pub(super) fn finished(&self, exit: &Exit) -> v1::Finished {
        let oom = self.group.as_ref().is_some_and(|g| g.oom_kills() > 0);
        let (how, detail) = self.verdict(exit, oom);
        let peak = self.group.as_ref().and_then(Group::peak_memory);
        let peak =
            peak.unwrap_or_else(|| peak_of(exit.peak_memory_bytes, own_peak_memory(), self.seen_memory));
        v1::Finished {
            how: how.into(),
            exit_code: exit.code,
            signal: exit.signal,
            detail,
            run_ms: self.exited.saturating_sub(self.started),
            cpu_ms: exit.cpu_millis,
            peak_memory_bytes: peak,
            started_at_unix_ms: self.started_unix_millis,
            finished_at_unix_ms: unix_millis(),
            ..v1::Finished::default()
        }
    }

    fn verdict(&self, exit: &Exit, oom: bool) -> (How, String) {
        let timeout = self.order.spec.timeout;
        match self.ending {
            Some(Ending::Stopped) => (How::Stopped, "stopped because the server asked".into()),
            Some(Ending::TimedOut) => (
                How::TimedOut,
                timeout.map_or_else(String::new, |t| format!("ran longer than its timeout of {t}")),
            ),
            Some(Ending::Orphaned) => (How::Interrupted, "the worker reached no server for too long".into()),
            Some(Ending::Shutdown) => (How::Interrupted, "the worker's supervisor was stopped".into()),
            None if oom && exit.code != Some(0) => {
                let limit = self.order.spec.resources.limits.memory.unwrap_or_default();
                (How::OutOfMemory, format!("used more memory than its limit of {limit}"))
            }
            None => (How::Exited, described(exit)),
        }
    }
}

/// The most memory that a task held, of what the system says of its process: that counts from before `exec`, when it
/// shared our memory. So up to our own peak it says nothing, and what was `seen` stands, 0 if nothing was.
fn peak_of(told: u64, own: u64, seen: u64) -> u64 {
    if told > own { told } else { seen }
}

/// How a process ended, for people; empty if it ended well.
fn described(exit: &Exit) -> String {
    match (exit.code, exit.signal) {
        (Some(0), _) => String::new(),
        (Some(code), _) => format!("exited with code {code}"),
        (None, Some(signal)) => format!("killed by signal {signal} ({})", signal_name(signal)),
        (None, None) => "ended in an unknown way".into(),
    }
}

/// Whether a task did what it was meant to.
pub(super) fn is_success(finished: &v1::Finished) -> bool {
    finished.how() == How::Exited && finished.exit_code == Some(0) && finished.error.is_empty()
}

/// What became of an execution that was running when its supervisor ended.
pub(super) fn interrupted(detail: &str) -> report::Body {
    report::Body::Finished(v1::Finished {
        how: How::Interrupted.into(),
        detail: detail.to_owned(),
        finished_at_unix_ms: unix_millis(),
        ..v1::Finished::default()
    })
}

pub(super) fn refused(reason: &str, detail: impl Into<String>) -> report::Body {
    report::Body::Refused(v1::Refused { reason: reason.to_owned(), detail: detail.into() })
}

pub(super) fn start_failed(code: &str, detail: impl Into<String>) -> v1::StartFailed {
    v1::StartFailed { code: code.to_owned(), detail: detail.into() }
}

impl Execution {
    pub(super) fn new(fence: Fence, phase: Phase) -> Self {
        Self { fence, phase, dirty: false, discard: false, has_folder: false }
    }

    /// Whether it takes one of the worker's slots.
    pub(super) fn is_active(&self) -> bool {
        !matches!(self.phase, Phase::Ended { .. })
    }

    /// What is to be said of it now, if anything.
    pub(super) fn report(&self, id: ExecutionId) -> Option<v1::Report> {
        match &self.phase {
            Phase::Running(task) => {
                let pid = u32::try_from(task.pid).unwrap_or(0);
                let started = v1::Started { at_unix_ms: task.started_unix_millis, pid };
                Some(report_of(id, self.fence, report::Body::Started(started)))
            }
            // Its process is gone, and still the execution is not over.
            Phase::Storing { finished, .. } => {
                let started = v1::Started { at_unix_ms: finished.started_at_unix_ms, pid: 0 };
                Some(report_of(id, self.fence, report::Body::Started(started)))
            }
            Phase::Ended { report, durable: true } => Some((**report).clone()),
            _ => None,
        }
    }
}

pub(super) fn report_of(id: ExecutionId, fence: Fence, body: report::Body) -> v1::Report {
    v1::Report { execution_id: id.to_string(), fence: fence.0, body: Some(body) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_memory_is_not_taken_for_that_of_a_task() {
        assert_eq!(peak_of(64 << 20, 20 << 20, 1 << 20), 64 << 20);
        assert_eq!(peak_of(20 << 20, 20 << 20, 1 << 20), 1 << 20);
        assert_eq!(peak_of(19 << 20, 20 << 20, 0), 0, "it ended before anybody looked");
    }
}
