//! An engine is rebuilt from live rows: at start, and when it takes over shards.

use std::sync::Arc;

use model::record::{ExecutionRecord, JobHead, JobState, LiveRow, WorkerRecord};
use model::worker::WorkerStatus;
use model::{BackfillId, Duration, ExecutionId, ExecutionStatus, JobId, JobStatus, RunId, Timestamp};
use mutation::{Mutation, is_on};

use crate::clock::Now;
use crate::engine::{Engine, KnownKey};
use crate::job::{Job, REMIND_AFTER};
use crate::timer::Timer;
use crate::worker::Worker;

/// A row that contradicts the others, so that it cannot be taken in. It is set aside; the rest goes on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Poison {
    /// A job's row has a final status.
    #[error("{job} stands among the live rows and has ended")]
    EndedJob {
        /// Which.
        job: JobId,
    },
    /// A job's history does not lead to its status.
    #[error("the history of {job} does not lead to its status")]
    History {
        /// Which.
        job: JobId,
    },
    /// A backfill whose job cannot be read.
    #[error("the job of {backfill} cannot be read: {reason}")]
    Backfill {
        /// Which.
        backfill: BackfillId,
        /// Why.
        reason: String,
    },
    /// A run that cannot go on.
    #[error("{run} cannot go on: {reason}")]
    Run {
        /// Which.
        run: RunId,
        /// Why.
        reason: String,
    },
    /// A step that contradicts its run.
    #[error("step {step} of {run} contradicts it: {reason}")]
    Step {
        /// Of which run.
        run: RunId,
        /// Its number.
        step: u32,
        /// Why.
        reason: String,
    },
    /// An execution whose job is not live, or has a newer one.
    #[error("{execution} stands among the live rows, and its job {job} knows nothing of it")]
    StrayExecution {
        /// Which.
        execution: ExecutionId,
        /// The job that it names.
        job: JobId,
    },
}

impl Engine {
    /// Takes in one live row; jobs before their executions, runs before what was added to their steps, that
    /// before the steps, and steps before their elements.
    ///
    /// # Errors
    /// [`Poison`] for a row that contradicts the others; the engine is as if it had not come.
    pub fn restore(&mut self, row: LiveRow) -> Result<(), Poison> {
        match row {
            LiveRow::Job { id, head, state } => self.restore_job(id, head, *state),
            LiveRow::Execution(record) => self.restore_execution(*record),
            LiveRow::Key(key) => {
                self.keys.insert(key.key, KnownKey::from(key));
                Ok(())
            }
            LiveRow::Worker(record) => {
                self.workers.insert(record.id, Worker::new(Arc::new(record)));
                Ok(())
            }
            LiveRow::Queue(record) => {
                self.queues.set(self.steady, &record);
                Ok(())
            }
            LiveRow::Calendar(record) => {
                self.restore_calendar(record);
                Ok(())
            }
            LiveRow::Schedule { id, head, state } => {
                self.restore_schedule(id, &head, *state);
                Ok(())
            }
            LiveRow::Backfill { head, state } => {
                let backfill = head.id;
                self.restore_backfill(head, state).map_err(|reason| Poison::Backfill { backfill, reason })
            }
            LiveRow::Workflow { id, head, state } => {
                self.restore_workflow(id, &head, state);
                Ok(())
            }
            LiveRow::Run { id, head, state } => {
                self.restore_run(id, head, *state).map_err(|reason| Poison::Run { run: id, reason })
            }
            LiveRow::RunKey(key) => {
                self.workflows.keys.insert(key.key, key);
                Ok(())
            }
            LiveRow::ElementBatch(batch) => {
                let (run, step) = (batch.key.run, batch.key.step);
                self.restore_batch(&batch).map_err(|reason| Poison::Step { run, step, reason })
            }
            LiveRow::Step(record) => {
                let (run, step) = (record.key.run, record.key.step);
                self.restore_step(*record).map_err(|reason| Poison::Step { run, step, reason })
            }
        }
    }

    /// Sets engine time to that of the newest commit, so that it never runs back. Call it before
    /// [`start`](Self::start).
    pub fn resume_from(&mut self, committed: Timestamp) {
        self.now = self.now.max(committed);
    }

    fn restore_job(&mut self, id: JobId, head: JobHead, state: JobState) -> Result<(), Poison> {
        if state.status.is_final() {
            return Err(Poison::EndedJob { job: id });
        }
        if state.history.last().is_none_or(|last| last.to != state.status) {
            return Err(Poison::History { job: id });
        }
        self.now = self.now.max(state.updated_at);
        let profile = self.profiles.of(&head.spec);
        self.live_counts.add(state.status);
        self.jobs.insert(id, Job::new(&Arc::new(head), profile, state, id.created_at()));
        self.resume_job(id);
        Ok(())
    }

