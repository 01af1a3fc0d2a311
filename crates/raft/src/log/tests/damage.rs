//! A torn tail is removed; damage of durable bytes, and missing files, are reported.

use super::*;
use crate::log::open_session;

const FIRST: &str = "00000000000000000000.log";
/// Offset of the first record in a segment.
const START: usize = 128;

/// Returns a disk with a log of three segments, whose 40 entries were synced singly.
async fn filled() -> Arc<SimDisk> {
    let disk = SimDisk::new();
    let log = open(&disk);
    append_singly(&log, records(1, 0..40)).await;
    drop(log);
    disk
}

/// Returns a disk with a log of one segment and some entries that were synced singly.
async fn small(entries: u64) -> Arc<SimDisk> {
    let disk = SimDisk::new();
    let log = open(&disk);
    append_singly(&log, records(1, 0..entries)).await;
    drop(log);
    disk
}

#[track_caller]
fn assert_refused(disk: &Arc<SimDisk>, expected: &str) {
    let error = try_open(disk).expect_err("the log was opened");
    assert_eq!(error.to_string(), expected);
    assert!(error.help().contains("join again with an empty folder"), "{}", error.help());
}

#[tokio::test]
async fn a_torn_tail_is_cut() {
    let disk = small(3).await;
    let last = START + 2 * 64;
    let whole = disk.contents(FIRST);
    for kept in 0..64 {
        let disk = disk.copy();
        disk.damage(FIRST, |bytes| bytes[last + kept..last + 64].fill(0));
        // The payload ends with zeros.
        let is_torn = disk.contents(FIRST) != whole;
        let log = open(&disk);
        assert_eq!(all(&log).await, records(1, 0..if is_torn { 2 } else { 3 }), "{kept} bytes were kept");
        if is_torn {
            append(&log, records(2, 2..4)).await.unwrap().unwrap();
            drop(log);
            assert_eq!(ids(&open(&disk)).await, [id(1, 0), id(1, 1), id(2, 2), id(2, 3)]);
        }
    }
}

/// The power goes while two entries are written at once, and only the second one reaches the disk.
#[tokio::test]
async fn a_record_after_a_torn_one_does_not_come_back() {
    let disk = small(2).await;
    let log = open(&disk);
    append(&log, records(1, 2..4)).await.unwrap().unwrap();
    drop(log);
    disk.damage(FIRST, |bytes| bytes[START + 2 * 64..START + 3 * 64].fill(0));
    let log = open(&disk);
    assert_eq!(all(&log).await, records(1, 0..2));
    append(&log, records(1, 2..3)).await.unwrap().unwrap();
    drop(log);
    assert_eq!(all(&open(&disk)).await, records(1, 0..3));
}

#[tokio::test]
async fn damage_in_the_middle_refuses_the_log_by_name() {
    let disk = small(4).await;
    for byte in START + 64..START + 2 * 64 {
        let disk = disk.copy();
        disk.damage(FIRST, |bytes| bytes[byte] ^= 0x10);
        let expected = format!(
            "the log is damaged: `log/{FIRST}` at offset {}: entry 1 is not valid, but later ones are",
            START + 64
        );
        assert_refused(&disk, &expected);
    }
}

#[tokio::test]
async fn a_damaged_header_refuses_the_log() {
    let disk = filled().await;
    for name in [FIRST, "00000000000000000028.log"] {
        // The format is read before the checksum.
        for byte in (0..8).chain(10..START) {
            let disk = disk.copy();
            disk.damage(name, |bytes| bytes[byte] ^= 0x10);
            let first = name.trim_end_matches(".log").trim_start_matches('0').parse().unwrap_or(0);
            let problem = format!("expected the header of the segment that begins with entry {first}");
            assert_refused(&disk, &format!("the log is damaged: `log/{name}` at offset 0: {problem}"));
        }
    }
    disk.damage(FIRST, |bytes| bytes[8] = 2);
    assert!(matches!(try_open(&disk), Err(OpenError::TooNew { found: 2, known: 1, .. })));
}

/// Earlier segments are not read at the start, because every read verifies what it returns.
#[tokio::test]
async fn damage_of_an_earlier_segment_is_reported_by_the_read() {
    let disk = filled().await;
    let name = "00000000000000000014.log";
    for (byte, damaged) in [(START + 3 * 64 + 50, 17), (START + 13 * 64, 27), (START + 40, 14)] {
        let disk = disk.copy();
        disk.damage(name, |bytes| bytes[byte] ^= 1);
        let log = open(&disk);
        assert_eq!(log.reader().read(28..40, usize::MAX).await.unwrap(), records(1, 28..40));
        let error = log.reader().read(0..40, usize::MAX).await.unwrap_err().to_string();
        assert!(error.starts_with(&format!("entry {damaged} in `log/{name}` at offset ")), "{error}");
        assert!(error.ends_with(" is damaged"), "{error}");
    }
}

