//! Reservations: resources that are reserved on a worker ahead of a firing, so that it starts on time in a
//! full cluster.
//!
//! From its lead time on, a schedule with `reserve_ahead` reserves resources for one job on one worker: an
//! eligible worker, or else the worker that will have the free capacity soonest. No other job is placed into
//! the reservation; running jobs continue. The job of the firing uses the reservation; a skipped firing
//! releases it.
//!
//! Reservations are not stored: they follow from the schedules' rows and are made again after a restart.

use std::sync::Arc;

use model::api;
use model::firing::ScheduleStatus;
use model::{Duration, JobId, JobStatus, ScheduleId, Timestamp, WorkerId};

use super::ScheduledWork;
use crate::engine::Engine;
use crate::placement;
use crate::profile::Shape;
use crate::timer::Timer;

/// Maximum time after a firing until its job must use the reservation; then the reservation is released.
const RESERVATION_TIMEOUT: Duration = Duration::from_secs(60);
/// Interval between two attempts to find a worker.
const RESERVATION_RETRY_INTERVAL: Duration = Duration::from_secs(5);

/// Reservation for the next firing of a schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reservation {
    /// Scheduled time that it is for.
    at: Timestamp,
    /// When that firing is due, including the jitter.
    due: Timestamp,
    /// When its timer fires.
    armed: Timestamp,
    /// Worker with the reserved resources; `None` until one is found.
    worker: Option<WorkerId>,
    /// Job of the firing; `None` until the firing.
    job: Option<JobId>,
}

/// Resources on a worker that only a job of the schedule may use.
#[derive(Debug, Clone)]
pub(crate) struct WorkerReservation {
    pub(crate) schedule: ScheduleId,
    pub(crate) name: Arc<str>,
    pub(crate) scheduled_for: Timestamp,
    pub(crate) shape: Arc<Shape>,
}

impl WorkerReservation {
    pub(crate) fn view(&self) -> api::Reservation {
        api::Reservation {
            schedule_id: self.schedule,
            schedule: self.name.as_ref().to_owned(),
            scheduled_for: self.scheduled_for,
            cpu: self.shape.cpu,
            memory: self.shape.memory,
        }
    }
}

impl Engine {
    /// Arms the timer that makes the reservation for the next firing, unless it is armed already.
    pub(super) fn arm_reservation(&mut self, id: ScheduleId) {
        let Some(schedule) = self.schedules.get(id) else { return };
        let stale = |kept: &Reservation| kept.job.is_none() && Some(kept.at) != schedule.state.next_at;
        if schedule.reservation.as_deref().is_some_and(stale) {
            self.release_reservation(id);
        }
        let Some(schedule) = self.schedules.get(id) else { return };
        let lead = schedule.plan.policies.reserve_ahead;
        let (Some(lead), Some(at)) = (lead, schedule.state.next_at) else { return };
        let active = schedule.state.status == ScheduleStatus::Active;
        let due = schedule.due_of(at);
        // A firing that is long overdue is about to be decided; that arms the timer for the next one.
        if !active || schedule.reservation.is_some() || due + RESERVATION_TIMEOUT <= self.now {
            return;
        }
        self.set_reservation(id, Reservation { at, due, armed: due - lead, worker: None, job: None });
    }

    fn set_reservation(&mut self, id: ScheduleId, reservation: Reservation) {
        self.wall_timers.arm(reservation.armed, Timer::Reserve(id));
        if let Some(schedule) = self.schedules.get_mut(id) {
            schedule.reservation = Some(Box::new(reservation));
        }
    }

    /// Handles the timer of a reservation: makes it, searches again, or releases it.
    pub(crate) fn on_reserve(&mut self, id: ScheduleId) {
        let Some(reservation) = self.schedules.get(id).and_then(|s| s.reservation.as_deref().copied()) else {
            return;
        };
        if reservation.job.is_some() || reservation.due + RESERVATION_TIMEOUT <= self.now {
            self.release_reservation(id);
            return self.arm_reservation(id);
        }
        let worker = self.reserve(id, reservation.at);
        let wait = if worker.is_some() { RESERVATION_TIMEOUT } else { RESERVATION_RETRY_INTERVAL };
        let armed = (if worker.is_some() { reservation.due.max(self.now) } else { self.now }) + wait;
        self.set_reservation(id, Reservation { armed, worker, ..reservation });
    }

