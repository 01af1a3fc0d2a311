//! Specs of jobs, as a user writes them.
//!
//! One serde model serves JSON, YAML, the API and the store. Every field except `run` has a default. A default never
//! changes, because [stored specs](JobSpec::compact_json) omit the fields that have their default. The API returns
//! all fields.
//!
//! Unknown fields are refused. [`crate::validate`] checks everything beyond the types.

mod compact;
mod container;
mod health;
mod hook;
mod http;
mod log;
mod requires;
mod sandbox;
mod secret;
mod sidecar;
mod spread;
mod stop_signal;
mod volume;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

pub use compact::{Summary, name_in};
pub use container::{ContainerRun, PullPolicy};
pub use health::{
    CheckedPort, ExecutionHealth, GrpcCheck, HealthCheck, HealthChecks, HealthStatus, HttpCheck, Port,
    TcpCheck,
};
pub use hook::Hook;
pub use http::{HttpMethod, HttpPoll, HttpRun, StatusRange};
pub use log::{LogKeep, LogPolicy};
pub use requires::RequiredService;
pub use sandbox::{Sandbox, SandboxLevel, SandboxNetwork};
pub use secret::SecretReference;
pub use sidecar::{Sidecar, SidecarCheck};
pub use spread::JobSpread;
pub use stop_signal::StopSignal;
pub use volume::Volume;

use crate::id::JobId;
use crate::quantity::{Bytes, Millicores};
use crate::status::JobStatus;
use crate::time::{Duration, Timestamp};

/// Default name of a namespace or queue.
pub const DEFAULT: &str = "default";

fn default_name() -> String {
    DEFAULT.to_owned()
}

pub(crate) fn default_priority() -> u8 {
    50
}

fn is_default_stop_signal(signal: &StopSignal) -> bool {
    *signal == StopSignal::default()
}

fn default_grace() -> Duration {
    Duration::from_secs(10)
}

