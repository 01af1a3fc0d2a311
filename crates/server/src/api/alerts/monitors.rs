//! Monitors: list, show, put, ping, delete.

use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::ETAG;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use model::alert::{MonitorSpec, MonitorTiming};
use model::api::{Monitor, Monitors, NewPing};
use model::limits::BODY_BYTES_MAX;
use model::validate;
use utoipa_axum::routes;

use super::{ListScope, PutScope, Scope, check_address, cron_problems, missing, pings};
use crate::alerts::PingedMonitor;
use crate::api::Api;
use crate::api::extract::{MaybeBody, Params, Path, RawBody};
use crate::api::headers::{Precondition, etag};
use crate::api::problem::{ApiError, Code};
use crate::api::routes::Routes;
use crate::api::rows::permit;
use crate::auth::{Actor, Resource, Verb};

pub(super) fn routes(routes: &mut Routes) {
    let alerts = Resource::Alerts;
    routes.needs(Verb::Read, alerts, &[Code::Loading], routes!(list_monitors));
    routes.of_leader();
    routes.needs(Verb::Read, alerts, &[Code::Loading, Code::MonitorNotFound], routes!(get_monitor));
    routes.of_leader();
    let put = [
        Code::Loading,
        Code::VersionMismatch,
        Code::AlertLimit,
        Code::InvalidHeader,
        Code::InvalidSpec,
        Code::UnsupportedMediaType,
    ];
    routes.needs(Verb::Change, alerts, &put, routes!(put_monitor));
    let ping = [Code::Loading, Code::MonitorNotFound, Code::InvalidSpec, Code::UnsupportedMediaType];
    routes.needs(Verb::Operate, alerts, &ping, routes!(ping_monitor));
    let delete = [Code::Loading, Code::MonitorNotFound, Code::VersionMismatch, Code::InvalidHeader];
    routes.needs(Verb::Delete, alerts, &delete, routes!(delete_monitor));
}

fn answer(monitor: Monitor) -> Response {
    ([(ETAG, etag(monitor.version))], Json(monitor)).into_response()
}

/// List monitors, by namespace and name
///
/// Without ping URLs, and with the newest ping of each monitor.
#[utoipa::path(get, path = "/api/v1/monitors", tag = "monitors", params(ListScope), responses(
    (status = 200, description = "All monitors, on one page", body = Monitors),
))]
async fn list_monitors(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Params(scope): Params<ListScope>,
) -> Result<Json<Monitors>, ApiError> {
    let selection = scope.selection(&actor)?;
    let may_read = |namespace: &str| selection.contains(namespace);
    let items = api.alerts.read(|alerts, now| alerts.monitors(now, may_read)).await?;
    Ok(Json(Monitors { items }))
}

/// Show a monitor
///
/// `ping_url` is a secret. Only callers who may ping the monitor get it (the right to operate alerts).
#[utoipa::path(get, path = "/api/v1/monitors/{name}", tag = "monitors", params(("name" = String, Path), Scope), responses(
    (status = 200, description = "The monitor", body = Monitor, headers(
        ("ETag" = String, description = "Version of the resource"),
    )),
))]
async fn get_monitor(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Path(name): Path<String>,
    Params(scope): Params<Scope>,
) -> Result<Response, ApiError> {
    let monitor = find(&api, &actor, &name, scope.namespace()).await?;
    with_url(&api, &actor, monitor).await.map(answer)
}

async fn find(api: &Api, actor: &Actor, name: &str, namespace: &str) -> Result<Monitor, ApiError> {
    let missing = || missing(Code::MonitorNotFound, "monitor", namespace, name);
    permit(actor, namespace, missing)?;
    api.alerts.read(|alerts, now| alerts.monitor_named(now, namespace, name)).await?.ok_or_else(missing)
}

/// Adds the ping URL, if the caller may ping the monitor.
async fn with_url(api: &Api, actor: &Actor, monitor: Monitor) -> Result<Monitor, ApiError> {
    let (namespace, name) = (&monitor.spec.namespace, &monitor.spec.name);
    if !actor.may_also(Verb::Operate, namespace) {
        return Ok(monitor);
    }
    let sealed = api.alerts.read(|alerts, _| alerts.sealed_token(namespace, name).map(str::to_owned)).await?;
    let token = sealed.and_then(|sealed| api.alerts.open_token(namespace, name, &sealed));
    let base = api.alerts.public_url.as_deref().unwrap_or_default().trim_end_matches('/');
    let ping_url = token.map(|token| format!("{base}{}", pings::path(&token)));
    Ok(Monitor { ping_url, ..monitor })
}

