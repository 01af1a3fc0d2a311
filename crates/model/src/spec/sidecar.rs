//! Sidecars: programs that run beside the process of a task.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::TcpCheck;
use crate::time::Duration;

fn default_ready_timeout() -> Duration {
    Duration::from_secs(60)
}

fn default_grace() -> Duration {
    Duration::from_secs(10)
}

/// A program that runs beside the process of a task, for its duration: for example, a database for a test.
///
/// It starts before the process and its `pre_start` commands, and stops after its `post_stop` commands. It runs in the same
/// directory, with the same user, environment variables, log and limits. If it exits before the process, that is said in the log,
/// and it is not restarted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Sidecar {
    /// Name of the sidecar, for messages; unique within the job.
    pub name: String,
    /// Program and arguments, passed unchanged and without a shell.
    pub command: Vec<String>,
    /// Check that must succeed before the next sidecar and the process are started. It is repeated until then [default: none].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready: Option<SidecarCheck>,
    /// Time in which the sidecar must be ready. After it, the execution fails [default: `1m`].
    #[serde(default = "default_ready_timeout")]
    pub ready_timeout: Duration,
    /// Time between SIGTERM and SIGKILL when the sidecar is stopped, within the grace period of the job [default: `10s`].
    #[serde(default = "default_grace")]
    pub grace: Duration,
}

/// Check whether a sidecar is ready.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum SidecarCheck {
    /// A TCP connection can be opened.
    Tcp(TcpCheck),
    /// A command exits with 0.
    Command(Vec<String>),
}
