//! Workers and the command line reach a server through a proxy that terminates TLS.

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
