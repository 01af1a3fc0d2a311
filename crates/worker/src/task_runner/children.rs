//! Children of the task runner, and the stop signals that it gets.
//!
//! All children are reaped here by their process ids, because the runner waits for any of them.
//!
//! The process of the task is in the process group of the runner, to which the supervisor sends stop signals. A signal that
//! arrives between the check for it and the start of the process does not reach it, so it is sent again after the start. Hooks
//! and sidecars have their own groups: hooks of `pre_start` get the signal from the runner.

use std::collections::HashMap;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::{self, SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use crate::process::spawn::signal_name;

/// Exit codes of a shell for a program that does not exist, or cannot be executed.
const NOT_FOUND: u8 = 127;
const NOT_EXECUTABLE: u8 = 126;
/// Interval at which a process group is checked.
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

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Exit {
    Code(u8),
    Signal(i32),
}

impl Exit {
    pub(super) const SUCCESS: Self = Self::Code(0);
    pub(super) const FAILURE: Self = Self::Code(1);
    pub(super) const KILLED: Self = Self::Signal(libc::SIGKILL);

    /// Returns the exit code as a shell shows it.
    pub(super) fn shell_code(self) -> i32 {
        match self {
            Self::Code(code) => code.into(),
            Self::Signal(number) => 128 + number,
        }
    }
}

impl std::fmt::Display for Exit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exited with code {code}"),
            Self::Signal(number) => write!(f, "was killed by signal {number} ({})", signal_name(*number)),
        }
    }
}

/// Children of the runner.
#[derive(Debug)]
pub(super) struct Children {
    /// Children that have ended.
    ended: HashMap<Pid, Exit>,
}

impl Children {
    /// Handles the stop signals from now on. A handler, unlike an ignored signal, is not inherited by executed programs.
    #[expect(unsafe_code, reason = "signal handlers have no safe interface")]
    pub(super) fn new() -> nix::Result<Self> {
        let action = SigAction::new(SigHandler::Handler(remember), SaFlags::SA_RESTART, SigSet::empty());
        for signal in STOP_SIGNALS {
            // SAFETY: the handler only stores to an atomic, which is allowed in a signal handler.
            unsafe { sigaction(signal, &action) }?;
        }
        Ok(Self { ended: HashMap::new() })
    }

    /// Returns how the task ends if a stop signal has arrived and no command has ended because of it.
    pub(super) fn stopped(&self) -> Option<Exit> {
        match STOP_SIGNAL.load(Ordering::SeqCst) {
            0 => None,
            number => Some(Exit::Signal(number)),
        }
    }

