//! Lists of runs, of their steps, and of the elements of steps.
//!
//! A list omits specs and all but the newest transition of each run. Waiting approvals are optional, because they cost
//! a query for each run with waiting steps.
//!
//! A retry that took over a whole step has no rows for the elements of the step; they are read from the run that it
//! retried. Explanations of waiting steps need the leader, whose engine computes them.

use std::collections::HashMap;

use axum::extract::State;
use axum::response::Response;
use axum::{Extension, Json};
use engine::{Reply, WorkflowRequest};
use futures::{StreamExt, TryStreamExt};
use model::api::{List, RunElement, RunSteps, WorkflowRun};
use model::run::{RunStatus, StepCause, StepRecord, StepState, StepStatus};
use model::why::{RunWhy, StepWhy};
use model::{BackfillId, JobId, Refusal, RunId, ScheduleId, Timestamp, WorkflowId};
use serde::Deserialize;
use store::query::{JobFilter, JobRow, Page, RunFilter, RunRow};
use utoipa_axum::routes;

use super::{convert, read};
use crate::api::extract::{Many, Params, Path, Paths};
use crate::api::page::Selection;
use crate::api::problem::{ApiError, Code, excerpt};
use crate::api::requests::{self, unexpected};
use crate::api::routes::Routes;
use crate::api::{Api, page, rows};
use crate::auth::{Actor, Resource, Verb};
use crate::node::RequestError;

/// Number of runs of a page that are read concurrently.
const LOOKUPS: usize = 16;
/// Number of element rows read at a time if a filter selects some of them.
const ITEM_ROWS: usize = 5_000;

pub(super) fn routes(routes: &mut Routes) {
    let runs = Resource::Runs;
    routes.needs(Verb::Read, runs, &[Code::InvalidCursor, Code::QueryTooSlow], routes!(list_runs));
    routes.needs(Verb::Read, runs, &[Code::RunNotFound], routes!(get_run));
    routes.needs(Verb::Read, runs, &[Code::RunNotFound], routes!(list_steps));
    let item_refusals = [Code::RunNotFound, Code::StepNotFound, Code::InvalidCursor];
    routes.needs(Verb::Read, runs, &item_refusals, routes!(list_elements));
    routes.needs(Verb::Read, runs, &[Code::RunNotFound, Code::StepNotFound], routes!(explain_step));
    routes.of_leader();
    routes.needs(Verb::Read, runs, &[Code::RunNotFound], routes!(explain_run));
    routes.of_leader();
}

#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
struct ListRunsParams {
    /// Statuses to list, separated by commas.
    #[param(value_type = Option<String>)]
    status: Many<RunStatus>,
    /// Namespace to list; `*` for all namespaces [default: *]
    namespace: Option<String>,
    /// Only runs of this workflow. An ID lists the runs that were started directly; a name includes the runs that other
    /// runs called.
    workflow: Option<String>,
    /// Only runs of workflows whose name contains this text. Letter case is ignored.
    text: Option<String>,
    /// Only runs that this run called.
    caller: Option<RunId>,
    /// Only runs that this schedule started. Runs that these runs called are not listed.
    schedule: Option<ScheduleId>,
    /// Only runs that this backfill started. Runs that these runs called are not listed.
    backfill: Option<BackfillId>,
    /// Only runs that were started at this time or later.
    created_after: Option<Timestamp>,
    /// Only runs that were started before this time.
    created_before: Option<Timestamp>,
    /// Whether to return the steps of each run that wait for approval [default: false]
    approvals: bool,
    /// Maximum number of items on the page, from 1 to 1000 [default: 50]
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// `next_cursor` of the previous page.
    cursor: Option<String>,
}

