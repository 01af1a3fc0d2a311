//! The replica of a replicated store; see [`crate::replica`].
//!
//! - `applying`: applies entries on the writer thread.
//! - `begin`: makes the rows of another store the start of a new log.

pub(super) mod applying;
mod begin;

use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration as StdDuration;

use async_trait::async_trait;
use model::changelog::{ChangelogPage, ChangelogPosition, LiveKey, ReloadedRows};
use model::id::Epoch;
use model::record::{Lease, LiveRow};
use model::{Duration, ServerId, ShardId, Timestamp};
use rusqlite::{Connection, OptionalExtension};
use tokio::sync::mpsc::{Sender, UnboundedReceiver, unbounded_channel};
use tokio::sync::{OwnedRwLockReadGuard, RwLock, watch};

use super::error::{Failure, Phase};
use super::operation::Operation;
use super::quarantine::{self, DamagedRow};
use super::{Clock, Options, SqliteStore, file, live_rows, load, readers, replica_tables, schema};
use crate::changelog::{Changelog, MemoryChangelog};
use crate::command::{Answers, Entry, LogPosition};
use crate::pace::Pace;
use crate::{Loaded, StoreError};

pub use begin::{LogBegin, begin_log};

/// Time between two attempts to apply entries on a full volume.
const RETRY_WHEN_FULL: StdDuration = StdDuration::from_secs(1);

/// How far a replica has applied its log.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AppliedState {
    /// Position of the last applied entry.
    pub applied: Option<LogPosition>,
    /// Position of the last applied membership.
    pub membership_at: Option<LogPosition>,
    /// Bytes of that membership; empty before the first one.
    pub membership: Arc<[u8]>,
}

/// Options for opening a replica.
#[derive(Clone)]
pub struct ReplicaOptions {
    /// Number of shards of a new replica; an existing one keeps its own number. The same on all servers of a cluster.
    pub shards: u16,
    /// Maximum number of concurrent queries.
    pub readers: usize,
    /// Maximum duration of a query, and of its wait for a connection.
    pub query_limit: Duration,
    /// Reserved disk space for a full volume, in bytes. 0 disables the reserve.
    pub ballast_bytes: u64,
    /// Clock of the server.
    pub clock: Clock,
}

impl std::fmt::Debug for ReplicaOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReplicaOptions").field("shards", &self.shards).finish_non_exhaustive()
    }
}

/// Replica of a replicated store, in one SQLite file.
///
/// The methods need a tokio runtime with time enabled.
#[derive(Debug)]
pub struct Replica {
    path: PathBuf,
    options: ReplicaOptions,
    /// `None` while another file replaces the database.
    store: Arc<RwLock<Option<SqliteStore>>>,
    shared: Shared,
}

/// What the writer thread shares with the replica.
#[derive(Debug, Clone)]
pub(in crate::sqlite) struct Shared {
    applied: Arc<watch::Sender<AppliedState>>,
    changelog: Arc<MemoryChangelog>,
}

impl Shared {
    /// Gives the changelog the engine time of the file, when it is opened.
    pub(super) fn start_at(&self, facts: &super::Facts) {
        self.changelog.start_again(Timestamp::from_micros(facts.position.now));
    }
}

/// Access to the store of a replica, for reads.
#[derive(Debug)]
pub struct StoreGuard(OwnedRwLockReadGuard<Option<SqliteStore>, SqliteStore>);

impl Deref for StoreGuard {
    type Target = SqliteStore;

    fn deref(&self) -> &SqliteStore {
        &self.0
    }
}

