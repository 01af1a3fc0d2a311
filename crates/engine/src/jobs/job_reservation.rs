//! Waiting jobs that no worker has free capacity for: they preempt other jobs, or one worker is reserved for them.
//!
//! - A job of the class `normal` or `high` **preempts** running jobs of lower classes ([`preemption`]). The victims get
//!   a stop with their grace period. A stopped victim returns to its queue without a delay and without a retry being
//!   counted; there it is older than the jobs that came later. A victim that has not started again preempts no job.
//! - A job that is next in the order of all queues, and that no worker had room for during [`RESERVE_AFTER`], gets the
//!   next free capacity of one worker (EASY backfill: Lifka, "The ANL/IBM SP Scheduling System", 1995). Before the job
//!   starts, the reserved capacity is only used by jobs whose timeout ends before the job can start. If the end of the
//!   running jobs is not known, because they have no timeouts, the reservation is given up after
//!   [`UNCERTAIN_RESERVATION_MAX`], and another worker is tried later. So small jobs are not blocked for ever. A worker
//!   on which the job has no room beside the replicas of services is not reserved, because replicas do not end.
//!
//! In both cases a [reservation](WorkerReservation) keeps jobs of the same and of lower classes away from the capacity,
//! and the limits of queues, keys and namespaces count the job as running. A job with a reservation is no candidate of
//! the dispatch: [`Jobs::place_jobs_with_reservation`] places it, on its worker or on another one that has free capacity
//! first.
//!
//! Reservations are not stored. After a restart, they follow from the executions that are being stopped
//! ([`Jobs::restore_job_reservations`]), or are made again. No job is preempted before all workers have reconnected, or
//! their leases have ended: an idle worker may be among them.
//!
//! # Invariants
//! - A job has at most one reservation, on a worker that would be eligible without its running jobs.
//! - Only a waiting job that is in a lane of its queue has a reservation.
//! - At most [`RESERVED_JOBS_MAX`] jobs have a reservation.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::spec::{Delivery, PriorityClass};
use model::worker::WorkerStatus;
use model::{Cause, Duration, JobId, JobStatus, Timestamp, WorkerId};
use mutation::{Mutation, is_on};

use crate::context::Context;
use crate::jobs::{Job, Jobs};
use crate::profile::Shape;
use crate::queues::Candidate;
use crate::workers::preemption::{self, Preemption, RunningJob};
use crate::workers::{Holder, Purpose, Worker, WorkerReservation, placement};

/// How long no worker has room for jobs of a shape until one of the workers is reserved for the first of them.
const RESERVE_AFTER: Duration = Duration::from_secs(30);
/// How long a worker is reserved for a job that waited long, if the end of its running jobs is not known.
const UNCERTAIN_RESERVATION_MAX: Duration = Duration::from_secs(300);
/// Interval between two searches for workers to reserve for jobs that waited long.
const SEARCH_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum number of jobs with a reservation because they waited long.
const LONG_WAITING_MAX: usize = 8;
/// Maximum number of jobs with a reservation.
const RESERVED_JOBS_MAX: usize = 1_000;
/// Maximum number of jobs in one search that are passed over, because no worker can ever run them.
const PASSED_OVER_MAX: usize = 16;

/// Reservation of a waiting job.
#[derive(Debug, Clone, Copy)]
pub(crate) struct JobReservation {
    pub(crate) worker: WorkerId,
    /// Whether running jobs are stopped for it. Otherwise the job waits until they end.
    pub(crate) is_preemption: bool,
    /// When the capacity is free at the latest, if the job waits for ends of executions.
    pub(crate) until: Option<Timestamp>,
    /// When the reservation was made; steady time.
    made_at: Timestamp,
}

/// Jobs that waited long for a worker.
#[derive(Debug, Default)]
pub(crate) struct LongWaiting {
    /// Since when no worker has had free capacity for a shape; steady time, by shape id.
    blocked_since: BTreeMap<u64, Timestamp>,
    /// Time of the last search; steady time.
    searched_at: Timestamp,
    /// The worker of the last reservation for a shape that was given up.
    given_up: BTreeMap<u64, WorkerId>,
}

impl LongWaiting {
    /// Records that no worker has free capacity for a shape.
    pub(crate) fn blocked(&mut self, shape: u64, now: Timestamp) {
        self.blocked_since.entry(shape).or_insert(now);
    }

    /// Forgets since when jobs of a shape have waited: one of them was placed, or they wait for services now.
    pub(crate) fn forget(&mut self, shape: u64) {
        self.blocked_since.remove(&shape);
        self.given_up.remove(&shape);
    }

