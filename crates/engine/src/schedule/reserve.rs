//! Room that is kept on a worker ahead of a firing, so that a full cluster still runs it in time.
//!
//! From its lead time on, a schedule that reserves holds room for one job on one worker: there where
//! it fits now, else where it will soonest. Other work is not placed into that room; what runs there
//! already goes on. The firing's job takes the room; a firing that is skipped gives it back.
//!
//! Nothing of it is stored: it follows from the schedules' rows and is made again after a restart.

use std::sync::Arc;

use model::api;
use model::firing::ScheduleStatus;
use model::{Duration, JobId, JobStatus, ScheduleId, Timestamp, WorkerId};

use super::Starts;
use crate::engine::Engine;
use crate::placement;
use crate::profile::Shape;
use crate::timer::Timer;

/// How long a firing's job may take to come to its room before the room is given up.
const KEPT_AFTER: Duration = Duration::from_secs(60);
/// How soon a reservation that found no worker looks again.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// What a schedule does about room for its next firing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reservation {
    /// The nominal instant that it is for.
    at: Timestamp,
    /// When its firing is due.
    due: Timestamp,
    /// When its timer goes off.
    armed: Timestamp,
    /// Where room is kept, once it is.
    worker: Option<WorkerId>,
    /// The job that it was made for, once there is one.
    job: Option<JobId>,
}

/// Room on a worker that only a schedule's job may take.
#[derive(Debug, Clone)]
pub(crate) struct Kept {
    pub(crate) schedule: ScheduleId,
    pub(crate) name: Arc<str>,
    pub(crate) scheduled_for: Timestamp,
    pub(crate) shape: Arc<Shape>,
}

impl Kept {
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
    /// Arms the timer that keeps room for the next firing, unless one is armed for it already.
    pub(super) fn arm_reservation(&mut self, id: ScheduleId) {
        let Some(schedule) = self.schedules.get(id) else { return };
        let stale = |kept: &Reservation| kept.job.is_none() && Some(kept.at) != schedule.state.next_at;
        if schedule.reservation.as_deref().is_some_and(stale) {
            self.let_go(id);
        }
        let Some(schedule) = self.schedules.get(id) else { return };
        let lead = schedule.plan.policies.reserve_ahead;
        let (Some(lead), Some(at)) = (lead, schedule.state.next_at) else { return };
        let active = schedule.state.status == ScheduleStatus::Active;
        let due = schedule.due_of(at);
        // One that is long due is about to be decided, and armed again for the next.
        if !active || schedule.reservation.is_some() || due + KEPT_AFTER <= self.now {
            return;
        }
        self.set_reservation(id, Reservation { at, due, armed: due - lead, worker: None, job: None });
    }

    fn set_reservation(&mut self, id: ScheduleId, reservation: Reservation) {
        self.agenda.arm(reservation.armed, Timer::Reserve(id));
        if let Some(schedule) = self.schedules.get_mut(id) {
            schedule.reservation = Some(Box::new(reservation));
        }
    }

    /// Its timer went off: keep room, look again, or give up.
    pub(crate) fn on_reserve(&mut self, id: ScheduleId) {
        let Some(reservation) = self.schedules.get(id).and_then(|s| s.reservation.as_deref().copied()) else {
            return;
        };
        if reservation.job.is_some() || reservation.due + KEPT_AFTER <= self.now {
            self.let_go(id);
            return self.arm_reservation(id);
        }
        let worker = self.reserve(id, reservation.at);
        let wait = if worker.is_some() { KEPT_AFTER } else { LOOK_AGAIN };
        let armed = (if worker.is_some() { reservation.due.max(self.now) } else { self.now }) + wait;
        self.set_reservation(id, Reservation { armed, worker, ..reservation });
    }

