//! TLS for clients and workers: the certificate of this server, and the reload of its files.
//!
//! ```text
//! first byte 0x16 ──> ClientHello ─┬─ asks for a raw public key ──> another server: `peers`
//!                                  └─ asks for a certificate ─────> client: [`ClientTls`], then HTTP
//! ```
//!
//! - [`ClientTls`] has the settings of the handshake. [`ClientTls::watch`] reads the files every [`CHECK_INTERVAL`], so a
//!   renewed certificate needs no restart. The contents are compared, not the modification times: a renewal may replace a
//!   symbolic link.
//! - The certificate also says which host names belong to this server ([`ClientTls::has_name`]). A page of another site
//!   cannot use its own name to reach this server: the certificate is not valid for that name.
//!
//! # Invariants
//! - There is always a usable pair of certificate and key. Files that cannot be used are reported, and change nothing.
//! - No message and no log contains a part of the private key.
//!
//! # Cost
//! The files have a few kilobytes. A handshake takes a signature and a key exchange, about a millisecond with an RSA key.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicI64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use model::Timestamp;
use model::error_chain::Chain;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use rustls::client::verify_server_name;
use rustls::crypto::ring as provider;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::{ClientHello, ParsedCertificate, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{Error, InconsistentKeys};
use sha2::{Digest as _, Sha256};
use x509_cert::der::Decode as _;

use crate::clock::{Clock as _, SystemClock};
use crate::config::{ServerConfig, TlsConfig};

/// Interval at which the files are read.
const CHECK_INTERVAL: Duration = Duration::from_secs(10);
/// Remaining validity of the certificate below which the log and the readiness check warn.
const EXPIRY_WARNING: model::Duration = model::Duration::from_hours(14 * 24);
/// Interval of that warning in the log.
const WARNING_INTERVAL: model::Duration = model::Duration::from_hours(24);

/// Why a certificate or its key cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file could not be read.
    #[error("cannot read `{}`", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Error of the operating system.
        #[source]
        source: io::Error,
    },
    /// A file is not valid PEM.
    #[error("`{}` is not a valid PEM file", path.display())]
    Pem {
        /// The file.
        path: PathBuf,
        /// Position and kind of the error.
        #[source]
        source: pem::Error,
    },
    /// A file has no certificate.
    #[error("`{}` contains no certificate", path.display())]
    NoCertificate {
        /// The file.
        path: PathBuf,
    },
    /// A file has no private key, or an encrypted one.
    #[error("`{}` contains no unencrypted private key", path.display())]
    NoKey {
        /// The file.
        path: PathBuf,
    },
    /// A certificate could not be parsed.
    #[error("`{}` contains an invalid certificate: {reason}", path.display())]
    InvalidCertificate {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// The private key has an unsupported or invalid format.
    #[error("cannot use the private key in `{}`", path.display())]
    InvalidKey {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        #[source]
        source: Error,
    },
    /// The private key is that of another certificate.
    #[error(
        "the private key in `{}` does not belong to the first certificate in `{}`",
        key_file.display(), cert_file.display()
    )]
    Mismatch {
        /// The file with the key.
        key_file: PathBuf,
        /// The file with the certificates.
        cert_file: PathBuf,
    },
    /// A new certificate has already expired. Only a reload refuses it.
    #[error("the certificate in `{}` has expired on {expired_at}", path.display())]
    Expired {
        /// The file.
        path: PathBuf,
        /// End of its validity.
        expired_at: Timestamp,
    },
}

impl TlsError {
    /// Returns the next step for the operator.
    pub fn help(&self) -> &'static str {
        match self {
            Self::Read { .. } => {
                "check `server.tls_cert_file` and `server.tls_key_file`, and that the server's user can read the files"
            }
            Self::Pem { .. } | Self::NoCertificate { .. } | Self::InvalidCertificate { .. } => {
                "expected PEM: the certificate of the server, followed by those of intermediate authorities"
            }
            Self::NoKey { .. } | Self::InvalidKey { .. } => {
                "expected a PEM file with an unencrypted ECDSA, Ed25519 or RSA key"
            }
            Self::Mismatch { .. } => {
                "use the key of this certificate; in the file with the certificates, that of the server must be the first"
            }
            Self::Expired { .. } => "renew the certificate",
        }
    }
}

