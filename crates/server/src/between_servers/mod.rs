//! Requests of servers to each other, over HTTP: [copies of objects](objects), and the [secret key](secret_key).
//!
//! # Invariants
//! - Only servers of the store are served. They prove [their key](crate::peers), or behind a proxy send a
//!   [mark](crate::marks) of method and path.
//! - Other callers get the answer of a path that does not exist.

pub(crate) mod objects;
pub(crate) mod secret_key;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderName, HeaderValue, Method, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use reqwest::Client;
use serde::de::DeserializeOwned;
use store::cluster::ServerRecord;

use crate::alerts::AlertService;
use crate::marks::Marks;
use crate::members::Members;
use crate::objects::copies::Copies;
use crate::peers::FromServer;
use crate::server_clients::{HttpsEnd, ServerClients};

/// Header with the mark of a server.
const FROM: HeaderName = HeaderName::from_static("x-belfry-server");
const PURPOSE: &str = "belfry between servers v1";
/// Longest wait for the answer to a small request, and longest pause within a body.
const PATIENCE: Duration = Duration::from_secs(10);

/// Why another server did not answer as it should.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RequestError {
    /// The server does not serve such requests: its release is older, or its settings differ.
    #[error("server `{server}` does not serve such requests")]
    NotServed {
        /// Name of the server.
        server: String,
    },
    /// The request failed.
    #[error("cannot {action} server `{server}`")]
    Failed {
        /// What failed, such as `send an object to`.
        action: &'static str,
        /// Name of the server.
        server: String,
        /// Cause.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl RequestError {
    fn failed(
        action: &'static str,
        server: &ServerRecord,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self::Failed { action, server: server.name.clone(), source: source.into() }
    }
}

/// Sends requests to other servers.
pub(crate) struct Requests {
    members: Members,
    clients: ServerClients,
    marks: Marks,
}

impl Requests {
    /// Creates it with the key in the store that marks requests.
    pub(crate) fn new(members: Members, key: [u8; 32], https_end: HttpsEnd) -> Self {
        Self { members, clients: ServerClients::new(https_end), marks: Marks::new(key, PURPOSE) }
    }

    /// Returns the servers that are present, without this one.
    fn others(&self) -> Vec<ServerRecord> {
        let (seen, me) = (self.members.cluster_reading(), self.members.me());
        let mut others: Vec<ServerRecord> = Vec::new();
        // A server that was restarted may be there twice; the later one has the newer key.
        for member in seen.cluster.members.iter().rev() {
            let server = &member.server;
            let is_known = server.id == me.id
                || server.url.is_none()
                || server.url == me.url
                || others.iter().any(|other| other.url == server.url);
            if !is_known {
                others.push(server.clone());
            }
        }
        others
    }

    /// Returns the client for a server, and the URL to use.
    pub(crate) fn client_for(&self, server: &ServerRecord) -> (Client, String) {
        self.clients.client_for(self.members.identity(), server)
    }

    fn request(&self, method: Method, to: &ServerRecord, path: &str) -> reqwest::RequestBuilder {
        let (client, url) = self.client_for(to);
        let mark = self.marks.mark(self.members.me().id, &[method.as_str(), path]);
        client.request(method, format!("{url}{path}")).header(FROM, mark)
    }

    /// Sends a request. Returns the answer, or the error that it is.
    async fn send(
        &self,
        action: &'static str,
        to: &ServerRecord,
        request: reqwest::RequestBuilder,
        patience: Duration,
    ) -> Result<reqwest::Response, RequestError> {
        let answer = match tokio::time::timeout(patience, request.send()).await {
            Ok(answer) => answer.map_err(|error| RequestError::failed(action, to, error))?,
            Err(_) => {
                let problem = format!("it did not answer within {} s", patience.as_secs());
                return Err(RequestError::failed(action, to, problem));
            }
        };
        match answer.status() {
            status if status.is_success() => Ok(answer),
            StatusCode::NOT_FOUND => Err(RequestError::NotServed { server: to.name.clone() }),
            status => {
                let reason = tokio::time::timeout(PATIENCE, answer.text()).await;
                let reason: String = reason.map(Result::unwrap_or_default).unwrap_or_default();
                let reason: String = reason.chars().take(300).collect();
                Err(RequestError::failed(action, to, format!("it answered {status}: {reason}")))
            }
        }
    }

    /// Reads a JSON answer; `None` if it has no content.
    async fn read<T: DeserializeOwned>(
        &self,
        action: &'static str,
        from: &ServerRecord,
        path: &str,
    ) -> Result<Option<T>, RequestError> {
        let answer = self.send(action, from, self.request(Method::GET, from, path), PATIENCE).await?;
        if answer.status() == StatusCode::NO_CONTENT {
            return Ok(None);
        }
        let read = tokio::time::timeout(PATIENCE, answer.json::<T>()).await;
        let read = read.map_err(|late| RequestError::failed(action, from, late))?;
        read.map(Some).map_err(|error| RequestError::failed(action, from, error))
    }
}

/// Returns the routes for other servers. `key` in the store verifies their marks.
pub(crate) fn router(alerts: Arc<AlertService>, copies: Option<Arc<Copies>>, key: [u8; 32]) -> Router {
    let marks = Arc::new(Marks::new(key, PURPOSE));
    let router = secret_key::router(alerts);
    let router = match copies {
        Some(copies) => router.merge(objects::router(copies)),
        None => router,
    };
    router.layer(from_fn_with_state(marks, only_servers))
}

/// Refuses callers that are no servers of the store.
async fn only_servers(State(marks): State<Arc<Marks>>, request: Request, next: Next) -> Response {
    match request.extensions().get::<FromServer>().is_some() || is_marked(&marks, &request) {
        true => next.run(request).await,
        false => StatusCode::NOT_FOUND.into_response(),
    }
}

fn is_marked(marks: &Marks, request: &Request) -> bool {
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
    let mark = request.headers().get(FROM).map(HeaderValue::as_bytes);
    mark.is_some_and(|mark| marks.is_ours(mark, &[request.method().as_str(), path]))
}
