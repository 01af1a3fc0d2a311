//! Result of a forecast, as JSON.
//!
//! `belfry forecast` prints an [`Answer`] as text or JSON; `crate::picture` draws it. Its parts are totals, overloads,
//! counts over time, workers, schedules and notes.
//!
//! A [`Note`] states each assumption that affects the result, for example an assumed run time.

use std::collections::BTreeMap;

use model::firing::FiringOutcome;
use model::spec::{Constraint, Operator};
use model::why::Reason;
use model::worker::Capacity;
use model::{Duration, Timestamp};
use serde::Serialize;

use crate::usage::Shares;

/// Result of a forecast.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Answer {
    /// Start of the range, inclusive.
    pub from: Timestamp,
    /// End of the range, exclusive; earlier than requested if the limit of runs was reached.
    pub until: Timestamp,
    /// Seed of all random values.
    pub seed: u64,
    /// Waiting time above which a queue counts as overloaded.
    pub patience: Duration,
    /// Totals over the range.
    pub summary: Summary,
    /// Overloads, by start time.
    pub overloads: Vec<Window>,
    /// Length of each bucket of `over_time`, and of each worker's `use`.
    pub bucket: Duration,
    /// Counts for each bucket of the range.
    pub over_time: Vec<Bucket>,
    /// Allocation of all workers together, for each bucket of the range.
    #[serde(rename = "use")]
    pub used: Vec<Shares>,
    /// All workers.
    pub workers: Vec<WorkerUse>,
    /// All schedules, in the order of the plan.
    pub schedules: Vec<ScheduleForecast>,
    /// Assumptions and limits of the forecast.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<Note>,
}

/// Totals of a forecast.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Summary {
    /// Active schedules.
    pub schedules: u64,
    /// Firings that created a job or started a run.
    pub firings: u64,
    /// Skipped firings, by outcome; without those skipped by a calendar or a window.
    pub skipped: BTreeMap<FiringOutcome, u64>,
    /// Firings skipped by a calendar or a window of their schedule.
    pub held: u64,
    /// Runs of schedules that started.
    pub started: u64,
    /// Succeeded runs.
    pub succeeded: u64,
    /// Failed runs, by the past failure rate.
    pub failed: u64,
    /// Runs cancelled by another firing of their schedule.
    pub cancelled: u64,
    /// Runs that did not start before their deadline.
    pub expired: u64,
    /// Jobs of schedules whose completion deadline passed before they ended.
    #[serde(default)]
    pub overdue: u64,
    /// Runs that started late, or that are still waiting and already late.
    pub late: u64,
    /// Run with the longest delay.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latest: Option<WorstRun>,
    /// Executions: attempts of jobs, including the jobs of workflows.
    pub executions: u64,
    /// Peak number of waiting jobs.
    pub waiting_most: u64,
    /// Jobs that are waiting at the end of the range.
    pub waiting_at_end: u64,
    /// Jobs that are running at the end of the range.
    pub running_at_end: u64,
    /// Total time with at least one overload.
    pub overloaded: Duration,
    /// Average allocation of all workers together.
    #[serde(rename = "use")]
    pub used: Shares,
}

impl Summary {
    /// Returns the total of `skipped`.
    pub fn skipped_in_all(&self) -> u64 {
        self.skipped.values().sum()
    }
}

/// A run that was late, or a job that waited.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WorstRun {
    /// Namespace.
    pub namespace: String,
    /// Name of the schedule, or of the job.
    pub name: String,
    /// Scheduled time, or start of the wait.
    pub due: Timestamp,
    /// Delay of the start.
    pub by: Duration,
}

/// An overload: a period in which jobs of one group waited longer than `patience`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Window {
    /// Time when the first of these jobs started to wait.
    pub from: Timestamp,
    /// Time when the last of these jobs started; the end of the range if a job is still waiting.
    pub until: Timestamp,
    /// Whether the overload continues at the end of the range.
    pub goes_on: bool,
    /// Group of the jobs.
    pub group: Group,
    /// Number of jobs that waited longer than `patience`.
    pub jobs: u64,
    /// Peak number of waiting jobs of the group, including short waits.
    pub waiting_most: u64,
    /// Longest wait.
    pub longest: WorstRun,
    /// Waiting reasons that the engine gave for the job with the longest wait, checked repeatedly; the most frequent
    /// first.
    pub why: Vec<WaitingReason>,
}

/// Jobs of one queue with the same constraints.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Group {
    /// Queue name.
    pub queue: String,
    /// Worker constraints of the jobs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub constraints: Vec<Constraint>,
}

impl std::fmt::Display for Group {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.queue)?;
        for constraint in &self.constraints {
            let Constraint { label, values, .. } = constraint;
            let values = values.join("|");
            match constraint.operator {
                Operator::In => write!(f, " {label}={values}")?,
                Operator::NotIn => write!(f, " {label}!={values}")?,
                Operator::Exists => write!(f, " {label}")?,
                Operator::Absent => write!(f, " !{label}")?,
            }
        }
        Ok(())
    }
}

/// A waiting reason of an overload.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WaitingReason {
    /// Category of the reason.
    pub cause: Cause,
    /// Number of checks in which the engine gave this reason.
    pub times: u32,
    /// Reason as the engine gave it at the first check.
    pub reason: Reason,
}

