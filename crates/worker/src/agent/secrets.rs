//! Values of secrets: requested before each start of an execution whose job refers to secrets.
//!
//! The server gives them only in the open session of the worker that holds the execution. They are passed to the supervisor with
//! the start, and the agent keeps no copy.

use model::JobSpec;
use proto::v1::{Assignment, GetSecretsRequest, SecretValue, StartFailed};
use tonic::{Code, Status};

use super::artifacts::{ATTEMPTS_MAX, in_time, is_retryable};
use super::connect::{Backoff, Client};

/// Requests secrets in one session.
#[derive(Debug, Clone)]
pub(super) struct Secrets {
    client: Client,
    worker_id: String,
    session: u64,
}

impl Secrets {
    pub(super) fn new(client: Client, worker_id: &str, session: u64) -> Self {
        Self { client, worker_id: worker_id.to_owned(), session }
    }

    /// Returns whether the job of an execution refers to secrets.
    pub(super) fn are_needed(assignment: &Assignment) -> bool {
        // Parsing every spec here too would cost some microseconds per execution.
        let word = JobSpec::SECRETS_WORD.as_bytes();
        assignment.spec.windows(word.len()).any(|bytes| bytes == word)
            && serde_json::from_slice::<JobSpec>(&assignment.spec).is_ok_and(|spec| !spec.secrets.is_empty())
    }

    /// Returns the values of all secrets of an execution.
    pub(super) async fn fetch(&self, assignment: &Assignment) -> Result<Vec<SecretValue>, StartFailed> {
        let mut backoff = Backoff::default();
        for _ in 1..ATTEMPTS_MAX {
            match self.request(assignment).await {
                Err(status) if is_retryable(&status) => backoff.wait().await,
                answer => return answer.map_err(|status| failure(&status)),
            }
        }
        self.request(assignment).await.map_err(|status| failure(&status))
    }

    async fn request(&self, assignment: &Assignment) -> Result<Vec<SecretValue>, Status> {
        let request = GetSecretsRequest {
            worker_id: self.worker_id.clone(),
            session: self.session,
            execution_id: assignment.execution_id.clone(),
            fence: assignment.fence,
        };
        Ok(in_time(self.client.clone().get_secrets(request)).await?.into_inner().values)
    }
}

/// Returns why an execution cannot start without its secrets.
fn failure(status: &Status) -> StartFailed {
    let (code, detail) = match status.code() {
        Code::NotFound => ("secret_not_found", status.message().to_owned()),
        Code::Unimplemented => {
            ("secrets_unavailable", "the server is of a release without secrets".to_owned())
        }
        _ => ("secrets_unavailable", format!("cannot get the secrets of the job: {}", status.message())),
    };
    StartFailed { code: code.to_owned(), detail }
}
