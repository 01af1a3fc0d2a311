//! Arguments of `submit`, `logs`, `why` and `job`.
//!
//! The options of a job spec are not here: [`SpecArgs`], [`ProcessArgs`] and [`DueArgs`] are merge patches of
//! a spec, which `job update` and `schedule create` share. [`ManyArgs`] are the options of `submit` that start
//! several jobs. [`LogsArgs`] serves `belfry logs` and `belfry job logs`; [`WhyArgs`] serves `belfry why`,
//! `belfry job why` and `belfry job events`. [`ListLimit`] is the length of every list of the command line.
//!
//! Jobs are named by their ids, because names of jobs are not unique, or as `@last` ([`Reference`]). Workers have an id and a name, so options for
//! workers are strings; the command resolves the name.

use std::path::PathBuf;

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Subcommand};
use model::{BackfillId, Duration, ExecutionStatus, JobId, JobStatus, RunId, ScheduleId, Timestamp};

use super::examples;
use super::multiple::ManyArgs;
use super::reference::Reference;
use super::spec::{After, DueArgs, Pair, ProcessArgs, SpecArgs, after, past};

/// `belfry submit`
#[derive(Debug, Args)]
#[command(before_help = examples! {
    "belfry submit -- echo hello"
    "belfry submit --follow --name count -- sh -c 'for i in 1 2 3; do echo $i; done'"
    "belfry submit -f job.yaml --priority 80 --wait"
    "belfry submit --script clean.sh --in 2h --retries 3"
    "belfry submit --after @last -- ./report"
    "belfry submit --shards 8 --max-failed 1 --wait -- ./import"
    "belfry submit --on-all-workers --constraint zone=a -- ./clean-up"
    "belfry submit --input data=in.csv --store out.csv=result -- ./convert in.csv out.csv"
})]
#[command(
    after_help = "The command prints the ID of the job. A job without a name gets the name of the program that its \
    command runs: `nightly.sh` for `./scripts/nightly.sh`, `load.py` for `env A=b python load.py`, `import` for \
    `sh -c 'cd /srv && ./import'`. With --wait or --follow, its exit code is that of \
    the job: 128 plus the signal if a signal ended the job, 1 if the job was cancelled or expired. With \
    --shards, --over or --on-all-workers, the jobs form one workflow run, and the command prints the ID of \
    the run."
)]
#[command(
    override_usage = "belfry submit [OPTIONS] -- COMMAND [ARGS]...\n       belfry submit [OPTIONS] -f FILE\n       belfry submit [OPTIONS] --script FILE"
)]
pub(crate) struct SubmitArgs {
    /// File with one or more job specs in YAML or JSON, `-` for standard input; options override the file
    #[arg(short, long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Idempotency key: a repeated submission with the same key returns the first job
    #[arg(long, value_name = "KEY")]
    pub(crate) idempotency_key: Option<String>,
    /// Check the job spec and print it with all defaults, without submitting it
    #[arg(long, conflicts_with_all = ["wait", "follow"])]
    pub(crate) dry_run: bool,
    /// Wait until the job has ended, and exit with its exit code
    #[arg(long)]
    pub(crate) wait: bool,
    /// Show the log while the job runs, and exit with its exit code
    #[arg(long)]
    pub(crate) follow: bool,
    /// Maximum time to wait, for example 10m; then exit with code 124 while the job continues [default: unlimited]
    #[arg(long, value_name = "DURATION")]
    pub(crate) wait_timeout: Option<Duration>,
    /// Upstream job: start after it has succeeded, or failed (JOB:failure), or ended (JOB:any); repeatable
    ///
    /// If an upstream job ends otherwise, the job is cancelled. The options replace `after` of the file.
    #[arg(long, value_name = "JOB[:CONDITION]", value_parser = after, help_heading = "Scheduling")]
    pub(crate) after: Vec<After>,
    #[command(flatten)]
    pub(crate) process: ProcessArgs,
    #[command(flatten)]
    pub(crate) many: ManyArgs,
    #[command(flatten)]
    pub(crate) due: DueArgs,
    #[command(flatten)]
    pub(crate) spec: SpecArgs,
}

