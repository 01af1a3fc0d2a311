//! This server among those that share its store.
//!
//! Each server tells the store that it is there, and reads who else is and who owns the shards; what it
//! saw last is a [`Seen`]. All shards have one owner at a time, the *leader*: it decides, and the others
//! serve what can be read and hand on the rest, to whom they know by its [key](crate::peers). Who leads is
//! settled by the leases in the store alone; what stands here makes the change quick, never right.
//!
//! # Giving the shards away
//! A server that is drained or stops says so in the store first. It goes on until the others have had
//! the time to see it; these then ask for the shards many times a second, so that the gap is short.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use leader::Standing;
use model::{ServerId, ShardId, Timestamp, id::IdSource};
use store::cluster::{Cluster, Fingerprint, Member, ServerRecord};
use store::{Store, StoreError};
use tokio::sync::{Mutex, Notify, watch};
use tokio::time::Instant;

use crate::auth::Tokens;
use crate::clock::{Clock as _, SystemClock};
use crate::config::{ServerConfig, StoreConfig};
use crate::peers::Identity;

/// How often servers that share a store look at each other, and for how long one counts as there.
const LOOK_EVERY: Duration = Duration::from_millis(500);
const THERE_FOR: Duration = Duration::from_secs(3);
/// The same while the shards go from one to another.
const LOOK_EVERY_MOVING: Duration = Duration::from_millis(50);
/// The same for a server that is alone with its store.
const LOOK_EVERY_ALONE: Duration = Duration::from_secs(10);
const THERE_FOR_ALONE: Duration = Duration::from_secs(60);
/// After this long every server has seen what was in the store.
const ALL_HAVE_SEEN: Duration = Duration::from_millis(2 * LOOK_EVERY.as_millis() as u64);
/// Who is further behind than this does not follow any more, whatever it says.
const READY_LAG: model::Duration = model::Duration::from_secs(10);
/// So long a server that would have to load all rows leaves free shards to one that would not.
const GOES_FIRST: Duration = Duration::from_millis(1_500);
/// How often tokens are read again that other servers may have made.
const TOKENS_EVERY: Duration = Duration::from_secs(5);
/// How often the store is asked, at most, for servers that nobody has seen yet.
const SEARCH_EVERY: Duration = Duration::from_millis(100);

/// What a server saw of the others.
#[derive(Debug, Clone)]
pub struct Seen {
    /// The servers and the owners of the shards.
    pub cluster: Cluster,
    /// When that was read.
    pub at: Instant,
}

/// Who decides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Leader {
    /// This server has the shards.
    Me,
    /// Another one.
    Other {
        /// Which.
        server: ServerRecord,
        /// It renewed its leases a short while ago, and is not about to give them away.
        is_fresh: bool,
    },
    /// Nobody that is known.
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
    identity: Identity,
    shard_lease: model::Duration,
    every: Duration,
    there_for: Duration,
    seen: watch::Sender<Arc<Seen>>,
    search: Mutex<Search>,
    standing: watch::Sender<Standing>,
    /// When this server last heard all that the owner had done with the rows, while it follows them.
    heard: watch::Sender<Option<Instant>>,
    leaving: AtomicBool,
    moved: Notify,
}

/// How long something has been seen.
#[derive(Debug, Default)]
struct Since {
    /// That this server is to give its shards away.
    drained: Option<Instant>,
    /// That nobody has the shards.
    free: Option<Instant>,
}

