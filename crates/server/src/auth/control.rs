//! Access control of a server: the directory of accounts, roles, bindings, tokens and logins, in memory.
//!
//! A request is authenticated and authorized without a query. The crate `access` makes all decisions; this module keeps
//! its directory equal to the entries of the store:
//!
//! - Every server looks for changes twice a second ([`AccessControl::run`]), so a revoked token or a removed role ends
//!   on every server within a second.
//! - A token that is unknown may have just been created by another server: then the server looks at once, at most ten
//!   times a second.
//! - A change is planned with the directory, and written only if the entries in the store have not changed since.
//!
//! Streams last longer than a decision, so they subscribe to [`AccessControl::changes`] and check their identity again.
//!
//! # Invariants
//! - Entries that this server cannot read give no right.
//! - Without the store, the last known directory stays valid.

use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

use access::{
    Account, AccountKind, Bearer, Change, Changed, Directory, Identity, IdentityKind, Refusal, Row,
    Unreadable,
};
use model::Timestamp;
use model::error_chain::Chain;
use store::{AccessRow, Store, StoreError};
use subtle::ConstantTimeEq;
use tokio::sync::{Mutex, Semaphore, watch};
use tokio::time::Instant;

use super::token;
use crate::clock::{Clock, SystemClock};

/// Interval of looking for changes by other servers.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Shortest interval between two looks for an unknown token.
const SEARCH_INTERVAL: Duration = Duration::from_millis(100);
/// Most requests that wait for a look.
const SEARCHES_MAX: usize = 64;
/// Longest step from one version to the next. The step is random, see [`store::Access::change_access`].
const STEP_MAX: u64 = 1 << 20;
/// Interval of deleting entries that ended long ago.
const PURGE_INTERVAL: Duration = Duration::from_secs(3_600);
/// Attempts to write a change while other servers change entries.
const ATTEMPTS: usize = 10;

/// Directory of access control, kept equal to the store.
pub struct AccessControl {
    store: Arc<dyn Store>,
    state: RwLock<State>,
    /// Version of the directory.
    version: watch::Sender<u64>,
    /// One change of this server at a time.
    changing: Mutex<()>,
    /// Time of the last look for an unknown token; one look at a time.
    searched: Mutex<Option<Instant>>,
    /// Places of requests that wait for a look: anyone can invent unknown tokens.
    searches: Semaphore,
}

#[derive(Default)]
struct State {
    directory: Directory,
    version: u64,
}

/// Why a change of the directory was not made.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    /// The rules do not allow it.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The token of the caller was revoked or has expired since the request began.
    #[error("the token of the caller is no longer valid")]
    Revoked,
    /// Other servers changed entries before each attempt.
    #[error("the entries of access control change too often")]
    Contended,
}

impl AccessControl {
    /// Loads the directory.
    ///
    /// # Errors
    /// Same as [`Access::access`](store::Access::access).
    pub async fn load(store: Arc<dyn Store>) -> Result<Self, StoreError> {
        let control = Self {
            store,
            state: RwLock::default(),
            version: watch::Sender::new(0),
            changing: Mutex::default(),
            searched: Mutex::default(),
            searches: Semaphore::new(SEARCHES_MAX),
        };
        control.refresh().await?;
        Ok(control)
    }

    /// Returns the bearer of a token; `None` if the token is malformed, unknown, revoked or expired, or its account is
    /// disabled.
    ///
    /// # Errors
    /// Errors of the store, if this server does not know the token.
    pub async fn authenticate(&self, text: &str) -> Result<Option<Identity>, StoreError> {
        let Some(parsed) = token::parse(text) else { return Ok(None) };
        if !self.knows(parsed.id) {
            self.search().await?;
        }
        Ok(self.verify(&parsed))
    }

