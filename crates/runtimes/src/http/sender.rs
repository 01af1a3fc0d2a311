//! Sends requests: connections, redirects, time limits, and the delays that a server asks for.
//!
//! [`Sender`] follows redirects itself, because each of them needs a check of its address, a line in the log, and
//! maybe a client with TLS. There are two clients: the one without TLS works on a machine without root certificates
//! too.
//!
//! # Invariant
//! `has_sent` of a [`Sender`] is false only while no byte of a request has left this machine. Then another attempt is
//! safe.

use std::cell::OnceCell;
use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use model::error_chain::Chain;
use reqwest::header::CONTENT_TYPE;
use reqwest::{Client, Url, redirect};

use super::address::{self, NotAllowed, Resolver};
use super::log::Log;
use super::request::Request;
use super::response::Response;
use crate::End;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Most redirects of one request.
const REDIRECTS_MAX: usize = 10;
/// Most bytes of a body that are read.
pub(super) const BODY_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Longest wait for an overloaded server.
const RETRY_DELAY_MAX: Duration = Duration::from_secs(5 * 60);
/// Most waits of one request for an overloaded server.
const RETRIES_MAX: usize = 10;

/// Why there is no response.
#[derive(Debug, thiserror::Error)]
pub(super) enum SendError {
    #[error(transparent)]
    NotAllowed(#[from] NotAllowed),
    #[error("cannot use TLS: {reason}")]
    Tls { reason: String },
    #[error("cannot connect to `{server}`: {reason}")]
    Connect { server: String, reason: String },
    #[error("no complete response from `{server}` within {timeout}")]
    Timeout { server: String, timeout: model::Duration },
    #[error("the request to `{server}` failed: {reason}")]
    Request { server: String, reason: String },
    #[error("the response of `{server}` has more than {BODY_BYTES_MAX} bytes")]
    TooLarge { server: String },
    #[error("cannot follow the redirect of `{server}`: {reason}")]
    Redirect { server: String, reason: String },
    #[error("there are more than {REDIRECTS_MAX} redirects")]
    TooManyRedirects,
}

impl SendError {
    fn code(&self) -> &'static str {
        match self {
            Self::NotAllowed(_) => "address_not_allowed",
            Self::Tls { .. } => "tls_unavailable",
            Self::Connect { .. } => "connect_failed",
            Self::Timeout { .. } => "request_timeout",
            Self::Request { .. } => "request_failed",
            Self::TooLarge { .. } => "response_too_large",
            Self::Redirect { .. } | Self::TooManyRedirects => "redirect_failed",
        }
    }

    /// Returns whether the same request may succeed later.
    pub(super) fn is_transient(&self) -> bool {
        matches!(self, Self::Connect { .. } | Self::Timeout { .. } | Self::Request { .. })
    }
}

/// Sends the requests of one execution, one after another.
pub(super) struct Sender {
    timeout: model::Duration,
    plain: OnceCell<Client>,
    tls: OnceCell<Client>,
    has_sent: bool,
}

impl Sender {
    /// `timeout` limits each request, with its response.
    pub(super) fn new(timeout: model::Duration) -> Self {
        Self { timeout, plain: OnceCell::new(), tls: OnceCell::new(), has_sent: false }
    }

    /// Returns how the execution ends with an error. It may run again safely if nothing was sent.
    pub(super) fn end(&self, error: &SendError) -> End {
        if self.has_sent {
            End::failed(error.code(), error.to_string())
        } else {
            End::start_failed(error.code(), error.to_string())
        }
    }

    /// Sends a request, and waits for an overloaded server if it says how long.
    pub(super) async fn send(&mut self, request: &Request, log: &mut Log<'_>) -> Result<Response, SendError> {
        let mut retries = 0;
        loop {
            let response = self.follow(request, log).await?;
            match response.retry_after(jiff::Timestamp::now()) {
                Some(delay) if retries < RETRIES_MAX => {
                    let delay = delay.min(RETRY_DELAY_MAX);
                    retries += 1;
                    let shown = model::Duration::from_secs(delay.as_secs());
                    log.message(format_args!(
                        "the server asks for a delay: sending the request again in {shown}"
                    ));
                    tokio::time::sleep(delay).await;
                }
                _ => return Ok(response),
            }
        }
    }

