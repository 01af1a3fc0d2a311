//! Requests of running tasks: over their sockets, and by their checkpoint files.
//!
//! The supervisor listens on the sockets and passes each connection to the agent. [`calls`] accepts it, [`http`]
//! serves it. [`elements`] parses the elements to add to a step, and [`endpoints`] returns the endpoints of a service.
//! [`response`] builds the responses. [`checkpoints`] forwards checkpoint files to the
//! server.
//!
//! No request is stored here: a request is answered after the server has committed it. Otherwise the answer is `503`,
//! and the request is safe to repeat. So if the agent is killed, a task that waits for an answer only has to repeat
//! its request.
//!
//! # Bounds
//! A connection carries one request of at most 1.1 MiB, with a time limit. The number of connections is limited per
//! execution and in total (some hundreds). Each connection has its own async task, so a slow one delays no other.

mod calls;
mod checkpoints;
mod elements;
mod endpoints;
mod http;
mod response;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use proto::v1::{
    AddElementsRequest, AddElementsResponse, GetCheckpointRequest, GetEndpointsRequest, GetEndpointsResponse,
    SaveCheckpointRequest,
};
use rustix::time::{ClockId, Timespec, clock_gettime};
use tokio::sync::Semaphore;
use tonic::{Code, Status};

use super::Shared;
use super::connect::{Client, Server};
use crate::link::{CheckpointSaved, Request};

pub(super) use calls::serve;
pub(super) use checkpoints::Saves;
use checkpoints::UploadStates;

/// Maximum time to wait for an answer of the server, including the wait for a session.
const ANSWER_MAX: Duration = Duration::from_secs(35);

/// Maximum number of reads of the file clock, one millisecond apart; the clock may have been set back.
const TICKS_MAX: u32 = 20;

/// Execution that a connection belongs to.
#[derive(Debug, Clone)]
struct Caller {
    execution_id: Arc<str>,
    fence: u64,
}

/// A client, and the address of its server.
type Connected = Option<(Arc<str>, Client)>;

/// Sends requests to the server of the session on behalf of tasks; clones share one connection.
#[derive(Debug, Clone)]
pub(super) struct Upstream {
    shared: Shared,
    connected: Arc<Mutex<Connected>>,
    /// Checkpoint files that are being saved.
    waiting: UploadStates,
    /// Requests that may wait for changes of endpoints: half of all connections, so that they delay no other request.
    endpoint_waits: Arc<Semaphore>,
}

impl Upstream {
    pub(super) fn new(shared: Shared) -> Self {
        let endpoint_waits = Arc::new(Semaphore::new(calls::CONNECTIONS_MAX / 2));
        Self { shared, connected: Arc::default(), waiting: UploadStates::default(), endpoint_waits }
    }

    /// Waits for a session and returns a client for its server.
    async fn client(&self) -> Result<Client, Status> {
        let gone = || Status::unavailable("the worker has no session with a server");
        let mut session = self.shared.session.subscribe();
        let server = session.wait_for(Option::is_some).await.map_err(|_| gone())?.clone();
        server.as_ref().map(|server| self.connected_to(server)).ok_or_else(gone)
    }

    fn connected_to(&self, server: &Server) -> Client {
        let mut connected = self.connected.lock().unwrap_or_else(PoisonError::into_inner);
        match &*connected {
            Some((url, client)) if *url == server.url => client.clone(),
            _ => {
                let client = server.connect_lazily();
                *connected = Some((Arc::clone(&server.url), client.clone()));
                client
            }
        }
    }

    async fn save(&self, request: SaveCheckpointRequest) -> Result<u64, Status> {
        let answer = async { self.client().await?.save_checkpoint(request).await };
        Ok(in_time(answer).await?.into_inner().version)
    }

    /// Saves a checkpoint that a task sends over its socket. Checkpoint files written earlier are superseded once
    /// this returns.
    async fn put(&self, request: SaveCheckpointRequest) -> Result<u64, Status> {
        let execution_id = request.execution_id.clone();
        let asked = clock_gettime(ClockId::Realtime);
        let Timespec { tv_sec: unix_seconds, tv_nsec: nanos } = asked;
        let call = self.waiting.call(&execution_id);
        let answer = async {
            let turn = call.turn().await;
            Ok((turn, self.client().await?.save_checkpoint(request).await?.into_inner().version))
        };
        let (_turn, version) = in_time(answer).await?;
        call.supersede((unix_seconds, nanos));
        // Before the task gets the answer: the task may end right after it, and the supervisor then reads its file.
        let put = |number| Request::Put(CheckpointSaved { number, execution_id, unix_seconds, nanos });
        let noted = tokio::time::timeout(ANSWER_MAX, self.shared.call_supervisor(put)).await;
        // Without an answer, the supervisor may still send an older file, and the agent could not detect that.
        noted.map_err(|_| Status::unavailable("the supervisor did not respond in time"))?;
        wait_for_tick(asked).await;
        Ok(version)
    }

    async fn add(&self, request: AddElementsRequest) -> Result<AddElementsResponse, Status> {
        let answer = async { self.client().await?.add_elements(request).await };
        Ok(in_time(answer).await?.into_inner())
    }

    /// Returns the endpoints of a service. If too many requests wait for changes, this one does not wait.
    async fn endpoints(&self, mut request: GetEndpointsRequest) -> Result<GetEndpointsResponse, Status> {
        let may_wait = self.endpoint_waits.try_acquire();
        if may_wait.is_err() {
            request.wait_ms = 0;
        }
        let answer = async { self.client().await?.get_endpoints(request).await };
        Ok(in_time(answer).await?.into_inner())
    }

    /// Returns the last checkpoint of the caller's job, if there is one.
    async fn last(&self, caller: &Caller) -> Result<Option<proto::v1::Checkpoint>, Status> {
        let execution_id = caller.execution_id.to_string();
        let request = GetCheckpointRequest { execution_id, fence: caller.fence };
        match in_time(async { self.client().await?.get_checkpoint(request).await }).await {
            Ok(found) => Ok(Some(found.into_inner())),
            Err(status) if status.code() == Code::NotFound => Ok(None),
            Err(status) => Err(status),
        }
    }
}

/// Waits until a file that is written now gets a modification time after `asked`. The clock for modification times
/// advances only every few milliseconds.
async fn wait_for_tick(asked: Timespec) {
    let key = |time: Timespec| (time.tv_sec, time.tv_nsec);
    for _ in 0..TICKS_MAX {
        if key(clock_gettime(ClockId::RealtimeCoarse)) > key(asked) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

async fn in_time<T>(answer: impl Future<Output = Result<T, Status>>) -> Result<T, Status> {
    let late = |_| Err(Status::unavailable("the server did not respond in time"));
    tokio::time::timeout(ANSWER_MAX, answer).await.unwrap_or_else(late)
}
