//! A server of the cluster, as far as Raft is concerned.
//!
//! A [`Node`] opens the log and the machine of a server, runs openraft over them, and offers what the store needs: to propose
//! commands, to read what was acknowledged, to know who leads and until when, and to change and transfer all of it.
//!
//! - `proposer` groups operations into entries and distributes the answers.
//! - `readers` lets a read wait for everything that was acknowledged before it.
//! - `contact` decides when this node may vote, and until when it leads; `elector` begins elections; `pulse` confirms the
//!   leadership; `transfer` hands it over.
//! - `door` serves the requests of other nodes. It is the only caller of openraft for them.
//! - `roster` holds what the servers announce about themselves.
//! - `members` adds, promotes and removes members; `introductions` lets members find each other again after one of them was away or has moved.
//! - `replay` applies the whole log of a node that has stopped, without its cluster.
//! - `housekeeping` purges the log, lets the machine hurry while the node leads, completes interrupted changes of the members, and
//!   reports failures.
//!
//! # Invariants
//! - At most one node of a cluster has the lease of a leader at any time.
//! - An operation is answered after its entry is durable on a majority and applied here.
//! - A read sees everything that was acknowledged before it began, on every node.
//!
//! # Runtime
//! Tasks run on the runtime in which the node is opened. It needs two threads of its own on a busy server: the proposer
//! encodes large groups, and the rounds that hold the lease must not wait for it.

pub(crate) mod contact;
mod door;
mod elector;
mod housekeeping;
mod introductions;
mod members;
mod proposer;
mod pulse;
mod readers;
pub(crate) mod replay;
mod roster;
mod transfer;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use openraft::metrics::RaftServerMetrics;
use openraft::{Raft, RaftMetrics, ServerState};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use housekeeping::Keep;
pub use roster::Announcement;

use crate::error::{OpenError, ProposeError, ReadError, TransferError};
use crate::log::{
    self, Failure, Log, LogReader, OnFailure, Options as LogOptions, SpaceGauge, Start as LogStart,
};
use crate::machine::Belfry;
use crate::machine::copies::{COPY_RATE, Copies};
use crate::machine::parts::PART_BYTES;
use crate::machine::snapshot_files::Folder;
use crate::machine::{Applier, CopyProgress, Group, Machine, MachineError, Progress, StateMachine};
use crate::net::frame::BODY_BYTES_MAX;
use crate::net::link::{CallError, Context};
use crate::net::message::{ANNOUNCE, AnnounceRow, PROPOSE, ProposeAnswer, Refusal, Refused, decode};
use crate::net::snapshot::Receiver;
use crate::net::{BoxStream, Network, PeerLinks, Transport, Wire};
use crate::timing::Timing;
use crate::types::Permit;
use crate::types::{LogId, NodeId, Peer};
use contact::Contact;
use introductions::Acquaintances;
use proposer::Proposals;
use pulse::Pulse;
use readers::Readers;
use roster::Roster;

/// How a node becomes a member of its cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// The node is the first one of a new cluster. Can be repeated until it has succeeded.
    Bootstrap,
    /// The node is new, and waits until the leader adds it: [`Node::add_learner`], then [`Node::promote`].
    Join,
    /// The node has a log.
    Existing,
}

/// How a node is opened.
#[derive(Debug, Clone)]
pub struct Options {
    /// Folder of the log and of snapshots; created if it is missing.
    pub folder: PathBuf,
    /// Id of the cluster.
    pub cluster: u128,
    /// Id of this node. A node whose folder is lost needs a new one.
    pub node: NodeId,
    /// How the other nodes reach this one.
    pub me: Peer,
    /// How the node becomes a member.
    pub start: Start,
    /// Times of elections and requests.
    pub timing: Timing,
    /// What happens when the log or the machine fails.
    pub on_failure: OnFailure,
    /// How much of the log stays.
    pub keep: Keep,
    /// Size of a segment of the log in bytes.
    pub segment_bytes: u64,
    /// Bytes per second at which a copy of the machine is sent to another node.
    pub copy_rate: NonZeroU64,
    /// Bytes of the volume that the log leaves to others.
    pub reserve_bytes: u64,
    /// Maximum bytes of a group in one entry, at most 1 MiB; larger ones are cut into parts of this size.
    pub part_bytes: usize,
    /// Seed of the delays before elections.
    pub seed: u64,
}