    /// Returns the bearer of a token that this server knows.
    fn verify(&self, parsed: &token::Parsed<'_>) -> Option<Identity> {
        let hash = parsed.hash();
        let state = self.state();
        let is_same = bool::from(state.directory.token_hash(parsed.id)?.ct_eq(&hash));
        let identity = state.directory.identity(parsed.id, SystemClock.now());
        identity.filter(|identity| is_same && identity.kind == parsed.kind)
    }

    /// Returns the bearer of the token with this id, as long as the token is usable. A new token of another server is
    /// found.
    ///
    /// # Errors
    /// Errors of the store, if this server does not know the token.
    pub async fn bearer(&self, token_id: &str) -> Result<Option<Identity>, StoreError> {
        if !self.knows(token_id) {
            self.search().await?;
        }
        Ok(self.bearer_of(token_id))
    }

    /// Returns the bearer of a token that this server knows, as long as the token is usable.
    pub fn bearer_of(&self, token_id: &str) -> Option<Identity> {
        self.state().directory.identity(token_id, SystemClock.now())
    }

    /// Returns the account of an invitation, and the end of the invitation; `None` if the invitation is unknown, used,
    /// replaced or expired. A new invitation of another server is found.
    ///
    /// # Errors
    /// Errors of the store, if this server does not know the invitation.
    pub async fn invited(
        &self,
        parsed: &token::ParsedInvitation<'_>,
    ) -> Result<Option<(Account, Timestamp)>, StoreError> {
        if self.state().directory.invitation(parsed.id, SystemClock.now()).is_none() {
            self.search().await?;
        }
        let (state, hash) = (self.state(), parsed.hash());
        let found = state.directory.invitation(parsed.id, SystemClock.now());
        let found = found.filter(|(_, invitation)| bool::from(invitation.hash.0.ct_eq(&hash)));
        Ok(found.map(|(account, invitation)| (account.clone(), invitation.expires_at)))
    }

    /// Returns name and kind of the bearer of a token that this server knows, also if the token is not usable any more.
    pub fn known_bearer(&self, token_id: &str) -> Option<(String, IdentityKind)> {
        let state = self.state();
        let bearer = &state.directory.token(token_id)?.bearer;
        let kind = match bearer {
            Bearer::Admin(_) => IdentityKind::Admin,
            Bearer::Worker(_) => IdentityKind::Worker,
            Bearer::Account(name) => match state.directory.account(name).map(|account| account.kind) {
                Some(AccountKind::Service) => IdentityKind::Service,
                _ => IdentityKind::User,
            },
        };
        Some((bearer.name().to_owned(), kind))
    }

    /// Returns whether a token can do what the first token of this kind is for. An account can replace the first admin
    /// token.
    pub fn has_bearer(&self, kind: IdentityKind) -> bool {
        let (state, now) = (self.state(), SystemClock.now());
        match kind {
            IdentityKind::Admin => state.directory.has_admin(now),
            kind => state.directory.has_token(kind, now),
        }
    }

    /// Reads the directory.
    pub fn read<T>(&self, read: impl FnOnce(&Directory) -> T) -> T {
        read(&self.state().directory)
    }

    /// Returns a receiver that is notified of each change of the directory.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }

    /// Plans a change and writes it; returns the changed entries. It is effective on this server when the function returns. The rights of the caller
    /// are those at the time of the write, not those at the start of its request.
    ///
    /// # Errors
    /// [`ChangeError`]; nothing was changed then, except perhaps after [`StoreError::OutcomeUnknown`].
    pub async fn change(&self, actor: &Identity, change: &Change) -> Result<Vec<Changed>, ChangeError> {
        let _turn = self.changing.lock().await;
        for _ in 0..ATTEMPTS {
            let (version, rows, changed) = {
                let (state, now) = (self.state(), SystemClock.now());
                // The server itself has no token, nor has a person who logs in.
                let current = match &*actor.token_id {
                    "" => Some(actor.clone()),
                    token_id => state.directory.identity(token_id, now),
                };
                let current = current.ok_or(ChangeError::Revoked)?;
                let rows = state.directory.plan(&current, change.clone(), now)?;
                let changed = state.directory.changed(&rows);
                (state.version, rows, changed)
            };
            if rows.is_empty() {
                return Ok(changed);
            }
            let rows: Vec<_> = rows.into_iter().map(stored).collect();
            let next = version + rand::random_range(1..=STEP_MAX);
            if self.store.change_access(version, next, &rows).await? {
                self.apply(next, rows);
                return Ok(changed);
            }
            self.refresh().await?;
        }
        Err(ChangeError::Contended)
    }

