//! Automatic retries of failed runs, by the retry policy of their workflow.
//!
//! In order: the backoff (restarts, cancels, pauses, place among the runs of the workflow), which steps are
//! repeated and which are final, elements of lists, calls, triggers, explanations. The last part covers
//! manual retries, which continue the runs that failed steps called.
//!
//! `chain` is the workflow of most tests; its runs are retried twice. `control` has the basic test of a
//! manual retry.
//!
//! # Invariants
//! - A retry repeats unsuccessful steps and their dependents, and no other steps; outcomes that a user set
//!   are final.
//! - A step with an `at_most_once` job never starts twice in one run.
//! - Only the end after the last attempt reaches the caller, the schedule and triggers.

use std::sync::Arc;

use engine::WorkflowRequest;
use engine::input::ExecutionEnd;
use engine::{NewRun, Reply};
use model::run::{RetryFrom, RunCause, RunHead, StepKey, carried};
use model::spec::Delivery;
use model::why::{NextAttempt, StepReason};
use model::workflow::{
    Action, Approval, Call, ElementSource, EventWait, FailurePolicy, ForEach, JoinRule, OnTimeout, Parameter,
    ParameterType, RunFailure, StepSpec, Wait,
};
use model::{Duration, Refusal, RunId, RunStatus, StepStatus, WorkflowSpec};
use serde_json::json;

use super::{act, each, env, job};
use crate::scenario::{Scenario, finished};

/// A chain of steps whose runs are retried twice, after delays of 10 s and 20 s.
fn chain() -> WorkflowSpec {
    let mut spec = with_retries(2, vec![job("a", &[]), job("b", &["a"]), job("c", &["b"])]);
    spec.on_failure = vec![job("alert", &[])];
    spec.finally = vec![job("clean", &[])];
    spec
}

fn with_retries(max_retries: u32, steps: Vec<StepSpec>) -> WorkflowSpec {
    let mut spec = WorkflowSpec::new("w", steps);
    spec.retry.max_retries = max_retries;
    spec.retry.backoff.initial = Duration::from_secs(10);
    spec.retry.backoff.jitter = 0.0;
    spec
}

fn cancel(run: RunId) -> WorkflowRequest {
    WorkflowRequest::Cancel { run, reason: None, skip_finally: false }
}

fn pause(run: RunId) -> WorkflowRequest {
    WorkflowRequest::Pause { run, note: None }
}

/// C2. A retry repeats unsuccessful steps, keeps the others, and starts after its backoff; only the last one
/// is followed by `on_failure` and `finally`.
#[test]
fn failed_run_is_retried_from_its_failed_steps() {
    let mut t = Scenario::with_room();
    let run = t.run(&chain());
    let first = t.job_of(run, "a");
    t.succeed(first);
    t.fail_step(run, "b");
    insta::assert_snapshot!(t.steps(run), @"a succeeded (job_succeeded), b failed (job_failed), c upstream_failed (join_rule), alert pending, clean pending");
    t.check_rebuilt();
    t.pass(9);
    assert_eq!((t.status_of_run(run), t.running()), (RunStatus::Retrying, 0));
    t.pass(1);
    insta::assert_snapshot!(t.steps(run), @"a succeeded (job_succeeded), b running (upstream_ended), c pending (run_retried), alert pending, clean pending");
    t.check_rebuilt();
    t.succeed_step(run, "b");
    t.fail_step(run, "c");
    t.pass(19);
    assert_eq!(t.status_of_run(run), RunStatus::Retrying);
    t.pass(1);
    t.succeed_step(run, "c");
    t.succeed_step(run, "clean");
    insta::assert_snapshot!(t.steps(run), @"a succeeded (job_succeeded), b succeeded (job_succeeded), c succeeded (job_succeeded), alert skipped (not_failed), clean succeeded (job_succeeded)");
    insta::assert_snapshot!(t.run_history(run), @"running (started: alice) → retrying (step_failed: step `b`) → running (backoff_ended) → retrying (step_failed: step `c`) → running (backoff_ended) → succeeded (succeeded)");
    assert_eq!((t.job_of(run, "a"), t.jobs_of(t.key(run, "b"))), (first, 2));
    let state = t.run_state(run);
    assert_eq!((state.failures(), state.next_attempt_at()), (2, None));
}

/// C2. A run fails once its retries are exhausted; only then is its end reported.
#[test]
fn run_with_exhausted_retries_fails_once() {
    let mut t = Scenario::with_room();
    let run = t.run(&WorkflowSpec { steps: vec![job("a", &[])], ..chain() });
    for wait in [10, 20] {
        t.fail_step(run, "a");
        assert_eq!((t.status_of_run(run), t.step(run, "alert")), (RunStatus::Retrying, StepStatus::Pending));
        t.pass(wait);
    }
    t.fail_step(run, "a");
    t.succeed_step(run, "alert");
    t.succeed_step(run, "clean");
    insta::assert_snapshot!(t.run_history(run), @"running (started: alice) → retrying (step_failed: step `a`) → running (backoff_ended) → retrying (step_failed: step `a`) → running (backoff_ended) → failed (step_failed: step `a`)");
    assert_eq!(t.jobs_of(t.key(run, "alert")), 1);
}

