//! Tables and detailed views of schedules, ledgers, backfills, calendars and previews, and the table of
//! `belfry apply`.
//!
//! - [`Schedule`]: table and detailed view; [`UpcomingFiring`]: `schedule upcoming`; [`TriggeredSchedule`]: `schedule
//!   trigger`.
//! - [`LedgerEntry`] and [`OutcomeCount`]: `schedule ledger`, without and with `--counts`. A row may stand
//!   for a range of scheduled times with the same outcome.
//! - [`Backfill`] and [`plan`]: `backfill list`, `backfill get`, and `schedule backfill --dry-run`.
//! - [`Calendar`]: `calendar list` and `calendar get`.
//! - [`preview`]: `schedule next`, in English or Chinese (`--lang`). All other output is English.
//! - [`AppliedObject`]: `apply`, for objects of every kind.
//!
//! # Invariants
//! - Times are shown in UTC. A detailed view adds the local time in the time zone of the schedule, and a
//!   preview shows both.
//! - Outcomes and statuses have the names of the API, so that a name in a table can be used as a filter.

use std::fmt::Write as _;

use model::api::{
    AppliedSchedule, Backfill, BackfillPlan, Calendar, LedgerEntry, LeftOut, LeftOutReason, Preview,
    PreviewFiring, Schedule, TriggeredSchedule, UpcomingFiring,
};
use model::firing::{BackfillStatus, FiringOutcome, ScheduleStatus};
use model::schedule::Action;
use model::timing::UTC;
use model::{RunStatus, Timestamp};
use serde::Serialize;
use timetable::{Language, Zones};

use super::objects::{at, describe_command, exact_or_none, job_status, labels};
use super::table::{Cell, Column, Detail, Row, Tone, column, wide};
use super::text::{count, escape};
use super::time::{exact, format_duration, relative_or_exact};
use super::{Format, OutputOptions};
use crate::failure::Failure;

fn status(status: ScheduleStatus) -> Cell {
    let tone = match status {
        ScheduleStatus::Active => Tone::Good,
        ScheduleStatus::Paused => Tone::Waiting,
        ScheduleStatus::Completed => Tone::Dim,
    };
    Cell::new(status.as_str(), tone)
}

fn outcome(outcome: FiringOutcome) -> Cell {
    let tone = match outcome {
        FiringOutcome::Fired => Tone::Good,
        FiringOutcome::FiredLate | FiringOutcome::Buffered => Tone::Waiting,
        FiringOutcome::SkippedLimit | FiringOutcome::SkippedDeadline | FiringOutcome::SkippedOverlap => {
            Tone::Bad
        }
        _ => Tone::Dim,
    };
    Cell::new(outcome.as_str(), tone)
}

/// Formats the success rate: `85% of 20`. The cell is marked as bad if the last run failed.
fn success_rate(schedule: &Schedule) -> Cell {
    let statistics = &schedule.statistics;
    if statistics.succeeded + statistics.failed == 0 {
        return Cell::none();
    }
    let rate = statistics.success_rate.map_or(0.0, |rate| rate * 100.0).floor();
    let text = format!("{rate}% of {}", statistics.succeeded + statistics.failed);
    Cell::new(text, if statistics.streak < 0 { Tone::Bad } else { Tone::Plain })
}

impl Row for Schedule {
    const COLUMNS: &'static [Column] = &[
        column("NAME", 20),
        column("STATUS", 9),
        column("TIMING", 20).cut(14),
        column("TIME ZONE", 16).optional(3),
        column("NEXT RUN", 10),
        column("LAST RUN", 10).optional(1),
        column("SUCCESS RATE", 12).optional(2),
        wide("ID", 30),
        wide("NAMESPACE", 12),
        wide("OWNER", 12),
        wide("FIRED", 6),
        wide("SKIPPED", 7),
        wide("MEDIAN DURATION", 15),
        wide("LABELS", 12),
    ];

    fn cells(&self, look: &OutputOptions) -> Vec<Cell> {
        vec![
            self.name.as_str().into(),
            status(self.status),
            self.when.as_str().into(),
            self.zone.as_str().into(),
            at(look, self.next_at),
            at(look, self.last.map(|last| last.scheduled_for)),
            success_rate(self),
            self.id.to_string().into(),
            self.namespace.as_str().into(),
            self.owner.as_deref().into(),
            self.fired.to_string().into(),
            self.skipped.to_string().into(),
            self.statistics.duration_p50.map(format_duration).into(),
            labels(&self.labels),
        ]
    }

    fn name(&self) -> String {
        escape(&self.name)
    }
}

