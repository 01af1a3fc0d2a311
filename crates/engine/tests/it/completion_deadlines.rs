//! Completion deadlines: what `finish_by` does to a job in each of its statuses.
//!
//! # Invariants
//! - The deadline acts once, also if the engine is rebuilt at any time.
//! - A job that its deadline stops starts no further execution. It succeeds only if its task does.

use engine::input::ExecutionEnd;
use model::record::EventKind;
use model::spec::{FinishAction, FinishBy};
use model::why::Reason;
use model::{Duration, JobId, JobStatus};

use crate::scenario::{Scenario, finished};

fn after(seconds: u64, action: FinishAction) -> Option<FinishBy> {
    Some(FinishBy { at: None, after: Some(Duration::from_secs(seconds)), action })
}

/// Returns how often the deadline of a job was reported.
fn reports(t: &Scenario, of: JobId) -> usize {
    let is_report = |kind: &EventKind| matches!(kind, EventKind::Overdue { job, .. } if *job == of);
    t.rows.events.iter().filter(|event| is_report(&event.kind)).count()
}

#[test]
fn a_job_that_has_not_started_fails_or_is_cancelled() {
    let mut t = Scenario::new();
    let failing = t.job().spec(|s| s.finish_by = after(30, FinishAction::Fail)).submit();
    let cancelled = t.job().spec(|s| s.finish_by = after(30, FinishAction::Cancel)).submit();
    t.pass(29);
    assert_eq!(t.status(failing), JobStatus::Waiting);
    t.pass(1);
    t.worker().join();
    insta::assert_snapshot!(t.history(failing), @"waiting (submitted) → failed (finish_deadline_passed)");
    insta::assert_snapshot!(t.history(cancelled), @"waiting (submitted) → cancelled (finish_deadline_passed)");
    let outcome = t.state(failing).outcome.clone().unwrap();
    assert_eq!(outcome.error.as_deref(), Some("finish_deadline_passed"));
    assert!(outcome.message.unwrap().starts_with("the job did not end by "));
    assert_eq!((reports(&t, failing), reports(&t, cancelled)), (1, 1));
}

/// The time counts from `run_at`, over waiting, executions and backoffs.
#[test]
fn a_deadline_bounds_all_attempts_together() {
    let mut t = Scenario::new();
    t.worker().join();
    let slow = |s: &mut model::JobSpec| {
        s.finish_by = after(60, FinishAction::Fail);
        s.retry.backoff.initial = Duration::from_secs(50);
    };
    let job = t.job().in_seconds(100).retries(5).spec(slow).submit();
    t.pass(100);
    t.fail(job, 1);
    t.pass(59);
    t.restart_full();
    t.rejoin_all();
    assert!(matches!(t.status(job), JobStatus::Retrying | JobStatus::Running), "{}", t.status(job));
    t.pass(1);
    if t.status(job) == JobStatus::Running {
        t.start(job);
        t.end_with(job, finished(ExecutionEnd::Stopped, None));
    }
    assert_eq!(t.status(job), JobStatus::Failed);
    assert!(t.history(job).ends_with("failed (finish_deadline_passed)"), "{}", t.history(job));
    t.check_rebuilt();
}

#[test]
fn a_running_job_is_stopped_and_fails_without_a_retry() {
    let mut t = Scenario::new();
    let worker = t.worker().join();
    let job = t.job().retries(3).spec(|s| s.finish_by = after(30, FinishAction::Fail)).submit();
    let execution = t.start(job);
    t.pass(30);
    assert_eq!(t.status(job), JobStatus::Running);
    assert!(t.players[&worker].stopped.contains_key(&execution));
    assert!(t.why(job).iter().any(|reason| matches!(reason, Reason::Stopping { .. })), "{:?}", t.why(job));
    t.end_with(job, finished(ExecutionEnd::Stopped, None));
    insta::assert_snapshot!(t.history(job), @"waiting (submitted) → running (placed) → failed (finish_deadline_passed)");
    assert_eq!(t.state(job).outcome.as_ref().unwrap().error.as_deref(), Some("finish_deadline_passed"));
    assert_eq!(t.state(job).run_failures, 0);
}

