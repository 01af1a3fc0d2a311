//! An execution whose outcome is unknown: the lease of its worker ended before the worker reported.
//!
//! The task may have ended meanwhile, and its worker may come back with the result. Two kinds of jobs wait for that:
//! jobs with delivery `at_most_once`, and jobs that would fail because they were lost too often. Any other job returns
//! to its queue immediately. In all cases the execution
//! stays [`Unknown`](ExecutionStatus::Unknown) until one of these happens:
//!
//! - The worker comes back and still holds it: the execution continues, or its result is accepted.
//! - The worker comes back without it, or is removed: the execution is lost.
//! - Another execution of the job is placed, or the job ends otherwise: the execution is lost.
//! - [`Config::result_wait`](crate::Config::result_wait) is over, for a job that waits: the execution is lost, and the
//!   job fails.
//!
//! So a result is accepted only if no other execution was started, and no two executions of a job overlap.

use std::collections::BTreeMap;

use model::record::Outcome;
use model::spec::Delivery;
use model::{Cause, ExecutionId, ExecutionStatus, JobId, JobStatus, WorkerId};
use mutation::{Mutation, is_on};

use super::{REMINDER_INTERVAL, TransitionDetails};
use crate::context::Context;
use crate::input::Held;
use crate::jobs::Jobs;
use crate::timer::Timer;

impl Jobs {
    /// Handles a running job whose worker's lease has ended.
    pub(crate) fn on_lease_ended(&mut self, cx: &mut Context, id: JobId) {
        let Some(job) = self.all.get_mut(&id) else { return };
        let at_most_once =
            job.profile.delivery == Delivery::AtMostOnce && !is_on(Mutation::EngineRepeatsAtMostOnce);
        let waits = at_most_once || job.is_last_loss();
        let ends_now = job.is_stopping() || waits && cx.config.result_wait == model::Duration::ZERO;
        if ends_now || job.live.is_none() {
            return self.end_lost_execution(cx, id);
        }
        if let Some(live) = job.live.as_mut() {
            live.record.status = ExecutionStatus::Unknown;
        }
        self.touch_execution(cx, id);
        if waits { self.wait_for_result(cx, id) } else { self.requeue_unknown(cx, id) }
    }

    /// Keeps the job running until its result arrives or the wait for it is over.
    pub(crate) fn wait_for_result(&mut self, cx: &mut Context, id: JobId) {
        let until = cx.steady + cx.config.result_wait;
        if let Some(live) = self.all.get_mut(&id).and_then(|job| job.live.as_mut()) {
            live.result_wait_until = until;
            cx.steady_timers.arm(until, Timer::ResultWait(live.record.id));
        }
    }

    /// Ends a job whose wait for the result is over.
    pub(crate) fn on_result_overdue(&mut self, cx: &mut Context, execution: ExecutionId) {
        let Some(&id) = self.executions.get(&execution) else { return };
        let live = self.all.get(&id).and_then(|job| job.live.as_ref());
        let is_over = live.is_some_and(|live| live.is_unknown() && live.result_wait_until <= cx.steady);
        let is_running = self.all.get(&id).is_some_and(|job| job.state.status == JobStatus::Running);
        if is_over && is_running {
            self.end_lost_execution(cx, id);
        }
    }

    /// Returns the job to its queue; the execution with the unknown outcome stays known.
    fn requeue_unknown(&mut self, cx: &mut Context, id: JobId) {
        self.forget_failures_before_stable_run(cx, id);
        let Some(job) = self.all.get_mut(&id) else { return };
        let Some(live) = job.live.as_ref() else { return };
        let about = (live.record.number, live.record.id, live.record.worker);
        cx.steady_timers.disarm(live.remind_at, Timer::Remind(live.record.id));
        job.state.outcome = Some(Box::new(lost_with_worker()));
        self.queues.on_execution_ended(job.queued(id));
        self.deallocate(id, about.2);
        if let Some(worker) = self.workers.get_mut(&about.2) {
            worker.unknown.insert(id);
        }
        // The queue and the concurrency key can now admit another job, on any worker.
        self.dispatch_wanted = true;
        let Some(job) = self.all.get(&id) else { return };
        let message = job.state.outcome.as_ref().and_then(|outcome| outcome.message.clone());
        let about = TransitionDetails {
            execution: Some(about),
            detail: message.as_deref(),
            ..TransitionDetails::default()
        };
        self.requeue(cx, id, ExecutionStatus::Lost, Cause::WorkerLost, about);
    }

