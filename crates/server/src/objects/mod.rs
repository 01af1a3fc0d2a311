//! What is no row: the logs of executions and the bytes of artifacts.
//!
//! Both end as objects in a [`Backend`]: a local folder, or a bucket of S3. Logs grow in files of
//! this server first, since objects cannot be appended to; see [`Logs`]. Artifacts are addressed by
//! their hash, so that storing the same bytes twice costs nothing; see [`Artifacts`].
//!
//! # Always true
//! - An object is written whole or not at all, and never changed.
//! - What was acknowledged as complete is on disk (or in the bucket), not in a cache.

mod artifacts;
mod backend;
mod logs;

use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use futures::stream::BoxStream;
use model::ExecutionId;
use store::{Store, StoreError};

use crate::config::ServerConfig;
use crate::config::StoreConfig;
pub use artifacts::Artifacts;
pub use backend::Backend;
pub use logs::{Appended, LogPart, LogSize, LogWatch, Logs};

/// Bytes as they come.
pub type ByteStream = BoxStream<'static, Result<Bytes, ObjectError>>;

/// Logs and artifacts; clones are cheap.
#[derive(Clone)]
pub struct Objects {
    /// The logs of executions.
    pub logs: Logs,
    /// The bytes that jobs bring and leave.
    pub artifacts: Artifacts,
}

impl Objects {
    /// Opens the folders and the backend that `config` names; makes what is missing.
    ///
    /// # Errors
    /// [`ObjectError`] if a folder cannot be made or the bucket's settings make no sense. That a
    /// bucket can be reached is not checked: logs are kept here until it can.
    pub fn open(config: &ServerConfig, store: Arc<dyn Store>) -> Result<Self, ObjectError> {
        let backend = Backend::open(config)?;
        let shared = config.store != StoreConfig::Embedded;
        Ok(Self {
            logs: Logs::open(config.live_logs_dir(), backend.clone(), shared)?,
            artifacts: Artifacts::open(config.uploads_dir(), config.artifact_bytes_max, backend, store)?,
        })
    }
}

/// Why bytes could not be read or kept.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ObjectError {
    /// There is no such artifact.
    #[error("artifact `{reference}` does not exist in namespace `{namespace}`")]
    NoArtifact {
        /// The tenant.
        namespace: String,
        /// What was asked for.
        reference: String,
    },
    /// Its row is there, and its bytes are not.
    #[error("the bytes of `{key}` are missing in the object store")]
    Missing {
        /// The object.
        key: String,
    },
    /// Reading began within a frame.
    #[error("offset {offset} of the log of {execution} is not the start of a frame")]
    BadOffset {
        /// Whose log.
        execution: ExecutionId,
        /// What was asked for.
        offset: u64,
    },
    /// A chunk of a log has bytes that are no frames.
    #[error("a chunk of the log of {execution} at offset {offset} is malformed")]
    Malformed {
        /// Whose log.
        execution: ExecutionId,
        /// Where the chunk was to go.
        offset: u64,
    },
    /// More bytes than may be stored.
    #[error("`{name}` is larger than {limit} bytes")]
    TooLarge {
        /// What was stored.
        name: String,
        /// How large it may be.
        limit: u64,
    },
    /// Whoever sent the bytes stopped before their end.
    #[error("the upload of `{name}` broke off")]
    BrokenOff {
        /// What was stored.
        name: String,
        /// Why.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A local file could not be read or written.
    #[error("cannot {action} `{path}`")]
    Io {
        /// What was tried.
        action: &'static str,
        /// With which file.
        path: PathBuf,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
    /// The object store did not do what it was asked.
    #[error("the object store failed on `{key}`")]
    Backend {
        /// The object.
        key: String,
        /// Why.
        #[source]
        source: object_store::Error,
    },
    /// The row of an artifact could not be read or kept.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl ObjectError {
    /// What the caller can do next.
    pub fn help(&self) -> &'static str {
        match self {
            Self::NoArtifact { .. } => {
                "see `belfry artifact list`; a version is named by `NAME@sha256:DIGEST`"
            }
            Self::Missing { .. } => "store the artifact again",
            Self::BadOffset { .. } => "use 0, or the `next_offset` of an earlier answer",
            Self::Malformed { .. } => "upgrade the worker that sent it",
            Self::TooLarge { .. } => "store less, or raise `artifact_bytes_max`",
            Self::BrokenOff { .. } => "send it again",
            Self::Io { .. } => "see that the data folder has space and belongs to the server's user",
            Self::Backend { .. } => "see that the object store can be reached and takes the credentials",
            Self::Store(error) => error.help(),
        }
    }

    /// Whether the volume is full.
    pub fn is_full(&self) -> bool {
        match self {
            Self::Io { source, .. } => {
                matches!(source.kind(), std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded)
            }
            Self::Store(error) => matches!(error, StoreError::Full),
            _ => false,
        }
    }
}

/// Names the file and the action of an I/O error.
fn io(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> ObjectError {
    let path = path.into();
    move |source| ObjectError::Io { action, path, source }
}

/// Runs file work where it may block.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ObjectError> + Send + 'static,
) -> Result<T, ObjectError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => Err(ObjectError::Io {
            action: "finish the work on",
            path: PathBuf::new(),
            source: std::io::Error::other(error),
        }),
    }
}

/// Makes the entries of a folder durable.
fn sync_dir(dir: &std::path::Path) -> Result<(), ObjectError> {
    std::fs::File::open(dir).and_then(|d| d.sync_all()).map_err(io("sync", dir))
}
