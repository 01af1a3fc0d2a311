//! Lines of the fire ledger.

use std::borrow::Cow;

use model::firing::{FiringOutcome, LedgerRecord};
use model::{BackfillId, JobId, ScheduleId, Timestamp};
use serde::{Deserialize, Serialize};

use super::{Context, Damage, firing_cause, firing_cause_code, open, seal};

/// The code of an outcome; never another meaning for the same code.
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
        FiringOutcome::Shed => 11,
    }
}

/// The outcome with this code, if there is one.
pub(crate) fn firing_outcome_from(code: u8) -> Option<FiringOutcome> {
    FiringOutcome::ALL.into_iter().find(|known| firing_outcome_code(*known) == code)
}

/// The outcome that a column holds.
pub(crate) fn firing_outcome(column: &'static str, code: u8) -> Result<FiringOutcome, Damage> {
    firing_outcome_from(code).ok_or(Damage::Value { column, what: "outcome of a firing", found: code.into() })
}

/// The columns of a line.
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
    pub(crate) job: Option<JobId>,
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
            job: record.job,
            decided_at: record.decided_at.as_micros(),
        }
    }

    /// The key's part that is empty where there is no backfill.
    pub(crate) fn backfill_key(&self) -> Vec<u8> {
        self.backfill.map(|id| id.to_bits().to_be_bytes().to_vec()).unwrap_or_default()
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
            .with_optional(bytes(self.job.map(JobId::to_bits)).as_ref().map(<[u8; 16]>::as_slice))
            .with_number(self.decided_at.cast_unsigned())
    }
}

/// What of a line stands in no column.
#[derive(Serialize, Deserialize)]
struct LedgerRest<'a> {
    exact: bool,
    #[serde(borrow)]
    detail: Option<Cow<'a, str>>,
    #[serde(borrow)]
    tzdb: Cow<'a, str>,
}

/// All of a line that stands in no column.
pub(crate) fn seal_ledger(record: &LedgerRecord) -> Vec<u8> {
    let rest = LedgerRest {
        exact: record.exact,
        detail: record.detail.as_deref().map(Cow::Borrowed),
        tzdb: Cow::Borrowed(&record.tzdb),
    };
    seal(LedgerColumns::of(record).context(), &rest)
}

/// The whole line.
pub(crate) fn open_ledger(columns: &LedgerColumns, sealed: &[u8]) -> Result<LedgerRecord, Damage> {
    let rest: LedgerRest<'_> = open(columns.context(), "rest", sealed)?;
    Ok(LedgerRecord {
        schedule: columns.schedule,
        generation: columns.generation,
        first: Timestamp::from_micros(columns.first),
        last: Timestamp::from_micros(columns.last),
        count: columns.count,
        exact: rest.exact,
        outcome: firing_outcome("outcome", columns.outcome)?,
        cause: firing_cause("cause", columns.cause)?,
        backfill: columns.backfill,
        job: columns.job,
        decided_at: Timestamp::from_micros(columns.decided_at),
        detail: rest.detail.map(Into::into),
        tzdb: rest.tzdb.into(),
    })
}
