//! The server: drives an engine over a store, and is what clients and workers talk to.
//!
//! ```text
//!  REST, SSE ── api ──┐                       ┌── store (rows)
//!                     ├── node ── engine ─────┤
//!  workers ──── grpc ─┘                       └── objects (logs, artifacts)
//! ```
//!
//! - [`node`]: the one engine, on a thread of its own, and the [`Node`](node::Node) handle to it.
//! - [`members`]: this server among those that share its store, and who of them decides; [`peers`]: how two
//!   servers know each other.
//! - [`grpc`]: the lanes of the workers, translated to inputs of the engine and from what the node sends.
//! - [`api`]: REST, SSE and the pages; [`auth`]: who may do what.
//! - [`objects`]: what is no row, in a local folder or in S3.
//! - [`clock`]: the time, as a value that tests replace. [`listener`]: where connections come from. `web`: the dashboard's
//!   files. [`housekeeping`]: retention; [`metrics`]: what is counted; [`preview`]: what a timing will do; [`misfits`]: why
//!   a text does not fit its type.
//!
//! [`start`] puts them together from a [`ServerConfig`]; [`Services`] is what each of them gets.
//!
//! Imports go one way: `running` → `api`, `grpc`, `housekeeping` → `services` → `node`, `listener` → `members` → `auth`,
//! `objects`, `peers` → `clock`, `config`, `metrics`. The node knows neither HTTP nor gRPC.
//!
//! # Always true
//! - Nothing is answered, sent to a worker or shown in a feed before its commit.
//! - One listener serves people, programs and workers; it is bound to loopback until told otherwise.

pub mod api;
pub mod auth;
pub mod clock;
pub mod config;
pub mod grpc;
mod hash;
pub mod housekeeping;
pub mod listener;
pub mod members;
pub mod metrics;
pub mod misfits;
pub mod node;
pub mod objects;
pub mod peers;
pub mod preview;
pub mod repair;
mod running;
pub mod services;
#[cfg(feature = "testing")]
pub mod testing;
mod web;

pub use config::ServerConfig;
pub use running::{EngineRuns, Running, Site, StartError, start, start_at, start_with};
pub use services::Services;
