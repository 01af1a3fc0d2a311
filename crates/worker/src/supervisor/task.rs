//! A task: the processes of a launched execution, and the resources that the shell holds for it.

use std::os::fd::OwnedFd;

use model::ExecutionId;
use model::spec::{Delivery, JobSpec, Run, SandboxLevel, SecretReference};
use proto::v1;
use proto::v1::finished::How;
use supervisor::{BootMillis, EndReason, ExecutionPolicy, StartFailure};

use super::checkpoint::CheckpointFile;
use super::convert::start_failed;
use super::error_line::LastOutput;
use super::folders::Folder;
use super::poller::Token;
use super::ports::PortNumbers;
use super::secret_files::SecretFiles;
use super::task_usage::TaskUsage;
use super::volumes::VolumePaths;
use crate::clock::unix_millis;
use crate::link::CheckedHealth;
use crate::mask::{HeldBack, Mask};
use crate::process::cgroup::Group;
use crate::process::spawn::{Exit, own_peak_memory, signal_name};
use crate::process::tree::Root;

/// Error code of an execution whose startup or liveness check has failed too often.
const UNHEALTHY: &str = "unhealthy";

/// An assignment with its parsed spec.
#[derive(Debug)]
pub(crate) struct StartRequest {
    pub(crate) assignment: v1::Assignment,
    pub(crate) spec: JobSpec,
    /// Whether the agent has filled a folder for the execution.
    pub(super) staged: bool,
    /// Versions of the artifacts in that folder.
    pub(super) inputs: Vec<v1::FileVersion>,
    /// Values of the secrets of the job.
    pub(super) secrets: Vec<v1::SecretValue>,
    /// Files with secrets; written before the launch.
    pub(super) secret_files: Option<SecretFiles>,
}

impl StartRequest {
    /// Parses the spec of an assignment; fails if this worker does not support it.
    pub(crate) fn new(
        assignment: v1::Assignment,
        staged: bool,
        inputs: Vec<v1::FileVersion>,
        secrets: Vec<v1::SecretValue>,
    ) -> Result<Self, StartFailure> {
        match serde_json::from_slice::<JobSpec>(&assignment.spec) {
            Ok(spec) => match model::validate::sandbox_conflict(&spec) {
                Some(problem) => Err(start_failed("sandbox_conflict", problem)),
                None => {
                    let order = Self { assignment, spec, staged, inputs, secrets, secret_files: None };
                    order.check_secrets().map(|()| order)
                }
            },
            Err(error) => {
                let detail = format!("this worker cannot parse the job spec: {error}");
                Err(start_failed("spec_not_understood", detail))
            }
        }
    }

    /// Checks that each reference to a secret has a value that an environment variable can have.
    fn check_secrets(&self) -> Result<(), StartFailure> {
        for reference in &self.spec.secrets {
            let value = self.secret(reference);
            if !value.is_some_and(|value| std::str::from_utf8(value).is_ok_and(|text| !text.contains('\0'))) {
                let detail = format!("the worker got no valid value of secret `{}`", reference.secret);
                return Err(start_failed("secrets_unavailable", detail));
            }
        }
        Ok(())
    }

    /// Returns the value of a reference to a secret.
    pub(super) fn secret(&self, reference: &SecretReference) -> Option<&[u8]> {
        let is_its =
            |value: &&v1::SecretValue| value.secret == reference.secret && value.key == reference.key;
        self.secrets.iter().find(is_its).map(|value| &*value.value)
    }

    /// Returns the variables with values of secrets.
    pub(super) fn secret_variables(&self) -> impl Iterator<Item = (&str, &str)> {
        self.spec.secrets.iter().filter_map(|reference| {
            let name = reference.env.as_deref()?;
            Some((name, std::str::from_utf8(self.secret(reference)?).ok()?))
        })
    }

    /// Returns what hides the values of the secrets in logs and reports; `None` if there are none.
    pub(super) fn mask(&self) -> Option<Mask> {
        Mask::new(self.secrets.iter().map(|secret| &*secret.value))
    }

