//! A store with rows of all types is copied, with any interruptions.
//!
//! [`Scene`] has a closed SQLite store with rows of every type and an empty PostgreSQL database. Tests copy
//! all of it, or kill a copy after some chunks and continue; `assert_same` then compares the two stores.
//! `answers` compares all queries, `back` copies in the other direction, `filling` writes the rows.
//!
//! The list of tables and columns is read from both schemas, so a new table or column that is not copied
//! fails a test. A chunk has only a few rows here, so that an interruption can fall between any two of them.

mod answers;
mod back;
mod filling;

use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;

use model::record::{Batch, Change};
use model::{Duration, ServerId, ShardId, Timestamp};
use tempfile::TempDir;

use self::answers::answers;
use self::filling::fill;
use super::{CopyError, Digest, Options, Phase, Progress, Report, TABLES, copy};
use crate::StoreError;
use crate::changelog::Changelog;
use crate::cluster::ServerRecord;
use crate::postgres::{self, PostgresStore};
use crate::sqlite::{self, SqliteStore};
use crate::suite::cluster::{Cluster, Database};
use crate::suite::sample::Sampler;
use crate::{Commits as _, Housekeeping as _, Leases as _, Members as _, Reads as _};

const HOUR: Duration = Duration::from_hours(1);
/// Not the default number of shards.
const SHARDS: [ShardId; 5] = [ShardId(0), ShardId(1), ShardId(2), ShardId(3), ShardId(4)];

/// Closed store, and an empty database.
struct Scene {
    folder: TempDir,
    database: Arc<Database>,
}

impl Scene {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), database: Arc::new(Cluster::shared().database()) }
    }

    async fn filled() -> Self {
        let scene = Self::new();
        fill(scene.source()).await;
        scene.set_aside_a_worker().await;
        scene.damage();
        scene
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("belfry.db")
    }

    fn source(&self) -> SqliteStore {
        let options = sqlite::Options { shards: 5, ballast_bytes: 0, ..Default::default() };
        SqliteStore::open(self.path(), options).unwrap()
    }

    async fn target(&self) -> Result<PostgresStore, StoreError> {
        PostgresStore::open(&self.database.url(), target_options()).await
    }

    /// Adds a row that cannot be decoded, and that a query has found.
    async fn set_aside_a_worker(&self) {
        let connection = rusqlite::Connection::open(self.path()).unwrap();
        let change = "UPDATE workers SET record = x'00' WHERE id = (SELECT min(id) FROM workers)";
        assert_eq!(connection.execute(change, []), Ok(1));
        drop(connection);
        let store = self.source();
        assert_eq!(store.workers().await.unwrap().len(), 8);
        assert_eq!(store.quarantined(9).await.unwrap().len(), 1);
    }

    /// Adds rows that cannot be decoded, and that no query has found: an ended job, and some events.
    fn damage(&self) {
        let connection = rusqlite::Connection::open(self.path()).unwrap();
        let newest = "WHERE id = (SELECT max(id) FROM jobs_ended)";
        assert_eq!(connection.execute(&format!("UPDATE jobs_ended SET head = x'01ff' {newest}"), []), Ok(1));
        let first = "UPDATE events SET payload = x'0102' WHERE first = (SELECT min(first) FROM events)";
        assert_eq!(connection.execute(first, []), Ok(1));
        // The deletion of a run that was interrupted.
        let deleted = "INSERT INTO runs_deleted VALUES (x'00000000000000000000000000000001', NULL)";
        assert_eq!(connection.execute(deleted, []), Ok(1));
    }

    async fn copy(&self, observe: &mut (dyn FnMut(Progress) + Send)) -> Result<Report, CopyError> {
        let options = Options { target: target_options(), chunk_rows: 7 };
        copy(&self.path(), &self.database.url(), options, observe).await
    }

    /// Copies this number of chunks, and is then killed.
    async fn copy_chunks(&self, chunks: usize) {
        let told = AtomicUsize::new(0);
        let mut observe = |_: Progress| {
            told.fetch_add(1, Ordering::Relaxed);
        };
        let mut copying = pin!(self.copy(&mut observe));
        let end = std::future::poll_fn(|context| match copying.as_mut().poll(context) {
            Poll::Pending if told.load(Ordering::Relaxed) >= chunks => Poll::Ready(None),
            other => other.map(Some),
        });
        assert!(end.await.is_none(), "there are fewer than {chunks} chunks");
    }
}

