//! The smaller queries: single rows (job, execution, schedule, backfill, calendar, workflow, run, service), the
//! steps of a run, the replicas of services, counts and events.
//!
//! `reads` calls each function on a reader's connection, in a snapshot. An object that has moved to the
//! history is found as well: live rows are searched first. Rows that cannot be decoded are returned beside
//! the others, for the quarantine, except those of a live run (`of_run`), which only a load may move.
//!
//! [`DefinitionCache`] reads each definition once for all runs of a query.

use model::calendar::CalendarRecord;
use model::checkpoint::CheckpointRecord;
use model::run::{ElementBatch, StepRecord, WorkflowHead};
use model::{BackfillId, ExecutionId, JobId, JobStatus, RunId, ScheduleId, ServiceId, WorkflowId};
use rusqlite::{Connection, OptionalExtension, Row, ToSql, params};

use super::error::Failure;
use super::lists;
use super::quarantine::DamagedRow;
use super::rows::Decoded;
use crate::codec::{DecodeError, NO_LIST, open_events};
use crate::lists::Replicas;
use crate::query::{
    BackfillRow, Counts, EventPage, EventSeq, ExecutionRow, JobRow, ReplicaRow, RunRow, ScheduleRow,
    ServiceRow, WorkflowRow,
};
use crate::rows::{
    self, BACKFILL_COLUMNS, BACKFILL_REST, CALENDAR_COLUMNS, CHECKPOINT_COLUMNS, Definitions,
    ELEMENTS_COLUMNS, EXECUTION_COLUMNS, JOB_COLUMNS, ParsedDefinition, RUN_COLUMNS, RUN_REST,
    SCHEDULE_COLUMNS, SCHEDULE_REST, SERVICE_COLUMNS, SERVICE_REST, STEP_COLUMNS, Table, WORKFLOW_COLUMNS,
    WORKFLOW_HEAD_COLUMNS, WORKFLOW_REST,
};

