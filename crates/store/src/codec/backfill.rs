//! Encoding of backfills: request and progress.

use std::borrow::Cow;

use model::firing::{BackfillHead, BackfillState, BackfillStatus};
use model::schedule::OverlapPolicy;
use model::{BackfillId, ScheduleId, Timestamp};
use serde::{Deserialize, Serialize};

use super::{Context, DecodeError, instant, micros, open, seal};

/// Returns the code of a status. A code never changes its meaning.
pub(crate) const fn backfill_status_code(status: BackfillStatus) -> u8 {
    match status {
        BackfillStatus::Running => 0,
        BackfillStatus::Completed => 1,
        BackfillStatus::Cancelled => 2,
    }
}

const fn overlap_code(policy: OverlapPolicy) -> u8 {
    match policy {
        OverlapPolicy::Skip => 0,
        OverlapPolicy::BufferOne => 1,
        OverlapPolicy::BufferAll => 2,
        OverlapPolicy::CancelOther => 3,
        OverlapPolicy::TerminateOther => 4,
        OverlapPolicy::AllowAll => 5,
    }
}

const HEAD: &str = "head";

fn overlap(code: u8) -> Result<OverlapPolicy, DecodeError> {
    use OverlapPolicy::{AllowAll, BufferAll, BufferOne, CancelOther, Skip, TerminateOther};
    [Skip, BufferOne, BufferAll, CancelOther, TerminateOther, AllowAll]
        .into_iter()
        .find(|known| overlap_code(*known) == code)
        .ok_or(DecodeError::Value { column: HEAD, what: "overlap policy", found: code.into() })
}

/// Request of a backfill without its schedule, which has its own column. It never changes.
#[derive(Serialize, Deserialize)]
struct HeadRow<'a> {
    /// Microseconds since the previous scheduled time, and since the start of the data interval: a fraction of the
    /// bytes of the times themselves.
    scheduled_times: Vec<(i64, Option<i64>)>,
    from: i64,
    until: i64,
    concurrency: u32,
    overlap: u8,
    #[serde(borrow)]
    body: Cow<'a, str>,
    generation: u64,
    #[serde(borrow)]
    actor: Cow<'a, str>,
    #[serde(borrow)]
    note: Option<Cow<'a, str>>,
    created_at: i64,
}

fn head_context(id: BackfillId, schedule: ScheduleId) -> Context {
    Context::of(id.to_bits()).with(&schedule.to_bits().to_be_bytes())
}

/// Seals the request of a backfill.
pub(crate) fn seal_backfill_head(head: &BackfillHead) -> Vec<u8> {
    let mut before = 0;
    let scheduled_times = head.scheduled_times.iter().map(|(at, start)| {
        let at = at.as_micros();
        let after = at.wrapping_sub(before);
        before = at;
        (after, start.map(|start| at.wrapping_sub(start.as_micros())))
    });
    let row = HeadRow {
        scheduled_times: scheduled_times.collect(),
        from: head.from.as_micros(),
        until: head.until.as_micros(),
        concurrency: head.concurrency,
        body: Cow::Borrowed(&head.body),
        generation: head.generation,
        overlap: overlap_code(head.overlap),
        actor: Cow::Borrowed(&head.actor),
        note: head.note.as_deref().map(Cow::Borrowed),
        created_at: head.created_at.as_micros(),
    };
    seal(head_context(head.id, head.schedule), &row)
}

/// Opens what [`seal_backfill_head`] sealed.
pub(crate) fn open_backfill_head(
    id: BackfillId,
    schedule: ScheduleId,
    sealed: &[u8],
) -> Result<BackfillHead, DecodeError> {
    let row: HeadRow<'_> = open(head_context(id, schedule), HEAD, sealed)?;
    let mut at = 0i64;
    let scheduled_times = row.scheduled_times.into_iter().map(|(after, since_start)| {
        at = at.wrapping_add(after);
        let start = since_start.map(|since| Timestamp::from_micros(at.wrapping_sub(since)));
        (Timestamp::from_micros(at), start)
    });
    Ok(BackfillHead {
        id,
        schedule,
        scheduled_times: scheduled_times.collect(),
        from: Timestamp::from_micros(row.from),
        until: Timestamp::from_micros(row.until),
        concurrency: row.concurrency,
        body: row.body.into(),
        generation: row.generation,
        overlap: overlap(row.overlap)?,
        actor: row.actor.into(),
        note: row.note.map(Into::into),
        created_at: Timestamp::from_micros(row.created_at),
    })
}

/// Columns of a backfill's state.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BackfillColumns {
    pub(crate) status: u8,
    pub(crate) finished_at: Option<i64>,
}

impl BackfillColumns {
    pub(crate) fn of(state: &BackfillState) -> Self {
        Self { status: backfill_status_code(state.status), finished_at: micros(state.finished_at) }
    }

    fn context(&self, id: BackfillId) -> Context {
        Context::of(id.to_bits())
            .with(&[self.status])
            .with_optional(self.finished_at.map(i64::to_le_bytes).as_ref().map(|at| at.as_slice()))
    }
}

/// Number of runs that were started, that succeeded, and that failed.
#[derive(Serialize, Deserialize)]
struct StateRow {
    started: u32,
    succeeded: u32,
    failed: u32,
}

/// Seals the progress of a backfill.
pub(crate) fn seal_backfill(id: BackfillId, state: &BackfillState) -> Vec<u8> {
    let row = StateRow { started: state.started, succeeded: state.succeeded, failed: state.failed };
    seal(BackfillColumns::of(state).context(id), &row)
}

/// Opens what [`seal_backfill`] sealed.
pub(crate) fn open_backfill(
    id: BackfillId,
    columns: &BackfillColumns,
    sealed: &[u8],
) -> Result<BackfillState, DecodeError> {
    let row: StateRow = open(columns.context(id), "state", sealed)?;
    let status = [BackfillStatus::Running, BackfillStatus::Completed, BackfillStatus::Cancelled]
        .into_iter()
        .find(|known| backfill_status_code(*known) == columns.status)
        .ok_or(DecodeError::Value {
            column: "status",
            what: "status of a backfill",
            found: columns.status.into(),
        })?;
    Ok(BackfillState {
        status,
        started: row.started,
        succeeded: row.succeeded,
        failed: row.failed,
        finished_at: instant(columns.finished_at),
    })
}
