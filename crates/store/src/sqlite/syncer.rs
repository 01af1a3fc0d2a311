//! The syncer thread: syncs written transactions, then answers their callers.
//!
//! SQLite would sync the WAL within each `COMMIT`, and the writer thread would wait. Here the writer continues with the
//! next transaction (`synchronous=NORMAL`: a commit is written to the WAL but not synced), and this thread syncs all
//! transactions written since its last fsync. After a power cut, the WAL contains a prefix of its transactions, because
//! the checksum of each frame covers all frames before it.
//!
//! Nothing is visible outside before its fsync: neither an answer nor the result of a query. A query that started while
//! a transaction was being written may have seen it, so it waits until [`Durable`] reaches that transaction.
//!
//! SQLite still does the fsyncs of a checkpoint: the WAL before it, the database after it, and the header of a
//! restarted WAL.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;

use tokio::sync::{oneshot, watch};

use super::error::{Failure, FatalState, Phase};
use super::file;
use super::operation::Answer;
use super::position::{PositionFile, StoredPositions};
use crate::StoreError;

/// Maximum number of transactions that are written but not synced; the writer then waits.
const AHEAD_MAX: usize = 8;

/// Number of transactions that were begun, and that are durable, since the store was opened.
#[derive(Debug, Clone)]
pub(super) struct Durable {
    begun: Arc<AtomicU64>,
    settled: Arc<watch::Sender<u64>>,
}

impl Durable {
    pub(super) fn new() -> Self {
        Self { begun: Arc::default(), settled: Arc::new(watch::Sender::new(0)) }
    }

    /// Marks the start of a commit, from which on queries can see the transaction.
    pub(super) fn begin(&self) {
        self.begun.fetch_add(1, Ordering::SeqCst);
    }

    /// Returns the newest transaction that a query which has already started can see.
    pub(super) fn visible(&self) -> u64 {
        self.begun.load(Ordering::SeqCst)
    }

    /// Waits until all transactions up to this one are durable or have failed for good; only [`FatalState`] distinguishes
    /// the two.
    pub(super) async fn reached(&self, place: u64) {
        if *self.settled.borrow() < place {
            // The sender is in `self`, so it cannot be closed.
            let _ = self.settled.subscribe().wait_for(|settled| *settled >= place).await;
        }
    }

    fn settle(&self, place: u64) {
        self.settled.send_replace(place);
    }

    /// Returns whether this transaction is the only one up to its position that is not settled. An uncommitted
    /// transaction has no position of its own: the transaction at that position may still wait for its fsync.
    fn is_last(&self, written: &Written) -> bool {
        *self.settled.borrow() + u64::from(written.committed) >= written.place
    }
}

/// Answer to the caller of an operation.
pub(super) struct Answered {
    pub(super) to: oneshot::Sender<Result<Answer, StoreError>>,
    pub(super) answer: Result<Answer, StoreError>,
}

/// Transaction that has ended.
pub(super) struct Written {
    /// Newest transaction that is settled together with this one.
    pub(super) place: u64,
    /// Whether it was committed; otherwise there is nothing to sync.
    pub(super) committed: bool,
    /// Whether it is synced before its answers. The transactions of a replica are durable in its log.
    pub(super) must_be_durable: bool,
    /// Position of the store after the transaction.
    pub(super) reached: StoredPositions,
    pub(super) replies: Vec<Answered>,
}

/// Handle of the syncer thread. The thread ends when the handle is dropped.
#[derive(Debug)]
pub(super) struct Syncer {
    written: Option<SyncSender<Written>>,
    thread: Option<JoinHandle<()>>,
    log: Arc<Log>,
}

