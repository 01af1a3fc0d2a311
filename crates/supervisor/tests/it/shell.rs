//! A shell that keeps everything in memory, and watches what the core does.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use model::{ExecutionId, Fence};
use supervisor::{
    Action, Assigned, Batch, BootMillis, Entry, Event, Held, Launch, Limits, Moment, Payloads, Report, State,
    Supervisor, Terms, Verdict,
};

/// How long an execution may stay frozen here, in milliseconds.
pub(crate) const ORPHAN_LIMIT: u64 = 10_000;

#[derive(Debug)]
pub(crate) enum Plain {}

/// How an execution ended, and whether its output files were stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct End {
    pub(crate) verdict: Option<Verdict>,
    pub(crate) stored: bool,
}

impl Payloads for Plain {
    type Order = Terms;
    type Assignment = ();
    type End = End;
    type Stored = ();

    fn interrupted() -> End {
        End { verdict: None, stored: false }
    }

    fn stop_while_storing(end: &mut End) {
        end.verdict = Some(Verdict::Stopped);
    }

    fn add_outputs(end: &mut End, (): ()) {
        end.stored = true;
    }
}

/// What a journal says of an execution.
#[derive(Debug, Clone)]
enum Line {
    Started(Fence),
    Ran(Fence, End),
    Ended(Fence, Report<Plain>),
}

/// The journal.
#[derive(Debug, Default)]
pub(crate) struct Disk {
    lines: BTreeMap<ExecutionId, Line>,
    forgotten: VecDeque<ExecutionId>,
}

impl Disk {
    fn write(&mut self, entry: &Entry<Plain>) {
        match entry {
            Entry::Started { execution, fence } => drop(self.lines.insert(*execution, Line::Started(*fence))),
            Entry::Ran { execution, fence, end, .. } => {
                self.lines.insert(*execution, Line::Ran(*fence, *end));
            }
            Entry::Outcome { execution, fence, report } => {
                self.lines.insert(*execution, Line::Ended(*fence, report.clone()));
            }
            Entry::Forgotten { execution } => {
                self.lines.remove(execution);
                self.forgotten.push_back(*execution);
            }
        }
    }

    fn state(&self) -> State<Plain> {
        let held = self.lines.iter().map(|(id, line)| {
            let held = match line.clone() {
                Line::Started(fence) => Held::Started { fence },
                Line::Ran(fence, end) => Held::Ran { fence, job: None, assignment: (), end },
                Line::Ended(fence, report) => Held::Ended { fence, report },
            };
            (*id, held)
        });
        State { held: held.collect(), forgotten: self.forgotten.clone() }
    }

    pub(crate) fn has_started(&self, execution: ExecutionId) -> bool {
        matches!(self.lines.get(&execution), Some(Line::Started(_)))
    }

    pub(crate) fn has_ended(&self, execution: ExecutionId) -> bool {
        matches!(self.lines.get(&execution), Some(Line::Ended(..)))
    }
}

/// A process.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) terms: Terms,
    pub(crate) began: Moment,
    /// Whether the core knows that it runs.
    pub(crate) is_loaded: bool,
    pub(crate) is_alive: bool,
    pub(crate) was_killed: bool,
    pub(crate) frozen: bool,
    /// How long it ran: neither frozen nor suspended, in milliseconds.
    pub(crate) ran: u64,
    /// How long of that it was being loaded without a lease, for want of a fuse.
    unguarded: u64,
    /// Whether it was asked to end, by whatever.
    pub(crate) was_terminated: bool,
    ended_by_itself: bool,
}

/// The shell.
#[derive(Debug)]
pub(crate) struct Shell {
    pub(crate) core: Supervisor<Plain>,
    pub(crate) now: Moment,
    pub(crate) disk: Disk,
    writing: Option<Batch<Plain>>,
    /// Until when threads launch, and what the fuse was told.
    told_lease: BootMillis,
    /// Launches that wait for a thread, with what they launch.
    pub(crate) queued: BTreeMap<ExecutionId, Terms>,
    /// Launches that the end of the lease held back.
    held_back: BTreeMap<ExecutionId, Terms>,
    forbidden: BTreeSet<ExecutionId>,
    pub(crate) processes: BTreeMap<ExecutionId, Process>,
    /// Every launch that ever began.
    pub(crate) launched: BTreeSet<ExecutionId>,
    pub(crate) to_store: Vec<ExecutionId>,
    pub(crate) reports: Vec<(ExecutionId, Fence, Report<Plain>)>,
    pub(crate) slots: usize,
    /// Whether there is a fuse, which freezes what is being loaded when the lease ends.
    pub(crate) has_fuse: bool,
}