#[tokio::test]
async fn missing_segments_are_reported() {
    let disk = filled().await;
    for (name, from, to) in [(FIRST, 0, 13), ("00000000000000000014.log", 0, 27)] {
        let disk = disk.copy();
        disk.lose(name);
        let problem = format!("entries from {from} to {to} are in no file");
        assert_refused(&disk, &format!("the log `log/` has lost entries: {problem}"));
    }
}

/// The hint shows the loss of entries at the end.
#[tokio::test]
async fn a_log_that_ends_before_a_committed_entry_is_refused() {
    let disk = filled().await;
    let log = open(&disk);
    log.store_committed(Some(id(1, 35)));
    log.truncate_from(38).await.unwrap();
    drop(log);
    drop(open(&disk));
    disk.lose("00000000000000000028.log");
    let problem = format!("entry {} was committed, but its last entry is {}", id(1, 35), id(1, 27));
    assert_refused(&disk, &format!("the log `log/` has lost entries: {problem}"));
}

#[tokio::test]
async fn a_log_without_its_vote_is_refused() {
    let disk = filled().await;
    disk.lose("state");
    assert_refused(&disk, "the log `log/` is missing or empty, but this server had one");
    let empty = SimDisk::new();
    let existing = Options { start: Start::Existing, ..options() };
    assert!(matches!(Log::open_on(empty as _, existing), Err(OpenError::Missing { .. })));
}

/// A restored or copied folder.
#[tokio::test]
async fn a_log_of_another_cluster_is_refused() {
    let disk = filled().await;
    let error = Log::open_on(Arc::clone(&disk) as _, Options { cluster: 6, ..options() }).unwrap_err();
    assert_eq!(
        error.to_string(),
        "`log/state` belongs to cluster `00000000000000000000000000000005`, \
         but this server is in cluster `00000000000000000000000000000006`"
    );
}

/// A user can put any bytes into a job, also a record of another log.
#[tokio::test]
async fn bytes_of_a_record_in_a_payload_are_no_record() {
    let disk = small(1).await;
    let stolen = disk.contents(FIRST);
    let log = open(&disk);
    let payload: Vec<u8> = stolen[START..START + 64].repeat(4);
    append(&log, vec![Record { payload: Arc::from(payload), ..record(1, 1) }]).await.unwrap().unwrap();
    drop(log);
    // The tail is torn within its first bytes.
    disk.damage(FIRST, |bytes| bytes[START + 64..START + 72].fill(0));
    assert_eq!(all(&open(&disk)).await, records(1, 0..1));
}

/// Whatever byte has changed: the log is refused, or a read fails, or all entries are as they were written. Only the last
/// entry may be missing: its damage cannot be told from a torn write.
#[tokio::test]
async fn a_changed_byte_never_changes_an_entry_or_the_vote() {
    let disk = filled().await;
    let vote = Vote::new(7, NodeId(2));
    let log = open(&disk);
    log.store_vote(vote).await.unwrap();
    drop(log);
    let (mut refused, mut unreadable, mut shorter) = (0, 0, 0);
    for name in crate::disk::Disk::names(&*disk).unwrap() {
        for byte in 0..disk.contents(&name).len() {
            let disk = disk.copy();
            disk.damage(&name, |bytes| bytes[byte] ^= 0x41);
            let Ok((_, shared)) = open_session(Arc::clone(&disk) as _, options()) else {
                refused += 1;
                continue;
            };
            assert_eq!(shared.view().vote, Some(vote), "`{name}` at {byte}");
            match shared.read(&(0..u64::MAX), usize::MAX) {
                Ok(found) if found.len() < 40 => {
                    shorter += 1;
                    assert_eq!(found, records(1, 0..39), "`{name}` at {byte}");
                }
                Ok(found) => assert_eq!(found, records(1, 0..40), "`{name}` at {byte}"),
                Err(_) => unreadable += 1,
            }
        }
    }
    assert!(refused > 900, "damage of the headers and of the last segment: {refused}");
    assert_eq!(unreadable, 14 * 64 * 2, "each byte of the records in two segments");
    assert_eq!(shorter, 64, "each byte of the last record");
}
