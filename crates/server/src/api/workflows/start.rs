//! Starts and retries of runs.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::{ETAG, LOCATION};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use engine::input::CarriedResults;
use engine::{NewRun, Reply, WorkflowRequest};
use model::api::{RetryRun, StartRun, WorkflowRun};
use model::firing::{FiringCause, Origin};
use model::run::RetryFrom;
use model::{RunId, validate};
use utoipa_axum::routes;

use super::pin::{parameters, pinned};
use super::{cost, retry_takeover, runs};
use crate::api::extract::{MaybeBody, Params, Path};
use crate::api::headers::{IdempotencyKey, etag};
use crate::api::limits::Caller;
use crate::api::problem::{ApiError, Code, excerpt};
use crate::api::requests::{self, unexpected};
use crate::api::routes::Routes;
use crate::api::rows::{self, Scope};
use crate::api::{Api, submit};
use crate::auth::{Actor, Resource, Verb};

pub(super) fn routes(routes: &mut Routes) {
    let start_refusals = [
        Code::WorkflowNotFound,
        Code::WaitingRunLimit,
        Code::PriorityClassNotAllowed,
        Code::SubmitRate,
        Code::IdempotencyKeyReused,
        Code::InvalidHeader,
        Code::InvalidSpec,
        Code::UnsupportedMediaType,
    ];
    routes.needs(Verb::Operate, Resource::Runs, &start_refusals, routes!(start_run));
    routes.is_submission();
    let retry_refusals = [
        Code::RunNotFound,
        Code::RunNotEnded,
        Code::RepeatForbidden,
        Code::StepNotFound,
        Code::WorkflowNotFound,
        Code::WaitingRunLimit,
        Code::PriorityClassNotAllowed,
        Code::SubmitRate,
        Code::IdempotencyKeyReused,
        Code::InvalidHeader,
        Code::InvalidSpec,
        Code::UnsupportedMediaType,
    ];
    routes.needs(Verb::Operate, Resource::Runs, &retry_refusals, routes!(retry_run));
}

/// Start a run of a workflow
///
/// The run is pinned to the current definition of the workflow, and of the workflows that it calls. It waits while the
/// limit of parallel runs is reached. With an `Idempotency-Key` the request can be repeated safely.
#[utoipa::path(post, path = "/api/v1/workflows/{name}/start", tag = "runs",
    params(
        ("name" = String, Path, description = "Name or id"), Scope,
        ("Idempotency-Key" = Option<String>, Header, description = "Key that makes a repeated request safe; kept for 7 days"),
    ),
    request_body(content = Option<StartRun>, description = "Optional if every parameter has a default",
        example = json!({"parameters": {"day": "2026-11-21"}, "note": "again, with the corrected file"})),
    responses(
        (status = 201, description = "The new run", body = WorkflowRun, headers(
            ("Location" = String, description = "The new run"),
            ("ETag" = String, description = "Version of the resource"),
        )),
        (status = 200, description = "An earlier request with the same idempotency key started the run", body = WorkflowRun),
    )
)]
async fn start_run(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Extension(caller): Extension<Caller>,
    Path(name): Path<String>,
    Params(scope): Params<Scope>,
    IdempotencyKey(key): IdempotencyKey,
    MaybeBody(body): MaybeBody<StartRun>,
) -> Result<Response, ApiError> {
    let row = rows::workflow(&api, &actor, &name, scope.namespace()).await?;
    let key = key.map(|key| submit::start_key(row.id, &key, &body));
    let parameters = parameters(&row.head.spec, &body)?;
    let definition = pinned(&api, &row).await?;
    api.shared.limits.charge(&actor, &caller, cost::jobs(&definition, &parameters, &[]))?;
    let new = NewRun {
        workflow: Some(row.id),
        generation: row.state.generation,
        body: definition.to_json().into(),
        definition: Arc::new(definition),
        parameters: Arc::new(parameters),
        priority: body.priority,
        note: body.note.map(String::into_boxed_str),
        retry_of: None,
        carried: CarriedResults::default(),
        origin: None,
        key,
    };
    started(&api, &actor, new).await
}

