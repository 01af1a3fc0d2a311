//! The embedded store: one SQLite file with one owner at a time.
//!
//! ```text
//!  commit, acquire, …  ─>  writer: one thread, one connection, group commit       ─┬─ belfry.db
//!                      <─  syncer: one thread, one fsync for all new transactions ─┤
//!  job, jobs, events … ─>  readers: a few connections, on blocking threads        ─┘
//! ```
//!
//! - `schema`: tables and migrations. `codec`: encoding of records, with checksums.
//! - `commit`, `leases`, `members`, `reads`, `housekeeping`: implementations of the traits of the same names.
//! - `writer`, `operation`, `statements`: changes on the writer thread. `syncer`: fsync of the WAL. `wal_checkpoint`: WAL
//!   checkpoints.
//! - `readers`, `lists`, `views`, `load`, `live_rows`, `rows`: queries.
//! - `replica`: a store that changes only by the entries of a log. `replica_tables`: the tables that only it has.
//! - `source`, `target`: the store as source and as target of a copy.
//! - `file`: files on disk, lock and reserve. `error`: meaning of SQLite errors. `quarantine`: rows that cannot be
//!   decoded.
//! - `position`: detection of lost commits. `wal_copy`: copies of damaged WALs.
//! - `check`: check of a whole store, and backups.
//!
//! # Invariants
//! - A commit is durable before it is acknowledged, and before a query returns data that it saw of the commit. SQLite
//!   (`synchronous=NORMAL`, verified at every start) does all fsyncs except the one of a commit, which `syncer` does.
//! - One process has the file open (a lock file guards it), and one thread of the process writes. Other threads only
//!   sync the WAL and checkpoint it.
//! - After an I/O error while writing, or damage found in the file itself, nothing is written any more.
//! - A start voids all leases: their owner held the file lock, so it no longer runs.
//!
//! # Cost
//! A commit of `n` rows takes one fsync and about 4 µs for each row; concurrent commits share the fsync. A lookup by ID
//! searches one B-tree; a page of a list is read in index order. A firing (job, ledger entry, schedule state) takes
//! about 25 µs if the schedules of a batch share pages, and 100 µs if each of a million schedules lies on a different
//! page. A million schedules take 900 bytes each with their specs, and load in less than 5 s (two busy cores).

mod access;
mod alerts;
mod audit;
mod check;
mod commit;
mod error;
mod file;
mod housekeeping;
mod leases;
mod lists;
mod live_rows;
mod load;
mod members;
mod operation;
mod partial;
mod position;
mod quarantine;
mod readers;
mod reads;
pub(crate) mod replica;
mod replica_tables;
mod rows;
mod schema;
#[cfg(feature = "postgres")]
mod source;
mod statements;
mod statistics;
mod syncer;
#[cfg(feature = "postgres")]
mod target;
mod views;
mod wal_checkpoint;
mod wal_copy;
mod writer;

#[cfg(test)]
mod tests;

pub use check::{Backup, BackupError, CheckReport, backup, backup_stopped, check};
#[cfg(test)]
pub(crate) use lists::{plans as list_plans, sql_plan};
#[cfg(feature = "postgres")]
pub(crate) use {
    quarantine::{cells_of_readable, readable_cells},
    source::{RowsError, Source},
    target::Target,
};

use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use model::{Duration, Timestamp};
use rusqlite::ErrorCode;
use rusqlite::wal::CheckpointMode;
use tokio::sync::mpsc::UnboundedSender;

use error::{Failure, FatalState, Phase};
use file::{Lock, SpaceReserve};
use lists::Found;
use members::MemberList;
use position::{Position, PositionFile, StoredPositions};
use quarantine::DamagedRow;
use readers::Readers;
use rows::Decoded;
use syncer::Durable;
use writer::{Ownership, Writer};

use crate::StoreError;
use crate::command::Update;
use crate::moved::Moved;
use crate::query::Paged;

