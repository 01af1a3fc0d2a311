//! Decides the scheduled times from the last decided one to now.
//!
//! A scheduled time is decided when its firing is due, which includes the jitter. Its outcome is one of: held
//! by a filter, skipped by a policy, or fired. The decision moves the cursor to it, so everything later is
//! still undecided. Missed times are handed to [`super::missed`], and deciding continues with the current
//! ones.
//!
//! # Callers
//! The timer of a schedule ([`Schedules::on_schedule`]), and every request about it ([`Schedules::decide_due_before_request`]).
//!
//! # Cost
//! Two steps of the timetable per scheduled time. A request decides about 1,000 scheduled times at most; the
//! timer continues with the rest.

use std::sync::Arc;

use model::firing::{BufferedFiring, DetailCode, FiringCause, FiringOutcome, ScheduleStatus};
use model::record::ScheduleEvent;
use model::{ScheduleId, Timestamp};
use mutation::{Mutation, is_on};
use timetable::{Exclusion, FilterKind, Next};

use super::Schedule;
use super::firing::{Firing, ScheduledTime};
use crate::context::Context;
use crate::jobs::Jobs;
use crate::schedules::Schedules;
use crate::workflows::Workflows;

/// Approximate maximum of scheduled times that a request decides; the schedule's timer continues with the
/// rest.
const DECISIONS_PER_REQUEST_MAX: usize = 1_000;

impl Schedule {
    pub(super) fn hash(&self) -> u128 {
        super::name_hash(&self.namespace, &self.name)
    }

    /// Returns when the firing for a scheduled time is due.
    pub(super) fn due_of(&self, nominal: Timestamp) -> Timestamp {
        nominal + self.plan.delay_of(self.hash(), nominal)
    }

    /// Returns the last scheduled time whose firing is due at `now`, or a later time before the next one.
    pub(super) fn due_until(&self, now: Timestamp) -> Timestamp {
        self.plan.due_until(self.hash(), self.state.cursor, now)
    }

    /// Returns the first scheduled time after the cursor. While the schedule is paused, no fixed delay ends.
    pub(super) fn next_scheduled_time(&self) -> Option<ScheduledTime> {
        let timetable = &self.plan.timetable;
        let counting = self.state.delay_from.filter(|_| self.state.status != ScheduleStatus::Paused);
        let delayed = counting.and_then(|from| timetable.after_delay(from, self.state.cursor));
        let delayed =
            delayed.map(|step| ScheduledTime { at: step.at, due: step.at, held: step.held, delayed: true });
        let step = timetable.step(self.state.cursor).map(|step| {
            let due = self.due_of(step.at);
            ScheduledTime { at: step.at, due, held: step.held, delayed: false }
        });
        match (step, delayed) {
            (Some(step), Some(delayed)) => Some(if step.at <= delayed.at { step } else { delayed }),
            (step, delayed) => step.or(delayed),
        }
    }

    /// Returns whether the timer never fires it again.
    pub(super) fn is_done(&self) -> bool {
        self.state.status == ScheduleStatus::Completed || self.will_reach_max_firings()
    }

    /// Returns whether it has reached its maximum number of firings.
    fn has_reached_max_firings(&self) -> bool {
        self.plan.policies.max_firings.is_some_and(|max| self.state.fired >= max)
    }

    /// Returns whether it will have reached its maximum number of firings after its buffered firings.
    pub(super) fn will_reach_max_firings(&self) -> bool {
        let by_itself = |f: &&BufferedFiring| matches!(f.cause, FiringCause::Timer | FiringCause::CatchUp);
        self.plan.policies.max_firings.is_some_and(|max| {
            let waiting = self.state.buffer.iter().filter(by_itself).count();
            self.state.fired.saturating_add(waiting as u64) >= max
        })
    }

    /// Returns when the next decision is due: for a scheduled time, or for an owed firing if it may catch up.
    pub(super) fn due(&self, may_catch_up: bool) -> Option<Timestamp> {
        if self.is_done() {
            return None;
        }
        let owed = (may_catch_up && self.status_allows_catch_up()).then_some(self.catch_up_at);
        let next = self
            .next_scheduled_time()
            .map(|nominal| nominal.due.max(self.worker_wait_until.unwrap_or_default()));
        owed.into_iter().chain(next).min()
    }

    /// Returns whether `next_at`, which lists show, is up to date.
    pub(super) fn has_current_next_at(&self) -> bool {
        self.state.next_at == self.next_at()
    }

    /// Returns the next scheduled time that no filter holds, for lists.
    fn next_at(&self) -> Option<Timestamp> {
        if self.is_done() {
            return None;
        }
        match self.next_scheduled_time() {
            Some(nominal) if nominal.held.is_none() => Some(nominal.at),
            _ => match self.plan.timetable.next(self.state.cursor) {
                Next::At(at) => Some(at),
                Next::Never | Next::NotUntil(_) => None,
            },
        }
    }
}

impl Schedules {
    /// Handles the timer of a schedule. Decides at most about `bound` scheduled times and returns their
    /// number; if more are due, the timer fires again immediately.
    pub(crate) fn on_schedule(
        &mut self,
        cx: &mut Context,
        workflows: &mut Workflows,
        jobs: &mut Jobs,
        id: ScheduleId,
        bound: usize,
    ) -> usize {
        if let Some(schedule) = self.get_mut(id) {
            schedule.armed = None;
        }
        let mut sum = self.decide_due(cx, workflows, jobs, id, bound);
        let mut caught_up = false;
        while sum < bound {
            let Some(decided) = self.catch_up(cx, workflows, jobs, id) else { break };
            sum += decided;
            caught_up = true;
        }
        self.arm_schedule(cx, workflows, jobs, id);
        if caught_up {
            // Backfills come after owed firings.
            self.continue_backfills_of(cx, workflows, jobs, id);
        }
        sum
    }

