//! WAL checkpoints: moving the pages of the WAL into the database.
//!
//! If commits waited for the checkpoint of [`CHECKPOINT_PAGES`], they would be by far the slowest. So a helper thread with
//! its own connection checkpoints most of the WAL while commits continue, and then repeats this for the pages added
//! since, until few are left. The writer thread checkpoints the rest, because SQLite restarts a WAL only after all of
//! it is checkpointed.
//!
//! SQLite's automatic checkpoints are off: they ignore errors, and a failed fsync must not be ignored.
//!
//! # Size of the WAL
//! A reader prevents the checkpoint of pages that were written after the reader started. A backup, a check and a load
//! read for minutes, so no commit waits for them: the WAL grows meanwhile. After the reader has ended, the helper
//! thread checkpoints the WAL, the WAL restarts, and its file is truncated to [`LOG_BYTES_MAX`]. If the volume is
//! nearly full, the store returns `Full` for new work before the WAL has used the reserve.
//! Overlapping short readers could prevent the restart for ever. So once in [`CHECKPOINT_PAGES`] pages, a commit waits
//! [`READERS_WAIT`] for them.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use model::error_chain::Chain;
use rusqlite::{Connection, ErrorCode, wal::CheckpointMode};

use super::error::{Failure, FatalState, Phase};
use super::file;
use crate::StoreError;

/// Pages of the WAL after which it is checkpointed. Measured: 16,000 instead of SQLite's 1,000 reduced the 99th
/// percentile of commits of 100 rows from 6 to 1.6 ms. Low in tests, so that many of them checkpoint.
const CHECKPOINT_PAGES: i32 = if cfg!(test) { 100 } else { 16_000 };
/// The same limit for a nearly full volume: pages that are only in the WAL will also need space in the database, and
/// the store's reserve must be sufficient for that.
const SCARCE_PAGES: i32 = if cfg!(test) { 50 } else { 1_000 };
/// Free space below which the volume counts as nearly full.
const SCARCE_BYTES: u64 = 2 * 4_096 * CHECKPOINT_PAGES as u64;
/// Number of pages added to the WAL between two checks of the free space.
const SPACE_CHECK_PAGES: i32 = SCARCE_PAGES / 4;
/// Maximum number of pages that the writer thread checkpoints, as long as the helper thread keeps up.
const REST_PAGES: i32 = CHECKPOINT_PAGES / 32;
/// Pages of the WAL above which the helper thread is not started again: it would not catch up.
const HELPER_LIMIT_PAGES: i32 = 3 * CHECKPOINT_PAGES;
/// Pages of a checkpointed WAL that readers keep from restarting, above which a commit waits for these readers.
const RESTART_PAGES: i32 = 8 * CHECKPOINT_PAGES;
/// Time that a commit then waits for readers. Lookups end within this time; longer readers are not waited for.
pub(super) const READERS_WAIT: Duration = Duration::from_millis(50);
/// Size to which the file of a restarted WAL is truncated. A longer WAL is rare. A shorter file is overwritten, which
/// syncs faster than a growing file.
pub(super) const LOG_BYTES_MAX: i64 = RESTART_PAGES as i64 * (4_096 + 24);

/// Checkpoints the WAL of the writing connection.
#[derive(Debug)]
pub(super) struct WalCheckpointer {
    trust: FatalState,
    /// Pages of the WAL, including the newest commit.
    pages: Arc<AtomicI32>,
    /// Pages of the WAL at the last call of [`wal_restarted`](Self::wal_restarted).
    pages_before: i32,
    helper: Option<CheckpointThread>,
    stage: Stage,
    progress: Progress,
    /// Pages of the WAL from which a commit waits for readers.
    wait_at: i32,
    /// Pages of the WAL at the last check of the free space, and whether the volume was nearly full.
    space: (i32, bool),
}

/// State of the current WAL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The WAL is short and may grow.
    Grows,
    /// The helper thread checkpoints the pages that were there at its start.
    WithHelper,
    /// Each commit checkpoints the pages added since, until the WAL restarts.
    Rest,
}

