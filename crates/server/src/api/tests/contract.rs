//! The OpenAPI document and the server agree.
//!
//! The first tests check the document itself: it is checked in, complete, and usable by client generators.
//! `BELFRY_UPDATE=1` writes `docs/openapi.json` again.
//!
//! [`Checked`] sends requests and validates each response against the schema that the document has for its
//! route and status. `responses_match_the_document` goes through the life of jobs, schedules and
//! workflows in this way. A new route belongs there.

use std::collections::BTreeSet;

use axum::body::Body;
use axum::http::Method;
use proto::logframe::Stream;
use serde_json::{Value, json};
use tower::ServiceExt;

use super::{Answer, ManualWorker, World, job};
use crate::api::document;
use crate::api::problem::Code;

/// Path of the checked-in document.
const CHECKED_IN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/openapi.json");

/// The checked-in copy matches the code. `BELFRY_UPDATE=1` writes it again.
#[test]
fn the_checked_in_document_matches_the_code() {
    let made = serde_json::to_string_pretty(&document()).unwrap() + "\n";
    if std::env::var_os("BELFRY_UPDATE").is_some() {
        std::fs::write(CHECKED_IN, &made).unwrap();
    }
    let kept = std::fs::read_to_string(CHECKED_IN).unwrap_or_default();
    assert!(kept == made, "docs/openapi.json is out of date: run this test with BELFRY_UPDATE=1");
}

#[test]
fn the_document_is_complete() {
    let document = serde_json::to_value(document()).unwrap();
    assert_eq!(document["openapi"], "3.1.0");
    let mut ids = BTreeSet::new();
    let tags: BTreeSet<_> =
        document["tags"].as_array().unwrap().iter().map(|t| t["name"].clone().to_string()).collect();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let route = format!("{method} {path}");
            assert!(ids.insert(operation["operationId"].as_str().unwrap().to_owned()), "{route}");
            assert!(!operation["summary"].as_str().unwrap().is_empty(), "{route}");
            let all_known =
                operation["tags"].as_array().unwrap().iter().all(|t| tags.contains(&t.to_string()));
            assert!(all_known, "{route} has tags {}", operation["tags"]);
            for parameter in operation["parameters"].as_array().into_iter().flatten() {
                let described =
                    parameter["in"] == "path" || !parameter["description"].as_str().unwrap_or("").is_empty();
                assert!(described, "{route}: {}", parameter["name"]);
            }
            for (status, response) in operation["responses"].as_object().unwrap() {
                assert!(!response["description"].as_str().unwrap().is_empty(), "{route} {status}");
            }
        }
    }
    let text = document.to_string();
    for link in text.split("\"#/components/schemas/").skip(1) {
        let name = link.split('"').next().unwrap();
        assert!(document["components"]["schemas"].get(name).is_some(), "schema {name} is missing");
    }
}

/// Every code of the table belongs to a route, except those of requests that reach none. Every refusal has a documented status (checked by [`Checked::check`] in
/// all tests).
#[test]
fn every_code_is_documented_at_some_route() {
    let text = serde_json::to_string(&document()).unwrap();
    let without_route = [Code::NotFound, Code::TlsRequired];
    for code in Code::ALL.iter().filter(|code| !without_route.contains(code)) {
        assert!(text.contains(&format!("`{}`: ", code.as_str())), "{code:?}");
    }
}

/// Properties that client generators and linters require.
#[test]
fn the_document_can_be_used_by_programs() {
    let document = serde_json::to_value(document()).unwrap();
    let text = document.to_string();
    assert_eq!(document["servers"][0]["url"], "/");
    for (name, _) in document["components"]["schemas"].as_object().unwrap() {
        assert!(text.contains(&format!("\"#/components/schemas/{name}\"")), "nothing refers to {name}");
    }
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            assert!(operation["security"].is_array(), "{method} {path}");
            for parameter in operation["parameters"].as_array().into_iter().flatten() {
                let mut kinds = parameter["schema"]["type"].as_array().into_iter().flatten();
                assert!(kinds.all(|kind| kind != "null"), "{method} {path}: {}", parameter["name"]);
            }
        }
    }
    let patch = &document["paths"]["/api/v1/jobs/{id}"]["patch"]["requestBody"]["content"];
    assert_eq!(patch["application/json"]["schema"]["$ref"], "#/components/schemas/JobPatch");
    let backfill = &document["paths"]["/api/v1/schedules/{name}/backfills"]["post"]["responses"]["409"];
    assert!(backfill["description"].as_str().unwrap().contains("nothing_to_backfill"), "{backfill}");
    let schemas = &document["components"]["schemas"];
    assert!(schemas["JobPatch"].get("required").is_none());
    assert!(schemas["JobSpec"]["properties"]["name"]["pattern"].is_string());
    assert_eq!(schemas["WorkflowSpec"]["properties"]["steps"]["minItems"], 1);
    assert_eq!(schemas["PreviewSchedule"]["properties"]["count"]["minimum"], 1);
    assert_eq!(schemas["MarkedAs"]["enum"], serde_json::json!(["succeeded", "failed", "skipped"]));
}

