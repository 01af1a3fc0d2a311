//! Rules for workers, queues, artifacts and retention.
//!
//! Workers and queues are written by the engine's batches; artifacts by
//! [`Housekeeping`](crate::Housekeeping). Both are small, so a rule mostly writes a few objects, changes
//! them, and compares the whole list, also after a reopen.
//!
//! # Invariants
//! - An artifact version is kept while a run needs it, and the newest version of a name is never deleted by
//!   retention.
//! - Retention deletes only what has expired, and never a live job.

use std::sync::Arc;

use model::record::Change;
use model::run::{RunStatus, StepCause, StepKey, StepRecord, StepState, StepStatus};
use model::{ExecutionStatus, JobStatus, RunId, Timestamp};

use super::workflows::{LIVE, Run};
use super::{Fixture, Subject, new_execution};
use crate::query::ArtifactDeletion::{Absent, Deleted, Pinned};
use crate::query::DeletionReason::{Request, Retention};
use crate::query::{Artifact, ArtifactFilter, ExecutionFilter, Page};

/// E5.
pub async fn workers_are_kept_until_they_are_removed<S: Subject>() {
    let mut scene = Fixture::<S>::seeded(31).await;
    let workers: Vec<_> = (0..10).map(|_| Arc::new(scene.sampler.worker())).collect();
    scene.commit(workers.iter().cloned().map(Change::Worker).collect()).await;
    let mut changed = scene.sampler.worker();
    changed.id = workers[1].id;
    scene.commit(vec![Change::Worker(Arc::new(changed.clone())), Change::RemoveWorker(workers[0].id)]).await;
    let mut expected: Vec<_> = workers[2..].iter().map(|worker| (**worker).clone()).collect();
    expected.push(changed);
    let mut found = scene.store().workers().await.unwrap();
    expected.sort_by_key(|worker| worker.id);
    found.sort_by_key(|worker| worker.id);
    assert_eq!(found, expected);
}

/// E6. Until their settings are deleted.
pub async fn queues_are_kept_until_they_are_removed<S: Subject>() {
    let mut scene = Fixture::<S>::seeded(32).await;
    let first = scene.sampler.queue("b");
    let (second, again) = (scene.sampler.queue("a"), scene.sampler.queue("b"));
    scene.commit(vec![Change::Queue(Arc::new(first)), Change::Queue(Arc::new(second.clone()))]).await;
    scene.commit(vec![Change::Queue(Arc::new(again.clone()))]).await;
    let mut found = scene.store().queues().await.unwrap();
    found.sort_by(|a, b| a.name.cmp(&b.name));
    assert_eq!(found, [second, again.clone()]);
    scene.commit(vec![Change::RemoveQueue("a".into()), Change::RemoveQueue("none".into())]).await;
    assert_eq!(scene.reopen().await.store().queues().await.unwrap(), [again]);
}

/// H2. Until their settings are deleted.
pub async fn namespaces_are_kept_until_they_are_removed<S: Subject>() {
    let mut scene = Fixture::<S>::seeded(33).await;
    let first = scene.sampler.namespace_record("b");
    let (second, again) = (scene.sampler.namespace_record("钟"), scene.sampler.namespace_record("b"));
    scene.commit(vec![Change::Namespace(Arc::new(first)), Change::Namespace(Arc::new(second))]).await;
    scene.commit(vec![Change::Namespace(Arc::new(again.clone()))]).await;
    scene.commit(vec![Change::RemoveNamespace("钟".into()), Change::RemoveNamespace("none".into())]).await;
    assert_eq!(scene.store().namespaces().await.unwrap(), std::slice::from_ref(&again));
    assert_eq!(scene.reopen().await.store().namespaces().await.unwrap(), [again]);
}

fn artifact(name: &str, sha256: &str, millis: i64) -> Artifact {
    Artifact {
        namespace: "default".into(),
        name: name.into(),
        sha256: sha256.into(),
        size_bytes: 5,
        created_at: Timestamp::from_millis(millis),
        created_by: "me".into(),
    }
}

