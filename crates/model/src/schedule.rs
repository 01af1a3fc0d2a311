//! Specs of schedules, as a user writes them.
//!
//! A schedule has rules of time ([`Timing`]), policies for overlapping and missed firings, and an [`Action`]: a job
//! or a call of a workflow. Files and requests have the action as exactly one of the fields `job` and `workflow`; a
//! private type converts between the two forms.
//!
//! [`crate::validate`] checks names, limits and the fields of the job. The `timetable` crate checks the rules. The
//! engine applies the policies.

mod guarantee;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::spec::{DEFAULT, JobSpec};
use crate::time::Duration;
use crate::timing::Timing;
use crate::workflow::Call;

pub use guarantee::{Contradiction, Guarantee};

fn default_namespace() -> String {
    DEFAULT.to_owned()
}

/// A schedule: creates a job or a workflow run at each of its scheduled times.
///
/// Only `name` and the action are required. A schedule without rules fires only when it is triggered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "ScheduleText", into = "ScheduleText")]
pub struct ScheduleSpec {
    /// Name of the schedule, unique in its namespace. 1 to 63 letters, digits, `-`, `_` or `.`, starting with a
    /// letter or digit.
    pub name: String,
    /// Namespace (tenant) of the schedule and of its jobs and runs [default: `default`].
    pub namespace: String,
    /// Owner of the schedule: the person or team responsible for it, at most 128 bytes. Also the owner of its jobs,
    /// unless the job sets one.
    pub owner: Option<String>,
    /// Labels of the schedule, for filtering and grouping; at most 64. Syntax: that of the labels of a job.
    pub labels: BTreeMap<String, String>,
    /// Description of the schedule, at most 1,000 bytes.
    pub description: Option<String>,
    /// Rules of the scheduled times, with filters and time zone [default: no rules; the schedule fires only when it is
    /// triggered].
    pub timing: Timing,
    /// Jitter: delays each firing, so that many schedules do not fire at the same moment [default: no delay].
    pub jitter: Option<Jitter>,
    /// Maximum number of firings, at least 1; the schedule then becomes `completed`. Skipped, manual and backfill
    /// firings do not count [default: unlimited].
    pub max_firings: Option<u64>,
    /// Guarantee of each scheduled time. Sets `overlap`, `missed` and the `delivery` of the job, as far as they have their
    /// defaults; a contradiction causes a warning [default: no guarantee; each of them has its own default].
    pub guarantee: Option<Guarantee>,
    /// Overlap policy: treatment of a firing while earlier runs of the schedule have not ended.
    pub overlap: Overlap,
    /// Policy for missed firings: scheduled times that passed while no server could process them.
    pub missed: Missed,
    /// Start deadline: maximum delay between the scheduled time and the start of the job or run. A firing that cannot
    /// start by then is skipped, with the outcome `skipped_deadline` [default: no deadline].
    pub start_deadline: Option<Duration>,
    /// Number of consecutive failed runs after which the schedule is paused, at least 1. Manual runs and backfills do
    /// not count [default: never].
    pub pause_after_failures: Option<u32>,
    /// Time before each firing from which resources for the job are reserved on a worker; at most 24h. Not allowed with
    /// `workflow` [default: no reservation].
    pub reserve_ahead: Option<Duration>,
    /// Expected start delay and duration of runs. A run that exceeds them is reported as late or stuck; nothing else
    /// happens to it.
    pub expect: Expectation,
    /// Job or workflow run that each firing creates.
    pub action: Action,
}

/// Action of a schedule.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Creates a job.
    Job(Box<JobSpec>),
    /// Starts a run of a workflow.
    Workflow(Call),
}

