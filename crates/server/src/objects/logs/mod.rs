//! Logs of executions: files that grow on this server, and objects when they are complete.
//!
//! ```text
//! append ──> logs/xx/exe_….log ──(end)──> objects/logs/xx/exe_….log            local folder
//!                                └──────> logs/xx/exe_….done ──(upload)──> bucket
//! ```
//!
//! A log is a sequence of [`proto::logframe`] frames. Offsets count its bytes and lie between two frames. A chunk that
//! was already written changes nothing, so a worker may resend from any acknowledged offset.
//!
//! A *rotated* log has a maximum size: when it is larger, its oldest half is removed. Offsets stay, so its first one is
//! above 0 then. A reader from an earlier offset gets a notice and the rest ([`Logs::read`]).
//!
//! If several servers share a store, a growing log is a file of the leader, and complete logs are in storage that all
//! servers can read. Only a log there counts as *kept*: until then the worker also has it, and resends it from the
//! start to the next leader if necessary.
//!
//! # Invariants
//! - A task that writes, moves or examines the files of a log holds the log's writer lock. So no reader takes a partly
//!   written chunk for a torn one, or announces an outdated size. A size is announced after the bytes are in the file.
//! - A complete log is synced before it is acknowledged, and never changes again.
//! - The state of a log in memory is derived from the disk and may be dropped at any time.
//!
//! # Cost
//! A chunk costs one write, the last one two syncs. The rotation of a log copies half of it, each time that half of its
//! maximum size was written. Memory is some 200 bytes for each log in use.

mod files;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use futures::StreamExt as _;
use model::error_chain::Chain;
use model::{ExecutionId, limits};
use proto::logframe;
use tokio::sync::{OnceCell, OwnedMutexGuard, mpsc, watch};

use self::files::{Place, ROTATION, key};
use super::{Backend, ObjectError, blocking, io};
use crate::private_files::make_private_dir;

/// Most concurrent uploads.
const UPLOADS: usize = 8;
/// Number of logs in memory above which unused logs are removed.
const SWEEP_AT: usize = 1_024;

/// Maximum size of a log, and what happens to a larger one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogLimit {
    /// The worker sends at most about this number of bytes of output.
    Fixed {
        /// Bytes of output, without frame headers.
        max_bytes: u64,
    },
    /// The oldest bytes of a larger log are removed.
    Rotated {
        /// Maximum size in bytes, including frame headers.
        max_bytes: u64,
        /// First offset that the worker still has. If bytes below it are missing here, the log is stored without them.
        first_offset: u64,
    },
}

impl Default for LogLimit {
    fn default() -> Self {
        Self::Fixed { max_bytes: limits::LOG_BYTES_MAX }
    }
}

/// Frames to append to a log.
#[derive(Debug, Clone)]
pub struct LogWrite {
    /// Offset of the first frame.
    pub offset: u64,
    /// Whole frames.
    pub frames: Bytes,
    /// Whether the log is complete after them.
    pub end: bool,
    /// Maximum size of the log.
    pub limit: LogLimit,
}

impl LogWrite {
    /// Returns frames for a log with the default limit.
    pub fn new(offset: u64, frames: Bytes, end: bool) -> Self {
        Self { offset, frames, end, limit: LogLimit::default() }
    }
}

/// Size of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LogSize {
    /// Offset of the first stored byte: 0 unless the log was rotated.
    pub first: u64,
    /// Offset after the last byte, in bytes including frame headers.
    pub end: u64,
    /// Whether the log has ended. Stays false for an execution that was lost with its worker, and for one without
    /// output: check the execution's row too.
    pub complete: bool,
}

/// A part of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogPart {
    /// Whole frames.
    pub frames: Bytes,
    /// Offset of the first frame. Above the requested offset if earlier bytes were removed.
    pub from: u64,
    /// Offset of the next read.
    pub next: u64,
    /// Whether the log is complete and ends at `next`; see [`LogSize::complete`].
    pub complete: bool,
}

/// Result of appending a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Appended {
    /// End offset of the log on this server. Below the chunk's offset if earlier bytes are missing.
    pub offset: u64,
    /// Number of new bytes.
    pub new_bytes: u64,
    /// All bytes below this offset are where every server can read them.
    pub kept: u64,
}

