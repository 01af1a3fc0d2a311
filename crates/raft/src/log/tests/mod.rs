//! Tests of the log on a simulated disk: what is durable, what a crash leaves, and what is reported as damage.

mod damage;
mod power_cuts;
mod reading;
mod stopping;

use std::sync::Arc;

use openraft::RaftLogReader;
use tokio::sync::oneshot;

use super::error::{OpenError, Stopped};
use super::record::{Kind, Record};
use super::thread::OnFailure;
use super::{Log, Options, Space, Start};
use crate::codec::log_id;
use crate::disk::sim::SimDisk;
use crate::types::{LogId, NodeId, Peer, Vote};

openraft::declare_raft_types!(
    /// Types with which the traits of openraft are called.
    pub(super) TestTypes: D = crate::types::Payload, R = (), NodeId = NodeId, Node = Peer, SnapshotData = ()
);

/// Segments have space for 14 records of [`record`].
const SEGMENT_BYTES: u64 = 1024;
const ME: NodeId = NodeId(1);

fn options() -> Options {
    Options {
        segment_bytes: SEGMENT_BYTES,
        on_failure: OnFailure::call(|_| {}),
        ..Options::new(5, ME, Start::New)
    }
}

fn id(term: u64, index: u64) -> LogId {
    log_id(term, NodeId(term % 3), index)
}

/// Returns a record that takes 64 bytes in the file.
fn record(term: u64, index: u64) -> Record {
    let payload = [term, index].map(u64::to_le_bytes).concat();
    Record { id: id(term, index), kind: Kind::Group, payload: Arc::from(payload) }
}

fn records(term: u64, indexes: std::ops::Range<u64>) -> Vec<Record> {
    indexes.map(|index| record(term, index)).collect()
}

fn try_open(disk: &Arc<SimDisk>) -> Result<Log, OpenError> {
    Log::open_on(Arc::clone(disk) as _, options())
}

fn open(disk: &Arc<SimDisk>) -> Log {
    try_open(disk).unwrap()
}

/// Appends records, and returns the receiver of the answer.
fn append(log: &Log, records: Vec<Record>) -> oneshot::Receiver<Result<(), Stopped>> {
    let (done, answer) = oneshot::channel();
    log.append_records(records, Box::new(|result| drop(done.send(result)))).unwrap();
    answer
}

/// Appends records, each with a sync of its own.
async fn append_singly(log: &Log, records: Vec<Record>) {
    for record in records {
        append(log, vec![record]).await.unwrap().unwrap();
    }
}

/// Returns all records.
async fn all(log: &Log) -> Vec<Record> {
    log.reader().read(0..u64::MAX, usize::MAX).await.unwrap()
}

async fn ids(log: &Log) -> Vec<LogId> {
    all(log).await.iter().map(|record| record.id).collect()
}

#[tokio::test]
async fn entries_survive_a_reopen() {
    let disk = SimDisk::new();
    let log = open(&disk);
    append_singly(&log, records(1, 0..20)).await;
    append(&log, records(2, 20..50)).await.unwrap().unwrap();
    assert_eq!(all(&log).await, [records(1, 0..20), records(2, 20..50)].concat());
    drop(log);
    let log = open(&disk);
    assert_eq!(all(&log).await, [records(1, 0..20), records(2, 20..50)].concat());
    append(&log, records(2, 50..60)).await.unwrap().unwrap();
    drop(log);
    assert_eq!(all(&open(&disk)).await.len(), 60);
}

#[tokio::test]
async fn an_entry_larger_than_a_segment_is_stored() {
    let disk = SimDisk::new();
    let log = open(&disk);
    let large = Record { payload: Arc::from(vec![7; 5000]), ..record(1, 1) };
    append(&log, vec![record(1, 0), large.clone(), record(1, 2)]).await.unwrap().unwrap();
    drop(log);
    let log = open(&disk);
    assert_eq!(all(&log).await, [record(1, 0), large, record(1, 2)]);
    append(&log, vec![record(1, 3)]).await.unwrap().unwrap();
}

