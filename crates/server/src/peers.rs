//! Identities of servers, and authenticated connections between them.
//!
//! A forwarded request carries the token of a client. So a server sends it only to an authenticated server, and accepts
//! it only from one. The store is the root of trust: a process that can write the row of a server is a server.
//!
//! - Each server generates a key at its start, keeps it in memory, and publishes the [`Fingerprint`] of its public key
//!   in its row among the [members](crate::members). A member of a Raft cluster has one key for life, in a file: the other
//!   servers know it as a member of the [cluster](crate::raft_member).
//! - Both sides of a connection prove their keys by TLS 1.3 with raw public keys (RFC 7250). Names, authorities and
//!   dates of certificates would add nothing to the row.
//! - The connecting side requires the key in the row of the wanted server. The accepting side requires the key of a
//!   server that is present; it may be new, so the store is read before the connection is refused.
//! - Servers connect to the same port as clients: a TLS handshake begins with a byte that no HTTP request begins with. If
//!   the port has a [certificate](crate::tls) for clients too, the first message of the handshake tells them apart: only a
//!   server asks for a raw public key and accepts no certificate ([`is_server`]). There is nothing to configure.
//!
//! A server behind a proxy that terminates TLS, at an address with `https`, is authenticated by the proxy's
//! certificate. A forwarded request is then marked by a MAC with a key from the store (see `api::forward`).
//!
//! The protocol of a connection is negotiated (ALPN): [`Protocol`] for Raft, none for forwarded requests.
//!
//! # Invariants
//! - No byte of a request is sent before the other side has proven its key.
//! - Requests marked [`FromServer`] come from a server of the store. The mark grants no right: the client's token is
//!   checked again.
//! - A peer with an unknown key gets a refusal over its connection, and its request is not processed. It may be a
//!   server whose row has just expired: the refusal shows that its forwarded request had no effect.
//! - A restarted server has another key, which the others read together with its row.
//!
//! # Cost
//! A handshake takes two signatures and a key exchange, well below a millisecond; connections are reused. An unknown
//! peer costs one handshake and one discarded request; all unknown peers together cost ten queries a second.

use std::io;
use std::path::Path;
use std::sync::Arc;

use ring::rand::SystemRandom;
use ring::signature::Ed25519KeyPair;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{AlwaysResolvesClientRawPublicKeys, Resumption};
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, ring as provider, verify_tls13_signature_with_raw_key,
};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{AlwaysResolvesServerRawPublicKeys, CertificateType, ClientHello};
use rustls::sign::CertifiedKey;
use rustls::version::TLS13;
use rustls::{
    CertificateError, ClientConfig, ConnectionCommon, DigitallySignedStruct, DistinguishedName, Error,
    ServerConfig, SignatureScheme,
};
use sha2::{Digest as _, Sha256};
use store::cluster::Fingerprint;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::server::TlsStream;
use tokio_rustls::{StartHandshake, TlsAcceptor, TlsConnector, client};

use crate::private_files::write_secret;

/// First byte of a TLS handshake.
pub(crate) const TLS_HANDSHAKE: u8 = 0x16;

/// Whether the client of a TLS handshake connects as a server. What it claims is proven by the rest of the handshake.
pub(crate) fn is_server(hello: &ClientHello<'_>) -> bool {
    hello.server_cert_types() == Some(&[CertificateType::RawPublicKey][..])
}

/// Marks the requests of a connection that [`accept`] has authenticated as one of a server.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FromServer;

/// What members of a Raft cluster use a connection for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// Entries, votes and snapshots between members of a cluster.
    Raft,
    /// The handshake of a server that joins the cluster.
    Join,
}

impl Protocol {
    const ALL: [Self; 2] = [Self::Raft, Self::Join];

    /// Name in the TLS handshake.
    fn alpn(self) -> &'static [u8] {
        match self {
            Self::Raft => b"belfry-raft/1",
            Self::Join => b"belfry-join/1",
        }
    }
}

/// Protocol of forwarded requests in the TLS handshake, for clients that name one.
const HTTP: &[u8] = b"http/1.1";
/// Label of the value that only the two ends of a connection can compute (RFC 5705).
const BINDING_LABEL: &[u8] = b"EXPORTER-belfry-join";

/// What a TLS handshake has shown about the other end.
#[derive(Debug, Clone, Copy)]
pub struct Proved {
    /// Its key.
    pub key: Fingerprint,
    /// The protocol that both ends have chosen; `None` for forwarded requests.
    pub protocol: Option<Protocol>,
    /// Value that only the two ends of this connection know.
    pub binding: [u8; 32],
}

