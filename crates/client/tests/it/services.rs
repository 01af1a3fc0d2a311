//! Requests for services: URLs, bodies and retries.

use client::{JobFilter, ServiceFilter, ServiceRef, TargetFilter};
use futures::TryStreamExt;
use model::ServiceSpec;
use serde_json::{Value, json};

use crate::fake::Fake;

const SERVICE: &str = "svc_01k9zq3m6c0000000000000000";

fn named(name: &str) -> ServiceRef {
    ServiceRef { name: name.into(), namespace: Some("pay".into()) }
}

fn by_id() -> ServiceRef {
    SERVICE.parse::<model::ServiceId>().unwrap().into()
}

fn spec() -> ServiceSpec {
    let job = json!({"run": {"process": {"command": ["./web"]}}});
    serde_json::from_value(json!({"name": "web", "namespace": "pay", "replicas": 3, "job": job})).unwrap()
}

/// Service as the API returns it.
fn service(version: u64) -> Value {
    let at = "2026-11-21T08:00:00Z";
    json!({
        "id": SERVICE, "name": "web", "namespace": "pay", "version": version, "created_at": at, "updated_at": at,
        "replicas": 3, "min_available": 3,
        "counts": {"live": 3, "running": 3, "available": 3, "updated": 3, "updated_available": 3, "stopping": 0},
        "rollout": {"revision": 1, "status": "completed", "started_at": at, "progressed_at": at},
    })
}

fn changed() -> Value {
    json!({"version": 2, "revision": 2, "replicas": 3})
}

#[tokio::test]
async fn filters_become_parameters() {
    let fake = Fake::default();
    fake.answers(200, json!({"items": [service(1)], "next_cursor": "c"})).answers(200, json!({"items": []}));
    fake.answers(200, json!([])).answers(200, json!({"items": []}));
    let client = fake.start().await;
    let filter = ServiceFilter {
        text: Some("we".into()),
        labels: vec![("a".into(), "b".into())],
        namespace: Some("pay".into()),
        ..ServiceFilter::default()
    };
    assert_eq!(client.services(filter).try_collect::<Vec<_>>().await.unwrap().len(), 1);
    let filter = TargetFilter { port: Some("http".into()), ..TargetFilter::default() };
    assert_eq!(client.service_targets(&filter).await.unwrap(), []);
    let filter = JobFilter { service: Some(SERVICE.parse().unwrap()), ..JobFilter::default() };
    assert_eq!(client.jobs(filter).try_collect::<Vec<_>>().await.unwrap(), []);
    let lines = fake.lines();
    assert_eq!(lines[0], "GET /api/v1/services?namespace=pay&text=we&label=a%3Db");
    assert_eq!(lines[1], "GET /api/v1/services?namespace=pay&text=we&cursor=c&label=a%3Db");
    assert_eq!(lines[2], "GET /api/v1/services/targets?port=http");
    assert_eq!(lines[3], format!("GET /api/v1/jobs?service={SERVICE}"));
}

/// Each action has its own URL and body. An id needs no namespace.
#[tokio::test]
async fn service_actions_use_the_routes_of_the_api() {
    let fake = Fake::default();
    for _ in 0..6 {
        fake.answers(200, changed());
    }
    fake.answers(202, json!(null));
    for _ in 0..3 {
        fake.answers(200, json!({"items": []}));
    }
    let client = fake.start().await;
    client.scale_service(&named("web"), 5, None).await.unwrap();
    client.restart_service(&named("web")).await.unwrap();
    client.rollback_service(&by_id(), Some(1)).await.unwrap();
    client.pause_rollout(&by_id()).await.unwrap();
    client.resume_rollout(&by_id()).await.unwrap();
    client.promote_rollout(&by_id()).await.unwrap();
    client.delete_service(&named("web"), Some(7)).await.unwrap();
    assert_eq!(client.replicas(&named("web")).await.unwrap(), []);
    assert_eq!(client.revisions(&by_id()).await.unwrap(), []);
    assert_eq!(client.endpoints(&by_id()).await.unwrap(), []);
    let path = format!("/api/v1/services/{SERVICE}");
    assert_eq!(
        fake.lines(),
        [
            "POST /api/v1/services/web/scale?namespace=pay".to_owned(),
            "POST /api/v1/services/web/restart?namespace=pay".to_owned(),
            format!("POST {path}/rollback"),
            format!("POST {path}/pause"),
            format!("POST {path}/resume"),
            format!("POST {path}/promote"),
            "DELETE /api/v1/services/web?namespace=pay".to_owned(),
            "GET /api/v1/services/web/replicas?namespace=pay".to_owned(),
            format!("GET {path}/revisions"),
            format!("GET {path}/endpoints"),
        ]
    );
    let asked = fake.requests();
    assert_eq!((asked[0].json(), asked[2].json()), (json!({"replicas": 5}), json!({"revision": 1})));
    assert_eq!(asked[6].header("if-match"), Some("\"7\""));
}

#[tokio::test]
async fn a_service_is_put_with_the_version_that_it_must_have() {
    let fake = Fake::default();
    fake.answers(201, service(1)).answers(200, service(4));
    fake.answers(200, serde_json::to_value(spec()).unwrap());
    fake.answers(200, json!({"services": []}));
    let client = fake.start().await;
    client.put_service(&spec(), Some(0)).await.unwrap();
    client.put_service(&spec(), Some(3)).await.unwrap();
    assert_eq!(client.put_service_dry_run(&spec()).await.unwrap(), spec());
    client.apply_services(vec![spec()], true).await.unwrap();
    let asked = fake.requests();
    assert_eq!(asked[0].line, "PUT /api/v1/services/web?namespace=pay");
    assert_eq!(asked[0].header("if-none-match"), Some("*"));
    assert_eq!(asked[1].header("if-match"), Some("\"3\""));
    assert_eq!(asked[2].line, "PUT /api/v1/services/web?namespace=pay&dry_run=true");
    assert_eq!(asked[3].line, "POST /api/v1/services/apply?dry_run=true");
    assert_eq!(asked[3].json()["services"][0]["name"], "web");
}

/// A second restart would replace all replicas again.
#[tokio::test]
async fn a_restart_is_not_repeated_when_its_outcome_is_unknown_but_a_scaling_is() {
    let fake = Fake::default();
    fake.refuses(503, "outcome_unknown", None);
    let client = fake.start().await;
    let error = client.restart_service(&named("web")).await.unwrap_err();
    assert_eq!((error.code(), fake.requests().len()), (Some("outcome_unknown"), 1));
    fake.refuses(503, "outcome_unknown", None).answers(200, changed());
    assert_eq!(client.scale_service(&named("web"), 3, None).await.unwrap().replicas, 3);
}
