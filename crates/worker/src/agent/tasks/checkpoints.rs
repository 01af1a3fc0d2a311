//! Checkpoints on their way to the server.
//!
//! Those of one execution go one after the other, so that an older one never comes behind a newer. What a task
//! wrote to its file is tried until the server took it or never will; a newer file takes the place of one that
//! still waits.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use proto::v1::SaveCheckpointRequest;
use tokio::task::JoinSet;

use super::Upstream;
use crate::agent::artifacts::may_pass;
use crate::agent::connect::Backoff;
use crate::link::{Request, Save, Saved};

/// Files that are being saved; given up together with the link.
#[derive(Debug)]
pub(in super::super) struct Saves {
    upstream: Upstream,
    tasks: JoinSet<()>,
    waiting: Waiting,
}

/// For each execution of which something is being saved, what comes next.
#[derive(Debug, Clone, Default)]
struct Waiting(Arc<Mutex<HashMap<String, Option<Save>>>>);

impl Waiting {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Option<Save>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a file; gives it back if nothing else of its execution is being saved.
    fn put(&self, save: Save) -> Option<Save> {
        let mut waiting = self.lock();
        match waiting.get_mut(&save.execution_id) {
            Some(next) => {
                *next = Some(save);
                None
            }
            None => {
                waiting.insert(save.execution_id.clone(), None);
                Some(save)
            }
        }
    }

    /// What is to be tried after `tried`; nothing once there is nothing left.
    fn after(&self, tried: Save, is_settled: bool) -> Option<Save> {
        let mut waiting = self.lock();
        let newer = waiting.get_mut(&tried.execution_id).and_then(Option::take);
        match newer {
            Some(newer) => Some(newer),
            None if is_settled => {
                waiting.remove(&tried.execution_id);
                None
            }
            None => Some(tried),
        }
    }
}

impl Saves {
    pub(in super::super) fn new(upstream: Upstream) -> Self {
        Self { upstream, tasks: JoinSet::new(), waiting: Waiting::default() }
    }

    /// Begins to save a file.
    pub(in super::super) fn begin(&mut self, save: Save) {
        while self.tasks.try_join_next().is_some() {}
        if let Some(first) = self.waiting.put(save) {
            self.tasks.spawn(save_in_turn(self.upstream.clone(), self.waiting.clone(), first));
        }
    }
}

/// Saves the files of one execution, until there is none left.
async fn save_in_turn(upstream: Upstream, waiting: Waiting, first: Save) {
    let mut backoff = Backoff::default();
    let mut next = Some(first);
    while let Some(save) = next {
        let is_settled = is_settled(&upstream, &save).await;
        if is_settled {
            let saved = Saved { execution_id: save.execution_id.clone(), number: save.number };
            upstream.shared.tell(Request::Saved(saved)).await;
            backoff = Backoff::default();
        } else {
            backoff.wait().await;
        }
        next = waiting.after(save, is_settled);
    }
}

/// Whether a file is saved, or never will be.
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
        Err(status) if may_pass(&status) => {
            tracing::debug!(execution_id, %status, "a checkpoint is not saved yet");
            false
        }
        Err(status) => {
            tracing::warn!(execution_id, %status, "a checkpoint is not saved");
            true
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn save(number: u64) -> Save {
        Save { execution_id: "one".into(), fence: 1, number, data: b"x".as_slice().into() }
    }

    #[test]
    fn a_newer_file_takes_the_place_of_one_that_waits_and_none_overtakes() {
        let waiting = Waiting::default();
        let first = waiting.put(save(1)).unwrap();
        assert_eq!((waiting.put(save(2)), waiting.put(save(3))), (None, None));
        let third = waiting.after(first, false).unwrap();
        assert_eq!(third.number, 3);
        let again = waiting.after(third, false).unwrap();
        assert_eq!(again.number, 3, "what may pass is tried again");
        assert_eq!(waiting.after(again, true), None);
        assert_eq!(waiting.put(save(4)), Some(save(4)), "the next one begins anew");
    }
}
