//! Requests about runs: cancel, pause, mark, retry.
//!
//! The second half covers starts with an idempotency key, inline definitions, versions of workflows, and the
//! explanation of a run. Approvals and events are in `waits`, automatic retries in `retries`.
//!
//! `chain` is the workflow of most tests. A test compares the statuses of all steps as text, for example
//! `a succeeded (job_succeeded), b pending`. `run_continues_after_a_restart_at_every_point` repeats one run
//! with a restart after each event.

use engine::{Reply, WorkflowRequest};
use model::run::{RetryFrom, carried};
use model::why::{OpenEnum, StepReason};
use model::workflow::{Action, StepSpec, Wait};
use model::{Duration, JobStatus, Refusal, RunId, RunStatus, StepStatus, WorkflowSpec};
use serde_json::json;

use super::{act, env, job};
use crate::scenario::Scenario;

fn chain() -> WorkflowSpec {
    let mut spec = WorkflowSpec::new("chain", vec![job("a", &[]), job("b", &["a"]), job("c", &["b"])]);
    spec.finally = vec![job("clean", &[])];
    spec
}

fn cancel(run: RunId, skip_finally: bool) -> WorkflowRequest {
    WorkflowRequest::Cancel { run, reason: Some("wrong day".into()), skip_finally }
}

fn mark(run: RunId, step: &str, status: StepStatus) -> WorkflowRequest {
    WorkflowRequest::Mark { run, step: step.into(), status, note: Some("by hand".into()) }
}

/// C2. A cancel stops running steps, starts no further ones, and still runs `finally`.
#[test]
fn a_cancelled_run_still_cleans_up() {
    let mut t = Scenario::with_room();
    let run = t.run(&chain());
    let first = t.job_of(run, "a");
    t.start(first);
    t.ask_for(cancel(run, false)).unwrap();
    t.ask_for(cancel(run, false)).unwrap();
    insta::assert_snapshot!(t.steps(run), @"a running (upstream_ended), b cancelled (stopped), c cancelled (stopped), clean pending");
    t.check_rebuilt();
    t.end_with(first, crate::scenario::finished(engine::input::ExecutionEnd::Stopped, None));
    t.succeed_step(run, "clean");
    insta::assert_snapshot!(t.run_history(run), @"running (started: alice) → stopping (cancel_requested: alice: wrong day) → cancelled (cancel_requested)");
    assert!(matches!(t.ask_for(cancel(run, false)), Err(Refusal::RunNotLive { .. })));
}

/// C2. `finally` can be skipped, also by a second cancel while it is running.
#[test]
fn finally_can_be_skipped() {
    let mut t = Scenario::with_room();
    let run = t.run(&chain());
    t.ask_for(cancel(run, true)).unwrap();
    let first = t.job_of(run, "a");
    t.end_with(first, crate::scenario::finished(engine::input::ExecutionEnd::Stopped, None));
    insta::assert_snapshot!(t.steps(run), @"a cancelled (stopped), b cancelled (stopped), c cancelled (stopped), clean skipped (skipped_by_cancel)");

    let run = t.run(&chain());
    t.ask_for(cancel(run, false)).unwrap();
    let first = t.job_of(run, "a");
    t.end_with(first, crate::scenario::finished(engine::input::ExecutionEnd::Stopped, None));
    let clean = t.job_of(run, "clean");
    t.ask_for(cancel(run, true)).unwrap();
    t.end_with(clean, crate::scenario::finished(engine::input::ExecutionEnd::Stopped, None));
    assert_eq!((t.step(run, "clean"), t.status_of_run(run)), (StepStatus::Cancelled, RunStatus::Cancelled));
}

/// C2, I5. A job that succeeded before it could be stopped has succeeded; the run is cancelled.
#[test]
fn job_that_ends_before_the_stop_has_succeeded() {
    let mut t = Scenario::with_room();
    let run = t.run(&WorkflowSpec::new("w", vec![job("a", &[])]));
    t.start(t.job_of(run, "a"));
    t.ask_for(cancel(run, false)).unwrap();
    t.succeed_step(run, "a");
    assert_eq!((t.step(run, "a"), t.status_of_run(run)), (StepStatus::Succeeded, RunStatus::Cancelled));
}

