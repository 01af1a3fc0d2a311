//! Stored rows of workflow runs and of their steps.
//!
//! A run has one row that changes ([`RunState`]), one that never changes ([`RunHead`]), and one for each step that is
//! no longer pending ([`StepRecord`]). A step with a fan-out has one more row for each ended element. A step without
//! a row is pending.
//!
//! The engine derives all next actions from these rows and the definition of the run.

mod carry;
pub mod lifecycle;
mod pins;
mod trigger;

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use thin_vec::ThinVec;
use utoipa::ToSchema;

pub use carry::{Carried, RepeatedWork, RetryFrom, carried, ended_call, repeated_steps};
pub use lifecycle::{RunCause, StepCause};
pub use pins::PinnedVersion;
pub use trigger::{Ended, PendingEnd, RunTrigger, TriggerRefusal, TriggerRefusalReason, TriggerState};

use crate::firing::{Origin, Pause};
use crate::id::{JobId, RunId, WorkflowId};
use crate::status::statuses;
use crate::time::Timestamp;
use crate::workflow::{Definition, Section, WorkflowSpec};

statuses! {
    /// Status of a workflow run. See [`lifecycle`] for the transitions.
    RunStatus, "a run" {
        /// Waiting, because the workflow has reached its limit of concurrent runs.
        Waiting = 0, "waiting";
        /// Running.
        Running = 1, "running";
        /// Paused: no further step starts; running steps continue.
        Paused = 2, "paused";
        /// Stopping: running steps are stopped, then `finally` runs.
        Stopping = 3, "stopping";
        /// Ended without a failed step.
        Succeeded = 4, "succeeded";
        /// Ended with a failure: a step failed, an output could not be computed, or a timeout or deadline passed.
        Failed = 5, "failed";
        /// Ended by a cancel request, or because the calling step was stopped.
        Cancelled = 6, "cancelled";
        /// Failed; waiting for the retry delay before the next attempt.
        Retrying = 7, "retrying";
    }
}

impl RunStatus {
    /// Returns whether the status is final.
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Cancelled)
    }
}

statuses! {
    /// Status of a step, or of one element of a step.
    StepStatus, "a step" {
        /// Not started yet.
        Pending = 0, "pending";
        /// Running: the job, the called run or the elements of the step have not ended.
        Running = 1, "running";
        /// Waiting for an approval, an event or a time.
        Waiting = 2, "waiting";
        /// Ended successfully.
        Succeeded = 3, "succeeded";
        /// Ended with a failure.
        Failed = 4, "failed";
        /// Never started, because an upstream step failed.
        UpstreamFailed = 5, "upstream_failed";
        /// Never started, because its join rule or condition was not satisfied; or skipped by a user or on a timeout.
        Skipped = 6, "skipped";
        /// Ended because the step, its job, its called run or its run was cancelled or stopped.
        Cancelled = 7, "cancelled";
    }
}

impl StepStatus {
    /// Returns whether the status is final.
    pub const fn is_final(self) -> bool {
        !matches!(self, Self::Pending | Self::Running | Self::Waiting)
    }

    /// Returns whether the step is running or waiting.
    pub const fn is_live(self) -> bool {
        matches!(self, Self::Running | Self::Waiting)
    }
}

/// Spec of a workflow as stored; written with every new generation.
#[derive(Debug, Clone, PartialEq)]
pub struct WorkflowHead {
    /// Parsed spec, with the fields that jobs take from the workflow.
    pub spec: Arc<WorkflowSpec>,
    /// The spec as JSON.
    pub body: Arc<str>,
}

/// State of a workflow: everything that changes without a new generation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkflowState {
    /// Generation of the spec; increases with every change of the spec.
    pub generation: u64,
    /// Version of the workflow; increases with every change by a user and is the value of the ETag.
    pub version: u64,
    /// Time at which the workflow was created.
    pub created_at: Timestamp,
    /// Time of the last change by a user.
    pub updated_at: Timestamp,
    /// Number of runs so far, which is also the number of the newest run.
    pub runs: u64,
    /// States of the triggers, in the order of the spec; empty if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub triggers: Vec<TriggerState>,
}

/// Step that called a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
pub struct Caller {
    /// ID of the run.
    pub run: RunId,
    /// Number of the step in its workflow, from 0.
    pub step: u32,
    /// Index of the element of the step, from 0. Absent if the step has no elements.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub element: Option<u32>,
}

