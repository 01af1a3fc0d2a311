//! Jobs, from submission to end.
//!
//! In order: submissions (keys, batches, dry runs), changes, cancellations, retries, explanations, executions
//! and checkpoints. Each test uses a [`World`] with a [`ManualWorker`] where a job must run, and compares
//! responses as JSON.
//!
//! Only the API is tested here: validation, status codes, fields. Rules of the job's life are tested in the
//! engine, refusals that all routes share in `refusals`, and filters of lists in `lists`.

use axum::body::Body;
use axum::http::{Method, StatusCode};
use serde_json::{Value, json};

use super::{ManualWorker, World, job};

#[tokio::test]
async fn a_submitted_job_can_be_read_at_once() {
    let world = World::new().await;
    let answer = world.post("/api/v1/jobs", job(json!({"name": "hello", "labels": {"team": "pay"}}))).await;
    assert_eq!(answer.status, StatusCode::CREATED);
    let id = answer.json()["id"].as_str().unwrap().to_owned();
    assert_eq!(answer.json(), json!({"id": id, "created": true}));
    assert_eq!(answer.header("location"), format!("/api/v1/jobs/{id}"));
    let shown = world.get(answer.header("location")).await;
    let found = shown.json();
    assert_eq!(found["name"], "hello");
    assert_eq!(found["owner"], "ann");
    assert_eq!(found["labels"], json!({"team": "pay"}));
    assert_eq!(found["status"], "waiting");
    assert_eq!(found["spec"]["run"], json!({"process": {"command": ["true"]}}));
    assert_eq!(shown.header("etag"), format!("\"{}\"", found["version"]));
    assert_eq!(answer.header("etag"), shown.header("etag"));
}

#[tokio::test]
async fn a_job_may_be_submitted_as_yaml() {
    let world = World::new().await;
    let body = "name: nightly\nrun:\n  process:\n    script: |\n      echo hi\nretry: {max_retries: 3}\n";
    let request = world.request(Method::POST, "/api/v1/jobs").header("content-type", "application/yaml");
    let answer = world.send(request.body(Body::from(body)).unwrap()).await;
    assert_eq!(answer.status, StatusCode::CREATED, "{}", answer.text());
    let found = world.get(answer.header("location")).await.json();
    assert_eq!(found["spec"]["run"]["process"]["script"], "echo hi\n");
    assert_eq!(found["spec"]["retry"]["max_retries"], 3);
}

#[tokio::test]
async fn a_repeated_key_returns_the_first_job() {
    let world = World::new().await;
    let key = [("idempotency-key", "\"order-7\"")];
    let first = world.json(Method::POST, "/api/v1/jobs", job(json!({})), &key).await;
    assert_eq!(first.status, StatusCode::CREATED);
    let again =
        world.json(Method::POST, "/api/v1/jobs", job(json!({})), &[("idempotency-key", "order-7")]).await;
    assert_eq!(again.status, StatusCode::OK);
    assert_eq!(again.json(), json!({"id": first.json()["id"], "created": false}));
    let other = world.json(Method::POST, "/api/v1/jobs", job(json!({"name": "other"})), &key).await;
    assert_eq!(other.code(), "422 idempotency_key_reused");
    let elsewhere = world.json(Method::POST, "/api/v1/jobs", job(json!({"namespace": "b"})), &key).await;
    assert_eq!(elsewhere.status, StatusCode::CREATED);
}

#[tokio::test]
async fn a_batch_is_accepted_all_or_none() {
    let world = World::new().await;
    let bad = json!({"jobs": [job(json!({})), job(json!({"priority": 101}))]});
    let refused = world.post("/api/v1/jobs", bad).await;
    assert_eq!(refused.code(), "422 invalid_spec");
    assert_eq!(refused.json()["errors"][0]["pointer"], "/jobs/1/priority");
    assert!(world.get("/api/v1/jobs").await.column("id").is_empty());

    let good = json!({"jobs": [job(json!({})), job(json!({"name": "b"}))]});
    let key = [("idempotency-key", "batch")];
    let made = world.json(Method::POST, "/api/v1/jobs", good.clone(), &key).await;
    assert_eq!(made.status, StatusCode::CREATED);
    let ids: Vec<_> = made.json()["jobs"].as_array().unwrap().iter().map(|j| j["id"].clone()).collect();
    assert_eq!(ids.len(), 2);
    let again = world.json(Method::POST, "/api/v1/jobs", good, &key).await;
    assert_eq!(again.status, StatusCode::OK);
    assert_eq!(again.json()["jobs"][1], json!({"id": ids[1], "created": false}));
}

