//! When the log is moved into the database (a *checkpoint*), and by whom.
//!
//! Commits that wait until a log of [`MOVE_PAGES`] is moved are the slowest of all. So a thread with a
//! connection of its own moves most of it while they go on, and then what was added meanwhile, until that is
//! little. The writing thread moves the rest, for only a log of which everything was moved is begun anew.
//!
//! SQLite's own automatic checkpoints swallow their errors; a failed sync must not be.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread::JoinHandle;

use rusqlite::{Connection, ErrorCode, wal::CheckpointMode};

use super::error::{Failure, Phase, Trust};
use super::file;
use crate::StoreError;

/// Pages of the log after which it is moved. Measured: 16,000 instead of SQLite's 1,000 cut the 99th
/// percentile of commits of 100 rows from 6 to 1.6 ms. Few in tests, so that it happens in many of them.
const MOVE_PAGES: i32 = if cfg!(test) { 100 } else { 16_000 };
/// What is left to the writing thread, at most, as long as the other one keeps up.
const REST_PAGES: i32 = MOVE_PAGES / 32;
/// A log that has grown this long is not left to the other thread once more: it would not catch up.
const BEHIND_PAGES: i32 = 3 * MOVE_PAGES;
/// When readers keep the log from beginning anew for so long, they are waited for.
const RESTART_PAGES: i32 = 8 * MOVE_PAGES;

/// Moves the log of a connection that writes.
#[derive(Debug)]
pub(super) struct LogMover {
    trust: Trust,
    /// As many the log has, the newest commit included.
    pages: Arc<AtomicI32>,
    helper: Option<Helper>,
    stage: Stage,
}

/// How far the log that is there now has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// It may grow.
    Grows,
    /// The other thread moves what there was of it: so many pages.
    WithHelper(i32),
    /// What was added since is moved with each commit, until the log begins anew.
    Rest,
}

/// The thread that moves most of it.
#[derive(Debug)]
struct Helper {
    orders: SyncSender<()>,
    done: Receiver<()>,
    thread: JoinHandle<()>,
}

impl LogMover {
    /// For what `connection` will write.
    pub(super) fn new(connection: &mut Connection, trust: Trust) -> Result<Self, Failure> {
        let pages = Arc::new(AtomicI32::new(0));
        let counted = Arc::clone(&pages);
        let hook = move |_: &mut rusqlite::hooks::Wal, pages| {
            counted.store(pages, Ordering::Relaxed);
            Ok(())
        };
        connection.wal_hook(Some(hook))?;
        let helper = Helper::start(trust.clone())?;
        Ok(Self { trust, pages, helper: Some(helper), stage: Stage::Grows })
    }

    /// Moves the log if it has grown enough. To be called between commits.
    pub(super) fn after_commit(&mut self, connection: &Connection) {
        let pages = self.pages.load(Ordering::Relaxed);
        if pages < MOVE_PAGES {
            self.stage = Stage::Grows;
            return;
        }
        if pages >= RESTART_PAGES {
            return self.move_now(connection, CheckpointMode::RESTART);
        }
        let moved = match self.stage {
            Stage::Grows => 0,
            Stage::WithHelper(_) if self.helper.as_ref().is_some_and(Helper::is_at_work) => return,
            Stage::WithHelper(moved) => moved,
            Stage::Rest => pages,
        };
        let is_much = pages - moved > REST_PAGES && pages < BEHIND_PAGES;
        if is_much && self.helper.as_ref().is_some_and(Helper::begin) {
            self.stage = Stage::WithHelper(pages);
        } else {
            self.stage = Stage::Rest;
            self.move_now(connection, CheckpointMode::PASSIVE);
        }
    }

    /// Moves what can be moved, here and now.
    pub(super) fn move_now(&self, connection: &Connection, mode: CheckpointMode) {
        move_log(connection, &self.trust, mode);
    }
}

impl Drop for LogMover {
    fn drop(&mut self) {
        let Some(Helper { orders, thread, .. }) = self.helper.take() else { return };
        drop(orders);
        // Its connection is closed before the one that writes, which then moves what is left.
        let _ = thread.join();
    }
}

impl Helper {
    fn start(trust: Trust) -> Result<Self, Failure> {
        let connection = file::open_mover(&trust.path)?;
        let (orders, ordered) = sync_channel(1);
        let (finished, done) = sync_channel(1);
        let thread = std::thread::Builder::new()
            .name("store-mover".into())
            .spawn(move || {
                while ordered.recv().is_ok() {
                    move_log(&connection, &trust, CheckpointMode::PASSIVE);
                    if finished.send(()).is_err() {
                        return;
                    }
                }
            })
            .map_err(|error| Failure::Store(StoreError::Unavailable { source: error.into() }))?;
        Ok(Self { orders, done, thread })
    }

    /// False if the thread is gone.
    fn begin(&self) -> bool {
        // Of a log that began anew before anybody asked.
        while self.done.try_recv().is_ok() {}
        self.orders.try_send(()).is_ok()
    }

    fn is_at_work(&self) -> bool {
        matches!(self.done.try_recv(), Err(TryRecvError::Empty))
    }
}

fn move_log(connection: &Connection, trust: &Trust, mode: CheckpointMode) {
    if trust.check().is_err() {
        return;
    }
    match connection.wal_checkpoint_v2(Some(rusqlite::MAIN_DB), mode) {
        Ok(_) => {}
        // The other thread is at it.
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) => {}
        Err(error) => {
            let error = trust.judge(error.into(), Phase::Change);
            // The log stays as it is, and a later one goes on from there.
            tracing::warn!(%error, "the store's log could not be moved into its database");
        }
    }
}
