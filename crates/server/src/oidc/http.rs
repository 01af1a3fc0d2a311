//! Requests to the provider: only to addresses that the settings allow, with limits on time and size.

use std::sync::Arc;
use std::time::Duration;

use model::error_chain::Chain;
use reqwest::{Client, RequestBuilder, Url};
use serde::de::DeserializeOwned;

use super::Failure;
use crate::networks::{Networks, guarded_client};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const TIMEOUT: Duration = Duration::from_secs(10);
/// Longest response, in bytes.
const RESPONSE_BYTES_MAX: usize = 1 << 20;

/// Sends requests to the provider.
#[derive(Debug)]
pub(super) struct Http {
    client: Client,
    networks: Arc<Networks>,
    /// Whether the issuer has no TLS, which only a loopback address may have.
    is_plaintext: bool,
}

/// Response of the provider.
pub(super) struct Answer {
    pub(super) is_success: bool,
    status: u16,
    body: Vec<u8>,
}

impl Answer {
    /// Reads JSON. The error does not contain the response, which may have tokens.
    pub(super) fn json<T: DeserializeOwned>(&self, what: &str) -> Result<T, Failure> {
        serde_json::from_slice(&self.body).map_err(|error| {
            let (status, line, column) = (self.status, error.line(), error.column());
            Failure::invalid(format!("{what} (status {status}) is not valid at line {line} column {column}"))
        })
    }

    /// Returns the failure for a response without success.
    pub(super) fn failure(&self, what: &str) -> Failure {
        Failure::unavailable(format!("{what}: the provider answered with status {}", self.status))
    }
}

impl Http {
    pub(super) fn new(networks: Networks, is_plaintext: bool) -> Self {
        let networks = Arc::new(networks);
        let client = guarded_client(&networks, CONNECT_TIMEOUT, TIMEOUT);
        Self { client, networks, is_plaintext }
    }

    /// Checks an endpoint that the provider names.
    pub(super) fn endpoint(&self, name: &str, url: &str) -> Result<Url, Failure> {
        let url = Url::parse(url)
            .map_err(|error| Failure::invalid(format!("`{name}` of the provider is not a URL: {error}")))?;
        let is_allowed = url.scheme() == "https" || self.is_plaintext && url.scheme() == "http";
        if !is_allowed {
            return Err(Failure::invalid(format!("`{name}` of the provider does not use HTTPS")));
        }
        Ok(url)
    }

    pub(super) async fn get<T: DeserializeOwned>(&self, what: &str, url: Url) -> Result<T, Failure> {
        let answer = self.send(what, &url, self.client.get(url.clone())).await?;
        if answer.is_success { answer.json(what) } else { Err(answer.failure(what)) }
    }

    pub(super) async fn get_as<T: DeserializeOwned>(
        &self,
        what: &str,
        url: Url,
        token: &str,
    ) -> Result<T, Failure> {
        let answer = self.send(what, &url, self.client.get(url.clone()).bearer_auth(token)).await?;
        if answer.is_success { answer.json(what) } else { Err(answer.failure(what)) }
    }

    /// Sends a form, with the client's credentials in a header if there are any.
    pub(super) async fn post_form(
        &self,
        what: &str,
        url: Url,
        basic: Option<String>,
        form: String,
    ) -> Result<Answer, Failure> {
        let request = self.client.post(url.clone()).body(form);
        let request = request.header("content-type", "application/x-www-form-urlencoded");
        let request = request.header("accept", "application/json");
        let request = match basic {
            Some(credentials) => request.header("authorization", format!("Basic {credentials}")),
            None => request,
        };
        self.send(what, &url, request).await
    }

    async fn send(&self, what: &str, url: &Url, request: RequestBuilder) -> Result<Answer, Failure> {
        let forbidden = |error: crate::networks::Forbidden| Failure::unavailable(format!("{what}: {error}"));
        self.networks.check_url(url).map_err(forbidden)?;
        let failed =
            |error: reqwest::Error| Failure::unavailable(format!("{what}: {}", Chain(&error.without_url())));
        let mut response = request.send().await.map_err(failed)?;
        let (is_success, status) = (response.status().is_success(), response.status().as_u16());
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(failed)? {
            body.extend_from_slice(&chunk);
            if body.len() > RESPONSE_BYTES_MAX {
                return Err(Failure::invalid(format!("{what}: the response is too long")));
            }
        }
        Ok(Answer { is_success, status, body })
    }
}
