//! Workflows and their runs.
//!
//! [`workflow`] is a workflow of two steps, with changes as JSON. In order: creation and validation, runs
//! from start to end, retries, requests about a run, approvals and events, elements of lists, and what lists
//! of runs show.
//!
//! A test ends the jobs of steps with a [`ManualWorker`], and compares the statuses of all steps. The rules
//! of steps are tested in the engine; runs of schedules are in `schedules_of_workflows`.

use axum::http::{Method, StatusCode};
use model::record::Outcome;
use serde_json::{Value, json};
use store::faulty::Operation;

use super::{Answer, ManualWorker, World};

const ONE: &str = "/api/v1/workflows/nightly";

fn job() -> Value {
    json!({"run": {"process": {"command": ["true"]}}})
}

/// Returns a workflow of two steps, with changes.
fn workflow(change: Value) -> Value {
    let mut workflow = json!({
        "name": "nightly",
        "steps": [{"name": "extract", "job": job()}, {"name": "load", "needs": ["extract"], "job": job()}],
    });
    workflow.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
    workflow
}

async fn put(world: &World, change: Value) -> Answer {
    world.json(Method::PUT, ONE, workflow(change), &[]).await
}

async fn start(world: &World, body: Value) -> String {
    let answer = world.post(&format!("{ONE}/start"), body).await;
    assert_eq!(answer.status, StatusCode::CREATED, "{}", answer.text());
    answer.json()["id"].as_str().unwrap().to_owned()
}

async fn run(world: &World, id: &str) -> Value {
    world.get(&format!("/api/v1/runs/{id}")).await.json()
}

/// Returns name and status of each step.
async fn steps(world: &World, id: &str) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let steps = world.get(&format!("/api/v1/runs/{id}/steps")).await.json();
    steps["steps"].as_array().unwrap().iter().map(|s| (text(&s["name"]), text(&s["status"]))).collect()
}

fn stand(steps: &[(&str, &str)]) -> Vec<(String, String)> {
    steps.iter().map(|(name, status)| ((*name).to_owned(), (*status).to_owned())).collect()
}

async fn until_over(world: &World, id: &str) -> Value {
    super::soon("the end of the run", async {
        loop {
            let run = run(world, id).await;
            if run["finished_at"].is_string() {
                return run;
            }
            tokio::task::yield_now().await;
        }
    })
    .await
}

