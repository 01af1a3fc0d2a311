//! Lost commits are detected, whatever the cause; a torn end of the WAL does not count as a loss.
//!
//! `killed_after` returns the files of a store that was killed after some commits. A test changes these files
//! as a failure or an operator would (an older database, a missing or damaged WAL, an outdated position file)
//! and opens them. Each is either accepted with all its commits, or refused without a change to the files.
//!
//! The last part covers the ways around a refusal: copies of damaged WALs, restored backups, and checks and
//! backups of a store that is open.

use std::collections::BTreeMap;
use std::error::Error as _;
use std::fs;
use std::path::Path;

use model::record::Lease;
use model::{Duration, ShardId};

use super::failing_disk::content;
use super::power_cuts::folder;
use super::process::{batch_of, newest_whole_batch_of, open};
use super::*;
use crate::StoreError;
use crate::copy::CopyError;
use crate::sqlite::Source;
use crate::sqlite::check::Snapshot;
use crate::sqlite::{backup, check};
use crate::suite::sample::Sampler;
use crate::{Commits as _, Leases as _};

const JOBS: u64 = 3;
const DATABASE: &str = "x.db";
const LOG: &str = "x.db-wal";
const POSITION: &str = "x.db.position";
/// Length of the header of the WAL and of a frame header.
const HEADS: usize = 32 + 24;

type Files = BTreeMap<String, Vec<u8>>;

async fn commit(store: &SqliteStore, leases: &[Lease], sampler: &mut Sampler, batches: std::ops::Range<u64>) {
    for number in batches {
        store.commit(leases, Arc::new(batch_of(JOBS, number, sampler))).await.unwrap();
    }
}

/// Store with one committed batch, and its files at that moment.
struct Written {
    place: TempDir,
    store: SqliteStore,
    leases: Vec<Lease>,
    sampler: Sampler,
    first: Files,
}

impl Written {
    async fn begin() -> Self {
        let place = folder();
        // The tables are created in an earlier WAL.
        drop(open(place.path()).unwrap());
        let store = open(place.path()).unwrap();
        let all: Vec<_> = (0..16).map(ShardId).collect();
        let leases = store.acquire(&all, "a", Duration::from_hours(1)).await.unwrap();
        let mut sampler = Sampler::new(91);
        commit(&store, &leases, &mut sampler, 0..1).await;
        let first = files_of(place.path());
        Self { place, store, leases, sampler, first }
    }

    async fn commit(&mut self, batches: std::ops::Range<u64>) {
        commit(&self.store, &self.leases, &mut self.sampler, batches).await;
    }
}

/// Returns the files of a store that was killed after this number of batches, and those after the first batch.
async fn killed_after(batches: u64) -> (Files, Files) {
    let mut written = Written::begin().await;
    written.commit(1..batches).await;
    (written.first, files_of(written.place.path()))
}

/// Returns the same after enough batches for a restart of the WAL. The helper thread checkpoints it asynchronously.
async fn killed_after_the_log_began_anew() -> (Files, Files) {
    let mut written = Written::begin().await;
    for number in (1..10_000).step_by(2) {
        let head = |files: &Files| files[LOG][..32].to_vec();
        if head(&files_of(written.place.path())) != head(&written.first) {
            written.commit(number..number + 2).await;
            return (written.first, files_of(written.place.path()));
        }
        written.commit(number..number + 2).await;
    }
    panic!("the WAL never restarted");
}

/// Reads the files, without the WAL index, which is shared memory and does not survive the machine.
fn files_of(folder: &Path) -> Files {
    content(folder).into_iter().filter(|(name, _)| !name.ends_with("-shm")).collect()
}

fn put(files: &Files) -> TempDir {
    let place = folder();
    for (name, bytes) in files {
        fs::write(place.path().join(name), bytes).unwrap();
    }
    place
}