/// A waiting run is cancelled immediately, and the next one takes its place.
#[test]
fn a_waiting_run_is_cancelled_at_once() {
    let mut t = Scenario::with_room();
    let spec = WorkflowSpec { max_parallel_runs: Some(1), ..WorkflowSpec::new("w", vec![job("a", &[])]) };
    let runs: Vec<_> = (0..3).map(|_| t.run(&spec)).collect();
    t.ask_for(cancel(runs[1], false)).unwrap();
    assert_eq!(t.status_of_run(runs[1]), RunStatus::Cancelled);
    t.succeed_step(runs[0], "a");
    assert_eq!(t.status_of_run(runs[2]), RunStatus::Running);
}

/// A step whose job a user cancels is cancelled, and counts as failed.
#[test]
fn a_cancelled_job_cancels_its_step() {
    let mut t = Scenario::new();
    let run = t.run(&WorkflowSpec::new("w", vec![job("a", &[]), job("b", &["a"])]));
    t.cancel(t.job_of(run, "a")).unwrap();
    insta::assert_snapshot!(t.steps(run), @"a cancelled (job_cancelled), b upstream_failed (join_rule)");
    assert_eq!(t.status_of_run(run), RunStatus::Failed);
}

/// C2. A paused run starts no steps; running steps continue.
#[test]
fn a_paused_run_begins_nothing() {
    let mut t = Scenario::with_room();
    let run = t.run(&chain());
    t.ask_for(WorkflowRequest::Pause { run, note: Some("disk full".into()) }).unwrap();
    t.succeed_step(run, "a");
    assert_eq!((t.step(run, "b"), t.running()), (StepStatus::Pending, 0));
    assert!(matches!(t.why_step(run, "b")[0], StepReason::Paused { .. }));
    t.check_rebuilt();
    t.restart();
    t.rejoin_all();
    assert_eq!(t.step(run, "b"), StepStatus::Pending);
    t.ask_for(WorkflowRequest::Resume { run }).unwrap();
    assert_eq!(t.step(run, "b"), StepStatus::Running);
    insta::assert_snapshot!(t.run_history(run), @"running (started: alice) → paused (pause_requested: paused by alice: disk full) → running (resume_requested: alice)");
}

/// C2. A user sets the outcome of a step: a pending one never starts, a running one is stopped first, so that
/// no dependent starts too early.
#[test]
fn a_step_can_be_marked() {
    let mut t = Scenario::with_room();
    let run = t.run(&chain());
    t.ask_for(mark(run, "b", StepStatus::Skipped)).unwrap();
    let first = t.job_of(run, "a");
    t.start(first);
    t.ask_for(mark(run, "a", StepStatus::Succeeded)).unwrap();
    assert_eq!(t.step(run, "a"), StepStatus::Running);
    assert!(matches!(
        t.why_step(run, "a")[0],
        StepReason::Stopping { final_status: StepStatus::Succeeded, .. }
    ));
    t.check_rebuilt();
    t.end_with(first, crate::scenario::finished(engine::input::ExecutionEnd::Stopped, None));
    insta::assert_snapshot!(t.steps(run), @"a succeeded (marked), b skipped (marked), c skipped (join_rule), clean running (upstream_ended)");
    let said = t.row(run, "a").unwrap().decision.clone().unwrap();
    assert_eq!((&*said.by, said.note.as_deref()), ("alice", Some("by hand")));
    assert!(matches!(t.ask_for(mark(run, "a", StepStatus::Failed)), Err(Refusal::StepEnded { .. })));
    assert!(matches!(t.ask_for(mark(run, "clean", StepStatus::Running)), Err(Refusal::InvalidMark { .. })));
    assert!(matches!(t.ask_for(mark(run, "nobody", StepStatus::Failed)), Err(Refusal::StepNotFound { .. })));
}

/// C2. A retry carries over succeeded steps with their outputs, and repeats the rest.
#[test]
fn retry_starts_at_the_failed_step() {
    let mut t = Scenario::with_room();
    let mut second = job("b", &["a"]);
    *env(&mut second, "FILE") = "${{ steps.a.output.file }}".into();
    let run = t.run(&WorkflowSpec::new("w", vec![job("a", &[]), second, job("c", &["b"])]));
    t.give(t.job_of(run, "a"), &json!({"file": "x"}));
    let first = t.job_of(run, "a");
    t.fail_step(run, "b");
    let workflow = t.rows.runs[&run].0.workflow.unwrap();
    let mut new = t.new_run(workflow, &[], &json!({}));
    new.carried.records = carried(&new.definition, &t.step_records(run), RetryFrom::Failed).records;
    new.retry_of = Some(run);
    let again = t.start_with(new);
    insta::assert_snapshot!(t.steps(again), @"a succeeded (carried_over), b running (upstream_ended), c pending");
    assert_eq!(t.env_of(t.job_of(again, "b"), "FILE"), "x");
    assert_eq!((t.job_of(again, "a"), t.rows.runs[&again].0.retry_of), (first, Some(run)));
    t.check_rebuilt();
    t.succeed_step(again, "b");
    t.succeed_step(again, "c");
    assert_eq!((t.status_of_run(run), t.status_of_run(again)), (RunStatus::Failed, RunStatus::Succeeded));
}

