//! What a firing does while earlier runs of its schedule are not over.
//!
//! Every run counts, whatever it came from: the timer, somebody's hand, a backfill, a retry. Firings
//! that wait stand in the schedule's buffer, which is part of its row, and get their turn in order.

use std::sync::Arc;

use model::firing::{BufferedFiring, DetailCode, FiringCause, FiringOutcome, ScheduleStatus, Work};
use model::schedule::OverlapPolicy;
use model::worker::WorkerStatus;
use model::{JobId, ScheduleId, Timestamp};
use mutation::{Mutation, is_on};

use super::Schedule;
use super::decide::Nominal;
use super::fire::{Firing, ON_TIME};
use super::ledger::with_who;
use crate::engine::Engine;

/// The most firings that ever wait for one schedule.
const BUFFER_MAX: usize = 1_000;

/// What came of a firing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Decided {
    pub(super) outcome: FiringOutcome,
    pub(super) work: Option<Work>,
}

impl Engine {
    /// Fires the schedule if its limit of concurrent runs allows that, else applies its overlap policy, or `instead`.
    pub(super) fn fire_or_wait(
        &mut self,
        id: ScheduleId,
        firing: Firing,
        instead: Option<OverlapPolicy>,
    ) -> Decided {
        let any_expired = self.drop_expired(id);
        let decided = self.fire_or_apply_overlap(id, firing, instead);
        if any_expired {
            // The expired firings held up backfills. The new firing comes before them.
            self.pump_backfills_of(id);
        }
        decided
    }

