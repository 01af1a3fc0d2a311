//! Artifacts: stored bytes are returned unchanged.

use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _};
use proto::v1::{GetArtifactRequest, PutArtifactRequest, PutArtifactResponse};
use server::objects::{Artifacts, ObjectError};
use server::testing::{self, Plan, Task};
use store::Housekeeping as _;
use store::query::{Artifact, ArtifactFilter};
use tonic::{Code, Status};

use crate::harness::{Server, job, soon, submit};

type Parts = Vec<Result<Bytes, std::io::Error>>;

fn parts(bytes: &[u8]) -> Parts {
    bytes.chunks(1_000_000).map(|part| Ok(Bytes::copy_from_slice(part))).collect()
}

pub(crate) async fn put(artifacts: &Artifacts, name: &str, bytes: &[u8]) -> Result<Artifact, ObjectError> {
    artifacts.put("default", name, "test", futures::stream::iter(parts(bytes))).await
}

pub(crate) async fn get(artifacts: &Artifacts, artifact: &Artifact) -> Vec<u8> {
    let parts: Vec<Bytes> = artifacts.get(artifact).await.unwrap().try_collect().await.unwrap();
    parts.concat()
}

/// A11.
#[tokio::test]
async fn every_version_of_an_artifact_is_returned_unchanged() {
    let server = Server::start().await;
    let artifacts = &server.running.services.objects.artifacts;
    let large = vec![7; 20_000_001];
    let first = put(artifacts, "tool", b"one").await.unwrap();
    let second = put(artifacts, "tool", &large).await.unwrap();
    assert_eq!(first.sha256, "7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed");
    assert_eq!(artifacts.find("default", "tool").await.unwrap().sha256, second.sha256);
    let pinned = artifacts.find("default", &format!("tool@sha256:{}", first.sha256)).await.unwrap();
    assert_eq!(get(artifacts, &pinned).await, b"one");
    assert_eq!(get(artifacts, &second).await, large);
    // The same bytes again create no third version, but become the newest.
    put(artifacts, "tool", b"one").await.unwrap();
    assert_eq!(artifacts.find("default", "tool").await.unwrap().sha256, first.sha256);
    let filter = ArtifactFilter { name: Some("tool".into()), ..ArtifactFilter::default() };
    assert_eq!(server.store.artifacts(&filter, 10).await.unwrap().len(), 2);
    let missing = artifacts.find("other", "tool").await;
    assert!(matches!(missing, Err(ObjectError::NoArtifact { .. })), "{missing:?}");
}

#[tokio::test]
async fn an_oversized_or_interrupted_upload_leaves_nothing() {
    let server = Server::start_with(|config| config.artifact_bytes_max = 1_000).await;
    let artifacts = &server.running.services.objects.artifacts;
    assert!(put(artifacts, "fits", &[0; 1_000]).await.is_ok());
    insta::assert_snapshot!(put(artifacts, "large", &[0; 1_001]).await.unwrap_err(), @"artifact `large` is larger than 1000 bytes");
    let broken: Parts = vec![Ok("half".into()), Err(std::io::Error::other("gone"))];
    let broken = artifacts.put("default", "half", "test", futures::stream::iter(broken)).await;
    insta::assert_snapshot!(broken.unwrap_err(), @"the upload of artifact `half` was interrupted");
    let uploads = std::fs::read_dir(server.running.services.config.uploads_dir()).unwrap();
    assert_eq!(uploads.count(), 0);
    assert!(artifacts.find("default", "half").await.is_err());
}

async fn upload(
    server: &Server,
    task: &Task,
    name: &str,
    bytes: &[u8],
) -> Result<PutArtifactResponse, Status> {
    let head = PutArtifactRequest {
        namespace: "default".into(),
        name: name.into(),
        execution_id: task.execution.clone(),
        fence: task.fence,
        data: Bytes::new(),
    };
    let data: Vec<_> = bytes.chunks(100_000).map(Bytes::copy_from_slice).collect();
    let rest = data.into_iter().map(|data| PutArtifactRequest { data, ..PutArtifactRequest::default() });
    let messages = futures::stream::iter(std::iter::once(head).chain(rest).collect::<Vec<_>>());
    let mut client = testing::client(&server.url()).await.unwrap();
    client
        .put_artifact(testing::with_token(messages, &server.worker_token()))
        .await
        .map(tonic::Response::into_inner)
}

async fn download(server: &Server, reference: &str) -> Result<(String, Vec<u8>), Status> {
    let mut client = testing::client(&server.url()).await.unwrap();
    let request = GetArtifactRequest { namespace: "default".into(), reference: reference.into() };
    let mut chunks =
        client.get_artifact(testing::with_token(request, &server.worker_token())).await?.into_inner();
    let (mut sha256, mut bytes) = (String::new(), Vec::new());
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk?;
        sha256.push_str(&chunk.sha256);
        bytes.extend_from_slice(&chunk.data);
    }
    Ok((sha256, bytes))
}

/// A11. A worker transfers the outputs and the inputs of its executions.
#[tokio::test]
async fn a_worker_stores_and_fetches_the_files_of_its_executions() {
    let server = Server::start().await;
    let worker = server.worker(server.fake().plan(|_| Plan::Run)).await;
    submit(server.node(), job(), None).await.unwrap();
    let task = soon("the job to run", worker.next_running()).await;
    let bytes = vec![3; 1_234_567];
    let stored = upload(&server, &task, "report", &bytes).await.unwrap();
    assert_eq!(stored.size_bytes, bytes.len() as u64);
    assert_eq!(download(&server, "report").await.unwrap(), (stored.sha256.clone(), bytes.clone()));
    let pinned = format!("report@sha256:{}", stored.sha256);
    assert_eq!(download(&server, &pinned).await.unwrap().1, bytes);
    assert_eq!(download(&server, "nothing").await.unwrap_err().code(), Code::NotFound);
}

/// Guard by fence, never by id alone.
#[tokio::test]
async fn only_a_live_execution_stores_files_and_only_under_valid_names() {
    let server = Server::start().await;
    let worker = server.worker(server.fake().plan(|_| Plan::Run)).await;
    let made = submit(server.node(), job(), None).await.unwrap();
    let task = soon("the job to run", worker.next_running()).await;
    let older = Task { fence: task.fence - 1, ..task.clone() };
    assert_eq!(upload(&server, &older, "a", b"x").await.unwrap_err().code(), Code::FailedPrecondition);
    for name in ["", "../a", "a/b", ".a"] {
        assert_eq!(
            upload(&server, &task, name, b"x").await.unwrap_err().code(),
            Code::InvalidArgument,
            "{name}"
        );
    }
    worker.exit(&task, 0);
    server.until_status(made.job, model::JobStatus::Succeeded).await;
    assert_eq!(upload(&server, &task, "a", b"x").await.unwrap_err().code(), Code::FailedPrecondition);
}