#[tokio::test]
async fn waiting_appends_share_a_sync() {
    let disk = SimDisk::new();
    let log = open(&disk);
    append_singly(&log, records(1, 0..1)).await;
    disk.hold_syncs();
    let first = append(&log, records(1, 1..2));
    disk.wait_for_held_sync();
    let syncs = disk.syncs();
    let waiting: Vec<_> = (2..8).map(|index| append(&log, records(1, index..index + 1))).collect();
    assert_eq!(all(&log).await.len(), 8, "entries are readable before they are durable");
    disk.continue_syncs();
    for answer in [first].into_iter().chain(waiting) {
        answer.await.unwrap().unwrap();
    }
    assert_eq!(disk.syncs() - syncs, 2, "one for the first append, one for the six that waited");
}

#[tokio::test]
async fn a_vote_is_durable_before_it_is_answered() {
    let disk = SimDisk::new();
    let log = open(&disk);
    disk.hold_syncs();
    let vote = Vote::new(3, NodeId(2));
    let saved = tokio::join!(log.store_vote(vote), async {
        disk.wait_for_held_sync();
        assert_eq!(log.shared.view().vote, None);
        disk.continue_syncs();
    });
    saved.0.unwrap();
    assert_eq!(log.shared.view().vote, Some(vote));
    drop(log);
    disk.cut_power(&mut crate::disk::sim::Luck::new(1));
    assert_eq!(open(&disk).shared.view().vote, Some(vote));
}

/// Otherwise openraft would continue the leadership of a process that has ended, with its leases.
#[tokio::test]
async fn an_own_committed_vote_is_uncommitted_after_a_restart() {
    let disk = SimDisk::new();
    for (saved, found) in [
        (Vote::new_committed(3, ME), Vote::new(3, ME)),
        (Vote::new_committed(4, NodeId(2)), Vote::new_committed(4, NodeId(2))),
        (Vote::new(5, ME), Vote::new(5, ME)),
    ] {
        let log = open(&disk);
        log.store_vote(saved).await.unwrap();
        drop(log);
        assert_eq!(open(&disk).shared.view().vote, Some(found));
    }
}

#[tokio::test]
async fn a_truncated_log_does_not_get_old_entries_back() {
    // Within the last segment, at the start of a segment, in an earlier segment, at the start of the log.
    for from in [45, 42, 20, 14, 0] {
        let disk = SimDisk::new();
        let log = open(&disk);
        append(&log, records(1, 0..50)).await.unwrap().unwrap();
        log.truncate_from(from).await.unwrap();
        assert_eq!(all(&log).await, records(1, 0..from));
        let log = if from % 4 == 1 {
            drop(log);
            open(&disk)
        } else {
            log
        };
        append(&log, records(2, from..from + 1)).await.unwrap().unwrap();
        let expected = [records(1, 0..from), records(2, from..from + 1)].concat();
        assert_eq!(all(&log).await, expected);
        drop(log);
        disk.cut_power(&mut crate::disk::sim::Luck::new(from));
        let log = open(&disk);
        assert_eq!(all(&log).await, expected);
        log.truncate_from(from + 1).await.unwrap();
        assert_eq!(all(&log).await, expected, "nothing to remove");
    }
}

#[tokio::test]
async fn purged_segments_are_deleted() {
    let disk = SimDisk::new();
    let log = open(&disk);
    append(&log, records(1, 0..50)).await.unwrap().unwrap();
    let [a, b, c, d] = [0, 14, 28, 42].map(|first: u64| format!("{first:020}.log"));
    disk.wait_for_names(".log", &[&a, &b, &c, &d]);
    log.purge_upto(id(1, 26)).await.unwrap();
    disk.wait_for_names(".log", &[&b, &c, &d]);
    log.purge_upto(id(1, 27)).await.unwrap();
    disk.wait_for_names(".log", &[&c, &d]);
    assert_eq!(all(&log).await, records(1, 28..50));
    log.purge_upto(id(1, 35)).await.unwrap();
    log.purge_upto(id(1, 20)).await.unwrap();
    log.purge_upto(id(1, 49)).await.unwrap();
    disk.wait_for_names(".log", &[&d]);
    assert_eq!(all(&log).await, []);
    drop(log);
    let log = open(&disk);
    assert_eq!(log.shared.view().purged, Some(id(1, 49)));
    assert_eq!(log.shared.view().last, Some(id(1, 49)));
    append(&log, records(2, 50..52)).await.unwrap().unwrap();
    drop(log);
    assert_eq!(ids(&open(&disk)).await, [id(2, 50), id(2, 51)]);
}