    /// Starts the process of the task, to which the supervisor sends stop signals.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub(super) fn start_process(&self, command: &mut Command) -> Result<Pid, Exit> {
        let pid = self.start(command)?;
        if let Ok(signal) = Signal::try_from(STOP_SIGNAL.load(Ordering::SeqCst)) {
            signal::kill(pid, signal).ok();
        }
        Ok(pid)
    }

    /// Starts a command in a process group of its own, which gets no stop signal.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub(super) fn start_group(&self, command: &mut Command) -> Result<Pid, Exit> {
        self.start(command.process_group(0))
    }

    /// Starts a command. It is killed with the runner, as the runner is with the supervisor.
    ///
    /// # Errors
    /// The exit code of a shell for a program that cannot be executed, after a line in the log.
    #[expect(unsafe_code, reason = "what a child does before exec has no safe interface")]
    fn start(&self, command: &mut Command) -> Result<Pid, Exit> {
        let runner = rustix::process::getpid();
        let die_with_runner = move || {
            rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
            // The runner may have ended before.
            let is_alive = rustix::process::getppid() == Some(runner);
            if is_alive { Ok(()) } else { Err(io::ErrorKind::BrokenPipe.into()) }
        };
        // SAFETY: the closure only makes system calls, and allocates nothing.
        unsafe { command.pre_exec(die_with_runner) };
        let started = command.spawn();
        let child = started.map_err(|error| {
            eprintln!("belfry: cannot execute `{}`: {error}", command.get_program().to_string_lossy());
            let is_missing = error.kind() == io::ErrorKind::NotFound;
            Exit::Code(if is_missing { NOT_FOUND } else { NOT_EXECUTABLE })
        })?;
        Ok(Pid::from_raw(i32::try_from(child.id()).unwrap_or(i32::MAX)))
    }

    /// Waits until a child has ended. `other` is called for each other child that ends.
    pub(super) fn wait(&mut self, child: Pid, mut other: impl FnMut(Pid, Exit)) -> Exit {
        loop {
            if let Some(exit) = self.reap(child, false, &mut other) {
                return exit;
            }
        }
    }

    /// Waits until the leader of a process group has ended, and kills the group after the timeout; returns `None` then. With
    /// `forwards`, a stop signal is sent to the group.
    pub(super) fn wait_for_group(
        &mut self,
        leader: Pid,
        timeout: Option<Duration>,
        forwards: bool,
    ) -> Option<Exit> {
        let mut is_forwarded = !forwards;
        // Counted in pauses: the task may be frozen for long.
        let mut waited = Duration::ZERO;
        loop {
            if let Some(exit) = self.try_wait(leader) {
                return Some(exit);
            }
            if !is_forwarded && let Ok(signal) = Signal::try_from(STOP_SIGNAL.load(Ordering::SeqCst)) {
                signal::killpg(leader, signal).ok();
                is_forwarded = true;
            }
            if timeout.is_some_and(|timeout| waited >= timeout) {
                signal::killpg(leader, Signal::SIGKILL).ok();
                self.wait(leader, |_, _| {});
                return None;
            }
            std::thread::sleep(CHECK_INTERVAL);
            waited += CHECK_INTERVAL;
        }
    }

    /// Returns how a child has ended, without waiting; `None` if it is running.
    pub(super) fn try_wait(&mut self, child: Pid) -> Option<Exit> {
        self.reap(child, true, &mut |_, _| {})
    }

    /// Reaps children until `child` has ended, or, with `is_polling`, until no further one has.
    fn reap(&mut self, child: Pid, is_polling: bool, other: &mut impl FnMut(Pid, Exit)) -> Option<Exit> {
        let flags = is_polling.then_some(WaitPidFlag::WNOHANG);
        loop {
            if let Some(exit) = self.ended.get(&child) {
                return Some(*exit);
            }
            match waitpid(Pid::from_raw(-1), flags) {
                Ok(WaitStatus::StillAlive) => return None,
                Ok(status) => {
                    if let Some((pid, exit)) = ended(status) {
                        if pid != child {
                            other(pid, exit);
                        }
                        self.ended.insert(pid, exit);
                    }
                }
                Err(Errno::EINTR) => {}
                // There is no such child.
                Err(_) => return Some(Exit::KILLED),
            }
        }
    }
}

fn ended(status: WaitStatus) -> Option<(Pid, Exit)> {
    match status {
        // The kernel keeps only eight bits.
        WaitStatus::Exited(pid, code) => Some((pid, Exit::Code(u8::try_from(code).unwrap_or(u8::MAX)))),
        WaitStatus::Signaled(pid, signal, _) => Some((pid, Exit::Signal(signal as i32))),
        _ => None,
    }
}

extern "C" fn remember(number: libc::c_int) {
    STOP_SIGNAL.store(number, Ordering::SeqCst);
}

/// Exits with this code, or ends by the same signal.
#[expect(unsafe_code, reason = "signal handlers have no safe interface")]
pub(super) fn exit_as(exit: Exit) -> ExitCode {
    let number = match exit {
        Exit::Code(code) => return ExitCode::from(code),
        Exit::Signal(number) => number,
    };
    if let Ok(signal) = Signal::try_from(number) {
        let default = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
        // SAFETY: the default action runs no code of this program.
        unsafe { sigaction(signal, &default) }.ok();
        signal::raise(signal).ok();
    }
    // A signal whose default action ends no process.
    ExitCode::from(u8::try_from(exit.shell_code()).unwrap_or(u8::MAX))
}
