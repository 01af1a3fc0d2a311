//! Decoding of columns into records, for any database.
//!
//! A store implements the reading of one column of a row ([`Fields`]). Only this module defines which columns a record
//! consists of, and in which order. All functions are compiled for each type of row: nothing is boxed, and bytes are
//! decoded in place.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use model::calendar::CalendarRecord;
use model::checkpoint::CheckpointRecord;
use model::failures::{FailureGroup, FailureGroupId};
use model::firing::{LedgerRecord, ScheduleHead};
use model::record::{ExecutionRecord, JobHead, KeyRecord, LiveRow, RunKeyRecord};
use model::run::{BatchKey, ElementBatch, StepRecord, WorkflowHead};
use model::statistics::Resolution;
use model::workflow::Definition;
use model::{BackfillId, ExecutionId, JobId, RunId, ScheduleId, ServiceId, Timestamp, WorkerId, WorkflowId};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::audit::{AuditChain, AuditLink, AuditRow};
use crate::codec::{
    BackfillColumns, CheckpointColumns, ChunkKey, Context, DecodeError, DecodedHead, ExecutionColumns,
    LedgerColumns, RunColumns, ScheduleColumns, StateColumns, calendar_context, entry_checksum,
    open_backfill, open_backfill_head, open_checkpoint, open_definition, open_elements, open_execution,
    open_group, open_head, open_history, open_ledger, open_run, open_run_head, open_schedule,
    open_schedule_head, open_service, open_service_head, open_state, open_step, open_text, open_workflow,
    open_workflow_head, parse_schedule_spec, parse_spec, step_key,
};
use crate::query::{
    BackfillRow, ExecutionRow, JobRow, LedgerPosition, ReplicaRow, RunRow, ScheduleRow, ServiceRow,
    WorkflowRow,
};
use crate::{AccessRow, AlertRow};

/// Tables whose rows can be quarantined. A log contains the position of a variant, so new ones are added at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Table {
    Jobs,
    JobsEnded,
    Executions,
    ExecutionsEnded,
    Keys,
    Workers,
    Queues,
    Namespaces,
    Events,
    Access,
    Alerts,
    Audit,
    Schedules,
    Ledger,
    Backfills,
    Calendars,
    Workflows,
    WorkflowHeads,
    Services,
    Runs,
    ElementBatches,
    Steps,
    RunKeys,
    Checkpoints,
    Statistics,
    StatisticsPending,
    FailureGroups,
}

impl Table {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Jobs => "jobs",
            Self::JobsEnded => "jobs_ended",
            Self::Executions => "executions",
            Self::ExecutionsEnded => "executions_ended",
            Self::Keys => "keys",
            Self::Workers => "workers",
            Self::Queues => "queues",
            Self::Namespaces => "namespaces",
            Self::Events => "events",
            Self::Access => "access",
            Self::Alerts => "alerts",
            Self::Audit => "audit",
            Self::Schedules => "schedules",
            Self::Ledger => "ledger",
            Self::Backfills => "backfills",
            Self::Calendars => "calendars",
            Self::Workflows => "workflows",
            Self::WorkflowHeads => "workflow_heads",
            Self::Services => "services",
            Self::Runs => "runs",
            Self::ElementBatches => "element_batches",
            Self::Steps => "steps",
            Self::RunKeys => "run_keys",
            Self::Checkpoints => "checkpoints",
            Self::Statistics => "statistics",
            Self::StatisticsPending => "statistics_pending",
            Self::FailureGroups => "failure_groups",
        }
    }

    /// Returns the columns of a table's key. Queries that may find damaged rows select them first.
    pub(crate) const fn key(self) -> &'static [&'static str] {
        match self {
            Self::Keys | Self::RunKeys => &["key"],
            Self::Access | Self::Alerts => &["kind", "key"],
            Self::Audit => &["sequence"],
            Self::Queues | Self::Namespaces => &["name"],
            Self::Events => &["first"],
            Self::Ledger => &["first", "schedule", "generation", "cause", "backfill"],
            Self::Calendars => &["namespace", "name"],
            Self::WorkflowHeads => &["id", "generation"],
            Self::ElementBatches => &["run", "step", "first"],
            Self::Steps => &["run", "list", "number"],
            Self::Checkpoints => &["job"],
            Self::FailureGroups => &["namespace", "id"],
            Self::Statistics => &["resolution", "kind", "chunk", "namespace", "name"],
            _ => &["id"],
        }
    }

    /// Returns the table with the rest of each row, and the columns that the two tables share.
    pub(crate) const fn companion(self) -> Option<(&'static str, &'static [&'static str])> {
        match self {
            Self::Schedules => Some(("schedule_heads", &["id"])),
            Self::Backfills => Some(("backfill_heads", &["id"])),
            Self::Workflows => Some(("workflow_heads", &["id", "generation"])),
            Self::Services => Some(("service_heads", &["id"])),
            Self::Runs => Some(("run_heads", &["id"])),
            _ => None,
        }
    }
}