/// Result of a checkpoint, in pages of the WAL.
#[derive(Debug, Clone, Copy)]
struct CheckpointResult {
    pages: i32,
    checkpointed: i32,
}

/// Progress of the checkpoint of the current WAL.
#[derive(Debug, Clone, Copy, Default)]
struct Progress {
    /// Number of checkpointed pages.
    checkpointed: i32,
    /// Pages of the WAL when a checkpoint made no progress because of a reader.
    blocked_at: i32,
}

/// Whether the next checkpoint runs now, and on which thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NextCheckpoint {
    OnHelper,
    OnWriter,
    /// A reader blocked the last checkpoint; the next one waits for more pages of the WAL.
    Deferred,
}

impl Progress {
    fn note(&mut self, result: Option<CheckpointResult>) {
        let Some(CheckpointResult { pages, checkpointed }) = result else { return };
        // With short readers, each checkpoint makes some progress.
        if checkpointed < pages && checkpointed == self.checkpointed {
            self.blocked_at = pages;
        }
        self.checkpointed = checkpointed;
    }

    fn next(self, pages: i32) -> NextCheckpoint {
        let since_blocked = pages - self.blocked_at;
        if pages - self.checkpointed <= REST_PAGES || since_blocked >= HELPER_LIMIT_PAGES {
            NextCheckpoint::OnWriter
        } else if since_blocked <= REST_PAGES {
            NextCheckpoint::Deferred
        } else {
            NextCheckpoint::OnHelper
        }
    }
}

/// Thread that checkpoints most of the WAL.
#[derive(Debug)]
struct CheckpointThread {
    orders: SyncSender<()>,
    done: Receiver<Option<CheckpointResult>>,
    thread: JoinHandle<()>,
}

impl WalCheckpointer {
    /// Creates the checkpointer of the WAL that `connection` writes, and starts its helper thread.
    pub(super) fn new(connection: &mut Connection, trust: FatalState) -> Result<Self, Failure> {
        let pages = Arc::new(AtomicI32::new(0));
        let counted = Arc::clone(&pages);
        let hook = move |_: &mut rusqlite::hooks::Wal, pages| {
            counted.store(pages, Ordering::Relaxed);
            Ok(())
        };
        connection.wal_hook(Some(hook))?;
        let helper = CheckpointThread::start(trust.clone())?;
        Ok(Self {
            trust,
            pages,
            pages_before: 0,
            helper: Some(helper),
            stage: Stage::Grows,
            progress: Progress::default(),
            wait_at: RESTART_PAGES,
            space: (0, false),
        })
    }

    /// Returns whether the newest commit is the first in a restarted WAL: all earlier ones are in the database, and
    /// synced. Called after each commit. Misses a restart if the first commit is longer than the whole previous WAL.
    pub(super) fn wal_restarted(&mut self) -> bool {
        let pages = self.pages.load(Ordering::Relaxed);
        std::mem::replace(&mut self.pages_before, pages) > pages
    }

    /// Checkpoints the WAL if it has grown enough. Called between commits.
    pub(super) fn after_commit(&mut self, connection: &Connection) {
        let pages = self.pages.load(Ordering::Relaxed);
        let scarce = pages >= SCARCE_PAGES && self.is_space_low(pages);
        if scarce {
            // Not on the helper thread: the WAL would grow meanwhile.
            self.stage = Stage::Rest;
            return self.checkpoint_here(connection);
        }
        if pages < CHECKPOINT_PAGES {
            (self.stage, self.progress, self.wait_at) = (Stage::Grows, Progress::default(), RESTART_PAGES);
            return;
        }
        if self.stage == Stage::WithHelper {
            let Some(result) = self.helper.as_ref().and_then(CheckpointThread::outcome) else { return };
            self.progress.note(result);
        }
        self.stage = Stage::Rest;
        match self.progress.next(pages) {
            NextCheckpoint::Deferred => {}
            NextCheckpoint::OnHelper if self.helper.as_ref().is_some_and(CheckpointThread::begin) => {
                self.stage = Stage::WithHelper
            }
            NextCheckpoint::OnWriter if pages >= self.wait_at => {
                self.wait_at = pages + CHECKPOINT_PAGES;
                self.restart(connection);
            }
            NextCheckpoint::OnHelper | NextCheckpoint::OnWriter => self.checkpoint_here(connection),
        }
    }