/// A certificate chain with its key.
#[derive(Debug)]
struct Certificate {
    key: Arc<CertifiedKey>,
    /// The earliest end of the validity of a certificate of the chain.
    expires_at: Timestamp,
}

impl Certificate {
    fn parse(files: &TlsConfig, contents: &Contents) -> Result<Self, TlsError> {
        let chain = parse_chain(&files.cert_file, &contents.certificates)?;
        let expires_at = chain.iter().map(|certificate| expiry(&files.cert_file, certificate));
        let expires_at = expires_at.collect::<Result<Vec<_>, _>>()?.into_iter().min();
        let key_file = || files.key_file.clone();
        let key = PrivateKeyDer::from_pem_slice(&contents.key).map_err(|error| match error {
            pem::Error::NoItemsFound => TlsError::NoKey { path: key_file() },
            source => TlsError::Pem { path: key_file(), source },
        })?;
        let key = CertifiedKey::from_der(chain, key, &provider::default_provider());
        let key = key.map_err(|error| match error {
            Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
                TlsError::Mismatch { key_file: key_file(), cert_file: files.cert_file.clone() }
            }
            Error::InvalidCertificate(reason) => {
                TlsError::InvalidCertificate { path: files.cert_file.clone(), reason: reason.to_string() }
            }
            source => TlsError::InvalidKey { path: key_file(), source },
        })?;
        // A chain has at least one certificate.
        Ok(Self { key: Arc::new(key), expires_at: expires_at.unwrap_or(Timestamp::MAX) })
    }

    /// Whether the certificate is valid for a host name or an IP address.
    fn has_name(&self, name: &ServerName<'_>) -> bool {
        let leaf = self.key.cert.first().and_then(|leaf| ParsedCertificate::try_from(leaf).ok());
        leaf.is_some_and(|leaf| verify_server_name(&leaf, name).is_ok())
    }
}

fn parse_chain(path: &Path, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let chain = chain.map_err(|source| TlsError::Pem { path: path.to_owned(), source })?;
    if chain.is_empty() {
        return Err(TlsError::NoCertificate { path: path.to_owned() });
    }
    Ok(chain)
}

/// Returns the end of the validity of a certificate.
fn expiry(path: &Path, certificate: &CertificateDer<'_>) -> Result<Timestamp, TlsError> {
    let parsed = x509_cert::Certificate::from_der(certificate);
    let parsed = parsed
        .map_err(|error| TlsError::InvalidCertificate { path: path.to_owned(), reason: error.to_string() })?;
    let end = parsed.tbs_certificate.validity.not_after.to_unix_duration();
    Ok(Timestamp::from_millis(i64::try_from(end.as_millis()).unwrap_or(i64::MAX)))
}

/// Contents of the two files.
struct Contents {
    certificates: Vec<u8>,
    key: Vec<u8>,
}

impl Contents {
    fn read(files: &TlsConfig) -> Result<Self, TlsError> {
        let read = |path: &PathBuf| {
            std::fs::read(path).map_err(|source| TlsError::Read { path: path.clone(), source })
        };
        Ok(Self { certificates: read(&files.cert_file)?, key: read(&files.key_file)? })
    }

    fn digest(&self) -> [u8; 32] {
        let mut digest = Sha256::new();
        digest.update((self.certificates.len() as u64).to_le_bytes());
        digest.update(&self.certificates);
        digest.update(&self.key);
        digest.finalize().into()
    }
}

/// The certificate of new connections.
#[derive(Debug)]
struct Current(RwLock<Arc<Certificate>>);

