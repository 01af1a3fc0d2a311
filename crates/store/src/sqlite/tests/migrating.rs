//! Files of earlier versions, as they lie on the disks of users.

use model::record::LiveRow;
use model::{ExecutionStatus, JobStatus, ShardId};
use rusqlite::Connection;

use super::*;
use crate::EventSeq;
use crate::query::{Counts, ExecutionFilter, JobFilter, LedgerFilter, Page, ScheduleFilter};
use crate::sqlite::{file, schema};
use crate::suite::sample::Sampler;

/// A file as version 1 wrote it: its tables and rows as SQL.
const VERSION_1: &str = include_str!("version_1.sql");

fn a_file_of(sql: &str) -> OnDisk {
    let mut subject = OnDisk::new();
    subject.close();
    std::fs::remove_file(subject.path()).unwrap();
    file::create(&subject.path()).unwrap();
    Connection::open(subject.path()).unwrap().execute_batch(sql).unwrap();
    subject
}

/// D5. Nothing is lost, and what is new works beside it.
#[tokio::test]
async fn a_file_of_version_1_is_brought_to_this_version_with_all_that_is_in_it() {
    let mut subject = a_file_of(VERSION_1);
    subject.open();
    let store = subject.store();
    let all: Vec<_> = (0..16).map(ShardId).collect();
    let leases = store.acquire(&all, "a", Duration::from_hours(1)).await.unwrap();
    let (sender, mut receiver) = tokio::sync::mpsc::channel(64);
    let loaded = store.load(&leases, sender).await.unwrap();
    let mut rows = Vec::new();
    while let Some(chunk) = receiver.recv().await {
        rows.extend(chunk);
    }
    // A worker, a queue, two jobs, an execution and a key.
    assert_eq!((loaded.rows, loaded.quarantined, rows.len()), (6, 0, 6));
    for row in &rows {
        if let LiveRow::Job { head, .. } = row {
            assert_eq!(head.origin, None);
            assert_eq!(head.spec.namespace, "default");
        }
    }
    let page = Page { after: None, limit: 10 };
    let jobs = store.jobs(&JobFilter::default(), page).await.unwrap().items;
    let statuses: Vec<_> = jobs.iter().map(|job| job.state.status).collect();
    assert_eq!(statuses, [JobStatus::Failed, JobStatus::Succeeded, JobStatus::Waiting, JobStatus::Running]);
    assert_eq!(store.counts(None).await.unwrap(), Counts::from_iter(statuses.into_iter().map(|s| (s, 1))));
    let page = Page { after: None, limit: 10 };
    let executions = store.executions(&ExecutionFilter::default(), page).await.unwrap().items;
    let statuses: Vec<_> = executions.iter().map(|row| row.record.status).collect();
    assert_eq!(statuses, [ExecutionStatus::Succeeded, ExecutionStatus::Running]);
    let labels = [("team".to_owned(), "bells".to_owned())].into();
    let page = Page { after: None, limit: 10 };
    let labelled = store.jobs(&JobFilter { labels, ..JobFilter::default() }, page).await.unwrap().items;
    assert_eq!(labelled.len(), 1);
    assert_eq!(store.events(EventSeq(0), 10).await.unwrap().events.len(), 3);

    let id = Sampler::new(1).schedule_id(ShardId(1));
    let filter = JobFilter { schedule: Some(id), ..JobFilter::default() };
    assert_eq!(store.jobs(&filter, Page { after: None, limit: 10 }).await.unwrap().items, []);
    let page = Page { after: None, limit: 10 };
    assert_eq!(store.schedules(&ScheduleFilter::default(), page).await.unwrap().items, []);
    let page = Page { after: None, limit: 10 };
    assert_eq!(store.ledger(&LedgerFilter::default(), page).await.unwrap().items, []);
    store.check().await.unwrap();
}

/// Every table and index, as SQLite keeps their text.
fn tables(connection: &Connection) -> Vec<(String, Option<String>)> {
    let sql = "SELECT name, sql FROM sqlite_schema WHERE name NOT LIKE 'sqlite_%' ORDER BY name";
    let mut statement = connection.prepare(sql).unwrap();
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    rows.map(Result::unwrap).collect()
}

/// A released step never changes: a new file and an old one come to the same.
#[tokio::test]
async fn a_new_file_has_the_same_tables_as_one_that_came_all_the_way() {
    let mut old = a_file_of(VERSION_1);
    old.open();
    old.close();
    let mut new = OnDisk::new();
    new.close();
    let (old, new) = (Connection::open(old.path()).unwrap(), Connection::open(new.path()).unwrap());
    assert_eq!(tables(&old), tables(&new));
    assert_eq!(schema::version(&old).unwrap(), schema::VERSION);
}
