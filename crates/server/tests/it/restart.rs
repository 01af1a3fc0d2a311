//! State after a restart of the server.
//!
//! The first test fails a server during a commit, with a thousand jobs in every state. Each accepted job must
//! still exist, and all must succeed once the clients have repeated their requests. The others cover a
//! graceful stop, tokens, retention, and one batch of ten thousand jobs.
//!
//! A restart happens within the test process: the server is dropped or stopped, and another one is started
//! over the same files. The real process is killed in the whole-system tests.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use engine::input::{CarriedResults, Expected, NewRun, NewWorkflow, WorkflowRequest};
use engine::{Input, Reply};
use model::run::{RunStatus, WorkflowHead};
use model::workflow::{Definition, StepSpec};
use model::{JobId, JobStatus, WorkflowSpec};
use server::node::{Readiness, RequestError};
use server::testing::Plan;
use store::Reads as _;
use store::faulty::{Fault, Operation};

use crate::harness::{Server, job, soon, submit, submit_many};

/// D5, D7. The server fails during a commit with a thousand jobs in every state.
#[tokio::test]
async fn a_thousand_jobs_survive_a_failure_of_the_server() {
    const JOBS: usize = 1_000;
    let server = Server::start().await;
    let runs = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&runs);
    let options = server.fake().plan(move |_| {
        // Every third job is still running when the server fails.
        if counted.fetch_add(1, Ordering::Relaxed).is_multiple_of(3) { Plan::Run } else { Plan::Succeed }
    });
    let worker = server.worker(options).await;
    let (accepted, refused) = submit_keys(&server, 0..700).await;
    assert_eq!((accepted.len(), refused.len()), (700, 0));
    // Reports of the first jobs, and all new jobs, are in the failing commits.
    server.store.inject_next(Operation::Commit, Fault::Fatal);
    let (none, unanswered) = submit_keys(&server, 700..JOBS as u128).await;
    assert_eq!(none, []);
    soon("the death", server.running.failed()).await;
    drop(worker);
    let _fatal = server.running.shutdown().await;
    drop(server.store);

    let server = Server::start_in(server.dir, |_| {}).await;
    let _worker = server.worker(server.fake()).await;
    let known: HashSet<_> = accepted.iter().copied().collect();
    assert_eq!(known.len(), accepted.len(), "every id is unique");
    for &job in &accepted {
        assert!(server.store.job(job).await.unwrap().is_some(), "{job} was accepted");
    }
    for key in unanswered {
        submit(server.node(), job(), Some(key)).await.unwrap();
    }
    // Executions of the lost worker are retried after its lease expires.
    server
        .until("all jobs to succeed", || async {
            (server.count(JobStatus::Succeeded).await == JOBS as u64).then_some(())
        })
        .await;
}

/// Submits a job for each key concurrently. Returns the accepted jobs, and the keys of the others.
async fn submit_keys(server: &Server, keys: std::ops::Range<u128>) -> (Vec<JobId>, Vec<u128>) {
    let submissions = keys.map(|key| {
        let node = server.node().clone();
        (key, tokio::spawn(async move { submit(&node, job(), Some(key)).await }))
    });
    let (mut accepted, mut refused) = (Vec::new(), Vec::new());
    for (key, submission) in submissions.collect::<Vec<_>>() {
        match soon("an answer", submission).await.unwrap() {
            Ok(made) => accepted.push(made.job),
            Err(_) => refused.push(key),
        }
    }
    (accepted, refused)
}

/// Everything in the inbox is committed and answered before a server stops.
#[tokio::test]
async fn a_shutdown_answers_accepted_requests_and_refuses_others() {
    let server = Server::start().await;
    let stall = server.store.stall(Operation::Commit, server.store.calls(Operation::Commit) + 1);
    let node = server.node().clone();
    let first = tokio::spawn({
        let node = node.clone();
        async move { submit(&node, job(), None).await }
    });
    soon("the commit", stall.reached()).await;
    let (tx, second) = tokio::sync::oneshot::channel();
    let in_the_inbox = tokio::spawn({
        let node = node.clone();
        async move {
            let submission = submit(&node, job(), None);
            tokio::pin!(submission);
            std::future::poll_fn(|cx| {
                assert!(submission.as_mut().poll(cx).is_pending());
                std::task::Poll::Ready(())
            })
            .await;
            tx.send(()).unwrap();
            submission.await
        }
    });
    soon("the second submission", second).await.unwrap();
    node.stop();
    server.readiness(Readiness::Stopping).await;
    assert_eq!(submit(&node, job(), None).await, Err(RequestError::Stopping));
    stall.release();
    let (first, second) = (first.await.unwrap().unwrap().job, in_the_inbox.await.unwrap().unwrap().job);
    drop(node);
    let dir = server.shutdown().await;

    // The shards were released: the next start need not wait for the lease to expire.
    let server =
        Server::start_in(dir, |config| config.shard_lease = Some(model::Duration::from_secs(60))).await;
    for job in [first, second] {
        assert_eq!(server.store.job(job).await.unwrap().unwrap().state.status, JobStatus::Waiting);
    }
}

