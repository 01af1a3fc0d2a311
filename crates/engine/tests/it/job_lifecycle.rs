//! The life of a job: one scenario for each transition of the table.
//!
//! In order: waiting and running, retries after failures, timeouts, cancels, start deadlines. The last part
//! covers restarts, clocks that are set back, long histories, and reports that arrive late.
//!
//! A test compares the stored history as text, for example `waiting (submitted) → running (placed)`, so a
//! snapshot shows both the transitions and their causes. Losses of workers are in `delivery` and
//! `unknown_outcome`; limits and the order of jobs are in `limits`.

use engine::input::ExecutionEnd;
use engine::{Input, Report};
use model::record::Outcome;
use model::{Duration, JobStatus};

use crate::scenario::{Scenario, finished};

/// A2, A7, A8. The path without failures.
#[test]
fn a_job_waits_runs_and_succeeds() {
    let mut t = Scenario::new();
    let job = t.job().submit();
    assert_eq!(t.status(job), JobStatus::Waiting);
    t.worker().join();
    t.start(job);
    t.succeed(job);
    insta::assert_snapshot!(t.history(job), @"waiting (submitted) → running (placed) → succeeded (succeeded)");
    let state = t.state(job);
    assert!(state.queued_at.is_some() && state.started_at.is_some() && state.finished_at.is_some());
    assert_eq!((state.executions, state.run_failures), (1, 0));
}

/// The message of a success, for example about a checkpoint that was not saved, is part of events and
/// history.
#[test]
fn succeeded_job_may_have_a_message() {
    let mut t = Scenario::new();
    t.worker().join();
    let job = t.job().submit();
    let Report::Finished { how, outcome, usage } = finished(ExecutionEnd::Succeeded, Some(0)) else {
        unreachable!()
    };
    let outcome = Outcome { message: Some("not saved".into()), ..outcome };
    t.end_with(job, Report::Finished { how, outcome, usage });
    let last = t.state(job).history.last().unwrap().clone();
    assert_eq!((last.to, last.detail.as_deref()), (JobStatus::Succeeded, Some("not saved")));
}

/// A9. A job with `run_at` is ready until exactly that time.
#[test]
fn job_with_run_at_waits_for_its_time() {
    let mut t = Scenario::new();
    t.worker().join();
    let job = t.job().in_seconds(90).submit();
    t.pass(89);
    assert_eq!(t.status(job), JobStatus::Ready);
    t.pass(1);
    insta::assert_snapshot!(t.history(job), @"ready (submitted) → waiting (due) → running (placed)");
}

/// D1. Failures of the job itself cost retries, with growing delays.
#[test]
fn failing_job_is_retried_until_its_retries_are_exhausted() {
    let mut t = Scenario::new();
    t.worker().join();
    let job = t.job().retries(2).spec(|s| s.retry.backoff.jitter = 0.0).submit();
    let mut waits = Vec::new();
    for _ in 0..2 {
        t.fail(job, 1);
        assert_eq!(t.status(job), JobStatus::Retrying);
        waits.push(t.state(job).due_at.since(t.now));
        t.pass(2);
    }
    t.fail(job, 1);
    assert_eq!(waits, [Duration::from_secs(1), Duration::from_secs(2)]);
    insta::assert_snapshot!(t.history(job), @"waiting (submitted) → running (placed) → retrying (run_failed) → waiting (backoff_ended) → running (placed) → retrying (run_failed) → waiting (backoff_ended) → running (placed) → failed (run_failed)");
}

#[test]
fn exit_codes_decide_whether_a_failure_is_retried() {
    let mut t = Scenario::new();
    t.worker().join();
    let final_code = t.job().retries(5).spec(|s| s.retry.final_exit_codes = vec![2]).submit();
    let listed = t.job().retries(5).spec(|s| s.retry.retry_exit_codes = vec![75]).submit();
    let unlisted = t.job().retries(5).spec(|s| s.retry.retry_exit_codes = vec![75]).submit();
    t.fail(final_code, 2);
    t.fail(listed, 75);
    t.fail(unlisted, 1);
    assert_eq!(t.status(final_code), JobStatus::Failed);
    assert_eq!(t.status(listed), JobStatus::Retrying);
    assert_eq!(t.status(unlisted), JobStatus::Failed);
}