/// List runs of workflows, newest first
///
/// The list omits the definitions, and of the history all but the newest transition. Pending approvals are included
/// only on request, because they cost a query for each run of the page that has waiting steps.
#[utoipa::path(get, path = "/api/v1/runs", tag = "runs", params(ListRunsParams), responses(
    (status = 200, description = "One page", body = List<WorkflowRun>),
))]
async fn list_runs(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Params(params): Params<ListRunsParams>,
) -> Result<Json<List<WorkflowRun>>, ApiError> {
    let limit = page::limit(params.limit)?;
    let workflow = params.workflow.as_deref().and_then(|text| text.parse::<WorkflowId>().ok());
    let filter = RunFilter {
        namespace: page::namespace(params.namespace),
        workflow,
        name: params.workflow.filter(|_| workflow.is_none()),
        text: params.text,
        statuses: params.status.0,
        caller: params.caller,
        schedule: params.schedule,
        backfill: params.backfill,
        created_after: params.created_after,
        created_before: params.created_before,
    };
    let after = api.shared.cursors.read::<RunId>("runs", &filter, params.cursor.as_deref())?;
    let (of, store) = (&filter, api.node.store());
    let query = |namespace| async move {
        let filter = RunFilter { namespace, ..of.clone() };
        store.runs(&filter, Page { after, limit }).await
    };
    let selection = Selection::of(&actor, filter.namespace.as_deref())?;
    let page = selection.page(limit, query, |row| row.id).await?;
    let last = page.items.last().filter(|_| page.more);
    let next_cursor = last.map(|row| api.shared.cursors.make("runs", &filter, &row.id.to_string()));
    let items = page.items.into_iter().map(|row| with_approvals(&api, row, params.approvals));
    let items = futures::stream::iter(items).buffered(LOOKUPS).try_collect().await?;
    Ok(Json(List { items, next_cursor }))
}

/// Returns a run for a list, with its steps that wait for approval if requested.
async fn with_approvals(api: &Api, row: RunRow, approvals: bool) -> Result<WorkflowRun, ApiError> {
    if !approvals {
        return Ok(convert::listed(row));
    }
    let waiting = row.state.counts[usize::from(StepStatus::Waiting.code())];
    let records = match waiting {
        0 => Vec::new(),
        _ => api.node.store().run_steps(row.id).await?,
    };
    let approvals = Some(convert::approvals(&row, &records));
    Ok(WorkflowRun { approvals, ..convert::listed(row) })
}

/// Show a run with its definition and history
///
/// In the spec, the message of an approval that has started has its references replaced by their values in this run.
#[utoipa::path(get, path = "/api/v1/runs/{id}", tag = "runs", params(("id" = RunId, Path)), responses(
    (status = 200, description = "The run", body = WorkflowRun, headers(("ETag" = String, description = "Version of the resource"))),
))]
async fn get_run(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Path(id): Path<RunId>,
) -> Result<Response, ApiError> {
    let row = rows::run(&api, &actor, id).await?;
    let records = match convert::has_templated_approvals(&row.head.definition.workflow) {
        true => api.node.store().run_steps(id).await?,
        false => Vec::new(),
    };
    let mut run = with_spec(row);
    run.spec = run.spec.map(|spec| Box::new(convert::with_resolved_approvals(*spec, &records)));
    Ok(read::with_etag(run))
}

/// Returns a run with its spec.
pub(super) fn with_spec(row: RunRow) -> WorkflowRun {
    let spec = Some(Box::new(model::WorkflowSpec::clone(&row.head.definition.workflow)));
    WorkflowRun { spec, ..convert::run(row) }
}

/// List the steps of a run
///
/// Returns all steps, in the order of the workflow; a step that has not started is `pending`. The elements of a mapped
/// step are listed at `…/elements`.
#[utoipa::path(get, path = "/api/v1/runs/{id}/steps", tag = "runs", params(("id" = RunId, Path)), responses(
    (status = 200, description = "All steps", body = RunSteps),
))]
async fn list_steps(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Path(id): Path<RunId>,
) -> Result<Json<RunSteps>, ApiError> {
    let row = rows::run(&api, &actor, id).await?;
    let records = api.node.store().run_steps(id).await?;
    Ok(Json(RunSteps { version: row.state.version, steps: convert::steps(&row, records) }))
}

