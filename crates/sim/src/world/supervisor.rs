//! The supervisor of a worker: the product's core, with a modelled disk, launch threads, and a process that can
//! crash.
//!
//! A crash loses the state of the core, but not the disk; of a journal batch that was being written, a prefix is on
//! the disk. A sync may fail; the process then ends. The journal is compacted to the state of the core, as by the
//! product, but much more often. Events are handled one at a time, each followed by a turn, as in the product's loop.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use engine::Report;
use engine::input::ExecutionEnd;
use engine::output::Assignment;
use model::record::{Outcome, Usage};
use model::spec::Delivery;
use model::{Duration, ExecutionId, Fence};
use supervisor::{
    Action, Assigned, Batch, BootMillis, ClockReading, Entry, Event, ExecutionPolicy, Holding, LaunchFailure,
    Limits, Payloads, StartFailure, State,
};

use super::fuse::Fuse;
use super::launcher::Launching;
use super::sessions::Stop;
use super::task::Task;
use super::{World, WorldEvent};
use crate::history::{TaskStep, What};

/// The limits that the product configures.
const LIMITS: Limits = Limits { orphan_limit: 300_000 };
/// Maximum duration of a journal write, in milliseconds.
const WRITE_MILLIS: u64 = 20;

/// Payload types of this shell.
#[derive(Debug)]
pub(super) enum Sim {}

/// How a task ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct End {
    pub(super) how: ExecutionEnd,
    pub(super) exit: Option<i32>,
}

impl Payloads for Sim {
    type StartRequest = Arc<Assignment>;
    type Assignment = ();
    type End = End;
    type Stored = ();

    fn interrupted() -> End {
        End { how: ExecutionEnd::Interrupted, exit: None }
    }

    fn stop_while_storing(end: &mut End) {
        end.how = ExecutionEnd::Stopped;
    }

    fn add_outputs(_: &mut End, (): ()) {}
}

type Core = supervisor::Supervisor<Sim>;

/// A message to a supervisor.
#[derive(Debug, Clone)]
pub(super) enum SupervisorMessage {
    // From its agent.
    AgentConnected,
    Start(Arc<Assignment>),
    Stop(Stop),
    Ack { execution: ExecutionId, fence: Fence, last: bool },
    Lease { until: BootMillis },
    RepeatReports,
    Stored { execution: ExecutionId },
    // From its disk, its clock and its threads.
    Written,
    Alarm { at: BootMillis },
    Looked { execution: ExecutionId },
    Created { execution: ExecutionId },
    Loaded { execution: ExecutionId },
    // From the kernel and the fuse.
    Exited { execution: ExecutionId },
    Gone { execution: ExecutionId },
    Froze { since: ClockReading },
    FuseLost,
}

/// The supervisor process and its child processes.
#[derive(Debug)]
pub(super) struct Supervisor {
    pub(super) up: bool,
    pub(super) paused: bool,
    pub(super) life: u32,
    inbox: VecDeque<SupervisorMessage>,
    pub(super) core: Core,
    /// Time of its alarm.
    alarm: Option<BootMillis>,
    /// What is being written to the journal.
    writing: Option<Writing>,
    /// End of the time in which its threads may launch.
    pub(super) launches_until: BootMillis,
    pub(super) launching: BTreeMap<ExecutionId, Launching>,
    pub(super) tasks: BTreeMap<ExecutionId, Task>,
    pub(super) fuse: Fuse,
}

impl Supervisor {
    /// Returns a supervisor that does not run.
    pub(super) fn down(life: u32) -> Self {
        Self {
            up: false,
            paused: false,
            life,
            inbox: VecDeque::new(),
            core: Core::new(LIMITS, State::default(), ClockReading { boot: 0, suspended: 0 }),
            alarm: None,
            writing: None,
            launches_until: 0,
            launching: BTreeMap::new(),
            tasks: BTreeMap::new(),
            fuse: Fuse::default(),
        }
    }
}

/// What the thread of the journal is doing.
#[derive(Debug)]
enum Writing {
    Batch(Batch<Sim>),
    /// Replacing the journal by one that contains only this state.
    Compaction(State<Sim>),
}

impl Writing {
    fn is_synced(&self) -> bool {
        match self {
            Self::Batch(batch) => batch.sync,
            Self::Compaction(_) => true,
        }
    }
}

