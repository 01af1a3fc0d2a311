//! The overlap policy: what a firing does while earlier runs of its schedule are unfinished.
//!
//! Every run counts, whether the timer, a user, a backfill or a retry created it. Buffered firings are part
//! of the schedule's row and start in order.
//!
//! # Callers
//! [`decide`](super::decide) and [`trigger`](super::trigger) pass each firing to [`Engine::fire_or_wait`].
//! The end of a run calls [`Engine::start_buffered`].
//!
//! # Invariants
//! - Only backfills and the policy `allow_all`, of the schedule or of one trigger, exceed the limit of
//!   unfinished runs.
//! - Apart from `allow_all`, buffered firings start before later firings, owed firings and backfill runs.
//! - With the policy `skip`, a scheduled firing that only runs of the past block (backfills, catch-up) is
//!   buffered instead of skipped.
//!
//! # Cost
//! O(unfinished runs of the schedule + its running backfills) for each firing that the limit blocks.

use std::sync::Arc;

use model::firing::{BufferedFiring, DetailCode, FiringCause, FiringOutcome, ScheduleStatus, Work};
use model::schedule::OverlapPolicy;
use model::worker::WorkerStatus;
use model::{JobId, ScheduleId, Timestamp};
use mutation::{Mutation, is_on};

use super::Schedule;
use super::decide::ScheduledTime;
use super::fire::{Firing, ON_TIME_MAX};
use super::ledger::with_actor;
use crate::engine::Engine;

/// Maximum number of buffered firings per schedule.
const BUFFER_MAX: usize = 1_000;

/// Result of a firing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FiringResult {
    pub(super) outcome: FiringOutcome,
    pub(super) work: Option<Work>,
}

impl Engine {
    /// Fires if the overlap limit allows it, otherwise applies its overlap policy, or `instead`.
    pub(super) fn fire_or_wait(
        &mut self,
        id: ScheduleId,
        firing: Firing,
        instead: Option<OverlapPolicy>,
    ) -> FiringResult {
        let any_expired = self.drop_expired(id);
        let decided = self.fire_or_apply_overlap(id, firing, instead);
        if any_expired {
            // The expired firings held up backfills. The new firing comes before them.
            self.continue_backfills_of(id);
        }
        decided
    }

    fn fire_or_apply_overlap(
        &mut self,
        id: ScheduleId,
        firing: Firing,
        instead: Option<OverlapPolicy>,
    ) -> FiringResult {
        let Some(schedule) = self.schedules.get(id) else {
            return FiringResult { outcome: FiringOutcome::SkippedReplaced, work: None };
        };
        let policy = instead.unwrap_or(match schedule.plan.policies.overlap.policy {
            // A run of the past must not cost a scheduled firing its turn: the firing waits for the end of
            // that run.
            OverlapPolicy::Skip if firing.is_automatic() && self.is_blocked_by_past_run(schedule) => {
                OverlapPolicy::BufferOne
            }
            policy => policy,
        });
        let has_turn = self.is_below_limit(id, schedule) && schedule.first_in_turn().is_none();
        if has_turn || policy == OverlapPolicy::AllowAll || is_on(Mutation::EngineIgnoresOverlap) {
            return self.fire_schedule(id, firing);
        }
        match policy {
            OverlapPolicy::AllowAll | OverlapPolicy::Skip => {
                let detail = match schedule.runs.len() {
                    1 => DetailCode::RunNotOver.sentence().to_owned(),
                    count => DetailCode::RunsNotOver.with(count),
                };
                self.record_overlap_skip(id, firing, FiringOutcome::SkippedOverlap, &detail)
            }
            OverlapPolicy::BufferOne if !schedule.state.buffer.is_empty() => {
                let outcome = FiringOutcome::Coalesced;
                self.record_overlap_skip(id, firing, outcome, DetailCode::MergedIntoWaiting.sentence())
            }
            OverlapPolicy::BufferOne => self.buffer(id, firing),
            OverlapPolicy::BufferAll => {
                let bound = usize::try_from(schedule.plan.policies.overlap.buffer)
                    .unwrap_or(usize::MAX)
                    .min(BUFFER_MAX);
                if schedule.state.buffer.len() < bound {
                    return self.buffer(id, firing);
                }
                let detail = DetailCode::BufferFull.with(bound);
                self.record_overlap_skip(id, firing, FiringOutcome::Shed, &detail)
            }
            OverlapPolicy::CancelOther => self.replace_runs(id, firing, false),
            OverlapPolicy::TerminateOther => self.replace_runs(id, firing, true),
        }
    }

