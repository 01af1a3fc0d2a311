//! The example workflows, run as their files describe: from the command line, with the real binary.
//!
//! `with` starts a site and applies the workflows of one file in `examples`, so the tests also prove that the
//! examples are valid. `start` and `ended` run a workflow and compare the exit code; `wrote` returns the
//! output of a step's job.
//!
//! The rules of steps are tested in the engine. Here, real tasks pass values, artifacts and approvals to each
//! other, and a worker is killed.

use std::time::Duration;

use client::JobFilter;
use futures::TryStreamExt as _;
use harness::{Site, repository, until};
use model::api::{Job, WorkflowRun};
use model::{JobStatus, RunId, RunStatus, StepStatus};
use serde_json::json;

const SOON: Duration = Duration::from_secs(60);

/// Starts a site, and applies the workflows of one file.
async fn with(file: &str) -> Site {
    let site = Site::start().await;
    let path = repository().join("examples/workflows").join(file);
    site.belfry(&["apply", "-f", path.to_str().unwrap()]).await.success();
    site
}

/// Starts a run from the command line.
async fn start(site: &Site, line: &[&str]) -> RunId {
    let shown = site.belfry(&[&["workflow", "start"], line].concat()).await.success();
    shown.trim().parse().unwrap()
}

/// Waits for the run with the command line, checks the exit code, and returns the run.
async fn ended(site: &Site, run: RunId, code: i32) -> WorkflowRun {
    site.belfry(&["run", "wait", &run.to_string()]).await.exits(code);
    site.client().run(run).await.unwrap()
}

async fn jobs(site: &Site, run: RunId) -> Vec<Job> {
    let filter = JobFilter { run: Some(run), ..JobFilter::default() };
    site.client().jobs(filter).try_collect().await.unwrap()
}

async fn statuses(site: &Site, run: RunId) -> Vec<(String, StepStatus)> {
    let steps = site.client().run_steps(run).await.unwrap().steps;
    steps.into_iter().map(|step| (step.name, step.state.status)).collect()
}

/// Returns the output of a step's job.
async fn wrote(site: &Site, run: RunId, step: &str) -> String {
    let steps = site.client().run_steps(run).await.unwrap().steps;
    let job = steps.iter().find(|found| found.name == step).unwrap().state.job_id.unwrap();
    site.belfry(&["logs", &job.to_string()]).await.success()
}

/// C1, C4. A followed run is shown step by step; a list that a step returned is mapped and reduced.
#[tokio::test]
async fn an_etl_maps_a_dynamic_list_and_reduces_its_outputs() {
    let site = with("etl.yaml").await;
    let followed =
        site.belfry(&["workflow", "start", "etl", "-p", "day=2026-11-20", "--follow"]).await.exits(0);
    let last = |step: &str| followed.stdout.lines().rfind(|line| line.starts_with(step)).unwrap().to_owned();
    for step in ["extract", "transform", "load"] {
        assert!(last(step).contains("succeeded"), "{}", followed.stdout);
    }
    assert!(last("transform").contains("3/3"), "{}", followed.stdout);
    let run: RunId = site.belfry(&["run", "list", "-o", "name"]).await.success().trim().parse().unwrap();
    let ended = site.client().run(run).await.unwrap();
    assert_eq!(ended.output, Some(json!({"rows": 600})));
    assert_eq!(wrote(&site, run, "load").await, "3 files with 600 rows\n");
    let items: Vec<_> = site.client().run_elements(run, "transform", &[]).try_collect().await.unwrap();
    assert_eq!(items[2].state.output, Some(json!({"file": "2026-11-20-c.csv", "rows": 300})));
    assert_eq!(jobs(&site, run).await.len(), 5);
}

