//! Checkpoints that an execution saves for the next execution of its job.

use engine::{Input, Reply, TaskRequest};
use model::{ExecutionId, Fence, JobId, JobStatus, Refusal};

use crate::scenario::Scenario;

fn current(t: &Scenario, job: JobId) -> (ExecutionId, Fence) {
    let record = t.execution(job);
    (record.id, record.fence)
}

fn saved(version: u64) -> Result<Reply, Refusal> {
    Ok(Reply::CheckpointSaved { version })
}

/// Creates a worker and a job that it runs.
fn running() -> (Scenario, JobId) {
    let mut t = Scenario::new();
    t.worker().join();
    let job = t.job().retries(5).submit();
    t.start(job);
    (t, job)
}

/// C4, D4. The next execution gets the version of the last checkpoint, however the previous one ended.
#[test]
fn next_execution_resumes_from_the_last_checkpoint() {
    let (mut t, job) = running();
    assert_eq!(t.save(current(&t, job), "a", None), saved(1));
    assert_eq!(t.save(current(&t, job), "b", None), saved(2));
    t.fail(job, 1);
    t.pass(2);
    let (worker, assignment) = t.take(job);
    assert_eq!((assignment.number, assignment.checkpoint), (2, Some(2)));
    assert_eq!(&*t.rows.checkpoints[&job].data, b"b");
    t.lose(worker);
    let second = t.worker().join();
    let (taken_by, assignment) = t.take(job);
    assert_eq!((taken_by, assignment.checkpoint), (second, Some(2)));
    let known = t.state(job).checkpoint.clone().unwrap();
    assert_eq!((known.version, known.size_bytes, known.execution), (2, 1, 1));
}

/// C4. A job without a checkpoint has no row and sends no version to its worker.
#[test]
fn job_without_checkpoint_sends_no_version() {
    let (mut t, job) = running();
    t.fail(job, 1);
    t.pass(2);
    assert_eq!(t.take(job).1.checkpoint, None);
    assert!(t.rows.checkpoints.is_empty() && t.state(job).checkpoint.is_none());
}

/// C4, D7. A replaced execution would overwrite the progress of its replacement.
#[test]
fn only_the_current_execution_saves() {
    let (mut t, job) = running();
    let first = current(&t, job);
    let other_fence = (first.0, Fence(first.1.0 + 1));
    let not_current = |execution| Err(Refusal::ExecutionNotCurrent { execution });
    assert_eq!(t.save(other_fence, "a", None), not_current(first.0));
    t.fail(job, 1);
    assert_eq!(t.save(first, "a", None), not_current(first.0));
    t.pass(2);
    t.start(job);
    assert_eq!(t.save(first, "a", None), not_current(first.0));
    let second = current(&t, job);
    assert_eq!(t.save(second, "b", None), saved(1));
    t.succeed(job);
    assert_eq!(t.save(second, "c", None), not_current(second.0));
    assert_eq!(&*t.rows.checkpoints[&job].data, b"b");
    assert_eq!(t.status(job), JobStatus::Succeeded);
}

/// D7. A task without a reply repeats its request, and the final report contains the checkpoint too.
#[test]
fn saving_the_same_data_returns_the_same_checkpoint() {
    let (mut t, job) = running();
    assert_eq!(t.save(current(&t, job), "a", Some(0)), saved(1));
    let row = t.rows.checkpoints[&job].clone();
    let version = t.state(job).version;
    assert_eq!(t.save(current(&t, job), "a", Some(0)), saved(1));
    assert_eq!((&t.rows.checkpoints[&job], t.state(job).version), (&row, version));
    let expected = Err(Refusal::VersionMismatch { expected: 0, found: 1 });
    assert_eq!(t.save(current(&t, job), "b", Some(0)), expected);
    assert_eq!(t.save(current(&t, job), "b", Some(1)), saved(2));
}

/// D4. Several checkpoints in one commit are one row, the last one.
#[test]
fn checkpoints_of_one_commit_are_one_row() {
    let (mut t, job) = running();
    let (execution, fence) = current(&t, job);
    for text in ["a", "b", "c"] {
        let request = Box::new(TaskRequest::SaveCheckpoint {
            content_type: "text/plain".into(),
            data: text.as_bytes().into(),
            hash: text.as_bytes()[0].into(),
            expected_version: None,
        });
        t.engine.handle(t.now, Input::Task { ticket: None, execution, fence, request });
    }
    t.flush();
    let row = &t.rows.checkpoints[&job];
    assert_eq!((row.version, &*row.data), (3, b"c".as_slice()));
}

/// D5, I28. Versions continue after a restart of the server.
#[test]
fn a_rebuilt_engine_has_the_last_checkpoint() {
    let (mut t, job) = running();
    t.save(current(&t, job), "a", None).unwrap();
    t.check_rebuilt();
    t.restart();
    t.rejoin_all();
    assert_eq!(t.save(current(&t, job), "a", None), saved(1));
    assert_eq!(t.save(current(&t, job), "b", None), saved(2));
    t.fail(job, 1);
    t.pass(2);
    assert_eq!(t.take(job).1.checkpoint, Some(2));
}
