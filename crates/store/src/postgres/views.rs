//! All queries: pages of lists, single rows, counts, events.
//!
//! Each query has a function that builds it and a function that decodes its answer, so that several queries
//! can run on one snapshot. `reads` sends them. The columns of a record, and their decoding, are in `rows`;
//! filters and indexes of lists are in `lists`.
//!
//! A row that cannot be decoded does not fail its query: it is collected in [`Decoded`] with its key. Counts
//! are added up from maintained counts or read from indexes, never from all jobs.

use std::borrow::Cow;
use std::collections::HashMap;

use model::calendar::CalendarRecord;
use model::checkpoint::CheckpointRecord;
use model::firing::ScheduleStatus;
use model::run::{ElementBatch, StepRecord, WorkflowHead};
use model::{ExecutionId, JobId, JobStatus, RunId, ScheduleId, Timestamp, WorkflowId};
use tokio_postgres::Row;

use super::connection::Query;
use super::param::{self, Param, big, optional_text, text};
use super::quarantine::{DamagedRow, Key};
use super::rows::Decoded;
use crate::codec::{DecodeError, NO_LIST, firing_outcome_from, open_events, schedule_status};
use crate::lists::{self, Dialect, List, Replicas};
use crate::query::{
    BackfillRow, Counts, EventPage, EventSeq, ExecutionRow, JobRow, LedgerCounts, ReplicaRow, RunRow,
    ScheduleCounts, ScheduleRow, ServiceRow, WorkflowRow,
};
use crate::rows::{
    self, BACKFILL_COLUMNS, BACKFILL_REST, CHECKPOINT_COLUMNS, Definitions, ELEMENTS_COLUMNS,
    EXECUTION_COLUMNS, Fields, JOB_COLUMNS, RUN_COLUMNS, RUN_REST, SCHEDULE_COLUMNS, SCHEDULE_REST,
    SERVICE_COLUMNS, SERVICE_REST, STEP_COLUMNS, Table, WORKFLOW_COLUMNS, WORKFLOW_HEAD_COLUMNS,
    WORKFLOW_REST,
};

/// Builds the queries for the legs of a list.
pub(super) fn list_queries(list: &List) -> Vec<Query> {
    let values = || list.conditions.values.iter().map(param::value).collect();
    list.legs.iter().map(|leg| Query::new(list.sql(leg, Dialect::Postgres), values())).collect()
}

/// Merges the results of the parts of a list query.
pub(super) fn listed<T>(
    list: &List,
    answers: &[Vec<Row>],
    decode: impl Fn(&Row) -> Result<T, DecodeError>,
) -> Result<Decoded<T>, DecodeError> {
    let mut sorted = Decoded::default();
    for (leg, rows) in list.legs.iter().zip(answers) {
        sorted.take(leg.table, rows, &decode)?;
    }
    Ok(sorted)
}

/// Selects a live job by ID, and the job in the history.
pub(super) fn job_queries(id: JobId) -> [Query; 2] {
    [Table::Jobs, Table::JobsEnded].map(|table| {
        let sql = format!("SELECT {JOB_COLUMNS}, t.history FROM {} t WHERE t.id = $1", table.name());
        Query::new(sql, vec![param::id(id.to_bits())])
    })
}

/// Decodes the answers to [`job_queries`].
pub(super) fn job(answers: &[Vec<Row>]) -> Result<Decoded<JobRow>, DecodeError> {
    let mut sorted = Decoded::default();
    for (table, found) in [Table::Jobs, Table::JobsEnded].into_iter().zip(answers) {
        sorted.take(table, found, rows::job_with_history)?;
    }
    Ok(sorted)
}

/// Selects a live execution by ID, and the execution in the history.
pub(super) fn execution_queries(id: ExecutionId) -> [Query; 2] {
    [Table::Executions, Table::ExecutionsEnded].map(|table| {
        let sql = format!("SELECT {EXECUTION_COLUMNS} FROM {} t WHERE t.id = $1", table.name());
        Query::new(sql, vec![param::id(id.to_bits())])
    })
}