impl Detail for Schedule {
    fn detail(&self, look: &OutputOptions) -> Vec<(&'static str, Cell)> {
        let statistics = &self.statistics;
        let mut lines = vec![
            ("Schedule", self.name.as_str().into()),
            ("ID", self.id.to_string().into()),
            ("Namespace", self.namespace.as_str().into()),
            ("Status", status(self.status)),
            ("Owner", self.owner.as_deref().into()),
            ("Labels", labels(&self.labels)),
            ("Description", self.description.as_deref().into()),
            ("Timing", format!("{}, in {}", self.when, self.zone).into()),
            ("Next run", self.next_at.map(|at| in_time_zone(look, at, &self.zone)).into()),
        ];
        lines.extend(self.pause.as_ref().map(|pause| {
            let note = pause.note.as_ref().map(|note| format!(": {note}")).unwrap_or_default();
            ("Paused", format!("{} by {}{note}", exact(look, pause.at), pause.by).into())
        }));
        lines.extend(self.last.map(|last| {
            let at = in_time_zone(look, last.scheduled_for, &self.zone);
            let created = last.job_id.map(|id| id.to_string()).or(last.run_id.map(|id| id.to_string()));
            ("Last run", format!("{at}: {}", created.unwrap_or_default()).into())
        }));
        let what = match self.spec.as_ref().map(|spec| &spec.action) {
            Some(Action::Workflow(_)) => "started a run",
            _ => "created a job",
        };
        let firings = format!("{} {what}, {} skipped", self.fired, self.skipped);
        lines.push(("Firings", firings.into()));
        if !self.buffered.is_empty() {
            let waiting = count(self.buffered.len() as u64, "firing");
            lines.push(("Buffered", format!("{waiting}, waiting for other runs to end").into()));
        }
        lines.push((
            "Runs",
            format!("{} succeeded, {} failed", statistics.succeeded, statistics.failed).into(),
        ));
        let streak = statistics.streak.unsigned_abs();
        let streak = match statistics.streak {
            0 => Cell::none(),
            1.. => Cell::new(format!("{streak} consecutive successes"), Tone::Good),
            _ => Cell::new(format!("{streak} consecutive failures"), Tone::Bad),
        };
        lines.push(("Streak", streak));
        let takes = statistics.duration_p50.zip(statistics.duration_p95);
        let takes = takes.map(|(p50, p95)| {
            format!("{} (median), {} (95th percentile)", format_duration(p50), format_duration(p95))
        });
        lines.push(("Duration", takes.into()));
        for (what, event, runs) in self.health.iter().flat_map(|health| {
            [("Late run", "start", &health.late_runs), ("Stuck run", "end", &health.stuck_runs)]
        }) {
            lines.extend(runs.iter().map(|run| {
                let id = run.job_id.map(|id| id.to_string()).or(run.run_id.map(|id| id.to_string()));
                let (id, by) = (id.unwrap_or_default(), exact(look, run.expected_by));
                (what, Cell::new(format!("{id}: expected to {event} by {by}"), Tone::Bad))
            }));
        }
        lines.extend(self.spec.as_ref().map(|spec| match &spec.action {
            Action::Job(job) => ("Command", describe_command(&job.run).into()),
            Action::Workflow(call) => ("Workflow", call.name.as_str().into()),
        }));
        lines.push(("Created", exact(look, self.created_at).into()));
        lines.push(("Updated", exact(look, self.updated_at).into()));
        lines.push(("Version", format!("{} (generation {})", self.version, self.generation).into()));
        lines
    }
}

