//! The replicated store: [`RaftStore`] implements every trait of a [`Store`](store::Store) over a [`Node`].
//!
//! | calls | where |
//! |---|---|
//! | commits and leases | proposed by the leader; refused elsewhere |
//! | other changes | forwarded to the leader, then applied here before the answer |
//! | reads | from the replica of this server, after it has applied all that was acknowledged before |
//! | announcements of servers | in memory, exchanged with the leader |
//!
//! - `machine`: the replica as the machine of a node.
//! - `leases`: ownership of shards, which only the leader of the log can have.
//! - `commits`, `members`, `reads`, `changes`: the other traits.
//! - `joining`: how a new server becomes a member of the cluster.
//! - `restore`: a new cluster with the rows of another store.
//! - `reopened` (feature `testing`): the servers of a cluster that has ended, in one process.
//!
//! # Invariants
//! - Only the leader of the log acquires shards. The first entry of another leader voids all leases, so no commit of an
//!   earlier leadership is applied later.
//! - A renewal needs a round of the leader, after which no other server can lead for the time of a lease.
//! - After a failed commit, later ones of this process are refused until its owner has loaded its rows again.

mod changes;
mod commits;
mod joining;
mod leases;
mod machine;
mod members;
mod reads;
#[cfg(feature = "testing")]
mod reopened;
mod restore;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration as StdDuration;

use model::{Duration, Timestamp};
use store::StoreError;
use store::command::{Command, DamagedRow, Refused, Reply, Update};
use store::replica::{Replica, ReplicaOptions, StoreGuard};
use store::sqlite::Clock;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub use self::joining::{JoinFailed, Joined, ask as ask_to_join};
use self::leases::LeaseTable;
use self::machine::{Answer, Halt, Proposal, Rejection, ReplicaMachine};
use self::members::OwnServers;
#[cfg(feature = "testing")]
pub use self::reopened::Reopened;
pub use self::restore::{RestoreError, Restored, backup_member, has_rows, is_member, restore};
use crate::error::{OpenError, ProposeError, ReadError, TransferError};
use crate::log::Space;
use crate::machine::MachineError;
use crate::net::{BoxStream, Transport};
use crate::node::{self, Leadership, Node, Status};
use crate::timing::Timing;
use crate::types::NodeId;

/// Maximum time in which a change waits for a leader.
const LEADER_PATIENCE: StdDuration = StdDuration::from_secs(5);
/// Pause before a change is sent again to a cluster that may have another leader by now.
const AGAIN_AFTER: StdDuration = StdDuration::from_millis(50);

/// How a store is opened.
#[derive(Clone)]
pub struct Options {
    /// Options of the node. Its folder also contains the replica.
    pub node: node::Options,
    /// Number of shards, the same on all servers of a cluster.
    pub shards: u16,
    /// Maximum number of concurrent queries.
    pub readers: usize,
    /// Maximum duration of a query, and of its wait for a connection.
    pub query_limit: Duration,
    /// Disk space that the replica reserves for a full volume, in bytes.
    pub ballast_bytes: u64,
    /// Clock of the store.
    pub clock: Clock,
}

impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options").field("node", &self.node).finish_non_exhaustive()
    }
}

impl Options {
    /// Returns the options of a server; see [`store::sqlite::Options`] for their defaults.
    pub fn new(node: node::Options) -> Self {
        let defaults = store::sqlite::Options::default();
        Self {
            node,
            shards: defaults.shards,
            readers: defaults.readers,
            query_limit: defaults.query_limit,
            ballast_bytes: defaults.ballast_bytes,
            clock: defaults.clock,
        }
    }

    /// Returns the file of the replica.
    pub fn replica_path(&self) -> PathBuf {
        self.node.folder.join(restore::ROWS)
    }
}

/// Replicated store of one server.
#[derive(Debug)]
pub struct RaftStore {
    node: Node<ReplicaMachine>,
    replica: Arc<Replica>,
    cluster: u128,
    shards: u16,
    timing: Timing,
    clock: DebugClock,
    table: LeaseTable,
    halt: Halt,
    servers: OwnServers,
    /// Why the rows of this server cannot be trusted: a batch of its engine broke an invariant.
    broken: OnceLock<String>,
    /// Ends the task that moves damaged rows.
    stop: CancellationToken,
}

