//! Mapped steps: maps, shards, broadcasts, and the collected results.
//!
//! - Elements: values, numbers and collected results of each element.
//! - Limits: concurrent elements, failed elements, enough successes, long lists in bounded parts.
//! - Broadcasts: one element for each worker with the labels, also for workers that are lost or join late.
//! - Calls: a step that runs another workflow.
//! - Fairness: runs in one queue take turns, whatever the length of their lists.
//!
//! Lists that grow while their step runs are in `added_elements`.

use engine::WorkflowRequest;
use model::record::EventKind;
use model::run::{RetryFrom, StepCause, StepKey, carried};
use model::why::StepReason;
use model::workflow::{Action, Call, ElementSource, ForEach, LatePolicy, Parameter, ParameterType, StepSpec};
use model::{JobStatus, RunStatus, StepStatus, WorkflowSpec};
use serde_json::json;

use super::{act, each, env, job};
use crate::scenario::Scenario;

fn map_reduce() -> WorkflowSpec {
    let mut map = each("map", &["list"], ElementSource::List("steps.list.output".into()));
    *env(&mut map, "FILE") = "${{ item }} (${{ index + 1 }}/${{ total }})".into();
    let mut reduce = job("reduce", &["map"]);
    *env(&mut reduce, "ALL") = "${{ steps.map.output }} of ${{ steps.map.total }}".into();
    WorkflowSpec::new("etl", vec![job("list", &[]), map, reduce])
}

