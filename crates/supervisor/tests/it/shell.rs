//! An in-memory shell that checks the actions of the core.
//!
//! [`Shell`] drives a [`Supervisor`] on virtual time. A test plays the environment (assignments, leases,
//! stops, exits of processes, crashes), and the shell carries out the actions of the core on modelled
//! processes and a modelled journal.
//!
//! # Invariants
//! After each event the shell checks, among others:
//! - A launch happens once, under a lease, and after its journal record.
//! - An end is reported after its record, and held until it is acknowledged.
//! - Under an expired lease, executions are frozen, and none runs beyond its timeout.
//!
//! `leases`, `stops` and `properties` use it for scenarios and for random orders of events.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use model::{ExecutionId, Fence, StopReason};
use supervisor::{
    Action, Assigned, Batch, BootMillis, ClockReading, EndReason, Entry, Event, ExecutionPolicy, Held,
    Launch, Limits, Payloads, Report, State, Supervisor,
};

/// Maximum time that an execution may stay frozen in tests, in milliseconds.
pub(crate) const ORPHAN_LIMIT: u64 = 10_000;

#[derive(Debug)]
pub(crate) enum Plain {}

/// End of an execution, and whether its outputs were stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct End {
    pub(crate) verdict: Option<EndReason>,
    pub(crate) stored: bool,
}

impl Payloads for Plain {
    type StartRequest = ExecutionPolicy;
    type Assignment = ();
    type End = End;
    type Stored = ();

    fn interrupted() -> End {
        End { verdict: None, stored: false }
    }

    fn stop_while_storing(end: &mut End) {
        end.verdict = Some(EndReason::Stopped(StopReason::Cancelled));
    }

    fn add_outputs(end: &mut End, (): ()) {
        end.stored = true;
    }
}

/// Journal record of an execution.
#[derive(Debug, Clone)]
enum Line {
    Started(Fence),
    OutputsPending(Fence, End),
    Ended(Fence, Report<Plain>),
}

/// Content of the journal.
#[derive(Debug, Default)]
pub(crate) struct Disk {
    lines: BTreeMap<ExecutionId, Line>,
    forgotten: VecDeque<ExecutionId>,
}