/// Number of records from which a journal is compacted.
const COMPACT_MIN: usize = 20;

/// The disk, which survives everything except a wipe.
#[derive(Debug, Default)]
pub(super) struct Disk {
    /// Number of faults that let syncs fail.
    pub(super) faults: u32,
    /// Number of records in the journal, and from which number on it is compacted.
    records: usize,
    compact_at: usize,
    held: BTreeMap<ExecutionId, Line>,
    forgotten: VecDeque<ExecutionId>,
    /// Entries that were written and not synced, in order: a power cut keeps a prefix of them.
    unsynced: Vec<Entry<Sim>>,
}

/// Journal state of an execution.
#[derive(Debug, Clone)]
enum Line {
    Started(Fence),
    Ran(Fence, End),
    Ended(Fence, supervisor::Report<Sim>),
}

impl Disk {
    fn write(&mut self, batch: Batch<Sim>) {
        self.records += batch.entries.len();
        self.unsynced.extend(batch.entries);
        if batch.sync {
            self.sync();
        }
    }

    fn sync(&mut self) {
        for entry in std::mem::take(&mut self.unsynced) {
            match entry {
                Entry::Started { execution, fence } => {
                    self.held.insert(execution, Line::Started(fence));
                }
                Entry::OutputsPending { execution, fence, end, .. } => {
                    self.held.insert(execution, Line::Ran(fence, end));
                }
                Entry::Outcome { execution, fence, report } => {
                    self.held.insert(execution, Line::Ended(fence, report));
                }
                Entry::Forgotten { execution } => {
                    self.held.remove(&execution);
                    self.forgotten.push_back(execution);
                }
            }
        }
    }

    /// Whether the journal is to be compacted: at twice its size after the last time, as in the product.
    fn is_large(&self) -> bool {
        self.records > self.compact_at.max(COMPACT_MIN)
    }

    /// Replaces the journal.
    fn replace(&mut self, State { held, forgotten }: State<Sim>) {
        self.records = held.len() + forgotten.len();
        self.compact_at = self.records * 2;
        self.unsynced.clear();
        let line = |held| match held {
            supervisor::Held::Started { fence } => Line::Started(fence),
            supervisor::Held::OutputsPending { fence, end, .. } => Line::Ran(fence, end),
            supervisor::Held::Ended { fence, report } => Line::Ended(fence, report),
        };
        self.held = held.into_iter().map(|(id, held)| (id, line(held))).collect();
        self.forgotten = forgotten;
    }

    fn state(&self) -> State<Sim> {
        let held = self.held.iter().map(|(id, line)| {
            let held = match line.clone() {
                Line::Started(fence) => supervisor::Held::Started { fence },
                Line::Ran(fence, end) => {
                    supervisor::Held::OutputsPending { fence, job: None, assignment: (), end }
                }
                Line::Ended(fence, report) => supervisor::Held::Ended { fence, report },
            };
            (*id, held)
        });
        State { held: held.collect(), forgotten: self.forgotten.clone() }
    }
}

impl World {
    pub(super) fn start_supervisor(&mut self, worker: usize) {
        let moment = self.moment(worker);
        let this = &mut self.workers[worker];
        // The new process reads the page cache, synced or not, and syncs it.
        this.disk.sync();
        let core = Core::new(LIMITS, this.disk.state(), moment);
        this.supervisor = Supervisor { up: true, core, ..Supervisor::down(this.supervisor.life + 1) };
        self.start_fuse(worker);
        self.supervisor_turn(worker);
    }

    /// Kills the supervisor process. The fuse then kills its tasks.
    pub(super) fn crash_supervisor(&mut self, worker: usize) {
        let supervisor = &mut self.workers[worker].supervisor;
        let down = Supervisor::down(supervisor.life + 1);
        let left = std::mem::replace(supervisor, down);
        match left.writing {
            Some(Writing::Batch(mut batch)) => {
                let whole = self.worker_dice.below(batch.entries.len() + 1);
                batch.entries.truncate(whole);
                self.workers[worker].disk.write(Batch { sync: false, ..batch });
            }
            // The new file takes the place of the old one in one step.
            Some(Writing::Compaction(state)) if self.worker_dice.chance(0.5) => {
                self.workers[worker].disk.replace(state);
            }
            _ => {}
        }
        self.record(What::Crashed { worker: self.workers[worker].id });
        for execution in left.tasks.iter().filter(|(_, task)| task.alive).map(|(id, _)| *id) {
            self.record(What::Task { execution, step: TaskStep::Killed });
        }
    }

