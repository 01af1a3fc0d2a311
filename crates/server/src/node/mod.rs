//! The node: one engine on its own thread, and the handle to it.
//!
//! The rest of the server uses a [`Node`]: it submits inputs, waits for replies, and reads what the engine publishes:
//! its [`View`], its [`Readiness`] and its events. All rules of leadership are in the crate [`leader`].
//!
//! - `driver`: settings and channels of the engine's thread; `thread`: its start and its end.
//! - `shell`: the loop of the engine's thread around the leader.
//! - `calls`: pending calls of the store; `outbox`: messages to workers, batched by session.
//! - `lease_expiry`: expiry of the leadership lease, checked by all threads.
//! - `notices`: log messages and metrics of the leader; `lost_executions`: executions that workers hold and the store has lost.
//! - `crashes`: crash points for tests.
//!
//! # Invariants
//! - A reply is sent after the commit that it reports, or says that the outcome is unknown.
//! - Every wait ends: a request is answered or refused, or its outcome is reported as unknown.
//! - Heartbeats and reports have their own lanes; submissions cannot delay them.

mod calls;
mod crashes;
mod driver;
mod lease_expiry;
mod lost_executions;
mod notices;
mod outbox;
mod shell;
#[cfg(test)]
mod tests;
mod thread;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use engine::{Input, Reply, Session, Ticket, View};
use leader::{Unanswered, is_new_work};
use model::record::Event;
use model::{Duration, Refusal};
use store::{EventSeq, Store};
use tokio::sync::{broadcast, mpsc, oneshot, watch};

use lease_expiry::LeaseExpiry;

pub use driver::{Driver, Fatal, NodeConfig};
pub use leader::Readiness;
pub(crate) use outbox::{Ack, Grant, MESSAGES_MAX, Stop, ToWorker, Welcome};
pub use thread::DriverHandle;

/// Most requests that wait in the inbox; further requests are refused as [`RequestError::Busy`].
const REQUESTS_MAX: usize = 16_384;
/// Most messages with reports that wait; after that, the sessions that send them have to wait.
const REPORTS_MAX: usize = 4_096;
/// Most heartbeats that wait.
const HEARTBEATS_MAX: usize = 16_384;
/// Batches by which a subscriber may lag behind before it must read the store.
const EVENT_BATCHES: usize = 512;
/// Longest wait of a request for its reply.
const REPLY_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(30);

/// The events of one committed batch.
#[derive(Debug)]
pub struct EventBatch {
    /// Position of the first event in the feed; the others follow without a gap.
    pub first: EventSeq,
    /// The events in order; at least one.
    pub events: Vec<Event>,
}

impl EventBatch {
    /// Returns each event with its position in the feed.
    pub fn iter(&self) -> impl Iterator<Item = (EventSeq, &Event)> {
        (self.first.0..).map(EventSeq).zip(&self.events)
    }
}

/// Why a request got no reply from the engine.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// The engine refused the request. Nothing was changed.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The request may or may not have been committed.
    #[error("the outcome of the request is unknown: its commit was not confirmed")]
    OutcomeUnknown,
    /// The inbox is full. Nothing was changed.
    #[error("the server is overloaded: too many requests are waiting")]
    Busy {
        /// Delay before the client retries.
        retry_after: Duration,
    },
    /// The store's volume is full, and the request is new work. Nothing was changed.
    #[error("no space left on the volume of the store: new work is refused until space is freed")]
    Full,
    /// This server does not lead (yet). Nothing was changed.
    #[error("the server is not ready: it does not lead, and no other leader is known")]
    Loading,
    /// The server shuts down. Nothing was changed.
    #[error("the server is shutting down")]
    Stopping,
    /// The same request made the engine fail before. Nothing was changed.
    #[error("the request is quarantined: the engine failed on it before")]
    Poisoned,
}

impl From<Unanswered> for RequestError {
    fn from(unanswered: Unanswered) -> Self {
        match unanswered {
            Unanswered::Refused(refusal) => Self::Refused(refusal),
            Unanswered::OutcomeUnknown => Self::OutcomeUnknown,
            Unanswered::Full => Self::Full,
            Unanswered::Loading => Self::Loading,
            Unanswered::Poisoned => Self::Poisoned,
        }
    }
}

/// Receiver of the reply to a request.
type ReplyTo = oneshot::Sender<Result<Reply, RequestError>>;

/// A request for the engine.
struct Request {
    ticket: Ticket,
    input: Input,
    reply: ReplyTo,
}

