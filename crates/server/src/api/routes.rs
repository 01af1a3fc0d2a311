//! The table of routes, with the required right and all refusal codes of each route.
//!
//! A route can only be added with [`Routes::open`], [`Routes::needs_account`] or [`Routes::needs`], so a route without an access rule does not
//! compile. The entry determines the `gate` in front of the handler, and what `operations` adds to its description.

use axum::middleware::from_fn_with_state;
#[cfg(test)]
use utoipa::openapi::HttpMethod;
use utoipa_axum::router::{OpenApiRouter, UtoipaMethodRouter, UtoipaMethodRouterExt};

use super::gate::{self, Access, BodyMode, Gate, HandledBy, LaneChoice};
use super::problem::Code;
use super::recorder::{Recorded, RecordedRoute};
use super::{Api, operations};
use crate::auth::{Resource, Verb};

/// A route with its settings.
pub(super) struct Route {
    place: HandledBy,
    body: BodyMode,
    lane: LaneChoice,
    recorded: Recorded,
    pub(super) access: Access,
    pub(super) handler: UtoipaMethodRouter<Api>,
}

impl Route {
    /// Returns the name of the operation, such as `cancel_job`.
    fn action(&self) -> String {
        let mut paths = self.handler.1.paths.clone();
        let operation =
            paths.values_mut().flat_map(operations::each_mut).find_map(|(_, it)| it.operation_id.take());
        operation.unwrap_or_default()
    }
}

/// All routes.
#[derive(Default)]
pub(super) struct Routes {
    entries: Vec<Route>,
}

impl Routes {
    /// Adds a route without authentication.
    pub(super) fn open(&mut self, refusals: &[Code], handler: UtoipaMethodRouter<Api>) {
        self.add(Access::Open, refusals, handler);
    }

    /// Adds a route that requires the right to do `verb` to `resource`.
    pub(super) fn needs(
        &mut self,
        verb: Verb,
        resource: Resource,
        refusals: &[Code],
        handler: UtoipaMethodRouter<Api>,
    ) {
        self.add(Access::Needs(verb, resource), refusals, handler);
    }

    /// Adds a route that requires authentication, but no right. Workers may not use it.
    pub(super) fn needs_account(&mut self, refusals: &[Code], handler: UtoipaMethodRouter<Api>) {
        self.add(Access::Account, refusals, handler);
    }

    /// Lets the leader handle the last added route, because only it has the data.
    pub(super) fn of_leader(&mut self) {
        self.place_last(HandledBy::Leader);
    }

    /// Lets the receiving server handle the last added route, even for changes.
    pub(super) fn of_each_server(&mut self) {
        self.place_last(HandledBy::Here);
    }

    /// Lets the handler of the last added route read the body as it arrives.
    pub(super) fn streams_body(&mut self) {
        if let Some(route) = self.entries.last_mut() {
            route.body = BodyMode::Streamed;
        }
    }

    /// Counts requests of the last added route in the lane of metrics.
    pub(super) fn counts_as_metrics(&mut self) {
        if let Some(route) = self.entries.last_mut() {
            route.lane = LaneChoice::Metrics;
        }
    }

    /// Makes an entry of the audit log for requests of the last added route only if submissions are recorded.
    pub(super) fn is_submission(&mut self) {
        if let Some(route) = self.entries.last_mut() {
            route.recorded = Recorded::Submissions;
        }
    }

    fn place_last(&mut self, place: HandledBy) {
        if let Some(route) = self.entries.last_mut() {
            route.place = place;
        }
    }

    fn add(&mut self, access: Access, refusals: &[Code], mut handler: UtoipaMethodRouter<Api>) {
        for (path, item) in &mut handler.1.paths {
            for (method, operation) in operations::each_mut(item) {
                operations::document(access, &method, path, operation, refusals);
            }
        }
        let (place, body, lane) = (HandledBy::ByMethod, BodyMode::Whole, LaneChoice::Method);
        self.entries.push(Route { place, body, lane, recorded: Recorded::Changes, access, handler });
    }

    /// Returns the router, with a gate in front of every handler that requires a right.
    pub(super) fn into_router(self, api: &Api) -> axum::Router<Api> {
        let router = self.entries.into_iter().fold(OpenApiRouter::default(), |router, route| {
            let handler = match route.access {
                Access::Open => route.handler,
                Access::Account | Access::Needs(..) => {
                    let recorded = RecordedRoute { which: route.recorded, action: route.action().into() };
                    let Route { place, body, lane, access, .. } = route;
                    let right = match access {
                        Access::Needs(verb, resource) => Some((verb, resource)),
                        _ => None,
                    };
                    let gate = Gate { api: api.clone(), place, body, lane, right, recorded };
                    // Only in front of existing methods: any other method is a 405 for everyone.
                    route.handler.map(|methods| methods.route_layer(from_fn_with_state(gate, gate::pass)))
                }
            };
            router.routes(handler)
        });
        router.into()
    }

    /// Returns the routes as an OpenAPI document, without its metadata.
    pub(super) fn into_openapi(self) -> utoipa::openapi::OpenApi {
        let router = OpenApiRouter::<Api>::default();
        self.entries.into_iter().fold(router, |router, route| router.routes(route.handler)).into_openapi()
    }

    /// Returns method, path and access of each route.
    #[cfg(test)]
    pub(super) fn entries(&self) -> impl Iterator<Item = (HttpMethod, String, Access)> {
        self.entries.iter().flat_map(|route| {
            let paths = route.handler.1.paths.clone();
            let access = route.access;
            paths.into_iter().flat_map(move |(path, mut item)| {
                let methods: Vec<_> = operations::each_mut(&mut item).map(|(method, _)| method).collect();
                methods.into_iter().map(move |method| (method, path.clone(), access))
            })
        })
    }
}
