//! Rules for the ownership of shards.

use std::slice;

use model::id::Epoch;
use model::record::{Batch, Lease};
use model::{Duration, JobStatus, ShardId};

use super::{Fixture, HOUR, SHARDS, Subject, load};
use crate::StoreError;

const MINUTE: Duration = Duration::from_secs(60);

fn assert_fenced<T: std::fmt::Debug>(result: Result<T, StoreError>, shard: ShardId) {
    match result {
        Err(StoreError::Fenced { shard: found }) => assert_eq!(found, shard),
        other => panic!("expected shard {shard} to be fenced, found {other:?}"),
    }
}

/// G5.
pub async fn acquiring_a_free_shard_increases_the_epoch<S: Subject>() {
    let subject = S::make().await;
    let store = subject.store();
    let first = store.acquire(&SHARDS[..1], "a", MINUTE).await.unwrap();
    assert_eq!(first.len(), 1);
    assert_eq!(first[0].shard, SHARDS[0]);
    assert!(first[0].epoch > Epoch(0));
    store.release(&first).await.unwrap();
    let second = store.acquire(&SHARDS[..1], "a", MINUTE).await.unwrap();
    assert!(second[0].epoch > first[0].epoch);
}

/// G5. Also not to an owner of the same name.
pub async fn a_leased_shard_is_not_acquired_by_another_owner<S: Subject>() {
    let subject = S::make().await;
    let store = subject.store();
    store.acquire(&SHARDS[..1], "a", MINUTE).await.unwrap();
    assert_eq!(store.acquire(&SHARDS[..1], "a", MINUTE).await.unwrap(), []);
    let rest = store.acquire(&SHARDS, "b", MINUTE).await.unwrap();
    assert_eq!(rest.iter().map(|lease| lease.shard).collect::<Vec<_>>(), &SHARDS[1..]);
}

/// D6.
pub async fn an_expired_lease_is_acquired_with_a_higher_epoch<S: Subject>() {
    let subject = S::make().await;
    let store = subject.store();
    let old = store.acquire(&SHARDS[..1], "a", MINUTE).await.unwrap();
    subject.advance(MINUTE);
    let new = store.acquire(&SHARDS[..1], "b", MINUTE).await.unwrap();
    assert!(new[0].epoch > old[0].epoch);
}

/// D6.
pub async fn a_renewal_extends_the_lease<S: Subject>() {
    let subject = S::make().await;
    let store = subject.store();
    let leases = store.acquire(&SHARDS[..1], "a", MINUTE).await.unwrap();
    subject.advance(Duration::from_secs(40));
    store.renew(&leases, MINUTE).await.unwrap();
    subject.advance(Duration::from_secs(40));
    assert_eq!(store.acquire(&SHARDS[..1], "b", MINUTE).await.unwrap(), []);
    subject.advance(Duration::from_secs(20));
    assert_eq!(store.acquire(&SHARDS[..1], "b", MINUTE).await.unwrap().len(), 1);
}

/// D6. One lost lease is enough to refuse all.
pub async fn a_lease_that_was_taken_over_cannot_be_renewed<S: Subject>() {
    let subject = S::make().await;
    let store = subject.store();
    let old = store.acquire(&SHARDS, "a", MINUTE).await.unwrap();
    subject.advance(MINUTE);
    store.acquire(&SHARDS[2..3], "b", MINUTE).await.unwrap();
    assert_fenced(store.renew(&old, MINUTE).await, SHARDS[2]);
    assert_eq!(store.acquire(&SHARDS[..1], "c", MINUTE).await.unwrap().len(), 1, "the others were renewed");
}

/// D6.
pub async fn a_released_shard_is_free_at_once<S: Subject>() {
    let mut scene = Fixture::<S>::new().await;
    let job = scene.job(JobStatus::Waiting);
    scene.store().release(&scene.leases).await.unwrap();
    let shard = scene.leases[0].shard;
    assert_fenced(scene.try_commit(vec![job.change(true)]).await, shard);
    assert_eq!(scene.store().acquire(&SHARDS, "b", HOUR).await.unwrap().len(), SHARDS.len());
}

/// D6.
pub async fn releasing_an_old_lease_does_not_affect_the_new_owner<S: Subject>() {
    let subject = S::make().await;
    let store = subject.store();
    let old = store.acquire(&SHARDS[..1], "a", MINUTE).await.unwrap();
    subject.advance(MINUTE);
    let new = store.acquire(&SHARDS[..1], "b", MINUTE).await.unwrap();
    store.release(&old).await.unwrap();
    store.renew(&new, MINUTE).await.unwrap();
}