/// Clock for leases and for the time of a quarantine.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// Options for opening a store.
#[derive(Clone)]
pub struct Options {
    /// Number of shards of a new store; an existing store keeps its own number.
    pub shards: u16,
    /// Maximum number of concurrent queries.
    pub readers: usize,
    /// Maximum duration of a query, and of its wait for a connection.
    pub query_limit: Duration,
    /// Reserved disk space for a full volume, in bytes. 0 disables the reserve.
    pub ballast_bytes: u64,
    /// Whether to open a store that has lost commits. Only for a caller that then
    /// [records](crate::Leases::mark_restored) that the store is an earlier state.
    pub allow_lost_commits: bool,
    /// Clock of the store. The default starts at the wall-clock time and then runs on the monotonic clock, without
    /// jumps.
    pub clock: Clock,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            shards: 16,
            readers: 4,
            query_limit: Duration::from_secs(5),
            ballast_bytes: 16 << 20,
            allow_lost_commits: false,
            clock: steady_clock(),
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("shards", &self.shards)
            .field("readers", &self.readers)
            .field("query_limit", &self.query_limit)
            .field("ballast_bytes", &self.ballast_bytes)
            .field("accept_loss", &self.allow_lost_commits)
            .finish_non_exhaustive()
    }
}

/// Wrapper of a clock, for the `Debug` of its owner.
struct DebugClock(Clock);

impl DebugClock {
    fn now(&self) -> Timestamp {
        (self.0)()
    }
}

impl fmt::Debug for DebugClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClockOf")
    }
}

fn steady_clock() -> Clock {
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let start = Instant::now();
    Arc::new(move || {
        let micros = (wall + start.elapsed()).as_micros();
        Timestamp::from_micros(i64::try_from(micros).unwrap_or(i64::MAX))
    })
}

/// Store in one SQLite file.
///
/// The methods need a tokio runtime with time enabled. Send batches under the same leases one after the other: each
/// depends on the one before, so after a failure the later ones must not be committed.
///
/// Dropping the store waits until all queued operations are written, and closes the file.
#[derive(Debug)]
pub struct SqliteStore {
    writer: Writer,
    readers: Readers,
    durable: Durable,
    trust: FatalState,
    shards: u16,
    roster: MemberList,
    clock: DebugClock,
    /// Of a replica: receiver of the rows that cannot be decoded. Any other store quarantines them itself.
    damage: Option<Mutex<Option<UnboundedSender<Vec<DamagedRow>>>>>,
}

impl SqliteStore {
    /// Opens or creates the file at `path`, and takes sole ownership of it.
    ///
    /// Blocks during the WAL recovery after a crash, for well under a second.
    ///
    /// # Errors
    /// [`StoreError::InUse`] if another store has the file open; [`StoreError::TooNew`] if a newer version wrote it.
    /// [`StoreError::Missing`] or [`StoreError::LostCommits`] if earlier commits are missing.
    /// [`StoreError::Unavailable`] if that cannot be determined, or if a damaged WAL cannot be copied.
    /// [`StoreError::Fatal`] if the file is damaged, truncated or not a Belfry store, or cannot be made durable.
    pub fn open(path: impl AsRef<Path>, options: Options) -> Result<Self, StoreError> {
        Self::open_with(path.as_ref(), options)
    }

    /// Opens or creates a replica. It may be older than before a power cut: its log applies the missing entries again.
    /// Leases change only by the log, also at a start.
    fn open_replica(path: &Path, options: Options, shared: replica::Shared) -> Result<Self, StoreError> {
        file::create_folder(path)?;
        let lock = Lock::take(path)?;
        let mut ballast = SpaceReserve::new(path, options.ballast_bytes);
        ballast.release_for_start();
        file::create(path)?;
        let trust = FatalState::new(path);
        let (connection, facts) = open_database(path, options.shards, Some(&shared))
            .map_err(|failure| trust.judge(failure, Phase::Change))?;
        file::sync_folder(path)?;
        restore_ballast(&mut ballast, path);
        let reached = StoredPositions { newest: facts.position, base: facts.base.unwrap_or_default() };
        let role = Role::Replica(shared);
        Self::start(Opened { connection, facts, lock, ballast, reached, role }, options, trust)
    }

