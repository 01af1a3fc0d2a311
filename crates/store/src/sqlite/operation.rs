//! The operations of the writer thread.
//!
//! An operation may be applied more than once: if a transaction of several operations fails, each is repeated on its
//! own. Its effect depends on its arguments and the rows alone, so times and random ids are part of it.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use model::failures::{FailureGroupId, FailureMark};
use model::record::{Batch, Change, Lease};
use model::{BackfillId, JobId, RunId, ShardId, Timestamp};
use rusqlite::Connection;

use super::error::Failure;
use super::housekeeping::{STEPS, TRIM_ROWS};
use super::quarantine::{self, DamagedRow};
use super::statements::Statements;
use super::{access, alerts, audit, commit, housekeeping, leases, members, statistics};
use crate::audit::{AuditLink, AuditRow};
use crate::query::{Artifact, ArtifactDeletion, DeletionReason, LedgerPosition};
use crate::statistics::FOLD_ROWS;
use crate::{AccessRow, AlertChange, Committed};

/// Number of rows that an operation on all shards counts as.
const SHARDS: usize = 16;

/// A change that must become durable.
#[derive(Debug)]
pub(super) enum Operation {
    Commit {
        leases: Vec<Lease>,
        batch: Arc<Batch>,
        /// Key of the row with the statistics of the batch.
        statistics: StatisticsId,
    },
    Acquire {
        shards: Vec<ShardId>,
        owner: String,
        now: Timestamp,
        until: Timestamp,
    },
    Renew {
        leases: Vec<Lease>,
        until: Timestamp,
    },
    Release {
        leases: Vec<Lease>,
    },
    /// The lost commits of these shards were reconciled.
    Reconciled {
        leases: Vec<Lease>,
    },
    /// The file was restored from a backup.
    NoteRestored,
    ChangeAccess {
        expected: u64,
        next: u64,
        rows: Vec<AccessRow>,
    },
    DeleteAccess(Vec<AccessRow>),
    ChangeAlerts {
        expected: u64,
        next: u64,
        changes: Vec<AlertChange>,
    },
    AppendAudit {
        expected: AuditLink,
        rows: Vec<AuditRow>,
    },
    TrimAudit {
        before: Timestamp,
        limit: usize,
    },
    PutArtifact(Artifact),
    DeleteArtifact {
        artifact: Artifact,
        reason: DeletionReason,
    },
    Secret {
        name: String,
        proposed: [u8; 32],
    },
    DeleteJobs(Vec<JobId>),
    DeleteRuns(Vec<RunId>),
    /// Deletes some of the steps and elements of deleted runs.
    DeleteSteps,
    TrimEvents(Timestamp),
    /// The time is that of the quarantine of damaged rows.
    FoldStatistics(Timestamp),
    TrimStatistics(Timestamp),
    MarkFailures {
        namespace: String,
        id: FailureGroupId,
        mark: Option<FailureMark>,
    },
    TrimLedger {
        before: Timestamp,
        lines: Vec<LedgerPosition>,
        backfills: Vec<BackfillId>,
    },
    /// Sets engine time back.
    ResetClock(Timestamp),
    MoveToQuarantine {
        rows: Vec<DamagedRow>,
        now: Timestamp,
    },
    /// The owner of the shards loads them again. After a failed batch, its further batches were refused until now.
    Resume,
    /// Writes the time of a health check.
    Check(Timestamp),
}

/// Key of a row with the statistics of one commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StatisticsId(pub(super) [u8; 16]);

impl StatisticsId {
    /// Draws an id that no other row has. The keys of [`RandomState`] are random.
    pub(super) fn draw() -> Self {
        static DRAWN: AtomicU64 = AtomicU64::new(0);
        thread_local!(static KEYS: [RandomState; 2] = std::array::from_fn(|_| RandomState::new()));
        let number = DRAWN.fetch_add(1, Ordering::Relaxed);
        let halves = KEYS.with(|keys| [&keys[0], &keys[1]].map(|keys| u128::from(keys.hash_one(number))));
        Self((halves[0] << 64 | halves[1]).to_be_bytes())
    }
}

/// Result of an operation.
#[derive(Debug)]
pub(super) enum Answer {
    Done,
    Leases(Vec<Lease>),
    Committed(Committed),
    /// Number of changed rows.
    Changed(u64),
    Secret([u8; 32]),
    Artifact(ArtifactDeletion),
}

fn ends_an_execution(change: &Change) -> bool {
    matches!(change, Change::Execution { record, .. } if record.status.is_final())
}

