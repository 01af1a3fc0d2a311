//! A URL with several hosts, of which one accepts writes.

use super::*;
use crate::suite::pair::{Pair, Replication};
use crate::{Commits as _, Leases as _, Reads as _};

/// D7. Neither an unreachable machine nor a port without a server delays the connection.
#[tokio::test]
async fn a_host_that_does_not_answer_or_refuses_is_skipped() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let hosts = [&silent, &gone].map(|listener| listener.local_addr().unwrap().to_string());
    drop(gone);
    let database = Cluster::shared().database();
    let url = database.url().replace('@', &format!("@{},", hosts.join(",")));
    let plain = Cluster::shared().database();
    let begun = Instant::now();
    PostgresStore::open(&plain.url(), options()).await.unwrap();
    let usual = begun.elapsed();
    let begun = Instant::now();
    PostgresStore::open(&url, options()).await.unwrap();
    let took = begun.elapsed();
    // Twice the usual time, and less than any additional timeout.
    assert!(
        took < 2 * usual + StdDuration::from_secs(4),
        "{took:?} instead of {usual:?}: it waited for a timeout"
    );
}

/// D7, D8, F11. The same store continues on the promoted standby. Acknowledged commits exist, leases of the old primary
/// are invalid, and a standby that comes first in the URL is skipped.
#[tokio::test]
async fn a_store_continues_on_the_promoted_standby() {
    let pair = Pair::start(Replication::Synchronous);
    let store = PostgresStore::open(&pair.url(), options()).await.unwrap();
    let mut sampler = Sampler::new(41);
    let mut jobs = Vec::new();
    let mut leases = store.acquire(&SHARDS, "test", HOUR).await.unwrap();
    for _ in 0..2 {
        let (job, kept) = batch(&mut sampler, SHARDS[0], 1);
        store.commit(&leases, kept).await.unwrap();
        jobs.push(job);
        pair.fail_over();
        let (_, refused) = batch(&mut sampler, SHARDS[0], 1);
        // The old session has ended; in a new one the lease belongs to another history.
        while let Err(error) = store.commit(&leases, Arc::clone(&refused)).await {
            assert!(!matches!(error, StoreError::Fatal { .. }), "{error:?}");
            if matches!(error, StoreError::Fenced { .. }) {
                break;
            }
        }
        store.release(&leases).await.unwrap();
        let after = store.acquire(&SHARDS, "test", HOUR).await.unwrap();
        assert!(after[0].epoch.0 > leases[0].epoch.0 + 1, "{after:?} after {leases:?}");
        leases = after;
        for &job in &jobs {
            assert!(store.job(job).await.unwrap().is_some());
        }
        pair.restore_standby();
    }
    // The first host of the URL accepts writes again; the second follows it.
    assert_eq!(
        pair.standby().try_execute("postgres", "SELECT pg_is_in_recovery()"),
        Ok(vec![Some("t".into())])
    );
    let store = PostgresStore::open(&pair.url(), options()).await.unwrap();
    store.commit(&leases, batch(&mut sampler, SHARDS[1], 1).1).await.unwrap();
}
