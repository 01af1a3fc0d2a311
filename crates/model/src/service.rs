//! Services: long-running jobs that are kept at a number of replicas.
//!
//! ```text
//! ServiceSpec ──> revision (template of the replicas) ──> replica = one job ──> restart = one more execution
//! ```
//!
//! A [`ServiceSpec`] has a job template and a number of replicas. Each replica is an ordinary job that refers to its
//! service ([`ReplicaOrigin`]). A replica that exits is restarted: its job gets a further execution. So two executions of
//! a replica never run at the same time.
//!
//! Each change of the template is a [`Revision`]. A [`Rollout`] replaces the replicas of older revisions, within the
//! limits of the [`UpdatePolicy`]. The engine decides; this module has the data.

mod scaling;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

pub use scaling::{
    CpuMetric, MemoryMetric, QueryMetric, QueueMetric, Scaling, ScalingCause, ScalingChange, ScalingMetric,
    ScalingSchedule,
};

use crate::id::ServiceId;
use crate::spec::{Backoff, DEFAULT, JobSpec, LogKeep, LogPolicy, PriorityClass, RetryPolicy};
use crate::status::statuses;
use crate::time::{Duration, Timestamp};

fn default_namespace() -> String {
    DEFAULT.to_owned()
}

fn default_min_healthy() -> Duration {
    Duration::from_secs(10)
}

fn default_surge() -> u32 {
    1
}

fn default_progress_deadline() -> Duration {
    Duration::from_secs(600)
}

fn default_true() -> bool {
    true
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

fn default_class() -> PriorityClass {
    PriorityClass::High
}

/// A service: a long-running job that is kept at a number of replicas.
///
/// Only `name` and `job` are required.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ServiceSpec {
    /// Name of the service, unique in its namespace. 1 to 63 letters, digits, `-`, `_` or `.`, starting with a letter or
    /// digit.
    pub name: String,
    /// Namespace (tenant) of the service and of its jobs [default: `default`].
    #[serde(default = "default_namespace")]
    pub namespace: String,
    /// Owner of the service: the person or team responsible for it, at most 128 bytes. Also the owner of its jobs, unless
    /// the job sets one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Labels of the service, for filtering and grouping; at most 64. Syntax: that of the labels of a job.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Description of the service, at most 1,000 bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Number of replicas, from 0 to 1,000 [default: the current number; 1 for a new service].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<u32>,
    /// Whether the service has one replica on each matching worker, instead of a number of replicas: on each worker that
    /// satisfies the constraints of the job, is not lost, and is open. Excludes `replicas` and `scaling` [default: `false`].
    #[serde(default, skip_serializing_if = "is_default")]
    pub per_worker: bool,
    /// Automatic scaling: Belfry sets the number of replicas. Excludes `replicas` and `per_worker` [default: none].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scaling: Option<Box<Scaling>>,
    /// Priority class of the replicas: `normal` or `high`. Replicas are never preempted [default: `high`].
    #[serde(default = "default_class")]
    pub priority_class: PriorityClass,
    /// Template of the jobs: each replica is a job with this spec. A service has no timeout, no retries, no deadlines and
    /// no outputs. The name of the jobs is that of the service unless the job has another one.
    pub job: Box<JobSpec>,
    /// Delay before each restart of a replica that exited. An execution that ran for ten minutes resets the delay.
    #[serde(default, skip_serializing_if = "is_default")]
    pub restart_backoff: Backoff,
    /// Time for which a replica must be healthy before it counts as available; at most 1h [default: `10s`].
    #[serde(default = "default_min_healthy")]
    pub min_healthy: Duration,
    /// How a new revision replaces the replicas of older ones.
    #[serde(default, skip_serializing_if = "is_default")]
    pub update: UpdatePolicy,
}