    fn is_space_low(&mut self, pages: i32) -> bool {
        let (looked_at, _) = self.space;
        if !(looked_at..looked_at + SPACE_CHECK_PAGES).contains(&pages) {
            self.space = (pages, file::space_of(&self.trust.path).is_some_and(|space| space < SCARCE_BYTES));
        }
        self.space.1
    }

    /// Checkpoints as much as possible on this thread, so that the WAL can restart.
    pub(super) fn checkpoint_all(&mut self, connection: &Connection) {
        if self.stage == Stage::WithHelper {
            // SQLite does not wait for a checkpoint of another connection.
            self.helper.iter().for_each(CheckpointThread::wait);
        }
        self.stage = Stage::Rest;
        self.restart(connection);
    }

    fn checkpoint_here(&mut self, connection: &Connection) {
        self.progress.note(checkpoint_wal(connection, &self.trust, CheckpointMode::PASSIVE));
    }

    /// Checkpoints on this thread and restarts the WAL, unless readers take longer than [`READERS_WAIT`].
    fn restart(&mut self, connection: &Connection) {
        let restart = || checkpoint_wal(connection, &self.trust, CheckpointMode::RESTART);
        self.progress.note(file::with_busy_timeout(connection, READERS_WAIT, restart));
    }
}

impl Drop for WalCheckpointer {
    fn drop(&mut self) {
        let Some(CheckpointThread { orders, thread, .. }) = self.helper.take() else { return };
        drop(orders);
        // The helper's connection closes before the writing one, which then checkpoints the rest.
        let _ = thread.join();
    }
}

impl CheckpointThread {
    fn start(trust: FatalState) -> Result<Self, Failure> {
        let connection = file::open_checkpointer(&trust.path)?;
        let (orders, ordered) = sync_channel(1);
        let (finished, done) = sync_channel(1);
        let thread = std::thread::Builder::new()
            .name("store-wal".into())
            .spawn(move || {
                while ordered.recv().is_ok() {
                    let result = checkpoint_wal(&connection, &trust, CheckpointMode::PASSIVE);
                    if finished.send(result).is_err() {
                        return;
                    }
                }
            })
            .map_err(|error| Failure::Store(StoreError::Unavailable { source: error.into() }))?;
        Ok(Self { orders, done, thread })
    }

    /// Starts a checkpoint on the helper thread; `false` if the thread has ended.
    fn begin(&self) -> bool {
        // Discard a result that belongs to an earlier WAL.
        while self.done.try_recv().is_ok() {}
        self.orders.try_send(()).is_ok()
    }

    /// Returns the result of the checkpoint; `None` while it runs.
    fn outcome(&self) -> Option<Option<CheckpointResult>> {
        match self.done.try_recv() {
            Ok(result) => Some(result),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(None),
        }
    }

    fn wait(&self) {
        // An error means that the thread has ended; then there is nothing to wait for.
        let _ = self.done.recv();
    }
}

/// Runs a checkpoint; returns `None` if its result is unknown.
fn checkpoint_wal(
    connection: &Connection,
    trust: &FatalState,
    mode: CheckpointMode,
) -> Option<CheckpointResult> {
    trust.check().ok()?;
    match connection.wal_checkpoint_v2(Some(rusqlite::MAIN_DB), mode) {
        Ok((pages, checkpointed)) => Some(CheckpointResult { pages, checkpointed }),
        // The other thread runs a checkpoint, or a reader blocks it.
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) => None,
        Err(error) => {
            let error = trust.judge(error.into(), Phase::Change);
            // The WAL stays as it is; a later checkpoint continues from there.
            tracing::warn!(error = %Chain(&error), "WAL checkpoint failed; retrying later");
            None
        }
    }
}