/// A schedule: creates a job or a workflow run at each of its scheduled times.
///
/// Only `name` and exactly one of `job` and `workflow` are required. A schedule without rules fires only when it is
/// triggered.
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = ScheduleSpec)]
struct ScheduleText {
    /// Name of the schedule, unique in its namespace. 1 to 63 letters, digits, `-`, `_` or `.`, starting with a
    /// letter or digit.
    name: String,
    /// Namespace (tenant) of the schedule and of its jobs and runs [default: `default`].
    #[serde(default = "default_namespace")]
    namespace: String,
    /// Owner of the schedule: the person or team responsible for it, at most 128 bytes. Also the owner of its jobs,
    /// unless the job sets one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    owner: Option<String>,
    /// Labels of the schedule, for filtering and grouping; at most 64. Syntax: that of the labels of a job.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    labels: BTreeMap<String, String>,
    /// Description of the schedule, at most 1,000 bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    description: Option<String>,
    /// Rules of the scheduled times, with filters and time zone [default: no rules; the schedule fires only when it is
    /// triggered].
    #[serde(default)]
    timing: Timing,
    /// Jitter: delays each firing, so that many schedules do not fire at the same moment [default: no delay].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    jitter: Option<Jitter>,
    /// Maximum number of firings, at least 1; the schedule then becomes `completed`. Skipped, manual and backfill
    /// firings do not count [default: unlimited].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max_firings: Option<u64>,
    /// Guarantee of each scheduled time. Sets `overlap`, `missed` and the `delivery` of the job, as far as they have their
    /// defaults; a contradiction causes a warning [default: no guarantee; each of them has its own default].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    guarantee: Option<Guarantee>,
    /// Overlap policy: treatment of a firing while earlier runs of the schedule have not ended.
    #[serde(default)]
    overlap: Overlap,
    /// Policy for missed firings: scheduled times that passed while no server could process them.
    #[serde(default)]
    missed: Missed,
    /// Start deadline: maximum delay between the scheduled time and the start of the job or run. A firing that cannot
    /// start by then is skipped, with the outcome `skipped_deadline` [default: no deadline].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    start_deadline: Option<Duration>,
    /// Number of consecutive failed runs after which the schedule is paused, at least 1. Manual runs and backfills do
    /// not count [default: never].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pause_after_failures: Option<u32>,
    /// Time before each firing from which resources for the job are reserved on a worker; at most 24h. Not allowed with
    /// `workflow` [default: no reservation].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reserve_ahead: Option<Duration>,
    /// Expected start delay and duration of runs. A run that exceeds them is reported as late or stuck; nothing else
    /// happens to it.
    #[serde(default, skip_serializing_if = "Expectation::is_default")]
    expect: Expectation,
    /// Job that each firing creates. Its name, namespace and owner default to those of the schedule. `run_at`,
    /// `start_deadline` and `idempotency_key` must not be set, because the schedule sets them, nor `after`: use a
    /// workflow. Required if `workflow` is not set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    job: Option<Box<JobSpec>>,
    /// Workflow in the same namespace, of which each firing starts a run. Texts in its parameters can refer to the
    /// firing: `${{ firing.scheduled_for }}`, `firing.interval_start`, `firing.interval_end`, `firing.schedule` and
    /// `firing.cause`. Required if `job` is not set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    workflow: Option<Call>,
}

/// Builds one form of a schedule from the other: moves the fields that both have, and sets its own.
macro_rules! form {
    ($form:ident from $other:ident { $($own:ident),* }) => {
        $form {
            name: $other.name,
            namespace: $other.namespace,
            owner: $other.owner,
            labels: $other.labels,
            description: $other.description,
            timing: $other.timing,
            jitter: $other.jitter,
            max_firings: $other.max_firings,
            guarantee: $other.guarantee,
            overlap: $other.overlap,
            missed: $other.missed,
            start_deadline: $other.start_deadline,
            pause_after_failures: $other.pause_after_failures,
            reserve_ahead: $other.reserve_ahead,
            expect: $other.expect,
            $($own),*
        }
    };
}

