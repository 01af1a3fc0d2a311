//! Rules and silences beyond the core: what the API accepts, and what it shows.

use axum::http::{Method, StatusCode};
use serde_json::{Value, json};

use super::World;

/// H3.
#[tokio::test]
async fn a_recurring_silence_is_created_shown_and_ended() {
    let world = World::new().await;
    let new = json!({
        "duration": "9h", "reason": "night", "severity_max": "warning",
        "recurrence": {"expression": "* * * * *", "zone": "Europe/Berlin"},
    });
    let created = world.post("/api/v1/silences", new.clone()).await;
    assert_eq!(created.status, StatusCode::CREATED, "{}", created.text());
    let created = created.json();
    assert_eq!(
        (&created["active"], &created["severity_max"], &created["duration"]),
        (&json!(true), &json!("warning"), &json!("9h"))
    );
    // Read again from the store, as by the next leader.
    world.services.alerts.load(1).await.unwrap();
    let list = world.get("/api/v1/silences").await.json();
    assert_eq!(list["items"], json!([created]));
    assert_eq!(
        world.delete(&format!("/api/v1/silences/{}", created["id"])).await.status,
        StatusCode::NO_CONTENT
    );
    assert_eq!(world.get("/api/v1/silences").await.json()["items"], json!([]));
    for (field, value, path) in [
        ("recurrence", json!({"expression": "61 * * * *"}), "recurrence.expression"),
        ("recurrence", json!({"expression": "0 0 * * *", "zone": "Berlin"}), "recurrence.zone"),
        ("recurrence", Value::Null, "ends_at"),
    ] {
        let mut wrong = new.clone();
        wrong["ends_at"] = "2036-01-01T00:00:00Z".into();
        if !value.is_null() {
            wrong.as_object_mut().unwrap().remove("ends_at");
        }
        wrong[field] = value;
        let refused = world.post("/api/v1/silences", wrong).await;
        assert_eq!(refused.code(), "422 invalid_spec");
        assert_eq!(refused.json()["errors"][0]["path"], path, "{}", refused.text());
    }
}

/// H3.
#[tokio::test]
async fn the_channels_of_an_escalation_are_in_use() {
    let world = World::new().await;
    for name in ["ops", "boss"] {
        let channel = json!({"name": name, "to": {"slack": {"url": "https://example.com/x"}}});
        let put = world.json(Method::PUT, &format!("/api/v1/channels/{name}"), channel, &[]).await;
        assert_eq!(put.status, StatusCode::OK, "{}", put.text());
    }
    let rule = json!({
        "name": "failed", "when": {"job_failed": {}}, "notify": ["ops"],
        "escalate": {"after": "15m", "notify": ["boss", "missing"]},
    });
    let put = world.json(Method::PUT, "/api/v1/alert-rules/failed", rule, &[]).await;
    assert_eq!(put.status, StatusCode::OK, "{}", put.text());
    assert_eq!(put.json()["missing_channels"], json!(["missing"]));
    assert_eq!(world.delete("/api/v1/channels/boss").await.code(), "409 channel_in_use");
    assert_eq!(world.get("/api/v1/channels/boss").await.json()["rules"], json!(["failed"]));
}