    fn is_long(&self, shape: u64, now: Timestamp) -> bool {
        self.blocked_since.get(&shape).is_some_and(|&since| now.since(since) >= RESERVE_AFTER)
    }
}

impl Job {
    /// Whether the job was preempted and has not started again.
    pub(super) fn was_preempted(&self) -> bool {
        self.state.history.last().is_some_and(|last| last.cause == Cause::Preempted)
    }

    /// Returns the run time that the job would lose if its execution were stopped now.
    fn unsaved(&self, now: Timestamp) -> Duration {
        let started = self.live.as_ref().and_then(|live| live.record.started_at);
        let saved = self.state.checkpoint.as_ref().map(|checkpoint| checkpoint.saved_at);
        match (started, saved) {
            (None, _) => Duration::ZERO,
            (Some(started), saved) => now.since(saved.map_or(started, |saved| saved.max(started))),
        }
    }

    /// Returns when its execution ends at the latest, or `None` without a timeout.
    fn ends_by(&self) -> Option<Timestamp> {
        let record = &self.live.as_ref()?.record;
        Some(record.started_at.unwrap_or(record.assigned_at) + self.profile.run_time_max()?)
    }
}

impl Jobs {
    /// Places jobs with a reservation, where the capacity is free, and releases reservations that are of no use.
    pub(crate) fn place_jobs_with_reservation(&mut self, cx: &mut Context) {
        let known: Vec<_> = self.job_reservations.iter().map(|(&job, &reserved)| (job, reserved)).collect();
        for (id, reserved) in known {
            let Some(job) = self.all.get(&id).filter(|job| job.state.status == JobStatus::Waiting) else {
                self.release_job_reservation(id);
                continue;
            };
            // Its own reservation counts for the limits.
            self.queues.reserved_mut().subtract(job.queued(id));
            let may_start = self.has_required_services(&job.profile.shape)
                && self.queues.is_candidate(job.queued(id))
                && self.queues.allows_start_beside_reserved(job.queued(id), cx.steady);
            self.queues.reserved_mut().add(job.queued(id));
            if !may_start {
                self.release_job_reservation(id);
                continue;
            }
            if let Some(worker) = self.worker_for_reserved(cx, id, reserved) {
                if !self.end_if_overdue(cx, id) {
                    self.place(cx, id, worker);
                }
            } else if !self.is_reservation_useful(cx, id, reserved) {
                self.release_job_reservation(id);
            }
        }
        self.workers_changed = false;
    }

    /// Returns a worker that has free capacity for a job with a reservation: its worker, or another one.
    fn worker_for_reserved(&mut self, cx: &Context, id: JobId, reserved: JobReservation) -> Option<WorkerId> {
        let job = self.all.get(&id)?;
        let (shape_id, shape) = (job.profile.shape_id, Arc::clone(&job.profile.shape));
        let avoid = job.last_worker();
        let is_free = self.workers.get(&reserved.worker).is_some_and(|worker| {
            placement::has_free_capacity(&shape, worker)
                && preemption::fits_after_stops(
                    &shape,
                    worker,
                    Some(Holder::Job(id)),
                    &self.running_on(cx, worker),
                )
        });
        if is_free {
            return Some(reserved.worker);
        }
        if self.blocked.contains_key(&shape_id) {
            return None;
        }
        self.workers.best(shape_id, &shape, avoid)
    }

    fn is_reservation_useful(&self, cx: &Context, id: JobId, reserved: JobReservation) -> bool {
        let is_uncertain = !reserved.is_preemption && reserved.until.is_none();
        if is_uncertain && cx.steady.since(reserved.made_at) >= UNCERTAIN_RESERVATION_MAX {
            return false;
        }
        let (Some(job), Some(worker)) = (self.all.get(&id), self.workers.get(&reserved.worker)) else {
            return false;
        };
        let is_away = worker.session.is_none() && worker.record.status != WorkerStatus::Lost;
        let is_unchanged = !self.workers_changed && !self.freed.contains(&reserved.worker);
        if is_away || is_unchanged {
            return true;
        }
        let (shape, own) = (&job.profile.shape, Some(Holder::Job(id)));
        match reserved.is_preemption {
            true => preemption::fits_after_stops(shape, worker, own, &self.running_on(cx, worker)),
            false => placement::has_capacity(shape, worker, own),
        }
    }

