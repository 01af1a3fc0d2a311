//! Tables and detailed views of jobs, executions, events, queues and artifacts.
//!
//! - [`Job`], [`SubmittedJob`], [`CancelledJob`]: `job list`, `job get`, `job watch`, `submit`, `job cancel`.
//! - [`Execution`]: `job executions`; [`JobEvent`]: `job events`; [`FeedEvent`]: `events`.
//! - [`Queue`] and [`Artifact`]: the lists and details of `queue` and `artifact`.
//! - [`job_status`], [`labels`], [`run_time`], [`at`], [`exact_or_none`], [`describe_command`]: cells that the other
//!   modules share.
//!
//! A missing value is shown as `-`. The duration of a running job counts from its current attempt.
//!
//! # Invariants
//! - Every cell passes through [`Cell::new`], which escapes control characters.
//! - Columns marked [`wide`] are shown with `-o wide` only; `cells` returns a value for each column, in their order.

use std::collections::{BTreeMap, BTreeSet};

use model::api::{
    Artifact, CancelledJob, Execution, FeedEvent, Job, JobEvent, JobResult, Namespace, Queue, SubmittedJob,
};
use model::record::FileVersion;
use model::spec::{PriorityClass, Run, Sandbox};
use model::{ExecutionStatus, JobStatus, RunId, Timestamp};
use serde::Serialize;

use super::OutputOptions;
use super::runs::started_runs;
use super::table::{Cell, Column, Detail, Row, Tone, column, wide};
use super::text::{bytes, count, escape, short};
use super::time::{exact, format_duration, relative_or_exact};

pub(super) fn job_status(status: JobStatus) -> Cell {
    let tone = match status {
        JobStatus::Ready | JobStatus::Waiting | JobStatus::Retrying => Tone::Waiting,
        JobStatus::Running => Tone::Busy,
        JobStatus::Succeeded => Tone::Good,
        JobStatus::Failed => Tone::Bad,
        JobStatus::Cancelled | JobStatus::Expired => Tone::Dim,
    };
    Cell::new(status.as_str(), tone)
}

fn execution_status(status: ExecutionStatus) -> Cell {
    let tone = match status {
        ExecutionStatus::Assigned | ExecutionStatus::Unknown => Tone::Waiting,
        ExecutionStatus::Running => Tone::Busy,
        ExecutionStatus::Succeeded => Tone::Good,
        ExecutionStatus::Failed | ExecutionStatus::Lost => Tone::Bad,
        ExecutionStatus::Cancelled | ExecutionStatus::Refused => Tone::Dim,
    };
    Cell::new(status.as_str(), tone)
}

pub(super) fn labels(labels: &BTreeMap<String, String>) -> Cell {
    if labels.is_empty() {
        return Cell::none();
    }
    labels.iter().map(|(k, v)| format!("{k}={v}")).collect::<Vec<_>>().join(",").into()
}

/// Formats a result: `exit 3`, `signal 9`, `out_of_memory`.
fn result(result: Option<&JobResult>) -> Cell {
    let Some(result) = result else { return Cell::none() };
    let text = match (result.exit_code, result.signal, result.error.as_deref()) {
        (Some(code), _, None | Some("exit_code")) => format!("exit {code}"),
        (_, Some(signal), None | Some("signal")) => format!("signal {signal}"),
        (_, _, Some(error)) => error.to_owned(),
        (None, None, None) => return Cell::none(),
    };
    Cell::new(text, if result.error.is_some() { Tone::Bad } else { Tone::Plain })
}

/// Formats the time from `started` to `finished`, or to now if it has not finished.
pub(super) fn run_time(
    look: &OutputOptions,
    started: Option<Timestamp>,
    finished: Option<Timestamp>,
) -> Cell {
    started.map(|at| format_duration(finished.unwrap_or(look.now).since(at))).into()
}

pub(super) fn at(look: &OutputOptions, at: Option<Timestamp>) -> Cell {
    at.map(|at| relative_or_exact(look, at)).into()
}

pub(super) fn exact_or_none(look: &OutputOptions, at: Option<Timestamp>) -> Cell {
    at.map(|at| exact(look, at)).into()
}

