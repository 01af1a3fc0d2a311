//! Namespaces: list, show, set the quota, delete the settings.
//!
//! A namespace exists if it has settings, or if it has jobs that have not ended. So lists merge the rows of the store with
//! the leader's view, which also has the usage. A namespace without settings has version 0 and no limits.
//!
//! A caller sees the namespaces in which it may read jobs. Settings belong to the cluster: an administrator of one
//! namespace cannot raise its quota.

use std::collections::BTreeMap;
use std::sync::Arc;

use access::Object;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::ETAG;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use engine::output::NamespaceView;
use engine::{Input, Reply};
use model::api::{List, Namespace};
use model::limits::BODY_BYTES_MAX;
use model::namespace::NamespaceSettings;
use model::record::NamespaceRecord;
use model::spec::DEFAULT;
use model::validate;
use serde::Deserialize;
use utoipa_axum::routes;

use super::extract::{Params, Path, RawBody};
use super::headers::{Precondition, etag};
use super::problem::{ApiError, Code, excerpt};
use super::requests::{NotApplied, deleted, unexpected, until_applied};
use super::routes::Routes;
use super::{Api, page};
use crate::auth::{Actor, Resource, Verb};

pub(super) fn routes(routes: &mut Routes) {
    let namespaces = Resource::Namespaces;
    routes.needs(Verb::Read, namespaces, &[Code::InvalidCursor], routes!(list_namespaces));
    routes.of_leader();
    routes.needs(Verb::Read, namespaces, &[Code::NamespaceNotFound], routes!(get_namespace));
    routes.of_leader();
    let set_refusals =
        [Code::VersionMismatch, Code::InvalidHeader, Code::InvalidSpec, Code::UnsupportedMediaType];
    routes.needs(Verb::Change, namespaces, &set_refusals, routes!(set_namespace));
    routes.needs(Verb::Delete, namespaces, &[Code::NamespaceNotFound], routes!(delete_namespace));
}

#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
struct ListNamespacesParams {
    /// Maximum number of items on the page, from 1 to 1000 [default: 50]
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// `next_cursor` of the previous page.
    cursor: Option<String>,
}

/// List namespaces, by name
///
/// Returns the namespaces that have settings, those that have jobs that have not ended, and `default`.
#[utoipa::path(get, path = "/api/v1/namespaces", tag = "namespaces", params(ListNamespacesParams), responses(
    (status = 200, description = "One page", body = List<Namespace>),
))]
async fn list_namespaces(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Params(params): Params<ListNamespacesParams>,
) -> Result<Json<List<Namespace>>, ApiError> {
    let limit = page::limit(params.limit)?;
    let after = api.shared.cursors.read::<String>("namespaces", &(), params.cursor.as_deref())?;
    let (records, view) = (api.node.store().namespaces().await?, api.node.view());
    let mut known: BTreeMap<&str, (Option<&NamespaceRecord>, Option<&NamespaceView>)> = BTreeMap::new();
    known.entry(DEFAULT).or_default();
    records.iter().for_each(|record| known.entry(&record.name).or_default().0 = Some(record));
    view.namespaces.iter().for_each(|view| known.entry(&view.name).or_default().1 = Some(view));
    known.retain(|name, (record, view)| {
        let exists = *name == DEFAULT || record.is_some() || view.is_some_and(has_jobs);
        let object = Object::in_namespace(Resource::Jobs, name);
        exists && actor.identity().decide(Verb::Read, object).is_ok()
    });
    let mut rest = known.iter().filter(|(name, _)| after.as_deref().is_none_or(|after| **name > after));
    let items: Vec<_> =
        rest.by_ref().take(limit).map(|(name, (record, view))| shown_as(name, *record, *view)).collect();
    let last = items.last().filter(|_| rest.next().is_some());
    let next_cursor = last.map(|namespace| api.shared.cursors.make("namespaces", &(), &namespace.name));
    Ok(Json(List { items, next_cursor }))
}

/// Show a namespace
#[utoipa::path(get, path = "/api/v1/namespaces/{name}", tag = "namespaces", params(("name" = String, Path)), responses(
    (status = 200, description = "The namespace", body = Namespace, headers(
        ("ETag" = String, description = "Version of the settings; `\"0\"` for default settings"),
    )),
))]
async fn get_namespace(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Path(name): Path<String>,
) -> Result<Response, ApiError> {
    actor.check_on(Resource::Jobs, &name)?;
    let record = record(&api, &name).await?;
    let view = api.node.view();
    let seen = view.namespaces.iter().find(|known| known.name == name);
    if record.is_none() && !seen.is_some_and(has_jobs) && name != DEFAULT {
        let name = excerpt(&name);
        let detail = format!("namespace `{name}` has no settings, and no jobs that have not ended");
        return Err(ApiError::new(Code::NamespaceNotFound, detail));
    }
    Ok(shown(shown_as(&name, record.as_ref(), seen)))
}

