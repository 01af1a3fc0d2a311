//! Which steps run, and the outcome of a run.
//!
//! In order: dependencies and failures, conditions, references to parameters and outputs, the sections
//! `on_failure` and `finally`, limits on parallel steps and runs, values that jobs inherit, timeouts,
//! explanations.
//!
//! `diamond` (b and c after a, d after both) is the workflow of most tests. A test compares the statuses of
//! all steps as text. `properties` checks the join rules on random DAGs.

use model::spec::{Concurrency, Constraint, InputFile, Operator};
use model::why::StepReason;
use model::workflow::{Action, ElementSource, FailurePolicy, JoinRule, Parameter, ParameterType, StepSpec};
use model::{JobStatus, RunStatus, StepStatus, WorkflowSpec};
use serde_json::json;

use super::{each, env, job};
use crate::scenario::Scenario;

fn diamond() -> WorkflowSpec {
    WorkflowSpec::new(
        "diamond",
        vec![job("a", &[]), job("b", &["a"]), job("c", &["a"]), job("d", &["b", "c"])],
    )
}

/// C1, I19. B and C start after A, D after both.
#[test]
fn a_step_starts_once_all_its_dependencies_have_ended() {
    let mut t = Scenario::with_room();
    let run = t.run(&diamond());
    insta::assert_snapshot!(t.steps(run), @"a running (upstream_ended), b pending, c pending, d pending");
    t.succeed_step(run, "a");
    insta::assert_snapshot!(t.steps(run), @"a succeeded (job_succeeded), b running (upstream_ended), c running (upstream_ended), d pending");
    t.succeed_step(run, "c");
    assert_eq!(t.step(run, "d"), StepStatus::Pending);
    t.succeed_step(run, "b");
    t.succeed_step(run, "d");
    insta::assert_snapshot!(t.run_history(run), @"running (started: alice) → succeeded (succeeded)");
    assert_eq!(t.run_state(run).counts[usize::from(StepStatus::Succeeded.code())], 4);
}

/// C1. The end of a step and the job of the next one are one commit: no batch contains one without the other,
/// so no crash can separate them.
#[test]
fn a_steps_end_and_the_next_steps_job_are_in_one_batch() {
    let mut t = Scenario::with_room();
    let run = t.run(&diamond());
    let first = t.job_of(run, "a");
    t.start(first);
    let before = t.rows.jobs.len();
    let record = t.execution(first).clone();
    let report = crate::scenario::finished(engine::input::ExecutionEnd::Succeeded, Some(0));
    let session = t.players[&record.worker].session.unwrap();
    let (worker, execution, fence) = (record.worker, record.id, record.fence);
    t.engine.handle(t.now, engine::Input::Report { worker, session, execution, fence, report });
    let batch = t.engine.flush(t.now).batch;
    let jobs =
        batch.changes.iter().filter(|change| matches!(change, model::record::Change::Job { new: true, .. }));
    assert_eq!((jobs.count(), before), (2, 1));
    let ended = batch.changes.iter().any(|change| match change {
        model::record::Change::Step(record) => record.state.status == StepStatus::Succeeded,
        _ => false,
    });
    assert!(ended);
}

/// C2. A failure stops its branch; the other branch continues, and the run fails.
#[test]
fn a_failure_stops_its_branch_and_no_other() {
    let mut t = Scenario::with_room();
    let run = t.run(&diamond());
    t.succeed_step(run, "a");
    t.fail_step(run, "b");
    assert_eq!(t.step(run, "d"), StepStatus::UpstreamFailed);
    assert_eq!(t.status_of_run(run), RunStatus::Running);
    t.succeed_step(run, "c");
    insta::assert_snapshot!(t.steps(run), @"a succeeded (job_succeeded), b failed (job_failed), c succeeded (job_succeeded), d upstream_failed (join_rule)");
    insta::assert_snapshot!(t.run_history(run), @"running (started: alice) → failed (step_failed: step `b`)");
}

/// C2. The outcome of the run follows from all steps: a last step that always runs hides no failure.
#[test]
fn step_that_always_runs_hides_no_failure() {
    let mut t = Scenario::with_room();
    let last = StepSpec { join: JoinRule::AllDone, ..job("b", &["a"]) };
    let run = t.run(&WorkflowSpec::new("w", vec![job("a", &[]), last]));
    t.fail_step(run, "a");
    t.succeed_step(run, "b");
    assert_eq!(t.status_of_run(run), RunStatus::Failed);
}

