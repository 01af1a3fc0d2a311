//! Long-running commands: `belfry server`, `belfry worker`, `belfry dev`, and the internal processes of a worker.
//!
//! - [`server()`], [`worker()`], [`dev`]: the commands. They turn options into settings with the highest
//!   precedence, so that options, environment variables and files are checked in one place.
//! - [`supervisor`], [`fuse`]: internal processes of a worker; `main` starts them without parsing a command line.
//!
//! SIGTERM and Ctrl-C start a graceful shutdown. In `dev`, a second signal exits immediately.
//!
//! `dev` runs a server and an agent in one process, and the supervisor as a child process. When `dev` ends, it stops
//! the supervisor too, so that no task keeps running. It writes the address of the server into the data directory
//! ([`AddressFile`]) and a record for other commands of the same user ([`Record`]).

use std::ffi::OsString;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use server::config::{Bootstrap, StoreConfig};
use server::{RaftMemberError, Running, StartError};
use tokio::signal::unix::{Signal, SignalKind, signal};
use worker::{AgentConfig, SupervisorConfig};

use super::Context;
use super::config::SYSTEM_FILE;
use crate::args::serve::{DevArgs, LogArgs, ServerRunArgs, WorkerRunArgs};
use crate::connect::running::Record;
use crate::connect::{ADDRESS_FILE, read_token};
use crate::contexts;
use crate::failure::{Exit, Failure};
use crate::logging;
use crate::output::Output;
use crate::settings::{Settings, Sources};

/// Time for which `dev` waits for its supervisor to end: longer than the default grace period of a task (10 s).
const SUPERVISOR_STOP_TIMEOUT: Duration = Duration::from_secs(15);

/// Runs the supervisor of a worker; its arguments come from the agent.
pub(crate) fn supervisor(arguments: impl Iterator<Item = OsString>) -> Result<(), Failure> {
    logging::install(&Settings::load(&Sources::environment())?, "info")?;
    let config = SupervisorConfig::from_args(arguments).map_err(|e| Failure::new(Exit::Usage, e))?;
    worker::run_supervisor(config).map_err(|e| Failure::new(Exit::Failed, e))
}

/// Runs the fuse of a worker.
pub(crate) fn fuse() -> Result<(), Failure> {
    worker::run_fuse().map_err(|e| Failure::new(Exit::Failed, e))
}

/// `belfry server`
pub(super) fn server(context: &Context, args: &ServerRunArgs) -> Result<(), Failure> {
    let mut sources = system_sources(context, &args.log);
    sources.flag("server.data_dir", "--data", args.data.as_ref().map(|p| p.display()));
    sources.flag("server.store", "--store", args.store.as_ref());
    sources.flag("server.raft_join", "--join", joined(&args.join));
    sources.flag(
        "server.raft_join_token_file",
        "--join-token-file",
        args.join_token_file.as_ref().map(|p| p.display()),
    );
    sources.flag("server.listen", "--listen", args.listen);
    sources.flag("server.name", "--name", args.name.as_ref());
    sources.flag("server.advertise_url", "--advertise-url", args.advertise_url.as_ref());
    let tls_files = [
        ("server.tls_cert_file", "--tls-cert-file", &args.tls_cert_file),
        ("server.tls_key_file", "--tls-key-file", &args.tls_key_file),
    ];
    for (key, flag, file) in tls_files {
        sources.flag(key, flag, file.as_ref().map(|p| p.display()));
    }
    sources.flag("server.behind_proxy", "--behind-proxy", args.behind_proxy.then_some(true));
    sources.flag("server.insecure", "--insecure", args.insecure.then_some(true));
    sources.flag("server.host_names", "--host-name", joined(&args.host_names));
    sources.flag("server.objects_url", "--objects", args.objects.as_ref());
    let settings = Settings::load(&sources)?;
    let mut config = settings.server()?;
    // Only flags: as a setting it would stay, and a server whose disk was wiped would create a second cluster.
    let bootstrap = match &args.bootstrap_from {
        Some(source) => Some(("--bootstrap-from", Bootstrap::From(source.clone()))),
        None => args.bootstrap.then_some(("--bootstrap", Bootstrap::Empty)),
    };
    if let Some((flag, bootstrap)) = bootstrap {
        let StoreConfig::Raft(raft) = &mut config.store else {
            return Err(Failure::usage(format!("`{flag}` needs the Raft store")).help("add `--store raft`"));
        };
        raft.bootstrap = Some(bootstrap);
    }
    logging::install(&settings, "info")?;
    block_on(async {
        let mut stop = StopSignals::new()?;
        // A server of a cluster may wait for the others.
        let running = tokio::select! {
            started = server::start(config) => started.map_err(start_failure)?,
            () = stop.received() => return Ok(()),
        };
        let _address = AddressFile::write(&running.services.config.data_dir, &running);
        if running.first_admin_token.is_some() {
            // Only the path: a token must never be logged.
            let path = running.admin_token_path.display();
            match settings.text("log.format").as_deref() {
                Some("json") => tracing::info!(%path, "first admin token created"),
                _ => context.out.note(format!("created the first admin token: {path}")),
            }
        }
        until_stopped(&running, &mut stop).await?;
        running.shutdown().await.map_err(|e| Failure::new(Exit::Failed, e))
    })
}

