//! Why a session with a server ended. [`session`](super::session) logs the error and selects the next server by it.

use std::time::Duration;

use tonic::Status;

/// Metadata key with the address of the leader, in an error of a standby.
const LEADER: &str = "belfry-leader";

/// Why a session ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum SessionError {
    #[error("cannot connect to the server")]
    Connect(#[from] tonic::transport::Error),
    #[error("the server ended the session with an error")]
    Status(#[from] Status),
    #[error("the server closed the session")]
    Closed,
    #[error("no response from the server within {0:?}")]
    Timeout(Duration),
    #[error("malformed message from the server: expected `welcome` first")]
    NoWelcome,
    #[error("the session has ended on the server")]
    Unknown,
    #[error("no heartbeat was acknowledged for two thirds of the lease")]
    NoLease,
    #[error("the connection to the supervisor was lost")]
    NoSupervisor,
    #[error("the runtimes of the machine have changed")]
    RuntimesChanged,
}

impl SessionError {
    /// Returns the address of the leader, if the standby reported it.
    pub(super) fn leader(&self) -> Option<&str> {
        match self {
            Self::Status(status) => status.metadata().get(LEADER)?.to_str().ok(),
            _ => None,
        }
    }

    /// Returns whether the server did not respond.
    pub(super) fn is_unresponsive(&self) -> bool {
        matches!(self, Self::Connect(_) | Self::Timeout(_) | Self::NoLease)
    }
}