/// A job: one command or script to execute, with its resources, placement and retries.
///
/// Only `run` is required.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct JobSpec {
    /// Name of the job; need not be unique. 1 to 63 letters, digits, `-`, `_` or `.`, starting with a letter or digit
    /// [default: `job`].
    #[serde(default = "default_job_name")]
    pub name: String,
    /// Namespace (tenant) of the job [default: `default`].
    #[serde(default = "default_name")]
    pub namespace: String,
    /// Owner of the job: the person or team responsible for it, at most 128 bytes [default: the user who submits the
    /// job].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Labels of the job, for filtering and grouping; at most 64. A key has the form `key` or `prefix/key`, such as
    /// `team` or `app.kubernetes.io/name`, and may have letters of other scripts. Keys and values have at most 63
    /// characters.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Queue in which the job waits for a worker [default: `default`].
    #[serde(default = "default_name")]
    pub queue: String,
    /// Priority class of the job. Jobs of a higher class start first, in all queues, and preempt jobs of a lower class if
    /// no worker has enough free capacity [default: `normal`].
    #[serde(default)]
    pub priority_class: PriorityClass,
    /// Priority within the queue and the priority class, from 0 to 100; jobs with a higher priority start first [default:
    /// 50].
    #[serde(default = "default_priority")]
    pub priority: u8,
    /// Earliest start time of the job, at most 3,660 days in the future [default: the time of submission].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_at: Option<Timestamp>,
    /// Start deadline: maximum delay of the first execution after `run_at`, or after the submission if `run_at` is not
    /// set. A job that has not started by then ends as `expired` [default: no deadline].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_deadline: Option<Duration>,
    /// Completion deadline: time by which the job must have ended, over its waiting, all its executions and the delays
    /// between them. What happens to a job that has not ended by then is its `action` [default: no deadline].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finish_by: Option<FinishBy>,
    /// Upstream jobs: the job starts only after they have ended as their conditions require. Otherwise it is cancelled.
    /// At most 100, in the namespace of the job.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<UpstreamJob>,
    /// Services that the job requires: each execution starts only while all of them have enough available replicas. A
    /// running execution continues if a service becomes unavailable. The task can look up their endpoints. At most 16.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requires: Vec<RequiredService>,
    /// What the job runs, under the name of its runtime: `process`, `container` or `http`.
    pub run: Run,
    /// Artifacts that the worker downloads before each execution; at most 100.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inputs: Vec<InputFile>,
    /// Files that the worker stores as artifacts after the job succeeds; at most 100.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outputs: Vec<OutputFile>,
    /// Network ports that the task listens on; at most 16. The worker passes their numbers in environment variables.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<Port>,
    /// Health checks of each execution, which the worker runs beside the task [default: no checks].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health: Option<Box<HealthChecks>>,
    /// Volumes that the job needs: named directories of its worker; at most 16. Only workers that have all of them run the
    /// job. The worker passes their paths in environment variables.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<Volume>,
    /// Values of secrets that the task gets, in environment variables or in files; at most 64. The secrets belong to the
    /// namespace of the job, and exist when the job is submitted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<SecretReference>,
    /// Resource requests and resource limits of the job.
    #[serde(default)]
    pub resources: Resources,
    /// Conditions on the labels of workers; the job runs only on workers that satisfy all of them. At most 32 [default:
    /// all workers are eligible].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub constraints: Vec<Constraint>,
    /// Choice among the eligible workers: the least loaded (`spread`) or the most loaded (`pack`) [default: `spread`].
    #[serde(default)]
    pub placement: Placement,
    /// Distribution of running jobs with the same name over workers [default: they may run on the same worker; replicas of
    /// a service prefer different workers].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spread: Option<Box<JobSpread>>,
    /// Retry policy: number and delay of further attempts after a failure.
    #[serde(default)]
    pub retry: RetryPolicy,
    /// Timeout of each execution; an execution that exceeds the timeout is stopped and fails. At most 366 days
    /// [default: no timeout].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Duration>,
    /// Grace period between the stop signal and SIGKILL when an execution times out or is cancelled; at most 1h
    /// [default: `10s`].
    #[serde(default = "default_grace")]
    pub grace: Duration,
    /// Stop signal: the signal that asks the task to stop [default: `SIGTERM`].
    #[serde(default, skip_serializing_if = "is_default_stop_signal")]
    pub stop_signal: StopSignal,
    /// Size and part of the log of each execution that are kept [default: the first and the last 32 MiB; for replicas of
    /// services, the newest 64 MiB].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<Box<LogPolicy>>,
    /// Delivery guarantee: whether the job is executed again after its worker is lost [default: `at_least_once`].
    #[serde(default)]
    pub delivery: Delivery,
    /// Limit of concurrent jobs with the same concurrency key [default: unlimited].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<Concurrency>,
    /// Idempotency key, 1 to 255 bytes. A further submission with the same key creates no job and returns the first
    /// job. The same key with another spec is rejected. The server keeps a key for the setting
    /// `server.key_retention`, by default `7d`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
    /// Retention of the job after it has ended; the server then deletes the job. At most 3,660 days [default: the
    /// setting `server.retention`, `30d`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retention: Option<Duration>,
}

/// Default name of a job.
const JOB: &str = "job";

pub(crate) fn default_job_name() -> String {
    JOB.to_owned()
}

impl JobSpec {
    /// Returns a job that runs `run`; all other fields have their defaults.
    pub fn new(run: Run) -> Self {
        Self {
            name: default_job_name(),
            namespace: default_name(),
            owner: None,
            labels: BTreeMap::new(),
            queue: default_name(),
            priority_class: PriorityClass::default(),
            priority: default_priority(),
            run_at: None,
            start_deadline: None,
            finish_by: None,
            after: Vec::new(),
            requires: Vec::new(),
            run,
            inputs: Vec::new(),
            outputs: Vec::new(),
            ports: Vec::new(),
            health: None,
            volumes: Vec::new(),
            secrets: Vec::new(),
            resources: Resources::default(),
            constraints: Vec::new(),
            placement: Placement::default(),
            spread: None,
            retry: RetryPolicy::default(),
            timeout: None,
            grace: default_grace(),
            stop_signal: StopSignal::default(),
            log: None,
            delivery: Delivery::default(),
            concurrency: None,
            idempotency_key: None,
            retention: None,
        }
    }

