//! Every call of a commit fails once, and power is cut after every call.
//!
//! The tests count the calls that a few commits make to the disk, and repeat the commits once for each call.
//! For failures, that call fails, and the store must not acknowledge what is not durable. For power cuts, the
//! calls are recorded, and `assert_survives` opens the files that a disk may contain after that call:
//! unsynced writes are lost, or a part of them is kept and torn.
//!
//! The recording and the failing disk are in `failing_disk`. Faults that need a real process are in
//! `process`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use model::record::{Batch, Change, Lease};
use model::{Duration, ShardId};

use super::failing_disk::{Disk, DiskCall, Fault, content, power_cut};
use super::process::{batch_of, newest_whole_batch_of, open};
use super::*;
use crate::StoreError;
use crate::suite::load;
use crate::suite::sample::Sampler;
use crate::{Commits as _, Leases as _, Reads as _};

/// Few jobs, so that every call of their commits can be tried.
const JOBS: u64 = 3;

fn batch(number: u64, sampler: &mut Sampler) -> Batch {
    batch_of(JOBS, number, sampler)
}

async fn newest_whole_batch(store: &SqliteStore) -> Option<u64> {
    newest_whole_batch_of(JOBS, store).await
}

/// Returns a folder in memory if possible: hundreds of files are opened, and the tests do not depend on their real
/// fsyncs.
pub(super) fn folder() -> TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

async fn lease(store: &SqliteStore) -> Vec<Lease> {
    let shards: Vec<_> = (0..16).map(ShardId).collect();
    store.acquire(&shards, "torture", Duration::from_hours(1)).await.unwrap()
}

/// Result of a few commits on a disk that failed once.
struct Outcome {
    /// Newest acknowledged batch.
    acknowledged: u64,
    /// Newest batch that may exist.
    possible: u64,
    fatal: bool,
    full: bool,
    /// Whether the fault occurred.
    met: bool,
}

/// Two commits and the close of the file, with its checkpoint; the `nth` call fails.
async fn commits_on(folder: &Path, nth: u64, fault: Fault) -> Outcome {
    let disk = Disk::below(folder);
    let store = open(folder).unwrap();
    let leases = lease(&store).await;
    let mut sampler = Sampler::new(7);
    store.commit(&leases, Arc::new(batch(0, &mut sampler))).await.unwrap();
    disk.arm(nth, fault);
    let mut came = Outcome { acknowledged: 0, possible: 0, fatal: false, full: false, met: false };
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
                load(&store, &leases).await.unwrap();
            }
            Err(StoreError::Fatal { .. }) => (came.fatal, came.possible) = (true, next),
            Err(error) => panic!("call {nth}, {fault:?}: {error}"),
        }
    }
    drop(store);
    came.met = disk.disarm();
    came
}

/// F7, F8. Acknowledged batches exist, and no batch exists partially, whichever call fails and however.
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

/// Commits that are all in flight, as a server sends them; the `nth` call and all later ones fail.
async fn commits_ahead_on(folder: &Path, nth: u64) -> (Vec<Result<(), StoreError>>, bool) {
    let disk = Disk::below(folder);
    let store = open(folder).unwrap();
    let leases = lease(&store).await;
    let mut sampler = Sampler::new(9);
    store.commit(&leases, Arc::new(batch(0, &mut sampler))).await.unwrap();
    disk.arm_from(nth, Fault::Full);
    let batches: Vec<_> = (1..=3).map(|number| Arc::new(batch(number, &mut sampler))).collect();
    let commits = batches.into_iter().map(|batch| store.commit(&leases, batch));
    let mut came = futures::future::join_all(commits).await;
    let met = disk.disarm();
    if let Err(StoreError::Full | StoreError::Unavailable { .. }) = &came[2] {
        // Not even a later one, as long as its sender may not know of the failure.
        came.push(store.commit(&leases, Arc::new(batch(4, &mut sampler))).await);
        // A checkpoint of the WAL may have met the fault as well.
        came.extend(load(&store, &leases).await.err().map(Err));
    }
    drop(store);
    (came.into_iter().map(|result| result.map(drop)).collect(), met)
}

