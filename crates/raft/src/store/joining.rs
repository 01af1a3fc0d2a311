//! How a new server becomes a member of the cluster, on both sides.
//!
//! The new server asks again and again, on all addresses that it knows, until it votes. So it does not matter which server
//! leads, or whether the leader changes meanwhile: each request is answered from the members of that moment.

use std::collections::VecDeque;
use std::time::Duration;

use store::{Members as _, StoreError};

use super::RaftStore;
use crate::error::MembershipError;
use crate::net::BoxStream;
use crate::net::join::{self, Channel, JoinAnswer, JoinError, JoinRequest, JoinToken, JoinTransport};
use crate::node::{Role, Status};
use crate::types::{NodeId, Peer};

/// Name of the secret of the join token.
pub(super) const SECRET: &str = "raft-join-token";
/// Maximum time of one handshake.
const HANDSHAKE_PATIENCE: Duration = Duration::from_secs(10);
/// Pause before the cluster is asked again.
const ASK_AGAIN: Duration = Duration::from_millis(300);

/// Why a server has not joined.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JoinFailed {
    /// The cluster has refused the server.
    #[error("the server at `{address}` refuses this one: {reason}")]
    Refused {
        /// Address of the leader.
        address: String,
        /// Why.
        reason: String,
    },
    /// A server has answered that does not know the secret, or speaks another version. No other one has answered better.
    #[error("the server at `{address}` is not one of the cluster of the join token: {reason}")]
    Untrusted {
        /// Address of the server.
        address: String,
        /// What it has answered.
        reason: String,
    },
    /// No server has decided about this one; it can ask again.
    #[error("no server of the cluster has let this one join: {}", tried.join("; "))]
    Undecided {
        /// Each address, and what happened.
        tried: Vec<String>,
    },
}

impl JoinFailed {
    /// Returns what the operator can do next.
    pub fn help(&self) -> &'static str {
        match self {
            Self::Refused { .. } => {
                "remove the server that is in the way from the cluster, or use another address or data folder"
            }
            Self::Untrusted { .. } => {
                "check that the join token is the one that the first server of the cluster wrote, and the addresses"
            }
            Self::Undecided { .. } => "check the addresses, and that the servers run",
        }
    }
}

/// What a cluster has answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Joined {
    /// Number of shards of the cluster.
    pub shards: u16,
    /// Whether this server votes.
    pub is_voter: bool,
    /// All members of the cluster; see [`RaftStore::introduce`].
    pub members: Vec<(NodeId, Peer)>,
}

/// Asks the servers at these addresses, and the leader that they name, to make this server a member.
///
/// # Errors
/// See [`JoinFailed`].
pub async fn ask(
    transport: &dyn JoinTransport,
    addresses: &[String],
    token: &JoinToken,
    request: &JoinRequest,
) -> Result<Joined, JoinFailed> {
    let mut waiting: VecDeque<String> = addresses.iter().cloned().collect();
    let (mut asked, mut tried, mut untrusted) = (Vec::new(), Vec::new(), None);
    while let Some(address) = waiting.pop_front() {
        if asked.contains(&address) {
            continue;
        }
        asked.push(address.clone());
        let shaking = handshake(transport, &address, token, request);
        let answered = match tokio::time::timeout(HANDSHAKE_PATIENCE, shaking).await {
            Ok(answered) => answered,
            Err(_) => Err(JoinError::Unexpected { reason: "it has not answered in time".to_owned() }),
        };
        match answered {
            Ok(JoinAnswer::Joined { shards, is_voter, members }) => {
                return Ok(Joined { shards, is_voter, members });
            }
            Ok(JoinAnswer::Refused { reason }) => return Err(JoinFailed::Refused { address, reason }),
            Ok(JoinAnswer::NotLeader { leader }) => {
                tried.push(format!("`{address}`: another server leads"));
                if let Some(leader) = leader {
                    waiting.push_front(leader);
                }
            }
            Ok(JoinAnswer::NotNow { reason }) => tried.push(format!("`{address}`: {reason}")),
            Err(error @ (JoinError::Proof | JoinError::Version { .. })) => {
                untrusted = Some(JoinFailed::Untrusted { address, reason: error.to_string() });
            }
            Err(error) => tried.push(format!("`{address}`: {error}")),
        }
    }
    Err(untrusted.unwrap_or(JoinFailed::Undecided { tried }))
}

async fn handshake(
    transport: &dyn JoinTransport,
    address: &str,
    token: &JoinToken,
    request: &JoinRequest,
) -> Result<JoinAnswer, JoinError> {
    let (stream, channel) = transport.connect(address).await?;
    join::ask(stream, &channel, token, request.clone()).await
}

impl RaftStore {
    /// Returns the member with this key (SHA-256 of its public key), if this server knows one.
    pub fn member_with_key(&self, key: &[u8; 32]) -> Option<NodeId> {
        self.node.member_with_key(key)
    }

