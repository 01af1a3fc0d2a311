//! User journeys from end to end, with a real server and a real worker.
//!
//! Each test is a story of the requirements: it uses the command line as a user would, in a new site, and
//! checks output, exit codes and the job's final state. In order: submitting and reading, retries,
//! cancelling, scheduled jobs, timeouts and deadlines, artifacts, limits, repeated submissions, error
//! messages, health.
//!
//! Details of a feature are tested in its crate. These tests show that all parts work together in the one
//! binary.

use std::time::Duration;

use harness::{Site, until};
use model::api::Job;
use model::spec::{Concurrency, Delivery, InputFile, OutputFile, ProcessRun, Run};
use model::{JobId, JobSpec, JobStatus};

fn script(text: &str) -> JobSpec {
    JobSpec::new(Run::Process(ProcessRun { script: Some(text.to_owned()), ..ProcessRun::default() }))
}

fn duration(text: &str) -> model::Duration {
    text.parse().unwrap()
}

/// Parses the only id in the output of `submit -o name`.
fn id(text: &str) -> JobId {
    text.trim().parse().unwrap_or_else(|error| panic!("expected one job id, found `{text}`: {error}"))
}

fn error(job: &Job) -> &str {
    job.result.as_ref().and_then(|r| r.error.as_deref()).unwrap_or("none")
}

/// A1, A2, A3. A job is submitted from the shell without waiting; its status, result and log can be read later.
#[tokio::test]
async fn a_command_is_submitted_runs_and_shows_its_result_and_its_log() {
    let site = Site::start().await;
    let text = "echo out; echo err >&2; printf '{\"answer\": 42}' > $BELFRY_OUTPUT";
    let job = id(&site
        .belfry(&["submit", "-o", "name", "--name", "first", "--", "sh", "-c", text])
        .await
        .success());

    let ended = site.until_status(job, JobStatus::Succeeded).await;
    let result = ended.result.unwrap();
    assert_eq!((result.exit_code, result.output), (Some(0), Some(serde_json::json!({"answer": 42}))));
    assert_eq!((ended.name.as_str(), ended.executions), ("first", 1));

    let logs = site.belfry(&["logs", &job.to_string()]).await.success();
    assert!(logs.contains("out\n") && logs.contains("err\n"), "{logs}");
    let shown = site.belfry(&["job", "get", &job.to_string()]).await.success();
    assert!(shown.contains("succeeded") && shown.contains("first"), "{shown}");
    let listed = site.belfry(&["job", "list", "-o", "json", "--status", "succeeded"]).await.success();
    assert!(listed.contains(&job.to_string()), "{listed}");
}

/// Workers are found by name, and the version can be read as data, without colours.
#[tokio::test]
async fn jobs_are_found_by_the_name_of_their_worker_and_the_version_is_data() {
    let site = Site::start().await;
    let job = id(&site.belfry(&["submit", "-o", "name", "--wait", "--", "true"]).await.success());
    let worker = site.client().job_executions(job).await.unwrap().items[0].worker_id.to_string();
    let name = site.workers[0].name();
    for wanted in [name, &worker] {
        let listed = site.belfry(&["job", "list", "-o", "json", "--worker", wanted]).await.success();
        assert!(listed.contains(&job.to_string()), "--worker {wanted}: {listed}");
    }
    let unknown = site.belfry(&["job", "list", "--worker", "nowhere"]).await.exits(3);
    assert!(unknown.stderr.contains("nowhere"), "{}", unknown.stderr);

    let version = site.belfry(&["version", "--server", "-o", "json"]).await.success();
    let version: serde_json::Value = serde_json::from_str(&version).unwrap();
    assert_eq!((&version["name"], &version["server"]["version"]), (&"belfry".into(), &version["version"]));
    let plain = site.belfry(&["--no-color", "--no-such-option"]).await.exits(2);
    assert!(!plain.stderr.contains('\u{1b}'), "{}", plain.stderr);
}

/// A3. `--follow` shows output as it is written, and ends when the job ends.
#[tokio::test]
async fn following_a_job_ends_with_its_own_exit_code() {
    let site = Site::start().await;
    let ran =
        site.belfry(&["submit", "--follow", "--", "sh", "-c", "echo one; sleep 0.2; echo two; exit 7"]).await;
    let ran = ran.exits(7);
    assert_eq!(ran.stdout, "one\ntwo\n");
    site.belfry(&["submit", "--wait", "--", "true"]).await.exits(0);
    site.belfry(&["submit", "--wait", "--", "sh", "-c", "exit 3"]).await.exits(3);
}

