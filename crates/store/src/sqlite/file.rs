//! The files of a store: database, lock, reserve ("ballast") and position, and the opening of connections.
//!
//! ```text
//!  belfry.db           the database (mode 0600)
//!  belfry.db-wal/-shm  the WAL and its index, both written by SQLite
//!  belfry.db.lock      locked while a store is open; so earlier leases are void for a new owner
//!  belfry.db.ballast   reserved space, released on a full volume so that running work can end
//!  belfry.db.position  position of the newest durable batch; see [`position`](super::position)
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
use super::wal_checkpoint::LOG_BYTES_MAX;
use crate::StoreError;

/// Maximum time that SQLite waits for a lock. Only a lock of another program makes it wait.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// Page cache of the writer, in KiB.
const WRITER_CACHE_KIB: i64 = 64 * 1024;
/// Page cache of each reader, in KiB.
const READER_CACHE_KIB: i64 = 8 * 1024;

pub(super) fn sibling_path(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// Returns the path of the WAL of a database. The file exists while the database is open.
pub(super) fn wal_path(path: &Path) -> PathBuf {
    sibling_path(path, "-wal")
}

pub(super) fn unavailable(path: &Path, error: &io::Error) -> StoreError {
    StoreError::Unavailable { source: format!("`{}`: {error}", path.display()).into() }
}

/// Sole ownership of a database file. Ends when the lock is dropped, or with the process.
#[derive(Debug)]
pub(super) struct Lock {
    _file: File,
}

impl Lock {
    /// Returns the path of the lock file; the file stays after the lock is released.
    pub(super) fn path_of(database: &Path) -> PathBuf {
        sibling_path(database, ".lock")
    }

    /// # Errors
    /// [`StoreError::InUse`] if another store holds the lock, in this process or another.
    pub(super) fn take(database: &Path) -> Result<Self, StoreError> {
        let path = Self::path_of(database);
        let file = open_sibling(database, &path).map_err(|error| unavailable(&path, &error))?;
        match file.try_lock() {
            Ok(()) => Ok(Self { _file: file }),
            Err(TryLockError::WouldBlock) => Err(StoreError::InUse { path: database.to_owned() }),
            Err(TryLockError::Error(error)) => Err(unavailable(&path, &error)),
        }
    }
}

/// Creates the folder of a database if it is missing, with access for the owner only.
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

/// Opens a file next to a database for writing. A missing file is created with access for the owner only, and belongs
/// to the owner of the database: otherwise a command that root runs would lock out the server, which runs as another
/// user.
pub(super) fn open_sibling(database: &Path, path: &Path) -> io::Result<File> {
    match create_sibling(database, path) {
        // The owner of an existing file is never changed: the file may be a link to another place.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            OpenOptions::new().write(true).open(path)
        }
        created => created,
    }
}

/// Creates a file next to a database, for the owner of the database. Fails if it exists.
pub(super) fn create_sibling(database: &Path, path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().create_new(true).write(true).mode(0o600).open(path)?;
    let (ours, wanted) = (file.metadata()?, fs::metadata(database).ok());
    if let Some(wanted) = wanted.filter(|wanted| (wanted.uid(), wanted.gid()) != (ours.uid(), ours.gid()))
        && let Err(error) = fchown(&file, Some(wanted.uid()), Some(wanted.gid()))
        // Only root can change the owner of a file.
        && error.kind() != io::ErrorKind::PermissionDenied
    {
        return Err(error);
    }
    Ok(file)
}

/// Creates a file if it is missing, with access for the owner only. SQLite gives its WAL the mode of the database.
pub(super) fn create_file(path: &Path) -> io::Result<()> {
    OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(path).map(drop)
}

/// Creates a database file if it is missing; see [`create_file`].
pub(super) fn create(path: &Path) -> Result<(), StoreError> {
    create_file(path).map_err(|error| unavailable(path, &error))
}

