//! Waiting jobs that no worker has free capacity for: they preempt other jobs, or one worker is reserved for them.
//!
//! Both happen after a dispatch, for the jobs that found no worker:
//!
//! - A job of the class `normal` or `high` **preempts** running jobs of lower classes ([`preemption`]). The victims get
//!   a stop with their grace period. A stopped victim returns to its queue without a delay and without a retry being
//!   counted; there it is older than the jobs that came later. A victim that has not started again preempts no job.
//! - A job that no worker had room for during [`RESERVE_AFTER`], while smaller jobs started, gets the next free capacity
//!   of one worker (EASY backfill: Lifka, "The ANL/IBM SP Scheduling System", 1995). Before the job starts, the
//!   reserved capacity is only used by jobs whose timeout ends before the job can start.
//!
//! In both cases a [reservation](WorkerReservation) keeps jobs of the same and of lower classes away from the capacity.
//! The job may still start on another worker if that has free capacity first; this releases the reservation.
//!
//! Reservations are not stored. After a restart, they follow from the executions that are being stopped
//! ([`Jobs::restore_job_reservations`]), or are made again.
//!
//! # Invariants
//! - A job has at most one reservation, on a worker that would be eligible without its running jobs.
//! - Only a waiting job has a reservation; queues and concurrency keys allow all of these jobs to start together.
//! - At most [`RESERVED_JOBS_MAX`] jobs have a reservation.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::spec::{Delivery, PriorityClass};
use model::{Cause, Duration, JobId, JobStatus, Timestamp, WorkerId};
use mutation::{Mutation, is_on};

use crate::context::Context;
use crate::jobs::{Job, Jobs};
use crate::queues::Candidate;
use crate::workers::preemption::{self, Preemption, RunningJob};
use crate::workers::{Holder, Purpose, Worker, WorkerReservation, placement};

/// How long no worker has room for jobs of a shape until one of the workers is reserved for the first of them.
const RESERVE_AFTER: Duration = Duration::from_secs(30);
/// Maximum number of jobs with a reservation because they waited long.
const LONG_WAITING_MAX: usize = 8;
/// Maximum number of jobs with a reservation.
const RESERVED_JOBS_MAX: usize = 1_000;
/// Maximum number of jobs in one search that are passed over because of their concurrency keys or a preemption.
const PASSED_OVER_MAX: usize = 100;

/// Reservation of a waiting job.
#[derive(Debug, Clone, Copy)]
pub(crate) struct JobReservation {
    pub(crate) worker: WorkerId,
    /// Whether running jobs are stopped for it. Otherwise the job waits until they end.
    pub(crate) is_preemption: bool,
    /// When the capacity is free at the latest, if the job waits for ends of executions.
    pub(crate) until: Option<Timestamp>,
}

