//! Why a node refuses what its server asks.

use std::time::Duration;

use crate::log;
use crate::machine::MachineError;
use crate::types::{LogId, NodeId};

/// Why a node was not opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The log was not opened.
    #[error(transparent)]
    Log(#[from] log::OpenError),
    /// The machine failed.
    #[error("cannot open the state of this server")]
    Machine(#[from] MachineError),
    /// The file system reported an error.
    #[error(transparent)]
    Io(#[from] log::Failure),
    /// Entries that the machine has not applied are no longer in the log.
    #[error(
        "the state of this server ends with entry {}, but its log begins after entry {purged}",
        applied.map_or_else(|| "none".to_owned(), |applied| applied.to_string())
    )]
    Gap {
        /// Last entry that the machine has applied.
        applied: Option<LogId>,
        /// Last entry that was removed from the log.
        purged: LogId,
    },
    /// openraft did not start.
    #[error("cannot start the Raft core: {reason}")]
    Core {
        /// What openraft reported.
        reason: String,
    },
}

impl OpenError {
    /// Returns what the operator can do next.
    pub fn help(&self) -> &'static str {
        match self {
            Self::Log(error) => error.help(),
            Self::Machine(_) | Self::Gap { .. } => {
                "remove this server from the cluster, and let it join again with an empty folder"
            }
            Self::Io(_) => "check the volume and the permissions of the folder",
            Self::Core { .. } => "read the log of the server for the cause",
        }
    }
}

/// Why an operation has no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProposeError {
    /// This node is not the leader. Nothing was changed.
    #[error("this server does not lead the cluster")]
    NotLeader {
        /// The leader, if it is known.
        leader: Option<NodeId>,
    },
    /// Nothing was changed; the operation can be repeated later.
    #[error("cannot write now: {reason}")]
    Unavailable {
        /// Why not.
        reason: &'static str,
    },
    /// Nothing was changed.
    #[error("a group of {bytes} bytes is too large")]
    TooLarge {
        /// Size of the encoded group.
        bytes: usize,
    },
    /// The operation may have been applied.
    #[error("the outcome of a write is unknown: {reason}")]
    Unknown {
        /// What happened.
        reason: &'static str,
    },
    /// The node has stopped. The operation may have been applied.
    #[error("this server has stopped")]
    Stopped,
}

/// Why a read cannot be served.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// No leader confirmed its position in time.
    #[error("no leader answered within {waited:?}")]
    NoLeader {
        /// How long the read has waited.
        waited: Duration,
    },
    /// The node has stopped.
    #[error("this server has stopped")]
    Stopped,
}

/// Why the leadership was not transferred.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TransferError {
    /// This node is not the leader.
    #[error("this server does not lead the cluster")]
    NotLeader,
    /// Another transfer is under way.
    #[error("the leadership is already being transferred")]
    InProgress,
    /// No other voter can lead.
    #[error("no other voter of the cluster can lead")]
    NoTarget,
    /// The target does not have all entries.
    #[error("node `{node}` lacks entries of the log")]
    NotCaughtUp {
        /// The target.
        node: NodeId,
    },
    /// The target cannot be reached.
    #[error("cannot reach node `{node}`: {reason}")]
    Unreachable {
        /// The target.
        node: NodeId,
        /// What happened.
        reason: String,
    },
    /// No other node led in time; this node tries to continue.
    #[error("node `{node}` was not elected within {waited:?}")]
    NotElected {
        /// The target.
        node: NodeId,
        /// How long this node has waited.
        waited: Duration,
    },
    /// The node has stopped.
    #[error("this server has stopped")]
    Stopped,
}

/// Why the members were not changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MembershipError {
    /// This node is not the leader. Nothing was changed.
    #[error("this server does not lead the cluster")]
    NotLeader {
        /// The leader, if it is known.
        leader: Option<NodeId>,
    },
    /// There is no such member.
    #[error("node `{node}` is no member of the cluster")]
    Unknown {
        /// The node.
        node: NodeId,
    },
    /// A majority did not confirm the change in time. It may take effect.
    #[error("a majority of the servers did not confirm the change in time")]
    OutcomeUnknown,
    /// Another change did not end in time. Nothing was changed.
    #[error("another change of the members of the cluster is under way")]
    InProgress,
    /// The change is not possible now. Nothing was changed.
    #[error("cannot change the members of the cluster: {reason}")]
    Refused {
        /// Why not.
        reason: String,
    },
    /// The node has stopped. The change may take effect.
    #[error("this server has stopped")]
    Stopped,
}
