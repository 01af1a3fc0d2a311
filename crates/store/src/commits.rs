//! The contract of commits: how the live rows of leased shards are loaded, and how the engine's batches become durable.
//!
//! This is the hot path. A new leader loads its shards once, hands the rows to an engine, and from then on sends
//! nothing but batches; a server that leads nothing follows the [`changelog`](Commits::changelog) instead.
//!
//! Callers: the leader's shell and the standby in the server (`server::node`), `bench`, and the tests.
//!
//! # Always true
//! - A commit is durable before it is answered, and all or nothing.
//! - A commit under a lease whose shard has a newer epoch is refused and changes nothing.
//! - What was committed is read by every later query (read your writes).
//!
//! # Cost
//! A commit is one sync (SQLite) or one round trip (PostgreSQL), whatever is in it. A load reads every live row once:
//! seconds for each million.

use std::sync::Arc;

use async_trait::async_trait;
use model::record::{Batch, Lease, LiveRow};
use tokio::sync::mpsc::Sender;

use crate::StoreError;
use crate::changelog::{Changelog, Loaded};
use crate::query::EventSeq;

/// What a commit made durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Committed {
    /// The place of the batch's first event in the feed; the others follow without a gap. Without
    /// events, the place of the next one.
    pub first_event: EventSeq,
    /// Whether it also prolonged the leases, by as much as the newest acquire or renewal did.
    pub prolonged: bool,
    /// Whether the volume is full, and this was written in space that is reserved to finish running work. Refuse new
    /// work from now on, as after [`StoreError::Full`], until [`check`](crate::Housekeeping::check) succeeds.
    pub space_low: bool,
}

/// Loading and changing the live rows of leased shards.
#[async_trait]
pub trait Commits: Send + Sync + 'static {
    /// Sends every live row of the leased shards, all workers, queues and calendars, in chunks.
    ///
    /// Calendars come before schedules, schedules before the backfills that run, these before jobs, and
    /// jobs before their executions; workflows before runs, each run before the elements that tasks added to
    /// it, these before its steps, and steps before elements of their lists. Batches of elements come by the
    /// number of their step and of their first element. Rows that cannot be read are set aside and counted,
    /// and so are rows that need them.
    async fn load(&self, leases: &[Lease], rows: Sender<Vec<LiveRow>>) -> Result<Loaded, StoreError>;

    /// Makes a batch durable, all or nothing, if every lease still holds.
    ///
    /// Its rows must be of leased shards; a row of another is refused as fenced ([`Change::shard`] says which shard a
    /// row belongs to). A batch that breaks a promise of the engine (a row that is not there is changed, one that is
    /// new is there already, a line of the ledger is given a second job) is [`StoreError::Fatal`]: memory and data
    /// have come apart, and to continue could do work twice. At most [`commits_ahead`](Self::commits_ahead) batches
    /// under the same leases may be in flight at once.
    ///
    /// # Errors
    /// [`StoreError::Fenced`], [`StoreError::Full`] and [`StoreError::Unavailable`] changed nothing;
    /// after [`StoreError::OutcomeUnknown`] and [`StoreError::Fatal`] nothing is known.
    ///
    /// [`Change::shard`]: model::record::Change::shard
    async fn commit(&self, leases: &[Lease], batch: Arc<Batch>) -> Result<Committed, StoreError>;

    /// How many batches of one owner may be in flight at once.
    ///
    /// Each was decided on top of the one before. So where it is more than one they are made durable in the
    /// order in which they were first polled; and once one has failed, all behind it are
    /// refused, as [`StoreError::Fenced`] or [`StoreError::Unavailable`], until the owner, which knows of the failure
    /// then, [loads](Self::load) anew.
    fn commits_ahead(&self) -> usize;

    /// Whether the store keeps space in reserve, in which running work can be recorded as ended while its volume is full.
    ///
    /// Where it does, [`StoreError::Full`] refuses new work, and [`Committed::space_low`] says that the reserve is used.
    /// Where it does not, no batch can be committed until there is space, and the one that was refused may be sent again.
    fn has_reserve(&self) -> bool;

    /// How a server that leads nothing follows the one that does; `None` where no two servers share the store.
    fn changelog(&self) -> Option<&dyn Changelog>;
}