impl Row for Job {
    const COLUMNS: &'static [Column] = &[
        column("ID", 30),
        column("NAME", 16).cut(12),
        column("STATUS", 9),
        column("RESULT", 12).cut(10),
        column("ATTEMPTS", 8).optional(3),
        column("DURATION", 8).optional(2),
        column("CREATED", 10).optional(1),
        wide("NAMESPACE", 12),
        wide("QUEUE", 12),
        wide("PRIORITY", 8),
        wide("OWNER", 12),
        wide("WORKER", 30),
        wide("SCHEDULED TIME", 30),
        wide("LABELS", 12),
    ];

    fn cells(&self, look: &OutputOptions) -> Vec<Cell> {
        vec![
            self.id.to_string().into(),
            self.name.as_str().into(),
            job_status(self.status),
            // Until the job has ended, its result is that of an earlier attempt.
            result(self.result.as_ref().filter(|_| self.status.is_final())),
            self.executions.to_string().into(),
            run_time(look, started(self), self.finished_at),
            relative_or_exact(look, self.created_at).into(),
            self.namespace.as_str().into(),
            self.queue.as_str().into(),
            self.priority.to_string().into(),
            self.owner.as_deref().into(),
            self.worker_id.map(|id| id.to_string()).into(),
            relative_or_exact(look, self.due_at).into(),
            labels(&self.labels),
        ]
    }

    fn name(&self) -> String {
        self.id.to_string()
    }
}

impl Detail for Job {
    fn detail(&self, look: &OutputOptions) -> Vec<(&'static str, Cell)> {
        let mut lines = vec![
            ("Job", self.id.to_string().into()),
            ("Name", self.name.as_str().into()),
            ("Namespace", self.namespace.as_str().into()),
            ("Status", job_status(self.status)),
            ("Owner", self.owner.as_deref().into()),
            ("Queue", format!("{} (priority {})", self.queue, self.priority).into()),
            ("Priority class", self.priority_class.as_str().into()),
            ("Labels", labels(&self.labels)),
            ("Created", exact(look, self.created_at).into()),
            ("Scheduled time", exact(look, self.due_at).into()),
            ("Started", exact_or_none(look, self.started_at)),
            ("Finished", exact_or_none(look, self.finished_at)),
            ("Duration", run_time(look, started(self), self.finished_at)),
            ("Attempts", attempts(self).into()),
            ("Worker", self.worker_id.map(|id| id.to_string()).into()),
        ];
        if let Some(at) = current_attempt_started_at(self) {
            lines.insert(10, ("Attempt started", exact(look, at).into()));
        }
        let (result_title, message_title) =
            if self.status.is_final() { ("Result", "Message") } else { ("Last result", "Last message") };
        if self.status.is_final() || self.result.is_some() {
            lines.push((result_title, result(self.result.as_ref())));
        }
        let message = self.result.as_ref().and_then(|r| r.message.as_deref());
        lines.extend(message.map(|message| (message_title, Cell::from(message))));
        let output = self.result.as_ref().and_then(|r| r.output.as_ref());
        lines.extend(output.map(|output| ("Output", Cell::from(output.to_string()))));
        lines.extend(self.checkpoint.as_ref().map(|known| {
            let (size, at) = (bytes(known.size_bytes), exact(look, known.saved_at));
            ("Checkpoint", Cell::from(format!("version {}, {size}, {at}", known.version)))
        }));
        lines.extend(self.finish_by.map(|at| {
            let passed = if self.overdue { " (passed before the job ended)" } else { "" };
            ("Completion deadline", Cell::from(format!("{}{passed}", exact(look, at))))
        }));
        lines.extend(self.cancel_requested_at.map(|at| ("Cancel requested", exact(look, at).into())));
        lines.extend(self.origin.as_ref().map(|origin| {
            let text = format!("{} at {} ({})", origin.name, exact(look, origin.scheduled_for), origin.cause);
            ("Schedule", Cell::from(text))
        }));
        lines.extend(self.step.as_ref().map(|step| {
            let element = step.element.as_ref();
            let element =
                element.map(|one| format!(", element {} of {}", u64::from(one.index) + 1, one.total));
            let text =
                format!("{} of {} ({}{})", step.name, step.workflow, step.run, element.unwrap_or_default());
            ("Step", Cell::from(text))
        }));
        lines.extend(self.replica.as_ref().map(|replica| {
            let text =
                format!("{} of service {}, revision {}", replica.replica, replica.name, replica.revision);
            ("Replica", Cell::from(text))
        }));
        lines.extend(self.retry_of.map(|job| ("Retry of", job.to_string().into())));
        lines.extend(started_runs(&self.started_runs));
        lines.extend(self.spec.as_ref().map(|spec| ("Command", describe_command(&spec.run).into())));
        let process = self.spec.as_ref().and_then(|spec| spec.run.as_process());
        let sandbox = process.map(|process| process.sandbox).filter(|sandbox| !sandbox.is_none());
        lines.extend(sandbox.map(|sandbox| ("Sandbox", describe_sandbox(&sandbox).into())));
        lines
    }
}

