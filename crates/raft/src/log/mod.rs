//! The log of a server: its entries and its vote, in files.
//!
//! openraft calls [`Log`] and [`LogReader`]; a thread of the log changes the files. An entry is written to the newest
//! *segment*, a preallocated file of 64 MiB, and synced once together with all other entries that wait. Reads are served
//! from memory for the newest entries, else from the files.
//!
//! ```text
//!  00000000000000000000.log    segments, named by the index of their first entry
//!  spare                       the next segment, allocated in advance
//!  state                       vote, purged log id, and a hint at the committed log id
//! ```
//!
//! - `record`, `segment`, `state`: formats of the files. Everything has a checksum.
//! - `recovery` opens the files, and tells what a crash may have left from damage.
//! - `writer` changes the files; `thread` serves the requests of openraft with it, and stops after an error.
//! - `view`, `cache`: what readers see; `space`: free space of the volume.
//! - `storage` implements the traits of openraft.
//!
//! # Invariants
//! - An append, a vote, a truncation and a purge are durable before they are acknowledged.
//! - Entries are consecutive. No removed entry comes back after an acknowledged truncation.
//! - After an error of a write or a sync, nothing is acknowledged any more.
//! - A log that has lost durable bytes is not opened, as far as the files can show that.
//! - A vote of this server for itself is uncommitted after a restart, so every process leads in terms of its own.
//!
//! # Cost
//! One write and one `fdatasync` for all entries that wait. The files are allocated before and keep their length. An append
//! copies its payload once, into the buffer of the write; memory and readers share it.

mod cache;
mod error;
mod record;
mod recovery;
mod segment;
mod space;
mod state;
mod storage;
mod thread;
mod view;
mod writer;

#[cfg(test)]
pub(crate) mod simulated;
#[cfg(test)]
mod tests;

use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

use tokio::sync::oneshot;

pub use error::{Failure, OpenError};
pub use space::{Space, SpaceGauge};
pub use thread::OnFailure;

use crate::disk::{Disk, RealDisk};
use crate::types::{LogId, NodeId, Vote};
use error::{ReadError, Stopped};
use record::{HEADER_BYTES, RECORD_BYTES_MAX, Record};
use recovery::recover;
use thread::{Done, Request, Session};
use view::Shared;
use writer::Writer;

/// Maximum bytes of the entries that one read for replication returns, if it returns more than one entry.
const READ_BYTES: usize = 1024 * 1024;

/// Whether the server already has a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// A missing log is created.
    New,
    /// A missing log is an error: the server has voted and acknowledged entries, and no longer knows which.
    Existing,
}

/// How a log is opened.
#[derive(Debug, Clone)]
pub struct Options {
    /// Id of the cluster; files of another cluster are refused.
    pub cluster: u128,
    /// The server that owns the log.
    pub node: NodeId,
    /// Whether the log must exist.
    pub start: Start,
    /// Size of a segment in bytes, from 1 KiB to 1 GiB.
    pub segment_bytes: u64,
    /// Bytes of entries that are kept in memory.
    pub cache_bytes: usize,
    /// Bytes of the volume that the log leaves to others.
    pub reserve_bytes: u64,
    /// What happens after an error of the disk.
    pub on_failure: OnFailure,
}

impl Options {
    /// Returns the options of a server: segments and cache of 64 MiB, and the end of the process after an error.
    pub fn new(cluster: u128, node: NodeId, start: Start) -> Self {
        Self {
            cluster,
            node,
            start,
            segment_bytes: 64 * 1024 * 1024,
            cache_bytes: 64 * 1024 * 1024,
            reserve_bytes: 0,
            on_failure: OnFailure::end_process(),
        }
    }
}

/// The log of a server. It has one owner, openraft; all its methods are called one after another.
#[derive(Debug)]
pub struct Log {
    shared: Arc<Shared>,
    thread: Thread,
}

/// Reads entries while the log changes.
#[derive(Debug, Clone)]
pub struct LogReader {
    shared: Arc<Shared>,
}

