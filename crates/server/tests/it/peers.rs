//! Two servers of one store, and peers that pretend to be one of them.
//!
//! [`Site`] starts servers of one store in this process, each with its own key, which it announces in its
//! row. A test can put something else at the announced address: a proxy that records all bytes, an impostor,
//! or a peer that sends nothing.
//!
//! # Invariants
//! - A request is forwarded only over TLS, and only to a server whose key is in the store.
//! - Only a server that the store knows can mark a request as forwarded.
//! - A connection that stalls delays no other one.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use reqwest::StatusCode;
use server::config::{ObjectsConfig, PostgresConfig, StoreConfig, TlsConfig};
use server::members::Leader;
use server::node::Readiness;
use server::peers::Identity;
use server::{Running, ServerConfig};
use store::Store;
use store::sqlite::{Options, SqliteStore};
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;

use crate::harness::{job, soon};

/// First byte of a TLS handshake.
const HANDSHAKE: u8 = 0x16;

/// Servers of one store in this process.
pub(crate) struct Site {
    store: Arc<dyn Store>,
    folder: TempDir,
    /// TLS of all servers for their clients.
    tls: Option<TlsConfig>,
}

impl Site {
    fn new() -> Self {
        Self::with_tls(None)
    }

    /// Creates servers with a certificate for their clients.
    pub(crate) fn with_tls(tls: Option<TlsConfig>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let options = Options { shards: 4, ballast_bytes: 0, ..Options::default() };
        let store = Arc::new(SqliteStore::open(folder.path().join("db"), options).unwrap());
        Self { store, folder, tls }
    }

    /// Starts a server that announces `url`, or its listening address.
    async fn start(&self, name: &str, url: Option<SocketAddr>) -> Running {
        let mut config = ServerConfig::new(self.folder.path().join(name));
        config.listen.set_port(0);
        config.name = name.into();
        config.shards = 4;
        // With a shared database, servers read the cluster often.
        config.store = StoreConfig::Postgres(PostgresConfig {
            url: "postgres://user@127.0.0.1/unused".into(),
            password: None,
            sessions: 1,
            allow_unsafe: false,
            require_sync_standby: false,
        });
        config.objects = ObjectsConfig::Local(Some(self.folder.path().join("objects")));
        // Otherwise, a server without the key waits until it has it from another one.
        config.secret_key_file = Some(self.folder.path().join("secret.key"));
        config.shutdown_grace = model::Duration::from_millis(300);
        config.advertise_url = url.map(|url| format!("http://{url}"));
        config.tls.clone_from(&self.tls);
        config.host_names = vec![format!("{name}.example")];
        server::start_with(config, Arc::clone(&self.store)).await.unwrap()
    }

    /// Starts a leader, and a standby that knows it.
    pub(crate) async fn two(&self, url_of_first: Option<SocketAddr>) -> (Running, Running) {
        let first = self.start("first", url_of_first).await;
        soon("the first leads", first.node.wait_ready(|now| *now == Readiness::Ready)).await;
        let second = self.start("second", None).await;
        until_led_by(&second, &first).await;
        (first, second)
    }

    pub(crate) fn token(&self) -> String {
        let path = self.folder.path().join("first").join("admin-token");
        std::fs::read_to_string(path).unwrap().trim().to_owned()
    }

    /// Sends a request that only the leader can answer.
    pub(crate) async fn ask(&self, server: &Running) -> StatusCode {
        self.ask_with(server, &[]).await
    }

