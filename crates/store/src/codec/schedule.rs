//! Encoding of schedules: head and state; and the context of calendars.
//!
//! The head is the spec as JSON, which only a change of the schedule writes. The state is written by every
//! firing: cursor, owed and buffered firings, statistics, and the ledger entry that is still being extended.
//! Status and next scheduled time have columns of their own ([`ScheduleColumns`]), which are part of its
//! checksum.
//!
//! The ledger entries and backfills themselves are encoded by a module of their own. Codes never change their
//! meaning; the bytes of existing files are compared in `codec::tests`.

use std::borrow::Cow;

use model::firing::{
    BufferedFiring, Gap, LedgerRecord, Pause, RunStatistics, ScheduleHead, ScheduleState, ScheduleStatus,
    Work,
};
use model::{BackfillId, JobId, RunId, ScheduleId, ScheduleSpec, Timestamp};
use serde::{Deserialize, Serialize};

use super::{
    Context, DecodeError, firing_cause, firing_cause_code, firing_outcome, firing_outcome_code, instant,
    micros, open, open_text, seal, seal_text,
};

/// Returns the code of a status. A code never changes its meaning.
pub(crate) const fn schedule_status_code(status: ScheduleStatus) -> u8 {
    match status {
        ScheduleStatus::Active => 0,
        ScheduleStatus::Paused => 1,
        ScheduleStatus::Completed => 2,
    }
}

/// Decodes the status in a column.
pub(crate) fn schedule_status(column: &'static str, code: u8) -> Result<ScheduleStatus, DecodeError> {
    [ScheduleStatus::Active, ScheduleStatus::Paused, ScheduleStatus::Completed]
        .into_iter()
        .find(|known| schedule_status_code(*known) == code)
        .ok_or(DecodeError::Value { column, what: "status of a schedule", found: code.into() })
}

/// Seals the body of a schedule.
pub(crate) fn seal_schedule_head(id: ScheduleId, head: &ScheduleHead) -> Vec<u8> {
    seal_text(Context::of(id.to_bits()), &head.body)
}

/// Opens what [`seal_schedule_head`] sealed.
pub(crate) fn open_schedule_head(id: ScheduleId, sealed: &[u8]) -> Result<&str, DecodeError> {
    open_text(Context::of(id.to_bits()), "head", sealed)
}

/// Parses the spec in a body.
pub(crate) fn parse_schedule_spec(body: &str) -> Result<ScheduleSpec, DecodeError> {
    serde_json::from_str(body).map_err(|error| DecodeError::decode("head", error))
}

/// Returns the key of a calendar as part of a checksum.
pub(crate) fn calendar_context(namespace: &str, name: &str) -> Context {
    Context::of_text(namespace).with(&[0]).with(name.as_bytes())
}

/// Indexed columns of a schedule's state.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ScheduleColumns {
    pub(crate) status: u8,
    pub(crate) next_at: Option<i64>,
}

impl ScheduleColumns {
    pub(crate) fn of(state: &ScheduleState) -> Self {
        Self { status: schedule_status_code(state.status), next_at: micros(state.next_at) }
    }

    fn context(&self, id: ScheduleId) -> Context {
        Context::of(id.to_bits())
            .with(&[self.status])
            .with_optional(self.next_at.map(i64::to_le_bytes).as_ref().map(|at| at.as_slice()))
    }
}

/// State of a schedule without status and next scheduled time, which have their own columns.
#[derive(Serialize, Deserialize)]
struct StateRow<'a> {
    generation: u64,
    version: u64,
    created_at: i64,
    updated_at: i64,
    #[serde(borrow)]
    pause: Option<PauseRow<'a>>,
    cursor: i64,
    owed: Vec<(i64, i64)>,
    previous: Option<i64>,
    delay_from: Option<i64>,
    fired: u64,
    skipped: u64,
    last: LastCreatedRow,
    last_manual: Option<i64>,
    #[serde(borrow)]
    buffer: Vec<BufferedRow<'a>>,
    #[serde(borrow)]
    open_record: Option<OpenRecordRow<'a>>,
    statistics: Option<TrackRow<'a>>,
}

/// Last job or run that a schedule created. "None" and a job have the encoding of an `Option` of a pair, as before the
/// introduction of runs.
#[derive(Serialize, Deserialize)]
enum LastCreatedRow {
    Nothing,
    Job(i64, [u8; 16]),
    Run(i64, [u8; 16]),
}

