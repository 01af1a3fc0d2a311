//! The supervisor of a worker: its journal, its lease, and what it holds.
//!
//! It writes a start down before the task runs, starts nothing twice and nothing without a lease,
//! freezes what may run elsewhere when the lease ends, and keeps every outcome until it is
//! acknowledged. What it knows is lost with it; what is on its disk is not.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use engine::Report;
use engine::input::How;
use engine::output::Assignment;
use model::record::{Outcome, Usage};
use model::{Duration, ExecutionId, Fence};

use super::agent::micros;
use super::plan::Mutation;
use super::reign::Stop;
use super::task::{Ending, Task};
use super::{Happening, World};
use crate::history::{TaskStep, What};

/// What a supervisor hears, from its agent, its disk, its tasks and its timers.
#[derive(Debug, Clone)]
pub(super) enum SupervisorMessage {
    Start(Arc<Assignment>),
    Stop(Stop),
    Ack {
        execution: ExecutionId,
        fence: Fence,
        last: bool,
    },
    Lease {
        until: i64,
    },
    RepeatReports,
    Written(Box<Note>),
    /// For the fuse as well.
    LeaseEnd {
        until: i64,
    },
    TaskEnd {
        execution: ExecutionId,
        run: u32,
    },
    Exited {
        execution: ExecutionId,
        exit: i32,
    },
    TimedOut {
        execution: ExecutionId,
        run: u32,
    },
    GraceOver {
        execution: ExecutionId,
    },
    Orphaned {
        execution: ExecutionId,
        freeze: u32,
    },
}

/// A line of the journal.
#[derive(Debug, Clone)]
pub(super) enum Note {
    Started(Arc<Assignment>),
    Ended { execution: ExecutionId, fence: Fence, report: Report },
}

/// What outlives everything but a wipe.
#[derive(Debug, Default)]
pub(super) struct Disk {
    started: BTreeMap<ExecutionId, Fence>,
    ended: BTreeMap<ExecutionId, (Fence, Report)>,
    forgotten: BTreeSet<ExecutionId>,
}

/// How far an execution is.
#[derive(Debug)]
pub(super) enum Phase {
    /// It waits for a lease.
    Waiting(Arc<Assignment>),
    /// Its start is being written down, or is and waits for a lease.
    Starting {
        assignment: Arc<Assignment>,
        durable: bool,
    },
    Running(Box<Task>),
    Ended {
        report: Report,
        durable: bool,
    },
}

/// An execution that a worker has.
#[derive(Debug)]
pub(super) struct Execution {
    pub(super) fence: Fence,
    pub(super) discard: bool,
    pub(super) phase: Phase,
}

/// The supervisor.
#[derive(Debug, Default)]
pub(super) struct Supervisor {
    pub(super) up: bool,
    pub(super) paused: bool,
    pub(super) life: u32,
    inbox: VecDeque<SupervisorMessage>,
    pub(super) lease_until: i64,
    pub(super) executions: BTreeMap<ExecutionId, Execution>,
}

impl Supervisor {
    /// Everything that it has, and whether that may still run.
    pub(super) fn held(&self) -> impl Iterator<Item = (ExecutionId, Fence, bool)> {
        let active = |phase: &Phase| !matches!(phase, Phase::Ended { .. });
        self.executions.iter().map(move |(&id, held)| (id, held.fence, active(&held.phase)))
    }
}

impl World {
    pub(super) fn start_supervisor(&mut self, worker: usize) {
        let forgetful = self.plan.has(Mutation::WorkerForgetsWhatItStarted);
        let this = &mut self.workers[worker];
        if forgetful {
            this.disk = Disk::default();
        }
        let life = this.supervisor.life + 1;
        this.supervisor = Supervisor { up: true, life, ..Supervisor::default() };
        for (&execution, (fence, report)) in &this.disk.ended {
            let phase = Phase::Ended { report: report.clone(), durable: true };
            let held = Execution { fence: *fence, discard: false, phase };
            this.supervisor.executions.insert(execution, held);
        }
        let cut_short: Vec<_> = this
            .disk
            .started
            .iter()
            .filter(|(id, _)| !this.disk.ended.contains_key(id))
            .map(|(&id, &f)| (id, f))
            .collect();
        for (execution, fence) in cut_short {
            let report = finished(How::Interrupted, None);
            self.conclude(worker, execution, fence, report);
        }
    }

