//! Tests of behaviour that is invisible from outside: the time from which heartbeats are counted, and
//! decisions made during a commit.
//!
//! A [`Node`] runs with its real thread on a [`ManualClock`], which only the test advances, and over a store
//! that can be made to wait. [`Lanes`] is the worker's end of its streams. The clock can suspend its reader
//! right after a reading, which is how the tests hit the moments between reading the clock and using it.
//!
//! `clock_leaps` covers wall clocks that jump, `full` a store without space, `leadership` a lease that is not
//! confirmed in time.

mod clock_leaps;
mod full;
mod leadership;

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use engine::input::{Key, NewJob};
use engine::{Join, Reply};
use futures::FutureExt;
use model::record::JobHead;
use model::worker::{Capabilities, Capacity, Health};
use model::{JobSpec, Timestamp, WorkerId};
use store::faulty::{FaultyStore, Operation};
use store::sqlite::{Options, SqliteStore};

use super::*;
use crate::clock::Clock;
use crate::config::ServerConfig;
use crate::members::Members;
use crate::metrics::Metrics;

const LEASE: Duration = Duration::from_secs(1);
const WORKER: WorkerId = WorkerId::from_bits(1);

/// Duration for which a reader of the clock is suspended: longer than the engine's margin, and too short to be noticed
/// as a stall.
const STALL: Duration = Duration::from_millis(400);

/// A manual clock. Its reader may be suspended right after reading, as if the thread was descheduled, while a heartbeat
/// arrives.
struct ManualClock {
    now: AtomicI64,
    /// Offset of the wall clock from the steady clock, in microseconds.
    ahead: AtomicI64,
    /// Heartbeats that arrive while the next readers are suspended.
    meanwhile: Mutex<Option<(Node, Vec<HeartbeatRequest>)>>,
    /// Whether the engine's thread, the only reader of both clocks, hangs in reading them.
    hangs: AtomicBool,
}

impl ManualClock {
    fn on(&self, by: Duration) {
        let micros = i64::try_from(by.as_millis()).unwrap() * 1_000;
        self.now.fetch_add(micros, Ordering::SeqCst);
    }

    /// Lets time pass while the returned set lives.
    fn runs(self: &Arc<Self>) -> tokio::task::JoinSet<()> {
        let (dial, tick) = (Arc::clone(self), Duration::from_millis(1));
        let mut turns = tokio::task::JoinSet::new();
        turns.spawn(async move {
            loop {
                tokio::time::sleep(tick.to_std()).await;
                dial.on(tick);
            }
        });
        turns
    }

    /// Sets the offset of the wall clock from the steady clock.
    fn leap(&self, ahead: Duration) {
        let micros = i64::try_from(ahead.as_millis()).unwrap() * 1_000;
        self.ahead.store(micros, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.now.load(Ordering::SeqCst) + self.ahead.load(Ordering::SeqCst))
    }

    fn steady(&self) -> Timestamp {
        Timestamp::from_micros(self.now.load(Ordering::SeqCst))
    }

    fn both(&self) -> engine::Now {
        while self.hangs.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        let read = engine::Now { wall: self.now(), steady: self.steady() };
        if let Some((node, beats)) = self.meanwhile.lock().unwrap().as_mut()
            && let Some(beat) = beats.pop()
        {
            self.on(STALL);
            assert!(node.shared.heartbeats.try_send(beat).is_ok());
        }
        read
    }
}

/// The worker's end of its streams.
struct Lanes {
    node: Node,
    /// Ends when the node closes the session.
    closed: oneshot::Receiver<()>,
    session: Session,
    seq: u64,
    grants: mpsc::Sender<Grant>,
    granted: mpsc::Receiver<Grant>,
}

impl Lanes {
    async fn open(node: &Node) -> Self {
        let session = node.new_session();
        let (outbox, mut messages) = mpsc::channel(16);
        let join = Join {
            worker: WORKER,
            session,
            name: "w".into(),
            version: "1".into(),
            address: None,
            labels: [].into(),
            capacity: Capacity { slots: 1, ..Capacity::default() },
            capabilities: Capabilities::default(),
            held: Vec::new(),
        };
        node.join(join, outbox).await.unwrap();
        messages.recv().await.expect("a welcome");
        let (grants, granted) = mpsc::channel(16);
        // The session lives as long as its messages can be read.
        let (open, closed) = oneshot::channel();
        tokio::spawn(async move {
            while messages.recv().await.is_some() {}
            drop(open);
        });
        Self { node: node.clone(), closed, session, seq: 0, grants, granted }
    }

    fn next(&mut self, session: Session) -> HeartbeatRequest {
        self.seq += 1;
        let input = Input::Heartbeat { worker: WORKER, session, seq: self.seq, health: Health::default() };
        HeartbeatRequest { session, input, grants: self.grants.clone() }
    }

    /// Wakes the node, which reads its clock. The grant for this unknown session is 0.
    async fn wake(&mut self) {
        let beat = self.next(Session(0));
        self.node.heartbeat(beat).await.unwrap();
    }

    /// Wakes the node, and waits until it has read its clock.
    async fn poke(&mut self) {
        self.wake().await;
        assert_eq!(self.grant().await, 0, "the session was never opened");
    }

    /// Returns the lease of the next grant, in milliseconds.
    async fn grant(&mut self) -> u64 {
        self.granted.recv().await.expect("a grant").lease.as_millis()
    }

