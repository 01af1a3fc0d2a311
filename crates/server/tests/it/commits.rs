//! Nothing is reported before its commit, and no failure of a commit loses or duplicates a job.
//!
//! The server runs over a store whose commits a test can stall, fail, or execute without an answer. A request
//! is answered as accepted only after its commit. After a failure the tests check both sides: what the client
//! was told, and which rows exist.
//!
//! The last tests cover the states that follow: lost shards, a full disk, a store that can no longer be
//! trusted, and an idle server.

use engine::output::Submitted;
use model::{JobStatus, ShardId};
use server::node::{Readiness, RequestError};
use server::testing::Plan;
use store::faulty::{Fault, Operation};
use store::{Commits as _, Reads as _};

use crate::harness::{Server, job, soon, submit, try_submit_many};

/// A1, A2, A7.
#[tokio::test]
async fn a_submitted_job_runs_on_a_worker_and_succeeds() {
    let server = Server::start().await;
    let worker = server.worker(server.fake()).await;
    let made = submit(server.node(), job(), None).await.unwrap();
    assert!(made.new);
    let row = server.until_status(made.job, JobStatus::Succeeded).await;
    assert_eq!((row.state.executions, row.state.worker, worker.starts()), (1, Some(worker.id()), 1));
}

/// D7. Accepted means durable.
#[tokio::test]
async fn a_reply_comes_after_the_commit_and_not_before() {
    let server = Server::start().await;
    let stall = server.store.stall(Operation::Commit, server.store.calls(Operation::Commit) + 1);
    let mut submission = Box::pin(submit(server.node(), job(), None));
    tokio::select! {
        biased;
        reply = &mut submission => panic!("{reply:?} came before the commit"),
        () = soon("the commit", stall.reached()) => {}
    }
    assert!(server.store.counts(None).await.unwrap().values().all(|count| *count == 0));
    assert!(futures_now(&mut submission).is_none(), "the commit still stalls");
    stall.release();
    let made = soon("the reply", submission).await.unwrap();
    assert!(server.store.job(made.job).await.unwrap().is_some());
}

/// Returns the value of a future that is ready.
fn futures_now<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match std::pin::Pin::new(future).poll(&mut context) {
        std::task::Poll::Ready(value) => Some(value),
        std::task::Poll::Pending => None,
    }
}

/// D7. While one batch is committed, the next one is filled; all requests are answered.
#[tokio::test]
async fn submissions_during_a_slow_commit_share_the_next_one() {
    let server = Server::start().await;
    let commits = server.store.calls(Operation::Commit);
    let stall = server.store.stall(Operation::Commit, commits + 1);
    let first = tokio::spawn({
        let node = server.node().clone();
        async move { submit(&node, job(), None).await }
    });
    soon("the commit", stall.reached()).await;
    let mut others = Vec::new();
    for _ in 0..50 {
        others.push(Box::pin(submit(server.node(), job(), None)));
    }
    // Polled once, each is in the inbox.
    assert!(others.iter_mut().all(|other| futures_now(other).is_none()));
    stall.release();
    soon("the first reply", first).await.unwrap().unwrap();
    for other in others {
        soon("a reply", other).await.unwrap();
    }
    // No other rows changed: there is no worker.
    assert_eq!(server.store.calls(Operation::Commit), commits + 2);
}

/// A10, D7: rule 7 of the design.
#[tokio::test]
async fn a_request_with_an_unknown_outcome_can_be_repeated_with_its_key() {
    let server = Server::start().await;
    server.store.inject_next(Operation::Commit, Fault::After);
    assert_eq!(submit(server.node(), job(), Some(7)).await, Err(RequestError::OutcomeUnknown));
    server.ready().await;
    let again = submit(server.node(), job(), Some(7)).await.unwrap();
    assert!(!again.new, "the first commit had succeeded");
    let worker = server.worker(server.fake()).await;
    server.until_status(again.job, JobStatus::Succeeded).await;
    assert_eq!((server.count(JobStatus::Succeeded).await, worker.starts()), (1, 1));
}

/// D7. A failed commit is reported, and the request may be repeated even without a key.
#[tokio::test]
async fn a_failed_commit_changes_nothing() {
    let server = Server::start().await;
    server.store.inject_next(Operation::Commit, Fault::Before);
    assert_eq!(submit(server.node(), job(), None).await, Err(RequestError::Loading));
    server.ready().await;
    assert_eq!(server.count(JobStatus::Waiting).await, 0);
    submit(server.node(), job(), None).await.unwrap();
}

