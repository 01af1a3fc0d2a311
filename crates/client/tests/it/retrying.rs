//! Retries of requests: which requests are retried, and with which idempotency keys.
//!
//! `Fake` is an HTTP server with prepared answers: a response, a refusal with a code, or a closed connection.
//! A test sends one request through the client and compares the requests that the server received, with their
//! headers and bodies.
//!
//! The last tests cover what a retry must preserve: the token, the pages of a list, conditions on versions,
//! and the content of an uploaded file, which is read again for each attempt.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use client::{Client, Error, Timeouts};
use model::{JobSpec, JobStatus};
use serde_json::json;

use crate::fake::{Fake, JOB, job, submitted};

fn spec() -> JobSpec {
    JobSpec::command(["true"])
}

#[tokio::test]
async fn a_submission_is_repeated_with_its_first_key_until_it_is_answered() {
    let fake = Fake::default();
    fake.refuses(503, "loading", Some(0))
        .refuses(503, "outcome_unknown", None)
        .drops_connection()
        .answers(201, submitted());
    let client = fake.start().await;

    assert_eq!(client.submit(&spec()).await.unwrap().id.to_string(), JOB);

    let keys: Vec<_> =
        fake.requests().iter().map(|a| a.header("idempotency-key").map(str::to_owned)).collect();
    assert_eq!(keys.len(), 4);
    assert!(keys[0].as_ref().is_some_and(|k| k.len() > 32), "{keys:?}");
    assert!(keys.iter().all(|k| *k == keys[0]), "{keys:?}");
}

#[tokio::test]
async fn two_submissions_have_two_keys() {
    let fake = Fake::default();
    fake.answers(201, submitted()).answers(201, submitted());
    let client = fake.start().await;
    client.submit(&spec()).await.unwrap();
    client.submit(&spec()).await.unwrap();
    let asked = fake.requests();
    assert_ne!(asked[0].header("idempotency-key"), asked[1].header("idempotency-key"));
}

#[tokio::test]
async fn a_key_in_the_spec_replaces_the_random_key() {
    let fake = Fake::default();
    fake.answers(201, submitted());
    let client = fake.start().await;
    client.submit(&JobSpec { idempotency_key: Some("köln".into()), ..spec() }).await.unwrap();
    let asked = &fake.requests()[0];
    assert_eq!(asked.header("idempotency-key"), None);
    assert_eq!(asked.json()["idempotency_key"], "köln");
}

#[tokio::test]
async fn a_batch_has_a_key_for_its_jobs_without_one() {
    let fake = Fake::default();
    fake.answers(201, json!({"jobs": [submitted(), submitted()]}));
    let client = fake.start().await;
    assert_eq!(client.submit_all(&[spec(), spec()]).await.unwrap().len(), 2);
    assert!(fake.requests()[0].header("idempotency-key").is_some());
    assert_eq!(fake.requests()[0].json()["jobs"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn a_retry_of_a_job_is_not_repeated_when_its_outcome_is_unknown() {
    let fake = Fake::default();
    fake.refuses(503, "outcome_unknown", None);
    let client = fake.start().await;
    let error = client.retry_job(JOB.parse().unwrap()).await.unwrap_err();
    assert_eq!(error.code(), Some("outcome_unknown"));
    assert_eq!(fake.requests().len(), 1);
}

#[tokio::test]
async fn a_retry_of_a_job_is_repeated_if_it_was_not_executed() {
    let fake = Fake::default();
    fake.refuses(503, "busy", Some(0)).answers(201, submitted());
    let client = fake.start().await;
    client.retry_job(JOB.parse().unwrap()).await.unwrap();
    assert_eq!(fake.requests().len(), 2);
}

#[tokio::test]
async fn a_refusal_is_returned_unchanged_and_not_repeated() {
    let fake = Fake::default();
    fake.answers(
        422,
        json!({"type": "/docs#invalid", "title": "invalid", "status": 422, "code": "invalid_spec",
               "detail": "2 fields are wrong", "hint": "correct them",
               "errors": [{"pointer": "/priority", "path": "priority", "detail": "is out of range"}]}),
    );
    let client = fake.start().await;
    let error = client.submit(&spec()).await.unwrap_err();
    assert_eq!(error.to_string(), "2 fields are wrong");
    assert_eq!(error.help().as_deref(), Some("correct them"));
    let Error::Problem(problem) = error else { panic!("not a problem: {error:?}") };
    assert_eq!(problem.errors[0].path, "priority");
    assert_eq!(fake.requests().len(), 1);
}

#[tokio::test]
async fn a_refusal_without_a_problem_document_has_its_status() {
    let fake = Fake::default();
    let client = fake.start().await;
    let error = client.job(JOB.parse().unwrap()).await.unwrap_err();
    assert_eq!(error.status(), Some(418));
    assert!(error.to_string().contains("responded 418"), "{error}");
}

#[tokio::test]
async fn a_response_of_another_program_is_a_protocol_error() {
    let fake = Fake::default();
    fake.answers(200, json!({"hello": "world"}));
    let client = fake.start().await;
    let error = client.job(JOB.parse().unwrap()).await.unwrap_err();
    assert!(matches!(error, Error::Protocol { .. }), "{error:?}");
}

#[tokio::test]
async fn missing_server_is_unreachable_and_retries_are_reported() {
    client::install_crypto();
    let port = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    let waits = Arc::new(Mutex::new(0));
    let seen = waits.clone();
    let patience = Timeouts { retry_for: Duration::from_millis(300), ..Timeouts::default() };
    let client = Client::with_patience(&format!("http://127.0.0.1:{port}"), None, patience)
        .unwrap()
        .on_retry(Arc::new(move |_, _| *seen.lock().unwrap() += 1));
    let error = client.me().await.unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }), "{error:?}");
    assert!(*waits.lock().unwrap() >= 2);
}

