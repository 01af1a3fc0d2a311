//! Values of secrets over gRPC: only the worker that holds an execution gets them.

use model::spec::SecretReference;
use model::{JobSpec, JobStatus};
use proto::v1::{GetSecretsRequest, SecretValue};
use reqwest::Method;
use serde_json::json;
use server::testing::{self, FakeWorker, Plan, Task};
use tonic::{Code, Status};

use crate::harness::{Server, call, job, soon, submit};

const VALUE: &str = "correct-horse-battery";

async fn put(server: &Server, value: &str) {
    let body = json!({"name": "db", "values": {"password": value, "user": "belfry"}});
    let (status, answer) = call(server, Method::PUT, "secrets/db", &body).await;
    assert_eq!(status, 200, "{answer}");
}

fn with_secrets() -> JobSpec {
    let reference = |key: &str, env: &str| SecretReference {
        secret: "db".into(),
        key: key.into(),
        env: Some(env.into()),
        file: None,
    };
    JobSpec { secrets: vec![reference("password", "A"), reference("password", "B")], ..job() }
}

fn request(worker: &FakeWorker, task: &Task) -> GetSecretsRequest {
    GetSecretsRequest {
        worker_id: worker.id().to_string(),
        session: worker.session(),
        execution_id: task.execution.clone(),
        fence: task.fence,
    }
}

async fn get(server: &Server, token: &str, request: GetSecretsRequest) -> Result<Vec<SecretValue>, Status> {
    let mut client = testing::client(&server.url()).await.unwrap();
    let answer = client.get_secrets(testing::with_token(request, token)).await?;
    Ok(answer.into_inner().values)
}

/// H2. The values are those of the time of the request, and only those that the job refers to.
#[tokio::test]
async fn the_worker_of_an_execution_gets_the_current_values_of_its_job() {
    let server = Server::start().await;
    put(&server, VALUE).await;
    let worker = server.worker(server.fake().plan(|_| Plan::Run)).await;
    submit(server.node(), with_secrets(), None).await.unwrap();
    let task = soon("the job to run", worker.next_running()).await;
    assert!(!String::from_utf8_lossy(&task.spec).contains(VALUE));
    let token = server.worker_token();
    let values = get(&server, &token, request(&worker, &task)).await.unwrap();
    let shown: Vec<_> = values.iter().map(|it| (it.key.as_str(), &*it.value, it.version)).collect();
    assert_eq!(shown, [("password", VALUE.as_bytes(), 1)], "once, and no other key");
    assert!(!format!("{values:?}").contains(VALUE), "{values:?}");
    put(&server, "new").await;
    let values = get(&server, &token, request(&worker, &task)).await.unwrap();
    assert_eq!((&*values[0].value, values[0].version), (b"new".as_slice(), 2));
    let (status, _) = call(&server, Method::DELETE, "secrets/db", &json!({})).await;
    assert_eq!(status, 204);
    let missing = get(&server, &token, request(&worker, &task)).await.unwrap_err();
    assert_eq!(missing.code(), Code::NotFound);
    insta::assert_snapshot!(missing.message(), @"secret `db` does not exist in namespace `default`");
}

/// H2. Workers share a token here, so a token alone is no right to the secrets of the executions of others.
#[tokio::test]
async fn another_caller_gets_no_value_of_an_execution() {
    let server = Server::start().await;
    put(&server, VALUE).await;
    let worker = server.worker(server.fake().plan(|_| Plan::Run)).await;
    let made = submit(server.node(), with_secrets(), None).await.unwrap();
    let task = soon("the job to run", worker.next_running()).await;
    let other = server.worker(server.fake().plan(|_| Plan::Run)).await;
    let token = server.worker_token();
    let own = request(&worker, &task);
    let (status, minted) =
        call(&server, Method::POST, "tokens", &json!({"kind": "worker", "name": "other"})).await;
    assert_eq!(status, 201, "{minted}");
    let other_token = minted["secret"].as_str().unwrap();
    let admin = std::fs::read_to_string(&server.running.admin_token_path).unwrap();
    for (what, token, request, code) in [
        ("another worker", &*token, request(&other, &task), Code::FailedPrecondition),
        (
            "another session",
            &token,
            GetSecretsRequest { session: own.session + 100, ..own.clone() },
            Code::PermissionDenied,
        ),
        (
            "the session of another worker",
            &token,
            GetSecretsRequest { session: other.session(), ..own.clone() },
            Code::PermissionDenied,
        ),
        (
            "another fence",
            &token,
            GetSecretsRequest { fence: own.fence + 1, ..own.clone() },
            Code::FailedPrecondition,
        ),
        ("another token", other_token, own.clone(), Code::PermissionDenied),
        ("an admin", admin.trim(), own.clone(), Code::PermissionDenied),
        ("no token", "x", own.clone(), Code::Unauthenticated),
        (
            "no worker",
            &token,
            GetSecretsRequest { worker_id: "x".into(), ..own.clone() },
            Code::InvalidArgument,
        ),
    ] {
        let refused = get(&server, token, request).await.unwrap_err();
        assert_eq!(refused.code(), code, "{what}: {refused}");
        assert!(!refused.message().contains(VALUE), "{what}");
    }
    assert!(get(&server, &token, own.clone()).await.is_ok());
    worker.exit(&task, 0);
    server.until_status(made.job, JobStatus::Succeeded).await;
    assert_eq!(get(&server, &token, own).await.unwrap_err().code(), Code::FailedPrecondition, "it has ended");
}
