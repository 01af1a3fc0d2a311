//! Jobs, executions and workers from their rows.
//!
//! Waiting and future jobs are complete as soon as their row is restored. Running jobs depend on other rows
//! and on the current time: [`Jobs::resume_executions`] continues them once, at the start.

use std::sync::Arc;

use model::record::{ExecutionRecord, JobHead, JobState, NamespaceRecord, QueueRecord, WorkerRecord};
use model::worker::WorkerStatus;
use model::{Duration, ExecutionStatus, JobId, JobStatus, Timestamp};
use mutation::{Mutation, is_on};

use super::{Job, REMINDER_INTERVAL};
use crate::context::Context;
use crate::jobs::Jobs;
use crate::poison::Poison;
use crate::timer::Timer;
use crate::workers::Worker;

impl Jobs {
    pub(crate) fn restore_worker(&mut self, record: WorkerRecord) {
        self.workers.insert(record.id, Worker::new(Arc::new(record)));
    }

    pub(crate) fn restore_queue(&mut self, cx: &Context, record: &QueueRecord) {
        self.queues.set(cx.steady, record);
    }

    pub(crate) fn restore_namespace(&mut self, record: &NamespaceRecord) {
        self.queues.quotas_mut().set(record);
    }

    /// Removes the settings of all namespaces, because their rows are about to be restored again. Only before the start.
    pub(crate) fn clear_namespace_settings(&mut self) {
        self.queues.quotas_mut().clear_settings();
    }

    /// Removes all workers, because their rows are about to be restored again. Only before the start.
    pub(crate) fn clear_workers(&mut self) {
        self.workers.clear();
    }

    /// Removes the settings of all queues, because their rows are about to be restored again. Only before the
    /// start.
    pub(crate) fn clear_queue_settings(&mut self) {
        self.queues.clear_settings();
    }

    /// Restarts all rate limits with empty buckets: a change of owner must not allow another burst.
    pub(crate) fn restart_rates(&mut self, cx: &Context) {
        self.queues.restart_rates(cx.steady);
    }

    /// Sets how long after the start another owner of the shards may still renew worker leases.
    pub(crate) fn set_former_owner_lease(&mut self, former_owner: Duration) {
        self.former_owner_lease = former_owner;
    }

    pub(crate) fn restore_job(
        &mut self,
        cx: &mut Context,
        id: JobId,
        head: JobHead,
        state: JobState,
    ) -> Result<(), Poison> {
        if state.status.is_final() {
            return Err(Poison::EndedJob { job: id });
        }
        if state.history.last().is_none_or(|last| last.to != state.status) {
            return Err(Poison::History { job: id });
        }
        cx.now = cx.now.max(state.updated_at);
        let profile = cx.profiles.of(&head.spec);
        self.live_counts.add(state.status);
        self.queues.quotas_mut().job_created(&profile.namespace);
        self.downstream.add(id, &state.upstream);
        let job = Job::new(cx, &Arc::new(head), profile, state, id.created_at());
        self.all.insert(id, job);
        self.resume_job(cx, id);
        Ok(())
    }

    /// Arms the timers of a job, or puts it into its queue. A running job is handled at the start, because it
    /// depends on other rows and on the current time.
    fn resume_job(&mut self, cx: &mut Context, id: JobId) {
        let Some(job) = self.all.get(&id) else { return };
        match job.state.status {
            JobStatus::Ready | JobStatus::Retrying => {
                cx.wall_timers.arm(job.state.due_at, Timer::JobReady(id))
            }
            JobStatus::Waiting => self.enqueue_or_hold(id),
            _ => {}
        }
        self.arm_deadlines(cx, id);
    }

