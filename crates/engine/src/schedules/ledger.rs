//! The ledger: a record of each scheduled time with its outcome.
//!
//! Consecutive scheduled times with the same outcome and without a job or run share a record. It stays open
//! in the schedule's row and grows until a scheduled time has another outcome.
//!
//! # Callers
//! [`decide`](super::decide), [`fire`](super::fire), [`missed`](super::missed), [`overlap`](super::overlap)
//! and [`backfill`](super::backfill) record their decisions here. [`Schedules::drain`] writes the
//! closed records.
//!
//! # Invariants
//! - An exact record has no gaps: no scheduled time between `first` and `last` has another outcome.
//! - A batch contains each record once.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::firing::{BufferedFiring, DetailCode, FiringCause, FiringOutcome, LedgerRecord, Origin, Work};
use model::record::EventKind;
use model::{ScheduleId, Timestamp};

use super::firing::Firing;
use crate::context::Context;
use crate::schedules::Schedules;

/// Keeps the last version of each record: a firing that is buffered and started before the flush has one
/// record, because a batch must not write a row twice.
///
/// A record with a job or run is never dropped in favour of one with another: the store must detect that
/// conflict.
pub(super) fn last_versions(records: Vec<LedgerRecord>) -> Vec<LedgerRecord> {
    if records.len() < 2 {
        return records;
    }
    let key = |r: &LedgerRecord| (r.schedule, r.generation, r.first, r.cause, r.backfill);
    let last: BTreeMap<_, _> =
        records.iter().enumerate().map(|(place, r)| (key(r), (place, r.work))).collect();
    let stays = |place: usize, record: &LedgerRecord| {
        last.get(&key(record))
            .is_none_or(|(newest, work)| place == *newest || (record.work.is_some() && record.work != *work))
    };
    let stay: Vec<_> = records.iter().enumerate().map(|(place, record)| stays(place, record)).collect();
    records.into_iter().zip(stay).filter_map(|(record, stays)| stays.then_some(record)).collect()
}

impl Schedules {
    fn new_record(
        &self,
        cx: &Context,
        id: ScheduleId,
        at: Timestamp,
        outcome: FiringOutcome,
        cause: FiringCause,
        detail: Option<&str>,
    ) -> LedgerRecord {
        LedgerRecord {
            schedule: id,
            generation: self.get(id).map_or(0, |schedule| schedule.state.generation),
            first: at,
            last: at,
            count: 1,
            exact: true,
            outcome,
            cause,
            backfill: None,
            work: None,
            decided_at: cx.now,
            detail: detail.map(Into::into),
            tzdb: Arc::clone(cx.config.zones.version()),
        }
    }

    /// Records a scheduled time without a job or run.
    pub(super) fn record_skip(
        &mut self,
        cx: &mut Context,
        id: ScheduleId,
        at: Timestamp,
        outcome: FiringOutcome,
        cause: FiringCause,
        detail: Option<&str>,
    ) {
        self.count_firing(outcome);
        let record = self.new_record(cx, id, at, outcome, cause, detail);
        let Some(schedule) = self.get_mut(id) else { return };
        schedule.state.skipped += 1;
        let mut began = true;
        match schedule.state.open_record.as_deref_mut() {
            // A record must have no gaps: an owed firing in between gets its own record.
            Some(open)
                if extends(open, &record)
                    && schedule.plan.timetable.step(open.last).is_none_or(|next| next.at >= at) =>
            {
                open.last = at;
                open.count += 1;
                open.decided_at = record.decided_at;
                began = false;
            }
            _ => {
                self.close_record(id);
                if let Some(schedule) = self.get_mut(id) {
                    schedule.state.open_record = Some(Box::new(record));
                }
            }
        }
        if let Some(schedule) = self.get_mut(id) {
            schedule.record_dirty = true;
        }
        self.touch_schedule(id);
        // Emits one event per record, and none for firings that the schedule's own filters hold.
        let held = matches!(outcome, FiringOutcome::SkippedCalendar | FiringOutcome::SkippedWindow);
        if began && !held {
            self.emit_skipped_event(cx, id, at, outcome);
        }
    }

    fn emit_skipped_event(
        &mut self,
        cx: &mut Context,
        id: ScheduleId,
        scheduled_for: Timestamp,
        outcome: FiringOutcome,
    ) {
        let Some(schedule) = self.get(id) else { return };
        let name = Arc::clone(&schedule.name);
        let namespace = Some(Arc::clone(&schedule.namespace));
        let kind = EventKind::Skipped { schedule: id, name, scheduled_for, outcome };
        cx.emit(namespace, kind);
    }

