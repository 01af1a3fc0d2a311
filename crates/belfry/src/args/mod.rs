//! The command line as types. Help texts begin with examples; each says what a command is for.

pub(crate) mod forecast;
pub(crate) mod job;
pub(crate) mod many;
pub(crate) mod more;
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
    "belfry dev                                    a server and a worker on this machine"
    "belfry submit --follow -- echo hello          run a command, see its output"
    "belfry submit -f job.yaml --wait              run what a file says, exit as it does"
    "belfry schedule create beat --every 15m -- true   run it again and again"
    "belfry workflow start nightly --follow        start a run of a workflow, see its steps"
    "belfry forecast                               what the next day brings"
    "belfry job list --status failed               what failed"
    "belfry why JOB                                why it does not start"
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

/// What every command understands.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Global options")]
pub(crate) struct Global {
    /// The server's address [env: BELFRY_URL; else a `belfry dev` of yours]
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) url: Option<String>,
    /// A file with the token, `-` for stdin [env: BELFRY_TOKEN, BELFRY_TOKEN_FILE]
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// The namespace; `*` for all in lists [env: BELFRY_NAMESPACE] [default: default]
    #[arg(short, long, global = true, value_name = "NAME")]
    pub(crate) namespace: Option<String>,
    /// How data is shown
    #[arg(
        short,
        long,
        global = true,
        value_enum,
        default_value_t,
        value_name = "FORMAT",
        hide_possible_values = true
    )]
    #[arg(help = "How data is shown: table, wide, json, yaml, name")]
    pub(crate) output: Format,
    /// How long to try again what a server cannot do now [env: BELFRY_RETRY_FOR] [default: 10s]
    #[arg(long, global = true, value_name = "DURATION")]
    pub(crate) retry_for: Option<String>,
    /// The configuration file [env: BELFRY_CONFIG] [default: ~/.config/belfry/config.toml]
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// No colours [env: NO_COLOR]
    #[arg(long, global = true)]
    pub(crate) no_color: bool,
    /// Data and errors only
    #[arg(short, long, global = true)]
    pub(crate) quiet: bool,
}

/// A command.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a server and a worker on this machine, in one command
    Dev(serve::DevArgs),
    /// Submit a job
    Submit(Box<job::SubmitArgs>),
    /// Show what a job wrote
    Logs(job::LogsArgs),
    /// Say why a job stands where it stands
    Why(job::WhyArgs),
    /// Find, change and end jobs
    #[command(subcommand, visible_alias = "jobs")]
    Job(job::JobCommand),
    /// Create and look after schedules: jobs that recur
    #[command(subcommand, visible_alias = "schedules")]
    Schedule(Box<schedule::ScheduleCommand>),
    /// Look after backfills: past ranges of schedules that are made up for
    #[command(subcommand, visible_alias = "backfills")]
    Backfill(schedule::BackfillCommand),
    /// Look after calendars: named sets of days that schedules refer to
    #[command(subcommand, visible_alias = "calendars")]
    Calendar(schedule::CalendarCommand),
    /// Create workflows, graphs of steps, and start runs of them
    #[command(subcommand, visible_alias = "workflows")]
    Workflow(workflow::WorkflowCommand),
    /// Look after the runs of workflows
    #[command(subcommand, visible_alias = "runs")]
    Run(Box<workflow::RunCommand>),
    /// Create or change what files define: calendars, queues, schedules, workflows
    Apply(schedule::ApplyArgs),
    /// Show what applying files would change; exits with 1 if anything
    Diff(schedule::DiffArgs),
    /// Foretell what schedules, workers and limits come to, by the server's own engine on virtual time
    Forecast(Box<forecast::ForecastArgs>),
    /// Run a worker on this machine, or look after workers
    #[command(visible_alias = "workers")]
    Worker(Box<serve::WorkerArgs>),
    /// Look after queues
    #[command(subcommand, visible_alias = "queues")]
    Queue(more::QueueCommand),
    /// Store and fetch files that jobs take and leave
    #[command(subcommand, visible_alias = "artifacts")]
    Artifact(more::ArtifactCommand),
    /// Ask for things as the task that runs this
    #[command(subcommand)]
    Task(task::TaskCommand),
    /// Watch what happens, as it happens
    Events(more::EventsArgs),
    /// Run a server, or look after servers
    #[command(visible_alias = "servers")]
    Server(Box<serve::ServerArgs>),
    /// Check, back up, copy or repair the store of a server
    #[command(subcommand)]
    Store(store::StoreCommand),
    /// Check and show the configuration
    #[command(subcommand)]
    Config(more::ConfigCommand),
    /// Print a completion script for a shell
    #[command(before_help = examples! {
        "source <(belfry completion bash)"
        "belfry completion zsh > ~/.zfunc/_belfry"
        "belfry completion fish > ~/.config/fish/completions/belfry.fish"
    })]
    Completion {
        /// Which shell
        shell: Shell,
    },
    /// Print the version
    Version {
        /// Ask the server for its version too
        #[arg(long)]
        server: bool,
    },
}
