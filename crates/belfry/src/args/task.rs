//! Commands for what runs as a task.

use std::path::PathBuf;

use clap::Subcommand;

use super::examples;

/// `belfry task …`
#[derive(Debug, Subcommand)]
pub(crate) enum TaskCommand {
    /// Read or save what the next execution of the job goes on from
    #[command(subcommand)]
    Checkpoint(CheckpointCommand),
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
