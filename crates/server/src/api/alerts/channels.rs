//! Channels: list, show, put, test, delete. Secrets go in, and never come out.

use alerts::message::{Item, Message};
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::ETAG;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use model::alert::{ChannelSpec, Severity, SubjectKind};
use model::api::{Channel, ChannelTest, Channels};
use model::limits::BODY_BYTES_MAX;
use model::validate;
use utoipa_axum::routes;

use super::{ListScope, PutScope, Scope, check_address, missing};
use crate::api::Api;
use crate::api::extract::{Params, Path, RawBody};
use crate::api::headers::{Precondition, etag};
use crate::api::problem::{ApiError, Code, field_error};
use crate::api::routes::Routes;
use crate::api::rows::permit;
use crate::auth::{Actor, Resource, Verb};
use crate::clock::{Clock as _, SystemClock};

pub(super) fn routes(routes: &mut Routes) {
    let alerts = Resource::Alerts;
    routes.needs(Verb::Read, alerts, &[Code::Loading], routes!(list_channels));
    routes.of_leader();
    routes.needs(Verb::Read, alerts, &[Code::Loading, Code::ChannelNotFound], routes!(get_channel));
    routes.of_leader();
    let put = [
        Code::Loading,
        Code::VersionMismatch,
        Code::AlertLimit,
        Code::InvalidHeader,
        Code::InvalidSpec,
        Code::UnsupportedMediaType,
    ];
    routes.needs(Verb::Change, alerts, &put, routes!(put_channel));
    routes.needs(Verb::Operate, alerts, &[Code::Loading, Code::ChannelNotFound], routes!(test_channel));
    let delete = [
        Code::Loading,
        Code::ChannelNotFound,
        Code::ChannelInUse,
        Code::VersionMismatch,
        Code::InvalidHeader,
    ];
    routes.needs(Verb::Delete, alerts, &delete, routes!(delete_channel));
}

fn answer(channel: Channel) -> Response {
    ([(ETAG, etag(channel.version))], Json(channel)).into_response()
}

/// List channels, by namespace and name
///
/// Secrets are shown as `******`.
#[utoipa::path(get, path = "/api/v1/channels", tag = "alerts", params(ListScope), responses(
    (status = 200, description = "All channels, on one page", body = Channels),
))]
async fn list_channels(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Params(scope): Params<ListScope>,
) -> Result<Json<Channels>, ApiError> {
    let selection = scope.selection(&actor)?;
    let items =
        api.alerts.read(|alerts, _| alerts.channels(|namespace| selection.contains(namespace))).await?;
    Ok(Json(Channels { items }))
}

/// Show a channel
///
/// Secrets are shown as `******`.
#[utoipa::path(get, path = "/api/v1/channels/{name}", tag = "alerts", params(("name" = String, Path), Scope), responses(
    (status = 200, description = "The channel", body = Channel, headers(
        ("ETag" = String, description = "Version of the resource"),
    )),
))]
async fn get_channel(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Path(name): Path<String>,
    Params(scope): Params<Scope>,
) -> Result<Response, ApiError> {
    find(&api, &actor, &name, scope.namespace()).await.map(answer)
}

async fn find(api: &Api, actor: &Actor, name: &str, namespace: &str) -> Result<Channel, ApiError> {
    let missing = || missing(Code::ChannelNotFound, "channel", namespace, name);
    permit(actor, namespace, missing)?;
    api.alerts.read(|alerts, _| alerts.channel_named(namespace, name)).await?.ok_or_else(missing)
}

/// Create or replace a channel
///
/// Secrets are stored encrypted. `******` in place of a secret keeps the stored one, unless the address of the service
/// changes. Notifications that wait for the channel are sent at once.
#[utoipa::path(put, path = "/api/v1/channels/{name}", tag = "alerts",
    params(
        ("name" = String, Path), PutScope,
        ("If-Match" = Option<String>, Header, description = "Expected version; the request is refused if the resource has another version", example = "\"3\""),
        ("If-None-Match" = Option<String>, Header, description = "`*`: the request is refused if the resource exists", example = "*"),
    ),
    request_body(content(
        (ChannelSpec = "application/json", example = json!({
            "name": "on-call",
            "to": {"webhook": {"url": "https://example.com/hook", "secret": "a-long-random-secret"}},
        })),
        (ChannelSpec = "application/yaml"),
    )),
    responses((status = 200, description = "The updated channel; in a dry run its spec", body = PutChannelAnswer, headers(
        ("ETag" = Option<String>, description = "Version of the resource"),
    )))
)]
async fn put_channel(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Path(name): Path<String>,
    Params(params): Params<PutScope>,
    wanted: Precondition,
    body: RawBody<BODY_BYTES_MAX>,
) -> Result<Response, ApiError> {
    let mut spec: ChannelSpec = body.format.parse(&body.bytes)?;
    check_address((&spec.name, &mut spec.namespace), &name, params.namespace)?;
    actor.check(&spec.namespace)?;
    validate::channel(&spec).map_err(|invalid| ApiError::invalid(&invalid))?;
    let namespace = spec.namespace.clone();
    let (before, sealed) = api
        .alerts
        .read(|alerts, _| {
            (
                alerts.channel_named(&namespace, &name),
                alerts.sealed_target(&namespace, &name).map(str::to_owned),
            )
        })
        .await?;
    // A stored target that cannot be decrypted any more has no secrets to keep.
    let stored = sealed.and_then(|sealed| api.alerts.open(&namespace, &name, &sealed).ok());
    let keeps = spec.to.secrets_mut().iter().any(|(_, secret)| secret.is_hidden());
    spec.to.keep_secrets(stored.as_ref()).map_err(|path| {
        let wrong = "`******` keeps the stored secret, but none is stored for this address: enter the secret";
        ApiError::invalid_fields(vec![field_error(&path, wrong)])
    })?;
    let target = spec.to.clone();
    spec.to.hide_secrets();
    if params.dry_run {
        actor.note().is_read();
        return Ok(Json(spec).into_response());
    }
    if let Some(before) =
        before.as_ref().filter(|before| before.spec == spec && stored.as_ref() == Some(&target))
    {
        actor.note().is_read();
        wanted.expected(format!("channel `{name}`"), before.version)?;
        return Ok(answer(before.clone()));
    }
    let version = async { Ok(before.as_ref().map(|channel| channel.version)) };
    let expected = wanted.expected_of(format!("channel `{name}`"), version).await?;
    // A kept secret must still be the stored one: another request may have replaced it.
    let expected = expected.or_else(|| before.as_ref().filter(|_| keeps).map(|before| before.version));
    let sealed = api.alerts.seal(&namespace, &name, &target);
    let (by, put) = (actor.name.to_string(), spec.clone());
    let channel = api.alerts.change(|alerts, now| {
        alerts.check_channel_version(&namespace, &name, expected)?;
        alerts.put_channel(now, &by, put, sealed)?;
        Ok(alerts.channel_named(&namespace, &name))
    });
    let channel =
        channel.await?.ok_or_else(|| missing(Code::ChannelNotFound, "channel", &namespace, &name))?;
    actor.note().object(&name);
    actor.note().changed("", before.as_ref().map(|before| &before.spec), Some(&spec));
    if before.is_some_and(|before| before.spec == spec) {
        // The specs have hidden secrets, so they show no difference.
        actor.note().changed("secrets", Some(&"stored"), Some(&"changed"));
    }
    tracing::info!(namespace, channel = name, by = %actor.name, "channel created or changed");
    Ok(answer(channel))
}