    /// Returns whether the node still considers the worker alive.
    async fn is_known(&mut self) -> bool {
        // It acts on the time of the first heartbeat before it receives the second.
        self.poke().await;
        self.poke().await;
        let beat = self.next(self.session);
        self.node.heartbeat(beat).await.unwrap();
        self.grant().await > 0
    }
}

/// Starts a node over this store, and waits until it leads.
async fn ready(
    store: Arc<dyn Store>,
    dir: &std::path::Path,
    clock: Arc<ManualClock>,
) -> (Node, DriverHandle) {
    leading(store, dir, clock, |_| {}).await
}

/// Starts a node like `ready`, with changed settings.
async fn leading(
    store: Arc<dyn Store>,
    dir: &std::path::Path,
    clock: Arc<ManualClock>,
    change: impl FnOnce(&mut NodeConfig),
) -> (Node, DriverHandle) {
    let mut settings = ServerConfig::new(dir);
    settings.engine.lease = LEASE;
    let members = Members::new(Arc::clone(&store), &settings, None);
    let mut config = NodeConfig::new(&settings, members, Metrics::new());
    config.clock = clock;
    change(&mut config);
    let (node, driver) = Node::new(store, config);
    let thread = driver.spawn().unwrap();
    node.wait_ready(|now| *now == Readiness::Ready).await;
    (node, thread)
}

fn dial() -> Arc<ManualClock> {
    let (now, ahead) = (AtomicI64::new(1_800_000_000_000_000), AtomicI64::new(0));
    Arc::new(ManualClock { now, ahead, meanwhile: Mutex::new(None), hangs: AtomicBool::new(false) })
}

fn sqlite(dir: &std::path::Path) -> SqliteStore {
    SqliteStore::open(dir.join("belfry.db"), Options::default()).unwrap()
}

const KEY: Key = Key { key: 7, body: 1 };

/// Submits jobs that all have the same key.
async fn submit(node: &Node, count: usize) -> Vec<model::JobId> {
    try_submit(node, count, Some(KEY)).await.unwrap()
}

async fn try_submit(node: &Node, count: usize, key: Option<Key>) -> Result<Vec<model::JobId>, RequestError> {
    let spec = JobSpec::command(["true"]);
    let body = serde_json::to_string(&spec).unwrap().into();
    let head =
        JobHead { spec: Arc::new(spec), body, retry_of: None, origin: None, step: None, replica: None };
    let jobs = vec![NewJob { head: Arc::new(head), key, actor: "test".into(), ended: Vec::new() }; count];
    match node.request(move |ticket| Input::Submit { ticket, jobs }).await? {
        Reply::Submitted(made) => Ok(made.into_iter().map(|made| made.job).collect()),
        other => panic!("{other:?}"),
    }
}

/// D7, I6. A reply that changes no row may still report a job whose row is not committed yet.
#[tokio::test]
async fn a_reply_without_changes_waits_for_pending_commits() {
    // This number of jobs is decided during a commit.
    const MANY: usize = 3_000;
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(FaultyStore::new(sqlite(dir.path())));
    let (node, thread) = ready(Arc::clone(&store) as Arc<dyn Store>, dir.path(), dial()).await;
    let mut lanes = Lanes::open(&node).await;
    let stall = store.stall(Operation::Commit, store.calls(Operation::Commit) + 1);
    let of_first = node.clone();
    let first = tokio::spawn(async move { submit(&of_first, 1).await });
    stall.reached().await;
    let mut others = Box::pin(submit(&node, MANY));
    assert!(others.as_mut().now_or_never().is_none());
    // The first grant proves that the node took what was in the lanes before, the next one that it decided it.
    for _ in 0..3 {
        lanes.poke().await;
    }
    assert!(others.as_mut().now_or_never().is_none(), "they report a job that is not committed yet");
    stall.release();
    let made = first.await.unwrap();
    assert_eq!(others.await, vec![made[0]; MANY]);
    node.stop();
    thread.join().await.unwrap();
}

/// D2. The worker counts its lease from sending the heartbeat. If the server counted it from an earlier time, the lease
/// would expire here first, and the work could start elsewhere while it still runs.
#[tokio::test]
async fn a_heartbeat_during_a_stall_is_counted_from_its_receipt() {
    let dir = tempfile::tempdir().unwrap();
    let dial = dial();
    let (node, thread) = ready(Arc::new(sqlite(dir.path())), dir.path(), Arc::clone(&dial)).await;

    let mut lanes = Lanes::open(&node).await;
    // The thread reads its clock in several places, and the test cannot know where it is.
    for _ in 0..20 {
        let beats = vec![lanes.next(lanes.session), lanes.next(lanes.session)];
        *dial.meanwhile.lock().unwrap() = Some((node.clone(), beats));
        // The thread may have woken by itself, and received the two heartbeats first.
        lanes.wake().await;
        let mut granted = [lanes.grant().await, lanes.grant().await, lanes.grant().await];
        granted.sort_unstable();
        assert_eq!(granted, [0, 1_000, 1_000]);
        dial.on(Duration::from_millis(950));
        assert!(lanes.is_known().await, "the worker is lost, although its lease lasts another 50 ms");
    }
    dial.on(Duration::from_millis(1_500));
    assert!(!lanes.is_known().await, "its lease expired long ago");
    node.stop();
    thread.join().await.unwrap();
}
