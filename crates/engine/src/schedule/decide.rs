//! The walk from the last decided instant to now.
//!
//! An instant is decided when its time has come, with its jitter: held by a filter, skipped by a
//! policy, or fired. Deciding moves the cursor to it, so whatever happens next starts behind it. What
//! is found to be missed is handed to [`super::missed`], and the walk goes on in the present.

use std::sync::Arc;

use model::firing::{BufferedFiring, DetailCode, FiringCause, FiringOutcome, ScheduleStatus};
use model::record::ScheduleEvent;
use model::{ScheduleId, Timestamp};
use mutation::{Mutation, is_on};
use timetable::{Held, HeldBy, Next};

use super::Schedule;
use super::fire::Firing;
use crate::engine::Engine;

/// About how many instants are decided before a request about their schedule goes on; its timer goes
/// on with the rest.
const DECISIONS_A_REQUEST: usize = 1_000;

/// A nominal instant that is not decided.
#[derive(Debug, Clone)]
pub(super) struct Nominal {
    pub(super) at: Timestamp,
    /// When it is due: later by the jitter.
    pub(super) due: Timestamp,
    pub(super) held: Option<Held>,
    /// Whether it is the end of a fixed delay, not from a rule of the calendar or the clock.
    pub(super) delayed: bool,
}

impl Schedule {
    pub(super) fn hash(&self) -> u128 {
        super::name_hash(&self.namespace, &self.name)
    }

    /// When the firing for an instant is due.
    pub(super) fn due_of(&self, nominal: Timestamp) -> Timestamp {
        nominal + self.plan.delay_of(self.hash(), nominal)
    }

    /// The instant up to which, and no further, firings are due at `now`.
    pub(super) fn due_until(&self, now: Timestamp) -> Timestamp {
        self.plan.due_until(self.hash(), self.state.cursor, now)
    }

    /// The first instant after the cursor. A fixed delay ends at none while the schedule is paused.
    pub(super) fn next_nominal(&self) -> Option<Nominal> {
        let timetable = &self.plan.timetable;
        let counting = self.state.delay_from.filter(|_| self.state.status != ScheduleStatus::Paused);
        let delayed = counting.and_then(|from| timetable.after_delay(from, self.state.cursor));
        let delayed =
            delayed.map(|step| Nominal { at: step.at, due: step.at, held: step.held, delayed: true });
        let step = timetable.step(self.state.cursor).map(|step| {
            let due = self.due_of(step.at);
            Nominal { at: step.at, due, held: step.held, delayed: false }
        });
        match (step, delayed) {
            (Some(step), Some(delayed)) => Some(if step.at <= delayed.at { step } else { delayed }),
            (step, delayed) => step.or(delayed),
        }
    }

    /// Whether it fires by itself no more.
    pub(super) fn is_done(&self) -> bool {
        self.state.status == ScheduleStatus::Completed || self.will_be_spent()
    }

    /// Whether it has fired as often as it may.
    fn is_spent(&self) -> bool {
        self.plan.policies.max_firings.is_some_and(|max| self.state.fired >= max)
    }

    /// Whether it will have fired as often as it may, once what waits has had its turn.
    pub(super) fn will_be_spent(&self) -> bool {
        let by_itself = |f: &&BufferedFiring| matches!(f.cause, FiringCause::Timer | FiringCause::CatchUp);
        self.plan.policies.max_firings.is_some_and(|max| {
            let waiting = self.state.buffer.iter().filter(by_itself).count();
            self.state.fired.saturating_add(waiting as u64) >= max
        })
    }

    /// When there is something to decide: an instant, or the next that is owed, if it may have its turn.
    pub(super) fn due(&self, may_catch_up: bool) -> Option<Timestamp> {
        if self.is_done() {
            return None;
        }
        let owed = (may_catch_up && self.status_lets_catch_up()).then_some(self.catch_up_at);
        let next = self.next_nominal().map(|nominal| nominal.due.max(self.heard_by.unwrap_or_default()));
        owed.into_iter().chain(next).min()
    }

    /// Whether lists show its next instant as it is.
    pub(super) fn shows_its_next(&self) -> bool {
        self.state.next_at == self.next_at()
    }

    /// The next instant that no filter holds, for lists.
    fn next_at(&self) -> Option<Timestamp> {
        if self.is_done() {
            return None;
        }
        match self.next_nominal() {
            Some(nominal) if nominal.held.is_none() => Some(nominal.at),
            _ => match self.plan.timetable.next(self.state.cursor) {
                Next::At(at) => Some(at),
                Next::Never | Next::NotUntil(_) => None,
            },
        }
    }
}

impl Engine {
    /// Its timer went off. Decides about `bound` instants at most, and returns how many; its timer goes
    /// off again at once if there are more.
    pub(crate) fn on_schedule(&mut self, id: ScheduleId, bound: usize) -> usize {
        if let Some(schedule) = self.schedules.get_mut(id) {
            schedule.armed = None;
        }
        let mut sum = self.settle_schedule(id, bound);
        let mut caught_up = false;
        while sum < bound {
            let Some(decided) = self.catch_up(id) else { break };
            sum += decided;
            caught_up = true;
        }
        self.arm_schedule(id);
        if caught_up {
            // Backfills come after what is owed.
            self.pump_backfills_of(id);
        }
        sum
    }

