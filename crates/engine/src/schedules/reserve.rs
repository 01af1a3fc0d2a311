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

use model::firing::ScheduleStatus;
use model::{Duration, JobId, ScheduleId, Timestamp, WorkerId};

use super::{Schedule, ScheduledWork};
use crate::context::Context;
use crate::jobs::Jobs;
use crate::schedules::Schedules;
use crate::timer::Timer;
use crate::workers::{Purpose, WorkerReservation};

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

impl Reservation {
    /// Returns the job that uses it and the worker, as far as they are known.
    pub(super) fn placement(&self) -> (Option<JobId>, Option<WorkerId>) {
        (self.job, self.worker)
    }
}

impl Schedule {
    /// Returns the worker with its reservation.
    pub(crate) fn reserved_worker(&self) -> Option<WorkerId> {
        self.reservation.as_deref()?.worker
    }
}

impl Schedules {
    /// Arms the timer that makes the reservation for the next firing, unless it is armed already.
    pub(super) fn arm_reservation(&mut self, cx: &mut Context, jobs: &mut Jobs, id: ScheduleId) {
        let Some(schedule) = self.get(id) else { return };
        let stale = |kept: &Reservation| kept.job.is_none() && Some(kept.at) != schedule.state.next_at;
        if schedule.reservation.as_deref().is_some_and(stale) {
            self.release_reservation(cx, jobs, id);
        }
        let Some(schedule) = self.get(id) else { return };
        let lead = schedule.plan.policies.reserve_ahead;
        let (Some(lead), Some(at)) = (lead, schedule.state.next_at) else { return };
        let active = schedule.state.status == ScheduleStatus::Active;
        let due = schedule.due_of(at);
        // A firing that is long overdue is about to be decided; that arms the timer for the next one.
        if !active || schedule.reservation.is_some() || due + RESERVATION_TIMEOUT <= cx.now {
            return;
        }
        self.set_reservation(cx, id, Reservation { at, due, armed: due - lead, worker: None, job: None });
    }

    fn set_reservation(&mut self, cx: &mut Context, id: ScheduleId, reservation: Reservation) {
        cx.wall_timers.arm(reservation.armed, Timer::Reserve(id));
        if let Some(schedule) = self.get_mut(id) {
            schedule.reservation = Some(Box::new(reservation));
        }
    }

    /// Handles the timer of a reservation: makes it, searches again, or releases it.
    pub(crate) fn on_reserve(&mut self, cx: &mut Context, jobs: &mut Jobs, id: ScheduleId) {
        let Some(reservation) = self.get(id).and_then(|s| s.reservation.as_deref().copied()) else {
            return;
        };
        if reservation.job.is_some() || reservation.due + RESERVATION_TIMEOUT <= cx.now {
            self.release_reservation(cx, jobs, id);
            return self.arm_reservation(cx, jobs, id);
        }
        let worker = self.reserve(jobs, id, reservation.at);
        let wait = if worker.is_some() { RESERVATION_TIMEOUT } else { RESERVATION_RETRY_INTERVAL };
        let armed = (if worker.is_some() { reservation.due.max(cx.now) } else { cx.now }) + wait;
        self.set_reservation(cx, id, Reservation { armed, worker, ..reservation });
    }

    fn reserve(&mut self, jobs: &mut Jobs, id: ScheduleId, scheduled_for: Timestamp) -> Option<WorkerId> {
        let schedule = self.get(id)?;
        // The resources of a workflow's first steps are unknown.
        let ScheduledWork::Job { profile, .. } = &schedule.template.starts else { return None };
        let shape = Arc::clone(&profile.shape);
        let purpose = Purpose::Firing { schedule: id, name: Arc::clone(&schedule.name), scheduled_for };
        let kept = WorkerReservation { purpose, shape };
        jobs.reserve_on_worker(kept)
    }

    /// Assigns the reservation of a firing to its job.
    pub(super) fn assign_reservation(
        &mut self,
        cx: &mut Context,
        jobs: &mut Jobs,
        id: ScheduleId,
        at: Timestamp,
        job: JobId,
    ) {
        let Some(reservation) = self.get(id).and_then(|s| s.reservation.as_deref().copied()) else {
            return;
        };
        let Some(worker) = reservation.worker.filter(|_| reservation.job.is_none() && reservation.at == at)
        else {
            return;
        };
        cx.wall_timers.disarm(reservation.armed, Timer::Reserve(id));
        let armed = cx.now + RESERVATION_TIMEOUT;
        self.set_reservation(cx, id, Reservation { job: Some(job), armed, ..reservation });
        jobs.assign_to_job(job, id, worker);
    }

    /// Releases the reservation of a scheduled time that was decided without a job.
    pub(super) fn release_unused_reservation(
        &mut self,
        cx: &mut Context,
        jobs: &mut Jobs,
        id: ScheduleId,
        at: Timestamp,
    ) {
        let made_for = |reservation: &Reservation| reservation.at <= at && reservation.job.is_none();
        if self.get(id).and_then(|s| s.reservation.as_deref()).is_some_and(made_for) {
            self.release_reservation(cx, jobs, id);
        }
    }

    /// Releases the reservation of a schedule.
    pub(crate) fn release_reservation(&mut self, cx: &mut Context, jobs: &mut Jobs, id: ScheduleId) {
        let Some(reservation) = self.get_mut(id).and_then(|s| s.reservation.take()) else { return };
        cx.wall_timers.disarm(reservation.armed, Timer::Reserve(id));
        if let Some(worker) = reservation.worker {
            jobs.release_on_worker(id, reservation.job, worker);
        }
    }

    /// Moves the reservations on a lost or removed worker to other workers.
    pub(crate) fn move_reservations(&mut self, cx: &mut Context, jobs: &mut Jobs, worker: WorkerId) {
        for schedule in jobs.schedules_with_reservation_on(worker) {
            self.release_reservation(cx, jobs, schedule);
            self.arm_reservation(cx, jobs, schedule);
        }
    }

    /// Ends the reservation of a schedule whose job was placed, on that worker or another one.
    pub(crate) fn on_reservation_used(&mut self, cx: &mut Context, jobs: &mut Jobs, id: ScheduleId) {
        // The worker was released when the job was placed.
        if let Some(used) = self.get_mut(id).and_then(|schedule| schedule.reservation.take()) {
            cx.wall_timers.disarm(used.armed, Timer::Reserve(id));
        }
        self.arm_reservation(cx, jobs, id);
    }
}
