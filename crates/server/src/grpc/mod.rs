//! The gRPC service of workers, on the same listener as the REST API.
//!
//! Workers open all streams. Each call carries a worker's token. A stream ends when its token is revoked or expires.
//!
//! - `session`: assignments to a worker, and its reports; `heartbeat`: heartbeats and leases.
//! - `secrets`: values of secrets for executions; `sessions`: the open sessions, by which they are given out.
//! - `logs`: log output of executions; `artifacts`: their files; `tasks`: requests of running tasks.
//! - `audited`: entries of the audit log.
//! - `convert`: translates messages into inputs of the engine, and effects into messages.
//!
//! # Invariants
//! - A malformed message closes its stream with a status that names the problem, and is counted.
//! - A worker that does not read its messages delays only itself.

mod artifacts;
mod audited;
pub(crate) mod convert;
mod heartbeat;
mod logs;
mod secrets;
mod session;
mod sessions;
mod tasks;

use audit::{Entry, Outcome};
use axum::Router;
use model::WorkerId;
use proto::v1::worker_server::{Worker, WorkerServer};
use proto::v1::{
    AddElementsRequest, AddElementsResponse, ArtifactChunk, Checkpoint, GetArtifactRequest,
    GetCheckpointRequest, GetEndpointsRequest, GetEndpointsResponse, GetSecretsRequest, GetSecretsResponse,
    Heartbeat, LeaseGrant, LogAck, LogChunk, PutArtifactRequest, PutArtifactResponse, SaveCheckpointRequest,
    SaveCheckpointResponse, ServerMessage, WorkerMessage,
};
use tonic::{Request, Response, Status, Streaming};

use crate::auth::{Actor, Resource, RightsWatch, Verb, token};
use crate::listener::Peer;
use crate::services::Services;
use sessions::Sessions;

/// Largest accepted message: a batch of reports with their output values.
const MESSAGE_BYTES_MAX: usize = 4 << 20;
/// Longest wait for the first message of a stream.
const FIRST_MESSAGE_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(10);

type Replies<T> = futures::stream::BoxStream<'static, Result<T, Status>>;

/// Returns the routes of the gRPC service.
pub fn router(services: Services) -> Router {
    let lanes = WorkerServer::new(WorkerService { services, sessions: Sessions::default() })
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(MESSAGE_BYTES_MAX);
    Router::new().route_service("/belfry.worker.v1.Worker/{call}", lanes)
}

/// Implementation of the gRPC service.
struct WorkerService {
    services: Services,
    sessions: Sessions,
}

impl WorkerService {
    /// Authenticates a worker, and authorizes it for `resource`. Returns its rights, which streams watch.
    async fn admit<T>(&self, request: &Request<T>, resource: Resource) -> Result<RightsWatch, Status> {
        let metadata = request.metadata();
        let token = metadata.get("authorization").and_then(|value| value.to_str().ok());
        let token =
            token.and_then(|text| text.strip_prefix("Bearer ").or_else(|| text.strip_prefix("bearer ")));
        let identity = match token {
            Some(token) => {
                let found = self.services.access.authenticate(token.trim()).await;
                found.map_err(|error| Status::unavailable(error.to_string()))?
            }
            None => None,
        };
        let identity = identity.ok_or_else(|| {
            self.services.metrics.worker_stream_closed("unauthenticated");
            let token_id = token.and_then(|token| token::parse(token.trim())).map(|parsed| parsed.id);
            let caller = token_id.and_then(|id| audited::bearer(&self.services, id));
            self.denied(caller, request, resource, "unauthenticated");
            Status::unauthenticated(
                "authentication failed: expected `authorization: Bearer bf_worker_…` with a valid token",
            )
        })?;
        let actor = Actor::new(identity, Verb::Work, resource);
        actor.check_route().map_err(|denied| {
            self.services.metrics.worker_stream_closed("denied");
            self.denied(Some(audited::caller(actor.identity())), request, resource, "forbidden");
            Status::permission_denied(denied.to_string())
        })?;
        Ok(RightsWatch::new(&self.services.access, actor.identity()))
    }

    /// Makes an entry of the audit log for a caller that is no worker.
    fn denied<T>(
        &self,
        caller: Option<audited::Caller>,
        request: &Request<T>,
        resource: Resource,
        code: &'static str,
    ) {
        let Some(caller) = caller else { return };
        let address = request.extensions().get::<Peer>().map(|peer| peer.address());
        let entry = audited::entry(&self.services, &caller, "connect_worker", resource);
        self.services.audit.not_succeeded(Entry {
            address: address.map(|address| address.to_string()),
            outcome: Outcome::Denied,
            code: Some(code.to_owned()),
            ..entry
        });
    }
}

