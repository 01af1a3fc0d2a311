//! The outermost layer of all requests and responses.
//!
//! Requests: assigns an id, limits the length of the URI, and checks the header `Host`. Responses: writes
//! refusals as problem documents, adds security headers, and counts. A handler that panics fails only its own
//! request.
//!
//! - [`edge`]: the layer. `finish` also converts refusals of axum, so every refusal has the same form.
//! - [`no_route`]: the dashboard's pages, or 404.
//! - `not_modified`: 304, for the few routes whose `ETag` covers the body ([`etag_covers_body`]).
//! - [`Hosts`]: protection against DNS rebinding. [`HttpMetrics`]: metrics by route.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Instant;

use axum::body::Body;
use axum::extract::{MatchedPath, Request, State};
use axum::http::header::{
    CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, HOST,
    IF_NONE_MATCH, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri};
use axum::middleware::Next;
use axum::response::Response;
use futures::FutureExt;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use tracing::Instrument;

use super::headers::{X_REQUEST_ID, is_known, request_id};
use super::problem::{self, ApiError, Code};
use super::{Api, forward};
use crate::tls::ClientTls;
use crate::web;

/// Beginning of the paths of ping URLs.
const PING: &str = "/ping/";
/// Longest URI, in bytes.
const URI_LEN_MAX: usize = 8 * 1024;

/// Runs a request through all inner layers.
pub(super) async fn edge(State(api): State<Api>, mut request: Request, next: Next) -> Response {
    let started = Instant::now();
    forward::recognize(&api, &mut request);
    let id = request_id(request.headers());
    if let Ok(id) = HeaderValue::from_str(&id) {
        // Inner layers, and the leader, use the same one.
        request.headers_mut().insert(X_REQUEST_ID, id);
    }
    let method = request.method().clone();
    let known = request.headers().get(IF_NONE_MATCH).filter(|_| method.is_safe()).cloned();
    let route = request.extensions().get::<MatchedPath>().cloned();
    let span = tracing::info_span!("request", request_id = %id, %method, path = shown_path(request.uri()));
    let answered = check_and_run(&api, request, next).instrument(span.clone()).await;
    let mut response = match answered {
        Ok(response) => {
            let known =
                known.filter(|_| route.as_ref().is_some_and(|route| etag_covers_body(route.as_str())));
            not_modified(known.as_ref(), finish(response, &id))
        }
        Err(error) => error.into_document(Some(id.clone())),
    };
    add_headers(response.headers_mut(), &id);
    let took = started.elapsed();
    let _entered = span.enter();
    tracing::debug!(status = response.status().as_u16(), took_ms = took.as_millis(), "request answered");
    api.shared.counted.count(&method, route.as_ref(), response.status().as_u16(), took.as_secs_f64());
    response
}

/// Returns the path of a request for the log, without the secret token of a ping URL.
fn shown_path(uri: &Uri) -> &str {
    if uri.path().starts_with(PING) { PING } else { uri.path() }
}

/// Handles a request without a route.
///
/// A browser that requests a page gets the dashboard, whose views have their own paths.
pub(super) async fn no_route(method: Method, uri: Uri, headers: HeaderMap) -> Result<Response, ApiError> {
    if let Some(page) = web::is_view(&method, &uri, &headers).then(web::page).flatten() {
        return Ok(page);
    }
    let path: String = shown_path(&uri).chars().take(200).collect();
    Err(ApiError::new(Code::NotFound, format!("no resource at `{path}`")))
}

async fn check_and_run(api: &Api, request: Request, next: Next) -> Result<Response, ApiError> {
    let length = request.uri().path_and_query().map_or(0, |text| text.as_str().len());
    if length > URI_LEN_MAX {
        let detail = format!("the URI has {length} bytes: expected at most {URI_LEN_MAX}");
        return Err(ApiError::new(Code::UriTooLong, detail));
    }
    if !forward::is_forwarded(&request) {
        api.shared.hosts.check(request.uri(), request.headers())?;
    }
    AssertUnwindSafe(next.run(request)).catch_unwind().await.map_err(|panic| {
        let said =
            panic.downcast_ref::<&str>().copied().or(panic.downcast_ref::<String>().map(String::as_str));
        tracing::error!(error = said.unwrap_or("unknown"), "request handler panicked");
        ApiError::new(Code::Internal, "the server failed to handle the request; see its log for the cause")
    })
}

/// Writes the body of a refusal, and converts bare refusals of other layers into problem documents.
fn finish(mut response: Response, id: &str) -> Response {
    if let Some(error) = response.extensions_mut().remove::<ApiError>() {
        return error.into_document(Some(id.to_owned()));
    }
    match problem::of_bare_response(&response) {
        Some(error) => error.into_document(Some(id.to_owned())),
        None => response,
    }
}

/// Returns whether the `ETag` of a route changes with every byte of its response, so that `If-None-Match` can be
/// answered.
///
/// On other routes it is the version for `If-Match`, which changes of clients increment: counts, next firings and other
/// state in the same response change without it.
pub(super) fn etag_covers_body(route: &str) -> bool {
    ["/openapi.json", "/api/v1/artifacts/{name}", "/api/v1/jobs/{id}/checkpoint"].contains(&route)
}

