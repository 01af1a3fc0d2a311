//! Requests and answers of nodes, as bytes.
//!
//! The structs are our own and never those of openraft, so an upgrade of openraft does not change the wire. Small messages
//! are postcard; entries have a checksum each.

use std::io;
use std::sync::Arc;

use openraft::EntryPayload;
use openraft::raft::{AppendEntriesRequest, AppendEntriesResponse, VoteRequest, VoteResponse};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::codec::{
    Take, decode_membership, encode_membership, log_id, put_log_id, put_optional_log_id, put_optional_vote,
};
use crate::machine::Belfry;
use crate::machine::Machine;
use crate::types::Permit;
use crate::types::{LogId, NodeId, Payload, Vote};

/// Version of the frames and messages.
pub(crate) const PROTOCOL: u16 = 1;

/// Kinds of requests. An answer has the kind of its request, or [`ERROR`].
pub(crate) const HELLO: u8 = 0;
pub(crate) const APPEND: u8 = 1;
pub(crate) const VOTE: u8 = 2;
pub(crate) const PRE_VOTE: u8 = 3;
pub(crate) const TRANSFER: u8 = 4;
pub(crate) const READ_INDEX: u8 = 5;
pub(crate) const PROPOSE: u8 = 6;
pub(crate) const ANNOUNCE: u8 = 7;
pub(crate) const SNAPSHOT_OFFER: u8 = 8;
pub(crate) const SNAPSHOT_CHUNK: u8 = 9;
pub(crate) const SNAPSHOT_DONE: u8 = 10;
pub(crate) const MEMBERS: u8 = 11;
pub(crate) const ERROR: u8 = 255;

/// Why a node did not answer a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Refusal {
    /// A vote is under way, or was while the request arrived. The request may have been handled; it can be repeated.
    Voting,
    /// The node is not the leader. Nothing was changed.
    NotLeader(Option<NodeId>),
    /// The node cannot serve the request now. Nothing was changed.
    Unavailable,
    /// The node has stopped, or the outcome is unknown.
    Stopped,
    /// The request is not valid.
    Invalid,
}

/// The body of [`ERROR`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Refused {
    pub(crate) refusal: Refusal,
    pub(crate) text: String,
}

impl Refused {
    pub(crate) fn new(refusal: Refusal, text: impl Into<String>) -> Self {
        Self { refusal, text: text.into() }
    }

    pub(crate) fn invalid(error: &io::Error) -> Self {
        Self::new(Refusal::Invalid, error.to_string())
    }
}

/// First message in both directions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Hello {
    pub(crate) protocol: u16,
    pub(crate) cluster: u128,
    pub(crate) node: NodeId,
    pub(crate) last: Option<LogIdRow>,
}

/// A log id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LogIdRow(u64, NodeId, u64);

impl From<LogId> for LogIdRow {
    fn from(id: LogId) -> Self {
        Self(id.leader_id.term, id.leader_id.node_id, id.index)
    }
}

impl From<LogIdRow> for LogId {
    fn from(LogIdRow(term, node, index): LogIdRow) -> Self {
        log_id(term, node, index)
    }
}

/// A vote.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct VoteRow(u64, NodeId, bool);

impl From<Vote> for VoteRow {
    fn from(vote: Vote) -> Self {
        Self(vote.leader_id.term, vote.leader_id.node_id, vote.committed)
    }
}

impl From<VoteRow> for Vote {
    fn from(VoteRow(term, node, committed): VoteRow) -> Self {
        if committed { Self::new_committed(term, node) } else { Self::new(term, node) }
    }
}

/// A permit of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PermitRow(VoteRow, u32);

impl From<Permit> for PermitRow {
    fn from(permit: Permit) -> Self {
        Self(permit.leader.into(), permit.number)
    }
}