/// A channel, or in a dry run its spec.
#[derive(utoipa::ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "the document's view of what is answered")]
enum PutChannelAnswer {
    Channel(Box<Channel>),
    Spec(Box<ChannelSpec>),
}

/// Send a test notification
///
/// Waits for the answer of the service, at most 30 s.
#[utoipa::path(post, path = "/api/v1/channels/{name}/test", tag = "alerts", params(("name" = String, Path), Scope), responses(
    (status = 200, description = "Whether the service accepted it", body = ChannelTest),
))]
async fn test_channel(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Path(name): Path<String>,
    Params(scope): Params<Scope>,
) -> Result<Json<ChannelTest>, ApiError> {
    let namespace = scope.namespace();
    let channel = find(&api, &actor, &name, namespace).await?;
    let sealed =
        api.alerts.read(|alerts, _| alerts.sealed_target(namespace, &name).map(str::to_owned)).await?;
    let sealed = sealed.ok_or_else(|| missing(Code::ChannelNotFound, "channel", namespace, &name))?;
    let error = match api.alerts.open(namespace, &name, &sealed) {
        Ok(target) => api.alerts.test(&target, &test_message(&channel, &actor)).await?,
        Err(error) => Some(error),
    };
    tracing::info!(namespace, channel = name, by = %actor.name, error, "channel tested");
    Ok(Json(ChannelTest { delivered: error.is_none(), error }))
}

fn test_message(channel: &Channel, actor: &Actor) -> Message {
    let now = SystemClock.now();
    Message {
        // Unlike the numbers of notifications, so that no service takes the test for one that it knows.
        id: now.as_micros().unsigned_abs(),
        namespace: channel.spec.namespace.clone(),
        rule: "test".to_owned(),
        condition: "test".to_owned(),
        description: Some(format!("Test of the channel {} by {}", channel.spec.name, actor.name)),
        runbook: None,
        severity: Severity::Info,
        language: channel.spec.language,
        at: now,
        items: vec![Item {
            alert: 0,
            kind: SubjectKind::Job,
            subject: "example".to_owned(),
            resolved: false,
            count: 1,
            opened_at: now,
            last_at: now,
            resolved_at: None,
            summary: "This is a test".to_owned(),
            detail: None,
            log: None,
            job: None,
            run: None,
        }],
        total: 1,
        firing: 1,
        open: 1,
        escalated_after: None,
        is_test: true,
        dashboard: None,
    }
}

/// Delete a channel
///
/// Refused while a rule notifies it. Notifications that wait for it fail.
#[utoipa::path(delete, path = "/api/v1/channels/{name}", tag = "alerts",
    params(
        ("name" = String, Path), Scope,
        ("If-Match" = Option<String>, Header, description = "Expected version; the request is refused if the resource has another version", example = "\"3\""),
    ),
    responses((status = 204, description = "Deleted"))
)]
async fn delete_channel(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Path(name): Path<String>,
    Params(scope): Params<Scope>,
    wanted: Precondition,
) -> Result<StatusCode, ApiError> {
    let namespace = scope.namespace();
    let channel = find(&api, &actor, &name, namespace).await?;
    let expected = wanted.expected(format!("channel `{name}`"), channel.version)?;
    let deleted = api.alerts.change(|alerts, now| {
        alerts.check_channel_version(namespace, &name, expected)?;
        alerts.delete_channel(now, namespace, &name)
    });
    deleted.await?;
    actor.note().changed("", Some(&channel.spec), None);
    tracing::info!(namespace, channel = name, by = %actor.name, "channel deleted");
    Ok(StatusCode::NO_CONTENT)
}
