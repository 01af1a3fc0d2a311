//! Changes of live runs and their steps.
//!
//! Cancel, pause and resume a run; mark, approve or reject a step; send an event. Each request goes to the engine,
//! which has only live runs. For other runs, the store distinguishes an ended run from a missing one.
//!
//! All changes respond with the changed run, except events, which respond with the number of steps that received it.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use axum::{Extension, Json};
use engine::{Reply, WorkflowRequest};
use model::api::{CancelRun, EventDelivery, MarkStep, Note, WorkflowRun};
use model::limits::OUTPUT_BYTES_MAX;
use model::{Refusal, RunId, validate};
use serde_json::{Map, Value};
use utoipa_axum::routes;

use super::{read, runs};
use crate::api::extract::{MaybeBody, Path, Paths, RawBody};
use crate::api::problem::{ApiError, Code, field_error};
use crate::api::requests::{self, unexpected};
use crate::api::routes::Routes;
use crate::api::{Api, rows};
use crate::auth::{Actor, Resource, Verb};
use crate::node::RequestError;

/// Largest body of a mark, in bytes.
const MARK_BODY_BYTES_MAX: usize = 64 * 1024;

pub(super) fn routes(routes: &mut Routes) {
    use Code::{InvalidSpec, RunEnded, RunNotFound, StepEnded, StepNotFound, UnsupportedMediaType};
    let runs = Resource::Runs;
    let run_refusals = [RunNotFound, RunEnded, InvalidSpec, UnsupportedMediaType];
    routes.needs(Verb::Operate, runs, &run_refusals, routes!(cancel_run));
    routes.needs(Verb::Operate, runs, &run_refusals, routes!(pause_run));
    routes.needs(Verb::Operate, runs, &[RunNotFound, RunEnded], routes!(resume_run));
    let step_refusals = [RunNotFound, RunEnded, StepNotFound, StepEnded, InvalidSpec, UnsupportedMediaType];
    routes.needs(Verb::Operate, runs, &step_refusals, routes!(mark_step));
    let decide_refusals = [
        RunNotFound,
        RunEnded,
        StepNotFound,
        StepEnded,
        Code::ApprovalNotPending,
        Code::NotApprover,
        InvalidSpec,
        UnsupportedMediaType,
    ];
    routes.needs(Verb::Operate, runs, &decide_refusals, routes!(approve_step));
    routes.needs(Verb::Operate, runs, &decide_refusals, routes!(reject_step));
    let event_refusals = [RunNotFound, RunEnded, Code::EventNotAwaited, InvalidSpec, UnsupportedMediaType];
    routes.needs(Verb::Operate, runs, &event_refusals, routes!(send_event));
}

/// Sends a change of a live run, and responds with the changed run.
async fn change(api: &Api, actor: &Actor, id: RunId, request: WorkflowRequest) -> Result<Response, ApiError> {
    rows::check_run(api, actor, id).await?;
    match requests::workflow(api, actor, request).await {
        Ok(Reply::Run { .. } | Reply::Step { .. }) => {
            Ok(read::with_etag(runs::with_spec(rows::run(api, actor, id).await?)))
        }
        Ok(other) => Err(unexpected(&other)),
        Err(error) => Err(refused(api, actor, id, error).await),
    }
}

/// The engine has only live runs; the store shows whether another run has ended or does not exist.
async fn refused(api: &Api, actor: &Actor, id: RunId, error: RequestError) -> ApiError {
    match error {
        RequestError::Refused(Refusal::RunNotLive { .. }) => match rows::run(api, actor, id).await {
            Ok(row) => {
                let detail =
                    format!("cannot change run `{id}`: it has already ended (`{}`)", row.state.status);
                ApiError::new(Code::RunEnded, detail)
            }
            Err(error) => error,
        },
        error => error.into(),
    }
}

fn noted(path: &str, note: Option<String>) -> Result<Option<Box<str>>, ApiError> {
    validate::note(path, note.as_deref()).map_err(|invalid| ApiError::invalid(&invalid))?;
    Ok(note.map(String::into_boxed_str))
}

/// Cancel a run
///
/// Running steps are stopped, and pending steps never start. The `finally` steps still run, unless `skip_finally` is
/// set; a second cancel can set it. `on_failure` steps do not run after a cancel.
#[utoipa::path(post, path = "/api/v1/runs/{id}/cancel", tag = "runs", params(("id" = RunId, Path)),
    request_body(content = Option<CancelRun>, description = "Optional"),
    responses((status = 200, description = "The updated run", body = WorkflowRun, headers(("ETag" = String, description = "Version of the resource"))))
)]
async fn cancel_run(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Path(id): Path<RunId>,
    MaybeBody(body): MaybeBody<CancelRun>,
) -> Result<Response, ApiError> {
    let reason = noted("reason", body.reason)?;
    change(&api, &actor, id, WorkflowRequest::Cancel { run: id, reason, skip_finally: body.skip_finally })
        .await
}

