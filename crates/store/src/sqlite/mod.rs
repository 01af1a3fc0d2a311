//! The embedded store: SQLite, one file, one owner at a time.
//!
//! ```text
//! commit, acquire, …  ─>  writer: one thread, one connection, group commit  ─┬─ belfry.db
//!                     <─  syncer: one thread, one sync for what was written  ─┤
//! job, jobs, events … ─>  readers: a few connections, on blocking threads   ─┘
//! ```
//!
//! - `schema`: the tables and their versions; `codec`: records as bytes, with checksums.
//! - `commit`, `leases`, `members`, `reads`, `housekeeping`: the trait of that name.
//! - `writer`, `operation`, `statements`: how changes reach the one thread that writes; `syncer`: when they are durable;
//!   `mover`: when the log goes into the database.
//! - `readers`, `lists`, `views`, `load`, `rows`: how queries are answered.
//! - `source`: a closed file that is copied elsewhere.
//! - `file`: what lies on the disk, its lock and its reserve; `error`: what an error of
//!   SQLite means; `quarantine`: rows that cannot be read.
//! - `position`: how a loss of commits is noticed; `log_copy`: copies of damaged logs.
//! - `check`: looking for damage everywhere, and backups.
//!
//! # Always true
//! - A commit is on the disk before it is answered, and before anything is that a query saw of it. Log and
//!   syncs are SQLite's (`synchronous=NORMAL`, read back at every start) but for that of a commit, which is ours.
//! - One process has the file open (a lock beside it), and one thread of it writes; others only sync what was
//!   written, and move it from the log into the database.
//! - After an I/O error while writing, or damage found in the file itself, nothing is written any more.
//! - Leases are void at a start: their owner held the file's lock, so it is gone.
//!
//! # Cost
//! A commit of `n` rows is one sync and about 4 µs a row; commits that wait for one another share the
//! sync. A lookup by id is one tree; a page of a list is read from an index in its order. A firing (a job,
//! a line of the ledger, the state of a schedule) is about 25 µs where the schedules of a batch share
//! pages, and 100 µs where each of a million lies on a page of its own. A million schedules take 900
//! bytes each with their specs, and load in less than 5 s (two busy cores).

mod check;
mod commit;
mod error;
mod file;
mod housekeeping;
mod leases;
mod lists;
mod load;
mod log_copy;
mod members;
mod mover;
mod operation;
mod partial;
mod position;
mod quarantine;
mod readers;
mod reads;
mod rows;
mod schema;
#[cfg(feature = "postgres")]
mod source;
mod statements;
mod syncer;
#[cfg(feature = "postgres")]
mod target;
mod views;
mod writer;

#[cfg(test)]
mod tests;

pub use check::{Backup, BackupError, Checked, backup, check};
#[cfg(test)]
pub(crate) use lists::plans as list_plans;
#[cfg(feature = "postgres")]
pub(crate) use {
    quarantine::{cells_of_readable, readable_cells},
    source::{RowsError, Source},
    target::Target,
};

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use model::{Duration, Timestamp};
use rusqlite::ErrorCode;
use rusqlite::wal::CheckpointMode;

use error::{Failure, Phase, Trust};
use file::{Ballast, Lock};
use lists::Found;
use members::Roster;
use operation::Operation;
use position::{Kept, Mark, Position};
use quarantine::Damaged;
use readers::Readers;
use rows::Sorted;
use syncer::Durable;
use writer::{Ownership, Writer};

use crate::StoreError;
use crate::query::Paged;

/// Says what time it is, for leases and for when a row was set aside.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// How a store is opened.
#[derive(Clone)]
pub struct Options {
    /// How many shards a new store gets; one that exists keeps its own.
    pub shards: u16,
    /// How many queries run at the same time.
    pub readers: usize,
    /// How long a query may take, and how long it may wait for its turn.
    pub query_limit: Duration,
    /// Space that is kept in reserve for a full volume; none where 0.
    pub ballast_bytes: u64,
    /// Whether a store that has lost commits is opened all the same; for who goes on to
    /// [note](crate::Leases::note_restored) that it is an earlier state.
    pub accept_loss: bool,
    /// The store's clock. The default starts with the wall clock and then never jumps.
    pub clock: Clock,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            shards: 16,
            readers: 4,
            query_limit: Duration::from_secs(5),
            ballast_bytes: 16 << 20,
            accept_loss: false,
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
            .field("accept_loss", &self.accept_loss)
            .finish_non_exhaustive()
    }
}

/// A clock that has nothing to show.
struct ClockOf(Clock);

impl ClockOf {
    fn now(&self) -> Timestamp {
        (self.0)()
    }
}

