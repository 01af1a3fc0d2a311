//! Encoding of jobs: head, state and history.
//!
//! The **head** is what only an update of the job changes: its spec as JSON, and what created it. Flags in
//! its first byte say which optional parts precede the JSON, so most heads are the JSON alone. The **state**
//! is what each transition changes, without the values that have columns of their own ([`StateColumns`]);
//! these are part of its checksum. The **history** has its own blob, which lists do not read.
//!
//! A new value of the state that few jobs have belongs into a further row after [`LossRow`]: jobs without it keep their
//! bytes, so existing files stay readable. `codec::tests` compares the bytes of existing files.

use std::borrow::Cow;
use std::sync::Arc;

use model::firing::Origin;
use model::record::{HistoryEntry, JobHead, JobState, Outcome};
use model::run::{ElementOrigin, StepOrigin};
use model::service::ReplicaOrigin;
use model::spec::{UpstreamCondition, UpstreamJob};
use model::{
    BackfillId, ExecutionId, Fence, JobId, JobSpec, JobStatus, RunId, ScheduleId, ServiceId, Timestamp,
    WorkerId,
};
use serde::{Deserialize, Serialize};

use super::checkpoint::CheckpointMetadataRow;
use super::{
    CRC_LEN, Context, DecodeError, FORMAT, NONE, OutcomeRow, RowsReader, RowsWriter, cause, firing_cause,
    firing_cause_code, id_bytes, ids_from, instant, job_status, micros, open, open_bytes, seal, seal_bytes,
};

/// Flag in the first byte of a head: the ID of the retried job follows.
const HAS_RETRY_OF: u8 = 1;
/// Flag in the first byte of a head: the schedule and scheduled time follow.
const HAS_ORIGIN: u8 = 2;
/// Flag in the first byte of a head: the workflow run and step follow.
const HAS_STEP: u8 = 4;
/// Flag in the first byte of a head: the service and the number of the replica follow.
const HAS_REPLICA: u8 = 8;

/// Schedule and scheduled time that created a job.
#[derive(Serialize, Deserialize)]
pub(super) struct OriginRow<'a> {
    schedule: [u8; 16],
    #[serde(borrow)]
    name: Cow<'a, str>,
    generation: u64,
    scheduled_for: i64,
    interval_start: Option<i64>,
    interval_end: i64,
    cause: u8,
    backfill: Option<[u8; 16]>,
    start_by: Option<i64>,
}

impl<'a> From<&'a Origin> for OriginRow<'a> {
    fn from(origin: &'a Origin) -> Self {
        Self {
            schedule: origin.schedule.to_bits().to_be_bytes(),
            name: Cow::Borrowed(&origin.name),
            generation: origin.generation,
            scheduled_for: origin.scheduled_for.as_micros(),
            interval_start: micros(origin.interval_start),
            interval_end: origin.interval_end.as_micros(),
            cause: firing_cause_code(origin.cause),
            backfill: origin.backfill.map(|id| id.to_bits().to_be_bytes()),
            start_by: micros(origin.start_by),
        }
    }
}

impl TryFrom<OriginRow<'_>> for Origin {
    type Error = DecodeError;

    fn try_from(row: OriginRow<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            schedule: ScheduleId::from_bits(u128::from_be_bytes(row.schedule)),
            name: row.name.into(),
            generation: row.generation,
            scheduled_for: Timestamp::from_micros(row.scheduled_for),
            interval_start: instant(row.interval_start),
            interval_end: Timestamp::from_micros(row.interval_end),
            cause: firing_cause(HEAD, row.cause)?,
            backfill: row.backfill.map(|id| BackfillId::from_bits(u128::from_be_bytes(id))),
            start_by: instant(row.start_by),
        })
    }
}

