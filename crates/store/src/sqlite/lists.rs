//! Execution of list queries on SQLite, and the counts of schedules and ledger entries.
//!
//! `lists` in the crate's root builds a query from a filter; `page` runs its legs on one snapshot, and merges
//! them. Rows that cannot be decoded are returned in [`Found`], for the quarantine.
//!
//! # Cost
//! A page reads rows in the order of an index. With a filter by label, the newest rows of the label are
//! searched first, and the whole index only if they do not fill a page. Counts of schedules scan an index
//! that no firing changes.

use model::firing::{LedgerRecord, ScheduleStatus};
use model::{BackfillId, ExecutionId, JobId, RunId, ScheduleId, ServiceId, Timestamp, WorkflowId};
use rusqlite::{Connection, Row, params, types};

use super::error::Failure;
use super::quarantine::DamagedRow;
use super::rows::Decoded;
use super::views::DefinitionCache;
use crate::audit::{AuditFilter, AuditRow};
use crate::codec::{DecodeError, firing_outcome_from, schedule_status};
use crate::lists::{self, Dialect, List, Value};
use crate::query::{
    BackfillRow, ExecutionFilter, ExecutionRow, JobFilter, JobRow, LedgerCounts, LedgerFilter,
    LedgerPosition, Page, Paged, RunFilter, RunRow, ScheduleCounts, ScheduleFilter, ScheduleRow,
    ServiceFilter, ServiceRow, WorkflowFilter, WorkflowRow,
};
use crate::rows::{self, Table};

/// Page of a list, and rows that could not be decoded.
#[derive(Debug)]
pub(super) struct Found<T> {
    pub(super) page: Paged<T>,
    pub(super) damaged: Vec<DamagedRow>,
}

fn values(values: &[Value]) -> impl Iterator<Item = types::Value> {
    values.iter().map(|value| match value {
        Value::Id(bits) => types::Value::Blob(bits.to_be_bytes().to_vec()),
        Value::BackfillKey(0) => types::Value::Blob(Vec::new()),
        Value::BackfillKey(bits) => types::Value::Blob(bits.to_be_bytes().to_vec()),
        Value::Integer(number) => types::Value::Integer(*number),
        Value::Text(text) => types::Value::Text(text.clone()),
    })
}

