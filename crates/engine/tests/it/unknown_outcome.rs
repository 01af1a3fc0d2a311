//! Executions whose outcome is unknown, because the lease of their worker ended before it reported. Their
//! results are accepted if nothing else has been started.
//!
//! `lost` creates such an execution, on the only worker. The tests then play what happens next: the worker
//! returns with a result, with a frozen task, with an assignment that it has not started, or without the
//! execution; another execution starts first; an operator removes the worker; or the wait for its result
//! ends.
//!
//! # Invariants
//! - At most one execution of a job is accepted as succeeded.
//! - A returning task never continues beside its replacement, so limits hold.
//! - An execution with an unknown outcome holds no place in a queue and in a concurrency key.

use engine::input::ExecutionEnd;
use engine::{Config, Input};
use model::queue::QueueSettings;
use model::spec::Delivery;
use model::why::Reason;
use model::{Duration, ExecutionStatus, JobId, JobStatus, WorkerId};

use crate::scenario::{Scenario, finished};

/// Creates a job on the only worker, which then is lost.
fn lost(t: &mut Scenario, delivery: Delivery) -> (WorkerId, JobId) {
    let worker = t.worker().join();
    let job = t.job().delivery(delivery).submit();
    t.start(job);
    t.lose(worker);
    (worker, job)
}

/// Ends the task of a job while its worker is disconnected.
fn ends_unheard(t: &mut Scenario, worker: WorkerId, job: JobId) {
    let (execution, fence) = (t.execution(job).id, t.execution(job).fence);
    t.report(worker, execution, fence, finished(ExecutionEnd::Succeeded, Some(0)));
}

/// Reconnects the worker, which reports.
fn reports(t: &mut Scenario, worker: WorkerId, job: JobId, how: ExecutionEnd, exit_code: Option<i32>) {
    let (execution, fence) = (t.execution(job).id, t.execution(job).fence);
    t.rejoin(worker);
    t.report(worker, execution, fence, finished(how, exit_code));
}

#[test]
fn result_of_a_lost_worker_is_accepted_if_nothing_else_started() {
    for delivery in [Delivery::AtLeastOnce, Delivery::ExactlyOnce] {
        let mut t = Scenario::new();
        let (worker, job) = lost(&mut t, delivery);
        assert_eq!(t.execution(job).status, ExecutionStatus::Unknown);
        ends_unheard(&mut t, worker, job);
        reports(&mut t, worker, job, ExecutionEnd::Succeeded, Some(0));
        insta::allow_duplicates! {
            insta::assert_snapshot!(t.history(job), @"waiting (submitted) → running (placed) → waiting (worker_lost) → running (worker_returned) → succeeded (succeeded)");
        }
        assert_eq!(t.state(job).executions, 1, "it ran once");
        assert_eq!(t.execution(job).status, ExecutionStatus::Succeeded);
        t.check_rebuilt();
    }
}

/// The retry policy of the job applies as usual.
#[test]
fn a_failure_that_a_lost_worker_reports_counts() {
    let mut t = Scenario::new();
    let (worker, job) = lost(&mut t, Delivery::ExactlyOnce);
    ends_unheard(&mut t, worker, job);
    reports(&mut t, worker, job, ExecutionEnd::Failed, Some(3));
    assert_eq!((t.status(job), t.state(job).executions), (JobStatus::Failed, 1));
}

#[test]
fn frozen_task_continues_when_its_worker_returns_first() {
    let mut t = Scenario::new();
    let (worker, job) = lost(&mut t, Delivery::ExactlyOnce);
    t.rejoin(worker);
    assert!(t.players[&worker].stopped.is_empty(), "it is not stopped");
    assert_eq!(t.execution(job).status, ExecutionStatus::Running);
    t.check_rebuilt();
    t.pass(60);
    t.succeed(job);
    assert_eq!(t.state(job).executions, 1);
}

/// The worker received the assignment, but had not started it before its lease ended.
#[test]
fn unstarted_assignment_is_sent_again() {
    let mut t = Scenario::new();
    let worker = t.worker().join();
    let job = t.job().submit();
    let (_, assignment) = t.take(job);
    t.lose(worker);
    t.rejoin(worker);
    assert_eq!(t.execution(job).status, ExecutionStatus::Assigned);
    t.report(worker, assignment.execution, assignment.fence, engine::Report::Started);
    t.succeed(job);
    assert_eq!(t.state(job).executions, 1);
}

