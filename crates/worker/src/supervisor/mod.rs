//! The supervisor process: single owner of a worker folder, and parent of its tasks.
//!
//! The core [`supervisor`] decides; this module is its shell. One thread runs one loop. Each iteration passes events
//! to the core, carries out the core's actions and launches a few tasks. It then gives the journal its next batch,
//! and sends new state to the fuse and the agent. Slow operations run on other threads: journal writes ([`writer`]),
//! program launches ([`launcher`]) and folder removal ([`folder_remover`]).
//!
//! - [`setup`]: start-up, and recovery of the state of an earlier supervisor.
//! - [`actions`]: carries out the actions of the core.
//! - [`agent_messages`]: requests of the agent, and messages to it.
//! - [`start`]: prepares a task, and follows its launch.
//! - [`finish`]: ended children, and their remaining processes and files.
//! - [`task_socket`]: passes connections of tasks to the agent; [`checkpoint`]: reads the checkpoint files of tasks.
//! - [`secret_files`]: files with secrets, in memory.
//! - [`ports`]: ports of executions; [`volumes`]: directories that outlive them; [`watches`]: executions whose health checks the agent runs.
//! - [`usage`]: measures running tasks; [`task_usage`]: what was measured of one task.
//! - [`exits`]: ended and orphaned children, and the executions that they belong to.
//! - [`convert`]: converts values of the core to messages and records.
//! - [`task`], [`folders`], [`journal`], [`logs`], [`fuse_link`], [`agent_link`], [`poller`]: parts of the shell.

mod actions;
mod agent_link;
mod agent_messages;
mod checkpoint;
pub(crate) mod convert;
mod error_line;
mod exits;
mod finish;
mod folder_remover;
mod folders;
mod fuse_link;
pub(crate) mod journal;
mod launcher;
mod logs;
mod poller;
mod ports;
mod secret_files;
mod setup;
mod start;
pub(crate) mod task;
mod task_socket;
mod task_usage;
mod usage;
mod volumes;
mod watches;
mod writer;

use std::collections::{HashMap, HashSet, VecDeque};
use std::io;
use std::os::unix::net::UnixListener;

use model::{ExecutionId, WorkerId};
use nix::sys::signalfd::SignalFd;
use proto::logframe::Stream;
use supervisor::{BootMillis, Event};

use crate::clock::{boot_millis, now};
use crate::config::SupervisorConfig;
use crate::fuse::guards::Guards;
use crate::layout::Layout;
use crate::process::cgroup::Cgroups;
use crate::process::tree::Root;
use crate::process::user::{TaskUser, UserError};
use agent_link::AgentLink;
use convert::{StartLocation, WorkerPayloads};
use exits::{EarlyExits, Orphan};
use folders::Folders;
use fuse_link::FuseLink;
use journal::JournalError;
use launcher::{Launch, Launcher};
use logs::ExecutionLog;
use poller::{Alarm, Poller, Token, token};
use ports::Ports;
use secret_files::SecretFolder;
use start::Launching;
use task::Task;
use task_socket::Calls;
use usage::Meter;
use writer::Writer;

/// Maximum time that a supervisor waits for its tasks during shutdown, in milliseconds.
const SHUTDOWN_MAX: BootMillis = 10_000;
/// Delay before a retry to start the fuse, in milliseconds; also applies after a fuse that exited at once.
const FUSE_RETRY: BootMillis = 1_000;
/// Journal size in bytes at which it is compacted; it is compacted again whenever it has doubled.
const JOURNAL_COMPACT: u64 = 32 << 20;