fn shas(artifacts: &[Artifact]) -> Vec<&str> {
    artifacts.iter().map(|artifact| artifact.sha256.as_str()).collect()
}

/// A11.
pub async fn artifact_versions_are_listed_newest_first<S: Subject>() {
    let scene = Fixture::<S>::new().await;
    let store = scene.store();
    for (name, sha, at) in [("x", "1", 1), ("y", "2", 2), ("x", "3", 3), ("y", "4", 3), ("z", "5", 3)] {
        store.put_artifact(&artifact(name, sha, at)).await.unwrap();
    }
    let other = Artifact { namespace: "other".into(), ..artifact("x", "9", 9) };
    store.put_artifact(&other).await.unwrap();
    let default = ArtifactFilter { namespace: Some("default".into()), ..ArtifactFilter::default() };
    let list = |filter: ArtifactFilter| async move { store.artifacts(&filter, 100).await.unwrap() };
    assert_eq!(shas(&list(ArtifactFilter::default()).await)[0], "9");
    assert_eq!(shas(&list(default.clone()).await), ["3", "4", "5", "2", "1"]);
    let of_x = ArtifactFilter { name: Some("x".into()), ..default.clone() };
    assert_eq!(shas(&list(of_x.clone()).await), ["3", "1"]);
    let version = ArtifactFilter { sha256: Some("1".into()), ..of_x };
    assert_eq!(list(version).await, [artifact("x", "1", 1)]);
    let newest = ArtifactFilter { newest_only: true, ..default.clone() };
    assert_eq!(shas(&list(newest).await), ["3", "4", "5"]);

    let mut paged = Vec::new();
    let mut filter = default;
    loop {
        let page = store.artifacts(&filter, 2).await.unwrap();
        let Some(last) = page.last() else { break };
        filter.after = Some((last.namespace.clone(), last.name.clone(), last.created_at));
        paged.extend(page);
    }
    assert_eq!(shas(&paged), ["3", "4", "5", "2", "1"]);
}

/// A11.
pub async fn an_artifact_version_is_deleted_alone_and_superseded_ones_are_found<S: Subject>() {
    let scene = Fixture::<S>::new().await;
    let store = scene.store();
    for (name, sha, at) in [("x", "1", 1), ("x", "2", 2), ("y", "1", 3), ("x", "3", 4)] {
        store.put_artifact(&artifact(name, sha, at)).await.unwrap();
    }
    let old = async |millis| store.superseded_artifacts(Timestamp::from_millis(millis), 10).await.unwrap();
    assert_eq!(old(2).await, [], "its age counts from the newer version");
    assert_eq!(old(3).await, [artifact("x", "1", 1)]);
    assert_eq!(shas(&old(100).await), ["1", "2"], "the newest of each name stays");
    assert_eq!(store.superseded_artifacts(Timestamp::from_millis(100), 1).await.unwrap().len(), 1);
    let delete = async |artifact: Artifact| store.delete_artifact(&artifact, Request).await.unwrap();
    assert_eq!(delete(artifact("x", "1", 1)).await, Deleted);
    assert_eq!(delete(artifact("x", "1", 1)).await, Absent);
    assert_eq!(delete(Artifact { namespace: "other".into(), ..artifact("x", "2", 2) }).await, Absent);
    let all = store.artifacts(&ArtifactFilter::default(), 10).await.unwrap();
    assert_eq!(shas(&all), ["3", "1", "2"]);
}

/// Returns a row of a step that stored these versions of `data`.
fn storing(run: RunId, step: u32, item: Option<u32>, digests: &[&str]) -> Change {
    let references: Vec<_> = digests.iter().map(|digest| format!("data@sha256:{digest}")).collect();
    let files = Some(serde_json::json!({ "data": references }).to_string().into());
    let state = StepState { files, ..StepState::new(StepStatus::Succeeded, StepCause::JobSucceeded) };
    Change::Step(Box::new(StepRecord { key: StepKey { run, step, item }, state }))
}

