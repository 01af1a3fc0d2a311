//! Rules for commits and loads of rows.
//!
//! In order: every field survives, a load returns exactly the live rows of the leased shards, jobs move from
//! live to ended, idempotency keys, safeguards of the engine's invariants, engine time, and reopening.
//!
//! Records are random, from [`Sampler`](super::sample::Sampler), so that a field that a store forgets is
//! noticed.
//!
//! # Invariants
//! - A batch that breaks an invariant changes nothing at all, and affects no other batch.
//! - A commit is visible as soon as it is acknowledged, and survives a reopen.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::record::{Batch, Change, KeyRecord, LiveRow};
use model::{Duration, ExecutionStatus, JobStatus, ShardId, Timestamp};

use super::sample::head_of;
use super::{Fixture, HOUR, SHARDS, Subject, execution, load, new_execution};
use crate::StoreError;
use crate::query::{ExecutionFilter, JobFilter, Page};

const FIRST: Page<model::ExecutionId> = Page { after: None, limit: 100 };

/// D7.
pub async fn a_commit_is_visible_immediately<S: Subject>() {
    let mut scene = Fixture::<S>::new().await;
    for status in [JobStatus::Waiting, JobStatus::Succeeded] {
        let job = scene.job(status);
        scene.commit(vec![job.change(true)]).await;
        let row = scene.store().job(job.id).await.unwrap().expect("it was committed");
        assert_eq!(row.state, job.state);
    }
}

/// A6. Live and ended, inserted completely and updated completely.
pub async fn every_field_of_a_job_survives<S: Subject>() {
    let mut scene = Fixture::<S>::seeded(1).await;
    for round in 0..64 {
        let status = scene.sampler.live_status();
        let job = scene.job(status);
        scene.commit(vec![job.change(true)]).await;
        let next = if round % 2 == 0 { scene.sampler.live_status() } else { scene.sampler.final_status() };
        let changed = job.to(next, &mut scene.sampler);
        for (expected, change) in [(&job, None), (&changed, Some(changed.change(false)))] {
            if let Some(change) = change {
                scene.commit(vec![change]).await;
            }
            let found = scene.store().job(job.id).await.unwrap().expect("it was committed");
            assert_eq!(found.id, expected.id);
            assert_eq!(found.body, expected.head.body);
            assert_eq!(found.retry_of, expected.head.retry_of);
            assert_eq!(found.origin, expected.head.origin);
            assert_eq!(found.state, expected.state);
        }
    }
}

/// A8.
pub async fn every_field_of_an_execution_survives<S: Subject>() {
    let mut scene = Fixture::<S>::seeded(2).await;
    for round in 0..64 {
        let job = scene.job(JobStatus::Running);
        let assigned = scene.execution(&job, 1, ExecutionStatus::Assigned);
        scene.commit(vec![new_execution(&assigned), job.change(true)]).await;
        let status = if round % 2 == 0 { ExecutionStatus::Running } else { ExecutionStatus::Failed };
        let mut next = scene.execution(&job, 1, status);
        next.id = assigned.id;
        for (expected, change) in [(&assigned, None), (&next, Some(execution(&next)))] {
            if let Some(change) = change {
                scene.commit(vec![change]).await;
            }
            let found = scene.store().execution(assigned.id).await.unwrap().expect("it was committed");
            assert_eq!(&found.record, expected);
            assert_eq!(*found.namespace, *job.head.spec.namespace);
            assert_eq!(*found.job_name, *job.head.spec.name);
        }
    }
}