impl Shell {
    pub(crate) fn new() -> Self {
        let now = Moment { boot: 1_000, asleep: 0 };
        let disk = Disk::default();
        Self {
            core: Supervisor::new(Limits { orphan_limit: ORPHAN_LIMIT }, disk.state(), now),
            now,
            disk,
            writing: None,
            told_lease: 0,
            queued: BTreeMap::new(),
            held_back: BTreeMap::new(),
            forbidden: BTreeSet::new(),
            processes: BTreeMap::new(),
            launched: BTreeSet::new(),
            to_store: Vec::new(),
            reports: Vec::new(),
            slots: 4,
            has_fuse: true,
        }
    }

    pub(crate) fn tell(&mut self, event: Event<Plain>) {
        self.core.handle(self.now, event);
        self.act();
        while let Some((id, launch)) = self.core.next_launch(self.now.boot) {
            assert!(self.core.has_lease(self.now.boot), "{id} is launched without a lease");
            assert!(self.disk.has_started(id), "{id} is launched before its start is in the journal");
            let terms = match launch {
                Launch::First(terms) => {
                    assert!(self.launched.insert(id), "{id} is launched twice");
                    *terms
                }
                Launch::Again => self.held_back.remove(&id).unwrap(),
            };
            self.queued.insert(id, terms);
        }
        self.core.flush();
        self.act();
        while let Some((id, ())) = self.core.next_to_store() {
            self.to_store.push(id);
        }
        while let Some((id, fence, report)) = self.core.next_report() {
            let is_final = !matches!(report, Report::Started);
            let is_known = matches!(&report, Report::Refused { reason, .. } if reason == "known");
            assert!(
                !is_final || is_known || self.disk.has_ended(id),
                "{id} is reported before it is written"
            );
            let is_held = self.core.holdings().any(|held| held.execution == id);
            assert!(is_held || is_known, "{id} is forgotten before its end was acknowledged");
            self.reports.push((id, fence, report));
        }
    }

    fn act(&mut self) {
        while let Some(action) = self.core.next_action() {
            match action {
                Action::WriteJournal(batch) => {
                    assert!(self.writing.replace(batch).is_none(), "one batch is written at a time");
                }
                Action::TellLease(until) => self.told_lease = until,
                Action::ObserveLaunch(execution) => {
                    let began = self.processes.get(&execution).map(|process| process.began);
                    self.core.handle(self.now, Event::LaunchObserved { execution, began });
                }
                Action::KillLaunches(ids) => {
                    self.forbidden.extend(&ids);
                    self.kill(&ids);
                }
                Action::DropLaunch(id) => drop(self.held_back.remove(&id).unwrap()),
                Action::Terminate(id) => {
                    let process = self.processes.get_mut(&id).unwrap();
                    assert!(!process.frozen, "{id} is frozen and could not obey");
                    process.was_terminated = true;
                }
                Action::Kill(ids) => self.kill(&ids),
                Action::Freeze(ids) => {
                    let has_lease = self.core.has_lease(self.now.boot);
                    assert!(!has_lease, "{ids:?} are frozen under a lease");
                    self.set_frozen(&ids, true);
                }
                Action::Thaw(ids) => {
                    assert!(self.told_lease > self.now.boot, "{ids:?} are thawed before the fuse knows");
                    self.set_frozen(&ids, false);
                }
                Action::RemoveFolder(_) | Action::DropLog(_) => {}
            }
        }
    }

    fn set_frozen(&mut self, ids: &[ExecutionId], frozen: bool) {
        for id in ids {
            if let Some(process) = self.processes.get_mut(id) {
                assert!(!process.terms.at_most_once, "{id} needs no lease");
                process.frozen = frozen;
            }
        }
    }

