//! Requests of running tasks, sent through their agents.
//!
//! Only the current execution of a job can change something: the engine checks its fence, as with reports. A reply is
//! sent after the commit. A caller whose outcome is unknown can repeat the request, because all requests are
//! idempotent.

use std::time::Duration;

use engine::output::Added;
use engine::{Input, Reply, TaskRequest};
use model::error_chain::Chain;
use model::limits::NAME_LEN_MAX;
use model::{ExecutionId, Fence, JobSpec, Refusal};
use proto::v1::{
    AddElementsRequest, AddElementsResponse, Checkpoint, GetCheckpointRequest, GetEndpointsRequest,
    GetEndpointsResponse, SaveCheckpointRequest, SaveCheckpointResponse,
};
use tonic::Status;

use super::{convert, malformed};
use crate::endpoints::{self, Snapshot};
use crate::node::RequestError;
use crate::services::Services;
use store::StoreError;
use store::query::ExecutionRow;

/// Maximum time for which a request waits for a change of endpoints.
const ENDPOINTS_WAIT_MAX: Duration = Duration::from_secs(30);

/// Saves a checkpoint, from which the next execution resumes.
pub(super) async fn save_checkpoint(
    services: &Services,
    request: SaveCheckpointRequest,
) -> Result<SaveCheckpointResponse, Status> {
    const WHAT: &str = "checkpoint";
    let execution = execution_id(services, &request.execution_id, WHAT)?;
    let fence = Fence(request.fence);
    let SaveCheckpointRequest { data, content_type, expected_version, .. } = request;
    let task = convert::checkpoint(WHAT, &data, content_type, expected_version)
        .map_err(|error| malformed(services, None, &error))?;
    match send_request(services, execution, fence, task).await? {
        Reply::CheckpointSaved { version } => Ok(SaveCheckpointResponse { version }),
        other => Err(unexpected(&other)),
    }
}

/// Returns the last checkpoint of the job of a current execution.
pub(super) async fn get_checkpoint(
    services: &Services,
    request: GetCheckpointRequest,
) -> Result<Checkpoint, Status> {
    let execution = execution_id(services, &request.execution_id, "checkpoint")?;
    let row = current(services, execution, Fence(request.fence)).await?;
    let found = services.node.store().checkpoint(row.record.job).await;
    let found = found.map_err(|error| unreadable(execution, &error))?;
    let record =
        found.ok_or_else(|| Status::not_found(format!("job `{}` has no checkpoint", row.record.job)))?;
    Ok(Checkpoint {
        version: record.version,
        data: bytes::Bytes::copy_from_slice(&record.data),
        content_type: record.content_type.into(),
    })
}

/// Adds elements to a step of the execution's run.
pub(super) async fn add_elements(
    services: &Services,
    request: AddElementsRequest,
) -> Result<AddElementsResponse, Status> {
    const WHAT: &str = "elements";
    let execution = execution_id(services, &request.execution_id, WHAT)?;
    let fence = Fence(request.fence);
    let task = convert::elements(WHAT, request).map_err(|error| malformed(services, None, &error))?;
    match send_request(services, execution, fence, task).await? {
        Reply::ElementsAdded(Added { step, first, count, total, new }) => {
            Ok(AddElementsResponse { first, count, total, added: new, step: step.to_string() })
        }
        other => Err(unexpected(&other)),
    }
}

/// Returns the endpoints of a service that the job of a current execution requires, or waits for a change.
pub(super) async fn get_endpoints(
    services: &Services,
    request: GetEndpointsRequest,
) -> Result<GetEndpointsResponse, Status> {
    let execution = execution_id(services, &request.execution_id, "endpoints")?;
    let row = current(services, execution, Fence(request.fence)).await?;
    let spec = spec(services, &row).await?;
    let name = &request.service;
    if !spec.requires.iter().any(|required| required.service == *name) {
        let shown: String = name.chars().take(NAME_LEN_MAX).collect();
        let detail = format!("job `{}` does not require service `{}`", row.record.job, shown.escape_debug());
        return Err(Status::permission_denied(detail));
    }
    let wait = Duration::from_millis(request.wait_ms).min(ENDPOINTS_WAIT_MAX);
    let found =
        endpoints::after_change(&services.node, &spec.namespace, name, &request.known_version, wait).await;
    let Snapshot { version, body, .. } = found.map_err(|error| unreadable(execution, &error))?;
    Ok(GetEndpointsResponse { version, endpoints: body.into() })
}

/// Returns the spec of the job of an execution.
pub(super) async fn spec(services: &Services, row: &ExecutionRow) -> Result<JobSpec, Status> {
    let id = row.record.job;
    let job = services.node.store().job(id).await.map_err(|error| unreadable(row.record.id, &error))?;
    let spec = job.and_then(|job| serde_json::from_str(&job.body).ok());
    spec.ok_or_else(|| Status::internal(format!("the spec of job `{id}` cannot be read from the store")))
}

/// Sends a request to the engine; returns its reply after the commit.
async fn send_request(
    services: &Services,
    execution: ExecutionId,
    fence: Fence,
    task: TaskRequest,
) -> Result<Reply, Status> {
    let request = Box::new(task);
    let asked =
        services.node.request(|ticket| Input::Task { ticket: Some(ticket), execution, fence, request });
    asked.await.map_err(|error| status(&error))
}

/// Returns the row of a live execution with this fence.
pub(super) async fn current(
    services: &Services,
    execution: ExecutionId,
    fence: Fence,
) -> Result<ExecutionRow, Status> {
    let row = services.node.store().execution(execution).await;
    let row = row.map_err(|error| unreadable(execution, &error))?;
    row.filter(|row| row.record.fence == fence && !row.record.status.is_final())
        .ok_or_else(|| Status::failed_precondition(Refusal::ExecutionNotCurrent { execution }.to_string()))
}

pub(super) fn unreadable(execution: ExecutionId, error: &StoreError) -> Status {
    tracing::warn!(execution_id = %execution, error = %Chain(error), "cannot read the execution of a task");
    Status::unavailable(format!("cannot read execution `{execution}`: the store is unavailable; retry later"))
}

pub(super) fn execution_id(
    services: &Services,
    text: &str,
    what: &'static str,
) -> Result<ExecutionId, Status> {
    convert::execution_id(text, what).map_err(|error| malformed(services, None, &error))
}

/// Returns the status for a worker, which retries after `UNAVAILABLE` only.
fn status(error: &RequestError) -> Status {
    let text = error.to_string();
    match error {
        RequestError::Refused(Refusal::ExecutionNotCurrent { .. }) => Status::failed_precondition(text),
        RequestError::Refused(Refusal::VersionMismatch { .. }) => Status::aborted(text),
        RequestError::Refused(Refusal::StepEnded { .. }) => Status::aborted(text),
        RequestError::Refused(Refusal::ElementsNotAccepted { .. }) => Status::not_found(text),
        RequestError::Refused(_) => Status::invalid_argument(text),
        RequestError::Poisoned => Status::internal(text),
        _ => Status::unavailable(text),
    }
}

fn unexpected(reply: &Reply) -> Status {
    tracing::error!(?reply, "unexpected reply of the engine");
    Status::internal("the server failed to handle the request; see its log for the cause")
}