/// Row of an answer, read by column index.
///
/// `column` is the name for messages. A column of the wrong type or size is [`DecodeError`].
pub(crate) trait Fields {
    /// Returns a column of bytes.
    fn bytes(&self, index: usize, column: &'static str) -> Result<&[u8], DecodeError>;
    /// Returns a column of bytes; `None` for NULL.
    fn optional_bytes(&self, index: usize, column: &'static str) -> Result<Option<&[u8]>, DecodeError>;
    /// Returns a column of text.
    fn text(&self, index: usize, column: &'static str) -> Result<Cow<'_, str>, DecodeError>;
    /// Returns a column of text; `None` for NULL.
    fn optional_text(&self, index: usize, column: &'static str) -> Result<Option<Cow<'_, str>>, DecodeError>;
    /// Returns an integer; `None` for NULL.
    fn optional_integer(&self, index: usize, column: &'static str) -> Result<Option<i64>, DecodeError>;
    /// Returns the bits of an ID; `None` for NULL.
    fn optional_bits(&self, index: usize, column: &'static str) -> Result<Option<u128>, DecodeError>;
    /// Returns the part of a ledger key that names a backfill; `None` if the entry belongs to none.
    fn backfill_key(&self, index: usize, column: &'static str) -> Result<Option<u128>, DecodeError>;

    /// Returns the bits of an ID that must not be NULL.
    fn bits(&self, index: usize, column: &'static str) -> Result<u128, DecodeError> {
        self.optional_bits(index, column)?.ok_or_else(|| DecodeError::decode(column, "it is missing"))
    }

    /// Returns a number within the range of `T` that must not be NULL.
    fn number<T: TryFrom<i64>>(&self, index: usize, column: &'static str) -> Result<T, DecodeError> {
        let found = self
            .optional_integer(index, column)?
            .ok_or_else(|| DecodeError::decode(column, "it is missing"))?;
        T::try_from(found).map_err(|_| DecodeError::Value { column, what: "number of its type", found })
    }
}

/// Columns that [`job`] reads, in order.
pub(crate) const JOB_COLUMNS: &str = "t.id, t.status, t.worker, t.expires_at, t.state, t.head";
/// Columns that [`replica`] reads, in order.
pub(crate) const REPLICA_COLUMNS: &str =
    "t.id, t.status, t.worker, t.expires_at, t.state, t.head, t.namespace";
/// Columns that [`execution`] reads, in order.
pub(crate) const EXECUTION_COLUMNS: &str =
    "t.id, t.job, t.number, t.fence, t.worker, t.status, t.namespace, t.job_name, t.rest";

/// Columns that [`schedule`] reads, in order; needs [`SCHEDULE_REST`].
pub(crate) const SCHEDULE_COLUMNS: &str = "t.id, t.status, t.next_at, t.state, h.head";
/// Join with the rest of a schedule. An outer join, so that a missing rest is detected.
pub(crate) const SCHEDULE_REST: &str = "LEFT JOIN schedule_heads h ON h.id = t.id";
/// Columns that [`ledger`] reads, in order.
pub(crate) const LEDGER_COLUMNS: &str = "t.first, t.schedule, t.generation, t.cause, t.backfill, t.last, \
    t.count, t.outcome, t.job, t.decided_at, t.rest";
/// Columns that [`backfill`] reads, in order; needs [`BACKFILL_REST`].
pub(crate) const BACKFILL_COLUMNS: &str = "t.id, t.schedule, t.status, t.finished_at, t.state, h.head";
/// Join with the rest of a backfill. An outer join, so that a missing rest is detected.
pub(crate) const BACKFILL_REST: &str = "LEFT JOIN backfill_heads h ON h.id = t.id";
/// Columns that [`calendar`] reads, in order.
pub(crate) const CALENDAR_COLUMNS: &str = "t.namespace, t.name, t.record";

/// Columns that [`workflow`] reads, in order; needs [`WORKFLOW_REST`].
pub(crate) const WORKFLOW_COLUMNS: &str = "t.id, t.generation, t.state, h.head";
/// Join with the spec of a workflow. An outer join, so that a missing spec is detected.
pub(crate) const WORKFLOW_REST: &str =
    "LEFT JOIN workflow_heads h ON h.id = t.id AND h.generation = t.generation";
/// Columns that [`workflow_version`] reads, in order.
pub(crate) const WORKFLOW_HEAD_COLUMNS: &str = "t.id, t.generation, t.head";
/// Columns that [`service`] reads, in order; needs [`SERVICE_REST`].
pub(crate) const SERVICE_COLUMNS: &str = "t.id, t.state, h.head";
/// Join with the spec and the revisions of a service. An outer join, so that a missing spec is detected.
pub(crate) const SERVICE_REST: &str = "LEFT JOIN service_heads h ON h.id = t.id";
/// Columns that [`run`] reads, in order; needs [`RUN_REST`].
pub(crate) const RUN_COLUMNS: &str = "t.id, t.status, t.expires_at, t.state, h.definition, h.head";
/// Join with the rest of a run. An outer join, so that a missing rest is detected.
pub(crate) const RUN_REST: &str = "LEFT JOIN run_heads h ON h.id = t.id";
/// Columns that [`elements`] reads, in order.
pub(crate) const ELEMENTS_COLUMNS: &str = "t.run, t.step, t.first, t.batch";
/// Columns that [`step`] reads, in order.
pub(crate) const STEP_COLUMNS: &str = "t.run, t.list, t.number, t.status, t.state";

/// Columns that [`checkpoint`] reads, in order.
pub(crate) const CHECKPOINT_COLUMNS: &str = "t.job, t.version, t.content_type, t.saved_at, t.data";

/// Reads the indexed columns of a job's state from [`JOB_COLUMNS`].
pub(crate) fn state_columns(row: &impl Fields) -> Result<StateColumns, DecodeError> {
    let worker = row.optional_bits(2, "worker")?.map(u128::to_be_bytes);
    let expires_at = row.optional_integer(3, "expires_at")?;
    Ok(StateColumns { status: row.number(1, "status")?, worker, expires_at })
}

/// Decodes a job without its history.
pub(crate) fn job(row: &impl Fields) -> Result<JobRow, DecodeError> {
    let id = JobId::from_bits(row.bits(0, "id")?);
    let state = open_state(id, &state_columns(row)?, row.bytes(4, "state")?)?;
    let DecodedHead { body, retry_of, origin, step, replica } = open_head(id, row.bytes(5, "head")?)?;
    Ok(JobRow { id, body: body.into(), retry_of, origin, step, replica, state })
}

/// Decodes a job with its history, which is the column after [`JOB_COLUMNS`].
pub(crate) fn job_with_history(row: &impl Fields) -> Result<JobRow, DecodeError> {
    let mut job = job(row)?;
    job.state.history = open_history(job.id, row.bytes(6, "history")?)?;
    Ok(job)
}

/// Decodes the last checkpoint of a job.
pub(crate) fn checkpoint(row: &impl Fields) -> Result<CheckpointRecord, DecodeError> {
    let content_type = row.text(2, "content_type")?;
    let columns = CheckpointColumns {
        job: JobId::from_bits(row.bits(0, "job")?),
        version: row.number(1, "version")?,
        content_type: &content_type,
        saved_at: Timestamp::from_micros(row.number(3, "saved_at")?),
    };
    open_checkpoint(columns, row.bytes(4, "data")?)
}

/// Decodes an execution.
pub(crate) fn execution(row: &impl Fields) -> Result<ExecutionRow, DecodeError> {
    let columns = ExecutionColumns {
        id: ExecutionId::from_bits(row.bits(0, "id")?),
        job: JobId::from_bits(row.bits(1, "job")?),
        number: row.number(2, "number")?,
        fence: row.number(3, "fence")?,
        worker: WorkerId::from_bits(row.bits(4, "worker")?),
        status: row.number(5, "status")?,
    };
    let record = open_execution(&columns, row.bytes(8, "rest")?)?;
    Ok(ExecutionRow {
        record,
        namespace: Arc::from(&*row.text(6, "namespace")?),
        job_name: Arc::from(&*row.text(7, "job_name")?),
    })
}

/// Reads the status and the next scheduled time of a schedule from [`SCHEDULE_COLUMNS`].
pub(crate) fn schedule_columns(row: &impl Fields) -> Result<ScheduleColumns, DecodeError> {
    Ok(ScheduleColumns { status: row.number(1, "status")?, next_at: row.optional_integer(2, "next_at")? })
}

/// Decodes a schedule.
pub(crate) fn schedule(row: &impl Fields) -> Result<ScheduleRow, DecodeError> {
    let id = ScheduleId::from_bits(row.bits(0, "id")?);
    let state = open_schedule(id, &schedule_columns(row)?, row.bytes(3, "state")?)?;
    let body = open_schedule_head(id, row.bytes(4, "head")?)?.into();
    Ok(ScheduleRow { id, body, state })
}

/// Decodes a ledger entry, with its position.
pub(crate) fn ledger(row: &impl Fields) -> Result<(LedgerPosition, LedgerRecord), DecodeError> {
    let backfill = row.backfill_key(4, "backfill")?.map(BackfillId::from_bits);
    let work = row.optional_bits(8, "job")?;
    let columns = LedgerColumns {
        first: row.number(0, "first")?,
        schedule: ScheduleId::from_bits(row.bits(1, "schedule")?),
        generation: row.number(2, "generation")?,
        cause: row.number(3, "cause")?,
        backfill,
        last: row.number(5, "last")?,
        count: row.number(6, "count")?,
        outcome: row.number(7, "outcome")?,
        work,
        decided_at: row.number(9, "decided_at")?,
    };
    let record = open_ledger(&columns, row.bytes(10, "rest")?)?;
    Ok((ledger_position(&columns), record))
}

fn ledger_position(columns: &LedgerColumns) -> LedgerPosition {
    LedgerPosition {
        first_micros: columns.first,
        schedule: columns.schedule.to_bits(),
        generation: columns.generation,
        cause: columns.cause,
        backfill: columns.backfill.map_or(0, BackfillId::to_bits),
    }
}

/// Decodes a backfill.
pub(crate) fn backfill(row: &impl Fields) -> Result<BackfillRow, DecodeError> {
    let id = BackfillId::from_bits(row.bits(0, "id")?);
    let schedule = ScheduleId::from_bits(row.bits(1, "schedule")?);
    let finished_at = row.optional_integer(3, "finished_at")?;
    let columns = BackfillColumns { status: row.number(2, "status")?, finished_at };
    Ok(BackfillRow {
        head: open_backfill_head(id, schedule, row.bytes(5, "head")?)?,
        state: open_backfill(id, &columns, row.bytes(4, "state")?)?,
    })
}

/// Decodes a calendar.
pub(crate) fn calendar(row: &impl Fields) -> Result<CalendarRecord, DecodeError> {
    let context = calendar_context(&row.text(0, "namespace")?, &row.text(1, "name")?);
    let json = open_text(context, "record", row.bytes(2, "record")?)?;
    serde_json::from_str(json).map_err(|error| DecodeError::decode("record", error))
}

/// Decodes a workflow with its newest spec.
pub(crate) fn workflow(row: &impl Fields) -> Result<WorkflowRow, DecodeError> {
    let id = WorkflowId::from_bits(row.bits(0, "id")?);
    let generation = row.number(1, "generation")?;
    let state = open_workflow(id, generation, row.bytes(2, "state")?)?;
    let head = open_workflow_head(id, generation, row.bytes(3, "head")?)?;
    Ok(WorkflowRow { id, head, state })
}

/// Decodes the spec of one generation of a workflow.
pub(crate) fn workflow_version(row: &impl Fields) -> Result<WorkflowHead, DecodeError> {
    let id = WorkflowId::from_bits(row.bits(0, "id")?);
    open_workflow_head(id, row.number(1, "generation")?, row.bytes(2, "head")?)
}

impl From<WorkflowRow> for LiveRow {
    fn from(WorkflowRow { id, head, state }: WorkflowRow) -> Self {
        Self::Workflow { id, head, state }
    }
}

/// Decodes a service with its revisions.
pub(crate) fn service(row: &impl Fields) -> Result<ServiceRow, DecodeError> {
    let id = ServiceId::from_bits(row.bits(0, "id")?);
    let state = open_service(id, row.bytes(1, "state")?)?;
    let head = open_service_head(id, row.bytes(2, "head")?)?;
    Ok(ServiceRow { id, head, state })
}

impl From<ServiceRow> for LiveRow {
    fn from(ServiceRow { id, head, state }: ServiceRow) -> Self {
        Self::Service { id, head, state: Box::new(state) }
    }
}

/// Decodes the job of a replica; its execution is absent.
pub(crate) fn replica(row: &impl Fields) -> Result<ReplicaRow, DecodeError> {
    let JobRow { id, replica, state, .. } = job(row)?;
    let replica = replica.ok_or_else(|| DecodeError::decode("head", "it belongs to no service"))?;
    let namespace = Arc::from(&*row.text(6, "namespace")?);
    Ok(ReplicaRow { job: id, namespace, replica, state, execution: None })
}

/// Adds their live executions to replicas. Of several executions, the newest one is used.
pub(crate) fn with_executions(
    mut replicas: Vec<ReplicaRow>,
    executions: Vec<ExecutionRow>,
) -> Vec<ReplicaRow> {
    let mut newest: HashMap<JobId, ExecutionRecord> = HashMap::new();
    for ExecutionRow { record, .. } in executions {
        if newest.get(&record.job).is_none_or(|other| other.number < record.number) {
            newest.insert(record.job, record);
        }
    }
    for replica in &mut replicas {
        replica.execution = newest.remove(&replica.job);
    }
    replicas.sort_by_cached_key(|row| {
        (Arc::clone(&row.namespace), row.replica.service, row.replica.replica, row.job)
    });
    replicas
}

/// Definition of a run, parsed and as JSON.
pub(crate) type ParsedDefinition = (Arc<Definition>, Arc<str>);

/// Decodes a run with its history; `pinned` returns the definition with the hash in the fifth column.
pub(crate) fn run(
    row: &impl Fields,
    pinned: impl FnOnce(u128) -> Result<ParsedDefinition, DecodeError>,
) -> Result<RunRow, DecodeError> {
    let id = RunId::from_bits(row.bits(0, "id")?);
    let expires_at = row.optional_integer(2, "expires_at")?;
    let columns = RunColumns { status: row.number(1, "status")?, expires_at };
    let state = open_run(id, &columns, row.bytes(3, "state")?)?;
    let hash = row.bits(4, "definition")?;
    let head = open_run_head(id, hash, row.bytes(5, "head")?, pinned(hash)?)?;
    Ok(RunRow { id, head: Arc::new(head), state })
}

/// Removes all but the newest transition from the history of a run, for lists.
pub(crate) fn with_newest(mut run: RunRow) -> RunRow {
    run.state.history = run.state.history.pop().into_iter().collect();
    run
}

impl From<RunRow> for LiveRow {
    fn from(RunRow { id, head, state }: RunRow) -> Self {
        Self::Run { id, head, state: Box::new(state) }
    }
}

/// Definitions by hash, each parsed once, whatever the number of its runs.
#[derive(Debug, Default)]
pub(crate) struct Definitions(HashMap<u128, Result<ParsedDefinition, DecodeError>>);

impl Definitions {
    /// Returns the definition with this hash; `read` returns its stored bytes, if there are any.
    pub(crate) fn get<'b>(
        &mut self,
        hash: u128,
        read: impl FnOnce() -> Result<Option<Cow<'b, [u8]>>, DecodeError>,
    ) -> Result<ParsedDefinition, DecodeError> {
        let open = |sealed: Option<Cow<'b, [u8]>>| {
            open_definition(
                hash,
                &sealed.ok_or_else(|| DecodeError::decode("definition", "it is not there"))?,
            )
        };
        self.0.entry(hash).or_insert_with(|| read().and_then(open)).clone()
    }
}

/// Decodes the elements that a task added in one batch.
pub(crate) fn elements(row: &impl Fields) -> Result<ElementBatch, DecodeError> {
    let run = RunId::from_bits(row.bits(0, "run")?);
    let key = BatchKey { run, step: row.number(1, "step")?, first: row.number(2, "first")? };
    open_elements(key, row.bytes(3, "batch")?)
}

/// Decodes a step, or one element of it.
pub(crate) fn step(row: &impl Fields) -> Result<StepRecord, DecodeError> {
    let run = RunId::from_bits(row.bits(0, "run")?);
    let key = step_key(run, row.number(1, "list")?, row.number(2, "number")?)?;
    let state = open_step(key, row.number(3, "status")?, row.bytes(4, "state")?)?;
    Ok(StepRecord { key, state })
}

/// Decodes a worker, a queue or a namespace; `context` contains its key.
pub(crate) fn record<T: DeserializeOwned>(context: Context, row: &impl Fields) -> Result<T, DecodeError> {
    let json = open_text(context, "record", row.bytes(1, "record")?)?;
    serde_json::from_str(json).map_err(|error| DecodeError::decode("record", error))
}

/// Columns that [`key`] reads, in order.
pub(crate) const KEY_COLUMNS: &str = "t.key, t.body, t.job, t.expires_at";

/// Decodes an idempotency key of a job.
pub(crate) fn key(row: &impl Fields) -> Result<KeyRecord, DecodeError> {
    Ok(KeyRecord {
        key: row.bits(0, "key")?,
        body: row.bits(1, "body")?,
        job: JobId::from_bits(row.bits(2, "job")?),
        expires_at: Timestamp::from_micros(row.number(3, "expires_at")?),
    })
}

/// Decodes an idempotency key of a run, from [`KEY_COLUMNS`] with `run` instead of `job`.
pub(crate) fn run_key(row: &impl Fields) -> Result<RunKeyRecord, DecodeError> {
    Ok(RunKeyRecord {
        key: row.bits(0, "key")?,
        body: row.bits(1, "body")?,
        run: RunId::from_bits(row.bits(2, "run")?),
        expires_at: Timestamp::from_micros(row.number(3, "expires_at")?),
    })
}

/// Columns that [`access`] and [`alert`] read, in order.
pub(crate) const ENTRY_COLUMNS: &str = "t.kind, t.key, t.body, t.checksum";

/// Query for the version of the entries of access control, and the entries that changed after a version. It returns one
/// row without an entry if there are none.
pub(crate) const ACCESS_CHANGES: &str =
    "SELECT t.kind, t.key, t.body, t.checksum, m.access_version, t.version
    FROM meta m LEFT JOIN access t ON t.version > $1 ORDER BY t.kind, t.key";

/// Decodes a row of [`ACCESS_CHANGES`].
pub(crate) fn access_change(row: &impl Fields) -> Result<(u64, Option<AccessRow>), DecodeError> {
    let entry = row.optional_integer(5, "version")?.map(|_| access(row));
    Ok((row.number(4, "access_version")?, entry.transpose()?))
}

/// Decodes an entry of access control.
pub(crate) fn access(row: &impl Fields) -> Result<AccessRow, DecodeError> {
    let [kind, key, body] = entry(row)?;
    Ok(AccessRow { kind, key, body })
}

/// Query for the version of the rows of alerts, and all rows. It returns one row without a key if there are none.
pub(crate) const ALERTS: &str =
    "SELECT t.kind, t.key, t.body, t.checksum, m.alert_version FROM meta m LEFT JOIN alerts t ON TRUE
    ORDER BY t.kind, t.key";

/// Decodes a row of [`ALERTS`].
pub(crate) fn alert_or_version(row: &impl Fields) -> Result<(u64, Option<AlertRow>), DecodeError> {
    let found = row.optional_text(0, "kind")?.map(|_| alert(row));
    Ok((row.number(4, "alert_version")?, found.transpose()?))
}

/// Decodes a row of alerts.
pub(crate) fn alert(row: &impl Fields) -> Result<AlertRow, DecodeError> {
    let [kind, key, body] = entry(row)?;
    Ok(AlertRow { kind, key, body })
}

/// Decodes kind, key and body from [`ENTRY_COLUMNS`]. Tokens from before the introduction of checksums have none.
fn entry(row: &impl Fields) -> Result<[String; 3], DecodeError> {
    let (kind, key, body) = (row.text(0, "kind")?, row.text(1, "key")?, row.text(2, "body")?);
    let checksum = row.optional_integer(3, "checksum")?;
    if checksum.is_some_and(|checksum| checksum != i64::from(entry_checksum(&kind, &key, &body))) {
        return Err(DecodeError::Checksum { column: "body" });
    }
    Ok([kind.into_owned(), key.into_owned(), body.into_owned()])
}

/// Columns that [`audit`] reads, in order.
pub(crate) const AUDIT_COLUMNS: &str = "t.sequence, t.at, t.namespace, t.actor, t.action, t.verb, t.resource, t.object, t.outcome, t.body, t.hash";

/// Decodes a row of the audit log. A damaged hash or body is no error: the row is returned for the verification.
pub(crate) fn audit(row: &impl Fields) -> Result<AuditRow, DecodeError> {
    Ok(AuditRow {
        link: AuditLink { sequence: row.number(0, "sequence")?, hash: audit_hash(row.bytes(10, "hash")?) },
        at: Timestamp::from_micros(row.number(1, "at")?),
        namespace: row.optional_text(2, "namespace")?.map(Cow::into_owned),
        actor: row.text(3, "actor")?.into_owned(),
        action: row.text(4, "action")?.into_owned(),
        verb: row.text(5, "verb")?.into_owned(),
        resource: row.text(6, "resource")?.into_owned(),
        object: row.optional_text(7, "object")?.map(Cow::into_owned),
        outcome: row.text(8, "outcome")?.into_owned(),
        body: row.text(9, "body")?.into_owned(),
    })
}

/// Returns a stored hash. One of another length becomes a wrong one.
fn audit_hash(bytes: &[u8]) -> [u8; 32] {
    bytes.try_into().unwrap_or_default()
}

/// Columns that [`audit_chain`] reads, in order.
pub(crate) const AUDIT_CHAIN_COLUMNS: &str = "t.last_sequence, t.last_hash, t.cut_sequence, t.cut_hash";

/// Decodes both ends of the audit log.
pub(crate) fn audit_chain(row: &impl Fields) -> Result<AuditChain, DecodeError> {
    let last =
        AuditLink { sequence: row.number(0, "last_sequence")?, hash: audit_hash(row.bytes(1, "last_hash")?) };
    let cut =
        AuditLink { sequence: row.number(2, "cut_sequence")?, hash: audit_hash(row.bytes(3, "cut_hash")?) };
    Ok(AuditChain { last, cut })
}

/// Encoded job, to be decoded on another thread: parsing its spec takes longer than reading the row.
pub(crate) struct RawJob {
    pub(crate) id: JobId,
    columns: StateColumns,
    state: Vec<u8>,
    history: Vec<u8>,
    head: Vec<u8>,
}

impl RawJob {
    /// Reads a row of [`JOB_COLUMNS`], followed by the history.
    pub(crate) fn read(row: &impl Fields, id: JobId) -> Result<Self, DecodeError> {
        Ok(Self {
            id,
            columns: state_columns(row)?,
            state: row.bytes(4, "state")?.to_vec(),
            head: row.bytes(5, "head")?.to_vec(),
            history: row.bytes(6, "history")?.to_vec(),
        })
    }

    /// Decodes the live row.
    pub(crate) fn decode(&self) -> Result<LiveRow, DecodeError> {
        let mut state = open_state(self.id, &self.columns, &self.state)?;
        if state.status.is_final() {
            let found = state.status.code().into();
            return Err(DecodeError::Value { column: "status", what: "status of a live job", found });
        }
        state.history = open_history(self.id, &self.history)?;
        let head = open_head(self.id, &self.head)?;
        let spec = parse_spec(head.body)?.into();
        let (body, retry_of) = (head.body.into(), head.retry_of);
        let DecodedHead { origin, step, replica, .. } = head;
        let head = JobHead { spec, body, retry_of, origin, step, replica };
        Ok(LiveRow::Job { id: self.id, head, state: Box::new(state) })
    }
}

/// Encoded schedule, to be decoded on another thread.
pub(crate) struct RawSchedule {
    pub(crate) id: ScheduleId,
    columns: ScheduleColumns,
    state: Vec<u8>,
    head: Vec<u8>,
}

impl RawSchedule {
    /// Reads a row of [`SCHEDULE_COLUMNS`].
    pub(crate) fn read(row: &impl Fields, id: ScheduleId) -> Result<Self, DecodeError> {
        let (state, head) = (row.bytes(3, "state")?.to_vec(), row.bytes(4, "head")?.to_vec());
        Ok(Self { id, columns: schedule_columns(row)?, state, head })
    }

    /// Decodes the live row.
    pub(crate) fn decode(&self) -> Result<LiveRow, DecodeError> {
        let state = open_schedule(self.id, &self.columns, &self.state)?;
        let body = open_schedule_head(self.id, &self.head)?;
        let head = ScheduleHead { spec: parse_schedule_spec(body)?.into(), body: body.into() };
        Ok(LiveRow::Schedule { id: self.id, head, state: Box::new(state) })
    }
}

/// Decodes the key of a chunk of statistics; its columns come first.
pub(crate) fn chunk_key(row: &impl Fields) -> Result<ChunkKey, DecodeError> {
    let code: u8 = row.number(0, "resolution")?;
    let known = Resolution::ALL.iter().copied().find(|known| known.code() == code);
    let wrong = DecodeError::Value { column: "resolution", what: "resolution", found: code.into() };
    Ok(ChunkKey {
        resolution: known.ok_or(wrong)?,
        kind: row.number(1, "kind")?,
        chunk: Timestamp::from_micros(row.number(2, "chunk")?),
        namespace: row.text(3, "namespace")?.into(),
        name: row.text(4, "name")?.into(),
    })
}

/// Decodes a group of failures.
pub(crate) fn failure_group(row: &impl Fields) -> Result<FailureGroup, DecodeError> {
    let id: i64 = row.number(1, "id")?;
    let mark = row.optional_bytes(3, "mark")?;
    open_group(&row.text(0, "namespace")?, FailureGroupId(id.cast_unsigned()), row.bytes(2, "record")?, mark)
}