/// Opens a store that is refused, checks that nothing was changed, and returns the error.
fn refusal(files: &Files) -> StoreError {
    let place = put(files);
    let error = open(place.path()).unwrap_err();
    let mut after = files_of(place.path());
    // A read creates an empty WAL.
    after.retain(|name, bytes| name != "x.db.lock" && (!bytes.is_empty() || files.contains_key(name)));
    let before = files.iter().filter(|(name, _)| *name != "x.db.lock");
    assert!(before.eq(after.iter()), "a store that is refused was changed");
    error
}

async fn newest(files: &Files) -> Option<u64> {
    let place = put(files);
    newest_whole_batch_of(JOBS, &open(place.path()).unwrap()).await
}

/// F2, F9. A flipped byte in the middle would end the WAL there, and lose acknowledged commits.
#[tokio::test]
async fn a_wal_with_damage_in_the_middle_is_refused() {
    let (_, files) = killed_after(3).await;
    assert_eq!(newest(&files).await, Some(2));
    let mut damaged = files.clone();
    let log = damaged.get_mut(LOG).unwrap();
    let middle = log.len() / 2;
    log[middle] ^= 1;
    let error = refusal(&damaged);
    let StoreError::LostCommits { reason, .. } = &error else { panic!("{error:?}") };
    assert!(reason.contains("its WAL is damaged at frame"), "{reason}");
    assert!(error.help().contains("belfry store restored"), "{}", error.help());
    let place = put(&damaged);
    let checked = check(&place.path().join(DATABASE)).unwrap();
    assert!(checked.problems[0].starts_with("commits are lost"), "{checked:?}");
    let copied = backup(&place.path().join(DATABASE), &place.path().join("copy.db"));
    assert!(copied.unwrap_err().to_string().contains("cannot be read"));
}

/// F9. A missing WAL, or one with a damaged header, looks like an empty WAL.
#[tokio::test]
async fn a_missing_wal_is_refused() {
    let (_, mut files) = killed_after(3).await;
    let mut headless = files.clone();
    headless.get_mut(LOG).unwrap()[20] ^= 1;
    files.remove(LOG);
    for files in [headless, files] {
        let error = refusal(&files);
        assert!(matches!(error, StoreError::LostCommits { .. }), "{error:?}");
    }
}

/// F9. A copy contains only what the source still has.
#[tokio::test]
async fn a_store_that_lost_commits_is_not_copied() {
    let (_, mut files) = killed_after(3).await;
    files.remove(LOG);
    let error = Source::open(&put(&files).path().join(DATABASE)).unwrap_err();
    assert!(matches!(error, CopyError::Source(StoreError::LostCommits { .. })), "{error:?}");
}

/// F9. It would be a new store with new tokens, next to the objects of the old one.
#[tokio::test]
async fn a_missing_or_empty_database_is_not_created_again() {
    let (_, mut files) = killed_after(2).await;
    files.insert(DATABASE.into(), Vec::new());
    let empty = files.clone();
    files.remove(DATABASE);
    let gone = files.clone();
    files.remove(LOG);
    let only_position = files.clone();
    for files in [empty, gone, only_position] {
        let error = refusal(&files);
        assert!(matches!(error, StoreError::Missing { .. }), "{error:?}");
    }
}

/// F2. After a power cut the position file may be outdated. Transactions after a damaged frame still prove damage if
/// that frame must have been synced long before.
#[tokio::test]
async fn damage_long_before_the_end_is_detected_without_the_position_file() {
    let (_, files) = killed_after(3).await;
    let place = put(&files);
    drop(open(place.path()).unwrap());
    let raw = rusqlite::Connection::open(place.path().join(DATABASE)).unwrap();
    raw.pragma_update(None, "wal_autocheckpoint", 0).unwrap();
    for n in 0..100 {
        raw.execute("UPDATE meta SET checked_at = ?1", [n]).unwrap();
    }
    let mut files = files_of(place.path());
    drop(raw);
    files.remove(POSITION);
    assert_eq!(newest(&files).await, Some(2));
    let mut few = files.clone();
    let (log, page) = (few.get_mut(LOG).unwrap(), 24 + 4_096);
    let (tenth, ninetieth) = (32 + 10 * page, 32 + 90 * page);
    log[ninetieth + 100] ^= 1;
    assert_eq!(newest(&few).await, Some(2), "these may all have been on their way to the disk");
    files.get_mut(LOG).unwrap()[tenth + 100] ^= 1;
    let error = refusal(&files);
    assert!(matches!(error, StoreError::LostCommits { .. }), "{error:?}");
}

