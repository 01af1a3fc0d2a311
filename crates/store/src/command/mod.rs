//! Changes of a store as commands: in a form that a log can keep, and that every replica applies with the same effect.
//!
//! A [`Command`] is what a caller asks of the store. A [`GroupBuilder`] encodes several of them into one entry of a log,
//! and a replica reads them again. The effect of a command depends on its arguments and the rows alone, so times and
//! random ids are part of it, and replicas that apply the same commands in the same order stay equal.
//!
//! The embedded store applies the same commands without encoding them. So there is one set of statements, and a rule
//! of a store is written once.
//!
//! - [`rows`]: changes of single rows, with their sealed columns; the form of a batch in a log.
//! - [`seal`]: makes them from the changes of a batch.
//! - `group`: encodes and decodes commands. `entry`: entries of a log, and their answers.

mod entry;
mod group;
pub(crate) mod rows;
pub(crate) mod seal;
#[cfg(test)]
pub(crate) mod tests;

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use model::failures::{FailureGroupId, FailureMark};
use model::record::{Batch, Change, Lease};
use model::{BackfillId, JobId, RunId, ServerId, ShardId, Timestamp};
use serde::{Deserialize, Serialize};

pub use self::entry::{Answers, Content, Entry, LogPosition};
pub use self::group::GroupBuilder;
pub(crate) use self::group::{AfterRows, EventsRow, Item, SealedCommit, items};
use crate::audit::{AuditLink, AuditRow};
use crate::codec::seal_mark;
use crate::query::{Artifact, ArtifactDeletion, DeletionReason, LedgerPosition};
use crate::rows::Table;
use crate::statistics::FOLD_ROWS;
use crate::{AccessRow, AlertChange, Committed};

/// Number of rows that an update of all shards counts as.
const SHARDS: usize = 16;
/// Approximate number of steps of deleted runs that one update deletes.
pub(crate) const STEPS_AT_ONCE: usize = 2_000;
/// Maximum number of events that one update examines to delete old ones.
pub(crate) const EVENTS_AT_ONCE: usize = 10_000;

/// A change that must become durable.
#[derive(Debug, Clone)]
pub enum Command {
    /// A batch of an engine.
    Commit {
        /// Leases under which the batch is committed.
        leases: Vec<Lease>,
        /// The batch.
        batch: Arc<Batch>,
        /// Key of the row with the statistics of the batch.
        statistics: StatisticsId,
    },
    /// Any other change.
    Update(Update),
}

impl Command {
    /// Returns a commit of a batch; its statistics get a new key.
    pub fn commit(leases: &[Lease], batch: Arc<Batch>) -> Self {
        Self::Commit { leases: leases.to_vec(), batch, statistics: StatisticsId::draw() }
    }

    /// Returns the approximate number of rows that the command writes.
    pub fn rows(&self) -> usize {
        match self {
            Self::Commit { batch, .. } => batch.changes.len() + 1,
            Self::Update(update) => update.rows(),
        }
    }

    /// Returns whether the command adds work, beyond continuing or ending existing work. On a full volume, such
    /// commands are refused first.
    pub fn adds_work(&self) -> bool {
        match self {
            // Changes that belong to an end (a checkpoint, a triggered run) are needed to record the end.
            Self::Commit { batch, .. } if batch.changes.iter().any(ends_an_execution) => false,
            Self::Commit { batch, .. } => batch.changes.iter().any(|change| {
                matches!(
                    change,
                    Change::Job { head: Some(_), .. }
                        | Change::Schedule { head: Some(_), .. }
                        | Change::Backfill { head: Some(_), .. }
                        | Change::Workflow { head: Some(_), .. }
                        | Change::Run { head: Some(_), .. }
                        | Change::Service { head: Some(_), .. }
                        | Change::ElementBatch(_)
                        | Change::Checkpoint(_)
                )
            }),
            Self::Update(
                Update::PutArtifact(_)
                | Update::FoldStatistics(_)
                | Update::AppendAudit { .. }
                | Update::ChangeAlerts { .. },
            ) => true,
            Self::Update(_) => false,
        }
    }
}

