//! The HTTP layer: URLs, authentication, retries and problem documents.
//!
//! [`Client`] sends a [`Request`] and retries it as `retry` decides. Every method of the API builds a `Request` and
//! calls `json`, `done` or `open`.
//!
//! # Invariants
//! - Paths are built from segments and percent-encoded, so a name with a slash stays one segment.
//! - Redirects are not followed: the token is sent to the configured URL only.
//! - The URL of a request is removed from errors of the HTTP library, because a query may contain private values.
//! - A proxy of the environment is never used for a loopback address.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use model::api::Problem;
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use reqwest::{Method, StatusCode, Url};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::Error;
use crate::retry::{Attempts, HTTP_ERROR_CODE, Idempotency, Timeouts};

/// Callback that is called before each retry, with the error and the delay.
pub type RetryNotice = Arc<dyn Fn(&Error, Duration) + Send + Sync>;

/// Client of a Belfry server. Cheap to clone; clones share a connection pool.
///
/// ```no_run
/// # async fn example() -> Result<(), client::Error> {
/// client::install_crypto();
/// let belfry = client::Client::new("https://belfry.example", Some("bf_admin_…"))?;
/// println!("connected as {}", belfry.me().await?.name);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Client {
    http: reqwest::Client,
    base: Url,
    token: Option<HeaderValue>,
    patience: Timeouts,
    notice: Option<RetryNotice>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("url", &self.url())
            .field("patience", &self.patience)
            .finish_non_exhaustive()
    }
}

impl Client {
    /// Creates a client of the server at `url`, such as `https://belfry.example` or `http://127.0.0.1:7070`.
    ///
    /// `token` is sent with each request. No connection is opened before the first request.
    ///
    /// # Errors
    /// [`Error::Address`] if the URL is invalid, and [`Error::Token`] if the token contains invalid characters.
    ///
    /// # Panics
    /// If no TLS provider is installed: call [`crate::install_crypto`] first.
    pub fn new(url: &str, token: Option<&str>) -> Result<Self, Error> {
        Self::with_patience(url, token, Timeouts::default())
    }

    /// Creates a client with its own timeouts; see [`Client::new`].
    ///
    /// # Errors
    /// [`Error::Address`] if the URL is invalid, and [`Error::Token`] if the token contains invalid characters.
    ///
    /// # Panics
    /// If no TLS provider is installed: call [`crate::install_crypto`] first.
    pub fn with_patience(url: &str, token: Option<&str>, patience: Timeouts) -> Result<Self, Error> {
        Self::trusting(url, token, patience, None)
    }

    /// Creates a client with its own timeouts that trusts only these certificate authorities (PEM) for an `https` URL, or
    /// those of the system if `None`; see [`Client::new`].
    ///
    /// # Errors
    /// [`Error::Authority`] if the text contains no certificate, [`Error::Address`] if the URL is invalid, and
    /// [`Error::Token`] if the token contains invalid characters.
    ///
    /// # Panics
    /// If no TLS provider is installed: call [`crate::install_crypto`] first.
    pub fn trusting(
        url: &str,
        token: Option<&str>,
        patience: Timeouts,
        authorities_pem: Option<&[u8]>,
    ) -> Result<Self, Error> {
        let base = parse_base(url)?;
        let mut builder = reqwest::Client::builder()
            .user_agent(concat!("belfry/", env!("CARGO_PKG_VERSION")))
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(patience.connect);
        if is_loopback(&base) {
            builder = builder.no_proxy();
        }
        if let Some(pem) = authorities_pem {
            builder = builder.tls_certs_only(authorities(pem)?);
        }
        let http = builder.build().map_err(|source| match authorities_pem {
            Some(_) => Error::Authority { detail: root_cause(&source) },
            None => Error::Unreachable { url: base.to_string(), source },
        })?;
        let token = token.map(bearer).transpose()?;
        Ok(Self { http, base, token, patience, notice: None })
    }

