//! Tasks: processes that run for a drawn time, and their reactions to signals.
//!
//! A task runs only while it is not frozen and its machine is not suspended; only then its remaining time
//! decreases. Each period of running has a number, so that timers of an earlier period are void.
//!
//! Starts, halts and ends are recorded in the history as by the tasks themselves, independently of what the
//! supervisor observes. The signals come from the supervisor or from the fuse; [`World::suspend`] and
//! [`World::wake_machine`] concern the whole machine. A task obeys SIGTERM within up to twice its grace
//! period, so some are killed.

use std::sync::Arc;

use engine::TaskRequest;
use engine::input::ExecutionEnd;
use model::spec::{Delivery, HealthStatus};
use model::{Duration, ExecutionId, Fence, Timestamp};
use supervisor::{EndReason, Event};

use super::agent::micros;
use super::client::Op;
use super::health::Checks;
use super::services::Behavior;
use super::supervisor::{End, SupervisorMessage};
use super::{World, WorldEvent};
use crate::history::{Ask, TaskStep, What};

/// Maximum time until the remaining processes of a task die, in milliseconds.
const REMAINS_MILLIS: u64 = 5;
/// Exit code of a killed task.
const KILLED: i32 = 137;
/// Exit code of a task that obeyed a SIGTERM.
const TERMINATED: i32 = 143;

/// Properties of a job's spec that a worker needs.
#[derive(Debug, Clone, Copy)]
pub(super) struct RunOptions {
    pub(super) delivery: Delivery,
    pub(super) timeout: Option<Duration>,
    pub(super) grace: Duration,
    /// For a replica of a service: how it behaves, and what the worker reports of its health.
    pub(super) replica: Option<(Behavior, Checks)>,
}

/// A process, from its creation to its end.
#[derive(Debug)]
pub(super) struct Task {
    pub(super) alive: bool,
    /// Whether its program is loaded, and the supervisor knows it.
    pub(super) loaded: bool,
    pub(super) fence: Fence,
    exempt: bool,
    /// Remaining running time in microseconds, as of `since`.
    left: i64,
    grace: Duration,
    exit: i32,
    frozen: bool,
    suspended: bool,
    since: Option<Timestamp>,
    run: u32,
    pub(super) replica: Option<(Behavior, Checks)>,
    /// Result of its health checks; `None` before the first one, and without checks.
    pub(super) health: Option<HealthStatus>,
}

impl Task {
    pub(super) fn new(wish: &RunOptions, fence: Fence, length: i64, exit: i32) -> Self {
        Self {
            alive: true,
            loaded: false,
            fence,
            exempt: wish.delivery == Delivery::AtMostOnce,
            left: length,
            grace: wish.grace,
            exit,
            frozen: false,
            suspended: false,
            since: None,
            run: 0,
            replica: wish.replica,
            health: None,
        }
    }

    /// Whether it is halted, so that it answers no health check.
    pub(super) fn is_halted(&self) -> bool {
        self.frozen || self.suspended
    }

    pub(super) fn is_frozen(&self) -> bool {
        self.frozen
    }

    pub(super) fn was_killed(&self) -> bool {
        !self.alive && self.exit == KILLED
    }

    /// Whether the fuse can freeze it.
    pub(super) fn can_be_frozen(&self) -> bool {
        self.alive && !self.exempt && !self.frozen
    }
}

impl World {
    pub(super) fn task(&mut self, worker: usize, execution: ExecutionId) -> Option<&mut Task> {
        self.workers[worker].supervisor.tasks.get_mut(&execution).filter(|task| task.alive)
    }

    fn tasks(&self, worker: usize) -> Vec<ExecutionId> {
        let tasks = self.workers[worker].supervisor.tasks.iter();
        tasks.filter(|(_, task)| task.alive).map(|(id, _)| *id).collect()
    }