    fn open_with(path: &Path, options: Options) -> Result<Self, StoreError> {
        file::create_folder(path)?;
        let lock = Lock::take(path)?;
        let mut ballast = SpaceReserve::new(path, options.ballast_bytes);
        ballast.release_for_start();
        let kept = PositionFile::read(path)?;
        if let Some(loss) = position::verify(path)? {
            let log_is_foreign = loss.log_is_foreign;
            let error = loss.into_error(path);
            if !options.allow_lost_commits {
                return Err(error);
            }
            tracing::warn!(%error, "opening a store that has lost commits");
            wal_copy::keep(path)?;
            if log_is_foreign {
                file::remove_wal(path)?;
            }
        }
        file::create(path)?;
        let trust = FatalState::new(path);
        let opened = open_database(path, options.shards, None);
        let (connection, facts) = opened.map_err(|failure| trust.judge(failure, Phase::Change))?;
        let newest = kept.unwrap_or_default().newest;
        if facts.position < newest && !options.allow_lost_commits {
            // The position could not be read without writing before.
            let reason = position::loss_message(facts.position, newest);
            return Err(StoreError::LostCommits { path: path.to_owned(), reason });
        }
        let base = match facts.base {
            Some(base) => base,
            // The existing WAL stays in use, unless it was removed above.
            None if options.allow_lost_commits => Position::default(),
            None => kept.unwrap_or_default().base,
        };
        if kept.is_none() || facts.base.is_none() {
            // Data that is only in the WAL is not synced yet: the tables of a new store, or writes before a kill. A
            // power cut that loses them must not look like a loss of commits.
            file::sync_wal(path)?;
        }
        let mark = PositionFile::keep(path, StoredPositions { newest: newest.max(facts.position), base });
        file::sync_folder(path)?;
        restore_ballast(&mut ballast, path);
        let reached = StoredPositions { newest: facts.position, base };
        // After an accepted loss, new events get positions that were never used before.
        let role = Role::Exclusive { mark, first_event: newest.next_event };
        Self::start(Opened { connection, facts, lock, ballast, reached, role }, options, trust)
    }

    fn start(opened: Opened, options: Options, trust: FatalState) -> Result<Self, StoreError> {
        let Opened { connection, facts, lock, ballast, reached, role } = opened;
        let (mark, replica, first_event) = match role {
            Role::Exclusive { mark, first_event } => (Some(mark), None, first_event),
            Role::Replica(shared) => (None, Some(shared), 0),
        };
        let durable = Durable::new();
        let is_replica = replica.is_some();
        let ownership = Ownership {
            connection,
            lock,
            ballast,
            reached,
            next_event: facts.position.next_event.max(first_event),
            mark,
            durable: durable.clone(),
            replica,
            clock: Arc::clone(&options.clock),
        };
        Ok(Self {
            writer: Writer::start(ownership, trust.clone())?,
            readers: Readers::new(trust.clone(), durable.clone(), options.readers, options.query_limit),
            durable,
            trust,
            shards: facts.shards,
            roster: MemberList::default(),
            clock: DebugClock(options.clock),
            damage: is_replica.then(Mutex::default),
        })
    }

    /// Reports rows of a replica that cannot be decoded.
    fn report(&self, damaged: Vec<DamagedRow>) {
        if damaged.is_empty() {
            return;
        }
        damaged.iter().for_each(DamagedRow::log_damage);
        if let Some(receiver) = &self.damage
            && let Some(sender) = &*receiver.lock().unwrap_or_else(PoisonError::into_inner)
        {
            // Without a receiver, the rows stay where they are, and the next query reports them again.
            let _ = sender.send(damaged);
        }
    }

    fn report_to(&self, sender: UnboundedSender<Vec<DamagedRow>>) {
        if let Some(receiver) = &self.damage {
            *receiver.lock().unwrap_or_else(PoisonError::into_inner) = Some(sender);
        }
    }

