//! Commands about jobs.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use model::{BackfillId, Duration, ExecutionStatus, JobId, JobStatus, RunId, ScheduleId, Timestamp};

use super::examples;
use super::many::ManyArgs;
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
    /// A file with one or more specs in YAML or JSON, `-` for stdin; flags go before it
    #[arg(short, long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// A second submission with the same key answers with the first one's job
    #[arg(long, value_name = "KEY")]
    pub(crate) idempotency_key: Option<String>,
    /// Show what would be submitted, with all defaults, and submit nothing
    #[arg(long, conflicts_with_all = ["wait", "follow"])]
    pub(crate) dry_run: bool,
    /// Wait until it ended, and exit with its exit code
    #[arg(long)]
    pub(crate) wait: bool,
    /// Show what it writes as it runs, and exit with its exit code
    #[arg(long)]
    pub(crate) follow: bool,
    /// Give up waiting after so long, with exit code 124; the job goes on
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
    "belfry logs JOB                what its newest execution wrote"
    "belfry logs JOB -f             all that it writes until it has ended"
    "belfry logs JOB --execution 1 --stream stderr --tail 20"
})]
pub(crate) struct LogsArgs {
    /// The job, or one of its executions
    #[arg(value_name = "JOB|EXECUTION")]
    pub(crate) target: String,
    /// Wait for more until it has ended
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Which execution, by its number; the newest where absent
    #[arg(long, value_name = "N", conflicts_with = "follow")]
    pub(crate) execution: Option<u32>,
    /// stdout, stderr or all
    #[arg(long, value_name = "NAME", default_value = "all", value_parser = ["stdout", "stderr", "all"], hide_possible_values = true)]
    pub(crate) stream: String,
    /// Only the last lines
    #[arg(long, value_name = "N")]
    pub(crate) tail: Option<usize>,
    /// With the time of each line
    #[arg(short, long)]
    pub(crate) timestamps: bool,
    /// The bytes that were written, also on a terminal, where bytes that are not UTF-8 are otherwise replaced
    #[arg(long, conflicts_with = "timestamps")]
    pub(crate) raw: bool,
}

/// `belfry why`
#[derive(Debug, Args)]
#[command(before_help = examples! {
    "belfry why JOB"
    "belfry why JOB -o wide         about every worker"
})]
pub(crate) struct WhyArgs {
    /// The job
    #[arg(value_name = "JOB")]
    pub(crate) id: JobId,
}

/// `belfry job …`
#[derive(Debug, Subcommand)]
pub(crate) enum JobCommand {
    /// List jobs, the newest first
    #[command(visible_alias = "ls")]
    List(ListArgs),
    /// Show jobs in detail
    Get(IdsArgs),
    /// Show what a job wrote
    Logs(LogsArgs),
    /// Say why a job stands where it stands
    Why(WhyArgs),
    /// Show a job each time that it changes, until it has ended
    Watch(WatchArgs),
    /// Wait until jobs have ended, and exit with the exit code of the first that failed
    Wait(WaitArgs),
    /// Show a job's history
    Events(WhyArgs),
    /// Show a job's executions, or those of a worker
    Executions(ExecutionsArgs),
    /// Change a job that has not started; what is not named stays as it is
    Update(Box<UpdateArgs>),
    /// Cancel jobs; running ones are stopped
    Cancel(CancelArgs),
    /// Submit ended jobs again, as new ones
    Retry(IdsArgs),
}