/// Syncs the content of a file.
#[cfg_attr(not(test), expect(unused_variables, reason = "tests let the sync of a path fail"))]
pub(super) fn sync(file: &File, path: &Path) -> io::Result<()> {
    #[cfg(test)]
    super::tests::failing_disk::before_sync(path)?;
    file.sync_data()
}

/// Syncs the WAL and the folder of the database.
pub(super) fn sync_wal(path: &Path) -> Result<(), StoreError> {
    let log = wal_path(path);
    let synced = OpenOptions::new().write(true).open(&log).and_then(|file| sync(&file, &log));
    synced.map_err(|error| StoreError::Fatal {
        reason: format!("cannot sync the WAL `{}`: {error}", log.display()),
    })?;
    sync_folder(path)
}

/// Syncs a folder and its parent, so that the file names and the folder's own name are durable.
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

/// Opens the only connection that writes.
///
/// Memory mapping is off, here and for readers: an I/O error in a mapped page is a SIGBUS that kills the process; a
/// read returns an error.
pub(super) fn open_writer(path: &Path) -> Result<Connection, Failure> {
    let connection = Connection::open_with_flags(
        path,
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX,
    )?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    // Only this connection writes, so it decides when to checkpoint. SQLite's automatic checkpoints ignore their
    // errors.
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

/// Runs `work` with another lock timeout.
pub(super) fn with_busy_timeout<T>(connection: &Connection, wait: Duration, work: impl FnOnce() -> T) -> T {
    // This cannot fail: it only sets a number in the connection.
    let _ = connection.busy_timeout(wait);
    let result = work();
    let _ = connection.busy_timeout(BUSY_TIMEOUT);
    result
}

/// Checks that the durability settings are in effect: the store must not promise what it cannot keep.
///
/// With `NORMAL` (1), SQLite does all fsyncs of the WAL except the one of a commit; [`syncer`](super::syncer) does that
/// one.
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

/// Opens a connection that only checkpoints and syncs the WAL.
pub(super) fn open_checkpointer(path: &Path) -> Result<Connection, Failure> {
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

/// Opens a read-only connection.
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

/// Opens a connection that ignores the WAL of a database. Nothing may write to the database at the same time.
pub(super) fn open_without_wal(path: &Path) -> Result<Connection, Failure> {
    let path = std::path::absolute(path).map_err(|error| Failure::Store(unavailable(path, &error)))?;
    let mut uri = String::from("file://");
    for &byte in path.as_os_str().as_bytes() {
        if byte.is_ascii_alphanumeric() || b"/._-".contains(&byte) {
            uri.push(char::from(byte));
        } else {
            uri.push_str(&format!("%{byte:02X}"));
        }
    }
    // SQLite then treats the file as read-only and looks for no WAL.
    uri.push_str("?immutable=1");
    let flags =
        OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_URI;
    let connection = Connection::open_with_flags(uri, flags)?;
    connection.execute_batch("PRAGMA mmap_size = 0; PRAGMA trusted_schema = OFF;")?;
    Ok(connection)
}

/// Removes the WAL of a database and its index, durably: a removed WAL must not reappear after a power cut.
pub(super) fn remove_wal(path: &Path) -> Result<(), StoreError> {
    for file in [wal_path(path), sibling_path(path, "-shm")] {
        match fs::remove_file(&file) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(unavailable(&file, &error)),
            _ => {}
        }
    }
    sync_folder(path)
}

/// Replaces a database that is closed by another file, which is moved. The other file has no WAL.
pub(super) fn replace(path: &Path, from: &Path) -> Result<(), StoreError> {
    remove_wal(path)?;
    fs::rename(from, path).map_err(|error| unavailable(from, &error))?;
    sync_folder(path)
}

/// Returns the free bytes on the volume of a file; `None` if the system does not report them.
pub(super) fn space_of(path: &Path) -> Option<u64> {
    let volume = rustix::fs::statvfs(folder(path)).ok()?;
    Some(volume.f_bavail.saturating_mul(volume.f_frsize))
}

/// Detects a truncated database file. Called while the WAL is empty.
pub(super) fn verify_length(connection: &Connection, path: &Path) -> Result<(), Failure> {
    let pages: u64 = connection.query_row("PRAGMA page_count", [], |row| row.get(0))?;
    let page_size: u64 = connection.query_row("PRAGMA page_size", [], |row| row.get(0))?;
    let found = fs::metadata(path).map_err(|error| Failure::Store(unavailable(path, &error)))?.len();
    let expected = pages * page_size;
    if found < expected {
        return Err(Failure::Broken(format!("it is truncated: {found} bytes, expected {expected}")));
    }
    Ok(())
}

/// Reserved disk space on the volume of the store.
///
/// On a full volume the reserve is released, a quarter at a time, so that the end of running work can still be
/// recorded. New work gets at most the first quarter: it is for work that was accepted before the server noticed that
/// the reserve is in use. [`check`](crate::Housekeeping::check) returns `Full` until the whole reserve is allocated
/// again.
#[derive(Debug)]
pub(super) struct SpaceReserve {
    database: PathBuf,
    path: PathBuf,
    bytes: u64,
    /// Whether a part of the reserve is missing for lack of space.
    low: bool,
}

/// Number of steps in which the reserve is released.
const PARTS: u64 = 4;
/// Free space that a start needs, in bytes: for the WAL and its index, which a clean stop removes.
const START_BYTES: u64 = 1 << 20;

/// Purpose of the requested space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SpaceUse {
    /// Work that makes the store grow.
    NewWork,
    /// Running work, and its end.
    RunningWork,
}