/// The server accepts every parameter of the document.
#[tokio::test]
async fn every_documented_parameter_is_accepted() {
    let world = World::new().await;
    let id = world.submit(json!({})).await;
    let document = serde_json::to_value(document()).unwrap();
    let mut tried = 0;
    for (path, item) in document["paths"].as_object().unwrap() {
        for (_, operation) in item.as_object().unwrap().iter().filter(|(method, _)| *method == "get") {
            let parameters = operation["parameters"].as_array().into_iter().flatten();
            for parameter in parameters.filter(|parameter| parameter["in"] == "query") {
                let name = parameter["name"].as_str().unwrap();
                let path = path.replace("{id}", &id).replace("{name}", "default");
                // No value is valid for all, but every error must name this parameter.
                let request = world.request(Method::GET, &format!("{path}?{name}=%01"));
                let response =
                    world.router.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
                if response.status().is_client_error() {
                    let body = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
                    let text = String::from_utf8_lossy(&body);
                    assert!(!text.contains("unknown field"), "{path}?{name}: {text}");
                }
                tried += 1;
            }
        }
    }
    assert!(tried > 30, "{tried} parameters were tried");
}

/// Validates responses against the document.
struct Checked {
    world: World,
    document: Value,
    seen: BTreeSet<String>,
}

impl Checked {
    fn operation(&self, method: &str, path: &str) -> (String, &Value) {
        let plain = path.split('?').next().unwrap();
        let matches = |template: &str| {
            let (a, b): (Vec<_>, Vec<_>) = (template.split('/').collect(), plain.split('/').collect());
            a.len() == b.len() && a.iter().zip(&b).all(|(t, p)| t.starts_with('{') || t == p)
        };
        let paths = self.document["paths"].as_object().unwrap();
        let found = paths.iter().find(|(template, item)| matches(template) && item.get(method).is_some());
        let (template, item) = found.unwrap_or_else(|| panic!("{method} {path} is not documented"));
        (template.clone(), &item[method])
    }

    fn check(&mut self, method: &Method, path: &str, answer: &Answer) {
        let method = method.as_str().to_lowercase();
        let (template, operation) = self.operation(&method, path);
        let route = format!("{method} {template} {}", answer.status.as_u16());
        let response = &operation["responses"][answer.status.as_str()];
        assert!(response.is_object(), "{route} is not documented: {}", answer.text());
        let media_type = answer.header("content-type").split(';').next().unwrap_or_default().to_owned();
        if answer.body.is_empty() {
            assert!(response.get("content").is_none(), "{route} has no body");
        } else {
            let content = &response["content"][&media_type];
            assert!(content.is_object(), "{route}: {media_type} is not documented");
            if media_type.ends_with("json") {
                let schema = self.schema(content["schema"].clone());
                let validator =
                    jsonschema::validator_for(&schema).unwrap_or_else(|error| panic!("{route}: {error}"));
                let body = answer.json();
                let errors: Vec<_> =
                    validator.iter_errors(&body).map(|e| format!("{e} at {}", e.instance_path())).collect();
                assert!(errors.is_empty(), "{route}: {errors:#?}\n{body:#}");
            }
        }
        self.seen.insert(route);
    }

    /// Returns a schema of the document as a self-contained one.
    fn schema(&self, schema: Value) -> Value {
        let text = schema.to_string().replace("#/components/schemas/", "#/$defs/");
        let mut schema: Value = serde_json::from_str(&text).unwrap();
        let defs =
            self.document["components"]["schemas"].to_string().replace("#/components/schemas/", "#/$defs/");
        schema["$defs"] = serde_json::from_str(&defs).unwrap();
        schema
    }

