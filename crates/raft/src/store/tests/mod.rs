//! The replicated store: the contract on one server, and clusters of three in one process.

mod cluster;
mod contract;
mod joining;
mod restore;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use model::{Duration, Timestamp};
use tempfile::TempDir;

use super::{Options, RaftStore};
use crate::log::OnFailure;
use crate::net::Mesh;
use crate::node::{self, Start};
use crate::types::{NodeId, Peer};

const CLUSTER: u128 = 9;
/// How long a test waits for anything.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(30);

async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, future).await {
        Ok(value) => value,
        Err(_) => panic!("{what}: not within {PATIENCE:?}"),
    }
}

/// A clock that only tests advance.
#[derive(Debug, Clone)]
struct ManualClock(Arc<AtomicI64>);

impl ManualClock {
    fn new() -> Self {
        Self(Arc::new(AtomicI64::new(1_795_000_000_000_000)))
    }

    fn advance(&self, by: Duration) {
        self.0.fetch_add(i64::try_from(by.as_millis() * 1_000).unwrap(), Ordering::Relaxed);
    }
}

/// A server, which can be stopped and started again.
struct Server {
    id: NodeId,
    store: Option<Arc<RaftStore>>,
}

/// Servers in one process, each with its own folder.
struct Servers {
    mesh: Mesh,
    folder: TempDir,
    clock: ManualClock,
    peer: fn(NodeId) -> Peer,
    servers: Vec<Server>,
}

impl Servers {
    fn none(peer: fn(NodeId) -> Peer) -> Self {
        let (mesh, folder) = (Mesh::new(), tempfile::tempdir().unwrap());
        Self { mesh, folder, clock: ManualClock::new(), peer, servers: Vec::new() }
    }

    /// Starts one server, which leads.
    async fn one() -> Self {
        Self::one_at(|_| Peer::default()).await
    }

    /// As [`one`](Self::one); `peer` says how the servers reach each other.
    async fn one_at(peer: fn(NodeId) -> Peer) -> Self {
        let mut servers = Self::none(peer);
        servers.add(Start::Bootstrap).await;
        servers.wait_for_leader(0).await;
        servers
    }

    /// Starts three servers that vote; the first one leads.
    async fn three() -> Self {
        let mut servers = Self::one().await;
        servers.add_voters(2).await;
        servers
    }

    async fn add_voters(&mut self, count: usize) {
        for _ in 0..count {
            let at = self.add(Start::Join).await;
            let id = self.servers[at].id;
            self.store(0).add_learner(id, Peer::default()).await.unwrap();
            self.store(0).promote(id).await.unwrap();
        }
    }

    async fn add(&mut self, start: Start) -> usize {
        let id = NodeId(self.servers.len() as u64 + 1);
        self.servers.push(Server { id, store: None });
        self.open(self.servers.len() - 1, start).await;
        self.servers.len() - 1
    }

    async fn open(&mut self, at: usize, start: Start) {
        let id = self.servers[at].id;
        let now = Arc::clone(&self.clock.0);
        let node = node::Options {
            on_failure: OnFailure::call(|failure| eprintln!("{failure}: {}", failure.source)),
            segment_bytes: 1 << 20,
            ..node::Options::new(self.path(at), CLUSTER, id, (self.peer)(id), start)
        };
        let options = Options {
            ballast_bytes: 0,
            clock: Arc::new(move || Timestamp::from_micros(now.load(Ordering::Relaxed))),
            ..Options::new(node)
        };
        let store = Arc::new(RaftStore::open(options, self.mesh.transport(id)).await.unwrap());
        let serving = Arc::downgrade(&store);
        self.mesh.listen(id, move |stream, from| {
            if let Some(store) = serving.upgrade() {
                tokio::spawn(async move { store.serve_peer(stream, from).await });
            }
        });
        self.servers[at].store = Some(store);
    }

    /// Stops a server without a transfer of its leadership.
    async fn stop(&mut self, at: usize) {
        self.mesh.close(self.servers[at].id);
        if let Some(store) = self.servers[at].store.take() {
            store.shutdown().await;
        }
    }

    fn path(&self, at: usize) -> PathBuf {
        self.folder.path().join(self.servers[at].id.to_string())
    }

    fn replica_path(&self, at: usize) -> PathBuf {
        self.path(at).join("state.db")
    }

    fn store(&self, at: usize) -> &Arc<RaftStore> {
        self.servers[at].store.as_ref().expect("the server runs")
    }

    fn running(&self) -> impl Iterator<Item = usize> {
        (0..self.servers.len()).filter(|at| self.servers[*at].store.is_some())
    }

    /// Waits until a server knows a leader, and returns its place.
    async fn wait_for_leader(&self, at: usize) -> usize {
        let mut leadership = self.store(at).leadership();
        let ids: Vec<_> = self.running().map(|at| self.servers[at].id).collect();
        let waiting = leadership.wait_for(|leader| ids.contains(&leader));
        let leader = within("a leader is elected", waiting).await.expect("the server runs");
        self.servers.iter().position(|server| server.id == leader).expect("it is one of them")
    }
}