    /// Reads what other servers changed.
    ///
    /// # Errors
    /// Same as [`Access::access`](store::Access::access); the known directory stays valid.
    pub async fn refresh(&self) -> Result<(), StoreError> {
        let known = self.state().version;
        let changes = self.store.access(known).await?;
        if changes.version > known {
            self.apply(changes.version, changes.rows);
        } else if changes.version < known {
            self.reload(known).await?;
        }
        Ok(())
    }

    /// Loads everything again: the database has lost its last commits, or was restored from a backup.
    async fn reload(&self, known: u64) -> Result<(), StoreError> {
        let all = self.store.access(0).await?;
        let mut directory = Directory::default();
        note_unreadable(directory.apply(all.rows.into_iter().map(row)));
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        // Otherwise a change was applied meanwhile, and the next look decides again.
        if state.version == known {
            tracing::warn!(known, found = all.version, "tokens and roles loaded again: the store went back");
            *state = State { directory, version: all.version };
            drop(state);
            self.version.send_replace(all.version);
        }
        Ok(())
    }

    /// Looks for changes and deletes entries that ended long ago, until the future is dropped.
    pub async fn run(&self) {
        let mut failing = false;
        let mut purged = Instant::now();
        loop {
            tokio::time::sleep(POLL_INTERVAL).await;
            let looked = match self.refresh().await {
                Ok(()) if purged.elapsed() >= PURGE_INTERVAL => {
                    purged = Instant::now();
                    self.purge().await
                }
                looked => looked,
            };
            match looked {
                Err(error) if !failing => {
                    failing = true;
                    tracing::warn!(error = %Chain(&error), "cannot read changes of tokens and roles; retrying");
                }
                looked => failing = looked.is_err(),
            }
        }
    }

    async fn purge(&self) -> Result<(), StoreError> {
        let now = SystemClock.now();
        let over: Vec<_> = self.state().directory.expired(now).into_iter().map(stored).collect();
        if over.is_empty() {
            return Ok(());
        }
        self.store.delete_access(&over).await?;
        self.state.write().unwrap_or_else(PoisonError::into_inner).directory.purge(now);
        Ok(())
    }

    /// Looks for changes, unless it was done a moment ago.
    async fn search(&self) -> Result<(), StoreError> {
        let _place = self.searches.try_acquire().map_err(|_| StoreError::Unavailable {
            source: "too many requests with unknown tokens".into(),
        })?;
        let asked = Instant::now();
        let mut searched = self.searched.lock().await;
        match *searched {
            Some(at) if at > asked => return Ok(()),
            Some(at) => tokio::time::sleep_until(at + SEARCH_INTERVAL).await,
            None => {}
        }
        *searched = Some(Instant::now());
        self.refresh().await
    }

    fn knows(&self, token_id: &str) -> bool {
        self.state().directory.token(token_id).is_some()
    }

    fn apply(&self, version: u64, rows: Vec<AccessRow>) {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        // Two looks may overlap. The rows of the older one are older than those that are known.
        if version <= state.version {
            return;
        }
        note_unreadable(state.directory.apply(rows.into_iter().map(row)));
        state.version = version;
        drop(state);
        self.version.send_replace(version);
    }

    fn state(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }
}

fn stored(Row { kind, key, body }: Row) -> AccessRow {
    AccessRow { kind, key, body }
}

fn row(AccessRow { kind, key, body }: AccessRow) -> Row {
    Row { kind, key, body }
}

