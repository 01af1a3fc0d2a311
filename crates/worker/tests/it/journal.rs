//! Journals that were damaged by the disk or by a power cut.

#![expect(unsafe_code, reason = "replacing a function of the C library has no safe interface")]

use std::ffi::c_int;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use model::spec::{Delivery, JobSpec};
use proto::v1::report::Body;
use proto::v1::server_message::Body as Say;
use proto::v1::{Assignment, StopBatch};
use rustix::process::Signal;

use crate::rig::{TestWorker, assignment, numbers, process_state, script, sh, signal, stop};
use crate::server::State;

/// The next `fsync` of a folder that contains a file of this name fails.
const FAILS: &str = "sync-fails";

/// Replaces the function of the C library.
#[unsafe(no_mangle)]
extern "C" fn fsync(file: c_int) -> c_int {
    if fs::remove_file(format!("/proc/self/fd/{file}/{FAILS}")).is_ok() {
        // SAFETY: each thread has its own errno.
        unsafe { *libc::__errno_location() = libc::EIO };
        return -1;
    }
    // SAFETY: no memory is passed.
    let result = unsafe { libc::syscall(libc::SYS_fsync, file) };
    if result == 0 { 0 } else { -1 }
}

/// An `at_most_once` execution that records its starts in a file.
fn telling(starts: &Path) -> Assignment {
    let mut spec = script(&format!("echo 1 >> {}", starts.display()));
    spec.delivery = Delivery::AtMostOnce;
    assignment(&spec)
}

/// Executions that fail before they start with a long reason, which together write some megabytes to the journal.
fn large_failures() -> Vec<Assignment> {
    let mut spec = serde_json::to_value(JobSpec::command(["true"])).unwrap();
    spec["delivery"] = "x".repeat(250_000).into();
    let bytes = serde_json::to_vec(&spec).unwrap();
    (0..10).map(|_| Assignment { spec: bytes.clone().into(), ..sh("") }).collect()
}

fn has_failed(state: &State, order: &Assignment) -> bool {
    state.of(&order.execution_id).any(|body| matches!(body, Body::StartFailed(_)))
}

/// Runs an execution until its end is acknowledged. Meanwhile assigns it repeatedly, as a server does after a
/// reconnect.
async fn end(rig: &TestWorker, order: &Assignment) {
    let id = &order.execution_id;
    let again = async {
        loop {
            rig.server.assign(vec![order.clone()]).await;
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    tokio::select! {
        () = rig.server.wait_for("an acknowledged end", |state| state.acknowledged.contains(id).then_some(())) => {}
        () = again => {}
    }
}

/// D7. The new file has the name of the old one, but the folder cannot be made durable. Records that are written to
/// the old file after that would be lost at the next restart.
pub(crate) async fn records_after_a_failed_compaction_survive_a_restart() {
    let rig = TestWorker::new().await;
    let starts = rig.shared("starts");
    let (before, after) = (telling(&starts), telling(&starts));
    end(&rig, &before).await;
    rig.server.state().acknowledge = false;
    let (journal, fails) = (rig.config.dir.join("journal"), rig.config.dir.join(FAILS));
    fs::write(&fails, "").unwrap();
    let old = fs::metadata(&journal).unwrap().ino();
    while fails.exists() {
        let orders = large_failures();
        rig.server.assign(orders.clone()).await;
        let has_all = |state: &mut State| orders.iter().all(|order| has_failed(state, order));
        rig.server.wait_for("the failures", |state| (has_all(state) || !fails.exists()).then_some(())).await;
    }
    assert_ne!(fs::metadata(&journal).unwrap().ino(), old, "the compaction failed before the rename");
    rig.server.state().acknowledge = true;
    end(&rig, &after).await;
    let supervisor = rig.supervisor();
    signal(supervisor, Signal::KILL);
    rig.server.wait_for("its exit", |_| process_state(supervisor).is_none().then_some(())).await;
    for order in [&before, &after] {
        rig.is_refused(order).await;
    }
    assert_eq!(numbers(&starts), [1, 1]);
}

/// Returns the offset of the last batch of records, which begins with a `Synced` record.
fn last_batch(journal: &[u8]) -> usize {
    // Protobuf tag of the `Synced` record.
    const SYNCED: u8 = 6 << 3 | 2;
    let (mut at, mut last) = (8, 0);
    while let Some(header) = journal.get(at..).and_then(|rest| rest.first_chunk::<4>()) {
        let body = at + 8;
        if journal[body] == SYNCED {
            last = at;
        }
        at = body + u32::from_le_bytes(*header) as usize;
    }
    assert_eq!(at, journal.len(), "the journal ends with a whole record");
    last
}

/// D7. A disk need not write the blocks of a batch in order: a block in the middle may be missing.
pub(crate) async fn a_worker_starts_from_a_journal_with_a_hole_in_its_last_batch() {
    const STOPS: usize = 300;
    let mut rig = TestWorker::new().await;
    let starts = rig.shared("starts");
    let before = telling(&starts);
    end(&rig, &before).await;
    rig.server.state().acknowledge = false;
    let orders: Vec<_> = (0..STOPS).map(|_| sh("")).collect();
    let stops = orders.iter().map(|order| stop(order, 0)).collect();
    rig.server.send_message(Say::Stops(StopBatch { stops })).await;
    let are_refused = |state: &State| orders.iter().all(|o| state.of(&o.execution_id).next().is_some());
    rig.server.wait_for("the refusals", |state| are_refused(state).then_some(())).await;
    rig.kill_agent().await;
    let supervisor = rig.supervisor();
    signal(supervisor, Signal::KILL);
    rig.server.wait_for("its exit", |_| process_state(supervisor).is_none().then_some(())).await;

    let journal = rig.config.dir.join("journal");
    let mut bytes = fs::read(&journal).unwrap();
    let batch = last_batch(&bytes);
    assert!(bytes.len() - batch > STOPS * 50, "the last batch has only {} bytes", bytes.len() - batch);
    let hole = (batch + bytes.len()) / 2;
    bytes[hole..hole + 512].fill(0);
    fs::write(&journal, bytes).unwrap();

    rig.start_agent();
    let hello = rig.server.wait_for("another hello", |state| state.hellos.get(1).cloned()).await;
    assert!((1..STOPS).contains(&hello.executions.len()), "{} of {STOPS} are held", hello.executions.len());
    rig.is_refused(&before).await;
    assert_eq!(rig.run("exit 0").await.1.exit_code, Some(0));
    assert_eq!(numbers(&starts), [1]);
}
