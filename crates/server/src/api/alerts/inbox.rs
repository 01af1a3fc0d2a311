//! Alerts: list, show, acknowledge, resolve; and notifications.

use alerts::{AlertFilter, NotificationFilter};
use axum::extract::State;
use axum::{Extension, Json};
use model::alert::Severity;
use model::api::{Alert, AlertAct, AlertStatus, Alerts, NotificationStatus, Notifications};
use model::limits::{BODY_BYTES_MAX, NOTE_LEN_MAX};
use serde::Deserialize;
use utoipa_axum::routes;

use super::ListScope;
use crate::api::extract::{Many, Params, Path, RawBody};
use crate::api::problem::{ApiError, Code, excerpt, field_error};
use crate::api::routes::Routes;
use crate::api::rows::permit;
use crate::api::{Api, page};
use crate::auth::{Actor, Resource, Verb};

pub(super) fn routes(routes: &mut Routes) {
    let alerts = Resource::Alerts;
    routes.needs(Verb::Read, alerts, &[Code::Loading], routes!(list_alerts));
    routes.of_leader();
    routes.needs(Verb::Read, alerts, &[Code::Loading, Code::AlertNotFound], routes!(get_alert));
    routes.of_leader();
    let refusals = [
        Code::Loading,
        Code::AlertNotFound,
        Code::AlertResolved,
        Code::InvalidSpec,
        Code::UnsupportedMediaType,
        Code::AlertLasting,
    ];
    routes.needs(Verb::Operate, alerts, &refusals[..5], routes!(acknowledge_alert));
    routes.needs(Verb::Operate, alerts, &refusals, routes!(resolve_alert));
    routes.needs(Verb::Read, alerts, &[Code::Loading], routes!(list_notifications));
    routes.of_leader();
}

#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
struct ListAlertsParams {
    /// Only alerts of this namespace; `*` for all [default: all].
    namespace: Option<String>,
    /// Only alerts in one of these statuses, separated by commas [default: `firing,acknowledged`].
    #[param(value_type = Option<String>, example = "firing,resolved")]
    status: Many<AlertStatus>,
    /// Only alerts with one of these severities, separated by commas.
    #[param(value_type = Option<String>, example = "critical")]
    severity: Many<Severity>,
    /// Only alerts of this rule; `*` stands for any characters.
    rule: Option<String>,
    /// Only alerts about the object with this name; `*` stands for any characters.
    subject: Option<String>,
    /// Maximum number of alerts, from 1 to 1000 [default: 50]
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
}

/// List alerts: open ones first, each newest first
///
/// Resolved alerts are kept for 30 days.
#[utoipa::path(get, path = "/api/v1/alerts", tag = "alerts", params(ListAlertsParams), responses(
    (status = 200, description = "The alerts", body = Alerts),
))]
async fn list_alerts(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Params(params): Params<ListAlertsParams>,
) -> Result<Json<Alerts>, ApiError> {
    let limit = page::limit(params.limit)?;
    let selection = ListScope { namespace: params.namespace }.selection(&actor)?;
    let mut statuses: std::collections::BTreeSet<_> = params.status.0.into_iter().collect();
    if statuses.is_empty() {
        statuses.extend([AlertStatus::Firing, AlertStatus::Acknowledged]);
    }
    let severities = params.severity.0.into_iter().collect();
    let filter = AlertFilter { statuses, severities, rule: params.rule, subject: params.subject };
    let may_read = |namespace: &str| selection.contains(namespace);
    Ok(Json(api.alerts.read(|alerts, now| alerts.alerts(now, may_read, &filter, limit)).await?))
}

/// Show an alert
#[utoipa::path(get, path = "/api/v1/alerts/{id}", tag = "alerts", params(("id" = u64, Path)), responses(
    (status = 200, description = "The alert", body = Alert),
))]
async fn get_alert(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Path(id): Path<String>,
) -> Result<Json<Alert>, ApiError> {
    find(&api, &actor, &id).await.map(Json)
}

/// Returns the alert if the caller may do what the route does to it.
async fn find(api: &Api, actor: &Actor, id: &str) -> Result<Alert, ApiError> {
    let missing = || ApiError::new(Code::AlertNotFound, format!("alert `{}` does not exist", excerpt(id)));
    let number: u64 = id.parse().map_err(|_| missing())?;
    let alert = api.alerts.read(|alerts, now| alerts.alert(now, number)).await?.ok_or_else(missing)?;
    actor.note().namespace(&alert.namespace);
    permit(actor, &alert.namespace, missing)?;
    Ok(alert)
}

