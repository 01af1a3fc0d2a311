//! Servers of a Raft cluster, which connect over their own ports.
//!
//! [`Site`] starts servers in this process, each with its own folder and port. They connect over TCP and TLS as on
//! different machines.
//!
//! # Invariants
//! - What one server has acknowledged, every other one reads.
//! - Only a server that knows the join token becomes a member, and only a member gets entries or votes.
//! - A folder continues as the node that it was.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use model::JobId;
use reqwest::StatusCode;
use serde_json::json;
use server::config::{Bootstrap, ObjectsConfig, RaftConfig, StoreConfig, TlsConfig};
use server::node::Readiness;
use server::{RaftMemberError, Running, ServerConfig, StartError};
use tempfile::TempDir;
use tokio::net::{TcpListener, TcpStream};

use crate::harness::soon;
use crate::tls::Authority;

/// Servers in this process, and their folders.
struct Site {
    folder: TempDir,
    /// TLS of all servers for their clients.
    tls: Option<TlsConfig>,
}

/// A free port. The servers of a cluster remember each other's addresses, so that port 0 cannot be used.
async fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap()
}

fn bootstrap() -> RaftConfig {
    RaftConfig { bootstrap: Some(Bootstrap::Empty), ..RaftConfig::default() }
}

impl Site {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), tls: None }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn join(&self, address: SocketAddr) -> RaftConfig {
        RaftConfig {
            join: vec![address.to_string()],
            join_token_file: Some(self.path("first").join("join-token")),
            ..RaftConfig::default()
        }
    }

    fn config(&self, name: &str, listen: SocketAddr, raft: RaftConfig) -> ServerConfig {
        let mut config = ServerConfig::new(self.path(name));
        config.listen = listen;
        config.name = name.into();
        config.shards = 4;
        config.store = StoreConfig::Raft(raft);
        config.tls.clone_from(&self.tls);
        config.objects = ObjectsConfig::Local(Some(self.path("objects")));
        config.shutdown_grace = model::Duration::from_millis(300);
        config
    }

    async fn start(&self, name: &str, listen: SocketAddr, raft: RaftConfig) -> Result<Running, StartError> {
        soon("the server starts", Box::pin(server::start(self.config(name, listen, raft)))).await
    }

    async fn first(&self) -> Running {
        let first = self.start("first", free_address().await, bootstrap()).await.unwrap();
        soon("the first leads", first.node.wait_ready(|now| *now == Readiness::Ready)).await;
        first
    }

    /// Starts three servers; the first one leads.
    async fn three(&self) -> [Running; 3] {
        let first = Box::pin(self.first()).await;
        let join = async |name| self.start(name, free_address().await, self.join(first.addr)).await.unwrap();
        let second = Box::pin(join("second")).await;
        let third = Box::pin(join("third")).await;
        [first, second, third]
    }

    fn client(&self) -> reqwest::Client {
        let token = std::fs::read_to_string(self.path("first").join("admin-token")).unwrap();
        let token = format!("Bearer {}", token.trim()).try_into().unwrap();
        let headers = [(reqwest::header::AUTHORIZATION, token)].into_iter().collect();
        reqwest::Client::builder().default_headers(headers).build().unwrap()
    }

    /// Submits a job to a server, again while it knows no leader.
    async fn submit(&self, server: SocketAddr) -> JobId {
        let url = format!("http://{server}/api/v1/jobs");
        let body = json!({"run": {"process": {"command": ["true"]}}});
        let submitting = async {
            loop {
                let answer = self.client().post(&url).json(&body).send().await.unwrap();
                if answer.status() != StatusCode::SERVICE_UNAVAILABLE {
                    break answer;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        let answer = soon("an answer", submitting).await;
        assert_eq!(answer.status(), StatusCode::CREATED, "{}", answer.text().await.unwrap());
        let created: serde_json::Value = answer.json().await.unwrap();
        created["id"].as_str().unwrap().parse().unwrap()
    }

    /// Whether a server finds a job.
    async fn finds(&self, server: SocketAddr, job: JobId) -> bool {
        let url = format!("http://{server}/api/v1/jobs/{job}");
        soon("an answer", self.client().get(url).send()).await.unwrap().status() == StatusCode::OK
    }
}

async fn stop(servers: impl IntoIterator<Item = Running>) {
    for server in servers {
        soon("the shutdown", server.shutdown()).await.unwrap();
    }
}

fn leads(server: &Running) -> bool {
    server.node.ready() == Readiness::Ready
}

fn refusal(started: Result<Running, StartError>) -> RaftMemberError {
    match started {
        Err(StartError::RaftMember(error)) => error,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("the server has started"),
    }
}

/// H3. The leader tells about all members, and the others only about themselves.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn metrics_tell_which_members_are_down() {
    let site = Site::new();
    let [first, second, third] = site.three().await;
    let values = async |at: &Running, name: &str| -> Vec<String> {
        let url = format!("http://{}/metrics", at.addr);
        let text = soon("an answer", site.client().get(url).send()).await.unwrap().text().await.unwrap();
        let mut found: Vec<_> =
            text.lines().filter_map(|line| line.strip_prefix(name)).map(str::to_owned).collect();
        found.sort();
        found
    };
    assert_eq!(
        values(&second, "belfry_raft_members").await,
        ["{status=\"down\"} 0", "{status=\"running\"} 0"]
    );
    stop([third]).await;
    let seen = async {
        while values(&first, "belfry_raft_members").await != ["{status=\"down\"} 1", "{status=\"running\"} 2"]
        {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    soon("the leader notices that a member is down", seen).await;
    site.submit(first.addr).await;
    let missing = values(&first, "belfry_raft_missing_entries{member=").await;
    assert!(missing.iter().any(|line| line.starts_with("\"third\"") && !line.ends_with(" 0")), "{missing:?}");
    stop([first, second]).await;
}

/// D6. A change is accepted by any server, and read from any other one at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_servers_form_a_cluster_and_each_accepts_every_request() {
    let site = Site::new();
    let servers = site.three().await;
    assert_eq!(servers.iter().filter(|server| leads(server)).count(), 1);
    for at in &servers {
        // A follower forwards it as soon as it has seen the leader.
        let created = site.submit(at.addr).await;
        for reader in &servers {
            assert!(site.finds(reader.addr, created).await, "{} after {}", reader.addr, at.addr);
        }
    }
    let [first, second, third] = servers;
    stop([third, second, first]).await;
}

/// D5, D6. The certificate is for clients. The members prove their own keys on the same port, also for forwarded requests.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_with_a_certificate_form_a_cluster() {
    let authority = Authority::new();
    let site = Site { tls: Some(authority.files()), ..Site::new() };
    let servers = site.three().await;
    for at in &servers {
        let url = at.services.members.me().url.clone().unwrap();
        assert_eq!(url, format!("https://{}", at.addr));
        let created = site.submit(at.addr).await;
        for reader in &servers {
            assert!(site.finds(reader.addr, created).await, "{} after {}", reader.addr, at.addr);
        }
    }
    let [first, second, third] = servers;
    stop([third, second, first]).await;
}

/// D6, D8. The leader stops, and later all servers do: nothing is lost, and the same nodes continue.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_continues_without_its_leader_and_after_a_stop_of_all() {
    let site = Site::new();
    let [first, second, third] = site.three().await;
    let addresses = [first.addr, second.addr, third.addr];
    let before = site.submit(first.addr).await;
    stop([first]).await;
    let follower_leads = async {
        while !leads(&second) && !leads(&third) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    soon("another server leads", follower_leads).await;
    let after = site.submit(second.addr).await;
    assert!(site.finds(third.addr, before).await && site.finds(third.addr, after).await);
    stop([second, third]).await;

    // Without any flag: the folders say it.
    let restart = |name, at: usize| site.start(name, addresses[at], RaftConfig::default());
    let (first, second, third) = tokio::join!(restart("first", 0), restart("second", 1), restart("third", 2));
    let servers = [first.unwrap(), second.unwrap(), third.unwrap()];
    for server in &servers {
        assert!(site.finds(server.addr, before).await && site.finds(server.addr, after).await);
    }
    stop(servers).await;
}

/// D8. A server that has another address after a restart tells it to the others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_has_moved_is_found_again() {
    let site = Site::new();
    let [first, second, third] = site.three().await;
    stop([third]).await;
    let moved = site.start("third", free_address().await, RaftConfig::default()).await.unwrap();
    let created = site.submit(first.addr).await;
    assert!(site.finds(moved.addr, created).await);
    stop([moved, second, first]).await;
}

