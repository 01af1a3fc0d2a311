//! How a server that owns no shards keeps up with the one that does.
//!
//! Taking over would else begin with reading every live row, which takes seconds for each million of
//! them. So who stands by reads them beforehand, without a lease, while they change under its hands; the
//! changelog says of each commit which rows it touched, and what is read later is read whole:
//!
//! ```text
//! end ─> preload ······ changelog ─> live_rows ······ │ acquire, changelog ─> live_rows ─> start
//!                       (again and again)             │ (nobody else commits any more)
//! ```
//!
//! The rows in memory may be of different moments until the last step, and never afterwards: whatever
//! changed behind the place where the reading began is named, and is read once more.

use std::fmt;

use async_trait::async_trait;
use model::Timestamp;
use model::changelog::{LiveKey, Place, Reread, Since};
use model::record::LiveRow;
use tokio::sync::mpsc::Sender;

use crate::StoreError;

/// What a load found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Loaded {
    /// The engine time of the newest commit of these shards; engine time continues from here.
    pub now: Timestamp,
    /// Number of live rows.
    pub rows: u64,
    /// Number of rows that could not be read and were set aside, with their bytes.
    pub quarantined: u64,
}

/// The changelog of a store that several servers share.
#[async_trait]
pub trait Changelog: fmt::Debug + Send + Sync {
    /// Where the changelog ends now.
    async fn end(&self) -> Result<Place, StoreError>;

    /// What was touched behind `place`, a bounded number of commits at a time.
    ///
    /// `None` if that cannot be said: what stood there is gone because it is old, or the database has
    /// forgotten commits, or somebody commits who writes no changelog. Who follows begins anew then.
    async fn since(&self, place: Place) -> Result<Option<Since>, StoreError>;

    /// Sends all live rows as [`Commits::load`](crate::Commits::load) does, in the same order and to the same
    /// end, but without a lease.
    ///
    /// Others go on changing them meanwhile, so rows may contradict each other, and those that were
    /// changed since [`end`](Self::end) was asked beforehand have to be read again. Nothing is set aside: rows that
    /// cannot be read are left out and counted.
    async fn preload(&self, rows: Sender<Vec<LiveRow>>) -> Result<Loaded, StoreError>;

    /// The live rows of these, in the order of [`Commits::load`](crate::Commits::load), all as they are at one
    /// moment. What is not live any more is left out. Nothing is set aside.
    async fn live_rows(&self, keys: &[LiveKey]) -> Result<Reread, StoreError>;

    /// Forgets what is so old that whoever follows has read it, or has to begin anew. To be called now and then, by one
    /// server.
    async fn trim(&self) -> Result<(), StoreError>;
}
