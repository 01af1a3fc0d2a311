//! Why a session with a server ended, as [`session`](super::session) logs it and chooses the next server by it.

use std::time::Duration;

use tonic::Status;

/// Where the server is that decides, in a refusal of one that does not.
const LEADER: &str = "belfry-leader";

/// Why a session ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum SessionError {
    #[error("could not connect")]
    Connect(#[from] tonic::transport::Error),
    #[error("the server ended the call")]
    Status(#[from] Status),
    #[error("the server closed the session")]
    Closed,
    #[error("the server did not answer within {0:?}")]
    Silent(Duration),
    #[error("the server began with something else than a welcome")]
    NoWelcome,
    #[error("the server does not know this session any more")]
    Unknown,
    #[error("the server has answered no heartbeat for two thirds of the lease")]
    NoLease,
    #[error("the supervisor is gone")]
    NoSupervisor,
}

impl SessionError {
    /// Where the server is that decides, if the one that was asked says so.
    pub(super) fn leader(&self) -> Option<&str> {
        match self {
            Self::Status(status) => status.metadata().get(LEADER)?.to_str().ok(),
            _ => None,
        }
    }

    /// Whether the server did not answer at all.
    pub(super) fn is_silence(&self) -> bool {
        matches!(self, Self::Connect(_) | Self::Silent(_) | Self::NoLease)
    }
}