impl From<Option<(Timestamp, Work)>> for LastCreatedRow {
    fn from(last: Option<(Timestamp, Work)>) -> Self {
        match last.map(|(at, work)| (at.as_micros(), work)) {
            None => Self::Nothing,
            Some((at, Work::Job(job))) => Self::Job(at, job.to_bits().to_be_bytes()),
            Some((at, Work::Run(run))) => Self::Run(at, run.to_bits().to_be_bytes()),
        }
    }
}

impl LastCreatedRow {
    fn into_last(self) -> Option<(Timestamp, Work)> {
        let (at, work) = match self {
            Self::Nothing => return None,
            Self::Job(at, id) => (at, JobId::from_bits(u128::from_be_bytes(id)).into()),
            Self::Run(at, id) => (at, RunId::from_bits(u128::from_be_bytes(id)).into()),
        };
        Some((Timestamp::from_micros(at), work))
    }
}

#[derive(Serialize, Deserialize)]
struct PauseRow<'a> {
    at: i64,
    #[serde(borrow)]
    by: Cow<'a, str>,
    #[serde(borrow)]
    note: Option<Cow<'a, str>>,
}

impl<'a> From<&'a Pause> for PauseRow<'a> {
    fn from(pause: &'a Pause) -> Self {
        Self {
            at: pause.at.as_micros(),
            by: Cow::Borrowed(&pause.by),
            note: pause.note.as_deref().map(Cow::Borrowed),
        }
    }
}

impl From<PauseRow<'_>> for Pause {
    fn from(row: PauseRow<'_>) -> Self {
        Self { at: Timestamp::from_micros(row.at), by: row.by.into(), note: row.note.map(Into::into) }
    }
}

#[derive(Serialize, Deserialize)]
struct BufferedRow<'a> {
    scheduled_for: i64,
    cause: u8,
    generation: u64,
    #[serde(borrow)]
    detail: Option<Cow<'a, str>>,
    key: Option<([u8; 16], [u8; 16])>,
}

impl<'a> From<&'a BufferedFiring> for BufferedRow<'a> {
    fn from(firing: &'a BufferedFiring) -> Self {
        Self {
            scheduled_for: firing.scheduled_for.as_micros(),
            cause: firing_cause_code(firing.cause),
            generation: firing.generation,
            detail: firing.detail.as_deref().map(Cow::Borrowed),
            key: firing.key.map(|(key, body)| (key.to_be_bytes(), body.to_be_bytes())),
        }
    }
}

impl TryFrom<BufferedRow<'_>> for BufferedFiring {
    type Error = DecodeError;

    fn try_from(row: BufferedRow<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            scheduled_for: Timestamp::from_micros(row.scheduled_for),
            cause: firing_cause(STATE, row.cause)?,
            generation: row.generation,
            detail: row.detail.map(Into::into),
            key: row.key.map(|(key, body)| (u128::from_be_bytes(key), u128::from_be_bytes(body))),
        })
    }
}

fn gap((after, until): (i64, i64)) -> Gap {
    Gap { after: Timestamp::from_micros(after), until: Timestamp::from_micros(until) }
}

/// Ledger entry; its schedule is the one with this state.
#[derive(Serialize, Deserialize)]
struct OpenRecordRow<'a> {
    generation: u64,
    first: i64,
    last: i64,
    count: u64,
    exact: bool,
    outcome: u8,
    cause: u8,
    backfill: Option<[u8; 16]>,
    job: Option<[u8; 16]>,
    decided_at: i64,
    #[serde(borrow)]
    detail: Option<Cow<'a, str>>,
    #[serde(borrow)]
    tzdb: Cow<'a, str>,
}

impl<'a> From<&'a LedgerRecord> for OpenRecordRow<'a> {
    fn from(record: &'a LedgerRecord) -> Self {
        Self {
            generation: record.generation,
            first: record.first.as_micros(),
            last: record.last.as_micros(),
            count: record.count,
            exact: record.exact,
            outcome: firing_outcome_code(record.outcome),
            cause: firing_cause_code(record.cause),
            backfill: record.backfill.map(|id| id.to_bits().to_be_bytes()),
            // An open entry has only scheduled times that created nothing.
            job: record.work.and_then(Work::job).map(|id| id.to_bits().to_be_bytes()),
            decided_at: record.decided_at.as_micros(),
            detail: record.detail.as_deref().map(Cow::Borrowed),
            tzdb: Cow::Borrowed(&record.tzdb),
        }
    }
}

