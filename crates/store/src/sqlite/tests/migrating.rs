//! Files of earlier versions, as they exist at users.
//!
//! `version_1.sql` and `version_2.sql` are dumps of such files; for later versions, a test removes the newer
//! tables and columns from a new file. It then opens the file, checks that every row is still there, and uses
//! the features of later versions on the old rows.
//!
//! A released migration never changes, so a migrated file must have the same tables and indexes as a new one.
//! A new version needs a test here.

use model::record::{Batch, Change, ExecutionRecord, JobHead, JobState, LiveRow};
use model::run::{BatchKey, RunStatus, StepOrigin};
use model::service::ReplicaOrigin;
use model::{ExecutionStatus, JobStatus, ShardId};
use rusqlite::Connection;

use super::*;
use crate::EventSeq;
use crate::query::{Counts, ExecutionFilter, JobFilter, LedgerFilter, Page, RunFilter, ScheduleFilter};
use crate::sqlite::{file, schema};
use crate::suite::sample::Sampler;

/// File of version 1: its tables and rows as SQL.
const VERSION_1: &str = include_str!("version_1.sql");
/// As above, for version 2.
const VERSION_2: &str = include_str!("version_2.sql");

/// Undoes version 15.
const BEFORE_SERVICES: &str = "
    DROP TABLE services; DROP TABLE service_heads; DROP TABLE service_labels;
    DROP INDEX jobs_service; DROP INDEX jobs_ended_service;
    ALTER TABLE jobs DROP COLUMN service; ALTER TABLE jobs_ended DROP COLUMN service;";

/// Undoes versions 11 to 14, so that the other migrations of a test can be undone.
const BEFORE_ACCESS: &str = "
    DROP TABLE namespaces;
    DROP TABLE alerts; ALTER TABLE meta DROP COLUMN alert_version;
    DROP TABLE audit; DROP TABLE audit_chain;
    DROP TABLE access; ALTER TABLE meta DROP COLUMN access_version;
    CREATE TABLE tokens (id TEXT PRIMARY KEY, kind INTEGER NOT NULL, name TEXT NOT NULL, hash BLOB NOT NULL,
                         created_at INTEGER NOT NULL) STRICT, WITHOUT ROWID;";

fn a_file_of(sql: &str) -> OnDisk {
    let mut subject = OnDisk::new();
    subject.close();
    std::fs::remove_file(subject.path()).unwrap();
    file::create(&subject.path()).unwrap();
    Connection::open(subject.path()).unwrap().execute_batch(sql).unwrap();
    subject
}

