//! What cannot be seen from outside: the time that beats are counted from, and what has been decided while a
//! commit is on its way.

mod full;
mod leadership;
mod leaps;

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

/// How long a reader of the clock stands still: longer than the engine's margin, and no stall that it notices.
const STALL: Duration = Duration::from_millis(400);

/// A clock that a test sets. Whoever reads it may stand still right after: the thread was scheduled away,
/// and a beat came meanwhile.
struct Dial {
    now: AtomicI64,
    /// How far the wall clock is ahead of the steady one, in microseconds.
    ahead: AtomicI64,
    /// The beats that come while its next readers stand still.
    meanwhile: Mutex<Option<(Node, Vec<Beat>)>>,
    /// Whether the thread of the engine, which alone reads both clocks, hangs there.
    hangs: AtomicBool,
}

impl Dial {
    fn on(&self, by: Duration) {
        let micros = i64::try_from(by.as_millis()).unwrap() * 1_000;
        self.now.fetch_add(micros, Ordering::SeqCst);
    }

    /// Time passes by itself while the returned set lives.
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

    /// Sets the wall clock: it is ahead by so much from now on.
    fn leap(&self, ahead: Duration) {
        let micros = i64::try_from(ahead.as_millis()).unwrap() * 1_000;
        self.ahead.store(micros, Ordering::SeqCst);
    }
}

impl Clock for Dial {
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
            assert!(node.shared.beats.try_send(beat).is_ok());
        }
        read
    }
}

/// A worker's end of its lanes.
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
            labels: [].into(),
            capacity: Capacity { slots: 1, ..Capacity::default() },
            capabilities: Capabilities::default(),
            held: Vec::new(),
        };
        node.join(join, outbox).await.unwrap();
        messages.recv().await.expect("a welcome");
        let (grants, granted) = mpsc::channel(16);
        // The session lives as long as somebody could read from it.
        let (open, closed) = oneshot::channel();
        tokio::spawn(async move {
            while messages.recv().await.is_some() {}
            drop(open);
        });
        Self { node: node.clone(), closed, session, seq: 0, grants, granted }
    }

    fn next(&mut self, session: Session) -> Beat {
        self.seq += 1;
        let input = Input::Beat { worker: WORKER, session, seq: self.seq, health: Health::default() };
        Beat { session, input, grants: self.grants.clone() }
    }

    /// Wakes the node: it looks at its clock. It will grant 0.
    async fn wake(&mut self) {
        let beat = self.next(Session(0));
        self.node.beat(beat).await.unwrap();
    }

    /// Wakes the node, and waits until it has looked at its clock.
    async fn poke(&mut self) {
        self.wake().await;
        assert_eq!(self.grant().await, 0, "a session that nobody opened");
    }

    /// The lease that the next grant gives, in milliseconds.
    async fn grant(&mut self) -> u64 {
        self.granted.recv().await.expect("a grant").lease.as_millis()
    }

    /// Whether the node takes the worker for one that lives.
    async fn is_known(&mut self) -> bool {
        // It acts by the time that it saw for the first before it hears the second.
        self.poke().await;
        self.poke().await;
        let beat = self.next(self.session);
        self.node.beat(beat).await.unwrap();
        self.grant().await > 0
    }
}

/// A node over this store, once it decides.
async fn ready(store: Arc<dyn Store>, dir: &std::path::Path, clock: Arc<Dial>) -> (Node, DriverHandle) {
    leading(store, dir, clock, |_| {}).await
}

/// The same with other settings.
async fn leading(
    store: Arc<dyn Store>,
    dir: &std::path::Path,
    clock: Arc<Dial>,
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

fn dial() -> Arc<Dial> {
    let (now, ahead) = (AtomicI64::new(1_800_000_000_000_000), AtomicI64::new(0));
    Arc::new(Dial { now, ahead, meanwhile: Mutex::new(None), hangs: AtomicBool::new(false) })
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
    let head = JobHead { spec: Arc::new(spec), body, retry_of: None, origin: None, step: None };
    let jobs = vec![NewJob { head: Arc::new(head), key, actor: "test".into() }; count];
    match node.request(move |ticket| Input::Submit { ticket, jobs }).await? {
        Reply::Submitted(made) => Ok(made.into_iter().map(|made| made.job).collect()),
        other => panic!("{other:?}"),
    }
}

/// D7, I6. What changes no row may still tell of one that is not there yet.
#[tokio::test]
async fn an_answer_that_needs_no_commit_waits_for_those_that_are_on_their_way() {
    // So many are decided about while a commit is on its way.
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
    // A grant says that what was in the lanes before was taken, and the one behind it that it was decided.
    for _ in 0..3 {
        lanes.poke().await;
    }
    assert!(others.as_mut().now_or_never().is_none(), "they are told of a job that is not there yet");
    stall.release();
    let made = first.await.unwrap();
    assert_eq!(others.await, vec![made[0]; MANY]);
    node.stop();
    thread.join().await.unwrap();
}

/// D2. The worker counts its lease from the sending of its beat. Counted here from before that, it would be
/// shorter here than there, and its work be started elsewhere while it goes on.
#[tokio::test]
async fn a_beat_that_came_while_the_thread_stood_still_is_counted_from_its_coming() {
    let dir = tempfile::tempdir().unwrap();
    let dial = dial();
    let (node, thread) = ready(Arc::new(sqlite(dir.path())), dir.path(), Arc::clone(&dial)).await;

    let mut lanes = Lanes::open(&node).await;
    // The thread reads its clock in more places than one, and this test does not know at which it is.
    for _ in 0..20 {
        let beats = vec![lanes.next(lanes.session), lanes.next(lanes.session)];
        *dial.meanwhile.lock().unwrap() = Some((node.clone(), beats));
        // The thread may have woken by itself, and heard the two first.
        lanes.wake().await;
        let mut granted = [lanes.grant().await, lanes.grant().await, lanes.grant().await];
        granted.sort_unstable();
        assert_eq!(granted, [0, 1_000, 1_000]);
        dial.on(Duration::from_millis(950));
        assert!(lanes.is_known().await, "lost, and its lease goes on for another 50 ms");
    }
    dial.on(Duration::from_millis(1_500));
    assert!(!lanes.is_known().await, "its lease is long over");
    node.stop();
    thread.join().await.unwrap();
}