/// Returns a live row by ID, or else the row in the history.
fn find<T>(
    connection: &Connection,
    tables: [Table; 2],
    columns: &str,
    id: u128,
    decode: impl Fn(&Row<'_>) -> Result<T, DecodeError>,
) -> Result<Decoded<T>, Failure> {
    let mut sorted = Decoded::default();
    for table in tables {
        let sql = format!("SELECT {columns} FROM {} t WHERE t.id = ?1", table.name());
        let mut statement = connection.prepare_cached(&sql)?;
        let mut found = statement.query([id.to_be_bytes()])?;
        if let Some(row) = found.next()? {
            sorted.push(table, row, decode(row))?;
            break;
        }
    }
    Ok(sorted)
}

/// Returns a job with its history, if it exists.
pub(super) fn job(connection: &Connection, id: JobId) -> Result<Decoded<JobRow>, Failure> {
    let columns = format!("{JOB_COLUMNS}, t.history");
    find(connection, [Table::Jobs, Table::JobsEnded], &columns, id.to_bits(), |row| {
        rows::job_with_history(row)
    })
}

/// Returns an execution, if it exists.
pub(super) fn execution(connection: &Connection, id: ExecutionId) -> Result<Decoded<ExecutionRow>, Failure> {
    let tables = [Table::Executions, Table::ExecutionsEnded];
    find(connection, tables, EXECUTION_COLUMNS, id.to_bits(), |row| rows::execution(row))
}

/// Returns a schedule, if it exists.
pub(super) fn schedule(connection: &Connection, id: ScheduleId) -> Result<Decoded<ScheduleRow>, Failure> {
    one_schedule(connection, "t.id = ?1", params![id.to_bits().to_be_bytes()])
}

/// Returns a schedule by name, if it exists.
pub(super) fn schedule_named(
    connection: &Connection,
    namespace: &str,
    name: &str,
) -> Result<Decoded<ScheduleRow>, Failure> {
    one_schedule(connection, "t.namespace = ?1 AND t.name = ?2", params![namespace, name])
}

fn one_schedule(
    connection: &Connection,
    condition: &str,
    values: &[&dyn ToSql],
) -> Result<Decoded<ScheduleRow>, Failure> {
    let from = format!("schedules t {SCHEDULE_REST} WHERE {condition}");
    all(connection, Table::Schedules, SCHEDULE_COLUMNS, &from, values, |row| rows::schedule(row))
}

/// Returns a backfill, if it exists.
pub(super) fn backfill(connection: &Connection, id: BackfillId) -> Result<Decoded<BackfillRow>, Failure> {
    let from = format!("backfills t {BACKFILL_REST} WHERE t.id = ?1");
    let values = params![id.to_bits().to_be_bytes()];
    all(connection, Table::Backfills, BACKFILL_COLUMNS, &from, values, |row| rows::backfill(row))
}

/// Returns a workflow, if it exists.
pub(super) fn workflow(connection: &Connection, id: WorkflowId) -> Result<Decoded<WorkflowRow>, Failure> {
    one_workflow(connection, "t.id = ?1", params![id.to_bits().to_be_bytes()])
}

/// Returns a workflow by name, if it exists.
pub(super) fn workflow_named(
    connection: &Connection,
    namespace: &str,
    name: &str,
) -> Result<Decoded<WorkflowRow>, Failure> {
    one_workflow(connection, "t.namespace = ?1 AND t.name = ?2", params![namespace, name])
}

fn one_workflow(
    connection: &Connection,
    condition: &str,
    values: &[&dyn ToSql],
) -> Result<Decoded<WorkflowRow>, Failure> {
    let from = format!("workflows t {WORKFLOW_REST} WHERE {condition}");
    all(connection, Table::Workflows, WORKFLOW_COLUMNS, &from, values, |row| rows::workflow(row))
}

/// Returns a generation of a workflow, if it exists.
pub(super) fn workflow_version(
    connection: &Connection,
    id: WorkflowId,
    generation: i64,
) -> Result<Decoded<WorkflowHead>, Failure> {
    let from = "workflow_heads t WHERE t.id = ?1 AND t.generation = ?2";
    let values = params![id.to_bits().to_be_bytes(), generation];
    let decode = |row: &Row<'_>| rows::workflow_version(row);
    all(connection, Table::WorkflowHeads, WORKFLOW_HEAD_COLUMNS, from, values, decode)
}

/// Returns a service, if it exists.
pub(super) fn service(connection: &Connection, id: ServiceId) -> Result<Decoded<ServiceRow>, Failure> {
    one_service(connection, "t.id = ?1", params![id.to_bits().to_be_bytes()])
}

/// Returns a service by name, if it exists.
pub(super) fn service_named(
    connection: &Connection,
    namespace: &str,
    name: &str,
) -> Result<Decoded<ServiceRow>, Failure> {
    one_service(connection, "t.namespace = ?1 AND t.name = ?2", params![namespace, name])
}

fn one_service(
    connection: &Connection,
    condition: &str,
    values: &[&dyn ToSql],
) -> Result<Decoded<ServiceRow>, Failure> {
    let from = format!("services t {SERVICE_REST} WHERE {condition}");
    all(connection, Table::Services, SERVICE_COLUMNS, &from, values, |row| rows::service(row))
}

/// Returns live replicas with their executions, ordered by namespace, service and number.
pub(super) fn replicas(connection: &Connection, of: &Replicas) -> Result<Decoded<ReplicaRow>, Failure> {
    let (jobs, executions) = (of.jobs_sql(), of.executions_sql());
    let jobs = lists::rows_of(connection, Table::Jobs, &jobs, &of.values, |row| rows::replica(row))?;
    let executions =
        lists::rows_of(connection, Table::Executions, &executions, &of.values, |row| rows::execution(row))?;
    let damaged = jobs.damaged.into_iter().chain(executions.damaged).collect();
    Ok(Decoded { good: rows::with_executions(jobs.good, executions.good), damaged })
}

/// Returns a run with its history, if it exists.
pub(super) fn run(connection: &Connection, id: RunId) -> Result<Decoded<RunRow>, Failure> {
    let from = format!("runs t {RUN_REST} WHERE t.id = ?1");
    let mut pins = DefinitionCache::new(connection);
    let decode = |row: &Row<'_>| rows::run(row, |hash| pins.pinned(hash));
    let found =
        all(connection, Table::Runs, RUN_COLUMNS, &from, params![id.to_bits().to_be_bytes()], decode)?;
    pins.check().map(|()| found)
}

/// Definitions of runs, each read and parsed once.
pub(super) struct DefinitionCache<'c> {
    connection: &'c Connection,
    known: Definitions,
    /// Error while a definition was read. The row of its run may be intact, so the run must not be quarantined.
    failure: Option<Failure>,
}

