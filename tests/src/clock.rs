//! A wall clock that a test moves, without touching the machine's.

use std::fs;
use std::path::PathBuf;

use tempfile::TempDir;

/// A server or worker started with [`setting`](Self::setting) reads its wall clock through this.
#[derive(Debug)]
pub struct MovedClock {
    file: PathBuf,
    _folder: TempDir,
}

impl MovedClock {
    /// One that agrees with the machine's.
    pub fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let clock = Self { file: folder.path().join("clock"), _folder: folder };
        clock.set(0);
        clock
    }

    /// So many seconds ahead of the machine's; behind it, if negative.
    pub fn set(&self, seconds: i64) {
        // Replaced at once: a reader never sees half of it.
        let next = self.file.with_extension("next");
        fs::write(&next, (seconds * 1_000).to_string()).expect("the clock can be written");
        fs::rename(&next, &self.file).expect("the clock can be replaced");
    }

    /// The environment variable that makes a process go by it. Release builds know nothing of it.
    pub fn setting(&self) -> (&'static str, &str) {
        ("BELFRY_TEST_CLOCK", self.file.to_str().expect("temporary folders have plain names"))
    }
}

impl Default for MovedClock {
    fn default() -> Self {
        Self::new()
    }
}
