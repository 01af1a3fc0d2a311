//! The sandbox of a process: what it can see and do on its machine.
//!
//! The sandbox consists of features of the kernel that need no rights of root:
//!
//! | module | what | `basic` | `strict` |
//! |---|---|---|---|
//! | [`namespaces`] | own users, mounts, processes, IPC; a network of its own if the job asks for it | ✓ | ✓ |
//! | [`view`] | files: those of the machine, read-only; or a small selection of them | all | selection |
//! | [`privileges`] | no capabilities, and no way to get any | ✓ | ✓ |
//! | [`system_calls`] | refused system calls (seccomp) | ✓ | more |
//! | [`file_access`] | a list of writable directories, checked by the kernel (Landlock) | | ✓ |
//!
//! # How a process enters
//! ```text
//! caller ── unshare ──> fork ──> first process of the sandbox ── enter ──> fork, exec: programs of the job
//! ```
//! [`unshare`] puts the *children* of the caller into a new process namespace; the caller itself stays outside and waits.
//! The first child calls [`enter`], and then starts the programs of the job. It is the process 1 of the namespace: the
//! kernel kills all others when it ends, and it must reap orphans.
//!
//! # Invariants
//! - A level is complete or an error: if the kernel lacks or forbids a part, nothing of the job runs.
//! - All levels are entered as the user of the job, which has no rights outside the sandbox.
//! - The capabilities and system calls that lead out of the sandbox are removed before the programs of the job start.
//!
//! # Limits
//! The kernel is shared, so a fault in the kernel is a way out; a virtual machine is stronger. Processes of the same user
//! outside the sandbox can see and stop those inside.

mod error;
mod file_access;
mod namespaces;
mod privileges;
mod probe;
mod system_calls;
mod view;

use model::spec::{Sandbox, SandboxLevel, SandboxNetwork};

pub use error::SandboxError;
pub use namespaces::unshare;
pub use probe::{Probed, probe};
pub use view::View;

/// Enters the sandbox, in the first child after [`unshare`]. The working directory is then `view.directory`.
///
/// # Errors
/// [`SandboxError`], if the kernel lacks or forbids a part, or if a path of `view` does not exist. The process must then exit
/// without running anything of the job.
pub fn enter(sandbox: &Sandbox, view: &View) -> Result<(), SandboxError> {
    if sandbox.network() == SandboxNetwork::Loopback {
        namespaces::start_loopback()?;
    }
    match sandbox.level {
        // The caller runs no sandbox then.
        SandboxLevel::None => return Ok(()),
        SandboxLevel::Basic => view::show_machine(view)?,
        SandboxLevel::Strict => view::show_selection(view)?,
    }
    if sandbox.level == SandboxLevel::Strict {
        file_access::restrict(view)?;
    }
    privileges::drop_all()?;
    // The last step: the earlier ones use system calls that are refused from here on.
    system_calls::refuse(sandbox.level)
}
