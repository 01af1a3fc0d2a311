//! Runs of workflows: where they and their steps stand, as rows.
//!
//! A run has one row that changes ([`RunState`]), one that never does ([`RunHead`]), and one for each step
//! that is no longer pending ([`StepRecord`]); a step over a list has one more for each element that ended.
//! A step without a row is pending. What is next follows from these rows and the run's definition alone.

mod carry;
pub mod lifecycle;
mod pins;
mod trigger;

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use thin_vec::ThinVec;
use utoipa::ToSchema;

pub use carry::{Again, Carried, RetryFrom, carried, done_again};
pub use lifecycle::{RunCause, StepCause};
pub use pins::PinnedVersion;
pub use trigger::{Ended, KeptEnd, NotTriggered, RunTrigger, TriggerRefusal, TriggerState};

use crate::firing::{Origin, Pause};
use crate::id::{JobId, RunId, WorkflowId};
use crate::status::statuses;
use crate::time::Timestamp;
use crate::workflow::{Definition, Section, WorkflowSpec};

statuses! {
    /// Where a run stands. [`lifecycle`] has the transitions.
    RunStatus, "a run" {
        /// Waits for its turn: as many runs of its workflow go on as may.
        Waiting = 0, "waiting";
        /// Goes on.
        Running = 1, "running";
        /// Begins no further steps; those that go on do.
        Paused = 2, "paused";
        /// Is being stopped: its steps end, then `finally` runs.
        Stopping = 3, "stopping";
        /// Ended, and no step failed.
        Succeeded = 4, "succeeded";
        /// Ended, and a step failed, or it took too long.
        Failed = 5, "failed";
        /// Ended because somebody asked for it.
        Cancelled = 6, "cancelled";
        /// Failed, and waits before its next try.
        Retrying = 7, "retrying";
    }
}

impl RunStatus {
    /// Whether it never changes again.
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Cancelled)
    }
}

statuses! {
    /// Where a step, or one element of it, stands.
    StepStatus, "a step" {
        /// Has not begun.
        Pending = 0, "pending";
        /// Its job, the run that it called, or its elements go on.
        Running = 1, "running";
        /// Waits for somebody, for an event or for its time.
        Waiting = 2, "waiting";
        /// Ended well.
        Succeeded = 3, "succeeded";
        /// Ended badly.
        Failed = 4, "failed";
        /// Never began, because a step before it failed.
        UpstreamFailed = 5, "upstream_failed";
        /// Never began, because its rule or its condition did not let it.
        Skipped = 6, "skipped";
        /// Was stopped, or its run was before it began.
        Cancelled = 7, "cancelled";
    }
}

impl StepStatus {
    /// Whether it never changes again.
    pub const fn is_final(self) -> bool {
        !matches!(self, Self::Pending | Self::Running | Self::Waiting)
    }

    /// Whether something of it goes on.
    pub const fn is_live(self) -> bool {
        matches!(self, Self::Running | Self::Waiting)
    }
}

/// What a workflow was asked to be. Written again with every generation.
#[derive(Debug, Clone, PartialEq)]
pub struct WorkflowHead {
    /// The spec, filled.
    pub spec: Arc<WorkflowSpec>,
    /// The same as JSON.
    pub body: Arc<str>,
}

/// All of a workflow that changes without a new generation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkflowState {
    /// Which version of its spec: grows with every change of the spec.
    pub generation: u64,
    /// Grows with every change that somebody asked for; its ETag.
    pub version: u64,
    /// When it was made.
    pub created_at: Timestamp,
    /// When somebody last changed it.
    pub updated_at: Timestamp,
    /// How many runs it has had; the number of the newest.
    pub runs: u64,
    /// What each of its triggers has done, in their order; empty where it has none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub triggers: Vec<TriggerState>,
}

/// Which step of which run called a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
pub struct Caller {
    /// The run.
    pub run: RunId,
    /// The number of the step.
    pub step: u32,
    /// Which element of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub item: Option<u32>,
}

/// What a run was asked to be. Written once.
#[derive(Debug, Clone, PartialEq)]
pub struct RunHead {
    /// The workflow; none for a run that another one called.
    pub workflow: Option<WorkflowId>,
    /// Which generation of it; zero for a called one.
    pub generation: u64,
    /// The how manieth run of its workflow; zero for a called one.
    pub number: u64,
    /// What it does: the spec of its workflow and those that it calls.
    pub definition: Arc<Definition>,
    /// The definition as JSON, shared by runs of one definition.
    pub body: Arc<str>,
    /// What it was started with, complete.
    pub parameters: Arc<Map<String, Value>>,
    /// Who started it.
    pub actor: Arc<str>,
    /// Why, for people.
    pub note: Option<Box<str>>,
    /// The step that called it.
    pub caller: Option<Caller>,
    /// The ended run that it tries again.
    pub retry_of: Option<RunId>,
    /// The priority of its jobs, instead of what their specs say.
    pub priority: Option<u8>,
    /// The firing that it belongs to.
    pub origin: Option<Arc<Origin>>,
    /// The trigger that started it.
    pub trigger: Option<Arc<RunTrigger>>,
}

