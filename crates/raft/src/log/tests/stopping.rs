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
