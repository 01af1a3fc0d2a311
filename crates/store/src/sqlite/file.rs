//! The file and what lies beside it: its lock, its ballast, and how connections are opened.
//!
//! ```text
//! belfry.db           the database            0600
//! belfry.db-wal/-shm  its log, and the log's index (SQLite's own)
//! belfry.db.lock      held while a store is open; says that leases of an earlier owner are void
//! belfry.db.ballast   space that is given up when the volume is full, so that running work can end
//! ```

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};
use rustix::fs::{FallocateFlags, fallocate};

use super::error::Failure;
use crate::StoreError;

/// How long SQLite waits for a lock; only a checkpoint that meets a reader ever does.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// Of the writer, in KiB.
const WRITER_CACHE_KIB: i64 = 64 * 1024;
/// Of each reader, in KiB.
const READER_CACHE_KIB: i64 = 8 * 1024;

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// The log of a database; it is there as long as the database is open.
pub(super) fn log_of(path: &Path) -> PathBuf {
    beside(path, "-wal")
}

fn unavailable(path: &Path, error: &io::Error) -> StoreError {
    StoreError::Unavailable { source: format!("`{}`: {error}", path.display()).into() }
}

/// Sole ownership of a database file. Ends when it is dropped, or with the process.
#[derive(Debug)]
pub(super) struct Lock {
    _file: File,
}

impl Lock {
    /// # Errors
    /// [`StoreError::InUse`] if another store has it, in this process or another.
    pub(super) fn take(database: &Path) -> Result<Self, StoreError> {
        let path = beside(database, ".lock");
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(&path)
            .map_err(|error| unavailable(&path, &error))?;
        match file.try_lock() {
            Ok(()) => Ok(Self { _file: file }),
            Err(TryLockError::WouldBlock) => Err(StoreError::InUse { path: database.to_owned() }),
            Err(TryLockError::Error(error)) => Err(unavailable(&path, &error)),
        }
    }
}

/// Creates the folder and the file where they are missing, readable by nobody else.
pub(super) fn create(path: &Path) -> Result<(), StoreError> {
    let folder = folder(path);
    if !folder.exists() {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)
            .map_err(|error| unavailable(folder, &error))?;
    }
    // SQLite gives its log the mode of the database.
    OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .open(path)
        .map_err(|error| unavailable(path, &error))?;
    Ok(())
}

/// Makes the names in the folder durable, and the folder's own name.
pub(super) fn sync_folder(path: &Path) -> Result<(), StoreError> {
    let folder = folder(path);
    let above = folder.parent().filter(|above| !above.as_os_str().is_empty());
    for folder in [Some(folder), above].into_iter().flatten() {
        File::open(folder).and_then(|file| file.sync_all()).map_err(|error| StoreError::Fatal {
            reason: format!("cannot sync the folder `{}`: {error}", folder.display()),
        })?;
    }
    Ok(())
}