/// F2. Unsynced data may be torn anywhere, with complete frames after it.
#[tokio::test]
async fn a_wal_torn_after_the_last_sync_is_accepted() {
    let (first, mut files) = killed_after(3).await;
    files.insert(POSITION.into(), first[POSITION].clone());
    let synced = first[LOG].len();
    files.get_mut(LOG).unwrap()[synced + HEADS] ^= 1;
    assert_eq!(newest(&files).await, Some(0));
    files.insert(POSITION.into(), b"torn".to_vec());
    assert_eq!(newest(&files).await, Some(0));
}

/// D8. Without the declaration by the operator, jobs would be started twice.
#[tokio::test]
async fn an_older_database_is_refused_until_it_is_marked_as_restored() {
    let (first, files) = killed_after(3).await;
    let mut restored = first.clone();
    restored.insert(POSITION.into(), files[POSITION].clone());
    let error = refusal(&restored);
    assert!(matches!(error, StoreError::LostCommits { .. }), "{error:?}");
    let place = put(&restored);
    let options = Options { ballast_bytes: 0, allow_lost_commits: true, ..Options::default() };
    let store = SqliteStore::open(place.path().join(DATABASE), options.clone()).unwrap();
    drop(store);
    assert!(open(place.path()).is_err(), "that it was looked at says nothing");
    let store = SqliteStore::open(place.path().join(DATABASE), options).unwrap();
    store.mark_restored().await.unwrap();
    drop(store);
    let store = open(place.path()).unwrap();
    assert_eq!(newest_whole_batch_of(JOBS, &store).await, Some(0));
    let leases = store.acquire(&[ShardId(0)], "a", Duration::from_hours(1)).await.unwrap();
    assert_eq!(store.shards_with_lost_commits(&leases).await.unwrap(), [ShardId(0)]);
}

/// Operators open a database with SQLite's own tools, which checkpoint its WAL.
#[tokio::test]
async fn a_wal_checkpoint_by_another_program_is_no_loss() {
    let (_, files) = killed_after(8).await;
    let place = put(&files);
    let other = rusqlite::Connection::open(place.path().join(DATABASE)).unwrap();
    other.query_row("SELECT count(*) FROM jobs", [], |row| row.get::<_, u64>(0)).unwrap();
    drop(other);
    assert!(!place.path().join(LOG).exists());
    assert_eq!(newest_whole_batch_of(JOBS, &open(place.path()).unwrap()).await, Some(7));
}

/// H5. One complete snapshot, during commits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_during_commits_is_one_snapshot() {
    let (place, mut sampler) = (folder(), Sampler::new(92));
    let store = open(place.path()).unwrap();
    let leases = store.acquire(&(0..16).map(ShardId).collect::<Vec<_>>(), "a", Duration::from_hours(1)).await;
    let leases = leases.unwrap();
    commit(&store, &leases, &mut sampler, 0..20).await;
    let (from, to) = (place.path().join(DATABASE), place.path().join("copy.db"));
    let copying = tokio::task::spawn_blocking({
        let (from, to) = (from.clone(), to.clone());
        move || backup(&from, &to)
    });
    let mut next = 20;
    while !copying.is_finished() {
        commit(&store, &leases, &mut sampler, next..next + 1).await;
        next += 1;
    }
    let made = copying.await.unwrap().unwrap();
    assert_eq!(made.bytes, fs::metadata(&to).unwrap().len());
    assert!(check(&from).unwrap().is_in_use);
    assert!(backup(&from, &to).unwrap_err().to_string().contains("exists"));
    let elsewhere = folder();
    fs::copy(&to, elsewhere.path().join(DATABASE)).unwrap();
    let found = newest_whole_batch_of(JOBS, &open(elsewhere.path()).unwrap()).await.unwrap();
    assert!((19..next).contains(&found), "{found} of {next}");
    let left = fs::read_dir(place.path()).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(!left.into_iter().any(|name| name.to_string_lossy().contains("partial")));
}

