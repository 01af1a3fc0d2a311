//! Encoding of workflows, their runs, and the steps of the runs.
//!
//! In this order: workflow state and spec, definitions, run heads, run states with their histories, steps.
//! Values with columns of their own are parts of the checksum.
//!
//! Many runs share a definition, so it is stored separately under the hash of its text.
//!
//! Structs that were added later follow the row that they extend and are missing in earlier rows
//! ([`RetryRow`], [`LateWorkersRow`], [`StepMoreRow`]). Likewise, a live status that was added later has a
//! negative number in its column, because statements rely on live statuses being lower than final ones.

use std::borrow::Cow;
use std::sync::Arc;

use model::firing::{Origin, Pause};
use model::run::{
    ApprovalRequest, Caller, ElementCounts, LateWorkers, RunCause, RunHead, RunHistoryEntry, RunRetry,
    RunState, RunStatus, RunTrigger, StepCause, StepDecision, StepKey, StepState, StepStatus, TriggerState,
    WorkflowHead, WorkflowState,
};
use model::workflow::{Definition, Section};
use model::{JobId, RunId, Timestamp, WorkflowId, WorkflowSpec};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::job::OriginRow;
use super::trigger::{RunTriggerRow, TriggerStateRow};
use super::{
    Context, DecodeError, NONE, RowsReader, RowsWriter, id_bytes, ids_from, instant, micros, open_text,
    open_with, seal_text, seal_with,
};

const STATE: &str = "state";
const HEAD: &str = "head";

type Id = [u8; 16];

fn from_text<'a, T: Deserialize<'a>>(column: &'static str, text: &'a str) -> Result<T, DecodeError> {
    serde_json::from_str(text).map_err(|error| DecodeError::decode(column, error))
}

fn run_id(id: Id) -> RunId {
    RunId::from_bits(u128::from_be_bytes(id))
}

fn value<T>(found: Option<T>, column: &'static str, what: &'static str, code: u8) -> Result<T, DecodeError> {
    found.ok_or(DecodeError::Value { column, what, found: code.into() })
}

fn run_cause(code: u8) -> Result<RunCause, DecodeError> {
    value(RunCause::from_code(code), STATE, "cause of a run", code)
}

fn run_status(code: u8) -> Result<RunStatus, DecodeError> {
    value(RunStatus::from_code(code), STATE, "status of a run", code)
}

fn step_cause(code: u8) -> Result<StepCause, DecodeError> {
    value(StepCause::from_code(code), STATE, "cause of a step", code)
}

fn step_status(column: &'static str, code: u8) -> Result<StepStatus, DecodeError> {
    value(StepStatus::from_code(code), column, "status of a step", code)
}

/// Returns the code of a section. A code never changes its meaning.
const fn section_code(section: Section) -> u8 {
    match section {
        Section::Steps => 0,
        Section::OnFailure => 1,
        Section::Finally => 2,
    }
}

fn section(code: u8) -> Result<Section, DecodeError> {
    let all = [Section::Steps, Section::OnFailure, Section::Finally];
    value(all.into_iter().find(|known| section_code(*known) == code), STATE, "section", code)
}

/// User, time and note of an action.
#[derive(Serialize, Deserialize)]
struct ActionRow<'a> {
    at: i64,
    #[serde(borrow)]
    by: Cow<'a, str>,
    #[serde(borrow)]
    note: Option<Cow<'a, str>>,
}

impl<'a> ActionRow<'a> {
    fn new(at: Timestamp, by: &'a str, note: Option<&'a str>) -> Self {
        Self { at: at.as_micros(), by: Cow::Borrowed(by), note: note.map(Cow::Borrowed) }
    }

    fn into_action(self) -> StepDecision {
        let Self { at, by, note } = self;
        StepDecision { at: Timestamp::from_micros(at), by: by.into(), note: note.map(Into::into) }
    }

    fn into_pause(self) -> Pause {
        let StepDecision { at, by, note } = self.into_action();
        Pause { at, by, note }
    }
}