/// `belfry worker`
pub(super) fn worker(context: &Context, args: &WorkerRunArgs) -> Result<(), Failure> {
    let mut sources = system_sources(context, &args.log);
    let token_file = context.global.token_file.as_ref();
    sources.flag("worker.servers", "--server", joined(&args.servers));
    sources.flag("worker.token_file", "--token-file", token_file.map(|p| p.display()));
    sources.flag("worker.dir", "--dir", args.dir.as_ref().map(|p| p.display()));
    sources.flag("worker.name", "--name", args.name.as_ref());
    sources.flag("worker.labels", "--label", joined(&args.labels));
    sources.flag("worker.cpu", "--cpu", args.cpu.as_ref());
    sources.flag("worker.memory", "--memory", args.memory.as_ref());
    sources.flag("worker.resources", "--resource", joined(&args.resources));
    sources.flag("worker.slots", "--slots", args.slots.as_ref());
    sources.flag("worker.port_range", "--port-range", args.port_range.as_ref());
    sources.flag("worker.volumes", "--volume", joined(&args.volumes));
    sources.flag("worker.container_engine", "--container-engine", args.container_engine.as_ref());
    sources.flag("worker.sandbox_paths", "--sandbox-path", joined(&args.sandbox_paths));
    sources.flag("worker.address", "--address", args.address.as_ref());
    sources.flag("worker.task_user", "--task-user", args.task_user.as_ref());
    sources.flag("worker.allow_root_tasks", "--allow-root-tasks", args.allow_root_tasks.then_some(true));
    let ca_file = context.global.ca_file.as_ref();
    sources.flag("worker.ca_file", "--ca-file", ca_file.map(|p| p.display()));
    let settings = Settings::load(&sources)?;
    let config = settings.worker()?;
    logging::install(&settings, "info")?;
    block_on(async {
        let mut stop = StopSignals::new()?;
        tracing::info!(name = config.name, servers = ?config.servers, "worker starting");
        worker::run_agent(config, async move { stop.received().await })
            .await
            .map_err(|e| Failure::new(Exit::Usage, e))
    })
}

/// `belfry dev`
pub(super) fn dev(context: &Context, args: DevArgs) -> Result<(), Failure> {
    let mut sources = context.sources_without_context();
    log_flags(&mut sources, &args.log);
    sources.flag("dev.data_dir", "--data", args.data.as_ref().map(|p| p.display()));
    sources.flag("server.listen", "--listen", args.listen);
    let scratch = if args.ephemeral { Some(tempfile::tempdir()?) } else { None };
    if let Some(scratch) = &scratch {
        sources.flag("dev.data_dir", "--ephemeral", Some(scratch.path().display()));
    }
    let by_default = Settings::load(&sources)?;
    let data = by_default
        .path("dev.data_dir")
        .context("cannot find your home directory: set the data directory with `--data DIR`")?;
    sources.flag("server.data_dir", "--data", Some(data.display()));
    let settings = Settings::load(&sources)?;
    logging::install(&settings, "warn")?;
    let custom = args.data.is_some() || args.ephemeral || sources.variable("BELFRY_DEV_DATA").is_some();
    block_on(run_dev(context.out, &sources, &settings, &data, custom))
}

