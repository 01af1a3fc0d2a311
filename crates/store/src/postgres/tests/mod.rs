//! The contract, and what only this store promises, on a server that the tests start.

mod changelog;
mod damage;
mod encrypted;
mod full;
mod hosts;
mod opening;
mod outcomes;
mod retention;
mod servers;
mod suite;
mod tails;

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
/// How long a test waits for what must come.
const PATIENCE: StdDuration = StdDuration::from_secs(20);

/// A store in a database of its own.
struct InDatabase {
    store: PostgresStore,
    database: Arc<Database>,
}

/// The tests' server is fast and forgets what it was told when it crashes.
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

    /// The clock is the server's: instead of it, what is compared with it is moved.
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

/// A new job of the shard and, if wanted, an event.
fn batch(sampler: &mut Sampler, shard: ShardId, events: usize) -> (JobId, Arc<Batch>) {
    let id = sampler.job_id(shard);
    let (head, state) = (sampler.head(), Box::new(sampler.state(JobStatus::Waiting)));
    let changes = vec![Change::Job { id, new: true, head: Some(head), state }];
    let events = (0..events).map(|_| sampler.event()).collect();
    (id, Arc::new(Batch { now: sampler.now(), changes, events }))
}

/// A session beside the store's, to be in its way.
async fn intruder(database: &Database) -> Client {
    let (client, connection) = tokio_postgres::connect(&database.url(), NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// Waits until so many sessions of the database wait for what `condition` says.
async fn until_waiting(database: &Database, count: usize, condition: &str) {
    let sql =
        format!("SELECT pid FROM pg_stat_activity WHERE datname = '{}' AND {condition}", database.name());
    let deadline = Instant::now() + PATIENCE;
    while database.execute(&sql).len() != count {
        assert!(Instant::now() < deadline, "there are never {count} sessions with {condition}");
        tokio::task::yield_now().await;
    }
}

/// Sessions that wait for a row or a table that another has locked.
const LOCKED_OUT: &str = "wait_event_type = 'Lock'";

fn reason(error: &StoreError) -> String {
    let source = std::error::Error::source(error).map(ToString::to_string);
    source.unwrap_or_else(|| error.to_string())
}