/// Returns whether a namespace has live jobs. A view without jobs dates from before the deletion of the settings.
fn has_jobs(view: &NamespaceView) -> bool {
    view.usage.jobs > 0
}

fn shown_as(name: &str, record: Option<&NamespaceRecord>, view: Option<&NamespaceView>) -> Namespace {
    Namespace {
        name: name.to_owned(),
        settings: record.map(|record| record.settings.clone()).unwrap_or_default(),
        version: record.map_or(0, |record| record.version),
        usage: view.map(|view| view.usage.clone()).unwrap_or_default(),
    }
}

fn shown(namespace: Namespace) -> Response {
    ([(ETAG, etag(namespace.version))], Json(namespace)).into_response()
}

async fn record(api: &Api, name: &str) -> Result<Option<NamespaceRecord>, ApiError> {
    Ok(api.node.store().namespaces().await?.into_iter().find(|record| record.name == name))
}

/// Create or replace the settings of a namespace
///
/// Replaces all settings. A setting that the body omits gets its default. A lower quota stops no running
/// job.
#[utoipa::path(put, path = "/api/v1/namespaces/{name}", tag = "namespaces",
    params(
        ("name" = String, Path),
        ("If-Match" = Option<String>, Header, description = "Version that the change is based on; the request is refused if the resource has another version", example = "\"3\""),
        ("If-None-Match" = Option<String>, Header, description = "`*`: only if the namespace has no settings yet"),
    ),
    request_body(content(
        (NamespaceSettings = "application/json", example = json!({"quota": {"cpu": "8", "memory": "16GiB", "running": 100}, "max_priority_class": "normal"})),
        (NamespaceSettings = "application/yaml"),
    )),
    responses((status = 200, description = "The updated namespace", body = Namespace, headers(("ETag" = String, description = "Version of the resource"))))
)]
async fn set_namespace(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Path(name): Path<String>,
    wanted: Precondition,
    body: RawBody<BODY_BYTES_MAX>,
) -> Result<Response, ApiError> {
    let settings: NamespaceSettings = body.format.parse(&body.bytes)?;
    validate::namespace(&name, &settings).map_err(|invalid| ApiError::invalid(&invalid))?;
    let object = format!("namespace `{name}`");
    let attempt = || async {
        let found = record(&api, &name).await?;
        let version = async { Ok(found.as_ref().map(|record| record.version)) };
        let expected = wanted.expected_of(object.clone(), version).await?;
        Ok((set(&api, &actor, name.clone(), settings.clone(), expected).await?, found))
    };
    let (record, before) = until_applied(object.clone(), attempt).await?;
    note(&actor, before.as_ref(), Some(&record));
    let view = api.node.view();
    let seen = view.namespaces.iter().find(|known| known.name == record.name);
    Ok(shown(shown_as(&record.name, Some(&record), seen)))
}

/// Adds the changed settings to the entry of the audit log.
fn note(actor: &Actor, old: Option<&NamespaceRecord>, new: Option<&NamespaceRecord>) {
    actor.note().changed("", old.map(|old| &old.settings), new.map(|new| &new.settings));
}

async fn set(
    api: &Api,
    actor: &Actor,
    name: String,
    settings: NamespaceSettings,
    expected_version: Option<u64>,
) -> Result<Arc<NamespaceRecord>, NotApplied> {
    let input = |ticket| Input::SetNamespace { ticket, name, settings, expected_version };
    match api.node.request(input).await? {
        Reply::Namespace(record) => {
            tracing::info!(namespace = record.name, by = %actor.name, version = record.version, "namespace changed");
            Ok(record)
        }
        other => Err(unexpected(&other).into()),
    }
}

/// Delete the settings of a namespace
///
/// The jobs of the namespace have no limits and its new processes no minimum sandbox then; nothing else of the namespace
/// changes.
#[utoipa::path(delete, path = "/api/v1/namespaces/{name}", tag = "namespaces", params(("name" = String, Path)), responses(
    (status = 204, description = "Deleted"),
))]
async fn delete_namespace(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Path(name): Path<String>,
) -> Result<StatusCode, ApiError> {
    let before = record(&api, &name).await?;
    let reply = api.node.request(|ticket| Input::RemoveNamespace { ticket, name: name.clone() }).await?;
    let status = deleted(&reply)?;
    note(&actor, before.as_ref(), None);
    tracing::info!(namespace = name, by = %actor.name, "settings of a namespace deleted");
    Ok(status)
}
