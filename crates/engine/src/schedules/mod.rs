//! Schedules: each scheduled time is decided once, and every decision is recorded.
//!
//! - [`apply`]: create, change, pause, resume and delete schedules.
//! - [`decide`]: decides the scheduled times from the last decided one to now.
//! - [`missed`]: finds missed scheduled times and catches up.
//! - [`overlap`]: the overlap policy while earlier runs of the schedule are unfinished.
//! - [`fire`]: creates the job or workflow run of a firing, and handles its end.
//! - [`ledger`]: records the outcome of each scheduled time.
//! - [`trigger`], [`backfill`]: runs that a user requests.
//! - [`reserve`]: reserves resources ahead of a firing.
//! - [`calendars`]: the calendars that timings refer to.
//! - [`plan`]: compiled timings, policies and job templates, shared by schedules.
//!
//! # Invariants
//! - `cursor` never moves back. Each scheduled time up to it has a ledger record or is owed. The cursor
//!   changes in the same batch as the record and the job or run that a firing creates.
//! - The next scheduled time follows from the rules and the cursor alone; no firing depends on the success of
//!   the previous one.
//! - `runs` are exactly the live jobs and runs whose origin is the schedule, once all signals are delivered.
//! - A schedule that can still fire has its timer armed, or an unfinished run whose end arms it.
//! - Current firings come before missed ones: an owed firing starts only when no run and no other firing of
//!   the schedule blocks it.
//!
//! # Cost
//! One timer per schedule; a firing costs two steps of its timetable. A schedule without a run takes about
//! 500 bytes if others share its timing and its job template.

mod apply;
mod backfill;
mod calendars;
mod check;
mod decide;
mod fire;
mod firing;
mod ledger;
mod missed;
mod overlap;
mod plan;
mod reserve;
mod trigger;

use std::collections::BTreeMap;
use std::sync::Arc;

use foldhash::fast::FixedState;
use hashbrown::HashTable;
use indexmap::IndexMap;
use model::firing::{
    FiringOutcome, LedgerRecord, Origin, Pause, ScheduleHead, ScheduleState, ScheduleStatus, Work,
};
use model::record::{Change, EventKind, ScheduleEvent};
use model::{BackfillId, Refusal, ScheduleId, Timestamp};
use thin_vec::ThinVec;

use crate::context::Context;
use crate::input::ScheduleRequest;
use crate::jobs::Jobs;
use crate::names::name_hash;
use crate::output::Reply;
use crate::timer::Timer;
use crate::workflows::Workflows;
pub(crate) use backfill::Backfill;
pub(crate) use calendars::Calendars;
pub(crate) use plan::{Plan, Plans, ScheduledWork, Template, Templates};
pub(crate) use reserve::Reservation;
use trigger::Trigger;

/// A schedule and its unfinished runs.
#[derive(Debug)]
pub(crate) struct Schedule {
    pub(crate) namespace: Arc<str>,
    pub(crate) name: Arc<str>,
    /// Timing and policies; shared by all schedules with the same timing and policies.
    pub(crate) plan: Arc<Plan>,
    /// Job or workflow run that it starts; shared in the same way.
    pub(crate) template: Arc<Template>,
    pub(crate) state: ScheduleState,
    /// Unfinished runs, oldest first.
    pub(crate) runs: ThinVec<Work>,
    /// Time for which its timer is armed; `None` if it is not armed.
    armed: Option<Timestamp>,
    /// Earliest time of the next owed firing, by the catch-up rate.
    catch_up_at: Timestamp,
    /// Until when its next firing waits for the worker of a run to report whether the run has ended; see
    /// [`Schedules::awaits_worker`].
    worker_wait_until: Option<Timestamp>,
    /// Reservation for its next firing, if it has one.
    pub(crate) reservation: Option<Box<Reservation>>,
    /// Spec that is not yet written to the store; `None` if it is written.
    head: Option<Arc<ScheduleHead>>,
    new: bool,
    dirty: bool,
    /// Whether the open ledger record changed since it was last written.
    record_dirty: bool,
    /// Hash of the spec, to detect an unchanged spec.
    body_hash: [u64; 2],
}