/// Formats a time in the time zone of a schedule, followed by UTC.
fn in_time_zone(look: &OutputOptions, at: Timestamp, zone: &str) -> String {
    let shown = exact(look, at);
    if zone == UTC {
        return shown;
    }
    let Ok(zone) = Zones::bundled().get(zone) else { return shown };
    let local = jiff::Timestamp::from(at).to_zoned(zone);
    format!("{}, {shown}", local.strftime("%Y-%m-%dT%H:%M:%S%:z"))
}

/// Object that `belfry apply` has created, changed or left unchanged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct AppliedObject {
    pub(crate) kind: &'static str,
    pub(crate) name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) namespace: Option<String>,
    pub(crate) change: model::api::ApplyChange,
    /// Warnings about the definition; the object was applied nevertheless.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) warnings: Vec<model::api::Warning>,
}

impl From<AppliedSchedule> for AppliedObject {
    fn from(applied: AppliedSchedule) -> Self {
        let AppliedSchedule { name, namespace, change, warnings, .. } = applied;
        Self { kind: "schedule", name, namespace: Some(namespace), change, warnings }
    }
}

impl Row for AppliedObject {
    const COLUMNS: &'static [Column] =
        &[column("KIND", 9), column("NAME", 20), column("CHANGE", 9), wide("NAMESPACE", 12)];

    fn cells(&self, _look: &OutputOptions) -> Vec<Cell> {
        let tone = match self.change {
            model::api::ApplyChange::Unchanged => Tone::Dim,
            _ => Tone::Good,
        };
        vec![
            self.kind.into(),
            self.name.as_str().into(),
            Cell::new(self.change.as_str(), tone),
            self.namespace.as_deref().into(),
        ]
    }

    fn name(&self) -> String {
        format!("{}/{}", self.kind, escape(&self.name))
    }
}

impl Row for TriggeredSchedule {
    const COLUMNS: &'static [Column] =
        &[column("OUTCOME", 16), column("JOB/RUN", 30), column("SCHEDULED TIME", 30)];

    fn cells(&self, _look: &OutputOptions) -> Vec<Cell> {
        vec![
            outcome(self.outcome),
            self.job_id.map(|id| id.to_string()).or(self.run_id.map(|id| id.to_string())).into(),
            self.scheduled_for.to_string().into(),
        ]
    }

    fn name(&self) -> String {
        let created = self.job_id.map(|id| id.to_string()).or(self.run_id.map(|id| id.to_string()));
        created.unwrap_or_else(|| self.outcome.to_string())
    }
}

impl Row for UpcomingFiring {
    const COLUMNS: &'static [Column] = &[
        column("SCHEDULED TIME", 30),
        column("SCHEDULE", 20),
        column("MEDIAN DURATION", 15).optional(1),
        wide("NAMESPACE", 12),
        wide("ID", 30),
    ];

    fn cells(&self, look: &OutputOptions) -> Vec<Cell> {
        vec![
            exact(look, self.at).into(),
            self.name.as_str().into(),
            self.duration_p50.map(format_duration).into(),
            self.namespace.as_str().into(),
            self.schedule_id.to_string().into(),
        ]
    }

    fn name(&self) -> String {
        escape(&self.name)
    }
}

impl Row for LedgerEntry {
    const COLUMNS: &'static [Column] = &[
        column("SCHEDULED TIME", 27),
        column("OUTCOME", 16),
        column("CAUSE", 8).optional(4),
        column("JOB/RUN", 30).optional(1),
        column("STATUS", 9).optional(2),
        column("DETAIL", 20).cut(16).optional(3),
        wide("DECIDED", 27),
        wide("GENERATION", 10),
        wide("TZDB", 6),
    ];

    fn cells(&self, _look: &OutputOptions) -> Vec<Cell> {
        let more = if self.exact { "" } else { "+" };
        let times = match self.count {
            1 => self.scheduled_for.to_string(),
            count => format!("{} … {} ({count}{more})", self.scheduled_for, self.last),
        };
        vec![
            times.into(),
            outcome(self.outcome),
            self.cause.to_string().into(),
            self.job_id.map(|id| id.to_string()).or(self.run_id.map(|id| id.to_string())).into(),
            self.job_status.map(job_status).or(self.run_status.map(run_status)).unwrap_or_else(Cell::none),
            self.detail.as_deref().into(),
            self.decided_at.to_string().into(),
            self.generation.to_string().into(),
            self.tzdb.as_str().into(),
        ]
    }

    fn name(&self) -> String {
        self.scheduled_for.to_string()
    }
}

