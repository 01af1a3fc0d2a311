//! Membership of this server in the cluster of the servers that share its store.
//!
//! This is the shell of [`leader::membership`], which has the rules. Each server announces itself in the store and
//! reads which other servers are present; its last reading is a [`ClusterReading`]. All shards have one owner at a time, the
//! *leader*: only the leader decides. The other servers serve reads, and forward all other requests to the leader,
//! which authenticates them by their [key](crate::peers).
//!
//! The node follows [`Members::standing`]. The API and the gRPC streams ask [`Members::leader`] for the leader. Peers
//! are authenticated with [`Members::find`].
//!
//! # Cost
//! Two queries every 500 ms (200 ms with Raft) while several servers can share the store, every 50 ms during a handover. Searches for new
//! servers are limited to ten a second.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use leader::Standing;
use leader::membership::{
    ClusterView, Membership, Own, Owner, Ownership, Participant, SEEN_BY_ALL, ServerView, Sharing,
};
use model::error_chain::Chain;
use model::{ServerId, ShardId, Timestamp, id::IdSource};
use store::cluster::{Cluster, Fingerprint, Member, ServerRecord};
use store::{Store, StoreError};
use tokio::sync::{Mutex, Notify, watch};
use tokio::time::Instant;

use crate::clock::{Clock, SystemClock};
use crate::config::{ServerConfig, StoreConfig};
use crate::peers::Identity;

/// Shortest interval between two searches in the store for an unknown server.
const SEARCH_INTERVAL: Duration = Duration::from_millis(100);

/// A reading of the cluster from the store.
#[derive(Debug, Clone)]
pub struct ClusterReading {
    /// Servers, and owners of the shards.
    pub cluster: Cluster,
    /// The same, as the rules of membership need it.
    view: ClusterView,
    /// Time of the reading, on the steady clock.
    at: Timestamp,
}

impl ClusterReading {
    fn new(cluster: Cluster, at: Timestamp) -> Self {
        Self { view: view_of(&cluster), cluster, at }
    }
}

/// The leader, as this server knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Leader {
    /// This server.
    ThisServer,
    /// Another server.
    Other {
        /// Row of the leader.
        server: ServerRecord,
        /// Whether the leader renewed its lease recently, and is not about to hand over.
        renewed_recently: bool,
    },
    /// The leader is unknown, or there is none.
    Unknown,
}

/// Membership of this server in its cluster; clones are cheap.
#[derive(Clone)]
pub struct Members {
    inner: Arc<Inner>,
}

struct Inner {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    me: ServerRecord,
    participant: Participant,
    identity: Arc<Identity>,
    seen: watch::Sender<Arc<ClusterReading>>,
    search: Mutex<Search>,
    standing: watch::Sender<Standing>,
    /// Time up to which this standby knows the leader's changes of the live rows, on the steady clock; `None` if it
    /// does not follow.
    followed_until: watch::Sender<Option<Timestamp>>,
    stops: AtomicBool,
    moved: Notify,
}

/// Last search for an unknown server.
struct Search {
    begun: Instant,
    found: Arc<ClusterReading>,
}

impl Members {
    /// Creates the membership of this server, with a new id and key. Other servers reach it at `url`.
    pub fn new(store: Arc<dyn Store>, config: &ServerConfig, url: Option<String>) -> Self {
        Self::with_clock(Arc::new(SystemClock), store, config, url, Arc::new(Identity::generate()))
    }

    /// Creates the membership of a server with the given clock and key.
    pub(crate) fn with_clock(
        clock: Arc<dyn Clock>,
        store: Arc<dyn Store>,
        config: &ServerConfig,
        url: Option<String>,
        identity: Arc<Identity>,
    ) -> Self {
        let (now, entropy) = (clock.now(), rand::random());
        let me = ServerRecord {
            id: ServerId::from_bits(IdSource::default().next(now, ShardId(0), entropy)),
            name: config.name.clone(),
            url,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started_at: now,
            fingerprint: Some(identity.fingerprint()),
        };
        let participant = Participant {
            id: me.id,
            sharing: match config.store {
                StoreConfig::Embedded => Sharing::Single,
                StoreConfig::Postgres(_) => Sharing::Shared,
                StoreConfig::Raft(_) => Sharing::Elected,
            },
            lease: config.shard_lease(),
        };
        let seen = Arc::new(ClusterReading::new(Cluster::default(), clock.steady()));
        Self {
            inner: Arc::new(Inner {
                store,
                clock,
                me,
                identity,
                participant,
                search: Mutex::new(Search { begun: Instant::now(), found: Arc::clone(&seen) }),
                seen: watch::Sender::new(seen),
                standing: watch::Sender::new(Standing::default()),
                followed_until: watch::Sender::new(None),
                stops: AtomicBool::new(false),
                moved: Notify::new(),
            }),
        }
    }

    /// Returns the row of this server.
    pub fn me(&self) -> &ServerRecord {
        &self.inner.me
    }

    /// Returns the key by which this server authenticates itself to other servers.
    pub fn identity(&self) -> &Identity {
        &self.inner.identity
    }