#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
struct ListElementsParams {
    /// Statuses to list, separated by commas.
    #[param(value_type = Option<String>)]
    status: Many<StepStatus>,
    /// Maximum number of items on the page, from 1 to 1000 [default: 50]
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// `next_cursor` of the previous page.
    cursor: Option<String>,
}

/// List the ended elements of a mapped step
///
/// Ordered by number. Running elements are among the jobs of the run. If a retry kept the result of the whole step, the
/// list has the elements of the retried run.
#[utoipa::path(get, path = "/api/v1/runs/{id}/steps/{step}/elements", tag = "runs",
    params(("id" = RunId, Path), ("step" = String, Path, description = "Name"), ListElementsParams),
    responses((status = 200, description = "One page", body = List<RunElement>))
)]
async fn list_elements(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Paths(id, step): Paths<RunId, String>,
    Params(params): Params<ListElementsParams>,
) -> Result<Json<List<RunElement>>, ApiError> {
    let limit = page::limit(params.limit)?;
    let row = rows::run(&api, &actor, id).await?;
    let number = number_of(&row, &step)?;
    let list = (id, number, &params.status.0);
    let after = api.shared.cursors.read::<u32>("elements", &list, params.cursor.as_deref())?;
    let owner = owner_of_elements(&api, row, number).await?;
    let mut records = ended_elements(&api, owner, number, after, &params.status.0, limit + 1).await?;
    let more = records.len() > limit;
    records.truncate(limit);
    let last = records.last().and_then(|record| record.key.item).filter(|_| more);
    let next_cursor = last.map(|index| api.shared.cursors.make("elements", &list, &index.to_string()));
    let jobs = jobs_of(&api, &records).await?;
    let items = records.into_iter().filter_map(|record| {
        let job = record.state.job.and_then(|job| jobs.get(&job));
        Some(element(record.key.item?, record.state, job))
    });
    let items = items.collect();
    Ok(Json(List { items, next_cursor }))
}

/// Returns the run whose rows have the elements of a step. A retry that took over the whole step has only the row of
/// the step.
async fn owner_of_elements(api: &Api, mut row: RunRow, number: u32) -> Result<RunId, ApiError> {
    let store = api.node.store();
    loop {
        let Some(before) = row.head.retry_of else { return Ok(row.id) };
        let steps = store.run_steps(row.id).await?;
        let step = steps.iter().find(|record| record.key.step == number && record.key.item.is_none());
        let taken_over = step.is_some_and(|record| record.state.cause == StepCause::CarriedOver);
        match store.run(before).await? {
            Some(before) if taken_over => row = before,
            _ => return Ok(row.id),
        }
    }
}

/// Returns ended elements of a step with one of these statuses; with any status if `statuses` is empty.
async fn ended_elements(
    api: &Api,
    run: RunId,
    number: u32,
    mut after: Option<u32>,
    statuses: &[StepStatus],
    limit: usize,
) -> Result<Vec<StepRecord>, ApiError> {
    let wanted = |record: &StepRecord| {
        let status = record.state.status;
        // Elements that the next attempt repeats have a row of the previous attempt.
        status.is_final() && (statuses.is_empty() || statuses.contains(&status))
    };
    let rows = if statuses.is_empty() { limit } else { ITEM_ROWS };
    let mut found = Vec::new();
    loop {
        let records = api.node.store().run_elements(run, number, after, rows).await?;
        let is_last = records.len() < rows;
        after = records.last().and_then(|record| record.key.item);
        found.extend(records.into_iter().filter(wanted));
        if is_last || found.len() >= limit {
            found.truncate(limit);
            return Ok(found);
        }
    }
}

