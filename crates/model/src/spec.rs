//! What a user asks for: the spec of a job.
//!
//! One serde model serves JSON, YAML, the API and the store. Every field but `run` has a default that
//! never changes; [what is kept](JobSpec::compact_json) leaves defaults out, and the API shows them
//! all. Unknown fields are refused. What a spec must hold
//! beyond its types is in [`crate::validate`].

mod compact;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

pub use compact::{Summary, name_in};

use crate::quantity::{Bytes, Millicores};
use crate::time::{Duration, Timestamp};

/// The namespace and the queue of whoever names none.
pub const DEFAULT: &str = "default";

fn default_name() -> String {
    DEFAULT.to_owned()
}

pub(crate) fn default_priority() -> u8 {
    50
}

fn default_grace() -> Duration {
    Duration::from_secs(10)
}

/// One unit of work that was asked for.
///
/// `run` is the only field without a default.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct JobSpec {
    /// What people call it; need not be unique. Letters, digits, `-`, `_` and `.`.
    #[serde(default = "default_job_name")]
    pub name: String,
    /// The tenant that it belongs to.
    #[serde(default = "default_name")]
    pub namespace: String,
    /// Who answers for it; the submitter where nobody is named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Free words to find and group jobs by.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// The queue where it waits.
    #[serde(default = "default_name")]
    pub queue: String,
    /// 0 (last) to 100 (first) within its queue.
    #[serde(default = "default_priority")]
    pub priority: u8,
    /// Not before this time; at once where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_at: Option<Timestamp>,
    /// How long after `run_at` (or submission) its first execution may still start; then it expires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_deadline: Option<Duration>,
    /// What to run.
    pub run: Run,
    /// Files to fetch before it runs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inputs: Vec<InputFile>,
    /// Files to store after it succeeded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outputs: Vec<OutputFile>,
    /// What it needs, and what it may use at most.
    #[serde(default)]
    pub resources: Resources,
    /// Which workers may run it. All must hold.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub constraints: Vec<Constraint>,
    /// Which of the workers that fit is taken.
    #[serde(default)]
    pub placement: Placement,
    /// When and how often a failed execution is followed by another.
    #[serde(default)]
    pub retry: RetryPolicy,
    /// The longest one execution may run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Duration>,
    /// Between SIGTERM and SIGKILL, on a timeout and on a cancel.
    #[serde(default = "default_grace")]
    pub grace: Duration,
    /// What is promised when a worker is lost.
    #[serde(default)]
    pub delivery: Delivery,
    /// A bound on how many jobs with the same key run at the same time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<Concurrency>,
    /// A second submission with the same key answers with the first one's job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
    /// How long it is kept once it ended; the server's default where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retention: Option<Duration>,
}

/// The name of a job that was given none.
const JOB: &str = "job";

pub(crate) fn default_job_name() -> String {
    JOB.to_owned()
}

impl JobSpec {
    /// A job that runs `run` with every default.
    pub fn new(run: Run) -> Self {
        Self {
            name: default_job_name(),
            namespace: default_name(),
            owner: None,
            labels: BTreeMap::new(),
            queue: default_name(),
            priority: default_priority(),
            run_at: None,
            start_deadline: None,
            run,
            inputs: Vec::new(),
            outputs: Vec::new(),
            resources: Resources::default(),
            constraints: Vec::new(),
            placement: Placement::default(),
            retry: RetryPolicy::default(),
            timeout: None,
            grace: default_grace(),
            delivery: Delivery::default(),
            concurrency: None,
            idempotency_key: None,
            retention: None,
        }
    }

    /// A job that runs one command with every default.
    pub fn command<I: IntoIterator<Item = S>, S: Into<String>>(args: I) -> Self {
        Self::new(Run::Process(ProcessRun {
            command: args.into_iter().map(Into::into).collect(),
            ..ProcessRun::default()
        }))
    }
}

/// A runtime and what it is to run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Run {
    /// A process of the worker's operating system.
    Process(ProcessRun),
}

impl Run {
    /// The runtime's name, as workers list it among their capabilities.
    pub fn runtime(&self) -> &'static str {
        match self {
            Self::Process(_) => "process",
        }
    }
}

/// A process: a command, or a script and its interpreter.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ProcessRun {
    /// The program and its arguments, given to it as they are: no shell reads them.
    /// Either this or `script`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// A script; it is written to a file that the interpreter runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub script: Option<String>,
    /// What runs the script, with its arguments; `["/bin/sh"]` where absent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub interpreter: Vec<String>,
    /// Added to a clean environment. Names are `[A-Za-z_][A-Za-z0-9_]*`; those that the loader or
    /// Belfry read (`LD_*`, `BELFRY_*`) are refused.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Where it starts; its own temporary folder where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub working_directory: Option<String>,
    /// What it reads on its standard input; nothing where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdin: Option<String>,
}