struct DebugClock(Clock);

impl DebugClock {
    fn now(&self) -> Timestamp {
        (self.0)()
    }
}

impl std::fmt::Debug for DebugClock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Clock")
    }
}

impl RaftStore {
    /// Opens the store of a server, and takes part in the cluster. No server may lead yet.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub async fn open(options: Options, transport: Arc<dyn Transport>) -> Result<Self, OpenError> {
        let path = options.replica_path();
        let of_replica = ReplicaOptions {
            shards: options.shards,
            readers: options.readers,
            query_limit: options.query_limit,
            ballast_bytes: options.ballast_bytes,
            clock: Arc::clone(&options.clock),
        };
        let opened = tokio::task::spawn_blocking(move || Replica::open(&path, of_replica)).await;
        let opened = opened.map_err(|error| MachineError::caused("cannot open the replica", error))?;
        let replica = opened
            .map_err(|error| MachineError::caused(format!("cannot open the replica: {error}"), error))?;
        let replica = Arc::new(replica);
        let (timing, cluster) = (options.node.timing.clone(), options.node.cluster);
        let machine = ReplicaMachine::new(Arc::clone(&replica));
        let node = Node::open(options.node, machine, transport).await?;
        let guard =
            replica.store().await.map_err(|error| MachineError::caused("cannot read the replica", error))?;
        let shards = store::Leases::shards(&*guard);
        drop(guard);
        let damage = replica.damage().await;
        let damage = damage.map_err(|error| MachineError::caused("cannot read the replica", error))?;
        let stop = CancellationToken::new();
        let moving = quarantine(node.clone(), damage, Arc::clone(&options.clock));
        tokio::spawn(stop.clone().run_until_cancelled_owned(moving));
        Ok(Self {
            node,
            replica,
            cluster,
            shards,
            timing,
            clock: DebugClock(options.clock),
            table: LeaseTable::default(),
            halt: Halt::default(),
            servers: OwnServers::default(),
            broken: OnceLock::new(),
            stop,
        })
    }

    /// Returns the node: its status, members and transfers of the leadership.
    pub fn status(&self) -> Status {
        self.node.status()
    }

    /// Returns who leads the log, and its changes.
    pub fn leadership(&self) -> Leadership {
        self.node.leadership()
    }

    /// Waits, without end, until a leader answers and this server has applied what was acknowledged before.
    pub async fn wait_for_leader(&self) {
        while let Err(error) = self.node.read().await {
            if error == ReadError::Stopped {
                return;
            }
        }
    }

    /// Serves the connection of another node of the cluster until it ends. The caller has authenticated the node.
    pub async fn serve_peer(&self, stream: BoxStream, node: NodeId) {
        self.node.serve_peer(stream, node).await;
    }

    /// Adds a node that gets the entries and does not vote.
    ///
    /// # Errors
    /// See [`MembershipError`](crate::error::MembershipError).
    pub async fn add_learner(
        &self,
        node: NodeId,
        peer: crate::types::Peer,
    ) -> Result<(), crate::error::MembershipError> {
        self.node.add_learner(node, peer).await
    }

    /// Makes a learner a voter.
    ///
    /// # Errors
    /// See [`MembershipError`](crate::error::MembershipError).
    pub async fn promote(&self, node: NodeId) -> Result<(), crate::error::MembershipError> {
        self.node.promote(node).await
    }

    /// Removes a member that has ended for good, on the leader. A server that comes back later must join again with an
    /// empty data folder.
    ///
    /// # Errors
    /// See [`MembershipError`](crate::error::MembershipError).
    pub async fn remove(&self, node: NodeId) -> Result<(), crate::error::MembershipError> {
        self.node.remove(node).await
    }

    /// Transfers the leadership of the log to another voter: to this one, or to the one with the most entries.
    ///
    /// # Errors
    /// See [`TransferError`].
    pub async fn transfer(&self, to: Option<NodeId>) -> Result<(), TransferError> {
        self.node.transfer(to).await
    }

    /// Transfers the leadership of the log to any other voter, if this server has it: before a planned stop, so that the
    /// cluster need not wait for the end of its lease.
    pub async fn leave_leadership(&self) {
        match self.node.transfer(None).await {
            Ok(()) | Err(TransferError::NotLeader | TransferError::NoTarget) => {}
            Err(error) => tracing::warn!(%error, "cannot transfer the leadership before the stop"),
        }
    }

    /// Stops the node, and closes its files. Returns when its folder can be opened again.
    pub async fn shutdown(&self) {
        self.stop.cancel();
        self.node.shutdown().await;
        self.replica.close().await;
    }

    /// Returns the store of the replica, after it has applied all that was acknowledged before the call.
    async fn read(&self) -> Result<StoreGuard, StoreError> {
        self.node.read().await.map_err(|error| match error {
            ReadError::NoLeader { .. } | ReadError::Stopped => {
                StoreError::Unavailable { source: error.into() }
            }
        })?;
        self.replica.store().await
    }

    /// Applies a change, on the leader and here. Waits a few seconds for a leader.
    async fn update(&self, update: Update) -> Result<Reply, StoreError> {
        let command = Command::Update(update);
        if self.node.space().get() != Space::Enough && command.adds_work() {
            return Err(StoreError::Full);
        }
        let give_up = Instant::now() + LEADER_PATIENCE;
        loop {
            let proposal = Proposal { command: command.clone(), halt: None };
            match self.node.forward(proposal).await {
                // Nothing was changed.
                Err(ProposeError::NotLeader { .. } | ProposeError::Unavailable { .. })
                    if Instant::now() < give_up =>
                {
                    tokio::time::sleep(AGAIN_AFTER).await;
                }
                answered => return reply(answered),
            }
        }
    }

    async fn done(&self, update: Update) -> Result<(), StoreError> {
        self.update(update).await.map(drop)
    }

    /// Applies a change that answers a number of rows.
    async fn changed(&self, update: Update) -> Result<u64, StoreError> {
        match self.update(update).await? {
            Reply::Changed(rows) => Ok(rows),
            other => Err(unexpected(&other)),
        }
    }
}

