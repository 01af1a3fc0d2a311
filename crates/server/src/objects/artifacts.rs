//! Artifacts: named files, versioned by their hash.
//!
//! The key of the object is its namespace and hash, so a version never changes, and equal bytes are stored once. An
//! upload goes to a local file first, because the hash is its name; then to the backend; then the row is written. A
//! crash in between leaves an object without a row, which the next upload of the same bytes reuses.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use futures::{Stream, StreamExt as _};
use object_store::path::Path as Key;
use sha2::{Digest as _, Sha256};
use store::Store;
use store::query::{Artifact, ArtifactDeletion, ArtifactFilter, DeletionReason};
use tokio::io::AsyncWriteExt as _;
use tokio::sync::RwLock;

use super::{Backend, ByteStream, ObjectError, io};
use crate::clock::{Clock as _, SystemClock};
use crate::private_files::make_private_dir;

/// Number of locks; the hash of an artifact selects one.
const LOCKS: usize = 64;

/// All artifacts; clones are cheap.
#[derive(Clone)]
pub struct Artifacts {
    inner: Arc<Inner>,
}

struct Inner {
    uploads: PathBuf,
    bytes_max: u64,
    backend: Backend,
    store: Arc<dyn Store>,
    /// Locked for reading from the check of an object until the row that refers to it, and for writing from the
    /// deletion of a row until that of its object: no row is left without its bytes. Selected by the hash, so that a
    /// long upload delays few deletions.
    references: [RwLock<()>; LOCKS],
}

impl Inner {
    fn lock_of(&self, sha256: &str) -> &RwLock<()> {
        let number = sha256.get(..4).and_then(|digits| usize::from_str_radix(digits, 16).ok());
        &self.references[number.unwrap_or(0) % LOCKS]
    }
}

impl Artifacts {
    pub(super) fn open(
        uploads: PathBuf,
        bytes_max: u64,
        backend: Backend,
        store: Arc<dyn Store>,
    ) -> Result<Self, ObjectError> {
        // Files of interrupted uploads.
        if uploads.exists() {
            std::fs::remove_dir_all(&uploads).map_err(io("clear", &uploads))?;
        }
        make_private_dir(&uploads).map_err(io("create", &uploads))?;
        Ok(Self {
            inner: Arc::new(Inner {
                uploads,
                bytes_max,
                backend,
                store,
                references: std::array::from_fn(|_| RwLock::default()),
            }),
        })
    }

    /// Stores bytes as the newest version of `name`. The caller validates names.
    ///
    /// Storing the same bytes again makes their version the newest, without a transfer to the backend.
    ///
    /// # Errors
    /// [`ObjectError::TooLarge`]; [`ObjectError::Interrupted`] if `bytes` yields an error; and errors of the disk, the
    /// backend or the store. Then nothing is stored.
    pub async fn put<E>(
        &self,
        namespace: &str,
        name: &str,
        by: &str,
        bytes: impl Stream<Item = Result<Bytes, E>> + Send,
    ) -> Result<Artifact, ObjectError>
    where
        E: Into<Box<dyn std::error::Error + Send + Sync>> + Send,
    {
        let upload = Upload::new(&self.inner.uploads);
        let (sha256, size_bytes) = upload.fill(name, self.inner.bytes_max, bytes).await?;
        let key = key(namespace, &sha256);
        let _referring = self.inner.lock_of(&sha256).read().await;
        if !self.inner.backend.store_again(&key, size_bytes).await? {
            self.inner.backend.put_file(&key, &upload.path).await?;
        }
        let artifact = Artifact {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            sha256,
            size_bytes,
            created_at: SystemClock.now(),
            created_by: by.to_owned(),
        };
        self.inner.store.put_artifact(&artifact).await?;
        Ok(artifact)
    }

    /// Returns the version of a reference: `NAME` is the newest version, `NAME@sha256:DIGEST` the given one.
    ///
    /// # Errors
    /// [`ObjectError::NoArtifact`] if it does not exist.
    pub async fn find(&self, namespace: &str, reference: &str) -> Result<Artifact, ObjectError> {
        let (name, digest) = match reference.split_once("@sha256:") {
            Some((name, digest)) => (name, Some(digest)),
            None => (reference, None),
        };
        let filter = ArtifactFilter {
            namespace: Some(namespace.to_owned()),
            name: Some(name.to_owned()),
            sha256: digest.map(str::to_owned),
            newest_only: digest.is_none(),
            after: None,
        };
        let found = self.inner.store.artifacts(&filter, 1).await?;
        found.into_iter().next().ok_or_else(|| ObjectError::NoArtifact {
            namespace: namespace.to_owned(),
            reference: reference.chars().take(200).collect(),
        })
    }