impl<'c> DefinitionCache<'c> {
    pub(super) fn new(connection: &'c Connection) -> Self {
        Self { connection, known: Definitions::default(), failure: None }
    }

    /// Returns the definition with this hash. The caller must call [`check`](Self::check) before it treats damage as
    /// real.
    pub(super) fn pinned(&mut self, hash: u128) -> Result<ParsedDefinition, DecodeError> {
        let Self { connection, known, failure } = self;
        known.get(hash, || {
            let body = connection
                .prepare_cached("SELECT body FROM run_definitions WHERE hash = ?1")
                .and_then(|mut body| body.query_row([hash.to_be_bytes()], |row| row.get(0)).optional());
            body.map(|body: Option<Vec<u8>>| body.map(Into::into)).map_err(|error| {
                let damage = DecodeError::decode("body", &error);
                *failure = Some(error.into());
                damage
            })
        })
    }

    pub(super) fn check(&mut self) -> Result<(), Failure> {
        self.failure.take().map_or(Ok(()), Err)
    }
}

/// Returns the last checkpoint of a job, if it saved one.
pub(super) fn checkpoint(connection: &Connection, job: JobId) -> Result<Decoded<CheckpointRecord>, Failure> {
    let values = params![job.to_bits().to_be_bytes()];
    all(connection, Table::Checkpoints, CHECKPOINT_COLUMNS, "checkpoints t WHERE t.job = ?1", values, |row| {
        rows::checkpoint(row)
    })
}

/// Returns the steps of a run, without their elements.
pub(super) fn run_steps(connection: &Connection, run: RunId) -> Result<Decoded<StepRecord>, Failure> {
    let from = "steps t WHERE t.run = ?1 AND t.list = ?2 ORDER BY t.number";
    let values = params![run.to_bits().to_be_bytes(), NO_LIST];
    let found = all(connection, Table::Steps, STEP_COLUMNS, from, values, |row| rows::step(row))?;
    of_run(connection, run, found)
}

/// Returns at most `limit` elements of a step after `after`.
pub(super) fn run_elements(
    connection: &Connection,
    run: RunId,
    step: u32,
    after: Option<u32>,
    limit: usize,
) -> Result<Decoded<StepRecord>, Failure> {
    let from = "steps t WHERE t.run = ?1 AND t.list = ?2 AND t.number > ?3 ORDER BY t.number LIMIT ?4";
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let values = params![run.to_bits().to_be_bytes(), step, after.map_or(-1, i64::from), limit];
    let found = all(connection, Table::Steps, STEP_COLUMNS, from, values, |row| rows::step(row))?;
    of_run(connection, run, found)
}

/// Returns the elements that tasks of a run added to its steps.
pub(super) fn element_batches(connection: &Connection, run: RunId) -> Result<Decoded<ElementBatch>, Failure> {
    let from = "element_batches t WHERE t.run = ?1 ORDER BY t.step, t.first";
    let values = params![run.to_bits().to_be_bytes()];
    let decode = |row: &Row<'_>| rows::elements(row);
    let found = all(connection, Table::ElementBatches, ELEMENTS_COLUMNS, from, values, decode)?;
    of_run(connection, run, found)
}

/// Filters the damaged rows of a run. While the run is live they are skipped and not quarantined: a later load would
/// miss them and continue the run without them. A load that finds them quarantines the whole run.
fn of_run<T>(connection: &Connection, run: RunId, mut found: Decoded<T>) -> Result<Decoded<T>, Failure> {
    if !found.damaged.is_empty() {
        let mut live = connection.prepare_cached("SELECT 1 FROM runs WHERE id = ?1 AND status < 4")?;
        if live.exists([run.to_bits().to_be_bytes()])? {
            found.damaged.drain(..).for_each(|damaged| damaged.log_damage());
        }
    }
    Ok(found)
}

