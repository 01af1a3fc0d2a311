//! What is kept: the [`Store`] trait, the seam between one machine and many.
//!
//! The server's driver takes [leases](Store::acquire) on shards, [loads](Store::load) their live
//! rows into an engine, and [commits](Store::commit) the engine's batches. Everything that the API
//! and the dashboard show is [read](query) from here, never from the engine.
//!
//! - [`sqlite`]: the embedded store, one file, one owner at a time.
//! - [`suite`]: the contract as tests; every implementation passes all of them.
//! - [`faulty`]: a wrapper that fails, stalls or loses its lease at the nth call.
//!
//! # Always true
//! - A commit is durable before it is answered, and all or nothing.
//! - A commit under a lease whose shard has a newer epoch is refused and changes nothing.
//! - What was committed is read by every later query (read your writes).
//! - Ended jobs and executions stand in history alone; live rows are only work that can still go on.

pub mod faulty;
pub mod query;
pub mod sqlite;
#[cfg(any(test, doc, feature = "suite"))]
pub mod suite;

use std::sync::Arc;

use async_trait::async_trait;
use model::record::{Batch, Lease, LiveRow};
use model::{Duration, JobId, ShardId, Timestamp};
use query::{
    Artifact, ArtifactFilter, Counts, EventPage, ExecutionFilter, ExecutionRow, JobFilter, JobRow, Page,
    Paged, Quarantined, Token,
};

pub use query::EventSeq;

/// Why a store did not do what it was asked.
///
/// The caller acts on the difference: see each variant.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Somebody else owns the shard by now. Nothing was changed; drop the engine's memory.
    #[error("shard {shard} was taken over by another server")]
    Fenced {
        /// Which shard.
        shard: ShardId,
    },
    /// No space. Nothing was changed, and reading goes on; refuse new work by name until it heals.
    #[error("no space left on the store's volume")]
    Full,
    /// It cannot be known whether the commit happened. Drop the engine's memory and load again.
    #[error("the outcome of the commit is unknown")]
    OutcomeUnknown {
        /// What was seen of it.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Nothing was changed; the same call may go through later.
    #[error("the store is not available")]
    Unavailable {
        /// Why.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The disk or the data cannot be trusted any more. The process must exit; it never retries on
    /// the same file.
    #[error("the store cannot be trusted: {reason}")]
    Fatal {
        /// What happened, to which file.
        reason: String,
    },
    /// The data was written by a newer version.
    #[error("the store has schema version {found}, and this program knows none above {known}")]
    TooNew {
        /// In the store.
        found: u32,
        /// The newest that this program knows.
        known: u32,
    },
    /// Another store has the file open, in this process or another.
    #[error("the store at `{}` is in use by another server", path.display())]
    InUse {
        /// Which file.
        path: std::path::PathBuf,
    },
    /// A query took longer than it may.
    #[error("the query took longer than {limit}")]
    TooSlow {
        /// How long it may take.
        limit: Duration,
    },
}

impl StoreError {
    /// What the operator or user can do next.
    pub fn help(&self) -> &'static str {
        match self {
            Self::Fenced { .. } => "nothing to do: the new owner goes on with the work",
            Self::Full => "free space on the volume of the store; work goes on by itself then",
            Self::OutcomeUnknown { .. } => {
                "repeat the request with the same idempotency key: nothing is done twice"
            }
            Self::Unavailable { .. } => "try again in a moment",
            Self::Fatal { .. } => "check the disk, then restart; restore a backup if the file is damaged",
            Self::TooNew { .. } => {
                "run the newer version of Belfry, or restore a backup from before its upgrade"
            }
            Self::InUse { .. } => "stop the other server, or give this one a data folder of its own",
            Self::TooSlow { .. } => "narrow the filter: name a namespace, a status or a time range",
        }
    }
}

/// What a load found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Loaded {
    /// The engine time of the newest commit of these shards; engine time goes on from here.
    pub now: Timestamp,
    /// How many live rows there were.
    pub rows: u64,
    /// How many of them could not be read and were set aside, with their bytes.
    pub quarantined: u64,
}

/// What a commit made durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Committed {
    /// The place of the batch's first event in the feed; the others follow without a gap. Without
    /// events, the place of the next one.
    pub first_event: EventSeq,
}

