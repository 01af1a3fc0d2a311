//! Changes of many jobs: selections, pages, dry runs, refusals.
//!
//! In order: pages and their cursors, a dry run, retries, refusals grouped by reason, updates, selections that are refused
//! as a whole, a failure of the server, and a full page. The tests compare which jobs changed, and that no others did.
//!
//! What happens to each job is tested with the requests for one job, in `jobs`.

use axum::http::{Method, StatusCode};
use serde_json::{Value, json};

use super::{Answer, ManualWorker, World, job};

async fn done(answer: Answer) -> Value {
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
    answer.json()
}

fn ids(result: &Value, field: &str) -> Vec<String> {
    let changed = result["changed"].as_array().unwrap().iter();
    changed.map(|job| job[field].as_str().unwrap_or_default().to_owned()).collect()
}

#[tokio::test]
async fn all_jobs_that_match_are_cancelled_page_by_page_and_no_others() {
    let world = World::new().await;
    let mut import = Vec::new();
    for number in 0..5 {
        import.push(world.submit(json!({"queue": "import", "name": format!("load-{number}")})).await);
    }
    let other = world.submit(json!({"queue": "export"})).await;
    let body = json!({"jobs": {"queue": "import", "text": "LOAD"}, "reason": "wrong input"});
    let (mut cancelled, mut cursor, mut pages) = (Vec::new(), String::new(), 0);
    loop {
        let path = format!("/api/v1/jobs/cancel?limit=2{cursor}");
        let page = done(world.post(&path, body.clone()).await).await;
        assert_eq!(page["refused"], json!([]));
        cancelled.extend(ids(&page, "id"));
        // Newer than the first page, so it is not selected.
        world.submit(json!({"queue": "import", "name": "load-later"})).await;
        pages += 1;
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(pages, 3);
    cancelled.sort();
    assert_eq!(cancelled, import);
    for id in &import {
        let job = world.get(&format!("/api/v1/jobs/{id}")).await.json();
        assert_eq!(job["status"], "cancelled");
    }
    let history = world.get(&format!("/api/v1/jobs/{}/events", import[0])).await.json();
    assert!(history["items"].to_string().contains("wrong input"), "{history}");
    assert_eq!(world.get(&format!("/api/v1/jobs/{other}")).await.json()["status"], "waiting");
    assert_eq!(world.get("/api/v1/jobs?status=waiting&queue=import").await.column("id").len(), 3);
}

#[tokio::test]
async fn a_dry_run_selects_the_same_jobs_and_changes_none() {
    let world = World::new().await;
    let id = world.submit(json!({"labels": {"team": "pay"}})).await;
    world.submit(json!({})).await;
    let body = json!({"jobs": {"labels": {"team": "pay"}}});
    for path in ["/api/v1/jobs/cancel?dry_run=true", "/api/v1/jobs/cancel"] {
        assert_eq!(world.get(&format!("/api/v1/jobs/{id}")).await.json()["status"], "waiting", "{path}");
        let result = done(world.post(path, body.clone()).await).await;
        assert_eq!(result, json!({"changed": [{"id": id}], "refused": []}), "{path}");
    }
    assert_eq!(world.get(&format!("/api/v1/jobs/{id}")).await.json()["status"], "cancelled");
}

#[tokio::test]
async fn failed_jobs_are_retried_in_their_order_and_only_once() {
    let world = World::new().await;
    let mut hands = ManualWorker::join(&world, 1).await;
    let mut failed = Vec::new();
    for number in 0..3 {
        let id = world.submit(json!({"name": format!("sync-{number}"), "retry": {"max_retries": 0}})).await;
        let task = hands.start().await;
        hands.finish(&task, 1).await;
        world.until(&id, "failed").await;
        failed.push(id);
    }
    let good = world.submit(json!({"name": "sync-good"})).await;
    let task = hands.start().await;
    hands.finish(&task, 0).await;
    world.until(&good, "succeeded").await;
    let body = json!({"jobs": {"text": "sync"}});
    let retry = async |headers: &[(&str, &str)]| {
        done(world.json(Method::POST, "/api/v1/jobs/retry", body.clone(), headers).await).await
    };
    let first = retry(&[]).await;
    assert_eq!(ids(&first, "id"), failed);
    let new = ids(&first, "retried_as");
    assert!(new.is_sorted(), "{new:?}");
    let again = retry(&[]).await;
    assert_eq!(ids(&again, "retried_as"), new);
    assert!(again["changed"].as_array().unwrap().iter().all(|job| job["already_retried"] == true), "{again}");
    let other = retry(&[("idempotency-key", "again")]).await;
    assert!(ids(&other, "retried_as").iter().all(|id| !new.contains(id)), "{other}");
    for (old, new) in failed.iter().zip(&new) {
        let job = world.get(&format!("/api/v1/jobs/{new}")).await.json();
        assert_eq!(job["retry_of"], *old);
    }
    assert_eq!(world.get("/api/v1/jobs?text=sync").await.column("id").len(), 10);
}

#[tokio::test]
async fn listed_jobs_that_cannot_be_changed_are_grouped_by_reason() {
    let world = World::new().await;
    let mut hands = ManualWorker::join(&world, 1).await;
    let ended = world.submit(json!({})).await;
    let task = hands.start().await;
    hands.finish(&task, 0).await;
    world.until(&ended, "succeeded").await;
    let later = json!({"run_at": "2030-01-01T00:00:00Z"});
    let (waiting, cancelled) = (world.submit(later.clone()).await, world.submit(later).await);
    world.post(&format!("/api/v1/jobs/{cancelled}/cancel"), json!({})).await;
    let unknown = ["job_01k9zq3m6c0000000000000000", "job_01k9zq3m6c0000000000000001"];
    let listed = json!({"jobs": {"ids": [ended, waiting, cancelled, unknown[0], unknown[1]]}});
    let result = done(world.post("/api/v1/jobs/cancel?limit=1", listed.clone()).await).await;
    assert_eq!(ids(&result, "id"), [waiting.clone(), cancelled.clone()], "a repeated cancel is no error");
    assert_eq!(result["refused"][0]["code"], "job_not_found");
    assert_eq!(result["refused"][0]["jobs"], json!(unknown));
    assert_eq!(result["refused"][1]["code"], "job_ended");
    assert_eq!(result["refused"][1]["jobs"], json!([ended]));
    let detail = result["refused"][1]["detail"].as_str().unwrap();
    assert!(detail.contains(&ended) && detail.contains("succeeded"), "{detail}");
    assert_eq!(result.get("next_cursor"), None);
    let result = done(world.post("/api/v1/jobs/retry", listed).await).await;
    assert_eq!(ids(&result, "id"), [ended, waiting, cancelled]);
}

#[tokio::test]
async fn a_patch_is_applied_to_all_jobs_that_have_not_started() {
    let world = World::new().await;
    let mut hands = ManualWorker::join(&world, 1).await;
    let running = world.submit(json!({"queue": "slow"})).await;
    hands.start().await;
    world.until(&running, "running").await;
    let ready = world.submit(json!({"queue": "slow", "run_at": "2030-01-01T00:00:00Z"})).await;
    let body = json!({"jobs": {"queue": "slow"}, "patch": {"priority": 90, "timeout": "5m"}});
    let result = done(world.post("/api/v1/jobs/update", body).await).await;
    assert_eq!(result, json!({"changed": [{"id": ready}], "refused": []}));
    let job = world.get(&format!("/api/v1/jobs/{ready}")).await.json();
    assert_eq!((&job["priority"], &job["spec"]["timeout"]), (&json!(90), &json!("5m")));
    let both = json!({"jobs": {"ids": [running, ready]}, "patch": {"priority": 101}});
    let result = done(world.post("/api/v1/jobs/update", both).await).await;
    assert_eq!(result["changed"], json!([]));
    let codes: Vec<_> = result["refused"].as_array().unwrap().iter().map(|group| &group["code"]).collect();
    assert_eq!(codes, ["invalid_spec"], "an invalid patch is refused before the status is looked at");
}

#[tokio::test]
async fn a_selection_without_a_condition_or_with_a_useless_one_is_refused() {
    let world = World::new().await;
    world.submit(json!({})).await;
    let id = "job_01k9zq3m6c0000000000000000";
    for (path, body, pointer) in [
        ("cancel", json!({"jobs": {}}), "/jobs"),
        ("cancel", json!({}), ""),
        ("cancel", json!({"jobs": {"ids": []}}), "/jobs"),
        ("cancel", json!({"jobs": {"text": ""}}), "/jobs/text"),
        ("cancel", json!({"jobs": {"ids": [id], "queue": "q"}}), "/jobs/ids"),
        ("cancel", json!({"jobs": {"ids": vec![id; 1_001]}}), "/jobs/ids"),
        ("cancel", json!({"jobs": {"status": ["waiting", "failed"]}}), "/jobs/status/1"),
        ("cancel", json!({"jobs": {"nmae": "x"}}), "/jobs/nmae"),
        ("cancel", json!({"jobs": {"queue": "q"}, "reason": "x".repeat(1_001)}), "/reason"),
        ("retry", json!({"jobs": {"status": ["running"]}}), "/jobs/status/0"),
        ("update", json!({"jobs": {"queue": "q"}, "patch": {}}), "/patch"),
        ("update", json!({"jobs": {"queue": "q"}}), ""),
    ] {
        let answer = world.post(&format!("/api/v1/jobs/{path}"), body.clone()).await;
        assert_eq!(answer.code(), "422 invalid_spec", "{path} {body}");
        assert_eq!(answer.json()["errors"][0]["pointer"], pointer, "{path} {body}");
    }
    let all = done(world.post("/api/v1/jobs/cancel", json!({"jobs": {"namespace": "*"}})).await).await;
    assert_eq!(all["changed"].as_array().unwrap().len(), 1);
    let cursor = world.post("/api/v1/jobs/cancel?cursor=x", json!({"jobs": {"namespace": "*"}})).await;
    assert_eq!(cursor.code(), "400 invalid_cursor");
}

#[tokio::test]
async fn a_dry_run_refuses_what_the_request_would_refuse() {
    let world = World::new().await;
    let mut hands = ManualWorker::join(&world, 1).await;
    let ended = world.submit(json!({})).await;
    let task = hands.start().await;
    hands.finish(&task, 0).await;
    world.until(&ended, "succeeded").await;
    let waiting = world.submit(json!({"run_at": "2030-01-01T00:00:00Z"})).await;
    for (path, more, changed, code) in [
        ("retry", json!({}), &ended, "job_not_ended"),
        ("update", json!({"patch": {"priority": 3}}), &waiting, "job_ended"),
        ("cancel", json!({}), &waiting, "job_ended"),
    ] {
        let mut body = json!({"jobs": {"ids": [ended, waiting]}});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let dry = done(world.post(&format!("/api/v1/jobs/{path}?dry_run=true"), body.clone()).await).await;
        let real = done(world.post(&format!("/api/v1/jobs/{path}"), body).await).await;
        assert_eq!(ids(&dry, "id"), std::slice::from_ref(changed), "{path}");
        assert_eq!(dry["refused"], real["refused"], "{path}");
        assert_eq!(dry["refused"][0]["code"], code, "{path}");
    }
    let body = json!({"jobs": {"ids": [waiting]}, "patch": {"priority": 101}});
    let dry = done(world.post("/api/v1/jobs/update?dry_run=true", body).await).await;
    assert_eq!(dry["refused"][0]["code"], "job_ended", "the cancel above has ended it");
    let long = "k".repeat(225);
    let body = json!({"jobs": {"ids": [ended]}});
    let answer = world.json(Method::POST, "/api/v1/jobs/retry", body, &[("idempotency-key", &long)]).await;
    assert_eq!(answer.code(), "400 invalid_header");
}

/// An error that all jobs would meet ends the request: the client repeats it, and nothing is reported as refused.
#[tokio::test]
async fn a_failure_of_the_server_ends_the_request() {
    let world = World::new().await;
    world.submit(json!({})).await;
    world.stop().await;
    let answer = world.post("/api/v1/jobs/cancel", json!({"jobs": {"namespace": "*"}})).await;
    assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE, "{}", answer.text());
}

#[tokio::test]
async fn a_full_page_of_jobs_is_cancelled_at_once() {
    let world = World::new().await;
    let jobs = vec![job(json!({"queue": "big"})); 1_500];
    world.post("/api/v1/jobs", json!({"jobs": jobs})).await;
    let body = json!({"jobs": {"queue": "big"}});
    let first = done(world.post("/api/v1/jobs/cancel", body.clone()).await).await;
    assert_eq!(first["changed"].as_array().unwrap().len(), 1_000);
    let rest = done(world.post("/api/v1/jobs/cancel", body).await).await;
    assert_eq!(rest["changed"].as_array().unwrap().len(), 500);
    assert_eq!(rest.get("next_cursor"), None);
}
