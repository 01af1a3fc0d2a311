//! Arguments of `dev`, `server` and `worker`.
//!
//! `belfry server` without a subcommand runs a server ([`ServerRunArgs`]); with a subcommand, it manages
//! running servers ([`ServerCommand`]). `belfry worker` is built in the same way. Both forms in one command
//! line are an error, which `commands::run` reports: clap would also reject global options before a
//! subcommand.
//!
//! An option of a server or worker overrides the setting of the same meaning, so all options are optional here; the
//! settings have the defaults and parse the values. The options of the two processes are compared with their defaults
//! to find out whether any is given, so they implement [`PartialEq`] and [`Default`].

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use model::worker::{Admission, WorkerStatus};

use super::examples;
use super::spec::{Pair, parse_pair};

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
    /// Use a temporary data directory, and delete it on exit
    #[arg(long, conflicts_with = "data")]
    pub(crate) ephemeral: bool,
    #[command(flatten)]
    pub(crate) log: LogArgs,
}

/// Options for the log of a process.
#[derive(Debug, Clone, PartialEq, Eq, Default, Args)]
pub(crate) struct LogArgs {
    /// Log filter: info, debug, or by module, for example server=debug [env: BELFRY_LOG] [default: info, or warn in
    /// `belfry dev`]
    #[arg(long, value_name = "FILTER")]
    pub(crate) log: Option<String>,
    /// Log format: text, json [env: BELFRY_LOG_FORMAT] [default: text]
    #[arg(long, value_name = "FORMAT")]
    pub(crate) log_format: Option<String>,
}

/// Text below the help of `server` and `worker`.
const SETTINGS_HELP: &str = "Each option is also a setting, for the configuration file and for an \
    environment variable. Run `belfry config show -o wide` to list all settings.";

/// `belfry server`
#[derive(Debug, Args)]
#[command(before_help = examples! {
    "belfry server --data /var/lib/belfry"
    "belfry server --listen 0.0.0.0:7070 --tls-cert-file server.pem --tls-key-file server-key.pem"
    "belfry server --listen 0.0.0.0:7070 --behind-proxy --host-name belfry.example.com"
    "belfry server --store postgres://belfry@db.example/belfry --name a"
    "belfry server --store raft --bootstrap --name a"
    "belfry server --store raft --bootstrap-from /backup/belfry.db --name a"
    "belfry server --store raft --join 10.0.0.1:7070 --join-token-file join-token --name b"
    "belfry server list"
    "belfry server drain a"
    "belfry server members"
})]
#[command(after_help = SETTINGS_HELP)]
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
    #[command(before_help = examples! { "belfry server get a" })]
    Get(ServerNameArgs),
    /// Drain a server: hand over its work to another server, and wait until the handover is done
    #[command(before_help = examples! { "belfry server drain a        before maintenance of its machine" })]
    Drain(ServerNameArgs),
    /// Undo a drain: the server can become the leader again
    #[command(before_help = examples! { "belfry server undrain a" })]
    Undrain(ServerNameArgs),
    /// List the members of a Raft cluster, also those that do not run
    Members,
    /// Remove a member of the cluster whose server has ended for good
    #[command(before_help = examples! { "belfry server remove c         after the disk of server c was lost" })]
    Remove(MemberArgs),
}

/// One member of a cluster.
#[derive(Debug, Args)]
pub(crate) struct MemberArgs {
    /// Name or ID of the member
    #[arg(value_name = "MEMBER")]
    pub(crate) member: String,
}

/// One server.
#[derive(Debug, Args)]
pub(crate) struct ServerNameArgs {
    /// Name or ID of the server
    #[arg(value_name = "SERVER")]
    pub(crate) server: String,
}

