//! Kills and pauses of single processes: which work continues, is retried, or is never repeated.
//!
//! Each test kills or pauses one process (agent, supervisor, fuse, server, or a whole worker) while jobs of
//! each delivery level run. Their tasks write to a witness file. `assert_promises_kept` compares the lines of
//! the tasks with the results of the jobs, and `assert_history_is_whole` gives rows and events to the checker
//! of the simulator.
//!
//! `chaos` combines such faults at random; here each fault is alone, so a failure names its cause.

use std::collections::BTreeMap;
use std::time::Duration;

use client::JobFilter;
use futures::TryStreamExt as _;
use harness::story::Story;
use harness::witness::JobResult;
use harness::{Pid, Recorder, Role, Site, Witness, until};
use model::spec::Delivery;
use model::{Bytes, Cause, JobId, JobSpec, JobStatus, Millicores};
use sim::check::Invariant;
use store::sqlite::SqliteStore;

const SOON: Duration = Duration::from_secs(30);

async fn until_lines(witness: &Witness, kind: &str, count: usize) {
    until_lines_within(SOON, witness, kind, count).await;
}

async fn until_lines_within(time: Duration, witness: &Witness, kind: &str, count: usize) {
    let what = format!("tasks recorded `{kind}` {count} times");
    until(&what, time, async || (witness.count(kind) >= count).then_some(())).await;
}

/// Asserts that every job has ended and no guarantee was violated.
async fn assert_promises_kept(site: &Site, witness: &Witness, jobs: &[(JobId, Delivery)]) {
    let mut fates = BTreeMap::new();
    for &(id, delivery) in jobs {
        let job = site.until_job(id, "ended", |j| j.status.is_final()).await;
        let executions = site.client().job_executions(id).await.unwrap().items;
        fates.insert(id.to_string(), JobResult { delivery, job: Some(job), executions });
    }
    assert_eq!(witness.violations(&fates), [""; 0]);
}

/// I4, I5. Rows and events agree on every transition, according to the checker of the fault injection tests.
async fn assert_history_is_whole(mut site: Site, witness: &Witness) {
    site.server.shut_down().await;
    let options = store::sqlite::Options { ballast_bytes: 0, ..Default::default() };
    let store = SqliteStore::open(site.server.data().join("belfry.db"), options).unwrap();
    let story = Story::tell(&Recorder::default(), witness, &store).await;
    assert_eq!(story.discrepancies, [""; 0]);
    let report = sim::check::check(&story.history);
    let whole = [Invariant::I4, Invariant::I5];
    let broken: Vec<_> = report.violations.iter().filter(|found| whole.contains(&found.invariant)).collect();
    assert!(broken.is_empty(), "{broken:#?}");
}

fn with_retries(mut spec: JobSpec, delivery: Delivery) -> JobSpec {
    spec.delivery = delivery;
    spec.retry.max_retries = 3;
    spec.retry.backoff.initial = "100ms".parse().unwrap();
    spec
}

/// D9. The task does not depend on the agent process.
#[tokio::test]
async fn a_task_continues_while_its_agent_is_restarted() {
    let mut site = Site::start().await;
    let witness = site.witness();
    let job = site.submit(&witness.job(15)).await;
    until_lines(&witness, "beat", 1).await;
    site.workers[0].kill_agent().await;
    let beats = witness.count("beat");
    until_lines(&witness, "beat", beats + 3).await;
    site.workers[0].start_agent();
    let ended = site.until_status(job, JobStatus::Succeeded).await;
    assert_eq!(ended.executions, 1);
    assert_promises_kept(&site, &witness, &[(job, Delivery::AtLeastOnce)]).await;
}

/// D4, D9. A lost worker returns before another execution has started: the results of its tasks are accepted, at
/// every delivery level.
#[tokio::test]
async fn results_of_a_lost_worker_that_returns_first_are_accepted() {
    let mut site = Site::start().await;
    let witness = site.witness();
    let mut jobs = Vec::new();
    for delivery in [Delivery::AtLeastOnce, Delivery::ExactlyOnce, Delivery::AtMostOnce] {
        let mut spec = witness.job(20);
        spec.delivery = delivery;
        jobs.push((site.submit(&spec).await, delivery));
    }
    for (job, _) in &jobs {
        site.until_job(*job, "started", |job| job.started_at.is_some()).await;
    }
    site.workers[0].kill_agent().await;
    until_lines(&witness, "end", jobs.len()).await;
    for (job, delivery) in &jobs {
        let unknown = if *delivery == Delivery::AtMostOnce { JobStatus::Running } else { JobStatus::Waiting };
        site.until_status(*job, unknown).await;
    }
    site.workers[0].start_agent();
    for (job, _) in &jobs {
        let ended = site.until_status(*job, JobStatus::Succeeded).await;
        assert_eq!(ended.executions, 1);
    }
    assert_eq!(witness.count("start"), jobs.len());
    assert_promises_kept(&site, &witness, &jobs).await;
    assert_history_is_whole(site, &witness).await;
}

