//! The fire ledger: one record for each instant, with its outcome.
//!
//! Consecutive instants that share an outcome that created nothing share a record: it stays open in the
//! schedule's row and grows, until something else happens.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::firing::{BufferedFiring, DetailCode, FiringCause, FiringOutcome, LedgerRecord, Origin, Work};
use model::record::{Event, EventKind};
use model::{ScheduleId, Timestamp};

use super::fire::Firing;
use crate::engine::Engine;

/// Of each line only what was said of it last: a firing that waits and gets its turn before the flush has
/// one line, for a batch names no row twice.
///
/// A line that has a job or a run is not dropped for another one: that is the store's to refuse.
pub(super) fn last_words(records: Vec<LedgerRecord>) -> Vec<LedgerRecord> {
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

impl Engine {
    fn single(
        &self,
        id: ScheduleId,
        at: Timestamp,
        outcome: FiringOutcome,
        cause: FiringCause,
        detail: Option<&str>,
    ) -> LedgerRecord {
        LedgerRecord {
            schedule: id,
            generation: self.schedules.get(id).map_or(0, |schedule| schedule.state.generation),
            first: at,
            last: at,
            count: 1,
            exact: true,
            outcome,
            cause,
            backfill: None,
            work: None,
            decided_at: self.now,
            detail: detail.map(Into::into),
            tzdb: Arc::clone(self.config.zones.version()),
        }
    }

    /// Records that an instant created nothing.
    pub(super) fn record_skip(
        &mut self,
        id: ScheduleId,
        at: Timestamp,
        outcome: FiringOutcome,
        cause: FiringCause,
        detail: Option<&str>,
    ) {
        self.count_firing(outcome);
        let record = self.single(id, at, outcome, cause, detail);
        let Some(schedule) = self.schedules.get_mut(id) else { return };
        schedule.state.skipped += 1;
        let mut began = true;
        match schedule.state.open_record.as_deref_mut() {
            // A row has no holes: what is owed in between gets records of its own.
            Some(open)
                if continues(open, &record)
                    && schedule.plan.timetable.step(open.last).is_none_or(|next| next.at >= at) =>
            {
                open.last = at;
                open.count += 1;
                open.decided_at = record.decided_at;
                began = false;
            }
            _ => {
                self.close_record(id);
                if let Some(schedule) = self.schedules.get_mut(id) {
                    schedule.state.open_record = Some(Box::new(record));
                }
            }
        }
        if let Some(schedule) = self.schedules.get_mut(id) {
            schedule.record_dirty = true;
        }
        self.touch_schedule(id);
        // Who watches hears of each such row once, and never of what the rules themselves hold.
        let held = matches!(outcome, FiringOutcome::SkippedCalendar | FiringOutcome::SkippedWindow);
        if began && !held {
            self.tell_skipped(id, at, outcome);
        }
    }

    fn tell_skipped(&mut self, id: ScheduleId, scheduled_for: Timestamp, outcome: FiringOutcome) {
        let Some(schedule) = self.schedules.get(id) else { return };
        let name = Arc::clone(&schedule.name);
        let namespace = Some(Arc::clone(&schedule.namespace));
        let kind = EventKind::Skipped { schedule: id, name, scheduled_for, outcome };
        self.pending.events.push(Event { at: self.now, namespace, kind });
    }

    /// Ends the open record: what comes next stands alone, or begins another.
    pub(super) fn close_record(&mut self, id: ScheduleId) {
        let Some(schedule) = self.schedules.get_mut(id) else { return };
        let open = schedule.state.open_record.take();
        if std::mem::take(&mut schedule.record_dirty) {
            self.schedules.ledger.extend(open.map(|record| *record));
        }
    }

    pub(super) fn record_fired(
        &mut self,
        id: ScheduleId,
        firing: &Firing,
        outcome: FiringOutcome,
        work: Work,
    ) {
        self.count_firing(outcome);
        self.close_record(id);
        let mut record = self.single(id, firing.at, outcome, firing.cause, firing.detail.as_deref());
        record.generation = firing.generation;
        record.work = Some(work);
        self.schedules.ledger.push(record);
    }

    pub(super) fn record_buffered(&mut self, id: ScheduleId, firing: &Firing) {
        self.count_firing(FiringOutcome::Buffered);
        self.close_record(id);
        let outcome = FiringOutcome::Buffered;
        let record = self.single(id, firing.at, outcome, firing.cause, firing.detail.as_deref());
        self.schedules.ledger.push(record);
    }

    /// A firing that waited never gets its turn.
    pub(super) fn record_buffer_end(
        &mut self,
        id: ScheduleId,
        waiting: &BufferedFiring,
        outcome: FiringOutcome,
        detail: &str,
    ) {
        let detail = with_who(waiting.detail.as_deref(), detail);
        self.end_of_waiting(id, (waiting.scheduled_for, waiting.cause, waiting.generation), outcome, &detail);
    }

    /// A firing that waited got its turn, and created nothing.
    pub(super) fn record_waited_end(
        &mut self,
        id: ScheduleId,
        firing: &Firing,
        outcome: FiringOutcome,
        detail: &str,
    ) {
        let detail = with_who(firing.detail.as_deref(), detail);
        self.end_of_waiting(id, (firing.at, firing.cause, firing.generation), outcome, &detail);
    }

    fn end_of_waiting(
        &mut self,
        id: ScheduleId,
        (at, cause, generation): (Timestamp, FiringCause, u64),
        outcome: FiringOutcome,
        detail: &str,
    ) {
        self.count_firing(outcome);
        let mut record = self.single(id, at, outcome, cause, Some(detail));
        record.generation = generation;
        if let Some(schedule) = self.schedules.get_mut(id) {
            schedule.state.skipped += 1;
        }
        self.tell_skipped(id, at, outcome);
        self.schedules.ledger.push(record);
    }

    /// What a firing created expired before it could start: it was missed after all.
    pub(super) fn record_expired(&mut self, work: Work, origin: &Origin) {
        if origin.cause == FiringCause::Retry {
            return;
        }
        let outcome = FiringOutcome::SkippedDeadline;
        self.count_firing(outcome);
        let detail = Some(match work {
            Work::Job(_) => DetailCode::CouldNotStart.sentence(),
            Work::Run(_) => DetailCode::TurnDidNotCome.sentence(),
        });
        let mut record = self.single(origin.schedule, origin.scheduled_for, outcome, origin.cause, detail);
        record.generation = origin.generation;
        record.work = Some(work);
        self.schedules.ledger.push(record);
    }

    pub(super) fn count_firing(&mut self, outcome: FiringOutcome) {
        *self.schedules.firings.entry(outcome).or_default() += 1;
    }
}

/// What happened, after who asked for it, if somebody did.
pub(super) fn with_who(who: Option<&str>, what: &str) -> String {
    who.map_or_else(|| what.to_owned(), |who| format!("{who}; {what}"))
}

/// Whether a record goes on an open one.
fn continues(open: &LedgerRecord, next: &LedgerRecord) -> bool {
    open.generation == next.generation
        && open.outcome == next.outcome
        && open.cause == next.cause
        && open.detail == next.detail
        && open.exact
        && open.last < next.first
        // Manual ones are somebody's act, each for itself.
        && matches!(open.cause, FiringCause::Timer | FiringCause::CatchUp)
}
