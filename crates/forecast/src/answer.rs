//! What a forecast tells.

use std::collections::BTreeMap;

use model::firing::FiringOutcome;
use model::spec::{Constraint, Operator};
use model::why::Reason;
use model::worker::Capacity;
use model::{Duration, Timestamp};
use serde::Serialize;

use crate::usage::Shares;

/// What came of a plan.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Answer {
    /// From when on, inclusive.
    pub from: Timestamp,
    /// Until when, exclusive; earlier than was asked for if there were too many runs.
    pub until: Timestamp,
    /// What everything was drawn from.
    pub seed: u64,
    /// From when on a wait makes an overload.
    pub patience: Duration,
    /// The sums.
    pub summary: Summary,
    /// When more was to be done than could be, in the order of their beginnings.
    pub overloads: Vec<Window>,
    /// How long each part of `over_time`, and of each worker's `use`, is.
    pub bucket: Duration,
    /// What happened in each part of the range.
    pub over_time: Vec<Bucket>,
    /// What all workers together had set aside in each part of the range.
    #[serde(rename = "use")]
    pub used: Vec<Shares>,
    /// Each worker.
    pub workers: Vec<WorkerUse>,
    /// Each schedule, in the order of the plan.
    pub schedules: Vec<ScheduleLine>,
    /// What was assumed, and what somebody should know about the answer.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<Note>,
}

/// The sums of a forecast.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Summary {
    /// Schedules that can fire.
    pub schedules: u64,
    /// Instants that created a job or started a run.
    pub firings: u64,
    /// Instants that created nothing, by what kept them; without those that a calendar or a window held.
    pub skipped: BTreeMap<FiringOutcome, u64>,
    /// Instants that a calendar or a window held, as their schedules want it.
    pub held: u64,
    /// Runs of schedules of which something started.
    pub started: u64,
    /// Runs that ended well.
    pub succeeded: u64,
    /// Runs that failed, as often as the past says.
    pub failed: u64,
    /// Runs that were cancelled: by another firing of their schedule.
    pub cancelled: u64,
    /// Runs that did not start before their deadline.
    pub expired: u64,
    /// Runs that started, or still wait, later than they should.
    pub late: u64,
    /// The latest of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latest: Option<WorstRun>,
    /// Executions: tries of jobs, those of workflows included.
    pub executions: u64,
    /// The most jobs that wait at a time.
    pub waiting_most: u64,
    /// Jobs that wait at the end of the range.
    pub waiting_at_end: u64,
    /// Jobs that run at the end of the range.
    pub running_at_end: u64,
    /// For how long some queue was overloaded; times that overlap count once.
    pub overloaded: Duration,
    /// What all workers together had set aside, on average.
    #[serde(rename = "use")]
    pub used: Shares,
}

impl Summary {
    /// How many instants created nothing that should have.
    pub fn skipped_in_all(&self) -> u64 {
        self.skipped.values().sum()
    }
}

/// A run that was late, or waited.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WorstRun {
    /// Of which namespace.
    pub namespace: String,
    /// Its schedule, or its job.
    pub name: String,
    /// When it was due, or began to wait.
    pub due: Timestamp,
    /// How much later it started.
    pub by: Duration,
}

/// A time during which jobs of one group waited longer than they should.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Window {
    /// When the first of them began to wait.
    pub from: Timestamp,
    /// When the last of them started; the end of the range if it still waits then.
    pub until: Timestamp,
    /// Whether it is not over at the end of the range.
    pub goes_on: bool,
    /// Which jobs.
    pub group: Group,
    /// How many waited longer than they should.
    pub jobs: u64,
    /// The most that waited at a time, also shortly.
    pub waiting_most: u64,
    /// The longest wait.
    pub longest: WorstRun,
    /// What held them back, as the engine told it of the one that waited longest, whenever it was asked;
    /// what was told most often first.
    pub why: Vec<Holds>,
}

/// Jobs that wait for the same: of one queue, with one set of constraints.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Group {
    /// Their queue.
    pub queue: String,
    /// Which workers may run them.
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

/// What held jobs back.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Holds {
    /// In a word.
    pub cause: Cause,
    /// In how many of the answers.
    pub times: u32,
    /// The engine's own answer, the first time.
    pub reason: Reason,
}