/// Why a supervisor could not start or continue.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each message says it")]
pub enum SupervisorError {
    #[error("another supervisor already uses the worker folder `{}`", .0.display())]
    Locked(std::path::PathBuf),
    #[error(transparent)]
    Journal(#[from] JournalError),
    #[error(transparent)]
    User(#[from] UserError),
    #[error("the supervisor cannot {action}")]
    System { action: &'static str, source: io::Error },
}

fn failed<E: Into<io::Error>>(action: &'static str) -> impl FnOnce(E) -> SupervisorError {
    move |source| SupervisorError::System { action, source: source.into() }
}

#[derive(Debug)]
struct Supervisor {
    core: supervisor::Supervisor<WorkerPayloads>,
    config: SupervisorConfig,
    layout: Layout,
    worker: WorkerId,
    start_location: StartLocation,
    user: Option<TaskUser>,
    cgroups: Cgroups,
    folders: Folders,
    launcher: Launcher,
    ports: Ports,
    secret_folder: SecretFolder,

    poller: Poller,
    /// Time for which the alarm of the core is set.
    core_alarm: Option<BootMillis>,
    signals: SignalFd,
    listener: UnixListener,
    agent: Option<AgentLink>,
    fuse: Option<FuseLink>,
    /// Process ids of fuses that were killed and are not reaped yet.
    dying_fuses: HashSet<i32>,
    /// Executions that the fuse guards.
    guards: Guards,

    writer: Writer,
    /// Whether the writer is compacting the journal; otherwise it writes a batch of the core, or is idle.
    is_compacting: bool,
    compact_at: u64,

    /// Executions that a thread is launching, or whose launch waits for a lease.
    launching: HashMap<ExecutionId, Launching>,
    /// Prepared launches that wait because the lease had expired.
    held_back: HashMap<ExecutionId, Launch>,
    tasks: HashMap<ExecutionId, Task>,
    pids: HashMap<i32, ExecutionId>,
    /// Children that ended while tasks were being launched; some may belong to those tasks.
    early_exits: EarlyExits,
    /// Whether every unknown child is an orphan of a task.
    owns_orphans: bool,
    /// Orphaned processes of tasks that became children of the supervisor, with their execution if it is known.
    orphans: HashMap<i32, Orphan>,
    pipes: HashMap<Token, (ExecutionId, Stream)>,
    next_token: Token,
    calls: Calls,
    /// Whether the checkpoint files are to be checked.
    is_checkpoint_check_set: bool,
    meter: Meter,
    /// Whether a measurement of the tasks is scheduled.
    is_measurement_set: bool,
    /// Whether the agent has measurements that are to be withdrawn when no task runs.
    has_sent_usage: bool,

    logs: HashMap<ExecutionId, ExecutionLog>,
    /// Logs that may have unsent bytes, each at most once.
    unsent: VecDeque<ExecutionId>,
    unsent_set: HashSet<ExecutionId>,
    log_window_used: u64,
    read_buffer: Vec<u8>,

    /// Set once the shutdown has begun.
    ending: bool,
    deadline_passed: bool,
    idle_since: Option<BootMillis>,
}

/// Runs the supervisor of a worker folder, until SIGTERM or until it has been idle for the configured time.
///
/// It must be called from the program's first thread before any other thread is started, because it blocks signals in
/// all of them.
///
/// # Errors
/// [`SupervisorError`] if it cannot start, for example because another supervisor owns the folder, or if a required
/// system call fails.
pub fn run_supervisor(config: SupervisorConfig) -> Result<(), SupervisorError> {
    setup::start(config)?.run()
}

impl Supervisor {
    fn run(mut self) -> Result<(), SupervisorError> {
        let mut ready = Vec::new();
        loop {
            self.arm();
            self.poller.wait(!self.can_launch(), &mut ready).map_err(failed("wait"))?;
            for token in &ready {
                self.handle(*token);
            }
            for alarm in self.poller.due() {
                self.handle_alarm(alarm);
            }
            self.launch_some();
            if self.writer.is_idle() {
                self.core.flush();
                self.act();
            }
            self.flush_fuse();
            self.flush_agent();
            if self.is_over() {
                self.folders.close();
                return Ok(());
            }
        }
    }

    /// Sets the alarm of the core.
    fn arm(&mut self) {
        let next = self.core.next_alarm();
        if next != self.core_alarm {
            self.poller.cancel(Alarm::Core);
            next.into_iter().for_each(|at| self.poller.alarm(at, Alarm::Core));
            self.core_alarm = next;
        }
    }

    fn handle(&mut self, token: Token) {
        match token {
            token::SIGNALS => self.take_signals(),
            token::JOURNAL => self.journal_written(),
            token::LISTENER => self.accept(),
            token::AGENT => self.receive_from_agent(),
            token::FUSE => self.receive_from_fuse(),
            token::LAUNCHER => self.take_launched(),
            token::USAGE => self.take_measurements(),
            other if self.accept_call(other) => {}
            pipe => self.read_pipe(pipe),
        }
    }

    fn handle_alarm(&mut self, alarm: Alarm) {
        match alarm {
            Alarm::Core => {
                self.core_alarm = None;
                // The fuse may have frozen tasks while this process was stopped: that time counts towards no timeout.
                self.receive_from_fuse();
                self.handle_event(Event::AlarmFired);
            }
            Alarm::RemainingProcesses(id) => self.check_remaining_processes(id),
            Alarm::Fuse => self.start_fuse(),
            Alarm::Calls => self.retry_calls(),
            Alarm::Checkpoints => self.check_checkpoints(),
            Alarm::Usage => self.measure_tasks(),
            Alarm::Idle => {}
            Alarm::Shutdown => self.deadline_passed = true,
        }
    }

    /// Passes an event to the core, and carries out the resulting actions.
    fn handle_event(&mut self, event: Event<WorkerPayloads>) {
        self.core.handle(now(), event);
        self.act();
    }

    fn take_signals(&mut self) {
        while let Ok(Some(signal)) = self.signals.read_signal() {
            if signal.ssi_signo != libc::SIGCHLD as u32 {
                self.shut_down();
            }
        }
        self.reap();
    }

    /// Kills all tasks; the loop ends when their outcomes are durable.
    fn shut_down(&mut self) {
        if std::mem::replace(&mut self.ending, true) {
            return;
        }
        tracing::info!(worker_id = %self.worker, "shutting down: killing all tasks");
        self.poller.alarm(boot_millis() + SHUTDOWN_MAX, Alarm::Shutdown);
        self.handle_event(Event::ShutDown);
    }

    fn is_over(&mut self) -> bool {
        if self.ending {
            let done = self.core.has_shut_down() && self.launcher.is_idle() && self.writer.is_idle();
            return done || self.deadline_passed;
        }
        // On a full disk, unwritten records keep the supervisor from being idle.
        let idle =
            self.agent.is_none() && self.logs.is_empty() && self.core.is_idle() && self.writer.is_idle();
        if !idle {
            self.idle_since = None;
            return false;
        }
        let since = match self.idle_since {
            Some(since) => since,
            None => {
                let now = boot_millis();
                self.poller.alarm(now + self.config.idle_exit.as_millis(), Alarm::Idle);
                *self.idle_since.insert(now)
            }
        };
        boot_millis() >= since + self.config.idle_exit.as_millis()
    }

    // Lookups.

    /// Returns all known processes of a task.
    fn root(&self, id: ExecutionId) -> Option<Root> {
        let also = self.orphans.iter().filter(|(_, stray)| stray.owner == Some(id)).map(|(pid, _)| *pid);
        Some(Root { extra_pids: also.collect(), ..self.tasks.get(&id)?.root(id) })
    }

    /// Returns the processes of executions that run or are being launched.
    fn roots(&self, ids: &[ExecutionId]) -> Vec<Root> {
        ids.iter().filter_map(|id| self.root(*id).or_else(|| self.launching_root(*id))).collect()
    }

    // The fuse.

    fn start_fuse(&mut self) {
        if self.fuse.is_some() {
            return;
        }
        let started = self
            .guards
            .file()
            .and_then(|table| FuseLink::start(&self.config.program, table, &self.cgroups.bases()));
        let mut fuse = match started {
            Ok(fuse) => fuse,
            Err(error) => {
                tracing::error!(%error, "cannot start the fuse process; retrying");
                return self.poller.alarm(boot_millis() + FUSE_RETRY, Alarm::Fuse);
            }
        };
        if self.core.lease_until() > 0 {
            fuse.publish_lease(self.core.lease_until());
        }
        if let Err(error) = self.poller.watch(fuse.socket(), token::FUSE) {
            tracing::error!(%error, "cannot watch the fuse process");
        }
        self.fuse = Some(fuse);
    }

    fn flush_fuse(&mut self) {
        if let Some(Err(error)) = self.fuse.as_mut().map(FuseLink::flush) {
            tracing::warn!(%error, "no response from the fuse process; replacing it");
            self.replace_fuse();
        }
    }

    fn receive_from_fuse(&mut self) {
        match self.fuse.as_mut().map(FuseLink::receive) {
            Some(Ok(Some(froze))) => {
                self.handle_event(Event::FuseFroze { since: froze.since.unwrap_or_else(now) });
            }
            Some(Err(_)) => self.replace_fuse(),
            Some(Ok(None)) | None => {}
        }
    }

    fn replace_fuse(&mut self) {
        if let Some(fuse) = self.fuse.take() {
            self.poller.unwatch(fuse.socket());
            let next_at = fuse.next_at(boot_millis());
            // Before any task is thawed. A killed fuse may still complete a system call until it is reaped.
            self.dying_fuses.insert(fuse.kill());
            self.restart_fuse(next_at);
        }
    }

    /// Returns whether the ended child was a fuse. Tasks that it froze last are thawed.
    fn fuse_was_reaped(&mut self, pid: i32) -> bool {
        if self.dying_fuses.remove(&pid) {
            self.handle_event(Event::FuseLost);
            return true;
        }
        let Some(fuse) = self.fuse.take_if(|fuse| fuse.pid() == pid) else { return false };
        tracing::error!("the fuse process has exited; restarting it");
        self.poller.unwatch(fuse.socket());
        self.restart_fuse(fuse.next_at(boot_millis()));
        true
    }

    fn is_fuse(&self, pid: i32) -> bool {
        self.dying_fuses.contains(&pid) || self.fuse.as_ref().is_some_and(|fuse| fuse.pid() == pid)
    }

    /// Starts a new fuse after the old one has exited or was killed, now or at `next_at`.
    fn restart_fuse(&mut self, next_at: BootMillis) {
        if next_at <= boot_millis() {
            self.start_fuse();
        } else {
            self.poller.alarm(next_at, Alarm::Fuse);
        }
        // The fuse may have frozen tasks without reporting it.
        self.handle_event(Event::FuseLost);
    }
}
