//! The supervisor: single owner of a worker's folder, and parent of its tasks.
//!
//! One thread decides, in one loop. Each turn handles what became ready, has a few tasks started, hands the
//! journal its next batch, and tells fuse and agent what is new. What may wait long is waited for
//! elsewhere: the journal's disk ([`writer`]), programs that are loaded ([`launcher`]), folders that are
//! removed ([`janitor`]).
//!
//! - [`setup`]: start-up, and what an earlier supervisor left behind.
//! - [`talk`]: what the agent asks for, and what it is told.
//! - [`start`]: from an assignment over the journal to a running process.
//! - [`launching`]: what is to be done while a thread waits for a program to be loaded.
//! - [`stop`]: stops, timeouts, and what the lease asks for: freezing and thawing.
//! - [`finish`]: from the end of a process to an outcome in the journal.
//! - [`door`]: how a task's calls get to the agent; [`checkpoint`]: the file that it saves progress to.
//! - [`forgotten`]: what is refused if it is assigned again.
//! - [`countdown`]: what is left of a timeout; [`exits`]: children that ended or lost their parent, and whose they are.
//! - [`execution`]: the states; [`folders`], [`journal`], [`logs`], [`fuse_link`], [`agent_link`], [`poller`]: the parts.
//!
//! # The lease
//! Tasks that are not `at_most_once` may be started elsewhere once our lease has run out. They are
//! frozen then, not killed: what does not run cannot overlap, and when the only server was merely
//! restarted everybody's long jobs go on afterwards. The agent passes on a renewed lease only after
//! the stops of the new session, so what the server no longer wants is gone before the rest thaws.

mod agent_link;
mod checkpoint;
mod countdown;
mod door;
mod execution;
mod exits;
mod finish;
mod folders;
mod forgotten;
mod fuse_link;
mod janitor;
pub(crate) mod journal;
mod launcher;
mod launching;
mod logs;
mod poller;
mod setup;
mod start;
mod stop;
mod talk;
mod writer;

use std::collections::{HashMap, HashSet, VecDeque};
use std::io;
use std::os::unix::net::UnixListener;

use model::{ExecutionId, WorkerId};
use nix::sys::signalfd::SignalFd;
use proto::logframe::Stream;
use proto::v1;

use crate::clock::{BootMillis, Moment, boot_millis};
use crate::config::SupervisorConfig;
use crate::layout::Layout;
use crate::process::cgroup::Cgroups;
use crate::process::tree::{self, Root};
use crate::process::user::{TaskUser, UserError};

use crate::fuse::guards::Guards;
use agent_link::AgentLink;
use door::Calls;
use execution::{Ending, Execution, Phase, Task};
use exits::{EarlyExits, Stray};
use folders::Folders;
use forgotten::Forgotten;
use fuse_link::FuseLink;
use journal::{Body, Entry, JournalError};
use launcher::{Launch, Launcher};
use logs::{Bounds, ExecutionLog};
use poller::{Alarm, Poller, Token, token};
use writer::Writer;

/// How long a supervisor that was told to end waits for its tasks.
const SHUTDOWN_MAX: BootMillis = 10_000;
/// Between two tries to start a fuse, and after one that ended at once.
const FUSE_RETRY: BootMillis = 1_000;
/// A journal of this size is rewritten, and again whenever it has doubled.
const JOURNAL_COMPACT: u64 = 32 << 20;

/// Why a supervisor could not start, or could not go on.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each message says it")]
pub enum SupervisorError {
    #[error("another supervisor owns `{}`", .0.display())]
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

/// What is done once a batch of the journal is durable.
#[derive(Debug, Clone, Copy)]
enum Effect {
    Spawn(ExecutionId),
    Ended(ExecutionId),
    Store(ExecutionId),
}

/// Entries on the way to the journal.
#[derive(Debug, Default)]
struct Batch {
    entries: Vec<Entry>,
    effects: Vec<Effect>,
    /// Whether anything waits for it to be durable.
    sync: bool,
}

#[derive(Debug)]
struct Supervisor {
    config: SupervisorConfig,
    layout: Layout,
    worker: WorkerId,
    boot_id: String,
    folder_id: String,
    user: Option<TaskUser>,
    cgroups: Cgroups,
    folders: Folders,
    launcher: Launcher,

    poller: Poller,
    signals: SignalFd,
    listener: UnixListener,
    agent: Option<AgentLink>,
    fuse: Option<FuseLink>,
    /// Fuses that were killed and are not reaped yet.
    dying_fuses: HashSet<i32>,
    /// Whom it guards.
    guards: Guards,

