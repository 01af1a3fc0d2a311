//! Arguments of `schedule`, `backfill`, `calendar`, `apply` and `diff`.
//!
//! [`WhenArgs`] are the timing of a schedule. `create` builds a schedule from them, and `next` previews them
//! without a server. The job of a created schedule has the same options as `submit`: [`SpecArgs`] and
//! [`ProcessArgs`]. The `apply` commands of all kinds share [`ApplyArgs`].
//!
//! A schedule is named by its name or id, so these arguments are strings; the commands resolve them. A
//! calendar has a name only. Policies and statuses have the names of the API; `-` may replace `_`. Their
//! meanings are in tables below the options ([`POLICIES`], [`OVERLAP_POLICIES`], [`OUTCOMES`]): one line per
//! value.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use jiff::civil::Date;
use model::firing::{FiringOutcome, ScheduleStatus};
use model::schedule::{Guarantee, MissedPolicy, OverlapPolicy};
use model::timing::{Cron, Dialect, Every, Filter, Rule, Timing, UTC};
use model::{BackfillId, Duration, Timestamp};
use timetable::Language;

use super::examples;
use super::job::ListLimit;
use super::reference::Reference;
use super::spec::{Pair, ProcessArgs, SpecArgs, instant, parse_pair, word};

/// `belfry schedule …`
#[derive(Debug, Subcommand)]
pub(crate) enum ScheduleCommand {
    /// Create a schedule from options
    Create(Box<CreateArgs>),
    /// Create or update schedules from files
    #[command(before_help = examples! {
        "belfry schedule apply -f nightly.yaml"
        "belfry schedule apply -f schedules/ --dry-run"
    })]
    Apply(ApplyArgs),
    /// List schedules, newest first
    #[command(visible_alias = "ls")]
    List(ScheduleListArgs),
    /// Show the details of schedules
    #[command(before_help = examples! { "belfry schedule get backup" })]
    Get(SchedulesArgs),
    /// Preview the next firings of a schedule, or of timing options without a server
    Next(NextArgs),
    /// List the upcoming firings of all schedules
    Upcoming(UpcomingArgs),
    /// Pause schedules: their firings are skipped until you resume the schedules
    Pause(SchedulePauseArgs),
    /// Resume paused schedules; firings that were skipped during the pause stay skipped
    #[command(before_help = examples! { "belfry schedule resume backup" })]
    Resume(SchedulesArgs),
    /// Trigger a schedule now
    Trigger(TriggerArgs),
    /// Backfill a schedule: run its firings in a past range
    Backfill(BackfillArgs),
    /// Show the ledger: the outcome of each scheduled time
    Ledger(LedgerArgs),
    /// Delete schedules; their running jobs and runs continue
    #[command(before_help = examples! { "belfry schedule delete backup" })]
    Delete(SchedulesArgs),
}

/// Schedules by name or id.
#[derive(Debug, Args)]
pub(crate) struct SchedulesArgs {
    /// Names or IDs of the schedules
    #[arg(value_name = "SCHEDULE", required = true)]
    pub(crate) schedules: Vec<String>,
}

