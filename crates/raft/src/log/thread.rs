//! The log thread: takes all waiting requests, serves them in order, and syncs all their entries at once.
//!
//! # Errors
//! The first error of a write or a sync stops the log for good: what the files contain is then unknown until they are
//! opened again. The requests under way and all later ones get the error, none of their entries is acknowledged, and the
//! [`OnFailure`] of the log is called. On a server it ends the process.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use super::error::{Failure, Stopped};
use super::record::Record;
use super::view::Shared;
use super::writer::Writer;
use crate::types::{LogId, Vote};

/// Interval of the look at the free space.
const SPACE_INTERVAL: Duration = Duration::from_secs(1);

/// Receives the result of a request.
pub(super) type Done = Box<dyn FnOnce(Result<(), Stopped>) + Send>;

/// A change of the log.
pub(super) enum Request {
    Append(Vec<Record>, Done),
    /// Removes the entries from an index on.
    Truncate(u64, Done),
    Purge(LogId, Done),
    SaveVote(Vote, Done),
    SaveCommitted(Option<LogId>),
}

/// What happens when the log stops after an error of the disk, or the node after an error of its machine.
#[derive(Clone)]
pub struct OnFailure(Arc<dyn Fn(&Failure) + Send + Sync>);

impl OnFailure {
    /// Ends the process with exit code 1. After a failed sync nothing that this process holds in memory can be trusted to
    /// reach the disk, and the other servers continue without it.
    pub fn end_process() -> Self {
        Self::call(|failure| {
            tracing::error!(error = %failure, source = %failure.source, "this server cannot continue; ending the process");
            std::process::exit(1);
        })
    }

    /// Calls a function, in the log thread or in a task of the node.
    pub fn call(function: impl Fn(&Failure) + Send + Sync + 'static) -> Self {
        Self(Arc::new(function))
    }

    /// Reports a failure.
    pub(crate) fn report(&self, failure: &Failure) {
        (self.0)(failure);
    }
}

impl fmt::Debug for OnFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnFailure")
    }
}

/// The log thread.
pub(super) struct Session {
    writer: Writer,
    shared: Arc<Shared>,
    on_failure: OnFailure,
    /// Appends that are written but not synced.
    waiting: Vec<Done>,
    /// Newest committed log id that is not in the file `state` yet.
    committed: Option<Option<LogId>>,
    stopped: Option<Stopped>,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Session")
    }
}

impl Session {
    pub(super) fn new(writer: Writer, shared: Arc<Shared>, on_failure: OnFailure) -> Self {
        Self { writer, shared, on_failure, waiting: Vec::new(), committed: None, stopped: None }
    }

    /// Serves requests until the log is dropped.
    pub(super) fn run(mut self, requests: &Receiver<Request>) {
        loop {
            // Here and not before the answers: a new segment takes milliseconds.
            let has_more = self.prepare();
            let patience = if has_more { Duration::ZERO } else { SPACE_INTERVAL };
            match requests.recv_timeout(patience) {
                Ok(first) => {
                    // Those that wait now; what comes during the writes must not delay the sync.
                    let waiting: Vec<_> = requests.try_iter().collect();
                    self.serve(std::iter::once(first).chain(waiting));
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Deletes a purged segment, allocates the next one, and measures the free space. Returns whether a segment was
    /// deleted, so that there may be more.
    pub(super) fn prepare(&mut self) -> bool {
        if self.stopped.is_some() {
            return false;
        }
        let has_deleted = self.writer.delete_obsolete();
        self.writer.prepare();
        has_deleted
    }

    /// Serves requests; all appends in a row share a sync.
    pub(super) fn serve(&mut self, requests: impl Iterator<Item = Request>) {
        for request in requests {
            if !matches!(request, Request::Append(..)) {
                self.finish_appends();
            }
            match request {
                Request::Append(records, done) => match self.attempt(|writer| writer.append(&records)) {
                    Ok(()) => self.waiting.push(done),
                    Err(stopped) => done(Err(stopped)),
                },
                Request::Truncate(from, done) => done(self.attempt(|writer| writer.truncate(from))),
                Request::Purge(upto, done) => done(self.attempt(|writer| writer.purge(upto))),
                Request::SaveVote(vote, done) => done(self.attempt(|writer| writer.save_vote(vote))),
                Request::SaveCommitted(committed) => self.committed = Some(committed),
            }
        }
        self.finish_appends();
        if let Some(committed) = self.committed.take() {
            // The error is noted, and reported by the next request.
            let _ = self.attempt(|writer| writer.save_committed(committed));
        }
    }

    /// Syncs what was written, and acknowledges it.
    fn finish_appends(&mut self) {
        if self.waiting.is_empty() {
            return;
        }
        let synced = self.attempt(Writer::sync);
        for done in self.waiting.drain(..) {
            done(synced.clone());
        }
    }

    /// Changes the files, unless the log has stopped; stops it after an error.
    fn attempt(&mut self, change: impl FnOnce(&mut Writer) -> Result<(), Failure>) -> Result<(), Stopped> {
        if let Some(stopped) = &self.stopped {
            return Err(stopped.clone());
        }
        change(&mut self.writer).map_err(|failure| {
            let stopped = Stopped(Arc::new(failure));
            self.stopped = Some(stopped.clone());
            self.shared.view().stopped = Some(stopped.clone());
            (self.on_failure.0)(&stopped.0);
            for done in self.waiting.drain(..) {
                done(Err(stopped.clone()));
            }
            stopped
        })
    }
}

/// Converts the result of a request for openraft's callbacks.
pub(super) fn io_result(result: Result<(), Stopped>) -> io::Result<()> {
    result.map_err(io::Error::from)
}
