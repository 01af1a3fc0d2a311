//! Pinning of a run: the workflow with all workflows that it calls, and the parameters of the run.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::api::StartRun;
use model::limits::{CALLS_MAX, PRIORITY_MAX, RUN_PARAMETERS_BYTES_MAX};
use model::workflow::{Action, Definition, complete};
use model::{WorkflowSpec, validate};
use serde_json::{Map, Value};
use store::StoreError;
use store::query::WorkflowRow;

use crate::api::Api;
use crate::api::problem::{ApiError, field_error, fields_at};

/// Specs of one namespace by name that take precedence over the store: those of the same request.
pub(super) type KnownSpecs<'a> = BTreeMap<&'a str, &'a Arc<WorkflowSpec>>;

/// Returns the definition of a completed spec. Missing called workflows are left out; [`model::validate::definition`]
/// reports them.
///
/// # Errors
/// If the store cannot be read.
pub(super) async fn definition(
    api: &Api,
    spec: &Arc<WorkflowSpec>,
    known: &KnownSpecs<'_>,
) -> Result<Definition, StoreError> {
    let mut calls = BTreeMap::new();
    let mut open = vec![Arc::clone(spec)];
    while let Some(next) = open.pop() {
        for (_, step) in next.all_steps() {
            let Action::Workflow(call) = &step.action else { continue };
            // One more than the limit, so that validation reports it.
            if calls.contains_key(&call.name) || calls.len() > CALLS_MAX {
                continue;
            }
            let found = match known.get(call.name.as_str()) {
                Some(spec) => Some(Arc::clone(spec)),
                None => {
                    let row = api.node.store().workflow_named(&spec.namespace, &call.name).await?;
                    row.map(|row| row.head.spec)
                }
            };
            if let Some(found) = found {
                calls.insert(call.name.clone(), Arc::clone(&found));
                open.push(found);
            }
        }
    }
    Ok(Definition { workflow: Arc::clone(spec), calls })
}

/// Returns a workflow with the current versions of all workflows that it calls.
///
/// # Errors
/// `invalid_spec` if a called workflow was deleted, or changed so that this call is invalid.
pub(super) async fn pinned(api: &Api, row: &WorkflowRow) -> Result<Definition, ApiError> {
    let definition = definition(api, &row.head.spec, &KnownSpecs::new()).await?;
    validate::definition(&definition).map_err(|invalid| ApiError::invalid(&invalid))?;
    Ok(definition)
}

/// Returns the complete parameters of a run.
///
/// # Errors
/// `invalid_spec` with all problems of the request.
pub(super) fn parameters(spec: &WorkflowSpec, asked: &StartRun) -> Result<Map<String, Value>, ApiError> {
    let mut wrong = Vec::new();
    if let Err(invalid) = validate::note("note", asked.note.as_deref()) {
        wrong.extend(fields_at("", &invalid.problems));
    }
    if let Some(priority) = asked.priority.filter(|&priority| priority > PRIORITY_MAX) {
        let detail = format!("`{priority}` is out of range: expected 0 to {PRIORITY_MAX}");
        wrong.push(field_error("priority", &detail));
    }
    let complete = complete(&spec.parameters, &asked.parameters).unwrap_or_else(|problems| {
        let at = |(name, problem): &(String, String)| field_error(&format!("parameters.{name}"), problem);
        wrong.extend(problems.iter().map(at));
        Map::new()
    });
    let bytes = serde_json::to_vec(&complete).map_or(0, |json| json.len());
    if bytes > RUN_PARAMETERS_BYTES_MAX {
        let detail = format!(
            "have {bytes} bytes as JSON: expected at most {RUN_PARAMETERS_BYTES_MAX}; put large data into an artifact"
        );
        wrong.push(field_error("parameters", &detail));
    }
    if wrong.is_empty() { Ok(complete) } else { Err(ApiError::invalid_fields(wrong)) }
}
