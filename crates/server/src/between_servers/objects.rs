//! Requests for [copies of objects](crate::objects).
//!
//! ```text
//! PUT    /internal/objects/data/KEY              store an object
//! GET    /internal/objects/data/KEY              bytes of an object, or 204
//! HEAD   /internal/objects/data/KEY              size of an object, or 204
//! POST   /internal/objects/delete                delete objects that no row needs
//! GET    /internal/objects/recent?after=N        keys of the objects that the server has stored as the first one
//! GET    /internal/objects/folders               folders of objects
//! GET    /internal/objects/names?folder=F&digest=D   names of a folder, or 204 if they have this digest
//! ```

use std::collections::BTreeSet;
use std::io;
use std::path::Path as FilePath;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use axum::body::Body;
use axum::extract::{DefaultBodyLimit, Path, Query, Request, State};
use axum::http::header::CONTENT_LENGTH;
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post, put};
use axum::{Json, Router};
use futures::StreamExt as _;
use model::error_chain::Chain;
use object_store::path::Path as Key;
use serde::Deserialize;
use store::cluster::ServerRecord;
use tokio::sync::Semaphore;
use tokio_util::io::ReaderStream;

use super::{PATIENCE, RequestError, Requests};
use crate::objects::copies::servers::{RecentKeys, ServerError, Servers, ServersNow};
use crate::objects::copies::{Copies, checked_folder, checked_key, digest};
use crate::objects::{ByteStream, ObjectError};
use crate::raft_member::RaftMember;

const DATA: &str = "/internal/objects/data/";
const DELETE: &str = "/internal/objects/delete";
const RECENT: &str = "/internal/objects/recent";
const FOLDERS: &str = "/internal/objects/folders";
const NAMES: &str = "/internal/objects/names";
/// Slowest accepted transfer of a whole object, in bytes per second.
const BYTES_PER_SECOND_MIN: u64 = 256 * 1024;
/// Size of the pieces of a file, in bytes.
const PIECE_BYTES: usize = 256 * 1024;
/// Objects that are received or sent at a time for all servers.
const TRANSFERS: usize = 128;

/// The other servers of the cluster, over HTTP.
pub(crate) struct HttpServers {
    requests: Arc<Requests>,
    raft: Option<Arc<RaftMember>>,
}

impl HttpServers {
    /// Creates it. `raft` knows the voters of a Raft cluster.
    pub(crate) fn new(requests: Arc<Requests>, raft: Option<Arc<RaftMember>>) -> Self {
        Self { requests, raft }
    }
}

impl From<RequestError> for ServerError {
    fn from(error: RequestError) -> Self {
        match error {
            RequestError::NotServed { server } => Self::KeepsNone { server },
            RequestError::Failed { action, server, source } => Self::Failed { action, server, source },
        }
    }
}

fn failure<'a>(
    action: &'static str,
    server: &'a ServerRecord,
) -> impl Fn(Box<dyn std::error::Error + Send + Sync>) -> ServerError + use<'a> {
    move |source| ServerError::Failed { action, server: server.name.clone(), source }
}

fn nothing() -> Box<dyn std::error::Error + Send + Sync> {
    "its answer is empty".into()
}

/// Returns the longest time that a transfer of these bytes may take.
fn patience_for(bytes: u64) -> Duration {
    PATIENCE + Duration::from_secs(bytes / BYTES_PER_SECOND_MIN)
}

#[async_trait]
impl Servers for HttpServers {
    fn now(&self) -> ServersNow {
        let others = self.requests.others();
        let voters = self
            .raft
            .as_ref()
            .map(|raft| raft.store().status().members.iter().filter(|member| member.is_voter).count());
        let total = voters.unwrap_or(others.len() + 1);
        ServersNow { others, total }
    }