    fn fire_or_apply_overlap(
        &mut self,
        id: ScheduleId,
        firing: Firing,
        instead: Option<OverlapPolicy>,
    ) -> Decided {
        let Some(schedule) = self.schedules.get(id) else {
            return Decided { outcome: FiringOutcome::SkippedReplaced, work: None };
        };
        let policy = instead.unwrap_or(match schedule.plan.policies.overlap.policy {
            // A firing does not lose its turn to the past: it waits for a run of that to end.
            OverlapPolicy::Skip if firing.is_by_itself() && self.past_is_in_the_way(schedule) => {
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
                self.skip_over(id, firing, FiringOutcome::SkippedOverlap, &detail)
            }
            OverlapPolicy::BufferOne if !schedule.state.buffer.is_empty() => {
                let outcome = FiringOutcome::Coalesced;
                self.skip_over(id, firing, outcome, DetailCode::WaitingStands.sentence())
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
                self.skip_over(id, firing, FiringOutcome::Shed, &detail)
            }
            OverlapPolicy::CancelOther => self.replace_runs(id, firing, false),
            OverlapPolicy::TerminateOther => self.replace_runs(id, firing, true),
        }
    }

    /// Whether a firing that would be skipped waits instead: a run is in its way on a worker that was not heard since
    /// the takeover, so that the run may be over. It waits for as long as a lease, and no longer.
    pub(super) fn awaits_worker(&mut self, id: ScheduleId, nominal: &Nominal) -> bool {
        let Some(schedule) = self.schedules.get(id) else { return false };
        let skips = schedule.plan.policies.overlap.policy == OverlapPolicy::Skip && nominal.held.is_none();
        let unheard = skips
            && schedule.runs.iter().any(|run| self.is_unheard(*run))
            && !self.is_below_limit(id, schedule);
        let until = schedule.heard_by.unwrap_or_else(|| self.now + self.first_lease());
        let waits = unheard && self.now < until;
        if let Some(schedule) = self.schedules.get_mut(id) {
            schedule.heard_by = waits.then_some(until);
        }
        waits
    }

    /// Whether only workers that were not heard since the takeover can say if a job or a run goes on.
    fn is_unheard(&self, work: Work) -> bool {
        match work {
            Work::Job(job) => {
                let live = self.jobs.get(&job).and_then(|job| job.live.as_ref());
                let worker = live.and_then(|live| self.workers.get(&live.record.worker));
                worker.is_some_and(|worker| worker.record.status == WorkerStatus::Expected)
            }
            Work::Run(run) => {
                let parts = self.workflows.live_work(run);
                !parts.is_empty() && parts.into_iter().all(|part| self.is_unheard(part))
            }
        }
    }

    /// A worker reported that a job still runs, or has not started: decides the firing that waited for that report.
    pub(crate) fn heard_of_run(&mut self, job: JobId) {
        let Some(found) = self.jobs.get(&job) else { return };
        let origin = match &found.step {
            Some(step) => self.workflows.origin_of(self.workflows.outermost(step.run)),
            None => found.origin.as_deref(),
        };
        let Some(id) = origin.map(|origin| origin.schedule) else { return };
        if self.schedules.get_mut(id).and_then(|schedule| schedule.heard_by.take()).is_some() {
            self.arm_schedule(id);
        }
    }

    fn skip_over(&mut self, id: ScheduleId, firing: Firing, outcome: FiringOutcome, detail: &str) -> Decided {
        let detail = with_who(firing.detail.as_deref(), detail);
        self.record_skip(id, firing.at, outcome, firing.cause, Some(&detail));
        self.unneeded(id, firing.at);
        Decided { outcome, work: None }
    }

    fn buffer(&mut self, id: ScheduleId, firing: Firing) -> Decided {
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
        Decided { outcome: FiringOutcome::Buffered, work: None }
    }

    /// Stops the runs that are in the way; the firing starts once they are over. It stands for those
    /// that waited before it.
    fn replace_runs(&mut self, id: ScheduleId, firing: Firing, kill: bool) -> Decided {
        let at = firing.at;
        self.coalesce_buffer(id);
        self.buffer(id, firing);
        let Some(schedule) = self.schedules.get(id) else {
            return Decided { outcome: FiringOutcome::Buffered, work: None };
        };
        let others = self.runs_in_the_way(id, schedule);
        let detail = format!("schedule {}: replaced by the firing for {at}", schedule.name);
        for run in others {
            self.stop_run(run, &detail, kill);
        }
        // Runs that had not started are over at once, and the firing with them in its turn.
        let last = self.schedules.get(id).and_then(|schedule| schedule.state.last);
        match last.filter(|&(last, _)| last == at) {
            Some((_, work)) => Decided { outcome: FiringOutcome::Fired, work: Some(work) },
            None => Decided { outcome: FiringOutcome::Buffered, work: None },
        }
    }

    fn coalesce_buffer(&mut self, id: ScheduleId) {
        let Some(schedule) = self.schedules.get_mut(id) else { return };
        for waiting in std::mem::take(&mut schedule.state.buffer) {
            self.record_buffer_end(
                id,
                &waiting,
                FiringOutcome::Coalesced,
                DetailCode::LaterStands.sentence(),
            );
        }
    }

    fn stop_run(&mut self, run: Work, detail: &str, kill: bool) {
        match run {
            Work::Job(job) => self.stop_job(job, detail, kill),
            Work::Run(run) => self.stop_scheduled(run, detail, kill),
        }
    }

    /// Cancels a job; without its grace, if it is to be killed.
    pub(crate) fn stop_job(&mut self, job: JobId, detail: &str, kill: bool) {
        let stopping = self.jobs.get(&job).is_some_and(|job| job.state.cancel_requested_at.is_some());
        if kill && let Some(live) = self.jobs.get_mut(&job).and_then(|job| job.live.as_mut()) {
            live.without_grace = true;
        }
        let _ = self.try_cancel(job, detail, None);
        if kill && stopping {
            // It was asked to end before, with its grace.
            self.send_stop(job);
        }
    }

    /// Whether another run of a schedule may begin: of itself, by hand, or one that is owed.
    pub(super) fn has_room(&self, id: ScheduleId) -> bool {
        self.schedules
            .get(id)
            .is_some_and(|schedule| schedule.plan.policies.allows_all() || self.is_below_limit(id, schedule))
    }

    /// Whether fewer runs of a schedule go on than may.
    ///
    /// Every run counts. Where a backfill was asked to run more at once than the schedule's limit, as many
    /// may go on in all, but no more of those that are not a backfill's.
    fn is_below_limit(&self, id: ScheduleId, schedule: &Schedule) -> bool {
        let (limit, runs) = (schedule.plan.policies.run_limit(), schedule.runs.len());
        runs < limit
            || runs < self.widest_backfill(id)
                && schedule.runs.iter().filter(|run| !self.is_of_backfill(**run)).count() < limit
    }

    /// The fewest runs without which the schedule is below its limit, as [`is_below_limit`](Self::is_below_limit) counts:
    /// the oldest, but those of backfills last where a backfill may exceed the limit of the schedule.
    fn runs_in_the_way(&self, id: ScheduleId, schedule: &Schedule) -> Vec<Work> {
        let limit = schedule.plan.policies.run_limit();
        let (runs, widest) = (&schedule.runs, self.widest_backfill(id));
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

    /// Whether there would be room, were it not for runs of the past: of backfills, of catching up, and those that
    /// such a run has held up and that would be over without.
    fn past_is_in_the_way(&self, schedule: &Schedule) -> bool {
        if is_on(Mutation::EngineSkipsForThePast) {
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
            FiringCause::Timer if work.created_at() > due + ON_TIME => {
                let usual = schedule.state.track.as_ref().and_then(|track| track.percentile(95));
                usual.is_some_and(|usual| due + usual <= self.now)
            }
            FiringCause::Timer | FiringCause::Manual | FiringCause::Retry => origin.backfill.is_some(),
        }
    }

    /// Removes the waiting firings whose start deadline has passed, and returns whether there were any.
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

    /// Gives waiting firings their turn, as far as the runs of the schedule let them. While new work is held they wait
    /// for [`release_schedules`](Self::release_schedules).
    pub(crate) fn start_buffered(&mut self, id: ScheduleId) {
        if self.holds_new_work {
            return;
        }
        if self.schedules.get(id).is_some_and(|s| s.first_in_turn().is_some()) && self.has_room(id) {
            self.drop_expired(id);
        }
        while let Some(place) = self.schedules.get(id).and_then(Schedule::first_in_turn) {
            let Some(schedule) =
                Some(id).filter(|id| self.has_room(*id)).and_then(|id| self.schedules.get_mut(id))
            else {
                return;
            };
            let waiting = schedule.state.buffer.remove(place);
            let due = schedule.due_of_waiting(&waiting);
            let BufferedFiring { scheduled_for: at, cause, generation, detail, key } = waiting;
            self.fire_schedule(id, Firing { at, due, cause, generation, detail, key, waited: true });
        }
    }

    /// Whether one more run of a schedule may be started by hand.
    ///
    /// # Errors
    /// The schedule's name and how many runs it has.
    pub(crate) fn check_room(&self, schedule: ScheduleId) -> Result<(), (Arc<str>, usize)> {
        match self.schedules.get(schedule) {
            Some(found) if !self.has_room(schedule) => Err((Arc::clone(&found.name), found.runs.len())),
            _ => Ok(()),
        }
    }

    /// A run that was submitted by hand belongs to its schedule.
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

    /// Which of the waiting firings may start, were there room: while the schedule is paused, only
    /// what somebody triggered.
    pub(super) fn first_in_turn(&self) -> Option<usize> {
        let paused = self.state.status == ScheduleStatus::Paused;
        let may_start = |waiting: &BufferedFiring| {
            !paused || !matches!(waiting.cause, FiringCause::Timer | FiringCause::CatchUp)
        };
        self.state.buffer.iter().position(may_start)
    }
}
