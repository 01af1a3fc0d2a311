//! Backends of objects: a local folder, an S3 bucket, or copies on all servers.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use object_store::aws::AmazonS3Builder;
use object_store::local::LocalFileSystem;
use object_store::path::Path as Key;
use object_store::prefix::PrefixStore;
use object_store::{GetOptions, MultipartUpload, ObjectStore, ObjectStoreExt as _, PutPayload};
use tokio::io::AsyncReadExt as _;

use super::copies::Copies;
use super::{ByteStream, ObjectError, io};
use crate::config::{ObjectsConfig, S3Config, ServerConfig};
use crate::private_files::make_private_dir;

/// Size of a part of an upload in bytes. S3 requires at least 5 MiB for every part except the last.
const PART_BYTES: usize = 8 << 20;

/// A store of whole objects; clones are cheap.
#[derive(Clone)]
pub struct Backend {
    store: Arc<dyn ObjectStore>,
    folder: Option<Arc<Path>>,
    /// Copies on other servers of what is in the folder.
    copies: Option<Arc<Copies>>,
}

impl Backend {
    pub(super) fn open(config: &ServerConfig, copies: Option<Arc<Copies>>) -> Result<Self, ObjectError> {
        match &config.objects {
            ObjectsConfig::S3(s3) => Self::bucket(s3),
            ObjectsConfig::Local(_) => Self::folder(config.objects_dir().unwrap_or_default(), copies),
        }
    }

    fn folder(dir: PathBuf, copies: Option<Arc<Copies>>) -> Result<Self, ObjectError> {
        make_private_dir(&dir).map_err(io("create", &dir))?;
        let dir = dir.canonicalize().map_err(io("open", &dir))?;
        let store = LocalFileSystem::new_with_prefix(&dir).map_err(failed(&Key::default()))?.with_fsync(true);
        Ok(Self { store: Arc::new(store), folder: Some(dir.into()), copies })
    }

    fn bucket(config: &S3Config) -> Result<Self, ObjectError> {
        // The process may have installed a provider already.
        let _chosen = rustls::crypto::ring::default_provider().install_default();
        let address = config.url.strip_prefix("s3://").unwrap_or(&config.url);
        let (bucket, prefix) = address.split_once('/').unwrap_or((address, ""));
        let mut builder = AmazonS3Builder::from_env().with_bucket_name(bucket);
        if let Some(endpoint) = &config.endpoint {
            // An endpoint without TLS is intentional: a gateway on this machine, or a test.
            builder = builder.with_endpoint(endpoint).with_allow_http(endpoint.starts_with("http://"));
        }
        if let Some(region) = &config.region {
            builder = builder.with_region(region);
        }
        let store = builder.build().map_err(failed(&Key::from(config.url.as_str())))?;
        let store: Arc<dyn ObjectStore> = match prefix.trim_matches('/') {
            "" => Arc::new(store),
            prefix => Arc::new(PrefixStore::new(store, prefix)),
        };
        Ok(Self { store, folder: None, copies: None })
    }

    /// Returns the file of an object; `None` if its file alone is not the object: it is in a bucket, or there are copies.
    pub(super) fn file(&self, key: &Key) -> Option<PathBuf> {
        let folder = self.folder.as_deref().filter(|_| self.copies.is_none())?;
        Some(key.parts().fold(folder.to_path_buf(), |path, part| path.join(part.as_ref())))
    }

    /// Returns the size of an object; `None` if it does not exist.
    pub(super) async fn size(&self, key: &Key) -> Result<Option<u64>, ObjectError> {
        if let Some(copies) = &self.copies {
            return copies.size(key).await;
        }
        match self.store.head(key).await {
            Ok(meta) => Ok(Some(meta.size)),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(failed(key)(error)),
        }
    }

    /// Notes that an object is stored again. Returns whether it exists with this size in bytes; otherwise the caller stores
    /// it.
    pub(super) async fn store_again(&self, key: &Key, bytes: u64) -> Result<bool, ObjectError> {
        match &self.copies {
            Some(copies) => copies.store_again(key, bytes).await,
            None => Ok(self.size(key).await? == Some(bytes)),
        }
    }