/// A7, A8, D1. Each attempt is a separate execution; the backoff between them is observed.
#[tokio::test]
async fn a_failing_job_is_retried_until_it_succeeds() {
    let site = Site::start().await;
    let mut spec = script("echo \"try $BELFRY_ATTEMPT\"; [ $BELFRY_ATTEMPT -ge 3 ]");
    spec.retry.max_retries = 5;
    spec.retry.backoff.initial = duration("100ms");
    let job = site.submit(&spec).await;

    let ended = site.until_status(job, JobStatus::Succeeded).await;
    assert_eq!((ended.executions, ended.run_failures), (3, 2));
    let executions = site.client().job_executions(job).await.unwrap().items;
    let mut codes: Vec<_> =
        executions.iter().map(|e| (e.number, e.result.as_ref().unwrap().exit_code)).collect();
    codes.sort_unstable();
    assert_eq!(codes, [(1, Some(1)), (2, Some(1)), (3, Some(0))]);
    let causes: Vec<_> = site.client().job_events(job).await.unwrap().iter().map(|e| e.to.as_str()).collect();
    let expected = [
        "waiting",
        "running",
        "retrying",
        "waiting",
        "running",
        "retrying",
        "waiting",
        "running",
        "succeeded",
    ];
    assert_eq!(causes, expected);
}

/// D1. Executions that cannot start are counted separately, with a reason.
#[tokio::test]
async fn a_missing_command_fails_to_start_with_a_reason() {
    let site = Site::start().await;
    let mut spec = JobSpec::command(["/no/such/program"]);
    spec.retry.max_start_retries = 1;
    spec.retry.backoff.initial = duration("50ms");
    let job = site.submit(&spec).await;
    let ended = site.until_status(job, JobStatus::Failed).await;
    assert_eq!((ended.start_failures, ended.run_failures), (2, 0));
    let message = ended.result.unwrap().message.unwrap();
    assert!(message.contains("/no/such/program"), "{message}");
}

/// A4. A running job gets SIGTERM and may shut down; a waiting job never starts.
#[tokio::test]
async fn a_cancelled_running_job_shuts_down_and_a_waiting_one_never_starts() {
    let site = Site::start().await;
    let witness = site.witness();
    let client = site.client();
    let running = site.submit(&witness.job_that("trap 'echo saved; exit 0' TERM; sleep 600 & wait $!")).await;
    until("the task runs", Duration::from_secs(30), async || (witness.count("start") == 1).then_some(()))
        .await;
    let mut later = witness.job(1);
    later.run_at = Some(client.job(running).await.unwrap().created_at + model::Duration::from_hours(1));
    let later = site.submit(&later).await;

    client.cancel_job(running, Some("by a test")).await.unwrap();
    assert_eq!(client.cancel_job(later, None).await.unwrap().status, JobStatus::Cancelled);
    site.until_status(running, JobStatus::Cancelled).await;
    let logs = site.belfry(&["logs", &running.to_string()]).await.success();
    assert!(logs.contains("saved"), "{logs}");
    assert_eq!(witness.count("start"), 1);
    // Cancelling a cancelled job changes nothing; cancelling another ended job is refused.
    client.cancel_job(later, None).await.unwrap();
    let done = site.submit(&JobSpec::command(["true"])).await;
    site.until_status(done, JobStatus::Succeeded).await;
    assert_eq!(client.cancel_job(done, None).await.unwrap_err().code(), Some("job_ended"));
}

/// A4. A task that ignores SIGTERM is killed with SIGKILL after the grace period, with all of its processes.
#[tokio::test]
async fn a_task_that_ignores_sigterm_is_killed_with_its_process_tree() {
    let site = Site::start().await;
    let witness = site.witness();
    let mut spec = witness.job_that("trap '' TERM; (setsid sleep 600 &) ; while :; do sleep 0.05; done");
    spec.grace = duration("200ms");
    let job = site.submit(&spec).await;
    until("the task runs", Duration::from_secs(30), async || (witness.count("start") == 1).then_some(()))
        .await;
    let tree = until("the process tree exists", Duration::from_secs(30), async || {
        let tasks = site.workers[0].tasks();
        (tasks.len() >= 2).then_some(tasks)
    })
    .await;
    site.client().cancel_job(job, None).await.unwrap();
    site.until_status(job, JobStatus::Cancelled).await;
    assert!(tree.iter().all(|p| !p.is_alive()), "the job is cancelled, but a process still runs");
}

/// A4, A9. A scheduled job does not start early; until then it can be changed.
#[tokio::test]
async fn a_scheduled_job_can_be_changed_and_starts_on_time() {
    let site = Site::start().await;
    let at = site.belfry(&["submit", "-o", "name", "--in", "1h", "--", "echo", "early"]).await.success();
    let job = id(&at);
    let why = site.belfry(&["why", &job.to_string()]).await.success();
    assert!(why.contains("scheduled for"), "{why}");
    let client = site.client();
    let created = client.job(job).await.unwrap().created_at;
    let due = created + duration("1500ms");
    let patch = serde_json::json!({"run_at": due, "run": {"process": {"command": ["echo", "on time"]}}});
    client.update_job(job, &patch, None).await.unwrap();
    let ended = site.until_status(job, JobStatus::Succeeded).await;
    assert!(ended.started_at.unwrap() >= due, "{ended:#?}");
    assert!(site.belfry(&["logs", &job.to_string()]).await.success().contains("on time"));
    assert_eq!(client.update_job(job, &patch, None).await.unwrap_err().code(), Some("job_ended"));
}

