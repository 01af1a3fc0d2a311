//! Namespaces: quotas over REST, and what they refuse.

use axum::http::{Method, StatusCode};
use serde_json::json;

use super::World;

/// H2.
#[tokio::test]
async fn a_quota_is_set_shown_and_deleted() {
    let world = World::new().await;
    let path = "/api/v1/namespaces/team-a";
    assert_eq!(world.get(path).await.code(), "404 namespace_not_found");
    let settings = json!({"quota": {"cpu": "8", "running": 3}, "note": "until March"});
    let set = world.json(Method::PUT, path, settings.clone(), &[]).await;
    assert_eq!((set.status, set.header("etag")), (StatusCode::OK, "\"1\""));
    let shown = world.get(path).await.json();
    assert_eq!((&shown["settings"], &shown["usage"]["jobs"]), (&settings, &json!(0)));
    let again = world.json(Method::PUT, path, json!({}), &[("if-match", "\"7\"")]).await;
    assert_eq!(again.code(), "412 version_mismatch");
    assert_eq!(world.get("/api/v1/namespaces").await.column("name"), ["default", "team-a"]);
    assert_eq!(world.delete(path).await.status, StatusCode::NO_CONTENT);
    assert_eq!(world.delete(path).await.code(), "404 namespace_not_found");
}

#[tokio::test]
async fn a_bad_quota_names_its_fields() {
    let world = World::new().await;
    let bad = json!({"quota": {"running": 0, "jobs": 0}});
    let answer = world.json(Method::PUT, "/api/v1/namespaces/a", bad, &[]).await;
    assert_eq!(answer.code(), "422 invalid_spec");
    let text = answer.json().to_string();
    assert!(text.contains("/quota/running") && text.contains("/quota/jobs"), "{text}");
}

/// H2, E7.
#[tokio::test]
async fn submissions_beyond_a_quota_are_refused() {
    let world = World::new().await;
    let settings = json!({"quota": {"jobs": 1}, "max_priority_class": "normal"});
    world.json(Method::PUT, "/api/v1/namespaces/team-a", settings, &[]).await;
    let job = |class: &str| json!({"namespace": "team-a", "priority_class": class, "run": {"process": {"command": ["true"]}}});
    assert_eq!(world.post("/api/v1/jobs", job("high")).await.code(), "409 priority_class_not_allowed");
    assert_eq!(world.post("/api/v1/jobs", job("normal")).await.status, StatusCode::CREATED);
    assert_eq!(world.post("/api/v1/jobs", job("normal")).await.code(), "409 namespace_job_limit");
    let schedule = json!({"name": "s", "namespace": "team-a", "timing": {"rules": [{"cron": "@daily"}]}, "job": job("high")});
    let answer = world.post("/api/v1/schedules", schedule).await;
    assert_eq!(answer.code(), "409 priority_class_not_allowed", "{}", answer.json());
}
