//! A leader whose store is full and has no reserve, such as a PostgreSQL database.

use store::faulty::Fault;

use super::leadership::PartitionedLeader;
use super::*;

/// D8. Nothing can be committed. A reloaded engine would need new sessions, whose rows cannot be committed either.
#[tokio::test]
async fn a_batch_that_a_full_store_without_a_reserve_refuses_is_committed_once_there_is_space() {
    let cut = PartitionedLeader::make().await;
    cut.restore_store();
    let mut lanes = Lanes::open(&cut.node).await;
    cut.store.inject_next(Operation::Commit, Fault::Full);
    let check = cut.store.stall(Operation::Check, cut.store.calls(Operation::Check) + 1);
    let refused = try_submit(&cut.node, 1, Some(KEY)).await;
    assert_eq!(refused, Err(RequestError::OutcomeUnknown), "it is committed later");
    cut.node.wait_ready(|now| *now == Readiness::Full).await;
    assert_eq!(try_submit(&cut.node, 1, None).await, Err(RequestError::Full));
    let beat = lanes.next(lanes.session);
    cut.node.heartbeat(beat).await.unwrap();
    assert!(lanes.grant().await > 0, "the tasks of its workers continue");

    cut.a_second_passes();
    check.reached().await;
    check.release();
    cut.node.wait_ready(|now| *now == Readiness::Ready).await;
    let again = submit(&cut.node, 1).await;
    assert_eq!(submit(&cut.node, 1).await, again);
    assert!((&mut lanes.closed).now_or_never().is_none(), "the session was kept");
    assert_eq!((cut.store.calls(Operation::Load), cut.store.calls(Operation::Commit)), (1, 3));
    cut.stop().await;
}

/// D8. A shutdown does not wait for space.
#[tokio::test]
async fn a_server_whose_store_is_full_stops_at_once() {
    let cut = PartitionedLeader::make().await;
    cut.restore_store();
    cut.store.inject_next(Operation::Commit, Fault::Full);
    let check = cut.store.stall(Operation::Check, cut.store.calls(Operation::Check) + 1);
    try_submit(&cut.node, 1, None).await.unwrap_err();
    cut.a_second_passes();
    check.reached().await;
    let begun = std::time::Instant::now();
    cut.stop().await;
    assert!(begun.elapsed() < Duration::from_secs(5).to_std());
}
