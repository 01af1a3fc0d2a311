//! Schedules that start runs of workflows.

use axum::http::{Method, StatusCode};
use serde_json::json;

use super::World;
use super::schedules::ONE;

/// C1. Files are applied in any order: a workflow that is not there yet is no reason to refuse its schedule.
/// What it does not start until then is in its ledger.
#[tokio::test]
async fn a_schedule_of_a_workflow_that_is_not_there_is_taken_with_a_warning() {
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
async fn what_a_schedule_starts_is_one_thing() {
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
