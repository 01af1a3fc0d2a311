//! Schedules that start runs of workflows.

use axum::http::{Method, StatusCode};
use serde_json::json;

use super::World;
use super::schedules::ONE;

/// C1. Files are applied in any order: a schedule of a missing workflow is accepted. Its ledger has the firings that
/// started nothing.
#[tokio::test]
async fn a_schedule_of_a_missing_workflow_is_accepted_with_a_warning() {
    let world = World::new().await;
    let spec = json!({
        "name": "nightly",
        "timing": {"rules": [{"cron": "0 2 * * *"}]},
        "workflow": {"name": "load", "parameters": {"day": "${{ firing.scheduled_for }}"}},
    });
    let created = world.json(Method::PUT, ONE, spec.clone(), &[]).await;
    assert_eq!(created.status, StatusCode::CREATED, "{}", created.text());
    let shown = created.json();
    assert_eq!(shown["spec"]["workflow"], spec["workflow"]);
    assert_eq!(shown["spec"].get("job"), None);
    let warning = &shown["warnings"][0];
    assert_eq!((&warning["code"], &warning["params"]["workflow"]), (&json!("no_workflow"), &json!("load")));

    let triggered = world.post_nothing(&format!("{ONE}/trigger")).await;
    assert_eq!((triggered.status, &triggered.json()["outcome"]), (StatusCode::OK, &json!("not_started")));
    let ledger = world.get(&format!("{ONE}/ledger?outcome=not_started&counts=true")).await.json();
    let reason = &ledger["items"][0]["reason"];
    assert_eq!((&reason["code"], &reason["value"]), (&json!("no_workflow"), &json!("load")), "{ledger}");
    assert_eq!(ledger["counts"]["not_started"], 1);
}

#[tokio::test]
async fn a_schedule_starts_either_a_job_or_a_workflow() {
    let world = World::new().await;
    let job = json!({"run": {"process": {"command": ["true"]}}});
    for starts in [json!({}), json!({"job": job, "workflow": {"name": "load"}})] {
        let mut spec = json!({"name": "nightly"});
        spec.as_object_mut().unwrap().extend(starts.as_object().unwrap().clone());
        let refused = world.json(Method::PUT, ONE, spec, &[]).await;
        let told = refused.text();
        assert_eq!(refused.status.as_u16() / 100, 4, "{told}");
        assert!(told.contains("exactly one of `job` and `workflow`"), "{told}");
    }
}

/// B6, C1. Includes jobs that the schedule started before its spec was changed, but not runs that its runs called.
#[tokio::test]
async fn a_list_has_health_and_runs_of_a_schedule_of_a_workflow() {
    let world = World::new().await;
    let inner = json!({"name": "inner", "steps": [{"name": "ask", "approval": {}}]});
    let outer = json!({"name": "outer", "steps": [{"name": "call", "workflow": {"name": "inner"}}]});
    let workflows = world.post("/api/v1/workflows/apply", json!({"workflows": [inner, outer]})).await;
    assert_eq!(workflows.status, StatusCode::OK, "{}", workflows.text());
    let spec = |what: serde_json::Value| {
        let mut spec = json!({"name": "nightly", "overlap": {"policy": "allow_all"}});
        spec.as_object_mut().unwrap().extend(what.as_object().unwrap().clone());
        spec
    };
    let job = json!({"job": {"run": {"process": {"command": ["true"]}}}});
    world.json(Method::PUT, ONE, spec(job), &[]).await;
    let triggered = world.post_nothing(&format!("{ONE}/trigger")).await.json();
    let job = triggered["job_id"].as_str().unwrap().to_owned();
    world.json(Method::PUT, ONE, spec(json!({"workflow": {"name": "outer"}})), &[]).await;
    let mut runs = Vec::new();
    for _ in 0..2 {
        let triggered = world.post_nothing(&format!("{ONE}/trigger")).await.json();
        runs.push(triggered["run_id"].as_str().unwrap().to_owned());
    }
    let cancelled = world.post_nothing(&format!("/api/v1/runs/{}/cancel", runs[0])).await;
    assert_eq!(cancelled.status.as_u16() / 100, 2, "{}", cancelled.text());

    let list = world.get("/api/v1/schedules?health=true&runs=3").await.json();
    let shown = &list["items"][0];
    assert_eq!(shown["health"]["open_runs"], 2, "the job and the second run: {list}");
    let told: Vec<_> = shown["runs"].as_array().unwrap().iter().map(|run| &run["status"]).collect();
    assert_eq!(told, ["running", "cancelled", "waiting"]);
    let ids = |field: &str| -> Vec<_> {
        let runs = shown["runs"].as_array().unwrap().iter();
        runs.filter_map(|run| run.get(field).and_then(|id| id.as_str())).map(str::to_owned).collect()
    };
    assert_eq!((ids("run_id"), ids("job_id")), (vec![runs[1].clone(), runs[0].clone()], vec![job]));
    let shown = world.get(ONE).await.json();
    assert_eq!(shown["health"]["open_runs"], 2);
    let id = shown["id"].as_str().unwrap();
    let listed = world.get(&format!("/api/v1/runs?schedule={id}")).await;
    assert_eq!(listed.column("id"), [runs[1].clone(), runs[0].clone()]);
}