fn target_options() -> postgres::Options {
    postgres::Options { allow_unsafe: true, ..Default::default() }
}

async fn assert_same(scene: &Scene) {
    let target = scene.target().await.unwrap();
    let (source, target) = (answers(&scene.source()).await, answers(&target).await);
    for (source, target) in source.iter().zip(&target) {
        assert_eq!(source, target);
    }
    assert_eq!(source.len(), target.len());
    for kind in [
        "job: ",
        "schedule: ",
        "live: Key",
        "live: Step",
        "live: ElementBatch",
        "workflow: ",
        "service: ",
        "replicas: ",
        "live: Service",
        "run: ",
        "step: ",
        "item: ",
        "added: ",
        "event: ",
        "execution: ",
        "quarantined: ",
        "worker: ",
    ] {
        assert!(source.iter().any(|answer| answer.starts_with(kind)), "the source has no {kind}");
    }
}

/// G4, D7.
#[tokio::test]
async fn the_copy_answers_every_query_like_the_source() {
    let scene = Scene::filled().await;
    let mut told = Vec::new();
    let report = scene.copy(&mut |progress| told.push(progress)).await.unwrap();
    assert_eq!((report.found, report.tables.len()), (0, TABLES.len()));
    let filled = report.tables.iter().filter(|table| table.source.rows > 0).count();
    assert_eq!(filled, TABLES.len(), "each table had rows: {:?}", report.tables);
    let last = |phase| told.iter().rfind(|progress| progress.phase == phase).unwrap();
    for phase in [Phase::Copying, Phase::Verifying] {
        assert_eq!(last(phase).rows, report.copied);
        assert_eq!(last(phase).of, report.copied);
    }
    assert_same(&scene).await;
}

/// G4, D7. Each attempt is killed a little later than the one before.
#[tokio::test]
async fn a_killed_copy_continues() {
    let scene = Scene::filled().await;
    let mut killed = 0;
    let report = loop {
        let mut polls = 3 * killed;
        let mut observe = |_: Progress| {};
        let mut copying = pin!(scene.copy(&mut observe));
        let end = std::future::poll_fn(|context| {
            if polls == 0 {
                return Poll::Ready(None);
            }
            polls -= 1;
            copying.as_mut().poll(context).map(Some)
        });
        match end.await {
            Some(Ok(report)) => break Some(report),
            None => killed += 1,
            // Killed between the end and its report.
            Some(Err(CopyError::Finished { .. })) => break None,
            Some(Err(error)) => panic!("{error:?}"),
        }
    };
    assert!(killed > 10, "{killed} attempts were killed");
    if let Some(report) = report {
        assert!(report.found > 0);
        let rows: u64 = report.tables.iter().map(|table| table.target.rows).sum();
        assert_eq!(report.found + report.copied, rows);
    }
    assert_same(&scene).await;
}

/// G4. After each chunk, with the next one in flight.
#[tokio::test]
async fn each_attempt_continues_after_the_last_chunk() {
    let scene = Scene::filled().await;
    let mut before = 0;
    for _ in 0..8 {
        scene.copy_chunks(1).await;
        let copied = scene.database.execute("SELECT copied FROM copies").remove(0).unwrap();
        let copied: u64 = copied.parse().unwrap();
        assert!(copied > before);
        before = copied;
    }
    let report = scene.copy(&mut |_| {}).await.unwrap();
    assert!(report.found >= before);
    let rows: u64 = report.tables.iter().map(|table| table.target.rows).sum();
    assert_eq!(report.found + report.copied, rows);
}

#[tokio::test]
async fn a_server_is_refused_until_the_copy_is_finished() {
    let scene = Scene::filled().await;
    scene.copy_chunks(3).await;
    let error = scene.target().await.unwrap_err();
    let path = scene.path().display().to_string();
    assert!(matches!(&error, StoreError::Unfinished { origin } if *origin == path), "{error:?}");
    scene.copy(&mut |_| {}).await.unwrap();
    scene.target().await.unwrap();
    let error = scene.copy(&mut |_| {}).await.unwrap_err();
    assert!(matches!(&error, CopyError::Finished { origin } if *origin == path), "{error:?}");
}