impl Options {
    /// Returns the options of a server.
    pub fn new(folder: PathBuf, cluster: u128, node: NodeId, me: Peer, start: Start) -> Self {
        let log = LogOptions::new(cluster, node, LogStart::New);
        Self {
            folder,
            cluster,
            node,
            me,
            start,
            timing: Timing::real(),
            on_failure: log.on_failure,
            keep: Keep::default(),
            segment_bytes: log.segment_bytes,
            copy_rate: COPY_RATE,
            reserve_bytes: 0,
            part_bytes: PART_BYTES,
            seed: RandomState::new().build_hasher().finish(),
        }
    }

    fn log(&self) -> LogOptions {
        let start = match self.start {
            Start::Bootstrap | Start::Join => LogStart::New,
            Start::Existing => LogStart::Existing,
        };
        LogOptions {
            segment_bytes: self.segment_bytes,
            reserve_bytes: self.reserve_bytes,
            on_failure: self.on_failure.clone(),
            ..LogOptions::new(self.cluster, self.node, start)
        }
    }
}

/// What the tasks of a node share.
pub(crate) struct Shared<M: Machine> {
    pub(crate) id: NodeId,
    pub(crate) cluster: u128,
    pub(crate) timing: Timing,
    pub(crate) raft: Raft<Belfry<M>>,
    pub(crate) metrics: watch::Receiver<RaftMetrics<NodeId, Peer>>,
    /// The part of the metrics that changes with the vote, the leader and the members.
    pub(crate) servers: watch::Receiver<RaftServerMetrics<NodeId, Peer>>,
    pub(crate) contact: Arc<Contact>,
    pub(crate) wire: Arc<Wire>,
    pub(crate) machine: Arc<M>,
    pub(crate) progress: Arc<Progress>,
    applied: watch::Receiver<Option<LogId>>,
    pub(crate) log: LogReader,
    pub(crate) space: SpaceGauge,
    pub(crate) snapshots: Receiver,
    pub(crate) copies: Arc<Copies>,
    pub(crate) proposer: Proposals<M>,
    pub(crate) pulse: Pulse,
    readers: Readers,
    pub(crate) roster: Roster,
    pub(crate) acquaintances: Acquaintances,
    /// When this node last said that the members refuse it.
    pub(crate) removal_reported_at: Mutex<Option<Instant>>,
    permits: mpsc::UnboundedSender<Permit>,
    /// While the leadership is transferred.
    pub(crate) transferring: AtomicBool,
    /// Number of the newest transfer.
    transfers: AtomicU32,
    /// Set before this node adds the first other one: then it has no lease without a round.
    has_company: AtomicBool,
    /// Changes of the members that callers of this node have begun.
    changes: AtomicU32,
    part_bytes: usize,
    folder: PathBuf,
    random: AtomicU64,
    /// Ends all tasks but the applier.
    pub(crate) stop: CancellationToken,
    /// Ends the applier, after the core.
    stop_applier: CancellationToken,
    pub(crate) tasks: TaskTracker,
}

impl<M: Machine> Shared<M> {
    /// Returns whether openraft believes that this node leads. Another one may have been elected meanwhile.
    pub(crate) fn is_leader(&self) -> bool {
        self.servers.borrow().state == ServerState::Leader
    }

    /// Returns whether this node leads, and no other can.
    pub(crate) fn has_lease(&self) -> bool {
        self.contact.leads() && self.is_leader() || self.is_alone()
    }

    /// Returns whether this node leads a cluster without any other node. No node can depose it, so that a slow disk does
    /// not cost its lease.
    fn is_alone(&self) -> bool {
        if self.has_company.load(Ordering::SeqCst) {
            return false;
        }
        let servers = self.servers.borrow();
        let mut nodes = servers.membership_config.nodes().map(|(id, _)| *id);
        servers.state == ServerState::Leader && nodes.next() == Some(self.id) && nodes.next().is_none()
    }

    pub(crate) fn leader(&self) -> Option<NodeId> {
        self.servers.borrow().current_leader
    }