    /// Returns how much of the log of each execution is kept.
    pub fn log_policy(&self) -> LogPolicy {
        self.log.as_deref().copied().unwrap_or_default()
    }

    /// Returns a job that runs one command; all other fields have their defaults.
    pub fn command<I: IntoIterator<Item = S>, S: Into<String>>(args: I) -> Self {
        Self::new(Run::Process(ProcessRun {
            command: args.into_iter().map(Into::into).collect(),
            ..ProcessRun::default()
        }))
    }
}

/// Priority class of a job: its order before the jobs of other classes, and whether it preempts them.
///
/// A job that finds no worker with enough free capacity preempts jobs of lower classes: these are stopped with their
/// grace period, return to their queues, and start again later. A preemption costs no retry.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum PriorityClass {
    /// Work that can wait or be repeated. It uses the capacity that no other job needs.
    Preemptible,
    /// Ordinary work. It preempts only preemptible jobs.
    #[default]
    Normal,
    /// Work that must start on time. It preempts normal and preemptible jobs, and is never preempted.
    High,
}

crate::status::words! { PriorityClass, "a priority class", {
    Preemptible = "preemptible";
    Normal = "normal";
    High = "high";
} }

/// What a job runs, under the name of its runtime. Only workers with the runtime run the job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
#[expect(
    clippy::large_enum_variant,
    reason = "nearly all jobs are processes, which the box of another runtime need not slow"
)]
pub enum Run {
    /// Runs an operating-system process on the worker.
    Process(ProcessRun),
    /// Runs a container of an image in the container engine of the worker.
    Container(Box<ContainerRun>),
    /// Sends an HTTP request.
    Http(Box<HttpRun>),
}

impl Run {
    /// Name of the runtime [`Self::Process`].
    pub const PROCESS: &'static str = "process";
    /// Name of the runtime [`Self::Container`].
    pub const CONTAINER: &'static str = "container";
    /// Name of the runtime [`Self::Http`].
    pub const HTTP: &'static str = "http";

    /// Returns the name of the runtime, as in the capabilities of workers.
    pub fn runtime(&self) -> &'static str {
        match self {
            Self::Process(_) => Self::PROCESS,
            Self::Container(_) => Self::CONTAINER,
            Self::Http(_) => Self::HTTP,
        }
    }

    /// Returns the process, if the runtime is `process`.
    pub fn as_process(&self) -> Option<&ProcessRun> {
        match self {
            Self::Process(process) => Some(process),
            _ => None,
        }
    }

    /// Returns the process, if the runtime is `process`.
    pub fn as_process_mut(&mut self) -> Option<&mut ProcessRun> {
        match self {
            Self::Process(process) => Some(process),
            _ => None,
        }
    }
}

/// An operating-system process: exactly one of `command` and `script`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ProcessRun {
    /// Program and arguments, at most 1,000, passed unchanged and without a shell. Required if `script` is not set.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// Text of a script, which the worker writes to a file and runs with `interpreter`. Required if `command` is not
    /// set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub script: Option<String>,
    /// Interpreter of `script`, with its arguments [default: `["/bin/sh"]`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub interpreter: Vec<String>,
    /// Environment variables, added to a clean environment. Names match `[A-Za-z_][A-Za-z0-9_]*`; `BELFRY_*` and
    /// `LD_*` are reserved. At most 1,000 variables of 32 KiB each.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Working directory of the process [default: the temporary directory of the execution].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub working_directory: Option<String>,
    /// Standard input of the process [default: empty].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdin: Option<String>,
    /// What the process can see and do on the worker [default: as any process of its user].
    #[serde(default, skip_serializing_if = "Sandbox::is_none")]
    pub sandbox: Sandbox,
    /// Programs that run beside the process, for its duration; at most 8. They start in their order, and stop in the reverse
    /// order after the process.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sidecars: Vec<Sidecar>,
    /// Commands that run one after the other before the process; at most 16. If one fails, the others and the process do
    /// not run, and the execution fails with its exit code.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pre_start: Vec<Hook>,
    /// Commands that run one after the other when the process has exited, also after a failure or a stop, and after a failed
    /// `pre_start`; at most 16. The exit code of the process is in `BELFRY_EXIT_CODE`. A failure is logged and changes no
    /// result. After a stop, they share the grace period of the job; a task that is killed runs none of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub post_stop: Vec<Hook>,
}