/// D9. An execution that ended while the agent was down is reported after the agent's restart.
#[tokio::test]
async fn a_result_waits_for_the_next_agent() {
    let mut site = Site::start().await;
    let witness = site.witness();
    let job = site.submit(&witness.job(3)).await;
    until_lines(&witness, "start", 1).await;
    site.workers[0].stop_agent().await;
    until_lines(&witness, "end", 1).await;
    assert_eq!(site.client().job(job).await.unwrap().status, JobStatus::Running);
    site.workers[0].start_agent();
    assert_eq!(site.until_status(job, JobStatus::Succeeded).await.executions, 1);
}

/// D5, D9. A server is down for longer than a lease: tasks are frozen and then resume; none runs twice.
#[tokio::test]
async fn a_task_survives_a_server_outage_longer_than_its_lease() {
    let mut site = Site::start().await;
    let witness = site.witness();
    let job = site.submit(&with_retries(witness.job(100), Delivery::ExactlyOnce)).await;
    until_lines(&witness, "beat", 1).await;
    site.server.kill().await;
    until("the task is frozen", SOON, async || {
        let tasks = site.workers[0].tasks();
        (!tasks.is_empty() && tasks.iter().all(|t| t.is_paused())).then_some(())
    })
    .await;
    assert_eq!(witness.count("end"), 0);
    site.server.restart().await;
    let ended = site.until_status(job, JobStatus::Succeeded).await;
    assert_eq!(ended.executions, 1, "the task resumed");
    assert_promises_kept(&site, &witness, &[(job, Delivery::ExactlyOnce)]).await;
}

/// D4, D7. The supervisor dies: its tasks die with it, and each job ends according to its delivery level.
#[tokio::test]
async fn tasks_die_with_a_killed_supervisor_and_each_delivery_level_holds() {
    let site = Site::start().await;
    let witness = site.witness();
    let mut jobs = Vec::new();
    for delivery in [Delivery::AtLeastOnce, Delivery::AtMostOnce, Delivery::ExactlyOnce] {
        let job = site.submit(&with_retries(witness.job(8), delivery)).await;
        jobs.push((job, delivery));
    }
    until_lines(&witness, "start", 3).await;
    let tasks = site.workers[0].tasks();
    site.workers[0].find(Role::Supervisor).unwrap().kill();
    until("the tasks are dead", SOON, async || tasks.iter().all(|t| !t.is_alive()).then_some(())).await;

    assert_promises_kept(&site, &witness, &jobs).await;
    let statuses: Vec<_> = {
        let mut found = Vec::new();
        for (job, _) in &jobs {
            let job = site.client().job(*job).await.unwrap();
            found.push((job.status, job.executions));
        }
        found
    };
    assert_eq!(
        statuses,
        [(JobStatus::Succeeded, 2), (JobStatus::Failed, 1), (JobStatus::Succeeded, 2)],
        "interrupted: retried, unless it is at_most_once"
    );
}

