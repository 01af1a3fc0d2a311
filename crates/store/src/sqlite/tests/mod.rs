//! Tests of the contract, and of the guarantees of this store alone.

mod damage;
mod determinism;
pub(super) mod failing_disk;
mod faults;
mod full_volume;
mod lost_commits;
mod migrating;
mod million_schedules;
mod opening;
mod pages;
mod power_cuts;
mod process;
mod replica;
mod suite;
mod wal_checkpoints;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use model::{Duration, Timestamp};
use tempfile::TempDir;

use super::{Options, SqliteStore};
use crate::suite::Subject;
use crate::{Store, store_suite};

/// Store in its own folder, on a manual clock.
struct OnDisk {
    store: Option<SqliteStore>,
    folder: TempDir,
    now: Arc<AtomicI64>,
}

impl OnDisk {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let now = Arc::new(AtomicI64::new(1_795_000_000_000_000));
        let mut subject = Self { store: None, folder, now };
        subject.open();
        subject
    }

    fn path(&self) -> std::path::PathBuf {
        self.folder.path().join("data/belfry.db")
    }

    fn options(&self) -> Options {
        let now = Arc::clone(&self.now);
        let clock = Arc::new(move || Timestamp::from_micros(now.load(Ordering::Relaxed)));
        Options { ballast_bytes: 0, clock, ..Options::default() }
    }

    fn open(&mut self) {
        self.store = Some(SqliteStore::open(self.path(), self.options()).unwrap());
    }

    fn close(&mut self) {
        self.store = None;
    }
}

impl Subject for OnDisk {
    async fn make() -> Self {
        Self::new()
    }

    fn store(&self) -> &dyn Store {
        self.store.as_ref().unwrap()
    }

    fn advance(&self, by: Duration) {
        self.now.fetch_add(by.as_millis().cast_signed() * 1_000, Ordering::Relaxed);
    }

    async fn reopen(mut self) -> Self {
        self.close();
        self.open();
        self
    }
}
