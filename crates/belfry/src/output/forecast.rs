//! Output of `belfry forecast`: totals, overloads, workers and schedules.
//!
//! The page has one column of totals, or two with what-if changes (current, what if), then three tables.
//! Narrow tables have at most [`ROWS_MAX`] rows, and of the schedules only those with problems; `-o wide`
//! shows all. Times are in the requested time zone, with the day only if the range is longer than a day.
//!
//! JSON and YAML contain the whole answer of the forecast crate. `-o name` lists the schedules with problems.
//! The chart (`--svg`) is drawn by the forecast crate.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use ::forecast::{Answer, ScheduleForecast, Shares, Summary, Window, WorkerUse};
use jiff::tz::TimeZone;
use model::firing::FiringOutcome;
use model::{Duration, Timestamp};
use serde::Serialize;

use super::table::{Cell, Column, Row, Tone, column, rows, wide};
use super::text::{count, escape};
use super::time::format_duration;
use super::{Format, OutputOptions};
use crate::failure::Failure;

/// Maximum number of rows of each narrow table.
const ROWS_MAX: usize = 12;
/// Maximum width of the utilization chart of a worker, in characters.
const CHART_WIDTH: usize = 48;

/// Forecast, with the totals of the current state if there are what-if changes.
#[derive(Debug, Serialize)]
pub(crate) struct ForecastOutput {
    #[serde(flatten)]
    answer: Answer,
    /// Totals without the what-if changes.
    #[serde(skip_serializing_if = "Option::is_none")]
    as_it_is: Option<Summary>,
}

impl ForecastOutput {
    pub(crate) fn new(answer: Answer, as_it_is: Option<Summary>) -> Self {
        Self { answer, as_it_is }
    }
}

/// Formats a forecast.
pub(crate) fn forecast(
    look: &OutputOptions,
    told: &ForecastOutput,
    zone: &TimeZone,
) -> Result<String, Failure> {
    Ok(match look.format {
        Format::Json => super::json(told)?,
        Format::Yaml => super::yaml(told)?,
        Format::Name => {
            let late = told.answer.schedules.iter().filter(|line| has_problems(line));
            late.map(|line| format!("{}/{}\n", escape(&line.namespace), escape(&line.name))).collect()
        }
        Format::Table | Format::Wide => page(look, told, zone),
    })
}

fn page(look: &OutputOptions, told: &ForecastOutput, zone: &TimeZone) -> String {
    let ForecastOutput { answer, as_it_is } = told;
    let clock = Clock { zone, is_long: answer.until.since(answer.from) > Duration::from_hours(24) };
    let name = zone.iana_name().unwrap_or("local time");
    let mut text = format!(
        "Forecast from {} to {} ({name})\n\n",
        clock.date_time(answer.from),
        clock.date_time(answer.until)
    );
    text.push_str(&totals(answer, as_it_is.as_ref(), &clock));
    let windows: Vec<_> = answer.overloads.iter().map(|window| OverloadRow::new(window, &clock)).collect();
    section(&mut text, look, "Overloads", &windows, "overloads");
    let mut workers: Vec<_> = answer.workers.iter().collect();
    workers.sort_by(|a, b| b.average.highest().total_cmp(&a.average.highest()));
    let workers: Vec<_> = workers.into_iter().map(WorkerRow).collect();
    section(&mut text, look, "Workers", &workers, "workers");
    let mut schedules: Vec<_> =
        answer.schedules.iter().filter(|line| look.wide() || has_problems(line)).collect();
    schedules.sort_by_key(|line| std::cmp::Reverse((line.expired + line.overdue, line.latest, line.failed)));
    let schedules: Vec<_> = schedules.into_iter().map(ScheduleRow).collect();
    section(&mut text, look, "Schedules with problems", &schedules, "schedules with problems");
    text
}

fn section<T: Row>(text: &mut String, look: &OutputOptions, title: &str, items: &[T], what: &str) {
    if items.is_empty() {
        let _ = writeln!(text, "\nNo {what}.");
        return;
    }
    let title = if look.wide() { title.split(' ').next().unwrap_or(title) } else { title };
    let shown = if look.wide() { items.len() } else { ROWS_MAX.min(items.len()) };
    let _ = writeln!(text, "\n{title}:");
    text.push_str(&rows(look, &items[..shown]));
    if shown < items.len() {
        let _ = writeln!(text, "… and {} more: `-o wide` shows all", items.len() - shown);
    }
}

