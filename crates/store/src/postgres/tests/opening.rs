//! Which databases are taken, and what becomes of them.

use super::*;
use crate::postgres::schema::VERSION;

/// G5. None of them is in another's way, and all find the same tables.
#[tokio::test]
async fn servers_that_start_together_make_the_tables_once() {
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
async fn a_server_that_may_lose_commits_is_refused_by_the_settings_name() {
    let database = Arc::new(Cluster::shared().database());
    let error = PostgresStore::open(&database.url(), Options::default()).await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable { .. }), "{error:?}");
    assert!(reason(&error).contains("`fsync` is `off`"), "{error:?}");
}

/// H2.
#[tokio::test]
async fn nothing_that_cannot_be_reached_tells_the_password() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let url = format!("postgres://me:hunter2@127.0.0.1:{port}/belfry");
    let error = PostgresStore::open(&url, options()).await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable { .. }), "{error:?}");
    let text = format!("{error:?} {}", reason(&error));
    assert!(text.contains(&port.to_string()) && !text.contains("hunter2"), "{text}");
}

/// H2. The test's server speaks no TLS.
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
