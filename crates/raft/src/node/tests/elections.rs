//! Who leads, and when another may.

use openraft::raft::VoteRequest;

use tokio::time::Instant;

use super::*;
use crate::types::Permit;
use crate::types::Vote;

#[tokio::test(start_paused = true)]
async fn one_node_elects_itself_at_once() {
    let started = Instant::now();
    let mut cluster = Cluster::with_timing(1, Timing::real()).await;
    cluster.write(b"one").await;
    cluster.stop(0).await;
    cluster.restart(0).await;
    // Alone, it has the lease without any round, and waits for no lease of an earlier process.
    cluster.write(b"two").await;
    assert!(cluster.node(0).has_lease());
    assert!(started.elapsed() < Timing::real().lease, "{:?}", started.elapsed());
    assert_eq!(applied(&cluster.members[0].machine), [b"one", b"two"]);
}

#[tokio::test(start_paused = true)]
async fn three_nodes_elect_one_leader() {
    let mut cluster = Cluster::new(3).await;
    cluster.write(b"before").await;
    let first = cluster.at(cluster.leader().await.id());
    let term = cluster.node(first).status().term;
    cluster.stop(first).await;
    let second = cluster.leader().await;
    assert!(second.status().term > term);
    assert_eq!(cluster.running().filter(|node| node.has_lease()).count(), 1);
    cluster.write(b"after").await;
    cluster.restart(first).await;
    cluster.agree().await;
    assert_eq!(applied(&cluster.members[first].machine), [&b"before"[..], b"after"]);
}

/// D7. Every process leads in a term of its own, also when all stop at once.
#[tokio::test(start_paused = true)]
async fn a_restarted_cluster_has_everything_that_was_acknowledged() {
    let mut cluster = Cluster::new(3).await;
    for number in 0..20_u8 {
        cluster.write(&[number]).await;
    }
    let term = cluster.leader().await.status().term;
    for at in 0..3 {
        cluster.stop(at).await;
        // What was not synced is lost; the log has it.
        cluster.members[at].machine.cut_power();
    }
    for at in 0..3 {
        cluster.restart(at).await;
    }
    cluster.agree().await;
    assert!(cluster.leader().await.status().term > term);
    for member in &cluster.members {
        assert_eq!(applied(&member.machine), (0..20).map(|number| vec![number]).collect::<Vec<_>>());
    }
}

/// A vote request that goes around the pre-vote is refused by every node that has heard the leader.
#[tokio::test(start_paused = true)]
async fn a_vote_request_within_the_lease_changes_nothing() {
    let cluster = Cluster::new(3).await;
    let leader = cluster.leader().await;
    let term = leader.status().term;
    let request = VoteRequest::new(Vote::new(term + 10, NodeId(99)), leader.status().last);
    let message = crate::net::message::VoteMessage::new(&request, None);
    let other = cluster.running().find(|node| node.id() != leader.id()).unwrap();
    for node in cluster.running().filter(|node| node.id() != other.id()) {
        let links = other.shared.wire.peer(node.id(), &Peer::default());
        let answer: crate::net::message::VoteAnswer =
            links.control.call(crate::net::message::VOTE, &message, PATIENCE).await.unwrap();
        let response = openraft::raft::VoteResponse::from(answer);
        assert!(!response.vote_granted);
        assert_eq!(node.status().term, term, "{node:?}");
    }
    assert!(leader.confirm().await);
}