/// `belfry server` itself
#[derive(Debug, Clone, PartialEq, Eq, Default, Args)]
pub(crate) struct ServerRunArgs {
    /// Data directory [default: /var/lib/belfry]
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// Store for several servers: raft, or postgres://USER@HOST:PORT/DATABASE [default: a file in the data directory]
    #[arg(long, value_name = "STORE")]
    pub(crate) store: Option<String>,
    /// With --store raft: create a new cluster with this server as its first one
    #[arg(long, conflicts_with_all = ["join", "bootstrap_from"])]
    pub(crate) bootstrap: bool,
    /// With --store raft: create a new cluster with the rows of a backup, or of the data directory of a stopped server
    #[arg(long, value_name = "PATH", conflicts_with = "join")]
    pub(crate) bootstrap_from: Option<PathBuf>,
    /// With --store raft: address of a server of the cluster to join; repeatable
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) join: Vec<String>,
    /// With --join: file with the token that the first server of the cluster wrote to `join-token` in its data directory
    #[arg(long, value_name = "FILE")]
    pub(crate) join_token_file: Option<PathBuf>,
    /// Listening address; port 0 selects a free port [default: 127.0.0.1:7070]
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen: Option<SocketAddr>,
    /// Name of the server, shown to users [default: server]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// URL under which other servers and workers reach this server [default: the listening address; none for 0.0.0.0]
    #[arg(long, value_name = "URL")]
    pub(crate) advertise_url: Option<String>,
    /// File with the TLS certificate of the server and of intermediate authorities (PEM); allows any listening address
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_cert_file: Option<PathBuf>,
    /// File with the private key of the TLS certificate (PEM)
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_key_file: Option<PathBuf>,
    /// Allow any listening address, because a proxy in front of the server terminates TLS
    #[arg(long)]
    pub(crate) behind_proxy: bool,
    /// Allow any listening address without TLS, also beside TLS; tokens can be read on the network
    #[arg(long, conflicts_with = "behind_proxy")]
    pub(crate) insecure: bool,
    /// Additional host name that the server accepts in requests; repeatable
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
#[command(after_help = SETTINGS_HELP)]
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
    /// URL of a server; repeat for several servers, of which the worker uses one at a time
    #[arg(long = "server", value_name = "URL")]
    pub(crate) servers: Vec<String>,
    /// Worker directory; with an empty directory, the worker registers as a new worker [default:
    /// /var/lib/belfry-worker]
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// Name of the worker, shown to users [default: the host name]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Label of the worker, for the constraints of jobs; repeatable
    #[arg(long = "label", value_name = "KEY=VALUE")]
    pub(crate) labels: Vec<String>,
    /// CPU for executions: 4, 1.5, 1500m [default: all CPUs of the machine]
    #[arg(long, value_name = "CORES")]
    pub(crate) cpu: Option<String>,
    /// Memory for executions: 8GiB, 512MiB [default: all memory of the machine]
    #[arg(long, value_name = "BYTES")]
    pub(crate) memory: Option<String>,
    /// Custom resource, for example gpu=2; repeatable
    #[arg(long = "resource", value_name = "NAME=N")]
    pub(crate) resources: Vec<String>,
    /// Maximum number of concurrent executions [default: 16 per core]
    #[arg(long, value_name = "N")]
    pub(crate) slots: Option<String>,
    /// Port range for jobs that name a port without a number [default: 20000-31999]
    #[arg(long, value_name = "FIRST-LAST")]
    pub(crate) port_range: Option<String>,
    /// Volume: a directory that tasks can use, for example data=/srv/data; repeatable
    #[arg(long = "volume", value_name = "NAME=DIR")]
    pub(crate) volumes: Vec<String>,
    /// Socket of Docker or Podman, as unix:///PATH, or `none` [default: the first one that is found]
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) container_engine: Option<String>,
    /// Further file or directory that jobs in a `strict` sandbox can read, as an absolute path; repeatable
    #[arg(long = "sandbox-path", value_name = "PATH")]
    pub(crate) sandbox_paths: Vec<String>,
    /// Host name or IP address under which tasks of the worker can be reached [default: the local address of its
    /// connection to the server]
    #[arg(long, value_name = "HOST")]
    pub(crate) address: Option<String>,
    /// Operating-system user that runs the tasks, if the worker runs as root [default: the user `nobody`]
    #[arg(long, value_name = "NAME")]
    pub(crate) task_user: Option<String>,
    /// Run tasks as root, if the worker runs as root and there is no task user
    #[arg(long)]
    pub(crate) allow_root_tasks: bool,
    #[command(flatten)]
    pub(crate) log: LogArgs,
}

/// `belfry worker …`
#[derive(Debug, Subcommand)]
pub(crate) enum WorkerCommand {
    /// List workers
    #[command(visible_alias = "ls")]
    List(WorkerListArgs),
    /// Show the details of a worker
    #[command(before_help = examples! { "belfry worker get w1" })]
    Get(WorkerNameArgs),
    /// Cordon workers: allow no new executions; running executions continue
    #[command(before_help = examples! { "belfry worker cordon w1 w2" })]
    Cordon(WorkerNamesArgs),
    /// Uncordon workers: allow new executions again, also after a drain
    #[command(before_help = examples! { "belfry worker uncordon w1" })]
    Uncordon(WorkerNamesArgs),
    /// Drain workers: allow no new executions, and move running jobs to other workers
    #[command(before_help = examples! { "belfry worker drain w1" })]
    #[command(
        after_help = "Running executions are stopped, and their jobs start again on other workers; this uses up \
        no retry. Executions of at_most_once jobs continue until they end."
    )]
    Drain(WorkerNamesArgs),
    /// Remove lost workers that do not return
    #[command(before_help = examples! { "belfry worker remove w1" })]
    Remove(WorkerRemoveArgs),
}

/// `belfry worker list`
#[derive(Debug, Args)]
#[command(before_help = examples! {
    "belfry worker list --status lost"
    "belfry worker list --label zone=a --admission cordoned,draining"
})]
pub(crate) struct WorkerListArgs {
    /// Filter by connection status: ready, lost, expected
    #[arg(short, long, value_name = "STATUS", value_delimiter = ',')]
    pub(crate) status: Vec<WorkerStatus>,
    /// Filter by admission of new executions: open, cordoned, draining
    #[arg(long, value_name = "ADMISSION", value_delimiter = ',')]
    pub(crate) admission: Vec<Admission>,
    /// Filter by label; repeat to require all labels
    #[arg(short, long = "label", value_name = "KEY=VALUE", value_parser = parse_pair)]
    pub(crate) labels: Vec<Pair>,
    /// Filter by a part of the worker name; letter case is ignored
    #[arg(long, value_name = "TEXT")]
    pub(crate) text: Option<String>,
}

/// One worker.
#[derive(Debug, Args)]
pub(crate) struct WorkerNameArgs {
    /// Name or ID of the worker
    #[arg(value_name = "WORKER")]
    pub(crate) worker: String,
}

/// Workers.
#[derive(Debug, Args)]
pub(crate) struct WorkerNamesArgs {
    /// Names or IDs of the workers
    #[arg(value_name = "WORKER", required = true)]
    pub(crate) workers: Vec<String>,
}

/// `belfry worker remove`
#[derive(Debug, Args)]
pub(crate) struct WorkerRemoveArgs {
    /// Names or IDs of the workers
    #[arg(value_name = "WORKER", required = true)]
    pub(crate) workers: Vec<String>,
    /// Remove the workers without a confirmation prompt
    #[arg(short, long)]
    pub(crate) yes: bool,
}