/// A heartbeat, and the channel for its grant.
pub(crate) struct HeartbeatRequest {
    pub(crate) input: Input,
    pub(crate) session: Session,
    pub(crate) grants: mpsc::Sender<Grant>,
}

/// A message of a worker's session to the engine.
enum FromWorker {
    /// Opens a session. Messages to the worker go to `outbox`; when the node drops it, the session ends.
    Join { join: Box<engine::Join>, outbox: mpsc::Sender<ToWorker> },
    /// All other inputs, in order.
    Inputs(Vec<Input>),
}

/// Handle to the engine; clones are cheap.
#[derive(Clone)]
pub struct Node {
    shared: Arc<Shared>,
}

struct Shared {
    store: Arc<dyn Store>,
    next_ticket: AtomicU64,
    next_session: AtomicU64,
    requests: mpsc::Sender<Request>,
    reports: mpsc::Sender<FromWorker>,
    heartbeats: mpsc::Sender<HeartbeatRequest>,
    view: watch::Receiver<Arc<View>>,
    readiness: watch::Receiver<Readiness>,
    events: broadcast::Sender<Arc<EventBatch>>,
    stop: watch::Sender<bool>,
    lease_expiry: LeaseExpiry,
    /// Whether a commit counted anything since the last [`Node::take_counted`].
    counted: Arc<AtomicBool>,
}

impl Node {
    /// Creates a node over a store, and the driver that runs it.
    ///
    /// Requests are refused as [`RequestError::Loading`] until [`Driver::spawn`] was called and the shards are loaded.
    pub fn new(store: Arc<dyn Store>, config: NodeConfig) -> (Self, Driver) {
        let (requests, requests_rx) = mpsc::channel(REQUESTS_MAX);
        let (reports, reports_rx) = mpsc::channel(REPORTS_MAX);
        let (beats, beats_rx) = mpsc::channel(HEARTBEATS_MAX);
        let (view_tx, view) = watch::channel(Arc::new(View::default()));
        let (readiness_tx, readiness) = watch::channel(Readiness::Loading { reason: "starting".into() });
        let (events, _) = broadcast::channel(EVENT_BATCHES);
        let (stop, stop_rx) = watch::channel(false);
        let counted = Arc::new(AtomicBool::new(false));
        let leads_until = LeaseExpiry::new(Arc::clone(&config.clock));
        let shared = Shared {
            store: Arc::clone(&store),
            next_ticket: AtomicU64::new(1),
            // Random high bits: a session of an earlier process is never mistaken for one of this process.
            next_session: AtomicU64::new((rand::random::<u64>() >> 1) & !0xffff_ffff),
            requests,
            reports,
            heartbeats: beats,
            view,
            readiness,
            events: events.clone(),
            stop,
            lease_expiry: leads_until.clone(),
            counted: Arc::clone(&counted),
        };
        let driver = Driver {
            store,
            config,
            requests: requests_rx,
            reports: reports_rx,
            heartbeats: beats_rx,
            view: view_tx,
            readiness: readiness_tx,
            events,
            stop: stop_rx,
            lease_expiry: leads_until,
            counted,
        };
        (Self { shared: Arc::new(shared) }, driver)
    }