    /// Returns the last reading of the cluster.
    pub fn cluster_reading(&self) -> Arc<ClusterReading> {
        Arc::clone(&self.inner.seen.borrow())
    }

    /// Subscribes to the readings of the cluster.
    pub fn watch(&self) -> watch::Receiver<Arc<ClusterReading>> {
        self.inner.seen.subscribe()
    }

    /// Subscribes to the standing: whether this server may own the shards.
    pub fn standing(&self) -> watch::Receiver<Standing> {
        self.inner.standing.subscribe()
    }

    /// Returns the leader, according to the last reading.
    pub fn leader(&self) -> Leader {
        self.inner.leader_in(&self.cluster_reading())
    }

    /// Returns the URLs of all servers, for other servers and workers.
    pub fn urls(&self) -> Vec<String> {
        let seen = self.cluster_reading();
        seen.cluster.members.iter().filter_map(|member| member.server.url.clone()).collect()
    }

    /// Returns the present server that has this key.
    ///
    /// If the server is unknown, because it has just started, the store is read again. All concurrent callers share one
    /// reading, and there are at most ten readings a second.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub async fn find(&self, fingerprint: Fingerprint) -> Result<Option<ServerRecord>, StoreError> {
        let known = |seen: &ClusterReading| {
            let mut servers = seen.cluster.members.iter().map(|member| &member.server);
            servers.find(|server| server.fingerprint == Some(fingerprint)).cloned()
        };
        if let Some(server) = known(&self.cluster_reading()) {
            return Ok(Some(server));
        }
        let asked = Instant::now();
        let mut search = self.inner.search.lock().await;
        if search.begun <= asked {
            tokio::time::sleep_until(search.begun + SEARCH_INTERVAL).await;
            search.begun = Instant::now();
            search.found = self.read_cluster().await?;
        }
        Ok(known(&search.found))
    }

    /// Announces this server and reads the cluster periodically, until the future is dropped.
    pub async fn run(&self) {
        let mut membership = Membership::new(self.inner.participant);
        let mut failing = false;
        loop {
            match self.with_timeout(self.announce_and_read()).await {
                Ok(seen) => {
                    failing = false;
                    let standing = membership.see(seen.at, seen.view.clone(), self.own());
                    let replace = |known: &mut _| std::mem::replace(known, standing) != standing;
                    self.inner.standing.send_if_modified(replace);
                }
                Err(error) if !failing => {
                    failing = true;
                    tracing::warn!(error = %Chain(&error), "cannot read the list of servers; retrying");
                }
                Err(_) => {}
            }
            let pause = membership.poll_delay(self.inner.clock.steady()).to_std();
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.inner.moved.notified() => {}
            }
        }
    }

    /// Notes that this server has started or stopped leading: the cluster is read again at once.
    pub fn leadership_changed(&self) {
        self.inner.moved.notify_one();
    }

    /// Publishes the age of the newest change of the live rows that this standby knows; `None` if it does not follow
    /// them.
    pub(crate) fn set_followed_age(&self, age: Option<model::Duration>) {
        self.inner.followed_until.send_replace(age.map(|age| self.inner.clock.steady() - age));
    }

    /// Returns the age of the newest change of the live rows that this standby knows.
    fn lag(&self) -> Option<model::Duration> {
        let until = *self.inner.followed_until.borrow();
        until.map(|until| self.inner.clock.steady().since(until))
    }

    fn own(&self) -> Own {
        let follows = self.inner.followed_until.borrow().is_some();
        Own { stops: self.inner.stops.load(Ordering::Relaxed), follows }
    }

    /// Returns whether this server has failed to reach the store for longer than its `ttl`, so that the other servers no
    /// longer list it. It then cannot know the leader.
    pub(crate) fn is_isolated(&self) -> bool {
        self.inner.age(&self.cluster_reading()) > self.inner.participant.ttl()
    }

    /// Returns the result of a call, or an error if it takes longer than this server counts as present. The next call
    /// then uses another connection.
    async fn with_timeout<T>(
        &self,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let limit = self.inner.participant.ttl().to_std();
        tokio::time::timeout(limit, call).await.unwrap_or_else(|_elapsed| {
            Err(StoreError::Unavailable { source: format!("no answer within {limit:?}").into() })
        })
    }

    /// Announces this server, and reads the cluster once.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn announce_and_read(&self) -> Result<Arc<ClusterReading>, StoreError> {
        let inner = &self.inner;
        inner.store.announce(&inner.me, self.lag(), inner.participant.ttl()).await?;
        self.read_cluster().await
    }

    async fn read_cluster(&self) -> Result<Arc<ClusterReading>, StoreError> {
        let seen =
            Arc::new(ClusterReading::new(self.inner.store.cluster().await?, self.inner.clock.steady()));
        self.inner.seen.send_replace(Arc::clone(&seen));
        Ok(seen)
    }

    /// Prepares the other servers, if there are any, for a takeover of the shards. Called before this server stops.
    pub async fn announce_shutdown(&self) {
        self.inner.stops.store(true, Ordering::Relaxed);
        let has_successor = self.inner.participant.has_successor(&self.cluster_reading().view);
        if !has_successor || self.leader() != Leader::ThisServer || self.is_isolated() {
            return;
        }
        match self.with_timeout(self.inner.store.set_draining(self.inner.me.id, true)).await {
            Ok(_) => tokio::time::sleep(SEEN_BY_ALL.to_std()).await,
            Err(error) => {
                tracing::warn!(error = %Chain(&error), "cannot announce the shutdown to the other servers");
            }
        }
    }

    /// Removes this server from the list.
    pub async fn remove_from_cluster(&self) {
        if let Err(error) = self.with_timeout(self.inner.store.remove_member(self.inner.me.id)).await {
            tracing::debug!(error = %Chain(&error), "cannot remove the row of this server; it will expire");
        }
    }
}

