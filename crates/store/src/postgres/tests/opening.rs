//! Which databases are accepted, and how they are migrated.
//!
//! A database is refused, and left as it is, if it belongs to another program or to a newer version, if it
//! does not keep commits durable, or if the connection is less protected than required. A database of an
//! earlier version is migrated: the test removes the newer tables and columns, opens the database, and
//! compares its tables and indexes with those of a new one.
//!
//! Several servers may start at the same time; all of them find the same tables.

use model::RunId;
use model::record::JobHead;
use model::run::StepOrigin;

use super::*;
use crate::postgres::schema::VERSION;
use crate::query::{JobFilter, Page};
use crate::suite::cluster::Settings;
use crate::{Access as _, Commits as _, Leases as _, Reads as _};

/// G5. No server blocks another, and all find the same tables.
#[tokio::test]
async fn concurrent_starts_create_the_tables_once() {
    let database = Arc::new(Cluster::shared().database());
    let url = database.url();
    let open = |shards| PostgresStore::open(&url, Options { shards, ..options() });
    let (a, b, c, d) = tokio::join!(open(4), open(5), open(6), open(7));
    let shards: Vec<_> = [a, b, c, d].map(|store| store.unwrap().shards()).into();
    assert!(shards.iter().all(|found| *found == shards[0]), "{shards:?}");
    let rows = database.execute("SELECT count(*) FROM shards").remove(0);
    assert_eq!(rows, Some(shards[0].to_string()));
}

#[tokio::test]
async fn the_number_of_shards_is_that_of_the_first_start() {
    let database = Arc::new(Cluster::shared().database());
    for wanted in [4, 9] {
        let options = Options { shards: wanted, ..options() };
        assert_eq!(PostgresStore::open(&database.url(), options).await.unwrap().shards(), 4);
    }
}

/// Describes the columns of all tables, and all indexes.
fn tables(database: &Database) -> Vec<Option<String>> {
    let columns = "SELECT table_name || '.' || column_name || ' ' || data_type || ' ' || is_nullable
        FROM information_schema.columns WHERE table_schema = 'public' ORDER BY 1";
    let indexes = "SELECT indexdef FROM pg_indexes WHERE schemaname = 'public' ORDER BY 1";
    [columns, indexes].into_iter().flat_map(|sql| database.execute(sql)).collect()
}

/// D5. Nothing is lost, new features work with the old rows, and the tables are those of a new database.
#[tokio::test]
async fn a_database_of_version_2_is_migrated_without_loss() {
    let subject = InDatabase::make().await;
    let as_new = tables(&subject.database);
    let mut sampler = Sampler::new(5);
    let leases = subject.acquire().await;
    let mut ids = Vec::new();
    let batch = |sampler: &mut Sampler, id: JobId, new: bool, step: Option<RunId>, status| {
        let step = step.map(|run| Arc::new(StepOrigin { run, ..sampler.step_origin() }));
        let head = new.then(|| Arc::new(JobHead { step, ..(*sampler.head()).clone() }));
        let changes = vec![Change::Job { id, new, head, state: Box::new(sampler.state(status)) }];
        Arc::new(Batch { now: sampler.now(), changes, ..Batch::default() })
    };
    for status in [JobStatus::Succeeded, JobStatus::Waiting, JobStatus::Failed] {
        let id = sampler.job_id(ShardId(1));
        subject.store.commit(&leases, batch(&mut sampler, id, true, None, status)).await.unwrap();
        ids.insert(0, id);
    }
    for table in [
        "access",
        "namespaces",
        "services",
        "service_heads",
        "service_labels",
        "alerts",
        "audit",
        "audit_chain",
        "changelog",
        "statistics",
        "statistics_pending",
        "failure_groups",
        "element_batches",
        "artifact_pins",
        "checkpoints",
        "workflows",
        "workflow_heads",
        "workflow_labels",
        "runs",
        "run_heads",
        "run_definitions",
        "steps",
        "runs_deleted",
        "run_keys",
    ] {
        subject.database.execute(&format!("DROP TABLE {table}"));
    }
    for sql in [
        "ALTER TABLE jobs DROP COLUMN service",
        "ALTER TABLE jobs_ended DROP COLUMN service",
        "ALTER TABLE jobs DROP COLUMN run",
        "ALTER TABLE jobs_ended DROP COLUMN run",
        "ALTER TABLE servers DROP COLUMN fingerprint",
        "ALTER TABLE meta DROP COLUMN commits",
        "ALTER TABLE meta DROP COLUMN folds",
        "ALTER TABLE shards DROP COLUMN logged",
        "ALTER TABLE servers DROP COLUMN lag",
        "ALTER TABLE meta DROP COLUMN access_version",
        "ALTER TABLE meta DROP COLUMN alert_version",
        "CREATE TABLE tokens (id TEXT COLLATE \"C\" PRIMARY KEY, kind INTEGER NOT NULL,
             name TEXT COLLATE \"C\" NOT NULL, hash BYTEA NOT NULL, created_at BIGINT NOT NULL)",
        "INSERT INTO tokens VALUES ('abc', 0, 'ad\"min', '\\x00ff', 1700000000123456), ('d', 1, 'w', '\\x01', 0)",
        "UPDATE schema_version SET version = 2",
    ] {
        subject.database.execute(sql);
    }

    let subject = subject.reopen().await;
    assert_eq!(tables(&subject.database), as_new);
    let found = subject.store.access(0).await.unwrap();
    let bodies: Vec<_> = found.rows.iter().map(|row| row.body.replace(' ', "")).collect();
    assert_eq!(
        bodies,
        [
            r#"{"id":"abc","bearer":{"admin":"ad\"min"},"hash":"00ff","created_by":"system","created_at":"2023-11-14T22:13:20.123456Z"}"#,
            r#"{"id":"d","bearer":{"worker":"w"},"hash":"01","created_by":"system","created_at":"1970-01-01T00:00:00.000000Z"}"#,
        ]
    );
    advance(&subject.database, HOUR + HOUR);
    let leases = subject.acquire().await;
    let page = Page { after: None, limit: 10 };
    let jobs = subject.store.jobs(&JobFilter::default(), page).await.unwrap().items;
    assert_eq!(jobs.iter().map(|job| job.id).collect::<Vec<_>>(), ids);
    let (id, run) = (sampler.job_id(ShardId(1)), sampler.run_id(ShardId(1)));
    for (new, status) in [(true, JobStatus::Waiting), (false, JobStatus::Succeeded)] {
        subject.store.commit(&leases, batch(&mut sampler, id, new, Some(run), status)).await.unwrap();
        let filter = JobFilter { run: Some(run), ..JobFilter::default() };
        let jobs = subject.store.jobs(&filter, page).await.unwrap().items;
        assert_eq!(jobs.iter().map(|job| job.id).collect::<Vec<_>>(), [id]);
    }
    // Old jobs can end.
    let waiting = ids[1];
    let ended = batch(&mut sampler, waiting, false, None, JobStatus::Succeeded);
    subject.store.commit(&leases, ended).await.unwrap();
}

