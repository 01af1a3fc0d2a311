//! Schedules: named rules that start jobs or workflows, as a user writes them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::spec::{DEFAULT, JobSpec};
use crate::time::Duration;
use crate::timing::Timing;
use crate::workflow::Call;

fn default_namespace() -> String {
    DEFAULT.to_owned()
}

/// A named rule that starts jobs, or runs of a workflow.
///
/// `name` and what it starts are all that has no default. A schedule without rules fires on demand.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "ScheduleText", into = "ScheduleText")]
pub struct ScheduleSpec {
    /// Unique in its namespace. Letters, digits, `-`, `_` and `.`.
    pub name: String,
    /// The tenant that it belongs to; its jobs belong to the same.
    pub namespace: String,
    /// Who answers for it, and for its jobs where they name nobody.
    pub owner: Option<String>,
    /// Free words to find and group schedules by.
    pub labels: BTreeMap<String, String>,
    /// What it is for, for people.
    pub description: Option<String>,
    /// When it fires.
    pub timing: Timing,
    /// Spreads firings: each job starts a little later than its time.
    pub jitter: Option<Jitter>,
    /// It is completed after so many firings; what was skipped does not count.
    pub max_firings: Option<u64>,
    /// What a firing does while earlier runs are not over.
    pub overlap: Overlap,
    /// What becomes of firings whose time passed while nobody could decide them.
    pub missed: Missed,
    /// How long after its time a firing's job may still start; later it is recorded as missed.
    pub start_deadline: Option<Duration>,
    /// It is paused after so many failed runs in a row.
    pub pause_after_failures: Option<u32>,
    /// Keeps room for its job on a worker from this long before each firing.
    pub reserve_ahead: Option<Duration>,
    /// From when on a run counts as late or stuck.
    pub expect: Expectation,
    /// What each firing starts.
    pub action: Action,
}

/// What a schedule starts.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// A job.
    Job(Box<JobSpec>),
    /// A run of a workflow.
    Workflow(Call),
}

/// A named rule that starts jobs or runs: exactly one of `job` and `workflow`.
///
/// `name` and what it starts are all that has no default. A schedule without rules fires on demand.
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = ScheduleSpec)]
struct ScheduleText {
    /// Unique in its namespace. Letters, digits, `-`, `_` and `.`.
    name: String,
    /// The tenant that it belongs to; its jobs belong to the same.
    #[serde(default = "default_namespace")]
    namespace: String,
    /// Who answers for it, and for its jobs where they name nobody.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    owner: Option<String>,
    /// Free words to find and group schedules by.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    labels: BTreeMap<String, String>,
    /// What it is for, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    description: Option<String>,
    /// When it fires.
    #[serde(default)]
    timing: Timing,
    /// Spreads firings: each job starts a little later than its time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    jitter: Option<Jitter>,
    /// It is completed after so many firings; what was skipped does not count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max_firings: Option<u64>,
    /// What a firing does while earlier runs are not over.
    #[serde(default)]
    overlap: Overlap,
    /// What becomes of firings whose time passed while nobody could decide them.
    #[serde(default)]
    missed: Missed,
    /// How long after its time a firing's job may still start; later it is recorded as missed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    start_deadline: Option<Duration>,
    /// It is paused after so many failed runs in a row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pause_after_failures: Option<u32>,
    /// Keeps room for its job on a worker from this long before each firing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reserve_ahead: Option<Duration>,
    /// From when on a run counts as late or stuck.
    #[serde(default, skip_serializing_if = "Expectation::is_default")]
    expect: Expectation,
    /// The job that each firing creates. Its name, namespace and owner are the schedule's where it
    /// names none; `run_at`, `start_deadline` and `idempotency_key` are decided by the schedule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    job: Option<Box<JobSpec>>,
    /// The workflow of its namespace that each firing starts a run of. Texts of its parameters may refer
    /// to the firing: `${{ firing.scheduled_for }}`, `firing.interval_start`, `firing.interval_end`,
    /// `firing.schedule` and `firing.cause`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    workflow: Option<Call>,
}

impl TryFrom<ScheduleText> for ScheduleSpec {
    type Error = String;

    fn try_from(text: ScheduleText) -> Result<Self, String> {
        let ScheduleText {
            name,
            namespace,
            owner,
            labels,
            description,
            timing,
            jitter,
            max_firings,
            overlap,
            missed,
            start_deadline,
            pause_after_failures,
            reserve_ahead,
            expect,
            job,
            workflow,
        } = text;
        let action = match (job, workflow) {
            (Some(job), None) => Action::Job(job),
            (None, Some(call)) => Action::Workflow(call),
            _ => {
                let shown: String = name.chars().take(64).collect();
                return Err(format!("schedule `{shown}`: expected exactly one of `job` and `workflow`"));
            }
        };
        Ok(Self {
            name,
            namespace,
            owner,
            labels,
            description,
            timing,
            jitter,
            max_firings,
            overlap,
            missed,
            start_deadline,
            pause_after_failures,
            reserve_ahead,
            expect,
            action,
        })
    }
}