/// C2, D5. The retry time is part of the rows: the next engine waits for the remaining time, and an engine
/// that starts later retries immediately.
#[test]
fn a_backoff_survives_a_restart() {
    let mut t = Scenario::with_room();
    let run = t.run(&chain());
    t.fail_step(run, "a");
    t.restart();
    t.rejoin_all();
    t.pass(9);
    assert_eq!(t.status_of_run(run), RunStatus::Retrying);
    t.pass(1);
    t.fail_step(run, "a");
    t.outage(Duration::from_secs(300));
    t.rejoin_all();
    assert_eq!((t.status_of_run(run), t.step(run, "a")), (RunStatus::Running, StepStatus::Running));
}

/// C2. A run that waits for its retry can be cancelled, which runs `finally` and raises no alert.
#[test]
fn a_backoff_can_be_cancelled() {
    let mut t = Scenario::with_room();
    let run = t.run(&chain());
    t.fail_step(run, "a");
    t.ask_for(cancel(run)).unwrap();
    insta::assert_snapshot!(t.steps(run), @"a failed (job_failed), b upstream_failed (join_rule), c upstream_failed (join_rule), alert skipped (not_after_cancel), clean running (upstream_ended)");
    t.check_rebuilt();
    t.succeed_step(run, "clean");
    t.pass(30);
    insta::assert_snapshot!(t.run_history(run), @"running (started: alice) → retrying (step_failed: step `a`) → stopping (cancel_requested: alice) → cancelled (cancel_requested)");
}

/// C2. A paused run is not retried until it is resumed; then it waits for the remaining time, if any.
#[test]
fn a_backoff_can_be_paused() {
    let mut t = Scenario::with_room();
    let run = t.run(&chain());
    t.fail_step(run, "a");
    t.ask_for(pause(run)).unwrap();
    t.check_rebuilt();
    t.ask_for(WorkflowRequest::Resume { run }).unwrap();
    assert_eq!(t.status_of_run(run), RunStatus::Retrying);
    t.ask_for(pause(run)).unwrap();
    t.restart();
    t.rejoin_all();
    t.pass(60);
    assert_eq!((t.status_of_run(run), t.running()), (RunStatus::Paused, 0));
    t.ask_for(WorkflowRequest::Resume { run }).unwrap();
    t.pass(1);
    assert_eq!(t.step(run, "a"), StepStatus::Running);
    t.check_rebuilt();
}

/// C2. A run keeps its place among those of its workflow: the next one does not overtake it.
#[test]
fn a_backoff_holds_the_place_of_its_run() {
    let mut t = Scenario::with_room();
    let spec = WorkflowSpec { max_parallel_runs: Some(1), ..chain() };
    let (first, second) = (t.run(&spec), t.run(&spec));
    t.fail_step(first, "a");
    assert_eq!((t.status_of_run(first), t.status_of_run(second)), (RunStatus::Retrying, RunStatus::Waiting));
    assert_eq!(t.why_step(second, "a")[0], StepReason::RunWaiting { running: 1, limit: 1, ahead: 0 });
    t.restart();
    t.rejoin_all();
    assert_eq!(t.status_of_run(second), RunStatus::Waiting);
    t.ask_for(cancel(first)).unwrap();
    t.succeed_step(first, "clean");
    assert_eq!(t.status_of_run(second), RunStatus::Running);
}

/// C2, B7. The timeout applies to each attempt; a timeout is retried unless the policy says that it is final.
#[test]
fn timed_out_attempt_is_retried() {
    let mut t = Scenario::with_room();
    let mut spec = with_retries(1, vec![job("a", &[]), job("b", &["a"])]);
    spec.timeout = Some(Duration::from_secs(30));
    let run = t.run(&spec);
    t.pass(25);
    t.succeed_step(run, "a");
    let slow = t.job_of(run, "b");
    t.start(slow);
    t.pass(5);
    t.end_with(slow, finished(ExecutionEnd::Stopped, None));
    t.pass(10);
    t.check_rebuilt();
    t.pass(29);
    assert_eq!((t.status_of_run(run), t.step(run, "b")), (RunStatus::Running, StepStatus::Running));
    t.pass(1);
    t.end_with(t.job_of(run, "b"), finished(ExecutionEnd::Stopped, None));
    insta::assert_snapshot!(t.run_history(run), @"running (started: alice) → stopping (timed_out) → retrying (timed_out) → running (backoff_ended) → stopping (timed_out) → failed (timed_out)");

    spec.retry.final_causes = vec![RunFailure::TimedOut];
    let run = t.run(&spec);
    let slow = t.job_of(run, "a");
    t.start(slow);
    t.pass(30);
    t.end_with(slow, finished(ExecutionEnd::Stopped, None));
    assert_eq!(t.status_of_run(run), RunStatus::Failed);
    let run = t.run(&spec);
    t.fail_step(run, "a");
    assert_eq!(t.status_of_run(run), RunStatus::Retrying);
}