impl Replica {
    /// Opens or creates the file at `path`, and takes sole ownership of it.
    ///
    /// # Errors
    /// [`StoreError::InUse`] if another store has the file open; [`StoreError::TooNew`] if a newer version wrote it;
    /// [`StoreError::Fatal`] if the file is damaged or not a Belfry store.
    pub fn open(path: &Path, options: ReplicaOptions) -> Result<Self, StoreError> {
        let shared = Shared {
            applied: Arc::new(watch::Sender::new(AppliedState::default())),
            changelog: Arc::new(MemoryChangelog::new(0, Timestamp::from_micros(0))),
        };
        let store = open_store(path, &options, &shared)?;
        let store = Arc::new(RwLock::new(Some(store)));
        Ok(Self { path: path.to_owned(), options, store, shared })
    }

    /// Applies entries in their order, in one transaction. Returns the answers to the commands of each entry, in their
    /// order; none for an entry without commands. When it returns, queries see the effects, which are not synced.
    ///
    /// A full volume delays the entries until there is space.
    ///
    /// # Errors
    /// [`StoreError::Fatal`] if the file or an entry cannot be trusted. Then the replica must not be used any more.
    pub async fn apply(&self, entries: Vec<Entry>) -> Result<Answers, StoreError> {
        let mut reported = false;
        loop {
            match self.store().await?.writer.entries(entries.clone()).await {
                Err(StoreError::Full) => {
                    if !std::mem::replace(&mut reported, true) {
                        let path = self.path.display().to_string();
                        tracing::error!(
                            path,
                            "the volume is full: entries of the log wait until there is space"
                        );
                    }
                    tokio::time::sleep(RETRY_WHEN_FULL).await;
                }
                answers => return answers,
            }
        }
    }

    /// Returns the state of the replica, and each later one. Queries see it.
    pub fn applied(&self) -> watch::Receiver<AppliedState> {
        self.shared.applied.subscribe()
    }

    /// Makes everything durable that is applied, and returns the durable state.
    ///
    /// # Errors
    /// [`StoreError::Fatal`] if the disk does not store it.
    pub async fn sync(&self) -> Result<AppliedState, StoreError> {
        let state = self.shared.applied.borrow().clone();
        self.store().await?.writer.done(Operation::Sync).await?;
        Ok(state)
    }

    /// Returns the store, for reads. All its changes are refused.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] if the database could not be replaced.
    pub async fn store(&self) -> Result<StoreGuard, StoreError> {
        let guard = Arc::clone(&self.store).read_owned().await;
        let guard = OwnedRwLockReadGuard::try_map(guard, Option::as_ref);
        guard.map(StoreGuard).map_err(|_| StoreError::Unavailable {
            source: "the replica is closed, or a snapshot could not be installed".into(),
        })
    }

    /// Copies one consistent state into a new file with a pace, and returns that state.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] if `to` cannot be written.
    pub async fn copy_to(&self, to: &Path, pace: Pace) -> Result<AppliedState, StoreError> {
        let (from, to) = (self.path.clone(), to.to_owned());
        let copy = move || -> Result<AppliedState, StoreError> {
            super::check::copy_file(&from, &to, pace)?;
            read_applied(&to)
        };
        tokio::task::spawn_blocking(copy)
            .await
            .map_err(|error| StoreError::Unavailable { source: error.into() })?
    }

    /// Replaces the database by another file, which is moved. Queries that have started end before; later ones wait.
    ///
    /// # Errors
    /// The file cannot be moved or opened. Then the replica has no database, and must not be used any more.
    pub async fn install(&self, from: &Path) -> Result<AppliedState, StoreError> {
        let mut store = self.store.write().await;
        let (from, path) = (from.to_owned(), self.path.clone());
        let (old, options, shared) = (store.take(), self.options.clone(), self.shared.clone());
        let replace = move || -> Result<SqliteStore, StoreError> {
            drop(old);
            file::replace(&path, &from)?;
            open_store(&path, &options, &shared)
        };
        let opened = tokio::task::spawn_blocking(replace)
            .await
            .map_err(|error| StoreError::Unavailable { source: error.into() })??;
        *store = Some(opened);
        Ok(self.shared.applied.borrow().clone())
    }

