//! Silences: list, create, end.

use axum::extract::State;
use axum::http::StatusCode;
use axum::{Extension, Json};
use model::api::{NewSilence, Silence, Silences};
use model::limits::BODY_BYTES_MAX;
use model::validate;
use utoipa_axum::routes;

use super::{ListScope, cron_problems};
use crate::api::Api;
use crate::api::extract::{Params, Path, RawBody};
use crate::api::problem::{ApiError, Code, excerpt};
use crate::api::routes::Routes;
use crate::api::rows::permit;
use crate::auth::{Actor, Resource, Verb};
use crate::clock::{Clock as _, SystemClock};

pub(super) fn routes(routes: &mut Routes) {
    let alerts = Resource::Alerts;
    routes.needs(Verb::Read, alerts, &[Code::Loading], routes!(list_silences));
    routes.of_leader();
    let create = [Code::Loading, Code::AlertLimit, Code::InvalidSpec, Code::UnsupportedMediaType];
    routes.needs(Verb::Operate, alerts, &create, routes!(create_silence));
    routes.needs(Verb::Operate, alerts, &[Code::Loading, Code::SilenceNotFound], routes!(end_silence));
}

/// List current and future silences, by their end
#[utoipa::path(get, path = "/api/v1/silences", tag = "alerts", params(ListScope), responses(
    (status = 200, description = "All silences, on one page", body = Silences),
))]
async fn list_silences(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Params(scope): Params<ListScope>,
) -> Result<Json<Silences>, ApiError> {
    let selection = scope.selection(&actor)?;
    let may_read = |namespace: &str| selection.contains(namespace);
    let items = api.alerts.read(|alerts, now| alerts.silences(now, may_read)).await?;
    Ok(Json(Silences { items }))
}

/// Create a silence
///
/// Notifications of matching alerts are held back until the end of the silence. Then alerts that are still open are notified. A
/// silence with `recurrence` does so in each of its periods: quiet hours, or a maintenance window.
#[utoipa::path(post, path = "/api/v1/silences", tag = "alerts",
    request_body(content = NewSilence, example = json!({
        "subject": "payroll-*", "duration": "4h", "reason": "The database is being migrated",
    })),
    responses((status = 201, description = "The silence", body = Silence))
)]
async fn create_silence(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    body: RawBody<BODY_BYTES_MAX>,
) -> Result<(StatusCode, Json<Silence>), ApiError> {
    let new: NewSilence = body.format.parse(&body.bytes)?;
    actor.check(&new.namespace)?;
    validate::silence(&new, SystemClock.now()).map_err(|invalid| ApiError::invalid(&invalid))?;
    let wrong = new.recurrence.as_ref().map_or_else(Vec::new, |cron| cron_problems(cron, "recurrence"));
    if !wrong.is_empty() {
        return Err(ApiError::invalid_fields(wrong));
    }
    let by = actor.name.to_string();
    let silence = api.alerts.change(|alerts, now| alerts.silence(now, &by, new)).await?;
    actor.note().object(silence.id);
    actor.note().changed("", None, Some(&silence));
    tracing::info!(silence = silence.id, by = %actor.name, "silence created");
    Ok((StatusCode::CREATED, Json(silence)))
}

/// End a silence
#[utoipa::path(delete, path = "/api/v1/silences/{id}", tag = "alerts", params(("id" = u64, Path)), responses(
    (status = 204, description = "Ended"),
))]
async fn end_silence(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Path(id): Path<String>,
) -> Result<StatusCode, ApiError> {
    let missing =
        || ApiError::new(Code::SilenceNotFound, format!("silence `{}` does not exist", excerpt(&id)));
    let number: u64 = id.parse().map_err(|_| missing())?;
    let silence = api.alerts.read(|alerts, _| alerts.silence_numbered(number).cloned()).await?;
    let silence = silence.ok_or_else(missing)?;
    actor.note().namespace(&silence.namespace);
    permit(&actor, &silence.namespace, missing)?;
    api.alerts.change(|alerts, now| alerts.end_silence(now, number)).await?;
    actor.note().changed("", Some(&silence), None);
    tracing::info!(silence = number, by = %actor.name, "silence ended");
    Ok(StatusCode::NO_CONTENT)
}