/// State of a workflow without its generation, which has its own column.
#[derive(Serialize, Deserialize)]
struct WorkflowRow {
    version: u64,
    created_at: i64,
    updated_at: i64,
    runs: u64,
}

fn workflow_context(id: WorkflowId, generation: u64) -> Context {
    Context::of(id.to_bits()).with_number(generation)
}

/// Seals the state of a workflow. Its generation also has its own column.
pub(crate) fn seal_workflow(id: WorkflowId, state: &WorkflowState) -> Vec<u8> {
    let row = WorkflowRow {
        version: state.version,
        created_at: state.created_at.as_micros(),
        updated_at: state.updated_at.as_micros(),
        runs: state.runs,
    };
    let triggers: Vec<_> = state.triggers.iter().map(TriggerStateRow::from).collect();
    seal_with(workflow_context(id, state.generation), &row, Some(&triggers).filter(|rows| !rows.is_empty()))
}

/// Opens what [`seal_workflow`] sealed.
pub(crate) fn open_workflow(
    id: WorkflowId,
    generation: u64,
    sealed: &[u8],
) -> Result<WorkflowState, DecodeError> {
    let context = workflow_context(id, generation);
    let (row, triggers): (WorkflowRow, Option<Vec<TriggerStateRow<'_>>>) = open_with(context, STATE, sealed)?;
    let triggers = triggers.unwrap_or_default().into_iter().map(TriggerState::try_from);
    Ok(WorkflowState {
        generation,
        version: row.version,
        created_at: Timestamp::from_micros(row.created_at),
        updated_at: Timestamp::from_micros(row.updated_at),
        runs: row.runs,
        triggers: triggers.collect::<Result<_, _>>()?,
    })
}

/// Seals the spec of one generation of a workflow.
pub(crate) fn seal_workflow_head(id: WorkflowId, generation: u64, head: &WorkflowHead) -> Vec<u8> {
    seal_text(workflow_context(id, generation), &head.body)
}

/// Opens what [`seal_workflow_head`] sealed, and parses it.
pub(crate) fn open_workflow_head(
    id: WorkflowId,
    generation: u64,
    sealed: &[u8],
) -> Result<WorkflowHead, DecodeError> {
    let body = open_text(workflow_context(id, generation), HEAD, sealed)?;
    let spec: WorkflowSpec = from_text(HEAD, body)?;
    Ok(WorkflowHead { spec: Arc::new(spec), body: body.into() })
}

/// Returns the key of a definition: a hash of its text.
pub(crate) fn definition_hash(body: &str) -> u128 {
    let hash = Sha256::digest(body.as_bytes());
    let half: [u8; 16] = hash[..16].try_into().expect("it has 32 bytes");
    u128::from_be_bytes(half)
}

/// Seals a definition with its hash.
pub(crate) fn seal_definition(hash: u128, body: &str) -> Vec<u8> {
    seal_text(Context::of(hash), body)
}

/// Opens what [`seal_definition`] sealed, and parses it.
pub(crate) fn open_definition(hash: u128, sealed: &[u8]) -> Result<(Arc<Definition>, Arc<str>), DecodeError> {
    const BODY: &str = "body";
    let body = open_text(Context::of(hash), BODY, sealed)?;
    Ok((Arc::new(from_text(BODY, body)?), body.into()))
}

/// Head of a run without its definition.
#[derive(Serialize, Deserialize)]
struct HeadRow<'a> {
    workflow: Option<Id>,
    generation: u64,
    number: u64,
    /// Parameters as JSON.
    #[serde(borrow)]
    parameters: Cow<'a, str>,
    #[serde(borrow)]
    actor: Cow<'a, str>,
    #[serde(borrow)]
    note: Option<Cow<'a, str>>,
    caller: Option<(Id, u32, Option<u32>)>,
    retry_of: Option<Id>,
    priority: Option<u8>,
    #[serde(borrow)]
    origin: Option<OriginRow<'a>>,
}