/// How a new revision of a service replaces the replicas of older ones.
///
/// The same limits hold for every stop that Belfry decides: updates, drains of workers, and scaling down. A service with
/// `per_worker` has no surge and no canaries, `max_unavailable` is at least 1, and a drained worker loses its replica.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UpdatePolicy {
    /// Maximum number of replicas beyond the desired number while replicas are replaced, from 0 to 1,000 [default: 1].
    #[serde(default = "default_surge")]
    pub max_surge: u32,
    /// Maximum number of desired replicas that Belfry makes unavailable, from 0 to 1,000. At least 1 if `max_surge` is 0
    /// [default: 0].
    #[serde(default)]
    pub max_unavailable: u32,
    /// Number of canaries: replicas of the new revision that are started beside the others. The rollout then waits for a
    /// promotion. With as many canaries as replicas, the update is blue-green [default: 0, no canaries].
    #[serde(default, skip_serializing_if = "is_default")]
    pub canaries: u32,
    /// Whether canaries are promoted when all of them are available [default: `false`].
    #[serde(default, skip_serializing_if = "is_default")]
    pub auto_promote: bool,
    /// Maximum time between two replicas of the new revision that become available, from 1s to 24h. A rollout that
    /// exceeds it has failed [default: `10m`].
    #[serde(default = "default_progress_deadline")]
    pub progress_deadline: Duration,
    /// Whether a failed rollout returns to the last revision that was rolled out completely [default: `true`].
    #[serde(default = "default_true")]
    pub auto_rollback: bool,
}

impl Default for UpdatePolicy {
    fn default() -> Self {
        Self {
            max_surge: default_surge(),
            max_unavailable: 0,
            canaries: 0,
            auto_promote: false,
            progress_deadline: default_progress_deadline(),
            auto_rollback: true,
        }
    }
}

/// Bound on the restarts of a replica after consecutive failures; the service then creates another job.
const RESTARTS_MAX: u32 = crate::limits::RETRIES_MAX;

impl ServiceSpec {
    /// Sets namespace, owner and name of the job to those of the service, unless the job sets its own. Idempotent.
    pub fn fill(&mut self) {
        let job = &mut self.job;
        if job.namespace == DEFAULT {
            job.namespace.clone_from(&self.namespace);
        }
        if job.owner.is_none() {
            job.owner.clone_from(&self.owner);
        }
        if job.name == crate::spec::default_job_name() {
            job.name.clone_from(&self.name);
        }
    }

    /// Returns the spec of the jobs of the replicas.
    ///
    /// Their logs are rotated unless the template says otherwise: a replica runs for months.
    pub fn replica_job(&self) -> JobSpec {
        let log = self.job.log_policy();
        let log = LogPolicy { keep: log.keep.or(Some(LogKeep::Newest)), ..log };
        JobSpec {
            log: Some(Box::new(log)),
            priority_class: self.priority_class,
            retry: RetryPolicy {
                max_retries: RESTARTS_MAX,
                max_start_retries: RESTARTS_MAX,
                max_lost: RESTARTS_MAX,
                backoff: self.restart_backoff.clone(),
                ..RetryPolicy::default()
            },
            ..(*self.job).clone()
        }
    }

    /// Returns this spec with the template of another one: everything that [`Self::has_template_of`] compares.
    ///
    /// If the template has one replica on each worker, the result has neither `replicas` nor `scaling`.
    #[must_use]
    pub fn with_template_of(&self, other: &Self) -> Self {
        Self {
            job: other.job.clone(),
            restart_backoff: other.restart_backoff.clone(),
            priority_class: other.priority_class,
            per_worker: other.per_worker,
            replicas: self.replicas.filter(|_| !other.per_worker),
            scaling: self.scaling.clone().filter(|_| !other.per_worker),
            ..self.clone()
        }
    }

    /// Returns whether replicas with the template of `other` need not be replaced. Names, limits and the number of
    /// replicas do not belong to the template.
    pub fn has_template_of(&self, other: &Self) -> bool {
        self.job == other.job
            && self.restart_backoff == other.restart_backoff
            && self.priority_class == other.priority_class
            && self.per_worker == other.per_worker
    }

    /// Returns the desired number of replicas of a new service.
    pub fn first_replicas(&self) -> u32 {
        self.replicas.unwrap_or_else(|| self.scaling.as_ref().map_or(1, |scaling| scaling.min))
    }

    /// Returns whether users set the number of replicas, and neither workers nor automatic scaling do.
    pub fn has_fixed_replicas(&self) -> bool {
        !self.per_worker && self.scaling.is_none()
    }

    /// Returns the maximum number of desired replicas that Belfry makes unavailable.
    pub fn max_unavailable(&self) -> u32 {
        self.update.max_unavailable.max(u32::from(self.per_worker))
    }
}

/// Replica of a service that a job belongs to. Part of the fixed part of the job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReplicaOrigin {
    /// ID of the service.
    pub service: ServiceId,
    /// Name of the service.
    #[schema(value_type = String)]
    pub name: Arc<str>,
    /// Number of the revision that the job has its template from.
    pub revision: u64,
    /// Number of the replica, from 0. No two live replicas of a service have the same number.
    pub replica: u32,
}

