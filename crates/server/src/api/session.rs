//! Logging a browser in with a token, and logging out: a token is sent once, and a cookie represents it afterwards.
//! `cookie` verifies such cookies, and `login` has logins with passwords.

use axum::extract::State;
use axum::http::header::{AUTHORIZATION, SET_COOKIE};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use model::Duration;
use model::api::Me;
use serde::Deserialize;
use utoipa::ToSchema;
use utoipa_axum::routes;

use super::access::{me, revoke};
use super::extract::MaybeBody;
use super::problem::{ApiError, Code};
use super::routes::Routes;
use super::{Api, cookie};
use crate::auth::Actor;
use crate::clock::{Clock, SystemClock};

/// Duration of a session that outlives the browser.
const KEPT_FOR: Duration = Duration::from_hours(24 * 30);
/// Longest duration of a session that ends with the browser: browsers delete its cookie, but the session stays valid.
const DAY: Duration = Duration::from_hours(24);

pub(super) fn routes(routes: &mut Routes) {
    let refusals = [Code::InvalidSpec, Code::UnsupportedMediaType];
    routes.needs_account(&refusals, routes!(open_session));
    routes.of_each_server();
    routes.needs_account(&[], routes!(close_session));
    routes.of_each_server();
}

/// How to log in.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
struct OpenSession {
    /// Whether the session outlives the browser: it lasts 30 days, otherwise at most one day [default: false]
    remember: bool,
}

/// Log in from a browser with a token
///
/// Send a token to get a session cookie for the dashboard of this server. The session ends after some time, or when the
/// token is revoked.
#[utoipa::path(post, path = "/api/v1/session", tag = "server",
    request_body(content((Option<OpenSession> = "application/json", example = json!({"remember": true})))),
    responses((status = 200, description = "The authenticated user", body = Me, headers(
        ("Set-Cookie" = String, description = "Session cookie"),
    )))
)]
async fn open_session(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    uri: Uri,
    headers: HeaderMap,
    MaybeBody(wanted): MaybeBody<OpenSession>,
) -> Result<Response, ApiError> {
    // A session cannot extend itself.
    if !headers.contains_key(AUTHORIZATION) {
        let detail = "cannot open a session: expected a token in `Authorization`, but got a session cookie";
        return Err(ApiError::new(Code::Unauthenticated, detail));
    }
    let lasts = if wanted.remember { KEPT_FOR } else { DAY };
    let value = api.shared.sessions.open(&actor.token_id, SystemClock.now() + lasts, None);
    let max_age = wanted.remember.then(|| lasts.as_millis() / 1_000);
    let cookie = cookie::new(&api, &uri, &headers, &value, max_age)?;
    Ok(([(SET_COOKIE, cookie)], Json(me(&api, &actor))).into_response())
}

/// Log out
///
/// Deletes the session cookie. The session of a login with a password is revoked; a token stays valid.
#[utoipa::path(delete, path = "/api/v1/session", tag = "server", responses((status = 204, description = "Logged out")))]
async fn close_session(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let is_session =
        api.access.read(|directory| directory.token(&actor.token_id).is_some_and(|it| it.session));
    if is_session {
        revoke(&api, &actor, &actor.token_id).await?;
    }
    let cookie = cookie::new(&api, &uri, &headers, "", Some(0))?;
    Ok((StatusCode::NO_CONTENT, [(SET_COOKIE, cookie)]).into_response())
}