    /// Closes the file, after the queries that have started. Later calls fail.
    pub async fn close(&self) {
        let store = self.store.write().await.take();
        // The end of the writer thread blocks. A panic there was reported.
        let _ = tokio::task::spawn_blocking(move || drop(store)).await;
    }

    /// Sends every live row of the leased shards, as [`Commits::load`](crate::Commits::load) does. Rows that cannot be
    /// decoded are counted and reported, and stay where they are.
    ///
    /// # Errors
    /// As those of a query; [`StoreError::Fenced`] if a lease is no longer valid.
    pub async fn load(&self, leases: &[Lease], rows: Sender<Vec<LiveRow>>) -> Result<Loaded, StoreError> {
        let leases = leases.to_vec();
        self.load_with(move |connection| load::load(connection, &leases, &rows)).await
    }

    async fn load_with(
        &self,
        load: impl FnOnce(&Connection) -> Result<load::Outcome, Failure> + Send + 'static,
    ) -> Result<Loaded, StoreError> {
        let store = self.store().await?;
        let (trust, durable) = (store.trust.clone(), store.durable.clone());
        // On its own connection: a load takes long, and waits for the receiver of the rows.
        let load = move || {
            file::open_reader(&trust.path)
                .and_then(|connection| readers::in_transaction(&connection, &durable, load))
                .map_err(|failure| trust.judge(failure, Phase::Change))
        };
        let (outcome, _) = tokio::task::spawn_blocking(load)
            .await
            .map_err(|error| StoreError::Unavailable { source: error.into() })??;
        store.report(outcome.damaged);
        Ok(outcome.loaded)
    }

    /// Returns rows that queries could not decode, from now on. The leader moves them to the quarantine on all
    /// replicas, after [`with_content`](Self::with_content).
    pub async fn damage(&self) -> Result<UnboundedReceiver<Vec<DamagedRow>>, StoreError> {
        let (sender, receiver) = unbounded_channel();
        self.store().await?.report_to(sender);
        Ok(receiver)
    }

    /// Adds the hash of their content to rows that cannot be decoded. A replica whose row has other content keeps it.
    ///
    /// # Errors
    /// As those of a query.
    pub async fn with_content(&self, rows: Vec<DamagedRow>) -> Result<Vec<DamagedRow>, StoreError> {
        let store = self.store().await?;
        store.readers.read(move |connection| quarantine::with_content(connection, rows)).await
    }

    /// Returns the owner and the epoch of each shard. A renewal changes neither, so the owner may have lost its lease.
    ///
    /// # Errors
    /// As those of a query.
    pub async fn owners(&self) -> Result<Vec<(ShardId, Option<String>, Epoch)>, StoreError> {
        let owners = |connection: &Connection| {
            let mut statement =
                connection.prepare_cached("SELECT shard, owner, epoch FROM shards ORDER BY shard")?;
            let rows =
                statement.query_map([], |row| Ok((ShardId(row.get(0)?), row.get(1)?, Epoch(row.get(2)?))))?;
            Ok(rows.collect::<rusqlite::Result<_>>()?)
        };
        self.store().await?.readers.read(owners).await
    }

    /// Returns a common secret of all servers, as this replica knows it; `None` if there is none of this name.
    ///
    /// # Errors
    /// As those of a query.
    pub async fn secret(&self, name: &str) -> Result<Option<[u8; 32]>, StoreError> {
        let name = name.to_owned();
        let secret = move |connection: &Connection| {
            let mut statement = connection.prepare_cached("SELECT secret FROM secrets WHERE name = ?1")?;
            Ok(statement.query_row([name], |row| row.get(0)).optional()?)
        };
        self.store().await?.readers.read(secret).await
    }