/// Request of a run; written once.
#[derive(Debug, Clone, PartialEq)]
pub struct RunHead {
    /// ID of the workflow. `None` for a run that another run called.
    pub workflow: Option<WorkflowId>,
    /// Generation of the workflow; 0 for a called run.
    pub generation: u64,
    /// Sequence number of the run in its workflow, from 1; 0 for a called run.
    pub number: u64,
    /// Definition of the run: the spec of its workflow, and the specs of all called workflows.
    pub definition: Arc<Definition>,
    /// The definition as JSON; runs with the same definition share it.
    pub body: Arc<str>,
    /// Parameters of the run, including defaults.
    pub parameters: Arc<Map<String, Value>>,
    /// User who started the run.
    pub actor: Arc<str>,
    /// Note of the user.
    pub note: Option<Box<str>>,
    /// Step that called the run, if any.
    pub caller: Option<Caller>,
    /// Ended run that this run retries, if any.
    pub retry_of: Option<RunId>,
    /// Priority of the jobs, which overrides the priority in their specs.
    pub priority: Option<u8>,
    /// Firing that started the run, if any.
    pub origin: Option<Arc<Origin>>,
    /// Trigger that started the run, if any.
    pub trigger: Option<Arc<RunTrigger>>,
}

/// A transition in the history of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RunHistoryEntry {
    /// Time of the transition.
    pub at: Timestamp,
    /// Status before the transition. Absent for the first one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<RunStatus>,
    /// Status after the transition.
    pub to: RunStatus,
    /// Cause of the transition.
    pub cause: RunCause,
    /// User who requested the transition, or further detail of the cause.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub detail: Option<Box<str>>,
}

/// State of a run: everything that changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunState {
    /// Current status of the run.
    pub status: RunStatus,
    /// Current section of the run.
    pub section: Section,
    /// Version of the run; increases with every committed change and is the value of the ETag.
    pub version: u64,
    /// Time at which the run was created.
    pub created_at: Timestamp,
    /// Time at which the run left the status `waiting`. Absent before that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    /// Time of the end. Absent before the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Timestamp>,
    /// Time of the last change.
    pub updated_at: Timestamp,
    /// Pause of the run. Absent if the run is not paused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause: Option<Box<Pause>>,
    /// Cause of the stop. Absent if the run is not being stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopping: Option<RunCause>,
    /// Retries by the policy of the workflow. Absent before the first failed attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<Box<RunRetry>>,
    /// Whether a user asked to skip the sections `on_failure` and `finally`.
    pub skip_finally: bool,
    /// Numbers of steps by status, indexed by [`StepStatus::code`]; all other steps are pending.
    pub counts: [u32; 8],
    /// Output of the run, as JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Arc<str>>,
    /// All transitions so far, oldest first.
    pub history: Vec<RunHistoryEntry>,
    /// Time after which retention deletes the run; set at the end of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// Runs that the end of this run started.
    #[serde(default, skip_serializing_if = "ThinVec::is_empty")]
    pub started: ThinVec<RunId>,
}

impl RunState {
    /// Returns the number of failed attempts that were or will be retried.
    pub fn failures(&self) -> u32 {
        self.retry.as_ref().map_or(0, |retry| retry.failures)
    }

    /// Returns the time of the next attempt while the run waits for the retry, also if it is paused.
    pub fn next_attempt_at(&self) -> Option<Timestamp> {
        self.retry.as_ref()?.next_at
    }

    /// Returns the start time of the newest attempt.
    pub fn attempt_started_at(&self) -> Option<Timestamp> {
        self.retry.as_ref().and_then(|retry| retry.started_at).or(self.started_at)
    }
}

/// Retries of a run by the policy of its workflow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct RunRetry {
    /// Number of failed attempts that were or will be retried.
    pub failures: u32,
    /// Start time of the next attempt. Absent while an attempt is running.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_at: Option<Timestamp>,
    /// Start time of the newest attempt. Absent before the second attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
}

/// Key of a step of a run, or of one element of the step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct StepKey {
    /// ID of the run.
    pub run: RunId,
    /// Number of the step in its workflow, from 0.
    pub step: u32,
    /// Index of the element, from 0. `None` for the step itself.
    pub item: Option<u32>,
}

