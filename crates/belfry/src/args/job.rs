//! Arguments of `submit`, `logs`, `why` and `job`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use model::{BackfillId, Duration, ExecutionStatus, JobId, JobStatus, RunId, ScheduleId, Timestamp};

use super::examples;
use super::multiple::ManyArgs;
use super::spec::{DueArgs, Pair, ProcessArgs, SpecArgs, past};

/// `belfry submit`
#[derive(Debug, Args)]
#[command(before_help = examples! {
    "belfry submit -- echo hello"
    "belfry submit --follow --name count -- sh -c 'for i in 1 2 3; do echo $i; done'"
    "belfry submit -f job.yaml --priority 80 --wait"
    "belfry submit --script clean.sh --in 2h --retries 3"
    "belfry submit --shards 8 --max-failed 1 --wait -- ./import"
    "belfry submit --on-all-workers --constraint zone=a -- ./clean-up"
    "belfry submit --input data=in.csv --store out.csv=result -- ./convert in.csv out.csv"
})]
#[command(
    override_usage = "belfry submit [OPTIONS] -- COMMAND [ARGS]...\n       belfry submit [OPTIONS] -f FILE\n       belfry submit [OPTIONS] --script FILE"
)]
pub(crate) struct SubmitArgs {
    /// File with one or more job specs in YAML or JSON, `-` for stdin; options override the file
    #[arg(short, long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Idempotency key: a repeated submission with the same key returns the first job
    #[arg(long, value_name = "KEY")]
    pub(crate) idempotency_key: Option<String>,
    /// Print the job spec with all defaults, without submitting it
    #[arg(long, conflicts_with_all = ["wait", "follow"])]
    pub(crate) dry_run: bool,
    /// Wait until the job has ended, and exit with its exit code
    #[arg(long)]
    pub(crate) wait: bool,
    /// Show the log while the job runs, and exit with its exit code
    #[arg(long)]
    pub(crate) follow: bool,
    /// Maximum time to wait; then exit with code 124 while the job continues
    #[arg(long, value_name = "DURATION")]
    pub(crate) wait_timeout: Option<Duration>,
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
    "belfry logs JOB -f             follow the log until the job has ended"
    "belfry logs JOB --execution 1 --stream stderr --tail 20"
})]
pub(crate) struct LogsArgs {
    /// Job or execution
    #[arg(value_name = "JOB|EXECUTION")]
    pub(crate) target: String,
    /// Follow the log until the job or execution has ended
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Number of the execution [default: the newest]
    #[arg(long, value_name = "N", conflicts_with = "follow")]
    pub(crate) execution: Option<u32>,
    /// Stream to show: stdout, stderr or all
    #[arg(long, value_name = "NAME", default_value = "all", value_parser = ["stdout", "stderr", "all"], hide_possible_values = true)]
    pub(crate) stream: String,
    /// Show only the last N lines
    #[arg(long, value_name = "N")]
    pub(crate) tail: Option<usize>,
    /// Show the time of each line
    #[arg(short, long)]
    pub(crate) timestamps: bool,
    /// Print the original bytes; without this option, bytes that are not UTF-8 are replaced on a terminal
    #[arg(long, conflicts_with = "timestamps")]
    pub(crate) raw: bool,
}

/// `belfry why`
#[derive(Debug, Args)]
#[command(before_help = examples! {
    "belfry why JOB"
    "belfry why JOB -o wide         details of every worker"
})]
pub(crate) struct WhyArgs {
    /// Job
    #[arg(value_name = "JOB")]
    pub(crate) id: JobId,
}

/// `belfry job …`
#[derive(Debug, Subcommand)]
pub(crate) enum JobCommand {
    /// List jobs, newest first
    #[command(visible_alias = "ls")]
    List(ListArgs),
    /// Show the details of jobs
    Get(IdsArgs),
    /// Show the log of a job
    Logs(LogsArgs),
    /// Explain why a job is waiting, or why it ended as it did
    Why(WhyArgs),
    /// Show a job after each change, until it has ended
    Watch(WatchArgs),
    /// Wait until all jobs have ended, and exit with the exit code of the first job that failed
    Wait(WaitArgs),
    /// Show the history of a job
    #[command(before_help = examples! { "belfry job events JOB" })]
    Events(WhyArgs),
    /// List the executions of a job or of a worker
    Executions(ExecutionsArgs),
    /// Change a job that has not started; all other fields keep their values
    Update(Box<UpdateArgs>),
    /// Cancel jobs; running jobs are stopped
    Cancel(CancelArgs),
    /// Run ended jobs again, as new jobs
    Retry(IdsArgs),
}

