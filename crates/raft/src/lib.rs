//! Raft for the replicated store: the parts that every server of a cluster runs.
//!
//! `docs/design/raft.md` describes the whole store and the stages in which it is built. This crate is the only one that
//! knows openraft. It contains:
//!
//! - [`log`] stores the entries and the vote of a server in files, for openraft.
//! - [`machine`] is the state that a server builds from the entries, behind a trait.
//! - [`node`] runs a server of the cluster: proposals, reads, elections, leases, transfers, snapshots.
//! - [`store`] is the replicated store over a node and a SQLite replica.
//! - [`net`] connects the nodes over any authenticated stream.
//! - [`identity`]: which node of which cluster a data folder belongs to.
//! - [`error`]: why a node refuses what its server asks.
//! - [`timing`] has all times in one place.
//! - [`types`] names the types with which openraft is used: node ids, peers, payloads.
//! - `runtime` is Tokio for openraft, with longer timeouts.
//! - `codec` converts them to bytes. The formats are our own, so an upgrade of openraft changes no file.
//! - `disk` has the files of the log behind a trait, so that tests can cut the power at every operation.

mod codec;
mod disk;
pub mod error;
pub mod identity;
pub mod log;
pub mod machine;
pub mod net;
pub mod node;
mod runtime;
pub mod store;
pub mod timing;
pub mod types;
