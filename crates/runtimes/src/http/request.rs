//! Requests: the first one, and those that follow from it by a redirect or for a poll.
//!
//! # Invariant
//! Credentials (`Authorization`, cookies, user info in a URL) are sent only to the origin that the spec names, and
//! are lost for good when a redirect leads to another one.

use std::collections::BTreeMap;

use model::spec::{HttpMethod, HttpRun};
use reqwest::header::{
    AUTHORIZATION, COOKIE, HeaderMap, HeaderName, HeaderValue, LOCATION, PROXY_AUTHORIZATION,
};
use reqwest::{Method, StatusCode, Url};

use super::response::Response;
use super::variables::{Variables, substitute};
use crate::End;

/// Headers with the identity of the execution, and their variables.
const IDENTITY: [(&str, &str); 5] = [
    ("idempotency-key", "BELFRY_JOB_ID"),
    ("belfry-job-id", "BELFRY_JOB_ID"),
    ("belfry-execution-id", "BELFRY_EXECUTION_ID"),
    ("belfry-attempt", "BELFRY_ATTEMPT"),
    ("belfry-fence", "BELFRY_FENCE"),
];
/// Headers that another origin must not receive.
const CREDENTIALS: [HeaderName; 3] = [AUTHORIZATION, COOKIE, PROXY_AUTHORIZATION];

/// A request, which can be sent several times.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Request {
    pub(super) method: Method,
    /// May contain user info, which is sent as `Authorization`.
    pub(super) url: Url,
    /// Headers of the spec and of the identity.
    pub(super) headers: HeaderMap,
    pub(super) body: Option<String>,
}

impl Request {
    /// Returns the request of a spec, with the values of variables.
    pub(super) fn new(http: &HttpRun, variables: Variables<'_>) -> Result<Self, End> {
        let replace = |field: &str, text: &str| {
            substitute(field, text, variables)
                .map_err(|error| End::start_failed("unknown_variable", error.to_string()))
        };
        let url = replace("run.http.url", &http.url)?;
        let url = parse_url(&url, None).map_err(|problem| {
            End::start_failed("invalid_request", format!("invalid `run.http.url`: {problem}"))
        })?;
        let body = http.body.as_deref().map(|body| replace("run.http.body", body)).transpose()?;
        let mut values = BTreeMap::new();
        for (name, value) in &http.headers {
            values.insert(name, replace(&format!("run.http.headers.{name}"), value)?);
        }
        let mut headers = identity(variables);
        for (name, value) in values {
            let (name, value) = header(name, &value)?;
            headers.insert(name, value);
        }
        Ok(Self { method: method(http.effective_method()), url, headers, body })
    }

    /// Returns the type of the body, for a request whose headers have none.
    pub(super) fn content_type(&self) -> Option<&'static str> {
        let is_json = |body: &String| serde_json::from_str::<serde::de::IgnoredAny>(body).is_ok();
        let body = self.body.as_ref()?;
        Some(if is_json(body) { "application/json" } else { "text/plain; charset=utf-8" })
    }

    /// Returns the request that a redirect asks for; `None` if the response is no redirect.
    ///
    /// # Errors
    /// Returns why the location of the redirect is invalid.
    pub(super) fn redirected(&self, response: &Response) -> Option<Result<Self, String>> {
        use StatusCode as S;
        let becomes_get = match response.status {
            S::MOVED_PERMANENTLY | S::FOUND => self.method == Method::POST,
            S::SEE_OTHER => self.method != Method::HEAD,
            S::TEMPORARY_REDIRECT | S::PERMANENT_REDIRECT => false,
            _ => return None,
        };
        let location = response.header(&LOCATION)?;
        Some(parse_url(&location, Some(&self.url)).map(|url| {
            let next = self.to(url);
            if becomes_get { Self { method: Method::GET, body: None, ..next } } else { next }
        }))
    }

    /// Returns the request that polls a URL.
    pub(super) fn poll(&self, url: Url) -> Self {
        Self { method: Method::GET, body: None, ..self.to(url) }
    }

    /// Returns the request to another URL, without the credentials if the origin differs.
    fn to(&self, mut url: Url) -> Self {
        let mut headers = self.headers.clone();
        if url.origin() != self.url.origin() {
            for name in CREDENTIALS {
                headers.remove(name);
            }
        } else if url.username().is_empty() && url.password().is_none() {
            // They fail only for URLs without a host.
            let _ = url.set_username(self.url.username());
            let _ = url.set_password(self.url.password());
        }
        Self { method: self.method.clone(), url, headers, body: self.body.clone() }
    }
}

/// Parses a URL, relative to `base`, and checks that HTTP can reach it.
pub(super) fn parse_url(text: &str, base: Option<&Url>) -> Result<Url, String> {
    // Not the text: it may contain a password.
    let url =
        Url::options().base_url(base).parse(text).map_err(|error| format!("it is not a URL: {error}"))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(format!("expected `http` or `https` but got `{}`", url.scheme()));
    }
    Ok(url)
}

/// Returns the URL without user info, query and fragment, which may have secrets, for the log.
pub(super) fn shown_url(url: &Url) -> Url {
    let mut shown = url.clone();
    // They fail only for URLs without a host.
    let _ = shown.set_username("");
    let _ = shown.set_password(None);
    if shown.query().is_some() {
        shown.set_query(Some("..."));
    }
    shown.set_fragment(None);
    shown
}

fn identity(variables: Variables<'_>) -> HeaderMap {
    let headers = IDENTITY.iter().filter_map(|(name, variable)| {
        let value = HeaderValue::try_from(variables(variable)?).ok()?;
        Some((HeaderName::from_static(name), value))
    });
    headers.collect()
}

fn header(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), End> {
    let invalid = || {
        let problem = format!("invalid `run.http.headers.{name}`: it is not a header of HTTP");
        End::start_failed("invalid_request", problem)
    };
    let value = HeaderValue::from_bytes(value.as_bytes()).map_err(|_| invalid())?;
    Ok((HeaderName::try_from(name).map_err(|_| invalid())?, value))
}

fn method(method: HttpMethod) -> Method {
    match method {
        HttpMethod::Get => Method::GET,
        HttpMethod::Head => Method::HEAD,
        HttpMethod::Post => Method::POST,
        HttpMethod::Put => Method::PUT,
        HttpMethod::Patch => Method::PATCH,
        HttpMethod::Delete => Method::DELETE,
    }
}
