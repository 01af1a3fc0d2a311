//! Requests that another server answers: the one that decides.
//!
//! A request goes on as it came, with its token or session and under the name that it was sent to, so
//! the other server lets in nobody whom it would not let in itself; this server adds no right of its own.
//!
//! # Always true
//! - It goes to a server that has proven [its key](crate::peers), or nothing of it goes out. Two kinds of servers prove
//!   none: one behind a proxy that ends TLS shows the proxy's certificate, and one of a release that had no
//!   keys is reached as that release was; the log says so.
//! - It is handed on once at most. The one that gets it knows this by the connection, or where a proxy is
//!   between them by a MAC in `X-Belfry-Forwarded-By`. From anybody else that header says nothing.
//!
//! # Cost
//! One request over a connection that is kept; answers and uploads are passed on as they come.
//!
//! # Limits
//! A forwarded request has a place in a lane of its own and none among those that this server handles. It is given up
//! after [`ANSWER_TIMEOUT`] without an answer or further bytes.

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
use crate::peers::{FromServer, Identity, is_impostor};

/// Names the server that handed a request on, with a MAC of it and of the request's id.
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
/// Keeps the mark of a request from being the MAC of anything else under the same key.
const PURPOSE: &str = "belfry forwarded v1";
/// Names the client's address to the leader, for its limits per client.
const CLIENT_ADDRESS: HeaderName = HeaderName::from_static("x-belfry-client-address");
/// How long the leader may take to answer after the last byte of the request, and how long its answer may pause. Longer
/// than any change of the store, and than the heartbeat of a stream.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(40);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a stranger's body is taken, and thrown away.
const BODY_TIMEOUT: Duration = Duration::from_secs(2);

/// Stands on a request that another server has handed on, by the word of a server of this store.
#[derive(Debug, Clone, Copy)]
struct HandedOn;

/// Sees whether a request was handed on, before anybody else sees it; who says so and is no server is not
/// heard.
pub(super) fn recognize(api: &Api, request: &mut Request) {
    let said = request.headers_mut().remove(FORWARDED_BY);
    let client = request.headers_mut().remove(CLIENT_ADDRESS);
    let id = request_id(request.headers());
    let is_marked = || said.is_some_and(|mark| api.shared.forwards.is_our_mark(mark.as_bytes(), &id));
    if request.extensions().get::<FromServer>().is_some() || is_marked() {
        request.extensions_mut().insert(HandedOn);
        if let Some(address) = client.and_then(|client| client.to_str().ok()?.parse().ok()) {
            request.extensions_mut().insert(Peer::Forwarded(address));
        }
    }
}

/// The app of whoever connects as a server does and is none that is there: nothing of a request is looked at, so whoever
/// wanted to hand one on may say that it came to nothing.
pub(crate) fn for_strangers() -> Router {
    Router::new().fallback(async |request: Request| {
        let _slow = tokio::time::timeout(BODY_TIMEOUT, throw_away(request.into_body())).await;
        let detail =
            "the server that decides cannot tell who hands this on: that server's row in the store ran out";
        // The next connection may be one of a server.
        let close = HeaderValue::from_static("close");
        ApiError::new(Code::Loading, detail).header(CONNECTION, close).into_document(None)
    })
}

/// Takes a body, for an answer is lost with a connection that is closed over bytes that nobody took.
async fn throw_away(body: Body) {
    let (mut pieces, mut bytes) = (body.into_data_stream(), 0);
    while let Some(Ok(piece)) = pieces.next().await
        && bytes < BATCH_BODY_BYTES_MAX
    {
        bytes += piece.len();
    }
}

/// The server that a request is to be handed on to; `None` if this one answers it, also
/// where nobody is known who could.
pub(super) fn leader(api: &Api, request: &Request) -> Option<ServerRecord> {
    let was_handed_on = request.extensions().get::<HandedOn>().is_some();
    if matches!(api.node.ready(), Readiness::Ready | Readiness::Full) || was_handed_on || !api.hands_on {
        return None;
    }
    match api.members.leader() {
        Leader::Other { server, .. } => Some(server).filter(|server| server.url.is_some()),
        Leader::Me | Leader::Nobody => None,
    }
}

/// What requests are handed on with.
pub(super) struct Forwards {
    key: [u8; 32],
    /// For servers that do not prove a key: they are behind a proxy, or of an older release.
    open: Client,
    /// For the server that has this key.
    keyed: Mutex<Option<(Fingerprint, Client)>>,
    /// The last server of an older release.
    told: Mutex<Option<ServerId>>,
}

/// How a server is reached.
#[derive(Debug, PartialEq, Eq)]
enum Road {
    /// Over TLS that ends at that server, which proves its key.
    Keyed(Fingerprint, String),
    /// Over TLS that ends at a proxy before it.
    Proxied,
    /// Over nothing that protects it, as it says no key.
    Open,
}