/// Decodes the answers to [`execution_queries`].
pub(super) fn execution(answers: &[Vec<Row>]) -> Result<Decoded<ExecutionRow>, DecodeError> {
    let mut sorted = Decoded::default();
    for (table, found) in [Table::Executions, Table::ExecutionsEnded].into_iter().zip(answers) {
        sorted.take(table, found, rows::execution)?;
    }
    Ok(sorted)
}

/// Selects schedules that match a condition.
pub(super) fn schedule_query(condition: &str, params: Vec<Param>) -> Query {
    let sql = format!("SELECT {SCHEDULE_COLUMNS} FROM schedules t {SCHEDULE_REST} WHERE {condition}");
    Query::new(sql, params)
}

/// Decodes the answer to [`schedule_query`].
pub(super) fn schedule(answer: &[Row]) -> Result<Decoded<ScheduleRow>, DecodeError> {
    let mut sorted = Decoded::default();
    sorted.take(Table::Schedules, answer, rows::schedule)?;
    Ok(sorted)
}

/// Selects a backfill.
pub(super) fn backfill_query(id: u128) -> Query {
    let sql = format!("SELECT {BACKFILL_COLUMNS} FROM backfills t {BACKFILL_REST} WHERE t.id = $1");
    Query::new(sql, vec![param::id(id)])
}

/// Decodes the answer to [`backfill_query`].
pub(super) fn backfill(answer: &[Row]) -> Result<Decoded<BackfillRow>, DecodeError> {
    let mut sorted = Decoded::default();
    sorted.take(Table::Backfills, answer, rows::backfill)?;
    Ok(sorted)
}

/// Selects workflows that match a condition, with their newest specs.
pub(super) fn workflow_query(condition: &str, params: Vec<Param>) -> Query {
    let sql = format!("SELECT {WORKFLOW_COLUMNS} FROM workflows t {WORKFLOW_REST} WHERE {condition}");
    Query::new(sql, params)
}

/// Decodes the answer to [`workflow_query`].
pub(super) fn workflow(answer: &[Row]) -> Result<Decoded<WorkflowRow>, DecodeError> {
    let mut sorted = Decoded::default();
    sorted.take(Table::Workflows, answer, rows::workflow)?;
    Ok(sorted)
}

/// Selects a generation of a workflow.
pub(super) fn workflow_version_query(id: WorkflowId, generation: i64) -> Query {
    let sql =
        format!("SELECT {WORKFLOW_HEAD_COLUMNS} FROM workflow_heads t WHERE t.id = $1 AND t.generation = $2");
    Query::new(sql, vec![param::id(id.to_bits()), big(generation)])
}

/// Decodes the answer to [`workflow_version_query`].
pub(super) fn workflow_version(answer: &[Row]) -> Result<Decoded<WorkflowHead>, DecodeError> {
    let mut sorted = Decoded::default();
    sorted.take(Table::WorkflowHeads, answer, rows::workflow_version)?;
    Ok(sorted)
}

/// Selects services that match a condition.
pub(super) fn service_query(condition: &str, params: Vec<Param>) -> Query {
    let sql = format!("SELECT {SERVICE_COLUMNS} FROM services t {SERVICE_REST} WHERE {condition}");
    Query::new(sql, params)
}

/// Decodes the answer to [`service_query`].
pub(super) fn service(answer: &[Row]) -> Result<Decoded<ServiceRow>, DecodeError> {
    let mut sorted = Decoded::default();
    sorted.take(Table::Services, answer, rows::service)?;
    Ok(sorted)
}

/// Selects the jobs of replicas, and their live executions.
pub(super) fn replicas_queries(of: &Replicas) -> [Query; 2] {
    let values = || of.values.iter().map(param::value).collect();
    [of.jobs_sql(), of.executions_sql()].map(|sql| Query::new(sql, values()))
}

/// Decodes the answers to [`replicas_queries`].
pub(super) fn replicas(answers: &[Vec<Row>]) -> Result<Decoded<ReplicaRow>, DecodeError> {
    let (mut jobs, mut executions) = (Decoded::default(), Decoded::default());
    jobs.take(Table::Jobs, &answers[0], rows::replica)?;
    executions.take(Table::Executions, &answers[1], rows::execution)?;
    let damaged = jobs.damaged.into_iter().chain(executions.damaged).collect();
    Ok(Decoded { good: rows::with_executions(jobs.good, executions.good), damaged })
}

