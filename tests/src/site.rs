//! A server, its workers and their folders, with cleanup of everything.
//!
//! [`Site`] is where a test begins: `start` for a server with one worker, `server_only` or `over` for
//! anything else. The `add_…` methods add workers behind proxies, on other disks or in separate networks, and
//! servers over the same store.
//!
//! [`Site::client`] and [`Site::belfry`] use the server as a user does; the `until_…` methods wait for a
//! condition, with a deadline that says what was waited for.
//!
//! A dropped site ends all its processes. After a failed test it first prints the end of every log.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use client::{Client, Timeouts};
use model::api::Job;
use model::{JobId, JobSpec, JobStatus};
use tempfile::TempDir;

use crate::network::Branch;
use crate::proxy::Proxy;
use crate::worker::Connection;
use crate::{Membership, Ran, Server, Witness, Worker, cli, until};

/// Timeout of everything that a test waits for, also on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server with its workers.
#[derive(Debug)]
pub struct Site {
    /// The first server.
    pub server: Server,
    /// Additional servers over the same store.
    pub others: Vec<Server>,
    /// The workers, in the order of their creation.
    pub workers: Vec<Worker>,
    /// Environment variables of workers that are added later.
    pub worker_settings: Vec<(String, String)>,
    folder: TempDir,
}

impl Site {
    /// Starts a server and one worker.
    pub async fn start() -> Self {
        let mut site = Self::server_only(&[]).await;
        site.add_worker().await;
        site
    }

    /// Starts a server without workers; `settings` are its environment variables.
    pub async fn server_only(settings: &[(&str, &str)]) -> Self {
        let folder = folder();
        let server =
            Server::start(&folder.path().join("data"), &folder.path().join("server.log"), settings).await;
        Self { server, others: Vec::new(), workers: Vec::new(), worker_settings: Vec::new(), folder }
    }

    /// Starts a server whose data is in the given folder; `settings` are its environment variables.
    pub async fn over(data: &Path, settings: &[(&str, &str)]) -> Self {
        let folder = folder();
        let server = Server::start(data, &folder.path().join("server.log"), settings).await;
        Self { server, others: Vec::new(), workers: Vec::new(), worker_settings: Vec::new(), folder }
    }

    /// Starts the servers of a Raft cluster. The others reach each of them through its proxy.
    pub async fn with_raft(count: usize, settings: &[(&str, &str)]) -> (Self, Vec<Proxy>) {
        let folder = folder();
        let at = |name: &str| folder.path().join(name);
        let (mut servers, mut proxies) = (Vec::<Server>::new(), Vec::new());
        for number in 1..=count {
            let name = format!("server-{number}");
            let mut server = Server::new(&at(&name), &at(&format!("{name}.log")), settings);
            let proxy = Proxy::start("127.0.0.1", server.address()).await;
            server.set("BELFRY_SERVER__NAME", &name);
            server.set("BELFRY_SERVER__ADVERTISE_URL", &proxy.url());
            let membership = match servers.first() {
                None => Membership::First,
                Some(first) => Membership::Joins(first.address(), first.join_token()),
            };
            let mut server = server.with_raft(membership);
            server.spawn();
            if number == 1 {
                server.until_ready().await;
            } else {
                server.until_listed(&servers[0], number).await;
            }
            servers.push(server);
            proxies.push(proxy);
        }
        let server = servers.remove(0);
        let site = Self { server, others: servers, workers: Vec::new(), worker_settings: Vec::new(), folder };
        (site, proxies)
    }

    /// Adds a worker, and waits until it is connected.
    pub async fn add_worker(&mut self) -> &mut Worker {
        self.add_worker_over(Connection::default()).await
    }

    /// Adds a server over the same store; it is a standby while another server leads.
    pub async fn add_server(&mut self, settings: &[(&str, &str)]) -> &mut Server {
        let name = format!("server-{}", self.others.len() + 2);
        let (data, log) = (self.path(&name), self.path(&format!("{name}.log")));
        self.others.push(Server::start_standby(&data, &log, settings).await);
        self.others.last_mut().expect("a server was just added")
    }

    /// Returns all servers, the first one first.
    pub fn servers(&self) -> impl Iterator<Item = &Server> {
        [&self.server].into_iter().chain(&self.others)
    }

    /// Returns all servers, the first one first.
    pub fn servers_mut(&mut self) -> impl Iterator<Item = &mut Server> {
        [&mut self.server].into_iter().chain(&mut self.others)
    }

    /// Adds a worker behind a proxy to each server, and waits until it is connected.
    pub async fn add_worker_behind_proxies(&mut self) -> &mut Worker {
        let proxies = self.proxies("127.0.0.1").await;
        self.add_worker_over(Connection { proxies, ..Connection::default() }).await
    }

    /// Adds such a worker with its folder on the given disk.
    pub async fn add_worker_on(&mut self, disk: &Path) -> &mut Worker {
        let road = Connection { proxies: self.proxies("127.0.0.1").await, ..Connection::default() };
        self.add_worker_in(&disk.join("worker"), road).await
    }

    /// Adds such a worker in a separate network.
    pub async fn add_worker_within(&mut self, branch: Branch) -> &mut Worker {
        let proxies = self.proxies(&branch.here().to_string()).await;
        self.add_worker_over(Connection { proxies, branch: Some(branch), ..Connection::default() }).await
    }

