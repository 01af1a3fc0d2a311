//! Thread that writes the journal.
//!
//! The supervisor passes a batch to the thread and continues. While this batch is synced, the next one fills up
//! (group commit without a timer). An event file notifies the supervisor's loop when a batch is durable.
//!
//! The journal has a reserve for a full disk. If the reserve is used up too, the thread retries the batch until the
//! disk has space. The supervisor does not act on this batch meanwhile. After a failed sync the content of the disk
//! is unknown, so the process exits at once. The fuse then kills the tasks, and the next supervisor reads the
//! journal.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use crashpoint::Point;
use model::error_chain::Chain;
use rustix::event::{EventfdFlags, eventfd};

use super::journal::{Entry, Journal, RewriteError, State};

/// Delay between attempts on a full disk.
const RETRY: Duration = Duration::from_millis(500);
/// Exit code after a failed sync (`EX_IOERR`).
const EXIT_SYNC_FAILED: i32 = 74;

enum Work {
    Append { entries: Vec<Entry>, sync: bool },
    Compact(Box<State>),
}

/// The supervisor's handle of the thread. The thread has at most one batch at a time.
#[derive(Debug)]
pub(crate) struct Writer {
    work: mpsc::Sender<Work>,
    done: mpsc::Receiver<u64>,
    wake: Arc<OwnedFd>,
    busy: bool,
}

impl Writer {
    pub(crate) fn start(journal: Journal) -> io::Result<Self> {
        let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let (work, inbox) = mpsc::channel();
        let (outbox, done) = mpsc::channel();
        let bell = Arc::clone(&wake);
        thread::Builder::new().name("journal".into()).spawn(move || {
            let mut journal = journal;
            for work in inbox {
                write(&mut journal, work);
                if outbox.send(journal.len()).is_err() {
                    return;
                }
                // Fails only after 2^64 unread batches.
                rustix::io::write(&*bell, &1u64.to_ne_bytes()).ok();
            }
        })?;
        Ok(Self { work, done, wake, busy: false })
    }

    /// Becomes readable when a batch is written.
    pub(crate) fn wake(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    pub(crate) fn is_idle(&self) -> bool {
        !self.busy
    }

    /// Passes a batch to the thread; [`Self::poll`] returns when it is written, and durable if `sync`.
    pub(crate) fn append(&mut self, entries: Vec<Entry>, sync: bool) {
        self.send(Work::Append { entries, sync });
    }

    /// Rewrites the file so that it contains only `state`.
    pub(crate) fn compact(&mut self, state: State) {
        self.send(Work::Compact(Box::new(state)));
    }

    fn send(&mut self, work: Work) {
        debug_assert!(!self.busy, "one batch at a time");
        self.busy = true;
        // The thread runs until the process exits, so the channel is open.
        self.work.send(work).ok();
    }

    /// Returns the length of the journal in bytes if the current batch is written, `None` otherwise.
    pub(crate) fn poll(&mut self) -> Option<u64> {
        let mut count = [0; 8];
        rustix::io::read(&*self.wake, &mut count).ok();
        let len = self.done.try_recv().ok()?;
        self.busy = false;
        Some(len)
    }
}

fn write(journal: &mut Journal, work: Work) {
    match work {
        Work::Append { entries, sync } => {
            crashpoint::reach(Point::JournalBeforeWrite);
            let mut told = false;
            while let Err(error) = journal.append(&entries) {
                if !std::mem::replace(&mut told, true) {
                    let path = journal.path().display();
                    tracing::error!(%path, %error, "cannot write the journal; retrying");
                }
                thread::sleep(RETRY);
            }
            if sync && let Err(error) = journal.sync() {
                tracing::error!(path = %journal.path().display(), %error, "cannot sync the journal; exiting");
                std::process::exit(EXIT_SYNC_FAILED);
            }
        }
        Work::Compact(state) => match journal.compact(&state) {
            Ok(()) => {}
            // A failure only costs disk space.
            Err(error @ RewriteError::NotReplaced(_)) => {
                tracing::warn!(path = %journal.path().display(), error = %Chain(&error), "cannot compact the journal");
            }
            // The open file is no longer the one that the next supervisor will read.
            Err(error @ RewriteError::NotDurable(_)) => {
                tracing::error!(
                    path = %journal.path().display(), error = %Chain(&error),
                    "cannot sync the directory of the journal; exiting"
                );
                std::process::exit(EXIT_SYNC_FAILED);
            }
        },
    }
}