    /// Cuts the power: a prefix of the unsynced entries is on the disk.
    pub(super) fn lose_unsynced(&mut self, worker: usize) {
        let whole = self.worker_dice.below(self.workers[worker].disk.unsynced.len() + 1);
        self.workers[worker].disk.unsynced.truncate(whole);
    }

    pub(super) fn resume_supervisor(&mut self, worker: usize) {
        self.workers[worker].supervisor.paused = false;
        self.handle_waiting(worker);
    }

    /// Handles all waiting messages: alarms last, as in the product's loop, and messages of the fuse before or after
    /// the others.
    pub(super) fn handle_waiting(&mut self, worker: usize) {
        let mut waiting = std::mem::take(&mut self.workers[worker].supervisor.inbox);
        let fuse_is_late = self.worker_dice.chance(0.5);
        waiting.make_contiguous().sort_by_key(|message| match message {
            SupervisorMessage::Alarm { .. } => 2,
            SupervisorMessage::Froze { .. } if fuse_is_late => 1,
            _ => 0,
        });
        for message in waiting {
            self.tell_supervisor(worker, message);
        }
    }

    pub(super) fn supervisor_in(&mut self, worker: usize, delay: Duration, message: SupervisorMessage) {
        let life = self.workers[worker].supervisor.life;
        self.put_in(delay, WorldEvent::Supervisor { worker, life, message });
    }

    pub(super) fn handle_supervisor_message(&mut self, worker: usize, life: u32, message: SupervisorMessage) {
        if self.workers[worker].supervisor.life == life {
            self.tell_supervisor(worker, message);
        }
    }

    pub(super) fn tell_supervisor(&mut self, worker: usize, message: SupervisorMessage) {
        let this = &mut self.workers[worker];
        if !this.supervisor.up {
            return;
        }
        if this.paused || this.supervisor.paused {
            return this.supervisor.inbox.push_back(message);
        }
        self.hear(worker, message);
        self.supervisor_turn(worker);
    }

    fn hear(&mut self, worker: usize, message: SupervisorMessage) {
        let slots = self.workers[worker].capacity.slots as usize;
        match message {
            SupervisorMessage::AgentConnected => self.handle(worker, Event::AgentConnected { slots }),
            SupervisorMessage::Start(assignment) => self.take_start(worker, assignment),
            SupervisorMessage::Stop(Stop { execution, fence, grace, discard, reason }) => {
                let grace = grace.as_millis();
                self.handle(worker, Event::StopRequested { execution, fence, grace, discard, reason });
            }
            SupervisorMessage::Ack { execution, fence, last } if last => {
                self.handle(worker, Event::EndAcknowledged { execution, fence });
            }
            SupervisorMessage::Ack { .. } => {}
            SupervisorMessage::Lease { until } => self.handle(worker, Event::LeaseRenewed { until }),
            SupervisorMessage::RepeatReports => self.workers[worker].supervisor.core.report_all(),
            SupervisorMessage::Stored { execution } => {
                self.handle(worker, Event::OutputsStored { execution, stored: () });
            }
            SupervisorMessage::Written => self.written(worker),
            SupervisorMessage::Alarm { at } => self.alarm(worker, at),
            SupervisorMessage::Looked { execution } => self.look_at_lease(worker, execution),
            SupervisorMessage::Created { execution } => self.create_task(worker, execution),
            SupervisorMessage::Loaded { execution } => self.task_loaded(worker, execution),
            SupervisorMessage::Exited { execution } => self.reap(worker, execution),
            SupervisorMessage::Gone { execution } => self.task_is_gone(worker, execution),
            SupervisorMessage::Froze { since } => self.handle(worker, Event::FuseFroze { since }),
            SupervisorMessage::FuseLost => {
                self.start_fuse(worker);
                self.handle(worker, Event::FuseLost);
            }
        }
    }

    /// Does what the product's loop does after each event.
    fn supervisor_turn(&mut self, worker: usize) {
        self.act(worker);
        loop {
            let boot = self.moment(worker).boot;
            let Some((execution, launch)) = self.workers[worker].supervisor.core.next_launch(boot) else {
                break;
            };
            self.launch(worker, execution, launch);
            self.act(worker);
        }
        let supervisor = &mut self.workers[worker].supervisor;
        if supervisor.writing.is_none() {
            supervisor.core.flush();
        }
        self.act(worker);
        self.pass_on(worker);
        self.arm(worker);
    }

