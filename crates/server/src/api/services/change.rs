//! Changes of a service without a new spec: scale, restart, roll back, and control its rollout.

use axum::extract::State;
use axum::{Extension, Json};
use engine::{Reply, ServiceRequest};
use model::ServiceId;
use model::api::{RollbackService, ScaleService, ServiceChanged};
use model::limits::BODY_BYTES_MAX;
use model::validate;
use serde::de::DeserializeOwned;
use store::query::ServiceRow;
use utoipa_axum::routes;

use crate::api::Api;
use crate::api::extract::{Params, Path, RawBody};
use crate::api::headers::Precondition;
use crate::api::problem::{ApiError, Code};
use crate::api::requests::{self, unexpected};
use crate::api::routes::Routes;
use crate::api::rows::{self, Scope};
use crate::auth::{Actor, Resource, Verb};

pub(super) fn routes(routes: &mut Routes) {
    let services = Resource::Services;
    let common = [Code::ServiceNotFound, Code::ServiceDeleting];
    let with = |more: &[Code]| [&common[..], more].concat();
    let body = [Code::InvalidSpec, Code::UnsupportedMediaType];
    let refusals =
        [Code::ServicePerWorker, Code::ServiceAutoscaled, Code::VersionMismatch, Code::InvalidHeader];
    let scale = with(&[&body[..], &refusals].concat());
    routes.needs(Verb::Operate, services, &scale, routes!(scale_service));
    routes.needs(Verb::Operate, services, &common, routes!(restart_service));
    let rollback = with(&[&body[..], &[Code::RevisionUnavailable]].concat());
    routes.needs(Verb::Operate, services, &rollback, routes!(rollback_service));
    let rollout = with(&[Code::RolloutStatus]);
    routes.needs(Verb::Operate, services, &rollout, routes!(pause_rollout));
    routes.needs(Verb::Operate, services, &rollout, routes!(resume_rollout));
    routes.needs(Verb::Operate, services, &rollout, routes!(promote_rollout));
}

/// Parses a body; an empty one has all defaults.
fn parse<T: DeserializeOwned>(body: &RawBody<BODY_BYTES_MAX>) -> Result<T, ApiError> {
    let bytes = if body.bytes.is_empty() { &b"{}"[..] } else { &body.bytes[..] };
    body.format.parse(bytes)
}

/// Sends a change of the service that the path names.
async fn change(
    api: &Api,
    actor: &Actor,
    name: &str,
    scope: &Scope,
    request: impl FnOnce(ServiceId) -> ServiceRequest,
) -> Result<Json<ServiceChanged>, ApiError> {
    let row = rows::service(api, actor, name, scope.namespace()).await?;
    send(api, actor, &row, request(row.id)).await
}

async fn send(
    api: &Api,
    actor: &Actor,
    row: &ServiceRow,
    request: ServiceRequest,
) -> Result<Json<ServiceChanged>, ApiError> {
    actor.note().object(&row.head.spec.name);
    match requests::service(api, actor, request).await? {
        Reply::Service { version, revision, replicas } => {
            let before = &row.state;
            actor.note().changed("replicas", Some(&before.replicas), Some(&replicas));
            actor.note().changed("revision", Some(&before.rollout.revision), Some(&revision));
            Ok(Json(ServiceChanged { version, revision, replicas }))
        }
        other => Err(unexpected(&other)),
    }
}

