//! Monitors and their pings.

use axum::body::Body;
use axum::http::{Method, Request, StatusCode};
use serde_json::{Value, json};
use store::faulty::{Fault, Operation};

use super::{Answer, World};

/// Creates the monitor `backup`, and returns the path of its ping URL.
async fn monitor(world: &World) -> String {
    let spec = json!({"name": "backup", "timing": {"every": "1d"}, "grace": "1h"});
    let created = world.json(Method::PUT, "/api/v1/monitors/backup", spec, &[]).await;
    assert_eq!(created.status, StatusCode::OK, "{}", created.text());
    let url = created.json()["ping_url"].as_str().unwrap().to_owned();
    assert!(url.starts_with("/ping/") && url.len() > 25, "{url}");
    url
}

/// Sends a request without a token, as a job does.
async fn ping(world: &World, method: Method, path: &str, body: impl Into<Body>) -> Answer {
    let request = Request::builder().method(method).uri(path).header("host", "localhost");
    world.send(request.body(body.into()).unwrap()).await
}

async fn shown(world: &World) -> Value {
    let answer = world.get("/api/v1/monitors/backup").await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
    answer.json()
}

/// H3. As a job that Belfry does not run reports with `curl`.
#[tokio::test]
async fn a_ping_url_reports_successes_starts_failures_and_exit_codes() {
    let world = World::new().await;
    let url = monitor(&world).await;
    assert_eq!(shown(&world).await["status"], "new");
    for (method, path, body, status, kind, exit_code) in [
        (Method::GET, url.clone(), "", "up", "success", Value::Null),
        (Method::HEAD, format!("{url}/fail"), "", "down", "fail", Value::Null),
        (Method::POST, format!("{url}/start"), "", "down", "start", Value::Null),
        (Method::POST, format!("{url}/0"), "12 files", "up", "success", json!(0)),
        (Method::POST, format!("{url}/3"), "disk full\n", "down", "fail", json!(3)),
    ] {
        let answer = ping(&world, method.clone(), &path, body).await;
        let expected = if method == Method::HEAD { "" } else { "OK\n" };
        assert_eq!((answer.status, answer.text().as_str()), (StatusCode::OK, expected), "{path}");
        let shown = shown(&world).await;
        assert_eq!((&shown["status"], &shown["pings"][0]["kind"]), (&json!(status), &json!(kind)), "{path}");
        assert_eq!(shown["pings"][0]["exit_code"], exit_code, "{path}");
    }
    let shown = shown(&world).await;
    assert_eq!(shown["reason"], "the job ended with exit code 3: disk full");
    assert_eq!(shown["pings"].as_array().unwrap().len(), 5);
    assert!(shown["pings"][1]["run_time"].is_string(), "{shown}");
}

#[tokio::test]
async fn a_wrong_ping_is_refused_and_changes_nothing() {
    let world = World::new().await;
    let url = monitor(&world).await;
    let before = shown(&world).await;
    for path in ["/ping/AAAAAAAAAAAAAAAAAAAAAA", "/ping/AAAAAAAAAAAAAAAAAAAAAA/fail"] {
        let answer = ping(&world, Method::GET, path, "").await;
        assert_eq!(answer.code(), "404 monitor_not_found");
        assert!(!answer.text().contains("AAAA"), "{}", answer.text());
    }
    for signal in ["256", "-1", "ok", "start%20"] {
        let answer = ping(&world, Method::GET, &format!("{url}/{signal}"), "").await;
        assert_eq!(answer.code(), "400 invalid_parameter", "{signal}");
    }
    let large = ping(&world, Method::POST, &url, "x".repeat(100_001)).await;
    assert_eq!(large.code(), "413 body_too_large");
    let method = ping(&world, Method::DELETE, &url, "").await;
    assert_eq!(method.code(), "405 method_not_allowed");
    assert_eq!(shown(&world).await, before);
}

#[tokio::test]
async fn only_callers_who_may_ping_a_monitor_see_its_url() {
    let world = World::new().await;
    let url = monitor(&world).await;
    assert_eq!(shown(&world).await["ping_url"], url.as_str());
    let viewer = world.account("vera", &[("viewer", "default")]).await;
    let operator = world.account("oscar", &[("operator", "default")]).await;
    let path = "/api/v1/monitors/backup";
    let as_viewer = world.get_as(&viewer, path).await;
    assert!(
        as_viewer.status == StatusCode::OK && as_viewer.json()["ping_url"].is_null(),
        "{}",
        as_viewer.text()
    );
    assert_eq!(world.get_as(&operator, path).await.json()["ping_url"], url.as_str());
    for token in [&viewer, &operator] {
        let list = world.get_as(token, "/api/v1/monitors").await.text();
        assert!(list.contains("backup") && !list.contains("/ping/"), "{list}");
    }
    let ping = format!("{path}/ping");
    let refused = world.send_as(&viewer, Method::POST, &ping, json!({})).await;
    assert_eq!(refused.code(), "403 forbidden");
    let sent = world.send_as(&operator, Method::POST, &ping, json!({"exit_code": 9})).await;
    assert_eq!(sent.status, StatusCode::NO_CONTENT, "{}", sent.text());
    assert_eq!(shown(&world).await["reason"], "the job ended with exit code 9");
    assert_eq!(world.post_nothing(&ping).await.status, StatusCode::NO_CONTENT);
    assert_eq!(shown(&world).await["status"], "up");
    let both = world.post(&ping, json!({"exit_code": 9, "kind": "start"})).await;
    assert_eq!(both.code(), "422 invalid_spec");
    let other = world.post_nothing("/api/v1/monitors/other/ping").await;
    assert_eq!(other.code(), "404 monitor_not_found");
}