impl fmt::Debug for ClockOf {
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

/// The store in one SQLite file.
///
/// Its methods need a tokio runtime with time enabled. Batches under the same leases are to be sent
/// one after the other: each is decided on top of the one before, and if that one fails, those behind
/// it must not go through.
///
/// Dropping it waits until what was sent is written and closes the file.
#[derive(Debug)]
pub struct SqliteStore {
    writer: Writer,
    readers: Readers,
    durable: Durable,
    trust: Trust,
    shards: u16,
    roster: Roster,
    clock: ClockOf,
}

impl SqliteStore {
    /// Opens the file at `path`, or makes it, and takes sole ownership of it.
    ///
    /// Blocks while the log of a crash is recovered, well under a second.
    ///
    /// # Errors
    /// [`StoreError::InUse`] if another store has it, [`StoreError::TooNew`] if a newer version wrote
    /// it, [`StoreError::Missing`] or [`StoreError::LostCommits`] if it is not what it was,
    /// [`StoreError::Unavailable`] if that cannot be told, or a damaged log cannot be copied, and
    /// [`StoreError::Fatal`] if it is damaged, cut short, not ours, or cannot be made durable.
    pub fn open(path: impl AsRef<Path>, options: Options) -> Result<Self, StoreError> {
        let path = path.as_ref();
        file::create_folder(path)?;
        let lock = Lock::take(path)?;
        let mut ballast = Ballast::new(path, options.ballast_bytes);
        ballast.make_room();
        let kept = Mark::read(path)?;
        if let Some(loss) = position::verify(path)? {
            let log_is_foreign = loss.log_is_foreign;
            let error = loss.into_error(path);
            if !options.accept_loss {
                return Err(error);
            }
            tracing::warn!(%error, "the loss is accepted");
            log_copy::keep(path)?;
            if log_is_foreign {
                file::remove_log(path)?;
            }
        }
        file::create(path)?;
        let trust = Trust::new(path);
        let opened = open_database(path, options.shards);
        let (connection, facts) = opened.map_err(|failure| trust.judge(failure, Phase::Change))?;
        let newest = kept.unwrap_or_default().newest;
        if facts.position < newest && !options.accept_loss {
            // It could not be read without writing before.
            let reason = position::describe_loss(facts.position, newest);
            return Err(StoreError::LostCommits { path: path.to_owned(), reason });
        }
        let base = match facts.base {
            Some(base) => base,
            // The log that is there goes on, unless it was left out.
            None if options.accept_loss => Position::default(),
            None => kept.unwrap_or_default().base,
        };
        if kept.is_none() || facts.base.is_none() {
            // What is in the log alone is not synced yet: the tables of a new store, or what was written before a kill.
            // A store that loses it in a power cut must not look as if it had lost commits.
            file::sync_log(path)?;
        }
        let mark = Mark::keep(path, Kept { newest: newest.max(facts.position), base });
        file::sync_folder(path)?;
        if let Err(error) = ballast.restore() {
            tracing::warn!(%error, "the store's reserve of space cannot be taken");
        }
        let clock = options.clock;
        let durable = Durable::new();
        let ownership = Ownership {
            connection,
            lock,
            ballast,
            clock: Arc::clone(&clock),
            reached: Kept { newest: facts.position, base },
            // Where a loss is accepted, what is told next is told under places that were never given out.
            next_event: facts.position.next_event.max(newest.next_event),
            mark,
            durable: durable.clone(),
        };
        Ok(Self {
            writer: Writer::start(ownership, trust.clone())?,
            readers: Readers::new(trust.clone(), durable.clone(), options.readers, options.query_limit),
            durable,
            trust,
            shards: facts.shards,
            roster: Roster::default(),
            clock: ClockOf(clock),
        })
    }

    /// Asks, sets aside what could not be read, and asks again until nothing was in the way.
    async fn ask<T: Send + 'static>(
        &self,
        query: impl Fn(&rusqlite::Connection) -> Result<(T, Vec<Damaged>), Failure> + Clone + Send + 'static,
    ) -> Result<T, StoreError> {
        loop {
            let (answer, damaged) = self.readers.read(query.clone()).await?;
            if damaged.is_empty() {
                return Ok(answer);
            }
            self.writer.done(Operation::SetAside(damaged)).await?;
        }
    }

    async fn ask_all<T: Send + 'static>(
        &self,
        query: impl Fn(&rusqlite::Connection) -> Result<Sorted<T>, Failure> + Clone + Send + 'static,
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

/// What is known of a file once it is open.
struct Facts {
    shards: u16,
    position: Position,
    /// Where its log begins, if all of the one before could be moved.
    base: Option<Position>,
}

fn open_database(path: &Path, shards: u16) -> Result<(rusqlite::Connection, Facts), Failure> {
    let connection = file::open_writer(path)?;
    // Empties the log, so that the length of the file says something. Where the volume is full the
    // log stays, and reading goes on; and so it does where somebody reads for long, as a check does.
    let empty = || connection.wal_checkpoint_v2(Some(rusqlite::MAIN_DB), CheckpointMode::TRUNCATE);
    let emptied = match file::with_busy_timeout(&connection, mover::READERS_WAIT, empty) {
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
    schema::migrate(&connection, version, shards)?;
    let facts = connection.query_row("SELECT shards, next_event, now FROM meta", [], |row| {
        let position = Position { next_event: row.get(1)?, now: row.get(2)? };
        Ok(Facts { shards: row.get(0)?, position, base })
    })?;
    match connection.execute("UPDATE shards SET owner = NULL WHERE owner IS NOT NULL", []) {
        Ok(_) => Ok((connection, facts)),
        // They run out by themselves then.
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::DiskFull) => Ok((connection, facts)),
        Err(error) => Err(error.into()),
    }
}