impl Schedule {
    pub(crate) fn new(
        head: &ScheduleHead,
        plan: Arc<Plan>,
        template: Arc<Template>,
        state: ScheduleState,
    ) -> Self {
        Self {
            namespace: Arc::clone(&template.namespace),
            name: head.spec.name.as_str().into(),
            plan,
            template,
            state,
            runs: ThinVec::new(),
            armed: None,
            catch_up_at: Timestamp::default(),
            worker_wait_until: None,
            reservation: None,
            head: None,
            new: false,
            dirty: false,
            record_dirty: false,
            body_hash: body_hash(&head.body),
        }
    }

    /// Whether only its next scheduled time matters: it owes no firings, buffers none, has no fixed delay and
    /// no reservation.
    fn is_plain(&self) -> bool {
        self.state.owed.is_empty()
            && self.state.buffer.is_empty()
            && self.plan.timetable.delay().is_none()
            && self.plan.policies.reserve_ahead.is_none()
    }

    /// Whether its status and its catch-up rate allow an owed firing at `now`.
    fn owes_at(&self, now: Timestamp) -> bool {
        self.status_allows_catch_up() && self.catch_up_at <= now
    }

    fn status_allows_catch_up(&self) -> bool {
        self.state.status == ScheduleStatus::Active && !self.state.owed.is_empty()
    }
}

/// All schedules, with their shared plans, templates and calendars.
#[derive(Debug, Default)]
pub(crate) struct Schedules {
    all: IndexMap<ScheduleId, Schedule, FixedState>,
    /// Ids by [`timetable_seed`].
    names: HashTable<ScheduleId>,
    plans: Plans,
    templates: Templates,
    calendars: Calendars,
    backfills: BTreeMap<BackfillId, Backfill>,
    counts: BTreeMap<ScheduleStatus, u64>,
    firings: BTreeMap<FiringOutcome, u64>,
    /// Schedules with changed rows, each once; `Schedule::dirty` marks them.
    changed: Vec<ScheduleId>,
    /// Closed ledger records that are not yet written.
    ledger: Vec<LedgerRecord>,
    /// Schedules with a timing that can no longer be parsed, with the reason.
    unusable: BTreeMap<ScheduleId, String>,
    /// Whether a hold of new work has ended and the firings and backfills that it delayed are not yet
    /// released.
    is_released: bool,
}

#[expect(clippy::cast_possible_truncation, reason = "half of a hash is a hash")]
fn seed_of(hash: u128) -> u64 {
    hash as u64
}

/// Seed of a schedule's timetable: decides the values of `H` and `~` in its rules.
pub fn timetable_seed(namespace: &str, name: &str) -> u64 {
    seed_of(name_hash(namespace, name))
}

fn body_hash(body: &str) -> [u64; 2] {
    let hash = name_hash("", body);
    [seed_of(hash), seed_of(hash >> 64)]
}

fn just_before(at: Timestamp) -> Timestamp {
    Timestamp::from_micros(at.as_micros().saturating_sub(1))
}

/// Returns all live jobs and runs of schedules, with the firing that each belongs to.
fn scheduled_work<'a>(workflows: &'a Workflows, jobs: &'a Jobs) -> impl Iterator<Item = (Work, &'a Origin)> {
    let jobs = jobs.iter().filter_map(|(id, job)| Some((Work::Job(id), job.origin.as_deref()?)));
    jobs.chain(workflows.scheduled_runs().map(|(id, origin)| (Work::Run(id), origin)))
}

/// Returns the firing that a live job or run belongs to.
fn origin_of<'a>(workflows: &'a Workflows, jobs: &'a Jobs, work: Work) -> Option<&'a Origin> {
    match work {
        Work::Job(job) => jobs.get(job)?.origin.as_deref(),
        Work::Run(run) => workflows.origin_of(run),
    }
}

impl Schedules {
    pub(crate) fn get(&self, id: ScheduleId) -> Option<&Schedule> {
        self.all.get(&id)
    }