/// D5, I28. A crash between any two commits loses nothing and repeats nothing.
#[test]
fn run_continues_after_a_restart_at_every_point() {
    let mut t = Scenario::with_room();
    let mut spec = chain();
    spec.steps.push(act("nap", &["a"], Action::Wait(Wait::For(Duration::from_secs(3)))));
    let run = t.run(&spec);
    for step in ["a", "b", "c"] {
        t.restart();
        t.rejoin_all();
        t.succeed_step(run, step);
        t.restart();
        t.rejoin_all();
        t.pass(2);
    }
    t.restart();
    t.rejoin_all();
    t.succeed_step(run, "clean");
    assert_eq!(t.status_of_run(run), RunStatus::Succeeded);
    assert!(t.rows.jobs.values().all(|(_, state)| state.status == JobStatus::Succeeded));
    assert_eq!(t.rows.jobs.len(), 4);
}

/// I2. A repeated start with the same key returns the first run, also after a restart and after the run's
/// end. The key can be used for another request only after it has expired.
#[test]
fn repeated_start_returns_the_first_run() {
    let mut t = Scenario::with_room();
    let workflow = t.apply(&WorkflowSpec::new("w", vec![job("a", &[])]));
    let start = |t: &Scenario, body: u128| {
        let key = Some(engine::input::Key { key: 7, body });
        WorkflowRequest::Start(Box::new(engine::NewRun { key, ..t.new_run(workflow, &[], &json!({})) }))
    };
    let first = t.ask_for(start(&t, 1)).unwrap();
    let Reply::RunStarted { run, new: true } = first else { panic!("{first:?}") };
    assert_eq!(t.ask_for(start(&t, 1)), Ok(Reply::RunStarted { run, new: false }));
    t.check_rebuilt();
    t.restart();
    t.rejoin_all();
    t.succeed_step(run, "a");
    assert_eq!(t.ask_for(start(&t, 1)), Ok(Reply::RunStarted { run, new: false }));
    assert_eq!(t.ask_for(start(&t, 2)), Err(Refusal::RunIdempotencyKeyReused { run }));
    assert_eq!(t.rows.runs.len(), 1);
    t.now = t.now + model::limits::IDEMPOTENCY_KEY_RETENTION + Duration::from_secs(1);
    t.flush_at(t.now.into());
    assert!(t.rows.run_keys.is_empty());
    assert!(matches!(t.ask_for(start(&t, 2)), Ok(Reply::RunStarted { new: true, .. })));
}

/// C3. A run of a definition in the request starts immediately and can be retried like any other, and no
/// workflow is created.
#[test]
fn run_of_an_inline_definition_needs_no_workflow() {
    let mut t = Scenario::with_room();
    let kept = t.apply(&WorkflowSpec::new("w", vec![job("a", &[])]));
    let alone =
        |t: &Scenario| engine::NewRun { workflow: None, generation: 0, ..t.new_run(kept, &[], &json!({})) };
    let first = alone(&t);
    let run = t.start_with(first);
    assert_eq!((t.rows.runs[&run].0.workflow, t.rows.runs[&run].0.number), (None, 0));
    t.check_rebuilt();
    t.restart();
    t.rejoin_all();
    t.succeed_step(run, "a");
    assert_eq!(t.status_of_run(run), RunStatus::Succeeded);
    let again = engine::NewRun { retry_of: Some(run), ..alone(&t) };
    let again = t.start_with(again);
    t.succeed_step(again, "a");
    assert_eq!(t.status_of_run(again), RunStatus::Succeeded);
    assert_eq!((t.rows.workflows.len(), t.rows.workflows[&kept].1.runs), (1, 0));
}

