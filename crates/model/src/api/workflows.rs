//! Requests and responses of the REST API for workflows, their runs and the steps of runs.
//!
//! In this order: the workflow as it is shown, with its triggers; apply, start and plan; the run, its attempts and
//! approvals; its steps and their elements; requests that change a run or a step. The spec that users write is
//! [`WorkflowSpec`](crate::WorkflowSpec). The texts of the types and fields are the descriptions in the OpenAPI document.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::{ApplyChange, Warning};
use crate::firing::{Origin, Pause};
use crate::id::{JobId, RunId, WorkerId, WorkflowId};
use crate::run::{
    ApprovalRequest, Caller, ElementCounts, Ended, LateWorkers, RunCause, RunHistoryEntry, RunStatus,
    RunTrigger, StepCause, StepDecision, StepStatus, TriggerRefusal,
};
use crate::time::Timestamp;
use crate::workflow::{JoinRule, Parameter, Section, WorkflowSpec};

/// A workflow: a graph of steps, with the state that its runs share.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Workflow {
    /// ID of the workflow, assigned by the server.
    pub id: WorkflowId,
    /// Name of the workflow, unique in its namespace.
    pub name: String,
    /// Namespace (tenant) of the workflow.
    pub namespace: String,
    /// Owner of the workflow: the person or team responsible for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Labels of the workflow.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Purpose of the workflow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Generation of the spec; increases with every change of the spec.
    pub generation: u64,
    /// Version of the workflow; increases with every change by a user and is the value of the ETag.
    pub version: u64,
    /// Time at which the workflow was created.
    pub created_at: Timestamp,
    /// Time of the last change by a user.
    pub updated_at: Timestamp,
    /// Number of steps of the workflow, including those of `on_failure` and `finally`.
    pub steps: u32,
    /// Parameters of a run, by name.
    #[serde(default)]
    pub parameters: BTreeMap<String, Parameter>,
    /// Number of runs of the workflow so far; equal to the number of the newest run.
    pub runs: u64,
    /// Status of each trigger, in the order of the spec. Absent in lists.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub triggers: Vec<TriggerStatus>,
    /// Newest runs of the workflow, newest first. Only in lists with `runs=N`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recent: Option<Vec<RecentRun>>,
    /// Spec of the workflow, with defaults. Absent in lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spec: Option<Box<WorkflowSpec>>,
    /// Warnings about the spec. Only in the response to the request that created or changed the workflow.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<Warning>,
}

/// Status of a trigger of a workflow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TriggerStatus {
    /// Number of runs that the trigger started.
    pub runs: u64,
    /// Newest run that the trigger started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_run: Option<RunId>,
    /// Number of events that the trigger received without starting a run. An event is the end of a source.
    pub refused: u64,
    /// Newest event that started no run, with the reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_refusal: Option<TriggerRefusal>,
    /// Events that wait for the events of the other sources of the trigger.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waiting_events: Vec<Ended>,
}

/// Summary of a run in a list of workflows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RecentRun {
    /// ID of the run.
    pub id: RunId,
    /// Number of the run within its workflow, from 1.
    pub number: u64,
    /// Current status of the run.
    pub status: RunStatus,
    /// Time at which the run was created.
    pub created_at: Timestamp,
    /// Start time of the run. Absent while the run waits for the concurrency limit of its workflow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    /// End time of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Timestamp>,
}

/// Request to apply several workflows in one transaction: all are applied or none.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ApplyWorkflows {
    /// Specs of the workflows, at least one. The workflows may call each other.
    pub workflows: Vec<WorkflowSpec>,
}

/// Response to a request to apply several workflows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AppliedWorkflows {
    /// One entry for each workflow of the request, in the order of the request.
    pub workflows: Vec<AppliedWorkflow>,
}

/// Result of applying a workflow, or the expected result in a dry run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AppliedWorkflow {
    /// ID of the workflow. Absent in a dry run that would create the workflow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<WorkflowId>,
    /// Name of the workflow.
    pub name: String,
    /// Namespace (tenant) of the workflow.
    pub namespace: String,
    /// Change of the workflow.
    pub change: ApplyChange,
    /// Generation of the workflow after the change.
    pub generation: u64,
    /// Version of the workflow after the change.
    pub version: u64,
    /// Warnings about the spec of the workflow.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<Warning>,
}

