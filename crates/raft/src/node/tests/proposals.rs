//! How operations become entries.

use futures::future::join_all;

use super::*;
use crate::machine::Machine;

#[tokio::test(start_paused = true)]
async fn operations_that_wait_share_an_entry() {
    let cluster = Cluster::new(1).await;
    let (node, machine) = (cluster.node(0).clone(), &cluster.members[0].machine);
    // Four entries in flight, whose answers wait for the machine.
    machine.run(false);
    let before = node.status().last.unwrap().index;
    let proposing = node.clone();
    let answers =
        tokio::spawn(
            async move { join_all((0..100_u8).map(|number| proposing.propose(vec![number]))).await },
        );
    let mut metrics = node.shared.metrics.clone();
    within(
        "four entries are written",
        metrics.wait_for(|metrics| metrics.last_log_index >= Some(before + 1)),
    )
    .await
    .unwrap();
    machine.run(true);
    let answers = within("all are answered", answers).await.unwrap();
    let expected: Vec<u64> = (0..100).collect();
    assert_eq!(answers.into_iter().map(Result::unwrap).collect::<Vec<_>>(), expected);
    let commands = machine.commands();
    assert_eq!(
        commands.iter().map(|(_, command)| command[0]).collect::<Vec<_>>(),
        (0..100).collect::<Vec<_>>()
    );
    let mut entries: Vec<u64> = commands.iter().map(|(index, _)| *index).collect();
    entries.dedup();
    assert!(entries.len() <= 8, "{} entries", entries.len());
}

#[tokio::test(start_paused = true)]
async fn a_command_that_cannot_be_encoded_is_answered_without_an_entry() {
    let cluster = Cluster::new(1).await;
    let node = cluster.node(0);
    let last = node.status().last;
    assert_eq!(node.propose(b"refused".to_vec()).await, Ok(u64::MAX));
    assert_eq!(node.status().last, last);
    assert_eq!(node.propose(b"taken".to_vec()).await, Ok(0));
}

#[tokio::test(start_paused = true)]
async fn an_operation_on_any_node_is_forwarded_to_the_leader() {
    let cluster = Cluster::new(3).await;
    for (number, node) in (0..).zip(cluster.running()) {
        let answer = within("the command is forwarded", node.forward(vec![number])).await;
        assert_eq!(answer, Ok(u64::from(number)));
        // It is applied here when the answer comes.
        assert_eq!(applied(node.machine()).len(), usize::from(number) + 1);
        assert_eq!(node.forward(b"refused".to_vec()).await, Ok(u64::MAX));
    }
    let follower = cluster.running().find(|node| !node.leads()).unwrap();
    let refused = follower.propose(b"here".to_vec()).await;
    assert!(matches!(refused, Err(ProposeError::NotLeader { leader: Some(_) })), "{refused:?}");
}

#[tokio::test(start_paused = true)]
async fn a_large_batch_is_applied_completely_or_not_at_all() {
    let mut cluster = Cluster::new(3).await;
    let large: Vec<u8> = (0..20_000_u32).map(|byte| byte as u8).collect();
    // Parts between which the leader is stopped: the batch is either there or not, and the answer is right.
    for round in 0..3_u64 {
        let leader = cluster.leader().await.clone();
        let before = leader.status().last.unwrap().index;
        let proposing = (leader.clone(), large.clone());
        let write = tokio::spawn(async move { proposing.0.propose(proposing.1).await });
        let mut metrics = leader.shared.metrics.clone();
        let written = metrics.wait_for(|metrics| metrics.last_log_index >= Some(before + 1 + round * 9));
        // A leader that is deposed before refuses the batch.
        let mut write = write;
        let answered = within("some parts are written", async {
            tokio::select! {
                _ = written => None,
                answer = &mut write => Some(answer.unwrap()),
            }
        })
        .await;
        let at = cluster.at(leader.id());
        cluster.stop(at).await;
        let answer = match answered {
            Some(answer) => answer,
            None => within("the write ends", write).await.unwrap(),
        };
        cluster.write(b"after").await;
        cluster.restart(at).await;
        cluster.agree().await;
        let commands = applied(&cluster.members[at].machine);
        let count = commands.iter().filter(|command| **command == large).count() as u64;
        assert_eq!(commands.iter().filter(|command| **command != large && **command != b"after").count(), 0);
        match answer {
            Ok(_) => assert!(count > 0, "an acknowledged batch is lost"),
            Err(ProposeError::NotLeader { .. }) => assert!(count <= round, "a refused batch was applied"),
            Err(_) => {}
        }
    }
    cluster.write(&large).await;
    cluster.agree().await;
    assert_eq!(applied(&cluster.members[0].machine).last(), Some(&large));
}

#[tokio::test(start_paused = true)]
async fn a_restart_between_the_parts_of_a_group_applies_it_once() {
    let mut cluster = Cluster::new(1).await;
    let large = vec![7; 10_000];
    cluster.write(&large).await;
    cluster.write(b"after").await;
    cluster.node(0).machine().sync().await.unwrap();
    for _ in 0..2 {
        cluster.stop(0).await;
        cluster.restart(0).await;
        cluster.leader().await;
        assert_eq!(applied(&cluster.members[0].machine), [large.clone(), b"after".to_vec()]);
        // Without a sync, the log is applied again from the start.
        cluster.members[0].machine.cut_power();
    }
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_fails_stops_its_node() {
    let mut cluster = Cluster::new(3).await;
    let leader = cluster.leader().await.clone();
    let at = cluster.at(leader.id());
    leader.machine().fail("the disk has failed");
    let answer = within("the write ends", leader.propose(b"unknown".to_vec())).await;
    assert!(matches!(answer, Err(ProposeError::Unknown { .. } | ProposeError::Stopped)), "{answer:?}");
    cluster.stop(at).await;
    // Another node leads; the entry may or may not be there.
    cluster.write(b"after").await;
    cluster.restart(at).await;
    cluster.agree().await;
}