impl Operation {
    /// Returns the approximate number of rows that the operation writes.
    pub(super) fn rows(&self) -> usize {
        match self {
            Self::Commit { batch, .. } => batch.changes.len() + 1,
            Self::Acquire { shards, .. } => shards.len(),
            Self::Renew { leases, .. } | Self::Release { leases } | Self::Reconciled { leases } => {
                leases.len()
            }
            Self::DeleteJobs(jobs) => jobs.len() * 3,
            Self::DeleteRuns(runs) => runs.len() * 3,
            Self::DeleteSteps => STEPS,
            Self::TrimEvents(_) => TRIM_ROWS,
            Self::FoldStatistics(_) | Self::TrimStatistics(_) => FOLD_ROWS,
            Self::TrimLedger { lines, backfills, .. } => lines.len() + backfills.len(),
            Self::MoveToQuarantine { rows, .. } => rows.len(),
            Self::ChangeAccess { rows, .. } | Self::DeleteAccess(rows) => rows.len(),
            Self::ChangeAlerts { changes, .. } => changes.len(),
            Self::AppendAudit { rows, .. } => rows.len(),
            Self::TrimAudit { limit, .. } => *limit,
            Self::PutArtifact(_)
            | Self::DeleteArtifact { .. }
            | Self::Secret { .. }
            | Self::MarkFailures { .. }
            | Self::ResetClock(_)
            | Self::Check(_) => 1,
            Self::NoteRestored => SHARDS,
            Self::Resume => 0,
        }
    }

    /// Returns whether the operation adds work, beyond continuing or ending existing work. Such operations get little
    /// of the reserve.
    pub(super) fn adds_work(&self) -> bool {
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
            Self::PutArtifact(_)
            | Self::FoldStatistics(_)
            | Self::AppendAudit { .. }
            | Self::ChangeAlerts { .. } => true,
            _ => false,
        }
    }

    /// Applies the operation inside the transaction that the caller began.
    ///
    /// # Errors
    /// After [`Failure::Fenced`] nothing was written, and the transaction may continue.
    pub(super) fn apply(
        &self,
        connection: &Connection,
        statements: &mut Statements<'_>,
        next_event: &mut u64,
    ) -> Result<Answer, Failure> {
        let done = |()| Answer::Done;
        match self {
            Self::Commit { leases, batch, statistics } => {
                commit::commit(statements, leases, batch, *statistics, next_event).map(Answer::Committed)
            }
            Self::Acquire { shards, owner, now, until } => {
                leases::acquire(statements, shards, owner, *now, *until).map(Answer::Leases)
            }
            Self::Renew { leases, until } => leases::renew(statements, leases, *until).map(done),
            Self::Release { leases } => leases::release(statements, leases).map(done),
            Self::Reconciled { leases } => leases::reconciled(statements, leases).map(done),
            Self::NoteRestored => leases::mark_restored(statements, next_event).map(done),
            Self::ResetClock(to) => leases::reset_clock(statements, *to, next_event).map(done),
            Self::ChangeAccess { expected, next, rows } => {
                access::change(statements, *expected, *next, rows).map(Answer::Changed)
            }
            Self::DeleteAccess(rows) => access::delete(statements, rows).map(done),
            Self::ChangeAlerts { expected, next, changes } => {
                alerts::change(statements, *expected, *next, changes).map(Answer::Changed)
            }
            Self::AppendAudit { expected, rows } => {
                audit::append(statements, expected, rows).map(Answer::Changed)
            }
            Self::TrimAudit { before, limit } => {
                audit::trim(statements, *before, *limit).map(Answer::Changed)
            }
            Self::Secret { name, proposed } => {
                members::secret(statements, name, proposed).map(Answer::Secret)
            }
            Self::PutArtifact(artifact) => housekeeping::put_artifact(statements, artifact).map(done),
            Self::DeleteArtifact { artifact, reason } => {
                housekeeping::delete_artifact(statements, artifact, *reason).map(Answer::Artifact)
            }
            Self::DeleteJobs(jobs) => housekeeping::delete_jobs(statements, jobs).map(done),
            Self::DeleteRuns(runs) => housekeeping::delete_runs(statements, runs).map(done),
            Self::DeleteSteps => housekeeping::delete_steps(statements).map(Answer::Changed),
            Self::TrimEvents(before) => housekeeping::trim_events(statements, *before).map(done),
            Self::FoldStatistics(now) => statistics::fold(connection, statements, *now).map(Answer::Changed),
            Self::TrimStatistics(now) => statistics::trim(statements, *now).map(Answer::Changed),
            Self::MarkFailures { namespace, id, mark } => {
                statistics::mark_failures(statements, namespace, *id, mark.as_ref()).map(Answer::Changed)
            }
            Self::TrimLedger { before, lines, backfills } => {
                housekeeping::trim_ledger(statements, *before, lines, backfills).map(Answer::Changed)
            }
            Self::MoveToQuarantine { rows, now } => {
                quarantine::move_to_quarantine(connection, statements, rows, *now).map(done)
            }
            Self::Resume => Ok(Answer::Done),
            Self::Check(now) => {
                statements.checked.execute([now.as_micros()])?;
                Ok(Answer::Done)
            }
        }
    }
}