/// Number of scheduled times with an outcome (`belfry schedule ledger --counts`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct OutcomeCount {
    pub(crate) outcome: FiringOutcome,
    pub(crate) count: u64,
}

impl Row for OutcomeCount {
    const COLUMNS: &'static [Column] = &[column("OUTCOME", 16), column("COUNT", 8)];

    fn cells(&self, _look: &OutputOptions) -> Vec<Cell> {
        vec![outcome(self.outcome), self.count.to_string().into()]
    }

    fn name(&self) -> String {
        self.outcome.to_string()
    }
}

fn backfill_status(status: BackfillStatus) -> Cell {
    match status {
        BackfillStatus::Running => Cell::new("running", Tone::Busy),
        BackfillStatus::Completed => Cell::new("completed", Tone::Good),
        BackfillStatus::Cancelled => Cell::new("cancelled", Tone::Dim),
    }
}

impl Row for Backfill {
    const COLUMNS: &'static [Column] = &[
        column("ID", 30),
        column("SCHEDULE", 20).cut(12),
        column("STATUS", 9),
        column("STARTED", 9).optional(2),
        column("SUCCEEDED", 9).optional(1),
        column("FAILED", 6),
        column("CREATED", 10).optional(3),
        wide("FROM", 20),
        wide("UNTIL", 20),
        wide("SCHEDULE ID", 30),
        wide("CREATED BY", 12),
    ];

    fn cells(&self, look: &OutputOptions) -> Vec<Cell> {
        vec![
            self.id.to_string().into(),
            self.schedule.as_deref().into(),
            backfill_status(self.status),
            format!("{}/{}", self.started, self.total).into(),
            self.succeeded.to_string().into(),
            self.failed.to_string().into(),
            relative_or_exact(look, self.created_at).into(),
            self.from.to_string().into(),
            self.until.to_string().into(),
            self.schedule_id.to_string().into(),
            self.created_by.as_str().into(),
        ]
    }

    fn name(&self) -> String {
        self.id.to_string()
    }
}

impl Detail for Backfill {
    fn detail(&self, look: &OutputOptions) -> Vec<(&'static str, Cell)> {
        let id = self.schedule_id;
        let named = self.schedule.as_ref().map_or_else(|| id.to_string(), |name| format!("{name}, {id}"));
        vec![
            ("Backfill", self.id.to_string().into()),
            ("Schedule", format!("{named} (generation {})", self.generation).into()),
            ("Status", backfill_status(self.status)),
            ("Range", format!("{} to {}", self.from, self.until).into()),
            ("Started", format!("{} of {}", self.started, self.total).into()),
            ("Succeeded", self.succeeded.to_string().into()),
            ("Failed", self.failed.to_string().into()),
            ("Concurrency", self.concurrency.to_string().into()),
            ("Note", self.note.as_deref().into()),
            ("Created", format!("{} by {}", exact(look, self.created_at), self.created_by).into()),
            ("Finished", exact_or_none(look, self.finished_at)),
        ]
    }
}

fn left_out(left_out: &LeftOut) -> String {
    let why = match left_out.reason {
        LeftOutReason::Excluded => "excluded by the timing",
        LeftOutReason::Succeeded => "already succeeded",
        LeftOutReason::Failed => "already failed",
        LeftOutReason::NotEnded => "run has not ended",
        LeftOutReason::Purged => "already run, result purged",
    };
    let detail = left_out.detail.as_deref().map(escape);
    let detail =
        detail.or(left_out.job_id.map(|id| id.to_string())).or(left_out.run_id.map(|id| id.to_string()));
    detail.map_or_else(|| why.to_owned(), |detail| format!("{why} ({detail})"))
}

