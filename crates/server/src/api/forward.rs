//! Requests that another server answers: the one that decides.
//!
//! A request goes on as it came, with its token or session and under the name that it was sent to, so
//! the other server lets in nobody whom it would not let in itself; this server adds no right of its own. It
//! is handed on once at most.
//!
//! # Cost
//! One request over a connection that is kept; bodies are passed on as they come, in both directions.

use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::http::header::{
    CONNECTION, CONTENT_LENGTH, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRAILER, TRANSFER_ENCODING,
    UPGRADE,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method};
use axum::response::Response;
use store::cluster::ServerRecord;

use super::Api;
use super::headers::{X_REQUEST_ID, request_id};
use super::problem::{Chain, Code, Trouble};
use crate::members::Leader;
use crate::node::Readiness;

/// Names the server that handed a request on.
const FORWARDED_BY: HeaderName = HeaderName::from_static("x-belfry-forwarded-by");
/// What belongs to a connection, and not to what is sent over it.
const OF_CONNECTION: [HeaderName; 8] = [
    CONNECTION,
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
    HeaderName::from_static("keep-alive"),
];
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// What requests are handed on with.
pub(super) fn client() -> reqwest::Client {
    // Whoever chose one before meant the same.
    let _chosen = rustls::crypto::ring::default_provider().install_default();
    let builder = reqwest::Client::builder()
        .connect_timeout(CONNECT_TIMEOUT)
        .redirect(reqwest::redirect::Policy::none())
        .http1_only()
        // Servers are reached as they say, whatever stands in the environment.
        .no_proxy();
    builder.build().unwrap_or_default()
}

/// The server that a request of these headers is to be handed on to; `None` if this one answers it, also
/// where nobody is known who could.
pub(super) fn leader(api: &Api, headers: &HeaderMap) -> Option<ServerRecord> {
    if matches!(api.node.ready(), Readiness::Ready | Readiness::Full) || headers.contains_key(FORWARDED_BY) {
        return None;
    }
    match api.members.leader() {
        Leader::Other { server, .. } => Some(server).filter(|server| server.url.is_some()),
        Leader::Me | Leader::Nobody => None,
    }
}

/// The other server's answer.
///
/// # Errors
/// `loading` if it cannot be reached, and `outcome_unknown` if it broke off over a change.
pub(super) async fn to(api: &Api, leader: &ServerRecord, request: Request) -> Result<Response, Trouble> {
    let (mut parts, body) = request.into_parts();
    let id = request_id(&parts.headers);
    without_connection(&mut parts.headers);
    // The body is framed anew where it is one that comes in pieces.
    let length = parts.headers.remove(CONTENT_LENGTH);
    for (name, value) in [(X_REQUEST_ID, id), (FORWARDED_BY, api.members.me().id.to_string())] {
        parts.headers.insert(name, HeaderValue::try_from(value).map_err(|error| Trouble::internal(&error))?);
    }
    let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
    let url = format!("{}{path}", leader.url.as_deref().unwrap_or_default());
    let mut sent = api.shared.forwards.request(parts.method.clone(), url).headers(parts.headers);
    if let Some(length) = length {
        sent = sent.header(CONTENT_LENGTH, length);
    }
    let has_body = !matches!(parts.method, Method::GET | Method::HEAD);
    if has_body {
        sent = sent.body(reqwest::Body::wrap_stream(body.into_data_stream()));
    }
    let answer = sent.send().await.map_err(|error| broken_off(leader, &parts.method, &error))?;
    let status = answer.status();
    let mut headers = answer.headers().clone();
    without_connection(&mut headers);
    let mut response = Response::new(Body::from_stream(answer.bytes_stream()));
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    Ok(response)
}

fn without_connection(headers: &mut HeaderMap) {
    for name in OF_CONNECTION {
        headers.remove(name);
    }
}

fn broken_off(leader: &ServerRecord, method: &Method, error: &reqwest::Error) -> Trouble {
    tracing::debug!(server = leader.name, url = leader.url, error = %Chain(error), "a request was not handed on");
    if error.is_connect() || method.is_safe() {
        let detail = format!("`{}`, the server that decides, does not answer", leader.name);
        return Trouble::new(Code::Loading, detail);
    }
    let detail = format!("`{}`, the server that decides, broke off before it had answered", leader.name);
    Trouble::new(Code::OutcomeUnknown, detail)
}
