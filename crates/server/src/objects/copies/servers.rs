//! The other servers of the cluster, as the copies need them.

use std::collections::BTreeSet;
use std::path::Path;

use async_trait::async_trait;
use object_store::path::Path as Key;
use serde::{Deserialize, Serialize};
use store::cluster::ServerRecord;

use crate::objects::ByteStream;

/// The servers at a time.
#[derive(Debug, Clone, Default)]
pub(crate) struct ServersNow {
    /// Servers that are present, without this one.
    pub(crate) others: Vec<ServerRecord>,
    /// Number of servers with this one, present or not.
    pub(crate) total: usize,
}

/// Objects that a server has stored after a position.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RecentKeys {
    /// Position of the next request.
    pub(crate) next: u64,
    /// Keys of the objects, the oldest first; `None` if the server does not know all of them any more.
    pub(crate) keys: Option<Vec<String>>,
}

/// Why another server did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ServerError {
    /// The server has no copies: its release is older, or it stores objects elsewhere.
    #[error("server `{server}` keeps no copies of objects")]
    KeepsNone {
        /// Name of the server.
        server: String,
    },
    /// The request failed.
    #[error("cannot {action} server `{server}`")]
    Failed {
        /// What failed, such as `send an object to`.
        action: &'static str,
        /// Name of the server.
        server: String,
        /// Cause.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// Access to the objects of other servers.
#[async_trait]
pub(crate) trait Servers: Send + Sync {
    /// Returns the servers of the last reading of the cluster.
    fn now(&self) -> ServersNow;

    /// Sends a file as an object. Returns when the other server has stored it durably.
    async fn put(&self, to: &ServerRecord, key: &Key, file: &Path) -> Result<(), ServerError>;

    /// Returns the bytes of an object; `None` if the server does not have it. The stream fails if it ends early.
    async fn get(&self, from: &ServerRecord, key: &Key) -> Result<Option<ByteStream>, ServerError>;

    /// Returns the size of an object in bytes; `None` if the server does not have it.
    async fn size(&self, at: &ServerRecord, key: &Key) -> Result<Option<u64>, ServerError>;

    /// Asks to delete objects that no row needs any more.
    async fn delete(&self, at: &ServerRecord, keys: &[Key]) -> Result<(), ServerError>;

    /// Returns the objects that the server has stored as the first one, after a position.
    async fn recent(&self, at: &ServerRecord, after: u64) -> Result<RecentKeys, ServerError>;

    /// Returns the folders of objects.
    async fn folders(&self, at: &ServerRecord) -> Result<BTreeSet<String>, ServerError>;

    /// Returns the names of the objects of a folder; `None` if their [digest](super::digest) is this one.
    async fn names(
        &self,
        at: &ServerRecord,
        folder: &str,
        digest: &str,
    ) -> Result<Option<BTreeSet<String>>, ServerError>;
}