    /// Returns the servers that are being drained.
    ///
    /// # Errors
    /// As those of a query.
    pub async fn draining(&self) -> Result<Vec<ServerId>, StoreError> {
        let draining = |connection: &Connection| {
            let mut statement =
                connection.prepare_cached("SELECT server FROM servers_draining ORDER BY server")?;
            let ids = statement
                .query_map([], |row| row.get(0).map(|bits| ServerId::from_bits(u128::from_be_bytes(bits))))?;
            Ok(ids.collect::<rusqlite::Result<_>>()?)
        };
        self.store().await?.readers.read(draining).await
    }
}

#[async_trait]
impl Changelog for Replica {
    async fn end(&self) -> Result<ChangelogPosition, StoreError> {
        Ok(self.shared.changelog.end())
    }

    async fn since(&self, place: ChangelogPosition) -> Result<Option<ChangelogPage>, StoreError> {
        Ok(self.shared.changelog.since(place))
    }

    async fn preload(&self, rows: Sender<Vec<LiveRow>>) -> Result<Loaded, StoreError> {
        self.load_with(move |connection| load::preload(connection, &rows)).await
    }

    async fn live_rows(&self, keys: &[LiveKey]) -> Result<ReloadedRows, StoreError> {
        let keys = keys.to_vec();
        self.store().await?.readers.read(move |connection| live_rows::live_rows(connection, &keys)).await
    }

    async fn trim(&self) -> Result<(), StoreError> {
        self.shared.changelog.trim((self.options.clock)());
        Ok(())
    }
}

fn open_store(path: &Path, options: &ReplicaOptions, shared: &Shared) -> Result<SqliteStore, StoreError> {
    let options = Options {
        shards: options.shards,
        readers: options.readers,
        query_limit: options.query_limit,
        ballast_bytes: options.ballast_bytes,
        allow_lost_commits: false,
        clock: Arc::clone(&options.clock),
    };
    SqliteStore::open_replica(path, options, shared.clone())
}

/// Reads how far the log was applied from a file, which is not changed.
///
/// # Errors
/// [`StoreError::Fatal`] if the file is not a replica or cannot be read; [`StoreError::TooNew`] if a newer version wrote
/// it.
pub fn read_applied(path: &Path) -> Result<AppliedState, StoreError> {
    let judge = |failure: Failure| failure.into_store_error(Phase::Change, path);
    let connection = file::open_reader(path).map_err(judge)?;
    let (found, known) = (schema::version(&connection).map_err(judge)?, schema::VERSION);
    if found > known {
        return Err(StoreError::TooNew { found, known });
    }
    applying::stored_state(&connection).map_err(judge)?.ok_or_else(|| StoreError::Fatal {
        reason: format!("`{}` is not the replica of a replicated store", path.display()),
    })
}

fn position_bytes(position: LogPosition) -> [u8; 24] {
    let mut bytes = [0; 24];
    for (part, number) in bytes.chunks_exact_mut(8).zip([position.term, position.node, position.index]) {
        part.copy_from_slice(&number.to_be_bytes());
    }
    bytes
}

fn position_from(bytes: [u8; 24]) -> LogPosition {
    let mut numbers = bytes
        .chunks_exact(8)
        .map(|part| part.iter().fold(0_u64, |number, byte| number << 8 | u64::from(*byte)));
    let mut next = || numbers.next().unwrap_or_default();
    LogPosition { term: next(), node: next(), index: next() }
}

fn stored_row(connection: &Connection) -> rusqlite::Result<Option<(AppliedState, bool)>> {
    if !replica_tables::exist(connection)? {
        return Ok(None);
    }
    let sql = "SELECT applied, membership_at, membership, unreleased FROM raft_state";
    connection
        .query_row(sql, [], |row| {
            let position =
                |index| row.get::<_, Option<[u8; 24]>>(index).map(|bytes| bytes.map(position_from));
            let state = AppliedState {
                applied: position(0)?,
                membership_at: position(1)?,
                membership: row.get::<_, Vec<u8>>(2)?.into(),
            };
            Ok((state, row.get(3)?))
        })
        .optional()
}