/// Whether a schedule has late, expired, overdue, lost or mostly failed runs, or is paused.
fn has_problems(line: &ScheduleForecast) -> bool {
    let fails = line.failed > 0 && line.failed >= line.succeeded;
    line.late > 0
        || line.expired > 0
        || line.overdue > 0
        || fails
        || line.paused_at.is_some()
        || unwanted_skips(&line.skipped) > 0
}

/// Number of skipped firings, without those that a calendar, a window or a pause skips.
fn unwanted_skips(skipped: &BTreeMap<FiringOutcome, u64>) -> u64 {
    let held = [FiringOutcome::SkippedCalendar, FiringOutcome::SkippedWindow, FiringOutcome::SkippedPause];
    skipped.iter().filter(|(outcome, _)| !held.contains(outcome)).map(|(_, count)| count).sum()
}

fn totals(answer: &Answer, as_it_is: Option<&Summary>, clock: &Clock<'_>) -> String {
    let told: Vec<Vec<(&str, String)>> =
        as_it_is.into_iter().chain([&answer.summary]).map(|summary| lines(summary, clock)).collect();
    let mut text = String::new();
    let width = told[0].iter().map(|(_, value)| value.chars().count()).max().unwrap_or(0).max(8);
    if as_it_is.is_some() {
        let _ = writeln!(text, "{:14}{:width$}  WHAT IF", "", "CURRENT");
    }
    for place in 0..told[0].len() {
        let values = told.iter().map(|column| format!("{:width$}", column[place].1));
        let values = values.collect::<Vec<_>>().join("  ");
        let line = format!("{:14}{values}", format!("{}:", told[0][place].0));
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

fn lines(summary: &Summary, clock: &Clock<'_>) -> Vec<(&'static str, String)> {
    let Summary { used, .. } = summary;
    let late = match &summary.latest {
        None => "0".to_owned(),
        Some(latest) => format!(
            "{}, up to {} ({} at {})",
            summary.late,
            format_duration(latest.by),
            escape(&latest.name),
            clock.minutes(latest.due)
        ),
    };
    let skipped = summary.skipped.iter().map(|(outcome, count)| format!("{outcome} {count}"));
    let skipped = skipped.collect::<Vec<_>>().join(", ");
    let skipped = if skipped.is_empty() { "0".to_owned() } else { skipped };
    vec![
        ("Firings", format!("{} of {}", summary.firings, count(summary.schedules, "schedule"))),
        ("Late", late),
        ("Skipped", skipped),
        ("Expired", summary.expired.to_string()),
        ("Overdue", summary.overdue.to_string()),
        ("Failed", format!("{} of {}", summary.failed, summary.failed + summary.succeeded)),
        ("Waiting", format!("peak {}, {} at the end", summary.waiting_most, summary.waiting_at_end)),
        (
            "Overloaded",
            if summary.overloaded == Duration::ZERO {
                "never".into()
            } else {
                format_duration(summary.overloaded)
            },
        ),
        (
            "Workers",
            format!(
                "CPU {}, memory {}, slots {}",
                percent(used.cpu),
                percent(used.memory),
                percent(used.slots)
            ),
        ),
    ]
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// Formats times of the range in a time zone.
struct Clock<'a> {
    zone: &'a TimeZone,
    is_long: bool,
}

impl Clock<'_> {
    fn date_time(&self, at: Timestamp) -> String {
        self.shown(at, "%a %Y-%m-%d %H:%M")
    }

    /// Formats a time without seconds; without the day if the range is at most one day.
    fn minutes(&self, at: Timestamp) -> String {
        self.shown(at, if self.is_long { "%a %d %H:%M" } else { "%H:%M" })
    }

    /// Formats a time with seconds; without the day if the range is at most one day.
    fn seconds(&self, at: Timestamp) -> String {
        self.shown(at, if self.is_long { "%a %d %H:%M:%S" } else { "%H:%M:%S" })
    }

    fn shown(&self, at: Timestamp, form: &str) -> String {
        jiff::Timestamp::from(at).to_zoned(self.zone.clone()).strftime(form).to_string()
    }
}

/// Row of an overload.
#[derive(Serialize)]
struct OverloadRow<'a> {
    window: &'a Window,
    from: String,
    until: String,
}

