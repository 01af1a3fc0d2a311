//! The batches that are being committed.
//!
//! While one batch is being committed, the engine collects inputs for the next one, so a slower store gets larger
//! batches (group commit without a timer). Under load, further batches are sent ahead, up to the limit of the store,
//! so that the store never waits for the engine. Answers may arrive in any order; effects are released in the order
//! of the batches.

use std::collections::VecDeque;
use std::sync::Arc;

use engine::Effect;
use model::Timestamp;
use model::record::Batch;

use crate::event::{CallId, Committed, Failure};

/// A batch that is being committed, with the effects that its commit releases.
#[derive(Debug)]
pub(crate) struct InFlightCommit {
    pub(crate) number: u64,
    /// The call; `None` while the batch waits for free space in the store.
    pub(crate) call: Option<CallId>,
    pub(crate) batch: Arc<Batch>,
    pub(crate) effects: Vec<Effect>,
    /// Steady time of the sending: a lease that the commit extends counts from here.
    pub(crate) sent_at: Timestamp,
    /// The answer, held until all earlier commits are answered.
    pub(crate) answer: Option<Result<Committed, Failure>>,
}

/// In-flight commits, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Commits {
    queue: VecDeque<InFlightCommit>,
}

impl Commits {
    pub(crate) fn push(&mut self, commit: InFlightCommit) {
        self.queue.push_back(commit);
    }

    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub(crate) fn newest(&self) -> Option<&InFlightCommit> {
        self.queue.back()
    }

    pub(crate) fn newest_mut(&mut self) -> Option<&mut InFlightCommit> {
        self.queue.back_mut()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut InFlightCommit> {
        self.queue.iter_mut()
    }

    /// Records the answer to a call. Returns `false` if the call is not a commit.
    pub(crate) fn answered(&mut self, call: CallId, answer: Result<Committed, Failure>) -> bool {
        let commit = self.queue.iter_mut().find(|commit| commit.call == Some(call));
        commit.map(|commit| commit.answer = Some(answer)).is_some()
    }

    /// Whether a commit has failed, and earlier ones are not answered yet.
    pub(crate) fn has_failed(&self) -> bool {
        self.queue.iter().any(|commit| matches!(commit.answer, Some(Err(_))))
    }

    /// Removes and returns the oldest commit, if it is answered.
    pub(crate) fn pop_answered(&mut self) -> Option<(InFlightCommit, Result<Committed, Failure>)> {
        let answer = self.queue.front_mut()?.answer.take()?;
        self.queue.pop_front().map(|commit| (commit, answer))
    }

    /// Puts back a commit that was the oldest.
    pub(crate) fn put_back(&mut self, commit: InFlightCommit) {
        self.queue.push_front(commit);
    }

    pub(crate) fn drain(&mut self) -> impl DoubleEndedIterator<Item = InFlightCommit> {
        self.queue.drain(..)
    }
}
