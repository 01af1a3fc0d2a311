//! The types with which openraft is used.
//!
//! The log stores entries of every configuration of openraft that is [`Types`]. So it depends neither on the answers of
//! a state machine nor on the form of a snapshot, and a simulation can use it with another state machine.

use std::fmt;
use std::sync::Arc;

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
#[derive(Clone, PartialEq, Eq)]
pub struct Payload(pub Arc<[u8]>);

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Payload({} bytes)", self.0.len())
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