    async fn get(&mut self, path: &str) -> Answer {
        let answer = self.world.get(path).await;
        self.check(&Method::GET, path, &answer);
        answer
    }

    async fn send(&mut self, method: Method, path: &str, body: Value) -> Answer {
        let answer = self.world.json(method.clone(), path, body, &[]).await;
        self.check(&method, path, &answer);
        answer
    }
}

#[tokio::test]
async fn responses_match_the_document() {
    let world = World::new().await;
    let mut hands = ManualWorker::join(&world, 1).await;
    let mut api =
        Checked { document: serde_json::to_value(document()).unwrap(), world, seen: BTreeSet::new() };
    let full = job(json!({
        "name": "full", "labels": {"a": "b"}, "priority": 7, "timeout": "1h", "start_deadline": "1d",
        "resources": {"cpu": "500m", "memory": "1GiB", "limits": {"enforcement": "best_effort"}},
        "constraints": [{"label": "zone", "values": ["a"]}],
        "retry": {"max_retries": 1, "backoff": {"initial": "1ms"}}, "concurrency": {"key": "k", "limit": 1},
    }));
    let id =
        api.send(Method::POST, "/api/v1/jobs", full.clone()).await.json()["id"].as_str().unwrap().to_owned();
    let one = format!("/api/v1/jobs/{id}");
    api.send(Method::POST, "/api/v1/jobs", json!({"jobs": [job(json!({"run_at": "2030-01-01T00:00:00Z"}))]}))
        .await;
    api.send(Method::POST, "/api/v1/jobs?dry_run=true", full).await;
    api.send(Method::POST, "/api/v1/jobs", json!({"run": {}})).await;
    let task = hands.start().await;
    hands.log(&task, 0, &[(Stream::Stdout, b"hello\n")], true).await;
    api.world.until(&id, "running").await;
    for path in [
        "",
        "/why",
        "/events",
        "/executions",
        "/logs",
        "/logs?format=text",
        "/logs/search?text=hello&context=1",
    ] {
        api.get(&format!("{one}{path}")).await;
    }
    api.send(Method::PATCH, &one, json!({"priority": 3})).await;
    let listed = json!({"ids": [id, "job_01k9zq3m6c0000000000000000"]});
    api.send(Method::POST, "/api/v1/jobs/update", json!({"jobs": listed, "patch": {"priority": 3}})).await;
    api.send(Method::POST, "/api/v1/jobs/retry", json!({"jobs": listed})).await;
    api.send(Method::POST, "/api/v1/jobs/cancel?limit=1", json!({"jobs": {"status": ["ready"]}})).await;
    api.send(Method::POST, &format!("{one}/retry"), Value::Null).await;
    hands.finish(&task, 1).await;
    let task = hands.start().await;
    hands.finish(&task, 0).await;
    api.world.until(&id, "succeeded").await;
    let executions = api.get(&format!("{one}/executions?limit=1")).await;
    api.get(&format!("/api/v1/executions/{}", executions.json()["items"][0]["id"].as_str().unwrap())).await;
    api.send(Method::POST, &format!("{one}/cancel"), json!({})).await;
    api.send(Method::POST, &format!("{one}/retry"), Value::Null).await;
    for path in [
        "/api/v1/jobs?limit=1&count=true",
        "/api/v1/jobs?limit=0",
        "/api/v1/jobs?cursor=x",
        "/api/v1/executions",
        "/api/v1/workers",
        "/api/v1/queues",
        "/api/v1/queues/default",
        "/api/v1/queues/none",
        "/api/v1/namespaces",
        "/api/v1/namespaces/default",
        "/api/v1/namespaces/none",
        "/api/v1/artifacts",
        "/api/v1/me",
        "/api/v1/version",
        "/healthz",
        "/livez",
        "/readyz",
        "/readyz?verbose",
        "/openapi.json",
        "/metrics",
        "/api/v1/jobs/job_01k9zq3m6c0000000000000000",
    ] {
        api.get(path).await;
    }
    let worker = format!("/api/v1/workers/{}", hands.id);
    api.get(&worker).await;
    api.send(Method::POST, &format!("{worker}/cordon"), Value::Null).await;
    api.send(Method::DELETE, &worker, Value::Null).await;
    api.send(Method::PUT, "/api/v1/queues/q", json!({"concurrency": 2, "namespace_weights": {"a": 2}})).await;
    let quota =
        json!({"quota": {"cpu": "8", "custom": {"gpu": 2}, "jobs": 5}, "max_priority_class": "normal"});
    api.send(Method::PUT, "/api/v1/namespaces/n", quota).await;
    api.get("/api/v1/namespaces/n").await;
    api.send(Method::POST, "/api/v1/jobs", job(json!({"namespace": "n", "priority_class": "high"}))).await;
    api.send(Method::DELETE, "/api/v1/namespaces/n", Value::Null).await;
    api.send(Method::POST, "/api/v1/queues/q/pause", json!({"note": "x"})).await;
    api.send(Method::POST, "/api/v1/queues/q/resume", Value::Null).await;
    let waiting =
        api.send(Method::POST, "/api/v1/jobs", job(json!({"queue": "q"}))).await.json()["id"].clone();
    api.get(&format!("/api/v1/jobs/{}/why", waiting.as_str().unwrap())).await;
    api.send(Method::DELETE, &format!("/api/v1/jobs/{}", waiting.as_str().unwrap()), Value::Null).await;
    api.send(Method::PUT, "/api/v1/artifacts/tool", json!("bytes")).await;
    api.get("/api/v1/artifacts/tool").await;
    let later = api.send(Method::POST, "/api/v1/jobs", job(json!({"run_at": "2030-01-01T00:00:00Z"}))).await;
    let later = format!("/api/v1/jobs/{}", later.json()["id"].as_str().unwrap());
    api.send(Method::PATCH, &later, json!({"priority": 1, "retry": {"max_retries": 2}})).await;
    api.send(Method::PATCH, &later, json!({"priority": "x"})).await;
    schedules(&mut api).await;
    monitors(&mut api).await;
    secrets(&mut api).await;
    api.get("/api/v1/artifacts/none").await;
    api.send(Method::POST, &format!("{later}/cancel"), json!({"reason": "done"})).await;
    assert!(api.seen.len() >= 70, "{:#?}", api.seen);
}

