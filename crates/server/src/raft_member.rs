//! The Raft store of this server: how it becomes a member of its cluster, and its connections to the other members.
//!
//! ```text
//! DATA/raft/node.key          key of the server, for life; the members know it
//! DATA/raft/first-start.json  until the server votes
//! DATA/raft/node.json         which node of which cluster this is
//! DATA/raft/log, state.db     the log and the rows
//! DATA/join-token             written by the first server of a cluster, for the others
//! ```
//!
//! [`prepare`] continues as the node of the data folder. An empty folder needs a decision of the operator: to create a cluster
//! (`--bootstrap`, or `--bootstrap-from` with the rows of another store), or to join one. So a server whose disk was wiped never creates a second cluster by accident, although its
//! flags are those of its first start.
//!
//! The listener must [serve](RaftMember::serve) connections before [`Prepared::open`] returns: a leader is elected over them, and a new
//! server gets its entries.
//!
//! # Runtime
//! The node runs on threads of its own, so that requests of clients never delay its rounds and votes.

use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt as _};
use raft::error::OpenError;
use raft::identity::{FirstStart, FirstStartKind, Identity as NodeIdentity, IdentityError};
use raft::log::OnFailure;
use raft::net::join::{Channel, JoinRequest, JoinToken, JoinTransport};
use raft::net::{BoxStream, Transport, refuse};
use raft::node::{Options as NodeOptions, Start};
use raft::store::{
    JoinFailed, Joined, Options, RaftStore, RestoreError, Restored, ask_to_join, has_rows, restore,
};
use raft::types::{NodeId, Peer};
use store::cluster::Fingerprint;
use store::{Leases as _, StoreError};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use crate::clock::{Clock as _, SystemClock};
use crate::config::{Bootstrap, RaftConfig, ServerConfig};
use crate::node::Fatal;
use crate::peers::{Identity, Protocol, Proved};
use crate::private_files::{make_private_dir, write_secret};

/// Name of the key file, in the folder of the node.
const KEY_FILE: &str = "node.key";
/// Interval at which a server that waits says so.
const SAY_EVERY: Duration = Duration::from_secs(10);
/// Pause before the cluster is asked again whether this server can join.
const ASK_AGAIN: Duration = Duration::from_secs(1);
/// Maximum time of a join handshake, whose client is not known yet.
const JOIN_TIMEOUT: Duration = Duration::from_secs(15);
/// Threads of the node.
const THREADS: usize = 2;

