//! Members that lose sight of each other find each other again.
//!
//! A node accepts connections of members only, and knows them from its log. While it was away, a server may have joined
//! and become the leader, or another one may have got another address. So a node that hears no leader asks the members
//! that it knows who the members are now, and tells them its own address. The leader writes a new address into the
//! membership, from which all nodes take it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use openraft::ChangeMembers;
use tokio::time::Instant;

use super::Shared;
use super::members::Changing;
use crate::machine::Machine;
use crate::net::link::CallError;
use crate::net::message::MEMBERS;
use crate::types::{NodeId, Peer};

/// Interval at which a node that was removed says so.
const REPORT_EVERY: Duration = Duration::from_secs(10);

/// Members that others have named, beside those of this node's own membership.
#[derive(Debug, Default)]
pub(crate) struct Acquaintances(Mutex<BTreeMap<NodeId, Peer>>);

impl Acquaintances {
    /// Replaces them.
    pub(crate) fn set(&self, members: impl IntoIterator<Item = (NodeId, Peer)>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = members.into_iter().collect();
    }

    fn all(&self) -> BTreeMap<NodeId, Peer> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Runs until the node stops.
pub(crate) async fn run<M: Machine>(shared: Arc<Shared<M>>, me: Peer) {
    loop {
        tokio::select! {
            () = shared.stop.cancelled() => return,
            () = tokio::time::sleep(shared.timing.lease) => {}
        }
        if shared.is_leader() {
            shared.readdress(shared.id, &me).await;
        } else if shared.contact.silent_for() >= shared.timing.lease * 2 || shared.has_moved(&me) {
            shared.ask_for_members(&me).await;
        } else if shared.is_member() {
            // Its own membership is up to date. A member that was removed must not be known from elsewhere.
            shared.acquaintances.set([]);
        }
    }
}

impl<M: Machine> Shared<M> {
    /// Returns all members that this node knows.
    pub(crate) fn known_members(&self) -> BTreeMap<NodeId, Peer> {
        let mut members = self.acquaintances.all();
        let servers = self.servers.borrow();
        let own = servers.membership_config.nodes();
        members.extend(own.map(|(node, peer)| (*node, peer.clone())));
        members
    }

    /// Returns whether the log of this node names it. A new server has no entries yet.
    fn is_member(&self) -> bool {
        self.servers.borrow().membership_config.membership().get_node(&self.id).is_some()
    }

    fn has_moved(&self, me: &Peer) -> bool {
        let servers = self.servers.borrow();
        servers.membership_config.membership().get_node(&self.id).is_some_and(|known| known != me)
    }

    async fn ask_for_members(&self, me: &Peer) {
        let others = self.known_members().into_iter().filter(|(node, _)| *node != self.id);
        let questions = others.map(|(node, peer)| async move {
            let links = self.wire.peer(node, &peer);
            links.control.call::<Vec<(NodeId, Peer)>>(MEMBERS, me, self.timing.append_timeout).await
        });
        let answers = self.stop.run_until_cancelled(futures::future::join_all(questions)).await;
        let answers: Vec<_> = answers.into_iter().flatten().collect();
        if !answers.is_empty()
            && answers.iter().all(|answer| answer.as_ref().is_err_and(CallError::is_refusal))
        {
            self.report_removal();
        }
        let named: BTreeMap<_, _> = answers.into_iter().flatten().flatten().collect();
        if !named.is_empty() {
            self.acquaintances.set(named);
        }
    }

    /// Says from time to time that all members refuse this node.
    fn report_removal(&self) {
        let now = Instant::now();
        let mut said = self.removal_reported_at.lock().unwrap_or_else(PoisonError::into_inner);
        if said.is_none_or(|said| now - said >= REPORT_EVERY) {
            *said = Some(now);
            tracing::error!(
                node = %self.id,
                "the members of the cluster refuse this server: it was removed, or its key was replaced; let it join again \
                 with an empty data folder"
            );
        }
    }

    /// Notes as the leader how a member is reached now. A member with another key is another server.
    pub(crate) async fn readdress(&self, node: NodeId, peer: &Peer) {
        let is_new = {
            let servers = self.servers.borrow();
            let known = servers.membership_config.membership().get_node(&node);
            known.is_some_and(|known| known != peer && known.fingerprint == peer.fingerprint)
        };
        if !is_new || !self.is_leader() || self.is_changing() {
            return;
        }
        let _changing = Changing::begin(&self.changes);
        let nodes = BTreeMap::from([(node, peer.clone())]);
        let change = self.raft.change_membership(ChangeMembers::SetNodes(nodes), true);
        match self.stop.run_until_cancelled(change).await {
            Some(Ok(_)) => {
                tracing::info!(%node, name = peer.name, address = peer.address, "a member has another address");
            }
            // It asks again.
            Some(Err(error)) => tracing::debug!(%node, %error, "cannot note the address of a member"),
            None => {}
        }
    }
}