impl Current {
    fn get(&self) -> Arc<Certificate> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn replace(&self, certificate: Certificate) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(certificate);
    }
}

impl ResolvesServerCert for Current {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.get().key))
    }
}

/// The last look at the files.
struct Seen {
    /// Digest of the contents that were processed last, whether they could be used or not.
    digest: Option<[u8; 32]>,
    /// Why the files cannot be used now, if they cannot.
    problem: Option<String>,
    /// When the log last warned about the expiry.
    warned_at: Option<Timestamp>,
}

/// TLS of the connections of clients.
pub(crate) struct ClientTls {
    files: TlsConfig,
    /// Host of the URL that other servers and workers use, if it is set.
    advertised: Option<ServerName<'static>>,
    config: Arc<rustls::ServerConfig>,
    current: Arc<Current>,
    seen: Mutex<Seen>,
    expires_gauge: Gauge<i64, AtomicI64>,
}

impl ClientTls {
    /// Reads the certificate of the settings; `None` if they have none.
    ///
    /// An expired certificate is accepted with a warning: a restart must not stop a server that still has work to do.
    ///
    /// # Errors
    /// [`TlsError`]
    pub(crate) fn load(config: &ServerConfig) -> Result<Option<Arc<Self>>, TlsError> {
        let Some(files) = &config.tls else { return Ok(None) };
        let contents = Contents::read(files)?;
        let certificate = Certificate::parse(files, &contents)?;
        let current = Arc::new(Current(RwLock::new(Arc::new(certificate))));
        let tls = Self {
            files: files.clone(),
            advertised: config.advertise_url.as_deref().and_then(host_of),
            config: Arc::new(handshake_config(Arc::clone(&current))),
            current,
            seen: Mutex::new(Seen { digest: Some(contents.digest()), problem: None, warned_at: None }),
            expires_gauge: Gauge::default(),
        };
        tls.show_certificate();
        tls.warn_if_expiring(SystemClock.now());
        Ok(Some(Arc::new(tls)))
    }

    /// Returns the settings of a handshake with a client.
    pub(crate) fn config(&self) -> Arc<rustls::ServerConfig> {
        Arc::clone(&self.config)
    }

    /// Whether the certificate is valid for a host name.
    pub(crate) fn has_name(&self, host: &str) -> bool {
        ServerName::try_from(host).is_ok_and(|name| self.current.get().has_name(&name))
    }

    /// Returns the problem of the certificate, or `None` if it has none.
    pub(crate) fn trouble(&self, now: Timestamp) -> Option<String> {
        let expires_at = self.current.get().expires_at;
        if self.lock().problem.is_some() {
            // Health checks need no token, so the cause stays in the log.
            return Some(format!(
                "the files of the TLS certificate cannot be used, and the former certificate is valid until \
                 {expires_at}: see the log"
            ));
        }
        let left = expires_at.since(now);
        match left {
            _ if expires_at <= now => Some(format!("the TLS certificate has expired on {expires_at}")),
            left if left < EXPIRY_WARNING => Some(format!("the TLS certificate expires on {expires_at}")),
            _ => None,
        }
    }

