//! Why a job stands where it stands, told by the very code that filters and scores.

use model::{Bytes, JobId, JobStatus, Millicores, Timestamp, WorkerId};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Why a job stands where it stands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Why {
    /// Which job.
    pub job: JobId,
    /// Where it stands.
    pub status: JobStatus,
    /// Everything that holds it back; the first is what must change first.
    pub reasons: Vec<Reason>,
}

/// One thing that holds a job back, or what it is doing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "reason", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Reason {
    /// Its time has not come.
    NotDue {
        /// When it comes.
        until: Timestamp,
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
    pub misfits: Vec<Misfit>,
}

/// One thing about a worker that is in a job's way.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "misfit", rename_all = "snake_case")]
#[non_exhaustive]
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