async fn run_dev(
    out: Output,
    sources: &Sources,
    settings: &Settings,
    data: &Path,
    custom: bool,
) -> Result<(), Failure> {
    let mut stop = StopSignals::new()?;
    let mut config = settings.server()?;
    if config.private_networks.is_empty() {
        // Only its own user uses this server, so its notifications may reach services on the same machine.
        config.private_networks = server::networks::Networks::loopback();
    }
    let running = server::start(config).await.map_err(start_failure)?;
    let address = AddressFile::write(data, &running);
    let record = Record::write(sources, running.addr, data, &std::process::id().to_string());
    let found = record.is_ok();
    let _record = record.inspect_err(|error| {
        tracing::warn!(%error, "cannot record the running server: local clients need `--url`");
    });
    let url = format!("http://{}", running.addr);

    let dir = data.join("worker");
    let mut config = AgentConfig::new(&dir, &url, read_token(&running.worker_token_path)?);
    settings.apply_to_worker(&mut config)?;
    // Its tokens belong to the user of the tasks.
    config.hidden_paths = vec![std::path::absolute(data).unwrap_or_else(|_| data.to_owned())];
    // A worker service runs tasks of other users, so it needs a separate task user. In `dev` all tasks belong to the
    // current user, whose files a separate user might not be able to read.
    config.allow_root_tasks |= config.task_user.is_none();
    let as_root = config.task_user.is_none() && rustix::process::geteuid().is_root();
    let (end_agent, agent_ends) = tokio::sync::oneshot::channel::<()>();
    let agent = tokio::spawn(worker::run_agent(config, async {
        // An error means that the sender was dropped, which also requests the shutdown.
        let _ = agent_ends.await;
    }));

    let admin = read_token(&running.admin_token_path)?;
    out.note(welcome(&url, &admin, &running.admin_token_path, data, custom && !found));
    if let Ok(Some(context)) = contexts::select(sources, None)
        && !sources.names_server()
    {
        out.warn(format!("commands use the server of context `{}`, not this one", context.name));
        out.help("run `belfry context use --none`, or set BELFRY_DEV_DATA");
    }
    if as_root {
        out.warn("tasks run as root; set `BELFRY_WORKER__TASK_USER=NAME` to run them as another user");
    }
    let result = until_stopped(&running, &mut stop).await;
    out.note("shutting down");
    tokio::select! {
        ended = end_dev(running, address, agent, end_agent, &dir) => result.and(ended),
        () = stop.received() => Err(Failure::silent(Exit::Interrupted)),
    }
}

/// Shuts down in this order: the agent, which would restart the supervisor; the supervisor; the server.
async fn end_dev(
    running: Running,
    address: Option<AddressFile>,
    agent: tokio::task::JoinHandle<Result<(), worker::AgentError>>,
    end_agent: tokio::sync::oneshot::Sender<()>,
    dir: &Path,
) -> Result<(), Failure> {
    drop(end_agent);
    let agent = agent.await.map_err(anyhow::Error::from)?.map_err(|e| Failure::new(Exit::Failed, e));
    end_supervisor(dir).await;
    drop(address);
    let server = running.shutdown().await.map_err(|e| Failure::new(Exit::Failed, e));
    agent.and(server)
}

/// Formats the text that `dev` prints at its start. The admin token is in the fragment of the dashboard's
/// URL: browsers do not send fragments, so the token appears in no request and no server log.
fn welcome(url: &str, admin: &str, token: &Path, data: &Path, custom: bool) -> String {
    let find =
        if custom { format!("\n  export BELFRY_DEV_DATA='{}'", data.display()) } else { String::new() };
    format!(
        "Belfry is running: a server and a worker at {url}\n\
         \x20 dashboard  {url}/#token={admin}\n\
         \x20 data       {}\n\
         \x20 token      {}\n\
         \x20 API docs   {url}/docs\n\n\
         Run in another terminal:{find}\n\
         \x20 belfry submit --follow -- echo 'hello from Belfry'\n\
         \x20 belfry job list\n\n\
         Press Ctrl-C to stop the server and the worker.",
        data.display(),
        token.display(),
    )
}