/// G5. Whatever the changelog of the target contained before.
#[tokio::test]
async fn a_copy_is_followed_from_its_first_owner_on() {
    let scene = Scene::filled().await;
    let early = scene.target().await.unwrap();
    let leases = early.acquire(&SHARDS, "early", HOUR).await.unwrap();
    let passing = Change::PurgeKeys { shard: SHARDS[0], expired_before: Timestamp::MAX };
    let passing = Arc::new(Batch { changes: vec![passing], ..Batch::default() });
    early.commit(&leases, Arc::clone(&passing)).await.unwrap();
    let before = early.end().await.unwrap();
    early.release(&leases).await.unwrap();
    scene.copy(&mut |_| {}).await.unwrap();
    let target = scene.target().await.unwrap();
    let leases = target.acquire(&SHARDS, "owner", HOUR).await.unwrap();
    assert_eq!(target.since(before).await.unwrap(), None);
    let place = target.end().await.unwrap();
    assert_eq!(target.since(place).await.unwrap().unwrap().touched, []);
    target.commit(&leases, passing).await.unwrap();
    assert_eq!(target.since(place).await.unwrap().unwrap().touched.len(), 1);
}

/// Also a server that opened the target while it was empty.
#[tokio::test]
async fn a_server_opened_before_the_copy_gets_no_shard() {
    let scene = Scene::filled().await;
    let early = scene.target().await.unwrap();
    scene.copy_chunks(3).await;
    assert_eq!(early.acquire(&SHARDS, "early", HOUR).await.unwrap(), []);
    scene.copy(&mut |_| {}).await.unwrap();
}

#[tokio::test]
async fn a_source_that_cannot_be_owned_is_refused_by_name() {
    let scene = Scene::new();
    let error = scene.copy(&mut |_| {}).await.unwrap_err();
    assert!(matches!(error, CopyError::NoSource { .. }), "{error:?}");
    assert!(!scene.path().exists(), "a store was made where there was none");
    let running = scene.source();
    let error = scene.copy(&mut |_| {}).await.unwrap_err();
    assert!(matches!(error, CopyError::Source(StoreError::InUse { .. })), "{error:?}");
    drop(running);
    scene.copy(&mut |_| {}).await.unwrap();
}

#[tokio::test]
async fn a_source_of_another_version_is_refused() {
    let scene = Scene::new();
    drop(scene.source());
    let connection = rusqlite::Connection::open(scene.path()).unwrap();
    connection.execute_batch("PRAGMA user_version = 1").unwrap();
    drop(connection);
    let error = scene.copy(&mut |_| {}).await.unwrap_err();
    assert!(matches!(error, CopyError::OldSource { found: 1, .. }), "{error:?}");
}

#[tokio::test]
async fn a_target_that_is_not_empty_is_refused_by_name_and_left_alone() {
    let scene = Scene::filled().await;
    let store = scene.target().await.unwrap();
    store.secret("cursors", &[1; 32]).await.unwrap();
    let error = scene.copy(&mut |_| {}).await.unwrap_err();
    assert!(matches!(&error, CopyError::NotEmpty { table } if table == "secrets"), "{error:?}");
    let server = ServerRecord {
        id: ServerId::from_bits(1),
        name: "ann".into(),
        url: None,
        version: "1".into(),
        started_at: Timestamp::from_millis(1),
        fingerprint: None,
    };
    store.announce(&server, None, HOUR).await.unwrap();
    let error = scene.copy(&mut |_| {}).await.unwrap_err();
    assert!(matches!(&error, CopyError::Served { name } if name == "ann"), "{error:?}");
    store.remove_member(server.id).await.unwrap();
    let leases = store.acquire(&SHARDS, "bob", HOUR).await.unwrap();
    let error = scene.copy(&mut |_| {}).await.unwrap_err();
    assert!(matches!(&error, CopyError::Served { name } if name == "bob"), "{error:?}");
    store.renew(&leases, HOUR).await.unwrap();
    assert_eq!(store.secret("cursors", &[2; 32]).await.unwrap(), [1; 32]);
}

/// A server that ran on the source in between has changed it.
#[tokio::test]
async fn an_unfinished_copy_continues_only_from_the_same_source() {
    let scene = Scene::filled().await;
    scene.copy_chunks(3).await;
    let other = Scene { database: Arc::clone(&scene.database), ..Scene::filled().await };
    let store = other.source();
    store.secret("another", &[3; 32]).await.unwrap();
    drop(store);
    let error = other.copy(&mut |_| {}).await.unwrap_err();
    assert!(matches!(error, CopyError::OtherSource { .. }), "{error:?}");
    let store = scene.source();
    store.acquire(&SHARDS, "in between", HOUR).await.unwrap();
    drop(store);
    let error = scene.copy(&mut |_| {}).await.unwrap_err();
    assert!(matches!(error, CopyError::OtherSource { .. }), "{error:?}");
}