    /// Returns the links to the leader, if it is another node.
    fn leader_links(&self) -> Option<Arc<PeerLinks>> {
        let (leader, peer) = {
            let servers = self.servers.borrow();
            let leader = servers.current_leader.filter(|leader| *leader != self.id)?;
            (leader, servers.membership_config.membership().get_node(&leader)?.clone())
        };
        Some(self.wire.peer(leader, &peer))
    }

    /// Waits until the vote, the leader or the members change, at most for a time.
    async fn leader_changed(&self, patience: Duration) {
        let mut servers = self.servers.clone();
        servers.borrow_and_update();
        let _ = tokio::time::timeout(patience, servers.changed()).await;
    }

    /// Returns a number that looks random ("SplitMix64": Steele, Lea, Flood, 2014).
    pub(crate) fn random(&self) -> u64 {
        let step = 0x9e37_79b9_7f4a_7c15;
        let mut number = self.random.fetch_add(step, Ordering::Relaxed).wrapping_add(step);
        number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        number ^ (number >> 31)
    }

    /// Returns whether a caller of this node changes the members.
    pub(crate) fn is_changing(&self) -> bool {
        self.changes.load(Ordering::SeqCst) > 0
    }
}

/// A server of the cluster. Clones are the same node. It runs until [`Node::shutdown`], also when all clones are dropped.
pub struct Node<M: Machine> {
    shared: Arc<Shared<M>>,
}

impl<M: Machine> Clone for Node<M> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<M: Machine> fmt::Debug for Node<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Node({})", self.shared.id)
    }
}

/// Part of a node in its cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Leads.
    Leader,
    /// Votes, and follows a leader if there is one.
    Voter,
    /// Gets the entries, but does not vote.
    Learner,
}

/// State of a node, for people and for the dashboard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// This node.
    pub node: NodeId,
    /// Term of the newest vote.
    pub term: u64,
    /// Part of this node.
    pub role: Role,
    /// The leader, if this node knows one.
    pub leader: Option<NodeId>,
    /// Newest entry of the log.
    pub last: Option<LogId>,
    /// Newest entry that the machine has applied.
    pub applied: Option<LogId>,
    /// Newest entry that was removed from the log.
    pub purged: Option<LogId>,
    /// Time since this node has heard a leader.
    pub silent_for: Duration,
    /// All members.
    pub members: Vec<Member>,
}

/// A member of the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// The node.
    pub node: NodeId,
    /// How it is reached.
    pub peer: Peer,
    /// Whether it votes.
    pub is_voter: bool,
    /// Newest entry that the member is known to have. Only the leader knows it.
    pub matched: Option<LogId>,
    /// How far this node has sent a copy of its machine to the member, while it does.
    pub copying: Option<CopyProgress>,
    /// Time since the member last answered this node; `None` if it never has. Only the leader asks all members.
    pub silent_for: Option<Duration>,
}

impl<M: Machine> Node<M> {
    /// Opens a node. It takes part in the cluster when this returns; there may be no leader yet.
    ///
    /// # Errors
    /// See [`OpenError`]; [`OpenError::help`] says what the operator can do.
    pub async fn open(
        options: Options,
        machine: M,
        transport: Arc<dyn Transport>,
    ) -> Result<Self, OpenError> {
        Self::open_on(options, machine, transport, Log::open).await
    }

    /// Opens a node whose log `open` opens.
    async fn open_on(
        options: Options,
        machine: M,
        transport: Arc<dyn Transport>,
        open: impl FnOnce(&Path, LogOptions) -> Result<Log, log::OpenError>,
    ) -> Result<Self, OpenError> {
        let folder = &options.folder;
        std::fs::create_dir_all(folder).map_err(Failure::of("create", folder))?;
        let (log, snapshots) = open_log(folder, options.log(), &machine, open).await?;
        Self::start(options, machine, transport, log, Arc::new(snapshots)).await
    }

