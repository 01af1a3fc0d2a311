//! Artifacts.

use axum::body::Body;
use axum::http::{Method, StatusCode};

use engine::Report;
use engine::input::ExecutionEnd;
use model::record::{FileVersion, Files, Outcome, Usage};
use serde_json::json;

use super::{Answer, ManualWorker, World};

async fn put(world: &World, path: &str, bytes: Vec<u8>) -> Answer {
    world.send(world.request(Method::PUT, path).body(Body::from(bytes)).unwrap()).await
}

#[tokio::test]
async fn a_stored_file_is_returned_unchanged_and_never_as_a_page() {
    let world = World::new().await;
    let bytes: Vec<u8> = (0..300_000u32).map(|i| (i % 251) as u8).collect();
    let stored = put(&world, "/api/v1/artifacts/tool", bytes.clone()).await;
    assert_eq!(stored.status, StatusCode::CREATED, "{}", stored.text());
    let artifact = stored.json();
    assert_eq!((&artifact["size_bytes"], &artifact["created_by"]), (&300_000.into(), &"ann".into()));
    let fetched = world.get(stored.header("location")).await;
    assert_eq!(fetched.body, bytes);
    assert_eq!(fetched.header("content-type"), "application/octet-stream");
    assert_eq!(fetched.header("content-disposition"), "attachment; filename=\"tool\"");
    assert_eq!(fetched.header("x-content-type-options"), "nosniff");
    assert_eq!(fetched.header("content-length"), "300000");
    assert_eq!(fetched.header("etag"), format!("\"{}\"", artifact["sha256"].as_str().unwrap()));
}

#[tokio::test]
async fn the_newest_version_is_read_by_name_and_every_version_by_hash() {
    let world = World::new().await;
    let path = "/api/v1/artifacts/tool";
    let one = put(&world, path, b"one".to_vec()).await.json()["sha256"].as_str().unwrap().to_owned();
    put(&world, path, b"two".to_vec()).await;
    put(&world, "/api/v1/artifacts/other?namespace=pay", b"three".to_vec()).await;
    assert_eq!(world.get(path).await.text(), "two");
    assert_eq!(world.get(&format!("{path}?version={one}")).await.text(), "one");
    assert_eq!(world.get(&format!("{path}?version=sha256:{one}")).await.text(), "one");
    let newest = world.get("/api/v1/artifacts?namespace=default").await;
    assert_eq!(newest.column("name"), ["tool"]);
    assert_eq!(world.get("/api/v1/artifacts?namespace=pay").await.column("name"), ["other"]);
    assert_eq!(world.get("/api/v1/artifacts").await.column("name").len(), 2);
    let first = world.get("/api/v1/artifacts?name=tool&limit=1").await.json();
    let cursor = first["next_cursor"].as_str().unwrap();
    let second = world.get(&format!("/api/v1/artifacts?name=tool&limit=1&cursor={cursor}")).await;
    assert_eq!(second.column("sha256"), [one]);
    assert_eq!(second.json().get("next_cursor"), None);
}

#[tokio::test]
async fn invalid_uploads_and_missing_artifacts_are_refused() {
    let world = World::new().await;
    let large = put(&world, "/api/v1/artifacts/big", vec![0; (1 << 20) + 1]).await;
    assert_eq!(large.code(), "413 body_too_large");
    let parts = futures::stream::iter(vec![Ok::<_, std::io::Error>(vec![0u8; 1 << 20]), Ok(vec![0u8; 1])]);
    let streamed =
        world.request(Method::PUT, "/api/v1/artifacts/big").body(Body::from_stream(parts)).unwrap();
    assert_eq!(world.send(streamed).await.code(), "413 body_too_large");
    assert_eq!(put(&world, "/api/v1/artifacts/..%2Fx", vec![]).await.code(), "400 invalid_parameter");
    assert_eq!(
        put(&world, "/api/v1/artifacts/x?namespace=a/b", vec![]).await.code(),
        "400 invalid_parameter"
    );
    let broken = futures::stream::iter(vec![Ok(b"some".to_vec()), Err(std::io::Error::other("gone"))]);
    let broken = world.request(Method::PUT, "/api/v1/artifacts/x").body(Body::from_stream(broken)).unwrap();
    assert_eq!(world.send(broken).await.code(), "400 malformed_body");
    assert_eq!(world.get("/api/v1/artifacts/x").await.code(), "404 artifact_not_found");
    assert_eq!(world.get("/api/v1/artifacts/big").await.code(), "404 artifact_not_found");
    assert_eq!(world.get("/api/v1/artifacts/big?version=latest").await.code(), "400 invalid_parameter");
    let unknown = format!("/api/v1/artifacts/big?version={}", "0".repeat(64));
    assert_eq!(world.get(&unknown).await.code(), "404 artifact_not_found");
}

