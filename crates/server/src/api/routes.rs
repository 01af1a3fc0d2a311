//! The table of routes: each with who may take it, and with every code that it may refuse with.
//!
//! A route is added by [`Routes::open`] or [`Routes::needs`] and in no other way, so one without an
//! entry for its rights does not compile. The gate in front of a handler is made from the entry.
//!
//! Of the servers of a store one decides. What changes something is handed on to it, and so are the
//! reads of what only it knows ([`Place::Leader`]); everything else any server answers by itself.

use std::time::Duration;

use axum::body::HttpBody as _;
use axum::extract::{Request, State};
use axum::http::header::AUTHORIZATION;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use model::limits::BATCH_BODY_BYTES_MAX;
use utoipa::openapi::security::SecurityRequirement;
use utoipa::openapi::{HttpMethod, PathItem, path::Operation};
use utoipa_axum::router::{OpenApiRouter, UtoipaMethodRouter, UtoipaMethodRouterExt};

use super::extract::read_body_counted;
use super::limits::{Caller, Limits, Places};
use super::openapi;
use super::problem::{Code, Trouble};
use super::{Api, docs, forward, session};
use crate::auth::{Actor, Resource, Verb, authorize};

/// How long a body may take before it needs a place among slow bodies. So slow bodies of a client do not hold up its
/// fast ones.
const BODY_GRACE: Duration = Duration::from_millis(500);

/// Who may take a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    /// Anyone: health for probes, pages for people who have no token yet.
    Open,
    /// Whoever has this right.
    Needs(Verb, Resource),
}

/// Which server answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// The one that was asked.
    Here,
    /// The one that was asked, unless something is changed.
    ByMethod,
    /// The one that decides.
    Leader,
}

/// How a route takes the body of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BodyIs {
    /// Received as a whole before the request counts among those that are handled.
    Whole,
    /// Read by the handler as it comes.
    Streamed,
}

/// Among which requests those of a route count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LaneOf {
    /// Reads or changes.
    Method,
    /// Requests of metrics.
    Metrics,
}

/// One route.
pub(super) struct Route {
    place: Place,
    body: BodyIs,
    lane: LaneOf,
    pub(super) access: Access,
    pub(super) handler: UtoipaMethodRouter<Api>,
}

/// All routes.
#[derive(Default)]
pub(super) struct Routes {
    entries: Vec<Route>,
}

impl Routes {
    /// A route that anyone may take.
    pub(super) fn open(&mut self, refusals: &[Code], handler: UtoipaMethodRouter<Api>) {
        self.add(Access::Open, refusals, handler);
    }

    /// A route for those who may do `verb` to `resource`.
    pub(super) fn needs(
        &mut self,
        verb: Verb,
        resource: Resource,
        refusals: &[Code],
        handler: UtoipaMethodRouter<Api>,
    ) {
        self.add(Access::Needs(verb, resource), refusals, handler);
    }

    /// The route that was added last tells what only the server that decides knows.
    pub(super) fn of_leader(&mut self) {
        self.place_last(Place::Leader);
    }

    /// The route that was added last is every server's own business.
    pub(super) fn of_each_server(&mut self) {
        self.place_last(Place::Here);
    }

    /// The handler of the route that was added last reads the body as it comes.
    pub(super) fn streams_body(&mut self) {
        if let Some(route) = self.entries.last_mut() {
            route.body = BodyIs::Streamed;
        }
    }

    /// Requests of the route that was added last count apart from reads and changes.
    pub(super) fn counts_as_metrics(&mut self) {
        if let Some(route) = self.entries.last_mut() {
            route.lane = LaneOf::Metrics;
        }
    }

    fn place_last(&mut self, place: Place) {
        if let Some(route) = self.entries.last_mut() {
            route.place = place;
        }
    }

    fn add(&mut self, access: Access, refusals: &[Code], mut handler: UtoipaMethodRouter<Api>) {
        for (path, item) in &mut handler.1.paths {
            for (method, operation) in operations_mut(item) {
                let refusals = openapi::refusals(access, &method, path, operation, refusals);
                openapi::document_refusals(operation, &refusals);
                // An empty list says that a route needs no token; without one a reader cannot tell.
                let by_token = || SecurityRequirement::new::<_, _, String>(openapi::SCHEME, []);
                operation.security =
                    Some(matches!(access, Access::Needs(..)).then(by_token).into_iter().collect());
                openapi::document_conditions(&method, path, operation);
            }
        }
        let (place, body, lane) = (Place::ByMethod, BodyIs::Whole, LaneOf::Method);
        self.entries.push(Route { place, body, lane, access, handler });
    }

    /// The router, with a gate in front of every handler that needs one.
    pub(super) fn into_router(self, api: &Api) -> axum::Router<Api> {
        let router = self.entries.into_iter().fold(OpenApiRouter::default(), |router, route| {
            let handler = match route.access {
                Access::Open => route.handler,
                Access::Needs(verb, resource) => {
                    let Route { place, body, lane, .. } = route;
                    let gate = Gate { api: api.clone(), place, body, lane, verb, resource };
                    // Only in front of the methods that there are: another one is a 405 for anyone.
                    route.handler.map(|methods| methods.route_layer(from_fn_with_state(gate, pass)))
                }
            };
            router.routes(handler)
        });
        docs::assets(router.into())
    }