/// Options for the timing of a schedule.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Timing")]
pub(crate) struct WhenArgs {
    /// Cron expression: `0 2 * * *`, `@daily`, `0 9 * * mon#1`; repeatable
    #[arg(long, value_name = "EXPRESSION")]
    pub(crate) cron: Vec<String>,
    /// Dialect of the cron expressions: vixie (crontab), quartz (6 or 7 fields, seconds first) [default: vixie]
    #[arg(long, value_name = "NAME", value_parser = dialect)]
    pub(crate) dialect: Option<Dialect>,
    /// Fixed interval between scheduled times: 15m, 1h, 1d
    #[arg(long, value_name = "DURATION")]
    pub(crate) every: Option<Duration>,
    /// Fixed delay between the end of a run and the next firing: 15m
    #[arg(long, value_name = "DURATION")]
    pub(crate) after: Option<Duration>,
    /// Single scheduled time: 2026-12-01T09:00:00Z, or 2026-12-01T09:00 in the time zone of --zone; repeatable
    #[arg(long, value_name = "TIME")]
    pub(crate) at: Vec<String>,
    /// Time zone of the schedule: Asia/Shanghai, Europe/Berlin [default: UTC]
    #[arg(long, value_name = "ZONE")]
    pub(crate) zone: Option<String>,
    /// Calendar on whose days the schedule fires; repeat to require all calendars
    #[arg(long, value_name = "CALENDAR")]
    pub(crate) only: Vec<String>,
    /// Calendar on whose days the schedule does not fire; repeatable
    #[arg(long, value_name = "CALENDAR")]
    pub(crate) except: Vec<String>,
    /// Start of the schedule, for example 2026-12-01T00:00 (local): no firing before this time [default: unlimited]
    #[arg(long, value_name = "TIME", value_parser = instant)]
    pub(crate) start: Option<Timestamp>,
    /// End of the schedule: no firing after this time [default: unlimited]
    #[arg(long, value_name = "TIME", value_parser = instant)]
    pub(crate) end: Option<Timestamp>,
}

impl WhenArgs {
    /// Builds the timing from the options.
    pub(crate) fn timing(&self) -> Timing {
        let dialect = self.dialect.unwrap_or_default();
        let cron = |expression: &String| Rule::Cron(Cron { expression: expression.clone(), dialect });
        let every = |period| Rule::Every(Every { period, phase: Duration::ZERO });
        let rules = self.cron.iter().map(cron);
        let rules = rules.chain(self.every.map(every)).chain(self.after.map(Rule::After));
        let calendars = |names: &[String]| names.iter().cloned().map(Filter::Calendar).collect();
        Timing {
            rules: rules.chain(self.at.iter().cloned().map(Rule::At)).collect(),
            only: calendars(&self.only),
            exclude: calendars(&self.except),
            zone: self.zone.clone().unwrap_or_else(|| UTC.to_owned()),
            start: self.start,
            end: self.end,
            ..Timing::default()
        }
    }
}

fn dialect(text: &str) -> Result<Dialect, String> {
    word(text, &["vixie", "quartz"])
}

fn overlap(text: &str) -> Result<OverlapPolicy, String> {
    let known = ["skip", "buffer_one", "buffer_all", "cancel_other", "terminate_other", "allow_all"];
    word(text, &known)
}

fn guarantee(text: &str) -> Result<Guarantee, String> {
    word(text, &Guarantee::ALL.iter().map(|known| known.as_str()).collect::<Vec<_>>())
}

fn missed(text: &str) -> Result<MissedPolicy, String> {
    word(text, &["skip", "fire_once", "fire_last", "fire_all"])
}

/// Parses `en`, `zh` or `zh-CN`.
fn language(text: &str) -> Result<Language, String> {
    let text = if text.eq_ignore_ascii_case("zh") { "zh-CN" } else { text };
    text.parse().map_err(|error: timetable::ParseLanguageError| error.to_string())
}

/// Returns the language of the environment, from the first variable that is set.
fn language_of(variable: impl Fn(&str) -> Option<String>) -> Language {
    let set =
        ["LC_ALL", "LC_MESSAGES", "LANG"].into_iter().filter_map(variable).find(|text| !text.is_empty());
    match set {
        Some(locale) if locale.to_ascii_lowercase().starts_with("zh") => Language::Chinese,
        _ => Language::English,
    }
}

fn day(text: &str) -> Result<Date, String> {
    text.parse().map_err(|_| "expected a day such as 2026-10-01".to_owned())
}

/// Table of the overlap policies, for a help text.
macro_rules! overlap_policies {
    () => {
        "Overlap policies (--overlap), for a firing while an earlier run has not ended:
  skip             skip the firing
  buffer_one       start the firing after the run; merge later firings into this one
  buffer_all       start each firing after the runs before it
  cancel_other     cancel the oldest run, then start the firing
  terminate_other  kill the oldest run without a grace period, then start the firing
  allow_all        start the firing at once, in parallel"
    };
}

