//! Submission of jobs that follow other jobs (`after`).

use axum::http::{Method, StatusCode};
use serde_json::json;
use store::faulty::Operation;

use super::{ManualWorker, World, job};

async fn status(world: &World, id: &str) -> String {
    let job = world.get(&format!("/api/v1/jobs/{id}")).await.json();
    job["status"].as_str().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn a_job_follows_live_and_ended_jobs() {
    let world = World::new().await;
    let mut worker = ManualWorker::join(&world, 1).await;
    let ended = world.submit(json!({})).await;
    let task = worker.start().await;
    worker.finish(&task, 1).await;
    world.until(&ended, "failed").await;
    let live = world.submit(json!({})).await;
    let after = json!([{"job": ended, "condition": "failure"}, {"job": live}]);
    let id = world.submit(json!({"after": after})).await;
    assert_eq!(status(&world, &id).await, "ready");
    let why = world.get(&format!("/api/v1/jobs/{id}/why")).await.json();
    assert_eq!(why["reasons"][0]["reason"], "upstream_jobs");
    assert_eq!(why["reasons"][0]["jobs"][0]["job"], json!(live));
    let task = worker.start().await;
    worker.finish(&task, 0).await;
    let task = worker.start().await;
    world.until(&id, "running").await;
    worker.finish(&task, 0).await;
    world.until(&id, "succeeded").await;
    let job = world.get(&format!("/api/v1/jobs/{id}")).await.json();
    assert_eq!(
        job["spec"]["after"],
        json!([{"job": ended, "condition": "failure"}, {"job": live, "condition": "success"}])
    );
}

#[tokio::test]
async fn a_job_whose_upstream_job_ended_otherwise_is_cancelled() {
    let world = World::new().await;
    let upstream = world.submit(json!({})).await;
    let waits = world.submit(json!({"after": [{"job": upstream}]})).await;
    world.post_nothing(&format!("/api/v1/jobs/{upstream}/cancel")).await;
    world.until(&waits, "cancelled").await;
    let late = world.submit(json!({"after": [{"job": upstream}]})).await;
    world.until(&late, "cancelled").await;
    let history = world.get(&format!("/api/v1/jobs/{late}/events")).await.json();
    let last = history["items"].as_array().unwrap().last().unwrap();
    assert_eq!(last["cause"], "dependency_never_satisfied");
    let detail = format!("upstream job `{upstream}` ended as cancelled");
    assert_eq!(last["detail"], json!(detail));
    let job = world.get(&format!("/api/v1/jobs/{late}")).await.json();
    assert_eq!(job["result"], json!({"message": detail}));
}

#[tokio::test]
async fn a_retry_waits_for_nothing() {
    let world = World::new().await;
    let upstream = world.submit(json!({})).await;
    let job = world.submit(json!({"after": [{"job": upstream}]})).await;
    world.post_nothing(&format!("/api/v1/jobs/{upstream}/cancel")).await;
    world.until(&job, "cancelled").await;
    let retried = world.post_nothing(&format!("/api/v1/jobs/{job}/retry")).await.json();
    assert_eq!(status(&world, retried["id"].as_str().unwrap()).await, "waiting");
}

/// Also with `dry_run`. A job of another namespace is as unknown as one that does not exist.
#[tokio::test]
async fn each_unknown_upstream_job_is_named_and_nothing_is_submitted() {
    let world = World::new().await;
    let foreign = world.submit(json!({"namespace": "other"})).await;
    let known = world.submit(json!({})).await;
    let missing = "job_01k9zq3m6c0000000000000000";
    let with =
        |ids: &[&str]| job(json!({"after": ids.iter().map(|id| json!({"job": id})).collect::<Vec<_>>()}));
    let batch = json!({"jobs": [with(&[]), with(&[known.as_str(), missing]), with(&[foreign.as_str()])]});
    for (body, path, expected) in [
        (with(&[missing]), "/api/v1/jobs", vec!["after[0].job"]),
        (with(&[foreign.as_str()]), "/api/v1/jobs", vec!["after[0].job"]),
        (batch.clone(), "/api/v1/jobs", vec!["jobs[1].after[1].job", "jobs[2].after[0].job"]),
        (batch, "/api/v1/jobs?dry_run=true", vec!["jobs[1].after[1].job", "jobs[2].after[0].job"]),
    ] {
        let answer = world.post(path, body).await;
        assert_eq!(answer.status, StatusCode::UNPROCESSABLE_ENTITY);
        let problem = answer.json();
        let paths: Vec<_> = problem["errors"].as_array().unwrap().iter().map(|e| e["path"].clone()).collect();
        assert_eq!(paths, expected);
    }
    assert_eq!(world.get("/api/v1/jobs").await.column("id").len(), 2);
}

#[tokio::test]
async fn the_upstream_jobs_of_a_job_cannot_be_changed() {
    let world = World::new().await;
    let upstream = world.submit(json!({})).await;
    let id = world.submit(json!({"after": [{"job": upstream}]})).await;
    let path = format!("/api/v1/jobs/{id}");
    let refused = world.json(Method::PATCH, &path, json!({"after": []}), &[]).await;
    assert_eq!(refused.status, StatusCode::UNPROCESSABLE_ENTITY);
    let changed = world.json(Method::PATCH, &path, json!({"priority": 90}), &[]).await;
    assert_eq!(changed.status, StatusCode::OK);
    assert_eq!(status(&world, &id).await, "ready");
}

/// The engine no longer has the upstream job, and the store does not yet have its end.
#[tokio::test]
async fn a_job_that_is_submitted_while_its_upstream_job_ends_follows_it() {
    let world = World::new().await;
    let mut worker = ManualWorker::join(&world, 1).await;
    let upstream = world.submit(json!({})).await;
    let task = worker.start().await;
    let calls = |operation| world.store.calls(operation);
    let stall = world.store.stall(Operation::Commit, calls(Operation::Commit) + 1);
    let reads = calls(Operation::Jobs);
    let submission = async {
        stall.reached().await;
        let release = async {
            while calls(Operation::Jobs) == reads {
                tokio::task::yield_now().await;
            }
            stall.release();
        };
        tokio::join!(world.post("/api/v1/jobs", job(json!({"after": [{"job": upstream}]}))), release).0
    };
    let (answer, ()) = tokio::join!(submission, worker.finish(&task, 0));
    assert_eq!(answer.status, StatusCode::CREATED, "{}", answer.text());
    let id = answer.json()["id"].as_str().unwrap().to_owned();
    world.until(&id, "running").await;
}
