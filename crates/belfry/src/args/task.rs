//! Commands for what runs as a task.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::examples;

/// `belfry task …`
#[derive(Debug, Subcommand)]
pub(crate) enum TaskCommand {
    /// Read or save what the next execution of the job goes on from
    #[command(subcommand)]
    Checkpoint(CheckpointCommand),
    /// Add elements to the step that goes over what this task adds
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
    /// The elements: each is JSON where it reads as such (7, true, {"a": 1}), else a text
    #[arg(value_name = "ELEMENT", required_unless_present = "file", allow_negative_numbers = true)]
    pub(crate) elements: Vec<String>,
    /// What these elements are called: the same name again, also in the next try, adds nothing. Beyond 1,000
    /// elements there are several batches: NAME, NAME/2, NAME/3
    #[arg(long, value_name = "NAME")]
    pub(crate) batch: String,
    /// The step, where this task adds to several
    #[arg(long, value_name = "STEP")]
    pub(crate) to: Option<String>,
    /// A file with a JSON list, or an element a line; `-` for stdin
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
        /// Where to; stdout where absent
        #[arg(value_name = "FILE", default_value = "-", hide_default_value = true)]
        file: PathBuf,
    },
    /// Save a checkpoint, and print its version
    #[command(before_help = examples! {
        "belfry task checkpoint set progress"
        "echo 7 | belfry task checkpoint set - --type text/plain"
    })]
    Set {
        /// The file, `-` for stdin; at most 64 KiB
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// What the bytes are
        #[arg(long = "type", value_name = "TYPE", default_value = "application/octet-stream")]
        content_type: String,
        /// Only on top of this version; 0 where there is to be none yet
        #[arg(long, value_name = "VERSION")]
        expect: Option<u64>,
    },
}
