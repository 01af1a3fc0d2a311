//! The overlap policy: what a firing does while earlier runs of its schedule are unfinished.
//!
//! Every run counts, whether the timer, a user, a backfill or a retry created it. Buffered firings are part
//! of the schedule's row and start in order.
//!
//! # Callers
//! [`decide`](super::decide) and [`trigger`](super::trigger) pass each firing to [`Schedules::fire_or_wait`].
//! The end of a run calls [`Schedules::start_buffered`].
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
use super::fire::ON_TIME_MAX;
use super::firing::{Firing, FiringResult, ScheduledTime};
use super::ledger::with_actor;
use super::origin_of;
use crate::context::Context;
use crate::jobs::Jobs;
use crate::schedules::Schedules;
use crate::workflows::Workflows;

/// Maximum number of buffered firings per schedule.
const BUFFER_MAX: usize = 1_000;

impl Schedules {
    /// Fires if the overlap limit allows it, otherwise applies its overlap policy, or `instead`.
    pub(super) fn fire_or_wait(
        &mut self,
        cx: &mut Context,
        workflows: &mut Workflows,
        jobs: &mut Jobs,
        id: ScheduleId,
        firing: Firing,
        instead: Option<OverlapPolicy>,
    ) -> FiringResult {
        let any_expired = self.drop_expired(cx, id);
        let decided = self.fire_or_apply_overlap(cx, workflows, jobs, id, firing, instead);
        if any_expired {
            // The expired firings held up backfills. The new firing comes before them.
            self.continue_backfills_of(cx, workflows, jobs, id);
        }
        decided
    }

    fn fire_or_apply_overlap(
        &mut self,
        cx: &mut Context,
        workflows: &mut Workflows,
        jobs: &mut Jobs,
        id: ScheduleId,
        firing: Firing,
        instead: Option<OverlapPolicy>,
    ) -> FiringResult {
        let Some(schedule) = self.get(id) else {
            return FiringResult { outcome: FiringOutcome::SkippedReplaced, work: None };
        };
        let policy = instead.unwrap_or(match schedule.plan.policies.overlap.policy {
            // A run of the past must not cost a scheduled firing its turn: the firing waits for the end of
            // that run.
            OverlapPolicy::Skip
                if firing.is_automatic() && self.is_blocked_by_past_run(cx, workflows, jobs, schedule) =>
            {
                OverlapPolicy::BufferOne
            }
            policy => policy,
        });
        let has_turn =
            self.is_below_limit(workflows, jobs, id, schedule) && schedule.first_in_turn().is_none();
        if has_turn || policy == OverlapPolicy::AllowAll || is_on(Mutation::EngineIgnoresOverlap) {
            return self.fire_schedule(cx, workflows, jobs, id, firing);
        }
        match policy {
            OverlapPolicy::AllowAll | OverlapPolicy::Skip => {
                let detail = match schedule.runs.len() {
                    1 => DetailCode::RunNotEnded.sentence().to_owned(),
                    count => DetailCode::RunsNotEnded.with(count),
                };
                self.record_overlap_skip(cx, jobs, id, firing, FiringOutcome::SkippedOverlap, &detail)
            }
            OverlapPolicy::BufferOne if !schedule.state.buffer.is_empty() => {
                let outcome = FiringOutcome::Coalesced;
                self.record_overlap_skip(
                    cx,
                    jobs,
                    id,
                    firing,
                    outcome,
                    DetailCode::MergedIntoWaiting.sentence(),
                )
            }
            OverlapPolicy::BufferOne => self.buffer(cx, id, firing),
            OverlapPolicy::BufferAll => {
                let bound = usize::try_from(schedule.plan.policies.overlap.buffer)
                    .unwrap_or(usize::MAX)
                    .min(BUFFER_MAX);
                if schedule.state.buffer.len() < bound {
                    return self.buffer(cx, id, firing);
                }
                let detail = DetailCode::BufferFull.with(bound);
                self.record_overlap_skip(cx, jobs, id, firing, FiringOutcome::SkippedLimit, &detail)
            }
            OverlapPolicy::CancelOther => self.replace_runs(cx, workflows, jobs, id, firing, false),
            OverlapPolicy::TerminateOther => self.replace_runs(cx, workflows, jobs, id, firing, true),
        }
    }

