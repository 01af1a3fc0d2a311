//! Tasks, and what halts and ends them: their own end, stops, timeouts, and the end of a lease.
//!
//! A task runs only while neither it is frozen nor its machine stands still; what is left of it is
//! counted down only then. Each stretch of running has a number, so that timers of an earlier stretch
//! are void.

use std::sync::Arc;

use engine::TaskRequest;
use engine::input::How;
use model::spec::Delivery;
use model::{Duration, ExecutionId, Timestamp};

use super::World;
use super::agent::micros;
use super::client::Op;
use super::plan::Mutation;
use super::supervisor::{Phase, SupervisorMessage, finished};
use crate::history::{Ask, TaskStep, What};

/// Frozen for longer, a task is killed.
const ORPHAN_LIMIT: Duration = Duration::from_secs(300);
/// How late a fuse may act.
pub(super) const FUSE_DELAY_MILLIS: u64 = 40;

/// What a job's spec says to the one who runs it.
#[derive(Debug, Clone, Copy)]
pub(super) struct RunWish {
    pub(super) delivery: Delivery,
    pub(super) timeout: Option<Duration>,
    pub(super) grace: Duration,
}

/// Why a task was ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    Stopped,
    TimedOut,
    Orphaned,
}

/// A process, from its start to its end.
#[derive(Debug)]
pub(super) struct Task {
    pub(super) alive: bool,
    exempt: bool,
    /// What is left of it, in microseconds, as of `since`.
    left: i64,
    timeout_left: Option<i64>,
    grace: Duration,
    exit: i32,
    ending: Option<Ending>,
    frozen: bool,
    suspended: bool,
    since: Option<Timestamp>,
    run: u32,
    freezes: u32,
}

impl Task {
    pub(super) fn new(wish: &RunWish, length: i64, exit: i32) -> Self {
        Self {
            alive: true,
            exempt: wish.delivery == Delivery::AtMostOnce,
            left: length,
            timeout_left: wish.timeout.map(micros),
            grace: wish.grace,
            exit,
            ending: None,
            frozen: false,
            suspended: false,
            since: None,
            run: 0,
            freezes: 0,
        }
    }
}

impl World {
    fn task(&mut self, worker: usize, execution: ExecutionId) -> Option<&mut Task> {
        match &mut self.workers[worker].supervisor.executions.get_mut(&execution)?.phase {
            Phase::Running(task) if task.alive => Some(task),
            _ => None,
        }
    }

    fn tasks(&self, worker: usize) -> Vec<ExecutionId> {
        let executions = self.workers[worker].supervisor.executions.iter();
        let alive = |phase: &Phase| matches!(phase, Phase::Running(task) if task.alive);
        executions.filter(|(_, held)| alive(&held.phase)).map(|(&id, _)| id).collect()
    }

    /// A new stretch of running begins.
    pub(super) fn set_going(&mut self, worker: usize, execution: ExecutionId) {
        let now = self.now;
        let Some(task) = self.task(worker, execution) else { return };
        if task.frozen || task.suspended {
            return;
        }
        task.since = Some(now);
        task.run += 1;
        let run = task.run;
        let end = Duration::from_millis(task.left.unsigned_abs() / 1_000);
        let limit = task.timeout_left.filter(|_| task.ending.is_none());
        self.supervisor_in(worker, end, SupervisorMessage::TaskEnd { execution, run });
        if let Some(limit) = limit {
            let limit = Duration::from_millis(limit.max(0).unsigned_abs() / 1_000);
            self.supervisor_in(worker, limit, SupervisorMessage::TimedOut { execution, run });
        }
    }

    /// A stretch of running is over.
    fn hold(&mut self, worker: usize, execution: ExecutionId) {
        let now = self.now;
        let Some(task) = self.task(worker, execution) else { return };
        if let Some(since) = task.since.take() {
            let ran = now.as_micros() - since.as_micros();
            task.left = (task.left - ran).max(0);
            task.timeout_left = task.timeout_left.map(|left| (left - ran).max(0));
            task.run += 1;
        }
    }

    /// Some task that runs, whether anybody still believes in it or not, saves how far it is; one thing at a time.
    pub(super) fn save_checkpoint(&mut self) {
        let mut all = Vec::new();
        for worker in 0..self.workers.len() {
            all.extend(self.tasks(worker).into_iter().filter_map(|execution| {
                let held = self.workers[worker].supervisor.executions.get(&execution)?;
                let runs = matches!(&held.phase, Phase::Running(task) if task.since.is_some());
                (runs && !self.is_saving(execution)).then_some((execution, held.fence))
            }));
        }
        if all.is_empty() {
            return;
        }
        let (execution, fence) = *self.clients.save_dice.pick(&all);
        let data = self.clients.save_dice.number();
        let request = TaskRequest::SaveCheckpoint {
            content_type: model::checkpoint::BYTES.into(),
            data: data.to_le_bytes().into(),
            hash: data.into(),
            expected_version: None,
        };
        let op = Op::Task(execution, fence, request);
        self.begin_request(Ask::Save { execution, data }, Arc::new(op), true);
    }

    // Leases.

    pub(super) fn renew_task_lease(&mut self, worker: usize, until: i64) {
        let this = &mut self.workers[worker];
        if until <= this.supervisor.lease_until || until <= this.boot(self.now) {
            return;
        }
        this.supervisor.lease_until = until;
        let at = this.at(until);
        let late = self.worker_dice.millis(0, FUSE_DELAY_MILLIS);
        let wait = Duration::from_millis(at.since(self.now).as_millis() + 1) + late;
        self.supervisor_in(worker, wait, SupervisorMessage::LeaseEnd { until });
        for execution in self.tasks(worker) {
            let thawed = self.task(worker, execution).is_some_and(|task| std::mem::take(&mut task.frozen));
            if thawed {
                self.record(What::Task { execution, step: TaskStep::Resumed });
                self.set_going(worker, execution);
            }
        }
        self.admit_waiting(worker);
    }

