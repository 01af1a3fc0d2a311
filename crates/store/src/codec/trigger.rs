//! Encoding of the trigger of a run, and of the states of a workflow's triggers. Both follow a row, if there
//! are any.
//!
//! [`RunTriggerRow`] follows the head of a run: the ends that started it, and the chain of workflows before
//! it. [`TriggerStateRow`] follows the state of a workflow, one for each trigger: its counts, its last
//! refusal, and the ends that it has received while it waits for its other sources.
//!
//! These rows have no checksum of their own. The row that they follow covers them, with its context.

use std::borrow::Cow;
use std::sync::Arc;

use model::run::{Ended, PendingEnd, RunTrigger, TriggerRefusal, TriggerRefusalReason, TriggerState};
use model::{JobId, RunId, Timestamp};
use serde::{Deserialize, Serialize};

use super::{DecodeError, instant, job_status, micros};

const COLUMN: &str = "state";

type Id = [u8; 16];

fn run_id(id: Id) -> RunId {
    RunId::from_bits(u128::from_be_bytes(id))
}

#[derive(Serialize, Deserialize)]
struct EndedRow<'a> {
    job: Option<Id>,
    run: Option<Id>,
    #[serde(borrow)]
    name: Cow<'a, str>,
    status: u8,
    at: i64,
}

impl<'a> From<&'a Ended> for EndedRow<'a> {
    fn from(ended: &'a Ended) -> Self {
        Self {
            job: ended.job_id.map(|id| id.to_bits().to_be_bytes()),
            run: ended.run_id.map(|id| id.to_bits().to_be_bytes()),
            name: Cow::Borrowed(&ended.name),
            status: ended.status.code(),
            at: ended.at.as_micros(),
        }
    }
}

impl TryFrom<EndedRow<'_>> for Ended {
    type Error = DecodeError;

    fn try_from(row: EndedRow<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            job_id: row.job.map(|id| JobId::from_bits(u128::from_be_bytes(id))),
            run_id: row.run.map(run_id),
            name: row.name.into(),
            status: job_status(COLUMN, row.status)?,
            at: Timestamp::from_micros(row.at),
        })
    }
}

fn names(chain: &[Arc<str>]) -> Vec<Cow<'_, str>> {
    chain.iter().map(|name| Cow::Borrowed(&**name)).collect()
}

fn chain(names: Vec<Cow<'_, str>>) -> Vec<Arc<str>> {
    names.into_iter().map(Into::into).collect()
}

/// Trigger of a run.
#[derive(Serialize, Deserialize)]
pub(super) struct RunTriggerRow<'a> {
    number: u32,
    #[serde(borrow)]
    ended: Vec<EndedRow<'a>>,
    #[serde(borrow)]
    chain: Vec<Cow<'a, str>>,
}

impl<'a> From<&'a RunTrigger> for RunTriggerRow<'a> {
    fn from(trigger: &'a RunTrigger) -> Self {
        Self {
            number: trigger.number,
            ended: trigger.ended.iter().map(EndedRow::from).collect(),
            chain: names(&trigger.chain),
        }
    }
}

impl TryFrom<RunTriggerRow<'_>> for RunTrigger {
    type Error = DecodeError;

    fn try_from(row: RunTriggerRow<'_>) -> Result<Self, DecodeError> {
        let ended = row.ended.into_iter().map(Ended::try_from).collect::<Result<_, _>>()?;
        Ok(Self { number: row.number, ended, chain: chain(row.chain) })
    }
}

#[derive(Serialize, Deserialize)]
struct KeptRow<'a> {
    source: u32,
    #[serde(borrow)]
    ended: EndedRow<'a>,
    created_at: i64,
    scheduled_for: Option<i64>,
    interval_start: Option<i64>,
    #[serde(borrow)]
    output: Option<Cow<'a, str>>,
    #[serde(borrow)]
    chain: Vec<Cow<'a, str>>,
}

impl<'a> From<&'a PendingEnd> for KeptRow<'a> {
    fn from(kept: &'a PendingEnd) -> Self {
        Self {
            source: kept.source,
            ended: EndedRow::from(&kept.ended),
            created_at: kept.created_at.as_micros(),
            scheduled_for: micros(kept.scheduled_for),
            interval_start: micros(kept.interval_start),
            output: kept.output.as_deref().map(Cow::Borrowed),
            chain: names(&kept.chain),
        }
    }
}

impl TryFrom<KeptRow<'_>> for PendingEnd {
    type Error = DecodeError;

    fn try_from(row: KeptRow<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            source: row.source,
            ended: Ended::try_from(row.ended)?,
            created_at: Timestamp::from_micros(row.created_at),
            scheduled_for: instant(row.scheduled_for),
            interval_start: instant(row.interval_start),
            output: row.output.map(Into::into),
            chain: chain(row.chain),
        })
    }
}

#[derive(Serialize, Deserialize)]
struct RefusalRow<'a> {
    at: i64,
    #[serde(borrow)]
    ended: EndedRow<'a>,
    reason: u8,
    #[serde(borrow)]
    detail: Option<Cow<'a, str>>,
}

impl<'a> From<&'a TriggerRefusal> for RefusalRow<'a> {
    fn from(refusal: &'a TriggerRefusal) -> Self {
        Self {
            at: refusal.at.as_micros(),
            ended: EndedRow::from(&refusal.ended),
            reason: refusal.reason.code(),
            detail: refusal.detail.as_deref().map(Cow::Borrowed),
        }
    }
}

impl TryFrom<RefusalRow<'_>> for TriggerRefusal {
    type Error = DecodeError;

    fn try_from(row: RefusalRow<'_>) -> Result<Self, DecodeError> {
        let found = row.reason;
        let what = "reason of a skipped trigger";
        Ok(Self {
            at: Timestamp::from_micros(row.at),
            ended: Ended::try_from(row.ended)?,
            reason: TriggerRefusalReason::from_code(found).ok_or(DecodeError::Value {
                column: COLUMN,
                what,
                found: found.into(),
            })?,
            detail: row.detail.map(Into::into),
        })
    }
}

/// State of a trigger.
#[derive(Serialize, Deserialize)]
pub(super) struct TriggerStateRow<'a> {
    runs: u64,
    last_run: Option<Id>,
    refused: u64,
    #[serde(borrow)]
    last_refusal: Option<RefusalRow<'a>>,
    #[serde(borrow)]
    waiting_events: Vec<KeptRow<'a>>,
}

impl<'a> From<&'a TriggerState> for TriggerStateRow<'a> {
    fn from(state: &'a TriggerState) -> Self {
        Self {
            runs: state.runs,
            last_run: state.last_run.map(|id| id.to_bits().to_be_bytes()),
            refused: state.refused,
            last_refusal: state.last_refusal.as_deref().map(RefusalRow::from),
            waiting_events: state.waiting_events.iter().map(KeptRow::from).collect(),
        }
    }
}

impl TryFrom<TriggerStateRow<'_>> for TriggerState {
    type Error = DecodeError;

    fn try_from(row: TriggerStateRow<'_>) -> Result<Self, DecodeError> {
        let refusal = row.last_refusal.map(TriggerRefusal::try_from).transpose()?;
        Ok(Self {
            runs: row.runs,
            last_run: row.last_run.map(run_id),
            refused: row.refused,
            last_refusal: refusal.map(Box::new),
            waiting_events: row
                .waiting_events
                .into_iter()
                .map(PendingEnd::try_from)
                .collect::<Result<_, _>>()?,
        })
    }
}
