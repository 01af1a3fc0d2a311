//! Statistics: series of one subject, and totals of many.
//!
//! The engine and the store count with [`Tally`] and [`Histogram`]; here are the forms in which the API shows them:
//! sums instead of parts, and quantiles instead of buckets. A subject is written as the fields that identify it, so
//! that a client can use them as parameters of the next request.

use super::*;
use crate::statistics::{Histogram, Level, OTHER_NAMES, Subject, SubjectKind, Tally};

/// What statistics are about. Fields that do not apply are absent; without any field: all jobs and workers.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct StatisticsSubject {
    /// Namespace, or namespace of the job name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Name of the queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// Name of the jobs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// Whether these are all jobs whose names, queues or namespaces have no statistics of their own. A day adds at most
    /// 2,000 new names.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub other_jobs: bool,
    /// ID of the schedule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule_id: Option<ScheduleId>,
    /// ID of the worker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker_id: Option<WorkerId>,
}

impl From<&Subject> for StatisticsSubject {
    fn from(subject: &Subject) -> Self {
        let text = |text: &str| Some(text.to_owned());
        match subject {
            Subject::All => Self::default(),
            Subject::Namespace(name) | Subject::Queue(name) if &**name == OTHER_NAMES => {
                Self { other_jobs: true, ..Self::default() }
            }
            Subject::Namespace(namespace) => Self { namespace: text(namespace), ..Self::default() },
            Subject::Queue(queue) => Self { queue: text(queue), ..Self::default() },
            Subject::Job { namespace, name } if &**name == OTHER_NAMES => {
                Self { namespace: text(namespace), other_jobs: true, ..Self::default() }
            }
            Subject::Job { namespace, name } => {
                Self { namespace: text(namespace), job: text(name), ..Self::default() }
            }
            Subject::Schedule(id) => Self { schedule_id: Some(*id), ..Self::default() },
            Subject::Worker(id) => Self { worker_id: Some(*id), ..Self::default() },
        }
    }
}

/// Distribution of durations. Quantiles are at most 12.5 % off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Distribution {
    /// Number of durations.
    pub count: u64,
    /// Mean.
    pub mean: Duration,
    /// Median: half of the durations are not longer.
    pub p50: Duration,
    /// 95 % of the durations are not longer.
    pub p95: Duration,
    /// 99 % of the durations are not longer.
    pub p99: Duration,
}

impl Distribution {
    /// Returns the distribution of a histogram; `None` if it is empty.
    pub fn of(histogram: &Histogram) -> Option<Self> {
        Some(Self {
            count: histogram.count(),
            mean: histogram.mean()?,
            p50: histogram.quantile(0.5)?,
            p95: histogram.quantile(0.95)?,
            p99: histogram.quantile(0.99)?,
        })
    }
}

/// What happened to jobs in an interval.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct StatisticsCounts {
    /// Number of created jobs.
    pub submitted: u64,
    /// Number of started executions.
    pub started: u64,
    /// Number of jobs that ended successfully.
    pub succeeded: u64,
    /// Number of jobs that failed.
    pub failed: u64,
    /// Number of cancelled jobs.
    pub cancelled: u64,
    /// Number of jobs that expired: they did not start before their start deadline.
    pub expired: u64,
    /// Number of executions that ended without success and whose jobs run again.
    pub retried: u64,
    /// Number of failed jobs by cause. Absent if no job failed.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub failed_by_cause: BTreeMap<Cause, u64>,
    /// Number of retried executions by cause. Absent if no execution was retried.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub retried_by_cause: BTreeMap<Cause, u64>,
    /// Time from entering the queue to the first start. Absent if no job started for the first time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_delay: Option<Distribution>,
    /// Run time of ended executions. Absent if no execution ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_time: Option<Distribution>,
}

impl From<&Tally> for StatisticsCounts {
    fn from(tally: &Tally) -> Self {
        Self {
            submitted: tally.submitted,
            started: tally.started,
            succeeded: tally.succeeded,
            failed: tally.failed_total(),
            cancelled: tally.cancelled,
            expired: tally.expired,
            retried: tally.retried.values().sum(),
            failed_by_cause: tally.failed.clone(),
            retried_by_cause: tally.retried.clone(),
            start_delay: Distribution::of(&tally.start_delay),
            run_time: Distribution::of(&tally.run_time),
        }
    }
}

/// One interval of a series.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct StatisticsPoint {
    /// Start of the interval.
    pub at: Timestamp,
    /// What happened.
    #[serde(flatten)]
    pub counts: StatisticsCounts,
    /// Work and resources. Absent if no sample was taken, or for subjects other than queues, workers and all jobs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub levels: Option<Level>,
}

/// Series of statistics of one subject.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct StatisticsSeries {
    /// Start of the first interval.
    pub from: Timestamp,
    /// End of the range.
    pub until: Timestamp,
    /// Length of the intervals.
    pub step: Duration,
    /// What the intervals add up to.
    pub total: StatisticsCounts,
    /// Intervals in which anything was counted or sampled, in order.
    pub points: Vec<StatisticsPoint>,
}

/// Totals of one subject.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct StatisticsTotal {
    /// What the counts are about.
    pub subject: StatisticsSubject,
    /// What happened.
    #[serde(flatten)]
    pub counts: StatisticsCounts,
}

/// Totals of the subjects of one kind.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct StatisticsTotals {
    /// Start of the range; rounded down to the start of an interval.
    pub from: Timestamp,
    /// End of the range.
    pub until: Timestamp,
    /// Kind of the subjects.
    pub by: SubjectKind,
    /// Number of subjects of which anything was counted, also of those that the limit leaves out.
    pub subjects: u64,
    /// Totals, in the requested order.
    pub items: Vec<StatisticsTotal>,
}

/// Order of totals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum StatisticsOrder {
    /// By the number of failed and expired jobs, most first.
    #[default]
    Failed,
    /// By the number of created jobs, most first.
    Submitted,
    /// By the number of retried executions, most first.
    Retried,
    /// By the 95th percentile of the start delay, longest first.
    StartDelay,
    /// By the total run time, longest first.
    RunTime,
    /// By namespace and name.
    Name,
}

impl std::fmt::Display for StatisticsOrder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Self::Failed => "failed",
            Self::Submitted => "submitted",
            Self::Retried => "retried",
            Self::StartDelay => "start_delay",
            Self::RunTime => "run_time",
            Self::Name => "name",
        })
    }
}