fn head_context(id: RunId, definition: u128) -> Context {
    Context::of(id.to_bits()).with(&definition.to_be_bytes())
}

/// Seals the head of a run without its definition, whose hash has its own column.
pub(crate) fn seal_run_head(id: RunId, definition: u128, head: &RunHead) -> Vec<u8> {
    let row = HeadRow {
        workflow: head.workflow.map(|id| id.to_bits().to_be_bytes()),
        generation: head.generation,
        number: head.number,
        parameters: serde_json::to_string(&*head.parameters).expect("parameters are plain data").into(),
        actor: Cow::Borrowed(&head.actor),
        note: head.note.as_deref().map(Cow::Borrowed),
        caller: head.caller.map(|caller| (caller.run.to_bits().to_be_bytes(), caller.step, caller.element)),
        retry_of: head.retry_of.map(|id| id.to_bits().to_be_bytes()),
        priority: head.priority,
        origin: head.origin.as_deref().map(OriginRow::from),
    };
    let trigger = head.trigger.as_deref().map(RunTriggerRow::from);
    seal_with(head_context(id, definition), &row, trigger.as_ref())
}

/// Opens what [`seal_run_head`] sealed, and adds the definition.
pub(crate) fn open_run_head(
    id: RunId,
    hash: u128,
    sealed: &[u8],
    (definition, body): (Arc<Definition>, Arc<str>),
) -> Result<RunHead, DecodeError> {
    let (row, trigger): (HeadRow<'_>, Option<RunTriggerRow<'_>>) =
        open_with(head_context(id, hash), HEAD, sealed)?;
    let trigger = trigger.map(RunTrigger::try_from).transpose()?;
    let origin = row.origin.map(Origin::try_from).transpose()?;
    Ok(RunHead {
        workflow: row.workflow.map(|id| WorkflowId::from_bits(u128::from_be_bytes(id))),
        generation: row.generation,
        number: row.number,
        definition,
        body,
        parameters: Arc::new(from_text(HEAD, &row.parameters)?),
        actor: row.actor.into(),
        note: row.note.map(Into::into),
        caller: row.caller.map(|(run, step, item)| Caller { run: run_id(run), step, element: item }),
        retry_of: row.retry_of.map(run_id),
        priority: row.priority,
        origin: origin.map(Arc::new),
        trigger: trigger.map(Arc::new),
    })
}

/// State of a run without the values that have their own columns.
#[derive(Serialize, Deserialize)]
struct RunRow<'a> {
    section: u8,
    version: u64,
    created_at: i64,
    started_at: Option<i64>,
    finished_at: Option<i64>,
    updated_at: i64,
    #[serde(borrow)]
    pause: Option<ActionRow<'a>>,
    stopping: Option<u8>,
    skip_finally: bool,
    counts: [u32; 8],
    #[serde(borrow)]
    output: Option<Cow<'a, str>>,
    #[serde(borrow)]
    history: Vec<HistoryRow<'a>>,
}

/// Retries of a run; follows its row and the runs that its end triggered.
#[derive(Default, Serialize, Deserialize)]
struct RetryRow {
    failures: u32,
    next_at: Option<i64>,
    started_at: Option<i64>,
}

impl From<RunRetry> for RetryRow {
    fn from(retry: RunRetry) -> Self {
        let RunRetry { failures, next_at, started_at } = retry;
        Self { failures, next_at: micros(next_at), started_at: micros(started_at) }
    }
}

impl From<RetryRow> for RunRetry {
    fn from(row: RetryRow) -> Self {
        let RetryRow { failures, next_at, started_at } = row;
        Self { failures, next_at: instant(next_at), started_at: instant(started_at) }
    }
}

#[derive(Serialize, Deserialize)]
struct HistoryRow<'a> {
    at: i64,
    from: u8,
    to: u8,
    cause: u8,
    #[serde(borrow)]
    detail: Option<Cow<'a, str>>,
}

