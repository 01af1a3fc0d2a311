//! Alert rules: list, show, put, delete.

use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::ETAG;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use model::alert::{AlertRuleSpec, SubjectKind};
use model::api::{AlertRule, AlertRules};
use model::limits::BODY_BYTES_MAX;
use model::validate;
use utoipa_axum::routes;

use super::{ListScope, PutScope, Scope, check_address, missing};
use crate::api::Api;
use crate::api::extract::{Params, Path, RawBody};
use crate::api::headers::{Precondition, etag};
use crate::api::problem::{ApiError, Code};
use crate::api::routes::Routes;
use crate::api::rows::permit;
use crate::auth::{Actor, Resource, Verb};

pub(super) fn routes(routes: &mut Routes) {
    let alerts = Resource::Alerts;
    routes.needs(Verb::Read, alerts, &[Code::Loading], routes!(list_alert_rules));
    routes.of_leader();
    routes.needs(Verb::Read, alerts, &[Code::Loading, Code::AlertRuleNotFound], routes!(get_alert_rule));
    routes.of_leader();
    let put = [
        Code::Loading,
        Code::VersionMismatch,
        Code::AlertLimit,
        Code::InvalidHeader,
        Code::InvalidSpec,
        Code::UnsupportedMediaType,
    ];
    routes.needs(Verb::Change, alerts, &put, routes!(put_alert_rule));
    let delete = [Code::Loading, Code::AlertRuleNotFound, Code::VersionMismatch, Code::InvalidHeader];
    routes.needs(Verb::Delete, alerts, &delete, routes!(delete_alert_rule));
}

fn answer(rule: AlertRule) -> Response {
    ([(ETAG, etag(rule.version))], Json(rule)).into_response()
}

/// List alert rules, by namespace and name
#[utoipa::path(get, path = "/api/v1/alert-rules", tag = "alerts", params(ListScope), responses(
    (status = 200, description = "All rules, on one page", body = AlertRules),
))]
async fn list_alert_rules(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Params(scope): Params<ListScope>,
) -> Result<Json<AlertRules>, ApiError> {
    let selection = scope.selection(&actor)?;
    let items = api.alerts.read(|alerts, _| alerts.rules(|namespace| selection.contains(namespace))).await?;
    Ok(Json(AlertRules { items }))
}

/// Show an alert rule
#[utoipa::path(get, path = "/api/v1/alert-rules/{name}", tag = "alerts", params(("name" = String, Path), Scope), responses(
    (status = 200, description = "The rule", body = AlertRule, headers(
        ("ETag" = String, description = "Version of the resource"),
    )),
))]
async fn get_alert_rule(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Path(name): Path<String>,
    Params(scope): Params<Scope>,
) -> Result<Response, ApiError> {
    find(&api, &actor, &name, scope.namespace()).await.map(answer)
}

async fn find(api: &Api, actor: &Actor, name: &str, namespace: &str) -> Result<AlertRule, ApiError> {
    let missing = || missing(Code::AlertRuleNotFound, "alert rule", namespace, name);
    permit(actor, namespace, missing)?;
    api.alerts.read(|alerts, _| alerts.rule_named(namespace, name)).await?.ok_or_else(missing)
}

/// Create or replace an alert rule
///
/// The rule is effective at once. If its condition or its selection changes, its open alerts are resolved. A rule about
/// workers or queues needs the right in all namespaces.
#[utoipa::path(put, path = "/api/v1/alert-rules/{name}", tag = "alerts",
    params(
        ("name" = String, Path), PutScope,
        ("If-Match" = Option<String>, Header, description = "Expected version; the request is refused if the resource has another version", example = "\"3\""),
        ("If-None-Match" = Option<String>, Header, description = "`*`: the request is refused if the resource exists", example = "*"),
    ),
    request_body(content(
        (AlertRuleSpec = "application/json", example = json!({
            "name": "payroll-failed",
            "when": {"job_failed": {}},
            "match": {"name": "payroll-*"},
            "severity": "critical",
        })),
        (AlertRuleSpec = "application/yaml"),
    )),
    responses((status = 200, description = "The updated rule; in a dry run its spec", body = PutAlertRuleAnswer, headers(
        ("ETag" = Option<String>, description = "Version of the resource"),
    )))
)]
async fn put_alert_rule(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Path(name): Path<String>,
    Params(params): Params<PutScope>,
    wanted: Precondition,
    body: RawBody<BODY_BYTES_MAX>,
) -> Result<Response, ApiError> {
    let mut spec: AlertRuleSpec = body.format.parse(&body.bytes)?;
    check_address((&spec.name, &mut spec.namespace), &name, params.namespace)?;
    actor.check(&spec.namespace)?;
    if matches!(spec.when.subject(), SubjectKind::Worker | SubjectKind::Queue) {
        actor.check_cluster()?;
    }
    validate::alert_rule(&spec).map_err(|invalid| ApiError::invalid(&invalid))?;
    if params.dry_run {
        actor.note().is_read();
        return Ok(Json(spec).into_response());
    }
    let namespace = spec.namespace.clone();
    let before = api.alerts.read(|alerts, _| alerts.rule_named(&namespace, &name)).await?;
    let version = async { Ok(before.as_ref().map(|rule| rule.version)) };
    let expected = wanted.expected_of(format!("alert rule `{name}`"), version).await?;
    let (by, put) = (actor.name.to_string(), spec.clone());
    let rule = api.alerts.change(|alerts, now| {
        alerts.check_rule_version(&namespace, &name, expected)?;
        alerts.put_rule(now, &by, put)?;
        Ok(alerts.rule_named(&namespace, &name))
    });
    let rule =
        rule.await?.ok_or_else(|| missing(Code::AlertRuleNotFound, "alert rule", &namespace, &name))?;
    actor.note().object(&name);
    actor.note().changed("", before.as_ref().map(|before| &before.spec), Some(&spec));
    tracing::info!(namespace, alert_rule = name, by = %actor.name, "alert rule created or changed");
    Ok(answer(rule))
}

/// An alert rule, or in a dry run its spec.
#[derive(utoipa::ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "the document's view of what is answered")]
enum PutAlertRuleAnswer {
    AlertRule(Box<AlertRule>),
    Spec(Box<AlertRuleSpec>),
}

/// Delete an alert rule
///
/// Its open alerts are resolved.
#[utoipa::path(delete, path = "/api/v1/alert-rules/{name}", tag = "alerts",
    params(
        ("name" = String, Path), Scope,
        ("If-Match" = Option<String>, Header, description = "Expected version; the request is refused if the resource has another version", example = "\"3\""),
    ),
    responses((status = 204, description = "Deleted"))
)]
async fn delete_alert_rule(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Path(name): Path<String>,
    Params(scope): Params<Scope>,
    wanted: Precondition,
) -> Result<StatusCode, ApiError> {
    let namespace = scope.namespace();
    let rule = find(&api, &actor, &name, namespace).await?;
    let expected = wanted.expected(format!("alert rule `{name}`"), rule.version)?;
    let deleted = api.alerts.change(|alerts, now| {
        alerts.check_rule_version(namespace, &name, expected)?;
        alerts.delete_rule(now, namespace, &name)
    });
    deleted.await?;
    actor.note().changed("", Some(&rule.spec), None);
    tracing::info!(namespace, alert_rule = name, by = %actor.name, "alert rule deleted");
    Ok(StatusCode::NO_CONTENT)
}