/// Workflow run and step that created a job.
#[derive(Serialize, Deserialize)]
struct StepRow<'a> {
    run: [u8; 16],
    #[serde(borrow)]
    workflow: Cow<'a, str>,
    #[serde(borrow)]
    name: Cow<'a, str>,
    step: u32,
    /// Index of the element, number of elements, and value.
    #[serde(borrow)]
    element: Option<(u32, u32, Cow<'a, str>)>,
}

impl<'a> From<&'a StepOrigin> for StepRow<'a> {
    fn from(step: &'a StepOrigin) -> Self {
        let item = step.element.as_ref();
        Self {
            run: step.run.to_bits().to_be_bytes(),
            workflow: Cow::Borrowed(&step.workflow),
            name: Cow::Borrowed(&step.name),
            step: step.step,
            element: item.map(|item| (item.index, item.total, Cow::Borrowed(&*item.value))),
        }
    }
}

impl From<StepRow<'_>> for StepOrigin {
    fn from(row: StepRow<'_>) -> Self {
        let element =
            row.element.map(|(index, total, value)| ElementOrigin { index, total, value: value.into() });
        Self {
            run: RunId::from_bits(u128::from_be_bytes(row.run)),
            workflow: row.workflow.into(),
            name: row.name.into(),
            step: row.step,
            element,
        }
    }
}

/// Replica of a service that a job is.
#[derive(Serialize, Deserialize)]
struct ReplicaRow<'a> {
    service: [u8; 16],
    #[serde(borrow)]
    name: Cow<'a, str>,
    revision: u64,
    replica: u32,
}

impl<'a> From<&'a ReplicaOrigin> for ReplicaRow<'a> {
    fn from(replica: &'a ReplicaOrigin) -> Self {
        Self {
            service: replica.service.to_bits().to_be_bytes(),
            name: Cow::Borrowed(&replica.name),
            revision: replica.revision,
            replica: replica.replica,
        }
    }
}

impl From<ReplicaRow<'_>> for ReplicaOrigin {
    fn from(row: ReplicaRow<'_>) -> Self {
        Self {
            service: ServiceId::from_bits(u128::from_be_bytes(row.service)),
            name: row.name.into(),
            revision: row.revision,
            replica: row.replica,
        }
    }
}

const HEAD: &str = "head";

/// Seals the head of a job, without the parsed spec.
pub(crate) fn seal_head(id: JobId, head: &JobHead) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(head.body.len() + 2 + 16 + 96 + CRC_LEN);
    let has = |there: bool, flag| if there { flag } else { 0 };
    bytes.push(FORMAT);
    bytes.push(
        has(head.retry_of.is_some(), HAS_RETRY_OF)
            | has(head.origin.is_some(), HAS_ORIGIN)
            | has(head.step.is_some(), HAS_STEP)
            | has(head.replica.is_some(), HAS_REPLICA),
    );
    if let Some(job) = head.retry_of {
        bytes.extend_from_slice(&job.to_bits().to_be_bytes());
    }
    if let Some(origin) = &head.origin {
        bytes = postcard::to_extend(&OriginRow::from(&**origin), bytes).expect("an origin is plain data");
    }
    if let Some(step) = &head.step {
        bytes = postcard::to_extend(&StepRow::from(&**step), bytes).expect("a step is plain data");
    }
    if let Some(replica) = &head.replica {
        bytes = postcard::to_extend(&ReplicaRow::from(&**replica), bytes).expect("a replica is plain data");
    }
    bytes.extend_from_slice(head.body.as_bytes());
    seal_bytes(Context::of(id.to_bits()), bytes)
}

/// Decoded head, whose spec is not parsed.
#[derive(Debug, PartialEq)]
pub(crate) struct DecodedHead<'a> {
    pub(crate) body: &'a str,
    pub(crate) retry_of: Option<JobId>,
    pub(crate) origin: Option<Arc<Origin>>,
    pub(crate) step: Option<Arc<StepOrigin>>,
    pub(crate) replica: Option<Arc<ReplicaOrigin>>,
}

