//! Why a job, or a step of a run, is waiting, or what it is doing.
//!
//! The engine gives the reasons, by the same code that filters workers and opens steps; the API answers with these types, and
//! client and command line read them.
//!
//! # Invariants
//! - A later version may add kinds of reasons. So lists of them are lists of [`OpenEnum`]s: an older client keeps a kind
//!   that it does not know as it came, and shows it raw. The engine gives known kinds only.
//! - The enums are complete for a `match` in this workspace: a new kind without words for people does not compile.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::run::StepCause;
use crate::workflow::{JoinRule, Section};
use crate::{Bytes, Duration, JobId, JobStatus, Millicores, RunId, StepStatus, Timestamp, WorkerId};

/// A value of a kind that this version knows, or of one that a later version added.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum OpenEnum<T> {
    /// A kind that this version knows.
    Known(T),
    /// Any other kind, with all its fields.
    Unknown(Value),
}

impl<T> OpenEnum<T> {
    /// The value, if this version knows its kind.
    pub const fn known(&self) -> Option<&T> {
        match self {
            Self::Known(value) => Some(value),
            Self::Unknown(_) => None,
        }
    }

    /// A list of values, all of known kinds.
    pub fn list(values: impl IntoIterator<Item = T>) -> Vec<Self> {
        values.into_iter().map(Self::Known).collect()
    }
}

/// Why a job stands where it stands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Why {
    /// Which job.
    pub job: JobId,
    /// Where it stands.
    pub status: JobStatus,
    /// Everything that holds it back; the first is what must change first.
    #[schema(value_type = Vec<Reason>)]
    pub reasons: Vec<OpenEnum<Reason>>,
}

/// One thing that holds a job back, or what it is doing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub enum Reason {
    /// Its time has not come.
    NotDue {
        /// When it comes.
        until: Timestamp,
    },
    /// Engine time is ahead of the wall clock, and stands still until that has caught up: the clock was wrong.
    ClockBehind {
        /// How far the wall clock is behind.
        by: Duration,
    },
    /// It failed and waits before its next try.
    Backoff {
        /// Until when.
        until: Timestamp,
        /// Failures so far.
        failures: u32,
    },
    /// Its queue is paused.
    QueuePaused {
        /// Which.
        queue: String,
        /// What the operator said.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        note: Option<String>,
    },
    /// As many jobs of its queue run as may.
    QueueConcurrency {
        /// Which.
        queue: String,
        /// How many run.
        running: u32,
        /// How many may.
        limit: u32,
    },
    /// Its queue has started as many jobs as its rate lets it.
    QueueRate {
        /// Which.
        queue: String,
        /// When the next may start.
        until: Timestamp,
    },
    /// As many jobs with its concurrency key run as may.
    ConcurrencyKey {
        /// Which.
        key: String,
        /// How many run.
        running: u32,
        /// How many may.
        limit: u32,
    },
    /// Other jobs of its queue come first.
    Behind {
        /// How many wait in the queue, itself included.
        waiting: u64,
    },
    /// The store forgot commits, and the job must not run twice: every worker is heard first.
    Reconciling {
        /// Until when.
        until: Timestamp,
    },
    /// The store's volume is full: nothing new is started until there is space.
    StorageFull,
    /// There is no worker at all.
    NoWorkers,
    /// No worker takes it now.
    NoWorkerFits {
        /// Why not, for each worker (at most 100).
        workers: Vec<Misfits>,
        /// How many more there are.
        more: u64,
    },
    /// It can start: the next batch places it.
    Placeable {
        /// Where it would go now.
        worker: WorkerId,
    },
    /// It runs.
    Runs {
        /// Where.
        worker: WorkerId,
        /// Since when; absent until the worker says that it started.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        since: Option<Timestamp>,
    },
    /// Its worker has not been heard of; judged when its lease runs out.
    WorkerSilent {
        /// Which.
        worker: WorkerId,
        /// When it is taken for lost.
        until: Timestamp,
    },
    /// Its worker is lost, and it may not be started twice: it waits for the worker to come back with the outcome.
    OutcomeUnknown {
        /// Which.
        worker: WorkerId,
        /// When it fails, if the worker has not come back.
        until: Timestamp,
    },
    /// Room is kept for it: its schedule reserves ahead.
    Reserved {
        /// Where.
        worker: WorkerId,
    },
    /// It was cancelled and is being stopped.
    Stopping {
        /// Since when.
        since: Timestamp,
    },
}

/// Why one worker does not take a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Misfits {
    /// Which worker.
    pub worker: WorkerId,
    /// What people call it.
    pub name: String,
    /// Everything that is in the way.
    #[schema(value_type = Vec<Misfit>)]
    pub misfits: Vec<OpenEnum<Misfit>>,
}

/// One thing about a worker that is in a job's way.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "misfit", rename_all = "snake_case")]
pub enum Misfit {
    /// It is lost.
    Lost,
    /// It is not connected, and has not been judged yet.
    Silent,
    /// It is cordoned.
    Cordoned,
    /// It is being drained.
    Draining,
    /// It calls itself unhealthy.
    Unhealthy {
        /// Why.
        trouble: String,
    },
    /// It cannot run this kind of work.
    Runtime {
        /// Which kind.
        runtime: String,
    },
    /// It cannot enforce a limit that the job requires.
    Limit {
        /// Which.
        limit: String,
    },
    /// Its labels do not satisfy a constraint.
    Constraint {
        /// The label.
        label: String,
        /// Its value there.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        value: Option<String>,
    },
    /// Too little CPU is free.
    Cpu {
        /// What the job needs.
        needed: Millicores,
        /// What is free.
        free: Millicores,
        /// What there is in all.
        capacity: Millicores,
    },
    /// Too little memory is free.
    Memory {
        /// What the job needs.
        needed: Bytes,
        /// What is free.
        free: Bytes,
        /// What there is in all.
        capacity: Bytes,
    },
    /// Too little of a custom resource is free.
    Custom {
        /// Which.
        resource: String,
        /// What the job needs.
        needed: u64,
        /// What is free.
        free: u64,
        /// What there is in all.
        capacity: u64,
    },
    /// It declined work a moment ago, and is asked again within a second.
    Declined,
    /// There would be room, but it is kept for a schedule.
    Reserved {
        /// Its name.
        schedule: String,
        /// The instant that it is kept for.
        until: Timestamp,
    },
    /// It runs as many executions as it may.
    Slots {
        /// How many it may.
        slots: u32,
    },
}