    async fn start(
        options: Options,
        machine: M,
        transport: Arc<dyn Transport>,
        log: Log,
        folder: Arc<Folder>,
    ) -> Result<Self, OpenError> {
        let (timing, id, cluster) = (options.timing.clone(), options.node, options.cluster);
        let (stop, stop_applier, tasks) =
            (CancellationToken::new(), CancellationToken::new(), TaskTracker::new());
        let machine = Arc::new(machine);
        let (applier, applying) = Applier::new(Arc::clone(&machine));
        let progress = Arc::clone(applier.progress());
        tasks.spawn(stop_applier.clone().run_until_cancelled_owned(applying));
        let reader = log.reader();
        let space = log.space();

        let core = Arc::new(std::sync::OnceLock::<watch::Receiver<RaftMetrics<NodeId, Peer>>>::new());
        let context = Context {
            cluster,
            me: id,
            transport,
            connect_timeout: timing.connect_timeout,
            tasks: tasks.clone(),
            stop: stop.clone(),
            last: Box::new({
                let reader = reader.clone();
                move || reader.last()
            }),
            matched: Box::new({
                let core = Arc::clone(&core);
                move |node| core.get()?.borrow().replication.as_ref()?.get(&node).copied().flatten()
            }),
        };
        let wire = Arc::new(Wire::new(context, timing.clone()));
        let copies = Arc::new(Copies::new(Arc::clone(&folder), options.copy_rate, stop.clone()));
        let network = Network { wire: Arc::clone(&wire), copies: Arc::clone(&copies) };
        let config = Arc::new(timing.config(cluster));
        let state_machine = StateMachine::new(applier, Arc::clone(&copies));
        let raft = Raft::new(id, config, network, log, state_machine).await;
        let raft = raft.map_err(|error| OpenError::Core { reason: error.to_string() })?;
        let _ = core.set(raft.metrics());

        let (proposer, proposals) = Proposals::new();
        let (pulse, rounds) = Pulse::new();
        let (readers, reads) = Readers::new();
        let (permits, permitted) = mpsc::unbounded_channel();
        let shared = Arc::new(Shared {
            id,
            cluster,
            metrics: raft.metrics(),
            servers: raft.server_metrics(),
            raft,
            contact: Contact::new(timing.lease, timing.leader_lease()),
            timing,
            wire,
            machine,
            applied: progress.applied(),
            progress,
            log: reader,
            space,
            snapshots: Receiver::new(folder),
            copies,
            proposer,
            pulse,
            readers,
            roster: Roster::default(),
            acquaintances: Acquaintances::default(),
            removal_reported_at: Mutex::new(None),
            permits,
            transferring: AtomicBool::new(false),
            transfers: AtomicU32::new(0),
            has_company: AtomicBool::new(false),
            changes: AtomicU32::new(0),
            part_bytes: options.part_bytes.min(PART_BYTES),
            folder: options.folder,
            random: AtomicU64::new(options.seed),
            stop,
            stop_applier,
            tasks,
        });
        let tasks = &shared.tasks;
        tasks.spawn(proposer::run(Arc::clone(&shared), proposals));
        tasks.spawn(pulse::run(Arc::clone(&shared), rounds));
        tasks.spawn(readers::run(Arc::clone(&shared), reads));
        tasks.spawn(elector::run(Arc::clone(&shared), permitted));
        tasks.spawn(introductions::run(Arc::clone(&shared), options.me.clone()));
        tasks.spawn(housekeeping::purge_regularly(Arc::clone(&shared), options.keep));
        tasks.spawn(housekeeping::complete_changes(Arc::clone(&shared)));
        tasks.spawn(housekeeping::hurry_while_leading(Arc::clone(&shared)));
        tasks.spawn(housekeeping::watch(Arc::clone(&shared), options.on_failure));
        let node = Self { shared };
        if options.start == Start::Bootstrap {
            let bootstrapped = node.bootstrap(options.me).await;
            if bootstrapped.is_err() {
                node.shutdown().await;
            }
            bootstrapped?;
        }
        Ok(node)
    }

    async fn bootstrap(&self, me: Peer) -> Result<(), OpenError> {
        let failed = |reason: String| OpenError::Core { reason };
        let raft = &self.shared.raft;
        if raft.is_initialized().await.map_err(|error| failed(error.to_string()))? {
            return Ok(());
        }
        let members = BTreeMap::from([(self.shared.id, me)]);
        raft.initialize(members).await.map_err(|error| failed(error.to_string()))
    }

    /// Serves a connection of another node until it ends. `node` is whom the transport has authenticated.
    pub async fn serve_peer(&self, stream: BoxStream, node: NodeId) {
        let shared = Arc::clone(&self.shared);
        let stop = shared.stop.clone();
        stop.run_until_cancelled(door::serve(shared, stream, node)).await;
    }

