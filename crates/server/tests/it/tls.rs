//! A server that terminates TLS itself: clients, workers and other servers on one port.
//!
//! [`Authority`] signs certificates for `localhost`. [`Foreign`] is a port whose connections count as those of other
//! machines, which the tests cannot make.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use reqwest::{StatusCode, Version, tls};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use server::clock::SystemClock;
use server::config::{Exposure, TlsConfig};
use server::listener::Listener;
use server::testing::{FakeOptions, Plan};
use server::{EngineThread, Environment, Running, ServerConfig, StartError};
use store::sqlite::{Options, SqliteStore};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;

use crate::harness::{Server, job, soon, submit};
use crate::peers::{Site, stop};

/// A certificate authority, and the files of a server.
pub(crate) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    folder: TempDir,
}

impl Authority {
    /// Creates an authority, and a certificate for `localhost`.
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let authority = Self { issuer, folder: tempfile::tempdir().unwrap() };
        authority.issue(2400);
        authority
    }

    /// Writes a new certificate for `localhost` that expires in a year.
    fn issue(&self, expires: i32) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
        params.not_after = rcgen::date_time_ymd(expires, 1, 1);
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let TlsConfig { cert_file, key_file } = self.files();
        std::fs::write(cert_file, certificate.pem()).unwrap();
        std::fs::write(key_file, key.serialize_pem()).unwrap();
    }

    pub(crate) fn files(&self) -> TlsConfig {
        let at = |name: &str| self.folder.path().join(name);
        TlsConfig { cert_file: at("server.pem"), key_file: at("server-key.pem") }
    }

    fn client(&self) -> reqwest::ClientBuilder {
        let pem = self.issuer.pem();
        let trusted = reqwest::Certificate::from_pem(pem.as_bytes()).unwrap();
        reqwest::Client::builder().tls_certs_only([trusted]).no_proxy()
    }

    /// Returns the certificate that a new connection to the server shows.
    async fn shown_by(&self, server: SocketAddr) -> CertificateDer<'static> {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.issuer.pem().as_bytes()).unwrap()).unwrap();
        let config =
            rustls::ClientConfig::builder_with_provider(rustls::crypto::ring::default_provider().into())
                .with_safe_default_protocol_versions()
                .unwrap()
                .with_root_certificates(roots)
                .with_no_client_auth();
        let stream = TcpStream::connect(server).await.unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap();
        stream.get_ref().1.peer_certificates().unwrap()[0].clone()
    }

    async fn start(&self) -> Server {
        Server::start_with(|config| config.tls = Some(self.files())).await
    }
}

fn https(server: SocketAddr) -> String {
    format!("https://localhost:{}", server.port())
}

fn admin_token(server: &Running) -> String {
    std::fs::read_to_string(&server.admin_token_path).unwrap().trim().to_owned()
}

#[tokio::test]
async fn clients_use_http_1_and_http_2_over_tls_1_2_and_1_3() {
    let authority = Authority::new();
    let server = authority.start().await;
    let url = format!("{}/readyz", https(server.running.addr));
    for version in [tls::Version::TLS_1_2, tls::Version::TLS_1_3] {
        let client = || authority.client().tls_version_min(version).tls_version_max(version);
        for (client, expected) in [(client().http1_only(), Version::HTTP_11), (client(), Version::HTTP_2)] {
            let answer = soon("an answer", client.build().unwrap().get(&url).send()).await.unwrap();
            assert_eq!((answer.status(), answer.version()), (StatusCode::OK, expected));
            assert!(answer.headers().get("strict-transport-security").is_none());
        }
    }
    server.shutdown().await;
}

#[tokio::test]
async fn a_client_that_does_not_trust_the_authority_sends_no_request() {
    let authority = Authority::new();
    let server = authority.start().await;
    let url = format!("{}/readyz", https(server.running.addr));
    let refused = Authority::new().client().build().unwrap().get(url).send().await.unwrap_err();
    assert!(refused.is_connect() && format!("{refused:?}").contains("InvalidCertificate"), "{refused:?}");
    server.shutdown().await;
}

