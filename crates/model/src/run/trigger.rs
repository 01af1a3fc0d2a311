//! What triggers have done, and which ends started a run.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::firing::Work;
use crate::id::{JobId, RunId};
use crate::lifecycle::causes;
use crate::status::JobStatus;
use crate::time::Timestamp;
use crate::workflow::SourceKind;

/// A job or a run that ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Ended {
    /// The job, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_id: Option<JobId>,
    /// The run, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
    /// The name of the job, or of the workflow.
    #[schema(value_type = String)]
    pub name: Arc<str>,
    /// What it ended in, in the words of jobs.
    pub status: JobStatus,
    /// When.
    pub at: Timestamp,
}

impl Ended {
    /// A job or a run, under its name.
    pub fn new(work: Work, name: Arc<str>, status: JobStatus, at: Timestamp) -> Self {
        Self { job_id: work.job(), run_id: work.run(), name, status, at }
    }

    /// What it was.
    pub const fn kind(&self) -> SourceKind {
        if self.run_id.is_some() { SourceKind::Workflow } else { SourceKind::Job }
    }
}

impl std::fmt::Display for Ended {
    /// `workflow extract`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.kind().as_str(), self.name)
    }
}

/// What started a run, if the end of something else did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RunTrigger {
    /// Which trigger of its workflow, from 0.
    pub number: u32,
    /// What ended, in the order of the trigger's sources.
    pub ended: Vec<Ended>,
    /// The names of all that ended one after the other and led to this run, the first one first.
    #[schema(value_type = Vec<String>)]
    pub chain: Vec<Arc<str>>,
}

/// An end that a trigger keeps until all others that it joins have come.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptEnd {
    /// Which of the trigger's sources, from 0.
    pub source: u32,
    /// What ended.
    pub ended: Ended,
    /// When it was created.
    pub created_at: Timestamp,
    /// The instant that its schedule made it for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduled_for: Option<Timestamp>,
    /// Where its interval of data begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval_start: Option<Timestamp>,
    /// What it gave, as JSON, where that is small enough to be kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Arc<str>>,
    /// What led to it, itself last.
    pub chain: Vec<Arc<str>>,
}

/// What a trigger of a workflow has done so far.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TriggerState {
    /// How many runs it started.
    pub runs: u64,
    /// The newest of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_run: Option<RunId>,
    /// How many ends it was told of without starting a run.
    pub refused: u64,
    /// The newest of these, and why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_refusal: Option<Box<TriggerRefusal>>,
    /// The ends that wait for the others of a join, by their sources; each once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<KeptEnd>,
}

/// Why an end started no run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TriggerRefusal {
    /// When.
    pub at: Timestamp,
    /// What ended.
    pub ended: Ended,
    /// Why.
    pub reason: NotTriggered,
    /// What is known beyond the reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub detail: Option<Box<str>>,
}

causes! {
    /// Why an end started no run though a trigger listens to it.
    NotTriggered {
        Paused = 0, "paused", "The trigger is paused.";
        Late = 1, "late", "The source ended later than the trigger's `within` allows.";
        OutsideWindow = 2, "outside_window", "Another source of the trigger ended later than the `window` allows.";
        ChainTooLong = 3, "chain_too_long", "The chain of triggered runs is too long: the workflows may trigger each other in a loop.";
        TooManyRuns = 4, "too_many_runs", "The source has triggered its maximum number of runs, or too many runs of the workflow are waiting.";
        BadParameters = 5, "bad_parameters", "The parameters of the trigger cannot be evaluated, or the workflow does not accept them.";
        BadWorkflow = 6, "bad_workflow", "The workflow, or a workflow that it calls, cannot be started.";
    }
}
