//! A leader whose store does not confirm its lease in time. The clock is manual: the lease expires exactly when the
//! test advances it.

use store::Reads as _;

use super::*;

const LEADS: Duration = Duration::from_secs(2);

/// A leader over a shared store. Its renewals fail: the first one hangs, the others return an error.
pub(super) struct PartitionedLeader {
    pub(super) node: Node,
    thread: DriverHandle,
    pub(super) store: Arc<FaultyStore<SqliteStore>>,
    dial: Arc<ManualClock>,
    renewal: Arc<store::faulty::Stall>,
    _dir: tempfile::TempDir,
}

impl PartitionedLeader {
    pub(super) async fn make() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = Arc::new(FaultyStore::new(sqlite(dir.path())).shared());
        let dial = dial();
        let shared = Arc::clone(&store) as Arc<dyn Store>;
        let (node, thread) =
            leading(shared, dir.path(), Arc::clone(&dial), |config| config.lease = LEADS).await;
        let next = store.calls(Operation::Renew) + 1;
        // A renewal that hangs times out after a while, and is sent again.
        store.fail_all(Operation::Renew);
        let renewal = store.stall(Operation::Renew, next);
        Self { node, thread, store, dial, renewal, _dir: dir }
    }

    /// Advances the clock to the end of the lease.
    fn lease_ends(&self) {
        self.dial.on(LEADS);
    }

    /// Advances the clock by less than a lease.
    pub(super) fn a_second_passes(&self) {
        self.dial.on(Duration::from_secs(1));
    }

    /// Lets the store answer again.
    pub(super) fn restore_store(&self) {
        self.store.heal(Operation::Renew);
        self.renewal.release();
    }

    pub(super) async fn stop(self) {
        // A renewal that hangs must not delay the shutdown.
        self.restore_store();
        self.node.stop();
        self.thread.join().await.unwrap();
    }
}

/// D2, D7. A worker lease that is renewed without a leadership lease lets a task run beside its next execution.
#[tokio::test]
async fn a_leader_whose_renewals_hang_renews_no_worker_lease_and_closes_sessions() {
    let cut = PartitionedLeader::make().await;
    let mut lanes = Lanes::open(&cut.node).await;
    let beat = lanes.next(lanes.session);
    cut.node.heartbeat(beat).await.unwrap();
    assert!(lanes.grant().await > 0, "the lease is still valid");

    cut.lease_ends();
    let beat = lanes.next(lanes.session);
    cut.node.heartbeat(beat).await.unwrap();
    assert!((&mut lanes.closed).await.is_err(), "the session is closed");
    assert!(lanes.granted.try_recv().is_err(), "no worker lease is renewed");
    assert_eq!(cut.node.check_leading(), Err(RequestError::Loading));
    assert!(cut.node.is_suspended());

    cut.restore_store();
    cut.node.wait_ready(|now| *now == Readiness::Ready).await;
    let mut lanes = Lanes::open(&cut.node).await;
    let beat = lanes.next(lanes.session);
    cut.node.heartbeat(beat).await.unwrap();
    assert!(lanes.grant().await > 0, "it leads again");
    assert_eq!(cut.store.calls(Operation::Load), 1, "and kept its engine");
    cut.stop().await;
}

/// D6. Load balancers and other servers must not depend on the engine's thread for it.
#[tokio::test]
async fn a_leader_is_not_ready_after_its_lease_expires() {
    let cut = PartitionedLeader::make().await;
    assert_eq!(cut.node.ready(), Readiness::Ready);
    cut.lease_ends();
    assert_eq!(cut.node.ready(), Readiness::Suspended);
    cut.stop().await;
}

/// D3. Another server leads after the lease, and workers must not wait for this server.
#[tokio::test]
async fn sessions_end_with_the_lease_although_the_engines_thread_hangs() {
    let cut = PartitionedLeader::make().await;
    let node = cut.node.clone();
    let mut suspended = Box::pin(node.leadership_suspended());
    cut.dial.hangs.store(true, Ordering::SeqCst);
    assert!(suspended.as_mut().now_or_never().is_none());
    cut.lease_ends();
    suspended.await;
    assert_eq!(cut.node.check_leading(), Err(RequestError::Loading));
    cut.dial.hangs.store(false, Ordering::SeqCst);
    cut.stop().await;
}

/// D7. Answers from memory report jobs that the store may no longer have.
#[tokio::test]
async fn a_known_key_is_not_answered_without_a_lease() {
    let cut = PartitionedLeader::make().await;
    submit(&cut.node, 1).await;
    cut.lease_ends();
    let again = try_submit(&cut.node, 1, Some(KEY)).await;
    assert_eq!(again, Err(RequestError::Loading));
    cut.stop().await;
}

/// D4. A store that is slower than the lease costs time, not the leadership, if no other server took over.
#[tokio::test]
async fn a_commit_that_takes_longer_than_the_lease_is_answered_when_it_is_durable() {
    let cut = PartitionedLeader::make().await;
    let commit = cut.store.stall(Operation::Commit, cut.store.calls(Operation::Commit) + 1);
    let node = cut.node.clone();
    let submitted = tokio::spawn(async move { submit(&node, 1).await });
    commit.reached().await;
    cut.lease_ends();
    cut.node.wait_ready(|now| *now == Readiness::Suspended).await;
    commit.release();
    assert_eq!(submitted.await.unwrap().len(), 1);
    cut.restore_store();
    cut.node.wait_ready(|now| *now == Readiness::Ready).await;
    assert_eq!(cut.store.calls(Operation::Load), 1, "the engine was kept");
    cut.stop().await;
}

/// D6. A waiting client gets an unknown outcome in the end, and can ask another server.
#[tokio::test]
async fn a_long_suspension_ends_leadership_and_answers_waiting_requests() {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(FaultyStore::new(sqlite(dir.path())).shared());
    let dial = dial();
    let lease = Duration::from_millis(50);
    let shared = Arc::clone(&store) as Arc<dyn Store>;
    let (node, thread) = leading(shared, dir.path(), Arc::clone(&dial), |config| config.lease = lease).await;
    let commit = store.stall(Operation::Commit, store.calls(Operation::Commit) + 1);
    let of_submitter = node.clone();
    let submitted = tokio::spawn(async move { try_submit(&of_submitter, 1, None).await });
    commit.reached().await;
    store.fail_all(Operation::Renew);
    let _time = dial.runs();
    assert_eq!(submitted.await.unwrap(), Err(RequestError::OutcomeUnknown));
    commit.release();
    store.heal(Operation::Renew);
    node.wait_ready(|now| *now == Readiness::Ready).await;
    node.stop();
    thread.join().await.unwrap();
}

/// D12. The engine must give no more work to a worker whose session was closed.
#[tokio::test]
async fn the_engine_is_notified_of_sessions_closed_by_a_suspension() {
    let cut = PartitionedLeader::make().await;
    let lanes = Lanes::open(&cut.node).await;
    cut.lease_ends();
    assert!(lanes.closed.await.is_err());
    cut.restore_store();
    cut.node.wait_ready(|now| *now == Readiness::Ready).await;
    let job = try_submit(&cut.node, 1, None).await.unwrap()[0];
    // Earlier decisions are committed with this one, or before it.
    try_submit(&cut.node, 1, None).await.unwrap();
    let row = cut.store.job(job).await.unwrap().unwrap();
    assert_eq!(row.state.status, model::JobStatus::Waiting, "no worker is connected");
    cut.stop().await;
}
