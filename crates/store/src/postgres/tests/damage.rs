//! Rows that cannot be read are set aside by who may, and the rest goes on.

use model::run::WorkflowState;

use super::*;
use crate::query::{JobFilter, Page};
use crate::suite::sample::workflow_head_of;

const ALL: Page<JobId> = Page { after: None, limit: 100 };

fn damage(database: &Database, table: &str, id: JobId) {
    let id = uuid::Uuid::from_u128(id.to_bits());
    database.execute(&format!(
        "UPDATE {table} SET state = set_byte(state, 3, 255 - get_byte(state, 3)) WHERE id = '{id}'"
    ));
}

/// F9. Whoever meets a row of the history that cannot be read moves it.
#[tokio::test]
async fn a_damaged_row_of_the_history_is_set_aside_by_the_list_that_meets_it() {
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

/// F9. A live row may be in an engine's memory: it is moved by the owner of its shard alone.
#[tokio::test]
async fn a_damaged_live_row_is_passed_over_until_its_owner_loads_it() {
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

/// C1, F9. With its newest spec; the versions before it are left alone.
#[tokio::test]
async fn a_damaged_workflow_of_several_generations_is_set_aside_once() {
    let subject = InDatabase::make().await;
    let leases = subject.acquire().await;
    let mut sampler = Sampler::new(43);
    let id = sampler.workflow_id(SHARDS[0]);
    let mut state = WorkflowState { generation: 0, ..sampler.workflow_state() };
    for new in [true, false] {
        state.generation += 1;
        let head = Some(Arc::new(workflow_head_of(sampler.workflow_spec())));
        let changes = vec![Change::Workflow { id, new, head, state: state.clone() }];
        let batch = Batch { now: sampler.now(), changes, events: Vec::new() };
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
