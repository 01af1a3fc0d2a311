//! Measures durable commits per second on PostgreSQL and on SQLite.
//!
//! `cargo run --release -p belfry-store --features suite --example postgres`
//!
//! Half of the changes are new jobs, the other half ends of jobs with their history. Both stores get the same batches,
//! in turns, on the same disk (`$TMPDIR`). The last line is for two servers at the same time, each with its own shards.

#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a measurement that people read")]

use std::sync::Arc;
use std::time::{Duration as StdDuration, Instant};

use model::record::{Batch, Change, JobHead};
use model::{Duration, JobStatus, ShardId};
use store::Store;
use store::postgres::PostgresStore;
use store::sqlite::SqliteStore;
use store::suite::cluster::{Cluster, Settings};
use store::suite::sample::{Sampler, head_of};

const SHARDS: u16 = 16;
const ROUND: StdDuration = StdDuration::from_secs(3);

/// Creates batches of `size` changes in advance, so that their creation is not measured.
fn batches(sampler: &mut Sampler, shards: &[ShardId], size: usize, count: usize) -> Vec<Arc<Batch>> {
    let mut running = Vec::new();
    let mut make = || {
        let mut changes = Vec::with_capacity(size);
        while changes.len() < size {
            if running.len() > size / 2 || (size == 1 && !running.is_empty()) {
                let id = running.swap_remove(0);
                let state = Box::new(sampler.state(JobStatus::Succeeded));
                changes.push(Change::Job { id, new: false, head: None, state });
            } else {
                let shard = sampler.pick(shards);
                let id = sampler.job_id(shard);
                let mut spec = sampler.spec();
                (spec.namespace, spec.labels, spec.owner) = ("default".into(), Default::default(), None);
                let head = Some(Arc::new(JobHead { retry_of: None, ..head_of(spec) }));
                let state = Box::new(sampler.state(JobStatus::Waiting));
                changes.push(Change::Job { id, new: true, head, state });
            }
        }
        // New jobs of a batch end in a later one.
        running.extend(changes.iter().filter_map(|change| match change {
            Change::Job { id, new: true, .. } => Some(*id),
            _ => None,
        }));
        let events = (0..size).map(|_| sampler.event()).collect();
        Arc::new(Batch { now: sampler.now(), changes, events, ..Batch::default() })
    };
    (0..count).map(|_| make()).collect()
}

struct Measured {
    commits: f64,
    rows: f64,
    p50: StdDuration,
    p99: StdDuration,
}

async fn measure(store: &dyn Store, shards: &[ShardId], size: usize, seed: u64) -> Measured {
    let leases = store.acquire(shards, "measurement", Duration::from_hours(1)).await.unwrap();
    let mut sampler = Sampler::new(seed);
    let (mut times, mut elapsed) = (Vec::new(), StdDuration::ZERO);
    while elapsed < ROUND {
        for batch in batches(&mut sampler, shards, size, (2_000 / size).clamp(4, 500)) {
            let start = Instant::now();
            store.commit(&leases, batch).await.unwrap();
            times.push(start.elapsed());
        }
        elapsed = times.iter().sum();
    }
    store.release(&leases).await.unwrap();
    times.sort();
    let commits = times.len() as f64 / elapsed.as_secs_f64();
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
    Measured { commits, rows: commits * size as f64, p50: at(0.5), p99: at(0.99) }
}

fn print(name: &str, size: usize, measured: &Measured) {
    let Measured { commits, rows, p50, p99 } = measured;
    println!("{name:<22} {size:>5} {commits:>10.0} {rows:>10.0} {p50:>10.2?} {p99:>10.2?}");
}

#[tokio::main]
async fn main() {
    let settings = Settings { durable: true, ..Settings::default() };
    let database = Arc::new(Cluster::start(&settings)).database();
    let open = || async { PostgresStore::open(&database.url(), Default::default()).await.unwrap() };
    let (postgres, other) = (open().await, open().await);
    let folder = tempfile::tempdir().unwrap();
    let sqlite = SqliteStore::open(folder.path().join("belfry.db"), Default::default()).unwrap();
    let all: Vec<_> = (0..SHARDS).map(ShardId).collect();
    println!(
        "{:<22} {:>5} {:>10} {:>10} {:>10} {:>10}",
        "store", "batch", "commits/s", "rows/s", "p50", "p99"
    );
    for (size, seed) in [(1, 1), (100, 2), (1_000, 3)] {
        print("sqlite", size, &measure(&sqlite, &all, size, seed).await);
        print("postgres", size, &measure(&postgres, &all, size, seed).await);
        let (mine, others) = all.split_at(all.len() / 2);
        let (a, b) =
            tokio::join!(measure(&postgres, mine, size, seed + 10), measure(&other, others, size, seed + 20));
        let sum = Measured {
            commits: a.commits + b.commits,
            rows: a.rows + b.rows,
            p50: a.p50.max(b.p50),
            p99: a.p99.max(b.p99),
        };
        print("postgres, two servers", size, &sum);
    }
}
