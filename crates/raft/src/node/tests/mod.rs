//! Clusters in one process: real nodes on virtual time, logs on simulated disks, machines in memory, and connections over a
//! mesh with faults. So a test does not depend on the speed of the computer.
//!
//! `files` has tests on real files and in real time. `simulation` plays random faults.

mod elections;
mod files;
mod partitions;
mod proposals;
mod simulation;
mod snapshots;
mod suite;

use std::num::NonZeroU64;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use tokio::sync::watch;

use super::{Keep, Node, Options, Start};
use crate::disk::sim::SimDisk;
use crate::error::ProposeError;
use crate::log::simulated::Slowness;
use crate::log::{Log, OnFailure};
use crate::machine::{COPY_RATE, Memory};
use crate::net::Mesh;
use crate::timing::Timing;
use crate::types::{NodeId, Peer};

const CLUSTER: u128 = 7;
/// How long a test waits for anything.
const PATIENCE: Duration = Duration::from_secs(30);

/// Waits for a future; `what` is the message of the failure.
async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, future).await {
        Ok(value) => value,
        Err(_) => panic!("{what}: not within {PATIENCE:?}"),
    }
}

/// A server of a test. Its disk and its machine survive the node.
struct Member {
    id: NodeId,
    machine: Memory,
    disk: Arc<SimDisk>,
    /// While set, the log answers no request, so that the core of the node waits.
    hold: watch::Sender<bool>,
    node: Option<Node<Memory>>,
}

struct Cluster {
    mesh: Mesh,
    folder: TempDir,
    timing: Timing,
    part_bytes: usize,
    keep: Keep,
    copy_rate: NonZeroU64,
    members: Vec<Member>,
}

impl Cluster {
    /// Starts a cluster of voters that all follow the first one.
    async fn new(count: u64) -> Self {
        Self::with_timing(count, Timing::real()).await
    }