    pub(crate) fn get_mut(&mut self, id: ScheduleId) -> Option<&mut Schedule> {
        self.all.get_mut(&id)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (ScheduleId, &Schedule)> {
        self.all.iter().map(|(&id, schedule)| (id, schedule))
    }

    fn find(&self, namespace: &str, name: &str) -> Option<ScheduleId> {
        let is_called = |id: &ScheduleId| {
            self.all.get(id).is_some_and(|found| *found.namespace == *namespace && *found.name == *name)
        };
        self.names.find(timetable_seed(namespace, name), is_called).copied()
    }

    pub(crate) fn insert(&mut self, id: ScheduleId, schedule: Schedule) {
        let hash = timetable_seed(&schedule.namespace, &schedule.name);
        *self.counts.entry(schedule.state.status).or_default() += 1;
        self.all.insert(id, schedule);
        let all = &self.all;
        let hash_of = |id: &ScheduleId| all.get(id).map_or(0, |s| timetable_seed(&s.namespace, &s.name));
        self.names.insert_unique(hash, id, hash_of);
    }

    fn remove(&mut self, id: ScheduleId) -> Option<Schedule> {
        let schedule = self.all.swap_remove(&id)?;
        let hash = timetable_seed(&schedule.namespace, &schedule.name);
        if let Ok(entry) = self.names.find_entry(hash, |known| *known == id) {
            entry.remove();
        }
        self.uncount(schedule.state.status);
        Some(schedule)
    }

    fn uncount(&mut self, status: ScheduleStatus) {
        if let Some(count) = self.counts.get_mut(&status) {
            *count = count.saturating_sub(1);
        }
    }

    /// Changes the status of a schedule and the count by status.
    fn set_status(&mut self, id: ScheduleId, status: ScheduleStatus) {
        let Some(schedule) = self.all.get_mut(&id) else { return };
        let before = std::mem::replace(&mut schedule.state.status, status);
        self.uncount(before);
        *self.counts.entry(status).or_default() += 1;
    }

    /// Returns the number of schedules by status.
    pub(crate) fn counts(&self) -> &BTreeMap<ScheduleStatus, u64> {
        &self.counts
    }

    /// Returns the number of decided scheduled times by outcome, since the start.
    pub(crate) fn firings(&self) -> &BTreeMap<FiringOutcome, u64> {
        &self.firings
    }

    /// Starts or ends a hold of new work. The first flush after its end releases what it delayed.
    pub(crate) fn hold(&mut self, cx: &Context, hold: bool) {
        self.is_released = !hold && (self.is_released || cx.holds_new_work);
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.changed.is_empty() && self.ledger.is_empty() && self.calendars.is_settled() && !self.is_released
    }
}

impl Schedules {
    /// Processes a request about schedules.
    ///
    /// # Errors
    /// The reason why the request is refused.
    pub(crate) fn handle(
        &mut self,
        cx: &mut Context,
        workflows: &mut Workflows,
        jobs: &mut Jobs,
        request: ScheduleRequest,
        actor: &Arc<str>,
    ) -> Result<Reply, Refusal> {
        match request {
            ScheduleRequest::Apply { schedules } => self.apply_schedules(cx, workflows, jobs, &schedules),
            ScheduleRequest::Pause { schedule, note, expected_version } => {
                let pause = Pause { at: cx.now, by: actor.as_ref().into(), note };
                self.pause_schedule(cx, workflows, jobs, schedule, expected_version, pause)
            }
            ScheduleRequest::Resume { schedule, expected_version } => {
                self.resume_schedule(cx, workflows, jobs, schedule, expected_version)
            }
            ScheduleRequest::Delete { schedule, expected_version } => {
                self.delete_schedule(cx, workflows, jobs, schedule, expected_version)
            }
            ScheduleRequest::Trigger { schedule, overlap, reason, key } => {
                let detail = match reason {
                    Some(reason) => format!("{actor}: {reason}").into(),
                    None => actor.as_ref().into(),
                };
                self.trigger(cx, workflows, jobs, schedule, Trigger { overlap, detail, key })
            }
            ScheduleRequest::Backfill(backfill) => self.begin_backfill(cx, workflows, jobs, &backfill, actor),
            ScheduleRequest::CancelBackfill { backfill, cancel_runs } => {
                self.cancel_backfill(cx, workflows, jobs, backfill, cancel_runs, actor)
            }
            ScheduleRequest::SetCalendar { spec, expected_version } => {
                self.set_calendar(cx, *spec, expected_version)
            }
            ScheduleRequest::RemoveCalendar { namespace, name, expected_version } => {
                self.remove_calendar(cx, &namespace, &name, expected_version)
            }
        }
    }

    fn touch_schedule(&mut self, id: ScheduleId) {
        if let Some(schedule) = self.all.get_mut(&id).filter(|schedule| !schedule.dirty) {
            schedule.dirty = true;
            self.changed.push(id);
        }
    }