/// Returns a hash that repeats this digit.
fn digest(digit: char) -> String {
    std::iter::repeat_n(digit, 64).collect()
}

impl<S: Subject> Fixture<S> {
    /// Commits a run without steps.
    async fn run_of_steps(&mut self, status: RunStatus) -> Run {
        let mut run = self.run(status);
        (run.steps, run.batches) = (Vec::new(), Vec::new());
        self.commit(run.changes()).await;
        run
    }

    /// Stores a version of `data` in the namespace of a run.
    async fn data_of(&self, run: &Run, digit: char, millis: i64) -> Artifact {
        let namespace = run.head.definition.workflow.namespace.clone();
        let version = Artifact { namespace, ..artifact("data", &digest(digit), millis) };
        self.store().put_artifact(&version).await.unwrap();
        version
    }

    async fn superseded(&self) -> Vec<Artifact> {
        self.store().superseded_artifacts(Timestamp::from_millis(1_000), 10).await.unwrap()
    }
}

/// A11, C1. Versions of a step and of its elements; of a live and of an ended run, also after a reopen.
pub async fn an_artifact_version_is_kept_as_long_as_its_run<S: Subject>() {
    let mut scene = Fixture::<S>::seeded(34).await;
    let mut run = scene.run_of_steps(RunStatus::Running).await;
    let mut versions = Vec::new();
    for (at, digit) in (1..).zip(['a', 'b', 'c', 'd']) {
        versions.push(scene.data_of(&run, digit, at).await);
    }
    let elsewhere = Artifact { namespace: "elsewhere".into(), ..versions[0].clone() };
    let newer = Artifact { sha256: digest('e'), created_at: Timestamp::from_millis(2), ..elsewhere.clone() };
    for other in [&elsewhere, &newer] {
        scene.store().put_artifact(other).await.unwrap();
    }
    let [a, b] = ['a', 'b'].map(digest);
    scene.commit(vec![storing(run.id, 0, None, &[&a]), storing(run.id, 1, Some(7), &[&b])]).await;
    // A row that is written again keeps its pinned versions.
    scene.commit(vec![storing(run.id, 0, None, &[&a])]).await;
    let free = [elsewhere, versions[2].clone()];
    assert_eq!(scene.superseded().await, free);
    for version in &versions[..2] {
        let kept = scene.store().delete_artifact(version, Retention).await.unwrap();
        assert_eq!(kept, Pinned(run.id));
    }
    run.state = scene.sampler.run_state(RunStatus::Succeeded);
    scene.commit(vec![run.change(false)]).await;
    let scene = scene.reopen().await;
    assert_eq!(scene.superseded().await, free);
    scene.store().delete_runs(&[run.id]).await.unwrap();
    assert_eq!(shas(&scene.superseded().await), [&a, &a, &b, &digest('c')]);
    assert_eq!(scene.store().delete_artifact(&versions[0], Retention).await.unwrap(), Deleted);
}

/// A11. An ended run does not protect its versions from a request of a user.
pub async fn a_live_run_protects_its_versions_from_requests<S: Subject>() {
    let mut scene = Fixture::<S>::seeded(35).await;
    for status in LIVE {
        let mut run = scene.run_of_steps(status).await;
        let version = scene.data_of(&run, 'a', 1).await;
        scene.commit(vec![storing(run.id, 0, None, &[&digest('a')])]).await;
        assert_eq!(scene.store().delete_artifact(&version, Request).await.unwrap(), Pinned(run.id));
        run.state = scene.sampler.run_state(RunStatus::Failed);
        scene.commit(vec![run.change(false)]).await;
        assert_eq!(scene.store().delete_artifact(&version, Request).await.unwrap(), Deleted, "{status}");
    }
}

