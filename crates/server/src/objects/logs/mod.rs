//! The logs of executions: files that grow here, objects once they are complete.
//!
//! ```text
//! append ──> logs/xx/exe_….log ──(end)──> objects/logs/xx/exe_….log            local folder
//!                                └──────> logs/xx/exe_….done ──(upload)──> bucket
//! ```
//!
//! A log is a sequence of [`proto::logframe`] frames; offsets count its bytes and always stand
//! between two frames. A chunk that was written before changes nothing, so a worker may send again
//! from any offset that was acknowledged.
//!
//! Where several servers share a store, a log that still grows is a file of the server that decides, and
//! what is complete is where all of them find it. Only that counts as *kept*: until then the worker has the
//! log too, and sends it to the next server from its beginning if it must.
//!
//! # Always true
//! - A task that writes, moves or examines the files of a log holds the log's writer lock. So no reader takes a half
//!   written chunk for a torn one, or announces an outdated size. A size is announced after the bytes are in the file.
//! - A log that is complete is synced before that is acknowledged, and never changes again.
//! - What is known of a log in memory is derived from the disk and may be forgotten at any time.
//!
//! # Cost
//! A chunk costs one write, the last one two syncs. Memory is some 200 bytes for each log in use.

mod files;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use futures::StreamExt as _;
use model::ExecutionId;
use proto::logframe;
use tokio::sync::{OnceCell, OwnedMutexGuard, mpsc, watch};

use self::files::key;
use super::{Backend, ObjectError, blocking, io};
use crate::config::make_private_dir;

/// How many uploads run at a time.
const UPLOADS: usize = 8;
/// Logs in memory before the first look for those that nobody uses.
const SWEEP_AT: usize = 1_024;

/// How much of a log there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LogSize {
    /// Framed bytes.
    pub bytes: u64,
    /// Whether no more will come. Stays false for an execution that was lost with its worker, and
    /// for one that wrote nothing: look at the execution's row too.
    pub complete: bool,
}

/// A piece of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogPart {
    /// Whole frames.
    pub frames: Bytes,
    /// Where they begin.
    pub from: u64,
    /// Where reading goes on.
    pub next: u64,
    /// Whether the log is complete and ends at `next`; see [`LogSize::complete`].
    pub complete: bool,
}

/// What came of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Appended {
    /// Everything below is kept. Less than the chunk's offset if something before it is missing.
    pub offset: u64,
    /// How many bytes were new.
    pub fresh_bytes: u64,
    /// Everything below is where every server finds it.
    pub kept: u64,
}

/// Tells when a log has grown or was completed.
pub struct LogWatch {
    size: watch::Receiver<LogSize>,
    // Keeps the log in memory, so that its next writer announces to this very channel.
    _log: Arc<Log>,
}

impl LogWatch {
    /// Waits until the log has changed since the last call (or since the watch was made).
    ///
    /// May return without a change now and then.
    pub async fn changed(&mut self) {
        // The sender lives in `_log`, so this cannot fail.
        let _closed = self.size.changed().await;
    }
}

/// The logs; clones are cheap.
#[derive(Clone)]
pub struct Logs {
    inner: Arc<Inner>,
}

struct Inner {
    live: PathBuf,
    backend: Backend,
    /// Whether other servers may go on with the logs of this one.
    shared: bool,
    logs: Mutex<InUse>,
    finished: mpsc::UnboundedSender<ExecutionId>,
    to_upload: Mutex<Option<mpsc::UnboundedReceiver<ExecutionId>>>,
}

#[derive(Default)]
struct InUse {
    logs: HashMap<ExecutionId, Arc<Log>>,
    sweep_at: usize,
}

/// What is known of one log.
#[derive(Default)]
struct Log {
    examined: OnceCell<()>,
    writer: Arc<tokio::sync::Mutex<()>>,
    size: watch::Sender<LogSize>,
    /// Whether it is in the bucket.
    uploaded: watch::Sender<bool>,
}