/// Category of a waiting reason.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// The queue is paused.
    QueuePaused,
    /// The queue has reached its limit of concurrent jobs.
    QueueConcurrency,
    /// The queue has reached its rate limit.
    QueueRate,
    /// The concurrency key has reached its limit.
    ConcurrencyKey,
    /// The namespace has used its quota.
    NamespaceQuota,
    /// A service that the job requires is not available.
    Service(String),
    /// No suitable worker has enough free CPU.
    Cpu,
    /// No suitable worker has enough free memory.
    Memory,
    /// No suitable worker has enough of this resource free.
    Resource(String),
    /// No suitable worker has a free slot.
    Slots,
    /// The free capacity is reserved for a schedule or another job.
    Reserved,
    /// No worker can ever run the job.
    NoWorker,
    /// Any other reason.
    Other,
}

impl std::fmt::Display for Cause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::QueuePaused => "queue paused",
            Self::QueueConcurrency => "queue concurrency limit",
            Self::QueueRate => "queue rate limit",
            Self::ConcurrencyKey => "concurrency key limit",
            Self::NamespaceQuota => "namespace quota",
            Self::Service(name) => return write!(f, "service {name} not available"),
            Self::Cpu => "insufficient CPU",
            Self::Memory => "insufficient memory",
            Self::Resource(name) => return write!(f, "insufficient {name}"),
            Self::Slots => "insufficient slots",
            Self::Reserved => "reserved capacity",
            Self::NoWorker => "no eligible worker",
            Self::Other => "other jobs ahead",
        })
    }
}

/// Counts for one bucket of the range.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Bucket {
    /// Start of the bucket.
    pub from: Timestamp,
    /// Firings that created a job or started a run.
    pub firings: u64,
    /// Executions that started.
    pub started: u64,
    /// Runs of schedules that were due in this bucket but started late.
    pub late: u64,
    /// Peak number of waiting jobs.
    pub waiting_most: u64,
}

/// Utilization of a worker over the range.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WorkerUse {
    /// Worker name.
    pub name: String,
    /// Capacity of the worker.
    pub capacity: Capacity,
    /// Executions on the worker.
    pub executions: u64,
    /// Average allocation.
    pub average: Shares,
    /// Peak allocation of each resource.
    pub most: Shares,
    /// Allocation in each bucket of the range.
    #[serde(rename = "use")]
    pub used: Vec<Shares>,
}

/// Forecast of a schedule over the range.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ScheduleForecast {
    /// Namespace of the schedule.
    pub namespace: String,
    /// Schedule name.
    pub name: String,
    /// Firings that created a job or started a run.
    pub firings: u64,
    /// Skipped firings, by outcome.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub skipped: BTreeMap<FiringOutcome, u64>,
    /// Succeeded runs.
    pub succeeded: u64,
    /// Failed and cancelled runs.
    pub failed: u64,
    /// Runs that did not start before their deadline.
    pub expired: u64,
    /// Jobs of schedules whose completion deadline passed before they ended.
    #[serde(default)]
    pub overdue: u64,
    /// Runs that started late, or that are still waiting and already late.
    pub late: u64,
    /// Longest delay of a run.
    pub latest: Duration,
    /// Total run time of all executions of its jobs, without those of workflows.
    pub busy: Duration,
    /// Whether the run time is assumed, because the schedule has no run history.
    pub assumed: bool,
    /// Time within the range when the schedule is paused, for example after too many failures.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paused_at: Option<Timestamp>,
}

/// An assumption or a limit of a forecast.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "note", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Note {
    /// The run time is assumed, because there is no run history.
    Assumed {
        /// Number of schedules, or of job names in workflows.
        names: u64,
        /// Examples.
        such_as: Vec<String>,
        /// Assumed run time.
        run_time: Duration,
    },
    /// These schedules are left out: their timing is invalid, or it names a calendar that does not exist.
    Unusable {
        /// Names of the schedules.
        schedules: Vec<String>,
    },
    /// Approvals and events of waiting steps are assumed to arrive immediately.
    Answered {
        /// Number of approvals.
        approvals: u64,
        /// Number of events.
        events: u64,
    },
    /// Steps could not start, most likely because they refer to the output of an earlier task.
    StepsWithoutInput {
        /// Number of steps.
        steps: u64,
        /// Examples.
        such_as: Vec<String>,
    },
    /// The forecast ended early, because the limit of runs was reached.
    Cut {
        /// End of the forecast.
        at: Timestamp,
        /// Limit of runs.
        runs_max: u64,
    },
}

impl std::fmt::Display for Note {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let shown = |names: &[String], all: u64| {
            let more = all.saturating_sub(names.len() as u64);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            format!("{}{more}", names.join(", "))
        };
        match self {
            Self::Assumed { names, such_as, run_time } => {
                write!(f, "no run history for {}: assumed a run time of {run_time}", shown(such_as, *names))
            }
            Self::Unusable { schedules } => {
                write!(f, "schedules with invalid timing are left out: {}", schedules.join("; "))
            }
            Self::Answered { approvals, events } => {
                write!(f, "{approvals} approvals and {events} events are assumed to arrive immediately")
            }
            Self::StepsWithoutInput { steps, such_as } => write!(
                f,
                "{} could not start: the output of tasks is unknown in a forecast",
                shown(such_as, *steps)
            ),
            Self::Cut { at, runs_max } => {
                write!(f, "the forecast ends early at {at}: it reached the limit of {runs_max} runs")
            }
        }
    }
}
