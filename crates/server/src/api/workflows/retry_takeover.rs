//! Results that a retry takes over from an ended run.
//!
//! The rule is [`model::run::carried`]; this module reads the rows that it needs. A failed step that called a workflow
//! continues the called run, so the rows of that run are read too, and recursively those of the runs that it called.
//!
//! The retry is refused if it would start an `at_most_once` job again, at any depth.

use std::collections::BTreeSet;
use std::sync::Arc;

use engine::input::CarriedResults;
use futures::{StreamExt, TryStreamExt};
use model::firing::Work;
use model::limits::ITEMS_MAX;
use model::run::{EndedCall, RepeatedWork, RetryFrom, RunStatus, StepRecord, StepStatus, carried};
use model::workflow::{Action, Definition};
use store::query::RunRow;

use crate::api::Api;
use crate::api::problem::{ApiError, Code};

/// Number of called runs read concurrently.
const READS: usize = 16;
/// Most steps named in a refusal.
const NAMED: usize = 10;

/// Returns the results that a retry of a run takes over.
///
/// # Errors
/// `repeat_forbidden` if the retry would start an `at_most_once` job again, unless `repeat` names its step.
pub(super) async fn takeover(
    api: &Api,
    row: &RunRow,
    from: RetryFrom<'_>,
    repeat: &[String],
) -> Result<CarriedResults, ApiError> {
    let Found { takeover, repeated } = Box::pin(find(api, row, from)).await?;
    let forbidden: Vec<_> = repeated.iter().filter(|&step| !repeat.contains(step)).collect();
    if forbidden.is_empty() {
        return Ok(takeover);
    }
    let mut named: Vec<_> = forbidden.iter().take(NAMED).map(|step| format!("`{step}`")).collect();
    if forbidden.len() > NAMED {
        named.push(format!("{} more", forbidden.len() - NAMED));
    }
    let (id, named) = (row.id, named.join(", "));
    let detail = format!(
        "cannot retry run `{id}`: it would start {named} again, and the delivery level `at_most_once` forbids a second start"
    );
    Err(ApiError::new(Code::RepeatForbidden, detail))
}

/// Results that a retry takes over, and the steps that it would repeat although their jobs are `at_most_once`.
/// `call/pay` is step `pay` of the run that step `call` called.
#[derive(Default)]
struct Found {
    takeover: CarriedResults,
    repeated: BTreeSet<String>,
}

async fn find(api: &Api, row: &RunRow, from: RetryFrom<'_>) -> Result<Found, ApiError> {
    let definition = &row.head.definition;
    let records = records(api, row).await?;
    let mut carried = carried(definition, &records, from);
    let mut found = Found::default();
    let looks = carried.again.clone().into_iter().map(|again| examine(api, definition, again));
    let mut looks = futures::stream::iter(looks).buffered(READS);
    while let Some((again, repeated, call)) = looks.try_next().await? {
        found.repeated.extend(repeated);
        if let Some(call) = call {
            carried.continue_call(&again, Arc::new(call));
        }
    }
    drop(looks);
    if carried.carries_elements() {
        let mut batches = api.node.store().element_batches(row.id).await?;
        batches.retain(|batch| carried.takes(batch));
        found.takeover.batches = batches;
    }
    found.takeover.records = carried.records;
    Ok(found)
}

/// Examines a step, or an element of one, that the retry starts again. Returns the steps that would be repeated
/// although their jobs are `at_most_once`, and the run that its call continues.
async fn examine(
    api: &Api,
    definition: &Definition,
    again: RepeatedWork,
) -> Result<(RepeatedWork, BTreeSet<String>, Option<EndedCall>), ApiError> {
    let Some(step) = definition.workflow.step_at(again.key.step as usize) else {
        return Ok((again, BTreeSet::new(), None));
    };
    let this = || BTreeSet::from([step.name.clone()]);
    let is_at_most_once = definition.is_at_most_once(&step.action);
    let called = match again.work {
        Some(Work::Run(called)) if is_at_most_once || again.may_continue => called,
        Some(Work::Run(_)) => return Ok((again, BTreeSet::new(), None)),
        Some(Work::Job(job)) => {
            let row = api.node.store().job(job).await?;
            let never_started = row.is_some_and(|row| row.state.executions == 0);
            return Ok((again, if never_started { BTreeSet::new() } else { this() }, None));
        }
        None => return Ok((again, if is_at_most_once { this() } else { BTreeSet::new() }, None)),
    };
    let Some(row) = api.node.store().run(called).await? else {
        // Its retention has ended, so its steps are unknown.
        return Ok((again, if is_at_most_once { this() } else { BTreeSet::new() }, None));
    };
    let continues = again.may_continue && row.state.status != RunStatus::Succeeded;
    let from = if continues { RetryFrom::Failed } else { RetryFrom::Start };
    let Found { takeover, repeated } = Box::pin(find(api, &row, from)).await?;
    let repeated: BTreeSet<String> =
        repeated.into_iter().map(|inner| format!("{}/{inner}", step.name)).collect();
    let call = continues.then(|| EndedCall {
        run: called,
        parameters: (*row.head.parameters).clone(),
        records: takeover.records,
        batches: takeover.batches,
        repeats_at_most_once: !repeated.is_empty(),
    });
    Ok((again, repeated, call))
}

/// Returns all rows of a run that a retry needs: its steps, and the elements of steps that failed or that may not be
/// repeated.
async fn records(api: &Api, row: &RunRow) -> Result<Vec<StepRecord>, ApiError> {
    let store = api.node.store();
    let mut records = store.run_steps(row.id).await?;
    let definition = &row.head.definition;
    let all: Vec<_> = definition.workflow.all_steps().collect();
    let with_elements = |record: &StepRecord| {
        let spec = all.get(record.key.step as usize).map(|(_, spec)| spec);
        spec.is_some_and(|spec| {
            let over_list =
                spec.for_each.is_some() && matches!(spec.action, Action::Job(_) | Action::Workflow(_));
            let ended_well = record.state.status == StepStatus::Succeeded;
            over_list && (!ended_well || definition.is_at_most_once(&spec.action))
        })
    };
    let steps: Vec<u32> = records.iter().filter(|r| with_elements(r)).map(|r| r.key.step).collect();
    for step in steps {
        records.extend(store.run_elements(row.id, step, None, ITEMS_MAX).await?);
    }
    Ok(records)
}