    /// Runs a query. Quarantines rows that could not be decoded and repeats the query until there are none.
    async fn ask<T: Send + 'static>(
        &self,
        query: impl Fn(&rusqlite::Connection) -> Result<(T, Vec<DamagedRow>), Failure> + Clone + Send + 'static,
    ) -> Result<T, StoreError> {
        let mut moved = Moved::default();
        loop {
            let (answer, damaged) = self.readers.read(query.clone()).await?;
            if damaged.is_empty() {
                return Ok(answer);
            }
            if self.damage.is_some() {
                self.report(damaged);
                return Ok(answer);
            }
            let stays = moved.add(damaged.iter().map(DamagedRow::place));
            stays.map_err(|reason| self.trust.judge(Failure::Broken(reason), Phase::Change))?;
            self.quarantine(damaged).await?;
        }
    }

    /// Moves rows that could not be decoded to the quarantine.
    async fn quarantine(&self, rows: Vec<DamagedRow>) -> Result<(), StoreError> {
        self.writer.done(Update::MoveToQuarantine { rows, now: self.clock.now() }).await
    }

    async fn ask_all<T: Send + 'static>(
        &self,
        query: impl Fn(&rusqlite::Connection) -> Result<Decoded<T>, Failure> + Clone + Send + 'static,
    ) -> Result<Vec<T>, StoreError> {
        self.ask(move |connection| query(connection).map(|sorted| (sorted.good, sorted.damaged))).await
    }

    async fn ask_page<T: Send + 'static>(
        &self,
        query: impl Fn(&rusqlite::Connection) -> Result<Found<T>, Failure> + Clone + Send + 'static,
    ) -> Result<Paged<T>, StoreError> {
        self.ask(move |connection| query(connection).map(|found| (found.page, found.damaged))).await
    }
}

/// Facts about a file, read while it is opened.
struct Facts {
    shards: u16,
    position: Position,
    /// Position at which the WAL starts, if the previous WAL was checkpointed completely.
    base: Option<Position>,
}

/// A database that was opened, and what its store needs.
struct Opened {
    connection: rusqlite::Connection,
    facts: Facts,
    lock: Lock,
    ballast: SpaceReserve,
    reached: StoredPositions,
    role: Role,
}

/// How a store changes.
enum Role {
    /// By the calls of its owner.
    Exclusive {
        mark: PositionFile,
        /// The first event gets this position or a higher one.
        first_event: u64,
    },
    /// By the entries of a log.
    Replica(replica::Shared),
}

fn restore_ballast(ballast: &mut SpaceReserve, path: &Path) {
    if let Err(error) = ballast.restore() {
        tracing::warn!(path = %path.display(), %error, "cannot allocate the store's reserve");
    }
}

fn open_database(
    path: &Path,
    shards: u16,
    replica: Option<&replica::Shared>,
) -> Result<(rusqlite::Connection, Facts), Failure> {
    let connection = file::open_writer(path)?;
    // Checkpoints and truncates the WAL, so that the file length is meaningful. On a full volume, or during a long read
    // such as a check, the WAL stays, and reads still work.
    let empty = || connection.wal_checkpoint_v2(Some(rusqlite::MAIN_DB), CheckpointMode::TRUNCATE);
    let emptied = match file::with_busy_timeout(&connection, wal_checkpoint::READERS_WAIT, empty) {
        Ok(_) => true,
        Err(error)
            if matches!(error.sqlite_error_code(), Some(ErrorCode::DiskFull | ErrorCode::DatabaseBusy)) =>
        {
            false
        }
        Err(error) => return Err(error.into()),
    };
    let mut base = None;
    if emptied {
        file::verify_length(&connection, path)?;
        base = Some(Position::of(&connection)?.unwrap_or_default());
    }
    let version = schema::version(&connection)?;
    if replica.is_none() && replica_tables::exist(&connection)? {
        return Err(Failure::Store(StoreError::Replica { path: path.to_owned() }));
    }
    schema::migrate(&connection, version, shards)?;
    let facts = connection.query_row("SELECT shards, next_event, now FROM meta", [], |row| {
        let position = Position { next_event: row.get(1)?, now: row.get(2)? };
        Ok(Facts { shards: row.get(0)?, position, base })
    })?;
    if let Some(shared) = replica {
        replica_tables::create(&connection)?;
        shared.start_at(&facts);
        return Ok((connection, facts));
    }
    match connection.execute("UPDATE shards SET owner = NULL WHERE owner IS NOT NULL", []) {
        Ok(_) => Ok((connection, facts)),
        // The leases then expire on their own.
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::DiskFull) => Ok((connection, facts)),
        Err(error) => Err(error.into()),
    }
}
