//! Which levels this machine supports, by trying them.

#![expect(unsafe_code, reason = "fork has no safe interface")]

use std::io::{Read as _, Write as _};

use model::spec::{Sandbox, SandboxLevel, SandboxNetwork};
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, fork};

use crate::{SandboxError, View, enter, unshare};

/// What the current user can create on this machine.
#[derive(Debug, Default)]
pub struct Probed {
    /// Supported levels.
    pub levels: Vec<SandboxLevel>,
    /// Why the other levels are not supported, as text for people.
    pub reasons: Vec<String>,
}

/// Enters a sandbox of each level, with a network of its own, in a child process. The caller must have one thread.
pub fn probe() -> Probed {
    let mut probed = Probed::default();
    for level in [SandboxLevel::Basic, SandboxLevel::Strict] {
        match attempt(level) {
            Ok(()) => probed.levels.push(level),
            Err(reason) => probed.reasons.push(format!("sandbox `{level}`: {reason}")),
        }
    }
    probed
}

/// Creates a sandbox and ends it; returns the reason if that fails.
fn attempt(level: SandboxLevel) -> Result<(), String> {
    let (mut reader, mut writer) = std::io::pipe().map_err(|error| error.to_string())?;
    let sandbox = Sandbox { level, network: Some(SandboxNetwork::Loopback) };
    // SAFETY: the caller has one thread, so the child may allocate.
    match unsafe { fork() }.map_err(|error| error.to_string())? {
        ForkResult::Child => {
            drop(reader);
            let result = enter_as_grandchild(&sandbox);
            if let Err(error) = &result {
                write!(writer, "{error}").ok();
            }
            // SAFETY: ends the process without running the exit handlers of the caller.
            unsafe { libc::_exit(i32::from(result.is_err())) }
        }
        ForkResult::Parent { child } => {
            drop(writer);
            let mut reason = String::new();
            reader.read_to_string(&mut reason).ok();
            let ended = waitpid(child, None).map_err(|error| error.to_string())?;
            let succeeded = matches!(ended, nix::sys::wait::WaitStatus::Exited(_, 0));
            if succeeded { Ok(()) } else { Err(reason) }
        }
    }
}

fn enter_as_grandchild(sandbox: &Sandbox) -> Result<(), String> {
    unshare(sandbox).map_err(|error| error.to_string())?;
    let (mut reader, mut writer) = std::io::pipe().map_err(|error| error.to_string())?;
    // SAFETY: this process has one thread.
    match unsafe { fork() }.map_err(|error| error.to_string())? {
        ForkResult::Child => {
            drop(reader);
            let view = View { directory: std::env::temp_dir(), ..View::default() };
            let result: Result<(), SandboxError> = enter(sandbox, &view);
            if let Err(error) = result {
                write!(writer, "{error}").ok();
            }
            // SAFETY: as above.
            unsafe { libc::_exit(0) }
        }
        ForkResult::Parent { child } => {
            drop(writer);
            let mut reason = String::new();
            reader.read_to_string(&mut reason).ok();
            let ended = waitpid(child, None).map_err(|error| error.to_string())?;
            match (reason.is_empty(), ended) {
                (true, nix::sys::wait::WaitStatus::Exited(_, 0)) => Ok(()),
                (true, ended) => Err(format!("the first process of the sandbox ended: {ended:?}")),
                (false, _) => Err(reason),
            }
        }
    }
}
