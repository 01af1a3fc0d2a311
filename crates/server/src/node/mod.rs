//! The node: one engine on a thread of its own, and the handle to it.
//!
//! A [`Node`] is what the rest of the server sees. It puts inputs into the inbox, waits for replies,
//! and shows what the engine published: its [`View`], its [`Readiness`], its events. All rules of leadership are in the
//! crate [`leader`]; the engine's thread (`thread`; `driver` is what it is given) runs the `shell` around it. `calls` has
//! the calls of the store that have no answer yet, `outbox` gathers what goes to workers, `notices` logs and counts.
//!
//! # Always true
//! - A reply is given after the commit that it tells of, or says that nothing is known.
//! - Every wait ends: a request is answered, refused, or told that its outcome is unknown.
//! - Beats and reports have lanes of their own; submissions cannot delay them.

mod calls;
mod crashes;
mod driver;
mod leadership;
mod notices;
mod outbox;
mod shell;
mod strays;
#[cfg(test)]
mod tests;
mod thread;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use engine::{Input, Reply, Session, Ticket, View};
use leader::{Unanswered, is_new_work};
use model::record::Event;
use model::{Duration, Refusal};
use store::{EventSeq, Store};
use tokio::sync::{broadcast, mpsc, oneshot, watch};

use leadership::LeadsUntil;

pub use driver::{Driver, Fatal, NodeConfig};
pub use leader::Readiness;
pub(crate) use outbox::{Ack, Grant, MESSAGES_MAX, Stop, ToWorker, Welcome};
pub use thread::DriverHandle;

/// How many requests wait in the inbox before more are refused as [`RequestError::Busy`].
const REQUESTS_MAX: usize = 16_384;
/// How many messages with reports wait before the sessions that bring them are held back.
const REPORTS_MAX: usize = 4_096;
/// How many beats wait.
const BEATS_MAX: usize = 16_384;
/// How many batches a watcher may lag behind before it must read the store.
const EVENT_BATCHES: usize = 512;
/// How long a request waits for its reply at most.
const REPLY_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(30);

/// The events of one committed batch.
#[derive(Debug)]
pub struct EventBatch {
    /// The place of the first event in the feed; the others follow without a gap.
    pub first: EventSeq,
    /// In order; at least one.
    pub events: Vec<Event>,
}

impl EventBatch {
    /// Each event with its place.
    pub fn iter(&self) -> impl Iterator<Item = (EventSeq, &Event)> {
        (self.first.0..).map(EventSeq).zip(&self.events)
    }
}

/// Why a request got no reply from the engine.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// The engine refused it. Nothing was changed.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// It cannot be known whether it happened.
    #[error("the outcome of the request is unknown: its commit was not confirmed")]
    OutcomeUnknown,
    /// Too many requests wait. Nothing was changed.
    #[error("too many requests are waiting")]
    Busy {
        /// When to try again.
        retry_after: Duration,
    },
    /// The store's volume is full. Nothing was changed.
    #[error("no space left on the volume of the store: new work is refused until there is")]
    Full,
    /// The engine is being loaded. Nothing was changed.
    #[error("the server is loading its shards")]
    Loading,
    /// The server is being shut down. Nothing was changed.
    #[error("the server is shutting down")]
    Stopping,
    /// The same request made the engine fail before. Nothing was changed.
    #[error("the request was set aside: handling it failed before")]
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

/// Where the reply to a request goes.
type ReplyTo = oneshot::Sender<Result<Reply, RequestError>>;

/// A request on its way to the engine.
struct Request {
    ticket: Ticket,
    input: Input,
    reply: ReplyTo,
}

/// A beat, and where its grant goes.
pub(crate) struct Beat {
    pub(crate) input: Input,
    pub(crate) session: Session,
    pub(crate) grants: mpsc::Sender<Grant>,
}

/// What a worker's session sends to the engine.
enum FromWorker {
    /// A session opens. What goes to the worker is put into `outbox`; dropping it ends the session.
    Join { join: Box<engine::Join>, outbox: mpsc::Sender<ToWorker> },
    /// Anything else, in order.
    Inputs(Vec<Input>),
}

/// The handle to the engine; clones are cheap.
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
    beats: mpsc::Sender<Beat>,
    view: watch::Receiver<Arc<View>>,
    readiness: watch::Receiver<Readiness>,
    events: broadcast::Sender<Arc<EventBatch>>,
    stop: watch::Sender<bool>,
    leads_until: LeadsUntil,
}

