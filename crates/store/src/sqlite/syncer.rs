//! The thread that makes durable what was written, and then answers.
//!
//! SQLite itself would sync the log within each `COMMIT`, and the one thread that writes would stand still
//! meanwhile. Here it goes on with the next transaction (`synchronous=NORMAL`: a commit is written to the log and
//! not synced), and this one syncs the log for all that were written since. What a power cut leaves of the log is
//! a prefix of its transactions, for each of its frames carries a checksum over all before it.
//!
//! Nothing gets out before its sync: neither an answer, nor what a query has seen. A query that began while
//! a transaction was being written may have seen it, and waits for the [`Durable`] place of that one.
//!
//! SQLite goes on to sync where it moves the log: the log before, the database after, and the head of a log
//! that begins anew.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;

use tokio::sync::{oneshot, watch};

use super::error::{Failure, Phase, Trust};
use super::file;
use super::operation::Answer;
use super::position::{Kept, Mark};
use crate::StoreError;

/// Transactions that may be written and not synced; the writer waits then.
const AHEAD_MAX: usize = 8;

/// How far the log is written and how far it is durable, in transactions since the store was opened.
#[derive(Debug, Clone)]
pub(super) struct Durable {
    begun: Arc<AtomicU64>,
    settled: Arc<watch::Sender<u64>>,
}

impl Durable {
    pub(super) fn new() -> Self {
        Self { begun: Arc::default(), settled: Arc::new(watch::Sender::new(0)) }
    }

    /// A transaction is about to be committed, and with that visible.
    pub(super) fn begin(&self) {
        self.begun.fetch_add(1, Ordering::SeqCst);
    }

    /// The newest transaction that a query which has begun can see.
    pub(super) fn visible(&self) -> u64 {
        self.begun.load(Ordering::SeqCst)
    }

    /// Waits until all up to this one are durable, or are known never to be; only
    /// [`Trust`] tells the two apart.
    pub(super) async fn reached(&self, place: u64) {
        if *self.settled.borrow() < place {
            // An error would mean that the sender is gone, and that is here.
            let _ = self.settled.subscribe().wait_for(|settled| *settled >= place).await;
        }
    }

    fn settle(&self, place: u64) {
        self.settled.send_replace(place);
    }

    /// Whether nothing but this one is left to be settled up to its place. One that was not committed has no
    /// place of its own: what is there may still wait for its sync.
    fn is_last(&self, written: &Written) -> bool {
        *self.settled.borrow() + u64::from(written.committed) >= written.place
    }
}

/// An answer to who asked for something.
pub(super) struct Reply {
    pub(super) to: oneshot::Sender<Result<Answer, StoreError>>,
    pub(super) answer: Result<Answer, StoreError>,
}

/// A transaction that has ended.
pub(super) struct Written {
    /// The newest transaction up to which all are settled with this one.
    pub(super) place: u64,
    /// Whether it was committed; else there is nothing to sync.
    pub(super) committed: bool,
    /// How far the store has come with it.
    pub(super) reached: Kept,
    pub(super) replies: Vec<Reply>,
}

/// Takes transactions to the thread that syncs them; the thread ends when it is dropped.
#[derive(Debug)]
pub(super) struct Syncer {
    written: Option<SyncSender<Written>>,
    thread: Option<JoinHandle<()>>,
    log: Arc<Log>,
}

impl Syncer {
    /// # Errors
    /// If the log is not there, or there is no thread.
    pub(super) fn start(trust: Trust, durable: Durable, mark: Mark) -> Result<Self, Failure> {
        let unavailable = |error: io::Error| Failure::Store(StoreError::Unavailable { source: error.into() });
        let path = file::log_of(&trust.path);
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

    /// Syncs this transaction and answers, soon or at once: on this very thread if `here`, and no other one
    /// is being synced.
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

/// The log as a file.
#[derive(Debug)]
struct Log {
    file: File,
    path: PathBuf,
    trust: Trust,
    durable: Durable,
    mark: Mark,
}

impl Log {
    /// One sync for all of these, then their answers.
    fn settle(&self, written: Vec<Written>) {
        let Some(&Written { place, reached, .. }) = written.last() else { return };
        if written.iter().any(|transaction| transaction.committed) {
            match self.sync() {
                Ok(()) => self.mark.advance(reached),
                Err(error) => {
                    let what = format!("its log `{}` cannot be synced: {error}", self.path.display());
                    self.trust.judge(Failure::Broken(what), Phase::Commit);
                }
            }
        }
        self.durable.settle(place);
        for Reply { to, answer } in written.into_iter().flat_map(|transaction| transaction.replies) {
            // Whoever asked may have gone away; what was done stays done.
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
    use crate::sqlite::tests::torture::Disk;

    /// I6. It is answered at once or in its turn, and says nothing about what is still being synced.
    #[test]
    fn a_transaction_that_failed_settles_none_before_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.db");
        std::fs::write(file::log_of(&path), []).unwrap();
        let (disk, durable) = (Disk::below(folder.path()), Durable::new());
        let (mark, reached) = (Mark::keep(&path, Kept::default()), Kept::default());
        let syncer = Syncer::start(Trust::new(&path), durable.clone(), mark).unwrap();
        disk.hold_syncs(true);
        durable.begin();
        syncer.settle(Written { place: 1, committed: true, reached, replies: Vec::new() }, false);
        let (to, answer) = oneshot::channel();
        let failed = Reply { to, answer: Err(StoreError::Full) };
        syncer.settle(Written { place: 1, committed: false, reached, replies: vec![failed] }, true);
        let settled = *durable.settled.borrow();
        disk.hold_syncs(false);
        assert_eq!(settled, 0, "the first one is still being synced");
        assert!(matches!(answer.blocking_recv().unwrap(), Err(StoreError::Full)));
        assert_eq!(*durable.settled.borrow(), 1);
    }
}
