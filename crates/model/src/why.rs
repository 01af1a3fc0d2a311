//! Waiting reasons of jobs and of the steps of runs.
//!
//! The engine produces the reasons with the same code that filters workers and starts steps. The API returns these types;
//! the client and the CLI parse them.
//!
//! # Invariants
//! - A later version may add kinds of reasons, so the lists hold [`OpenEnum`]s: an older client keeps an unknown kind
//!   unchanged and prints its JSON. The engine produces known kinds only.
//! - A `match` on these enums is exhaustive in this workspace: a new kind without a sentence does not compile.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::run::StepCause;
use crate::spec::{FinishAction, SandboxLevel, UpstreamCondition};
use crate::workflow::{JoinRule, Section};
use crate::{Bytes, Duration, JobId, JobStatus, Millicores, RunId, StepStatus, Timestamp, WorkerId};

/// A value of a known kind, or of a kind that a later version added.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum OpenEnum<T> {
    /// A kind that this version supports.
    Known(T),
    /// Any other kind, as JSON with all fields.
    Unknown(Value),
}

impl<T> OpenEnum<T> {
    /// Returns the value, or `None` if its kind is unknown.
    pub const fn known(&self) -> Option<&T> {
        match self {
            Self::Known(value) => Some(value),
            Self::Unknown(_) => None,
        }
    }

    /// Wraps values of known kinds.
    pub fn list(values: impl IntoIterator<Item = T>) -> Vec<Self> {
        values.into_iter().map(Self::Known).collect()
    }
}

/// Why a job is waiting, or what it is doing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Why {
    /// Job ID.
    pub job: JobId,
    /// Job status.
    pub status: JobStatus,
    /// All waiting reasons; the first one must be resolved first.
    #[schema(value_type = Vec<Reason>)]
    pub reasons: Vec<OpenEnum<Reason>>,
    /// Start deadline of the job. Absent if it has none, or has started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_by: Option<Timestamp>,
    /// Completion deadline of the job. Absent if it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finish_by: Option<Timestamp>,
    /// What happens to the job at its completion deadline. Absent if it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finish_action: Option<FinishAction>,
}

impl Why {
    /// Returns the explanation of a job that has ended: it waits for nothing.
    pub fn ended(job: JobId, status: JobStatus) -> Self {
        Self { job, status, reasons: Vec::new(), start_by: None, finish_by: None, finish_action: None }
    }
}

