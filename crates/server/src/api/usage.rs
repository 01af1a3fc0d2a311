//! What running executions use now.

use std::collections::HashMap;

use axum::extract::State;
use axum::{Extension, Json};
use model::api::{ExecutionUsage, List, UsageOrder, UsageSample};
use model::{ExecutionId, JobId, JobSpec, WorkerId};
use serde::Deserialize;
use store::query::{JobFilter, JobRow, Page};
use utoipa_axum::routes;

use super::extract::{Params, Path};
use super::page::Selection;
use super::problem::{ApiError, Code};
use super::routes::Routes;
use super::{Api, jobs, page, rows};
use crate::auth::{Actor, Resource, Verb};
use crate::usage::Current;

/// Most executions that are looked at, the highest first.
const EXECUTIONS_MAX: usize = 20_000;
/// Number of jobs that are read at once.
const JOBS_AT_ONCE: usize = 500;

pub(super) fn routes(routes: &mut Routes) {
    let (read, executions) = (Verb::Read, Resource::Executions);
    routes.needs(read, executions, &[Code::QueryTooSlow], routes!(list_usage));
    routes.of_leader();
    routes.needs(read, executions, &[Code::ExecutionNotFound], routes!(get_execution_usage));
    routes.of_leader();
}

#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
struct ListUsageParams {
    /// Namespace to list; `*` for all namespaces [default: *]
    namespace: Option<String>,
    /// Only executions on this worker.
    worker_id: Option<WorkerId>,
    /// Only jobs with this name.
    name: Option<String>,
    /// Only jobs in this queue.
    queue: Option<String>,
    /// What to order by; the highest value is first [default: cpu]
    #[param(inline)]
    order: UsageOrder,
    /// Maximum number of items, from 1 to 1000 [default: 50]
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
}

/// List what running executions use, highest first
///
/// Workers measure executions every 5 seconds. Executions that were not measured yet are not listed.
#[utoipa::path(get, path = "/api/v1/usage", tag = "executions", params(ListUsageParams), responses(
    (status = 200, description = "The executions with the highest use", body = List<ExecutionUsage>),
))]
async fn list_usage(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Params(params): Params<ListUsageParams>,
) -> Result<Json<List<ExecutionUsage>>, ApiError> {
    let limit = page::limit(params.limit)?;
    let filter = JobFilter {
        namespace: page::namespace(params.namespace),
        name: params.name,
        queue: params.queue,
        ..JobFilter::default()
    };
    let selection = Selection::of(&actor, filter.namespace.as_deref())?;
    let mut current = api.usage.current(params.worker_id);
    current.sort_by_cached_key(|it| (std::cmp::Reverse(value(&it.sample, params.order)), it.execution));
    let mut items = Vec::new();
    current.truncate(EXECUTIONS_MAX);
    for part in current.chunks(JOBS_AT_ONCE) {
        let ids: Vec<_> = part.iter().map(|it| it.job).collect();
        let page = Page { after: None, limit: ids.len() };
        let found = jobs::select(&api, &selection, &JobFilter { ids, ..filter.clone() }, page).await?;
        let jobs: HashMap<JobId, JobRow> = found.items.into_iter().map(|row| (row.id, row)).collect();
        items.extend(part.iter().filter_map(|it| item(it, jobs.get(&it.job)?)));
        if items.len() >= limit {
            break;
        }
    }
    items.truncate(limit);
    Ok(Json(List { items, next_cursor: None }))
}

/// Returns what a list is ordered by.
fn value(sample: &UsageSample, order: UsageOrder) -> u64 {
    match order {
        UsageOrder::Cpu => sample.cpu.0.into(),
        UsageOrder::Memory => sample.memory.0,
        UsageOrder::Disk => sample.read_bytes_per_second.saturating_add(sample.written_bytes_per_second),
    }
}

/// Returns the item of an execution; `None` if it is not the current one of the job, so a worker cannot speak for others.
fn item(current: &Current, row: &JobRow) -> Option<ExecutionUsage> {
    let is_current =
        row.state.execution == Some(current.execution) && row.state.worker == Some(current.worker);
    if !is_current || row.state.status.is_final() {
        return None;
    }
    let spec: JobSpec = serde_json::from_str(&row.body).ok()?;
    Some(ExecutionUsage {
        execution_id: current.execution,
        job_id: current.job,
        job_name: spec.name.clone(),
        namespace: spec.namespace.clone(),
        queue: spec.queue.clone(),
        service: row.replica.as_ref().map(|replica| replica.service.to_string()),
        worker_id: current.worker,
        cpu_request: spec.resources.cpu_request(),
        memory_request: spec.resources.memory_request(),
        usage: current.sample,
    })
}

/// Show what an execution uses
///
/// The items are the measurements of the last minutes, oldest first. The list is empty for an execution that does not run or
/// was not measured yet; what an ended execution has used is in its `usage`.
#[utoipa::path(get, path = "/api/v1/executions/{id}/usage", tag = "executions", params(("id" = ExecutionId, Path)),
    responses((status = 200, description = "The measurements", body = List<UsageSample>)),
)]
async fn get_execution_usage(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Path(id): Path<ExecutionId>,
) -> Result<Json<List<UsageSample>>, ApiError> {
    let row = rows::execution(&api, &actor, id).await?;
    let is_live = !row.record.status.is_final();
    let items = if is_live { api.usage.series(row.record.worker, id) } else { Vec::new() };
    Ok(Json(List { items, next_cursor: None }))
}