async fn monitors(api: &mut Checked) {
    let path = "/api/v1/monitors/backup";
    let timing = json!({"cron": {"expression": "30 2 * * *", "zone": "Asia/Shanghai"}});
    let spec = json!({"name": "backup", "timing": timing, "labels": {"a": "b"}, "run_time_max": "2h"});
    let created = api.send(Method::PUT, path, spec).await.json();
    let url = created["ping_url"].as_str().unwrap();
    for path in [url.to_owned(), format!("{url}/start"), format!("{url}/x"), "/ping/none".to_owned()] {
        api.get(&path).await;
    }
    api.send(Method::POST, url, json!("12 files")).await;
    api.send(Method::POST, &format!("{url}/3"), json!("disk full")).await;
    api.send(Method::POST, &format!("{path}/ping"), json!({"kind": "fail"})).await;
    api.send(Method::POST, &format!("{path}/ping"), json!({"kind": "fail", "exit_code": 1})).await;
    for path in [path, "/api/v1/monitors", "/api/v1/monitors/none"] {
        api.get(path).await;
    }
    api.send(Method::PUT, path, json!({"name": "backup", "timing": {"every": "1s"}})).await;
    api.send(
        Method::PUT,
        &format!("{path}?dry_run=true"),
        json!({"name": "backup", "timing": {"every": "1h"}}),
    )
    .await;
    api.send(Method::DELETE, path, Value::Null).await;
}

async fn secrets(api: &mut Checked) {
    let path = "/api/v1/secrets/db";
    let spec = json!({"name": "db", "description": "the database", "values": {"password": "hunter2"}});
    api.send(Method::PUT, path, spec.clone()).await;
    api.send(Method::PUT, &format!("{path}?dry_run=true"), spec).await;
    api.send(Method::PUT, path, json!({"name": "db", "values": {}})).await;
    for path in [path, "/api/v1/secrets", "/api/v1/secrets/none"] {
        api.get(path).await;
    }
    let secrets = json!([{"secret": "db", "key": "password", "env": "A"}]);
    api.send(Method::POST, "/api/v1/jobs", job(json!({"secrets": secrets}))).await;
    api.send(Method::DELETE, path, Value::Null).await;
}

