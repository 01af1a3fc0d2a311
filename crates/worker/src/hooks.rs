//! Runs the hooks of a task, before and after its process.
//!
//! ```text
//! supervisor ─exec─> hook runner ─> pre_start… ─> process ─> post_stop… ─> exits as the process did
//! ```
//!
//! The runner is the main process of the task, so everything that the supervisor does to a task concerns it too: freezes,
//! timeouts, limits, and the kill at the end of the grace period. It is a single thread without a runtime.
//!
//! A stop signal goes to the whole process group, and so to the process itself. The runner only remembers it: then no further
//! command of `pre_start` and no process is started. The commands of `post_stop` run after a stop too.
//!
//! # Invariants
//! - The process is started only after all commands of `pre_start` have succeeded, and only if no stop signal arrived before.
//! - Every command of `post_stop` is started once, unless the runner itself is killed.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

use model::spec::Hook;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, kill, raise, sigaction};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

use crate::process::spawn::signal_name;

/// First argument of the hook runner.
pub(crate) const COMMAND: &str = "hook-runner";
/// Variable with the exit code of the process, for `post_stop`; for a signal it is 128 plus its number, as in a shell.
const EXIT_CODE_VARIABLE: &str = "BELFRY_EXIT_CODE";
/// Exit codes of a shell and of `timeout`.
const NOT_FOUND: u8 = 127;
const NOT_EXECUTABLE: u8 = 126;
const TIMED_OUT: u8 = 124;
/// Interval at which a command with a timeout is checked.
const CHECK_INTERVAL: Duration = Duration::from_millis(10);
/// Signals that may stop a task; see [`model::spec::StopSignal`].
const STOP_SIGNALS: [Signal; 7] = [
    Signal::SIGTERM,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGHUP,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGWINCH,
];

/// Last stop signal; 0 before the first one.
static STOP_SIGNAL: AtomicI32 = AtomicI32::new(0);

/// Hooks of a task.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Hooks {
    pub(crate) pre_start: Vec<Hook>,
    pub(crate) post_stop: Vec<Hook>,
}

impl Hooks {
    /// Returns the second argument of the hook runner; the command of the process follows it.
    pub(crate) fn to_argument(&self) -> String {
        serde_json::to_string(self).expect("hooks are plain data")
    }
}

/// Result of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Exit {
    Code(u8),
    Signal(i32),
}

impl Exit {
    const SUCCESS: Self = Self::Code(0);

    fn of(status: ExitStatus) -> Self {
        match (status.code(), status.signal()) {
            // The kernel keeps only eight bits.
            (Some(code), _) => Self::Code(u8::try_from(code).unwrap_or(u8::MAX)),
            (None, signal) => Self::Signal(signal.unwrap_or(0)),
        }
    }

    /// Returns the exit code as a shell shows it.
    fn shell_code(self) -> i32 {
        match self {
            Self::Code(code) => code.into(),
            Self::Signal(signal) => 128 + signal,
        }
    }
}

impl std::fmt::Display for Exit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exited with code {code}"),
            Self::Signal(signal) => write!(f, "was killed by signal {signal} ({})", signal_name(*signal)),
        }
    }
}

/// Runs the process of a task with its hooks. `arguments` are the hooks, as the supervisor passes them, and the command of the
/// process. The runner exits as the process does; if a `pre_start` hook fails, it exits with the code of the hook.
pub fn run_with_hooks(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let mut arguments = arguments.map(|argument| argument.into_string().unwrap_or_default());
    let hooks = arguments.next().and_then(|text| serde_json::from_str::<Hooks>(&text).ok());
    let (Some(hooks), Some(program)) = (hooks, arguments.next()) else {
        eprintln!("belfry: `{COMMAND}` is an internal program of a worker, and expects the hooks of a task");
        return ExitCode::from(2);
    };
    if let Err(error) = remember_stop_signals() {
        eprintln!("belfry: cannot handle the stop signals of the task: {error}");
        return ExitCode::FAILURE;
    }
    let mut process = Command::new(program);
    process.args(arguments);
    let started = run_all("pre_start", &hooks.pre_start, None);
    let exit = match started {
        Exit::SUCCESS if !is_stopped() => run_process(&mut process),
        failed => failed,
    };
    for (i, hook) in hooks.post_stop.iter().enumerate() {
        run_hook(&format!("post_stop[{i}]"), hook, Some(exit.shell_code()));
    }
    exit_as(exit)
}

