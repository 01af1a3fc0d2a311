//! A connection to another node, which is opened when it is needed and again after it has broken.
//!
//! Requests are numbered, and any number of them may be under way. There are three links to each node, so that rounds and
//! votes never wait behind entries, and entries never behind a snapshot.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt, Shared};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::frame::{self, Frame};
use super::message::{self, ERROR, HELLO, Hello, PROTOCOL, Refusal, Refused, decode, encode};
use super::{BoxStream, Transport};
use crate::types::{LogId, NodeId, Peer};

/// Frames that wait to be written. A caller waits when there are more.
const FRAMES_WAITING: usize = 64;

/// Time without an answer after which a connection is left at the next timeout.
const SILENT_MAX: Duration = Duration::from_secs(1);

/// Purpose of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lane {
    /// Rounds, votes, reads, proposals and announcements.
    Control,
    /// Entries.
    Append,
    /// Snapshots.
    Snapshot,
}

/// Why a request has no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallError {
    /// The request was not sent.
    #[error("cannot reach node `{node}`")]
    Unreachable {
        node: NodeId,
        #[source]
        source: Arc<io::Error>,
    },
    /// The request may have been handled.
    #[error("the connection to node `{node}` broke before it answered")]
    Broken { node: NodeId },
    /// The node refused the request.
    #[error("node `{node}` refused a request: {}", refused.text)]
    Refused { node: NodeId, refused: Refused },
    /// The request may have been handled.
    #[error("node `{node}` did not answer within {timeout:?}")]
    TimedOut { node: NodeId, timeout: Duration },
}

impl CallError {
    /// Returns whether the node does not accept this one.
    pub(crate) fn is_refusal(&self) -> bool {
        matches!(self, Self::Unreachable { source, .. } if source.kind() == io::ErrorKind::PermissionDenied)
    }
}

/// What all links of a node need.
pub(crate) struct Context {
    pub(crate) cluster: u128,
    pub(crate) me: NodeId,
    pub(crate) transport: Arc<dyn Transport>,
    pub(crate) connect_timeout: Duration,
    pub(crate) tasks: TaskTracker,
    pub(crate) stop: CancellationToken,
    /// Returns the newest entry of this node's log.
    pub(crate) last: Box<dyn Fn() -> Option<LogId> + Send + Sync>,
    /// Returns the newest entry that this node, as the leader, knows another to have.
    pub(crate) matched: Box<dyn Fn(NodeId) -> Option<LogId> + Send + Sync>,
}

type Connecting = Shared<BoxFuture<'static, Result<Arc<Connection>, Arc<io::Error>>>>;

