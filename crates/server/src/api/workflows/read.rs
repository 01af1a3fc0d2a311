//! Lists and details of workflows.

use axum::extract::State;
use axum::http::header::ETAG;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use futures::{StreamExt, TryStreamExt};
use model::WorkflowId;
use model::api::{List, Workflow, WorkflowRun};
use serde::Deserialize;
use store::query::{Page, RunFilter, WorkflowFilter, WorkflowRow};
use utoipa_axum::routes;

use super::convert;
use crate::api::extract::{Labels, Params, Path};
use crate::api::headers::etag;
use crate::api::page::Selection;
use crate::api::problem::{ApiError, Code};
use crate::api::routes::Routes;
use crate::api::{Api, page, rows};
use crate::auth::{Actor, Resource, Verb};

/// Number of workflows of a page that are read concurrently.
const LOOKUPS: usize = 16;
/// Most runs returned with each workflow.
const RUNS_MAX: usize = 50;

pub(super) fn routes(routes: &mut Routes) {
    let workflows = Resource::Workflows;
    routes.needs(Verb::Read, workflows, &[Code::InvalidCursor, Code::QueryTooSlow], routes!(list_workflows));
    routes.needs(Verb::Read, workflows, &[Code::WorkflowNotFound], routes!(get_workflow));
}

#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
struct ListWorkflowsParams {
    /// Namespace to list; `*` for all namespaces [default: *]
    namespace: Option<String>,
    /// Only workflows of this owner.
    owner: Option<String>,
    /// Only workflows whose name contains this text. Letter case is ignored.
    text: Option<String>,
    /// Only workflows with this label, as `KEY=VALUE`; repeat to require several labels.
    #[param(value_type = Option<Vec<String>>)]
    label: Labels,
    /// Number of the newest runs to return with each schedule.
    #[param(minimum = 0, maximum = 50)]
    runs: usize,
    /// Maximum number of items on the page, from 1 to 1000 [default: 50]
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// `next_cursor` of the previous page.
    cursor: Option<String>,
}

/// List workflows, newest first
///
/// The list omits the specs. Runs are included only on request, because they cost a query for each workflow of the
/// page.
#[utoipa::path(get, path = "/api/v1/workflows", tag = "workflows", params(ListWorkflowsParams), responses(
    (status = 200, description = "One page", body = List<Workflow>),
))]
async fn list_workflows(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Params(params): Params<ListWorkflowsParams>,
) -> Result<Json<List<Workflow>>, ApiError> {
    let limit = page::limit(params.limit)?;
    if params.runs > RUNS_MAX {
        let wrong = format!("`{}` is out of range: expected 0 to {RUNS_MAX}", params.runs);
        return Err(ApiError::parameter("runs", wrong));
    }
    let filter = WorkflowFilter {
        namespace: page::namespace(params.namespace),
        owner: params.owner,
        labels: params.label.0,
        text: params.text,
    };
    let after = api.shared.cursors.read::<WorkflowId>("workflows", &filter, params.cursor.as_deref())?;
    let (of, store) = (&filter, api.node.store());
    let query = |namespace| async move {
        let filter = WorkflowFilter { namespace, ..of.clone() };
        store.workflows(&filter, Page { after, limit }).await
    };
    let selection = Selection::of(&actor, filter.namespace.as_deref())?;
    let page = selection.page(limit, query, |row| row.id).await?;
    let last = page.items.last().filter(|_| page.more);
    let next_cursor = last.map(|row| api.shared.cursors.make("workflows", &filter, &row.id.to_string()));
    let items = page.items.into_iter().map(|row| with_runs(&api, row, params.runs));
    let items = futures::stream::iter(items);
    let items = items.buffered(LOOKUPS).try_collect().await?;
    Ok(Json(List { items, next_cursor }))
}

/// Returns a workflow for a list, with its newest runs.
async fn with_runs(api: &Api, row: WorkflowRow, runs: usize) -> Result<Workflow, ApiError> {
    let mut shown = convert::workflow(&row);
    if runs > 0 {
        let filter = RunFilter { workflow: Some(row.id), ..RunFilter::default() };
        let found = api.node.store().runs(&filter, Page { after: None, limit: runs }).await?;
        shown.recent = Some(found.items.iter().map(convert::recent).collect());
    }
    Ok(shown)
}

#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
struct GetWorkflowParams {
    /// Namespace of the name [default: `default`]. Not needed with an id.
    namespace: Option<String>,
    /// Generation whose spec is returned [default: the newest generation]
    generation: Option<u64>,
}

/// Show a workflow with its spec
#[utoipa::path(get, path = "/api/v1/workflows/{name}", tag = "workflows",
    params(("name" = String, Path, description = "Name or id"), GetWorkflowParams),
    responses((status = 200, description = "The workflow", body = Workflow, headers(("ETag" = String, description = "Version of the resource"))))
)]
async fn get_workflow(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Path(name): Path<String>,
    Params(params): Params<GetWorkflowParams>,
) -> Result<Response, ApiError> {
    let mut row = rows::workflow(&api, &actor, &name, params.namespace.as_deref()).await?;
    if let Some(generation) = params.generation.filter(|&asked| asked != row.state.generation) {
        let found = api.node.store().workflow_version(row.id, generation).await?;
        row.head = found.ok_or_else(|| {
            let detail = format!(
                "workflow `{}` has no generation {generation}: the newest is {}",
                row.id, row.state.generation
            );
            ApiError::new(Code::WorkflowNotFound, detail)
        })?;
    }
    Ok(with_spec(&row).into_response())
}

/// Returns the response with a workflow and its spec.
pub(super) fn with_spec(row: &WorkflowRow) -> impl IntoResponse + use<> {
    let spec = Some(Box::new(model::WorkflowSpec::clone(&row.head.spec)));
    let triggers = convert::triggers(&row.state);
    let workflow = Workflow { spec, triggers, ..convert::workflow(row) };
    ([(ETAG, etag(workflow.version))], Json(workflow))
}

/// Returns the response with a run and its version as `ETag`.
pub(super) fn with_etag(run: WorkflowRun) -> Response {
    ([(ETAG, etag(run.version))], Json(run)).into_response()
}