/// One waiting reason of a job, or what the job is doing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub enum Reason {
    /// The scheduled time of the job is in the future.
    NotDue {
        /// Scheduled time.
        until: Timestamp,
    },
    /// Upstream jobs have not ended.
    UpstreamJobs {
        /// The upstream jobs (at most 100).
        jobs: Vec<WaitingUpstreamJob>,
    },
    /// Services that the job requires do not have enough available replicas.
    RequiredServices {
        /// The services (at most 16).
        services: Vec<UnavailableService>,
    },
    /// Engine time is ahead of the wall clock because the clock was wrong. Engine time stands still until the clock
    /// catches up.
    ClockBehind {
        /// Difference between engine time and the wall clock.
        by: Duration,
    },
    /// The job failed and is waiting for its next attempt.
    Backoff {
        /// Time of the next attempt.
        until: Timestamp,
        /// Number of failed attempts so far.
        failures: u32,
        /// Number of attempts so far that were lost with their worker.
        #[serde(default)]
        losses: u32,
    },
    /// The queue of the job is paused.
    QueuePaused {
        /// Queue name.
        queue: String,
        /// Note of the operator who paused the queue.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        note: Option<String>,
    },
    /// The queue has reached its limit of concurrent jobs.
    QueueConcurrency {
        /// Queue name.
        queue: String,
        /// Number of running jobs of the queue.
        running: u32,
        /// Limit of concurrent jobs of the queue.
        limit: u32,
    },
    /// The queue has reached its rate limit.
    QueueRate {
        /// Queue name.
        queue: String,
        /// Earliest start time of the next job.
        until: Timestamp,
    },
    /// The concurrency key of the job has reached its limit.
    ConcurrencyKey {
        /// Concurrency key.
        key: String,
        /// Number of running jobs with the key.
        running: u32,
        /// Limit of concurrent jobs with the key.
        limit: u32,
    },
    /// The namespace of the job has used its quota.
    NamespaceQuota {
        /// Name of the namespace.
        namespace: String,
        /// Limited resource: `cpu` (millicores), `memory` (bytes), `running` (jobs), or a custom resource.
        resource: String,
        /// Amount that the running jobs of the namespace use.
        used: u64,
        /// Amount that the job requests.
        needed: u64,
        /// Limit of the quota.
        limit: u64,
        /// Note of the operator who set the quota.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        note: Option<String>,
    },
    /// Other jobs are ahead in the queue.
    QueuedBehind {
        /// Number of waiting jobs in the queue, including this one.
        waiting: u64,
    },
    /// The store lost its last commits, and the job must not run twice. The server waits for a report from every
    /// worker before it starts the job.
    Reconciling {
        /// Latest end of the reconciliation.
        until: Timestamp,
    },
    /// The disk volume of the store is full. The server starts no job until space is free.
    StorageFull,
    /// No worker is registered.
    NoWorkers,
    /// No worker is eligible now.
    NoEligibleWorker {
        /// Why each worker is not eligible (at most 100 workers).
        workers: Vec<WorkerMismatch>,
        /// Number of further workers.
        more: u64,
    },
    /// The job can start: the next batch places it.
    Placeable {
        /// Worker that the job would be placed on now.
        worker: WorkerId,
    },
    /// The job has an execution on a worker.
    Running {
        /// Worker of the execution.
        worker: WorkerId,
        /// Start time; absent until the worker reports the start.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        since: Option<Timestamp>,
    },
    /// The worker of the job is disconnected. The worker is marked as lost when its lease expires.
    WorkerDisconnected {
        /// Worker of the execution.
        worker: WorkerId,
        /// Expiry of the lease.
        until: Timestamp,
    },
    /// The worker is lost, and the job is not started again: it must not start twice, or was lost too often. The server
    /// waits for the worker to reconnect and report the result.
    OutcomeUnknown {
        /// Lost worker.
        worker: WorkerId,
        /// Time when the job fails if the worker has not reconnected.
        until: Timestamp,
    },
    /// Capacity is reserved for the job, because its schedule reserves in advance.
    Reserved {
        /// Worker with the reservation.
        worker: WorkerId,
    },
    /// The job preempts other jobs: it starts on their worker as soon as they have stopped.
    Preempting {
        /// Worker that the job will run on.
        worker: WorkerId,
        /// Jobs that are being stopped (at most 100). Empty if all of them have stopped.
        victims: Vec<JobId>,
    },
    /// The job waited long for a worker with enough free capacity. The free capacity of one worker is now kept for the
    /// job.
    CapacityReserved {
        /// Worker that the job will run on.
        worker: WorkerId,
        /// Latest time when the capacity is free, by the timeouts of the running jobs. Absent if one of them has no
        /// timeout.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        until: Option<Timestamp>,
    },
    /// The job is preempted: its execution is being stopped, and the job starts again later.
    Preempted {
        /// Job of a higher priority class that takes its place.
        by: JobId,
    },
    /// The job was cancelled, and its execution is being stopped.
    Stopping {
        /// Time of the cancel request.
        since: Timestamp,
    },
}

/// An upstream job that has not ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct WaitingUpstreamJob {
    /// ID of the upstream job.
    pub job: JobId,
    /// How the upstream job must end.
    pub condition: UpstreamCondition,
    /// Status of the upstream job. Absent if the server does not have the job, because its row in the store is damaged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<JobStatus>,
}

/// A service that does not have as many available replicas as a job requires.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UnavailableService {
    /// Name of the service.
    pub service: String,
    /// Number of available replicas. Absent if the service does not exist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub available: Option<u32>,
    /// Minimum number of available replicas that the job requires.
    pub min_available: u32,
}

/// Why one worker is not eligible for a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct WorkerMismatch {
    /// Worker ID.
    pub worker: WorkerId,
    /// Worker name.
    pub name: String,
    /// All filters that the worker does not pass.
    #[schema(value_type = Vec<FailedFilter>)]
    pub failed_filters: Vec<OpenEnum<FailedFilter>>,
}