    pub(super) fn crash_supervisor(&mut self, worker: usize) {
        let this = &mut self.workers[worker];
        let supervisor = &mut this.supervisor;
        *supervisor = Supervisor {
            life: supervisor.life + 1,
            executions: std::mem::take(&mut supervisor.executions),
            ..Supervisor::default()
        };
        // The fuse kills what it left behind.
        let left = std::mem::take(&mut supervisor.executions);
        for (execution, held) in left {
            if matches!(&held.phase, Phase::Running(task) if task.alive) {
                self.record(What::Task { execution, step: TaskStep::Killed });
            }
        }
    }

    pub(super) fn resume_supervisor(&mut self, worker: usize) {
        self.workers[worker].supervisor.paused = false;
        self.work_off(worker);
    }

    /// Hears everything that waited.
    pub(super) fn work_off(&mut self, worker: usize) {
        for _ in 0..self.workers[worker].supervisor.inbox.len() {
            let Some(message) = self.workers[worker].supervisor.inbox.pop_front() else { return };
            if matches!(message, SupervisorMessage::LeaseEnd { .. }) {
                let late = self.worker_dice.millis(0, super::task::FUSE_DELAY_MILLIS);
                self.supervisor_in(worker, late, message);
            } else {
                self.tell_supervisor(worker, message);
            }
        }
    }

    pub(super) fn supervisor_in(&mut self, worker: usize, delay: Duration, message: SupervisorMessage) {
        let life = self.workers[worker].supervisor.life;
        self.put_in(delay, Happening::Supervisor { worker, life, message });
    }

    pub(super) fn supervisor_hears(&mut self, worker: usize, life: u32, message: SupervisorMessage) {
        if self.workers[worker].supervisor.life == life {
            self.tell_supervisor(worker, message);
        }
    }

    pub(super) fn tell_supervisor(&mut self, worker: usize, message: SupervisorMessage) {
        let this = &mut self.workers[worker];
        if !this.supervisor.up {
            return;
        }
        let alone = matches!(message, SupervisorMessage::LeaseEnd { .. } | SupervisorMessage::TaskEnd { .. });
        if this.paused || (this.supervisor.paused && !alone) {
            return this.supervisor.inbox.push_back(message);
        }
        match message {
            SupervisorMessage::Start(assignment) => self.take_start(worker, assignment),
            SupervisorMessage::Stop(stop) => self.take_stop(worker, stop),
            SupervisorMessage::Ack { execution, fence, last } => {
                self.take_ack(worker, execution, fence, last)
            }
            SupervisorMessage::Lease { until } => self.renew_task_lease(worker, until),
            SupervisorMessage::RepeatReports => {
                let all: Vec<_> = this.supervisor.executions.keys().copied().collect();
                all.into_iter().for_each(|execution| self.announce(worker, execution));
            }
            SupervisorMessage::Written(note) => self.written(worker, *note),
            SupervisorMessage::LeaseEnd { until } => self.lease_ends(worker, until),
            SupervisorMessage::TaskEnd { execution, run } => self.task_ends(worker, execution, run),
            SupervisorMessage::Exited { execution, exit } => self.exited(worker, execution, exit),
            SupervisorMessage::TimedOut { execution, run } => self.timed_out(worker, execution, run),
            SupervisorMessage::GraceOver { execution } => self.kill(worker, execution),
            SupervisorMessage::Orphaned { execution, freeze } => self.orphaned(worker, execution, freeze),
        }
    }

    pub(super) fn has_lease(&self, worker: usize) -> bool {
        let this = &self.workers[worker];
        this.supervisor.lease_until > this.boot(self.now)
    }

    // What the agent asks for.