    /// Deletes a version unless a run needs it
    /// ([`Housekeeping::delete_artifact`](store::Housekeeping::delete_artifact)). Also deletes its bytes unless another
    /// name uses them.
    ///
    /// # Errors
    /// If the store or the backend fails. Bytes without a row may then remain; the next upload of the same bytes reuses
    /// them.
    pub async fn delete(
        &self,
        artifact: &Artifact,
        reason: DeletionReason,
    ) -> Result<ArtifactDeletion, ObjectError> {
        let Artifact { namespace, sha256, .. } = artifact;
        let _alone = self.inner.lock_of(sha256).write().await;
        let deletion = self.inner.store.delete_artifact(artifact, reason).await?;
        let same_bytes = ArtifactFilter {
            namespace: Some(namespace.clone()),
            sha256: Some(sha256.clone()),
            ..ArtifactFilter::default()
        };
        if self.inner.store.artifacts(&same_bytes, 1).await?.is_empty() {
            self.inner.backend.delete(&key(namespace, sha256)).await?;
        }
        Ok(deletion)
    }

    /// Returns all versions of a name, or the one with this hash.
    ///
    /// # Errors
    /// Same as [`Housekeeping::artifacts`](store::Housekeeping::artifacts).
    pub async fn versions(
        &self,
        namespace: &str,
        name: &str,
        sha256: Option<&str>,
    ) -> Result<Vec<Artifact>, ObjectError> {
        let filter = ArtifactFilter {
            namespace: Some(namespace.to_owned()),
            name: Some(name.to_owned()),
            sha256: sha256.map(str::to_owned),
            ..ArtifactFilter::default()
        };
        Ok(self.inner.store.artifacts(&filter, usize::MAX).await?)
    }

    /// Streams the bytes of a version.
    ///
    /// # Errors
    /// [`ObjectError::Missing`] if the bytes are missing in the backend.
    pub async fn get(&self, artifact: &Artifact) -> Result<ByteStream, ObjectError> {
        self.inner.backend.stream(&key(&artifact.namespace, &artifact.sha256)).await
    }
}

fn key(namespace: &str, sha256: &str) -> Key {
    Key::from_iter(["artifacts", namespace, sha256])
}

/// A local file of an upload, whose hash is not known yet; deleted on drop.
struct Upload {
    path: PathBuf,
}

impl Upload {
    fn new(dir: &Path) -> Self {
        Self { path: dir.join(format!("{:032x}", rand::random::<u128>())) }
    }

    /// Writes a stream to the file; returns its hash and size.
    async fn fill<E>(
        &self,
        name: &str,
        limit: u64,
        bytes: impl Stream<Item = Result<Bytes, E>> + Send,
    ) -> Result<(String, u64), ObjectError>
    where
        E: Into<Box<dyn std::error::Error + Send + Sync>> + Send,
    {
        let file = tokio::fs::File::create_new(&self.path).await.map_err(io("create", &self.path))?;
        let mut file = tokio::io::BufWriter::with_capacity(256 * 1024, file);
        let (mut hash, mut size) = (Sha256::new(), 0u64);
        let mut bytes = std::pin::pin!(bytes);
        while let Some(part) = bytes.next().await {
            let part = part
                .map_err(|error| ObjectError::Interrupted { name: name.to_owned(), source: error.into() })?;
            size += part.len() as u64;
            if size > limit {
                return Err(ObjectError::TooLarge { object: format!("artifact `{name}`"), limit });
            }
            hash.update(&part);
            file.write_all(&part).await.map_err(io("write", &self.path))?;
        }
        file.flush().await.map_err(io("write", &self.path))?;
        Ok((hex(&hash.finalize()), size))
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        // A remaining file is deleted at the next start.
        let _removed = std::fs::remove_file(&self.path);
    }
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        // Writing to a String cannot fail.
        let _written = write!(text, "{byte:02x}");
        text
    })
}