    /// Decides the firings that are due before a request changes or triggers the schedule, up to the limit of one
    /// request. Owed firings are left for later. While new work is held, those that are due are missed.
    pub(super) fn settle_now(&mut self, id: ScheduleId) {
        if self.holds_new_work {
            self.miss_due(id);
        } else {
            self.settle_schedule(id, DECISIONS_A_REQUEST);
        }
    }

    /// Decides what is due in the present, and finds what was missed.
    fn settle_schedule(&mut self, id: ScheduleId, bound: usize) -> usize {
        let mut sum = 0;
        while sum < bound {
            let Some(schedule) = self.schedules.get(id) else { break };
            if schedule.is_done() {
                break;
            }
            let Some(nominal) = schedule.next_nominal().filter(|nominal| nominal.due <= self.now) else {
                break;
            };
            let missed = self.now.since(nominal.due) > schedule.plan.policies.missed.threshold;
            if missed && !nominal.delayed {
                sum += self.find_gap(id);
            } else if self.awaits_worker(id, &nominal) {
                break;
            } else {
                self.decide(id, &nominal, FiringCause::Timer);
                self.move_cursor(id, &nominal);
                sum += 1;
            }
        }
        sum
    }

    /// Gives one instant its outcome.
    pub(super) fn decide(&mut self, id: ScheduleId, nominal: &Nominal, cause: FiringCause) {
        let now = self.now;
        let Some(schedule) = self.schedules.get(id) else { return };
        let pause = schedule.state.pause.as_deref().filter(|pause| {
            // What was due before it was paused has its right.
            schedule.state.status == ScheduleStatus::Paused && nominal.due >= pause.at
        });
        let deadline = schedule.plan.policies.start_deadline;
        let held = nominal.held.as_ref().filter(|_| !is_on(Mutation::EngineIgnoresFilters));
        let skip = match (held, pause) {
            (Some(held), _) => Some((outcome_of(held), Arc::clone(&held.filter))),
            (None, Some(pause)) => Some((FiringOutcome::SkippedPause, pause.to_string().into())),
            (None, None) => deadline.filter(|&deadline| nominal.due + deadline < now).map(|deadline| {
                (FiringOutcome::SkippedDeadline, DetailCode::MoreThanLate.with(deadline).into())
            }),
        };
        match skip {
            Some((outcome, detail)) => {
                self.record_skip(id, nominal.at, outcome, cause, Some(&detail));
                self.unneeded(id, nominal.at);
            }
            None => {
                let generation = schedule.state.generation;
                let (at, due) = (nominal.at, nominal.due);
                let firing = Firing { at, due, cause, generation, detail: None, key: None, waited: false };
                self.fire_or_wait(id, firing, None);
            }
        }
    }

    /// An instant was decided: whatever comes next comes after it.
    fn move_cursor(&mut self, id: ScheduleId, nominal: &Nominal) {
        let Some(schedule) = self.schedules.get_mut(id) else { return };
        let state = &mut schedule.state;
        state.cursor = state.cursor.max(nominal.at);
        if nominal.held.is_none() {
            state.previous = Some(nominal.at);
        }
        if nominal.delayed && state.delay_from.is_some() {
            // It was not run: the delay begins anew.
            state.delay_from = Some(nominal.at);
        }
        self.touch_schedule(id);
    }

    /// Puts what lists show as the next instant where it is.
    pub(super) fn show_next(&mut self, id: ScheduleId) {
        let Some(schedule) = self.schedules.get_mut(id) else { return };
        let next_at = schedule.next_at();
        if std::mem::replace(&mut schedule.state.next_at, next_at) != next_at {
            self.touch_schedule(id);
        }
    }

    /// Completes a schedule that has fired as often as it may, or whose last instant has passed and
    /// nothing can bring another.
    pub(super) fn complete_if_over(&mut self, id: ScheduleId) {
        let Some(schedule) = self.schedules.get(id) else { return };
        let state = &schedule.state;
        let waits =
            !state.owed.is_empty() || !schedule.runs.is_empty() && schedule.plan.timetable.delay().is_some();
        let over = schedule.plan.has_rules && !waits && schedule.next_nominal().is_none();
        let over = over && state.status == ScheduleStatus::Active;
        if state.status == ScheduleStatus::Completed || !(over || schedule.is_spent()) {
            return;
        }
        self.give_up_owed(id, FiringOutcome::SkippedReplaced, DetailCode::ScheduleCompleted.sentence());
        self.schedules.set_status(id, ScheduleStatus::Completed);
        self.edit_schedule(id, ScheduleEvent::Completed);
    }
}

pub(super) fn outcome_of(held: &Held) -> FiringOutcome {
    match held.by {
        HeldBy::Calendar => FiringOutcome::SkippedCalendar,
        HeldBy::Window => FiringOutcome::SkippedWindow,
    }
}