    /// Releases the reservation of a job, if it has one.
    pub(crate) fn release_job_reservation(&mut self, id: JobId) {
        let Some(reserved) = self.job_reservations.remove(&id) else { return };
        if let Some(job) = self.all.get(&id) {
            self.queues.reserved_mut().subtract(job.queued(id));
            if !reserved.is_preemption && job.state.status == JobStatus::Waiting {
                self.long_waiting.given_up.insert(job.profile.shape_id, reserved.worker);
            }
        }
        if let Some(worker) = self.workers.get_mut(&reserved.worker) {
            worker.reserved.retain(|kept| kept.holder() != Holder::Job(id));
        }
        self.capacity_freed(reserved.worker);
    }

    /// Releases all reservations of jobs on a worker, which is lost or removed.
    pub(crate) fn release_job_reservations_on(&mut self, worker: WorkerId) {
        let on_worker = self.job_reservations.iter().filter(|(_, kept)| kept.worker == worker);
        let jobs: Vec<_> = on_worker.map(|(&job, _)| job).collect();
        jobs.into_iter().for_each(|job| self.release_job_reservation(job));
    }

    /// Releases the reservations on a worker for jobs that waited long.
    pub(crate) fn release_long_waiting_on(&mut self, worker: WorkerId) {
        let on_worker =
            self.job_reservations.iter().filter(|(_, kept)| kept.worker == worker && !kept.is_preemption);
        let jobs: Vec<_> = on_worker.map(|(&job, _)| job).collect();
        jobs.into_iter().for_each(|job| self.release_job_reservation(job));
    }

    /// Returns the reservation of a waiting job, with the jobs that are being stopped for it.
    pub(crate) fn job_reservation(&self, id: JobId) -> Option<(JobReservation, Vec<JobId>)> {
        let reserved = *self.job_reservations.get(&id)?;
        let worker = self.workers.get(&reserved.worker)?;
        let is_victim = |job: &&JobId| self.preempted_by(**job) == Some(id);
        Some((reserved, worker.jobs.iter().filter(is_victim).copied().collect()))
    }

    /// Returns the job that preempts a running job.
    pub(crate) fn preempted_by(&self, id: JobId) -> Option<JobId> {
        self.all.get(&id)?.live.as_ref()?.record.preempted_by
    }

    /// Ends the preemption of an execution whose worker came back, if the job that preempts it needs the capacity no
    /// longer.
    pub(crate) fn end_needless_preemption(&mut self, cx: &mut Context, id: JobId) {
        let Some(live) = self.all.get(&id).and_then(|job| job.live.as_ref()) else { return };
        let Some(by) = live.record.preempted_by else { return };
        let is_needed =
            self.job_reservations.get(&by).is_some_and(|reserved| reserved.worker == live.record.worker);
        if is_needed {
            return;
        }
        if let Some(live) = self.all.get_mut(&id).and_then(|job| job.live.as_mut()) {
            live.record.preempted_by = None;
        }
        self.touch_execution(cx, id);
    }

    /// Reserves again the capacity of executions that are being stopped for a waiting job. Called once, after the last
    /// row.
    pub(crate) fn restore_job_reservations(&mut self, cx: &Context) {
        let live = self.all.values().filter_map(|job| Some((job.profile.shape.class, job.live.as_ref()?)));
        let stopping =
            live.filter_map(|(class, live)| Some((live.record.preempted_by?, (class, live.record.worker))));
        let stopping: BTreeMap<JobId, (PriorityClass, WorkerId)> = stopping.collect();
        for (id, (class, worker)) in stopping {
            let waits = self.all.get(&id).is_some_and(|job| {
                job.state.status == JobStatus::Waiting
                    && job.profile.shape.class > class
                    && self.queues.is_candidate(job.queued(id))
            });
            if waits && self.workers.contains_key(&worker) && self.job_reservations.len() < RESERVED_JOBS_MAX
            {
                self.reserve_for(cx, id, worker, true, None);
            }
        }
    }

    /// Returns the worker with a reservation whose capacity a job can use, because it certainly ends before the
    /// reservation begins.
    pub(crate) fn backfill_worker(&self, cx: &Context, id: JobId) -> Option<WorkerId> {
        let profile = &self.all.get(&id)?.profile;
        let ends_by = cx.now + profile.run_time_max()?;
        self.job_reservations.iter().find_map(|(&holder, reserved)| {
            let ends_in_time = reserved.until.is_some_and(|until| ends_by <= until);
            let worker = self.workers.get(&reserved.worker).filter(|_| ends_in_time)?;
            let fits = placement::is_eligible(&profile.shape, worker, Some(Holder::Job(holder)));
            fits.then_some(reserved.worker)
        })
    }