/// C2. With `continue_on_failure`, a failure affects neither the run nor the dependents.
#[test]
fn failure_with_continue_on_failure_stops_nothing() {
    let mut t = Scenario::with_room();
    let first = StepSpec { continue_on_failure: true, ..job("a", &[]) };
    let run = t.run(&WorkflowSpec::new("w", vec![first, job("b", &["a"])]));
    t.fail_step(run, "a");
    t.succeed_step(run, "b");
    insta::assert_snapshot!(t.steps(run), @"a failed (job_failed), b succeeded (job_succeeded)");
    assert_eq!(t.status_of_run(run), RunStatus::Succeeded);
}

/// C2. The first failure stops running steps, and pending ones never start.
#[test]
fn a_workflow_that_fails_fast_stops_at_its_first_failure() {
    let mut t = Scenario::with_room();
    let spec = WorkflowSpec { failure: FailurePolicy::FailFast, ..diamond() };
    let run = t.run(&spec);
    t.succeed_step(run, "a");
    let other = t.job_of(run, "c");
    let execution = t.start(other);
    t.fail_step(run, "b");
    assert_eq!(t.status_of_run(run), RunStatus::Stopping);
    assert!(t.players.values().any(|player| player.stopped.contains_key(&execution)));
    t.end_with(other, crate::scenario::finished(engine::input::ExecutionEnd::Stopped, None));
    insta::assert_snapshot!(t.steps(run), @"a succeeded (job_succeeded), b failed (job_failed), c cancelled (stopped), d cancelled (stopped)");
    insta::assert_snapshot!(t.run_history(run), @"running (started: alice) → stopping (fail_fast: step `b` failed) → failed (fail_fast: step `b`)");
    assert_eq!(t.status(other), JobStatus::Cancelled);
}

/// C2. Jobs have their own retries; the step fails with the last one.
#[test]
fn step_is_running_while_its_job_is_retried() {
    let mut t = Scenario::with_room();
    let mut step = job("a", &[]);
    let Action::Job(spec) = &mut step.action else { unreachable!() };
    spec.retry.max_retries = 1;
    let run = t.run(&WorkflowSpec::new("w", vec![step]));
    t.fail_step(run, "a");
    assert_eq!(t.step(run, "a"), StepStatus::Running);
    t.pass(3);
    t.fail_step(run, "a");
    assert_eq!((t.step(run, "a"), t.status_of_run(run)), (StepStatus::Failed, RunStatus::Failed));
    assert_eq!(t.jobs_of(t.key(run, "a")), 1);
}

/// C2. Conditions refer to outputs of earlier steps; a skip also skips the dependents.
#[test]
fn a_false_condition_skips_a_step_and_its_dependents() {
    let mut t = Scenario::with_room();
    let step =
        |name: &str, needs: &[&str], when: &str| StepSpec { when: Some(when.into()), ..job(name, needs) };
    let spec = WorkflowSpec::new(
        "w",
        vec![
            job("count", &[]),
            step("many", &["count"], "steps.count.output.rows > 10"),
            step("few", &["count"], "steps.count.output.rows <= 10"),
            job("after_many", &["many"]),
            StepSpec { join: JoinRule::NoneFailedMinOneSuccess, ..job("end", &["after_many", "few"]) },
        ],
    );
    let run = t.run(&spec);
    t.give(t.job_of(run, "count"), &json!({"rows": 3}));
    t.succeed_step(run, "few");
    t.succeed_step(run, "end");
    insta::assert_snapshot!(t.steps(run), @"count succeeded (job_succeeded), many skipped (condition), few succeeded (job_succeeded), after_many skipped (join_rule), end succeeded (job_succeeded)");
    assert_eq!(t.status_of_run(run), RunStatus::Succeeded);
}

/// C2. A condition that cannot be evaluated is a failure with a reason.
#[test]
fn invalid_condition_fails_its_step() {
    let mut t = Scenario::with_room();
    let step = StepSpec { when: Some("steps.a.output.rows > 1".into()), ..job("b", &["a"]) };
    let run = t.run(&WorkflowSpec::new("w", vec![job("a", &[]), step]));
    t.succeed_step(run, "a");
    let row = t.row(run, "b").unwrap();
    assert_eq!(row.cause, model::run::StepCause::ConditionFailed);
    insta::assert_snapshot!(row.message.as_deref().unwrap(), @"condition: step `a` has no output");
}

