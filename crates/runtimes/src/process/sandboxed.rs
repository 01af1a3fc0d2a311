//! Runs a process in a sandbox.
//!
//! ```text
//! supervisor ─exec─> shim, outside ─fork─> first process, inside ─> sidecars, hooks and process
//!                        │ <──── how it ended, over a pipe ──── │
//! ```
//!
//! The first process is process 1 of the sandbox, so it and all others end together. A signal that it sends to itself has no
//! effect, so it cannot end by a signal as the process did: it reports the end over a pipe, and the shim ends so.
//!
//! The first process has a session of its own, because a process inside could otherwise signal the group of the shim. The shim
//! passes the stop signals on.

#![expect(unsafe_code, reason = "fork has no safe interface")]

use std::io::{PipeReader, PipeWriter, Read as _, Write as _};

use model::spec::ProcessRun;
use nix::poll::{PollFd, PollFlags, PollTimeout};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork, setsid};
use sandbox::View;
use shim::ShimOrder;

use super::children;
use crate::{End, hide_order};

/// Runs the process and everything beside it.
///
/// # Errors
/// Nothing of the job was run.
pub(super) fn run(order: &ShimOrder, process: &ProcessRun) -> Result<End, End> {
    let failed = |what: &str, error: &dyn std::fmt::Display| {
        End::start_failed("no_resources", format!("cannot {what}: {error}"))
    };
    let directory = std::env::current_dir().map_err(|error| failed("find the working directory", &error))?;
    let volumes = |read_only| {
        let selected = order.volumes.iter().filter(|volume| volume.read_only == read_only);
        selected.map(|volume| volume.path.clone()).collect()
    };
    let view = View {
        directory,
        writable: volumes(false),
        read_only: volumes(true),
        readable: order.sandbox.readable.clone(),
        hidden: order.sandbox.hidden.clone(),
        links: order.sandbox.links.clone(),
    };
    sandbox::unshare(&process.sandbox).map_err(|error| unavailable(&error))?;
    // Only now: a hidden process cannot set up its user namespace.
    hide_order()?;
    let (reader, writer) = std::io::pipe().map_err(|error| failed("create a pipe", &error))?;
    children::handle_stop_signals().map_err(|error| failed("handle the stop signals of the task", &error))?;
    // SAFETY: this process has one thread, so the child may allocate.
    match unsafe { fork() }.map_err(|error| failed("create a process", &error))? {
        ForkResult::Child => {
            drop(reader);
            let end = first_process(order, process, &view, &writer);
            report(writer, &end);
            // SAFETY: ends the process without running the exit handlers of the shim.
            unsafe { libc::_exit(0) }
        }
        ForkResult::Parent { child } => {
            drop(writer);
            children::forward_stop_signals(child);
            Ok(wait_for(child, reader))
        }
    }
}

fn unavailable(error: &sandbox::SandboxError) -> End {
    End::start_failed("sandbox_unavailable", error.to_string())
}

/// Enters the sandbox, and runs everything of the job in it.
fn first_process(order: &ShimOrder, process: &ProcessRun, view: &View, shim: &PipeWriter) -> End {
    let run = || {
        die_with(shim)?;
        sandbox::enter(&process.sandbox, view).map_err(|error| unavailable(&error))?;
        if let Some(directory) = &process.working_directory {
            std::env::set_current_dir(directory).map_err(|error| {
                let detail =
                    format!("cannot enter the working directory `{directory}` in the sandbox: {error}");
                End::start_failed("working_directory", detail)
            })?;
        }
        super::run(order, process)
    };
    run().unwrap_or_else(|failed| failed)
}

/// Ends this process when the shim ends.
fn die_with(shim: &PipeWriter) -> Result<(), End> {
    let failed = |error: std::io::Error| {
        End::start_failed(
            "no_resources",
            format!("cannot separate the first process of the sandbox: {error}"),
        )
    };
    setsid().map_err(|error| failed(error.into()))?;
    let kill = Some(rustix::process::Signal::KILL);
    rustix::process::set_parent_process_death_signal(kill).map_err(|error| failed(error.into()))?;
    // The shim may have ended before: no process reads from the pipe then.
    let mut pipe = [PollFd::new(std::os::fd::AsFd::as_fd(shim), PollFlags::empty())];
    nix::poll::poll(&mut pipe, PollTimeout::ZERO).map_err(|error| failed(error.into()))?;
    match pipe[0].any() {
        Some(true) => Err(failed(std::io::ErrorKind::BrokenPipe.into())),
        _ => Ok(()),
    }
}

fn report(mut shim: PipeWriter, end: &End) {
    let text = serde_json::to_vec(end).unwrap_or_default();
    // If it fails, the shim has ended, and the kernel is about to end this process.
    shim.write_all(&text).ok();
}

/// Waits for the end of the first process, and so of the whole sandbox.
fn wait_for(child: Pid, mut reader: PipeReader) -> End {
    let mut text = Vec::new();
    reader.read_to_end(&mut text).ok();
    let ended = loop {
        match waitpid(child, None) {
            Err(nix::errno::Errno::EINTR) => {}
            ended => break ended,
        }
    };
    match (serde_json::from_slice(&text), ended) {
        (Ok(end), _) => end,
        (Err(_), Ok(WaitStatus::Signaled(_, signal, _))) => End::Signal(signal as i32),
        (Err(error), ended) => End::failed(
            "sandbox_lost",
            format!("the first process of the sandbox ended without a report: {ended:?}, {error}"),
        ),
    }
}