/// See the [module page](self).
pub(crate) struct Link {
    context: Arc<Context>,
    node: NodeId,
    peer: Mutex<Peer>,
    lane: Lane,
    connection: Mutex<Option<Connecting>>,
    /// When the node last sent anything.
    answered: Arc<Mutex<Option<Instant>>>,
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("node", &self.node).field("lane", &self.lane).finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Link {
    pub(crate) fn new(context: Arc<Context>, node: NodeId, peer: Peer, lane: Lane) -> Self {
        Self {
            context,
            node,
            peer: Mutex::new(peer),
            lane,
            connection: Mutex::new(None),
            answered: Arc::default(),
        }
    }

    pub(crate) fn set_peer(&self, peer: &Peer) {
        lock(&self.peer).clone_from(peer);
    }

    /// Returns the time since the node last answered; `None` if it never has.
    pub(crate) fn silent_for(&self) -> Option<Duration> {
        let answered = *lock(&self.answered);
        answered.map(|at| at.elapsed())
    }

    /// Sends a request, and decodes its answer.
    ///
    /// # Errors
    /// See [`CallError`]. An answer that cannot be decoded is a refusal.
    pub(crate) async fn call<T: DeserializeOwned>(
        &self,
        kind: u8,
        message: &impl Serialize,
        timeout: Duration,
    ) -> Result<T, CallError> {
        let body = self.call_bytes(kind, encode(message), timeout).await?;
        self.decoded(&body)
    }

    pub(crate) fn decoded<T: DeserializeOwned>(&self, body: &[u8]) -> Result<T, CallError> {
        decode(body)
            .map_err(|error| CallError::Refused { node: self.node, refused: Refused::invalid(&error) })
    }

    /// Sends a request, and returns the body of its answer.
    ///
    /// # Errors
    /// See [`CallError`].
    pub(crate) async fn call_bytes(
        &self,
        kind: u8,
        body: Vec<u8>,
        timeout: Duration,
    ) -> Result<Vec<u8>, CallError> {
        let node = self.node;
        if body.len() > frame::BODY_BYTES_MAX {
            // The other node would close the connection.
            let text = format!("a request of {} bytes is too large", body.len());
            return Err(CallError::Refused { node, refused: Refused::new(Refusal::Invalid, text) });
        }
        let call = async {
            let connection =
                self.connection().await.map_err(|source| CallError::Unreachable { node, source })?;
            connection.call(kind, body).await.ok_or(CallError::Broken { node })
        };
        let answer = match tokio::time::timeout(timeout, call).await {
            Ok(answer) => answer?,
            Err(_) => {
                self.leave_if_silent();
                return Err(CallError::TimedOut { node, timeout });
            }
        };
        if answer.kind == ERROR {
            let refused = decode(&answer.body).unwrap_or_else(|error| Refused::invalid(&error));
            return Err(CallError::Refused { node, refused });
        }
        Ok(answer.body)
    }

    /// Leaves a connection on which nothing arrives any more. After a long partition, TCP may try again only minutes later,
    /// and a new connection works at once.
    fn leave_if_silent(&self) {
        if self.silent_for().is_none_or(|silent| silent >= SILENT_MAX) {
            *lock(&self.connection) = None;
        }
    }

    /// Returns the connection, or opens it. Callers that come meanwhile share the attempt.
    async fn connection(&self) -> Result<Arc<Connection>, Arc<io::Error>> {
        let connecting = {
            let mut slot = lock(&self.connection);
            let is_usable = |connecting: &Connecting| match connecting.peek() {
                None => true,
                Some(Ok(connection)) => connection.is_open(),
                Some(Err(_)) => false,
            };
            match slot.take().filter(is_usable) {
                Some(connecting) => slot.insert(connecting).clone(),
                None => slot.insert(self.connect().boxed().shared()).clone(),
            }
        };
        connecting.await
    }

    fn connect(&self) -> impl Future<Output = Result<Arc<Connection>, Arc<io::Error>>> + Send + 'static {
        let (context, node, peer) = (Arc::clone(&self.context), self.node, lock(&self.peer).clone());
        let answered = Arc::clone(&self.answered);
        async move {
            let connecting = open(&context, node, &peer, answered);
            match tokio::time::timeout(context.connect_timeout, connecting).await {
                Ok(connection) => connection.map_err(Arc::new),
                Err(_) => Err(Arc::new(io::ErrorKind::TimedOut.into())),
            }
        }
    }
}

/// Opens a connection, and verifies that the right node of the right cluster is at its end.
async fn open(
    context: &Arc<Context>,
    node: NodeId,
    peer: &Peer,
    answered: Arc<Mutex<Option<Instant>>>,
) -> io::Result<Arc<Connection>> {
    // Before the other node says what it has: its log only grows until this leader is deposed.
    let matched = (context.matched)(node);
    let mut stream = context.transport.connect(node, peer).await?;
    let last = (context.last)().map(message::LogIdRow::from);
    let hello = Hello { protocol: PROTOCOL, cluster: context.cluster, node: context.me, last };
    frame::write(&mut stream, &Frame { kind: HELLO, request: 0, body: encode(&hello) }).await?;
    let answer = read_hello(&mut stream, context.cluster).await?;
    if answer.node != node {
        return Err(io::Error::other(format!("expected node `{node}`, but node `{}` answered", answer.node)));
    }
    if answer.last.map(LogId::from) < matched {
        let problem = format!(
            "node `{node}` has lost entries that it had acknowledged: its data folder was restored from an older state; \
             remove the server from the cluster, and let it join again with an empty folder"
        );
        tracing::error!(node = %node, "{problem}");
        return Err(io::Error::other(problem));
    }
    Ok(Connection::start(context, stream, answered))
}

