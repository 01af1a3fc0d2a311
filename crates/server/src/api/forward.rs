//! Forwarding of requests to the leader.
//!
//! A request is forwarded unchanged, with its token or session and its `Host`. The leader authorizes it again; this
//! server adds no right.
//!
//! # Invariants
//! - A request is sent only to a [server that has proven its key](crate::server_clients), or that is behind a proxy.
//! - A request is forwarded at most once. The receiver recognizes it by the authenticated connection, or behind a proxy
//!   by a MAC in `X-Belfry-Forwarded-By`. Without a valid MAC, that header is ignored.
//!
//! # Cost
//! One request over a reused connection; responses and uploads are streamed.
//!
//! # Limits
//! A forwarded request takes a place in its own lane, and none among the requests that this server handles. It fails
//! after [`ANSWER_TIMEOUT`] without a response or further bytes.

use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::header::{
    CONNECTION, CONTENT_LENGTH, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRAILER, TRANSFER_ENCODING,
    UPGRADE,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method};
use axum::response::Response;
use futures::StreamExt as _;
use model::limits::BATCH_BODY_BYTES_MAX;
use store::cluster::ServerRecord;
use tokio::sync::watch;

use super::Api;
use super::headers::{X_REQUEST_ID, request_id};
use super::limits;
use super::problem::{ApiError, Chain, Code};
use crate::listener::Peer;
use crate::marks::Marks;
use crate::members::Leader;
use crate::node::Readiness;
use crate::peers::{FromServer, is_tls_failure};

/// Header with the id of the forwarding server, and a MAC of it and of the request id.
const FORWARDED_BY: HeaderName = HeaderName::from_static("x-belfry-forwarded-by");
/// Headers that apply to one connection and are not forwarded.
const HOP_BY_HOP: [HeaderName; 8] = [
    CONNECTION,
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
    HeaderName::from_static("keep-alive"),
];
/// Domain separator: the MAC of a mark is valid for no other purpose under the same key.
const PURPOSE: &str = "belfry forwarded v1";
/// Header with the client's address, for the leader's limits per client.
const CLIENT_ADDRESS: HeaderName = HeaderName::from_static("x-belfry-client-address");
/// Longest wait for the leader's response after the last byte of the request, and longest pause within the response.
/// Longer than any change of the store, and than the heartbeat of a stream.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(40);
/// Longest time for reading and discarding the body of a refused request.
const BODY_TIMEOUT: Duration = Duration::from_secs(2);

/// Marks a request that an authenticated server has forwarded.
#[derive(Debug, Clone, Copy)]
struct ForwardedRequest;

/// Detects forwarded requests, and removes the headers of forwarding. Must run before all other layers. Headers of
/// unauthenticated peers are ignored.
pub(super) fn recognize(api: &Api, request: &mut Request) {
    let said = request.headers_mut().remove(FORWARDED_BY);
    let client = request.headers_mut().remove(CLIENT_ADDRESS);
    let id = request_id(request.headers());
    let is_marked = || said.is_some_and(|mark| api.shared.forwards.marks.is_ours(mark.as_bytes(), &[&id]));
    if request.extensions().get::<FromServer>().is_some() || is_marked() {
        request.extensions_mut().insert(ForwardedRequest);
        if let Some(address) = client.and_then(|client| client.to_str().ok()?.parse().ok()) {
            request.extensions_mut().insert(Peer::Forwarded(address));
        }
    }
}

/// Returns the service for peers that connect like a server and fail authentication. It processes no request, so the
/// forwarding server may report that nothing was changed.
pub(crate) fn unauthenticated_peers() -> Router {
    Router::new().fallback(async |request: Request| {
        discard(request.into_body()).await;
        let detail = "the leader cannot authenticate the forwarding server: its row in the store has expired";
        // The server may succeed with its next connection.
        let close = HeaderValue::from_static("close");
        ApiError::new(Code::Loading, detail).header(CONNECTION, close).into_document(None)
    })
}

/// Discards a body, for a short time: if the connection were closed with unread bytes, the response would be lost.
pub(super) async fn discard(body: Body) {
    let (mut pieces, mut bytes) = (body.into_data_stream(), 0);
    let read = async {
        while let Some(Ok(piece)) = pieces.next().await
            && bytes < BATCH_BODY_BYTES_MAX
        {
            bytes += piece.len();
        }
    };
    let _slow = tokio::time::timeout(BODY_TIMEOUT, read).await;
}

/// Whether another server has forwarded the request. That server has checked its `Host`.
pub(super) fn is_forwarded(request: &Request) -> bool {
    request.extensions().get::<ForwardedRequest>().is_some()
}

