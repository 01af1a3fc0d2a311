//! The connections between the nodes of a cluster, and the traits by which openraft uses them.
//!
//! This crate knows no TLS and opens no socket: a [`Transport`] gives it authenticated streams to other nodes, and the server
//! passes accepted streams to [`Node::serve_peer`](crate::node::Node::serve_peer). `Mesh` (feature `testing`) is a transport within one
//! process.
//!
//! - `frame`, `message`: bytes on a connection.
//! - `link`: connections to another node, opened when they are needed.
//! - `snapshot` sends and receives copies of a machine.

pub(crate) mod frame;
pub mod join;
pub(crate) mod link;
#[cfg(any(test, feature = "testing"))]
mod mesh;
pub(crate) mod message;
pub(crate) mod snapshot;

use std::collections::HashMap;
use std::io;
use std::iter;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use openraft::error::{
    Fatal, NetworkError, RPCError, RaftError, ReplicationClosed, StreamingError, Unreachable,
};
use openraft::network::{Backoff, RPCOption, RaftNetwork, RaftNetworkFactory};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, VoteRequest, VoteResponse,
};
use openraft::{OptionalSend, Snapshot};
use tokio::io::{AsyncRead, AsyncWrite};

#[cfg(any(test, feature = "testing"))]
pub use mesh::Mesh;

use crate::machine::Belfry;
use crate::machine::Machine;
use crate::machine::copies::Copies;
use crate::timing::Timing;
use crate::types::Permit;
use crate::types::{NodeId, Peer, Vote};
use link::{CallError, Context, Lane, Link};
use message::{APPEND, AppendAnswer, Refusal, Refused, VOTE, VoteAnswer, VoteMessage, encode, encode_append};

/// A stream of bytes in both directions.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// A stream of any kind.
pub type BoxStream = Box<dyn Stream>;

/// Opens connections between the nodes of a cluster.
pub trait Transport: Send + Sync + 'static {
    /// Opens a connection to a member, and verifies that it has the key of the member.
    ///
    /// # Errors
    /// If the member cannot be reached, or another server answers.
    fn connect(&self, to: NodeId, peer: &Peer) -> BoxFuture<'static, io::Result<BoxStream>>;
}

/// Answers a server that is no member of the cluster, and closes the connection.
pub async fn refuse(mut stream: BoxStream) {
    let text = "this server is no member of the cluster: it was removed, or has another key";
    let body = encode(&Refused::new(Refusal::Invalid, text));
    // The other side learns it, or finds the connection closed.
    let _ = link::read_first(&mut stream).await;
    let _ = frame::write(&mut stream, &frame::Frame { kind: message::ERROR, request: 0, body }).await;
    let _ = tokio::io::AsyncWriteExt::shutdown(&mut stream).await;
}

/// Links to one node.
#[derive(Debug)]
pub(crate) struct PeerLinks {
    pub(crate) control: Link,
    append: Link,
    snapshot: Link,
}

/// Links to all other nodes, and what their requests carry.
pub(crate) struct Wire {
    context: Arc<Context>,
    timing: Timing,
    peers: Mutex<HashMap<NodeId, Arc<PeerLinks>>>,
    /// Number of the newest transfer that this node has withdrawn.
    withdrawn: AtomicU32,
    /// Permit of the election that this node has begun last.
    permit: Mutex<Option<Permit>>,
}

impl Wire {
    pub(crate) fn new(context: Context, timing: Timing) -> Self {
        let (context, peers) = (Arc::new(context), Mutex::default());
        Self { context, timing, peers, withdrawn: AtomicU32::new(0), permit: Mutex::new(None) }
    }

    /// Returns the links to a node.
    pub(crate) fn peer(&self, node: NodeId, peer: &Peer) -> Arc<PeerLinks> {
        let mut peers = self.peers.lock().unwrap_or_else(PoisonError::into_inner);
        let links = peers.entry(node).or_insert_with(|| {
            let link = |lane| Link::new(Arc::clone(&self.context), node, peer.clone(), lane);
            let (control, append) = (link(Lane::Control), link(Lane::Append));
            Arc::new(PeerLinks { control, append, snapshot: link(Lane::Snapshot) })
        });
        for link in [&links.control, &links.append, &links.snapshot] {
            link.set_peer(peer);
        }
        Arc::clone(links)
    }

