//! Handles shared by all parts of a server. [`start`](crate::start) creates [`Services`] and passes it to the API, to
//! the gRPC streams of workers and to housekeeping.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::alerts::AlertService;
use crate::audit::AuditLog;
use crate::auth::{AccessControl, Keys};
use crate::between_servers::Requests;
use crate::between_servers::secret_key::KeyComparison;
use crate::config::ServerConfig;
use crate::members::Members;
use crate::metrics::Metrics;
use crate::node::Node;
use crate::objects::Objects;
use crate::raft_member::RaftMember;
use crate::tls::ClientTls;
use crate::usage::UsageTable;

/// Handles shared by all parts of a server; clones are cheap.
#[derive(Clone)]
pub struct Services {
    /// Handle to the engine.
    pub node: Node,
    /// Logs and artifacts.
    pub objects: Objects,
    /// Servers that share the store.
    pub members: Members,
    /// This server as a member of its cluster, if the store is Raft.
    pub(crate) raft_member: Option<Arc<RaftMember>>,
    /// Accounts, roles, bindings and tokens.
    pub access: Arc<AccessControl>,
    /// Alert rules and notifications.
    pub alerts: Arc<AlertService>,
    /// The audit log.
    pub audit: Arc<AuditLog>,
    /// Keys that sign cursors, browser sessions and forwarded requests.
    pub keys: Keys,
    /// What running executions use.
    pub usage: Arc<UsageTable>,
    /// Prometheus metrics of the server.
    pub metrics: Metrics,
    /// Settings that the server was started with.
    pub config: Arc<ServerConfig>,
    /// Address that the server listens on.
    pub addr: SocketAddr,
    /// Whether this server forwards requests to the leader. A simulation does not: forwarding needs real sockets.
    pub forwards_to_leader: bool,
    /// Requests to other servers.
    pub(crate) requests: Arc<Requests>,
    /// TLS of the connections of clients, if this server terminates it itself.
    pub(crate) tls: Option<Arc<ClientTls>>,
    /// Whether the other servers have the same secret key.
    pub(crate) secret_keys: Arc<KeyComparison>,
}