/// A11. A superseded version may have become the newest since it was listed.
pub async fn a_version_that_is_stored_again_is_not_deleted_by_retention<S: Subject>() {
    let scene = Fixture::<S>::new().await;
    let store = scene.store();
    for (sha, at) in [("1", 1), ("2", 2)] {
        store.put_artifact(&artifact("x", sha, at)).await.unwrap();
    }
    let found = scene.superseded().await;
    assert_eq!(shas(&found), ["1"]);
    store.put_artifact(&artifact("x", "1", 3)).await.unwrap();
    assert_eq!(store.delete_artifact(&found[0], Retention).await.unwrap(), Absent);
    assert_eq!(shas(&store.artifacts(&ArtifactFilter::default(), 10).await.unwrap()), ["1", "2"]);
}

/// A11. Even at the same time as the version before.
pub async fn storing_the_same_bytes_again_makes_them_the_newest<S: Subject>() {
    let scene = Fixture::<S>::new().await;
    let store = scene.store();
    store.put_artifact(&artifact("x", "old", 1)).await.unwrap();
    store.put_artifact(&artifact("x", "new", 2)).await.unwrap();
    let again = Artifact { created_by: "another user".into(), size_bytes: 6, ..artifact("x", "old", 2) };
    store.put_artifact(&again).await.unwrap();
    let all = store.artifacts(&ArtifactFilter::default(), 10).await.unwrap();
    assert_eq!(shas(&all), ["old", "new"]);
    assert_eq!((all[0].created_by.as_str(), all[0].size_bytes), ("me", 5), "a version never changes");
    let newest = ArtifactFilter { newest_only: true, ..ArtifactFilter::default() };
    assert_eq!(shas(&store.artifacts(&newest, 10).await.unwrap()), ["old"]);
}

/// A6, G3.
pub async fn expired_jobs_are_listed_and_deleted<S: Subject>() {
    let mut scene = Fixture::<S>::seeded(33).await;
    let at = Timestamp::from_millis;
    let mut jobs = Vec::new();
    for (status, expires_at) in [
        (JobStatus::Succeeded, Some(at(100))),
        (JobStatus::Failed, Some(at(50))),
        (JobStatus::Succeeded, Some(at(101))),
        (JobStatus::Succeeded, None),
        (JobStatus::Waiting, None),
    ] {
        let mut job = scene.job(status);
        job.state.expires_at = expires_at;
        let executions = [
            scene.execution(&job, 1, ExecutionStatus::Lost),
            scene.execution(&job, 2, ExecutionStatus::Failed),
        ];
        let mut changes: Vec<_> = executions.iter().map(new_execution).collect();
        changes.push(job.change(true));
        scene.commit(changes).await;
        jobs.push((job.id, executions.map(|execution| execution.id).to_vec()));
    }
    let store = scene.store();
    let mut expired = store.expired_jobs(at(100), 10).await.unwrap();
    expired.sort();
    assert_eq!(expired, jobs[..2]);
    assert_eq!(store.expired_jobs(at(100), 1).await.unwrap().len(), 1);
    store.delete_jobs(&jobs.iter().map(|(job, _)| *job).take(2).collect::<Vec<_>>()).await.unwrap();
    assert_eq!(store.expired_jobs(at(100), 10).await.unwrap(), []);
    // A live job is not deleted, even if a caller requests it.
    store.delete_jobs(&[jobs[4].0]).await.unwrap();
    for (index, (job, executions)) in jobs.iter().enumerate() {
        let kept = index >= 2;
        assert_eq!(store.job(*job).await.unwrap().is_some(), kept);
        for execution in executions {
            assert_eq!(store.execution(*execution).await.unwrap().is_some(), kept);
        }
    }
    let all = store.executions(&ExecutionFilter::default(), Page { after: None, limit: 100 }).await.unwrap();
    assert_eq!(all.items.len(), 6);
}

/// H6.
pub async fn the_health_check_of_a_working_store_succeeds<S: Subject>() {
    let scene = Fixture::<S>::new().await;
    scene.store().check().await.unwrap();
    assert_eq!(scene.store().quarantined(10).await.unwrap(), []);
}