/// An artifact that the worker downloads before an execution.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct InputFile {
    /// Artifact reference: `NAME` for the newest version, or `NAME@sha256:HEX` for one version. In a workflow run,
    /// `NAME` is the version that an earlier step stored in the same run, if any.
    pub artifact: String,
    /// Path of the downloaded file, relative to the directory of the execution and inside it; at most 1,024 bytes.
    pub path: String,
    /// Whether the downloaded file is executable [default: `false`].
    #[serde(default)]
    pub executable: bool,
}

/// A file that the worker stores as an artifact after an execution succeeds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct OutputFile {
    /// Name of the artifact; the file becomes a new version of it.
    pub artifact: String,
    /// Path of the file that the task writes, relative to the directory of the execution and inside it; at most 1,024
    /// bytes.
    pub path: String,
    /// Whether the job succeeds even if the file does not exist [default: `false`].
    #[serde(default)]
    pub optional: bool,
}

/// Resources that a job requests, for placement, and limits that the worker enforces.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Resources {
    /// CPU request: CPU allocated to the job on its worker, for example `500m` or `2` cores [default: `100m`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Millicores>,
    /// Memory request: memory allocated to the job on its worker, for example `256MiB` [default: `64MiB`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Bytes>,
    /// Custom resources allocated to the job on its worker, for example `gpu: 1`; at most 16. Each worker declares
    /// how much it has of each.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub custom: BTreeMap<String, u64>,
    /// Limits of an execution, enforced by the worker [default: unlimited].
    #[serde(default, skip_serializing_if = "Limits::is_none")]
    pub limits: Limits,
}

impl Resources {
    /// Default CPU request of a job.
    pub const CPU_DEFAULT: Millicores = Millicores(100);
    /// Default memory request of a job.
    pub const MEMORY_DEFAULT: Bytes = Bytes(64 << 20);

    /// Returns the CPU request, or the default if the job sets none.
    pub fn cpu_request(&self) -> Millicores {
        self.cpu.unwrap_or(Self::CPU_DEFAULT)
    }

    /// Returns the memory request, or the default if the job sets none.
    pub fn memory_request(&self) -> Bytes {
        self.memory.unwrap_or(Self::MEMORY_DEFAULT)
    }
}

/// Resource limits of an execution, enforced by the operating system of the worker.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// Memory limit; the execution is killed when it exceeds the limit. At least `1MiB`, and at least the requested
    /// memory [default: unlimited].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Bytes>,
    /// CPU limit; the execution is throttled when it reaches the limit. At least `10m` [default: unlimited].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Millicores>,
    /// Maximum number of processes and threads of the execution; at least 1 [default: unlimited].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pids: Option<u32>,
    /// Whether a worker that cannot enforce the limits may run the job [default: `required`].
    #[serde(default)]
    pub enforcement: Enforcement,
}

impl Limits {
    fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

/// Treatment of a worker that cannot enforce the resource limits of a job.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Enforcement {
    /// The worker is not eligible for the job.
    #[default]
    Required,
    /// The worker is eligible; limits that it cannot enforce do not apply.
    BestEffort,
}

/// Completion deadline of a job: exactly one of `at` and `after`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FinishBy {
    /// Deadline as a time, at most 3,660 days in the future. Not allowed in schedules and workflows. Required if `after`
    /// is not set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
    /// Deadline as a duration, at most 3,660 days. It counts from `run_at`, or from the submission if `run_at` is not set.
    /// For the job of a schedule, it counts from the scheduled time, and must be longer than the jitter; for a firing that
    /// is caught up, backfilled or retried, and for the job of a workflow, from the creation of the job. Required if `at`
    /// is not set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<Duration>,
    /// What happens to a job that has not ended by the deadline [default: `fail`].
    #[serde(default)]
    pub action: FinishAction,
}

/// What happens to a job that has not ended by its completion deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum FinishAction {
    /// The job is stopped, with its grace period, and ends as `failed`.
    #[default]
    Fail,
    /// The job is stopped, with its grace period, and ends as `cancelled`.
    Cancel,
    /// The job continues. Only the event `job.overdue` reports the deadline.
    Report,
}