/// Scale a service
///
/// Changes the desired number of replicas. A later apply of a spec with `replicas` sets the number again.
#[utoipa::path(post, path = "/api/v1/services/{name}/scale", tag = "services",
    params(
        ("name" = String, Path, description = "Name or id"), Scope,
        ("If-Match" = Option<String>, Header, description = "Version that the change is based on; the request is refused if the resource has another version", example = "\"3\""),
    ),
    request_body(content((ScaleService = "application/json", example = json!({"replicas": 5})), (ScaleService = "application/yaml"))),
    responses((status = 200, description = "The service after the change", body = ServiceChanged))
)]
async fn scale_service(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Path(name): Path<String>,
    Params(scope): Params<Scope>,
    wanted: Precondition,
    body: RawBody<BODY_BYTES_MAX>,
) -> Result<Json<ServiceChanged>, ApiError> {
    let ScaleService { replicas } = body.format.parse(&body.bytes)?;
    validate::replicas(replicas).map_err(|invalid| ApiError::invalid(&invalid))?;
    let row = rows::service(&api, &actor, &name, scope.namespace()).await?;
    let expected_version = wanted.expected(format!("service `{name}`"), row.state.version)?;
    let request = ServiceRequest::Scale { service: row.id, replicas, expected_version };
    send(&api, &actor, &row, request).await
}

/// Restart a service
///
/// Creates a revision with the same template, so that all replicas are replaced within the limits of the update policy.
#[utoipa::path(post, path = "/api/v1/services/{name}/restart", tag = "services",
    params(("name" = String, Path, description = "Name or id"), Scope),
    responses((status = 200, description = "The service after the change", body = ServiceChanged))
)]
async fn restart_service(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Path(name): Path<String>,
    Params(scope): Params<Scope>,
) -> Result<Json<ServiceChanged>, ApiError> {
    change(&api, &actor, &name, &scope, |service| ServiceRequest::Restart { service }).await
}

/// Roll a service back
///
/// Creates a revision with the template of an earlier one. Replicas that still have this template are not restarted.
#[utoipa::path(post, path = "/api/v1/services/{name}/rollback", tag = "services",
    params(("name" = String, Path, description = "Name or id"), Scope),
    request_body(content((RollbackService = "application/json", example = json!({"revision": 3})), (RollbackService = "application/yaml"))),
    responses((status = 200, description = "The service after the change", body = ServiceChanged))
)]
async fn rollback_service(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Path(name): Path<String>,
    Params(scope): Params<Scope>,
    body: RawBody<BODY_BYTES_MAX>,
) -> Result<Json<ServiceChanged>, ApiError> {
    let RollbackService { revision } = parse(&body)?;
    change(&api, &actor, &name, &scope, |service| ServiceRequest::Rollback { service, revision }).await
}

/// Pause a rollout
///
/// No replica of an older revision is replaced until the rollout is resumed. Missing replicas get the last revision that
/// was rolled out completely.
#[utoipa::path(post, path = "/api/v1/services/{name}/pause", tag = "services",
    params(("name" = String, Path, description = "Name or id"), Scope),
    responses((status = 200, description = "The service after the change", body = ServiceChanged))
)]
async fn pause_rollout(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Path(name): Path<String>,
    Params(scope): Params<Scope>,
) -> Result<Json<ServiceChanged>, ApiError> {
    change(&api, &actor, &name, &scope, |service| ServiceRequest::PauseRollout { service }).await
}

/// Resume a rollout
///
/// Continues a paused rollout, or tries a failed one again. The progress deadline starts again.
#[utoipa::path(post, path = "/api/v1/services/{name}/resume", tag = "services",
    params(("name" = String, Path, description = "Name or id"), Scope),
    responses((status = 200, description = "The service after the change", body = ServiceChanged))
)]
async fn resume_rollout(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Path(name): Path<String>,
    Params(scope): Params<Scope>,
) -> Result<Json<ServiceChanged>, ApiError> {
    change(&api, &actor, &name, &scope, |service| ServiceRequest::ResumeRollout { service }).await
}

/// Promote the canaries of a rollout
///
/// The rollout then replaces the other replicas.
#[utoipa::path(post, path = "/api/v1/services/{name}/promote", tag = "services",
    params(("name" = String, Path, description = "Name or id"), Scope),
    responses((status = 200, description = "The service after the change", body = ServiceChanged))
)]
async fn promote_rollout(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Path(name): Path<String>,
    Params(scope): Params<Scope>,
) -> Result<Json<ServiceChanged>, ApiError> {
    change(&api, &actor, &name, &scope, |service| ServiceRequest::PromoteRollout { service }).await
}