impl Job {
    /// Whether the job was preempted and has not started again.
    fn was_preempted(&self) -> bool {
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
    /// Makes reservations for waiting jobs that no worker has free capacity for.
    pub(crate) fn reserve_for_waiting(&mut self, cx: &mut Context) {
        self.preempt(cx);
        self.reserve_for_long_waiting(cx);
    }

    /// Places jobs whose reserved capacity is free, and releases reservations that are of no use.
    pub(crate) fn place_jobs_with_reservation(&mut self, cx: &mut Context) {
        let known: Vec<_> = self.job_reservations.iter().map(|(&job, &reserved)| (job, reserved)).collect();
        for (id, reserved) in known {
            let Some(job) = self.all.get(&id) else { continue };
            let own = Some(Holder::Job(id));
            let shape = &job.profile.shape;
            let worker = self.workers.get(&reserved.worker);
            let fits = worker.is_some_and(|worker| placement::is_eligible(shape, worker, own));
            let is_held = self.reconciliation.holds(id);
            let may_start = !is_held && self.queues.allows_start(job.queued(id), cx.steady);
            if fits && may_start {
                if !self.end_if_overdue(cx, id) {
                    self.place(cx, id, reserved.worker);
                }
                continue;
            }
            let is_unchanged = !self.workers_changed && !self.freed.contains(&reserved.worker);
            let will_fit = worker.is_some_and(|worker| {
                if is_unchanged {
                    true
                } else if reserved.is_preemption {
                    preemption::fits_after_stops(shape, worker, own, &self.running_on(cx, worker))
                } else {
                    placement::has_capacity(shape, worker, own)
                }
            });
            if fits || !will_fit {
                self.release_job_reservation(id);
            }
        }
        self.workers_changed = false;
    }

    /// Releases the reservation of a job, if it has one.
    pub(crate) fn release_job_reservation(&mut self, id: JobId) {
        let Some(reserved) = self.job_reservations.remove(&id) else { return };
        if let Some(worker) = self.workers.get_mut(&reserved.worker) {
            worker.reserved.retain(|kept| kept.holder() != Holder::Job(id));
        }
        self.capacity_freed(reserved.worker);
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

    /// Reserves again the capacity of executions that are being stopped for a waiting job. Called once, after the last
    /// row.
    pub(crate) fn restore_job_reservations(&mut self) {
        let live = self.all.values().filter_map(|job| Some((job.profile.shape.class, job.live.as_ref()?)));
        let stopping =
            live.filter_map(|(class, live)| Some((live.record.preempted_by?, (class, live.record.worker))));
        let stopping: BTreeMap<JobId, (PriorityClass, WorkerId)> = stopping.collect();
        for (id, (class, worker)) in stopping {
            let waits = self
                .all
                .get(&id)
                .is_some_and(|job| job.state.status == JobStatus::Waiting && job.profile.shape.class > class);
            if waits && self.workers.contains_key(&worker) && self.job_reservations.len() < RESERVED_JOBS_MAX
            {
                self.reserve_for(id, JobReservation { worker, is_preemption: true, until: None });
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

    fn reserve_for(&mut self, id: JobId, reserved: JobReservation) {
        let Some(job) = self.all.get(&id) else { return };
        let shape = Arc::clone(&job.profile.shape);
        let purpose = match reserved.is_preemption {
            true => Purpose::Preemption { job: id },
            false => Purpose::LongWaiting { job: id, until: reserved.until },
        };
        if let Some(worker) = self.workers.get_mut(&reserved.worker) {
            worker.reserved.push(WorkerReservation { purpose, shape });
            self.job_reservations.insert(id, reserved);
        }
    }

    /// Lets waiting jobs preempt jobs of lower classes.
    fn preempt(&mut self, cx: &mut Context) {
        let blocked = &self.blocked;
        self.without_victims.retain(|shape, _| blocked.contains_key(shape));
        self.preemption_searches += 1;
        let this = self.preemption_searches;
        let mut passed_over = BTreeSet::new();
        while self.job_reservations.len() < RESERVED_JOBS_MAX && passed_over.len() < PASSED_OVER_MAX {
            let chosen = |shape: u64| {
                let is_new = self.without_victims.get(&shape) != Some(&this);
                let blocked = self.blocked.get(&shape).filter(|_| is_new);
                blocked.is_some_and(|blocked| blocked.class > PriorityClass::Preemptible)
            };
            let Some(candidate) = self.next_without_worker(cx, chosen, &passed_over) else { return };
            let Candidate { job: id, profile } = candidate;
            let Some(job) = self.all.get(&id) else { return };
            let is_victim = job.was_preempted() && !is_on(Mutation::EngineChainsPreemptions);
            if is_victim || !self.key_is_open_for_reservation(job, id) {
                passed_over.insert(id);
                continue;
            }
            let running = |worker: &Worker| self.running_on(cx, worker);
            // Only a job that started since the last search can be a new victim.
            let last = self.without_victims.get(&profile.shape_id).copied().unwrap_or(0);
            let workers = self.workers.values().filter(|worker| last == 0 || worker.placed_at_search >= last);
            match preemption::cheapest(&profile.shape, workers, running) {
                Some(preemption) => self.preempt_for(cx, id, preemption),
                None => {
                    self.without_victims.insert(profile.shape_id, this);
                }
            }
        }
    }

    /// Stops the victims of a preemption, and reserves their capacity for the job.
    fn preempt_for(&mut self, cx: &mut Context, id: JobId, preemption: Preemption) {
        let Preemption { worker, victims } = preemption;
        self.reserve_for(id, JobReservation { worker, is_preemption: true, until: None });
        for victim in victims {
            let Some(live) = self.all.get_mut(&victim).and_then(|job| job.live.as_mut()) else { continue };
            live.record.preempted_by = Some(id);
            self.touch_execution(cx, victim);
            self.send_stop(cx, victim);
        }
    }

    /// Reserves a worker for the first job of each shape that no worker has had room for in a long time.
    fn reserve_for_long_waiting(&mut self, cx: &mut Context) {
        let is_long = |since: &Timestamp| cx.steady.since(*since) >= RESERVE_AFTER;
        let waiting: Vec<u64> =
            self.blocked_since.iter().filter(|(_, since)| is_long(since)).map(|(&shape, _)| shape).collect();
        for shape in waiting {
            let known = self.job_reservations.values().filter(|reserved| !reserved.is_preemption);
            if known.count() >= LONG_WAITING_MAX {
                return;
            }
            let has_reservation =
                |id: &JobId| self.all.get(id).is_some_and(|job| job.profile.shape_id == shape);
            if self.job_reservations.keys().any(has_reservation) {
                continue;
            }
            let Some(Candidate { job: id, profile }) =
                self.next_without_worker(cx, |chosen| chosen == shape, &BTreeSet::new())
            else {
                self.blocked_since.remove(&shape);
                continue;
            };
            let possible = self.workers.values().filter(|worker| {
                !worker.is_reserved() && placement::has_capacity(&profile.shape, worker, None)
            });
            let soonest = possible
                .map(|worker| (self.free_by(worker, &profile.shape), worker))
                .min_by_key(|(free_by, worker)| (free_by.is_none(), *free_by, worker.record.id));
            match soonest.map(|(until, worker)| (until, worker.record.id)) {
                Some((until, worker)) => {
                    self.reserve_for(id, JobReservation { worker, is_preemption: false, until });
                }
                // No worker can run such a job: a search at every dispatch would be expensive.
                None => {
                    self.blocked_since.insert(shape, cx.steady);
                }
            }
        }
    }

    /// Returns when a shape fits on a worker at the latest, by the timeouts of the running jobs. `None` if that is not
    /// known, because jobs without a timeout have to end first.
    fn free_by(&self, worker: &Worker, shape: &crate::profile::Shape) -> Option<Timestamp> {
        let running = worker.jobs.iter().filter_map(|id| self.all.get(id));
        let mut ends: Vec<_> = running.map(|job| (job.ends_by(), &job.profile.shape)).collect();
        ends.sort_by_key(|(ends_by, _)| (ends_by.is_none(), *ends_by));
        preemption::fits_after_ends(shape, worker, ends.into_iter())
    }

    /// Returns the next waiting job without a reservation whose shape is accepted.
    fn next_without_worker(
        &self,
        cx: &Context,
        chosen: impl Fn(u64) -> bool,
        passed_over: &BTreeSet<JobId>,
    ) -> Option<Candidate> {
        let mut reserved: BTreeMap<Arc<str>, u32> = BTreeMap::new();
        for job in self.jobs_with_reservation() {
            *reserved.entry(Arc::clone(&job.profile.queue)).or_default() += 1;
        }
        let wants = |id: JobId| {
            !self.job_reservations.contains_key(&id)
                && !self.reservations.contains_key(&id)
                && !passed_over.contains(&id)
        };
        self.queues.next_without_worker(cx.steady, &reserved, chosen, wants)
    }

    fn jobs_with_reservation(&self) -> impl Iterator<Item = &Job> {
        self.job_reservations.keys().filter_map(|id| self.all.get(id))
    }

    /// Whether the concurrency key of a job allows it to start after all jobs with a reservation.
    fn key_is_open_for_reservation(&self, job: &Job, id: JobId) -> bool {
        let Some(own) = job.concurrency.as_deref() else { return true };
        let reserved = self
            .jobs_with_reservation()
            .filter(|other| {
                other.profile.namespace == job.profile.namespace
                    && other.concurrency.as_ref().is_some_and(|concurrency| concurrency.key == own.key)
            })
            .count();
        self.queues.key_allows(job.queued(id), u32::try_from(reserved).unwrap_or(u32::MAX))
    }

    /// Returns the jobs that run on a worker, as preemption needs them.
    fn running_on(&self, cx: &Context, worker: &Worker) -> Vec<RunningJob> {
        let running = worker.jobs.iter().filter_map(|id| Some((*id, self.all.get(id)?)));
        running
            .map(|(id, job)| RunningJob {
                id,
                shape: Arc::clone(&job.profile.shape),
                is_stopping: self.is_being_stopped(id),
                is_preemptible: job.profile.delivery != Delivery::AtMostOnce
                    && job.live.as_ref().is_some_and(|live| !live.is_unknown()),
                unsaved: job.unsaved(cx.now),
            })
            .collect()
    }
}