    /// Returns whether a firing that would be skipped waits instead. A run that blocks it is on a worker that
    /// has not reconnected since the takeover, so the run may have ended. The firing waits for one lease at
    /// most.
    pub(super) fn awaits_worker(
        &mut self,
        cx: &Context,
        workflows: &Workflows,
        jobs: &Jobs,
        id: ScheduleId,
        nominal: &ScheduledTime,
    ) -> bool {
        let Some(schedule) = self.get(id) else { return false };
        let skips = schedule.plan.policies.overlap.policy == OverlapPolicy::Skip && nominal.held.is_none();
        let unheard = skips
            && schedule.runs.iter().any(|run| self.is_unreported(workflows, jobs, *run))
            && !self.is_below_limit(workflows, jobs, id, schedule);
        let until = schedule.worker_wait_until.unwrap_or_else(|| cx.now + jobs.first_lease(cx));
        let waits = unheard && cx.now < until;
        if let Some(schedule) = self.get_mut(id) {
            schedule.worker_wait_until = waits.then_some(until);
        }
        waits
    }

    /// Returns whether only workers that have not reconnected since the takeover know if a job or run is
    /// still running.
    fn is_unreported(&self, workflows: &Workflows, jobs: &Jobs, work: Work) -> bool {
        match work {
            Work::Job(job) => {
                let live = jobs.get(job).and_then(|job| job.live.as_ref());
                let worker = live.and_then(|live| jobs.worker(live.record.worker));
                worker.is_some_and(|worker| worker.record.status == WorkerStatus::Expected)
            }
            Work::Run(run) => {
                let parts = workflows.live_work(run);
                !parts.is_empty() && parts.into_iter().all(|part| self.is_unreported(workflows, jobs, part))
            }
        }
    }

    /// Handles the report of a worker that a job is still running or has not started: decides the firing that
    /// waited for it.
    pub(crate) fn on_run_confirmed(
        &mut self,
        cx: &mut Context,
        workflows: &Workflows,
        jobs: &mut Jobs,
        job: JobId,
    ) {
        let Some(found) = jobs.get(job) else { return };
        let origin = match &found.step {
            Some(step) => workflows.origin_of(workflows.outermost(step.run)),
            None => found.origin.as_deref(),
        };
        let Some(id) = origin.map(|origin| origin.schedule) else { return };
        if self.get_mut(id).and_then(|schedule| schedule.worker_wait_until.take()).is_some() {
            self.arm_schedule(cx, workflows, jobs, id);
        }
    }

    fn record_overlap_skip(
        &mut self,
        cx: &mut Context,
        jobs: &mut Jobs,
        id: ScheduleId,
        firing: Firing,
        outcome: FiringOutcome,
        detail: &str,
    ) -> FiringResult {
        let detail = with_actor(firing.detail.as_deref(), detail);
        self.record_skip(cx, id, firing.at, outcome, firing.cause, Some(&detail));
        self.release_unused_reservation(cx, jobs, id, firing.at);
        FiringResult { outcome, work: None }
    }