/// C2. Values reach the next job as one argument or one environment variable each.
#[test]
fn parameters_and_outputs_reach_the_next_job() {
    let mut t = Scenario::with_room();
    let mut second = job("b", &["a"]);
    *env(&mut second, "FILE") = "${{ params.folder }}/${{ steps.a.output.file }}".into();
    *env(&mut second, "ALL") = "${{ steps.a.output }}".into();
    let mut spec = WorkflowSpec::new("w", vec![job("a", &[]), second]);
    spec.parameters.insert("folder".into(), Parameter::new(ParameterType::String, Some(json!("/data"))));
    spec.outputs.insert("file".into(), json!("${{ steps.a.output.file }}"));
    spec.outputs.insert("count".into(), json!({"n": "${{ size(steps.a.output) }}"}));
    let run = t.run(&spec);
    t.give(t.job_of(run, "a"), &json!({"file": "x; rm -rf /"}));
    let second = t.job_of(run, "b");
    assert_eq!(t.env_of(second, "FILE"), "/data/x; rm -rf /");
    assert_eq!(t.env_of(second, "ALL"), r#"{"file":"x; rm -rf /"}"#);
    t.succeed(second);
    insta::assert_snapshot!(t.run_state(run).output.as_deref().unwrap(), @r#"{"count":{"n":1},"file":"x; rm -rf /"}"#);
}

/// C2. A missing value fails the step that refers to it, by name.
#[test]
fn missing_reference_fails_its_step() {
    let mut t = Scenario::with_room();
    let mut second = job("b", &["a"]);
    *env(&mut second, "FILE") = "${{ steps.a.output.file }}".into();
    let run = t.run(&WorkflowSpec::new("w", vec![job("a", &[]), second]));
    t.give(t.job_of(run, "a"), &json!({"rows": 1}));
    insta::assert_snapshot!(t.row(run, "b").unwrap().message.as_deref().unwrap(), @"run.process.env.FILE: `steps.a.output.file`: there is no field `file`");
    assert_eq!(t.status_of_run(run), RunStatus::Failed);
}

/// C2. An output that cannot be evaluated fails the run, after `finally`.
#[test]
fn invalid_output_fails_the_run() {
    let mut t = Scenario::with_room();
    let mut spec = WorkflowSpec::new("w", vec![job("a", &[])]);
    spec.outputs.insert("file".into(), json!("${{ steps.a.output.file }}"));
    spec.finally.push(job("clean", &[]));
    let run = t.run(&spec);
    t.give(t.job_of(run, "a"), &json!({}));
    t.succeed_step(run, "clean");
    insta::assert_snapshot!(t.run_history(run), @"running (started: alice) → failed (output_failed: output `file`: `steps.a.output.file`: there is no field `file`)");
}

/// C2. `on_failure` runs only after a failure, `finally` always, and both can refer to the outcome of the
/// run.
#[test]
fn sections_run_one_after_the_other() {
    let mut t = Scenario::with_room();
    let mut alert = job("alert", &[]);
    *env(&mut alert, "TEXT") = "${{ run.status }}: ${{ steps.a.message }}".into();
    let mut clean = job("clean", &[]);
    *env(&mut clean, "STATUS") = "${{ run.status }}".into();
    let mut spec = WorkflowSpec::new("w", vec![job("a", &[])]);
    spec.on_failure = vec![alert];
    spec.finally = vec![clean, job("last", &["clean"])];

    let good = t.run(&spec);
    t.succeed_step(good, "a");
    assert_eq!(t.env_of(t.job_of(good, "clean"), "STATUS"), "succeeded");
    t.succeed_step(good, "clean");
    t.succeed_step(good, "last");
    insta::assert_snapshot!(t.steps(good), @"a succeeded (job_succeeded), alert skipped (not_failed), clean succeeded (job_succeeded), last succeeded (job_succeeded)");
    assert_eq!(t.status_of_run(good), RunStatus::Succeeded);

    let bad = t.run(&spec);
    t.fail_step(bad, "a");
    assert_eq!(t.env_of(t.job_of(bad, "alert"), "TEXT"), "failed: ");
    assert_eq!(t.step(bad, "clean"), StepStatus::Pending);
    t.succeed_step(bad, "alert");
    t.succeed_step(bad, "clean");
    t.fail_step(bad, "last");
    assert_eq!(t.status_of_run(bad), RunStatus::Failed);
}

/// C2. A failed `finally` step fails a run that would have succeeded.
#[test]
fn a_failure_in_finally_counts() {
    let mut t = Scenario::with_room();
    let mut spec = WorkflowSpec::new("w", vec![job("a", &[])]);
    spec.finally = vec![job("clean", &[])];
    let run = t.run(&spec);
    t.succeed_step(run, "a");
    t.fail_step(run, "clean");
    assert_eq!(t.status_of_run(run), RunStatus::Failed);
}

/// C2. A limit on parallel steps blocks the others, and the explanation says so.
#[test]
fn parallel_steps_are_limited() {
    let mut t = Scenario::with_room();
    let steps = (0..5).map(|i| job(&format!("s{i}"), &[])).collect();
    let spec = WorkflowSpec { max_parallel_steps: Some(2), ..WorkflowSpec::new("w", steps) };
    let run = t.run(&spec);
    assert_eq!(t.running(), 2);
    assert_eq!(t.why_step(run, "s4"), [StepReason::ParallelSteps { running: 2, limit: 2 }]);
    t.check_rebuilt();
    t.fail_step(run, "s0");
    assert_eq!((t.step(run, "s2"), t.step(run, "s3")), (StepStatus::Running, StepStatus::Pending));
}

/// C2. With a limit on parallel runs, the others wait for their turn, in order.
#[test]
fn runs_wait_for_their_turn_in_order() {
    let mut t = Scenario::with_room();
    let spec = WorkflowSpec { max_parallel_runs: Some(1), ..WorkflowSpec::new("w", vec![job("a", &[])]) };
    let runs: Vec<_> = (0..3).map(|_| t.run(&spec)).collect();
    assert_eq!(
        runs.iter().map(|&run| t.status_of_run(run)).collect::<Vec<_>>(),
        [RunStatus::Running, RunStatus::Waiting, RunStatus::Waiting]
    );
    let why = t.why_step(runs[2], "a");
    assert_eq!(why[0], StepReason::RunWaiting { running: 1, limit: 1, ahead: 1 });
    t.check_rebuilt();
    t.succeed_step(runs[0], "a");
    assert_eq!(
        (t.status_of_run(runs[1]), t.status_of_run(runs[2])),
        (RunStatus::Running, RunStatus::Waiting)
    );
    assert_eq!(t.rows.runs[&runs[2]].0.number, 3);
}

/// C2. The jobs of a run inherit the values of the workflow that their specs do not set.
#[test]
fn jobs_inherit_priority_queue_and_owner() {
    let mut t = Scenario::with_room();
    let mut spec = WorkflowSpec::new("w", vec![job("a", &[])]);
    (spec.priority, spec.queue, spec.owner) = (80, "night".into(), Some("data".into()));
    let run = t.run(&spec);
    let job = t.spec_of(t.job_of(run, "a"));
    assert_eq!((job.priority, job.queue.as_str(), job.owner.as_deref()), (80, "night", Some("data")));
    assert_eq!(job.name, "w.a");
    let workflow = t.rows.runs[&run].0.workflow.unwrap();
    let mut urgent = t.new_run(workflow, &[], &json!({}));
    urgent.priority = Some(95);
    let urgent = t.start_with(urgent);
    assert_eq!(t.spec_of(t.job_of(urgent, "a")).priority, 95);
}

/// C1. A run keeps the definition that it started with, whatever is applied meanwhile.
#[test]
fn a_run_is_pinned_to_the_version_that_it_started_with() {
    let mut t = Scenario::with_room();
    let run = t.run(&WorkflowSpec::new("w", vec![job("a", &[]), job("b", &["a"])]));
    t.apply(&WorkflowSpec::new("w", vec![job("other", &[])]));
    t.restart();
    t.rejoin_all();
    t.succeed_step(run, "a");
    t.succeed_step(run, "b");
    assert_eq!(t.status_of_run(run), RunStatus::Succeeded);
    let workflow = t.rows.runs[&run].0.workflow.unwrap();
    assert_eq!((t.rows.runs[&run].0.generation, t.rows.workflows[&workflow].1.generation), (1, 2));
}

/// C2, B7. A run that exceeds its timeout is stopped and fails.
#[test]
fn a_run_that_takes_too_long_is_stopped() {
    let mut t = Scenario::with_room();
    let mut spec = WorkflowSpec { timeout: Some(model::Duration::from_secs(5)), ..diamond() };
    spec.finally = vec![job("clean", &[])];
    let run = t.run(&spec);
    let first = t.job_of(run, "a");
    t.start(first);
    t.pass(6);
    assert_eq!(t.status_of_run(run), RunStatus::Stopping);
    t.end_with(first, crate::scenario::finished(engine::input::ExecutionEnd::Stopped, None));
    t.succeed_step(run, "clean");
    insta::assert_snapshot!(t.run_history(run), @"running (started: alice) → stopping (timed_out) → failed (timed_out)");
}

/// C2. A step's timeout includes the time that its job waits in a queue.
#[test]
fn a_step_that_takes_too_long_fails() {
    let mut t = Scenario::new();
    let step = StepSpec { timeout: Some(model::Duration::from_secs(5)), ..job("a", &[]) };
    let run = t.run(&WorkflowSpec::new("w", vec![step, job("b", &["a"])]));
    t.pass(6);
    insta::assert_snapshot!(t.steps(run), @"a failed (timed_out), b upstream_failed (join_rule)");
}

/// C2. The explanation of a pending step lists all reasons.
#[test]
fn explanation_of_a_pending_step_lists_its_reasons() {
    let mut t = Scenario::with_room();
    let mut spec = diamond();
    spec.finally = vec![job("clean", &[])];
    let run = t.run(&spec);
    t.succeed_step(run, "a");
    t.succeed_step(run, "b");
    insta::assert_debug_snapshot!(t.why_step(run, "d"), @r#"
    [
        Upstream {
            join: AllSuccess,
            needs: [
                UpstreamStep {
                    step: "c",
                    status: Running,
                },
            ],
            more: 0,
        },
    ]
    "#);
    assert!(matches!(t.why_step(run, "clean")[0], StepReason::LaterSection { .. }));
    let job = t.job_of(run, "c");
    assert_eq!(t.why_step(run, "c"), [StepReason::Job { job }]);
}

/// C2. References are allowed in every text field of a job except the program; placement follows from the
/// values.
#[test]
fn references_are_replaced_in_every_field_that_may_vary() {
    let mut t = Scenario::new();
    t.worker().label("region", "east").slots(8).join();
    t.worker().label("region", "west").slots(8).join();
    let mut step = each("load", &[], ElementSource::Items(vec![json!("east"), json!("west"), json!("east")]));
    let Action::Job(job) = &mut step.action else { panic!("a job is expected") };
    job.owner = Some("${{ params.q }}".into());
    job.labels.insert("region".into(), "${{ item }}".into());
    job.queue = "q-${{ params.q }}".into();
    job.constraints = vec![Constraint {
        label: "region".into(),
        operator: Operator::In,
        values: vec!["${{ item }}".into()],
    }];
    job.concurrency = Some(Concurrency { key: "lock-${{ item }}".into(), limit: 1 });
    job.inputs = vec![InputFile { artifact: "a".into(), path: "${{ item }}.csv".into(), executable: false }];
    let mut spec = WorkflowSpec::new("w", vec![step]);
    spec.parameters.insert("q".into(), Parameter::new(ParameterType::String, Some(json!("night"))));
    let run = t.run(&spec);
    let job = t.job_of_element(run, "load", 1).unwrap();
    let made = t.spec_of(job);
    assert_eq!(
        (made.owner.as_deref(), &*made.queue, &*made.labels["region"]),
        (Some("night"), "q-night", "west")
    );
    assert_eq!((&*made.constraints[0].values[0], &*made.inputs[0].path), ("west", "west.csv"));
    assert_eq!(made.concurrency.unwrap().key, "lock-west");
    // Each of the two keys allows one job, each on the worker of its region.
    assert_eq!(t.running(), 2);
    let places = [0, 1, 2].map(|item| t.rows.jobs[&t.job_of_element(run, "load", item).unwrap()].1.worker);
    assert!(places[0].is_some() && places[1].is_some() && places[0] != places[1]);
    assert_eq!(places[2], None);
}
