//! The log goes into the database while commits go on.

use std::fs;

use model::{Duration, ShardId};

use super::*;

/// A page of the log, with what stands before it.
const FRAME_BYTES: u64 = 4_096 + 24;

/// F7 of the fault model. The log would be as long as all that was ever written.
#[tokio::test]
async fn the_log_begins_anew_however_many_commits_there_are() {
    let subject = OnDisk::new();
    let store = subject.store();
    let leases = store.acquire(&[ShardId(1)], "a", Duration::from_hours(1)).await.unwrap();
    for _ in 0..2_000 {
        // An expiry that is not a new one would not be written.
        subject.now.fetch_add(1_000, Ordering::Relaxed);
        store.renew(&leases, Duration::from_hours(1)).await.unwrap();
    }
    let log = format!("{}-wal", subject.path().display());
    let pages = fs::metadata(log).unwrap().len() / FRAME_BYTES;
    assert!(pages < 700, "the log has {pages} pages after 2,000 commits");
}
