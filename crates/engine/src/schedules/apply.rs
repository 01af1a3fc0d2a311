//! Requests that create, change, pause, resume or delete schedules.
//!
//! A change gives the schedule a new generation: firings due before the change are decided by the old
//! generation, later ones by the new. Firings of the old timing that are still owed are recorded as replaced.
//!
//! # Invariants
//! - A batch of schedules is applied completely or not at all.
//! - Every request first decides the firings that are due ([`Schedules::decide_due_before_request`]), so that it applies to
//!   later ones only.
//!
//! # Cost
//! O(schedules in the request), plus the firings that are due.

use std::sync::Arc;

use model::api::ApplyChange;
use model::firing::{DetailCode, FiringOutcome, Pause, ScheduleState, ScheduleStatus};
use model::record::{Change, ScheduleEvent};
use model::validate::Problem;
use model::{Refusal, ScheduleId, Timestamp};
use rand::Rng;
use thin_vec::ThinVec;

use super::{Plan, Schedule};
use crate::context::Context;
use crate::input::{Expected, NewSchedule};
use crate::jobs::Jobs;
use crate::names::{name_hash, shard_of};
use crate::output::{Applied, Reply};
use crate::schedules::Schedules;
use crate::workflows::Workflows;

impl Schedules {
    /// Creates or changes all schedules, or none.
    pub(super) fn apply_schedules(
        &mut self,
        cx: &mut Context,
        workflows: &mut Workflows,
        jobs: &mut Jobs,
        schedules: &[NewSchedule],
    ) -> Result<Reply, Refusal> {
        let mut plans = Vec::with_capacity(schedules.len());
        for (index, new) in schedules.iter().enumerate() {
            self.check_expected(new)?;
            if let Some(job) = new.head.spec.job() {
                jobs.check_class(&job.namespace, job.priority_class)?;
            }
            let plan = self.plan_of(cx, &new.head.spec);
            plans.push(plan.map_err(|problems| Refusal::InvalidTiming { index, problems })?);
        }
        let applied = schedules
            .iter()
            .zip(plans)
            .map(|(new, plan)| self.apply(cx, workflows, jobs, new, plan))
            .collect();
        Ok(Reply::Applied(applied))
    }

    fn check_expected(&self, new: &NewSchedule) -> Result<(), Refusal> {
        let spec = &new.head.spec;
        let known = self.find(&spec.namespace, &spec.name);
        let found = known.and_then(|id| self.get(id));
        match (new.expected, known, found) {
            (Expected::Absent, Some(schedule), Some(found)) => {
                Err(Refusal::ScheduleExists { name: Arc::clone(&found.name), schedule })
            }
            (Expected::Version(expected), _, found) => {
                let found = found.map_or(0, |found| found.state.version);
                if found == expected { Ok(()) } else { Err(Refusal::VersionMismatch { expected, found }) }
            }
            _ => Ok(()),
        }
    }

    fn apply(
        &mut self,
        cx: &mut Context,
        workflows: &mut Workflows,
        jobs: &mut Jobs,
        new: &NewSchedule,
        plan: Arc<Plan>,
    ) -> Applied {
        let spec = &new.head.spec;
        let (id, change) = match self.find(&spec.namespace, &spec.name) {
            None => (self.create_schedule(cx, workflows, jobs, new, plan), ApplyChange::Created),
            Some(id) => (id, self.change_schedule(cx, workflows, jobs, id, new, plan)),
        };
        let state = self.get(id).map(|schedule| &schedule.state);
        let (generation, version) = state.map(|state| (state.generation, state.version)).unwrap_or_default();
        let next_at = state.and_then(|state| state.next_at);
        Applied { schedule: id, change, generation, version, next_at }
    }

    fn create_schedule(
        &mut self,
        cx: &mut Context,
        workflows: &mut Workflows,
        jobs: &mut Jobs,
        new: &NewSchedule,
        plan: Arc<Plan>,
    ) -> ScheduleId {
        let now = cx.now;
        let spec = &new.head.spec;
        let shard = shard_of(name_hash(&spec.namespace, &spec.name), cx.shards);
        let id = ScheduleId::from_bits(cx.ids.next(now, shard, cx.rng.next_u64()));
        let template = self.templates.of(spec, &mut cx.profiles);
        let delayed = plan.timetable.delay().is_some();
        let mut schedule = Schedule::new(&new.head, plan, template, initial_state(now, delayed));
        schedule.head = Some(Arc::clone(&new.head));
        schedule.new = true;
        self.insert(id, schedule);
        self.touch_schedule(id);
        self.emit_schedule_event(cx, id, ScheduleEvent::Created);
        self.decide_due_before_request(cx, workflows, jobs, id);
        self.arm_schedule(cx, workflows, jobs, id);
        id
    }