/// Sends SIGTERM to the supervisor of a worker directory, and waits until it has ended.
async fn end_supervisor(dir: &Path) {
    // The process that listens on the socket is the supervisor; a PID file could be stale.
    let Ok(socket) = UnixStream::connect(dir.join("supervisor.sock")) else { return };
    let Ok(peer) = rustix::net::sockopt::socket_peercred(&socket) else { return };
    if rustix::process::kill_process(peer.pid, rustix::process::Signal::TERM).is_err() {
        return;
    }
    let gone = tokio::task::spawn_blocking(move || {
        let _ = socket.set_read_timeout(Some(SUPERVISOR_STOP_TIMEOUT));
        // The supervisor may write first; the end of the stream is the end of the process.
        let mut socket = socket;
        std::io::copy(&mut socket, &mut std::io::sink())
    });
    if !matches!(gone.await, Ok(Ok(_))) {
        tracing::warn!(dir = %dir.display(), "the supervisor is still stopping");
    }
}

/// File with the address of a running server, for commands of the same user. Dropping it removes the file.
struct AddressFile(PathBuf);

impl AddressFile {
    /// Writes the file. A failure, for example a full disk, is logged and does not stop the server: clients can use
    /// `--url` instead.
    fn write(data: &Path, running: &Running) -> Option<Self> {
        let path = data.join(ADDRESS_FILE);
        let written = || {
            // Written atomically: a reader may be waiting for the file.
            let mut partial = tempfile::NamedTempFile::new_in(data)?;
            std::io::Write::write_all(&mut partial, format!("{}\n", running.addr).as_bytes())?;
            partial.persist(&path).map_err(|error| error.error)
        };
        if let Err(error) = written() {
            let path = path.display();
            tracing::warn!(%path, %error, "cannot write the address file: local clients need `--url`");
            return None;
        }
        Some(Self(path))
    }
}

impl Drop for AddressFile {
    fn drop(&mut self) {
        // If it stays, the next start replaces it.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Listener for SIGTERM and Ctrl-C.
struct StopSignals {
    interrupt: Signal,
    terminate: Signal,
}

impl StopSignals {
    fn new() -> Result<Self, Failure> {
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    async fn received(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// Completes when a shutdown is requested, or with an error when the server has failed.
async fn until_stopped(running: &Running, stop: &mut StopSignals) -> Result<(), Failure> {
    tokio::select! {
        () = stop.received() => Ok(()),
        fatal = running.failed() => Err(Failure::new(Exit::Failed, fatal)),
    }
}

fn start_failure(error: StartError) -> Failure {
    let help = error.help();
    let is_usage = matches!(
        error,
        StartError::Config(_)
            | StartError::RaftMember(
                RaftMemberError::NoCluster { .. }
                    | RaftMemberError::NotEmbedded { .. }
                    | RaftMemberError::OtherStart { .. }
                    | RaftMemberError::OtherStore { .. }
            )
    );
    let exit = if is_usage { Exit::Usage } else { Exit::Failed };
    Failure::new(exit, error).help(help)
}

pub(super) fn system_sources(context: &Context, log: &LogArgs) -> Sources {
    let mut sources =
        Sources::environment().with_file(context.global.config.clone(), &[PathBuf::from(SYSTEM_FILE)]);
    log_flags(&mut sources, log);
    sources
}

fn log_flags(sources: &mut Sources, log: &LogArgs) {
    sources.flag("log.level", "--log", log.log.as_ref());
    sources.flag("log.format", "--log-format", log.log_format.as_ref());
}

/// Joins the values of a repeatable flag with commas; `None` without values.
fn joined(values: &[String]) -> Option<String> {
    (!values.is_empty()).then(|| values.join(","))
}

fn block_on(work: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(work)
}
