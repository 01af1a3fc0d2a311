//! Errors of requests.

use model::api::Problem;

use crate::tls::TlsFailure;

/// Error of a request.
///
/// See [request errors](crate#request-errors) for the errors that all methods share.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The server rejected the request with a problem document (RFC 9457), or a gateway returned an HTTP error.
    #[error("{}", .0.detail)]
    Problem(Box<Problem>),
    /// No connection was established; the request was not sent.
    #[error("cannot reach the server at {url}")]
    Unreachable {
        /// URL of the server, or path of the task socket.
        url: String,
        /// Error of the HTTP library.
        #[source]
        source: reqwest::Error,
    },
    /// The connection was lost before the response was complete; the request may have taken effect.
    #[error("the connection to {url} was lost before the response")]
    Interrupted {
        /// URL of the server, or path of the task socket.
        url: String,
        /// Error of the HTTP library.
        #[source]
        source: reqwest::Error,
    },
    /// No response arrived within the timeout; the request may have taken effect.
    #[error("no response from {url} within {after:?}")]
    Timeout {
        /// URL of the server, or path of the task socket.
        url: String,
        /// Timeout that has passed.
        after: std::time::Duration,
    },
    /// The response is not that of a Belfry server.
    #[error("{url} does not respond like a Belfry server: {detail}")]
    Protocol {
        /// URL of the request.
        url: String,
        /// Reason.
        detail: String,
    },
    /// The URL that was passed to [`Client::new`](crate::Client::new) is invalid.
    #[error("`{url}` is not a server URL: {detail}")]
    Address {
        /// The URL; `…` if it contains a user or a password.
        url: String,
        /// Reason.
        detail: String,
    },
    /// The text that was passed to [`Client::trusting`](crate::Client::trusting) contains no usable certificate.
    #[error("invalid certificate authority: {detail}")]
    Authority {
        /// Reason.
        detail: String,
    },
    /// The token is empty, or contains spaces or non-ASCII characters.
    #[error("invalid token: expected one line of visible ASCII characters")]
    Token,
    /// The process is not a task: the environment variable `BELFRY_SOCKET` is not set.
    #[error("not inside a Belfry task: `BELFRY_SOCKET` is not set")]
    NoTask,
    /// A local file could not be read.
    #[error("cannot read `{path}`")]
    File {
        /// Path of the file.
        path: String,
        /// Error of the operating system.
        #[source]
        source: std::io::Error,
    },
}

impl Error {
    /// Returns the stable code of a rejection, such as `job_not_found`; `None` for all other errors.
    pub fn code(&self) -> Option<&str> {
        match self {
            Self::Problem(problem) => Some(&problem.code),
            _ => None,
        }
    }

    /// Returns the HTTP status of a rejection; `None` for all other errors.
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::Problem(problem) => Some(problem.status),
            _ => None,
        }
    }

    /// Returns why the TLS handshake failed; `None` if it did not, or if a retry may help.
    pub(crate) fn tls_failure(&self) -> Option<TlsFailure> {
        match self {
            Self::Unreachable { source, .. } => TlsFailure::of(source),
            _ => None,
        }
    }

    /// Returns a hint: what the user can do next.
    pub fn help(&self) -> Option<String> {
        match self {
            Self::Problem(problem) => problem.hint.clone(),
            Self::Unreachable { .. } => {
                let unreachable = "check the URL (`--url`, `BELFRY_URL`) and that the server is running; `belfry dev` starts one";
                Some(self.tls_failure().map_or(unreachable, TlsFailure::help).into())
            }
            Self::Interrupted { .. } | Self::Timeout { .. } => {
                Some("the request may have taken effect: check before you repeat it".into())
            }
            Self::Protocol { .. } => {
                Some("check that the URL is that of a Belfry server of this version".into())
            }
            Self::Address { .. } => Some("use `http://HOST:PORT` or `https://HOST`".into()),
            Self::Authority { .. } => Some("use a PEM file with the certificate of the authority".into()),
            Self::Token => Some("a token is one line that begins with `bf_`".into()),
            Self::NoTask => Some("run it as a job: `belfry submit -- COMMAND`".into()),
            Self::File { .. } => None,
        }
    }
}