/// F9. A start reads little of the history; a check reads everything.
#[tokio::test]
async fn a_check_finds_all_damaged_rows_and_pages() {
    let (_, files) = killed_after(40).await;
    let place = put(&files);
    drop(open(place.path()).unwrap());
    let database = place.path().join(DATABASE);
    let sound = check(&database).unwrap();
    assert!(sound.problems.is_empty() && sound.rows > 100 && !sound.is_in_use, "{sound:?}");
    let raw = rusqlite::Connection::open(&database).unwrap();
    raw.execute_batch(
        "UPDATE jobs_ended SET state = zeroblob(9) WHERE id = (SELECT min(id) FROM jobs_ended)",
    )
    .unwrap();
    drop(raw);
    let damaged = check(&database).unwrap();
    assert!(
        matches!(&damaged.problems[..], [one] if one.starts_with("table `jobs_ended`, row `")),
        "{damaged:?}"
    );
    let mut bytes = fs::read(&database).unwrap();
    // The last page may be free, and the content of a free page has no meaning.
    for page in bytes.rchunks_mut(4_096).take(4) {
        page[..200].fill(0xff);
    }
    fs::write(&database, bytes).unwrap();
    let worse = check(&database).unwrap();
    assert!(worse.problems.iter().any(|problem| problem.starts_with("database file")), "{worse:?}");
}

fn accepting() -> Options {
    Options { ballast_bytes: 0, allow_lost_commits: true, ..Options::default() }
}

fn with_damaged_log(mut files: Files) -> Files {
    let log = files.get_mut(LOG).unwrap();
    let middle = log.len() / 2;
    log[middle] ^= 1;
    files
}

/// F9. It may be the only copy of its data.
#[tokio::test]
async fn the_copy_of_a_damaged_wal_is_never_overwritten() {
    let damaged = with_damaged_log(killed_after(3).await.1);
    let place = put(&damaged);
    let accept = || drop(SqliteStore::open(place.path().join(DATABASE), accepting()).unwrap());
    for _ in 0..2 {
        accept();
        let copies = files_of(place.path()).into_iter().filter(|(name, _)| name.contains("damaged"));
        let expected = [("x.db-wal.damaged".to_owned(), damaged[LOG].clone())];
        assert!(copies.eq(expected), "there is one, of all of the log");
    }
    fs::write(place.path().join(LOG), &damaged[LOG]).unwrap();
    accept();
    assert!(!place.path().join("x.db-wal.damaged.2").exists(), "there is a copy of this one");
    fs::write(place.path().join(LOG), b"another").unwrap();
    accept();
    assert!(fs::read(place.path().join("x.db-wal.damaged")).unwrap() == damaged[LOG]);
    assert_eq!(fs::read(place.path().join("x.db-wal.damaged.2")).unwrap(), b"another");
}

/// F9. SQLite would overwrite the rest of it.
#[tokio::test]
async fn a_damaged_wal_that_cannot_be_copied_is_not_changed() {
    let damaged = with_damaged_log(killed_after(3).await.1);
    // No file system accepts names longer than 255 bytes: only the name of the copy is too long.
    let database = "x".repeat(245);
    let place = folder();
    for (name, bytes) in &damaged {
        fs::write(place.path().join(name.replace(DATABASE, &database)), bytes).unwrap();
    }
    let error = SqliteStore::open(place.path().join(&database), accepting()).unwrap_err();
    assert!(matches!(error, StoreError::Unavailable { .. }), "{error:?}");
    assert!(fs::read(place.path().join(database + "-wal")).unwrap() == damaged[LOG]);
}

