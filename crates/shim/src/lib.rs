//! Protocol between the supervisor of a worker and its shims.
//!
//! A shim runs one execution that is not just one process: of another runtime, in a sandbox, or with sidecars. It is a child process of the supervisor, and the main
//! process of the task:
//!
//! ```text
//! supervisor ─exec─> belfry shim container ──> container engine
//!     │                     │
//!     └── control file ─────┘   the order, and later the report
//! ```
//!
//! So everything that the supervisor does to a task concerns the shim too: the lease, freezes, timeouts, the stop signal
//! and the kill after the grace period, the log and the exit status.
//!
//! # The life of a shim
//! 1. The supervisor writes a [`ShimOrder`] as JSON into the control file, a file in memory, and starts
//!    `PROGRAM shim RUNTIME`. The control file is the standard input of the shim. The working directory is the directory of
//!    the execution, and the environment has the variables `BELFRY_*`; for a process, these are in the order.
//! 2. The shim reads the order with [`read_order`], and runs it. Its standard output and error are the log of the execution.
//! 3. On a stop signal it stops what it runs, and exits. It may be killed at any time.
//! 4. If the exit code does not say everything, it writes a [`ShimReport`] with [`write_report`]. Then it exits, with the
//!    exit code of the execution.
//!
//! # What a shim must ensure
//! - Processes that another program starts for it are on this machine, in control groups with the id of the execution as a
//!   part of their path. So the supervisor can freeze and kill them. A shim that cannot ensure this fails the execution.
//! - Nothing of the job runs before the shim says so, even if the other program is late and the shim has ended.
//! - What it creates elsewhere has a mark, so that `belfry shim sweep` removes it when its shim has ended.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;

use model::ExecutionId;
use model::spec::{Limits, Run, SandboxLevel};
use rustix::fs::MemfdFlags;
use serde::{Deserialize, Serialize};

/// First argument of a shim; the name of the runtime follows.
pub const COMMAND: &str = "shim";
/// Second argument of the program that lists the runtimes of this machine, as JSON ([`Runtime`]).
pub const PROBE: &str = "probe";

/// What a shim has to run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ShimOrder {
    /// Execution, for the marks.
    pub execution: ExecutionId,
    /// Name of the job, for people.
    pub job_name: String,
    /// Mark of the worker, which is the same after a restart.
    pub worker: String,
    /// What to run, in the runtime of the shim.
    pub run: Run,
    /// Program and arguments of a process; empty in other runtimes.
    #[serde(default)]
    pub command: Vec<String>,
    /// Environment of a process as `NAME=value`; in other runtimes it is that of the shim.
    #[serde(default)]
    pub environment: Vec<String>,
    /// Values of secrets by variable, for the runtime `http`; other runtimes have them in their environment.
    #[serde(default)]
    pub secrets: BTreeMap<String, String>,
    /// What a sandbox shows and hides of the worker.
    #[serde(default)]
    pub sandbox: SandboxPaths,
    /// Resource limits of the job.
    pub limits: Limits,
    /// Ports of the worker that the task listens on.
    pub ports: Vec<ForwardedPort>,
    /// Volumes of the job.
    pub volumes: Vec<MountedVolume>,
    /// Address of the container engine [default: the first one that is found].
    pub engine: Option<String>,
}

/// Paths of a worker that concern sandboxes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SandboxPaths {
    /// Further files and directories that the level `strict` shows, read-only.
    pub readable: Vec<PathBuf>,
    /// Files and directories of Belfry itself, which no sandbox shows.
    pub hidden: Vec<PathBuf>,
    /// Symbolic links that the variables of the task need, as (link, target).
    pub links: Vec<(PathBuf, PathBuf)>,
}

/// A port of the worker, which belongs to the task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForwardedPort {
    /// Name of the port in the job.
    pub name: String,
    /// Number on the worker.
    pub number: u16,
}

/// A volume of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountedVolume {
    /// Name of the volume.
    pub name: String,
    /// Name of the variable with its path.
    pub variable: String,
    /// Directory on the worker.
    pub path: PathBuf,
    /// Whether the task can only read it.
    #[serde(default)]
    pub read_only: bool,
}

