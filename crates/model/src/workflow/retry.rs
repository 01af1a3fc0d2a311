//! Retry policy of failed runs.
//!
//! The engine retries within the same run. A retry by a user starts another run; see [`crate::run::carried`].

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Action, Definition};
use crate::spec::{Backoff, Delivery};

/// Retry policy of failed runs. A retry repeats the steps that did not succeed, and all steps downstream of them.
///
/// A run is not retried after a decision of a user: if the run was cancelled, or a step was rejected, cancelled or
/// marked as failed. It is also not retried if a step of `final_steps`, or an `at_most_once` job, would start a
/// second time.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RunRetryPolicy {
    /// Maximum number of retries of a failed run, from 0 to 1,000 [default: 0].
    pub max_retries: u32,
    /// Delay before each retry.
    pub backoff: Backoff,
    /// Names of steps that must not start twice in a run. If a retry would start one of them again, the run fails
    /// without the retry [default: none].
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub final_steps: Vec<String>,
    /// Failures after which the run is not retried [default: none].
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub final_causes: Vec<RunFailure>,
}

impl RunRetryPolicy {
    /// Returns whether the policy is the default policy.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Failure of an attempt of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RunFailure {
    /// A step of the run failed.
    StepFailed,
    /// The run exceeded its timeout.
    TimedOut,
}

impl RunFailure {
    /// Returns the name of the failure in files.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::StepFailed => "step_failed",
            Self::TimedOut => "timed_out",
        }
    }
}

impl Definition {
    /// Returns whether an action must not be repeated: its job has the delivery `at_most_once`, or a job of a called
    /// workflow has.
    pub fn is_at_most_once(&self, action: &Action) -> bool {
        match action {
            Action::Job(job) => job.delivery == Delivery::AtMostOnce,
            Action::Workflow(call) => self.called(&call.name).is_some_and(|called| {
                let all = std::iter::once(&called.workflow).chain(called.calls.values());
                all.flat_map(|spec| spec.all_steps()).any(|(_, step)| has_at_most_once(&step.action))
            }),
            Action::Approval(_) | Action::Wait(_) => false,
        }
    }
}

fn has_at_most_once(action: &Action) -> bool {
    matches!(action, Action::Job(job) if job.delivery == Delivery::AtMostOnce)
}