    fn take_start(&mut self, worker: usize, assignment: Arc<Assignment>) {
        let (execution, fence) = (assignment.execution, assignment.fence);
        let forgetful = self.plan.has(Mutation::WorkerForgetsWhatItStarted);
        let this = &self.workers[worker];
        if this.supervisor.executions.contains_key(&execution) {
            return self.announce(worker, execution);
        }
        if this.disk.forgotten.contains(&execution) && !forgetful {
            // As the server understands a refusal of what was here before and whose end was acknowledged.
            let report = finished(How::Interrupted, None);
            return self.send_report(worker, execution, fence, report);
        }
        let active = this.supervisor.held().filter(|(.., active)| *active).count();
        if active >= this.capacity.slots as usize || self.is_contrary(0.02) {
            return self.conclude(worker, execution, fence, Report::Refused { reason: "no room".into() });
        }
        let held = Execution { fence, discard: false, phase: Phase::Waiting(assignment) };
        self.workers[worker].supervisor.executions.insert(execution, held);
        self.admit_waiting(worker);
    }

    /// Whether something that may go wrong does: only while times are rough.
    fn is_contrary(&mut self, share: f64) -> bool {
        let rough = self.calm_since.is_none() && !self.plan.faults.is_empty();
        self.task_dice.chance(if rough { share } else { 0.0 })
    }

    /// Writes down what waits, if there is a lease to start it under.
    pub(super) fn admit_waiting(&mut self, worker: usize) {
        if !self.has_lease(worker) {
            return;
        }
        let early = self.plan.has(Mutation::WorkerStartsBeforeItsJournal);
        let mut admitted = Vec::new();
        let mut ready = Vec::new();
        for (&execution, held) in &mut self.workers[worker].supervisor.executions {
            match &held.phase {
                Phase::Waiting(assignment) => {
                    let assignment = Arc::clone(assignment);
                    held.phase = Phase::Starting { assignment: Arc::clone(&assignment), durable: false };
                    admitted.push(assignment);
                }
                Phase::Starting { durable: true, .. } => ready.push(execution),
                _ => {}
            }
        }
        for assignment in admitted {
            if early {
                ready.push(assignment.execution);
            }
            self.write_down(worker, Note::Started(assignment));
        }
        ready.into_iter().for_each(|execution| self.spawn(worker, execution));
    }

    fn write_down(&mut self, worker: usize, note: Note) {
        let longest = if self.plan.has(Mutation::WorkerStartsBeforeItsJournal) { 2_000 } else { 20 };
        let delay = self.worker_dice.millis(1, longest);
        self.supervisor_in(worker, delay, SupervisorMessage::Written(Box::new(note)));
    }

    fn written(&mut self, worker: usize, note: Note) {
        let this = &mut self.workers[worker];
        match note {
            Note::Started(assignment) => {
                let execution = assignment.execution;
                this.disk.started.insert(execution, assignment.fence);
                if let Some(Execution { phase: Phase::Starting { durable, .. }, .. }) =
                    this.supervisor.executions.get_mut(&execution)
                {
                    *durable = true;
                    if self.has_lease(worker) {
                        self.spawn(worker, execution);
                    }
                }
            }
            Note::Ended { execution, fence, report } => {
                this.disk.ended.insert(execution, (fence, report));
                let Some(held) = this.supervisor.executions.get_mut(&execution) else { return };
                if let Phase::Ended { durable, .. } = &mut held.phase {
                    *durable = true;
                    if held.discard {
                        return self.forget(worker, execution);
                    }
                    self.announce(worker, execution);
                }
            }
        }
    }

    /// A start that is written down becomes a task, or fails to.
    fn spawn(&mut self, worker: usize, execution: ExecutionId) {
        let id = self.workers[worker].id;
        let Some(held) = self.workers[worker].supervisor.executions.get(&execution) else { return };
        let Phase::Starting { assignment, .. } = &held.phase else { return };
        let (assignment, fence) = (Arc::clone(assignment), held.fence);
        if self.is_contrary(0.03) {
            let outcome = Outcome { error: Some("start_failed".into()), ..Outcome::default() };
            return self.conclude(worker, execution, fence, Report::StartFailed { outcome });
        }
        if assignment.checkpoint.is_some() && !self.plan.has(Mutation::WorkerHandsOnNoCheckpoint) {
            // Only the current execution is given it.
            let Some(data) = self.store.checkpoint(execution, fence) else {
                let outcome = Outcome { error: Some("checkpoint_failed".into()), ..Outcome::default() };
                return self.conclude(worker, execution, fence, Report::StartFailed { outcome });
            };
            self.record(What::Found { execution, data });
        }
        let wish = self.clients.wish_of(&assignment);
        let exit = i32::from(self.is_contrary(0.25));
        // In the end nobody keeps the others waiting for long.
        let longest = if self.calm_since.is_some() { Duration::from_secs(1) } else { self.plan.task_max };
        let longest = micros(longest).unsigned_abs();
        let length = i64::try_from(self.task_dice.between(1_000, longest.max(1_001))).unwrap_or(1_000);
        self.stats.tasks += 1;
        let task = Task::new(&wish, length, exit);
        let step = TaskStep::Started { job: assignment.job, fence, worker: id };
        self.record(What::Task { execution, step });
        if let Some(held) = self.workers[worker].supervisor.executions.get_mut(&execution) {
            held.phase = Phase::Running(Box::new(task));
        }
        self.set_going(worker, execution);
        self.announce(worker, execution);
    }

