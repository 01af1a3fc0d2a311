//! Why a TLS connection to a server failed, and what the user can do about it.

use std::error::Error as StdError;
use std::io;

use rustls::CertificateError::{
    BadSignature, Expired, ExpiredContext, NotValidForName, NotValidForNameContext, NotValidYet,
    NotValidYetContext, UnknownIssuer,
};
use rustls::{AlertDescription, Error, InvalidMessage};

/// Reason of a failed TLS handshake. A retry does not help.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TlsFailure {
    /// The certificate is from an authority that the client does not trust.
    UnknownAuthority,
    /// The certificate is for another host name.
    WrongHost,
    /// The certificate has expired, or is not valid yet.
    NotValidNow,
    /// The certificate is invalid for another reason.
    InvalidCertificate,
    /// The other end does not speak TLS, or not with clients.
    NotTls,
}

impl TlsFailure {
    /// Returns the reason, if an error or one of its causes is such a failure.
    pub(crate) fn of(error: &(dyn StdError + 'static)) -> Option<Self> {
        let mut at = Some(error);
        while let Some(error) = at {
            if let Some(found) = error.downcast_ref().and_then(Self::of_rustls) {
                return Some(found);
            }
            // An I/O error hides the error inside it, which may be another one.
            at = match error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
                Some(inner) => Some(inner),
                None => error.source(),
            };
        }
        None
    }

    fn of_rustls(error: &Error) -> Option<Self> {
        match error {
            // Another authority with the same name has signed the certificate.
            Error::InvalidCertificate(UnknownIssuer | BadSignature) => Some(Self::UnknownAuthority),
            Error::InvalidCertificate(NotValidForName | NotValidForNameContext { .. }) => {
                Some(Self::WrongHost)
            }
            Error::InvalidCertificate(
                Expired | ExpiredContext { .. } | NotValidYet | NotValidYetContext { .. },
            ) => Some(Self::NotValidNow),
            Error::InvalidCertificate(_) => Some(Self::InvalidCertificate),
            // A server without a certificate accepts only TLS of other servers.
            Error::AlertReceived(AlertDescription::HandshakeFailure)
            | Error::InvalidMessage(InvalidMessage::InvalidContentType) => Some(Self::NotTls),
            _ => None,
        }
    }

    /// Returns the next step for the user.
    pub(crate) fn help(self) -> &'static str {
        match self {
            Self::UnknownAuthority => {
                "this machine does not trust the authority of the server's certificate: set `--ca-file` or BELFRY_CA_FILE to \
                 the certificate of the authority (PEM), which the operator of the server has"
            }
            Self::WrongHost => {
                "use a host name in the URL for which the certificate is valid, or ask the operator of the server for a \
                 certificate with this name"
            }
            Self::NotValidNow => {
                "check the clock of this machine; otherwise the operator of the server must renew the certificate"
            }
            Self::InvalidCertificate => "ask the operator of the server for a valid certificate",
            Self::NotTls => {
                "the server has no certificate for clients at this address: use `http://`, or check the port"
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use rustls::CertificateError;

    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("cannot connect")]
    struct Connect(#[source] io::Error);

    /// As the HTTP library returns it.
    fn found(error: Error) -> Option<TlsFailure> {
        let error = io::Error::new(io::ErrorKind::InvalidData, error);
        TlsFailure::of(&Connect(io::Error::other(error)))
    }

    #[test]
    fn the_reason_is_found_among_the_causes() {
        let invalid = |error| found(Error::InvalidCertificate(error));
        assert_eq!(invalid(UnknownIssuer), Some(TlsFailure::UnknownAuthority));
        assert_eq!(invalid(BadSignature), Some(TlsFailure::UnknownAuthority));
        assert_eq!(invalid(NotValidForName), Some(TlsFailure::WrongHost));
        assert_eq!(invalid(Expired), Some(TlsFailure::NotValidNow));
        assert_eq!(invalid(CertificateError::Revoked), Some(TlsFailure::InvalidCertificate));
        let plain = Error::InvalidMessage(InvalidMessage::InvalidContentType);
        assert_eq!(found(plain), Some(TlsFailure::NotTls));
        let refused = Error::AlertReceived(AlertDescription::HandshakeFailure);
        assert_eq!(found(refused), Some(TlsFailure::NotTls));
        assert_eq!(TlsFailure::of(&Connect(io::ErrorKind::ConnectionRefused.into())), None);
    }
}
