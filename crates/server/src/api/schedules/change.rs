//! Changes of existing schedules: pause, resume, trigger, delete.

use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::{ETAG, LOCATION};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use engine::{Reply, ScheduleRequest};
use model::ScheduleId;
use model::api::{PauseSchedule, Schedule, TriggerSchedule, TriggeredSchedule};
use model::firing::Work;
use model::schedule::Action;
use model::validate;
use store::query::ScheduleRow;
use utoipa_axum::routes;

use super::read;
use crate::api::extract::{MaybeBody, Params, Path};
use crate::api::headers::{IdempotencyKey, Precondition, etag};
use crate::api::limits::Caller;
use crate::api::problem::{ApiError, Code};
use crate::api::requests::{self, deleted, unexpected};
use crate::api::routes::Routes;
use crate::api::rows::{self, Scope};
use crate::api::{Api, convert, submit, workflows};
use crate::auth::{Actor, Resource, Verb};

pub(super) fn routes(routes: &mut Routes) {
    use Code::{InvalidHeader, InvalidSpec, ScheduleNotFound, UnsupportedMediaType, VersionMismatch};
    let schedules = Resource::Schedules;
    let delete_refusals = [ScheduleNotFound, VersionMismatch, InvalidHeader];
    routes.needs(Verb::Delete, schedules, &delete_refusals, routes!(delete_schedule));
    let pause_refusals =
        [ScheduleNotFound, VersionMismatch, InvalidHeader, InvalidSpec, UnsupportedMediaType];
    routes.needs(Verb::Operate, schedules, &pause_refusals, routes!(pause_schedule));
    let resume_refusals = [ScheduleNotFound, VersionMismatch, InvalidHeader];
    routes.needs(Verb::Operate, schedules, &resume_refusals, routes!(resume_schedule));
    let trigger_refusals = [
        ScheduleNotFound,
        Code::ScheduleRunLimit,
        Code::SubmitRate,
        Code::IdempotencyKeyReused,
        InvalidHeader,
        InvalidSpec,
        UnsupportedMediaType,
    ];
    routes.needs(Verb::Operate, schedules, &trigger_refusals, routes!(trigger_schedule));
}

/// Sends a change of a schedule, and responds with the changed schedule.
async fn changed(
    api: &Api,
    actor: &Actor,
    id: ScheduleId,
    request: ScheduleRequest,
) -> Result<Response, ApiError> {
    match requests::schedule(api, actor, request).await? {
        Reply::Schedule { .. } => {}
        other => return Err(unexpected(&other)),
    }
    let row = rows::schedule(api, actor, &id.to_string(), None).await?;
    let schedule = read::schedule_with_spec(api, &row).await?;
    Ok(([(ETAG, etag(schedule.version))], Json(schedule)).into_response())
}

/// Delete a schedule
///
/// Running runs continue. Backfills of the schedule are cancelled. The ledger is kept until its retention ends.
#[utoipa::path(delete, path = "/api/v1/schedules/{name}", tag = "schedules",
    params(
        ("name" = String, Path), Scope,
        ("If-Match" = Option<String>, Header, description = "Expected version; the request is refused if the resource has another version", example = "\"3\""),
    ),
    responses((status = 204, description = "Deleted"))
)]
async fn delete_schedule(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Path(name): Path<String>,
    Params(scope): Params<Scope>,
    wanted: Precondition,
) -> Result<StatusCode, ApiError> {
    let row = rows::schedule(&api, &actor, &name, scope.namespace()).await?;
    let expected_version = wanted.expected(format!("schedule `{name}`"), row.state.version)?;
    let request = ScheduleRequest::Delete { schedule: row.id, expected_version };
    let status = deleted(&requests::schedule(&api, &actor, request).await?)?;
    actor.note().changed_bodies("", Some(&row.body), None);
    tracing::info!(schedule_id = %row.id, by = %actor.name, "schedule deleted");
    Ok(status)
}

