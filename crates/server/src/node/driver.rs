//! Inputs of the engine's thread: its settings, and its ends of the channels to the rest of the server.
//!
//! `thread` starts it; `shell` has its loop.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use engine::View;
use leader::Standing;
use store::Store;
use tokio::sync::{broadcast, mpsc, watch};

use super::lease_expiry::LeaseExpiry;
use super::{EventBatch, FromWorker, HeartbeatRequest, Readiness, Request};
use crate::clock::{self, Clock};
use crate::config::ServerConfig;
use crate::members::Members;
use crate::metrics::Metrics;

/// Settings of a node.
#[derive(Clone)]
pub struct NodeConfig {
    /// Settings of the engine.
    pub engine: engine::Config,
    /// Id of this server, which its leases name.
    pub owner: String,
    /// Whether this server may acquire the shards, as its membership decides.
    pub standing: watch::Receiver<Standing>,
    /// Gets the progress of this standby in following the leader's rows.
    pub members: Members,
    /// Duration of a shard lease without a renewal.
    pub lease: model::Duration,
    /// Whether this server follows the rows while another server owns the shards.
    pub warm_standby: bool,
    /// Wall clock and steady clock; tests replace it.
    pub clock: Arc<dyn Clock>,
    /// Counts commits, takeovers and failures.
    pub metrics: Metrics,
}

impl NodeConfig {
    /// Derives the node's settings from those of the server.
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

/// The node cannot continue; the process must exit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the server cannot continue: {reason}")]
pub struct Fatal {
    /// Cause of the failure.
    pub reason: String,
}

/// The engine's thread before it starts.
pub struct Driver {
    pub(super) store: Arc<dyn Store>,
    pub(super) config: NodeConfig,
    pub(super) requests: mpsc::Receiver<Request>,
    pub(super) reports: mpsc::Receiver<FromWorker>,
    pub(super) heartbeats: mpsc::Receiver<HeartbeatRequest>,
    pub(super) view: watch::Sender<Arc<View>>,
    pub(super) readiness: watch::Sender<Readiness>,
    pub(super) events: broadcast::Sender<Arc<EventBatch>>,
    pub(super) stop: watch::Receiver<bool>,
    pub(super) lease_expiry: LeaseExpiry,
    pub(super) counted: Arc<AtomicBool>,
}
