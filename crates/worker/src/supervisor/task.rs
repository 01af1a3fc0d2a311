//! A task: the processes of an execution that was launched, and what the shell keeps of them.

use std::os::fd::OwnedFd;

use model::ExecutionId;
use model::spec::{Delivery, JobSpec};
use proto::v1;
use proto::v1::finished::How;
use supervisor::{BootMillis, StartFailure, Terms, Verdict};

use super::checkpoint::Followed;
use super::convert::start_failed;
use super::folders::Folder;
use super::poller::Token;
use crate::clock::unix_millis;
use crate::process::cgroup::Group;
use crate::process::spawn::{Exit, own_peak_memory, signal_name};
use crate::process::tree::Root;

/// What is to be started.
#[derive(Debug)]
pub(crate) struct Order {
    pub(crate) assignment: v1::Assignment,
    pub(crate) spec: JobSpec,
    /// Whether the agent has filled a folder for it.
    pub(super) staged: bool,
    /// The versions of artifacts in that folder.
    pub(super) inputs: Vec<v1::FileVersion>,
}

impl Order {
    /// What is to be started, as far as this worker understands it.
    pub(crate) fn new(
        assignment: v1::Assignment,
        staged: bool,
        inputs: Vec<v1::FileVersion>,
    ) -> Result<Self, StartFailure> {
        match serde_json::from_slice::<JobSpec>(&assignment.spec) {
            Ok(spec) => Ok(Self { assignment, spec, staged, inputs }),
            Err(error) => {
                let detail = format!("this worker cannot parse the job spec: {error}");
                Err(start_failed("spec_not_understood", detail))
            }
        }
    }

    /// Whether it continues without a lease, because the server starts it nowhere else.
    pub(super) fn is_exempt(&self) -> bool {
        self.spec.delivery == Delivery::AtMostOnce
    }

    /// What the core needs to know of it.
    pub(crate) fn terms(&self) -> Terms {
        Terms {
            at_most_once: self.is_exempt(),
            timeout: self.spec.timeout.map(|timeout| timeout.as_millis()),
            grace: self.spec.grace.as_millis(),
        }
    }
}

/// A task that was started.
#[derive(Debug)]
pub(super) struct Task {
    pub(super) order: Order,
    pub(super) pid: i32,
    pub(super) folder: Folder,
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
    /// How its main process ended.
    pub(super) exit: Option<Exit>,
    pub(super) exited: BootMillis,
}

impl Task {
    /// Whether its main process still runs.
    pub(super) fn is_alive(&self) -> bool {
        self.exit.is_none()
    }

    /// Which processes are its own, as far as their marks say.
    pub(super) fn root(&self, execution: ExecutionId) -> Root {
        let procs = self.group.as_ref().and_then(Group::procs_path);
        Root { pid: Some(self.pid), is_reaped: self.exit.is_some(), procs, ..Root::of(execution) }
    }

    /// What is reported of how it ended, without its output and log.
    pub(super) fn finished(&self, exit: &Exit, verdict: Verdict) -> v1::Finished {
        let oom = self.group.as_ref().is_some_and(|g| g.oom_kills() > 0);
        let (how, detail) = self.how(exit, verdict, oom);
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

    fn how(&self, exit: &Exit, verdict: Verdict, oom: bool) -> (How, String) {
        let timeout = self.order.spec.timeout;
        match verdict {
            Verdict::Stopped => (How::Stopped, "stopped by the server".into()),
            Verdict::TimedOut => (
                How::TimedOut,
                timeout.map_or_else(String::new, |t| format!("ran longer than its timeout of {t}")),
            ),
            Verdict::Orphaned => {
                (How::Interrupted, "the worker was disconnected from the servers for too long".into())
            }
            Verdict::ShutDown => (How::Interrupted, "the worker's supervisor was stopped".into()),
            Verdict::ByItself if oom && exit.code != Some(0) => {
                let limit = self.order.spec.resources.limits.memory.unwrap_or_default();
                (How::OutOfMemory, format!("used more memory than its limit of {limit}"))
            }
            Verdict::ByItself => (How::Exited, described(exit)),
        }
    }
}

/// The most memory that a task held, of what the system says of its process: that counts from before `exec`, when it
/// shared our memory. So up to our own peak it says nothing, and what was `seen` stands, 0 if nothing was.
fn peak_of(told: u64, own: u64, seen: u64) -> u64 {
    if told > own { told } else { seen }
}

/// Describes how a process ended; empty if it succeeded.
fn described(exit: &Exit) -> String {
    match (exit.code, exit.signal) {
        (Some(0), _) => String::new(),
        (Some(code), _) => format!("exited with code {code}"),
        (None, Some(signal)) => format!("killed by signal {signal} ({})", signal_name(signal)),
        (None, None) => "ended without an exit code or a signal".into(),
    }
}

/// Whether a task did what it was meant to.
pub(super) fn is_success(finished: &v1::Finished) -> bool {
    finished.how() == How::Exited && finished.exit_code == Some(0) && finished.error.is_empty()
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
