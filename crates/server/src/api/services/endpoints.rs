//! Lists of the [endpoints](crate::endpoints) of services. `list_targets` has the form of Prometheus' HTTP service
//! discovery.

use std::collections::BTreeMap;

use axum::extract::State;
use axum::{Extension, Json};
use model::api::{DiscoveryTarget, Endpoint, List};
use serde::Deserialize;
use store::query::{Page, Paged, ReplicaRow, ServiceFilter};
use utoipa_axum::routes;

use crate::api::extract::{Params, Path};
use crate::api::page::Selection;
use crate::api::problem::{ApiError, Code};
use crate::api::routes::Routes;
use crate::api::rows::Scope;
use crate::api::{Api, page, rows};
use crate::auth::{Actor, Resource, Verb};
use crate::endpoints;

/// Maximum number of replicas in one response. A response is never incomplete: Prometheus would drop the other targets.
const REPLICAS_MAX: usize = 20_000;

pub(super) fn routes(routes: &mut Routes) {
    let services = Resource::Services;
    routes.needs(Verb::Read, services, &[Code::ServiceNotFound], routes!(list_endpoints));
    let codes = &[Code::QueryTooSlow, Code::TooManyEndpoints];
    routes.needs(Verb::Read, services, codes, routes!(list_targets));
}

/// List the endpoints of a service
///
/// Returns the ports of the healthy replicas, by number of the replica.
#[utoipa::path(get, path = "/api/v1/services/{name}/endpoints", tag = "services",
    params(("name" = String, Path, description = "Name or id"), Scope),
    responses((status = 200, description = "All endpoints", body = List<Endpoint>))
)]
async fn list_endpoints(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Path(name): Path<String>,
    Params(scope): Params<Scope>,
) -> Result<Json<List<Endpoint>>, ApiError> {
    let row = rows::service(&api, &actor, &name, scope.namespace()).await?;
    let replicas = api.node.store().replicas(row.id).await?;
    let addresses = endpoints::addresses(api.node.store(), &replicas).await?;
    let items = replicas.iter().flat_map(|row| endpoints::of_replica(row, &addresses)).collect();
    Ok(Json(List { items, next_cursor: None }))
}

#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
struct TargetsParams {
    /// Namespace to list; `*` for all namespaces [default: *]
    namespace: Option<String>,
    /// Only the service with this name.
    service: Option<String>,
    /// Only ports with this name.
    port: Option<String>,
}

/// List endpoints as targets for Prometheus
///
/// Returns the endpoints of all services in the form of Prometheus' HTTP service discovery (`http_sd_configs`). Endpoints
/// on workers without an address are left out.
#[utoipa::path(get, path = "/api/v1/services/targets", tag = "services", params(TargetsParams), responses(
    (status = 200, description = "All targets", body = Vec<DiscoveryTarget>),
))]
async fn list_targets(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Params(params): Params<TargetsParams>,
) -> Result<Json<Vec<DiscoveryTarget>>, ApiError> {
    let asked = page::namespace(params.namespace);
    let selection = Selection::of(&actor, asked.as_deref())?;
    let store = api.node.store();
    let labels = labels(&api, &selection, params.service.as_deref()).await?;
    let replicas = match &params.service {
        Some(_) => {
            let of_each = labels.keys().map(|service| store.replicas(*service));
            futures::future::try_join_all(of_each).await?.into_iter().flatten().collect()
        }
        None => {
            let namespaces: Option<Vec<String>> =
                selection.iter().map(|one| one.map(str::to_owned)).collect();
            complete(store.replicas_in(namespaces.as_deref(), REPLICAS_MAX).await?)?
        }
    };
    let addresses = endpoints::addresses(api.node.store(), &replicas).await?;
    let mut targets = Vec::new();
    for row in &replicas {
        for endpoint in endpoints::of_replica(row, &addresses) {
            let is_wanted = params.port.as_ref().is_none_or(|name| *name == endpoint.port_name);
            let Some(address) = endpoint.address.as_ref().filter(|_| is_wanted) else { continue };
            let own = labels.get(&row.replica.service).into_iter().flatten();
            let mut shown: BTreeMap<String, String> = own.cloned().collect();
            for (name, value) in [
                ("namespace", row.namespace.to_string()),
                ("service", row.replica.name.to_string()),
                ("port", endpoint.port_name.clone()),
                ("replica", endpoint.replica.to_string()),
                ("revision", endpoint.revision.to_string()),
            ] {
                shown.insert(format!("__meta_belfry_{name}"), value);
            }
            // An IPv6 address needs brackets before a port.
            let host = if address.contains(':') { format!("[{address}]") } else { address.clone() };
            targets
                .push(DiscoveryTarget { targets: vec![format!("{host}:{}", endpoint.port)], labels: shown });
        }
    }
    Ok(Json(targets))
}

/// Returns the replicas of a list that is not cut.
fn complete(list: Paged<ReplicaRow>) -> Result<Vec<ReplicaRow>, ApiError> {
    if list.more {
        let detail = format!("the selected services have more than {REPLICAS_MAX} replicas");
        return Err(ApiError::new(Code::TooManyEndpoints, detail));
    }
    Ok(list.items)
}

/// Returns the selected services with their labels in the form of Prometheus; with a name, only those with this name.
async fn labels(
    api: &Api,
    selection: &Selection,
    name: Option<&str>,
) -> Result<BTreeMap<model::ServiceId, Vec<(String, String)>>, ApiError> {
    let mut found = BTreeMap::new();
    for namespace in selection.iter() {
        let filter = ServiceFilter { namespace: namespace.map(str::to_owned), ..ServiceFilter::default() };
        let mut after = None;
        loop {
            let page = Page { after, limit: model::limits::PAGE_MAX };
            let page = api.node.store().services(&filter, page).await?;
            after = page.items.last().map(|row| row.id);
            for row in page.items.iter().filter(|row| name.is_none_or(|name| name == row.head.spec.name)) {
                let labels = row.head.spec.labels.iter();
                let labels = labels.map(|(key, value)| (label_name(key), value.clone()));
                found.insert(row.id, labels.collect());
            }
            if !page.more {
                break;
            }
        }
    }
    Ok(found)
}

/// Returns the name of a Prometheus label: letters of other scripts and punctuation become `_`.
fn label_name(key: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    format!("__meta_belfry_label_{}", key.chars().map(plain).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A list without some of the targets would look complete to Prometheus.
    #[test]
    fn a_list_of_targets_that_would_be_cut_is_refused() {
        let list = |more| complete(Paged { items: Vec::new(), more });
        assert!(list(false).is_ok());
        assert_eq!(list(true).unwrap_err().code(), Code::TooManyEndpoints);
    }
}