impl From<PermitRow> for Permit {
    fn from(PermitRow(leader, number): PermitRow) -> Self {
        Self { leader: leader.into(), number }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct VoteMessage {
    vote: VoteRow,
    last: Option<LogIdRow>,
    pub(crate) permit: Option<PermitRow>,
}

impl VoteMessage {
    pub(crate) fn new(request: &VoteRequest<NodeId>, permit: Option<Permit>) -> Self {
        let last = request.last_log_id.map(LogIdRow::from);
        Self { vote: request.vote.into(), last, permit: permit.map(PermitRow::from) }
    }

    pub(crate) fn request(self) -> VoteRequest<NodeId> {
        VoteRequest::new(self.vote.into(), self.last.map(LogId::from))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct VoteAnswer {
    vote: VoteRow,
    last: Option<LogIdRow>,
    granted: bool,
}

impl From<VoteResponse<NodeId>> for VoteAnswer {
    fn from(response: VoteResponse<NodeId>) -> Self {
        let VoteResponse { vote, vote_granted, last_log_id } = response;
        Self { vote: vote.into(), last: last_log_id.map(LogIdRow::from), granted: vote_granted }
    }
}

impl From<VoteAnswer> for VoteResponse<NodeId> {
    fn from(answer: VoteAnswer) -> Self {
        let vote = Vote::from(answer.vote);
        Self::new(vote, answer.last.map(LogId::from), answer.granted)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PreVote {
    pub(crate) last: Option<LogIdRow>,
}

/// Answers to a forwarded group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ProposeAnswer {
    pub(crate) index: u64,
    pub(crate) answers: Vec<Vec<u8>>,
}

/// What a node tells about its server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AnnounceRow {
    pub(crate) node: NodeId,
    pub(crate) age_millis: u64,
    pub(crate) ttl_millis: u64,
    pub(crate) applied: Option<LogIdRow>,
    pub(crate) body: Vec<u8>,
}

/// Offer of a copy of the leader's machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SnapshotOffer {
    pub(crate) vote: VoteRow,
    pub(crate) position: Option<LogIdRow>,
    pub(crate) bytes: u64,
    pub(crate) sha256: [u8; 32],
}

/// A piece of the file, and where it begins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SnapshotChunk {
    pub(crate) offset: u64,
    pub(crate) bytes: Vec<u8>,
}

pub(crate) fn encode(message: &impl Serialize) -> Vec<u8> {
    postcard::to_stdvec(message)
        .expect("messages contain only numbers, bytes, texts and lists, which postcard encodes")
}

/// # Errors
/// If the bytes are no such message.
pub(crate) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> io::Result<T> {
    postcard::from_bytes(bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

fn invalid(problem: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, problem)
}

/// Encodes a request of a leader.
///
/// `u8` vote, `u32` withdrawn, previous log id, commit, `u32` number of entries; then for each entry: `u8` kind, log id,
/// `u32` CRC-32 of everything else of the entry, `u32` length, payload.
pub(crate) fn encode_append<M: Machine>(
    request: &AppendEntriesRequest<Belfry<M>>,
    withdrawn: u32,
) -> Vec<u8> {
    let mut bytes = Vec::new();
    put_optional_vote(Some(&request.vote), &mut bytes);
    bytes.extend(withdrawn.to_le_bytes());
    put_optional_log_id(request.prev_log_id.as_ref(), &mut bytes);
    put_optional_log_id(request.leader_commit.as_ref(), &mut bytes);
    bytes.extend((request.entries.len() as u32).to_le_bytes());
    for entry in &request.entries {
        let membership;
        let (kind, payload): (u8, &[u8]) = match &entry.payload {
            EntryPayload::Blank => (1, &[]),
            EntryPayload::Normal(payload) => (2, &payload.bytes),
            EntryPayload::Membership(members) => {
                membership = encode_membership(members);
                (3, &membership)
            }
        };
        bytes.push(kind);
        put_log_id(&entry.log_id, &mut bytes);
        bytes.extend(checksum(kind, &entry.log_id, payload).to_le_bytes());
        bytes.extend((payload.len() as u32).to_le_bytes());
        bytes.extend(payload);
    }
    bytes
}

fn checksum(kind: u8, id: &LogId, payload: &[u8]) -> u32 {
    let mut head = vec![kind];
    put_log_id(id, &mut head);
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&head);
    hasher.update(payload);
    hasher.finalize()
}

/// Decodes a request of a leader, and the number of its last withdrawn transfer.
///
/// # Errors
/// If the bytes are no request, or an entry has changed.
pub(crate) fn decode_append<M: Machine>(bytes: &[u8]) -> io::Result<(AppendEntriesRequest<Belfry<M>>, u32)> {
    let cut_off = || invalid("a request with entries is cut off");
    let mut take = Take(bytes);
    let vote = take.optional_vote().flatten().ok_or_else(cut_off)?;
    let withdrawn = take.u32().ok_or_else(cut_off)?;
    let prev_log_id = take.optional_log_id().ok_or_else(cut_off)?;
    let leader_commit = take.optional_log_id().ok_or_else(cut_off)?;
    let count = take.u32().ok_or_else(cut_off)?;
    let mut entries = Vec::new();
    for _ in 0..count {
        let kind = take.u8().ok_or_else(cut_off)?;
        let log_id = take.log_id().ok_or_else(cut_off)?;
        let expected = take.u32().ok_or_else(cut_off)?;
        let length = take.u32().ok_or_else(cut_off)? as usize;
        let (payload, rest) = take.0.split_at_checked(length).ok_or_else(cut_off)?;
        take.0 = rest;
        if checksum(kind, &log_id, payload) != expected {
            return Err(invalid("an entry has changed on its way"));
        }
        let payload = match kind {
            1 => EntryPayload::Blank,
            2 => EntryPayload::Normal(Payload::from(Arc::from(payload))),
            3 => EntryPayload::Membership(
                decode_membership(payload).map_err(|_| invalid("an entry is no membership"))?,
            ),
            _ => return Err(invalid("an entry of an unknown kind: run the newer version")),
        };
        entries.push(openraft::Entry { log_id, payload });
    }
    Ok((AppendEntriesRequest { vote, prev_log_id, leader_commit, entries }, withdrawn))
}

/// Answer to a request of a leader.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum AppendAnswer {
    Success,
    PartialSuccess(Option<LogIdRow>),
    Conflict,
    HigherVote(VoteRow),
}

impl From<AppendEntriesResponse<NodeId>> for AppendAnswer {
    fn from(response: AppendEntriesResponse<NodeId>) -> Self {
        match response {
            AppendEntriesResponse::Success => Self::Success,
            AppendEntriesResponse::PartialSuccess(id) => Self::PartialSuccess(id.map(LogIdRow::from)),
            AppendEntriesResponse::Conflict => Self::Conflict,
            AppendEntriesResponse::HigherVote(vote) => Self::HigherVote(vote.into()),
        }
    }
}

impl From<AppendAnswer> for AppendEntriesResponse<NodeId> {
    fn from(answer: AppendAnswer) -> Self {
        match answer {
            AppendAnswer::Success => Self::Success,
            AppendAnswer::PartialSuccess(id) => Self::PartialSuccess(id.map(LogId::from)),
            AppendAnswer::Conflict => Self::Conflict,
            AppendAnswer::HigherVote(vote) => Self::HigherVote(vote.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;
    use crate::machine::Memory;
    use crate::types::{Membership, Peer};

    fn request() -> AppendEntriesRequest<Belfry<Memory>> {
        let id = |index| log_id(3, NodeId(1), index);
        let membership = Membership::new(
            vec![BTreeSet::from([NodeId(1)])],
            BTreeMap::from([(NodeId(1), Peer::default())]),
        );
        let payloads = [
            EntryPayload::Blank,
            EntryPayload::Normal(Payload::from(Arc::from(&b"bytes"[..]))),
            EntryPayload::Membership(membership),
        ];
        let entry = |(index, payload)| openraft::Entry { log_id: id(index), payload };
        AppendEntriesRequest {
            vote: Vote::new_committed(3, NodeId(1)),
            prev_log_id: Some(id(7)),
            leader_commit: None,
            entries: (8..).zip(payloads).map(entry).collect(),
        }
    }

    #[test]
    fn entries_are_encoded_and_decoded_unchanged() {
        let bytes = encode_append(&request(), 5);
        let (decoded, withdrawn) = decode_append::<Memory>(&bytes).unwrap();
        assert_eq!(withdrawn, 5);
        assert_eq!(format!("{decoded:?}"), format!("{:?}", request()));
        assert_eq!(encode_append(&decoded, 5), bytes);
    }

    #[test]
    fn a_changed_entry_is_noticed_and_damage_never_panics() {
        let bytes = encode_append(&request(), 5);
        let head = encode_append(&AppendEntriesRequest { entries: Vec::new(), ..request() }, 5).len();
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 0x41;
            let decoded = decode_append::<Memory>(&changed);
            assert!(at < head || decoded.is_err(), "byte {at}");
            assert!(decode_append::<Memory>(&bytes[..at]).is_err());
        }
    }
}