impl From<ScheduleSpec> for ScheduleText {
    fn from(spec: ScheduleSpec) -> Self {
        let ScheduleSpec {
            name,
            namespace,
            owner,
            labels,
            description,
            timing,
            jitter,
            max_firings,
            overlap,
            missed,
            start_deadline,
            pause_after_failures,
            reserve_ahead,
            expect,
            action,
        } = spec;
        let (job, workflow) = match action {
            Action::Job(job) => (Some(job), None),
            Action::Workflow(call) => (None, Some(call)),
        };
        Self {
            name,
            namespace,
            owner,
            labels,
            description,
            timing,
            jitter,
            max_firings,
            overlap,
            missed,
            start_deadline,
            pause_after_failures,
            reserve_ahead,
            expect,
            job,
            workflow,
        }
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
    /// A schedule that creates `job` at the times of `timing`, with every default.
    pub fn new(name: impl Into<String>, timing: Timing, job: JobSpec) -> Self {
        Self::starting(name, timing, Action::Job(Box::new(job)))
    }

    /// A schedule that starts this at the times of `timing`, with every default.
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

    /// The job that it creates, if it creates one.
    pub fn job(&self) -> Option<&JobSpec> {
        match &self.action {
            Action::Job(job) => Some(job),
            Action::Workflow(_) => None,
        }
    }

    /// The same, to be changed.
    pub fn job_mut(&mut self) -> Option<&mut JobSpec> {
        match &mut self.action {
            Action::Job(job) => Some(job),
            Action::Workflow(_) => None,
        }
    }

    /// The workflow that it starts runs of, if it starts any.
    pub fn workflow(&self) -> Option<&Call> {
        match &self.action {
            Action::Workflow(call) => Some(call),
            Action::Job(_) => None,
        }
    }

    /// Gives the job what it takes over from its schedule: namespace, name and owner, where it has
    /// none of its own. Idempotent.
    pub fn fill(&mut self) {
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

/// A spread of firings over a while.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Jitter {
    /// The most that a firing is put off.
    pub max: Duration,
    /// How long exactly.
    #[serde(default)]
    pub spread: Spread,
}

/// How a jitter is chosen.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Spread {
    /// Always the same for one schedule, by a hash of its name: intervals stay even.
    #[default]
    Stable,
    /// Another one each time, by a hash of name and time.
    Random,
}

/// What a firing does while earlier runs of its schedule are not over, whatever they came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Overlap {
    /// What it does.
    pub policy: OverlapPolicy,
    /// How many runs there may be at once before the policy applies.
    pub limit: u32,
    /// For `buffer_all`: how many firings may wait; more are shed.
    pub buffer: u32,
}

impl Default for Overlap {
    fn default() -> Self {
        Self { policy: OverlapPolicy::default(), limit: 1, buffer: 100 }
    }
}

/// What a firing does while too many earlier runs are not over.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum OverlapPolicy {
    /// It is skipped.
    #[default]
    Skip,
    /// One waits for the end of a run; it stands for all that come meanwhile.
    BufferOne,
    /// Each waits its turn, up to the bound.
    BufferAll,
    /// The oldest run is cancelled, with its grace; the firing starts once that is over.
    CancelOther,
    /// The oldest run is killed without grace; the firing starts once that is over.
    TerminateOther,
    /// All run at once, without a limit.
    AllowAll,
}

/// What becomes of firings whose time passed while nobody could decide them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Missed {
    /// Which of them are made up for.
    pub policy: MissedPolicy,
    /// For `fire_last`: how many.
    pub last: u32,
    /// For `fire_all`: the most missed firings of one outage that are made up for, the newest ones.
    pub limit: u32,
    /// How late a firing must be to count as missed rather than as late.
    pub threshold: Duration,
    /// Older ones than this are never made up for.
    pub catch_up_window: Duration,
    /// The most that are made up for in a minute; unbounded where absent.
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

/// Which missed firings are made up for.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum MissedPolicy {
    /// None.
    Skip,
    /// The last one, which stands for all.
    #[default]
    FireOnce,
    /// The last `last` of them.
    FireLast,
    /// All within the catch-up window, up to `limit`.
    FireAll,
}

/// From when on a run counts as late or stuck.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Expectation {
    /// A run that has not started this long after its time is late.
    pub start_within: Duration,
    /// A run is stuck once it takes longer; where absent, three times the 95th percentile of earlier
    /// runs, but at least a minute.
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
