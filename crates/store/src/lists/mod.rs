//! Lists as queries: the rows that match a filter, their order, and the end of a page.
//!
//! A list consists of *legs*: one over the live rows, and one or a few over the history. Each leg scans an index
//! backwards; the index is named here for SQLite, whose planner has no statistics. Each row belongs to exactly one leg,
//! so a page consists of the newest rows of all legs. All legs must read the same snapshot. A job that moves to the
//! history between two pages keeps its ID, and thus its position.
//!
//! Only this module defines the meaning of a filter; a store runs the legs, and defines the differences of its SQL
//! ([`Dialect`]).

mod audit;
mod ledger;
mod schedules;
mod services;
mod workflows;

use model::{ExecutionStatus, JobId, JobStatus, Timestamp};

use crate::query::{ExecutionFilter, JobFilter, Page, Paged};
use crate::rows::{EXECUTION_COLUMNS, JOB_COLUMNS, Table};

pub(crate) use audit::audit;
pub(crate) use ledger::ledger;
pub(crate) use schedules::{backfills, schedules, upcoming};
pub(crate) use services::{Replicas, services};
#[cfg(feature = "postgres")]
pub(crate) use workflows::definitions_sql;
pub(crate) use workflows::{runs, workflows};

/// SQL dialect of a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// Indexes are named, and placeholders are `?1`.
    Sqlite,
    /// The planner chooses, and placeholders are `$1`.
    #[cfg(feature = "postgres")]
    Postgres,
}

impl Dialect {
    fn is_sqlite(self) -> bool {
        matches!(self, Self::Sqlite)
    }

    /// Replaces the placeholders in braces. User text is never part of a statement, so every question mark is a
    /// parameter.
    fn translate(self, sql: &str) -> String {
        if self.is_sqlite() {
            sql.replace("{position}", "instr").replace("{no_backfill}", "x''")
        } else {
            let nobody = "'00000000-0000-0000-0000-000000000000'";
            sql.replace("{position}", "strpos").replace("{no_backfill}", nobody).replace('?', "$")
        }
    }
}

/// Value in a condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Value {
    /// Bits of an ID.
    Id(u128),
    /// Part of a ledger key that names the backfill; zero if there is none.
    BackfillKey(u128),
    /// Integer, or time in microseconds.
    Integer(i64),
    Text(String),
}

