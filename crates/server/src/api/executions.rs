//! Executions: the attempts of jobs.

use axum::extract::State;
use axum::{Extension, Json};
use model::api::{Execution, List};
use model::{ExecutionId, ExecutionStatus, JobId, WorkerId};
use serde::Deserialize;
use store::query::{ExecutionFilter, Page};
use utoipa_axum::routes;

use super::extract::{Many, Params, Path};
use super::page::Selection;
use super::problem::{ApiError, Code};
use super::routes::Routes;
use super::{Api, convert, page, rows};
use crate::auth::{Actor, Resource, Verb};

pub(super) fn routes(routes: &mut Routes) {
    let (read, executions) = (Verb::Read, Resource::Executions);
    routes.needs(read, executions, &[Code::InvalidCursor, Code::QueryTooSlow], routes!(list_executions));
    routes.needs(read, executions, &[Code::ExecutionNotFound], routes!(get_execution));
    routes.needs(read, executions, &[Code::JobNotFound, Code::InvalidCursor], routes!(list_job_executions));
}

#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
struct ListExecutionsParams {
    /// Only executions on this worker.
    worker_id: Option<WorkerId>,
    /// Only executions of this job.
    job_id: Option<JobId>,
    /// Namespace to list; `*` for all namespaces [default: *]
    namespace: Option<String>,
    /// Statuses to list, separated by commas.
    #[param(value_type = Option<String>, example = "assigned,running")]
    status: Many<ExecutionStatus>,
    /// Maximum number of items on the page, from 1 to 1000 [default: 50]
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// `next_cursor` of the previous page.
    cursor: Option<String>,
}

/// List executions, newest first
#[utoipa::path(get, path = "/api/v1/executions", tag = "executions", params(ListExecutionsParams), responses(
    (status = 200, description = "One page", body = List<Execution>),
))]
async fn list_executions(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Params(params): Params<ListExecutionsParams>,
) -> Result<Json<List<Execution>>, ApiError> {
    let filter = ExecutionFilter {
        job: params.job_id,
        worker: params.worker_id,
        namespace: page::namespace(params.namespace),
        statuses: params.status.0,
    };
    list(&api, &actor, &filter, params.limit, params.cursor.as_deref()).await
}

#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
struct PageParams {
    /// Maximum number of items on the page, from 1 to 1000 [default: 50]
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// `next_cursor` of the previous page.
    cursor: Option<String>,
}

/// List the executions of a job, newest first
#[utoipa::path(get, path = "/api/v1/jobs/{id}/executions", tag = "executions",
    params(("id" = JobId, Path), PageParams),
    responses((status = 200, description = "One page", body = List<Execution>)),
)]
async fn list_job_executions(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Path(id): Path<JobId>,
    Params(params): Params<PageParams>,
) -> Result<Json<List<Execution>>, ApiError> {
    rows::job(&api, &actor, id).await?;
    let filter = ExecutionFilter { job: Some(id), ..ExecutionFilter::default() };
    list(&api, &actor, &filter, params.limit, params.cursor.as_deref()).await
}

async fn list(
    api: &Api,
    actor: &Actor,
    filter: &ExecutionFilter,
    limit: Option<u32>,
    cursor: Option<&str>,
) -> Result<Json<List<Execution>>, ApiError> {
    let limit = page::limit(limit)?;
    let after = api.shared.cursors.read::<ExecutionId>("executions", filter, cursor)?;
    let query = |namespace| async move {
        let filter = ExecutionFilter { namespace, ..filter.clone() };
        api.node.store().executions(&filter, Page { after, limit }).await
    };
    let selection = Selection::of(actor, filter.namespace.as_deref())?;
    let page = selection.page(limit, query, |row| row.record.id).await?;
    let last = page.items.last().filter(|_| page.more);
    let next_cursor =
        last.map(|row| api.shared.cursors.make("executions", filter, &row.record.id.to_string()));
    Ok(Json(List { items: page.items.iter().map(convert::execution).collect(), next_cursor }))
}

/// Show an execution
#[utoipa::path(get, path = "/api/v1/executions/{id}", tag = "executions", params(("id" = ExecutionId, Path)), responses(
    (status = 200, description = "The execution", body = Execution),
))]
async fn get_execution(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Path(id): Path<ExecutionId>,
) -> Result<Json<Execution>, ApiError> {
    Ok(Json(convert::execution(&rows::execution(&api, &actor, id).await?)))
}
