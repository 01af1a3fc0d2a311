//! What a storm rages over: servers on a store, workers, and everything that breaks them.

use std::path::Path;
use std::sync::Arc;

use harness::network::Branch;
use harness::proxy::Proxy;
use harness::{CrashOrders, MovedClock, SessionKiller, Site, SmallDisk};
use store::Store;
use store::postgres::PostgresStore;
use store::sqlite::SqliteStore;
use tempfile::TempDir;

use super::nemesis::{Abilities, Tools};
use super::rows::Rows;

/// Servers that share a database.
const SERVERS: usize = 3;
/// How long the ownership of shards lasts where several servers share them.
const SHARD_LEASE: &str = "3s";
/// Room for what a worker keeps of hundreds of small tasks. With less than 64 MiB of free space it takes none.
const WORKER_DISK: &str = "128m";
/// Room for the file of a store.
const SERVER_DISK: &str = "768m";

/// Servers and workers under threat.
pub(super) struct Scene {
    pub(super) site: Site,
    pub(super) able: Abilities,
    pub(super) crash: CrashOrders,
    pub(super) rows: Rows,
    _objects: TempDir,
}

/// What there is where the rights for it are; says on stderr where they are missing.
fn if_allowed<T>(what: Result<T, String>) -> Option<T> {
    what.inspect_err(|reason| eprintln!("goes without: {reason}")).ok()
}

impl Scene {
    /// One with everything that can be broken here, and what breaks it.
    pub(super) async fn set(mut rows: Rows) -> (Self, Tools) {
        let (clock, crash) = (MovedClock::new(), CrashOrders::new());
        let objects = tempfile::tempdir().expect("a temporary folder can be made");
        let mut tools = Tools {
            clock,
            worker_clock: MovedClock::new(),
            disk: None,
            worker_disk: if_allowed(SmallDisk::mount(WORKER_DISK)),
            store_roads: Vec::new(),
            sessions: None,
        };
        let mut site = match &mut rows {
            Rows::File(file) => {
                let site = one_server(&mut tools, &crash).await;
                *file = site.server.data().join("belfry.db");
                site
            }
            rows => several_servers(&mut tools, &crash, &*rows, objects.path()).await,
        };
        if let Some(database) = rows.database() {
            tools.sessions = Some(SessionKiller::new(Arc::clone(database.cluster()), database.name()));
        }
        let settings = [tools.worker_clock.setting(), crash.setting()];
        site.worker_settings = settings.iter().map(|&(k, v)| (k.into(), v.into())).collect();
        match &tools.worker_disk {
            Some(disk) => site.add_worker_on(disk.path()).await,
            None => site.add_worker_behind_proxies().await,
        };
        site.add_worker_behind_proxies().await;
        if let Some(branch) = if_allowed(Branch::make()) {
            site.add_worker_within(branch).await;
        }
        let able = Abilities {
            servers: site.servers().count(),
            workers: site.workers.len(),
            branch: site.workers.iter().position(|worker| worker.road().branch.is_some()),
            disk: tools.disk.is_some(),
            worker_disk: tools.worker_disk.as_ref().map(|_| 0),
            store_roads: tools.store_roads.len(),
            sessions: tools.sessions.is_some(),
        };
        (Self { site, able, crash, rows, _objects: objects }, tools)
    }

    /// What it is, in a few words.
    pub(super) fn setting(&self) -> String {
        let (servers, workers) = (self.able.servers, self.able.workers);
        let store = self.rows.name();
        let build = if cfg!(debug_assertions) { "debug" } else { "release" };
        format!("real processes ({build} build): servers {servers}, workers {workers}, {store}")
    }

    /// The rows, once all servers have ended.
    pub(super) async fn open_store(&self) -> Box<dyn Store> {
        match &self.rows {
            Rows::File(file) => {
                let options = store::sqlite::Options { ballast_bytes: 0, ..Default::default() };
                Box::new(
                    SqliteStore::open(file, options).expect("the file of a server that ended can be opened"),
                )
            }
            rows => open_database(&rows.url()).await,
        }
    }
}

/// The rows in a database.
pub(super) async fn open_database(url: &str) -> Box<dyn Store> {
    let options = store::postgres::Options { allow_unsafe: true, ..Default::default() };
    Box::new(PostgresStore::open(url, options).await.expect("the database of the storm can be opened"))
}

async fn one_server(tools: &mut Tools, crash: &CrashOrders) -> Site {
    tools.disk = if_allowed(SmallDisk::mount(SERVER_DISK));
    let settings = [tools.clock.setting(), crash.setting()];
    match &tools.disk {
        Some(disk) => Site::over(&disk.path().join("data"), &settings).await,
        None => Site::server_only(&settings).await,
    }
}

/// Each reaches the database on a road of its own, where it has one address.
async fn several_servers(tools: &mut Tools, crash: &CrashOrders, rows: &Rows, objects: &Path) -> Site {
    let url = rows.url();
    let mut urls = vec![url.clone(); SERVERS];
    if !matches!(rows, Rows::Pair(_)) {
        let address =
            url.split_once('@').and_then(|(_, rest)| rest.split_once('/')).expect("it has a host").0;
        for url in &mut urls {
            let target = address.parse().expect("the tests' host is an address");
            let road = Proxy::start("127.0.0.1", target).await;
            *url = url.replace(address, &road.address().to_string());
            tools.store_roads.push(road);
        }
    }
    let objects_dir = objects.display().to_string();
    let settings = |url| {
        [
            tools.clock.setting(),
            crash.setting(),
            ("BELFRY_SERVER__STORE", url),
            // The tests' database does not wait for its disk.
            ("BELFRY_SERVER__STORE_ALLOW_UNSAFE", "true"),
            ("BELFRY_SERVER__OBJECTS_DIR", objects_dir.as_str()),
            ("BELFRY_SERVER__SHARD_LEASE", SHARD_LEASE),
        ]
    };
    let mut site = Site::server_only(&settings(&urls[0])).await;
    for url in &urls[1..] {
        site.add_server(&settings(url)).await;
    }
    site
}
