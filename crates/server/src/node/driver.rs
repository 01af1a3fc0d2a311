//! The thread that runs the engine: its settings, its start and its end. `shell` has what it does.

use std::sync::Arc;

use engine::View;
use leader::Standing;
use store::Store;
use tokio::sync::{broadcast, mpsc, watch};

use super::leadership::LeadsUntil;
use super::shell::Shell;
use super::{Beat, Clock, EventBatch, FromWorker, Readiness, Request};
use crate::config::ServerConfig;
use crate::members::Members;
use crate::metrics::Metrics;

/// The settings of a node.
#[derive(Clone)]
pub struct NodeConfig {
    /// The engine's settings.
    pub engine: engine::Config,
    /// Which server this is: what its leases name.
    pub owner: String,
    /// What it may do with the shards.
    pub standing: watch::Receiver<Standing>,
    /// Learns how far this server has followed another one's rows.
    pub members: Members,
    /// How long the ownership of a shard lasts without a renewal.
    pub lease: model::Duration,
    /// Whether it follows the rows while another server owns the shards.
    pub warm_standby: bool,
    /// What time it is.
    pub clock: Arc<dyn Clock>,
    /// Where batches are counted.
    pub metrics: Metrics,
}

impl NodeConfig {
    /// The settings of a server's node.
    pub fn new(config: &ServerConfig, members: Members, metrics: Metrics) -> Self {
        let mut engine = config.engine.clone();
        if engine.seed == 0 {
            engine.seed = rand::random();
        }
        Self {
            engine,
            owner: members.me().id.to_string(),
            standing: members.standing(),
            members,
            lease: config.shard_lease(),
            warm_standby: config.warm_standby,
            clock: super::clock::of_process(),
            metrics,
        }
    }
}

/// The node can go on no more; the process must exit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the server cannot go on: {reason}")]
pub struct Fatal {
    /// What happened.
    pub reason: String,
}

/// The engine's thread before it runs.
pub struct Driver {
    pub(super) store: Arc<dyn Store>,
    pub(super) config: NodeConfig,
    pub(super) requests: mpsc::Receiver<Request>,
    pub(super) reports: mpsc::Receiver<FromWorker>,
    pub(super) beats: mpsc::Receiver<Beat>,
    pub(super) view: watch::Sender<Arc<View>>,
    pub(super) readiness: watch::Sender<Readiness>,
    pub(super) events: broadcast::Sender<Arc<EventBatch>>,
    pub(super) stop: watch::Receiver<bool>,
    pub(super) leads_until: LeadsUntil,
}

/// The engine's thread while it runs.
pub struct DriverHandle {
    ended: watch::Receiver<Option<Result<(), Fatal>>>,
}

impl DriverHandle {
    /// Waits until the thread has ended: after [`Node::stop`](super::Node::stop), or by a failure.
    ///
    /// # Errors
    /// [`Fatal`] if it ended by a failure.
    pub async fn join(&self) -> Result<(), Fatal> {
        let mut ended = self.ended.clone();
        match ended.wait_for(Option::is_some).await {
            Ok(result) => result.clone().unwrap_or(Ok(())),
            Err(_closed) => Err(Fatal { reason: "the engine's thread died".into() }),
        }
    }

    /// Completes when the thread has ended by a failure, and never if it is stopped in order.
    pub async fn failed(&self) -> Fatal {
        match self.join().await {
            Err(fatal) => fatal,
            Ok(()) => std::future::pending().await,
        }
    }
}

impl Driver {
    /// Starts the thread, and watches its lease from the runtime of the caller.
    ///
    /// # Errors
    /// If the operating system gives no thread.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn spawn(self) -> std::io::Result<DriverHandle> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (ended_tx, ended) = watch::channel(None);
        self.watch_lease(ended.clone());
        std::thread::Builder::new().name("belfry-engine".into()).spawn(move || {
            let result = runtime.block_on(Shell::new(self).run());
            ended_tx.send_replace(Some(result));
        })?;
        Ok(DriverHandle { ended })
    }

    /// Drives the engine on the runtime of the caller. A simulation needs it so: its clock ends where
    /// another thread begins.
    pub fn spawn_here(self) -> DriverHandle {
        let (ended_tx, ended) = watch::channel(None);
        self.watch_lease(ended.clone());
        tokio::spawn(async move {
            let result = Shell::new(self).run().await;
            ended_tx.send_replace(Some(result));
        });
        DriverHandle { ended }
    }

    /// Watches the lease from the runtime of the caller until the driver has ended.
    fn watch_lease(&self, mut ended: watch::Receiver<Option<Result<(), Fatal>>>) {
        let watching = self.leads_until.clone().watch(self.readiness.clone());
        tokio::spawn(async move {
            tokio::select! {
                never = watching => match never {},
                _ = ended.wait_for(Option::is_some) => {}
            }
        });
    }
}