    /// Nobody renewed the lease: the supervisor freezes its tasks, or the fuse does.
    pub(super) fn lease_ends(&mut self, worker: usize, until: i64) {
        let this = &self.workers[worker];
        let broken = this.supervisor.paused && self.plan.has(Mutation::FuseDoesNotFire);
        let ignored = broken || self.plan.has(Mutation::LeaseEndIsIgnored);
        if until < this.supervisor.lease_until || ignored {
            return;
        }
        for execution in self.tasks(worker) {
            let Some(task) = self.task(worker, execution).filter(|task| !task.exempt && !task.frozen) else {
                continue;
            };
            task.frozen = true;
            task.freezes += 1;
            let freeze = task.freezes;
            if task.since.is_some() {
                self.record(What::Task { execution, step: TaskStep::Halted });
            }
            self.hold(worker, execution);
            self.supervisor_in(worker, ORPHAN_LIMIT, SupervisorMessage::Orphaned { execution, freeze });
        }
    }

    pub(super) fn orphaned(&mut self, worker: usize, execution: ExecutionId, freeze: u32) {
        if self.task(worker, execution).is_some_and(|task| task.frozen && task.freezes == freeze) {
            self.end_task(worker, execution, Ending::Orphaned, Duration::ZERO);
        }
    }

    // The whole machine.

    pub(super) fn suspend(&mut self, worker: usize) {
        for execution in self.tasks(worker) {
            let ran = self.task(worker, execution).is_some_and(|task| {
                task.suspended = true;
                task.since.is_some()
            });
            if ran {
                self.record(What::Task { execution, step: TaskStep::Halted });
            }
            self.hold(worker, execution);
        }
        self.workers[worker].paused = true;
    }

    /// Tasks and fuse wake together; what became due meanwhile is heard after the fuse's delay.
    pub(super) fn wake_machine(&mut self, worker: usize) {
        self.workers[worker].paused = false;
        self.record(What::Woke { worker: self.workers[worker].id });
        for execution in self.tasks(worker) {
            let goes_on = self.task(worker, execution).is_some_and(|task| {
                task.suspended = false;
                !task.frozen
            });
            if goes_on {
                self.record(What::Task { execution, step: TaskStep::Resumed });
                self.set_going(worker, execution);
            }
        }
        self.work_off(worker);
        self.resume_agent(worker);
    }

    // Ends.

    /// Asks a task to end, and kills it after `grace`.
    pub(super) fn end_task(
        &mut self,
        worker: usize,
        execution: ExecutionId,
        ending: Ending,
        grace: Duration,
    ) {
        let patience = micros(grace).unsigned_abs();
        let obeys = i64::try_from(self.task_dice.between(0, patience * 2)).unwrap_or(0);
        let Some(task) = self.task(worker, execution) else { return };
        let first = task.ending.is_none();
        task.ending.get_or_insert(ending);
        if grace == Duration::ZERO || task.since.is_none() {
            return self.kill(worker, execution);
        }
        if first {
            self.hold(worker, execution);
            if let Some(task) = self.task(worker, execution) {
                task.left = task.left.min(obeys);
                task.exit = 143;
            }
            self.set_going(worker, execution);
        }
        self.supervisor_in(worker, grace, SupervisorMessage::GraceOver { execution });
    }

    pub(super) fn timed_out(&mut self, worker: usize, execution: ExecutionId, run: u32) {
        let lax = self.plan.has(Mutation::WorkerIgnoresTimeouts);
        let grace = self.task(worker, execution).filter(|task| task.run == run).map(|task| task.grace);
        if let Some(grace) = grace.filter(|_| !lax) {
            self.end_task(worker, execution, Ending::TimedOut, grace);
        }
    }

    pub(super) fn kill(&mut self, worker: usize, execution: ExecutionId) {
        let Some(task) = self.task(worker, execution) else { return };
        task.alive = false;
        self.record(What::Task { execution, step: TaskStep::Killed });
        self.tell_supervisor(worker, SupervisorMessage::Exited { execution, exit: 137 });
    }

    /// A task ends by itself, whether its supervisor looks or not.
    pub(super) fn task_ends(&mut self, worker: usize, execution: ExecutionId, run: u32) {
        let Some(task) = self.task(worker, execution).filter(|task| task.run == run) else { return };
        task.alive = false;
        let exit = task.exit;
        self.record(What::Task { execution, step: TaskStep::Ended { exit } });
        self.tell_supervisor(worker, SupervisorMessage::Exited { execution, exit });
    }

    /// The supervisor sees that a task is gone.
    pub(super) fn exited(&mut self, worker: usize, execution: ExecutionId, exit: i32) {
        let Some(held) = self.workers[worker].supervisor.executions.get(&execution) else { return };
        let Phase::Running(task) = &held.phase else { return };
        let how = match task.ending {
            Some(Ending::Stopped) => How::Stopped,
            Some(Ending::TimedOut) => How::TimedOut,
            Some(Ending::Orphaned) => How::Interrupted,
            None if exit == 0 => How::Succeeded,
            None => How::Failed,
        };
        let fence = held.fence;
        self.conclude(worker, execution, fence, finished(how, Some(exit)));
    }
}