/// `belfry job list`
#[derive(Debug, Args)]
#[command(before_help = examples! {
    "belfry job list --status failed --label team=pay"
    "belfry job list -n '*' --all -o json"
})]
pub(crate) struct ListArgs {
    /// With one of these statuses: ready, waiting, running, retrying, succeeded, failed, cancelled, expired
    #[arg(short, long, value_name = "STATUS", value_delimiter = ',')]
    pub(crate) status: Vec<JobStatus>,
    /// In this queue
    #[arg(long, value_name = "NAME")]
    pub(crate) queue: Option<String>,
    /// With this name
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Of this owner
    #[arg(long, value_name = "NAME")]
    pub(crate) owner: Option<String>,
    /// With this label; repeatable, all must be there
    #[arg(short, long = "label", value_name = "KEY=VALUE", value_parser = super::spec::parse_pair)]
    pub(crate) labels: Vec<Pair>,
    /// Whose newest execution is, or was, on this worker, by its id or name
    #[arg(long, value_name = "WORKER")]
    pub(crate) worker: Option<String>,
    /// Of this schedule, by its id
    #[arg(long, value_name = "SCHEDULE")]
    pub(crate) schedule: Option<ScheduleId>,
    /// Of this backfill
    #[arg(long, value_name = "BACKFILL")]
    pub(crate) backfill: Option<BackfillId>,
    /// Of this run of a workflow
    #[arg(long, value_name = "RUN")]
    pub(crate) run: Option<RunId>,
    /// Submitted at or after this time: `1h` (ago), 08:00 (the last), yesterday, 2026-11-21T08:00
    #[arg(long, value_name = "TIME", value_parser = past)]
    pub(crate) after: Option<Timestamp>,
    /// Submitted before this time, written likewise
    #[arg(long, value_name = "TIME", value_parser = past)]
    pub(crate) before: Option<Timestamp>,
    #[command(flatten)]
    pub(crate) many: Many,
}

/// How many items of a list.
#[derive(Debug, Clone, Args)]
pub(crate) struct Many {
    /// How many at most
    #[arg(long, value_name = "N", default_value_t = 50)]
    pub(crate) limit: usize,
    /// All that there are
    #[arg(long, conflicts_with = "limit")]
    pub(crate) all: bool,
}

/// Jobs by their ids.
#[derive(Debug, Args)]
pub(crate) struct IdsArgs {
    /// The jobs
    #[arg(value_name = "JOB", required = true)]
    pub(crate) ids: Vec<JobId>,
}

/// `belfry job watch`
#[derive(Debug, Args)]
pub(crate) struct WatchArgs {
    /// The job
    #[arg(value_name = "JOB")]
    pub(crate) id: JobId,
}

/// `belfry job wait`
#[derive(Debug, Args)]
pub(crate) struct WaitArgs {
    /// The jobs
    #[arg(value_name = "JOB", required = true)]
    pub(crate) ids: Vec<JobId>,
    /// Give up after so long, with exit code 124
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
    /// Of this job
    #[arg(value_name = "JOB")]
    pub(crate) id: Option<JobId>,
    /// On this worker, by its id or name
    #[arg(long, value_name = "WORKER")]
    pub(crate) worker: Option<String>,
    /// With one of these statuses: assigned, running, succeeded, failed, cancelled, lost, refused
    #[arg(short, long, value_name = "STATUS", value_delimiter = ',')]
    pub(crate) status: Vec<ExecutionStatus>,
    #[command(flatten)]
    pub(crate) many: Many,
}

/// `belfry job update`
#[derive(Debug, Args)]
#[command(before_help = examples! {
    "belfry job update JOB --priority 90"
    "belfry job update JOB --at 22:00 --queue night"
    "belfry job update JOB --patch '{\"timeout\": null}'"
})]
pub(crate) struct UpdateArgs {
    /// The job
    #[arg(value_name = "JOB")]
    pub(crate) id: JobId,
    /// A JSON merge patch (RFC 7386) of its spec; flags go before it
    #[arg(long, value_name = "JSON")]
    pub(crate) patch: Option<String>,
    /// Only if it is still at this version
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
    /// The jobs
    #[arg(value_name = "JOB", required = true)]
    pub(crate) ids: Vec<JobId>,
    /// Recorded in their history
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
    /// Wait until they have ended
    #[arg(long)]
    pub(crate) wait: bool,
}