    /// A SIGKILL is seen when the process is reaped.
    fn kill(&mut self, ids: &[ExecutionId]) {
        for id in ids {
            if let Some(process) = self.processes.get_mut(id).filter(|process| process.is_alive) {
                (process.is_alive, process.was_killed, process.was_terminated) = (false, true, true);
            }
        }
    }

    // What the world does.

    pub(crate) fn assign(&mut self, execution: ExecutionId, terms: Terms) {
        let assigned =
            Assigned { execution, fence: Fence(7), job: None, terms, order: Ok(terms), disk_full: false };
        self.tell(Event::Assigned(Box::new(assigned)));
    }

    pub(crate) fn renew(&mut self, millis: u64) {
        self.tell(Event::LeaseRenewed { until: self.now.boot + millis });
    }

    pub(crate) fn stop(&mut self, execution: ExecutionId, grace: u64, discard: bool) {
        self.tell(Event::StopRequested { execution, fence: Fence(7), grace, discard });
    }

    /// The batch that is being written is durable.
    pub(crate) fn write(&mut self) {
        if let Some(batch) = self.writing.take() {
            batch.entries.iter().for_each(|entry| self.disk.write(entry));
            self.tell(Event::JournalWritten);
        }
    }

    /// Writes until nothing is left.
    pub(crate) fn write_all(&mut self) {
        while self.writing.is_some() {
            self.write();
        }
    }

    /// A thread takes a launch that waits: it looks at the lease, and creates the process.
    pub(crate) fn begin(&mut self, execution: ExecutionId) {
        let Some(terms) = self.queued.remove(&execution) else { return };
        if self.now.boot >= self.told_lease {
            self.held_back.insert(execution, terms);
            return self.tell(Event::LaunchHeldBack { execution });
        }
        if self.forbidden.contains(&execution) {
            return self.tell(Event::LaunchCancelled { execution });
        }
        let process = Process {
            terms,
            began: self.now,
            is_loaded: false,
            is_alive: true,
            was_killed: false,
            frozen: false,
            ran: 0,
            unguarded: 0,
            was_terminated: false,
            ended_by_itself: false,
        };
        self.processes.insert(execution, process);
    }

    /// The program of a process is loaded, unless that is frozen.
    pub(crate) fn load(&mut self, execution: ExecutionId) {
        let Some(process) = self.processes.get_mut(&execution).filter(|process| !process.is_loaded) else {
            return;
        };
        if process.is_alive && process.frozen {
            return;
        }
        process.is_loaded = true;
        let (at, is_alive) = (process.began, process.is_alive);
        let exit = match process.was_killed {
            true => supervisor::EarlyExit::Killed,
            false => supervisor::EarlyExit::ByItself,
        };
        self.tell(Event::Launched { execution, at, exit: (!is_alive).then_some(exit) });
    }

    /// A process ends by itself, if it runs.
    pub(crate) fn exit(&mut self, execution: ExecutionId) {
        let runs = |process: &&mut Process| process.is_alive && !process.frozen;
        if let Some(process) = self.processes.get_mut(&execution).filter(runs) {
            process.is_alive = false;
            process.ended_by_itself = !process.was_terminated;
        }
    }

    /// A process that has ended is reaped, with all that it left behind.
    pub(crate) fn reap(&mut self, execution: ExecutionId, with_outputs: bool) {
        let is_over = |process: &&Process| process.is_loaded && !process.is_alive;
        let Some(process) = self.processes.get(&execution).filter(is_over) else { return };
        if process.ran + 1 < process.terms.timeout.unwrap_or(0) && !process.ended_by_itself {
            assert_ne!(self.core.verdict(execution), Some(Verdict::TimedOut), "{execution} timed out early");
        }
        self.tell(Event::Exited { execution });
        let verdict = self.core.verdict(execution).unwrap();
        self.processes.remove(&execution);
        let outputs = (with_outputs && verdict == Verdict::ByItself).then_some(());
        self.tell(Event::Gone { execution, end: End { verdict: Some(verdict), stored: false }, outputs });
    }

    pub(crate) fn store(&mut self) {
        for execution in std::mem::take(&mut self.to_store) {
            self.tell(Event::OutputsStored { execution, stored: () });
        }
    }