    /// Returns the id of this node.
    pub fn id(&self) -> NodeId {
        self.shared.id
    }

    /// Returns the machine.
    pub fn machine(&self) -> &Arc<M> {
        &self.shared.machine
    }

    /// Returns the gauge of the free space of the log's volume.
    pub fn space(&self) -> SpaceGauge {
        self.shared.space.clone()
    }

    /// Proposes a command on the leader. Its place among the commands of this node is decided when the future is polled
    /// first. The answer comes when the command is durable on a majority and applied here.
    ///
    /// Without a majority the future waits. When it is dropped, the command may still take effect.
    ///
    /// # Errors
    /// See [`ProposeError`]; it says whether the command may have taken effect.
    pub async fn propose(&self, command: M::Command) -> Result<M::Answer, ProposeError> {
        self.shared.proposer.propose(command).await
    }

    /// As [`Node::propose`]. If the command is refused before it reaches the log, `see` sees that before a later command is
    /// encoded. So a caller can refuse all commands that depend on a refused one.
    ///
    /// # Errors
    /// As [`Node::propose`].
    pub async fn propose_then(
        &self,
        command: M::Command,
        see: impl FnOnce(&Result<M::Answer, ProposeError>) + Send + 'static,
    ) -> Result<M::Answer, ProposeError> {
        self.shared.proposer.propose_then(command, see).await
    }

    /// Proposes a command on any node: the leader's node proposes it, and this one waits until it has applied it too. A
    /// command that is forwarded has less than 3 MiB.
    ///
    /// # Errors
    /// As [`Node::propose`], and [`ProposeError::Unknown`] if the leader or a majority does not answer in time.
    pub async fn forward(&self, command: M::Command) -> Result<M::Answer, ProposeError> {
        if self.shared.is_leader() {
            let proposing = tokio::time::timeout(self.shared.timing.forward_patience, self.propose(command));
            let without = "a majority of the servers did not confirm it in time";
            return proposing.await.unwrap_or(Err(ProposeError::Unknown { reason: without }));
        }
        let mut group = M::Group::default();
        if let Err(refusal) = group.push(command) {
            return Ok(refusal);
        }
        let group = group.finish();
        if group.len() > BODY_BYTES_MAX {
            return Err(ProposeError::TooLarge { bytes: group.len() });
        }
        let forwarding = self.forward_group(group);
        let answered = tokio::time::timeout(self.shared.timing.forward_patience, forwarding).await;
        answered.unwrap_or(Err(ProposeError::Unknown { reason: "the leader did not answer in time" }))
    }

    async fn forward_group(&self, group: Vec<u8>) -> Result<M::Answer, ProposeError> {
        let shared = &self.shared;
        let links = shared.leader_links().ok_or(ProposeError::NotLeader { leader: None })?;
        let body = links.control.call_bytes(PROPOSE, group, shared.timing.forward_patience).await;
        let body = body.map_err(|error| forward_error(&error))?;
        let unreadable = |_| ProposeError::Unknown { reason: "the answer of the leader cannot be read" };
        let answer: ProposeAnswer = decode(&body).map_err(unreadable)?;
        let index = answer.index;
        shared.progress.wait_until(index).await.map_err(|_| ProposeError::Stopped)?;
        let missing = ProposeError::Unknown { reason: "the leader sent no answer" };
        let bytes = answer.answers.first().ok_or(missing)?;
        M::decode_answer(bytes).map_err(|_| ProposeError::Unknown { reason: "the answer cannot be decoded" })
    }

    /// Waits until this node has applied everything that was acknowledged before the call, on any node.
    ///
    /// # Errors
    /// If no leader answers in time.
    pub async fn read(&self) -> Result<(), ReadError> {
        self.shared.pass().await
    }

    /// Returns whether this node leads and has applied an entry of its own leadership.
    pub fn leads(&self) -> bool {
        self.shared.is_leader() && self.shared.applied_in_own_term().is_some()
    }

    /// Returns the term in which this node leads, if it does. It leads in each term at most once.
    pub fn led_term(&self) -> Option<u64> {
        let servers = self.shared.servers.borrow();
        (servers.state == ServerState::Leader).then(|| servers.vote.leader_id().term)
    }

    /// Returns whether this node leads, and no other can now.
    pub fn has_lease(&self) -> bool {
        self.shared.has_lease()
    }

