//! Encoding of records into the bytes of a row, and decoding.
//!
//! Values that queries search for have their own columns; the rest of a record is one *sealed* blob. It consists of a
//! format byte, the [postcard](https://postcard.jamesmunns.com) encoding of a struct of this module, and a CRC-32 over
//! both and over the columns that belong to them. So a read detects a flipped bit, a blob under the wrong ID, and a
//! column that was changed by hand.
//!
//! The structs belong to the store: a change of the model's types does not change the format on disk. Statuses and
//! causes are stored as codes, which never change their meaning.

mod backfill;
mod checkpoint;
mod elements;
mod entry;
mod event;
mod execution;
mod failures;
mod job;
mod ledger;
mod run;
mod schedule;
mod service;
mod statistics;
#[cfg(feature = "postgres")]
mod touched;
mod trigger;

use std::borrow::Cow;

use crc32fast::Hasher;
use model::firing::FiringCause;
use model::record::Outcome;
use model::{Cause, JobStatus, RunId, Timestamp};
use serde::{Deserialize, Serialize};

pub(crate) use backfill::{
    BackfillColumns, open_backfill, open_backfill_head, seal_backfill, seal_backfill_head,
};
pub(crate) use checkpoint::{CheckpointColumns, open_checkpoint, seal_checkpoint};
pub(crate) use elements::{open_elements, seal_elements};
pub(crate) use entry::entry_checksum;
pub(crate) use event::{encode_events, open_events, seal_encoded_events, seal_events};
pub(crate) use execution::{ExecutionColumns, open_execution, seal_execution};
pub(crate) use failures::{open_group, seal_group, seal_mark};
pub(crate) use job::{
    DecodedHead, StateColumns, open_head, open_history, open_state, parse_spec, seal_head, seal_history,
    seal_state,
};
pub(crate) use ledger::{
    LedgerColumns, firing_outcome, firing_outcome_code, firing_outcome_from, open_ledger, seal_ledger,
};
pub(crate) use run::{
    NO_LIST, RunColumns, definition_hash, open_definition, open_run, open_run_head, open_step, open_workflow,
    open_workflow_head, run_status_column, seal_definition, seal_run, seal_run_head, seal_step,
    seal_workflow, seal_workflow_head, step_columns, step_key,
};
pub(crate) use schedule::{
    ScheduleColumns, calendar_context, open_schedule, open_schedule_head, parse_schedule_spec,
    schedule_status, schedule_status_code, seal_schedule, seal_schedule_head,
};
pub(crate) use service::{open_service, open_service_head, seal_service, seal_service_head};
pub(crate) use statistics::{
    ChunkKey, open_counted, open_points, seal_counted, seal_points, subject_columns, subject_from,
};
#[cfg(feature = "postgres")]
pub(crate) use touched::{open_touched, seal_touched};

const FORMAT: u8 = 1;
const CRC_LEN: usize = 4;
/// Code of "no previous status" in a history.
const NONE: u8 = u8::MAX;

