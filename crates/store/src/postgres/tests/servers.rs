//! Several servers on one database.

use model::record::Event;

use super::*;
use crate::EventSeq;
use crate::suite::Subject;

/// D6, D7. Between the look at its lease and its end nobody can take a commit's shard over.
#[tokio::test]
async fn a_takeover_waits_for_the_commit_that_is_under_way() {
    let old = InDatabase::make().await;
    let new = InDatabase::open(Arc::clone(&old.database)).await;
    let leases = old.acquire().await;
    let intruder = intruder(&old.database).await;
    intruder.batch_execute("BEGIN; SELECT * FROM meta FOR UPDATE").await.unwrap();
    let mut sampler = Sampler::new(11);
    let (job, last) = batch(&mut sampler, SHARDS[0], 1);
    let takeover = async {
        until_waiting(&old.database, 1, LOCKED_OUT).await;
        // As if the lease had run out; its row is locked, so the server that waits is asked about the rest.
        let taken = new.store.acquire(&SHARDS, "new", HOUR);
        let freed = async {
            until_waiting(&old.database, 2, LOCKED_OUT).await;
            intruder.batch_execute("ROLLBACK").await.unwrap();
        };
        tokio::join!(taken, freed).0.unwrap()
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

/// Commits batches with one to three events each, as fast as it can; answers with the places that it was
/// told.
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

/// H1, G5. However their commits overtake one another.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_passes_over_no_event_of_several_servers() {
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

/// G5. Each has its own shards, and finds only its own rows.
#[tokio::test]
async fn servers_share_the_counts_and_not_the_shards() {
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

/// B2. A server whose clock is ahead moves no other shards on than its own.
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
