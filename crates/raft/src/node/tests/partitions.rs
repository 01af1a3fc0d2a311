//! What happens when nodes cannot reach each other.

use tokio::time::Instant;

use super::*;
use crate::error::ReadError;

#[tokio::test(start_paused = true)]
async fn a_partitioned_node_does_not_raise_the_term() {
    let cluster = Cluster::new(3).await;
    let leader = cluster.leader().await;
    let away = cluster.running().find(|node| node.id() != leader.id()).unwrap();
    let term = leader.status().term;
    cluster.mesh.isolate(away.id(), &cluster.ids());
    // Long enough for several elections.
    within("the node asks for votes", async {
        while away.status().silent_for < cluster.timing.lease * 4 {
            tokio::time::sleep(cluster.timing.pulse).await;
        }
    })
    .await;
    assert_eq!(away.status().term, term);
    cluster.mesh.rejoin(away.id(), &cluster.ids());
    cluster.write(b"after").await;
    cluster.agree().await;
    assert_eq!(cluster.leader().await.status().term, term, "the leader continues");
}

#[tokio::test(start_paused = true)]
async fn a_cut_off_leader_stops_within_its_lease() {
    let cluster = Cluster::new(3).await;
    let leader = cluster.leader().await;
    let others: Vec<_> = cluster.running().filter(|node| node.id() != leader.id()).collect();
    cluster.mesh.isolate(leader.id(), &cluster.ids());
    let cut = Instant::now();
    let next = cluster.leader_of(&others).await;
    assert!(!leader.has_lease(), "two nodes have the lease after {:?}", cut.elapsed());
    assert!(!within("a round", leader.confirm()).await);
    // It believes that it leads, but it cannot read.
    next.propose(b"kept".to_vec()).await.unwrap();
    let read = tokio::time::timeout(cluster.timing.lease, leader.read()).await;
    assert!(read.is_err() || matches!(read, Ok(Err(ReadError::NoLeader { .. }))), "{read:?}");
    cluster.mesh.rejoin(leader.id(), &cluster.ids());
    cluster.agree().await;
    assert_eq!(applied(&cluster.members[0].machine), [b"kept"]);
}

#[tokio::test(start_paused = true)]
async fn an_entry_of_a_deposed_leader_has_an_unknown_outcome() {
    let cluster = Cluster::new(3).await;
    let leader = cluster.leader().await.clone();
    let others: Vec<_> = cluster.running().filter(|node| node.id() != leader.id()).collect();
    cluster.mesh.isolate(leader.id(), &cluster.ids());
    let last = leader.status().last.map(|id| id.index);
    let proposing = leader.clone();
    let write = tokio::spawn(async move { proposing.propose(b"lost".to_vec()).await });
    let mut metrics = leader.shared.metrics.clone();
    within("the entry is written", metrics.wait_for(|metrics| metrics.last_log_index > last)).await.unwrap();
    let next = cluster.leader_of(&others).await;
    next.propose(b"kept".to_vec()).await.unwrap();
    cluster.mesh.rejoin(leader.id(), &cluster.ids());
    let answer = within("the deposed leader answers", write).await.unwrap();
    assert!(matches!(answer, Err(ProposeError::Unknown { .. })), "{answer:?}");
    // What it had not written when it was deposed is certainly not there.
    let refused = leader.propose(b"refused by openraft".to_vec()).await;
    assert!(matches!(refused, Err(ProposeError::NotLeader { .. })), "{refused:?}");
    cluster.agree().await;
    assert_eq!(applied(leader.machine()), [b"kept"]);
}

/// The leader sends, but hears nothing: it must not keep the others from electing another one for ever.
#[tokio::test(start_paused = true)]
async fn a_leader_that_hears_nothing_has_no_lease() {
    let cluster = Cluster::new(3).await;
    let leader = cluster.leader().await;
    for other in cluster.running().filter(|node| node.id() != leader.id()) {
        cluster.mesh.stall(other.id(), leader.id());
    }
    within("the lease ends", async {
        while leader.has_lease() {
            tokio::time::sleep(cluster.timing.pulse).await;
        }
    })
    .await;
    assert!(!within("a round", leader.confirm()).await);
    cluster.mesh.rejoin(leader.id(), &cluster.ids());
    cluster.write(b"after").await;
}

/// D7.
#[tokio::test(start_paused = true)]
async fn a_follower_reads_what_the_leader_acknowledged() {
    let cluster = arc(Cluster::new(3).await);
    let leader = cluster.leader().await.clone();
    for number in 0..50_u8 {
        leader.propose(vec![number]).await.unwrap();
        for node in cluster.running() {
            within("a read", node.read()).await.unwrap();
            assert!(applied(node.machine()).len() > usize::from(number), "{node:?} misses {number}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_read_without_a_leader_fails_after_its_patience() {
    let timing = Timing { read_patience: Duration::from_millis(300), ..Timing::real() };
    let mut cluster = Cluster::with_timing(2, timing).await;
    let leader = cluster.at(cluster.leader().await.id());
    cluster.stop(leader).await;
    let read = cluster.node(1 - leader).read().await;
    assert!(matches!(read, Err(ReadError::NoLeader { .. })), "{read:?}");
}
