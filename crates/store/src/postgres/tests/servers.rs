//! Several servers on one database.
//!
//! Each test opens the database several times, as several servers do, and lets their leases, commits and
//! reads overlap. Where a certain order is needed, a session of the test holds a lock.
//!
//! # Invariants
//! - No server can acquire a shard between the check of a commit's lease and the end of the commit.
//! - A reader of the feed misses no event, whatever the order of the commits.
//! - A clock that jumps ends no lease unnoticed: the new owner gets the time for which the previous one may
//!   still act.

use model::record::Event;

use super::*;
use crate::EventSeq;
use crate::suite::Subject;
use crate::{Commits as _, Leases as _, Reads as _};

/// D6, D7. Between the check of its lease and its end, no server can acquire the shard of a commit, even if the commit
/// takes longer than the lease.
#[tokio::test]
async fn no_shard_is_acquired_while_a_commit_is_in_flight() {
    let old = InDatabase::make().await;
    let new = InDatabase::open(Arc::clone(&old.database)).await;
    let leases = old.acquire().await;
    let intruder = blocking_session(&old.database).await;
    intruder.batch_execute("BEGIN; SELECT * FROM meta FOR UPDATE").await.unwrap();
    let mut sampler = Sampler::new(11);
    let (job, last) = batch(&mut sampler, SHARDS[0], 1);
    let takeover = async {
        until_waiting(&old.database, 1, WAITS_FOR_LOCK).await;
        let taken = new.store.acquire(&SHARDS, "new", HOUR).await.unwrap();
        intruder.batch_execute("ROLLBACK").await.unwrap();
        taken
    };
    let (committed, taken) = tokio::join!(old.store.commit(&leases, last), takeover);
    committed.unwrap();
    assert_eq!(taken, [], "the leases still held");
    old.advance(HOUR);
    let taken = new.store.acquire(&SHARDS, "new", HOUR).await.unwrap();
    assert_eq!(taken.len(), SHARDS.len());
    assert!(new.store.job(job).await.unwrap().is_some());
    let (late, refused) = batch(&mut sampler, SHARDS[0], 1);
    let error = old.store.commit(&leases, refused).await.unwrap_err();
    assert!(matches!(error, StoreError::Fenced { shard } if shard == SHARDS[0]), "{error:?}");
    assert_eq!(new.store.job(late).await.unwrap(), None);
}

/// D6. A commit after an eighth of the lease extends it, for all its shards, including those that it does not change;
/// an earlier commit does not.
#[tokio::test]
async fn a_commit_extends_all_leases_after_an_eighth() {
    let subject = InDatabase::make().await;
    let look = blocking_session(&subject.database).await;
    let ends = async || -> Vec<(i64, i64)> {
        let ask = format!("SELECT expires_at, now FROM shards ORDER BY shard LIMIT {}", SHARDS.len());
        let rows = look.query(&ask, &[]).await.unwrap();
        rows.iter().map(|row| (row.get(0), row.get(1))).collect()
    };
    let mut sampler = Sampler::new(5);
    let leases = subject.store.acquire(&SHARDS, "owner", HOUR).await.unwrap();
    let before = ends().await;
    let (_, early) = batch(&mut sampler, SHARDS[0], 1);
    assert!(!subject.store.commit(&leases, early).await.unwrap().extended);
    assert_eq!(
        ends().await.iter().map(|(at, _)| at).collect::<Vec<_>>(),
        before.iter().map(|(at, _)| at).collect::<Vec<_>>()
    );

    subject.store.renew(&leases, Duration::from_millis(400)).await.unwrap();
    let between = ends().await;
    loop {
        let (_, late) = batch(&mut sampler, SHARDS[0], 1);
        if subject.store.commit(&leases, late).await.unwrap().extended {
            break;
        }
    }
    let after = ends().await;
    assert!(
        after.iter().zip(&between).all(|((after, _), (before, _))| after > before),
        "{between:?} {after:?}"
    );
    let times = |ends: &[(i64, i64)]| ends[1..SHARDS.len()].iter().map(|(_, now)| *now).collect::<Vec<_>>();
    assert_eq!(times(&after), times(&between), "engine time moves with the shards that change");
}

/// D6. After a loss of commits, another owner may have the same epoch: such a lease is neither used nor released.
#[tokio::test]
async fn a_lease_of_another_owner_with_the_same_epoch_is_neither_used_nor_released() {
    let subject = InDatabase::make().await;
    let leases = subject.acquire().await;
    let other = blocking_session(&subject.database).await;
    other.batch_execute("UPDATE shards SET owner = 'another'").await.unwrap();
    let (_, batch) = batch(&mut Sampler::new(6), SHARDS[0], 1);
    let refused = subject.store.commit(&leases, batch).await.unwrap_err();
    assert!(matches!(refused, StoreError::Fenced { .. }), "{refused:?}");
    assert!(matches!(subject.store.renew(&leases, HOUR).await, Err(StoreError::Fenced { .. })));
    subject.store.release(&leases).await.unwrap();
    let owners = other.query("SELECT DISTINCT owner FROM shards", &[]).await.unwrap();
    assert_eq!(
        owners.iter().map(|row| row.get::<_, Option<String>>(0)).collect::<Vec<_>>(),
        [Some("another".into())]
    );
}

