//! Artifacts: files that jobs take and leave.

use std::path::Path;

use bytes::Bytes;
use futures::StreamExt;
use model::api::{Artifact, List};
use reqwest::header::{CONTENT_LENGTH, ETAG};

use crate::error::Error;
use crate::http::{Client, Request};
use crate::page::{self, Items, Page};

/// Which artifacts; the default is the newest version of each.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ArtifactFilter {
    /// Of this namespace.
    pub namespace: Option<String>,
    /// All versions of this one.
    pub name: Option<String>,
}

/// An artifact that is being fetched.
pub struct ArtifactBody {
    /// The hash that names its version.
    pub sha256: Option<String>,
    /// How many bytes will come.
    pub size_bytes: Option<u64>,
    client: Client,
    response: reqwest::Response,
}

impl ArtifactBody {
    /// The next piece, or `None` at the end.
    ///
    /// # Errors
    /// If the connection breaks or nothing comes for too long.
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
    // The hash of its bytes names a version: the same bytes again are the same version.
    Request::put(["artifacts", name]).query_opt("namespace", namespace)
}

impl Client {
    /// Stores bytes as the newest version of an artifact.
    ///
    /// # Errors
    /// As every request.
    pub async fn put_artifact(
        &self,
        name: &str,
        namespace: Option<&str>,
        bytes: Bytes,
    ) -> Result<Artifact, Error> {
        self.json(put(name, namespace).bytes(bytes)).await
    }

    /// Stores a file as the newest version of an artifact; it is read anew for each try.
    ///
    /// # Errors
    /// As every request, and [`Error::File`].
    pub async fn put_artifact_file(
        &self,
        name: &str,
        namespace: Option<&str>,
        path: &Path,
    ) -> Result<Artifact, Error> {
        self.json(put(name, namespace).file(path.to_owned())).await
    }

    /// Deletes an artifact: one version, or all of them.
    ///
    /// # Errors
    /// As every request.
    pub async fn delete_artifact(
        &self,
        name: &str,
        namespace: Option<&str>,
        version: Option<&str>,
    ) -> Result<(), Error> {
        let request = Request::delete(["artifacts", name]);
        self.done(request.query_opt("namespace", namespace).query_opt("version", version)).await
    }

    /// One page of artifacts.
    ///
    /// # Errors
    /// As every request.
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

    /// All artifacts that the filter lets through.
    pub fn artifacts(&self, filter: ArtifactFilter) -> Items<Artifact> {
        let (client, filter) = (self.clone(), std::sync::Arc::new(filter));
        page::all(move |page| {
            let (client, filter) = (client.clone(), filter.clone());
            async move { client.artifacts_page(&filter, &page).await }
        })
    }

    /// Fetches a version of an artifact; the newest where none is named.
    ///
    /// # Errors
    /// As every request.
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
    /// The pieces as a stream.
    pub fn into_stream(self) -> Items<Bytes> {
        futures::stream::try_unfold(self, |mut body| async move {
            Ok(body.chunk().await?.map(|chunk| (chunk, body)))
        })
        .boxed()
    }
}