/// Text below the help of `trigger`.
const OVERLAP_POLICIES: &str = overlap_policies!();

/// Text below the help of `create`.
const POLICIES: &str = concat!(
    overlap_policies!(),
    "

Missed policies (--missed), for the firings that an outage of all servers prevented:
  skip             start no missed firing
  fire_once        start one run in place of all missed firings
  fire_last        start only the last missed firing
  fire_all         start every missed firing, at most the latest 1000

Guarantees (--guarantee), which set the policies and the delivery level:
  at_least_once    buffer_all, fire_all, at_least_once
  exactly_once     buffer_all, fire_all, exactly_once
  at_most_once     skip, fire_once, at_most_once
  best_effort      skip, skip, at_least_once"
);

/// Text below the help of `ledger`.
const OUTCOMES: &str = "Outcomes:
  fired             started a job or a run within a second of the scheduled time
  fired_late        started later: after an outage, or after earlier runs
  buffered          waits for earlier runs to end
  coalesced         merged into another firing
  skipped_overlap   skipped: earlier runs had not ended
  skipped_calendar  skipped by a calendar, or by a set of dates or weekdays
  skipped_window    skipped by a time window of the day, or by a cron exclusion
  skipped_pause     skipped: the schedule was paused
  skipped_deadline  skipped: the start deadline had passed
  skipped_policy    missed during an outage, and not caught up
  skipped_replaced  skipped: the timing was replaced, or the schedule had completed or was deleted
  skipped_limit     skipped: too many firings were waiting
  not_started       not started: the workflow does not exist, or rejects the parameters";

/// `belfry schedule create`
#[derive(Debug, Args)]
#[command(before_help = examples! {
    "belfry schedule create backup --cron '0 2 * * *' --zone Asia/Shanghai -- tar cf backup.tar data"
    "belfry schedule create sync --every 15m --overlap skip -- ./sync"
    "belfry schedule create report --cron '0 9 * * mon-fri' --except belfry.cn-holidays --script report.sh"
    "belfry schedule create deploy -- ./deploy            fires only when triggered"
    "belfry schedule create etl --cron '0 2 * * *' --workflow etl -p day='${{ firing.scheduled_for }}'"
    "belfry schedule create backup --every 1d --dry-run -- ./backup > backup.yaml"
})]
#[command(after_help = POLICIES)]
#[command(override_usage = "belfry schedule create [OPTIONS] NAME -- COMMAND [ARGS]...\n       \
    belfry schedule create [OPTIONS] NAME --workflow NAME [-p NAME=VALUE]...")]