/// A batch above the size that is parsed inline, with the largest number of jobs.
#[tokio::test]
async fn a_batch_may_be_as_large_as_its_limit() {
    let world = World::new().await;
    let max = model::limits::BATCH_JOBS_MAX;
    let full = world.post("/api/v1/jobs", json!({"jobs": vec![job(json!({})); max]})).await;
    assert_eq!(full.status, StatusCode::CREATED, "{}", full.text());
    assert_eq!(full.json()["jobs"].as_array().unwrap().len(), max);
    let more = world.post("/api/v1/jobs", json!({"jobs": vec![job(json!({})); max + 1]})).await;
    assert_eq!(more.code(), "422 invalid_spec");
    assert!(more.text().contains("expected at most 10000"), "{}", more.text());
}

#[tokio::test]
async fn a_dry_run_returns_every_default_and_stores_nothing() {
    let world = World::new().await;
    let one = world.post("/api/v1/jobs?dry_run=true", job(json!({}))).await;
    assert_eq!(one.status, StatusCode::OK);
    assert_eq!(one.json()["priority"], 50);
    assert_eq!(one.json()["owner"], "ann");
    let many = world
        .post(
            "/api/v1/jobs?dry_run=true",
            json!({"jobs": [job(json!({"name": "a"})), job(json!({"name": "b"}))]}),
        )
        .await;
    let names: Vec<_> = many.json()["jobs"].as_array().unwrap().iter().map(|j| j["name"].clone()).collect();
    assert_eq!(names, ["a", "b"]);
    let wrong = world.post("/api/v1/jobs?dry_run=true", job(json!({"priority": 101}))).await;
    assert_eq!(wrong.code(), "422 invalid_spec");
    assert!(world.get("/api/v1/jobs").await.column("id").is_empty());
}

#[tokio::test]
async fn a_job_that_has_not_started_can_be_changed() {
    let world = World::new().await;
    let id = world.submit(json!({"run_at": "2030-01-01T00:00:00Z", "timeout": "5m"})).await;
    let path = format!("/api/v1/jobs/{id}");
    let version = world.get(&path).await.header("etag").to_owned();
    let patch = json!({"priority": 90, "timeout": null, "labels": {"a": "b"}});
    let changed = world.json(Method::PATCH, &path, patch.clone(), &[("if-match", &version)]).await;
    assert_eq!(changed.status, StatusCode::OK, "{}", changed.text());
    assert_eq!(changed.json()["priority"], 90);
    assert_eq!(changed.json()["spec"].get("timeout"), None);
    assert_eq!(changed.json()["labels"], json!({"a": "b"}));
    assert_ne!(changed.header("etag"), version);
    let late = world.json(Method::PATCH, &path, patch, &[("if-match", &version)]).await;
    assert_eq!(late.code(), "412 version_mismatch");
    let wrong = world.json(Method::PATCH, &path, json!({"priority": "high"}), &[]).await;
    assert_eq!(wrong.code(), "422 invalid_spec");
    assert_eq!(wrong.json()["errors"][0]["pointer"], "/priority");
    let moved = world.json(Method::PATCH, &path, json!({"namespace": "other"}), &[]).await;
    assert_eq!(moved.code(), "422 invalid_spec");
}

