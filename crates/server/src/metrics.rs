//! Metrics of the server for Prometheus, in OpenMetrics or the text format.
//!
//! The node feeds counters and histograms from batches after their commit, so a count never reports an uncommitted
//! change. Gauges of queues, workers, schedules and services are set from the engine's view at each scrape.
//!
//! # Invariants
//! - The values of a label are bounded: statuses, outcomes, and at most [`QUEUES_MAX`] queues; the others are summed up
//!   as `_other`.
//! - Counters continue when the engine is reloaded.
//!
//! # Cost
//! A commit costs one pass over its changes. A scrape writes all metrics into one string, under a lock.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use engine::View;
use model::alert::Severity;
use model::firing::{FiringCause, FiringOutcome, ScheduleStatus};
use model::record::{Batch, Change, ExecutionRecord, JobState};
use model::spec::DEFAULT;
use model::worker::WorkerStatus;
use model::{ExecutionStatus, JobStatus, Timestamp};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

/// Exposition format of the metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exposition {
    /// OpenMetrics 1.0.
    OpenMetrics,
    /// Prometheus' text format 0.0.4, which every scraper accepts.
    Text,
}

impl Exposition {
    /// Selects the format from a header `Accept`: OpenMetrics if it is accepted by name, otherwise the text format.
    pub fn negotiated(accept: &str) -> Self {
        let refused = |parameter: &str| matches!(parameter.trim(), "q=0" | "q=0.0" | "q=0.00" | "q=0.000");
        let named = accept.split(',').any(|each| {
            let mut parts = each.split(';');
            let media_type = parts.next().unwrap_or_default().trim();
            media_type.eq_ignore_ascii_case("application/openmetrics-text") && !parts.any(refused)
        });
        if named { Self::OpenMetrics } else { Self::Text }
    }

    /// Returns the value of the header `Content-Type`.
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// Most queues with their own time series.
pub const QUEUES_MAX: usize = 100;
/// Label of all queues without their own time series. Not a valid name of a queue.
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

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SeverityLabel {
    severity: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabel {
    result: &'static str,
}

/// Reason why this server closed a stream of a worker.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabel {
    reason: &'static str,
}

/// Source of the rows of a new leader's engine: `followed` as a standby, or `loaded` after the takeover.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RowsLabel {
    rows: &'static str,
}