    /// Gives a schedule its next generation. Firings due before the change are decided by the old generation;
    /// the new one owes none before now.
    fn change_schedule(
        &mut self,
        cx: &mut Context,
        workflows: &mut Workflows,
        jobs: &mut Jobs,
        id: ScheduleId,
        new: &NewSchedule,
        plan: Arc<Plan>,
    ) -> ApplyChange {
        let template = self.templates.of(&new.head.spec, &mut cx.profiles);
        let Some(schedule) = self.get(id) else { return ApplyChange::Unchanged };
        if schedule.body_hash == super::body_hash(&new.head.body) {
            return ApplyChange::Unchanged;
        }
        let was_completed = schedule.state.status == ScheduleStatus::Completed;
        let same_instants = schedule.plan.has_timing_of(&plan);
        let was_unreadable = schedule.plan.is_unreadable;
        self.decide_due_before_request(cx, workflows, jobs, id);
        let now = cx.now;
        if was_completed {
            // A completed schedule has had no scheduled times since its cursor.
            if let Some(schedule) = self.get_mut(id) {
                schedule.state.cursor = schedule.state.cursor.max(now);
            }
        } else if !same_instants && !was_unreadable {
            let (outcome, detail) = (FiringOutcome::SkippedReplaced, DetailCode::RulesReplaced.sentence());
            self.record_owed_skipped(cx, id, outcome, detail);
            self.record_skipped_until(cx, id, now, outcome, detail);
        }
        self.close_record(id);
        let Some(schedule) = self.get_mut(id) else { return ApplyChange::Unchanged };
        schedule.state.generation += 1;
        let counts_delay = plan.timetable.delay().is_some() && schedule.runs.is_empty();
        schedule.state.delay_from = counts_delay.then(|| schedule.state.delay_from.unwrap_or(now));
        schedule.plan = plan;
        schedule.template = template;
        schedule.body_hash = super::body_hash(&new.head.body);
        schedule.head = Some(Arc::clone(&new.head));
        schedule.catch_up_at = Timestamp::default();
        if was_completed {
            let paused = schedule.state.pause.is_some();
            let status = if paused { ScheduleStatus::Paused } else { ScheduleStatus::Active };
            self.set_status(id, status);
        }
        self.edit_schedule(cx, id, ScheduleEvent::Changed);
        self.release_reservation(cx, jobs, id);
        self.recheck_owed(cx, id);
        self.decide_due_before_request(cx, workflows, jobs, id);
        self.start_buffered(cx, workflows, jobs, id);
        self.arm_schedule(cx, workflows, jobs, id);
        self.continue_backfills_of(cx, workflows, jobs, id);
        ApplyChange::Changed
    }

    fn check_version(&self, id: ScheduleId, expected: Option<u64>) -> Result<(), Refusal> {
        let schedule = self.get(id).ok_or(Refusal::ScheduleNotFound { schedule: id })?;
        let found = schedule.state.version;
        match expected.filter(|&expected| expected != found) {
            Some(expected) => Err(Refusal::VersionMismatch { expected, found }),
            None => Ok(()),
        }
    }

    fn schedule_reply(&self, id: ScheduleId) -> Result<Reply, Refusal> {
        let schedule = self.get(id).ok_or(Refusal::ScheduleNotFound { schedule: id })?;
        Ok(Reply::Schedule { status: schedule.state.status, version: schedule.state.version })
    }

    pub(super) fn pause_schedule(
        &mut self,
        cx: &mut Context,
        workflows: &mut Workflows,
        jobs: &mut Jobs,
        id: ScheduleId,
        expected: Option<u64>,
        pause: Pause,
    ) -> Result<Reply, Refusal> {
        self.check_version(id, expected)?;
        self.decide_due_before_request(cx, workflows, jobs, id);
        let Some(schedule) = self.get_mut(id) else { return self.schedule_reply(id) };
        if schedule.state.status == ScheduleStatus::Completed {
            return self.schedule_reply(id);
        }
        schedule.state.pause = Some(Box::new(pause));
        self.set_status(id, ScheduleStatus::Paused);
        self.edit_schedule(cx, id, ScheduleEvent::Paused);
        self.release_reservation(cx, jobs, id);
        self.arm_schedule(cx, workflows, jobs, id);
        // Buffered firings are now held by the pause and no longer block backfills.
        self.continue_backfills_of(cx, workflows, jobs, id);
        self.schedule_reply(id)
    }

