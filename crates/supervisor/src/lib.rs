//! The supervisor of a worker: which executions the worker holds, and what happens to them.
//!
//! ```text
//! Waiting ─lease─> Starting ─journal─> Launching ─exec─> Running ─> (Storing) ─journal─> Ended ─ack─> forgotten
//!    └─────────────────┴───────────────────┴─ refused, or failed to start ─────────────────┘
//! ```
//!
//! This crate decides and does no I/O. Its shell passes each [`Event`] to [`Supervisor::handle`] together with the
//! time, and then carries out the [`Action`]s in order. The shell that ships is the process `belfry supervisor`: it owns
//! the agent's socket, the journal's file, the processes, control groups and folders. The simulators are shells, too.
//!
//! - [`assign`](self): `assign.rs`, from an assignment over the journal to a launch. `launch.rs`: until the program is loaded.
//! - `stop.rs`: stops, timeouts and graces. `lease.rs`: freezing and thawing. `end.rs`: from the exit to the outcome.
//! - `journal.rs`: what is written down before which action. `report.rs`: what is reported to the server until it acknowledges.
//! - `execution.rs`: the states. `countdown.rs`, `forgotten.rs`, `agenda.rs`: the parts.
//!
//! # Invariants
//! - An execution is launched at most once, and only after its start is durable in the journal.
//! - Without a valid lease no launch begins, and no execution runs that may be started elsewhere.
//! - An outcome is reported only once it is durable, and until the server acknowledges it.
//! - An execution whose end was acknowledged, or that was stopped before it came, is refused when it is assigned again.
//! - Neither frozen nor suspended time counts towards a timeout.
//!
//! # The lease
//! An execution that is not `at_most_once` may be started elsewhere once the worker's lease has ended. It is frozen
//! then, not killed: what does not run cannot overlap, and after a short outage of the server long jobs continue. The
//! agent passes on a renewed lease only after the stops of the new session, so executions that the server no longer
//! wants are stopped before the others are thawed.
//!
//! # Cost
//! Each event costs O(log n) in the executions held, except for the end and the renewal of a lease, which look at all of
//! them. Nothing is cloned on the way of a job but its outcome, once: for the journal.

mod agenda;
mod assign;
mod clock;
mod countdown;
mod end;
mod event;
mod execution;
mod forgotten;
mod journal;
mod launch;
mod lease;
mod report;
mod stop;

use std::collections::{BTreeMap, VecDeque};

use model::ExecutionId;

use agenda::{Agenda, Alarm};
pub use clock::{BootMillis, Moment};
pub use event::{Action, Assigned, EarlyExit, Event, LaunchFailure, Payloads, StartFailure, Terms};
pub use execution::Verdict;
use execution::{Execution, Phase, Task};
pub use forgotten::FORGOTTEN_MAX;
use forgotten::Forgotten;
use journal::Pipeline;
pub use journal::{Batch, Entry, Held, State};
pub use launch::Launch;
use report::Reports;
pub use report::{Holding, Report};

/// The limits that a supervisor keeps to.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// How long an execution may stay frozen, in milliseconds, before it is killed.
    pub orphan_limit: u64,
}

/// The core. `P` is what the shell attaches to executions.
#[derive(Debug)]
pub struct Supervisor<P: Payloads> {
    limits: Limits,
    executions: BTreeMap<ExecutionId, Execution<P>>,
    /// How many executions take a slot.
    active: usize,
    forgotten: Forgotten,
    /// Executions that wait for a lease, in the order of their assignments.
    waiting: VecDeque<ExecutionId>,
    /// Executions whose start is durable.
    ready: VecDeque<ExecutionId>,
    /// Launches that were prepared and not begun because the lease had ended.
    held_back: VecDeque<ExecutionId>,
    /// Executions whose output files the agent is to be asked to store.
    to_store: VecDeque<ExecutionId>,
    reports: Reports<P>,
    journal: Pipeline<P>,
    agenda: Agenda,
    actions: VecDeque<Action<P>>,
    /// The slots of the worker; unlimited until an agent has said.
    slots: usize,
    lease_until: BootMillis,
    /// Whether the supervisor was told to end.
    shutting_down: bool,
}

impl<P: Payloads> Supervisor<P> {
    /// Creates the supervisor of a worker whose journal said `state`.
    ///
    /// Executions that were running are interrupted: the shell has made sure that none of their processes is alive.
    pub fn new(limits: Limits, state: State<P>, now: Moment) -> Self {
        let mut this = Self {
            limits,
            executions: BTreeMap::new(),
            active: 0,
            forgotten: Forgotten::from_journal(state.forgotten, now.boot),
            waiting: VecDeque::new(),
            ready: VecDeque::new(),
            held_back: VecDeque::new(),
            to_store: VecDeque::new(),
            reports: Reports::default(),
            journal: Pipeline::default(),
            agenda: Agenda::default(),
            actions: VecDeque::new(),
            slots: usize::MAX,
            lease_until: 0,
            shutting_down: false,
        };
        this.restore(state.held);
        this
    }

