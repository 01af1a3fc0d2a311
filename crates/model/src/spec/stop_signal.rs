//! The signal that asks a task to stop.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Signal that asks a task to stop. After the grace period, it gets SIGKILL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, ToSchema)]
pub enum StopSignal {
    /// The usual request to terminate.
    #[default]
    #[serde(rename = "SIGTERM")]
    Term,
    /// The signal of Ctrl-C.
    #[serde(rename = "SIGINT")]
    Int,
    /// For example, nginx and PHP-FPM finish their requests.
    #[serde(rename = "SIGQUIT")]
    Quit,
    /// The signal of a closed terminal.
    #[serde(rename = "SIGHUP")]
    Hup,
    /// Defined by the program.
    #[serde(rename = "SIGUSR1")]
    Usr1,
    /// Defined by the program.
    #[serde(rename = "SIGUSR2")]
    Usr2,
    /// For example, Apache HTTP Server finishes its requests.
    #[serde(rename = "SIGWINCH")]
    Winch,
}

crate::status::words! { StopSignal, "a stop signal", {
    Term = "SIGTERM";
    Int = "SIGINT";
    Quit = "SIGQUIT";
    Hup = "SIGHUP";
    Usr1 = "SIGUSR1";
    Usr2 = "SIGUSR2";
    Winch = "SIGWINCH";
} }