/// D9. The session is one HTTP/2 stream of gRPC.
#[tokio::test]
async fn a_worker_runs_jobs_over_tls() {
    let authority = Authority::new();
    let server = authority.start().await;
    let options = FakeOptions {
        url: https(server.running.addr),
        ca_pem: Some(authority.issuer.pem()),
        ..server.fake().plan(|_| Plan::Succeed)
    };
    let _worker = server.worker(options).await;
    let made = submit(server.node(), job(), None).await.unwrap();
    server.until_status(made.job, model::JobStatus::Succeeded).await;
    server.shutdown().await;
}

#[tokio::test]
async fn events_are_streamed_over_tls() {
    let authority = Authority::new();
    let server = authority.start().await;
    let url = format!("{}/api/v1/events", https(server.running.addr));
    let client = authority.client().build().unwrap();
    let request =
        client.get(url).header("accept", "text/event-stream").bearer_auth(admin_token(&server.running));
    let mut answer = soon("the stream", request.send()).await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
    let made = submit(server.node(), job(), None).await.unwrap();
    let id = made.job.to_string();
    let mut received = String::new();
    soon("the event of the job", async {
        while !received.contains(&id) {
            let piece = answer.chunk().await.unwrap().expect("the stream stays open");
            received.push_str(&String::from_utf8_lossy(&piece));
        }
    })
    .await;
    drop(answer);
    server.shutdown().await;
}

/// D5. The port has connections of clients with the certificate, of other servers with their keys, and of this machine
/// without TLS.
#[tokio::test]
async fn other_servers_connect_to_the_port_of_the_clients() {
    let authority = Authority::new();
    let site = Site::with_tls(Some(authority.files()));
    let (first, second) = site.two(None).await;
    let url = first.services.members.me().url.clone().unwrap();
    assert!(url.starts_with("https://127.0.0.1:"), "{url}");
    // The leader has the answer; the standby connects with its key, although the address has `https`.
    let url = format!("{}/api/v1/workers", https(second.addr));
    let request = authority.client().build().unwrap().get(url).bearer_auth(site.token());
    assert_eq!(soon("an answer", request.send()).await.unwrap().status(), StatusCode::OK);
    assert_eq!(site.ask(&second).await, StatusCode::OK);
    stop([second, first]).await;
}

#[tokio::test]
async fn the_names_of_the_certificate_need_no_setting() {
    let authority = Authority::new();
    let server = authority.start().await;
    // HTTP/1.1 sends the header as it is.
    let client = authority.client().http1_only().build().unwrap();
    let status = async |host: &str| {
        let url = format!("https://127.0.0.1:{}/livez", server.running.addr.port());
        client.get(url).header("host", host).send().await.unwrap().status()
    };
    assert_eq!(status("localhost").await, StatusCode::OK);
    assert_eq!(status("evil.example").await, StatusCode::FORBIDDEN);
    server.shutdown().await;
}

#[tokio::test]
async fn a_renewed_certificate_is_shown_to_new_connections() {
    let authority = Authority::new();
    let server = authority.start().await;
    let address = server.running.addr;
    let first = authority.shown_by(address).await;
    authority.issue(2399);
    soon("the new certificate", async {
        while authority.shown_by(address).await == first {
            tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        }
    })
    .await;
    let metrics = format!("{}/metrics", https(address));
    let request = authority.client().build().unwrap().get(metrics).bearer_auth(admin_token(&server.running));
    let text = request.send().await.unwrap().text().await.unwrap();
    assert!(text.contains("\nbelfry_tls_certificate_expires_seconds 13537929600\n"), "{text}");
    server.shutdown().await;
}

#[tokio::test]
async fn a_server_with_an_expired_certificate_starts_and_reports_it() {
    let authority = Authority::new();
    authority.issue(2020);
    let server = authority.start().await;
    let refused =
        authority.client().build().unwrap().get(https(server.running.addr)).send().await.unwrap_err();
    assert!(format!("{refused:?}").contains("Expired"), "{refused:?}");
    let url = format!("{}/readyz?verbose", server.url());
    let shown: serde_json::Value = reqwest::get(url).await.unwrap().json().await.unwrap();
    let check = shown["checks"].as_array().unwrap().iter().find(|check| check["name"] == "tls").unwrap();
    assert_eq!(check["ok"], false);
    assert_eq!(check["detail"], "the TLS certificate has expired on 2020-01-01T00:00:00Z");
    server.shutdown().await;
}

