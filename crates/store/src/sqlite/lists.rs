//! Lists of jobs and executions, newest first.
//!
//! A list is made of *legs*: one over the live rows, one or a few over the history, each read
//! backwards over an index that is named here (SQLite's planner has no statistics to choose by). A
//! row stands in one of them only, so a page is the newest of what the legs found together. All legs
//! read the same state of the store; a job that moves to the history between two pages keeps its id,
//! and with it its place.

use model::{ExecutionStatus, JobId, JobStatus, Timestamp};
use rusqlite::Connection;
use rusqlite::types::Value;

use super::error::Failure;
use super::quarantine::Table;
use super::rows::{self, EXECUTION_COLUMNS, JOB_COLUMNS, Sorted};
use crate::query::{ExecutionFilter, ExecutionRow, JobFilter, JobRow, Page, Paged};

/// A page, and rows that could not be read.
#[derive(Debug)]
pub(super) struct Found<T> {
    pub(super) page: Paged<T>,
    pub(super) damaged: Vec<super::quarantine::Damaged>,
}

/// A query in the making: conditions, and the values that they compare with.
#[derive(Debug, Default)]
struct Conditions {
    text: Vec<String>,
    values: Vec<Value>,
}

impl Conditions {
    /// Adds `condition`, where `?` stands for the value.
    fn add(&mut self, condition: &str, value: impl Into<Value>) {
        self.values.push(value.into());
        let place = format!("?{}", self.values.len());
        self.text.push(condition.replacen('?', &place, 1));
    }

    fn add_optional<T: Into<Value>>(&mut self, condition: &str, value: Option<T>) {
        if let Some(value) = value {
            self.add(condition, value);
        }
    }

    fn join(&self) -> String {
        if self.text.is_empty() { "1".into() } else { self.text.join(" AND ") }
    }
}

fn blob(bits: u128) -> Vec<u8> {
    bits.to_be_bytes().to_vec()
}

/// A part of a list: what it reads from, and a condition of its own.
#[derive(Debug)]
struct Leg {
    table: Table,
    source: String,
    order: &'static str,
    condition: Option<String>,
}

impl Leg {
    fn sql(&self, columns: &str, conditions: &Conditions) -> String {
        let condition = self.condition.as_deref().map(|own| format!(" AND {own}")).unwrap_or_default();
        format!(
            "SELECT {columns} FROM {} WHERE {}{condition} ORDER BY {} DESC LIMIT {{limit}}",
            self.source,
            conditions.join(),
            self.order,
        )
    }
}