    /// Adds the metric of the expiry.
    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register(
            "tls_certificate_expires_seconds",
            "Time at which the TLS certificate of this server expires, in seconds since 1970",
            self.expires_gauge.clone(),
        );
    }

    /// Reads the files again at intervals, without an end.
    pub(crate) async fn watch(self: Arc<Self>) {
        let mut interval = tokio::time::interval(CHECK_INTERVAL);
        interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            interval.tick().await;
            let tls = Arc::clone(&self);
            let checked = tokio::task::spawn_blocking(move || tls.check(SystemClock.now())).await;
            if let Err(error) = checked {
                tracing::error!(error = %error, "the check of the TLS certificate failed");
            }
        }
    }

    /// Uses the certificate in the files from now on, if they have changed and can be used. Warns before its expiry.
    pub(crate) fn check(&self, now: Timestamp) {
        let read = Contents::read(&self.files);
        let digest = read.as_ref().ok().map(Contents::digest);
        if digest.is_none() || digest != self.lock().digest {
            let loaded = read.and_then(|contents| self.load_again(&contents, now));
            self.processed(digest, loaded);
        }
        self.warn_if_expiring(now);
    }

    fn load_again(&self, contents: &Contents, now: Timestamp) -> Result<Certificate, TlsError> {
        let certificate = Certificate::parse(&self.files, contents)?;
        let expired_at = certificate.expires_at;
        if expired_at <= now {
            return Err(TlsError::Expired { path: self.files.cert_file.clone(), expired_at });
        }
        Ok(certificate)
    }

    fn processed(&self, digest: Option<[u8; 32]>, loaded: Result<Certificate, TlsError>) {
        match loaded {
            Ok(certificate) => {
                self.current.replace(certificate);
                *self.lock() = Seen { digest, problem: None, warned_at: None };
                self.show_certificate();
            }
            Err(error) => {
                let problem = Chain(&error).to_string();
                let mut seen = self.lock();
                seen.digest = digest;
                if seen.problem.replace(problem.clone()).as_ref() != Some(&problem) {
                    tracing::warn!(
                        cert_file = %self.files.cert_file.display(),
                        key_file = %self.files.key_file.display(),
                        expires_at = %self.current.get().expires_at,
                        error = problem,
                        help = error.help(),
                        "cannot use the changed files of the TLS certificate; the former certificate is used"
                    );
                }
            }
        }
    }

    /// Logs the certificate that is used from now on.
    fn show_certificate(&self) {
        let certificate = self.current.get();
        self.expires_gauge.set(certificate.expires_at.as_millis() / 1_000);
        let cert_file = self.files.cert_file.display();
        tracing::info!(%cert_file, expires_at = %certificate.expires_at, "loaded the TLS certificate");
        if let Some(name) = self.advertised.as_ref().filter(|name| !certificate.has_name(name)) {
            tracing::warn!(
                %cert_file,
                host = %name.to_str(),
                "the TLS certificate is not valid for the host of `server.advertise_url`: workers cannot use that URL"
            );
        }
    }

    fn warn_if_expiring(&self, now: Timestamp) {
        let expires_at = self.current.get().expires_at;
        let mut seen = self.lock();
        let is_due = seen.warned_at.is_none_or(|at| now.since(at) >= WARNING_INTERVAL);
        if !is_due || (expires_at > now && expires_at.since(now) >= EXPIRY_WARNING) {
            return;
        }
        seen.warned_at = Some(now);
        let cert_file = self.files.cert_file.display();
        if expires_at <= now {
            tracing::error!(%cert_file, %expires_at, "the TLS certificate has expired: clients and workers cannot connect");
        } else {
            tracing::warn!(%cert_file, %expires_at, "the TLS certificate expires soon: renew it");
        }
    }

    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the settings of handshakes with clients: TLS 1.2 and 1.3, HTTP/2 and HTTP/1.1.