#[tokio::test]
async fn a_server_without_a_usable_certificate_does_not_start() {
    let authority = Authority::new();
    std::fs::write(authority.files().key_file, "no key").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let mut config = ServerConfig::new(folder.path());
    config.listen.set_port(0);
    config.tls = Some(authority.files());
    let refused = server::start(config).await.err().expect("the start fails");
    let StartError::Tls(error) = &refused else { panic!("{refused}") };
    assert!(error.to_string().contains("server-key.pem` contains no unencrypted private key"), "{error}");
    assert!(refused.help().contains("unencrypted"));
}

/// A port whose connections come from other machines.
struct Foreign(TcpListener);

impl Listener for Foreign {
    type Stream = TcpStream;

    async fn accept(&mut self) -> io::Result<TcpStream> {
        self.0.accept().await.map(|(stream, _)| stream)
    }

    async fn peek(stream: &mut TcpStream, first: &mut [u8]) -> io::Result<usize> {
        stream.peek(first).await
    }

    fn peer(_stream: &TcpStream) -> Option<IpAddr> {
        Some(IpAddr::from([10, 0, 0, 9]))
    }

    fn is_local(_stream: &TcpStream) -> bool {
        false
    }
}

/// Starts a server whose clients are on other machines.
async fn start_foreign(folder: &Path, change: impl FnOnce(&mut ServerConfig)) -> Running {
    let mut config = ServerConfig::new(folder);
    config.shutdown_grace = model::Duration::from_millis(300);
    change(&mut config);
    std::fs::create_dir_all(folder).unwrap();
    let store =
        SqliteStore::open(config.store_path(), Options { shards: config.shards, ..Options::default() });
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let site = Environment {
        store: Arc::new(store.unwrap()),
        listener: Foreign(listener),
        addr,
        clock: Arc::new(SystemClock),
        engine: EngineThread::Dedicated,
    };
    server::start_at(config, site).await.unwrap()
}

/// Sends a request without TLS, and returns the complete answer.
async fn plain(server: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(server).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    soon("the end of the answer", stream.read_to_string(&mut answer)).await.unwrap();
    answer
}

#[tokio::test]
async fn a_request_of_another_machine_without_tls_is_refused() {
    let (authority, folder) = (Authority::new(), tempfile::tempdir().unwrap());
    let server = start_foreign(folder.path(), |config| config.tls = Some(authority.files())).await;
    for path in ["/api/v1/jobs", "/readyz"] {
        let request = format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: application/json\r\n\r\n");
        let refused = plain(server.addr, &request).await;
        assert!(refused.starts_with("HTTP/1.1 400") && refused.contains("\"tls_required\""), "{refused}");
    }
    let page = "GET /jobs HTTP/1.1\r\nHost: belfry.example:7070\r\nAccept: text/html\r\n\r\n";
    let moved = plain(server.addr, page).await;
    assert!(
        moved.starts_with("HTTP/1.1 307") && moved.contains("location: https://belfry.example:7070/jobs\r\n"),
        "{moved}"
    );
    let secure = authority.client().build().unwrap().get(format!("{}/livez", https(server.addr)));
    assert_eq!(secure.send().await.unwrap().status(), StatusCode::OK);
    stop([server]).await;
}

/// The log of the worker then shows what to change.
#[tokio::test]
async fn a_worker_without_tls_gets_the_reason() {
    let (authority, folder) = (Authority::new(), tempfile::tempdir().unwrap());
    let server = start_foreign(folder.path(), |config| config.tls = Some(authority.files())).await;
    let mut client = server::testing::client(&format!("http://{}", server.addr)).await.unwrap();
    let refused = client.session(tokio_stream::empty()).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::FailedPrecondition);
    assert!(refused.message().contains("only with TLS"), "{refused}");
    stop([server]).await;
}

/// While clients and workers move to `https`, the server serves both.
#[tokio::test]
async fn an_insecure_server_accepts_both() {
    let (authority, folder) = (Authority::new(), tempfile::tempdir().unwrap());
    let server = start_foreign(folder.path(), |config| {
        config.tls = Some(authority.files());
        config.exposure = Exposure::Insecure;
    })
    .await;
    let request = "GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n";
    assert!(plain(server.addr, request).await.starts_with("HTTP/1.1 200"));
    let secure = authority.client().build().unwrap().get(format!("{}/livez", https(server.addr)));
    assert_eq!(secure.send().await.unwrap().status(), StatusCode::OK);
    stop([server]).await;
}