#[tokio::test]
async fn a_server_that_never_answers_causes_a_timeout() {
    client::install_crypto();
    // Connections are accepted by the backlog, but no response is sent.
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let patience = Timeouts {
        retry_for: Duration::ZERO,
        response_timeout: Duration::from_millis(200),
        ..Timeouts::default()
    };
    let url = format!("http://{}", silent.local_addr().unwrap());
    let client = Client::with_patience(&url, None, patience).unwrap();
    assert!(matches!(client.me().await.unwrap_err(), Error::Timeout { .. }));
}

#[tokio::test]
async fn the_token_is_sent_and_not_carried_over_by_redirects() {
    let fake = Fake::default();
    fake.answers_with(|| {
        axum::http::Response::builder()
            .status(307)
            .header("location", "http://127.0.0.1:9/elsewhere")
            .body(axum::body::Body::empty())
            .unwrap()
    });
    let client = fake.start().await;
    let error = client.me().await.unwrap_err();
    assert!(matches!(error, Error::Protocol { .. }), "{error:?}");
    assert_eq!(fake.requests()[0].header("authorization"), Some("Bearer bf_admin_1_secret"));
}

#[tokio::test]
async fn a_list_is_read_over_all_of_its_pages() {
    use futures::TryStreamExt;

    let fake = Fake::default();
    fake.answers(200, json!({"items": [job(1, "waiting", 0)], "next_cursor": "abc"}))
        .answers(200, json!({"items": [job(2, "running", 1)]}));
    let client = fake.start().await;
    let filter = client::JobFilter {
        status: vec![JobStatus::Waiting, JobStatus::Running],
        labels: vec![("team".into(), "a&b".into()), ("x".into(), "y".into())],
        ..client::JobFilter::default()
    };
    let jobs: Vec<_> = client.jobs(filter).try_collect().await.unwrap();
    assert_eq!(jobs.len(), 2);
    insta::assert_debug_snapshot!(fake.lines(), @r#"
    [
        "GET /api/v1/jobs?status=waiting%2Crunning&label=team%3Da%26b&label=x%3Dy",
        "GET /api/v1/jobs?status=waiting%2Crunning&cursor=abc&label=team%3Da%26b&label=x%3Dy",
    ]
    "#);
}

#[tokio::test]
async fn new_queue_is_created_only_if_it_does_not_exist() {
    let fake = Fake::default();
    fake.refuses(412, "version_mismatch", None).refuses(412, "version_mismatch", None);
    let client = fake.start().await;
    let settings = model::queue::QueueSettings::default();
    client.set_queue("mail", &settings, Some(0)).await.unwrap_err();
    client.set_queue("mail", &settings, Some(3)).await.unwrap_err();
    let asked = fake.requests();
    assert_eq!((asked[0].header("if-none-match"), asked[0].header("if-match")), (Some("*"), None));
    assert_eq!((asked[1].header("if-none-match"), asked[1].header("if-match")), (None, Some("\"3\"")));
}

#[tokio::test]
async fn file_is_read_again_for_each_attempt() {
    let fake = Fake::default();
    fake.refuses(503, "busy", Some(0)).answers(
        201,
        json!({"namespace": "default", "name": "tool", "sha256": "ab", "size_bytes": 5,
               "created_at": "2026-11-21T08:00:00Z", "created_by": "me"}),
    );
    let client = fake.start().await;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tool");
    std::fs::write(&path, "hello").unwrap();
    client.put_artifact_file("tool", None, &path).await.unwrap();
    assert!(fake.requests().iter().all(|a| a.body == "hello"));
    let missing = client.put_artifact_file("tool", None, &dir.path().join("gone")).await.unwrap_err();
    assert!(matches!(missing, Error::File { .. }), "{missing:?}");
}
