//! Arguments of `task`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::examples;

/// `belfry task …`
#[derive(Debug, Subcommand)]
pub(crate) enum TaskCommand {
    /// Read or save the checkpoint of the job
    #[command(subcommand)]
    Checkpoint(CheckpointCommand),
    /// Add elements to a step that is mapped over the results of this task
    #[command(before_help = examples! {
        "belfry task add --batch links https://a.example https://b.example"
        "belfry task add --to page --batch \"$BELFRY_ITEM\" '{\"path\": \"/news\", \"depth\": 2}'"
        "find /data -name '*.csv' | belfry task add --batch files --file -"
    })]
    Add(AddArgs),
}

/// `belfry task add`
#[derive(Debug, Args)]
pub(crate) struct AddArgs {
    /// Elements: valid JSON (7, true, {"a": 1}) is used as JSON, anything else as a string
    #[arg(value_name = "ELEMENT", required_unless_present = "file", allow_negative_numbers = true)]
    pub(crate) elements: Vec<String>,
    /// Name of the batch: a repeated name, also in the next attempt, adds nothing. More than 1,000 elements are
    /// added as several batches: NAME, NAME/2, NAME/3
    #[arg(long, value_name = "NAME")]
    pub(crate) batch: String,
    /// Step, if this task may add elements to several steps
    #[arg(long, value_name = "STEP")]
    pub(crate) to: Option<String>,
    /// File with a JSON list, or with one element per line, `-` for stdin
    #[arg(long, short, value_name = "FILE", conflicts_with = "elements")]
    pub(crate) file: Option<PathBuf>,
}

/// `belfry task checkpoint …`
#[derive(Debug, Subcommand)]
pub(crate) enum CheckpointCommand {
    /// Print the last checkpoint of the job; exits with 3 if there is none
    #[command(before_help = examples! {
        "belfry task checkpoint get > progress || echo 0 > progress"
        "belfry task checkpoint get progress"
    })]
    Get {
        /// Output file [default: stdout]
        #[arg(value_name = "FILE", default_value = "-", hide_default_value = true)]
        file: PathBuf,
    },
    /// Save a checkpoint, and print its version
    #[command(before_help = examples! {
        "belfry task checkpoint set progress"
        "echo 7 | belfry task checkpoint set - --type text/plain"
    })]
    Set {
        /// File, `-` for stdin; at most 64 KiB
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// Content type of the checkpoint
        #[arg(long = "type", value_name = "TYPE", default_value = "application/octet-stream")]
        content_type: String,
        /// Save only if the current version is this one; 0 if there must be no checkpoint yet
        #[arg(long, value_name = "VERSION")]
        expect: Option<u64>,
    },
}