    async fn ask_with(&self, server: &Running, headers: &[(&'static str, &str)]) -> StatusCode {
        let url = format!("http://{}/api/v1/workers", server.addr);
        let mut request = reqwest::Client::new().get(url).bearer_auth(self.token());
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        soon("an answer", request.send()).await.unwrap().status()
    }
}

async fn until_led_by(server: &Running, leader: &Running) {
    let members = &server.services.members;
    let mut seen = members.watch();
    let wanted = leader.services.members.me().id;
    soon("the leader is seen", async {
        while !matches!(members.leader(), Leader::Other { server, .. } if server.id == wanted) {
            seen.changed().await.unwrap();
        }
    })
    .await;
}

pub(crate) async fn stop(servers: impl IntoIterator<Item = Running>) {
    for server in servers {
        soon("the shutdown", server.shutdown()).await.unwrap();
    }
}

/// Bytes received on each connection.
#[derive(Clone, Default)]
struct Heard(Arc<Mutex<Vec<Vec<u8>>>>);

impl Heard {
    fn begin(&self) -> usize {
        let mut all = self.0.lock().unwrap();
        all.push(Vec::new());
        all.len() - 1
    }

    fn add(&self, connection: usize, bytes: &[u8]) {
        self.0.lock().unwrap()[connection].extend_from_slice(bytes);
    }

    fn all(&self) -> Vec<Vec<u8>> {
        self.0.lock().unwrap().clone()
    }

    fn tells(&self, secret: &str) -> bool {
        let mut all = self.all().into_iter();
        all.any(|bytes| bytes.windows(secret.len()).any(|window| window == secret.as_bytes()))
    }
}

/// Starts a proxy that forwards and records the bytes to a server.
async fn eavesdropper(heard: Heard) -> (SocketAddr, tokio::sync::watch::Sender<Option<SocketAddr>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (target, known) = tokio::sync::watch::channel(None);
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (near, _) = listener.accept().await.unwrap();
            let target: SocketAddr = known.borrow().unwrap();
            let far = TcpStream::connect(target).await.unwrap();
            let ((near_in, near_out), (far_in, far_out)) = (near.into_split(), far.into_split());
            let heard = heard.clone();
            tokio::spawn(async move { copy(near_in, far_out, Some(heard)).await });
            tokio::spawn(async move { copy(far_in, near_out, None).await });
        }
    });
    (address, target)
}

async fn copy(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin, heard: Option<Heard>) {
    let connection = heard.as_ref().map(Heard::begin);
    let mut buffer = vec![0; 16 << 10];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        if let (Some(heard), Some(connection)) = (&heard, connection) {
            heard.add(connection, &buffer[..length]);
        }
        if to.write_all(&buffer[..length]).await.is_err() {
            return;
        }
    }
}

/// D5. Any server accepts any request; the connection between two servers is encrypted.
#[tokio::test]
async fn forwarded_requests_use_tls_between_servers() {
    let (site, heard) = (Site::new(), Heard::default());
    let (address, target) = eavesdropper(heard.clone()).await;
    let first = site.start("first", Some(address)).await;
    target.send_replace(Some(first.addr));
    soon("the first leads", first.node.wait_ready(|now| *now == Readiness::Ready)).await;
    let second = site.start("second", None).await;
    until_led_by(&second, &first).await;
    for _ in 0..3 {
        assert_eq!(site.ask(&second).await, StatusCode::OK);
    }
    let client = reqwest::Client::new();
    let url = format!("http://{}/api/v1/jobs", second.addr);
    let submit = client.post(url).bearer_auth(site.token()).json(&job()).send();
    assert_eq!(soon("the job is accepted", submit).await.unwrap().status(), StatusCode::CREATED);
    let connections = heard.all();
    // The servers also compare their secret keys.
    assert!(
        (1..=2).contains(&connections.len()),
        "a connection is kept for all requests: {}",
        connections.len()
    );
    assert!(connections.iter().all(|bytes| bytes[0] == HANDSHAKE));
    assert!(!heard.tells(&site.token()) && !heard.tells("HTTP/1.1"), "the forwarded requests are encrypted");
    stop([second, first]).await;
}

/// D5. An attacker at the address of the leader gets no request: neither over TLS with its own key, nor without TLS.
#[tokio::test]
async fn an_impostor_at_the_address_of_the_leader_gets_no_byte_of_a_request() {
    let site = Site::new();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (first, second) = site.two(Some(address)).await;

    let (asked, raw) = tokio::join!(site.ask(&second), async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut bytes = vec![0; 16 << 10];
        let length = stream.read(&mut bytes).await.unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}").await.unwrap();
        stream.shutdown().await.unwrap();
        let _rest = stream.read_to_end(&mut bytes).await;
        bytes.truncate(length);
        bytes
    });
    assert_eq!((asked, raw[0]), (StatusCode::SERVICE_UNAVAILABLE, HANDSHAKE));
    assert!(!raw.windows(4).any(|window| window == b"HTTP"));

    let impostor = Identity::generate().acceptor();
    let (asked, told) = tokio::join!(site.ask(&second), async {
        let (stream, _) = listener.accept().await.unwrap();
        let mut told = Vec::new();
        if let Ok(mut stream) = impostor.accept(stream).await {
            let _refused = stream.read_to_end(&mut told).await;
        }
        told
    });
    assert_eq!((asked, told), (StatusCode::SERVICE_UNAVAILABLE, Vec::new()));
    stop([second, first]).await;
}

