//! Statistics: what happened in each interval, for all jobs and by namespace, queue, job name, schedule and worker.
//!
//! ```text
//! engine: Tally by JobSource ─> commit ─> pending rows ─> fold: Tally by Subject and interval ─> series
//! ```
//!
//! The engine counts while it decides, and each commit writes its counts with the rows that they count. So the counts
//! are exact across crashes and takeovers. Later, the store folds them into one series for each [`Subject`] and
//! [`Resolution`].
//!
//! # Invariants
//! - Each submission, start and end is counted once, for each subject of its job.
//! - The sum of a subject's intervals is the same in every resolution, as long as the intervals are kept.

mod histogram;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::failures::FailureCount;
use crate::{Bytes, Cause, Duration, JobStatus, Millicores, ScheduleId, Timestamp, WorkerId};

pub use histogram::Histogram;

/// Name of the series of all jobs whose names have no series of their own.
pub const OTHER_NAMES: &str = "";

/// What the jobs of a tally have in common.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct JobSource {
    /// Namespace of the jobs.
    pub namespace: Arc<str>,
    /// Queue of the jobs.
    pub queue: Arc<str>,
    /// Name of the jobs, or [`OTHER_NAMES`].
    pub name: Arc<str>,
    /// Schedule that created the jobs.
    pub schedule: Option<ScheduleId>,
}

/// What a series is about.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Subject {
    /// All jobs and workers.
    All,
    /// The jobs of a namespace.
    Namespace(Arc<str>),
    /// The jobs of a queue.
    Queue(Arc<str>),
    /// The jobs with a name.
    Job {
        /// Namespace of the jobs.
        namespace: Arc<str>,
        /// Name of the jobs, or [`OTHER_NAMES`].
        name: Arc<str>,
    },
    /// The jobs of a schedule.
    Schedule(ScheduleId),
    /// The executions on a worker.
    Worker(WorkerId),
}

/// Kind of a [`Subject`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum SubjectKind {
    /// All jobs and workers.
    All,
    /// Namespaces.
    Namespace,
    /// Queues.
    Queue,
    /// Names of jobs.
    Job,
    /// Schedules.
    Schedule,
    /// Workers.
    Worker,
}

impl SubjectKind {
    /// All kinds.
    pub const ALL: &'static [Self] =
        &[Self::All, Self::Namespace, Self::Queue, Self::Job, Self::Schedule, Self::Worker];

    /// Returns the name of the kind in the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Namespace => "namespace",
            Self::Queue => "queue",
            Self::Job => "job",
            Self::Schedule => "schedule",
            Self::Worker => "worker",
        }
    }

    /// Returns the number of the kind in stores; a number never changes its meaning.
    pub const fn code(self) -> u8 {
        match self {
            Self::All => 0,
            Self::Namespace => 1,
            Self::Queue => 2,
            Self::Job => 3,
            Self::Schedule => 4,
            Self::Worker => 5,
        }
    }
}

impl std::fmt::Display for SubjectKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}

impl Subject {
    /// Returns the kind of the subject.
    pub fn kind(&self) -> SubjectKind {
        match self {
            Self::All => SubjectKind::All,
            Self::Namespace(_) => SubjectKind::Namespace,
            Self::Queue(_) => SubjectKind::Queue,
            Self::Job { .. } => SubjectKind::Job,
            Self::Schedule(_) => SubjectKind::Schedule,
            Self::Worker(_) => SubjectKind::Worker,
        }
    }

    /// Returns every subject that counts what a job did on a worker.
    pub fn of(source: &JobSource, worker: Option<WorkerId>) -> impl Iterator<Item = Self> {
        let JobSource { namespace, queue, name, schedule } = source;
        let job = Self::Job { namespace: Arc::clone(namespace), name: Arc::clone(name) };
        let always = [Self::All, Self::Namespace(Arc::clone(namespace)), Self::Queue(Arc::clone(queue)), job];
        always.into_iter().chain(schedule.map(Self::Schedule)).chain(worker.map(Self::Worker))
    }
}

/// What happened to jobs in an interval.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tally {
    /// Number of created jobs.
    pub submitted: u64,
    /// Number of started executions.
    pub started: u64,
    /// Number of jobs that ended successfully.
    pub succeeded: u64,
    /// Number of jobs that failed, by cause.
    pub failed: BTreeMap<Cause, u64>,
    /// Number of cancelled jobs.
    pub cancelled: u64,
    /// Number of jobs that expired.
    pub expired: u64,
    /// Number of executions that ended without success and whose jobs run again, by cause.
    pub retried: BTreeMap<Cause, u64>,
    /// Time from entering the queue to the first start.
    pub start_delay: Histogram,
    /// Run time of ended executions.
    pub run_time: Histogram,
}

