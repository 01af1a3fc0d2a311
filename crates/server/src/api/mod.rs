//! The REST API: jobs, executions, logs, events, workers, queues, artifacts, and a few pages.
//!
//! ```text
//! request ─> edge ─> route ─> gate ─> handler ─┬─> node (what changes)    ─┬─> JSON
//!                                              └─> store, objects (reads) ─┘
//! ```
//!
//! - `edge`: what every request passes: its id, the bounds, the `Host`, the form of refusals.
//! - `limits`: how many requests and streams are handled at a time, of all clients and of each.
//! - `routes`: the table of routes. Each stands there with who may take it and with every code
//!   that it may refuse with; the router, the OpenAPI document and the tests are made from it. `gate` lets a request
//!   through to its handler; `cookie`: the session of a browser.
//! - `jobs`, `executions`, `logs`, `events`, `workers`, `queues`, `artifacts`, `schedules`, `workflows`, `calendars`,
//!   `servers`, `session` and `meta` have the handlers: parse, validate, ask, answer. They decide nothing.
//! - `rows`: rows by the id or name in an address, or the 404; `requests`: requests to the engine, and the retry of a
//!   change that met a concurrent update; `definitions`: what bodies that define schedules and workflows share.
//! - `forward`: what another server answers, the one that decides.
//! - `problem`: refusals as RFC 9457 documents; `extract`, `headers`, `page`: how requests
//!   are read; `convert`: rows as what the API shows; `sse`: what streams share.
//! - `openapi`, `operations` and `docs`: the document, and pages for people made from it; `schemas`: JSON Schemas of
//!   definition files, for editors.
//!
//! # Always true
//! - No handler runs before its gate has let the bearer in: a route cannot be added without one.
//! - Whatever is refused, by whatever layer, is a problem document with a code of the table.
//! - Reads come from the store, so what was acknowledged is there at once.

mod artifacts;
mod calendars;
mod convert;
mod cookie;
mod definitions;
mod docs;
mod edge;
mod events;
mod executions;
mod extract;
mod forward;
mod gate;
mod headers;
mod jobs;
mod limits;
mod logs;
mod meta;
mod openapi;
mod operations;
mod page;
mod patch;
mod problem;
mod queues;
mod requests;
mod routes;
mod rows;
mod schedules;
mod schemas;
mod servers;
mod session;
mod sse;
mod submit;
#[cfg(test)]
mod tests;
mod workers;
mod workflows;

use std::sync::Arc;

use axum::Router;
use axum::http::HeaderValue;
use axum::middleware::from_fn_with_state;
use tower_http::CompressionLevel;
use tower_http::compression::CompressionLayer;
use tower_http::compression::predicate::{DefaultPredicate, NotForContentType, Predicate, SizeAbove};
use utoipa::openapi::OpenApi;

use self::edge::{Hosts, HttpMetrics};
use self::limits::Limits;
use self::page::Cursors;
use self::routes::Routes;
use crate::auth::Sessions;
use crate::hash::short_hash;
use crate::services::Services;

pub(crate) use forward::for_strangers;

/// The smallest answer that is worth compressing, in bytes.
const COMPRESSED_FROM: u64 = 1_024;

/// What handlers share; clones are cheap.
#[derive(Clone)]
struct Api {
    services: Services,
    shared: Arc<Shared>,
}

struct Shared {
    cursors: Cursors,
    sessions: Sessions,
    hosts: Hosts,
    limits: Limits,
    check: meta::StoreCheck,
    counted: HttpMetrics,
    forwards: forward::Forwards,
    /// The OpenAPI document and its tag.
    openapi_json: (bytes::Bytes, HeaderValue),
    pages: docs::Pages,
    schemas: Vec<(&'static str, bytes::Bytes)>,
}

impl std::ops::Deref for Api {
    type Target = Services;

    fn deref(&self) -> &Services {
        &self.services
    }
}

impl Api {
    fn new(services: Services) -> Self {
        let document = document();
        let json = serde_json::to_vec_pretty(&document).unwrap_or_default();
        let tag = format!("\"{:032x}\"", short_hash(&[&json]));
        let tag = HeaderValue::try_from(tag).expect("hex digits in quotes are a header value");
        let counted = HttpMetrics::default();
        let limits = Limits::new(&services.config.limits);
        services.metrics.register(|registry| {
            counted.register(registry);
            limits.register(registry);
        });
        let shared = Shared {
            cursors: Cursors::new(services.keys.cursors),
            sessions: Sessions::new(services.keys.sessions),
            hosts: Hosts::new(&services.config.host_names),
            limits,
            check: meta::StoreCheck::default(),
            counted,
            forwards: forward::Forwards::new(services.keys.forwards),
            openapi_json: (json.into(), tag),
            pages: docs::Pages::new(&document),
            schemas: schemas::all(&document),
        };
        Self { services, shared: Arc::new(shared) }
    }
}

/// The OpenAPI 3.1 document of the REST API.
pub fn document() -> OpenApi {
    openapi::document(table())
}

/// Every route of the REST API and the pages, over these services.
pub fn router(services: Services) -> Router {
    let api = Api::new(services);
    let router = docs::assets(table().into_router(&api));
    let router = router.fallback(edge::nothing_here).layer(from_fn_with_state(api.clone(), edge::edge));
    router.layer(compression()).with_state(api)
}

/// Compresses answers for clients that ask for it: neither streams, which must not be held back, nor files of users,
/// nor what the build has compressed already.
fn compression() -> CompressionLayer<impl Predicate> {
    let what = DefaultPredicate::new()
        .and(SizeAbove::new(COMPRESSED_FROM))
        .and(NotForContentType::const_new("application/octet-stream"));
    CompressionLayer::new().gzip(true).quality(CompressionLevel::Fastest).compress_when(what)
}

/// The table of all routes.
fn table() -> Routes {
    let mut routes = Routes::default();
    jobs::routes(&mut routes);
    executions::routes(&mut routes);
    logs::routes(&mut routes);
    events::routes(&mut routes);
    workers::routes(&mut routes);
    queues::routes(&mut routes);
    artifacts::routes(&mut routes);
    schedules::routes(&mut routes);
    workflows::routes(&mut routes);
    calendars::routes(&mut routes);
    servers::routes(&mut routes);
    meta::routes(&mut routes);
    session::routes(&mut routes);
    docs::routes(&mut routes);
    schemas::routes(&mut routes);
    routes
}
