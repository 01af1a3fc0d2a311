//! The changelog: how a standby keeps a copy of the leader's live rows.
//!
//! Without it, a takeover would start by loading every live row, which takes seconds for each million rows. So a
//! standby loads the rows in advance, without a lease, while the leader changes them. The changelog names the rows that
//! each commit changed, and the standby reads those rows again:
//!
//! ```text
//!  end ─> preload ······ changelog ─> live_rows ······ │ acquire, changelog ─> live_rows ─> start
//!                        (repeatedly)                  │ (no other server commits any more)
//! ```
//!
//! Until the last step, the rows in memory may come from different commits. After it, they are consistent: the
//! changelog names every row that changed after the initial load started, and each is read again.

mod memory;

use std::fmt;

use async_trait::async_trait;
use model::Timestamp;
use model::changelog::{ChangelogPage, ChangelogPosition, LiveKey, ReloadedRows};
use model::record::LiveRow;
use tokio::sync::mpsc::Sender;

pub(crate) use self::memory::{AppliedCommit, MemoryChangelog};
use crate::StoreError;

/// Result of a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Loaded {
    /// Engine time of the newest commit of the loaded shards; engine time continues from here.
    pub now: Timestamp,
    /// Number of live rows.
    pub rows: u64,
    /// Number of rows that could not be decoded; [`Commits::load`](crate::Commits::load) quarantines them with their
    /// bytes.
    pub quarantined: u64,
}

/// The changelog of a store that several servers share.
#[async_trait]
pub trait Changelog: fmt::Debug + Send + Sync {
    /// Returns the current end of the changelog.
    async fn end(&self) -> Result<ChangelogPosition, StoreError>;

    /// Returns the keys of the rows that commits changed after `place`, for a bounded number of commits.
    ///
    /// `None` if the changelog is not complete: the position was trimmed, the database lost commits, or a server
    /// commits without writing a changelog. The standby then starts again with [`preload`](Self::preload).
    async fn since(&self, place: ChangelogPosition) -> Result<Option<ChangelogPage>, StoreError>;

    /// Sends all live rows in the same order and format as [`Commits::load`](crate::Commits::load), but without a
    /// lease.
    ///
    /// The leader changes the rows during the load, so rows may contradict each other. The caller reads
    /// [`end`](Self::end) before the load, and afterwards reads all rows again that changed since. Rows that cannot be
    /// decoded are skipped and counted, not quarantined.
    async fn preload(&self, rows: Sender<Vec<LiveRow>>) -> Result<Loaded, StoreError>;

    /// Returns the live rows with these keys from one snapshot, in the order of
    /// [`Commits::load`](crate::Commits::load). Rows that are no longer live are left out. No row is quarantined.
    async fn live_rows(&self, keys: &[LiveKey]) -> Result<ReloadedRows, StoreError>;

    /// Deletes entries that are so old that every standby has read them or must start again. One server calls it
    /// periodically.
    async fn trim(&self) -> Result<(), StoreError>;
}