    /// Returns whether a firing that would be skipped waits instead. A run that blocks it is on a worker that
    /// has not reconnected since the takeover, so the run may have ended. The firing waits for one lease at
    /// most.
    pub(super) fn awaits_worker(&mut self, id: ScheduleId, nominal: &ScheduledTime) -> bool {
        let Some(schedule) = self.schedules.get(id) else { return false };
        let skips = schedule.plan.policies.overlap.policy == OverlapPolicy::Skip && nominal.held.is_none();
        let unheard = skips
            && schedule.runs.iter().any(|run| self.is_unreported(*run))
            && !self.is_below_limit(id, schedule);
        let until = schedule.worker_wait_until.unwrap_or_else(|| self.now + self.first_lease());
        let waits = unheard && self.now < until;
        if let Some(schedule) = self.schedules.get_mut(id) {
            schedule.worker_wait_until = waits.then_some(until);
        }
        waits
    }

    /// Returns whether only workers that have not reconnected since the takeover know if a job or run is
    /// still running.
    fn is_unreported(&self, work: Work) -> bool {
        match work {
            Work::Job(job) => {
                let live = self.jobs.get(&job).and_then(|job| job.live.as_ref());
                let worker = live.and_then(|live| self.workers.get(&live.record.worker));
                worker.is_some_and(|worker| worker.record.status == WorkerStatus::Expected)
            }
            Work::Run(run) => {
                let parts = self.workflows.live_work(run);
                !parts.is_empty() && parts.into_iter().all(|part| self.is_unreported(part))
            }
        }
    }

    /// Handles the report of a worker that a job is still running or has not started: decides the firing that
    /// waited for it.
    pub(crate) fn on_run_confirmed(&mut self, job: JobId) {
        let Some(found) = self.jobs.get(&job) else { return };
        let origin = match &found.step {
            Some(step) => self.workflows.origin_of(self.workflows.outermost(step.run)),
            None => found.origin.as_deref(),
        };
        let Some(id) = origin.map(|origin| origin.schedule) else { return };
        if self.schedules.get_mut(id).and_then(|schedule| schedule.worker_wait_until.take()).is_some() {
            self.arm_schedule(id);
        }
    }

    fn record_overlap_skip(
        &mut self,
        id: ScheduleId,
        firing: Firing,
        outcome: FiringOutcome,
        detail: &str,
    ) -> FiringResult {
        let detail = with_actor(firing.detail.as_deref(), detail);
        self.record_skip(id, firing.at, outcome, firing.cause, Some(&detail));
        self.release_unused_reservation(id, firing.at);
        FiringResult { outcome, work: None }
    }

    fn buffer(&mut self, id: ScheduleId, firing: Firing) -> FiringResult {
        self.record_buffered(id, &firing);
        if let Some(schedule) = self.schedules.get_mut(id) {
            schedule.state.buffer.push(BufferedFiring {
                scheduled_for: firing.at,
                cause: firing.cause,
                generation: firing.generation,
                detail: firing.detail,
                key: firing.key,
            });
        }
        self.touch_schedule(id);
        FiringResult { outcome: FiringOutcome::Buffered, work: None }
    }