    /// Sends a request, and follows its redirects.
    async fn follow(&mut self, request: &Request, log: &mut Log<'_>) -> Result<Response, SendError> {
        let mut redirected: Option<Request> = None;
        for _ in 0..=REDIRECTS_MAX {
            let current = redirected.as_ref().unwrap_or(request);
            let response = self.send_once(current, log).await?;
            let next = match current.redirected(&response) {
                None => {
                    log.body(&response);
                    return Ok(response);
                }
                Some(next) => next,
            };
            let server = server(&current.url);
            redirected = Some(next.map_err(|reason| SendError::Redirect { server, reason })?);
        }
        Err(SendError::TooManyRedirects)
    }

    async fn send_once(&mut self, request: &Request, log: &mut Log<'_>) -> Result<Response, SendError> {
        address::check_url(&request.url)?;
        let client = self.client(&request.url)?;
        log.request(request);
        let exchange = tokio::time::timeout(self.timeout.to_std(), exchange(client, request));
        let result = exchange.await.unwrap_or_else(|_elapsed| {
            Err(SendError::Timeout { server: server(&request.url), timeout: self.timeout })
        });
        self.has_sent |= !matches!(result, Err(SendError::NotAllowed(_) | SendError::Connect { .. }));
        let response = result?;
        log.response(&response);
        Ok(response)
    }

    fn client(&self, url: &Url) -> Result<&Client, SendError> {
        let (cell, roots) =
            if url.scheme() == "https" { (&self.tls, Roots::System) } else { (&self.plain, Roots::None) };
        if let Some(client) = cell.get() {
            return Ok(client);
        }
        let client = build_client(roots)
            .map_err(|error| SendError::Tls { reason: Chain(&error.without_url()).to_string() })?;
        Ok(cell.get_or_init(|| client))
    }
}

/// Root certificates that a client trusts.
enum Roots {
    None,
    System,
}

fn build_client(roots: Roots) -> reqwest::Result<Client> {
    // Fails if the program has already installed a provider.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let builder = Client::builder()
        .user_agent(concat!("belfry/", env!("CARGO_PKG_VERSION")))
        .dns_resolver(Arc::new(Resolver))
        .redirect(redirect::Policy::none())
        .connect_timeout(CONNECT_TIMEOUT);
    match roots {
        Roots::None => builder.tls_certs_only([]).build(),
        Roots::System => builder.build(),
    }
}

/// Sends one request, and reads its response.
async fn exchange(client: &Client, request: &Request) -> Result<Response, SendError> {
    let mut sent =
        client.request(request.method.clone(), request.url.clone()).headers(request.headers.clone());
    if let Some(body) = &request.body {
        sent = sent.body(body.clone());
    }
    if let Some(content_type) = request.content_type()
        && !request.headers.contains_key(CONTENT_TYPE)
    {
        sent = sent.header(CONTENT_TYPE, content_type);
    }
    let started = Instant::now();
    let failed = |error| send_error(&request.url, error);
    let mut response = sent.send().await.map_err(failed)?;
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(failed)? {
        if body.len() + chunk.len() > BODY_BYTES_MAX {
            return Err(SendError::TooLarge { server: server(&request.url) });
        }
        body.extend_from_slice(&chunk);
    }
    Ok(Response {
        status: response.status(),
        url: request.url.clone(),
        headers: std::mem::take(response.headers_mut()),
        body,
        elapsed: started.elapsed(),
        value: OnceCell::new(),
    })
}

fn send_error(url: &Url, error: reqwest::Error) -> SendError {
    let is_connect = error.is_connect();
    let error = error.without_url();
    if let Some(refused) = causes(&error).find_map(|cause| cause.downcast_ref::<NotAllowed>()) {
        return SendError::NotAllowed(refused.clone());
    }
    // The other errors of the chain name the layers of the client.
    let reason = causes(&error).last().map(ToString::to_string).unwrap_or_default();
    let server = server(url);
    if is_connect { SendError::Connect { server, reason } } else { SendError::Request { server, reason } }
}

fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |error| (*error).source())
}

/// Returns the host of a URL, with its port if the URL has one.
fn server(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}