/// C2. With `fail_fast`, the stopped steps are repeated as well.
#[test]
fn steps_stopped_by_a_failure_are_repeated() {
    let mut t = Scenario::with_room();
    let spec = with_retries(1, vec![job("a", &[]), job("b", &[])]);
    let run = t.run(&WorkflowSpec { failure: FailurePolicy::FailFast, ..spec });
    let stopped = t.job_of(run, "b");
    t.start(stopped);
    t.fail_step(run, "a");
    t.end_with(stopped, finished(ExecutionEnd::Stopped, None));
    assert_eq!(t.status_of_run(run), RunStatus::Retrying);
    t.pass(10);
    insta::assert_snapshot!(t.steps(run), @"a running (upstream_ended), b running (upstream_ended)");
    t.succeed_step(run, "a");
    t.succeed_step(run, "b");
    insta::assert_snapshot!(t.run_history(run), @"running (started: alice) → stopping (fail_fast: step `a` failed) → retrying (fail_fast: step `a`) → running (backoff_ended) → succeeded (succeeded)");
}

/// C2. Dependents of a repeated step are repeated too, whatever their outcome.
#[test]
fn dependents_of_a_failure_are_evaluated_again() {
    let mut t = Scenario::with_room();
    let mut report = job("report", &["a"]);
    report.join = JoinRule::AllDone;
    let run = t.run(&with_retries(1, vec![job("a", &[]), report, job("other", &[])]));
    t.succeed_step(run, "other");
    t.fail_step(run, "a");
    t.succeed_step(run, "report");
    t.pass(10);
    insta::assert_snapshot!(t.steps(run), @"a running (upstream_ended), report pending (run_retried), other succeeded (job_succeeded)");
    t.succeed_step(run, "a");
    t.succeed_step(run, "report");
    assert_eq!(t.status_of_run(run), RunStatus::Succeeded);
}

/// C2. Outcomes that a user set are not retried.
#[test]
fn outcomes_set_by_users_are_final() {
    let mut t = Scenario::with_room();
    let ask = act("ask", &[], Action::Approval(Approval::default()));
    let run = t.run(&with_retries(3, vec![ask]));
    t.ask_for(WorkflowRequest::Decide { run, step: "ask".into(), approve: false, note: None }).unwrap();
    assert_eq!(t.status_of_run(run), RunStatus::Failed);

    let spec = with_retries(3, vec![job("a", &[]), job("b", &[])]);
    let run = t.run(&spec);
    t.fail_step(run, "a");
    t.ask_for(WorkflowRequest::Mark { run, step: "b".into(), status: StepStatus::Failed, note: None })
        .unwrap();
    t.end_with(t.job_of(run, "b"), finished(ExecutionEnd::Stopped, None));
    assert_eq!(t.status_of_run(run), RunStatus::Failed);

    let run = t.run(&spec);
    t.succeed_step(run, "a");
    let job = t.job_of(run, "b");
    t.cancel(job).unwrap();
    t.end_with(job, finished(ExecutionEnd::Stopped, None));
    assert_eq!(t.status_of_run(run), RunStatus::Failed);
}

/// C2, D2. Steps that the policy calls final, and jobs that run at most once, never start twice in a run or
/// in its called runs. A step that has not started prevents no retry.
#[test]
fn steps_that_must_not_repeat_are_final() {
    let mut t = Scenario::with_room();
    let mut spec = with_retries(3, vec![job("a", &[]), job("charge", &["a"])]);
    spec.retry.final_steps = vec!["charge".into()];
    let run = t.run(&spec);
    t.fail_step(run, "a");
    t.pass(10);
    t.succeed_step(run, "a");
    t.fail_step(run, "charge");
    assert_eq!(t.status_of_run(run), RunStatus::Failed);

    // It succeeded, and would be repeated because it depends on a failed step.
    let mut after = once("after", &["a"]);
    after.join = JoinRule::AllDone;
    let run = t.run(&with_retries(3, vec![job("a", &[]), after]));
    t.fail_step(run, "a");
    t.succeed_step(run, "after");
    assert_eq!(t.status_of_run(run), RunStatus::Failed);

    let inner = WorkflowSpec::new("inner", vec![once("x", &[]), job("y", &["x"])]);
    let workflow = t.apply(&with_retries(3, vec![act("call", &[], call())]));
    let run = t.start_with(t.new_run(workflow, &[&inner], &json!({})));
    let called = live_call(&t, run);
    t.fail_step(called, "x");
    assert_eq!(t.status_of_run(run), RunStatus::Failed);

    // The call cannot continue its ended run, because the step before it is repeated.
    let mut after = act("call", &["a"], call());
    after.join = JoinRule::AllDone;
    let workflow =
        t.apply(&WorkflowSpec { name: "after".into(), ..with_retries(3, vec![job("a", &[]), after]) });
    let run = t.start_with(t.new_run(workflow, &[&inner], &json!({})));
    t.fail_step(run, "a");
    let called = live_call(&t, run);
    t.succeed_step(called, "x");
    t.fail_step(called, "y");
    assert_eq!(t.status_of_run(run), RunStatus::Failed);
}

/// A step that runs a job at most once.
fn once(name: &str, needs: &[&str]) -> StepSpec {
    let mut step = job(name, needs);
    let Action::Job(job) = &mut step.action else { panic!("a job is expected") };
    job.delivery = Delivery::AtMostOnce;
    step
}

fn call() -> Action {
    Action::Workflow(Call { name: "inner".into(), parameters: Default::default() })
}

