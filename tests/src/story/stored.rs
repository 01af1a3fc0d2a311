//! Everything that a store holds in the end.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::firing::LedgerRecord;
use model::record::{Event, ExecutionRecord, QueueRecord, WorkerRecord};
use model::{ExecutionId, JobId, JobSpec, ScheduleId, ScheduleSpec, WorkerId};
use store::query::{ExecutionFilter, JobFilter, JobRow, LedgerFilter, Page, ScheduleFilter, ScheduleRow};
use store::{EventSeq, Store};

const PAGE: usize = 1_000;

/// The rows of a store.
#[derive(Debug, Default)]
pub struct Stored {
    /// Every event of the feed, by its place.
    pub events: BTreeMap<u64, Event>,
    /// Every job with its history, and its spec.
    pub jobs: BTreeMap<JobId, (JobRow, Arc<JobSpec>)>,
    /// Every execution.
    pub executions: BTreeMap<ExecutionId, ExecutionRecord>,
    /// Every schedule, and its spec.
    pub schedules: BTreeMap<ScheduleId, (ScheduleRow, Arc<ScheduleSpec>)>,
    /// Every line of the ledger.
    pub ledger: Vec<LedgerRecord>,
    /// Every worker.
    pub workers: BTreeMap<WorkerId, WorkerRecord>,
    /// Every queue.
    pub queues: Vec<QueueRecord>,
}

/// Reads a list page by page.
macro_rules! all {
    ($store:expr, $list:ident, $filter:expr, |$item:ident| $place:expr, $take:expr) => {{
        let (filter, mut page) = ($filter, Page { after: None, limit: PAGE });
        loop {
            let found = $store.$list(&filter, page).await.expect("the store can be read");
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
    /// If it cannot be read, or a row of it was set aside.
    pub async fn read(store: &dyn Store) -> Self {
        let mut stored = Self::default();
        let mut ids = Vec::new();
        all!(store, jobs, JobFilter::default(), |job| job.id, |job| ids.push(job.id));
        for id in ids {
            let row = store.job(id).await.expect("the store can be read").expect("it was listed");
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
        let workers = store.workers().await.expect("the store can be read");
        stored.workers = workers.into_iter().map(|worker| (worker.id, worker)).collect();
        stored.queues = store.queues().await.expect("the store can be read");
        stored.events = Self::read_feed(store).await;
        let aside = store.quarantined(PAGE).await.expect("the store can be read");
        assert!(aside.is_empty(), "rows were set aside: {aside:?}");
        stored
    }

    /// Every event of the feed, by its place.
    ///
    /// # Panics
    /// If it cannot be read.
    pub async fn read_feed(store: &dyn Store) -> BTreeMap<u64, Event> {
        let (mut reached, mut events) = (EventSeq(0), BTreeMap::new());
        loop {
            let page = store.events(reached, PAGE).await.expect("the store can be read");
            let Some((last, _)) = page.events.last() else { return events };
            reached = *last;
            events.extend(page.events.into_iter().map(|(seq, event)| (seq.0, event)));
        }
    }
}