/// D3, D4. A machine is lost: its executions are restarted elsewhere after the end of its lease.
#[tokio::test]
async fn the_jobs_of_a_lost_worker_move_to_another_worker() {
    let mut site = Site::server_only(&[("BELFRY_SERVER__RESULT_WAIT", "2s")]).await;
    site.add_worker().await;
    let witness = site.witness();
    let careful = site.submit(&with_retries(witness.job(300), Delivery::AtMostOnce)).await;
    let job = site.submit(&with_retries(witness.job(60), Delivery::AtLeastOnce)).await;
    until_lines(&witness, "start", 2).await;
    site.add_worker().await;
    // All processes are killed at once, as in a machine failure. The fuse is paused first, because it would act on
    // the end of the supervisor.
    let worker = &mut site.workers[0];
    let fuse = worker.find(Role::Fuse).unwrap();
    fuse.pause();
    let tasks = worker.tasks();
    worker.find(Role::Supervisor).unwrap().kill();
    worker.kill_agent().await;
    tasks.into_iter().for_each(Pid::kill);
    fuse.kill();

    let ended = site.until_status(job, JobStatus::Succeeded).await;
    assert_eq!((ended.executions, ended.run_failures), (2, 0), "a lost worker costs no retry");
    site.until_status(careful, JobStatus::Failed).await;
    let history = site.client().job_events(careful).await.unwrap();
    assert_eq!(history.last().map(|e| e.cause), Some(Cause::OutcomeUnknown), "{history:#?}");
    let jobs = [(job, Delivery::AtLeastOnce), (careful, Delivery::AtMostOnce)];
    assert_promises_kept(&site, &witness, &jobs).await;
}

/// A paused supervisor cannot freeze its tasks, so the fuse does.
#[tokio::test]
async fn tasks_of_a_paused_supervisor_are_frozen_by_the_fuse_and_do_not_overlap() {
    let mut site = Site::start().await;
    let witness = site.witness();
    let job = site.submit(&with_retries(witness.job(100), Delivery::ExactlyOnce)).await;
    until_lines(&witness, "beat", 1).await;
    site.add_worker().await;
    let worker = &mut site.workers[0];
    let (supervisor, tasks) = (worker.find(Role::Supervisor).unwrap(), worker.tasks());
    supervisor.pause();
    worker.kill_agent().await;
    until("the fuse froze the task", SOON, async || tasks.iter().any(|t| t.is_paused()).then_some(())).await;
    until_lines(&witness, "start", 2).await;
    supervisor.resume();
    site.workers[0].start_agent();
    let ended = site.until_status(job, JobStatus::Succeeded).await;
    assert_eq!(ended.executions, 2);
    until("the stale task is gone", SOON, async || tasks.iter().all(|t| !t.is_alive()).then_some(())).await;
    assert_promises_kept(&site, &witness, &[(job, Delivery::ExactlyOnce)]).await;
}

/// Timeout for a worker that must be lost first, on a machine that is busy with other tests.
const LATER: Duration = Duration::from_mins(3);

/// D4. The same during a burst of starts. Starts that wait in the worker's queue when its supervisor is paused run
/// elsewhere after it resumes. (The worker's own tests ensure that the queue is full.)
#[tokio::test]
async fn a_pause_during_a_burst_of_starts_causes_no_overlap() {
    const JOBS: usize = 100;
    let mut site = Site::server_only(&[]).await;
    site.worker_settings = vec![("BELFRY_WORKER__SLOTS".into(), "200".into())];
    site.add_worker().await;
    let supervisor = site.workers[0].find(Role::Supervisor).unwrap();
    let witness = site.witness();
    let mut spec = with_retries(witness.job(10), Delivery::ExactlyOnce);
    spec.resources.cpu = Some(Millicores(1));
    spec.resources.memory = Some(Bytes(1 << 20));
    let made = site.client().submit_all(&vec![spec; JOBS]).await.unwrap();
    let jobs: Vec<_> = made.iter().map(|job| (job.id, Delivery::ExactlyOnce)).collect();
    until_lines(&witness, "start", 1).await;
    supervisor.pause();
    site.workers[0].kill_agent().await;
    let tasks = site.workers[0].tasks();
    site.add_worker().await;
    until_lines_within(LATER, &witness, "end", JOBS / 2).await;
    supervisor.resume();
    site.workers[0].start_agent();
    for (job, _) in &jobs {
        site.until_status(*job, JobStatus::Succeeded).await;
    }
    until("the stale tasks are gone", LATER, async || tasks.iter().all(|t| !t.is_alive()).then_some(()))
        .await;
    assert_promises_kept(&site, &witness, &jobs).await;
}