fn run_status(status: RunStatus) -> Cell {
    let tone = match status {
        RunStatus::Waiting | RunStatus::Paused | RunStatus::Retrying => Tone::Waiting,
        RunStatus::Running | RunStatus::Stopping => Tone::Busy,
        RunStatus::Succeeded => Tone::Good,
        RunStatus::Failed => Tone::Bad,
        RunStatus::Cancelled => Tone::Dim,
    };
    Cell::new(status.as_str(), tone)
}

/// Formats the plan of a backfill: the runs that would start, and the scheduled times that would be skipped.
pub(crate) fn plan(look: &OutputOptions, plan: &BackfillPlan) -> Result<String, Failure> {
    Ok(match look.format {
        Format::Json => super::json(plan)?,
        Format::Yaml => super::yaml(plan)?,
        Format::Name => plan.scheduled_times.iter().map(|at| format!("{at}\n")).collect(),
        Format::Table | Format::Wide => {
            let mut text = match plan.scheduled_times.len() as u64 {
                0 => "The backfill would start no runs.\n".to_owned(),
                runs => format!("The backfill would start {}:\n", count(runs, "run")),
            };
            plan.scheduled_times.iter().for_each(|at| push(&mut text, &format!("  {at}")));
            if plan.left_out_count > 0 {
                let left = count(plan.left_out_count, "scheduled time");
                push(&mut text, &format!("The backfill would skip {left}:"));
                for one in &plan.left_out {
                    push(&mut text, &format!("  {}  {}", one.at, left_out(one)));
                }
            }
            let hidden = plan.left_out_count - plan.left_out.len() as u64;
            if hidden > 0 {
                push(&mut text, &format!("  … and {hidden} more"));
            }
            text
        }
    })
}

fn push(text: &mut String, line: &str) {
    // Writing to a String cannot fail.
    let _ = writeln!(text, "{line}");
}

fn origin(calendar: &Calendar) -> &'static str {
    if calendar.built_in { "built-in" } else { "custom" }
}

/// Returns the version of a calendar; `None` for a built-in calendar, which cannot be changed.
fn version(calendar: &Calendar) -> Option<String> {
    (!calendar.built_in).then(|| calendar.version.to_string())
}

impl Row for Calendar {
    const COLUMNS: &'static [Column] = &[
        column("NAME", 20),
        column("TYPE", 9),
        column("DATA UNTIL", 11).optional(1),
        column("DESCRIPTION", 20).cut(20).optional(2),
        wide("NAMESPACE", 12),
        wide("VERSION", 7),
        wide("UPDATED", 20),
    ];

    fn cells(&self, look: &OutputOptions) -> Vec<Cell> {
        vec![
            self.name.as_str().into(),
            origin(self).into(),
            self.known_until.map(|day| day.to_string()).into(),
            self.description.as_deref().into(),
            self.namespace.as_deref().into(),
            version(self).into(),
            at(look, self.updated_at),
        ]
    }

    fn name(&self) -> String {
        escape(&self.name)
    }
}

impl Detail for Calendar {
    fn detail(&self, look: &OutputOptions) -> Vec<(&'static str, Cell)> {
        vec![
            ("Calendar", self.name.as_str().into()),
            ("Type", origin(self).into()),
            ("Namespace", self.namespace.as_deref().into()),
            ("Description", self.description.as_deref().into()),
            ("Data until", self.known_until.map(|day| day.to_string()).into()),
            ("Version", version(self).into()),
            ("Updated", exact_or_none(look, self.updated_at)),
        ]
    }

    fn appendix(&self, _look: &OutputOptions) -> String {
        let steps = self.spec.as_ref().and_then(|spec| super::yaml(&spec.steps).ok());
        let safe =
            |steps: String| steps.lines().map(|line| format!("  {}\n", escape(line))).collect::<String>();
        steps.map(|steps| format!("Steps:\n{}", safe(steps))).unwrap_or_default()
    }
}

