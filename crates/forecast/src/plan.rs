//! What a forecast is made from.

use std::collections::BTreeMap;

use model::calendar::CalendarSpec;
use model::firing::{Pause, ScheduleStatus};
use model::queue::QueueSettings;
use model::worker::{Admission, Capabilities, Capacity};
use model::{Duration, ScheduleSpec, Timestamp, WorkflowSpec};

use crate::past::Past;

/// A namespace, and a name in it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name {
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
}

impl Name {
    /// A name in a namespace.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

/// Everything that decides what is to come.
#[derive(Debug, Clone)]
pub struct Plan {
    /// From when on, inclusive.
    pub from: Timestamp,
    /// Until when, exclusive.
    pub until: Timestamp,
    /// What fires.
    pub schedules: Vec<Schedule>,
    /// The calendars that schedules name; built-in ones are known.
    pub calendars: Vec<CalendarSpec>,
    /// The workflows that schedules start, with those that they call.
    pub workflows: Vec<WorkflowSpec>,
    /// The queues that are set up, by name.
    pub queues: BTreeMap<String, QueueSettings>,
    /// What runs jobs.
    pub workers: Vec<Worker>,
    /// How runs went so far.
    pub history: History,
    /// How much is forgiven, and how far it goes.
    pub options: Options,
}

impl Plan {
    /// A range in which nothing happens, with every default.
    pub fn new(from: Timestamp, until: Timestamp) -> Self {
        Self {
            from,
            until,
            schedules: Vec::new(),
            calendars: Vec::new(),
            workflows: Vec::new(),
            queues: BTreeMap::new(),
            workers: Vec::new(),
            history: History::default(),
            options: Options::default(),
        }
    }
}

/// How a forecast is made.
#[derive(Debug, Clone)]
pub struct Options {
    /// Decides everything that is drawn.
    pub seed: u64,
    /// A run that starts later than this after its firing was due is late; what its schedule
    /// [expects](model::schedule::Expectation::start_within) where absent.
    pub late_after: Option<Duration>,
    /// A queue in which a job waits longer than this is overloaded.
    pub patience: Duration,
    /// All runs take so many times as long.
    pub slower: f64,
    /// The forecast ends once so many runs have begun, wherever it is.
    pub runs_max: u64,
    /// The time zones that schedules are read in.
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

/// A schedule, and how far it is.
#[derive(Debug, Clone)]
pub struct Schedule {
    /// What it is.
    pub spec: ScheduleSpec,
    /// Whether it fires.
    pub status: ScheduleStatus,
    /// Who paused it.
    pub pause: Option<Pause>,
    /// How often it has fired, for those that fire so many times only.
    pub fired: u64,
    /// Runs in a row that ended like the last one: above zero well, below zero badly.
    pub streak: i32,
}

impl From<ScheduleSpec> for Schedule {
    fn from(spec: ScheduleSpec) -> Self {
        Self { spec, status: ScheduleStatus::Active, pause: None, fired: 0, streak: 0 }
    }
}

/// A worker that is there all the time.
#[derive(Debug, Clone, PartialEq)]
pub struct Worker {
    /// What people call it.
    pub name: String,
    /// What constraints are matched against.
    pub labels: BTreeMap<String, String>,
    /// What it has.
    pub capacity: Capacity,
    /// What it can.
    pub capabilities: Capabilities,
    /// Whether work is placed on it.
    pub admission: Admission,
}

impl Worker {
    /// One that can run and enforce everything.
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

/// How runs went so far.
#[derive(Debug, Clone, PartialEq)]
pub struct History {
    /// By schedule: the jobs that it creates.
    pub schedules: BTreeMap<Name, Past>,
    /// By the name of a job: those of workflows.
    pub jobs: BTreeMap<Name, Past>,
    /// Where nothing is known.
    pub otherwise: Past,
}

impl Default for History {
    fn default() -> Self {
        Self {
            schedules: BTreeMap::new(),
            jobs: BTreeMap::new(),
            otherwise: Past::steady(Duration::from_secs(60)),
        }
    }
}

/// Why nothing can be foretold from a plan.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// It ends before it begins.
    #[error("the range ends at {until}, not after its beginning at {from}")]
    EmptyRange {
        /// From when on.
        from: Timestamp,
        /// Until when.
        until: Timestamp,
    },
    /// Two things of one kind have one name.
    #[error("there are two {kind}s named `{name}`")]
    Twice {
        /// Of which kind.
        kind: &'static str,
        /// Which name.
        name: String,
    },
    /// How much slower is no number that can be reckoned with.
    #[error("`{slower}` times as slow is not possible: expected a number above 0")]
    Slower {
        /// What was asked for.
        slower: f64,
    },
}