    /// Decides the firings that are due before a request changes or triggers the schedule, up to the limit of
    /// one request. Owed firings are left for later. During a hold of new work, due firings are missed.
    pub(super) fn decide_due_before_request(
        &mut self,
        cx: &mut Context,
        workflows: &mut Workflows,
        jobs: &mut Jobs,
        id: ScheduleId,
    ) {
        if cx.holds_new_work {
            self.miss_due(cx, jobs, id);
        } else {
            self.decide_due(cx, workflows, jobs, id, DECISIONS_PER_REQUEST_MAX);
        }
    }

    /// Decides the current firings and finds missed ones.
    fn decide_due(
        &mut self,
        cx: &mut Context,
        workflows: &mut Workflows,
        jobs: &mut Jobs,
        id: ScheduleId,
        bound: usize,
    ) -> usize {
        let mut sum = 0;
        while sum < bound {
            let Some(schedule) = self.get(id) else { break };
            if schedule.is_done() {
                break;
            }
            let Some(nominal) = schedule.next_scheduled_time().filter(|nominal| nominal.due <= cx.now) else {
                break;
            };
            let missed = cx.now.since(nominal.due) > schedule.plan.policies.missed.threshold;
            if missed && !nominal.delayed {
                sum += self.find_gap(cx, jobs, id);
            } else if self.awaits_worker(cx, workflows, jobs, id, &nominal) {
                break;
            } else {
                self.decide(cx, workflows, jobs, id, &nominal, FiringCause::Timer);
                self.move_cursor(id, &nominal);
                sum += 1;
            }
        }
        sum
    }

    /// Decides the outcome of one scheduled time.
    pub(super) fn decide(
        &mut self,
        cx: &mut Context,
        workflows: &mut Workflows,
        jobs: &mut Jobs,
        id: ScheduleId,
        nominal: &ScheduledTime,
        cause: FiringCause,
    ) {
        let now = cx.now;
        let Some(schedule) = self.get(id) else { return };
        let pause = schedule.state.pause.as_deref().filter(|pause| {
            // Firings that were due before the pause are not affected by it.
            schedule.state.status == ScheduleStatus::Paused && nominal.due >= pause.at
        });
        let deadline = schedule.plan.policies.start_deadline;
        let held = nominal.held.as_ref().filter(|_| !is_on(Mutation::EngineIgnoresFilters));
        let skip = match (held, pause) {
            (Some(held), _) => Some((outcome_of(held), Arc::clone(&held.filter))),
            (None, Some(pause)) => Some((FiringOutcome::SkippedPause, pause.to_string().into())),
            (None, None) => deadline.filter(|&deadline| nominal.due + deadline < now).map(|deadline| {
                (FiringOutcome::SkippedDeadline, DetailCode::PastStartDeadline.with(deadline).into())
            }),
        };
        match skip {
            Some((outcome, detail)) => {
                self.record_skip(cx, id, nominal.at, outcome, cause, Some(&detail));
                self.release_unused_reservation(cx, jobs, id, nominal.at);
            }
            None => {
                let generation = schedule.state.generation;
                let (at, due) = (nominal.at, nominal.due);
                let firing = Firing { at, due, cause, generation, detail: None, key: None, waited: false };
                self.fire_or_wait(cx, workflows, jobs, id, firing, None);
            }
        }
    }

    /// Moves the cursor to a decided scheduled time.
    fn move_cursor(&mut self, id: ScheduleId, nominal: &ScheduledTime) {
        let Some(schedule) = self.get_mut(id) else { return };
        let state = &mut schedule.state;
        state.cursor = state.cursor.max(nominal.at);
        if nominal.held.is_none() {
            state.previous = Some(nominal.at);
        }
        if nominal.delayed && state.delay_from.is_some() {
            // The firing did not run, so the fixed delay starts again.
            state.delay_from = Some(nominal.at);
        }
        self.touch_schedule(id);
    }

    /// Updates `next_at`, which lists show.
    pub(super) fn update_next_at(&mut self, id: ScheduleId) {
        let Some(schedule) = self.get_mut(id) else { return };
        let next_at = schedule.next_at();
        if std::mem::replace(&mut schedule.state.next_at, next_at) != next_at {
            self.touch_schedule(id);
        }
    }

    /// Completes a schedule that has reached its maximum number of firings, or whose last scheduled time has
    /// passed and that can have no further one.
    pub(super) fn complete_if_over(&mut self, cx: &mut Context, id: ScheduleId) {
        let Some(schedule) = self.get(id) else { return };
        let state = &schedule.state;
        let waits =
            !state.owed.is_empty() || !schedule.runs.is_empty() && schedule.plan.timetable.delay().is_some();
        let over = schedule.plan.has_rules && !waits && schedule.next_scheduled_time().is_none();
        let over = over && state.status == ScheduleStatus::Active;
        if state.status == ScheduleStatus::Completed || !(over || schedule.has_reached_max_firings()) {
            return;
        }
        self.record_owed_skipped(
            cx,
            id,
            FiringOutcome::SkippedReplaced,
            DetailCode::ScheduleCompleted.sentence(),
        );
        self.set_status(id, ScheduleStatus::Completed);
        self.edit_schedule(cx, id, ScheduleEvent::Completed);
    }
}

pub(super) fn outcome_of(held: &Exclusion) -> FiringOutcome {
    match held.by {
        FilterKind::Calendar => FiringOutcome::SkippedCalendar,
        FilterKind::Window => FiringOutcome::SkippedWindow,
    }
}