    fn reserve_for(
        &mut self,
        cx: &Context,
        id: JobId,
        worker: WorkerId,
        is_preemption: bool,
        until: Option<Timestamp>,
    ) {
        let Some(job) = self.all.get(&id) else { return };
        let shape = Arc::clone(&job.profile.shape);
        let purpose = match is_preemption {
            true => Purpose::Preemption { job: id },
            false => Purpose::LongWaiting { job: id, until },
        };
        if let Some(reserved) = self.workers.get_mut(&worker) {
            reserved.reserved.push(WorkerReservation { purpose, shape });
            self.queues.reserved_mut().add(job.queued(id));
            let made_at = cx.steady;
            self.job_reservations.insert(id, JobReservation { worker, is_preemption, until, made_at });
        }
    }

    /// Lets a waiting job that no worker has free capacity for preempt jobs of lower classes. Returns whether it does.
    pub(crate) fn try_preempt(&mut self, cx: &mut Context, id: JobId) -> bool {
        let Some(job) = self.all.get(&id) else { return false };
        let shape = Arc::clone(&job.profile.shape);
        let is_victim = job.was_preempted() && !is_on(Mutation::EngineChainsPreemptions);
        let is_reserved = self.job_reservations.contains_key(&id) || self.reservations.contains_key(&id);
        if is_victim
            || is_reserved
            || !self.has_lower_classes(shape.class)
            || self.job_reservations.len() >= RESERVED_JOBS_MAX
            || self.awaits_workers(cx)
        {
            return false;
        }
        let running = |worker: &Worker| self.running_on(cx, worker);
        let Some(Preemption { worker, victims }) =
            preemption::cheapest(&shape, self.workers.values(), running)
        else {
            return false;
        };
        if self.expires_before(cx, id, &victims) {
            return false;
        }
        self.reserve_for(cx, id, worker, true, None);
        for victim in victims {
            let Some(live) = self.all.get_mut(&victim).and_then(|job| job.live.as_mut()) else { continue };
            live.record.preempted_by = Some(id);
            self.touch_execution(cx, victim);
            self.send_stop(cx, victim);
        }
        true
    }

    /// Whether the start deadline of a job can pass during the grace periods of its victims.
    fn expires_before(&self, cx: &Context, id: JobId, victims: &[JobId]) -> bool {
        let job = self.all.get(&id).filter(|job| job.state.started_at.is_none());
        let graces = victims.iter().filter_map(|victim| Some(self.all.get(victim)?.profile.grace));
        let grace = graces.max().unwrap_or(Duration::ZERO);
        job.and_then(Job::start_by).is_some_and(|start_by| start_by <= cx.now + grace)
    }

    /// Whether a blocked job of a shape may preempt jobs on a worker, of which some have just started or ended.
    pub(crate) fn may_preempt_on(&self, cx: &Context, shape: &Shape, worker: &Worker) -> bool {
        self.has_lower_classes(shape.class)
            && preemption::cheapest(shape, [worker].into_iter(), |worker| self.running_on(cx, worker))
                .is_some()
    }

    /// Whether any running job is of a lower class than this one.
    fn has_lower_classes(&self, class: PriorityClass) -> bool {
        let below = if is_on(Mutation::EnginePreemptsEqualClasses) {
            PriorityClass::ALL.len()
        } else {
            class as usize
        };
        self.running_by_class[..below].iter().any(|&running| running > 0)
    }

    /// Whether workers may still reconnect after a start, because their leases have not ended.
    fn awaits_workers(&self, cx: &Context) -> bool {
        cx.steady < self.workers_expected_until
            && self.workers.values().any(|worker| worker.record.status == WorkerStatus::Expected)
    }

    /// Reserves workers for the jobs that are next in the order of all queues, if no worker has had room for them in a
    /// long time.
    pub(crate) fn reserve_for_long_waiting(&mut self, cx: &mut Context) {
        let now = cx.steady;
        let has_waited = self.blocked.keys().any(|&shape| self.long_waiting.is_long(shape, now));
        if !has_waited || now.since(self.long_waiting.searched_at) < SEARCH_INTERVAL {
            return;
        }
        self.long_waiting.searched_at = now;
        self.preempt_for_long_waiting(cx);
        let excluded = self.waiting_for_services();
        let mut passed_over = BTreeSet::new();
        // Small clusters keep most of their workers free for small jobs.
        let most = (self.workers.len() / 4).clamp(1, LONG_WAITING_MAX);
        let count = |jobs: &Self| jobs.job_reservations.values().filter(|kept| !kept.is_preemption).count();
        while count(self) < most && passed_over.len() < PASSED_OVER_MAX {
            let wants = |id: JobId| {
                !self.job_reservations.contains_key(&id)
                    && !self.reservations.contains_key(&id)
                    && !passed_over.contains(&id)
            };
            let Some(Candidate { job: id, profile }) = self.queues.next_of_shapes(now, &excluded, wants)
            else {
                return;
            };
            let Some(job) = self.all.get(&id) else { return };
            let waits_since = job.state.due_at.max(job.state.queued_at.unwrap_or_default());
            let has_waited = cx.now.since(waits_since) >= RESERVE_AFTER;
            if !has_waited || !self.long_waiting.is_long(profile.shape_id, now) {
                // The jobs after it in the order must not get capacity before it.
                return;
            }
            let key_allows = self.queues.key_allows_beside_reserved(job.queued(id));
            match self.soonest(profile.shape_id, &profile.shape).filter(|_| key_allows) {
                Some((worker, until)) => self.reserve_for(cx, id, worker, false, until),
                None => {
                    passed_over.insert(id);
                }
            }
        }
    }