/// Returns the jobs of elements, in one read.
async fn jobs_of(api: &Api, records: &[StepRecord]) -> Result<HashMap<JobId, JobRow>, ApiError> {
    let ids: Vec<_> = records.iter().filter_map(|record| record.state.job).collect();
    if ids.is_empty() {
        return Ok(HashMap::new());
    }
    let page = Page { after: None, limit: ids.len() };
    let found = api.node.store().jobs(&JobFilter { ids, ..JobFilter::default() }, page).await?;
    Ok(found.items.into_iter().map(|row| (row.id, row)).collect())
}

/// Returns an element with the data of its job.
fn element(index: u32, state: StepState, job: Option<&JobRow>) -> RunElement {
    let value = job.and_then(|row| row.step.as_ref()?.element.as_ref().map(|item| item.value.to_string()));
    let (worker_id, executions) =
        job.map_or((None, None), |row| (row.state.worker, Some(row.state.executions)));
    RunElement { index, value, worker_id, executions, state: convert::step_state(state) }
}

/// Returns the number of a step, by its name.
fn number_of(row: &RunRow, step: &str) -> Result<u32, ApiError> {
    let place = row.head.definition.workflow.all_steps().position(|(_, spec)| spec.name == step);
    let number = place.and_then(|place| u32::try_from(place).ok());
    number.ok_or_else(|| {
        let shown = excerpt(step);
        ApiError::new(Code::StepNotFound, format!("run `{}` has no step `{shown}`", row.id))
    })
}

/// Explain why a step is waiting, or why it ended as it did
///
/// For a step that has not started: the dependencies, rules and limits that block it. The answer comes from the code
/// that starts steps. An ended step has no waiting reasons; see its cause and its message.
#[utoipa::path(get, path = "/api/v1/runs/{id}/steps/{step}/why", tag = "runs",
    params(("id" = RunId, Path), ("step" = String, Path, description = "Name")),
    responses((status = 200, description = "The explanation", body = StepWhy))
)]
async fn explain_step(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Paths(id, step): Paths<RunId, String>,
) -> Result<Json<StepWhy>, ApiError> {
    let request = WorkflowRequest::Why { run: id, step: step.as_str().into() };
    rows::check_run(&api, &actor, id).await?;
    match requests::workflow(&api, &actor, request).await {
        Ok(Reply::StepWhy(why)) => Ok(Json(*why)),
        Ok(other) => Err(unexpected(&other)),
        Err(RequestError::Refused(Refusal::RunNotLive { .. })) => {
            let row = rows::run(&api, &actor, id).await?;
            let number = number_of(&row, &step)?;
            let records = api.node.store().run_steps(id).await?;
            let status = convert::steps(&row, records)[number as usize].state.status;
            Ok(Json(StepWhy { run: id, step, status, reasons: Vec::new() }))
        }
        Err(error) => Err(error.into()),
    }
}

#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
struct ExplainRunParams {
    /// Maximum number of steps, from 1 to 1000 [default: 50]
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
}

/// Explain why the steps of a run are waiting
///
/// Running and waiting steps come first, then pending steps, each with its waiting reasons. A run that has ended has
/// none.
#[utoipa::path(get, path = "/api/v1/runs/{id}/why", tag = "runs",
    params(("id" = RunId, Path), ExplainRunParams),
    responses((status = 200, description = "The explanation", body = RunWhy))
)]
async fn explain_run(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Path(id): Path<RunId>,
    Params(params): Params<ExplainRunParams>,
) -> Result<Json<RunWhy>, ApiError> {
    let most = page::limit(params.limit)?;
    rows::check_run(&api, &actor, id).await?;
    match requests::workflow(&api, &actor, WorkflowRequest::WhyRun { run: id, most }).await {
        Ok(Reply::RunWhy(why)) => Ok(Json(*why)),
        Ok(other) => Err(unexpected(&other)),
        Err(RequestError::Refused(Refusal::RunNotLive { .. })) => {
            rows::run(&api, &actor, id).await?;
            Ok(Json(RunWhy { run: id, next_attempt: None, steps: Vec::new(), more: 0 }))
        }
        Err(error) => Err(error.into()),
    }
}