/// Pause a schedule
///
/// Scheduled times are recorded as skipped until the schedule is resumed. Running runs continue.
#[utoipa::path(post, path = "/api/v1/schedules/{name}/pause", tag = "schedules",
    params(
        ("name" = String, Path), Scope,
        ("If-Match" = Option<String>, Header, description = "Expected version; the request is refused if the resource has another version", example = "\"3\""),
    ),
    request_body(content = Option<PauseSchedule>, description = "Optional"),
    responses((status = 200, description = "The updated schedule", body = Schedule, headers(("ETag" = String, description = "Version of the resource"))))
)]
async fn pause_schedule(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Path(name): Path<String>,
    Params(scope): Params<Scope>,
    wanted: Precondition,
    MaybeBody(body): MaybeBody<PauseSchedule>,
) -> Result<Response, ApiError> {
    validate::note("note", body.note.as_deref()).map_err(|invalid| ApiError::invalid(&invalid))?;
    let row = rows::schedule(&api, &actor, &name, scope.namespace()).await?;
    let expected_version = wanted.expected(format!("schedule `{name}`"), row.state.version)?;
    let note = body.note.map(String::into_boxed_str);
    changed(&api, &actor, row.id, ScheduleRequest::Pause { schedule: row.id, note, expected_version }).await
}

/// Resume a paused schedule
///
/// Scheduled times that passed during the pause stay skipped; use a backfill to run them.
#[utoipa::path(post, path = "/api/v1/schedules/{name}/resume", tag = "schedules",
    params(
        ("name" = String, Path), Scope,
        ("If-Match" = Option<String>, Header, description = "Expected version; the request is refused if the resource has another version", example = "\"3\""),
    ),
    responses((status = 200, description = "The updated schedule", body = Schedule, headers(("ETag" = String, description = "Version of the resource"))))
)]
async fn resume_schedule(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Path(name): Path<String>,
    Params(scope): Params<Scope>,
    wanted: Precondition,
) -> Result<Response, ApiError> {
    let row = rows::schedule(&api, &actor, &name, scope.namespace()).await?;
    let expected_version = wanted.expected(format!("schedule `{name}`"), row.state.version)?;
    changed(&api, &actor, row.id, ScheduleRequest::Resume { schedule: row.id, expected_version }).await
}

/// Fire a schedule now
///
/// Works while the schedule is paused or completed, too. The ledger records the user and the reason. With an
/// `Idempotency-Key`, you can repeat the request until it is answered.
#[utoipa::path(post, path = "/api/v1/schedules/{name}/trigger", tag = "schedules",
    params(
        ("name" = String, Path), Scope,
        ("Idempotency-Key" = Option<String>, Header, description = "Key that makes a repeated request safe; kept for 7 days"),
    ),
    request_body(content = Option<TriggerSchedule>, description = "Optional"),
    responses((status = 200, description = "Outcome of the firing", body = TriggeredSchedule, headers(
        ("Location" = Option<String>, description = "URL of the created job"),
    )))
)]
async fn trigger_schedule(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Extension(caller): Extension<Caller>,
    Path(name): Path<String>,
    Params(scope): Params<Scope>,
    IdempotencyKey(key): IdempotencyKey,
    MaybeBody(body): MaybeBody<TriggerSchedule>,
) -> Result<Response, ApiError> {
    validate::note("reason", body.reason.as_deref()).map_err(|invalid| ApiError::invalid(&invalid))?;
    let row = rows::schedule(&api, &actor, &name, scope.namespace()).await?;
    if api.shared.limits.has_job_rate(&actor) {
        api.shared.limits.charge(&actor, &caller, jobs_of(&api, &row).await?)?;
    }
    let key = key.map(|key| submit::trigger_key(row.id, &key, &body));
    let TriggerSchedule { reason, overlap } = body;
    let reason = reason.map(String::into_boxed_str);
    let request = ScheduleRequest::Trigger { schedule: row.id, overlap, reason, key };
    match requests::schedule(&api, &actor, request).await? {
        Reply::Triggered { outcome, work, scheduled_for } => {
            let (job_id, run_id) = (work.and_then(Work::job), work.and_then(Work::run));
            let answer = TriggeredSchedule { schedule_id: row.id, outcome, job_id, run_id, scheduled_for };
            let location = work.map(|work| match work {
                Work::Job(job) => [(LOCATION, format!("/api/v1/jobs/{job}"))],
                Work::Run(run) => [(LOCATION, format!("/api/v1/runs/{run}"))],
            });
            Ok((location, Json(answer)).into_response())
        }
        other => Err(unexpected(&other)),
    }
}

/// Returns the number of jobs that a firing counts as for the job rate.
async fn jobs_of(api: &Api, row: &ScheduleRow) -> Result<usize, ApiError> {
    let spec = convert::schedule_spec(row)?;
    match &spec.action {
        Action::Job(_) => Ok(1),
        Action::Workflow(call) => workflows::jobs_of_call(api, &spec.namespace, call).await,
    }
}
