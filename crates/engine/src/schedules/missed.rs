//! Missed firings: scheduled times that passed while no server could decide them, because the servers were
//! down or the clock leapt.
//!
//! Consecutive missed times form a gap. When a gap is found, the cursor skips it and current firings continue
//! at once. Times that the policy does not catch up are recorded as skipped. The others are *owed*: a range
//! in the schedule's row that is run one by one, oldest first, at most at the catch-up rate. After a crash,
//! catching up continues where it stopped.
//!
//! An owed firing starts only if nothing current blocks it: no run that counts towards the overlap limit, and
//! no buffered firing. Until then it stays owed, whatever the overlap policy. So a run from before an outage
//! blocks it until the run's worker has reported the end, or the worker's lease has ended.

use std::borrow::Cow;

use model::firing::{DetailCode, FiringCause, FiringOutcome, Gap, ScheduleStatus};
use model::schedule::MissedPolicy;
use model::{Duration, ScheduleId, Timestamp};
use mutation::{Mutation, is_on};

use super::decide::outcome_of;
use super::firing::ScheduledTime;
use super::{Schedule, just_before};
use crate::context::Context;
use crate::jobs::Jobs;
use crate::schedules::Schedules;
use crate::workflows::Workflows;

/// Maximum number of times of one gap that are counted one by one; the rest is recorded without an exact
/// count.
const COUNTED_MAX: usize = 10_000;
/// Maximum number of gaps per schedule; when there are more, the oldest is given up.
const GAPS_MAX: usize = 16;

