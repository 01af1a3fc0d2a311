//! Why a job, or a step of a run, stands where it stands, as the server tells it.
//!
//! A mirror of what the engine answers, so that programs need not build an engine to read it. Kinds
//! of reasons that this version does not know are kept as they came.

use model::run::{StepCause, StepStatus};
use model::workflow::{JoinRule, Section};
use model::{Bytes, Duration, JobId, JobStatus, Millicores, RunId, Timestamp, WorkerId};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Why a job stands where it stands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Why {
    /// Which job.
    pub job: JobId,
    /// Where it stands.
    pub status: JobStatus,
    /// Everything that holds it back; the first is what must change first.
    pub reasons: Vec<Reason>,
}

/// One thing that holds a job back, or what it is doing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
#[non_exhaustive]
#[expect(missing_docs, reason = "the engine's own type documents each field")]
pub enum Reason {
    /// Its time has not come.
    NotDue { until: Timestamp },
    /// Engine time is ahead of the wall clock, and stands still until that has caught up.
    ClockBehind { by: Duration },
    /// It failed and waits before its next try.
    Backoff { until: Timestamp, failures: u32 },
    /// Its queue is paused.
    QueuePaused {
        queue: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        note: Option<String>,
    },
    /// As many jobs of its queue run as may.
    QueueConcurrency { queue: String, running: u32, limit: u32 },
    /// Its queue has started as many jobs as its rate lets it.
    QueueRate { queue: String, until: Timestamp },
    /// As many jobs with its concurrency key run as may.
    ConcurrencyKey { key: String, running: u32, limit: u32 },
    /// Other jobs of its queue come first.
    Behind { waiting: u64 },
    /// The store forgot commits, and the job must not run twice: every worker is heard first.
    Reconciling { until: Timestamp },
    /// The store's volume is full: nothing new is started until there is space.
    StorageFull,
    /// There is no worker at all.
    NoWorkers,
    /// No worker takes it now.
    NoWorkerFits { workers: Vec<Misfits>, more: u64 },
    /// It can start: the next batch places it.
    Placeable { worker: WorkerId },
    /// It runs.
    Runs {
        worker: WorkerId,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        since: Option<Timestamp>,
    },
    /// Its worker has not been heard of.
    WorkerSilent { worker: WorkerId, until: Timestamp },
    /// Its worker is lost, and it may not be started twice: it waits for the worker to come back with the outcome.
    OutcomeUnknown { worker: WorkerId, until: Timestamp },
    /// Room is kept for it: its schedule reserves ahead.
    Reserved { worker: WorkerId },
    /// It was cancelled and is being stopped.
    Stopping { since: Timestamp },
    /// One that this version does not know.
    #[serde(untagged)]
    Other(Value),
}

/// Why one worker does not take a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Misfits {
    /// Which worker.
    pub worker: WorkerId,
    /// What people call it.
    pub name: String,
    /// Everything that is in the way.
    pub misfits: Vec<Misfit>,
}

/// One thing about a worker that is in a job's way.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "misfit", rename_all = "snake_case")]
#[non_exhaustive]
#[expect(missing_docs, reason = "the engine's own type documents each field")]
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
    Unhealthy { trouble: String },
    /// It cannot run this kind of work.
    Runtime { runtime: String },
    /// It cannot enforce a limit that the job requires.
    Limit { limit: String },
    /// Its labels do not satisfy a constraint.
    Constraint {
        label: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        value: Option<String>,
    },
    /// Too little CPU is free.
    Cpu { needed: Millicores, free: Millicores, capacity: Millicores },
    /// Too little memory is free.
    Memory { needed: Bytes, free: Bytes, capacity: Bytes },
    /// Too little of a custom resource is free.
    Custom { resource: String, needed: u64, free: u64, capacity: u64 },
    /// There would be room, but it is kept for a schedule.
    Reserved { schedule: String, until: Timestamp },
    /// It runs as many executions as it may.
    Slots { slots: u32 },
    /// One that this version does not know.
    #[serde(untagged)]
    Other(Value),
}

/// Why a step of a run stands where it stands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepWhy {
    /// Of which run.
    pub run: RunId,
    /// Its name.
    pub step: String,
    /// Where it stands.
    pub status: StepStatus,
    /// Everything that holds it back; the first is what must change first.
    pub reasons: Vec<StepReason>,
}

/// Why the steps of a run that have not ended stand where they stand.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunWhy {
    /// Which run.
    pub run: RunId,
    /// What it waits for itself: it failed, and is tried again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_try: Option<NextTry>,
    /// Those that go on or wait, then those that have not begun.
    pub steps: Vec<StepWhy>,
    /// How many more there are.
    pub left_out: usize,
}

/// Another try of a run that failed, by the policy of its workflow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NeedView {
    /// Its name.
    pub step: String,
    /// Where it stands.
    pub status: StepStatus,
}

/// One thing that holds a step back, or what it is doing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
#[non_exhaustive]
#[expect(missing_docs, reason = "the engine's own type documents each field")]
pub enum StepReason {
    /// As many runs of its workflow go on as may.
    RunWaits { running: u64, limit: u64, ahead: u64 },
    /// Its run failed and waits before its next try.
    RunRetries(NextTry),
    /// Its section has not begun.
    LaterSection { section: Section, now: Section },
    /// Its run is paused.
    Paused { by: String, since: Timestamp },
    /// Its join rule waits for steps that have not ended.
    Needs { join: JoinRule, needs: Vec<NeedView>, more: u64 },
    /// As many steps of its run go on as may.
    ParallelSteps { running: u32, limit: u32 },
    /// It can begin: the next batch does it.
    NextBatch,
    /// Its job goes on: why that stands where it stands, the job can say.
    Job { job: JobId },
    /// The run that it called goes on.
    Called { run: RunId },
    /// Its elements go on.
    Elements { total: u32, running: u64, succeeded: u32, failed: u32 },
    /// Steps go on whose tasks may add more elements.
    Adders { steps: Vec<NeedView> },
    /// Elements of a step over workers wait for workers that are lost or were removed.
    LostWorkers { workers: Vec<String>, more: u64 },
    /// It waits for somebody.
    Approval {
        approvers: Vec<String>,
        /// What it asks.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        message: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        until: Option<Timestamp>,
    },
    /// It waits for an event.
    Event {
        event: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        until: Option<Timestamp>,
    },
    /// It waits for its time.
    Time {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        until: Option<Timestamp>,
    },
    /// It is being stopped.
    Stopping { becomes: StepStatus, cause: StepCause },
    /// It has ended.
    Over {
        cause: StepCause,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        message: Option<String>,
    },
    /// One that this version does not know.
    #[serde(untagged)]
    Other(Value),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_that_is_not_known_yet_is_kept_as_it_came() {
        let text = r#"{"job":"job_01k9zq3m6c0000000000000000","status":"waiting","reasons":[{"reason":"no_workers"},{"quota":3,"reason":"quota"}]}"#;
        let why: Why = serde_json::from_str(text).unwrap();
        assert_eq!(why.reasons[0], Reason::NoWorkers);
        assert!(matches!(why.reasons[1], Reason::Other(_)));
        assert_eq!(serde_json::to_string(&why).unwrap(), text);
    }
}
