//! The supervisor process: single owner of a worker's folder, and parent of its tasks.
//!
//! [`supervisor`] decides; this is its shell. One thread runs one loop. Each turn passes what became ready to the core as
//! events, carries out the core's actions, launches a few tasks, hands the journal its next batch, and tells fuse and
//! agent what is new. What may wait long is waited for elsewhere: the journal's disk ([`writer`]), programs that are
//! loaded ([`launcher`]), folders that are removed ([`janitor`]).
//!
//! - [`setup`]: start-up, and what an earlier supervisor left behind.
//! - [`act`]: the core's actions, carried out.
//! - [`talk`]: what the agent asks for, and what it is told.
//! - [`start`]: what a task needs is made, and its launch is followed.
//! - [`finish`]: children that ended, and what they left behind.
//! - [`door`]: how a task's calls get to the agent; [`checkpoint`]: the file that it saves progress to.
//! - [`exits`]: children that ended or lost their parent, and whose they are.
//! - [`convert`]: the core's values as messages and records; [`task`], [`folders`], [`journal`], [`logs`],
//!   [`fuse_link`], [`agent_link`], [`poller`]: the parts.

mod act;
mod agent_link;
mod checkpoint;
pub(crate) mod convert;
mod door;
mod exits;
mod finish;
mod folders;
mod fuse_link;
mod janitor;
pub(crate) mod journal;
mod launcher;
mod logs;
mod poller;
mod setup;
mod start;
mod talk;
pub(crate) mod task;
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
use convert::{Site, Wire};
use door::Calls;
use exits::{EarlyExits, Stray};
use folders::Folders;
use fuse_link::FuseLink;
use journal::JournalError;
use launcher::{Launch, Launcher};
use logs::{Bounds, ExecutionLog};
use poller::{Alarm, Poller, Token, token};
use start::Launching;
use task::Task;
use writer::Writer;

/// How long a supervisor that was told to end waits for its tasks.
const SHUTDOWN_MAX: BootMillis = 10_000;
/// Between two tries to start a fuse, and after one that ended at once.
const FUSE_RETRY: BootMillis = 1_000;
/// A journal of this size is rewritten, and again whenever it has doubled.
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
    #[error("the supervisor could not {action}")]
    System { action: &'static str, source: io::Error },
}

fn failed<E: Into<io::Error>>(action: &'static str) -> impl FnOnce(E) -> SupervisorError {
    move |source| SupervisorError::System { action, source: source.into() }
}

#[derive(Debug)]
struct Supervisor {
    core: supervisor::Supervisor<Wire>,
    config: SupervisorConfig,
    layout: Layout,
    worker: WorkerId,
    site: Site,
    user: Option<TaskUser>,
    cgroups: Cgroups,
    folders: Folders,
    launcher: Launcher,

    poller: Poller,
    /// For when the core's alarm is set.
    core_alarm: Option<BootMillis>,
    signals: SignalFd,
    listener: UnixListener,
    agent: Option<AgentLink>,
    fuse: Option<FuseLink>,
    /// Fuses that were killed and are not reaped yet.
    dying_fuses: HashSet<i32>,
    /// Whom it guards.
    guards: Guards,

    writer: Writer,
    /// Whether the writer rewrites the journal; otherwise it writes a batch of the core, or nothing.
    is_compacting: bool,
    compact_at: u64,

    /// Executions that a thread is launching, or that are held back.
    launching: HashMap<ExecutionId, Launching>,
    /// Prepared, and not launched because the lease had ended.
    held_back: HashMap<ExecutionId, Launch>,
    tasks: HashMap<ExecutionId, Task>,
    pids: HashMap<i32, ExecutionId>,
    /// Children that ended while tasks were being started, and that may be such.
    early_exits: EarlyExits,
    /// Whether every child that we do not know is an orphan of a task.
    orphans_are_ours: bool,
    /// Children of ours that tasks orphaned, and whose they are, as far as that can be told.
    strays: HashMap<i32, Stray>,
    pipes: HashMap<Token, (ExecutionId, Stream)>,
    next_token: Token,
    calls: Calls,
    /// Whether there is to be a look at the checkpoints of tasks.
    follows_checkpoints: bool,
    /// How often there was.
    looks: u32,

    logs: HashMap<ExecutionId, ExecutionLog>,
    bounds: Bounds,
    /// Logs that may have something to send, each once.
    unsent: VecDeque<ExecutionId>,
    unsent_set: HashSet<ExecutionId>,
    log_window_used: u64,
    read_buffer: Vec<u8>,

    /// Set when the supervisor was told to end.
    ending: bool,
    deadline_passed: bool,
    idle_since: Option<BootMillis>,
}

