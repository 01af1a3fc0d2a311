//! The agent: what talks to a server on a worker's behalf.
//!
//! It keeps nothing. All that must last is in the supervisor's journal, so an agent can be killed and
//! started again at any time: it asks the supervisor what it holds, tells the server, and repeats
//! every report that is not acknowledged.
//!
//! - [`supervisor`]: finds the supervisor of the folder, or starts one, and speaks to it.
//! - [`session`]: assignments, stops and acknowledgements down, reports up.
//! - [`beat`]: heartbeats and leases; [`health`]: what the heartbeats say.
//! - [`logs`]: logs up, acknowledgements down.
//! - [`artifacts`]: inputs before a start; [`outputs`]: outputs after a success.
//! - [`tasks`]: what running tasks ask for through their sockets, and what they save to their files.
//! - [`asks`]: whether the supervisor answers; [`lock`]: that no other agent serves the folder.
//! - [`connect`]: connections, tokens, and how long to wait before the next try; [`turns`]: which server is asked next.
//! - [`machine`]: what all of this stands on: the supervisor's socket, the network, the clock.
//!
//! Each lane has a connection of its own, so a flood of logs delays no report and no heartbeat.
//!
//! # Flow control
//! Every channel here is bounded, or carries what is bounded elsewhere. A slow server makes the session's
//! channels fill up until the supervisor's socket does, and the supervisor then tells the newest
//! state of each execution when it can. Logs are bounded by the window that the supervisor keeps.

mod artifacts;
mod asks;
mod beat;
mod connect;
mod health;
mod lock;
mod logs;
pub(crate) mod machine;
mod outputs;
mod session;
mod session_error;
pub(crate) mod supervisor;
mod tasks;
mod turns;

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use tokio::sync::{mpsc, watch};

use crate::config::AgentConfig;
use crate::layout::Layout;
use crate::link::{Answer, LogPart, Owner, Request, ToSupervisor};
use asks::Asks;
use connect::{Backoff, Server, Servers};
use machine::{Host, Machine};
use outputs::Uploads;
use session::Event;
use supervisor::{Inbound, Link};
use tasks::{Saves, Upstream};

/// Messages to the supervisor that may wait.
const TO_SUPERVISOR: usize = 256;
/// Reports to the server that may wait, in messages.
const EVENTS: usize = 64;

/// Why an agent cannot start. Temporary failures are retried forever instead.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each message says it")]
pub enum AgentError {
    #[error("no server address: expected at least one such as `http://host:port`")]
    NoServer,
    #[error("invalid server address `{url}`: expected `http://host:port` or `https://host:port`")]
    Server { url: String, source: tonic::transport::Error },
    #[error("invalid token: expected visible ASCII characters")]
    Token,
    #[error(
        "another agent (process {process}) already uses the worker folder `{}`: stop that agent, or use a different folder",
        dir.display()
    )]
    Taken { dir: std::path::PathBuf, process: String },
    #[error("could not lock the worker folder `{}`", dir.display())]
    Lock { dir: std::path::PathBuf, source: std::io::Error },
}

/// What all parts of an agent share while it is connected to one supervisor.
#[derive(Debug, Clone)]
struct Shared {
    config: Arc<AgentConfig>,
    machine: Arc<dyn Machine>,
    layout: Layout,
    servers: Arc<Servers>,
    to_supervisor: mpsc::Sender<ToSupervisor>,
    /// Whose files an execution's folder must be.
    owner: Option<Owner>,
    worker_id: Arc<str>,
    /// How many executions run.
    running: Arc<AtomicU32>,
    /// What the supervisor understands.
    version: u32,
    asks: Arc<Asks>,
    /// The server of the session that is open.
    session: watch::Sender<Option<Server>>,
}

impl Shared {
    /// Tells the supervisor; waits where it is slow.
    async fn tell(&self, request: Request) {
        // Closed only when the link is, and then all of this ends.
        self.to_supervisor.send(ToSupervisor::from(request)).await.ok();
    }
}

/// Runs an agent until `shutdown` completes. The supervisor and its tasks run on after that.
///
/// # Errors
/// [`AgentError`] for a configuration that cannot work, and for a folder that another agent serves; nothing else
/// ends it.
pub async fn run_agent(config: AgentConfig, shutdown: impl Future<Output = ()>) -> Result<(), AgentError> {
    tokio::pin!(shutdown);
    let _lock = tokio::select! {
        lock = lock::take(&config) => lock?,
        () = &mut shutdown => return Ok(()),
    };
    run_on(Arc::new(Host), config, shutdown).await
}

/// Runs an agent on any machine.
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
                tracing::warn!("lost the connection to the supervisor");
            }
            Err(error) => tracing::error!(error = &error as &dyn std::error::Error, "no supervisor"),
        }
        backoff.wait().await;
    }
}

/// Serves one supervisor, until it is gone.
async fn serve(config: &Arc<AgentConfig>, machine: &Arc<dyn Machine>, servers: &Arc<Servers>, link: Link) {
    let Link { inbound, outbound, greeting } = link;
    let (to_supervisor, to_write) = mpsc::channel(TO_SUPERVISOR);
    let (events, session_events) = mpsc::channel(EVENTS);
    // Bounded by the window that the supervisor keeps, and one ending part an execution.
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
        session: watch::Sender::new(None),
    };
    tracing::info!(worker_id = %shared.worker_id, "connected to the supervisor");
    let uploads = Uploads::new(shared.clone());
    let upstream = Upstream::new(shared.clone());
    let saves = Saves::new(upstream.clone());
    tokio::select! {
        () = hear(inbound, &shared, events, log_parts, uploads, saves) => {}
        () = tasks::serve(shared.layout.clone(), upstream) => {}
        () = outbound.run(to_write) => {}
        () = asks::watch(&shared) => {}
        () = Box::pin(session::run(shared.clone(), greeting, session_events)) => {}
        () = Box::pin(logs::run(shared.clone(), lane_parts)) => {}
    }
}

/// Hands on what the supervisor says, until it says no more.
async fn hear(
    mut inbound: Inbound,
    shared: &Shared,
    events: mpsc::Sender<Event>,
    log_parts: mpsc::UnboundedSender<LogPart>,
    mut uploads: Uploads,
    mut saves: Saves,
) {
    loop {
        let answer = match inbound.next().await {
            Ok(Some(answer)) => answer,
            Ok(None) => return,
            Err(error) => {
                tracing::error!(%error, "malformed message of the supervisor");
                return;
            }
        };
        shared.asks.heard();
        match answer {
            // Comes once, and first; see `supervisor::connect`.
            Answer::Greeting(_) => {}
            Answer::Holdings(holdings) => {
                shared.running.store(holdings.running, Ordering::Relaxed);
                shared.asks.held_up(events.send(Event::Holdings(holdings))).await.ok();
            }
            Answer::Reports(reports) => {
                shared.running.store(reports.running, Ordering::Relaxed);
                shared.asks.held_up(events.send(Event::Reports(reports.reports))).await.ok();
            }
            Answer::LogPart(part) => drop(log_parts.send(part)),
            Answer::Store(store) => uploads.begin(store),
            Answer::Save(save) => saves.begin(save),
            Answer::Pong(pong) => shared.asks.answered(pong),
        }
    }
}