    /// Returns whether the task continues without a lease, because the server never starts it elsewhere.
    pub(super) fn is_exempt(&self) -> bool {
        self.spec.delivery == Delivery::AtMostOnce
    }

    /// Returns whether a shim runs the execution: anything but one process without a sandbox.
    pub(super) fn has_shim(&self) -> bool {
        let Run::Process(process) = &self.spec.run else { return true };
        self.is_sandboxed()
            || !process.sidecars.is_empty()
            || !process.pre_start.is_empty()
            || !process.post_stop.is_empty()
    }

    /// Returns the number of processes of Belfry in the control group of the execution: its shim, and the first one of a
    /// sandbox.
    pub(super) fn own_processes(&self) -> u32 {
        u32::from(self.has_shim()) + u32::from(self.is_sandboxed())
    }

    /// Returns whether the process of the execution is in a sandbox.
    pub(super) fn is_sandboxed(&self) -> bool {
        let process = self.spec.run.as_process();
        process.is_some_and(|process| process.sandbox.level != SandboxLevel::None)
    }

    /// Returns whether another program than this worker starts processes of the execution.
    pub(super) fn is_foreign(&self) -> bool {
        matches!(self.spec.run, Run::Container(_))
    }

    /// Returns whether the agent needs the ports or health checks of the execution.
    pub(super) fn is_watched(&self) -> bool {
        let has_checks = self.spec.health.as_deref().is_some_and(|checks| !checks.is_empty());
        has_checks || !self.spec.ports.is_empty()
    }

    /// Returns the properties of the execution that the core needs.
    pub(crate) fn terms(&self) -> ExecutionPolicy {
        ExecutionPolicy {
            at_most_once: self.is_exempt(),
            timeout: self.spec.timeout.map(|timeout| timeout.as_millis()),
            grace: self.spec.grace.as_millis(),
        }
    }
}

/// A started task.
#[derive(Debug)]
pub(super) struct Task {
    pub(super) order: StartRequest,
    pub(super) pid: i32,
    /// Control file of its shim, if it has one.
    pub(super) control: Option<OwnedFd>,
    pub(super) folder: Folder,
    pub(super) ports: PortNumbers,
    pub(super) volumes: VolumePaths,
    /// Last health that an agent has sent.
    pub(super) health: Option<CheckedHealth>,
    /// Reason of an agent to end the task as unhealthy.
    pub(super) check_failure: Option<String>,
    /// Token of its watched socket.
    pub(super) task_socket: Option<Token>,
    /// State of its checkpoint file.
    pub(super) checkpoint: CheckpointFile,
    pub(super) started: BootMillis,
    pub(super) started_unix_millis: i64,
    /// Peak memory of its main process about one second after its start, in bytes; 0 if it ended before.
    pub(super) early_peak_memory: u64,
    /// What was measured so far.
    pub(super) usage: Box<TaskUsage>,
    /// Standard output and standard error, until they are closed.
    pub(super) pipes: [Option<(Token, OwnedFd)>; 2],
    /// The end of its output.
    pub(super) last_output: LastOutput,
    /// What hides its secrets, with the held back ends of both streams; `None` if it has no secrets.
    pub(super) mask: Option<Box<(Mask, [HeldBack; 2])>>,
    pub(super) group: Option<Group>,
    /// Exit of the main process, once it has ended.
    pub(super) exit: Option<Exit>,
    pub(super) exited: BootMillis,
}

impl Task {
    /// Returns whether the main process is still running.
    pub(super) fn is_alive(&self) -> bool {
        self.exit.is_none()
    }

    /// Returns the marks of the task's processes.
    pub(super) fn root(&self, execution: ExecutionId) -> Root {
        let procs = self.group.as_ref().and_then(Group::procs_path);
        let is_foreign = self.order.is_foreign();
        Root { pid: Some(self.pid), is_reaped: self.exit.is_some(), procs, is_foreign, ..Root::of(execution) }
    }