impl From<Update> for Command {
    fn from(update: Update) -> Self {
        Self::Update(update)
    }
}

fn ends_an_execution(change: &Change) -> bool {
    matches!(change, Change::Execution { record, .. } if record.status.is_final())
}

/// A change that is not the batch of an engine.
///
/// A log contains the position of a variant in this list, so new variants are added at the end, and fields never
/// change.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Update {
    /// Acquires shards whose leases have expired or were released.
    TakeShards {
        /// Wanted shards.
        shards: Vec<ShardId>,
        /// New owner.
        owner: String,
        /// Time at which earlier leases must have expired.
        now: Timestamp,
        /// End of the new leases.
        until: Timestamp,
    },
    /// Releases shards.
    ReleaseShards(Vec<Lease>),
    /// The lost commits of these shards were reconciled.
    MarkReconciled(Vec<Lease>),
    /// The store was restored from a backup.
    MarkRestored,
    /// Sets engine time back.
    ResetClock(Timestamp),
    /// Writes entries of access control as version `next`, if the version is `expected`.
    ChangeAccess {
        /// Version that the caller has seen.
        expected: u64,
        /// New version.
        next: u64,
        /// Changed entries.
        rows: Vec<AccessRow>,
    },
    /// Deletes entries of access control that have not changed.
    DeleteAccess(Vec<AccessRow>),
    /// Changes rows of alerts as version `next`, if the version is `expected`.
    ChangeAlerts {
        /// Version that the caller has seen.
        expected: u64,
        /// New version.
        next: u64,
        /// Changed rows.
        changes: Vec<AlertChange>,
    },
    /// Appends rows to the audit log, if its last link is `expected`.
    AppendAudit {
        /// Link that the caller has seen.
        expected: AuditLink,
        /// New rows.
        rows: Vec<AuditRow>,
    },
    /// Deletes the oldest rows of the audit log.
    TrimAudit {
        /// Rows from this time on stay.
        before: Timestamp,
        /// Maximum number of rows to delete.
        limit: usize,
    },
    /// Adds a version of an artifact.
    PutArtifact(Artifact),
    /// Deletes a version of an artifact, unless a run needs it.
    DeleteArtifact {
        /// The version.
        artifact: Artifact,
        /// Why it is deleted.
        reason: DeletionReason,
    },
    /// Stores a common secret of all servers, unless there is one with this name.
    PutSecret {
        /// Name of the secret.
        name: String,
        /// Its value, if there is none.
        proposed: [u8; 32],
    },
    /// Deletes ended jobs.
    DeleteJobs(Vec<JobId>),
    /// Deletes ended runs; their steps are deleted later.
    DeleteRuns(Vec<RunId>),
    /// Deletes some of the steps and elements of deleted runs.
    DeleteSteps,
    /// Deletes old events.
    TrimEvents(Timestamp),
    /// Folds pending statistics. The time is that of the quarantine of damaged rows.
    FoldStatistics(Timestamp),
    /// Deletes old statistics.
    TrimStatistics(Timestamp),
    /// Sets or removes the mark of a group of failures.
    MarkFailures {
        /// Namespace of the group.
        namespace: String,
        /// Bits of the ID of the group.
        id: u64,
        /// Sealed mark.
        mark: Option<Vec<u8>>,
    },
    /// Deletes ledger entries and backfills.
    TrimLedger {
        /// Only what was decided before this time.
        before: Timestamp,
        /// Entries.
        lines: Vec<LedgerPosition>,
        /// Backfills.
        backfills: Vec<BackfillId>,
    },
    /// Moves rows that cannot be decoded to the quarantine.
    MoveToQuarantine {
        /// The rows.
        rows: Vec<DamagedRow>,
        /// Time of the quarantine.
        now: Timestamp,
    },
    /// Notes whether a server of the cluster is being drained. Only a replica keeps such notes.
    SetDraining {
        /// The server.
        server: ServerId,
        /// Whether it is being drained.
        draining: bool,
    },
}