/// D7. Commits sent after a failed commit fail too.
#[tokio::test]
async fn commits_after_a_failed_commit_change_nothing() {
    // This number of jobs fills the commits that are sent ahead.
    const MANY: usize = 3_000;
    let server = Server::start().await;
    let next = server.store.calls(Operation::Commit) + 1;
    let stall = server.store.stall(Operation::Commit, next);
    server.store.inject(Operation::Commit, next + 1, Fault::Before);
    let mut first = Box::pin(submit(server.node(), job(), None));
    assert!(futures_now(&mut first).is_none());
    soon("the commit", stall.reached()).await;
    let behind: Vec<_> = (0..3)
        .map(|_| {
            let node = server.node().clone();
            tokio::spawn(async move { try_submit_many(&node, &job(), MANY).await })
        })
        .collect();
    soon("all but the last to be sent", async {
        while server.store.waiting_commits() < server.store.commits_ahead() - 1 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    stall.release();
    soon("the first reply", first).await.unwrap();
    for submission in behind {
        let answer = soon("a reply", submission).await.unwrap();
        assert_eq!(answer, Err(RequestError::Loading));
    }
    server.ready().await;
    assert_eq!(server.count(JobStatus::Waiting).await, 1);
    assert_eq!(server.store.calls(Operation::Commit), next + 1, "no later commit reached the store");
}

/// D5, D6. A server that lost its shards drops its engine, acquires the shards again and continues.
#[tokio::test]
async fn a_fenced_commit_ends_leadership_and_work_continues_after_a_reload() {
    let server = Server::start().await;
    let worker = server.worker(server.fake().plan(|_| Plan::Run)).await;
    let made = submit(server.node(), job(), None).await.unwrap();
    let task = soon("the job to run", worker.next_running()).await;
    server.store.inject_next(Operation::Commit, Fault::Fenced(ShardId(0)));
    assert_eq!(submit(server.node(), job(), None).await, Err(RequestError::Loading));
    soon("the worker to come back", worker.sessions(2)).await;
    worker.exit(&task, 0);
    let row = server.until_status(made.job, JobStatus::Succeeded).await;
    assert_eq!((row.state.executions, worker.starts()), (1, 1));
}

/// D7: rule 6 of the design. New work is refused with its own code, other work continues, and the server recovers by
/// itself.
#[tokio::test]
async fn a_full_store_refuses_new_work_finishes_running_work_and_recovers() {
    let server = Server::start().await;
    let worker = server.worker(server.fake().plan(|_| Plan::Run)).await;
    let running = submit(server.node(), job(), None).await.unwrap();
    let task = soon("the job to run", worker.next_running()).await;
    server.until_status(running.job, JobStatus::Running).await;
    let checks = server.store.calls(Operation::Check);
    let healing = server.store.stall(Operation::Check, checks + 1);
    server.store.inject_next(Operation::Commit, Fault::Full);

    assert_eq!(submit_once_loaded(&server).await, Err(RequestError::Full));
    server.readiness(Readiness::Full).await;
    assert_eq!(submit(server.node(), job(), None).await, Err(RequestError::Full));
    soon("the worker to come back", worker.sessions(2)).await;
    worker.exit(&task, 0);
    server.until_status(running.job, JobStatus::Succeeded).await;

    assert_eq!(server.node().ready(), Readiness::Full);
    soon("the probe", healing.reached()).await;
    healing.release();
    server.ready().await;
    submit(server.node(), job(), None).await.unwrap();
}

/// Repeats the request while the shards are loaded, as clients do: the failed commit may have been one with the
/// worker's reports.
async fn submit_once_loaded(server: &Server) -> Result<Submitted, RequestError> {
    soon("the shards to be loaded", async {
        loop {
            match submit(server.node(), job(), None).await {
                Err(RequestError::Loading) => tokio::task::yield_now().await,
                answer => return answer,
            }
        }
    })
    .await
}

/// D7: rule 6 of the design. A store that cannot be trusted ends the process.
#[tokio::test]
async fn a_fatal_store_ends_the_server() {
    let server = Server::start().await;
    server.store.inject_next(Operation::Commit, Fault::Fatal);
    assert_eq!(submit(server.node(), job(), None).await, Err(RequestError::OutcomeUnknown));
    let fatal = soon("the end", server.running.failed()).await;
    assert!(fatal.to_string().starts_with("the server cannot continue: "), "{fatal}");
    assert!(matches!(server.node().ready(), Readiness::Failed { .. }));
    assert_eq!(submit(server.node(), job(), None).await, Err(RequestError::Stopping));
    assert!(soon("the shutdown", server.running.shutdown()).await.is_err());
}

/// Leases are renewed while the server is idle.
#[tokio::test]
async fn an_idle_server_keeps_its_shards() {
    let server = Server::start_with(|config| config.shard_lease = Some(model::Duration::from_secs(1))).await;
    let renewals = server.store.calls(Operation::Renew);
    server.store.inject(Operation::Renew, renewals + 1, Fault::Before);
    let third = server.store.stall(Operation::Renew, renewals + 3);
    soon("the third renewal", third.reached()).await;
    third.release();
    submit(server.node(), job(), None).await.unwrap();
    assert_eq!(server.store.calls(Operation::Acquire), 1);
}