/// F7. Each batch ends the jobs of the one before, so a batch without its predecessor would break an invariant.
#[tokio::test]
async fn no_batch_is_committed_after_a_failed_one() {
    let mut refused = 0;
    for nth in 0.. {
        let place = folder();
        let (came, met) = commits_ahead_on(place.path(), nth).await;
        let found = newest_whole_batch(&open(place.path()).unwrap()).await.unwrap();
        let first_failed = came.iter().position(Result::is_err).unwrap_or(came.len());
        let is_fatal = came.iter().any(|result| matches!(result, Err(StoreError::Fatal { .. })));
        assert!(came[first_failed..].iter().all(Result::is_err), "call {nth}: {came:?}");
        assert!(found >= first_failed as u64, "call {nth}: {came:?}, and {found} is the newest");
        // After a failed fsync the outcome is unknown; otherwise no refused batch was committed.
        assert!(is_fatal || found == first_failed as u64, "call {nth}: {came:?}, and {found} is the newest");
        refused += came.iter().filter(|result| matches!(result, Err(StoreError::Unavailable { .. }))).count();
        if !met {
            break;
        }
    }
    assert!(refused > 0, "no batch was refused for the one before it");
}

fn newest_acknowledged(done: &[DiskCall]) -> Option<u64> {
    let numbers = done.iter().filter_map(|step| match step {
        DiskCall::Acknowledged(number) => Some(*number),
        _ => None,
    });
    numbers.max()
}

async fn assert_survives(files: &BTreeMap<String, Vec<u8>>, acknowledged: Option<u64>, context: &str) {
    assert_survives_of(JOBS, files, acknowledged, context).await;
}

async fn assert_survives_of(
    jobs: u64,
    files: &BTreeMap<String, Vec<u8>>,
    acknowledged: Option<u64>,
    context: &str,
) {
    let place = folder();
    for (name, bytes) in files.iter().filter(|(name, _)| !name.ends_with("-shm")) {
        fs::write(place.path().join(name), bytes).unwrap();
    }
    let store = open(place.path()).unwrap_or_else(|error| panic!("{context}: {error}"));
    let found = newest_whole_batch_of(jobs, &store).await;
    assert!(
        found >= acknowledged,
        "{context}: {acknowledged:?} was acknowledged, and {found:?} is the newest"
    );
}

