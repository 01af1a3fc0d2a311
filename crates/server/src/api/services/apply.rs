//! Conversion of request bodies to services for the engine.
//!
//! A spec is completed with defaults, validated, and serialized once. Three routes: `put_service` for one service,
//! `apply_services` for several in one transaction, and `delete_service`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::{ETAG, LOCATION};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use engine::output::AppliedService as Applied;
use engine::{Expected, NewService, Reply, ServiceRequest};
use model::api::{AppliedService, AppliedServices, ApplyChange, ApplyServices, FieldError, Service};
use model::limits::{BATCH_BODY_BYTES_MAX, BATCH_SERVICES_MAX, SPEC_BYTES_MAX};
use model::validate::Problem;
use model::{ServiceId, ServiceSpec, Timestamp, validate};
use store::query::ServiceRow;
use timetable::{Timetable, Zones};
use utoipa_axum::routes;

use super::convert;
use crate::api::Api;
use crate::api::definitions::{AppliedDefinition, Batch, COMPARED_MAX, DryRun, PutParams, note_applied};
use crate::api::extract::{Params, Path, RawBody};
use crate::api::headers::{Precondition, etag};
use crate::api::problem::{ApiError, Code, field_error, fields_at};
use crate::api::requests::{self, unexpected, until_applied};
use crate::api::routes::Routes;
use crate::api::rows::{self, Scope};
use crate::api::secrets;
use crate::auth::{Actor, Resource, Verb};
use crate::clock::{Clock, SystemClock};
use crate::node::RequestError;

pub(super) fn routes(routes: &mut Routes) {
    let services = Resource::Services;
    let put_refusals = [
        Code::ServiceDeleting,
        Code::PriorityClassNotAllowed,
        Code::VersionMismatch,
        Code::InvalidHeader,
        Code::InvalidSpec,
        Code::UnsupportedMediaType,
    ];
    routes.needs(Verb::Change, services, &put_refusals, routes!(put_service));
    let apply_refusals =
        [Code::ServiceDeleting, Code::PriorityClassNotAllowed, Code::InvalidSpec, Code::UnsupportedMediaType];
    routes.needs(Verb::Change, services, &apply_refusals, routes!(apply_services));
    let delete_refusals =
        [Code::ServiceNotFound, Code::ServiceDeleting, Code::VersionMismatch, Code::InvalidHeader];
    routes.needs(Verb::Delete, services, &delete_refusals, routes!(delete_service));
}

/// A valid spec as it would be stored.
struct Head {
    spec: Arc<ServiceSpec>,
    body: Arc<str>,
}

impl Head {
    fn new_service(&self, expected: Expected) -> NewService {
        NewService { spec: Arc::clone(&self.spec), body: Arc::clone(&self.body), expected }
    }
}

/// Create or update a service
///
/// A change of `job`, `restart_backoff` or `priority_class` is a new revision, which replaces the replicas. Other changes
/// restart nothing. A service that already has this spec is not changed. The name in the body must equal the name in the
/// path.
#[utoipa::path(put, path = "/api/v1/services/{name}", tag = "services",
    params(
        ("name" = String, Path), PutParams,
        ("If-Match" = Option<String>, Header, description = "Version that the change is based on; the request is refused if the resource has another version", example = "\"3\""),
        ("If-None-Match" = Option<String>, Header, description = "`*`: only if no resource of this name exists"),
    ),
    request_body(content(
        (ServiceSpec = "application/json", example = json!({
            "name": "web",
            "replicas": 3,
            "job": {
                "run": {"process": {"script": "exec ./web --port \"$BELFRY_PORT_HTTP\""}},
                "ports": [{"name": "http"}],
                "health": {"readiness": {"http": {"port": "http", "path": "/healthz"}}},
            },
        })),
        (ServiceSpec = "application/yaml"),
    )),
    responses(
        (status = 201, description = "Created; never returned by a dry run", body = Service, headers(
            ("Location" = String, description = "The service"),
            ("ETag" = String, description = "Version of the resource"),
        )),
        (status = 200, description = "The updated service; in a dry run its spec", body = PutServiceAnswer, headers(
            ("ETag" = Option<String>, description = "Version of the resource"),
        )),
    )
)]
async fn put_service(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Path(name): Path<String>,
    Params(params): Params<PutParams>,
    wanted: Precondition,
    body: RawBody<BATCH_BODY_BYTES_MAX>,
) -> Result<Response, ApiError> {
    let mut spec: ServiceSpec = body.format.parse(&body.bytes)?;
    params.settle(&name, &spec.name, &mut spec.namespace)?;
    let heads = heads(vec![spec], &api.config.engine.zones, SystemClock.now(), Batch::One)?;
    permit(&actor, &heads)?;
    let Some(head) = heads.first() else { return Err(unexpected(&Reply::AppliedServices(Vec::new()))) };
    if params.dry_run {
        actor.note().is_read();
        return Ok(Json(ServiceSpec::clone(&head.spec)).into_response());
    }
    check_references(&api, &heads, Batch::One).await?;
    let object = format!("service `{}`", head.spec.name);
    let (applied, before) = until_applied(object.clone(), || async {
        let found = api.node.store().service_named(&head.spec.namespace, &head.spec.name).await?;
        let version = async { Ok(found.as_ref().map(|row| row.state.version)) };
        let expected = requests::expected(wanted.expected_of(object.clone(), version).await?);
        let applied = send(&api, &actor, vec![head.new_service(expected)]).await?;
        Ok((applied, found.map(|row| Arc::clone(&row.head.body))))
    })
    .await?;
    note(&actor, &heads, &applied, vec![before]);
    shown(&api, &actor, applied.first()).await
}