    fn take_stop(&mut self, worker: usize, stop: Stop) {
        let Stop { execution, fence, grace, discard } = stop;
        let this = &mut self.workers[worker];
        let Some(held) = this.supervisor.executions.get_mut(&execution) else {
            if this.disk.forgotten.contains(&execution) {
                if !discard {
                    self.send_report(worker, execution, fence, finished(How::Interrupted, None));
                }
            } else if discard {
                this.disk.forgotten.insert(execution);
            } else {
                let reason = "it was stopped before it came here".into();
                self.conclude(worker, execution, fence, Report::Refused { reason });
            }
            return;
        };
        held.discard |= discard;
        let fence = held.fence;
        match &held.phase {
            Phase::Waiting(_) | Phase::Starting { .. } => {
                let reason = "it was stopped before it started".into();
                self.conclude(worker, execution, fence, Report::Refused { reason });
            }
            Phase::Running(_) => self.end_task(worker, execution, Ending::Stopped, grace),
            Phase::Ended { .. } if discard => self.forget(worker, execution),
            Phase::Ended { .. } => self.announce(worker, execution),
        }
    }

    fn take_ack(&mut self, worker: usize, execution: ExecutionId, fence: Fence, last: bool) {
        let held = self.workers[worker].supervisor.executions.get(&execution);
        let ended = held.is_some_and(|held| {
            held.fence == fence && matches!(held.phase, Phase::Ended { durable: true, .. })
        });
        if last && ended {
            self.forget(worker, execution);
        }
    }

    fn forget(&mut self, worker: usize, execution: ExecutionId) {
        let this = &mut self.workers[worker];
        this.supervisor.executions.remove(&execution);
        this.disk.started.remove(&execution);
        this.disk.ended.remove(&execution);
        this.disk.forgotten.insert(execution);
    }

    /// An execution is over on this worker: its outcome is written down, then reported.
    pub(super) fn conclude(&mut self, worker: usize, execution: ExecutionId, fence: Fence, report: Report) {
        let executions = &mut self.workers[worker].supervisor.executions;
        let discard = executions.get(&execution).is_some_and(|held| held.discard);
        let phase = Phase::Ended { report: report.clone(), durable: false };
        executions.insert(execution, Execution { fence, discard, phase });
        self.write_down(worker, Note::Ended { execution, fence, report });
    }

    /// Reports where an execution stands.
    fn announce(&mut self, worker: usize, execution: ExecutionId) {
        let Some(held) = self.workers[worker].supervisor.executions.get(&execution) else { return };
        let fence = held.fence;
        let report = match &held.phase {
            Phase::Running(_) => Report::Started,
            Phase::Ended { report, durable: true } => report.clone(),
            _ => return,
        };
        let careless = self.plan.has(Mutation::WorkerDropsReportsUnacknowledged) && report != Report::Started;
        self.send_report(worker, execution, fence, report);
        if careless {
            self.forget(worker, execution);
        }
    }

    /// What workers still keep, for nobody acknowledged it.
    pub(super) fn unacknowledged(&self) -> Vec<ExecutionId> {
        let held = self.workers.iter().flat_map(|worker| worker.supervisor.executions.keys().copied());
        held.collect()
    }
}

/// A report of an end.
pub(super) fn finished(how: How, exit_code: Option<i32>) -> Report {
    Report::Finished { how, outcome: Outcome { exit_code, ..Outcome::default() }, usage: Usage::default() }
}
