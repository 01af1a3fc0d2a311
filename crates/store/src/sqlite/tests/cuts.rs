//! Every call of a commit fails once, and the power is cut after every one of them.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use model::record::{Batch, Lease};
use model::{Duration, ShardId};

use super::process::{batch_of, newest_whole_batch_of, open};
use super::torture::{Disk, Done, Fault, content, power_cut};
use super::*;
use crate::StoreError;
use crate::suite::sample::Sampler;

/// Few enough jobs that every call of their commits can be tried.
const JOBS: u64 = 3;

fn batch(number: u64, sampler: &mut Sampler) -> Batch {
    batch_of(JOBS, number, sampler)
}

async fn newest_whole_batch(store: &SqliteStore) -> Option<u64> {
    newest_whole_batch_of(JOBS, store).await
}

/// A folder in memory where there is one: hundreds of files are opened, and none of their syncs is
/// what is tested.
pub(super) fn folder() -> TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

async fn lease(store: &SqliteStore) -> Vec<Lease> {
    let shards: Vec<_> = (0..16).map(ShardId).collect();
    store.acquire(&shards, "torture", Duration::from_hours(1)).await.unwrap()
}

/// What came of a few commits on a disk that failed once.
struct Came {
    /// The newest batch that was acknowledged.
    acknowledged: u64,
    /// The newest batch that may be there.
    possible: u64,
    fatal: bool,
    full: bool,
    /// Whether the fault was met at all.
    met: bool,
}

/// Two commits and the closing of the file, its checkpoint with it; the `nth` call fails.
async fn commits_on(folder: &Path, nth: u64, fault: Fault) -> Came {
    let disk = Disk::below(folder);
    let store = open(folder).unwrap();
    let leases = lease(&store).await;
    let mut sampler = Sampler::new(7);
    store.commit(&leases, Arc::new(batch(0, &mut sampler))).await.unwrap();
    disk.arm(nth, fault);
    let mut came = Came { acknowledged: 0, possible: 0, fatal: false, full: false, met: false };
    for _ in 0..3 {
        let next = came.acknowledged + 1;
        match store.commit(&leases, Arc::new(batch(next, &mut sampler))).await {
            Ok(_) => {
                assert!(!came.fatal, "call {nth}: something was written after {fault:?}");
                (came.acknowledged, came.possible) = (next, next);
            }
            Err(StoreError::Full) => {
                assert_eq!(fault, Fault::Full, "call {nth}");
                came.full = true;
            }
            Err(StoreError::Fatal { .. }) => (came.fatal, came.possible) = (true, next),
            Err(error) => panic!("call {nth}, {fault:?}: {error}"),
        }
    }
    drop(store);
    came.met = disk.disarm();
    came
}

/// F7, F8. What was acknowledged is there, and no batch by half, whichever call fails and however.
#[tokio::test]
async fn every_call_of_a_commit_may_fail_once() {
    for fault in [Fault::Broken, Fault::Full] {
        let (mut fatal, mut full) = (0, 0);
        for nth in 0.. {
            let place = folder();
            let came = commits_on(place.path(), nth, fault).await;
            let found = newest_whole_batch(&open(place.path()).unwrap()).await.unwrap();
            assert!(
                (came.acknowledged..=came.possible).contains(&found),
                "call {nth}, {fault:?}: {} was acknowledged, and {found} is the newest",
                came.acknowledged
            );
            fatal += u32::from(came.fatal);
            full += u32::from(came.full);
            if !came.met {
                assert!(nth > 30, "two commits and a checkpoint are more than {nth} calls");
                break;
            }
        }
        match fault {
            Fault::Broken => assert!(fatal > 10 && full == 0, "{fatal} fatal, {full} full"),
            Fault::Full => assert!(full > 10, "{full} full"),
        }
    }
}

fn newest_acknowledged(done: &[Done]) -> Option<u64> {
    let numbers = done.iter().filter_map(|step| match step {
        Done::Acknowledged(number) => Some(*number),
        _ => None,
    });
    numbers.max()
}

async fn assert_survives(files: &BTreeMap<String, Vec<u8>>, acknowledged: Option<u64>, context: &str) {
    let place = folder();
    for (name, bytes) in files.iter().filter(|(name, _)| !name.ends_with("-shm")) {
        fs::write(place.path().join(name), bytes).unwrap();
    }
    let store = open(place.path()).unwrap_or_else(|error| panic!("{context}: {error}"));
    let found = newest_whole_batch(&store).await;
    assert!(
        found >= acknowledged,
        "{context}: {acknowledged:?} was acknowledged, and {found:?} is the newest"
    );
}

/// F2. What was not synced is gone, or some of it is there and the last of it torn.
#[tokio::test]
async fn a_power_cut_after_any_call_loses_nothing_that_was_acknowledged() {
    let place = folder();
    drop(open(place.path()).unwrap());
    let base = content(place.path());
    let disk = Disk::below(place.path());
    disk.record();
    let mut sampler = Sampler::new(8);
    // The file is closed in between: its log is moved into it, and begins anew.
    for opened in 0..2 {
        let store = open(place.path()).unwrap();
        let leases = lease(&store).await;
        for number in [2 * opened, 2 * opened + 1] {
            store.commit(&leases, Arc::new(batch(number, &mut sampler))).await.unwrap();
            disk.acknowledged(number);
        }
    }
    let done = disk.take();
    drop(disk);
    assert!(done.iter().any(|step| matches!(step, Done::Truncated { .. } | Done::Synced { .. })));
    assert_eq!(newest_acknowledged(&done), Some(3));
    for cut in 0..=done.len() {
        let done = &done[..cut];
        let acknowledged = newest_acknowledged(done);
        let nothing = power_cut(&base, done, || false);
        assert_survives(&nothing, acknowledged, &format!("cut after call {cut}, nothing of the rest")).await;
        let mut some = Sampler::new(cut as u64);
        let some = power_cut(&base, done, || some.below(2) == 0);
        assert_survives(&some, acknowledged, &format!("cut after call {cut}, some of the rest")).await;
    }
}

/// A model of a disk that keeps everything would prove nothing.
#[test]
fn what_was_not_synced_is_lost_and_the_last_of_it_torn() {
    let written = |at, bytes: &[u8]| Done::Written { file: "x".into(), at, bytes: bytes.to_vec() };
    let done =
        [written(0, b"aaaa"), Done::Synced { file: "x".into() }, written(0, b"bbbb"), written(4, b"cccc")];
    let base = BTreeMap::from([("x".to_owned(), b"----".to_vec())]);
    let left = |survives: bool| String::from_utf8(power_cut(&base, &done, || survives)["x"].clone()).unwrap();
    assert_eq!(left(false), "aaaa");
    assert_eq!(left(true), "bbbbcc\0\0");
}