/// One recorded transition of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RunHistoryEntry {
    /// When it was decided.
    pub at: Timestamp,
    /// The status before; absent for the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<RunStatus>,
    /// The status after.
    pub to: RunStatus,
    /// What happened.
    pub cause: RunCause,
    /// Who did it, or what is known beyond the cause.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub detail: Option<Box<str>>,
}

/// All of a run that changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunState {
    /// Where it stands.
    pub status: RunStatus,
    /// Which section it is in.
    pub section: Section,
    /// Grows with every committed change; its ETag.
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
    /// Who paused it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause: Option<Box<Pause>>,
    /// Why it is being stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopping: Option<RunCause>,
    /// How its workflow's policy tried it again; none while its first try goes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<Box<RunRetry>>,
    /// Whether `on_failure` and `finally` are left out because somebody said so.
    pub skip_finally: bool,
    /// How many of its steps stand where, by [`StepStatus::code`]; pending ones are the rest.
    pub counts: [u32; 8],
    /// What it gave, as JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Arc<str>>,
    /// Every transition so far.
    pub history: Vec<RunHistoryEntry>,
    /// From when on retention may delete it; set when it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// The runs that its end started.
    #[serde(default, skip_serializing_if = "ThinVec::is_empty")]
    pub started: ThinVec<RunId>,
}

impl RunState {
    /// How many of its tries failed and were, or will be, followed by another.
    pub fn failures(&self) -> u32 {
        self.retry.as_ref().map_or(0, |retry| retry.failures)
    }

    /// When its next try begins, while it waits for that; also if it was paused meanwhile.
    pub fn next_try_at(&self) -> Option<Timestamp> {
        self.retry.as_ref()?.next_at
    }

    /// When its newest try began.
    pub fn try_began_at(&self) -> Option<Timestamp> {
        self.retry.as_ref().and_then(|retry| retry.began_at).or(self.started_at)
    }
}

/// How a run was tried again by the policy of its workflow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct RunRetry {
    /// How many of its tries failed, each of them followed by another.
    pub failures: u32,
    /// When the next try begins; absent while one goes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_at: Option<Timestamp>,
    /// When the newest try began; absent until the second does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub began_at: Option<Timestamp>,
}

/// Names a step of a run, or one element of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct StepKey {
    /// The run.
    pub run: RunId,
    /// The number of the step.
    pub step: u32,
    /// Which element of it; none for the step itself.
    pub item: Option<u32>,
}

/// A step, or one element of it, that is no longer pending.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepRecord {
    /// Which.
    pub key: StepKey,
    /// Where it stands.
    pub state: StepState,
}

/// Elements that a running task added to a step of its run, all at once and under a name of its choice.
///
/// The same name from the same step (or element) again is the same batch, whatever it holds then: a task that
/// is tried again repeats what it did, and adds nothing twice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ElementBatch {
    /// Which.
    pub key: BatchKey,
    /// Who added it.
    pub by: Adder,
    /// What the task calls it.
    pub name: Box<str>,
    /// How many elements it has; at least one.
    pub count: u32,
    /// The elements, as a JSON list.
    pub elements: Arc<str>,
    /// When it was added.
    pub added_at: Timestamp,
}

/// Names a batch of elements by its place in the list of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct BatchKey {
    /// The run.
    pub run: RunId,
    /// The number of the step that goes over the elements.
    pub step: u32,
    /// The number of the first of the elements.
    pub first: u32,
}

/// Who adds elements: a step, or one element of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Adder {
    /// The number of the step.
    pub step: u32,
    /// Which element of it, if it has any.
    pub item: Option<u32>,
}

/// What somebody, or somebody's payload, said to a step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Said {
    /// When.
    pub at: Timestamp,
    /// Who.
    #[schema(value_type = String)]
    pub by: Box<str>,
    /// What they said about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub note: Option<Box<str>>,
}

/// How the elements of a step did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct Tally {
    /// How many ended well.
    pub succeeded: u32,
    /// How many failed.
    pub failed: u32,
}

/// [`StepState::files`] of a step that stored more versions than
/// [`COLLECTED_BYTES_MAX`](crate::limits::COLLECTED_BYTES_MAX) allows. Older servers read it as a step that stored none.
pub const FILES_TOO_LARGE: &str = "null";