impl<'a> From<&'a RunHistoryEntry> for HistoryRow<'a> {
    fn from(entry: &'a RunHistoryEntry) -> Self {
        Self {
            at: entry.at.as_micros(),
            from: entry.from.map_or(NONE, RunStatus::code),
            to: entry.to.code(),
            cause: entry.cause.code(),
            detail: entry.detail.as_deref().map(Cow::Borrowed),
        }
    }
}

impl TryFrom<HistoryRow<'_>> for RunHistoryEntry {
    type Error = DecodeError;

    fn try_from(row: HistoryRow<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            at: Timestamp::from_micros(row.at),
            from: if row.from == NONE { None } else { Some(run_status(row.from)?) },
            to: run_status(row.to)?,
            cause: run_cause(row.cause)?,
            detail: row.detail.map(Into::into),
        })
    }
}

/// Indexed columns of a run's state.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RunColumns {
    pub(crate) status: i16,
    pub(crate) expires_at: Option<i64>,
}

/// Returns the value of the column `status` of a run. Statements and indexes rely on live statuses being lower than
/// final ones; a live status that was added later is negative.
pub(crate) const fn run_status_column(status: RunStatus) -> i16 {
    match status {
        RunStatus::Retrying => -1,
        other => other.code() as i16,
    }
}

fn status_of_column(found: i16) -> Result<RunStatus, DecodeError> {
    let known = RunStatus::ALL.iter().copied().find(|status| run_status_column(*status) == found);
    known.ok_or(DecodeError::Value { column: "status", what: "status of a run", found: found.into() })
}

impl RunColumns {
    pub(crate) fn of(state: &RunState) -> Self {
        Self { status: run_status_column(state.status), expires_at: micros(state.expires_at) }
    }

    fn context(&self, id: RunId) -> Context {
        Context::of(id.to_bits())
            // The same byte as before negative codes existed.
            .with(&self.status.to_le_bytes()[..1])
            .with_optional(self.expires_at.map(i64::to_le_bytes).as_ref().map(|at| at.as_slice()))
    }
}

/// Seals the state of a run.
pub(crate) fn seal_run(id: RunId, columns: &RunColumns, state: &RunState) -> Vec<u8> {
    let row = RunRow {
        section: section_code(state.section),
        version: state.version,
        created_at: state.created_at.as_micros(),
        started_at: micros(state.started_at),
        finished_at: micros(state.finished_at),
        updated_at: state.updated_at.as_micros(),
        pause: state.pause.as_ref().map(|pause| ActionRow::new(pause.at, &pause.by, pause.note.as_deref())),
        stopping: state.stopping.map(RunCause::code),
        skip_finally: state.skip_finally,
        counts: state.counts,
        output: state.output.as_deref().map(Cow::Borrowed),
        history: state.history.iter().map(HistoryRow::from).collect(),
    };
    let retry = state.retry.as_deref().map(|&retry| RetryRow::from(retry));
    let started = id_bytes(&state.started);
    RowsWriter::new(&row).then(started.as_ref()).then(retry.as_ref()).seal(columns.context(id))
}

/// Opens what [`seal_run`] sealed.
pub(crate) fn open_run(id: RunId, columns: &RunColumns, sealed: &[u8]) -> Result<RunState, DecodeError> {
    let mut rows = RowsReader::open(columns.context(id), STATE, sealed)?;
    let row: RunRow<'_> = rows.first()?;
    let started = rows.optional()?;
    let retry: Option<RetryRow> = rows.optional()?;
    rows.end()?;
    Ok(RunState {
        status: status_of_column(columns.status)?,
        section: section(row.section)?,
        version: row.version,
        created_at: Timestamp::from_micros(row.created_at),
        started_at: instant(row.started_at),
        finished_at: instant(row.finished_at),
        updated_at: Timestamp::from_micros(row.updated_at),
        pause: row.pause.map(|pause| Box::new(pause.into_pause())),
        stopping: row.stopping.map(run_cause).transpose()?,
        retry: retry.map(|retry| Box::new(retry.into())),
        skip_finally: row.skip_finally,
        counts: row.counts,
        output: row.output.map(Into::into),
        history: row.history.into_iter().map(RunHistoryEntry::try_from).collect::<Result<_, _>>()?,
        expires_at: instant(columns.expires_at),
        started: ids_from(started),
    })
}

