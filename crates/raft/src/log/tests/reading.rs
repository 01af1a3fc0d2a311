//! Reads from memory and from the files.

use super::*;

/// Opens a log that keeps `records` records in memory.
fn open_with_cache(disk: &Arc<SimDisk>, records: usize) -> Log {
    Log::open_on(Arc::clone(disk) as _, Options { cache_bytes: records * 64, ..options() }).unwrap()
}

#[tokio::test]
async fn every_range_is_read_from_memory_and_files() {
    for cached in [0, 1, 10, 100] {
        let disk = SimDisk::new();
        let log = open_with_cache(&disk, cached);
        log.purge_upto(id(1, 4)).await.unwrap();
        append(&log, records(1, 5..40)).await.unwrap().unwrap();
        for start in 0..42 {
            for end in start..42 {
                let found = log.reader().read(start..end, usize::MAX).await.unwrap();
                assert_eq!(
                    found,
                    records(1, start.clamp(5, 40)..end.clamp(5, 40)),
                    "{cached} {start}..{end}"
                );
            }
        }
    }
}

#[tokio::test]
async fn a_limited_read_returns_at_least_one_entry() {
    for cached in [0, 10, 100] {
        let disk = SimDisk::new();
        let log = open_with_cache(&disk, cached);
        append(&log, records(1, 0..40)).await.unwrap().unwrap();
        for (bytes_max, count) in [(0, 0), (1, 1), (64, 1), (65, 2), (640, 10), (usize::MAX, 20)] {
            for start in 0..20 {
                let found = log.reader().read(start..start + 20, bytes_max).await.unwrap();
                assert_eq!(found, records(1, start..start + count), "{cached} {start} {bytes_max}");
            }
        }
    }
}

#[tokio::test]
async fn blank_entries_and_memberships_are_read_back() {
    use openraft::storage::RaftLogStorageExt;
    use openraft::{Entry, EntryPayload};

    let disk = SimDisk::new();
    let mut log = open(&disk);
    let peer = Peer { address: "a:7733".to_owned(), fingerprint: [1; 32], name: "a".to_owned() };
    let membership =
        openraft::Membership::new(vec![[ME].into()], std::collections::BTreeMap::from([(ME, peer)]));
    let group = crate::types::Payload::from(Arc::from(&b"group"[..]));
    let payloads = [EntryPayload::Blank, EntryPayload::Membership(membership), EntryPayload::Normal(group)];
    let entries = (0..).zip(payloads).map(|(index, payload)| Entry { log_id: id(1, index), payload });
    let entries: Vec<Entry<TestTypes>> = entries.collect();
    RaftLogStorageExt::<TestTypes>::blocking_append(&mut log, entries.clone()).await.unwrap();
    drop(log);
    let mut log = open(&disk);
    let found = RaftLogReader::<TestTypes>::limited_get_log_entries(&mut log, 0, 3).await.unwrap();
    assert_eq!(format!("{found:?}"), format!("{entries:?}"));
}

/// A follower's log is truncated and filled again while a reader goes through it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_never_takes_a_removal_for_damage() {
    let disk = SimDisk::new();
    let log = open_with_cache(&disk, 0);
    append(&log, records(1, 0..40)).await.unwrap().unwrap();
    let reader = log.reader();
    let (stop, mut stopped) = oneshot::channel::<()>();
    let reads = tokio::spawn(async move {
        let mut count = 0;
        while stopped.try_recv() == Err(oneshot::error::TryRecvError::Empty) {
            let found = reader.read(0..100, usize::MAX).await.unwrap();
            assert!(found.windows(2).all(|pair| pair[0].id.index + 1 == pair[1].id.index));
            count += 1;
        }
        count
    });
    for term in 2..100 {
        let from = (term * 7) % 40;
        log.truncate_from(from).await.unwrap();
        append(&log, records(term, from..45)).await.unwrap().unwrap();
    }
    log.purge_upto(id(99, 44)).await.unwrap();
    stop.send(()).unwrap();
    assert!(reads.await.unwrap() > 0);
}

#[tokio::test]
async fn a_replication_whose_first_entry_was_purged_reads_nothing() {
    let log = open(&SimDisk::new());
    append_singly(&log, records(1, 0..20)).await;
    log.purge_upto(id(1, 9)).await.unwrap();
    let mut reader = log.reader();
    for (start, expected) in [(5, 0), (9, 0), (10, 10)] {
        let entries =
            RaftLogReader::<TestTypes>::limited_get_log_entries(&mut reader, start, 20).await.unwrap();
        assert_eq!(entries.len(), expected, "from {start}");
    }
}
