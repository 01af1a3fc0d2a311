//! When a run that failed is tried again.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Action, Definition};
use crate::spec::{Backoff, Delivery};

/// When and how often a run that failed is tried again, from the steps that did not end well.
///
/// What somebody decided is not tried again: a run that was cancelled, or that failed because a step of it
/// was rejected, cancelled or marked as failed. Nor is one whose next try would start something again that
/// may not be started twice: a step of `final_steps`, or a job that runs `at_most_once`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RunRetryPolicy {
    /// Tries after the first that failed.
    pub max_retries: u32,
    /// How long to wait before each.
    pub backoff: Backoff,
    /// Steps that never begin twice in a run: if a try would begin one of them again, there is none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub final_steps: Vec<String>,
    /// After these failures there is no other try.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub final_causes: Vec<RunFailure>,
}

impl RunRetryPolicy {
    /// Whether it is what a workflow without one has.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// How a try of a run failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RunFailure {
    /// A step of it failed.
    StepFailed,
    /// It took longer than its timeout.
    TimedOut,
}

impl RunFailure {
    /// The word in files.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::StepFailed => "step_failed",
            Self::TimedOut => "timed_out",
        }
    }
}

impl Definition {
    /// Whether an action may not be done twice whatever fails: its job runs at most once, or one of the
    /// workflow that it calls does.
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
