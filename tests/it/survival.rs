//! Kills and pauses of one process at a time: what goes on, what is tried again, what never is.

use std::collections::BTreeMap;
use std::time::Duration;

use client::JobFilter;
use futures::TryStreamExt as _;
use harness::story::Story;
use harness::witness::Fate;
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
    let what = format!("tasks told `{kind}` {count} times");
    until(&what, time, async || (witness.count(kind) >= count).then_some(())).await;
}

/// The end of all of it: every job ended, and nothing happened that should not have.
async fn assert_promises_kept(site: &Site, witness: &Witness, jobs: &[(JobId, Delivery)]) {
    let mut fates = BTreeMap::new();
    for &(id, delivery) in jobs {
        let job = site.until_job(id, "ended", |j| j.status.is_final()).await;
        let executions = site.client().job_executions(id).await.unwrap().items;
        fates.insert(id.to_string(), Fate { delivery, job: Some(job), executions });
    }
    assert_eq!(witness.violations(&fates), [""; 0]);
}

/// I4, I5. Rows and events agree on every step, as the storms' checker reads them.
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

/// D9. The agent is only a messenger.
#[tokio::test]
async fn a_task_runs_on_while_its_agent_is_killed_and_started_again() {
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

/// D4, D9. The worker is lost, and comes back before anything else has started: what its tasks did counts, at every level.
#[tokio::test]
async fn what_ended_on_a_lost_worker_is_not_done_again_when_it_comes_back_first() {
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

/// D9. What ended while the agent was away is reported when it is back.
#[tokio::test]
async fn an_outcome_waits_for_the_next_agent() {
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

/// D5, D9. A server that is gone for longer than a lease: tasks stand still and then go on; none runs twice.
#[tokio::test]
async fn a_task_survives_a_server_that_is_gone_for_longer_than_a_lease() {
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
    site.server.start_again().await;
    let ended = site.until_status(job, JobStatus::Succeeded).await;
    assert_eq!(ended.executions, 1, "it went on where it stood");
    assert_promises_kept(&site, &witness, &[(job, Delivery::ExactlyOnce)]).await;
}

/// D4, D7. The supervisor dies: its tasks die with it, and each job ends by its level.
#[tokio::test]
async fn a_killed_supervisor_takes_its_tasks_along_and_each_level_keeps_its_word() {
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
        "interrupted: tried again, unless it may not be"
    );
}

/// D3, D4. A machine is gone: its work goes elsewhere once its lease has run out.
#[tokio::test]
async fn the_jobs_of_a_lost_worker_go_to_another() {
    let mut site = Site::server_only(&[("BELFRY_SERVER__RESULT_WAIT", "2s")]).await;
    site.add_worker().await;
    let witness = site.witness();
    let careful = site.submit(&with_retries(witness.job(300), Delivery::AtMostOnce)).await;
    let job = site.submit(&with_retries(witness.job(12), Delivery::AtLeastOnce)).await;
    until_lines(&witness, "start", 2).await;
    site.add_worker().await;
    // All of it at once, as a machine goes; the fuse last, for it would act on the supervisor's end.
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

/// The pause hole: a supervisor that is stopped cannot hold its tasks, so the fuse does.
#[tokio::test]
async fn tasks_of_a_paused_supervisor_are_held_by_the_fuse_and_overlap_with_nothing() {
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

/// Long enough for a worker that is to be lost first, on a machine that is busy with other tests.
const LATER: Duration = Duration::from_mins(3);

/// D4. The same in the middle of a burst of starts. Those that wait in the worker's queue when its supervisor is stopped
/// run elsewhere when it continues. (The worker's own tests have that queue full for certain.)
#[tokio::test]
async fn a_burst_of_starts_that_is_interrupted_by_a_pause_overlaps_with_nothing() {
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

/// D3, D4. The agent lives and could say that all is well, while its supervisor stands still.
#[tokio::test]
async fn the_jobs_of_a_worker_whose_supervisor_stands_still_go_to_another() {
    let mut site = Site::start().await;
    let supervisor = site.workers[0].find(Role::Supervisor).unwrap();
    let witness = site.witness();
    // The first execution does not come to its end.
    let beats = "n=6000; if [ $BELFRY_ATTEMPT -gt 1 ]; then n=5; fi; while [ $n -gt 0 ]; do sleep 0.1; tell beat; n=$((n-1)); done";
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

/// A killed task is a failure of the job's own, and is tried again.
#[tokio::test]
async fn a_killed_task_is_a_failed_try() {
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

/// D5. Waiting, timed and running work are all there after a restart in good order.
#[tokio::test]
async fn a_restart_of_the_server_loses_nothing_and_goes_on() {
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
    site.server.start_again().await;
    assert_eq!(site.server.token(), token, "the token is made once");
    site.server.kill().await;
    site.server.start_again().await;
    site.add_worker().await;
    for job in &made {
        let ended = site.until_status(job.id, JobStatus::Succeeded).await;
        assert_eq!(ended.executions, 1);
    }
    site.until_status(later, JobStatus::Succeeded).await;
}

/// A10, rule 7. A client that got no answer repeats itself, and one job comes of it.
#[tokio::test]
async fn submissions_through_a_killed_server_make_each_job_once() {
    let mut site = Site::server_only(&[]).await;
    let client = site.client();
    let submissions = tokio::spawn(async move {
        let mut made = Vec::new();
        for i in 0..300 {
            let mut spec = JobSpec::command(["true"]);
            spec.idempotency_key = Some(format!("key-{i}"));
            made.push(client.submit(&spec).await.expect("accepted, sooner or later").id);
        }
        made
    });
    let mut kills = 0;
    while !submissions.is_finished() && kills < 5 {
        let client = site.client();
        until("something more was accepted", SOON, async || {
            let page = client.jobs_page(&Default::default(), &client::Page::default()).await.ok()?;
            (submissions.is_finished() || page.items.len() > kills * 8).then_some(())
        })
        .await;
        site.server.kill().await;
        site.server.start_again().await;
        kills += 1;
    }
    let mut made = submissions.await.unwrap();
    assert!(kills > 0);
    made.sort_unstable();
    made.dedup();
    assert_eq!(made.len(), 300, "each key has a job of its own");
    let stored: Vec<_> = site.client().jobs(JobFilter::default()).try_collect().await.unwrap();
    assert_eq!(stored.len(), 300, "and there is no other");
}
