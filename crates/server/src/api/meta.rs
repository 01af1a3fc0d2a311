//! The server itself: health, version and metrics.
//!
//! - `/livez` and `/healthz` do not use the store: a failure means that the process must be restarted.
//! - `/readyz` fails while this server does not accept requests; with `verbose` it also checks store, clock, objects, secret key and TLS certificate.
//! - `/metrics` has its own lane of requests, so that it responds under load.
//!
//! Health checks need no token, so they show no details of errors, and concurrent checks of the store are merged.

use std::time::Duration;

use axum::extract::State;
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderValue};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, Json, Router};
use serde::{Deserialize, Serialize};
use store::Store;
use tokio::time::Instant;
use utoipa::ToSchema;
use utoipa_axum::routes;

use super::Api;
use super::extract::Params;
use super::problem::{ApiError, Chain, Code};
use super::routes::Routes;
use crate::auth::{Actor, Resource, Verb};
use crate::clock::{Clock as _, SystemClock};
use crate::metrics::Exposition;
use crate::node::Readiness;

/// Longest wait for a check of the store.
const CHECK_TIMEOUT: Duration = Duration::from_secs(5);
/// Time for which the result of a check is reused.
const CHECK_LASTS: Duration = Duration::from_secs(1);

pub(super) fn routes(routes: &mut Routes) {
    routes.open(&[], routes!(get_health));
    routes.open(&[], routes!(get_liveness));
    routes.open(&[Code::Loading, Code::Stopping, Code::StoreUnavailable], routes!(get_readiness));
    routes.needs(Verb::Read, Resource::Server, &[], routes!(get_metrics));
    routes.counts_as_metrics();
    routes.needs_account(&[], routes!(get_version));
}

/// Liveness of the server process.
#[derive(Serialize, ToSchema)]
struct Alive {
    /// Always `ok`.
    status: &'static str,
}

/// Check that the process responds
#[utoipa::path(get, path = "/healthz", tag = "server", responses((status = 200, description = "The process responds", body = Alive)))]
async fn get_health() -> Json<Alive> {
    Json(Alive { status: "ok" })
}

/// Check that the process responds
///
/// Does not access the store. If this probe fails, restart the process.
#[utoipa::path(get, path = "/livez", tag = "server", responses((status = 200, description = "The process responds", body = Alive)))]
async fn get_liveness() -> Json<Alive> {
    Json(Alive { status: "ok" })
}

/// Returns the service of a server that cannot read its store yet, because its cluster has no leader.
pub(crate) fn while_starting() -> Router {
    let refuse = async || {
        let detail = "this server waits for its cluster: a majority of the servers must run";
        ApiError::new(Code::Loading, detail).into_document(None)
    };
    Router::new().route("/livez", get(get_liveness)).route("/healthz", get(get_health)).fallback(refuse)
}

#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
struct ReadinessParams {
    /// Whether to list each check [default: false]
    #[param(value_type = Option<String>)]
    verbose: Option<String>,
}

/// Whether the server takes requests.
#[derive(Serialize, ToSchema)]
struct Ready {
    /// `ready`, or `full` while the storage has no space for new work and everything else continues.
    status: &'static str,
    /// Each check, if asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    checks: Vec<Check>,
}

/// Result of a check of the server.
#[derive(Serialize, ToSchema)]
struct Check {
    /// Name of the check.
    name: &'static str,
    /// Whether the check passed.
    ok: bool,
    /// Problem that the check found. Absent if the check passed.
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
}

/// The last check of the store.
///
/// Health checks need no token, and each check writes to the store. So there is one check at a time, and its result is
/// reused for [`CHECK_LASTS`].
#[derive(Default)]
pub(super) struct StoreCheck(tokio::sync::Mutex<Option<(Instant, Option<String>)>>);