fn sorted(mut rows: Vec<LiveRow>) -> Vec<String> {
    rows.sort_by_key(|row| match row {
        LiveRow::Job { id, .. } => (0, id.to_bits()),
        LiveRow::Execution(record) => (1, record.id.to_bits()),
        LiveRow::Key(key) => (2, key.key),
        LiveRow::Worker(record) => (3, record.id.to_bits()),
        LiveRow::Queue(record) => (4, record.name.bytes().map(u128::from).sum()),
        LiveRow::Schedule { id, .. } => (5, id.to_bits()),
        LiveRow::Backfill { head, .. } => (6, head.id.to_bits()),
        LiveRow::Workflow { id, .. } => (8, id.to_bits()),
        LiveRow::Run { id, .. } => (9, id.to_bits()),
        LiveRow::Step(record) => (10, record.key.run.to_bits()),
        LiveRow::RunKey(key) => (11, key.key),
        LiveRow::ElementBatch(batch) => (12, batch.key.run.to_bits()),
        LiveRow::Namespace(record) => (13, record.name.bytes().map(u128::from).sum()),
        LiveRow::Service { id, .. } => (14, id.to_bits()),
        LiveRow::Calendar(record) => (7, record.spec.name.bytes().map(u128::from).sum()),
    });
    rows.iter().map(|row| format!("{row:?}")).collect()
}

/// D5. Random jobs: the live rows are returned completely, and nothing else.
pub async fn a_load_returns_exactly_the_live_rows<S: Subject>() {
    let mut scene = Fixture::<S>::seeded(3).await;
    let mut expected = Vec::new();
    for _ in 0..60 {
        let status = scene.sampler.live_status();
        let job = scene.job(status);
        let running = scene.execution(&job, 1, ExecutionStatus::Running);
        let key = scene.sampler.key(job.id);
        scene.commit(vec![job.change(true), new_execution(&running), Change::Key(key)]).await;
        expected.push(LiveRow::Key(key));
        match scene.sampler.below(3) {
            0 => {
                let status = scene.sampler.final_status();
                let ended = job.to(status, &mut scene.sampler);
                let mut lost = scene.execution(&job, 1, ExecutionStatus::Lost);
                lost.id = running.id;
                scene.commit(vec![execution(&lost), ended.change(false)]).await;
            }
            1 => {
                let status = scene.sampler.live_status();
                let changed = job.to(status, &mut scene.sampler);
                scene.commit(vec![changed.change(false)]).await;
                expected.extend([changed.row(), LiveRow::Execution(Box::new(running))]);
            }
            _ => expected.extend([job.row(), LiveRow::Execution(Box::new(running))]),
        }
    }
    let (worker, queue) = (scene.sampler.worker(), scene.sampler.queue("slow"));
    let namespace = scene.sampler.namespace_record("team");
    let changes = vec![
        Change::Worker(Arc::new(worker.clone())),
        Change::Queue(Arc::new(queue.clone())),
        Change::Namespace(Arc::new(namespace.clone())),
    ];
    scene.commit(changes).await;
    expected.extend([LiveRow::Worker(worker), LiveRow::Queue(queue), LiveRow::Namespace(namespace)]);

    let (loaded, rows) = scene.load().await;
    assert_eq!(loaded.rows, expected.len() as u64);
    assert_eq!(loaded.quarantined, 0);
    let last_job = rows.iter().rposition(|row| matches!(row, LiveRow::Job { .. }));
    let first_execution = rows.iter().position(|row| matches!(row, LiveRow::Execution(_)));
    assert!(last_job < first_execution, "jobs come before executions");
    assert_eq!(sorted(rows), sorted(expected));
}