    /// Takes one event. What follows from it is in [`Self::next_action`].
    pub fn handle(&mut self, now: Moment, event: Event<P>) {
        match event {
            Event::AgentConnected { slots } => self.agent_connected(slots),
            Event::Assigned(assigned) => self.assigned(now, *assigned),
            Event::StopRequested { execution, fence, grace, discard } => {
                self.stop_requested(now, execution, fence, grace, discard);
            }
            Event::EndAcknowledged { execution, fence } => self.end_acknowledged(now.boot, execution, fence),
            Event::LeaseRenewed { until } => self.lease_renewed(now, until),
            Event::OutputsStored { execution, stored } => self.outputs_stored(execution, stored),
            Event::JournalWritten => self.journal_written(now),
            Event::LaunchObserved { execution, began } => self.launch_observed(now, execution, began),
            Event::LaunchHeldBack { execution } => self.launch_held_back(execution),
            Event::LaunchCancelled { execution } => self.launch_cancelled(execution),
            Event::LaunchFailed { execution, failure } => self.launch_failed(execution, failure),
            Event::Launched { execution, at, exit } => self.launched(now, execution, at, exit),
            Event::Exited { execution } => self.exited(execution),
            Event::Gone { execution, end, outputs } => self.gone(execution, end, outputs),
            Event::FuseFroze { since } => self.fuse_froze(now, since),
            Event::FuseLost => self.fuse_lost(now),
            Event::AlarmDue => self.ring(now),
            Event::ShutDown => self.shut_down(now),
        }
    }

    /// Removes and returns the next thing to do.
    pub fn next_action(&mut self) -> Option<Action<P>> {
        self.actions.pop_front()
    }

    /// Returns when [`Event::AlarmDue`] is next to be sent.
    pub fn next_alarm(&self) -> Option<BootMillis> {
        self.agenda.next()
    }

    /// Returns whether the worker may start executions at `now`.
    pub fn has_lease(&self, now: BootMillis) -> bool {
        now < self.lease_until
    }

    /// Returns until when the worker's lease lasts; 0 before the first one.
    pub fn lease_until(&self) -> BootMillis {
        self.lease_until
    }

    /// Returns how many executions take one of the worker's slots.
    pub fn active(&self) -> usize {
        self.active
    }

    /// Returns whether an execution is held that has not ended.
    pub fn is_active(&self, execution: ExecutionId) -> bool {
        self.executions.get(&execution).is_some_and(|held| held.phase.is_active())
    }

    /// Returns whether nothing is left to be done before the process may end after [`Event::ShutDown`].
    pub fn has_shut_down(&self) -> bool {
        let runs = |phase: &Phase<P>| matches!(phase, Phase::Launching(_) | Phase::Running(_));
        self.shutting_down
            && self.journal.is_idle()
            && !self.executions.values().any(|held| runs(&held.phase))
    }

    /// Returns whether no execution is active and nothing waits for the journal.
    pub fn is_idle(&self) -> bool {
        self.active == 0 && self.journal.is_idle()
    }

    fn ring(&mut self, now: Moment) {
        while let Some(alarm) = self.agenda.pop(now.boot) {
            match alarm {
                Alarm::Lease => self.check_lease(now),
                Alarm::Execution(execution) => self.check(now, execution),
            }
        }
    }

    /// Looks at an execution whose alarm has rung, and sets its next one.
    fn check(&mut self, now: Moment, execution: ExecutionId) {
        match self.executions.get(&execution).map(|held| &held.phase) {
            // Its birth is known to the thread that launches it.
            Some(Phase::Launching(_)) => self.actions.push_back(Action::ObserveLaunch(execution)),
            Some(Phase::Running(_)) => self.check_task(now, execution),
            _ => {}
        }
    }

    fn set_phase(&mut self, execution: ExecutionId, phase: Phase<P>) -> Option<Phase<P>> {
        let held = self.executions.get_mut(&execution)?;
        let before = std::mem::replace(&mut held.phase, phase);
        self.active = self.active + usize::from(held.phase.is_active()) - usize::from(before.is_active());
        Some(before)
    }

    fn insert(&mut self, execution: ExecutionId, held: Execution<P>) {
        self.active += usize::from(held.phase.is_active());
        if let Some(before) = self.executions.insert(execution, held) {
            self.active -= usize::from(before.phase.is_active());
        }
    }

    fn task_mut(&mut self, execution: ExecutionId) -> Option<&mut Task> {
        match &mut self.executions.get_mut(&execution)?.phase {
            Phase::Running(task) => Some(task),
            _ => None,
        }
    }
}