#[test]
fn execution_missing_on_a_returned_worker_is_lost() {
    let mut t = Scenario::new();
    let (worker, job) = lost(&mut t, Delivery::ExactlyOnce);
    let first = t.execution(job).id;
    t.players.get_mut(&worker).unwrap().held.clear();
    t.rejoin(worker);
    assert_eq!(t.rows.executions[&first].status, ExecutionStatus::Lost);
    t.succeed(job);
    assert_eq!(t.state(job).executions, 2);
}

#[test]
fn another_execution_replaces_the_unknown_one() {
    let mut t = Scenario::new();
    let (worker, job) = lost(&mut t, Delivery::ExactlyOnce);
    let first = t.execution(job).id;
    t.worker().join();
    assert_eq!(t.rows.executions[&first].status, ExecutionStatus::Lost);
    t.rejoin(worker);
    assert!(t.players[&worker].stopped.contains_key(&first));
    t.succeed(job);
    assert_eq!(t.state(job).executions, 2);
}

#[test]
fn a_job_that_ends_while_its_execution_is_unknown_leaves_nothing_behind() {
    let mut t = Scenario::new();
    let (worker, job) = lost(&mut t, Delivery::ExactlyOnce);
    t.cancel(job).unwrap();
    assert_eq!(t.status(job), JobStatus::Cancelled);
    let execution = t.execution(job).clone();
    assert_eq!(execution.status, ExecutionStatus::Lost);
    t.rejoin(worker);
    assert!(t.players[&worker].stopped.contains_key(&execution.id));
}

#[test]
fn at_most_once_job_waits_for_its_worker_and_then_for_its_result() {
    let mut t = Scenario::new();
    let (worker, job) = lost(&mut t, Delivery::AtMostOnce);
    t.worker().join();
    assert_eq!(t.status(job), JobStatus::Running);
    assert!(matches!(t.why(job)[..], [Reason::OutcomeUnknown { .. }]), "{:?}", t.why(job));
    t.check_rebuilt();
    t.pass(30);
    ends_unheard(&mut t, worker, job);
    reports(&mut t, worker, job, ExecutionEnd::Succeeded, Some(0));
    assert_eq!((t.status(job), t.state(job).executions), (JobStatus::Succeeded, 1));
}

#[test]
fn at_most_once_job_fails_when_its_worker_does_not_return() {
    let mut t = Scenario::new();
    let (worker, job) = lost(&mut t, Delivery::AtMostOnce);
    t.pass(55);
    assert_eq!(t.status(job), JobStatus::Running);
    t.pass(5);
    insta::assert_snapshot!(t.history(job), @"waiting (submitted) → running (placed) → failed (outcome_unknown)");
    ends_unheard(&mut t, worker, job);
    reports(&mut t, worker, job, ExecutionEnd::Succeeded, Some(0));
    assert_eq!(t.status(job), JobStatus::Failed, "what has ended stays as it is");
}

/// The start was reported, and the worker has no trace of it: the outcome stays unknown.
#[test]
fn at_most_once_job_fails_when_its_worker_returns_without_it() {
    let mut t = Scenario::new();
    let (worker, job) = lost(&mut t, Delivery::AtMostOnce);
    t.players.get_mut(&worker).unwrap().held.clear();
    t.rejoin(worker);
    t.pass(1);
    assert_eq!(t.status(job), JobStatus::Failed);
}

#[test]
fn zero_result_wait_fails_immediately() {
    let mut t = Scenario::with(Config { result_wait: Duration::ZERO, ..Config::default() });
    let (_, job) = lost(&mut t, Delivery::AtMostOnce);
    assert_eq!(t.status(job), JobStatus::Failed);
}

#[test]
fn removed_worker_ends_its_unknown_executions() {
    let mut t = Scenario::new();
    let (worker, again) = lost(&mut t, Delivery::ExactlyOnce);
    t.ask(|ticket| Input::RemoveWorker { ticket, worker }).unwrap();
    assert_eq!(t.execution(again).status, ExecutionStatus::Lost);
    assert_eq!(t.status(again), JobStatus::Waiting);

    let (worker, once) = lost(&mut t, Delivery::AtMostOnce);
    t.ask(|ticket| Input::RemoveWorker { ticket, worker }).unwrap();
    assert_eq!(t.status(once), JobStatus::Failed);
    t.check_rebuilt();
}

/// A new owner of the shards has the same information.
#[test]
fn a_result_is_accepted_after_a_takeover_too() {
    for delivery in [Delivery::ExactlyOnce, Delivery::AtMostOnce] {
        for restarts in 1..=2 {
            let mut t = Scenario::new();
            let (worker, job) = lost(&mut t, delivery);
            (0..restarts).for_each(|_| t.restart());
            t.check_rebuilt();
            ends_unheard(&mut t, worker, job);
            reports(&mut t, worker, job, ExecutionEnd::Succeeded, Some(0));
            assert_eq!((t.status(job), t.state(job).executions), (JobStatus::Succeeded, 1));
        }
    }
}

