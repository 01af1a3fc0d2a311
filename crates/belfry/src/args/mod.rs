//! The command line as types: commands, arguments and their help texts.
//!
//! A help text begins with examples. Options start with a noun or a verb, and name their default in one form,
//! `[default: 10s]`. The help of every command is in one snapshot, `the_help_of_every_command`.

pub(crate) mod forecast;
pub(crate) mod job;
pub(crate) mod more;
pub(crate) mod multiple;
pub(crate) mod schedule;
pub(crate) mod serve;
pub(crate) mod spec;
pub(crate) mod store;
pub(crate) mod task;
pub(crate) mod workflow;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;

use crate::output::Format;

/// `Examples:` for a help text.
macro_rules! examples {
    ($($line:literal)*) => { concat!("Examples:\n", $("  ", $line, "\n"),*) };
}
pub(crate) use examples;

const EXAMPLES: &str = examples! {
    "belfry dev                                          a server and a worker on this machine"
    "belfry submit --follow -- echo hello                run a command and show its output"
    "belfry submit -f job.yaml --wait                    run the job in a file, exit with its exit code"
    "belfry schedule create sync --every 15m -- ./sync   run a command every 15 minutes"
    "belfry workflow start nightly --follow              start a workflow and show its steps"
    "belfry forecast                                     forecast the next 24 hours"
    "belfry job list --status failed                     list failed jobs"
    "belfry why JOB                                      explain why a job does not start"
};

/// Belfry (钟楼), a distributed job scheduler.
#[derive(Debug, Parser)]
#[command(name = "belfry", version, before_help = EXAMPLES, propagate_version = false, max_term_width = 100)]
#[command(subcommand_required = true, arg_required_else_help = true, disable_help_subcommand = false)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Options of every command.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Global options")]
pub(crate) struct Global {
    /// Server URL [env: BELFRY_URL] [default: your running `belfry dev`]
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) url: Option<String>,
    /// File with the API token, `-` for stdin [env: BELFRY_TOKEN, BELFRY_TOKEN_FILE]
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// Namespace, `*` for all namespaces in lists [env: BELFRY_NAMESPACE] [default: default]
    #[arg(short, long, global = true, value_name = "NAME")]
    pub(crate) namespace: Option<String>,
    /// Output format
    #[arg(
        short,
        long,
        global = true,
        value_enum,
        default_value_t,
        value_name = "FORMAT",
        hide_possible_values = true
    )]
    #[arg(help = "Output format: table, wide, json, yaml, name")]
    pub(crate) output: Format,
    /// Time to retry requests that fail temporarily [env: BELFRY_RETRY_FOR] [default: 10s]
    #[arg(long, global = true, value_name = "DURATION")]
    pub(crate) retry_for: Option<String>,
    /// Configuration file [env: BELFRY_CONFIG] [default: ~/.config/belfry/config.toml]
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Disable colors [env: NO_COLOR]
    #[arg(long, global = true)]
    pub(crate) no_color: bool,
    /// Print only data and errors
    #[arg(short, long, global = true)]
    pub(crate) quiet: bool,
}

/// A command.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a server and a worker on this machine
    Dev(serve::DevArgs),
    /// Submit a job
    Submit(Box<job::SubmitArgs>),
    /// Show the log of a job
    Logs(job::LogsArgs),
    /// Explain why a job is waiting, or why it ended as it did
    Why(job::WhyArgs),
    /// Manage jobs
    #[command(subcommand, visible_alias = "jobs")]
    Job(job::JobCommand),
    /// Manage schedules
    #[command(subcommand, visible_alias = "schedules")]
    Schedule(Box<schedule::ScheduleCommand>),
    /// Manage backfills of past schedule ranges
    #[command(subcommand, visible_alias = "backfills")]
    Backfill(schedule::BackfillCommand),
    /// Manage calendars: named sets of days for schedules
    #[command(subcommand, visible_alias = "calendars")]
    Calendar(schedule::CalendarCommand),
    /// Manage workflows and start runs
    #[command(subcommand, visible_alias = "workflows")]
    Workflow(workflow::WorkflowCommand),
    /// Manage workflow runs
    #[command(subcommand, visible_alias = "runs")]
    Run(Box<workflow::RunCommand>),
    /// Create or update calendars, queues, schedules and workflows from files
    Apply(schedule::ApplyArgs),
    /// Show what `belfry apply` would change; exits with 1 if there are changes
    Diff(schedule::DiffArgs),
    /// Forecast runs, delays and overloads by simulating your schedules
    Forecast(Box<forecast::ForecastArgs>),
    /// Run a worker on this machine, or manage workers
    #[command(visible_alias = "workers")]
    Worker(Box<serve::WorkerArgs>),
    /// Manage queues
    #[command(subcommand, visible_alias = "queues")]
    Queue(more::QueueCommand),
    /// Store, list, fetch and delete artifacts (files of jobs)
    #[command(subcommand, visible_alias = "artifacts")]
    Artifact(more::ArtifactCommand),
    /// Use checkpoints and add elements, from inside a task
    #[command(subcommand)]
    Task(task::TaskCommand),
    /// Watch events
    Events(more::EventsArgs),
    /// Run a server, or manage servers
    #[command(visible_alias = "servers")]
    Server(Box<serve::ServerArgs>),
    /// Check, back up, copy or repair a server's store
    #[command(subcommand)]
    Store(store::StoreCommand),
    /// Check or show the configuration
    #[command(subcommand)]
    Config(more::ConfigCommand),
    /// Print a shell completion script
    #[command(before_help = examples! {
        "source <(belfry completion bash)"
        "belfry completion zsh > ~/.zfunc/_belfry"
        "belfry completion fish > ~/.config/fish/completions/belfry.fish"
    })]
    Completion {
        /// Shell
        shell: Shell,
    },
    /// Print the version
    Version {
        /// Print the version of the server too
        #[arg(long)]
        server: bool,
    },
}
