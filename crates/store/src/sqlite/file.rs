//! The file and what lies beside it: its lock, its ballast, and how connections are opened.
//!
//! ```text
//! belfry.db           the database            0600
//! belfry.db-wal/-shm  its log, and the log's index (SQLite's own)
//! belfry.db.lock      held while a store is open; says that leases of an earlier owner are void
//! belfry.db.ballast   space that is given up when the volume is full, so that running work can end
//! belfry.db.position  how far the store has come; see [`position`](super::position)
//! ```

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};
use rustix::fs::{FallocateFlags, fallocate};

use super::error::Failure;
use super::mover::LOG_BYTES_MAX;
use crate::StoreError;

/// How long SQLite waits for a lock; only one that another program holds is ever waited for.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// Of the writer, in KiB.
const WRITER_CACHE_KIB: i64 = 64 * 1024;
/// Of each reader, in KiB.
const READER_CACHE_KIB: i64 = 8 * 1024;

pub(super) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// The log of a database; it is there as long as the database is open.
pub(super) fn log_of(path: &Path) -> PathBuf {
    beside(path, "-wal")
}

pub(super) fn unavailable(path: &Path, error: &io::Error) -> StoreError {
    StoreError::Unavailable { source: format!("`{}`: {error}", path.display()).into() }
}

/// Sole ownership of a database file. Ends when it is dropped, or with the process.
#[derive(Debug)]
pub(super) struct Lock {
    _file: File,
}

impl Lock {
    /// The file of the lock; it stays when the lock is gone.
    pub(super) fn path_of(database: &Path) -> PathBuf {
        beside(database, ".lock")
    }

    /// # Errors
    /// [`StoreError::InUse`] if another store has it, in this process or another.
    pub(super) fn take(database: &Path) -> Result<Self, StoreError> {
        let path = Self::path_of(database);
        let file = open_beside(database, &path).map_err(|error| unavailable(&path, &error))?;
        match file.try_lock() {
            Ok(()) => Ok(Self { _file: file }),
            Err(TryLockError::WouldBlock) => Err(StoreError::InUse { path: database.to_owned() }),
            Err(TryLockError::Error(error)) => Err(unavailable(&path, &error)),
        }
    }
}

/// Creates the folder of a database where it is missing, readable by nobody else.
pub(super) fn create_folder(path: &Path) -> Result<(), StoreError> {
    let folder = folder(path);
    if !folder.exists() {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)
            .map_err(|error| unavailable(folder, &error))?;
    }
    Ok(())
}

/// Opens a file beside a database to write it. Where it is missing it is made, readable by nobody else, and for the
/// owner of the database: else a command that root runs would keep out the server, which is another user.
pub(super) fn open_beside(database: &Path, path: &Path) -> io::Result<File> {
    match create_beside(database, path) {
        // One that exists is never given away: it may be a link to somewhere else.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            OpenOptions::new().write(true).open(path)
        }
        created => created,
    }
}

/// The same for one that does not exist.
pub(super) fn create_beside(database: &Path, path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().create_new(true).write(true).mode(0o600).open(path)?;
    let (ours, wanted) = (file.metadata()?, fs::metadata(database).ok());
    if let Some(wanted) = wanted.filter(|wanted| (wanted.uid(), wanted.gid()) != (ours.uid(), ours.gid()))
        && let Err(error) = fchown(&file, Some(wanted.uid()), Some(wanted.gid()))
        // Only root gives files away.
        && error.kind() != io::ErrorKind::PermissionDenied
    {
        return Err(error);
    }
    Ok(file)
}

/// Creates a file where it is missing, readable by nobody else. SQLite gives its log the mode of the database.
pub(super) fn create_file(path: &Path) -> io::Result<()> {
    OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(path).map(drop)
}

/// The same for a database.
pub(super) fn create(path: &Path) -> Result<(), StoreError> {
    create_file(path).map_err(|error| unavailable(path, &error))
}

/// Makes the content of a file durable.
#[cfg_attr(not(test), expect(unused_variables, reason = "tests let the sync of a path fail"))]
pub(super) fn sync(file: &File, path: &Path) -> io::Result<()> {
    #[cfg(test)]
    super::tests::torture::before_sync(path)?;
    file.sync_data()
}

/// Makes durable what was committed so far, and the names of the files.
pub(super) fn sync_log(path: &Path) -> Result<(), StoreError> {
    let log = log_of(path);
    let synced = OpenOptions::new().write(true).open(&log).and_then(|file| sync(&file, &log));
    synced.map_err(|error| StoreError::Fatal {
        reason: format!("the log `{}` cannot be synced: {error}", log.display()),
    })?;
    sync_folder(path)
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

pub(super) fn folder(path: &Path) -> &Path {
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
         PRAGMA journal_size_limit = {LOG_BYTES_MAX};
         PRAGMA cache_size = -{WRITER_CACHE_KIB};
         PRAGMA temp_store = MEMORY;"
    ))?;
    verify_durability(&connection)?;
    Ok(connection)
}

