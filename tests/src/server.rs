//! A `belfry server` process that can be killed and restarted with the same data.

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use client::{Client, Timeouts};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

use crate::network::Branch;
use crate::{Pid, belfry, until};

/// Maximum start time of a server on a busy machine.
const START: Duration = Duration::from_secs(60);

/// How a server becomes a member of a Raft cluster.
#[derive(Debug, Clone)]
pub enum Membership {
    /// It creates the cluster.
    First,
    /// It creates the cluster with the rows of another store.
    FirstFrom(PathBuf),
    /// It joins the cluster of a server, with the token in a file.
    Joins(SocketAddr, PathBuf),
}

/// A server process and its data folder.
#[derive(Debug)]
pub struct Server {
    data: PathBuf,
    log: PathBuf,
    host: Ipv4Addr,
    port: u16,
    /// The separate network of the server, if any.
    branch: Option<Arc<Branch>>,
    settings: Vec<(String, String)>,
    /// `None` without the Raft store.
    membership: Option<Membership>,
    child: Option<Child>,
}

impl Server {
    /// Starts a server with its data in `data`; `settings` are additional environment variables.
    pub async fn start(data: &Path, log: &Path, settings: &[(&str, &str)]) -> Self {
        let mut server = Self::new(data, log, settings);
        server.restart().await;
        server
    }

    /// Starts a standby: another server owns the shards of the shared store.
    pub async fn start_standby(data: &Path, log: &Path, settings: &[(&str, &str)]) -> Self {
        let mut server = Self::new(data, log, settings);
        server.spawn();
        until("the server listens", START, async || TcpStream::connect(server.address()).await.ok()).await;
        server
    }

    /// Creates a server that is not started yet.
    pub fn new(data: &Path, log: &Path, settings: &[(&str, &str)]) -> Self {
        let settings = settings.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        Self {
            data: data.into(),
            log: log.into(),
            host: Ipv4Addr::LOCALHOST,
            port: free_port(),
            branch: None,
            settings,
            membership: None,
            child: None,
        }
    }

    /// Lets the server listen at another address of this machine.
    pub fn listen_at(&mut self, host: Ipv4Addr) {
        self.host = host;
    }

    /// Lets the server run in a separate network, and listen at its address.
    pub fn within(&mut self, branch: &Arc<Branch>) {
        self.host = branch.there();
        self.branch = Some(Arc::clone(branch));
    }

    /// Adds a setting for later starts.
    pub fn set(&mut self, variable: &str, value: &str) {
        self.settings.push((variable.to_owned(), value.to_owned()));
    }

    /// Gives the server the Raft store.
    pub fn with_raft(mut self, membership: Membership) -> Self {
        self.set("BELFRY_SERVER__STORE", "raft");
        self.membership = Some(membership);
        self
    }

    /// Lets later starts create another cluster, with the rows of another store.
    pub fn create_cluster_from(&mut self, store: PathBuf) {
        self.membership = Some(Membership::FirstFrom(store));
    }

    /// Returns the folder of the Raft store.
    pub fn raft_folder(&self) -> PathBuf {
        self.data.join("raft")
    }

    /// Returns the file with the token with which others join the cluster that this server created.
    pub fn join_token(&self) -> PathBuf {
        self.data.join("join-token")
    }

    fn arguments(&self) -> Vec<String> {
        let is_member = self.raft_folder().join("node.json").exists();
        match &self.membership {
            // Only once: it would be refused.
            Some(Membership::First | Membership::FirstFrom(_)) if is_member => Vec::new(),
            Some(Membership::First) => vec!["--bootstrap".into()],
            Some(Membership::FirstFrom(store)) => {
                vec!["--bootstrap-from".into(), store.display().to_string()]
            }
            Some(Membership::Joins(address, token)) => {
                let token = token.display().to_string();
                ["--join".into(), address.to_string(), "--join-token-file".into(), token].into()
            }
            _ => Vec::new(),
        }
    }

    /// Restarts the server on the same address and data; it must not be running.
    pub async fn restart(&mut self) {
        self.spawn();
        self.until_ready().await;
    }

    /// Starts the process without waiting until it answers.
    pub fn spawn(&mut self) {
        assert!(self.child.is_none(), "the server is already running");
        let log = File::options().create(true).append(true).open(&self.log).expect("cannot open the log");
        let mut command = match &self.branch {
            Some(branch) => branch.command(belfry()),
            None => Command::new(belfry()),
        };
        let child = command
            .arg("server")
            .arg("--data")
            .arg(&self.data)
            .args(["--listen", &self.address().to_string()])
            .args(self.arguments())
            .env("HOME", self.data.parent().expect("the data folder is in the site's folder"))
            .envs(self.settings.iter().map(|(k, v)| (k, v)))
            .stdin(std::process::Stdio::null())
            .stdout(log.try_clone().expect("cannot duplicate the log's file descriptor"))
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .expect("cannot start the server");
        self.child = Some(child);
    }

    /// Starts the process, and waits until it exits by itself. Returns its exit code.
    ///
    /// # Panics
    /// If it does not exit within 60 seconds.
    pub async fn start_expecting_exit(&mut self) -> Option<i32> {
        self.spawn();
        let mut child = self.child.take().expect("the server was started");
        let ended = tokio::time::timeout(START, child.wait()).await.expect("the server did not exit");
        ended.expect("cannot wait for the server").code()
    }