/// Notifies when a log grows or is completed.
pub struct LogWatch {
    size: watch::Receiver<LogSize>,
    // Keeps the log in memory, so that its next writer uses this channel.
    _log: Arc<Log>,
}

impl LogWatch {
    /// Waits until the log has changed since the last call, or since the creation of the watch.
    ///
    /// Spurious returns are possible.
    pub async fn changed(&mut self) {
        // The sender lives in `_log`, so this cannot fail.
        let _closed = self.size.changed().await;
    }
}

/// All logs; clones are cheap.
#[derive(Clone)]
pub struct Logs {
    inner: Arc<Inner>,
}

struct Inner {
    live: PathBuf,
    backend: Backend,
    /// Whether other servers may continue the logs of this one.
    shared: bool,
    logs: Mutex<LogCache>,
    finished: mpsc::UnboundedSender<ExecutionId>,
    to_upload: Mutex<Option<mpsc::UnboundedReceiver<ExecutionId>>>,
}

#[derive(Default)]
struct LogCache {
    logs: HashMap<ExecutionId, Arc<Log>>,
    sweep_at: usize,
}

/// State of one log in memory.
#[derive(Default)]
struct Log {
    examined: OnceCell<()>,
    writer: Arc<tokio::sync::Mutex<()>>,
    size: watch::Sender<LogSize>,
    /// Whether the log is in the bucket.
    uploaded: watch::Sender<bool>,
}

impl Logs {
    pub(super) fn open(live: PathBuf, backend: Backend, shared: bool) -> Result<Self, ObjectError> {
        make_private_dir(&live).map_err(io("create", &live))?;
        let (finished, to_upload) = mpsc::unbounded_channel();
        Ok(Self {
            inner: Arc::new(Inner {
                live,
                backend,
                shared,
                logs: Mutex::default(),
                finished,
                to_upload: Mutex::new(Some(to_upload)),
            }),
        })
    }

    /// Appends frames at their offset, and completes the log if they are its end.
    ///
    /// Bytes that are already stored are skipped. If bytes before the offset are missing, nothing is written, and the
    /// returned offset says where to resend from; but see [`LogLimit::Rotated`].
    ///
    /// # Errors
    /// [`ObjectError::Malformed`] if they are not whole frames, [`ObjectError::TooLarge`], or an I/O error; then
    /// nothing of the chunk counts as written.
    pub async fn append(&self, execution: ExecutionId, new: LogWrite) -> Result<Appended, ObjectError> {
        let log = self.log(execution).await?;
        // Owned by the blocking task, so that a cancelled caller does not admit a second writer.
        let writing = Arc::clone(&log.writer).lock_owned().await;
        let inner = Arc::clone(&self.inner);
        blocking(move || {
            let _writing = writing;
            inner.write(&log, execution, &new)
        })
        .await
    }

    /// Reads whole frames from offset `from`: about `max_bytes`, but at least one frame if there is one.
    ///
    /// If bytes from that offset on were removed, the part begins with a notice, at the end of the removed bytes.
    ///
    /// # Errors
    /// [`ObjectError::BadOffset`] if no frame begins there.
    pub async fn read(
        &self,
        execution: ExecutionId,
        from: u64,
        max_bytes: usize,
    ) -> Result<LogPart, ObjectError> {
        let size = self.size(execution).await?;
        let bad = || ObjectError::BadOffset { execution, offset: from };
        if from >= size.end {
            let complete = size.complete;
            return if from == size.end {
                Ok(LogPart { frames: Bytes::new(), from, next: from, complete })
            } else {
                Err(bad())
            };
        }
        let wanted = max_bytes.max(logframe::HEADER + logframe::MAX_FRAME) as u64;
        let begin = from.max(size.first);
        let range = begin..size.end.min(begin.saturating_add(wanted));
        let (begin, bytes) = self.bytes(execution, range, size).await?;
        let whole = match logframe::whole_prefix(&bytes) {
            Ok(0) | Err(_) => return Err(bad()),
            Ok(whole) => whole,
        };
        let next = begin + whole as u64;
        let complete = size.complete && next == size.end;
        let frames = bytes.slice(..whole);
        if begin > from {
            let notice = removed_notice(begin, &frames);
            let from = begin.saturating_sub(notice.len() as u64);
            return Ok(LogPart { frames: [notice, frames.to_vec()].concat().into(), from, next, complete });
        }
        Ok(LogPart { frames, from, next, complete })
    }

