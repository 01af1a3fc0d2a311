//! Workflows and their runs, newest first.
//!
//! [`workflows`] and [`runs`] define what the filters mean; both databases use them. For each combination of
//! filters, `workflow_leg` and `run_legs` name the index that skips the fewest rows in typical stores. A list
//! of rare statuses has one leg for live runs and one for each final status.
//!
//! The tests read SQLite's query plans: every list must scan an index in its order and never sort. A new
//! filter needs a row there.

use model::run::RunStatus;
use model::{RunId, WorkflowId};

use super::{Conditions, Leg, List, Value, one_of};
use crate::codec::run_status_column;
use crate::query::{Page, RunFilter, WorkflowFilter};
use crate::rows::{RUN_COLUMNS, RUN_REST, Table, WORKFLOW_COLUMNS, WORKFLOW_REST};

/// Returns the query for a page of workflows.
pub(crate) fn workflows(filter: &WorkflowFilter, page: Page<WorkflowId>) -> List {
    let mut conditions = Conditions::default();
    let mut id = "t.id";
    if let Some((key, value)) = filter.labels.first_key_value() {
        conditions.add("l.key = ?", key.clone());
        conditions.add("l.value = ?", value.clone());
        id = "l.workflow";
    }
    conditions.add_optional(&format!("{id} < ?"), page.after.map(|id| Value::Id(id.to_bits())));
    conditions.add_optional("t.namespace = ?", filter.namespace.clone());
    conditions.add_optional("t.owner = ?", filter.owner.clone());
    conditions.add_text(filter.text.as_ref());
    for (key, value) in filter.labels.iter().skip(1) {
        conditions.add_all(
            "EXISTS (SELECT 1 FROM workflow_labels o
                     WHERE o.workflow = t.id AND o.key = ? AND o.value = ?)",
            [key.clone().into(), value.clone().into()],
        );
    }
    List::new(vec![workflow_leg(filter)], WORKFLOW_COLUMNS, conditions, page.limit)
}

/// Returns the leg over the index with the fewest rows to skip, for typical uses of such filters.
fn workflow_leg(filter: &WorkflowFilter) -> Leg {
    let leg = Leg { rest: WORKFLOW_REST, ..Leg::of(Table::Workflows, "t.id DESC") };
    if !filter.labels.is_empty() {
        let by = Some(("workflow_labels", "workflow"));
        return Leg { by, order: "l.workflow DESC".into(), ..leg };
    }
    if filter.owner.is_some() {
        let condition = Some("t.owner IS NOT NULL".into());
        return Leg { index: Some("workflows_owner"), condition, ..leg };
    }
    Leg { index: filter.namespace.as_ref().map(|_| "workflows_namespace"), ..leg }
}

/// Returns the query for a page of runs.
pub(crate) fn runs(filter: &RunFilter, page: Page<RunId>) -> List {
    let mut conditions = Conditions::default();
    let created = (filter.created_after, filter.created_before);
    conditions.add_range("t.id", page.after.map(RunId::to_bits), created);
    conditions.add_optional("t.namespace = ?", filter.namespace.clone());
    conditions.add_optional("t.name = ?", filter.name.clone());
    conditions.add_text(filter.text.as_ref());
    conditions.add_optional("t.workflow = ?", filter.workflow.map(|id| Value::Id(id.to_bits())));
    conditions.add_optional("t.caller = ?", filter.caller.map(|id| Value::Id(id.to_bits())));
    conditions.add_optional("t.schedule = ?", filter.schedule.map(|id| Value::Id(id.to_bits())));
    conditions.add_optional("t.backfill = ?", filter.backfill.map(|id| Value::Id(id.to_bits())));
    if filter.schedule.is_some() || filter.backfill.is_some() {
        // Called runs have the same origin, but do not count as runs of the schedule.
        conditions.add_all("t.caller IS NULL", []);
    }
    List::new(run_legs(filter), RUN_COLUMNS, conditions, page.limit)
}

/// Returns the statement for the distinct definitions of a leg's runs: `hash` and `body`.
#[cfg(feature = "postgres")]
pub(crate) fn definitions_sql(list: &List, leg: &Leg) -> String {
    let hashes = list.sql_for("h.definition", leg, super::Dialect::Postgres);
    format!("SELECT d.hash, d.body FROM run_definitions d WHERE d.hash IN ({hashes})")
}

fn run_legs(filter: &RunFilter) -> Vec<Leg> {
    let leg = Leg { rest: RUN_REST, ..Leg::of(Table::Runs, "t.id DESC") };
    let mut statuses: Vec<i16> = filter.statuses.iter().copied().map(run_status_column).collect();
    statuses.sort_unstable();
    statuses.dedup();
    let (index, partial) = run_index(filter);
    let first_ended = run_status_column(RunStatus::Succeeded);
    // Live runs are few, and so are those that did not succeed: each status has its own index.
    let rare = !statuses.is_empty() && !statuses.contains(&first_ended);
    if rare && matches!(index, None | Some("runs_namespace")) {
        let (live, ended): (Vec<i16>, Vec<i16>) = statuses.iter().partition(|status| **status < first_ended);
        let live = (!live.is_empty()).then(|| Leg {
            index: Some("runs_live"),
            condition: Some(format!("t.status < {first_ended} AND {}", one_of(&live))),
            ..leg.clone()
        });
        let ended = ended.into_iter().map(|status| Leg {
            index: Some("runs_status"),
            condition: Some(format!("t.status > {first_ended} AND t.status = {status}")),
            ..leg.clone()
        });
        return live.into_iter().chain(ended).collect();
    }
    let live = !statuses.is_empty() && statuses.iter().all(|status| *status < first_ended);
    let (index, live) = match index {
        // A frequent schedule has had many runs, of which only few are live.
        Some("runs_schedule") if live => {
            (Some("runs_schedule_live"), Some(format!("t.status < {first_ended}")))
        }
        index => (index, None),
    };
    let own = [partial.map(str::to_owned), live, (!statuses.is_empty()).then(|| one_of(&statuses))];
    let own: Vec<_> = own.into_iter().flatten().collect();
    let condition = (!own.is_empty()).then(|| own.join(" AND "));
    vec![Leg { index, condition, ..leg }]
}