/// Value of the column `list` in the row of a step itself, which is not an element.
pub(crate) const NO_LIST: i64 = -1;

/// Returns the columns `list` and `number` of a step, or of an element of a step.
pub(crate) fn step_columns(key: StepKey) -> (i64, i64) {
    let step = i64::from(key.step);
    key.item.map_or((NO_LIST, step), |item| (step, i64::from(item)))
}

/// Returns the key of the step, or of the element, from these columns.
pub(crate) fn step_key(run: RunId, list: i64, number: i64) -> Result<StepKey, DecodeError> {
    let part = |column, found: i64| {
        u32::try_from(found).map_err(|_| DecodeError::Value {
            column,
            what: "number of a step or element",
            found,
        })
    };
    let number = part("number", number)?;
    match list {
        NO_LIST => Ok(StepKey { run, step: number, item: None }),
        list => Ok(StepKey { run, step: part("list", list)?, item: Some(number) }),
    }
}

fn step_context(key: StepKey, status: u8) -> Context {
    let (list, number) = step_columns(key);
    Context::of(key.run.to_bits()).with(&list.to_le_bytes()).with(&number.to_le_bytes()).with(&[status])
}

/// State of a step without its status, which has its own column.
#[derive(Serialize, Deserialize)]
struct StepRow<'a> {
    cause: u8,
    job: Option<Id>,
    called: Option<Id>,
    started_at: Option<i64>,
    finished_at: Option<i64>,
    wake_at: Option<i64>,
    total: Option<u32>,
    #[serde(borrow)]
    items: Option<Cow<'a, str>>,
    #[serde(borrow)]
    output: Option<Cow<'a, str>>,
    #[serde(borrow)]
    message: Option<Cow<'a, str>>,
    #[serde(borrow)]
    decision: Option<ActionRow<'a>>,
    ending: Option<(u8, u8)>,
    element_counts: Option<(u32, u32)>,
}

/// Late workers; follows the row of a step if there are any.
#[derive(Default, Serialize, Deserialize)]
struct LateWorkersRow<'a> {
    count: u32,
    #[serde(borrow)]
    names: Vec<Cow<'a, str>>,
}

impl<'a> From<&'a LateWorkers> for LateWorkersRow<'a> {
    fn from(late: &'a LateWorkers) -> Self {
        Self {
            count: late.count,
            names: late.names.iter().map(|name| Cow::Borrowed(name.as_str())).collect(),
        }
    }
}

impl From<LateWorkersRow<'_>> for LateWorkers {
    fn from(row: LateWorkersRow<'_>) -> Self {
        Self { count: row.count, names: row.names.into_iter().map(Cow::into_owned).collect() }
    }
}

/// Further values of a step; follow its row and the late workers, if there are any. Each field is an option or a list.
/// A new field is added as a further row after this one.
#[derive(Default, Serialize, Deserialize)]
struct StepMoreRow<'a> {
    /// Ended run that the call continues, as JSON.
    #[serde(borrow)]
    continues: Option<Cow<'a, str>>,
    /// Question and approvers of an approval.
    #[serde(borrow)]
    asks: Option<ApprovalRow<'a>>,
    /// Artifact versions that the step stored, as JSON.
    #[serde(borrow)]
    files: Option<Cow<'a, str>>,
}

#[derive(Serialize, Deserialize)]
struct ApprovalRow<'a> {
    #[serde(borrow)]
    message: Option<Cow<'a, str>>,
    #[serde(borrow)]
    approvers: Vec<Cow<'a, str>>,
}

