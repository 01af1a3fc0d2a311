//! Orders to die at a named point; see [`crashpoint`].

use std::fs;
use std::path::PathBuf;

use crashpoint::Point;
use tempfile::TempDir;

/// Where one process at a time is told to die. Servers and workers that were started with
/// [`setting`](Self::setting) obey.
#[derive(Debug)]
pub struct CrashOrders {
    file: PathBuf,
    folder: TempDir,
    given: u32,
}

impl CrashOrders {
    /// Nobody is to die yet.
    pub fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        Self { file: folder.path().join("crash"), folder, given: 0 }
    }

    /// Whoever reaches the point for the `nth` time from now on (from 1) is to die there.
    ///
    /// # Panics
    /// If the last order is not carried out yet.
    pub fn give(&mut self, point: Point, nth: u32) {
        assert!(self.is_carried_out(), "one order at a time");
        self.given += 1;
        // Replaced at once: a reader never sees half of it.
        let next = self.folder.path().join("next");
        fs::write(&next, crashpoint::order(point, nth, self.given)).expect("an order can be written");
        fs::rename(&next, &self.file).expect("an order can be given");
    }

    /// Whether a process has died of the last order.
    pub fn is_carried_out(&self) -> bool {
        !self.file.exists()
    }

    /// The environment variable that makes a process obey. Release builds know nothing of it.
    pub fn setting(&self) -> (&'static str, &str) {
        (crashpoint::VARIABLE, self.file.to_str().expect("temporary folders have plain names"))
    }
}

impl Default for CrashOrders {
    fn default() -> Self {
        Self::new()
    }
}
