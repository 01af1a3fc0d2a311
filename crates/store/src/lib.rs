//! What is kept: the [`Store`] trait, the seam between one machine and many.
//!
//! A store is the sum of five contracts, each with its own callers:
//!
//! | trait | what it is for | who calls it |
//! |---|---|---|
//! | [`Leases`] | who owns which shard, and under which epoch | the leader's shell |
//! | [`Commits`] | load the live rows of leased shards, make the engine's batches durable | the leader's shell, standbys |
//! | [`Reads`] | single rows, lists, counts, events | the API and the dashboard |
//! | [`Members`] | which servers share the store, and their common secrets | servers, of one another |
//! | [`Housekeeping`] | tokens, artifacts, retention, quarantine, check | any server, now and then |
//!
//! None of them has a default method: a store, or a wrapper around one, that forgets a method does not compile.
//! Membership is apart from leases because it has other callers and decides nothing: a lost membership row is a gap in
//! a list, a lost lease ends a leadership.
//!
//! - [`sqlite`]: the embedded store, one file, one owner at a time.
//! - `postgres`: a database that several servers share. In both, `leases`, `members`, `commit`, `reads` and
//!   `housekeeping` implement the trait of that name.
//! - `copy`: from the embedded store into a database and back.
//! - [`changelog`]: how a standby follows the leader.
//! - [`suite`]: the contract as tests; every implementation passes all of them.
//! - [`faulty`]: a wrapper that fails, stalls or loses its lease at the nth call.
//!
//! # Always true
//! - A commit is durable before it is answered, and all or nothing.
//! - A commit under a lease whose shard has a newer epoch is refused and changes nothing.
//! - What was committed is read by every later query (read your writes).
//! - Ended jobs and executions stand in history alone; live rows are only work that has not ended.
//! - A line of the fire ledger that names a job is never given another.

mod batch;
pub mod changelog;
pub mod cluster;
mod codec;
mod commits;
#[cfg(feature = "postgres")]
pub mod copy;
mod error;
pub mod faulty;
mod housekeeping;
mod leases;
mod lists;
#[cfg(feature = "postgres")]
pub mod postgres;
pub mod query;
mod reads;
mod rows;
pub mod sqlite;
#[cfg(any(test, doc, feature = "suite"))]
pub mod suite;

pub use changelog::Loaded;
pub use cluster::Members;
pub use commits::{Commits, Committed};
pub use error::StoreError;
pub use housekeeping::Housekeeping;
pub use leases::{LEASE_MAX, Leases};
pub use query::EventSeq;
pub use reads::Reads;

/// Everything that a server needs of a store, as one object.
///
/// All calls may be made at the same time. [`crate::suite`] has the contract as tests.
pub trait Store: Leases + Members + Commits + Reads + Housekeeping {}

impl<S: Leases + Members + Commits + Reads + Housekeeping> Store for S {}
