//! This server among those that share its store.
//!
//! The shell of [`leader::membership`], which has the rules. Each server announces itself in the store and reads which
//! other servers are there; what it saw last is a [`Seen`]. All shards have one owner at a time, the *leader*: it
//! decides. The others serve reads, and forward all other requests to the leader, which knows them by their
//! [key](crate::peers).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use leader::Standing;
use leader::membership::{Membership, Own, Owner, Ownership, Participant, SEEN_BY_ALL, Sighted, Sighting};
use model::{ServerId, ShardId, Timestamp, id::IdSource};
use store::cluster::{Cluster, Fingerprint, Member, ServerRecord};
use store::{Store, StoreError};
use tokio::sync::{Mutex, Notify, watch};
use tokio::time::Instant;

use crate::auth::Tokens;
use crate::clock::{Clock as _, SystemClock};
use crate::config::{ServerConfig, StoreConfig};
use crate::peers::Identity;

/// How often tokens are read again that other servers may have created.
const TOKEN_RELOAD_INTERVAL: Duration = Duration::from_secs(5);
/// The least time between two searches in the store for a server that was not seen yet.
const SEARCH_INTERVAL: Duration = Duration::from_millis(100);

/// What a server saw of the others.
#[derive(Debug, Clone)]
pub struct Seen {
    /// The servers and the owners of the shards.
    pub cluster: Cluster,
    /// The same, as far as the rules of membership need it.
    sighting: Sighting,
    /// When that was read, on the steady clock.
    at: Timestamp,
}

impl Seen {
    fn new(cluster: Cluster) -> Self {
        Self { sighting: sighting(&cluster), cluster, at: SystemClock.steady() }
    }

    fn age(&self) -> model::Duration {
        SystemClock.steady().since(self.at)
    }
}

/// Who leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Leader {
    /// This server.
    Me,
    /// Another server.
    Other {
        /// Which.
        server: ServerRecord,
        /// It renewed its lease a short while ago, and is not about to hand over.
        is_fresh: bool,
    },
    /// No server that is known.
    Nobody,
}

/// The servers of a store, as one of them sees them; clones are cheap.
#[derive(Clone)]
pub struct Members {
    inner: Arc<Inner>,
}

struct Inner {
    store: Arc<dyn Store>,
    me: ServerRecord,
    participant: Participant,
    identity: Identity,
    seen: watch::Sender<Arc<Seen>>,
    search: Mutex<Search>,
    standing: watch::Sender<Standing>,
    /// Up to when, on the steady clock, this server knows what the leader did to the live rows, while it follows them.
    followed_until: watch::Sender<Option<Timestamp>>,
    stops: AtomicBool,
    moved: Notify,
}

/// The last search for a server that was not seen yet.
struct Search {
    begun: Instant,
    found: Arc<Seen>,
}

impl Members {
    /// This server, reached by the others at `url`; a new one at each start.
    pub fn new(store: Arc<dyn Store>, config: &ServerConfig, url: Option<String>) -> Self {
        Self::started_at(SystemClock.now(), store, config, url)
    }