    async fn with_timing(count: u64, timing: Timing) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut cluster = Self {
            mesh: Mesh::new(),
            folder,
            timing,
            part_bytes: 1000,
            keep: Keep { bytes: 1024, bytes_max: 1024 * 1024, ..Keep::default() },
            copy_rate: COPY_RATE,
            members: Vec::new(),
        };
        cluster.add(Start::Bootstrap).await;
        let first = cluster.node(0).clone();
        within("the first node leads", first.leadership().wait_for(|leader| leader == first.id())).await;
        for _ in 1..count {
            cluster.join().await;
        }
        for member in 0..cluster.members.len() {
            cluster.caught_up(member).await;
        }
        cluster
    }

    /// Starts a further node, and makes it a voter.
    async fn join(&mut self) -> usize {
        let leader = self.leader().await.clone();
        let at = self.add(Start::Join).await;
        let id = self.members[at].id;
        within("the node is added", leader.add_learner(id, Peer::default())).await.unwrap();
        within("the node votes", leader.promote(id)).await.unwrap();
        at
    }

    async fn add(&mut self, start: Start) -> usize {
        let id = NodeId(self.members.len() as u64 + 1);
        let (machine, disk, hold) = (Memory::default(), SimDisk::new(), watch::Sender::new(false));
        self.members.push(Member { id, machine, disk, hold, node: None });
        let at = self.members.len() - 1;
        self.open(at, start).await;
        at
    }

    fn options(&self, at: usize, start: Start) -> Options {
        let id = self.members[at].id;
        let folder = self.folder.path().join(id.to_string());
        Options {
            timing: self.timing.clone(),
            on_failure: OnFailure::call(|failure| eprintln!("{failure}: {}", failure.source)),
            keep: self.keep,
            copy_rate: self.copy_rate,
            segment_bytes: 16 * 1024,
            part_bytes: self.part_bytes,
            seed: id.0,
            ..Options::new(folder, CLUSTER, id, Peer::default(), start)
        }
    }

    async fn open(&mut self, at: usize, start: Start) {
        let (options, member) = (self.options(at, start), &self.members[at]);
        let (id, machine) = (member.id, member.machine.clone());
        let (disk, slowness) =
            (Arc::clone(&member.disk), Slowness { luck: None, hold: member.hold.subscribe() });
        let open = |_: &Path, options| Log::open_simulated(disk, options, slowness);
        let node = Node::open_on(options, machine, self.mesh.transport(id), open).await.unwrap();
        let serving = node.clone();
        self.mesh.listen(id, move |stream, from| {
            let node = serving.clone();
            tokio::spawn(async move { node.serve_peer(stream, from).await });
        });
        self.members[at].node = Some(node);
    }

    /// Stops a node. Nothing is handed over.
    async fn stop(&mut self, at: usize) {
        let member = &mut self.members[at];
        self.mesh.close(member.id);
        if let Some(node) = member.node.take() {
            within("the node stops", node.shutdown()).await;
        }
    }

    async fn restart(&mut self, at: usize) {
        self.open(at, Start::Existing).await;
    }

    fn node(&self, at: usize) -> &Node<Memory> {
        self.members[at].node.as_ref().expect("the node runs")
    }

    fn ids(&self) -> Vec<NodeId> {
        self.members.iter().map(|member| member.id).collect()
    }

    fn running(&self) -> impl Iterator<Item = &Node<Memory>> {
        self.members.iter().filter_map(|member| member.node.as_ref())
    }

    fn at(&self, id: NodeId) -> usize {
        self.members.iter().position(|member| member.id == id).expect("the node is a member")
    }

    /// Waits until one of the running nodes has the lease; returns it.
    async fn leader(&self) -> &Node<Memory> {
        self.leader_of(&self.running().collect::<Vec<_>>()).await
    }

    async fn leader_of<'a>(&self, nodes: &[&'a Node<Memory>]) -> &'a Node<Memory> {
        let leading = nodes.iter().map(|node| {
            Box::pin(async move {
                let mut leadership = node.leadership();
                loop {
                    if leadership.wait_for(|leader| leader == node.id()).await.is_none() {
                        std::future::pending::<()>().await;
                    }
                    if node.confirm().await && node.read().await.is_ok() && node.leads() {
                        return *node;
                    }
                    // Virtual time passes only here.
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            })
        });
        within("a node leads", futures::future::select_all(leading)).await.0
    }

    /// Waits until a node has applied what the leader has acknowledged.
    async fn caught_up(&self, at: usize) {
        within("the node has applied everything", self.node(at).read()).await.unwrap();
    }

    /// Proposes a command on the leader, until it is acknowledged. It may be applied more than once.
    async fn write(&self, command: &[u8]) -> u64 {
        within("the command is acknowledged", async {
            loop {
                let leader = self.leader().await;
                match leader.propose(command.to_vec()).await {
                    Ok(answer) => return answer,
                    Err(ProposeError::NotLeader { .. } | ProposeError::Unavailable { .. }) => {
                        tokio::time::sleep(Duration::from_millis(1)).await;
                    }
                    Err(error) => panic!("{error}"),
                }
            }
        })
        .await
    }

    /// Waits until all running machines have applied the same, and compares them.
    async fn agree(&self) {
        let leader = self.leader().await;
        leader.read().await.unwrap();
        let expected = leader.machine().commands();
        for node in self.running() {
            within("the node reads", node.read()).await.unwrap();
            let found = node.machine().commands();
            assert_eq!(found[..expected.len()], expected, "{node:?} differs from {leader:?}");
        }
    }
}

/// The commands of a machine, without the index of their entry.
fn applied(machine: &Memory) -> Vec<Vec<u8>> {
    machine.commands().into_iter().map(|(_, command)| command).collect()
}

/// Waits until a round gives a node its lease.
async fn confirmed(node: &Node<Memory>) {
    within("a round gives the lease", async {
        while !node.confirm().await {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
}

fn arc<T>(value: T) -> Arc<T> {
    Arc::new(value)
}
