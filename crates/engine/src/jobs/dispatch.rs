//! Dispatch: places waiting jobs on workers.
//!
//! Runs once per flush, and only if a change could allow a job to be placed: a job became ready, capacity was
//! freed, a limit was raised. A shape without an eligible worker is *blocked* until capacity is freed. So a
//! full cluster with a million waiting jobs costs one search per shape, not per job.

use std::collections::BTreeSet;
use std::sync::Arc;

use model::record::ExecutionRecord;
use model::{Cause, ExecutionId, ExecutionStatus, JobId, JobStatus, WorkerId};
use rand::Rng;

use crate::context::Context;
use crate::jobs::{Job, Jobs, LiveExecution, REMINDER_INTERVAL, TransitionDetails};
use crate::profile::{Profile, Shape};
use crate::timer::Timer;
use crate::workers::{Worker, placement};

/// Maximum number of candidates per flush, so that its batch stays small enough to commit.
const CANDIDATES_PER_FLUSH_MAX: usize = 10_000;
/// Maximum number of preempted jobs for which jobs of the same shape are tried in one dispatch.
const PASSED_OVER_MAX: usize = 100;

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
            self.unblock_freed(cx);
            self.place_waiting(cx, &mut looks);
            self.reserve_for_long_waiting(cx);
        }
    }

    fn place_waiting(&mut self, cx: &mut Context, looks: &mut usize) {
        // Preempted jobs that wait for free capacity: they preempt no others.
        let mut passed_over = BTreeSet::new();
        while *looks > 0 {
            *looks -= 1;
            let wants = |id: JobId| !self.job_reservations.contains_key(&id) && !passed_over.contains(&id);
            let next = self.queues.next(cx.steady, &self.blocked, wants);
            for (queue, until) in next.slow {
                cx.steady_timers.arm(until, Timer::Rate(queue));
            }
            let Some(candidate) = next.candidate else { return };
            let job = self.all.get(&candidate.job).expect("every job in a queue is live");
            if !self.queues.key_allows_beside_reserved(job.queued(candidate.job)) {
                if self.queues.key_is_open(job.queued(candidate.job)) {
                    // A job of the key with a reservation starts first.
                    passed_over.insert(candidate.job);
                    continue;
                }
                self.queues.park(job.queued(candidate.job));
                continue;
            }
            if self.end_if_overdue(cx, candidate.job) {
                continue;
            }
            let job = self.all.get(&candidate.job).expect("every job in a queue is live");
            let Profile { shape_id, shape, .. } = &*candidate.profile;
            if !self.has_required_services(shape) {
                self.long_waiting.forget(*shape_id);
                self.blocked.insert(*shape_id, Arc::clone(shape));
                continue;
            }
            let replica = job.replica.as_deref();
            let best = if replica.is_some() || shape.spread.is_some() {
                // There are few of them, so each visits all workers.
                placement::best_apart(shape, replica, self.workers.values(), job.last_worker())
            } else {
                self.workers.best(*shape_id, shape, job.last_worker())
            };
            match best.or_else(|| self.backfill_worker(cx, candidate.job)) {
                Some(worker) => self.place(cx, candidate.job, worker),
                None if self.try_preempt(cx, candidate.job) => {}
                None if self.was_preempted(candidate.job) && passed_over.len() < PASSED_OVER_MAX => {
                    passed_over.insert(candidate.job);
                }
                None => {
                    self.blocked.insert(*shape_id, Arc::clone(shape));
                    self.long_waiting.blocked(*shape_id, cx.steady);
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
            health: None,
        };
        job.live = Some(Box::new(LiveExecution::new(record, remind_at)));
        let (shape_id, class) = (job.profile.shape_id, job.profile.shape.class);
        self.allocate(id, worker);
        self.long_waiting.forget(shape_id);
        if self.blocked.values().any(|blocked| blocked.class > class && self.has_required_services(blocked)) {
            // A blocked job of a higher class may preempt it.
            self.freed.insert(worker);
            self.dispatch_wanted = true;
        }
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

    /// Allocates resources of a worker to a job.
    pub(crate) fn allocate(&mut self, id: JobId, worker: WorkerId) {
        let (Some(job), Some(worker)) = (self.all.get(&id), self.workers.get_mut(&worker)) else { return };
        if worker.reserve(id, &job.profile.shape) {
            self.running_by_class[job.profile.shape.class as usize] += 1;
            if let Some(replica) = &job.replica {
                worker.add_replica(replica);
            }
        }
    }

    /// Frees the resources that a job has on a worker.
    pub(crate) fn deallocate(&mut self, id: JobId, worker: WorkerId) {
        let (Some(job), Some(worker)) = (self.all.get(&id), self.workers.get_mut(&worker)) else { return };
        if worker.release(id, &job.profile.shape) {
            let running = &mut self.running_by_class[job.profile.shape.class as usize];
            *running = running.saturating_sub(1);
            if let Some(replica) = &job.replica {
                worker.remove_replica(replica);
            }
        }
    }

    /// Called when a worker joins or its admission changes: any shape may now have an eligible worker.
    pub(crate) fn capacity_changed(&mut self) {
        self.blocked.clear();
        self.workers_changed = true;
        self.dispatch_wanted = true;
    }

    /// Called when resources of one worker are freed: shapes that fit on it are no longer blocked.
    pub(crate) fn capacity_freed(&mut self, worker: WorkerId) {
        self.freed.insert(worker);
        self.dispatch_wanted = true;
    }

    fn was_preempted(&self, id: JobId) -> bool {
        self.all.get(&id).is_some_and(Job::was_preempted)
    }

    fn unblock_freed(&mut self, cx: &Context) {
        let workers = &self.workers;
        let freed: Vec<_> = std::mem::take(&mut self.freed).iter().filter_map(|id| workers.get(id)).collect();
        if freed.is_empty() || self.blocked.is_empty() {
            return;
        }
        let can_place = |shape: &Arc<Shape>, worker: &Worker| {
            // A reservation that begins later can be used by short jobs until then.
            let backfilled =
                worker.reserved.iter().find(|kept| kept.begins_later()).map(|kept| kept.holder());
            placement::is_eligible(shape, worker, None)
                || backfilled.is_some_and(|holder| placement::is_eligible(shape, worker, Some(holder)))
                || self.may_preempt_on(cx, shape, worker)
        };
        let unblocked: Vec<u64> = self
            .blocked
            .iter()
            .filter(|(_, shape)| self.has_required_services(shape))
            .filter(|(_, shape)| freed.iter().any(|worker| can_place(shape, worker)))
            .map(|(&id, _)| id)
            .collect();
        for shape in unblocked {
            self.blocked.remove(&shape);
        }
    }

    /// Removes a job from its queue, if it is in one.
    pub(crate) fn leave_queue(&mut self, id: JobId) {
        self.release_job_reservation(id);
        if self.reconciliation.release(id) {
            return;
        }
        if let Some(job) = self.all.get(&id).filter(|job| job.state.status == JobStatus::Waiting) {
            self.queues.remove(job.queued(id));
            self.dispatch_wanted = true;
        }
    }
}