pub(crate) struct CreateArgs {
    /// Name of the schedule, unique in its namespace
    #[arg(value_name = "NAME")]
    pub(crate) schedule: String,
    #[command(flatten)]
    pub(crate) when: WhenArgs,
    /// Overlap policy, for a firing while an earlier run has not ended: skip, buffer_one, buffer_all, cancel_other,
    /// terminate_other, allow_all; see the table below [default: skip]
    #[arg(long, value_name = "POLICY", value_parser = overlap, help_heading = "Timing")]
    pub(crate) overlap: Option<OverlapPolicy>,
    /// Missed policy, for the firings that an outage prevented: skip, fire_once, fire_last, fire_all; see the table
    /// below [default: fire_once]
    #[arg(long, value_name = "POLICY", value_parser = missed, help_heading = "Timing")]
    pub(crate) missed: Option<MissedPolicy>,
    /// Maximum start delay, to spread the load of schedules with equal times; constant for each schedule
    /// [default: 0s]
    #[arg(long, value_name = "DURATION", help_heading = "Timing")]
    pub(crate) jitter: Option<Duration>,
    /// Number of firings after which the schedule completes [default: unlimited]
    #[arg(long, value_name = "N", help_heading = "Timing")]
    pub(crate) max_firings: Option<u64>,
    /// Guarantee of each scheduled time; sets --overlap, --missed and --delivery, unless they are given:
    /// at_least_once, exactly_once, at_most_once, best_effort [default: none]
    #[arg(long, value_name = "GUARANTEE", value_parser = guarantee, help_heading = "Timing")]
    pub(crate) guarantee: Option<Guarantee>,
    /// Number of consecutive failed runs after which the schedule pauses [default: never]
    #[arg(long, value_name = "N", help_heading = "Timing")]
    pub(crate) pause_after_failures: Option<u32>,
    /// Description of the schedule
    #[arg(long, value_name = "TEXT", help_heading = "Timing")]
    pub(crate) description: Option<String>,
    /// Check the schedule and print it with all defaults, without creating it
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Name of the workflow that each firing starts, instead of a job
    #[arg(long, value_name = "NAME", conflicts_with_all = ["command", "script", "image", "http"], help_heading = "Action")]
    pub(crate) workflow: Option<String>,
    /// Parameter of the workflow; the value may refer to the firing: day='${{ firing.scheduled_for }}'; repeatable
    // Clap ignores `requires` if the required option conflicts with a given one, so the conflicts are repeated here.
    #[arg(short, long = "param", value_name = "NAME=VALUE", value_parser = parse_pair, requires = "workflow", conflicts_with_all = ["command", "script", "image", "http"], help_heading = "Action")]
    pub(crate) parameters: Vec<Pair>,
    #[command(flatten)]
    pub(crate) process: ProcessArgs,
    #[command(flatten)]
    pub(crate) spec: SpecArgs,
}

/// `belfry schedule list`
#[derive(Debug, Args)]
#[command(before_help = examples! {
    "belfry schedule list --status paused"
    "belfry schedule list -n '*' --text report -o wide"
})]
pub(crate) struct ScheduleListArgs {
    /// Filter by status: active, paused, completed
    #[arg(short, long, value_name = "STATUS")]
    pub(crate) status: Option<ScheduleStatus>,
    /// Filter by owner
    #[arg(long, value_name = "NAME")]
    pub(crate) owner: Option<String>,
    /// Filter by part of the name
    #[arg(long, value_name = "TEXT")]
    pub(crate) text: Option<String>,
    /// Filter by label; repeat to require all labels
    #[arg(short, long = "label", value_name = "KEY=VALUE", value_parser = parse_pair)]
    pub(crate) labels: Vec<Pair>,
    /// End of the range of next firings, exclusive: 2026-11-21T18:00 (local), 18:00 (next)
    #[arg(long, value_name = "TIME", value_parser = instant)]
    pub(crate) due_before: Option<Timestamp>,
    #[command(flatten)]
    pub(crate) many: ListLimit,
}

/// `belfry schedule next`
#[derive(Debug, Args)]
#[command(override_usage = "belfry schedule next [OPTIONS] SCHEDULE\n       \
    belfry schedule next [OPTIONS] --cron EXPRESSION | --every DURATION | --at TIME")]