    /// Makes sure that this server can read an object from its folder, if other servers have it.
    async fn bring(&self, key: &Key) -> Result<(), ObjectError> {
        match &self.copies {
            Some(copies) => copies.bring(key).await.map(drop),
            None => Ok(()),
        }
    }

    /// Returns the size and the first `len` bytes of an object; `None` if it does not exist or is empty.
    pub(super) async fn start(
        &self,
        key: &Key,
        len: u64,
    ) -> Result<Option<(u64, bytes::Bytes)>, ObjectError> {
        self.bring(key).await?;
        let options = GetOptions { range: Some((0..len).into()), ..GetOptions::default() };
        match self.store.get_opts(key, options).await {
            Ok(found) => {
                let size = found.meta.size;
                Ok(Some((size, found.bytes().await.map_err(failed(key))?)))
            }
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(failed(key)(error)),
        }
    }

    /// Returns a range of an object; both ends must lie within it.
    pub(super) async fn range(
        &self,
        key: &Key,
        range: std::ops::Range<u64>,
    ) -> Result<bytes::Bytes, ObjectError> {
        self.bring(key).await?;
        self.store.get_range(key, range).await.map_err(failed(key))
    }

    /// Streams the bytes of an object in order.
    pub(super) async fn stream(&self, key: &Key) -> Result<ByteStream, ObjectError> {
        use futures::StreamExt as _;
        self.bring(key).await?;
        let found = self.store.get(key).await.map_err(failed(key))?;
        let key = key.clone();
        Ok(found.into_stream().map(move |part| part.map_err(failed(&key))).boxed())
    }

    /// Stores a file as an object; large files are uploaded in parts.
    pub(super) async fn put_file(&self, key: &Key, file: &Path) -> Result<(), ObjectError> {
        if let Some(copies) = &self.copies {
            return copies.put_file(key, file).await;
        }
        let mut source = tokio::fs::File::open(file).await.map_err(io("open", file))?;
        let first = read_part(&mut source, file).await?;
        if first.len() < PART_BYTES {
            self.store.put(key, first.into()).await.map_err(failed(key))?;
            return Ok(());
        }
        let mut upload = self.store.put_multipart(key).await.map_err(failed(key))?;
        match put_parts(upload.as_mut(), key, first, &mut source, file).await {
            Ok(()) => Ok(()),
            Err(error) => {
                // Uploaded parts cost money until the upload is aborted; a failure of that cannot be handled here.
                let _dropped = upload.abort().await;
                Err(error)
            }
        }
    }

    /// Deletes an object; succeeds if it does not exist.
    pub(super) async fn delete(&self, key: &Key) -> Result<(), ObjectError> {
        if let Some(copies) = &self.copies {
            return copies.delete(key).await;
        }
        match self.store.delete(key).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(failed(key)(error)),
        }
    }
}

async fn put_parts(
    upload: &mut dyn MultipartUpload,
    key: &Key,
    first: Vec<u8>,
    source: &mut tokio::fs::File,
    file: &Path,
) -> Result<(), ObjectError> {
    let mut part = first;
    while !part.is_empty() {
        upload.put_part(PutPayload::from(part)).await.map_err(failed(key))?;
        part = read_part(source, file).await?;
    }
    upload.complete().await.map_err(failed(key))?;
    Ok(())
}

async fn read_part(source: &mut tokio::fs::File, file: &Path) -> Result<Vec<u8>, ObjectError> {
    let mut part = Vec::new();
    source.take(PART_BYTES as u64).read_to_end(&mut part).await.map_err(io("read", file))?;
    Ok(part)
}

fn failed(key: &Key) -> impl FnOnce(object_store::Error) -> ObjectError + use<> {
    let key = key.to_string();
    move |source| match source {
        object_store::Error::NotFound { .. } => ObjectError::Missing { key },
        source => ObjectError::Backend { key, source },
    }
}