/// Selects a run, and its definition.
pub(super) fn run_queries(id: RunId) -> [Query; 2] {
    let run = format!("SELECT {RUN_COLUMNS} FROM runs t {RUN_REST} WHERE t.id = $1");
    let definition = "SELECT d.hash, d.body FROM run_definitions d
        WHERE d.hash IN (SELECT h.definition FROM run_heads h WHERE h.id = $1)";
    let params = || vec![param::id(id.to_bits())];
    [Query::new(run, params()), Query::new(definition, params())]
}

/// Decodes the answers to [`run_queries`].
pub(super) fn run(answers: &[Vec<Row>]) -> Result<Decoded<RunRow>, DecodeError> {
    pinned_runs([&*answers[0]], &answers[1..], |run| run)
}

/// Builds the queries for the legs of a list of runs, each followed by a query for the distinct definitions of its
/// runs.
pub(super) fn runs_queries(list: &List) -> Vec<Query> {
    let values = || list.conditions.values.iter().map(param::value).collect();
    let definitions = |leg| Query::new(lists::definitions_sql(list, leg), values());
    list_queries(list).into_iter().chain(list.legs.iter().map(definitions)).collect()
}

/// Decodes the answers to [`runs_queries`]; each run has only the newest transition of its history.
pub(super) fn runs(list: &List, answers: &[Vec<Row>]) -> Result<Decoded<RunRow>, DecodeError> {
    let (legs, definitions) = answers.split_at(list.legs.len());
    pinned_runs(legs.iter().map(|leg| &**leg), definitions, rows::with_newest)
}

/// Decodes runs. Each definition is parsed once.
fn pinned_runs<'a>(
    legs: impl IntoIterator<Item = &'a [Row]>,
    definitions: &[Vec<Row>],
    finish: impl Fn(RunRow) -> RunRow,
) -> Result<Decoded<RunRow>, DecodeError> {
    let mut bodies = HashMap::new();
    for row in definitions.iter().flatten() {
        bodies.insert(row.bits(0, "hash")?, row.bytes(1, "body")?);
    }
    let mut known = Definitions::default();
    let mut pinned = |hash| known.get(hash, || Ok(bodies.get(&hash).map(|body| Cow::Borrowed(*body))));
    let mut sorted = Decoded::default();
    for leg in legs {
        sorted.take(Table::Runs, leg, |row| rows::run(row, &mut pinned).map(&finish))?;
    }
    Ok(sorted)
}

/// Selects the last checkpoint of a job.
pub(super) fn checkpoint_query(job: JobId) -> Query {
    Query::new(
        format!("SELECT {CHECKPOINT_COLUMNS} FROM checkpoints t WHERE t.job = $1"),
        vec![param::id(job.to_bits())],
    )
}

/// Decodes the answer to [`checkpoint_query`].
pub(super) fn checkpoint(answer: &[Row]) -> Result<Decoded<CheckpointRecord>, DecodeError> {
    let mut sorted = Decoded::default();
    sorted.take(Table::Checkpoints, answer, rows::checkpoint)?;
    Ok(sorted)
}

/// Selects the steps of a run, without their elements.
pub(super) fn run_steps_query(run: RunId) -> Query {
    Query::new(
        format!("SELECT {STEP_COLUMNS} FROM steps t WHERE t.run = $1 AND t.list = $2 ORDER BY t.number"),
        vec![param::id(run.to_bits()), big(NO_LIST)],
    )
}

/// Selects at most `limit` elements of a step after `after`.
pub(super) fn run_elements_query(run: RunId, step: u32, after: Option<u32>, limit: usize) -> Query {
    Query::new(
        format!(
            "SELECT {STEP_COLUMNS} FROM steps t WHERE t.run = $1 AND t.list = $2 AND t.number > $3
             ORDER BY t.number LIMIT $4"
        ),
        vec![
            param::id(run.to_bits()),
            big(step.into()),
            big(after.map_or(-1, i64::from)),
            big(i64::try_from(limit).unwrap_or(i64::MAX)),
        ],
    )
}