    pub(super) fn handle(&mut self, worker: usize, event: Event<Sim>) {
        let moment = self.moment(worker);
        self.workers[worker].supervisor.core.handle(moment, event);
        self.act(worker);
    }

    fn act(&mut self, worker: usize) {
        while let Some(action) = self.workers[worker].supervisor.core.next_action() {
            let supervisor = &mut self.workers[worker].supervisor;
            match action {
                Action::WriteJournal(batch) => {
                    self.begin_writing(worker, Writing::Batch(batch));
                }
                Action::PublishLease(until) => {
                    supervisor.launches_until = until;
                    self.tell_fuse(worker, until);
                }
                Action::ObserveLaunch(execution) => {
                    let moment = self.moment(worker);
                    let supervisor = &mut self.workers[worker].supervisor;
                    let Some(launching) = supervisor.launching.get(&execution) else { continue };
                    let observed = Event::LaunchObserved { execution, began: launching.began };
                    supervisor.core.handle(moment, observed);
                }
                Action::KillLaunches(executions) => {
                    for execution in &executions {
                        supervisor.launching.entry(*execution).and_modify(Launching::forbid);
                    }
                    executions.into_iter().for_each(|id| self.kill(worker, id));
                }
                Action::DropLaunch(execution) => drop(supervisor.launching.remove(&execution)),
                Action::Terminate(execution, _) => self.terminate(worker, execution),
                Action::Kill(executions) => executions.into_iter().for_each(|id| self.kill(worker, id)),
                Action::Freeze(executions) => executions.into_iter().for_each(|id| self.freeze(worker, id)),
                Action::Thaw(executions) => executions.into_iter().for_each(|id| self.thaw(worker, id)),
                Action::RemoveFolder(_) | Action::DropLog(_) => {}
            }
        }
    }

    fn begin_writing(&mut self, worker: usize, writing: Writing) {
        self.workers[worker].supervisor.writing = Some(writing);
        let longest = self.plan.journal_max.as_millis().max(WRITE_MILLIS);
        let delay = self.worker_dice.millis(1, longest);
        self.supervisor_in(worker, delay, SupervisorMessage::Written);
    }

    fn written(&mut self, worker: usize) {
        let is_broken = self.workers[worker].disk.faults > 0 && self.worker_dice.chance(0.3);
        let this = &mut self.workers[worker];
        match this.supervisor.writing.take() {
            Some(writing) if is_broken && writing.is_synced() => {
                this.supervisor.writing = Some(writing);
                return self.exit_supervisor(worker);
            }
            Some(Writing::Batch(batch)) => {
                this.disk.write(batch);
                self.handle(worker, Event::JournalWritten);
            }
            Some(Writing::Compaction(state)) => this.disk.replace(state),
            None => {}
        }
        let this = &mut self.workers[worker];
        if this.disk.is_large() {
            let state = this.supervisor.core.journal_state();
            self.begin_writing(worker, Writing::Compaction(state));
        }
    }

    /// Ends the process after a failed sync, as the product does: what is on the disk is unknown. The agent starts
    /// another one.
    fn exit_supervisor(&mut self, worker: usize) {
        self.crash_supervisor(worker);
        self.lose_unsynced(worker);
        self.start_supervisor(worker);
        if self.workers[worker].agent.up {
            self.crash_agent(worker);
            self.start_agent(worker);
        }
    }

    /// Returns the clock of a worker, as its supervisor reads it.
    pub(super) fn moment(&self, worker: usize) -> ClockReading {
        let this = &self.workers[worker];
        let millis = |micros: i64| u64::try_from(micros / 1_000).unwrap_or(0);
        ClockReading { boot: millis(this.boot(self.now)), suspended: millis(this.asleep) }
    }

    /// Returns the time until a worker's clock shows `at`.
    pub(super) fn until(&self, worker: usize, at: BootMillis) -> Duration {
        let micros = i64::try_from(at).unwrap_or(i64::MAX / 1_000).saturating_mul(1_000);
        Duration::from_millis(self.workers[worker].at(micros).since(self.now).as_millis() + 1)
    }