/// Firing of a preview, with the language of the preview.
struct LocalizedFiring<'a> {
    firing: &'a PreviewFiring,
    language: Language,
}

impl Serialize for LocalizedFiring<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.firing.serialize(serializer)
    }
}

impl Row for LocalizedFiring<'_> {
    const COLUMNS: &'static [Column] = &[
        column("LOCAL TIME", 25),
        column("UTC", 20),
        column("FROM NOW", 10).optional(1),
        column("NOTES", 20).cut(16),
        wide("RULES", 6),
    ];

    fn cells(&self, look: &OutputOptions) -> Vec<Cell> {
        let firing = self.firing;
        let marks: Vec<_> =
            firing.adjustments.iter().map(|mark| describe_mark(mark, self.language)).collect();
        let between = if self.language == Language::Chinese { "；" } else { "; " };
        let marks =
            if marks.is_empty() { Cell::from("") } else { Cell::new(marks.join(between), Tone::Waiting) };
        let rules: Vec<_> = firing.rules.iter().map(ToString::to_string).collect();
        vec![
            firing.local.as_str().into(),
            firing.at.to_string().into(),
            super::time::relative(look.now, firing.at).into(),
            marks,
            rules.join(",").into(),
        ]
    }

    fn name(&self) -> String {
        self.firing.at.to_string()
    }
}

fn describe_mark(mark: &str, language: Language) -> &str {
    let (english, chinese) = match mark {
        "gap_shifted" => ("shifted: the clocks skip this time", "顺延：时钟拨快，跳过了这一时刻"),
        "overlap_first" => ("first of two: the clocks go back", "两次中的第一次：时钟拨慢"),
        "overlap_second" => ("second of two: the clocks go back", "两次中的第二次：时钟拨慢"),
        "rolled" => ("moved: the original date is not a working day", "原定日期不是工作日，已调整"),
        "clock_change" => ("clock change on this day", "当天时钟有调整"),
        other => (other, other),
    };
    if language == Language::Chinese { chinese } else { english }
}

/// Formats a preview: the description of the timing, then the next firings.
pub(crate) fn preview(
    look: &OutputOptions,
    preview: &Preview,
    language: Language,
) -> Result<String, Failure> {
    Ok(match look.format {
        Format::Json => super::json(preview)?,
        Format::Yaml => super::yaml(preview)?,
        Format::Name => preview.firings.iter().map(|firing| format!("{}\n", firing.at)).collect(),
        Format::Table | Format::Wide => {
            let words = match language {
                Language::English => &preview.description.en,
                Language::Chinese => &preview.description.zh_cn,
            };
            let mut text = format!("{}\n", escape(words));
            if !preview.firings.is_empty() {
                text.push('\n');
                let told: Vec<_> =
                    preview.firings.iter().map(|firing| LocalizedFiring { firing, language }).collect();
                text.push_str(&super::list(look, &told)?);
            }
            text
        }
    })
}

#[cfg(test)]
mod tests {
    use serde::de::DeserializeOwned;
    use serde_json::json;

    use super::*;
    use crate::output::{list, one};

    fn look(format: Format) -> OutputOptions {
        OutputOptions { format, color: false, now: "2026-11-21T08:10:00Z".parse().unwrap(), width: None }
    }

    fn from<T: DeserializeOwned>(value: serde_json::Value) -> T {
        serde_json::from_value(value).unwrap()
    }

    const SCHEDULE: &str = "sch_01k9zq3m6c0000000000000000";
    const JOB: &str = "job_01k9zq3m6c0000000000000000";
    const BACKFILL: &str = "bkf_01k9zq3m6c0000000000000000";

