//! Workers, queues, tokens, artifacts, retention.

use std::sync::Arc;

use model::record::Change;
use model::{ExecutionStatus, JobStatus, Timestamp};

use super::{Scene, Subject, new_execution};
use crate::query::{Artifact, ArtifactFilter, ExecutionFilter, Page, Token, TokenKind};

/// E5.
pub async fn workers_are_kept_until_they_are_removed<S: Subject>() {
    let mut scene = Scene::<S>::seeded(31).await;
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

/// E6.
pub async fn queues_are_kept<S: Subject>() {
    let mut scene = Scene::<S>::seeded(32).await;
    let first = scene.sampler.queue("b");
    let (second, again) = (scene.sampler.queue("a"), scene.sampler.queue("b"));
    scene.commit(vec![Change::Queue(Arc::new(first)), Change::Queue(Arc::new(second.clone()))]).await;
    scene.commit(vec![Change::Queue(Arc::new(again.clone()))]).await;
    let mut found = scene.store().queues().await.unwrap();
    found.sort_by(|a, b| a.name.cmp(&b.name));
    assert_eq!(found, [second, again]);
}

/// H2.
pub async fn tokens_are_kept_and_replaced<S: Subject>() {
    let scene = Scene::<S>::new().await;
    let token = |id: &str, kind, byte| Token {
        id: id.into(),
        kind,
        name: "钟".into(),
        hash: [byte; 32],
        created_at: Timestamp::from_millis(7),
    };
    let store = scene.store();
    store.put_token(&token("b", TokenKind::Worker, 1)).await.unwrap();
    store.put_token(&token("a", TokenKind::Worker, 2)).await.unwrap();
    store.put_token(&token("b", TokenKind::Admin, 3)).await.unwrap();
    let mut found = scene.reopen().await.store().tokens().await.unwrap();
    found.sort_by(|a, b| a.id.cmp(&b.id));
    assert_eq!(found, [token("a", TokenKind::Worker, 2), token("b", TokenKind::Admin, 3)]);
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
    let scene = Scene::<S>::new().await;
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

/// A11. Even at the same instant as the version before.
pub async fn storing_the_same_bytes_again_makes_them_the_newest<S: Subject>() {
    let scene = Scene::<S>::new().await;
    let store = scene.store();
    store.put_artifact(&artifact("x", "old", 1)).await.unwrap();
    store.put_artifact(&artifact("x", "new", 2)).await.unwrap();
    let again = Artifact { created_by: "somebody else".into(), size_bytes: 6, ..artifact("x", "old", 2) };
    store.put_artifact(&again).await.unwrap();
    let all = store.artifacts(&ArtifactFilter::default(), 10).await.unwrap();
    assert_eq!(shas(&all), ["old", "new"]);
    assert_eq!((all[0].created_by.as_str(), all[0].size_bytes), ("me", 5), "a version never changes");
    let newest = ArtifactFilter { newest_only: true, ..ArtifactFilter::default() };
    assert_eq!(shas(&store.artifacts(&newest, 10).await.unwrap()), ["old"]);
}

/// A6, G3.
pub async fn jobs_whose_retention_is_over_are_found_and_deleted<S: Subject>() {
    let mut scene = Scene::<S>::seeded(33).await;
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
    // A live job is no job whose retention is over, whoever says so.
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
pub async fn a_store_that_works_says_so<S: Subject>() {
    let scene = Scene::<S>::new().await;
    scene.store().check().await.unwrap();
    assert_eq!(scene.store().quarantined(10).await.unwrap(), []);
}