    /// Arms what a job waits for, or puts it into its queue. What runs is left for the start: it rests on other
    /// rows, and on what time it is then.
    fn resume_job(&mut self, id: JobId) {
        let Some(job) = self.jobs.get(&id) else { return };
        if let Some(deadline) = job.deadline.filter(|_| job.state.started_at.is_none()) {
            self.agenda.arm(deadline, Timer::Deadline(id));
        }
        match job.state.status {
            JobStatus::Ready | JobStatus::Retrying => self.agenda.arm(job.state.due_at, Timer::Due(id)),
            JobStatus::Waiting => self.stand_in_line(id),
            _ => {}
        }
    }

    fn restore_execution(&mut self, record: ExecutionRecord) -> Result<(), Poison> {
        let (execution, job_id) = (record.id, record.job);
        let unknown = record.status == ExecutionStatus::Unknown;
        let job = self.jobs.get_mut(&job_id).filter(|job| {
            let fits = match job.state.status {
                JobStatus::Running => true,
                JobStatus::Waiting | JobStatus::Retrying => unknown,
                _ => false,
            };
            fits && job.state.execution == Some(execution)
        });
        let Some(job) = job else { return Err(Poison::StrayExecution { execution, job: job_id }) };
        job.restore_execution(record, Timestamp::default());
        self.executions.insert(execution, job_id);
        Ok(())
    }

    /// Says for how long another owner of the shards may still renew leases of workers. Workers that do not come here
    /// are lost only after such a lease has ended. Call it right before [`start`](Self::start).
    pub fn succeed(&mut self, former_owner: Duration) {
        self.former_owner = former_owner;
    }

    /// How long after the start a worker that was not heard has frozen its tasks for certain.
    pub(crate) fn first_lease(&self) -> Duration {
        self.former_owner + self.lease_with_margin()
    }

    /// Goes on from where the rows stand: with what runs, what is missed, and what nobody heard end; and gives
    /// every worker a full lease to come back before it is judged. Called once, after every row.
    pub fn start(&mut self, now: impl Into<Now>) {
        let now = now.into();
        if self.now > Timestamp::default() {
            self.resumed = Some((self.now, now.steady));
        }
        self.belief.begin(now, self.now);
        self.now = self.now.max(now.wall);
        self.steady = self.steady.max(now.steady);
        self.started = true;
        self.begin_reconciling();
        self.queues.restart_rates(self.steady);
        self.find_runs();
        self.find_work();
        let placed =
            self.jobs.iter().filter(|(_, job)| job.state.status == JobStatus::Running || job.live.is_some());
        let placed: Vec<JobId> = placed.map(|(&id, _)| id).collect();
        for &id in &placed {
            self.resume_placed(id);
        }
        self.expect_workers();
        for id in placed {
            self.resume_without_worker(id);
        }
        self.start_schedules();
        self.start_runs();
        self.arm_forget_keys();
        self.capacity_changed();
    }

    fn resume_placed(&mut self, id: JobId) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        let is_running = job.state.status == JobStatus::Running;
        if is_running {
            self.queues.restore_running(job);
        }
        let Some(live) = job.live.as_mut() else { return };
        let worker = self.workers.get_mut(&live.record.worker);
        if !is_running {
            if let Some(worker) = worker {
                worker.unknown.insert(id);
            }
            return;
        }
        live.remind_at = self.steady + REMIND_AFTER;
        self.chores.arm(live.remind_at, Timer::Remind(live.record.id));
        if let Some(worker) = worker {
            worker.reserve(id, &job.profile.shape);
            if worker.record.status == WorkerStatus::Lost && !live.is_unknown() {
                let status = WorkerStatus::Expected;
                worker.record = Arc::new(WorkerRecord { status, ..(*worker.record).clone() });
            }
        }
    }

    fn expect_workers(&mut self) {
        let mut until = self.steady;
        if !is_on(Mutation::EngineJudgesWorkersAtTakeover) {
            until = until + self.first_lease();
        }
        for (&id, worker) in self.workers.iter_mut() {
            if worker.record.status != WorkerStatus::Lost {
                let status = WorkerStatus::Expected;
                worker.record = Arc::new(WorkerRecord { status, ..(*worker.record).clone() });
                worker.lease_until = until;
                self.chores.arm(until, Timer::Lease(id));
            }
        }
    }

    /// A running job whose execution, or whose worker, is not there has nothing that would end it.
    fn resume_without_worker(&mut self, id: JobId) {
        let Some(job) = self.jobs.get(&id) else { return };
        let is_running = job.state.status == JobStatus::Running;
        let Some(live) = job.live.as_ref() else {
            return if is_running {
                self.on_execution_missing(id)
            };
        };
        match self.workers.get(&live.record.worker).map(|worker| worker.record.status) {
            None if is_running => self.on_worker_lost(id),
            None => self.close_unknown(id),
            Some(WorkerStatus::Lost) if is_running && live.is_unknown() => self.wait_for_result(id),
            Some(WorkerStatus::Lost) if is_running => self.on_worker_lost(id),
            Some(_) => {}
        }
    }
}
