//! What is kept: the [`Store`] trait, the seam between one machine and many.
//!
//! The server's driver takes [leases](Store::acquire) on shards, [loads](Store::load) their live
//! rows into an engine, and [commits](Store::commit) the engine's batches. Everything that the API
//! and the dashboard show is [read](query) from here, never from the engine.
//!
//! - [`sqlite`]: the embedded store, one file, one owner at a time.
//! - `postgres`: a database that several servers share.
//! - `copy`: from the embedded store into a database.
//! - [`cluster`]: who serves a store.
//! - [`changelog`]: how a server that stands by keeps up.
//! - [`suite`]: the contract as tests; every implementation passes all of them.
//! - [`faulty`]: a wrapper that fails, stalls or loses its lease at the nth call.
//!
//! # Always true
//! - A commit is durable before it is answered, and all or nothing.
//! - A commit under a lease whose shard has a newer epoch is refused and changes nothing.
//! - What was committed is read by every later query (read your writes).
//! - Ended jobs and executions stand in history alone; live rows are only work that can still go on.
//! - A line of the fire ledger that names a job is never given another.

mod batch;
pub mod changelog;
pub mod cluster;
mod codec;
#[cfg(feature = "postgres")]
pub mod copy;
pub mod faulty;
mod lists;
#[cfg(feature = "postgres")]
pub mod postgres;
pub mod query;
mod rows;
pub mod sqlite;
#[cfg(any(test, doc, feature = "suite"))]
pub mod suite;

use std::sync::Arc;