/// Runs commands one after the other, until one fails or the task is stopped.
fn run_all(name: &str, hooks: &[Hook], exit_code: Option<i32>) -> Exit {
    for (i, hook) in hooks.iter().enumerate() {
        if is_stopped() {
            break;
        }
        let exit = run_hook(&format!("{name}[{i}]"), hook, exit_code);
        if exit != Exit::SUCCESS {
            return exit;
        }
    }
    match STOP_SIGNAL.load(Ordering::SeqCst) {
        0 => Exit::SUCCESS,
        signal => Exit::Signal(signal),
    }
}

/// Runs one command; says in the log if it fails.
fn run_hook(name: &str, hook: &Hook, exit_code: Option<i32>) -> Exit {
    let Some((program, arguments)) = hook.command.split_first() else { return Exit::SUCCESS };
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null());
    command.envs(exit_code.map(|code| (EXIT_CODE_VARIABLE, code.to_string())));
    let exit = match command.spawn() {
        Ok(mut child) => match wait(&mut child, hook.timeout.map(model::Duration::to_std)) {
            Some(exit) => exit,
            None => {
                eprintln!("belfry: {name} `{program}` was killed: it ran longer than its timeout");
                return Exit::Code(TIMED_OUT);
            }
        },
        Err(error) => not_started(program, &error),
    };
    if exit != Exit::SUCCESS {
        eprintln!("belfry: {name} `{program}` {exit}");
    }
    exit
}

fn run_process(process: &mut Command) -> Exit {
    match process.spawn() {
        Ok(mut child) => {
            // A signal that arrived before the process existed did not reach it.
            if let Ok(signal) = Signal::try_from(STOP_SIGNAL.load(Ordering::SeqCst)) {
                kill(pid_of(&child), signal).ok();
            }
            wait(&mut child, None).unwrap_or(Exit::Signal(libc::SIGKILL))
        }
        Err(error) => not_started(&process.get_program().to_string_lossy(), &error),
    }
}

fn not_started(program: &str, error: &std::io::Error) -> Exit {
    eprintln!("belfry: cannot execute `{program}`: {error}");
    let is_missing = error.kind() == std::io::ErrorKind::NotFound;
    Exit::Code(if is_missing { NOT_FOUND } else { NOT_EXECUTABLE })
}

/// Waits until a command has exited; kills it after the timeout and then returns `None`.
fn wait(child: &mut Child, timeout: Option<Duration>) -> Option<Exit> {
    let began = Instant::now();
    loop {
        // Interrupted waits are repeated by the library. Another error means that there is nothing to wait for.
        let exited = match timeout {
            None => child.wait().map(Some),
            Some(_) => child.try_wait(),
        };
        match exited {
            Ok(Some(status)) => return Some(Exit::of(status)),
            Err(_) => return Some(Exit::Signal(libc::SIGKILL)),
            Ok(None) => {}
        }
        if timeout.is_some_and(|timeout| began.elapsed() >= timeout) {
            child.kill().ok();
            child.wait().ok();
            return None;
        }
        std::thread::sleep(CHECK_INTERVAL);
    }
}

fn pid_of(child: &Child) -> Pid {
    Pid::from_raw(i32::try_from(child.id()).unwrap_or(i32::MAX))
}

fn is_stopped() -> bool {
    STOP_SIGNAL.load(Ordering::SeqCst) != 0
}

extern "C" fn remember(signal: libc::c_int) {
    STOP_SIGNAL.store(signal, Ordering::SeqCst);
}

/// Handles the stop signals. A handler, unlike an ignored signal, is not inherited by the programs that are executed.
#[expect(unsafe_code, reason = "signal handlers have no safe interface")]
fn remember_stop_signals() -> nix::Result<()> {
    let action = SigAction::new(SigHandler::Handler(remember), SaFlags::SA_RESTART, SigSet::empty());
    for signal in STOP_SIGNALS {
        // SAFETY: the handler only stores to an atomic, which is allowed in a signal handler.
        unsafe { sigaction(signal, &action) }?;
    }
    Ok(())
}

/// Exits with the code of the process, or ends by the same signal.
#[expect(unsafe_code, reason = "signal handlers have no safe interface")]
fn exit_as(exit: Exit) -> ExitCode {
    let number = match exit {
        Exit::Code(code) => return ExitCode::from(code),
        Exit::Signal(number) => number,
    };
    if let Ok(signal) = Signal::try_from(number) {
        let default = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
        // SAFETY: the default action runs no code of this program.
        unsafe { sigaction(signal, &default) }.ok();
        raise(signal).ok();
    }
    // A signal whose default action ends no process.
    ExitCode::from(u8::try_from(exit.shell_code()).unwrap_or(u8::MAX))
}