/// Returns the server to forward a request to; `None` if this server handles it, also when the leader is unknown.
pub(super) fn leader(api: &Api, request: &Request) -> Option<ServerRecord> {
    if matches!(api.node.ready(), Readiness::Ready | Readiness::Full)
        || is_forwarded(request)
        || !api.forwards_to_leader
    {
        return None;
    }
    match api.members.leader() {
        Leader::Other { server, .. } => Some(server).filter(|server| server.url.is_some()),
        Leader::ThisServer | Leader::Unknown => None,
    }
}

/// Marks of forwarded requests.
pub(super) struct Forwards {
    marks: Marks,
}

impl Forwards {
    /// Creates it with the key in the store that marks forwarded requests.
    pub(super) fn new(key: [u8; 32]) -> Self {
        Self { marks: Marks::new(key, PURPOSE) }
    }
}

/// Forwards a request, and returns the response of the leader.
///
/// # Errors
/// `loading` if the leader cannot be reached; `outcome_unknown` if the connection fails during a change.
pub(super) async fn to(api: &Api, leader: &ServerRecord, request: Request) -> Result<Response, ApiError> {
    to_within(api, leader, request, ANSWER_TIMEOUT).await
}

pub(super) async fn to_within(
    api: &Api,
    leader: &ServerRecord,
    request: Request,
    patience: Duration,
) -> Result<Response, ApiError> {
    let client = limits::address(&request, api.config.exposure);
    let (mut parts, body) = request.into_parts();
    let id = request_id(&parts.headers);
    without_connection(&mut parts.headers);
    // A chunked body is framed again.
    let length = parts.headers.remove(CONTENT_LENGTH);
    let forwards = &api.shared.forwards;
    let mark = forwards.marks.mark(api.members.me().id, &[&id]);
    for (name, value) in [(X_REQUEST_ID, id), (FORWARDED_BY, mark)] {
        parts.headers.insert(name, HeaderValue::try_from(value).map_err(|error| ApiError::internal(&error))?);
    }
    if let Some(address) = client.and_then(|client| HeaderValue::try_from(client.to_string()).ok()) {
        parts.headers.insert(CLIENT_ADDRESS, address);
    }
    let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
    let (client, url) = api.requests.client_for(leader);
    let mut sent = client.request(parts.method.clone(), format!("{url}{path}")).headers(parts.headers);
    if let Some(length) = length {
        sent = sent.header(CONTENT_LENGTH, length);
    }
    let has_body = !matches!(parts.method, Method::GET | Method::HEAD);
    let (moved, moves) = watch::channel(());
    if has_body {
        // While the client still sends, the leader cannot answer.
        let body = body.into_data_stream().inspect(move |_| moved.send_replace(()));
        sent = sent.body(reqwest::Body::wrap_stream(body));
    }
    let answer = tokio::select! {
        answer = sent.send() => answer.map_err(|error| connection_error(leader, &parts.method, &error))?,
        () = wait_for_stall(moves, patience) => return Err(timeout_error(leader, &parts.method, patience)),
    };
    let status = answer.status();
    let mut headers = answer.headers().clone();
    without_connection(&mut headers);
    let pieces = tokio_stream::StreamExt::timeout(answer.bytes_stream(), patience);
    let pieces = pieces.map(|piece| piece.map_err(std::io::Error::other)?.map_err(std::io::Error::other));
    let mut response = Response::new(Body::from_stream(pieces));
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    Ok(response)
}

/// Completes after a pause of `patience` in the request's body.
async fn wait_for_stall(mut moves: watch::Receiver<()>, patience: Duration) {
    loop {
        let moved = async {
            if moves.changed().await.is_err() {
                // The whole body was sent.
                std::future::pending::<()>().await;
            }
        };
        if tokio::time::timeout(patience, moved).await.is_err() {
            return;
        }
    }
}

fn timeout_error(leader: &ServerRecord, method: &Method, patience: Duration) -> ApiError {
    let (server, waited) = (&leader.name, patience.as_secs());
    tracing::warn!(server, %method, seconds = waited, "forwarded request timed out");
    let detail = format!("server `{server}`, the leader, did not respond within {waited}s");
    ApiError::new(if method.is_safe() { Code::Loading } else { Code::OutcomeUnknown }, detail)
}

fn without_connection(headers: &mut HeaderMap) {
    for name in HOP_BY_HOP {
        headers.remove(name);
    }
}

fn connection_error(leader: &ServerRecord, method: &Method, error: &reqwest::Error) -> ApiError {
    let (server, url) = (&leader.name, leader.url.as_deref());
    if is_tls_failure(error) {
        tracing::warn!(
            server, url, error = %Chain(error),
            "request not forwarded: the leader failed authentication"
        );
    } else {
        tracing::debug!(server, url, error = %Chain(error), "request not forwarded");
    }
    if error.is_connect() || method.is_safe() {
        let detail = format!("cannot reach server `{}`, the leader", leader.name);
        return ApiError::new(Code::Loading, detail);
    }
    let detail =
        format!("the connection to server `{}`, the leader, was lost before the response", leader.name);
    ApiError::new(Code::OutcomeUnknown, detail)
}