    /// Sends a request to the engine and waits for the reply, which follows its commit.
    ///
    /// `make` gets the ticket that the input must carry.
    ///
    /// # Errors
    /// [`RequestError`]; each variant says whether anything was changed.
    pub async fn request(&self, make: impl FnOnce(Ticket) -> Input + Send) -> Result<Reply, RequestError> {
        let ticket = Ticket(self.shared.next_ticket.fetch_add(1, Ordering::Relaxed));
        let input = make(ticket);
        self.admit(&input)?;
        let (reply, answer) = oneshot::channel();
        self.shared.requests.try_send(Request { ticket, input, reply }).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => RequestError::Busy { retry_after: Duration::from_secs(1) },
            mpsc::error::TrySendError::Closed(_) => RequestError::Stopping,
        })?;
        match tokio::time::timeout(REPLY_TIMEOUT, answer).await {
            Ok(Ok(reply)) => reply,
            // The driver answers all tickets: it has ended, or it waits for a commit.
            Ok(Err(_)) | Err(_) => Err(RequestError::OutcomeUnknown),
        }
    }

    /// Checks that this server leads, and so sees every event.
    ///
    /// # Errors
    /// [`RequestError::Loading`] or [`RequestError::Stopping`] if it does not lead.
    pub fn check_leading(&self) -> Result<(), RequestError> {
        match &*self.shared.readiness.borrow() {
            Readiness::Ready | Readiness::Full if self.shared.lease_expiry.is_valid() => Ok(()),
            Readiness::Ready | Readiness::Full | Readiness::Suspended | Readiness::Loading { .. } => {
                Err(RequestError::Loading)
            }
            Readiness::Stopping | Readiness::Failed { .. } => Err(RequestError::Stopping),
        }
    }

    /// Refuses inputs early that the readiness of the node does not allow.
    fn admit(&self, input: &Input) -> Result<(), RequestError> {
        self.check_leading()?;
        match &*self.shared.readiness.borrow() {
            Readiness::Full if is_new_work(input) => Err(RequestError::Full),
            _ => Ok(()),
        }
    }

    /// Returns the current view of live state; published about ten times a second while something changes.
    pub fn view(&self) -> Arc<View> {
        Arc::clone(&self.shared.view.borrow())
    }

    /// Returns the store, which has all rows.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.shared.store
    }

    /// Returns whether a commit of this server counted anything for the statistics since the last call.
    pub(crate) fn take_counted(&self) -> bool {
        self.shared.counted.swap(false, Ordering::Relaxed)
    }

    /// Makes the next [`take_counted`](Self::take_counted) return true.
    pub(crate) fn set_counted(&self) {
        self.shared.counted.store(true, Ordering::Relaxed);
    }

    /// Subscribes to events that are committed from now on. A receiver that lags reads the store instead.
    pub fn events(&self) -> broadcast::Receiver<Arc<EventBatch>> {
        self.shared.events.subscribe()
    }

    /// Returns whether the node accepts requests, with the lease checked now.
    pub fn ready(&self) -> Readiness {
        let readiness = self.shared.readiness.borrow().clone();
        self.shared.lease_expiry.effective(readiness)
    }

    /// Waits until `wanted` holds for the readiness; returns at once if it holds already.
    ///
    /// Returns the readiness at that time, or the last one if the driver has ended.
    pub async fn wait_ready(&self, wanted: impl FnMut(&Readiness) -> bool) -> Readiness {
        let mut readiness = self.shared.readiness.clone();
        match readiness.wait_for(wanted).await {
            Ok(now) => return now.clone(),
            Err(_closed) => {}
        }
        self.ready()
    }

    /// Completes when the node does not lead (any more). Ends streams that would otherwise never end, or miss events of
    /// another leader.
    pub async fn leadership_ended(&self) {
        self.wait_ready(|readiness| !matches!(readiness, Readiness::Ready | Readiness::Full)).await;
    }

    /// Returns whether its leadership lease has expired while the next leader is unknown.
    pub(crate) fn is_suspended(&self) -> bool {
        self.ready() == Readiness::Suspended
    }

    /// Completes when the leadership lease expires without a renewal. The sessions of workers end then, so that the
    /// workers connect to the new leader.
    pub(crate) async fn leadership_suspended(&self) {
        self.wait_ready(|readiness| *readiness == Readiness::Suspended).await;
    }

    /// Begins the shutdown: requests in the inbox are still decided and committed.
    pub fn stop(&self) {
        self.shared.stop.send_replace(true);
    }

    /// Returns a number for a new worker session; it was never used before.
    pub(crate) fn new_session(&self) -> Session {
        Session(self.shared.next_session.fetch_add(1, Ordering::Relaxed))
    }

    /// Opens a session; waits while the inbox is full.
    pub(crate) async fn join(
        &self,
        join: engine::Join,
        outbox: mpsc::Sender<ToWorker>,
    ) -> Result<(), NodeStopped> {
        let message = FromWorker::Join { join: Box::new(join), outbox };
        self.shared.reports.send(message).await.map_err(|_| NodeStopped)
    }

    /// Sends reports of a worker to the engine; waits while the inbox is full.
    pub(crate) async fn report(&self, inputs: Vec<Input>) -> Result<(), NodeStopped> {
        self.shared.reports.send(FromWorker::Inputs(inputs)).await.map_err(|_| NodeStopped)
    }

    /// Sends a heartbeat to the engine; waits while the inbox is full.
    pub(crate) async fn heartbeat(&self, beat: HeartbeatRequest) -> Result<(), NodeStopped> {
        self.shared.heartbeats.send(beat).await.map_err(|_| NodeStopped)
    }
}

/// The driver has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NodeStopped;
