//! Checkpoints of the WAL during commits.

use std::fs;
use std::sync::atomic::AtomicBool;

use model::record::Lease;
use model::{Duration, ShardId};

use super::*;
use crate::sqlite::file;
use crate::sqlite::wal_checkpoint::LOG_BYTES_MAX;

/// Size of a WAL frame: a page and its header.
const FRAME_BYTES: u64 = 4_096 + 24;

/// Maximum length of the WAL in these tests without blocking readers: a few times the checkpoint threshold.
const PAGES_MAX: u64 = 700;

async fn renew(subject: &OnDisk, leases: &[Lease], times: u32) {
    for _ in 0..times {
        // An unchanged expiry would not be written.
        subject.now.fetch_add(1_000, Ordering::Relaxed);
        subject.store().renew(leases, Duration::from_hours(1)).await.unwrap();
    }
}

async fn within_a_minute<T>(what: &str, work: impl Future<Output = T>) -> T {
    let done = tokio::time::timeout(std::time::Duration::from_mins(1), work).await;
    done.unwrap_or_else(|_| panic!("{what} took more than a minute"))
}

fn pages_of_log(subject: &OnDisk) -> u64 {
    fs::metadata(file::wal_path(&subject.path())).unwrap().len() / FRAME_BYTES
}

/// F7 of the fault model. Without a restart, the WAL would contain everything that was ever written.
#[tokio::test]
async fn the_wal_restarts_during_many_commits() {
    let subject = OnDisk::new();
    let leases = subject.store().acquire(&[ShardId(1)], "a", Duration::from_hours(1)).await.unwrap();
    renew(&subject, &leases, 2_000).await;
    let pages = pages_of_log(&subject);
    assert!(pages < PAGES_MAX, "the log has {pages} pages after 2,000 commits");
}

/// H5. A backup of a large store reads for minutes, and must not block anything.
#[tokio::test]
async fn commits_do_not_wait_for_a_reader_and_the_wal_is_truncated_afterwards() {
    let subject = OnDisk::new();
    let leases = subject.store().acquire(&[ShardId(1)], "a", Duration::from_hours(1)).await.unwrap();
    let reader = file::open_reader(&subject.path()).unwrap();
    reader.execute_batch("BEGIN; SELECT count(*) FROM jobs;").unwrap();
    within_a_minute("2,000 commits beside a reader", renew(&subject, &leases, 2_000)).await;
    assert!(pages_of_log(&subject) > 2_000, "the reader holds it up");
    reader.execute_batch("ROLLBACK").unwrap();
    let cut = async {
        while pages_of_log(&subject) * FRAME_BYTES > LOG_BYTES_MAX as u64 {
            renew(&subject, &leases, 1).await;
        }
    };
    within_a_minute("cutting the log", cut).await;
    renew(&subject, &leases, 2_000).await;
    let pages = pages_of_log(&subject) * FRAME_BYTES;
    assert!(pages <= LOG_BYTES_MAX as u64, "the log has {pages} pages again");
}

/// Without a wait for readers, the WAL would grow as long as there is always one.
#[tokio::test]
async fn overlapping_readers_do_not_block_the_wal_restart() {
    let subject = OnDisk::new();
    let leases = subject.store().acquire(&[ShardId(1)], "a", Duration::from_hours(1)).await.unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let read = |path: std::path::PathBuf, stop: Arc<AtomicBool>| {
        let connections = [file::open_reader(&path).unwrap(), file::open_reader(&path).unwrap()];
        for reader in connections.iter().cycle().take_while(|_| !stop.load(Ordering::Relaxed)) {
            // Each reader starts before the previous one ends.
            if !reader.is_autocommit() {
                reader.execute_batch("ROLLBACK").unwrap();
            }
            reader.execute_batch("BEGIN; SELECT count(*) FROM jobs;").unwrap();
        }
    };
    let readers = tokio::task::spawn_blocking({
        let (path, stop) = (subject.path(), Arc::clone(&stop));
        move || read(path, stop)
    });
    within_a_minute("4,000 commits beside readers", renew(&subject, &leases, 4_000)).await;
    stop.store(true, Ordering::Relaxed);
    readers.await.unwrap();
    let pages = pages_of_log(&subject);
    assert!(pages < 2_000, "the log has {pages} pages after 4,000 commits");
}