#[tokio::test(start_paused = true)]
async fn an_append_that_overlaps_a_vote_gives_no_lease() {
    let cluster = Cluster::new(3).await;
    let leader = cluster.leader().await;
    let others: Vec<_> = cluster.running().filter(|node| node.id() != leader.id()).collect();
    let [voter, away] = others[..] else { panic!("three nodes") };
    // Only `voter` can give the leader a lease.
    cluster.mesh.isolate(away.id(), &cluster.ids());
    let shared = &voter.shared;
    // The log of the voter does not answer, so its core waits.
    let hold = &cluster.members[cluster.at(voter.id())].hold;
    hold.send_replace(true);
    let leading = leader.clone();
    let write = tokio::spawn(async move { leading.propose(b"slow".to_vec()).await });
    // The requests of the leader wait in the queue of the core until the voter is silent enough to vote.
    within("the voter may vote", async {
        while !shared.contact.may_vote() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    let voting = shared.contact.begin_vote(None).expect("the voter may vote");
    let leading = leader.clone();
    let round = tokio::spawn(async move { leading.confirm().await });
    // The request of the round arrives during the vote; then the core answers it, before it has handled the vote.
    tokio::time::sleep(Duration::from_millis(10)).await;
    hold.send_replace(false);
    assert!(!within("a round", round).await.unwrap(), "a round during a vote");
    assert!(!leader.has_lease());
    drop(voting);
    confirmed(leader).await;
    within("the write is acknowledged", write).await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn leadership_is_transferred_within_a_third_of_a_second() {
    let cluster = Cluster::with_timing(3, Timing::real()).await;
    let mut terms = Vec::new();
    for _ in 0..2 {
        let leader = cluster.leader().await.clone();
        terms.push(leader.status().term);
        let others: Vec<_> = cluster.running().filter(|node| node.id() != leader.id()).collect();
        let started = Instant::now();
        leader.transfer(None).await.unwrap();
        let next = cluster.leader_of(&others).await;
        next.propose(b"after".to_vec()).await.unwrap();
        let elapsed = started.elapsed();
        assert!(elapsed < Duration::from_millis(333), "{elapsed:?}");
        assert!(!leader.has_lease() && next.has_lease());
    }
    let last = cluster.leader().await.status().term;
    assert!(last > terms[1] && terms[1] > terms[0]);
}

#[tokio::test(start_paused = true)]
async fn a_withdrawn_transfer_permits_no_election() {
    let cluster = Cluster::new(3).await;
    let leader = cluster.leader().await;
    let target = cluster.running().find(|node| node.id() != leader.id()).unwrap();
    let other = cluster.running().find(|node| ![leader.id(), target.id()].contains(&node.id())).unwrap();
    // The permit arrives, but nothing that the target sends does.
    cluster.mesh.stall(target.id(), leader.id());
    cluster.mesh.stall(target.id(), other.id());
    let transfer = leader.transfer(Some(target.id())).await;
    assert!(transfer.is_err());
    // The majority without the target gives the leader a lease again.
    confirmed(leader).await;
    let term = leader.status().term;
    let permit = Permit { leader: leader.shared.servers.borrow().vote, number: 1 };
    assert!(!leader.shared.contact.honours(&permit));
    assert!(!other.shared.contact.honours(&permit));
    // The late vote requests of the target arrive: `other` has heard the leader, and the permit is withdrawn.
    let request = VoteRequest::new(Vote::new(term + 1, target.id()), leader.status().last);
    let message = crate::net::message::VoteMessage::new(&request, Some(permit));
    let links = leader.shared.wire.peer(other.id(), &Peer::default());
    let answer: crate::net::message::VoteAnswer =
        links.control.call(crate::net::message::VOTE, &message, PATIENCE).await.unwrap();
    assert!(!openraft::raft::VoteResponse::from(answer).vote_granted);
    cluster.mesh.rejoin(target.id(), &cluster.ids());
    cluster.write(b"after").await;
    cluster.agree().await;
}

#[tokio::test(start_paused = true)]
async fn a_transfer_without_a_reachable_target_keeps_the_leader() {
    let cluster = Cluster::new(2).await;
    let leader = cluster.leader().await;
    let alone = Cluster::new(1).await;
    assert_eq!(alone.leader().await.transfer(None).await, Err(crate::error::TransferError::NoTarget));
    let other = cluster.running().find(|node| node.id() != leader.id()).unwrap();
    assert_eq!(other.transfer(None).await, Err(crate::error::TransferError::NotLeader));
    cluster.mesh.isolate(other.id(), &cluster.ids());
    assert!(leader.transfer(None).await.is_err());
    cluster.mesh.rejoin(other.id(), &cluster.ids());
    cluster.write(b"after").await;
}

#[tokio::test(start_paused = true)]
async fn servers_know_what_the_others_have_announced() {
    let cluster = Cluster::new(3).await;
    let ttl = Duration::from_secs(60);
    for node in cluster.running() {
        node.announce(node.id().0.to_le_bytes().to_vec(), ttl).await;
    }
    for node in cluster.running() {
        let list = node.announce(node.id().0.to_le_bytes().to_vec(), ttl).await;
        let known: Vec<_> =
            list.iter().map(|announcement| (announcement.node.0, announcement.body.clone())).collect();
        assert_eq!(known, [1_u64, 2, 3].map(|id| (id, id.to_le_bytes().to_vec())));
    }
}

/// A standby waits for the leadership all the time.
#[tokio::test(start_paused = true)]
async fn nothing_wakes_a_node_that_waits_for_another_leader() {
    let mut cluster = Cluster::new(3).await;
    let leader = cluster.leader().await.id();
    let at = |cluster: &Cluster, leads: bool| {
        cluster.members.iter().position(|member| (member.id == leader) == leads).unwrap()
    };
    let mut leadership = cluster.node(at(&cluster, false)).leadership();
    assert_eq!(leadership.current(), Some(leader));
    let woken = tokio::time::timeout(cluster.timing.lease * 10, leadership.changed()).await;
    assert!(woken.is_err(), "{woken:?}");
    cluster.stop(at(&cluster, true)).await;
    let next = within("another node leads", leadership.wait_for(|next| next != leader)).await;
    assert!(next.is_some());
}