    fn troubled() -> Schedule {
        from(json!({
            "id": SCHEDULE, "name": "nightly", "namespace": "pay", "owner": "ann", "labels": {"team": "pay"},
            "description": "The figures\u{1b}[31m", "status": "paused",
            "pause": {"at": "2026-11-21T08:00:00Z", "by": "belfry", "note": "3 failures in a row"},
            "when": "0 2 * * *", "zone": "Asia/Shanghai", "generation": 2, "version": 5,
            "created_at": "2026-11-01T08:00:00Z", "updated_at": "2026-11-21T08:00:00Z",
            "last": {"scheduled_for": "2026-11-20T18:00:00Z", "job_id": JOB}, "fired": 20, "skipped": 3,
            "buffered": [{"scheduled_for": "2026-11-20T18:00:00Z", "cause": "timer"}],
            "statistics": {"succeeded": 17, "failed": 3, "success_rate": 0.85, "streak": -3, "duration_p50": "9s", "duration_p95": "2m"},
            "health": {
                "open_runs": 2,
                "late_runs": [{"job_id": JOB, "scheduled_for": "2026-11-20T18:00:00Z", "expected_by": "2026-11-20T18:01:00Z"}],
                "stuck_runs": [{"job_id": JOB, "scheduled_for": "2026-11-20T18:00:00Z", "expected_by": "2026-11-20T18:06:00Z"}],
            },
            "spec": {"name": "nightly", "job": {"run": {"process": {"command": ["./report"]}}}},
        }))
    }

    fn fresh() -> Schedule {
        from(json!({
            "id": SCHEDULE, "name": "beat", "namespace": "default", "status": "active", "when": "every 15m", "zone": "UTC",
            "generation": 1, "version": 1, "created_at": "2026-11-21T08:00:00Z", "updated_at": "2026-11-21T08:00:00Z",
            "next_at": "2026-11-21T08:15:00Z", "fired": 0, "skipped": 0, "statistics": {"succeeded": 0, "failed": 0, "streak": 0},
        }))
    }

    fn of_a_workflow() -> Schedule {
        const RUN: &str = "run_01k9zq3m6c0000000000000000";
        from(json!({
            "id": SCHEDULE, "name": "load", "namespace": "default", "status": "active", "when": "every 15m", "zone": "UTC",
            "generation": 1, "version": 1, "created_at": "2026-11-21T08:00:00Z", "updated_at": "2026-11-21T08:00:00Z",
            "next_at": "2026-11-21T08:15:00Z", "fired": 1, "skipped": 0, "statistics": {"succeeded": 0, "failed": 0, "streak": 0},
            "last": {"scheduled_for": "2026-11-21T08:00:00Z", "run_id": RUN},
            "health": {"open_runs": 1, "late_runs": [], "stuck_runs": [
                {"run_id": RUN, "scheduled_for": "2026-11-21T08:00:00Z", "expected_by": "2026-11-21T08:05:00Z"},
            ]},
            "spec": {"name": "load", "workflow": {"name": "load"}},
        }))
    }

    #[test]
    fn schedules_as_a_table() {
        let schedules = [troubled(), fresh()];
        insta::assert_snapshot!("schedules_table", list(&look(Format::Table), &schedules).unwrap());
        insta::assert_snapshot!("schedules_wide", list(&look(Format::Wide), &schedules).unwrap());
        insta::assert_snapshot!("schedule_detail", one(&look(Format::Table), &troubled()).unwrap());
        insta::assert_snapshot!(
            "schedule_of_a_workflow",
            one(&look(Format::Table), &of_a_workflow()).unwrap()
        );
        let json = list(&look(Format::Json), &[troubled()]).unwrap();
        assert_eq!(serde_json::from_str::<Vec<Schedule>>(&json).unwrap(), [troubled()]);
    }

    /// Built-in calendars have no version, because they cannot be changed.
    #[test]
    fn calendars_as_a_table() {
        let calendars: [Calendar; 2] = [
            from(
                json!({"name": "off", "namespace": "pay", "description": "Our own.", "version": 3, "updated_at": "2026-11-21T08:00:00Z"}),
            ),
            from(
                json!({"name": "belfry.cn-workdays", "built_in": true, "known_until": "2026-12-31", "version": 0}),
            ),
        ];
        insta::assert_snapshot!("calendars_wide", list(&look(Format::Wide), &calendars).unwrap());
    }

