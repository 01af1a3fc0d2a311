//! Arguments of `dev`, `server` and `worker`.

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
    /// Data directory [env: BELFRY_DEV_DATA] [default: ~/.local/share/belfry]
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// Listening address; port 0 selects a free port [default: 127.0.0.1:7070]
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen: Option<SocketAddr>,
    /// Delete the data on exit
    #[arg(long, conflicts_with = "data")]
    pub(crate) ephemeral: bool,
    #[command(flatten)]
    pub(crate) log: LogArgs,
}

/// Options for the log of a process.
#[derive(Debug, Clone, PartialEq, Eq, Default, Args)]
pub(crate) struct LogArgs {
    /// Log filter: info, debug, server=debug [env: BELFRY_LOG]
    #[arg(long, value_name = "FILTER")]
    pub(crate) log: Option<String>,
    /// Log format: text, json [env: BELFRY_LOG_FORMAT] [default: text]
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
    /// Show the details of a server
    Get(ServerNameArgs),
    /// Drain a server: hand its work over to another server, and wait until that is done
    #[command(before_help = examples! { "belfry server drain a        before maintenance of its machine" })]
    Drain(ServerNameArgs),
    /// Undo a drain: the server can become the leader again
    Undrain(ServerNameArgs),
}

/// One server.
#[derive(Debug, Args)]
pub(crate) struct ServerNameArgs {
    /// Server, by id or name
    #[arg(value_name = "SERVER")]
    pub(crate) server: String,
}

/// `belfry server` itself
#[derive(Debug, Clone, PartialEq, Eq, Default, Args)]
pub(crate) struct ServerRunArgs {
    /// Data directory [default: /var/lib/belfry]
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// Store URL for several servers: postgres://USER@HOST:PORT/DATABASE [default: a file in the data directory]
    #[arg(long, value_name = "URL")]
    pub(crate) store: Option<String>,
    /// Listening address; port 0 selects a free port [default: 127.0.0.1:7070]
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen: Option<SocketAddr>,
    /// Name of the server, shown to users [default: server]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// URL under which other servers and workers reach this server [default: the listening address]
    #[arg(long, value_name = "URL")]
    pub(crate) advertise_url: Option<String>,
    /// A proxy in front terminates TLS; allows any listening address
    #[arg(long)]
    pub(crate) behind_proxy: bool,
    /// Allow any listening address without TLS; tokens can be read on the network
    #[arg(long, conflicts_with = "behind_proxy")]
    pub(crate) insecure: bool,
    /// Additional host name that requests may use; repeatable
    #[arg(long = "host-name", value_name = "NAME")]
    pub(crate) host_names: Vec<String>,
    /// Storage for logs and artifacts: s3://BUCKET/PREFIX [default: a folder in the data directory]
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
#[command(next_help_heading = "Options of the worker")]
pub(crate) struct WorkerRunArgs {
    /// Server URL; repeat for several servers, one is used at a time
    #[arg(long = "server", value_name = "URL")]
    pub(crate) servers: Vec<String>,
    /// Worker directory; with an empty directory it is a new worker [default: /var/lib/belfry-worker]
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// Name of the worker, shown to users [default: the host name]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Label that constraints match; repeatable
    #[arg(long = "label", value_name = "KEY=VALUE")]
    pub(crate) labels: Vec<String>,
    /// CPU for executions [default: all CPUs of the machine]
    #[arg(long, value_name = "CORES")]
    pub(crate) cpu: Option<String>,
    /// Memory for executions [default: all memory of the machine]
    #[arg(long, value_name = "BYTES")]
    pub(crate) memory: Option<String>,
    /// Custom resource, for example gpu=2; repeatable
    #[arg(long = "resource", value_name = "NAME=N")]
    pub(crate) resources: Vec<String>,
    /// Maximum number of parallel executions [default: 16 per core]
    #[arg(long, value_name = "N")]
    pub(crate) slots: Option<String>,
    /// User that runs the tasks, if the worker runs as root [default: the user `nobody`]
    #[arg(long, value_name = "NAME")]
    pub(crate) task_user: Option<String>,
    /// Run tasks as root, if the worker runs as root and has no task user
    #[arg(long)]
    pub(crate) allow_root_tasks: bool,
    /// Certificate authority (PEM) of the servers [default: the authorities of the system]
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
    /// Show the details of a worker
    Get(WorkerNameArgs),
    /// Cordon workers: no new executions; running executions continue
    Cordon(WorkerNamesArgs),
    /// Uncordon workers: allow new executions again
    Uncordon(WorkerNamesArgs),
    /// Drain workers: no new executions, and running executions are moved to other workers
    Drain(WorkerNamesArgs),
    /// Remove lost workers that will not come back
    Remove(WorkerRemoveArgs),
}

/// One worker.
#[derive(Debug, Args)]
pub(crate) struct WorkerNameArgs {
    /// Worker, by id or name
    #[arg(value_name = "WORKER")]
    pub(crate) worker: String,
}

/// Workers.
#[derive(Debug, Args)]
pub(crate) struct WorkerNamesArgs {
    /// Workers, by id or name
    #[arg(value_name = "WORKER", required = true)]
    pub(crate) workers: Vec<String>,
}

/// `belfry worker remove`
#[derive(Debug, Args)]
pub(crate) struct WorkerRemoveArgs {
    /// Workers, by id or name
    #[arg(value_name = "WORKER", required = true)]
    pub(crate) workers: Vec<String>,
    /// Do not ask for confirmation
    #[arg(short, long)]
    pub(crate) yes: bool,
}
