//! The command line as types: commands, arguments and their help texts.
//!
//! `main` parses the arguments into [`Cli`], and [`crate::commands::run`] runs the parsed command. Nothing here reads
//! the configuration or talks to a server. A parser may read a file, an environment variable or the clock.
//!
//! # Modules
//! - [`job`]: `submit`, `logs`, `why`, `job`; [`spec`]: the options of a job spec, also for schedules;
//!   [`multiple`]: the options of `submit` that start several jobs.
//! - [`hints`]: answers to words of other schedulers.
//! - [`reference`]: IDs of jobs, runs and backfills, or `@last`.
//! - [`schedule`]: `schedule`, `backfill`, `calendar`, `apply`, `diff`; [`workflow`]: `workflow`, `run`;
//!   [`forecast`]: `forecast`; [`service`]: `service`.
//! - [`alert`]: `alert`; [`monitor`]: `monitor`, `ping`; [`secret`]: `secret`.
//! - [`access`]: `login`, `logout`, `auth`, `account`, `role`, `token`.
//! - [`serve`]: `dev`, `server`, `worker`; [`store`]: `store`; [`task`]: `task`; [`tls`]: `tls`; [`context`]: `context`;
//!   [`more`]: `queue`, `artifact`, `events`, `config`.
//!
//! # Help texts
//! The doc comment of a field is its help text. A help text begins with examples. An option starts with a noun phrase
//! or an imperative verb, gives the format of its value, and ends with its default as `[default: 10s]`. A positional
//! argument names the expected text: "ID of the job", "Name or ID of the schedule". The help of every command is in
//! one snapshot, `the_help_of_every_command`; a test parses all examples.

