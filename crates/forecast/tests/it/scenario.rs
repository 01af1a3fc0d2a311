//! Builders of plans with defaults for all fields that a test does not need.

use forecast::{Answer, Plan, QualifiedName, RunHistory, Schedule, Worker, forecast};
use model::timing::{Cron, Dialect, Rule, Timing};
use model::worker::Capacity;
use model::{Bytes, Duration, JobSpec, Millicores, ScheduleSpec, Timestamp};

/// A Saturday.
pub(crate) const FROM: &str = "2026-11-21T00:00:00Z";

pub(crate) fn time(text: &str) -> Timestamp {
    text.parse().unwrap()
}

pub(crate) fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

pub(crate) fn minutes(minutes: u64) -> Duration {
    Duration::from_secs(minutes * 60)
}

/// Returns an empty plan for this number of hours from [`FROM`].
pub(crate) fn hours(hours: u64) -> Plan {
    Plan::new(time(FROM), time(FROM) + Duration::from_hours(hours))
}

pub(crate) fn cron(expression: &str) -> Timing {
    let cron = Cron { expression: expression.into(), dialect: Dialect::default() };
    Timing { rules: vec![Rule::Cron(cron)], ..Timing::default() }
}

/// Returns a schedule whose jobs request one CPU core.
pub(crate) fn schedule(name: &str, expression: &str) -> ScheduleSpec {
    let mut job = JobSpec::command(["true"]);
    job.resources.cpu = Some(Millicores(1_000));
    ScheduleSpec::new(name, cron(expression), job)
}

pub(crate) fn worker(name: &str, cpus: u32) -> Worker {
    let capacity = Capacity {
        cpu: Millicores(cpus * 1_000),
        memory: Bytes(u64::from(cpus) << 30),
        slots: 100,
        ..Capacity::default()
    };
    Worker::new(name, capacity)
}

pub(crate) trait Build {
    /// Adds a schedule whose runs always take `run_time`.
    fn with(self, spec: ScheduleSpec, run_time: Duration) -> Self;
    fn worker(self, name: &str, cpus: u32) -> Self;
    fn answer(&self) -> Answer;
}

impl Build for Plan {
    fn with(mut self, spec: ScheduleSpec, run_time: Duration) -> Self {
        let name = QualifiedName::new(spec.namespace.as_str(), spec.name.as_str());
        self.history.schedules.insert(name, RunHistory::steady(run_time));
        self.schedules.push(Schedule::from(spec));
        self
    }

    fn worker(mut self, name: &str, cpus: u32) -> Self {
        self.workers.push(worker(name, cpus));
        self
    }

    fn answer(&self) -> Answer {
        forecast(self, &mut |_| {}).unwrap()
    }
}