fn collect<T>(
    connection: &Connection,
    legs: &[Leg],
    columns: &str,
    conditions: &Conditions,
    limit: usize,
    decode: impl Fn(&rusqlite::Row<'_>) -> Result<T, super::codec::Damage>,
) -> Result<Sorted<T>, Failure> {
    let mut sorted = Sorted::default();
    for leg in legs {
        let sql = leg.sql(columns, conditions).replace("{limit}", &(limit + 1).to_string());
        let mut statement = connection.prepare_cached(&sql)?;
        let mut rows = statement.query(rusqlite::params_from_iter(&conditions.values))?;
        while let Some(row) = rows.next()? {
            sorted.push(leg.table, row, decode(row))?;
        }
    }
    Ok(sorted)
}

fn page<T>(sorted: Sorted<T>, limit: usize, id: impl Fn(&T) -> u128) -> Found<T> {
    let Sorted { mut good, damaged } = sorted;
    good.sort_unstable_by_key(|item| std::cmp::Reverse(id(item)));
    let more = good.len() > limit;
    good.truncate(limit);
    Found { page: Paged { items: good, more }, damaged }
}

/// One page of jobs, without their histories.
pub(super) fn jobs(
    connection: &Connection,
    filter: &JobFilter,
    after: Page<JobId>,
) -> Result<Found<JobRow>, Failure> {
    let limit = after.limit.max(1);
    let conditions = job_conditions(filter, after.after);
    let legs = job_legs(filter);
    let sorted = collect(connection, &legs, JOB_COLUMNS, &conditions, limit, rows::job)?;
    Ok(page(sorted, limit, |job| job.id.to_bits()))
}

fn job_conditions(filter: &JobFilter, after: Option<JobId>) -> Conditions {
    let mut conditions = Conditions::default();
    let id = if filter.labels.is_empty() { "t.id" } else { "l.job" };
    if let Some((key, value)) = filter.labels.first_key_value() {
        conditions.add("l.key = ?", key.clone());
        conditions.add("l.value = ?", value.clone());
    }
    let below = [after.map(JobId::to_bits), filter.created_before.map(first_id_from)];
    conditions.add_optional(&format!("{id} < ?"), below.into_iter().flatten().min().map(blob));
    conditions.add_optional(&format!("{id} >= ?"), filter.created_after.map(first_id_from).map(blob));
    conditions.add_optional("t.namespace = ?", filter.namespace.clone());
    conditions.add_optional("t.name = ?", filter.name.clone());
    conditions.add_optional("t.owner = ?", filter.owner.clone());
    conditions.add_optional("t.queue = ?", filter.queue.clone());
    conditions.add_optional("t.worker = ?", filter.worker.map(|worker| blob(worker.to_bits())));
    for (key, value) in filter.labels.iter().skip(1) {
        conditions.add("EXISTS (SELECT 1 FROM labels o WHERE o.job = t.id AND o.key = ?", key.clone());
        conditions.add("o.value = ?)", value.clone());
    }
    conditions
}

/// The smallest id of the first millisecond that is not before `at`.
///
/// Ids know their time to the millisecond only, rounded down.
fn first_id_from(at: Timestamp) -> u128 {
    let millis = at.as_millis() + i64::from(at.as_micros().rem_euclid(1_000) != 0);
    match u128::try_from(millis) {
        Err(_) => 0,
        Ok(millis) if millis >> 48 == 0 => millis << 80,
        Ok(_) => u128::MAX,
    }
}

fn one_of(codes: &[u8]) -> String {
    let codes: Vec<_> = codes.iter().map(u8::to_string).collect();
    format!("t.status IN ({})", codes.join(", "))
}

fn job_legs(filter: &JobFilter) -> Vec<Leg> {
    let codes = |ended: bool| -> Vec<u8> {
        filter
            .statuses
            .iter()
            .filter(|status| status.is_final() == ended)
            .map(|status| status.code())
            .collect()
    };
    let (live, ended) = (codes(false), codes(true));
    let any = filter.statuses.is_empty();
    let mut legs = Vec::new();
    if any || !live.is_empty() {
        legs.push(job_leg(filter, Table::Jobs, None, (!any).then(|| one_of(&live))));
    }
    if any || !ended.is_empty() {
        legs.extend(ended_job_legs(filter, any, ended));
    }
    legs
}

fn ended_job_legs(filter: &JobFilter, any: bool, mut statuses: Vec<u8>) -> Vec<Leg> {
    statuses.sort_unstable();
    statuses.dedup();
    let index = ended_job_index(filter);
    // Jobs that did not succeed are rare, and have an index by status: one leg each.
    let rare = !any && !statuses.contains(&JobStatus::Succeeded.code());
    if rare && filter.labels.is_empty() && !matches!(index, Some("jobs_ended_name" | "jobs_ended_owner")) {
        let leg = |status: u8| {
            let condition = format!("t.status = {status} AND t.status <> {}", JobStatus::Succeeded.code());
            job_leg(filter, Table::JobsEnded, Some("jobs_ended_status"), Some(condition))
        };
        return statuses.into_iter().map(leg).collect();
    }
    vec![job_leg(filter, Table::JobsEnded, index, (!any).then(|| one_of(&statuses)))]
}

/// The index with the fewest rows to pass over, by what such filters usually mean.
fn ended_job_index(filter: &JobFilter) -> Option<&'static str> {
    if filter.name.is_some() {
        Some("jobs_ended_name")
    } else if filter.owner.is_some() {
        Some("jobs_ended_owner")
    } else if filter.queue.as_deref().is_some_and(|queue| queue != model::spec::DEFAULT) {
        Some("jobs_ended_queue")
    } else if filter.namespace.is_some() {
        Some("jobs_ended_namespace")
    } else {
        None
    }
}

fn job_leg(filter: &JobFilter, table: Table, index: Option<&str>, condition: Option<String>) -> Leg {
    if !filter.labels.is_empty() {
        let source = format!("labels l CROSS JOIN {} t ON t.id = l.job", table.name());
        return Leg { table, source, order: "l.job", condition };
    }
    let partial = match index {
        Some("jobs_ended_owner") => " AND t.owner IS NOT NULL",
        Some("jobs_ended_queue") => " AND t.queue <> 'default'",
        _ => "",
    };
    let condition = match (condition, partial) {
        (None, "") => None,
        (condition, partial) => Some(format!("{}{partial}", condition.as_deref().unwrap_or("1"))),
    };
    let by = index.map(|index| format!(" INDEXED BY {index}")).unwrap_or_default();
    Leg { table, source: format!("{} t{by}", table.name()), order: "t.id", condition }
}

/// One page of executions.
pub(super) fn executions(
    connection: &Connection,
    filter: &ExecutionFilter,
    after: Page<model::ExecutionId>,
) -> Result<Found<ExecutionRow>, Failure> {
    let limit = after.limit.max(1);
    let mut conditions = Conditions::default();
    conditions.add_optional("t.id < ?", after.after.map(|id| blob(id.to_bits())));
    conditions.add_optional("t.job = ?", filter.job.map(|job| blob(job.to_bits())));
    conditions.add_optional("t.worker = ?", filter.worker.map(|worker| blob(worker.to_bits())));
    conditions.add_optional("t.namespace = ?", filter.namespace.clone());
    let legs = execution_legs(filter);
    let sorted = collect(connection, &legs, EXECUTION_COLUMNS, &conditions, limit, rows::execution)?;
    Ok(page(sorted, limit, |execution| execution.record.id.to_bits()))
}