    /// Marks a schedule as changed by a request: increases its version and emits an event.
    fn edit_schedule(&mut self, cx: &mut Context, id: ScheduleId, what: ScheduleEvent) {
        let now = cx.now;
        if let Some(schedule) = self.all.get_mut(&id) {
            schedule.state.version += 1;
            schedule.state.updated_at = now;
        }
        self.touch_schedule(id);
        self.emit_schedule_event(cx, id, what);
    }

    fn emit_schedule_event(&mut self, cx: &mut Context, id: ScheduleId, what: ScheduleEvent) {
        let Some(schedule) = self.get(id) else { return };
        let kind = EventKind::Schedule { schedule: id, name: Arc::clone(&schedule.name), what };
        let namespace = Some(Arc::clone(&schedule.namespace));
        cx.emit(namespace, kind);
    }

    /// Arms the timer of a schedule for its next event: a scheduled time, the end of a fixed delay, or its
    /// next catch-up. Completes the schedule if there is none, and updates `next_at` for lists.
    fn arm_schedule(&mut self, cx: &mut Context, workflows: &Workflows, jobs: &mut Jobs, id: ScheduleId) {
        self.complete_if_over(cx, id);
        self.update_next_at(id);
        let due =
            self.get(id).and_then(|schedule| schedule.due(self.may_catch_up(workflows, jobs, id, schedule)));
        let Some(schedule) = self.all.get_mut(&id) else { return };
        if schedule.armed != due {
            if let Some(before) = schedule.armed {
                cx.wall_timers.disarm(before, Timer::Schedule(id));
            }
            if let Some(due) = due {
                cx.wall_timers.arm(due, Timer::Schedule(id));
            }
            schedule.armed = due;
        }
        self.arm_reservation(cx, jobs, id);
    }

    fn disarm_schedule(&mut self, cx: &mut Context, jobs: &mut Jobs, id: ScheduleId) {
        if let Some(schedule) = self.all.get_mut(&id)
            && let Some(before) = schedule.armed.take()
        {
            cx.wall_timers.disarm(before, Timer::Schedule(id));
        }
        self.release_reservation(cx, jobs, id);
    }

    /// Writes changed schedules and ledger records as rows. Jobs and runs are drained before, so that the job
    /// or run of a firing precedes its record in the batch.
    pub(crate) fn drain(&mut self, changes: &mut Vec<Change>) {
        for id in std::mem::take(&mut self.changed) {
            let Some(schedule) = self.all.get_mut(&id) else { continue };
            schedule.dirty = false;
            if std::mem::take(&mut schedule.record_dirty) {
                self.ledger.extend(schedule.state.open_record.as_deref().cloned());
            }
            changes.push(Change::Schedule {
                id,
                new: std::mem::take(&mut schedule.new),
                head: schedule.head.take(),
                state: Box::new(schedule.state.clone()),
            });
        }
        let records = ledger::last_versions(std::mem::take(&mut self.ledger));
        changes.extend(records.into_iter().map(|record| Change::Ledger(Box::new(record))));
    }

    /// Restores a schedule from its row. A schedule with a timing that can no longer be parsed is kept and
    /// paused, with the reason as its note.
    pub(crate) fn restore_schedule(
        &mut self,
        cx: &mut Context,
        id: ScheduleId,
        head: &ScheduleHead,
        state: ScheduleState,
    ) {
        let (plan, problem) = match self.plan_of(cx, &head.spec) {
            Ok(plan) => (plan, None),
            Err(problems) => (Plan::unreadable(&head.spec), problems.into_iter().next()),
        };
        cx.now = cx.now.max(state.updated_at);
        let template = self.templates.of(&head.spec, &mut cx.profiles);
        let is_active = state.status == ScheduleStatus::Active;
        self.insert(id, Schedule::new(head, plan, template, state));
        match problem.filter(|_| is_active) {
            Some(problem) => {
                let note = format!("invalid timing: {}: {}", problem.path, problem.message);
                self.unusable.insert(id, note);
            }
            None => self.arm_if_plain(cx, id),
        }
    }

