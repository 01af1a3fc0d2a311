//! Workflows, their runs and the steps of these, as the API shows them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::{ApplyChange, Warning};
use crate::firing::{Origin, Pause};
use crate::id::{JobId, RunId, WorkerId, WorkflowId};
use crate::run::{
    Asks, Caller, Ended, LateWorkers, RunCause, RunHistoryEntry, RunStatus, RunTrigger, Said, StepCause,
    StepStatus, Tally, TriggerRefusal,
};
use crate::time::Timestamp;
use crate::workflow::{JoinRule, Parameter, Section, WorkflowSpec};

/// A workflow.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Workflow {
    /// Its id.
    pub id: WorkflowId,
    /// Its name, unique in its namespace.
    pub name: String,
    /// The tenant that it belongs to.
    pub namespace: String,
    /// Who answers for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Its labels.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// What it is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Which version of its spec: grows with every change of the spec.
    pub generation: u64,
    /// Grows with every change that somebody asked for; the number in its ETag.
    pub version: u64,
    /// When it was made.
    pub created_at: Timestamp,
    /// When somebody last changed it.
    pub updated_at: Timestamp,
    /// How many steps it has, those of `on_failure` and `finally` included.
    pub steps: u32,
    /// What a run is started with.
    #[serde(default)]
    pub parameters: BTreeMap<String, Parameter>,
    /// How many runs it has had; the number of the newest.
    pub runs: u64,
    /// What each of its triggers has done, in the order of its spec; left out of lists.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub triggers: Vec<TriggerStatus>,
    /// Its newest runs, the newest first; only in lists with `runs=N`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recent: Option<Vec<RecentRun>>,
    /// What it was asked to be; left out of lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spec: Option<Box<WorkflowSpec>>,
    /// What whoever created or changed it should know; only in the answer to that request.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<Warning>,
}

/// What a trigger of a workflow has done so far.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TriggerStatus {
    /// How many runs it started.
    pub runs: u64,
    /// The newest of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_run: Option<RunId>,
    /// How many ends it was told of without starting a run.
    pub refused: u64,
    /// The newest of these, and why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_refusal: Option<TriggerRefusal>,
    /// The ends that wait for the others that they are joined with.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<Ended>,
}

/// A run in a list of workflows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RecentRun {
    /// Which.
    pub id: RunId,
    /// The how manieth of its workflow.
    pub number: u64,
    /// Where it stands.
    pub status: RunStatus,
    /// When it was started.
    pub created_at: Timestamp,
    /// When its turn came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Timestamp>,
}

/// Workflows to create or to change: all or none.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ApplyWorkflows {
    /// At least one. They may call each other.
    pub workflows: Vec<WorkflowSpec>,
}

/// What was done to each workflow, in the order of the request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AppliedWorkflows {
    /// In that order.
    pub workflows: Vec<AppliedWorkflow>,
}

/// What was done to a workflow.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AppliedWorkflow {
    /// Its id; absent in a dry run that would create it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<WorkflowId>,
    /// Its name.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    /// What was, or would be, done.
    pub change: ApplyChange,
    /// Its generation afterwards.
    pub generation: u64,
    /// Its version afterwards.
    pub version: u64,
    /// What whoever applied it should know.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<Warning>,
}

/// How a run is started. Everything may be left out that has a default.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct StartRun {
    /// Its parameters; those without a default must be there.
    #[serde(skip_serializing_if = "Map::is_empty")]
    #[schema(value_type = BTreeMap<String, Value>)]
    pub parameters: Map<String, Value>,
    /// The priority of its jobs, instead of what their specs say: 0 (last) to 100 (first).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 100)]
    pub priority: Option<u8>,
    /// Why, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// A run of a definition that is kept with the run alone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StartDefinition {
    /// What it does. Its name need not be unique: it is what the run is called.
    pub definition: WorkflowSpec,
    /// Its parameters; those without a default must be there.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    #[schema(value_type = BTreeMap<String, Value>)]
    pub parameters: Map<String, Value>,
    /// The priority of its jobs, instead of what their specs say: 0 (last) to 100 (first).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 100)]
    pub priority: Option<u8>,
    /// Why, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// What a run would do, without starting it: its steps in an order in which they may begin.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RunPlan {
    /// The parameters that it would have, defaults included.
    #[schema(value_type = BTreeMap<String, Value>)]
    pub parameters: Map<String, Value>,
    /// Its steps.
    pub steps: Vec<PlannedStep>,
}

/// A step that a run would have.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PlannedStep {
    /// Its name.
    pub name: String,
    /// Its section.
    pub section: Section,
    /// What it does.
    pub kind: StepKind,
    /// The steps that it needs.
    pub needs: Vec<String>,
    /// Which part of its section's steps may begin together, from 0: one more than the highest of its needs.
    pub level: u32,
    /// How many elements it has, where that is known before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<u32>,
    /// What its job would run, with the values of parameters put in and references to steps left as
    /// they are; absent for other kinds of steps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<Vec<String>>,
}