/// Acknowledge an alert
///
/// Notifications about the alert are no longer repeated; its resolution is still notified. A second acknowledgement
/// replaces the comment.
#[utoipa::path(post, path = "/api/v1/alerts/{id}/acknowledge", tag = "alerts", params(("id" = u64, Path)),
    request_body(content = AlertAct, example = json!({"comment": "The disk is being replaced"})),
    responses((status = 200, description = "The updated alert", body = Alert))
)]
async fn acknowledge_alert(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Path(id): Path<String>,
    body: RawBody<BODY_BYTES_MAX>,
) -> Result<Json<Alert>, ApiError> {
    act(&api, &actor, &id, &body, Act::Acknowledge).await
}

/// Resolve an alert
///
/// The next occurrence opens a new alert. Alerts are usually resolved on their own when their condition is no longer met.
/// Refused for conditions that last: they would open a new alert at once.
#[utoipa::path(post, path = "/api/v1/alerts/{id}/resolve", tag = "alerts", params(("id" = u64, Path)),
    request_body(content = AlertAct, example = json!({"comment": "The job was removed"})),
    responses((status = 200, description = "The updated alert", body = Alert))
)]
async fn resolve_alert(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Path(id): Path<String>,
    body: RawBody<BODY_BYTES_MAX>,
) -> Result<Json<Alert>, ApiError> {
    act(&api, &actor, &id, &body, Act::Resolve).await
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Act {
    Acknowledge,
    Resolve,
}

async fn act(
    api: &Api,
    actor: &Actor,
    id: &str,
    body: &RawBody<BODY_BYTES_MAX>,
    act: Act,
) -> Result<Json<Alert>, ApiError> {
    let alert = find(api, actor, id).await?;
    let AlertAct { comment } =
        if body.bytes.is_empty() { AlertAct::default() } else { body.format.parse(&body.bytes)? };
    let length = comment.as_ref().map_or(0, String::len);
    if length > NOTE_LEN_MAX {
        let wrong = format!("has {length} bytes: expected at most {NOTE_LEN_MAX}");
        return Err(ApiError::invalid_fields(vec![field_error("comment", &wrong)]));
    }
    let by = actor.name.to_string();
    let changed = api.alerts.change(|alerts, now| {
        match act {
            Act::Acknowledge => alerts.acknowledge(alert.id, &by, comment)?,
            Act::Resolve => alerts.resolve_by_user(now, alert.id, &by, comment)?,
        }
        Ok(alerts.alert(now, alert.id))
    });
    let changed = changed.await?.unwrap_or(alert);
    tracing::info!(alert = changed.id, status = %changed.status, by = %actor.name, "alert changed");
    Ok(Json(changed))
}

#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
struct ListNotificationsParams {
    /// Only notifications of this namespace; `*` for all [default: all].
    namespace: Option<String>,
    /// Only notifications in this status.
    #[param(inline)]
    status: Option<NotificationStatus>,
    /// Only notifications to this channel.
    channel: Option<String>,
    /// Only notifications of this rule.
    rule: Option<String>,
    /// Only notifications about the alert with this number.
    alert: Option<u64>,
    /// Maximum number of notifications, from 1 to 1000 [default: 50]
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
}

/// List notifications, newest first
///
/// A notification is kept for 7 days after it was delivered or failed.
#[utoipa::path(get, path = "/api/v1/notifications", tag = "alerts", params(ListNotificationsParams), responses(
    (status = 200, description = "The notifications", body = Notifications),
))]
async fn list_notifications(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Params(params): Params<ListNotificationsParams>,
) -> Result<Json<Notifications>, ApiError> {
    let limit = page::limit(params.limit)?;
    let ListNotificationsParams { namespace, status, channel, rule, alert, .. } = params;
    let selection = ListScope { namespace }.selection(&actor)?;
    let filter = NotificationFilter { status, channel, rule, alert };
    let may_read = |namespace: &str| selection.contains(namespace);
    Ok(Json(api.alerts.read(|alerts, _| alerts.notifications(may_read, &filter, limit)).await?))
}