fn folder(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// The one connection that writes.
///
/// Memory mapping is left off, here and for readers: an I/O error under a map is a SIGBUS that kills
/// the process, where a read answers with an error.
pub(super) fn open_writer(path: &Path) -> Result<Connection, Failure> {
    let connection = Connection::open_with_flags(
        path,
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX,
    )?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    // Nothing writes but this connection, so checkpoints are its own decision: SQLite's automatic
    // ones swallow their errors.
    connection.execute_batch(&format!(
        "PRAGMA mmap_size = 0;
         PRAGMA foreign_keys = OFF;
         PRAGMA trusted_schema = OFF;
         PRAGMA cell_size_check = ON;
         PRAGMA journal_mode = WAL;
         PRAGMA synchronous = NORMAL;
         PRAGMA wal_autocheckpoint = 0;
         PRAGMA cache_size = -{WRITER_CACHE_KIB};
         PRAGMA temp_store = MEMORY;"
    ))?;
    verify_durability(&connection)?;
    Ok(connection)
}

/// What was set is read back: a store that cannot keep its word must not give it.
///
/// With `NORMAL` (1) SQLite syncs whatever it does to a log but what a commit adds to it; that is
/// [`syncer`](super::syncer)'s.
fn verify_durability(connection: &Connection) -> Result<(), Failure> {
    let journal: String = connection.query_row("PRAGMA journal_mode", [], |row| row.get(0))?;
    let synchronous: i64 = connection.query_row("PRAGMA synchronous", [], |row| row.get(0))?;
    if !journal.eq_ignore_ascii_case("wal") || synchronous != 1 {
        return Err(Failure::Broken(format!(
            "it is not durable: journal_mode is `{journal}` and synchronous is {synchronous}, \
             expected `wal` and 1 (NORMAL)"
        )));
    }
    Ok(())
}

/// A connection that only moves the log into the database, and syncs it.
pub(super) fn open_mover(path: &Path) -> Result<Connection, Failure> {
    let connection = Connection::open_with_flags(
        path,
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX,
    )?;
    connection.execute_batch(
        "PRAGMA mmap_size = 0;
         PRAGMA synchronous = NORMAL;
         PRAGMA wal_autocheckpoint = 0;",
    )?;
    verify_durability(&connection)?;
    Ok(connection)
}

/// A connection that only reads.
pub(super) fn open_reader(path: &Path) -> Result<Connection, Failure> {
    let connection = Connection::open_with_flags(
        path,
        OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX,
    )?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.execute_batch(&format!(
        "PRAGMA mmap_size = 0;
         PRAGMA trusted_schema = OFF;
         PRAGMA cell_size_check = ON;
         PRAGMA cache_size = -{READER_CACHE_KIB};
         PRAGMA temp_store = MEMORY;"
    ))?;
    connection.set_prepared_statement_cache_capacity(64);
    Ok(connection)
}

/// Notices a file that was cut short. Called while the log is empty.
pub(super) fn verify_length(connection: &Connection, path: &Path) -> Result<(), Failure> {
    let pages: u64 = connection.query_row("PRAGMA page_count", [], |row| row.get(0))?;
    let page_size: u64 = connection.query_row("PRAGMA page_size", [], |row| row.get(0))?;
    let found = fs::metadata(path).map_err(|error| Failure::Store(unavailable(path, &error)))?.len();
    let expected = pages * page_size;
    if found < expected {
        return Err(Failure::Broken(format!("it was cut short: {found} bytes, expected {expected}")));
    }
    Ok(())
}

/// Space held in reserve on the volume of the store.
///
/// When the volume is full, the reserve is given up so that work that runs can still be recorded as
/// ended, while [`check`](crate::Store::check) says `Full` until it could be taken again.
#[derive(Debug)]
pub(super) struct Ballast {
    path: PathBuf,
    bytes: u64,
}

impl Ballast {
    pub(super) fn new(database: &Path, bytes: u64) -> Self {
        Self { path: beside(database, ".ballast"), bytes }
    }

    /// Gives the space up; `false` if there was none.
    pub(super) fn release(&self) -> bool {
        let held = fs::metadata(&self.path).is_ok_and(|meta| meta.len() > 0);
        held && fs::remove_file(&self.path).is_ok()
    }

    /// Takes the space, unless it is held already.
    pub(super) fn restore(&self) -> io::Result<()> {
        if self.bytes == 0 || fs::metadata(&self.path).is_ok_and(|meta| meta.len() == self.bytes) {
            return Ok(());
        }
        let file = OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&self.path)?;
        match fallocate(&file, FallocateFlags::empty(), 0, self.bytes) {
            Ok(()) => Ok(()),
            // A file system that cannot reserve has no ballast to give.
            Err(rustix::io::Errno::OPNOTSUPP) => Ok(()),
            Err(error) => {
                // A part of it would be worse than nothing: it fills the volume for the next second.
                let _ = fs::remove_file(&self.path);
                Err(error.into())
            }
        }
    }
}
