//! What a commit touched among the live rows: by this a server that stands by keeps up with the owner.
//!
//! It names rows and seldom says what stands in them: most jobs have ended before anybody would read
//! their rows again. Keys are said whole; they are small, never change, and outlive their jobs.

use crate::id::{BackfillId, Epoch, JobId, RunId, ScheduleId, ShardId, WorkflowId};
use crate::record::{Change, KeyRecord, LiveRow, RunKeyRecord};
use crate::time::Timestamp;

/// Where somebody who reads the changelog stands: behind which commit.
///
/// A database that forgot commits numbers others like those, but under other epochs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The number of the commit, over all shards.
    pub commit: u64,
    /// The highest epoch that it was made under.
    pub epoch: Epoch,
}

/// Live rows that are read, taken in and forgotten together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LiveKey {
    /// All workers.
    Workers,
    /// All queues.
    Queues,
    /// All calendars.
    Calendars,
    /// A schedule.
    Schedule(ScheduleId),
    /// A backfill.
    Backfill(BackfillId),
    /// A workflow.
    Workflow(WorkflowId),
    /// A run, with its steps and what was added to them.
    Run(RunId),
    /// A job, with its execution.
    Job(JobId),
}

impl LiveKey {
    /// What a row is read together with; keys that were used belong to nothing.
    pub fn of(row: &LiveRow) -> Option<Self> {
        Some(match row {
            LiveRow::Job { id, .. } => Self::Job(*id),
            LiveRow::Execution(record) => Self::Job(record.job),
            LiveRow::Worker(_) => Self::Workers,
            LiveRow::Queue(_) => Self::Queues,
            LiveRow::Calendar(_) => Self::Calendars,
            LiveRow::Schedule { id, .. } => Self::Schedule(*id),
            LiveRow::Backfill { head, .. } => Self::Backfill(head.id),
            LiveRow::Workflow { id, .. } => Self::Workflow(*id),
            LiveRow::Run { id, .. } => Self::Run(*id),
            LiveRow::Step(record) => Self::Run(record.key.run),
            LiveRow::ElementBatch(batch) => Self::Run(batch.key.run),
            LiveRow::Key(_) | LiveRow::RunKey(_) => return None,
        })
    }
}

/// One thing that a commit did to the live rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Touched {
    /// Rows are new, were changed, or are not live any more: reading them again shows which.
    Rows(LiveKey),
    /// A job has ended: it never has a live row again.
    Ended(JobId),
    /// Keys of a shard that expired by this time are gone. Comes before those that the same commit used.
    KeysForgotten {
        /// Whose.
        shard: ShardId,
        /// Until when.
        expired_before: Timestamp,
    },
    /// An idempotency key was used.
    Key(KeyRecord),
    /// An idempotency key was used to start a run.
    RunKey(RunKeyRecord),
}

impl Touched {
    /// What a commit touched, each thing once.
    pub fn by(changes: &[Change]) -> Vec<Self> {
        let mut touched: Vec<_> = changes.iter().filter_map(Self::of).collect();
        touched.sort_unstable();
        touched.dedup();
        let ended: Vec<_> = touched.iter().filter_map(Self::ended).collect();
        // In the order of their ids, as they were sorted.
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
            Change::ForgetKeys { shard, expired_before } => {
                return Some(Self::KeysForgotten { shard: *shard, expired_before: *expired_before });
            }
            Change::Worker(_) | Change::RemoveWorker(_) => LiveKey::Workers,
            Change::Queue(_) | Change::RemoveQueue(_) => LiveKey::Queues,
            Change::Calendar(_) | Change::RemoveCalendar { .. } => LiveKey::Calendars,
            Change::Schedule { id, .. } | Change::RemoveSchedule(id) => LiveKey::Schedule(*id),
            Change::Backfill { id, .. } => LiveKey::Backfill(*id),
            Change::Workflow { id, .. } | Change::RemoveWorkflow(id) => LiveKey::Workflow(*id),
            Change::Run { id, .. } => LiveKey::Run(*id),
            Change::Step(record) => LiveKey::Run(record.key.run),
            Change::ElementBatch(batch) => LiveKey::Run(batch.key.run),
            // Of these an engine keeps nothing.
            Change::Checkpoint(_) | Change::Ledger(_) => return None,
        };
        Some(Self::Rows(key))
    }
}

/// What commits touched behind a [`Place`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Since {
    /// In the order of the commits.
    pub touched: Vec<Touched>,
    /// The place up to which that reaches.
    pub end: Place,
    /// Whether `end` was the end of the changelog when it was read.
    pub whole: bool,
    /// The engine time of the newest commit of any shard.
    pub now: Timestamp,
}

/// Live rows that a standby has read again.
#[derive(Debug, Clone, PartialEq)]
pub struct Reread {
    /// The rows that can be read.
    pub rows: Vec<LiveRow>,
    /// The number of rows that cannot be read; they are left out.
    pub unreadable: u64,
}
