//! Faults that need a separate process: kill -9, and failing system calls.
//!
//! The tests run [`child_that_commits`] in a process of this test binary, and read the acknowledged batches
//! from its pipe. Acknowledged batches must exist afterwards, and no batch may exist partially.
//!
//! System calls fail by `strace`, one run for each failing call; without it, these tests print a notice and
//! pass. Each batch ends the jobs of the batch before, so a lost or partial batch cannot be hidden by a later
//! one.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use model::record::{Batch, Change};
use model::{Duration, JobId, JobStatus, ShardId};

use super::*;
use crate::StoreError;
use crate::query::{JobFilter, Page};
use crate::suite::load;
use crate::suite::sample::Sampler;
use crate::{Commits as _, Leases as _, Reads as _};

const FOLDER: &str = "BELFRY_STORE_TEST_FOLDER";
const COMMITS: &str = "BELFRY_STORE_TEST_COMMITS";
const CHILD: &str = "sqlite::tests::process::child_that_commits";
/// Number of jobs in a batch; each batch ends those of the batch before.
const JOBS: u64 = 20;

fn id(batch: u64, n: u64) -> JobId {
    JobId::from_bits((u128::from(batch + 1) << 80) | (u128::from(n) << 16) | u128::from(n % 16))
}

fn batch(number: u64, sampler: &mut Sampler) -> Batch {
    batch_of(JOBS, number, sampler)
}

/// Returns a batch with this number of new jobs, which ends those of the batch before.
pub(super) fn batch_of(jobs: u64, number: u64, sampler: &mut Sampler) -> Batch {
    let head = sampler.head();
    let mut changes = Vec::new();
    for n in 0..jobs {
        let state = Box::new(sampler.state(JobStatus::Waiting));
        changes.push(Change::Job { id: id(number, n), new: true, head: Some(Arc::clone(&head)), state });
        if let Some(before) = number.checked_sub(1) {
            let state = Box::new(sampler.state(JobStatus::Succeeded));
            changes.push(Change::Job { id: id(before, n), new: false, head: None, state });
        }
    }
    Batch { now: sampler.now(), changes, events: vec![sampler.event()], ..Batch::default() }
}

pub(super) fn open(folder: &Path) -> Result<SqliteStore, StoreError> {
    SqliteStore::open(folder.join("x.db"), Options { ballast_bytes: 0, ..Options::default() })
}

/// Returns the newest batch, after checking that every batch exists completely or not at all.
async fn newest_whole_batch(store: &SqliteStore) -> Option<u64> {
    newest_whole_batch_of(JOBS, store).await
}

pub(super) async fn newest_whole_batch_of(jobs: u64, store: &SqliteStore) -> Option<u64> {
    let mut newest = None;
    for number in 0.. {
        let filter = JobFilter {
            created_after: Some(id(number, 0).created_at()),
            created_before: Some(id(number + 1, 0).created_at()),
            ..JobFilter::default()
        };
        let found = store.jobs(&filter, Page { after: None, limit: 1_000 }).await.unwrap().items;
        if found.is_empty() {
            break;
        }
        assert_eq!(found.len() as u64, jobs, "batch {number} is there by half");
        newest = Some(number);
    }
    for number in 0..newest.map_or(0, |newest| newest + 1) {
        let ended = Some(number) != newest;
        for n in 0..jobs {
            let status = store.job(id(number, n)).await.unwrap().unwrap().state.status;
            assert_eq!(status.is_final(), ended, "batch {number} of {newest:?}");
        }
    }
    newest
}

#[tokio::test]
#[ignore = "run by the other tests of this module, in a process of its own"]
async fn child_that_commits() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let commits: u64 = std::env::var(COMMITS).unwrap().parse().unwrap();
    let store = match open(Path::new(&folder)) {
        Ok(store) => store,
        Err(error) => return println!("\nnot opened: {error}"),
    };
    let first = match newest_whole_batch(&store).await {
        Some(newest) => newest + 1,
        None => 0,
    };
    let shards: Vec<_> = (0..16).map(ShardId).collect();
    let mut leases = store.acquire(&shards, "child", Duration::from_hours(1)).await;
    if matches!(leases, Err(StoreError::Full)) {
        leases = store.acquire(&shards, "child", Duration::from_hours(1)).await;
    }
    let leases = match leases {
        Ok(leases) => leases,
        Err(error) => return println!("\nnot leased: {error}"),
    };
    let mut sampler = Sampler::new(first);
    let mut number = first;
    println!();
    for _ in 0..commits {
        match store.commit(&leases, Arc::new(batch(number, &mut sampler))).await {
            Ok(_) => {
                println!("acknowledged {number}");
                number += 1;
            }
            Err(StoreError::Full) => {
                println!("full");
                let _ = load(&store, &leases).await;
            }
            Err(StoreError::Fatal { .. }) => println!("fatal"),
            Err(error) => println!("error {error}"),
        }
    }
}