/// D7. A changed value, a missing row, an additional row.
#[tokio::test]
async fn the_hash_detects_a_difference() {
    for (table, tamper) in [
        ("access", "UPDATE access SET body = 'mallory' WHERE key = 'a'"),
        ("jobs", "UPDATE jobs SET shard = shard + 1 WHERE id = (SELECT id FROM jobs LIMIT 1)"),
        ("ledger", "DELETE FROM ledger WHERE first = (SELECT min(first) FROM ledger)"),
        ("job_counts", "INSERT INTO job_counts VALUES (3, 'default', 1, 1)"),
        ("shards", "UPDATE shards SET epoch = epoch + 1 WHERE shard = 2"),
    ] {
        let scene = Scene::filled().await;
        let mut pending = Some(tamper);
        let mut observe = |progress: Progress| {
            if progress.phase == Phase::Verifying
                && let Some(tamper) = pending.take()
            {
                scene.database.execute(tamper);
            }
        };
        let error = scene.copy(&mut observe).await.unwrap_err();
        let CopyError::Differs { table: found, tables } = &error else { panic!("{error:?}") };
        assert_eq!(*found, table);
        assert_eq!(tables.iter().filter(|verified| !verified.is_same()).count(), 1);
        assert!(matches!(scene.target().await, Err(StoreError::Unfinished { .. })));
    }
}

/// Different cells with similar values must not produce the same hash.
#[test]
fn rows_of_other_cells_have_another_hash() {
    use super::{Cell, Digesting, Page};
    let digest = |row: Vec<Cell>| -> Digest {
        let mut digest = Digesting::default();
        digest.take(&Page { rows: vec![row], more: false });
        digest.end()
    };
    let text = |text: &str| Cell::Text(text.into());
    let rows = [
        vec![Cell::Absent],
        vec![text("")],
        vec![Cell::Bytes(Vec::new())],
        vec![text("ab"), text("c")],
        vec![text("a"), text("bc")],
        vec![Cell::Number(1)],
        vec![Cell::Id(1)],
    ];
    let digests: std::collections::HashSet<_> = rows.into_iter().map(|row| digest(row).sha256).collect();
    assert_eq!(digests.len(), 7);
}

/// Read from both schemas, so that a new table or column cannot be forgotten.
#[tokio::test]
async fn every_table_and_every_column_is_copied() {
    let scene = Scene::new();
    drop(scene.source());
    let connection = rusqlite::Connection::open(scene.path()).unwrap();
    let sql = "SELECT m.name || '.' || c.name FROM sqlite_schema m, pragma_table_info(m.name) c
        WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite_%'";
    let mut statement = connection.prepare(sql).unwrap();
    let found: Vec<String> =
        statement.query_map([], |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap();
    // Owners are not copied; engine time is copied with the shards.
    let apart =
        ["shards.owner", "shards.expires_at", "meta.now", "keys.shard", "run_keys.shard", "quarantine.place"];
    let known: Vec<_> = TABLES
        .iter()
        .flat_map(|table| table.columns.iter().map(move |column| format!("{}.{}", table.name, column.origin)))
        .collect();
    for column in &found {
        assert!(known.contains(column) || apart.contains(&column.as_str()), "{column} of the source");
    }

    scene.target().await.unwrap();
    let sql = "SELECT table_name || '.' || column_name FROM information_schema.columns
        WHERE table_schema = 'public' AND table_name NOT IN ('schema_version', 'servers', 'copies', 'changelog')";
    let apart =
        ["shards.owner", "shards.system", "shards.timeline", "shards.logged", "meta.commits", "meta.folds"];
    let known: Vec<_> = TABLES
        .iter()
        .flat_map(|table| {
            let fixed = table.fixed.iter().map(|(name, _)| *name);
            let names = table.columns.iter().map(|column| column.name).chain(fixed);
            names.map(move |name| format!("{}.{name}", table.name))
        })
        .collect();
    let found: Vec<String> = scene.database.execute(sql).into_iter().flatten().collect();
    for column in &found {
        assert!(known.contains(column) || apart.contains(&column.as_str()), "{column} of the target");
    }
    assert!(known.iter().all(|column| found.contains(column)), "{known:?}");
}