    async fn put(&self, to: &ServerRecord, key: &Key, file: &FilePath) -> Result<(), ServerError> {
        const ACTION: &str = "send an object to";
        let fails = failure(ACTION, to);
        let file = tokio::fs::File::open(file).await.map_err(|error| fails(error.into()))?;
        let bytes = file.metadata().await.map_err(|error| fails(error.into()))?.len();
        let body = reqwest::Body::wrap_stream(ReaderStream::with_capacity(file, PIECE_BYTES));
        let request =
            self.requests.request(Method::PUT, to, &path_of(key)).header(CONTENT_LENGTH, bytes).body(body);
        Ok(self.requests.send(ACTION, to, request, patience_for(bytes)).await.map(drop)?)
    }

    async fn get(&self, from: &ServerRecord, key: &Key) -> Result<Option<ByteStream>, ServerError> {
        let request = self.requests.request(Method::GET, from, &path_of(key));
        let answer = self.requests.send("get an object of", from, request, PATIENCE).await?;
        if answer.status() == StatusCode::NO_CONTENT {
            return Ok(None);
        }
        let key = key.to_string();
        let pieces = tokio_stream::StreamExt::timeout(answer.bytes_stream(), PATIENCE);
        let pieces = pieces.map(move |piece| {
            let interrupted = |source| ObjectError::Interrupted { name: key.clone(), source };
            piece.map_err(|late| interrupted(late.into()))?.map_err(|error| interrupted(error.into()))
        });
        Ok(Some(pieces.boxed()))
    }

    async fn size(&self, at: &ServerRecord, key: &Key) -> Result<Option<u64>, ServerError> {
        const ACTION: &str = "find an object at";
        let answer = self
            .requests
            .send(ACTION, at, self.requests.request(Method::HEAD, at, &path_of(key)), PATIENCE)
            .await?;
        if answer.status() == StatusCode::NO_CONTENT {
            return Ok(None);
        }
        let length =
            answer.headers().get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
        length.map(Some).ok_or_else(|| failure(ACTION, at)(nothing()))
    }

    async fn delete(&self, at: &ServerRecord, keys: &[Key]) -> Result<(), ServerError> {
        let keys: Vec<String> = keys.iter().map(Key::to_string).collect();
        let request = self.requests.request(Method::POST, at, DELETE).json(&keys);
        Ok(self.requests.send("delete objects at", at, request, 3 * PATIENCE).await.map(drop)?)
    }

    async fn recent(&self, at: &ServerRecord, after: u64) -> Result<RecentKeys, ServerError> {
        const ACTION: &str = "read the recent objects of";
        let recent = self.requests.read(ACTION, at, &format!("{RECENT}?after={after}")).await?;
        recent.ok_or_else(|| failure(ACTION, at)(nothing()))
    }

    async fn folders(&self, at: &ServerRecord) -> Result<BTreeSet<String>, ServerError> {
        const ACTION: &str = "list the objects of";
        self.requests.read(ACTION, at, FOLDERS).await?.ok_or_else(|| failure(ACTION, at)(nothing()))
    }

    async fn names(
        &self,
        at: &ServerRecord,
        folder: &str,
        digest: &str,
    ) -> Result<Option<BTreeSet<String>>, ServerError> {
        // Names of folders need no encoding: a key has only safe characters.
        let path = format!("{NAMES}?folder={folder}&digest={digest}");
        Ok(self.requests.read("list the objects of", at, &path).await?)
    }
}

fn path_of(key: &Key) -> String {
    format!("{DATA}{key}")
}

/// State of the handlers.
#[derive(Clone)]
struct Exchange {
    copies: Arc<Copies>,
    transfers: Arc<Semaphore>,
}

/// Returns the routes of a server that keeps copies.
pub(super) fn router(copies: Arc<Copies>) -> Router {
    Router::new()
        .route(&format!("{DATA}{{*key}}"), put(put_object).get(get_object).layer(DefaultBodyLimit::disable()))
        .route(DELETE, post(delete_objects))
        .route(RECENT, get(recent_keys))
        .route(FOLDERS, get(folders))
        .route(NAMES, get(names))
        .with_state(Exchange { copies, transfers: Arc::new(Semaphore::new(TRANSFERS)) })
}