fn paths(answer: &Answer) -> Vec<String> {
    let errors = answer.json()["errors"].as_array().unwrap().clone();
    errors.iter().map(|error| error["path"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn a_workflow_is_created_found_changed_and_deleted() {
    let world = World::new().await;
    let created = put(&world, json!({"owner": "ann", "labels": {"team": "pay"}})).await;
    assert_eq!(
        (created.status, created.header("etag")),
        (StatusCode::CREATED, "\"1\""),
        "{}",
        created.text()
    );
    let id = created.json()["id"].as_str().unwrap().to_owned();
    assert_eq!(created.header("location"), format!("/api/v1/workflows/{id}"));
    assert_eq!(created.json()["spec"]["steps"][1]["job"]["name"], "nightly.load");
    assert_eq!(created.json()["steps"], 2);

    let same = put(&world, json!({"owner": "ann", "labels": {"team": "pay"}})).await;
    assert_eq!((same.status, same.header("etag")), (StatusCode::OK, "\"1\""));
    let changed = put(&world, json!({"failure": "fail_fast"})).await.json();
    assert_eq!((&changed["generation"], &changed["version"]), (&json!(2), &json!(2)));
    for path in [ONE.to_owned(), format!("/api/v1/workflows/{id}")] {
        assert_eq!(world.get(&path).await.json(), changed);
    }
    let first = world.get(&format!("{ONE}?generation=1")).await.json();
    assert_eq!((&first["spec"]["owner"], &first["generation"]), (&json!("ann"), &json!(2)));
    assert_eq!(world.get(&format!("{ONE}?generation=3")).await.code(), "404 workflow_not_found");

    let list = world.get("/api/v1/workflows?text=NIGHT&runs=5").await;
    assert_eq!(list.column("name"), ["nightly"]);
    assert_eq!((list.json()["items"][0].get("spec"), &list.json()["items"][0]["recent"]), (None, &json!([])));
    for nothing in ["text=day", "owner=bob", "namespace=other", "label=a%3Db"] {
        let list = world.get(&format!("/api/v1/workflows?{nothing}")).await;
        assert_eq!(list.column("name"), Vec::<String>::new(), "{nothing}");
    }
    let stale = world.json(Method::PUT, ONE, workflow(json!({})), &[("if-match", "\"1\"")]).await;
    assert_eq!(stale.code(), "412 version_mismatch");
    assert_eq!(world.delete(ONE).await.status, StatusCode::NO_CONTENT);
    assert_eq!(world.get(ONE).await.code(), "404 workflow_not_found");
}

/// All errors are reported at once, with cycles step by step.
#[tokio::test]
async fn every_wrong_field_of_a_workflow_is_named() {
    let world = World::new().await;
    let wrong = json!({"steps": [
        {"name": "a", "needs": ["c"], "job": job()},
        {"name": "b", "needs": ["a"], "job": job(), "when": "steps.a.output.x > nothing"},
        {"name": "c", "needs": ["b", "x"], "job": job()},
        {"name": "d", "workflow": {"name": "nowhere"}},
    ]});
    let refused = put(&world, wrong).await;
    assert_eq!(refused.code(), "422 invalid_spec");
    insta::assert_snapshot!(
        refused.json()["errors"]
            .as_array()
            .unwrap()
            .iter()
            .map(|e| format!("{}: {}\n", e["path"].as_str().unwrap(), e["detail"].as_str().unwrap()))
            .collect::<String>()
    );
    let calls = json!({"steps": [{"name": "d", "workflow": {"name": "nowhere"}}]});
    assert_eq!(paths(&put(&world, calls).await), ["steps[0].workflow.name"]);
    assert_eq!(world.get(ONE).await.code(), "404 workflow_not_found", "nothing of it was stored");
}

/// Workflows of one request may call each other, and a dry run changes nothing.
#[tokio::test]
async fn several_workflows_are_applied_together() {
    let world = World::new().await;
    let calling = workflow(
        json!({"steps": [{"name": "inner", "workflow": {"name": "other"}}], "parameters": {"x": {"type": "string", "default": ""}}}),
    );
    let called = workflow(json!({"name": "other"}));
    let body = json!({"workflows": [calling, called]});
    let path = "/api/v1/workflows/apply";
    let dry = world.post(&format!("{path}?dry_run=true"), body.clone()).await;
    assert_eq!(dry.status, StatusCode::OK, "{}", dry.text());
    assert_eq!(dry.json()["workflows"][0]["change"], "created");
    assert_eq!(world.get(ONE).await.code(), "404 workflow_not_found");
    let applied = world.post(path, body.clone()).await.json();
    assert_eq!(applied["workflows"][0]["warnings"][0]["code"], "unused_parameter");
    let again = world.post(path, body).await.json();
    assert_eq!(
        again["workflows"].as_array().unwrap().iter().map(|w| &w["change"]).collect::<Vec<_>>(),
        ["unchanged"; 2]
    );
}

/// C1. Steps run one after the other, and each job has its step.
#[tokio::test]
async fn a_run_goes_from_step_to_step_and_ends() {
    let world = World::new().await;
    let mut hands = ManualWorker::join(&world, 1).await;
    put(&world, json!({"outputs": {"rows": "${{ steps.load.output }}"}})).await;
    let id = start(&world, json!({"note": "by hand"})).await;
    assert_eq!(steps(&world, &id).await, stand(&[("extract", "running"), ("load", "pending")]));
    let why = world.get(&format!("/api/v1/runs/{id}/steps/load/why")).await.json();
    assert_eq!((&why["status"], &why["reasons"][0]["reason"]), (&json!("pending"), &json!("upstream")));
    let jobs = world.get(&format!("/api/v1/jobs?run={id}")).await;
    assert_eq!(jobs.json()["items"][0]["step"]["name"], "extract");

    let task = hands.start().await;
    hands.finish(&task, 0).await;
    let task = hands.start().await;
    assert_eq!(steps(&world, &id).await, stand(&[("extract", "succeeded"), ("load", "running")]));
    let outcome = Outcome { exit_code: Some(0), output: Some("{\"n\":7}".into()), ..Outcome::default() };
    let how = engine::input::ExecutionEnd::Succeeded;
    hands.report(&task, engine::Report::Finished { how, outcome, usage: Default::default() }).await;
    let ended = until_over(&world, &id).await;
    assert_eq!((&ended["status"], &ended["output"]), (&json!("succeeded"), &json!({"rows": {"n": 7}})));
    assert_eq!(
        (&ended["number"], &ended["note"], &ended["actor"]),
        (&json!(1), &json!("by hand"), &json!("ann"))
    );
    assert_eq!(ended["steps"]["succeeded"], 2);
    let words: Vec<_> =
        ended["history"].as_array().unwrap().iter().map(|entry| entry["to"].clone()).collect();
    assert_eq!(words, ["running", "succeeded"]);
    let listed = world.get("/api/v1/runs?workflow=nightly&status=succeeded,failed").await;
    assert_eq!(listed.column("id"), std::slice::from_ref(&id));
    assert_eq!(listed.json()["items"][0].get("spec"), None);
    let recent = world.get("/api/v1/workflows?runs=1").await.json()["items"][0]["recent"].clone();
    assert_eq!((&recent[0]["id"], &recent[0]["status"]), (&json!(id), &json!("succeeded")));
    let over = world.get(&format!("/api/v1/runs/{id}/steps/load/why")).await.json();
    assert_eq!((&over["status"], &over["reasons"]), (&json!("succeeded"), &json!([])));
    let all = world.get(&format!("/api/v1/runs/{id}/why")).await.json();
    assert_eq!(all, json!({"run": id, "steps": [], "more": 0}));
}

/// C1. Workflow `then` is triggered by each end of `nightly`; both show it, and why nothing was started.
#[tokio::test]
async fn the_end_of_a_run_starts_another_one() {
    let world = World::new().await;
    let mut hands = ManualWorker::join(&world, 1).await;
    let then = workflow(json!({"name": "then", "triggers": [{"workflow": "nightly"}]}));
    let created = world.json(Method::PUT, "/api/v1/workflows/then", then, &[]).await;
    assert_eq!(created.json()["warnings"][0]["code"], "no_workflow", "{}", created.text());
    let circle = put(&world, json!({"triggers": [{"workflow": "then", "on": "failure"}]})).await;
    let warning = &circle.json()["warnings"][0];
    assert_eq!(warning["code"], "starts_itself");
    assert_eq!(
        warning["message"],
        "triggers[0] closes a trigger cycle: `nightly`, which starts `then`, which starts `nightly`; the chain stops after 32 runs"
    );
    let one_step = json!({"steps": [{"name": "extract", "job": job()}]});
    put(&world, one_step).await;
    let id = start(&world, json!({})).await;
    let why = world.get(&format!("/api/v1/runs/{id}/why?limit=1")).await.json();
    assert_eq!((&why["steps"][0]["step"], &why["more"]), (&json!("extract"), &json!(0)));
    let task = hands.start().await;
    hands.finish(&task, 0).await;
    let ended = until_over(&world, &id).await;
    let started = ended["started_runs"][0].as_str().unwrap().to_owned();
    let run = run(&world, &started).await;
    assert_eq!((&run["workflow"], &run["actor"]), (&json!("then"), &json!("workflow nightly")));
    assert_eq!(
        (&run["trigger"]["ended"][0]["run_id"], &run["trigger"]["chain"]),
        (&json!(id), &json!(["nightly"]))
    );
    let then = world.get("/api/v1/workflows/then").await.json();
    assert_eq!(
        (&then["triggers"][0]["runs"], &then["triggers"][0]["last_run"]),
        (&json!(1), &json!(started))
    );
    let paused = workflow(json!({"name": "then", "triggers": [{"workflow": "nightly", "paused": true}]}));
    world.json(Method::PUT, "/api/v1/workflows/then", paused, &[]).await;
    let cancelled = world.post(&format!("/api/v1/runs/{started}/cancel"), json!({})).await;
    assert_eq!(cancelled.status, StatusCode::OK, "{}", cancelled.text());
    let second = start(&world, json!({})).await;
    world.post(&format!("/api/v1/runs/{second}/cancel"), json!({})).await;
    let then = world.get("/api/v1/workflows/then").await.json();
    assert_eq!(then["triggers"][0]["refused"], 0, "a cancel is not a success");
}

#[tokio::test]
async fn parameters_are_validated_and_completed_in_a_plan() {
    let world = World::new().await;
    let steps = json!([{
        "name": "load",
        "for_each": {"over": {"list": "params.regions"}},
        "job": {"run": {"process": {"command": ["load", "--day=${{ params.day }}", "${{ item }}"]}}},
    }]);
    let parameters = json!({
        "day": {"type": "string", "schema": {"minLength": 10}},
        "regions": {"type": "array", "default": ["eu", "cn"]},
    });
    put(&world, json!({"steps": steps, "parameters": parameters})).await;
    let start_path = format!("{ONE}/start");
    let missing =
        world.post(&start_path, json!({"parameters": {"regions": 7, "x": 1}, "priority": 101})).await;
    assert_eq!(missing.code(), "422 invalid_spec");
    assert_eq!(paths(&missing), ["priority", "parameters.x", "parameters.day", "parameters.regions"]);
    let plan = world.post(&format!("{ONE}/plan"), json!({"parameters": {"day": "2026-11-21"}})).await.json();
    assert_eq!(plan["parameters"]["regions"], json!(["eu", "cn"]));
    let step = &plan["steps"][0];
    assert_eq!((&step["total"], &step["level"]), (&json!(2), &json!(0)));
    assert_eq!(step["command"], json!(["load", "--day=2026-11-21", "${{ item }}"]));
    assert_eq!(world.get("/api/v1/runs").await.column("id"), Vec::<String>::new(), "a plan starts nothing");
    let id = start(&world, json!({"parameters": {"day": "2026-11-21"}})).await;
    assert_eq!(run(&world, &id).await["parameters"], json!({"day": "2026-11-21", "regions": ["eu", "cn"]}));
}

/// A start that is repeated with its key is executed once.
#[tokio::test]
async fn a_start_may_be_repeated_under_its_key() {
    let world = World::new().await;
    put(&world, json!({})).await;
    let path = format!("{ONE}/start");
    let send = async |body: Value| world.json(Method::POST, &path, body, &[("idempotency-key", "k")]).await;
    let first = send(json!({"note": "a"})).await;
    let second = send(json!({"note": "a"})).await;
    assert_eq!((first.status, second.status), (StatusCode::CREATED, StatusCode::OK));
    assert_eq!(first.json()["id"], second.json()["id"]);
    assert_eq!(send(json!({"note": "b"})).await.code(), "422 idempotency_key_reused");
}

/// C1. A failure is reported, and a retry repeats only what failed.
#[tokio::test]
async fn a_retry_repeats_only_failed_steps() {
    let world = World::new().await;
    let mut hands = ManualWorker::join(&world, 1).await;
    put(&world, json!({})).await;
    let id = start(&world, json!({})).await;
    assert_eq!(world.post_nothing(&format!("/api/v1/runs/{id}/retry")).await.code(), "409 run_not_ended");
    let task = hands.start().await;
    hands.finish(&task, 0).await;
    let task = hands.start().await;
    hands.finish(&task, 3).await;
    let failed = until_over(&world, &id).await;
    assert_eq!((&failed["status"], &failed["steps"]["failed"]), (&json!("failed"), &json!(1)));
    let wrong = world.post(&format!("/api/v1/runs/{id}/retry"), json!({"from": "nothing"})).await;
    assert_eq!(wrong.code(), "404 step_not_found");

    let again = world.post(&format!("/api/v1/runs/{id}/retry"), json!({"note": "fixed"})).await;
    assert_eq!(again.status, StatusCode::CREATED, "{}", again.text());
    let second = again.json()["id"].as_str().unwrap().to_owned();
    assert_eq!((&again.json()["retry_of"], &again.json()["number"]), (&json!(id), &json!(2)));
    assert_eq!(steps(&world, &second).await, stand(&[("extract", "succeeded"), ("load", "running")]));
    let task = hands.start().await;
    hands.finish(&task, 0).await;
    assert_eq!(until_over(&world, &second).await["status"], "succeeded");
    let third = world.post(&format!("/api/v1/runs/{second}/retry"), json!({"from": "extract"})).await.json();
    let third = third["id"].as_str().unwrap();
    assert_eq!(steps(&world, third).await, stand(&[("extract", "running"), ("load", "pending")]));
}

/// C2, D2. A retry continues the run that a failed step called. An `at_most_once` job that has started is started again
/// only if the request names its step, at any depth.
#[tokio::test]
async fn a_retry_continues_a_called_run_and_repeats_no_job_that_runs_at_most_once() {
    let world = World::new().await;
    let mut hands = ManualWorker::join(&world, 1).await;
    let pay = json!({"run": {"process": {"command": ["true"]}}, "delivery": "at_most_once"});
    let child = json!({"name": "child", "steps": [
        {"name": "pay", "job": pay}, {"name": "mail", "needs": ["pay"], "job": job()},
    ]});
    world.json(Method::PUT, "/api/v1/workflows/child", child, &[]).await;
    put(&world, json!({"steps": [{"name": "call", "workflow": {"name": "child"}}]})).await;
    let mut id = start(&world, json!({})).await;
    let task = hands.start().await;
    hands.finish(&task, 0).await;
    for _ in 0..2 {
        let task = hands.start().await;
        hands.finish(&task, 3).await;
        assert_eq!(until_over(&world, &id).await["status"], "failed");
        let again = world.post_nothing(&format!("/api/v1/runs/{id}/retry")).await;
        assert_eq!(again.status, StatusCode::CREATED, "{}", again.text());
        let next = again.json()["id"].as_str().unwrap().to_owned();
        let called = world.get(&format!("/api/v1/runs?caller={next}")).await.json()["items"][0].clone();
        let before = world.get(&format!("/api/v1/runs?caller={id}")).await.json()["items"][0]["id"].clone();
        assert_eq!(called["retry_of"], before);
        let stands = steps(&world, called["id"].as_str().unwrap()).await;
        assert_eq!(stands, stand(&[("pay", "succeeded"), ("mail", "running")]));
        id = next;
    }
    let task = hands.start().await;
    hands.finish(&task, 3).await;
    until_over(&world, &id).await;
    let path = format!("/api/v1/runs/{id}/retry");
    let refused = world.post(&path, json!({"from": "call"})).await;
    assert_eq!(refused.code(), "409 repeat_forbidden");
    let detail = refused.json()["detail"].as_str().unwrap().replace(&id, "RUN");
    insta::assert_snapshot!(detail, @"cannot retry run `RUN`: it would start `call/pay` again, and the delivery level `at_most_once` forbids a second start");
    let asked = json!({"from": "call", "repeat": ["call/pay"]});
    assert_eq!(world.post(&path, asked).await.status, StatusCode::CREATED);
    let task = hands.start().await;
    hands.finish(&task, 1).await;
}

#[tokio::test]
async fn a_run_is_paused_resumed_marked_and_cancelled() {
    let world = World::new().await;
    let mut hands = ManualWorker::join(&world, 1).await;
    put(&world, json!({"finally": [{"name": "clean", "job": job()}]})).await;
    let id = start(&world, json!({})).await;
    let path = format!("/api/v1/runs/{id}");
    let paused = world.post(&format!("{path}/pause"), json!({"note": "wait"})).await.json();
    assert_eq!((&paused["status"], &paused["pause"]["note"]), (&json!("paused"), &json!("wait")));
    let task = hands.start().await;
    hands.finish(&task, 0).await;
    super::soon("the end of the step", async {
        while steps(&world, &id).await[0].1 != "succeeded" {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(steps(&world, &id).await[1].1, "pending", "a paused run starts no step");
    let unknown = world.post(&format!("{path}/steps/nothing/mark"), json!({"status": "skipped"})).await;
    assert_eq!(unknown.code(), "404 step_not_found");
    let ended = world.post(&format!("{path}/steps/extract/mark"), json!({"status": "failed"})).await;
    assert_eq!(ended.code(), "409 step_ended");
    let pending = world.post(&format!("{path}/steps/load/mark"), json!({"status": "pending"})).await;
    assert_eq!(pending.code(), "422 invalid_spec");
    let marked =
        world.post(&format!("{path}/steps/load/mark"), json!({"status": "skipped", "note": "by mail"})).await;
    assert_eq!(marked.status, StatusCode::OK, "{}", marked.text());
    world.post_nothing(&format!("{path}/resume")).await;
    let task = hands.start().await;
    assert_eq!(
        steps(&world, &id).await,
        stand(&[("extract", "succeeded"), ("load", "skipped"), ("clean", "running")])
    );
    let cancelled =
        world.post(&format!("{path}/cancel"), json!({"reason": "enough", "skip_finally": true})).await;
    assert_eq!(cancelled.status, StatusCode::OK, "{}", cancelled.text());
    let outcome = Outcome { signal: Some(15), ..Outcome::default() };
    let how = engine::input::ExecutionEnd::Stopped;
    hands.report(&task, engine::Report::Finished { how, outcome, usage: Default::default() }).await;
    assert_eq!(until_over(&world, &id).await["status"], "cancelled");
    for act in ["cancel", "pause", "resume"] {
        assert_eq!(world.post_nothing(&format!("{path}/{act}")).await.code(), "409 run_ended", "{act}");
    }
    let never = "/api/v1/runs/run_01k9zq3m6c0000000000000000";
    assert_eq!(world.post_nothing(&format!("{never}/cancel")).await.code(), "404 run_not_found");
}

/// C3. A user approves a step, and an external event arrives.
#[tokio::test]
async fn approvals_and_events_continue_a_run() {
    let world = World::new().await;
    let steps_spec = json!([
        {"name": "ask", "approval": {"approvers": ["bob", "ann"]}},
        {"name": "only_bob", "needs": ["ask"], "approval": {"approvers": ["bob"]}},
        {"name": "last", "needs": ["only_bob"], "approval": {}},
        {"name": "paid", "wait": {"event": {"name": "payment"}}},
    ]);
    put(&world, json!({"steps": steps_spec, "outputs": {"sum": "${{ steps.paid.output.sum }}"}})).await;
    let id = start(&world, json!({})).await;
    let path = format!("/api/v1/runs/{id}");
    assert_eq!(
        world.post_nothing(&format!("{path}/steps/last/approve")).await.code(),
        "409 approval_not_pending"
    );
    assert_eq!(
        world.post_nothing(&format!("{path}/steps/paid/approve")).await.code(),
        "409 approval_not_pending"
    );
    let approved = world.post(&format!("{path}/steps/ask/approve"), json!({"note": "go"})).await;
    assert_eq!(approved.status, StatusCode::OK, "{}", approved.text());
    let said = world.get(&format!("{path}/steps")).await.json()["steps"][0]["decision"].clone();
    assert_eq!((&said["by"], &said["note"]), (&json!("ann"), &json!("go")));
    assert_eq!(
        world.post_nothing(&format!("{path}/steps/only_bob/approve")).await.code(),
        "403 not_approver"
    );
    assert_eq!(world.post(&format!("{path}/events/other"), json!({})).await.code(), "409 event_not_awaited");
    let taken = world.post(&format!("{path}/events/payment"), json!({"sum": 12})).await;
    assert_eq!((taken.status, taken.json()), (StatusCode::OK, json!({"steps": 1})));
    world.post(&format!("{path}/steps/only_bob/mark"), json!({"status": "succeeded"})).await;
    world.post_nothing(&format!("{path}/steps/last/approve")).await;
    let ended = until_over(&world, &id).await;
    assert_eq!((&ended["status"], &ended["output"]), (&json!("succeeded"), &json!({"sum": 12})));
}

/// C3. The ended elements of a list are returned in pages.
#[tokio::test]
async fn the_elements_of_a_step_are_listed_in_pages() {
    let world = World::new().await;
    let mut hands = ManualWorker::join(&world, 1).await;
    let over = json!({"over": {"items": ["a", "b", "c"]}, "max_parallel": 1, "max_failed": 1});
    put(&world, json!({"steps": [{"name": "each", "for_each": over, "job": job()}]})).await;
    let id = start(&world, json!({})).await;
    for exit_code in [0, 3, 0] {
        let task = hands.start().await;
        hands.finish(&task, exit_code).await;
    }
    until_over(&world, &id).await;
    let path = format!("/api/v1/runs/{id}/steps/each/elements");
    let reads = || [Operation::Job, Operation::Jobs].map(|of| world.store.calls(of)).iter().sum::<u64>();
    let before = reads();
    let first = world.get(&format!("{path}?limit=2")).await.json();
    assert_eq!(reads() - before, 1, "one read for all jobs of a page");
    assert_eq!(
        first["items"].as_array().unwrap().iter().map(|i| i["index"].clone()).collect::<Vec<_>>(),
        [0, 1]
    );
    let failed = world.get(&format!("{path}?status=failed,cancelled")).await.json();
    let items = failed["items"].as_array().unwrap();
    assert_eq!(items.len(), 1, "{failed}");
    assert_eq!(
        (&items[0]["index"], &items[0]["value"], &items[0]["executions"]),
        (&json!(1), &json!("b"), &json!(1))
    );
    assert!(items[0]["started_at"].is_string() && items[0]["worker_id"].is_string(), "{failed}");
    let again = world.post(&format!("/api/v1/runs/{id}/retry"), json!({})).await.json()["id"].clone();
    let path_again = format!("/api/v1/runs/{}/steps/each/elements", again.as_str().unwrap());
    assert_eq!(world.get(&path_again).await.json()["items"].as_array().unwrap().len(), 3, "taken over");
    let cursor = first["next_cursor"].as_str().unwrap();
    let second = world.get(&format!("{path}?limit=2&cursor={cursor}")).await.json();
    assert_eq!((&second["items"][0]["index"], second.get("next_cursor")), (&json!(2), None));
    assert_eq!(
        world.get(&format!("/api/v1/runs/{id}/steps/other/elements")).await.code(),
        "404 step_not_found"
    );
    let step = world.get(&format!("/api/v1/runs/{id}/steps")).await.json()["steps"][0].clone();
    assert_eq!(
        (&step["total"], &step["element_counts"]["succeeded"], &step["for_each"]),
        (&json!(3), &json!(2), &json!(true))
    );
}

/// C4. Elements that a running task adds are listed with the step while it runs, and a retry processes them again.
#[tokio::test]
async fn elements_that_a_task_adds_are_listed_and_taken_over_by_a_retry() {
    use crate::grpc::convert;
    let world = World::new().await;
    let mut hands = ManualWorker::join(&world, 1).await;
    let work = json!({"name": "work", "for_each": {"over": {"added_by": ["split"]}}, "job": job()});
    put(&world, json!({"steps": [{"name": "split", "job": job()}, work]})).await;
    let id = start(&world, json!({})).await;
    let split = hands.start().await;
    let request = proto::v1::AddElementsRequest {
        batch: "seed".into(),
        elements: vec![b"\"/\"".to_vec().into(), b"{\"page\":2}".to_vec().into()],
        ..Default::default()
    };
    for new in [true, false] {
        let request = Box::new(convert::elements("elements", request.clone()).unwrap());
        let (execution, fence) = (split.execution, split.fence);
        let asked = world.services.node.request(|ticket| engine::Input::Task {
            ticket: Some(ticket),
            execution,
            fence,
            request,
        });
        let Ok(engine::Reply::ElementsAdded(added)) = asked.await else { panic!("expected added elements") };
        assert_eq!((added.first, added.count, added.total, added.new), (0, 2, 2, new));
    }
    let (first, second) = (hands.start().await, hands.start().await);
    let known = world.get(&format!("/api/v1/runs/{id}/steps")).await.json()["steps"][1].clone();
    assert_eq!((&known["status"], &known["total"]), (&json!("running"), &json!(2)), "{known}");
    for (task, exit_code) in [(&split, 0), (&first, 0), (&second, 1)] {
        hands.finish(task, exit_code).await;
    }
    assert_eq!(until_over(&world, &id).await["status"], "failed");
    let again = world.post_nothing(&format!("/api/v1/runs/{id}/retry")).await.json();
    let again = again["id"].as_str().unwrap();
    let last = hands.start().await;
    hands.finish(&last, 0).await;
    assert_eq!(until_over(&world, again).await["status"], "succeeded");
    let tally =
        world.get(&format!("/api/v1/runs/{again}/steps")).await.json()["steps"][1]["element_counts"].clone();
    assert_eq!(tally, json!({"succeeded": 2, "failed": 0}));
}

/// C4. An invalid list of elements is refused before it reaches the engine, with the problem.
#[test]
fn invalid_elements_are_refused() {
    let request = |batch: &str, elements: &[&[u8]]| proto::v1::AddElementsRequest {
        batch: batch.into(),
        elements: elements.iter().map(|element| element.to_vec().into()).collect(),
        ..Default::default()
    };
    let long = vec![b'1'; model::limits::ITEM_BYTES_MAX + 1];
    for (request, told) in [
        (request("", &[b"1"]), "the name of the batch"),
        (request("a\nb", &[b"1"]), "the name of the batch"),
        (request("a", &[]), "elements but got 0"),
        (request("a", &[b"1".as_slice(); model::limits::ADDED_MAX + 1]), "elements but got 1001"),
        (request("a", &[b"1", b"{"]), "element 1 is not JSON"),
        (request("a", &[&long]), "element 0 has 1025 bytes"),
    ] {
        let refused = crate::grpc::convert::elements("elements", request).unwrap_err().to_string();
        assert!(refused.contains(told), "{refused}");
    }
}

/// C3. A definition that runs once needs no workflow: the run is listed under its name, and can be retried.
#[tokio::test]
async fn a_definition_can_come_with_the_start() {
    let world = World::new().await;
    let mut hands = ManualWorker::join(&world, 1).await;
    let each = json!({"over": {"items": ["Beijing", "Shanghai"]}, "max_parallel": 1, "max_failed": 1});
    let definition = json!({"name": "intake", "steps": [{"name": "task", "for_each": each, "job": job()}]});
    let asked = json!({"definition": definition, "note": "by hand"});
    let checked = world.post("/api/v1/runs?dry_run=true", asked.clone()).await;
    assert_eq!(checked.status, StatusCode::OK, "{}", checked.text());
    assert_eq!(checked.json()["steps"][0]["job"]["name"], "intake.task");
    let key = [("idempotency-key", "\"once\"")];
    let begun = world.json(Method::POST, "/api/v1/runs", asked.clone(), &key).await;
    assert_eq!(begun.status, StatusCode::CREATED, "{}", begun.text());
    let shown = begun.json();
    let id = shown["id"].as_str().unwrap();
    assert_eq!(
        (&shown["workflow"], shown.get("workflow_id"), &shown["number"]),
        (&json!("intake"), None, &json!(0))
    );
    let again = world.json(Method::POST, "/api/v1/runs", asked.clone(), &key).await;
    assert_eq!((again.status, &again.json()["id"]), (StatusCode::OK, &shown["id"]));
    for query in ["workflow=intake", "text=TAK", "text=intake&created_after=2020-01-01T00:00:00Z"] {
        assert_eq!(world.get(&format!("/api/v1/runs?{query}")).await.column("id"), [id], "{query}");
    }
    for query in ["text=other", "created_before=2020-01-01T00:00:00Z"] {
        assert!(world.get(&format!("/api/v1/runs?{query}")).await.column("id").is_empty(), "{query}");
    }
    assert!(!world.get("/api/v1/jobs?workflow=intake").await.column("id").is_empty());
    assert_eq!(world.get("/api/v1/workflows").await.column("name"), Vec::<String>::new());

    for code in [1, 0] {
        let task = hands.start().await;
        hands.finish(&task, code).await;
    }
    assert_eq!(until_over(&world, id).await["status"], "succeeded", "one may fail");
    let retried = world.post_nothing(&format!("/api/v1/runs/{id}/retry")).await;
    assert_eq!(retried.status, StatusCode::CREATED, "{}", retried.text());

    let many = json!({"definition": {"name": "intake", "max_parallel_runs": 1, "steps": []}});
    let refused = world.post("/api/v1/runs", many).await;
    assert_eq!(refused.code(), "422 invalid_spec");
    assert!(paths(&refused).contains(&"definition.max_parallel_runs".to_owned()), "{}", refused.text());
    assert!(paths(&refused).contains(&"definition.steps".to_owned()), "{}", refused.text());
}

/// H1. All waiting approvals are one request, for any number of runs.
#[tokio::test]
async fn a_list_of_runs_shows_which_steps_wait_for_approval() {
    let world = World::new().await;
    let ask = json!({"name": "ask", "approval": {"approvers": ["ann"]}});
    let wait = json!({"name": "wait", "wait": {"event": {"name": "go"}}});
    put(&world, json!({"steps": [ask, wait]})).await;
    start(&world, json!({})).await;
    let plain = world.get("/api/v1/runs").await.json();
    assert_eq!(plain["items"][0].get("approvals"), None);
    let told = world.get("/api/v1/runs?approvals=true").await.json();
    let approvals = told["items"][0]["approvals"].as_array().unwrap();
    assert_eq!((approvals.len(), &approvals[0]["step"]), (1, &json!("ask")), "{told}");
    assert_eq!(approvals[0]["approvers"], json!(["ann"]));
}

/// G2. A list shows which step of a run failed, and omits the rest of its history.
#[tokio::test]
async fn a_list_of_runs_shows_which_step_failed() {
    let world = World::new().await;
    put(&world, json!({"steps": [{"name": "gate", "approval": {}}]})).await;
    let id = start(&world, json!({})).await;
    world.post_nothing(&format!("/api/v1/runs/{id}/steps/gate/reject")).await;
    until_over(&world, &id).await;
    let listed = world.get("/api/v1/runs?status=failed").await.json()["items"][0].clone();
    assert_eq!(listed.get("history"), None, "{listed}");
    let last = &listed["last_transition"];
    assert_eq!((&last["to"], &last["cause"]), (&json!("failed"), &json!("step_failed")), "{listed}");
    assert!(last["detail"].as_str().unwrap().starts_with("step `gate`"), "{listed}");
    let run = world.get(&format!("/api/v1/runs/{id}")).await.json();
    assert_eq!((run.get("last_transition"), run["history"].as_array().unwrap().last()), (None, Some(last)));
}

/// C3. The question of an approval has its references replaced: in the steps, in the explanation, in lists, and in the
/// spec of the run, which the dashboard reads.
#[tokio::test]
async fn an_approval_shows_its_resolved_question() {
    let world = World::new().await;
    let gate = json!({"message": "release ${{ params.image }}?", "approvers": ["${{ params.lead }}"]});
    put(
        &world,
        json!({
            "parameters": {"image": {"type": "string"}, "lead": {"type": "string"}},
            "steps": [{"name": "gate", "approval": gate}],
        }),
    )
    .await;
    let id = start(&world, json!({"parameters": {"image": "app:1.4.2", "lead": "bob"}})).await;
    let asks = json!({"message": "release app:1.4.2?", "approvers": ["bob"]});
    let path = format!("/api/v1/runs/{id}");
    assert_eq!(world.get(&format!("{path}/steps")).await.json()["steps"][0]["approval"], asks);
    let why = world.get(&format!("{path}/steps/gate/why")).await.json();
    assert_eq!(why["reasons"][0]["message"], asks["message"], "{why}");
    let spec = world.get(&path).await.json()["spec"]["steps"][0]["approval"].clone();
    assert_eq!((&spec["message"], &spec["approvers"]), (&asks["message"], &asks["approvers"]));
    let listed = world.get("/api/v1/runs?approvals=true").await.json();
    assert_eq!(listed["items"][0]["approvals"][0]["message"], asks["message"]);
    assert_eq!(world.post_nothing(&format!("{path}/steps/gate/approve")).await.code(), "403 not_approver");
}
