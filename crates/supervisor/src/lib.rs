//! The supervisor core of a worker: which executions the worker holds, and what happens to them.
//!
//! ```text
//! Waiting ─lease─> Starting ─journal─> Launching ─exec─> Running ─> (Storing) ─journal─> Ended ─ack─> forgotten
//!    └─────────────────┴───────────────────┴─ refused, or failed to start ─────────────────┘
//! ```
//!
//! This crate decides and does no I/O. Its shell passes each [`Event`] to [`Supervisor::handle`] together with the
//! time, and then carries out the [`Action`]s in order. In production the shell is the process `belfry supervisor`,
//! which owns the agent's socket, the journal's file, the processes, control groups and folders. The simulators are
//! also shells.
//!
//! - `event.rs`: events and actions. `execution.rs`: the phases of an execution.
//! - `assign.rs`: from an assignment to a launch. `launch.rs`: from a launch until the program is loaded.
//! - `stop.rs`: stops, timeouts, failed health checks and grace periods. `lease.rs`: freezing and thawing. `end.rs`:
//!   from the exit to the outcome.
//! - `journal.rs`: records that must be durable before an action. `report.rs`: reports until the server acknowledges
//!   them.
//! - `countdown.rs`: timeouts. `agenda.rs`: alarms. `acknowledged.rs`: ids of acknowledged executions. `clock.rs`:
//!   times. `fuse.rs`: the core of the fuse, a second process that freezes tasks while the supervisor cannot.
//!
//! # Invariants
//! - An execution is launched at most once, and only after its start is durable in the journal.
//! - Without a valid lease no launch begins, and no execution runs that may be retried on another worker.
//! - An outcome is reported only after it is durable, and repeated until the server acknowledges it.
//! - An execution is refused if it is assigned again after its end was acknowledged, or after it was stopped before
//!   its assignment arrived.
//! - Neither frozen nor suspended time counts towards a timeout.
//! - A health check that overlaps a freeze of its execution does not end the execution.
//!
//! # The lease
//! An execution that is not `at_most_once` may be retried on another worker once the worker's lease has expired. It
//! is then frozen and not killed: a frozen execution cannot overlap with another one, and after a short outage of the
//! server long jobs continue. The agent forwards a renewed lease only after the stops of the new session. So
//! executions that the server has cancelled are stopped before the others are thawed.
//!
//! # Health checks
//! The agent runs the health checks and sends an event when a startup or liveness check has failed too often. The core
//! then ends the execution like one that has reached its timeout: SIGTERM, the grace period, SIGKILL. The core does
//! not have the results of single checks: an agent may be replaced at any time, and then counts failures again.
//!
//! # Cost
//! Each event costs O(log n) in the executions held, except for the expiry and the renewal of a lease, which visit
//! all of them. The only copy per job is that of its outcome, for the journal.

mod acknowledged;
mod agenda;
mod assign;
mod clock;
mod countdown;
mod end;
mod event;
mod execution;
mod fuse;
mod journal;
mod launch;
mod lease;
mod report;
mod stop;

use std::collections::{BTreeMap, VecDeque};

use model::ExecutionId;

pub use acknowledged::ACKNOWLEDGED_MAX;
use acknowledged::Acknowledged;
use agenda::{Agenda, Alarm};
pub use clock::{BootMillis, ClockReading};
pub use event::{Action, Assigned, EarlyExit, Event, ExecutionPolicy, LaunchFailure, Payloads, StartFailure};
pub use execution::EndReason;
use execution::{Execution, Phase, Task};
pub use fuse::{Fuse, FuseCheck};
use journal::Pipeline;
pub use journal::{Batch, Entry, Held, State};
pub use launch::Launch;
use report::Reports;
pub use report::{Holding, Report};

/// Limits that a supervisor enforces.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Maximum time that an execution may stay frozen before it is killed, in milliseconds.
    pub orphan_limit: u64,
}

/// The supervisor core. `P` defines the data that the shell attaches to executions.
#[derive(Debug)]
pub struct Supervisor<P: Payloads> {
    limits: Limits,
    executions: BTreeMap<ExecutionId, Execution<P>>,
    /// Number of executions that occupy a slot.
    active: usize,
    forgotten: Acknowledged,
    /// Executions that wait for a lease, in the order of their assignments.
    waiting: VecDeque<ExecutionId>,
    /// Executions whose start is durable, and that are not launched yet.
    ready: VecDeque<ExecutionId>,
    /// Prepared launches that wait because the lease had expired.
    held_back: VecDeque<ExecutionId>,
    /// Executions whose outputs the agent is to be requested to store.
    to_store: VecDeque<ExecutionId>,
    reports: Reports<P>,
    journal: Pipeline<P>,
    agenda: Agenda,
    actions: VecDeque<Action<P>>,
    /// Number of slots of the worker; unlimited until an agent has connected.
    slots: usize,
    lease_until: BootMillis,
    /// Whether the shutdown has begun.
    shutting_down: bool,
}

