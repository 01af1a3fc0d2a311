//! Servers: the real ones with a simulated network and clock, over one store.
//!
//! The store is the embedded one, on a disk that outlives the servers. Each server has its own simulated connection
//! to it, on which calls take virtual time and may fail, as with a shared database.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use model::record::{Batch, Lease};
use server::config::{PostgresConfig, StoreConfig};
use server::listener::Listener;
use server::{EngineThread, Environment, Running, ServerConfig, StartError};
use sim::dice::Dice;
use store::Store;
use store::faulty::{FaultyStore, Operation, Simulation};
use store::sqlite::SqliteStore;
use tokio::runtime::Handle;
use turmoil::net::{TcpListener, TcpStream};

use crate::recorder::{Recorder, WorldClock};

/// Port on which servers listen.
pub(crate) const PORT: u16 = 7070;
/// Duration of the lease on the shards.
pub(crate) const SHARD_LEASE: model::Duration = model::Duration::from_millis(2_500);

/// Maximum delay of a store call in each direction without a fault, in milliseconds.
pub(crate) const CALL_MILLIS: u64 = 3;

/// Value of [`StoreConnection::outage`] while the store is reachable.
pub(crate) const REACHABLE: u64 = u64::MAX;

/// Name of the host of a server.
pub(crate) fn name(server: usize) -> String {
    format!("s{server}")
}

pub(crate) fn url(server: usize) -> String {
    format!("http://{}:{PORT}", name(server))
}

/// The connection of a server to the store; clones are the same connection.
#[derive(Debug, Clone)]
pub(crate) struct StoreConnection {
    pub(crate) store: Arc<FaultyStore<SqliteStore>>,
    /// Maximum delay of a call in each direction, in milliseconds.
    pub(crate) slow: Arc<AtomicU64>,
    /// Time until a call fails while the store is unreachable, in milliseconds; [`REACHABLE`] otherwise.
    pub(crate) away: Arc<AtomicU64>,
}

impl StoreConnection {
    pub(crate) fn new(
        server: usize,
        store: Arc<SqliteStore>,
        aside: &Handle,
        recorder: Recorder,
        dice: Dice,
    ) -> Self {
        let (slow, away) = (Arc::new(AtomicU64::new(CALL_MILLIS)), Arc::new(AtomicU64::new(REACHABLE)));
        let number = u32::try_from(server).unwrap_or(u32::MAX);
        let dice = Mutex::new(dice);
        let road = Calls { number, recorder, slow: Arc::clone(&slow), away: Arc::clone(&away), dice };
        Self { store: Arc::new(FaultyStore::simulated(store, road, aside.clone())), slow, away }
    }
}

/// Delays, failures and recording of the store calls of one server.
#[derive(Debug)]
struct Calls {
    number: u32,
    recorder: Recorder,
    slow: Arc<AtomicU64>,
    away: Arc<AtomicU64>,
    dice: Mutex<Dice>,
}

impl Simulation for Calls {
    fn delays(&self, operation: Operation) -> [Duration; 2] {
        let longest = self.slow.load(Ordering::Relaxed);
        let mut dice = self.dice.lock().unwrap_or_else(PoisonError::into_inner);
        let mut delay = || Duration::from_millis(dice.between(0, longest));
        match operation {
            // The loader and the consumer of its rows wait for each other.
            Operation::Load => [delay(), Duration::ZERO],
            _ => [delay(), delay()],
        }
    }

    fn outage(&self) -> Option<Duration> {
        let millis = self.away.load(Ordering::Relaxed);
        (millis != REACHABLE).then(|| Duration::from_millis(millis))
    }

    fn reached(&self, _operation: Operation) {
        self.recorder.set_store_time();
    }

    fn committed(&self, leases: &[Lease], batch: &Batch) {
        self.recorder.committed(self.number, leases, batch);
    }

    fn leased(&self, leases: &[Lease], ttl: model::Duration) {
        self.recorder.owned(self.number, leases, ttl);
    }
}

/// Listening socket of a simulated host.
struct Port(TcpListener);

impl Listener for Port {
    type Stream = TcpStream;

    async fn accept(&mut self) -> io::Result<TcpStream> {
        self.0.accept().await.map(|(stream, _)| stream)
    }

    async fn peek(stream: &mut TcpStream, first: &mut [u8]) -> io::Result<usize> {
        stream.peek(first).await
    }
}

/// Delay before a failed server is started again.
const RESTART_DELAY: Duration = Duration::from_secs(1);

/// Runs a server from power-on until its power is cut. A process that cannot start is started again.
pub(crate) async fn run_host(server: usize, way: StoreConnection, dir: &Path) -> turmoil::Result {
    loop {
        match start(server, way.clone(), dir).await {
            Ok(running) => return Err(running.failed().await.into()),
            Err(error @ (StartError::Store(_) | StartError::Tokens(_))) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "cannot start a server; retrying");
                tokio::time::sleep(RESTART_DELAY).await;
            }
            Err(error) => return Err(error.into()),
        }
    }
}

async fn start(server: usize, way: StoreConnection, dir: &Path) -> Result<Running, StartError> {
    let mut config = ServerConfig::new(dir.join(name(server)));
    config.name = name(server);
    config.advertise_url = Some(url(server));
    config.shard_lease = Some(SHARD_LEASE);
    // This configuration makes servers check each other as often as with a shared database.
    config.store = StoreConfig::Postgres(PostgresConfig {
        url: String::new(),
        password: None,
        sessions: 1,
        allow_unsafe: false,
        require_sync_standby: false,
    });
    let addr = SocketAddr::new(turmoil::lookup(name(server)), PORT);
    let listener = TcpListener::bind((IpAddr::V4(Ipv4Addr::UNSPECIFIED), PORT)).await;
    let listener = listener.map_err(|source| StartError::Listen { listen: addr, source })?;
    let site = Environment {
        store: way.store as Arc<dyn Store>,
        listener: Port(listener),
        addr,
        clock: Arc::new(WorldClock),
        engine: EngineThread::Shared,
    };
    server::start_at(config, site).await
}