    pub(crate) fn restore_execution(&mut self, record: ExecutionRecord) -> Result<(), Poison> {
        let (execution, job_id) = (record.id, record.job);
        let unknown = record.status == ExecutionStatus::Unknown;
        let job = self.all.get_mut(&job_id).filter(|job| {
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

    /// Removes a live job as if its rows had never been restored. Only before the start.
    pub(crate) fn remove_restored_job(&mut self, cx: &mut Context, id: JobId) {
        self.forget_upstream(id);
        self.disarm_deadlines(cx, id);
        let Some(job) = self.all.swap_remove(&id) else { return };
        self.live_counts.sub(job.state.status);
        self.queues.quotas_mut().job_ended(&job.profile.namespace);
        match job.state.status {
            JobStatus::Ready | JobStatus::Retrying => {
                cx.wall_timers.disarm(job.state.due_at, Timer::JobReady(id))
            }
            JobStatus::Waiting => self.queues.remove(job.queued(id)),
            _ => {}
        }
        if let Some(live) = job.live {
            self.executions.swap_remove(&live.record.id);
        }
    }

    /// Continues running jobs, gives every worker a full lease to reconnect, and ends jobs whose execution or
    /// worker does not exist. Called once, after the last row.
    pub(crate) fn resume_executions(&mut self, cx: &mut Context) {
        let placed =
            self.all.iter().filter(|(_, job)| job.state.status == JobStatus::Running || job.live.is_some());
        let placed: Vec<JobId> = placed.map(|(&id, _)| id).collect();
        for &id in &placed {
            self.resume_placed(cx, id);
        }
        self.expect_workers(cx);
        for id in placed {
            self.resume_without_worker(cx, id);
        }
        self.restore_job_reservations(cx);
    }

    fn resume_placed(&mut self, cx: &mut Context, id: JobId) {
        let Some(job) = self.all.get_mut(&id) else { return };
        let is_running = job.state.status == JobStatus::Running;
        if is_running {
            self.queues.restore_running(job.queued(id));
        }
        let Some(live) = job.live.as_mut() else { return };
        let worker = self.workers.get_mut(&live.record.worker);
        if !is_running {
            if let Some(worker) = worker {
                worker.unknown.insert(id);
            }
            return;
        }
        live.remind_at = cx.steady + REMINDER_INTERVAL;
        cx.steady_timers.arm(live.remind_at, Timer::Remind(live.record.id));
        let id_of_worker = live.record.worker;
        let was_lost = !live.is_unknown()
            && self
                .workers
                .get(&id_of_worker)
                .is_some_and(|worker| worker.record.status == WorkerStatus::Lost);
        self.allocate(id, id_of_worker);
        if let Some(worker) = self.workers.get_mut(&id_of_worker).filter(|_| was_lost) {
            let status = WorkerStatus::Expected;
            worker.record = Arc::new(WorkerRecord { status, ..(*worker.record).clone() });
        }
    }

    fn expect_workers(&mut self, cx: &mut Context) {
        let mut until = cx.steady;
        if !is_on(Mutation::EngineExpiresLeasesAtTakeover) {
            until = until + self.first_lease(cx);
        }
        self.workers_expected_until = until;
        for (&id, worker) in self.workers.iter_mut() {
            if worker.record.status != WorkerStatus::Lost {
                let status = WorkerStatus::Expected;
                worker.record = Arc::new(WorkerRecord { status, ..(*worker.record).clone() });
                worker.lease_until = until;
                cx.steady_timers.arm(until, Timer::Lease(id));
            }
        }
    }

    /// Ends a running job whose execution or worker does not exist: no event would ever end it.
    fn resume_without_worker(&mut self, cx: &mut Context, id: JobId) {
        let Some(job) = self.all.get(&id) else { return };
        let is_running = job.state.status == JobStatus::Running;
        let Some(live) = job.live.as_ref() else {
            return if is_running {
                self.on_execution_missing(cx, id)
            };
        };
        match self.workers.get(&live.record.worker).map(|worker| worker.record.status) {
            None if is_running => self.end_lost_execution(cx, id),
            None => self.close_unknown(cx, id),
            Some(WorkerStatus::Lost) if is_running && live.is_unknown() => self.wait_for_result(cx, id),
            Some(WorkerStatus::Lost) if is_running => self.end_lost_execution(cx, id),
            Some(_) => {}
        }
    }
}