impl Proved {
    fn of<D>(connection: &ConnectionCommon<D>) -> io::Result<Self> {
        let keys = connection.peer_certificates().unwrap_or_default();
        let chosen = connection.alpn_protocol();
        let binding = connection.export_keying_material([0; 32], BINDING_LABEL, None);
        Ok(Self {
            key: fingerprint_of(keys.first().map(AsRef::as_ref).unwrap_or_default()),
            protocol: Protocol::ALL.into_iter().find(|protocol| chosen == Some(protocol.alpn())),
            binding: binding.map_err(io::Error::other)?,
        })
    }
}

/// Key of a server.
#[derive(Debug)]
pub struct Identity {
    key: Arc<CertifiedKey>,
    fingerprint: Fingerprint,
}

impl Identity {
    /// Generates a new key.
    ///
    /// # Panics
    /// If the operating system provides no random bytes.
    pub fn generate() -> Self {
        Self::of(&new_key()).expect("the key was generated in this format")
    }

    /// Reads the key of a file (PKCS #8). With `create`, a missing file gets a new key, which only its owner can read.
    ///
    /// # Errors
    /// If the file cannot be read or written, or does not contain a key.
    pub fn load(path: &Path, create: bool) -> io::Result<Self> {
        let key = match std::fs::read(path) {
            Err(error) if create && error.kind() == io::ErrorKind::NotFound => {
                let key = new_key();
                write_secret(path, &key)?;
                key
            }
            read => read?,
        };
        Self::of(&key)
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "it does not contain an Ed25519 key"))
    }

    /// Makes the identity of a key in PKCS #8; `None` if it is none.
    fn of(key: &[u8]) -> Option<Self> {
        let key = provider::sign::any_eddsa_type(&PrivatePkcs8KeyDer::from(key)).ok()?;
        let public = key.public_key()?.to_vec();
        let fingerprint = fingerprint_of(&public);
        let key = Arc::new(CertifiedKey::new(vec![CertificateDer::from(public)], key));
        Some(Self { key, fingerprint })
    }

    /// Returns the fingerprint of the public key.
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// Returns the TLS settings for connections to the server with this key.
    pub fn client_config(&self, server: Fingerprint) -> ClientConfig {
        self.config_to(Some(server))
    }

    /// Connects to the server with this key, or to any server, for a protocol. The other end must have chosen it too.
    ///
    /// # Errors
    /// If the handshake fails, or the server does not speak the protocol.
    pub(crate) async fn connect<S>(
        &self,
        stream: S,
        server: Option<Fingerprint>,
        protocol: Protocol,
    ) -> io::Result<(client::TlsStream<S>, Proved)>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let mut config = self.config_to(server);
        config.alpn_protocols = vec![protocol.alpn().to_vec()];
        // Nothing verifies the name: the key identifies the server.
        let name = ServerName::try_from("belfry").expect("it is a valid name");
        let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
        let proved = Proved::of(stream.get_ref().1)?;
        if proved.protocol != Some(protocol) {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "the server has no Raft store"));
        }
        Ok((stream, proved))
    }

    fn config_to(&self, server: Option<Fingerprint>) -> ClientConfig {
        let provider = Arc::new(provider::default_provider());
        let verifier = Arc::new(KeyVerifier::new(&provider, server));
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])
            .expect("the provider supports TLS 1.3")
            .dangerous()
            .with_custom_certificate_verifier(verifier)
            .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(Arc::clone(
                &self.key,
            ))));
        config.resumption = Resumption::disabled();
        config
    }

    /// Returns the TLS settings for incoming connections. They accept any key, which the caller checks afterwards.
    pub fn acceptor(&self) -> TlsAcceptor {
        let provider = Arc::new(provider::default_provider());
        let verifier = Arc::new(KeyVerifier::new(&provider, None));
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])
            .expect("the provider supports TLS 1.3")
            .with_client_cert_verifier(verifier)
            .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(Arc::clone(&self.key))));
        config.send_tls13_tickets = 0;
        let protocols = Protocol::ALL.map(Protocol::alpn);
        config.alpn_protocols = protocols.into_iter().chain([HTTP]).map(<[u8]>::to_vec).collect();
        TlsAcceptor::from(Arc::new(config))
    }
}

/// Continues a handshake whose client proves a key. Any key is accepted: the caller decides about it.
///
/// # Errors
/// If the TLS handshake fails: not TLS 1.3, or no proof of a key.
pub(crate) async fn accept<S>(
    acceptor: &TlsAcceptor,
    begun: StartHandshake<S>,
) -> io::Result<(TlsStream<S>, Proved)>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let stream = begun.into_stream(Arc::clone(acceptor.config())).await?;
    let proved = Proved::of(stream.get_ref().1)?;
    Ok((stream, proved))
}

