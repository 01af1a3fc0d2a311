//! Pings by ping URLs: the secret token in the URL is the right to ping one monitor, and to do nothing else.
//!
//! A job requests the URL with `curl`, often without looking at the response. So every method is accepted, and the body is
//! any text.
//!
//! # Invariants
//! - The token is in no log and in no response. The leader knows only its hash and its encrypted form.
//! - A ping takes a place in the lane of pings: pings delay no other request.

use std::str::FromStr;

use axum::extract::{FromRequestParts, Request, State};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use model::api::{NewPing, PingKind};
use model::limits::PING_BODY_BYTES_MAX;
use utoipa_axum::routes;

use alerts::Refusal;

use crate::alerts::service::hash_of_token;
use crate::alerts::{AlertError, PingedMonitor};
use crate::api::extract::{Path, Paths, read_body};
use crate::api::limits::Caller;
use crate::api::problem::{ApiError, Code};
use crate::api::routes::Routes;
use crate::api::{Api, forward};

/// Random bytes of a token.
const TOKEN_BYTES: usize = 16;

pub(super) fn routes(routes: &mut Routes) {
    let refusals = [
        Code::Loading,
        Code::MonitorNotFound,
        Code::Busy,
        Code::ClientLimit,
        Code::RequestTimeout,
        Code::BodyTooLarge,
        Code::MalformedBody,
        Code::OutcomeUnknown,
    ];
    routes.open(&refusals, routes!(ping_by_get, ping_by_post));
    routes.open(&refusals, routes!(signal_by_get, signal_by_post));
}

/// Returns a new random token.
pub(super) fn new_token() -> String {
    URL_SAFE_NO_PAD.encode(rand::random::<[u8; TOKEN_BYTES]>())
}

/// Returns the path of the ping URL with a token.
pub(super) fn path(token: &str) -> String {
    format!("/ping/{token}")
}

/// What the last part of a ping URL reports: `start`, `fail`, or an exit code.
struct Signal(NewPing);

impl FromStr for Signal {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let of = |kind| NewPing { kind: Some(kind), ..NewPing::default() };
        match (text, text.parse::<u8>()) {
            ("start", _) => Ok(Self(of(PingKind::Start))),
            ("fail", _) => Ok(Self(of(PingKind::Fail))),
            (_, Ok(exit_code)) => Ok(Self(NewPing { exit_code: Some(exit_code), ..NewPing::default() })),
            _ => Err("expected `start`, `fail` or an exit code from 0 to 255".to_owned()),
        }
    }
}

/// Report a success of a job to its monitor
///
/// The ping URL of a monitor. `HEAD` is the same.
#[utoipa::path(get, path = "/ping/{token}", tag = "monitors", params(("token" = String, Path, description = "Secret token of the monitor")),
    responses((status = 200, description = "Recorded", content_type = "text/plain", body = String, example = "OK"))
)]
async fn ping_by_get(State(api): State<Api>, request: Request) -> Result<Response, ApiError> {
    ping(&api, request).await
}

/// Report a success of a job to its monitor, with a text
///
/// The ping URL of a monitor. The last 500 characters of the body are stored.
#[utoipa::path(post, path = "/ping/{token}", tag = "monitors", params(("token" = String, Path, description = "Secret token of the monitor")),
    request_body(content = String, content_type = "text/plain", description = "Any text, at most 100,000 bytes"),
    responses((status = 200, description = "Recorded", content_type = "text/plain", body = String, example = "OK"))
)]
async fn ping_by_post(State(api): State<Api>, request: Request) -> Result<Response, ApiError> {
    ping(&api, request).await
}

/// Report a start, a failure or an exit code of a job to its monitor
///
/// The ping URL of a monitor with `/start`, `/fail` or an exit code from 0 to 255. `HEAD` is the same.
#[utoipa::path(get, path = "/ping/{token}/{signal}", tag = "monitors",
    params(
        ("token" = String, Path, description = "Secret token of the monitor"),
        ("signal" = String, Path, description = "`start`, `fail`, or an exit code from 0 to 255"),
    ),
    responses((status = 200, description = "Recorded", content_type = "text/plain", body = String, example = "OK"))
)]
async fn signal_by_get(State(api): State<Api>, request: Request) -> Result<Response, ApiError> {
    signal(&api, request).await
}

/// Report a start, a failure or an exit code of a job to its monitor, with a text
///
/// The ping URL of a monitor with `/start`, `/fail` or an exit code from 0 to 255. The last 500 characters of the body are
/// stored.
#[utoipa::path(post, path = "/ping/{token}/{signal}", tag = "monitors",
    params(
        ("token" = String, Path, description = "Secret token of the monitor"),
        ("signal" = String, Path, description = "`start`, `fail`, or an exit code from 0 to 255"),
    ),
    request_body(content = String, content_type = "text/plain", description = "Any text, at most 100,000 bytes"),
    responses((status = 200, description = "Recorded", content_type = "text/plain", body = String, example = "OK"))
)]
async fn signal_by_post(State(api): State<Api>, request: Request) -> Result<Response, ApiError> {
    signal(&api, request).await
}

async fn ping(api: &Api, request: Request) -> Result<Response, ApiError> {
    let (mut parts, body) = request.into_parts();
    let Path(token) = Path::<String>::from_request_parts(&mut parts, api).await?;
    record(api, &token, NewPing::default(), Request::from_parts(parts, body)).await
}

async fn signal(api: &Api, request: Request) -> Result<Response, ApiError> {
    let (mut parts, body) = request.into_parts();
    let Paths(token, Signal(ping)) = Paths::<String, Signal>::from_request_parts(&mut parts, api).await?;
    record(api, &token, ping, Request::from_parts(parts, body)).await
}

async fn record(api: &Api, token: &str, ping: NewPing, request: Request) -> Result<Response, ApiError> {
    let caller = Caller::without_token(&request, api.config.exposure);
    let _place = api.shared.limits.pings.enter(&caller)?;
    if let Some(leader) = forward::leader(api, &request) {
        return forward::to(api, &leader, request).await;
    }
    let (parts, body) = request.into_parts();
    let body = read_body(&parts.headers, body, PING_BODY_BYTES_MAX).await?;
    let message = (!body.is_empty()).then(|| String::from_utf8_lossy(&body).into_owned());
    let monitor = PingedMonitor::OfToken(hash_of_token(token));
    match api.alerts.ping(monitor, NewPing { message, ..ping }).await {
        Ok(()) => Ok("OK\n".into_response()),
        Err(AlertError::Refused(Refusal::NotFound { .. })) => {
            Err(ApiError::new(Code::MonitorNotFound, "no monitor has this ping URL"))
        }
        Err(error) => Err(error.into()),
    }
}
