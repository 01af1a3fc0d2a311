//! Tests of the contract, and of the guarantees of this store alone, on a server that the tests start.

mod changelog;
mod commit_outcomes;
mod damage;
mod encrypted;
mod full_volume;
mod lost_commits;
mod opening;
mod retention;
mod servers;
mod several_hosts;
mod suite;

use std::sync::Arc;
use std::time::{Duration as StdDuration, Instant};

use model::record::{Batch, Change, Lease};
use model::{Duration, JobId, JobStatus, ShardId};
use tokio_postgres::{Client, NoTls};

use super::{Options, PostgresStore};
use crate::Leases as _;
use crate::suite::Subject;
use crate::suite::cluster::{Cluster, Database};
use crate::suite::sample::Sampler;
use crate::{Store, StoreError, store_suite};

const SHARDS: [ShardId; 4] = [ShardId(0), ShardId(1), ShardId(2), ShardId(3)];
const HOUR: Duration = Duration::from_hours(1);
/// Maximum time that a test waits for an expected event.
const PATIENCE: StdDuration = StdDuration::from_secs(20);

/// Store in its own database.
struct InDatabase {
    store: PostgresStore,
    database: Arc<Database>,
}

/// Options for the tests' server, which is fast and not durable.
fn options() -> Options {
    Options { allow_unsafe: true, ..Options::default() }
}

impl InDatabase {
    async fn open(database: Arc<Database>) -> Self {
        let store = PostgresStore::open(&database.url(), options()).await.unwrap();
        Self { store, database }
    }

    async fn acquire(&self) -> Vec<Lease> {
        self.store.acquire(&SHARDS, "test", HOUR).await.unwrap()
    }
}

impl Subject for InDatabase {
    async fn make() -> Self {
        Self::open(Arc::new(Cluster::shared().database())).await
    }

    fn store(&self) -> &dyn Store {
        &self.store
    }

    /// The server controls the clock; so the compared times are moved instead.
    fn advance(&self, by: Duration) {
        advance(&self.database, by);
    }

    async fn reopen(self) -> Self {
        let Self { store, database } = self;
        drop(store);
        Self::open(database).await
    }
}

fn advance(database: &Database, by: Duration) {
    let micros = by.as_millis() * 1_000;
    for table in ["shards", "servers"] {
        database.execute(&format!("UPDATE {table} SET expires_at = expires_at - {micros}"));
    }
    database.execute(&format!("UPDATE changelog SET at = at - {micros}"));
}

/// Returns a batch with a new job of the shard, and with `events` events.
fn batch(sampler: &mut Sampler, shard: ShardId, events: usize) -> (JobId, Arc<Batch>) {
    let id = sampler.job_id(shard);
    let (head, state) = (sampler.head(), Box::new(sampler.state(JobStatus::Waiting)));
    let changes = vec![Change::Job { id, new: true, head: Some(head), state }];
    let events = (0..events).map(|_| sampler.event()).collect();
    (id, Arc::new(Batch { now: sampler.now(), changes, events, ..Batch::default() }))
}

/// Opens a session next to the store's, to block it.
async fn blocking_session(database: &Database) -> Client {
    let (client, connection) = tokio_postgres::connect(&database.url(), NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// Waits until this number of sessions match `condition`.
async fn until_waiting(database: &Database, count: usize, condition: &str) {
    let sql =
        format!("SELECT pid FROM pg_stat_activity WHERE datname = '{}' AND {condition}", database.name());
    let deadline = Instant::now() + PATIENCE;
    while database.execute(&sql).len() != count {
        assert!(Instant::now() < deadline, "there are never {count} sessions with {condition}");
        tokio::task::yield_now().await;
    }
}

/// Condition for sessions that wait for a locked row or table.
const WAITS_FOR_LOCK: &str = "wait_event_type = 'Lock'";

fn reason(error: &StoreError) -> String {
    let source = std::error::Error::source(error).map(ToString::to_string);
    source.unwrap_or_else(|| error.to_string())
}