fn note_unreadable(entries: Vec<Unreadable>) {
    for Unreadable { kind, key, reason } in entries {
        tracing::warn!(kind, key, error = reason, "entry of access control ignored: it cannot be read");
    }
}

impl std::fmt::Debug for AccessControl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AccessControl").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use access::SubmitRate;
    use store::faulty::{FaultyStore, Operation};
    use store::sqlite::{Options, SqliteStore};
    use store::{Access as _, AccessRows};

    use super::*;

    /// A store, and two servers that share it.
    struct Scene {
        store: Arc<FaultyStore<SqliteStore>>,
        one: AccessControl,
        other: AccessControl,
        _folder: tempfile::TempDir,
    }

    impl Scene {
        async fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let options = Options { shards: 1, ballast_bytes: 0, ..Options::default() };
            let store = SqliteStore::open(folder.path().join("x.db"), options).unwrap();
            let store = Arc::new(FaultyStore::new(store));
            let control = || AccessControl::load(Arc::clone(&store) as _);
            let (one, other) = (control().await.unwrap(), control().await.unwrap());
            Self { store, one, other, _folder: folder }
        }

        fn calls(&self) -> u64 {
            self.store.calls(Operation::Access)
        }
    }

    fn admin() -> Identity {
        Identity::admin("test")
    }

    async fn token_on(control: &AccessControl, name: &str) -> String {
        let text = token::generate(IdentityKind::Admin);
        let parsed = token::parse(&text).unwrap();
        let change = Change::CreateToken {
            id: parsed.id.to_owned(),
            hash: parsed.hash().into(),
            bearer: Bearer::Admin(name.to_owned()),
            description: None,
            scope: None,
            expires_at: None,
        };
        control.change(&admin(), &change).await.unwrap();
        text
    }

    fn account(name: &str) -> Change {
        Change::CreateAccount {
            name: name.to_owned(),
            kind: AccountKind::User,
            title: None,
            submit_rate: SubmitRate::Default,
        }
    }

    #[tokio::test]
    async fn a_new_token_of_another_server_is_accepted_at_once() {
        let scene = Scene::new().await;
        let token = token_on(&scene.one, "ann").await;
        let found = scene.other.authenticate(&token).await.unwrap().unwrap();
        assert_eq!((&*found.name, found.kind), ("ann", IdentityKind::Admin));
        let id = token::parse(&token_on(&scene.one, "bob").await).unwrap().id.to_owned();
        assert_eq!(&*scene.other.bearer(&id).await.unwrap().unwrap().name, "bob");
    }

    #[tokio::test]
    async fn a_wrong_secret_is_refused_without_a_query() {
        let scene = Scene::new().await;
        let (token, other) = (token_on(&scene.one, "ann").await, token::generate(IdentityKind::Admin));
        assert!(scene.one.authenticate(&other).await.unwrap().is_none());
        let calls = scene.calls();
        let known = token::parse(&token).unwrap().id.to_owned();
        let forged = token::with_id(&other, &known);
        assert_eq!(token::parse(&forged).unwrap().id, known);
        assert!(scene.one.authenticate(&forged).await.unwrap().is_none());
        for text in ["", "x", "bf_admin_a_b"] {
            assert!(scene.one.authenticate(text).await.unwrap().is_none());
        }
        assert_eq!(scene.calls(), calls);
    }

    /// An attacker can generate unknown tokens, but each query of the store serves all that wait.
    #[tokio::test]
    async fn unknown_tokens_cost_at_most_ten_queries_a_second() {
        let scene = Scene::new().await;
        let before = scene.calls();
        let unknown: Vec<_> = (0..200).map(|_| token::generate(IdentityKind::Admin)).collect();
        let started = Instant::now();
        for chunk in unknown.chunks(50) {
            let tries = chunk.iter().map(|token| scene.one.authenticate(token));
            assert!(futures::future::join_all(tries).await.iter().all(|found| matches!(found, Ok(None))));
        }
        let most = started.elapsed().as_millis() / SEARCH_INTERVAL.as_millis() + 1;
        assert!(u128::from(scene.calls() - before) <= most, "{} queries", scene.calls() - before);
    }

    #[tokio::test]
    async fn changes_of_two_servers_at_the_same_time_are_both_made() {
        let scene = Scene::new().await;
        let (actor, ann, bob) = (admin(), account("ann"), account("bob"));
        let (one, other) = tokio::join!(scene.one.change(&actor, &ann), scene.other.change(&actor, &bob));
        one.unwrap();
        other.unwrap();
        for control in [&scene.one, &scene.other] {
            control.refresh().await.unwrap();
            let names =
                control.read(|directory| directory.accounts().map(|it| it.name.clone()).collect::<Vec<_>>());
            assert_eq!(names, ["ann", "bob"]);
        }
        let again = scene.other.change(&admin(), &account("ann")).await.unwrap_err();
        assert!(matches!(again, ChangeError::Refused(Refusal::Exists { .. })), "{again:?}");
    }

    #[tokio::test]
    async fn a_revocation_is_effective_on_every_server_within_a_second() {
        let scene = Scene::new().await;
        let token = token_on(&scene.one, "ann").await;
        token_on(&scene.one, "another").await;
        assert!(scene.other.authenticate(&token).await.unwrap().is_some());
        let id = token::parse(&token).unwrap().id.to_owned();
        scene.one.change(&admin(), &Change::RevokeToken { id }).await.unwrap();
        assert!(scene.one.authenticate(&token).await.unwrap().is_none());
        let polled = tokio::time::timeout(Duration::from_secs(1), async {
            let mut changes = scene.other.changes();
            tokio::select! {
                () = scene.other.run() => {}
                changed = changes.changed() => changed.unwrap(),
            }
        });
        polled.await.unwrap();
        assert!(scene.other.authenticate(&token).await.unwrap().is_none());
    }

    #[tokio::test]
    async fn the_directory_stays_valid_while_the_store_fails() {
        let scene = Scene::new().await;
        let token = token_on(&scene.one, "ann").await;
        scene.store.fail_all(Operation::Access);
        assert!(scene.one.refresh().await.is_err());
        assert!(scene.one.authenticate(&token).await.unwrap().is_some());
        // It may be a new token of another server.
        assert!(scene.one.authenticate(&token::generate(IdentityKind::Admin)).await.is_err());
    }

    /// The database loses its last commits in a failover, or is restored from a backup.
    #[tokio::test]
    async fn a_store_that_went_back_is_loaded_again() {
        let scene = Scene::new().await;
        let kept = token_on(&scene.one, "kept").await;
        let lost = token_on(&scene.one, "lost").await;
        let AccessRows { version, rows } = scene.store.access(0).await.unwrap();
        let lost_id = token::parse(&lost).unwrap().id;
        let lost_row: Vec<_> = rows.into_iter().filter(|row| row.key == lost_id).collect();
        scene.store.delete_access(&lost_row).await.unwrap();
        assert!(scene.store.change_access(version, 2, &[]).await.unwrap());
        scene.one.refresh().await.unwrap();
        let known = |token: &str| scene.one.verify(&token::parse(token).unwrap()).is_some();
        assert!(!known(&lost) && known(&kept));
        scene.one.change(&admin(), &account("ann")).await.unwrap();
    }

    /// A slow request must not outlive the rights of its caller.
    #[tokio::test]
    async fn a_change_needs_the_rights_of_the_caller_at_the_time_of_the_write() {
        let scene = Scene::new().await;
        let token = token_on(&scene.one, "ann").await;
        token_on(&scene.one, "another").await;
        let caller = scene.one.authenticate(&token).await.unwrap().unwrap();
        let id = token::parse(&token).unwrap().id.to_owned();
        scene.one.change(&admin(), &Change::RevokeToken { id }).await.unwrap();
        let refused = scene.one.change(&caller, &account("bob")).await.unwrap_err();
        assert!(matches!(refused, ChangeError::Revoked), "{refused:?}");
    }
}