impl Tally {
    /// Whether nothing happened.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Counts the end of a job.
    ///
    /// # Panics
    /// In debug builds, if the status is not final.
    pub fn count_end(&mut self, status: JobStatus, cause: Cause) {
        match status {
            JobStatus::Succeeded => self.succeeded += 1,
            JobStatus::Failed => *self.failed.entry(cause).or_default() += 1,
            JobStatus::Cancelled => self.cancelled += 1,
            JobStatus::Expired => self.expired += 1,
            _ => debug_assert!(false, "{status} is not the end of a job"),
        }
    }

    /// Returns the number of failed jobs.
    pub fn failed_total(&self) -> u64 {
        self.failed.values().sum()
    }

    /// Adds what happened in another interval or to other jobs.
    pub fn add(&mut self, other: &Self) {
        self.submitted += other.submitted;
        self.started += other.started;
        self.succeeded += other.succeeded;
        self.cancelled += other.cancelled;
        self.expired += other.expired;
        for (counts, more) in [(&mut self.failed, &other.failed), (&mut self.retried, &other.retried)] {
            for (&cause, count) in more {
                *counts.entry(cause).or_default() += count;
            }
        }
        self.start_delay.add(&other.start_delay);
        self.run_time.add(&other.run_time);
    }
}

/// Work and resources at a time. Of an interval: the highest sampled values. Samples are taken every ten seconds while
/// jobs change, and every minute while jobs wait or run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[schema(as = StatisticsLevels)]
pub struct Level {
    /// Number of jobs in their queues.
    pub waiting: u64,
    /// Number of jobs that run.
    pub running: u64,
    /// How long the oldest waiting job has been due.
    pub oldest_waiting: Duration,
    /// Number of executions that the workers may run at the same time.
    pub slots: u64,
    /// CPU allocated to executions, in millicores.
    pub allocated_cpu: Millicores,
    /// CPU of the workers, in millicores.
    pub cpu: Millicores,
    /// Memory allocated to executions, in bytes.
    pub allocated_memory: Bytes,
    /// Memory of the workers, in bytes.
    pub memory: Bytes,
}

impl Level {
    /// Keeps the higher of each value.
    pub fn max(self, other: Self) -> Self {
        Self {
            waiting: self.waiting.max(other.waiting),
            running: self.running.max(other.running),
            oldest_waiting: self.oldest_waiting.max(other.oldest_waiting),
            slots: self.slots.max(other.slots),
            allocated_cpu: self.allocated_cpu.max(other.allocated_cpu),
            cpu: self.cpu.max(other.cpu),
            allocated_memory: self.allocated_memory.max(other.allocated_memory),
            memory: self.memory.max(other.memory),
        }
    }
}

/// Statistics of one commit; all belong to the interval of its engine time.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct CommitStatistics {
    /// What happened, by source and worker; each pair at most once.
    pub tallies: Vec<SourceTally>,
    /// Sampled levels; each subject at most once.
    pub levels: Vec<(Subject, Level)>,
    /// Jobs that failed or expired, by name and signature; each pair at most once.
    pub failures: Vec<FailureCount>,
}

/// What happened to the jobs of a source, on a worker.
#[derive(Debug, Clone, PartialEq)]
pub struct SourceTally {
    /// Source of the jobs.
    pub source: Arc<JobSource>,
    /// Worker of the executions; `None` for jobs that have no execution.
    pub worker: Option<WorkerId>,
    /// What happened.
    pub tally: Tally,
}

impl CommitStatistics {
    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.tallies.is_empty() && self.levels.is_empty() && self.failures.is_empty()
    }
}

/// One interval of a series.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Point {
    /// What happened.
    pub tally: Tally,
    /// Highest sampled levels; `None` if no sample was taken.
    pub level: Option<Level>,
}

impl Point {
    /// Adds another part of the same interval, or a part of a longer interval.
    pub fn add(&mut self, other: &Self) {
        self.tally.add(&other.tally);
        self.add_level(other.level);
    }

    /// Adds a sample.
    pub fn add_level(&mut self, sample: Option<Level>) {
        self.level = match (self.level, sample) {
            (Some(level), Some(sample)) => Some(level.max(sample)),
            (level, sample) => level.or(sample),
        };
    }
}

