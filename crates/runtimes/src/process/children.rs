//! Children of the shim, and the stop signals that it gets.
//!
//! All children are reaped here by their process ids, because the shim waits for any of them. In a sandbox, orphans of the task
//! become children too; they are reaped and forgotten, because their ids are used again.
//!
//! The process of the task is in the process group of the shim, to which the supervisor sends stop signals. A signal that
//! arrives between the check for it and the start of the process does not reach it, so it is sent again after the start. Hooks
//! and sidecars have their own groups: hooks of `pre_start` get the signal from the shim.

use std::collections::HashMap;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use nix::sys::signal::{self, SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use nix::unistd::Pid;
use rustix::io::Errno;
use rustix::process::{WaitOptions, WaitStatus, wait};

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
/// Process group that gets the stop signals of this process; 0 if there is none.
static FORWARD_TO: AtomicI32 = AtomicI32::new(0);

/// Handles the stop signals from now on. A handler, unlike an ignored signal, is not inherited by executed programs.
#[expect(unsafe_code, reason = "signal handlers have no safe interface")]
pub(super) fn handle_stop_signals() -> nix::Result<()> {
    let action = SigAction::new(SigHandler::Handler(remember), SaFlags::SA_RESTART, SigSet::empty());
    for signal in STOP_SIGNALS {
        // SAFETY: the handler only uses atomics and sends a signal, which is allowed in a signal handler.
        unsafe { sigaction(signal, &action) }?;
    }
    Ok(())
}

/// Passes all stop signals to the process group of `leader`, also one that has arrived before.
///
/// The leader may not have its group yet. Then it was in the group of this process when the signal arrived, and got it
/// itself.
pub(super) fn forward_stop_signals(leader: Pid) {
    FORWARD_TO.store(leader.as_raw(), Ordering::SeqCst);
    if let Ok(signal) = Signal::try_from(STOP_SIGNAL.load(Ordering::SeqCst)) {
        signal::killpg(leader, signal).ok();
    }
}

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
            Self::Signal(number) => {
                let name = Signal::try_from(*number).map_or("an unknown signal", Signal::as_str);
                write!(f, "was killed by signal {number} ({name})")
            }
        }
    }
}

/// A program that cannot be executed.
#[derive(Debug, thiserror::Error)]
#[error("cannot execute `{program}`: {source}")]
pub(super) struct StartError {
    program: String,
    pub(super) source: io::Error,
}

impl StartError {
    /// Says it in the log; returns the exit code of a shell for it.
    pub(super) fn say(&self) -> Exit {
        eprintln!("belfry: {self}");
        let is_missing = self.source.kind() == io::ErrorKind::NotFound;
        Exit::Code(if is_missing { NOT_FOUND } else { NOT_EXECUTABLE })
    }
}

/// Children of the shim.
#[derive(Debug)]
pub(super) struct Children {
    /// Started children, and how they have ended.
    started: HashMap<Pid, Option<Exit>>,
}

impl Children {
    /// Handles the stop signals from now on.
    pub(super) fn new() -> nix::Result<Self> {
        handle_stop_signals()?;
        Ok(Self { started: HashMap::new() })
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
    pub(super) fn start_process(&mut self, command: Command) -> Result<Pid, StartError> {
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
    pub(super) fn start_group(&mut self, mut command: Command) -> Result<Pid, StartError> {
        command.process_group(0);
        self.start(command)
    }

    /// Starts a command. It is killed with the shim, as the shim is with the supervisor.
    ///
    /// # Errors
    /// The program cannot be executed.
    #[expect(unsafe_code, reason = "what a child does before exec has no safe interface")]
    fn start(&mut self, mut command: Command) -> Result<Pid, StartError> {
        let shim = rustix::process::getpid();
        let die_with_shim = move || {
            rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
            // The shim may have ended before.
            let is_alive = rustix::process::getppid() == Some(shim);
            if is_alive { Ok(()) } else { Err(io::ErrorKind::BrokenPipe.into()) }
        };
        // SAFETY: the closure only makes system calls, and allocates nothing.
        unsafe { command.pre_exec(die_with_shim) };
        let child = command.spawn().map_err(|source| {
            let program = command.get_program().to_string_lossy().into_owned();
            StartError { program, source }
        })?;
        let pid = Pid::from_raw(i32::try_from(child.id()).unwrap_or(i32::MAX));
        self.started.insert(pid, None);
        Ok(pid)
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
        let options = if is_polling { WaitOptions::NOHANG } else { WaitOptions::empty() };
        loop {
            match self.started.get(&child) {
                Some(None) => {}
                Some(exit) => return *exit,
                None => return Some(Exit::KILLED),
            }
            match wait(options) {
                Ok(None) => return None,
                Ok(Some((pid, status))) => {
                    let pid = Pid::from_raw(pid.as_raw_nonzero().get());
                    if let (Some(known @ None), Some(exit)) = (self.started.get_mut(&pid), ended(status)) {
                        *known = Some(exit);
                        if pid != child {
                            other(pid, exit);
                        }
                    }
                }
                Err(Errno::INTR) => {}
                // There is no such child.
                Err(_) => return Some(Exit::KILLED),
            }
        }
    }
}

fn ended(status: WaitStatus) -> Option<Exit> {
    // The kernel keeps only eight bits.
    let code = status.exit_status().map(|code| Exit::Code(u8::try_from(code).unwrap_or(u8::MAX)));
    code.or_else(|| status.terminating_signal().map(Exit::Signal))
}

extern "C" fn remember(number: libc::c_int) {
    STOP_SIGNAL.store(number, Ordering::SeqCst);
    let (leader, signal) = (FORWARD_TO.load(Ordering::SeqCst), Signal::try_from(number));
    if let (1.., Ok(signal)) = (leader, signal) {
        signal::killpg(Pid::from_raw(leader), signal).ok();
    }
}

/// Ends this process by a signal. Returns if the signal ends no process.
#[expect(unsafe_code, reason = "signal handlers have no safe interface")]
pub(crate) fn exit_as(number: i32) {
    if let Ok(signal) = Signal::try_from(number) {
        let default = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
        // SAFETY: the default action runs no code of this program.
        unsafe { sigaction(signal, &default) }.ok();
        signal::raise(signal).ok();
    }
}