/// C2, C4. Only the unsuccessful elements of a list are repeated, also by an engine rebuilt during the
/// backoff and by one rebuilt during the retry.
#[test]
fn only_failed_elements_are_repeated() {
    let mut t = Scenario::with_room();
    let run =
        t.run(&with_retries(1, vec![each("load", &[], ElementSource::Shards(4)), job("sum", &["load"])]));
    for item in [0, 1, 3] {
        let job = t.job_of_element(run, "load", item).unwrap();
        t.give(job, &json!(item));
    }
    t.fail(t.job_of_element(run, "load", 2).unwrap(), 1);
    t.check_rebuilt();
    t.restart();
    t.rejoin_all();
    t.pass(10);
    t.check_rebuilt();
    assert_eq!(t.running(), 1);
    t.restart();
    t.rejoin_all();
    let job = t.job_of_element(run, "load", 2).unwrap();
    t.give(job, &json!("again"));
    t.succeed_step(run, "sum");
    assert_eq!(t.row(run, "load").unwrap().output.as_deref(), Some(r#"[0,1,"again",3]"#));
    assert_eq!(t.status_of_run(run), RunStatus::Succeeded);
    t.check_rebuilt();
}

/// C2, C4. All elements of a list that may have changed run again.
#[test]
fn list_from_a_repeated_step_is_processed_again() {
    let mut t = Scenario::with_room();
    let mut load = each("load", &["find"], ElementSource::List("steps.find.output".into()));
    load.join = JoinRule::AllDone;
    let run = t.run(&with_retries(1, vec![job("check", &[]), find_after("check"), load]));
    t.fail_step(run, "check");
    t.give(t.job_of(run, "find"), &json!(["x", "y", "z"]));
    for item in 0..3 {
        t.succeed(t.job_of_element(run, "load", item).unwrap());
    }
    assert_eq!(t.status_of_run(run), RunStatus::Retrying);
    t.check_rebuilt();
    t.pass(10);
    t.check_rebuilt();
    t.succeed_step(run, "check");
    t.give(t.job_of(run, "find"), &json!(["p", "q"]));
    t.check_rebuilt();
    t.restart();
    t.rejoin_all();
    for item in 0..2 {
        t.succeed(t.job_of_element(run, "load", item).unwrap());
    }
    assert_eq!(t.row(run, "load").unwrap().total, Some(2));
    assert_eq!(t.status_of_run(run), RunStatus::Succeeded);
}

fn find_after(need: &str) -> StepSpec {
    StepSpec { join: JoinRule::AllDone, ..job("find", &[need]) }
}

/// C2, C4. Added elements are kept, as in a retry of a job: a task that repeats a batch adds nothing, and
/// succeeded elements are not repeated.
#[test]
fn added_elements_are_kept_for_the_next_attempt() {
    let mut t = Scenario::with_room();
    let crawl = each("crawl", &[], ElementSource::AddedBy(vec!["split".into()]));
    let run = t.run(&with_retries(1, vec![job("split", &[]), crawl]));
    let split = t.job_of(run, "split");
    t.start(split);
    t.add(split, None, "one", &[json!("p"), json!("q")]).unwrap();
    t.succeed(t.job_of_element(run, "crawl", 0).unwrap());
    t.fail(split, 1);
    t.fail(t.job_of_element(run, "crawl", 1).unwrap(), 1);
    assert_eq!(t.status_of_run(run), RunStatus::Retrying);
    t.check_rebuilt();
    t.restart();
    t.rejoin_all();
    t.pass(10);
    t.check_rebuilt();
    let split = t.job_of(run, "split");
    t.start(split);
    assert!(!t.add(split, None, "one", &[json!("p"), json!("q")]).unwrap().new);
    assert!(t.add(split, None, "two", &[json!("r")]).unwrap().new);
    t.succeed(split);
    assert_eq!(t.jobs_of(StepKey { item: Some(0), ..t.key(run, "crawl") }), 1);
    for item in [1, 2] {
        t.succeed(t.job_of_element(run, "crawl", item).unwrap());
    }
    assert_eq!(t.status_of_run(run), RunStatus::Succeeded);
}

/// C2. A called run is retried by its own policy first. The calling step gets only its end, and a retry of
/// the caller calls another run.
#[test]
fn step_gets_only_the_final_end_of_its_called_run() {
    let mut t = Scenario::with_room();
    let inner = WorkflowSpec { name: "inner".into(), ..with_retries(1, vec![job("x", &[])]) };
    let workflow = t.apply(&with_retries(1, vec![act("call", &[], call())]));
    let run = t.start_with(t.new_run(workflow, &[&inner], &json!({})));
    let called = t.row(run, "call").unwrap().called.unwrap();
    t.fail_step(called, "x");
    assert_eq!((t.status_of_run(called), t.step(run, "call")), (RunStatus::Retrying, StepStatus::Running));
    t.ask_for(pause(run)).unwrap();
    assert_eq!(t.status_of_run(called), RunStatus::Paused);
    t.check_rebuilt();
    t.ask_for(WorkflowRequest::Resume { run }).unwrap();
    t.pass(10);
    t.fail_step(called, "x");
    assert_eq!((t.status_of_run(called), t.status_of_run(run)), (RunStatus::Failed, RunStatus::Retrying));
    t.pass(10);
    let again = t.row(run, "call").unwrap().called.unwrap();
    assert_ne!(again, called);
    t.fail_step(again, "x");
    t.ask_for(cancel(run)).unwrap();
    insta::assert_snapshot!(t.run_history(again), @"running (started) → retrying (step_failed: step `x`) → stopping (parent_stopped) → cancelled (parent_stopped)");
    assert_eq!(t.status_of_run(run), RunStatus::Cancelled);
}

/// C1, C2. A trigger gets only the end after the last retry.
#[test]
fn trigger_gets_only_the_end_of_the_last_attempt() {
    let mut t = Scenario::with_room();
    let mut alarm = WorkflowSpec::new("alarm", vec![job("call", &[])]);
    alarm.triggers = serde_json::from_value(json!([{"workflow": "w", "on": "any"}])).unwrap();
    t.apply(&alarm);
    let run = t.run(&with_retries(1, vec![job("a", &[])]));
    t.fail_step(run, "a");
    assert_eq!(t.rows.runs.len(), 1);
    t.pass(10);
    t.fail_step(run, "a");
    assert_eq!((t.status_of_run(run), t.rows.runs.len()), (RunStatus::Failed, 2));
    assert_eq!(t.run_state(run).started.len(), 1);
}

/// C2. An event that a step waits for may arrive between two attempts.
#[test]
fn an_event_may_come_before_the_step_waits_again() {
    let mut t = Scenario::with_room();
    let event = EventWait { name: "paid".into(), on_timeout: OnTimeout::Fail };
    let mut wait = act("wait", &["a"], Action::Wait(Wait::Event(event)));
    wait.timeout = Some(Duration::from_secs(5));
    let run = t.run(&with_retries(1, vec![job("a", &[]), job("b", &[]), wait]));
    let event = |run| WorkflowRequest::Event { run, event: "paid".into(), payload: "{}".into() };
    t.succeed_step(run, "a");
    t.fail_step(run, "b");
    t.pass(5);
    assert_eq!((t.step(run, "wait"), t.status_of_run(run)), (StepStatus::Failed, RunStatus::Retrying));
    assert!(matches!(t.ask_for(event(run)), Err(Refusal::EventNotAwaited { .. })));
    t.pass(10);
    assert_eq!(t.step(run, "wait"), StepStatus::Waiting);
    t.ask_for(event(run)).unwrap();
    t.succeed_step(run, "b");
    assert_eq!(t.status_of_run(run), RunStatus::Succeeded);
}

/// C2. The explanation contains the time and number of the next attempt, and the steps that it repeats.
#[test]
fn explanation_names_the_next_attempt() {
    let mut t = Scenario::with_room();
    let run = t.run(&chain());
    t.succeed_step(run, "a");
    t.fail_step(run, "b");
    let at = Some(t.now + Duration::from_secs(10));
    let next = NextAttempt { number: 2, max: 3, at };
    assert_eq!(t.why_step(run, "b").last(), Some(&StepReason::RunRetrying(next)));
    assert_eq!(t.why_step(run, "clean")[0], StepReason::RunRetrying(next));
    assert!(matches!(t.why_step(run, "a")[..], [StepReason::Ended { .. }]));
    let Ok(Reply::RunWhy(why)) = t.ask_for(WorkflowRequest::WhyRun { run, most: 10 }) else { panic!() };
    assert_eq!(why.next_attempt, Some(next));
    let names: Vec<_> = why.steps.iter().map(|why| why.step.as_str()).collect();
    assert_eq!(names, ["b", "c", "alert", "clean"]);
    t.ask_for(pause(run)).unwrap();
    assert_eq!(t.why_step(run, "clean")[0], StepReason::RunRetrying(NextAttempt { at: None, ..next }));
    assert!(t.run_state(run).history.iter().any(|entry| entry.cause == RunCause::PauseRequested));
    let refused =
        t.ask_for(WorkflowRequest::Mark { run, step: "b".into(), status: StepStatus::Succeeded, note: None });
    assert!(matches!(refused, Err(Refusal::StepEnded { .. })));
}

/// C2. An output that cannot be evaluated, and a failure after the steps, are not retried: none of the steps
/// failed.
#[test]
fn failures_after_the_steps_are_not_retried() {
    let mut t = Scenario::with_room();
    let mut spec = with_retries(1, vec![job("a", &[])]);
    spec.outputs.insert("file".into(), json!("${{ steps.a.output.file }}"));
    let run = t.run(&spec);
    t.give(t.job_of(run, "a"), &json!({}));
    assert_eq!(t.status_of_run(run), RunStatus::Failed);

    let mut spec = with_retries(1, vec![job("a", &[])]);
    spec.finally = vec![job("clean", &[])];
    let run = t.run(&spec);
    t.succeed_step(run, "a");
    t.fail_step(run, "clean");
    assert_eq!(t.status_of_run(run), RunStatus::Failed);
}

/// C2. References of repeated steps are evaluated again in each attempt.
#[test]
fn references_are_evaluated_in_each_attempt() {
    let mut t = Scenario::with_room();
    let mut use_it = job("use", &["make"]);
    *env(&mut use_it, "N") = "${{ steps.make.output }}".into();
    let mut make = job("make", &["flaky"]);
    make.join = JoinRule::AllDone;
    let run = t.run(&with_retries(1, vec![job("flaky", &[]), make, use_it]));
    t.fail_step(run, "flaky");
    t.give(t.job_of(run, "make"), &json!(1));
    t.succeed_step(run, "use");
    t.pass(10);
    t.succeed_step(run, "flaky");
    t.give(t.job_of(run, "make"), &json!(2));
    assert_eq!(t.env_of(t.job_of(run, "use"), "N"), "2");
}

/// Retries a run manually.
fn retry(t: &mut Scenario, run: RunId) -> RunId {
    retry_from(t, run, RetryFrom::Failed)
}

fn retry_from(t: &mut Scenario, run: RunId, from: RetryFrom<'_>) -> RunId {
    let head = Arc::clone(&t.rows.runs[&run].0);
    let before = carried(&head.definition, &t.step_records(run), from);
    let new = NewRun {
        workflow: head.workflow,
        generation: head.generation,
        definition: Arc::clone(&head.definition),
        body: Arc::clone(&head.body),
        parameters: Arc::clone(&head.parameters),
        priority: head.priority,
        note: None,
        retry_of: Some(run),
        carried: t.takeover(run, before),
        origin: None,
        key: None,
    };
    t.start_with(new)
}

/// C2, D2. A manual retry continues the runs that failed steps called, with their parameters, at every depth:
/// succeeded steps in them are not repeated.
#[test]
fn manual_retry_continues_a_called_run() {
    let mut t = Scenario::with_room();
    let mut pay = job("pay", &[]);
    if let Action::Job(job) = &mut pay.action {
        job.delivery = Delivery::AtMostOnce;
    }
    let mut innermost = WorkflowSpec::new("innermost", vec![pay, job("mail", &["pay"])]);
    innermost.parameters.insert("of".into(), Parameter::new(ParameterType::String, None));
    let parameters = [("of".to_owned(), json!("${{ run.id }}"))].into();
    let inner_call = act("call", &[], Action::Workflow(Call { name: "innermost".into(), parameters }));
    let inner = WorkflowSpec::new("inner", vec![inner_call]);
    let workflow = t.apply(&WorkflowSpec::new("w", vec![act("call", &[], call()), job("after", &["call"])]));
    let mut run = t.start_with(t.new_run(workflow, &[&inner, &innermost], &json!({})));
    let called = |t: &Scenario, run: RunId| {
        let middle = t.row(run, "call").unwrap().called.unwrap();
        t.row(middle, "call").unwrap().called.unwrap()
    };
    let first = called(&t, run);
    t.succeed_step(first, "pay");
    t.fail_step(first, "mail");
    for _ in 0..2 {
        run = retry(&mut t, run);
        t.check_rebuilt();
        let again = called(&t, run);
        insta::allow_duplicates! {
            insta::assert_snapshot!(t.steps(again), @"pay succeeded (carried_over), mail running (upstream_ended)");
        }
        assert_eq!(t.job_of(again, "pay"), t.job_of(first, "pay"));
        assert_eq!(t.rows.runs[&again].0.parameters, t.rows.runs[&first].0.parameters);
        t.fail_step(again, "mail");
        assert_eq!(t.status_of_run(run), RunStatus::Failed);
    }
    run = retry(&mut t, run);
    let last = called(&t, run);
    assert!(t.rows.runs[&last].0.retry_of.is_some());
    t.succeed_step(last, "mail");
    t.succeed_step(run, "after");
    assert_eq!(t.status_of_run(run), RunStatus::Succeeded);
}

/// C2, D5. The same for the elements of a list. Also if the engine is rebuilt before the retry exists or
/// starts, and if an element does not start before the retry is retried itself.
#[test]
fn manual_retry_continues_runs_called_by_elements() {
    let mut t = Scenario::with_room();
    let inner = WorkflowSpec::new("inner", vec![job("one", &[]), job("two", &["one"])]);
    let each = ForEach {
        max_parallel: Some(1),
        max_failed: 9,
        min_succeeded: Some(9),
        ..ForEach::new(ElementSource::Shards(9))
    };
    let step = StepSpec { for_each: Some(each), ..act("call", &[], call()) };
    let spec = WorkflowSpec { max_parallel_runs: Some(1), ..WorkflowSpec::new("w", vec![step]) };
    let workflow = t.apply(&spec);
    let new = |t: &Scenario| t.new_run(workflow, &[&inner], &json!({}));
    let start = new(&t);
    let run = t.start_with(start);
    let called = |t: &Scenario, run: RunId| {
        let of_run =
            |(id, (head, _)): (&RunId, &(Arc<RunHead>, _))| head.caller.filter(|c| c.run == run).map(|_| *id);
        let mut live = t.rows.runs.iter().filter_map(|(id, row)| of_run((id, &(Arc::clone(&row.0), ()))));
        live.find(|id| !t.status_of_run(*id).is_final()).expect("a called run is live")
    };
    for item in 0..9 {
        let inner = called(&t, run);
        t.succeed_step(inner, "one");
        if item % 3 == 0 { t.fail_step(inner, "two") } else { t.succeed_step(inner, "two") }
    }
    assert_eq!(t.status_of_run(run), RunStatus::Failed);
    let start = new(&t);
    let other = t.start_with(start);
    let second = retry(&mut t, run);
    assert_eq!(t.status_of_run(second), RunStatus::Waiting);
    t.check_rebuilt();
    t.restart();
    t.rejoin_all();
    t.ask_for(cancel(other)).unwrap();
    while t.running() > 0 && t.status_of_run(second) == RunStatus::Waiting {
        let inner = called(&t, other);
        let job = t.job_of(inner, "one");
        t.end_with(job, finished(ExecutionEnd::Stopped, None));
    }
    // Only the first of the three continues; the others never start.
    let inner = called(&t, second);
    insta::assert_snapshot!(t.steps(inner), @"one succeeded (carried_over), two running (upstream_ended)");
    t.ask_for(cancel(second)).unwrap();
    let job = t.job_of(inner, "two");
    t.end_with(job, finished(ExecutionEnd::Stopped, None));
    let third = retry(&mut t, second);
    for _ in 0..3 {
        t.restart();
        t.rejoin_all();
        let inner = called(&t, third);
        insta::allow_duplicates! {
            insta::assert_snapshot!(t.steps(inner), @"one succeeded (carried_over), two running (upstream_ended)");
        }
        t.succeed_step(inner, "two");
    }
    assert_eq!(t.status_of_run(third), RunStatus::Succeeded);
}

/// C2, D2, D5. In a manual retry, a call did not start because another step failed first. It still continues
/// its ended run in the next automatic retry, also after a restart during the backoff.
#[test]
fn automatic_retry_continues_a_call_that_has_not_started() {
    for (restarts, over_list) in [(false, false), (true, false), (false, true), (true, true)] {
        let mut t = Scenario::with_room();
        let inner = WorkflowSpec::new("inner", vec![once("pay", &[]), job("mail", &["pay"])]);
        let mut step = act("call", &[], call());
        step.for_each = over_list.then(|| ForEach::new(ElementSource::Shards(2)));
        let mut outer = with_retries(1, vec![job("b", &[]), step]);
        (outer.failure, outer.max_parallel_steps) = (FailurePolicy::FailFast, Some(1));
        let workflow = t.apply(&outer);
        let first = t.start_with(t.new_run(workflow, &[&inner], &json!({})));
        t.succeed_step(first, "b");
        let called = live_call(&t, first);
        t.succeed_step(called, "pay");
        t.fail_step(called, "mail");
        t.ask_for(cancel(first)).unwrap();
        assert_eq!(t.status_of_run(first), RunStatus::Cancelled);

        let second = retry_from(&mut t, first, RetryFrom::Step("b"));
        t.fail_step(second, "b");
        assert_eq!(
            (t.status_of_run(second), t.step(second, "call")),
            (RunStatus::Retrying, StepStatus::Cancelled)
        );
        t.check_rebuilt();
        if restarts {
            t.restart();
            t.rejoin_all();
        }
        t.pass(10);
        t.check_rebuilt();
        t.succeed_step(second, "b");
        let again = live_call(&t, second);
        insta::allow_duplicates! {
            insta::assert_snapshot!(t.steps(again), @"pay succeeded (carried_over), mail running (upstream_ended)");
        }
        assert_eq!(t.job_of(again, "pay"), t.job_of(called, "pay"));
    }
}

/// C2, D2, D5. An automatic retry continues the runs that failed steps called, at every depth: succeeded steps in
/// them are not repeated, even if their jobs run at most once. Also after restarts at any time.
#[test]
fn automatic_retry_continues_a_called_run() {
    for restarts in [false, true] {
        let mut t = Scenario::with_room();
        let innermost = WorkflowSpec::new("innermost", vec![once("pay", &[]), job("mail", &["pay"])]);
        let inner_call = Action::Workflow(Call { name: "innermost".into(), parameters: Default::default() });
        let inner = WorkflowSpec::new("inner", vec![once("book", &[]), act("call", &["book"], inner_call)]);
        let workflow = t.apply(&with_retries(2, vec![act("call", &[], call()), job("after", &["call"])]));
        let run = t.start_with(t.new_run(workflow, &[&inner, &innermost], &json!({})));
        let restart = |t: &mut Scenario| {
            t.check_rebuilt();
            if restarts {
                t.restart();
                t.rejoin_all();
            }
        };
        let first = live_call(&t, run);
        t.succeed_step(first, "book");
        let innermost = live_call(&t, first);
        t.succeed_step(innermost, "pay");
        for _ in 0..2 {
            let called = live_call(&t, run);
            let innermost_again = live_call(&t, called);
            restart(&mut t);
            t.fail_step(innermost_again, "mail");
            assert_eq!(
                (t.status_of_run(called), t.status_of_run(run)),
                (RunStatus::Failed, RunStatus::Retrying)
            );
            restart(&mut t);
            t.pass(20);
            let next = live_call(&t, run);
            let next_innermost = live_call(&t, next);
            insta::allow_duplicates! {
                insta::assert_snapshot!(t.steps(next), @"book succeeded (carried_over), call running (upstream_ended)");
                insta::assert_snapshot!(t.steps(next_innermost), @"pay succeeded (carried_over), mail running (upstream_ended)");
            }
            assert_eq!(t.job_of(next_innermost, "pay"), t.job_of(innermost, "pay"));
            assert_eq!(t.rows.runs[&next].0.retry_of, Some(called));
        }
        let called = live_call(&t, run);
        let innermost_last = live_call(&t, called);
        t.succeed_step(innermost_last, "mail");
        t.succeed_step(run, "after");
        assert_eq!(t.status_of_run(run), RunStatus::Succeeded);
        t.check_rebuilt();
    }
}

/// C2, C4, D5. The same for runs that elements called, and for lists in a called run: only what did not succeed is
/// repeated.
#[test]
fn automatic_retry_continues_runs_called_by_elements() {
    for restarts in [false, true] {
        let mut t = Scenario::with_room();
        let load = each("load", &["pay"], ElementSource::Shards(3));
        let inner = WorkflowSpec::new("inner", vec![once("pay", &[]), load]);
        let mut step = act("call", &[], call());
        let each = ForEach {
            max_parallel: Some(1),
            max_failed: 3,
            min_succeeded: Some(3),
            ..ForEach::new(ElementSource::Shards(3))
        };
        step.for_each = Some(each);
        let workflow = t.apply(&with_retries(1, vec![step]));
        let run = t.start_with(t.new_run(workflow, &[&inner], &json!({})));
        let restart = |t: &mut Scenario| {
            t.check_rebuilt();
            if restarts {
                t.restart();
                t.rejoin_all();
            }
        };
        for item in 0..3 {
            let called = live_call(&t, run);
            t.succeed_step(called, "pay");
            for shard in [0, 2] {
                t.succeed(t.job_of_element(called, "load", shard).unwrap());
            }
            restart(&mut t);
            let last = t.job_of_element(called, "load", 1).unwrap();
            if item == 1 { t.succeed(last) } else { t.fail(last, 1) }
        }
        assert_eq!(t.status_of_run(run), RunStatus::Retrying);
        restart(&mut t);
        t.pass(20);
        for _ in 0..2 {
            let called = live_call(&t, run);
            restart(&mut t);
            assert_eq!(t.running(), 1);
            insta::allow_duplicates! {
                insta::assert_snapshot!(t.steps(called), @"pay succeeded (carried_over), load running (upstream_ended)");
            }
            t.succeed(t.job_of_element(called, "load", 1).unwrap());
        }
        assert_eq!(t.status_of_run(run), RunStatus::Succeeded);
        t.check_rebuilt();
    }
}

/// C2, C4, D5. Elements that tasks added in a called run are kept for the next call.
#[test]
fn automatic_retry_keeps_elements_added_in_a_called_run() {
    for restarts in [false, true] {
        let mut t = Scenario::with_room();
        let inner = WorkflowSpec::new(
            "inner",
            vec![job("find", &[]), each("use", &["find"], ElementSource::AddedBy(vec!["find".into()]))],
        );
        let workflow = t.apply(&with_retries(1, vec![act("call", &[], call())]));
        let run = t.start_with(t.new_run(workflow, &[&inner], &json!({})));
        let called = live_call(&t, run);
        let find = t.job_of(called, "find");
        t.start(find);
        t.add(find, None, "one", &[json!("a"), json!("b")]).unwrap();
        t.succeed(find);
        t.succeed(t.job_of_element(called, "use", 0).unwrap());
        t.fail(t.job_of_element(called, "use", 1).unwrap(), 1);
        t.check_rebuilt();
        if restarts {
            t.restart();
            t.rejoin_all();
        }
        t.pass(20);
        let again = live_call(&t, run);
        assert_eq!(t.running(), 1);
        t.succeed(t.job_of_element(again, "use", 1).unwrap());
        assert_eq!(t.status_of_run(run), RunStatus::Succeeded);
        t.check_rebuilt();
    }
}

/// C2, D2. A manual retry after the last automatic retry reads the last called run, not the one before it.
#[test]
fn manual_retry_after_automatic_retries_continues_the_last_called_run() {
    let mut t = Scenario::with_room();
    let inner =
        WorkflowSpec::new("inner", vec![job("one", &[]), job("two", &["one"]), job("three", &["two"])]);
    let workflow = t.apply(&with_retries(1, vec![act("call", &[], call())]));
    let run = t.start_with(t.new_run(workflow, &[&inner], &json!({})));
    let called = live_call(&t, run);
    t.succeed_step(called, "one");
    t.fail_step(called, "two");
    t.pass(20);
    let called = live_call(&t, run);
    t.succeed_step(called, "two");
    t.fail_step(called, "three");
    assert_eq!(t.status_of_run(run), RunStatus::Failed);
    let again = retry(&mut t, run);
    let called = live_call(&t, again);
    insta::assert_snapshot!(t.steps(called), @"one succeeded (carried_over), two succeeded (carried_over), three running (upstream_ended)");
}

/// Returns the live run that a step of a run called.
fn live_call(t: &Scenario, run: RunId) -> RunId {
    let is_called = |head: &RunHead| head.caller.is_some_and(|caller| caller.run == run);
    let mut live = t.rows.runs.iter().filter(|(_, (_, state))| !state.status.is_final());
    live.find(|(_, (head, _))| is_called(head)).map(|(&id, _)| id).expect("a called run is live")
}