/// The last look for somebody whom nobody had seen.
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
        let (every, there_for) = match config.store {
            StoreConfig::Embedded => (LOOK_EVERY_ALONE, THERE_FOR_ALONE),
            StoreConfig::Postgres(_) => (LOOK_EVERY, THERE_FOR),
        };
        let at = Instant::now();
        let seen = Arc::new(Seen { cluster: Cluster::default(), at });
        Self {
            inner: Arc::new(Inner {
                store,
                me,
                identity,
                shard_lease: config.shard_lease(),
                every,
                there_for,
                search: Mutex::new(Search { begun: at, found: Arc::clone(&seen) }),
                seen: watch::Sender::new(seen),
                standing: watch::Sender::new(Standing::default()),
                heard: watch::Sender::new(None),
                leaving: AtomicBool::new(false),
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
            tokio::time::sleep_until(search.begun + SEARCH_EVERY).await;
            search.begun = Instant::now();
            search.found = self.see().await?;
        }
        Ok(known(&search.found))
    }

    /// Says that this server is there and looks at the others, until it is dropped.
    pub async fn run(&self, tokens: Arc<Tokens>) {
        let mut since = Since::default();
        let mut failing = false;
        let mut tokens_read = Instant::now();
        loop {
            let mut pause = self.inner.every;
            match self.in_time(self.look()).await {
                Ok(seen) => {
                    failing = false;
                    self.stand(&seen, &mut since);
                    if self.is_moving(&seen) {
                        pause = pause.min(LOOK_EVERY_MOVING);
                    }
                    if seen.cluster.members.len() > 1 && tokens_read.elapsed() >= TOKENS_EVERY {
                        tokens_read = Instant::now();
                        // The next time will do as well.
                        let _unread = tokens.reload().await;
                    }
                }
                Err(error) if !failing => {
                    failing = true;
                    tracing::warn!(error = %error, "the other servers cannot be seen; trying again");
                }
                Err(_) => {}
            }
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.inner.moved.notified() => {}
            }
        }
    }

    /// This server has begun, or ceased, to decide: the others are looked at now.
    pub fn moved(&self) {
        self.inner.moved.notify_one();
    }

    /// Whether the shards go from one server to another, or are about to.
    fn is_moving(&self, seen: &Seen) -> bool {
        let Standing { hurries, gives, .. } = *self.inner.standing.borrow();
        match self.inner.leader_in(seen) {
            Leader::Me => gives,
            Leader::Other { is_fresh, .. } => hurries || !is_fresh,
            Leader::Nobody => true,
        }
    }

    /// Says since when nothing is known of what the owner does with the rows; `None` if they are not followed.
    pub(crate) fn heard(&self, at: Option<Instant>) {
        self.inner.heard.send_replace(at);
    }

    /// How old the newest is that this server knows of the live rows.
    fn lag(&self) -> Option<model::Duration> {
        let heard = *self.inner.heard.borrow();
        heard.map(|at| model::Duration::from_millis(at.elapsed().as_millis() as u64))
    }

    /// Whether this server has not reached the store for so long that the others take it for gone: it cannot tell
    /// who leads.
    pub(crate) fn is_blind(&self) -> bool {
        self.seen().at.elapsed() > self.inner.there_for
    }

    /// The result of a call, or an error after the time for which this server counts as there: a call that hangs is
    /// given up, so that the next one goes over a connection that works.
    async fn in_time<T>(&self, call: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
        let limit = self.inner.there_for;
        tokio::time::timeout(limit, call).await.unwrap_or_else(|_elapsed| {
            Err(StoreError::Unavailable { source: format!("it did not answer within {limit:?}").into() })
        })
    }

    /// Says that this server is there, and looks at the others once.
    ///
    /// # Errors
    /// What the store has to say.
    pub async fn look(&self) -> Result<Arc<Seen>, StoreError> {
        let inner = &self.inner;
        let ttl = model::Duration::from_millis(inner.there_for.as_millis() as u64);
        inner.store.announce(&inner.me, self.lag(), ttl).await?;
        self.see().await
    }

    async fn see(&self) -> Result<Arc<Seen>, StoreError> {
        let seen = Arc::new(Seen { cluster: self.inner.store.cluster().await?, at: Instant::now() });
        self.inner.seen.send_replace(Arc::clone(&seen));
        Ok(seen)
    }

    /// Draws from what was seen what the node may do.
    fn stand(&self, seen: &Seen, since: &mut Since) {
        let inner = &self.inner;
        let me = seen.cluster.member(inner.me.id);
        let draining = inner.leaving.load(Ordering::Relaxed) || me.is_some_and(|member| member.draining);
        since.drained = draining.then(|| since.drained.unwrap_or(seen.at));
        let all_know = since.drained.is_some_and(|since| seen.at - since >= ALL_HAVE_SEEN);
        let has_successor = seen.cluster.members.iter().any(|member| inner.may_take(member));
        let leader = seen.cluster.owner_of(ShardId(0));
        since.free = leader.is_none().then(|| since.free.unwrap_or(seen.at));
        let in_time = since.free.is_none_or(|since| seen.at - since < GOES_FIRST);
        let is_better =
            |member: &Member| member.lag.is_some_and(|lag| lag < READY_LAG) && inner.may_take(member);
        let standing = Standing {
            // A drained leader is better than none.
            takes: !draining || !has_successor,
            hurries: leader.is_some_and(|leader| leader.draining && leader.server.id != inner.me.id),
            yields: in_time && self.lag().is_none() && seen.cluster.members.iter().any(is_better),
            gives: has_successor && all_know,
        };
        inner.standing.send_if_modified(|known| std::mem::replace(known, standing) != standing);
    }

    /// Makes the others ready to take the shards, where there are others; to be called before this
    /// server stops.
    pub async fn prepare_to_leave(&self) {
        self.inner.leaving.store(true, Ordering::Relaxed);
        let has_successor = self.seen().cluster.members.iter().any(|member| self.inner.may_take(member));
        if !has_successor || self.leader() != Leader::Me || self.is_blind() {
            return;
        }
        match self.in_time(self.inner.store.set_draining(self.inner.me.id, true)).await {
            Ok(_) => tokio::time::sleep(ALL_HAVE_SEEN).await,
            Err(error) => tracing::warn!(error = %error, "cannot tell the other servers that this one stops"),
        }
    }

    /// Takes this server off the list.
    pub async fn depart(&self) {
        if let Err(error) = self.in_time(self.inner.store.depart(self.inner.me.id)).await {
            tracing::debug!(error = %error, "the server's row will run out by itself");
        }
    }
}