/// Returns the end of a stream whose worker has lost its token.
fn revoked() -> Status {
    Status::unauthenticated(
        "the worker's token was revoked or has expired: start the worker with a new token",
    )
}

#[tonic::async_trait]
impl Worker for WorkerService {
    type SessionStream = Replies<ServerMessage>;
    type HeartbeatStream = Replies<LeaseGrant>;
    type LogsStream = Replies<LogAck>;
    type GetArtifactStream = Replies<ArtifactChunk>;

    async fn session(
        &self,
        request: Request<Streaming<WorkerMessage>>,
    ) -> Result<Response<Self::SessionStream>, Status> {
        let rights = self.admit(&request, Resource::Workers).await?;
        Ok(Response::new(session::open(
            self.services.clone(),
            self.sessions.clone(),
            rights,
            request.into_inner(),
        )))
    }

    async fn heartbeat(
        &self,
        request: Request<Streaming<Heartbeat>>,
    ) -> Result<Response<Self::HeartbeatStream>, Status> {
        let rights = self.admit(&request, Resource::Workers).await?;
        Ok(Response::new(heartbeat::open(self.services.clone(), rights, request.into_inner())))
    }

    async fn logs(
        &self,
        request: Request<Streaming<LogChunk>>,
    ) -> Result<Response<Self::LogsStream>, Status> {
        let rights = self.admit(&request, Resource::Logs).await?;
        Ok(Response::new(logs::open(self.services.clone(), rights, request.into_inner())))
    }

    async fn get_artifact(
        &self,
        request: Request<GetArtifactRequest>,
    ) -> Result<Response<Self::GetArtifactStream>, Status> {
        self.admit(&request, Resource::Artifacts).await?;
        let chunks = artifacts::get(&self.services, request.into_inner()).await?;
        Ok(Response::new(chunks))
    }

    async fn put_artifact(
        &self,
        request: Request<Streaming<PutArtifactRequest>>,
    ) -> Result<Response<PutArtifactResponse>, Status> {
        self.admit(&request, Resource::Artifacts).await?;
        let stored = Box::pin(artifacts::put(&self.services, request.into_inner())).await?;
        Ok(Response::new(stored))
    }

    async fn save_checkpoint(
        &self,
        request: Request<SaveCheckpointRequest>,
    ) -> Result<Response<SaveCheckpointResponse>, Status> {
        self.admit(&request, Resource::Workers).await?;
        tasks::save_checkpoint(&self.services, request.into_inner()).await.map(Response::new)
    }

    async fn get_checkpoint(
        &self,
        request: Request<GetCheckpointRequest>,
    ) -> Result<Response<Checkpoint>, Status> {
        self.admit(&request, Resource::Workers).await?;
        tasks::get_checkpoint(&self.services, request.into_inner()).await.map(Response::new)
    }

    async fn add_elements(
        &self,
        request: Request<AddElementsRequest>,
    ) -> Result<Response<AddElementsResponse>, Status> {
        self.admit(&request, Resource::Workers).await?;
        tasks::add_elements(&self.services, request.into_inner()).await.map(Response::new)
    }

    async fn get_endpoints(
        &self,
        request: Request<GetEndpointsRequest>,
    ) -> Result<Response<GetEndpointsResponse>, Status> {
        self.admit(&request, Resource::Workers).await?;
        tasks::get_endpoints(&self.services, request.into_inner()).await.map(Response::new)
    }

    async fn get_secrets(
        &self,
        request: Request<GetSecretsRequest>,
    ) -> Result<Response<GetSecretsResponse>, Status> {
        let rights = self.admit(&request, Resource::Workers).await?;
        let caller = rights.identity();
        secrets::get(&self.services, &self.sessions, caller, request.into_inner()).await.map(Response::new)
    }
}

/// Counts and logs a malformed message; returns the status that closes its stream.
fn malformed(services: &Services, worker: Option<WorkerId>, error: &convert::Malformed) -> Status {
    services.metrics.worker_stream_closed("malformed");
    let worker_id = worker.map(tracing::field::display);
    tracing::warn!(worker_id, error = %error, "closed a worker's stream: malformed message");
    Status::invalid_argument(error.to_string())
}