/// Decodes the answer to [`run_steps_query`] or [`run_elements_query`].
pub(super) fn steps(answer: &[Row]) -> Result<Decoded<StepRecord>, DecodeError> {
    let mut sorted = Decoded::default();
    sorted.take(Table::Steps, answer, rows::step)?;
    Ok(sorted)
}

/// Selects the elements that tasks of a run added to its steps.
pub(super) fn element_batches_query(run: RunId) -> Query {
    Query::new(
        format!("SELECT {ELEMENTS_COLUMNS} FROM element_batches t WHERE t.run = $1 ORDER BY t.step, t.first"),
        vec![param::id(run.to_bits())],
    )
}

/// Decodes the answer to [`element_batches_query`].
pub(super) fn element_batches(answer: &[Row]) -> Result<Decoded<ElementBatch>, DecodeError> {
    let mut sorted = Decoded::default();
    sorted.take(Table::ElementBatches, answer, rows::elements)?;
    Ok(sorted)
}

/// Selects all workers.
pub(super) fn workers_query() -> Query {
    Query::new("SELECT t.id, t.record FROM workers t", Vec::new())
}

/// Selects all queues.
pub(super) fn queues_query() -> Query {
    Query::new("SELECT t.name, t.record FROM queues t", Vec::new())
}

/// Selects all namespaces that have settings.
pub(super) fn namespaces_query() -> Query {
    Query::new("SELECT t.name, t.record FROM namespaces t", Vec::new())
}

/// Selects the calendars of one namespace or of all.
pub(super) fn calendars_query(namespace: Option<&str>) -> Query {
    Query::new(
        "SELECT t.namespace, t.name, t.record FROM calendars t WHERE $1 IS NULL OR t.namespace = $1",
        vec![optional_text(namespace)],
    )
}

/// Selects a calendar by name.
pub(super) fn calendar_query(namespace: &str, name: &str) -> Query {
    Query::new(
        "SELECT t.namespace, t.name, t.record FROM calendars t WHERE t.namespace = $1 AND t.name = $2",
        vec![text(namespace), text(name)],
    )
}

/// Decodes the answer to either query, ordered by namespace and name.
pub(super) fn calendars(answer: &[Row]) -> Result<Decoded<CalendarRecord>, DecodeError> {
    let mut sorted = Decoded::default();
    sorted.take(Table::Calendars, answer, rows::calendar)?;
    let key = |record: &CalendarRecord| (record.spec.namespace.clone(), record.spec.name.clone());
    sorted.good.sort_by_cached_key(key);
    Ok(sorted)
}

/// Counts the jobs in each status by adding up the parts: O(namespaces × shards), not O(jobs).
pub(super) fn counts_query(namespace: Option<&str>) -> Query {
    Query::new(
        "SELECT status, sum(count)::BIGINT FROM job_counts WHERE $1 IS NULL OR namespace = $1 GROUP BY status",
        vec![optional_text(namespace)],
    )
}

/// Decodes the answer to [`counts_query`].
pub(super) fn counts(answer: &[Row]) -> Result<Counts, DecodeError> {
    let mut counts = Counts::new();
    for row in answer {
        let (status, count) = (row.number(0, "status")?, row.number::<i64>(1, "count")?);
        if let (Some(status), Ok(count @ 1..)) = (JobStatus::from_code(status), u64::try_from(count)) {
            counts.insert(status, count);
        }
    }
    Ok(counts)
}

/// Counts the schedules in each status, in indexes that a firing does not change.
pub(super) fn schedule_counts_queries(namespace: Option<&str>) -> [Query; 2] {
    let params = || vec![optional_text(namespace)];
    [
        Query::new("SELECT count(*) FROM schedules WHERE $1 IS NULL OR namespace = $1", params()),
        Query::new(
            "SELECT status, count(*) FROM schedules WHERE status <> 0 AND ($1 IS NULL OR namespace = $1)
             GROUP BY status",
            params(),
        ),
    ]
}