/// The process is alive, and must not be restarted, while a majority is missing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn liveness_is_answered_and_requests_are_refused_without_a_majority() {
    let site = Site::new();
    let [first, second, third] = site.three().await;
    let address = second.addr;
    stop([second, third, first]).await;
    let alone = tokio::spawn(server::start(site.config("second", address, RaftConfig::default())));
    soon("it listens", async {
        while TcpStream::connect(address).await.is_err() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    let status = async |path: &str| {
        let answer = reqwest::get(format!("http://{address}{path}")).await.unwrap();
        (answer.status(), answer.text().await.unwrap())
    };
    assert_eq!(status("/livez").await.0, StatusCode::OK);
    for path in ["/readyz", "/api/v1/jobs", "/"] {
        let (code, text) = status(path).await;
        assert_eq!(code, StatusCode::SERVICE_UNAVAILABLE, "{path}: {text}");
        assert!(text.contains("a majority of the servers must run"), "{path}: {text}");
    }
    alone.abort();
}

/// E7. Without the token, a program cannot become a member.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_with_a_wrong_token_is_refused() {
    let site = Site::new();
    let first = site.first().await;
    let token = std::fs::read_to_string(site.path("first").join("join-token")).unwrap();
    let (before, secret) = token.trim().rsplit_once('.').unwrap();
    let other = if secret.starts_with('A') { "B" } else { "A" };
    let wrong = site.path("wrong-token");
    std::fs::write(&wrong, format!("{before}.{other}{}", &secret[1..])).unwrap();
    let join = RaftConfig { join_token_file: Some(wrong.clone()), ..site.join(first.addr) };
    let refused = refusal(site.start("second", free_address().await, join.clone()).await);
    assert!(refused.to_string().contains("does not know the secret"), "{refused}");
    std::fs::write(&wrong, "hunter2").unwrap();
    let refused = refusal(site.start("second", free_address().await, join).await);
    assert!(refused.to_string().contains("wrong-token"), "{refused}");
    // The folder is not spoiled.
    let second = site.start("second", free_address().await, site.join(first.addr)).await.unwrap();
    stop([second, first]).await;
}