    /// Restarts the process if it is not running, without waiting for it.
    pub fn ensure_running(&mut self) {
        if !self.is_running() {
            self.child = None;
            self.spawn();
        }
    }

    /// Waits until the server is ready: its jobs are loaded then.
    pub async fn until_ready(&mut self) {
        until("the server is ready", START, async || {
            if let Some(status) = self.child.as_mut().and_then(|c| c.try_wait().ok().flatten()) {
                panic!("the server exited during its start: {status}");
            }
            self.is_ready().await.then_some(())
        })
        .await;
    }

    /// Waits until the cluster of another server has this number of servers.
    ///
    /// # Panics
    /// If this server ends, or it takes too long.
    pub async fn until_listed(&mut self, known: &Self, servers: usize) {
        let client = known.client();
        until("the server is listed", START, async || {
            if let Some(status) = self.child.as_mut().and_then(|c| c.try_wait().ok().flatten()) {
                panic!("the server exited during its start: {status}");
            }
            (client.servers().await.ok()?.len() == servers).then_some(())
        })
        .await;
    }

    /// Requests `/readyz`, and returns whether the server is ready.
    pub async fn is_ready(&self) -> bool {
        let Ok(mut stream) = TcpStream::connect(self.address()).await else { return false };
        let request = b"GET /readyz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n";
        let mut answer = String::new();
        stream.write_all(request).await.is_ok()
            && stream.read_to_string(&mut answer).await.is_ok()
            && answer.starts_with("HTTP/1.1 200")
    }

    /// Sends SIGKILL, and waits until the process has ended.
    pub async fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().await.expect("cannot kill the server");
        }
    }

    /// Sends SIGTERM, and waits until the process has ended.
    ///
    /// # Panics
    /// If it does not exit with code 0 within 30 seconds.
    pub async fn shut_down(&mut self) {
        let mut child = self.child.take().expect("the server is running");
        Pid(child.id().expect("the server was not waited for").cast_signed()).terminate();
        let ended = tokio::time::timeout(Duration::from_secs(30), child.wait()).await;
        let status = ended.expect("timed out 30 s after SIGTERM").expect("cannot wait for the server");
        assert!(status.success(), "the server exited with {status}");
    }

    /// Returns the pid of the running process.
    pub fn pid(&self) -> Pid {
        Pid(self.child.as_ref().and_then(Child::id).expect("the server is running").cast_signed())
    }

    /// Returns the pid; `None` if the process was not started, or killed by the test.
    pub fn find(&self) -> Option<Pid> {
        self.child.as_ref().and_then(Child::id).map(|id| Pid(id.cast_signed()))
    }

    /// Whether the process is running.
    pub fn is_running(&mut self) -> bool {
        self.child.as_mut().is_some_and(|c| matches!(c.try_wait(), Ok(None)))
    }

    /// Returns the base URL.
    pub fn url(&self) -> String {
        format!("http://{}", self.address())
    }

    /// Returns the URL at which the other servers reach this one.
    pub fn advertised_url(&self) -> String {
        let advertised =
            self.settings.iter().find(|(variable, _)| variable == "BELFRY_SERVER__ADVERTISE_URL");
        advertised.map_or_else(|| self.url(), |(_, url)| url.clone())
    }

    /// Returns the address on which the server listens.
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from((self.host, self.port))
    }

    /// Returns the data folder.
    pub fn data(&self) -> &Path {
        &self.data
    }

    /// Returns the admin token; `None` until the server has created it.
    pub fn token(&self) -> Option<String> {
        let token = std::fs::read_to_string(self.data.join("admin-token")).ok()?;
        Some(token.trim().to_owned()).filter(|t| !t.is_empty())
    }

    /// Returns a client that retries for up to 60 seconds, which is enough for a restart.
    pub fn client(&self) -> Client {
        let patience = Timeouts { retry_for: Duration::from_secs(60), ..Timeouts::default() };
        self.client_with(patience).expect("a started server has created its token")
    }

    /// Returns a client without retries; `None` if the server has not created its token.
    pub fn impatient_client(&self) -> Option<Client> {
        self.client_with(Timeouts { retry_for: Duration::ZERO, ..Timeouts::default() })
    }

    /// Returns a client with this retry policy; `None` if the server has not created its token.
    pub fn client_with(&self, patience: Timeouts) -> Option<Client> {
        client::install_crypto();
        Client::with_patience(&self.url(), Some(&self.token()?), patience).ok()
    }
}

/// Returns a free port below the range of outgoing connections, so that the server can use it again after a restart.
/// Tests that run in parallel search different ranges.
fn free_port() -> u16 {
    static LOOKED: AtomicU32 = AtomicU32::new(0);
    (0..4_000)
        .map(|_| LOOKED.fetch_add(1, Ordering::Relaxed))
        .filter_map(|n| {
            u16::try_from(20_000 + (std::process::id().wrapping_mul(31).wrapping_add(n)) % 12_000).ok()
        })
        .find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok())
        .expect("none of 4,000 ports is free")
}