    /// Sets a callback that is called before each retry.
    #[must_use]
    pub fn on_retry(mut self, notice: RetryNotice) -> Self {
        self.notice = Some(notice);
        self
    }

    /// Returns the URL of the server, without a trailing slash.
    pub fn url(&self) -> &str {
        self.base.as_str().trim_end_matches('/')
    }

    /// Whether the token is sent unencrypted over a network: the URL is `http` and not a loopback address.
    pub fn is_plaintext(&self) -> bool {
        self.base.scheme() == "http" && !is_loopback(&self.base)
    }

    pub(crate) fn patience(&self) -> Timeouts {
        self.patience
    }

    /// Sends a request and reads the whole response. Retries where that is safe.
    pub(crate) async fn send(&self, request: &Request) -> Result<ResponseBody, Error> {
        let mut tries = Attempts::new(self.patience);
        loop {
            let error = match self.try_answer(request).await {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            self.pause(&mut tries, error, request.repeat).await?;
        }
    }

    /// Sends a request and returns the response when its headers have arrived, for streams. Retries where that is safe.
    pub(crate) async fn open(&self, request: &Request) -> Result<reqwest::Response, Error> {
        let mut tries = Attempts::new(self.patience);
        loop {
            let error = match self.try_open(request).await {
                Ok(response) => return Ok(response),
                Err(error) => error,
            };
            self.pause(&mut tries, error, request.repeat).await?;
        }
    }

    /// Sends a request and deserializes the JSON response.
    pub(crate) async fn json<T: DeserializeOwned>(&self, request: Request) -> Result<T, Error> {
        let answer = self.send(&request).await?;
        serde_json::from_slice(&answer.body)
            .map_err(|error| self.protocol(&request, format!("cannot parse the response: {error}")))
    }

    /// Sends a request and ignores the body of the response.
    pub(crate) async fn send_ignoring_body(&self, request: Request) -> Result<(), Error> {
        self.send(&request).await.map(drop)
    }

    pub(crate) fn protocol(&self, request: &Request, detail: String) -> Error {
        Error::Protocol { url: self.address(request).to_string(), detail }
    }

    async fn pause(&self, tries: &mut Attempts, error: Error, repeat: Idempotency) -> Result<(), Error> {
        let Some(pause) = tries.next(&error, repeat) else { return Err(error) };
        if let Some(notice) = &self.notice {
            notice(&error, pause);
        }
        tokio::time::sleep(pause).await;
        Ok(())
    }

    async fn try_answer(&self, request: &Request) -> Result<ResponseBody, Error> {
        let timeout = match request.body {
            // The duration of an upload depends on the size of the file and the network.
            Body::File(_) => None,
            _ => Some(self.patience.response_timeout),
        };
        let mut builder = self.build(request).await?;
        if let Some(timeout) = timeout {
            builder = builder.timeout(timeout);
        }
        let response = builder.send().await.map_err(|e| self.network(e))?;
        let (status, headers) = (response.status(), response.headers().clone());
        let body = response.bytes().await.map_err(|e| self.network(e))?;
        if status.is_success() {
            Ok(ResponseBody { body })
        } else {
            Err(self.refusal(request, status, &headers, &body))
        }
    }

    async fn try_open(&self, request: &Request) -> Result<reqwest::Response, Error> {
        let sent = self.build(request).await?.send();
        let response = tokio::time::timeout(self.patience.response_timeout, sent)
            .await
            .map_err(|_| Error::Timeout {
                url: self.url().to_owned(),
                after: self.patience.response_timeout,
            })?
            .map_err(|e| self.network(e))?;
        let (status, headers) = (response.status(), response.headers().clone());
        if status.is_success() {
            return Ok(response);
        }
        let body = tokio::time::timeout(self.patience.response_timeout, response.bytes()).await;
        Err(self.refusal(request, status, &headers, &body.ok().and_then(Result::ok).unwrap_or_default()))
    }

    fn address(&self, request: &Request) -> Url {
        let mut url = self.base.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(["api", "v1"]).extend(&request.path);
        }
        if !request.query.is_empty() {
            url.query_pairs_mut().extend_pairs(&request.query);
        }
        url
    }