impl Disk {
    fn write(&mut self, entry: &Entry<Plain>) {
        match entry {
            Entry::Started { execution, fence } => drop(self.lines.insert(*execution, Line::Started(*fence))),
            Entry::OutputsPending { execution, fence, end, .. } => {
                self.lines.insert(*execution, Line::OutputsPending(*fence, *end));
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

    fn replace(&mut self, State { held, forgotten }: State<Plain>) {
        let line = |held| match held {
            Held::Started { fence } => Line::Started(fence),
            Held::OutputsPending { fence, end, .. } => Line::OutputsPending(fence, end),
            Held::Ended { fence, report } => Line::Ended(fence, report),
        };
        self.lines = held.into_iter().map(|(id, held)| (id, line(held))).collect();
        self.forgotten = forgotten;
    }

    fn state(&self) -> State<Plain> {
        let held = self.lines.iter().map(|(id, line)| {
            let held = match line.clone() {
                Line::Started(fence) => Held::Started { fence },
                Line::OutputsPending(fence, end) => {
                    Held::OutputsPending { fence, job: None, assignment: (), end }
                }
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

#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) policy: ExecutionPolicy,
    pub(crate) began: ClockReading,
    /// Whether the core was notified that the program is loaded.
    pub(crate) is_loaded: bool,
    pub(crate) is_alive: bool,
    pub(crate) was_killed: bool,
    pub(crate) frozen: bool,
    /// Running time in milliseconds, without frozen and suspended time.
    pub(crate) ran: u64,
    /// Part of the running time without a lease during the loading, in worlds without a fuse.
    unguarded: u64,
    /// Whether it got SIGTERM or was killed.
    pub(crate) was_terminated: bool,
    ended_by_itself: bool,
}

#[derive(Debug)]
pub(crate) struct Shell {
    pub(crate) core: Supervisor<Plain>,
    pub(crate) now: ClockReading,
    pub(crate) disk: Disk,
    writing: Option<Batch<Plain>>,
    /// End of the lease, as sent to the launching threads and the fuse.
    sent_lease: BootMillis,
    /// Launches that wait for a thread.
    pub(crate) queued: BTreeMap<ExecutionId, ExecutionPolicy>,
    /// Launches that wait for the next lease.
    held_back: BTreeMap<ExecutionId, ExecutionPolicy>,
    forbidden: BTreeSet<ExecutionId>,
    pub(crate) processes: BTreeMap<ExecutionId, Process>,
    /// All executions that were ever launched.
    pub(crate) launched: BTreeSet<ExecutionId>,
    pub(crate) to_store: Vec<ExecutionId>,
    pub(crate) reports: Vec<(ExecutionId, Fence, Report<Plain>)>,
    pub(crate) slots: usize,
    /// Whether there is a fuse, which freezes programs that are being loaded when the lease expires.
    pub(crate) has_fuse: bool,
}

impl Shell {
    pub(crate) fn new() -> Self {
        let now = ClockReading { boot: 1_000, suspended: 0 };
        let disk = Disk::default();
        Self {
            core: Supervisor::new(Limits { orphan_limit: ORPHAN_LIMIT }, disk.state(), now),
            now,
            disk,
            writing: None,
            sent_lease: 0,
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
                Launch::Retry => self.held_back.remove(&id).unwrap(),
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
                Action::PublishLease(until) => self.sent_lease = until,
                Action::ObserveLaunch(execution) => {
                    let began = self.processes.get(&execution).map(|process| process.began);
                    self.core.handle(self.now, Event::LaunchObserved { execution, began });
                }
                Action::KillLaunches(ids) => {
                    self.forbidden.extend(&ids);
                    self.kill(&ids);
                }
                Action::DropLaunch(id) => drop(self.held_back.remove(&id).unwrap()),
                Action::Terminate(id, _) => {
                    let process = self.processes.get_mut(&id).unwrap();
                    assert!(!process.frozen, "{id} is frozen and cannot handle SIGTERM");
                    process.was_terminated = true;
                }
                Action::Kill(ids) => self.kill(&ids),
                Action::Freeze(ids) => {
                    let has_lease = self.core.has_lease(self.now.boot);
                    assert!(!has_lease, "{ids:?} are frozen under a lease");
                    self.set_frozen(&ids, true);
                }
                Action::Thaw(ids) => {
                    assert!(self.sent_lease > self.now.boot, "{ids:?} are thawed without a lease");
                    self.set_frozen(&ids, false);
                }
                Action::RemoveFolder(_) | Action::DropLog(_) => {}
            }
        }
    }

    fn set_frozen(&mut self, ids: &[ExecutionId], frozen: bool) {
        for id in ids {
            if let Some(process) = self.processes.get_mut(id) {
                assert!(!process.policy.at_most_once, "{id} needs no lease");
                process.frozen = frozen;
            }
        }
    }

    /// Kills processes; the supervisor is notified when they are reaped.
    fn kill(&mut self, ids: &[ExecutionId]) {
        for id in ids {
            if let Some(process) = self.processes.get_mut(id).filter(|process| process.is_alive) {
                (process.is_alive, process.was_killed, process.was_terminated) = (false, true, true);
            }
        }
    }

    // Environment.

    pub(crate) fn assign(&mut self, execution: ExecutionId, terms: ExecutionPolicy) {
        let assigned = Assigned {
            execution,
            fence: Fence(7),
            job: None,
            policy: terms,
            order: Ok(terms),
            disk_full: false,
        };
        self.tell(Event::Assigned(Box::new(assigned)));
    }

    pub(crate) fn renew(&mut self, millis: u64) {
        self.tell(Event::LeaseRenewed { until: self.now.boot + millis });
    }

    pub(crate) fn stop(&mut self, execution: ExecutionId, grace: u64, discard: bool) {
        let reason = StopReason::Cancelled;
        self.tell(Event::StopRequested { execution, fence: Fence(7), grace, discard, reason });
    }

    /// The agent reports that a startup or liveness check has failed too often.
    pub(crate) fn check_failed(&mut self, execution: ExecutionId) {
        self.tell(Event::CheckFailed { execution, fence: Fence(7), since: self.now.boot });
    }

    /// Makes the batch that is being written durable.
    pub(crate) fn write(&mut self) {
        if let Some(batch) = self.writing.take() {
            batch.entries.iter().for_each(|entry| self.disk.write(entry));
            self.tell(Event::JournalWritten);
        }
    }

    /// Replaces the journal by the state of the core, unless a batch is being written.
    pub(crate) fn compact(&mut self) {
        if self.writing.is_none() {
            self.disk.replace(self.core.journal_state());
        }
    }

    /// Writes all batches.
    pub(crate) fn write_all(&mut self) {
        while self.writing.is_some() {
            self.write();
        }
    }

    /// A thread takes a queued launch: it checks the lease and creates the process.
    pub(crate) fn begin(&mut self, execution: ExecutionId) {
        let Some(terms) = self.queued.remove(&execution) else { return };
        if self.now.boot >= self.sent_lease {
            self.held_back.insert(execution, terms);
            return self.tell(Event::LaunchHeldBack { execution });
        }
        if self.forbidden.contains(&execution) {
            return self.tell(Event::LaunchCancelled { execution });
        }
        let process = Process {
            policy: terms,
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

    /// Completes the loading of a program, unless its process is frozen.
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

    /// A process exits by itself, if it runs.
    pub(crate) fn exit(&mut self, execution: ExecutionId) {
        let runs = |process: &&mut Process| process.is_alive && !process.frozen;
        if let Some(process) = self.processes.get_mut(&execution).filter(runs) {
            process.is_alive = false;
            process.ended_by_itself = !process.was_terminated;
        }
    }

    /// An ended process is reaped, with all its remaining processes.
    pub(crate) fn reap(&mut self, execution: ExecutionId, with_outputs: bool) {
        let is_over = |process: &&Process| process.is_loaded && !process.is_alive;
        let Some(process) = self.processes.get(&execution).filter(is_over) else { return };
        if process.ran + 1 < process.policy.timeout.unwrap_or(0) && !process.ended_by_itself {
            assert_ne!(
                self.core.end_reason(execution),
                Some(EndReason::TimedOut),
                "{execution} timed out early"
            );
        }
        self.tell(Event::Exited { execution });
        let verdict = self.core.end_reason(execution).unwrap();
        self.processes.remove(&execution);
        let outputs = (with_outputs && verdict == EndReason::ByItself).then_some(());
        self.tell(Event::AllProcessesExited {
            execution,
            end: Ok(End { verdict: Some(verdict), stored: false }),
            outputs,
        });
    }

    pub(crate) fn store(&mut self) {
        for execution in std::mem::take(&mut self.to_store) {
            self.tell(Event::OutputsStored { execution, stored: () });
        }
    }

    /// Advances the time, first with the machine suspended; alarms expire in between.
    pub(crate) fn pass(&mut self, asleep: u64, awake: u64) {
        self.now.boot += asleep;
        self.now.suspended += asleep;
        let end = self.now.boot + awake;
        self.ring();
        while let Some(at) = self.core.next_alarm().filter(|at| *at <= end) {
            self.advance(at.max(self.now.boot));
            self.ring();
        }
        self.advance(end);
    }

    fn advance(&mut self, to: BootMillis) {
        if self.now.boot < self.sent_lease && self.sent_lease < to {
            self.advance(self.sent_lease);
        }
        let passed = to - self.now.boot;
        let had_lease = self.now.boot < self.sent_lease;
        self.now.boot = to;
        for process in self.processes.values_mut().filter(|process| process.is_alive && !process.frozen) {
            process.ran += passed;
            if to >= self.sent_lease && !process.is_loaded && !process.policy.at_most_once {
                process.frozen = self.has_fuse;
                process.unguarded += if had_lease { 0 } else { passed };
            }
        }
    }

    fn ring(&mut self) {
        if self.core.next_alarm().is_some_and(|at| at <= self.now.boot) {
            self.tell(Event::AlarmFired);
        }
        assert!(self.core.next_alarm().is_none_or(|at| at > self.now.boot), "an expired alarm is still set");
    }

    /// The fuse freezes processes if the lease has expired. With `tells` false, it exits before it reports that.
    pub(crate) fn fuse(&mut self, tells: bool) {
        if self.now.boot < self.sent_lease {
            return;
        }
        let guarded = |process: &Process| process.is_alive && !process.policy.at_most_once && !process.frozen;
        let ids: Vec<_> = self.processes.iter().filter(|(_, it)| guarded(it)).map(|(id, _)| *id).collect();
        if ids.is_empty() {
            return;
        }
        self.set_frozen(&ids, true);
        self.tell(if tells { Event::FuseFroze { since: self.now } } else { Event::FuseLost });
    }

    /// Simulates a crash of the supervisor, which ends all processes. `entries` of the current batch are on the disk.
    pub(crate) fn crash(&mut self, entries: usize) {
        let batch = self.writing.take();
        batch.iter().flat_map(|batch| &batch.entries).take(entries).for_each(|entry| self.disk.write(entry));
        self.processes.clear();
        self.queued.clear();
        self.held_back.clear();
        self.forbidden.clear();
        self.to_store.clear();
        self.sent_lease = 0;
        self.core = Supervisor::new(Limits { orphan_limit: ORPHAN_LIMIT }, self.disk.state(), self.now);
        self.tell(Event::AgentConnected { slots: self.slots });
    }

    /// Acknowledges all reported ends.
    pub(crate) fn acknowledge(&mut self) {
        for (execution, fence, report) in std::mem::take(&mut self.reports) {
            if !matches!(report, Report::Started) {
                self.tell(Event::EndAcknowledged { execution, fence });
            }
        }
    }

    /// Checks the invariants that hold after every step.
    pub(crate) fn check(&self) {
        let has_lease = self.core.has_lease(self.now.boot);
        for (id, process) in self.processes.iter().filter(|(_, process)| process.is_alive) {
            let longest = process.policy.timeout.map(|timeout| timeout + process.policy.grace);
            if process.is_loaded {
                let ran = process.ran - process.unguarded;
                assert!(longest.is_none_or(|longest| ran <= longest), "{id} runs beyond its timeout");
            }
            if has_lease {
                assert!(!process.frozen, "{id} is frozen under a lease");
            } else if process.is_loaded && !process.policy.at_most_once {
                assert!(process.frozen, "{id} runs without a lease");
            }
        }
        assert!(self.core.active() <= self.slots);
    }

    /// Lets all executions end: renews the lease, ends tasks, and acknowledges reports.
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
            self.tell(Event::AlarmFired);
            self.acknowledge();
            self.write_all();
            self.pass(0, 500);
        }
    }
}