/// Sends requests to the log thread; ends it when dropped.
#[derive(Debug)]
struct Thread {
    /// Unbounded, because openraft waits for each request before it makes the next one.
    requests: Option<Sender<Request>>,
    handle: Option<JoinHandle<()>>,
    /// Serves the requests without a thread.
    #[cfg(test)]
    simulated: Option<std::sync::Mutex<simulated::Simulated>>,
}

impl Log {
    /// Opens the log in a folder.
    ///
    /// # Errors
    /// See [`OpenError`]; [`OpenError::help`] says what the operator can do.
    ///
    /// # Panics
    /// If the size of a segment is out of its range.
    pub fn open(folder: &Path, options: Options) -> Result<Self, OpenError> {
        let disk = RealDisk::open(folder).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => OpenError::InUse { folder: folder.to_owned() },
            _ => Failure::of("open the log", folder)(error).into(),
        })?;
        Self::open_on(Arc::new(disk), options)
    }

    fn open_on(disk: Arc<dyn Disk>, options: Options) -> Result<Self, OpenError> {
        let folder = disk.path_of("");
        let (session, shared) = open_session(disk, options)?;
        let (requests, received) = channel();
        let handle = std::thread::Builder::new()
            .name("raft-log".to_owned())
            .spawn(move || session.run(&received))
            .map_err(Failure::of("start the thread of the log", folder))?;
        let thread = Thread {
            requests: Some(requests),
            handle: Some(handle),
            #[cfg(test)]
            simulated: None,
        };
        Ok(Self { shared, thread })
    }

    /// Returns the gauge of the free space.
    pub fn space(&self) -> SpaceGauge {
        self.shared.space.clone()
    }

    /// Removes the log if it contradicts the state of the machine: `applied` is in a snapshot that was installed, but the log
    /// has another entry there, or ends before.
    pub(crate) async fn adopt(&self, applied: LogId) -> io::Result<()> {
        let reader = self.reader();
        if reader.purged() >= Some(applied) || reader.last().is_some_and(|last| last == applied) {
            return Ok(());
        }
        let at = applied.index..applied.index + 1;
        let found = reader.read(at, usize::MAX).await.map_err(io::Error::other)?;
        let purged_index = reader.purged().map(|purged| purged.index);
        match found.first() {
            Some(record) if record.id == applied => Ok(()),
            // The entry was purged together with a newer snapshot.
            None if purged_index >= Some(applied.index) => Ok(()),
            _ => Ok(self.purge_upto(applied).await?),
        }
    }

    /// Makes entries readable, and lets the log thread write them. `done` is called when they are durable.
    ///
    /// # Errors
    /// If the log has stopped, or for entries that do not follow the last one or are too large.
    fn append_records(&self, records: Vec<Record>, done: Done) -> io::Result<()> {
        {
            let mut view = self.shared.view();
            if let Some(stopped) = &view.stopped {
                return Err(stopped.clone().into());
            }
            let mut next = view.last.map(|last| last.index + 1);
            for record in &records {
                let index = record.id.index;
                if next.is_some_and(|next| next != index) {
                    let problem = format!("entry {} does not follow the last entry of the log", record.id);
                    return Err(io::Error::new(io::ErrorKind::InvalidInput, problem));
                }
                if HEADER_BYTES + record.payload.len() > RECORD_BYTES_MAX {
                    let (bytes, max) = (record.payload.len(), RECORD_BYTES_MAX - HEADER_BYTES);
                    let problem = format!("entry {} has {bytes} bytes, more than {max}", record.id);
                    return Err(io::Error::new(io::ErrorKind::InvalidInput, problem));
                }
                next = Some(index + 1);
            }
            view.last = records.last().map(|record| record.id).or(view.last);
            for record in &records {
                view.cache.push(record.clone());
            }
        }
        self.thread.send(Request::Append(records, done));
        Ok(())
    }

    /// Makes a request and waits until it is done.
    async fn request(&self, request: impl FnOnce(Done) -> Request) -> Result<(), Stopped> {
        let (done, answer) = oneshot::channel();
        self.thread.send(request(Box::new(|result| drop(done.send(result)))));
        answer.await.unwrap_or_else(|_| {
            let source = io::Error::other("the thread of the log has ended");
            Err(Stopped(Arc::new(Failure { action: "change", path: "log".into(), source })))
        })
    }

    async fn truncate_from(&self, index: u64) -> Result<(), Stopped> {
        self.request(|done| Request::Truncate(index, done)).await
    }

    async fn purge_upto(&self, upto: LogId) -> Result<(), Stopped> {
        self.request(|done| Request::Purge(upto, done)).await
    }

    async fn store_vote(&self, vote: Vote) -> Result<(), Stopped> {
        self.request(|done| Request::SaveVote(vote, done)).await
    }

    fn store_committed(&self, committed: Option<LogId>) {
        self.shared.view().committed = committed;
        self.thread.send(Request::SaveCommitted(committed));
    }
}