/// A frozen task must not continue beside its replacement; its result is harmless.
#[test]
fn limits_hold_when_a_worker_comes_back() {
    for ended in [false, true] {
        for by_queue in [false, true] {
            let mut t = Scenario::new();
            if by_queue {
                t.queue("narrow", QueueSettings { concurrency: Some(1), ..QueueSettings::default() });
            }
            let worker = t.worker().label("zone", "a").join();
            let job = |t: &mut Scenario, zone| {
                let job = t.job().only_on("zone", zone);
                if by_queue { job.queue("narrow").submit() } else { job.concurrency("one", 1).submit() }
            };
            let first = job(&mut t, "a");
            t.start(first);
            t.lose(worker);
            t.worker().label("zone", "b").join();
            let second = job(&mut t, "b");
            t.start(second);
            let execution = t.execution(first).id;
            if ended {
                ends_unheard(&mut t, worker, first);
                reports(&mut t, worker, first, ExecutionEnd::Succeeded, Some(0));
                assert_eq!(t.status(first), JobStatus::Succeeded);
            } else {
                t.rejoin(worker);
                assert!(t.players[&worker].stopped.contains_key(&execution));
                assert_eq!(t.status(first), JobStatus::Waiting);
            }
            assert_eq!(t.status(second), JobStatus::Running);
        }
    }
}

/// A draining worker gives up the executions that it returns with.
#[test]
fn a_draining_worker_that_comes_back_stops_what_can_run_elsewhere() {
    let mut t = Scenario::new();
    let (worker, job) = lost(&mut t, Delivery::ExactlyOnce);
    let execution = t.execution(job).id;
    t.admit(worker, model::worker::Admission::Draining);
    t.rejoin(worker);
    assert!(t.players[&worker].stopped.contains_key(&execution));
    t.end_with(job, finished(ExecutionEnd::Stopped, None));
    assert_eq!(t.status(job), JobStatus::Waiting);
}

/// A8. The queue and the concurrency key of a lost job admit the next job immediately, even while the lost
/// job waits for its next execution.
#[test]
fn a_lost_job_frees_its_limits_at_once() {
    for by_queue in [false, true] {
        let mut t = Scenario::new();
        if by_queue {
            t.queue("narrow", QueueSettings { concurrency: Some(1), ..QueueSettings::default() });
        }
        let worker = t.worker().label("zone", "a").join();
        t.worker().label("zone", "b").join();
        let job = |t: &mut Scenario, zone| {
            let job = t.job().only_on("zone", zone).spec(|s| s.retry.max_lost = 10);
            if by_queue { job.queue("narrow").submit() } else { job.concurrency("one", 1).submit() }
        };
        let first = job(&mut t, "a");
        for _ in 0..6 {
            t.lose(worker);
            t.rejoin(worker);
            t.pass(400);
        }
        assert_eq!((t.status(first), t.state(first).executions), (JobStatus::Running, 7));
        let second = job(&mut t, "b");
        assert_eq!(t.status(second), JobStatus::Waiting);
        t.silence(worker);
        for _ in 0..20 {
            t.pass(1);
            if t.status(first) == JobStatus::Retrying {
                break;
            }
        }
        assert_eq!((t.status(first), t.status(second)), (JobStatus::Retrying, JobStatus::Running));
        t.check_rebuilt();
    }
}

/// A cancelled job does not wait for a result: a job with an unknown outcome ends immediately, as if it had
/// been cancelled before its worker was lost.
#[test]
fn a_cancel_ends_a_job_whose_outcome_is_unknown_at_once() {
    let mut t = Scenario::new();
    let (worker, job) = lost(&mut t, Delivery::AtMostOnce);
    assert_eq!(t.status(job), JobStatus::Running);
    t.cancel(job).unwrap();
    insta::assert_snapshot!(t.history(job), @"waiting (submitted) → running (placed) → cancelled (cancel_requested)");
    let execution = t.execution(job).clone();
    assert_eq!(execution.status, ExecutionStatus::Lost);
    t.check_rebuilt();
    t.rejoin(worker);
    assert!(t.players[&worker].stopped.contains_key(&execution.id));
    t.pass(120);
    assert_eq!(t.status(job), JobStatus::Cancelled);
}
