//! A workflow with all that it calls: what a run is pinned to.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::WorkflowSpec;
use model::limits::CALLS_MAX;
use model::workflow::{Action, Definition};
use store::StoreError;

use super::super::Api;

/// Specs of one namespace that are known before the store is asked, by name: those of a request.
pub(super) type Known<'a> = BTreeMap<&'a str, &'a Arc<WorkflowSpec>>;

/// The definition of a filled spec. Called workflows that are nowhere are left out:
/// [`model::validate::definition`] names them.
///
/// # Errors
/// The store cannot be read.
pub(super) async fn definition(
    api: &Api,
    spec: &Arc<WorkflowSpec>,
    known: &Known<'_>,
) -> Result<Definition, StoreError> {
    let mut calls = BTreeMap::new();
    let mut open = vec![Arc::clone(spec)];
    while let Some(next) = open.pop() {
        for (_, step) in next.all_steps() {
            let Action::Workflow(call) = &step.action else { continue };
            // One more than may be, so that it is said.
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