impl OpenRecordRow<'_> {
    fn into_record(self, schedule: ScheduleId) -> Result<LedgerRecord, DecodeError> {
        Ok(LedgerRecord {
            schedule,
            generation: self.generation,
            first: Timestamp::from_micros(self.first),
            last: Timestamp::from_micros(self.last),
            count: self.count,
            exact: self.exact,
            outcome: firing_outcome(STATE, self.outcome)?,
            cause: firing_cause(STATE, self.cause)?,
            backfill: self.backfill.map(|id| BackfillId::from_bits(u128::from_be_bytes(id))),
            work: self.job.map(|id| JobId::from_bits(u128::from_be_bytes(id)).into()),
            decided_at: Timestamp::from_micros(self.decided_at),
            detail: self.detail.map(Into::into),
            tzdb: self.tzdb.into(),
        })
    }
}

#[derive(Serialize, Deserialize)]
struct TrackRow<'a> {
    succeeded: u64,
    failed: u64,
    streak: i32,
    durations: Cow<'a, [u32]>,
}

impl<'a> From<&'a RunStatistics> for TrackRow<'a> {
    fn from(track: &'a RunStatistics) -> Self {
        Self {
            succeeded: track.succeeded,
            failed: track.failed,
            streak: track.streak,
            durations: Cow::Borrowed(&track.durations),
        }
    }
}

impl From<TrackRow<'_>> for RunStatistics {
    fn from(row: TrackRow<'_>) -> Self {
        Self {
            succeeded: row.succeeded,
            failed: row.failed,
            streak: row.streak,
            durations: row.durations.into_owned(),
        }
    }
}

const STATE: &str = "state";

/// Seals the state of a schedule.
pub(crate) fn seal_schedule(id: ScheduleId, columns: &ScheduleColumns, state: &ScheduleState) -> Vec<u8> {
    debug_assert!(state.open_record.as_ref().is_none_or(|record| record.schedule == id));
    let row = StateRow {
        generation: state.generation,
        version: state.version,
        created_at: state.created_at.as_micros(),
        updated_at: state.updated_at.as_micros(),
        pause: state.pause.as_deref().map(PauseRow::from),
        cursor: state.cursor.as_micros(),
        owed: state.owed.iter().map(|gap| (gap.after.as_micros(), gap.until.as_micros())).collect(),
        previous: micros(state.previous),
        delay_from: micros(state.delay_from),
        fired: state.fired,
        skipped: state.skipped,
        last: state.last.into(),
        last_manual: micros(state.last_manual),
        buffer: state.buffer.iter().map(BufferedRow::from).collect(),
        open_record: state.open_record.as_deref().map(OpenRecordRow::from),
        statistics: state.statistics.as_deref().map(TrackRow::from),
    };
    seal(columns.context(id), &row)
}

/// Opens what [`seal_schedule`] sealed.
pub(crate) fn open_schedule(
    id: ScheduleId,
    columns: &ScheduleColumns,
    sealed: &[u8],
) -> Result<ScheduleState, DecodeError> {
    let row: StateRow<'_> = open(columns.context(id), STATE, sealed)?;
    let open_record = row.open_record.map(|record| record.into_record(id)).transpose()?;
    Ok(ScheduleState {
        generation: row.generation,
        version: row.version,
        created_at: Timestamp::from_micros(row.created_at),
        updated_at: Timestamp::from_micros(row.updated_at),
        status: schedule_status("status", columns.status)?,
        pause: row.pause.map(|pause| Box::new(pause.into())),
        cursor: Timestamp::from_micros(row.cursor),
        owed: row.owed.into_iter().map(gap).collect(),
        previous: instant(row.previous),
        delay_from: instant(row.delay_from),
        next_at: instant(columns.next_at),
        fired: row.fired,
        skipped: row.skipped,
        last: row.last.into_last(),
        last_manual: instant(row.last_manual),
        buffer: row.buffer.into_iter().map(BufferedFiring::try_from).collect::<Result<_, _>>()?,
        open_record: open_record.map(Box::new),
        statistics: row.statistics.map(|track| Box::new(track.into())),
    })
}