/// D6, D7. After a clock was set back, leases end later than any can. They are shortened to the maximum lease, and not
/// to the lease of the requesting server: their owner may have a longer one.
#[tokio::test]
async fn a_lease_that_ends_too_late_is_shortened_to_the_maximum() {
    let subject = InDatabase::make().await;
    let look = blocking_session(&subject.database).await;
    let left = async || -> i64 {
        let ask = "SELECT (max(expires_at) - (extract(epoch FROM clock_timestamp()) * 1000000)::BIGINT) / 1000000 FROM shards";
        look.query_one(ask, &[]).await.unwrap().get(0)
    };
    subject.store.acquire(&SHARDS, "owner", HOUR).await.unwrap();
    assert_eq!(subject.store.acquire(&SHARDS, "other", Duration::from_secs(1)).await.unwrap(), []);
    assert!((50..=60).contains(&left().await), "{} s are left", left().await);
}

/// D7. A clock that jumps forward ends a lease early. The server that acquires the shards then knows that the previous
/// owner may still act.
#[tokio::test]
async fn the_new_owner_gets_the_time_for_which_the_previous_one_may_act() {
    const LEASE: Duration = Duration::from_secs(60);
    const SHORT: Duration = Duration::from_millis(300);
    let old = InDatabase::make().await;
    let new = InDatabase::open(Arc::clone(&old.database)).await;
    old.store.acquire(&SHARDS, "old", LEASE).await.unwrap();
    assert_eq!(old.store.former_owner(), Duration::ZERO, "there was no owner before");
    assert_eq!(new.store.acquire(&SHARDS, "new", LEASE).await.unwrap(), []);

    old.advance(HOUR);
    let taken = new.store.acquire(&SHARDS, "new", LEASE).await.unwrap();
    let left = new.store.former_owner();
    assert!(left > Duration::from_secs(50) && left <= LEASE, "{left}");

    new.store.release(&taken).await.unwrap();
    old.store.acquire(&SHARDS, "old", SHORT).await.unwrap();
    assert_eq!(old.store.former_owner(), Duration::ZERO, "the shards were released");

    while new.store.acquire(&SHARDS, "new", SHORT).await.unwrap().is_empty() {}
    let left = new.store.former_owner();
    assert!(left < SHORT, "{left}: the lease was watched while it ran out");
}

/// Commits batches with one to three events each, as fast as possible; returns the events with their positions.
async fn write(store: &PostgresStore, shard: ShardId, seed: u64) -> Vec<(EventSeq, Event)> {
    let leases = store.acquire(&[shard], "writer", HOUR).await.unwrap();
    let mut sampler = Sampler::new(seed);
    let mut placed = Vec::new();
    for n in 0..60 {
        let (_, batch) = batch(&mut sampler, shard, 1 + n % 3);
        let first = store.commit(&leases, Arc::clone(&batch)).await.unwrap().first_event;
        placed.extend((first.0..).map(EventSeq).zip(batch.events.clone()));
    }
    placed
}

/// H1, G5. Whatever the order of the commits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_misses_no_event_of_several_servers() {
    let subject = InDatabase::make().await;
    let mut writers = Vec::new();
    for shard in SHARDS {
        let server = InDatabase::open(Arc::clone(&subject.database)).await;
        let seed = 20 + u64::from(shard.0);
        writers.push(tokio::spawn(async move { write(&server.store, shard, seed).await }));
    }
    let total = SHARDS.len() * 60 * 2;
    let (mut read, mut after) = (Vec::new(), EventSeq::default());
    let deadline = Instant::now() + PATIENCE;
    while read.len() < total {
        let page = subject.store.events(after, 7).await.unwrap();
        for (place, event) in page.events {
            assert_eq!(place.0, after.0 + 1, "an event was passed over");
            after = place;
            read.push((place, event));
        }
        assert!(Instant::now() < deadline, "only {} of {total} events came", read.len());
    }
    let mut written = Vec::new();
    for writer in writers {
        written.extend(writer.await.unwrap());
    }
    written.sort_by_key(|(place, _)| *place);
    assert_eq!(read, written);
}

/// G5. Each has its own shards, and reads only its own rows.
#[tokio::test]
async fn servers_share_counts_but_not_shards() {
    let one = InDatabase::make().await;
    let other = InDatabase::open(Arc::clone(&one.database)).await;
    let mut sampler = Sampler::new(12);
    for (server, shards) in [(&one, &SHARDS[..2]), (&other, &SHARDS[2..])] {
        let leases = server.store.acquire(shards, "server", HOUR).await.unwrap();
        for shard in shards {
            let (_, batch) = batch(&mut sampler, *shard, 0);
            server.store.commit(&leases, batch).await.unwrap();
        }
        let (sender, mut rows) = tokio::sync::mpsc::channel(16);
        let loaded = server.store.load(&leases, sender).await.unwrap();
        assert_eq!(loaded.rows, 2);
        assert_eq!(rows.recv().await.map(|rows| rows.len()), Some(2));
    }
    for server in [&one, &other] {
        assert_eq!(server.store.counts(None).await.unwrap(), [(JobStatus::Waiting, 4)].into());
    }
}

/// B2. A server whose clock is ahead advances only its own shards.
#[tokio::test]
async fn engine_time_is_that_of_the_shards_own_commits() {
    let subject = InDatabase::make().await;
    let leases = subject.acquire().await;
    let (_, early) = batch(&mut Sampler::new(13), SHARDS[0], 0);
    let late = Batch { now: early.now + HOUR, ..Batch::default() };
    let now = early.now;
    subject.store.commit(&leases, early).await.unwrap();
    subject.store.commit(&leases[1..2], Arc::new(late)).await.unwrap();
    for (lease, expected) in [(leases[0], now), (leases[1], now + HOUR)] {
        let (sender, _rows) = tokio::sync::mpsc::channel(16);
        assert_eq!(subject.store.load(&[lease], sender).await.unwrap().now, expected);
    }
}
