//! Workers that disconnect, reconnect, refuse, and send no heartbeats.

use engine::Input;
use model::worker::WorkerStatus;
use model::{Duration, JobStatus};
use server::ServerConfig;
use server::testing::{FakeWorker, Plan};
use store::Reads as _;
use store::faulty::Operation;

use crate::harness::{Server, job, soon, submit};

fn short_leases(config: &mut ServerConfig) {
    config.engine.heartbeat_interval = Duration::from_millis(100);
    config.engine.lease = Duration::from_millis(300);
    config.engine.lease_margin = Duration::from_millis(50);
}

/// D3, D4. A lost worker costs its job no retry.
#[tokio::test]
async fn the_job_of_a_lost_worker_runs_on_another() {
    let server = Server::start_with(short_leases).await;
    let first = server.worker(server.fake().plan(|_| Plan::Run)).await;
    let made = submit(server.node(), job(), None).await.unwrap();
    let task = soon("the job to run", first.next_running()).await;
    let second = server.worker(server.fake()).await;
    first.kill();
    let row = server.until_status(made.job, JobStatus::Succeeded).await;
    assert_eq!((row.state.executions, row.state.run_failures, row.state.worker), (2, 0, Some(second.id())));
    let lost = server.store.execution(task.execution_id()).await.unwrap().unwrap();
    assert_eq!(lost.record.status, model::ExecutionStatus::Lost);
}

/// D3. Three missed heartbeats, with the connection still open.
#[tokio::test]
async fn a_connected_worker_without_heartbeats_is_lost() {
    let server = Server::start_with(short_leases).await;
    let worker = server.worker(server.fake()).await;
    worker.set_beating(false);
    server
        .until("the worker to be lost", || async {
            let workers = server.store.workers().await.unwrap();
            workers.iter().any(|w| w.id == worker.id() && w.status == WorkerStatus::Lost).then_some(())
        })
        .await;
    worker.set_beating(true);
    // Its next heartbeat is refused, so it opens another session.
    soon("another session", worker.sessions(2)).await;
    let made = submit(server.node(), job(), None).await.unwrap();
    server.until_status(made.job, JobStatus::Succeeded).await;
}

/// D3. A worker that sends heartbeats is never lost, however slow commits are.
#[tokio::test]
async fn a_stalled_commit_loses_no_worker() {
    let server = Server::start_with(short_leases).await;
    let worker = server.worker(server.fake().plan(|_| Plan::Run)).await;
    let made = submit(server.node(), job(), None).await.unwrap();
    let task = soon("the job to run", worker.next_running()).await;
    server.until_status(made.job, JobStatus::Running).await;
    let stall = server.store.stall(Operation::Commit, server.store.calls(Operation::Commit) + 1);
    let submission = tokio::spawn({
        let node = server.node().clone();
        async move { submit(&node, job(), None).await }
    });
    soon("the commit", stall.reached()).await;
    // Five heartbeats take longer than a lease; each is answered although nothing can be committed.
    soon("heartbeats to be answered during the commit", worker.grants(5)).await;
    stall.release();
    submission.await.unwrap().unwrap();
    worker.exit(&task, 0);
    let row = server.until_status(made.job, JobStatus::Succeeded).await;
    assert_eq!(row.state.executions, 1);
}

/// D9. A session is only a connection: executions continue, and are reported in the next session.
#[tokio::test]
async fn a_worker_that_reconnects_keeps_its_executions() {
    let server = Server::start().await;
    let worker = server.worker(server.fake().plan(|_| Plan::Run)).await;
    let made = submit(server.node(), job(), None).await.unwrap();
    let task = soon("the job to run", worker.next_running()).await;
    worker.reconnect();
    soon("another session", worker.sessions(2)).await;
    worker.exit(&task, 3);
    let row = server.until_status(made.job, JobStatus::Failed).await;
    assert_eq!((row.state.executions, worker.starts()), (1, 1));
    assert_eq!(row.state.outcome.unwrap().exit_code, Some(3));
}

/// A4. A running job is stopped on its worker.
#[tokio::test]
async fn a_cancel_stops_the_execution_on_its_worker() {
    let server = Server::start().await;
    let worker = server.worker(server.fake().plan(|_| Plan::Run)).await;
    let made = submit(server.node(), job(), None).await.unwrap();
    soon("the job to run", worker.next_running()).await;
    let cancel = |ticket| Input::Cancel { ticket, job: made.job, actor: "test".into(), reason: None };
    server.node().request(cancel).await.unwrap();
    server.until_status(made.job, JobStatus::Cancelled).await;
}

/// A7. Refusals and failed starts of a worker are counted separately from failures.
#[tokio::test]
async fn refusals_and_failed_starts_reach_the_job() {
    let server = Server::start().await;
    let refusing = server.fake().plan(|task| match task.number {
        1 => Plan::Refuse("no room".into()),
        2 => Plan::StartFail("command_not_found".into()),
        _ => Plan::Exit(9),
    });
    let worker = server.worker(refusing).await;
    let mut spec = job();
    spec.retry.max_start_retries = 3;
    spec.retry.max_retries = 0;
    spec.retry.backoff.initial = Duration::from_millis(1);
    spec.retry.backoff.max = Duration::from_millis(1);
    let made = submit(server.node(), spec, None).await.unwrap();
    let row = server.until_status(made.job, JobStatus::Failed).await;
    assert_eq!((row.state.executions, row.state.start_failures, row.state.run_failures), (3, 1, 1));
    assert_eq!(worker.starts(), 1);
}

/// The metrics count the same jobs as the store.
#[tokio::test]
async fn committed_jobs_are_counted() {
    let server = Server::start().await;
    let _worker: FakeWorker = server.worker(server.fake()).await;
    let made = submit(server.node(), job(), None).await.unwrap();
    server.until_status(made.job, JobStatus::Succeeded).await;
    let lines = [
        "belfry_jobs_submitted_total 1",
        "belfry_jobs_ended_total{status=\"succeeded\"} 1",
        "belfry_executions_ended_total{status=\"succeeded\"} 1",
        "belfry_start_delay_seconds_count 1",
        "belfry_run_seconds_count 1",
    ];
    let services = &server.running.services;
    // The metrics follow the commit, which the store shows first.
    let is_counted = || {
        let text = services.metrics.encode(&services.node.view(), true, server::metrics::Exposition::Text);
        lines.iter().all(|line| text.lines().any(|l| l == *line))
    };
    soon("the metrics", async {
        while !is_counted() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}