    /// Stops the runs that block a firing; the firing starts once they have ended. It replaces all buffered
    /// firings.
    fn replace_runs(&mut self, id: ScheduleId, firing: Firing, kill: bool) -> FiringResult {
        let at = firing.at;
        self.coalesce_buffer(id);
        self.buffer(id, firing);
        let Some(schedule) = self.schedules.get(id) else {
            return FiringResult { outcome: FiringOutcome::Buffered, work: None };
        };
        let others = self.runs_to_stop(id, schedule);
        let detail = format!("schedule {}: replaced by the firing for {at}", schedule.name);
        for run in others {
            self.stop_run(run, &detail, kill);
        }
        FiringResult { outcome: FiringOutcome::Buffered, work: None }
    }

    fn coalesce_buffer(&mut self, id: ScheduleId) {
        let Some(schedule) = self.schedules.get_mut(id) else { return };
        for waiting in std::mem::take(&mut schedule.state.buffer) {
            self.record_buffer_end(
                id,
                &waiting,
                FiringOutcome::Coalesced,
                DetailCode::MergedIntoLater.sentence(),
            );
        }
    }

    fn stop_run(&mut self, run: Work, detail: &str, kill: bool) {
        match run {
            Work::Job(job) => self.stop_job(job, detail, kill),
            Work::Run(run) => self.stop_scheduled(run, detail, kill),
        }
    }

    /// Returns whether another run of a schedule may start: scheduled, manual, or owed.
    pub(super) fn may_start_run(&self, id: ScheduleId) -> bool {
        self.schedules
            .get(id)
            .is_some_and(|schedule| schedule.plan.policies.allows_all() || self.is_below_limit(id, schedule))
    }

    /// Returns whether a schedule has fewer unfinished runs than its limit.
    ///
    /// Every run counts. A backfill with a concurrency above the schedule's limit raises the total to that
    /// concurrency, but not the number of runs outside backfills.
    fn is_below_limit(&self, id: ScheduleId, schedule: &Schedule) -> bool {
        let (limit, runs) = (schedule.plan.policies.run_limit(), schedule.runs.len());
        runs < limit
            || runs < self.max_backfill_concurrency(id)
                && schedule.runs.iter().filter(|run| !self.is_of_backfill(**run)).count() < limit
    }

    /// Returns the fewest runs to stop so that [`is_below_limit`](Self::is_below_limit) holds: the oldest
    /// first. Runs of backfills come last if a backfill may exceed the limit of the schedule.
    fn runs_to_stop(&self, id: ScheduleId, schedule: &Schedule) -> Vec<Work> {
        let limit = schedule.plan.policies.run_limit();
        let (runs, widest) = (&schedule.runs, self.max_backfill_concurrency(id));
        let surplus = (runs.len() + 1).saturating_sub(limit.max(widest));
        if widest <= limit {
            return runs.iter().copied().take(surplus).collect();
        }
        let (of_backfills, own): (Vec<Work>, Vec<Work>) =
            runs.iter().partition(|run| self.is_of_backfill(**run));
        let own_surplus = (own.len() + 1).saturating_sub(limit);
        let (first, last) = own.split_at(own_surplus.min(own.len()));
        let rest = surplus.saturating_sub(first.len());
        first.iter().chain(of_backfills.iter().chain(last).take(rest)).copied().collect()
    }

    fn is_of_backfill(&self, work: Work) -> bool {
        self.origin_of(work).is_some_and(|origin| origin.backfill.is_some())
    }

    /// Returns whether only runs of the past block a firing: runs of backfills and catch-up, and runs that
    /// those delayed and that would otherwise have ended.
    fn is_blocked_by_past_run(&self, schedule: &Schedule) -> bool {
        if is_on(Mutation::EngineSkipsForBackfills) {
            return false;
        }
        let limit = schedule.plan.policies.run_limit();
        let of_past = |work: &&Work| self.is_of_past(schedule, **work);
        schedule.runs.len() >= limit
            && schedule.runs.len() - schedule.runs.iter().filter(of_past).count() < limit
    }