    async fn proxies(&self, host: &str) -> Vec<Proxy> {
        let mut proxies = Vec::new();
        for server in self.servers() {
            proxies.push(Proxy::start(host, server.address()).await);
        }
        proxies
    }

    /// Adds a worker that also knows another server, connected to the first one.
    pub async fn add_worker_that_knows(&mut self, other: &Server) -> &mut Worker {
        self.add_worker_over(Connection { others: vec![other.url()], ..Connection::default() }).await
    }

    /// Adds a worker that reaches the server by this URL, with these settings, and waits until it is connected.
    pub async fn add_worker_by(&mut self, url: &str, settings: &[(&str, &str)]) -> &mut Worker {
        self.worker_settings.extend(settings.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())));
        self.add_worker_over(Connection { gateway: Some(url.to_owned()), ..Connection::default() }).await
    }

    async fn add_worker_over(&mut self, road: Connection) -> &mut Worker {
        let dir = self.path(&format!("worker-{}", self.workers.len() + 1));
        self.add_worker_in(&dir, road).await
    }

    async fn add_worker_in(&mut self, dir: &Path, road: Connection) -> &mut Worker {
        let name = format!("worker-{}", self.workers.len() + 1);
        let log = self.path(&format!("{name}.log"));
        let settings: Vec<_> = self.worker_settings.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        self.workers.push(Worker::start_over(&self.server, &name, dir, &log, &settings, road));
        self.until_ready(&name).await;
        self.workers.last_mut().expect("a worker was just added")
    }

    /// Waits until a worker with this name is connected.
    pub async fn until_ready(&self, name: &str) {
        let client = self.client();
        until(&format!("worker {name} is ready"), PATIENCE, async || {
            let workers = client.workers_page(&Default::default(), &Default::default()).await.ok()?.items;
            workers
                .iter()
                .any(|w| w.name == name && w.status == model::worker::WorkerStatus::Ready)
                .then_some(())
        })
        .await;
    }

    /// Returns a path in the site's folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Returns a client of the first server that retries during a restart.
    pub fn client(&self) -> Client {
        self.server.client()
    }

    /// Creates the witness file, to which tasks of any user can append.
    pub fn witness(&self) -> Witness {
        Witness::create(&self.path("witness"))
    }

    /// Returns a client for each server that retries for this time.
    pub fn clients(&self, retry_for: Duration) -> Vec<Client> {
        client::install_crypto();
        let token = self.server.token().expect("a started server has created its token");
        let patience = Timeouts {
            retry_for,
            response_timeout: Duration::from_secs(5),
            connect: Duration::from_secs(2),
            ..Timeouts::default()
        };
        self.servers()
            .map(|server| Client::with_patience(&server.url(), Some(&token), patience))
            .collect::<Result<_, _>>()
            .expect("cannot create a client")
    }

    /// Waits until any server is ready.
    pub async fn until_one_is_ready(&self) {
        until("a server is ready", PATIENCE, async || {
            for server in self.servers() {
                if server.is_ready().await {
                    return Some(());
                }
            }
            None
        })
        .await;
    }

    /// Runs `belfry ARGS…` as a user of this server.
    pub async fn belfry(&self, args: &[&str]) -> Ran {
        cli::run(&self.server, self.folder.path(), args).await
    }

    /// Runs a Bash script as a user of this server, in the given folder.
    pub async fn script(&self, folder: &Path, script: &str) -> Ran {
        cli::run_script(&self.server, folder, script).await
    }

    /// Submits a job with the first server's client.
    pub async fn submit(&self, spec: &JobSpec) -> JobId {
        self.client().submit(spec).await.expect("the job is accepted").id
    }

    /// Waits until the job has this status, and returns it.
    pub async fn until_status(&self, job: JobId, status: JobStatus) -> Job {
        self.until_job(job, &format!("is {status}"), |j| j.status == status).await
    }

    /// Waits until the condition holds for the job, and returns it.
    ///
    /// # Panics
    /// If the job ends before, or after one minute.
    pub async fn until_job(&self, job: JobId, what: &str, holds: impl Fn(&Job) -> bool) -> Job {
        let client = self.client();
        until(&format!("{job} {what}"), PATIENCE, async || {
            let found = client.job(job).await.expect("cannot read the job");
            assert!(holds(&found) || !found.status.is_final(), "{job} ended before it {what}: {found:#?}");
            holds(&found).then_some(found)
        })
        .await
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.workers.clear();
        if std::thread::panicking() {
            show_logs(self.folder.path());
        }
    }
}

/// Creates a folder that other users can read: if the tests run as root, tasks run as another user.
fn folder() -> TempDir {
    let folder =
        tempfile::Builder::new().prefix("belfry-site-").tempdir().expect("cannot create a temporary folder");
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).expect("cannot set the permissions");
    folder
}

#[expect(clippy::print_stderr, reason = "a failed test shows the logs of its processes")]
fn show_logs(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.extension().is_some_and(|e| e == "log") {
            let text = fs::read_to_string(&path).unwrap_or_default();
            let lines: Vec<_> = text.lines().collect();
            eprintln!("--- {}", path.display());
            lines[lines.len().saturating_sub(60)..].iter().for_each(|line| eprintln!("{line}"));
        } else if path.is_dir() {
            show_logs(&path);
        }
    }
}