    /// Tells a new server, which has no entries yet, who the members are. It then accepts their connections.
    pub fn introduce(&self, members: Vec<(NodeId, Peer)>) {
        self.node.introduce(members);
    }

    /// Returns the token with which servers join. The first call stores `proposed` as its secret, which must be random.
    ///
    /// # Errors
    /// Those of a change.
    pub async fn join_token(&self, proposed: &[u8; 32]) -> Result<JoinToken, StoreError> {
        Ok(JoinToken { cluster: self.cluster, secret: self.secret(SECRET, proposed).await? })
    }

    /// Serves the connection of a server that wants to join. The caller bounds the time.
    ///
    /// # Errors
    /// See [`JoinError`]; the connection is over.
    pub async fn serve_join(&self, stream: BoxStream, channel: &Channel) -> Result<(), JoinError> {
        // Not after a read round: an unknown client must not cause one.
        let secret = self.replica.secret(SECRET).await;
        let secret = secret.map_err(|error| JoinError::Unexpected { reason: error.to_string() })?;
        let Some(secret) = secret else {
            let reason = "this server does not know the secret of its cluster yet".to_owned();
            return Err(JoinError::Unexpected { reason });
        };
        join::serve(stream, channel, &secret, async |request| self.admit(request, channel).await).await
    }

    /// Decides about a server that knows the secret.
    async fn admit(&self, request: JoinRequest, channel: &Channel) -> JoinAnswer {
        let JoinRequest { node, peer, program } = request;
        let refused = |reason: &str| JoinAnswer::Refused { reason: reason.to_owned() };
        if peer.fingerprint != channel.other_key {
            return refused("it has announced another key than it has proved");
        }
        let status = self.node.status();
        if !self.node.leads() {
            return not_leader(&status);
        }
        let known = status.members.iter().find(|member| member.node == node);
        let is_voter = match known {
            Some(member) if member.peer.fingerprint != peer.fingerprint => {
                return refused(
                    "its node id belongs to a server with another key: its data folder was copied",
                );
            }
            Some(member) if member.is_voter => true,
            Some(member) if member.is_caught_up(&status) => match self.node.promote(node).await {
                Ok(()) => {
                    tracing::info!(%node, name = peer.name, "a server votes now");
                    true
                }
                // Another change is under way, or another server leads: it asks again.
                Err(error) => {
                    tracing::debug!(%node, %error, "a learner does not vote yet");
                    false
                }
            },
            Some(_) => false,
            None if status.members.iter().any(|member| member.peer.address == peer.address) => {
                return refused("another member of the cluster has the same address");
            }
            None => {
                tracing::info!(%node, name = peer.name, address = peer.address, program, "a server joins the cluster");
                match self.node.add_learner(node, peer).await {
                    Ok(()) => false,
                    Err(MembershipError::NotLeader { .. }) => return not_leader(&self.node.status()),
                    Err(error @ MembershipError::Refused { .. }) => return refused(&error.to_string()),
                    Err(error) => return JoinAnswer::NotNow { reason: error.to_string() },
                }
            }
        };
        let members = self.node.status().members.into_iter().map(|member| (member.node, member.peer));
        JoinAnswer::Joined { shards: self.shards, is_voter, members: members.collect() }
    }

    /// Asks the cluster until this server votes. The store was opened with [`Start::Join`](crate::node::Start::Join), after
    /// the first answer of [`ask`].
    ///
    /// # Errors
    /// [`JoinFailed::Refused`] and [`JoinFailed::Untrusted`]. Servers that do not answer are asked again, without end.
    pub async fn become_voter(
        &self,
        transport: &dyn JoinTransport,
        addresses: &[String],
        token: &JoinToken,
        request: &JoinRequest,
    ) -> Result<(), JoinFailed> {
        loop {
            match ask(transport, addresses, token, request).await {
                Ok(Joined { is_voter: true, .. }) if self.node.status().role != Role::Learner => {
                    return Ok(());
                }
                // The leader may have changed, and another server may have joined.
                Ok(Joined { members, .. }) => self.introduce(members),
                Err(JoinFailed::Undecided { tried }) => {
                    tracing::debug!(
                        tried = tried.join("; "),
                        "no server of the cluster has let this one vote; asking again"
                    );
                }
                Err(refused) => return Err(refused),
            }
            tokio::time::sleep(ASK_AGAIN).await;
        }
    }
}

fn not_leader(status: &Status) -> JoinAnswer {
    let leader = status.leader.filter(|leader| *leader != status.node);
    let leader = leader.and_then(|leader| status.members.iter().find(|member| member.node == leader));
    JoinAnswer::NotLeader { leader: leader.map(|member| member.peer.address.clone()) }
}
