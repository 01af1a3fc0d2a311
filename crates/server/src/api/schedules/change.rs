//! What is asked of a schedule that exists: pause, resume, trigger, delete.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::{ETAG, LOCATION};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use engine::{Input, Reply, ScheduleRequest};
use model::ScheduleId;
use model::api::{PauseSchedule, Schedule, TriggerSchedule, TriggeredSchedule};
use model::firing::Work;
use model::schedule::Action;
use model::validate;
use store::query::ScheduleRow;
use utoipa_axum::routes;

use super::super::extract::{MaybeBody, Params, Path};
use super::super::headers::{IdempotencyKey, Precondition, etag};
use super::super::jobs::unexpected;
use super::super::limits::Caller;
use super::super::problem::{Code, Trouble};
use super::super::routes::Routes;
use super::super::{Api, submit, workflows};
use super::{Scope, find, read};
use crate::auth::{Actor, Resource, Verb};
use crate::node::RequestError;

pub(super) fn routes(routes: &mut Routes) {
    use Code::{InvalidHeader, InvalidSpec, ScheduleNotFound, UnsupportedMediaType, VersionMismatch};
    let schedules = Resource::Schedules;
    let delete_refusals = [ScheduleNotFound, VersionMismatch, InvalidHeader];
    routes.needs(Verb::Delete, schedules, &delete_refusals, routes!(delete_schedule));
    let pause_refusals =
        [ScheduleNotFound, VersionMismatch, InvalidHeader, InvalidSpec, UnsupportedMediaType];
    routes.needs(Verb::Change, schedules, &pause_refusals, routes!(pause_schedule));
    let resume_refusals = [ScheduleNotFound, VersionMismatch, InvalidHeader];
    routes.needs(Verb::Change, schedules, &resume_refusals, routes!(resume_schedule));
    let trigger_refusals = [
        ScheduleNotFound,
        Code::RunsNotOver,
        Code::IdempotencyKeyReused,
        InvalidHeader,
        InvalidSpec,
        UnsupportedMediaType,
    ];
    routes.needs(Verb::Change, schedules, &trigger_refusals, routes!(trigger_schedule));
}

async fn ask(api: &Api, actor: &Actor, request: ScheduleRequest) -> Result<Reply, RequestError> {
    let (request, actor) = (Box::new(request), Arc::clone(&actor.name));
    api.node.request(|ticket| Input::Schedule { ticket, request, actor }).await
}

async fn shown(api: &Api, id: ScheduleId) -> Result<Response, Trouble> {
    let row = super::find_in(api, &id.to_string(), None).await?;
    let schedule = read::schedule_with_spec(api, &row).await?;
    Ok(([(ETAG, etag(schedule.version))], Json(schedule)).into_response())
}

/// Delete a schedule
///
/// Its runs go on; its backfills are cancelled; its ledger is kept for a while.
#[utoipa::path(delete, path = "/api/v1/schedules/{name}", tag = "schedules",
    params(
        ("name" = String, Path), Scope,
        ("If-Match" = Option<String>, Header, description = "Only if it is still this version", example = "\"3\""),
    ),
    responses((status = 204, description = "It is deleted"))
)]
async fn delete_schedule(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Path(name): Path<String>,
    Params(scope): Params<Scope>,
    wanted: Precondition,
) -> Result<StatusCode, Trouble> {
    let row = find(&api, &name, &scope).await?;
    let expected_version = wanted.expected(row.state.version)?;
    match ask(&api, &actor, ScheduleRequest::Delete { schedule: row.id, expected_version }).await? {
        Reply::Schedule { .. } => {
            tracing::info!(schedule_id = %row.id, by = %actor.name, "a schedule was deleted");
            Ok(StatusCode::NO_CONTENT)
        }
        other => Err(unexpected(&other)),
    }
}

