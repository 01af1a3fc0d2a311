//! The table of routes: each with who may take it, and with every code that it may refuse with.
//!
//! A route is added by [`Routes::open`] or [`Routes::needs`] and in no other way, so one without an
//! entry for its rights does not compile. The gate in front of a handler is made from the entry.
//!
//! Of the servers of a store one decides. What changes something is handed on to it, and so are the
//! reads of what only it knows ([`Place::Leader`]); everything else any server answers by itself.

use axum::extract::{Request, State};
use axum::http::header::AUTHORIZATION;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use utoipa::openapi::security::SecurityRequirement;
use utoipa::openapi::{HttpMethod, PathItem, path::Operation};
use utoipa_axum::router::{OpenApiRouter, UtoipaMethodRouter, UtoipaMethodRouterExt};

use super::openapi;
use super::problem::{Code, Trouble};
use super::{Api, docs, forward, session};
use crate::auth::{Actor, Resource, Verb, authorize};

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

/// One route.
pub(super) struct Route {
    place: Place,
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
                if let Access::Needs(..) = access {
                    operation.security =
                        Some(vec![SecurityRequirement::new::<_, _, String>(openapi::SCHEME, [])]);
                }
            }
        }
        self.entries.push(Route { place: Place::ByMethod, access, handler });
    }

    /// The router, with a gate in front of every handler that needs one.
    pub(super) fn into_router(self, api: &Api) -> axum::Router<Api> {
        let router = self.entries.into_iter().fold(OpenApiRouter::default(), |router, route| {
            let handler = match route.access {
                Access::Open => route.handler,
                Access::Needs(verb, resource) => {
                    let gate = Gate { api: api.clone(), place: route.place, verb, resource };
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

fn operations_mut(item: &mut PathItem) -> impl Iterator<Item = (HttpMethod, &mut Operation)> {
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
    verb: Verb,
    resource: Resource,
}

/// Lets a request in whose bearer has the right; handlers find the [`Actor`] in its extensions.
async fn pass(State(gate): State<Gate>, mut request: Request, next: Next) -> Result<Response, Trouble> {
    let actor = bearer(&gate.api, &request)?;
    authorize(&actor, gate.verb, &gate.resource).inspect_err(|denied| {
        tracing::warn!(error = %denied, token_id = %actor.token_id, "refused a request");
    })?;
    let of_leader = match gate.place {
        Place::Here => false,
        Place::ByMethod => !request.method().is_safe(),
        Place::Leader => true,
    };
    if of_leader && let Some(leader) = forward::leader(&gate.api, &request) {
        return forward::to(&gate.api, &leader, request).await;
    }
    request.extensions_mut().insert(actor);
    Ok(next.run(request).await)
}

fn bearer(api: &Api, request: &Request) -> Result<Actor, Trouble> {
    let Some(header) = request.headers().get(AUTHORIZATION) else {
        let actor = session::actor(api, request.method(), request.uri(), request.headers())?;
        return actor
            .ok_or_else(|| Trouble::new(Code::Unauthenticated, "the request has no `Authorization`"));
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
