//! Restore: an engine is rebuilt from live rows at the start of a server and after a takeover.
//!
//! The driver calls [`Engine::restore`] for each row and then [`Engine::start`] once. A row that contradicts
//! the others is returned as [`Poison`], and the driver quarantines it.
//!
//! # Invariants
//! - A restored engine equals the engine that committed the rows ([`Engine::difference`] is `None`).
//! - Every worker has a full lease to reconnect before it is declared lost.
//!
//! # Cost
//! O(log n) per row, and one visit of each running job, each run and each schedule with pending work at the
//! start.

use std::sync::Arc;

use model::record::{ExecutionRecord, JobHead, JobState, LiveRow, WorkerRecord};
use model::worker::WorkerStatus;
use model::{BackfillId, Duration, ExecutionId, ExecutionStatus, JobId, JobStatus, RunId, Timestamp};
use mutation::{Mutation, is_on};

use crate::clock::Now;
use crate::engine::{Engine, IdempotencyEntry};
use crate::job::{Job, REMINDER_INTERVAL};
use crate::timer::Timer;
use crate::worker::Worker;

/// A row that contradicts the others and cannot be restored. The driver quarantines it and continues with the
/// rest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Poison {
    /// The row of a job has a final status.
    #[error("job `{job}` is among the live rows, but has ended")]
    EndedJob {
        /// ID of the job.
        job: JobId,
    },
    /// The last entry of a job's history does not match its status.
    #[error("the last entry in the history of job `{job}` does not match its status")]
    History {
        /// ID of the job.
        job: JobId,
    },
    /// The job template of a backfill cannot be parsed.
    #[error("cannot parse the job of backfill `{backfill}`: {reason}")]
    Backfill {
        /// ID of the backfill.
        backfill: BackfillId,
        /// Reason for the failure.
        reason: String,
    },
    /// A run cannot be restored.
    #[error("cannot restore run `{run}`: {reason}")]
    Run {
        /// ID of the run.
        run: RunId,
        /// Reason for the failure.
        reason: String,
    },
    /// A step contradicts its run.
    #[error("cannot restore step {step} of run `{run}`: {reason}")]
    Step {
        /// ID of the run.
        run: RunId,
        /// Number of the step, from 0.
        step: u32,
        /// Reason for the failure.
        reason: String,
    },
    /// The job of an execution is not live, or has a newer execution.
    #[error(
        "execution `{execution}` is among the live rows, but is not the current execution of job `{job}`"
    )]
    StrayExecution {
        /// ID of the execution.
        execution: ExecutionId,
        /// Job that the execution refers to.
        job: JobId,
    },
}

impl Engine {
    /// Restores one live row. Order: jobs before their executions; runs, then batches of elements, then
    /// steps, then elements of steps.
    ///
    /// # Errors
    /// [`Poison`] for a row that contradicts the others; the engine does not change.
    pub fn restore(&mut self, row: LiveRow) -> Result<(), Poison> {
        match row {
            LiveRow::Job { id, head, state } => self.restore_job(id, head, *state),
            LiveRow::Execution(record) => self.restore_execution(*record),
            LiveRow::Key(key) => {
                self.keys.insert(key.key, IdempotencyEntry::from(key));
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

    /// Sets engine time to that of the newest commit, so that it never runs backwards. Called before
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

    /// Arms the timers of a job, or puts it into its queue. A running job is handled at the start, because it
    /// depends on other rows and on the current time.
    fn resume_job(&mut self, id: JobId) {
        let Some(job) = self.jobs.get(&id) else { return };
        if let Some(deadline) = job.deadline.filter(|_| job.state.started_at.is_none()) {
            self.wall_timers.arm(deadline, Timer::Deadline(id));
        }
        match job.state.status {
            JobStatus::Ready | JobStatus::Retrying => {
                self.wall_timers.arm(job.state.due_at, Timer::JobReady(id))
            }
            JobStatus::Waiting => self.enqueue_or_hold(id),
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

    /// Sets for how long another owner of the shards may still renew worker leases. Workers that do not
    /// connect to this server are lost only after such a lease has ended. Called immediately before
    /// [`start`](Self::start).
    pub fn set_former_owner_lease(&mut self, former_owner: Duration) {
        self.former_owner_lease = former_owner;
    }

    /// Returns how long after the start a worker that has not connected has certainly frozen its tasks.
    pub(crate) fn first_lease(&self) -> Duration {
        self.former_owner_lease + self.lease_with_margin()
    }

    /// Starts the engine from the restored rows: continues running jobs, finds missed firings, and ends work
    /// that nothing else would end. Every worker gets a full lease to reconnect. Called once, after the last
    /// row.
    pub fn start(&mut self, now: impl Into<Now>) {
        let now = now.into();
        if self.now > Timestamp::default() {
            self.resumed_from = Some((self.now, now.steady));
        }
        self.clock_filter.begin(now, self.now);
        self.now = self.now.max(now.wall);
        self.steady = self.steady.max(now.steady);
        self.started = true;
        self.start_reconciliation();
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
        self.settle();
        self.start_schedules();
        self.settle();
        self.start_runs();
        self.settle();
        self.arm_key_purge();
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
        live.remind_at = self.steady + REMINDER_INTERVAL;
        self.steady_timers.arm(live.remind_at, Timer::Remind(live.record.id));
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
        if !is_on(Mutation::EngineExpiresLeasesAtTakeover) {
            until = until + self.first_lease();
        }
        for (&id, worker) in self.workers.iter_mut() {
            if worker.record.status != WorkerStatus::Lost {
                let status = WorkerStatus::Expected;
                worker.record = Arc::new(WorkerRecord { status, ..(*worker.record).clone() });
                worker.lease_until = until;
                self.steady_timers.arm(until, Timer::Lease(id));
            }
        }
    }

    /// Ends a running job whose execution or worker does not exist: no event would ever end it.
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