    /// Lets jobs that wait for ends of executions preempt others, if that has become possible.
    fn preempt_for_long_waiting(&mut self, cx: &mut Context) {
        let waiting = self.job_reservations.iter().filter(|(_, kept)| !kept.is_preemption);
        let waiting: Vec<_> = waiting.map(|(&job, &kept)| (job, kept)).collect();
        for (id, kept) in waiting {
            self.release_job_reservation(id);
            if !self.try_preempt(cx, id) {
                self.reserve_for(cx, id, kept.worker, false, kept.until);
                if let Some(again) = self.job_reservations.get_mut(&id) {
                    again.made_at = kept.made_at;
                }
            }
        }
    }

    /// Returns the worker that can run a shape soonest, and when at the latest: first by the timeouts of the running
    /// jobs, then by how much of the capacity is missing. Excludes the worker of the last reservation that was given up,
    /// if there is another one.
    fn soonest(&self, shape_id: u64, shape: &Shape) -> Option<(WorkerId, Option<Timestamp>)> {
        let given_up = self.long_waiting.given_up.get(&shape_id);
        let possible = self.workers.values().filter(|worker| {
            !worker.is_reserved()
                && placement::has_capacity(shape, worker, None)
                && self.fits_beside_replicas(worker, shape)
        });
        let ranked = possible.map(|worker| {
            let (id, free_by) = (worker.record.id, self.free_by(worker, shape));
            let rank =
                (Some(&id) == given_up, free_by.is_none(), free_by, placement::missing(shape, worker), id);
            (rank, (id, free_by))
        });
        ranked.min_by_key(|(rank, _)| *rank).map(|(_, found)| found)
    }

    /// Whether a shape fits on a worker beside the replicas of services, which do not end by themselves.
    fn fits_beside_replicas(&self, worker: &Worker, shape: &Shape) -> bool {
        let running = || worker.jobs.iter().filter_map(|id| Some((*id, self.all.get(id)?)));
        let ends = |(id, job): &(JobId, &Job)| job.replica.is_none() || self.is_being_stopped(*id);
        worker.replicas.is_empty()
            || preemption::fits_without(
                shape,
                worker,
                running().filter(ends).map(|(_, job)| &job.profile.shape),
            )
    }

    /// Returns when a shape fits on a worker at the latest, by the timeouts of the running jobs. `None` if that is not
    /// known, because jobs without a timeout have to end first.
    fn free_by(&self, worker: &Worker, shape: &Shape) -> Option<Timestamp> {
        let running = worker.jobs.iter().filter_map(|id| self.all.get(id));
        let mut ends: Vec<_> = running.map(|job| (job.ends_by(), &job.profile.shape)).collect();
        ends.sort_by_key(|(ends_by, _)| (ends_by.is_none(), *ends_by));
        preemption::fits_after_ends(shape, worker, ends.into_iter())
    }

    /// Returns the jobs that run on a worker, as preemption needs them.
    fn running_on(&self, cx: &Context, worker: &Worker) -> Vec<RunningJob> {
        let running = worker.jobs.iter().filter_map(|id| Some((*id, self.all.get(id)?)));
        running
            .map(|(id, job)| RunningJob {
                id,
                shape: Arc::clone(&job.profile.shape),
                is_stopping: self.is_being_stopped(id),
                // Services keep their replicas available themselves; see `services::plan`.
                is_preemptible: job.replica.is_none()
                    && job.profile.delivery != Delivery::AtMostOnce
                    && job.live.as_ref().is_some_and(|live| !live.is_unknown()),
                unsaved: job.unsaved(cx.now),
            })
            .collect()
    }
}