fn execution_legs(filter: &ExecutionFilter) -> Vec<Leg> {
    let leg = |table: Table, index: &str, ended: bool| {
        let codes: Vec<u8> = filter
            .statuses
            .iter()
            .filter(|status: &&ExecutionStatus| status.is_final() == ended)
            .map(|status| status.code())
            .collect();
        let any = filter.statuses.is_empty();
        (any || !codes.is_empty()).then(|| Leg {
            table,
            source: format!("{} t{index}", table.name()),
            order: "t.id",
            condition: (!any).then(|| one_of(&codes)),
        })
    };
    let (live, ended) = match (filter.job, filter.worker) {
        (Some(_), _) => (" INDEXED BY executions_number", " INDEXED BY executions_ended_number"),
        (None, Some(_)) => ("", " INDEXED BY executions_ended_worker"),
        (None, None) => ("", ""),
    };
    [leg(Table::Executions, live, false), leg(Table::ExecutionsEnded, ended, true)]
        .into_iter()
        .flatten()
        .collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use model::WorkerId;

    use super::*;
    use crate::sqlite::schema;

    fn plans(legs: &[Leg], columns: &str, conditions: &Conditions) -> String {
        let connection = Connection::open_in_memory().unwrap();
        schema::migrate(&connection, 0, 1).unwrap();
        let plan = |leg: &Leg| {
            let sql = leg.sql(columns, conditions).replace("{limit}", "1");
            let mut statement = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
            let steps = statement
                .query_map(rusqlite::params_from_iter(&conditions.values), |row| row.get::<_, String>(3))
                .unwrap();
            steps.map(Result::unwrap).collect::<Vec<_>>().join("; ")
        };
        legs.iter().map(plan).collect::<Vec<_>>().join("\n")
    }

    fn job_plans(filter: &JobFilter) -> String {
        let after = Some(JobId::from_bits(1 << 90));
        plans(&job_legs(filter), JOB_COLUMNS, &job_conditions(filter, after))
    }

    /// A5. No list sorts: each leg runs over an index in the order of the list.
    #[test]
    fn every_list_of_jobs_reads_an_index_in_its_order() {
        let text = |text: &str| Some(text.to_owned());
        let filters = [
            (JobFilter::default(), "PRIMARY KEY"),
            (JobFilter { namespace: text("a"), ..JobFilter::default() }, "jobs_ended_namespace"),
            (JobFilter { name: text("a"), owner: text("o"), ..JobFilter::default() }, "jobs_ended_name"),
            (JobFilter { owner: text("a"), ..JobFilter::default() }, "jobs_ended_owner"),
            (JobFilter { queue: text("a"), ..JobFilter::default() }, "jobs_ended_queue"),
            (JobFilter { queue: text("default"), ..JobFilter::default() }, "PRIMARY KEY"),
            (JobFilter { statuses: vec![JobStatus::Failed], ..JobFilter::default() }, "jobs_ended_status"),
            (
                JobFilter { labels: BTreeMap::from([("k".into(), "v".into())]), ..JobFilter::default() },
                "l USING PRIMARY KEY (key=? AND value=? AND job<?)",
            ),
        ];
        for (filter, index) in filters {
            let plan = job_plans(&filter);
            assert!(!plan.contains("B-TREE"), "{filter:?} sorts: {plan}");
            assert!(plan.contains(index), "{filter:?} does not use {index}: {plan}");
        }
    }

    #[test]
    fn executions_of_a_worker_are_read_in_order_and_those_of_a_job_by_its_index() {
        let worker = ExecutionFilter { worker: Some(WorkerId::from_bits(1)), ..ExecutionFilter::default() };
        let mut conditions = Conditions::default();
        conditions.add("t.worker = ?", blob(1));
        let plan = plans(&execution_legs(&worker), EXECUTION_COLUMNS, &conditions);
        assert!(!plan.contains("B-TREE") && plan.contains("executions_ended_worker (worker=?)"), "{plan}");
        let job = ExecutionFilter { job: Some(JobId::from_bits(1)), ..ExecutionFilter::default() };
        let mut conditions = Conditions::default();
        conditions.add("t.job = ?", blob(1));
        let plan = plans(&execution_legs(&job), EXECUTION_COLUMNS, &conditions);
        assert!(plan.contains("executions_ended_number (job=?)"), "{plan}");
    }

    #[test]
    fn a_time_becomes_the_first_id_that_is_not_before_it() {
        assert_eq!(first_id_from(Timestamp::from_micros(5_000)), 5 << 80);
        assert_eq!(first_id_from(Timestamp::from_micros(5_001)), 6 << 80);
        assert_eq!(first_id_from(Timestamp::from_micros(-1)), 0);
        assert_eq!(first_id_from(Timestamp::MAX), u128::MAX);
    }
}