    fn buffer(&mut self, cx: &Context, id: ScheduleId, firing: Firing) -> FiringResult {
        self.record_buffered(cx, id, &firing);
        if let Some(schedule) = self.get_mut(id) {
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
    fn replace_runs(
        &mut self,
        cx: &mut Context,
        workflows: &mut Workflows,
        jobs: &mut Jobs,
        id: ScheduleId,
        firing: Firing,
        kill: bool,
    ) -> FiringResult {
        let at = firing.at;
        self.coalesce_buffer(cx, id);
        self.buffer(cx, id, firing);
        let Some(schedule) = self.get(id) else {
            return FiringResult { outcome: FiringOutcome::Buffered, work: None };
        };
        let others = self.runs_to_stop(workflows, jobs, id, schedule);
        let detail = format!("schedule {}: replaced by the firing for {at}", schedule.name);
        for run in others {
            self.stop_run(cx, workflows, jobs, run, &detail, kill);
        }
        // The firing starts with the end of the last of them: here, if none had started.
        let last = self.get(id).and_then(|schedule| schedule.state.last);
        match last.filter(|&(last, _)| last == at) {
            Some((_, work)) => FiringResult { outcome: FiringOutcome::Fired, work: Some(work) },
            None => FiringResult { outcome: FiringOutcome::Buffered, work: None },
        }
    }

    fn coalesce_buffer(&mut self, cx: &mut Context, id: ScheduleId) {
        let Some(schedule) = self.get_mut(id) else { return };
        for waiting in std::mem::take(&mut schedule.state.buffer) {
            self.record_buffer_end(
                cx,
                id,
                &waiting,
                FiringOutcome::Coalesced,
                DetailCode::MergedIntoLater.sentence(),
            );
        }
    }

    fn stop_run(
        &mut self,
        cx: &mut Context,
        workflows: &mut Workflows,
        jobs: &mut Jobs,
        run: Work,
        detail: &str,
        kill: bool,
    ) {
        let ended = match run {
            Work::Job(job) => {
                jobs.stop_job(cx, job, detail, kill);
                jobs.end_of(job)
            }
            Work::Run(run) => {
                workflows.stop_scheduled(cx, jobs, run, detail, kill);
                workflows.end_of(run)
            }
        };
        // Work that had not started ends immediately. Its signal arrives only after this transition, but the firing
        // must not wait: later decisions of the transition count it.
        if let Some((origin, end)) = ended {
            self.on_run_ended(cx, workflows, jobs, run, &origin, end);
        }
    }

    /// Returns whether another run of a schedule may start: scheduled, manual, or owed.
    pub(super) fn may_start_run(&self, workflows: &Workflows, jobs: &Jobs, id: ScheduleId) -> bool {
        self.get(id).is_some_and(|schedule| {
            schedule.plan.policies.allows_all() || self.is_below_limit(workflows, jobs, id, schedule)
        })
    }

    /// Returns whether a schedule has fewer unfinished runs than its limit.
    ///
    /// Every run counts. A backfill with a concurrency above the schedule's limit raises the total to that
    /// concurrency, but not the number of runs outside backfills.
    fn is_below_limit(
        &self,
        workflows: &Workflows,
        jobs: &Jobs,
        id: ScheduleId,
        schedule: &Schedule,
    ) -> bool {
        let (limit, runs) = (schedule.plan.policies.run_limit(), schedule.runs.len());
        runs < limit
            || runs < self.max_backfill_concurrency(id)
                && schedule.runs.iter().filter(|run| !self.is_of_backfill(workflows, jobs, **run)).count()
                    < limit
    }

    /// Returns the fewest runs to stop so that [`is_below_limit`](Self::is_below_limit) holds: the oldest
    /// first. Runs of backfills come last if a backfill may exceed the limit of the schedule.
    fn runs_to_stop(
        &self,
        workflows: &Workflows,
        jobs: &Jobs,
        id: ScheduleId,
        schedule: &Schedule,
    ) -> Vec<Work> {
        let limit = schedule.plan.policies.run_limit();
        let (runs, widest) = (&schedule.runs, self.max_backfill_concurrency(id));
        let surplus = (runs.len() + 1).saturating_sub(limit.max(widest));
        if widest <= limit {
            return runs.iter().copied().take(surplus).collect();
        }
        let (of_backfills, own): (Vec<Work>, Vec<Work>) =
            runs.iter().partition(|run| self.is_of_backfill(workflows, jobs, **run));
        let own_surplus = (own.len() + 1).saturating_sub(limit);
        let (first, last) = own.split_at(own_surplus.min(own.len()));
        let rest = surplus.saturating_sub(first.len());
        first.iter().chain(of_backfills.iter().chain(last).take(rest)).copied().collect()
    }

    fn is_of_backfill(&self, workflows: &Workflows, jobs: &Jobs, work: Work) -> bool {
        origin_of(workflows, jobs, work).is_some_and(|origin| origin.backfill.is_some())
    }

    /// Returns whether only runs of the past block a firing: runs of backfills and catch-up, and runs that
    /// those delayed and that would otherwise have ended.
    fn is_blocked_by_past_run(
        &self,
        cx: &Context,
        workflows: &Workflows,
        jobs: &Jobs,
        schedule: &Schedule,
    ) -> bool {
        if is_on(Mutation::EngineSkipsForBackfills) {
            return false;
        }
        let limit = schedule.plan.policies.run_limit();
        let of_past = |work: &&Work| self.is_of_past(cx, workflows, jobs, schedule, **work);
        schedule.runs.len() >= limit
            && schedule.runs.len() - schedule.runs.iter().filter(of_past).count() < limit
    }

    fn is_of_past(
        &self,
        cx: &Context,
        workflows: &Workflows,
        jobs: &Jobs,
        schedule: &Schedule,
        work: Work,
    ) -> bool {
        let Some(origin) = origin_of(workflows, jobs, work) else { return false };
        let due = schedule.due_of(origin.scheduled_for);
        match origin.cause {
            FiringCause::Backfill | FiringCause::CatchUp => true,
            FiringCause::Timer if work.created_at() > due + ON_TIME_MAX => {
                let usual = schedule.state.statistics.as_ref().and_then(|track| track.percentile(95));
                usual.is_some_and(|usual| due + usual <= cx.now)
            }
            FiringCause::Timer | FiringCause::Manual | FiringCause::Retry => origin.backfill.is_some(),
        }
    }

    /// Drops buffered firings whose start deadline has passed, and returns whether there were any.
    fn drop_expired(&mut self, cx: &mut Context, id: ScheduleId) -> bool {
        let now = cx.now;
        let Some(schedule) = self.get_mut(id) else { return false };
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
            self.record_buffer_end(cx, id, &waiting, outcome, DetailCode::WaitedPastDeadline.sentence());
            self.touch_schedule(id);
        }
        any_expired
    }

    /// Starts buffered firings, as far as the overlap limit allows. During a hold of new work they wait for
    /// [`release_schedules`](Self::release_schedules).
    pub(crate) fn start_buffered(
        &mut self,
        cx: &mut Context,
        workflows: &mut Workflows,
        jobs: &mut Jobs,
        id: ScheduleId,
    ) {
        if cx.holds_new_work {
            return;
        }
        if self.get(id).is_some_and(|s| s.first_in_turn().is_some())
            && self.may_start_run(workflows, jobs, id)
        {
            self.drop_expired(cx, id);
        }
        while let Some(place) = self.get(id).and_then(Schedule::first_in_turn) {
            let Some(schedule) = Some(id)
                .filter(|id| self.may_start_run(workflows, jobs, *id))
                .and_then(|id| self.get_mut(id))
            else {
                return;
            };
            let waiting = schedule.state.buffer.remove(place);
            let due = schedule.due_of_waiting(&waiting);
            let BufferedFiring { scheduled_for: at, cause, generation, detail, key } = waiting;
            self.fire_schedule(
                cx,
                workflows,
                jobs,
                id,
                Firing { at, due, cause, generation, detail, key, waited: true },
            );
        }
    }

    /// Checks whether a user may start one more run of a schedule.
    ///
    /// # Errors
    /// The schedule's name and the number of its unfinished runs.
    pub(crate) fn check_run_limit(
        &self,
        workflows: &Workflows,
        jobs: &Jobs,
        schedule: ScheduleId,
    ) -> Result<(), (Arc<str>, usize)> {
        match self.get(schedule) {
            Some(found) if !self.may_start_run(workflows, jobs, schedule) => {
                Err((Arc::clone(&found.name), found.runs.len()))
            }
            _ => Ok(()),
        }
    }

    /// Adds a run that a user submitted to its schedule.
    pub(crate) fn adopt_run(
        &mut self,
        cx: &mut Context,
        workflows: &Workflows,
        jobs: &mut Jobs,
        id: ScheduleId,
        work: Work,
    ) {
        if let Some(schedule) = self.get_mut(id) {
            schedule.runs.push(work);
            schedule.state.delay_from = None;
            self.touch_schedule(id);
            self.arm_schedule(cx, workflows, jobs, id);
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