/// Row of a step that is no longer pending, or of one element of the step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepRecord {
    /// Key of the step or element.
    pub key: StepKey,
    /// State of the step or element.
    pub state: StepState,
}

/// A named batch of elements that a running task added to a step of its run.
///
/// A second batch with the same name from the same step or element is the same batch; its content is ignored. A
/// retried task can therefore repeat its requests and adds nothing twice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ElementBatch {
    /// Key of the batch.
    pub key: BatchKey,
    /// Step or element that added the batch.
    pub by: Adder,
    /// Name of the batch, chosen by the task.
    pub name: Box<str>,
    /// Number of elements; at least 1.
    pub count: u32,
    /// Elements, as a JSON list.
    pub elements: Arc<str>,
    /// Time at which the batch was added.
    pub added_at: Timestamp,
}

/// Key of a batch: its position in the list of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct BatchKey {
    /// ID of the run.
    pub run: RunId,
    /// Number of the step that runs for the elements, from 0.
    pub step: u32,
    /// Index of the first element of the batch, from 0.
    pub first: u32,
}

/// Step that adds elements, or one element of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Adder {
    /// Number of the step in its workflow, from 0.
    pub step: u32,
    /// Index of the element, from 0. `None` for a step without elements.
    pub item: Option<u32>,
}

/// Request of a user that changed a step: an approval, a rejection, a mark or an event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StepDecision {
    /// Time of the request.
    pub at: Timestamp,
    /// User who sent the request.
    #[schema(value_type = String)]
    pub by: Box<str>,
    /// Note of the user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub note: Option<Box<str>>,
}

/// Numbers of ended elements of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct ElementCounts {
    /// Number of elements that succeeded.
    pub succeeded: u32,
    /// Number of elements that failed.
    pub failed: u32,
}

/// Value of [`StepState::files`] if the list of stored versions exceeds
/// [`COLLECTED_BYTES_MAX`](crate::limits::COLLECTED_BYTES_MAX). An older server treats the value as an empty list.
pub const FILES_TOO_LARGE: &str = "null";

/// Returns the versions in [`StepState::files`], without names for which nothing was stored; `None` if the list is
/// too large.
pub fn stored_files(files: &str) -> Option<Map<String, Value>> {
    let mut files: Map<String, Value> = serde_json::from_str(files).ok()?;
    files.retain(|_, version| !is_not_stored(version));
    Some(files)
}

/// Returns whether a value in [`StepState::files`] means that neither the step nor one of its elements stored the
/// artifact.
pub fn is_not_stored(version: &Value) -> bool {
    match version {
        Value::Null => true,
        Value::Array(versions) => versions.iter().all(Value::is_null),
        _ => false,
    }
}

/// State of a step, or of one element of a step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepState {
    /// Current status. `pending` only if an event was sent early, or if the step is repeated.
    pub status: StepStatus,
    /// Cause of the current status.
    pub cause: StepCause,
    /// Job of the step, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<JobId>,
    /// Run that the step called, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub called: Option<RunId>,
    /// Start time of the step. Absent before the start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    /// Time of the end. Absent before the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Timestamp>,
    /// Time of the next timer: the end of the wait or the timeout, whichever is earlier.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wake_at: Option<Timestamp>,
    /// Number of elements. Only for a step with a fan-out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<u32>,
    /// Numbers of succeeded and failed elements. Only for an ended step with a fan-out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub element_counts: Option<ElementCounts>,
    /// List of elements as JSON, if it cannot be derived from the parameters of the run and earlier steps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub items: Option<Arc<str>>,
    /// Output of the step or element, as JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Arc<str>>,
    /// Further detail of the cause, as text for users.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<Box<str>>,
    /// User who approved, rejected or marked the step, or who sent its event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<Box<StepDecision>>,
    /// Status and cause that the step gets when its running work has stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ending: Option<(StepStatus, StepCause)>,
    /// Workers that connected while the step was running. Only for a fan-out over workers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub late_workers: Option<Box<LateWorkers>>,
    /// Versions of the artifacts that the step stored, as JSON: `NAME@sha256:HEX` by name of the output. A fan-out
    /// has a list for each name, with null for an element that stored nothing. A call has null for each name that a
    /// step of the called run should have stored and did not.
    ///
    /// [`FILES_TOO_LARGE`] if the JSON is too large. Absent if nothing is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<Arc<str>>,
    /// Question and approvers of a waiting approval, with all references replaced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asks: Option<Box<ApprovalRequest>>,
    /// Ended run that the next call of the step continues: of a pending step, or of a step whose call has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub continues: Option<Arc<EndedCall>>,
}