    async fn build(&self, request: &Request) -> Result<reqwest::RequestBuilder, Error> {
        let mut builder =
            self.http.request(request.method.clone(), self.address(request)).headers(request.headers.clone());
        if let Some(token) = &self.token {
            builder = builder.header(AUTHORIZATION, token.clone());
        }
        if !request.headers.contains_key(ACCEPT) {
            builder = builder.header(ACCEPT, "application/json, application/problem+json");
        }
        Ok(match &request.body {
            Body::None => builder,
            Body::Bytes(content_type, bytes) => {
                builder.header(CONTENT_TYPE, *content_type).body(bytes.clone())
            }
            Body::File(path) => {
                let error = |source| Error::File { path: path.display().to_string(), source };
                let file = tokio::fs::File::open(path).await.map_err(error)?;
                let length = file.metadata().await.map_err(error)?.len();
                builder
                    .header(CONTENT_TYPE, "application/octet-stream")
                    .header(reqwest::header::CONTENT_LENGTH, length)
                    .body(file)
            }
        })
    }

    fn network(&self, source: reqwest::Error) -> Error {
        // Without the URL: the message already names the server, and a query may contain private values.
        let source = source.without_url();
        let url = self.url().to_owned();
        if source.is_connect() {
            Error::Unreachable { url, source }
        } else if source.is_timeout() {
            Error::Timeout { url, after: self.patience.response_timeout }
        } else {
            Error::Interrupted { url, source }
        }
    }

    fn refusal(&self, request: &Request, status: StatusCode, headers: &HeaderMap, body: &[u8]) -> Error {
        let after =
            headers.get(RETRY_AFTER).and_then(|v| v.to_str().ok()).and_then(|v| v.trim().parse().ok());
        if let Ok(mut problem) = serde_json::from_slice::<Problem>(body) {
            problem.retry_after = problem.retry_after.or(after);
            return Error::Problem(Box::new(problem));
        }
        if status.is_redirection() || status.is_informational() {
            return self
                .protocol(request, format!("the response is {status}, and redirects are not followed"));
        }
        Error::Problem(Box::new(Problem {
            kind: "about:blank".into(),
            title: status.canonical_reason().unwrap_or("refused").to_lowercase(),
            status: status.as_u16(),
            detail: format!("{} responded {status} without a reason", self.address(request)),
            code: HTTP_ERROR_CODE.into(),
            hint: Some("a proxy before the server may have responded instead".into()),
            errors: Vec::new(),
            instance: None,
            retry_after: after,
        }))
    }
}

fn parse_base(text: &str) -> Result<Url, Error> {
    let error = |url: &str, detail: &str| Error::Address { url: url.to_owned(), detail: detail.to_owned() };
    let url = Url::parse(text.trim()).map_err(|e| error(text, &e.to_string()))?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err(error(
            "…",
            "it contains a user or password; put the token into a file or `BELFRY_TOKEN`",
        ));
    }
    if !matches!(url.scheme(), "http" | "https") {
        return Err(error(text, "expected `http` or `https`"));
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(error(text, "it contains a query or a fragment"));
    }
    Ok(url)
}

/// Returns the text of the innermost cause of an error.
fn root_cause(error: &reqwest::Error) -> String {
    let error: &dyn std::error::Error = error;
    std::iter::successors(Some(error), |error| error.source()).last().unwrap_or(error).to_string()
}