/// A disk that was wiped must not become a second cluster, and a folder not a second store.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_is_created_only_on_request_and_only_once() {
    let site = Site::new();
    let refused = refusal(site.start("first", free_address().await, RaftConfig::default()).await);
    assert!(matches!(refused, RaftMemberError::NoCluster { .. }), "{refused}");
    assert!(refused.help().contains("--bootstrap") && !site.path("first").join("raft").exists());
    stop([site.first().await]).await;
    let again = refusal(site.start("first", free_address().await, bootstrap()).await);
    assert!(again.to_string().contains("already belongs to node"), "{again}");

    let mut embedded = site.config("first", free_address().await, RaftConfig::default());
    embedded.store = StoreConfig::Embedded;
    let member = refusal(server::start(embedded).await);
    assert!(member.help().contains("--store raft"), "{member}");
    let mut embedded = site.config("embedded", free_address().await, RaftConfig::default());
    embedded.store = StoreConfig::Embedded;
    stop([server::start(embedded).await.unwrap()]).await;
    let other = refusal(site.start("embedded", free_address().await, bootstrap()).await);
    assert!(matches!(other, RaftMemberError::OtherStore { .. }), "{other}");
}

fn bootstrap_from(source: PathBuf) -> RaftConfig {
    RaftConfig { bootstrap: Some(Bootstrap::From(source)), ..RaftConfig::default() }
}

/// D6. One server becomes a cluster without another folder, and nothing is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_embedded_store_becomes_a_cluster_in_its_own_folder() {
    let (site, address) = (Site::new(), free_address().await);
    let embedded = || {
        let mut config = site.config("first", address, RaftConfig::default());
        config.store = StoreConfig::Embedded;
        server::start(config)
    };
    let first = Box::pin(soon("the server starts", embedded())).await.unwrap();
    let before = site.submit(first.addr).await;
    let other_folder = bootstrap_from(site.path("first"));
    let refused = refusal(Box::pin(site.start("other", free_address().await, other_folder)).await);
    assert!(refused.help().contains("stop the server"), "{refused:?}");
    stop([first]).await;

    let nowhere = bootstrap_from(site.path("nowhere"));
    let refused = refusal(Box::pin(site.start("other", address, nowhere)).await);
    assert!(matches!(refused, RaftMemberError::Restore(_)), "{refused:?}");

    let first = Box::pin(site.start("first", address, bootstrap_from(site.path("first")))).await.unwrap();
    assert!(first.first_admin_token.is_none(), "the tokens are those of the store");
    assert!(site.finds(first.addr, before).await);
    let after = site.submit(first.addr).await;
    let second = site.start("second", free_address().await, site.join(first.addr));
    let second = Box::pin(second).await.unwrap();
    assert!(site.finds(second.addr, before).await && site.finds(second.addr, after).await);
    stop([second, first]).await;

    let refused = refusal(Box::pin(soon("the server starts", embedded())).await);
    assert!(matches!(refused, RaftMemberError::NotEmbedded { .. }), "{refused:?}");
    let again = Box::pin(site.start("first", address, bootstrap_from(site.path("first")))).await;
    assert!(matches!(refusal(again), RaftMemberError::Identity(_)), "the cluster exists");
}

