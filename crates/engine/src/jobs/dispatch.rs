//! Dispatch: places waiting jobs on workers.
//!
//! Runs once per flush, and only if a change could allow a job to be placed: a job became ready, capacity was
//! freed, a limit was raised. A shape without an eligible worker is *blocked* until capacity is freed. So a
//! full cluster with a million waiting jobs costs one search per shape, not per job.

use std::sync::Arc;

use model::record::ExecutionRecord;
use model::{Cause, ExecutionId, ExecutionStatus, JobId, JobStatus, WorkerId};
use rand::Rng;

use crate::context::Context;
use crate::jobs::Jobs;
use crate::jobs::{LiveExecution, REMINDER_INTERVAL, TransitionDetails};
use crate::profile::{Profile, Shape};
use crate::timer::Timer;
use crate::workers::{Worker, placement};

/// Maximum number of candidates per flush, so that its batch stays small enough to commit.
const CANDIDATES_PER_FLUSH_MAX: usize = 10_000;

impl Jobs {
    /// Places every waiting job that limits and workers allow.
    pub(crate) fn dispatch(&mut self, cx: &mut Context) {
        if cx.holds_new_work {
            return;
        }
        let mut looks = CANDIDATES_PER_FLUSH_MAX;
        while looks > 0 && std::mem::take(&mut self.dispatch_wanted) {
            self.place_reserved_jobs(cx);
            self.place_jobs_with_reservation(cx);
            self.unblock_freed();
            self.place_waiting(cx, &mut looks);
            if !self.blocked.is_empty() {
                self.reserve_for_waiting(cx);
            }
        }
    }

    fn place_waiting(&mut self, cx: &mut Context, looks: &mut usize) {
        while *looks > 0 {
            *looks -= 1;
            let next = self.queues.next(cx.steady, &self.blocked);
            for (queue, until) in next.slow {
                cx.steady_timers.arm(until, Timer::Rate(queue));
            }
            let Some(candidate) = next.candidate else { return };
            let job = self.all.get(&candidate.job).expect("every job in a queue is live");
            if !self.queues.key_is_open(job.queued(candidate.job)) {
                self.queues.park(job.queued(candidate.job));
                continue;
            }
            if self.end_if_overdue(cx, candidate.job) {
                continue;
            }
            let job = self.all.get(&candidate.job).expect("every job in a queue is live");
            let Profile { shape_id, shape, .. } = &*candidate.profile;
            let best = self.workers.best(*shape_id, shape, job.last_worker());
            match best.or_else(|| self.backfill_worker(cx, candidate.job)) {
                Some(worker) => self.place(cx, candidate.job, worker),
                None => {
                    self.blocked.insert(*shape_id, Arc::clone(shape));
                    self.blocked_since.entry(*shape_id).or_insert(cx.steady);
                }
            }
        }
        self.dispatch_wanted = true;
    }

    pub(crate) fn place(&mut self, cx: &mut Context, id: JobId, worker: WorkerId) {
        self.close_unknown(cx, id);
        let now = cx.now;
        let execution = ExecutionId::from_bits(cx.ids.next(now, id.shard(), cx.rng.next_u64()));
        let Some(job) = self.all.get(&id) else { return };
        let fence = self.next_fence(cx, id, job.state.fence);
        self.queues.on_job_placed(job.queued(id), cx.steady);
        let Some(job) = self.all.get_mut(&id) else { return };
        let number = job.state.executions + 1;
        job.state.executions = number;
        job.state.fence = fence;
        job.state.execution = Some(execution);
        job.state.worker = Some(worker);
        let remind_at = cx.steady + REMINDER_INTERVAL;
        let record = ExecutionRecord {
            id: execution,
            job: id,
            number,
            fence,
            worker,
            status: ExecutionStatus::Assigned,
            assigned_at: now,
            started_at: None,
            finished_at: None,
            outcome: None,
            usage: None,
            files: None,
            preempted_by: None,
        };
        job.live = Some(Box::new(LiveExecution::new(record, remind_at)));
        if let Some(worker) = self.workers.get_mut(&worker) {
            worker.reserve(id, &job.profile.shape);
            worker.placed_at_search = self.preemption_searches;
        }
        self.blocked_since.remove(&job.profile.shape_id);
        self.executions.insert(execution, id);
        cx.steady_timers.arm(remind_at, Timer::Remind(execution));
        let about = TransitionDetails {
            execution: Some((number, execution, worker)),
            ..TransitionDetails::default()
        };
        self.transition(cx, id, JobStatus::Running, Cause::Placed, about);
        self.send_assignment(cx, id);
        self.release_job_reservation(id);
        self.use_reservation(cx, id);
    }

    /// Called when a worker joins or its admission changes: any shape may now have an eligible worker.
    pub(crate) fn capacity_changed(&mut self) {
        self.blocked.clear();
        self.workers_changed = true;
        self.without_victims.clear();
        self.dispatch_wanted = true;
    }

    /// Called when resources of one worker are freed: shapes that fit on it are no longer blocked.
    pub(crate) fn capacity_freed(&mut self, worker: WorkerId) {
        self.freed.insert(worker);
        self.dispatch_wanted = true;
    }

    fn unblock_freed(&mut self) {
        let workers = &self.workers;
        let freed: Vec<_> = std::mem::take(&mut self.freed).iter().filter_map(|id| workers.get(id)).collect();
        let can_place = |shape: &Arc<Shape>, worker: &Worker| {
            // A reservation that begins later can be used by short jobs until then.
            let backfilled =
                worker.reserved.iter().find(|kept| kept.begins_later()).map(|kept| kept.holder());
            placement::is_eligible(shape, worker, None)
                || backfilled.is_some_and(|holder| placement::is_eligible(shape, worker, Some(holder)))
        };
        self.blocked.retain(|_, shape| !freed.iter().any(|worker| can_place(shape, worker)));
    }

    /// Removes a job from its queue, if it is in one.
    pub(crate) fn leave_queue(&mut self, id: JobId) {
        if self.reconciliation.release(id) {
            return;
        }
        if let Some(job) = self.all.get(&id).filter(|job| job.state.status == JobStatus::Waiting) {
            self.queues.remove(job.queued(id));
            self.dispatch_wanted = true;
            self.release_job_reservation(id);
        }
    }
}
