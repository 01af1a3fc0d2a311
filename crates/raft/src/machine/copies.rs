//! Copies of the machine of a leader, for servers that need more than the log.
//!
//! A copy takes time and space, so there is one at a time: servers that need one together share it, and a broken transfer
//! continues with it. While a copy exists, nothing is purged that follows it in the log: its receivers need it next. The task
//! that purges the log forgets a copy that is no longer needed.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use store::pace::Pace;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::snapshot_files::{Folder, Summary, summarize};
use super::{AppliedState, Machine, MachineError};
use crate::types::{LogId, NodeId};

/// Default of the bytes per second at which a copy is sent: 64 MiB.
pub const COPY_RATE: NonZeroU64 = NonZeroU64::new(64 * 1024 * 1024).unwrap();
/// A copy is made this many times faster than it is sent: the files of the machine grow until it is complete.
const MAKING: NonZeroU64 = NonZeroU64::new(4).unwrap();

/// A copy of a machine in a file, which is removed with it.
#[derive(Debug)]
pub struct MachineCopy {
    file: Temporary,
    pub(crate) state: AppliedState,
    pub(crate) summary: Summary,
    used: Mutex<Instant>,
    outdated: CancellationToken,
}

impl MachineCopy {
    /// Returns the path of the file.
    pub(crate) fn path(&self) -> &Path {
        &self.file.0
    }

    /// Notes that a server has received a part, or makes progress after it.
    pub(crate) fn touch(&self) {
        *lock(&self.used) = Instant::now();
    }

    /// Returns when a server last made progress with it.
    pub(crate) fn used_at(&self) -> Instant {
        *lock(&self.used)
    }

    /// Waits until the log no longer continues this copy.
    pub(crate) async fn outdated(&self) {
        self.outdated.cancelled().await;
    }
}

/// How far a copy was sent, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopyProgress {
    /// Bytes that the receiver has.
    pub sent: u64,
    /// Bytes of the copy.
    pub total: u64,
}

/// The copies of one node.
#[derive(Debug)]
pub(crate) struct Copies {
    folder: Arc<Folder>,
    bytes_per_second: NonZeroU64,
    stop: CancellationToken,
    kept: Mutex<Option<Arc<MachineCopy>>>,
    /// Held while a copy is made; number of the last one.
    making: tokio::sync::Mutex<u64>,
    progress: Mutex<HashMap<NodeId, CopyProgress>>,
}

impl Copies {
    /// Creates copies in `folder` until `stop`.
    pub(crate) fn new(folder: Arc<Folder>, bytes_per_second: NonZeroU64, stop: CancellationToken) -> Self {
        Self {
            folder,
            bytes_per_second,
            stop,
            kept: Mutex::default(),
            making: tokio::sync::Mutex::default(),
            progress: Mutex::default(),
        }
    }

    pub(crate) fn folder(&self) -> &Arc<Folder> {
        &self.folder
    }

    /// Returns the pace at which a copy is sent.
    pub(crate) fn pace(&self) -> Pace {
        Pace::new(self.bytes_per_second)
    }

    /// Returns the size of a piece: many of them fit into a second.
    pub(crate) fn piece_bytes(&self) -> u64 {
        (self.bytes_per_second.get() / 16).clamp(4 * 1024, 1024 * 1024)
    }

    /// Returns the copy that exists.
    pub(crate) fn kept(&self) -> Option<Arc<MachineCopy>> {
        lock(&self.kept).clone()
    }

    /// Returns a copy at `at_least` or later: the one that exists, or a new one. Cancellation does not end its making: the next
    /// attempt to send it finds it.
    pub(crate) async fn make<M: Machine>(
        self: &Arc<Self>,
        machine: Arc<M>,
        at_least: Option<LogId>,
    ) -> Result<Arc<MachineCopy>, MachineError> {
        let (copies, stop) = (Arc::clone(self), self.stop.clone());
        let making = async move { copies.make_now(&*machine, at_least).await };
        let made = tokio::spawn(stop.run_until_cancelled_owned(making)).await;
        let made = made.map_err(|error| MachineError::caused("cannot copy the machine", error))?;
        made.unwrap_or_else(|| Err(MachineError::new("this server is ending")))
    }

    async fn make_now<M: Machine>(
        &self,
        machine: &M,
        at_least: Option<LogId>,
    ) -> Result<Arc<MachineCopy>, MachineError> {
        let mut number = self.making.lock().await;
        if let Some(kept) = self.kept().filter(|kept| kept.state.applied >= at_least) {
            return Ok(kept);
        }
        *number += 1;
        let file = Temporary(self.folder.outgoing(*number));
        let pace = || Pace::new(self.bytes_per_second.saturating_mul(MAKING));
        let state = machine.copy_to(&file.0, pace()).await?;
        let (path, reading) = (file.0.clone(), pace());
        let summary = tokio::task::spawn_blocking(move || summarize(&path, reading)).await;
        let summary = summary.unwrap_or_else(|error| Err(io::Error::other(error)));
        let copy = Arc::new(MachineCopy {
            summary: summary
                .map_err(|error| MachineError::caused("cannot read the copy of the machine", error))?,
            file,
            state,
            used: Mutex::new(Instant::now()),
            outdated: CancellationToken::new(),
        });
        *lock(&self.kept) = Some(Arc::clone(&copy));
        Ok(copy)
    }

    /// Returns whether a copy is being made.
    pub(crate) fn is_making(&self) -> bool {
        self.making.try_lock().is_err()
    }

    /// Returns how many copies were made.
    #[cfg(test)]
    pub(crate) async fn made(&self) -> u64 {
        *self.making.lock().await
    }

    /// Gives up the copy that exists, and ends its transfers: what follows it will be removed from the log.
    pub(crate) fn outdate(&self) {
        if let Some(copy) = lock(&self.kept).take() {
            copy.outdated.cancel();
        }
    }

    /// Notes how far a copy was sent to a node, until the answer is dropped.
    pub(crate) fn sending(&self, node: NodeId, sent: u64, total: u64) -> Sending<'_> {
        lock(&self.progress).insert(node, CopyProgress { sent, total });
        Sending { copies: self, node }
    }

    /// Returns how far a copy was sent to a node, while one is sent.
    pub(crate) fn progress(&self, node: NodeId) -> Option<CopyProgress> {
        lock(&self.progress).get(&node).copied()
    }
}

/// A transfer to a node.
pub(crate) struct Sending<'a> {
    copies: &'a Copies,
    node: NodeId,
}

impl Sending<'_> {
    pub(crate) fn reached(&self, sent: u64) {
        if let Some(progress) = lock(&self.copies.progress).get_mut(&self.node) {
            progress.sent = sent;
        }
    }
}

impl Drop for Sending<'_> {
    fn drop(&mut self) {
        lock(&self.copies.progress).remove(&self.node);
    }
}

/// A file that is removed on drop.
#[derive(Debug)]
struct Temporary(PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        // The next start removes what remains.
        let _ = fs::remove_file(&self.0);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