/// D8. The servers of a majority are lost for good.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_without_a_majority_continues_from_one_member() {
    let site = Site::new();
    let servers = Box::pin(site.three()).await;
    let job = site.submit(servers[0].addr).await;
    let address = servers[1].addr;
    stop(servers).await;
    let (folder, lost) = (site.path("second").join("raft"), site.path("second").join("raft.lost"));
    std::fs::rename(folder, &lost).unwrap();
    let second = Box::pin(site.start("second", address, bootstrap_from(lost.clone()))).await.unwrap();
    assert!(site.finds(address, job).await);
    site.submit(address).await;
    assert!(lost.join("node.json").exists(), "the old member is unchanged");
    // A server of the lost cluster is none of the new one.
    let tried = tokio::time::timeout(
        Duration::from_secs(3),
        server::start(site.config("third", free_address().await, RaftConfig::default())),
    );
    assert!(Box::pin(tried).await.is_err(), "it waits for the majority that was lost");
    assert!(leads(&second));
    stop([second]).await;
}

/// D6, A11. No other storage is configured: each server has a copy of each artifact.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_artifact_survives_the_server_that_stored_it() {
    let site = Site::new();
    let config = async |name: &str, listen: SocketAddr, raft: RaftConfig| {
        let mut config = site.config(name, listen, raft);
        config.objects = ObjectsConfig::Local(None);
        Box::pin(soon("the server starts", server::start(config))).await.unwrap()
    };
    let first = config("first", free_address().await, bootstrap()).await;
    soon("the first leads", first.node.wait_ready(|now| *now == Readiness::Ready)).await;
    let put = async |server: SocketAddr, name: &str| {
        let url = format!("http://{server}/api/v1/artifacts/{name}");
        let answer = site.client().put(&url).body(format!("bytes of {name}")).send().await.unwrap();
        assert!(answer.status().is_success(), "{}", answer.text().await.unwrap());
    };
    let read = async |server: SocketAddr, name: &str| {
        let url = format!("http://{server}/api/v1/artifacts/{name}");
        let answer = site.client().get(&url).send().await.unwrap();
        (answer.status() == StatusCode::OK).then_some(answer.text().await.unwrap())
    };
    put(first.addr, "alone").await;
    let second = config("second", free_address().await, site.join(first.addr)).await;
    let third = config("third", free_address().await, site.join(first.addr)).await;
    put(second.addr, "together").await;
    // A server that joins gets what the others have.
    let copies = |name: &str| {
        let folder = site.path(name).join("objects/artifacts/default");
        std::fs::read_dir(folder).map_or(0, Iterator::count)
    };
    let all_have_both = async {
        while ["first", "second", "third"].iter().any(|name| copies(name) < 2) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    soon("all servers have both", all_have_both).await;
    // Programs that are no servers get nothing.
    let names = format!("http://{}/internal/objects/folders", second.addr);
    assert_eq!(site.client().get(&names).send().await.unwrap().status(), StatusCode::NOT_FOUND);
    stop([first]).await;
    for server in [&second, &third] {
        for name in ["alone", "together"] {
            let found = async {
                loop {
                    if let Some(text) = read(server.addr, name).await {
                        break text;
                    }
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            };
            assert_eq!(soon("the artifact is read", found).await, format!("bytes of {name}"));
        }
    }
    stop([second, third]).await;
}

/// E7. Servers that share a store decrypt each other's secrets.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_joins_gets_the_secret_key() {
    let site = Site::new();
    let first = Box::pin(site.first()).await;
    let address = free_address().await;
    let second = Box::pin(site.start("second", address, site.join(first.addr))).await.unwrap();
    let key_of = |name: &str| std::fs::read_to_string(site.path(name).join("secret.key")).unwrap();
    assert_eq!(key_of("second"), key_of("first"));
    // An operator replaces the file of one server.
    stop([second]).await;
    let zeros = format!("{}=", "A".repeat(43));
    std::fs::write(site.path("second").join("secret.key"), zeros).unwrap();
    let second = Box::pin(site.start("second", address, RaftConfig::default())).await.unwrap();
    let problem = async {
        loop {
            let url = format!("http://{}/readyz?verbose", first.addr);
            let answer: serde_json::Value =
                site.client().get(&url).send().await.unwrap().json().await.unwrap();
            let checks = answer["checks"].as_array().unwrap();
            let check = checks.iter().find(|check| check["name"] == "secret_key").unwrap();
            if check["ok"] == false {
                break check["detail"].as_str().unwrap().to_owned();
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let problem = soon("the problem is reported", problem).await;
    assert!(
        problem.contains("server `second` encrypts secrets with a key that this server does not have"),
        "{problem}"
    );
    stop([second, first]).await;
}