/// G6.
#[tokio::test]
async fn tables_of_a_newer_version_are_refused() {
    let subject = InDatabase::make().await;
    subject.database.execute("UPDATE schema_version SET version = version + 1");
    let error = PostgresStore::open(&subject.database.url(), options()).await.unwrap_err();
    let found = VERSION + 1;
    assert!(matches!(error, StoreError::TooNew { found: f, known: VERSION } if f == found), "{error:?}");
}

#[tokio::test]
async fn a_database_of_another_program_is_refused_and_left_alone() {
    let database = Arc::new(Cluster::shared().database());
    database.execute("CREATE TABLE workers (x INT)");
    let error = PostgresStore::open(&database.url(), options()).await.unwrap_err();
    assert!(
        matches!(&error, StoreError::Fatal { reason } if reason.contains("another program")),
        "{error:?}"
    );
    let tables = "SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY tablename";
    let found: Vec<_> = database.execute(tables).into_iter().flatten().collect();
    assert_eq!(found, ["schema_version", "workers"]);
}

/// D5.
#[tokio::test]
async fn a_server_with_an_unsafe_setting_is_refused() {
    let database = Arc::new(Cluster::shared().database());
    let error = PostgresStore::open(&database.url(), Options::default()).await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable { .. }), "{error:?}");
    assert!(reason(&error).contains("`fsync` is `off`"), "{error:?}");
}

/// D7. If a failover must lose nothing.
#[tokio::test]
async fn a_server_without_synchronous_standby_is_refused_if_required() {
    let database = Arc::new(Cluster::shared().database());
    let demanding = Options { require_sync_standby: true, ..options() };
    let error = PostgresStore::open(&database.url(), demanding).await.unwrap_err();
    assert!(reason(&error).contains("`synchronous_standby_names` is ``"), "{error:?}");
}

/// D5. The server or its settings changed after the store was opened.
#[tokio::test]
async fn no_shard_is_acquired_on_a_server_that_became_unsafe() {
    let settings = Settings { durable: true, ..Settings::default() };
    let database = Arc::new(Arc::new(Cluster::start(&settings)).database());
    let store = PostgresStore::open(&database.url(), Options::default()).await.unwrap();
    let set = |value: &str| {
        database.execute(&format!("ALTER DATABASE {} SET synchronous_commit = {value}", database.name()));
        database.execute(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity
             WHERE datname = current_database() AND pid <> pg_backend_pid()",
        );
    };
    // Ended sessions are noticed one after the other.
    let acquire = async || {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match store.acquire(&SHARDS, "test", HOUR).await {
                Err(error) if !reason(&error).contains("synchronous_commit") => {
                    assert!(Instant::now() < deadline, "{error:?}");
                }
                answered => return answered,
            }
        }
    };
    set("off");
    let refused = acquire().await.unwrap_err();
    assert!(reason(&refused).contains("`synchronous_commit` is `off`"), "{refused:?}");
    set("on");
    let taken = acquire().await;
    assert_eq!(taken.unwrap().len(), SHARDS.len(), "no server held them meanwhile");
}

/// H2.
#[tokio::test]
async fn connection_errors_do_not_contain_the_password() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let url = format!("postgres://me:hunter2@127.0.0.1:{port}/belfry");
    let error = PostgresStore::open(&url, options()).await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable { .. }), "{error:?}");
    let text = format!("{error:?} {}", reason(&error));
    assert!(text.contains(&port.to_string()) && !text.contains("hunter2"), "{text}");
}

/// H2. The test's server does not support TLS.
#[tokio::test]
async fn a_server_without_tls_is_refused_where_tls_is_required() {
    let database = Arc::new(Cluster::shared().database());
    let open = |mode: &str| PostgresStore::open_owned(format!("{}?sslmode={mode}", database.url()));
    for mode in ["disable", "prefer"] {
        open(mode).await.unwrap();
    }
    let error = open("require").await.unwrap_err();
    assert!(reason(&error).contains("TLS"), "{error:?}");
}

impl PostgresStore {
    async fn open_owned(url: String) -> Result<Self, StoreError> {
        Self::open(&url, options()).await
    }
}
