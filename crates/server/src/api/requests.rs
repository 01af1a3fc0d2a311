//! Requests to the engine, and what its replies mean.
//!
//! A change that depends on a row is made in three steps: read the row, check the client's precondition, send the request
//! with the version that was read. The engine refuses it if the row has changed since. [`until_applied`] repeats the three
//! steps then, so a client sees a version conflict only if it named a version itself, or if updates never pause.

use std::fmt::Display;
use std::sync::Arc;

use axum::http::StatusCode;
use engine::{Expected, Input, Reply, ScheduleRequest, ServiceRequest, WorkflowRequest};
use model::Refusal;
use store::StoreError;

use super::Api;
use super::problem::{ApiError, Code};
use crate::auth::Actor;
use crate::node::RequestError;

/// Attempts of a change, the first one included.
const ATTEMPTS: usize = 4;

/// Sends a request that concerns schedules, backfills or calendars.
pub(super) async fn schedule(
    api: &Api,
    actor: &Actor,
    request: ScheduleRequest,
) -> Result<Reply, RequestError> {
    let (request, actor) = (Box::new(request), Arc::clone(&actor.name));
    api.node.request(|ticket| Input::Schedule { ticket, request, actor }).await
}

/// Sends a request that concerns workflows or runs.
pub(super) async fn workflow(
    api: &Api,
    actor: &Actor,
    request: WorkflowRequest,
) -> Result<Reply, RequestError> {
    let (request, actor) = (Box::new(request), Arc::clone(&actor.name));
    api.node.request(|ticket| Input::Workflow { ticket, request, actor }).await
}

/// Sends a request that concerns services.
pub(super) async fn service(
    api: &Api,
    actor: &Actor,
    request: ServiceRequest,
) -> Result<Reply, RequestError> {
    let (request, actor) = (Box::new(request), Arc::clone(&actor.name));
    api.node.request(|ticket| Input::Service { ticket, request, actor }).await
}

/// Returns the refusal for an unexpected reply of the engine, which is a bug.
pub(super) fn unexpected(reply: &Reply) -> ApiError {
    tracing::error!(?reply, "unexpected reply of the engine");
    ApiError::new(Code::Internal, "the server failed to handle the request; see its log for the cause")
}

/// Returns the response to a deletion.
pub(super) fn deleted(reply: &Reply) -> Result<StatusCode, ApiError> {
    match reply {
        Reply::Schedule { .. }
        | Reply::WorkflowDeleted
        | Reply::CalendarRemoved
        | Reply::QueueRemoved
        | Reply::NamespaceRemoved
        | Reply::Worker => Ok(StatusCode::NO_CONTENT),
        other => Err(unexpected(other)),
    }
}

/// The state in which a named object must be for a change; see [`Precondition`](super::headers::Precondition).
pub(super) fn expected(version: Option<u64>) -> Expected {
    match version {
        None => Expected::Any,
        Some(0) => Expected::Absent,
        Some(version) => Expected::Version(version),
    }
}

/// Why an attempt did not apply its change.
pub(super) enum NotApplied {
    /// The row has changed since it was read.
    Outdated,
    /// Any other reason.
    Refused(ApiError),
}

impl From<ApiError> for NotApplied {
    fn from(error: ApiError) -> Self {
        Self::Refused(error)
    }
}

impl From<StoreError> for NotApplied {
    fn from(error: StoreError) -> Self {
        ApiError::from(error).into()
    }
}

impl From<RequestError> for NotApplied {
    fn from(error: RequestError) -> Self {
        match error {
            RequestError::Refused(
                Refusal::VersionMismatch { .. }
                | Refusal::JobNotLive { .. }
                | Refusal::ScheduleExists { .. }
                | Refusal::WorkflowExists { .. }
                | Refusal::ServiceExists { .. },
            ) => Self::Outdated,
            error => Self::Refused(error.into()),
        }
    }
}

/// Attempts a change of `object` until the row is the same when it is read and when the change is applied.
///
/// # Errors
/// The refusal of an attempt; `version_mismatch` after [`ATTEMPTS`] concurrent updates.
pub(super) async fn until_applied<T, F>(
    object: impl Display,
    mut attempt: impl FnMut() -> F,
) -> Result<T, ApiError>
where
    F: Future<Output = Result<T, NotApplied>>,
{
    for _ in 0..ATTEMPTS {
        match attempt().await {
            Ok(applied) => return Ok(applied),
            Err(NotApplied::Outdated) => {}
            Err(NotApplied::Refused(error)) => return Err(error),
        }
    }
    let detail = format!("cannot change {object}: each of {ATTEMPTS} attempts met a concurrent change");
    Err(ApiError::new(Code::VersionMismatch, detail).hint("retry in a moment"))
}