/// Length of the intervals of a series.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Resolution {
    /// 10 seconds, kept for an hour.
    Seconds,
    /// 1 minute, kept for two days.
    Minute,
    /// 1 hour, kept for a year.
    Hour,
}

impl Resolution {
    /// All resolutions, the finest first.
    pub const ALL: &'static [Self] = &[Self::Seconds, Self::Minute, Self::Hour];

    /// Returns the number of the resolution in stores; a number never changes its meaning.
    pub const fn code(self) -> u8 {
        match self {
            Self::Seconds => 0,
            Self::Minute => 1,
            Self::Hour => 2,
        }
    }

    /// Returns the length of an interval.
    pub const fn interval(self) -> Duration {
        match self {
            Self::Seconds => Duration::from_secs(10),
            Self::Minute => Duration::from_secs(60),
            Self::Hour => Duration::from_secs(3_600),
        }
    }

    /// Returns how long intervals are kept after their end.
    pub const fn retention(self) -> Duration {
        match self {
            Self::Seconds => Duration::from_secs(3_600),
            Self::Minute => Duration::from_secs(2 * 86_400),
            Self::Hour => Duration::from_secs(366 * 86_400),
        }
    }

    /// Returns the length of a chunk: the intervals of a series that are stored together.
    pub const fn chunk(self) -> Duration {
        match self {
            Self::Seconds => Duration::from_secs(600),
            Self::Minute => Duration::from_secs(2 * 3_600),
            Self::Hour => Duration::from_secs(7 * 86_400),
        }
    }

    /// Returns the start of the interval that contains a time.
    pub fn start_of(self, at: Timestamp) -> Timestamp {
        at.floor(self.interval())
    }

    /// Returns the start of the chunk that contains a time.
    pub fn chunk_of(self, at: Timestamp) -> Timestamp {
        at.floor(self.chunk())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// H6. A job counts once for everything that it belongs to.
    #[test]
    fn a_job_counts_for_each_of_its_subjects() {
        let schedule = ScheduleId::from_bits(7);
        let source = JobSource {
            namespace: "ops".into(),
            queue: "batch".into(),
            name: "import".into(),
            schedule: Some(schedule),
        };
        let worker = WorkerId::from_bits(9);
        let kinds: Vec<_> = Subject::of(&source, Some(worker)).map(|subject| subject.kind()).collect();
        assert_eq!(kinds, SubjectKind::ALL);
        let without = JobSource { schedule: None, ..source };
        assert_eq!(Subject::of(&without, None).count(), 4);
    }

    #[test]
    fn an_interval_and_its_chunk_contain_their_time() {
        for micros in [-1, 0, 1, 1_800_000_000_000_001, 59_999_999] {
            let at = Timestamp::from_micros(micros);
            for &resolution in Resolution::ALL {
                for (start, length) in [
                    (resolution.start_of(at), resolution.interval()),
                    (resolution.chunk_of(at), resolution.chunk()),
                ] {
                    assert!(start <= at && at < start + length, "{resolution:?} {micros}");
                }
            }
        }
    }

    #[test]
    fn each_chunk_has_whole_intervals_and_each_interval_whole_finer_ones() {
        let millis = |duration: Duration| duration.as_millis();
        for &resolution in Resolution::ALL {
            assert_eq!(millis(resolution.chunk()) % millis(resolution.interval()), 0);
        }
        for pair in Resolution::ALL.windows(2) {
            assert_eq!(millis(pair[1].interval()) % millis(pair[0].interval()), 0);
            assert!(millis(pair[0].retention()) >= millis(pair[1].interval()));
        }
    }

    #[test]
    fn parts_of_an_interval_add_up_and_levels_keep_the_highest_sample() {
        let mut point = Point::default();
        for (waiting, cause) in [(3, Cause::RunFailed), (5, Cause::TimedOut), (1, Cause::RunFailed)] {
            let mut tally = Tally { submitted: 2, ..Tally::default() };
            tally.count_end(JobStatus::Failed, cause);
            tally.run_time.observe(Duration::from_millis(waiting));
            let level = Some(Level { waiting, ..Level::default() });
            point.add(&Point { tally, level });
        }
        assert_eq!((point.tally.submitted, point.tally.failed_total()), (6, 3));
        assert_eq!(point.tally.failed, [(Cause::RunFailed, 2), (Cause::TimedOut, 1)].into());
        assert_eq!(point.tally.run_time.count(), 3);
        assert_eq!(point.level.map(|level| level.waiting), Some(5));
    }
}
