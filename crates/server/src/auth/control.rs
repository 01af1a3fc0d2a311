//! Access control of a server: the directory of accounts, roles, bindings and tokens, in memory.
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

use access::{Change, Directory, Identity, IdentityKind, Refusal, Row};
use model::error_chain::Chain;
use store::{AccessRow, Store, StoreError};
use subtle::ConstantTimeEq;
use tokio::sync::{Mutex, watch};
use tokio::time::Instant;

use super::token;
use crate::clock::{Clock, SystemClock};

/// Interval of looking for changes by other servers.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Shortest interval between two looks for an unknown token.
const SEARCH_INTERVAL: Duration = Duration::from_millis(100);
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
    /// One look or change at a time; the time of the last look for an unknown token.
    searched: Mutex<Option<Instant>>,
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
            searched: Mutex::default(),
        };
        control.refresh().await?;
        Ok(control)
    }

    /// Returns the bearer of a token; `None` if the token is malformed, unknown, revoked or expired, or its account is
    /// disabled.
    pub async fn authenticate(&self, text: &str) -> Option<Identity> {
        let parsed = token::parse(text)?;
        if !self.knows(parsed.id) && self.search().await.is_err() {
            return None;
        }
        self.verify(&parsed)
    }

    /// Returns the bearer of a token that this server knows.
    fn verify(&self, parsed: &token::Parsed<'_>) -> Option<Identity> {
        let hash = parsed.hash();
        let state = self.state();
        let is_same = bool::from(state.directory.token_hash(parsed.id)?.ct_eq(&hash));
        let identity = state.directory.identity(parsed.id, SystemClock.now());
        identity.filter(|identity| is_same && identity.kind == parsed.kind)
    }

    /// Returns the bearer of the token with this id, as long as the token is usable.
    pub fn bearer_of(&self, token_id: &str) -> Option<Identity> {
        self.state().directory.identity(token_id, SystemClock.now())
    }

    /// Returns whether a usable token of this kind exists.
    pub fn has_token(&self, kind: IdentityKind) -> bool {
        self.state().directory.has_token(kind, SystemClock.now())
    }

    /// Reads the directory.
    pub fn read<T>(&self, read: impl FnOnce(&Directory) -> T) -> T {
        read(&self.state().directory)
    }

    /// Returns a receiver that is notified of each change of the directory.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }

    /// Plans a change and writes it. It is effective on this server when the function returns.
    ///
    /// # Errors
    /// [`ChangeError`]; nothing was changed then, except perhaps after [`StoreError::OutcomeUnknown`].
    pub async fn change(&self, actor: &Identity, change: &Change) -> Result<(), ChangeError> {
        let _turn = self.searched.lock().await;
        for _ in 0..ATTEMPTS {
            let (version, rows) = {
                let state = self.state();
                (state.version, state.directory.plan(actor, change.clone(), SystemClock.now())?)
            };
            if rows.is_empty() {
                return Ok(());
            }
            let rows: Vec<_> = rows.into_iter().map(stored).collect();
            if let Some(written) = self.store.change_access(version, &rows).await? {
                self.apply(written, rows);
                return Ok(());
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
        let rows = rows.into_iter().map(|AccessRow { kind, key, body }| Row { kind, key, body });
        for unreadable in state.directory.apply(rows) {
            tracing::warn!(
                kind = unreadable.kind,
                key = unreadable.key,
                error = %unreadable.reason,
                "entry of access control ignored: it cannot be read"
            );
        }
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

impl std::fmt::Debug for AccessControl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AccessControl").finish_non_exhaustive()
    }
}