impl Inner {
    fn age(&self, seen: &ClusterReading) -> model::Duration {
        self.clock.steady().since(seen.at)
    }

    fn leader_in(&self, seen: &ClusterReading) -> Leader {
        match self.participant.ownership(&seen.view, self.age(seen)) {
            Ownership::Mine => Leader::ThisServer,
            Ownership::Other { id, is_fresh } => match seen.cluster.member(id) {
                Some(member) => Leader::Other { server: member.server.clone(), renewed_recently: is_fresh },
                None => Leader::Unknown,
            },
            Ownership::Free => Leader::Unknown,
        }
    }
}

/// Converts rows of the store for the rules of membership. All shards have the same owner.
fn view_of(cluster: &Cluster) -> ClusterView {
    let server =
        |member: &Member| ServerView { id: member.server.id, draining: member.draining, lag: member.lag };
    let owner = cluster.shards.first().and_then(|row| {
        let id: ServerId = row.owner.as_deref()?.parse().ok()?;
        Some(Owner { id, lease_left: row.expires_in })
    });
    ClusterView { servers: cluster.members.iter().map(server).collect(), owner }
}

#[cfg(test)]
mod tests {
    use model::Duration as Length;
    use model::id::Epoch;
    use store::cluster::ShardOwner;

    use super::*;

    /// Returns the membership of one server, whose store is in a folder.
    fn members() -> (tempfile::TempDir, Members) {
        let dir = tempfile::tempdir().unwrap();
        let store = store::sqlite::SqliteStore::open(dir.path().join("db"), Default::default()).unwrap();
        let config = ServerConfig::new(dir.path());
        (dir, Members::new(Arc::new(store), &config, None))
    }

    fn other() -> ServerRecord {
        ServerRecord {
            id: ServerId::from_bits(1 << 80),
            name: "other".into(),
            url: Some("http://127.0.0.1:1".into()),
            version: "1".into(),
            started_at: Timestamp::default(),
            fingerprint: None,
        }
    }

    /// D6. The rules get the rows as the store has them.
    #[tokio::test]
    async fn the_owner_of_the_shards_is_the_leader_while_it_is_a_member() {
        let (_dir, members) = members();
        let server = |server: ServerRecord, draining| Member {
            server,
            draining,
            lag: None,
            expires_in: Length::from_secs(3),
        };
        let leader = |owner: &ServerRecord, draining: bool| {
            let owner = Some(owner.id.to_string());
            let shard =
                ShardOwner { shard: ShardId(0), epoch: Epoch(1), owner, expires_in: Length::from_secs(60) };
            let all = vec![server(members.me().clone(), false), server(other(), draining)];
            let cluster = Cluster { members: all, shards: vec![shard] };
            members.inner.leader_in(&ClusterReading::new(cluster, members.inner.clock.steady()))
        };
        assert_eq!(leader(members.me(), false), Leader::ThisServer);
        assert_eq!(leader(&other(), false), Leader::Other { server: other(), renewed_recently: true });
        assert_eq!(leader(&other(), true), Leader::Other { server: other(), renewed_recently: false });
        let gone = ServerRecord { id: ServerId::from_bits(2 << 80), ..other() };
        assert_eq!(leader(&gone, false), Leader::Unknown);
    }

    /// D5. A new server may forward a request before the others have read its row.
    #[tokio::test]
    async fn a_server_that_has_just_started_is_found_by_its_key() {
        let (_dir, members) = members();
        members.announce_and_read().await.unwrap();
        let mut fresh = other();
        fresh.fingerprint = Some(Fingerprint([7; 32]));
        assert_eq!(members.find(Fingerprint([7; 32])).await.unwrap(), None, "the server is not present");
        members.inner.store.announce(&fresh, None, Length::from_secs(3)).await.unwrap();
        assert_eq!(members.find(Fingerprint([7; 32])).await.unwrap(), Some(fresh));
        assert_eq!(members.find(Fingerprint([8; 32])).await.unwrap(), None);
    }

    /// G5.
    #[tokio::test]
    async fn an_announced_server_is_in_the_cluster() {
        let (_dir, members) = members();
        let seen = members.announce_and_read().await.unwrap();
        assert_eq!(seen.cluster.member(members.me().id).unwrap().server, *members.me());
        members.remove_from_cluster().await;
        let cluster = members.inner.store.cluster().await.unwrap();
        assert_eq!(cluster.members, []);
    }
}
