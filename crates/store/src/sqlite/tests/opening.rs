//! Checks and guarantees when a file is opened.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::{fs, slice};

use model::record::Lease;
use model::{Duration, ShardId};
use rusqlite::Connection;

use super::*;
use crate::StoreError;
use crate::sqlite::{file, schema};
use crate::{Housekeeping as _, Leases as _, Reads as _};

fn refused(path: &Path) -> StoreError {
    SqliteStore::open(path, Options { ballast_bytes: 0, ..Options::default() }).unwrap_err()
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

/// F7 of the fault model, H2.
#[tokio::test]
async fn only_the_owner_can_read_the_files() {
    let subject = OnDisk::new();
    subject.store().check().await.unwrap();
    let path = subject.path();
    assert_eq!(mode(path.parent().unwrap()), 0o700);
    for entry in fs::read_dir(path.parent().unwrap()).unwrap() {
        let path = entry.unwrap().path();
        assert_eq!(mode(&path), 0o600, "{}", path.display());
    }
}

/// A command that root runs must not lock out the server, which runs as another user.
#[tokio::test]
async fn files_beside_a_database_belong_to_its_owner() {
    const OWNER: u32 = 4_321;
    let mut subject = OnDisk::new();
    subject.close();
    let beside = |suffix| file::sibling_path(&subject.path(), suffix);
    if std::os::unix::fs::chown(subject.path(), Some(OWNER), Some(OWNER)).is_err() {
        println!("skipped: only root gives files away");
        return;
    }
    let files = [".lock", ".position", ".ballast"].map(beside);
    for path in &files[..2] {
        fs::remove_file(path).unwrap();
    }
    let options = Options { ballast_bytes: 1 << 16, ..subject.options() };
    drop(SqliteStore::open(subject.path(), options).unwrap());
    for path in &files {
        let meta = fs::metadata(path).unwrap();
        assert_eq!((meta.uid(), meta.gid(), mode(path)), (OWNER, OWNER, 0o600), "{}", path.display());
    }
}

#[tokio::test]
async fn a_second_store_on_the_same_file_is_refused_until_the_first_is_closed() {
    let mut subject = OnDisk::new();
    assert!(matches!(refused(&subject.path()), StoreError::InUse { .. }));
    subject.close();
    subject.open();
}

#[tokio::test]
async fn a_start_voids_the_leases_of_an_ended_process() {
    let mut subject = OnDisk::new();
    let shard = ShardId(5);
    let old = subject.store().acquire(&[shard], "a", Duration::from_hours(1)).await.unwrap();
    subject.close();
    subject.open();
    let fenced = subject.store().renew(&old, Duration::from_hours(1)).await;
    assert!(matches!(fenced, Err(StoreError::Fenced { .. })), "{fenced:?}");
    let new = subject.store().acquire(slice::from_ref(&shard), "a", Duration::from_hours(1)).await.unwrap();
    assert!(matches!(new[..], [Lease { epoch, .. }] if epoch > old[0].epoch));
}

#[tokio::test]
async fn a_store_keeps_the_number_of_its_shards() {
    let mut subject = OnDisk::new();
    subject.close();
    let options = Options { shards: 64, ..subject.options() };
    let store = SqliteStore::open(subject.path(), options).unwrap();
    assert_eq!(store.shards(), 16);
}

#[tokio::test]
async fn a_file_of_a_newer_version_is_refused_and_left_as_it_is() {
    let mut subject = OnDisk::new();
    subject.close();
    let raw = Connection::open(subject.path()).unwrap();
    raw.execute_batch("PRAGMA user_version = 999").unwrap();
    drop(raw);
    let before = fs::read(subject.path()).unwrap();
    let error = refused(&subject.path());
    assert!(matches!(error, StoreError::TooNew { found: 999, known: schema::VERSION }), "{error:?}");
    assert!(fs::read(subject.path()).unwrap() == before);
}

#[tokio::test]
async fn a_database_of_another_program_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.db");
    Connection::open(&path).unwrap().execute_batch("CREATE TABLE theirs (x)").unwrap();
    assert!(refused(&path).to_string().contains("another program"));
}

/// F9.
#[tokio::test]
async fn a_file_that_is_no_database_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.db");
    fs::write(&path, "not a database ".repeat(1_000)).unwrap();
    assert!(matches!(refused(&path), StoreError::Fatal { .. }));
}

/// F9. It is never opened with fewer rows.
#[tokio::test]
async fn a_truncated_file_is_refused() {
    let mut subject = OnDisk::new();
    subject.close();
    let length = fs::metadata(subject.path()).unwrap().len();
    let file = fs::OpenOptions::new().write(true).open(subject.path()).unwrap();
    file.set_len(length - 4_096 * 3).unwrap();
    let error = refused(&subject.path());
    assert!(matches!(&error, StoreError::Fatal { .. }), "{error}");
}

/// D7. Verified on the writing connection; the store itself syncs commits.
#[tokio::test]
async fn sqlite_syncs_all_wal_writes_except_commits() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.db");
    file::create(&path).unwrap();
    let connection = file::open_writer(&path).unwrap();
    let pragma = |name: &str| -> String {
        connection
            .query_row(&format!("PRAGMA {name}"), [], |row| row.get::<_, rusqlite::types::Value>(0))
            .map(|value| format!("{value:?}"))
            .unwrap()
    };
    assert_eq!(pragma("synchronous"), "Integer(1)");
    assert_eq!(pragma("journal_mode"), "Text(\"wal\")");
    assert_eq!(pragma("wal_autocheckpoint"), "Integer(0)");
    assert_eq!(pragma("foreign_keys"), "Integer(0)");
}

#[tokio::test]
async fn a_query_that_takes_too_long_is_ended() {
    let mut subject = OnDisk::new();
    subject.close();
    let mut raw = Connection::open(subject.path()).unwrap();
    let fill = raw.transaction().unwrap();
    for n in 0..5_000u128 {
        fill.execute(
            "INSERT INTO jobs (id, status, namespace, queue, name, state, history, head)
             VALUES (?1, 1, 'n', 'q', 'j', x'', x'', x'')",
            [n.to_be_bytes()],
        )
        .unwrap();
    }
    fill.commit().unwrap();
    drop(raw);
    let options = Options { query_limit: Duration::ZERO, ..subject.options() };
    let store = SqliteStore::open(subject.path(), options).unwrap();
    let filter = crate::query::JobFilter { owner: Some("nobody".into()), ..Default::default() };
    let page = crate::query::Page { after: None, limit: 1 };
    let result = store.jobs(&filter, page).await;
    assert!(matches!(result, Err(StoreError::TooSlow { .. })), "{result:?}");
    store.check().await.unwrap();
}