/// C3. A release waits for an approval; later steps get the name of the approver.
#[tokio::test]
async fn a_release_starts_after_its_approval() {
    let site = with("release.yaml").await;
    let run = start(&site, &["release", "-p", "version=1.10"]).await;
    let next = start(&site, &["release", "-p", "version=1.11"]).await;
    let (id, gate) = (run.to_string(), "gate".to_owned());
    until("the gate waits for a decision", SOON, async || {
        statuses(&site, run).await.contains(&(gate.clone(), StepStatus::Waiting)).then_some(())
    })
    .await;
    let why = site.belfry(&["run", "why", &id]).await.success();
    assert!(why.contains(&format!("`belfry run approve {id} gate`")), "{why}");
    let turn = site.belfry(&["run", "why", &next.to_string(), "build"]).await.success();
    assert!(turn.contains("limit of concurrent runs (1 of 1 running)"), "{turn}");
    assert_eq!(jobs(&site, run).await.len(), 4, "no roll-out has started");

    site.belfry(&["run", "approve", &id, "--note", "tested by ann"]).await.success();
    let ended = ended(&site, run, 0).await;
    assert_eq!(ended.output, Some(json!({"approved_by": "admin", "image": "app:1.10"})));
    assert_eq!(wrote(&site, run, "roll-out").await, "app:1.10 goes out, approved by admin\n");
    let late = site.belfry(&["run", "approve", &id]).await.exits(2);
    assert!(late.stderr.contains("no step of"), "{}", late.stderr);

    until("the other release is running", SOON, async || {
        statuses(&site, next).await.contains(&(gate.clone(), StepStatus::Waiting)).then_some(())
    })
    .await;
    site.belfry(&["run", "reject", &next.to_string(), "gate", "--note", "not today"]).await.success();
    let waited = site.belfry(&["run", "wait", &next.to_string()]).await.exits(1);
    assert!(waited.stderr.contains("\n  gate: "), "{}", waited.stderr);
    let end = statuses(&site, next).await;
    assert_eq!(end.last(), Some(&("roll-back".to_owned(), StepStatus::Skipped)), "{end:?}");
}

/// C4, D4. Each shard is a separate job: the jobs of a killed worker continue on another worker.
#[tokio::test]
async fn the_shards_of_a_killed_worker_run_on_another_worker() {
    let mut site = with("sharded-import.yaml").await;
    site.add_worker().await;
    let run = start(&site, &["sharded-import", "-p", "seconds=3"]).await;
    until("all shards run", SOON, async || {
        let running = jobs(&site, run).await;
        let running =
            running.iter().filter(|job| job.status == JobStatus::Running && job.started_at.is_some());
        (running.count() == 4).then_some(())
    })
    .await;
    // Kills all processes of the worker.
    drop(site.workers.remove(0));
    let ended = ended(&site, run, 0).await;
    assert_eq!(ended.output, Some(json!({"rows": [250, 250, 250, 250]})));
    let tries: Vec<_> = jobs(&site, run).await.iter().map(|job| job.executions).collect();
    assert!(tries.iter().any(|tries| *tries > 1), "no shard ran on another worker: {tries:?}");
    assert_eq!(wrote(&site, run, "report").await, "4 of 4 shards, 0 failed\n");
}

/// C2. A tolerated failure does not fail the run. Any other failure is reported, and the cleanup step runs.
#[tokio::test]
async fn a_nightly_chain_reports_its_failure_and_always_cleans_up() {
    let site = with("nightly-chain.yaml").await;
    let well = start(&site, &["nightly-chain"]).await;
    assert_eq!(ended(&site, well, 0).await.status, RunStatus::Succeeded);
    let named = |all: &[(&str, StepStatus)]| -> Vec<_> {
        all.iter().map(|(name, status)| ((*name).to_owned(), *status)).collect()
    };
    use StepStatus::{Failed, Skipped, Succeeded, UpstreamFailed};
    let expected = [
        ("extract", Succeeded),
        ("weather", Failed),
        ("load", Succeeded),
        ("report", Succeeded),
        ("alert", Skipped),
        ("clean", Succeeded),
    ];
    assert_eq!(statuses(&site, well).await, named(&expected));

    let badly = start(&site, &["nightly-chain", "-p", "break=true", "-p", "hook=https://x.example"]).await;
    assert_eq!(ended(&site, badly, 1).await.status, RunStatus::Failed);
    let expected = [
        ("extract", Succeeded),
        ("weather", Failed),
        ("load", Failed),
        ("report", UpstreamFailed),
        ("alert", Succeeded),
        ("clean", Succeeded),
    ];
    assert_eq!(statuses(&site, badly).await, named(&expected));
    assert_eq!(
        wrote(&site, badly, "alert").await,
        "to https://x.example, nightly-chain #2 is about to end as failed: load failed\n"
    );
}