/// Runs `work` with another wait for locks.
pub(super) fn with_busy_timeout<T>(connection: &Connection, wait: Duration, work: impl FnOnce() -> T) -> T {
    // It cannot fail: it only sets a number of the connection.
    let _ = connection.busy_timeout(wait);
    let result = work();
    let _ = connection.busy_timeout(BUSY_TIMEOUT);
    result
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

/// A connection that reads a database as if it had no log. Nothing may write to it meanwhile.
pub(super) fn open_without_log(path: &Path) -> Result<Connection, Failure> {
    let path = std::path::absolute(path).map_err(|error| Failure::Store(unavailable(path, &error)))?;
    let mut uri = String::from("file://");
    for &byte in path.as_os_str().as_bytes() {
        if byte.is_ascii_alphanumeric() || b"/._-".contains(&byte) {
            uri.push(char::from(byte));
        } else {
            uri.push_str(&format!("%{byte:02X}"));
        }
    }
    // SQLite takes it as read-only for all, and looks for no log then.
    uri.push_str("?immutable=1");
    let flags =
        OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_URI;
    let connection = Connection::open_with_flags(uri, flags)?;
    connection.execute_batch("PRAGMA mmap_size = 0; PRAGMA trusted_schema = OFF;")?;
    Ok(connection)
}

/// Removes the log of a database, and its index; durably, for it must not come back.
pub(super) fn remove_log(path: &Path) -> Result<(), StoreError> {
    for file in [log_of(path), beside(path, "-shm")] {
        match fs::remove_file(&file) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(unavailable(&file, &error)),
            _ => {}
        }
    }
    sync_folder(path)
}

/// The bytes that the volume of a file has left for it, where that is told.
pub(super) fn space_of(path: &Path) -> Option<u64> {
    let volume = rustix::fs::statvfs(folder(path)).ok()?;
    Some(volume.f_bavail.saturating_mul(volume.f_frsize))
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
/// When the volume is full, the reserve is given up, a quarter at a time, so that running work can still be
/// recorded as ended. New work gets the first quarter at most: that is for what was accepted before the node
/// heard that the reserve is touched. [`check`](crate::Housekeeping::check) says `Full` until the whole reserve could
/// be taken again.
#[derive(Debug)]
pub(super) struct Ballast {
    database: PathBuf,
    path: PathBuf,
    bytes: u64,
    /// Whether a part of it is missing for want of space.
    low: bool,
}

/// In how many steps the reserve is given up.
const PARTS: u64 = 4;
/// Free space that a start needs: for the log and its index, which a clean stop removes.
const START_BYTES: u64 = 1 << 20;

/// For whom space is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Need {
    /// For what makes the store grow.
    NewWork,
    /// For what goes on, and for what ends.
    OldWork,
}

impl Ballast {
    pub(super) fn new(database: &Path, bytes: u64) -> Self {
        Self { database: database.to_owned(), path: beside(database, ".ballast"), bytes, low: false }
    }

    /// Whether a part of the reserve was given up and could not be taken again: no new work fits.
    pub(super) fn is_low(&self) -> bool {
        self.low
    }

    fn part(&self) -> u64 {
        self.bytes.div_ceil(PARTS).max(1)
    }

    fn held(&self) -> u64 {
        fs::metadata(&self.path).map_or(0, |meta| meta.len())
    }

    /// Gives up a part where the volume is too full even to open the store.
    pub(super) fn make_room(&mut self) {
        let space = space_of(&self.path);
        if space.is_some_and(|space| space < START_BYTES) && self.release(Need::OldWork) {
            tracing::warn!(?space, "the store's volume is full: using a part of its reserve to start");
        }
    }

    /// Gives up the next part; `false` if there is none for this need.
    pub(super) fn release(&mut self, need: Need) -> bool {
        let (held, part) = (self.held(), self.part());
        let floor = if need == Need::NewWork { self.bytes.saturating_sub(part) } else { 0 };
        // One that is held for somebody else is not this store's to give up.
        if self.bytes == 0 || held <= floor {
            return false;
        }
        let left = held.saturating_sub(part).max(floor);
        let released = if left == 0 {
            fs::remove_file(&self.path)
        } else {
            OpenOptions::new().write(true).open(&self.path).and_then(|file| file.set_len(left))
        };
        self.low |= released.is_ok();
        released.is_ok()
    }

    /// Takes the whole reserve, unless it is held already. What is held of it stays where that fails. Once it was low,
    /// there must be room for new work besides: else the next job would find the volume full again.
    pub(super) fn restore(&mut self) -> io::Result<()> {
        let held = self.held();
        if self.bytes == 0 || held == self.bytes {
            self.low = false;
            return Ok(());
        }
        let file = open_beside(&self.database, &self.path)?;
        match fallocate(&file, FallocateFlags::empty(), 0, self.bytes) {
            // A file system that cannot reserve has no ballast to give.
            Ok(()) | Err(rustix::io::Errno::OPNOTSUPP) => {
                let room = space_of(&self.path).unwrap_or(u64::MAX);
                if self.low && room < self.part() {
                    file.set_len(held)?;
                    return Err(io::ErrorKind::StorageFull.into());
                }
                self.low = false;
                Ok(())
            }
            Err(error) => {
                self.low |= matches!(error, rustix::io::Errno::NOSPC | rustix::io::Errno::DQUOT);
                // What it got beyond that would fill the volume for the next second.
                if file.set_len(held).is_err() || held == 0 {
                    let _ = fs::remove_file(&self.path);
                }
                Err(error.into())
            }
        }
    }
}