    /// The routes as an OpenAPI document, without its head.
    pub(super) fn into_openapi(self) -> utoipa::openapi::OpenApi {
        let router = OpenApiRouter::<Api>::default();
        self.entries.into_iter().fold(router, |router, route| router.routes(route.handler)).into_openapi()
    }

    /// Method, path and access of each route.
    #[cfg(test)]
    pub(super) fn entries(&self) -> impl Iterator<Item = (HttpMethod, String, Access)> {
        self.entries.iter().flat_map(|route| {
            let paths = route.handler.1.paths.clone();
            let access = route.access;
            paths.into_iter().flat_map(move |(path, mut item)| {
                let methods: Vec<_> = operations_mut(&mut item).map(|(method, _)| method).collect();
                methods.into_iter().map(move |method| (method, path.clone(), access))
            })
        })
    }
}

pub(super) fn operations_mut(item: &mut PathItem) -> impl Iterator<Item = (HttpMethod, &mut Operation)> {
    [
        (HttpMethod::Get, &mut item.get),
        (HttpMethod::Put, &mut item.put),
        (HttpMethod::Post, &mut item.post),
        (HttpMethod::Delete, &mut item.delete),
        (HttpMethod::Patch, &mut item.patch),
    ]
    .into_iter()
    .filter_map(|(method, operation)| Some((method, operation.as_mut()?)))
}

#[derive(Clone)]
struct Gate {
    api: Api,
    place: Place,
    body: BodyIs,
    lane: LaneOf,
    verb: Verb,
    resource: Resource,
}

/// Lets a request in whose bearer has the right; handlers find the [`Actor`] in its extensions.
async fn pass(State(gate): State<Gate>, mut request: Request, next: Next) -> Result<Response, Trouble> {
    let actor = bearer(&gate.api, &request)?;
    authorize(&actor, gate.verb, &gate.resource).inspect_err(|denied| {
        tracing::warn!(error = %denied, token_id = %actor.token_id, "refused a request");
    })?;
    let limits = &gate.api.shared.limits;
    let caller = Caller::of(&actor, &request, gate.api.config.exposure);
    let is_read = request.method().is_safe();
    let has_body = !is_read && !request.body().is_end_stream();
    let streams = has_body && gate.body == BodyIs::Streamed;
    let receiving = streams.then(|| limits.bodies.enter(&caller)).transpose()?;
    // The body is in memory until the request is answered.
    let mut memory = limits.body_bytes.places_of(&caller);
    if has_body && !streams {
        request = received(limits, &caller, &mut memory, request).await?;
    }
    let of_leader = match gate.place {
        Place::Here => false,
        Place::ByMethod => !is_read,
        Place::Leader => true,
    };
    if of_leader && let Some(leader) = forward::leader(&gate.api, &request) {
        let _place = receiving.map_or_else(|| limits.forwards.enter(&caller), Ok)?;
        return forward::to(&gate.api, &leader, request).await;
    }
    let lane = match gate.lane {
        LaneOf::Metrics => &limits.metrics,
        LaneOf::Method if is_read => &limits.reads,
        LaneOf::Method => &limits.changes,
    };
    let _place = receiving.map_or_else(|| lane.enter(&caller), Ok)?;
    request.extensions_mut().insert(actor);
    request.extensions_mut().insert(caller);
    Ok(next.run(request).await)
}

/// Waits for the body before the request counts among those that are handled: a slow body holds up nothing else.
async fn received(
    limits: &Limits,
    caller: &Caller,
    memory: &mut Places,
    request: Request,
) -> Result<Request, Trouble> {
    let (parts, body) = request.into_parts();
    let body = {
        let take = |bytes| memory.take(bytes);
        let reading = read_body_counted(&parts.headers, body, BATCH_BODY_BYTES_MAX, take);
        let mut reading = std::pin::pin!(reading);
        match tokio::time::timeout(BODY_GRACE, &mut reading).await {
            Ok(body) => body?,
            Err(_) => {
                let _place = limits.bodies.enter(caller)?;
                reading.await?
            }
        }
    };
    Ok(Request::from_parts(parts, body.into()))
}

fn bearer(api: &Api, request: &Request) -> Result<Actor, Trouble> {
    let Some(header) = request.headers().get(AUTHORIZATION) else {
        let actor = session::actor(api, request.method(), request.uri(), request.headers())?;
        return actor.ok_or_else(|| {
            Trouble::new(Code::Unauthenticated, "authentication required: no token was sent")
        });
    };
    let token = header.to_str().ok().and_then(|value| {
        let (scheme, token) = value.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
    });
    // Whether it was malformed, unknown or wrong is nobody's business.
    token
        .and_then(|token| api.tokens.verify(token))
        .ok_or_else(|| Trouble::new(Code::Unauthenticated, "the token is not valid"))
}