#[tokio::test]
async fn a_job_that_started_or_ended_cannot_be_changed() {
    let world = World::new().await;
    let mut hands = ManualWorker::join(&world, 1).await;
    let id = world.submit(json!({})).await;
    let path = format!("/api/v1/jobs/{id}");
    let task = hands.start().await;
    let started = world.json(Method::PATCH, &path, json!({"priority": 1}), &[]).await;
    assert_eq!(started.code(), "409 job_started");
    hands.finish(&task, 0).await;
    world.until(&id, "succeeded").await;
    let ended = world.json(Method::PATCH, &path, json!({"priority": 1}), &[]).await;
    assert_eq!(ended.code(), "409 job_ended");
    let unknown =
        world.json(Method::PATCH, "/api/v1/jobs/job_01k9zq3m6c0000000000000000", json!({}), &[]).await;
    assert_eq!(unknown.code(), "404 job_not_found");
}

#[tokio::test]
async fn a_waiting_job_is_cancelled_at_once_and_cancelling_twice_is_no_error() {
    let world = World::new().await;
    let id = world.submit(json!({})).await;
    for _ in 0..2 {
        let answer =
            world.post(&format!("/api/v1/jobs/{id}/cancel"), json!({"reason": "no longer needed"})).await;
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
        assert_eq!(answer.json(), json!({"id": id, "status": "cancelled"}));
    }
    assert_eq!(world.delete(&format!("/api/v1/jobs/{id}")).await.status, StatusCode::OK);
    assert_eq!(world.post(&format!("/api/v1/jobs/{id}/cancel"), Value::Null).await.status, StatusCode::OK);
    let history = world.get(&format!("/api/v1/jobs/{id}/events")).await.json();
    let last = history["items"].as_array().unwrap().last().unwrap().clone();
    assert_eq!((&last["to"], &last["cause"]), (&json!("cancelled"), &json!("cancel_requested")));
    assert_eq!(last["message"], "The job was cancelled.");
    assert!(last["detail"].as_str().unwrap().contains("ann"), "{last}");
}

#[tokio::test]
async fn a_running_job_is_cancelled_once_it_has_stopped() {
    let world = World::new().await;
    let mut hands = ManualWorker::join(&world, 1).await;
    let id = world.submit(json!({})).await;
    let task = hands.start().await;
    for _ in 0..2 {
        let answer = world.delete(&format!("/api/v1/jobs/{id}")).await;
        assert_eq!(answer.status, StatusCode::ACCEPTED, "{}", answer.text());
        assert_eq!(answer.json()["status"], "running");
    }
    let outcome = model::record::Outcome { signal: Some(15), ..Default::default() };
    let stopped = engine::Report::Finished {
        how: engine::input::ExecutionEnd::Stopped,
        outcome,
        usage: Default::default(),
    };
    hands.report(&task, stopped).await;
    world.until(&id, "cancelled").await;
}

#[tokio::test]
async fn a_job_that_ended_otherwise_cannot_be_cancelled() {
    let world = World::new().await;
    let mut hands = ManualWorker::join(&world, 1).await;
    let id = world.submit(json!({})).await;
    let task = hands.start().await;
    hands.finish(&task, 0).await;
    world.until(&id, "succeeded").await;
    let answer = world.post_nothing(&format!("/api/v1/jobs/{id}/cancel")).await;
    assert_eq!(answer.code(), "409 job_ended");
    assert!(answer.text().contains("has already ended (`succeeded`)"), "{}", answer.text());
}

#[tokio::test]
async fn an_ended_job_can_be_retried_as_a_new_job() {
    let world = World::new().await;
    let mut hands = ManualWorker::join(&world, 1).await;
    let key = [("idempotency-key", "once")];
    let body = job(json!({"name": "report", "run_at": "2020-01-01T00:00:00Z"}));
    let id =
        world.json(Method::POST, "/api/v1/jobs", body, &key).await.json()["id"].as_str().unwrap().to_owned();
    let retry = format!("/api/v1/jobs/{id}/retry");
    let task = hands.start().await;
    assert_eq!(world.post_nothing(&retry).await.code(), "409 job_not_ended");
    hands.finish(&task, 3).await;
    let failed = world.until(&id, "failed").await;
    assert_eq!(failed["result"], json!({"exit_code": 3, "error": "exit_code"}));
    let again = world.post_nothing(&retry).await;
    assert_eq!(again.status, StatusCode::CREATED, "{}", again.text());
    let shown = world.get(again.header("location")).await.json();
    assert_eq!(shown["retry_of"], json!(id));
    assert_eq!((&shown["name"], &shown["owner"]), (&json!("report"), &json!("ann")));
    let spec = shown["spec"].as_object().unwrap();
    assert!(!spec.contains_key("run_at") && !spec.contains_key("idempotency_key"), "{spec:?}");
}