/// Spec of a service as stored, with its revisions; written with every change by a user and every rollback.
#[derive(Debug, Clone, PartialEq)]
pub struct ServiceHead {
    /// Parsed spec, with the fields that jobs take from the service.
    pub spec: Arc<ServiceSpec>,
    /// The spec as JSON.
    pub body: Arc<str>,
    /// The newest revisions, in ascending order; the last one is the current one. Never empty, at most
    /// [`crate::limits::REVISIONS_MAX`].
    pub revisions: Vec<Arc<Revision>>,
}

/// A revision of a service: its spec at the time of a change of the template.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Revision {
    /// Number of the revision, from 1.
    pub number: u64,
    /// The spec as JSON.
    pub body: Arc<str>,
    /// Time at which the revision was created.
    pub created_at: Timestamp,
    /// Why the revision was created.
    pub cause: RevisionCause,
    /// Revision whose template this one repeats, for the cause `rolled_back`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollback_to: Option<u64>,
    /// User who requested the revision; empty for an automatic rollback.
    pub actor: Arc<str>,
    /// Whether the revision was rolled out completely.
    #[serde(default)]
    pub completed: bool,
}

/// Why a revision of a service was created.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RevisionCause {
    /// A user created the service or changed its template.
    Applied,
    /// A user restarted the service.
    Restarted,
    /// A user or a failed rollout returned to an earlier revision.
    RolledBack,
}

crate::status::words! { RevisionCause, "a cause of a revision", {
    Applied = "applied";
    Restarted = "restarted";
    RolledBack = "rolled_back";
} }

/// State of a service: everything that changes without a request of a user, and the desired number of replicas.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ServiceState {
    /// Whether the service is being deleted: its replicas are stopped, and then its row is deleted.
    #[serde(default)]
    pub deleting: bool,
    /// Version of the service; increases with every change by a user and is the value of the ETag.
    pub version: u64,
    /// Time at which the service was created.
    pub created_at: Timestamp,
    /// Time of the last change by a user.
    pub updated_at: Timestamp,
    /// Desired number of replicas.
    pub replicas: u32,
    /// Rollout of the current revision.
    pub rollout: Rollout,
    /// Last revision that was rolled out completely.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stable_revision: Option<u64>,
    /// Numbers of replicas.
    #[serde(default)]
    pub counts: ReplicaCounts,
    /// Last change of the number of replicas by automatic scaling.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scaled: Option<Box<ScalingChange>>,
    /// Why a metric of its automatic scaling has no value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scaling_problem: Option<Box<str>>,
}

/// Rollout of a revision: the replacement of the replicas of older revisions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Rollout {
    /// Number of the revision.
    pub revision: u64,
    /// Current status of the rollout.
    pub status: RolloutStatus,
    /// Whether a user has paused the rollout.
    #[serde(default)]
    pub paused: bool,
    /// Whether the canaries were promoted, or there are none.
    #[serde(default)]
    pub promoted: bool,
    /// Time at which the rollout started.
    pub started_at: Timestamp,
    /// Time from which the progress deadline counts: the last time at which a replica of the revision became available,
    /// or the start or resumption of the rollout.
    pub progressed_at: Timestamp,
    /// Highest number of available replicas of the revision so far. Only a higher number is progress.
    #[serde(default)]
    pub reached: u32,
    /// Time at which the rollout completed or failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
    /// Why the rollout failed, or which failed rollout it undoes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub reason: Option<Box<str>>,
}

statuses! {
    /// Status of a rollout.
    RolloutStatus, "a rollout" {
        /// Replicas are being started or replaced.
        Progressing = 0, "progressing";
        /// The canaries are available, and the rollout waits for a promotion.
        AwaitingPromotion = 1, "awaiting_promotion";
        /// All desired replicas have the revision and are available.
        Completed = 2, "completed";
        /// No replica of the revision became available within the progress deadline.
        Failed = 3, "failed";
    }
}

/// Numbers of replicas of a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct ReplicaCounts {
    /// Replicas that are not being stopped.
    pub live: u32,
    /// Replicas whose execution has started.
    pub running: u32,
    /// Replicas that have been healthy for `min_healthy`.
    pub available: u32,
    /// Replicas of the current revision.
    pub updated: u32,
    /// Replicas of the current revision that are available.
    pub updated_available: u32,
    /// Replicas that are being stopped.
    pub stopping: u32,
}