/// Start time that the duration counts from: that of the current attempt, or of the first once the job has ended.
fn started(job: &Job) -> Option<Timestamp> {
    current_attempt_started_at(job).or(job.started_at)
}

/// Start time of the current attempt, if it is not the first.
fn current_attempt_started_at(job: &Job) -> Option<Timestamp> {
    job.execution_started_at.filter(|_| !job.status.is_final() && job.executions > 1)
}

fn attempts(job: &Job) -> String {
    let mut text = job.executions.to_string();
    let failures =
        [(job.run_failures, "failed"), (job.start_failures, "failed to start"), (job.losses, "lost")];
    let failures: Vec<_> =
        failures.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}")).collect();
    if !failures.is_empty() {
        text.push_str(&format!(" ({})", failures.join(", ")));
    }
    text
}

pub(super) fn describe_command(run: &Run) -> String {
    match run {
        Run::Process(process) => match &process.script {
            Some(script) => format!("script ({})", count(script.lines().count() as u64, "line")),
            None => short(&process.command.join(" "), 100),
        },
        Run::Container(container) => {
            let what = match &container.script {
                Some(script) => format!("script ({})", count(script.lines().count() as u64, "line")),
                None => [container.entrypoint.as_slice(), &container.command].concat().join(" "),
            };
            short(format!("{} {what}", container.image).trim_end(), 100)
        }
        Run::Http(http) => short(&format!("{} {}", http.effective_method(), http.url), 100),
        other => other.runtime().to_owned(),
    }
}

/// Returns the sandbox of a process as `strict (network: none)`.
fn describe_sandbox(sandbox: &Sandbox) -> String {
    format!("{} (network: {})", sandbox.level, sandbox.network())
}

/// Returns the minimum sandbox of a namespace as `strict (network: at most loopback)`.
fn describe_minimum(sandbox: &Sandbox) -> String {
    match sandbox.network {
        Some(network) => format!("{} (network: at most {network})", sandbox.level),
        None => sandbox.level.to_string(),
    }
}

impl Row for SubmittedJob {
    const COLUMNS: &'static [Column] = &[column("ID", 30), column("CREATED", 7)];

    fn cells(&self, _look: &OutputOptions) -> Vec<Cell> {
        vec![self.id.to_string().into(), if self.created { "yes" } else { "no" }.into()]
    }

    fn name(&self) -> String {
        self.id.to_string()
    }
}

impl Row for CancelledJob {
    const COLUMNS: &'static [Column] = &[column("ID", 30), column("STATUS", 9)];

    fn cells(&self, _look: &OutputOptions) -> Vec<Cell> {
        vec![self.id.to_string().into(), job_status(self.status)]
    }

    fn name(&self) -> String {
        self.id.to_string()
    }
}

