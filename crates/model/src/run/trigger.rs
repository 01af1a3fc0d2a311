//! State of triggers: the runs that they started, and the ends that they ignored or store.
//!
//! The engine writes these rows in the commit that ends a job or a run.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::firing::Work;
use crate::id::{JobId, RunId};
use crate::lifecycle::causes;
use crate::status::JobStatus;
use crate::time::Timestamp;
use crate::workflow::SourceKind;

/// End of a job or of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Ended {
    /// ID of the job. Absent for a run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_id: Option<JobId>,
    /// ID of the run. Absent for a job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
    /// Name of the job or of the workflow.
    #[schema(value_type = String)]
    pub name: Arc<str>,
    /// Final status of the job; for a run, the equivalent status of a job.
    pub status: JobStatus,
    /// Time of the end.
    pub at: Timestamp,
}

impl Ended {
    /// Returns the end of a job or a run with this name.
    pub fn new(work: Work, name: Arc<str>, status: JobStatus, at: Timestamp) -> Self {
        Self { job_id: work.job(), run_id: work.run(), name, status, at }
    }

    /// Returns whether a job or a run ended.
    pub const fn kind(&self) -> SourceKind {
        if self.run_id.is_some() { SourceKind::Workflow } else { SourceKind::Job }
    }
}

impl std::fmt::Display for Ended {
    /// Writes the kind and the name, for example `workflow extract`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.kind().as_str(), self.name)
    }
}

/// Trigger that started a run, and the ends that fired the trigger.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RunTrigger {
    /// Index of the trigger in its workflow, from 0.
    pub number: u32,
    /// Ended jobs and runs, in the order of the sources of the trigger.
    pub ended: Vec<Ended>,
    /// Names of all jobs and workflows whose ends led to this run one after the other, first one first.
    #[schema(value_type = Vec<String>)]
    pub chain: Vec<Arc<str>>,
}

/// An end that a trigger stores until its other sources have ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingEnd {
    /// Index of the source in the trigger, from 0.
    pub source: u32,
    /// Job or run that ended.
    pub ended: Ended,
    /// Time at which the job or run was created.
    pub created_at: Timestamp,
    /// Scheduled time of the job or run, if a schedule created it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduled_for: Option<Timestamp>,
    /// Start of the data interval of the job or run, if a schedule created it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval_start: Option<Timestamp>,
    /// Output of the job or run, as JSON. `None` if it is too large to store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Arc<str>>,
    /// Names of all jobs and workflows whose ends led to this end, including its own name as the last one.
    pub chain: Vec<Arc<str>>,
}

/// State of a trigger of a workflow.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TriggerState {
    /// Number of runs that the trigger started.
    pub runs: u64,
    /// Newest run that the trigger started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_run: Option<RunId>,
    /// Number of ends that matched the trigger and started no run.
    pub refused: u64,
    /// Newest end that started no run, with the reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_refusal: Option<Box<TriggerRefusal>>,
    /// Ends that wait for the other sources of the trigger, at most one for each source.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waiting_events: Vec<PendingEnd>,
}

/// Matching end that started no run, with the reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TriggerRefusal {
    /// Time of the end.
    pub at: Timestamp,
    /// Job or run that ended.
    pub ended: Ended,
    /// Reason why no run was started.
    pub reason: TriggerRefusalReason,
    /// Further detail of the reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub detail: Option<Box<str>>,
}

causes! {
    /// Reason why an end that matches a trigger started no run.
    TriggerRefusalReason {
        Paused = 0, "paused", "The trigger is paused.";
        Late = 1, "late", "The source ended later than the trigger's `within` allows.";
        OutsideWindow = 2, "outside_window", "Another source of the trigger ended later than the `window` allows.";
        ChainTooLong = 3, "chain_too_long", "The chain of triggered runs is too long: the workflows may trigger each other in a loop.";
        TooManyRuns = 4, "too_many_runs", "The source has triggered its maximum number of runs, or too many runs of the workflow are waiting.";
        BadParameters = 5, "bad_parameters", "The parameters of the trigger cannot be evaluated, or the workflow does not accept them.";
        BadWorkflow = 6, "bad_workflow", "The workflow, or a workflow that it calls, cannot be started.";
    }
}