fn new_key() -> Vec<u8> {
    let key = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).expect("the system has random bytes");
    key.as_ref().to_vec()
}

/// Returns whether a connection failed because the TLS handshake did, for example because the peer has another key than
/// the wanted one.
pub(crate) fn is_tls_failure(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut at = Some(error);
    while let Some(error) = at {
        if error.is::<Error>() {
            return true;
        }
        // An I/O error hides the error inside it, which may be another one.
        at = match error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
            Some(inner) => Some(inner),
            None => error.source(),
        };
    }
    false
}

fn fingerprint_of(public_key: &[u8]) -> Fingerprint {
    Fingerprint(Sha256::digest(public_key).into())
}

/// Never used: both sides offer TLS 1.3 only.
fn only_tls13() -> Error {
    Error::General("connections between servers require TLS 1.3".into())
}

/// Verifies that the peer has the key that it presents, and that it is the wanted key, if any.
#[derive(Debug)]
struct KeyVerifier {
    wanted: Option<Fingerprint>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl KeyVerifier {
    fn new(provider: &CryptoProvider, wanted: Option<Fingerprint>) -> Self {
        Self { wanted, algorithms: provider.signature_verification_algorithms }
    }

    fn check(&self, key: &[u8]) -> Result<(), Error> {
        match self.wanted {
            Some(wanted) if wanted != fingerprint_of(key) => {
                Err(CertificateError::ApplicationVerificationFailure.into())
            }
            _ => Ok(()),
        }
    }

    fn check_signature(
        &self,
        message: &[u8],
        key: &[u8],
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let key = SubjectPublicKeyInfoDer::from(key);
        verify_tls13_signature_with_raw_key(message, &key, signed, &self.algorithms)
    }
}

impl ServerCertVerifier for KeyVerifier {
    fn verify_server_cert(
        &self,
        key: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.check(key).map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _key: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(only_tls13())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        key: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.check_signature(message, key, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

impl ClientCertVerifier for KeyVerifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        key: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.check(key).map(|()| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _key: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(only_tls13())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        key: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.check_signature(message, key, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An error with a nested source, as an HTTP client returns it.
    #[derive(Debug, thiserror::Error)]
    #[error("cannot connect")]
    struct Connect(#[source] io::Error);

    #[test]
    fn a_tls_failure_differs_from_an_unreachable_server() {
        let refused = Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure);
        let refused = io::Error::new(io::ErrorKind::InvalidData, refused);
        assert!(is_tls_failure(&Connect(io::Error::other(refused))), "as the HTTP library returns it");
        assert!(!is_tls_failure(&Connect(io::ErrorKind::ConnectionRefused.into())));
    }

    #[test]
    fn a_key_in_a_file_is_the_same_after_each_start() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("node.key");
        assert!(Identity::load(&path, false).is_err(), "a lost key is not replaced");
        let created = Identity::load(&path, true).unwrap();
        for create in [true, false] {
            assert_eq!(Identity::load(&path, create).unwrap().fingerprint(), created.fingerprint());
        }
        std::fs::write(&path, "no key").unwrap();
        assert!(Identity::load(&path, true).is_err());
    }

    /// Both ends compute the same value, and no other connection has it.
    #[tokio::test]
    async fn both_ends_of_a_connection_prove_their_keys_and_share_a_value() {
        let [one, two] = [Identity::generate(), Identity::generate()];
        let connect = async || {
            let (near, far) = tokio::io::duplex(16 * 1024);
            let acceptor = two.acceptor();
            let accepted = async {
                let begun = tokio_rustls::LazyConfigAcceptor::new(Default::default(), far).await?;
                assert!(is_server(&begun.client_hello()));
                accept(&acceptor, begun).await
            };
            let (connected, accepted) = tokio::join!(one.connect(near, None, Protocol::Join), accepted);
            (connected.unwrap().1, accepted.unwrap().1)
        };
        let (client, server) = connect().await;
        assert_eq!((client.key, server.key), (two.fingerprint(), one.fingerprint()));
        assert_eq!(server.protocol, Some(Protocol::Join));
        assert_eq!(client.binding, server.binding);
        assert_ne!(connect().await.0.binding, client.binding);
    }

    #[test]
    fn generated_keys_are_unique() {
        let [one, two] = [Identity::generate(), Identity::generate()];
        assert_ne!(one.fingerprint(), two.fingerprint());
        assert_eq!(one.fingerprint().to_string().len(), 64);
    }
}