/// G5.
pub async fn a_load_returns_the_rows_of_the_leased_shards_only<S: Subject>() {
    let mut scene = Fixture::<S>::seeded(4).await;
    let mut jobs = Vec::new();
    for _ in 0..40 {
        let job = scene.job(JobStatus::Running);
        let running = scene.execution(&job, 1, ExecutionStatus::Running);
        let key = scene.sampler.key(job.id);
        scene.commit(vec![job.change(true), new_execution(&running), Change::Key(key)]).await;
        jobs.push(job.id);
    }
    let worker = scene.sampler.worker();
    scene.commit(vec![Change::Worker(Arc::new(worker))]).await;
    let wanted = ShardId(2);
    let leases: Vec<_> = scene.leases.iter().copied().filter(|lease| lease.shard == wanted).collect();
    let (loaded, rows) = load(scene.store(), &leases).await.unwrap();
    let mine = jobs.iter().filter(|job| job.shard() == wanted).count();
    assert!(mine > 0 && mine < jobs.len());
    assert_eq!(loaded.rows, mine as u64 * 3 + 1);
    for row in rows {
        let shard = match row {
            LiveRow::Job { id, .. } => id.shard(),
            LiveRow::Execution(record) => record.job.shard(),
            LiveRow::Key(key) => key.job.shard(),
            LiveRow::Schedule { id, .. } => id.shard(),
            LiveRow::Backfill { head, .. } => head.id.shard(),
            LiveRow::Workflow { id, .. } => id.shard(),
            LiveRow::Run { id, .. } => id.shard(),
            LiveRow::Step(record) => record.key.run.shard(),
            LiveRow::ElementBatch(batch) => batch.key.run.shard(),
            LiveRow::RunKey(key) => key.run.shard(),
            LiveRow::Service { id, .. } => id.shard(),
            LiveRow::Worker(_) | LiveRow::Queue(_) | LiveRow::Namespace(_) | LiveRow::Calendar(_) => continue,
        };
        assert_eq!(shard, wanted);
    }
}

/// A7, A8.
pub async fn a_job_moves_from_live_to_ended_with_its_execution<S: Subject>() {
    let mut scene = Fixture::<S>::new().await;
    let job = scene.job(JobStatus::Waiting);
    scene.commit(vec![job.change(true)]).await;
    let running = job.to(JobStatus::Running, &mut scene.sampler);
    let assigned = scene.execution(&job, 1, ExecutionStatus::Assigned);
    scene.commit(vec![running.change(false), new_execution(&assigned)]).await;
    let ended = job.to(JobStatus::Succeeded, &mut scene.sampler);
    let mut succeeded = scene.execution(&job, 1, ExecutionStatus::Succeeded);
    succeeded.id = assigned.id;
    // The order within a batch has no meaning.
    scene.commit(vec![ended.change(false), execution(&succeeded)]).await;
    assert_eq!(scene.load().await.1, []);
    assert_eq!(scene.store().job(job.id).await.unwrap().unwrap().state, ended.state);
    assert_eq!(scene.store().execution(assigned.id).await.unwrap().unwrap().record, succeeded);
    let again = scene.try_commit(vec![running.change(false)]).await;
    assert!(matches!(again, Err(StoreError::Fatal { .. })), "an ended job was changed: {again:?}");
}

/// A7. Merged by the engine: one insert instead of five changes.
pub async fn a_job_that_is_new_and_ended_in_one_batch_is_history<S: Subject>() {
    let mut scene = Fixture::<S>::new().await;
    let job = scene.job(JobStatus::Failed);
    let failed = scene.execution(&job, 1, ExecutionStatus::Failed);
    let refused = scene.execution(&job, 2, ExecutionStatus::Refused);
    scene.commit(vec![new_execution(&failed), job.change(true), new_execution(&refused)]).await;
    assert_eq!(scene.load().await.1, []);
    assert_eq!(scene.store().job(job.id).await.unwrap().unwrap().state, job.state);
    let filter = ExecutionFilter { job: Some(job.id), ..ExecutionFilter::default() };
    let found = scene.store().executions(&filter, FIRST).await.unwrap();
    let records: Vec<_> = found.items.into_iter().map(|row| row.record).collect();
    assert_eq!(records, [refused, failed]);
}