/// C1. A call is a separate run with the parameters of its element; its output is the step's output.
#[tokio::test]
async fn a_workflow_calls_another_one_for_each_region() {
    let site = with("nested.yaml").await;
    let run = start(&site, &["world-report", "-p", r#"regions=["eu", "cn", "us"]"#]).await;
    let ended = ended(&site, run, 0).await;
    assert_eq!(ended.output, Some(json!({"regions": "eu, cn, us"})));
    let called = site.belfry(&["run", "list", "--caller", &run.to_string(), "-o", "json"]).await.success();
    let mut called: Vec<WorkflowRun> = serde_json::from_str(&called).unwrap();
    called.sort_by_key(|run| run.caller.and_then(|caller| caller.element));
    let outputs: Vec<_> = called.iter().map(|run| run.output.clone().unwrap()).collect();
    assert_eq!(
        outputs,
        [
            json!({"region": "eu", "orders": 40}),
            json!({"region": "cn", "orders": 80}),
            json!({"region": "us", "orders": 120}),
        ]
    );
}

/// C2. An ended run does not change; a new run retries its failed steps.
#[tokio::test]
async fn an_ended_run_is_retried_by_a_new_run() {
    let site = with("nightly-chain.yaml").await;
    let run = start(&site, &["nightly-chain", "-p", "break=true"]).await;
    ended(&site, run, 1).await;
    let again = site.belfry(&["run", "retry", &run.to_string(), "--wait", "-o", "json"]).await.exits(1);
    let again: WorkflowRun = serde_json::from_str(&again.stdout).unwrap();
    assert_eq!(again.retry_of, Some(run));
    let steps = site.client().run_steps(again.id).await.unwrap().steps;
    let causes: Vec<_> = steps.iter().map(|step| step.state.cause.unwrap().as_str()).collect();
    assert_eq!(causes[0], "carried_over", "{causes:?}");
    let refused = site.belfry(&["run", "pause", &run.to_string()]).await.exits(1);
    assert!(refused.stderr.contains("help: run `belfry run retry RUN`"), "{}", refused.stderr);
}

/// Every error in a definition is reported with its document and path; a run with invalid parameters is not started.
#[tokio::test]
async fn errors_in_workflows_and_parameters_are_reported_immediately() {
    let site = Site::server_only(&[]).await;
    let text = "kind: workflow\nname: circle\nspec:\n  steps:\n    \
        - { name: a, needs: [b], job: { run: { process: { command: [x, \"${{ params.nope }}\"] } } } }\n    \
        - { name: b, needs: [a], wait: { for: 1s } }\n";
    std::fs::write(site.path("circle.yaml"), text).unwrap();
    let refused = site.belfry(&["apply", "-f", site.path("circle.yaml").to_str().unwrap()]).await.exits(2);
    for told in ["circle.yaml: steps", "circle.yaml: steps[0].job.run.process.command[1]"] {
        assert!(refused.stderr.contains(told), "{told}: {}", refused.stderr);
    }
    let release = repository().join("examples/workflows/release.yaml");
    site.belfry(&["apply", "-f", release.to_str().unwrap()]).await.success();
    let refused = site.belfry(&["workflow", "start", "release", "-p", "verison=1"]).await.exits(2);
    assert!(refused.stderr.contains("version") && refused.stderr.contains("verison"), "{}", refused.stderr);
    for (line, command) in [
        ("workflow get nobody", "belfry workflow list"),
        ("run get run_01k9zq3m6c0000000000000000", "belfry run list"),
    ] {
        let refused = site.belfry(&line.split(' ').collect::<Vec<_>>()).await.exits(3);
        assert!(refused.stderr.contains(&format!("help: run `{command}`")), "{line}: {}", refused.stderr);
    }
}

/// B1, C1. A schedule starts a workflow with the scheduled time in its parameters; a manual trigger waits for the
/// run.
#[tokio::test]
async fn a_schedule_starts_a_workflow_and_its_ledger_names_the_run() {
    let site = with("etl.yaml").await;
    let file = site.path("schedule.yaml");
    let text = "version: 1\nkind: schedule\nname: daily-etl\nspec:\n  timing: { rules: [{ cron: \"0 2 * * *\" }] }\n  \
                workflow: { name: etl, parameters: { day: \"day ${{ firing.cause }}\" } }\n";
    std::fs::write(&file, text).unwrap();
    site.belfry(&["apply", "-f", file.to_str().unwrap()]).await.success();
    let shown = site.belfry(&["schedule", "trigger", "daily-etl", "--wait"]).await.success();
    let run: RunId = shown.trim().parse().unwrap();
    let ended = site.client().run(run).await.unwrap();
    assert_eq!((ended.status, &ended.parameters["day"]), (RunStatus::Succeeded, &json!("day manual")));
    assert_eq!(ended.origin.unwrap().name.as_ref(), "daily-etl");
    let ledger = site.belfry(&["schedule", "ledger", "daily-etl", "-o", "json"]).await.success();
    assert!(ledger.contains(&run.to_string()), "{ledger}");
}
