//! Rows that cannot be decoded are quarantined by a caller that may do so, and the rest keeps working.

use std::collections::BTreeMap;

use model::ExecutionStatus;
use model::record::JobHead;
use model::run::{BatchKey, RunStatus, WorkflowState};
use model::service::ReplicaOrigin;

use super::*;
use crate::query::{JobFilter, Page};
use crate::suite::sample::workflow_head_of;
use crate::{Commits as _, Housekeeping as _, Reads as _};

const ALL: Page<JobId> = Page { after: None, limit: 100 };

pub(super) fn damage(database: &Database, table: &str, id: JobId) {
    let id = uuid::Uuid::from_u128(id.to_bits());
    database.execute(&format!(
        "UPDATE {table} SET state = set_byte(state, 3, 255 - get_byte(state, 3)) WHERE id = '{id}'"
    ));
}

/// F9. Any query that finds a damaged row of the history quarantines it.
#[tokio::test]
async fn a_list_quarantines_a_damaged_row_of_the_history() {
    let subject = InDatabase::make().await;
    let leases = subject.acquire().await;
    let mut sampler = Sampler::new(41);
    let mut ids = Vec::new();
    for _ in 0..3 {
        let (id, batch) = batch(&mut sampler, SHARDS[0], 0);
        let mut batch = (*batch).clone();
        let [Change::Job { state, .. }] = &mut batch.changes[..] else { panic!() };
        **state = sampler.state(JobStatus::Failed);
        subject.store.commit(&leases, Arc::new(batch)).await.unwrap();
        ids.insert(0, id);
    }
    damage(&subject.database, "jobs_ended", ids[1]);
    let page = subject.store.jobs(&JobFilter::default(), ALL).await.unwrap();
    assert_eq!(page.items.iter().map(|job| job.id).collect::<Vec<_>>(), [ids[0], ids[2]]);
    let aside = subject.store.quarantined(10).await.unwrap();
    assert_eq!(aside.len(), 1);
    assert_eq!(
        (aside[0].table.as_str(), &*aside[0].key),
        ("jobs_ended", &*format!("{:032x}", ids[1].to_bits()))
    );
    assert_eq!(subject.store.counts(None).await.unwrap(), [(JobStatus::Failed, 2)].into());
}

/// F9. An engine may have a live row in memory, so only the owner of its shard quarantines it.
#[tokio::test]
async fn a_damaged_live_row_is_skipped_until_its_owner_loads_it() {
    let subject = InDatabase::make().await;
    let leases = subject.acquire().await;
    let mut sampler = Sampler::new(42);
    let (bad, first) = batch(&mut sampler, SHARDS[0], 0);
    let (good, second) = batch(&mut sampler, SHARDS[0], 0);
    subject.store.commit(&leases, first).await.unwrap();
    subject.store.commit(&leases, second).await.unwrap();
    damage(&subject.database, "jobs", bad);
    let page = subject.store.jobs(&JobFilter::default(), ALL).await.unwrap();
    assert_eq!(page.items.iter().map(|job| job.id).collect::<Vec<_>>(), [good]);
    assert_eq!(subject.store.quarantined(10).await.unwrap(), []);
    let (sender, _rows) = tokio::sync::mpsc::channel(16);
    let loaded = subject.store.load(&leases, sender).await.unwrap();
    assert_eq!((loaded.rows, loaded.quarantined), (2, 1));
    assert_eq!(subject.store.quarantined(10).await.unwrap().len(), 1);
    assert_eq!(subject.store.counts(None).await.unwrap(), [(JobStatus::Waiting, 1)].into());
}

/// C1, F9. With its newest spec; earlier generations stay.
#[tokio::test]
async fn a_damaged_workflow_is_quarantined_once() {
    let subject = InDatabase::make().await;
    let leases = subject.acquire().await;
    let mut sampler = Sampler::new(43);
    let id = sampler.workflow_id(SHARDS[0]);
    let mut state = WorkflowState { generation: 0, ..sampler.workflow_state() };
    for new in [true, false] {
        state.generation += 1;
        let head = Some(Arc::new(workflow_head_of(sampler.workflow_spec())));
        let changes = vec![Change::Workflow { id, new, head, state: state.clone() }];
        let batch = Batch { now: sampler.now(), changes, ..Batch::default() };
        subject.store.commit(&leases, Arc::new(batch)).await.unwrap();
    }
    subject.database.execute("UPDATE workflow_heads SET head = 'xx' WHERE generation = 2");
    assert_eq!(subject.store.workflow(id).await.unwrap(), None);
    assert_eq!(subject.store.workflow_version(id, 2).await.unwrap(), None);
    assert_eq!(subject.store.quarantined(10).await.unwrap(), []);
    let (sender, _rows) = tokio::sync::mpsc::channel(16);
    let loaded = subject.store.load(&leases, sender).await.unwrap();
    assert_eq!((loaded.rows, loaded.quarantined), (1, 1));
    assert_eq!(subject.store.quarantined(10).await.unwrap().len(), 1);
    assert!(subject.store.workflow_version(id, 1).await.unwrap().is_some());
    assert_eq!(subject.database.execute("SELECT generation FROM workflow_heads"), [Some("1".to_owned())]);
}