/// F2. Unsynced data is lost, or a part of it survives with the last write torn.
#[tokio::test]
async fn a_power_cut_after_any_call_loses_no_acknowledged_batch() {
    let place = folder();
    drop(open(place.path()).unwrap());
    let base = content(place.path());
    let disk = Disk::below(place.path());
    disk.record();
    let mut sampler = Sampler::new(8);
    // The file is closed in between, so its WAL is checkpointed and restarts.
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
    assert!(done.iter().any(|step| matches!(step, DiskCall::Truncated { .. } | DiskCall::Synced { .. })));
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

/// F2. Also at the first start: a store that was never used must not look like one that lost commits.
#[tokio::test]
async fn a_power_cut_at_the_first_start_leaves_a_store_that_opens() {
    let place = folder();
    let disk = Disk::below(place.path());
    disk.record();
    let store = open(place.path()).unwrap();
    let leases = lease(&store).await;
    store.commit(&leases, Arc::new(batch(0, &mut Sampler::new(12)))).await.unwrap();
    disk.acknowledged(0);
    let done = disk.take();
    drop((store, disk));
    for cut in (0..=done.len()).rev().step_by(3) {
        let (done, mut some) = (&done[..cut], Sampler::new(cut as u64));
        for mut left in [
            power_cut(&BTreeMap::new(), done, || false),
            power_cut(&BTreeMap::new(), done, || some.below(2) == 0),
        ] {
            // The recording does not contain its removal.
            left.retain(|name, _| !name.ends_with("-journal"));
            assert_survives(&left, newest_acknowledged(done), &format!("cut after call {cut}")).await;
        }
    }
}

/// F2. Also if transactions are written during the fsync of earlier ones.
#[tokio::test]
async fn a_power_cut_between_commit_and_sync_loses_no_acknowledged_batch() {
    const COMMITS: u64 = 6;
    let place = folder();
    drop(open(place.path()).unwrap());
    let base = content(place.path());
    let disk = Disk::below(place.path());
    disk.record();
    let store = open(place.path()).unwrap();
    let leases = lease(&store).await;
    let mut sampler = Sampler::new(10);
    // More rows than the writer thread syncs itself.
    let batches: Vec<_> = (0..COMMITS).map(|number| Arc::new(batch_of(70, number, &mut sampler))).collect();
    let commits = batches.into_iter().enumerate().map(|(number, batch)| {
        let (store, leases, disk) = (&store, &leases, &disk);
        async move {
            store.commit(leases, batch).await.unwrap();
            disk.acknowledged(number as u64);
        }
    });
    futures::future::join_all(commits).await;
    let done = disk.take();
    drop((store, disk));
    assert_eq!(newest_acknowledged(&done), Some(COMMITS - 1));
    // Not a multiple of the calls of a commit, so that the cuts fall between different ones.
    for cut in (0..=done.len()).rev().step_by(17) {
        let (done, mut some) = (&done[..cut], Sampler::new(cut as u64));
        let left = power_cut(&base, done, || some.below(2) == 0);
        let acknowledged = newest_acknowledged(done);
        assert_survives_of(70, &left, acknowledged, &format!("cut after call {cut}")).await;
    }
}

/// I6. Data of a commit that a query has returned must survive a power cut.
#[tokio::test]
async fn a_query_that_saw_a_commit_is_answered_after_its_sync() {
    let place = folder();
    let disk = Disk::below(place.path());
    let store = Arc::new(open(place.path()).unwrap());
    let leases = lease(&store).await;
    disk.hold_syncs(true);
    let (first, written) = (batch(0, &mut Sampler::new(11)), Arc::clone(&store));
    let Some(Change::Job { id, .. }) = first.changes.first() else { panic!("it has jobs") };
    let id = *id;
    let commit = tokio::spawn(async move { written.commit(&leases, Arc::new(first)).await });
    let beside = rusqlite::Connection::open(place.path().join("x.db")).unwrap();
    let is_visible = || beside.query_row("SELECT count(*) FROM jobs", [], |row| row.get::<_, u64>(0));
    while is_visible().unwrap() == 0 {
        tokio::task::yield_now().await;
    }
    let asked = Arc::clone(&store);
    let query = tokio::spawn(async move { asked.job(id).await });
    while store.readers.idle_connections() == 0 {
        tokio::task::yield_now().await;
    }
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert!(!query.is_finished(), "it has read its row and is not answered");
    assert!(!commit.is_finished());
    disk.hold_syncs(false);
    assert!(query.await.unwrap().unwrap().is_some());
    commit.await.unwrap().unwrap();
}

/// A disk model that keeps everything would prove nothing.
#[test]
fn unsynced_writes_are_lost_and_the_last_is_torn() {
    let written = |at, bytes: &[u8]| DiskCall::Written { file: "x".into(), at, bytes: bytes.to_vec() };
    let done = [
        written(0, b"aaaa"),
        DiskCall::Synced { file: "x".into() },
        written(0, b"bbbb"),
        written(4, b"cccc"),
    ];
    let base = BTreeMap::from([("x".to_owned(), b"----".to_vec())]);
    let left = |survives: bool| String::from_utf8(power_cut(&base, &done, || survives)["x"].clone()).unwrap();
    assert_eq!(left(false), "aaaa");
    assert_eq!(left(true), "bbbbcc\0\0");
}
