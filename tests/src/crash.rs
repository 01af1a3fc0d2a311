//! Orders to crash at a named point; see [`crashpoint`].

use std::fs;
use std::path::PathBuf;

use crashpoint::Point;
use tempfile::TempDir;

/// Orders one process at a time to crash. Servers and workers that were started with [`setting`](Self::setting) obey.
#[derive(Debug)]
pub struct CrashOrders {
    file: PathBuf,
    folder: TempDir,
    given: u32,
}

impl CrashOrders {
    /// Creates an instance without an order.
    pub fn new() -> Self {
        let folder = tempfile::tempdir().expect("cannot create a temporary folder");
        Self { file: folder.path().join("crash"), folder, given: 0 }
    }

    /// Orders the process that reaches the point for the `nth` time from now on (from 1) to crash there.
    ///
    /// # Panics
    /// If the previous order is not executed yet.
    pub fn give(&mut self, point: Point, nth: u32) {
        assert!(self.is_carried_out(), "the previous order is not executed yet");
        self.given += 1;
        // The file is replaced atomically, so that a reader never sees a part of it.
        let next = self.folder.path().join("next");
        fs::write(&next, crashpoint::order(point, nth, self.given)).expect("cannot write the order");
        fs::rename(&next, &self.file).expect("cannot publish the order");
    }

    /// Whether a process has crashed because of the last order.
    pub fn is_carried_out(&self) -> bool {
        !self.file.exists()
    }

    /// Returns the environment variable that makes a process obey. Release builds ignore it.
    pub fn setting(&self) -> (&'static str, &str) {
        (crashpoint::VARIABLE, self.file.to_str().expect("paths of temporary folders are UTF-8"))
    }
}

impl Default for CrashOrders {
    fn default() -> Self {
        Self::new()
    }
}