use async_trait::async_trait;
use changelog::Changelog;
use cluster::{Cluster, ServerRecord};
use model::calendar::CalendarRecord;
use model::checkpoint::CheckpointRecord;
use model::firing::LedgerRecord;
use model::record::{Batch, Lease, LiveRow};
use model::run::{ElementBatch, StepRecord, WorkflowHead};
use model::{BackfillId, Duration, JobId, RunId, ScheduleId, ServerId, ShardId, Timestamp, WorkflowId};
use query::{
    Artifact, ArtifactDeletion, ArtifactFilter, BackfillRow, Counts, DeletionReason, EventPage,
    ExecutionFilter, ExecutionRow, JobFilter, JobRow, LedgerCounts, LedgerFilter, LedgerPlace, Page, Paged,
    Quarantined, RunFilter, RunRow, ScheduleCounts, ScheduleFilter, ScheduleRow, Token, WorkflowFilter,
    WorkflowRow,
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
    /// It is not as it was: commits that were acknowledged are not there any more. Nothing was changed.
    #[error("the store at `{}` has lost commits: {reason}", path.display())]
    LostCommits {
        /// Which file.
        path: std::path::PathBuf,
        /// What was seen of it.
        reason: String,
    },
    /// There was a store, and its database is missing or empty. Nothing was changed.
    #[error("the store at `{}` is missing or empty, but it existed: `{}` is there", path.display(), trace.display())]
    Missing {
        /// Which file.
        path: std::path::PathBuf,
        /// What tells of it.
        trace: std::path::PathBuf,
    },
    /// It is a copy of another store, and not whole yet.
    #[error("the store is an unfinished copy of `{origin}`")]
    Unfinished {
        /// Where that one was.
        origin: String,
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
            Self::LostCommits { .. } => {
                "look at it with `belfry store check`; then bring a backup back, or keep what is there: either way, run \
                 `belfry store restored` before you start the server"
            }
            Self::Missing { .. } => {
                "bring a backup back and run `belfry store restored`; to begin with an empty store, name another data \
                 directory, or move everything out of this one"
            }
            Self::Unfinished { .. } => {
                "run `belfry store copy` once more until it is through, or name another database"
            }
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

/// Where epochs go on after the past was lost: at the next multiple of this. They grow by one at a time else.
const EPOCH_LEAP: i64 = 1 << 20;
/// How far the places of the feed leap then: no two events are ever told under one place.
const EVENT_LEAP: u64 = 1 << 32;

/// The longest lease of a shard. A server refuses a longer setting, so a lease that ends later than this was granted
/// before the store's clock was set back.
pub const LEASE_MAX: Duration = Duration::from_secs(60);

/// What a commit made durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Committed {
    /// The place of the batch's first event in the feed; the others follow without a gap. Without
    /// events, the place of the next one.
    pub first_event: EventSeq,
    /// Whether it also prolonged the leases, by as much as the newest acquire or renewal did.
    pub prolonged: bool,
    /// Whether the volume is full, and this was written in space that is kept to finish running work. Refuse new
    /// work from now on, as after [`StoreError::Full`], until [`check`](Store::check) succeeds.
    pub space_low: bool,
}

/// Keeps what was decided.
///
/// All calls may be made at the same time. [`crate::suite`] has the contract as tests.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// How many shards the job space has; chosen when the store was made.
    fn shards(&self) -> u16;

    /// Takes ownership of every shard in `shards` that is free or whose lease ran out; none while a commit of its owner
    /// is under way.
    ///
    /// Each taken shard gets an epoch higher than any before. `owner` names the process, and each has a name of its
    /// own; `ttl` is how long the ownership lasts without a renewal, on the store's clock.
    async fn acquire(&self, shards: &[ShardId], owner: &str, ttl: Duration)
    -> Result<Vec<Lease>, StoreError>;

    /// For how long the owner from whom the newest [`acquire`](Self::acquire) took shards may still take itself for
    /// their owner, from now on and by this machine's clock. It commits nothing any more, but it may renew leases of
    /// workers meanwhile.
    ///
    /// Zero where it gave the shards away, or cannot be alive.
    fn former_owner(&self) -> Duration {
        Duration::ZERO
    }

    /// Prolongs the ownership of all these by `ttl` from now.
    ///
    /// # Errors
    /// [`StoreError::Fenced`] if one of them has a newer epoch.
    async fn renew(&self, leases: &[Lease], ttl: Duration) -> Result<(), StoreError>;

    /// Whether no other process can own a shard while this one has the store open.
    ///
    /// Its owner needs no lease then: a slow disk ends no leadership.
    fn is_exclusive(&self) -> bool {
        false
    }

    /// Whether the store keeps space in reserve, in which running work can be recorded as ended while its volume is full.
    ///
    /// Where it does, [`StoreError::Full`] refuses new work, and [`Committed::space_low`] says that the reserve is used.
    /// Where it does not, no batch can be committed until there is space, and the one that was refused may be sent again.
    fn has_reserve(&self) -> bool {
        false
    }

    /// Gives shards back; those that were taken over meanwhile are left alone.
    async fn release(&self, leases: &[Lease]) -> Result<(), StoreError>;

    /// Those of the leased shards whose last commits the store may have forgotten: it was restored from
    /// a backup, or a standby took over without them.
    ///
    /// [`acquire`](Self::acquire) has raised their epochs beyond all that can have been given out. What
    /// runs on workers may be unknown here, so nothing that must not be done twice may be started
    /// before they were heard. A shard stays among these, through all its owners, until
    /// [`tails_reconciled`](Self::tails_reconciled).
    async fn lost_tails(&self, leases: &[Lease]) -> Result<Vec<ShardId>, StoreError>;

    /// Notes that the lost tails of these shards were dealt with; of those that were taken over
    /// meanwhile, nothing is noted.
    async fn tails_reconciled(&self, leases: &[Lease]) -> Result<(), StoreError>;

    /// Notes that this is an earlier state than one that was there, for whoever restored it from a backup of which
    /// the store itself cannot tell.
    ///
    /// All shards are taken from their owner, and whoever takes them next finds them among the
    /// [`lost_tails`](Self::lost_tails), under epochs beyond all that can have been given out. The feed goes on at a
    /// place beyond all that were told.
    async fn note_restored(&self) -> Result<(), StoreError>;

    /// Sets engine time back to `now` where it is ahead of that, for whoever has changed the rows accordingly while no
    /// server runs.
    async fn reset_clock(&self, now: Timestamp) -> Result<(), StoreError>;

    /// Sends every live row of the leased shards, all workers, queues and calendars, in chunks.
    ///
    /// Calendars come before schedules, schedules before the backfills that run, these before jobs, and
    /// jobs before their executions; workflows before runs, each run before the elements that tasks added to
    /// it, these before its steps, and steps before elements of their lists. Batches of elements come by the
    /// number of their step and of their first element. Rows that cannot be read are set aside and counted,
    /// and so is what cannot go on without them.
    async fn load(
        &self,
        leases: &[Lease],
        rows: tokio::sync::mpsc::Sender<Vec<LiveRow>>,
    ) -> Result<Loaded, StoreError>;

    /// Makes a batch durable, all or nothing, if every lease still holds.
    ///
    /// Its rows must be of leased shards; a row of another is refused as fenced. Calendars belong to no
    /// shard; a line of the ledger belongs to that of its schedule. A batch that breaks a promise of the
    /// engine (a row that is not there is changed, one that is new is there already, a line of the ledger is
    /// given a second job) is [`StoreError::Fatal`]: memory and data have come apart, and going on could do
    /// work twice. At most [`commits_ahead`](Self::commits_ahead) batches under the same leases may be on
    /// their way at once.
    ///
    /// # Errors
    /// [`StoreError::Fenced`], [`StoreError::Full`] and [`StoreError::Unavailable`] changed nothing;
    /// after [`StoreError::OutcomeUnknown`] and [`StoreError::Fatal`] nothing is known.
    async fn commit(&self, leases: &[Lease], batch: Arc<Batch>) -> Result<Committed, StoreError>;

    /// What time it is on a clock of the store's own; `None` where that is the clock of this machine.
    ///
    /// # Errors
    /// If the store does not answer.
    async fn clock(&self) -> Result<Option<Timestamp>, StoreError> {
        Ok(None)
    }

    /// How many batches of one owner may be on their way at once.
    ///
    /// Each was decided on top of the one before. So where it is more than one they are made durable in the
    /// order in which they were first polled; and once one did not go through, all that come behind it are
    /// refused, as [`StoreError::Fenced`] or [`StoreError::Unavailable`], until the owner, who knows of it
    /// then, [loads](Self::load) anew.
    fn commits_ahead(&self) -> usize {
        1
    }

    /// How a server that owns nothing keeps up with the one that does; `None` where no two servers share the store.
    fn changelog(&self) -> Option<&dyn Changelog> {
        None
    }

    /// One job with its history, live or ended.
    async fn job(&self, id: JobId) -> Result<Option<JobRow>, StoreError>;

    /// The last checkpoint of a job, live or ended, if it saved one.
    async fn checkpoint(&self, job: JobId) -> Result<Option<CheckpointRecord>, StoreError>;

    /// Jobs, newest first, without their histories.
    async fn jobs(&self, filter: &JobFilter, page: Page<JobId>) -> Result<Paged<JobRow>, StoreError>;

    /// How many jobs there are of each status.
    async fn counts(&self, namespace: Option<&str>) -> Result<Counts, StoreError>;

    /// One schedule.
    async fn schedule(&self, id: ScheduleId) -> Result<Option<ScheduleRow>, StoreError>;

    /// The schedule of this name.
    async fn schedule_named(&self, namespace: &str, name: &str) -> Result<Option<ScheduleRow>, StoreError>;

    /// Schedules, newest first.
    async fn schedules(
        &self,
        filter: &ScheduleFilter,
        page: Page<ScheduleId>,
    ) -> Result<Paged<ScheduleRow>, StoreError>;

    /// How many schedules there are of each status.
    async fn schedule_counts(&self, namespace: Option<&str>) -> Result<ScheduleCounts, StoreError>;

    /// Schedules that have a next instant, by it and then by id, at most `limit`.
    ///
    /// Begins behind the one that `after` names by its next instant and id. A schedule that fires
    /// between two pages has moved on, so it may be met again.
    async fn upcoming(
        &self,
        filter: &ScheduleFilter,
        after: Option<(Timestamp, ScheduleId)>,
        limit: usize,
    ) -> Result<Vec<ScheduleRow>, StoreError>;

    /// Lines of the fire ledger, the newest nominal instant first.
    async fn ledger(
        &self,
        filter: &LedgerFilter,
        page: Page<LedgerPlace>,
    ) -> Result<Paged<(LedgerPlace, LedgerRecord)>, StoreError>;

    /// How many nominal instants of a schedule came to each outcome: of the lines whose last instant is
    /// not before `since`.
    async fn ledger_counts(
        &self,
        schedule: ScheduleId,
        since: Option<Timestamp>,
    ) -> Result<LedgerCounts, StoreError>;

    /// One backfill.
    async fn backfill(&self, id: BackfillId) -> Result<Option<BackfillRow>, StoreError>;

    /// Backfills, newest first.
    async fn backfills(
        &self,
        schedule: Option<ScheduleId>,
        namespace: Option<&str>,
        page: Page<BackfillId>,
    ) -> Result<Paged<BackfillRow>, StoreError>;

    /// All calendars, by namespace and name.
    async fn calendars(&self, namespace: Option<&str>) -> Result<Vec<CalendarRecord>, StoreError>;

    /// One calendar.
    async fn calendar(&self, namespace: &str, name: &str) -> Result<Option<CalendarRecord>, StoreError>;

    /// A workflow with its newest spec.
    async fn workflow(&self, id: WorkflowId) -> Result<Option<WorkflowRow>, StoreError>;

    /// The workflow of this name.
    async fn workflow_named(&self, namespace: &str, name: &str) -> Result<Option<WorkflowRow>, StoreError>;

    /// What a generation of a workflow was asked to be. All are kept as long as the workflow is there.
    async fn workflow_version(
        &self,
        id: WorkflowId,
        generation: u64,
    ) -> Result<Option<WorkflowHead>, StoreError>;

    /// Workflows, newest first.
    async fn workflows(
        &self,
        filter: &WorkflowFilter,
        page: Page<WorkflowId>,
    ) -> Result<Paged<WorkflowRow>, StoreError>;

    /// A run, live or ended, with its history.
    async fn run(&self, id: RunId) -> Result<Option<RunRow>, StoreError>;

    /// Runs, newest first, each with the newest transition of its history alone. Equal definitions in a page are one.
    async fn runs(&self, filter: &RunFilter, page: Page<RunId>) -> Result<Paged<RunRow>, StoreError>;

    /// The steps of a run that are no longer pending, by their numbers, without elements of lists.
    async fn run_steps(&self, run: RunId) -> Result<Vec<StepRecord>, StoreError>;

    /// The elements of a step that have a row, in their order: those behind `after`, at most `limit`.
    async fn run_items(
        &self,
        run: RunId,
        step: u32,
        after: Option<u32>,
        limit: usize,
    ) -> Result<Vec<StepRecord>, StoreError>;

    /// What tasks of a run, live or ended, added to its steps: by the number of the step, then of the first
    /// element.
    async fn element_batches(&self, run: RunId) -> Result<Vec<ElementBatch>, StoreError>;

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

    /// Deletes a version of an artifact, unless a run needs it.
    ///
    /// A run needs the versions that its steps stored ([`StepState::pinned_versions`]). A live run needs them whatever
    /// the reason is, an ended one keeps them from retention for as long as it is kept itself. Retention deletes the
    /// version only if it is the one of this `created_at`: one that was stored again meanwhile is the newest.
    ///
    /// [`StepState::pinned_versions`]: model::run::StepState::pinned_versions
    async fn delete_artifact(
        &self,
        artifact: &Artifact,
        reason: DeletionReason,
    ) -> Result<ArtifactDeletion, StoreError>;

    /// Artifact versions that a newer version of the same name superseded before `before` and that no run which is kept
    /// needs, oldest first; at most `limit`.
    async fn superseded_artifacts(
        &self,
        before: Timestamp,
        limit: usize,
    ) -> Result<Vec<Artifact>, StoreError>;

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

    /// Ended runs whose retention is over at `now`; at most `limit`.
    async fn expired_runs(&self, now: Timestamp, limit: usize) -> Result<Vec<RunId>, StoreError>;

    /// Deletes ended runs with their steps and what was added to these, and definitions that no run is pinned
    /// to any more.
    ///
    /// A run is gone at once and its other rows after it, a bounded number at a time. What an earlier call that
    /// broke off has left behind is deleted too.
    async fn delete_runs(&self, runs: &[RunId]) -> Result<(), StoreError>;

    /// Deletes events older than `before`.
    async fn trim_events(&self, before: Timestamp) -> Result<(), StoreError>;

    /// Deletes lines of the ledger that were decided before `before`, and backfills that ended before
    /// it; at most `limit` of both together. Says how many: fewer than `limit` means that none is left.
    ///
    /// Lines of firings that still wait for their turn stay.
    async fn trim_ledger(&self, before: Timestamp, limit: usize) -> Result<u64, StoreError>;

    /// Rows that were set aside because they could not be read.
    async fn quarantined(&self, limit: usize) -> Result<Vec<Quarantined>, StoreError>;

    /// Tells the others that this server is there, for `ttl` from now on the store's clock, and its
    /// [`lag`](cluster::Member::lag).
    ///
    /// Whether it is [draining](cluster::Member::draining) stays as it was; a new one is not.
    async fn announce(
        &self,
        server: &ServerRecord,
        lag: Option<Duration>,
        ttl: Duration,
    ) -> Result<(), StoreError>;

    /// The servers that are there, and who owns which shard.
    async fn cluster(&self) -> Result<Cluster, StoreError>;

    /// Asks a server to give its shards away and to take none, or takes that back. Says whether there
    /// is such a server.
    async fn set_draining(&self, server: ServerId, draining: bool) -> Result<bool, StoreError>;

    /// Forgets a server that stops. Its shards are [released](Self::release) apart from this.
    async fn depart(&self, server: ServerId) -> Result<(), StoreError>;

    /// The secret of this name, which all servers share: what is kept, or else `proposed`, which is
    /// kept from now on.
    async fn secret(&self, name: &str, proposed: &[u8; 32]) -> Result<[u8; 32], StoreError>;

    /// Whether it answers, and whether it takes writes (`Full` where only reading works).
    async fn check(&self) -> Result<(), StoreError>;
}