crate::status::words! { FinishAction, "an action", {
    Fail = "fail";
    Cancel = "cancel";
    Report = "report";
} }

/// A job that must end before another one starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UpstreamJob {
    /// ID of the upstream job.
    pub job: JobId,
    /// How the upstream job must end [default: `success`].
    #[serde(default)]
    pub condition: UpstreamCondition,
}

/// How an upstream job must end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum UpstreamCondition {
    /// The job succeeds.
    #[default]
    Success,
    /// The job fails or expires.
    Failure,
    /// The job ends, with any status.
    Any,
}

crate::status::words! { UpstreamCondition, "a condition", {
    Success = "success";
    Failure = "failure";
    Any = "any";
} }

impl UpstreamCondition {
    /// Returns whether a job that ended with this status satisfies the condition.
    pub fn is_satisfied_by(self, status: JobStatus) -> bool {
        match self {
            Self::Success => status == JobStatus::Succeeded,
            Self::Failure => matches!(status, JobStatus::Failed | JobStatus::Expired),
            Self::Any => status.is_final(),
        }
    }
}

/// A condition on one label of a worker.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Constraint {
    /// Key of the label.
    pub label: String,
    /// Comparison of the label with `values` [default: `in`].
    #[serde(default)]
    pub operator: Operator,
    /// Values that the label is compared with, at most 64. Required for `in` and `not_in`; must be empty for `exists`
    /// and `absent`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<String>,
}

impl Constraint {
    /// Returns whether a worker with these labels satisfies the constraint.
    pub fn holds(&self, labels: &BTreeMap<String, String>) -> bool {
        let value = labels.get(&self.label);
        match self.operator {
            Operator::In => value.is_some_and(|v| self.values.contains(v)),
            Operator::NotIn => value.is_none_or(|v| !self.values.contains(v)),
            Operator::Exists => value.is_some(),
            Operator::Absent => value.is_none(),
        }
    }
}

/// Operator of a constraint on worker labels.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Operator {
    /// The label has one of the values.
    #[default]
    In,
    /// The label has none of the values, or the worker does not have the label.
    NotIn,
    /// The worker has the label, with any value.
    Exists,
    /// The worker does not have the label.
    Absent,
}

/// Choice among the workers that are eligible for a job.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Placement {
    /// The most loaded eligible worker, which keeps whole machines free for large jobs.
    Pack,
    /// The least loaded eligible worker.
    #[default]
    Spread,
}

/// Retry policy of a job: number and delay of retries, and the exit codes that are retried.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RetryPolicy {
    /// Maximum number of retries after executions that started and failed, from 0 to 1,000 [default: 0].
    pub max_retries: u32,
    /// Maximum number of retries after executions that could not be started, from 0 to 1,000 [default: 3].
    pub max_start_retries: u32,
    /// Maximum number of retries after executions that were lost with their worker, or that their worker interrupted, from
    /// 0 to 1,000 [default: 5]. A job that is lost more often ends as `failed` with the cause `worker_lost`. Drains do
    /// not count.
    #[serde(skip_serializing_if = "is_default_max_lost")]
    pub max_lost: u32,
    /// Delay before each retry.
    pub backoff: Backoff,
    /// Exit codes that are retried, at most 256. If set, a failure without an exit code, for example a timeout, is not
    /// retried [default: every failure is retried, except those in `final_exit_codes`].
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub retry_exit_codes: Vec<i32>,
    /// Exit codes that are never retried, at most 256 [default: none].
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub final_exit_codes: Vec<i32>,
}

/// Default of [`RetryPolicy::max_lost`]. Not serialized, so that the hashes of requests and specs from before stay.
const MAX_LOST: u32 = 5;

fn is_default_max_lost(max_lost: &u32) -> bool {
    *max_lost == MAX_LOST
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            max_retries: 0,
            max_start_retries: 3,
            max_lost: MAX_LOST,
            backoff: Backoff::default(),
            retry_exit_codes: Vec::new(),
            final_exit_codes: Vec::new(),
        }
    }
}