impl Logs {
    pub(super) fn open(live: PathBuf, backend: Backend, shared: bool) -> Result<Self, ObjectError> {
        make_private_dir(&live).map_err(io("make", &live))?;
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

    /// Adds frames at `offset`, and completes the log if `end`.
    ///
    /// What is there already is skipped. Where something before `offset` is missing nothing is
    /// written; the answer's offset says from where to send again.
    ///
    /// # Errors
    /// [`ObjectError::Malformed`] if `frames` are not whole frames, [`ObjectError::TooLarge`], or what
    /// the disk has to say; nothing of the chunk counts then.
    pub async fn append(
        &self,
        execution: ExecutionId,
        offset: u64,
        frames: Bytes,
        end: bool,
    ) -> Result<Appended, ObjectError> {
        let log = self.log(execution).await?;
        // Owned by the work itself, so that a caller who gives up lets no second writer in.
        let writing = Arc::clone(&log.writer).lock_owned().await;
        let inner = Arc::clone(&self.inner);
        blocking(move || {
            let _writing = writing;
            inner.write(&log, execution, offset, &frames, end)
        })
        .await
    }

    /// Reads whole frames from `from` on: at least one if there is one, else about `max_bytes`.
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
        if from >= size.bytes {
            let complete = size.complete;
            return if from == size.bytes {
                Ok(LogPart { frames: Bytes::new(), from, next: from, complete })
            } else {
                Err(bad())
            };
        }
        let wanted = max_bytes.max(logframe::HEADER + logframe::MAX_FRAME) as u64;
        let bytes = self.bytes(execution, from..size.bytes.min(from.saturating_add(wanted))).await?;
        let whole = match logframe::whole_prefix(&bytes) {
            Ok(0) | Err(_) => return Err(bad()),
            Ok(whole) => whole,
        };
        let next = from + whole as u64;
        let complete = size.complete && next == size.bytes;
        Ok(LogPart { frames: bytes.slice(..whole), from, next, complete })
    }

    /// How much of a log there is; nothing for one that nobody knows.
    ///
    /// # Errors
    /// What the disk or the backend has to say.
    pub async fn size(&self, execution: ExecutionId) -> Result<LogSize, ObjectError> {
        let log = self.log(execution).await?;
        if self.inner.shared && log.is_unknown() {
            let writing = Arc::clone(&log.writer).lock_owned().await;
            // Another server may have completed it meanwhile, unless a writer of this one has begun it.
            if log.is_unknown() {
                self.examine(execution, &log, writing).await?;
            }
        }
        let size = *log.size.borrow();
        if size != LogSize::default() || self.inner.backend.file(&key(execution)).is_some() {
            return Ok(size);
        }
        // Nothing here: it may be in the bucket, or not have begun.
        if let Some(bytes) = self.inner.backend.size(&key(execution)).await? {
            log.announce_if_new(LogSize { bytes, complete: true });
        }
        Ok(*log.size.borrow())
    }

    /// Tells when the log changes from now on. Make it before [`Logs::read`], so that no change
    /// between the two is missed.
    pub fn changed(&self, execution: ExecutionId) -> LogWatch {
        let log = self.inner.in_use(execution);
        LogWatch { size: log.size.subscribe(), _log: log }
    }

    /// Waits until a log that is complete is in the bucket.
    pub async fn uploaded(&self, execution: ExecutionId) {
        let log = self.inner.in_use(execution);
        let mut uploaded = log.uploaded.subscribe();
        // The sender lives in `log`, so this cannot fail.
        let _closed = uploaded.wait_for(|uploaded| *uploaded).await;
    }

    /// Forgets what is known in memory: another server writes the logs from now on.
    ///
    /// A write that is in progress continues; the next look at its log waits for it.
    pub fn forget(&self) {
        let mut in_use = self.inner.lock();
        in_use.logs.retain(|_, log| Log::is_in_use(log));
        for log in in_use.logs.values_mut() {
            *log = Arc::new(Log { writer: Arc::clone(&log.writer), ..Log::default() });
        }
    }