    writer: Writer,
    batch: Batch,
    /// What follows from the batch that is being written.
    effects: Vec<Effect>,
    compact_at: u64,

    executions: HashMap<ExecutionId, Execution>,
    forgotten: Forgotten,
    /// Waiting for a lease.
    waiting: VecDeque<ExecutionId>,
    /// Durably about to start.
    ready: VecDeque<ExecutionId>,
    /// Made ready to start, and not started because the lease was over.
    held_back: VecDeque<Launch>,
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
    /// Executions whose report is to be sent.
    dirty: VecDeque<ExecutionId>,
    /// Executions whose outputs the agent is to be asked for.
    to_store: VecDeque<ExecutionId>,
    /// Reports about executions that are not held.
    stray_reports: Vec<v1::Report>,

    logs: HashMap<ExecutionId, ExecutionLog>,
    bounds: Bounds,
    /// Logs that may have something to send, each once.
    unsent: VecDeque<ExecutionId>,
    unsent_set: HashSet<ExecutionId>,
    log_window_used: u64,
    read_buffer: Vec<u8>,

    lease_until: BootMillis,
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
            self.poller.wait(!self.can_start(), &mut ready).map_err(failed("wait"))?;
            for token in &ready {
                self.handle(*token);
            }
            for alarm in self.poller.due() {
                self.ring(alarm);
            }
            self.start_some();
            self.write_journal();
            self.flush_fuse();
            self.flush_agent();
            if self.is_over() {
                self.folders.close();
                return Ok(());
            }
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
            Alarm::Lease => self.check_lease(),
            Alarm::Launch(id) => self.check_launch(id),
            Alarm::Task(id) => self.check_task(id),
            Alarm::Remains(id) => self.check_remains(id),
            Alarm::Orphan(id) => self.check_orphan(id),
            Alarm::Fuse => self.start_fuse(),
            Alarm::Calls => self.retry_calls(),
            Alarm::Checkpoints => self.check_checkpoints(),
            Alarm::Idle => {}
            Alarm::Shutdown => self.deadline_passed = true,
        }
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
        tracing::info!(worker_id = %self.worker, "told to end, tasks are killed");
        self.poller.alarm(boot_millis() + SHUTDOWN_MAX, Alarm::Shutdown);
        let running: Vec<_> = self.running().map(|(id, _)| id).collect();
        for id in &running {
            if let Some(task) = self.task_mut(*id).filter(|task| task.is_alive()) {
                task.ending.get_or_insert(Ending::Shutdown);
            }
        }
        self.kill_tasks(&running);
        self.decline_unstarted();
        let launching: Vec<_> = self.launching().map(|(_, root)| root.execution).collect();
        self.kill_launching(&launching, Ending::Shutdown);
    }

    /// What was not started yet never will be, and the server is told so.
    fn decline_unstarted(&mut self) {
        for launch in std::mem::take(&mut self.held_back) {
            self.clear_away(launch.prepared);
            self.guards.release(launch.id);
            self.decline_at_shutdown(launch.id);
        }
        let starting = self.executions.iter().filter(|(_, e)| matches!(e.phase, Phase::Starting(_)));
        let starting: Vec<_> = starting.map(|(id, _)| *id).collect();
        starting.into_iter().for_each(|id| self.decline_at_shutdown(id));
    }

    fn decline_at_shutdown(&mut self, id: ExecutionId) {
        let Some(fence) = self.executions.get(&id).map(|execution| execution.fence) else { return };
        let detail = "the worker's supervisor was stopped before it started";
        self.decline(id, fence, execution::refused("stopped", detail));
    }

    fn is_over(&mut self) -> bool {
        if self.ending {
            let ended = self.running().next().is_none() && self.launcher.is_idle();
            let done = ended && self.batch.entries.is_empty() && self.writer.is_idle();
            return done || self.deadline_passed;
        }
        let idle = self.agent.is_none()
            && self.logs.is_empty()
            && !self.executions.values().any(Execution::is_active)
            // On a full disk, what is to be written waits.
            && self.batch.entries.is_empty()
            && self.writer.is_idle();
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

    // The journal.

    /// Adds to the next batch of the journal what need not be durable soon.
    fn note(&mut self, body: Body) {
        self.batch.entries.push(body.into());
    }

    /// Adds to the next batch of the journal; `effect` follows once it is durable.
    fn record(&mut self, body: Body, effect: Effect) {
        self.batch.entries.push(body.into());
        self.batch.effects.push(effect);
        self.batch.sync = true;
    }

    fn write_journal(&mut self) {
        if !self.writer.is_idle() || self.batch.entries.is_empty() {
            return;
        }
        let batch = std::mem::take(&mut self.batch);
        self.effects = batch.effects;
        self.writer.append(batch.entries, batch.sync);
    }

    fn journal_written(&mut self) {
        let Some(len) = self.writer.poll() else { return };
        for effect in std::mem::take(&mut self.effects) {
            match effect {
                Effect::Spawn(id) => self.ready.push_back(id),
                Effect::Ended(id) => self.ended_durably(id),
                Effect::Store(id) => self.to_store.push_back(id),
            }
        }
        if len > self.compact_at {
            self.compact_at = (len * 2).max(JOURNAL_COMPACT);
            self.writer.compact(self.journal_state());
        }
    }

    /// What the journal would say if it had no history.
    fn journal_state(&self) -> journal::State {
        let held = self.executions.iter().filter_map(|(id, execution)| {
            let held = match &execution.phase {
                Phase::Waiting(_) => return None,
                Phase::Starting(_) | Phase::Launching(_) | Phase::Running(_) => {
                    let (boot_id, folder_id) = (self.boot_id.clone(), self.folder_id.clone());
                    journal::Held::Started { fence: execution.fence, boot_id, folder_id }
                }
                Phase::Storing { assignment, finished } => {
                    journal::Held::Ran { assignment: (**assignment).clone(), finished: (**finished).clone() }
                }
                Phase::Ended { report, .. } => journal::Held::Ended { report: (**report).clone() },
            };
            Some((*id, held))
        });
        journal::State { worker: self.worker, held: held.collect(), forgotten: self.forgotten.ids() }
    }

    // Looking things up.

    fn running(&self) -> impl Iterator<Item = (ExecutionId, &Task)> {
        self.executions.iter().filter_map(|(id, execution)| match &execution.phase {
            Phase::Running(task) => Some((*id, &**task)),
            _ => None,
        })
    }

    /// All processes of a task, as far as is known.
    fn root(&self, id: ExecutionId) -> Option<Root> {
        let also = self.strays.iter().filter(|(_, stray)| stray.owner == Some(id)).map(|(pid, _)| *pid);
        Some(Root { also: also.collect(), ..self.task(id)?.root(id) })
    }

    fn roots(&self, ids: &[ExecutionId]) -> Vec<Root> {
        ids.iter().filter_map(|id| self.root(*id)).collect()
    }

    fn task(&self, id: ExecutionId) -> Option<&Task> {
        match &self.executions.get(&id)?.phase {
            Phase::Running(task) => Some(task),
            _ => None,
        }
    }

    fn task_mut(&mut self, id: ExecutionId) -> Option<&mut Task> {
        match &mut self.executions.get_mut(&id)?.phase {
            Phase::Running(task) => Some(task),
            _ => None,
        }
    }

    fn has_lease(&self) -> bool {
        boot_millis() < self.lease_until
    }

    /// Kills these tasks with all that belongs to them. Their ends are seen when they are reaped.
    fn kill_tasks(&self, ids: &[ExecutionId]) {
        for id in ids {
            if let Some(group) = self.task(*id).and_then(|task| task.group.as_ref()) {
                group.kill();
            }
        }
        let roots = self.roots(ids);
        if !roots.is_empty() {
            tree::kill(&roots);
        }
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
                tracing::error!(%error, "cannot start the fuse, retrying");
                return self.poller.alarm(boot_millis() + FUSE_RETRY, Alarm::Fuse);
            }
        };
        if self.lease_until > 0 {
            fuse.tell_lease(self.lease_until);
        }
        if let Err(error) = self.poller.watch(fuse.socket(), token::FUSE) {
            tracing::error!(%error, "cannot watch the fuse");
        }
        self.fuse = Some(fuse);
    }

    fn flush_fuse(&mut self) {
        if let Some(Err(error)) = self.fuse.as_mut().map(FuseLink::flush) {
            tracing::warn!(%error, "the fuse does not listen, it is replaced");
            self.replace_fuse();
        }
    }

    fn hear_fuse(&mut self) {
        match self.fuse.as_mut().map(FuseLink::hear) {
            Some(Ok(Some(froze))) => self.fuse_has_frozen(froze.since.unwrap_or_else(Moment::now)),
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
            if self.has_lease() {
                self.thaw_all();
            }
            return true;
        }
        let Some(fuse) = self.fuse.take_if(|fuse| fuse.pid() == pid) else { return false };
        tracing::error!("the fuse has ended, it is started again");
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
        if self.has_lease() {
            self.thaw_all();
        }
    }
}
