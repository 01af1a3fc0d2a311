//! A database that a backup or a copy writes under a temporary name until it is complete.

use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::file;

/// Suffixes of the files that SQLite creates next to a database.
const SQLITES_OWN: [&str; 3] = ["-journal", "-wal", "-shm"];

/// A new file with the suffix `.partial` until [`Partial::finish`] renames it. Dropping the value removes the file. The
/// file of an interrupted process is overwritten by the next backup or copy.
#[derive(Debug)]
pub(super) struct Partial {
    path: PathBuf,
    /// Locked, so that of two processes that write the same file one is refused.
    file: File,
}

impl Partial {
    /// Creates the partial file of `to`.
    pub(super) fn begin(to: &Path) -> io::Result<Self> {
        let path = file::sibling_path(to, ".partial");
        file::create_file(&path)?;
        let file = File::options().write(true).open(&path)?;
        let busy = || io::Error::new(io::ErrorKind::ResourceBusy, "another backup or copy is writing it");
        file.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => busy(),
            TryLockError::Error(error) => error,
        })?;
        // The previous holder of the lock may just have finished and renamed the file.
        let (ours, found) = (file.metadata()?, fs::metadata(&path)?);
        if (ours.dev(), ours.ino()) != (found.dev(), found.ino()) {
            return Err(busy());
        }
        // Remove the content of an interrupted process.
        file.set_len(0)?;
        let partial = Self { path, file };
        partial.remove(&SQLITES_OWN);
        Ok(partial)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Renames the file to `to`, durably; returns its size in bytes. No connection may be open to it.
    pub(super) fn finish(self, to: &Path) -> io::Result<u64> {
        self.file.sync_all()?;
        let bytes = self.file.metadata()?.len();
        fs::rename(&self.path, to)?;
        File::open(file::folder(to))?.sync_all()?;
        Ok(bytes)
    }

    fn remove(&self, suffixes: &[&str]) {
        for suffix in suffixes {
            // A missing file is no error.
            let _ = fs::remove_file(file::sibling_path(&self.path, suffix));
        }
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        self.remove(&[""]);
        self.remove(&SQLITES_OWN);
    }
}
