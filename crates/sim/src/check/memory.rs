//! What the rules remember of requests and ended jobs from one slice of a history to the next.
//!
//! The job rules fill it, and [`slices`](super::slices) keeps it while it drops the events of ended jobs. A history
//! that is judged as a whole starts with an empty one.

use foldhash::fast::FixedState;
use indexmap::{IndexMap, IndexSet};
use model::{JobId, Timestamp};

type Set<T> = IndexSet<T, FixedState>;

/// Known requests, and objects whose events were dropped.
#[derive(Debug, Default)]
pub(super) struct Memory {
    /// Jobs that have ended.
    pub(super) jobs: Set<JobId>,
    /// Requests, by the tag of their job.
    pub(super) tags: IndexMap<Box<str>, Tag, FixedState>,
    /// Job of each idempotency key, with the index of the answer that named it.
    pub(super) keys: IndexMap<Box<str>, (JobId, usize), FixedState>,
}

/// A request to submit a job.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tag {
    pub(super) asked_at: Timestamp,
    pub(super) has_key: bool,
    /// Its job, with the index of the job's first row.
    pub(super) made: Option<(JobId, usize)>,
}