/// A8, D1.
pub async fn a_failed_job_may_have_ended_executions_while_it_lives<S: Subject>() {
    let mut scene = Fixture::<S>::new().await;
    let job = scene.job(JobStatus::Retrying);
    let failed = scene.execution(&job, 1, ExecutionStatus::Failed);
    scene.commit(vec![job.change(true), new_execution(&failed)]).await;
    let running = job.to(JobStatus::Running, &mut scene.sampler);
    let second = scene.execution(&job, 2, ExecutionStatus::Assigned);
    scene.commit(vec![running.change(false), new_execution(&second)]).await;
    let (_, rows) = scene.load().await;
    assert_eq!(rows, [running.row(), LiveRow::Execution(Box::new(second.clone()))]);
    let filter = ExecutionFilter { job: Some(job.id), ..ExecutionFilter::default() };
    let found = scene.store().executions(&filter, FIRST).await.unwrap();
    assert_eq!(found.items.iter().map(|row| row.record.id).collect::<Vec<_>>(), [second.id, failed.id]);
}

/// A4. Also in lists.
pub async fn a_job_that_is_updated_has_its_new_head<S: Subject>() {
    let mut scene = Fixture::<S>::new().await;
    let label = |value: &str| BTreeMap::from([("team".to_owned(), value.to_owned())]);
    let job = scene.job_of(JobStatus::Waiting, |spec| spec.labels = label("old"));
    scene.commit(vec![job.change(true)]).await;
    let mut spec = (*job.head.spec).clone();
    (spec.name, spec.queue, spec.namespace) = ("renamed".into(), "other".into(), "moved".into());
    spec.labels = label("new");
    let mut updated = job.to(JobStatus::Ready, &mut scene.sampler);
    updated.head = Arc::new(head_of(spec));
    let head = Some(Arc::clone(&updated.head));
    let state = Box::new(updated.state.clone());
    scene.commit(vec![Change::Job { id: job.id, new: false, head, state }]).await;
    assert_eq!(scene.load().await.1, [updated.row()]);
    let page = Page { after: None, limit: 10 };
    for (filter, expected) in [
        (JobFilter { name: Some("renamed".into()), ..JobFilter::default() }, 1),
        (JobFilter { queue: Some("other".into()), ..JobFilter::default() }, 1),
        (JobFilter { name: Some(job.head.spec.name.clone()), ..JobFilter::default() }, 0),
        (JobFilter { labels: label("new"), ..JobFilter::default() }, 1),
        (JobFilter { labels: label("old"), ..JobFilter::default() }, 0),
    ] {
        assert_eq!(scene.store().jobs(&filter, page).await.unwrap().items.len(), expected, "{filter:?}");
    }
    let counts = scene.store().counts(Some("moved")).await.unwrap();
    assert_eq!(counts, BTreeMap::from([(JobStatus::Ready, 1)]));
    assert!(scene.store().counts(Some(&job.head.spec.namespace)).await.unwrap().is_empty());
}

/// A4.
pub async fn a_job_that_is_updated_and_ended_in_one_batch_has_both<S: Subject>() {
    let mut scene = Fixture::<S>::new().await;
    let job = scene.job(JobStatus::Ready);
    scene.commit(vec![job.change(true)]).await;
    let mut ended = job.to(JobStatus::Cancelled, &mut scene.sampler);
    ended.head = scene.sampler.head();
    let head = Some(Arc::clone(&ended.head));
    let state = Box::new(ended.state.clone());
    scene.commit(vec![Change::Job { id: job.id, new: false, head, state }]).await;
    assert_eq!(scene.load().await.1, []);
    let found = scene.store().job(job.id).await.unwrap().unwrap();
    assert_eq!((found.body, found.state), (ended.head.body.clone(), ended.state));
}

fn keys(rows: Vec<LiveRow>) -> Vec<KeyRecord> {
    let key = |row| if let LiveRow::Key(key) = row { Some(key) } else { None };
    rows.into_iter().filter_map(key).collect()
}

/// A10. Retention never deletes what prevents duplicates.
pub async fn keys_outlive_their_jobs<S: Subject>() {
    let mut scene = Fixture::<S>::new().await;
    let job = scene.job(JobStatus::Succeeded);
    let key = scene.sampler.key(job.id);
    scene.commit(vec![job.change(true), Change::Key(key)]).await;
    scene.store().delete_jobs(&[job.id]).await.unwrap();
    assert_eq!(scene.store().job(job.id).await.unwrap(), None);
    assert_eq!(keys(scene.load().await.1), [key]);
}