impl Node {
    /// A node over a store, and the driver that brings it to life.
    ///
    /// Requests are refused as [`RequestError::Loading`] until [`Driver::spawn`] was called and the
    /// shards are loaded.
    pub fn new(store: Arc<dyn Store>, config: NodeConfig) -> (Self, Driver) {
        let (requests, requests_rx) = mpsc::channel(REQUESTS_MAX);
        let (reports, reports_rx) = mpsc::channel(REPORTS_MAX);
        let (beats, beats_rx) = mpsc::channel(BEATS_MAX);
        let (view_tx, view) = watch::channel(Arc::new(View::default()));
        let (readiness_tx, readiness) = watch::channel(Readiness::Loading { reason: "starting".into() });
        let (events, _) = broadcast::channel(EVENT_BATCHES);
        let (stop, stop_rx) = watch::channel(false);
        let leads_until = LeadsUntil::new(Arc::clone(&config.clock));
        let shared = Shared {
            store: Arc::clone(&store),
            next_ticket: AtomicU64::new(1),
            // Random high bits: a session of an earlier process is never taken for one of this.
            next_session: AtomicU64::new((rand::random::<u64>() >> 1) & !0xffff_ffff),
            requests,
            reports,
            beats,
            view,
            readiness,
            events: events.clone(),
            stop,
            leads_until: leads_until.clone(),
        };
        let driver = Driver {
            store,
            config,
            requests: requests_rx,
            reports: reports_rx,
            beats: beats_rx,
            view: view_tx,
            readiness: readiness_tx,
            events,
            stop: stop_rx,
            leads_until,
        };
        (Self { shared: Arc::new(shared) }, driver)
    }

    /// Hands a request to the engine and waits for the reply that follows its commit.
    ///
    /// `make` gets the ticket that the input must carry.
    ///
    /// # Errors
    /// [`RequestError`]; see each variant for what is known then.
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
            // The driver answers all tickets, so it is gone, or it is stuck in a commit.
            Ok(Err(_)) | Err(_) => Err(RequestError::OutcomeUnknown),
        }
    }

    /// Whether this server decides, and so hears of everything that happens.
    ///
    /// # Errors
    /// [`RequestError::Loading`] or [`RequestError::Stopping`] if it does not.
    pub fn decides(&self) -> Result<(), RequestError> {
        match &*self.shared.readiness.borrow() {
            Readiness::Ready | Readiness::Full if self.shared.leads_until.is_valid() => Ok(()),
            Readiness::Ready | Readiness::Full | Readiness::Suspended | Readiness::Loading { .. } => {
                Err(RequestError::Loading)
            }
            Readiness::Stopping | Readiness::Failed { .. } => Err(RequestError::Stopping),
        }
    }

    /// Refuses what the node's state does not let in, before it costs anything.
    fn admit(&self, input: &Input) -> Result<(), RequestError> {
        self.decides()?;
        match &*self.shared.readiness.borrow() {
            Readiness::Full if is_new_work(input) => Err(RequestError::Full),
            _ => Ok(()),
        }
    }

    /// What goes on now; renewed about ten times a second while something changes.
    pub fn view(&self) -> Arc<View> {
        Arc::clone(&self.shared.view.borrow())
    }

    /// The rows.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.shared.store
    }

    /// Committed events from now on. A receiver that lags reads the store instead.
    pub fn events(&self) -> broadcast::Receiver<Arc<EventBatch>> {
        self.shared.events.subscribe()
    }

    /// Whether it takes requests.
    pub fn ready(&self) -> Readiness {
        let readiness = self.shared.readiness.borrow().clone();
        self.shared.leads_until.shown(readiness)
    }

    /// Waits until `wanted` holds of the readiness; at once if it does already.
    ///
    /// Returns what it is then, or what it was last if the driver is gone.
    pub async fn wait_ready(&self, wanted: impl FnMut(&Readiness) -> bool) -> Readiness {
        let mut readiness = self.shared.readiness.clone();
        match readiness.wait_for(wanted).await {
            Ok(now) => return now.clone(),
            Err(_closed) => {}
        }
        self.ready()
    }

    /// Completes when the node does not decide (any more); for streams that would else never end, or miss
    /// what happens elsewhere.
    pub async fn resigned(&self) {
        self.wait_ready(|readiness| !matches!(readiness, Readiness::Ready | Readiness::Full)).await;
    }

    /// Whether it leads in name only: its leadership lease has ended, and it does not know who leads now.
    pub(crate) fn is_suspended(&self) -> bool {
        self.ready() == Readiness::Suspended
    }

    /// Completes when the leadership lease ends without a renewal: sessions of workers end then, so that these look
    /// for another leader.
    pub(crate) async fn suspended(&self) {
        self.wait_ready(|readiness| *readiness == Readiness::Suspended).await;
    }

    /// Begins the shutdown: what is in the inbox is still decided and committed.
    pub fn stop(&self) {
        self.shared.stop.send_replace(true);
    }

    /// A number for a new worker session, never given out before.
    pub(crate) fn new_session(&self) -> Session {
        Session(self.shared.next_session.fetch_add(1, Ordering::Relaxed))
    }

    /// Opens a session; waits while the inbox is full.
    pub(crate) async fn join(
        &self,
        join: engine::Join,
        outbox: mpsc::Sender<ToWorker>,
    ) -> Result<(), Closed> {
        let message = FromWorker::Join { join: Box::new(join), outbox };
        self.shared.reports.send(message).await.map_err(|_| Closed)
    }

    /// Passes on what a worker reported; waits while the inbox is full.
    pub(crate) async fn report(&self, inputs: Vec<Input>) -> Result<(), Closed> {
        self.shared.reports.send(FromWorker::Inputs(inputs)).await.map_err(|_| Closed)
    }

    /// Passes on a beat; waits while the inbox is full.
    pub(crate) async fn beat(&self, beat: Beat) -> Result<(), Closed> {
        self.shared.beats.send(beat).await.map_err(|_| Closed)
    }
}

/// The driver is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Closed;
