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
use model::JobStatus;
use model::spec::Delivery;

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
    let job = t.job().submit();
    let start = t.now;
    for _ in 0..8 {
        while t.status(job) != JobStatus::Running {
            t.pass(1);
        }
        t.end_with(job, finished(ExecutionEnd::Interrupted, None));
    }
    assert!(t.now.since(start) >= model::Duration::from_secs(1 + 2 + 4 + 8));
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
