//! The list of the audit log.

use super::{Conditions, Leg, List};
use crate::audit::AuditFilter;
use crate::query::Page;
use crate::rows::{AUDIT_COLUMNS, Table};

/// Rows by which the order of times may differ from that of sequence numbers: a server appends an entry after at most
/// 10,000 others that wait.
const DISORDER: i64 = 20_000;

/// Returns the query for a page of the audit log.
///
/// Each index has the sequence numbers of its rows in order, so no page is sorted. Times are only a condition: the rows
/// to look at are limited by the sequence numbers near them.
pub(crate) fn audit(filter: &AuditFilter, page: Page<u64>) -> List {
    let mut conditions = Conditions::default();
    let after = page.after.map(|after| i64::try_from(after).unwrap_or(i64::MAX));
    conditions.add_optional("t.sequence < ?", after);
    conditions.add_optional("t.namespace = ?", filter.namespace.clone());
    conditions.add_optional("t.actor = ?", filter.actor.clone());
    conditions.add_optional("t.action = ?", filter.action.clone());
    conditions.add_optional("t.verb = ?", filter.verb.clone());
    conditions.add_optional("t.resource = ?", filter.resource.clone());
    conditions.add_optional("t.object = ?", filter.object.clone());
    conditions.add_optional("t.outcome = ?", filter.outcome.clone());
    if let Some(since) = filter.since.map(|since| since.as_micros()) {
        conditions.add("t.at >= ?", since);
        let first = "SELECT n.sequence FROM audit n WHERE n.at >= ? ORDER BY n.at, n.sequence LIMIT 1";
        conditions.add(&format!("t.sequence >= coalesce(({first}) - {DISORDER}, 0)"), since);
    }
    if let Some(until) = filter.until.map(|until| until.as_micros()) {
        conditions.add("t.at < ?", until);
        let last =
            "SELECT n.sequence FROM audit n WHERE n.at < ? ORDER BY n.at DESC, n.sequence DESC LIMIT 1";
        conditions.add(&format!("t.sequence <= coalesce(({last}) + {DISORDER}, 0)"), until);
    }
    let index = if filter.object.is_some() {
        Some("audit_object")
    } else if filter.actor.is_some() {
        Some("audit_actor")
    } else if filter.namespace.is_some() {
        Some("audit_namespace")
    } else {
        None
    };
    let condition = match index {
        Some("audit_object") => Some("t.object IS NOT NULL".to_owned()),
        Some("audit_namespace") => Some("t.namespace IS NOT NULL".to_owned()),
        _ => None,
    };
    let leg = Leg { index, condition, ..Leg::of(Table::Audit, "t.sequence DESC") };
    List::new(vec![leg], AUDIT_COLUMNS, conditions, page.limit)
}

#[cfg(test)]
mod tests {
    use model::Timestamp;

    use super::*;
    use crate::sqlite::list_plans as plans;

    /// C1. No list is sorted: each scans an index in its order.
    #[test]
    fn the_lists_of_the_audit_log_scan_an_index() {
        let text = |text: &str| Some(text.to_owned());
        let at = Some(Timestamp::from_millis(1));
        let any = AuditFilter::default;
        let page = Page { after: Some(7), limit: 2 };
        for (filter, index) in [
            (AuditFilter { outcome: text("denied"), since: at, until: at, ..any() }, "PRIMARY KEY"),
            (AuditFilter { namespace: text("a"), verb: text("read"), ..any() }, "audit_namespace"),
            (AuditFilter { namespace: text("a"), actor: text("ann"), since: at, ..any() }, "audit_actor"),
            (
                AuditFilter { object: text("x"), resource: text("jobs"), actor: text("ann"), ..any() },
                "audit_object",
            ),
        ] {
            let plan = plans(&audit(&filter, page));
            assert!(plan.contains(index), "{filter:?}: {plan}");
            assert!(!plan.contains("TEMP B-TREE"), "{filter:?}: {plan}");
        }
    }
}