/// D1. Failures to start have their own limit.
#[test]
fn failing_to_start_and_failing_while_running_are_counted_apart() {
    let mut t = Scenario::new();
    t.worker().join();
    let job = t.job().retries(1).spec(|s| s.retry.max_start_retries = 1).submit();
    let start_failed = || Report::StartFailed { outcome: Outcome::default() };
    t.end_with(job, start_failed());
    t.pass(2);
    t.fail(job, 1);
    t.pass(2);
    assert_eq!(t.status(job), JobStatus::Running);
    t.end_with(job, start_failed());
    insta::assert_snapshot!(t.history(job), @"waiting (submitted) → running (placed) → retrying (start_failed) → waiting (backoff_ended) → running (placed) → retrying (run_failed) → waiting (backoff_ended) → running (placed) → failed (start_failed)");
}

/// D2. A timeout is a separate kind of failure.
#[test]
fn a_job_that_runs_too_long_has_timed_out() {
    let mut t = Scenario::new();
    t.worker().join();
    let job = t.job().retries(1).spec(|s| s.timeout = Some(Duration::from_secs(5))).submit();
    t.end_with(job, finished(ExecutionEnd::TimedOut, None));
    t.pass(2);
    t.end_with(job, finished(ExecutionEnd::TimedOut, None));
    insta::assert_snapshot!(t.history(job), @"waiting (submitted) → running (placed) → retrying (timed_out) → waiting (backoff_ended) → running (placed) → failed (timed_out)");
}

/// The worker ends it, because only the worker measures how long its task was frozen or its machine suspended.
#[test]
fn the_server_stops_nothing_at_its_timeout() {
    let mut t = Scenario::new();
    let worker = t.worker().join();
    let job = t.job().spec(|s| s.timeout = Some(Duration::from_secs(5))).submit();
    t.start(job);
    t.pass(600);
    assert!(t.players[&worker].stopped.is_empty());
    assert_eq!(t.status(job), JobStatus::Running);
}

/// A4. A job that is cancelled before its start never starts, in any status.
#[test]
fn a_job_that_has_not_started_is_cancelled_at_once() {
    let mut t = Scenario::new();
    let ready = t.job().in_seconds(60).submit();
    let waiting = t.job().submit();
    let parked = t.job().concurrency("k", 1).submit();
    t.worker().join();
    let second = t.job().concurrency("k", 1).submit();
    for job in [ready, second] {
        t.cancel(job).unwrap();
        assert_eq!(t.status(job), JobStatus::Cancelled);
    }
    t.pass(120);
    assert_eq!((t.status(waiting), t.status(parked)), (JobStatus::Running, JobStatus::Running));
    insta::assert_snapshot!(t.history(ready), @"ready (submitted) → cancelled (cancel_requested)");
    assert_eq!(t.state(ready).history[1].detail.as_deref(), Some("alice"));
}

/// A4. A running job is stopped, and is cancelled once its worker reports the end.
#[test]
fn a_running_job_is_stopped_and_then_cancelled() {
    let mut t = Scenario::new();
    let worker = t.worker().join();
    let job = t.job().retries(3).submit();
    let execution = t.start(job);
    t.cancel(job).unwrap();
    assert_eq!(t.status(job), JobStatus::Running);
    assert!(t.players[&worker].stopped.contains_key(&execution));
    let version = t.state(job).version;
    t.cancel(job).unwrap();
    assert_eq!(t.state(job).version, version, "a second cancel changes nothing");
    t.end_with(job, finished(ExecutionEnd::Stopped, None));
    insta::assert_snapshot!(t.history(job), @"waiting (submitted) → running (placed) → cancelled (cancel_requested)");
}

/// I9. The task ended before the stop arrived: its result counts.
#[test]
fn a_job_that_succeeds_while_being_stopped_has_succeeded() {
    let mut t = Scenario::new();
    t.worker().join();
    let job = t.job().submit();
    t.start(job);
    t.cancel(job).unwrap();
    t.succeed(job);
    assert_eq!(t.status(job), JobStatus::Succeeded);
}