/// All metrics of the server; clones share their values.
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
    services: Gauge,
    services_degraded: Gauge,
    rollouts_failed: Gauge,
    replicas_desired: Gauge,
    replicas_available: Gauge,
    firings: Family<OutcomeLabel, Counter>,
    previous: Arc<Mutex<PreviousView>>,
    firing_delay_seconds: Histogram,
    commit_seconds: Histogram,
    batch_changes: Histogram,
    start_delay_seconds: Histogram,
    run_seconds: Histogram,
    inbox_depth: Gauge,
    log_bytes: Counter,
    worker_streams_closed: Family<ReasonLabel, Counter>,
    engine_reloads: Counter,
    leader: Gauge,
    standby_ready: Gauge,
    takeovers: Family<RowsLabel, Counter>,
    suspensions: Counter,
    tails_lost: Counter,
    executions_lost: Counter,
    engine_panics: Counter,
    quarantined: Counter,
    alerts: Family<SeverityLabel, Gauge>,
    notifications: Family<ResultLabel, Counter>,
    clock_ahead: Gauge,
    clock_refused: Gauge,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// Creates and registers all metrics, at zero.
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
            services: Gauge::default(),
            services_degraded: Gauge::default(),
            rollouts_failed: Gauge::default(),
            replicas_desired: Gauge::default(),
            replicas_available: Gauge::default(),
            firings: Family::default(),
            previous: Arc::default(),
            firing_delay_seconds: Histogram::new(exponential_buckets(0.001, 2.0, 20)),
            commit_seconds: Histogram::new(exponential_buckets(0.000_25, 2.0, 16)),
            batch_changes: Histogram::new(exponential_buckets(1.0, 4.0, 9)),
            start_delay_seconds: Histogram::new(exponential_buckets(0.001, 2.0, 18)),
            run_seconds: Histogram::new(exponential_buckets(0.001, 4.0, 12)),
            inbox_depth: Gauge::default(),
            log_bytes: Counter::default(),
            worker_streams_closed: Family::default(),
            engine_reloads: Counter::default(),
            leader: Gauge::default(),
            standby_ready: Gauge::default(),
            takeovers: Family::default(),
            suspensions: Counter::default(),
            tails_lost: Counter::default(),
            executions_lost: Counter::default(),
            engine_panics: Counter::default(),
            clock_ahead: Gauge::default(),
            clock_refused: Gauge::default(),
            quarantined: Counter::default(),
            alerts: Family::default(),
            notifications: Family::default(),
        };
        metrics.register_all();
        metrics
    }

    fn register_all(&self) {
        let mut registry = self.lock();
        let r = &mut *registry;
        r.register("jobs_submitted", "Accepted jobs", self.jobs_submitted.clone());
        r.register("jobs_ended", "Jobs that reached a final status, by status", self.jobs_ended.clone());
        r.register(
            "executions_ended",
            "Executions that reached a final status, by status",
            self.executions_ended.clone(),
        );
        r.register("jobs", "Live jobs by status", self.jobs.clone());
        r.register("queue_waiting", "Waiting jobs by queue", self.queue_waiting.clone());
        r.register("queue_running", "Running jobs by queue", self.queue_running.clone());
        r.register("workers", "Known workers by status", self.workers.clone());
        r.register("schedules", "Schedules by status", self.schedules.clone());
        r.register("services", "Services", self.services.clone());
        r.register(
            "services_degraded",
            "Services with fewer available replicas than desired",
            self.services_degraded.clone(),
        );
        r.register("rollouts_failed", "Services whose rollout has failed", self.rollouts_failed.clone());
        r.register("replicas_desired", "Desired replicas of all services", self.replicas_desired.clone());
        r.register(
            "replicas_available",
            "Available replicas of all services",
            self.replicas_available.clone(),
        );
        r.register("firings", "Scheduled times decided by this server, by outcome", self.firings.clone());
        r.register(
            "firing_delay_seconds",
            "Delay from the scheduled time of a firing to the creation of its job",
            self.firing_delay_seconds.clone(),
        );
        r.register("commit_seconds", "Duration of commits", self.commit_seconds.clone());
        r.register("batch_changes", "Number of rows changed by one commit", self.batch_changes.clone());
        r.register(
            "start_delay_seconds",
            "Delay from the entry of a job into its queue to its first start",
            self.start_delay_seconds.clone(),
        );
        r.register("run_seconds", "Run time of executions", self.run_seconds.clone());
        r.register("inbox_depth", "Number of inputs that wait for the engine", self.inbox_depth.clone());
        r.register("log_bytes", "Bytes of stored log frames", self.log_bytes.clone());
        r.register(
            "worker_streams_closed",
            "Connections of workers closed by this server, by reason",
            self.worker_streams_closed.clone(),
        );
        r.register("engine_reloads", "Reloads of the engine after a failure", self.engine_reloads.clone());
        r.register("leader", "Whether this server is the leader (1) or not (0)", self.leader.clone());
        r.register(
            "standby_ready",
            "Whether this standby follows the live rows and can take over at once (1) or not (0)",
            self.standby_ready.clone(),
        );
        r.register(
            "leadership_suspensions",
            "Suspensions of leadership after a lease that the store did not confirm in time",
            self.suspensions.clone(),
        );
        r.register(
            "takeovers",
            "Takeovers by this server, by source of the live rows: followed as a standby, or loaded",
            self.takeovers.clone(),
        );
        r.register(
            "tails_lost",
            "Takeovers after which the store may lack its last commits",
            self.tails_lost.clone(),
        );
        r.register(
            "executions_forgotten",
            "Executions known to a worker but lost by the store",
            self.executions_lost.clone(),
        );
        r.register("engine_panics", "Panics of the engine; each is a bug", self.engine_panics.clone());
        r.register(
            "quarantined",
            "Rows and inputs that cannot be processed and are quarantined",
            self.quarantined.clone(),
        );
        r.register("alerts", "Open alerts on the leader, by severity", self.alerts.clone());
        r.register(
            "notifications",
            "Attempts to deliver a notification, by result",
            self.notifications.clone(),
        );
        r.register(
            "engine_time_ahead_seconds",
            "Engine time minus wall clock, if engine time is ahead; schedules and retries are delayed by it",
            self.clock_ahead.clone(),
        );
        r.register(
            "clock_leap_refused_seconds",
            "Forward leap of the wall clock that the server does not follow",
            self.clock_refused.clone(),
        );
        r.register("build", "Version of the server", Info::new([("version", env!("CARGO_PKG_VERSION"))]));
    }

    /// Sets the number of open alerts of each severity.
    pub(crate) fn set_alerts(&self, open: impl Fn(Severity) -> u64) {
        for &severity in Severity::ALL {
            let label = SeverityLabel { severity: severity.as_str() };
            self.alerts.get_or_create(&label).set(clamp(open(severity)));
        }
    }

    /// Counts an attempt to deliver a notification.
    pub(crate) fn notification(&self, is_delivered: bool) {
        let result = if is_delivered { "delivered" } else { "failed" };
        self.notifications.get_or_create(&ResultLabel { result }).inc();
    }

    /// Registers metrics of other modules, such as those of the REST API.
    pub fn register(&self, add: impl FnOnce(&mut Registry)) {
        add(&mut self.lock());
    }

    /// Returns all metrics as text. `view` has the current values of queues, workers, schedules and services; `leads` says
    /// whether this server is the leader.
    pub fn encode(&self, view: &View, leads: bool, form: Exposition) -> String {
        // Held while the view is set and encoded: two concurrent scrapes would otherwise clear each other's queues.
        let registry = self.lock();
        self.set_view(view);
        self.leader.set(leads.into());
        let mut text = String::with_capacity(16 * 1024);
        // Writing to a String fails only if a metric refuses to be encoded, and ours do not.
        let _written = prometheus_client::encoding::text::encode(&mut text, &registry);
        drop(registry);
        match form {
            Exposition::OpenMetrics => text,
            Exposition::Text => text_format(&text),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Registry> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_view(&self, view: &View) {
        self.clock_ahead.set(clamp(view.clock.ahead.as_millis() / 1_000));
        self.clock_refused.set(clamp(view.clock.refused.as_millis() / 1_000));
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
        for (gauge, value) in [
            (&self.services, view.services.services),
            (&self.services_degraded, view.services.degraded),
            (&self.rollouts_failed, view.services.failed_rollouts),
            (&self.replicas_desired, view.services.desired),
            (&self.replicas_available, view.services.available),
        ] {
            gauge.set(clamp(value));
        }
        self.set_queues(view);
    }

    /// Adds the new firings of a view. The engine counts from zero after each load.
    ///
    /// Must be called with every view of the engine, including its first one. The views of scrapes alone do not
    /// suffice: between two of them, the engine can be reloaded and fire more often than before.
    pub(crate) fn count_firings(&self, view: &View) {
        let mut seen = self.previous.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut seen.firings, view.firings.clone());
        for (outcome, &count) in &view.firings {
            let before = before.get(outcome).copied().unwrap_or(0);
            let new = if count >= before { count - before } else { count };
            self.firings.get_or_create(&OutcomeLabel { outcome: outcome.as_str() }).inc_by(new);
        }
    }

    /// Sets the gauges of the queues. An idle queue keeps its time series at zero: an alert cannot distinguish a
    /// missing time series from a missing server.
    fn set_queues(&self, view: &View) {
        let seen = &mut self.previous.lock().unwrap_or_else(PoisonError::into_inner).queues;
        seen.insert(DEFAULT.to_owned());
        for queue in &view.queues {
            if seen.len() < QUEUES_MAX {
                seen.insert(queue.name.clone());
            }
        }
        let line = |name: &str| if seen.contains(name) { name.to_owned() } else { OTHER_QUEUES.to_owned() };
        self.queue_waiting.clear();
        self.queue_running.clear();
        for name in seen.iter().map(String::as_str).chain(view.queues.iter().map(|queue| queue.name.as_str()))
        {
            let label = QueueLabel { queue: line(name) };
            self.queue_waiting.get_or_create(&label).inc_by(0);
            self.queue_running.get_or_create(&label).inc_by(0);
        }
        for queue in &view.queues {
            let label = QueueLabel { queue: line(&queue.name) };
            self.queue_waiting.get_or_create(&label).inc_by(clamp(queue.waiting));
            self.queue_running.get_or_create(&label).inc_by(clamp(queue.running));
        }
    }

    /// Counts the changes of a committed batch. `before` is the engine time of the previous batch.
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
                    if let (true, Some(usage)) = (record.status.is_final(), &record.usage) {
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

    /// Observes the start delay of a job that started after `before`, so each job is observed once.
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

    /// Sets whether this standby follows the live rows.
    pub(crate) fn set_standby_ready(&self, ready: bool) {
        self.standby_ready.set(ready.into());
    }

    /// Counts a takeover; `followed` if this server had followed the rows as a standby.
    pub(crate) fn took_over(&self, followed: bool) {
        let rows = if followed { "followed" } else { "loaded" };
        self.takeovers.get_or_create(&RowsLabel { rows }).inc();
    }

    pub(crate) fn leadership_suspended(&self) {
        self.suspensions.inc();
    }

    pub(crate) fn tail_lost(&self) {
        self.tails_lost.inc();
    }

    /// Counts an execution that a worker holds and that has no row in the store.
    pub(crate) fn count_lost_execution(&self) {
        self.executions_lost.inc();
    }

    pub(crate) fn engine_panicked(&self) {
        self.engine_panics.inc();
    }

    pub(crate) fn count_quarantined(&self, count: u64) {
        self.quarantined.inc_by(count);
    }
}

/// State of earlier views, for counters and queue labels.
#[derive(Default)]
struct PreviousView {
    /// Firings of the last view.
    firings: BTreeMap<FiringOutcome, u64>,
    /// Queues that have had their own time series since the start.
    queues: BTreeSet<String>,
}

/// Converts OpenMetrics to Prometheus' text format. The text format declares counters under the names of their samples,
/// and has no units, no type `info` and no end marker.
fn text_format(openmetrics: &str) -> String {
    let mut text = String::with_capacity(openmetrics.len());
    let mut suffix = "";
    for line in openmetrics.lines() {
        let Some(comment) = line.strip_prefix("# ") else {
            text.extend([line, "\n"]);
            continue;
        };
        let mut words = comment.splitn(3, ' ');
        let (Some(kind), Some(name), Some(rest)) = (words.next(), words.next(), words.next()) else {
            continue;
        };
        match kind {
            // The type follows the help, and determines the name of both.
            "HELP" => {
                suffix = match declared_type(openmetrics, name) {
                    Some("counter") => "_total",
                    Some("info") => "_info",
                    _ => "",
                };
                text.extend(["# HELP ", name, suffix, " ", rest, "\n"]);
            }
            "TYPE" => {
                let declared = match rest {
                    "info" | "stateset" => "gauge",
                    "unknown" => "untyped",
                    other => other,
                };
                text.extend(["# TYPE ", name, suffix, " ", declared, "\n"]);
            }
            _ => {}
        }
    }
    text
}

fn declared_type<'a>(openmetrics: &'a str, name: &str) -> Option<&'a str> {
    let mark = format!("# TYPE {name} ");
    let after = openmetrics.split_once(mark.as_str())?.1;
    after.lines().next()
}