fn collect<T>(
    connection: &Connection,
    list: &List,
    decode: impl FnMut(&Row<'_>) -> Result<T, DecodeError>,
) -> Result<Decoded<T>, Failure> {
    let statements = list.legs.iter().map(|leg| (leg.table, list.sql(leg, Dialect::Sqlite)));
    run(connection, list, statements, decode)
}

fn run<T>(
    connection: &Connection,
    list: &List,
    statements: impl Iterator<Item = (Table, String)>,
    mut decode: impl FnMut(&Row<'_>) -> Result<T, DecodeError>,
) -> Result<Decoded<T>, Failure> {
    let mut sorted = Decoded::default();
    for (table, sql) in statements {
        let found = rows_of(connection, table, &sql, &list.conditions.values, &mut decode)?;
        sorted.good.extend(found.good);
        sorted.damaged.extend(found.damaged);
    }
    Ok(sorted)
}

/// Decodes the rows of one statement.
pub(super) fn rows_of<T>(
    connection: &Connection,
    table: Table,
    sql: &str,
    parameters: &[Value],
    mut decode: impl FnMut(&Row<'_>) -> Result<T, DecodeError>,
) -> Result<Decoded<T>, Failure> {
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query(rusqlite::params_from_iter(values(parameters)))?;
    let mut sorted = Decoded::default();
    while let Some(row) = rows.next()? {
        sorted.push(table, row, decode(row))?;
    }
    Ok(sorted)
}

/// Searches only the newest rows of a label; returns `None` if they do not fill a page.
fn newest<T>(
    connection: &Connection,
    list: &List,
    decode: impl FnMut(&Row<'_>) -> Result<T, DecodeError>,
) -> Result<Option<Decoded<T>>, Failure> {
    let statements = list.legs.iter().map(|leg| Some((leg.table, list.sql_over_newest(leg)?)));
    let Some(statements) = statements.collect::<Option<Vec<_>>>() else { return Ok(None) };
    let found = run(connection, list, statements.into_iter(), decode)?;
    Ok((found.good.len() > list.limit).then_some(found))
}

fn page<T, Place: Ord>(
    connection: &Connection,
    list: &List,
    mut decode: impl FnMut(&Row<'_>) -> Result<T, DecodeError>,
    place: impl Fn(&T) -> Place,
) -> Result<Found<T>, Failure> {
    let Decoded { good, damaged } = match newest(connection, list, &mut decode)? {
        Some(found) => found,
        None => collect(connection, list, decode)?,
    };
    Ok(Found { page: list.page(good, place), damaged })
}

/// Returns a page of jobs, without their histories.
pub(super) fn jobs(
    connection: &Connection,
    filter: &JobFilter,
    after: Page<JobId>,
) -> Result<Found<JobRow>, Failure> {
    page(connection, &lists::jobs(filter, after), |row| rows::job(row), |job| job.id)
}

/// Returns a page of executions.
pub(super) fn executions(
    connection: &Connection,
    filter: &ExecutionFilter,
    after: Page<ExecutionId>,
) -> Result<Found<ExecutionRow>, Failure> {
    page(connection, &lists::executions(filter, after), |row| rows::execution(row), |row| row.record.id)
}

/// Returns a page of schedules.
pub(super) fn schedules(
    connection: &Connection,
    filter: &ScheduleFilter,
    after: Page<ScheduleId>,
) -> Result<Found<ScheduleRow>, Failure> {
    page(connection, &lists::schedules(filter, after), |row| rows::schedule(row), |schedule| schedule.id)
}

/// Returns schedules ordered by next scheduled time, after `after`.
pub(super) fn upcoming(
    connection: &Connection,
    filter: &ScheduleFilter,
    after: Option<(Timestamp, ScheduleId)>,
    limit: usize,
) -> Result<Decoded<ScheduleRow>, Failure> {
    let list = lists::upcoming(filter, after, limit);
    let mut sorted = collect(connection, &list, |row| rows::schedule(row))?;
    sorted.good.truncate(limit);
    Ok(sorted)
}

/// Returns a page of ledger entries, each with its position.
pub(super) fn ledger(
    connection: &Connection,
    filter: &LedgerFilter,
    after: Page<LedgerPosition>,
) -> Result<Found<(LedgerPosition, LedgerRecord)>, Failure> {
    page(connection, &lists::ledger(filter, after), |row| rows::ledger(row), |(place, _)| *place)
}

/// Returns a page of backfills.
pub(super) fn backfills(
    connection: &Connection,
    schedule: Option<ScheduleId>,
    namespace: Option<&str>,
    after: Page<BackfillId>,
) -> Result<Found<BackfillRow>, Failure> {
    let list = lists::backfills(schedule, namespace, after);
    page(connection, &list, |row| rows::backfill(row), |backfill| backfill.head.id)
}

/// Returns a page of the audit log.
pub(super) fn audit(
    connection: &Connection,
    filter: &AuditFilter,
    after: Page<u64>,
) -> Result<Found<AuditRow>, Failure> {
    page(connection, &lists::audit(filter, after), |row| rows::audit(row), |row| row.link.sequence)
}

/// Returns a page of workflows.
pub(super) fn workflows(
    connection: &Connection,
    filter: &WorkflowFilter,
    after: Page<WorkflowId>,
) -> Result<Found<WorkflowRow>, Failure> {
    page(connection, &lists::workflows(filter, after), |row| rows::workflow(row), |workflow| workflow.id)
}

/// Returns a page of services.
pub(super) fn services(
    connection: &Connection,
    filter: &ServiceFilter,
    after: Page<ServiceId>,
) -> Result<Found<ServiceRow>, Failure> {
    page(connection, &lists::services(filter, after), |row| rows::service(row), |service| service.id)
}

/// Returns a page of runs, each with the newest transition of its history. Each definition is read once.
pub(super) fn runs(
    connection: &Connection,
    filter: &RunFilter,
    after: Page<RunId>,
) -> Result<Found<RunRow>, Failure> {
    let mut pins = DefinitionCache::new(connection);
    let decode = |row: &Row<'_>| rows::run(row, |hash| pins.pinned(hash)).map(rows::with_newest);
    let found = page(connection, &lists::runs(filter, after), decode, |run| run.id)?;
    pins.check().map(|()| found)
}

/// Counts the scheduled times of a schedule by outcome.
pub(super) fn ledger_counts(
    connection: &Connection,
    schedule: ScheduleId,
    since: Option<Timestamp>,
) -> Result<LedgerCounts, Failure> {
    let mut counts = LedgerCounts::new();
    let mut add = |sql: &str, since: Timestamp| -> Result<(), Failure> {
        let mut statement = connection.prepare_cached(sql)?;
        let mut found = statement.query(params![schedule.to_bits().to_be_bytes(), since.as_micros()])?;
        while let Some(row) = found.next()? {
            if let Some(outcome) = firing_outcome_from(row.get(0)?) {
                *counts.entry(outcome).or_default() += row.get::<_, u64>(1)?;
            }
        }
        Ok(())
    };
    add(
        "SELECT outcome, sum(count) FROM ledger INDEXED BY ledger_schedule
         WHERE schedule = ?1 AND first >= ?2 GROUP BY outcome",
        since.unwrap_or(Timestamp::from_micros(i64::MIN)),
    )?;
    if let Some(since) = since {
        add(
            "SELECT outcome, sum(count) FROM ledger INDEXED BY ledger_rows
             WHERE count > 1 AND last >= ?2 AND first < ?2 AND schedule = ?1 GROUP BY outcome",
            since,
        )?;
    }
    Ok(counts)
}

/// Counts the schedules by status.
///
/// The count scans indexes that a firing does not change: some 30 ms for a million schedules. Maintained counts would
/// make each firing read the previous status.
pub(super) fn schedule_counts(
    connection: &Connection,
    namespace: Option<&str>,
) -> Result<ScheduleCounts, Failure> {
    let all = match namespace {
        None => connection
            .prepare_cached("SELECT count(*) FROM schedules INDEXED BY schedules_namespace")?
            .query_row([], |row| row.get::<_, u64>(0))?,
        Some(namespace) => connection
            .prepare_cached(
                "SELECT count(*) FROM schedules INDEXED BY schedules_namespace WHERE namespace = ?1",
            )?
            .query_row([namespace], |row| row.get(0))?,
    };
    let mut statement = connection.prepare_cached(
        "SELECT status, count(*) FROM schedules INDEXED BY schedules_status
         WHERE status <> 0 AND (?1 IS NULL OR namespace = ?1) GROUP BY status",
    )?;
    let mut found = statement.query(params![namespace])?;
    let (mut counts, mut inactive) = (ScheduleCounts::new(), 0);
    while let Some(row) = found.next()? {
        let count: u64 = row.get(1)?;
        inactive += count;
        // A query that reads a row with an unknown status quarantines the row.
        if let Ok(status) = schedule_status("status", row.get(0)?) {
            counts.insert(status, count);
        }
    }
    if all > inactive {
        counts.insert(ScheduleStatus::Active, all - inactive);
    }
    Ok(counts)
}

/// Returns SQLite's query plan for each leg of a list.
#[cfg(test)]
pub(crate) fn plans(list: &List) -> String {
    let plan = |leg| sql_plan(&list.sql(leg, Dialect::Sqlite), &list.conditions.values);
    list.legs.iter().map(plan).collect::<Vec<_>>().join("\n")
}

/// Returns SQLite's query plan for a statement.
#[cfg(test)]
pub(crate) fn sql_plan(sql: &str, parameters: &[Value]) -> String {
    let connection = Connection::open_in_memory().unwrap();
    super::schema::migrate(&connection, 0, 1).unwrap();
    let mut statement = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
    let steps = statement
        .query_map(rusqlite::params_from_iter(values(parameters)), |row| row.get::<_, String>(3))
        .unwrap();
    steps.map(Result::unwrap).collect::<Vec<_>>().join("; ")
}
