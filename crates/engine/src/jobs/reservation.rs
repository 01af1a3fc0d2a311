//! Resources of workers that are reserved for the next firing of a schedule.
//!
//! The schedule decides when to reserve and when to release; see its `reserve` module. Here a worker is
//! chosen, and the job of the firing is placed on it as soon as it fits.
//!
//! # Invariants
//! - Only the job of the firing is placed into a reservation ([`placement::is_eligible`]).

use model::{JobId, JobStatus, ScheduleId, WorkerId};

use crate::context::Context;
use crate::jobs::Jobs;
use crate::signal::Signal;
use crate::workers::{Holder, WorkerReservation, placement};

impl Jobs {
    /// Returns the waiting jobs that may use a reservation, with the schedule and the worker of each.
    pub(crate) fn reservations(&self) -> impl Iterator<Item = (JobId, (ScheduleId, WorkerId))> {
        self.reservations.iter().map(|(&job, &reserved)| (job, reserved))
    }

    /// Reserves resources on an eligible worker, or else on the one that will have the free capacity soonest.
    /// Returns the worker, or `None` if no worker can ever run such a job.
    pub(crate) fn reserve_on_worker(&mut self, wanted: WorkerReservation) -> Option<WorkerId> {
        let chosen = placement::best_of(&wanted.shape, self.workers.values(), None, None)
            .or_else(|| placement::soonest_available(&wanted.shape, self.workers.values()))?;
        // The firing starts on time; jobs that waited long get another reservation.
        self.release_long_waiting_on(chosen);
        self.workers.get_mut(&chosen)?.reserved.push(wanted);
        Some(chosen)
    }

    /// Lets the job of a firing use the reservation of its schedule.
    pub(crate) fn assign_to_job(&mut self, job: JobId, schedule: ScheduleId, worker: WorkerId) {
        self.reservations.insert(job, (schedule, worker));
        self.dispatch_wanted = true;
    }

    /// Releases the reservation of a schedule, which is used by `job` if that is set.
    pub(crate) fn release_on_worker(&mut self, schedule: ScheduleId, job: Option<JobId>, worker: WorkerId) {
        if let Some(job) = job {
            self.reservations.remove(&job);
        }
        if let Some(worker) = self.workers.get_mut(&worker) {
            worker.reserved.retain(|reserved| reserved.holder() != Holder::Schedule(schedule));
        }
        self.capacity_freed(worker);
    }

    /// Returns the schedules that have a reservation on a worker.
    pub(crate) fn schedules_with_reservation_on(&self, worker: WorkerId) -> Vec<ScheduleId> {
        let reserved = self.workers.get(&worker).map(|worker| worker.reserved.as_slice());
        let schedule = |reserved: &WorkerReservation| match reserved.holder() {
            Holder::Schedule(schedule) => Some(schedule),
            Holder::Job(_) => None,
        };
        reserved.unwrap_or_default().iter().filter_map(schedule).collect()
    }

    /// Places jobs with a reservation, if the resources are free and the job's queue allows it.
    pub(crate) fn place_reserved_jobs(&mut self, cx: &mut Context) {
        let expected: Vec<_> = self.reservations.iter().map(|(&job, &reserved)| (job, reserved)).collect();
        for (job_id, (id, worker)) in expected {
            let Some(job) = self.all.get(&job_id) else { continue };
            let fits = self
                .workers
                .get(&worker)
                .is_some_and(|w| placement::is_eligible(&job.profile.shape, w, Some(Holder::Schedule(id))));
            let waits = job.state.status == JobStatus::Waiting;
            let is_candidate = self.queues.is_candidate(job.queued(job_id));
            let has_services = self.has_required_services(&job.profile.shape);
            if waits
                && fits
                && has_services
                && is_candidate
                && self.queues.allows_start(job.queued(job_id), cx.steady)
            {
                self.place(cx, job_id, worker);
            }
        }
    }

    /// Ends the reservation of a job that was placed, on that worker or another one.
    pub(crate) fn use_reservation(&mut self, cx: &mut Context, job: JobId) {
        if let Some((schedule, worker)) = self.reservations.remove(&job) {
            self.release_on_worker(schedule, None, worker);
            cx.raise(Signal::ReservationUsed(schedule));
        }
    }
}
