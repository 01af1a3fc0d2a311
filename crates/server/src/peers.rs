//! How two servers know each other, and the connections between them.
//!
//! A request that one server hands on to another carries the token of a client. So it goes only to
//! who really is that server, and is taken as handed on only from who really is one. The store is the
//! root of trust: whoever can write the row of a server is one.
//!
//! - Each server draws a key when it starts, keeps it in memory, and says the [`Fingerprint`] of its public
//!   half in its row among the [members](crate::members).
//! - Both sides of a connection prove their keys by TLS 1.3 with raw public keys (RFC 7250). The names,
//!   authorities and dates of certificates would say nothing that the row does not say already.
//! - Whoever connects demands the key of the row of the server that it wants. Whoever accepts demands one of
//!   a server that is there now; it may have started a moment ago, so the store is asked before it is refused.
//! - They meet at the port that everybody uses: a handshake of TLS begins with a byte that no request of HTTP
//!   begins with. There is nothing to configure.
//!
//! A server behind a proxy that ends TLS, at an address with `https`, is known by the proxy's certificate;
//! what then marks a request as handed on is a MAC by a key in the store (see `api::forward`).
//!
//! # Always true
//! - No byte of a request is sent before the other side has proven its key.
//! - Requests marked [`FromServer`] come from a server of the store. That adds no right: the token of each
//!   is judged again.
//! - Who has a key that is no server's is told so over its connection, and nothing of its request is looked at. It may be a
//!   server whose row ran out a moment ago: then it knows that what it wanted to hand on came to nothing.
//! - A server that starts again has another key, and the others learn of it as they learn of the server.
//!
//! # Cost
//! A handshake is two signatures and a key exchange, well below a millisecond; connections are kept and used
//! again. A stranger costs one handshake and one request that is thrown away, and all strangers together ten
//! queries a second.

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

/// The first byte of a TLS handshake.
pub(crate) const HANDSHAKE: u8 = 0x16;

/// Marks the requests of a connection of a server that [`accept`] knew.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FromServer;

/// The key of a server.
#[derive(Debug)]
pub struct Identity {
    key: Arc<CertifiedKey>,
    fingerprint: Fingerprint,
}

impl Identity {
    /// A new one.
    ///
    /// # Panics
    /// If the operating system gives no random bytes.
    pub fn draw() -> Self {
        let key = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).expect("the system has random bytes");
        let key = provider::sign::any_eddsa_type(&PrivatePkcs8KeyDer::from(key.as_ref()))
            .expect("the key was made for this");
        let public = key.public_key().expect("a pair of keys has a public one").to_vec();
        let fingerprint = fingerprint_of(&public);
        let key = Arc::new(CertifiedKey::new(vec![CertificateDer::from(public)], key));
        Self { key, fingerprint }
    }

    /// By what the others know it.
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// For connections to the one server that has this key.
    pub fn toward(&self, server: Fingerprint) -> ClientConfig {
        let provider = Arc::new(provider::default_provider());
        let verifier = Arc::new(KeyVerifier::new(&provider, Some(server)));
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])
            .expect("the provider knows TLS 1.3")
            .dangerous()
            .with_custom_certificate_verifier(verifier)
            .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(Arc::clone(
                &self.key,
            ))));
        config.resumption = Resumption::disabled();
        config
    }

    /// For connections of anybody who has a key: whose it is, is to be seen afterwards.
    pub fn acceptor(&self) -> TlsAcceptor {
        let provider = Arc::new(provider::default_provider());
        let verifier = Arc::new(KeyVerifier::new(&provider, None));
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])
            .expect("the provider knows TLS 1.3")
            .with_client_cert_verifier(verifier)
            .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(Arc::clone(&self.key))));
        config.send_tls13_tickets = 0;
        TlsAcceptor::from(Arc::new(config))
    }
}

/// Why a connection is not taken as one of a server.
#[derive(Debug, thiserror::Error)]
pub enum Stranger {
    /// It has a key that is no server's.
    #[error("no server that is there has the key {0}")]
    Unknown(Fingerprint),
    /// It could not be seen who it is.
    #[error("it could not be seen who it is: {0}")]
    Store(#[from] StoreError),
}

/// Accepts a TLS connection whose client proves a key, and returns the server with this key. `find` looks the key up
/// among the servers that are present.
///
/// # Errors
/// If it speaks no TLS, another kind of it, or proves no key.
pub async fn accept<S, F>(
    acceptor: &TlsAcceptor,
    stream: S,
    find: impl FnOnce(Fingerprint) -> F,
) -> io::Result<(TlsStream<S>, Result<ServerRecord, Stranger>)>
where
    S: AsyncRead + AsyncWrite + Unpin,
    F: Future<Output = Result<Option<ServerRecord>, StoreError>>,
{
    let stream = acceptor.accept(stream).await?;
    let keys = stream.get_ref().1.peer_certificates().unwrap_or_default();
    let fingerprint = fingerprint_of(keys.first().map(AsRef::as_ref).unwrap_or_default());
    let server = match find(fingerprint).await {
        Ok(server) => server.ok_or(Stranger::Unknown(fingerprint)),
        Err(error) => Err(error.into()),
    };
    Ok((stream, server))
}

/// Whether a connection could not be made because whoever answered is not who was wanted.
pub(crate) fn is_impostor(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut at = Some(error);
    while let Some(error) = at {
        // An error of input or output hides what it was made of.
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

/// What nobody comes to, as both sides offer nothing older.
fn only_tls13() -> Error {
    Error::General("servers speak TLS 1.3 with one another".into())
}

/// Sees that the other side has the key that it shows, and that it is the wanted one if one is.
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

    /// A cause of a cause, as an HTTP client tells it.
    #[derive(Debug, thiserror::Error)]
    #[error("cannot connect")]
    struct Connect(#[source] io::Error);

    #[test]
    fn an_impostor_is_told_from_who_is_not_there() {
        let refused = Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure);
        assert!(is_impostor(&Connect(io::Error::new(io::ErrorKind::InvalidData, refused))));
        assert!(!is_impostor(&Connect(io::ErrorKind::ConnectionRefused.into())));
    }

    #[test]
    fn every_key_is_another() {
        let [one, two] = [Identity::draw(), Identity::draw()];
        assert_ne!(one.fingerprint(), two.fingerprint());
        assert_eq!(one.fingerprint().to_string().len(), 64);
    }
}