impl Inner {
    /// Whether another server can take the shards.
    fn may_take(&self, member: &Member) -> bool {
        member.server.id != self.me.id && !member.draining
    }

    fn leader_in(&self, seen: &Seen) -> Leader {
        let row = seen.cluster.shards.first();
        let Some(owner) = row.and_then(|row| row.owner.as_deref()) else { return Leader::Nobody };
        if owner == self.me.id.to_string() {
            return Leader::Me;
        }
        let expires_in = row.map_or(model::Duration::ZERO, |row| row.expires_in).to_std();
        let left = expires_in.saturating_sub(seen.at.elapsed());
        match seen.cluster.owner_of(ShardId(0)) {
            Some(member) if left > Duration::ZERO => Leader::Other {
                server: member.server.clone(),
                // It renews them when a third is over.
                is_fresh: left > self.shard_lease.to_std() / 2 && !member.draining,
            },
            _ => Leader::Nobody,
        }
    }
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

    fn other(number: u128, draining: bool) -> Member {
        let server = ServerRecord {
            id: ServerId::from_bits(number << 80),
            name: "other".into(),
            url: Some("http://127.0.0.1:1".into()),
            version: "1".into(),
            started_at: Timestamp::default(),
            fingerprint: None,
        };
        Member { server, draining, lag: None, expires_in: Length::from_secs(3) }
    }

    fn me(members: &Members, draining: bool) -> Member {
        Member { server: members.me().clone(), draining, lag: None, expires_in: Length::from_secs(3) }
    }

    fn seen(all: &[Member], owner: &Member, left: Length, at: Instant) -> Seen {
        let owner = Some(owner.server.id.to_string());
        let shard = ShardOwner { shard: ShardId(0), epoch: Epoch(1), owner, expires_in: left };
        Seen { cluster: Cluster { members: all.to_vec(), shards: vec![shard] }, at }
    }

    const LEFT: Length = Length::from_secs(9);

