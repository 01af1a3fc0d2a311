//! Artifacts: store, list, download, delete.
//!
//! Uploads and downloads are streamed between the client and `objects`; no file is held in memory. An upload may be
//! slow, but it fails after a pause of [`BODY_TIMEOUT`]. Downloads are always attachments, so that no browser displays
//! a file of a user as a page of this server.
//!
//! A version that a live run stored is not deleted.

use std::cmp::Reverse;
use std::fmt::Write as _;
use std::str::FromStr;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::{CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_TYPE, ETAG, LOCATION};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use bytes::Bytes;
use futures::{Stream, StreamExt};
use model::api::{Artifact, List};
use model::queue::QueueSettings;
use model::spec::DEFAULT;
use model::{Timestamp, validate};
use serde::Deserialize;
use store::query::{ArtifactDeletion, ArtifactFilter, DeletionReason, Paged};
use utoipa_axum::routes;

use super::extract::{BODY_TIMEOUT, Params, Path};
use super::page::Selection;
use super::problem::{ApiError, Code, excerpt};
use super::routes::Routes;
use super::rows::permit;
use super::{Api, convert, page};
use crate::auth::{Actor, Resource, Verb};

pub(super) fn routes(routes: &mut Routes) {
    let artifacts = Resource::Artifacts;
    routes.needs(Verb::Create, artifacts, &[Code::InvalidParameter], routes!(put_artifact));
    routes.streams_body();
    routes.needs(Verb::Read, artifacts, &[Code::InvalidCursor, Code::QueryTooSlow], routes!(list_artifacts));
    routes.needs(Verb::Read, artifacts, &[Code::ArtifactNotFound], routes!(get_artifact));
    let delete_refusals = [Code::ArtifactNotFound, Code::ArtifactInUse, Code::InvalidParameter];
    routes.needs(Verb::Delete, artifacts, &delete_refusals, routes!(delete_artifact));
}

/// Checks a name of jobs, queues or artifacts. The rule is in `model`: a queue's default settings are valid, so only
/// its name can be refused.
fn check_name(parameter: &str, name: &str) -> Result<(), ApiError> {
    validate::queue(name, &QueueSettings::default()).map_err(|invalid| {
        let wrong = invalid.problems.into_iter().next().map(|problem| problem.message);
        ApiError::parameter(parameter, wrong.unwrap_or_default())
    })
}

#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
struct PutArtifactParams {
    /// Namespace of the artifact [default: `default`].
    namespace: Option<String>,
}

/// Store a file as the newest version of an artifact
///
/// The body is the file, of any type. The server stores it while it arrives. The hash of the bytes identifies the
/// version: storing the same bytes again does not create another version.
#[utoipa::path(put, path = "/api/v1/artifacts/{name}", tag = "artifacts",
    params(("name" = String, Path), PutArtifactParams),
    request_body(content = Vec<u8>, content_type = "application/octet-stream", description = "The file"),
    responses((status = 201, description = "The version", body = Artifact, headers(
        ("Location" = String, description = "The version"),
        ("ETag" = String, description = "Hash of the bytes"),
    )))
)]
async fn put_artifact(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Path(name): Path<String>,
    Params(params): Params<PutArtifactParams>,
    request: Request,
) -> Result<Response, ApiError> {
    let namespace = params.namespace.as_deref().unwrap_or(DEFAULT);
    check_name("name", &name)?;
    check_name("namespace", namespace)?;
    actor.check(namespace)?;
    let limit = api.config.artifact_bytes_max;
    let announced =
        request.headers().get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    if let Some(length) = announced.filter(|&length| length > limit) {
        let detail = format!("artifact `{name}` has {length} bytes: expected at most {limit}");
        return Err(ApiError::new(Code::BodyTooLarge, detail));
    }
    let bytes = steady(request.into_body());
    let row = api.objects.artifacts.put(namespace, &name, &actor.name, bytes).await?;
    let artifact = convert::artifact(row);
    let location = format!("/api/v1/artifacts/{name}?namespace={namespace}&version={}", artifact.sha256);
    Ok((
        StatusCode::CREATED,
        [(LOCATION, header(&location)), (ETAG, digest_tag(&artifact.sha256))],
        Json(artifact),
    )
        .into_response())
}