/// The first tokens are created once; their files remain.
#[tokio::test]
async fn tokens_outlive_a_restart() {
    let server = Server::start().await;
    assert!(server.running.first_admin_token.is_some());
    let token = server.worker_token();
    let dir = server.shutdown().await;
    let server = Server::start_in(dir, |_| {}).await;
    assert_eq!(server.running.first_admin_token, None);
    assert_eq!(server.worker_token(), token);
    let _worker = server.worker(server.fake()).await;
}

/// Retention: logs and rows are deleted together, and idempotency keys remain.
#[tokio::test]
async fn an_expired_job_is_deleted_and_its_key_still_holds() {
    let server = Server::start().await;
    let _worker = server.worker(server.fake()).await;
    let mut spec = job();
    spec.retention = Some(model::Duration::ZERO);
    let made = submit(server.node(), spec.clone(), Some(3)).await.unwrap();
    let row = server.until_status(made.job, JobStatus::Succeeded).await;
    let execution = row.state.execution.unwrap();
    let logs = &server.running.services.objects.logs;
    let frames = crate::logs::frames(&["bye\n"]);
    logs.append(execution, server::objects::LogWrite::new(0, frames, true)).await.unwrap();
    let later = row.state.expires_at.unwrap() + model::Duration::from_secs(1);
    server::housekeeping::sweep(&server.running.services, later).await;
    assert!(server.store.job(made.job).await.unwrap().is_none());
    assert_eq!(logs.size(execution).await.unwrap().end, 0);
    let again = submit(server.node(), spec, Some(3)).await.unwrap();
    assert_eq!((again.job, again.new), (made.job, false));
}

/// C1, G3. Retention: a run is deleted with its steps, and its workflow remains.
#[tokio::test]
async fn an_expired_run_is_deleted_with_its_steps() {
    let server = Server::start().await;
    let _worker = server.worker(server.fake()).await;
    let mut spec = WorkflowSpec::new("nightly", vec![StepSpec::job("only", job())]);
    spec.retention = Some(model::Duration::ZERO);
    let definition = Definition::of(spec.clone());
    let body = serde_json::to_string(&spec).unwrap().into();
    let head = Arc::new(WorkflowHead { spec: Arc::new(spec), body });
    let ask = async |request| {
        let (request, actor) = (Box::new(request), Arc::from("ann"));
        server.node().request(move |ticket| Input::Workflow { ticket, request, actor }).await.unwrap()
    };
    let workflows = vec![NewWorkflow { head, expected: Expected::Absent }];
    let Reply::AppliedWorkflows(applied) = ask(WorkflowRequest::Apply { workflows }).await else { panic!() };
    let start = NewRun {
        workflow: Some(applied[0].workflow),
        generation: 1,
        body: definition.to_json().into(),
        definition: Arc::new(definition),
        parameters: Arc::default(),
        priority: None,
        note: None,
        retry_of: None,
        carried: CarriedResults::default(),
        origin: None,
        key: None,
    };
    let Reply::RunStarted { run, .. } = ask(WorkflowRequest::Start(Box::new(start))).await else { panic!() };
    let ended = || async {
        let row = server.store.run(run).await.unwrap();
        row.filter(|row| row.state.status == RunStatus::Succeeded)
    };
    let row = server.until("the run to succeed", ended).await;
    assert_eq!(server.store.run_steps(run).await.unwrap().len(), 1);
    let later = row.state.expires_at.unwrap() + model::Duration::from_secs(1);
    server::housekeeping::sweep(&server.running.services, later).await;
    assert!(server.store.run(run).await.unwrap().is_none());
    assert_eq!(server.store.run_steps(run).await.unwrap(), []);
    let workflow = server.store.workflow(applied[0].workflow).await.unwrap().unwrap();
    assert_eq!((workflow.state.generation, workflow.state.runs), (1, 1));
}

/// G3. A batch of ten thousand jobs is one commit, and all of them run.
#[tokio::test]
async fn a_large_batch_runs_to_its_end() {
    let server = Server::start().await;
    let worker = server.worker(server.fake()).await;
    let jobs = submit_many(server.node(), &job(), 10_000).await;
    assert_eq!(jobs.len(), 10_000);
    server
        .until("all jobs to succeed", || async {
            (server.count(JobStatus::Succeeded).await == 10_000).then_some(())
        })
        .await;
    assert_eq!((worker.starts(), worker.given_twice()), (10_000, Vec::new()));
}