impl StoreCheck {
    /// Returns the problem of the store, or `None` if it works.
    async fn of(&self, store: &dyn Store) -> Option<String> {
        let mut last = self.0.lock().await;
        if let Some((at, wrong)) = &*last
            && at.elapsed() < CHECK_LASTS
        {
            return wrong.clone();
        }
        let wrong = match tokio::time::timeout(CHECK_TIMEOUT, store.check()).await {
            Ok(Ok(())) => None,
            // The caller may be unauthenticated, so the cause stays in the log.
            Ok(Err(error)) => {
                tracing::warn!(error = %Chain(&error), "store check failed");
                Some(error.to_string())
            }
            Err(_) => Some(format!("no answer within {}s", CHECK_TIMEOUT.as_secs())),
        };
        *last = Some((Instant::now(), wrong.clone()));
        wrong
    }
}

/// Check that the server accepts requests
#[utoipa::path(get, path = "/readyz", tag = "server", params(ReadinessParams), responses(
    (status = 200, description = "The server accepts requests", body = Ready),
))]
async fn get_readiness(
    State(api): State<Api>,
    Params(params): Params<ReadinessParams>,
) -> Result<Json<Ready>, ApiError> {
    let status = match api.node.ready() {
        Readiness::Ready => "ready",
        Readiness::Full => "full",
        Readiness::Loading { reason } => {
            return Err(ApiError::new(Code::Loading, format!("the server is not ready: {reason}")));
        }
        Readiness::Suspended => {
            let reason = "the leadership lease has ended: the store did not confirm it in time";
            return Err(ApiError::new(Code::Loading, format!("the server is not ready: {reason}")));
        }
        Readiness::Stopping => return Err(ApiError::new(Code::Stopping, "the server is shutting down")),
        Readiness::Failed { .. } => {
            return Err(ApiError::new(
                Code::Stopping,
                "the server failed and is shutting down; see its log for the cause",
            ));
        }
    };
    if params.verbose.is_none() {
        return Ok(Json(Ready { status, checks: Vec::new() }));
    }
    let wrong = api.shared.check.of(api.node.store().as_ref()).await;
    let engine = Check { name: "engine", ok: true, detail: None };
    let store = Check { name: "store", ok: wrong.is_none(), detail: wrong };
    let trouble = api.node.view().clock.trouble();
    let clock = Check { name: "clock", ok: trouble.is_none(), detail: trouble };
    let missing = api.objects.copies.as_ref().and_then(|copies| copies.trouble());
    let objects = Check { name: "objects", ok: missing.is_none(), detail: missing };
    let differs = api.secret_keys.trouble();
    let secret_key = Check { name: "secret_key", ok: differs.is_none(), detail: differs };
    let mut checks = vec![engine, store, clock, objects, secret_key];
    checks.extend(api.tls.as_ref().map(|tls| {
        let trouble = tls.trouble(SystemClock.now());
        Check { name: "tls", ok: trouble.is_none(), detail: trouble }
    }));
    Ok(Json(Ready { status, checks }))
}

/// Export metrics in the Prometheus format
#[utoipa::path(get, path = "/metrics", tag = "server", responses(
    (status = 200, description = "Prometheus text format, or OpenMetrics if `Accept` asks for it", content(
        (String = "text/plain"), (String = "application/openmetrics-text"),
    )),
))]
async fn get_metrics(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    // Metrics have the counts of all namespaces.
    if !actor.may_on_cluster(Verb::Read, Resource::Jobs) {
        let detail = format!("`{}` may not read metrics: they are of all namespaces", actor.name);
        return Err(ApiError::new(Code::Forbidden, detail));
    }
    let accept = headers.get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let form = Exposition::negotiated(accept);
    api.shared.cluster_metrics.set(&api.services);
    let text = api.metrics.encode(&api.node.view(), api.node.check_leading().is_ok(), form);
    Ok(([(CONTENT_TYPE, HeaderValue::from_static(form.content_type()))], text).into_response())
}

/// Version of the server.
#[derive(Serialize, ToSchema)]
struct Version {
    /// Always `belfry`.
    name: &'static str,
    /// Version of the server.
    version: &'static str,
}

/// Show the server's version
#[utoipa::path(get, path = "/api/v1/version", tag = "server", responses((status = 200, description = "The version", body = Version)))]
async fn get_version() -> Json<Version> {
    Json(Version { name: "belfry", version: env!("CARGO_PKG_VERSION") })
}