/// Opens the log, and returns what its thread runs.
fn open_session(disk: Arc<dyn Disk>, options: Options) -> Result<(Session, Arc<Shared>), OpenError> {
    let Options { cluster, node, start, segment_bytes, cache_bytes, reserve_bytes, on_failure } = options;
    assert!((1 << 10..=1 << 30).contains(&segment_bytes), "segments of {segment_bytes} bytes");
    let recovered = recover(&disk, cluster, node, start, segment_bytes)?;
    let values = recovered.state.values().clone();
    let segments = recovered.segments.clone();
    let shared = Arc::new(Shared::new(cache_bytes, segment_bytes, segments, recovered.last, values));
    let writer = Writer::new(disk, Arc::clone(&shared), recovered, cluster, segment_bytes, reserve_bytes);
    Ok((Session::new(writer, Arc::clone(&shared), on_failure), shared))
}

impl LogReader {
    /// Returns the newest entry, also one that is not durable yet; or the newest purged one.
    pub fn last(&self) -> Option<LogId> {
        self.shared.view().last
    }

    /// Returns the newest purged entry.
    pub fn purged(&self) -> Option<LogId> {
        self.shared.view().purged
    }

    /// Returns the index of the last entry that can be purged so that the newest segments with about `kept_bytes` stay;
    /// `None` if the log is smaller.
    pub fn purgeable(&self, kept_bytes: u64) -> Option<u64> {
        let view = self.shared.view();
        let kept = usize::try_from(kept_bytes.div_ceil(self.shared.segment_bytes)).unwrap_or(usize::MAX);
        let at = view.segments.len().checked_sub(kept.max(1))?;
        view.segments[at]
            .first()
            .checked_sub(1)
            .filter(|index| view.purged.is_none_or(|id| id.index < *index))
    }

    /// Returns the entries of a range that exist, up to a size; at least one, if there is one.
    async fn read(&self, range: Range<u64>, bytes_max: usize) -> Result<Vec<Record>, ReadError> {
        if let Some(records) = self.shared.read_cached(range.clone(), bytes_max) {
            return Ok(records);
        }
        let shared = Arc::clone(&self.shared);
        tokio::task::spawn_blocking(move || shared.read(&range, bytes_max)).await?
    }
}

impl Thread {
    /// The thread ends only after the last request; a panic of it drops the `Done` of the request, which is an answer too.
    fn send(&self, request: Request) {
        #[cfg(test)]
        if let Some(simulated) = &self.simulated {
            simulated.lock().unwrap().serve(request);
            return;
        }
        if let Some(requests) = &self.requests {
            let _ = requests.send(request);
        }
    }
}

impl Drop for Thread {
    /// Waits for the end of the thread, at most for one sync: then the folder can be opened again.
    fn drop(&mut self) {
        self.requests = None;
        if let Some(handle) = self.handle.take() {
            // A panic of the thread was printed, and every later request was answered with an error.
            let _ = handle.join();
        }
    }
}
