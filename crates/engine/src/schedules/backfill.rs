//! Backfills: runs of past scheduled times that a user requests.
//!
//! The caller has computed the scheduled times. They are part of the backfill's row, so later changes of the
//! schedule do not change the backfill. Its runs start in order, with the requested concurrency. This may
//! exceed the schedule's overlap limit, which still applies to all other runs.
//!
//! # Invariants
//! - A scheduled time is in at most one running backfill, and in none while the schedule itself still owes
//!   it.
//! - Buffered firings come first, then owed firings, then backfills that respect the limit (`buffer_all`).
//!
//! # Cost
//! Each started run costs O(unfinished runs of the schedule). At most [`RUNNING_MAX`] backfills run at the
//! same time.

use std::collections::BTreeSet;
use std::sync::Arc;

use model::firing::{
    BackfillHead, BackfillState, BackfillStatus, FiringCause, FiringOutcome, LedgerRecord, Origin, Work,
};
use model::record::{Change, EventKind};
use model::schedule::OverlapPolicy;
use model::{BackfillId, JobStatus, Refusal, ScheduleId, Timestamp};
use rand::Rng;

use super::Template;
use super::ledger::with_actor;
use crate::context::Context;
use crate::input::NewBackfill;
use crate::jobs::Jobs;
use crate::output::Reply;
use crate::schedules::Schedules;
use crate::workflows::Workflows;

/// A running backfill.
#[derive(Debug)]
pub(crate) struct Backfill {
    pub(crate) head: Arc<BackfillHead>,
    pub(crate) state: BackfillState,
    template: Arc<Template>,
    /// Unfinished runs.
    pub(crate) runs: Vec<Work>,
}

impl Backfill {
    /// Returns the scheduled times that are not started yet.
    fn remaining(&self) -> impl Iterator<Item = Timestamp> {
        self.head.scheduled_times.iter().skip(self.state.started as usize).map(|&(at, _)| at)
    }
}

/// Maximum number of running backfills.
const RUNNING_MAX: usize = 256;

impl Schedules {
    /// Starts a backfill of the requested times that the schedule has decided and that are in no other
    /// running backfill. So no time runs twice, even if the request is repeated.
    pub(super) fn begin_backfill(
        &mut self,
        cx: &mut Context,
        workflows: &mut Workflows,
        jobs: &mut Jobs,
        new: &NewBackfill,
        actor: &Arc<str>,
    ) -> Result<Reply, Refusal> {
        let schedule = self.get(new.schedule).ok_or(Refusal::ScheduleNotFound { schedule: new.schedule })?;
        if self.backfills.len() >= RUNNING_MAX {
            return Err(Refusal::BackfillLimit { limit: RUNNING_MAX });
        }
        let state = &schedule.state;
        let is_owed = |at| state.owed.iter().any(|gap| gap.after < at && at <= gap.until);
        let others = || self.backfills.values().filter(|other| other.head.schedule == new.schedule);
        let taken: BTreeSet<Timestamp> = others().flat_map(Backfill::remaining).collect();
        let is_left = |at: Timestamp| at <= state.cursor && !is_owed(at) && !taken.contains(&at);
        let scheduled_times: Arc<[_]> =
            new.scheduled_times.iter().copied().filter(|&(at, _)| is_left(at)).collect();
        if scheduled_times.is_empty() {
            return Err(Refusal::NothingToBackfill { running: others().next().map(|other| other.head.id) });
        }
        let generation = schedule.state.generation;
        let template = Arc::new(schedule.template.with_priority(new.priority, &mut cx.profiles));
        let id = BackfillId::from_bits(cx.ids.next(cx.now, new.schedule.shard(), cx.rng.next_u64()));
        let head = Arc::new(BackfillHead {
            id,
            schedule: new.schedule,
            scheduled_times,
            from: new.from,
            until: new.until,
            concurrency: new.concurrency.max(1),
            body: Arc::clone(&template.body),
            generation,
            overlap: new.overlap,
            actor: Arc::clone(actor),
            note: new.note.clone(),
            created_at: cx.now,
        });
        let state = BackfillState {
            status: BackfillStatus::Running,
            started: 0,
            succeeded: 0,
            failed: 0,
            finished_at: None,
        };
        cx.write(Change::Backfill { id, head: Some(Arc::clone(&head)), state });
        self.backfills.insert(id, Backfill { head, state, template, runs: Vec::new() });
        self.emit_backfill_event(cx, id);
        // The backfill may raise the number of concurrent runs, and buffered firings come first.
        self.start_buffered(cx, workflows, jobs, new.schedule);
        self.continue_backfill(cx, workflows, jobs, id);
        Ok(Reply::Backfill { backfill: id })
    }

