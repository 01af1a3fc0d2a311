//! After an error of the disk the log acknowledges nothing any more.

use std::sync::{Arc, Mutex};

use super::*;
use crate::disk::sim::Luck;

/// Opens a log whose failures are collected.
fn open_observed(disk: &Arc<SimDisk>) -> (Log, Arc<Mutex<Vec<String>>>) {
    let failures = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&failures);
    let on_failure = OnFailure::call(move |failure| seen.lock().unwrap().push(failure.to_string()));
    (Log::open_on(Arc::clone(disk) as _, Options { on_failure, ..options() }).unwrap(), failures)
}

#[tokio::test]
async fn a_failed_sync_answers_no_append() {
    let disk = SimDisk::new();
    let (log, failures) = open_observed(&disk);
    append_singly(&log, records(1, 0..3)).await;
    disk.fail_next_sync();
    let error = append(&log, records(1, 3..4)).await.unwrap().unwrap_err().to_string();
    let expected = "cannot sync `log/00000000000000000000.log`";
    assert_eq!(error, format!("the log has stopped: {expected}: the disk reports an error"));
    // The disk works again, but what it has kept is unknown.
    let later = log.append_records(records(1, 4..5), Box::new(|_| panic!("not written"))).unwrap_err();
    assert_eq!(later.to_string(), error);
    assert_eq!(log.store_vote(Vote::new(9, ME)).await.unwrap_err().to_string(), error);
    assert_eq!(log.truncate_from(1).await.unwrap_err().to_string(), error);
    assert_eq!(log.purge_upto(id(1, 1)).await.unwrap_err().to_string(), error);
    assert_eq!(*failures.lock().unwrap(), [expected], "reported once");
    drop(log);
    disk.cut_power(&mut Luck::new(2));
    let log = open(&disk);
    assert_eq!(ids(&log).await[..3], [id(1, 0), id(1, 1), id(1, 2)]);
    assert_eq!(log.shared.view().vote, None);
    assert_eq!(log.shared.view().purged, None);
}

#[tokio::test]
async fn every_waiting_append_gets_the_error() {
    let disk = SimDisk::new();
    let (log, failures) = open_observed(&disk);
    append_singly(&log, records(1, 0..1)).await;
    disk.hold_syncs();
    let first = append(&log, records(1, 1..2));
    disk.wait_for_held_sync();
    let waiting: Vec<_> = (2..5).map(|index| append(&log, records(1, index..index + 1))).collect();
    disk.fail_next_sync();
    disk.continue_syncs();
    for answer in [first].into_iter().chain(waiting) {
        answer.await.unwrap().unwrap_err();
    }
    assert_eq!(failures.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn a_vote_whose_sync_failed_is_not_answered() {
    let disk = SimDisk::new();
    let (log, failures) = open_observed(&disk);
    disk.fail_next_sync();
    let error = log.store_vote(Vote::new(9, ME)).await.unwrap_err().to_string();
    assert_eq!(error, "the log has stopped: cannot sync `log/state`: the disk reports an error");
    assert_eq!(*failures.lock().unwrap(), ["cannot sync `log/state`"]);
    assert_eq!(log.shared.view().vote, None);
}

/// Entries of a leader with a higher term, which were never committed, may be in the place of the snapshot.
#[tokio::test]
async fn a_snapshot_replaces_uncommitted_entries_of_any_term() {
    // The snapshot ends beyond the log, in the middle of it, and at its end; with the power cut after each operation.
    for upto in [id(2, 40), id(2, 20), id(2, 39)] {
        for operations in 0..16 {
            let disk = SimDisk::new();
            let log = open(&disk);
            append_singly(&log, records(3, 0..40)).await;
            disk.stop_after(operations);
            let purged = log.purge_upto(upto).await;
            drop(log);
            disk.cut_power(&mut Luck::new(operations as u64));
            disk.switch_on();
            let log = open(&disk);
            if log.reader().purged().is_none() {
                assert!(purged.is_err(), "an acknowledged purge is lost");
                continue;
            }
            assert_eq!((log.reader().purged(), log.reader().last()), (Some(upto), Some(upto)));
            assert_eq!(ids(&log).await, []);
            append_singly(&log, records(4, upto.index + 1..upto.index + 3)).await;
            drop(log);
            assert_eq!(ids(&open(&disk)).await, [id(4, upto.index + 1), id(4, upto.index + 2)]);
        }
    }
    // The log contains the last entry of the snapshot: those after it stay.
    let log = open(&SimDisk::new());
    append_singly(&log, records(3, 0..40)).await;
    log.purge_upto(id(3, 20)).await.unwrap();
    assert_eq!(log.reader().last(), Some(id(3, 39)));
    assert_eq!(ids(&log).await.first(), Some(&id(3, 21)));
}

/// A snapshot that was installed without openraft replaces the log if the log contradicts it.
#[tokio::test]
async fn a_log_without_the_applied_entry_is_replaced() {
    for (applied, stays) in [(id(3, 20), true), (id(2, 20), false), (id(3, 50), false), (id(3, 39), true)] {
        let log = open(&SimDisk::new());
        append_singly(&log, records(3, 0..40)).await;
        log.adopt(applied).await.unwrap();
        assert_eq!(log.reader().purged(), (!stays).then_some(applied), "{applied}");
        assert_eq!(ids(&log).await.len(), if stays { 40 } else { 0 });
    }
}

#[tokio::test]
async fn whole_segments_can_be_purged() {
    let log = open(&SimDisk::new());
    append_singly(&log, records(1, 0..40)).await;
    assert_eq!(log.reader().purgeable(10 * SEGMENT_BYTES), None);
    let upto = log.reader().purgeable(SEGMENT_BYTES).unwrap();
    log.purge_upto(id(1, upto)).await.unwrap();
    assert_eq!(log.reader().purgeable(SEGMENT_BYTES), None);
    assert!(ids(&log).await.len() >= 12, "the newest segment stays");
}