/// How an execution ended, if its exit code does not say everything.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "report", rename_all = "snake_case")]
pub enum ShimReport {
    /// Nothing of the job was run.
    StartFailed {
        /// Stable error code, such as `image_not_found`.
        code: String,
        /// One line: what happened, and what to do.
        detail: String,
    },
    /// The job was run and failed for another reason than its exit code.
    Failed {
        /// Stable error code, such as `unexpected_status`.
        code: String,
        /// One line: what happened, and what to do.
        detail: String,
    },
    /// The kernel killed the job at its memory limit.
    OutOfMemory,
}

/// Second argument of the program that lists the sandboxes that its user can create, as JSON ([`Sandboxes`]).
pub const PROBE_SANDBOX: &str = "probe-sandbox";
/// Second argument of the program that removes what ended shims have left.
pub const SWEEP: &str = "sweep";
/// Maximum size of a report, in bytes.
const REPORT_MAX: u64 = 64 * 1024;

/// A runtime of this machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Runtime {
    /// Name, as in the spec of a job.
    pub name: String,
    /// Program and version behind it, for people: `docker 29.1`. Empty if there is none.
    #[serde(default)]
    pub version: String,
}

/// What a machine has for its shims.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Probed {
    /// Runtimes that need more than their shim.
    pub runtimes: Vec<Runtime>,
    /// Sandboxes that the user of the tasks can create.
    pub sandboxes: Sandboxes,
}

/// Sandboxes that a user can create on a machine.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Sandboxes {
    /// Supported levels.
    pub levels: Vec<SandboxLevel>,
    /// Why the other levels are not supported, as text for people.
    pub reasons: Vec<String>,
}

/// Returns a control file with an order: the standard input of a shim.
///
/// # Errors
/// The system has no memory, or no file descriptor.
pub fn control_file(order: &ShimOrder) -> io::Result<OwnedFd> {
    let mut file = File::from(rustix::fs::memfd_create("shim", MemfdFlags::CLOEXEC)?);
    file.write_all(&serde_json::to_vec(order)?)?;
    file.rewind()?;
    Ok(file.into())
}

/// Reads the order from the control file.
///
/// # Errors
/// The file cannot be read, or contains no order.
pub fn read_order(control: impl AsFd) -> io::Result<ShimOrder> {
    let mut file = File::from(control.as_fd().try_clone_to_owned()?);
    let mut text = Vec::new();
    file.read_to_end(&mut text)?;
    Ok(serde_json::from_slice(&text)?)
}

/// Replaces the order in the control file by a report. A killed shim may leave a part of it, which is no report.
///
/// # Errors
/// The file cannot be written.
pub fn write_report(control: impl AsFd, report: &ShimReport) -> io::Result<()> {
    let mut file = File::from(control.as_fd().try_clone_to_owned()?);
    file.set_len(0)?;
    file.rewind()?;
    file.write_all(&serde_json::to_vec(report)?)
}

/// Reads the report from the control file; `None` if the shim wrote none.
pub fn read_report(control: impl AsFd) -> Option<ShimReport> {
    let mut file = File::from(control.as_fd().try_clone_to_owned().ok()?);
    // Its writer may be under the control of a user.
    if file.metadata().ok()?.len() > REPORT_MAX {
        return None;
    }
    file.rewind().ok()?;
    let mut text = Vec::new();
    file.read_to_end(&mut text).ok()?;
    serde_json::from_slice(&text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::spec::HttpRun;

    #[test]
    fn a_control_file_carries_the_order_and_then_the_report() {
        let order = ShimOrder {
            execution: ExecutionId::from_bits(7),
            job_name: "call".into(),
            worker: "w".into(),
            run: Run::Http(Box::new(HttpRun { url: "http://x".into(), ..HttpRun::default() })),
            limits: Limits::default(),
            ports: Vec::new(),
            volumes: Vec::new(),
            command: Vec::new(),
            environment: Vec::new(),
            secrets: BTreeMap::new(),
            sandbox: SandboxPaths::default(),
            engine: None,
        };
        let control = control_file(&order).unwrap();
        assert_eq!(read_order(&control).unwrap(), order);
        assert_eq!(read_report(&control), None, "an order is no report");
        let report = ShimReport::StartFailed { code: "image_not_found".into(), detail: "…".into() };
        write_report(&control, &report).unwrap();
        assert_eq!(read_report(&control), Some(report));
    }
}