/// Pause a schedule
///
/// Its instants are recorded as skipped until it is resumed. Its runs go on.
#[utoipa::path(post, path = "/api/v1/schedules/{name}/pause", tag = "schedules",
    params(
        ("name" = String, Path), Scope,
        ("If-Match" = Option<String>, Header, description = "Only if it is still this version", example = "\"3\""),
    ),
    request_body(content = Option<PauseSchedule>, description = "May be left out"),
    responses((status = 200, description = "The schedule as it is now", body = Schedule, headers(("ETag" = String, description = "Its version"))))
)]
async fn pause_schedule(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Path(name): Path<String>,
    Params(scope): Params<Scope>,
    wanted: Precondition,
    MaybeBody(body): MaybeBody<PauseSchedule>,
) -> Result<Response, Trouble> {
    validate::note("note", body.note.as_deref()).map_err(|invalid| Trouble::invalid(&invalid))?;
    let row = find(&api, &name, &scope).await?;
    let expected_version = wanted.expected(row.state.version)?;
    let note = body.note.map(String::into_boxed_str);
    match ask(&api, &actor, ScheduleRequest::Pause { schedule: row.id, note, expected_version }).await? {
        Reply::Schedule { .. } => shown(&api, row.id).await,
        other => Err(unexpected(&other)),
    }
}

/// Let a paused schedule fire again
///
/// What was due meanwhile stays skipped; a backfill makes up for it.
#[utoipa::path(post, path = "/api/v1/schedules/{name}/resume", tag = "schedules",
    params(
        ("name" = String, Path), Scope,
        ("If-Match" = Option<String>, Header, description = "Only if it is still this version", example = "\"3\""),
    ),
    responses((status = 200, description = "The schedule as it is now", body = Schedule, headers(("ETag" = String, description = "Its version"))))
)]
async fn resume_schedule(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Path(name): Path<String>,
    Params(scope): Params<Scope>,
    wanted: Precondition,
) -> Result<Response, Trouble> {
    let row = find(&api, &name, &scope).await?;
    let expected_version = wanted.expected(row.state.version)?;
    match ask(&api, &actor, ScheduleRequest::Resume { schedule: row.id, expected_version }).await? {
        Reply::Schedule { .. } => shown(&api, row.id).await,
        other => Err(unexpected(&other)),
    }
}

/// Fire a schedule now
///
/// Also while it is paused or completed. Who asked and why is recorded in the ledger. Send an
/// `Idempotency-Key`, and the request may be repeated until it is answered.
#[utoipa::path(post, path = "/api/v1/schedules/{name}/trigger", tag = "schedules",
    params(
        ("name" = String, Path), Scope,
        ("Idempotency-Key" = Option<String>, Header, description = "Makes repeating safe; kept for 7 days."),
    ),
    request_body(content = Option<TriggerSchedule>, description = "May be left out"),
    responses((status = 200, description = "What became of it", body = TriggeredSchedule, headers(
        ("Location" = Option<String>, description = "The job that it created"),
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
) -> Result<Response, Trouble> {
    validate::note("reason", body.reason.as_deref()).map_err(|invalid| Trouble::invalid(&invalid))?;
    let row = find(&api, &name, &scope).await?;
    if api.shared.limits.has_job_rate() {
        api.shared.limits.charge(&caller, jobs_of(&api, &row).await?)?;
    }
    let key = key.map(|key| submit::trigger_key(row.id, &key, &body));
    let TriggerSchedule { reason, overlap } = body;
    let reason = reason.map(String::into_boxed_str);
    let request = ScheduleRequest::Trigger { schedule: row.id, overlap, reason, key };
    match ask(&api, &actor, request).await? {
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

/// How many jobs a firing counts as for the job rate.
async fn jobs_of(api: &Api, row: &ScheduleRow) -> Result<usize, Trouble> {
    let spec = read::spec(row)?;
    match &spec.action {
        Action::Job(_) => Ok(1),
        Action::Workflow(call) => workflows::jobs_of_call(api, &spec.namespace, call).await,
    }
}