/// Why a member of a Raft cluster did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RaftMemberError {
    /// The data folder belongs to no cluster, and no flag says what to do.
    #[error("the data folder `{}` belongs to no cluster yet", path.display())]
    NoCluster {
        /// The data folder.
        path: PathBuf,
    },
    /// The data folder belongs to a Raft cluster, and the server has the embedded store.
    #[error("the data folder `{}` belongs to a Raft cluster", path.display())]
    NotEmbedded {
        /// The data folder.
        path: PathBuf,
    },
    /// The data folder has another store.
    #[error("the data folder has an embedded store: `{}`", path.display())]
    OtherStore {
        /// File of the other store.
        path: PathBuf,
    },
    /// A first start of another kind was interrupted.
    #[error("this server was about to {begun} cluster `{cluster:032x}`; now it shall {wanted}")]
    OtherStart {
        /// What it has begun.
        begun: &'static str,
        /// The cluster.
        cluster: u128,
        /// What it shall do now.
        wanted: &'static str,
    },
    /// The files of the node's identity could not be read or written.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The key of the node could not be read or written.
    #[error("cannot read the key of this server from `{}`", path.display())]
    Key {
        /// The file.
        path: PathBuf,
        /// Error of the operating system.
        #[source]
        source: io::Error,
    },
    /// The join token could not be read or written.
    #[error("cannot use the join token in `{}`", path.display())]
    Token {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The cluster has not accepted this server.
    #[error(transparent)]
    Join(#[from] JoinFailed),
    /// The rows of another store could not be used.
    #[error("cannot create a cluster from another store")]
    Restore(#[from] RestoreError),
    /// The log or the rows could not be opened.
    #[error("cannot open the Raft store")]
    Open(#[from] OpenError),
    /// The cluster failed while this server started.
    #[error("cannot use the Raft store")]
    Store(#[from] StoreError),
    /// The log or the rows failed while this server started.
    #[error("{0}")]
    Failed(String),
    /// The operating system could not create threads.
    #[error("cannot start the threads of the Raft store")]
    Threads(#[source] io::Error),
}

impl RaftMemberError {
    /// Returns the next step for the operator.
    pub fn help(&self) -> &'static str {
        match self {
            Self::NoCluster { .. } => {
                "start the first server of a new cluster with `--bootstrap`, and each other server with `--join HOST:PORT \
                 --join-token-file FILE`; if this server was a member and has lost its folder, it must join again"
            }
            Self::NotEmbedded { .. } => "start the server with `--store raft`, or use another data folder",
            Self::OtherStore { .. } => "use an empty data folder for a server with `--store raft`",
            Self::OtherStart { .. } => "use the flags of the first start, or another data folder",
            Self::Identity(error) => error.help(),
            Self::Key { .. } => {
                "restore the file; without it the other servers do not accept this one, and it must join again with an \
                 empty data folder"
            }
            Self::Token { .. } => {
                "copy the file `join-token` from the data folder of the first server of the cluster"
            }
            Self::Join(error) => error.help(),
            Self::Restore(error) => error.help(),
            Self::Open(error) => error.help(),
            Self::Store(error) => error.help(),
            Self::Failed(_) => "check the volume of the data folder; the log of the server has the cause",
            Self::Threads(_) => "raise the limit of threads",
        }
    }
}

/// The Raft store of this server, its threads and its failure.
pub(crate) struct RaftMember {
    store: Arc<RaftStore>,
    /// `None` after [`RaftMember::shutdown`].
    threads: Mutex<Option<Threads>>,
    tasks: tokio::runtime::Handle,
    identity: Arc<Identity>,
    failed: watch::Receiver<Option<String>>,
    /// When a server that is no member was last reported.
    refused_at: Mutex<Option<tokio::time::Instant>>,
}

/// The threads of the node. They end when the value is dropped, without a wait: an asynchronous task may drop it, also in the
/// middle of the start.
struct Threads(Option<Runtime>);

impl Threads {
    fn start() -> Result<Self, RaftMemberError> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(THREADS)
            .thread_name("belfry-raft")
            .enable_all()
            .build();
        runtime.map(|runtime| Self(Some(runtime))).map_err(RaftMemberError::Threads)
    }

    fn handle(&self) -> tokio::runtime::Handle {
        self.0.as_ref().expect("it is only taken when the value is dropped").handle().clone()
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// A member of a Raft cluster before it connects to others.
pub(crate) struct Prepared {
    membership: Membership,
    /// Key of the server. A lost key of a member is not replaced.
    pub(crate) identity: Arc<Identity>,
}

/// Decides from the data folder and the flags how this server takes part in its cluster.
///
/// # Errors
/// See [`RaftMemberError`].
pub(crate) fn prepare(config: &ServerConfig, raft: &RaftConfig) -> Result<Prepared, RaftMemberError> {
    let folder = config.raft_dir();
    let path = folder.join(KEY_FILE);
    let membership = Membership::of(config, raft)?;
    let is_new = !matches!(membership, Membership::Member(_));
    let created = if is_new { make_private_dir(&folder) } else { Ok(()) };
    let identity = created.and_then(|()| Identity::load(&path, is_new));
    let identity = Arc::new(identity.map_err(|source| RaftMemberError::Key { path, source })?);
    Ok(Prepared { membership, identity })
}

impl Prepared {
    /// Opens the store, and waits until this server is a voter of a cluster with a leader. `address` is where the other
    /// servers reach this one. `serve` gets the member as soon as it can serve connections.
    ///
    /// # Errors
    /// See [`RaftMemberError`]; the store was shut down.
    pub(crate) async fn open(
        self,
        config: &ServerConfig,
        raft: &RaftConfig,
        address: String,
        serve: impl FnOnce(Arc<RaftMember>),
    ) -> Result<Arc<RaftMember>, RaftMemberError> {
        let key = self.identity.fingerprint();
        let me = Peer { address, fingerprint: key.0, name: config.name.clone() };
        let connector = Connector { identity: self.identity };
        let (node, start, joining, members) = match self.membership {
            Membership::Bootstrap(node) => (node, Start::Bootstrap, None, Vec::new()),
            Membership::Member(node) => (node, Start::Existing, None, Vec::new()),
            Membership::Restoring(first, source) => {
                let folder = config.raft_dir();
                tracing::info!(source = %source.display(), "copying the rows of another store");
                let Restored { shards, rows, bytes, entries, last } =
                    Box::pin(restore(&source, &folder, first.node, me.clone())).await?;
                let (term, last_entry) = last.map(|last| (last.leader_id.term, last.index)).unzip();
                tracing::info!(rows, bytes, entries, term, last_entry, "copied the rows of another store");
                (create_identity(&folder, first, shards)?, Start::Bootstrap, None, Vec::new())
            }
            Membership::Joining(first) => {
                let joining = Joining::new(raft, first, &me, connector.clone())?;
                let Joined { shards, members, .. } = joining.ask().await?;
                let folder = config.raft_dir();
                let known = NodeIdentity::read(&folder)?;
                let node = known.map_or_else(|| create_identity(&folder, first, shards), Ok)?;
                (node, Start::Join, Some(joining), members)
            }
        };
        let member = RaftMember::start(config, node, me, start, connector).await?;
        member.store.introduce(members);
        serve(Arc::clone(&member));
        match member.become_ready(config, joining.as_ref()).await {
            Ok(()) => Ok(member),
            Err(error) => {
                member.shutdown().await;
                Err(error)
            }
        }
    }
}

fn create_identity(folder: &Path, first: FirstStart, shards: u16) -> Result<NodeIdentity, IdentityError> {
    let created_at = SystemClock.now();
    let identity = NodeIdentity { node: first.node, cluster: first.cluster, shards, created_at };
    identity.create(folder)?;
    Ok(identity)
}

/// What the data folder and the flags say about this server.
enum Membership {
    /// It creates a cluster, or has not finished that. The rows of another store are there.
    Bootstrap(NodeIdentity),
    /// It creates a cluster with the rows of another store.
    Restoring(FirstStart, PathBuf),
    /// It joins a cluster, or has not finished that.
    Joining(FirstStart),
    /// It is a member.
    Member(NodeIdentity),
}

impl Membership {
    fn of(config: &ServerConfig, raft: &RaftConfig) -> Result<Self, RaftMemberError> {
        let folder = config.raft_dir();
        let existing = NodeIdentity::read(&folder)?;
        match (FirstStart::read(&folder)?, existing) {
            (None, Some(node)) if raft.bootstrap.is_some() => {
                let path = folder.join("node.json");
                Err(IdentityError::Exists { path, existing: node }.into())
            }
            (None, Some(node)) => Ok(Self::Member(node)),
            (None, None) => Self::begin(config, raft, &folder),
            (Some(first), existing) => Self::resume(config, raft, &folder, first, existing),
        }
    }

    fn begin(config: &ServerConfig, raft: &RaftConfig, folder: &Path) -> Result<Self, RaftMemberError> {
        let other = config.store_path();
        if other.exists() && !raft.restores(&other) {
            return Err(RaftMemberError::OtherStore { path: other });
        }
        let node = NodeId(rand::random());
        match &raft.bootstrap {
            Some(Bootstrap::Empty) => {
                let first = FirstStart { kind: FirstStartKind::Bootstrap, node, cluster: rand::random() };
                first.begin(folder)?;
                Ok(Self::Bootstrap(create_identity(folder, first, config.shards)?))
            }
            Some(Bootstrap::From(source)) => {
                let first = FirstStart { kind: FirstStartKind::Restore, node, cluster: rand::random() };
                first.begin(folder)?;
                Ok(Self::Restoring(first, source.clone()))
            }
            None if raft.join.is_empty() => Err(RaftMemberError::NoCluster { path: config.data_dir.clone() }),
            None => {
                let cluster = join_token(raft)?.cluster;
                let first = FirstStart { kind: FirstStartKind::Join, node, cluster };
                first.begin(folder)?;
                Ok(Self::Joining(first))
            }
        }
    }

    /// Continues a first start that was interrupted, with the flags of then or with none.
    fn resume(
        config: &ServerConfig,
        raft: &RaftConfig,
        folder: &Path,
        first: FirstStart,
        existing: Option<NodeIdentity>,
    ) -> Result<Self, RaftMemberError> {
        let other = |begun, wanted| RaftMemberError::OtherStart { begun, cluster: first.cluster, wanted };
        let is_other_cluster = || join_token(raft).map(|token| token.cluster != first.cluster);
        let joins = !raft.join.is_empty() && raft.bootstrap.is_none();
        match (first.kind, existing) {
            (FirstStartKind::Bootstrap | FirstStartKind::Restore, Some(_)) if joins => {
                Err(other("create", "join one"))
            }
            (FirstStartKind::Bootstrap, Some(_)) if matches!(raft.bootstrap, Some(Bootstrap::From(_))) => {
                Err(other("create an empty", "create one with the rows of another store"))
            }
            (FirstStartKind::Bootstrap | FirstStartKind::Restore, Some(node)) => Ok(Self::Bootstrap(node)),
            // The copy of the rows was interrupted: it begins again.
            (FirstStartKind::Restore, None) if let Some(Bootstrap::From(source)) = &raft.bootstrap => {
                Ok(Self::Restoring(first, source.clone()))
            }
            (FirstStartKind::Restore, None) if has_rows(folder) => {
                let wanted = if joins { "join one" } else { "continue without `--bootstrap-from`" };
                Err(other("create", wanted))
            }
            (FirstStartKind::Join, Some(_)) if raft.bootstrap.is_some() => Err(other("join", "create one")),
            // Its token is still needed to become a voter.
            (FirstStartKind::Join, Some(_)) if raft.join.is_empty() => {
                Err(RaftMemberError::NoCluster { path: config.data_dir.clone() })
            }
            (FirstStartKind::Join, Some(_)) if is_other_cluster()? => Err(other("join", "join another one")),
            (FirstStartKind::Join, Some(_)) => Ok(Self::Joining(first)),
            // The cluster may have answered already: the same node asks again.
            (FirstStartKind::Join, None) if !raft.join.is_empty() && !is_other_cluster()? => {
                Ok(Self::Joining(first))
            }
            // Nothing has happened yet.
            (_, None) => Self::begin(config, raft, folder),
        }
    }
}

impl RaftConfig {
    /// Returns whether the rows of this embedded store become those of the cluster.
    fn restores(&self, embedded: &Path) -> bool {
        let Some(Bootstrap::From(source)) = &self.bootstrap else { return false };
        let file = match (source.is_dir(), embedded.file_name()) {
            (true, Some(name)) => source.join(name),
            _ => source.clone(),
        };
        file.canonicalize().is_ok_and(|file| embedded.canonicalize().is_ok_and(|embedded| embedded == file))
    }
}

fn join_token(raft: &RaftConfig) -> Result<JoinToken, RaftMemberError> {
    let Some(path) = raft.join_token_file.clone() else {
        let source = "set `--join-token-file FILE`".into();
        return Err(RaftMemberError::Token { path: PathBuf::from("join-token"), source });
    };
    match std::fs::read_to_string(&path) {
        Ok(text) => text.parse().map_err(|error| RaftMemberError::Token { path, source: Box::new(error) }),
        Err(error) => Err(RaftMemberError::Token { path, source: error.into() }),
    }
}

/// A server that asks to become a member.
struct Joining {
    addresses: Vec<String>,
    token: JoinToken,
    request: JoinRequest,
    connector: Connector,
}

impl Joining {
    fn new(
        raft: &RaftConfig,
        first: FirstStart,
        me: &Peer,
        connector: Connector,
    ) -> Result<Self, RaftMemberError> {
        let program = env!("CARGO_PKG_VERSION").to_owned();
        let request = JoinRequest { node: first.node, peer: me.clone(), program };
        Ok(Self { addresses: raft.join.clone(), token: join_token(raft)?, request, connector })
    }

    /// Asks until the server is a member. Servers that cannot be reached may still be starting.
    async fn ask(&self) -> Result<Joined, JoinFailed> {
        let mut said = None::<tokio::time::Instant>;
        loop {
            match ask_to_join(&self.connector, &self.addresses, &self.token, &self.request).await {
                Err(error @ JoinFailed::Undecided { .. }) => {
                    if said.is_none_or(|said| said.elapsed() >= SAY_EVERY) {
                        tracing::warn!(%error, "cannot join the cluster yet; retrying");
                        said = Some(tokio::time::Instant::now());
                    }
                    tokio::time::sleep(ASK_AGAIN).await;
                }
                answered => return answered,
            }
        }
    }
}

impl RaftMember {
    async fn start(
        config: &ServerConfig,
        node: NodeIdentity,
        me: Peer,
        start: Start,
        connector: Connector,
    ) -> Result<Arc<Self>, RaftMemberError> {
        let threads = Threads::start()?;
        let tasks = threads.handle();
        let (fail, failed) = watch::channel(None);
        let on_failure = OnFailure::call(move |failure| {
            tracing::error!(error = %failure.source, "{failure}");
            fail.send_replace(Some(format!("{failure}: {}", failure.source)));
        });
        let options = NodeOptions {
            on_failure,
            copy_rate: config.copy_rate,
            ..NodeOptions::new(config.raft_dir(), node.cluster, node.node, me, start)
        };
        let options = Options { shards: node.shards, ..Options::new(options) };
        let identity = Arc::clone(&connector.identity);
        let opening = tasks.spawn(RaftStore::open(options, Arc::new(connector)));
        let opened = opening.await.map_err(|error| RaftMemberError::Threads(io::Error::other(error)))?;
        let (store, threads) = (Arc::new(opened?), Mutex::new(Some(threads)));
        Ok(Arc::new(Self { store, threads, tasks, identity, failed, refused_at: Mutex::new(None) }))
    }

    /// Waits until this server votes and knows a leader; ends the first start.
    async fn become_ready(
        &self,
        config: &ServerConfig,
        joining: Option<&Joining>,
    ) -> Result<(), RaftMemberError> {
        let folder = config.raft_dir();
        let ready = async {
            if let Some(Joining { addresses, token, request, connector }) = joining {
                let voting = self.store.become_voter(connector, addresses, token, request);
                self.saying("copying the entries of the cluster", voting).await?;
                tracing::info!(node = %request.node, "this server is a member of the cluster");
            }
            self.saying("waiting for a majority of the servers", self.store.wait_for_leader()).await;
            let first = FirstStart::read(&folder)?.map(|first| first.kind);
            if first == Some(FirstStartKind::Restore) {
                // Workers may know later states than these rows.
                self.store.mark_restored().await?;
            }
            if matches!(first, Some(FirstStartKind::Bootstrap | FirstStartKind::Restore)) {
                let token = self.store.join_token(&rand::random()).await?;
                let path = config.join_token_path();
                write_secret(&path, format!("{}\n", token.reveal()).as_bytes())
                    .map_err(|source| RaftMemberError::Token { path: path.clone(), source: source.into() })?;
                let cluster = format!("{:032x}", token.cluster);
                tracing::info!(cluster, path = %path.display(), "created a cluster; other servers join with this token");
            }
            Ok(FirstStart::end(&folder)?)
        };
        tokio::select! {
            ready = ready => ready,
            failure = self.failed() => Err(RaftMemberError::Failed(failure.reason)),
        }
    }

    /// Awaits something, and says from time to time how far this server is.
    async fn saying<T>(&self, what: &str, work: impl Future<Output = T>) -> T {
        let mut work = std::pin::pin!(work);
        loop {
            match tokio::time::timeout(SAY_EVERY, &mut work).await {
                Ok(done) => return done,
                Err(_) => {
                    let status = self.store.status();
                    let index =
                        |position: Option<raft::types::LogId>| position.map_or(0, |position| position.index);
                    tracing::info!(
                        members = status.members.len(),
                        term = status.last.map(|last| last.leader_id.term),
                        entries = index(status.last),
                        applied = index(status.applied),
                        leader = status.leader.map(tracing::field::display),
                        "{what}"
                    );
                }
            }
        }
    }

    /// Returns the store.
    pub(crate) fn store(&self) -> Arc<RaftStore> {
        Arc::clone(&self.store)
    }

    /// Serves a connection of another server until it ends.
    pub(crate) async fn serve(
        &self,
        stream: BoxStream,
        protocol: Protocol,
        proved: &Proved,
        address: Option<impl tracing::Value>,
    ) {
        let store = self.store();
        match protocol {
            Protocol::Join => {
                let channel = channel(&self.identity, proved);
                let serving = tokio::time::timeout(JOIN_TIMEOUT, store.serve_join(stream, &channel));
                if let Ok(Err(error)) = serving.await {
                    tracing::warn!(address, error = %error, "refused a server that wanted to join the cluster");
                }
            }
            Protocol::Raft => {
                let Some(node) = store.member_with_key(&proved.key.0) else {
                    if self.may_report_refusal() {
                        tracing::warn!(address, key = %proved.key, "refused a server that is no member of the cluster");
                    }
                    let _late = tokio::time::timeout(JOIN_TIMEOUT, refuse(stream)).await;
                    return;
                };
                // An error is a panic, which was reported.
                let serving = self.tasks.spawn(async move { store.serve_peer(stream, node).await });
                let _ended = AbortOnDropHandle::new(serving).await;
            }
        }
    }

    /// Returns whether a refusal was not reported recently. A server that was removed may try again and again.
    fn may_report_refusal(&self) -> bool {
        let now = tokio::time::Instant::now();
        let mut reported = self.refused_at.lock().unwrap_or_else(PoisonError::into_inner);
        let may = reported.is_none_or(|reported| now - reported >= SAY_EVERY);
        if may {
            *reported = Some(now);
        }
        may
    }

    /// Completes when the log or the rows have failed.
    pub(crate) async fn failed(&self) -> Fatal {
        let mut failed = self.failed.clone();
        let reason = failed.wait_for(Option::is_some).await.ok().and_then(|reason| reason.clone());
        match reason {
            Some(reason) => Fatal { reason },
            // The node has stopped without a failure.
            None => std::future::pending().await,
        }
    }

    /// Transfers the leadership, if this server has it, and stops the node.
    pub(crate) async fn shutdown(&self) {
        self.store.leave_leadership().await;
        self.store.shutdown().await;
        self.threads.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

fn channel(identity: &Identity, proved: &Proved) -> Channel {
    Channel { binding: proved.binding, own_key: identity.fingerprint().0, other_key: proved.key.0 }
}

/// Connects to other servers with the key of this one.
#[derive(Clone)]
struct Connector {
    identity: Arc<Identity>,
}

impl Connector {
    async fn connect_to(
        &self,
        address: &str,
        server: Option<Fingerprint>,
        protocol: Protocol,
    ) -> io::Result<(BoxStream, Proved)> {
        let stream = TcpStream::connect(address).await?;
        // Rounds and votes are small, and wait for each other.
        stream.set_nodelay(true)?;
        let (stream, proved) = self.identity.connect(stream, server, protocol).await?;
        Ok((Box::new(stream), proved))
    }
}

impl Transport for Connector {
    fn connect(&self, _to: NodeId, peer: &Peer) -> BoxFuture<'static, io::Result<BoxStream>> {
        let (connector, address) = (self.clone(), peer.address.clone());
        let key = Fingerprint(peer.fingerprint);
        async move { Ok(connector.connect_to(&address, Some(key), Protocol::Raft).await?.0) }.boxed()
    }
}

impl JoinTransport for Connector {
    fn connect(&self, address: &str) -> BoxFuture<'_, io::Result<(BoxStream, Channel)>> {
        let address = address.to_owned();
        async move {
            let (stream, proved) = self.connect_to(&address, None, Protocol::Join).await?;
            Ok((stream, channel(&self.identity, &proved)))
        }
        .boxed()
    }
}