    /// Closes the open record: the next scheduled time starts a new one.
    pub(super) fn close_record(&mut self, id: ScheduleId) {
        let Some(schedule) = self.get_mut(id) else { return };
        let open = schedule.state.open_record.take();
        if std::mem::take(&mut schedule.record_dirty) {
            self.ledger.extend(open.map(|record| *record));
        }
    }

    pub(super) fn record_fired(
        &mut self,
        cx: &Context,
        id: ScheduleId,
        firing: &Firing,
        outcome: FiringOutcome,
        work: Work,
    ) {
        self.count_firing(outcome);
        self.close_record(id);
        let mut record = self.new_record(cx, id, firing.at, outcome, firing.cause, firing.detail.as_deref());
        record.generation = firing.generation;
        record.work = Some(work);
        self.ledger.push(record);
    }

    pub(super) fn record_buffered(&mut self, cx: &Context, id: ScheduleId, firing: &Firing) {
        self.count_firing(FiringOutcome::Buffered);
        self.close_record(id);
        let outcome = FiringOutcome::Buffered;
        let record = self.new_record(cx, id, firing.at, outcome, firing.cause, firing.detail.as_deref());
        self.ledger.push(record);
    }

    /// Records a buffered firing that will never start.
    pub(super) fn record_buffer_end(
        &mut self,
        cx: &mut Context,
        id: ScheduleId,
        waiting: &BufferedFiring,
        outcome: FiringOutcome,
        detail: &str,
    ) {
        let detail = with_actor(waiting.detail.as_deref(), detail);
        self.end_of_waiting(
            cx,
            id,
            (waiting.scheduled_for, waiting.cause, waiting.generation),
            outcome,
            &detail,
        );
    }

    /// Records a buffered firing that created nothing when its turn came.
    pub(super) fn record_waited_end(
        &mut self,
        cx: &mut Context,
        id: ScheduleId,
        firing: &Firing,
        outcome: FiringOutcome,
        detail: &str,
    ) {
        let detail = with_actor(firing.detail.as_deref(), detail);
        self.end_of_waiting(cx, id, (firing.at, firing.cause, firing.generation), outcome, &detail);
    }

    fn end_of_waiting(
        &mut self,
        cx: &mut Context,
        id: ScheduleId,
        (at, cause, generation): (Timestamp, FiringCause, u64),
        outcome: FiringOutcome,
        detail: &str,
    ) {
        self.count_firing(outcome);
        let mut record = self.new_record(cx, id, at, outcome, cause, Some(detail));
        record.generation = generation;
        if let Some(schedule) = self.get_mut(id) {
            schedule.state.skipped += 1;
        }
        self.emit_skipped_event(cx, id, at, outcome);
        self.ledger.push(record);
    }

    /// Records a firing whose job or run expired before it could start.
    pub(super) fn record_expired(&mut self, cx: &Context, work: Work, origin: &Origin) {
        if origin.cause == FiringCause::Retry {
            return;
        }
        let outcome = FiringOutcome::SkippedDeadline;
        self.count_firing(outcome);
        let detail = Some(match work {
            Work::Job(_) => DetailCode::CouldNotStart.sentence(),
            Work::Run(_) => DetailCode::RunCouldNotStart.sentence(),
        });
        let mut record =
            self.new_record(cx, origin.schedule, origin.scheduled_for, outcome, origin.cause, detail);
        record.generation = origin.generation;
        record.work = Some(work);
        self.ledger.push(record);
    }

    pub(super) fn count_firing(&mut self, outcome: FiringOutcome) {
        *self.firings.entry(outcome).or_default() += 1;
    }
}

/// Prefixes a detail with the user who requested the firing, if any.
pub(super) fn with_actor(who: Option<&str>, what: &str) -> String {
    who.map_or_else(|| what.to_owned(), |who| format!("{who}; {what}"))
}

/// Returns whether a record extends the open one.
fn extends(open: &LedgerRecord, next: &LedgerRecord) -> bool {
    open.generation == next.generation
        && open.outcome == next.outcome
        && open.cause == next.cause
        && open.detail == next.detail
        && open.exact
        && open.last < next.first
        // Manual firings are user actions, each recorded separately.
        && matches!(open.cause, FiringCause::Timer | FiringCause::CatchUp)
}