impl Row for Execution {
    const COLUMNS: &'static [Column] = &[
        column("ID", 30),
        column("JOB", 30),
        column("ATTEMPT", 7).optional(3),
        column("STATUS", 9),
        column("RESULT", 12).cut(10).optional(1),
        column("DURATION", 8).optional(2),
        column("CPU TIME", 8).optional(6),
        column("PEAK MEMORY", 11).optional(5),
        column("ASSIGNED", 10).optional(4),
        wide("STARTED", 30),
        wide("FINISHED", 30),
        wide("WORKER", 30),
        wide("FENCE", 12),
        wide("MESSAGE", 20),
        wide("INPUTS", 24),
        wide("OUTPUTS", 24),
    ];

    fn cells(&self, look: &OutputOptions) -> Vec<Cell> {
        vec![
            self.id.to_string().into(),
            self.job_id.to_string().into(),
            self.number.to_string().into(),
            execution_status(self.status),
            result(self.result.as_ref()),
            self.usage.as_ref().map_or_else(
                || run_time(look, self.started_at, self.finished_at),
                |usage| format_duration(usage.run_time).into(),
            ),
            self.usage.as_ref().map(|usage| format_duration(usage.cpu_time)).into(),
            self.usage.as_ref().map(|usage| bytes(usage.peak_memory_bytes)).into(),
            relative_or_exact(look, self.assigned_at).into(),
            at(look, self.started_at),
            at(look, self.finished_at),
            self.worker_id.to_string().into(),
            self.fence.to_string().into(),
            self.result.as_ref().and_then(|r| r.message.as_deref()).into(),
            versions(self.files.as_ref().map(|files| files.inputs.as_slice())),
            versions(self.files.as_ref().map(|files| files.outputs.as_slice())),
        ]
    }

    fn name(&self) -> String {
        self.id.to_string()
    }
}

/// Execution in the list of one job: the table has no column for the job.
#[derive(Debug, Serialize)]
#[serde(transparent)]
pub(crate) struct ExecutionOfJob(pub(crate) Execution);

impl ExecutionOfJob {
    /// Index of the column that is left out.
    const JOB: usize = 1;

    const OTHER_COLUMNS: [Column; Execution::COLUMNS.len() - 1] = {
        let mut columns = [Execution::COLUMNS[0]; Execution::COLUMNS.len() - 1];
        let mut i = 0;
        while i < columns.len() {
            columns[i] = Execution::COLUMNS[if i < Self::JOB { i } else { i + 1 }];
            i += 1;
        }
        columns
    };
}

impl Row for ExecutionOfJob {
    const COLUMNS: &'static [Column] = &Self::OTHER_COLUMNS;

    fn cells(&self, look: &OutputOptions) -> Vec<Cell> {
        let mut cells = self.0.cells(look);
        cells.remove(Self::JOB);
        cells
    }

    fn name(&self) -> String {
        self.0.name()
    }
}

/// Formats versions of artifacts, each with the first 12 digits of its hash: `rows@4f2c19ab37de`.
fn versions(files: Option<&[FileVersion]>) -> Cell {
    let short = |version: &FileVersion| {
        let hash: String = version.sha256.chars().take(12).collect();
        format!("{}@{hash}", version.artifact)
    };
    files
        .map(|files| files.iter().map(short).collect::<Vec<_>>().join(" "))
        .filter(|text| !text.is_empty())
        .into()
}

impl Row for JobEvent {
    const COLUMNS: &'static [Column] = &[
        column("TIME", 30),
        column("STATUS", 9),
        column("CAUSE", 16).optional(2),
        column("ATTEMPT", 7).optional(1),
        column("MESSAGE", 40).cut(30),
    ];

    fn cells(&self, _look: &OutputOptions) -> Vec<Cell> {
        let message = match &self.detail {
            Some(detail) if !self.message.contains(detail.as_str()) => format!("{} ({detail})", self.message),
            _ => self.message.clone(),
        };
        vec![
            self.at.to_string().into(),
            job_status(self.to),
            self.cause.as_str().into(),
            self.execution.map(|n| n.to_string()).into(),
            message.into(),
        ]
    }

    fn name(&self) -> String {
        self.to.to_string()
    }
}

impl Row for FeedEvent {
    const COLUMNS: &'static [Column] = &[
        column("SEQ", 8).optional(2),
        column("TIME", 27),
        column("TYPE", 17),
        column("OBJECT", 30),
        column("CAUSE", 14).optional(1),
        wide("NAMESPACE", 12),
        wide("EXECUTION", 30),
        wide("WORKER", 30),
    ];

    fn cells(&self, _look: &OutputOptions) -> Vec<Cell> {
        // The object of a step event is the step: the job has events of its own.
        let job = self.job_id.filter(|_| self.step.is_none());
        let subject = job
            .map(|id| id.to_string())
            .or_else(|| self.run_id.map(|id| subject_of_run(id, self.step.as_deref())))
            .or_else(|| self.queue.clone())
            .or_else(|| self.schedule.clone())
            .or_else(|| self.workflow.clone())
            .or_else(|| self.backfill_id.map(|id| id.to_string()))
            .or_else(|| self.calendar.clone())
            .or_else(|| self.service.clone())
            .or_else(|| self.worker_id.map(|id| id.to_string()));
        vec![
            self.seq.to_string().into(),
            self.at.to_string().into(),
            self.to.map_or_else(|| self.kind.as_str().into(), |to| with_tone_of(&self.kind, &job_status(to))),
            subject.into(),
            event_cause(self).into(),
            self.namespace.as_deref().into(),
            self.execution_id.map(|id| id.to_string()).into(),
            self.worker_id.map(|id| id.to_string()).into(),
        ]
    }

    fn name(&self) -> String {
        self.seq.to_string()
    }
}