    /// Confirms that this node leads, with a round that begins after the call. Returns whether it has its lease: then no
    /// other node leads for [`Timing::lease`] after the call, less 5 %.
    pub async fn confirm(&self) -> bool {
        if self.shared.is_alone() {
            return true;
        }
        self.shared.pulse.round().await.is_some_and(|round| round.has_lease)
    }

    /// Returns until when this node has the lease of a leader, if it needs one: a node without company does not.
    pub fn lease_until(&self) -> Option<Instant> {
        self.shared.contact.leads_until()
    }

    /// Returns the current leader, and its changes from now on.
    pub fn leadership(&self) -> Leadership {
        let mut servers = self.shared.servers.clone();
        servers.mark_unchanged();
        Leadership(servers)
    }

    /// Returns the position that the machine has applied, and its changes.
    pub fn applied(&self) -> watch::Receiver<Option<LogId>> {
        self.shared.progress.applied()
    }

    /// Returns the state of this node.
    pub fn status(&self) -> Status {
        let metrics = self.shared.metrics.borrow().clone();
        let membership = metrics.membership_config.membership();
        let matched = |id: &NodeId| metrics.replication.as_ref()?.get(id).copied().flatten();
        let member = |(id, peer): (&NodeId, &Peer)| Member {
            node: *id,
            peer: peer.clone(),
            is_voter: membership.voter_ids().any(|voter| voter == *id),
            matched: matched(id),
            copying: self.shared.copies.progress(*id),
            silent_for: if *id == self.shared.id {
                Some(Duration::ZERO)
            } else {
                self.shared.wire.silent_for(*id)
            },
        };
        let is_voter = membership.voter_ids().any(|voter| voter == self.shared.id);
        let role = match metrics.state {
            ServerState::Leader => Role::Leader,
            _ if is_voter => Role::Voter,
            _ => Role::Learner,
        };
        Status {
            node: self.shared.id,
            term: metrics.current_term,
            role,
            leader: metrics.current_leader,
            last: self.shared.log.last(),
            applied: *self.shared.applied.borrow(),
            purged: self.shared.log.purged(),
            silent_for: self.shared.contact.silent_for(),
            members: membership.nodes().map(member).collect(),
        }
    }

    /// Returns the member with this key (SHA-256 of its public key), if this node knows one.
    pub fn member_with_key(&self, key: &[u8; 32]) -> Option<NodeId> {
        let members = self.shared.known_members();
        members.into_iter().find(|(_, peer)| peer.fingerprint == *key).map(|(node, _)| node)
    }

    /// Tells a node that has no entries yet who the members are, so that it accepts their connections.
    pub fn introduce(&self, members: impl IntoIterator<Item = (NodeId, Peer)>) {
        self.shared.acquaintances.set(members);
    }

    /// Transfers the leadership to a voter: the given one, or the one with the most entries. Returns when another node
    /// leads.
    ///
    /// # Errors
    /// See [`TransferError`]. This node then continues as the leader, unless another one leads.
    pub async fn transfer(&self, to: Option<NodeId>) -> Result<(), TransferError> {
        self.shared.transfer(to).await
    }

    /// Tells the leader something about this server, and gets what all servers have told it.
    ///
    /// Without a leader the list contains only this server's own announcement and what was known before. `ttl` is the time
    /// after which the announcement is forgotten.
    pub async fn announce(&self, body: Vec<u8>, ttl: Duration) -> Vec<Announcement> {
        let shared = &self.shared;
        let row = AnnounceRow {
            node: shared.id,
            age_millis: 0,
            ttl_millis: u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX),
            applied: (*shared.applied.borrow()).map(Into::into),
            body,
        };
        shared.roster.put(row.clone());
        if let Some(links) = shared.leader_links() {
            let timeout = shared.timing.append_timeout;
            if let Ok(rows) = links.control.call::<Vec<AnnounceRow>>(ANNOUNCE, &row, timeout).await {
                shared.roster.set(rows);
            }
        }
        shared.roster.announcements()
    }

    /// Returns what the servers of the cluster have announced, as far as this node knows.
    pub fn announcements(&self) -> Vec<Announcement> {
        self.shared.roster.announcements()
    }

    /// Makes the machine durable, and removes the entries that it contains from the log, up to `upto`.
    ///
    /// # Errors
    /// If the machine fails, or the node has stopped.
    pub async fn purge(&self, upto: u64) -> Result<(), MachineError> {
        self.shared.purge(upto).await
    }

    /// Stops the node. Returns when the folder can be opened again. A leader should transfer its leadership before.
    pub async fn shutdown(&self) {
        let shared = &self.shared;
        shared.stop.cancel();
        // An error is a panic of the core, which was reported.
        let _ = shared.raft.shutdown().await;
        shared.stop_applier.cancel();
        shared.tasks.close();
        shared.tasks.wait().await;
    }
}