    pub(super) fn resume_schedule(
        &mut self,
        cx: &mut Context,
        workflows: &mut Workflows,
        jobs: &mut Jobs,
        id: ScheduleId,
        expected: Option<u64>,
    ) -> Result<Reply, Refusal> {
        self.check_version(id, expected)?;
        let Some(schedule) = self.get(id) else { return self.schedule_reply(id) };
        if schedule.plan.is_unreadable {
            let note = schedule.state.pause.as_ref().map(|pause| pause.to_string());
            let problem = Problem { path: "timing".into(), message: note.unwrap_or_default() };
            return Err(Refusal::InvalidTiming { index: 0, problems: vec![problem] });
        }
        self.decide_due_before_request(cx, workflows, jobs, id);
        let Some(schedule) = self.get(id) else { return self.schedule_reply(id) };
        if schedule.state.status == ScheduleStatus::Paused {
            // Firings that were due during the pause are skipped, also those that are not decided yet.
            let (now, due_until) = (cx.now, schedule.due_until(cx.now));
            let paused_by = schedule.state.pause.as_ref().map(|pause| pause.to_string()).unwrap_or_default();
            self.record_skipped_until(cx, id, due_until, FiringOutcome::SkippedPause, &paused_by);
            if let Some(schedule) = self.get_mut(id) {
                schedule.state.pause = None;
                let delay = schedule.plan.timetable.delay();
                if let (Some(from), Some(delay)) = (schedule.state.delay_from.as_mut(), delay) {
                    // A fixed delay that ended during the pause ends now.
                    *from = (*from).max(now - delay);
                }
                if let Some(track) = schedule.state.statistics.as_mut() {
                    // Failures before the pause no longer count towards the next automatic pause.
                    track.streak = track.streak.max(0);
                }
            }
            self.set_status(id, ScheduleStatus::Active);
            self.edit_schedule(cx, id, ScheduleEvent::Resumed);
            self.start_buffered(cx, workflows, jobs, id);
        }
        self.arm_schedule(cx, workflows, jobs, id);
        self.continue_backfills_of(cx, workflows, jobs, id);
        self.schedule_reply(id)
    }

    pub(super) fn delete_schedule(
        &mut self,
        cx: &mut Context,
        workflows: &mut Workflows,
        jobs: &mut Jobs,
        id: ScheduleId,
        expected: Option<u64>,
    ) -> Result<Reply, Refusal> {
        self.check_version(id, expected)?;
        self.decide_due_before_request(cx, workflows, jobs, id);
        let reply = self.schedule_reply(id);
        let now = cx.now;
        let (outcome, detail) = (FiringOutcome::SkippedReplaced, DetailCode::ScheduleDeleted.sentence());
        self.record_owed_skipped(cx, id, outcome, detail);
        self.record_skipped_until(cx, id, now, outcome, detail);
        self.close_record(id);
        let waiting = self.get_mut(id).map(|schedule| std::mem::take(&mut schedule.state.buffer));
        for firing in waiting.unwrap_or_default() {
            self.record_buffer_end(cx, id, &firing, outcome, detail);
        }
        self.end_backfills_of(cx, id);
        self.emit_schedule_event(cx, id, ScheduleEvent::Deleted);
        self.disarm_schedule(cx, jobs, id);
        let known = self.remove(id).is_some_and(|schedule| !schedule.new);
        if known {
            cx.write(Change::RemoveSchedule(id));
        }
        reply
    }
}

fn initial_state(now: Timestamp, delayed: bool) -> ScheduleState {
    ScheduleState {
        generation: 1,
        version: 1,
        created_at: now,
        updated_at: now,
        status: ScheduleStatus::Active,
        pause: None,
        cursor: now,
        owed: ThinVec::new(),
        previous: None,
        delay_from: delayed.then_some(now),
        next_at: None,
        fired: 0,
        skipped: 0,
        last: None,
        last_manual: None,
        buffer: ThinVec::new(),
        open_record: None,
        statistics: None,
    }
}
