//! The supervisor threads that launch tasks.
//!
//! A thread checks the lease, creates the process, and waits until its program is loaded. Between these steps the
//! whole supervisor may pause, and loading may take long.

use std::sync::Arc;

use engine::output::Assignment;
use model::{ExecutionId, Fence};
use supervisor::{ClockReading, EarlyExit, Event, Launch};

use super::World;
use super::agent::micros;
use super::plan::Mutation;
use super::supervisor::{Sim, SupervisorMessage};
use super::task::Task;
use crate::history::{TaskStep, What};

/// Maximum delay until a thread is free, and until the process is created, in milliseconds.
const THREAD_MILLIS: u64 = 10;
/// Maximum time until a program is loaded, in milliseconds.
const LOAD_MILLIS: u64 = 20;

/// A launch in progress.
#[derive(Debug)]
pub(super) struct Launching {
    assignment: Arc<Assignment>,
    /// When a thread checked the lease for it; `None` before that.
    pub(super) began: Option<ClockReading>,
    is_forbidden: bool,
}

impl Launching {
    /// Forbids the creation of the process.
    pub(super) fn forbid(&mut self) {
        self.is_forbidden = true;
    }
}

impl World {
    pub(super) fn launch(&mut self, worker: usize, execution: ExecutionId, launch: Launch<Sim>) {
        if let Launch::First(assignment) = launch {
            if self.draw_failure(0.02) {
                return self.launch_failed(worker, execution, "start_failed");
            }
            let launching = Launching { assignment: *assignment, began: None, is_forbidden: false };
            self.workers[worker].supervisor.launching.insert(execution, launching);
        }
        let delay = self.worker_dice.millis(0, THREAD_MILLIS);
        self.supervisor_in(worker, delay, SupervisorMessage::Looked { execution });
    }

    pub(super) fn look_at_lease(&mut self, worker: usize, execution: ExecutionId) {
        let moment = self.moment(worker);
        let supervisor = &mut self.workers[worker].supervisor;
        let has_lease = moment.boot < supervisor.launches_until;
        let Some(launching) = supervisor.launching.get_mut(&execution) else { return };
        if launching.is_forbidden {
            supervisor.launching.remove(&execution);
            return self.handle(worker, Event::LaunchCancelled { execution });
        }
        if !has_lease {
            return self.handle(worker, Event::LaunchHeldBack { execution });
        }
        launching.began = Some(moment);
        let delay = self.worker_dice.millis(0, 1);
        self.supervisor_in(worker, delay, SupervisorMessage::Created { execution });
    }

    /// Creates the process. From now on it counts as running.
    pub(super) fn create_task(&mut self, worker: usize, execution: ExecutionId) {
        let id = self.workers[worker].id;
        let Some(launching) = self.workers[worker].supervisor.launching.get(&execution) else { return };
        if launching.is_forbidden {
            self.workers[worker].supervisor.launching.remove(&execution);
            return self.handle(worker, Event::LaunchCancelled { execution });
        }
        let assignment = Arc::clone(&launching.assignment);
        if !self.pass_checkpoint(&assignment, assignment.fence) {
            return self.launch_failed(worker, execution, "checkpoint_failed");
        }
        let wish = self.clients.run_options_of(&assignment);
        let (length, exit) = match wish.replica {
            Some((behavior, _)) => self.draw_replica(behavior),
            None => self.draw_task(),
        };
        self.stats.tasks += 1;
        let step = TaskStep::Started { job: assignment.job, fence: assignment.fence, worker: id };
        self.record(What::Task { execution, step });
        let task = Task::new(&wish, assignment.fence, length, exit);
        self.workers[worker].supervisor.tasks.insert(execution, task);
        self.set_going(worker, execution);
        let (share, slow) = self.plan.slow_loads;
        let longest = if self.draw_failure(share) { slow } else { LOAD_MILLIS };
        let delay = self.task_dice.millis(0, longest);
        self.supervisor_in(worker, delay, SupervisorMessage::Loaded { execution });
    }

    /// Draws how long a task runs, in microseconds, and its exit code.
    fn draw_task(&mut self) -> (i64, i32) {
        let exit = i32::from(self.draw_failure(0.25));
        // Tasks are short after the faults, so that everything ends soon.
        let longest =
            if self.calm_since.is_some() { model::Duration::from_secs(1) } else { self.plan.task_max };
        let longest = micros(longest).unsigned_abs();
        let length = i64::try_from(self.task_dice.between(1_000, longest.max(1_001))).unwrap_or(1_000);
        (length, exit)
    }

    /// Passes the newest checkpoint of its job to a task. Only the current execution gets it.
    fn pass_checkpoint(&mut self, assignment: &Assignment, fence: Fence) -> bool {
        if assignment.checkpoint.is_none() || self.plan.has(Mutation::WorkerPassesNoCheckpoint) {
            return true;
        }
        let execution = assignment.execution;
        let found = self.store.checkpoint(execution, fence);
        if let Some(data) = found {
            self.record(What::Found { execution, data });
        }
        found.is_some()
    }

    /// Reports that the program is loaded, or that its process has ended.
    pub(super) fn task_loaded(&mut self, worker: usize, execution: ExecutionId) {
        let supervisor = &mut self.workers[worker].supervisor;
        let Some(task) = supervisor.tasks.get_mut(&execution) else { return };
        // A frozen process does not load.
        if task.alive && task.is_frozen() {
            let delay = self.task_dice.millis(1, LOAD_MILLIS);
            return self.supervisor_in(worker, delay, SupervisorMessage::Loaded { execution });
        }
        task.loaded = true;
        let exit =
            (!task.alive).then(|| if task.was_killed() { EarlyExit::Killed } else { EarlyExit::ByItself });
        let Some(Launching { began: Some(at), .. }) = supervisor.launching.remove(&execution) else { return };
        self.handle(worker, Event::Launched { execution, at, exit });
        if exit.is_some() {
            self.look_for_remains(worker, execution);
        } else {
            self.begin_checks(worker, execution);
        }
    }
}