/// One filter that a worker does not pass for a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "filter", rename_all = "snake_case")]
pub enum FailedFilter {
    /// The worker is lost.
    Lost,
    /// The worker is disconnected, and its lease has not expired yet.
    Disconnected,
    /// The worker is cordoned.
    Cordoned,
    /// The worker is draining.
    Draining,
    /// The worker reports that it is unhealthy.
    Unhealthy {
        /// Problem that the worker reports.
        problem: String,
    },
    /// The worker does not support the runtime of the job.
    Runtime {
        /// Runtime of the job.
        runtime: String,
    },
    /// The worker cannot enforce a limit that the job requires.
    Limit {
        /// Name of the limit.
        limit: String,
    },
    /// The labels of the worker do not match a constraint of the job.
    Constraint {
        /// Label of the constraint.
        label: String,
        /// Value of the label on the worker; absent if the worker does not declare the label.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        value: Option<String>,
    },
    /// The worker has too little free CPU.
    Cpu {
        /// CPU that the job requests.
        needed: Millicores,
        /// Free CPU of the worker.
        free: Millicores,
        /// Total CPU of the worker.
        capacity: Millicores,
    },
    /// The worker has too little free memory.
    Memory {
        /// Memory that the job requests.
        needed: Bytes,
        /// Free memory of the worker.
        free: Bytes,
        /// Total memory of the worker.
        capacity: Bytes,
    },
    /// The worker has too little of a custom resource free.
    Custom {
        /// Resource name.
        resource: String,
        /// Amount that the job requests.
        needed: u64,
        /// Free amount on the worker.
        free: u64,
        /// Total amount on the worker.
        capacity: u64,
    },
    /// A fixed port of the job is in use on the worker.
    PortInUse {
        /// Number of the port.
        port: u16,
    },
    /// The worker already runs as many jobs with this name as the job's `spread` allows.
    Spread {
        /// Number of running jobs of the group on the worker.
        running: u32,
        /// Maximum number for one worker.
        max_per_worker: u32,
    },
    /// The worker does not have a volume that the job needs.
    Volume {
        /// Name of the volume.
        volume: String,
    },
    /// The worker does not support ports and health checks: its version is too old.
    HealthChecks,
    /// The worker cannot create the sandbox of the job: its kernel lacks a feature or forbids it.
    Sandbox {
        /// Level of the sandbox.
        level: SandboxLevel,
    },
    /// The worker declined an execution recently. The server tries again within a second.
    Declined,
    /// The free capacity of the worker is reserved for a schedule.
    Reserved {
        /// Schedule name.
        schedule: String,
        /// Scheduled time of the firing that the capacity is reserved for.
        until: Timestamp,
    },
    /// The free capacity of the worker is reserved for a job of the same or a higher priority class.
    ReservedForJob {
        /// ID of the job.
        job: JobId,
    },
    /// All slots of the worker are in use.
    Slots {
        /// Total slots of the worker.
        slots: u32,
    },
}

/// Why a step of a run is waiting, what it is doing, or why it ended as it did.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct StepWhy {
    /// Run ID.
    pub run: RunId,
    /// Step name.
    pub step: String,
    /// Step status.
    pub status: StepStatus,
    /// All waiting reasons; the first one must be resolved first.
    #[schema(value_type = Vec<StepReason>)]
    pub reasons: Vec<OpenEnum<StepReason>>,
}

/// Why the steps of a run that have not ended are waiting, or what they are doing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RunWhy {
    /// Run ID.
    pub run: RunId,
    /// Next attempt of the run, if the run failed and will be retried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_attempt: Option<NextAttempt>,
    /// Steps that are running or waiting, then steps that have not started; each group in workflow order.
    pub steps: Vec<StepWhy>,
    /// Number of steps that are omitted from the list.
    pub more: usize,
}

/// Next attempt of a failed run, by the retry policy of its workflow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NextAttempt {
    /// Attempt number, counted from 1; at least 2.
    pub number: u32,
    /// Maximum number of attempts, including the first one.
    pub max: u32,
    /// Start time of the attempt; absent while the run is paused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
}

/// A step that another step depends on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UpstreamStep {
    /// Step name.
    pub step: String,
    /// Step status.
    pub status: StepStatus,
}