/// Why a step of a run stands where it stands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct StepWhy {
    /// Of which run.
    pub run: RunId,
    /// Its name.
    pub step: String,
    /// Where it stands.
    pub status: StepStatus,
    /// Everything that holds it back; the first is what must change first.
    #[schema(value_type = Vec<StepReason>)]
    pub reasons: Vec<OpenEnum<StepReason>>,
}

/// Why the steps of a run that have not ended stand where they stand.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RunWhy {
    /// Which run.
    pub run: RunId,
    /// What it waits for itself: it failed, and is tried again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_try: Option<NextTry>,
    /// Those that go on or wait, then those that have not begun; each in the order of the workflow.
    pub steps: Vec<StepWhy>,
    /// How many more there are.
    pub left_out: usize,
}

/// Another try of a run that failed, by the policy of its workflow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NextTry {
    /// Which, from 1; the next is the second at least.
    pub number: u32,
    /// How many there are at most, the first included.
    pub most: u32,
    /// When it begins; absent while the run is paused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
}

/// A step that another one needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NeedView {
    /// Its name.
    pub step: String,
    /// Where it stands.
    pub status: StepStatus,
}

/// One thing that holds a step back, or what it is doing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub enum StepReason {
    /// As many runs of its workflow go on as may.
    RunWaits {
        /// How many go on.
        running: usize,
        /// How many may.
        limit: usize,
        /// How many runs have their turn before this one.
        ahead: usize,
    },
    /// Its run failed and waits before its next try. Of a step that ended: it is done again then.
    RunRetries(NextTry),
    /// Its section has not begun.
    LaterSection {
        /// Its section.
        section: Section,
        /// The one that the run is in.
        now: Section,
    },
    /// Its run is paused.
    Paused {
        /// By whom.
        by: String,
        /// Since when.
        since: Timestamp,
    },
    /// Its join rule waits for steps that have not ended.
    Needs {
        /// The rule.
        join: JoinRule,
        /// Those steps (at most 100).
        needs: Vec<NeedView>,
        /// How many more there are.
        more: usize,
    },
    /// As many steps of its run go on as may.
    ParallelSteps {
        /// How many go on.
        running: u32,
        /// How many may.
        limit: u32,
    },
    /// It can begin: the next batch does it.
    NextBatch,
    /// Its job goes on: why that stands where it stands, the job can say.
    Job {
        /// Which.
        job: JobId,
    },
    /// The run that it called goes on.
    Called {
        /// Which.
        run: RunId,
    },
    /// Its elements go on.
    Elements {
        /// How many there are.
        total: u32,
        /// How many go on.
        running: usize,
        /// How many ended well.
        succeeded: u32,
        /// How many failed.
        failed: u32,
    },
    /// Steps go on whose tasks may add more elements.
    Adders {
        /// Which.
        steps: Vec<NeedView>,
    },
    /// Elements of a step over workers wait for workers that are lost or were removed.
    LostWorkers {
        /// Names of the workers (at most 100); the id of a worker that was removed.
        workers: Vec<String>,
        /// Number of further workers.
        more: usize,
    },
    /// It waits for somebody.
    Approval {
        /// Who may approve; whoever may change the run, where nobody is named.
        approvers: Vec<String>,
        /// What it asks.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        message: Option<String>,
        /// Until when.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        until: Option<Timestamp>,
    },
    /// It waits for an event.
    Event {
        /// Its name.
        event: String,
        /// Until when.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        until: Option<Timestamp>,
    },
    /// It waits for its time.
    Time {
        /// When it comes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        until: Option<Timestamp>,
    },
    /// It is being stopped.
    Stopping {
        /// What it becomes.
        becomes: StepStatus,
        /// Because of what.
        cause: StepCause,
    },
    /// It has ended.
    Over {
        /// Because of what.
        cause: StepCause,
        /// What is known beyond that.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        message: Option<String>,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An older client reads what a later server says.
    #[test]
    fn a_reason_of_a_later_version_is_kept_as_it_came() {
        let text = r#"{"job":"job_01k9zq3m6c0000000000000000","status":"waiting","reasons":[{"reason":"no_workers"},{"quota":3,"reason":"quota"},{"reason":"no_worker_fits","workers":[{"worker":"wkr_01k9zq3m6c0000000000000000","name":"w1","misfits":[{"misfit":"slots","slots":4},{"misfit":"phase"}]}],"more":0}]}"#;
        let why: Why = serde_json::from_str(text).unwrap();
        assert_eq!(why.reasons[0], OpenEnum::Known(Reason::NoWorkers));
        assert_eq!(why.reasons[1].known(), None);
        let Some(Reason::NoWorkerFits { workers, .. }) = why.reasons[2].known() else { panic!("{why:?}") };
        let known: Vec<_> = workers[0].misfits.iter().map(OpenEnum::known).collect();
        assert_eq!(known, [Some(&Misfit::Slots { slots: 4 }), None]);
        assert_eq!(serde_json::to_string(&why).unwrap(), text);
    }
}