/// A10.
pub async fn expired_keys_are_deleted_by_shard<S: Subject>() {
    let mut scene = Fixture::<S>::new().await;
    let mut kept = Vec::new();
    let mut changes = Vec::new();
    let limit = scene.sampler.now();
    for shard in SHARDS {
        for expires_at in [Timestamp::from_micros(limit.as_micros() - 1), limit] {
            let job = scene.sampler.job_id(shard);
            let key = KeyRecord { expires_at, ..scene.sampler.key(job) };
            changes.push(Change::Key(key));
            if shard != SHARDS[1] || expires_at >= limit {
                kept.push(key);
            }
        }
    }
    scene.commit(changes).await;
    scene.commit(vec![Change::PurgeKeys { shard: SHARDS[1], expired_before: limit }]).await;
    let mut found = keys(scene.load().await.1);
    found.sort_by_key(|key| key.key);
    kept.sort_by_key(|key| key.key);
    assert_eq!(found, kept);
}

/// A10. Whether the key was deleted before, in the same batch, or not at all.
pub async fn an_expired_key_may_be_used_again<S: Subject>() {
    let mut scene = Fixture::<S>::new().await;
    let (first, second) = (scene.sampler.job_id(SHARDS[0]), scene.sampler.job_id(SHARDS[1]));
    let key = scene.sampler.key(first);
    scene.commit(vec![Change::Key(key)]).await;
    let again = KeyRecord { job: second, expires_at: key.expires_at + HOUR + HOUR, ..key };
    let batch = Batch {
        now: key.expires_at + Duration::from_secs(1),
        changes: vec![Change::Key(again)],
        ..Batch::default()
    };
    scene.store().commit(&scene.leases, Arc::new(batch)).await.unwrap();
    assert_eq!(keys(scene.load().await.1), [again]);
}

/// A10, D7. The safeguard of idempotency, and atomicity.
pub async fn a_batch_that_breaks_an_invariant_changes_nothing<S: Subject>() {
    let mut scene = Fixture::<S>::new().await;
    let kept = scene.job(JobStatus::Waiting);
    let key = scene.sampler.key(kept.id);
    scene.commit(vec![kept.change(true), Change::Key(key)]).await;
    let (first, last) = (scene.job(JobStatus::Waiting), scene.job(JobStatus::Succeeded));
    let stolen = KeyRecord { job: first.id, ..key };
    let event = scene.sampler.event();
    let batch = scene.batch(vec![first.change(true), Change::Key(stolen), last.change(true)], vec![event]);
    let result = scene.store().commit(&scene.leases, batch).await;
    assert!(matches!(result, Err(StoreError::Fatal { .. })), "a key was used for two jobs: {result:?}");
    let later = scene.job(JobStatus::Waiting);
    let result = scene.try_commit(vec![later.change(true)]).await;
    assert!(matches!(result, Err(StoreError::Fatal { .. })), "it accepted a batch after that: {result:?}");

    let scene = scene.reopen().await;
    for lost in [first.id, last.id, later.id] {
        assert_eq!(scene.store().job(lost).await.unwrap(), None);
    }
    let (_, rows) = scene.load().await;
    assert_eq!(sorted(rows), sorted(vec![kept.row(), LiveRow::Key(key)]));
    assert_eq!(scene.store().events(Default::default(), 10).await.unwrap().events, []);
}

/// A10. The safeguard of "never two executions with one number or fence".
pub async fn an_execution_number_is_used_once<S: Subject>() {
    let mut scene = Fixture::<S>::new().await;
    let job = scene.job(JobStatus::Running);
    let first = scene.execution(&job, 1, ExecutionStatus::Running);
    scene.commit(vec![job.change(true), new_execution(&first)]).await;
    let mut second = scene.execution(&job, 2, ExecutionStatus::Assigned);
    second.fence = first.fence;
    let result = scene.try_commit(vec![new_execution(&second)]).await;
    assert!(matches!(result, Err(StoreError::Fatal { .. })), "a fence was given out twice: {result:?}");
}