/// What held a job back, in a word.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// Its queue is paused.
    QueuePaused,
    /// As many jobs of its queue run as may.
    QueueConcurrency,
    /// Its queue starts no more jobs in a second.
    QueueRate,
    /// As many jobs with its concurrency key run as may.
    ConcurrencyKey,
    /// No worker that could take it has CPU left.
    Cpu,
    /// No worker that could take it has memory left.
    Memory,
    /// No worker that could take it has this resource left.
    Resource(String),
    /// Every worker that could take it runs as many executions as it may.
    Slots,
    /// There is room, but it is kept for a schedule.
    Reserved,
    /// No worker could ever take it.
    NoWorker,
    /// Something else.
    Other,
}

impl std::fmt::Display for Cause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::QueuePaused => "the queue is paused",
            Self::QueueConcurrency => "the queue's limit",
            Self::QueueRate => "the queue's rate",
            Self::ConcurrencyKey => "the limit of a concurrency key",
            Self::Cpu => "too little CPU",
            Self::Memory => "too little memory",
            Self::Resource(name) => return write!(f, "too little {name}"),
            Self::Slots => "too few slots",
            Self::Reserved => "room is kept for a schedule",
            Self::NoWorker => "no worker can ever take it",
            Self::Other => "other jobs come first",
        })
    }
}

/// What happened in one part of the range.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Bucket {
    /// Its beginning.
    pub from: Timestamp,
    /// Instants that created a job or started a run.
    pub firings: u64,
    /// Executions that started.
    pub started: u64,
    /// Runs of schedules that should have started here, and did later.
    pub late: u64,
    /// The most jobs that waited at a time.
    pub waiting_most: u64,
}

/// A worker over the range.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WorkerUse {
    /// Its name.
    pub name: String,
    /// What it has.
    pub capacity: Capacity,
    /// Executions that it had.
    pub executions: u64,
    /// What it had set aside on average.
    pub average: Shares,
    /// The most that it had set aside of each.
    pub most: Shares,
    /// What it had set aside in each part of the range.
    #[serde(rename = "use")]
    pub used: Vec<Shares>,
}

/// A schedule over the range.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ScheduleLine {
    /// The tenant that it belongs to.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Instants that created a job or started a run.
    pub firings: u64,
    /// Instants that created nothing, by what kept them.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub skipped: BTreeMap<FiringOutcome, u64>,
    /// Runs that ended well.
    pub succeeded: u64,
    /// Runs that ended otherwise.
    pub failed: u64,
    /// Runs that did not start before their deadline.
    pub expired: u64,
    /// Runs that started, or still wait, later than they should.
    pub late: u64,
    /// How much later than its time the latest run started.
    pub latest: Duration,
    /// How long its executions took together.
    pub busy: Duration,
    /// Whether nothing is known of its past, so that its run time was assumed.
    pub assumed: bool,
    /// When it was paused for failures, within the range.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paused_at: Option<Timestamp>,
}

/// What somebody should know about an answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "note", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Note {
    /// Nothing is known of the past of these runs.
    Assumed {
        /// How many schedules, or names of jobs in workflows.
        names: u64,
        /// Some of them.
        such_as: Vec<String>,
        /// How long they were taken to run.
        run_time: Duration,
    },
    /// These schedules cannot be used: their timing cannot be read, or names a calendar that is not there.
    Unusable {
        /// Which, with what is wrong.
        schedules: Vec<String>,
    },
    /// Steps asked for an approval, or waited for an event: it came at once.
    Answered {
        /// How many approvals.
        approvals: u64,
        /// How many events.
        events: u64,
    },
    /// Steps could not begin, most likely for they need what an earlier task puts out.
    StepsWithoutInput {
        /// How many.
        steps: u64,
        /// Some of them.
        such_as: Vec<String>,
    },
    /// The forecast ended early: there were too many runs.
    Cut {
        /// Where.
        at: Timestamp,
        /// How many runs it may have.
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
                write!(f, "no run is known of {}: {run_time} assumed for each", shown(such_as, *names))
            }
            Self::Unusable { schedules } => {
                write!(f, "cannot be used, and left out: {}", schedules.join("; "))
            }
            Self::Answered { approvals, events } => {
                write!(f, "{approvals} approvals and {events} events were taken to come at once")
            }
            Self::StepsWithoutInput { steps, such_as } => write!(
                f,
                "{} could not begin: what tasks put out is not known beforehand",
                shown(such_as, *steps)
            ),
            Self::Cut { at, runs_max } => {
                write!(f, "ended early, at {at}: more than {runs_max} runs")
            }
        }
    }
}
