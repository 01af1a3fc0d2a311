//! The runtime `http`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::time::Duration;

/// An HTTP request that the worker sends. The execution succeeds if the response has an expected status and satisfies
/// `success_if`.
///
/// In `url`, `headers` and `body`, `${NAME}` is replaced by the variable `NAME` of the execution, for example
/// `${BELFRY_JOB_ID}`; `$${` is the text `${`. Each request has the headers `Idempotency-Key` (the id of the job),
/// `Belfry-Job-Id`, `Belfry-Execution-Id`, `Belfry-Attempt` and `Belfry-Fence`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct HttpRun {
    /// URL of the request, with `http` or `https`; at most 2,000 bytes.
    pub url: String,
    /// Method of the request [default: `GET`, or `POST` if there is a `body`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<HttpMethod>,
    /// Headers of the request; at most 100. `Host`, `Content-Length`, `Connection` and `Transfer-Encoding` are reserved.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// Body of the request [default: none]. Its type is `application/json` if it is JSON, and `text/plain` otherwise, unless
    /// `headers` has a `Content-Type`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
    /// Time in which each response must arrive completely; at most 24h [default: `5m`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_timeout: Option<Duration>,
    /// Status codes of success, as numbers (`204`), classes (`2xx`) or ranges (`200-204`); at most 32 [default: `["2xx"]`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub success_status: Vec<String>,
    /// Condition on the response, as an expression: `body.code == 0`. Names: `status` (number), `headers` (names in lower
    /// case), `body` (the JSON value, or the text), `elapsed_ms` [default: none].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub success_if: Option<String>,
    /// Outputs of the job, each as an expression over the response: `{"id": "body.data.id"}`. At most 64.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub outputs: BTreeMap<String, String>,
    /// How the worker waits for work that the response only accepts [default: the response is the result].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub poll: Option<HttpPoll>,
}

/// Polling of a service that accepts work and reports its result later. The execution continues until the work is done.
///
/// If the first response already satisfies `done_if`, it is the result. Otherwise `success_status`, `success_if` and `outputs` apply to the last response of
/// the polling.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct HttpPoll {
    /// URL to poll, with `GET`; `${response.NAME}` is the value of an expression over the first response: `${response.body.id}`
    /// [default: the header `Location` of the first response].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Time between two requests, 1s to 1h [default: `5s`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<Duration>,
    /// Condition under which the work is done, as an expression over the response [default: `status != 202`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub done_if: Option<String>,
}

/// Method of an HTTP request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum HttpMethod {
    /// `GET`.
    Get,
    /// `HEAD`.
    Head,
    /// `POST`.
    Post,
    /// `PUT`.
    Put,
    /// `PATCH`.
    Patch,
    /// `DELETE`.
    Delete,
}

crate::status::words! { HttpMethod, "an HTTP method", {
    Get = "GET";
    Head = "HEAD";
    Post = "POST";
    Put = "PUT";
    Patch = "PATCH";
    Delete = "DELETE";
} }

impl HttpRun {
    /// Default of `request_timeout`.
    pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(5 * 60);

    /// Returns the method of the request.
    pub fn effective_method(&self) -> HttpMethod {
        let default = if self.body.is_some() { HttpMethod::Post } else { HttpMethod::Get };
        self.method.unwrap_or(default)
    }
}

impl HttpPoll {
    /// Default of `interval`.
    pub const INTERVAL: Duration = Duration::from_secs(5);
}

/// A set of status codes, as in `success_status`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StatusRange {
    first: u16,
    last: u16,
}

impl StatusRange {
    /// Parses `204`, `2xx` or `200-204`; `None` for any other text.
    pub fn parse(text: &str) -> Option<Self> {
        let code = |text: &str| {
            let digits = text.len() == 3 && text.bytes().all(|b| b.is_ascii_digit());
            text.parse().ok().filter(|code| digits && (100..600).contains(code))
        };
        if let Some(class) = text.strip_suffix("xx") {
            let first: u16 = code(&format!("{class}00"))?;
            return Some(Self { first, last: first + 99 });
        }
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let (first, last) = (code(first)?, code(last)?);
        (first <= last).then_some(Self { first, last })
    }

    /// Returns whether a status code is in the set.
    pub fn contains(self, status: u16) -> bool {
        (self.first..=self.last).contains(&status)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_of_status_codes_is_a_number_a_class_or_a_range() {
        let has = |text: &str, status| StatusRange::parse(text).map(|range| range.contains(status));
        assert_eq!([has("204", 204), has("204", 205)], [Some(true), Some(false)]);
        assert_eq!([has("2xx", 299), has("2xx", 300)], [Some(true), Some(false)]);
        assert_eq!([has("200-404", 404), has("200-404", 405)], [Some(true), Some(false)]);
        for wrong in ["", "2", "xx", "2XX", "600", "99", "300-200", "200-", "+20", "20x"] {
            assert_eq!(StatusRange::parse(wrong), None, "{wrong}");
        }
    }
}