/// What a step does.
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
    /// Its id.
    pub id: RunId,
    /// The workflow; none for a run that another one called, or whose definition was given with its start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workflow_id: Option<WorkflowId>,
    /// The name of its workflow.
    pub workflow: String,
    /// The tenant that it belongs to.
    pub namespace: String,
    /// Which generation of the workflow it is pinned to; zero where it has none.
    pub generation: u64,
    /// The how manieth run of its workflow; zero where it has none.
    pub number: u64,
    /// Where it stands.
    pub status: RunStatus,
    /// Which section it is in.
    pub section: Section,
    /// Grows with every change; the number in its ETag.
    pub version: u64,
    /// When it was started.
    pub created_at: Timestamp,
    /// When its turn came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Timestamp>,
    /// When it last changed.
    pub updated_at: Timestamp,
    /// What it was started with, defaults included.
    #[schema(value_type = BTreeMap<String, Value>)]
    pub parameters: Map<String, Value>,
    /// Who started it.
    pub actor: String,
    /// Why, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// The step that called it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caller: Option<Caller>,
    /// The ended run that it tries again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_of: Option<RunId>,
    /// The priority of its jobs, instead of what their specs say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<u8>,
    /// The firing that it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
    /// The trigger that started it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trigger: Option<RunTrigger>,
    /// The runs that its end started.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub started_runs: Vec<RunId>,
    /// Who paused it, and why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause: Option<Pause>,
    /// Why it is being stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopping: Option<RunCause>,
    /// Which try of it goes on, or was the last, where its workflow has more than one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tries: Option<RunTries>,
    /// How many of its steps there are of each status.
    pub steps: StepCounts,
    /// Its steps that wait for approval; only in lists with `approvals=true`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approvals: Option<Vec<WaitingApproval>>,
    /// What it gave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Value>,
    /// Its newest transition, for example with the step that made it fail; only in lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_transition: Option<RunHistoryEntry>,
    /// Every transition so far; left out of lists.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<RunHistoryEntry>,
    /// What it is pinned to: the spec of its workflow; left out of lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spec: Option<Box<WorkflowSpec>>,
}

/// The tries of a run by the policy of its workflow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RunTries {
    /// Which one goes on, comes next or was the last, from 1.
    pub number: u32,
    /// How many there are at most, the first included.
    pub most: u32,
    /// When it begins, while the run waits for that; also if it was paused meanwhile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_at: Option<Timestamp>,
    /// When the newest one began, from the second on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub began_at: Option<Timestamp>,
}

/// A step that waits for somebody's approval.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WaitingApproval {
    /// Its name.
    pub step: String,
    /// Since when.
    pub since: Timestamp,
    /// Who may approve or reject; whoever may change the run, where nobody is named.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub approvers: Vec<String>,
    /// What it asks, with every reference replaced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// How many steps there are of each status. Elements of a list do not count.
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
    /// The version of the run that they are of.
    pub version: u64,
    /// In that order: `steps`, `on_failure`, `finally`.
    pub steps: Vec<RunStep>,
}

/// A step of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RunStep {
    /// Its name.
    pub name: String,
    /// Its place among all steps of the run, from 0.
    pub number: u32,
    /// Its section.
    pub section: Section,
    /// What it does.
    pub kind: StepKind,
    /// The steps that it needs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub needs: Vec<String>,
    /// Which of them must end how.
    pub join: JoinRule,
    /// Whether it is done once for each element of a list.
    pub for_each: bool,
    /// All that changes of it.
    #[serde(flatten)]
    pub state: RunStepState,
}

/// A page of the elements of a step that have ended, by their numbers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RunItem {
    /// Which element, from 0.
    pub index: u32,
    /// The element: a text as it is, all else as JSON. Absent once its job is no longer kept, and of calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub item: Option<String>,
    /// The worker of the newest execution of its job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker_id: Option<WorkerId>,
    /// How many executions its job has had.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub executions: Option<u32>,
    /// All that is kept of it.
    #[serde(flatten)]
    pub state: RunStepState,
}

/// Where a step, or an element of one, stands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RunStepState {
    /// Where it stands.
    pub status: StepStatus,
    /// Why it stands there; none while it is pending.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<StepCause>,
    /// Its job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_id: Option<JobId>,
    /// The run that it called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub called: Option<RunId>,
    /// When it began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Timestamp>,
    /// When its wait or its timeout is over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wake_at: Option<Timestamp>,
    /// How many elements there are, where it is done for each of a list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<u32>,
    /// How its elements did so far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tally: Option<Tally>,
    /// What it gave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Value>,
    /// What is known beyond the cause, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Who approved, rejected or marked it, or whose event it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub said: Option<Said>,
    /// Of a step over workers: those that came while it went on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub late_workers: Option<LateWorkers>,
    /// The versions of artifacts that it stored: by the name of each output `NAME@sha256:HEX`, of a step over a list a list
    /// of these.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<Value>,
    /// Of an approval that has begun: what it asks, and whom, with every reference replaced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<Asks>,
}

/// How a run is cancelled. May be left out.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CancelRun {
    /// Why, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Leaves out `on_failure` and `finally`, or stops them if they go on.
    pub skip_finally: bool,
}

/// Why a run is paused, a step approved or rejected. May be left out.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Note {
    /// Why, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// The statuses that a step may be marked with.
#[derive(ToSchema)]
#[serde(rename_all = "snake_case")]
#[expect(dead_code, reason = "the document's view of `StepStatus`")]
enum MarkedAs {
    Succeeded,
    Failed,
    Skipped,
}

/// What becomes of a step that has not ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MarkStep {
    /// `succeeded`, `failed` or `skipped`.
    #[schema(value_type = MarkedAs)]
    pub status: StepStatus,
    /// Why, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// Where another try of an ended run begins. May be left out.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RetryRun {
    /// At this step, whatever it ended as, and at every other that did not end well; only at the latter
    /// where absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Why, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Steps that may start again although their jobs run `at_most_once` and have started; `call/pay` is step `pay` of
    /// the workflow that step `call` calls. The refusal `repeat_forbidden` names them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub repeat: Vec<String>,
}

/// What came of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EventTaken {
    /// How many steps it was for.
    pub steps: usize,
}