/// A follower has installed a snapshot whose last entry the log does not have.
#[tokio::test]
async fn a_snapshot_beyond_the_log_starts_a_new_segment() {
    // Beyond the last index; and an earlier index, but of a later leader than the last entry.
    for snapshot in [id(1, 100), id(2, 30)] {
        let disk = SimDisk::new();
        let log = open(&disk);
        append(&log, records(1, 0..50)).await.unwrap().unwrap();
        log.purge_upto(snapshot).await.unwrap();
        assert_eq!(all(&log).await, []);
        let next = snapshot.index + 1;
        append(&log, records(2, next..next + 2)).await.unwrap().unwrap();
        drop(log);
        disk.cut_power(&mut crate::disk::sim::Luck::new(3));
        let log = open(&disk);
        assert_eq!(all(&log).await, records(2, next..next + 2));
        assert_eq!(log.shared.view().purged, Some(snapshot));
    }
}

#[tokio::test]
async fn a_gap_in_the_entries_is_refused() {
    let log = open(&SimDisk::new());
    append(&log, records(1, 3..5)).await.unwrap().unwrap();
    for wrong in [records(1, 4..5), records(1, 6..7), [records(1, 5..6), records(1, 7..8)].concat()] {
        let error = log.append_records(wrong, Box::new(|_| panic!("not written"))).unwrap_err().to_string();
        assert!(error.contains("does not follow the last entry of the log"), "{error}");
    }
    append(&log, records(1, 5..6)).await.unwrap().unwrap();
}

#[tokio::test]
async fn space_is_allocated_in_advance_and_its_end_is_reported() {
    let disk = SimDisk::new();
    let log = open(&disk);
    let gauge = log.space();
    // The second request is served after the next segment was allocated.
    append_singly(&log, records(1, 0..2)).await;
    disk.set_available(SEGMENT_BYTES / 2);
    // Fills the first segment and continues in the spare one, which needs no space.
    append_singly(&log, records(1, 2..20)).await;
    // The next request is served after the thread has looked at the space.
    append_singly(&log, records(1, 20..21)).await;
    assert_eq!(gauge.get(), Space::Exhausted);
    disk.set_available(3 * SEGMENT_BYTES);
    append_singly(&log, records(1, 21..22)).await;
    append_singly(&log, records(1, 22..23)).await;
    assert_eq!(gauge.get(), Space::Low);
    disk.set_available(u64::MAX);
    append_singly(&log, records(1, 23..24)).await;
    append_singly(&log, records(1, 24..25)).await;
    assert_eq!(gauge.get(), Space::Enough);
}

#[tokio::test]
async fn a_real_folder_has_one_owner() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let missing = Log::open(&path, Options { start: Start::Existing, ..options() });
    assert!(matches!(missing, Err(OpenError::Missing { .. })));
    let mut log = Log::open(&path, options()).unwrap();
    append(&log, records(1, 0..30)).await.unwrap().unwrap();
    assert!(matches!(Log::open(&path, options()), Err(OpenError::InUse { .. })));
    let entries = RaftLogReader::<TestTypes>::try_get_log_entries(&mut log, 28..).await.unwrap();
    assert_eq!(entries.iter().map(|entry| entry.log_id).collect::<Vec<_>>(), [id(1, 28), id(1, 29)]);
    drop(log);
    let log = Log::open(&path, Options { start: Start::Existing, ..options() }).unwrap();
    assert_eq!(all(&log).await, records(1, 0..30));
}
