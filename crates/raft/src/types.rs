//! The types with which openraft is used.
//!
//! The log stores entries of every configuration of openraft that is [`Types`]. So it depends neither on the answers of
//! a state machine nor on the form of a snapshot, and a simulation can use it with another state machine.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{self, AtomicBool};

use openraft::RaftTypeConfig;
use serde::{Deserialize, Serialize};

/// Id of a server in a cluster. It is drawn at random when the data folder is created, and never used again: a server
/// whose folder was lost gets a new id, because it no longer knows for whom it voted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NodeId(pub u64);

impl From<u64> for NodeId {
    fn from(id: u64) -> Self {
        Self(id)
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// A server of the cluster, as its membership describes it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peer {
    /// `HOST:PORT` at which the other servers reach this one.
    pub address: String,
    /// SHA-256 of the server's public key.
    pub fingerprint: [u8; 32],
    /// Name for people.
    pub name: String,
}

/// A group of commands, encoded. The log stores it unread.
#[derive(Clone)]
pub struct Payload {
    /// The bytes of the group, or of a part of it.
    pub bytes: Arc<[u8]>,
    /// Set when the log takes the entry. openraft reports an entry that it refused and one that it removed again with the same
    /// error, but only the latter may still be committed by another leader.
    written: Option<Arc<AtomicBool>>,
}

impl Payload {
    /// Returns a payload, and a flag that tells whether the log has taken it.
    pub(crate) fn observed(bytes: Arc<[u8]>) -> (Self, Arc<AtomicBool>) {
        let written = Arc::new(AtomicBool::new(false));
        (Self { bytes, written: Some(Arc::clone(&written)) }, written)
    }

    /// Takes the bytes into the log.
    pub(crate) fn into_written(self) -> Arc<[u8]> {
        if let Some(written) = self.written {
            written.store(true, atomic::Ordering::SeqCst);
        }
        self.bytes
    }
}

impl From<Arc<[u8]>> for Payload {
    fn from(bytes: Arc<[u8]>) -> Self {
        Self { bytes, written: None }
    }
}

impl PartialEq for Payload {
    fn eq(&self, other: &Self) -> bool {
        self.bytes == other.bytes
    }
}

impl Eq for Payload {}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Payload({} bytes)", self.bytes.len())
    }
}

/// Position of an entry: the leader that proposed it, and its index.
pub type LogId = openraft::LogId<NodeId>;
/// The leader that a server votes for, and whether a majority has elected it.
pub type Vote = openraft::Vote<NodeId>;
/// Voters and learners of the cluster.
pub type Membership = openraft::Membership<NodeId, Peer>;

/// Configurations of openraft whose entries the log stores.
pub trait Types:
    RaftTypeConfig<D = Payload, NodeId = NodeId, Node = Peer, Entry = openraft::Entry<Self>>
{
}

impl<C> Types for C where
    C: RaftTypeConfig<D = Payload, NodeId = NodeId, Node = Peer, Entry = openraft::Entry<C>>
{
}

/// Permission of a leader to elect another node within the lease of the voters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Permit {
    /// Vote of the leader that transfers its leadership.
    pub(crate) leader: Vote,
    /// Number of the transfer, from 1, in this leadership.
    pub(crate) number: u32,
}
