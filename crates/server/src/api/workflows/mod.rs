//! Workflows and their runs.
//!
//! - `apply`: from bodies to what the engine takes; all that is wrong is named at once. `read`: lists and details.
//! - `pin`: a workflow with all that it calls, as a run is pinned to it. `start`: runs begin, or begin again (`again`:
//!   what a retry takes over); `inline`: of a definition that comes with the request; `plan` says what one would do; `cost`: how many
//!   jobs a run counts as for the job rate.
//! - `runs`: lists of runs, their steps and elements. `change`: what is asked of a run that goes on.
//! - `convert`: rows as what the API shows.

mod again;
mod apply;
mod change;
mod convert;
mod cost;
mod inline;
mod pin;
mod plan;
mod read;
mod runs;
mod start;
mod warn;

use std::sync::Arc;

use engine::{Input, Reply, WorkflowRequest};
use model::workflow::{Call, complete};
use model::{RunId, WorkflowId};
use serde::Deserialize;
use store::query::{RunRow, WorkflowRow};

use super::Api;
use super::problem::{Code, Trouble};
use super::routes::Routes;
use crate::auth::Actor;
use crate::node::RequestError;

pub(super) fn routes(routes: &mut Routes) {
    read::routes(routes);
    apply::routes(routes);
    start::routes(routes);
    inline::routes(routes);
    plan::routes(routes);
    runs::routes(routes);
    change::routes(routes);
}

/// Where a name is looked for.
#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
struct Scope {
    /// The namespace of the name; `default` where absent. Not needed with an id.
    namespace: Option<String>,
}

/// The workflow whose id or name stands in the address.
async fn find(api: &Api, name: &str, namespace: Option<&str>) -> Result<WorkflowRow, Trouble> {
    let store = api.node.store();
    let namespace = namespace.unwrap_or(model::spec::DEFAULT);
    let (found, detail) = match name.parse::<WorkflowId>() {
        Ok(id) => (store.workflow(id).await?, format!("there is no workflow {id}")),
        Err(_) => {
            let shown = |text: &str| text.chars().take(64).collect::<String>();
            let detail =
                format!("there is no workflow `{}` in namespace `{}`", shown(name), shown(namespace));
            (store.workflow_named(namespace, name).await?, detail)
        }
    };
    found.ok_or_else(|| Trouble::new(Code::WorkflowNotFound, detail))
}

/// A run with its history.
async fn find_run(api: &Api, id: RunId) -> Result<RunRow, Trouble> {
    let found = api.node.store().run(id).await?;
    found.ok_or_else(|| Trouble::new(Code::RunNotFound, format!("there is no run {id}")))
}

async fn ask(api: &Api, actor: &Actor, request: WorkflowRequest) -> Result<Reply, RequestError> {
    let (request, actor) = (Box::new(request), Arc::clone(&actor.name));
    api.node.request(|ticket| Input::Workflow { ticket, request, actor }).await
}

/// How many jobs a run counts as for the job rate that a schedule starts; one if its workflow is missing or invalid,
/// because then it starts nothing.
pub(super) async fn jobs_of_call(api: &Api, namespace: &str, call: &Call) -> Result<usize, Trouble> {
    let Some(row) = api.node.store().workflow_named(namespace, &call.name).await? else { return Ok(1) };
    let Ok(definition) = start::pinned(api, &row).await else { return Ok(1) };
    let given = call.parameters.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
    let parameters = complete(&row.head.spec.parameters, &given).unwrap_or(given);
    Ok(cost::jobs(&definition, &parameters, &[]))
}