#[test]
fn a_task_that_succeeds_while_being_stopped_has_succeeded() {
    let mut t = Scenario::new();
    t.worker().join();
    let job = t.job().spec(|s| s.finish_by = after(30, FinishAction::Fail)).submit();
    t.start(job);
    t.pass(30);
    t.succeed(job);
    assert_eq!(t.status(job), JobStatus::Succeeded);
    assert!(t.state(job).overdue);
}

/// The stop is sent again to a worker that was disconnected at the deadline, also by a new leader.
#[test]
fn a_stop_reaches_a_worker_that_returns_after_a_restart() {
    let mut t = Scenario::new();
    let worker = t.worker().join();
    let job = t.job().retries(3).spec(|s| s.finish_by = after(5, FinishAction::Cancel)).submit();
    let execution = t.start(job);
    t.silence(worker);
    t.pass(5);
    assert!(!t.players[&worker].stopped.contains_key(&execution));
    t.restart();
    t.rejoin(worker);
    assert!(t.players[&worker].stopped.contains_key(&execution));
    t.end_with(job, finished(ExecutionEnd::Failed, Some(143)));
    insta::assert_snapshot!(t.history(job), @"waiting (submitted) → running (placed) → cancelled (finish_deadline_passed)");
    assert_eq!(reports(&t, job), 1);
}

#[test]
fn a_lost_worker_ends_a_job_that_was_being_stopped() {
    let mut t = Scenario::new();
    let worker = t.worker().join();
    let job = t.job().spec(|s| s.finish_by = after(5, FinishAction::Fail)).submit();
    t.start(job);
    t.lose(worker);
    assert_eq!(t.status(job), JobStatus::Failed);
    t.check_rebuilt();
}

#[test]
fn a_report_lets_the_job_continue_and_is_made_once() {
    let mut t = Scenario::new();
    let worker = t.worker().join();
    let job = t.job().retries(1).spec(|s| s.finish_by = after(5, FinishAction::Report)).submit();
    t.fail(job, 1);
    t.pass(5);
    for _ in 0..3 {
        t.restart_full();
        t.rejoin(worker);
        t.pass(5);
    }
    assert_eq!((t.state(job).overdue, reports(&t, job)), (true, 1));
    t.succeed(job);
    assert_eq!(t.status(job), JobStatus::Succeeded);
}

/// A cancel by a user stays a cancel.
#[test]
fn a_cancelled_job_stays_cancelled_after_its_deadline() {
    let mut t = Scenario::new();
    t.worker().join();
    let job = t.job().spec(|s| s.finish_by = after(5, FinishAction::Fail)).submit();
    t.start(job);
    t.cancel(job).unwrap();
    t.pass(5);
    t.end_with(job, finished(ExecutionEnd::Stopped, None));
    insta::assert_snapshot!(t.history(job), @"waiting (submitted) → running (placed) → cancelled (cancel_requested)");
}

#[test]
fn a_job_that_ends_in_time_has_no_deadline_left() {
    let mut t = Scenario::new();
    t.worker().join();
    let job = t.job().spec(|s| s.finish_by = after(5, FinishAction::Fail)).submit();
    t.succeed(job);
    t.pass(60);
    assert_eq!((t.status(job), t.state(job).overdue, reports(&t, job)), (JobStatus::Succeeded, false, 0));
}

/// An upstream job that fails by its deadline ends the jobs that wait for it, as any other failure does.
#[test]
fn a_waiting_downstream_job_ends_by_its_own_deadline() {
    let mut t = Scenario::new();
    let upstream = t.job().submit();
    let of = model::spec::UpstreamJob { job: upstream, condition: Default::default() };
    let job = t
        .job()
        .spec(|s| {
            s.after = vec![of];
            s.finish_by = after(5, FinishAction::Fail);
        })
        .submit();
    t.pass(5);
    insta::assert_snapshot!(t.history(job), @"ready (submitted) → failed (finish_deadline_passed)");
    t.check_rebuilt();
}