impl From<i64> for Value {
    fn from(number: i64) -> Self {
        Self::Integer(number)
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

/// Conditions under construction, with their values.
#[derive(Debug, Default)]
pub(crate) struct Conditions {
    text: Vec<String>,
    pub(crate) values: Vec<Value>,
}

impl Conditions {
    /// Adds a condition; `?` stands for the value.
    fn add(&mut self, condition: &str, value: impl Into<Value>) {
        self.add_all(condition, [value.into()]);
    }

    /// Adds a condition; each `?` stands for the next value.
    fn add_all(&mut self, condition: &str, values: impl IntoIterator<Item = Value>) {
        let mut parts = condition.split('?');
        let mut text = parts.next().unwrap_or_default().to_owned();
        for (part, value) in parts.zip(values) {
            self.values.push(value);
            text.push_str(&format!("?{}{part}", self.values.len()));
        }
        self.text.push(text);
    }

    fn add_optional<T: Into<Value>>(&mut self, condition: &str, value: Option<T>) {
        if let Some(value) = value {
            self.add(condition, value);
        }
    }

    /// Adds the condition that the name contains the text; the letter case of ASCII is ignored.
    fn add_text(&mut self, text: Option<&String>) {
        self.add_optional("{position}(lower(t.name), ?) > 0", text.map(|text| text.to_ascii_lowercase()));
    }

    /// Adds the conditions of a page, and of a range of creation times, which are part of IDs.
    fn add_range(&mut self, id: &str, after: Option<u128>, created: (Option<Timestamp>, Option<Timestamp>)) {
        let below = after.into_iter().chain(created.1.map(first_id_from)).min();
        self.add_optional(&format!("{id} < ?"), below.map(Value::Id));
        self.add_optional(&format!("{id} >= ?"), created.0.map(first_id_from).map(Value::Id));
    }

    fn join(&self) -> String {
        if self.text.is_empty() { "TRUE".into() } else { self.text.join(" AND ") }
    }
}

/// Part of a list: its table and its own condition.
#[derive(Debug, Clone)]
pub(crate) struct Leg {
    pub(crate) table: Table,
    /// Other table to scan (labels, live executions), and its column with the ID.
    by: Option<(&'static str, &'static str)>,
    /// Index to scan; `None` for the primary key.
    index: Option<&'static str>,
    /// Join with the rest of the row.
    rest: &'static str,
    order: String,
    condition: Option<String>,
}

impl Leg {
    fn of(table: Table, order: impl Into<String>) -> Self {
        Self { table, by: None, index: None, rest: "", order: order.into(), condition: None }
    }

    fn source(&self, dialect: Dialect) -> String {
        let (table, rest) = (self.table.name(), self.rest);
        match (self.by, self.index) {
            // SQLite keeps the written order of a cross join.
            (Some((by, id)), _) if dialect.is_sqlite() => {
                format!("{by} l CROSS JOIN {table} t ON t.id = l.{id} {rest}")
            }
            (Some((by, id)), _) => format!("{by} l JOIN {table} t ON t.id = l.{id} {rest}"),
            (None, Some(index)) if dialect.is_sqlite() => format!("{table} t INDEXED BY {index} {rest}"),
            (None, _) => format!("{table} t {rest}"),
        }
    }
}

/// List: all its legs, and the columns to read.
#[derive(Debug)]
pub(crate) struct List {
    pub(crate) legs: Vec<Leg>,
    pub(crate) columns: &'static str,
    pub(crate) conditions: Conditions,
    /// Maximum number of items in a page. Each leg reads one more, to find out whether further items exist.
    pub(crate) limit: usize,
}

/// Number of the newest rows of a label that are searched first, in addition to those of a page; small in tests, so
/// that they also search the rest.
const NEWEST_ROWS: usize = if cfg!(test) { 3 } else { 1_000 };

impl List {
    fn new(legs: Vec<Leg>, columns: &'static str, conditions: Conditions, limit: usize) -> Self {
        Self { legs, columns, conditions, limit: limit.max(1) }
    }

    /// Returns the statement of one leg. Its parameters are the values of the conditions.
    pub(crate) fn sql(&self, leg: &Leg, dialect: Dialect) -> String {
        self.sql_for(self.columns, leg, dialect)
    }

    /// Returns the statement for SQLite over only the newest rows of the leg's label; `None` if the leg scans no label.
    ///
    /// Live and ended jobs share their labels, so each leg skips the rows of the other until it has enough. If the
    /// newest rows fill a page, neither leg needs to scan further.
    pub(crate) fn sql_over_newest(&self, leg: &Leg) -> Option<String> {
        let (by @ "labels", id) = leg.by? else { return None };
        let conditions = self.conditions.text.iter().map(String::as_str);
        let of_label = conditions.filter(|text| text.starts_with("l.")).collect::<Vec<_>>().join(" AND ");
        let rows = self.limit.saturating_add(NEWEST_ROWS);
        let newest = format!("(SELECT * FROM {by} l WHERE {of_label} ORDER BY l.{id} DESC LIMIT {rows})");
        let source = format!("{newest} l CROSS JOIN {} t ON t.id = l.{id} {}", leg.table.name(), leg.rest);
        Some(Dialect::Sqlite.translate(&self.select(self.columns, leg, &source)))
    }

    /// Returns the statement like [`sql`](Self::sql), for other columns of the same rows.
    fn sql_for(&self, columns: &str, leg: &Leg, dialect: Dialect) -> String {
        dialect.translate(&self.select(columns, leg, &leg.source(dialect)))
    }

    fn select(&self, columns: &str, leg: &Leg, source: &str) -> String {
        let own = leg.condition.as_deref().map(|own| format!(" AND {own}")).unwrap_or_default();
        let (conditions, order) = (self.conditions.join(), &leg.order);
        let limit = self.limit.saturating_add(1);
        format!("SELECT {columns} FROM {source} WHERE {conditions}{own} ORDER BY {order} LIMIT {limit}")
    }

    /// Merges the rows of all legs into a page.
    pub(crate) fn page<T, Place: Ord>(&self, mut found: Vec<T>, place: impl Fn(&T) -> Place) -> Paged<T> {
        found.sort_unstable_by_key(|item| std::cmp::Reverse(place(item)));
        let more = found.len() > self.limit;
        found.truncate(self.limit);
        Paged { items: found, more }
    }
}

/// Returns the query for a page of jobs, without their histories.
pub(crate) fn jobs(filter: &JobFilter, page: Page<JobId>) -> List {
    List::new(job_legs(filter), JOB_COLUMNS, job_conditions(filter, page.after), page.limit)
}

fn job_conditions(filter: &JobFilter, after: Option<JobId>) -> Conditions {
    let mut conditions = Conditions::default();
    let by_label = scans_labels(filter);
    let id = if by_label || scans_executions(filter) { "l.job" } else { "t.id" };
    if by_label && let Some((key, value)) = filter.labels.first_key_value() {
        conditions.add("l.key = ?", key.clone());
        conditions.add("l.value = ?", value.clone());
    }
    if !filter.ids.is_empty() {
        let places = vec!["?"; filter.ids.len()].join(", ");
        conditions
            .add_all(&format!("{id} IN ({places})"), filter.ids.iter().map(|job| Value::Id(job.to_bits())));
    }
    conditions.add_range(id, after.map(JobId::to_bits), (filter.created_after, filter.created_before));
    conditions.add_optional("t.namespace = ?", filter.namespace.clone());
    conditions.add_optional("t.name = ?", filter.name.clone());
    conditions.add_text(filter.text.as_ref());
    conditions.add_optional("t.owner = ?", filter.owner.clone());
    conditions.add_optional("t.queue = ?", filter.queue.clone());
    conditions.add_optional("t.worker = ?", filter.worker.map(|worker| Value::Id(worker.to_bits())));
    conditions.add_optional("t.schedule = ?", filter.schedule.map(|schedule| Value::Id(schedule.to_bits())));
    conditions.add_optional("t.backfill = ?", filter.backfill.map(|backfill| Value::Id(backfill.to_bits())));
    conditions.add_optional("t.run = ?", filter.run.map(|run| Value::Id(run.to_bits())));
    conditions.add_optional("t.service = ?", filter.service.map(|service| Value::Id(service.to_bits())));
    let of_workflow = "EXISTS (SELECT 1 FROM runs r WHERE r.id = t.run AND r.name = ?)";
    conditions.add_optional(of_workflow, filter.workflow.clone());
    for (key, value) in filter.labels.iter().skip(usize::from(by_label)) {
        conditions.add_all(
            "EXISTS (SELECT 1 FROM labels o WHERE o.job = t.id AND o.key = ? AND o.value = ?)",
            [key.clone().into(), value.clone().into()],
        );
    }
    conditions
}

/// Returns whether a list scans the first label. The jobs of a schedule, a run or a service are usually fewer than
/// those of a label.
fn scans_labels(filter: &JobFilter) -> bool {
    !filter.labels.is_empty() && !names_jobs_or_origin(filter)
}

/// Returns whether a filter names jobs, or their schedule, backfill, run or service: each of these has an index.
fn names_jobs_or_origin(filter: &JobFilter) -> bool {
    !filter.ids.is_empty()
        || filter.schedule.is_some()
        || filter.backfill.is_some()
        || filter.run.is_some()
        || filter.service.is_some()
}

/// Returns whether a list scans the live executions: each running job has one, so they are few, whatever the number of
/// waiting jobs.
fn scans_executions(filter: &JobFilter) -> bool {
    let is_running = |status: &JobStatus| *status == JobStatus::Running;
    !filter.statuses.is_empty()
        && filter.statuses.iter().all(is_running)
        && filter.labels.is_empty()
        && !names_jobs_or_origin(filter)
}

/// Returns the smallest ID of the first millisecond at or after `at`.
///
/// The time in an ID has a resolution of one millisecond, rounded down.
fn first_id_from(at: Timestamp) -> u128 {
    let millis = at.as_millis() + i64::from(at.as_micros().rem_euclid(1_000) != 0);
    match u128::try_from(millis) {
        Err(_) => 0,
        Ok(millis) if millis >> 48 == 0 => millis << 80,
        Ok(_) => u128::MAX,
    }
}

fn one_of(codes: &[impl ToString]) -> String {
    let codes: Vec<_> = codes.iter().map(ToString::to_string).collect();
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
        legs.push(job_leg(filter, Table::Jobs, live_job_index(filter), (!any).then(|| one_of(&live))));
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
    // Jobs that did not succeed are rare, and have an index by status: one leg for each status.
    let rare = !any && !statuses.contains(&JobStatus::Succeeded.code());
    let by_status = matches!(index, None | Some("jobs_ended_queue" | "jobs_ended_namespace"));
    if rare && filter.labels.is_empty() && by_status {
        let leg = |status: u8| {
            let condition = format!("t.status = {status} AND t.status <> {}", JobStatus::Succeeded.code());
            job_leg(filter, Table::JobsEnded, Some("jobs_ended_status"), Some(condition))
        };
        return statuses.into_iter().map(leg).collect();
    }
    vec![job_leg(filter, Table::JobsEnded, index, (!any).then(|| one_of(&statuses)))]
}

/// Only live jobs of a schedule, a run or a service have an index; running jobs are found through their executions.
fn live_job_index(filter: &JobFilter) -> Option<&'static str> {
    if filter.run.is_some() {
        Some("jobs_run")
    } else if filter.backfill.is_some() {
        Some("jobs_backfill")
    } else if filter.schedule.is_some() {
        Some("jobs_schedule")
    } else if filter.service.is_some() {
        Some("jobs_service")
    } else {
        None
    }
}

/// Returns the index with the fewest rows to skip, for typical uses of such filters.
fn ended_job_index(filter: &JobFilter) -> Option<&'static str> {
    if filter.run.is_some() {
        Some("jobs_ended_run")
    } else if filter.backfill.is_some() {
        Some("jobs_ended_backfill")
    } else if filter.schedule.is_some() {
        Some("jobs_ended_schedule")
    } else if filter.service.is_some() {
        Some("jobs_ended_service")
    } else if filter.name.is_some() {
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

fn job_leg(filter: &JobFilter, table: Table, index: Option<&'static str>, condition: Option<String>) -> Leg {
    if scans_labels(filter) {
        return Leg { by: Some(("labels", "job")), condition, ..Leg::of(table, "l.job DESC") };
    }
    if scans_executions(filter) {
        return Leg { by: Some(("executions", "job")), condition, ..Leg::of(table, "l.job DESC") };
    }
    let partial = match index {
        Some("jobs_ended_owner") => " AND t.owner IS NOT NULL",
        Some("jobs_ended_queue") => " AND t.queue <> 'default'",
        Some("jobs_schedule" | "jobs_ended_schedule") => " AND t.schedule IS NOT NULL",
        Some("jobs_backfill" | "jobs_ended_backfill") => " AND t.backfill IS NOT NULL",
        Some("jobs_run" | "jobs_ended_run") => " AND t.run IS NOT NULL",
        Some("jobs_service" | "jobs_ended_service") => " AND t.service IS NOT NULL",
        _ => "",
    };
    let condition = match (condition, partial) {
        (None, "") => None,
        (condition, partial) => Some(format!("{}{partial}", condition.as_deref().unwrap_or("TRUE"))),
    };
    Leg { index, condition, ..Leg::of(table, "t.id DESC") }
}

/// Returns the query for a page of executions.
pub(crate) fn executions(filter: &ExecutionFilter, page: Page<model::ExecutionId>) -> List {
    let mut conditions = Conditions::default();
    conditions.add_optional("t.id < ?", page.after.map(|id| Value::Id(id.to_bits())));
    conditions.add_optional("t.job = ?", filter.job.map(|job| Value::Id(job.to_bits())));
    conditions.add_optional("t.worker = ?", filter.worker.map(|worker| Value::Id(worker.to_bits())));
    conditions.add_optional("t.namespace = ?", filter.namespace.clone());
    List::new(execution_legs(filter), EXECUTION_COLUMNS, conditions, page.limit)
}

fn execution_legs(filter: &ExecutionFilter) -> Vec<Leg> {
    let leg = |table: Table, index: Option<&'static str>, ended: bool| {
        let codes: Vec<u8> = filter
            .statuses
            .iter()
            .filter(|status: &&ExecutionStatus| status.is_final() == ended)
            .map(|status| status.code())
            .collect();
        let any = filter.statuses.is_empty();
        let condition = (!any).then(|| one_of(&codes));
        (any || !codes.is_empty()).then(|| Leg { index, condition, ..Leg::of(table, "t.id DESC") })
    };
    let (live, ended) = match (filter.job, filter.worker) {
        (Some(_), _) => (Some("executions_number"), Some("executions_ended_number")),
        (None, Some(_)) => (None, Some("executions_ended_worker")),
        (None, None) => (None, None),
    };
    [leg(Table::Executions, live, false), leg(Table::ExecutionsEnded, ended, true)]
        .into_iter()
        .flatten()
        .collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use model::{BackfillId, RunId, ScheduleId, ServiceId, WorkerId};

    use super::*;
    use crate::sqlite::list_plans as plans;

    fn job_plans(filter: &JobFilter) -> String {
        plans(&jobs(filter, Page { after: Some(JobId::from_bits(1 << 90)), limit: 1 }))
    }

    #[test]
    fn jobs_are_looked_up_by_id() {
        let ids = [1, 2, 3].map(JobId::from_bits).to_vec();
        let plans = job_plans(&JobFilter { ids, ..JobFilter::default() });
        assert!(plans.contains("PRIMARY KEY (id=?") || plans.contains("(id=?)"), "{plans}");
        assert!(!plans.contains("SCAN"), "{plans}");
    }

    /// A5. No list is sorted: each leg scans an index in the order of the list.
    #[test]
    fn every_list_of_jobs_reads_an_index_in_its_order() {
        let text = |text: &str| Some(text.to_owned());
        let (schedule, backfill) = (Some(ScheduleId::from_bits(1)), Some(BackfillId::from_bits(1)));
        let (run, service) = (Some(RunId::from_bits(1)), Some(ServiceId::from_bits(1)));
        let running = vec![JobStatus::Running];
        let (failed, label) = (vec![JobStatus::Failed], BTreeMap::from([("k".into(), "v".into())]));
        let filters = [
            (JobFilter::default(), "PRIMARY KEY"),
            (JobFilter { namespace: text("a"), ..JobFilter::default() }, "jobs_ended_namespace"),
            (JobFilter { name: text("a"), owner: text("o"), ..JobFilter::default() }, "jobs_ended_name"),
            (JobFilter { owner: text("a"), ..JobFilter::default() }, "jobs_ended_owner"),
            (JobFilter { queue: text("a"), ..JobFilter::default() }, "jobs_ended_queue"),
            (JobFilter { queue: text("default"), ..JobFilter::default() }, "PRIMARY KEY"),
            (JobFilter { statuses: vec![JobStatus::Failed], ..JobFilter::default() }, "jobs_ended_status"),
            (JobFilter { schedule, statuses: failed, ..JobFilter::default() }, "jobs_ended_schedule"),
            (JobFilter { schedule, labels: label.clone(), ..JobFilter::default() }, "jobs_schedule"),
            (
                JobFilter { run, labels: label.clone(), ..JobFilter::default() },
                "t USING INDEX jobs_run (run=?",
            ),
            (JobFilter { run, schedule, ..JobFilter::default() }, "jobs_ended_run (run=? AND id<?)"),
            (JobFilter { service, ..JobFilter::default() }, "jobs_ended_service (service=? AND id<?)"),
            (
                JobFilter { service, labels: label.clone(), statuses: running, ..JobFilter::default() },
                "t USING INDEX jobs_service (service=?",
            ),
            (JobFilter { schedule, backfill, ..JobFilter::default() }, "jobs_ended_backfill"),
            (
                JobFilter { text: text("a"), namespace: text("b"), ..JobFilter::default() },
                "jobs_ended_namespace",
            ),
            (JobFilter { workflow: text("a"), ..JobFilter::default() }, "runs_name (name=? AND id=?)"),
            (
                JobFilter { statuses: vec![JobStatus::Running], ..JobFilter::default() },
                "l USING COVERING INDEX executions_number (job<?)",
            ),
            (
                JobFilter { labels: label, ..JobFilter::default() },
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
        let page = Page { after: None, limit: 1 };
        let worker = ExecutionFilter { worker: Some(WorkerId::from_bits(1)), ..ExecutionFilter::default() };
        let plan = plans(&executions(&worker, page));
        assert!(!plan.contains("B-TREE") && plan.contains("executions_ended_worker (worker=?)"), "{plan}");
        let job = ExecutionFilter { job: Some(JobId::from_bits(1)), ..ExecutionFilter::default() };
        let plan = plans(&executions(&job, page));
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
