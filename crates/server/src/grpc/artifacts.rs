//! Transfer of artifacts between workers and the object store: inputs and outputs of executions.

use bytes::Bytes;
use futures::StreamExt as _;
use model::Fence;
use model::error_chain::Chain;
use proto::v1::{ArtifactChunk, GetArtifactRequest, PutArtifactRequest, PutArtifactResponse};
use tonic::{Status, Streaming};

use super::{FIRST_MESSAGE_TIMEOUT, Replies, convert, malformed};
use crate::objects::ObjectError;
use crate::services::Services;

/// Most bytes of one message.
const CHUNK_BYTES: usize = 256 * 1024;

/// Sends the requested version of an artifact.
pub(super) async fn get(
    services: &Services,
    request: GetArtifactRequest,
) -> Result<Replies<ArtifactChunk>, Status> {
    let artifacts = &services.objects.artifacts;
    let artifact = artifacts.find(&request.namespace, &request.reference).await.map_err(|e| status(&e))?;
    let bytes = artifacts.get(&artifact).await.map_err(|e| status(&e))?;
    let first =
        ArtifactChunk { sha256: artifact.sha256, size_bytes: artifact.size_bytes, data: Bytes::new() };
    let rest = bytes.flat_map(|part| futures::stream::iter(messages(part)));
    Ok(futures::stream::once(std::future::ready(Ok(first))).chain(rest).boxed())
}

/// Splits one part of an object into messages.
fn messages(part: Result<Bytes, ObjectError>) -> Vec<Result<ArtifactChunk, Status>> {
    match part {
        Ok(mut bytes) => {
            let mut messages = Vec::with_capacity(bytes.len() / CHUNK_BYTES + 1);
            while !bytes.is_empty() {
                let data = bytes.split_to(bytes.len().min(CHUNK_BYTES));
                messages.push(Ok(ArtifactChunk { data, ..ArtifactChunk::default() }));
            }
            messages
        }
        Err(error) => vec![Err(status(&error))],
    }
}

/// Stores an output of a running execution.
pub(super) async fn put(
    services: &Services,
    mut inbound: Streaming<PutArtifactRequest>,
) -> Result<PutArtifactResponse, Status> {
    let first = match tokio::time::timeout(FIRST_MESSAGE_TIMEOUT, inbound.message()).await {
        Ok(Ok(Some(first))) => first,
        Ok(Ok(None)) => return Err(Status::invalid_argument("the stream ended before its first message")),
        Ok(Err(status)) => return Err(status),
        Err(_elapsed) => {
            return Err(Status::deadline_exceeded(format!("no message within {FIRST_MESSAGE_TIMEOUT:?}")));
        }
    };
    check(services, &first).await?;
    let PutArtifactRequest { namespace, name, execution_id, data, .. } = first;
    let rest = inbound.map(|message| message.map(|message| message.data));
    let bytes = futures::stream::once(std::future::ready(Ok(data))).chain(rest);
    let stored = services.objects.artifacts.put(&namespace, &name, &execution_id, bytes).await;
    let stored = stored.map_err(|error| status(&error))?;
    Ok(PutArtifactResponse { name: stored.name, sha256: stored.sha256, size_bytes: stored.size_bytes })
}

/// Checks that a live execution with this fence stores into its own namespace.
async fn check(services: &Services, first: &PutArtifactRequest) -> Result<(), Status> {
    let execution = convert::execution_id(&first.execution_id, "artifact upload")
        .map_err(|error| malformed(services, None, &error))?;
    if !is_name(&first.name) {
        let shown: String = first.name.chars().take(64).collect();
        let problem = format!("{shown:?} is not a valid artifact name");
        return Err(malformed(services, None, &convert::Malformed::new("artifact upload", problem)));
    }
    let row = services.node.store().execution(execution).await.map_err(|error| {
        tracing::warn!(
            execution_id = %execution, artifact = first.name, error = %Chain(&error),
            "cannot read the execution that stores an artifact"
        );
        Status::unavailable(format!(
            "cannot read execution `{execution}`: the store is unavailable; retry later"
        ))
    })?;
    let known = row.filter(|row| {
        row.record.fence == Fence(first.fence)
            && !row.record.status.is_final()
            && *row.namespace == *first.namespace
    });
    match known {
        Some(_) => Ok(()),
        None => Err(Status::failed_precondition(format!(
            "cannot store artifact `{}`: execution `{execution}` has ended, was replaced or is in another namespace",
            first.name
        ))),
    }
}

/// Implements the rule of [`model::validate`] for artifacts of a spec.
fn is_name(name: &str) -> bool {
    let bytes = name.as_bytes();
    (1..=model::limits::NAME_LEN_MAX).contains(&bytes.len())
        && bytes[0].is_ascii_alphanumeric()
        && bytes.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
}

fn status(error: &ObjectError) -> Status {
    match error {
        ObjectError::NoArtifact { .. } | ObjectError::Missing { .. } => Status::not_found(error.to_string()),
        ObjectError::TooLarge { .. } => Status::resource_exhausted(error.to_string()),
        ObjectError::Interrupted { .. } => Status::cancelled(error.to_string()),
        _ => {
            tracing::warn!(error = %Chain(error), "cannot transfer an artifact");
            Status::unavailable("the object store is unavailable; retry later")
        }
    }
}
