//! Lists and details of services, their revisions and replicas.

use axum::extract::State;
use axum::http::header::ETAG;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use model::ServiceId;
use model::api::{List, Replica, Service, ServiceRevision};
use serde::Deserialize;
use store::query::{Page, ServiceFilter};
use utoipa_axum::routes;

use super::convert;
use crate::api::extract::{Labels, Params, Path};
use crate::api::headers::etag;
use crate::api::page::Selection;
use crate::api::problem::{ApiError, Code};
use crate::api::routes::Routes;
use crate::api::rows::Scope;
use crate::api::{Api, page, rows};
use crate::auth::{Actor, Resource, Verb};

pub(super) fn routes(routes: &mut Routes) {
    let services = Resource::Services;
    routes.needs(Verb::Read, services, &[Code::InvalidCursor, Code::QueryTooSlow], routes!(list_services));
    routes.needs(Verb::Read, services, &[Code::ServiceNotFound], routes!(get_service));
    routes.needs(Verb::Read, services, &[Code::ServiceNotFound], routes!(list_replicas));
    routes.needs(Verb::Read, services, &[Code::ServiceNotFound], routes!(list_revisions));
}

#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
struct ListServicesParams {
    /// Namespace to list; `*` for all namespaces [default: *]
    namespace: Option<String>,
    /// Only services of this owner.
    owner: Option<String>,
    /// Only services whose name contains this text. Letter case is ignored.
    text: Option<String>,
    /// Only services with this label, as `KEY=VALUE`; repeat to require several labels.
    #[param(value_type = Option<Vec<String>>)]
    label: Labels,
    /// Whether to return the spec of each service [default: false]
    specs: bool,
    /// Maximum number of items on the page, from 1 to 1000 [default: 50]
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// `next_cursor` of the previous page.
    cursor: Option<String>,
}

/// List services, newest first
///
/// The list omits the specs, unless the request asks for them.
#[utoipa::path(get, path = "/api/v1/services", tag = "services", params(ListServicesParams), responses(
    (status = 200, description = "One page", body = List<Service>),
))]
async fn list_services(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Params(params): Params<ListServicesParams>,
) -> Result<Json<List<Service>>, ApiError> {
    let limit = page::limit(params.limit)?;
    let filter = ServiceFilter {
        namespace: page::namespace(params.namespace),
        owner: params.owner,
        labels: params.label.0,
        text: params.text,
    };
    let after = api.shared.cursors.read::<ServiceId>("services", &filter, params.cursor.as_deref())?;
    let (of, store) = (&filter, api.node.store());
    let query = |namespace| async move {
        let filter = ServiceFilter { namespace, ..of.clone() };
        store.services(&filter, Page { after, limit }).await
    };
    let selection = Selection::of(&actor, filter.namespace.as_deref())?;
    let page = selection.page(limit, query, |row| row.id).await?;
    let last = page.items.last().filter(|_| page.more);
    let next_cursor = last.map(|row| api.shared.cursors.make("services", &filter, &row.id.to_string()));
    let convert = if params.specs { convert::with_spec } else { convert::service };
    let items = page.items.iter().map(convert).collect();
    Ok(Json(List { items, next_cursor }))
}

/// Show a service with its spec
#[utoipa::path(get, path = "/api/v1/services/{name}", tag = "services",
    params(("name" = String, Path, description = "Name or id"), Scope),
    responses((status = 200, description = "The service", body = Service, headers(("ETag" = String, description = "Version of the resource"))))
)]
async fn get_service(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Path(name): Path<String>,
    Params(scope): Params<Scope>,
) -> Result<Response, ApiError> {
    let row = rows::service(&api, &actor, &name, scope.namespace()).await?;
    let service = convert::with_spec(&row);
    Ok(([(ETAG, etag(service.version))], Json(service)).into_response())
}

/// List the replicas of a service, by number
///
/// A replica is a job that has not ended. The jobs of earlier replicas are in the list of jobs, with the filter
/// `service`.
#[utoipa::path(get, path = "/api/v1/services/{name}/replicas", tag = "services",
    params(("name" = String, Path, description = "Name or id"), Scope),
    responses((status = 200, description = "All replicas", body = List<Replica>))
)]
async fn list_replicas(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Path(name): Path<String>,
    Params(scope): Params<Scope>,
) -> Result<Json<List<Replica>>, ApiError> {
    let row = rows::service(&api, &actor, &name, scope.namespace()).await?;
    let replicas = api.node.store().replicas(row.id).await?;
    let items = replicas.iter().map(convert::replica).collect();
    Ok(Json(List { items, next_cursor: None }))
}

/// List the revisions of a service, newest first
///
/// The newest 10 revisions are kept, and always the last one that was rolled out completely.
#[utoipa::path(get, path = "/api/v1/services/{name}/revisions", tag = "services",
    params(("name" = String, Path, description = "Name or id"), Scope),
    responses((status = 200, description = "All revisions that are kept", body = List<ServiceRevision>))
)]
async fn list_revisions(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Path(name): Path<String>,
    Params(scope): Params<Scope>,
) -> Result<Json<List<ServiceRevision>>, ApiError> {
    let row = rows::service(&api, &actor, &name, scope.namespace()).await?;
    let items: Result<Vec<_>, _> =
        row.head.revisions.iter().rev().map(|revision| convert::revision(revision)).collect();
    Ok(Json(List { items: items?, next_cursor: None }))
}
