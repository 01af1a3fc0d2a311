//! What was decided and not yet handed to the driver.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::checkpoint::CheckpointRecord;
use model::record::{Change, Event, EventKind, ExecutionRecord, WorkerRecord};
use model::{JobId, Timestamp};

use crate::output::Effect;

/// Decisions since the last flush.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    /// Jobs whose rows changed, each once; the job knows that it stands here.
    pub(crate) jobs: Vec<JobId>,
    /// Executions that ended: they are no longer to be found at their jobs.
    pub(crate) ended: Vec<ExecutionRecord>,
    /// The last checkpoints of jobs that saved one.
    pub(crate) checkpoints: BTreeMap<JobId, Box<CheckpointRecord>>,
    /// Rows of other kinds, in order; a later one of the same key replaces an earlier one on writing.
    pub(crate) others: Vec<Change>,
    /// What watchers will hear.
    pub(crate) events: Vec<Event>,
    /// Answers to beats, which wait for no commit.
    pub(crate) grants: Vec<Effect>,
    /// What is released after the commit.
    pub(crate) effects: Vec<Effect>,
}

impl Pending {
    pub(crate) fn is_empty(&self) -> bool {
        self.jobs.is_empty()
            && self.ended.is_empty()
            && self.checkpoints.is_empty()
            && self.others.is_empty()
            && self.events.is_empty()
            && self.grants.is_empty()
            && self.effects.is_empty()
    }

    /// Writes a worker's row, and tells watchers.
    pub(crate) fn worker(&mut self, now: Timestamp, record: &Arc<WorkerRecord>) {
        self.others.retain(|change| !matches!(change, Change::Worker(known) if known.id == record.id));
        self.others.push(Change::Worker(Arc::clone(record)));
        let kind =
            EventKind::Worker { worker: record.id, status: record.status, admission: record.admission };
        self.events.push(Event { at: now, namespace: None, kind });
    }
}