/// Request to start a run of a workflow. All fields are optional.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct StartRun {
    /// Parameters of the run by name. Parameters without a default are required.
    #[serde(skip_serializing_if = "Map::is_empty")]
    #[schema(value_type = BTreeMap<String, Value>)]
    pub parameters: Map<String, Value>,
    /// Priority of all jobs of the run, from 0 (last) to 100 (first) [default: the priority in the spec of each job].
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 100)]
    pub priority: Option<u8>,
    /// Reason for the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// Request to start a run from an inline definition, which is stored only with the run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StartDefinition {
    /// Spec of the workflow. Its name is the display name of the run and need not be unique.
    pub definition: WorkflowSpec,
    /// Parameters of the run by name. Parameters without a default are required.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    #[schema(value_type = BTreeMap<String, Value>)]
    pub parameters: Map<String, Value>,
    /// Priority of all jobs of the run, from 0 (last) to 100 (first) [default: the priority in the spec of each job].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 100)]
    pub priority: Option<u8>,
    /// Reason for the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// Plan of a run for a dry run: its steps in a possible order of execution.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RunPlan {
    /// Parameters that the run would have, including defaults.
    #[schema(value_type = BTreeMap<String, Value>)]
    pub parameters: Map<String, Value>,
    /// Steps of the run in a possible order of execution.
    pub steps: Vec<PlannedStep>,
}

/// Step in the plan of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PlannedStep {
    /// Name of the step.
    pub name: String,
    /// Section of the workflow that contains the step.
    pub section: Section,
    /// Kind of the step.
    pub kind: StepKind,
    /// Names of the steps that this step depends on.
    pub needs: Vec<String>,
    /// Level of the step in the graph of its section: 0 without dependencies, otherwise one more than the highest
    /// level of its dependencies. Steps of one level may start together.
    pub level: u32,
    /// Number of elements of a mapped step. Absent if it is only known at run time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<u32>,
    /// Command of the job, with parameters replaced and references to other steps unchanged. Absent for other kinds
    /// of steps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<Vec<String>>,
}

/// Kind of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names say it")]
pub enum StepKind {
    Job,
    Workflow,
    Approval,
    Wait,
}

/// A run of a workflow.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct WorkflowRun {
    /// ID of the run, assigned by the server.
    pub id: RunId,
    /// ID of the workflow. Absent for a run that another run called, and for a run with an inline definition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workflow_id: Option<WorkflowId>,
    /// Name of the workflow.
    pub workflow: String,
    /// Namespace (tenant) of the run.
    pub namespace: String,
    /// Generation of the workflow that the run uses; 0 if the run has no workflow ID.
    pub generation: u64,
    /// Number of the run within its workflow, from 1; 0 if the run has no workflow ID.
    pub number: u64,
    /// Current status of the run.
    pub status: RunStatus,
    /// Section of the workflow that the run executes.
    pub section: Section,
    /// Version of the run; increases with every change and is the value of the ETag.
    pub version: u64,
    /// Time at which the run was created.
    pub created_at: Timestamp,
    /// Start time of the run. Absent while the run waits for the concurrency limit of its workflow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    /// End time of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Timestamp>,
    /// Time of the last change of the run.
    pub updated_at: Timestamp,
    /// Parameters of the run by name, including defaults.
    #[schema(value_type = BTreeMap<String, Value>)]
    pub parameters: Map<String, Value>,
    /// User, schedule, trigger or run that started this run.
    pub actor: String,
    /// Reason for the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Step of another run that called this run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caller: Option<Caller>,
    /// Run that this run retries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_of: Option<RunId>,
    /// Priority of all jobs of the run. Absent if each job has the priority of its spec.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<u8>,
    /// Schedule and scheduled time that created the run. Absent for other runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
    /// Trigger that started the run. Absent for other runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trigger: Option<RunTrigger>,
    /// Workflow runs that the end of this run triggered.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub started_runs: Vec<RunId>,
    /// User who paused the run, with time and note. Absent if the run is not paused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause: Option<Pause>,
    /// Reason why the run is being stopped. Absent if the run is not being stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopping: Option<RunCause>,
    /// Automatic attempts of the run. Absent if its workflow has no retry policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<RunAttempt>,
    /// Number of steps of the run by status.
    pub steps: StepCounts,
    /// Steps of the run that wait for approval. Only in lists with `approvals=true`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approvals: Option<Vec<WaitingApproval>>,
    /// Output of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Value>,
    /// Newest status transition of the run, for example with the failed step. Only in lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_transition: Option<RunHistoryEntry>,
    /// All status transitions of the run so far. Absent in lists.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<RunHistoryEntry>,
    /// Spec of the workflow that the run uses. Absent in lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spec: Option<Box<WorkflowSpec>>,
}

/// Automatic attempts of a run under the retry policy of its workflow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RunAttempt {
    /// Number of the current, next or last attempt, from 1.
    pub number: u32,
    /// Maximum number of attempts, including the first.
    pub max: u32,
    /// Start time of the next attempt, while the run waits for it. Also present if the run was paused during that
    /// wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_at: Option<Timestamp>,
    /// Start time of the newest attempt. Absent for the first attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
}