    /// The same of a server that started at `now`.
    pub(crate) fn started_at(
        now: Timestamp,
        store: Arc<dyn Store>,
        config: &ServerConfig,
        url: Option<String>,
    ) -> Self {
        let entropy = rand::random();
        let identity = Identity::draw();
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
            is_shared: matches!(config.store, StoreConfig::Postgres(_)),
            lease: config.shard_lease(),
        };
        let seen = Arc::new(Seen::new(Cluster::default()));
        Self {
            inner: Arc::new(Inner {
                store,
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

    /// This server.
    pub fn me(&self) -> &ServerRecord {
        &self.inner.me
    }

    /// What this server proves to the others that it is itself.
    pub fn identity(&self) -> &Identity {
        &self.inner.identity
    }

    /// What was seen last.
    pub fn seen(&self) -> Arc<Seen> {
        Arc::clone(&self.inner.seen.borrow())
    }

    /// Tells when something else is seen.
    pub fn watch(&self) -> watch::Receiver<Arc<Seen>> {
        self.inner.seen.subscribe()
    }

    /// What the node may do with the shards, as it changes.
    pub fn standing(&self) -> watch::Receiver<Standing> {
        self.inner.standing.subscribe()
    }

    /// Who decides, as far as this server knows.
    pub fn leader(&self) -> Leader {
        self.inner.leader_in(&self.seen())
    }

    /// Where the other servers, and the workers, reach each server.
    pub fn urls(&self) -> Vec<String> {
        let seen = self.seen();
        seen.cluster.members.iter().filter_map(|member| member.server.url.clone()).collect()
    }

    /// The server that is there and has this key.
    ///
    /// Where it was not seen yet, as it has just started, the store is asked once more: by one for all
    /// who wait for that, ten times a second at most.
    ///
    /// # Errors
    /// What the store has to say.
    pub async fn find(&self, fingerprint: Fingerprint) -> Result<Option<ServerRecord>, StoreError> {
        let known = |seen: &Seen| {
            let mut servers = seen.cluster.members.iter().map(|member| &member.server);
            servers.find(|server| server.fingerprint == Some(fingerprint)).cloned()
        };
        if let Some(server) = known(&self.seen()) {
            return Ok(Some(server));
        }
        let asked = Instant::now();
        let mut search = self.inner.search.lock().await;
        if search.begun <= asked {
            tokio::time::sleep_until(search.begun + SEARCH_INTERVAL).await;
            search.begun = Instant::now();
            search.found = self.see().await?;
        }
        Ok(known(&search.found))
    }

    /// Announces this server and looks at the others, until it is dropped.
    pub async fn run(&self, tokens: Arc<Tokens>) {
        let mut membership = Membership::new(self.inner.participant);
        let mut failing = false;
        let mut tokens_read = Instant::now();
        loop {
            match self.in_time(self.look()).await {
                Ok(seen) => {
                    failing = false;
                    let standing = membership.see(seen.at, seen.sighting.clone(), self.own());
                    let replace = |known: &mut _| std::mem::replace(known, standing) != standing;
                    self.inner.standing.send_if_modified(replace);
                    if seen.cluster.members.len() > 1 && tokens_read.elapsed() >= TOKEN_RELOAD_INTERVAL {
                        tokens_read = Instant::now();
                        // The next time will do as well.
                        let _unread = tokens.reload().await;
                    }
                }
                Err(error) if !failing => {
                    failing = true;
                    tracing::warn!(error = %error, "cannot read the list of servers; retrying");
                }
                Err(_) => {}
            }
            let pause = membership.look_again_in(SystemClock.steady()).to_std();
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.inner.moved.notified() => {}
            }
        }
    }

    /// This server has become the leader, or ceased to be: it looks at the others now.
    pub fn moved(&self) {
        self.inner.moved.notify_one();
    }

    /// Says how old the newest change is that this standby knows of the live rows; `None` if it does not follow them.
    pub(crate) fn follows(&self, age: Option<model::Duration>) {
        self.inner.followed_until.send_replace(age.map(|age| SystemClock.steady() - age));
    }

    /// The age of the newest change that this standby knows of the live rows.
    fn lag(&self) -> Option<model::Duration> {
        let until = *self.inner.followed_until.borrow();
        until.map(|until| SystemClock.steady().since(until))
    }

    fn own(&self) -> Own {
        let follows = self.inner.followed_until.borrow().is_some();
        Own { stops: self.inner.stops.load(Ordering::Relaxed), follows }
    }

    /// Whether this server has not reached the store for so long that the others take it for gone. It cannot tell who
    /// leads.
    pub(crate) fn is_isolated(&self) -> bool {
        self.seen().age() > self.inner.participant.ttl()
    }

    /// The result of a call, or an error after the time for which this server counts as there: a call that hangs is
    /// given up, so that the next one uses a connection that works.
    async fn in_time<T>(&self, call: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
        let limit = self.inner.participant.ttl().to_std();
        tokio::time::timeout(limit, call).await.unwrap_or_else(|_elapsed| {
            Err(StoreError::Unavailable { source: format!("it did not answer within {limit:?}").into() })
        })
    }

    /// Announces this server, and looks at the others once.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn look(&self) -> Result<Arc<Seen>, StoreError> {
        let inner = &self.inner;
        inner.store.announce(&inner.me, self.lag(), inner.participant.ttl()).await?;
        self.see().await
    }

    async fn see(&self) -> Result<Arc<Seen>, StoreError> {
        let seen = Arc::new(Seen::new(self.inner.store.cluster().await?));
        self.inner.seen.send_replace(Arc::clone(&seen));
        Ok(seen)
    }

    /// Prepares the other servers, if there are any, to take the shards over; to be called before this server stops.
    pub async fn prepare_to_leave(&self) {
        self.inner.stops.store(true, Ordering::Relaxed);
        let has_successor = self.inner.participant.has_successor(&self.seen().sighting);
        if !has_successor || self.leader() != Leader::Me || self.is_isolated() {
            return;
        }
        match self.in_time(self.inner.store.set_draining(self.inner.me.id, true)).await {
            Ok(_) => tokio::time::sleep(SEEN_BY_ALL.to_std()).await,
            Err(error) => tracing::warn!(error = %error, "cannot tell the other servers that this one stops"),
        }
    }

    /// Removes this server from the list.
    pub async fn depart(&self) {
        if let Err(error) = self.in_time(self.inner.store.depart(self.inner.me.id)).await {
            tracing::debug!(error = %error, "cannot remove the server's row; it expires by itself");
        }
    }
}

impl Inner {
    fn leader_in(&self, seen: &Seen) -> Leader {
        match self.participant.ownership(&seen.sighting, seen.age()) {
            Ownership::Mine => Leader::Me,
            Ownership::Other { id, is_fresh } => match seen.cluster.member(id) {
                Some(member) => Leader::Other { server: member.server.clone(), is_fresh },
                None => Leader::Nobody,
            },
            Ownership::Free => Leader::Nobody,
        }
    }
}

/// What the rules of membership need of the rows in the store. All shards have the same owner.
fn sighting(cluster: &Cluster) -> Sighting {
    let sighted =
        |member: &Member| Sighted { id: member.server.id, draining: member.draining, lag: member.lag };
    let owner = cluster.shards.first().and_then(|row| {
        let id: ServerId = row.owner.as_deref()?.parse().ok()?;
        Some(Owner { id, lease_left: row.expires_in })
    });
    Sighting { servers: cluster.members.iter().map(sighted).collect(), owner }
}

#[cfg(test)]
mod tests {
    use model::Duration as Length;
    use model::id::Epoch;
    use store::cluster::ShardOwner;

