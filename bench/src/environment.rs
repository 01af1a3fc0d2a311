//! Data folders and servers of the benchmarks.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use harness::cluster::{self, Cluster, Database};
use harness::{Membership, Server, belfry, repository, until};
use tempfile::TempDir;

use crate::load::Load;

/// Creates a folder on a real disk that is removed when dropped. Tasks of other users can read it.
pub(crate) fn folder() -> anyhow::Result<TempDir> {
    let base =
        std::env::var_os("BELFRY_BENCH_DIR").map_or_else(|| repository().join("target"), PathBuf::from);
    fs::create_dir_all(&base)?;
    let folder = tempfile::Builder::new().prefix("belfry-bench-").tempdir_in(base)?;
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755))?;
    Ok(folder)
}

/// Starts a server of the release binary over a new store.
pub(crate) async fn server(folder: &Path) -> anyhow::Result<Server> {
    is_release()?;
    Ok(Server::start(&folder.join("data"), &folder.join("server.log"), &[("BELFRY_LOG", "warn")]).await)
}

/// Store that several servers share. Its commits are durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Store {
    /// A separate PostgreSQL with default settings.
    Postgres,
    /// The servers form a Raft cluster.
    Raft,
}

/// Servers that share a store, of which the first leads; or a single server with its store in its folder.
pub(crate) struct Shared {
    pub(crate) servers: Vec<Server>,
    _database: Option<Database>,
}

impl From<Server> for Shared {
    fn from(alone: Server) -> Self {
        Self { servers: vec![alone], _database: None }
    }
}

/// Starts `count` servers of the release binary over a new store.
pub(crate) async fn servers(folder: &Path, store: Store, count: usize) -> anyhow::Result<Shared> {
    is_release()?;
    match store {
        Store::Postgres => servers_on_postgres(folder, count).await,
        Store::Raft => raft_cluster(folder, count).await,
    }
}

async fn raft_cluster(folder: &Path, count: usize) -> anyhow::Result<Shared> {
    let settings = [("BELFRY_LOG", "warn")];
    let mut servers: Vec<Server> = Vec::new();
    for number in 1..=count {
        let (data, log) =
            (folder.join(format!("data-{number}")), folder.join(format!("server-{number}.log")));
        let server = Server::new(&data, &log, &settings);
        servers.push(match servers.first() {
            None => {
                let mut server = server.with_raft(Membership::First);
                server.restart().await;
                server
            }
            Some(first) => {
                let joins = Membership::Joins(first.address(), first.join_token());
                let mut server = server.with_raft(joins);
                server.spawn();
                server.until_listed(first, number).await;
                server
            }
        });
    }
    until_all_serve(&servers).await?;
    Ok(Shared { servers, _database: None })
}

async fn servers_on_postgres(folder: &Path, count: usize) -> anyhow::Result<Shared> {
    let settings = cluster::Settings { durable: true, ..cluster::Settings::default() };
    let database = Arc::new(Cluster::start_at(&folder.join("postgres"), &settings)).database();
    let url = database.url();
    let settings = [("BELFRY_LOG", "warn"), ("BELFRY_SERVER__STORE", url.as_str())];
    let mut servers: Vec<Server> = Vec::new();
    for number in 1..=count {
        let (data, log) =
            (folder.join(format!("data-{number}")), folder.join(format!("server-{number}.log")));
        servers.push(match number {
            1 => Server::start(&data, &log, &settings).await,
            _ => Server::start_standby(&data, &log, &settings).await,
        });
    }
    until_all_serve(&servers).await?;
    Ok(Shared { servers, _database: Some(database) })
}

/// Waits until the standbys forward requests to the leader.
async fn until_all_serve(servers: &[Server]) -> anyhow::Result<()> {
    let token = servers[0].token().context("a started server has created its token")?;
    for server in servers.iter().skip(1) {
        let load = Load::new(&server.url(), token.clone())?;
        let heard = async || load.get("workers").await.ok();
        until("a standby forwards requests to its leader", Duration::from_secs(30), heard).await;
    }
    Ok(())
}

/// Fails for debug builds; `BELFRY_BENCH_ANY_BUILD` allows them, to try a benchmark out.
fn is_release() -> anyhow::Result<()> {
    let is_release = belfry().parent().is_some_and(|folder| folder.ends_with("release"));
    anyhow::ensure!(
        is_release || std::env::var_os("BELFRY_BENCH_ANY_BUILD").is_some(),
        "cannot measure a debug build: run `cargo run --release -p belfry-bench`"
    );
    Ok(())
}
