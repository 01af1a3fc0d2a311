//! Workers and queues.

use axum::http::{Method, StatusCode};
use serde_json::json;

use super::{ManualWorker, World};

#[tokio::test]
async fn a_worker_shows_its_capacity_and_reservations() {
    let world = World::new().await;
    let mut hands = ManualWorker::join(&world, 1).await;
    let id = world.submit(json!({"resources": {"cpu": "2", "memory": "1GiB"}})).await;
    hands.start().await;
    world.until(&id, "running").await;
    let shown = super::soon("the view", async {
        loop {
            let shown = world.get(&format!("/api/v1/workers/{}", hands.id)).await.json();
            if shown["allocated"]["executions"] == 1 {
                return shown;
            }
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!((&shown["name"], &shown["status"]), (&json!("w1"), &json!("ready")));
    assert_eq!(shown["labels"], json!({"zone": "a"}));
    assert_eq!(shown["allocated"]["cpu"], "2");
    assert_eq!(shown["allocated"]["memory"], "1GiB");
    assert_eq!(world.get("/api/v1/workers").await.column("id"), [hands.id.to_string()]);
}

#[tokio::test]
async fn workers_are_found_by_status_admission_label_and_name() {
    let world = World::new().await;
    let (one, two) = (ManualWorker::join(&world, 1).await, ManualWorker::join(&world, 2).await);
    world.post_nothing(&format!("/api/v1/workers/{}/cordon", two.id)).await;
    let (both, first, second) = (vec![two.id, one.id], vec![one.id], vec![two.id]);
    for (query, expected) in [
        ("status=ready,expected", &both),
        ("status=lost", &vec![]),
        ("admission=cordoned,draining", &second),
        ("admission=open", &first),
        ("label=zone=a", &both),
        ("label=zone=b", &vec![]),
        ("text=W", &both),
        ("text=2", &second),
        ("text=2&admission=open", &vec![]),
    ] {
        let found = world.get(&format!("/api/v1/workers?{query}")).await.column("id");
        assert_eq!(found, expected.iter().map(ToString::to_string).collect::<Vec<_>>(), "{query}");
    }
    let wrong = world.get("/api/v1/workers?status=cordoned").await;
    assert_eq!(wrong.code(), "400 invalid_parameter");
    assert!(wrong.text().contains("is not a status of a worker: expected one of ready, lost, expected"));
}

#[tokio::test]
async fn a_worker_is_cordoned_drained_and_uncordoned() {
    let world = World::new().await;
    let hands = ManualWorker::join(&world, 1).await;
    for (verb, admission) in [("cordon", "cordoned"), ("drain", "draining"), ("uncordon", "open")] {
        let answer = world.post_nothing(&format!("/api/v1/workers/{}/{verb}", hands.id)).await;
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
        assert_eq!(answer.json()["admission"], admission);
    }
    let unknown = "/api/v1/workers/wkr_01k9zq3m6c0000000000000000";
    assert_eq!(world.post_nothing(&format!("{unknown}/cordon")).await.code(), "404 worker_not_found");
    assert_eq!(world.get(unknown).await.code(), "404 worker_not_found");
}

#[tokio::test]
async fn a_connected_worker_cannot_be_deleted() {
    let world = World::new().await;
    let hands = ManualWorker::join(&world, 1).await;
    let answer = world.delete(&format!("/api/v1/workers/{}", hands.id)).await;
    assert_eq!(answer.code(), "409 worker_connected");
}

#[tokio::test]
async fn a_queue_is_changed_only_with_its_version() {
    let world = World::new().await;
    let path = "/api/v1/queues/fast";
    assert_eq!(world.get(path).await.code(), "404 queue_not_found");
    let put = async |body, headers: &[(&str, &str)]| world.json(Method::PUT, path, body, headers).await;
    let made = put(json!({"concurrency": 5}), &[("if-none-match", "*")]).await;
    assert_eq!(made.status, StatusCode::OK, "{}", made.text());
    assert_eq!(made.json()["settings"], json!({"concurrency": 5, "weight": 1, "paused": false}));
    let version = made.header("etag").to_owned();
    assert_eq!(version, format!("\"{}\"", made.json()["version"]));
    assert_eq!(put(json!({}), &[("if-none-match", "*")]).await.code(), "412 version_mismatch");
    let changed = put(json!({"concurrency": 6}), &[("if-match", &version)]).await;
    assert_eq!(changed.status, StatusCode::OK);
    assert_eq!(put(json!({}), &[("if-match", &version)]).await.code(), "412 version_mismatch");
    assert_eq!(world.get(path).await.json()["settings"]["concurrency"], 6);
    assert_eq!(put(json!({"concurrency": 0}), &[]).await.code(), "422 invalid_spec");
    assert_eq!(put(json!({"concurency": 1}), &[]).await.code(), "422 invalid_spec");
    let misnamed = world.json(Method::PUT, "/api/v1/queues/a%20b", json!({}), &[]).await;
    assert_eq!(misnamed.code(), "422 invalid_spec");
}

#[tokio::test]
async fn a_queue_is_paused_and_resumed_and_keeps_its_other_settings() {
    let world = World::new().await;
    world.json(Method::PUT, "/api/v1/queues/fast", json!({"concurrency": 5}), &[]).await;
    let paused = world.post("/api/v1/queues/fast/pause", json!({"note": "upgrade"})).await;
    let settings = paused.json()["settings"].clone();
    assert_eq!(settings, json!({"concurrency": 5, "weight": 1, "paused": true, "note": "upgrade"}));
    let id = world.submit(json!({"queue": "fast"})).await;
    let why = world.get(&format!("/api/v1/jobs/{id}/why")).await.json();
    assert_eq!(why["reasons"][0], json!({"reason": "queue_paused", "queue": "fast", "note": "upgrade"}));
    let resumed = world.post_nothing("/api/v1/queues/fast/resume").await;
    assert_eq!(resumed.json()["settings"], json!({"concurrency": 5, "weight": 1, "paused": false}));
    assert_eq!(world.post_nothing("/api/v1/queues/new/pause").await.status, StatusCode::OK);
}

/// E6. A queue with a mistyped name does not stay in the list.
#[tokio::test]
async fn a_queue_without_jobs_is_deleted() {
    let world = World::new().await;
    let path = "/api/v1/queues/mial";
    assert_eq!(world.delete(path).await.code(), "404 queue_not_found");
    world.json(Method::PUT, path, json!({"concurrency": 1}), &[]).await;
    let job = world.submit(json!({"queue": "mial"})).await;
    world.until(&job, "waiting").await;
    let refused = world.delete(path).await;
    assert_eq!(refused.code(), "409 queue_in_use");
    insta::assert_snapshot!(refused.json()["detail"].as_str().unwrap(), @"cannot delete queue `mial`: it has jobs (waiting: 1, running: 0)");
    world.post(&format!("/api/v1/jobs/{job}/cancel"), json!({})).await;
    world.until(&job, "cancelled").await;
    assert_eq!(world.delete(path).await.status, StatusCode::NO_CONTENT);
    assert_eq!(world.get(path).await.code(), "404 queue_not_found");
    assert_eq!(world.get("/api/v1/queues").await.column("name"), ["default"]);
}