    fn is_of_past(&self, schedule: &Schedule, work: Work) -> bool {
        let Some(origin) = self.origin_of(work) else { return false };
        let due = schedule.due_of(origin.scheduled_for);
        match origin.cause {
            FiringCause::Backfill | FiringCause::CatchUp => true,
            FiringCause::Timer if work.created_at() > due + ON_TIME_MAX => {
                let usual = schedule.state.track.as_ref().and_then(|track| track.percentile(95));
                usual.is_some_and(|usual| due + usual <= self.now)
            }
            FiringCause::Timer | FiringCause::Manual | FiringCause::Retry => origin.backfill.is_some(),
        }
    }

    /// Drops buffered firings whose start deadline has passed, and returns whether there were any.
    fn drop_expired(&mut self, id: ScheduleId) -> bool {
        let now = self.now;
        let Some(schedule) = self.schedules.get_mut(id) else { return false };
        let Some(deadline) =
            schedule.plan.policies.start_deadline.filter(|_| !schedule.state.buffer.is_empty())
        else {
            return false;
        };
        let buffer = std::mem::take(&mut schedule.state.buffer);
        let is_late = |waiting: &BufferedFiring| schedule.due_of_waiting(waiting) + deadline < now;
        let (late, in_time): (Vec<_>, Vec<_>) = buffer.into_iter().partition(is_late);
        schedule.state.buffer = in_time.into();
        let any_expired = !late.is_empty();
        for waiting in late {
            let outcome = FiringOutcome::SkippedDeadline;
            self.record_buffer_end(id, &waiting, outcome, DetailCode::WaitedPastDeadline.sentence());
            self.touch_schedule(id);
        }
        any_expired
    }

    /// Starts buffered firings, as far as the overlap limit allows. During a hold of new work they wait for
    /// [`release_schedules`](Self::release_schedules).
    pub(crate) fn start_buffered(&mut self, id: ScheduleId) {
        if self.holds_new_work {
            return;
        }
        if self.schedules.get(id).is_some_and(|s| s.first_in_turn().is_some()) && self.may_start_run(id) {
            self.drop_expired(id);
        }
        while let Some(place) = self.schedules.get(id).and_then(Schedule::first_in_turn) {
            let Some(schedule) =
                Some(id).filter(|id| self.may_start_run(*id)).and_then(|id| self.schedules.get_mut(id))
            else {
                return;
            };
            let waiting = schedule.state.buffer.remove(place);
            let due = schedule.due_of_waiting(&waiting);
            let BufferedFiring { scheduled_for: at, cause, generation, detail, key } = waiting;
            self.fire_schedule(id, Firing { at, due, cause, generation, detail, key, waited: true });
        }
    }

    /// Checks whether a user may start one more run of a schedule.
    ///
    /// # Errors
    /// The schedule's name and the number of its unfinished runs.
    pub(crate) fn check_run_limit(&self, schedule: ScheduleId) -> Result<(), (Arc<str>, usize)> {
        match self.schedules.get(schedule) {
            Some(found) if !self.may_start_run(schedule) => Err((Arc::clone(&found.name), found.runs.len())),
            _ => Ok(()),
        }
    }

    /// Adds a run that a user submitted to its schedule.
    pub(crate) fn adopt_run(&mut self, id: ScheduleId, work: Work) {
        if let Some(schedule) = self.schedules.get_mut(id) {
            schedule.runs.push(work);
            schedule.state.delay_from = None;
            self.touch_schedule(id);
            self.arm_schedule(id);
        }
    }
}

impl Schedule {
    fn due_of_waiting(&self, waiting: &BufferedFiring) -> Timestamp {
        match waiting.cause {
            FiringCause::Timer | FiringCause::CatchUp => self.due_of(waiting.scheduled_for),
            _ => waiting.scheduled_for,
        }
    }

    /// Returns the first buffered firing that may start, apart from the limit: while the schedule is paused,
    /// only manual ones.
    pub(super) fn first_in_turn(&self) -> Option<usize> {
        let paused = self.state.status == ScheduleStatus::Paused;
        let may_start = |waiting: &BufferedFiring| {
            !paused || !matches!(waiting.cause, FiringCause::Timer | FiringCause::CatchUp)
        };
        self.state.buffer.iter().position(may_start)
    }
}