/// Decodes the answers to [`schedule_counts_queries`].
pub(super) fn schedule_counts(answers: &[Vec<Row>]) -> Result<ScheduleCounts, DecodeError> {
    let all: u64 = answers[0].first().map_or(Ok(0), |row| row.number(0, "count"))?;
    let (mut counts, mut inactive) = (ScheduleCounts::new(), 0);
    for row in &answers[1] {
        let count: u64 = row.number(1, "count")?;
        inactive += count;
        // A load that reads a row with an unknown status quarantines the row.
        if let Ok(status) = schedule_status("status", row.number(0, "status")?) {
            counts.insert(status, count);
        }
    }
    if all > inactive {
        counts.insert(ScheduleStatus::Active, all - inactive);
    }
    Ok(counts)
}

/// Counts the scheduled times of a schedule by outcome, including entries that only partly lie in the range.
pub(super) fn ledger_counts_query(schedule: ScheduleId, since: Option<Timestamp>) -> Query {
    let since = since.map_or(i64::MIN, Timestamp::as_micros);
    Query::new(
        "SELECT outcome, sum(count)::BIGINT FROM ledger
         WHERE schedule = $1 AND (first >= $2 OR (count > 1 AND last >= $2)) GROUP BY outcome",
        vec![param::id(schedule.to_bits()), big(since)],
    )
}

/// Decodes the answer to [`ledger_counts_query`].
pub(super) fn ledger_counts(answer: &[Row]) -> Result<LedgerCounts, DecodeError> {
    let mut counts = LedgerCounts::new();
    for row in answer {
        if let Some(outcome) = firing_outcome_from(row.number(0, "outcome")?) {
            *counts.entry(outcome).or_default() += row.number::<u64>(1, "count")?;
        }
    }
    Ok(counts)
}

/// Selects a page of the feed from one snapshot. See [`commit`](super::commit) for why a later commit never has an
/// earlier position. After a loss of commits, the positions have a gap.
pub(super) fn events_queries(after: EventSeq, limit: usize) -> [Query; 3] {
    // Each row has at least one event, so this number of rows is sufficient; the first row may start before the
    // position.
    let rows = i64::try_from(limit.saturating_add(1)).unwrap_or(i64::MAX);
    // A reader of only future events passes the maximum position.
    let wanted = i64::try_from(after.0.saturating_add(1)).unwrap_or(i64::MAX).min(i64::MAX - rows);
    [
        Query::new("SELECT next_event FROM meta", Vec::new()),
        Query::new("SELECT min(first) FROM events", Vec::new()),
        Query::new(
            "SELECT first, at, payload FROM events
             WHERE first >= coalesce((SELECT max(first) FROM events WHERE first <= $1), 0)
             ORDER BY first LIMIT $2",
            vec![big(wanted), big(rows)],
        ),
    ]
}

/// Decodes the answers to [`events_queries`]; also returns the rows that could not be decoded.
pub(super) fn events(
    answers: &[Vec<Row>],
    after: EventSeq,
    limit: usize,
) -> Result<(EventPage, Vec<DamagedRow>), DecodeError> {
    let next: u64 = answers[0].first().map_or(Ok(1), |row| row.number(0, "next_event"))?;
    let oldest = match answers[1].first() {
        Some(row) => row.optional_integer(0, "first")?,
        None => None,
    };
    let mut page = EventPage {
        events: Vec::new(),
        oldest: EventSeq(oldest.map_or(next, i64::cast_unsigned)),
        newest: EventSeq(next.saturating_sub(1)),
    };
    let mut damaged = Vec::new();
    for row in &answers[2] {
        if page.events.len() >= limit {
            break;
        }
        let first: u64 = row.number(0, "first")?;
        let at: i64 = row.number(1, "at")?;
        match row.bytes(2, "payload").and_then(|payload| open_events(at.cast_unsigned(), payload)) {
            Ok(events) => {
                let placed = (first..).map(EventSeq).zip(events).filter(|(seq, _)| *seq > after);
                let room = limit - page.events.len();
                page.events.extend(placed.take(room));
            }
            Err(damage) => {
                let key = vec![Key::Number(first.cast_signed())];
                damaged.push(DamagedRow::new(Table::Events, key, &damage));
            }
        }
    }
    Ok((page, damaged))
}
