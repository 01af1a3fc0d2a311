//! What the rules remember of requests and ended jobs from one slice of a history to the next.
//!
//! The rules about jobs fill it, and [`slices`](super::slices) keeps it while it drops the events of what is over. A
//! history that is judged as a whole has one that starts empty.

use foldhash::fast::FixedState;
use indexmap::{IndexMap, IndexSet};
use model::{JobId, Timestamp};

type Set<T> = IndexSet<T, FixedState>;

/// What is known of requests, and of things that were left out.
#[derive(Debug, Default)]
pub(super) struct Memory {
    /// Jobs that are over.
    pub(super) jobs: Set<JobId>,
    /// By the name that a request gives its job.
    pub(super) tags: IndexMap<Box<str>, Tag, FixedState>,
    /// The job of each key, and where that was told.
    pub(super) keys: IndexMap<Box<str>, (JobId, usize), FixedState>,
}

/// A request for a job.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tag {
    pub(super) asked_at: Timestamp,
    pub(super) has_key: bool,
    /// Its job, and where that was made.
    pub(super) made: Option<(JobId, usize)>,
}
