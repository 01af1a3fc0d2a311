//! The event feed.

use serde_json::json;

use super::{ManualWorker, World};

#[tokio::test]
async fn the_feed_contains_events_after_it_was_opened() {
    let world = World::new().await;
    world.submit(json!({})).await;
    let mut events = world.stream("/api/v1/events", None).await;
    let id = world.submit(json!({"namespace": "pay"})).await;
    let event = events.next().await.unwrap();
    assert_eq!(event.data["type"], "job.waiting");
    assert_eq!((&event.data["job_id"], &event.data["namespace"]), (&json!(id), &json!("pay")));
    assert_eq!((&event.data["to"], &event.data["cause"]), (&json!("waiting"), &json!("submitted")));
    assert_eq!(event.id, event.data["seq"].to_string());
}

#[tokio::test]
async fn a_reconnecting_reader_gets_each_event_once() {
    let world = World::new().await;
    let mut submitted = Vec::new();
    for _ in 0..3 {
        submitted.push(world.submit(json!({})).await);
    }
    let mut seen = Vec::new();
    let mut last = None;
    // Read each event over its own stream, and submit more in between.
    for round in 0..6 {
        let mut events = world.stream("/api/v1/events?since=0", last.as_deref()).await;
        if round == 2 {
            submitted.push(world.submit(json!({})).await);
        }
        if round == 4 {
            submitted.push(world.submit(json!({})).await);
            submitted.push(world.submit(json!({})).await);
        }
        let event = events.next().await.unwrap();
        seen.push(event.data["job_id"].as_str().unwrap().to_owned());
        last = Some(event.id);
    }
    assert_eq!(seen, submitted);
}

/// The reader does not read while more batches pass than the broadcast holds.
#[tokio::test]
async fn a_slow_reader_gets_everything_from_the_store() {
    let world = World::new().await;
    let mut events = world.stream("/api/v1/events", None).await;
    let mut submitted = Vec::new();
    for _ in 0..600 {
        submitted.push(world.submit(json!({})).await);
    }
    for id in submitted {
        assert_eq!(events.next().await.unwrap().data["job_id"], id);
    }
}

#[tokio::test]
async fn a_foreign_position_is_reset() {
    let world = World::new().await;
    world.submit(json!({})).await;
    let mut events = world.stream("/api/v1/events", Some("999999")).await;
    let reset = events.next().await.unwrap();
    assert_eq!(reset.name, "reset");
    assert_eq!(reset.id, reset.data["seq"].to_string());
    let id = world.submit(json!({})).await;
    assert_eq!(events.next().await.unwrap().data["job_id"], id);
}

#[tokio::test]
async fn a_deleted_position_is_reset() {
    let world = World::new().await;
    for _ in 0..3 {
        world.submit(json!({})).await;
    }
    let store = world.services.node.store();
    store.trim_events(model::Timestamp::MAX).await.unwrap();
    let mut events = world.stream("/api/v1/events?since=1", None).await;
    // However much the store keeps, the reader gets either the reset or all events.
    let id = world.submit(json!({})).await;
    let first = events.next().await.unwrap();
    assert!(first.name == "reset" || first.data["job_id"] != json!(id), "{first:?}");
}

#[tokio::test]
async fn the_feed_can_be_filtered() {
    let world = World::new().await;
    let mut workers = world.stream("/api/v1/events?type=worker", None).await;
    let mut failures = world.stream("/api/v1/events?type=job.failed,queue.updated", None).await;
    let mut tenant = world.stream("/api/v1/events?namespace=pay", None).await;
    let mut hands = ManualWorker::join(&world, 1).await;
    let id = world.submit(json!({})).await;
    let task = hands.start().await;
    hands.finish(&task, 1).await;
    world.until(&id, "failed").await;
    let mut one = world.stream(&format!("/api/v1/events?since=0&job_id={id}"), None).await;
    world.post("/api/v1/queues/default/pause", json!({})).await;
    let paid = world.submit(json!({"namespace": "pay"})).await;

    let worker = workers.next().await.unwrap().data;
    assert_eq!((&worker["type"], &worker["worker_id"]), (&json!("worker.ready"), &json!(hands.id)));
    assert_eq!(failures.next().await.unwrap().data["type"], "job.failed");
    let queue = failures.next().await.unwrap().data;
    assert_eq!((&queue["type"], &queue["queue"]), (&json!("queue.updated"), &json!("default")));
    assert_eq!(tenant.next().await.unwrap().data["job_id"], paid);
    let mut story = Vec::new();
    for _ in 0..4 {
        story.push(one.next().await.unwrap().data["type"].as_str().unwrap().to_owned());
    }
    assert_eq!(story, ["job.waiting", "job.running", "execution.started", "job.failed"]);
}

#[tokio::test]
async fn the_feed_ends_when_the_server_stops() {
    let world = World::new().await;
    let mut events = world.stream("/api/v1/events", None).await;
    world.stop().await;
    while let Some(event) = events.next().await {
        assert_ne!(event.name, "reset");
    }
}