/// F9. A WAL contains the pages that changed since it started; the others are only in the database to which it belongs.
#[tokio::test]
async fn an_older_database_with_a_newer_wal_is_refused() {
    let (first, files) = killed_after_the_log_began_anew().await;
    let mut mixed = files.clone();
    mixed.insert(DATABASE.into(), first[DATABASE].clone());
    let error = refusal(&mixed);
    let StoreError::LostCommits { reason, .. } = &error else { panic!("{error:?}") };
    assert!(reason.contains("does not belong to it"), "{reason}");
    let place = put(&mixed);
    let checked = check(&place.path().join(DATABASE)).unwrap();
    assert!(checked.problems[0].contains("does not belong to it"), "{checked:?}");
    let store = SqliteStore::open(place.path().join(DATABASE), accepting()).unwrap();
    store.mark_restored().await.unwrap();
    drop(store);
    let store = open(place.path()).unwrap();
    assert_eq!(newest_whole_batch_of(JOBS, &store).await, None, "the database alone");
    drop(store);
    assert_eq!(check(&place.path().join(DATABASE)).unwrap().problems, Vec::<String>::new());
    assert!(fs::read(place.path().join("x.db-wal.damaged")).unwrap() == files[LOG]);
}

/// F9. A backup may consist of files whose WAL has almost all data, next to the position file of the newer store.
#[tokio::test]
async fn a_restored_copy_keeps_the_data_of_its_own_wal() {
    let (first, files) = killed_after_the_log_began_anew().await;
    let mut restored = first;
    restored.insert(POSITION.into(), files[POSITION].clone());
    let error = refusal(&restored);
    let StoreError::LostCommits { reason, .. } = &error else { panic!("{error:?}") };
    assert!(reason.contains("it ends before event"), "{reason}");
    let place = put(&restored);
    let store = SqliteStore::open(place.path().join(DATABASE), accepting()).unwrap();
    assert_eq!(newest_whole_batch_of(JOBS, &store).await, Some(0));
}

/// A WAL with all changes since a copy of the database completes the copy.
#[tokio::test]
async fn a_database_that_its_wal_completes_is_no_loss() {
    let (first, mut files) = killed_after(3).await;
    assert_eq!(first[LOG][..32], files[LOG][..32], "it is the same log");
    files.insert(DATABASE.into(), first[DATABASE].clone());
    assert_eq!(newest(&files).await, Some(2));
}

/// F9. A store that cannot be checked is not changed either, as a migration would do.
#[tokio::test]
async fn a_store_whose_position_cannot_be_read_is_refused_unchanged() {
    let (_, mut files) = killed_after(3).await;
    files.remove(POSITION);
    let place = put(&files);
    fs::create_dir(place.path().join(POSITION)).unwrap();
    let error = open(place.path()).unwrap_err();
    assert!(matches!(error, StoreError::Unavailable { .. }), "{error:?}");
    assert!(fs::read(place.path().join(LOG)).unwrap() == files[LOG]);
}

/// F9. Also a store without a position file, if a table cannot be read.
#[tokio::test]
async fn a_damaged_store_is_refused_before_it_is_migrated() {
    let place = folder();
    let database = place.path().join(DATABASE);
    let raw = rusqlite::Connection::open(&database).unwrap();
    raw.execute_batch(include_str!("version_1.sql")).unwrap();
    raw.close().unwrap();
    damage_table(&database, "meta");
    fs::write(place.path().join(POSITION), &killed_after(1).await.1[POSITION]).unwrap();
    let before = fs::read(&database).unwrap();
    let error = open(place.path()).unwrap_err();
    assert!(matches!(error, StoreError::Fatal { .. }), "{error:?}");
    assert!(fs::read(&database).unwrap() == before, "a store that is refused was changed");
}

/// Overwrites the first page of a table.
fn damage_table(database: &Path, table: &str) {
    let raw = rusqlite::Connection::open(database).unwrap();
    let sql = "SELECT rootpage FROM sqlite_schema WHERE name = ?1";
    let page: usize = raw.query_row(sql, [table], |row| row.get(0)).unwrap();
    raw.close().unwrap();
    let mut bytes = fs::read(database).unwrap();
    bytes[(page - 1) * 4_096..page * 4_096].fill(0xff);
    fs::write(database, bytes).unwrap();
}