fn child(mut command: Command, folder: &Path, commits: u64) -> Child {
    command
        .args([CHILD, "--exact", "--ignored", "--nocapture", "--test-threads=1"])
        .env(FOLDER, folder)
        .env(COMMITS, commits.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

fn this_binary() -> std::ffi::OsString {
    std::env::current_exe().unwrap().into()
}

fn acknowledged(line: &str) -> Option<u64> {
    line.strip_prefix("acknowledged ").and_then(|number| number.parse().ok())
}

/// F1, D7. Killed repeatedly at random points of a commit.
#[tokio::test]
async fn acknowledged_batches_survive_kill_9() {
    let folder = tempfile::tempdir().unwrap();
    let mut sampler = Sampler::new(51);
    let mut last = None;
    for _ in 0..12 {
        let mut child = child(Command::new(this_binary()), folder.path(), u64::MAX);
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut left = 1 + sampler.below(25);
        while left > 0 {
            let line = lines.next().expect("the child continues until it is killed").unwrap();
            if let Some(number) = acknowledged(&line) {
                last = Some(number);
                left -= 1;
            }
        }
        // Spins for a random time, so that the child is at a random point of its next commit.
        for _ in 0..sampler.below(400_000) {
            std::hint::spin_loop();
        }
        child.kill().unwrap();
        // Batches that it acknowledged before it died count too.
        for line in lines.map_while(Result::ok) {
            last = acknowledged(&line).or(last);
        }
        child.wait().unwrap();
        let store = open(folder.path()).unwrap();
        let found = newest_whole_batch(&store).await;
        assert!(found >= last, "batch {last:?} was acknowledged, and {found:?} is the newest");
        last = found;
    }
}

/// Runs the child under strace, which makes system calls fail; `None` if that is not possible.
fn injected(fault: &str, folder: &Path) -> Option<Vec<String>> {
    let usable = Command::new("strace")
        .args(["-o", "/dev/null", "true"])
        .output()
        .is_ok_and(|out| out.status.success());
    if !usable {
        println!("skipped: strace cannot be used here");
        return None;
    }
    let mut strace = Command::new("strace");
    strace.args(["-f", "-qq", "-o", "/dev/null", "-e", &format!("inject={fault}")]).arg(this_binary());
    let mut child = child(strace, folder, 8);
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok).collect();
    child.wait().unwrap();
    Some(lines)
}

async fn assert_kept(folder: &Path, lines: &[String], context: &str) {
    let last = lines.iter().filter_map(|line| acknowledged(line)).max();
    let found = newest_whole_batch(&open(folder).unwrap()).await;
    assert!(found >= last, "{context}: {last:?} was acknowledged, and {found:?} is the newest");
}

/// F8. Every fsync of the writer thread fails once, the nth in each run; nothing is written afterwards.
#[tokio::test]
async fn a_failed_sync_ends_all_writing() {
    let mut fatal = 0;
    for nth in 1..=8 {
        let folder = tempfile::tempdir().unwrap();
        drop(open(folder.path()).unwrap());
        let fault = format!("fsync,fdatasync:error=EIO:when={nth}");
        let Some(lines) = injected(&fault, folder.path()) else { return };
        let after: Vec<_> = lines.iter().skip_while(|line| *line != "fatal").collect();
        fatal += usize::from(!after.is_empty());
        assert!(!after.iter().any(|line| acknowledged(line).is_some()), "{nth}: {lines:?}");
        assert_kept(folder.path(), &lines, &fault).await;
    }
    assert!(fatal >= 5, "only {fatal} of 8 runs met the fault in a commit");
}

/// F8.
#[tokio::test]
async fn a_failed_write_ends_all_writing() {
    let mut fatal = 0;
    for nth in [1, 2, 5, 20, 40, 60, 80] {
        let folder = tempfile::tempdir().unwrap();
        drop(open(folder.path()).unwrap());
        let fault = format!("pwrite64:error=EIO:when={nth}");
        let Some(lines) = injected(&fault, folder.path()) else { return };
        let after: Vec<_> = lines.iter().skip_while(|line| *line != "fatal").collect();
        fatal += usize::from(!after.is_empty());
        assert!(!after.iter().any(|line| acknowledged(line).is_some()), "{nth}: {lines:?}");
        assert_kept(folder.path(), &lines, &fault).await;
    }
    assert!(fatal >= 3, "only {fatal} runs met the fault in a commit");
}

/// F7. One write finds no space: that commit is refused completely, and the next one succeeds.
#[tokio::test]
async fn a_write_without_space_refuses_only_one_commit() {
    let mut full = 0;
    for nth in [20, 30, 40, 50, 60, 70, 80] {
        let folder = tempfile::tempdir().unwrap();
        drop(open(folder.path()).unwrap());
        let fault = format!("pwrite64:error=ENOSPC:when={nth}");
        let Some(lines) = injected(&fault, folder.path()) else { return };
        let refused = lines.iter().filter(|line| *line == "full").count();
        full += refused;
        let done = lines.iter().filter(|line| acknowledged(line).is_some()).count();
        assert_eq!(done + refused, 8, "{nth}: {lines:?}");
        assert_kept(folder.path(), &lines, &fault).await;
    }
    assert!(full >= 4, "only {full} commits met the fault");
}