#[test]
fn a_cancel_in_backoff_ends_the_job() {
    let mut t = Scenario::new();
    t.worker().join();
    let job = t.job().retries(3).submit();
    t.fail(job, 1);
    t.cancel(job).unwrap();
    t.pass(60);
    insta::assert_snapshot!(t.history(job), @"waiting (submitted) → running (placed) → retrying (run_failed) → cancelled (cancel_requested)");
}

/// I16. A job that is too late expires and does not run.
#[test]
fn a_job_that_cannot_start_by_its_deadline_expires() {
    let mut t = Scenario::new();
    let job = t.job().in_seconds(10).deadline(30).submit();
    t.pass(39);
    assert_eq!(t.status(job), JobStatus::Waiting);
    t.pass(1);
    t.worker().join();
    insta::assert_snapshot!(t.history(job), @"ready (submitted) → waiting (due) → expired (deadline_passed)");
}

#[test]
fn deadline_does_not_affect_a_started_job() {
    let mut t = Scenario::new();
    t.worker().join();
    let job = t.job().deadline(10).retries(1).submit();
    t.fail(job, 1);
    t.pass(60);
    assert_eq!(t.status(job), JobStatus::Running);
}

/// Its worker was lost before the start; meanwhile the deadline passed.
#[test]
fn a_deadline_still_applies_after_a_lost_start() {
    let mut t = Scenario::new();
    let worker = t.worker().join();
    let job = t.job().deadline(5).submit();
    t.lose(worker);
    insta::assert_snapshot!(t.history(job), @"waiting (submitted) → running (placed) → waiting (worker_lost) → expired (deadline_passed)");
}

/// D5. Everything continues from its state, however often the engine is rebuilt.
#[test]
fn rebuilt_engine_continues_every_kind_of_job() {
    let mut t = Scenario::new();
    let worker = t.worker().slots(2).join();
    let running = t.job().submit();
    let retrying = t.job().retries(1).spec(|s| s.retry.backoff.initial = Duration::from_secs(30)).submit();
    t.start(running);
    t.fail(retrying, 1);
    let blocker = t.job().submit();
    let waiting = t.job().submit();
    let ready = t.job().in_seconds(60).submit();
    for _ in 0..3 {
        t.restart();
        t.rejoin(worker);
        t.pass(2);
    }
    assert_eq!(t.status(running), JobStatus::Running);
    t.succeed(running);
    t.succeed(blocker);
    t.pass(60);
    t.succeed(waiting);
    t.succeed(retrying);
    t.succeed(ready);
    for job in [running, retrying, blocker, waiting, ready] {
        assert_eq!(t.status(job), JobStatus::Succeeded);
    }
    assert_eq!(t.state(running).executions, 1, "a restart of the engine costs no execution");
}

#[test]
fn repeated_flushes_at_one_time_change_nothing() {
    let mut t = Scenario::new();
    t.worker().join();
    let job = t.job().submit();
    t.start(job);
    let version = t.state(job).version;
    for _ in 0..5 {
        t.say(Input::Tick);
    }
    assert_eq!(t.state(job).version, version);
}

#[test]
fn a_deadline_still_applies_in_the_backoff_of_a_failed_start() {
    let mut t = Scenario::new();
    t.worker().join();
    let slow = |s: &mut model::JobSpec| s.retry.backoff.initial = Duration::from_secs(20);
    let job = t.job().deadline(5).spec(slow).submit();
    let (worker, assignment) = t.take(job);
    let report = Report::StartFailed { outcome: Outcome::default() };
    t.report(worker, assignment.execution, assignment.fence, report);
    t.pass(60);
    insta::assert_snapshot!(t.history(job), @"waiting (submitted) → running (placed) → retrying (start_failed) → waiting (backoff_ended) → expired (deadline_passed)");
}