impl<'a> From<&'a ApprovalRequest> for ApprovalRow<'a> {
    fn from(asks: &'a ApprovalRequest) -> Self {
        Self {
            message: asks.message.as_deref().map(Cow::Borrowed),
            approvers: asks.approvers.iter().map(|name| Cow::Borrowed(name.as_str())).collect(),
        }
    }
}

impl From<ApprovalRow<'_>> for ApprovalRequest {
    fn from(row: ApprovalRow<'_>) -> Self {
        let approvers = row.approvers.into_iter().map(Cow::into_owned).collect();
        Self { message: row.message.map(Cow::into_owned), approvers }
    }
}

impl<'a> StepMoreRow<'a> {
    fn of(state: &'a StepState) -> Option<Self> {
        let continues = state.continues.as_deref();
        let continues =
            continues.map(|call| serde_json::to_string(call).expect("rows are plain data").into());
        let asks = state.asks.as_deref().map(ApprovalRow::from);
        let files = state.files.as_deref().map(Cow::Borrowed);
        let is_any = continues.is_some() || asks.is_some() || files.is_some();
        is_any.then_some(Self { continues, asks, files })
    }
}

/// Seals the state of a step, or of one element of it.
pub(crate) fn seal_step(key: StepKey, state: &StepState) -> Vec<u8> {
    let row = StepRow {
        cause: state.cause.code(),
        job: state.job.map(|id| id.to_bits().to_be_bytes()),
        called: state.called.map(|id| id.to_bits().to_be_bytes()),
        started_at: micros(state.started_at),
        finished_at: micros(state.finished_at),
        wake_at: micros(state.wake_at),
        total: state.total,
        items: state.items.as_deref().map(Cow::Borrowed),
        output: state.output.as_deref().map(Cow::Borrowed),
        message: state.message.as_deref().map(Cow::Borrowed),
        decision: state.decision.as_ref().map(|said| ActionRow::new(said.at, &said.by, said.note.as_deref())),
        ending: state.ending.map(|(status, cause)| (status.code(), cause.code())),
        element_counts: state.element_counts.map(|tally| (tally.succeeded, tally.failed)),
    };
    let late = state.late_workers.as_deref().map(LateWorkersRow::from);
    let more = StepMoreRow::of(state);
    let context = step_context(key, state.status.code());
    RowsWriter::new(&row).then(late.as_ref()).then(more.as_ref()).seal(context)
}

/// Opens what [`seal_step`] sealed.
pub(crate) fn open_step(key: StepKey, status: u8, sealed: &[u8]) -> Result<StepState, DecodeError> {
    let mut rows = RowsReader::open(step_context(key, status), STATE, sealed)?;
    let row: StepRow<'_> = rows.first()?;
    let late = rows.optional()?.filter(|late: &LateWorkersRow<'_>| late.count > 0);
    let more: Option<StepMoreRow<'_>> = rows.optional()?;
    rows.end()?;
    let StepMoreRow { continues, asks, files } = more.unwrap_or_default();
    let continues = continues.map(|text| from_text(STATE, &text));
    let ending = row.ending.map(|(status, cause)| Ok((step_status(STATE, status)?, step_cause(cause)?)));
    Ok(StepState {
        status: step_status("status", status)?,
        cause: step_cause(row.cause)?,
        job: row.job.map(|id| JobId::from_bits(u128::from_be_bytes(id))),
        called: row.called.map(run_id),
        started_at: instant(row.started_at),
        finished_at: instant(row.finished_at),
        wake_at: instant(row.wake_at),
        total: row.total,
        items: row.items.map(Into::into),
        output: row.output.map(Into::into),
        message: row.message.map(Into::into),
        decision: row.decision.map(|said| Box::new(said.into_action())),
        ending: ending.transpose()?,
        element_counts: row.element_counts.map(|(succeeded, failed)| ElementCounts { succeeded, failed }),
        late_workers: late.map(|late| Box::new(late.into())),
        files: files.map(Into::into),
        asks: asks.map(|asks| Box::new(asks.into())),
        continues: continues.transpose()?.map(Arc::new),
    })
}