    /// Returns the time since a node last answered a round, a vote or a read; `None` if it never has.
    pub(crate) fn silent_for(&self, node: NodeId) -> Option<Duration> {
        let links = self.peers.lock().unwrap_or_else(PoisonError::into_inner).get(&node).cloned();
        links.and_then(|links| links.control.silent_for())
    }

    /// Sends this number with every request of this node as leader.
    pub(crate) fn set_withdrawn(&self, number: u32) {
        self.withdrawn.store(number, Ordering::SeqCst);
    }

    /// Sends this permit with the vote requests of the next election.
    pub(crate) fn set_permit(&self, permit: Option<Permit>) {
        *self.permit.lock().unwrap_or_else(PoisonError::into_inner) = permit;
    }

    fn permit(&self) -> Option<Permit> {
        *self.permit.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes the clients of openraft.
pub(crate) struct Network {
    pub(crate) wire: Arc<Wire>,
    pub(crate) copies: Arc<Copies>,
}

/// Sends the requests of openraft to one node.
pub(crate) struct Client {
    wire: Arc<Wire>,
    copies: Arc<Copies>,
    node: NodeId,
    links: Arc<PeerLinks>,
}

type RpcError = RPCError<NodeId, Peer, RaftError<NodeId>>;

impl From<CallError> for RpcError {
    fn from(error: CallError) -> Self {
        match error {
            // A vote ends soon, and a broken connection is opened again: openraft tries again at once.
            CallError::Refused { refused: Refused { refusal: Refusal::Voting, .. }, .. }
            | CallError::Broken { .. }
            | CallError::TimedOut { .. } => NetworkError::new(&error).into(),
            // Everything else would be refused again, so openraft waits before it tries.
            CallError::Unreachable { .. } | CallError::Refused { .. } => Unreachable::new(&error).into(),
        }
    }
}

impl<M: Machine> RaftNetworkFactory<Belfry<M>> for Network {
    type Network = Client;

    async fn new_client(&mut self, node: NodeId, peer: &Peer) -> Client {
        let links = self.wire.peer(node, peer);
        Client { wire: Arc::clone(&self.wire), copies: Arc::clone(&self.copies), node, links }
    }
}

impl<M: Machine> RaftNetwork<Belfry<M>> for Client {
    /// Requests without entries confirm the leadership: they must not wait behind entries.
    async fn append_entries(
        &mut self,
        request: AppendEntriesRequest<Belfry<M>>,
        _: RPCOption,
    ) -> Result<AppendEntriesResponse<NodeId>, RpcError> {
        let link = if request.entries.is_empty() { &self.links.control } else { &self.links.append };
        let body = encode_append(&request, self.wire.withdrawn.load(Ordering::SeqCst));
        let answer = link.call_bytes(APPEND, body, self.wire.timing.append_timeout).await?;
        Ok(link.decoded::<AppendAnswer>(&answer)?.into())
    }

    async fn vote(
        &mut self,
        request: VoteRequest<NodeId>,
        _: RPCOption,
    ) -> Result<VoteResponse<NodeId>, RpcError> {
        let message = encode(&VoteMessage::new(&request, self.wire.permit()));
        let link = &self.links.control;
        let answer = link.call_bytes(VOTE, message, self.wire.timing.vote_timeout).await?;
        Ok(link.decoded::<VoteAnswer>(&answer)?.into())
    }

    async fn full_snapshot(
        &mut self,
        vote: Vote,
        snapshot: Snapshot<Belfry<M>>,
        cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        _: RPCOption,
    ) -> Result<SnapshotResponse<NodeId>, StreamingError<Belfry<M>, Fatal<NodeId>>> {
        let to = (self.node, &self.links.snapshot);
        let sending = snapshot::send(to, &self.copies, snapshot, vote);
        let sent = tokio::select! {
            sent = sending => sent,
            closed = cancel => return Err(closed.into()),
        };
        // An error of the copy is no error of the storage: the leader continues.
        sent.map(SnapshotResponse::new).map_err(|error| Unreachable::new(&error).into())
    }

    fn backoff(&self) -> Backoff {
        let first = self.wire.timing.backoff;
        Backoff::new(iter::successors(Some(first), move |delay| Some((*delay * 2).min(first * 10))))
    }
}

/// Maximum wait for the answer to a piece of a snapshot.
pub(crate) const SNAPSHOT_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum wait for the installation of a snapshot.
pub(crate) const INSTALL_TIMEOUT: Duration = Duration::from_secs(600);
