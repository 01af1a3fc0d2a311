//! Queues: configure, list, show, pause, resume, delete.
//!
//! A queue exists if it has settings, or if it has jobs. So lists merge the rows of the store with the leader's view,
//! which also has the lengths. A queue without settings has version 0 and the defaults.
//!
//! Changes are retried after a conflict with a concurrent update.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::ETAG;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use engine::output::QueueView;
use engine::{Input, Reply};
use model::api::{List, Queue};
use model::limits::{BODY_BYTES_MAX, NOTE_LEN_MAX};
use model::queue::QueueSettings;
use model::record::QueueRecord;
use model::spec::DEFAULT;
use model::validate;
use serde::Deserialize;
use utoipa::ToSchema;
use utoipa_axum::routes;

use super::extract::{MaybeBody, Params, Path, RawBody};
use super::headers::{Precondition, etag};
use super::problem::{ApiError, Code, excerpt};
use super::requests::{NotApplied, deleted, unexpected, until_applied};
use super::routes::Routes;
use super::{Api, convert, page};
use crate::auth::{Actor, Resource, Verb};

pub(super) fn routes(routes: &mut Routes) {
    let queues = Resource::Queues;
    routes.needs(Verb::Read, queues, &[Code::InvalidCursor], routes!(list_queues));
    routes.of_leader();
    routes.needs(Verb::Read, queues, &[Code::QueueNotFound], routes!(get_queue));
    routes.of_leader();
    let set_refusals =
        [Code::VersionMismatch, Code::InvalidHeader, Code::InvalidSpec, Code::UnsupportedMediaType];
    routes.needs(Verb::Change, queues, &set_refusals, routes!(set_queue));
    routes.needs(Verb::Delete, queues, &[Code::QueueNotFound, Code::QueueInUse], routes!(delete_queue));
    let pause_refusals = [Code::VersionMismatch, Code::InvalidSpec, Code::UnsupportedMediaType];
    routes.needs(Verb::Operate, queues, &pause_refusals, routes!(pause_queue));
    routes.needs(Verb::Operate, queues, &[Code::VersionMismatch, Code::InvalidSpec], routes!(resume_queue));
}

#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
struct ListQueuesParams {
    /// Maximum number of items on the page, from 1 to 1000 [default: 50]
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// `next_cursor` of the previous page.
    cursor: Option<String>,
}

/// List queues, by name
///
/// Returns the queues that have settings, the queues that have jobs, and `default`.
#[utoipa::path(get, path = "/api/v1/queues", tag = "queues", params(ListQueuesParams), responses(
    (status = 200, description = "One page", body = List<Queue>),
))]
async fn list_queues(
    State(api): State<Api>,
    Params(params): Params<ListQueuesParams>,
) -> Result<Json<List<Queue>>, ApiError> {
    let limit = page::limit(params.limit)?;
    let after = api.shared.cursors.read::<String>("queues", &(), params.cursor.as_deref())?;
    let (records, view) = (api.node.store().queues().await?, api.node.view());
    let mut queues: BTreeMap<&str, (Option<&QueueRecord>, Option<&QueueView>)> = BTreeMap::new();
    queues.entry(DEFAULT).or_default();
    records.iter().for_each(|record| queues.entry(&record.name).or_default().0 = Some(record));
    view.queues.iter().for_each(|view| queues.entry(&view.name).or_default().1 = Some(view));
    queues.retain(|name, (record, view)| {
        *name == DEFAULT || record.is_some() || view.is_some_and(was_never_set_up)
    });
    let mut rest = queues.iter().filter(|(name, _)| after.as_deref().is_none_or(|after| **name > after));
    let items: Vec<_> = rest
        .by_ref()
        .take(limit)
        .map(|(name, (record, view))| convert::queue(name, *record, *view))
        .collect();
    let last = items.last().filter(|_| rest.next().is_some());
    let next_cursor = last.map(|queue| api.shared.cursors.make("queues", &(), &queue.name));
    Ok(Json(List { items, next_cursor }))
}

/// Show a queue
#[utoipa::path(get, path = "/api/v1/queues/{name}", tag = "queues", params(("name" = String, Path)), responses(
    (status = 200, description = "The queue", body = Queue, headers(
        ("ETag" = String, description = "Version of the settings; `\"0\"` for default settings"),
    )),
))]
async fn get_queue(State(api): State<Api>, Path(name): Path<String>) -> Result<Response, ApiError> {
    let record = record(&api, &name).await?;
    let view = api.node.view();
    let seen = view.queues.iter().find(|queue| queue.name == name);
    let is_known = record.is_some() || seen.is_some_and(was_never_set_up) || name == DEFAULT;
    if !is_known {
        let name = excerpt(&name);
        return Err(ApiError::new(
            Code::QueueNotFound,
            format!("queue `{name}` does not exist: it was not created, and has no jobs"),
        ));
    }
    Ok(shown(convert::queue(&name, record.as_ref(), seen)))
}

/// Returns whether a queue was never configured. A view with a version but without a record dates from before the
/// deletion.
fn was_never_set_up(view: &QueueView) -> bool {
    view.version == 0
}

fn shown(queue: Queue) -> Response {
    ([(ETAG, etag(queue.version))], Json(queue)).into_response()
}

async fn record(api: &Api, name: &str) -> Result<Option<QueueRecord>, ApiError> {
    Ok(api.node.store().queues().await?.into_iter().find(|record| record.name == name))
}