    /// Returns the size of a log; zero if there is none.
    ///
    /// # Errors
    /// If the disk or the backend fails.
    pub async fn size(&self, execution: ExecutionId) -> Result<LogSize, ObjectError> {
        let log = self.log(execution).await?;
        if self.inner.shared && log.is_unknown() {
            let writing = Arc::clone(&log.writer).lock_owned().await;
            // Another server may have completed it, unless a writer of this server has started it meanwhile.
            if log.is_unknown() {
                self.examine(execution, &log, writing).await?;
            }
        }
        let size = *log.size.borrow();
        if size != LogSize::default() || self.inner.backend.file(&key(execution)).is_some() {
            return Ok(size);
        }
        // No local file: the log may be in the bucket, or may not exist yet.
        if let Some(size) = self.size_of_object(execution).await? {
            log.announce_if_new(size);
        }
        Ok(*log.size.borrow())
    }

    /// Returns the size of a complete log in the bucket.
    async fn size_of_object(&self, execution: ExecutionId) -> Result<Option<LogSize>, ObjectError> {
        let found = self.inner.backend.start(&key(execution), Place::HEADER).await?;
        Ok(found.map(|(len, start)| Place::of(&start).size(len, true)))
    }

    /// Watches a log from now on. Call it before [`Logs::read`], so that no change between the two is missed.
    pub fn changed(&self, execution: ExecutionId) -> LogWatch {
        let log = self.inner.in_use(execution);
        LogWatch { size: log.size.subscribe(), _log: log }
    }

    /// Waits until a complete log is in the bucket.
    pub async fn uploaded(&self, execution: ExecutionId) {
        let log = self.inner.in_use(execution);
        let mut uploaded = log.uploaded.subscribe();
        // The sender lives in `log`, so this cannot fail.
        let _closed = uploaded.wait_for(|uploaded| *uploaded).await;
    }

    /// Drops the state in memory, because another server writes the logs from now on.
    ///
    /// A write in progress continues; the next access to its log waits for it.
    pub fn clear_cache(&self) {
        let mut in_use = self.inner.lock();
        in_use.logs.retain(|_, log| Log::is_in_use(log));
        for log in in_use.logs.values_mut() {
            *log = Arc::new(Log { writer: Arc::clone(&log.writer), ..Log::default() });
        }
    }

