//! The configuration of openraft for the nodes of a machine.

use std::cmp::Ordering;
use std::fmt;
use std::marker::PhantomData;

use openraft::RaftTypeConfig;
use openraft::impls::OneshotResponder;

use super::{Applied, Machine, SnapshotData};
use crate::runtime::PatientTokio;
use crate::types::{NodeId, Payload, Peer};

/// The configuration of openraft for the nodes of a machine.
pub struct Belfry<M>(PhantomData<fn() -> M>);

impl<M: Machine> RaftTypeConfig for Belfry<M> {
    type D = Payload;
    type R = Applied<M::Answer>;
    type NodeId = NodeId;
    type Node = Peer;
    type Entry = openraft::Entry<Self>;
    type SnapshotData = SnapshotData<M>;
    type AsyncRuntime = PatientTokio;
    type Responder = OneshotResponder<Self>;
}

// Derived implementations would demand the same of the machine. All values are equal.
impl<M> Clone for Belfry<M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M> Copy for Belfry<M> {}

impl<M> Default for Belfry<M> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<M> fmt::Debug for Belfry<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Belfry")
    }
}

impl<M> PartialEq for Belfry<M> {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl<M> Eq for Belfry<M> {}

impl<M> PartialOrd for Belfry<M> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<M> Ord for Belfry<M> {
    fn cmp(&self, _: &Self) -> Ordering {
        Ordering::Equal
    }
}
