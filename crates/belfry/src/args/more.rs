//! Arguments of `queue`, `artifact`, `events` and `config`.
//!
//! Queues and artifacts are named by their names; they have no ids. `queue set` changes only the given
//! settings, so each of its options is an `Option`; [`OptionalLimit`] tells a limit that is removed (`none`)
//! from a limit that is not given. An artifact argument may name one version: `NAME@sha256:HEX`. The commands
//! are in the modules `queues`, `artifacts`, `events` and `config` of [`crate::commands`].

use std::path::PathBuf;

use clap::{Args, Subcommand};
use model::api::{StatisticsOrder, UsageOrder};
use model::statistics::SubjectKind;
use model::{Duration, JobId};

use super::examples;
use super::job::ListLimit;
use super::reference::Reference;
use super::spec::word;

/// `belfry queue …`
#[derive(Debug, Subcommand)]
pub(crate) enum QueueCommand {
    /// List queues
    #[command(visible_alias = "ls")]
    List,
    /// Show the details of a queue
    #[command(before_help = examples! { "belfry queue get mail" })]
    Get(QueueArgs),
    /// Create a queue, or change the given settings of a queue
    Set(QueueSetArgs),
    /// Pause a queue: no further job of the queue starts until you resume it
    Pause(QueuePauseArgs),
    /// Resume a paused queue
    #[command(before_help = examples! { "belfry queue resume mail" })]
    Resume(QueueArgs),
    /// Delete queues that have no waiting and no running jobs
    #[command(visible_alias = "rm", before_help = examples! { "belfry queue delete mail" })]
    Delete {
        /// Names of the queues
        #[arg(value_name = "QUEUE", required = true)]
        names: Vec<String>,
    },
}

/// One queue.
#[derive(Debug, Args)]
pub(crate) struct QueueArgs {
    /// Name of the queue
    #[arg(value_name = "QUEUE")]
    pub(crate) name: String,
}

/// `belfry queue pause`
#[derive(Debug, Args)]
#[command(before_help = examples! { "belfry queue pause mail --note 'database upgrade'" })]
pub(crate) struct QueuePauseArgs {
    /// Name of the queue
    #[arg(value_name = "QUEUE")]
    pub(crate) name: String,
    /// Reason for the pause, shown to users
    #[arg(long, value_name = "TEXT")]
    pub(crate) note: Option<String>,
}

/// `belfry queue set`
#[derive(Debug, Args)]
#[command(before_help = examples! {
    "belfry queue set mail --concurrency 4 --rate 10"
    "belfry queue set mail --rate none --weight 3"
    "belfry queue set shared --share pay=4 --share web=1"
})]
pub(crate) struct QueueSetArgs {
    /// Name of the queue; a queue that does not exist is created
    #[arg(value_name = "QUEUE")]
    pub(crate) name: String,
    /// Maximum number of concurrent jobs; `none` removes the limit
    #[arg(long, value_name = "N", value_parser = or_none::<u32>)]
    pub(crate) concurrency: Option<OptionalLimit<u32>>,
    /// Maximum average number of job starts per second; `none` removes the limit
    #[arg(long, value_name = "N", value_parser = or_none::<f64>)]
    pub(crate) rate: Option<OptionalLimit<f64>>,
    /// Maximum number of jobs that start at once after an idle period; `none` resets it to the value of --rate
    #[arg(long, value_name = "N", value_parser = or_none::<u32>)]
    pub(crate) burst: Option<OptionalLimit<u32>>,
    /// Weight of the queue against other queues that compete for the same workers, from 1 to 1000
    #[arg(long, value_name = "N")]
    pub(crate) weight: Option<u32>,
    /// Weight of a namespace within the queue, from 1 to 1000; other namespaces have weight 1; repeatable
    #[arg(long = "share", value_name = "NAMESPACE=N", value_parser = share)]
    pub(crate) shares: Vec<(String, u32)>,
    /// Note for users, for example the reason for a pause; `belfry queue resume` deletes the note
    #[arg(long, value_name = "TEXT")]
    pub(crate) note: Option<String>,
}

/// A value, or the word `none`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct OptionalLimit<T>(pub(crate) Option<T>);

pub(super) fn or_none<T: std::str::FromStr>(text: &str) -> Result<OptionalLimit<T>, String> {
    if text == "none" {
        return Ok(OptionalLimit(None));
    }
    text.parse().map(|n| OptionalLimit(Some(n))).map_err(|_| "expected a number or `none`".into())
}

fn share(text: &str) -> Result<(String, u32), String> {
    let parsed = text.split_once('=').and_then(|(name, n)| Some((name.to_owned(), n.parse().ok()?)));
    parsed.ok_or_else(|| "expected NAMESPACE=N".into())
}