/// `belfry logs`
#[derive(Debug, Args)]
#[command(before_help = examples! {
    "belfry logs JOB                log of the newest execution"
    "belfry logs @last              log of the job that you submitted last"
    "belfry logs JOB -f             follow the log until the job has ended"
    "belfry logs JOB --execution 1 --stream stderr --tail 20"
    "belfry logs JOB --grep 'error|timeout' -C 3"
    "belfry logs JOB --since 10m -f"
})]
#[command(
    after_help = "Both streams of the task go to standard output, in the order of the log. Notices of \
    Belfry, for example about omitted output, go to standard error. With --grep, the exit code is 1 if no \
    line matches."
)]
pub(crate) struct LogsArgs {
    /// ID of the job or execution, or @last for your last job
    #[arg(value_name = "JOB|EXECUTION")]
    pub(crate) target: String,
    /// Follow the log until the job or execution has ended
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Number of the execution of the job, from 1 [default: the newest]
    #[arg(long, value_name = "N", conflicts_with = "follow")]
    pub(crate) execution: Option<u32>,
    /// Stream to show: stdout, stderr, all
    #[arg(long, value_name = "NAME", default_value = "all", value_parser = ["stdout", "stderr", "all"], hide_possible_values = true)]
    pub(crate) stream: String,
    /// Show the log of the execution before the newest one
    #[arg(short, long, conflicts_with_all = ["execution", "follow"])]
    pub(crate) previous: bool,
    /// Show only the last N lines
    #[arg(long, value_name = "N")]
    pub(crate) tail: Option<usize>,
    /// Show only output since this time: 10m (ago), 08:00 (most recent), yesterday, 2026-11-21T08:00 (local)
    #[arg(long, value_name = "TIME", value_parser = past)]
    pub(crate) since: Option<Timestamp>,
    /// Show only output before this time, in the same formats
    #[arg(long, value_name = "TIME", value_parser = past, conflicts_with = "follow")]
    pub(crate) until: Option<Timestamp>,
    /// Show only lines that match this regular expression, with their numbers; the server searches the log
    #[arg(long, value_name = "REGEX", conflicts_with_all = ["follow", "tail", "raw"])]
    pub(crate) grep: Option<String>,
    /// With --grep: ignore letter case
    #[arg(short, long, requires = "grep")]
    pub(crate) ignore_case: bool,
    /// With --grep: show N lines before and after each matching line, up to 20
    #[arg(
        short = 'C',
        long,
        value_name = "N",
        requires = "grep",
        default_value_t = 0,
        hide_default_value = true
    )]
    pub(crate) context_lines: usize,
    /// Show the time of each line
    #[arg(short, long)]
    pub(crate) timestamps: bool,
    /// Print the bytes of the log unchanged; otherwise, a terminal shows invalid UTF-8 as `�`
    #[arg(long, conflicts_with = "timestamps")]
    pub(crate) raw: bool,
}

/// Text below the help of `belfry why`.
pub(crate) const WHY_HELP: &str = "The command lists the waiting reasons, for example a paused queue, a \
    limit of concurrent jobs, or the filters that reject each worker. Run `belfry run why` for the reasons \
    of a workflow run.";

/// `belfry why`
#[derive(Debug, Args)]
#[command(before_help = examples! {
    "belfry why JOB"
    "belfry why JOB -o wide         list all workers that are not eligible"
})]
pub(crate) struct WhyArgs {
    /// ID of the job, or @last
    #[arg(value_name = "JOB")]
    pub(crate) id: Reference<JobId>,
}

/// `belfry job …`
#[derive(Debug, Subcommand)]
pub(crate) enum JobCommand {
    /// List jobs, newest first
    #[command(visible_alias = "ls")]
    List(ListArgs),
    /// Show the details of jobs
    #[command(before_help = examples! {
        "belfry job get JOB"
        "belfry job get JOB -o yaml"
    })]
    Get(IdsArgs),
    /// Show the log of a job or execution
    Logs(LogsArgs),
    /// Explain why a job is waiting, or why it ended as it did
    #[command(after_help = WHY_HELP)]
    Why(WhyArgs),
    /// Show a job after each change, until the job has ended
    #[command(before_help = examples! { "belfry job watch JOB" })]
    Watch(WatchArgs),
    /// Wait until all jobs have ended, and exit with the exit code of the first job that failed
    #[command(before_help = examples! {
        "belfry job wait JOB --wait-timeout 10m"
        "belfry job wait $(belfry job list --status running -o name)"
    })]
    Wait(WaitArgs),
    /// Show the history of a job: each change of its status, with the cause
    #[command(before_help = examples! { "belfry job events JOB" })]
    Events(WhyArgs),
    /// List the executions of a job or of a worker
    Executions(ExecutionsArgs),
    /// Change the given fields of a job that has not started
    Update(Box<UpdateArgs>),
    /// Cancel jobs; running jobs are stopped
    Cancel(CancelArgs),
    /// Run ended jobs again, as new jobs
    Retry(RetryArgs),
}

