//! What is counted, for Prometheus (OpenMetrics).
//!
//! The driver feeds these from batches once they are committed, so a count never tells of something
//! that did not happen; what stands still (queues, workers) is taken from the engine's view when
//! somebody asks. Labels have few values by construction: statuses, and at most [`QUEUES_MAX`]
//! queues, the rest being summed up as `_other`.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use engine::View;
use model::firing::{FiringCause, ScheduleStatus};
use model::record::{Batch, Change, ExecutionRecord, JobState};
use model::worker::WorkerStatus;
use model::{ExecutionStatus, JobStatus, Timestamp};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

/// The content type of [`Metrics::encode`].
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// The most queues with a line of their own.
pub const QUEUES_MAX: usize = 100;
/// The queue that stands for those without a line of their own. No queue can be called so.
const OTHER_QUEUES: &str = "_other";

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StatusLabel {
    status: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct QueueLabel {
    queue: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabel {
    outcome: &'static str,
}

/// Why a worker's stream was closed by this server.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabel {
    reason: &'static str,
}

/// Where an engine has its rows from.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RowsLabel {
    rows: &'static str,
}

/// Everything that is counted; clones are cheap and count together.
#[derive(Clone)]
pub struct Metrics {
    registry: Arc<Mutex<Registry>>,
    jobs_submitted: Counter,
    jobs_ended: Family<StatusLabel, Counter>,
    executions_ended: Family<StatusLabel, Counter>,
    jobs: Family<StatusLabel, Gauge>,
    queue_waiting: Family<QueueLabel, Gauge>,
    queue_running: Family<QueueLabel, Gauge>,
    workers: Family<StatusLabel, Gauge>,
    schedules: Family<StatusLabel, Gauge>,
    firings: Family<OutcomeLabel, Gauge>,
    firing_delay_seconds: Histogram,
    commit_seconds: Histogram,
    batch_changes: Histogram,
    start_delay_seconds: Histogram,
    run_seconds: Histogram,
    inbox_depth: Gauge,
    log_bytes: Counter,
    worker_streams_closed: Family<ReasonLabel, Counter>,
    engine_reloads: Counter,
    standby_ready: Gauge,
    takeovers: Family<RowsLabel, Counter>,
    tails_lost: Counter,
    forgotten: Counter,
    engine_panics: Counter,
    quarantined: Counter,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// All at zero.
    pub fn new() -> Self {
        let metrics = Self {
            registry: Arc::new(Mutex::new(Registry::with_prefix("belfry"))),
            jobs_submitted: Counter::default(),
            jobs_ended: Family::default(),
            executions_ended: Family::default(),
            jobs: Family::default(),
            queue_waiting: Family::default(),
            queue_running: Family::default(),
            workers: Family::default(),
            schedules: Family::default(),
            firings: Family::default(),
            firing_delay_seconds: Histogram::new(exponential_buckets(0.001, 2.0, 20)),
            commit_seconds: Histogram::new(exponential_buckets(0.000_25, 2.0, 16)),
            batch_changes: Histogram::new(exponential_buckets(1.0, 4.0, 9)),
            start_delay_seconds: Histogram::new(exponential_buckets(0.001, 2.0, 18)),
            run_seconds: Histogram::new(exponential_buckets(0.001, 4.0, 12)),
            inbox_depth: Gauge::default(),
            log_bytes: Counter::default(),
            worker_streams_closed: Family::default(),
            engine_reloads: Counter::default(),
            standby_ready: Gauge::default(),
            takeovers: Family::default(),
            tails_lost: Counter::default(),
            forgotten: Counter::default(),
            engine_panics: Counter::default(),
            quarantined: Counter::default(),
        };
        metrics.register_all();
        metrics
    }

