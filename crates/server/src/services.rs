//! What the parts of a server share: [`Services`], made by [`start`](crate::start) and handed to the API, to the lanes of
//! the workers and to housekeeping.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::auth::{Keys, Tokens};
use crate::config::ServerConfig;
use crate::members::Members;
use crate::metrics::Metrics;
use crate::node::Node;
use crate::objects::Objects;

/// What the parts of a server share; clones are cheap.
#[derive(Clone)]
pub struct Services {
    /// The engine.
    pub node: Node,
    /// Logs and artifacts.
    pub objects: Objects,
    /// The servers of the store.
    pub members: Members,
    /// Who may come in.
    pub tokens: Arc<Tokens>,
    /// What is signed with.
    pub keys: Keys,
    /// What is counted.
    pub metrics: Metrics,
    /// The settings.
    pub config: Arc<ServerConfig>,
    /// The address that the server listens on.
    pub addr: SocketAddr,
    /// Whether requests are handed on to the leader. That needs real sockets, which a simulation has none of.
    pub hands_on: bool,
}