/// Returns the calendars of one namespace or of all, ordered by namespace and name.
pub(super) fn calendars(
    connection: &Connection,
    namespace: Option<&str>,
) -> Result<Decoded<CalendarRecord>, Failure> {
    let from = "calendars t WHERE ?1 IS NULL OR t.namespace = ?1 ORDER BY t.namespace, t.name";
    all(connection, Table::Calendars, CALENDAR_COLUMNS, from, params![namespace], |row| rows::calendar(row))
}

/// Returns a calendar, if it exists.
pub(super) fn calendar(
    connection: &Connection,
    namespace: &str,
    name: &str,
) -> Result<Decoded<CalendarRecord>, Failure> {
    let from = "calendars t WHERE t.namespace = ?1 AND t.name = ?2";
    all(connection, Table::Calendars, CALENDAR_COLUMNS, from, params![namespace, name], |row| {
        rows::calendar(row)
    })
}

fn all<T>(
    connection: &Connection,
    table: Table,
    columns: &str,
    from: &str,
    values: &[&dyn ToSql],
    mut decode: impl FnMut(&Row<'_>) -> Result<T, DecodeError>,
) -> Result<Decoded<T>, Failure> {
    let mut statement = connection.prepare_cached(&format!("SELECT {columns} FROM {from}"))?;
    let mut found = statement.query(values)?;
    let mut sorted = Decoded::default();
    while let Some(row) = found.next()? {
        sorted.push(table, row, decode(row))?;
    }
    Ok(sorted)
}

/// Returns the number of jobs in each status. Every commit maintains the counts: O(namespaces), not O(jobs).
pub(super) fn counts(connection: &Connection, namespace: Option<&str>) -> Result<Counts, Failure> {
    let mut statement = connection.prepare_cached(
        "SELECT status, sum(count) FROM job_counts WHERE ?1 IS NULL OR namespace = ?1 GROUP BY status",
    )?;
    let rows = statement.query_map([namespace], |row| Ok((row.get::<_, u8>(0)?, row.get::<_, i64>(1)?)))?;
    let mut counts = Counts::new();
    for row in rows {
        let (status, count) = row?;
        if let (Some(status), Ok(count @ 1..)) = (JobStatus::from_code(status), u64::try_from(count)) {
            counts.insert(status, count);
        }
    }
    Ok(counts)
}

/// Returns a page of events, and the event rows that could not be decoded.
pub(super) fn events(
    connection: &Connection,
    after: EventSeq,
    limit: usize,
) -> Result<(EventPage, Vec<DamagedRow>), Failure> {
    let next: u64 = connection.query_row("SELECT next_event FROM meta", [], |row| row.get(0))?;
    let oldest: Option<u64> = connection.query_row("SELECT min(first) FROM events", [], |row| row.get(0))?;
    let mut page = EventPage {
        events: Vec::new(),
        oldest: EventSeq(oldest.unwrap_or(next)),
        newest: EventSeq(next.saturating_sub(1)),
    };
    // The row with the first requested event starts at or before it.
    let mut statement = connection.prepare_cached(
        "SELECT first, payload FROM events
         WHERE first >= coalesce((SELECT max(first) FROM events WHERE first <= ?1), 0) ORDER BY first",
    )?;
    let wanted = i64::try_from(after.0.saturating_add(1)).unwrap_or(i64::MAX);
    let mut found = statement.query([wanted])?;
    let mut damaged = Vec::new();
    while page.events.len() < limit
        && let Some(row) = found.next()?
    {
        let first: u64 = row.get(0)?;
        match open_events(first, row.get_ref(1)?.as_blob().map_err(|e| DecodeError::decode("payload", e))?) {
            Ok(events) => {
                let placed = (first..).map(EventSeq).zip(events).filter(|(seq, _)| *seq > after);
                let room = limit - page.events.len();
                page.events.extend(placed.take(room));
            }
            Err(damage) => damaged.push(DamagedRow::new(Table::Events, vec![row.get(0)?], &damage)),
        }
    }
    Ok((page, damaged))
}
