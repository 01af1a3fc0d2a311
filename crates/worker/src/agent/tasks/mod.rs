//! What running tasks ask for: over their sockets, and by their checkpoint files.
//!
//! The supervisor listens at the sockets and hands each connection on to us ([`calls`]); [`http`] serves
//! it, [`elements`] reads what is to be added to a step, and [`checkpoints`] passes on the files that are to be
//! saved. Nothing is kept here: a request is answered once the server
//! has committed what follows from it, or with `503`, and is safe to repeat then. So an agent that is killed
//! costs a task that waited for an answer one more try.
//!
//! # Bounds
//! A connection brings one request, of bounded size (1.1 MiB at most) and within bounded time; an execution has
//! a few at a time, and all together some hundreds. Each is a task of its own: a slow one holds up nobody.

mod calls;
mod checkpoints;
mod elements;
mod http;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use proto::v1::{AddElementsRequest, AddElementsResponse, GetCheckpointRequest, SaveCheckpointRequest};
use rustix::time::{ClockId, Timespec, clock_gettime};
use tonic::{Code, Status};

use super::Shared;
use super::connect::{Client, Server};
use crate::link::{Put, Request};

pub(super) use calls::serve;
pub(super) use checkpoints::Saves;
use checkpoints::Waiting;

/// How long the server may take to answer, the wait for a session included.
const ANSWER_MAX: Duration = Duration::from_secs(35);

/// Looks at the clock that files are dated with, a millisecond apart; it may have been set back.
const TICKS_MAX: u32 = 20;

/// The execution that a connection comes from.
#[derive(Debug, Clone)]
struct Caller {
    execution_id: Arc<str>,
    fence: u64,
}

/// A connection, and the address that it is to.
type Connected = Option<(Arc<str>, Client)>;

/// Asks the server of the session on behalf of tasks; clones share one connection.
#[derive(Debug, Clone)]
pub(super) struct Upstream {
    shared: Shared,
    connected: Arc<Mutex<Connected>>,
    /// Files that are being saved.
    waiting: Waiting,
}

impl Upstream {
    pub(super) fn new(shared: Shared) -> Self {
        Self { shared, connected: Arc::default(), waiting: Waiting::default() }
    }

    /// A client for the server of the session, once there is one.
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

    /// Saves what a task asks to save itself. Files that it wrote before are out of date once this returns.
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
        // Before the task hears of it: its end may follow at once, and with it what lies in its file.
        let put = |number| Request::Put(Put { number, execution_id, unix_seconds, nanos });
        let noted = tokio::time::timeout(ANSWER_MAX, self.shared.ask(put)).await;
        // It may send a file that is older, and nothing here would know that.
        noted.map_err(|_| Status::unavailable("the supervisor did not respond in time"))?;
        wait_for_tick(asked).await;
        Ok(version)
    }

    async fn add(&self, request: AddElementsRequest) -> Result<AddElementsResponse, Status> {
        let answer = async { self.client().await?.add_elements(request).await };
        Ok(in_time(answer).await?.into_inner())
    }

    /// The last checkpoint of the caller's job, if it has one.
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

/// Waits until a file that is written now is dated behind `asked`: files are dated by a clock that stands still for
/// some milliseconds.
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
