//! Commands about queues, artifacts, events and the configuration.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use model::JobId;

use super::examples;
use super::job::Many;

/// `belfry queue …`
#[derive(Debug, Subcommand)]
pub(crate) enum QueueCommand {
    /// List queues
    #[command(visible_alias = "ls")]
    List,
    /// Show a queue in detail
    Get(QueueArgs),
    /// Change how a queue lets jobs through; what is not named stays
    Set(QueueSetArgs),
    /// Let nothing of a queue start
    Pause(QueuePauseArgs),
    /// Let a paused queue go on
    Resume(QueueArgs),
    /// Delete the settings of queues; refused while jobs wait or run there
    #[command(visible_alias = "rm", before_help = examples! { "belfry queue delete mial" })]
    Delete {
        /// Queues
        #[arg(value_name = "QUEUE", required = true)]
        names: Vec<String>,
    },
}

/// A queue by its name.
#[derive(Debug, Args)]
pub(crate) struct QueueArgs {
    /// The queue
    #[arg(value_name = "QUEUE")]
    pub(crate) name: String,
}

/// `belfry queue pause`
#[derive(Debug, Args)]
#[command(before_help = examples! { "belfry queue pause mail --note 'database upgrade'" })]
pub(crate) struct QueuePauseArgs {
    /// The queue
    #[arg(value_name = "QUEUE")]
    pub(crate) name: String,
    /// Why, for people
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
    /// The queue; it is made if nobody has set it up yet
    #[arg(value_name = "QUEUE")]
    pub(crate) name: String,
    /// The most of its jobs that run at once, or `none`
    #[arg(long, value_name = "N", value_parser = or_none::<u32>)]
    pub(crate) concurrency: Option<OrNone<u32>>,
    /// The most of its jobs that start in a second, or `none`
    #[arg(long, value_name = "N", value_parser = or_none::<f64>)]
    pub(crate) rate: Option<OrNone<f64>>,
    /// How many may start at once after a quiet time, or `none`
    #[arg(long, value_name = "N", value_parser = or_none::<u32>)]
    pub(crate) burst: Option<OrNone<u32>>,
    /// Its share against other queues
    #[arg(long, value_name = "N")]
    pub(crate) weight: Option<u32>,
    /// The share of a namespace within it; repeatable
    #[arg(long = "share", value_name = "NAMESPACE=N", value_parser = share)]
    pub(crate) shares: Vec<(String, u32)>,
    /// For people
    #[arg(long, value_name = "TEXT")]
    pub(crate) note: Option<String>,
}

/// A value, or the word `none`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct OrNone<T>(pub(crate) Option<T>);

fn or_none<T: std::str::FromStr>(text: &str) -> Result<OrNone<T>, String> {
    if text == "none" {
        return Ok(OrNone(None));
    }
    text.parse().map(|n| OrNone(Some(n))).map_err(|_| "expected a number or `none`".into())
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
        /// The artifact
        #[arg(value_name = "NAME")]
        name: String,
        /// The file, `-` for stdin
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// List the newest version of each artifact, or all versions of one
    #[command(visible_alias = "ls")]
    List {
        /// All versions of this one
        #[arg(value_name = "NAME")]
        name: Option<String>,
        #[command(flatten)]
        many: Many,
    },
    /// Fetch an artifact
    #[command(before_help = examples! {
        "belfry artifact get result                   to ./result"
        "belfry artifact get result out.csv"
        "belfry artifact get data.tar - | tar t"
        "belfry artifact get tool@sha256:HEX          one version of it"
    })]
    Get {
        /// The artifact: NAME (its newest version), or NAME@sha256:HEX
        #[arg(value_name = "NAME")]
        name: String,
        /// Where to; `-` for stdout, a file of its name here where absent
        #[arg(value_name = "FILE")]
        file: Option<PathBuf>,
    },
    /// Delete artifacts, all of their versions or one
    #[command(before_help = examples! {
        "belfry artifact delete result"
        "belfry artifact delete result@sha256:HEX     one version of it"
    })]
    Delete {
        /// The artifacts: NAME (all versions), or NAME@sha256:HEX
        #[arg(value_name = "NAME", required = true)]
        names: Vec<String>,
    },
}

/// `belfry events`
#[derive(Debug, Args)]
#[command(before_help = examples! {
    "belfry events                          from now on, until Ctrl-C"
    "belfry events --type job.failed -o json"
    "belfry events --since 0                from the oldest that is kept"
})]
pub(crate) struct EventsArgs {
    /// Only of these types, with commas between: job.failed, worker
    #[arg(long = "type", value_name = "TYPE")]
    pub(crate) kind: Option<String>,
    /// Only about this job
    #[arg(long, value_name = "JOB")]
    pub(crate) job: Option<JobId>,
    /// Begin behind this place in the feed
    #[arg(long, value_name = "SEQ")]
    pub(crate) since: Option<u64>,
}

/// `belfry config …`
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Say everything that is wrong with the configuration
    Check {
        /// A file to check in place of the one that is used
        #[arg(value_name = "FILE")]
        file: Option<PathBuf>,
    },
    /// Show all settings, what holds, and where it comes from
    Show,
}
