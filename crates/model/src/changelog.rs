//! Changelog of the live rows; a standby follows it to keep its copy up to date.
//!
//! An entry usually names the changed rows without their content, because most jobs have ended before a standby would
//! read their rows. Idempotency keys are contained completely: they are small, never change, and outlive their jobs.

use crate::id::{BackfillId, Epoch, JobId, RunId, ScheduleId, ServiceId, ShardId, WorkflowId};
use crate::record::{Change, KeyRecord, LiveRow, RunKeyRecord};
use crate::time::Timestamp;

/// Position of a reader in the changelog, after a commit.
///
/// A database that lost commits reuses their numbers, but with other epochs. So the epoch is part of the position.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct ChangelogPosition {
    /// Number of the commit, counted over all shards.
    pub commit: u64,
    /// Highest epoch of the commit.
    pub epoch: Epoch,
}

/// Group of live rows that a standby reads and replaces together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LiveKey {
    /// All workers, with their statuses.
    Workers,
    /// All queues, with their settings.
    Queues,
    /// All namespaces that have settings.
    Namespaces,
    /// All calendars, with their specs.
    Calendars,
    /// One schedule.
    Schedule(ScheduleId),
    /// One backfill.
    Backfill(BackfillId),
    /// One workflow.
    Workflow(WorkflowId),
    /// One workflow run, with its steps and the elements that tasks added.
    Run(RunId),
    /// One job, with its execution.
    Job(JobId),
    /// One service.
    Service(ServiceId),
}

impl LiveKey {
    /// Returns the group of a row, or `None` for an idempotency key.
    pub fn of(row: &LiveRow) -> Option<Self> {
        Some(match row {
            LiveRow::Job { id, .. } => Self::Job(*id),
            LiveRow::Execution(record) => Self::Job(record.job),
            LiveRow::Worker(_) => Self::Workers,
            LiveRow::Queue(_) => Self::Queues,
            LiveRow::Namespace(_) => Self::Namespaces,
            LiveRow::Calendar(_) => Self::Calendars,
            LiveRow::Schedule { id, .. } => Self::Schedule(*id),
            LiveRow::Backfill { head, .. } => Self::Backfill(head.id),
            LiveRow::Workflow { id, .. } => Self::Workflow(*id),
            LiveRow::Run { id, .. } => Self::Run(*id),
            LiveRow::Service { id, .. } => Self::Service(*id),
            LiveRow::Step(record) => Self::Run(record.key.run),
            LiveRow::ElementBatch(batch) => Self::Run(batch.key.run),
            LiveRow::Key(_) | LiveRow::RunKey(_) => return None,
        })
    }
}

/// Effect of a commit on the live rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LiveChange {
    /// Rows are new, changed or no longer live; the reader finds out by reading them again.
    Rows(LiveKey),
    /// A job has ended: it never has a live row again.
    Ended(JobId),
    /// Expired idempotency keys of a shard were deleted. Comes before the keys that the same commit added.
    KeysPurged {
        /// Shard of the keys.
        shard: ShardId,
        /// Keys that expired before this time were deleted.
        expired_before: Timestamp,
    },
    /// An idempotency key of a job was used.
    Key(KeyRecord),
    /// An idempotency key of a workflow run was used.
    RunKey(RunKeyRecord),
}

impl LiveChange {
    /// Returns the effects of the changes of a commit, each once.
    pub fn by(changes: &[Change]) -> Vec<Self> {
        Self::each_once(changes.iter().filter_map(Self::of).collect())
    }

    /// Removes duplicates, and changes of jobs that have ended.
    pub fn each_once(mut touched: Vec<Self>) -> Vec<Self> {
        touched.sort_unstable();
        touched.dedup();
        let ended: Vec<_> = touched.iter().filter_map(Self::ended).collect();
        // Sorted by ID, because `touched` is sorted.
        touched.retain(|touched| match touched {
            Self::Rows(LiveKey::Job(job)) => ended.binary_search(job).is_err(),
            _ => true,
        });
        touched
    }

    fn ended(&self) -> Option<JobId> {
        match self {
            Self::Ended(job) => Some(*job),
            _ => None,
        }
    }

    fn of(change: &Change) -> Option<Self> {
        let key = match change {
            Change::Job { id, state, .. } if state.status.is_final() => return Some(Self::Ended(*id)),
            Change::Job { id, .. } => LiveKey::Job(*id),
            Change::Execution { record, .. } => LiveKey::Job(record.job),
            Change::Key(key) => return Some(Self::Key(*key)),
            Change::RunKey(key) => return Some(Self::RunKey(*key)),
            Change::PurgeKeys { shard, expired_before } => {
                return Some(Self::KeysPurged { shard: *shard, expired_before: *expired_before });
            }
            Change::Worker(_) | Change::RemoveWorker(_) => LiveKey::Workers,
            Change::Queue(_) | Change::RemoveQueue(_) => LiveKey::Queues,
            Change::Namespace(_) | Change::RemoveNamespace(_) => LiveKey::Namespaces,
            Change::Calendar(_) | Change::RemoveCalendar { .. } => LiveKey::Calendars,
            Change::Schedule { id, .. } | Change::RemoveSchedule(id) => LiveKey::Schedule(*id),
            Change::Backfill { id, .. } => LiveKey::Backfill(*id),
            Change::Workflow { id, .. } | Change::RemoveWorkflow(id) => LiveKey::Workflow(*id),
            Change::Run { id, .. } => LiveKey::Run(*id),
            Change::Service { id, .. } | Change::RemoveService(id) => LiveKey::Service(*id),
            Change::Step(record) => LiveKey::Run(record.key.run),
            Change::ElementBatch(batch) => LiveKey::Run(batch.key.run),
            // The engine keeps no copy of these.
            Change::Checkpoint(_) | Change::Ledger(_) => return None,
        };
        Some(Self::Rows(key))
    }
}

/// Changelog entries after a [`ChangelogPosition`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangelogPage {
    /// Effects in the order of the commits.
    pub touched: Vec<LiveChange>,
    /// Position after the last entry.
    pub end: ChangelogPosition,
    /// Whether `end` was the end of the changelog at the time of reading.
    pub whole: bool,
    /// Engine time of the newest commit of any shard.
    pub now: Timestamp,
}

/// Live rows that a standby has read again.
#[derive(Debug, Clone, PartialEq)]
pub struct ReloadedRows {
    /// Rows that can be decoded.
    pub rows: Vec<LiveRow>,
    /// Number of rows that cannot be decoded; they are left out.
    pub unreadable: u64,
}