    /// Settles the executions with an unknown outcome of a worker that came back.
    pub(crate) fn settle_unknown(
        &mut self,
        cx: &mut Context,
        id: WorkerId,
        held: &BTreeMap<ExecutionId, Held>,
    ) {
        let Some(worker) = self.workers.get_mut(&id) else { return };
        let gave_back = std::mem::take(&mut worker.unknown);
        let kept: Vec<JobId> = worker.jobs.iter().copied().collect();
        for job_id in gave_back {
            let live = self.all.get(&job_id).and_then(|job| Some((job, job.live.as_ref()?)));
            let goes_on = live.is_some_and(|(job, live)| {
                let held = held.get(&live.record.id).filter(|held| held.fence == live.record.fence);
                let beyond = is_on(Mutation::EngineResumesBeyondLimits);
                held.is_some_and(|held| {
                    !held.running || beyond || self.queues.is_below_limits(job.queued(job_id))
                })
            });
            if goes_on { self.resume_execution(cx, job_id) } else { self.close_unknown(cx, job_id) }
        }
        for job in kept {
            self.clear_unknown(cx, job);
        }
    }

    /// Continues the execution of a waiting job on the worker that still holds it.
    fn resume_execution(&mut self, cx: &mut Context, id: JobId) {
        self.leave_queue(id);
        let Some(job) = self.all.get_mut(&id) else { return };
        cx.wall_timers.disarm(job.state.due_at, Timer::JobReady(id));
        self.queues.restore_running(job.queued(id));
        job.state.outcome = None;
        // The execution was not lost after all.
        job.state.losses = job.state.losses.saturating_sub(1);
        let Some(live) = job.live.as_mut() else { return };
        live.remind_at = cx.steady + REMINDER_INTERVAL;
        if let Some(health) = &mut live.record.health {
            // It was frozen for an unknown time.
            health.since = cx.now;
        }
        let about = (live.record.number, live.record.id, live.record.worker);
        cx.steady_timers.arm(live.remind_at, Timer::Remind(live.record.id));
        self.allocate(id, about.2);
        let about = TransitionDetails { execution: Some(about), ..TransitionDetails::default() };
        self.transition(cx, id, JobStatus::Running, Cause::WorkerReturned, about);
        self.clear_unknown(cx, id);
        self.end_needless_preemption(cx, id);
    }

    /// Marks an execution as known again: its worker is back and can be reminded.
    fn clear_unknown(&mut self, cx: &mut Context, id: JobId) {
        let live = self.all.get_mut(&id).and_then(|job| job.live.as_mut());
        let Some(live) = live.filter(|live| live.is_unknown()) else { return };
        let record = &mut live.record;
        record.status =
            if record.started_at.is_some() { ExecutionStatus::Running } else { ExecutionStatus::Assigned };
        cx.steady_timers.disarm(live.result_wait_until, Timer::ResultWait(live.record.id));
        self.touch_execution(cx, id);
    }

    /// Ends an execution with an unknown outcome as lost, because another execution replaces it or the job
    /// ended.
    pub(crate) fn close_unknown(&mut self, cx: &mut Context, id: JobId) {
        let Some(job) = self.all.get_mut(&id) else { return };
        let Some(live) = job.live.take_if(|live| live.is_unknown()) else { return };
        let mut record = live.record;
        if let Some(worker) = self.workers.get_mut(&record.worker) {
            worker.unknown.remove(&id);
        }
        self.executions.swap_remove(&record.id);
        record.status = ExecutionStatus::Lost;
        record.finished_at = Some(cx.now);
        record.outcome = Some(lost_with_worker());
        self.ended.push(record);
        self.touch(cx, id);
    }

    /// Ends all executions with an unknown outcome of a lost worker that an operator removes.
    pub(crate) fn end_unknown(&mut self, cx: &mut Context, id: WorkerId) {
        let Some(worker) = self.workers.get_mut(&id) else { return };
        let gave_back = std::mem::take(&mut worker.unknown);
        let kept: Vec<JobId> = worker.jobs.iter().copied().collect();
        gave_back.into_iter().for_each(|job| self.close_unknown(cx, job));
        kept.into_iter().for_each(|job| self.end_lost_execution(cx, job));
    }
}

/// Returns the outcome of an execution that was lost with its worker.
pub(super) fn lost_with_worker() -> Outcome {
    let message = "the worker sent no heartbeat within its lease";
    Outcome { error: Some("worker_lost".into()), message: Some(message.into()), ..Outcome::default() }
}