impl Road {
    fn to(server: &ServerRecord, url: &str) -> Self {
        match (url.strip_prefix("http://"), server.fingerprint) {
            (None, _) => Self::Proxied,
            (Some(place), Some(fingerprint)) => Self::Keyed(fingerprint, format!("https://{place}")),
            (Some(_), None) => Self::Open,
        }
    }
}

impl Forwards {
    /// With the key in the store by which servers mark what they hand on.
    pub(super) fn new(key: [u8; 32]) -> Self {
        // Whoever chose one before meant the same.
        let _chosen = rustls::crypto::ring::default_provider().install_default();
        Self { key, open: client(None), keyed: Mutex::default(), told: Mutex::default() }
    }

    /// The client for a server, and the address that it is to be asked at.
    fn way_to(&self, me: &Identity, server: &ServerRecord) -> (Client, String) {
        let url = server.url.as_deref().unwrap_or_default();
        match Road::to(server, url) {
            Road::Keyed(fingerprint, url) => (self.keyed(me, fingerprint), url),
            Road::Proxied => (self.open.clone(), url.to_owned()),
            Road::Open => {
                if lock(&self.told).replace(server.id) != Some(server.id) {
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

    /// The connections to the server that has this key; those to another one are given up.
    fn keyed(&self, me: &Identity, fingerprint: Fingerprint) -> Client {
        let mut keyed = lock(&self.keyed);
        match &*keyed {
            Some((known, client)) if *known == fingerprint => client.clone(),
            _ => {
                let client = client(Some(me.toward(fingerprint)));
                *keyed = Some((fingerprint, client.clone()));
                client
            }
        }
    }

    /// What says that the server with this id has handed this request on.
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

/// Speaks TLS as `tls` says; else by the certificates that the system knows.
fn client(tls: Option<ClientConfig>) -> Client {
    let builder = Client::builder()
        .connect_timeout(CONNECT_TIMEOUT)
        .redirect(reqwest::redirect::Policy::none())
        .http1_only()
        // Servers are reached as they say, whatever stands in the environment.
        .no_proxy();
    let builder = match tls {
        Some(tls) => builder.tls_backend_preconfigured(tls).https_only(true),
        None => builder,
    };
    builder.build().expect("a client of these settings can be made: its provider of TLS was chosen before")
}

fn lock<T>(what: &Mutex<T>) -> MutexGuard<'_, T> {
    what.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The other server's answer.
///
/// # Errors
/// `loading` if it cannot be reached, and `outcome_unknown` if it broke off over a change.
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
    // The body is framed anew where it is one that comes in pieces.
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
    let (client, url) = forwards.way_to(api.members.identity(), leader);
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
        answer = sent.send() => answer.map_err(|error| broken_off(leader, &parts.method, &error))?,
        () = silence(moves, patience) => return Err(silent(leader, &parts.method, patience)),
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

/// Completes when nothing has moved for `patience`.
async fn silence(mut moves: watch::Receiver<()>, patience: Duration) {
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

fn silent(leader: &ServerRecord, method: &Method, patience: Duration) -> ApiError {
    let (server, waited) = (&leader.name, patience.as_secs());
    tracing::warn!(server, "the leader did not answer a forwarded request within {waited}s");
    let detail = format!("`{server}`, the leader, did not answer within {waited}s");
    ApiError::new(if method.is_safe() { Code::Loading } else { Code::OutcomeUnknown }, detail)
}

fn without_connection(headers: &mut HeaderMap) {
    for name in OF_CONNECTION {
        headers.remove(name);
    }
}

fn broken_off(leader: &ServerRecord, method: &Method, error: &reqwest::Error) -> ApiError {
    let (server, url) = (&leader.name, leader.url.as_deref());
    if is_impostor(error) {
        tracing::warn!(server, url, error = %Chain(error), "request not forwarded: the peer does not have the key of that server");
    } else {
        tracing::debug!(server, url, error = %Chain(error), "request not forwarded");
    }
    if error.is_connect() || method.is_safe() {
        let detail = format!("`{}`, the server that decides, does not answer", leader.name);
        return ApiError::new(Code::Loading, detail);
    }
    let detail = format!("`{}`, the server that decides, broke off before it had answered", leader.name);
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

    /// D8. While servers are upgraded one after the other, some say no key.
    #[test]
    fn a_server_is_reached_over_tls_of_its_own_unless_it_cannot() {
        let key = Fingerprint([3; 32]);
        let road = |fingerprint, url| Road::to(&server(fingerprint), url);
        assert_eq!(road(Some(key), "http://a:7070"), Road::Keyed(key, "https://a:7070".into()));
        assert_eq!(road(None, "http://a:7070"), Road::Open);
        assert_eq!(road(Some(key), "https://a.example"), Road::Proxied);
    }

    #[test]
    fn a_mark_is_good_for_one_request_and_one_store() {
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
