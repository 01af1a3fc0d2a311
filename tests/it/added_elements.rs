//! Mapped steps whose tasks add elements while the step runs: each element is processed once, whatever process is
//! killed.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use client::JobFilter;
use futures::TryStreamExt as _;
use harness::{Site, belfry, repository, until};
use model::api::{Job, RunElement, WorkflowRun};
use model::{RunId, StepStatus};
use serde_json::json;

const SOON: Duration = Duration::from_secs(60);

/// The expected output for the pages of the example.
fn all_pages() -> serde_json::Value {
    json!({"pages": ["/", "/2024", "/2025", "/news", "/news/today"], "letters": 27})
}

async fn apply(site: &Site, definition: &str) {
    let file = site.path("workflow.yaml");
    fs::write(&file, definition).unwrap();
    site.belfry(&["apply", "-f", file.to_str().unwrap()]).await.success();
}

async fn start(site: &Site, workflow: &str) -> RunId {
    site.belfry(&["workflow", "start", workflow]).await.success().trim().parse().unwrap()
}

async fn succeeded(site: &Site, run: RunId) -> WorkflowRun {
    site.belfry(&["run", "wait", &run.to_string()]).await.success();
    site.client().run(run).await.unwrap()
}

async fn items(site: &Site, run: RunId, step: &str) -> Vec<RunElement> {
    site.client().run_elements(run, step, &[]).try_collect().await.unwrap()
}

/// Returns this field of the output of each element.
fn outputs(items: &[RunElement], name: &str) -> Vec<String> {
    let member = |item: &RunElement| item.state.output.as_ref()?[name].as_str().map(str::to_owned);
    items.iter().map(|item| member(item).unwrap()).collect()
}

/// Returns the number of executions of each step's jobs.
async fn executions(site: &Site, run: RunId) -> BTreeMap<String, Vec<u32>> {
    let filter = JobFilter { run: Some(run), ..JobFilter::default() };
    let jobs: Vec<Job> = site.client().jobs(filter).try_collect().await.unwrap();
    let mut found = BTreeMap::<_, Vec<_>>::new();
    for job in jobs {
        let step = job.step.unwrap().name.to_string();
        found.entry(step).or_default().push(job.executions);
    }
    found
}

/// Returns the example with a first task that waits for a file before it adds the second batch.
fn gated(site: &Site) -> (String, std::path::PathBuf) {
    let gate = site.path("gate");
    let example = fs::read_to_string(repository().join("examples/workflows/crawl.yaml")).unwrap();
    let waiting = format!("until [ -e {} ]; do sleep 0.05; done", gate.display());
    let gated = example.replace("sleep \"$PAUSE\"", &waiting);
    assert_ne!(gated, example);
    (gated, gate)
}

/// C4. Added elements are processed immediately, also elements that are added by elements. The reducing step gets all
/// of them.
#[tokio::test]
async fn elements_are_processed_while_more_are_added() {
    let site = Site::start().await;
    let (definition, gate) = gated(&site);
    apply(&site, &definition).await;
    let run = start(&site, "crawl").await;
    until("three pages are done", SOON, async || (items(&site, run, "page").await.len() == 3).then_some(()))
        .await;
    let why = site.belfry(&["run", "why", &run.to_string(), "page"]).await.success();
    assert!(why.contains("- 3 of 3 elements succeeded"), "{why}");
    assert!(why.contains("- More elements may be added by split (running)."), "{why}");
    fs::write(gate, "").unwrap();
    assert_eq!(succeeded(&site, run).await.output, Some(all_pages()));
}

/// C4, D9. The server and the agent of the adding task are killed between two batches: no batch is lost or
/// duplicated, and no page is processed twice.
#[tokio::test]
async fn every_element_is_processed_once_despite_kills_between_batches() {
    let mut site = Site::start().await;
    let (definition, gate) = gated(&site);
    apply(&site, &definition).await;
    let run = start(&site, "crawl").await;
    until("three pages are done", SOON, async || (items(&site, run, "page").await.len() == 3).then_some(()))
        .await;
    site.server.kill().await;
    // The task now asks an agent without a server connection, then no agent, then another agent.
    fs::write(gate, "").unwrap();
    site.workers[0].kill_agent().await;
    site.workers[0].start_agent();
    site.server.restart().await;

    assert_eq!(succeeded(&site, run).await.output, Some(all_pages()));
    let done = items(&site, run, "page").await;
    let pages: Vec<_> = outputs(&done, "page");
    assert_eq!(pages[..3], ["/", "/news", "/news/today"]);
    assert_eq!(pages[3..], ["/2025", "/2024"]);
    let all_well = done.iter().all(|item| item.state.status == StepStatus::Succeeded);
    assert!(all_well, "{done:?}");
    let executions = executions(&site, run).await;
    assert_eq!((&executions["page"], &executions["total"]), (&vec![1; 5], &vec![1]));
}

/// C4. A shell script adds elements with the command line. A retry that adds the same batch, and a failing call, add
/// nothing.
#[tokio::test]
async fn a_retried_task_adds_no_element_twice() {
    let site = Site::start().await;
    let program = belfry().display();
    let definition = format!(
        "kind: workflow
name: numbers
spec:
  steps:
    - name: split
      job:
        retry: {{max_retries: 1, backoff: {{initial: 100ms}}}}
        run:
          process:
            script: |
              seq 3 | {program} task add --batch numbers --file -
              {program} task add --batch none --file - < /dev/null
              {program} task add --to nobody --batch x 1 || echo \"refused with $?\"
              {program} task add --to number --batch last 4 '{{\"a\": 5}}' 006 -o json
              [ $BELFRY_ATTEMPT = 2 ]
    - name: number
      for_each: {{over: {{added_by: [split]}}}}
      job:
        run:
          process:
            script: |
              printf '{{\"item\": \"%s\"}}' \"$(printf %s \"$BELFRY_ITEM\" | tr -d '\"')\" > \"$BELFRY_OUTPUT\"
"
    );
    apply(&site, &definition).await;
    let run = start(&site, "numbers").await;
    succeeded(&site, run).await;
    let done = items(&site, run, "number").await;
    assert_eq!(outputs(&done, "item"), ["1", "2", "3", "4", "{a:5}", "006"]);
    let steps = site.client().run_steps(run).await.unwrap().steps;
    let job = steps[0].state.job_id.unwrap().to_string();
    let wrote = site.belfry(&["logs", &job]).await;
    let told = wrote.stdout + &wrote.stderr;
    for line in [
        "added 0 elements to step number (3 already existed); the step has 6 elements\n",
        "no elements to add\n",
        "refused with 3\n",
        "step `nobody` accepts no elements from this task: expected number",
        "\"added\": 0,\n  \"total\": 6\n",
    ] {
        assert!(told.contains(line), "{line}: {told}");
    }
}