/// `belfry job list`
#[derive(Debug, Args)]
#[command(before_help = examples! {
    "belfry job list --status failed --label team=pay"
    "belfry job list -n '*' --all -o json"
})]
pub(crate) struct ListArgs {
    /// Filter by status: ready, waiting, running, retrying, succeeded, failed, cancelled, expired
    #[arg(short, long, value_name = "STATUS", value_delimiter = ',')]
    pub(crate) status: Vec<JobStatus>,
    /// Filter by queue
    #[arg(long, value_name = "NAME")]
    pub(crate) queue: Option<String>,
    /// Filter by name
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Filter by owner
    #[arg(long, value_name = "NAME")]
    pub(crate) owner: Option<String>,
    /// Filter by label; repeat to require all
    #[arg(short, long = "label", value_name = "KEY=VALUE", value_parser = super::spec::parse_pair)]
    pub(crate) labels: Vec<Pair>,
    /// Filter by the worker of the newest execution, by id or name
    #[arg(long, value_name = "WORKER")]
    pub(crate) worker: Option<String>,
    /// Filter by schedule id
    #[arg(long, value_name = "SCHEDULE")]
    pub(crate) schedule: Option<ScheduleId>,
    /// Filter by backfill id
    #[arg(long, value_name = "BACKFILL")]
    pub(crate) backfill: Option<BackfillId>,
    /// Filter by workflow run id
    #[arg(long, value_name = "RUN")]
    pub(crate) run: Option<RunId>,
    /// Submitted at or after this time: `1h` (ago), 08:00 (most recent), yesterday, 2026-11-21T08:00
    #[arg(long, value_name = "TIME", value_parser = past)]
    pub(crate) after: Option<Timestamp>,
    /// Submitted before this time, in the same formats
    #[arg(long, value_name = "TIME", value_parser = past)]
    pub(crate) before: Option<Timestamp>,
    #[command(flatten)]
    pub(crate) many: ListLimit,
}

/// The length of a list.
#[derive(Debug, Clone, Args)]
pub(crate) struct ListLimit {
    /// Maximum number of items
    #[arg(long, value_name = "N", default_value_t = 50)]
    pub(crate) limit: usize,
    /// List all items
    #[arg(long, conflicts_with = "limit")]
    pub(crate) all: bool,
}

/// Jobs by their ids.
#[derive(Debug, Args)]
pub(crate) struct IdsArgs {
    /// Jobs
    #[arg(value_name = "JOB", required = true)]
    pub(crate) ids: Vec<JobId>,
}

/// `belfry job watch`
#[derive(Debug, Args)]
pub(crate) struct WatchArgs {
    /// Job
    #[arg(value_name = "JOB")]
    pub(crate) id: JobId,
}

/// `belfry job wait`
#[derive(Debug, Args)]
pub(crate) struct WaitArgs {
    /// Jobs
    #[arg(value_name = "JOB", required = true)]
    pub(crate) ids: Vec<JobId>,
    /// Maximum time to wait; then exit with code 124
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
    /// Job
    #[arg(value_name = "JOB")]
    pub(crate) id: Option<JobId>,
    /// Filter by worker, by id or name
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
    /// Job
    #[arg(value_name = "JOB")]
    pub(crate) id: JobId,
    /// JSON merge patch (RFC 7386) of the job spec; other options override it
    #[arg(long, value_name = "JSON")]
    pub(crate) patch: Option<String>,
    /// Update only if the job still has this version
    #[arg(long, value_name = "N")]
    pub(crate) if_version: Option<u64>,
    #[command(flatten)]
    pub(crate) due: DueArgs,
    #[command(flatten)]
    pub(crate) spec: SpecArgs,
}

/// `belfry job cancel`
#[derive(Debug, Args)]
#[command(before_help = examples! {
    "belfry job cancel JOB --reason 'no longer needed'"
    "belfry job list --all --status waiting -o name | xargs -r belfry job cancel"
})]
pub(crate) struct CancelArgs {
    /// Jobs
    #[arg(value_name = "JOB", required = true)]
    pub(crate) ids: Vec<JobId>,
    /// Reason, recorded in the history
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
    /// Wait until all have ended
    #[arg(long)]
    pub(crate) wait: bool,
}