    /// Restores a running backfill from its row.
    pub(crate) fn restore_backfill(
        &mut self,
        cx: &mut Context,
        head: BackfillHead,
        state: BackfillState,
    ) -> Result<(), String> {
        let template = Arc::new(Template::parse(&head.body, &mut cx.profiles)?);
        let id = head.id;
        let head = Arc::new(head);
        self.backfills.insert(id, Backfill { head, state, template, runs: Vec::new() });
        Ok(())
    }

    /// Removes a backfill as if its row had never been restored. Only before the start.
    pub(crate) fn remove_restored_backfill(&mut self, id: BackfillId) {
        self.backfills.remove(&id);
    }

    /// Starts as many runs as the limits allow, and ends the backfill after its last run.
    pub(super) fn continue_backfill(
        &mut self,
        cx: &mut Context,
        workflows: &mut Workflows,
        jobs: &mut Jobs,
        id: BackfillId,
    ) {
        while let Some((at, before)) = self.next_of_backfill(cx, workflows, jobs, id) {
            self.run_backfill(cx, workflows, jobs, id, at, before);
        }
        let over = self.backfills.get(&id).is_some_and(|backfill| {
            backfill.runs.is_empty() && backfill.state.started as usize >= backfill.head.scheduled_times.len()
        });
        let schedule = self.backfills.get(&id).map(|backfill| backfill.head.schedule);
        if over {
            self.end_backfill(cx, id, BackfillStatus::Completed);
        }
        if let Some(schedule) = schedule {
            // The backfill may have used, or left, the capacity for owed firings.
            self.arm_schedule(cx, workflows, jobs, schedule);
        }
    }

    fn next_of_backfill(
        &self,
        cx: &Context,
        workflows: &Workflows,
        jobs: &Jobs,
        id: BackfillId,
    ) -> Option<(Timestamp, Option<Timestamp>)> {
        if cx.holds_new_work {
            return None;
        }
        let backfill = self.backfills.get(&id)?;
        let schedule = self.get(backfill.head.schedule)?;
        // Buffered firings come first, then owed firings, then backfills.
        let may_run = backfill.head.concurrency.max(schedule.plan.policies.overlap.limit) as usize;
        let has_room = schedule.plan.policies.allows_all() || schedule.runs.len() < may_run;
        let owed_first =
            schedule.owes_at(cx.now) && self.may_catch_up(workflows, jobs, backfill.head.schedule, schedule);
        let has_turn = has_room && schedule.first_in_turn().is_none() && !owed_first;
        let may_start = backfill.head.overlap == OverlapPolicy::AllowAll || has_turn;
        let has_room = backfill.runs.len() < backfill.head.concurrency as usize && may_start;
        backfill.head.scheduled_times.get(backfill.state.started as usize).copied().filter(|_| has_room)
    }

    fn run_backfill(
        &mut self,
        cx: &mut Context,
        workflows: &mut Workflows,
        jobs: &mut Jobs,
        id: BackfillId,
        at: Timestamp,
        before: Option<Timestamp>,
    ) {
        let Some(backfill) = self.backfills.get(&id) else { return };
        let (head, template) = (Arc::clone(&backfill.head), Arc::clone(&backfill.template));
        let Some(schedule) = self.get(head.schedule) else { return };
        let origin = Origin {
            schedule: head.schedule,
            name: Arc::clone(&schedule.name),
            generation: head.generation,
            scheduled_for: at,
            interval_start: before,
            interval_end: at,
            cause: FiringCause::Backfill,
            backfill: Some(id),
            start_by: None,
        };
        let (outcome, work, detail) =
            match self.create_run(cx, workflows, jobs, origin, &template, Some(&head.actor)) {
                Ok(work) => (FiringOutcome::Fired, Some(work), head.actor.as_ref().into()),
                Err(why) => (why.outcome, None, with_actor(Some(&head.actor), &why.detail).into()),
            };
        self.count_firing(outcome);
        self.ledger.push(LedgerRecord {
            schedule: head.schedule,
            generation: head.generation,
            first: at,
            last: at,
            count: 1,
            exact: true,
            outcome,
            cause: FiringCause::Backfill,
            backfill: Some(id),
            work,
            decided_at: cx.now,
            detail: Some(detail),
            tzdb: Arc::clone(cx.config.zones.version()),
        });
        if let Some(schedule) = self.get_mut(head.schedule).filter(|_| work.is_some()) {
            schedule.state.delay_from = None;
        }
        self.touch_schedule(head.schedule);
        if let Some(backfill) = self.backfills.get_mut(&id) {
            backfill.state.started += 1;
            backfill.state.failed += u32::from(work.is_none());
            backfill.runs.extend(work);
        }
        self.touch_backfill(cx, id);
    }

