//! Requests for workflows and runs: URLs, bodies and retries.

use client::{RunFilter, WorkflowFilter, WorkflowRef};
use futures::TryStreamExt;
use model::api::{CancelRun, MarkStep, RetryRun, StartRun};
use model::{RunId, RunStatus, StepStatus, WorkflowSpec};
use serde_json::{Value, json};

use crate::fake::Fake;

const WORKFLOW: &str = "wfl_01k9zq3m6c0000000000000000";
const RUN: &str = "run_01k9zq3m6c0000000000000000";

fn named(name: &str) -> WorkflowRef {
    WorkflowRef { name: name.into(), namespace: Some("pay".into()) }
}

fn id() -> RunId {
    RUN.parse().unwrap()
}

/// Run as the API returns it.
fn run(version: u64, status: &str) -> Value {
    let at = "2026-11-21T08:00:00Z";
    json!({
        "id": RUN, "workflow_id": WORKFLOW, "workflow": "nightly", "namespace": "pay", "generation": 1, "number": 3,
        "status": status, "section": "steps", "version": version, "created_at": at, "updated_at": at,
        "parameters": {}, "actor": "ann", "steps": {"succeeded": 1},
    })
}

fn steps(version: u64) -> Value {
    let step = json!({
        "name": "load", "number": 0, "section": "steps", "kind": "job", "join": "all_success", "for_each": false,
        "status": "running",
    });
    json!({"version": version, "steps": [step]})
}

#[tokio::test]
async fn a_start_is_repeated_with_its_first_key_until_it_is_answered() {
    let fake = Fake::default();
    fake.refuses(503, "outcome_unknown", None).drops_connection().answers(201, run(1, "running"));
    let client = fake.start().await;
    let how = StartRun { note: Some("by hand".into()), ..StartRun::default() };
    assert_eq!(client.start_run(&named("nightly"), &how).await.unwrap().id, id());
    let asked = fake.requests();
    let keys: Vec<_> = asked.iter().map(|a| a.header("idempotency-key").map(str::to_owned)).collect();
    assert!(keys.len() == 3 && keys[0].is_some() && keys.iter().all(|key| *key == keys[0]), "{keys:?}");
    assert_eq!(asked[0].json(), json!({"note": "by hand"}));
    assert_eq!(asked[0].line, "POST /api/v1/workflows/nightly/start?namespace=pay");
}

/// A second retry would be another run.
#[tokio::test]
async fn a_retry_is_not_repeated_when_its_outcome_is_unknown() {
    let fake = Fake::default();
    fake.refuses(503, "outcome_unknown", None);
    let client = fake.start().await;
    let error = client.retry_run(id(), &RetryRun::default()).await.unwrap_err();
    assert_eq!((error.code(), fake.requests().len()), (Some("outcome_unknown"), 1));
}

#[tokio::test]
async fn filters_become_parameters_and_names_stay_one_segment() {
    let fake = Fake::default();
    fake.answers(200, json!({"items": []}))
        .answers(200, json!({"items": [run(1, "failed")], "next_cursor": "c"}));
    fake.answers(200, json!({"items": []})).answers(200, json!({"items": []}));
    let client = fake.start().await;
    let filter = WorkflowFilter {
        text: Some("night".into()),
        labels: vec![("a".into(), "b".into())],
        runs: Some(5),
        ..WorkflowFilter::default()
    };
    assert_eq!(client.workflows(filter).try_collect::<Vec<_>>().await.unwrap(), []);
    let filter = RunFilter {
        status: vec![RunStatus::Failed, RunStatus::Cancelled],
        workflow: Some("nightly".into()),
        caller: Some(id()),
        ..RunFilter::default()
    };
    assert_eq!(client.runs(filter).try_collect::<Vec<_>>().await.unwrap().len(), 1);
    assert_eq!(client.run_elements(id(), "a/b", &[]).try_collect::<Vec<_>>().await.unwrap(), []);
    let lines = fake.lines();
    assert_eq!(lines[0], "GET /api/v1/workflows?text=night&runs=5&label=a%3Db");
    assert_eq!(lines[1], format!("GET /api/v1/runs?status=failed%2Ccancelled&workflow=nightly&caller={RUN}"));
    assert_eq!(lines[2], format!("{}&cursor=c", lines[1]));
    assert_eq!(lines[3], format!("GET /api/v1/runs/{RUN}/steps/a%2Fb/elements"));
}