impl TryFrom<ScheduleText> for ScheduleSpec {
    type Error = String;

    fn try_from(text: ScheduleText) -> Result<Self, String> {
        let action = match (text.job, text.workflow) {
            (Some(job), None) => Action::Job(job),
            (None, Some(call)) => Action::Workflow(call),
            _ => {
                let shown: String = text.name.chars().take(64).collect();
                return Err(format!("schedule `{shown}`: expected exactly one of `job` and `workflow`"));
            }
        };
        Ok(form!(Self from text { action }))
    }
}

impl From<ScheduleSpec> for ScheduleText {
    fn from(spec: ScheduleSpec) -> Self {
        let (job, workflow) = match spec.action {
            Action::Job(job) => (Some(job), None),
            Action::Workflow(call) => (None, Some(call)),
        };
        form!(Self from spec { job, workflow })
    }
}

impl utoipa::PartialSchema for ScheduleSpec {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::schema::Schema> {
        ScheduleText::schema()
    }
}

impl ToSchema for ScheduleSpec {
    fn schemas(schemas: &mut Vec<(String, utoipa::openapi::RefOr<utoipa::openapi::schema::Schema>)>) {
        ScheduleText::schemas(schemas);
    }
}

impl ScheduleSpec {
    /// Returns a schedule that creates `job` at the times of `timing`; all other fields have their defaults.
    pub fn new(name: impl Into<String>, timing: Timing, job: JobSpec) -> Self {
        Self::starting(name, timing, Action::Job(Box::new(job)))
    }

    /// Returns a schedule with this action at the times of `timing`; all other fields have their defaults.
    pub fn starting(name: impl Into<String>, timing: Timing, action: Action) -> Self {
        let mut spec = Self {
            name: name.into(),
            namespace: default_namespace(),
            owner: None,
            labels: BTreeMap::new(),
            description: None,
            timing,
            jitter: None,
            max_firings: None,
            guarantee: None,
            overlap: Overlap::default(),
            missed: Missed::default(),
            start_deadline: None,
            pause_after_failures: None,
            reserve_ahead: None,
            expect: Expectation::default(),
            action,
        };
        spec.fill();
        spec
    }

    /// Returns the job that each firing creates, or `None` for a workflow.
    pub fn job(&self) -> Option<&JobSpec> {
        match &self.action {
            Action::Job(job) => Some(job),
            Action::Workflow(_) => None,
        }
    }

    /// Returns a mutable reference to the job that each firing creates, or `None` for a workflow.
    pub fn job_mut(&mut self) -> Option<&mut JobSpec> {
        match &mut self.action {
            Action::Job(job) => Some(job),
            Action::Workflow(_) => None,
        }
    }

    /// Returns the call of the workflow that each firing starts, or `None` for a job.
    pub fn workflow(&self) -> Option<&Call> {
        match &self.action {
            Action::Workflow(call) => Some(call),
            Action::Job(_) => None,
        }
    }

    /// Sets namespace, name and owner of the job to those of the schedule, unless the job sets its own, and the policies
    /// of the guarantee. Idempotent.
    pub fn fill(&mut self) {
        self.fill_guarantee();
        let Action::Job(job) = &mut self.action else { return };
        if job.namespace == DEFAULT {
            job.namespace.clone_from(&self.namespace);
        }
        if job.name == crate::spec::default_job_name() {
            job.name.clone_from(&self.name);
        }
        if job.owner.is_none() {
            job.owner.clone_from(&self.owner);
        }
    }
}

/// Jitter: a delay of each firing, from zero to a maximum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Jitter {
    /// Maximum delay of a firing; at most 24h.
    pub max: Duration,
    /// Choice of the delay: the same for all firings of the schedule (`stable`), or another for each firing (`random`)
    /// [default: `stable`].
    #[serde(default)]
    pub spread: Spread,
}