/// D6, D7. Not even in the shards that still belong to the caller.
pub async fn a_commit_under_an_old_epoch_changes_nothing<S: Subject>() {
    let mut scene = Fixture::<S>::new().await;
    let jobs = [scene.job(JobStatus::Waiting), scene.job(JobStatus::Waiting), scene.job(JobStatus::Waiting)];
    scene.subject.advance(HOUR);
    scene.store().acquire(&SHARDS[1..2], "b", HOUR).await.unwrap();
    let changes = jobs.iter().map(|job| job.change(true)).collect();
    assert_fenced(scene.try_commit(changes).await, SHARDS[1]);
    for job in jobs {
        assert_eq!(scene.store().job(job.id).await.unwrap(), None);
    }
    assert!(scene.store().counts(None).await.unwrap().is_empty());
}

/// G5.
pub async fn a_commit_for_a_shard_without_a_lease_is_refused<S: Subject>() {
    let mut scene = Fixture::<S>::new().await;
    let job = scene.job(JobStatus::Waiting);
    scene.leases.retain(|lease| lease.shard != job.id.shard());
    assert_fenced(scene.try_commit(vec![job.change(true)]).await, job.id.shard());
    assert_eq!(scene.store().job(job.id).await.unwrap(), None);
}

/// D6.
pub async fn a_load_under_an_old_epoch_is_refused<S: Subject>() {
    let scene = Fixture::<S>::new().await;
    scene.subject.advance(HOUR);
    scene.store().acquire(&SHARDS[3..], "b", HOUR).await.unwrap();
    assert_fenced(load(scene.store(), &scene.leases).await, SHARDS[3]);
}

/// G5.
pub async fn a_missing_shard_cannot_be_acquired<S: Subject>() {
    let subject = S::make().await;
    let store = subject.store();
    let beyond = ShardId(store.shards());
    assert_eq!(store.acquire(slice::from_ref(&beyond), "a", MINUTE).await.unwrap(), []);
    let invented = Lease { shard: beyond, epoch: Epoch(1) };
    assert_fenced(store.renew(&[invented], MINUTE).await, beyond);
}

/// S24. Lost epochs and positions must not be issued again.
pub async fn a_restored_store_continues_above_all_issued_numbers<S: Subject>() {
    let mut scene = Fixture::<S>::new().await;
    let job = scene.job(JobStatus::Waiting);
    let told = scene.commit(vec![job.change(true)]).await.first_event;
    assert_eq!(scene.store().shards_with_lost_commits(&scene.leases).await.unwrap(), []);
    scene.store().mark_restored().await.unwrap();
    assert_fenced(scene.store().renew(&scene.leases, HOUR).await, SHARDS[0]);
    let mut scene = scene.reopen().await;
    assert!(scene.leases.iter().all(|lease| lease.epoch > Epoch(1 << 20)), "{:?}", scene.leases);
    assert_eq!(scene.store().shards_with_lost_commits(&scene.leases).await.unwrap(), SHARDS);
    let next = scene.job(JobStatus::Waiting);
    let next = scene.commit(vec![next.change(true)]).await.first_event;
    assert!(next.0 >= told.0 + (1 << 32), "{next:?} comes after {told:?}");
    assert!(scene.store().job(job.id).await.unwrap().is_some());

    let (dealt_with, others) = scene.leases.split_at(1);
    scene.store().mark_reconciled(dealt_with).await.unwrap();
    scene.store().release(&scene.leases).await.unwrap();
    // Only the owner can record it.
    scene.store().mark_reconciled(others).await.unwrap();
    let leases = scene.store().acquire(&SHARDS, "next", HOUR).await.unwrap();
    assert_eq!(scene.store().shards_with_lost_commits(&leases).await.unwrap(), SHARDS[1..]);
    scene.store().mark_reconciled(&leases).await.unwrap();
    assert_eq!(scene.store().shards_with_lost_commits(&leases).await.unwrap(), []);
}

/// Rule 8 of the design, and its one exception.
pub async fn only_a_reset_sets_engine_time_back<S: Subject>() {
    let mut scene = Fixture::<S>::new().await;
    let job = scene.job(JobStatus::Waiting);
    scene.commit(vec![job.change(true)]).await;
    let committed = load(scene.store(), &scene.leases).await.unwrap().0.now;
    let before = committed - HOUR;
    let other = scene.job(JobStatus::Waiting);
    let late = Batch { now: before, changes: vec![other.change(true)], ..Batch::default() };
    scene.store().commit(&scene.leases, late.into()).await.unwrap();
    assert_eq!(load(scene.store(), &scene.leases).await.unwrap().0.now, committed);
    scene.store().reset_clock(before).await.unwrap();
    assert_eq!(load(scene.store(), &scene.leases).await.unwrap().0.now, before);
    scene.store().reset_clock(committed).await.unwrap();
    let scene = scene.reopen().await;
    assert_eq!(load(scene.store(), &scene.leases).await.unwrap().0.now, before, "it is never set forward");
    assert_eq!(scene.store().shards_with_lost_commits(&scene.leases).await.unwrap(), []);
}