/// `belfry artifact …`
#[derive(Debug, Subcommand)]
pub(crate) enum ArtifactCommand {
    /// Store a file as the newest version of an artifact
    #[command(before_help = examples! {
        "belfry artifact push tool ./tool"
        "tar c data | belfry artifact push data.tar -"
    })]
    Push {
        /// Name of the artifact
        #[arg(value_name = "NAME")]
        name: String,
        /// File to store, `-` for standard input
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// List the newest version of each artifact, or all versions of one artifact
    #[command(visible_alias = "ls", before_help = examples! {
        "belfry artifact list"
        "belfry artifact list result          all versions of one artifact"
    })]
    List {
        /// Name of the artifact whose versions are listed [default: the newest version of each artifact]
        #[arg(value_name = "NAME")]
        name: Option<String>,
        #[command(flatten)]
        many: ListLimit,
    },
    /// Download an artifact
    #[command(before_help = examples! {
        "belfry artifact get result                   to ./result"
        "belfry artifact get result out.csv"
        "belfry artifact get data.tar - | tar t"
        "belfry artifact get tool@sha256:HEX          one version"
    })]
    Get {
        /// Name of the artifact: NAME (newest version) or NAME@sha256:HEX (one version)
        #[arg(value_name = "NAME")]
        name: String,
        /// Output file, `-` for standard output [default: the name of the artifact, in the current directory]
        #[arg(value_name = "FILE")]
        file: Option<PathBuf>,
    },
    /// Delete artifacts, or single versions of artifacts
    #[command(before_help = examples! {
        "belfry artifact delete result                all versions"
        "belfry artifact delete result@sha256:HEX     one version"
    })]
    Delete {
        /// Names of the artifacts: NAME (all versions) or NAME@sha256:HEX (one version)
        #[arg(value_name = "NAME", required = true)]
        names: Vec<String>,
    },
}

/// `belfry events`
#[derive(Debug, Args)]
#[command(before_help = examples! {
    "belfry events                          new events, until Ctrl-C"
    "belfry events --type job.failed -o json"
    "belfry events --since 0                all stored events first"
})]
pub(crate) struct EventsArgs {
    /// Filter by event type: job.failed, or job for all types that begin with `job.`; separate types with commas
    #[arg(long = "type", value_name = "TYPE")]
    pub(crate) kind: Option<String>,
    /// Filter by job ID, or @last
    #[arg(long, value_name = "JOB")]
    pub(crate) job: Option<Reference<JobId>>,
    /// Sequence number after which the events start; 0 selects all stored events [default: new events only]
    #[arg(long, value_name = "SEQ")]
    pub(crate) since: Option<u64>,
}

/// `belfry stats`
#[derive(Debug, Args)]
#[command(before_help = examples! {
    "belfry stats                                the jobs that failed most often in 24 hours"
    "belfry stats --by queue --since 1h --order start-delay"
    "belfry stats --by all --since 30d -o wide"
})]
pub(crate) struct StatsArgs {
    /// Kind of the rows: job (by name), queue, namespace, schedule, worker, or all (one row) [default: job]
    #[arg(long, value_name = "KIND", value_parser = kind)]
    pub(crate) by: Option<SubjectKind>,
    /// Length of the range until now, at most 31d, with `--by all` at most a year [default: 24h]
    #[arg(long, value_name = "DURATION")]
    pub(crate) since: Option<Duration>,
    /// Order of the rows: failed, submitted, retried, start_delay, run_time, name [default: failed]
    #[arg(long, value_name = "ORDER", value_parser = order)]
    pub(crate) order: Option<StatisticsOrder>,
    /// Maximum number of rows, from 1 to 1000 [default: 50]
    #[arg(long, value_name = "COUNT")]
    pub(crate) limit: Option<u32>,
}

/// `belfry top`
#[derive(Debug, Args)]
#[command(before_help = examples! {
    "belfry top"
    "belfry top --interval 10s"
    "belfry top --order memory"
    "belfry top --once -o json"
})]
#[command(
    after_help = "Rates are averages of the last 5 minutes. CPU and memory of workers are those that executions have \
    requested. Those of executions are what workers measure every 5 seconds, beside the request. On a terminal, the page is redrawn in place until Ctrl-C; in a pipe, it is printed once. With -o json \
    or -o yaml, each update is one object."
)]
pub(crate) struct TopArgs {
    /// Interval of updates
    #[arg(long, value_name = "DURATION", default_value = "2s")]
    pub(crate) interval: Duration,
    /// Print the page once
    #[arg(long)]
    pub(crate) once: bool,
    /// What the executions are ordered by: cpu, memory or disk
    #[arg(long, value_name = "ORDER", default_value_t, value_parser = usage_order)]
    pub(crate) order: UsageOrder,
}

fn usage_order(text: &str) -> Result<UsageOrder, String> {
    word(text, &["cpu", "memory", "disk"])
}

fn kind(text: &str) -> Result<SubjectKind, String> {
    word(text, &["job", "queue", "namespace", "schedule", "worker", "all"])
}

fn order(text: &str) -> Result<StatisticsOrder, String> {
    word(text, &["failed", "submitted", "retried", "start_delay", "run_time", "name"])
}

/// `belfry config …`
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Check the configuration and list all errors
    #[command(before_help = examples! { "belfry config check /etc/belfry/config.toml" })]
    Check {
        /// Configuration file to check [default: the file in use]
        #[arg(value_name = "FILE")]
        file: Option<PathBuf>,
    },
    /// Show all settings with their values and sources
    #[command(before_help = examples! { "belfry config show -o wide" })]
    Show,
}
