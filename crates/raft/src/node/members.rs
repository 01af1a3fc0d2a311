//! Changes of the members: new ones, voters, and those that have ended for good.
//!
//! openraft allows one change at a time, so a change waits for the one before it. The leader of a later term completes one that was interrupted; see
//! [`housekeeping`](super::housekeeping).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use openraft::ChangeMembers;
use openraft::error::{ChangeMembershipError, ClientWriteError, RaftError};
use tokio::time::Instant;

use super::{Member, Node, Role, Status};
use crate::error::MembershipError;
use crate::machine::Machine;
use crate::types::{LogId, NodeId, Peer};

/// A member that has answered within this time counts as running: several rounds of the leader.
const REACHABLE: Duration = Duration::from_secs(2);
/// A member that lacks at most this number of entries counts as caught up.
const MISSING_ENTRIES_MAX: u64 = 1_000;
/// Maximum wait for another change to end.
const TURN_PATIENCE: Duration = Duration::from_secs(5);
/// Pause before a change asks again whether it is its turn.
const TURN_PAUSE: Duration = Duration::from_millis(10);

impl Member {
    /// Returns whether the member has answered recently. Only the leader asks all members.
    pub fn is_reachable(&self) -> bool {
        self.silent_for.is_some_and(|silent| silent < REACHABLE)
    }

    /// Returns how many entries the member lacks, as far as the node of this status knows. Only the leader knows it.
    pub fn missing_entries(&self, status: &Status) -> u64 {
        let index = |position: Option<LogId>| position.map_or(0, |position| position.index);
        let has = if self.node == status.node { status.last } else { self.matched };
        index(status.last).saturating_sub(index(has))
    }

    /// Returns whether the member has all entries but the newest ones.
    pub(crate) fn is_caught_up(&self, status: &Status) -> bool {
        self.missing_entries(status) <= MISSING_ENTRIES_MAX
    }
}

impl<M: Machine> Node<M> {
    /// Adds a node that gets the entries but does not vote. Returns when the change is committed; the node may lack entries.
    ///
    /// # Errors
    /// See [`MembershipError`].
    pub async fn add_learner(&self, node: NodeId, peer: Peer) -> Result<(), MembershipError> {
        // First: the metrics that show the members may be old, and the new node may soon vote.
        self.shared.has_company.store(true, Ordering::SeqCst);
        let nodes = BTreeMap::from([(node, peer)]);
        self.change(ChangeMembers::AddNodes(nodes)).await
    }

    /// Makes a learner a voter. Returns when the change is committed.
    ///
    /// # Errors
    /// See [`MembershipError`].
    pub async fn promote(&self, node: NodeId) -> Result<(), MembershipError> {
        self.change(ChangeMembers::AddVoterIds([node].into())).await
    }

    /// Removes a member for good: its id never comes back. Returns when the change is committed.
    ///
    /// A member that answers is not removed, because it would not know it; and no member, unless a majority of the
    /// voters that stay answers and has all entries but the newest ones.
    ///
    /// # Errors
    /// See [`MembershipError`].
    pub async fn remove(&self, node: NodeId) -> Result<(), MembershipError> {
        let status = self.status();
        if status.role != Role::Leader {
            return Err(MembershipError::NotLeader { leader: status.leader });
        }
        removable(&status, node)?;
        let is_voter = status.members.iter().any(|member| member.node == node && member.is_voter);
        let gone = [node].into();
        let change =
            if is_voter { ChangeMembers::RemoveVoters(gone) } else { ChangeMembers::RemoveNodes(gone) };
        let changing = self.change_retaining(change, false);
        let changed = tokio::time::timeout(self.shared.timing.forward_patience, changing).await;
        changed.unwrap_or(Err(MembershipError::OutcomeUnknown))
    }

    async fn change(&self, change: ChangeMembers<NodeId, Peer>) -> Result<(), MembershipError> {
        self.change_retaining(change, true).await
    }

    async fn change_retaining(
        &self,
        change: ChangeMembers<NodeId, Peer>,
        retain: bool,
    ) -> Result<(), MembershipError> {
        let shared = &self.shared;
        let _changing = Changing::begin(&shared.changes);
        let begun = Instant::now();
        loop {
            let changed = shared.raft.change_membership(change.clone(), retain).await;
            let Err(error) = changed.map_err(change_error) else { return Ok(()) };
            if !matches!(error, MembershipError::InProgress) || begun.elapsed() >= TURN_PATIENCE {
                return Err(error);
            }
            tokio::time::sleep(TURN_PAUSE).await;
        }
    }
}

fn change_error(error: RaftError<NodeId, ClientWriteError<NodeId, Peer>>) -> MembershipError {
    match error {
        RaftError::APIError(ClientWriteError::ForwardToLeader(forward)) => {
            MembershipError::NotLeader { leader: forward.leader_id }
        }
        RaftError::APIError(ClientWriteError::ChangeMembershipError(error)) => match error {
            ChangeMembershipError::InProgress(_) => MembershipError::InProgress,
            error => MembershipError::Refused { reason: error.to_string() },
        },
        RaftError::Fatal(_) => MembershipError::Stopped,
    }
}

/// Returns why a member cannot be removed now. The voters before and after the change must both have a majority that
/// confirms it.
fn removable(status: &Status, node: NodeId) -> Result<(), MembershipError> {
    let Some(removed) = status.members.iter().find(|member| member.node == node) else {
        return Err(MembershipError::Unknown { node });
    };
    if removed.is_reachable() {
        return Err(MembershipError::Refused { reason: "its server still runs: stop it first".to_owned() });
    }
    let is_ready = |member: &Member| member.is_reachable() && member.is_caught_up(status);
    let voters = || status.members.iter().filter(|member| member.is_voter);
    let ready = voters().filter(|member| is_ready(member)).count();
    let (before, after) = (voters().count(), voters().filter(|member| member.node != node).count());
    if ready <= before.max(after) / 2 {
        let reason = format!(
            "only {ready} of {before} voters run and have the newest entries: a majority must confirm the change"
        );
        return Err(MembershipError::Refused { reason });
    }
    Ok(())
}

/// Counts a change of the members while it lasts.
pub(super) struct Changing<'a>(&'a AtomicU32);

impl<'a> Changing<'a> {
    pub(super) fn begin(changes: &'a AtomicU32) -> Self {
        changes.fetch_add(1, Ordering::SeqCst);
        Self(changes)
    }
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}