/// D2. The timeout ends the attempt, and counts as a failure.
#[tokio::test]
async fn a_job_that_exceeds_its_timeout_is_ended() {
    let site = Site::start().await;
    let mut spec = JobSpec::command(["sleep", "600"]);
    spec.timeout = Some(duration("300ms"));
    let job = site.submit(&spec).await;
    let ended = site.until_status(job, JobStatus::Failed).await;
    assert_eq!((error(&ended), ended.run_failures), ("timeout", 1));
}

/// A7. A job that cannot start before its start deadline expires, and never starts.
#[tokio::test]
async fn a_job_expires_when_no_worker_takes_it_in_time() {
    let site = Site::server_only(&[]).await;
    let mut spec = JobSpec::command(["true"]);
    spec.start_deadline = Some(duration("300ms"));
    let job = site.submit(&spec).await;
    let why = site.belfry(&["why", &job.to_string()]).await.success();
    assert!(why.contains("worker"), "{why}");
    let ended = site.until_status(job, JobStatus::Expired).await;
    assert_eq!(ended.executions, 0);
}

/// A11. Inputs are downloaded and verified, outputs uploaded; a program can be an artifact.
#[tokio::test]
async fn artifacts_are_downloaded_and_uploaded() {
    let site = Site::start().await;
    let client = site.client();
    let tool = b"#!/bin/sh\ntr a-z A-Z < in/text > out.txt\n".to_vec();
    let tool = client.put_artifact("shout", None, tool.into()).await.unwrap();
    client.put_artifact("text", None, b"hear me\n".to_vec().into()).await.unwrap();

    let mut spec = JobSpec::command(["./shout"]);
    let pinned = format!("shout@sha256:{}", tool.sha256);
    spec.inputs.push(InputFile { artifact: pinned, path: "shout".into(), executable: true });
    spec.inputs.push(InputFile { artifact: "text".into(), path: "in/text".into(), executable: false });
    spec.outputs.push(OutputFile { artifact: "loud".into(), path: "out.txt".into(), optional: false });
    let job = site.submit(&spec).await;
    site.until_status(job, JobStatus::Succeeded).await;
    site.belfry(&["artifact", "get", "loud", "loud.txt"]).await.success();
    assert_eq!(std::fs::read_to_string(site.path("loud.txt")).unwrap(), "HEAR ME\n");

    spec.inputs[1].artifact = "no-such-text".into();
    spec.retry.max_start_retries = 0;
    let job = site.submit(&spec).await;
    let ended = site.until_status(job, JobStatus::Failed).await;
    assert!(ended.result.clone().unwrap().message.unwrap().contains("no-such-text"), "{ended:#?}");
}

/// E6, and the guarantee that every waiting job can explain why it is waiting.
#[tokio::test]
async fn a_paused_queue_holds_its_jobs_and_is_named_as_the_reason() {
    let site = Site::start().await;
    site.belfry(&["queue", "pause", "slow", "--note", "night shift"]).await.success();
    let job = id(&site.belfry(&["submit", "-o", "name", "--queue", "slow", "--", "true"]).await.success());
    let why = site.belfry(&["why", &job.to_string()]).await.success();
    assert!(why.contains("paused") && why.contains("night shift"), "{why}");
    let other = site.submit(&JobSpec::command(["true"])).await;
    site.until_status(other, JobStatus::Succeeded).await;
    assert_eq!(site.client().job(job).await.unwrap().status, JobStatus::Waiting);
    site.belfry(&["queue", "resume", "slow"]).await.success();
    site.until_status(job, JobStatus::Succeeded).await;
}

/// E6. Jobs with the same concurrency key run one after the other.
#[tokio::test]
async fn a_concurrency_key_limits_concurrent_jobs() {
    let site = Site::start().await;
    let witness = site.witness();
    let mut spec = witness.job(2);
    spec.concurrency = Some(Concurrency { key: "db".into(), limit: 1 });
    let first = site.submit(&spec).await;
    let second = site.submit(&spec).await;
    until("one runs", Duration::from_secs(30), async || (witness.count("start") == 1).then_some(())).await;
    let why = site.belfry(&["why", &second.to_string()]).await.success();
    let ended = witness.count("end");
    assert!(why.contains("db") || ended > 0, "{why}");
    let first = site.until_status(first, JobStatus::Succeeded).await;
    let second = site.until_status(second, JobStatus::Succeeded).await;
    assert!(second.started_at >= first.finished_at, "{first:#?} {second:#?}");
}

