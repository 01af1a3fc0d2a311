//! Firings: creates the job or workflow run of a scheduled time, and handles its end.
//!
//! [`Schedules::fire_schedule`] is called when nothing of the schedule blocks the firing. The end of the job or
//! run ([`Schedules::on_run_ended`]) updates the statistics, starts buffered firings and continues backfills. It
//! also pauses the schedule after too many consecutive failures.
//!
//! # Invariants
//! - The job or run, its ledger record and the cursor are in one batch.
//! - Manual and backfill runs do not change the streak of failures.

use std::sync::Arc;

use model::firing::{FiringCause, FiringOutcome, Origin, Pause, RunStatistics, ScheduleStatus, Work};
use model::record::{JobHead, ScheduleEvent};
use model::{Duration, JobId, JobStatus, ScheduleId, Timestamp};
use rand::Rng;

use super::firing::{Firing, FiringResult};
use super::ledger::with_actor;
use super::{ScheduledWork, Template};
use crate::context::Context;
use crate::jobs::Jobs;
use crate::schedules::Schedules;
use crate::signal::WorkEnd;
use crate::workflows::NotStarted;
use crate::workflows::Workflows;

/// Maximum delay of a firing that is recorded as on time.
pub(super) const ON_TIME_MAX: Duration = Duration::from_secs(1);

impl Schedules {
    /// Creates the job or run of a firing and records it. Nothing of the schedule blocks the firing any more;
    /// a refusal by its workflow is recorded instead.
    pub(super) fn fire_schedule(
        &mut self,
        cx: &mut Context,
        workflows: &mut Workflows,
        jobs: &mut Jobs,
        id: ScheduleId,
        firing: Firing,
    ) -> FiringResult {
        let now = cx.now;
        let Some(schedule) = self.get(id) else {
            return FiringResult { outcome: FiringOutcome::SkippedReplaced, work: None };
        };
        let late = now.since(firing.due) > ON_TIME_MAX;
        let outcome = if late { FiringOutcome::FiredLate } else { FiringOutcome::Fired };
        let origin = Origin {
            schedule: id,
            name: Arc::clone(&schedule.name),
            generation: firing.generation,
            scheduled_for: firing.at,
            interval_start: schedule.interval_before(firing.at),
            interval_end: firing.at,
            cause: firing.cause,
            backfill: None,
            start_by: schedule
                .plan
                .policies
                .start_deadline
                .map(|deadline| firing.due.max(firing.at) + deadline),
        };
        let template = Arc::clone(&schedule.template);
        let work = match self.create_run(cx, workflows, jobs, origin, &template, firing.detail.as_deref()) {
            Ok(work) => work,
            Err(why) => return self.not_started(cx, id, &firing, &why),
        };
        self.record_fired(cx, id, &firing, outcome, work);
        self.store_trigger_key(cx, workflows, jobs, &firing, work);
        if let Some(schedule) = self.get_mut(id) {
            schedule.state.last = Some((firing.at, work));
            schedule.state.delay_from = None;
            if matches!(firing.cause, FiringCause::Timer | FiringCause::CatchUp) {
                schedule.state.fired += 1;
            }
        }
        if let Work::Job(job) = work {
            self.assign_reservation(cx, jobs, id, firing.at, job);
        }
        self.touch_schedule(id);
        FiringResult { outcome, work: Some(work) }
    }

    fn not_started(
        &mut self,
        cx: &mut Context,
        id: ScheduleId,
        firing: &Firing,
        why: &NotStarted,
    ) -> FiringResult {
        let NotStarted { outcome, detail } = why;
        if firing.waited {
            self.record_waited_end(cx, id, firing, *outcome, detail);
        } else {
            let detail = with_actor(firing.detail.as_deref(), detail);
            self.record_skip(cx, id, firing.at, *outcome, firing.cause, Some(&detail));
        }
        self.touch_schedule(id);
        FiringResult { outcome: *outcome, work: None }
    }

    /// Creates a job in the shard of its schedule, or a run in the shard of its workflow, and adds it to the
    /// schedule's runs.
    ///
    /// # Errors
    /// The reason why a run cannot be started. Creating a job never fails.
    pub(super) fn create_run(
        &mut self,
        cx: &mut Context,
        workflows: &mut Workflows,
        jobs: &mut Jobs,
        origin: Origin,
        template: &Template,
        detail: Option<&str>,
    ) -> Result<Work, NotStarted> {
        let id = origin.schedule;
        let work = match &template.starts {
            ScheduledWork::Job { spec, profile } => {
                let head = JobHead {
                    spec: Arc::clone(spec),
                    body: Arc::clone(&template.body),
                    retry_of: None,
                    origin: Some(Arc::new(origin)),
                    step: None,
                    replica: None,
                };
                let job = JobId::from_bits(cx.ids.next(cx.now, id.shard(), cx.rng.next_u64()));
                jobs.create_fired(cx, job, &Arc::new(head), Arc::clone(profile), detail);
                Work::Job(job)
            }
            ScheduledWork::Run(wanted) => {
                Work::Run(workflows.start_scheduled(cx, jobs, wanted, origin, detail)?)
            }
        };
        if let Some(schedule) = self.get_mut(id) {
            schedule.runs.push(work);
        }
        Ok(work)
    }

