//! Runs a process that is not alone: in a sandbox, or with sidecars and hooks.
//!
//! ```text
//! supervisor ─exec─> shim ─> sidecars… ─> pre_start… ─> process ─> post_stop… ─> stops the sidecars, and exits
//! ```
//!
//! Any other process is started by the supervisor itself, without a shim. With a sandbox, the shim waits outside for its first
//! process, which does all the rest inside; see [`sandboxed`].
//!
//! A stop signal goes to the process group of the shim, and so to the process. The shim remembers it, and passes it to a
//! running hook of `pre_start`; then it starts no further command except those of `post_stop`. A process can still use its
//! sidecars while it stops.
//!
//! - [`children`]: starts commands and waits for them, with the stop signals. [`sidecars`]: the life of the sidecars.
//!
//! The shim is a single thread without a runtime.
//!
//! # Invariants
//! - The process is started only after all sidecars are ready and all commands of `pre_start` have succeeded, and only if no
//!   stop signal arrived before.
//! - Every command of `post_stop` is started once, unless the shim itself is killed.
//! - The shim ends as the process did, or as the command that failed before it.

mod children;
mod sandboxed;
mod sidecars;

use std::fs::File;
use std::io::{self, Seek as _, Write as _};
use std::os::fd::OwnedFd;
use std::process::{Command, ExitCode, Stdio};

use model::spec::{Hook, ProcessRun, Run, SandboxLevel};
use rustix::fs::MemfdFlags;
use shim::ShimOrder;

use crate::{End, finish, hide_order, read_order};
use children::{Children, Exit, StartError};
use sidecars::Sidecars;

pub(crate) use children::exit_as;

/// Variable with the exit code of the process, for `post_stop`; for a signal it is 128 plus its number, as in a shell.
const EXIT_CODE_VARIABLE: &str = "BELFRY_EXIT_CODE";
/// Exit code of a command that ran longer than its timeout, as in `timeout`.
const TIMED_OUT: u8 = 124;

/// Runs the shim of a process; returns its exit code.
pub(crate) fn run_shim() -> ExitCode {
    let end = read_order().and_then(|order| match &order.run {
        Run::Process(process) if process.sandbox.level == SandboxLevel::None => {
            hide_order()?;
            run(&order, process)
        }
        Run::Process(process) => sandboxed::run(&order, process),
        other => Err(End::start_failed(
            "runtime_unknown",
            format!("this shim runs no job of the runtime `{}`", other.runtime()),
        )),
    });
    finish(end.unwrap_or_else(|failed| failed))
}

/// Runs the process with its sidecars and hooks.
///
/// # Errors
/// Nothing of the job was run.
fn run(order: &ShimOrder, process: &ProcessRun) -> Result<End, End> {
    let mut children = Children::new().map_err(|error| {
        End::start_failed("no_resources", format!("cannot handle the stop signals of the task: {error}"))
    })?;
    adopt_environment(order);
    let command = command(order, process)?;
    let mut sidecars = Sidecars::default();
    let exit = match before_process(&mut children, &mut sidecars, process) {
        Err(ended) => ended,
        Ok(()) => match children.start_process(command) {
            Ok(pid) => children.wait(pid, |ended, exit| sidecars.say_ended(ended, exit)),
            Err(error) if is_alone(process) => return Err(not_started(&error)),
            Err(error) => error.say(),
        },
    };
    for (i, hook) in process.post_stop.iter().enumerate() {
        run_hook(&mut children, &format!("post_stop[{i}]"), hook, Some(exit.shell_code()));
    }
    sidecars.stop(&mut children);
    Ok(match exit {
        Exit::Code(code) => End::Code(code),
        Exit::Signal(number) => End::Signal(number),
    })
}

/// Replaces the environment of this process by that of the job, which all programs of the job inherit.
#[expect(unsafe_code, reason = "another thread could read the environment meanwhile")]
fn adopt_environment(order: &ShimOrder) {
    for (name, _) in std::env::vars_os() {
        // SAFETY: this process has one thread.
        unsafe { std::env::remove_var(name) };
    }
    for (name, value) in order.environment.iter().filter_map(|variable| variable.split_once('=')) {
        // SAFETY: as above.
        unsafe { std::env::set_var(name, value) };
    }
}

fn is_alone(process: &ProcessRun) -> bool {
    process.sidecars.is_empty() && process.pre_start.is_empty() && process.post_stop.is_empty()
}

/// Returns the command of the process, with its standard input.
fn command(order: &ShimOrder, process: &ProcessRun) -> Result<Command, End> {
    let Some((program, arguments)) = order.command.split_first() else {
        return Err(End::start_failed("spec_not_understood", "the process has no command"));
    };
    let stdin = match &process.stdin {
        None => Stdio::null(),
        Some(text) => in_memory(text).map(Stdio::from).map_err(|error| {
            End::start_failed("no_resources", format!("cannot create the standard input: {error}"))
        })?,
    };
    let mut command = Command::new(program);
    command.args(arguments).stdin(stdin);
    Ok(command)
}

fn in_memory(text: &str) -> io::Result<OwnedFd> {
    let mut file = File::from(rustix::fs::memfd_create("stdin", MemfdFlags::CLOEXEC)?);
    file.write_all(text.as_bytes())?;
    file.rewind()?;
    Ok(file.into())
}

/// Explains why a process without sidecars and hooks was not started, as the supervisor does for one without a shim.
fn not_started(error: &StartError) -> End {
    let code = match error.source.kind() {
        io::ErrorKind::NotFound => "command_not_found",
        io::ErrorKind::PermissionDenied => "permission_denied",
        io::ErrorKind::ArgumentListTooLong => "arguments_too_long",
        _ if error.source.raw_os_error() == Some(libc::ENOEXEC) => "not_executable",
        _ => "start_failed",
    };
    End::start_failed(code, error.to_string())
}

/// Runs everything before the process. If that fails or a stop signal has arrived, returns how the task ends.
fn before_process(
    children: &mut Children,
    sidecars: &mut Sidecars,
    process: &ProcessRun,
) -> Result<(), Exit> {
    for sidecar in &process.sidecars {
        match sidecars.start(children, sidecar) {
            Exit::SUCCESS => {}
            exit => return Err(exit),
        }
    }
    for (i, hook) in process.pre_start.iter().enumerate() {
        children.stopped().map_or(Ok(()), Err)?;
        match run_hook(children, &format!("pre_start[{i}]"), hook, None) {
            Exit::SUCCESS => {}
            exit => return Err(exit),
        }
    }
    children.stopped().map_or(Ok(()), Err)
}

/// Runs one command; says in the log if it fails.
fn run_hook(children: &mut Children, name: &str, hook: &Hook, exit_code: Option<i32>) -> Exit {
    let Some((program, arguments)) = hook.command.split_first() else { return Exit::SUCCESS };
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null());
    command.envs(exit_code.map(|code| (EXIT_CODE_VARIABLE, code.to_string())));
    let timeout = hook.timeout.map(model::Duration::to_std);
    let exit = match children.start_group(command) {
        Ok(pid) => match children.wait_for_group(pid, timeout, exit_code.is_none()) {
            Some(exit) => exit,
            None => {
                eprintln!("belfry: {name} `{program}` was killed: it ran longer than its timeout");
                return Exit::Code(TIMED_OUT);
            }
        },
        Err(error) => error.say(),
    };
    if exit != Exit::SUCCESS {
        eprintln!("belfry: {name} `{program}` {exit}");
    }
    exit
}