/// Delay before each retry: exponential, or a list. The exponential delay before retry `k`, counted from 1, is
/// `min(max, initial × factor^(k−1))`. Either is varied by `jitter`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Backoff {
    /// Delay before the first retry; must not exceed `max` [default: `1s`].
    pub initial: Duration,
    /// Growth factor of the delay from one retry to the next, from 1 to 100 [default: 2].
    pub factor: f64,
    /// Maximum delay before a retry, not counting `jitter`; at most 24h [default: `5m`].
    pub max: Duration,
    /// Random variation of each delay, as a fraction from 0 to 1; with 0.2, a delay of 10s becomes 8s to 12s [default:
    /// 0.2].
    pub jitter: f64,
    /// Delays before the first, second, … retry, for example `[1m, 5m, 10m]`; further retries use the last one. At most
    /// 100, each at most 24h. Replaces `initial`, `factor` and `max`, which must then not be set [default: none].
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub delays: Vec<Duration>,
}

impl Default for Backoff {
    fn default() -> Self {
        Self {
            initial: Duration::from_secs(1),
            factor: 2.0,
            max: Duration::from_secs(300),
            jitter: 0.2,
            delays: Vec::new(),
        }
    }
}

/// Delivery guarantee of a job when its worker is lost.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Delivery {
    /// The job is executed until it succeeds or has no retries left; a lost execution is replaced by a new one.
    #[default]
    AtLeastOnce,
    /// The job is never started twice. If its worker is lost and does not return in time with the result, the job
    /// ends as `failed` with the cause `outcome_unknown`.
    AtMostOnce,
    /// Executions of the job never overlap, and one result is accepted. After a worker is lost, the job is executed
    /// again only when the tasks of that worker are certainly frozen.
    ExactlyOnce,
}

/// Limit of concurrent jobs with the same key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Concurrency {
    /// Concurrency key, 1 to 255 bytes. Jobs of one namespace with the same key share the limit, across all queues.
    pub key: String,
    /// Maximum number of concurrent jobs with the key, from 1 to 1,000,000 [default: 1].
    #[serde(default = "one")]
    pub limit: u32,
}

fn one() -> u32 {
    1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spec_requires_only_run() {
        let spec: JobSpec = serde_json::from_str(r#"{"run": {"process": {"command": ["true"]}}}"#).unwrap();
        assert_eq!(spec, JobSpec::command(["true"]));
    }

    #[test]
    fn an_unknown_field_is_refused_at_every_depth() {
        for text in [
            r#"{"run": {"process": {"command": ["true"]}}, "nmae": "x"}"#,
            r#"{"run": {"process": {"command": ["true"], "uid": 0}}}"#,
            r#"{"run": {"process": {"command": ["true"]}}, "retry": {"max": 3}}"#,
        ] {
            assert!(serde_json::from_str::<JobSpec>(text).unwrap_err().to_string().contains("unknown field"));
        }
    }

    #[test]
    fn a_stored_spec_reads_back_the_same() {
        let mut spec = JobSpec::command(["echo", "hi"]);
        spec.resources.cpu = Some(Millicores(1500));
        spec.resources.limits.memory = Some(Bytes(1 << 30));
        spec.timeout = Some(Duration::from_secs(90));
        spec.concurrency = Some(Concurrency { key: "db".into(), limit: 2 });
        let text = serde_json::to_string(&spec).unwrap();
        assert_eq!(serde_json::from_str::<JobSpec>(&text).unwrap(), spec);
    }

    #[test]
    fn a_constraint_compares_labels() {
        let labels = BTreeMap::from([("zone".to_owned(), "a".to_owned())]);
        let holds = |operator, values: &[&str]| {
            let values = values.iter().map(|&v| v.to_owned()).collect();
            Constraint { label: "zone".into(), operator, values }.holds(&labels)
        };
        assert!(holds(Operator::In, &["a", "b"]) && !holds(Operator::In, &["b"]));
        assert!(holds(Operator::NotIn, &["b"]) && !holds(Operator::NotIn, &["a"]));
        assert!(holds(Operator::Exists, &[]) && !holds(Operator::Absent, &[]));
    }
}
