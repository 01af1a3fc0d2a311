//! Nodes that need more than the log.

use store::pace::Pace;

use super::*;
use crate::machine::snapshot_files::Folder;
use crate::machine::{COPY_RATE, Machine};

/// Writes until the log of the leader no longer begins where a node that is away ended.
async fn fill(cluster: &Cluster) {
    for number in 0..40_u8 {
        cluster.write(&[number; 900]).await;
    }
    for node in cluster.running() {
        node.read().await.unwrap();
        let upto = node.status().applied.unwrap().index;
        node.purge(upto).await.unwrap();
        let mut metrics = node.shared.metrics.clone();
        let purged = metrics.wait_for(|metrics| metrics.purged.is_some_and(|id| id.index == upto));
        within("the log is purged", purged).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_follower_that_was_away_catches_up_by_log_and_by_snapshot() {
    let mut cluster = Cluster::new(3).await;
    let leader = cluster.leader().await.id();
    let at = cluster.members.iter().position(|member| member.id != leader).unwrap();
    cluster.stop(at).await;
    cluster.write(b"by log").await;
    cluster.restart(at).await;
    cluster.caught_up(at).await;
    cluster.stop(at).await;
    fill(&cluster).await;
    cluster.restart(at).await;
    cluster.caught_up(at).await;
    assert!(cluster.node(at).status().purged.is_some(), "it got a snapshot");
    cluster.write(b"after").await;
    cluster.agree().await;
    // What it has received is durable.
    cluster.stop(at).await;
    cluster.members[at].machine.cut_power();
    cluster.restart(at).await;
    cluster.agree().await;
    let folder = cluster.folder.path().join(cluster.members[at].id.to_string()).join("snapshots");
    assert_eq!(std::fs::read_dir(folder).unwrap().count(), 0, "no file of a snapshot remains");
}

#[tokio::test(start_paused = true)]
async fn a_new_node_gets_a_snapshot_and_votes() {
    let mut cluster = Cluster::new(1).await;
    fill(&cluster).await;
    let at = cluster.join().await;
    cluster.caught_up(at).await;
    cluster.agree().await;
    // With two voters, nothing is acknowledged without the new one.
    let first = cluster.node(0).clone();
    cluster.mesh.isolate(NodeId(1), &cluster.ids());
    within("the lease ends", async {
        while first.has_lease() {
            tokio::time::sleep(cluster.timing.pulse).await;
        }
    })
    .await;
    cluster.mesh.rejoin(NodeId(1), &cluster.ids());
    cluster.write(b"after").await;
}

#[tokio::test(start_paused = true)]
async fn an_interrupted_snapshot_installation_is_finished_at_the_next_start() {
    // The process has ended after the marker was written; with and without the file, which the machine may have taken.
    for is_taken in [false, true] {
        let mut cluster = Cluster::new(3).await;
        let leader = cluster.leader().await.id();
        let at = cluster.members.iter().position(|member| member.id != leader).unwrap();
        cluster.stop(at).await;
        fill(&cluster).await;
        let path = cluster.folder.path().join(cluster.members[at].id.to_string()).join("snapshots");
        let folder = Folder::open(path).unwrap();
        let file = folder.complete(1);
        cluster.leader().await.machine().copy_to(&file, Pace::new(COPY_RATE)).await.unwrap();
        folder.mark(&file).unwrap();
        if is_taken {
            cluster.members[at].machine.install(&file).await.unwrap();
        }
        // No other node is needed for that.
        cluster.mesh.isolate(cluster.members[at].id, &cluster.ids());
        cluster.restart(at).await;
        assert!(folder.interrupted().unwrap().is_none() && !file.exists());
        let status = cluster.node(at).status();
        assert_eq!(cluster.node(at).machine().state().applied, status.applied);
        assert!(status.purged.is_some() && status.last == status.applied);
        cluster.mesh.rejoin(cluster.members[at].id, &cluster.ids());
        cluster.write(b"after").await;
        cluster.agree().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_is_older_than_the_log_is_refused() {
    let mut cluster = Cluster::new(1).await;
    fill(&cluster).await;
    cluster.stop(0).await;
    let (options, disk) = (cluster.options(0, Start::Existing), Arc::clone(&cluster.members[0].disk));
    let slowness = Slowness { luck: None, hold: cluster.members[0].hold.subscribe() };
    let log = |_: &Path, options| Log::open_simulated(disk, options, slowness);
    let open = Node::open_on(options, Memory::default(), cluster.mesh.transport(NodeId(1)), log);
    let error = open.await.unwrap_err();
    assert!(matches!(error, crate::error::OpenError::Gap { applied: None, .. }), "{error}");
}

/// Such a node has acknowledged entries that it no longer has.
#[tokio::test(start_paused = true)]
async fn a_node_that_was_restored_from_an_older_state_is_refused() {
    let mut cluster = Cluster::new(3).await;
    let leader = cluster.leader().await.clone();
    let at = cluster.members.iter().position(|member| member.id != leader.id()).unwrap();
    let id = cluster.members[at].id;
    cluster.stop(at).await;
    let copy = cluster.members[at].disk.copy();
    cluster.restart(at).await;
    cluster.write(b"acknowledged by all").await;
    cluster.caught_up(at).await;
    let last = leader.status().last;
    let mut metrics = leader.shared.metrics.clone();
    let matched = metrics.wait_for(|metrics| {
        metrics.replication.as_ref().is_some_and(|nodes| nodes.get(&id).copied().flatten() == last)
    });
    within("the leader knows it", matched).await.unwrap();
    cluster.stop(at).await;
    cluster.members[at].disk = copy;
    cluster.members[at].machine.cut_power();
    cluster.restart(at).await;
    let links = leader.shared.wire.peer(id, &Peer::default());
    let refused = links.control.call::<bool>(crate::net::message::PRE_VOTE, &(), PATIENCE).await;
    let problem = std::error::Error::source(&refused.unwrap_err()).unwrap().to_string();
    assert!(problem.contains("has lost entries that it had acknowledged"), "{problem}");
    cluster.write(b"after").await;
    assert_eq!(applied(&cluster.members[at].machine), Vec::<Vec<u8>>::new());
}

#[tokio::test(start_paused = true)]
async fn the_log_is_purged_when_it_grows() {
    let timing = Timing { purge_interval: Duration::from_millis(20), ..Timing::real() };
    let cluster = Cluster::with_timing(1, timing).await;
    for number in 0..60_u8 {
        cluster.write(&[number; 900]).await;
    }
    let mut metrics = cluster.node(0).shared.metrics.clone();
    within("the log is purged", metrics.wait_for(|metrics| metrics.purged.is_some())).await.unwrap();
}

/// Copies are sent in ten pieces or so, within half a second.
const SLOW: NonZeroU64 = NonZeroU64::new(64 * 1024).unwrap();

/// Returns how much of a copy a node has, when the leader sends it.
async fn sent_to(leader: &Node<Memory>, node: NodeId, at_least: u64) -> u64 {
    within("a copy is sent", async {
        loop {
            match leader.shared.copies.progress(node) {
                Some(progress) if progress.sent >= at_least => return progress.sent,
                _ => tokio::time::sleep(Duration::from_millis(1)).await,
            }
        }
    })
    .await
}

/// Starts a cluster of three, of which the last one needs a snapshot, and is stopped.
async fn with_one_behind(keep: Keep, purge_interval: Duration) -> (Cluster, Node<Memory>, usize) {
    let mut cluster = Cluster::with_timing(3, Timing { purge_interval, ..Timing::real() }).await;
    (cluster.copy_rate, cluster.keep) = (SLOW, keep);
    for at in 0..3 {
        cluster.stop(at).await;
    }
    for at in 0..3 {
        cluster.restart(at).await;
    }
    let leader = cluster.leader().await.clone();
    let at = cluster.members.iter().position(|member| member.id != leader.id()).unwrap();
    cluster.stop(at).await;
    fill(&cluster).await;
    (cluster, leader, at)
}

#[tokio::test(start_paused = true)]
async fn a_broken_transfer_continues_where_it_was() {
    for is_restarted in [false, true] {
        let (mut cluster, leader, at) = with_one_behind(Keep::default(), Timing::real().purge_interval).await;
        let id = cluster.members[at].id;
        cluster.restart(at).await;
        let sent = sent_to(&leader, id, 12 * 1024).await;
        if is_restarted {
            cluster.stop(at).await;
        } else {
            cluster.mesh.isolate(id, &cluster.ids());
        }
        within("the transfer ends", async {
            while leader.shared.copies.progress(id).is_some() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        })
        .await;
        if is_restarted {
            cluster.restart(at).await;
        } else {
            cluster.mesh.rejoin(id, &cluster.ids());
        }
        assert!(sent_to(&leader, id, 0).await >= sent, "restarted: {is_restarted}");
        cluster.caught_up(at).await;
        assert!(cluster.node(at).status().purged.is_some(), "it got a snapshot");
        cluster.agree().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_piece_that_was_damaged_at_rest_is_noticed() {
    let (mut cluster, leader, at) = with_one_behind(Keep::default(), Timing::real().purge_interval).await;
    let id = cluster.members[at].id;
    cluster.restart(at).await;
    sent_to(&leader, id, 12 * 1024).await;
    cluster.stop(at).await;
    let file = cluster.folder.path().join(id.to_string()).join("snapshots").join("incoming");
    let mut bytes = std::fs::read(&file).unwrap();
    bytes[5000] ^= 1;
    std::fs::write(&file, bytes).unwrap();
    cluster.restart(at).await;
    cluster.caught_up(at).await;
    cluster.agree().await;
}

#[tokio::test(start_paused = true)]
async fn nodes_that_need_a_snapshot_together_get_the_same_copy() {
    let mut cluster = Cluster::new(5).await;
    let leader = cluster.leader().await.clone();
    let behind: Vec<usize> = (0..5).filter(|at| cluster.members[*at].id != leader.id()).take(2).collect();
    for at in &behind {
        cluster.stop(*at).await;
    }
    fill(&cluster).await;
    for at in &behind {
        cluster.restart(*at).await;
    }
    for at in behind {
        cluster.caught_up(at).await;
    }
    assert_eq!(leader.shared.copies.made().await, 1);
    cluster.agree().await;
}

#[tokio::test(start_paused = true)]
async fn the_log_keeps_what_follows_a_copy_until_its_receiver_has_it() {
    let keep = Keep { bytes: 1024, bytes_max: 16 * 1024, bytes_after_copy: Some(1024 * 1024) };
    let (mut cluster, leader, at) = with_one_behind(keep, Duration::from_millis(20)).await;
    let id = cluster.members[at].id;
    cluster.restart(at).await;
    sent_to(&leader, id, 4 * 1024).await;
    let purged = leader.status().purged;
    // More than stays for the slowest member otherwise.
    for number in 0..80_u8 {
        cluster.write(&[number; 900]).await;
    }
    assert!(leader.shared.copies.progress(id).is_some(), "the transfer has ended too early for this test");
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(leader.status().purged, purged);
    cluster.caught_up(at).await;
    assert_eq!(leader.shared.copies.made().await, 1, "the first copy was enough");
    let mut metrics = leader.shared.metrics.clone();
    within("the log is purged", metrics.wait_for(|metrics| metrics.purged > purged)).await.unwrap();
    assert!(leader.shared.copies.kept().is_none());
    cluster.agree().await;
}

#[tokio::test(start_paused = true)]
async fn a_copy_that_the_log_has_outgrown_is_replaced() {
    let keep = Keep { bytes: 1024, bytes_max: 16 * 1024, bytes_after_copy: Some(32 * 1024) };
    let (mut cluster, leader, at) = with_one_behind(keep, Duration::from_millis(20)).await;
    let id = cluster.members[at].id;
    cluster.restart(at).await;
    sent_to(&leader, id, 4 * 1024).await;
    for number in 0..80_u8 {
        cluster.write(&[number; 900]).await;
    }
    cluster.caught_up(at).await;
    assert!(leader.shared.copies.made().await > 1);
    cluster.agree().await;
}