impl<'a> OverloadRow<'a> {
    fn new(window: &'a Window, clock: &Clock<'_>) -> Self {
        if window.goes_on {
            return Self { window, from: clock.minutes(window.from), until: "ongoing".to_owned() };
        }
        let (from, until) = (clock.minutes(window.from), clock.minutes(window.until));
        if from == until {
            // Within one minute, seconds are needed.
            return Self { window, from: clock.seconds(window.from), until: clock.seconds(window.until) };
        }
        Self { window, from, until }
    }
}

impl Row for OverloadRow<'_> {
    const COLUMNS: &'static [Column] = &[
        column("FROM", 10),
        column("UNTIL", 10),
        column("QUEUE", 12).cut(12),
        column("LATE JOBS", 9).optional(1),
        column("PEAK WAITING", 12).optional(4),
        column("LONGEST WAIT", 12).optional(3),
        column("JOB", 16).cut(12).optional(2),
        column("REASON", 30).cut(20),
    ];

    fn cells(&self, _: &OutputOptions) -> Vec<Cell> {
        let Window { group, jobs, waiting_most, longest, why, .. } = self.window;
        let why = why.iter().take(3).map(|holds| holds.cause.to_string()).collect::<Vec<_>>().join(", ");
        vec![
            self.from.as_str().into(),
            self.until.as_str().into(),
            group.to_string().into(),
            Cell::new(jobs.to_string(), Tone::Bad),
            waiting_most.to_string().into(),
            format_duration(longest.by).into(),
            longest.name.as_str().into(),
            why.into(),
        ]
    }

    fn name(&self) -> String {
        self.window.group.to_string()
    }
}

/// Row of a worker.
#[derive(Serialize)]
struct WorkerRow<'a>(&'a WorkerUse);

impl Row for WorkerRow<'_> {
    const COLUMNS: &'static [Column] = &[
        column("NAME", 16).cut(12),
        column("EXECUTIONS", 10).optional(1),
        column("CPU", 5),
        column("MEMORY", 6),
        column("SLOTS", 5),
        wide("PEAK", 5),
        column("UTILIZATION", CHART_WIDTH),
    ];

    fn cells(&self, _: &OutputOptions) -> Vec<Cell> {
        let WorkerUse { average, most, .. } = self.0;
        vec![
            self.0.name.as_str().into(),
            self.0.executions.to_string().into(),
            percent(average.cpu).into(),
            percent(average.memory).into(),
            percent(average.slots).into(),
            percent(most.highest()).into(),
            utilization_chart(&self.0.used).into(),
        ]
    }

    fn name(&self) -> String {
        self.0.name.clone()
    }
}

/// Draws a bar for each part of the range; its height is the allocation of the scarcest resource.
fn utilization_chart(used: &[Shares]) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let part = used.len().div_ceil(CHART_WIDTH).max(1);
    let sign = |shares: &[Shares]| {
        let most = shares.iter().map(Shares::highest).fold(0.0, f64::max);
        let step = (1_u8..8).filter(|step| most > f64::from(*step) / 8.0).count();
        if most == 0.0 { ' ' } else { BARS[step] }
    };
    used.chunks(part).map(sign).collect()
}

/// Row of a schedule.
#[derive(Serialize)]
struct ScheduleRow<'a>(&'a ScheduleForecast);

