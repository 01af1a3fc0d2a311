//! Input of a forecast.

use std::collections::BTreeMap;

use model::calendar::CalendarSpec;
use model::firing::{Pause, ScheduleStatus};
use model::queue::QueueSettings;
use model::worker::{Admission, Capabilities, Capacity};
use model::{Duration, ScheduleSpec, ServiceSpec, Timestamp, WorkflowSpec};

use crate::past::RunHistory;

/// A name in a namespace.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct QualifiedName {
    /// Namespace.
    pub namespace: String,
    /// Name in the namespace.
    pub name: String,
}

impl QualifiedName {
    /// Returns a name in a namespace.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

/// Complete input of a forecast.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Start of the range, inclusive.
    pub from: Timestamp,
    /// End of the range, exclusive.
    pub until: Timestamp,
    /// Schedules.
    pub schedules: Vec<Schedule>,
    /// Calendars that the schedules use, without the built-in ones.
    pub calendars: Vec<CalendarSpec>,
    /// Workflows that the schedules start, and the workflows that these call.
    pub workflows: Vec<WorkflowSpec>,
    /// Services, whose replicas use capacity over the whole range.
    pub services: Vec<Service>,
    /// Settings of the queues, by queue name.
    pub queues: BTreeMap<String, QueueSettings>,
    /// Workers.
    pub workers: Vec<Worker>,
    /// Past run times and failure rates.
    pub history: History,
    /// Options of the forecast.
    pub options: Options,
}

impl Plan {
    /// Returns an empty plan for a range, with default options.
    pub fn new(from: Timestamp, until: Timestamp) -> Self {
        Self {
            from,
            until,
            schedules: Vec::new(),
            calendars: Vec::new(),
            workflows: Vec::new(),
            services: Vec::new(),
            queues: BTreeMap::new(),
            workers: Vec::new(),
            history: History::default(),
            options: Options::default(),
        }
    }
}

/// Options of a forecast.
#[derive(Debug, Clone)]
pub struct Options {
    /// Seed of all random values.
    pub seed: u64,
    /// Delay after the scheduled time from which a run counts as late [default: the schedule's
    /// [`start_within`](model::schedule::Expectation::start_within)].
    pub late_after: Option<Duration>,
    /// Waiting time of a job above which its queue counts as overloaded.
    pub patience: Duration,
    /// Factor for all run times; above 0.
    pub slower: f64,
    /// Maximum number of firings; the forecast ends once it is reached.
    pub runs_max: u64,
    /// Time zone database for schedules.
    pub zones: timetable::Zones,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            seed: 0,
            late_after: None,
            patience: Duration::from_secs(60),
            slower: 1.0,
            runs_max: 5_000_000,
            zones: timetable::Zones::bundled(),
        }
    }
}

/// A schedule and its current state.
#[derive(Debug, Clone)]
pub struct Schedule {
    /// Spec of the schedule.
    pub spec: ScheduleSpec,
    /// Status of the schedule.
    pub status: ScheduleStatus,
    /// Who paused the schedule, and why.
    pub pause: Option<Pause>,
    /// Number of firings so far; counts towards `max_firings`.
    pub fired: u64,
    /// Number of consecutive runs with the result of the last one: positive if they succeeded, negative if they failed.
    pub streak: i32,
}

impl From<ScheduleSpec> for Schedule {
    fn from(spec: ScheduleSpec) -> Self {
        Self { spec, status: ScheduleStatus::Active, pause: None, fired: 0, streak: 0 }
    }
}

/// A service and its current number of replicas.
#[derive(Debug, Clone, PartialEq)]
pub struct Service {
    /// Spec of the service.
    pub spec: ServiceSpec,
    /// Desired number of replicas at the start of the range. Automatic scaling changes it, as far as schedules and queues
    /// decide it.
    pub replicas: u32,
}

impl From<ServiceSpec> for Service {
    fn from(spec: ServiceSpec) -> Self {
        let replicas = spec.first_replicas();
        Self { spec, replicas }
    }
}

/// A worker that is connected over the whole range.
#[derive(Debug, Clone, PartialEq)]
pub struct Worker {
    /// Worker name.
    pub name: String,
    /// Labels for constraints.
    pub labels: BTreeMap<String, String>,
    /// Capacity of the worker.
    pub capacity: Capacity,
    /// Runtimes and limits that the worker supports.
    pub capabilities: Capabilities,
    /// Whether the worker accepts jobs.
    pub admission: Admission,
}

impl Worker {
    /// Returns a worker that supports processes, with all their limits, and accepts jobs.
    pub fn new(name: impl Into<String>, capacity: Capacity) -> Self {
        Self {
            name: name.into(),
            labels: BTreeMap::new(),
            capacity,
            capabilities: Capabilities::of_processes(),
            admission: Admission::Open,
        }
    }
}

/// Past run times and failure rates.
#[derive(Debug, Clone, PartialEq)]
pub struct History {
    /// Jobs of schedules, by schedule name.
    pub schedules: BTreeMap<QualifiedName, RunHistory>,
    /// Jobs of workflows, by job name.
    pub jobs: BTreeMap<QualifiedName, RunHistory>,
    /// Assumption for all other jobs.
    pub otherwise: RunHistory,
}

impl Default for History {
    fn default() -> Self {
        Self {
            schedules: BTreeMap::new(),
            jobs: BTreeMap::new(),
            otherwise: RunHistory::steady(Duration::from_secs(60)),
        }
    }
}

/// Why a plan is invalid.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// The range is empty.
    #[error("invalid range: the end {until} must be after the start {from}")]
    EmptyRange {
        /// Start of the range.
        from: Timestamp,
        /// End of the range.
        until: Timestamp,
    },
    /// Two objects of one kind have the same name.
    #[error("duplicate {kind} `{name}`")]
    Twice {
        /// Kind of the objects.
        kind: &'static str,
        /// Their name.
        name: String,
    },
    /// The factor for run times is not a number above 0.
    #[error("invalid factor for run times `{slower}`: expected a number above 0")]
    Slower {
        /// Requested factor.
        slower: f64,
    },
}