/// `belfry job list`
#[derive(Debug, Args)]
#[command(before_help = examples! {
    "belfry job list --status failed --label team=pay"
    "belfry job list -n '*' --all -o json"
    "belfry job list --status running --watch"
})]
pub(crate) struct ListArgs {
    #[command(flatten)]
    pub(crate) filter: JobFilterArgs,
    /// Read the list again every 2 seconds, until Ctrl-C: redraw the table on a terminal, and print each change elsewhere
    #[arg(short, long)]
    pub(crate) watch: bool,
    #[command(flatten)]
    pub(crate) many: ListLimit,
}

/// Conditions for jobs; all of them must match.
#[derive(Debug, Clone, PartialEq, Default, Args)]
pub(crate) struct JobFilterArgs {
    /// Filter by status: ready, waiting, running, retrying, succeeded, failed, cancelled, expired
    #[arg(short, long, value_name = "STATUS", value_delimiter = ',')]
    pub(crate) status: Vec<JobStatus>,
    /// Filter by queue name
    #[arg(long, value_name = "NAME")]
    pub(crate) queue: Option<String>,
    /// Filter by job name
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Filter by a part of the job name; letter case is ignored
    #[arg(long, value_name = "TEXT", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) text: Option<String>,
    /// Filter by owner
    #[arg(long, value_name = "NAME")]
    pub(crate) owner: Option<String>,
    /// Filter by label; repeat to require all labels
    #[arg(short, long = "label", value_name = "KEY=VALUE", value_parser = super::spec::parse_pair)]
    pub(crate) labels: Vec<Pair>,
    /// Filter by the worker of the newest execution (name or ID)
    #[arg(long, value_name = "WORKER")]
    pub(crate) worker: Option<String>,
    /// Filter by schedule ID
    #[arg(long, value_name = "SCHEDULE")]
    pub(crate) schedule: Option<ScheduleId>,
    /// Filter by backfill ID
    #[arg(long, value_name = "BACKFILL")]
    pub(crate) backfill: Option<Reference<BackfillId>>,
    /// Filter by workflow run ID
    #[arg(long, value_name = "RUN")]
    pub(crate) run: Option<Reference<RunId>>,
    /// Filter by the name of the workflow whose run created the job
    #[arg(long, value_name = "NAME")]
    pub(crate) workflow: Option<String>,
    /// Filter by the service whose replicas the jobs are (name or ID)
    #[arg(long, value_name = "SERVICE")]
    pub(crate) service: Option<String>,
    /// Start of the range of submission times: 1h (ago), 08:00 (most recent), yesterday, 2026-11-21T08:00 (local)
    #[arg(long, value_name = "TIME", value_parser = past)]
    pub(crate) after: Option<Timestamp>,
    /// End of the range of submission times, exclusive, in the same formats
    #[arg(long, value_name = "TIME", value_parser = past)]
    pub(crate) before: Option<Timestamp>,
}

/// The length of a list.
#[derive(Debug, Clone, Args)]
pub(crate) struct ListLimit {
    /// Maximum number of items to list
    #[arg(long, value_name = "N", default_value_t = 50)]
    pub(crate) limit: usize,
    /// List all items, without a limit
    #[arg(long, conflicts_with = "limit")]
    pub(crate) all: bool,
}

/// Jobs by their ids.
#[derive(Debug, Args)]
pub(crate) struct IdsArgs {
    /// IDs of the jobs, or @last
    #[arg(value_name = "JOB", required = true)]
    pub(crate) ids: Vec<Reference<JobId>>,
}

/// `belfry job watch`
#[derive(Debug, Args)]
pub(crate) struct WatchArgs {
    /// ID of the job, or @last
    #[arg(value_name = "JOB")]
    pub(crate) id: Reference<JobId>,
}