/// Counts of one batch, indexed by the position of the status in its `ALL`.
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

    fn encoded(metrics: &Metrics, view: &View) -> String {
        metrics.encode(view, true, Exposition::Text)
    }

    #[test]
    fn queues_beyond_the_bound_share_one_line() {
        let text = encoded(&Metrics::new(), &queues(QUEUES_MAX + 7));
        // `default` has its own time series.
        assert!(text.contains("belfry_queue_waiting{queue=\"_other\"} 16\n"), "{text}");
        assert_eq!(text.lines().filter(|l| l.starts_with("belfry_queue_waiting{")).count(), QUEUES_MAX + 1);
    }

    /// An alert on a queue must still have a value when the queue is empty.
    #[test]
    fn an_idle_queue_keeps_its_lines_at_zero() {
        let metrics = Metrics::new();
        assert!(encoded(&metrics, &queues(0)).contains("belfry_queue_waiting{queue=\"default\"} 0\n"));
        assert!(encoded(&metrics, &queues(1)).contains("belfry_queue_waiting{queue=\"q0\"} 2\n"));
        let idle = encoded(&metrics, &queues(0));
        for line in ["belfry_queue_waiting{queue=\"q0\"} 0\n", "belfry_queue_running{queue=\"q0\"} 0\n"] {
            assert!(idle.contains(line), "{idle}");
        }
    }

    #[test]
    fn firing_counters_continue_after_a_reload() {
        let metrics = Metrics::new();
        let firings = |count| View { firings: [(FiringOutcome::Fired, count)].into(), ..View::default() };
        let total = |total| format!("belfry_firings_total{{outcome=\"fired\"}} {total}\n");
        for (count, sum) in [(5, 5), (7, 7), (2, 9), (2, 9)] {
            metrics.count_firings(&firings(count));
            let text = encoded(&metrics, &firings(count));
            assert!(text.contains(&total(sum)), "{text}");
        }
        // Reloaded, with more firings than before until the next scrape.
        metrics.count_firings(&View::default());
        metrics.count_firings(&firings(20));
        assert!(encoded(&metrics, &firings(20)).contains(&total(29)));
        assert!(encoded(&metrics, &View::default()).contains("# TYPE belfry_firings_total counter\n"));
    }

    /// Scrapers that support only the text format get it, in the form that `promtool check metrics` accepts.
    #[test]
    fn the_format_is_one_that_the_scraper_accepts() {
        let prometheus =
            "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.4,*/*;q=0.1";
        assert_eq!(Exposition::negotiated(prometheus), Exposition::OpenMetrics);
        for accept in ["", "*/*", "text/plain;version=0.0.4", "application/openmetrics-text;q=0,text/plain"] {
            assert_eq!(Exposition::negotiated(accept), Exposition::Text, "{accept}");
        }
        let text = encoded(&Metrics::new(), &queues(1));
        let declared: BTreeMap<_, _> =
            text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' ')).collect();
        assert!(text.ends_with('\n') && !text.contains("# EOF") && !text.contains("# UNIT"), "{text}");
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let name = line.split(['{', ' ']).next().unwrap();
            let family = ["_bucket", "_sum", "_count"].iter().find_map(|suffix| name.strip_suffix(suffix));
            let kind = declared.get(name).or_else(|| declared.get(family?));
            assert!(matches!(kind, Some(&("counter" | "gauge" | "histogram"))), "{line}: {kind:?}");
        }
        assert_eq!(declared["belfry_build_info"], "gauge");
        assert!(Metrics::new().encode(&queues(1), true, Exposition::OpenMetrics).ends_with("# EOF\n"));
    }

    #[test]
    fn other_modules_register_metrics() {
        let metrics = Metrics::new();
        let requests: Counter = Counter::default();
        metrics.register(|r| r.register("http_requests", "Requests", requests.clone()));
        requests.inc();
        assert!(encoded(&metrics, &View::default()).contains("belfry_http_requests_total 1\n"));
    }
}