/// Outcome and detail of a part of a gap that is not caught up.
type Reason = (FiringOutcome, Cow<'static, str>);

const TOO_OLD: Reason = by(FiringOutcome::SkippedPolicy, DetailCode::OlderThanCatchUp);
const TOO_LATE: Reason = by(FiringOutcome::SkippedDeadline, DetailCode::LaterThanDeadline);

const fn by(outcome: FiringOutcome, code: DetailCode) -> Reason {
    (outcome, Cow::Borrowed(code.sentence()))
}

impl Schedule {
    /// Returns the end of the range that is too old to be caught up, with the reason.
    fn expired_until(&self, after: Timestamp, now: Timestamp) -> Option<(Timestamp, Reason)> {
        let policies = &self.plan.policies;
        let too_old = (just_before(now - policies.missed.catch_up_window), TOO_OLD);
        let too_late = policies.start_deadline.map(|deadline| {
            let due_before = just_before(now - deadline);
            (self.plan.due_until(self.hash(), after, due_before), TOO_LATE)
        });
        let latest = too_late.into_iter().chain([too_old]).max_by_key(|(until, _)| *until);
        latest.filter(|(until, _)| *until > after)
    }

    /// Returns the first time of a gap that the policy catches up, or `None` if it catches up none; the
    /// reason for skipping the times before; and the number of times visited.
    fn first_caught_up(&self, gap: Gap) -> (Option<Timestamp>, Reason, usize) {
        let missed = &self.plan.policies.missed;
        let mut looked = 0;
        let mut nth_last = |n: u32| {
            let mut until = gap.until;
            let mut found = None;
            for _ in 0..n.max(1) {
                looked += 1;
                let Some(at) = self.plan.timetable.last(gap.after, until) else { break };
                found = Some(at);
                until = just_before(at);
            }
            found
        };
        let (kept, reason) = match missed.policy {
            MissedPolicy::Skip => (None, by(FiringOutcome::SkippedPolicy, DetailCode::Missed)),
            MissedPolicy::FireOnce => (nth_last(1), by(FiringOutcome::Coalesced, DetailCode::MergedIntoLast)),
            MissedPolicy::FireLast => {
                (nth_last(missed.last), by(FiringOutcome::SkippedPolicy, DetailCode::MissedBeforeLast))
            }
            MissedPolicy::FireAll => {
                let detail = DetailCode::MissedBeyondLimit.with(missed.limit);
                (nth_last(missed.limit), (FiringOutcome::SkippedPolicy, detail.into()))
            }
        };
        (kept, reason, looked)
    }
}

impl Schedules {
    /// Handles a missed first time after the cursor: takes all missed times as a gap and continues with the
    /// current ones. Returns the number of times counted.
    pub(super) fn find_gap(&mut self, cx: &mut Context, jobs: &mut Jobs, id: ScheduleId) -> usize {
        let now = cx.now;
        let Some(schedule) = self.get(id) else { return 1 };
        let threshold = schedule.plan.policies.missed.threshold;
        self.miss_until(cx, jobs, id, schedule.due_until(just_before(now - threshold)))
    }

    /// Treats every due time as missed, however short its delay, because new work is held. The policy of the
    /// schedule decides what is caught up after the hold. The end of a fixed delay stays due.
    pub(super) fn miss_due(&mut self, cx: &mut Context, jobs: &mut Jobs, id: ScheduleId) {
        let Some(schedule) = self.get(id).filter(|schedule| !schedule.is_done()) else { return };
        let next = schedule.next_scheduled_time();
        if next.is_some_and(|nominal| nominal.due <= cx.now && !nominal.delayed) {
            self.miss_until(cx, jobs, id, schedule.due_until(cx.now));
        }
    }

    /// Takes all times after the cursor up to `until` as missed. Returns the number of times counted.
    fn miss_until(&mut self, cx: &mut Context, jobs: &mut Jobs, id: ScheduleId, until: Timestamp) -> usize {
        let Some(schedule) = self.get(id) else { return 1 };
        let after = schedule.state.cursor;
        let until = until.max(after);
        let previous = schedule.plan.timetable.last(after, until);
        let pause = schedule.state.pause.as_ref().filter(|_| schedule.state.status == ScheduleStatus::Paused);
        // Times that were due before the pause are owed; those during the pause are skipped.
        let paused_after = pause.map(|pause| schedule.due_until(just_before(pause.at)).clamp(after, until));
        let paused_by = pause.map(|pause| pause.to_string());
        if let Some(schedule) = self.get_mut(id) {
            schedule.state.cursor = until;
            schedule.state.previous = previous.or(schedule.state.previous);
        }
        if is_on(Mutation::EngineIgnoresOutages) {
            return 1;
        }
        let mut counted = 1 + self.record_owed(cx, id, Gap { after, until: paused_after.unwrap_or(until) });
        if let (Some(after), Some(by)) = (paused_after, paused_by) {
            counted += self.record_skipped(cx, id, Gap { after, until }, FiringOutcome::SkippedPause, &by);
        }
        self.release_unused_reservation(cx, jobs, id, until);
        self.touch_schedule(id);
        counted
    }

    /// Records the times that the policy does not catch up, and adds the rest to the owed ones. Returns the
    /// number of times visited.
    fn record_owed(&mut self, cx: &mut Context, id: ScheduleId, gap: Gap) -> usize {
        let mut gap = gap;
        let mut counted = 0;
        let Some(schedule) = self.get(id) else { return counted };
        if let Some((until, (outcome, detail))) = schedule.expired_until(gap.after, cx.now) {
            let until = until.min(gap.until);
            counted += self.record_skipped(cx, id, Gap { until, ..gap }, outcome, &detail);
            gap.after = until;
        }
        let Some(schedule) = self.get(id) else { return counted };
        let (kept_from, (outcome, detail), looked) = schedule.first_caught_up(gap);
        counted += looked;
        let before =
            |kept| if is_on(Mutation::EngineDropsTheFirstMissedFiring) { kept } else { just_before(kept) };
        let kept_after = kept_from.map_or(gap.until, |kept| before(kept).max(gap.after));
        counted += self.record_skipped(cx, id, Gap { until: kept_after, ..gap }, outcome, &detail);
        gap.after = kept_after;
        if gap.after >= gap.until {
            return counted;
        }
        let full = self.get_mut(id).and_then(|schedule| {
            schedule.state.owed.push(gap);
            (schedule.state.owed.len() > GAPS_MAX).then(|| schedule.state.owed.remove(0))
        });
        if let Some(oldest) = full {
            let detail = DetailCode::TooManyOutages.sentence();
            counted += self.record_skipped(cx, id, oldest, FiringOutcome::SkippedPolicy, detail);
        }
        self.touch_schedule(id);
        counted
    }

    /// Decides again which owed times are caught up, after a change of the policies.
    pub(super) fn recheck_owed(&mut self, cx: &mut Context, id: ScheduleId) {
        let owed = self.get_mut(id).map(|schedule| std::mem::take(&mut schedule.state.owed));
        for gap in owed.unwrap_or_default() {
            self.record_owed(cx, id, gap);
        }
    }

    /// Returns whether an owed firing may start, as far as runs and other firings are concerned.
    pub(super) fn may_catch_up(
        &self,
        workflows: &Workflows,
        jobs: &Jobs,
        id: ScheduleId,
        schedule: &Schedule,
    ) -> bool {
        !schedule.state.owed.is_empty()
            && schedule.first_in_turn().is_none()
            && self.may_start_run(workflows, jobs, id)
            || is_on(Mutation::EngineCatchesUpAtOnce)
    }

    /// Does one step of catching up and returns the number of times visited; `None` if no firing is owed or
    /// may start now.
    pub(super) fn catch_up(
        &mut self,
        cx: &mut Context,
        workflows: &mut Workflows,
        jobs: &mut Jobs,
        id: ScheduleId,
    ) -> Option<usize> {
        let now = cx.now;
        let schedule = self.get(id)?;
        let gap = *schedule.state.owed.first()?;
        if schedule.is_done() || !schedule.owes_at(now) || !self.may_catch_up(workflows, jobs, id, schedule) {
            return None;
        }
        if let Some((until, (outcome, detail))) = schedule.expired_until(gap.after, now) {
            let until = until.min(gap.until);
            let counted = self.record_skipped(cx, id, Gap { until, ..gap }, outcome, &detail);
            self.shrink_first_gap(id, until);
            return Some(1 + counted);
        }
        let Some(step) = schedule.plan.timetable.step(gap.after).filter(|step| step.at <= gap.until) else {
            self.shrink_first_gap(id, gap.until);
            return Some(1);
        };
        let rate = schedule.plan.policies.missed.catch_up_per_minute.filter(|_| step.held.is_none());
        let nominal =
            ScheduledTime { at: step.at, due: schedule.due_of(step.at), held: step.held, delayed: false };
        self.shrink_first_gap(id, step.at);
        self.decide(cx, workflows, jobs, id, &nominal, FiringCause::CatchUp);
        if let (Some(rate), Some(schedule)) = (rate, self.get_mut(id)) {
            schedule.catch_up_at = now + pause_between(rate);
        }
        Some(1)
    }

    /// Removes the decided times up to `after` from the oldest gap.
    fn shrink_first_gap(&mut self, id: ScheduleId, after: Timestamp) {
        if let Some(schedule) = self.get_mut(id)
            && let Some(gap) = schedule.state.owed.first_mut()
        {
            gap.after = after;
            if gap.after >= gap.until {
                schedule.state.owed.remove(0);
            }
        }
        self.touch_schedule(id);
    }

    /// Records all owed times as not run.
    pub(super) fn record_owed_skipped(
        &mut self,
        cx: &mut Context,
        id: ScheduleId,
        outcome: FiringOutcome,
        detail: &str,
    ) {
        let owed = self.get_mut(id).map(|schedule| std::mem::take(&mut schedule.state.owed));
        for gap in owed.unwrap_or_default() {
            self.record_skipped(cx, id, gap, outcome, detail);
        }
    }

    /// Records all times after the cursor up to `until` as not run, and moves the cursor there.
    pub(super) fn record_skipped_until(
        &mut self,
        cx: &mut Context,
        id: ScheduleId,
        until: Timestamp,
        outcome: FiringOutcome,
        detail: &str,
    ) {
        let Some(schedule) = self.get_mut(id) else { return };
        let after = schedule.state.cursor;
        if until <= after {
            return;
        }
        schedule.state.cursor = until;
        schedule.state.previous = schedule.plan.timetable.last(after, until).or(schedule.state.previous);
        self.touch_schedule(id);
        self.record_skipped(cx, id, Gap { after, until }, outcome, detail);
    }

    /// Records every time of a gap as not run; times that a filter holds are recorded as held. Returns the
    /// number of times counted.
    fn record_skipped(
        &mut self,
        cx: &mut Context,
        id: ScheduleId,
        gap: Gap,
        outcome: FiringOutcome,
        detail: &str,
    ) -> usize {
        let mut after = gap.after;
        let mut counted = 0;
        while let Some(step) = self
            .get(id)
            .and_then(|schedule| schedule.plan.timetable.step(after))
            .filter(|step| step.at <= gap.until)
        {
            after = step.at;
            counted += 1;
            let held = step.held.as_ref().filter(|_| counted <= COUNTED_MAX);
            match held {
                Some(held) => {
                    let cause = FiringCause::CatchUp;
                    self.record_skip(cx, id, step.at, outcome_of(held), cause, Some(&held.filter));
                }
                None => self.record_skip(cx, id, step.at, outcome, FiringCause::CatchUp, Some(detail)),
            }
            if counted > COUNTED_MAX {
                self.stretch_record(id, Gap { after, until: gap.until });
                break;
            }
        }
        counted
    }

    /// Extends the open record over the rest of a gap without an exact count.
    fn stretch_record(&mut self, id: ScheduleId, gap: Gap) {
        if let Some(schedule) = self.get_mut(id) {
            let last = schedule.plan.timetable.last(gap.after, gap.until);
            if let (Some(last), Some(record)) = (last, schedule.state.open_record.as_mut()) {
                record.last = last;
                record.exact = false;
                schedule.record_dirty = true;
            }
        }
    }
}

/// Returns the delay between two owed firings at a catch-up rate.
pub(super) fn pause_between(per_minute: u32) -> Duration {
    Duration::from_millis(60_000 / u64::from(per_minute.max(1)))
}