/// `belfry job wait`
#[derive(Debug, Args)]
pub(crate) struct WaitArgs {
    /// IDs of the jobs, or @last
    #[arg(value_name = "JOB", required = true)]
    pub(crate) ids: Vec<Reference<JobId>>,
    /// Maximum time to wait, for example 10m; then exit with code 124 [default: unlimited]
    #[arg(long, value_name = "DURATION")]
    pub(crate) wait_timeout: Option<Duration>,
}

/// `belfry job executions`
#[derive(Debug, Args)]
#[command(before_help = examples! {
    "belfry job executions JOB"
    "belfry job executions --worker WORKER --status running"
})]
pub(crate) struct ExecutionsArgs {
    /// ID of the job, or @last
    #[arg(value_name = "JOB")]
    pub(crate) id: Option<Reference<JobId>>,
    /// Filter by worker name or ID
    #[arg(long, value_name = "WORKER")]
    pub(crate) worker: Option<String>,
    /// Filter by status: assigned, running, succeeded, failed, cancelled, lost, refused
    #[arg(short, long, value_name = "STATUS", value_delimiter = ',')]
    pub(crate) status: Vec<ExecutionStatus>,
    #[command(flatten)]
    pub(crate) many: ListLimit,
}

/// `belfry job update`
#[derive(Debug, Args)]
#[command(before_help = examples! {
    "belfry job update JOB --priority 90"
    "belfry job update JOB --at 22:00 --queue night"
    "belfry job update JOB --patch '{\"timeout\": null}'"
})]
pub(crate) struct UpdateArgs {
    /// ID of the job, or @last
    #[arg(value_name = "JOB")]
    pub(crate) id: Reference<JobId>,
    /// JSON merge patch (RFC 7386) of the job spec; other options override it
    #[arg(long, value_name = "JSON")]
    pub(crate) patch: Option<String>,
    /// Update only if the job still has this version, which `belfry job get -o json` shows
    #[arg(long, value_name = "N")]
    pub(crate) if_version: Option<u64>,
    #[command(flatten)]
    pub(crate) due: DueArgs,
    #[command(flatten)]
    pub(crate) spec: SpecArgs,
}

/// Text below the help of commands that change all jobs that match filters.
const SELECTION_HELP: &str = "With filters, the command counts the jobs, asks for a confirmation, and \
    changes them page by page. It lists the jobs that could not be changed by reason, and then exits with \
    code 1. It is safe to interrupt the command and to run it again.";

/// Jobs that match filters, instead of a list of IDs.
#[derive(Debug, Clone, Args)]
pub(crate) struct SelectionArgs {
    #[command(flatten)]
    pub(crate) filter: JobFilterArgs,
    /// Select all jobs of the namespace, without a filter
    #[arg(long)]
    pub(crate) all: bool,
    /// Only count the jobs; `-o name` lists them
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Skip the confirmation
    #[arg(short, long)]
    pub(crate) yes: bool,
}

/// `belfry job retry`
#[derive(Debug, Args)]
#[command(before_help = examples! {
    "belfry job retry JOB"
    "belfry job retry --name sync-crm --after 1h"
    "belfry job retry --status failed,cancelled --label team=pay --dry-run"
})]
#[command(after_help = SELECTION_HELP)]
pub(crate) struct RetryArgs {
    /// IDs of the jobs, or @last; without IDs, the filters select failed and expired jobs
    #[arg(value_name = "JOB", conflicts_with_all = ["JobFilterArgs", "all", "dry_run"])]
    pub(crate) ids: Vec<Reference<JobId>>,
    #[command(flatten)]
    pub(crate) selection: SelectionArgs,
}

/// `belfry job cancel`
#[derive(Debug, Args)]
#[command(before_help = examples! {
    "belfry job cancel JOB --reason 'no longer needed'"
    "belfry job cancel --status waiting --queue import"
    "belfry job cancel --label team=pay --dry-run"
})]
#[command(after_help = SELECTION_HELP)]
pub(crate) struct CancelArgs {
    /// IDs of the jobs, or @last; without IDs, the filters select the jobs that have not ended
    #[arg(value_name = "JOB", conflicts_with_all = ["JobFilterArgs", "all", "dry_run"])]
    pub(crate) ids: Vec<Reference<JobId>>,
    #[command(flatten)]
    pub(crate) selection: SelectionArgs,
    /// Reason for the cancellation, recorded in the history of the job
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
    /// Wait until all jobs have ended
    #[arg(long)]
    pub(crate) wait: bool,
}