/// The versions in [`StepState::files`], without the names under which nothing was stored; `None` if they are too large.
pub fn stored_files(files: &str) -> Option<Map<String, Value>> {
    let mut files: Map<String, Value> = serde_json::from_str(files).ok()?;
    files.retain(|_, version| !is_stored_by_none(version));
    Some(files)
}

/// Whether a value in [`StepState::files`] says that neither the step nor an element of it stored the artifact.
pub fn is_stored_by_none(version: &Value) -> bool {
    match version {
        Value::Null => true,
        Value::Array(versions) => versions.iter().all(Value::is_null),
        _ => false,
    }
}

/// All of a step that changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepState {
    /// Where it stands. Pending only where its event came early, or it is to be done again.
    pub status: StepStatus,
    /// Why it stands there.
    pub cause: StepCause,
    /// Its job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<JobId>,
    /// The run that it called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub called: Option<RunId>,
    /// When it began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Timestamp>,
    /// When its timer goes off: the end of its wait or of its timeout, whichever is first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wake_at: Option<Timestamp>,
    /// For a step over a list: how many elements there are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<u32>,
    /// For a step over a list that ended: how its elements did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tally: Option<Tally>,
    /// The list as JSON, where it does not follow from the run's parameters and earlier steps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub items: Option<Arc<str>>,
    /// What it gave, as JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Arc<str>>,
    /// What is known beyond the cause, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<Box<str>>,
    /// Who approved, rejected or marked it, or whose event it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub said: Option<Box<Said>>,
    /// What it ends as, once what goes on of it has stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ending: Option<(StepStatus, StepCause)>,
    /// For a step over workers: those that came while it went on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub late_workers: Option<Box<LateWorkers>>,
    /// The versions of artifacts that it stored, as JSON: by the name of each output `NAME@sha256:HEX`; of a step over a
    /// list a list of these, with null for each element that stored none. A call has null for each name, or template of a
    /// name, that a step of the called run was to store and did not. [`FILES_TOO_LARGE`] where all of this is too large.
    /// Absent where nothing is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<Arc<str>>,
    /// What an approval asks, and whom, once it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asks: Option<Box<Asks>>,
    /// While it is pending: the ended run that its call continues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub continues: Option<Arc<EndedCall>>,
}

/// What a step that waits for approval asks, and whom: its texts with every reference replaced.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct Asks {
    /// What it asks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Who may approve or reject; whoever may change the run, where nobody is named.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub approvers: Vec<String>,
}

/// The ended run of a call, with what the next run of the call takes over from it: a retry of a run continues the
/// runs that its failed steps called instead of calling the workflow from its first step again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndedCall {
    /// The run.
    pub run: RunId,
    /// Its parameters; the next run has the same.
    pub parameters: Map<String, Value>,
    /// Steps and elements that are not done again. Those of calls may continue runs themselves.
    pub records: Vec<StepRecord>,
    /// Elements that tasks added, as far as they are taken over.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub batches: Vec<ElementBatch>,
}

/// Workers that came, or came back, while a step over workers went on.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct LateWorkers {
    /// How many.
    pub count: u32,
    /// The names of the first hundred.
    pub names: Vec<String>,
}

impl StepState {
    /// A step that stands somewhere and has nothing else yet.
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
            tally: None,
            items: None,
            output: None,
            message: None,
            said: None,
            ending: None,
            late_workers: None,
            files: None,
            asks: None,
            continues: None,
        }
    }
}

/// Which run and step a job belongs to. Given to its task as `BELFRY_RUN`, `BELFRY_WORKFLOW`, `BELFRY_STEP`
/// and, for an element of a list, `BELFRY_INDEX`, `BELFRY_TOTAL` and `BELFRY_ITEM`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StepOrigin {
    /// The run.
    pub run: RunId,
    /// The name of its workflow.
    #[schema(value_type = String)]
    pub workflow: Arc<str>,
    /// The name of the step.
    #[schema(value_type = String)]
    pub name: Arc<str>,
    /// Its number.
    pub step: u32,
    /// The element that it is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub item: Option<ItemOrigin>,
}

/// The element of a list that a job is for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ItemOrigin {
    /// Which, from 0.
    pub index: u32,
    /// How many there are.
    pub total: u32,
    /// The element: a text as it is, all else as JSON.
    #[schema(value_type = String)]
    pub value: Arc<str>,
}

impl StepOrigin {
    /// The step, or the element, that the job belongs to.
    pub fn key(&self) -> StepKey {
        StepKey { run: self.run, step: self.step, item: self.item.as_ref().map(|item| item.index) }
    }
}