/// Error of the decoding of a row.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum DecodeError {
    #[error("`{column}` is truncated to {len} bytes")]
    Short { column: &'static str, len: usize },
    #[error("the checksum of `{column}` does not match its content")]
    Checksum { column: &'static str },
    #[error("`{column}` has the unknown format {found}")]
    Format { column: &'static str, found: u8 },
    #[error("`{column}` cannot be decoded: {reason}")]
    Decode { column: &'static str, reason: String },
    #[error("`{column}` holds {found}, which is not a valid {what}")]
    Value { column: &'static str, what: &'static str, found: i64 },
}

impl DecodeError {
    pub(crate) fn decode(column: &'static str, reason: impl ToString) -> Self {
        Self::Decode { column, reason: reason.to_string() }
    }
}

/// Columns that a blob belongs to; part of its checksum.
pub(crate) struct Context(Hasher);

impl Context {
    pub(crate) fn of(id: u128) -> Self {
        Self(Hasher::new()).with(&id.to_be_bytes())
    }

    pub(crate) fn of_text(key: &str) -> Self {
        Self(Hasher::new()).with(key.as_bytes())
    }

    fn with(mut self, bytes: &[u8]) -> Self {
        self.0.update(bytes);
        self
    }

    fn with_number(self, number: u64) -> Self {
        self.with(&number.to_le_bytes())
    }

    fn with_optional(self, bytes: Option<&[u8]>) -> Self {
        match bytes {
            Some(bytes) => self.with(&[1]).with(bytes),
            None => self.with(&[0]),
        }
    }

    fn checksum(mut self, bytes: &[u8]) -> [u8; CRC_LEN] {
        self.0.update(bytes);
        self.0.finalize().to_le_bytes()
    }
}

fn seal_bytes(context: Context, mut bytes: Vec<u8>) -> Vec<u8> {
    let crc = context.checksum(&bytes);
    bytes.extend_from_slice(&crc);
    bytes
}

fn open_bytes<'a>(context: Context, column: &'static str, sealed: &'a [u8]) -> Result<&'a [u8], DecodeError> {
    let Some((bytes, crc)) = sealed.split_last_chunk::<CRC_LEN>().filter(|(bytes, _)| !bytes.is_empty())
    else {
        return Err(DecodeError::Short { column, len: sealed.len() });
    };
    if context.checksum(bytes) != *crc {
        return Err(DecodeError::Checksum { column });
    }
    match bytes[0] {
        FORMAT => Ok(&bytes[1..]),
        found => Err(DecodeError::Format { column, found }),
    }
}

fn seal<T: Serialize>(context: Context, value: &T) -> Vec<u8> {
    seal_bytes(context, encode(value))
}

/// Returns the content of a blob: the format byte and the value.
fn encode<T: Serialize>(value: &T) -> Vec<u8> {
    // Most records fit; growing the buffer byte by byte would be most of the cost.
    let mut bytes = Vec::with_capacity(160);
    bytes.push(FORMAT);
    extend(value, bytes)
}

fn open<'a, T: Deserialize<'a>>(
    context: Context,
    column: &'static str,
    sealed: &'a [u8],
) -> Result<T, DecodeError> {
    let bytes = open_bytes(context, column, sealed)?;
    match postcard::take_from_bytes(bytes) {
        Ok((value, [])) => Ok(value),
        Ok((_, rest)) => {
            Err(DecodeError::decode(column, format!("{} unexpected bytes at the end", rest.len())))
        }
        Err(error) => Err(DecodeError::decode(column, error)),
    }
}

/// Seals a value like [`seal`], followed by `more` if there is any. Rows without it keep their earlier format.
fn seal_with<T: Serialize, M: Serialize>(context: Context, value: &T, more: Option<&M>) -> Vec<u8> {
    let Some(more) = more else { return seal(context, value) };
    seal_bytes(context, extend(more, extend(value, vec![FORMAT])))
}

/// Opens what [`seal_with`] sealed.
fn open_with<'a, T: Deserialize<'a>, M: Deserialize<'a>>(
    context: Context,
    column: &'static str,
    sealed: &'a [u8],
) -> Result<(T, Option<M>), DecodeError> {
    let bytes = open_bytes(context, column, sealed)?;
    let (value, rest) =
        postcard::take_from_bytes(bytes).map_err(|error| DecodeError::decode(column, error))?;
    if rest.is_empty() {
        return Ok((value, None));
    }
    match postcard::take_from_bytes(rest) {
        Ok((more, [])) => Ok((value, Some(more))),
        Ok((_, rest)) => {
            Err(DecodeError::decode(column, format!("{} unexpected bytes at the end", rest.len())))
        }
        Err(error) => Err(DecodeError::decode(column, error)),
    }
}

/// Consecutive rows of one blob. Rows after the first one are optional: those that are absent at the end take no bytes,
/// and an absent row before a present one is written as its default. So a blob keeps its bytes when a row is added.
struct RowsWriter {
    bytes: Vec<u8>,
    /// Writers of the defaults of absent rows, which are written only before a present one.
    absent: [Option<WriteDefault>; ROWS_MAX],
}

/// Appends the default of a row to bytes.
type WriteDefault = fn(Vec<u8>) -> Vec<u8>;

/// Maximum number of optional rows of a blob.
const ROWS_MAX: usize = 4;

impl RowsWriter {
    fn new<T: Serialize>(first: &T) -> Self {
        // Most records fit; growing the buffer byte by byte would be most of the cost.
        let mut bytes = Vec::with_capacity(160);
        bytes.push(FORMAT);
        Self { bytes: extend(first, bytes), absent: [None; ROWS_MAX] }
    }

    fn then<T: Serialize + Default>(mut self, row: Option<&T>) -> Self {
        match row {
            None => {
                let free = self.absent.iter_mut().find(|writer| writer.is_none());
                *free.expect("a blob has at most `ROWS_MAX` optional rows") =
                    Some(|bytes| extend(&T::default(), bytes));
            }
            Some(row) => {
                let absent = std::mem::take(&mut self.absent).into_iter().flatten();
                self.bytes = absent.fold(self.bytes, |bytes, write| write(bytes));
                self.bytes = extend(row, self.bytes);
            }
        }
        self
    }

    fn seal(self, context: Context) -> Vec<u8> {
        seal_bytes(context, self.bytes)
    }
}

fn extend<T: Serialize>(row: &T, bytes: Vec<u8>) -> Vec<u8> {
    postcard::to_extend(row, bytes).expect("the row structs are plain data")
}

/// Reads what [`RowsWriter`] wrote, also blobs that were sealed before a row was added.
struct RowsReader<'a> {
    column: &'static str,
    rest: &'a [u8],
}

impl<'a> RowsReader<'a> {
    fn open(context: Context, column: &'static str, sealed: &'a [u8]) -> Result<Self, DecodeError> {
        Ok(Self { column, rest: open_bytes(context, column, sealed)? })
    }

    fn first<T: Deserialize<'a>>(&mut self) -> Result<T, DecodeError> {
        let (row, rest) =
            postcard::take_from_bytes(self.rest).map_err(|error| DecodeError::decode(self.column, error))?;
        self.rest = rest;
        Ok(row)
    }

    /// Returns the next row, or `None` if it and all later ones are absent. An absent row before a present one is returned
    /// as its default.
    fn optional<T: Deserialize<'a>>(&mut self) -> Result<Option<T>, DecodeError> {
        if self.rest.is_empty() { Ok(None) } else { self.first().map(Some) }
    }

    fn end(self) -> Result<(), DecodeError> {
        match self.rest {
            [] => Ok(()),
            rest => {
                Err(DecodeError::decode(self.column, format!("{} unexpected bytes at the end", rest.len())))
            }
        }
    }
}

