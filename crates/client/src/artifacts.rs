//! Artifacts: files that jobs use and produce. Each version of an artifact is identified by its SHA-256.

use std::path::Path;

use bytes::Bytes;
use futures::StreamExt;
use model::api::{Artifact, List};
use reqwest::header::{CONTENT_LENGTH, ETAG};

use crate::error::Error;
use crate::http::{Client, Request};
use crate::page::{self, Items, Page};

/// Filter for artifacts. By default it selects the newest version of each artifact.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ArtifactFilter {
    /// Namespace; `None` selects all namespaces.
    pub namespace: Option<String>,
    /// Name of an artifact, of which all versions are listed.
    pub name: Option<String>,
}

/// Download of an artifact.
pub struct ArtifactBody {
    /// SHA-256 of the whole artifact in hexadecimal, which identifies the version. The client does not verify it.
    pub sha256: Option<String>,
    /// Size of the artifact in bytes.
    pub size_bytes: Option<u64>,
    client: Client,
    response: reqwest::Response,
}

impl ArtifactBody {
    /// Returns the next chunk, or `None` at the end.
    ///
    /// # Errors
    /// [`Error::Interrupted`] if the connection is lost, and [`Error::Timeout`] if no bytes arrive for
    /// [`Timeouts::idle`](crate::Timeouts::idle).
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, Error> {
        let idle = self.client.patience().idle;
        let url = self.client.url().to_owned();
        match tokio::time::timeout(idle, self.response.chunk()).await {
            Ok(chunk) => chunk.map_err(|e| Error::Interrupted { url, source: e.without_url() }),
            Err(_) => Err(Error::Timeout { url, after: idle }),
        }
    }
}

fn put(name: &str, namespace: Option<&str>) -> Request {
    // Idempotent: the same bytes are the same version.
    Request::put(["artifacts", name]).query_opt("namespace", namespace)
}

impl Client {
    /// Stores bytes as the newest version of an artifact.
    ///
    /// `namespace` defaults to `default`.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `body_too_large` and `storage_full`.
    pub async fn put_artifact(
        &self,
        name: &str,
        namespace: Option<&str>,
        bytes: Bytes,
    ) -> Result<Artifact, Error> {
        self.json(put(name, namespace).bytes(bytes)).await
    }

    /// Stores a file as the newest version of an artifact. Each retry reads the file again.
    ///
    /// The upload has no timeout.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `body_too_large` and `storage_full`, or
    /// [`Error::File`] if the file cannot be read.
    pub async fn put_artifact_file(
        &self,
        name: &str,
        namespace: Option<&str>,
        path: &Path,
    ) -> Result<Artifact, Error> {
        self.json(put(name, namespace).file(path.to_owned())).await
    }

    /// Deletes a version of an artifact, or all versions if `version` is `None`.
    ///
    /// `version` is a SHA-256 in hexadecimal.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `artifact_not_found` and `artifact_in_use`.
    pub async fn delete_artifact(
        &self,
        name: &str,
        namespace: Option<&str>,
        version: Option<&str>,
    ) -> Result<(), Error> {
        let request = Request::delete(["artifacts", name]);
        self.send_ignoring_body(request.query_opt("namespace", namespace).query_opt("version", version)).await
    }

    /// Returns one page of artifacts.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors).
    pub async fn artifacts_page(
        &self,
        filter: &ArtifactFilter,
        page: &Page,
    ) -> Result<List<Artifact>, Error> {
        let request = Request::get(["artifacts"])
            .query_opt("namespace", filter.namespace.as_ref())
            .query_opt("name", filter.name.as_ref())
            .page(page);
        self.json(request).await
    }

    /// Streams all artifacts that match the filter.
    pub fn artifacts(&self, filter: ArtifactFilter) -> Items<Artifact> {
        let (client, filter) = (self.clone(), std::sync::Arc::new(filter));
        page::all(move |page| {
            let (client, filter) = (client.clone(), filter.clone());
            async move { client.artifacts_page(&filter, &page).await }
        })
    }

    /// Starts the download of a version of an artifact, or of the newest version if `version` is `None`.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `artifact_not_found`.
    pub async fn artifact(
        &self,
        name: &str,
        namespace: Option<&str>,
        version: Option<&str>,
    ) -> Result<ArtifactBody, Error> {
        let request = Request::get(["artifacts", name])
            .query_opt("namespace", namespace)
            .query_opt("version", version)
            .header("accept", "*/*");
        let response = self.open(&request).await?;
        let header =
            |name| response.headers().get(name).and_then(|v: &reqwest::header::HeaderValue| v.to_str().ok());
        let sha256 = header(ETAG).map(|tag| tag.trim_matches('"').trim_start_matches("sha256:").to_owned());
        let size_bytes = header(CONTENT_LENGTH).and_then(|n| n.parse().ok());
        Ok(ArtifactBody { sha256, size_bytes, client: self.clone(), response })
    }
}

impl ArtifactBody {
    /// Converts the download into a stream of chunks.
    pub fn into_stream(self) -> Items<Bytes> {
        futures::stream::try_unfold(self, |mut body| async move {
            Ok(body.chunk().await?.map(|chunk| (chunk, body)))
        })
        .boxed()
    }
}
