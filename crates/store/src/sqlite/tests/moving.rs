//! The log goes into the database while commits go on.

use std::fs;
use std::path::PathBuf;

use model::{Duration, ShardId};

use super::*;

/// A page of the log, with what stands before it.
const FRAME_BYTES: u64 = 4_096 + 24;

fn log_of(subject: &OnDisk) -> PathBuf {
    PathBuf::from(format!("{}-wal", subject.path().display()))
}

/// F7 of the fault model. The log would be as long as all that was ever written.
#[tokio::test]
async fn the_log_begins_anew_however_many_commits_there_are() {
    let subject = OnDisk::new();
    let store = subject.store();
    let leases = store.acquire(&[ShardId(1)], "a", Duration::from_hours(1)).await.unwrap();
    for _ in 0..1_000 {
        store.renew(&leases, Duration::from_hours(1)).await.unwrap();
    }
    let pages = fs::metadata(log_of(&subject)).unwrap().len() / FRAME_BYTES;
    assert!(pages < 400, "the log has {pages} pages after 1,000 commits");
}

/// What the other thread moved is what was committed.
#[tokio::test]
async fn a_file_without_its_log_has_what_was_moved() {
    let mut subject = OnDisk::new();
    let store = subject.store();
    let leases = store.acquire(&[ShardId(1)], "a", Duration::from_hours(1)).await.unwrap();
    for _ in 0..300 {
        store.renew(&leases, Duration::from_hours(1)).await.unwrap();
    }
    subject.close();
    assert!(!log_of(&subject).exists(), "a file that is closed has no log");
    subject.open();
    let again = subject.store().acquire(&[ShardId(1)], "b", Duration::from_hours(1)).await.unwrap();
    assert!(again[0].epoch > leases[0].epoch);
}