/// Replaces a response that the client already has by 304.
fn not_modified(known: Option<&HeaderValue>, mut response: Response) -> Response {
    let tag = response.headers().get(ETAG);
    let (StatusCode::OK, Some(known), Some(tag)) = (response.status(), known, tag) else { return response };
    if is_known(known, tag) {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        *response.body_mut() = Body::empty();
        for name in [CONTENT_LENGTH, CONTENT_TYPE, CONTENT_DISPOSITION] {
            response.headers_mut().remove(name);
        }
    }
    response
}

fn add_headers(headers: &mut HeaderMap, id: &str) {
    const DEFAULTS: [(HeaderName, HeaderValue); 4] = [
        (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
        (CACHE_CONTROL, HeaderValue::from_static("no-store")),
        // No response of the API is a page; pages set their own policy.
        (CONTENT_SECURITY_POLICY, HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'")),
    ];
    for (name, value) in DEFAULTS {
        headers.entry(name).or_insert(value);
    }
    if let Ok(id) = HeaderValue::from_str(id) {
        headers.insert(X_REQUEST_ID, id);
    }
}

/// Accepted host names of the server.
///
/// A page of an attacker can point its host name at a loopback address and make a browser send requests here (DNS
/// rebinding); such a request carries that host name. An IP address as `Host` cannot result from this, and a client
/// without `Host` is not a browser. The names of the server's own certificate are accepted too: the attacker has no
/// certificate for them.
pub(super) struct Hosts {
    names: Vec<String>,
    tls: Option<Arc<ClientTls>>,
}

impl Hosts {
    pub(super) fn new(names: &[String], tls: Option<Arc<ClientTls>>) -> Self {
        Self { names: names.iter().map(|name| name.to_ascii_lowercase()).collect(), tls }
    }

    fn check(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), ApiError> {
        let header = headers.get(HOST).map(|value| value.to_str().unwrap_or("?"));
        let Some(host) = uri.host().or(header.map(without_port)) else { return Ok(()) };
        let host = host.trim_end_matches('.').to_ascii_lowercase();
        let address = host.trim_start_matches('[').trim_end_matches(']').parse::<std::net::IpAddr>();
        let is_certified = || self.tls.as_ref().is_some_and(|tls| tls.has_name(&host));
        if address.is_ok() || host == "localhost" || self.names.contains(&host) || is_certified() {
            return Ok(());
        }
        let shown: String = host.chars().filter(char::is_ascii_graphic).take(100).collect();
        Err(ApiError::new(
            Code::HostNotAllowed,
            format!("host name `{shown}` is not in the setting `server.host_names`"),
        ))
    }
}

fn without_port(authority: &str) -> &str {
    match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|b| b.is_ascii_digit()) && !host.is_empty() => host,
        _ => authority,
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    method: &'static str,
    route: String,
    status: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RouteLabels {
    route: String,
}

/// Metrics of HTTP requests. Labels are routes of the table, never text of a client.
#[derive(Clone)]
pub(super) struct HttpMetrics {
    requests: Family<RequestLabels, Counter>,
    seconds: Family<RouteLabels, Histogram, fn() -> Histogram>,
}

impl Default for HttpMetrics {
    fn default() -> Self {
        let histogram = || Histogram::new(exponential_buckets(0.000_5, 2.0, 15));
        Self { requests: Family::default(), seconds: Family::new_with_constructor(histogram) }
    }
}

impl HttpMetrics {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register("http_requests", "Requests by method, route and status", self.requests.clone());
        registry.register(
            "http_request_seconds",
            "Time from the receipt of a request to the head of its response, by route",
            self.seconds.clone(),
        );
    }

    fn count(&self, method: &Method, route: Option<&MatchedPath>, status: u16, seconds: f64) {
        let route = route.map_or("none", MatchedPath::as_str).to_owned();
        let method = match method.as_str() {
            "GET" => "GET",
            "POST" => "POST",
            "PUT" => "PUT",
            "PATCH" => "PATCH",
            "DELETE" => "DELETE",
            "HEAD" => "HEAD",
            _ => "other",
        };
        self.requests.get_or_create(&RequestLabels { method, route: route.clone(), status }).inc();
        self.seconds.get_or_create(&RouteLabels { route }).observe(seconds);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(host: &str) -> bool {
        let headers = HeaderMap::from_iter([(HOST, HeaderValue::try_from(host).unwrap())]);
        Hosts::new(&["Belfry.example".to_owned()], None).check(&Uri::from_static("/x"), &headers).is_ok()
    }

    #[test]
    fn addresses_localhost_and_configured_names_are_accepted() {
        for host in [
            "localhost",
            "localhost:7070",
            "127.0.0.1:7070",
            "[::1]:7070",
            "10.1.2.3",
            "belfry.example.",
            "BELFRY.example:443",
        ] {
            assert!(allowed(host), "{host}");
        }
    }

    /// DNS rebinding: the browser uses a host name of the attacker.
    #[test]
    fn a_foreign_name_is_refused_in_the_header_and_in_the_address() {
        for host in [
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example:7070",
            "?",
            ":",
            "belfry.example:80:80",
        ] {
            assert!(!allowed(host), "{host}");
        }
        let uri = Uri::from_static("http://evil.example/x");
        assert!(Hosts::new(&[], None).check(&uri, &HeaderMap::new()).is_err());
    }

    #[test]
    fn a_request_without_a_host_is_accepted() {
        assert!(Hosts::new(&[], None).check(&Uri::from_static("/x"), &HeaderMap::new()).is_ok());
    }
}
