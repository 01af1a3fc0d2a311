//! Why a request came to nothing.

use model::api::Problem;

/// Why a request came to nothing.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The server refused it and said why.
    #[error("{}", .0.detail)]
    Problem(Box<Problem>),
    /// No connection came about; nothing was asked.
    #[error("cannot reach the server at {url}")]
    Unreachable {
        /// The server's address.
        url: String,
        /// What the network said.
        #[source]
        source: reqwest::Error,
    },
    /// The connection ended before the answer; the request may have been carried out.
    #[error("the connection to {url} was lost before the response")]
    Interrupted {
        /// The server's address.
        url: String,
        /// What the network said.
        #[source]
        source: reqwest::Error,
    },
    /// No answer came in time; the request may have been carried out.
    #[error("no response from {url} within {after:?}")]
    Timeout {
        /// The server's address.
        url: String,
        /// How long was waited.
        after: std::time::Duration,
    },
    /// The answer is none that Belfry gives.
    #[error("{url} does not respond like a Belfry server: {detail}")]
    Protocol {
        /// The address that was asked.
        url: String,
        /// What is wrong with the answer.
        detail: String,
    },
    /// The address is none of a server.
    #[error("`{url}` is not a server URL: {detail}")]
    Address {
        /// What was given, without user or password.
        url: String,
        /// What is wrong with it.
        detail: String,
    },
    /// The token has characters that no token has.
    #[error("the token contains invalid characters")]
    Token,
    /// This process is no task, or one of a worker that is too old.
    #[error("not inside a Belfry task: `BELFRY_SOCKET` is not set")]
    NoTask,
    /// A local file could not be read.
    #[error("cannot read `{path}`")]
    File {
        /// Which.
        path: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}

impl Error {
    /// The stable word of the server's refusal.
    pub fn code(&self) -> Option<&str> {
        match self {
            Self::Problem(problem) => Some(&problem.code),
            _ => None,
        }
    }

    /// The HTTP status of the server's refusal.
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::Problem(problem) => Some(problem.status),
            _ => None,
        }
    }

    /// What the user can do next.
    pub fn help(&self) -> Option<String> {
        match self {
            Self::Problem(problem) => problem.hint.clone(),
            Self::Unreachable { .. } => Some(
                "check the URL (`--url`, `BELFRY_URL`) and that the server is running; `belfry dev` starts one"
                    .into(),
            ),
            Self::Interrupted { .. } | Self::Timeout { .. } => {
                Some("the request may have taken effect: check before you repeat it".into())
            }
            Self::Protocol { .. } => {
                Some("check that the URL is that of a Belfry server of this version".into())
            }
            Self::Address { .. } => Some("use `http://HOST:PORT` or `https://HOST`".into()),
            Self::Token => Some("a token is one line that begins with `bf_`".into()),
            Self::NoTask => Some("run it as a job: `belfry submit -- COMMAND`".into()),
            Self::File { .. } => None,
        }
    }
}
