//! Reported outcomes of failed changes, compared with the actual ones.

use super::*;
use crate::{Commits as _, Leases as _, Reads as _};

/// Raises this error whenever a job is written, and counts the attempts.
fn refuse_jobs(database: &Database, state: &str) {
    database.execute(&format!(
        "CREATE SEQUENCE tries;
         CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
         BEGIN PERFORM nextval('tries'); RAISE EXCEPTION 'refused' USING ERRCODE = '{state}'; END $$;
         CREATE TRIGGER refuse BEFORE INSERT ON jobs FOR EACH ROW EXECUTE FUNCTION refuse()"
    ));
}

async fn refused_with(state: &str) -> (StoreError, String) {
    let subject = InDatabase::make().await;
    let leases = subject.acquire().await;
    refuse_jobs(&subject.database, state);
    let (job, batch) = batch(&mut Sampler::new(1), SHARDS[0], 1);
    let error = subject.store.commit(&leases, batch).await.unwrap_err();
    assert_eq!(subject.store.job(job).await.unwrap(), None);
    let tries = subject.database.execute("SELECT last_value FROM tries").remove(0).unwrap();
    (error, tries)
}

/// F7. Nothing was changed, and reads still work.
#[tokio::test]
async fn a_full_disk_is_reported_as_full() {
    let (error, tries) = refused_with("53100").await;
    assert!(matches!(error, StoreError::Full), "{error:?}");
    assert_eq!(tries, "1");
}

/// D7. It changed nothing, so it is retried immediately, a limited number of times.
#[tokio::test]
async fn a_conflicting_commit_is_retried() {
    let (error, tries) = refused_with("40001").await;
    assert!(matches!(error, StoreError::Unavailable { .. }), "{error:?}");
    assert_eq!(tries, "5");
}

/// D7. The store continues after the lock is released.
#[tokio::test]
async fn a_commit_that_waits_too_long_changes_nothing() {
    let subject = InDatabase::make().await;
    let options = Options { change_limit: Duration::from_millis(300), ..options() };
    let store = PostgresStore::open(&subject.database.url(), options).await.unwrap();
    let leases = store.acquire(&SHARDS, "test", HOUR).await.unwrap();
    let intruder = blocking_session(&subject.database).await;
    intruder.batch_execute("BEGIN; SELECT * FROM meta FOR UPDATE").await.unwrap();
    let mut sampler = Sampler::new(2);
    let (job, late) = batch(&mut sampler, SHARDS[1], 1);
    let error = store.commit(&leases, Arc::clone(&late)).await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable { .. }), "{error:?}");
    intruder.batch_execute("ROLLBACK").await.unwrap();
    assert_eq!(store.job(job).await.unwrap(), None);
    store.commit(&leases, late).await.unwrap();
    assert!(store.job(job).await.unwrap().is_some());
}

/// A5.
#[tokio::test]
async fn a_slow_query_returns_too_slow() {
    let subject = InDatabase::make().await;
    let limit = Duration::from_millis(200);
    let options = Options { query_limit: limit, ..options() };
    let store = PostgresStore::open(&subject.database.url(), options).await.unwrap();
    let intruder = blocking_session(&subject.database).await;
    intruder.batch_execute("BEGIN; LOCK TABLE job_counts").await.unwrap();
    let error = store.counts(None).await.unwrap_err();
    assert!(matches!(error, StoreError::TooSlow { limit: found } if found == limit), "{error:?}");
    intruder.batch_execute("ROLLBACK").await.unwrap();
    assert!(store.counts(None).await.unwrap().is_empty());
}

/// D7. The session is ended before the server processes `COMMIT`.
#[tokio::test]
async fn a_session_that_ends_before_its_commit_changed_nothing() {
    let subject = InDatabase::make().await;
    let leases = subject.acquire().await;
    let intruder = blocking_session(&subject.database).await;
    intruder.batch_execute("BEGIN; SELECT * FROM meta FOR UPDATE").await.unwrap();
    let mut sampler = Sampler::new(3);
    let (job, lost) = batch(&mut sampler, SHARDS[2], 1);
    let end = async {
        until_waiting(&subject.database, 1, WAITS_FOR_LOCK).await;
        let name = subject.database.name();
        subject.database.execute(&format!(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}' AND {WAITS_FOR_LOCK}"
        ));
    };
    let (result, ()) = tokio::join!(subject.store.commit(&leases, lost), end);
    let error = result.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable { .. }), "{error:?}");
    intruder.batch_execute("ROLLBACK").await.unwrap();
    assert_eq!(subject.store.job(job).await.unwrap(), None);
    let (job, next) = batch(&mut sampler, SHARDS[2], 1);
    subject.store.commit(&leases, next).await.unwrap();
    assert!(subject.store.job(job).await.unwrap().is_some());
}