/// D3, D4. The agent is alive and could report success, while its supervisor is paused.
#[tokio::test]
async fn the_jobs_of_a_worker_with_a_paused_supervisor_move_to_another_worker() {
    let mut site = Site::start().await;
    let supervisor = site.workers[0].find(Role::Supervisor).unwrap();
    let witness = site.witness();
    // The first execution does not reach its end.
    let beats = "n=6000; if [ $BELFRY_ATTEMPT -gt 1 ]; then n=5; fi; while [ $n -gt 0 ]; do pause 0.1; tell beat; n=$((n-1)); done";
    let job = site.submit(&with_retries(witness.job_that(beats), Delivery::ExactlyOnce)).await;
    until_lines(&witness, "beat", 1).await;
    supervisor.pause();
    let tasks = site.workers[0].tasks();
    site.add_worker().await;
    let ended = until("the job runs elsewhere", LATER, async || {
        let job = site.client().job(job).await.ok()?;
        job.status.is_final().then_some(job)
    })
    .await;
    assert_eq!((ended.status, ended.executions), (JobStatus::Succeeded, 2));
    assert!(site.workers[0].has_agent());
    supervisor.resume();
    until("the stale task is gone", LATER, async || tasks.iter().all(|t| !t.is_alive()).then_some(())).await;
    assert_promises_kept(&site, &witness, &[(job, Delivery::ExactlyOnce)]).await;
}

/// A killed task counts as a failure of the job, and is retried.
#[tokio::test]
async fn a_killed_task_is_a_failed_attempt() {
    let site = Site::start().await;
    let witness = site.witness();
    let spec = witness.job_that("if [ $BELFRY_ATTEMPT -eq 1 ]; then kill -9 $$; fi");
    let job = site.submit(&with_retries(spec, Delivery::AtLeastOnce)).await;
    let ended = site.until_status(job, JobStatus::Succeeded).await;
    assert_eq!((ended.executions, ended.run_failures), (2, 1));
    let executions = site.client().job_executions(job).await.unwrap().items;
    let first = executions.iter().find(|e| e.number == 1).unwrap().result.clone().unwrap();
    assert_eq!((first.signal, first.error.as_deref()), (Some(9), Some("signal")));
}

/// D5. Waiting, scheduled and running work still exists after a graceful restart.
#[tokio::test]
async fn a_server_restart_loses_nothing_and_continues() {
    let mut site = Site::server_only(&[]).await;
    let witness = site.witness();
    let client = site.client();
    let specs: Vec<_> = (0..1_000)
        .map(|i| {
            let mut spec = JobSpec::command(["true"]);
            spec.labels.insert("number".into(), i.to_string());
            spec
        })
        .collect();
    let made = client.submit_all(&specs).await.unwrap();
    assert_eq!(made.len(), 1_000);
    let mut later = witness.job(1);
    later.run_at = Some(client.job(made[0].id).await.unwrap().created_at + "3s".parse().unwrap());
    let later = site.submit(&later).await;
    let token = site.server.token();

    site.server.shut_down().await;
    site.server.restart().await;
    assert_eq!(site.server.token(), token, "the token is created only once");
    site.server.kill().await;
    site.server.restart().await;
    site.add_worker().await;
    for job in &made {
        let ended = site.until_status(job.id, JobStatus::Succeeded).await;
        assert_eq!(ended.executions, 1);
    }
    site.until_status(later, JobStatus::Succeeded).await;
}

/// A10, rule 7. A client without an answer repeats its request, and only one job is created.
#[tokio::test]
async fn submissions_through_a_killed_server_create_each_job_once() {
    let mut site = Site::server_only(&[]).await;
    let client = site.client();
    let submissions = tokio::spawn(async move {
        let mut made = Vec::new();
        for i in 0..300 {
            let mut spec = JobSpec::command(["true"]);
            spec.idempotency_key = Some(format!("key-{i}"));
            made.push(client.submit(&spec).await.expect("the job is accepted eventually").id);
        }
        made
    });
    let mut kills = 0;
    while !submissions.is_finished() && kills < 5 {
        let client = site.client();
        until("another job was accepted", SOON, async || {
            let page = client.jobs_page(&Default::default(), &client::Page::default()).await.ok()?;
            (submissions.is_finished() || page.items.len() > kills * 8).then_some(())
        })
        .await;
        site.server.kill().await;
        site.server.restart().await;
        kills += 1;
    }
    let mut made = submissions.await.unwrap();
    assert!(kills > 0);
    made.sort_unstable();
    made.dedup();
    assert_eq!(made.len(), 300, "each key has a different job");
    let stored: Vec<_> = site.client().jobs(JobFilter::default()).try_collect().await.unwrap();
    assert_eq!(stored.len(), 300, "there are no other jobs");
}