/// Why an upload ended early.
#[derive(Debug, thiserror::Error)]
enum UploadError {
    #[error("no data received for {}s", BODY_TIMEOUT.as_secs())]
    Stalled,
    #[error(transparent)]
    Body(#[from] axum::Error),
}

/// Streams a body, which may be slow but must not pause longer than [`BODY_TIMEOUT`].
fn steady(body: Body) -> impl Stream<Item = Result<Bytes, UploadError>> + Send {
    steady_within(body, BODY_TIMEOUT)
}

fn steady_within(body: Body, silence_max: Duration) -> impl Stream<Item = Result<Bytes, UploadError>> + Send {
    futures::stream::unfold(Some(body.into_data_stream()), move |stream| async move {
        let mut stream = stream?;
        match tokio::time::timeout(silence_max, stream.next()).await {
            Ok(part) => Some((part?.map_err(UploadError::from), Some(stream))),
            Err(_) => Some((Err(UploadError::Stalled), None)),
        }
    })
}

fn header(text: &str) -> HeaderValue {
    // Names are letters, digits, `-`, `_` and `.`; hashes are hex.
    HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static(""))
}

fn digest_tag(sha256: &str) -> HeaderValue {
    header(&format!("\"{sha256}\""))
}

#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
struct ListArtifactsParams {
    /// Namespace to list; `*` for all namespaces [default: *]
    namespace: Option<String>,
    /// Name of an artifact; lists all its versions instead of the newest version of each artifact.
    name: Option<String>,
    /// Maximum number of items on the page, from 1 to 1000 [default: 50]
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// `next_cursor` of the previous page.
    cursor: Option<String>,
}

/// Last position of a page of artifacts.
struct ArtifactPosition(String, String, Timestamp);

impl FromStr for ArtifactPosition {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let mut parts = text.splitn(3, '/');
        let mut part = || parts.next().map(str::to_owned).ok_or(());
        let (namespace, name, micros) = (part()?, part()?, part()?);
        Ok(Self(namespace, name, Timestamp::from_micros(micros.parse().map_err(|_| ())?)))
    }
}

/// List artifacts
///
/// Returns the newest version of each name; with `name`, all versions of that artifact, newest first.
#[utoipa::path(get, path = "/api/v1/artifacts", tag = "artifacts", params(ListArtifactsParams), responses(
    (status = 200, description = "One page", body = List<Artifact>),
))]
async fn list_artifacts(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Params(params): Params<ListArtifactsParams>,
) -> Result<Json<List<Artifact>>, ApiError> {
    let limit = page::limit(params.limit)?;
    let mut filter = ArtifactFilter {
        namespace: page::namespace(params.namespace),
        newest_only: params.name.is_none(),
        name: params.name,
        ..ArtifactFilter::default()
    };
    let after =
        api.shared.cursors.read::<ArtifactPosition>("artifacts", &filter, params.cursor.as_deref())?;
    let unpaged = filter.clone();
    filter.after = after.map(|ArtifactPosition(namespace, name, at)| (namespace, name, at));
    let (filter, store) = (&filter, api.node.store());
    let query = |namespace| async move {
        let filter = ArtifactFilter { namespace, ..filter.clone() };
        let mut items = store.artifacts(&filter, limit + 1).await?;
        let more = items.len() > limit;
        items.truncate(limit);
        Ok(Paged { items, more })
    };
    let selection = Selection::of(&actor, filter.namespace.as_deref())?;
    // Newest first, and equal times by namespace and name.
    let place =
        |row: &store::query::Artifact| (row.created_at, Reverse((row.namespace.clone(), row.name.clone())));
    let Paged { items: rows, more } = selection.page(limit, query, place).await?;
    let last = rows.last().filter(|_| more);
    let next_cursor = last.map(|row| {
        let place = format!("{}/{}/{}", row.namespace, row.name, row.created_at.as_micros());
        api.shared.cursors.make("artifacts", &unpaged, &place)
    });
    Ok(Json(List { items: rows.into_iter().map(convert::artifact).collect(), next_cursor }))
}

#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
struct GetArtifactParams {
    /// Namespace of the artifact [default: `default`].
    namespace: Option<String>,
    /// Hash of the version [default: the newest version for a download, all versions for a deletion]
    #[param(example = "2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae")]
    version: Option<String>,
}

fn no_artifact(name: &str, namespace: &str) -> ApiError {
    let detail = format!("artifact `{name}` does not exist in namespace `{namespace}`");
    ApiError::new(Code::ArtifactNotFound, detail)
}

/// Returns the hash of a version, given with or without the prefix `sha256:`.
fn digest(version: &str) -> Result<&str, ApiError> {
    let hex = version.strip_prefix("sha256:").unwrap_or(version);
    let well_formed = hex.len() == 64 && hex.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    well_formed.then_some(hex).ok_or_else(|| {
        let shown = excerpt(version);
        ApiError::parameter("version", format!("`{shown}` is not a hash: expected 64 lowercase hex digits"))
    })
}

