//! Schedules and backfills, newest first, and upcoming schedules.

use model::firing::ScheduleStatus;
use model::{BackfillId, ScheduleId, Timestamp};

use super::{Conditions, Leg, List, Value};
use crate::codec::schedule_status_code;
use crate::query::{Page, ScheduleFilter};
use crate::rows::{BACKFILL_COLUMNS, BACKFILL_REST, SCHEDULE_COLUMNS, SCHEDULE_REST, Table};

/// Returns the query for a page of schedules.
pub(crate) fn schedules(filter: &ScheduleFilter, page: Page<ScheduleId>) -> List {
    let conditions = schedule_conditions(filter, page.after);
    List::new(vec![schedule_leg(filter)], SCHEDULE_COLUMNS, conditions, page.limit)
}

/// Returns the query for schedules ordered by next scheduled time, after `after`; for `limit` and one more.
pub(crate) fn upcoming(
    filter: &ScheduleFilter,
    after: Option<(Timestamp, ScheduleId)>,
    limit: usize,
) -> List {
    let mut conditions = Conditions::default();
    if let Some((at, id)) = after {
        let place = [at.as_micros().into(), Value::Id(id.to_bits())];
        conditions.add_all("(t.next_at, t.id) > (?, ?)", place);
    }
    shared_conditions(filter, 0, &mut conditions);
    let leg = Leg {
        index: Some("schedules_next"),
        rest: SCHEDULE_REST,
        condition: Some("t.next_at IS NOT NULL".into()),
        ..Leg::of(Table::Schedules, "t.next_at, t.id")
    };
    List::new(vec![leg], SCHEDULE_COLUMNS, conditions, limit)
}

fn schedule_conditions(filter: &ScheduleFilter, after: Option<ScheduleId>) -> Conditions {
    let mut conditions = Conditions::default();
    let mut id = "t.id";
    if let Some((key, value)) = filter.labels.first_key_value() {
        conditions.add("l.key = ?", key.clone());
        conditions.add("l.value = ?", value.clone());
        id = "l.schedule";
    }
    conditions.add_optional(&format!("{id} < ?"), after.map(|id| Value::Id(id.to_bits())));
    shared_conditions(filter, 1, &mut conditions);
    conditions
}

/// Adds all conditions of a filter except the first `labels` labels, which the list scans.
fn shared_conditions(filter: &ScheduleFilter, labels: usize, conditions: &mut Conditions) {
    conditions.add_optional("t.namespace = ?", filter.namespace.clone());
    conditions.add_optional("t.owner = ?", filter.owner.clone());
    conditions
        .add_optional("t.status = ?", filter.status.map(|status| i64::from(schedule_status_code(status))));
    conditions.add_optional("t.next_at < ?", filter.due_before.map(Timestamp::as_micros));
    conditions.add_text(filter.text.as_ref());
    for (key, value) in filter.labels.iter().skip(labels) {
        conditions.add_all(
            "EXISTS (SELECT 1 FROM schedule_labels o
                     WHERE o.schedule = t.id AND o.key = ? AND o.value = ?)",
            [key.clone().into(), value.clone().into()],
        );
    }
}

/// Returns the leg over the index with the fewest rows to skip, for typical uses of such filters.
fn schedule_leg(filter: &ScheduleFilter) -> Leg {
    let leg = Leg { rest: SCHEDULE_REST, ..Leg::of(Table::Schedules, "t.id DESC") };
    if !filter.labels.is_empty() {
        let by = Some(("schedule_labels", "schedule"));
        return Leg { by, order: "l.schedule DESC".into(), ..leg };
    }
    let (index, condition) = if filter.owner.is_some() {
        (Some("schedules_owner"), Some("t.owner IS NOT NULL"))
    } else if filter.status.is_some_and(|status| status != ScheduleStatus::Active) {
        (Some("schedules_status"), Some("t.status <> 0"))
    } else if filter.namespace.is_some() {
        (Some("schedules_namespace"), None)
    } else {
        (None, None)
    };
    Leg { index, condition: condition.map(str::to_owned), ..leg }
}

/// Returns the query for a page of backfills.
pub(crate) fn backfills(
    schedule: Option<ScheduleId>,
    namespace: Option<&str>,
    page: Page<BackfillId>,
) -> List {
    let mut conditions = Conditions::default();
    conditions.add_optional("t.id < ?", page.after.map(|id| Value::Id(id.to_bits())));
    conditions.add_optional("t.schedule = ?", schedule.map(|schedule| Value::Id(schedule.to_bits())));
    conditions.add_optional("t.namespace = ?", namespace.map(str::to_owned));
    let index = schedule.map(|_| "backfills_schedule");
    let leg = Leg { index, rest: BACKFILL_REST, ..Leg::of(Table::Backfills, "t.id DESC") };
    List::new(vec![leg], BACKFILL_COLUMNS, conditions, page.limit)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::sqlite::list_plans as plans;

    /// B6. No list is sorted: each scans an index in its order.
    #[test]
    fn every_list_of_schedules_reads_an_index_in_its_order() {
        let text = |text: &str| Some(text.to_owned());
        let status = |status| ScheduleFilter { status: Some(status), ..ScheduleFilter::default() };
        let labels = BTreeMap::from([("a".into(), "1".into()), ("b".into(), "2".into())]);
        let filters = [
            (ScheduleFilter::default(), "t USING PRIMARY KEY (id<?)"),
            (status(ScheduleStatus::Active), "t USING PRIMARY KEY (id<?)"),
            (status(ScheduleStatus::Paused), "schedules_status (status=? AND id<?)"),
            (
                ScheduleFilter { namespace: text("a"), ..ScheduleFilter::default() },
                "schedules_namespace (namespace=? AND id<?)",
            ),
            (
                ScheduleFilter { owner: text("a"), text: text("x"), ..ScheduleFilter::default() },
                "schedules_owner (owner=? AND id<?)",
            ),
            (
                ScheduleFilter { labels, ..ScheduleFilter::default() },
                "l USING PRIMARY KEY (key=? AND value=? AND schedule<?)",
            ),
        ];
        for (filter, index) in filters {
            let page = Page { after: Some(ScheduleId::from_bits(1)), limit: 1 };
            let plan = plans(&schedules(&filter, page));
            assert!(!plan.contains("B-TREE"), "{filter:?} sorts: {plan}");
            assert!(plan.contains(index), "{filter:?} does not use {index}: {plan}");
        }
    }

    /// B6.
    #[test]
    fn upcoming_schedules_are_read_from_the_index_of_next_times() {
        let after = Some((Timestamp::from_micros(1), ScheduleId::from_bits(1)));
        let plan = plans(&upcoming(&ScheduleFilter::default(), after, 1));
        assert!(!plan.contains("B-TREE") && plan.contains("schedules_next ((next_at,id)>(?,?))"), "{plan}");
    }
}
