//! Values of secrets, for the worker that holds an execution. The rules are in [`crate::secrets`].

use engine::Session;
use model::error_chain::Chain;
use model::{Fence, JobSpec, Refusal, WorkerId};
use proto::v1::{GetSecretsRequest, GetSecretsResponse};
use tonic::Status;

use super::sessions::Sessions;
use super::{convert, malformed, tasks};
use crate::auth::Identity;
use crate::secrets::{self, SecretError};
use crate::services::Services;

/// Returns the values of the secrets that the job of an execution refers to.
pub(super) async fn get(
    services: &Services,
    sessions: &Sessions,
    caller: &Identity,
    request: GetSecretsRequest,
) -> Result<GetSecretsResponse, Status> {
    const WHAT: &str = "secrets";
    let execution = tasks::execution_id(services, &request.execution_id, WHAT)?;
    let worker = request.worker_id.parse::<WorkerId>().map_err(|_| {
        malformed(services, None, &convert::Malformed::new(WHAT, "`worker_id` is not an ID of a worker"))
    })?;
    if !sessions.is_open(worker, Session(request.session), &caller.token_id) {
        tracing::warn!(worker_id = %worker, execution_id = %execution, by = %caller.name, "secrets refused: not the session of the worker");
        return Err(Status::permission_denied("the session is not the open one of the worker"));
    }
    let row = tasks::current(services, execution, Fence(request.fence)).await?;
    if row.record.worker != worker {
        tracing::warn!(worker_id = %worker, execution_id = %execution, by = %caller.name, "secrets refused: the execution is on another worker");
        return Err(Status::failed_precondition(Refusal::ExecutionNotCurrent { execution }.to_string()));
    }
    let spec: JobSpec = tasks::spec(services, &row).await?;
    // Another server may have changed a secret just now.
    services.access.refresh().await.map_err(|error| tasks::unreadable(execution, &error))?;
    let sealer = services.alerts.sealer();
    let values = services
        .access
        .read(|directory| secrets::values(directory, sealer, &spec.namespace, &spec.secrets))
        .map_err(|error| match &error {
            // Another server may have the key.
            SecretError::Sealed { source, .. } => {
                tracing::error!(execution_id = %execution, error = %Chain(&error), hint = source.help(), "cannot decrypt a secret");
                Status::unavailable(error.to_string())
            }
            SecretError::NoSecret { .. } | SecretError::NoKey { .. } => Status::not_found(error.to_string()),
        })?;
    Ok(GetSecretsResponse { values })
}
