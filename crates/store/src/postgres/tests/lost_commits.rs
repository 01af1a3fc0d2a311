//! A database that has lost acknowledged commits.

use super::*;
use crate::EventSeq;
use crate::suite::cluster::Settings;
use crate::{Commits as _, Leases as _, Reads as _};

/// D8, F12. A standby was promoted: whether it has all commits is unknown.
#[tokio::test]
async fn after_a_promotion_epochs_skip_and_shards_need_reconciliation() {
    let settings = Settings { durable: true, ..Settings::default() };
    let cluster = Arc::new(Cluster::start(&settings));
    let database = Arc::new(cluster.database());
    let store = PostgresStore::open(&database.url(), Options::default()).await.unwrap();
    let before = store.acquire(&SHARDS, "old", HOUR).await.unwrap();
    assert_eq!(store.shards_with_lost_commits(&before).await.unwrap(), []);
    let mut sampler = Sampler::new(31);
    let told = store.commit(&before, batch(&mut sampler, SHARDS[0], 2).1).await.unwrap().first_event;
    drop(store);

    cluster.shut_down();
    std::fs::write(cluster.data().join("standby.signal"), "").unwrap();
    cluster.start_server(&settings);
    assert_eq!(database.execute("SELECT pg_promote()"), [Some("t".to_owned())]);

    let store = PostgresStore::open(&database.url(), Options::default()).await.unwrap();
    let (_, refused) = batch(&mut sampler, SHARDS[0], 0);
    let error = store.commit(&before, refused).await.unwrap_err();
    assert!(matches!(error, StoreError::Fenced { .. }), "{error:?}");
    store.release(&before).await.unwrap();
    let after = store.acquire(&SHARDS, "new", HOUR).await.unwrap();
    for (old, new) in before.iter().zip(&after) {
        assert_eq!(new.epoch.0, ((old.epoch.0 >> 20) + 1) << 20);
    }
    assert_eq!(store.shards_with_lost_commits(&after).await.unwrap(), SHARDS);
    // A reader that saw lost events continues with the new ones, and sees no event twice.
    let next = store.commit(&after, batch(&mut sampler, SHARDS[0], 1).1).await.unwrap().first_event;
    assert_eq!(next.0, told.0 + 2 + (1 << 32));
    for heard in [EventSeq(told.0 + 1), EventSeq(told.0 + 100)] {
        let page = store.events(heard, 5).await.unwrap();
        assert_eq!(page.events.iter().map(|(place, _)| *place).collect::<Vec<_>>(), [next]);
    }

    // The owner ends before it has reconciled all of them.
    store.mark_reconciled(&after[..1]).await.unwrap();
    store.release(&after).await.unwrap();
    let next = store.acquire(&SHARDS, "next", HOUR).await.unwrap();
    assert_eq!(next[0].epoch.0, after[0].epoch.0 + 1);
    assert_eq!(store.shards_with_lost_commits(&next).await.unwrap(), SHARDS[1..]);
    // Only the owner can record it.
    store.mark_reconciled(&after).await.unwrap();
    assert_eq!(store.shards_with_lost_commits(&next).await.unwrap(), SHARDS[1..]);
    store.mark_reconciled(&next).await.unwrap();
    assert_eq!(store.shards_with_lost_commits(&next).await.unwrap(), []);
}

/// S24. Restored into the same server, which is on the same timeline.
#[tokio::test]
async fn a_restored_dump_is_an_earlier_state() {
    let subject = InDatabase::make().await;
    let leases = subject.acquire().await;
    let mut sampler = Sampler::new(32);
    subject.store.commit(&leases, batch(&mut sampler, SHARDS[0], 1).1).await.unwrap();
    let dump = subject.database.dump();
    subject.store.commit(&leases, batch(&mut sampler, SHARDS[0], 1).1).await.unwrap();
    subject.database.execute(&dump);

    // As if it knew nothing of the restore.
    let (_, late) = batch(&mut sampler, SHARDS[0], 1);
    let error = subject.store.commit(&leases, late).await.unwrap_err();
    assert!(matches!(error, StoreError::Fenced { .. }), "{error:?}");
    assert!(matches!(subject.store.renew(&leases, HOUR).await, Err(StoreError::Fenced { .. })));
    subject.store.release(&leases).await.unwrap();
    let after = subject.acquire().await;
    assert!(after.iter().all(|lease| lease.epoch.0 >= 1 << 20), "{after:?}");
    assert_eq!(subject.store.shards_with_lost_commits(&after).await.unwrap(), SHARDS);
    subject.store.mark_reconciled(&after).await.unwrap();
    subject.store.release(&after).await.unwrap();
    let next = subject.acquire().await;
    assert_eq!(subject.store.shards_with_lost_commits(&next).await.unwrap(), []);
}

/// An older release recorded only the timeline.
#[tokio::test]
async fn shards_of_an_older_release_have_lost_nothing() {
    let subject = InDatabase::make().await;
    let leases = subject.acquire().await;
    subject.store.release(&leases).await.unwrap();
    subject.database.execute("UPDATE shards SET timeline = split_part(timeline, '.', 1)");
    let leases = subject.acquire().await;
    assert_eq!(subject.store.shards_with_lost_commits(&leases).await.unwrap(), []);
}