#[tokio::test]
async fn a_retry_may_be_repeated_with_its_key() {
    let world = World::new().await;
    let id = world.submit(json!({})).await;
    world.delete(&format!("/api/v1/jobs/{id}")).await;
    let retry = format!("/api/v1/jobs/{id}/retry");
    let key = [("idempotency-key", "again")];
    let first = world.json(Method::POST, &retry, Value::Null, &key).await;
    let second = world.json(Method::POST, &retry, Value::Null, &key).await;
    assert_eq!((first.status, second.status), (StatusCode::CREATED, StatusCode::OK));
    assert_eq!(first.json()["id"], second.json()["id"]);
}

#[tokio::test]
async fn a_waiting_job_has_reasons_and_an_ended_one_has_none() {
    let world = World::new().await;
    let id = world.submit(json!({})).await;
    let why = world.get(&format!("/api/v1/jobs/{id}/why")).await.json();
    assert_eq!(why["status"], "waiting");
    assert_eq!(why["reasons"][0]["reason"], "no_workers");
    world.delete(&format!("/api/v1/jobs/{id}")).await;
    let why = world.get(&format!("/api/v1/jobs/{id}/why")).await.json();
    assert_eq!(why, json!({"job": id, "status": "cancelled", "reasons": []}));
    let unknown = world.get("/api/v1/jobs/job_01k9zq3m6c0000000000000000/why").await;
    assert_eq!(unknown.code(), "404 job_not_found");
}

#[tokio::test]
async fn the_executions_of_a_job_are_listed_newest_first() {
    let world = World::new().await;
    let mut hands = ManualWorker::join(&world, 1).await;
    let id = world
        .submit(json!({"name": "twice", "retry": {"max_retries": 1, "backoff": {"initial": "1ms"}}}))
        .await;
    for exit_code in [1, 0] {
        let task = hands.start().await;
        hands.finish(&task, exit_code).await;
    }
    world.until(&id, "succeeded").await;
    let list = world.get(&format!("/api/v1/jobs/{id}/executions")).await.json();
    let items = list["items"].as_array().unwrap();
    let shown: Vec<_> =
        items.iter().map(|e| (e["number"].as_u64().unwrap(), e["status"].as_str().unwrap())).collect();
    assert_eq!(shown, [(2, "succeeded"), (1, "failed")]);
    assert_eq!(items[0]["job_name"], "twice");
    let one = world.get(&format!("/api/v1/executions/{}", items[1]["id"].as_str().unwrap())).await.json();
    assert_eq!(one, items[1]);
    let unknown = world.get("/api/v1/jobs/job_01k9zq3m6c0000000000000000/executions").await;
    assert_eq!(unknown.code(), "404 job_not_found");
}

/// C4, D4. Users can download the checkpoint of a task: as bytes, and never as a page of this server.
#[tokio::test]
async fn the_last_checkpoint_of_a_job_is_fetched_as_bytes() {
    use crate::grpc::convert;
    let world = World::new().await;
    let mut hands = ManualWorker::join(&world, 1).await;
    let id = world.post("/api/v1/jobs", job(json!({}))).await.json()["id"].as_str().unwrap().to_owned();
    let task = hands.start().await;
    let path = format!("/api/v1/jobs/{id}/checkpoint");
    assert_eq!(world.get(&path).await.code(), "404 checkpoint_not_found");
    assert_eq!(world.get(&format!("/api/v1/jobs/{id}")).await.json().get("checkpoint"), None);
    let save = convert::checkpoint("checkpoint", b"<script>", "text/html".into(), None).unwrap();
    let (execution, fence, request) = (task.execution, task.fence, Box::new(save));
    let saved = world.services.node.request(|ticket| engine::Input::Task {
        ticket: Some(ticket),
        execution,
        fence,
        request,
    });
    assert_eq!(saved.await, Ok(engine::Reply::CheckpointSaved { version: 1 }));
    let fetched = world.get(&path).await;
    assert_eq!((fetched.status, &*fetched.body), (StatusCode::OK, b"<script>".as_slice()));
    assert_eq!(fetched.header("content-type"), "application/octet-stream");
    assert!(fetched.header("content-disposition").starts_with("attachment"));
    assert_eq!(fetched.header("etag"), "\"1\"");
    let known = world.get(&format!("/api/v1/jobs/{id}")).await.json()["checkpoint"].clone();
    assert_eq!((&known["version"], &known["size_bytes"]), (&json!(1), &json!(8)));
    assert_eq!((&known["content_type"], &known["execution"]), (&json!("text/html"), &json!(1)));
    let nobody = world.get("/api/v1/jobs/job_01k9zq3m6c0000000000000000/checkpoint").await;
    assert_eq!(nobody.code(), "404 job_not_found");
}