#[command(before_help = examples! {
    "belfry schedule next backup"
    "belfry schedule next --cron '30 2 * * *' --zone Europe/Berlin -n 20"
    "belfry schedule next --cron '0 0 12 ? * MON' --dialect quartz --lang zh"
    "belfry schedule next --cron '0 9 * * *' --only belfry.cn-workdays --zone Asia/Shanghai"
})]
pub(crate) struct NextArgs {
    /// Name or ID of the schedule; omit it to preview timing options
    #[arg(value_name = "SCHEDULE", required_unless_present_any = ["cron", "every", "at", "after"])]
    #[arg(conflicts_with_all = ["cron", "every", "at", "after", "zone", "dialect", "only", "except", "start", "end"])]
    pub(crate) schedule: Option<String>,
    #[command(flatten)]
    pub(crate) when: WhenArgs,
    /// Number of firings to show
    #[arg(short = 'n', long, value_name = "N", default_value_t = 10)]
    pub(crate) count: usize,
    /// Start of the range, inclusive: 2026-11-21T18:00 (local), 18:00 (next) [default: now]
    #[arg(long, value_name = "TIME", value_parser = instant)]
    pub(crate) from: Option<Timestamp>,
    /// Language of the description: en, zh [env: LC_ALL, LC_MESSAGES, LANG] [default: en]
    #[arg(long, value_name = "LANGUAGE", value_parser = language)]
    lang: Option<Language>,
    /// Namespace [env: BELFRY_NAMESPACE] [default: default]
    // Replaces the global option: `-n` is the number of firings here.
    #[arg(id = "namespace", long = "namespace", value_name = "NAME", help_heading = "Global options")]
    pub(crate) _namespace: Option<String>,
}

impl NextArgs {
    /// Whether to preview timing options instead of a schedule.
    pub(crate) fn is_draft(&self) -> bool {
        self.schedule.is_none()
    }

    /// Returns the language of the description.
    pub(crate) fn lang(&self) -> Language {
        self.lang.unwrap_or_else(|| language_of(|name| std::env::var(name).ok()))
    }
}

/// `belfry schedule upcoming`
#[derive(Debug, Args)]
#[command(before_help = examples! { "belfry schedule upcoming --until 18:00" })]
pub(crate) struct UpcomingArgs {
    /// End of the range, exclusive: 2026-11-21T18:00 (local), 18:00 (next) [default: 24h from now]
    #[arg(long, value_name = "TIME", value_parser = instant)]
    pub(crate) until: Option<Timestamp>,
    #[command(flatten)]
    pub(crate) many: ListLimit,
}

/// `belfry schedule pause`
#[derive(Debug, Args)]
#[command(before_help = examples! { "belfry schedule pause backup --note 'the disk is being replaced'" })]
pub(crate) struct SchedulePauseArgs {
    /// Names or IDs of the schedules
    #[arg(value_name = "SCHEDULE", required = true)]
    pub(crate) schedules: Vec<String>,
    /// Reason for the pause, shown to users
    #[arg(long, value_name = "TEXT")]
    pub(crate) note: Option<String>,
}

/// `belfry schedule trigger`
#[derive(Debug, Args)]
#[command(before_help = examples! {
    "belfry schedule trigger backup --reason 'before the upgrade' --wait"
    "belfry schedule trigger sync --overlap allow_all"
})]
#[command(after_help = OVERLAP_POLICIES)]
pub(crate) struct TriggerArgs {
    /// Name or ID of the schedule
    #[arg(value_name = "SCHEDULE")]
    pub(crate) schedule: String,
    /// Reason for the trigger, recorded in the ledger
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
    /// Overlap policy, if an earlier run has not ended: skip, buffer_one, buffer_all, cancel_other, terminate_other,
    /// allow_all; see the table below [default: the policy of the schedule]
    #[arg(long, value_name = "POLICY", value_parser = overlap)]
    pub(crate) overlap: Option<OverlapPolicy>,
    /// Wait until the job or run has ended; exit with the exit code of the job, or with 1 if the run did not succeed
    #[arg(long)]
    pub(crate) wait: bool,
    /// Maximum time to wait, for example 10m; then exit with code 124 while the job continues [default: unlimited]
    #[arg(long, value_name = "DURATION", requires = "wait")]
    pub(crate) wait_timeout: Option<Duration>,
}