/// B2. Whatever times the batches contain.
pub async fn engine_time_never_runs_back<S: Subject>() {
    let scene = Fixture::<S>::new().await;
    for millis in [5_000, 9_000, 7_000] {
        let batch = Batch { now: Timestamp::from_millis(millis), ..Batch::default() };
        scene.store().commit(&scene.leases, Arc::new(batch)).await.unwrap();
    }
    assert_eq!(scene.load().await.0.now, Timestamp::from_millis(9_000));
    let scene = scene.reopen().await;
    assert_eq!(scene.load().await.0.now, Timestamp::from_millis(9_000));
}

/// D7. A refused commit affects no other.
pub async fn concurrent_commits_are_answered_separately<S: Subject>() {
    let mut scene = Fixture::<S>::new().await;
    scene.subject.advance(HOUR);
    scene.store().acquire(&SHARDS[3..], "b", HOUR).await.unwrap();
    let jobs: Vec<_> = (0..80).map(|_| scene.job(JobStatus::Waiting)).collect();
    let leases = scene.leases.clone();
    let batches: Vec<_> = jobs.iter().map(|job| scene.batch(vec![job.change(true)], Vec::new())).collect();
    let store = scene.store();
    let commits = jobs.iter().zip(batches).map(|(job, batch)| {
        let lease = leases.iter().copied().filter(|lease| lease.shard == job.id.shard()).collect::<Vec<_>>();
        async move { store.commit(&lease, batch).await }
    });
    let results = join_all(commits).await;
    for (job, result) in jobs.iter().zip(results) {
        let fenced = job.id.shard() == SHARDS[3];
        assert_eq!(matches!(result, Err(StoreError::Fenced { .. })), fenced, "{result:?}");
        assert_eq!(result.is_ok(), !fenced);
        assert_eq!(store.job(job.id).await.unwrap().is_some(), !fenced);
    }
}

/// Polls all futures together; each makes progress while another waits.
async fn join_all<T>(futures: impl Iterator<Item = impl Future<Output = T>>) -> Vec<T> {
    let mut pending: Vec<_> = futures.map(Box::pin).map(Some).collect();
    let mut done: Vec<Option<T>> = pending.iter().map(|_| None).collect();
    std::future::poll_fn(|context| {
        for (slot, result) in pending.iter_mut().zip(&mut done) {
            if let Some(future) = slot
                && let std::task::Poll::Ready(output) = future.as_mut().poll(context)
            {
                *result = Some(output);
                *slot = None;
            }
        }
        if pending.iter().all(Option::is_none) {
            std::task::Poll::Ready(())
        } else {
            std::task::Poll::Pending
        }
    })
    .await;
    done.into_iter().flatten().collect()
}

/// D5, D7.
pub async fn committed_rows_survive_a_reopen<S: Subject>() {
    let mut scene = Fixture::<S>::seeded(5).await;
    let live: Vec<_> = (0..20).map(|_| scene.job(JobStatus::Waiting)).collect();
    let ended: Vec<_> = (0..20).map(|_| scene.job(JobStatus::Succeeded)).collect();
    scene.commit(live.iter().chain(&ended).map(|job| job.change(true)).collect()).await;
    let epoch = scene.leases[0].epoch;
    let scene = scene.reopen().await;
    assert!(scene.leases[0].epoch > epoch, "an epoch was given out twice");
    let rows = scene.load().await.1;
    assert_eq!(sorted(rows), sorted(live.iter().map(super::Job::row).collect()));
    for job in ended {
        assert_eq!(scene.store().job(job.id).await.unwrap().unwrap().state, job.state);
    }
}