impl Syncer {
    /// # Errors
    /// If the WAL is missing, or the thread cannot be started.
    pub(super) fn start(
        trust: FatalState,
        durable: Durable,
        mark: Option<PositionFile>,
    ) -> Result<Self, Failure> {
        let unavailable = |error: io::Error| Failure::Store(StoreError::Unavailable { source: error.into() });
        let path = file::wal_path(&trust.path);
        let file = OpenOptions::new().write(true).open(&path).map_err(unavailable)?;
        let log = Arc::new(Log { file, path, trust, durable, mark });
        let (written, ended) = sync_channel::<Written>(AHEAD_MAX);
        let of_thread = Arc::clone(&log);
        let thread = std::thread::Builder::new()
            .name("store-syncer".into())
            .spawn(move || {
                while let Ok(first) = ended.recv() {
                    of_thread
                        .settle(std::iter::once(first).chain(ended.try_iter().take(AHEAD_MAX)).collect());
                }
            })
            .map_err(unavailable)?;
        Ok(Self { written: Some(written), thread: Some(thread), log })
    }

    /// Syncs and answers a transaction: on the calling thread if `here` is set and no other transaction is being
    /// synced, otherwise on the syncer thread.
    pub(super) fn settle(&self, written: Written, here: bool) {
        if here && self.log.durable.is_last(&written) {
            return self.log.settle(vec![written]);
        }
        let Some(thread) = &self.written else { return };
        if let Err(unsent) = thread.send(written) {
            self.log.settle(vec![unsent.0]);
        }
    }
}

impl Drop for Syncer {
    fn drop(&mut self) {
        self.written = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The open file of the WAL.
#[derive(Debug)]
struct Log {
    file: File,
    path: PathBuf,
    trust: FatalState,
    durable: Durable,
    mark: Option<PositionFile>,
}

impl Log {
    /// Syncs all these transactions with one fsync, then sends their answers.
    fn settle(&self, written: Vec<Written>) {
        let Some(&Written { place, reached, .. }) = written.last() else { return };
        if written.iter().any(|transaction| transaction.committed && transaction.must_be_durable) {
            match self.sync() {
                Ok(()) => {
                    if let Some(mark) = &self.mark {
                        mark.advance(reached);
                    }
                }
                Err(error) => {
                    let what = format!("cannot sync its WAL `{}`: {error}", self.path.display());
                    self.trust.judge(Failure::Broken(what), Phase::Commit);
                }
            }
        }
        self.durable.settle(place);
        for Answered { to, answer } in written.into_iter().flat_map(|transaction| transaction.replies) {
            // The caller may no longer wait; the operation is done anyway.
            let _ = to.send(self.trust.check().and(answer));
        }
    }

    fn sync(&self) -> io::Result<()> {
        file::sync(&self.file, &self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sqlite::tests::failing_disk::Disk;

    /// I6. It is answered at once or in its turn, and says nothing about transactions that are still being synced.
    #[test]
    fn a_transaction_that_failed_settles_none_before_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.db");
        std::fs::write(file::wal_path(&path), []).unwrap();
        let (disk, durable) = (Disk::below(folder.path()), Durable::new());
        let (mark, reached) =
            (PositionFile::keep(&path, StoredPositions::default()), StoredPositions::default());
        let syncer = Syncer::start(FatalState::new(&path), durable.clone(), Some(mark)).unwrap();
        disk.hold_syncs(true);
        durable.begin();
        syncer.settle(
            Written { place: 1, committed: true, must_be_durable: true, reached, replies: Vec::new() },
            false,
        );
        let (to, answer) = oneshot::channel();
        let failed = Answered { to, answer: Err(StoreError::Full) };
        syncer.settle(
            Written { place: 1, committed: false, must_be_durable: true, reached, replies: vec![failed] },
            true,
        );
        let settled = *durable.settled.borrow();
        disk.hold_syncs(false);
        assert_eq!(settled, 0, "the first one is still being synced");
        assert!(matches!(answer.blocking_recv().unwrap(), Err(StoreError::Full)));
        assert_eq!(*durable.settled.borrow(), 1);
    }
}
