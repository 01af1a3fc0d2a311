//! Forwarding of requests to the leader.
//!
//! A request is forwarded unchanged, with its token or session and its `Host`. The leader authorizes it again; this
//! server adds no right.
//!
//! # Invariants
//! - A request is sent only to a server that has proven [its key](crate::peers). There are two exceptions. A server
//!   behind a proxy that terminates TLS is authenticated by the proxy's certificate. A server of an older release
//!   without keys is reached over plain HTTP, which is logged.
//! - A request is forwarded at most once. The receiver recognizes it by the authenticated connection, or behind a proxy
//!   by a MAC in `X-Belfry-Forwarded-By`. Without a valid MAC, that header is ignored.
//!
//! # Cost
//! One request over a reused connection; responses and uploads are streamed.
//!
//! # Limits
//! A forwarded request takes a place in its own lane, and none among the requests that this server handles. It fails
//! after [`ANSWER_TIMEOUT`] without a response or further bytes.

use std::sync::{Mutex, MutexGuard, PoisonError};
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
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures::StreamExt as _;
use hmac::{Hmac, KeyInit, Mac};
use model::ServerId;
use model::limits::BATCH_BODY_BYTES_MAX;
use reqwest::Client;
use rustls::ClientConfig;
use sha2::Sha256;
use store::cluster::{Fingerprint, ServerRecord};
use tokio::sync::watch;

use super::Api;
use super::headers::{X_REQUEST_ID, request_id};
use super::limits;
use super::problem::{ApiError, Chain, Code};
use crate::listener::Peer;
use crate::members::Leader;
use crate::node::Readiness;
use crate::peers::{FromServer, Identity, is_tls_failure};

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
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Longest time for reading and discarding the body of an unauthenticated peer.
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
    let is_marked = || said.is_some_and(|mark| api.shared.forwards.is_our_mark(mark.as_bytes(), &id));
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
        let _slow = tokio::time::timeout(BODY_TIMEOUT, discard(request.into_body())).await;
        let detail = "the leader cannot authenticate the forwarding server: its row in the store has expired";
        // The server may succeed with its next connection.
        let close = HeaderValue::from_static("close");
        ApiError::new(Code::Loading, detail).header(CONNECTION, close).into_document(None)
    })
}

/// Discards a body: if the connection were closed with unread bytes, the response would be lost.
async fn discard(body: Body) {
    let (mut pieces, mut bytes) = (body.into_data_stream(), 0);
    while let Some(Ok(piece)) = pieces.next().await
        && bytes < BATCH_BODY_BYTES_MAX
    {
        bytes += piece.len();
    }
}

/// Returns the server to forward a request to; `None` if this server handles it, also when the leader is unknown.
pub(super) fn leader(api: &Api, request: &Request) -> Option<ServerRecord> {
    let was_handed_on = request.extensions().get::<ForwardedRequest>().is_some();
    if matches!(api.node.ready(), Readiness::Ready | Readiness::Full)
        || was_handed_on
        || !api.forwards_to_leader
    {
        return None;
    }
    match api.members.leader() {
        Leader::Other { server, .. } => Some(server).filter(|server| server.url.is_some()),
        Leader::ThisServer | Leader::Unknown => None,
    }
}

/// Clients and keys for forwarding requests.
pub(super) struct Forwards {
    key: [u8; 32],
    /// For servers that do not prove a key: behind a proxy, or of an older release.
    open: Client,
    /// For the leader with this key.
    keyed: Mutex<Option<(Fingerprint, Client)>>,
    /// Last server of an older release, which was logged.
    warned: Mutex<Option<ServerId>>,
}

/// How a server is reached.
#[derive(Debug, PartialEq, Eq)]
enum Transport {
    /// TLS to the server, which proves its key.
    Keyed(Fingerprint, String),
    /// TLS to a proxy in front of the server.
    Proxied,
    /// Plain HTTP, because the server has no key.
    Plain,
}

impl Transport {
    fn to(server: &ServerRecord, url: &str) -> Self {
        match (url.strip_prefix("http://"), server.fingerprint) {
            (None, _) => Self::Proxied,
            (Some(place), Some(fingerprint)) => Self::Keyed(fingerprint, format!("https://{place}")),
            (Some(_), None) => Self::Plain,
        }
    }
}

impl Forwards {
    /// Creates it with the key in the store that marks forwarded requests.
    pub(super) fn new(key: [u8; 32]) -> Self {
        // Another part of the process may have installed the same provider.
        let _chosen = rustls::crypto::ring::default_provider().install_default();
        Self { key, open: client(None), keyed: Mutex::default(), warned: Mutex::default() }
    }

