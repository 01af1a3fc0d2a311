//! The processes under test: servers on a store, workers, and the tools that break them.

use std::sync::Arc;

use harness::network::Branch;
use harness::proxy::Proxy;
use harness::{CrashOrders, MovedClock, NextPid, Server, SessionKiller, Site, SmallDisk};
use raft::store::Reopened;
use store::Store;
use store::postgres::PostgresStore;
use store::sqlite::SqliteStore;

use super::nemesis::{Abilities, Tools};
use super::rows::Rows;

/// Number of servers that share a database.
const SERVERS: usize = 3;
/// Length of the leadership lease of servers that share a store.
const SHARD_LEASE: &str = "3s";
/// Size of a worker's disk: hundreds of small tasks need it. A worker with less than 64 MiB of free space accepts no
/// executions.
const WORKER_DISK: &str = "128m";
/// Size of the disk for a store file.
const SERVER_DISK: &str = "768m";

/// Servers and workers under test.
pub(super) struct Scene {
    pub(super) site: Site,
    pub(super) able: Abilities,
    pub(super) crash: CrashOrders,
    pub(super) rows: Rows,
}

/// Returns the value, or prints why it is not available.
pub(super) fn if_allowed<T>(what: Result<T, String>) -> Option<T> {
    what.inspect_err(|reason| eprintln!("not available: {reason}")).ok()
}

impl Scene {
    /// Creates a scene with all faults that are possible on this machine, and the tools for them.
    pub(super) async fn set(mut rows: Rows) -> (Self, Tools) {
        let (clock, crash) = (MovedClock::new(), CrashOrders::new());
        let mut tools = Tools {
            clock,
            worker_clock: MovedClock::new(),
            disk: None,
            worker_disk: if_allowed(SmallDisk::mount(WORKER_DISK)),
            store_roads: Vec::new(),
            sessions: None,
            pids: if_allowed(NextPid::open()),
        };
        let mut site = match &mut rows {
            Rows::File(file) => {
                let site = one_server(&mut tools, &crash).await;
                *file = site.server.data().join("belfry.db");
                site
            }
            Rows::Raft(folders) => {
                let site = servers_of_a_raft_cluster(&mut tools, &crash).await;
                *folders = site.servers().map(Server::raft_folder).collect();
                site
            }
            rows => several_servers(&mut tools, &crash, &*rows).await,
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
            pids: tools.pids.is_some(),
        };
        (Self { site, able, crash, rows }, tools)
    }

    /// Returns a short description for the results page.
    pub(super) fn setting(&self) -> String {
        let (servers, workers) = (self.able.servers, self.able.workers);
        let store = self.rows.name();
        let build = if cfg!(debug_assertions) { "debug" } else { "release" };
        format!("real processes ({build} build): servers {servers}, workers {workers}, {store}")
    }

    /// Opens the store after all servers have ended.
    pub(super) async fn open_store(&self) -> EndedStore {
        match &self.rows {
            Rows::File(file) => {
                let options = store::sqlite::Options { ballast_bytes: 0, ..Default::default() };
                let store = SqliteStore::open(file, options).expect("cannot open the file of the store");
                EndedStore { store: Arc::new(store), replicas: None }
            }
            Rows::Raft(folders) => {
                let replicas = Reopened::open(folders).await;
                EndedStore { store: replicas.store(), replicas: Some(replicas) }
            }
            rows => EndedStore { store: open_database(&rows.url()).await.into(), replicas: None },
        }
    }
}

/// The store of servers that have ended.
pub(super) struct EndedStore {
    pub(super) store: Arc<dyn Store>,
    replicas: Option<Reopened>,
}

impl EndedStore {
    /// Closes the store. Returns the differences between replicas.
    pub(super) async fn close(self) -> Vec<String> {
        drop(self.store);
        let Some(replicas) = self.replicas else { return Vec::new() };
        let others = replicas.close().await;
        others.iter().map(|path| format!("the rows of `{}` differ", path.display())).collect()
    }
}

/// Opens the store in a database.
pub(super) async fn open_database(url: &str) -> Box<dyn Store> {
    let options = store::postgres::Options { allow_unsafe: true, ..Default::default() };
    Box::new(PostgresStore::open(url, options).await.expect("cannot open the database"))
}

async fn one_server(tools: &mut Tools, crash: &CrashOrders) -> Site {
    tools.disk = if_allowed(SmallDisk::mount(SERVER_DISK));
    let settings = [tools.clock.setting(), crash.setting()];
    match &tools.disk {
        Some(disk) => Site::over(&disk.path().join("data"), &settings).await,
        None => Site::server_only(&settings).await,
    }
}

/// The others reach each server through a separate proxy: it may be cut off from them while it reaches them.
async fn servers_of_a_raft_cluster(tools: &mut Tools, crash: &CrashOrders) -> Site {
    let settings = [tools.clock.setting(), crash.setting()];
    let (site, roads) = Site::with_raft(SERVERS, &settings).await;
    tools.store_roads = roads;
    site
}

/// Each server reaches the database through a separate proxy, if the database has only one address.
async fn several_servers(tools: &mut Tools, crash: &CrashOrders, rows: &Rows) -> Site {
    let url = rows.url();
    let mut urls = vec![url.clone(); SERVERS];
    if !matches!(rows, Rows::Pair(_)) {
        let address =
            url.split_once('@').and_then(|(_, rest)| rest.split_once('/')).expect("the URL has a host").0;
        for url in &mut urls {
            let target = address.parse().expect("the host is an IP address");
            let road = Proxy::start("127.0.0.1", target).await;
            *url = url.replace(address, &road.address().to_string());
            tools.store_roads.push(road);
        }
    }
    let settings = |url| {
        [
            tools.clock.setting(),
            crash.setting(),
            ("BELFRY_SERVER__STORE", url),
            // The test database does not fsync.
            ("BELFRY_SERVER__STORE_ALLOW_UNSAFE", "true"),
            ("BELFRY_SERVER__SHARD_LEASE", SHARD_LEASE),
        ]
    };
    let mut site = Site::server_only(&settings(&urls[0])).await;
    for url in &urls[1..] {
        site.add_server(&settings(url)).await;
    }
    site
}