/// D5. Nothing is lost, and new features work with the old rows.
#[tokio::test]
async fn a_file_of_version_1_is_migrated_without_loss() {
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

/// D5. As above; steps, runs and their jobs can be added to the old rows.
#[tokio::test]
async fn a_file_of_version_2_is_migrated_without_loss() {
    let mut subject = a_file_of(VERSION_2);
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
    // A schedule, a backfill, a calendar, a worker, a queue, two jobs, an execution and a key.
    assert_eq!((loaded.rows, loaded.quarantined, rows.len()), (9, 0, 9));
    let page = Page { after: None, limit: 10 };
    let schedules = store.schedules(&ScheduleFilter::default(), page).await.unwrap().items;
    let schedule = Some(schedules[0].id);
    let page = Page { after: None, limit: 10 };
    let jobs = store.jobs(&JobFilter { schedule, ..JobFilter::default() }, page).await.unwrap().items;
    let statuses: Vec<_> = jobs.iter().map(|job| job.state.status).collect();
    assert_eq!(statuses, [JobStatus::Failed, JobStatus::Succeeded, JobStatus::Running, JobStatus::Waiting]);
    assert!(jobs.iter().all(|job| job.step.is_none() && job.origin.is_some()));
    let page = Page { after: None, limit: 10 };
    assert_eq!(store.ledger(&LedgerFilter::default(), page).await.unwrap().items.len(), 1);

    let mut sampler = Sampler::new(2);
    let (run, job) = (sampler.run_id(ShardId(1)), sampler.job_id(ShardId(1)));
    let (head, state) = (sampler.run_head(), sampler.run_state(RunStatus::Running));
    let mut changes = vec![Change::Run { id: run, head: Some(Arc::new(head)), state: Box::new(state) }];
    let step = Some(Arc::new(StepOrigin { run, ..sampler.step_origin() }));
    let head = Arc::new(JobHead { step, ..(*sampler.head()).clone() });
    let mut state = sampler.state(JobStatus::Waiting);
    let new = |new: bool, state| Change::Job { id: job, new, head: new.then(|| Arc::clone(&head)), state };
    changes.push(new(true, Box::new(state)));
    let batch = |now, changes| Arc::new(Batch { now, changes, ..Batch::default() });
    store.commit(&leases, batch(sampler.now(), changes)).await.unwrap();
    for status in [JobStatus::Waiting, JobStatus::Succeeded] {
        state = sampler.state(status);
        store.commit(&leases, batch(sampler.now(), vec![new(false, Box::new(state))])).await.unwrap();
        let filter = JobFilter { run: Some(run), ..JobFilter::default() };
        let jobs = store.jobs(&filter, Page { after: None, limit: 10 }).await.unwrap().items;
        assert_eq!(jobs.iter().map(|job| job.id).collect::<Vec<_>>(), [job]);
        assert_eq!(jobs[0].step, head.step);
    }
    assert_eq!(
        store.runs(&RunFilter::default(), Page { after: None, limit: 10 }).await.unwrap().items.len(),
        1
    );
    store.check().await.unwrap();
}

/// D4, D5. A job from before the introduction of checkpoints saves one.
#[tokio::test]
async fn a_file_of_version_3_is_migrated_without_loss() {
    let mut subject = OnDisk::new();
    let mut sampler = Sampler::new(3);
    let id = sampler.job_id(ShardId(1));
    let head = sampler.head();
    let batch = |now, changes| Arc::new(Batch { now, changes, ..Batch::default() });
    let leases = subject.store().acquire(&[ShardId(1)], "a", Duration::from_secs(1)).await.unwrap();
    let before = JobState { checkpoint: None, ..sampler.state(JobStatus::Running) };
    let new = Change::Job { id, new: true, head: Some(head), state: Box::new(before.clone()) };
    subject.store().commit(&leases, batch(sampler.now(), vec![new])).await.unwrap();
    subject.store().release(&leases).await.unwrap();
    subject.close();
    let connection = Connection::open(subject.path()).unwrap();
    connection.execute_batch(BEFORE_SERVICES).unwrap();
    connection.execute_batch(BEFORE_ACCESS).unwrap();
    connection
        .execute_batch(
            "DROP TABLE checkpoints; DROP TABLE element_batches; DROP TABLE artifact_pins;
             DROP TABLE statistics; DROP TABLE statistics_pending; DROP TABLE failure_groups;
             ALTER TABLE shards DROP COLUMN tail_lost; PRAGMA user_version = 3",
        )
        .unwrap();
    drop(connection);

    subject.open();
    let store = subject.store();
    assert_eq!(store.job(id).await.unwrap().unwrap().state, before);
    let leases = store.acquire(&[ShardId(1)], "b", Duration::from_hours(1)).await.unwrap();
    let (known, record) = sampler.checkpoint_of(id);
    let after = JobState { checkpoint: Some(Box::new(known)), ..before };
    let change = Change::Job { id, new: false, head: None, state: Box::new(after.clone()) };
    let changes = vec![change, Change::Checkpoint(Box::new(record.clone()))];
    store.commit(&leases, batch(sampler.now(), changes)).await.unwrap();
    assert_eq!(store.job(id).await.unwrap().unwrap().state, after);
    assert_eq!(store.checkpoint(id).await.unwrap(), Some(record));
}

/// C4, D5. Elements are added to a run from before the introduction of added elements.
#[tokio::test]
async fn a_file_of_version_4_is_migrated_without_loss() {
    let mut subject = OnDisk::new();
    let mut sampler = Sampler::new(4);
    let run = sampler.run_id(ShardId(1));
    let batch = |now, changes| Arc::new(Batch { now, changes, ..Batch::default() });
    let leases = subject.store().acquire(&[ShardId(1)], "a", Duration::from_secs(1)).await.unwrap();
    let (head, state) = (sampler.run_head(), Box::new(sampler.run_state(RunStatus::Running)));
    let new = Change::Run { id: run, head: Some(Arc::new(head)), state };
    subject.store().commit(&leases, batch(sampler.now(), vec![new])).await.unwrap();
    subject.store().release(&leases).await.unwrap();
    let before = subject.store().run(run).await.unwrap();
    subject.close();
    let connection = Connection::open(subject.path()).unwrap();
    let undo = "DROP TABLE element_batches; DROP TABLE artifact_pins; DROP TABLE statistics;
        DROP TABLE statistics_pending; DROP TABLE failure_groups; ALTER TABLE shards DROP COLUMN tail_lost;
        PRAGMA user_version = 4";
    connection.execute_batch(BEFORE_SERVICES).unwrap();
    connection.execute_batch(BEFORE_ACCESS).unwrap();
    connection.execute_batch(undo).unwrap();
    drop(connection);

    subject.open();
    let store = subject.store();
    assert!(before.is_some());
    assert_eq!(store.run(run).await.unwrap(), before);
    assert_eq!(store.element_batches(run).await.unwrap(), []);
    let leases = store.acquire(&[ShardId(1)], "b", Duration::from_hours(1)).await.unwrap();
    let added = sampler.element_batch(BatchKey { run, step: 1, first: 0 });
    let changes = vec![Change::ElementBatch(Box::new(added.clone()))];
    store.commit(&leases, batch(sampler.now(), changes)).await.unwrap();
    assert_eq!(store.element_batches(run).await.unwrap(), [added]);
}

/// H2. Tokens become entries of access control, in the format of the crate `access`.
#[tokio::test]
async fn the_tokens_of_a_file_of_version_10_stay_valid() {
    let mut subject = OnDisk::new();
    subject.close();
    let connection = Connection::open(subject.path()).unwrap();
    connection.execute_batch(BEFORE_SERVICES).unwrap();
    connection.execute_batch(BEFORE_ACCESS).unwrap();
    connection
        .execute_batch(
            "INSERT INTO tokens VALUES ('abc', 0, 'ad\"min', x'00ff', 1700000000123456), ('d', 1, 'worker', x'01', 0);
             PRAGMA user_version = 10",
        )
        .unwrap();
    drop(connection);
    subject.open();
    let found = subject.store().access(0).await.unwrap();
    assert_eq!(found.version, 1);
    let rows = found.rows.iter().map(|row| (row.kind.as_str(), row.key.as_str(), row.body.as_str()));
    assert_eq!(
        rows.collect::<Vec<_>>(),
        [
            (
                "token",
                "abc",
                r#"{"id":"abc","bearer":{"admin":"ad\"min"},"hash":"00ff","created_by":"system","created_at":"2023-11-14T22:13:20.123Z"}"#
            ),
            (
                "token",
                "d",
                r#"{"id":"d","bearer":{"worker":"worker"},"hash":"01","created_by":"system","created_at":"1970-01-01T00:00:00.000Z"}"#
            ),
        ]
    );
}

/// D5. The rows of jobs and executions from before the introduction of services stay readable. Their jobs end, and
/// replicas of services are written beside them.
#[tokio::test]
async fn a_file_of_version_14_is_migrated_without_loss() {
    let mut subject = OnDisk::new();
    let mut sampler = Sampler::new(14);
    let batch = |now, changes| Arc::new(Batch { now, changes, ..Batch::default() });
    let leases = subject.store().acquire(&[ShardId(1)], "a", Duration::from_secs(1)).await.unwrap();
    let (mut ids, mut executions) = (Vec::new(), Vec::new());
    for status in [JobStatus::Running, JobStatus::Failed, JobStatus::Running] {
        let id = sampler.job_id(ShardId(1));
        let head = Some(Arc::new(JobHead { replica: None, ..(*sampler.head()).clone() }));
        let state = Box::new(sampler.state(status));
        let ended = status.is_final();
        let status = if ended { ExecutionStatus::Failed } else { ExecutionStatus::Running };
        let record = ExecutionRecord { health: None, ..sampler.execution(id, 1, status) };
        let new = Change::Execution { new: true, record: Box::new(record.clone()) };
        let changes = vec![Change::Job { id, new: true, head, state }, new];
        subject.store().commit(&leases, batch(sampler.now(), changes)).await.unwrap();
        ids.push(id);
        executions.push(record);
    }
    subject.store().release(&leases).await.unwrap();
    let mut before = Vec::new();
    for id in &ids {
        before.push(subject.store().job(*id).await.unwrap());
    }
    subject.close();
    let connection = Connection::open(subject.path()).unwrap();
    connection.execute_batch(BEFORE_SERVICES).unwrap();
    connection.execute_batch("PRAGMA user_version = 14").unwrap();
    drop(connection);

    subject.open();
    let store = subject.store();
    for ((id, before), execution) in ids.iter().zip(&before).zip(&executions) {
        assert_eq!(store.job(*id).await.unwrap(), *before);
        assert_eq!(store.execution(execution.id).await.unwrap().unwrap().record, *execution);
    }
    let leases = store.acquire(&[ShardId(1)], "b", Duration::from_hours(1)).await.unwrap();
    let healthy = ExecutionRecord { health: Some(Box::new(sampler.health())), ..executions[2].clone() };
    let (service, job) = (sampler.service_id(ShardId(1)), sampler.job_id(ShardId(1)));
    let replica = Some(Arc::new(ReplicaOrigin { service, ..sampler.replica_origin() }));
    let head = Some(Arc::new(JobHead { replica, ..(*sampler.head()).clone() }));
    let changes = vec![
        Change::Job {
            id: ids[0],
            new: false,
            head: None,
            state: Box::new(sampler.state(JobStatus::Succeeded)),
        },
        Change::Execution { new: false, record: Box::new(healthy.clone()) },
        Change::Service {
            id: service,
            new: true,
            head: Some(Arc::new(sampler.service_head())),
            state: Box::new(sampler.service_state()),
        },
        Change::Job { id: job, new: true, head, state: Box::new(sampler.state(JobStatus::Waiting)) },
    ];
    store.commit(&leases, batch(sampler.now(), changes)).await.unwrap();
    assert_eq!(store.job(ids[0]).await.unwrap().unwrap().state.status, JobStatus::Succeeded);
    assert_eq!(store.execution(healthy.id).await.unwrap().unwrap().record, healthy);
    let replicas = store.replicas(service).await.unwrap();
    assert_eq!(replicas.iter().map(|replica| replica.job).collect::<Vec<_>>(), [job]);
    store.check().await.unwrap();
}

/// Returns every table and index with its SQL.
fn tables(connection: &Connection) -> Vec<(String, Option<String>)> {
    let sql = "SELECT name, sql FROM sqlite_schema WHERE name NOT LIKE 'sqlite_%' ORDER BY name";
    let mut statement = connection.prepare(sql).unwrap();
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    rows.map(Result::unwrap).collect()
}

/// A released migration never changes: a new and a migrated file have the same schema.
#[tokio::test]
async fn a_new_file_has_the_same_tables_as_a_migrated_one() {
    let mut new = OnDisk::new();
    new.close();
    let new = Connection::open(new.path()).unwrap();
    for version in [VERSION_1, VERSION_2] {
        let mut old = a_file_of(version);
        old.open();
        old.close();
        let old = Connection::open(old.path()).unwrap();
        assert_eq!(tables(&old), tables(&new));
        assert_eq!(schema::version(&old).unwrap(), schema::VERSION);
    }
}