/// F9. An engine may have the service in memory, so only the owner of its shard quarantines it. Its replicas are
/// still read; one whose execution is damaged is read without it.
#[tokio::test]
async fn a_damaged_service_is_skipped_until_its_owner_loads_it() {
    let subject = InDatabase::make().await;
    let leases = subject.acquire().await;
    let mut sampler = Sampler::new(45);
    let id = sampler.service_id(SHARDS[0]);
    let (head, state) = (Some(Arc::new(sampler.service_head())), Box::new(sampler.service_state()));
    let mut changes = vec![Change::Service { id, new: true, head, state }];
    let mut executions = Vec::new();
    for replica in 0..2 {
        let job = sampler.job_id(SHARDS[0]);
        let origin = ReplicaOrigin { service: id, replica, ..sampler.replica_origin() };
        let head = Arc::new(JobHead { replica: Some(Arc::new(origin)), ..(*sampler.head()).clone() });
        let state = Box::new(sampler.state(JobStatus::Running));
        changes.push(Change::Job { id: job, new: true, head: Some(head), state });
        let record = sampler.execution(job, 1, ExecutionStatus::Running);
        changes.push(Change::Execution { new: true, record: Box::new(record.clone()) });
        executions.push(record);
    }
    let batch = Batch { now: sampler.now(), changes, ..Batch::default() };
    subject.store.commit(&leases, Arc::new(batch)).await.unwrap();
    let damaged = uuid::Uuid::from_u128(executions[0].id.to_bits());
    subject.database.execute("UPDATE service_heads SET head = 'xx'");
    subject.database.execute(&format!("UPDATE executions SET rest = 'xx' WHERE id = '{damaged}'"));
    assert_eq!(subject.store.service(id).await.unwrap(), None);
    let replicas = subject.store.replicas(id).await.unwrap();
    let found: BTreeMap<_, _> =
        replicas.into_iter().map(|replica| (replica.job, replica.execution)).collect();
    let [damaged, whole] = &executions[..] else { panic!("two executions") };
    assert_eq!(found, BTreeMap::from([(damaged.job, None), (whole.job, Some(whole.clone()))]));
    assert_eq!(subject.store.quarantined(10).await.unwrap(), []);
    let (sender, _rows) = tokio::sync::mpsc::channel(16);
    let loaded = subject.store.load(&leases, sender).await.unwrap();
    assert!(loaded.quarantined > 1, "the service, and the execution with or without its job");
    let found = subject.store.quarantined(10).await.unwrap();
    assert!(found.iter().any(|row| row.table == "services"), "{found:?}");
    assert_eq!(subject.database.execute("SELECT id FROM service_heads"), []);
}

/// C4, F9. Without earlier elements, later ones would have other indexes: the run is quarantined with them.
#[tokio::test]
async fn a_damaged_batch_of_elements_is_skipped_until_its_run_is_quarantined() {
    let subject = InDatabase::make().await;
    let leases = subject.acquire().await;
    let mut sampler = Sampler::new(44);
    let ids = [sampler.run_id(SHARDS[0]), sampler.run_id(SHARDS[0])];
    for id in ids {
        let (head, state) = (sampler.run_head(), Box::new(sampler.run_state(RunStatus::Running)));
        let mut changes = vec![Change::Run { id, head: Some(Arc::new(head)), state }];
        for first in [0, 1_000] {
            let added = sampler.element_batch(BatchKey { run: id, step: 1, first });
            changes.push(Change::ElementBatch(Box::new(added)));
        }
        let batch = Batch { now: sampler.now(), changes, ..Batch::default() };
        subject.store.commit(&leases, Arc::new(batch)).await.unwrap();
    }
    let bad = uuid::Uuid::from_u128(ids[0].to_bits());
    subject.database.execute(&format!(
        "UPDATE element_batches SET batch = set_byte(batch, 3, 255 - get_byte(batch, 3))
         WHERE run = '{bad}' AND first = 0"
    ));
    assert_eq!(subject.store.element_batches(ids[0]).await.unwrap().len(), 1);
    assert_eq!(subject.store.quarantined(10).await.unwrap(), []);
    let (sender, mut rows) = tokio::sync::mpsc::channel(16);
    let loaded = subject.store.load(&leases, sender).await.unwrap();
    // The intact run with its two batches, and two rows of the other run.
    assert_eq!((loaded.rows, loaded.quarantined), (5, 2));
    let mut live = 0;
    while let Some(chunk) = rows.recv().await {
        live += chunk.len();
    }
    assert_eq!(live, 3);
    let mut aside: Vec<_> =
        subject.store.quarantined(10).await.unwrap().into_iter().map(|row| (row.table, row.key)).collect();
    aside.sort_unstable();
    let id = format!("{:032x}", ids[0].to_bits());
    assert_eq!(aside, [("element_batches".to_owned(), format!("{id} 1 0")), ("runs".to_owned(), id)]);
}
