//! What the engine's thread is given: its settings, and its ends of the channels to the rest of the server. `thread` starts
//! it, `shell` has what it does.

use std::sync::Arc;

use engine::View;
use leader::Standing;
use store::Store;
use tokio::sync::{broadcast, mpsc, watch};

use super::leadership::LeadsUntil;
use super::{Beat, EventBatch, FromWorker, Readiness, Request};
use crate::clock::{self, Clock};
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
            clock: clock::of_process(),
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