/// Opens what [`seal_head`] sealed.
pub(crate) fn open_head(id: JobId, sealed: &[u8]) -> Result<DecodedHead<'_>, DecodeError> {
    let bytes = open_bytes(Context::of(id.to_bits()), HEAD, sealed)?;
    let short = || DecodeError::Short { column: HEAD, len: sealed.len() };
    let (&flags, mut rest) = bytes.split_first().ok_or_else(short)?;
    if flags & !(HAS_RETRY_OF | HAS_ORIGIN | HAS_STEP | HAS_REPLICA) != 0 {
        return Err(DecodeError::Value { column: HEAD, what: "set of flags", found: flags.into() });
    }
    let mut retry_of = None;
    if flags & HAS_RETRY_OF != 0 {
        let (job, behind) = rest.split_first_chunk::<16>().ok_or_else(short)?;
        (retry_of, rest) = (Some(JobId::from_bits(u128::from_be_bytes(*job))), behind);
    }
    let mut origin = None;
    if flags & HAS_ORIGIN != 0 {
        let (row, behind) = postcard::take_from_bytes::<OriginRow<'_>>(rest)
            .map_err(|error| DecodeError::decode(HEAD, error))?;
        (origin, rest) = (Some(Arc::new(Origin::try_from(row)?)), behind);
    }
    let mut step = None;
    if flags & HAS_STEP != 0 {
        let (row, behind) = postcard::take_from_bytes::<StepRow<'_>>(rest)
            .map_err(|error| DecodeError::decode(HEAD, error))?;
        (step, rest) = (Some(Arc::new(StepOrigin::from(row))), behind);
    }
    let mut replica = None;
    if flags & HAS_REPLICA != 0 {
        let (row, behind) = postcard::take_from_bytes::<ReplicaRow<'_>>(rest)
            .map_err(|error| DecodeError::decode(HEAD, error))?;
        (replica, rest) = (Some(Arc::new(ReplicaOrigin::from(row))), behind);
    }
    let body = str::from_utf8(rest).map_err(|error| DecodeError::decode(HEAD, error))?;
    Ok(DecodedHead { body, retry_of, origin, step, replica })
}

/// Parses the spec in a body.
pub(crate) fn parse_spec(body: &str) -> Result<JobSpec, DecodeError> {
    serde_json::from_str(body).map_err(|error| DecodeError::decode(HEAD, error))
}

/// State of a job without the values that have their own columns: status, worker, end of retention, history.
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

/// Indexed columns of a job's state.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StateColumns {
    pub(crate) status: u8,
    pub(crate) worker: Option<[u8; 16]>,
    pub(crate) expires_at: Option<i64>,
}