/// A file that is fetched before the run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct InputFile {
    /// `NAME` (its newest version), or `NAME@sha256:HEX`.
    pub artifact: String,
    /// Where to put it, relative to the execution's folder.
    pub path: String,
    /// Whether it may be executed.
    #[serde(default)]
    pub executable: bool,
}

/// A file that is stored after a run that succeeded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct OutputFile {
    /// The name of the artifact that gets a new version.
    pub artifact: String,
    /// Where the task leaves it, relative to the execution's folder.
    pub path: String,
    /// Whether the job still succeeds without it.
    #[serde(default)]
    pub optional: bool,
}

/// What a job needs (for placement), and what it may use at most (enforced on the worker).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Resources {
    /// CPU set aside for it; 100m where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Millicores>,
    /// Memory set aside for it; 64MiB where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Bytes>,
    /// Named things that workers declare, such as `gpu: 1`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub custom: BTreeMap<String, u64>,
    /// What it may use at most; unbounded where absent.
    #[serde(default, skip_serializing_if = "Limits::is_none")]
    pub limits: Limits,
}

impl Resources {
    /// CPU set aside where a job names none.
    pub const CPU_DEFAULT: Millicores = Millicores(100);
    /// Memory set aside where a job names none.
    pub const MEMORY_DEFAULT: Bytes = Bytes(64 << 20);

    /// CPU set aside for it.
    pub fn cpu_request(&self) -> Millicores {
        self.cpu.unwrap_or(Self::CPU_DEFAULT)
    }

    /// Memory set aside for it.
    pub fn memory_request(&self) -> Bytes {
        self.memory.unwrap_or(Self::MEMORY_DEFAULT)
    }
}

/// Hard bounds, kept by the operating system.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// Killed when it uses more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Bytes>,
    /// Slowed down when it uses more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Millicores>,
    /// The most processes and threads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pids: Option<u32>,
    /// What happens on a worker that cannot enforce them.
    #[serde(default)]
    pub enforcement: Enforcement,
}

impl Limits {
    fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

/// What a limit means where the worker's system cannot enforce it.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Enforcement {
    /// The job is not placed there.
    #[default]
    Required,
    /// The job runs there without it.
    BestEffort,
}

/// One condition on the labels of a worker.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Constraint {
    /// The label.
    pub label: String,
    /// How its value is compared.
    #[serde(default)]
    pub operator: Operator,
    /// With what; none for `exists` and `absent`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<String>,
}

impl Constraint {
    /// Whether a worker with these labels satisfies it.
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

/// How a constraint compares.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Operator {
    /// The label has one of the values.
    #[default]
    In,
    /// The label is absent or has another value.
    NotIn,
    /// The label is there, with any value.
    Exists,
    /// The label is not there.
    Absent,
}

/// Which of the workers that fit is taken.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Placement {
    /// The fullest one, so that whole machines stay free for big jobs.
    Pack,
    /// The emptiest one.
    #[default]
    Spread,
}

/// When and how often a failed execution is followed by another.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RetryPolicy {
    /// Tries after the first that ran and failed.
    pub max_retries: u32,
    /// Tries after the first that could not even be started.
    pub max_start_retries: u32,
    /// How long to wait before each.
    pub backoff: Backoff,
    /// Only these exit codes are tried again, where any are named.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub retry_exit_codes: Vec<i32>,
    /// These exit codes are never tried again.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub final_exit_codes: Vec<i32>,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            max_retries: 0,
            max_start_retries: 3,
            backoff: Backoff::default(),
            retry_exit_codes: Vec::new(),
            final_exit_codes: Vec::new(),
        }
    }
}

/// The wait before retry `k` (from 1): `min(max, initial × factor^(k−1))`, ± `jitter` of itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Backoff {
    /// Before the first retry.
    pub initial: Duration,
    /// By how much each is longer than the one before; at least 1.
    pub factor: f64,
    /// The longest.
    pub max: Duration,
    /// The part of the wait, from 0 to 1, by which it is drawn shorter or longer.
    pub jitter: f64,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { initial: Duration::from_secs(1), factor: 2.0, max: Duration::from_secs(300), jitter: 0.2 }
    }
}

/// What is promised when a worker is lost.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Delivery {
    /// Runs until it succeeds or its retries end.
    #[default]
    AtLeastOnce,
    /// Never started twice; ends `failed` with cause `outcome_unknown` if its worker is lost.
    AtMostOnce,
    /// No two executions at the same time, one accepted result; tried again only once the lost
    /// execution is known to be over.
    ExactlyOnce,
}

/// A bound on how many jobs of one key run at the same time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Concurrency {
    /// The key; jobs of one namespace with the same key share the bound.
    pub key: String,
    /// How many may run at once.
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
    fn a_spec_needs_nothing_but_what_to_run() {
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
