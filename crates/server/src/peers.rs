//! Identities of servers, and authenticated connections between them.
//!
//! A forwarded request carries the token of a client. So a server sends it only to an authenticated server, and accepts
//! it only from one. The store is the root of trust: a process that can write the row of a server is a server.
//!
//! - Each server generates a key at its start, keeps it in memory, and publishes the [`Fingerprint`] of its public key
//!   in its row among the [members](crate::members).
//! - Both sides of a connection prove their keys by TLS 1.3 with raw public keys (RFC 7250). Names, authorities and
//!   dates of certificates would add nothing to the row.
//! - The connecting side requires the key in the row of the wanted server. The accepting side requires the key of a
//!   server that is present; it may be new, so the store is read before the connection is refused.
//! - Servers connect to the same port as clients: a TLS handshake begins with a byte that no HTTP request begins with.
//!   There is nothing to configure.
//!
//! A server behind a proxy that terminates TLS, at an address with `https`, is authenticated by the proxy's
//! certificate. A forwarded request is then marked by a MAC with a key from the store (see `api::forward`).
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
use std::sync::Arc;

use ring::rand::SystemRandom;
use ring::signature::Ed25519KeyPair;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{AlwaysResolvesClientRawPublicKeys, Resumption};
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, ring as provider, verify_tls13_signature_with_raw_key,
};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use rustls::server::AlwaysResolvesServerRawPublicKeys;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::sign::CertifiedKey;
use rustls::version::TLS13;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error, ServerConfig,
    SignatureScheme,
};
use sha2::{Digest as _, Sha256};
use store::StoreError;
use store::cluster::{Fingerprint, ServerRecord};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// First byte of a TLS handshake.
pub(crate) const TLS_HANDSHAKE: u8 = 0x16;

/// Marks the requests of a connection that [`accept`] has authenticated as one of a server.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FromServer;

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
        let key = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).expect("the system has random bytes");
        let key = provider::sign::any_eddsa_type(&PrivatePkcs8KeyDer::from(key.as_ref()))
            .expect("the key was generated in this format");
        let public = key.public_key().expect("a key pair has a public key").to_vec();
        let fingerprint = fingerprint_of(&public);
        let key = Arc::new(CertifiedKey::new(vec![CertificateDer::from(public)], key));
        Self { key, fingerprint }
    }

    /// Returns the fingerprint of the public key.
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// Returns the TLS settings for connections to the server with this key.
    pub fn client_config(&self, server: Fingerprint) -> ClientConfig {
        let provider = Arc::new(provider::default_provider());
        let verifier = Arc::new(KeyVerifier::new(&provider, Some(server)));
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
        TlsAcceptor::from(Arc::new(config))
    }
}

/// Why a connection is not accepted as one of a server.
#[derive(Debug, thiserror::Error)]
pub enum PeerError {
    /// Its key is the key of no present server.
    #[error("no server of the cluster has the key {0}")]
    Unknown(Fingerprint),
    /// The servers could not be read from the store.
    #[error("cannot read the servers of the cluster: {0}")]
    Store(#[from] StoreError),
}

/// Accepts a TLS connection whose client proves a key, and returns the server with this key. `find` searches the key
/// among the servers that are present.
///
/// # Errors
/// If the TLS handshake fails: not TLS 1.3, or no proof of a key.
pub async fn accept<S, F>(
    acceptor: &TlsAcceptor,
    stream: S,
    find: impl FnOnce(Fingerprint) -> F,
) -> io::Result<(TlsStream<S>, Result<ServerRecord, PeerError>)>
where
    S: AsyncRead + AsyncWrite + Unpin,
    F: Future<Output = Result<Option<ServerRecord>, StoreError>>,
{
    let stream = acceptor.accept(stream).await?;
    let keys = stream.get_ref().1.peer_certificates().unwrap_or_default();
    let fingerprint = fingerprint_of(keys.first().map(AsRef::as_ref).unwrap_or_default());
    let server = match find(fingerprint).await {
        Ok(server) => server.ok_or(PeerError::Unknown(fingerprint)),
        Err(error) => Err(error.into()),
    };
    Ok((stream, server))
}

/// Returns whether a connection failed because the TLS handshake did, for example because the peer has another key than
/// the wanted one.
pub(crate) fn is_tls_failure(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut at = Some(error);
    while let Some(error) = at {
        // An I/O error hides its source.
        let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        if error.is::<Error>() || inner.is_some_and(|inner| inner.is::<Error>()) {
            return true;
        }
        at = error.source();
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
        assert!(is_tls_failure(&Connect(io::Error::new(io::ErrorKind::InvalidData, refused))));
        assert!(!is_tls_failure(&Connect(io::ErrorKind::ConnectionRefused.into())));
    }

    #[test]
    fn generated_keys_are_unique() {
        let [one, two] = [Identity::generate(), Identity::generate()];
        assert_ne!(one.fingerprint(), two.fingerprint());
        assert_eq!(one.fingerprint().to_string().len(), 64);
    }
}