/// The restored deadline equals the one in memory, to the microsecond.
#[test]
fn a_deadline_is_the_same_after_a_restart() {
    let mut t = Scenario::new();
    t.now = model::Timestamp::from_micros(t.now.as_micros() + 900);
    t.flush();
    t.job().deadline(10).submit();
    let before = t.engine.wakeup();
    t.restart();
    assert_eq!(t.engine.wakeup(), before);
}

/// F10. The wall clock is set back by an hour: timers of the steady clock still fire, and timers of the wall
/// clock do not fire early.
#[test]
fn clock_set_back_starts_nothing_early_and_extends_no_lease() {
    let mut t = Scenario::new();
    let worker = t.worker().join();
    let later = t.job().in_seconds(60).submit();
    let start = t.now;
    t.players.get_mut(&worker).unwrap().silent = true;
    let back = model::Timestamp::from_micros(start.as_micros() - 3_600_000_000);
    for second in 1..=30 {
        t.flush_at(engine::Now {
            wall: back + Duration::from_secs(second),
            steady: start + Duration::from_secs(second),
        });
    }
    assert_eq!(t.rows.workers[&worker].status, model::worker::WorkerStatus::Lost);
    assert_eq!(t.status(later), JobStatus::Ready);
    t.flush_at(engine::Now {
        wall: start + Duration::from_secs(60),
        steady: start + Duration::from_secs(31),
    });
    assert_eq!(t.status(later), JobStatus::Waiting);
}

/// A history is complete up to a maximum length.
#[test]
fn long_history_keeps_its_first_and_newest_entries() {
    let mut t = Scenario::new();
    t.worker().join();
    let job = t.job().retries(1_000).spec(|s| s.retry.backoff.max = s.retry.backoff.initial).submit();
    for _ in 0..200 {
        t.fail(job, 1);
        t.pass(2);
    }
    let history = &t.state(job).history;
    assert_eq!(history.len(), model::limits::HISTORY_MAX);
    assert_eq!(history[0].cause, model::Cause::Submitted);
    assert_eq!(history.last().unwrap().execution, Some(201));
}

/// A3. A disconnected worker reports start and end in one report. The job has started all the same, so its
/// start deadline no longer applies.
#[test]
fn end_report_without_start_report_sets_the_start() {
    let mut t = Scenario::new();
    t.worker().join();
    let job = t.job().retries(3).deadline(20).submit();
    let assigned = t.now;
    let (worker, assignment) = t.take(job);
    t.pass(10);
    let usage = model::record::Usage { run_time: Duration::from_secs(4), ..Default::default() };
    let failed = Report::Finished { how: ExecutionEnd::Failed, outcome: Default::default(), usage };
    t.report(worker, assignment.execution, assignment.fence, failed);
    assert_eq!(t.status(job), JobStatus::Retrying);
    assert_eq!(t.state(job).started_at, Some(t.now - Duration::from_secs(4)));
    assert!(t.state(job).started_at.unwrap() > assigned);
    t.pass(15);
    assert_ne!(t.status(job), JobStatus::Expired);
}

/// B6. A disconnected worker reports the start late; its own measurement of the run time counts.
#[test]
fn a_start_that_is_reported_late_does_not_shorten_the_run_time() {
    for rest in [0, 10] {
        let mut t = Scenario::new();
        t.worker().join();
        let job = t.job().submit();
        let assigned = t.now;
        let (worker, assignment) = t.take(job);
        t.outage(Duration::from_secs(45));
        t.rejoin_all();
        t.report(worker, assignment.execution, assignment.fence, Report::Started);
        t.pass(rest);
        let run_time = Duration::from_secs(30);
        let usage = model::record::Usage { run_time, ..Default::default() };
        let succeeded = Report::Finished { how: ExecutionEnd::Succeeded, outcome: Default::default(), usage };
        t.report(worker, assignment.execution, assignment.fence, succeeded);
        let (state, execution) = (t.state(job), t.execution(job));
        assert_eq!(state.finished_at.unwrap().since(state.started_at.unwrap()), run_time);
        assert_eq!(execution.started_at, state.started_at);
        assert!(state.started_at.unwrap() > assigned);
    }
}