/// F9. Also if the rest cannot be read.
#[tokio::test]
async fn a_check_reports_the_problems_found_before_it_failed() {
    let (_, files) = killed_after(3).await;
    let place = put(&files);
    drop(open(place.path()).unwrap());
    damage_table(&place.path().join(DATABASE), "quarantine");
    let checked = check(&place.path().join(DATABASE)).unwrap();
    assert!(checked.problems[0].starts_with("database file"), "{checked:?}");
    assert!(checked.problems.last().unwrap().starts_with("the check ended early"), "{checked:?}");
}

/// H5. A check reads a large store for minutes.
#[tokio::test]
async fn a_stopped_store_can_be_opened_while_it_is_checked() {
    let place = put(&killed_after(3).await.1);
    let database = place.path().join(DATABASE);
    drop(open(place.path()).unwrap());
    let snapshot = Snapshot::take(&database).unwrap();
    let store = open(place.path()).unwrap();
    assert_eq!(newest_whole_batch_of(JOBS, &store).await, Some(2));
    let leases = store.acquire(&(0..16).map(ShardId).collect::<Vec<_>>(), "a", Duration::from_hours(1)).await;
    commit(&store, &leases.unwrap(), &mut Sampler::new(93), 3..40).await;
    drop((store, snapshot));
    // Its WAL existed when it was opened, and another process had started it.
    assert_eq!(newest_whole_batch_of(JOBS, &open(place.path()).unwrap()).await, Some(39));
}

/// The same with the WAL of a killed process.
#[tokio::test]
async fn a_store_can_be_opened_during_a_read() {
    let place = put(&killed_after(3).await.1);
    let reader = crate::sqlite::file::open_reader(&place.path().join(DATABASE)).unwrap();
    reader.execute_batch("BEGIN; SELECT count(*) FROM jobs;").unwrap();
    assert_eq!(newest_whole_batch_of(JOBS, &open(place.path()).unwrap()).await, Some(2));
}

/// H5.
#[tokio::test]
async fn a_backup_replaces_the_partial_file_of_an_interrupted_one() {
    let place = put(&killed_after(3).await.1);
    let (from, to) = (place.path().join(DATABASE), place.path().join("copy.db"));
    for name in ["copy.db.partial", "copy.db.partial-journal"] {
        fs::write(place.path().join(name), "half of it ".repeat(1_000)).unwrap();
    }
    let other = fs::File::open(place.path().join("copy.db.partial")).unwrap();
    other.lock().unwrap();
    let refused = backup(&from, &to).unwrap_err();
    assert!(refused.source().unwrap().to_string().contains("another backup"), "{refused:?}");
    other.unlock().unwrap();
    backup(&from, &to).unwrap();
    assert_eq!(check(&to).unwrap().problems, Vec::<String>::new());
    let left = files_of(place.path()).into_keys().filter(|name| name.contains("partial"));
    assert_eq!(left.collect::<Vec<_>>(), Vec::<String>::new());
}

/// I10. Workers may still run what was started after the first restore.
#[tokio::test]
async fn restoring_a_backup_twice_issues_no_epoch_twice() {
    let (first, files) = killed_after(3).await;
    let mut epochs = Vec::new();
    let mut position = files[POSITION].clone();
    for _ in 0..3 {
        let mut restored = first.clone();
        restored.insert(POSITION.into(), position);
        let place = put(&restored);
        let store = SqliteStore::open(place.path().join(DATABASE), accepting()).unwrap();
        store.mark_restored().await.unwrap();
        epochs.extend(store.acquire(&[ShardId(0)], "a", Duration::from_hours(1)).await.unwrap());
        drop(store);
        position = fs::read(place.path().join(POSITION)).unwrap();
    }
    assert!(epochs.is_sorted_by(|before, after| before.epoch < after.epoch), "{epochs:?}");
}