/// Opens the log of a machine that is open, and the folder of its snapshots.
async fn open_log<M: Machine>(
    folder: &Path,
    options: LogOptions,
    machine: &M,
    open: impl FnOnce(&Path, LogOptions) -> Result<Log, log::OpenError>,
) -> Result<(Log, Folder), OpenError> {
    let snapshots = folder.join("snapshots");
    let snapshots = Folder::open(snapshots.clone()).map_err(Failure::of("open", snapshots))?;
    finish_installation(&snapshots, machine, folder).await?;
    let log = open(&folder.join("log"), options)?;
    let (applied, purged) = (machine.state().applied, log.reader().purged());
    if let Some(purged) = purged.filter(|purged| applied.is_none_or(|applied| applied.index < purged.index)) {
        return Err(OpenError::Gap { applied, purged });
    }
    if let Some(applied) = applied {
        log.adopt(applied).await.map_err(Failure::of("change", folder.join("log")))?;
    }
    Ok((log, snapshots))
}

/// Finishes the installation of a snapshot that the end of the process has interrupted.
///
/// The copy contains only committed entries, so it may be installed without asking openraft.
async fn finish_installation<M: Machine>(
    snapshots: &Folder,
    machine: &M,
    folder: &Path,
) -> Result<(), OpenError> {
    let failure = |action| Failure::of(action, folder.join("snapshots"));
    let Some(file) = snapshots.interrupted().map_err(failure("read"))? else { return Ok(()) };
    if file.exists() {
        if machine.inspect(&file)?.applied > machine.state().applied {
            tracing::info!(file = %file.display(), "finishing the installation of a snapshot");
            machine.install(&file).await?;
        } else {
            std::fs::remove_file(&file).map_err(Failure::of("remove", &file))?;
        }
    }
    Ok(snapshots.installed().map_err(failure("change"))?)
}

fn forward_error(error: &CallError) -> ProposeError {
    match error {
        CallError::Unreachable { .. } => ProposeError::Unavailable { reason: "the leader cannot be reached" },
        CallError::Refused { refused: Refused { refusal, .. }, .. } => match refusal {
            Refusal::NotLeader(leader) => ProposeError::NotLeader { leader: *leader },
            Refusal::Unavailable | Refusal::Voting => {
                ProposeError::Unavailable { reason: "the leader takes no writes now" }
            }
            Refusal::Invalid | Refusal::Stopped => {
                ProposeError::Unknown { reason: "the leader could not answer" }
            }
        },
        CallError::Broken { .. } => ProposeError::Unknown { reason: "the connection to the leader broke" },
        CallError::TimedOut { .. } => ProposeError::Unknown { reason: "the leader did not answer in time" },
    }
}

/// Follows who leads.
#[derive(Debug, Clone)]
pub struct Leadership(watch::Receiver<RaftServerMetrics<NodeId, Peer>>);

impl Leadership {
    /// Returns the leader that the node knows now.
    pub fn current(&self) -> Option<NodeId> {
        self.0.borrow().current_leader
    }

    /// Waits until the vote, the leader or the members change. Returns `None` when the node has stopped, else the leader.
    pub async fn changed(&mut self) -> Option<Option<NodeId>> {
        self.0.changed().await.ok()?;
        Some(self.0.borrow().current_leader)
    }

    /// Waits until a leader is known that fulfils a condition; `None` when the node has stopped.
    pub async fn wait_for(&mut self, mut condition: impl FnMut(NodeId) -> bool) -> Option<NodeId> {
        let servers = self.0.wait_for(|servers| servers.current_leader.is_some_and(&mut condition)).await;
        servers.ok()?.current_leader
    }
}
