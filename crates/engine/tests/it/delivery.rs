//! Delivery levels: guarantees when a worker is lost, refuses an execution, or is interrupted.
//!
//! Each test takes one execution from its worker and compares the history of the job: how often the job ran,
//! and whether the failure cost a retry. `unknown_outcome` covers the time after a loss, in which the worker
//! may still report; `properties` checks the same guarantees for random orders of events.
//!
//! # Invariants
//! - At most one execution of a job runs at a time, and fences grow.
//! - An `at_most_once` job never starts a second time after a reported start.
//! - A refusal counts only before a reported start.

use engine::Report;
use engine::input::ExecutionEnd;
use model::spec::Delivery;
use model::{JobId, JobStatus, WorkerId};

use crate::scenario::{Scenario, finished};

/// D3, D4, rule 12. The loss of a worker costs its job no retry.
#[test]
fn a_lost_worker_sends_its_job_back_to_the_queue() {
    let mut t = Scenario::new();
    let worker = t.worker().join();
    let job = t.job().submit();
    t.start(job);
    t.lose(worker);
    insta::assert_snapshot!(t.history(job), @"waiting (submitted) → running (placed) → waiting (worker_lost)");
    assert_eq!(t.state(job).run_failures, 0);
    let other = t.worker().join();
    t.succeed(job);
    assert_eq!(t.state(job).worker, Some(other));
}

/// A10, I8. Nothing is started elsewhere before the lost worker has certainly frozen its tasks.
#[test]
fn a_silent_worker_keeps_its_work_until_its_lease_has_run_out() {
    let mut t = Scenario::new();
    let worker = t.worker().join();
    t.worker().join();
    let jobs: Vec<_> = (0..10).map(|_| t.job().submit()).collect();
    for &job in &jobs {
        t.start(job);
    }
    t.silence(worker);
    t.pass(6);
    assert_eq!(t.running(), 10);
    assert!(jobs.iter().all(|&job| t.state(job).executions == 1));
    t.pass(1);
    assert!(jobs.iter().any(|&job| t.state(job).executions == 2));
}

/// Loses the worker of a running job, and adds another worker.
fn lose_once(t: &mut Scenario, worker: &mut WorkerId, job: JobId) {
    t.start(job);
    t.lose(*worker);
    *worker = t.worker().join();
}

/// A job that takes worker after worker down stops doing so.
#[test]
fn a_job_that_was_lost_too_often_fails() {
    let mut t = Scenario::new();
    let mut worker = t.worker().join();
    let job = t.job().retries(100).submit();
    for losses in 1..=5 {
        lose_once(&mut t, &mut worker, job);
        assert_eq!(t.state(job).losses, losses);
        t.pass(80);
        assert_eq!(t.status(job), JobStatus::Running, "after {losses} losses");
    }
    t.restart_full();
    t.rejoin(worker);
    lose_once(&mut t, &mut worker, job);
    assert_eq!(t.status(job), JobStatus::Running, "the last worker may still return with the result");
    t.pass(60);
    assert!(t.history(job).ends_with("running (placed) → failed (worker_lost)"), "{}", t.history(job));
    let outcome = t.state(job).outcome.clone().unwrap();
    assert_eq!(outcome.error.as_deref(), Some("worker_lost"));
    assert_eq!(
        outcome.message.as_deref(),
        Some(
            "6 executions were lost, and `retry.max_lost` is 5: the worker sent no heartbeat within its lease"
        )
    );
    assert_eq!(t.state(job).run_failures, 0);
    t.check_rebuilt();
}

/// The pause gives an operator time to notice, and other workers time to return.
#[test]
fn the_delay_after_a_loss_grows() {
    let mut t = Scenario::new();
    let mut worker = t.worker().join();
    let job = t.job().submit();
    lose_once(&mut t, &mut worker, job);
    assert_eq!(t.status(job), JobStatus::Running, "the first loss is replaced at once");
    t.start(job);
    t.lose(worker);
    worker = t.worker().join();
    assert_eq!(t.status(job), JobStatus::Retrying);
    t.pass(10);
    assert_eq!(t.status(job), JobStatus::Running);
    let _ = worker;
}