/// A10. The same key returns the same job; a different body under that key is refused.
#[tokio::test]
async fn a_repeated_submission_returns_the_existing_job() {
    let site = Site::start().await;
    let mut spec = JobSpec::command(["true"]);
    spec.idempotency_key = Some("invoice-42".into());
    let first = site.client().submit(&spec).await.unwrap();
    let again = site.client().submit(&spec).await.unwrap();
    assert_eq!((again.id, again.created), (first.id, false));
    spec.priority = 99;
    assert_eq!(site.client().submit(&spec).await.unwrap_err().code(), Some("idempotency_key_reused"));
}

/// A retry of an ended job is a new job that refers to the old one.
#[tokio::test]
async fn an_ended_job_is_retried_as_a_new_one() {
    let site = Site::start().await;
    let job = site.submit(&JobSpec::command(["false"])).await;
    site.until_status(job, JobStatus::Failed).await;
    let again = id(&site.belfry(&["job", "retry", &job.to_string(), "-o", "name"]).await.success());
    let again = site.until_status(again, JobStatus::Failed).await;
    assert_eq!(again.retry_of, Some(job));
}

/// Every refusal names the field and the expected value, and ends with the documented exit code.
#[tokio::test]
async fn refusals_name_the_field_and_the_expected_value() {
    let site = Site::server_only(&[]).await;
    let file = site.path("bad.yaml");
    std::fs::write(&file, "name: a b\npriority: 400\nrun: { process: {} }\n").unwrap();
    let ran = site.belfry(&["submit", "-f", file.to_str().unwrap()]).await;
    assert!(matches!(ran.code, 1 | 2), "{ran:#?}");
    assert!(ran.stderr.contains("priority"), "{}", ran.stderr);
    std::fs::write(&file, "nmae: a\nrun: { process: { command: [\"true\"] } }\n").unwrap();
    let ran = site.belfry(&["submit", "-f", file.to_str().unwrap()]).await;
    assert!(ran.code != 0 && ran.stderr.contains("nmae"), "{}", ran.stderr);

    site.belfry(&["job", "get", &format!("job_{}", "0".repeat(26))]).await.exits(3);
    site.belfry(&["submit"]).await.exits(2);
    site.belfry(&["no-such-command"]).await.exits(2);
    site.belfry(&["job", "list", "--url", "http://127.0.0.1:1"]).await.exits(5);
    let token = site.path("wrong-token");
    std::fs::write(&token, "bf_admin_wrong_token").unwrap();
    let list = format!("unset BELFRY_TOKEN; belfry job list --token-file '{}'", token.display());
    site.script(&site.path(""), &list).await.exits(4);
}

/// The task gets its delivery level and fence, but no credential.
#[tokio::test]
async fn a_task_gets_its_fence_and_no_credential() {
    let site = Site::start().await;
    let mut spec = JobSpec::command(["env"]);
    spec.delivery = Delivery::ExactlyOnce;
    let job = site.submit(&spec).await;
    site.until_status(job, JobStatus::Succeeded).await;
    let logs = site.belfry(&["logs", &job.to_string()]).await.success();
    assert!(logs.contains(&format!("BELFRY_JOB_ID={job}")) && logs.contains("BELFRY_FENCE="), "{logs}");
    assert!(!logs.contains("bf_") && !logs.contains("TOKEN"), "{logs}");
}

/// H6, first form. Health and metrics endpoints exist.
#[tokio::test]
async fn health_is_public_and_metrics_require_the_token() {
    let site = Site::start().await;
    let job = site.submit(&JobSpec::command(["true"])).await;
    site.until_status(job, JobStatus::Succeeded).await;
    let get = "curl --silent --output /dev/stdout --write-out '\\n%{http_code}'";
    for path in ["/healthz", "/livez", "/readyz?verbose", "/", "/docs", "/openapi.json"] {
        let text = site.script(&site.path(""), &format!("{get} \"$BELFRY_URL{path}\"")).await.success();
        assert!(text.ends_with("\n200"), "{path}: {text}");
    }
    let refused = site.script(&site.path(""), &format!("{get} \"$BELFRY_URL/metrics\"")).await.success();
    assert!(refused.ends_with("\n401"), "{refused}");
    let metrics = site
        .script(
            &site.path(""),
            &format!("{get} -H \"Authorization: Bearer $BELFRY_TOKEN\" \"$BELFRY_URL/metrics\""),
        )
        .await;
    let metrics = metrics.success();
    assert!(metrics.contains("belfry_jobs_submitted_total 1"), "{metrics}");
}