impl StateColumns {
    pub(crate) fn of(state: &JobState) -> Self {
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

/// Values that only few jobs have; follow the state.
#[derive(Default, Serialize, Deserialize)]
struct RareState<'a> {
    started: Option<Vec<[u8; 16]>>,
    #[serde(borrow)]
    checkpoint: Option<CheckpointMetadataRow<'a>>,
}

/// Losses and a passed completion deadline; follow the upstream jobs of a job that has either.
#[derive(Default, Serialize, Deserialize)]
struct LossRow {
    losses: u32,
    overdue: bool,
}

/// Upstream jobs that have not ended, each with the code of its condition; follow [`RareState`] while there are any.
type UpstreamRows = Vec<([u8; 16], u8)>;

fn upstream_row(of: &UpstreamJob) -> ([u8; 16], u8) {
    let condition = match of.condition {
        UpstreamCondition::Success => 0,
        UpstreamCondition::Failure => 1,
        UpstreamCondition::Any => 2,
    };
    (of.job.to_bits().to_be_bytes(), condition)
}

fn upstream_job((job, condition): ([u8; 16], u8)) -> Result<UpstreamJob, DecodeError> {
    let condition = match condition {
        0 => UpstreamCondition::Success,
        1 => UpstreamCondition::Failure,
        2 => UpstreamCondition::Any,
        found => {
            let what = "condition of an upstream job";
            return Err(DecodeError::Value { column: STATE, what, found: found.into() });
        }
    };
    Ok(UpstreamJob { job: JobId::from_bits(u128::from_be_bytes(job)), condition })
}

const STATE: &str = "state";

/// Seals the state of a job, without its history.
pub(crate) fn seal_state(id: JobId, columns: &StateColumns, state: &JobState) -> Vec<u8> {
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
        outcome: state.outcome.as_deref().map(OutcomeRow::from),
    };
    let behind = (!state.started.is_empty() || state.checkpoint.is_some()).then(|| RareState {
        started: id_bytes(&state.started),
        checkpoint: state.checkpoint.as_deref().map(CheckpointMetadataRow::from),
    });
    let upstream: Option<UpstreamRows> =
        (!state.upstream.is_empty()).then(|| state.upstream.iter().map(upstream_row).collect());
    let loss = (state.losses > 0 || state.overdue)
        .then_some(LossRow { losses: state.losses, overdue: state.overdue });
    let rows = RowsWriter::new(&row).then(behind.as_ref()).then(upstream.as_ref()).then(loss.as_ref());
    rows.seal(columns.context(id))
}

/// Opens what [`seal_state`] sealed; the history stays empty.
pub(crate) fn open_state(id: JobId, columns: &StateColumns, sealed: &[u8]) -> Result<JobState, DecodeError> {
    let mut rows = RowsReader::open(columns.context(id), STATE, sealed)?;
    let row: StateRow<'_> = rows.first()?;
    let behind: Option<RareState<'_>> = rows.optional()?;
    let upstream: Option<UpstreamRows> = rows.optional()?;
    let loss: Option<LossRow> = rows.optional()?;
    rows.end()?;
    let upstream = upstream.unwrap_or_default().into_iter().map(upstream_job);
    let RareState { started, checkpoint } = behind.unwrap_or_default();
    let LossRow { losses, overdue } = loss.unwrap_or_default();
    Ok(JobState {
        status: job_status("status", columns.status)?,
        version: row.version,
        updated_at: Timestamp::from_micros(row.updated_at),
        due_at: Timestamp::from_micros(row.due_at),
        upstream: upstream.collect::<Result<_, _>>()?,
        queued_at: instant(row.queued_at),
        started_at: instant(row.started_at),
        finished_at: instant(row.finished_at),
        executions: row.executions,
        run_failures: row.run_failures,
        start_failures: row.start_failures,
        losses,
        overdue,
        fence: Fence(row.fence),
        execution: row.execution.map(|id| ExecutionId::from_bits(u128::from_be_bytes(id))),
        worker: columns.worker.map(|id| WorkerId::from_bits(u128::from_be_bytes(id))),
        cancel_requested_at: instant(row.cancel_requested_at),
        outcome: row.outcome.map(|outcome| Box::new(Outcome::from(outcome))),
        history: Vec::new(),
        expires_at: instant(columns.expires_at),
        started: ids_from(started),
        checkpoint: checkpoint.map(|known| Box::new(known.into())),
    })
}

#[derive(Serialize, Deserialize)]
struct HistoryRow<'a> {
    /// Microseconds since the previous entry; a fraction of the bytes of the time itself.
    after: i64,
    from: u8,
    to: u8,
    cause: u8,
    execution: Option<u32>,
    #[serde(borrow)]
    detail: Option<Cow<'a, str>>,
}

/// Seals the transitions of a job.
pub(crate) fn seal_history(id: JobId, history: &[HistoryEntry]) -> Vec<u8> {
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

/// Opens what [`seal_history`] sealed.
pub(crate) fn open_history(id: JobId, sealed: &[u8]) -> Result<Vec<HistoryEntry>, DecodeError> {
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
