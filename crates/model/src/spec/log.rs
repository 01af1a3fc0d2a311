//! The part of a job's output that is kept.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::limits;
use crate::quantity::Bytes;

/// How much of the log of each execution is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LogPolicy {
    /// Maximum size of the kept log of each execution, from 1 MiB to 1 GiB [default: `64MiB`].
    pub max_size: Bytes,
    /// Part of a larger log that is kept [default: `newest` for replicas of services, otherwise `first_and_last`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep: Option<LogKeep>,
}

impl Default for LogPolicy {
    fn default() -> Self {
        Self { max_size: Bytes(limits::LOG_BYTES_MAX), keep: None }
    }
}

impl LogPolicy {
    /// Returns whether the oldest output is removed while the task runs.
    pub fn is_rotated(&self) -> bool {
        self.keep == Some(LogKeep::Newest)
    }
}

/// Part of a log that is kept if the log is larger than its maximum size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum LogKeep {
    /// The first and the last half of the maximum size. The last half is stored when the execution has ended.
    FirstAndLast,
    /// The newest output. Older output is removed while the task runs.
    Newest,
}

crate::status::words! { LogKeep, "a part of a log", {
    FirstAndLast = "first_and_last";
    Newest = "newest";
} }