/// The start time of the current attempt, not of the first one.
#[tokio::test]
async fn a_job_has_the_start_time_of_its_newest_execution() {
    let world = World::new().await;
    let mut hands = ManualWorker::join(&world, 1).await;
    let id = world.submit(json!({"retry": {"max_retries": 1, "backoff": {"initial": "1ms"}}})).await;
    // The job is running when it is assigned, shortly before its task starts.
    let started = async |executions: u32| {
        super::soon("the start of the execution", async {
            loop {
                let job = world.until(&id, "running").await;
                // Job and execution are read one after the other, so one may be older.
                let has = |field| job.get(field).is_some();
                if job["executions"] == executions && has("started_at") && has("execution_started_at") {
                    return job;
                }
            }
        })
        .await
    };
    let task = hands.start().await;
    let first = started(1).await;
    hands.finish(&task, 4).await;
    let _task = hands.start().await;
    let second = started(2).await;
    assert_eq!(second["started_at"], first["started_at"]);
    assert!(second["execution_started_at"].as_str() > first["execution_started_at"].as_str(), "{second}");
}

/// E6.
#[tokio::test]
async fn what_executions_use_is_listed_and_shown_while_they_run() {
    use model::api::UsageSample;
    use model::{Bytes, Millicores, Timestamp};

    let world = World::new().await;
    let mut hands = ManualWorker::join(&world, 1).await;
    let mut started = Vec::new();
    for name in ["train", "mail"] {
        let job = world.submit(json!({"name": name, "resources": {"cpu": "2"}})).await;
        started.push((job.parse::<model::JobId>().unwrap(), hands.start().await));
        world.until(&job, "running").await;
    }
    let measured = |index: usize, cpu, memory| crate::usage::Measured {
        execution: started[index].1.execution,
        job: started[index].0,
        sample: UsageSample {
            at: Timestamp::from_micros(1_700_000_000_000_000),
            cpu: Millicores(cpu),
            memory: Bytes(memory),
            read_bytes_per_second: 0,
            written_bytes_per_second: 0,
            processes: 1,
        },
    };
    let batch = vec![measured(0, 1_500, 1 << 20), measured(1, 20, 1 << 30)];
    world.services.usage.record(hands.id, batch.clone());
    // A worker cannot speak for the executions of others.
    world.services.usage.record(model::WorkerId::from_bits(9 << 80), batch);
    let listed = world.get("/api/v1/usage").await;
    assert_eq!(listed.column("job_name"), ["train", "mail"]);
    assert_eq!(listed.json()["items"][0]["usage"]["cpu"], "1500m");
    assert_eq!(listed.json()["items"][0]["cpu_request"], "2");
    assert_eq!(world.get("/api/v1/usage?order=memory&limit=1").await.column("job_name"), ["mail"]);
    assert_eq!(world.get("/api/v1/usage?name=mail").await.column("job_name"), ["mail"]);
    assert_eq!(world.get("/api/v1/usage?namespace=other").await.column("job_name"), Vec::<String>::new());
    let shown = world.get(&format!("/api/v1/executions/{}/usage", started[1].1.execution)).await.json();
    assert_eq!(shown["items"][0]["memory"], "1GiB");
}