    /// Counts the end of a run of a backfill.
    pub(super) fn count_backfill_run(
        &mut self,
        cx: &mut Context,
        workflows: &mut Workflows,
        jobs: &mut Jobs,
        id: BackfillId,
        work: Work,
        status: JobStatus,
    ) {
        let Some(backfill) = self.backfills.get_mut(&id) else { return };
        backfill.runs.retain(|&run| run != work);
        match status {
            JobStatus::Succeeded => backfill.state.succeeded += 1,
            _ => backfill.state.failed += 1,
        }
        self.touch_backfill(cx, id);
        self.continue_backfill(cx, workflows, jobs, id);
    }

    pub(super) fn continue_backfills_of(
        &mut self,
        cx: &mut Context,
        workflows: &mut Workflows,
        jobs: &mut Jobs,
        schedule: ScheduleId,
    ) {
        for id in self.backfills_of(schedule) {
            self.continue_backfill(cx, workflows, jobs, id);
        }
    }

    /// Returns the highest concurrency of the schedule's running backfills; 0 without any.
    pub(super) fn max_backfill_concurrency(&self, schedule: ScheduleId) -> usize {
        let own = self.backfills.values().filter(|backfill| backfill.head.schedule == schedule);
        own.map(|backfill| backfill.head.concurrency as usize).max().unwrap_or(0)
    }

    fn backfills_of(&self, schedule: ScheduleId) -> Vec<BackfillId> {
        let own = self.backfills.iter().filter(|(_, b)| b.head.schedule == schedule);
        own.map(|(&id, _)| id).collect()
    }

    pub(super) fn cancel_backfill(
        &mut self,
        cx: &mut Context,
        workflows: &mut Workflows,
        jobs: &mut Jobs,
        id: BackfillId,
        cancel_runs: bool,
        actor: &str,
    ) -> Result<Reply, Refusal> {
        let backfill = self.backfills.get(&id).ok_or(Refusal::BackfillNotRunning { backfill: id })?;
        let (runs, schedule) = (backfill.runs.clone(), backfill.head.schedule);
        self.end_backfill(cx, id, BackfillStatus::Cancelled);
        self.arm_schedule(cx, workflows, jobs, schedule);
        if cancel_runs {
            let reason = Some("the backfill was cancelled");
            for run in runs {
                let _ = match run {
                    Work::Job(job) => jobs.try_cancel(cx, job, actor, reason).map(drop),
                    Work::Run(run) => workflows.cancel_run(cx, jobs, run, actor, reason, false).map(drop),
                };
            }
        }
        Ok(Reply::Backfill { backfill: id })
    }

    /// Cancels the backfills of a schedule that is being deleted.
    pub(super) fn end_backfills_of(&mut self, cx: &mut Context, schedule: ScheduleId) {
        for id in self.backfills_of(schedule) {
            self.end_backfill(cx, id, BackfillStatus::Cancelled);
        }
    }

    fn end_backfill(&mut self, cx: &mut Context, id: BackfillId, status: BackfillStatus) {
        if let Some(backfill) = self.backfills.get_mut(&id) {
            backfill.state.status = status;
            backfill.state.finished_at = Some(cx.now);
        }
        self.touch_backfill(cx, id);
        self.emit_backfill_event(cx, id);
        self.backfills.remove(&id);
    }

    fn touch_backfill(&mut self, cx: &mut Context, id: BackfillId) {
        let Some(backfill) = self.backfills.get(&id) else { return };
        let state = backfill.state;
        // One row per batch: the newest state, with the head if it is not written yet.
        let pending = cx.unwritten().iter_mut().find_map(|change| match change {
            Change::Backfill { id: known, state, .. } if *known == id => Some(state),
            _ => None,
        });
        match pending {
            Some(known) => *known = state,
            None => cx.write(Change::Backfill { id, head: None, state }),
        }
    }

    fn emit_backfill_event(&mut self, cx: &mut Context, id: BackfillId) {
        let Some(backfill) = self.backfills.get(&id) else { return };
        let schedule = backfill.head.schedule;
        let kind = EventKind::Backfill { backfill: id, schedule, status: backfill.state.status };
        let namespace = self.get(schedule).map(|schedule| Arc::clone(&schedule.namespace));
        cx.emit(namespace, kind);
    }
}