/// `belfry schedule backfill`
#[derive(Debug, Args)]
#[command(before_help = examples! {
    "belfry schedule backfill backup --from 2026-11-01T00:00:00Z --until 2026-11-08T00:00:00Z --dry-run"
    "belfry schedule backfill backup --from 2026-11-01T00:00 --concurrency 4 --newest-first"
    "belfry schedule backfill backup --from 2026-11-01T00:00 --reprocess failed"
})]
pub(crate) struct BackfillArgs {
    /// Name or ID of the schedule
    #[arg(value_name = "SCHEDULE")]
    pub(crate) schedule: String,
    /// Start of the range, inclusive: 2026-11-01T00:00:00Z, or 2026-11-01T00:00 (local)
    #[arg(long, value_name = "TIME", value_parser = instant)]
    pub(crate) from: Timestamp,
    /// End of the range, inclusive, in the same formats [default: now]
    #[arg(long, value_name = "TIME", value_parser = instant)]
    pub(crate) until: Option<Timestamp>,
    /// Run the newest scheduled times first
    #[arg(long)]
    pub(crate) newest_first: bool,
    /// Maximum number of concurrent runs of the backfill, even if the schedule has a lower limit
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) concurrency: u32,
    /// Priority of the jobs of the backfill, from 0 (last) to 100 (first); jobs usually have 50
    #[arg(long, value_name = "0-100", default_value_t = 10)]
    pub(crate) priority: u8,
    /// Overlap policy, while other runs of the schedule have not ended: buffer_all (wait for them), allow_all
    /// (start at once) [default: buffer_all]
    #[arg(long, value_name = "POLICY", value_parser = overlap)]
    pub(crate) overlap: Option<OverlapPolicy>,
    /// Scheduled times that run again although they have already run: none, failed, all
    #[arg(long, value_name = "WHICH", default_value = "none", value_parser = ["none", "failed", "all"], hide_possible_values = true)]
    pub(crate) reprocess: String,
    /// Reason for the backfill, shown to users
    #[arg(long, value_name = "TEXT")]
    pub(crate) note: Option<String>,
    /// List the runs that would start, and the scheduled times that would be skipped, without starting a run
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// `belfry schedule ledger`
#[derive(Debug, Args)]
#[command(before_help = examples! {
    "belfry schedule ledger backup"
    "belfry schedule ledger backup --outcome skipped_overlap,skipped_limit"
    "belfry schedule ledger backup --counts --from 2026-11-01T00:00:00Z"
})]
#[command(after_help = OUTCOMES)]
pub(crate) struct LedgerArgs {
    /// Name or ID of the schedule
    #[arg(value_name = "SCHEDULE")]
    pub(crate) schedule: String,
    /// Filter by outcome; separate outcomes with commas, see the table below [default: all]
    #[arg(long, value_name = "OUTCOME", value_delimiter = ',')]
    pub(crate) outcome: Vec<FiringOutcome>,
    /// Start of the range, inclusive: 2026-11-01T00:00:00Z, or 2026-11-01T00:00 (local) [default: the oldest record]
    #[arg(long, value_name = "TIME", value_parser = instant)]
    pub(crate) from: Option<Timestamp>,
    /// End of the range, exclusive, in the same formats [default: now]
    #[arg(long, value_name = "TIME", value_parser = instant)]
    pub(crate) until: Option<Timestamp>,
    /// Show the number of scheduled times of each outcome, instead of a list
    #[arg(long, conflicts_with_all = ["outcome", "until"])]
    pub(crate) counts: bool,
    #[command(flatten)]
    pub(crate) many: ListLimit,
}

/// `belfry backfill …`
#[derive(Debug, Subcommand)]
pub(crate) enum BackfillCommand {
    /// List backfills, newest first
    #[command(visible_alias = "ls", before_help = examples! { "belfry backfill list --schedule backup" })]
    List {
        /// Filter by schedule name or ID
        #[arg(long, value_name = "SCHEDULE")]
        schedule: Option<String>,
        #[command(flatten)]
        many: ListLimit,
    },
    /// Show the details of a backfill
    #[command(before_help = examples! { "belfry backfill get BACKFILL" })]
    Get {
        /// ID of the backfill, or @last
        #[arg(value_name = "BACKFILL")]
        id: Reference<BackfillId>,
    },
    /// Cancel a backfill: no further run of the backfill starts
    #[command(before_help = examples! { "belfry backfill cancel BACKFILL --cancel-runs" })]
    Cancel {
        /// ID of the backfill, or @last
        #[arg(value_name = "BACKFILL")]
        id: Reference<BackfillId>,
        /// Also cancel the jobs and runs that the backfill has started
        #[arg(long)]
        cancel_runs: bool,
    },
}