/// Create or replace a monitor
///
/// A new monitor gets a secret ping URL, which never changes: delete the monitor and create it again to get another one. If
/// `timing`, `grace`, `run_time_max` or `paused` change, pings are expected again from now on.
#[utoipa::path(put, path = "/api/v1/monitors/{name}", tag = "monitors",
    params(
        ("name" = String, Path), PutScope,
        ("If-Match" = Option<String>, Header, description = "Expected version; the request is refused if the resource has another version", example = "\"3\""),
        ("If-None-Match" = Option<String>, Header, description = "`*`: the request is refused if the resource exists", example = "*"),
    ),
    request_body(content(
        (MonitorSpec = "application/json", example = json!({
            "name": "backup", "timing": {"cron": {"expression": "30 2 * * *", "zone": "Europe/Berlin"}}, "grace": "1h",
        })),
        (MonitorSpec = "application/yaml"),
    )),
    responses((status = 200, description = "The updated monitor; in a dry run its spec", body = PutMonitorAnswer, headers(
        ("ETag" = Option<String>, description = "Version of the resource"),
    )))
)]
async fn put_monitor(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Path(name): Path<String>,
    Params(params): Params<PutScope>,
    wanted: Precondition,
    body: RawBody<BODY_BYTES_MAX>,
) -> Result<Response, ApiError> {
    let mut spec: MonitorSpec = body.format.parse(&body.bytes)?;
    check_address((&spec.name, &mut spec.namespace), &name, params.namespace)?;
    actor.check(&spec.namespace)?;
    validate::monitor(&spec).map_err(|invalid| ApiError::invalid(&invalid))?;
    let wrong = match &spec.timing {
        MonitorTiming::Every(_) => Vec::new(),
        MonitorTiming::Cron(cron) => cron_problems(cron, "timing.cron"),
    };
    if !wrong.is_empty() {
        return Err(ApiError::invalid_fields(wrong));
    }
    if params.dry_run {
        actor.note().is_read();
        return Ok(Json(spec).into_response());
    }
    let namespace = spec.namespace.clone();
    let before = api.alerts.read(|alerts, now| alerts.monitor_named(now, &namespace, &name)).await?;
    let version = async { Ok(before.as_ref().map(|monitor| monitor.version)) };
    let expected = wanted.expected_of(format!("monitor `{name}`"), version).await?;
    let token = api.alerts.seal_token(&namespace, &name, &pings::new_token());
    let (by, put) = (actor.name.to_string(), spec.clone());
    let monitor = api.alerts.change(|alerts, now| {
        alerts.check_monitor_version(&namespace, &name, expected)?;
        alerts.put_monitor(now, &by, put, token)?;
        Ok(alerts.monitor_named(now, &namespace, &name))
    });
    let monitor =
        monitor.await?.ok_or_else(|| missing(Code::MonitorNotFound, "monitor", &namespace, &name))?;
    actor.note().object(&name);
    actor.note().changed("", before.as_ref().map(|before| &before.spec), Some(&spec));
    tracing::info!(namespace, monitor = name, by = %actor.name, "monitor created or changed");
    with_url(&api, &actor, monitor).await.map(answer)
}

/// A monitor, or in a dry run its spec.
#[derive(utoipa::ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "the document's view of what is answered")]
enum PutMonitorAnswer {
    Monitor(Box<Monitor>),
    Spec(Box<MonitorSpec>),
}

/// Ping a monitor
///
/// As the ping URL of the monitor, for callers with a token. The response is sent when the ping is stored.
#[utoipa::path(post, path = "/api/v1/monitors/{name}/ping", tag = "monitors", params(("name" = String, Path), Scope),
    request_body(content = Option<NewPing>, example = json!({"exit_code": 3, "message": "disk full"})),
    responses((status = 204, description = "Recorded"))
)]
async fn ping_monitor(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Path(name): Path<String>,
    Params(scope): Params<Scope>,
    MaybeBody(ping): MaybeBody<NewPing>,
) -> Result<StatusCode, ApiError> {
    let namespace = scope.namespace();
    permit(&actor, namespace, || missing(Code::MonitorNotFound, "monitor", namespace, &name))?;
    // A job pings again and again, and changes no definition.
    actor.note().is_read();
    validate::ping(&ping).map_err(|invalid| ApiError::invalid(&invalid))?;
    api.alerts.ping(PingedMonitor::Named(namespace.to_owned(), name), ping).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Delete a monitor
///
/// Its open alerts are resolved, and its ping URL is no longer valid.
#[utoipa::path(delete, path = "/api/v1/monitors/{name}", tag = "monitors",
    params(
        ("name" = String, Path), Scope,
        ("If-Match" = Option<String>, Header, description = "Expected version; the request is refused if the resource has another version", example = "\"3\""),
    ),
    responses((status = 204, description = "Deleted"))
)]
async fn delete_monitor(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Path(name): Path<String>,
    Params(scope): Params<Scope>,
    wanted: Precondition,
) -> Result<StatusCode, ApiError> {
    let namespace = scope.namespace();
    let monitor = find(&api, &actor, &name, namespace).await?;
    let expected = wanted.expected(format!("monitor `{name}`"), monitor.version)?;
    let deleted = api.alerts.change(|alerts, now| {
        alerts.check_monitor_version(namespace, &name, expected)?;
        alerts.delete_monitor(now, namespace, &name)
    });
    deleted.await?;
    actor.note().changed("", Some(&monitor.spec), None);
    tracing::info!(namespace, monitor = name, by = %actor.name, "monitor deleted");
    Ok(StatusCode::NO_CONTENT)
}
