//! Number of jobs that a run counts as for the job rate of its client.
//!
//! It counts the jobs that are known before the run starts: one for each step, and one for each element of a step whose
//! list is in the definition or in the parameters. The workflows that the run calls are included. If a step or a task
//! produces the list, its length is unknown, and the step counts as one job. `on_failure` and `finally` steps do not
//! count.

use std::collections::BTreeMap;

use model::WorkflowSpec;
use model::run::StepRecord;
use model::workflow::{Action, Call, Definition, complete};
use serde_json::{Map, Value};

use super::pin;
use super::plan::{ParameterScope, total};
use crate::api::Api;
use crate::api::problem::ApiError;

/// Returns the jobs of a run, at least one. `carried` are the rows of steps that a retry takes over and does not start
/// again.
pub(super) fn jobs(
    definition: &Definition,
    parameters: &Map<String, Value>,
    carried: &[StepRecord],
) -> usize {
    let mut jobs = of_steps(definition, &definition.workflow, parameters, &mut BTreeMap::new());
    for record in carried {
        if let Some(jobs) = jobs.get_mut(record.key.step as usize) {
            *jobs = record.key.item.map_or(0, |_| jobs.saturating_sub(1));
        }
    }
    sum(&jobs)
}

/// Returns the jobs of a run that a schedule starts; 1 if its workflow is missing or invalid, because then the schedule
/// starts no run.
pub(in crate::api) async fn jobs_of_call(api: &Api, namespace: &str, call: &Call) -> Result<usize, ApiError> {
    let Some(row) = api.node.store().workflow_named(namespace, &call.name).await? else { return Ok(1) };
    let Ok(definition) = pin::pinned(api, &row).await else { return Ok(1) };
    let given = call.parameters.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
    let parameters = complete(&row.head.spec.parameters, &given).unwrap_or(given);
    Ok(jobs(&definition, &parameters, &[]))
}

/// Returns the jobs of each step of a workflow. `called` caches the jobs of called workflows.
fn of_steps<'a>(
    definition: &'a Definition,
    workflow: &'a WorkflowSpec,
    parameters: &Map<String, Value>,
    called: &mut BTreeMap<&'a str, usize>,
) -> Vec<usize> {
    let known = ParameterScope { parameters };
    let jobs = workflow.steps.iter().map(|step| {
        let each = match &step.action {
            Action::Job(_) => 1,
            Action::Workflow(call) => of_call(definition, &call.name, called),
            Action::Approval(_) | Action::Wait(_) => 0,
        };
        each.saturating_mul(total(step, &known).unwrap_or(1) as usize)
    });
    jobs.collect()
}

/// Returns the jobs of a called workflow. Its parameters are templates, which have no values yet.
fn of_call<'a>(definition: &'a Definition, name: &'a str, called: &mut BTreeMap<&'a str, usize>) -> usize {
    if let Some(&jobs) = called.get(name) {
        return jobs;
    }
    let jobs = definition
        .calls
        .get(name)
        .map_or(1, |workflow| sum(&of_steps(definition, workflow, &Map::new(), called)));
    called.insert(name, jobs);
    jobs
}

fn sum(jobs: &[usize]) -> usize {
    jobs.iter().copied().fold(0, usize::saturating_add).max(1)
}