#[test]
fn a_job_that_must_not_be_lost_fails_at_its_first_loss_unless_its_worker_returns() {
    for returns in [true, false] {
        let mut t = Scenario::new();
        let worker = t.worker().join();
        let job = t.job().spec(|s| s.retry.max_lost = 0).submit();
        let execution = t.start(job);
        t.lose(worker);
        t.worker().join();
        if returns {
            t.rejoin(worker);
            let fence = t.execution(job).fence;
            t.report(worker, execution, fence, finished(ExecutionEnd::Succeeded, Some(0)));
        }
        t.pass(60);
        let expected = if returns { JobStatus::Succeeded } else { JobStatus::Failed };
        assert_eq!((t.status(job), t.state(job).executions), (expected, 1));
    }
}

/// A machine that restarts within its lease, too.
#[test]
fn an_interrupted_execution_counts_as_lost_and_a_drain_does_not() {
    let mut t = Scenario::new();
    t.worker().join();
    let interrupted = t.job().submit();
    t.start(interrupted);
    t.end_with(interrupted, finished(ExecutionEnd::Interrupted, None));
    assert_eq!(t.state(interrupted).losses, 1);

    let drained = t.job().submit();
    t.start(drained);
    t.end_with(drained, finished(ExecutionEnd::Stopped, None));
    assert_eq!(t.state(drained).losses, 0);
}

/// A worker that returns with the execution has not lost it.
#[test]
fn an_execution_that_continues_was_not_lost() {
    let mut t = Scenario::new();
    let worker = t.worker().join();
    let job = t.job().submit();
    t.start(job);
    for _ in 0..10 {
        t.lose(worker);
        assert_eq!(t.state(job).losses, 1);
        t.rejoin(worker);
        assert_eq!((t.status(job), t.state(job).losses), (JobStatus::Running, 0));
    }
    t.succeed(job);
}

/// I7.
#[test]
fn at_most_once_job_fails_with_outcome_unknown() {
    let mut t = Scenario::new();
    let worker = t.worker().join();
    let started = t.job().delivery(Delivery::AtMostOnce).retries(5).submit();
    let unheard = t.job().delivery(Delivery::AtMostOnce).submit();
    t.start(started);
    t.lose(worker);
    t.worker().join();
    t.pass(60);
    for job in [started, unheard] {
        insta::allow_duplicates! {
            insta::assert_snapshot!(t.history(job), @"waiting (submitted) → running (placed) → failed (outcome_unknown)");
        }
    }
}

#[test]
fn at_most_once_job_is_not_retried_after_its_start() {
    let mut t = Scenario::new();
    t.worker().join();
    let job = t.job().delivery(Delivery::AtMostOnce).retries(5).submit();
    t.fail(job, 1);
    assert_eq!(t.status(job), JobStatus::Failed);
}

/// A durable refusal proves that nothing started, so even an `at_most_once` job may run elsewhere.
#[test]
fn a_refusal_costs_nothing_at_any_level() {
    for delivery in [Delivery::AtLeastOnce, Delivery::AtMostOnce, Delivery::ExactlyOnce] {
        let mut t = Scenario::new();
        let first = t.worker().join();
        let job = t.job().delivery(delivery).submit();
        let (worker, assignment) = t.take(job);
        t.worker().join();
        t.report(
            worker,
            assignment.execution,
            assignment.fence,
            Report::Refused { reason: "no room".into() },
        );
        assert_eq!(t.status(job), JobStatus::Running);
        assert_ne!(t.state(job).worker, Some(first));
        t.succeed(job);
        assert_eq!((t.state(job).start_failures, t.state(job).run_failures), (0, 0));
    }
}

/// The only worker refused: it gets further assignments, but not in a tight loop.
#[test]
fn refusing_worker_gets_no_assignment_for_a_moment() {
    let mut t = Scenario::new();
    t.worker().join();
    let job = t.job().submit();
    let (worker, assignment) = t.take(job);
    t.report(worker, assignment.execution, assignment.fence, Report::Refused { reason: "no room".into() });
    assert_eq!(t.status(job), JobStatus::Waiting);
    t.pass(1);
    assert_eq!(t.status(job), JobStatus::Running);
}

