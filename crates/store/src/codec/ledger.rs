//! Encoding of ledger entries.

use std::borrow::Cow;

use model::firing::{FiringOutcome, LedgerRecord, Work};
use model::{BackfillId, JobId, RunId, ScheduleId, Timestamp};
use serde::{Deserialize, Serialize};

use super::{Context, DecodeError, firing_cause, firing_cause_code, open, seal};

/// Returns the code of an outcome. A code never changes its meaning.
pub(crate) const fn firing_outcome_code(outcome: FiringOutcome) -> u8 {
    match outcome {
        FiringOutcome::Fired => 0,
        FiringOutcome::FiredLate => 1,
        FiringOutcome::Buffered => 2,
        FiringOutcome::Coalesced => 3,
        FiringOutcome::SkippedOverlap => 4,
        FiringOutcome::SkippedCalendar => 5,
        FiringOutcome::SkippedWindow => 6,
        FiringOutcome::SkippedPause => 7,
        FiringOutcome::SkippedDeadline => 8,
        FiringOutcome::SkippedPolicy => 9,
        FiringOutcome::SkippedReplaced => 10,
        FiringOutcome::SkippedLimit => 11,
        FiringOutcome::NotStarted => 12,
    }
}

/// Returns the outcome with this code, if there is one.
pub(crate) fn firing_outcome_from(code: u8) -> Option<FiringOutcome> {
    FiringOutcome::ALL.into_iter().find(|known| firing_outcome_code(*known) == code)
}

/// Decodes the outcome in a column.
pub(crate) fn firing_outcome(column: &'static str, code: u8) -> Result<FiringOutcome, DecodeError> {
    firing_outcome_from(code).ok_or(DecodeError::Value {
        column,
        what: "outcome of a firing",
        found: code.into(),
    })
}

/// Columns of a ledger entry.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LedgerColumns {
    pub(crate) first: i64,
    pub(crate) schedule: ScheduleId,
    pub(crate) generation: u64,
    pub(crate) cause: u8,
    pub(crate) backfill: Option<BackfillId>,
    pub(crate) last: i64,
    pub(crate) count: u64,
    pub(crate) outcome: u8,
    /// Bits of the ID of the created job or run.
    pub(crate) work: Option<u128>,
    pub(crate) decided_at: i64,
}

impl LedgerColumns {
    pub(crate) fn of(record: &LedgerRecord) -> Self {
        Self {
            first: record.first.as_micros(),
            schedule: record.schedule,
            generation: record.generation,
            cause: firing_cause_code(record.cause),
            backfill: record.backfill,
            last: record.last.as_micros(),
            count: record.count,
            outcome: firing_outcome_code(record.outcome),
            work: record.work.map(Work::to_bits),
            decided_at: record.decided_at.as_micros(),
        }
    }

    fn context(&self) -> Context {
        let bytes = |bits: Option<u128>| bits.map(u128::to_be_bytes);
        Context::of(self.schedule.to_bits())
            .with_number(self.first.cast_unsigned())
            .with_number(self.generation)
            .with(&[self.cause, self.outcome])
            .with_optional(bytes(self.backfill.map(BackfillId::to_bits)).as_ref().map(<[u8; 16]>::as_slice))
            .with_number(self.last.cast_unsigned())
            .with_number(self.count)
            .with_optional(bytes(self.work).as_ref().map(<[u8; 16]>::as_slice))
            .with_number(self.decided_at.cast_unsigned())
    }
}

/// Flag: the number of scheduled times is exact. An entry from before the introduction of runs has this flag or none:
/// the field was a `bool`, whose encoding is the same.
const EXACT: u8 = 1;
/// Flag: the entry created a run, not a job.
const IS_RUN: u8 = 2;

/// Fields of a ledger entry without their own columns.
#[derive(Serialize, Deserialize)]
struct LedgerRest<'a> {
    /// Sum of [`EXACT`] and [`IS_RUN`].
    flags: u8,
    #[serde(borrow)]
    detail: Option<Cow<'a, str>>,
    #[serde(borrow)]
    tzdb: Cow<'a, str>,
}

/// Seals the fields of a ledger entry without their own columns.
pub(crate) fn seal_ledger(record: &LedgerRecord) -> Vec<u8> {
    let is_run = record.work.and_then(Work::run).is_some();
    let rest = LedgerRest {
        flags: if record.exact { EXACT } else { 0 } + if is_run { IS_RUN } else { 0 },
        detail: record.detail.as_deref().map(Cow::Borrowed),
        tzdb: Cow::Borrowed(&record.tzdb),
    };
    seal(LedgerColumns::of(record).context(), &rest)
}

/// Opens what [`seal_ledger`] sealed, and adds the columns.
pub(crate) fn open_ledger(columns: &LedgerColumns, sealed: &[u8]) -> Result<LedgerRecord, DecodeError> {
    const REST: &str = "rest";
    let rest: LedgerRest<'_> = open(columns.context(), REST, sealed)?;
    if rest.flags > EXACT + IS_RUN {
        return Err(DecodeError::Value {
            column: REST,
            what: "type of ledger entry",
            found: rest.flags.into(),
        });
    }
    let is_run = rest.flags & IS_RUN != 0;
    let work_of = |bits| if is_run { RunId::from_bits(bits).into() } else { JobId::from_bits(bits).into() };
    Ok(LedgerRecord {
        schedule: columns.schedule,
        generation: columns.generation,
        first: Timestamp::from_micros(columns.first),
        last: Timestamp::from_micros(columns.last),
        count: columns.count,
        exact: rest.flags & EXACT != 0,
        outcome: firing_outcome("outcome", columns.outcome)?,
        cause: firing_cause("cause", columns.cause)?,
        backfill: columns.backfill,
        work: columns.work.map(work_of),
        decided_at: Timestamp::from_micros(columns.decided_at),
        detail: rest.detail.map(Into::into),
        tzdb: rest.tzdb.into(),
    })
}