/// D5. A key alone does not identify a server: its fingerprint must be in the store.
#[tokio::test]
async fn a_peer_with_an_unknown_key_is_refused() {
    let site = Site::new();
    let (first, second) = site.two(None).await;
    let key = first.services.members.identity().fingerprint();
    let stranger = Identity::generate();
    let connector = TlsConnector::from(Arc::new(stranger.client_config(key)));
    let answer = async |headers: &str| {
        let stream = TcpStream::connect(first.addr).await.unwrap();
        let mut stream = connector.connect("server".try_into().unwrap(), stream).await.unwrap();
        let request =
            format!("POST /livez HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 2\r\n{headers}\r\n{{}}");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.unwrap();
        String::from_utf8(answer).unwrap()
    };
    // The peer gets the information that nothing was done. The connection is closed, because the peer may be known a
    // moment later.
    let refused = soon("the refusal", answer("")).await;
    assert!(refused.starts_with("HTTP/1.1 503") && refused.contains("\"loading\""), "{refused}");
    let mut known = second.services.members.me().clone();
    known.id = model::ServerId::from_bits(1 << 80);
    known.fingerprint = Some(stranger.fingerprint());
    site.store.announce(&known, None, model::Duration::from_secs(60)).await.unwrap();
    let welcome = soon("the acceptance", answer("Connection: close\r\n")).await;
    assert!(welcome.starts_with("HTTP/1.1 405"), "{welcome}");
    stop([second, first]).await;
}

/// D5. The leader may have another host name than the server that the client uses.
#[tokio::test]
async fn the_host_name_is_checked_by_the_server_of_the_client() {
    let site = Site::new();
    let (first, second) = site.two(None).await;
    for (server, host, expected) in [
        (&second, "second.example", StatusCode::OK),
        (&second, "first.example", StatusCode::FORBIDDEN),
        (&first, "second.example", StatusCode::FORBIDDEN),
    ] {
        assert_eq!(site.ask_with(server, &[("host", host)]).await, expected, "{host}");
    }
    stop([second, first]).await;
}

/// D5. Only servers may say which server forwarded a request.
#[tokio::test]
async fn a_client_cannot_mark_its_request_as_forwarded() {
    let site = Site::new();
    let (first, second) = site.two(None).await;
    let server = first.services.members.me().id.to_string();
    for said in [server.as_str(), "1", &format!("{server}.AAAA")] {
        let headers = [("x-belfry-forwarded-by", said), ("x-request-id", "mine")];
        assert_eq!(site.ask_with(&second, &headers).await, StatusCode::OK, "{said}");
        assert_eq!(site.ask_with(&first, &headers).await, StatusCode::OK, "{said}");
    }
    stop([second, first]).await;
}

/// D5, D8. A restarted server has another key, which the others read from the store.
#[tokio::test]
async fn restarted_servers_authenticate_with_their_new_keys() {
    let site = Site::new();
    let (first, second) = site.two(None).await;
    assert_eq!(site.ask(&second).await, StatusCode::OK);
    stop([first]).await;
    soon("the second leads", second.node.wait_ready(|now| *now == Readiness::Ready)).await;
    let first = site.start("first", None).await;
    until_led_by(&first, &second).await;
    assert_eq!(site.ask(&first).await, StatusCode::OK);
    stop([second]).await;
    soon("the first leads", first.node.wait_ready(|now| *now == Readiness::Ready)).await;
    let second = site.start("second", None).await;
    until_led_by(&second, &first).await;
    assert_eq!(site.ask(&second).await, StatusCode::OK);
    stop([second, first]).await;
}

/// D5. A client that sends nothing, or stops within a handshake, delays no other connection.
#[tokio::test]
async fn stalled_connections_delay_no_other_connection() {
    let site = Site::new();
    let (first, second) = site.two(None).await;
    let mut still = Vec::new();
    for number in 0..50 {
        let mut stream = TcpStream::connect(first.addr).await.unwrap();
        if number % 2 == 0 {
            stream.write_all(&[HANDSHAKE, 3, 1]).await.unwrap();
        }
        still.push(stream);
    }
    let asked = tokio::time::timeout(Duration::from_secs(5), site.ask(&second)).await;
    assert_eq!(asked.expect("the request is answered meanwhile"), StatusCode::OK);
    drop(still);
    stop([second, first]).await;
}
