//! Arguments of `task`: checkpoints, elements for a mapped step, and endpoints of services.
//!
//! A script calls these commands inside a task. They talk to the worker over the task socket, so they need no server
//! URL and no token.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::examples;

/// `belfry task …`
#[derive(Debug, Subcommand)]
pub(crate) enum TaskCommand {
    /// Read or save the checkpoint of the job
    #[command(subcommand)]
    Checkpoint(CheckpointCommand),
    /// Add elements to a step of the run that starts one job for each element
    #[command(before_help = examples! {
        "belfry task add --batch links https://a.example https://b.example"
        "belfry task add --to page --batch \"$BELFRY_ITEM\" '{\"path\": \"/news\", \"depth\": 2}'"
        "find /data -name '*.csv' | belfry task add --batch files --file -"
    })]
    #[command(
        after_help = "The other step names the step of this task in its definition: `for_each: {over: \
        {added_by: [STEP]}}`. Name each batch after the source of its elements, for example a file or a \
        page: then a retry adds nothing twice. More than 1000 elements are added as several batches: NAME, \
        NAME/2, NAME/3."
    )]
    Add(AddArgs),
    /// Print the endpoints of a service that the job requires, or keep a file up to date
    #[command(before_help = examples! {
        "belfry task endpoints db"
        "belfry task endpoints web --port http --file upstreams"
        "belfry task endpoints web --port http --file upstreams --watch -- nginx -s reload &"
    })]
    #[command(
        after_help = "The job must name the service in `requires`. The output has one HOST:PORT on each line; `-o json` and \
        `-o yaml` give all fields. `--watch` runs until the task ends. It replaces the file atomically, and only if its content \
        changes; then it runs the command, for at most one minute."
    )]
    Endpoints(EndpointsArgs),
}

/// `belfry task endpoints`
#[derive(Debug, Args)]
pub(crate) struct EndpointsArgs {
    /// Name of the service, in the namespace of the job
    #[arg(value_name = "SERVICE")]
    pub(crate) service: String,
    /// Name of the port [default: all ports]
    #[arg(long, value_name = "NAME")]
    pub(crate) port: Option<String>,
    /// Output file [default: standard output]
    #[arg(long, short, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Keep the file up to date until the task ends
    #[arg(long, short, requires = "file")]
    pub(crate) watch: bool,
    /// Command and arguments to run after each change of the file, after `--`
    #[arg(value_name = "COMMAND", trailing_var_arg = true, requires = "watch")]
    pub(crate) command: Vec<String>,
}

/// `belfry task add`
#[derive(Debug, Args)]
pub(crate) struct AddArgs {
    /// Elements to add; valid JSON such as 7, true or {"a": 1} is added as JSON, any other text as a string
    #[arg(value_name = "ELEMENT", required_unless_present = "file", allow_negative_numbers = true)]
    pub(crate) elements: Vec<String>,
    /// Name of this batch of elements; if a batch with this name exists, also from an earlier attempt,
    /// nothing is added
    #[arg(long, value_name = "NAME")]
    pub(crate) batch: String,
    /// Name of the step that gets the elements [default: the only step that accepts elements from this task]
    #[arg(long, value_name = "STEP")]
    pub(crate) to: Option<String>,
    /// File with a JSON list, or with one element per line, `-` for standard input
    #[arg(long, short, value_name = "FILE", conflicts_with = "elements")]
    pub(crate) file: Option<PathBuf>,
}

/// `belfry task checkpoint …`
#[derive(Debug, Subcommand)]
pub(crate) enum CheckpointCommand {
    /// Print the last checkpoint of the job, or exit with code 3 if there is none
    #[command(before_help = examples! {
        "belfry task checkpoint get > progress || echo 0 > progress"
        "belfry task checkpoint get progress"
    })]
    Get {
        /// Output file [default: standard output]
        #[arg(value_name = "FILE", default_value = "-", hide_default_value = true)]
        file: PathBuf,
    },
    /// Save a checkpoint of the job, and print its version
    #[command(before_help = examples! {
        "belfry task checkpoint set progress"
        "echo 7 | belfry task checkpoint set - --type text/plain"
    })]
    Set {
        /// File with the checkpoint, at most 64 KiB, `-` for standard input
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// Content type of the checkpoint
        #[arg(long = "type", value_name = "TYPE", default_value = "application/octet-stream")]
        content_type: String,
        /// Save only if the last checkpoint has this version; 0 requires that the job has no checkpoint
        #[arg(long, value_name = "VERSION")]
        expect: Option<u64>,
    },
}