fn handshake_config(certificates: Arc<Current>) -> rustls::ServerConfig {
    let mut config = rustls::ServerConfig::builder_with_provider(Arc::new(provider::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("the provider supports TLS 1.2 and 1.3")
        .with_no_client_auth()
        .with_cert_resolver(certificates);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    config
}

/// Returns the host of a URL with `https`.
fn host_of(url: &str) -> Option<ServerName<'static>> {
    let url = reqwest::Url::parse(url).ok().filter(|url| url.scheme() == "https")?;
    let host = url.host_str()?.trim_start_matches('[').trim_end_matches(']');
    ServerName::try_from(host.to_owned()).ok()
}

#[cfg(test)]
mod tests {
    use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
    use tempfile::TempDir;

    use super::*;

    /// A folder with a certificate and its key, signed by an authority.
    struct Site {
        folder: TempDir,
        authority: CertifiedIssuer<'static, KeyPair>,
    }

    impl Site {
        fn new() -> Self {
            let mut params = CertificateParams::default();
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            params.not_after = rcgen::date_time_ymd(2400, 1, 1);
            let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
            Self { folder: tempfile::tempdir().unwrap(), authority }
        }

        fn config(&self) -> ServerConfig {
            let mut config = ServerConfig::new(self.folder.path());
            config.tls = Some(TlsConfig {
                cert_file: self.folder.path().join("server.pem"),
                key_file: self.folder.path().join("server-key.pem"),
            });
            config
        }

        /// Writes a certificate that expires at the beginning of a year.
        fn issue(&self, hosts: &[&str], expires: i32) {
            let hosts: Vec<_> = hosts.iter().map(|host| (*host).to_owned()).collect();
            let mut params = CertificateParams::new(hosts).unwrap();
            params.not_after = rcgen::date_time_ymd(expires, 1, 1);
            let key = KeyPair::generate().unwrap();
            let certificate = params.signed_by(&key, &self.authority).unwrap();
            self.write("server.pem", &certificate.pem());
            self.write("server-key.pem", &key.serialize_pem());
        }

        fn write(&self, name: &str, text: &str) {
            std::fs::write(self.folder.path().join(name), text).unwrap();
        }

        fn read(&self, name: &str) -> String {
            std::fs::read_to_string(self.folder.path().join(name)).unwrap()
        }

        fn load(&self) -> Arc<ClientTls> {
            ClientTls::load(&self.config()).unwrap().unwrap()
        }

        /// Returns the refusal of the files, with its causes.
        fn refusal(&self) -> String {
            let error = ClientTls::load(&self.config()).err().expect("the files are refused");
            Chain(&error).to_string().replace(&self.folder.path().display().to_string(), "DIR")
        }
    }

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn in_use(tls: &ClientTls) -> CertificateDer<'static> {
        tls.current.get().key.cert[0].clone()
    }

    const NOW: &str = "2026-11-30T00:00:00Z";

    #[test]
    fn files_that_cannot_be_used_are_refused_with_the_reason() {
        let site = Site::new();
        site.issue(&["a.example"], 2400);
        let (certificate, key) = (site.read("server.pem"), site.read("server-key.pem"));
        site.issue(&["a.example"], 2400);
        site.write("server-key.pem", &key);
        assert_eq!(
            site.refusal(),
            "the private key in `DIR/server-key.pem` does not belong to the first certificate in `DIR/server.pem`"
        );
        site.write("server.pem", &format!("{}{certificate}", site.authority.pem()));
        assert!(site.refusal().contains("does not belong to the first certificate"), "the chain is reversed");
        site.write("server.pem", &certificate);
        site.write("server-key.pem", &key.replace("PRIVATE KEY", "ENCRYPTED PRIVATE KEY"));
        assert_eq!(site.refusal(), "`DIR/server-key.pem` contains no unencrypted private key");
        site.write("server-key.pem", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n");
        assert!(site.refusal().starts_with("cannot use the private key in `DIR/server-key.pem`"));
        site.write("server.pem", &key);
        assert_eq!(site.refusal(), "`DIR/server.pem` contains no certificate");
        site.write("server.pem", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
        assert!(site.refusal().starts_with("`DIR/server.pem` contains an invalid certificate"));
        std::fs::remove_file(site.folder.path().join("server.pem")).unwrap();
        assert!(site.refusal().starts_with("cannot read `DIR/server.pem`"), "{}", site.refusal());
    }

    #[test]
    fn a_changed_certificate_is_used_without_a_restart() {
        let site = Site::new();
        site.issue(&["a.example"], 2400);
        let tls = site.load();
        let first = in_use(&tls);
        tls.check(at(NOW));
        assert_eq!(in_use(&tls), first);
        site.issue(&["b.example"], 2399);
        tls.check(at(NOW));
        assert_ne!(in_use(&tls), first);
        assert_eq!((tls.has_name("a.example"), tls.has_name("b.example")), (false, true));
        assert_eq!(tls.expires_gauge.get(), at("2399-01-01T00:00:00Z").as_millis() / 1_000);
    }

    #[test]
    fn files_that_cannot_be_used_change_nothing_and_are_reported() {
        let site = Site::new();
        site.issue(&["a.example"], 2400);
        let tls = site.load();
        let (first, key) = (in_use(&tls), site.read("server-key.pem"));
        // The certificate is replaced before its key.
        site.issue(&["a.example"], 2400);
        let new_key = site.read("server-key.pem");
        site.write("server-key.pem", &key);
        for _ in 0..2 {
            tls.check(at(NOW));
            assert_eq!(in_use(&tls), first);
            assert!(tls.trouble(at(NOW)).unwrap().contains("cannot be used"));
        }
        std::fs::remove_file(site.folder.path().join("server-key.pem")).unwrap();
        tls.check(at(NOW));
        assert_eq!(in_use(&tls), first);
        site.write("server-key.pem", &new_key);
        tls.check(at(NOW));
        assert_ne!(in_use(&tls), first);
        assert_eq!(tls.trouble(at(NOW)), None);
    }

    #[test]
    fn files_that_return_after_an_error_are_used_again() {
        let site = Site::new();
        site.issue(&["a.example"], 2400);
        let tls = site.load();
        let key = site.read("server-key.pem");
        std::fs::remove_file(site.folder.path().join("server-key.pem")).unwrap();
        tls.check(at(NOW));
        assert!(tls.trouble(at(NOW)).is_some());
        site.write("server-key.pem", &key);
        tls.check(at(NOW));
        assert_eq!(tls.trouble(at(NOW)), None);
    }

    #[test]
    fn an_expired_certificate_replaces_no_valid_one_but_does_not_prevent_a_start() {
        let site = Site::new();
        site.issue(&["a.example"], 2400);
        let tls = site.load();
        let first = in_use(&tls);
        site.issue(&["a.example"], 2020);
        tls.check(at(NOW));
        assert_eq!(in_use(&tls), first);
        let started = site.load();
        assert_eq!(
            started.trouble(at(NOW)).as_deref(),
            Some("the TLS certificate has expired on 2020-01-01T00:00:00Z")
        );
    }

    #[test]
    fn a_certificate_that_expires_within_14_days_is_a_problem() {
        let site = Site::new();
        site.issue(&["a.example"], 2027);
        let tls = site.load();
        assert_eq!(tls.trouble(at("2026-12-17T23:59:59Z")), None);
        assert_eq!(
            tls.trouble(at("2026-12-18T00:00:01Z")).as_deref(),
            Some("the TLS certificate expires on 2027-01-01T00:00:00Z")
        );
    }

    #[test]
    fn the_earliest_expiry_of_the_chain_counts() {
        let site = Site::new();
        site.issue(&["a.example"], 2400);
        let (own, key) = (site.read("server.pem"), site.read("server-key.pem"));
        site.issue(&["intermediate"], 2030);
        site.write("server.pem", &format!("{own}{}", site.read("server.pem")));
        site.write("server-key.pem", &key);
        assert_eq!(site.load().current.get().expires_at, at("2030-01-01T00:00:00Z"));
    }

    #[test]
    fn the_names_of_the_certificate_belong_to_the_server() {
        let site = Site::new();
        site.issue(&["a.example", "*.b.example", "10.0.0.1"], 2400);
        let tls = site.load();
        for (host, is_own) in [
            ("a.example", true),
            ("A.example", true),
            ("x.b.example", true),
            ("10.0.0.1", true),
            ("b.example", false),
            ("x.y.b.example", false),
            ("a.example.evil.example", false),
            ("10.0.0.2", false),
            ("?", false),
            ("", false),
        ] {
            assert_eq!(tls.has_name(host), is_own, "{host}");
        }
    }
}