#[test]
fn an_interruption_on_the_worker_costs_no_retry() {
    let mut t = Scenario::new();
    t.worker().join();
    let job = t.job().submit();
    t.end_with(job, finished(ExecutionEnd::Interrupted, None));
    assert_eq!(t.status(job), JobStatus::Running);
    t.succeed(job);
    assert_eq!(t.state(job).executions, 2);
}

/// I9, I10. A result with an old fence is acknowledged and changes nothing.
#[test]
fn a_result_that_arrives_after_reassignment_is_ignored() {
    let mut t = Scenario::new();
    let lost = t.worker().join();
    let job = t.job().submit();
    let execution = t.start(job);
    let fence = t.execution(job).fence;
    t.lose(lost);
    t.worker().join();
    t.start(job);
    t.rejoin(lost);
    assert!(t.players[&lost].stopped.contains_key(&execution), "the old copy is stopped");
    t.report(lost, execution, fence, finished(ExecutionEnd::Succeeded, Some(0)));
    assert_eq!(t.status(job), JobStatus::Running);
    assert!(t.players[&lost].held.is_empty(), "the worker may remove it from its journal");
    assert!(t.execution(job).fence > fence);
}

#[test]
fn a_cancelled_job_whose_worker_is_lost_is_cancelled() {
    for delivery in [Delivery::AtLeastOnce, Delivery::AtMostOnce] {
        let mut t = Scenario::new();
        let worker = t.worker().join();
        let job = t.job().delivery(delivery).submit();
        t.start(job);
        t.cancel(job).unwrap();
        t.lose(worker);
        assert_eq!(t.status(job), JobStatus::Cancelled);
    }
}

/// I7. The journal of a started execution is lost (for example, the machine was restored from a backup): the
/// execution is not started again with the same fence.
#[test]
fn started_execution_is_never_assigned_again() {
    for delivery in [Delivery::AtLeastOnce, Delivery::AtMostOnce] {
        let mut t = Scenario::new();
        let worker = t.worker().join();
        let job = t.job().delivery(delivery).submit();
        let execution = t.start(job);
        t.silence(worker);
        t.players.get_mut(&worker).unwrap().held.clear();
        t.rejoin(worker);
        assert_eq!(t.status(job), JobStatus::Running, "the hello may be old and delayed");
        t.pass(1);
        assert!(t.players[&worker].assigned.iter().all(|a| a.execution != execution));
        let unknown = delivery == Delivery::AtMostOnce;
        assert_eq!(t.status(job) == JobStatus::Failed, unknown, "{}", t.history(job));
    }
}

/// I7. A refusal is accepted only for an execution that was not reported as started.
#[test]
fn a_refusal_after_a_start_is_an_interruption() {
    let mut t = Scenario::new();
    t.worker().join();
    t.worker().join();
    let job = t.job().delivery(Delivery::AtMostOnce).submit();
    t.end_with(job, Report::Refused { reason: "x".into() });
    assert_eq!((t.status(job), t.state(job).executions), (JobStatus::Failed, 1));
}

/// A job that crashes every worker must not be reassigned in a tight loop.
#[test]
fn repeated_interruptions_are_delayed() {
    let mut t = Scenario::new();
    t.worker().join();
    let job = t.job().spec(|s| s.retry.max_lost = 10).submit();
    let start = t.now;
    for _ in 0..8 {
        while t.status(job) != JobStatus::Running {
            t.pass(1);
        }
        t.end_with(job, finished(ExecutionEnd::Interrupted, None));
    }
    assert!(t.now.since(start) >= model::Duration::from_secs(10 + 20 + 40 + 80));
    assert_eq!((t.state(job).run_failures, t.state(job).start_failures), (0, 0));
}

/// The row of its execution was lost; a cancelled job is cancelled all the same.
#[test]
fn a_cancelled_job_without_its_execution_is_cancelled() {
    let mut t = Scenario::new();
    t.worker().join();
    let other = t.worker().join();
    let job = t.job().submit();
    t.start(job);
    t.cancel(job).unwrap();
    t.rows.executions.clear();
    t.restart();
    t.rejoin(other);
    assert_eq!(t.status(job), JobStatus::Cancelled);
}