/// Returns the index with the fewest rows to skip, and its condition if it is partial.
fn run_index(filter: &RunFilter) -> (Option<&'static str>, Option<&'static str>) {
    if filter.caller.is_some() {
        (Some("runs_caller"), Some("t.caller IS NOT NULL"))
    } else if filter.backfill.is_some() {
        (Some("runs_backfill"), Some("t.backfill IS NOT NULL"))
    } else if filter.schedule.is_some() {
        (Some("runs_schedule"), Some("t.schedule IS NOT NULL"))
    } else if filter.workflow.is_some() {
        (Some("runs_workflow"), Some("t.workflow IS NOT NULL"))
    } else if filter.name.is_some() {
        (Some("runs_name"), None)
    } else if filter.namespace.is_some() {
        (Some("runs_namespace"), None)
    } else {
        (None, None)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use model::{BackfillId, ScheduleId};

    use super::*;
    use crate::sqlite::list_plans as plans;

    fn text(text: &str) -> Option<String> {
        Some(text.to_owned())
    }

    /// C1. No list is sorted: each scans an index in its order.
    #[test]
    fn every_list_of_workflows_reads_an_index_in_its_order() {
        let labels = BTreeMap::from([("a".into(), "1".into()), ("b".into(), "2".into())]);
        let filters = [
            (WorkflowFilter::default(), "t USING PRIMARY KEY (id<?)"),
            (
                WorkflowFilter { namespace: text("a"), ..WorkflowFilter::default() },
                "workflows_namespace (namespace=? AND id<?)",
            ),
            (
                WorkflowFilter { owner: text("a"), text: text("x"), ..WorkflowFilter::default() },
                "workflows_owner (owner=? AND id<?)",
            ),
            (
                WorkflowFilter { labels, ..WorkflowFilter::default() },
                "l USING PRIMARY KEY (key=? AND value=? AND workflow<?)",
            ),
        ];
        for (filter, index) in filters {
            let plan = plans(&workflows(&filter, Page { after: Some(WorkflowId::from_bits(1)), limit: 1 }));
            assert!(!plan.contains("B-TREE"), "{filter:?} sorts: {plan}");
            assert!(plan.contains(index), "{filter:?} does not use {index}: {plan}");
        }
    }

    /// C1. As above, of runs.
    #[test]
    fn every_list_of_runs_reads_an_index_in_its_order() {
        let of = RunFilter::default;
        let status = |statuses: &[RunStatus]| RunFilter { statuses: statuses.to_vec(), ..of() };
        let run = Some(RunId::from_bits(1));
        let schedule = Some(ScheduleId::from_bits(1));
        let filters = [
            (of(), "t USING PRIMARY KEY (id<?)"),
            (RunFilter { namespace: text("a"), ..of() }, "runs_namespace (namespace=? AND id<?)"),
            (RunFilter { name: text("a"), namespace: text("a"), ..of() }, "runs_name (name=? AND id<?)"),
            (
                RunFilter { workflow: Some(WorkflowId::from_bits(1)), ..of() },
                "runs_workflow (workflow=? AND id<?)",
            ),
            (RunFilter { caller: run, ..status(&[RunStatus::Failed]) }, "runs_caller (caller=? AND id<?)"),
            (RunFilter { schedule, ..of() }, "runs_schedule (schedule=? AND id<?)"),
            (
                RunFilter { schedule, ..status(&[RunStatus::Waiting, RunStatus::Running]) },
                "runs_schedule_live (schedule=? AND id<?)",
            ),
            (RunFilter { schedule, ..status(&[RunStatus::Failed]) }, "runs_schedule (schedule=? AND id<?)"),
            (
                RunFilter { backfill: Some(BackfillId::from_bits(1)), schedule, ..of() },
                "runs_backfill (backfill=? AND id<?)",
            ),
            (status(&[RunStatus::Failed, RunStatus::Cancelled]), "runs_status (status=? AND id<?)"),
            (
                RunFilter { namespace: text("a"), ..status(&[RunStatus::Running, RunStatus::Waiting]) },
                "runs_live (id<?)",
            ),
            (status(&[RunStatus::Failed, RunStatus::Paused]), "runs_live (id<?)"),
            (status(&[RunStatus::Retrying]), "runs_live (id<?)"),
            (status(&[RunStatus::Succeeded, RunStatus::Failed]), "t USING PRIMARY KEY (id<?)"),
        ];
        for (filter, index) in filters {
            let plan = plans(&runs(&filter, Page { after: run, limit: 1 }));
            assert!(!plan.contains("B-TREE"), "{filter:?} sorts: {plan}");
            assert!(plan.contains(index), "{filter:?} does not use {index}: {plan}");
        }
    }
}
