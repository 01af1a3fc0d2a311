//! Begins elections: after the silence of the leader, or when a leader transfers its leadership to this node.
//!
//! Before an election a node asks the others whether they would vote for it, without any change on their side. So a node
//! that was cut off or restarted does not depose a leader that the others hear.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use openraft::ServerState;
use tokio::sync::mpsc;

use super::Shared;
use super::contact::Voting;
use crate::machine::Machine;
use crate::net::message::{PRE_VOTE, PreVote};
use crate::timing::CORE_LEASE;
use crate::types::NodeId;
use crate::types::Permit;

/// Elections that a node begins with one permit.
const TRANSFER_ATTEMPTS: usize = 3;

/// Runs elections until the node stops.
pub(crate) async fn run<M: Machine>(shared: Arc<Shared<M>>, mut permits: mpsc::UnboundedReceiver<Permit>) {
    loop {
        let jitter = shared.random_delay(shared.timing.election_jitter);
        tokio::select! {
            () = shared.stop.cancelled() => return,
            Some(permit) = permits.recv() => elect_with(&shared, permit).await,
            () = wait_for_silence(&shared, jitter) => elect(&shared).await,
        }
    }
}

/// Waits until this node should ask for votes.
async fn wait_for_silence<M: Machine>(shared: &Shared<M>, jitter: Duration) {
    let (lease, patience) = (shared.timing.lease, shared.timing.election_patience);
    loop {
        let wait = match shared.standing() {
            Standing::Alone => Duration::ZERO,
            // A change of the members or of the leadership ends the wait.
            Standing::NotCandidate => lease,
            Standing::Candidate => {
                let silence = (lease + jitter).saturating_sub(shared.contact.silent_for());
                // Another node may be winning the election for which this one has just voted.
                let vote = shared
                    .contact
                    .since_vote()
                    .map_or(Duration::ZERO, |since| (patience + jitter).saturating_sub(since));
                silence.max(vote)
            }
        };
        if wait.is_zero() {
            return;
        }
        shared.leader_changed(wait).await;
    }
}

/// What a node can do about an election.
enum Standing {
    /// The only voter: it elects itself.
    Alone,
    /// A voter that does not lead.
    Candidate,
    /// No voter, or the leader.
    NotCandidate,
}

impl<M: Machine> Shared<M> {
    fn standing(&self) -> Standing {
        let servers = self.servers.borrow();
        let voters: BTreeSet<NodeId> = servers.membership_config.voter_ids().collect();
        if servers.state == ServerState::Leader || !voters.contains(&self.id) {
            Standing::NotCandidate
        } else if voters.len() == 1 {
            Standing::Alone
        } else {
            Standing::Candidate
        }
    }

    /// Lets the elector begin an election that another leader has permitted.
    pub(crate) fn elect_with(&self, permit: Permit) -> Result<(), ()> {
        self.permits.send(permit).map_err(drop)
    }

    /// Returns a random part of a duration.
    fn random_delay(&self, max: Duration) -> Duration {
        max.mul_f64((self.random() % 1024) as f64 / 1024.0)
    }
}

async fn elect<M: Machine>(shared: &Arc<Shared<M>>) {
    if matches!(shared.standing(), Standing::Alone) {
        // No other node can lead, so no lease is in danger.
        begin(shared, None, None).await;
        return;
    }
    if is_supported(shared).await
        && let Some(voting) = shared.contact.begin_vote(None)
    {
        begin(shared, Some(voting), None).await;
    } else {
        // Jitter before the next question. A deposed leader waits here until its own lease has passed.
        let delay = shared.random_delay(shared.timing.election_jitter);
        shared.leader_changed(delay.max(shared.timing.vote_timeout)).await;
    }
}

/// Asks all voters whether they would vote for this node; returns whether a majority of each configuration would.
async fn is_supported<M: Machine>(shared: &Shared<M>) -> bool {
    let (configs, peers) = {
        let servers = shared.servers.borrow();
        let membership = servers.membership_config.membership();
        let peer = |id: NodeId| membership.get_node(&id).map(|peer| (id, peer.clone()));
        let peers: Vec<_> = membership.voter_ids().filter_map(peer).collect();
        (membership.get_joint_config().clone(), peers)
    };
    if !shared.contact.may_vote() {
        return false;
    }
    let mut agreed = BTreeSet::from([shared.id]);
    let question = PreVote { last: shared.log.last().map(Into::into) };
    let ask = |(node, peer)| {
        let links = shared.wire.peer(node, &peer);
        async move {
            let answer = links.control.call(PRE_VOTE, &question, shared.timing.vote_timeout).await;
            answer.unwrap_or(false).then_some(node)
        }
    };
    let others = peers.into_iter().filter(|(node, _)| *node != shared.id);
    let mut answers: FuturesUnordered<_> = others.map(ask).collect();
    loop {
        let has_majority =
            |config: &BTreeSet<NodeId>| config.intersection(&agreed).count() * 2 > config.len();
        if configs.iter().all(has_majority) {
            return true;
        }
        match answers.next().await {
            Some(answer) => agreed.extend(answer),
            None => return false,
        }
    }
}

/// Begins an election, and waits for its result. `voting` is kept until openraft has handled it.
async fn begin<M: Machine>(shared: &Arc<Shared<M>>, voting: Option<Voting>, permit: Option<Permit>) {
    shared.wire.set_permit(permit);
    let raft = shared.raft.clone();
    // A task of its own: this one may be cancelled, but openraft handles the election all the same.
    let handled = shared.tasks.spawn(async move {
        if raft.trigger().elect().await.is_ok() {
            // Goes through the same queue, so the election is handled when it answers.
            let _ = raft.with_raft_state(|_| ()).await;
        }
        drop(voting);
    });
    let mut servers = shared.servers.clone();
    let result = async {
        let _ = handled.await;
        let _ = servers.wait_for(|servers| servers.current_leader.is_some()).await;
    };
    let _ = tokio::time::timeout(shared.timing.election_patience, result).await;
}

/// Elects this node with the permit of the leader.
async fn elect_with<M: Machine>(shared: &Arc<Shared<M>>, permit: Permit) {
    let attempts = async {
        for _ in 0..TRANSFER_ATTEMPTS {
            // openraft grants no vote within its own lease, which began with the last request of the leader.
            loop {
                let silent = shared.contact.silent_for();
                if silent > CORE_LEASE {
                    break;
                }
                tokio::time::sleep(CORE_LEASE - silent + Duration::from_millis(1)).await;
            }
            if !matches!(shared.standing(), Standing::Candidate) || !shared.contact.honours(&permit) {
                return;
            }
            let Some(voting) = shared.contact.begin_vote(Some(&permit)) else { return };
            begin(shared, Some(voting), Some(permit)).await;
        }
    };
    let _ = tokio::time::timeout(shared.timing.transfer_patience, attempts).await;
}
