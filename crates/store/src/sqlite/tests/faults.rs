//! The store behind the fault injection wrapper, on which the tests of the server rely.

use model::record::{Batch, Change, Lease};
use model::{JobStatus, ShardId};

use super::*;
use crate::StoreError;
use crate::faulty::{Fault, FaultyStore, Operation};
use crate::suite::load;
use crate::suite::sample::Sampler;
use crate::{Commits as _, Housekeeping as _, Leases as _, Reads as _};

struct Faulty {
    store: Arc<FaultyStore<SqliteStore>>,
    leases: Vec<Lease>,
    sampler: Sampler,
    _subject: OnDisk,
}

impl Faulty {
    async fn new() -> Self {
        let mut subject = OnDisk::new();
        let store = Arc::new(FaultyStore::new(subject.store.take().unwrap()));
        let leases = store.acquire(&[ShardId(0)], "a", Duration::from_hours(1)).await.unwrap();
        Self { store, leases, sampler: Sampler::new(71), _subject: subject }
    }

    fn batch(&mut self) -> (model::JobId, Arc<Batch>) {
        let id = self.sampler.job_id(ShardId(0));
        let (head, state) = (Some(self.sampler.head()), Box::new(self.sampler.state(JobStatus::Ready)));
        let changes = vec![Change::Job { id, new: true, head, state }];
        (id, Arc::new(Batch { now: self.sampler.now(), changes, ..Batch::default() }))
    }

    /// Commits a batch; returns the result, and whether its job exists.
    async fn commit(&mut self) -> (Result<(), StoreError>, bool) {
        let (id, batch) = self.batch();
        let result = self.store.commit(&self.leases, batch).await.map(drop);
        if result.is_err() {
            let _ = load(self.store.as_ref(), &self.leases).await;
        }
        (result, self.store.inner().job(id).await.unwrap().is_some())
    }
}

/// F7, F8, F13.
#[tokio::test]
async fn each_fault_affects_only_the_chosen_call() {
    let mut faulty = Faulty::new().await;
    faulty.store.inject(Operation::Commit, 2, Fault::Before);
    faulty.store.inject(Operation::Commit, 3, Fault::After);
    faulty.store.inject(Operation::Commit, 4, Fault::Full);
    faulty.store.inject(Operation::Commit, 5, Fault::Fenced(ShardId(0)));
    assert!(matches!(faulty.commit().await, (Ok(()), true)));
    assert!(matches!(faulty.commit().await, (Err(StoreError::Unavailable { .. }), false)));
    assert!(matches!(faulty.commit().await, (Err(StoreError::OutcomeUnknown { .. }), true)));
    assert!(matches!(faulty.commit().await, (Err(StoreError::Full), false)));
    assert!(matches!(faulty.commit().await, (Err(StoreError::Fenced { shard: ShardId(0) }), false)));
    assert!(matches!(faulty.commit().await, (Ok(()), true)));
    assert_eq!(faulty.store.calls(Operation::Commit), 6);
    assert_eq!(faulty.store.calls(Operation::Acquire), 1);
}

/// F8.
#[tokio::test]
async fn all_operations_fail_after_a_fatal_fault() {
    let mut faulty = Faulty::new().await;
    faulty.store.inject_next(Operation::Commit, Fault::Fatal);
    for _ in 0..2 {
        assert!(matches!(faulty.commit().await, (Err(StoreError::Fatal { .. }), false)));
        assert!(matches!(faulty.store.check().await, Err(StoreError::Fatal { .. })));
    }
}

/// F5.
#[tokio::test]
async fn a_stalled_call_waits_for_its_release() {
    let mut faulty = Faulty::new().await;
    let stall = faulty.store.stall(Operation::Commit, 1);
    let (id, batch) = faulty.batch();
    let (store, leases) = (Arc::clone(&faulty.store), faulty.leases.clone());
    let commit = tokio::spawn(async move { store.commit(&leases, batch).await });
    stall.reached().await;
    assert!(!commit.is_finished());
    assert_eq!(faulty.store.inner().job(id).await.unwrap(), None);
    stall.release();
    commit.await.unwrap().unwrap();
    assert!(faulty.store.inner().job(id).await.unwrap().is_some());
}