    /// Removes a schedule as if its row had never been restored. Only before the start.
    pub(crate) fn remove_restored_schedule(&mut self, cx: &mut Context, jobs: &mut Jobs, id: ScheduleId) {
        self.disarm_schedule(cx, jobs, id);
        self.unusable.remove(&id);
        self.remove(id);
    }

    /// Arms the timer of a schedule that only waits for its next scheduled time, as most do, so that the
    /// start need not visit it.
    fn arm_if_plain(&mut self, cx: &mut Context, id: ScheduleId) {
        let Some(schedule) = self.get_mut(id).filter(|schedule| schedule.is_plain()) else {
            return;
        };
        // The schedule owes no firings, so only its next scheduled time decides when it is due.
        let Some(due) = schedule.due(false).filter(|_| schedule.has_current_next_at()) else { return };
        schedule.armed = Some(due);
        cx.wall_timers.arm(due, Timer::Schedule(id));
    }

    /// Collects the unfinished runs of every schedule and backfill from the restored jobs and runs.
    pub(crate) fn find_runs(&mut self, workflows: &Workflows, jobs: &Jobs) {
        let origins: Vec<(Work, ScheduleId, Option<BackfillId>)> = scheduled_work(workflows, jobs)
            .map(|(work, origin)| (work, origin.schedule, origin.backfill))
            .collect();
        for (work, schedule, backfill) in origins {
            if let Some(schedule) = self.get_mut(schedule) {
                schedule.runs.push(work);
            }
            if let Some(backfill) = backfill.and_then(|id| self.backfills.get_mut(&id)) {
                backfill.runs.push(work);
            }
        }
        for (_, schedule) in &mut self.all {
            schedule.runs.sort_unstable();
            schedule.runs.shrink_to_fit();
        }
    }

    /// Starts all schedules from their restored rows.
    pub(crate) fn start_schedules(&mut self, cx: &mut Context, workflows: &mut Workflows, jobs: &mut Jobs) {
        for (id, note) in std::mem::take(&mut self.unusable) {
            self.pause_by_belfry(cx, jobs, id, &note);
        }
        let is_armed = |schedule: &Schedule| schedule.armed.is_some() && schedule.is_plain();
        let left = self.iter().filter(|(_, schedule)| !is_armed(schedule));
        let left: Vec<_> = left.map(|(id, _)| id).collect();
        for id in left {
            let now = cx.now;
            if let Some(schedule) = self.get_mut(id) {
                let rate = schedule.plan.policies.missed.catch_up_per_minute;
                if let Some(rate) = rate.filter(|_| !schedule.state.owed.is_empty()) {
                    // The last catch-up may have been a moment ago.
                    schedule.catch_up_at = now + missed::pause_between(rate);
                }
                let counts = schedule.plan.timetable.delay().is_some() && schedule.runs.is_empty();
                if counts && schedule.state.delay_from.is_none() {
                    // The run is gone, and its end was not recorded.
                    schedule.state.delay_from = Some(now);
                    self.touch_schedule(id);
                }
            }
            self.start_buffered(cx, workflows, jobs, id);
            self.arm_schedule(cx, workflows, jobs, id);
        }
        let backfills: Vec<_> = self.backfills.keys().copied().collect();
        for id in backfills {
            self.continue_backfill(cx, workflows, jobs, id);
        }
    }

    /// Releases buffered firings and backfills after a hold of new work.
    ///
    /// # Cost
    /// O(schedules), once per hold.
    pub(crate) fn release_schedules(&mut self, cx: &mut Context, workflows: &mut Workflows, jobs: &mut Jobs) {
        if cx.holds_new_work || !std::mem::take(&mut self.is_released) {
            return;
        }
        let waiting = self.iter().filter(|(_, schedule)| !schedule.state.buffer.is_empty());
        let waiting: Vec<_> = waiting.map(|(id, _)| id).collect();
        for id in waiting {
            self.start_buffered(cx, workflows, jobs, id);
            self.arm_schedule(cx, workflows, jobs, id);
        }
        let backfills: Vec<_> = self.backfills.keys().copied().collect();
        for id in backfills {
            self.continue_backfill(cx, workflows, jobs, id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// There may be a million schedules, so an additional field must be noticed here.
    #[test]
    fn a_schedule_is_small() {
        assert!(size_of::<Schedule>() <= 400, "{} bytes", size_of::<Schedule>());
        assert_eq!(size_of::<Timer>(), 24);
    }
}
