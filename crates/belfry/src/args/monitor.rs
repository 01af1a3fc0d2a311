//! Arguments of `monitor` and `ping`.
//!
//! A monitor is named by its name, which is unique in a namespace. The commands are in the module `monitors` of
//! [`crate::commands`].

use clap::{Args, Subcommand};

use super::examples;
use super::schedule::ApplyArgs;

/// `belfry monitor …`
#[derive(Debug, Subcommand)]
pub(crate) enum MonitorCommand {
    /// Create or update monitors from files
    Apply(ApplyArgs),
    /// List monitors with their status and their last ping
    #[command(visible_alias = "ls")]
    List,
    /// Show the details of a monitor: its status, its last pings and its secret ping URL
    #[command(before_help = examples! {
        "belfry monitor get backup"
        "belfry monitor get backup -o json"
    })]
    Get {
        /// Name of the monitor
        #[arg(value_name = "MONITOR")]
        name: String,
    },
    /// Delete monitors; their open alerts are resolved, and their ping URLs are no longer valid
    #[command(visible_alias = "rm")]
    Delete {
        /// Names of the monitors
        #[arg(value_name = "MONITOR", required = true)]
        names: Vec<String>,
    },
}

/// `belfry ping`
#[derive(Debug, Args)]
#[command(before_help = examples! {
    "belfry ping backup                       the job succeeded"
    "belfry ping backup --start"
    "./backup.sh; belfry ping backup --exit-code $?"
})]
pub(crate) struct PingArgs {
    /// Name of the monitor
    #[arg(value_name = "MONITOR")]
    pub(crate) name: String,
    /// Report that the job starts
    #[arg(long, conflicts_with_all = ["fail", "exit_code"])]
    pub(crate) start: bool,
    /// Report that the job failed
    #[arg(long, conflicts_with = "exit_code")]
    pub(crate) fail: bool,
    /// Exit code of the job, from 0 to 255; 0 reports a success
    #[arg(long, value_name = "CODE")]
    pub(crate) exit_code: Option<u8>,
    /// Text for the person who is notified
    #[arg(long, value_name = "TEXT")]
    pub(crate) message: Option<String>,
}