    /// Handles the end of a job or run of a schedule. It is still in memory.
    pub(crate) fn on_run_ended(
        &mut self,
        cx: &mut Context,
        workflows: &mut Workflows,
        jobs: &mut Jobs,
        work: Work,
        origin: &Origin,
        end: WorkEnd,
    ) {
        let now = cx.now;
        let id = origin.schedule;
        if self.get(id).is_some_and(|schedule| !schedule.runs.contains(&work)) {
            // A firing replaced it, and its end was handled then.
            return;
        }
        if let Some(schedule) = self.get_mut(id) {
            schedule.runs.retain(|&run| run != work);
            schedule.worker_wait_until = None;
            if schedule.runs.is_empty() && schedule.plan.timetable.delay().is_some() {
                schedule.state.delay_from = Some(now);
            }
            let track = schedule.state.statistics.get_or_insert_default();
            // Manual and backfill runs say nothing about the scheduled ones.
            let by_itself = !matches!(origin.cause, FiringCause::Manual | FiringCause::Backfill);
            update_track(track, end, by_itself);
            let streak = track.streak;
            let limit = schedule.plan.policies.pause_after_failures.filter(|&limit| {
                by_itself
                    && streak < 0
                    && streak.unsigned_abs() >= limit
                    && schedule.state.status == ScheduleStatus::Active
            });
            self.touch_schedule(id);
            if end.status == JobStatus::Expired && origin.backfill.is_none() {
                self.record_expired(cx, work, origin);
            }
            if limit.is_some() {
                self.pause_by_belfry(
                    cx,
                    jobs,
                    id,
                    &format!("{} consecutive failed runs", streak.unsigned_abs()),
                );
            }
            self.start_buffered(cx, workflows, jobs, id);
            self.arm_schedule(cx, workflows, jobs, id);
        }
        if let Some(backfill) = origin.backfill {
            self.count_backfill_run(cx, workflows, jobs, backfill, work, end.status);
        }
        self.continue_backfills_of(cx, workflows, jobs, id);
    }

    pub(super) fn pause_by_belfry(&mut self, cx: &mut Context, jobs: &mut Jobs, id: ScheduleId, note: &str) {
        let at = cx.now;
        if let Some(schedule) = self.get_mut(id) {
            let pause = Pause { at, by: "belfry".into(), note: Some(note.into()) };
            schedule.state.pause = Some(Box::new(pause));
        }
        self.set_status(id, ScheduleStatus::Paused);
        self.release_reservation(cx, jobs, id);
        self.edit_schedule(cx, id, ScheduleEvent::Paused);
    }
}

impl super::Schedule {
    /// Returns the start of the data interval that ends at `at`: the previous scheduled time.
    fn interval_before(&self, at: Timestamp) -> Option<Timestamp> {
        match self.state.previous {
            Some(previous) if previous < at => Some(previous),
            // A buffered firing: later scheduled times have been decided meanwhile.
            Some(_) => {
                let longest = Duration::from_hours(24 * 400);
                self.plan.timetable.last(at - longest, super::just_before(at))
            }
            None => None,
        }
    }
}

/// Adds the end of a run to the statistics of its schedule. A cancelled run changes nothing.
fn update_track(track: &mut RunStatistics, end: WorkEnd, by_itself: bool) {
    let before = track.streak;
    match end.status {
        JobStatus::Succeeded => {
            track.succeeded += 1;
            track.streak = track.streak.max(0).saturating_add(1);
            if let Some(started) = end.started_at {
                if track.durations.len() >= RunStatistics::DURATIONS_MAX {
                    track.durations.remove(0);
                }
                let millis = end.ended_at.since(started).as_millis();
                track.durations.push(u32::try_from(millis).unwrap_or(u32::MAX));
            }
        }
        JobStatus::Failed | JobStatus::Expired => {
            track.failed += 1;
            track.streak = track.streak.min(0).saturating_sub(1);
        }
        _ => {}
    }
    if !by_itself {
        track.streak = before;
    }
}