impl Update {
    /// Returns a change of the mark of a group of failures.
    pub fn mark_failures(namespace: &str, id: FailureGroupId, mark: Option<&FailureMark>) -> Self {
        let mark = mark.map(|mark| seal_mark(namespace, id, mark));
        Self::MarkFailures { namespace: namespace.to_owned(), id: id.0, mark }
    }

    fn rows(&self) -> usize {
        match self {
            Self::TakeShards { shards, .. } => shards.len(),
            Self::ReleaseShards(leases) | Self::MarkReconciled(leases) => leases.len(),
            Self::MarkRestored => SHARDS,
            Self::ChangeAccess { rows, .. } | Self::DeleteAccess(rows) => rows.len(),
            Self::ChangeAlerts { changes, .. } => changes.len(),
            Self::AppendAudit { rows, .. } => rows.len(),
            Self::TrimAudit { limit, .. } => *limit,
            Self::DeleteJobs(jobs) => jobs.len() * 3,
            Self::DeleteRuns(runs) => runs.len() * 3,
            Self::DeleteSteps => STEPS_AT_ONCE,
            Self::TrimEvents(_) => EVENTS_AT_ONCE,
            Self::FoldStatistics(_) | Self::TrimStatistics(_) => FOLD_ROWS,
            Self::TrimLedger { lines, backfills, .. } => lines.len() + backfills.len(),
            Self::MoveToQuarantine { rows, .. } => rows.len(),
            Self::PutArtifact(_)
            | Self::DeleteArtifact { .. }
            | Self::PutSecret { .. }
            | Self::MarkFailures { .. }
            | Self::SetDraining { .. }
            | Self::ResetClock(_) => 1,
        }
    }
}

/// Key of a row with the statistics of one commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatisticsId(pub(crate) [u8; 16]);

impl StatisticsId {
    /// Draws an id that no other row has. The keys of [`RandomState`] are random.
    pub(crate) fn draw() -> Self {
        static DRAWN: AtomicU64 = AtomicU64::new(0);
        thread_local!(static KEYS: [RandomState; 2] = std::array::from_fn(|_| RandomState::new()));
        let number = DRAWN.fetch_add(1, Ordering::Relaxed);
        let halves = KEYS.with(|keys| [&keys[0], &keys[1]].map(|keys| u128::from(keys.hash_one(number))));
        Self((halves[0] << 64 | halves[1]).to_be_bytes())
    }
}

/// Answer to a command that was applied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    /// The command was applied.
    Done,
    /// Number of changed rows.
    Changed(u64),
    /// A batch was committed.
    Committed(Committed),
    /// Shards were acquired.
    Taken {
        /// Leases of the acquired shards.
        leases: Vec<Lease>,
        /// Whether a shard had an owner that did not release it.
        was_owned: bool,
    },
    /// The stored secret.
    Secret([u8; 32]),
    /// What became of an artifact.
    Artifact(ArtifactDeletion),
}

/// Reason why a command was not applied. Nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Refused {
    /// The leases are no longer valid.
    Fenced(ShardId),
    /// The command breaks an invariant: the rows and the memory of its caller differ.
    Broken(String),
}

/// Row that cannot be decoded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DamagedRow {
    pub(crate) table: Table,
    pub(crate) key: Vec<Cell>,
    /// Why the row cannot be decoded.
    pub(crate) reason: String,
    /// SHA-256 of the columns. A replica whose row has other columns keeps it: only the row of the other replica is
    /// damaged. `None` moves the row, whatever its columns.
    pub(crate) content: Option<[u8; 32]>,
}

/// Column of a row that cannot be decoded. New variants are added at the end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) enum Cell {
    Null,
    Integer(i64),
    Real(f64),
    Text(Vec<u8>),
    Blob(Vec<u8>),
}
