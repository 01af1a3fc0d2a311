//! Services over REST: create, change, replicas with health, endpoints, rollouts.

use axum::http::{Method, StatusCode};
use engine::{HealthReport, Input};
use model::spec::HealthStatus;
use serde_json::{Value, json};

use super::{ManualWorker, Task, World};

const WEB: &str = "/api/v1/services/web";

fn web(command: &str) -> Value {
    json!({
        "name": "web",
        "labels": {"team": "shop"},
        "replicas": 2,
        "min_healthy": "0s",
        "job": {
            "run": {"process": {"command": [command]}},
            "ports": [{"name": "http"}],
            "health": {"readiness": {"tcp": {"port": "http"}}},
        },
    })
}

impl ManualWorker {
    async fn report_health(&self, task: &Task, status: HealthStatus, port: u16) {
        let report = HealthReport {
            execution: task.execution,
            fence: task.fence,
            status,
            detail: None,
            ports: [("http".to_owned(), port)].into(),
        };
        let input = Input::Health { worker: self.id, session: self.session, reports: vec![report] };
        self.node.report(vec![input]).await.unwrap();
    }
}

impl World {
    /// Waits until a field of the service has a value.
    async fn until_service(&self, path: &str, expected: Value) -> Value {
        let mut events = self.services.node.events();
        super::soon(&format!("{path} to be {expected}"), async {
            loop {
                let shown = self.get(WEB).await.json();
                if shown.pointer(path) == Some(&expected) {
                    return shown;
                }
                let _event = events.recv().await;
            }
        })
        .await
    }
}

/// F3.
#[tokio::test]
async fn a_service_is_created_changed_and_deleted() {
    let world = World::new().await;
    assert_eq!(world.get(WEB).await.code(), "404 service_not_found");
    let created = world.json(Method::PUT, WEB, web("v1"), &[]).await;
    assert_eq!((created.status, created.header("etag")), (StatusCode::CREATED, "\"1\""));
    let shown = world.get(WEB).await.json();
    assert_eq!(shown["spec"]["job"]["name"], "web");
    assert_eq!((&shown["replicas"], &shown["min_available"]), (&json!(2), &json!(2)));
    assert_eq!(shown["rollout"]["status"], "progressing");
    let again = world.json(Method::PUT, WEB, web("v1"), &[]).await;
    assert_eq!((again.status, again.header("etag")), (StatusCode::OK, "\"1\""));
    let conflict = world.json(Method::PUT, WEB, web("v2"), &[("if-match", "\"7\"")]).await;
    assert_eq!(conflict.code(), "412 version_mismatch");
    let exists = world.json(Method::PUT, WEB, web("v2"), &[("if-none-match", "*")]).await;
    assert_eq!(exists.code(), "412 version_mismatch");
    world.json(Method::PUT, WEB, web("v2"), &[("if-match", "\"1\"")]).await;
    let revisions = world.get(&format!("{WEB}/revisions")).await.json();
    let numbers = [0, 1].map(|i| revisions["items"][i]["number"].clone());
    assert_eq!(numbers, [json!(2), json!(1)]);
    assert_eq!(world.get("/api/v1/services?label=team%3Dshop&text=WE").await.column("name"), ["web"]);
    assert_eq!(world.get("/api/v1/services?owner=nobody").await.column("name"), Vec::<String>::new());
    assert_eq!(world.delete(WEB).await.status, StatusCode::ACCEPTED);
    // No replica had started, so none had to be stopped.
    assert_eq!(world.get(WEB).await.code(), "404 service_not_found");
}

#[tokio::test]
async fn a_bad_service_names_its_fields() {
    let world = World::new().await;
    let mut bad = web("v1");
    bad["job"]["timeout"] = json!("5s");
    bad["job"]["health"]["readiness"]["tcp"]["port"] = json!("admin");
    bad["update"] = json!({"max_surge": 0});
    let answer = world.json(Method::PUT, WEB, bad.clone(), &[]).await;
    assert_eq!(answer.code(), "422 invalid_spec");
    let text = answer.json().to_string();
    for field in ["/job/timeout", "/job/health/readiness/tcp/port", "/update/max_surge"] {
        assert!(text.contains(field), "{text}");
    }
    let batch = world.post("/api/v1/services/apply", json!({"services": [web("v1"), bad]})).await;
    assert!(batch.json().to_string().contains("/services/1/job/timeout"), "{}", batch.json());
    assert_eq!(world.get(WEB).await.code(), "404 service_not_found", "all or none");
}

