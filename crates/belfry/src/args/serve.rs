//! Commands that stay: a server, a worker, or both; and those that look after workers.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::examples;

/// `belfry dev`
#[derive(Debug, Args)]
#[command(before_help = examples! {
    "belfry dev"
    "belfry dev --listen 127.0.0.1:0 --ephemeral"
})]
pub(crate) struct DevArgs {
    /// Where its data is [env: BELFRY_DEV_DATA] [default: ~/.local/share/belfry]
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// Where it listens; port 0 takes a free one [default: 127.0.0.1:7070]
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen: Option<SocketAddr>,
    /// Keep nothing: the data is removed at the end
    #[arg(long, conflicts_with = "data")]
    pub(crate) ephemeral: bool,
    #[command(flatten)]
    pub(crate) log: LogArgs,
}

/// How a process logs.
#[derive(Debug, Clone, PartialEq, Eq, Default, Args)]
pub(crate) struct LogArgs {
    /// What is logged to stderr: info, debug, server=debug [env: BELFRY_LOG]
    #[arg(long, value_name = "FILTER")]
    pub(crate) log: Option<String>,
    /// text for people, or json for programs [env: BELFRY_LOG_FORMAT] [default: text]
    #[arg(long, value_name = "FORMAT")]
    pub(crate) log_format: Option<String>,
}

/// `belfry server`
#[derive(Debug, Args)]
#[command(before_help = examples! {
    "belfry server --data /var/lib/belfry"
    "belfry server --listen 0.0.0.0:7070 --behind-proxy --host-name belfry.example.com"
    "belfry server --store postgres://belfry@db.example/belfry --name a"
    "belfry server list"
    "belfry server drain a"
})]
#[command(after_help = "Each option is a setting too; `belfry config show -o wide` lists all of them.")]
pub(crate) struct ServerArgs {
    #[command(subcommand)]
    pub(crate) command: Option<ServerCommand>,
    #[command(flatten)]
    pub(crate) run: ServerRunArgs,
}

/// `belfry server …`
#[derive(Debug, Subcommand)]
pub(crate) enum ServerCommand {
    /// List the servers that share the store
    List,
    /// Show a server
    Get(ServerNameArgs),
    /// Have a server give its shards to another one, and wait until it has
    #[command(before_help = examples! { "belfry server drain a        before its machine is serviced" })]
    Drain(ServerNameArgs),
    /// Let a server take shards again
    Undrain(ServerNameArgs),
}

/// One server.
#[derive(Debug, Args)]
pub(crate) struct ServerNameArgs {
    /// The server, by id or name
    #[arg(value_name = "SERVER")]
    pub(crate) server: String,
}

/// `belfry server` itself
#[derive(Debug, Clone, PartialEq, Eq, Default, Args)]
pub(crate) struct ServerRunArgs {
    /// Where all of its data is [default: /var/lib/belfry]
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// postgres://USER@HOST:PORT/DATABASE, for several servers; a file in the data where absent
    #[arg(long, value_name = "URL")]
    pub(crate) store: Option<String>,
    /// Where it listens; port 0 takes a free one [default: 127.0.0.1:7070]
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen: Option<SocketAddr>,
    /// What it is called, for people [default: server]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Where other servers and workers reach it; the address that it listens on where absent
    #[arg(long, value_name = "URL")]
    pub(crate) advertise_url: Option<String>,
    /// A proxy in front ends TLS, so any address may be listened on
    #[arg(long)]
    pub(crate) behind_proxy: bool,
    /// Listen on any address without TLS; tokens can be read on the way
    #[arg(long, conflicts_with = "behind_proxy")]
    pub(crate) insecure: bool,
    /// A name beside loopback's under which it may be asked; repeatable
    #[arg(long = "host-name", value_name = "NAME")]
    pub(crate) host_names: Vec<String>,
    /// s3://BUCKET/PREFIX for logs and artifacts; a folder in the data where absent
    #[arg(long, value_name = "URL")]
    pub(crate) objects: Option<String>,
    #[command(flatten)]
    pub(crate) log: LogArgs,
}

/// `belfry worker`
#[derive(Debug, Args)]
#[command(before_help = examples! {
    "belfry worker --server http://127.0.0.1:7070 --token-file worker-token --dir ./worker"
    "belfry worker list"
    "belfry worker drain w1"
})]
#[command(after_help = "Each option is a setting too; `belfry config show -o wide` lists all of them.")]
pub(crate) struct WorkerArgs {
    #[command(subcommand)]
    pub(crate) command: Option<WorkerCommand>,
    #[command(flatten)]
    pub(crate) run: WorkerRunArgs,
}

/// `belfry worker` itself
#[derive(Debug, Clone, PartialEq, Eq, Default, Args)]
#[command(next_help_heading = "Options to run a worker")]
pub(crate) struct WorkerRunArgs {
    /// A server's address; repeatable, one is used at a time
    #[arg(long = "server", value_name = "URL")]
    pub(crate) servers: Vec<String>,
    /// The worker's folder; a wiped one is a new worker [default: /var/lib/belfry-worker]
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// What people call it; the host's name where absent
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// What constraints are matched against; repeatable
    #[arg(long = "label", value_name = "KEY=VALUE")]
    pub(crate) labels: Vec<String>,
    /// CPU for executions; all of the machine's where absent
    #[arg(long, value_name = "CORES")]
    pub(crate) cpu: Option<String>,
    /// Memory for executions; all of the machine's where absent
    #[arg(long, value_name = "BYTES")]
    pub(crate) memory: Option<String>,
    /// A custom resource such as gpu=2; repeatable
    #[arg(long = "resource", value_name = "NAME=N")]
    pub(crate) resources: Vec<String>,
    /// The most executions at a time; 16 a core where absent
    #[arg(long, value_name = "N")]
    pub(crate) slots: Option<String>,
    /// The user that tasks run as, where the worker is root; `nobody` where absent
    #[arg(long, value_name = "NAME")]
    pub(crate) task_user: Option<String>,
    /// Tasks of a root worker run as root, for want of a task user
    #[arg(long)]
    pub(crate) allow_root_tasks: bool,
    /// PEM of the authority that signed the servers' certificates
    #[arg(long, value_name = "FILE")]
    pub(crate) ca_file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) log: LogArgs,
}

/// `belfry worker …`
#[derive(Debug, Subcommand)]
pub(crate) enum WorkerCommand {
    /// List workers
    #[command(visible_alias = "ls")]
    List,
    /// Show a worker in detail
    Get(WorkerNameArgs),
    /// Let no new work onto workers; what runs may end
    Cordon(WorkerNamesArgs),
    /// Let work onto workers again
    Uncordon(WorkerNamesArgs),
    /// Let no new work onto workers, and move what runs there elsewhere
    Drain(WorkerNamesArgs),
    /// Forget workers that will not come back
    Remove(WorkerRemoveArgs),
}

/// One worker.
#[derive(Debug, Args)]
pub(crate) struct WorkerNameArgs {
    /// The worker, by id or name
    #[arg(value_name = "WORKER")]
    pub(crate) worker: String,
}

/// Workers.
#[derive(Debug, Args)]
pub(crate) struct WorkerNamesArgs {
    /// The workers, by id or name
    #[arg(value_name = "WORKER", required = true)]
    pub(crate) workers: Vec<String>,
}

/// `belfry worker remove`
#[derive(Debug, Args)]
pub(crate) struct WorkerRemoveArgs {
    /// The workers, by id or name
    #[arg(value_name = "WORKER", required = true)]
    pub(crate) workers: Vec<String>,
    /// Do not ask
    #[arg(short, long)]
    pub(crate) yes: bool,
}