impl Row for ScheduleRow<'_> {
    const COLUMNS: &'static [Column] = &[
        column("NAME", 20),
        column("FIRINGS", 7),
        column("LATE", 5),
        column("MAX DELAY", 9).optional(1),
        column("SKIPPED", 7).optional(3),
        column("EXPIRED", 7).optional(4),
        column("FAILED", 6),
        wide("RUN TIME", 8),
        column("NOTE", 20).cut(12).optional(2),
    ];

    fn cells(&self, _: &OutputOptions) -> Vec<Cell> {
        let line = self.0;
        let bad = |count: u64| Cell::new(count.to_string(), if count > 0 { Tone::Bad } else { Tone::Plain });
        let mut notes = Vec::new();
        if line.overdue > 0 {
            notes.push(format!("{} overdue", line.overdue));
        }
        if line.paused_at.is_some() {
            notes.push("paused".into());
        }
        if line.assumed {
            notes.push("run time assumed".into());
        }
        vec![
            format!("{}/{}", line.namespace, line.name).into(),
            line.firings.to_string().into(),
            bad(line.late),
            format_duration(line.latest).into(),
            bad(unwanted_skips(&line.skipped)),
            bad(line.expired),
            line.failed.to_string().into(),
            format_duration(line.busy).into(),
            notes.join(", ").into(),
        ]
    }

    fn name(&self) -> String {
        self.0.name.clone()
    }
}

#[cfg(test)]
mod tests {
    use ::forecast::{Plan, QualifiedName, RunHistory, Schedule, WhatIf, Worker};
    use model::timing::{Cron, Dialect, Rule, Timing};
    use model::worker::Capacity;
    use model::{Bytes, JobSpec, Millicores, ScheduleSpec};

    use super::*;

    fn plan() -> Plan {
        let from: Timestamp = "2026-11-21T00:00:00Z".parse().unwrap();
        let mut plan = Plan::new(from, from + Duration::from_hours(24));
        for (name, minutes) in [("etl", 40), ("report", 20), ("tidy\u{1b}[2J", 5)] {
            let cron = Cron { expression: "0 2,14 * * *".into(), dialect: Dialect::default() };
            let timing = Timing { rules: vec![Rule::Cron(cron)], ..Timing::default() };
            let mut job = JobSpec::command(["true"]);
            job.resources.cpu = Some(Millicores(2_000));
            plan.schedules.push(Schedule::from(ScheduleSpec::new(name, timing, job)));
            let past = RunHistory::steady(Duration::from_secs(minutes * 60));
            plan.history.schedules.insert(QualifiedName::new("default", name), past);
        }
        let capacity =
            Capacity { cpu: Millicores(2_000), memory: Bytes(8 << 30), slots: 10, ..Capacity::default() };
        plan.workers.push(Worker::new("build-1", capacity));
        plan
    }

    fn shown(format: Format, what_if: Option<WhatIf>) -> String {
        let look = OutputOptions { format, color: false, now: Timestamp::default(), width: None };
        let mut plan = plan();
        let answer = |plan: &Plan| ::forecast::forecast(plan, &mut |_| {}).unwrap();
        let before = what_if.as_ref().map(|_| answer(&plan).summary);
        if let Some(what_if) = what_if {
            plan.change(&what_if).unwrap();
        }
        let told = ForecastOutput::new(answer(&plan), before);
        forecast(&look, &told, &TimeZone::get("Europe/Berlin").unwrap()).unwrap()
    }

    #[test]
    fn a_forecast_is_a_page_for_people() {
        insta::assert_snapshot!(shown(Format::Table, None));
    }

    #[test]
    fn what_if_totals_are_shown_beside_current_totals() {
        insta::assert_snapshot!(shown(Format::Table, Some(WhatIf::Workers(2))));
    }

    #[test]
    fn programs_get_all_of_it() {
        let told: serde_json::Value =
            serde_json::from_str(&shown(Format::Json, Some(WhatIf::Slower(2.0)))).unwrap();
        assert_eq!(told["summary"]["firings"], 6);
        assert_eq!(told["overloads"][0]["why"][0]["cause"], "cpu");
        assert_eq!(told["overloads"][0]["why"][0]["reason"]["reason"], "no_eligible_worker");
        assert_eq!(told["as_it_is"]["late"], 4);
        assert_eq!(told["workers"][0]["use"].as_array().unwrap().len(), 144);
        assert_eq!(shown(Format::Name, None), "default/report\ndefault/tidy\\x1b[2J\n");
    }
}