    fn register_all(&self) {
        let mut registry = self.lock();
        let r = &mut *registry;
        r.register("jobs_submitted", "Jobs that were accepted", self.jobs_submitted.clone());
        r.register("jobs_ended", "Jobs that reached a final status", self.jobs_ended.clone());
        r.register(
            "executions_ended",
            "Executions that reached a final status",
            self.executions_ended.clone(),
        );
        r.register("jobs", "Live jobs", self.jobs.clone());
        r.register("queue_waiting", "Jobs that wait in a queue", self.queue_waiting.clone());
        r.register("queue_running", "Jobs of a queue that run", self.queue_running.clone());
        r.register("workers", "Known workers", self.workers.clone());
        r.register("schedules", "Schedules", self.schedules.clone());
        r.register(
            "firings",
            "Instants of schedules that were decided since the server took its shards",
            self.firings.clone(),
        );
        r.register(
            "firing_delay_seconds",
            "From the nominal instant of a firing to the creation of its job",
            self.firing_delay_seconds.clone(),
        );
        r.register("commit_seconds", "How long commits take", self.commit_seconds.clone());
        r.register("batch_changes", "Rows that one commit changes", self.batch_changes.clone());
        r.register(
            "start_delay_seconds",
            "From a job's entering its queue to its first start",
            self.start_delay_seconds.clone(),
        );
        r.register("run_seconds", "How long executions run", self.run_seconds.clone());
        r.register("inbox_depth", "Inputs that wait for the engine", self.inbox_depth.clone());
        r.register("log_bytes", "Framed bytes of logs that were kept", self.log_bytes.clone());
        r.register(
            "worker_streams_closed",
            "Streams of workers that this server closed",
            self.worker_streams_closed.clone(),
        );
        r.register(
            "engine_reloads",
            "Times that the engine was dropped and loaded again",
            self.engine_reloads.clone(),
        );
        r.register(
            "standby_ready",
            "Whether this server follows the rows of the owner, so that it can take over at once",
            self.standby_ready.clone(),
        );
        r.register("takeovers", "Times that this server took the shards", self.takeovers.clone());
        r.register(
            "tails_lost",
            "Times that this server took shards whose last commits the store may have forgotten",
            self.tails_lost.clone(),
        );
        r.register(
            "executions_forgotten",
            "Executions that workers knew and the store had forgotten",
            self.forgotten.clone(),
        );
        r.register("engine_panics", "Defects that made the engine fail", self.engine_panics.clone());
        r.register("quarantined", "Rows and inputs that were set aside", self.quarantined.clone());
        r.register("build", "What is running", Info::new([("version", env!("CARGO_PKG_VERSION"))]));
    }

    /// Registers metrics of others, such as those of the REST API.
    pub fn register(&self, add: impl FnOnce(&mut Registry)) {
        add(&mut self.lock());
    }

    /// Everything as text, in [`CONTENT_TYPE`]. `view` tells what stands still.
    pub fn encode(&self, view: &View) -> String {
        self.set_view(view);
        let mut text = String::with_capacity(16 * 1024);
        // Writing to a String fails only if a metric refuses to be written, and ours do not.
        let _written = prometheus_client::encoding::text::encode(&mut text, &self.lock());
        text
    }

    fn lock(&self) -> MutexGuard<'_, Registry> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_view(&self, view: &View) {
        for &status in JobStatus::ALL.iter().filter(|s| !s.is_final()) {
            let jobs = view.live.get(&status).copied().unwrap_or(0);
            self.jobs.get_or_create(&StatusLabel { status: status.as_str() }).set(clamp(jobs));
        }
        for status in [WorkerStatus::Ready, WorkerStatus::Lost, WorkerStatus::Expected] {
            let workers = view.workers.iter().filter(|w| w.status == status).count();
            self.workers
                .get_or_create(&StatusLabel { status: worker_status(status) })
                .set(clamp(workers as u64));
        }
        for status in [ScheduleStatus::Active, ScheduleStatus::Paused, ScheduleStatus::Completed] {
            let schedules = view.schedules.get(&status).copied().unwrap_or(0);
            self.schedules.get_or_create(&StatusLabel { status: status.as_str() }).set(clamp(schedules));
        }
        for (outcome, &count) in &view.firings {
            self.firings.get_or_create(&OutcomeLabel { outcome: outcome.as_str() }).set(clamp(count));
        }
        // Queues come and go, so their lines are made anew.
        self.queue_waiting.clear();
        self.queue_running.clear();
        for (i, queue) in view.queues.iter().enumerate() {
            let name = if i < QUEUES_MAX { &queue.name } else { OTHER_QUEUES };
            let label = QueueLabel { queue: name.to_owned() };
            self.queue_waiting.get_or_create(&label).inc_by(clamp(queue.waiting));
            self.queue_running.get_or_create(&label).inc_by(clamp(queue.running));
        }
    }

    /// Counts what a batch made true. `before` is the engine time of the one before it.
    pub(crate) fn committed(&self, batch: &Batch, before: Timestamp, took: std::time::Duration) {
        self.commit_seconds.observe(took.as_secs_f64());
        self.batch_changes.observe(batch.changes.len() as f64);
        let mut tally = Tally::default();
        for change in &batch.changes {
            match change {
                Change::Job { new, state, .. } => {
                    tally.job(*new, state);
                    self.start_delay(state, before);
                }
                Change::Execution { record, .. } => {
                    tally.execution(record);
                    if let (true, Some(usage)) = (record.status.is_final(), record.usage) {
                        self.run_seconds.observe(usage.run_time.to_std().as_secs_f64());
                    }
                }
                Change::Ledger(record) if record.outcome.fired() && record.cause == FiringCause::Timer => {
                    let micros = record.decided_at.as_micros().saturating_sub(record.first.as_micros());
                    self.firing_delay_seconds.observe(micros as f64 / 1e6);
                }
                _ => {}
            }
        }
        self.add(&tally);
    }

    /// Counts the delay of a job that started since `before`, which it does once.
    fn start_delay(&self, state: &JobState, before: Timestamp) {
        if let (Some(queued), Some(started)) = (state.queued_at, state.started_at)
            && started > before
        {
            let micros = started.as_micros().saturating_sub(queued.as_micros());
            self.start_delay_seconds.observe(micros as f64 / 1e6);
        }
    }

    fn add(&self, tally: &Tally) {
        self.jobs_submitted.inc_by(tally.submitted);
        for (&status, &count) in JobStatus::ALL.iter().zip(&tally.jobs_ended).filter(|(_, count)| **count > 0)
        {
            self.jobs_ended.get_or_create(&StatusLabel { status: status.as_str() }).inc_by(count);
        }
        for (&status, &count) in
            ExecutionStatus::ALL.iter().zip(&tally.executions_ended).filter(|(_, count)| **count > 0)
        {
            self.executions_ended.get_or_create(&StatusLabel { status: status.as_str() }).inc_by(count);
        }
    }

    pub(crate) fn inbox(&self, depth: usize) {
        self.inbox_depth.set(clamp(depth as u64));
    }

    pub(crate) fn log_bytes(&self, bytes: u64) {
        self.log_bytes.inc_by(bytes);
    }

    pub(crate) fn worker_stream_closed(&self, reason: &'static str) {
        self.worker_streams_closed.get_or_create(&ReasonLabel { reason }).inc();
    }

    pub(crate) fn engine_reloaded(&self) {
        self.engine_reloads.inc();
    }

    /// Whether this server keeps an engine ready.
    pub(crate) fn stands_by(&self, ready: bool) {
        self.standby_ready.set(ready.into());
    }

    /// The shards were taken; with an engine that was ready, or after all rows were loaded.
    pub(crate) fn took_over(&self, followed: bool) {
        let rows = if followed { "followed" } else { "loaded" };
        self.takeovers.get_or_create(&RowsLabel { rows }).inc();
    }

    pub(crate) fn tail_lost(&self) {
        self.tails_lost.inc();
    }

    /// A worker holds an execution that the store has no row of.
    pub(crate) fn forgotten(&self) {
        self.forgotten.inc();
    }

    pub(crate) fn engine_panicked(&self) {
        self.engine_panics.inc();
    }

    pub(crate) fn set_aside(&self, count: u64) {
        self.quarantined.inc_by(count);
    }
}