/// Workflows are named resources: applied, changed and deleted with expected versions.
#[test]
fn a_workflow_is_a_named_resource() {
    let mut t = Scenario::with_room();
    let workflow = t.apply(&WorkflowSpec::new("w", vec![job("a", &[])]));
    assert_eq!(t.apply(&WorkflowSpec::new("w", vec![job("a", &[])])), workflow);
    assert_eq!(t.rows.workflows[&workflow].1.version, 1);
    assert_eq!(t.apply(&WorkflowSpec::new("w", vec![job("b", &[])])), workflow);
    let expected_version = Some(1);
    let refusal = t.ask_for(WorkflowRequest::Delete { workflow, expected_version }).unwrap_err();
    assert_eq!(refusal, Refusal::VersionMismatch { expected: 1, found: 2 });
    let run = t.start_with(t.new_run(workflow, &[], &json!({})));
    t.ask_for(WorkflowRequest::Delete { workflow, expected_version: Some(2) }).unwrap();
    t.check_rebuilt();
    t.succeed_step(run, "b");
    assert_eq!(t.status_of_run(run), RunStatus::Succeeded);
    assert!(t.rows.workflows.is_empty());
}

/// A step reacts only to its own job, not to a manual retry of it elsewhere.
#[test]
fn step_reacts_only_to_its_own_job() {
    let mut t = Scenario::with_room();
    let step = StepSpec { continue_on_failure: true, ..job("a", &[]) };
    let run = t.run(&WorkflowSpec::new("w", vec![step]));
    let other = t.job().submit();
    t.succeed(other);
    assert_eq!(t.step(run, "a"), StepStatus::Running);
}

/// C2. A run that never started leaves no pending step behind.
#[test]
fn a_run_that_is_cancelled_before_its_turn_ends_with_all_of_its_steps() {
    for skip_finally in [false, true] {
        let mut t = Scenario::with_room();
        let mut spec = WorkflowSpec::new("w", vec![job("a", &[]), job("b", &["a"])]);
        spec.finally.push(job("clean", &[]));
        spec.max_parallel_runs = Some(1);
        let first = t.run(&spec);
        let second = t.run(&spec);
        assert_eq!(t.status_of_run(second), RunStatus::Waiting);
        t.ask_for(cancel(second, skip_finally)).unwrap();
        assert_eq!(t.status_of_run(second), RunStatus::Cancelled);
        assert_eq!(
            t.steps(second),
            "a cancelled (stopped), b cancelled (stopped), clean cancelled (stopped)"
        );
        assert_eq!(t.run_state(second).counts, [0, 0, 0, 0, 0, 0, 0, 3]);
        t.check_rebuilt();
        assert_eq!(t.status_of_run(first), RunStatus::Running);
    }
}

/// I2, C2. One reply explains every unfinished step; running steps come first.
#[test]
fn explanation_of_a_run_covers_all_steps() {
    let mut t = Scenario::with_room();
    let run = t.run(&chain());
    let mut why = |most| match t.ask_for(WorkflowRequest::WhyRun { run, most }) {
        Ok(Reply::RunWhy(why)) => *why,
        other => panic!("{other:?}"),
    };
    let told = why(2);
    let named: Vec<_> = told.steps.iter().map(|why| (why.step.as_str(), why.status)).collect();
    assert_eq!(named, [("a", StepStatus::Running), ("b", StepStatus::Pending)]);
    assert!(matches!(told.steps[1].reasons[..], [OpenEnum::Known(StepReason::Upstream { .. })]), "{told:?}");
    assert_eq!((told.more, why(9).steps.len()), (2, 4));
}

/// C2, I28. A waiting retry evaluates none of its steps before it starts.
#[test]
fn waiting_retry_evaluates_no_step() {
    let mut t = Scenario::with_room();
    let mut spec = WorkflowSpec::new("w", vec![job("a", &[]), job("b", &["a"])]);
    spec.max_parallel_runs = Some(1);
    let workflow = t.apply(&spec);
    let failed = t.start_with(t.new_run(workflow, &[], &json!({})));
    t.succeed_step(failed, "a");
    t.fail_step(failed, "b");
    let ahead = t.start_with(t.new_run(workflow, &[], &json!({})));
    let mut new = t.new_run(workflow, &[], &json!({}));
    new.carried.records = carried(&new.definition, &t.step_records(failed), RetryFrom::Failed).records;
    let again = t.start_with(new);
    assert_eq!(t.status_of_run(again), RunStatus::Waiting);
    t.check_rebuilt();
    t.succeed_step(ahead, "a");
    t.succeed_step(ahead, "b");
    t.succeed_step(again, "b");
    assert_eq!(t.status_of_run(again), RunStatus::Succeeded);
}