/// Converts IDs that follow a row; `None` if there are none.
fn id_bytes(ids: &[RunId]) -> Option<Vec<[u8; 16]>> {
    let bytes = ids.iter().map(|id| id.to_bits().to_be_bytes());
    (!ids.is_empty()).then(|| bytes.collect())
}

/// Converts the output of [`id_bytes`] back.
fn ids_from<C: FromIterator<RunId>>(bytes: Option<Vec<[u8; 16]>>) -> C {
    bytes.into_iter().flatten().map(|id| RunId::from_bits(u128::from_be_bytes(id))).collect()
}

/// Seals text (a record as JSON) with its key.
pub(crate) fn seal_text(context: Context, text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len() + 1 + CRC_LEN);
    bytes.push(FORMAT);
    bytes.extend_from_slice(text.as_bytes());
    seal_bytes(context, bytes)
}

/// Opens what [`seal_text`] sealed.
pub(crate) fn open_text<'a>(
    context: Context,
    column: &'static str,
    sealed: &'a [u8],
) -> Result<&'a str, DecodeError> {
    str::from_utf8(open_bytes(context, column, sealed)?).map_err(|error| DecodeError::decode(column, error))
}

#[derive(Serialize, Deserialize)]
struct OutcomeRow<'a> {
    exit_code: Option<i32>,
    signal: Option<i32>,
    #[serde(borrow)]
    error: Option<Cow<'a, str>>,
    #[serde(borrow)]
    message: Option<Cow<'a, str>>,
    #[serde(borrow)]
    output: Option<Cow<'a, str>>,
}

impl<'a> From<&'a Outcome> for OutcomeRow<'a> {
    fn from(outcome: &'a Outcome) -> Self {
        Self {
            exit_code: outcome.exit_code,
            signal: outcome.signal,
            error: outcome.error.as_deref().map(Cow::Borrowed),
            message: outcome.message.as_deref().map(Cow::Borrowed),
            output: outcome.output.as_deref().map(Cow::Borrowed),
        }
    }
}

impl From<OutcomeRow<'_>> for Outcome {
    fn from(row: OutcomeRow<'_>) -> Self {
        Self {
            exit_code: row.exit_code,
            signal: row.signal,
            error: row.error.map(Into::into),
            message: row.message.map(Into::into),
            output: row.output.map(Into::into),
            files: None,
        }
    }
}

fn micros(at: Option<Timestamp>) -> Option<i64> {
    at.map(Timestamp::as_micros)
}

fn instant(micros: Option<i64>) -> Option<Timestamp> {
    micros.map(Timestamp::from_micros)
}

fn job_status(column: &'static str, code: u8) -> Result<JobStatus, DecodeError> {
    JobStatus::from_code(code).ok_or(DecodeError::Value {
        column,
        what: "status of a job",
        found: code.into(),
    })
}

/// Returns the code of a firing's cause. A code never changes its meaning.
pub(crate) const fn firing_cause_code(cause: FiringCause) -> u8 {
    match cause {
        FiringCause::Timer => 0,
        FiringCause::CatchUp => 1,
        FiringCause::Manual => 2,
        FiringCause::Backfill => 3,
        FiringCause::Retry => 4,
    }
}

pub(crate) fn firing_cause(column: &'static str, code: u8) -> Result<FiringCause, DecodeError> {
    use FiringCause::{Backfill, CatchUp, Manual, Retry, Timer};
    [Timer, CatchUp, Manual, Backfill, Retry]
        .into_iter()
        .find(|known| firing_cause_code(*known) == code)
        .ok_or(DecodeError::Value { column, what: "cause of a firing", found: code.into() })
}

fn cause(column: &'static str, code: u8) -> Result<Cause, DecodeError> {
    Cause::from_code(code).ok_or(DecodeError::Value { column, what: "cause", found: code.into() })
}

#[cfg(test)]
mod tests;
