//! Jobs: what they were asked to be, where they stand, and how they got there.

use std::borrow::Cow;

use model::record::{HistoryEntry, JobHead, JobState, Outcome};
use model::{ExecutionId, Fence, JobId, JobSpec, JobStatus, Timestamp, WorkerId};
use serde::{Deserialize, Serialize};

use super::{
    CRC_LEN, Context, Damage, FORMAT, NONE, OutcomeRow, cause, instant, job_status, micros, open, open_bytes,
    seal, seal_bytes,
};

/// The body of a job and the job that it repeats, apart from the parsed spec.
pub(in crate::sqlite) fn seal_head(id: JobId, head: &JobHead) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(head.body.len() + 2 + 16 + CRC_LEN);
    bytes.push(FORMAT);
    match head.retry_of {
        Some(job) => {
            bytes.push(1);
            bytes.extend_from_slice(&job.to_bits().to_be_bytes());
        }
        None => bytes.push(0),
    }
    bytes.extend_from_slice(head.body.as_bytes());
    seal_bytes(Context::of(id.to_bits()), bytes)
}

/// What [`seal_head`] sealed: the body and the job that it repeats.
pub(in crate::sqlite) fn open_head(id: JobId, sealed: &[u8]) -> Result<(&str, Option<JobId>), Damage> {
    const COLUMN: &str = "head";
    let bytes = open_bytes(Context::of(id.to_bits()), COLUMN, sealed)?;
    let short = || Damage::Short { column: COLUMN, len: sealed.len() };
    let (flag, rest) = bytes.split_first().ok_or_else(short)?;
    let (retry_of, body) = match flag {
        0 => (None, rest),
        _ => {
            let (job, body) = rest.split_first_chunk::<16>().ok_or_else(short)?;
            (Some(JobId::from_bits(u128::from_be_bytes(*job))), body)
        }
    };
    let body = str::from_utf8(body).map_err(|error| Damage::decode(COLUMN, error))?;
    Ok((body, retry_of))
}

/// The spec in a body.
pub(in crate::sqlite) fn parse_spec(body: &str) -> Result<JobSpec, Damage> {
    serde_json::from_str(body).map_err(|error| Damage::decode("head", error))
}

/// A job's state without what stands in columns: status, worker, end of retention, history.
#[derive(Serialize, Deserialize)]
struct StateRow<'a> {
    version: u64,
    updated_at: i64,
    due_at: i64,
    queued_at: Option<i64>,
    started_at: Option<i64>,
    finished_at: Option<i64>,
    executions: u32,
    run_failures: u32,
    start_failures: u32,
    fence: u64,
    execution: Option<[u8; 16]>,
    cancel_requested_at: Option<i64>,
    #[serde(borrow)]
    outcome: Option<OutcomeRow<'a>>,
}

/// The columns of a job's state that lists search by.
#[derive(Debug, Clone, Copy)]
pub(in crate::sqlite) struct StateColumns {
    pub(in crate::sqlite) status: u8,
    pub(in crate::sqlite) worker: Option<[u8; 16]>,
    pub(in crate::sqlite) expires_at: Option<i64>,
}

impl StateColumns {
    pub(in crate::sqlite) fn of(state: &JobState) -> Self {
        Self {
            status: state.status.code(),
            worker: state.worker.map(|worker| worker.to_bits().to_be_bytes()),
            expires_at: micros(state.expires_at),
        }
    }

    fn context(&self, id: JobId) -> Context {
        Context::of(id.to_bits())
            .with(&[self.status])
            .with_optional(self.worker.as_ref().map(|worker| worker.as_slice()))
            .with_optional(self.expires_at.map(i64::to_le_bytes).as_ref().map(|at| at.as_slice()))
    }
}

/// A job's state without its history.
pub(in crate::sqlite) fn seal_state(id: JobId, columns: &StateColumns, state: &JobState) -> Vec<u8> {
    let row = StateRow {
        version: state.version,
        updated_at: state.updated_at.as_micros(),
        due_at: state.due_at.as_micros(),
        queued_at: micros(state.queued_at),
        started_at: micros(state.started_at),
        finished_at: micros(state.finished_at),
        executions: state.executions,
        run_failures: state.run_failures,
        start_failures: state.start_failures,
        fence: state.fence.0,
        execution: state.execution.map(|execution| execution.to_bits().to_be_bytes()),
        cancel_requested_at: micros(state.cancel_requested_at),
        outcome: state.outcome.as_ref().map(OutcomeRow::from),
    };
    seal(columns.context(id), &row)
}

/// A job's state; its history is left empty.
pub(in crate::sqlite) fn open_state(
    id: JobId,
    columns: &StateColumns,
    sealed: &[u8],
) -> Result<JobState, Damage> {
    let row: StateRow<'_> = open(columns.context(id), "state", sealed)?;
    Ok(JobState {
        status: job_status("status", columns.status)?,
        version: row.version,
        updated_at: Timestamp::from_micros(row.updated_at),
        due_at: Timestamp::from_micros(row.due_at),
        queued_at: instant(row.queued_at),
        started_at: instant(row.started_at),
        finished_at: instant(row.finished_at),
        executions: row.executions,
        run_failures: row.run_failures,
        start_failures: row.start_failures,
        fence: Fence(row.fence),
        execution: row.execution.map(|id| ExecutionId::from_bits(u128::from_be_bytes(id))),
        worker: columns.worker.map(|id| WorkerId::from_bits(u128::from_be_bytes(id))),
        cancel_requested_at: instant(row.cancel_requested_at),
        outcome: row.outcome.map(Outcome::from),
        history: Vec::new(),
        expires_at: instant(columns.expires_at),
    })
}

#[derive(Serialize, Deserialize)]
struct HistoryRow<'a> {
    /// Microseconds after the entry before; a fraction of the bytes of the instant itself.
    after: i64,
    from: u8,
    to: u8,
    cause: u8,
    execution: Option<u32>,
    #[serde(borrow)]
    detail: Option<Cow<'a, str>>,
}

/// The transitions of a job.
pub(in crate::sqlite) fn seal_history(id: JobId, history: &[HistoryEntry]) -> Vec<u8> {
    let mut before = 0;
    let rows: Vec<_> = history
        .iter()
        .map(|entry| {
            let at = entry.at.as_micros();
            let after = at.wrapping_sub(before);
            before = at;
            HistoryRow {
                after,
                from: entry.from.map_or(NONE, JobStatus::code),
                to: entry.to.code(),
                cause: entry.cause.code(),
                execution: entry.execution,
                detail: entry.detail.as_deref().map(Cow::Borrowed),
            }
        })
        .collect();
    seal(Context::of(id.to_bits()), &rows)
}

/// What [`seal_history`] sealed.
pub(in crate::sqlite) fn open_history(id: JobId, sealed: &[u8]) -> Result<Vec<HistoryEntry>, Damage> {
    const COLUMN: &str = "history";
    let rows: Vec<HistoryRow<'_>> = open(Context::of(id.to_bits()), COLUMN, sealed)?;
    let mut at = 0i64;
    rows.into_iter()
        .map(|row| {
            at = at.wrapping_add(row.after);
            Ok(HistoryEntry {
                at: Timestamp::from_micros(at),
                from: if row.from == NONE { None } else { Some(job_status(COLUMN, row.from)?) },
                to: job_status(COLUMN, row.to)?,
                cause: cause(COLUMN, row.cause)?,
                execution: row.execution,
                detail: row.detail.map(Into::into),
            })
        })
        .collect()
}
