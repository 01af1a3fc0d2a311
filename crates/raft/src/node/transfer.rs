//! Hands the leadership over to another voter without waiting for the end of the lease.
//!
//! The leader gives up its lease and permits the election of the target. If no other node leads in time, it withdraws the
//! permit before it takes a lease again; see [`contact`](super::contact).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::time::Instant;

use super::Shared;
use crate::error::TransferError;
use crate::machine::Machine;
use crate::net::message::{PermitRow, TRANSFER};
use crate::types::Permit;
use crate::types::{NodeId, Peer};

impl<M: Machine> Shared<M> {
    /// Transfers the leadership to a node, or to the voter that has the most entries.
    pub(crate) async fn transfer(self: &Arc<Self>, to: Option<NodeId>) -> Result<(), TransferError> {
        if self.transferring.swap(true, Ordering::SeqCst) {
            return Err(TransferError::InProgress);
        }
        // A task of its own, so that a caller that gives up does not leave the node without a lease.
        let shared = Arc::clone(self);
        let transfer = self.tasks.spawn(async move {
            let transferred = transfer(&shared, to).await;
            shared.transferring.store(false, Ordering::SeqCst);
            transferred
        });
        transfer.await.unwrap_or(Err(TransferError::Stopped))
    }
}

async fn transfer<M: Machine>(shared: &Shared<M>, to: Option<NodeId>) -> Result<(), TransferError> {
    let (node, peer) = target(shared, to)?;
    wait_until_caught_up(shared, node).await?;
    let number = shared.transfers.fetch_add(1, Ordering::SeqCst) + 1;
    let permit = Permit { leader: shared.servers.borrow().vote, number };
    // Before the permit is sent: from here on this node has no lease.
    shared.contact.suspend(permit);
    shared.raft.runtime_config().heartbeat(false);
    tracing::info!(to = %node, "transferring the leadership");
    let transferred = hand_over(shared, node, &peer, permit).await;
    // Before this node takes a lease again. Its next round tells the voters.
    shared.wire.set_withdrawn(number);
    shared.contact.resume();
    shared.raft.runtime_config().heartbeat(true);
    transferred
}

/// Returns the voter to which the leadership is transferred.
fn target<M: Machine>(shared: &Shared<M>, to: Option<NodeId>) -> Result<(NodeId, Peer), TransferError> {
    let metrics = shared.metrics.borrow();
    let Some(replication) = metrics.replication.as_ref().filter(|_| shared.is_leader()) else {
        return Err(TransferError::NotLeader);
    };
    let membership = metrics.membership_config.membership();
    let voters = membership.voter_ids().filter(|id| *id != shared.id && to.is_none_or(|to| to == *id));
    let best = voters.max_by_key(|id| replication.get(id).copied().flatten());
    let found = best.and_then(|id| Some((id, membership.get_node(&id)?.clone())));
    found.ok_or(TransferError::NoTarget)
}

/// The proposer takes no new operations meanwhile.
async fn wait_until_caught_up<M: Machine>(shared: &Shared<M>, node: NodeId) -> Result<(), TransferError> {
    let mut metrics = shared.metrics.clone();
    let caught_up = metrics.wait_for(|metrics| {
        let matched = metrics.replication.as_ref().and_then(|nodes| nodes.get(&node).copied().flatten());
        matched.map(|id| id.index) >= metrics.last_log_index
    });
    match tokio::time::timeout(shared.timing.transfer_catch_up, caught_up).await {
        Ok(Ok(_)) if shared.is_leader() => Ok(()),
        Ok(Ok(_)) => Err(TransferError::NotLeader),
        Ok(Err(_)) => Err(TransferError::Stopped),
        Err(_) => Err(TransferError::NotCaughtUp { node }),
    }
}

/// Sends the permit, and waits until another node leads.
async fn hand_over<M: Machine>(
    shared: &Shared<M>,
    node: NodeId,
    peer: &Peer,
    permit: Permit,
) -> Result<(), TransferError> {
    let started = Instant::now();
    let links = shared.wire.peer(node, peer);
    let sent =
        links.control.call::<()>(TRANSFER, &PermitRow::from(permit), shared.timing.append_timeout).await;
    sent.map_err(|error| TransferError::Unreachable { node, reason: error.to_string() })?;
    let mut servers = shared.servers.clone();
    let elected =
        servers.wait_for(|servers| servers.current_leader.is_some_and(|leader| leader != shared.id));
    match tokio::time::timeout(shared.timing.transfer_patience, elected).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(_)) => Err(TransferError::Stopped),
        Err(_) => Err(TransferError::NotElected { node, waited: started.elapsed() }),
    }
}
