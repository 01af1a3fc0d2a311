//! A `belfry server` that can be killed and started again over the same data.

use std::fs::File;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use client::{Client, Patience};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

use crate::{Pid, belfry, until};

/// How long a server may take to start on a busy machine.
const START: Duration = Duration::from_secs(60);

/// A server process and its data.
#[derive(Debug)]
pub struct Server {
    data: PathBuf,
    log: PathBuf,
    port: u16,
    settings: Vec<(String, String)>,
    child: Option<Child>,
}

impl Server {
    /// Starts one over `data`, with further environment variables as `settings`.
    pub async fn start(data: &Path, log: &Path, settings: &[(&str, &str)]) -> Self {
        let settings = settings.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let mut server =
            Self { data: data.into(), log: log.into(), port: free_port(), settings, child: None };
        server.start_again().await;
        server
    }

    /// Starts one that stands by: another server owns the shards of the store that they share.
    pub async fn stand_by(data: &Path, log: &Path, settings: &[(&str, &str)]) -> Self {
        let settings = settings.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let mut server =
            Self { data: data.into(), log: log.into(), port: free_port(), settings, child: None };
        server.spawn();
        until("the server listens", START, async || TcpStream::connect(server.address()).await.ok()).await;
        server
    }

    /// Starts it once more, on the same address and over the same data; it must not be running.
    pub async fn start_again(&mut self) {
        self.spawn();
        self.until_ready().await;
    }

    /// Starts the process and does not wait until it answers.
    pub fn spawn(&mut self) {
        assert!(self.child.is_none(), "the server runs already");
        let log = File::options().create(true).append(true).open(&self.log).expect("the log can be written");
        let child = Command::new(belfry())
            .arg("server")
            .arg("--data")
            .arg(&self.data)
            .args(["--listen", &format!("127.0.0.1:{}", self.port)])
            .env("HOME", self.data.parent().expect("data lies in the site's folder"))
            .envs(self.settings.iter().map(|(k, v)| (k, v)))
            .stdin(std::process::Stdio::null())
            .stdout(log.try_clone().expect("a descriptor is free"))
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .expect("the server can be started");
        self.child = Some(child);
    }

    /// Starts the process, and waits until it has ended by itself. Answers with its exit code.
    ///
    /// # Panics
    /// If it goes on.
    pub async fn start_in_vain(&mut self) -> Option<i32> {
        self.spawn();
        let mut child = self.child.take().expect("it was started");
        let ended = tokio::time::timeout(START, child.wait()).await.expect("the server refuses to start");
        ended.expect("a child can be waited for").code()
    }

    /// Starts the process once more if it is gone, and does not wait for it.
    pub fn ensure_running(&mut self) {
        if !self.is_running() {
            self.child = None;
            self.spawn();
        }
    }

    /// Waits until it takes requests: its jobs are loaded by then.
    pub async fn until_ready(&mut self) {
        until("the server is ready", START, async || {
            if let Some(status) = self.child.as_mut().and_then(|c| c.try_wait().ok().flatten()) {
                panic!("the server ended at its start: {status}");
            }
            self.is_ready().await.then_some(())
        })
        .await;
    }

    /// What `/readyz` says, asked as any probe would.
    pub async fn is_ready(&self) -> bool {
        let Ok(mut stream) = TcpStream::connect(("127.0.0.1", self.port)).await else { return false };
        let request = b"GET /readyz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n";
        let mut answer = String::new();
        stream.write_all(request).await.is_ok()
            && stream.read_to_string(&mut answer).await.is_ok()
            && answer.starts_with("HTTP/1.1 200")
    }

    /// SIGKILL, and waits until the process is gone.
    pub async fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().await.expect("a child can be killed");
        }
    }

    /// SIGTERM, and waits for the end in good order.
    ///
    /// # Panics
    /// If it does not end with code 0 within 30 seconds.
    pub async fn shut_down(&mut self) {
        let mut child = self.child.take().expect("the server runs");
        Pid(child.id().expect("it was not waited for").cast_signed()).terminate();
        let ended = tokio::time::timeout(Duration::from_secs(30), child.wait()).await;
        let status =
            ended.expect("the server ends within 30 s of SIGTERM").expect("a child can be waited for");
        assert!(status.success(), "the server ended with {status}");
    }

    /// Its process.
    pub fn pid(&self) -> Pid {
        Pid(self.child.as_ref().and_then(Child::id).expect("the server runs").cast_signed())
    }

    /// Its process, if it was started and not killed by us.
    pub fn find(&self) -> Option<Pid> {
        self.child.as_ref().and_then(Child::id).map(|id| Pid(id.cast_signed()))
    }

    /// Whether its process is there.
    pub fn is_running(&mut self) -> bool {
        self.child.as_mut().is_some_and(|c| matches!(c.try_wait(), Ok(None)))
    }

    /// Its address.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.port))
    }

    /// Its data folder.
    pub fn data(&self) -> &Path {
        &self.data
    }

    /// The admin token that it made, once it has.
    pub fn token(&self) -> Option<String> {
        let token = std::fs::read_to_string(self.data.join("admin-token")).ok()?;
        Some(token.trim().to_owned()).filter(|t| !t.is_empty())
    }

    /// A client that tries again for as long as a restart takes.
    pub fn client(&self) -> Client {
        let patience = Patience { retry_for: Duration::from_secs(60), ..Patience::default() };
        self.client_with(patience).expect("a server that started has made its token")
    }

    /// A client that takes the first answer.
    pub fn impatient_client(&self) -> Option<Client> {
        self.client_with(Patience { retry_for: Duration::ZERO, ..Patience::default() })
    }

    /// A client with a patience of its own.
    pub fn client_with(&self, patience: Patience) -> Option<Client> {
        client::install_crypto();
        Client::with_patience(&self.url(), Some(&self.token()?), patience).ok()
    }
}

/// A free port below those that the system gives to outgoing connections, so that the server's can
/// be taken again after a restart. Tests that run at the same time look in different places.
fn free_port() -> u16 {
    static LOOKED: AtomicU32 = AtomicU32::new(0);
    (0..4_000)
        .map(|_| LOOKED.fetch_add(1, Ordering::Relaxed))
        .filter_map(|n| {
            u16::try_from(20_000 + (std::process::id().wrapping_mul(31).wrapping_add(n)) % 12_000).ok()
        })
        .find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok())
        .expect("one of 4,000 ports is free")
}