/// A nightly job that stores a file must not fill the disk in the long run.
#[tokio::test]
async fn an_artifact_is_deleted_with_its_bytes_unless_another_has_them() {
    let world = World::new().await;
    let (tool, other) = ("/api/v1/artifacts/tool", "/api/v1/artifacts/other");
    let one = put(&world, tool, b"one".to_vec()).await.json()["sha256"].as_str().unwrap().to_owned();
    put(&world, tool, b"two".to_vec()).await;
    put(&world, other, b"one".to_vec()).await;
    assert_eq!(world.delete(&format!("{tool}?version={one}")).await.status, StatusCode::NO_CONTENT);
    assert_eq!(world.delete(&format!("{tool}?version={one}")).await.code(), "404 artifact_not_found");
    assert_eq!((world.get(tool).await.text(), world.get(other).await.text()), ("two".into(), "one".into()));
    assert_eq!(world.delete(tool).await.status, StatusCode::NO_CONTENT);
    assert_eq!(world.get(tool).await.code(), "404 artifact_not_found");
    assert_eq!(world.delete(other).await.status, StatusCode::NO_CONTENT);
    let left = std::fs::read_dir(world.services.config.objects_dir().unwrap().join("artifacts/default"));
    assert_eq!(left.map_or(0, Iterator::count), 0);
    assert_eq!(put(&world, other, b"one".to_vec()).await.status, StatusCode::CREATED);
    assert_eq!(world.get(other).await.text(), "one");
}

#[tokio::test]
async fn superseded_versions_are_deleted_after_their_retention() {
    let world = World::with(|config| config.artifact_retention = Some(model::Duration::from_hours(1))).await;
    let tool = "/api/v1/artifacts/tool";
    put(&world, tool, b"one".to_vec()).await;
    put(&world, tool, b"two".to_vec()).await;
    let now = model::Timestamp::from(jiff::Timestamp::now());
    crate::housekeeping::sweep(&world.services, now).await;
    assert_eq!(world.get("/api/v1/artifacts?name=tool").await.column("name").len(), 2);
    crate::housekeeping::sweep(&world.services, now + model::Duration::from_hours(2)).await;
    assert_eq!(world.get("/api/v1/artifacts?name=tool").await.column("name").len(), 1);
    assert_eq!(world.get(tool).await.text(), "two");
}

/// One step stored version one, another run stored version two, and the first run still waits for approval.
#[tokio::test]
async fn a_version_that_a_live_run_stored_is_not_deleted() {
    let world = World::with(|config| config.artifact_retention = Some(model::Duration::from_hours(1))).await;
    let rows = "/api/v1/artifacts/rows";
    let workflow = json!({"name": "nightly", "steps": [
        {"name": "make", "job": {
            "run": {"process": {"command": ["true"]}},
            "outputs": [{"artifact": "rows", "path": "rows.csv"}],
        }},
        {"name": "check", "needs": ["make"], "approval": {}},
    ]});
    world.json(Method::PUT, "/api/v1/workflows/nightly", workflow, &[]).await;
    let mut hands = ManualWorker::join(&world, 1).await;
    let run = world.post("/api/v1/workflows/nightly/start", json!({})).await.json();
    let run = run["id"].as_str().unwrap();
    let task = hands.start().await;
    let one = put(&world, rows, b"one".to_vec()).await.json()["sha256"].as_str().unwrap().to_owned();
    let stored = FileVersion { artifact: "rows".into(), sha256: one.clone(), path: "rows.csv".into() };
    let files = Some(Box::new(Files { inputs: Vec::new(), outputs: vec![stored] }));
    let outcome = Outcome { exit_code: Some(0), files, ..Outcome::default() };
    hands
        .report(&task, Report::Finished { how: ExecutionEnd::Succeeded, outcome, usage: Usage::default() })
        .await;
    put(&world, rows, b"two".to_vec()).await;

    let later = model::Timestamp::from(jiff::Timestamp::now()) + model::Duration::from_hours(2);
    crate::housekeeping::sweep(&world.services, later).await;
    let first = format!("{rows}?version={one}");
    assert_eq!(world.get(&first).await.text(), "one");
    let refused = world.delete(&first).await;
    assert_eq!(refused.code(), "409 artifact_in_use");
    let detail = refused.json()["detail"].as_str().unwrap().replace(run, "RUN").replace(&one, "HEX");
    insta::assert_snapshot!(detail, @"cannot delete `rows@sha256:HEX`: run `RUN`, which has not ended, stored it and may read it");
    let refused = world.delete(rows).await.json()["detail"].as_str().unwrap().to_owned();
    assert!(refused.ends_with("; other versions deleted: 1"), "{refused}");
    assert_eq!(world.get(&first).await.text(), "one");

    world.post(&format!("/api/v1/runs/{run}/cancel"), json!({})).await;
    super::soon("the end of the run", async {
        while !world.get(&format!("/api/v1/runs/{run}")).await.json()["finished_at"].is_string() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(world.delete(rows).await.status, StatusCode::NO_CONTENT);
}