/// Runs the supervisor of a worker's folder, until it is told to end by SIGTERM or has had nothing to
/// do for long. It must be called from the program's first thread before any other is started, for
/// signals are blocked in all of them.
///
/// # Errors
/// [`SupervisorError`] if it cannot start, above all because another one owns the folder, or if the
/// operating system refuses what it cannot go on without.
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
                self.ring(alarm);
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
            token::AGENT => self.hear_agent(),
            token::FUSE => self.hear_fuse(),
            token::LAUNCHER => self.take_launched(),
            other if self.answer_door(other) => {}
            pipe => self.read_pipe(pipe),
        }
    }

    fn ring(&mut self, alarm: Alarm) {
        match alarm {
            Alarm::Core => {
                self.core_alarm = None;
                // It may have frozen tasks while this process stood still: that time counts towards no timeout.
                self.hear_fuse();
                self.tell(Event::AlarmDue);
            }
            Alarm::Remains(id) => self.check_remains(id),
            Alarm::Fuse => self.start_fuse(),
            Alarm::Calls => self.retry_calls(),
            Alarm::Checkpoints => self.check_checkpoints(),
            Alarm::Idle => {}
            Alarm::Shutdown => self.deadline_passed = true,
        }
    }

    /// Tells the core what happened, and does what follows.
    fn tell(&mut self, event: Event<Wire>) {
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

    /// Kills all tasks; the loop ends when their ends are durable.
    fn shut_down(&mut self) {
        if std::mem::replace(&mut self.ending, true) {
            return;
        }
        tracing::info!(worker_id = %self.worker, "shutting down: killing all tasks");
        self.poller.alarm(boot_millis() + SHUTDOWN_MAX, Alarm::Shutdown);
        self.tell(Event::ShutDown);
    }

    fn is_over(&mut self) -> bool {
        if self.ending {
            let done = self.core.has_shut_down() && self.launcher.is_idle() && self.writer.is_idle();
            return done || self.deadline_passed;
        }
        // On a full disk, what is to be written waits.
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

    // Looking things up.

    /// All processes of a task, as far as is known.
    fn root(&self, id: ExecutionId) -> Option<Root> {
        let also = self.strays.iter().filter(|(_, stray)| stray.owner == Some(id)).map(|(pid, _)| *pid);
        Some(Root { also: also.collect(), ..self.tasks.get(&id)?.root(id) })
    }

    /// All processes of executions that run or are being launched.
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
                tracing::error!(%error, "cannot start the fuse; retrying");
                return self.poller.alarm(boot_millis() + FUSE_RETRY, Alarm::Fuse);
            }
        };
        if self.core.lease_until() > 0 {
            fuse.tell_lease(self.core.lease_until());
        }
        if let Err(error) = self.poller.watch(fuse.socket(), token::FUSE) {
            tracing::error!(%error, "cannot watch the fuse");
        }
        self.fuse = Some(fuse);
    }

    fn flush_fuse(&mut self) {
        if let Some(Err(error)) = self.fuse.as_mut().map(FuseLink::flush) {
            tracing::warn!(%error, "the fuse does not respond; replacing it");
            self.replace_fuse();
        }
    }

    fn hear_fuse(&mut self) {
        match self.fuse.as_mut().map(FuseLink::hear) {
            Some(Ok(Some(froze))) => {
                self.tell(Event::FuseFroze { since: froze.since.unwrap_or_else(now) });
            }
            Some(Err(_)) => self.replace_fuse(),
            Some(Ok(None)) | None => {}
        }
    }

    fn replace_fuse(&mut self) {
        if let Some(fuse) = self.fuse.take() {
            self.poller.unwatch(fuse.socket());
            let next_at = fuse.next_at(boot_millis());
            // Before anything thaws. Until it is reaped it may still come to the end of a system call.
            self.dying_fuses.insert(fuse.kill());
            self.fuse_is_gone(next_at);
        }
    }

    /// Whether the child that ended was a fuse. What it froze at the last goes on.
    fn fuse_was_reaped(&mut self, pid: i32) -> bool {
        if self.dying_fuses.remove(&pid) {
            self.tell(Event::FuseLost);
            return true;
        }
        let Some(fuse) = self.fuse.take_if(|fuse| fuse.pid() == pid) else { return false };
        tracing::error!("the fuse has exited; restarting it");
        self.poller.unwatch(fuse.socket());
        self.fuse_is_gone(fuse.next_at(boot_millis()));
        true
    }

    fn is_fuse(&self, pid: i32) -> bool {
        self.dying_fuses.contains(&pid) || self.fuse.as_ref().is_some_and(|fuse| fuse.pid() == pid)
    }

    /// The fuse has ended, or was killed: another one takes its place.
    fn fuse_is_gone(&mut self, next_at: BootMillis) {
        if next_at <= boot_millis() {
            self.start_fuse();
        } else {
            self.poller.alarm(next_at, Alarm::Fuse);
        }
        // It may have frozen tasks and not come to say so.
        self.tell(Event::FuseLost);
    }
}