    fn reserve(&mut self, id: ScheduleId, scheduled_for: Timestamp) -> Option<WorkerId> {
        let schedule = self.schedules.get(id)?;
        // The resources of a workflow's first steps are unknown.
        let ScheduledWork::Job { profile, .. } = &schedule.template.starts else { return None };
        let shape = Arc::clone(&profile.shape);
        let kept = WorkerReservation { schedule: id, name: Arc::clone(&schedule.name), scheduled_for, shape };
        let chosen = placement::best_of(&kept.shape, self.workers.values(), None)
            .or_else(|| placement::soonest_available(&kept.shape, self.workers.values()))?;
        self.workers.get_mut(&chosen)?.reserved.push(kept);
        Some(chosen)
    }

    /// Assigns the reservation of a firing to its job.
    pub(super) fn assign_reservation(&mut self, id: ScheduleId, at: Timestamp, job: JobId) {
        let Some(reservation) = self.schedules.get(id).and_then(|s| s.reservation.as_deref().copied()) else {
            return;
        };
        if reservation.worker.is_none() || reservation.job.is_some() || reservation.at != at {
            return;
        }
        self.wall_timers.disarm(reservation.armed, Timer::Reserve(id));
        let armed = self.now + RESERVATION_TIMEOUT;
        self.set_reservation(id, Reservation { job: Some(job), armed, ..reservation });
        self.schedules.reserved_jobs.insert(job, id);
        self.dispatch_wanted = true;
    }

    /// Releases the reservation of a scheduled time that was decided without a job.
    pub(super) fn release_unused_reservation(&mut self, id: ScheduleId, at: Timestamp) {
        let made_for = |reservation: &Reservation| reservation.at <= at && reservation.job.is_none();
        if self.schedules.get(id).and_then(|s| s.reservation.as_deref()).is_some_and(made_for) {
            self.release_reservation(id);
        }
    }

    /// Releases the reservation of a schedule.
    pub(crate) fn release_reservation(&mut self, id: ScheduleId) {
        let Some(reservation) = self.schedules.get_mut(id).and_then(|s| s.reservation.take()) else { return };
        self.wall_timers.disarm(reservation.armed, Timer::Reserve(id));
        if let Some(job) = reservation.job {
            self.schedules.reserved_jobs.remove(&job);
        }
        if let Some(worker) = reservation.worker {
            if let Some(worker) = self.workers.get_mut(&worker) {
                worker.reserved.retain(|kept| kept.schedule != id);
            }
            self.capacity_freed(worker);
        }
    }

    /// Moves the reservations on a lost or removed worker to other workers.
    pub(crate) fn move_reservations(&mut self, worker: WorkerId) {
        let kept = self.workers.get_mut(&worker).map(|worker| std::mem::take(&mut worker.reserved));
        for kept in kept.unwrap_or_default() {
            self.release_reservation(kept.schedule);
            self.arm_reservation(kept.schedule);
        }
    }

    /// Places jobs with a reservation, if the resources are free and the job's queue allows it.
    pub(crate) fn place_reserved_jobs(&mut self) {
        let expected: Vec<_> = self.schedules.reserved_jobs.iter().map(|(&job, &id)| (job, id)).collect();
        for (job_id, id) in expected {
            let Some(job) = self.jobs.get(&job_id) else { continue };
            let Some(worker) = self.reserved_worker(id) else { continue };
            let fits = self
                .workers
                .get(&worker)
                .is_some_and(|w| placement::is_eligible(&job.profile.shape, w, Some(id)));
            let waits = job.state.status == JobStatus::Waiting;
            if waits && fits && self.queues.allows_start(job, self.steady) {
                self.place(job_id, worker);
            }
        }
    }

    /// Returns the worker with the reservation of a schedule.
    pub(crate) fn reserved_worker(&self, id: ScheduleId) -> Option<WorkerId> {
        self.schedules.get(id)?.reservation.as_deref()?.worker
    }

    /// Releases the reservation of a job that was placed, on that worker or another one.
    pub(crate) fn on_reserved_job_placed(&mut self, job: JobId) {
        if let Some(id) = self.schedules.reserved_jobs.remove(&job) {
            self.release_reservation(id);
            self.arm_reservation(id);
        }
    }
}
