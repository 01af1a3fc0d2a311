//! The ledger, newest scheduled time first.
//!
//! An entry of several scheduled times may start before a requested range and extend into it. Such entries have an
//! index by their last time, and their own leg if the range has a start.

use model::Timestamp;

use super::{Conditions, Leg, List, Value};
use crate::codec::{firing_cause_code, firing_outcome_code};
use crate::query::{LedgerFilter, LedgerPosition, Page};
use crate::rows::{LEDGER_COLUMNS, Table};

const ORDER: &str = "t.first DESC, t.schedule DESC, t.generation DESC, t.cause DESC, t.backfill DESC";

/// Returns the query for a page of ledger entries, each with its position.
pub(crate) fn ledger(filter: &LedgerFilter, page: Page<LedgerPosition>) -> List {
    let mut conditions = Conditions::default();
    if let Some(place) = page.after {
        let values = [
            place.first_micros.into(),
            Value::Id(place.schedule),
            place.generation.cast_signed().into(),
            i64::from(place.cause).into(),
            Value::BackfillKey(place.backfill),
        ];
        conditions
            .add_all("(t.first, t.schedule, t.generation, t.cause, t.backfill) < (?, ?, ?, ?, ?)", values);
    }
    conditions.add_optional("t.schedule = ?", filter.schedule.map(|id| Value::Id(id.to_bits())));
    conditions.add_optional("t.backfill = ?", filter.backfill.map(|id| Value::BackfillKey(id.to_bits())));
    conditions.add_optional("t.namespace = ?", filter.namespace.clone());
    conditions.add_optional("t.first < ?", filter.until.map(Timestamp::as_micros));
    let codes = |column, codes: Vec<String>| format!("t.{column} IN ({})", codes.join(", "));
    if !filter.outcomes.is_empty() {
        let wanted = filter.outcomes.iter().map(|outcome| firing_outcome_code(*outcome).to_string());
        conditions.add_all(&codes("outcome", wanted.collect()), []);
    }
    if !filter.causes.is_empty() {
        let wanted = filter.causes.iter().map(|cause| firing_cause_code(*cause).to_string());
        conditions.add_all(&codes("cause", wanted.collect()), []);
    }
    let legs = legs(filter, &mut conditions);
    List::new(legs, LEDGER_COLUMNS, conditions, page.limit)
}

fn legs(filter: &LedgerFilter, conditions: &mut Conditions) -> Vec<Leg> {
    let (index, own) = if filter.backfill.is_some() {
        // SQLite recognizes the condition of the partial index.
        (Some("ledger_backfill"), Some("t.backfill <> {no_backfill}"))
    } else if filter.schedule.is_some() {
        (Some("ledger_schedule"), None)
    } else {
        (None, None)
    };
    let leg = |index, conditions: Vec<String>| {
        let condition = (!conditions.is_empty()).then(|| conditions.join(" AND "));
        Leg { index, condition, ..Leg::of(Table::Ledger, ORDER) }
    };
    let own: Vec<_> = own.into_iter().map(str::to_owned).collect();
    let Some(from) = filter.from else { return vec![leg(index, own)] };
    conditions.values.push(from.as_micros().into());
    let from = format!("?{}", conditions.values.len());
    let within = own.into_iter().chain([format!("t.first >= {from}")]).collect();
    let into = vec!["t.count > 1".into(), format!("t.last >= {from}"), format!("t.first < {from}")];
    vec![leg(index, within), leg(Some("ledger_rows"), into)]
}

#[cfg(test)]
mod tests {
    use model::{BackfillId, ScheduleId};

    use super::*;
    use crate::sqlite::list_plans;

    fn plan(filter: &LedgerFilter) -> String {
        let after = LedgerPosition { first_micros: 9, schedule: 1, generation: 1, cause: 0, backfill: 0 };
        list_plans(&ledger(filter, Page { after: Some(after), limit: 1 }))
    }

    /// B6. Without a range nothing is sorted; with one, only the few entries that extend into it.
    #[test]
    fn every_list_of_the_ledger_reads_an_index_in_its_order() {
        let schedule = Some(ScheduleId::from_bits(1));
        let backfill = Some(BackfillId::from_bits(1));
        for (filter, index) in [
            (
                LedgerFilter::default(),
                "t USING PRIMARY KEY ((first,schedule,generation,cause,backfill)<(?,?,?,?,?))",
            ),
            (
                LedgerFilter { schedule, ..LedgerFilter::default() },
                "ledger_schedule (schedule=? AND first<?)",
            ),
            (LedgerFilter { backfill, ..LedgerFilter::default() }, "ledger_backfill (backfill=? AND ("),
        ] {
            let whole = plan(&filter);
            assert!(!whole.contains("B-TREE"), "{filter:?} sorts: {whole}");
            assert!(whole.contains(index), "{filter:?} does not use {index}: {whole}");
            let range = plan(&LedgerFilter { from: Some(Timestamp::from_micros(5)), ..filter.clone() });
            let (within, into) = range.split_once('\n').unwrap();
            assert!(!within.contains("B-TREE"), "{filter:?} sorts: {within}");
            assert!(into.contains("ledger_rows (last>?)"), "{filter:?}: {into}");
        }
    }
}
