//! When the log is moved into the database (a *checkpoint*), and by whom.
//!
//! Commits that wait until a log of [`MOVE_PAGES`] is moved are the slowest of all. So a thread with a
//! connection of its own moves most of it while they go on, and then what was added meanwhile, until that is
//! little. The writing thread moves the rest, for only a log of which everything was moved is begun anew.
//!
//! SQLite's own automatic checkpoints swallow their errors; a failed sync must not be.
//!
//! # How long the log gets
//! A reader keeps the log from being moved beyond the place at which it began. A backup, a check and a load read for
//! minutes, so no commit waits for them: the log grows by what is written meanwhile. Once the reader has ended, the
//! thread moves the log, the log begins anew, and its file is cut to [`LOG_BYTES_MAX`]. On a volume with little
//! space the store says `Full` for new work before the log has taken the reserve. Short readers that follow each
//! other could hold up the log for ever. A commit waits [`READERS_WAIT`] for those, once in [`MOVE_PAGES`] pages.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, wal::CheckpointMode};

use super::error::{Failure, Phase, Trust};
use super::file;
use crate::StoreError;

/// Pages of the log after which it is moved. Measured: 16,000 instead of SQLite's 1,000 cut the 99th
/// percentile of commits of 100 rows from 6 to 1.6 ms. Few in tests, so that it happens in many of them.
const MOVE_PAGES: i32 = if cfg!(test) { 100 } else { 16_000 };
/// The same where the volume has little space: what is in the log and not yet in the database is room that the
/// database still needs, and the store's reserve must be enough for it.
const SCARCE_PAGES: i32 = if cfg!(test) { 50 } else { 1_000 };
/// Space on the volume that is little.
const SCARCE_BYTES: u64 = 2 * 4_096 * MOVE_PAGES as u64;
/// How often the space is looked at, in pages that were added to the log.
const LOOK_PAGES: i32 = SCARCE_PAGES / 4;
/// What is left to the writing thread, at most, as long as the other one keeps up.
const REST_PAGES: i32 = MOVE_PAGES / 32;
/// A log that has grown this long is not left to the other thread once more: it would not catch up.
const BEHIND_PAGES: i32 = 3 * MOVE_PAGES;
/// Readers are waited for when they keep a log that was moved from beginning anew for so long.
const RESTART_PAGES: i32 = 8 * MOVE_PAGES;
/// How long a commit waits for readers then. Lookups are over by then; those that are not are left alone.
pub(super) const READERS_WAIT: Duration = Duration::from_millis(50);
/// To what the file of a log that begins anew is cut. Longer ones are rare, and shorter ones are written over, which
/// is quicker to sync than a file that grows.
pub(super) const LOG_BYTES_MAX: i64 = RESTART_PAGES as i64 * (4_096 + 24);

/// Moves the log of a connection that writes.
#[derive(Debug)]
pub(super) struct LogMover {
    trust: Trust,
    /// As many the log has, the newest commit included.
    pages: Arc<AtomicI32>,
    /// As many it had when [`log_began_anew`](Self::log_began_anew) was asked last.
    seen: i32,
    helper: Option<Helper>,
    stage: Stage,
    progress: Progress,
    /// How long the log must be for readers to be waited for.
    wait_at: i32,
    /// The pages of the log when the space was looked at last, and whether that was little.
    space: (i32, bool),
}

/// How far the log that is there now has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// It may grow.
    Grows,
    /// The other thread moves what there was of it.
    WithHelper,
    /// What was added since is moved with each commit, until the log begins anew.
    Rest,
}

/// What came of a move, in pages of the log.
#[derive(Debug, Clone, Copy)]
struct Moved {
    of: i32,
    moved: i32,
}

/// How much of the log is in the database.
#[derive(Debug, Clone, Copy, Default)]
struct Progress {
    /// Pages that are there.
    moved: i32,
    /// The length of the log when nothing could be moved, because a reader holds it up.
    held_at: i32,
}

/// Who moves the log now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    Helper,
    Writer,
    /// A reader held it up a moment ago.
    Nobody,
}

impl Progress {
    fn note(&mut self, moved: Option<Moved>) {
        let Some(Moved { of, moved }) = moved else { return };
        // Short readers let it come a little further each time.
        if moved < of && moved == self.moved {
            self.held_at = of;
        }
        self.moved = moved;
    }