    /// D8.
    #[tokio::test]
    async fn a_drained_server_gives_the_shards_away_once_all_have_seen_it() {
        let (_dir, members) = members();
        let standing = members.standing();
        let all = [me(&members, true), other(1, false)];
        let (start, mut since) = (Instant::now(), Since::default());
        members.stand(&seen(&all, &all[0], LEFT, start), &mut since);
        assert_eq!(
            *standing.borrow(),
            Standing { takes: false, hurries: false, yields: false, gives: false }
        );
        members.stand(&seen(&all, &all[0], LEFT, start + ALL_HAVE_SEEN), &mut since);
        assert!(standing.borrow().gives);
        let all = [me(&members, false), other(1, false)];
        members.stand(&seen(&all, &all[0], LEFT, start + ALL_HAVE_SEEN * 2), &mut since);
        assert_eq!(*standing.borrow(), Standing::default(), "it was taken back");
    }

    /// D8.
    #[tokio::test]
    async fn a_drained_server_goes_on_while_nobody_else_could() {
        let (_dir, members) = members();
        let all = [me(&members, true), other(1, true)];
        let (start, mut since) = (Instant::now(), Since::default());
        for passed in [Duration::ZERO, ALL_HAVE_SEEN * 9] {
            members.stand(&seen(&all, &all[0], LEFT, start + passed), &mut since);
            assert!(members.standing().borrow().takes && !members.standing().borrow().gives);
        }
    }

    /// D6.
    #[tokio::test]
    async fn a_server_hurries_when_the_one_that_leads_is_drained() {
        let (_dir, members) = members();
        let (all, mut since) = ([me(&members, false), other(1, true)], Since::default());
        members.stand(&seen(&all, &all[1], LEFT, Instant::now()), &mut since);
        assert_eq!(
            *members.standing().borrow(),
            Standing { takes: true, hurries: true, yields: false, gives: false }
        );
    }

    /// G5. For as long as it takes to see that the other one does not.
    #[tokio::test]
    async fn a_server_that_is_not_ready_lets_one_go_first_that_is() {
        let (_dir, members) = members();
        let ready = Member { lag: Some(Length::from_millis(300)), ..other(1, false) };
        let (start, mut since) = (Instant::now(), Since::default());
        let yields = |since: &mut Since, other: &Member, after: Duration| {
            let all = [me(&members, false), other.clone()];
            let mut seen = seen(&all, &all[1], LEFT, start + after);
            seen.cluster.shards[0].owner = None;
            members.stand(&seen, since);
            members.standing().borrow().yields
        };
        assert!(yields(&mut since, &ready, Duration::ZERO));
        assert!(!yields(&mut since, &other(1, false), Duration::ZERO), "nobody is ready");
        assert!(!yields(&mut since, &Member { draining: true, ..ready.clone() }, Duration::ZERO));
        assert!(!yields(&mut since, &ready, GOES_FIRST), "it does not take them");
        members.heard(Some(start));
        assert!(!yields(&mut Since::default(), &ready, Duration::ZERO), "both are ready");
    }

    /// D6.
    #[tokio::test]
    async fn a_leader_that_does_not_renew_is_doubted_and_then_gone() {
        let (_dir, members) = members();
        let all = [me(&members, false), other(1, false)];
        let leader = |left: Length| members.inner.leader_in(&seen(&all, &all[1], left, Instant::now()));
        let server = all[1].server.clone();
        assert_eq!(leader(LEFT), Leader::Other { server: server.clone(), is_fresh: true });
        assert_eq!(leader(Length::from_secs(2)), Leader::Other { server, is_fresh: false });
        assert_eq!(leader(Length::ZERO), Leader::Nobody);
        let mine = seen(&all, &all[0], LEFT, Instant::now());
        assert_eq!(members.inner.leader_in(&mine), Leader::Me);
    }

    /// D8. Who is sent on to a server that gives the work away would only be sent on once more.
    #[tokio::test]
    async fn nobody_is_sent_to_a_leader_that_is_drained() {
        let (_dir, members) = members();
        let all = [me(&members, false), other(1, true)];
        let found = members.inner.leader_in(&seen(&all, &all[1], LEFT, Instant::now()));
        assert_eq!(found, Leader::Other { server: all[1].server.clone(), is_fresh: false });
    }

    /// D5. It hands a request on before the others have looked.
    #[tokio::test]
    async fn a_server_that_has_just_started_is_found_by_its_key() {
        let (_dir, members) = members();
        members.look().await.unwrap();
        let mut fresh = other(1, false).server;
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