fn event_cause(event: &FeedEvent) -> Option<String> {
    let cause = event.cause.map(|cause| cause.as_str()).or(event.outcome.map(|outcome| outcome.as_str()));
    let cause = cause.or(event.not_triggered.as_ref().map(|told| told.refusal.reason.as_str()));
    let cause = cause.or(event.health.map(|health| health.as_str()));
    let availability =
        event.available.zip(event.replicas).map(|(available, replicas)| format!("{available}/{replicas}"));
    cause
        .map(str::to_owned)
        .or(availability)
        .or(event.revision.map(|revision| format!("revision {revision}")))
}

/// Formats a run, or a step of it: `run_… load`.
fn subject_of_run(run: RunId, step: Option<&str>) -> String {
    step.map_or_else(|| run.to_string(), |step| format!("{run} {step}"))
}

fn with_tone_of(text: &str, like: &Cell) -> Cell {
    Cell::new(text, like.tone())
}

pub(super) fn queue_status(queue: &Queue) -> Cell {
    if queue.settings.paused { Cell::new("paused", Tone::Waiting) } else { Cell::new("open", Tone::Good) }
}

impl Row for Queue {
    const COLUMNS: &'static [Column] = &[
        column("NAME", 16),
        column("STATUS", 8),
        column("WAITING", 8),
        column("RUNNING", 8),
        column("LIMIT", 6).optional(1),
        column("RATE LIMIT", 10).optional(3),
        column("OLDEST WAITING", 14).optional(2),
        wide("BURST", 6),
        wide("WEIGHT", 6),
        wide("VERSION", 7),
        wide("NOTE", 20),
    ];

    fn cells(&self, look: &OutputOptions) -> Vec<Cell> {
        let settings = &self.settings;
        vec![
            self.name.as_str().into(),
            queue_status(self),
            self.waiting.to_string().into(),
            self.running.to_string().into(),
            settings.concurrency.map(|n| n.to_string()).into(),
            settings.rate_per_second.map(|n| format!("{n}/s")).into(),
            at(look, self.oldest_waiting_since),
            settings.burst.map(|n| n.to_string()).into(),
            settings.weight.to_string().into(),
            self.version.to_string().into(),
            settings.note.as_deref().into(),
        ]
    }

    fn name(&self) -> String {
        escape(&self.name)
    }
}

impl Detail for Queue {
    fn detail(&self, look: &OutputOptions) -> Vec<(&'static str, Cell)> {
        let settings = &self.settings;
        let unlimited = || Cell::from("unlimited");
        let mut lines = vec![
            ("Queue", self.name.as_str().into()),
            ("Status", queue_status(self)),
            ("Note", settings.note.as_deref().into()),
            ("Waiting", self.waiting.to_string().into()),
            ("Running", self.running.to_string().into()),
            ("Oldest waiting", exact_or_none(look, self.oldest_waiting_since)),
            ("Concurrency limit", settings.concurrency.map_or_else(unlimited, |n| n.to_string().into())),
            ("Rate limit", settings.rate_per_second.map_or_else(unlimited, |n| format!("{n}/s").into())),
            ("Burst", settings.burst.map(|n| n.to_string()).into()),
            ("Weight", settings.weight.to_string().into()),
            ("Version", self.version.to_string().into()),
        ];
        for (namespace, weight) in &settings.namespace_weights {
            lines.push(("Namespace weight", format!("{namespace}={weight}").into()));
        }
        lines
    }
}