/// Keeps what was decided.
///
/// All calls may be made at the same time. [`crate::suite`] has the contract as tests.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// How many shards the job space has; chosen when the store was made.
    fn shards(&self) -> u16;

    /// Takes ownership of every shard in `shards` that is free or whose lease ran out.
    ///
    /// Each taken shard gets an epoch higher than any before. `owner` is a name for people; `ttl`
    /// is how long the ownership lasts without a renewal, on the store's clock.
    async fn acquire(&self, shards: &[ShardId], owner: &str, ttl: Duration)
    -> Result<Vec<Lease>, StoreError>;

    /// Prolongs the ownership of all these by `ttl` from now.
    ///
    /// # Errors
    /// [`StoreError::Fenced`] if one of them has a newer epoch.
    async fn renew(&self, leases: &[Lease], ttl: Duration) -> Result<(), StoreError>;

    /// Gives shards back; those that were taken over meanwhile are left alone.
    async fn release(&self, leases: &[Lease]) -> Result<(), StoreError>;

    /// Sends every live row of the leased shards, all workers and all queues, in chunks.
    ///
    /// Jobs come before their executions. Rows that cannot be read are set aside and counted.
    async fn load(
        &self,
        leases: &[Lease],
        rows: tokio::sync::mpsc::Sender<Vec<LiveRow>>,
    ) -> Result<Loaded, StoreError>;

    /// Makes a batch durable, all or nothing, if every lease still holds.
    ///
    /// Its rows must be of leased shards; a row of another is refused as fenced. Batches under the
    /// same leases are sent one after the other: each was decided on top of the one before, and must
    /// not go through where that one did not.
    ///
    /// # Errors
    /// [`StoreError::Fenced`], [`StoreError::Full`] and [`StoreError::Unavailable`] changed nothing;
    /// after [`StoreError::OutcomeUnknown`] and [`StoreError::Fatal`] nothing is known.
    async fn commit(&self, leases: &[Lease], batch: Arc<Batch>) -> Result<Committed, StoreError>;

    /// One job with its history, live or ended.
    async fn job(&self, id: JobId) -> Result<Option<JobRow>, StoreError>;

    /// Jobs, newest first, without their histories.
    async fn jobs(&self, filter: &JobFilter, page: Page<JobId>) -> Result<Paged<JobRow>, StoreError>;

    /// How many jobs there are of each status.
    async fn counts(&self, namespace: Option<&str>) -> Result<Counts, StoreError>;

    /// Executions, newest first.
    async fn executions(
        &self,
        filter: &ExecutionFilter,
        page: Page<model::ExecutionId>,
    ) -> Result<Paged<ExecutionRow>, StoreError>;

    /// One execution, live or ended.
    async fn execution(&self, id: model::ExecutionId) -> Result<Option<ExecutionRow>, StoreError>;

    /// Events from `after` on (exclusive), at most `limit`.
    async fn events(&self, after: EventSeq, limit: usize) -> Result<EventPage, StoreError>;

    /// All workers that were not removed.
    async fn workers(&self) -> Result<Vec<model::record::WorkerRecord>, StoreError>;

    /// All queues that were set up.
    async fn queues(&self) -> Result<Vec<model::record::QueueRecord>, StoreError>;

    /// Keeps a token's hash; one of the same id is replaced.
    async fn put_token(&self, token: &Token) -> Result<(), StoreError>;

    /// Every token's hash.
    async fn tokens(&self) -> Result<Vec<Token>, StoreError>;

    /// Records a version of an artifact; a second time for the same bytes changes nothing but makes
    /// it the newest.
    async fn put_artifact(&self, artifact: &Artifact) -> Result<(), StoreError>;

    /// Artifact versions, newest first; those of one instant by namespace and name.
    async fn artifacts(&self, filter: &ArtifactFilter, limit: usize) -> Result<Vec<Artifact>, StoreError>;

    /// Ended jobs whose retention is over, with their executions; at most `limit`.
    ///
    /// Their logs are deleted first, then [`Store::delete_jobs`] is called, so that nothing is left
    /// behind whatever fails in between.
    async fn expired_jobs(
        &self,
        now: Timestamp,
        limit: usize,
    ) -> Result<Vec<(JobId, Vec<model::ExecutionId>)>, StoreError>;

    /// Deletes ended jobs and their executions. Idempotency keys stay until they expire by themselves.
    async fn delete_jobs(&self, jobs: &[JobId]) -> Result<(), StoreError>;

    /// Deletes events older than `before`.
    async fn trim_events(&self, before: Timestamp) -> Result<(), StoreError>;

    /// Rows that were set aside because they could not be read.
    async fn quarantined(&self, limit: usize) -> Result<Vec<Quarantined>, StoreError>;

    /// Whether it answers, and whether it takes writes (`Full` where only reading works).
    async fn check(&self) -> Result<(), StoreError>;
}
