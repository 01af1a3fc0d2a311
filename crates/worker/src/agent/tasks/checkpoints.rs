//! Uploads of checkpoint files to the server.
//!
//! Checkpoints of one execution are saved one after the other, so that an older one never overwrites a newer one. A
//! file is retried until the server has accepted it or refused it permanently. A newer file replaces one that still
//! waits. A checkpoint that a task saves through its socket supersedes all files that the task wrote before. It waits
//! for the file that is being sent. No file is sent before the supervisor knows that its older files are superseded.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use proto::v1::SaveCheckpointRequest;
use tokio::sync::OwnedMutexGuard;
use tokio::task::JoinSet;

use super::Upstream;
use crate::agent::artifacts::is_retryable;
use crate::agent::connect::Backoff;
use crate::link::{Request, Save, Saved};

/// Modification time of a file, in seconds and nanoseconds of the wall clock.
type FileTime = (i64, i64);
/// Lock that is held while a checkpoint of an execution is being sent.
type UploadLock = OwnedMutexGuard<()>;

/// Running uploads of checkpoint files; aborted when the connection to the supervisor closes.
#[derive(Debug)]
pub(in super::super) struct Saves {
    upstream: Upstream,
    tasks: JoinSet<()>,
    waiting: UploadStates,
}

/// Upload state of each execution with a running upload.
#[derive(Debug, Clone, Default)]
pub(super) struct UploadStates(Arc<Mutex<HashMap<String, UploadState>>>);

#[derive(Debug, Default)]
struct UploadState {
    /// File to save after the current one.
    newer: Option<Save>,
    /// Whether a file is being saved.
    is_saving: bool,
    /// Number of running requests through the socket.
    calls: usize,
    /// Time of the last checkpoint that the task saved through its socket; files written before it are not sent.
    called: Option<FileTime>,
    turn: Arc<tokio::sync::Mutex<()>>,
}

/// A running request of a task to save a checkpoint through its socket.
#[derive(Debug)]
pub(super) struct SocketSave<'a> {
    waiting: &'a UploadStates,
    execution_id: String,
}

impl SocketSave<'_> {
    /// Waits until no file is being sent. No file is sent until the returned lock is dropped.
    pub(super) async fn turn(&self) -> UploadLock {
        self.waiting.turn(&self.execution_id).await
    }

    /// Records that the server has saved the checkpoint that the task requested at `asked`.
    pub(super) fn supersede(&self, asked: FileTime) {
        if let Some(next) = self.waiting.lock().get_mut(&self.execution_id) {
            next.called = next.called.max(Some(asked));
        }
    }
}

impl Drop for SocketSave<'_> {
    fn drop(&mut self) {
        let mut waiting = self.waiting.lock();
        if let Some(next) = waiting.get_mut(&self.execution_id) {
            next.calls -= 1;
            if next.calls == 0 && !next.is_saving {
                waiting.remove(&self.execution_id);
            }
        }
    }
}

impl UploadStates {
    /// Registers a request of a task to save a checkpoint through its socket.
    pub(super) fn call(&self, execution_id: &str) -> SocketSave<'_> {
        self.lock().entry(execution_id.to_owned()).or_default().calls += 1;
        SocketSave { waiting: self, execution_id: execution_id.to_owned() }
    }

    async fn turn(&self, execution_id: &str) -> UploadLock {
        let turn = Arc::clone(&self.lock().entry(execution_id.to_owned()).or_default().turn);
        turn.lock_owned().await
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, UploadState>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a file; returns it if no other file of the execution is being saved.
    fn put(&self, save: Save) -> Option<Save> {
        let mut waiting = self.lock();
        let next = waiting.entry(save.execution_id.clone()).or_default();
        if std::mem::replace(&mut next.is_saving, true) {
            next.newer = Some(save);
            return None;
        }
        Some(save)
    }

    /// Returns whether the task has saved a newer checkpoint through its socket.
    fn is_superseded(&self, save: &Save) -> bool {
        let called = self.lock().get(&save.execution_id).and_then(|next| next.called);
        called.is_some_and(|called| (save.unix_seconds, save.nanos) <= called)
    }

    /// Returns the next file to save after an attempt with `tried`; `None` if there is none.
    fn after(&self, tried: Save, is_settled: bool) -> Option<Save> {
        let mut waiting = self.lock();
        let next = waiting.get_mut(&tried.execution_id)?;
        if let Some(newer) = next.newer.take() {
            return Some(newer);
        }
        if !is_settled {
            return Some(tried);
        }
        next.is_saving = false;
        if next.calls == 0 {
            waiting.remove(&tried.execution_id);
        }
        None
    }
}

impl Saves {
    pub(in super::super) fn new(upstream: Upstream) -> Self {
        let waiting = upstream.waiting.clone();
        Self { upstream, tasks: JoinSet::new(), waiting }
    }