/// A flood of pings must not slow the store down.
#[tokio::test]
async fn pings_that_arrive_together_are_recorded_in_few_writes() {
    let world = World::new().await;
    let url = monitor(&world).await;
    let before = world.store.calls(Operation::ChangeAlerts);
    // The first ping is written at once, and the others wait for the end of that write.
    let stall = world.store.stall(Operation::ChangeAlerts, before + 1);
    let pings = futures::future::join_all((0..200).map(|_| ping(&world, Method::GET, &url, "")));
    let release = async {
        stall.reached().await;
        stall.release();
    };
    let (answers, ()) = tokio::join!(pings, release);
    assert!(answers.iter().all(|answer| answer.status == StatusCode::OK));
    let writes = world.store.calls(Operation::ChangeAlerts) - before;
    assert!((1..=3).contains(&writes), "{writes} writes");
    assert_eq!(shown(&world).await["pings"].as_array().unwrap().len(), 20);
}

/// D6. An answered ping is durable, and one whose write failed is refused.
#[tokio::test]
async fn an_answered_ping_survives_a_change_of_the_leader() {
    let world = World::new().await;
    let url = monitor(&world).await;
    let answer = ping(&world, Method::POST, &format!("{url}/fail"), "no disk").await;
    assert_eq!(answer.status, StatusCode::OK);
    let before = shown(&world).await;
    world.store.inject_next(Operation::ChangeAlerts, Fault::Before);
    let lost = ping(&world, Method::GET, &url, "").await;
    assert_eq!(lost.code(), "503 loading");
    assert_eq!(world.get("/api/v1/monitors/backup").await.code(), "503 loading");
    world.services.alerts.load(1).await.unwrap();
    assert_eq!(shown(&world).await, before);
    assert_eq!(ping(&world, Method::GET, &url, "").await.status, StatusCode::OK);
    assert_eq!(shown(&world).await["status"], "up");
}

#[tokio::test]
async fn a_monitor_with_a_wrong_timing_is_refused() {
    let world = World::new().await;
    for (timing, path) in [
        (json!({"every": "1s"}), "timing.every"),
        (json!({"cron": {"expression": "61 * * * *"}}), "timing.cron.expression"),
        (json!({"cron": {"expression": "0 0 30 2 *"}}), "timing.cron.expression"),
        (json!({"cron": {"expression": "0 3 * * *", "zone": "Europe/Berlim"}}), "timing.cron.zone"),
    ] {
        let spec = json!({"name": "backup", "timing": timing});
        let answer = world.json(Method::PUT, "/api/v1/monitors/backup", spec, &[]).await;
        assert_eq!(answer.code(), "422 invalid_spec", "{timing}");
        assert_eq!(answer.json()["errors"][0]["path"], path, "{}", answer.text());
    }
}

#[tokio::test]
async fn a_monitor_is_changed_at_its_version_and_deleted_with_its_url() {
    let world = World::new().await;
    let url = monitor(&world).await;
    let spec = json!({"name": "backup", "timing": {"every": "2d"}});
    let path = "/api/v1/monitors/backup";
    let outdated = world.json(Method::PUT, path, spec.clone(), &[("if-match", "\"7\"")]).await;
    assert_eq!(outdated.code(), "412 version_mismatch");
    let dry = world.json(Method::PUT, &format!("{path}?dry_run=true"), spec.clone(), &[]).await;
    assert_eq!(dry.json()["timing"], json!({"every": "2d"}));
    let changed = world.json(Method::PUT, path, spec, &[("if-match", "\"1\"")]).await.json();
    assert_eq!((&changed["version"], &changed["ping_url"]), (&json!(2), &json!(url)));
    assert_eq!(world.delete(path).await.status, StatusCode::NO_CONTENT);
    assert_eq!(world.get(path).await.code(), "404 monitor_not_found");
    assert_eq!(ping(&world, Method::GET, &url, "").await.code(), "404 monitor_not_found");
}
