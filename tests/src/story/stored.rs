//! The final rows of a store.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::firing::LedgerRecord;
use model::record::{Event, ExecutionRecord, QueueRecord, WorkerRecord};
use model::{ExecutionId, JobId, JobSpec, ScheduleId, ScheduleSpec, WorkerId};
use store::query::{ExecutionFilter, JobFilter, JobRow, LedgerFilter, Page, ScheduleFilter, ScheduleRow};
use store::{EventSeq, Store};

const PAGE: usize = 1_000;

/// Rows of a store after its servers have ended.
#[derive(Debug, Default)]
pub struct Stored {
    /// Every event of the feed, by its position.
    pub events: BTreeMap<u64, Event>,
    /// Every job with its history, and its spec.
    pub jobs: BTreeMap<JobId, (JobRow, Arc<JobSpec>)>,
    /// Every execution.
    pub executions: BTreeMap<ExecutionId, ExecutionRecord>,
    /// Every schedule, and its spec.
    pub schedules: BTreeMap<ScheduleId, (ScheduleRow, Arc<ScheduleSpec>)>,
    /// Every ledger entry.
    pub ledger: Vec<LedgerRecord>,
    /// Every worker.
    pub workers: BTreeMap<WorkerId, WorkerRecord>,
    /// Every queue.
    pub queues: Vec<QueueRecord>,
}

/// Reads all pages of a list.
macro_rules! all {
    ($store:expr, $list:ident, $filter:expr, |$item:ident| $place:expr, $take:expr) => {{
        let (filter, mut page) = ($filter, Page { after: None, limit: PAGE });
        loop {
            let found = $store.$list(&filter, page).await.expect("cannot read the store");
            page.after = found.items.last().map(|$item| $place);
            let more = found.more;
            found.items.into_iter().for_each($take);
            if !more {
                break;
            }
        }
    }};
}

impl Stored {
    /// Reads the store of servers that have ended.
    ///
    /// # Panics
    /// If the store cannot be read, or contains quarantined rows.
    pub async fn read(store: &dyn Store) -> Self {
        let mut stored = Self::default();
        let mut ids = Vec::new();
        all!(store, jobs, JobFilter::default(), |job| job.id, |job| ids.push(job.id));
        for id in ids {
            let row = store.job(id).await.expect("cannot read the store").expect("the job was listed");
            let spec = serde_json::from_str(&row.body).expect("a spec is JSON");
            stored.jobs.insert(id, (row, Arc::new(spec)));
        }
        all!(store, executions, ExecutionFilter::default(), |row| row.record.id, |row| {
            stored.executions.insert(row.record.id, row.record);
        });
        all!(store, schedules, ScheduleFilter::default(), |row| row.id, |row| {
            let spec = serde_json::from_str(&row.body).expect("a spec is JSON");
            stored.schedules.insert(row.id, (row, Arc::new(spec)));
        });
        all!(store, ledger, LedgerFilter::default(), |line| line.0, |line| stored.ledger.push(line.1));
        let workers = store.workers().await.expect("cannot read the store");
        stored.workers = workers.into_iter().map(|worker| (worker.id, worker)).collect();
        stored.queues = store.queues().await.expect("cannot read the store");
        stored.events = Self::read_feed(store).await;
        let aside = store.quarantined(PAGE).await.expect("cannot read the store");
        assert!(aside.is_empty(), "rows were quarantined: {aside:?}");
        stored
    }

    /// Returns every event of the feed, by its position.
    ///
    /// # Panics
    /// If the store cannot be read.
    pub async fn read_feed(store: &dyn Store) -> BTreeMap<u64, Event> {
        let (mut reached, mut events) = (EventSeq(0), BTreeMap::new());
        loop {
            let page = store.events(reached, PAGE).await.expect("cannot read the store");
            let Some((last, _)) = page.events.last() else { return events };
            reached = *last;
            events.extend(page.events.into_iter().map(|(seq, event)| (seq.0, event)));
        }
    }
}