fn unexpected(reply: &Reply) -> StoreError {
    StoreError::OutcomeUnknown {
        source: format!("the leader answered {reply:?}, which is of another change").into(),
    }
}

/// Returns the answer to a change as the contract of a store wants it.
fn reply(answered: Result<Answer, ProposeError>) -> Result<Reply, StoreError> {
    match answered {
        Ok(Ok(reply)) => Ok(reply),
        Ok(Err(Rejection::Refused(Refused::Fenced(shard)))) => Err(StoreError::Fenced { shard }),
        Ok(Err(Rejection::Refused(Refused::Broken(reason)))) => Err(StoreError::Fatal { reason }),
        Ok(Err(Rejection::Halted)) => {
            Err(StoreError::Unavailable { source: "an earlier commit failed".into() })
        }
        Err(error @ (ProposeError::Unknown { .. } | ProposeError::Stopped)) => {
            Err(StoreError::OutcomeUnknown { source: error.into() })
        }
        Err(error) => Err(StoreError::Unavailable { source: error.into() }),
    }
}

/// Moves rows that cannot be decoded to the quarantine of all replicas, while this node leads. A row that is damaged on
/// another server alone stays where it is.
async fn quarantine(
    node: Node<ReplicaMachine>,
    mut damage: UnboundedReceiver<Vec<DamagedRow>>,
    clock: Clock,
) {
    while let Some(rows) = damage.recv().await {
        if !node.leads() {
            continue;
        }
        let rows = match node.machine().replica().with_content(rows).await {
            Ok(rows) if rows.is_empty() => continue,
            Ok(rows) => rows,
            Err(error) => {
                tracing::warn!(%error, "cannot read damaged rows again");
                continue;
            }
        };
        let quarantine = Update::MoveToQuarantine { rows, now: clock() };
        if let Err(error) = node.propose(quarantine.into()).await {
            tracing::warn!(%error, "cannot move damaged rows to the quarantine");
        }
    }
}