/// F3. Replicas with their health, and the endpoints of the healthy ones.
#[tokio::test]
async fn endpoints_are_those_of_healthy_replicas() {
    let world = World::new().await;
    let mut worker = ManualWorker::join_with_checks(&world, 1, Some("10.0.0.7")).await;
    world.json(Method::PUT, WEB, web("v1"), &[]).await;
    let (first, second) = (worker.start().await, worker.start().await);
    worker.report_health(&first, HealthStatus::Healthy, 20_001).await;
    worker.report_health(&second, HealthStatus::Starting, 20_002).await;
    let shown = world.until_service("/counts/available", json!(1)).await;
    assert_eq!(shown["counts"]["running"], 2);
    let replicas = world.get(&format!("{WEB}/replicas")).await.json();
    assert_eq!(replicas["items"][0]["health"]["status"], "healthy");
    assert_eq!(replicas["items"][1]["health"]["status"], "starting");
    let endpoints = world.get(&format!("{WEB}/endpoints")).await.json();
    assert_eq!(endpoints["items"].as_array().unwrap().len(), 1);
    assert_eq!(endpoints["items"][0]["address"], "10.0.0.7");
    assert_eq!(endpoints["items"][0]["port"], 20_001);
    let targets = world.get("/api/v1/services/targets?port=http").await.json();
    assert_eq!(targets[0]["targets"], json!(["10.0.0.7:20001"]));
    assert_eq!(targets[0]["labels"]["__meta_belfry_service"], "web");
    assert_eq!(targets[0]["labels"]["__meta_belfry_label_team"], "shop");
    worker.report_health(&second, HealthStatus::Healthy, 20_002).await;
    world.until_service("/rollout/status", json!("completed")).await;
    let job = replicas["items"][0]["job"].as_str().unwrap();
    let job = world.get(&format!("/api/v1/jobs/{job}")).await.json();
    assert_eq!((&job["replica"]["name"], &job["replica"]["revision"]), (&json!("web"), &json!(1)));
    let id = shown["id"].as_str().unwrap();
    assert_eq!(world.get(&format!("/api/v1/jobs?service={id}")).await.column("name"), ["web", "web"]);
}

#[tokio::test]
async fn a_service_is_scaled_restarted_and_rolled_back() {
    let world = World::new().await;
    world.json(Method::PUT, WEB, web("v1"), &[]).await;
    let post = async |act: &str, body: Value| world.post(&format!("{WEB}/{act}"), body).await;
    let scaled = post("scale", json!({"replicas": 5})).await.json();
    assert_eq!((&scaled["replicas"], &scaled["revision"]), (&json!(5), &json!(1)));
    assert_eq!(post("scale", json!({"replicas": 2_000})).await.code(), "422 invalid_spec");
    assert_eq!(post("restart", json!({})).await.json()["revision"], 2);
    assert_eq!(post("rollback", json!({"revision": 2})).await.code(), "409 revision_unavailable");
    assert_eq!(post("rollback", json!({"revision": 1})).await.json()["revision"], 3);
    assert_eq!(post("promote", json!({})).await.code(), "409 rollout_status");
    assert_eq!(post("pause", json!({})).await.status, StatusCode::OK);
    assert_eq!(world.get(WEB).await.json()["rollout"]["paused"], true);
    assert_eq!(post("resume", json!({})).await.status, StatusCode::OK);
}

#[tokio::test]
async fn a_dry_run_changes_nothing() {
    let world = World::new().await;
    let spec = world.json(Method::PUT, &format!("{WEB}?dry_run=true"), web("v1"), &[]).await;
    assert_eq!((spec.status, &spec.json()["priority_class"]), (StatusCode::OK, &json!("high")));
    let body = json!({"services": [web("v1")]});
    let dry = world.post("/api/v1/services/apply?dry_run=true", body.clone()).await.json();
    assert_eq!(dry["services"][0]["change"], "created");
    assert_eq!(world.get(WEB).await.code(), "404 service_not_found");
    let real = world.post("/api/v1/services/apply", body.clone()).await.json();
    assert_eq!(real["services"][0]["change"], "created");
    let again = world.post("/api/v1/services/apply?dry_run=true", body).await.json();
    assert_eq!(again["services"][0]["change"], "unchanged");
}

/// The job of a replica belongs to its service: it is neither changed nor repeated like another job.
#[tokio::test]
async fn the_job_of_a_replica_is_changed_through_its_service() {
    let world = World::new().await;
    world.json(Method::PUT, WEB, web("v1"), &[]).await;
    let replicas = world.get(&format!("{WEB}/replicas")).await.json();
    let job = format!("/api/v1/jobs/{}", replicas["items"][0]["job"].as_str().unwrap());
    let patch = [("content-type", "application/merge-patch+json")];
    let changed = world.json(Method::PATCH, &job, json!({"priority": 9}), &patch).await;
    assert_eq!(changed.code(), "409 job_of_service");
    assert_eq!(world.delete(&job).await.status, StatusCode::OK);
    assert_eq!(world.post(&format!("{job}/retry"), json!({})).await.code(), "409 job_of_service");
    let replicas = world.get(&format!("{WEB}/replicas")).await.json();
    assert_eq!(replicas["items"].as_array().unwrap().len(), 2, "another job took the place");
}