/// Each action has its own URL and body.
#[tokio::test]
async fn run_actions_use_the_routes_of_the_api() {
    let fake = Fake::default();
    for _ in 0..7 {
        fake.answers(200, run(2, "running"));
    }
    fake.answers(200, json!({"steps": 1})).answers(200, json!({"steps": 2}));
    let client = fake.start().await;
    client.cancel_run(id(), &CancelRun { reason: None, skip_finally: true }).await.unwrap();
    client.pause_run(id(), Some("wait")).await.unwrap();
    client.resume_run(id()).await.unwrap();
    client.retry_run(id(), &RetryRun { from: Some("load".into()), ..RetryRun::default() }).await.unwrap();
    let mark = MarkStep { status: StepStatus::Skipped, note: None };
    client.mark_step(id(), "load", &mark).await.unwrap();
    client.approve_step(id(), "gate", Some("go")).await.unwrap();
    client.reject_step(id(), "gate", None).await.unwrap();
    assert_eq!(client.send_event(id(), "paid", json!({"sum": 3}).as_object()).await.unwrap().steps, 1);
    assert_eq!(client.send_event(id(), "signed", None).await.unwrap().steps, 2);
    let told: Vec<_> = fake
        .requests()
        .iter()
        .map(|asked| {
            let body = if asked.body.is_empty() { Value::Null } else { asked.json() };
            format!("{} {body}", asked.line.replace(&format!("POST /api/v1/runs/{RUN}/"), ""))
        })
        .collect();
    assert_eq!(
        told,
        [
            r#"cancel {"skip_finally":true}"#,
            r#"pause {"note":"wait"}"#,
            "resume null",
            r#"retry {"from":"load"}"#,
            r#"steps/load/mark {"status":"skipped"}"#,
            r#"steps/gate/approve {"note":"go"}"#,
            "steps/gate/reject {}",
            r#"events/paid {"sum":3}"#,
            "events/signed null",
        ]
    );
}

#[tokio::test]
async fn a_workflow_is_put_under_its_name_with_the_expected_version() {
    let fake = Fake::default();
    for _ in 0..2 {
        fake.refuses(412, "version_mismatch", None);
    }
    let client = fake.start().await;
    let spec = WorkflowSpec::new("nightly", Vec::new());
    client.put_workflow(&spec, Some(0)).await.unwrap_err();
    client.put_workflow(&spec, Some(4)).await.unwrap_err();
    let asked = fake.requests();
    assert_eq!(asked[0].line, "PUT /api/v1/workflows/nightly?namespace=default");
    assert_eq!((asked[0].header("if-none-match"), asked[1].header("if-match")), (Some("*"), Some("\"4\"")));
}

/// Several changes between two reads are one item. Without a feed, items are late but correct.
#[tokio::test]
async fn a_run_is_watched_with_its_steps_until_it_has_ended() {
    let fake = Fake::default();
    fake.answers(200, run(1, "running")).refuses(403, "forbidden", None);
    fake.answers(200, run(1, "running")).answers(200, steps(1));
    fake.answers(200, run(1, "running"));
    fake.answers(200, run(4, "succeeded")).answers(200, steps(4));
    let client = fake.start().await;
    let views: Vec<_> = client.watch_run_steps(id()).try_collect().await.unwrap();
    let seen: Vec<_> = views.iter().map(|view| (view.run.status, view.steps.version)).collect();
    assert_eq!(seen, [(RunStatus::Running, 1), (RunStatus::Succeeded, 4)]);
    assert_eq!(fake.lines()[1], "GET /api/v1/events?namespace=pay&type=run%2Cstep");
}
