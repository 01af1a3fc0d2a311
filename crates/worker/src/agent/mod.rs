//! The agent: connects a worker to a server.
//!
//! The agent has no durable state; the journal of the supervisor has it all. So an agent can be killed and restarted
//! at any time: it requests the holdings of the supervisor, sends them to the server, and repeats every report that
//! is not acknowledged.
//!
//! - [`supervisor`]: finds or starts the supervisor of the folder, and connects to it.
//! - [`session`]: receives assignments, stops and acknowledgements; sends reports.
//! - [`heartbeat`]: heartbeats and leases; [`lease`]: the current lease; [`health`]: the measurements in a heartbeat.
//! - [`health_checks`]: health checks of running executions.
//! - [`logs`]: sends logs, receives acknowledgements.
//! - [`artifacts`]: downloads inputs before a start; [`outputs`]: uploads outputs after a success.
//! - [`tasks`]: requests of running tasks through their sockets, and their checkpoint files.
//! - [`pending_requests`]: checks that the supervisor responds; [`lock`]: allows one agent per folder.
//! - [`connect`]: connections, tokens and backoff; [`server_rotation`]: order in which the servers are tried.
//! - [`address`]: default of the address in `Hello`.
//! - [`runtimes`]: the runtimes of the machine.
//! - [`machine`]: interface to the supervisor's socket, the network and the clock.
//!
//! Session, heartbeats and logs each have their own connection, so that many logs delay no report and no heartbeat.
//!
//! # Flow control
//! Every channel is bounded, or carries messages that are bounded elsewhere. If a server is slow, the channels of the
//! session fill up, then the socket of the supervisor. The supervisor then sends only the newest state of each
//! execution. Logs are bounded by the window of the supervisor.

mod address;
mod artifacts;
mod connect;
mod health;
mod health_checks;
mod heartbeat;
mod lease;
mod lock;
mod logs;
pub(crate) mod machine;
mod outputs;
mod pending_requests;
mod runtimes;
mod secrets;
mod server_rotation;
mod session;
mod session_error;
pub(crate) mod supervisor;
mod tasks;

use std::future::Future;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use model::error_chain::Chain;
use proto::v1;
use tokio::sync::{mpsc, watch};

use crate::config::AgentConfig;
use crate::layout::Layout;
use crate::link::{Answer, LogPart, Owner, Request, ToSupervisor};
use connect::{Backoff, Server, Servers};
use health_checks::{HealthTable, Watches};
use lease::Lease;
use machine::{Host, Machine};
use outputs::Uploads;
use pending_requests::PendingRequests;
use session::Event;
use supervisor::{Inbound, Link};
use tasks::{Saves, Upstream};

/// Capacity of the queue of messages to the supervisor.
const TO_SUPERVISOR: usize = 256;
/// Capacity of the queue of reports to the server, in messages.
const EVENTS: usize = 64;

/// Why an agent cannot start. Temporary failures are retried without limit instead.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each message says it")]
pub enum AgentError {
    #[error("no server address: expected at least one such as `http://host:port`")]
    NoServer,
    #[error("invalid server address `{url}`: expected `http://host:port` or `https://host:port`")]
    Server { url: String, source: tonic::transport::Error },
    #[error("invalid worker token: expected visible ASCII characters")]
    Token,
    #[error(
        "another agent (process {process}) already uses the worker folder `{}`: stop that agent, or use a different folder",
        dir.display()
    )]
    Taken { dir: std::path::PathBuf, process: String },
    #[error("cannot lock the worker folder `{}`", dir.display())]
    Lock { dir: std::path::PathBuf, source: std::io::Error },
}

/// State that all parts of an agent share while it is connected to one supervisor.
#[derive(Debug, Clone)]
struct Shared {
    config: Arc<AgentConfig>,
    machine: Arc<dyn Machine>,
    layout: Layout,
    servers: Arc<Servers>,
    to_supervisor: mpsc::Sender<ToSupervisor>,
    /// Owner to set on the files in an execution's folder; `None` keeps the agent's own user.
    owner: Option<Owner>,
    worker_id: Arc<str>,
    /// Number of running executions, as the supervisor last reported it.
    running: Arc<AtomicU32>,
    /// Protocol version of the supervisor.
    version: u32,
    asks: Arc<PendingRequests>,
    lease: Arc<Lease>,
    /// Health of the running executions with ports or health checks.
    health: Arc<HealthTable>,
    /// Newest measurements of the running executions, until a heartbeat takes them.
    usage: Arc<Mutex<Option<v1::UsageBatch>>>,
    /// Runtimes of the machine, and the address of the container engine that the shims use.
    runtimes: runtimes::Found,
    container_engine: Option<String>,
    /// Server of the open session; `None` while no session is open.
    session: watch::Sender<Option<Server>>,
}

impl Shared {
    /// Sends a request to the supervisor; waits while the queue is full.
    async fn send_request(&self, request: Request) {
        // The channel closes only with the link, and then all parts of the agent stop.
        self.to_supervisor.send(ToSupervisor::from(request)).await.ok();
    }

    fn set_usage(&self, usage: v1::UsageBatch) {
        *self.usage.lock().unwrap_or_else(PoisonError::into_inner) = Some(usage);
    }