    /// Starts to save a file.
    pub(in super::super) fn begin(&mut self, save: Save) {
        while self.tasks.try_join_next().is_some() {}
        if let Some(first) = self.waiting.put(save) {
            self.tasks.spawn(save_in_turn(self.upstream.clone(), self.waiting.clone(), first));
        }
    }
}

/// Saves the files of one execution until none is left.
async fn save_in_turn(upstream: Upstream, waiting: UploadStates, first: Save) {
    let mut backoff = Backoff::default();
    let mut next = Some(first);
    while let Some(save) = next {
        let turn = waiting.turn(&save.execution_id).await;
        let is_settled = waiting.is_superseded(&save) || is_settled(&upstream, &save).await;
        drop(turn);
        if is_settled {
            let saved = Saved { execution_id: save.execution_id.clone(), number: save.number };
            upstream.shared.send_request(Request::Saved(saved)).await;
            backoff = Backoff::default();
        } else {
            backoff.wait().await;
        }
        next = waiting.after(save, is_settled);
    }
}

/// Tries to save a file; returns whether it is saved or permanently refused.
async fn is_settled(upstream: &Upstream, save: &Save) -> bool {
    let execution_id = save.execution_id.as_str();
    let request = SaveCheckpointRequest {
        execution_id: execution_id.to_owned(),
        fence: save.fence,
        data: save.data.clone(),
        content_type: String::new(),
        expected_version: None,
    };
    match upstream.save(request).await {
        Ok(_) => true,
        Err(status) if is_retryable(&status) => {
            tracing::debug!(execution_id, error = %status, "checkpoint not saved yet; retrying");
            false
        }
        Err(status) => {
            tracing::warn!(execution_id, error = %status, "checkpoint not saved: the server refused it");
            true
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a file with this number, written at this second.
    fn save(number: u64) -> Save {
        let unix_seconds = number.cast_signed();
        let data = b"x".as_slice().into();
        Save { execution_id: "one".into(), fence: 1, number, data, unix_seconds, nanos: 0 }
    }

    #[test]
    fn a_newer_file_replaces_a_waiting_one_and_order_is_kept() {
        let waiting = UploadStates::default();
        let first = waiting.put(save(1)).unwrap();
        assert_eq!((waiting.put(save(2)), waiting.put(save(3))), (None, None));
        let third = waiting.after(first, false).unwrap();
        assert_eq!(third.number, 3);
        let again = waiting.after(third, false).unwrap();
        assert_eq!(again.number, 3, "a temporary failure is retried");
        assert_eq!(waiting.after(again, true), None);
        assert!(waiting.lock().is_empty());
        assert_eq!(waiting.put(save(4)), Some(save(4)), "the next file starts a new upload");
    }

    #[test]
    fn a_call_supersedes_only_the_files_written_before_it() {
        let waiting = UploadStates::default();
        let first = waiting.put(save(1)).unwrap();
        let call = waiting.call("one");
        assert!(!waiting.is_superseded(&first));
        call.supersede((2, 0));
        waiting.call("another").supersede((9, 0));
        assert!(waiting.is_superseded(&first));
        // File 2 was written before the call, because the supervisor does not know of the call yet; file 3 was
        // written after it.
        assert_eq!(waiting.put(save(2)), None);
        let second = waiting.after(first, true).unwrap();
        assert!(waiting.is_superseded(&second));
        assert_eq!(waiting.put(save(3)), None);
        let third = waiting.after(second, true).unwrap();
        assert!(third.number == 3 && !waiting.is_superseded(&third));
        assert_eq!(waiting.after(third, true), None);
        drop(call);
        assert!(waiting.lock().is_empty());
    }

    #[tokio::test]
    async fn a_call_waits_for_the_current_file_and_the_next_file_waits_for_the_call() {
        let waiting = UploadStates::default();
        let first = waiting.put(save(1)).unwrap();
        let sending = waiting.turn("one").await;
        let call = waiting.call("one");
        let mut calling = Box::pin(call.turn());
        assert!(ready_now(calling.as_mut()).is_none(), "a file is being sent");
        drop(sending);
        let turn = calling.await;
        assert_eq!(waiting.put(save(2)), None);
        assert_eq!(waiting.after(first, true).unwrap().number, 2);
        let mut next = Box::pin(waiting.turn("one"));
        assert!(ready_now(next.as_mut()).is_none(), "the supervisor does not know of the call yet");
        drop(turn);
        next.await;
    }

    /// Polls a future once and returns its output if it is ready.
    fn ready_now<F: Future>(future: std::pin::Pin<&mut F>) -> Option<F::Output> {
        match future.poll(&mut std::task::Context::from_waker(std::task::Waker::noop())) {
            std::task::Poll::Ready(output) => Some(output),
            std::task::Poll::Pending => None,
        }
    }
}