async fn schedules(api: &mut Checked) {
    let spec = json!({
        "name": "nightly", "owner": "ann", "labels": {"a": "b"}, "description": "For the morning.",
        "timing": {
            "rules": [
                {"cron": "0 2 * * *"}, {"every": {"period": "1h", "phase": "5m"}}, {"at": "2030-01-01T09:00"},
                {"calendar": {"unit": "months", "days": [-1], "times": ["18:00"]}},
            ],
            "only": [{"weekdays": ["monday"]}, {"window": {"from": "08:00", "until": "18:00"}}],
            "exclude": [{"calendar": "ours"}, {"dates": ["2026-10-01..2026-10-07"]}],
            "roll": {"to": "next", "calendar": "belfry.cn-workdays"}, "zone": "Asia/Shanghai",
            "dst": {"gap": "skip", "overlap": "both"}, "start": "2026-01-01T00:00:00Z", "end": "2099-01-01T00:00:00Z",
        },
        "jitter": {"max": "5m"}, "overlap": {"policy": "allow_all"}, "missed": {"policy": "fire_all"},
        "job": {"run": {"process": {"command": ["true"]}}},
    });
    let (one, calendar) = ("/api/v1/schedules/nightly", "/api/v1/calendars/ours");
    let days = json!({"name": "ours", "steps": [{"include": {"yearly": ["12-24"]}}]});
    api.send(Method::PUT, calendar, days.clone()).await;
    api.send(Method::PUT, &format!("{calendar}?dry_run=true"), days).await;
    for path in ["", "/days?from=2026-12-01"] {
        api.get(&format!("{calendar}{path}")).await;
    }
    api.get("/api/v1/calendars").await;
    api.get("/api/v1/calendars/belfry.cn-holidays").await;
    api.get("/api/v1/calendars/none").await;
    api.send(Method::PUT, one, spec.clone()).await;
    api.send(Method::PUT, one, spec.clone()).await;
    api.send(Method::PUT, &format!("{one}?dry_run=true"), spec.clone()).await;
    api.send(Method::POST, "/api/v1/schedules", spec.clone()).await;
    api.send(Method::POST, "/api/v1/schedules/apply", json!({"schedules": [spec]})).await;
    api.send(
        Method::POST,
        "/api/v1/schedules/preview",
        json!({"cron": "30 2 * * *", "zone": "Europe/Berlin"}),
    )
    .await;
    api.send(Method::POST, "/api/v1/schedules/preview", json!({"cron": "x"})).await;
    let fired = api.send(Method::POST, &format!("{one}/trigger"), json!({"reason": "x"})).await;
    api.get(&format!("/api/v1/jobs/{}", fired.json()["job_id"].as_str().unwrap())).await;
    let range = json!({"from": "2026-02-01T00:00:00Z", "until": "2026-02-10T00:00:00Z"});
    api.send(Method::POST, &format!("{one}/backfills?dry_run=true"), range.clone()).await;
    let backfill = api.send(Method::POST, &format!("{one}/backfills"), range).await;
    let backfill = format!("/api/v1/backfills/{}", backfill.json()["id"].as_str().unwrap());
    api.get(&backfill).await;
    api.get("/api/v1/backfills?limit=1").await;
    api.send(Method::POST, &format!("{backfill}/cancel"), json!({"cancel_runs": true})).await;
    api.send(Method::POST, &format!("{one}/pause"), json!({"note": "x"})).await;
    for path in ["", "/next?count=3", "/ledger?counts=true&limit=1", "/ledger?outcome=fired&cause=manual"] {
        api.get(&format!("{one}{path}")).await;
    }
    api.get("/api/v1/schedules?limit=1&count=true").await;
    api.get("/api/v1/schedules/upcoming").await;
    api.get("/api/v1/schedules/none").await;
    api.get("/schemas/schedule.json").await;
    api.get("/schemas/none.json").await;
    api.send(Method::POST, &format!("{one}/resume"), Value::Null).await;
    api.send(Method::DELETE, calendar, Value::Null).await;
    api.send(Method::DELETE, one, Value::Null).await;
}
