//! Arguments of `belfry namespace`.
//!
//! `namespace set` changes only the given settings; `none` removes a limit. The commands are in
//! [`crate::commands::namespaces`](crate::commands).

use clap::{Args, Subcommand};
use model::spec::{PriorityClass, SandboxLevel, SandboxNetwork};
use model::{Bytes, Millicores};

use super::examples;
use super::more::{OptionalLimit, or_none};
use super::spec::word;

/// `belfry namespace …`
#[derive(Debug, Subcommand)]
pub(crate) enum NamespaceCommand {
    /// List namespaces that have settings or jobs, with what their jobs use
    #[command(visible_alias = "ls")]
    List,
    /// Show the quota of a namespace, and what its jobs use
    #[command(before_help = examples! { "belfry namespace get team-a" })]
    Get(NamespaceArgs),
    /// Set the given limits of a namespace
    Set(NamespaceSetArgs),
    /// Delete the settings of namespaces: their jobs have no limits then
    #[command(visible_alias = "rm", before_help = examples! { "belfry namespace delete team-a" })]
    Delete {
        /// Names of the namespaces
        #[arg(value_name = "NAMESPACE", required = true)]
        names: Vec<String>,
    },
}

/// One namespace.
#[derive(Debug, Args)]
pub(crate) struct NamespaceArgs {
    /// Name of the namespace
    #[arg(value_name = "NAMESPACE")]
    pub(crate) name: String,
}

/// `belfry namespace set`
#[derive(Debug, Args)]
#[command(before_help = examples! {
    "belfry namespace set team-a --cpu 8 --memory 16GiB --resource gpu=2"
    "belfry namespace set team-a --running 100 --jobs 10000"
    "belfry namespace set team-a --cpu none --max-priority-class normal"
    "belfry namespace set guests --sandbox strict"
})]
pub(crate) struct NamespaceSetArgs {
    /// Name of the namespace
    #[arg(value_name = "NAMESPACE")]
    pub(crate) name: String,
    /// Maximum CPU that is allocated to running jobs, for example 8 or 500m; `none` removes the limit
    #[arg(long, value_name = "CPU", value_parser = or_none::<Millicores>)]
    pub(crate) cpu: Option<OptionalLimit<Millicores>>,
    /// Maximum memory that is allocated to running jobs, for example 16GiB; `none` removes the limit
    #[arg(long, value_name = "BYTES", value_parser = or_none::<Bytes>)]
    pub(crate) memory: Option<OptionalLimit<Bytes>>,
    /// Maximum amount of a custom resource that is allocated to running jobs; `none` removes the limit; repeatable
    #[arg(long = "resource", value_name = "NAME=N", value_parser = resource)]
    pub(crate) custom: Vec<(String, OptionalLimit<u64>)>,
    /// Maximum number of running jobs; `none` removes the limit
    #[arg(long, value_name = "N", value_parser = or_none::<u32>)]
    pub(crate) running: Option<OptionalLimit<u32>>,
    /// Maximum number of jobs that have not ended: submissions beyond it are refused; `none` removes the limit
    #[arg(long, value_name = "N", value_parser = or_none::<u64>)]
    pub(crate) jobs: Option<OptionalLimit<u64>>,
    /// Highest priority class of the jobs: high, normal or preemptible; `none` allows every class
    #[arg(long, value_name = "CLASS", value_parser = class)]
    pub(crate) max_priority_class: Option<OptionalLimit<PriorityClass>>,
    /// Minimum sandbox of processes: basic or strict; `none` removes it
    #[arg(long, value_name = "LEVEL")]
    pub(crate) sandbox: Option<SandboxLevel>,
    /// Most open network of sandboxes: none, loopback or host
    #[arg(long, value_name = "NETWORK")]
    pub(crate) sandbox_network: Option<SandboxNetwork>,
    /// Note for users, for example the reason for a limit; an empty text deletes the note
    #[arg(long, value_name = "TEXT")]
    pub(crate) note: Option<String>,
}

fn class(text: &str) -> Result<OptionalLimit<PriorityClass>, String> {
    match text {
        "none" => Ok(OptionalLimit(None)),
        text => {
            word(text, &["high", "normal", "preemptible", "none"]).map(|class| OptionalLimit(Some(class)))
        }
    }
}

fn resource(text: &str) -> Result<(String, OptionalLimit<u64>), String> {
    let (name, limit) = text.split_once('=').ok_or("expected NAME=N")?;
    Ok((name.to_owned(), or_none(limit)?))
}