/// Fetch the bytes of an artifact
#[utoipa::path(get, path = "/api/v1/artifacts/{name}", tag = "artifacts",
    params(("name" = String, Path), GetArtifactParams),
    responses((status = 200, description = "The file", content_type = "application/octet-stream", body = Vec<u8>, headers(
        ("ETag" = String, description = "Hash of the bytes"),
        ("Content-Disposition" = String, description = "Always `attachment`, so that a browser does not display the file"),
    )))
)]
async fn get_artifact(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Path(name): Path<String>,
    Params(params): Params<GetArtifactParams>,
) -> Result<Response, ApiError> {
    let namespace = params.namespace.as_deref().unwrap_or(DEFAULT);
    check_name("name", &name)?;
    check_name("namespace", namespace)?;
    permit(&actor, namespace, || no_artifact(&name, namespace))?;
    let reference = match params.version.as_deref() {
        Some(version) => format!("{name}@sha256:{}", digest(version)?),
        None => name.clone(),
    };
    let artifact = api.objects.artifacts.find(namespace, &reference).await?;
    let bytes = api.objects.artifacts.get(&artifact).await?;
    let headers = [
        (CONTENT_TYPE, HeaderValue::from_static("application/octet-stream")),
        (CONTENT_LENGTH, HeaderValue::from(artifact.size_bytes)),
        (CONTENT_DISPOSITION, header(&format!("attachment; filename=\"{name}\""))),
        (ETAG, digest_tag(&artifact.sha256)),
    ];
    Ok((headers, Body::from_stream(bytes)).into_response())
}

/// Delete an artifact
///
/// Deletes all versions, or only the version that `version` names. Jobs that use a deleted artifact as an input then
/// fail to start. A version that a step of a live run stored is not deleted (`artifact_in_use`); the other versions
/// are.
#[utoipa::path(delete, path = "/api/v1/artifacts/{name}", tag = "artifacts",
    params(("name" = String, Path), GetArtifactParams),
    responses((status = 204, description = "Deleted"))
)]
async fn delete_artifact(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Path(name): Path<String>,
    Params(params): Params<GetArtifactParams>,
) -> Result<StatusCode, ApiError> {
    let namespace = params.namespace.as_deref().unwrap_or(DEFAULT);
    check_name("name", &name)?;
    check_name("namespace", namespace)?;
    permit(&actor, namespace, || no_artifact(&name, namespace))?;
    let version = params.version.as_deref().map(digest).transpose()?;
    let versions = api.objects.artifacts.versions(namespace, &name, version).await?;
    let (mut deleted, mut needed) = (0, Vec::new());
    for artifact in &versions {
        match api.objects.artifacts.delete(artifact, DeletionReason::Request).await? {
            ArtifactDeletion::Deleted => deleted += 1,
            ArtifactDeletion::Absent => {}
            ArtifactDeletion::Pinned(run) => needed.push((artifact, run)),
        }
    }
    if let Some((artifact, run)) = needed.first() {
        let mut detail = format!(
            "cannot delete `{name}@sha256:{}`: run `{run}`, which has not ended, stored it and may read it",
            artifact.sha256
        );
        if needed.len() > 1 {
            // Writing to a String cannot fail.
            let _written = write!(detail, "; live runs need {} more versions", needed.len() - 1);
        }
        if deleted > 0 {
            let _written = write!(detail, "; other versions deleted: {deleted}");
        }
        return Err(ApiError::new(Code::ArtifactInUse, detail));
    }
    if deleted == 0 {
        let version = version.map_or_else(String::new, |version| format!("@sha256:{version}"));
        return Err(no_artifact(&format!("{name}{version}"), namespace));
    }
    tracing::info!(artifact = name, namespace, versions = deleted, by = %actor.name, "artifact deleted");
    Ok(StatusCode::NO_CONTENT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_stalled_upload_is_an_error() {
        let first = futures::stream::iter([Ok::<_, std::io::Error>("some bytes")]);
        let body = Body::from_stream(first.chain(futures::stream::pending()));
        let parts: Vec<_> = steady(body).collect().await;
        assert!(matches!(parts.as_slice(), [Ok(_), Err(UploadError::Stalled)]), "{parts:?}");
    }

    #[test]
    fn names_follow_the_rule_of_the_model() {
        assert!(check_name("name", "tool-1.2_x").is_ok());
        insta::assert_snapshot!(check_name("name", "../x").unwrap_err().into_problem(None).detail, @"name: `../x` is not a valid name: expected 1 to 63 letters, digits, `-`, `_` or `.`, starting with a letter or digit");
    }
}