/// Returns the usage and its limit: `3 of 8`, or `3` without a limit.
fn of_quota(used: &dyn std::fmt::Display, limit: Option<&dyn std::fmt::Display>) -> Cell {
    limit.map_or_else(|| used.to_string(), |limit| format!("{used} of {limit}")).into()
}

impl Row for Namespace {
    const COLUMNS: &'static [Column] = &[
        column("NAME", 16),
        column("JOBS", 8),
        column("RUNNING", 8),
        column("CPU", 10),
        column("MEMORY", 16),
        column("MAX CLASS", 11).optional(1),
        wide("VERSION", 7),
        wide("NOTE", 20),
    ];

    fn cells(&self, _look: &OutputOptions) -> Vec<Cell> {
        let (quota, usage) = (&self.settings.quota, &self.usage);
        let limit_of_memory = quota.memory.map(|memory| bytes(memory.0));
        vec![
            self.name.as_str().into(),
            of_quota(&usage.jobs, quota.jobs.as_ref().map(|limit| limit as _)),
            of_quota(&usage.running, quota.running.as_ref().map(|limit| limit as _)),
            of_quota(&usage.cpu, quota.cpu.as_ref().map(|limit| limit as _)),
            of_quota(&bytes(usage.memory.0), limit_of_memory.as_ref().map(|limit| limit as _)),
            self.settings.max_priority_class.map(|class| class.to_string()).into(),
            self.version.to_string().into(),
            self.settings.note.as_deref().into(),
        ]
    }

    fn name(&self) -> String {
        escape(&self.name)
    }
}

impl Detail for Namespace {
    fn detail(&self, _look: &OutputOptions) -> Vec<(&'static str, Cell)> {
        let (quota, usage) = (&self.settings.quota, &self.usage);
        let limit_of_memory = quota.memory.map(|memory| bytes(memory.0));
        let class = self.settings.max_priority_class.unwrap_or(PriorityClass::High);
        let mut lines = vec![
            ("Namespace", self.name.as_str().into()),
            ("Jobs", of_quota(&usage.jobs, quota.jobs.as_ref().map(|limit| limit as _))),
            ("Running jobs", of_quota(&usage.running, quota.running.as_ref().map(|limit| limit as _))),
            ("Allocated CPU", of_quota(&usage.cpu, quota.cpu.as_ref().map(|limit| limit as _))),
            (
                "Allocated memory",
                of_quota(&bytes(usage.memory.0), limit_of_memory.as_ref().map(|limit| limit as _)),
            ),
            ("Highest priority class", class.to_string().into()),
            ("Minimum sandbox", describe_minimum(&self.settings.sandbox).into()),
            ("Note", self.settings.note.as_deref().into()),
            ("Version", self.version.to_string().into()),
        ];
        let resources: BTreeSet<&String> = usage.custom.keys().chain(quota.custom.keys()).collect();
        for resource in resources {
            let used = usage.custom.get(resource).copied().unwrap_or(0);
            let text = match quota.custom.get(resource) {
                Some(limit) => format!("{resource}: {used} of {limit}"),
                None => format!("{resource}: {used}"),
            };
            lines.push(("Resource", text.into()));
        }
        lines
    }
}

impl Row for Artifact {
    const COLUMNS: &'static [Column] = &[
        column("NAME", 20),
        column("SIZE", 10),
        column("SHA256", 16).optional(2),
        column("CREATED", 10).optional(1),
        wide("NAMESPACE", 12),
        wide("CREATED BY", 20),
    ];

    fn cells(&self, look: &OutputOptions) -> Vec<Cell> {
        let hash = if look.wide() { self.sha256.clone() } else { self.sha256.chars().take(16).collect() };
        vec![
            self.name.as_str().into(),
            bytes(self.size_bytes).into(),
            hash.into(),
            relative_or_exact(look, self.created_at).into(),
            self.namespace.as_str().into(),
            self.created_by.as_str().into(),
        ]
    }

    fn name(&self) -> String {
        format!("{}@sha256:{}", escape(&self.name), escape(&self.sha256))
    }
}

#[cfg(test)]
mod tests {
    use serde::de::DeserializeOwned;
    use serde_json::json;

    use super::*;
    use crate::output::{Format, list, one};

