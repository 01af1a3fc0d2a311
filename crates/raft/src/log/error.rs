//! Why a log cannot be opened, read or written.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// Why the log of a server was not opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Another process, or another log in this one, has the folder open.
    #[error("the log `{}` is in use by another process", folder.display())]
    InUse {
        /// Folder of the log.
        folder: PathBuf,
    },
    /// The log is missing, but the server had one.
    #[error("the log `{}` is missing or empty, but this server had one", folder.display())]
    Missing {
        /// Folder of the log.
        folder: PathBuf,
    },
    /// Bytes that were durable have changed or are gone.
    #[error("the log is damaged: `{}` at offset {offset}: {problem}", path.display())]
    Damaged {
        /// The damaged file.
        path: PathBuf,
        /// Offset of the damage in bytes.
        offset: u64,
        /// What was expected.
        problem: String,
    },
    /// Entries that other servers count on are gone.
    #[error("the log `{}` has lost entries: {problem}", folder.display())]
    Lost {
        /// Folder of the log.
        folder: PathBuf,
        /// Which entries.
        problem: String,
    },
    /// The file belongs to another cluster.
    #[error("`{}` belongs to cluster `{found:032x}`, but this server is in cluster `{expected:032x}`", path.display())]
    OtherCluster {
        /// The file.
        path: PathBuf,
        /// Cluster of this server.
        expected: u128,
        /// Cluster of the file.
        found: u128,
    },
    /// A newer version of Belfry wrote the file.
    #[error("`{}` has format {found}, but this version of Belfry reads formats up to {known}", path.display())]
    TooNew {
        /// The file.
        path: PathBuf,
        /// Format of the file.
        found: u16,
        /// Newest format that this version reads.
        known: u16,
    },
    /// The file system reported an error.
    #[error(transparent)]
    Io(#[from] Failure),
}

impl OpenError {
    /// Returns what the operator can do next.
    pub fn help(&self) -> &'static str {
        match self {
            Self::InUse { .. } => "stop the other process, or give each server a data folder of its own",
            Self::Missing { .. } | Self::Damaged { .. } | Self::Lost { .. } => {
                "do not start this server with its old identity: it may have acknowledged entries that are gone; \
                 remove it from the cluster, and let it join again with an empty folder"
            }
            Self::OtherCluster { .. } => "restore the data folder of this server",
            Self::TooNew { .. } => "run the newer version",
            Self::Io(_) => "check the volume and the permissions of the folder",
        }
    }
}

/// An error of the file system, with the file and what was done to it.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} `{}`", path.display())]
pub struct Failure {
    /// A verb: `write`, `sync`, ….
    pub action: &'static str,
    /// The file or folder.
    pub path: PathBuf,
    /// What the file system reported.
    pub source: io::Error,
}

impl Failure {
    /// Returns a function for `map_err`.
    pub(crate) fn of(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        move |source| Self { action, path: path.into(), source }
    }
}

/// The failure that stopped the log. All later calls get it too.
#[derive(Debug, Clone)]
pub(super) struct Stopped(pub(super) Arc<Failure>);

impl fmt::Display for Stopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the log has stopped: {}: {}", self.0, self.0.source)
    }
}

impl std::error::Error for Stopped {}

impl From<Stopped> for io::Error {
    fn from(stopped: Stopped) -> Self {
        Self::new(stopped.0.source.kind(), stopped)
    }
}

/// Why a stored entry cannot be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReadError {
    #[error(transparent)]
    Io(#[from] Failure),
    #[error("entry {index} in `{}` at offset {offset} is damaged", path.display())]
    Damaged { path: PathBuf, offset: u64, index: u64 },
    #[error("entry {index} is not a valid membership: {source}")]
    Membership { index: u64, source: postcard::Error },
    #[error("the task that reads the log has failed: {0}")]
    Task(#[from] tokio::task::JoinError),
}
