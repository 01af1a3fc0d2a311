//! Bytes of log ids, votes and memberships.
//!
//! Log ids and votes have a fixed length, little endian, and are part of larger records with a checksum. A membership is
//! a postcard struct of our own.

use std::collections::{BTreeMap, BTreeSet};

use openraft::{CommittedLeaderId, LogId as OpenraftLogId};
use serde::{Deserialize, Serialize};

use crate::types::{LogId, Membership, NodeId, Peer, Vote};

/// Length of a log id.
pub(crate) const LOG_ID_BYTES: usize = 24;
/// Length of an optional log id: a byte that says whether there is one, then the log id.
pub(crate) const OPTIONAL_LOG_ID_BYTES: usize = 1 + LOG_ID_BYTES;
/// Length of an optional vote: a byte (0 none, 1 uncommitted, 2 committed), then term and node.
pub(crate) const OPTIONAL_VOTE_BYTES: usize = 1 + 16;

pub(crate) fn log_id(term: u64, node: NodeId, index: u64) -> LogId {
    OpenraftLogId::new(CommittedLeaderId::new(term, node), index)
}

pub(crate) fn put_log_id(id: &LogId, bytes: &mut Vec<u8>) {
    for number in [id.leader_id.term, id.leader_id.node_id.0, id.index] {
        bytes.extend(number.to_le_bytes());
    }
}

pub(crate) fn put_optional_log_id(id: Option<&LogId>, bytes: &mut Vec<u8>) {
    bytes.push(u8::from(id.is_some()));
    put_log_id(id.unwrap_or(&LogId::default()), bytes);
}

pub(crate) fn put_optional_vote(vote: Option<&Vote>, bytes: &mut Vec<u8>) {
    bytes.push(vote.map_or(0, |vote| 1 + u8::from(vote.committed)));
    let leader = vote.map(|vote| vote.leader_id).unwrap_or_default();
    bytes.extend(leader.term.to_le_bytes());
    bytes.extend(leader.node_id.0.to_le_bytes());
}

/// Takes values from the front of a record. Every method returns `None` at the end of the bytes or for an invalid value.
pub(crate) struct Take<'a>(pub(crate) &'a [u8]);

impl Take<'_> {
    pub(crate) fn bytes<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*taken)
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.bytes().map(u8::from_le_bytes)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.bytes().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.bytes().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.bytes().map(u64::from_le_bytes)
    }

    pub(crate) fn u128(&mut self) -> Option<u128> {
        self.bytes().map(u128::from_le_bytes)
    }

    pub(crate) fn log_id(&mut self) -> Option<LogId> {
        Some(log_id(self.u64()?, NodeId(self.u64()?), self.u64()?))
    }

    pub(crate) fn optional_log_id(&mut self) -> Option<Option<LogId>> {
        let is_some = self.u8()?;
        let id = self.log_id()?;
        match is_some {
            0 => Some(None),
            1 => Some(Some(id)),
            _ => None,
        }
    }

    pub(crate) fn optional_vote(&mut self) -> Option<Option<Vote>> {
        let kind = self.u8()?;
        let (term, node) = (self.u64()?, NodeId(self.u64()?));
        match kind {
            0 => Some(None),
            1 => Some(Some(Vote::new(term, node))),
            2 => Some(Some(Vote::new_committed(term, node))),
            _ => None,
        }
    }
}

/// A membership in an entry. New fields are added at the end, in a new version of the entry's kind.
#[derive(Serialize, Deserialize)]
struct MembershipRow {
    configs: Vec<BTreeSet<NodeId>>,
    nodes: BTreeMap<NodeId, Peer>,
}

pub(crate) fn encode_membership(membership: &Membership) -> Vec<u8> {
    let row = MembershipRow {
        configs: membership.get_joint_config().clone(),
        nodes: membership.nodes().map(|(id, peer)| (*id, peer.clone())).collect(),
    };
    postcard::to_stdvec(&row)
        .expect("a membership contains only numbers, texts and lists, which postcard encodes")
}

/// # Errors
/// If the bytes are no membership.
pub(crate) fn decode_membership(bytes: &[u8]) -> Result<Membership, postcard::Error> {
    let row: MembershipRow = postcard::from_bytes(bytes)?;
    Ok(Membership::new(row.configs, row.nodes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_ids_and_votes_keep_their_values() {
        let id = log_id(7, NodeId(u64::MAX), 9);
        let votes = [None, Some(Vote::new(3, NodeId(4))), Some(Vote::new_committed(5, NodeId(6)))];
        for vote in votes {
            for id in [None, Some(id)] {
                let mut bytes = Vec::new();
                put_optional_log_id(id.as_ref(), &mut bytes);
                put_optional_vote(vote.as_ref(), &mut bytes);
                assert_eq!(bytes.len(), OPTIONAL_LOG_ID_BYTES + OPTIONAL_VOTE_BYTES);
                let mut take = Take(&bytes);
                assert_eq!((take.optional_log_id(), take.optional_vote()), (Some(id), Some(vote)));
                assert_eq!(take.u8(), None);
            }
        }
    }

    #[test]
    fn a_membership_keeps_its_voters_and_learners() {
        let peer =
            |name: &str| Peer { address: format!("{name}:7733"), fingerprint: [7; 32], name: name.into() };
        let nodes = BTreeMap::from([1, 2, 3, 4].map(|id| (NodeId(id), peer(&format!("server-{id}")))));
        let (before, after) =
            (BTreeSet::from([NodeId(1), NodeId(2)]), BTreeSet::from([NodeId(2), NodeId(3)]));
        let membership = Membership::new(vec![before, after], nodes);
        assert_eq!(decode_membership(&encode_membership(&membership)), Ok(membership.clone()));
        // Damage is an error or another membership, but never a panic.
        let bytes = encode_membership(&membership);
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x80;
            let _ = decode_membership(&damaged);
            assert!(decode_membership(&bytes[..at]).is_err());
        }
    }
}