    /// Deletes a log, wherever it is.
    ///
    /// # Errors
    /// What the disk or the backend has to say; the call may be repeated.
    pub async fn delete(&self, execution: ExecutionId) -> Result<(), ObjectError> {
        let log = self.log(execution).await?;
        let _writing = log.writer.lock().await;
        for file in [self.inner.live_file(execution), self.inner.done_file(execution)] {
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

    /// Uploads complete logs to the bucket until the process ends; returns at once for a folder.
    ///
    /// Those of an earlier process come first. What fails is tried again, for ever.
    pub async fn upload(&self) {
        let taken = self.inner.to_upload.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(mut queue) = taken else { return };
        if self.inner.backend.file(&key(ExecutionId::from_bits(0))).is_some() {
            return;
        }
        let inner = Arc::clone(&self.inner);
        match blocking(move || inner.done_files()).await {
            Ok(left) => left.into_iter().for_each(|execution| self.inner.finished(execution)),
            Err(error) => tracing::error!(error = %Chain(&error), "cannot look for logs to upload"),
        }
        let queue = futures::stream::poll_fn(move |cx| queue.poll_recv(cx));
        queue.for_each_concurrent(UPLOADS, |execution| self.upload_one(execution)).await;
    }

    async fn upload_one(&self, execution: ExecutionId) {
        let mut pause = std::time::Duration::from_millis(500);
        while let Err(error) = self.try_upload(execution).await {
            tracing::warn!(execution_id = %execution, error = %Chain(&error), "cannot upload a log; trying again");
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(std::time::Duration::from_secs(60));
        }
    }

    async fn try_upload(&self, execution: ExecutionId) -> Result<(), ObjectError> {
        let log = self.log(execution).await?;
        let _writing = log.writer.lock().await;
        let file = self.inner.done_file(execution);
        if !tokio::fs::try_exists(&file).await.map_err(io("look for", &file))? {
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
        // Goes along, so that a caller who gives up lets no writer in before the look has ended.
        let (here, _writing) = blocking(move || Ok((inner.examine(execution)?, writing))).await?;
        let elsewhere = match self.inner.shared && here.bytes > 0 && !here.complete {
            // A part of a log that another server went on with, and completed.
            true => self.inner.backend.size(&key(execution)).await?,
            false => None,
        };
        if elsewhere.is_some() {
            let file = self.inner.live_file(execution);
            tokio::fs::remove_file(&file).await.map_err(io("remove", &file))?;
        }
        log.announce_if_new(elsewhere.map_or(here, |bytes| LogSize { bytes, complete: true }));
        Ok(())
    }

    async fn bytes(&self, execution: ExecutionId, range: std::ops::Range<u64>) -> Result<Bytes, ObjectError> {
        let inner = Arc::clone(&self.inner);
        let here = range.clone();
        match blocking(move || inner.read_here(execution, here)).await? {
            Some(bytes) => Ok(bytes),
            None => self.inner.backend.range(&key(execution), range).await,
        }
    }
}

impl Log {
    fn is_unknown(&self) -> bool {
        *self.size.borrow() == LogSize::default()
    }

    /// Whether a task uses the log, or still holds its writer lock.
    fn is_in_use(log: &Arc<Self>) -> bool {
        Arc::strong_count(log) > 1 || Arc::strong_count(&log.writer) > 1
    }

    /// Announces a size, unless it is what everybody knows.
    fn announce_if_new(&self, size: LogSize) {
        self.size.send_if_modified(|known| std::mem::replace(known, size) != size);
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, InUse> {
        // A panic elsewhere cannot leave the map half changed.
        self.logs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The one entry of a log, so that its writers exclude each other.
    fn in_use(&self, execution: ExecutionId) -> Arc<Log> {
        let mut in_use = self.lock();
        if let Some(log) = in_use.logs.get(&execution) {
            return Arc::clone(log);
        }
        if in_use.logs.len() >= in_use.sweep_at.max(SWEEP_AT) {
            // Nobody else can get at an entry while the lock is held, so one is really unused.
            in_use.logs.retain(|_, log| Log::is_in_use(log));
            in_use.sweep_at = in_use.logs.len() * 2;
        }
        Arc::clone(in_use.logs.entry(execution).or_default())
    }
}

/// Shows an error with its causes, for the log.
struct Chain<'a>(&'a dyn std::error::Error);

impl std::fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)?;
        let mut cause = self.0.source();
        while let Some(error) = cause {
            write!(f, ": {error}")?;
            cause = error.source();
        }
        Ok(())
    }
}