    /// Deletes a log from the disk and the backend.
    ///
    /// # Errors
    /// If the disk or the backend fails; the call may be repeated.
    pub async fn delete(&self, execution: ExecutionId) -> Result<(), ObjectError> {
        let log = self.log(execution).await?;
        let _writing = log.writer.lock().await;
        let rotation = self.inner.live_file(execution).with_extension(ROTATION);
        for file in [rotation, self.inner.live_file(execution), self.inner.done_file(execution)] {
            match tokio::fs::remove_file(&file).await {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(io("remove", file)(error));
                }
                _ => {}
            }
        }
        self.inner.backend.delete(&key(execution)).await?;
        log.size.send_replace(LogSize::default());
        Ok(())
    }

    /// Uploads complete logs to the bucket until the future is dropped; returns at once if the backend is a folder.
    ///
    /// Logs of an earlier process come first. A failed upload is retried without end.
    pub async fn upload(&self) {
        let taken = self.inner.to_upload.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(mut queue) = taken else { return };
        if self.inner.backend.file(&key(ExecutionId::from_bits(0))).is_some() {
            return;
        }
        let inner = Arc::clone(&self.inner);
        match blocking(move || inner.done_files()).await {
            Ok(left) => left.into_iter().for_each(|execution| self.inner.finished(execution)),
            Err(error) => tracing::error!(error = %Chain(&error), "cannot list logs to upload"),
        }
        let queue = futures::stream::poll_fn(move |cx| queue.poll_recv(cx));
        queue.for_each_concurrent(UPLOADS, |execution| self.upload_one(execution)).await;
    }

    async fn upload_one(&self, execution: ExecutionId) {
        let mut pause = std::time::Duration::from_millis(500);
        while let Err(error) = self.try_upload(execution).await {
            tracing::warn!(execution_id = %execution, error = %Chain(&error), "cannot upload a log; retrying");
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(std::time::Duration::from_secs(60));
        }
    }

    async fn try_upload(&self, execution: ExecutionId) -> Result<(), ObjectError> {
        let log = self.log(execution).await?;
        let _writing = log.writer.lock().await;
        let file = self.inner.done_file(execution);
        if !tokio::fs::try_exists(&file).await.map_err(io("find", &file))? {
            return Ok(());
        }
        self.inner.backend.put_file(&key(execution), &file).await?;
        tokio::fs::remove_file(&file).await.map_err(io("remove", &file))?;
        log.uploaded.send_replace(true);
        Ok(())
    }

    async fn log(&self, execution: ExecutionId) -> Result<Arc<Log>, ObjectError> {
        let log = self.inner.in_use(execution);
        let first_look = async || {
            let writing = Arc::clone(&log.writer).lock_owned().await;
            self.examine(execution, &log, writing).await
        };
        log.examined.get_or_try_init(first_look).await?;
        Ok(log)
    }

    async fn examine(
        &self,
        execution: ExecutionId,
        log: &Log,
        writing: OwnedMutexGuard<()>,
    ) -> Result<(), ObjectError> {
        let inner = Arc::clone(&self.inner);
        // Moved into the task, so that a cancelled caller admits no writer before the examination has ended.
        let (here, _writing) = blocking(move || Ok((inner.examine(execution)?, writing))).await?;
        let elsewhere = match self.inner.shared && here.end > 0 && !here.complete {
            // Part of a log that another server has continued and completed.
            true => self.size_of_object(execution).await?,
            false => None,
        };
        if elsewhere.is_some() {
            let file = self.inner.live_file(execution);
            tokio::fs::remove_file(&file).await.map_err(io("remove", &file))?;
        }
        log.announce_if_new(elsewhere.unwrap_or(here));
        Ok(())
    }

    /// Reads a range of offsets. If the log was rotated meanwhile, the bytes may begin later; their first offset is
    /// returned with them.
    async fn bytes(
        &self,
        execution: ExecutionId,
        range: std::ops::Range<u64>,
        size: LogSize,
    ) -> Result<(u64, Bytes), ObjectError> {
        let inner = Arc::clone(&self.inner);
        let here = range.clone();
        if let Some(found) = blocking(move || inner.read_local(execution, here)).await? {
            return Ok(found);
        }
        let place = Place::from_first(size.first);
        let within = place.position(range.start)..place.position(range.end);
        Ok((range.start, self.inner.backend.range(&key(execution), within).await?))
    }
}

/// Returns the notice in place of the bytes before `first`, with the time of the frame after it.
fn removed_notice(first: u64, frames: &[u8]) -> Vec<u8> {
    let at = logframe::read(frames, 0).ok().flatten().map_or(0, |(frame, _)| frame.unix_micros);
    let size = if first < 1 << 20 { format!("{} KiB", first >> 10) } else { format!("{} MiB", first >> 20) };
    let text = format!("… {size} omitted here: a rotated log keeps only its newest output …\n");
    let mut notice = Vec::new();
    logframe::write(&mut notice, logframe::Stream::Notice, at, text.as_bytes());
    notice
}

impl Log {
    fn is_unknown(&self) -> bool {
        *self.size.borrow() == LogSize::default()
    }

    /// Returns whether a task uses the log, or still holds its writer lock.
    fn is_in_use(log: &Arc<Self>) -> bool {
        Arc::strong_count(log) > 1 || Arc::strong_count(&log.writer) > 1
    }

    /// Announces a size if it differs from the current one.
    fn announce_if_new(&self, size: LogSize) {
        self.size.send_if_modified(|known| std::mem::replace(known, size) != size);
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, LogCache> {
        // A panic elsewhere cannot leave the map inconsistent.
        self.logs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the only entry of a log, so that its writers exclude each other.
    fn in_use(&self, execution: ExecutionId) -> Arc<Log> {
        let mut in_use = self.lock();
        if let Some(log) = in_use.logs.get(&execution) {
            return Arc::clone(log);
        }
        if in_use.logs.len() >= in_use.sweep_at.max(SWEEP_AT) {
            // No other task can get an entry while the lock is held, so the reference counts are exact.
            in_use.logs.retain(|_, log| Log::is_in_use(log));
            in_use.sweep_at = in_use.logs.len() * 2;
        }
        Arc::clone(in_use.logs.entry(execution).or_default())
    }
}