    /// Starts a period of running.
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
        let life = self.workers[worker].supervisor.life;
        self.put_in(end, WorldEvent::TaskEnd { worker, life, execution, run });
    }

    /// Ends a period of running.
    fn hold(&mut self, worker: usize, execution: ExecutionId) {
        let now = self.now;
        let Some(task) = self.task(worker, execution) else { return };
        if let Some(since) = task.since.take() {
            task.left = (task.left - (now.as_micros() - since.as_micros())).max(0);
            task.run += 1;
        }
    }

    /// A running task saves a checkpoint, whether it is still current or not; one at a time.
    pub(super) fn save_checkpoint(&mut self) {
        let running = self.workers.iter().flat_map(|worker| &worker.supervisor.tasks);
        let all: Vec<_> = running
            .filter(|(id, task)| task.alive && task.since.is_some() && !self.is_saving(**id))
            .map(|(id, task)| (*id, task.fence))
            .collect();
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

    // Signals.

    pub(super) fn freeze(&mut self, worker: usize, execution: ExecutionId) {
        let Some(task) = self.task(worker, execution).filter(|task| !task.frozen) else { return };
        task.frozen = true;
        if task.since.is_some() {
            self.record(What::Task { execution, step: TaskStep::Halted });
        }
        self.hold(worker, execution);
    }

    pub(super) fn thaw(&mut self, worker: usize, execution: ExecutionId) {
        let thawed = self.task(worker, execution).is_some_and(|task| std::mem::take(&mut task.frozen));
        if thawed {
            self.record(What::Task { execution, step: TaskStep::Resumed });
            self.set_going(worker, execution);
        }
    }

    /// Sends a SIGTERM, which the task obeys after some time.
    pub(super) fn terminate(&mut self, worker: usize, execution: ExecutionId) {
        let Some(grace) = self.task(worker, execution).map(|task| task.grace) else { return };
        let patience = micros(grace).unsigned_abs();
        let obeys = i64::try_from(self.task_dice.between(0, patience * 2)).unwrap_or(0);
        self.hold(worker, execution);
        if let Some(task) = self.task(worker, execution) {
            task.left = task.left.min(obeys);
            task.exit = TERMINATED;
        }
        self.set_going(worker, execution);
    }

    pub(super) fn kill(&mut self, worker: usize, execution: ExecutionId) {
        let Some(task) = self.task(worker, execution) else { return };
        (task.alive, task.exit) = (false, KILLED);
        self.record(What::Task { execution, step: TaskStep::Killed });
        self.tell_exit(worker, execution);
    }

    /// A task ends by itself, whether its supervisor watches it or not.
    pub(super) fn task_ends(&mut self, worker: usize, life: u32, execution: ExecutionId, run: u32) {
        if self.workers[worker].supervisor.life != life {
            return;
        }
        let Some(task) = self.task(worker, execution).filter(|task| task.run == run) else { return };
        task.alive = false;
        let exit = task.exit;
        self.record(What::Task { execution, step: TaskStep::Ended { exit } });
        self.tell_exit(worker, execution);
    }

    fn tell_exit(&mut self, worker: usize, execution: ExecutionId) {
        self.supervisor_in(worker, Duration::ZERO, SupervisorMessage::Exited { execution });
    }

    // What the supervisor sees of the end of a task.

    /// The main process is reaped. The exit of a task that is not loaded yet is reported with its launch.
    pub(super) fn reap(&mut self, worker: usize, execution: ExecutionId) {
        let is_loaded = self.workers[worker].supervisor.tasks.get(&execution).is_some_and(|task| task.loaded);
        if is_loaded {
            self.handle(worker, Event::Exited { execution });
            self.look_for_remains(worker, execution);
        }
    }

    pub(super) fn look_for_remains(&mut self, worker: usize, execution: ExecutionId) {
        let delay = self.task_dice.millis(0, REMAINS_MILLIS);
        self.supervisor_in(worker, delay, SupervisorMessage::Gone { execution });
    }

    pub(super) fn task_is_gone(&mut self, worker: usize, execution: ExecutionId) {
        let supervisor = &mut self.workers[worker].supervisor;
        let Some(verdict) = supervisor.core.end_reason(execution) else { return };
        let Some(Task { exit, .. }) = supervisor.tasks.remove(&execution) else { return };
        let how = match verdict {
            EndReason::Stopped(_) => ExecutionEnd::Stopped,
            EndReason::TimedOut => ExecutionEnd::TimedOut,
            EndReason::Unhealthy => ExecutionEnd::Failed,
            EndReason::Orphaned | EndReason::ShutDown => ExecutionEnd::Interrupted,
            EndReason::ByItself if exit == 0 => ExecutionEnd::Succeeded,
            EndReason::ByItself => ExecutionEnd::Failed,
        };
        let outputs = (how == ExecutionEnd::Succeeded && self.draw_failure(0.2)).then_some(());
        let end = Ok(End { how, exit: Some(exit) });
        self.handle(worker, Event::AllProcessesExited { execution, end, outputs });
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
        let now = self.now;
        let this = &mut self.workers[worker];
        this.paused = true;
        this.fell_asleep = this.boot(now);
    }

    /// Resumes a machine. Tasks and fuse resume together; overdue timers of the fuse fire after its delay.
    pub(super) fn wake_machine(&mut self, worker: usize) {
        let now = self.now;
        let this = &mut self.workers[worker];
        this.paused = false;
        this.asleep += this.boot(now) - this.fell_asleep;
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
        self.wake_fuse(worker);
        self.handle_waiting(worker);
        self.resume_agent(worker);
    }
}
