//! Artifacts.

use axum::body::Body;
use axum::http::{Method, StatusCode};

use super::{Answer, World};

async fn put(world: &World, path: &str, bytes: Vec<u8>) -> Answer {
    world.send(world.request(Method::PUT, path).body(Body::from(bytes)).unwrap()).await
}

#[tokio::test]
async fn a_file_comes_back_as_it_was_stored_and_never_as_a_page() {
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
async fn the_newest_version_is_had_by_name_and_every_one_by_its_hash() {
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
async fn what_cannot_be_stored_or_found_is_refused() {
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
