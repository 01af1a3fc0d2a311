//! Services, newest first, and their replicas.
//!
//! The tests read SQLite's query plans: every list must scan an index in its order and never sort. A new filter needs a
//! row there.

use model::ServiceId;

use super::{Conditions, Dialect, Leg, List, Value};
use crate::query::{Page, Paged, ReplicaRow, ServiceFilter};
use crate::rows::{EXECUTION_COLUMNS, REPLICA_COLUMNS, SERVICE_COLUMNS, SERVICE_REST, Table};

/// Returns the query for a page of services.
pub(crate) fn services(filter: &ServiceFilter, page: Page<ServiceId>) -> List {
    let mut conditions = Conditions::default();
    let mut id = "t.id";
    if let Some((key, value)) = filter.labels.first_key_value() {
        conditions.add("l.key = ?", key.clone());
        conditions.add("l.value = ?", value.clone());
        id = "l.service";
    }
    conditions.add_optional(&format!("{id} < ?"), page.after.map(|id| Value::Id(id.to_bits())));
    conditions.add_optional("t.namespace = ?", filter.namespace.clone());
    conditions.add_optional("t.owner = ?", filter.owner.clone());
    conditions.add_text(filter.text.as_ref());
    for (key, value) in filter.labels.iter().skip(1) {
        conditions.add_all(
            "EXISTS (SELECT 1 FROM service_labels o
                     WHERE o.service = t.id AND o.key = ? AND o.value = ?)",
            [key.clone().into(), value.clone().into()],
        );
    }
    List::new(vec![service_leg(filter)], SERVICE_COLUMNS, conditions, page.limit)
}

/// Returns the leg over the index with the fewest rows to skip, for typical uses of such filters.
fn service_leg(filter: &ServiceFilter) -> Leg {
    let leg = Leg { rest: SERVICE_REST, ..Leg::of(Table::Services, "t.id DESC") };
    if !filter.labels.is_empty() {
        let by = Some(("service_labels", "service"));
        return Leg { by, order: "l.service DESC".into(), ..leg };
    }
    if filter.owner.is_some() {
        let condition = Some("t.owner IS NOT NULL".into());
        return Leg { index: Some("services_owner"), condition, ..leg };
    }
    Leg { index: filter.namespace.as_ref().map(|_| "services_namespace"), ..leg }
}

/// Queries for replicas: their jobs, and the live executions of these jobs. Both must read the same snapshot.
#[derive(Debug, Clone)]
pub(crate) struct Replicas {
    /// Selection of the jobs, after its columns.
    jobs: String,
    pub(crate) values: Vec<Value>,
    /// Maximum number of replicas. One more is read, to find out whether further ones exist.
    limit: usize,
}

impl Replicas {
    /// Returns the queries for the replicas of one service.
    pub(crate) fn of(service: ServiceId, dialect: Dialect) -> Self {
        let index = if dialect.is_sqlite() { "INDEXED BY jobs_service" } else { "" };
        let jobs = format!("jobs t {index} WHERE t.service = ?1 AND t.service IS NOT NULL ORDER BY t.id");
        Self { jobs: dialect.translate(&jobs), values: vec![Value::Id(service.to_bits())], limit: usize::MAX }
    }

    /// Returns the queries for at most `limit` replicas of the services of these namespaces, or of all.
    pub(crate) fn within(namespaces: Option<&[String]>, limit: usize, dialect: Dialect) -> Self {
        let mut conditions = Conditions::default();
        match namespaces {
            None => {}
            Some([]) => conditions.add_all("FALSE", []),
            Some(namespaces) => {
                let places = vec!["?"; namespaces.len()].join(", ");
                let values = namespaces.iter().cloned().map(Value::from);
                conditions.add_all(&format!("s.namespace IN ({places})"), values);
            }
        }
        // SQLite keeps the written order of a cross join.
        let (index, join) = match dialect.is_sqlite() {
            true => (" INDEXED BY services_namespace", "CROSS JOIN jobs t INDEXED BY jobs_service"),
            false => ("", "JOIN jobs t"),
        };
        let jobs = format!(
            "services s{index} {join} ON t.service = s.id AND t.service IS NOT NULL WHERE {}
             ORDER BY s.namespace, s.id, t.id LIMIT {}",
            conditions.join(),
            i64::try_from(limit).unwrap_or(i64::MAX).saturating_add(1)
        );
        Self { jobs: dialect.translate(&jobs), values: conditions.values, limit }
    }

    /// Returns the statement for the jobs.
    pub(crate) fn jobs_sql(&self) -> String {
        format!("SELECT {REPLICA_COLUMNS} FROM {}", self.jobs)
    }

    /// Returns the statement for the live executions of the jobs.
    pub(crate) fn executions_sql(&self) -> String {
        // Within the parentheses, `t` is the job.
        format!(
            "SELECT {EXECUTION_COLUMNS} FROM executions t WHERE t.job IN (SELECT t.id FROM {})",
            self.jobs
        )
    }

    /// Returns the first replicas of those that were found, in order. `skipped` is the number of damaged ones.
    pub(crate) fn page(&self, mut found: Vec<ReplicaRow>, skipped: usize) -> Paged<ReplicaRow> {
        let more = found.len() + skipped > self.limit;
        found.truncate(self.limit);
        Paged { items: found, more }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::sqlite::{list_plans as plans, sql_plan};

    fn text(text: &str) -> Option<String> {
        Some(text.to_owned())
    }

    /// No list is sorted: each scans an index in its order.
    #[test]
    fn every_list_of_services_reads_an_index_in_its_order() {
        let labels = BTreeMap::from([("a".into(), "1".into()), ("b".into(), "2".into())]);
        let filters = [
            (ServiceFilter::default(), "t USING PRIMARY KEY (id<?)"),
            (
                ServiceFilter { namespace: text("a"), ..ServiceFilter::default() },
                "services_namespace (namespace=? AND id<?)",
            ),
            (
                ServiceFilter { owner: text("a"), text: text("x"), ..ServiceFilter::default() },
                "services_owner (owner=? AND id<?)",
            ),
            (
                ServiceFilter { labels, ..ServiceFilter::default() },
                "l USING PRIMARY KEY (key=? AND value=? AND service<?)",
            ),
        ];
        for (filter, index) in filters {
            let plan = plans(&services(&filter, Page { after: Some(ServiceId::from_bits(1)), limit: 1 }));
            assert!(!plan.contains("B-TREE"), "{filter:?} sorts: {plan}");
            assert!(plan.contains(index), "{filter:?} does not use {index}: {plan}");
        }
    }

    #[test]
    fn replicas_are_read_by_their_service_and_executions_by_their_job() {
        let one = Replicas::of(ServiceId::from_bits(1), Dialect::Sqlite);
        let namespaces = ["a".to_owned(), "b".to_owned()];
        let some = Replicas::within(Some(&namespaces), 9, Dialect::Sqlite);
        let all = Replicas::within(None, 9, Dialect::Sqlite);
        for replicas in [one, some, all] {
            let plan = sql_plan(&replicas.jobs_sql(), &replicas.values);
            // Only the replicas of each service may be sorted.
            assert!(!plan.contains("B-TREE FOR ORDER BY"), "{plan}");
            assert!(plan.contains("jobs_service (service=?)"), "{plan}");
            let plan = sql_plan(&replicas.executions_sql(), &replicas.values);
            assert!(plan.contains("executions_number (job=?)"), "{plan}");
        }
    }
}