/// Pause a run
///
/// No further step starts until the run is resumed. Running steps continue.
#[utoipa::path(post, path = "/api/v1/runs/{id}/pause", tag = "runs", params(("id" = RunId, Path)),
    request_body(content = Option<Note>, description = "Optional"),
    responses((status = 200, description = "The updated run", body = WorkflowRun, headers(("ETag" = String, description = "Version of the resource"))))
)]
async fn pause_run(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Path(id): Path<RunId>,
    MaybeBody(body): MaybeBody<Note>,
) -> Result<Response, ApiError> {
    let note = noted("note", body.note)?;
    change(&api, &actor, id, WorkflowRequest::Pause { run: id, note }).await
}

/// Resume a paused run
#[utoipa::path(post, path = "/api/v1/runs/{id}/resume", tag = "runs", params(("id" = RunId, Path)),
    responses((status = 200, description = "The updated run", body = WorkflowRun, headers(("ETag" = String, description = "Version of the resource"))))
)]
async fn resume_run(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Path(id): Path<RunId>,
) -> Result<Response, ApiError> {
    change(&api, &actor, id, WorkflowRequest::Resume { run: id }).await
}

/// Set the final status of a step
///
/// Works for a step that has not ended. A running step is stopped first, so that downstream steps do not start too
/// early. The user and the note are recorded.
#[utoipa::path(post, path = "/api/v1/runs/{id}/steps/{step}/mark", tag = "runs",
    params(("id" = RunId, Path), ("step" = String, Path, description = "Name")),
    request_body(content = MarkStep, example = json!({"status": "skipped", "note": "the file came by mail"})),
    responses((status = 200, description = "The updated run", body = WorkflowRun, headers(("ETag" = String, description = "Version of the resource"))))
)]
async fn mark_step(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Paths(id, step): Paths<RunId, String>,
    body: RawBody<MARK_BODY_BYTES_MAX>,
) -> Result<Response, ApiError> {
    let MarkStep { status, note } = body.format.parse(&body.bytes)?;
    let note = noted("note", note)?;
    change(&api, &actor, id, WorkflowRequest::Mark { run: id, step: step.into(), status, note }).await
}

async fn decide(
    api: &Api,
    actor: &Actor,
    (id, step): (RunId, String),
    approve: bool,
    note: Option<String>,
) -> Result<Response, ApiError> {
    let note = noted("note", note)?;
    change(api, actor, id, WorkflowRequest::Decide { run: id, step: step.into(), approve, note }).await
}

/// Approve a step
#[utoipa::path(post, path = "/api/v1/runs/{id}/steps/{step}/approve", tag = "runs",
    params(("id" = RunId, Path), ("step" = String, Path, description = "Name")),
    request_body(content = Option<Note>, description = "Optional"),
    responses((status = 200, description = "The updated run", body = WorkflowRun, headers(("ETag" = String, description = "Version of the resource"))))
)]
async fn approve_step(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Paths(id, step): Paths<RunId, String>,
    MaybeBody(body): MaybeBody<Note>,
) -> Result<Response, ApiError> {
    decide(&api, &actor, (id, step), true, body.note).await
}

/// Reject a step
///
/// The step fails.
#[utoipa::path(post, path = "/api/v1/runs/{id}/steps/{step}/reject", tag = "runs",
    params(("id" = RunId, Path), ("step" = String, Path, description = "Name")),
    request_body(content = Option<Note>, description = "Optional"),
    responses((status = 200, description = "The updated run", body = WorkflowRun, headers(("ETag" = String, description = "Version of the resource"))))
)]
async fn reject_step(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Paths(id, step): Paths<RunId, String>,
    MaybeBody(body): MaybeBody<Note>,
) -> Result<Response, ApiError> {
    decide(&api, &actor, (id, step), false, body.note).await
}

/// Send an event to a run
///
/// The event ends steps that wait for an event of this name, now or later: the run keeps the first event of each name.
/// The body is the payload of the event, and the output of those steps.
#[utoipa::path(post, path = "/api/v1/runs/{id}/events/{event}", tag = "runs",
    params(("id" = RunId, Path), ("event" = String, Path, description = "Name")),
    request_body(content = Option<Object>, description = "Payload, a JSON object [default: {}]", example = json!({"paid": 1200})),
    responses((status = 200, description = "Number of steps that received the event", body = EventDelivery))
)]
async fn send_event(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Paths(id, event): Paths<RunId, String>,
    MaybeBody(payload): MaybeBody<Map<String, Value>>,
) -> Result<Json<EventDelivery>, ApiError> {
    let payload: Arc<str> = Value::Object(payload).to_string().into();
    if payload.len() > OUTPUT_BYTES_MAX {
        let detail = format!(
            "the payload has {} bytes as JSON: expected at most {OUTPUT_BYTES_MAX}; put large data into an artifact",
            payload.len()
        );
        return Err(ApiError::invalid_fields(vec![field_error("", &detail)]));
    }
    rows::check_run(&api, &actor, id).await?;
    match requests::workflow(&api, &actor, WorkflowRequest::Event { run: id, event: event.into(), payload })
        .await
    {
        Ok(Reply::EventTaken { steps }) => Ok(Json(EventDelivery { steps })),
        Ok(other) => Err(unexpected(&other)),
        Err(error) => Err(refused(&api, &actor, id, error).await),
    }
}
