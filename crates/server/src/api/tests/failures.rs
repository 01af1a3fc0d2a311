//! Failure groups: lists, details, states.

use axum::http::StatusCode;
use engine::Report;
use engine::input::ExecutionEnd;
use model::record::{Outcome, Usage};
use serde_json::{Value, json};

use super::{ManualWorker, World};

/// Lets a job fail with a message; returns its id.
async fn fail(world: &World, hands: &mut ManualWorker, job: Value, message: &str) -> String {
    let id = world.submit(job).await;
    let task = hands.start().await;
    let outcome = Outcome {
        exit_code: Some(1),
        error: Some("exit_code".into()),
        message: Some(message.into()),
        ..Outcome::default()
    };
    let usage = Usage::default();
    hands.report(&task, Report::Finished { how: ExecutionEnd::Failed, outcome, usage }).await;
    world.until(&id, "failed").await;
    id
}

async fn groups(world: &World, query: &str) -> Vec<Value> {
    let shown = world.get(&format!("/api/v1/failures{query}")).await;
    assert_eq!(shown.status, StatusCode::OK, "{query}: {}", shown.text());
    let shown = shown.json();
    let items = shown["items"].as_array().unwrap().clone();
    assert!(shown["total"].as_u64().unwrap() >= items.len() as u64);
    items
}

/// H6. A failure is in its group as soon as its job has ended, whether it is folded or not.
#[tokio::test]
async fn failures_with_equal_messages_are_one_group() {
    let world = World::new().await;
    let mut hands = ManualWorker::join(&world, 1).await;
    let first =
        fail(&world, &mut hands, json!({"name": "import"}), "exited with code 1: row 17 is bad").await;
    let second =
        fail(&world, &mut hands, json!({"name": "export"}), "exited with code 1: row 4711 is bad").await;
    fail(&world, &mut hands, json!({"name": "import"}), "exited with code 1: disk full").await;
    let other = json!({"name": "import", "namespace": "other"});
    fail(&world, &mut hands, other, "exited with code 1: disk full").await;
    for is_folded in [false, true] {
        let found = groups(&world, "").await;
        let messages: Vec<_> = found.iter().map(|group| group["message"].as_str().unwrap()).collect();
        let (full, bad) = ("exited with code 1: disk full", "exited with code 1: row 4711 is bad");
        assert_eq!(messages, [full, full, bad], "folded: {is_folded}");
        let group = &found[2];
        assert_eq!(group["signature"], "exited with code #: row # is bad");
        assert_eq!((&group["count"], &group["last_24h"]), (&json!(2), &json!(2)));
        assert_eq!((&group["error"], &group["exit_code"]), (&json!("exit_code"), &json!(1)));
        assert_eq!(group["jobs"], json!([second, first]));
        assert_eq!(
            (&group["names"][0]["name"], &group["names"][1]["name"]),
            (&json!("export"), &json!("import"))
        );
        assert_eq!((&group["state"], &group["namespace"]), (&json!("open"), &json!("default")));
        for (query, count) in [
            ("?namespace=other", 1),
            ("?namespace=*", 3),
            ("?name=import", 3),
            ("?name=export", 1),
            ("?text=DISK", 2),
            ("?text=expor", 1),
            ("?state=known,muted", 0),
            ("?state=open", 3),
            ("?since=2000-01-01T00:00:00Z", 3),
            ("?since=9000-01-01T00:00:00Z", 0),
            ("?limit=1", 1),
        ] {
            assert_eq!(groups(&world, query).await.len(), count, "{query}, folded: {is_folded}");
        }
        assert_eq!(groups(&world, "?order=count").await[0]["message"], bad);
        assert_eq!(groups(&world, "?order=first_seen").await[0]["namespace"], "other");
        let id = group["id"].as_str().unwrap();
        assert_eq!(world.get(&format!("/api/v1/failures/{id}")).await.json(), *group);
        while world.services.node.store().fold_statistics().await.unwrap() > 0 {}
    }
}

/// H6. A group is marked, also before the first fold; a new failure opens only a resolved group.
#[tokio::test]
async fn the_state_of_a_group_is_set_and_a_failure_opens_a_resolved_one() {
    let world = World::new().await;
    let mut hands = ManualWorker::join(&world, 1).await;
    fail(&world, &mut hands, json!({"name": "import"}), "exited with code 1: disk full").await;
    let id = groups(&world, "").await[0]["id"].as_str().unwrap().to_owned();
    let path = format!("/api/v1/failures/{id}/state");
    let known = world.post(&path, json!({"state": "known", "note": "OPS-7"})).await.json();
    assert_eq!((&known["state"], &known["note"]), (&json!("known"), &json!("OPS-7")));
    assert!(known["state_set_by"].is_string() && known["state_set_at"].is_string());
    for (state, after, reopened) in [("muted", "muted", Value::Null), ("resolved", "open", json!(true))] {
        let set = world.post(&path, json!({"state": state})).await.json();
        assert_eq!((&set["state"], &set["note"]), (&json!(state), &json!("OPS-7")), "the note stays");
        assert_eq!(groups(&world, &format!("?state={state}")).await.len(), 1);
        fail(&world, &mut hands, json!({"name": "import"}), "exited with code 1: disk full").await;
        let group = &groups(&world, "").await[0];
        assert_eq!((&group["state"], &group["reopened"]), (&json!(after), &reopened), "{state}");
    }
    let without = world.post(&path, json!({"state": "known", "note": ""})).await.json();
    assert_eq!(without["note"], Value::Null);
    let open = world.post(&path, json!({"state": "open"})).await.json();
    assert_eq!(
        (&open["state"], &open["reopened"], &open["note"]),
        (&json!("open"), &Value::Null, &Value::Null)
    );
    assert_eq!(open["count"], 3);
}

#[tokio::test]
async fn a_wrong_group_state_or_note_is_refused() {
    let world = World::new().await;
    let mut hands = ManualWorker::join(&world, 1).await;
    fail(&world, &mut hands, json!({"name": "import"}), "exited with code 1: disk full").await;
    let id = groups(&world, "").await[0]["id"].as_str().unwrap().to_owned();
    let known = json!({"state": "known"});
    for path in ["0123456789abcdef", "x", &format!("{id}?namespace=other")] {
        let (id, query) = path.split_once('?').unwrap_or((path, ""));
        assert_eq!(
            world.get(&format!("/api/v1/failures/{path}")).await.code(),
            "404 failure_group_not_found"
        );
        let refused = world.post(&format!("/api/v1/failures/{id}/state?{query}"), known.clone()).await;
        assert_eq!(refused.code(), "404 failure_group_not_found", "{path}");
    }
    let path = format!("/api/v1/failures/{id}/state");
    let long = world.post(&path, json!({"state": "known", "note": "x".repeat(1_001)})).await;
    assert_eq!(
        (long.code().as_str(), &long.json()["errors"][0]["path"]),
        ("422 invalid_spec", &json!("note"))
    );
    let kept = world.post(&path, json!({"state": "open", "note": "why"})).await;
    assert_eq!(kept.json()["errors"][0]["path"], "note");
    assert!(world.post(&path, json!({"state": "fixed"})).await.status.is_client_error());
    assert!(world.post(&path, json!({"state": "known", "until": "tomorrow"})).await.status.is_client_error());
    assert_eq!(groups(&world, "?state=known").await.len(), 0);
    let wrong = world.get("/api/v1/failures?state=fixed").await;
    assert_eq!(
        (wrong.code().as_str(), &wrong.json()["errors"][0]["path"]),
        ("400 invalid_parameter", &json!("state"))
    );
}