    fn reserve(&mut self, id: ScheduleId, scheduled_for: Timestamp) -> Option<WorkerId> {
        let schedule = self.schedules.get(id)?;
        // Nobody knows what the first steps of a workflow will need.
        let Starts::Job { profile, .. } = &schedule.template.starts else { return None };
        let shape = Arc::clone(&profile.shape);
        let kept = Kept { schedule: id, name: Arc::clone(&schedule.name), scheduled_for, shape };
        let chosen = placement::best_of(&kept.shape, self.workers.values(), None)
            .or_else(|| placement::soonest(&kept.shape, self.workers.values()))?;
        self.workers.get_mut(&chosen)?.kept.push(kept);
        Some(chosen)
    }

    /// The firing that room was kept for has created its job.
    pub(super) fn expect_job(&mut self, id: ScheduleId, at: Timestamp, job: JobId) {
        let Some(reservation) = self.schedules.get(id).and_then(|s| s.reservation.as_deref().copied()) else {
            return;
        };
        if reservation.worker.is_none() || reservation.job.is_some() || reservation.at != at {
            return;
        }
        self.agenda.disarm(reservation.armed, Timer::Reserve(id));
        let armed = self.now + KEPT_AFTER;
        self.set_reservation(id, Reservation { job: Some(job), armed, ..reservation });
        self.schedules.expected.insert(job, id);
        self.dispatch_wanted = true;
    }

    /// The instant that room may be kept for was decided without a job.
    pub(super) fn unneeded(&mut self, id: ScheduleId, at: Timestamp) {
        let made_for = |reservation: &Reservation| reservation.at <= at && reservation.job.is_none();
        if self.schedules.get(id).and_then(|s| s.reservation.as_deref()).is_some_and(made_for) {
            self.let_go(id);
        }
    }

    /// Gives back whatever is kept for a schedule.
    pub(crate) fn let_go(&mut self, id: ScheduleId) {
        let Some(reservation) = self.schedules.get_mut(id).and_then(|s| s.reservation.take()) else { return };
        self.agenda.disarm(reservation.armed, Timer::Reserve(id));
        if let Some(job) = reservation.job {
            self.schedules.expected.remove(&job);
        }
        if let Some(worker) = reservation.worker {
            if let Some(worker) = self.workers.get_mut(&worker) {
                worker.kept.retain(|kept| kept.schedule != id);
            }
            self.capacity_freed(worker);
        }
    }

    /// A worker is lost or gone: the room that was kept there is looked for elsewhere.
    pub(crate) fn lose_reservations(&mut self, worker: WorkerId) {
        let kept = self.workers.get_mut(&worker).map(|worker| std::mem::take(&mut worker.kept));
        for kept in kept.unwrap_or_default() {
            self.let_go(kept.schedule);
            self.arm_reservation(kept.schedule);
        }
    }

    /// Places jobs that room was kept for, where that room is free by now and their queue lets them.
    pub(crate) fn place_expected(&mut self) {
        let expected: Vec<_> = self.schedules.expected.iter().map(|(&job, &id)| (job, id)).collect();
        for (job_id, id) in expected {
            let Some(job) = self.jobs.get(&job_id) else { continue };
            let Some(worker) = self.kept_for(id) else { continue };
            let fits =
                self.workers.get(&worker).is_some_and(|w| placement::fits(&job.profile.shape, w, Some(id)));
            let waits = job.state.status == JobStatus::Waiting;
            if waits && fits && self.queues.lets_through(job, self.steady) {
                self.place(job_id, worker);
            }
        }
    }

    /// Where room is kept for a schedule.
    pub(crate) fn kept_for(&self, id: ScheduleId) -> Option<WorkerId> {
        self.schedules.get(id)?.reservation.as_deref()?.worker
    }

    /// A job was placed: the room that was kept for it, there or elsewhere, is given back.
    pub(crate) fn placed_expected(&mut self, job: JobId) {
        if let Some(id) = self.schedules.expected.remove(&job) {
            self.let_go(id);
            self.arm_reservation(id);
        }
    }
}