/// Why a request of another server failed.
struct Refused(StatusCode, String);

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        (self.0, self.1).into_response()
    }
}

impl From<ObjectError> for Refused {
    fn from(error: ObjectError) -> Self {
        let status = match error.is_full() {
            true => StatusCode::INSUFFICIENT_STORAGE,
            false => StatusCode::SERVICE_UNAVAILABLE,
        };
        let text = Chain(&error).to_string();
        tracing::warn!(error = text, "cannot serve a request for objects of another server");
        Self(status, text)
    }
}

fn key_in(text: &str) -> Result<Key, Refused> {
    checked_key(text)
        .ok_or_else(|| Refused(StatusCode::BAD_REQUEST, format!("`{text}` is no key of an object")))
}

async fn put_object(
    State(exchange): State<Exchange>,
    Path(key): Path<String>,
    request: Request,
) -> Result<(), Refused> {
    let key = key_in(&key)?;
    let length = request.headers().get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    let size =
        length.ok_or_else(|| Refused(StatusCode::LENGTH_REQUIRED, "expected `content-length`".into()))?;
    // The semaphore is never closed.
    let _place = exchange.transfers.acquire().await;
    let pieces = tokio_stream::StreamExt::timeout(request.into_body().into_data_stream(), PATIENCE);
    let pieces = pieces.map(|piece| piece.map_err(io::Error::other)?.map_err(io::Error::other));
    exchange.copies.receive(&key, Some(size), pieces).await?;
    Ok(())
}

async fn get_object(
    State(exchange): State<Exchange>,
    Path(key): Path<String>,
    method: Method,
) -> Result<Response, Refused> {
    let key = key_in(&key)?;
    if method == Method::HEAD {
        let Some(size) = exchange.copies.size_here(&key).await? else {
            return Ok(StatusCode::NO_CONTENT.into_response());
        };
        return Ok(([(CONTENT_LENGTH, size)], Body::empty()).into_response());
    }
    let Some((file, size)) = exchange.copies.open_file(&key).await? else {
        return Ok(StatusCode::NO_CONTENT.into_response());
    };
    let pieces = ReaderStream::with_capacity(file, PIECE_BYTES);
    Ok(([(CONTENT_LENGTH, size)], Body::from_stream(pieces)).into_response())
}

async fn delete_objects(
    State(exchange): State<Exchange>,
    Json(keys): Json<Vec<String>>,
) -> Result<(), Refused> {
    let keys: Vec<Key> = keys.iter().map(|key| key_in(key)).collect::<Result<_, _>>()?;
    Ok(exchange.copies.delete_here(&keys).await?)
}

#[derive(Deserialize)]
struct After {
    after: u64,
}

async fn recent_keys(
    State(exchange): State<Exchange>,
    Query(After { after }): Query<After>,
) -> Json<RecentKeys> {
    Json(exchange.copies.recent_after(after))
}

async fn folders(State(exchange): State<Exchange>) -> Result<Json<BTreeSet<String>>, Refused> {
    Ok(Json(exchange.copies.folders_here().await?))
}

#[derive(Deserialize)]
struct NamesQuery {
    folder: String,
    digest: String,
}

async fn names(
    State(exchange): State<Exchange>,
    Query(query): Query<NamesQuery>,
) -> Result<Response, Refused> {
    let unknown = || Refused(StatusCode::BAD_REQUEST, format!("`{}` is no folder of objects", query.folder));
    let folder = checked_folder(&query.folder).ok_or_else(unknown)?;
    let names = exchange.copies.names_here(&folder).await?;
    if digest(&names) == query.digest {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    Ok(Json(names).into_response())
}