    fn arm(&mut self, worker: usize) {
        let supervisor = &mut self.workers[worker].supervisor;
        let next = supervisor.core.next_alarm();
        if std::mem::replace(&mut supervisor.alarm, next) == next {
            return;
        }
        if let Some(at) = next {
            let wait = self.until(worker, at);
            self.supervisor_in(worker, wait, SupervisorMessage::Alarm { at });
        }
    }

    fn alarm(&mut self, worker: usize, at: BootMillis) {
        let supervisor = &mut self.workers[worker].supervisor;
        if supervisor.alarm != Some(at) {
            return;
        }
        supervisor.alarm = None;
        self.handle(worker, Event::AlarmFired);
    }

    // Requests of the agent, and reports to it.

    fn take_start(&mut self, worker: usize, assignment: Arc<Assignment>) {
        let wish = self.clients.run_options_of(&assignment);
        let terms = ExecutionPolicy {
            at_most_once: wish.delivery == Delivery::AtMostOnce,
            timeout: wish.timeout.map(Duration::as_millis),
            grace: wish.grace.as_millis(),
        };
        let (execution, fence, job) = (assignment.execution, assignment.fence, Some(assignment.job));
        let disk_full = self.draw_failure(0.02);
        let order = if self.draw_failure(0.01) { Err(start_failed("fetch_failed")) } else { Ok(assignment) };
        let assigned = Assigned { execution, fence, job, policy: terms, order, disk_full };
        self.handle(worker, Event::Assigned(Box::new(assigned)));
    }

    /// Draws whether something goes wrong; always `false` after the faults.
    pub(super) fn draw_failure(&mut self, share: f64) -> bool {
        let rough = self.calm_since.is_none() && !self.plan.faults.is_empty();
        self.task_dice.chance(if rough { share } else { 0.0 })
    }

    /// Passes reports to the server, and asks the agent to store output files.
    fn pass_on(&mut self, worker: usize) {
        while self.is_in_session(worker)
            && let Some((execution, fence, report)) = self.workers[worker].supervisor.core.next_report()
        {
            self.send_report(worker, execution, fence, report_of(report));
        }
        while self.workers[worker].agent.up
            && let Some((execution, ())) = self.workers[worker].supervisor.core.next_to_store()
        {
            let delay = self.worker_dice.millis(1, 2_000);
            let life = self.workers[worker].agent.life;
            self.put_in(delay, WorldEvent::Stored { worker, agent: life, execution });
        }
    }

    /// Handles stored output files, if the agent is still the one that was asked.
    pub(super) fn stored(&mut self, worker: usize, agent: u32, execution: ExecutionId) {
        if self.workers[worker].agent.life == agent {
            self.tell_supervisor(worker, SupervisorMessage::Stored { execution });
        }
    }

    /// Returns the executions that workers hold because they were not acknowledged.
    pub(super) fn unacknowledged(&self) -> Vec<ExecutionId> {
        let held = self.workers.iter().flat_map(|worker| worker.supervisor.core.holdings());
        held.map(|Holding { execution, .. }| execution).collect()
    }

    pub(super) fn launch_failed(&mut self, worker: usize, execution: ExecutionId, code: &str) {
        let failure = LaunchFailure::Failed(start_failed(code));
        self.workers[worker].supervisor.launching.remove(&execution);
        self.handle(worker, Event::LaunchFailed { execution, failure });
    }
}

fn start_failed(code: &str) -> StartFailure {
    StartFailure { code: code.to_owned(), detail: String::new() }
}

/// Converts a report to the server's type.
fn report_of(report: supervisor::Report<Sim>) -> Report {
    match report {
        supervisor::Report::Started => Report::Started,
        // An execution that ended before and is not known any more.
        supervisor::Report::Refused { reason, .. } if reason == "known" => {
            finished(ExecutionEnd::Interrupted, None)
        }
        supervisor::Report::Refused { reason, .. } => Report::Refused { reason: reason.into() },
        supervisor::Report::StartFailed(StartFailure { code, .. }) => {
            Report::StartFailed { outcome: Outcome { error: Some(code.into()), ..Outcome::default() } }
        }
        supervisor::Report::Ended(end) => finished(end.how, end.exit),
    }
}

fn finished(how: ExecutionEnd, exit_code: Option<i32>) -> Report {
    Report::Finished { how, outcome: Outcome { exit_code, ..Outcome::default() }, usage: Usage::default() }
}
