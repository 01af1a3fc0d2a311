//! The REST API: jobs, executions, logs, events, workers, queues, artifacts, schedules, workflows, and a few pages.
//!
//! ```text
//! request ─> edge ─> route ─> gate ─> handler ─┬─> node (changes)          ─┬─> JSON
//!                                              └─> store, objects (reads)  ─┘
//! ```
//!
//! - `edge`: the outermost layer of all requests: request id, limits, `Host`, problem documents.
//! - `limits`: limits on concurrent requests and streams, in total and for each client.
//! - `routes`: the table of routes. Each entry has the required right and all refusal codes of the route; the router,
//!   the OpenAPI document and the tests are made from it. `gate` authorizes a request and limits it; `cookie`: browser
//!   sessions.
//! - `jobs`, `executions`, `logs`, `events`, `workers`, `queues`, `artifacts`, `schedules`, `workflows`, `calendars`,
//!   `services`, `statistics`, `failures`, `alerts`, `secrets`, `servers`, `session`, `login`, `oidc`, `totp` and `meta` have the handlers: parse, validate, request, respond. They
//!   decide nothing.
//! - `rows`: rows by the id or name in a path, or the 404; `requests`: requests to the engine, and retries after a
//!   version conflict; `submit`: from a body to jobs; `definitions`: shared parts of schedule and workflow definitions.
//! - `recorder`: entries of the audit log for requests; `audit` searches and verifies it.
//! - `forward`: forwards requests to the leader. `tls_required`: refuses requests without TLS.
//! - `problem`: refusals as RFC 9457 documents; `extract`, `headers`, `page`, `patch`: parsing of requests; `convert`:
//!   rows as API types; `sse`: shared parts of event streams.
//! - `openapi`, `operations` and `docs`: the OpenAPI document, and pages for users made from it; `schemas`: JSON
//!   Schemas of definition files, for editors.
//!
//! # Invariants
//! - No handler runs before its gate has authorized the caller: a route cannot be added without one.
//! - Every refusal, of any layer, is a problem document with a code of the table.
//! - Reads come from the store, so they include everything that was acknowledged.

mod access;
mod alerts;
mod artifacts;
mod audit;
mod bulk;
mod calendars;
mod convert;
mod cookie;
mod definitions;
mod docs;
mod edge;
mod events;
mod executions;
mod extract;
mod failures;
mod forward;
mod gate;
mod headers;
mod jobs;
mod limits;
mod login;
mod logs;
mod meta;
mod namespaces;
mod oidc;
mod openapi;
mod operations;
mod page;
mod patch;
mod problem;
mod queues;
mod recorder;
mod requests;
mod routes;
mod rows;
mod schedules;
mod schemas;
mod second_factor;
mod secrets;
mod servers;
mod services;
mod session;
mod sse;
mod statistics;
mod submit;
#[cfg(test)]
mod tests;
mod tls_required;
mod totp;
mod upstream;
mod usage;
mod workers;
mod workflows;

use std::sync::Arc;

use axum::Router;
use axum::middleware::from_fn_with_state;
use tower_http::CompressionLevel;
use tower_http::compression::CompressionLayer;
use tower_http::compression::predicate::{DefaultPredicate, NotForContentType, Predicate, SizeAbove};
use utoipa::openapi::OpenApi;

use self::edge::{Hosts, HttpMetrics};
use self::limits::Limits;
use self::page::Cursors;
use self::routes::Routes;
use crate::auth::{Passwords, Sessions, Throttle};
use crate::cluster_metrics::ClusterMetrics;
use crate::services::Services;

pub(crate) use forward::unauthenticated_peers;
pub(crate) use meta::while_starting;
pub(crate) use tls_required::tls_required;

/// Smallest response that is compressed, in bytes.
const COMPRESSED_FROM: u64 = 1_024;

/// State of all handlers; clones are cheap.
#[derive(Clone)]
struct Api {
    services: Services,
    shared: Arc<Shared>,
}

struct Shared {
    cursors: Cursors,
    sessions: Sessions,
    passwords: Passwords,
    throttle: Throttle,
    oidc: Option<oidc::Logins>,
    hosts: Hosts,
    limits: Limits,
    check: meta::StoreCheck,
    counted: HttpMetrics,
    cluster_metrics: ClusterMetrics,
    forwards: forward::Forwards,
}

impl std::ops::Deref for Api {
    type Target = Services;

    fn deref(&self) -> &Services {
        &self.services
    }
}

impl Api {
    fn new(services: Services) -> Self {
        let counted = HttpMetrics::default();
        let limits = Limits::new(&services.config.limits);
        let cluster_metrics = ClusterMetrics::default();
        services.metrics.register(|registry| {
            counted.register(registry);
            limits.register(registry);
            cluster_metrics.register(&services, registry);
        });
        let shared = Shared {
            cursors: Cursors::new(services.keys.cursors),
            sessions: Sessions::new(services.keys.sessions),
            passwords: Passwords::default(),
            throttle: Throttle::default(),
            oidc: oidc::Logins::new(&services),
            hosts: Hosts::new(&services.config.host_names, services.tls.clone()),
            limits,
            check: meta::StoreCheck::default(),
            counted,
            cluster_metrics,
            forwards: forward::Forwards::new(services.keys.forwards),
        };
        Self { services, shared: Arc::new(shared) }
    }
}

/// Returns the OpenAPI 3.1 document of the REST API.
pub fn document() -> OpenApi {
    openapi::document(table())
}

/// Returns the router of the REST API and the pages.
pub fn router(services: Services) -> Router {
    let api = Api::new(services);
    let router = docs::assets(table().into_router(&api));
    let router = router.fallback(edge::no_route).layer(from_fn_with_state(api.clone(), edge::edge));
    router.layer(compression()).with_state(api)
}

/// Compresses responses for clients that accept it. Excludes streams, which must not be buffered, files of users, and
/// files that the build has compressed.
fn compression() -> CompressionLayer<impl Predicate> {
    let what = DefaultPredicate::new()
        .and(SizeAbove::new(COMPRESSED_FROM))
        .and(NotForContentType::const_new("application/octet-stream"));
    CompressionLayer::new().gzip(true).quality(CompressionLevel::Fastest).compress_when(what)
}

/// Returns the table of all routes.
fn table() -> Routes {
    let mut routes = Routes::default();
    jobs::routes(&mut routes);
    bulk::routes(&mut routes);
    executions::routes(&mut routes);
    usage::routes(&mut routes);
    logs::routes(&mut routes);
    events::routes(&mut routes);
    workers::routes(&mut routes);
    queues::routes(&mut routes);
    namespaces::routes(&mut routes);
    artifacts::routes(&mut routes);
    schedules::routes(&mut routes);
    statistics::routes(&mut routes);
    failures::routes(&mut routes);
    alerts::routes(&mut routes);
    secrets::routes(&mut routes);
    workflows::routes(&mut routes);
    services::routes(&mut routes);
    calendars::routes(&mut routes);
    access::routes(&mut routes);
    audit::routes(&mut routes);
    servers::routes(&mut routes);
    meta::routes(&mut routes);
    session::routes(&mut routes);
    login::routes(&mut routes);
    oidc::routes(&mut routes);
    totp::routes(&mut routes);
    docs::routes(&mut routes);
    schemas::routes(&mut routes);
    routes
}