    /// Time passes, a part of it with the machine suspended first; alarms ring in between.
    pub(crate) fn pass(&mut self, asleep: u64, awake: u64) {
        self.now.boot += asleep;
        self.now.asleep += asleep;
        let end = self.now.boot + awake;
        self.ring();
        while let Some(at) = self.core.next_alarm().filter(|at| *at <= end) {
            self.advance(at.max(self.now.boot));
            self.ring();
        }
        self.advance(end);
    }

    fn advance(&mut self, to: BootMillis) {
        if self.now.boot < self.told_lease && self.told_lease < to {
            self.advance(self.told_lease);
        }
        let passed = to - self.now.boot;
        let had_lease = self.now.boot < self.told_lease;
        self.now.boot = to;
        for process in self.processes.values_mut().filter(|process| process.is_alive && !process.frozen) {
            process.ran += passed;
            if to >= self.told_lease && !process.is_loaded && !process.terms.at_most_once {
                process.frozen = self.has_fuse;
                process.unguarded += if had_lease { 0 } else { passed };
            }
        }
    }

    fn ring(&mut self) {
        if self.core.next_alarm().is_some_and(|at| at <= self.now.boot) {
            self.tell(Event::AlarmDue);
        }
        assert!(self.core.next_alarm().is_none_or(|at| at > self.now.boot), "an alarm rings again at once");
    }

    /// The fuse does what it must if the lease has ended, whether the supervisor did or not.
    pub(crate) fn fuse(&mut self, tells: bool) {
        if self.now.boot < self.told_lease {
            return;
        }
        let guarded = |process: &Process| process.is_alive && !process.terms.at_most_once && !process.frozen;
        let ids: Vec<_> = self.processes.iter().filter(|(_, it)| guarded(it)).map(|(id, _)| *id).collect();
        if ids.is_empty() {
            return;
        }
        self.set_frozen(&ids, true);
        self.tell(if tells { Event::FuseFroze { since: self.now } } else { Event::FuseLost });
    }

    /// The supervisor dies, and with it all processes; of the batch that was being written `entries` are on the disk.
    pub(crate) fn crash(&mut self, entries: usize) {
        let batch = self.writing.take();
        batch.iter().flat_map(|batch| &batch.entries).take(entries).for_each(|entry| self.disk.write(entry));
        self.processes.clear();
        self.queued.clear();
        self.held_back.clear();
        self.forbidden.clear();
        self.to_store.clear();
        self.told_lease = 0;
        self.core = Supervisor::new(Limits { orphan_limit: ORPHAN_LIMIT }, self.disk.state(), self.now);
        self.tell(Event::AgentConnected { slots: self.slots });
    }

    /// The server acknowledges every end that was reported.
    pub(crate) fn acknowledge(&mut self) {
        for (execution, fence, report) in std::mem::take(&mut self.reports) {
            if !matches!(report, Report::Started) {
                self.tell(Event::EndAcknowledged { execution, fence });
            }
        }
    }

    /// What must be so whenever nothing is due.
    pub(crate) fn check(&self) {
        let has_lease = self.core.has_lease(self.now.boot);
        for (id, process) in self.processes.iter().filter(|(_, process)| process.is_alive) {
            let longest = process.terms.timeout.map(|timeout| timeout + process.terms.grace);
            if process.is_loaded {
                let ran = process.ran - process.unguarded;
                assert!(longest.is_none_or(|longest| ran <= longest), "{id} runs beyond its timeout");
            }
            if has_lease {
                assert!(!process.frozen, "{id} is frozen under a lease");
            } else if process.is_loaded && !process.terms.at_most_once {
                assert!(process.frozen, "{id} runs without a lease");
            }
        }
        assert!(self.core.active() <= self.slots);
    }

    /// Everything ends if it may: the lease is renewed, tasks end, reports are acknowledged.
    pub(crate) fn settle(&mut self) {
        for _ in 0..100 {
            self.renew(60_000);
            self.write_all();
            let ids: Vec<_> = self.queued.keys().chain(self.processes.keys()).copied().collect();
            for id in ids {
                self.begin(id);
                self.load(id);
                self.exit(id);
                self.reap(id, false);
            }
            self.store();
            self.write_all();
            self.core.report_all();
            self.tell(Event::AlarmDue);
            self.acknowledge();
            self.write_all();
            self.pass(0, 500);
        }
    }
}