/// One waiting reason of a step, or what the step is doing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub enum StepReason {
    /// The workflow has reached its limit of concurrent runs.
    RunWaiting {
        /// Number of running runs of the workflow.
        running: usize,
        /// Limit of concurrent runs.
        limit: usize,
        /// Number of waiting runs ahead of this run.
        ahead: usize,
    },
    /// The run failed and is waiting for its next attempt. A step that has ended runs again in that attempt.
    RunRetrying(NextAttempt),
    /// The section of the step has not started.
    LaterSection {
        /// Section of the step.
        section: Section,
        /// Current section of the run.
        current_section: Section,
    },
    /// The run is paused.
    Paused {
        /// User who paused the run.
        by: String,
        /// Time of the pause.
        since: Timestamp,
    },
    /// The join rule of the step waits for upstream steps that have not ended.
    Upstream {
        /// Join rule.
        join: JoinRule,
        /// Upstream steps that have not ended (at most 100).
        needs: Vec<UpstreamStep>,
        /// Number of further upstream steps.
        more: usize,
    },
    /// The run has reached its limit of parallel steps.
    ParallelSteps {
        /// Number of running steps.
        running: u32,
        /// Limit of parallel steps.
        limit: u32,
    },
    /// The step can start: the next batch starts it.
    NextBatch,
    /// The job of the step has not ended. The waiting reasons of the job give the details.
    Job {
        /// Job ID.
        job: JobId,
    },
    /// The run that the step called has not ended.
    CalledRun {
        /// ID of the called run.
        run: RunId,
    },
    /// The elements of the step have not all ended.
    Elements {
        /// Total number of elements.
        total: u32,
        /// Number of running elements.
        running: usize,
        /// Number of succeeded elements.
        succeeded: u32,
        /// Number of failed elements.
        failed: u32,
    },
    /// Steps whose tasks may add more elements have not ended.
    AddingSteps {
        /// Steps that may add elements (at most 100).
        steps: Vec<UpstreamStep>,
    },
    /// Elements of a step that runs on every worker wait for workers that are lost or were removed.
    LostWorkers {
        /// Names of the workers (at most 100); the ID of a removed worker.
        workers: Vec<String>,
        /// Number of further workers.
        more: usize,
    },
    /// The step is waiting for approval.
    Approval {
        /// Users who may approve; if empty, any user who may change the run.
        approvers: Vec<String>,
        /// Message for the approver.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        message: Option<String>,
        /// Time when the step times out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        until: Option<Timestamp>,
    },
    /// The step is waiting for an event.
    Event {
        /// Event name.
        event: String,
        /// Time when the step times out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        until: Option<Timestamp>,
    },
    /// The step is waiting for a time.
    Time {
        /// End of the wait.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        until: Option<Timestamp>,
    },
    /// The step is being stopped.
    Stopping {
        /// Final status of the step once it has stopped.
        final_status: StepStatus,
        /// Cause of the stop.
        cause: StepCause,
    },
    /// The step has ended.
    Ended {
        /// Cause of the end.
        cause: StepCause,
        /// Details beyond the cause.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        message: Option<String>,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An older client can read the response of a later server.
    #[test]
    fn an_unknown_reason_is_preserved() {
        let text = r#"{"job":"job_01k9zq3m6c0000000000000000","status":"waiting","reasons":[{"reason":"no_workers"},{"quota":3,"reason":"quota"},{"reason":"no_eligible_worker","workers":[{"worker":"wkr_01k9zq3m6c0000000000000000","name":"w1","failed_filters":[{"filter":"slots","slots":4},{"filter":"phase"}]}],"more":0}]}"#;
        let why: Why = serde_json::from_str(text).unwrap();
        assert_eq!(why.reasons[0], OpenEnum::Known(Reason::NoWorkers));
        assert_eq!(why.reasons[1].known(), None);
        let Some(Reason::NoEligibleWorker { workers, .. }) = why.reasons[2].known() else {
            panic!("{why:?}")
        };
        let known: Vec<_> = workers[0].failed_filters.iter().map(OpenEnum::known).collect();
        assert_eq!(known, [Some(&FailedFilter::Slots { slots: 4 }), None]);
        assert_eq!(serde_json::to_string(&why).unwrap(), text);
    }
}