    /// Removes and returns the newest measurements, if no heartbeat has taken them.
    fn take_usage(&self) -> Option<v1::UsageBatch> {
        self.usage.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Runs an agent until `shutdown` completes. The supervisor and its tasks continue to run after that.
///
/// # Errors
/// [`AgentError`] for an invalid configuration, and for a folder that another agent already uses. All other failures
/// are retried.
pub async fn run_agent(config: AgentConfig, shutdown: impl Future<Output = ()>) -> Result<(), AgentError> {
    tokio::pin!(shutdown);
    let _lock = tokio::select! {
        lock = lock::take(&config) => lock?,
        () = &mut shutdown => return Ok(()),
    };
    run_on(Arc::new(Host), config, shutdown).await
}

/// Runs an agent on a real or a simulated machine.
pub(crate) async fn run_on(
    machine: Arc<dyn Machine>,
    config: AgentConfig,
    shutdown: impl Future<Output = ()>,
) -> Result<(), AgentError> {
    let config = Arc::new(config);
    let servers = Arc::new(Servers::new(Arc::clone(&config), Arc::clone(&machine))?);
    let agent = Box::pin(serve_for_ever(config, machine, servers));
    tokio::select! {
        () = shutdown => Ok(()),
        never = agent => match never {},
    }
}

async fn serve_for_ever(
    config: Arc<AgentConfig>,
    machine: Arc<dyn Machine>,
    servers: Arc<Servers>,
) -> std::convert::Infallible {
    let mut backoff = Backoff::default();
    loop {
        match supervisor::connect(&config, &*machine).await {
            Ok(link) => {
                backoff = Backoff::default();
                serve(&config, &machine, &servers, link).await;
                tracing::warn!(dir = %config.dir.display(), "connection to the supervisor lost; reconnecting");
            }
            Err(error) => {
                let dir = config.dir.display();
                tracing::error!(%dir, error = %Chain(&error), "cannot connect to the supervisor; retrying");
            }
        }
        backoff.wait().await;
    }
}

/// Serves one supervisor until the connection to it closes.
async fn serve(config: &Arc<AgentConfig>, machine: &Arc<dyn Machine>, servers: &Arc<Servers>, link: Link) {
    let Link { inbound, outbound, greeting } = link;
    let (to_supervisor, to_write) = mpsc::channel(TO_SUPERVISOR);
    let (events, session_events) = mpsc::channel(EVENTS);
    // Bounded by the log window of the supervisor, plus one final part per execution.
    let (log_parts, lane_parts) = mpsc::unbounded_channel();
    let shared = Shared {
        config: Arc::clone(config),
        machine: Arc::clone(machine),
        layout: Layout::new(&config.dir),
        servers: Arc::clone(servers),
        to_supervisor,
        owner: greeting.owner,
        worker_id: greeting.worker_id.as_str().into(),
        running: Arc::default(),
        version: greeting.version,
        asks: Arc::default(),
        lease: Arc::default(),
        health: Arc::default(),
        usage: Arc::default(),
        runtimes: runtimes::Found::new(None),
        container_engine: greeting.container_engine.clone(),
        session: watch::Sender::new(None),
    };
    tracing::info!(worker_id = %shared.worker_id, "connected to the supervisor");
    let uploads = Uploads::new(shared.clone());
    let upstream = Upstream::new(shared.clone());
    let saves = Saves::new(upstream.clone());
    let watches = Watches::new(shared.clone());
    tokio::select! {
        () = forward_messages(inbound, &shared, events, log_parts, Work { uploads, saves, watches }) => {}
        () = tasks::serve(shared.layout.clone(), upstream) => {}
        () = outbound.run(to_write) => {}
        () = pending_requests::watch(&shared) => {}
        () = runtimes::watch(&shared) => {}
        () = Box::pin(session::run(shared.clone(), greeting, session_events)) => {}
        () = Box::pin(logs::run(shared.clone(), lane_parts)) => {}
    }
}

/// Work for single executions that the supervisor requests.
struct Work {
    uploads: Uploads,
    saves: Saves,
    watches: Watches,
}

/// Forwards messages of the supervisor until the connection closes.
async fn forward_messages(
    mut inbound: Inbound,
    shared: &Shared,
    events: mpsc::Sender<Event>,
    log_parts: mpsc::UnboundedSender<LogPart>,
    mut work: Work,
) {
    loop {
        let answer = match inbound.next().await {
            Ok(Some(answer)) => answer,
            Ok(None) => return,
            Err(error) => {
                tracing::error!(error = %Chain(&error), "malformed message from the supervisor; reconnecting");
                return;
            }
        };
        shared.asks.count_message();
        match answer {
            // Sent once, as the first message; see `supervisor::connect`.
            Answer::Greeting(_) => {}
            Answer::Holdings(holdings) => {
                shared.running.store(holdings.running, Ordering::Relaxed);
                shared.asks.blocked_by_server(events.send(Event::Holdings(holdings))).await.ok();
            }
            Answer::Reports(reports) => {
                shared.running.store(reports.running, Ordering::Relaxed);
                shared.asks.blocked_by_server(events.send(Event::Reports(reports.reports))).await.ok();
            }
            Answer::LogPart(part) => drop(log_parts.send(part)),
            Answer::Store(store) => work.uploads.begin(store),
            Answer::Save(save) => work.saves.begin(save),
            Answer::Watched(watched) => work.watches.begin(watched),
            Answer::Unwatched(ended) => work.watches.end(&ended.execution_id),
            Answer::Usage(usage) => shared.set_usage(usage),
            Answer::Pong(pong) => shared.asks.answered(pong),
        }
    }
}