    /// Returns the client for a server, and the URL to use.
    fn client_for(&self, me: &Identity, server: &ServerRecord) -> (Client, String) {
        let url = server.url.as_deref().unwrap_or_default();
        match Transport::to(server, url) {
            Transport::Keyed(fingerprint, url) => (self.keyed(me, fingerprint), url),
            Transport::Proxied => (self.open.clone(), url.to_owned()),
            Transport::Plain => {
                if lock(&self.warned).replace(server.id) != Some(server.id) {
                    let (server, version) = (&server.name, &server.version);
                    tracing::warn!(
                        server,
                        version,
                        url,
                        "forwarding requests to a server without a key: upgrade that server"
                    );
                }
                (self.open.clone(), url.to_owned())
            }
        }
    }

    /// Returns the client for the server with this key; drops connections to another one.
    fn keyed(&self, me: &Identity, fingerprint: Fingerprint) -> Client {
        let mut keyed = lock(&self.keyed);
        match &*keyed {
            Some((known, client)) if *known == fingerprint => client.clone(),
            _ => {
                let client = client(Some(me.client_config(fingerprint)));
                *keyed = Some((fingerprint, client.clone()));
                client
            }
        }
    }

    /// Returns the mark that this server has forwarded this request.
    fn mark(&self, server: ServerId, request_id: &str) -> String {
        let mac = self.mac(&server.to_string(), request_id).finalize().into_bytes();
        format!("{server}.{}", URL_SAFE_NO_PAD.encode(mac))
    }

    fn is_our_mark(&self, mark: &[u8], request_id: &str) -> bool {
        let parts = std::str::from_utf8(mark).ok().and_then(|mark| mark.rsplit_once('.'));
        let decoded = parts.and_then(|(server, mac)| Some((server, URL_SAFE_NO_PAD.decode(mac).ok()?)));
        decoded.is_some_and(|(server, mac)| self.mac(server, request_id).verify_slice(&mac).is_ok())
    }

    fn mac(&self, server: &str, request_id: &str) -> Hmac<Sha256> {
        let mac = Hmac::<Sha256>::new_from_slice(&self.key).expect("a MAC takes a key of any length");
        [PURPOSE, server, request_id].iter().fold(mac, |mac, part| mac.chain_update(part).chain_update([0]))
    }
}

/// Creates a client with these TLS settings, or with the certificates of the system.
fn client(tls: Option<ClientConfig>) -> Client {
    let builder = Client::builder()
        .connect_timeout(CONNECT_TIMEOUT)
        .redirect(reqwest::redirect::Policy::none())
        .http1_only()
        // Servers connect directly, whatever proxy the environment names.
        .no_proxy();
    let builder = match tls {
        Some(tls) => builder.tls_backend_preconfigured(tls).https_only(true),
        None => builder,
    };
    builder.build().expect("these settings are valid, and a TLS provider is installed")
}

fn lock<T>(what: &Mutex<T>) -> MutexGuard<'_, T> {
    what.lock().unwrap_or_else(PoisonError::into_inner)
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
    let mark = forwards.mark(api.members.me().id, &id);
    for (name, value) in [(X_REQUEST_ID, id), (FORWARDED_BY, mark)] {
        parts.headers.insert(name, HeaderValue::try_from(value).map_err(|error| ApiError::internal(&error))?);
    }
    if let Some(address) = client.and_then(|client| HeaderValue::try_from(client.to_string()).ok()) {
        parts.headers.insert(CLIENT_ADDRESS, address);
    }
    let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
    let (client, url) = forwards.client_for(api.members.identity(), leader);
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

#[cfg(test)]
mod tests {
    use super::*;

    fn server(fingerprint: Option<Fingerprint>) -> ServerRecord {
        ServerRecord {
            id: ServerId::from_bits(7 << 80),
            name: "other".into(),
            url: None,
            version: "1".into(),
            started_at: model::Timestamp::default(),
            fingerprint,
        }
    }

    /// D8. During a rolling upgrade, some servers have no key.
    #[test]
    fn a_server_with_a_key_is_reached_over_its_own_tls() {
        let key = Fingerprint([3; 32]);
        let road = |fingerprint, url| Transport::to(&server(fingerprint), url);
        assert_eq!(road(Some(key), "http://a:7070"), Transport::Keyed(key, "https://a:7070".into()));
        assert_eq!(road(None, "http://a:7070"), Transport::Plain);
        assert_eq!(road(Some(key), "https://a.example"), Transport::Proxied);
    }

    #[test]
    fn a_mark_is_valid_for_one_request_and_one_store() {
        let (ours, theirs) = (Forwards::new([1; 32]), Forwards::new([2; 32]));
        let mark = ours.mark(server(None).id, "req_1");
        assert!(ours.is_our_mark(mark.as_bytes(), "req_1"));
        assert!(!ours.is_our_mark(mark.as_bytes(), "req_2"));
        assert!(!theirs.is_our_mark(mark.as_bytes(), "req_1"));
        for forged in ["", ".", "srv", &server(None).id.to_string(), &mark[..mark.len() - 1]] {
            assert!(!ours.is_our_mark(forged.as_bytes(), "req_1"), "{forged}");
        }
    }
}
