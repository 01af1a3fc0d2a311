//! The storage of Belfry: the [`Store`] trait and its implementations for SQLite and PostgreSQL.
//!
//! A store consists of seven traits, each with its own callers:
//!
//! | trait | purpose | callers |
//! |---|---|---|
//! | [`Leases`] | ownership of shards, with epochs | the leader's shell |
//! | [`Commits`] | load the live rows of leased shards, commit the engine's batches | the leader's shell, standbys |
//! | [`Reads`] | single rows, lists, counts, events | the API and the dashboard |
//! | [`Members`] | the servers that share the store, and their common secrets | every server |
//! | [`Access`] | accounts, roles, bindings and tokens | every server |
//! | [`Alerts`] | alert rules, channels, alerts and notifications | the leader |
//! | [`Audit`] | entries of the audit log, in a chain of hashes | every server |
//! | [`Housekeeping`] | artifacts, retention, quarantine, health check | every server, periodically |
//!
//! No trait has a default method: a store or a wrapper that lacks a method does not compile.
//! Membership is separate from leases because it has other callers and decides nothing: without its membership row, a
//! server is missing from a list; without its lease, it loses leadership.
//!
//! - [`sqlite`]: the embedded store: one file, one owner at a time.
//! - `postgres`: a database that several servers share. In both stores, the modules `leases`, `members`, `commit`,
//!   `reads`, `access`, `audit` and `housekeeping` implement the trait of that name.
//! - `copy`: copies an embedded store into a database, and back.
//! - [`command`]: changes as commands that a log can keep. [`replica`]: an embedded store that changes only by a log.
//! - [`changelog`]: how a standby follows the leader.
//! - [`pace`]: a limit on the bytes per second of copies.
//! - [`suite`]: tests of the contract; every implementation passes all of them.
//! - [`faulty`]: a wrapper for fault injection: it fails, stalls or loses its lease at the nth call.
//!
//! # Invariants
//! - A commit is atomic, and durable before it is acknowledged.
//! - A commit under a lease whose shard has a newer epoch is refused and changes nothing.
//! - Every query sees all commits that were acknowledged before it started (read your writes).
//! - Ended jobs and executions are only in the history; live rows are only work that has not ended.
//! - A ledger entry that names a job never gets another job.

mod access;
mod alerts;
pub mod audit;
mod batch;
pub mod changelog;
pub mod cluster;
mod codec;
pub mod command;
mod commits;
#[cfg(feature = "postgres")]
pub mod copy;
mod error;
pub mod failures;
pub mod faulty;
mod housekeeping;
mod leases;
mod lists;
mod moved;
pub mod pace;
#[cfg(feature = "postgres")]
pub mod postgres;
pub mod query;
mod reads;
pub mod replica;
mod rows;
pub mod sqlite;
pub mod statistics;
#[cfg(any(test, doc, feature = "suite"))]
pub mod suite;

pub use access::{Access, AccessRow, AccessRows};
pub use alerts::{AlertChange, AlertRow, AlertRows, Alerts};
pub use audit::Audit;
pub use changelog::Loaded;
pub use cluster::Members;
pub use commits::{Commits, Committed};
pub use error::StoreError;
pub use housekeeping::Housekeeping;
pub use leases::{LEASE_MAX, Leases};
pub use query::EventSeq;
pub use reads::Reads;

/// A complete store, as one object.
///
/// All methods may be called concurrently. [`crate::suite`] tests the contract.
pub trait Store: Leases + Members + Commits + Reads + Access + Alerts + Audit + Housekeeping {}

impl<S: Leases + Members + Commits + Reads + Access + Alerts + Audit + Housekeeping> Store for S {}