    fn next(self, pages: i32) -> Next {
        let since_held = pages - self.held_at;
        if pages - self.moved <= REST_PAGES || since_held >= BEHIND_PAGES {
            Next::Writer
        } else if since_held <= REST_PAGES {
            Next::Nobody
        } else {
            Next::Helper
        }
    }
}

/// The thread that moves most of it.
#[derive(Debug)]
struct Helper {
    orders: SyncSender<()>,
    done: Receiver<Option<Moved>>,
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
        Ok(Self {
            trust,
            pages,
            seen: 0,
            helper: Some(helper),
            stage: Stage::Grows,
            progress: Progress::default(),
            wait_at: RESTART_PAGES,
            space: (0, false),
        })
    }

    /// Whether the newest commit is the first of a log that began anew: all before it is in the database, and synced.
    /// To be asked after each commit. A first commit that is longer than the whole log before is not told.
    pub(super) fn log_began_anew(&mut self) -> bool {
        let pages = self.pages.load(Ordering::Relaxed);
        std::mem::replace(&mut self.seen, pages) > pages
    }

    /// Moves the log if it has grown enough. To be called between commits.
    pub(super) fn after_commit(&mut self, connection: &Connection) {
        let pages = self.pages.load(Ordering::Relaxed);
        let scarce = pages >= SCARCE_PAGES && self.space_is_scarce(pages);
        if scarce {
            // Not on the other thread: the log would grow meanwhile.
            self.stage = Stage::Rest;
            return self.move_here(connection);
        }
        if pages < MOVE_PAGES {
            (self.stage, self.progress, self.wait_at) = (Stage::Grows, Progress::default(), RESTART_PAGES);
            return;
        }
        if self.stage == Stage::WithHelper {
            let Some(moved) = self.helper.as_ref().and_then(Helper::outcome) else { return };
            self.progress.note(moved);
        }
        self.stage = Stage::Rest;
        match self.progress.next(pages) {
            Next::Nobody => {}
            Next::Helper if self.helper.as_ref().is_some_and(Helper::begin) => self.stage = Stage::WithHelper,
            Next::Writer if pages >= self.wait_at => {
                self.wait_at = pages + MOVE_PAGES;
                self.restart(connection);
            }
            Next::Helper | Next::Writer => self.move_here(connection),
        }
    }

    fn space_is_scarce(&mut self, pages: i32) -> bool {
        let (looked_at, _) = self.space;
        if !(looked_at..looked_at + LOOK_PAGES).contains(&pages) {
            self.space = (pages, file::space_of(&self.trust.path).is_some_and(|space| space < SCARCE_BYTES));
        }
        self.space.1
    }

    /// Moves all that can be moved, here and now, so that the log may begin anew.
    pub(super) fn move_all(&mut self, connection: &Connection) {
        if self.stage == Stage::WithHelper {
            // SQLite itself does not wait for another one that moves the log.
            self.helper.iter().for_each(Helper::wait);
        }
        self.stage = Stage::Rest;
        self.restart(connection);
    }

    fn move_here(&mut self, connection: &Connection) {
        self.progress.note(move_log(connection, &self.trust, CheckpointMode::PASSIVE));
    }

    /// The same, and the log is begun anew unless there are readers for longer than that.
    fn restart(&mut self, connection: &Connection) {
        let restart = || move_log(connection, &self.trust, CheckpointMode::RESTART);
        self.progress.note(file::with_busy_timeout(connection, READERS_WAIT, restart));
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
                    let moved = move_log(&connection, &trust, CheckpointMode::PASSIVE);
                    if finished.send(moved).is_err() {
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

    /// `None` as long as it is at work.
    fn outcome(&self) -> Option<Option<Moved>> {
        match self.done.try_recv() {
            Ok(moved) => Some(moved),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(None),
        }
    }

    fn wait(&self) {
        // An error would mean that the thread is gone, and then nothing is to be waited for.
        let _ = self.done.recv();
    }
}

/// `None` where that is not known.
fn move_log(connection: &Connection, trust: &Trust, mode: CheckpointMode) -> Option<Moved> {
    trust.check().ok()?;
    match connection.wal_checkpoint_v2(Some(rusqlite::MAIN_DB), mode) {
        Ok((of, moved)) => Some(Moved { of, moved }),
        // The other thread is at it, or there are readers.
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) => None,
        Err(error) => {
            let error = trust.judge(error.into(), Phase::Change);
            // The log stays as it is, and a later one goes on from there.
            tracing::warn!(%error, "cannot move the store's log into its database");
            None
        }
    }
}
