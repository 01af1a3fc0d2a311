//! Lists: pages, filters, cursors.

use serde_json::json;

use super::{ManualWorker, World};

/// Reads all pages of a list.
async fn pages(world: &World, path: &str, field: &str) -> Vec<Vec<String>> {
    let mut pages = Vec::new();
    let mut cursor = String::new();
    loop {
        let page = world.get(&format!("{path}{cursor}")).await;
        pages.push(page.column(field));
        match page.json()["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return pages,
        }
    }
}

#[tokio::test]
async fn pages_show_every_job_once_newest_first_even_if_more_come_meanwhile() {
    let world = World::new().await;
    let mut submitted = Vec::new();
    for _ in 0..5 {
        submitted.push(world.submit(json!({"labels": {"k": "v"}})).await);
    }
    submitted.reverse();
    let first = world.get("/api/v1/jobs?limit=2&label=k=v").await;
    world.submit(json!({"labels": {"k": "v"}})).await;
    let cursor = first.json()["next_cursor"].as_str().unwrap().to_owned();
    let second = world.get(&format!("/api/v1/jobs?limit=2&label=k=v&cursor={cursor}")).await;
    let cursor = second.json()["next_cursor"].as_str().unwrap().to_owned();
    let third = world.get(&format!("/api/v1/jobs?limit=2&label=k=v&cursor={cursor}")).await;
    assert_eq!(third.json().get("next_cursor"), None);
    let all = [first.column("id"), second.column("id"), third.column("id")].concat();
    assert_eq!(all, submitted);
}

#[tokio::test]
async fn a_cursor_serves_its_own_list_and_filter_alone() {
    let world = World::new().await;
    for _ in 0..3 {
        world.submit(json!({})).await;
    }
    let page = world.get("/api/v1/jobs?limit=1&status=waiting").await.json();
    let cursor = page["next_cursor"].as_str().unwrap();
    for path in [
        format!("/api/v1/jobs?limit=1&cursor={cursor}"),
        format!("/api/v1/jobs?limit=1&status=ready&cursor={cursor}"),
        format!("/api/v1/executions?cursor={cursor}"),
        format!("/api/v1/jobs?status=waiting&cursor=x{cursor}"),
    ] {
        assert_eq!(world.get(&path).await.code(), "400 invalid_cursor", "{path}");
    }
    let larger = world.get(&format!("/api/v1/jobs?limit=9&status=waiting&cursor={cursor}")).await;
    assert_eq!(larger.column("id").len(), 2);
}

#[tokio::test]
async fn cursors_outlive_a_restart_of_the_api() {
    let world = World::new().await;
    for _ in 0..2 {
        world.submit(json!({})).await;
    }
    let page = world.get("/api/v1/jobs?limit=1").await.json();
    let cursor = page["next_cursor"].as_str().unwrap();
    let keys = crate::auth::Keys::load(world.services.node.store().as_ref()).await.unwrap();
    let again = crate::api::page::Cursors::new(keys.cursors);
    let place = again.read::<model::JobId>("jobs", &store::query::JobFilter::default(), Some(cursor));
    assert_eq!(place.unwrap().unwrap().to_string(), page["items"][0]["id"]);
}

#[tokio::test]
async fn each_filter_returns_the_matching_jobs() {
    let world = World::new().await;
    let a = world
        .submit(
            json!({"name": "a", "queue": "fast", "owner": "bob", "labels": {"team": "pay", "env": "prod"}}),
        )
        .await;
    let b = world.submit(json!({"name": "b", "namespace": "other", "labels": {"team": "pay"}})).await;
    let c = world.submit(json!({"name": "c", "run_at": "2030-01-01T00:00:00Z"})).await;
    for (query, expected) in [
        ("", vec![&c, &b, &a]),
        ("?status=waiting", vec![&b, &a]),
        ("?status=ready,retrying", vec![&c]),
        ("?namespace=other", vec![&b]),
        ("?namespace=*", vec![&c, &b, &a]),
        ("?queue=fast", vec![&a]),
        ("?owner=bob", vec![&a]),
        ("?name=c", vec![&c]),
        ("?text=C", vec![&c]),
        ("?text=x", vec![]),
        ("?workflow=a", vec![]),
        ("?label=team=pay", vec![&b, &a]),
        ("?label=team=pay&label=env=prod", vec![&a]),
        ("?label=team=other", vec![]),
        ("?created_after=2020-01-01T00:00:00Z&created_before=2099-01-01T00:00:00Z", vec![&c, &b, &a]),
        ("?created_before=2020-01-01T00:00:00Z", vec![]),
        ("?worker_id=wkr_01k9zq3m6c0000000000000000", vec![]),
    ] {
        let found = world.get(&format!("/api/v1/jobs{query}")).await.column("id");
        assert_eq!(found.iter().collect::<Vec<_>>(), expected, "{query}");
    }
}

#[tokio::test]
async fn jobs_and_executions_are_found_by_their_worker() {
    let world = World::new().await;
    let mut hands = ManualWorker::join(&world, 1).await;
    let id = world.submit(json!({})).await;
    hands.start().await;
    world.until(&id, "running").await;
    let worker = hands.id;
    assert_eq!(
        world.get(&format!("/api/v1/jobs?worker_id={worker}")).await.column("id"),
        std::slice::from_ref(&id)
    );
    let by_worker = world.get(&format!("/api/v1/executions?worker_id={worker}&namespace=default")).await;
    assert_eq!(by_worker.column("job_id"), std::slice::from_ref(&id));
    assert_eq!(world.get("/api/v1/executions?status=succeeded").await.column("id"), Vec::<String>::new());
    assert_eq!(world.get(&format!("/api/v1/executions?job_id={id}")).await.column("job_id"), [id]);
}

#[tokio::test]
async fn a_list_omits_specs_and_counts_jobs_on_request() {
    let world = World::new().await;
    for namespace in ["default", "default", "other"] {
        world.submit(json!({"namespace": namespace})).await;
    }
    let list = world.get("/api/v1/jobs?limit=1&count=true&status=waiting&namespace=default").await;
    assert_eq!(list.header("x-total-count"), "2");
    assert_eq!(list.json()["items"][0].get("spec"), None);
    assert_eq!(world.get("/api/v1/jobs?count=true").await.header("x-total-count"), "3");
    assert_eq!(world.get("/api/v1/jobs?count=true&name=x").await.code(), "400 invalid_parameter");
}

#[tokio::test]
async fn workers_queues_and_artifacts_are_paged_too() {
    let world = World::new().await;
    let hands = [
        ManualWorker::join(&world, 1).await,
        ManualWorker::join(&world, 2).await,
        ManualWorker::join(&world, 3).await,
    ];
    let workers: Vec<_> = hands.iter().rev().map(|hands| hands.id.to_string()).collect();
    assert_eq!(pages(&world, "/api/v1/workers?limit=2", "id").await.concat(), workers);
    for name in ["b", "a", "c"] {
        let answer =
            world.json(axum::http::Method::PUT, &format!("/api/v1/queues/{name}"), json!({}), &[]).await;
        assert_eq!(answer.status, axum::http::StatusCode::OK);
    }
    let queues = pages(&world, "/api/v1/queues?limit=3", "name").await;
    assert_eq!(queues, [vec!["a", "b", "c"], vec!["default"]]);
}