/// A service, or in a dry run its spec.
#[derive(utoipa::ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "the document's view of what is answered")]
enum PutServiceAnswer {
    Service(Box<Service>),
    Spec(Box<ServiceSpec>),
}

async fn shown(api: &Api, actor: &Actor, applied: Option<&Applied>) -> Result<Response, ApiError> {
    let applied = applied.ok_or_else(|| unexpected(&Reply::AppliedServices(Vec::new())))?;
    let row = rows::service(api, actor, &applied.service.to_string(), None).await?;
    let service = convert::with_spec(&row);
    let tag = [(ETAG, etag(service.version))];
    Ok(if applied.change == ApplyChange::Created {
        let location = [(LOCATION, format!("/api/v1/services/{}", service.id))];
        (StatusCode::CREATED, location, tag, Json(service)).into_response()
    } else {
        (StatusCode::OK, tag, Json(service)).into_response()
    })
}

/// Create or update several services
///
/// The request changes all services or none. Services that already have their spec are not changed.
#[utoipa::path(post, path = "/api/v1/services/apply", tag = "services", params(DryRun),
    request_body(content(
        (ApplyServices = "application/json", example = json!({"services": [{
            "name": "web", "replicas": 3, "job": {"run": {"process": {"command": ["./web"]}}},
        }]})),
        (ApplyServices = "application/yaml"),
    )),
    responses((status = 200, description = "Result for each item, in the order of the request", body = AppliedServices))
)]
async fn apply_services(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Params(params): Params<DryRun>,
    body: RawBody<BATCH_BODY_BYTES_MAX>,
) -> Result<Json<AppliedServices>, ApiError> {
    let ApplyServices { services } = body.format.parse(&body.bytes)?;
    let wrong = match services.len() {
        0 => Some("is empty: expected at least one service".to_owned()),
        count if count > BATCH_SERVICES_MAX => {
            Some(format!("has {count} entries: expected at most {BATCH_SERVICES_MAX}"))
        }
        _ => None,
    };
    if let Some(wrong) = wrong {
        return Err(ApiError::invalid_fields(vec![field_error("services", &wrong)]));
    }
    let heads = heads(services, &api.config.engine.zones, SystemClock.now(), Batch::Several("services"))?;
    permit(&actor, &heads)?;
    if params.dry_run {
        actor.note().is_read();
        return would_apply(&api, &heads).await.map(Json);
    }
    check_references(&api, &heads, Batch::Several("services")).await?;
    let mut before = Vec::new();
    for head in heads.iter().take(COMPARED_MAX) {
        let found = api.node.store().service_named(&head.spec.namespace, &head.spec.name).await?;
        before.push(found.map(|row| Arc::clone(&row.head.body)));
    }
    let new = heads.iter().map(|head| head.new_service(Expected::Any));
    let applied = send(&api, &actor, new.collect()).await?;
    note(&actor, &heads, &applied, before);
    let services = heads.iter().zip(&applied).map(|(head, applied)| {
        told(head, Some(applied.service), applied.change, applied.revision, applied.version)
    });
    Ok(Json(AppliedServices { services: services.collect() }))
}

fn told(
    head: &Head,
    id: Option<ServiceId>,
    change: ApplyChange,
    revision: u64,
    version: u64,
) -> AppliedService {
    let (name, namespace) = (head.spec.name.clone(), head.spec.namespace.clone());
    AppliedService { id, name, namespace, change, revision, version }
}

/// Adds the changed fields to the entry of the audit log.
fn note(actor: &Actor, heads: &[Head], applied: &[Applied], before: Vec<Option<Arc<str>>>) {
    let before = before.into_iter().chain(std::iter::repeat(None));
    let applied = heads.iter().zip(applied).zip(before).map(|((head, applied), old)| AppliedDefinition {
        name: &head.spec.name,
        change: applied.change,
        old,
        new: &head.body,
    });
    note_applied(actor, &applied.collect::<Vec<_>>());
}

/// Checks the right of the caller in the namespace of each service.
fn permit(actor: &Actor, heads: &[Head]) -> Result<(), ApiError> {
    for head in heads {
        actor.check(&head.spec.namespace)?;
    }
    Ok(())
}