/// Checks that a text has certificates of authorities (PEM), as [`Client::trusting`] does.
///
/// # Errors
/// [`Error::Authority`]
///
/// # Panics
/// If no TLS provider is installed: call [`crate::install_crypto`] first.
pub fn check_authority(pem: &[u8]) -> Result<(), Error> {
    Client::trusting("https://localhost", None, Timeouts::default(), Some(pem)).map(drop)
}

fn authorities(pem: &[u8]) -> Result<Vec<reqwest::Certificate>, Error> {
    let found = reqwest::Certificate::from_pem_bundle(pem);
    let found = found.map_err(|error| Error::Authority { detail: error.to_string() })?;
    if found.is_empty() {
        return Err(Error::Authority { detail: "it contains no certificate in PEM".into() });
    }
    Ok(found)
}

fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<std::net::IpAddr>();
    host == "localhost" || address.is_ok_and(|ip| ip.is_loopback())
}

fn bearer(token: &str) -> Result<HeaderValue, Error> {
    if token.is_empty() || !token.bytes().all(|b| b.is_ascii_graphic()) {
        return Err(Error::Token);
    }
    let mut value = HeaderValue::try_from(format!("Bearer {token}")).map_err(|_| Error::Token)?;
    value.set_sensitive(true);
    Ok(value)
}

/// Response with a success status.
pub(crate) struct ResponseBody {
    pub(crate) body: Bytes,
}

#[derive(Debug)]
enum Body {
    None,
    Bytes(&'static str, Bytes),
    File(PathBuf),
}

/// Request to the API, without the base URL and the token.
#[derive(Debug)]
pub(crate) struct Request {
    method: Method,
    path: Vec<String>,
    query: Vec<(&'static str, String)>,
    headers: HeaderMap,
    body: Body,
    repeat: Idempotency,
}

impl Request {
    fn new<S: ToString>(method: Method, repeat: Idempotency, path: impl IntoIterator<Item = S>) -> Self {
        let path = path.into_iter().map(|s| s.to_string()).collect();
        Self { method, path, query: Vec::new(), headers: HeaderMap::new(), body: Body::None, repeat }
    }

    pub(crate) fn get<S: ToString>(path: impl IntoIterator<Item = S>) -> Self {
        Self::new(Method::GET, Idempotency::Idempotent, path)
    }

    pub(crate) fn put<S: ToString>(path: impl IntoIterator<Item = S>) -> Self {
        Self::new(Method::PUT, Idempotency::Idempotent, path)
    }

    pub(crate) fn patch<S: ToString>(path: impl IntoIterator<Item = S>) -> Self {
        Self::new(Method::PATCH, Idempotency::Idempotent, path)
    }

    pub(crate) fn delete<S: ToString>(path: impl IntoIterator<Item = S>) -> Self {
        Self::new(Method::DELETE, Idempotency::NotIdempotent, path)
    }

    /// Creates a POST request. It is retried only if it had no effect; see [`Request::repeatable`].
    pub(crate) fn post<S: ToString>(path: impl IntoIterator<Item = S>) -> Self {
        Self::new(Method::POST, Idempotency::NotIdempotent, path)
    }

    /// Marks the request as idempotent: it is also retried if its outcome is unknown.
    pub(crate) fn repeatable(mut self) -> Self {
        self.repeat = Idempotency::Idempotent;
        self
    }

    /// Marks the request as not idempotent: it is retried only if it had no effect.
    pub(crate) fn once(mut self) -> Self {
        self.repeat = Idempotency::NotIdempotent;
        self
    }

    pub(crate) fn query(mut self, name: &'static str, value: impl ToString) -> Self {
        self.query.push((name, value.to_string()));
        self
    }

    pub(crate) fn query_opt(self, name: &'static str, value: Option<impl ToString>) -> Self {
        match value {
            Some(value) => self.query(name, value),
            None => self,
        }
    }

    pub(crate) fn page(self, page: &crate::Page) -> Self {
        self.query_opt("limit", page.limit).query_opt("cursor", page.cursor.as_ref())
    }

