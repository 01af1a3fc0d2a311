//! Object storage: the logs of executions and the bytes of artifacts.
//!
//! Both are stored as objects in a [`Backend`]: a local folder, an S3 bucket, or [copies](copies) on all servers of a cluster.
//! Objects cannot be appended to, so logs
//! grow in files of this server first; see [`Logs`]. Artifacts are addressed by their hash, so that storing the same
//! bytes twice costs no space; see [`Artifacts`].
//!
//! # Invariants
//! - An object is written atomically and never changes.
//! - Data that was acknowledged as complete is on disk or in the bucket, not only in a cache.

mod artifacts;
mod backend;
pub(crate) mod copies;
mod logs;

use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use futures::stream::BoxStream;
use model::ExecutionId;
use store::{Store, StoreError};

use self::copies::Copies;
use self::copies::servers::Servers;
use crate::config::{ObjectsConfig, ServerConfig, StoreConfig};
pub use artifacts::Artifacts;
pub use backend::Backend;
pub use logs::{Appended, LogLimit, LogPart, LogSize, LogWatch, LogWrite, Logs};

/// A stream of the bytes of an object.
pub type ByteStream = BoxStream<'static, Result<Bytes, ObjectError>>;

/// Logs and artifacts; clones are cheap.
#[derive(Clone)]
pub struct Objects {
    /// Logs of executions.
    pub logs: Logs,
    /// Inputs and outputs of jobs.
    pub artifacts: Artifacts,
    /// Copies on all servers; `None` if the objects are in shared storage, or there is one server only.
    pub(crate) copies: Option<Arc<Copies>>,
}

impl Objects {
    /// Opens the folders and the backend of `config`; creates missing folders. `servers` are those of the cluster, which keep
    /// copies if the store is shared and nothing else is configured.
    ///
    /// # Errors
    /// [`ObjectError`] if a folder cannot be created or the settings of the bucket are invalid. The bucket need not be
    /// reachable: logs stay on this server until it is.
    pub(crate) fn open(
        config: &ServerConfig,
        store: Arc<dyn Store>,
        servers: Option<Arc<dyn Servers>>,
    ) -> Result<Self, ObjectError> {
        let shared = config.store != StoreConfig::Embedded;
        let copies = match (&config.objects, servers) {
            (ObjectsConfig::Local(None), Some(servers)) if shared => {
                let folder = config.objects_dir().unwrap_or_default();
                Some(Arc::new(Copies::open(folder, servers, Arc::clone(&store), config.copy_rate)?))
            }
            _ => None,
        };
        let backend = Backend::open(config, copies.clone())?;
        Ok(Self {
            logs: Logs::open(config.live_logs_dir(), backend.clone(), shared)?,
            artifacts: Artifacts::open(config.uploads_dir(), config.artifact_bytes_max, backend, store)?,
            copies,
        })
    }
}

/// Why an object could not be read or stored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ObjectError {
    /// The artifact does not exist.
    #[error("artifact `{reference}` does not exist in namespace `{namespace}`")]
    NoArtifact {
        /// Namespace of the request.
        namespace: String,
        /// Requested name or version.
        reference: String,
    },
    /// The artifact has a row, but its bytes are missing.
    #[error("object `{key}` is missing in the object store")]
    Missing {
        /// Key of the object.
        key: String,
    },
    /// The offset lies within a frame.
    #[error("offset {offset} of the log of execution `{execution}` is not the start of a frame")]
    BadOffset {
        /// Execution of the log.
        execution: ExecutionId,
        /// Requested offset.
        offset: u64,
    },
    /// A chunk of a log does not consist of whole frames.
    #[error("the chunk at offset {offset} of the log of execution `{execution}` is malformed")]
    Malformed {
        /// Execution of the log.
        execution: ExecutionId,
        /// Offset of the chunk.
        offset: u64,
    },
    /// The bytes exceed the size limit.
    #[error("{object} is larger than {limit} bytes")]
    TooLarge {
        /// Kind and name of the object, such as "artifact `data`".
        object: String,
        /// Size limit in bytes.
        limit: u64,
    },
    /// The client interrupted the upload.
    #[error("the upload of artifact `{name}` was interrupted")]
    Interrupted {
        /// Name of the artifact.
        name: String,
        /// Cause of the interruption.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A local file could not be read or written.
    #[error("cannot {action} `{path}`")]
    Io {
        /// Failed action, for example `open`.
        action: &'static str,
        /// Path of the file or folder.
        path: PathBuf,
        /// Error of the operating system.
        #[source]
        source: std::io::Error,
    },
    /// The backend failed.
    #[error("a request to the object store failed (object `{key}`)")]
    Backend {
        /// Key of the object.
        key: String,
        /// Error of the backend.
        #[source]
        source: object_store::Error,
    },
    /// Fewer servers than a majority have stored the object.
    #[error("only {copies} of {needed} servers have stored object `{key}`")]
    TooFewCopies {
        /// Key of the object.
        key: String,
        /// Servers that have it, with this one.
        copies: usize,
        /// Servers that a majority has.
        needed: usize,
        /// Why one of the others has not.
        #[source]
        source: Option<Box<dyn std::error::Error + Send + Sync>>,
    },
    /// This server does not have the object, and servers that may have it cannot be asked.
    #[error("this server does not have object `{key}`, and cannot ask all others for it")]
    Elsewhere {
        /// Key of the object.
        key: String,
        /// Why one of the others did not answer.
        #[source]
        source: Option<Box<dyn std::error::Error + Send + Sync>>,
    },
    /// The row of an artifact could not be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl ObjectError {
    /// Returns the next step for the caller.
    pub fn help(&self) -> &'static str {
        match self {
            Self::NoArtifact { .. } => {
                "see `belfry artifact list`; a reference to a version is `NAME@sha256:DIGEST`"
            }
            Self::Missing { .. } => "store the artifact again",
            Self::BadOffset { .. } => "use 0, or the `next_offset` of an earlier response",
            Self::Malformed { .. } => "upgrade the worker that sent the chunk",
            Self::TooLarge { .. } => "store fewer bytes, or raise the setting `server.artifact_size_max`",
            Self::Interrupted { .. } => "send the upload again",
            Self::Io { .. } => "check that the data folder has free space and belongs to the server's user",
            Self::Backend { .. } => "check that the object store is reachable and accepts the credentials",
            Self::TooFewCopies { .. } | Self::Elsewhere { .. } => {
                "repeat the request; if it fails again, check that the servers are running and reach each other"
            }
            Self::Store(error) => error.help(),
        }
    }

    /// Returns whether the volume or the store is full.
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

/// Adds the path and the failed action to an I/O error.
fn io(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> ObjectError {
    let path = path.into();
    move |source| ObjectError::Io { action, path, source }
}

/// Runs blocking file operations on a thread for them.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ObjectError> + Send + 'static,
) -> Result<T, ObjectError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => Err(ObjectError::Io {
            action: "complete the file operation on",
            path: PathBuf::new(),
            source: std::io::Error::other(error),
        }),
    }
}

/// Syncs a folder, which makes its entries durable.
fn sync_dir(dir: &std::path::Path) -> Result<(), ObjectError> {
    std::fs::File::open(dir).and_then(|d| d.sync_all()).map_err(io("sync", dir))
}
