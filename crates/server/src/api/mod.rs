//! The REST API: jobs, executions, logs, events, workers, queues, artifacts, and a few pages.
//!
//! ```text
//! request ─> edge ─> route ─> gate ─> handler ─┬─> node (what changes)    ─┬─> JSON
//!                                              └─> store, objects (reads) ─┘
//! ```
//!
//! - `edge`: what every request passes: its id, the bounds, the `Host`, the form of refusals.
//! - `routes`: the table of routes. Each stands there with who may take it and with every code
//!   that it may refuse with; the router, the OpenAPI document and the tests are made from it.
//! - `jobs`, `executions`, `logs`, `events`, `workers`, `queues`, `artifacts`, `schedules`, `workflows`, `calendars`,
//!   `servers`, `session` and `meta` have the handlers: parse, validate, ask, answer. They decide nothing.
//! - `definitions`: what bodies that define schedules and workflows share.
//! - `forward`: what another server answers, the one that decides.
//! - `problem`: refusals as RFC 9457 documents; `extract`, `headers`, `page`: how requests
//!   are read; `convert`: rows as what the API shows; `sse`: what streams share.
//! - `openapi` and `docs`: the document, and pages for people made from it; `schemas`: JSON Schemas of
//!   definition files, for editors.
//!
//! # Always true
//! - No handler runs before its gate has let the bearer in: a route cannot be added without one.
//! - Whatever is refused, by whatever layer, is a problem document with a code of the table.
//! - Reads come from the store, so what was acknowledged is there at once.

mod artifacts;
mod calendars;
mod convert;
mod definitions;
mod docs;
mod edge;
mod events;
mod executions;
mod extract;
mod forward;
mod headers;
mod jobs;
mod logs;
mod meta;
mod openapi;
mod page;
mod patch;
mod problem;
mod queues;
mod routes;
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
use axum::middleware::from_fn_with_state;
use tokio::sync::Semaphore;

use self::edge::{Hosts, HttpMetrics};
use self::page::Cursors;
use self::routes::Routes;
use crate::Services;
use crate::auth::Sessions;

pub(crate) use forward::for_strangers;
pub use openapi::document;
pub use problem::Code;

/// The most requests that are handled at a time; streams do not count.
const REQUESTS_MAX: usize = 2_048;
/// The most streams (events, followed logs) at a time.
const STREAMS_MAX: usize = 2_048;

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
    requests: Semaphore,
    streams: Arc<Semaphore>,
    counted: HttpMetrics,
    forwards: forward::Forwards,
    openapi_json: bytes::Bytes,
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
        let counted = HttpMetrics::default();
        services.metrics.register(|registry| counted.register(registry));
        let shared = Shared {
            cursors: Cursors::new(services.keys.cursors),
            sessions: Sessions::new(services.keys.sessions),
            hosts: Hosts::new(&services.config.host_names),
            requests: Semaphore::new(REQUESTS_MAX),
            streams: Arc::new(Semaphore::new(STREAMS_MAX)),
            counted,
            forwards: forward::Forwards::new(services.keys.forwards),
            openapi_json: serde_json::to_vec_pretty(&document).unwrap_or_default().into(),
            pages: docs::Pages::new(&document),
            schemas: schemas::all(&document),
        };
        Self { services, shared: Arc::new(shared) }
    }
}

/// Every route of the REST API and the pages, over these services.
pub fn router(services: Services) -> Router {
    let api = Api::new(services);
    let router = table().into_router(&api);
    router.fallback(edge::nothing_here).layer(from_fn_with_state(api.clone(), edge::edge)).with_state(api)
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