/// Reads the first message of a server that gets no answer to it. Otherwise the refusal could be lost with the connection.
pub(crate) async fn read_first(stream: &mut BoxStream) -> io::Result<()> {
    frame::read(stream).await.map(drop)
}

/// Reads the first message of the other node.
pub(crate) async fn read_hello(stream: &mut BoxStream, cluster: u128) -> io::Result<Hello> {
    let invalid = |problem: String| io::Error::new(io::ErrorKind::InvalidData, problem);
    let Some(frame) = frame::read(stream).await? else { return Err(io::ErrorKind::UnexpectedEof.into()) };
    if frame.kind == ERROR {
        let refused: Refused = decode(&frame.body)?;
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, refused.text));
    }
    if frame.kind != HELLO {
        return Err(invalid(format!("expected a greeting, but got a message of kind {}", frame.kind)));
    }
    let hello: Hello = decode(&frame.body)?;
    if hello.protocol != PROTOCOL {
        let problem = format!("the other node speaks protocol {}; expected {PROTOCOL}", hello.protocol);
        return Err(invalid(problem));
    }
    if hello.cluster != cluster {
        let (expected, found) = (cluster, hello.cluster);
        return Err(invalid(format!("expected cluster `{expected:032x}`, but got `{found:032x}`")));
    }
    Ok(hello)
}

/// An open connection. Its tasks end when it is dropped, broken, or the node stops.
struct Connection {
    frames: mpsc::Sender<Frame>,
    pending: Arc<Pending>,
    next: AtomicU64,
    /// Ends the tasks.
    end: CancellationToken,
}

/// Requests without an answer. `None` when the connection is closed.
struct Pending(Mutex<Option<HashMap<u64, oneshot::Sender<Frame>>>>);

impl Connection {
    fn start(context: &Arc<Context>, stream: BoxStream, answered: Arc<Mutex<Option<Instant>>>) -> Arc<Self> {
        let (mut reader, writer) = tokio::io::split(stream);
        let (frames, waiting) = mpsc::channel(FRAMES_WAITING);
        let pending = Arc::new(Pending(Mutex::new(Some(HashMap::new()))));
        let end = context.stop.child_token();
        let (answers, ended) = (Arc::clone(&pending), end.clone());
        context.tasks.spawn(async move {
            let write = frame::write_all(writer, waiting);
            let read = async {
                while let Ok(Some(frame)) = frame::read(&mut reader).await {
                    *lock(&answered) = Some(Instant::now());
                    answers.answer(frame);
                }
            };
            tokio::select! {
                _ = write => {}
                () = read => {}
                () = ended.cancelled() => {}
            }
            answers.close();
        });
        Arc::new(Self { frames, pending, next: AtomicU64::new(1), end })
    }

    fn is_open(&self) -> bool {
        lock(&self.pending.0).is_some()
    }

    /// Returns the answer, or `None` if the connection breaks.
    async fn call(&self, kind: u8, body: Vec<u8>) -> Option<Frame> {
        let request = self.next.fetch_add(1, Ordering::Relaxed);
        let (sender, answer) = oneshot::channel();
        lock(&self.pending.0).as_mut()?.insert(request, sender);
        // Also when the caller gives up.
        let _forget = Forget { pending: &self.pending, request };
        self.frames.send(Frame { kind, request, body }).await.ok()?;
        answer.await.ok()
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.end.cancel();
    }
}

impl Pending {
    fn answer(&self, frame: Frame) {
        let waiting = lock(&self.0).as_mut().and_then(|pending| pending.remove(&frame.request));
        if let Some(waiting) = waiting {
            let _ = waiting.send(frame);
        }
    }

    fn close(&self) {
        *lock(&self.0) = None;
    }
}

/// Removes a request when its caller no longer waits.
struct Forget<'a> {
    pending: &'a Pending,
    request: u64,
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        if let Some(pending) = lock(&self.pending.0).as_mut() {
            pending.remove(&self.request);
        }
    }
}