    fn look(format: Format) -> OutputOptions {
        OutputOptions { format, color: false, now: "2026-11-21T08:10:00Z".parse().unwrap(), width: None }
    }

    fn from<T: DeserializeOwned>(value: serde_json::Value) -> T {
        serde_json::from_value(value).unwrap()
    }

    const JOB: &str = "job_01k9zq3m6c0000000000000000";
    const EXECUTION: &str = "exe_01k9zq3m6c0000000000000000";
    const WORKER: &str = "wkr_01k9zq3m6c0000000000000000";

    fn waiting() -> Job {
        from(json!({
            "id": JOB, "name": "evil\u{1b}[31m\nname", "namespace": "default", "owner": "admin", "queue": "mail",
            "priority": 50, "status": "waiting", "version": 1, "created_at": "2026-11-21T08:00:00Z",
            "due_at": "2026-11-21T08:00:00Z", "updated_at": "2026-11-21T08:00:00Z",
            "executions": 0, "run_failures": 0, "start_failures": 0,
        }))
    }

    fn failed() -> Job {
        from(json!({
            "id": JOB, "name": "report", "namespace": "default", "queue": "default", "priority": 80,
            "labels": {"team": "pay", "x": "y"}, "status": "failed", "version": 7,
            "created_at": "2026-11-21T08:00:00Z", "due_at": "2026-11-21T08:00:00Z",
            "started_at": "2026-11-21T08:01:00Z", "finished_at": "2026-11-21T08:05:30Z",
            "updated_at": "2026-11-21T08:05:30Z", "executions": 3, "run_failures": 2, "start_failures": 1,
            "execution_id": EXECUTION, "worker_id": WORKER, "retry_of": JOB,
            "result": {"exit_code": 3, "error": "exit_code", "message": "exited with 3", "output": {"rows": 7}},
            "spec": {"run": {"process": {"command": ["make", "report"]}}},
        }))
    }

    fn queue() -> Queue {
        from(json!({
            "name": "mail", "version": 4, "waiting": 12, "running": 2, "oldest_waiting_since": "2026-11-21T08:00:00Z",
            "settings": {"concurrency": 2, "rate_per_second": 0.5, "weight": 3, "paused": true, "note": "night shift",
                         "namespace_weights": {"pay": 4}},
        }))
    }

    #[test]
    fn the_job_of_a_service_names_its_replica() {
        let mut job = failed();
        job.replica = from(
            json!({"service": "svc_01k9zq3m6c0000000000000000", "name": "web", "revision": 2, "replica": 0}),
        );
        let text = one(&look(Format::Table), &job).unwrap();
        let line = text.lines().find(|line| line.starts_with("Replica:")).unwrap();
        assert!(line.ends_with("0 of service web, revision 2"), "{line}");
    }

    #[test]
    fn jobs_as_a_table() {
        let jobs = [waiting(), failed()];
        insta::assert_snapshot!("jobs_table", list(&look(Format::Table), &jobs).unwrap());
        insta::assert_snapshot!("jobs_wide", list(&look(Format::Wide), &jobs).unwrap());
        insta::assert_snapshot!("job_detail", one(&look(Format::Table), &failed()).unwrap());
    }

    #[test]
    fn jobs_for_programs_read_back_as_the_same() {
        let json = list(&look(Format::Json), &[failed()]).unwrap();
        assert_eq!(serde_json::from_str::<Vec<Job>>(&json).unwrap(), [failed()]);
        let yaml = one(&look(Format::Yaml), &failed()).unwrap();
        assert_eq!(serde_saphyr::from_str::<Job>(&yaml).unwrap(), failed());
        assert_eq!(list(&look(Format::Name), &[failed()]).unwrap(), format!("{JOB}\n"));
    }

    #[test]
    fn colors_carry_no_additional_information() {
        let coloured = list(&OutputOptions { color: true, ..look(Format::Table) }, &[failed()]).unwrap();
        assert!(coloured.contains("\u{1b}["), "{coloured}");
        let plain: String = coloured
            .split('\u{1b}')
            .enumerate()
            .map(|(i, part)| if i == 0 { part } else { part.split_once('m').map_or("", |(_, rest)| rest) })
            .collect();
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(words(&plain), words(&list(&look(Format::Table), &[failed()]).unwrap()));
    }

