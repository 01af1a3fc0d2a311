//! A database that is being written by a backup or a copy, at a name of its own until it is whole.

use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::file;

/// Files that SQLite makes beside a database.
const SQLITES_OWN: [&str; 3] = ["-journal", "-wal", "-shm"];

/// A new file with the suffix `.partial` until [`Partial::finish`] renames it. Dropping the value removes the file. The
/// file of an interrupted process is overwritten by the next backup or copy.
#[derive(Debug)]
pub(super) struct Partial {
    path: PathBuf,
    /// Locked: of two that write the same file one is refused.
    file: File,
}

impl Partial {
    /// Begins the file that is to be `to`.
    pub(super) fn begin(to: &Path) -> io::Result<Self> {
        let path = file::beside(to, ".partial");
        file::create_file(&path)?;
        let file = File::options().write(true).open(&path)?;
        let busy = || io::Error::new(io::ErrorKind::ResourceBusy, "another backup or copy is writing it");
        file.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => busy(),
            TryLockError::Error(error) => error,
        })?;
        // The one that had the lock may have been done just now, and given the file its name.
        let (ours, found) = (file.metadata()?, fs::metadata(&path)?);
        if (ours.dev(), ours.ino()) != (found.dev(), found.ino()) {
            return Err(busy());
        }
        // What an interrupted one left.
        file.set_len(0)?;
        let partial = Self { path, file };
        partial.remove(&SQLITES_OWN);
        Ok(partial)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Gives the file its name, durably; returns its size in bytes. No connection may be open to it.
    pub(super) fn finish(self, to: &Path) -> io::Result<u64> {
        self.file.sync_all()?;
        let bytes = self.file.metadata()?.len();
        fs::rename(&self.path, to)?;
        File::open(file::folder(to))?.sync_all()?;
        Ok(bytes)
    }

    fn remove(&self, suffixes: &[&str]) {
        for suffix in suffixes {
            // Those that were never there are fine.
            let _ = fs::remove_file(file::beside(&self.path, suffix));
        }
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        self.remove(&[""]);
        self.remove(&SQLITES_OWN);
    }
}
