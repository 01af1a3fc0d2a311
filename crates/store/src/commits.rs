//! The contract of commits: loading the live rows of leased shards, and committing the engine's batches.
//!
//! This is the hot path. A new leader loads its shards once, passes the rows to an engine, and from then on only
//! commits batches. A standby follows the [`changelog`](Commits::changelog) instead.
//!
//! Callers: the leader's shell and the standby in the server (`server::node`), `bench`, and the tests.
//!
//! # Invariants
//! - A commit is atomic, and durable before it is acknowledged.
//! - A commit under a lease whose shard has a newer epoch is refused and changes nothing.
//! - Every query sees all commits that were acknowledged before it started (read your writes).
//!
//! # Cost
//! A commit is one fsync (SQLite) or one round trip (PostgreSQL), whatever the size of its batch. A load reads every
//! live row once, which takes seconds for each million rows.

use std::sync::Arc;

use async_trait::async_trait;
use model::record::{Batch, Lease, LiveRow};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc::Sender;

use crate::StoreError;
use crate::changelog::{Changelog, Loaded};
use crate::query::EventSeq;

/// Result of a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Committed {
    /// Position of the batch's first event in the feed; the other events follow without a gap. For a batch without
    /// events, the position of the next event.
    pub first_event: EventSeq,
    /// Whether the commit also extended the leases, by the same time as the newest acquire or renewal.
    pub extended: bool,
    /// Whether the volume is full and the commit used the space that is reserved to finish running work. The caller
    /// then refuses new work, as after [`StoreError::Full`], until [`check`](crate::Housekeeping::check) succeeds.
    pub space_low: bool,
}

/// Loading and changing the live rows of leased shards.
#[async_trait]
pub trait Commits: Send + Sync + 'static {
    /// Sends in chunks every live row of the leased shards, and all workers, queues and calendars.
    ///
    /// The order is: calendars, schedules, running backfills, jobs, and the executions of the jobs; workflows before
    /// runs; services before jobs. Each run comes before the elements that tasks added to it, these before its steps,
    /// and each step before its elements. Batches of elements are ordered by step number and by the index of their
    /// first element.
    /// Rows that cannot be decoded, and rows that depend on them, are quarantined and counted.
    async fn load(&self, leases: &[Lease], rows: Sender<Vec<LiveRow>>) -> Result<Loaded, StoreError>;

    /// Commits a batch atomically, if every lease is still valid.
    ///
    /// All rows of the batch must belong to leased shards ([`Change::shard`] returns the shard of a row); otherwise the
    /// batch is refused as fenced. A batch that breaks an invariant of the engine is [`StoreError::Fatal`]: it changes
    /// a missing row, adds an existing one, or gives a ledger entry a second job. Memory and data then differ, and to
    /// continue could run work twice.
    /// At most [`commits_ahead`](Self::commits_ahead) batches under the same leases may be in flight at the same time.
    ///
    /// # Errors
    /// [`StoreError::Fenced`], [`StoreError::Full`] and [`StoreError::Unavailable`] mean that nothing was changed.
    /// After [`StoreError::OutcomeUnknown`] and [`StoreError::Fatal`], the batch may or may not be committed.
    ///
    /// [`Change::shard`]: model::record::Change::shard
    async fn commit(&self, leases: &[Lease], batch: Arc<Batch>) -> Result<Committed, StoreError>;

    /// Returns the maximum number of batches of one owner that may be in flight at the same time.
    ///
    /// Each batch depends on the one before. If the maximum is more than one, batches are committed in the order in
    /// which their futures were first polled. After a failure, all later batches are refused with
    /// [`StoreError::Fenced`] or [`StoreError::Unavailable`], until the owner has noticed the failure and
    /// [loads](Self::load) its rows again.
    fn commits_ahead(&self) -> usize;

    /// Returns whether the store reserves space, so that the end of running work can be recorded on a full volume.
    ///
    /// With a reserve, [`StoreError::Full`] refuses new work, and [`Committed::space_low`] reports that the reserve is
    /// in use. Without one, no batch can be committed until space is free; the refused batch may then be sent again.
    fn has_reserve(&self) -> bool;

    /// Returns the changelog, with which a standby follows the leader; `None` if no two servers share the store.
    fn changelog(&self) -> Option<&dyn Changelog>;
}