/// Choice of the delay of a firing within its jitter.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Spread {
    /// The same delay for all firings of the schedule, by a hash of its name. Intervals between firings stay equal.
    #[default]
    Stable,
    /// Another delay for each firing, by a hash of the name and the scheduled time.
    Random,
}

/// Treatment of a firing while earlier runs of its schedule have not ended. All causes of runs count: timer, manual
/// trigger, backfill and retry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Overlap {
    /// Policy of a firing when the schedule has reached its limit of concurrent runs [default: `skip`].
    pub policy: OverlapPolicy,
    /// Limit of concurrent runs, from 1 to 1,000; at this number the policy applies [default: 1].
    pub limit: u32,
    /// Maximum number of waiting firings under the policy `buffer_all`, from 1 to 1,000. Further firings are skipped,
    /// with the outcome `skipped_limit` [default: 100].
    pub buffer: u32,
}

impl Default for Overlap {
    fn default() -> Self {
        Self { policy: OverlapPolicy::default(), limit: 1, buffer: 100 }
    }
}

/// Policy of a firing when the schedule has reached its limit of concurrent runs.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum OverlapPolicy {
    /// The firing is skipped.
    #[default]
    Skip,
    /// One firing waits until a run ends. Further firings are merged into the waiting one.
    BufferOne,
    /// Each firing waits in order until a run ends, up to the maximum in `buffer`.
    BufferAll,
    /// The oldest run is cancelled with its grace period. The firing starts when that run has ended.
    CancelOther,
    /// The oldest run is killed without a grace period. The firing starts when that run has ended.
    TerminateOther,
    /// The firing starts at once; concurrent runs are unlimited.
    AllowAll,
}

/// Policy for missed firings: scheduled times that passed while no server could process them, for example during an
/// outage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Missed {
    /// Choice of the missed firings that are caught up [default: `fire_once`].
    pub policy: MissedPolicy,
    /// Number of the latest missed firings that the policy `fire_last` catches up, from 1 to 1,000 [default: 1].
    pub last: u32,
    /// Maximum number of missed firings of one outage that the policy `fire_all` catches up, from 1 to 10,000; the
    /// newest ones are kept [default: 1,000].
    pub limit: u32,
    /// Delay after which a firing counts as missed; at least 1s. A shorter delay counts as late, and the firing starts
    /// normally [default: `10s`].
    pub threshold: Duration,
    /// Maximum age of a missed firing that is caught up; at most 3,660 days [default: `365d`].
    pub catch_up_window: Duration,
    /// Rate limit: maximum number of missed firings that are caught up per minute, at least 1 [default: unlimited].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub catch_up_per_minute: Option<u32>,
}

impl Default for Missed {
    fn default() -> Self {
        Self {
            policy: MissedPolicy::default(),
            last: 1,
            limit: 1_000,
            threshold: Duration::from_secs(10),
            catch_up_window: Duration::from_hours(24 * 365),
            catch_up_per_minute: None,
        }
    }
}

/// Choice of the missed firings that are caught up.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum MissedPolicy {
    /// No missed firing is caught up.
    Skip,
    /// The last missed firing is caught up; the others are merged into it.
    #[default]
    FireOnce,
    /// The latest missed firings are caught up; the field `last` is their number.
    FireLast,
    /// All missed firings within the catch-up window are caught up, at most as many as the field `limit` allows.
    FireAll,
}

/// Expected start delay and duration of the runs of a schedule. A run that exceeds them is reported as late or stuck.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Expectation {
    /// Maximum delay of the start after the scheduled time; a run that has not started by then is late
    /// [default: `1m`].
    pub start_within: Duration,
    /// Maximum duration of a run; a run that exceeds it is stuck [default: three times the 95th percentile of earlier
    /// runs, at least 1m].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_within: Option<Duration>,
}

impl Expectation {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl Default for Expectation {
    fn default() -> Self {
        Self { start_within: Duration::from_secs(60), run_within: None }
    }
}
