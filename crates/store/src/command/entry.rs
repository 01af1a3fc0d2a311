//! Entries of a log, and the answers to their commands.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Refused, Reply};

/// Position of an entry in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct LogPosition {
    /// Term of the leader that proposed the entry.
    pub term: u64,
    /// That leader.
    pub node: u64,
    /// Index of the entry.
    pub index: u64,
}

impl LogPosition {
    /// Returns the leader that proposed the entry.
    pub(crate) fn leader(self) -> (u64, u64) {
        (self.term, self.node)
    }
}

/// Entry of a log, to apply.
#[derive(Debug, Clone)]
pub struct Entry {
    /// Position of the entry.
    pub position: LogPosition,
    /// Content of the entry.
    pub content: Content,
}

/// Content of an entry.
#[derive(Debug, Clone)]
pub enum Content {
    /// First entry of a leader.
    Blank,
    /// New membership; the replica keeps its bytes and does not read them.
    Membership(Arc<[u8]>),
    /// Commands, as [`GroupBuilder`](super::GroupBuilder) encodes them.
    Group(Arc<[u8]>),
}

/// Answers to the commands of each entry, in their order.
pub type Answers = Vec<Vec<Result<Reply, Refused>>>;