/// `belfry calendar …`
#[derive(Debug, Subcommand)]
pub(crate) enum CalendarCommand {
    /// Create or update calendars from files
    #[command(before_help = examples! { "belfry calendar apply -f holidays.yaml" })]
    Apply(ApplyArgs),
    /// List calendars, including the built-in calendars
    #[command(visible_alias = "ls")]
    List,
    /// Show the details of a calendar
    #[command(before_help = examples! { "belfry calendar get belfry.cn-holidays" })]
    Get {
        /// Name of the calendar
        #[arg(value_name = "CALENDAR")]
        name: String,
    },
    /// List the days of a calendar
    #[command(before_help = examples! { "belfry calendar days belfry.cn-holidays --from 2026-10-01 --until 2026-10-31" })]
    Days {
        /// Name of the calendar
        #[arg(value_name = "CALENDAR")]
        name: String,
        /// First day of the range, for example 2026-10-01 [default: today]
        #[arg(long, value_name = "DAY", value_parser = day)]
        from: Option<Date>,
        /// Last day of the range [default: a year after the first day]
        #[arg(long, value_name = "DAY", value_parser = day)]
        until: Option<Date>,
    },
    /// Import an iCalendar file (.ics); without --name, only print it as a calendar file
    #[command(before_help = examples! {
        "belfry calendar import holidays.ics > holidays.yaml"
        "belfry calendar import holidays.ics --name public-holidays"
    })]
    Import {
        /// File in iCalendar format, `-` for standard input
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// Name of the calendar to create or update; without a name, nothing is saved
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
    },
    /// Delete a calendar that is not in use
    #[command(before_help = examples! { "belfry calendar delete public-holidays" })]
    Delete {
        /// Name of the calendar
        #[arg(value_name = "CALENDAR")]
        name: String,
    },
}

/// `belfry apply`
#[derive(Debug, Args)]
#[command(before_help = examples! {
    "belfry apply -f nightly.yaml"
    "belfry apply -f schedules/ --dry-run"
    "cat all.yaml | belfry apply -f -"
})]
pub(crate) struct ApplyArgs {
    /// File in YAML or JSON, folder of these files, or `-` for standard input; repeatable
    #[arg(short, long = "file", value_name = "FILE", required = true)]
    pub(crate) files: Vec<PathBuf>,
    /// Check the files and show the changes, without applying them
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// `belfry diff`
#[derive(Debug, Args)]
#[command(before_help = examples! { "belfry diff -f schedules/" })]
pub(crate) struct DiffArgs {
    /// File in YAML or JSON, folder of these files, or `-` for standard input; repeatable
    #[arg(short, long = "file", value_name = "FILE", required = true)]
    pub(crate) files: Vec<PathBuf>,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// H1. The first variable that is set determines the language, as POSIX locales require.
    #[test]
    fn the_words_are_in_the_language_of_the_environment() {
        let of = |set: &[(&str, &str)]| {
            language_of(|name| Some(set.iter().find(|(known, _)| *known == name)?.1.to_owned()))
        };
        assert_eq!(of(&[("LANG", "zh_CN.UTF-8")]), Language::Chinese);
        assert_eq!(of(&[("LC_ALL", ""), ("LANG", "zh_TW.UTF-8")]), Language::Chinese);
        assert_eq!(of(&[("LC_ALL", "C"), ("LANG", "zh_CN.UTF-8")]), Language::English);
        assert_eq!(of(&[("LC_MESSAGES", "zh_CN"), ("LANG", "de_DE.UTF-8")]), Language::Chinese);
        assert_eq!(of(&[]), Language::English);
    }
}
