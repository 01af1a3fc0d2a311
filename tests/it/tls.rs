//! Workers and the command line reach a server over TLS: through a proxy that terminates it, or directly.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use harness::{Site, until};
use model::{JobSpec, JobStatus};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

/// A certificate authority, and a certificate for `localhost` that it signed.
struct Authority {
    pem: String,
    acceptor: TlsAcceptor,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(["localhost".to_owned()]).unwrap();
        let certificate = certificate.signed_by(&key, &authority).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(
                vec![certificate.der().clone()],
                PrivateKeyDer::Pkcs8(key.serialize_der().into()),
            )
            .unwrap();
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Self { pem: authority.pem(), acceptor: TlsAcceptor::from(Arc::new(config)) }
    }

    /// Starts a proxy that forwards decrypted connections to `target`, and returns its URL.
    async fn serve(&self, target: SocketAddr) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://localhost:{}", listener.local_addr().unwrap().port());
        let acceptor = self.acceptor.clone();
        tokio::spawn(async move {
            while let Ok((connection, _)) = listener.accept().await {
                let acceptor = acceptor.clone();
                tokio::spawn(async move {
                    let Ok(mut client) = acceptor.accept(connection).await else { return };
                    let mut server = TcpStream::connect(target).await.unwrap();
                    let _broken = tokio::io::copy_bidirectional(&mut client, &mut server).await;
                });
            }
        });
        url
    }
}

/// D9. Without `ca_file` a worker trusts the certificate authorities of the system, as the command line does. Here
/// `SSL_CERT_FILE` sets them.
#[tokio::test]
async fn a_worker_without_ca_file_trusts_the_system_authorities() {
    let authority = Authority::new();
    let mut site = Site::server_only(&[]).await;
    let pem = site.path("authorities.pem");
    std::fs::write(&pem, &authority.pem).unwrap();
    let url = authority.serve(site.server.address()).await;
    let trusted = pem.display().to_string();
    site.add_worker_by(&url, &[("SSL_CERT_FILE", &trusted)]).await;
    let job = site.submit(&JobSpec::command(["true"])).await;
    site.until_status(job, JobStatus::Succeeded).await;
}

/// D9.
#[tokio::test]
async fn a_worker_whose_ca_file_names_another_authority_refuses_the_server() {
    let (trusted, other) = (Authority::new(), Authority::new());
    let site = Site::server_only(&[]).await;
    let pem = site.path("authorities.pem");
    std::fs::write(&pem, &other.pem).unwrap();
    let url = trusted.serve(site.server.address()).await;
    let log = site.path("worker.log");
    let ca_file = pem.display().to_string();
    let _worker = harness::Worker::start_over(
        &site.server,
        "stranger",
        &site.path("worker"),
        &log,
        &[("BELFRY_WORKER__CA_FILE", &ca_file)],
        harness::Connection { gateway: Some(url), ..harness::Connection::default() },
    );
    until("the log says that the certificate is not trusted", Duration::from_secs(30), async || {
        std::fs::read_to_string(&log).ok()?.contains("invalid peer certificate").then_some(())
    })
    .await;
    let workers = site.client().workers_page(&Default::default(), &Default::default()).await.unwrap().items;
    assert!(workers.is_empty(), "{workers:?}");
}

/// A server with a certificate of `belfry tls create`, a worker and the command line; only the authority is given to them.
#[tokio::test]
async fn a_server_with_its_own_certificate_runs_jobs_of_a_worker_over_tls() {
    let folder = tempfile::tempdir().unwrap();
    let files = Files::create(folder.path(), &["localhost"]).await;
    let [certificate, key] = ["server.pem", "server-key.pem"].map(|name| files.path(name));
    let mut site = Site::server_only(&[
        ("BELFRY_SERVER__TLS_CERT_FILE", &certificate),
        ("BELFRY_SERVER__TLS_KEY_FILE", &key),
    ])
    .await;
    let url = format!("https://localhost:{}", site.server.address().port());
    let ca_file = files.path("ca.pem");
    site.add_worker_by(&url, &[("BELFRY_WORKER__CA_FILE", &ca_file)]).await;
    let secure = ["--url", url.as_str(), "--ca-file", &ca_file];
    let submit = [&secure[..], &["submit", "--follow", "--", "echo", "over TLS"]].concat();
    assert!(site.belfry(&submit).await.success().contains("over TLS"));

    // Without the authority, and with another host name, the error says what to do. There is no retry.
    let list = ["worker", "list", "--retry-for", "1h"];
    let untrusted = site.belfry(&[&["--url", url.as_str()], &list[..]].concat()).await.exits(5).stderr;
    assert!(untrusted.contains("UnknownIssuer") && untrusted.contains("set `--ca-file`"), "{untrusted}");
    let other = format!("https://127.0.0.1:{}", site.server.address().port());
    let wrong = site.belfry(&[&["--url", other.as_str(), "--ca-file", &ca_file], &list[..]].concat()).await;
    let wrong = wrong.exits(5).stderr;
    assert!(wrong.contains("not valid for name") && wrong.contains("use a host name in the URL"), "{wrong}");

    // A context keeps the authority, and local commands need none.
    let set = [&secure[..], &["context", "set", "lab"]].concat();
    assert!(site.belfry(&set).await.success().contains("lab"));
    let without_token = site.belfry(&["--context", "lab", "worker", "list"]).await.exits(4).stderr;
    assert!(without_token.contains("authentication required"), "{without_token}");
    site.belfry(&["worker", "list"]).await.success();

    // A renewed certificate of the same authority is used without a restart.
    let before = std::fs::read_to_string(files.path("server.pem")).unwrap();
    files.renew(&["localhost", "127.0.0.1"]).await;
    assert_ne!(std::fs::read_to_string(files.path("server.pem")).unwrap(), before);
    until("the new certificate is used", Duration::from_secs(60), async || {
        let shown = site.belfry(&["--url", &other, "--ca-file", &ca_file, "worker", "list"]).await;
        (shown.code == 0).then_some(())
    })
    .await;
}

/// Without TLS, only the machine of the server may connect; a plain server gets a hint for the wrong scheme.
#[tokio::test]
async fn the_command_line_names_a_server_without_tls() {
    let site = Site::server_only(&[]).await;
    let url = format!("https://localhost:{}", site.server.address().port());
    let refused = site.belfry(&["--url", &url, "worker", "list"]).await.exits(5).stderr;
    assert!(refused.contains("no certificate for clients at this address: use `http://`"), "{refused}");
}

/// Files of `belfry tls create`.
struct Files<'a> {
    folder: &'a std::path::Path,
}

impl<'a> Files<'a> {
    async fn create(folder: &'a std::path::Path, hosts: &[&str]) -> Self {
        let files = Self { folder };
        files.run(hosts, &[]).await;
        files
    }

    async fn renew(&self, hosts: &[&str]) {
        self.run(hosts, &["--renew"]).await;
    }

    async fn run(&self, hosts: &[&str], options: &[&str]) {
        let made = tokio::process::Command::new(harness::belfry())
            .args(["tls", "create"])
            .args(hosts)
            .args(options)
            .arg("--dir")
            .arg(self.folder)
            .output()
            .await
            .unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    }

    fn path(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }
}