    #[test]
    fn a_ledger_as_a_table() {
        let line = |first: &str, outcome: &str, more: serde_json::Value| {
            let mut line = json!({
                "schedule_id": SCHEDULE, "generation": 1, "scheduled_for": first, "last": first, "count": 1, "exact": true,
                "outcome": outcome, "cause": "timer", "decided_at": "2026-11-21T08:00:00.01Z", "tzdb": "2026a",
            });
            line.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            from::<LedgerEntry>(line)
        };
        let lines = [
            line("2026-11-21T08:00:00Z", "fired", json!({"job_id": JOB, "job_status": "succeeded"})),
            line(
                "2026-11-21T07:00:00Z",
                "skipped_pause",
                json!({"last": "2026-11-21T07:45:00Z", "count": 4}),
            ),
            line(
                "2026-11-01T07:00:00Z",
                "skipped_policy",
                json!({"last": "2026-11-21T06:45:00Z", "count": 9999, "exact": false}),
            ),
            line(
                "2026-11-21T05:00:00.5Z",
                "fired",
                json!({"job_id": JOB, "cause": "manual", "detail": "ann: upgrade"}),
            ),
        ];
        insta::assert_snapshot!("ledger_table", list(&look(Format::Table), &lines).unwrap());
        insta::assert_snapshot!("ledger_wide", list(&look(Format::Wide), &lines[..1]).unwrap());
    }

    #[test]
    fn a_backfill_and_its_plan() {
        let backfill: Backfill = from(json!({
            "id": BACKFILL, "schedule_id": SCHEDULE, "schedule": "nightly", "status": "running", "from": "2026-11-01T00:00:00Z",
            "until": "2026-11-08T00:00:00Z", "total": 7, "started": 3, "succeeded": 1, "failed": 1, "concurrency": 2,
            "overlap": "buffer_all", "generation": 1, "created_by": "ann", "created_at": "2026-11-21T08:00:00Z",
        }));
        insta::assert_snapshot!("backfill_detail", one(&look(Format::Table), &backfill).unwrap());
        insta::assert_snapshot!("backfills_wide", list(&look(Format::Wide), &[backfill]).unwrap());
        let planned: BackfillPlan = from(json!({
            "scheduled_times": ["2026-11-01T02:00:00Z"], "left_out_count": 1_002,
            "left_out": [
                {"at": "2026-11-02T02:00:00Z", "reason": "excluded", "detail": "exclude[0]: calendar off"},
                {"at": "2026-11-03T02:00:00Z", "reason": "succeeded", "job_id": JOB},
            ],
        }));
        insta::assert_snapshot!("backfill_plan", plan(&look(Format::Table), &planned).unwrap());
        let nothing: BackfillPlan = from(json!({"scheduled_times": [], "left_out_count": 0, "left_out": []}));
        assert_eq!(plan(&look(Format::Table), &nothing).unwrap(), "The backfill would start no runs.\n");
    }

    #[test]
    fn a_preview_is_told_in_either_language_with_its_marks() {
        let shown: Preview = from(json!({
            "firings": [
                {"at": "2026-03-29T01:00:00Z", "local": "2026-03-29T03:00:00+02:00", "rules": [0], "adjustments": ["gap_shifted", "clock_change"]},
                {"at": "2026-03-30T00:30:00Z", "local": "2026-03-30T02:30:00+02:00", "rules": [0]},
            ],
            "description": {"en": "At 02:30 every day, in Europe/Berlin.", "zh-CN": "每天 02:30（Europe/Berlin）。"},
            "zone": "Europe/Berlin", "tzdb": "2026a",
        }));
        insta::assert_snapshot!(
            "preview_table",
            preview(&look(Format::Table), &shown, Language::English).unwrap()
        );
        let chinese = preview(&look(Format::Table), &shown, Language::Chinese).unwrap();
        insta::assert_snapshot!("preview_table_in_chinese", chinese);
    }
}