    /// Returns the report of the end, without output and log.
    pub(super) fn finished(&self, exit: &Exit, verdict: EndReason) -> v1::Finished {
        let oom = self.group.as_ref().is_some_and(|g| g.oom_kills() > 0);
        let (how, detail) = self.how(exit, verdict, oom);
        let peak = self.group.as_ref().and_then(Group::peak_memory);
        let measured = self.usage.peak_memory().max(self.early_peak_memory);
        let peak = peak.unwrap_or_else(|| peak_of(exit.peak_memory_bytes, own_peak_memory(), measured));
        // The system counts only the shim.
        let (cpu_ms, peak) = if self.order.is_foreign() {
            (self.usage.cpu_millis(), self.usage.peak_memory())
        } else {
            (exit.cpu_millis, peak)
        };
        v1::Finished {
            how: how.into(),
            exit_code: exit.code,
            signal: exit.signal,
            detail,
            run_ms: self.exited.saturating_sub(self.started),
            cpu_ms,
            peak_memory_bytes: peak,
            started_at_unix_ms: self.started_unix_millis,
            finished_at_unix_ms: unix_millis(),
            measured: self.usage.summary(),
            error: if verdict == EndReason::Unhealthy { UNHEALTHY.to_owned() } else { String::new() },
            ..v1::Finished::default()
        }
    }

    fn how(&self, exit: &Exit, verdict: EndReason, oom: bool) -> (How, String) {
        let timeout = self.order.spec.timeout;
        match verdict {
            EndReason::Stopped(_) => (How::Stopped, "stopped by the server".into()),
            EndReason::TimedOut => (
                How::TimedOut,
                timeout.map_or_else(String::new, |t| format!("ran longer than its timeout of {t}")),
            ),
            EndReason::Unhealthy => {
                (How::Exited, self.check_failure.clone().unwrap_or_else(|| "a health check failed".into()))
            }
            EndReason::Orphaned => {
                (How::Interrupted, "the worker was disconnected from the servers for too long".into())
            }
            EndReason::ShutDown => (How::Interrupted, "the worker's supervisor was stopped".into()),
            EndReason::ByItself if oom && exit.code != Some(0) => {
                let limit = self.order.spec.resources.limits.memory.unwrap_or_default();
                (How::OutOfMemory, format!("used more memory than its limit of {limit}"))
            }
            EndReason::ByItself => (How::Exited, described(exit, || self.last_output.error_line())),
        }
    }
}

/// Returns the peak memory of a task, in bytes. The value of the system includes the time before `exec`, when the child
/// shared the supervisor's memory. So it counts only above the supervisor's own peak. Otherwise the measured value
/// is returned, which is 0 if there was no measurement. The value of the system is that of the largest process, so it may
/// be below the measured one of all processes together.
fn peak_of(of_system: u64, own: u64, measured: u64) -> u64 {
    if of_system > own { of_system.max(measured) } else { measured }
}

/// Describes how a process ended, with the line of its output that says why; empty if it succeeded.
fn described(exit: &Exit, error_line: impl FnOnce() -> Option<String>) -> String {
    let end = match (exit.code, exit.signal) {
        (Some(0), _) => return String::new(),
        (Some(code), _) => format!("exited with code {code}"),
        (None, Some(signal)) => format!("killed by signal {signal} ({})", signal_name(signal)),
        (None, None) => "ended without an exit code or a signal".into(),
    };
    match error_line() {
        Some(line) => [end, line].join(": "),
        None => end,
    }
}

/// Returns whether a task succeeded.
pub(super) fn is_success(finished: &v1::Finished) -> bool {
    finished.how() == How::Exited && finished.exit_code == Some(0) && finished.error.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_the_supervisor_is_not_counted_for_a_task() {
        assert_eq!(peak_of(64 << 20, 20 << 20, 1 << 20), 64 << 20);
        assert_eq!(peak_of(20 << 20, 20 << 20, 1 << 20), 1 << 20);
        assert_eq!(peak_of(19 << 20, 20 << 20, 0), 0, "it ended before the first measurement");
    }
}
