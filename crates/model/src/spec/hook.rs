//! Hooks: commands before and after the process of a task.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::time::Duration;

/// A command that runs before or after the process of a task, in the same directory, with the same user and environment
/// variables. It counts towards the timeout and the limits of the job, and its output is in the log.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Hook {
    /// Program and arguments, passed unchanged and without a shell.
    pub command: Vec<String>,
    /// Time after which the command is killed and counts as failed [default: none].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Duration>,
}