impl<P: Payloads> Supervisor<P> {
    /// Creates the supervisor of a worker from the `state` of its journal.
    ///
    /// Executions that were running are reported as interrupted: the shell has made sure that none of their processes
    /// is alive.
    pub fn new(limits: Limits, state: State<P>, now: ClockReading) -> Self {
        let mut this = Self {
            limits,
            executions: BTreeMap::new(),
            active: 0,
            forgotten: Acknowledged::from_journal(state.forgotten, now.boot),
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

    /// Processes one event. The resulting actions are returned by [`Self::next_action`].
    pub fn handle(&mut self, now: ClockReading, event: Event<P>) {
        match event {
            Event::AgentConnected { slots } => self.agent_connected(slots),
            Event::Assigned(assigned) => self.assigned(now, *assigned),
            Event::StopRequested { execution, fence, grace, discard, reason } => {
                self.stop_requested(now, execution, fence, grace, discard, reason);
            }
            Event::EndAcknowledged { execution, fence } => self.end_acknowledged(now.boot, execution, fence),
            Event::LeaseRenewed { until } => self.lease_renewed(now, until),
            Event::CheckFailed { execution, fence, since } => self.check_failed(now, execution, fence, since),
            Event::OutputsStored { execution, stored } => self.outputs_stored(execution, stored),
            Event::JournalWritten => self.journal_written(now),
            Event::LaunchObserved { execution, began } => self.launch_observed(now, execution, began),
            Event::LaunchHeldBack { execution } => self.launch_held_back(execution),
            Event::LaunchCancelled { execution } => self.launch_cancelled(execution),
            Event::LaunchFailed { execution, failure } => self.launch_failed(execution, failure),
            Event::Launched { execution, at, exit } => self.launched(now, execution, at, exit),
            Event::Exited { execution } => self.exited(execution),
            Event::AllProcessesExited { execution, end, outputs } => {
                self.all_processes_exited(execution, end, outputs)
            }
            Event::FuseFroze { since } => self.fuse_froze(now, since),
            Event::FuseLost => self.fuse_lost(now),
            Event::AlarmFired => self.handle_alarms(now),
            Event::ShutDown => self.shut_down(now),
        }
    }

    /// Removes and returns the next action to carry out.
    pub fn next_action(&mut self) -> Option<Action<P>> {
        self.actions.pop_front()
    }

    /// Returns when the shell must send the next [`Event::AlarmFired`].
    pub fn next_alarm(&self) -> Option<BootMillis> {
        self.agenda.next()
    }

    /// Returns whether the worker has a valid lease at `now`.
    pub fn has_lease(&self, now: BootMillis) -> bool {
        now < self.lease_until
    }

    /// Returns the end of the worker's lease; 0 before the first one.
    pub fn lease_until(&self) -> BootMillis {
        self.lease_until
    }

    /// Returns the number of executions that occupy a slot of the worker.
    pub fn active(&self) -> usize {
        self.active
    }

    /// Returns whether the execution is held and has not ended.
    pub fn is_active(&self, execution: ExecutionId) -> bool {
        self.executions.get(&execution).is_some_and(|held| held.phase.is_active())
    }

    /// Returns whether the process may exit after [`Event::ShutDown`].
    pub fn has_shut_down(&self) -> bool {
        let runs = |phase: &Phase<P>| matches!(phase, Phase::Launching(_) | Phase::Running(_));
        self.shutting_down
            && self.journal.is_idle()
            && !self.executions.values().any(|held| runs(&held.phase))
    }

    /// Returns whether no execution is active and no record waits for the journal.
    pub fn is_idle(&self) -> bool {
        self.active == 0 && self.journal.is_idle()
    }

    fn handle_alarms(&mut self, now: ClockReading) {
        while let Some(alarm) = self.agenda.pop(now.boot) {
            match alarm {
                Alarm::Lease => self.check_lease(now),
                Alarm::Execution(execution) => self.check(now, execution),
            }
        }
    }

    /// Checks an execution whose alarm has expired, and sets its next alarm.
    fn check(&mut self, now: ClockReading, execution: ExecutionId) {
        match self.executions.get(&execution).map(|held| &held.phase) {
            // Only the launching thread knows whether the process exists.
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