/// Question and approvers of a step that waits for an approval, with all references replaced.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct ApprovalRequest {
    /// Question for the approvers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Users who may approve or reject. If absent, all users who may change the run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub approvers: Vec<String>,
}

/// Ended run of a call, with the rows that the next run of the call takes over. A retry of a run continues the runs
/// that its failed steps called; it does not start the called workflow from its first step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndedCall {
    /// ID of the run.
    pub run: RunId,
    /// Parameters of the run; the next run has the same parameters.
    pub parameters: Map<String, Value>,
    /// Steps and elements that are not repeated. Calls among them may continue runs of their own.
    pub records: Vec<StepRecord>,
    /// Batches of added elements that are taken over.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub batches: Vec<ElementBatch>,
    /// Whether the next run starts an `at_most_once` job again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub repeats_at_most_once: bool,
}

impl EndedCall {
    /// Returns the approximate size of its rows, in bytes.
    pub fn size(&self) -> usize {
        const ROW: usize = 100;
        let text = |text: Option<&str>| text.map_or(0, str::len);
        let of_row = |StepRecord { state, .. }: &StepRecord| {
            let texts = [&state.output, &state.items, &state.files].map(|of| text(of.as_deref()));
            let nested = state.continues.as_ref().map_or(0, |call| call.size());
            ROW + texts.iter().sum::<usize>() + text(state.message.as_deref()) + nested
        };
        let rows = self.records.iter().map(of_row).sum::<usize>();
        rows + self.batches.iter().map(|batch| ROW + batch.elements.len()).sum::<usize>()
    }
}

/// Workers that connected or reconnected while a fan-out over workers was running.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct LateWorkers {
    /// Number of workers.
    pub count: u32,
    /// Names of the first 100 workers.
    pub names: Vec<String>,
}

impl StepState {
    /// Returns a state with this status and cause; all other fields are empty.
    pub fn new(status: StepStatus, cause: StepCause) -> Self {
        Self {
            status,
            cause,
            job: None,
            called: None,
            started_at: None,
            finished_at: None,
            wake_at: None,
            total: None,
            element_counts: None,
            items: None,
            output: None,
            message: None,
            decision: None,
            ending: None,
            late_workers: None,
            files: None,
            asks: None,
            continues: None,
        }
    }

    /// Returns the ended run that the next call continues, if that call was due but has not started.
    pub fn unstarted_call(&self) -> Option<&Arc<EndedCall>> {
        self.continues.as_ref().filter(|_| self.called.is_none())
    }
}

/// Run and step that a job belongs to. The task of the job has the values in the environment variables `BELFRY_RUN`,
/// `BELFRY_WORKFLOW` and `BELFRY_STEP`; an element of a list also in `BELFRY_INDEX`, `BELFRY_TOTAL` and
/// `BELFRY_ITEM`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StepOrigin {
    /// ID of the run.
    pub run: RunId,
    /// Name of the workflow.
    #[schema(value_type = String)]
    pub workflow: Arc<str>,
    /// Name of the step.
    #[schema(value_type = String)]
    pub name: Arc<str>,
    /// Number of the step in its workflow, from 0.
    pub step: u32,
    /// Element of the list that the job runs for. Absent if the step has no elements.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub element: Option<ElementOrigin>,
}

/// Element of a list that a job runs for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ElementOrigin {
    /// Index of the element, from 0.
    pub index: u32,
    /// Number of elements of the list when the job was created.
    pub total: u32,
    /// Value of the element: a string without quotes, any other value as JSON.
    #[schema(value_type = String)]
    pub value: Arc<str>,
}

impl StepOrigin {
    /// Returns the key of the step or element that the job belongs to.
    pub fn key(&self) -> StepKey {
        StepKey { run: self.run, step: self.step, item: self.element.as_ref().map(|item| item.index) }
    }
}