pub(crate) mod access;
pub(crate) mod alert;
pub(crate) mod audit;
pub(crate) mod context;
pub(crate) mod failure;
pub(crate) mod forecast;
pub(crate) mod hints;
pub(crate) mod job;
pub(crate) mod monitor;
pub(crate) mod more;
pub(crate) mod multiple;
pub(crate) mod namespace;
pub(crate) mod reference;
pub(crate) mod schedule;
pub(crate) mod secret;
pub(crate) mod serve;
pub(crate) mod service;
pub(crate) mod spec;
pub(crate) mod store;
pub(crate) mod task;
pub(crate) mod tls;
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
    "belfry why JOB                                      explain why a job is waiting"
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
    /// URL of the server [env: BELFRY_URL] [default: that of the context, or your running `belfry dev`]
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) url: Option<String>,
    /// Context: a named server, which `belfry context set` creates [env: BELFRY_CONTEXT] [default: that of
    /// `belfry context use`]
    #[arg(long, global = true, value_name = "NAME", conflicts_with = "url")]
    pub(crate) context: Option<String>,
    /// File with the API token, `-` for standard input [env: BELFRY_TOKEN_FILE, or BELFRY_TOKEN with the
    /// token itself]
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// File with the certificate authority (PEM) of an `https` server [env: BELFRY_CA_FILE] [default: the authorities of
    /// the operating system]
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) ca_file: Option<PathBuf>,
    /// Namespace; `*` selects all namespaces in lists [env: BELFRY_NAMESPACE] [default: default]
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
    #[arg(
        help = "Output format: table (fits the terminal), wide (all columns), json, yaml, name (IDs or names)"
    )]
    pub(crate) output: Format,
    /// Maximum time to retry a request that fails temporarily [env: BELFRY_RETRY_FOR] [default: 10s]
    #[arg(long, global = true, value_name = "DURATION")]
    pub(crate) retry_for: Option<String>,
    /// Configuration file [env: BELFRY_CONFIG] [default: ~/.config/belfry/config.toml]
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Disable colors [env: NO_COLOR]
    #[arg(long, global = true)]
    pub(crate) no_color: bool,
    /// Print only data, warnings and errors
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
    /// Show the log of a job or execution
    Logs(job::LogsArgs),
    /// Explain why a job is waiting, or why it ended as it did
    #[command(after_help = job::WHY_HELP)]
    Why(job::WhyArgs),
    /// Manage jobs
    #[command(subcommand, visible_alias = "jobs", before_help = examples! {
        "belfry job list --status failed"
        "belfry job get JOB"
        "belfry job cancel JOB --reason 'no longer needed'"
    })]
    Job(Box<job::JobCommand>),
    /// Manage schedules
    #[command(subcommand, visible_alias = "schedules", before_help = examples! {
        "belfry schedule create sync --every 15m -- ./sync"
        "belfry schedule apply -f nightly.yaml"
        "belfry schedule next nightly"
    })]
    Schedule(Box<schedule::ScheduleCommand>),
    /// Manage backfills of past schedule ranges
    #[command(subcommand, visible_alias = "backfills", before_help = examples! {
        "belfry schedule backfill backup --from 2026-11-01T00:00 --dry-run"
        "belfry schedule backfill backup --from 2026-11-01T00:00"
        "belfry backfill list --schedule backup"
    })]
    #[command(after_help = "Run `belfry schedule backfill` to start a backfill.")]
    Backfill(schedule::BackfillCommand),
    /// Manage calendars: named sets of days on which schedules fire, or do not fire
    #[command(subcommand, visible_alias = "calendars", before_help = examples! {
        "belfry calendar list"
        "belfry calendar days belfry.cn-holidays"
        "belfry calendar import holidays.ics --name public-holidays"
    })]
    Calendar(schedule::CalendarCommand),
    /// Manage workflows and start runs
    #[command(subcommand, visible_alias = "workflows", before_help = examples! {
        "belfry workflow apply -f etl.yaml"
        "belfry workflow plan etl"
        "belfry workflow start etl --follow"
    })]
    Workflow(workflow::WorkflowCommand),
    /// Manage workflow runs
    #[command(subcommand, visible_alias = "runs", before_help = examples! {
        "belfry run list --status failed"
        "belfry run why RUN"
        "belfry run retry RUN --follow"
    })]
    Run(Box<workflow::RunCommand>),
    /// Manage services: long-running jobs that are kept at a number of replicas
    #[command(subcommand, visible_alias = "services", before_help = examples! {
        "belfry service create web --replicas 3 --port http --http-check http/healthz -- ./web"
        "belfry service scale web 5"
        "belfry service logs web -f"
    })]
    Service(Box<service::ServiceCommand>),
    /// Create or update calendars, queues, services, schedules, workflows, channels, alert rules, monitors and secrets from files
    Apply(schedule::ApplyArgs),
    /// Show the changes that `belfry apply` would make, and exit with code 1 if there are any
    Diff(schedule::DiffArgs),
    /// Forecast runs, delays and overloads by simulating your schedules
    Forecast(Box<forecast::ForecastArgs>),
    /// Run a worker on this machine, or manage workers
    #[command(visible_alias = "workers")]
    Worker(Box<serve::WorkerArgs>),
    /// Manage namespaces: quotas, and what their jobs use
    #[command(subcommand, visible_alias = "namespaces", before_help = examples! {
        "belfry namespace list"
        "belfry namespace set team-a --cpu 8 --memory 16GiB --running 100"
    })]
    Namespace(namespace::NamespaceCommand),
    /// Manage queues
    #[command(subcommand, visible_alias = "queues", before_help = examples! {
        "belfry queue list"
        "belfry queue set mail --concurrency 4 --rate 10"
        "belfry queue pause mail --note 'database upgrade'"
    })]
    Queue(more::QueueCommand),
    /// Manage artifacts: stored files that jobs read and write
    #[command(subcommand, visible_alias = "artifacts", before_help = examples! {
        "belfry artifact push tool ./tool"
        "belfry artifact list"
        "belfry artifact get result out.csv"
    })]
    Artifact(more::ArtifactCommand),
    /// Save checkpoints and add elements, from inside a running task
    #[command(subcommand, before_help = examples! {
        "belfry task checkpoint get > progress || echo 0 > progress"
        "belfry task checkpoint set progress"
        "belfry task add --batch links https://a.example https://b.example"
    })]
    #[command(
        after_help = "A task is the process of a job. These commands work only inside a task that a worker runs."
    )]
    Task(task::TaskCommand),
    /// Watch the events of jobs, runs, schedules, workers and queues
    Events(more::EventsArgs),
    /// Show the load of queues and workers, the rates of jobs, and what executions use, until Ctrl-C
    Top(more::TopArgs),
    /// Show how many jobs ran, failed and waited in a range, by name, queue, namespace, schedule or worker
    Stats(more::StatsArgs),
    /// Show failures, grouped by what went wrong
    #[command(subcommand, visible_alias = "failures", before_help = examples! {
        "belfry failure list"
        "belfry failure get GROUP"
        "belfry failure mark GROUP known --note OPS-1234"
    })]
    Failure(failure::FailureCommand),
    /// Run a server, or manage servers
    #[command(visible_alias = "servers")]
    Server(Box<serve::ServerArgs>),
    /// Show and manage alerts, alert rules, channels and silences
    #[command(subcommand, visible_alias = "alerts", before_help = examples! {
        "belfry alert list"
        "belfry alert ack 42 --comment 'On it'"
        "belfry alert silence create --subject 'payroll-*' --for 4h --reason 'Database migration'"
    })]
    Alert(alert::AlertCommand),
    /// Manage monitors of jobs that Belfry does not run
    #[command(subcommand, visible_alias = "monitors", before_help = examples! {
        "belfry monitor apply -f monitors.yaml"
        "belfry monitor list"
        "belfry monitor get backup"
    })]
    #[command(
        after_help = "A monitor is down if a job does not report in time. The alert rule `monitor_down` notifies you."
    )]
    Monitor(monitor::MonitorCommand),
    /// Report to a monitor that a job starts, succeeded or failed
    Ping(monitor::PingArgs),
    /// Manage secrets: values that jobs use and that no spec contains
    #[command(subcommand, visible_alias = "secrets", before_help = examples! {
        "belfry secret put db password=@db-password.txt"
        "belfry secret list"
        "belfry submit --env-from DB_PASSWORD=db/password -- ./report.sh"
    })]
    Secret(secret::SecretCommand),
    /// Log in to a server with an account and a password
    Login(access::LoginArgs),
    /// Log out: end the session of the context
    #[command(before_help = examples! {
        "belfry logout"
        "belfry --context production logout"
    })]
    Logout,
    /// Manage accounts of people and programs
    #[command(subcommand, visible_alias = "accounts", before_help = examples! {
        "belfry account create ann@example.com"
        "belfry role bind developer ann@example.com -n finance"
        "belfry account invite ann@example.com"
    })]
    Account(access::AccountCommand),
    /// Manage roles, and bind them to accounts
    #[command(subcommand, visible_alias = "roles", before_help = examples! {
        "belfry role list"
        "belfry role bind developer ann@example.com -n finance"
        "belfry role bindings --account ann@example.com"
    })]
    Role(access::RoleCommand),
    /// Manage API tokens
    #[command(subcommand, visible_alias = "tokens", before_help = examples! {
        "belfry token create --description laptop > token"
        "belfry token list"
        "belfry token revoke 4w1kq0zj8x2m"
    })]
    Token(access::TokenCommand),
    /// Show who you are, and check what you may do
    #[command(subcommand, before_help = examples! {
        "belfry auth whoami"
        "belfry auth can-i create jobs -n finance"
    })]
    Auth(access::AuthCommand),
    /// Search and verify the audit log: who did what, from where
    #[command(subcommand, before_help = examples! {
        "belfry audit list --since 24h"
        "belfry audit list --outcome denied"
        "belfry audit verify"
    })]
    Audit(audit::AuditCommand),
    /// Check, back up, copy or repair the store of a server
    #[command(subcommand, before_help = examples! {
        "belfry store check /var/lib/belfry"
        "belfry store backup /var/lib/belfry /backup/belfry-2026-11-23.db"
        "belfry store copy --from /var/lib/belfry --to postgres://belfry@db.example/belfry"
    })]
    Store(store::StoreCommand),
    /// Create the TLS certificate of a server, without an existing certificate authority
    #[command(subcommand, before_help = examples! {
        "belfry tls create belfry.example.com 10.0.0.1"
        "belfry server --listen 0.0.0.0:7070 --tls-cert-file server.pem --tls-key-file server-key.pem"
        "belfry --url https://belfry.example.com:7070 --ca-file ca.pem job list"
    })]
    Tls(tls::TlsCommand),
    /// Manage contexts: named servers, each with its URL, token file and namespace
    #[command(subcommand, visible_alias = "contexts", before_help = examples! {
        "belfry context set production --url https://belfry.example --token-file ~/belfry.token"
        "belfry context use production"
        "belfry --context production job list"
    })]
    Context(context::ContextCommand),
    /// Check or show the configuration
    #[command(subcommand, before_help = examples! {
        "belfry config check /etc/belfry/config.toml"
        "belfry config show -o wide"
    })]
    Config(more::ConfigCommand),
    /// Print a shell completion script
    #[command(before_help = examples! {
        "source <(belfry completion bash)"
        "belfry completion zsh > ~/.zfunc/_belfry"
        "belfry completion fish > ~/.config/fish/completions/belfry.fish"
    })]
    Completion {
        /// Name of the shell
        shell: Shell,
    },
    /// Print the version
    Version {
        /// Also print the version of the server
        #[arg(long)]
        server: bool,
    },
}