pub(super) async fn started(api: &Api, actor: &Actor, new: NewRun) -> Result<Response, ApiError> {
    match requests::workflow(api, actor, WorkflowRequest::Start(Box::new(new))).await? {
        Reply::RunStarted { run, new } => {
            let row = rows::run(api, actor, run).await?;
            let (location, tag) = (format!("/api/v1/runs/{run}"), etag(row.state.version));
            let status = if new { StatusCode::CREATED } else { StatusCode::OK };
            Ok((status, [(LOCATION, location)], [(ETAG, tag)], Json(runs::with_spec(row))).into_response())
        }
        other => Err(unexpected(&other)),
    }
}

/// Retry an ended run
///
/// Starts a new run with the same definition and the same parameters; `retry_of` of the new run names the old one.
/// Steps that succeeded keep their result and do not run again, and neither do succeeded elements of a mapped step;
/// `from` names a step to run again all the same. A failed step that called a workflow continues the called run.
///
/// A job with delivery level `at_most_once` that has started does not start again: the request is refused and names its
/// step, unless `repeat` also names the step.
#[utoipa::path(post, path = "/api/v1/runs/{id}/retry", tag = "runs",
    params(
        ("id" = RunId, Path),
        ("Idempotency-Key" = Option<String>, Header, description = "Key that makes a repeated request safe; kept for 7 days"),
    ),
    request_body(content = Option<RetryRun>, description = "Optional"),
    responses(
        (status = 201, description = "The new run", body = WorkflowRun, headers(
            ("Location" = String, description = "The new run"),
            ("ETag" = String, description = "Version of the resource"),
        )),
        (status = 200, description = "An earlier request with the same idempotency key started the run", body = WorkflowRun),
    )
)]
async fn retry_run(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<RunId>,
    IdempotencyKey(key): IdempotencyKey,
    MaybeBody(body): MaybeBody<RetryRun>,
) -> Result<Response, ApiError> {
    validate::note("note", body.note.as_deref()).map_err(|invalid| ApiError::invalid(&invalid))?;
    let row = rows::run(&api, &actor, id).await?;
    if let Some(caller) = &row.head.caller {
        let detail = format!("cannot retry run `{id}`: run `{}` called it; retry that run", caller.run);
        return Err(ApiError::new(Code::WorkflowNotFound, detail));
    }
    if !row.state.status.is_final() {
        let detail = format!("cannot retry run `{id}`: it has not ended yet (`{}`)", row.state.status);
        return Err(ApiError::new(Code::RunNotEnded, detail));
    }
    let from = match body.from.as_deref() {
        None => RetryFrom::Failed,
        Some(step) => {
            if !row.head.definition.workflow.steps.iter().any(|spec| spec.name == step) {
                let shown = excerpt(step);
                let detail = format!("run `{id}` has no step `{shown}` in `steps`");
                return Err(ApiError::new(Code::StepNotFound, detail));
            }
            RetryFrom::Step(step)
        }
    };
    let key = key.map(|key| submit::retry_key(id, &key, &body));
    let carried = retry_takeover::takeover(&api, &row, from, &body.repeat).await?;
    let jobs = cost::jobs(&row.head.definition, &row.head.parameters, &carried.records);
    api.shared.limits.charge(&actor, &caller, jobs)?;
    let new = NewRun {
        workflow: row.head.workflow,
        generation: row.head.generation,
        definition: Arc::clone(&row.head.definition),
        body: Arc::clone(&row.head.body),
        parameters: Arc::clone(&row.head.parameters),
        priority: row.head.priority,
        note: body.note.as_deref().map(Into::into),
        retry_of: Some(id),
        carried,
        origin: row.head.origin.as_deref().map(retried),
        key,
    };
    started(&api, &actor, new).await
}

/// Still a run of its schedule, and counted for its overlap policy.
fn retried(origin: &Origin) -> Arc<Origin> {
    Arc::new(Origin { cause: FiringCause::Retry, backfill: None, start_by: None, ..origin.clone() })
}