async fn would_apply(api: &Api, heads: &[Head]) -> Result<AppliedServices, ApiError> {
    let mut services = Vec::with_capacity(heads.len());
    for head in heads {
        let found = api.node.store().service_named(&head.spec.namespace, &head.spec.name).await?;
        services.push(match &found {
            None => told(head, None, ApplyChange::Created, 1, 1),
            Some(row) => would_change(head, row),
        });
    }
    Ok(AppliedServices { services })
}

fn would_change(head: &Head, row: &ServiceRow) -> AppliedService {
    let replicas = head.spec.replicas.unwrap_or(row.state.replicas);
    let is_same = row.head.body == head.body && row.state.replicas == replicas;
    let change = if is_same { ApplyChange::Unchanged } else { ApplyChange::Changed };
    let is_new_template = !head.spec.has_template_of(&row.head.spec);
    let revision = row.state.rollout.revision + u64::from(is_new_template);
    told(head, Some(row.id), change, revision, row.state.version + u64::from(!is_same))
}

async fn send(api: &Api, actor: &Actor, services: Vec<NewService>) -> Result<Vec<Applied>, RequestError> {
    match requests::service(api, actor, ServiceRequest::Apply { services }).await? {
        Reply::AppliedServices(applied) => Ok(applied),
        other => {
            tracing::error!(reply = ?other, "unexpected reply of the engine");
            Err(RequestError::OutcomeUnknown)
        }
    }
}

/// Returns the specs as they would be stored.
///
/// # Errors
/// `invalid_spec` with every invalid field of all specs.
fn heads(
    specs: Vec<ServiceSpec>,
    zones: &Zones,
    now: Timestamp,
    batch: Batch,
) -> Result<Vec<Head>, ApiError> {
    let mut heads = Vec::with_capacity(specs.len());
    let mut wrong: BTreeMap<usize, Vec<FieldError>> = BTreeMap::new();
    let mut names = BTreeSet::new();
    for (i, mut spec) in specs.into_iter().enumerate() {
        spec.fill();
        let found = wrong.entry(i).or_default();
        if let Err(invalid) = validate::service(&spec, now) {
            found.extend(fields_at("", &invalid.problems));
        }
        found.extend(fields_at("", &scaling_problems(&spec, zones)));
        if !names.insert((spec.namespace.clone(), spec.name.clone())) {
            found.push(field_error("name", &format!("`{}` is given twice", spec.name)));
        }
        let body: Arc<str> = serde_json::to_string(&spec).unwrap_or_default().into();
        if body.len() > SPEC_BYTES_MAX {
            let detail = format!(
                "the service has {} bytes as JSON: expected at most {SPEC_BYTES_MAX}; put large data into an artifact",
                body.len()
            );
            found.push(field_error("", &detail));
        }
        heads.push(Head { spec: Arc::new(spec), body });
    }
    let all: Vec<_> = wrong.iter().flat_map(|(&i, errors)| batch.located(i, errors)).collect();
    if all.is_empty() { Ok(heads) } else { Err(ApiError::invalid_fields(all)) }
}

/// Refuses services whose secrets do not exist.
async fn check_references(api: &Api, heads: &[Head], batch: Batch) -> Result<(), ApiError> {
    let jobs =
        heads.iter().enumerate().map(|(i, head)| (format!("{}job.", batch.path(i)), head.spec.job.as_ref()));
    secrets::check_references(api, jobs).await
}

/// Returns the invalid cron expressions and time zones of the scaling of a service.
fn scaling_problems(spec: &ServiceSpec, zones: &Zones) -> Vec<Problem> {
    let schedules = spec.scaling.iter().flat_map(|scaling| scaling.schedules.iter().enumerate());
    let problems = schedules.flat_map(|(i, schedule)| {
        let wrong = Timetable::of_cron(&schedule.cron, &schedule.zone, zones).err().unwrap_or_default();
        wrong.into_iter().map(move |problem| {
            let path = format!("scaling.schedules[{i}].{}", problem.path);
            Problem { path, ..problem }
        })
    });
    problems.collect()
}

/// Delete a service
///
/// Stops all replicas with their grace periods, and then deletes the service. Its jobs are kept until their retention
/// ends.
#[utoipa::path(delete, path = "/api/v1/services/{name}", tag = "services",
    params(
        ("name" = String, Path, description = "Name or id"), Scope,
        ("If-Match" = Option<String>, Header, description = "Expected version; the request is refused if the resource has another version", example = "\"3\""),
    ),
    responses((status = 202, description = "The replicas are being stopped"))
)]
async fn delete_service(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Path(name): Path<String>,
    Params(scope): Params<Scope>,
    wanted: Precondition,
) -> Result<StatusCode, ApiError> {
    let row = rows::service(&api, &actor, &name, scope.namespace()).await?;
    let expected_version = wanted.expected(format!("service `{name}`"), row.state.version)?;
    let request = ServiceRequest::Delete { service: row.id, expected_version };
    requests::service(&api, &actor, request).await?;
    actor.note().changed_bodies("", Some(&row.head.body), None);
    tracing::info!(service_id = %row.id, by = %actor.name, "service deleted");
    Ok(StatusCode::ACCEPTED)
}
