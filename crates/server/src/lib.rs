//! The server: drives an engine over a store, and serves clients and workers.
//!
//! ```text
//!  REST, SSE ── api ──┐                       ┌── store (rows)
//!                     ├── node ── engine ─────┤
//!  workers ──── grpc ─┘                       └── objects (logs, artifacts)
//! ```
//!
//! - [`node`]: the engine, which runs on its own thread, and [`Node`](node::Node), the handle to it.
//! - [`members`]: membership of this server in its cluster, and which server leads; [`peers`]: identities and addresses
//!   of the servers.
//! - [`grpc`]: the gRPC streams of the workers; translates messages to inputs of the engine, and its effects to
//!   messages.
//! - [`api`]: REST, SSE and the pages; [`auth`]: tokens, roles and sessions.
//! - [`alerts`]: alert rules and notifications; `alert_feed` evaluates them on the leader. [`networks`]: addresses that
//!   requests of users may reach. [`oidc`]: logins at an OpenID provider.
//! - [`seal`]: encryption of what the store keeps secret; `secrets`: secrets of jobs, and who gets their values.
//! - [`objects`]: logs and artifacts, in a local folder, in S3, or as copies on all servers.
//! - `between_servers`: requests of servers to each other; `server_clients`: HTTP clients for them; `marks`: how servers are known
//!   behind proxies.
//! - `cluster_metrics`: metrics of a Raft cluster and of the copies of objects.
//! - `raft_member`: the Raft store of this server, how it becomes a member of its cluster, and the connections to the others.
//! - [`clock`]: the time, which tests replace. [`listener`]: the TCP listener; `tls`: the certificate of its port. `web`: the files of the
//!   dashboard. [`housekeeping`]: retention; [`metrics`]: Prometheus metrics; [`preview`]: the next scheduled times of
//!   a timing; [`input_errors`]: error messages for input that does not deserialize.
//!
//! [`start`] assembles these parts from a [`ServerConfig`]; each part gets [`Services`].
//!
//! Imports have one direction: `running` → `api`, `grpc`, `housekeeping` → `services` → `node`, `listener` → `members`
//! → `auth`, `objects`, `peers`, `tls` → `clock`, `config`, `metrics`. The node depends on neither HTTP nor gRPC.
//!
//! # Invariants
//! - Nothing is answered, sent to a worker or shown in a feed before its commit.
//! - One listener serves users, programs and workers; it is bound to loopback by default.

mod alert_feed;
pub mod alerts;
pub mod api;
pub mod audit;
pub mod auth;
mod between_servers;
pub mod clock;
mod cluster_metrics;
pub mod config;
mod endpoints;
pub mod grpc;
mod hash;
pub mod housekeeping;
pub mod input_errors;
pub mod listener;
mod marks;
pub mod members;
pub mod metrics;
pub mod networks;
pub mod node;
pub mod objects;
pub mod oidc;
pub mod peers;
pub mod preview;
mod private_files;
mod raft_member;
pub mod repair;
mod running;
pub mod seal;
mod secrets;
mod server_clients;
pub mod service_metrics;
mod services;
mod statistics;
#[cfg(feature = "testing")]
pub mod testing;
mod tls;
mod usage;
mod web;

pub use config::ServerConfig;
pub use raft_member::RaftMemberError;
pub use running::{EngineThread, Environment, Running, StartError, start, start_at, start_with};
pub use services::Services;
pub use tls::TlsError;
