//! The disk of a simulated machine, with the bytes of its journal.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ::model::{ExecutionId, WorkerId};

use crate::supervisor::journal::{self, State};

/// Data that survives a power cut; clones share the same disk.
#[derive(Debug, Clone, Default)]
pub struct Disk(Arc<Mutex<Bytes>>);

#[derive(Debug, Default)]
struct Bytes {
    journal: Vec<u8>,
    /// Length of the durable part.
    synced: usize,
}

impl Disk {
    fn lock(&self) -> MutexGuard<'_, Bytes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the journal as a starting supervisor does, and makes it durable.
    ///
    /// # Panics
    /// If the journal is damaged: a power cut must not damage it.
    pub(super) fn open(&self, worker: WorkerId) -> State {
        let mut bytes = self.lock();
        if bytes.journal.is_empty() {
            bytes.journal = journal::encode_new(worker);
        }
        let (state, whole) = replay(&bytes.journal);
        bytes.journal.truncate(whole);
        bytes.synced = whole;
        state
    }

    /// Returns the durable length and the total length of the journal, in bytes.
    pub(super) fn extent(&self) -> (u64, u64) {
        let bytes = self.lock();
        (bytes.synced as u64, bytes.journal.len() as u64)
    }

    pub(super) fn write(&self, batch: &[u8]) {
        self.lock().journal.extend_from_slice(batch);
    }

    pub(super) fn sync(&self) {
        let mut bytes = self.lock();
        bytes.synced = bytes.journal.len();
    }

    /// Truncates the journal to `len` bytes, as a power cut may do.
    pub(super) fn truncate_to(&self, len: u64) {
        self.lock().journal.truncate(usize::try_from(len).unwrap_or(usize::MAX));
    }

    /// Returns the executions whose outcomes are not acknowledged.
    pub fn unacknowledged(&self) -> Vec<ExecutionId> {
        let bytes = self.lock();
        if bytes.journal.is_empty() {
            return Vec::new();
        }
        let (state, _) = replay(&bytes.journal);
        let mut held: Vec<_> = state.held.into_keys().collect();
        held.sort_unstable();
        held
    }
}

fn replay(bytes: &[u8]) -> (State, usize) {
    journal::replay(Path::new("journal"), bytes).expect("a power cut does not damage the journal")
}