impl SpaceReserve {
    pub(super) fn new(database: &Path, bytes: u64) -> Self {
        Self { database: database.to_owned(), path: sibling_path(database, ".ballast"), bytes, low: false }
    }

    /// Returns whether a part of the reserve was released and could not be allocated again: there is no space for new
    /// work.
    pub(super) fn is_low(&self) -> bool {
        self.low
    }

    fn part(&self) -> u64 {
        self.bytes.div_ceil(PARTS).max(1)
    }

    fn held(&self) -> u64 {
        fs::metadata(&self.path).map_or(0, |meta| meta.len())
    }

    /// Releases a part of the reserve if the volume is too full to open the store.
    pub(super) fn release_for_start(&mut self) {
        let space = space_of(&self.path);
        if space.is_some_and(|space| space < START_BYTES) && self.release(SpaceUse::RunningWork) {
            let path = self.database.display();
            tracing::warn!(%path, free_bytes = space, "the store's volume is full: using a part of its reserve");
        }
    }

    /// Releases the next part; returns `false` if none is left for this need.
    pub(super) fn release(&mut self, need: SpaceUse) -> bool {
        let (held, part) = (self.held(), self.part());
        let floor = if need == SpaceUse::NewWork { self.bytes.saturating_sub(part) } else { 0 };
        // Without a configured reserve, an existing file is not this store's to release.
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

    /// Allocates the whole reserve, unless it is allocated already. On failure, the allocated part stays. If the
    /// reserve was low, there must also be space for new work: otherwise the next job would find the volume full again.
    pub(super) fn restore(&mut self) -> io::Result<()> {
        let held = self.held();
        if self.bytes == 0 || held == self.bytes {
            self.low = false;
            return Ok(());
        }
        let file = open_sibling(&self.database, &self.path)?;
        match fallocate(&file, FallocateFlags::empty(), 0, self.bytes) {
            // A file system without `fallocate` has no reserve.
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
                // A partial allocation beyond `held` would only fill the volume.
                if file.set_len(held).is_err() || held == 0 {
                    let _ = fs::remove_file(&self.path);
                }
                Err(error.into())
            }
        }
    }
}