/// Step that waits for approval.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WaitingApproval {
    /// Name of the step.
    pub step: String,
    /// Time since which the step waits for approval.
    pub since: Timestamp,
    /// Users who may approve or reject the step. If empty, every user with permission to change the run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub approvers: Vec<String>,
    /// Approval message, with all references replaced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// Number of steps by status. The elements of a mapped step do not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(default)]
#[expect(missing_docs, reason = "the names say it")]
pub struct StepCounts {
    pub pending: u32,
    pub running: u32,
    pub waiting: u32,
    pub succeeded: u32,
    pub failed: u32,
    pub upstream_failed: u32,
    pub skipped: u32,
    pub cancelled: u32,
}

/// All steps of a run, in the order of its workflow.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RunSteps {
    /// Version of the run to which the steps belong.
    pub version: u64,
    /// Steps in the order of the sections `steps`, `on_failure`, `finally`.
    pub steps: Vec<RunStep>,
}

/// Step of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RunStep {
    /// Name of the step.
    pub name: String,
    /// Index of the step among all steps of the run, from 0.
    pub number: u32,
    /// Section of the workflow that contains the step.
    pub section: Section,
    /// Kind of the step.
    pub kind: StepKind,
    /// Names of the steps that this step depends on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub needs: Vec<String>,
    /// Rule for the results of the dependencies under which the step starts.
    pub join: JoinRule,
    /// Whether the step is mapped: it runs once for each element of a list.
    pub for_each: bool,
    /// Current state of the step.
    #[serde(flatten)]
    pub state: RunStepState,
}

/// Ended element of a mapped step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RunElement {
    /// Index of the element, from 0.
    pub index: u32,
    /// Value of the element: a string as it is, any other value as JSON. Absent once retention has deleted the job of
    /// the element, and if the step calls a workflow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// Worker of the newest execution of the job of the element.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker_id: Option<WorkerId>,
    /// Number of executions of the job of the element.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub executions: Option<u32>,
    /// State of the element.
    #[serde(flatten)]
    pub state: RunStepState,
}

/// State of a step, or of an element of a mapped step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RunStepState {
    /// Current status of the step.
    pub status: StepStatus,
    /// Cause of the current status. Absent while the step is pending.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<StepCause>,
    /// Job of the step. Absent for other kinds of steps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_id: Option<JobId>,
    /// Workflow run that the step called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub called_run_id: Option<RunId>,
    /// Start time of the step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    /// End time of the step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Timestamp>,
    /// Time at which the wait or the timeout of the step ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wake_at: Option<Timestamp>,
    /// Number of elements of a mapped step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<u32>,
    /// Number of ended elements of a mapped step, by result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub element_counts: Option<ElementCounts>,
    /// Output of the step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Value>,
    /// Human-readable message about the status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// User who approved, rejected or marked the step, or the event that ended its wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<StepDecision>,
    /// Workers that became ready after a mapped step over workers had started. Absent for other steps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub late_workers: Option<LateWorkers>,
    /// Artifact versions that the step stored, as `NAME@sha256:HEX` by name of the output. For a mapped step, a list
    /// of these.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<Value>,
    /// Approvers and message of a started approval step, with all references replaced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<ApprovalRequest>,
}

/// Request to cancel a run. The body is optional.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CancelRun {
    /// Reason for the cancellation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Whether to skip the `finally` steps; running steps of `on_failure` and `finally` are stopped [default: false]
    pub skip_finally: bool,
}

/// Request to pause a run, or to approve or reject a step. The body is optional.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Note {
    /// Reason for the action.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// Statuses with which a user can mark a step.
#[derive(ToSchema)]
#[serde(rename_all = "snake_case")]
#[expect(dead_code, reason = "the document's view of `StepStatus`")]
enum MarkedAs {
    Succeeded,
    Failed,
    Skipped,
}

/// Request to mark a step that has not ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MarkStep {
    /// New status of the step: `succeeded`, `failed` or `skipped`.
    #[schema(value_type = MarkedAs)]
    pub status: StepStatus,
    /// Reason for the mark.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// Request to retry an ended run. The body is optional.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RetryRun {
    /// Step at which the retry starts. The retry runs this step whatever its result, all steps that neither succeeded
    /// nor were skipped, and everything downstream of these. [default: only steps that neither succeeded nor were
    /// skipped, and everything downstream]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Reason for the retry.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Steps that may start again although their jobs run `at_most_once` and have started. `call/pay` is step `pay`
    /// of the workflow that step `call` calls. The error `repeat_forbidden` names these steps.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub repeat: Vec<String>,
}

/// Response to an event for a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EventDelivery {
    /// Number of steps that received the event.
    pub steps: usize,
}