/// Counts of one batch, by the position of the status in its `ALL`.
#[derive(Default)]
struct Tally {
    submitted: u64,
    jobs_ended: [u64; JobStatus::ALL.len()],
    executions_ended: [u64; ExecutionStatus::ALL.len()],
}

impl Tally {
    fn job(&mut self, new: bool, state: &JobState) {
        self.submitted += u64::from(new);
        if state.status.is_final() {
            count(&mut self.jobs_ended, JobStatus::ALL, state.status);
        }
    }

    fn execution(&mut self, record: &ExecutionRecord) {
        if record.status.is_final() {
            count(&mut self.executions_ended, ExecutionStatus::ALL, record.status);
        }
    }
}

fn count<S: PartialEq>(counts: &mut [u64], all: &[S], status: S) {
    if let Some(slot) = all.iter().position(|s| *s == status).and_then(|at| counts.get_mut(at)) {
        *slot += 1;
    }
}

fn worker_status(status: WorkerStatus) -> &'static str {
    match status {
        WorkerStatus::Ready => "ready",
        WorkerStatus::Lost => "lost",
        WorkerStatus::Expected => "expected",
    }
}

fn clamp(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use engine::output::QueueView;
    use model::queue::QueueSettings;

    use super::*;

    fn queues(count: usize) -> View {
        let queue = |i| QueueView {
            name: format!("q{i}"),
            settings: QueueSettings::default(),
            waiting: 2,
            running: 1,
            oldest: None,
            version: 0,
        };
        View { queues: (0..count).map(queue).collect(), ..View::default() }
    }

    #[test]
    fn queues_beyond_the_bound_share_one_line() {
        let text = Metrics::new().encode(&queues(QUEUES_MAX + 7));
        assert!(text.contains("belfry_queue_waiting{queue=\"_other\"} 14\n"), "{text}");
        assert_eq!(text.lines().filter(|l| l.starts_with("belfry_queue_waiting{")).count(), QUEUES_MAX + 1);
    }

    #[test]
    fn a_queue_that_is_gone_has_no_line_any_more() {
        let metrics = Metrics::new();
        assert!(metrics.encode(&queues(1)).contains("queue=\"q0\""));
        assert!(!metrics.encode(&queues(0)).contains("queue=\"q0\""));
    }

    #[test]
    fn others_add_metrics_of_their_own() {
        let metrics = Metrics::new();
        let requests: Counter = Counter::default();
        metrics.register(|r| r.register("http_requests", "Requests", requests.clone()));
        requests.inc();
        assert!(metrics.encode(&View::default()).contains("belfry_http_requests_total 1\n"));
    }
}
