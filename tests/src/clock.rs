//! A wall clock that a test sets, independent of the machine's clock.

use std::fs;
use std::path::PathBuf;

use tempfile::TempDir;

/// Offset of the wall clock of servers and workers that were started with [`setting`](Self::setting).
#[derive(Debug)]
pub struct MovedClock {
    file: PathBuf,
    _folder: TempDir,
}

impl MovedClock {
    /// Creates a clock without an offset.
    pub fn new() -> Self {
        let folder = tempfile::tempdir().expect("cannot create a temporary folder");
        let clock = Self { file: folder.path().join("clock"), _folder: folder };
        clock.set(0);
        clock
    }

    /// Sets the offset from the machine's clock in seconds; positive is ahead.
    pub fn set(&self, seconds: i64) {
        // The file is replaced atomically, so that a reader never sees a part of it.
        let next = self.file.with_extension("next");
        fs::write(&next, (seconds * 1_000).to_string()).expect("cannot write the clock file");
        fs::rename(&next, &self.file).expect("cannot replace the clock file");
    }

    /// Returns the environment variable that makes a process use this clock. Release builds ignore it.
    pub fn setting(&self) -> (&'static str, &str) {
        ("BELFRY_TEST_CLOCK", self.file.to_str().expect("paths of temporary folders are UTF-8"))
    }
}

impl Default for MovedClock {
    fn default() -> Self {
        Self::new()
    }
}
