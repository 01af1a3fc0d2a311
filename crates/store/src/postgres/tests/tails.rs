//! A database that has forgotten what it was told.

use super::*;
use crate::EventSeq;
use crate::suite::cluster::Settings;

/// D8, F12. A standby took over: whether it has all commits is not known.
#[tokio::test]
async fn after_a_promotion_epochs_jump_and_the_shards_are_named_until_they_are_reconciled() {
    let settings = Settings { durable: true, ..Settings::default() };
    let cluster = Arc::new(Cluster::start(&settings));
    let database = Arc::new(cluster.database());
    let store = PostgresStore::open(&database.url(), Options::default()).await.unwrap();
    let before = store.acquire(&SHARDS, "old", HOUR).await.unwrap();
    assert_eq!(store.lost_tails(&before).await.unwrap(), []);
    let mut sampler = Sampler::new(31);
    let told = store.commit(&before, batch(&mut sampler, SHARDS[0], 2).1).await.unwrap().first_event;
    drop(store);

    cluster.halt();
    std::fs::write(cluster.data().join("standby.signal"), "").unwrap();
    cluster.boot(&settings);
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
    assert_eq!(store.lost_tails(&after).await.unwrap(), SHARDS);
    // Whoever heard of events that are gone follows what comes, and hears of nothing twice.
    let next = store.commit(&after, batch(&mut sampler, SHARDS[0], 1).1).await.unwrap().first_event;
    assert_eq!(next.0, told.0 + 2 + (1 << 32));
    for heard in [EventSeq(told.0 + 1), EventSeq(told.0 + 100)] {
        let page = store.events(heard, 5).await.unwrap();
        assert_eq!(page.events.iter().map(|(place, _)| *place).collect::<Vec<_>>(), [next]);
    }

    // Its owner is gone before it has dealt with all of them.
    store.tails_reconciled(&after[..1]).await.unwrap();
    store.release(&after).await.unwrap();
    let next = store.acquire(&SHARDS, "next", HOUR).await.unwrap();
    assert_eq!(next[0].epoch.0, after[0].epoch.0 + 1);
    assert_eq!(store.lost_tails(&next).await.unwrap(), SHARDS[1..]);
    // Nobody but the owner can say so.
    store.tails_reconciled(&after).await.unwrap();
    assert_eq!(store.lost_tails(&next).await.unwrap(), SHARDS[1..]);
    store.tails_reconciled(&next).await.unwrap();
    assert_eq!(store.lost_tails(&next).await.unwrap(), []);
}