/// D7. If a commit's wait for its standby is cancelled, its outcome is unknown, even if the server reports success.
#[tokio::test]
async fn a_commit_that_no_standby_confirmed_is_unknown() {
    let settings = crate::suite::cluster::Settings { durable: true, ..Default::default() };
    let database = Arc::new(Arc::new(Cluster::start(&settings)).database());
    let store = PostgresStore::open(&database.url(), Options::default()).await.unwrap();
    let leases = store.acquire(&SHARDS, "test", HOUR).await.unwrap();
    let mut sampler = Sampler::new(4);
    store.commit(&leases, batch(&mut sampler, SHARDS[0], 1).1).await.unwrap();
    database.execute("ALTER SYSTEM SET synchronous_standby_names = 'nobody'");
    database.execute("SELECT pg_reload_conf()");
    let deadline = Instant::now() + PATIENCE;
    while database.execute("SHOW synchronous_standby_names") != [Some("nobody".to_owned())] {
        assert!(Instant::now() < deadline, "the setting is never there");
    }
    for end in ["pg_terminate_backend", "pg_cancel_backend"] {
        let (job, lost) = batch(&mut sampler, SHARDS[0], 1);
        let end = async {
            until_waiting(&database, 1, "wait_event = 'SyncRep'").await;
            database
                .execute(&format!("SELECT {end}(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"));
        };
        let (result, ()) = tokio::join!(store.commit(&leases, lost), end);
        let error = result.unwrap_err();
        assert!(matches!(error, StoreError::OutcomeUnknown { .. }), "{error:?}");
        // Here it was committed, but a client cannot know that.
        assert!(store.job(job).await.unwrap().is_some());
    }
    database.execute("ALTER SYSTEM RESET synchronous_standby_names");
    database.execute("SELECT pg_reload_conf()");
}

/// F11. Another server accepts writes, or the database was made read-only.
#[tokio::test]
async fn a_read_only_database_is_unavailable() {
    let subject = InDatabase::make().await;
    let leases = subject.acquire().await;
    let name = subject.database.name();
    subject.database.execute(&format!("ALTER DATABASE {name} SET default_transaction_read_only = on"));
    let (_, refused) = batch(&mut Sampler::new(5), SHARDS[0], 0);
    let error = subject.store.commit(&leases, refused).await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable { .. }), "{error:?}");
    assert!(reason(&error).contains("standby"), "{error:?}");
    let error = PostgresStore::open(&subject.database.url(), options()).await.unwrap_err();
    assert!(reason(&error).contains("transaction_read_only"), "{error:?}");
}

/// D6. Servers request shards at the moment at which another one hands them over. In another order they would deadlock,
/// which PostgreSQL resolves only after a second.
#[tokio::test]
async fn shard_rows_are_locked_in_shard_order() {
    let subject = InDatabase::make().await;
    let leases = subject.acquire().await;
    // The rows are stored in the opposite order.
    for shard in SHARDS.iter().rev() {
        subject.database.execute(&format!("UPDATE shards SET now = now WHERE shard = {}", shard.0));
    }
    let intruder = blocking_session(&subject.database).await;
    intruder.batch_execute("BEGIN; SELECT * FROM shards WHERE shard = 3 FOR UPDATE").await.unwrap();
    let look = async {
        until_waiting(&subject.database, 1, WAITS_FOR_LOCK).await;
        let free = "SELECT shard FROM shards WHERE shard < 4 ORDER BY shard FOR UPDATE SKIP LOCKED";
        let free = subject.database.execute(free);
        intruder.batch_execute("ROLLBACK").await.unwrap();
        free
    };
    let (released, free) = tokio::join!(subject.store.release(&leases), look);
    released.unwrap();
    assert_eq!(free, [], "those before the one that it waits for are locked");
}