    use super::*;

    /// The members of a store in a folder, and what they see if `others` are there.
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

    /// D6. The rules are told of the rows as the store has them.
    #[tokio::test]
    async fn the_owner_of_the_shards_is_the_leader_while_it_is_there() {
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
            members.inner.leader_in(&Seen::new(Cluster { members: all, shards: vec![shard] }))
        };
        assert_eq!(leader(members.me(), false), Leader::Me);
        assert_eq!(leader(&other(), false), Leader::Other { server: other(), is_fresh: true });
        assert_eq!(leader(&other(), true), Leader::Other { server: other(), is_fresh: false });
        let gone = ServerRecord { id: ServerId::from_bits(2 << 80), ..other() };
        assert_eq!(leader(&gone, false), Leader::Nobody);
    }

    /// D5. It hands a request on before the others have looked.
    #[tokio::test]
    async fn a_server_that_has_just_started_is_found_by_its_key() {
        let (_dir, members) = members();
        members.look().await.unwrap();
        let mut fresh = other();
        fresh.fingerprint = Some(Fingerprint([7; 32]));
        assert_eq!(members.find(Fingerprint([7; 32])).await.unwrap(), None, "it is not there");
        members.inner.store.announce(&fresh, None, Length::from_secs(3)).await.unwrap();
        assert_eq!(members.find(Fingerprint([7; 32])).await.unwrap(), Some(fresh));
        assert_eq!(members.find(Fingerprint([8; 32])).await.unwrap(), None);
    }

    /// G5.
    #[tokio::test]
    async fn a_server_that_looks_sees_itself() {
        let (_dir, members) = members();
        let seen = members.look().await.unwrap();
        assert_eq!(seen.cluster.member(members.me().id).unwrap().server, *members.me());
        members.depart().await;
        let cluster = members.inner.store.cluster().await.unwrap();
        assert_eq!(cluster.members, []);
    }
}
