//! Where benchmarks keep their data, and the server that they measure.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use harness::cluster::{self, Cluster, Database};
use harness::{Server, belfry, repository, until};
use tempfile::TempDir;

use crate::load::Load;

/// A folder on a real disk, gone with its value. Tasks of other users may look into it.
pub(crate) fn folder() -> anyhow::Result<TempDir> {
    let base =
        std::env::var_os("BELFRY_BENCH_DIR").map_or_else(|| repository().join("target"), PathBuf::from);
    fs::create_dir_all(&base)?;
    let folder = tempfile::Builder::new().prefix("belfry-bench-").tempdir_in(base)?;
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755))?;
    Ok(folder)
}

/// A server of the release binary, over a fresh store.
pub(crate) async fn server(folder: &Path) -> anyhow::Result<Server> {
    is_release()?;
    Ok(Server::start(&folder.join("data"), &folder.join("server.log"), &[("BELFRY_LOG", "warn")]).await)
}

/// Servers on one database, of which the first leads; and the database, which syncs every commit. Or one that has its store
/// in its folder.
pub(crate) struct Shared {
    pub(crate) servers: Vec<Server>,
    _database: Option<Database>,
}

impl From<Server> for Shared {
    fn from(alone: Server) -> Self {
        Self { servers: vec![alone], _database: None }
    }
}

/// `count` servers of the release binary on a PostgreSQL of their own, with the settings that it comes with.
pub(crate) async fn servers(folder: &Path, count: usize) -> anyhow::Result<Shared> {
    is_release()?;
    let settings = cluster::Settings { durable: true, ..cluster::Settings::default() };
    let database = Arc::new(Cluster::start_at(&folder.join("postgres"), &settings)).database();
    let (url, objects) = (database.url(), folder.join("objects").display().to_string());
    let settings = [
        ("BELFRY_LOG", "warn"),
        ("BELFRY_SERVER__STORE", url.as_str()),
        ("BELFRY_SERVER__OBJECTS_DIR", objects.as_str()),
    ];
    let mut servers: Vec<Server> = Vec::new();
    for number in 1..=count {
        let (data, log) =
            (folder.join(format!("data-{number}")), folder.join(format!("server-{number}.log")));
        servers.push(match number {
            1 => Server::start(&data, &log, &settings).await,
            _ => Server::stand_by(&data, &log, &settings).await,
        });
    }
    for server in servers.iter().skip(1) {
        let load =
            Load::new(&server.url(), servers[0].token().context("a server that started has a token")?)?;
        let heard = async || load.get("workers").await.ok();
        until("a standby hands on what its leader decides", Duration::from_secs(30), heard).await;
    }
    Ok(Shared { servers, _database: Some(database) })
}

/// `BELFRY_BENCH_ANY_BUILD` lets a benchmark be tried out with a debug build.
fn is_release() -> anyhow::Result<()> {
    let is_release = belfry().parent().is_some_and(|folder| folder.ends_with("release"));
    anyhow::ensure!(
        is_release || std::env::var_os("BELFRY_BENCH_ANY_BUILD").is_some(),
        "debug builds are not worth measuring: cargo run --release -p belfry-bench"
    );
    Ok(())
}
