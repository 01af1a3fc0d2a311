//! Arguments of `queue`, `artifact`, `events` and `config`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use model::JobId;

use super::examples;
use super::job::ListLimit;

/// `belfry queue …`
#[derive(Debug, Subcommand)]
pub(crate) enum QueueCommand {
    /// List queues
    #[command(visible_alias = "ls")]
    List,
    /// Show the details of a queue
    Get(QueueArgs),
    /// Create a queue or change its settings; all other settings keep their values
    Set(QueueSetArgs),
    /// Pause a queue: its waiting jobs do not start
    Pause(QueuePauseArgs),
    /// Resume a paused queue
    Resume(QueueArgs),
    /// Delete queues; refused while they have waiting or running jobs
    #[command(visible_alias = "rm", before_help = examples! { "belfry queue delete mial" })]
    Delete {
        /// Queues
        #[arg(value_name = "QUEUE", required = true)]
        names: Vec<String>,
    },
}

/// One queue.
#[derive(Debug, Args)]
pub(crate) struct QueueArgs {
    /// Queue
    #[arg(value_name = "QUEUE")]
    pub(crate) name: String,
}

/// `belfry queue pause`
#[derive(Debug, Args)]
#[command(before_help = examples! { "belfry queue pause mail --note 'database upgrade'" })]
pub(crate) struct QueuePauseArgs {
    /// Queue
    #[arg(value_name = "QUEUE")]
    pub(crate) name: String,
    /// Reason, shown to users
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
    /// Queue; created if it does not exist
    #[arg(value_name = "QUEUE")]
    pub(crate) name: String,
    /// Maximum number of running jobs, or `none`
    #[arg(long, value_name = "N", value_parser = or_none::<u32>)]
    pub(crate) concurrency: Option<OptionalLimit<u32>>,
    /// Maximum number of job starts per second, or `none`
    #[arg(long, value_name = "N", value_parser = or_none::<f64>)]
    pub(crate) rate: Option<OptionalLimit<f64>>,
    /// Burst: number of jobs that may start at once after a quiet period, or `none`
    #[arg(long, value_name = "N", value_parser = or_none::<u32>)]
    pub(crate) burst: Option<OptionalLimit<u32>>,
    /// Weight of the queue against other queues
    #[arg(long, value_name = "N")]
    pub(crate) weight: Option<u32>,
    /// Weight of a namespace within the queue; repeatable
    #[arg(long = "share", value_name = "NAMESPACE=N", value_parser = share)]
    pub(crate) shares: Vec<(String, u32)>,
    /// Description
    #[arg(long, value_name = "TEXT")]
    pub(crate) note: Option<String>,
}

/// A value, or the word `none`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct OptionalLimit<T>(pub(crate) Option<T>);

fn or_none<T: std::str::FromStr>(text: &str) -> Result<OptionalLimit<T>, String> {
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
        /// Artifact
        #[arg(value_name = "NAME")]
        name: String,
        /// File, `-` for stdin
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// List the newest version of each artifact, or all versions of one
    #[command(visible_alias = "ls")]
    List {
        /// List all versions of this artifact
        #[arg(value_name = "NAME")]
        name: Option<String>,
        #[command(flatten)]
        many: ListLimit,
    },
    /// Fetch an artifact
    #[command(before_help = examples! {
        "belfry artifact get result                   to ./result"
        "belfry artifact get result out.csv"
        "belfry artifact get data.tar - | tar t"
        "belfry artifact get tool@sha256:HEX          one version of it"
    })]
    Get {
        /// Artifact: NAME (newest version) or NAME@sha256:HEX
        #[arg(value_name = "NAME")]
        name: String,
        /// Output file, `-` for stdout [default: a file with the artifact's name in this directory]
        #[arg(value_name = "FILE")]
        file: Option<PathBuf>,
    },
    /// Delete artifacts: all versions or one
    #[command(before_help = examples! {
        "belfry artifact delete result"
        "belfry artifact delete result@sha256:HEX     one version of it"
    })]
    Delete {
        /// Artifacts: NAME (all versions) or NAME@sha256:HEX
        #[arg(value_name = "NAME", required = true)]
        names: Vec<String>,
    },
}

/// `belfry events`
#[derive(Debug, Args)]
#[command(before_help = examples! {
    "belfry events                          from now on, until Ctrl-C"
    "belfry events --type job.failed -o json"
    "belfry events --since 0                from the oldest event"
})]
pub(crate) struct EventsArgs {
    /// Filter by event type, comma-separated: job.failed, worker
    #[arg(long = "type", value_name = "TYPE")]
    pub(crate) kind: Option<String>,
    /// Filter by job
    #[arg(long, value_name = "JOB")]
    pub(crate) job: Option<JobId>,
    /// Start after this event id
    #[arg(long, value_name = "SEQ")]
    pub(crate) since: Option<u64>,
}

/// `belfry config …`
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Check the configuration and list all errors
    Check {
        /// File to check [default: the file in use]
        #[arg(value_name = "FILE")]
        file: Option<PathBuf>,
    },
    /// Show all settings with their values and sources
    Show,
}