/// Create or replace the settings of a queue
///
/// Replaces all settings. A setting that the body omits gets its default.
#[utoipa::path(put, path = "/api/v1/queues/{name}", tag = "queues",
    params(
        ("name" = String, Path),
        ("If-Match" = Option<String>, Header, description = "Version that the change is based on; the request is refused if the resource has another version", example = "\"3\""),
        ("If-None-Match" = Option<String>, Header, description = "`*`: only if the queue has no settings yet"),
    ),
    request_body(content(
        (QueueSettings = "application/json", example = json!({"concurrency": 20, "rate_per_second": 5.0})),
        (QueueSettings = "application/yaml"),
    )),
    responses((status = 200, description = "The updated queue", body = Queue, headers(("ETag" = String, description = "Version of the resource"))))
)]
async fn set_queue(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Path(name): Path<String>,
    wanted: Precondition,
    body: RawBody<BODY_BYTES_MAX>,
) -> Result<Response, ApiError> {
    let settings: QueueSettings = body.format.parse(&body.bytes)?;
    validate::queue(&name, &settings).map_err(|invalid| ApiError::invalid(&invalid))?;
    let attempt = || async {
        let found = record(&api, &name).await?;
        let version = async { Ok(found.as_ref().map(|record| record.version)) };
        let expected = wanted.expected_of(format!("queue `{name}`"), version).await?;
        Ok((set(&api, &actor, name.clone(), settings.clone(), expected).await?, found))
    };
    let (record, before) = until_applied(format!("queue `{name}`"), attempt).await?;
    note(&actor, before.as_ref(), Some(&record));
    Ok(shown_now(&api, &record))
}

/// Adds the changed settings to the entry of the audit log.
fn note(actor: &Actor, old: Option<&QueueRecord>, new: Option<&QueueRecord>) {
    actor.note().changed("", old.map(|old| &old.settings), new.map(|new| &new.settings));
}

async fn set(
    api: &Api,
    actor: &Actor,
    name: String,
    settings: QueueSettings,
    expected_version: Option<u64>,
) -> Result<Arc<QueueRecord>, NotApplied> {
    let input = |ticket| Input::SetQueue { ticket, name, settings, expected_version };
    match api.node.request(input).await? {
        Reply::Queue(record) => {
            tracing::info!(queue = record.name, by = %actor.name, version = record.version, "queue created or changed");
            Ok(record)
        }
        other => Err(unexpected(&other).into()),
    }
}

/// Delete the settings of a queue
///
/// Refused while jobs wait or run in the queue. Jobs that are submitted to the queue later get the default settings.
#[utoipa::path(delete, path = "/api/v1/queues/{name}", tag = "queues", params(("name" = String, Path)), responses(
    (status = 204, description = "Deleted"),
))]
async fn delete_queue(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Path(name): Path<String>,
) -> Result<StatusCode, ApiError> {
    let before = record(&api, &name).await?;
    let reply = api.node.request(|ticket| Input::RemoveQueue { ticket, name: name.clone() }).await?;
    let status = deleted(&reply)?;
    note(&actor, before.as_ref(), None);
    tracing::info!(queue = name, by = %actor.name, "queue deleted");
    Ok(status)
}

fn shown_now(api: &Api, record: &QueueRecord) -> Response {
    let view = api.node.view();
    let seen = view.queues.iter().find(|queue| queue.name == record.name);
    shown(convert::queue(&record.name, Some(record), seen))
}

/// Request to pause a queue. The body is optional.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct PauseQueue {
    /// Reason for the pause. `belfry why` shows it.
    #[serde(default)]
    note: Option<String>,
}

/// Pause a queue
///
/// No job of the queue starts; running jobs continue.
#[utoipa::path(post, path = "/api/v1/queues/{name}/pause", tag = "queues", params(("name" = String, Path)),
    request_body(content = Option<PauseQueue>, description = "Optional"),
    responses((status = 200, description = "The updated queue", body = Queue, headers(("ETag" = String, description = "Version of the resource"))))
)]
async fn pause_queue(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Path(name): Path<String>,
    MaybeBody(body): MaybeBody<PauseQueue>,
) -> Result<Response, ApiError> {
    let length = body.note.as_ref().map_or(0, String::len);
    if length > NOTE_LEN_MAX {
        let wrong = format!("has {length} bytes: expected at most {NOTE_LEN_MAX}");
        return Err(ApiError::invalid_fields(vec![super::problem::field_error("note", &wrong)]));
    }
    change(&api, &actor, &name, |settings| {
        settings.paused = true;
        settings.note.clone_from(&body.note);
    })
    .await
}

/// Resume a paused queue
#[utoipa::path(post, path = "/api/v1/queues/{name}/resume", tag = "queues", params(("name" = String, Path)),
    responses((status = 200, description = "The updated queue", body = Queue, headers(("ETag" = String, description = "Version of the resource"))))
)]
async fn resume_queue(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Path(name): Path<String>,
) -> Result<Response, ApiError> {
    change(&api, &actor, &name, |settings| {
        settings.paused = false;
        settings.note = None;
    })
    .await
}

/// Changes some settings and keeps the others, even with concurrent changes.
async fn change(
    api: &Api,
    actor: &Actor,
    name: &str,
    change: impl Fn(&mut QueueSettings),
) -> Result<Response, ApiError> {
    let attempt = || async {
        let found = record(api, name).await?;
        let (mut settings, version) =
            found.clone().map(|record| (record.settings, record.version)).unwrap_or_default();
        change(&mut settings);
        validate::queue(name, &settings).map_err(|invalid| ApiError::invalid(&invalid))?;
        Ok((set(api, actor, name.to_owned(), settings, Some(version)).await?, found))
    };
    let (record, before) = until_applied(format!("queue `{name}`"), attempt).await?;
    note(actor, before.as_ref(), Some(&record));
    Ok(shown_now(api, &record))
}