/// C2, C4. A step runs once for each element of an earlier step's output; the next step gets all results in
/// the order of the list.
#[test]
fn a_map_runs_each_element_once_and_collects_results_in_order() {
    let mut t = Scenario::with_room();
    let run = t.run(&map_reduce());
    t.give(t.job_of(run, "list"), &json!(["a", "b", "c"]));
    let jobs: Vec<_> = (0..3).map(|i| t.job_of_element(run, "map", i).unwrap()).collect();
    assert_eq!(t.env_of(jobs[1], "FILE"), "b (2/3)");
    t.give(jobs[2], &json!({"rows": 3}));
    t.give(jobs[0], &json!({"rows": 1}));
    assert_eq!(t.step(run, "map"), StepStatus::Running);
    insta::assert_debug_snapshot!(t.why_step(run, "map"), @r#"
    [
        Elements {
            total: 3,
            running: 1,
            succeeded: 2,
            failed: 0,
        },
    ]
    "#);
    t.check_rebuilt();
    t.succeed(jobs[1]);
    assert_eq!(t.env_of(t.job_of(run, "reduce"), "ALL"), r#"[{"rows":1},null,{"rows":3}] of 3"#);
    t.succeed_step(run, "reduce");
    assert_eq!(t.status_of_run(run), RunStatus::Succeeded);
}

/// C4. Each shard gets its number and the total; its job refers to the element.
#[test]
fn a_shard_gets_its_number_and_the_total() {
    let mut t = Scenario::with_room();
    let items = ElementSource::Items(vec![json!("Beijing"), json!("Shanghai")]);
    let run = t.run(&WorkflowSpec::new("w", vec![each("import", &[], items)]));
    let second = t.job_of_element(run, "import", 1).unwrap();
    let origin = t.rows.jobs[&second].0.step.clone().unwrap();
    let item = origin.element.clone().unwrap();
    assert_eq!((item.index, item.total, &*item.value), (1, 2, "Shanghai"));
    assert_eq!((&*origin.workflow, &*origin.name), ("w", "import"));
    let (_, assignment) = t.take(second);
    assert_eq!(assignment.step, Some(origin));
}

/// C4. The shards of a lost worker move to another one independently; the other shards are not affected.
#[test]
fn the_shards_of_a_lost_worker_move_to_another_one() {
    let mut t = Scenario::new();
    let first = t.worker().slots(2).join();
    let run = t.run(&WorkflowSpec::new("w", vec![each("import", &[], ElementSource::Shards(2))]));
    let jobs: Vec<_> = (0..2).map(|i| t.job_of_element(run, "import", i).unwrap()).collect();
    t.succeed(jobs[0]);
    t.start(jobs[1]);
    t.worker().join();
    t.lose(first);
    assert_eq!(t.status(jobs[1]), JobStatus::Running);
    assert_ne!(t.execution(jobs[1]).worker, first);
    t.succeed(jobs[1]);
    assert_eq!(
        (t.step(run, "import"), t.state(jobs[0]).executions, t.state(jobs[1]).executions),
        (StepStatus::Succeeded, 1, 2)
    );
}

/// C4. The number of concurrent elements is limited; the next one starts as soon as one ends.
#[test]
fn concurrent_elements_are_limited() {
    let mut t = Scenario::with_room();
    let mut step = each("import", &[], ElementSource::Shards(4));
    step.for_each.as_mut().unwrap().max_parallel = Some(2);
    let run = t.run(&WorkflowSpec::new("w", vec![step]));
    assert_eq!(t.running(), 2);
    for item in 0..4 {
        t.check_rebuilt();
        let job = t.job_of_element(run, "import", item).unwrap();
        t.succeed(job);
        assert_eq!(t.running(), 2.min(3 - item as usize));
    }
    assert_eq!(t.step(run, "import"), StepStatus::Succeeded);
}

/// C4. A mapped step fails once too many elements have failed; then no further element starts.
#[test]
fn too_many_failed_elements_fail_the_step() {
    let mut t = Scenario::with_room();
    let mut step = each("import", &[], ElementSource::Shards(5));
    let each = step.for_each.as_mut().unwrap();
    (each.max_parallel, each.max_failed) = (Some(2), 1);
    let run = t.run(&WorkflowSpec::new("w", vec![step]));
    for item in [0, 1] {
        let job = t.job_of_element(run, "import", item).unwrap();
        t.fail(job, 1);
    }
    // The third started when the first failed, which was within the limit; it continues to its end.
    assert_eq!((t.step(run, "import"), t.running()), (StepStatus::Running, 1));
    t.succeed(t.job_of_element(run, "import", 2).unwrap());
    insta::assert_snapshot!(t.steps(run), @"import failed (elements_failed)");
    insta::assert_snapshot!(t.row(run, "import").unwrap().message.as_deref().unwrap(), @"1 of 5 elements succeeded, 2 failed");
}

/// C4. Once enough elements have succeeded, the others are cancelled.
#[test]
fn enough_successes_cancel_the_other_elements() {
    let mut t = Scenario::new();
    t.worker().slots(1).join();
    let mut step = each("try", &[], ElementSource::Shards(3));
    step.for_each.as_mut().unwrap().min_succeeded = Some(1);
    let run = t.run(&WorkflowSpec::new("w", vec![step]));
    t.succeed(t.job_of_element(run, "try", 0).unwrap());
    t.pass(1);
    // The second was placed in the same flush or is waiting; running elements get a stop.
    let live: Vec<_> = (1..3).filter_map(|item| t.job_of_element(run, "try", item)).collect();
    for job in live {
        t.end_with(job, crate::scenario::finished(engine::input::ExecutionEnd::Stopped, None));
    }
    insta::assert_snapshot!(t.steps(run), @"try succeeded (elements_succeeded)");
}

/// C2. A step over an empty list ends immediately.
#[test]
fn empty_list_ends_immediately() {
    let mut t = Scenario::with_room();
    let run = t.run(&map_reduce());
    t.give(t.job_of(run, "list"), &json!([]));
    assert_eq!(t.env_of(t.job_of(run, "reduce"), "ALL"), "[] of 0");
}

/// C2. A value that is not a list, or a list that is too long, fails the step with a message.
#[test]
fn value_that_is_not_a_list_fails_the_step() {
    let mut t = Scenario::with_room();
    let run = t.run(&map_reduce());
    t.give(t.job_of(run, "list"), &json!({"files": 3}));
    insta::assert_snapshot!(t.row(run, "map").unwrap().message.as_deref().unwrap(), @r#"the value is {"files":3}: expected a list"#);

    let mut spec = WorkflowSpec::new(
        "long",
        vec![each("map", &[], ElementSource::List("lists.range(params.n)".into()))],
    );
    spec.parameters.insert("n".into(), Parameter::new(ParameterType::Integer, Some(json!(100_001))));
    let run = t.run(&spec);
    insta::assert_snapshot!(t.row(run, "map").unwrap().message.as_deref().unwrap(), @"the list has 100001 elements: expected at most 100000");
}

/// C4. A broadcast runs once on every worker with the labels, and on no other.
#[test]
fn a_broadcast_runs_once_on_every_worker_with_the_labels() {
    let mut t = Scenario::new();
    let mut wanted = vec![t.worker().label("zone", "a").join(), t.worker().label("zone", "a").join()];
    t.worker().label("zone", "b").join();
    let zone = model::spec::Constraint {
        label: "zone".into(),
        operator: model::spec::Operator::In,
        values: vec!["a".into()],
    };
    let run = t.run(&WorkflowSpec::new("w", vec![each("patch", &[], ElementSource::Workers(vec![zone]))]));
    let jobs: Vec<_> = (0..2).map(|i| t.job_of_element(run, "patch", i).unwrap()).collect();
    let mut found: Vec<_> = jobs.iter().map(|&job| t.execution(job).worker).collect();
    wanted.sort_unstable();
    found.sort_unstable();
    assert_eq!(found, wanted);
    // A worker that joins later is listed, but not included, also in a rebuilt engine.
    t.worker().label("zone", "a").join();
    t.worker().label("zone", "b").join();
    t.restart();
    t.rejoin_all();
    let state = t.row(run, "patch").unwrap();
    let late = state.late_workers.as_deref().unwrap();
    assert_eq!((late.count, late.names.join(" ").as_str(), state.total), (1, "w4", Some(2)));
    t.check_rebuilt();
    jobs.into_iter().for_each(|job| t.succeed(job));
    assert_eq!(t.status_of_run(run), RunStatus::Succeeded);
}

/// C4, H1. A step that waits for a lost worker names it.
#[test]
fn a_broadcast_names_the_lost_workers_that_it_waits_for() {
    let mut t = Scenario::new();
    let [first, second] = [t.worker().join(), t.worker().join()];
    let run = t.run(&WorkflowSpec::new("w", vec![each("patch", &[], ElementSource::Workers(Vec::new()))]));
    let lost = |t: &mut Scenario| {
        let reasons = t.why_step(run, "patch").into_iter();
        let lost = reasons.filter_map(|reason| match reason {
            StepReason::LostWorkers { workers, more } => Some((workers, more)),
            _ => None,
        });
        lost.collect::<Vec<_>>()
    };
    assert_eq!(lost(&mut t), []);
    t.succeed(t.job_of_element(run, "patch", 0).unwrap());
    t.lose(first);
    assert_eq!(lost(&mut t), [], "its element has ended");
    t.lose(second);
    assert_eq!(lost(&mut t), [(vec!["w2".to_owned()], 0)]);
    t.rejoin(second);
    assert_eq!(lost(&mut t), []);
}

/// C4. A retry runs on all workers that are available then: the elements of the first attempt belonged to
/// other workers.
#[test]
fn manually_retried_broadcast_runs_on_every_current_worker() {
    let mut t = Scenario::new();
    let [first, second] = [t.worker().join(), t.worker().join()];
    let run = t.run(&WorkflowSpec::new("w", vec![each("patch", &[], ElementSource::Workers(Vec::new()))]));
    let jobs: Vec<_> = (0..2).map(|i| t.job_of_element(run, "patch", i).unwrap()).collect();
    let workers: Vec<_> = jobs.iter().map(|&job| t.execution(job).worker).collect();
    assert_eq!(workers, [first, second]);
    t.succeed(jobs[1]);
    t.fail(jobs[0], 1);
    assert_eq!(t.status_of_run(run), RunStatus::Failed);
    let workflow = t.rows.runs[&run].0.workflow.unwrap();
    let mut new = t.new_run(workflow, &[], &json!({}));
    new.carried.records = carried(&new.definition, &t.step_records(run), RetryFrom::Failed).records;
    let again = t.start_with(new);
    let jobs: Vec<_> = (0..2).map(|i| t.job_of_element(again, "patch", i).unwrap()).collect();
    assert_eq!([t.execution(jobs[0]).worker, t.execution(jobs[1]).worker], [first, second]);
    jobs.into_iter().for_each(|job| t.succeed(job));
    assert_eq!(t.status_of_run(again), RunStatus::Succeeded);
}

/// C4. A worker that joins late is included if the definition says so, while the step is running.
#[test]
fn broadcast_includes_late_workers() {
    let mut t = Scenario::new();
    let first = t.worker().join();
    let mut patch = each("patch", &[], ElementSource::Workers(Vec::new()));
    if let Some(each) = &mut patch.for_each {
        each.late_workers = LatePolicy::Include;
    }
    let run = t.run(&WorkflowSpec::new("w", vec![patch]));
    let second = t.worker().join();
    let told = t.rows.events.iter().filter_map(|event| match event.kind {
        EventKind::LateWorker { worker, included, .. } => Some((worker, included)),
        _ => None,
    });
    assert_eq!(told.collect::<Vec<_>>(), [(second, true)]);
    t.check_rebuilt();
    t.restart();
    t.rejoin_all();
    let jobs: Vec<_> = (0..2).map(|i| t.job_of_element(run, "patch", i).unwrap()).collect();
    assert_eq!([t.execution(jobs[0]).worker, t.execution(jobs[1]).worker], [first, second]);
    jobs.into_iter().for_each(|job| t.succeed(job));
    assert_eq!(t.status_of_run(run), RunStatus::Succeeded);
    let state = t.row(run, "patch").unwrap();
    assert_eq!((state.total, state.element_counts.unwrap().succeeded), (Some(2), 2));
    t.worker().join();
    assert_eq!(t.row(run, "patch").unwrap().late_workers.as_ref().unwrap().count, 1);
}

/// C2. A workflow calls another one; the step has the outcome and the outputs of the called run.
#[test]
fn a_called_workflow_is_a_step() {
    let mut t = Scenario::with_room();
    let mut inner = WorkflowSpec::new("inner", vec![job("x", &[])]);
    inner.parameters.insert("day".into(), Parameter::new(ParameterType::Integer, None));
    inner.outputs.insert("rows".into(), json!("${{ steps.x.output.rows + params.day }}"));
    let parameters = [("day".to_owned(), json!("${{ params.day }}"))].into();
    let call = act("call", &[], Action::Workflow(Call { name: "inner".into(), parameters }));
    let mut after = job("after", &["call"]);
    *env(&mut after, "ROWS") = "${{ steps.call.output.rows }}".into();
    let mut outer = WorkflowSpec::new("outer", vec![call, after]);
    outer.parameters.insert("day".into(), Parameter::new(ParameterType::Integer, Some(json!(30))));
    let workflow = t.apply(&outer);
    let new = t.new_run(workflow, &[&inner], &json!({}));
    let run = t.start_with(new);
    let called = t.row(run, "call").unwrap().called.unwrap();
    assert_eq!(called.shard(), run.shard());
    assert_eq!(t.why_step(run, "call"), [StepReason::CalledRun { run: called }]);
    t.check_rebuilt();
    t.give(t.job_of(called, "x"), &json!({"rows": 12}));
    assert_eq!(t.env_of(t.job_of(run, "after"), "ROWS"), "42");
    t.succeed_step(run, "after");
    assert_eq!((t.status_of_run(called), t.status_of_run(run)), (RunStatus::Succeeded, RunStatus::Succeeded));
}

/// C2. Stopping a run stops the runs that it called, and their jobs.
#[test]
fn a_called_run_is_stopped_with_the_run_that_called_it() {
    let mut t = Scenario::with_room();
    let mut inner = WorkflowSpec::new("inner", vec![job("x", &[])]);
    inner.finally.push(job("tidy", &[]));
    let call = Action::Workflow(Call { name: "inner".into(), parameters: Default::default() });
    let step = StepSpec { for_each: Some(ForEach::new(ElementSource::Shards(2))), ..act("call", &[], call) };
    let workflow = t.apply(&WorkflowSpec::new("outer", vec![step]));
    let run = t.start_with(t.new_run(workflow, &[&inner], &json!({})));
    let called: Vec<_> = t.rows.runs.keys().copied().filter(|id| *id != run).collect();
    assert_eq!(called.len(), 2);
    t.ask_for(WorkflowRequest::Cancel { run, reason: None, skip_finally: false }).unwrap();
    for &called in &called {
        let job = t.job_of(called, "x");
        t.end_with(job, crate::scenario::finished(engine::input::ExecutionEnd::Stopped, None));
        t.check_rebuilt();
        t.succeed_step(called, "tidy");
    }
    assert!(called.iter().all(|&called| t.status_of_run(called) == RunStatus::Cancelled));
    insta::assert_snapshot!(t.steps(run), @"call cancelled (stopped)");
    assert_eq!(t.status_of_run(run), RunStatus::Cancelled);
}

/// C2. A retry of a map repeats the failed elements and no others.
#[test]
fn retry_repeats_only_failed_elements() {
    let mut t = Scenario::with_room();
    let run = t.run(&map_reduce());
    t.give(t.job_of(run, "list"), &json!(["a", "b", "c"]));
    for (item, output) in [(0, Some(1)), (1, None), (2, Some(3))] {
        let job = t.job_of_element(run, "map", item).unwrap();
        match output {
            Some(output) => t.give(job, &json!(output)),
            None => t.fail(job, 1),
        }
    }
    assert_eq!(t.status_of_run(run), RunStatus::Failed);
    let workflow = t.rows.runs[&run].0.workflow.unwrap();
    let mut new = t.new_run(workflow, &[], &json!({}));
    new.carried.records = carried(&new.definition, &t.step_records(run), RetryFrom::Failed).records;
    new.retry_of = Some(run);
    let again = t.start_with(new);
    insta::assert_snapshot!(t.steps(again), @"list succeeded (carried_over), map running (upstream_ended), reduce pending");
    assert_eq!((t.job_of_element(again, "map", 0), t.running()), (None, 1));
    t.check_rebuilt();
    t.give(t.job_of_element(again, "map", 1).unwrap(), &json!(2));
    assert_eq!(t.env_of(t.job_of(again, "reduce"), "ALL"), "[1,2,3] of 3");
    let element = StepKey { item: Some(0), ..t.key(again, "map") };
    assert_eq!(t.rows.steps[&element].cause, StepCause::CarriedOver);
}

/// C4. However long a list is, a batch contains a bounded part of it, and the first elements start at once.
#[test]
fn a_long_list_begins_in_bounded_parts() {
    let mut t = Scenario::with_room();
    let workflow = t.apply(&WorkflowSpec::new("w", vec![each("map", &[], ElementSource::Shards(20_000))]));
    let new = t.new_run(workflow, &[], &json!({}));
    let ticket = engine::Ticket(9_999);
    let request = Box::new(WorkflowRequest::Start(Box::new(new)));
    t.engine.handle(t.now, engine::Input::Workflow { ticket, request, actor: "alice".into() });
    let mut jobs = Vec::new();
    while !t.engine.is_idle() {
        let changes = t.engine.flush(t.now).batch.changes;
        jobs.push(
            changes.iter().filter(|c| matches!(c, model::record::Change::Job { new: true, .. })).count(),
        );
        assert!(changes.len() < 25_000);
    }
    assert!(jobs[0] > 0 && jobs.iter().all(|&count| count <= 5_000), "{jobs:?}");
    assert_eq!(jobs.iter().sum::<usize>(), 20_000);
}

/// C4, I24. Runs in one queue take turns: the last step of a short run does not wait behind the elements of a
/// long one.
#[test]
fn the_last_step_of_a_run_does_not_wait_behind_the_list_of_another() {
    let mut t = Scenario::new();
    t.worker().slots(2).cpu(1_000_000).memory_mib(1 << 20).join();
    let spec = |name: &str, count| {
        let list = each("list", &[], ElementSource::Shards(count));
        WorkflowSpec::new(name, vec![list, job("reduce", &["list"])])
    };
    let long = t.run(&spec("long", 500));
    let short = t.run(&spec("short", 10));
    let mut ended = 0;
    while t.status_of_run(short) != RunStatus::Succeeded {
        let running = t.rows.jobs.iter().filter(|(_, (_, state))| state.status == JobStatus::Running);
        let oldest = running.min_by_key(|(_, (_, state))| state.execution);
        let job = *oldest.expect("a job runs").0;
        t.succeed(job);
        ended += 1;
        assert!(ended <= 30, "the short run waits behind the long one");
    }
    assert_eq!(t.status_of_run(long), RunStatus::Running);
    t.check_rebuilt();
}

/// C4, I24. A run makes progress although new runs without any service arrive continuously.
#[test]
fn waiting_run_is_not_starved_by_new_runs() {
    let mut t = Scenario::new();
    t.worker().slots(1).cpu(1_000_000).memory_mib(1 << 20).join();
    let long = t.run(&WorkflowSpec::new("long", vec![each("list", &[], ElementSource::Shards(10))]));
    let short = t.apply(&WorkflowSpec::new("short", vec![job("only", &[])]));
    for turn in 0.. {
        // One run starts for each job that ends, so some are always waiting.
        for _ in 0..if turn == 0 { 3 } else { 1 } {
            let new = t.new_run(short, &[], &json!({}));
            t.start_with(new);
        }
        let mut running = t.rows.jobs.iter().filter(|(_, (_, state))| state.status == JobStatus::Running);
        let job = *running.next().expect("a job runs").0;
        t.pass(1);
        t.succeed(job);
        if t.status_of_run(long) == RunStatus::Succeeded {
            return;
        }
        assert!(turn < 60, "the older run starves");
    }
}

/// C3. The explanation of a list in a paused run says that the pause blocks the elements that have not
/// started.
#[test]
fn explanation_of_a_paused_list_names_the_pause() {
    let mut t = Scenario::with_room();
    let over = ForEach { max_parallel: Some(1), ..ForEach::new(ElementSource::Shards(3)) };
    let run = t.run(&WorkflowSpec::new("w", vec![StepSpec { for_each: Some(over), ..job("list", &[]) }]));
    t.ask_for(WorkflowRequest::Pause { run, note: None }).unwrap();
    let why = t.why_step(run, "list");
    assert!(why.iter().any(|reason| matches!(reason, StepReason::Paused { .. })), "{why:?}");
    let job = t.job_of_element(run, "list", 0).unwrap();
    t.start(job);
    t.pass(5);
    t.succeed(job);
    // Each ended element has its run time.
    let key = StepKey { item: Some(0), ..t.key(run, "list") };
    let row = &t.rows.steps[&key];
    assert!(row.started_at.unwrap() < row.finished_at.unwrap());
}