    #[test]
    fn executions_as_a_table() {
        let running: Execution = from(json!({
            "id": EXECUTION, "job_id": JOB, "job_name": "report", "namespace": "default", "number": 2, "fence": 16777217,
            "worker_id": WORKER, "status": "running", "assigned_at": "2026-11-21T08:08:00Z",
            "started_at": "2026-11-21T08:08:01Z",
        }));
        let ended: Execution = from(json!({
            "id": EXECUTION, "job_id": JOB, "job_name": "report", "namespace": "default", "number": 1, "fence": 16777216,
            "worker_id": WORKER, "status": "failed", "assigned_at": "2026-11-21T08:00:00Z",
            "started_at": "2026-11-21T08:00:01Z", "finished_at": "2026-11-21T08:00:05Z",
            "result": {"signal": 9, "error": "out_of_memory", "message": "used more than 64 MiB"},
            "usage": {"run_time": "3s250ms", "cpu_time": "1s100ms", "peak_memory_bytes": 67108864, "log_bytes": 10},
        }));
        let executions = [running, ended];
        insta::assert_snapshot!("executions_table", list(&look(Format::Table), &executions).unwrap());
        insta::assert_snapshot!("executions_wide", list(&look(Format::Wide), &executions).unwrap());
    }

    #[test]
    fn queues_as_a_table() {
        let plain: Queue =
            from(json!({"name": "default", "version": 0, "waiting": 0, "running": 0, "settings": {}}));
        insta::assert_snapshot!("queues_table", list(&look(Format::Table), &[queue(), plain]).unwrap());
        insta::assert_snapshot!("queues_wide", list(&look(Format::Wide), &[queue()]).unwrap());
        insta::assert_snapshot!("queue_detail", one(&look(Format::Table), &queue()).unwrap());
    }

    #[test]
    fn artifacts_as_a_table() {
        let artifact: Artifact = from(json!({
            "namespace": "default", "name": "tool", "sha256": "0123456789abcdef".repeat(4), "size_bytes": 1500000,
            "created_at": "2026-11-21T08:00:00Z", "created_by": "admin",
        }));
        insta::assert_snapshot!(
            "artifacts_table",
            list(&look(Format::Table), std::slice::from_ref(&artifact)).unwrap()
        );
        insta::assert_snapshot!("artifacts_wide", list(&look(Format::Wide), &[artifact]).unwrap());
    }

    #[test]
    fn a_history_and_the_feed_as_tables() {
        let history: Vec<JobEvent> = from(json!([
            {"at": "2026-11-21T08:00:00Z", "to": "waiting", "cause": "submitted", "message": "The job was submitted.", "detail": "admin"},
            {"at": "2026-11-21T08:00:00.5Z", "from": "waiting", "to": "running", "cause": "placed", "message": "The job was placed on a worker.", "execution": 1},
        ]));
        insta::assert_snapshot!("history_table", list(&look(Format::Table), &history).unwrap());
        let feed: Vec<FeedEvent> = from(json!([
            {"seq": 7, "at": "2026-11-21T08:00:00Z", "type": "job.failed", "namespace": "default", "job_id": JOB,
             "from": "running", "to": "failed", "cause": "run_failed", "execution_id": EXECUTION, "worker_id": WORKER},
            {"seq": 8, "at": "2026-11-21T08:00:00Z", "type": "worker.lost", "worker_id": WORKER, "worker_status": "lost"},
            {"seq": 9, "at": "2026-11-21T08:00:00Z", "type": "queue.updated", "queue": "mail"},
            {"seq": 10, "at": "2026-11-21T08:00:00Z", "type": "rollout.completed", "service_id": "svc_01k9zq3m6c0000000000000000", "service": "web", "revision": 2},
            {"seq": 11, "at": "2026-11-21T08:00:00Z", "type": "service.availability", "service": "web", "available": 2, "replicas": 3},
            {"seq": 12, "at": "2026-11-21T08:00:00Z", "type": "execution.health", "job_id": JOB, "execution_id": EXECUTION, "health": "unhealthy"},
        ]));
        let lines: String = feed
            .iter()
            .enumerate()
            .map(|(i, event)| crate::output::table::line(&look(Format::Table), event, i == 0))
            .collect();
        insta::assert_snapshot!("feed_lines", lines);
    }
}