    /// Removes a query parameter.
    pub(crate) fn without_query(&mut self, name: &str) {
        self.query.retain(|(n, _)| *n != name);
    }

    /// Adds a header. An invalid value is ignored; callers pass valid values.
    pub(crate) fn header(mut self, name: &'static str, value: &str) -> Self {
        self.set_header(name, value);
        self
    }

    pub(crate) fn set_header(&mut self, name: &'static str, value: &str) {
        if let Ok(value) = HeaderValue::from_str(value) {
            self.headers.insert(HeaderName::from_static(name), value);
        }
    }

    pub(crate) fn if_match(self, version: Option<u64>) -> Self {
        match version {
            Some(version) => self.header("if-match", &format!("\"{version}\"")).once(),
            None => self,
        }
    }

    pub(crate) fn json(self, value: &impl Serialize) -> Self {
        self.json_as("application/json", value)
    }

    pub(crate) fn json_as(mut self, content_type: &'static str, value: &impl Serialize) -> Self {
        // Only maps whose keys are not strings cannot be serialized to JSON, and no request contains one.
        let bytes = serde_json::to_vec(value).expect("requests contain no map with keys other than strings");
        self.body = Body::Bytes(content_type, bytes.into());
        self
    }

    pub(crate) fn bytes(mut self, bytes: Bytes) -> Self {
        self.body = Body::Bytes("application/octet-stream", bytes);
        self
    }

    pub(crate) fn text(mut self, content_type: &'static str, text: &str) -> Self {
        self.body = Body::Bytes(content_type, Bytes::copy_from_slice(text.as_bytes()));
        self
    }

    pub(crate) fn file(mut self, path: PathBuf) -> Self {
        self.body = Body::File(path);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(url: &str) -> Result<Client, Error> {
        crate::install_crypto();
        Client::new(url, Some("bf_admin_x_secret"))
    }

    #[test]
    fn names_stay_one_segment_and_a_base_path_is_kept() {
        let client = client("http://127.0.0.1:7070/belfry/").unwrap();
        let request = Request::get(["artifacts", "a/../b c"]).query("namespace", "x&y");
        assert_eq!(
            client.address(&request).as_str(),
            "http://127.0.0.1:7070/belfry/api/v1/artifacts/a%2F..%2Fb%20c?namespace=x%26y"
        );
        assert_eq!(client.url(), "http://127.0.0.1:7070/belfry");
    }

    #[test]
    fn an_invalid_url_is_refused_without_showing_its_password() {
        for url in ["", "belfry", "ftp://x", "http://x/?a=1"] {
            assert!(matches!(client(url), Err(Error::Address { .. })), "{url}");
        }
        let error = client("http://root:hunter2@x").unwrap_err().to_string();
        assert!(!error.contains("hunter2"), "{error}");
    }

    #[test]
    fn no_output_contains_the_token() {
        let client = client("http://127.0.0.1:7070").unwrap();
        assert!(!format!("{client:?}").contains("secret"));
        crate::install_crypto();
        assert!(matches!(Client::new("http://x", Some("two words")), Err(Error::Token)));
    }

    #[test]
    fn a_text_without_a_certificate_is_no_authority() {
        crate::install_crypto();
        let garbage = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        for pem in ["", "no certificate", "-----BEGIN CERTIFICATE-----\n", garbage] {
            assert!(matches!(check_authority(pem.as_bytes()), Err(Error::Authority { .. })), "{pem}");
        }
    }

    #[test]
    fn only_loopback_is_safe_without_tls() {
        for (url, plaintext) in [
            ("http://127.0.0.1:1", false),
            ("http://[::1]:1", false),
            ("http://localhost", false),
            ("https://belfry.example", false),
            ("http://belfry.example", true),
        ] {
            assert_eq!(client(url).unwrap().is_plaintext(), plaintext, "{url}");
        }
    }
}
