//! Running tasks add elements to a step of their run.
//!
//! `map_reduce` is the workflow of most tests: `split` adds elements to `work`, and `total` collects the
//! results. The tests cover, in order: when added elements start and the step ends, repeated batches,
//! elements that add elements, restarts, failures of an adding step, retries and reruns, and refusals.
//!
//! # Invariants
//! - A batch with the same name is added once for each adding task, also by a later execution of the task.
//! - An added element is durable with the reply.
//! - Results are collected in the order in which the elements were added.

use model::run::{RetryFrom, StepCause, carried};
use model::why::StepReason;
use model::workflow::{ElementSource, ForEach, StepSpec};
use model::{Refusal, RunId, RunStatus, StepStatus, WorkflowSpec, limits};
use serde_json::{Value, json};

use super::{each, env, job};
use crate::scenario::Scenario;

fn added_by(name: &str, adders: &[&str]) -> StepSpec {
    each(name, &[], ElementSource::AddedBy(adders.iter().map(|&adder| adder.to_owned()).collect()))
}

/// `split` adds elements to `work`, whose results `total` collects.
fn map_reduce() -> WorkflowSpec {
    let mut work = added_by("work", &["split"]);
    *env(&mut work, "PAGE") = "${{ item }} ${{ index }}".into();
    let mut total = job("total", &["work"]);
    *env(&mut total, "ALL") = "${{ steps.work.output }} of ${{ steps.work.total }}".into();
    WorkflowSpec::new("crawl", vec![job("split", &[]), work, total])
}

fn begin() -> (Scenario, RunId) {
    let mut t = Scenario::with_room();
    let run = t.run(&map_reduce());
    (t, run)
}

fn ends_of_elements(t: &mut Scenario, run: RunId, items: std::ops::Range<u32>) {
    for item in items {
        let job = t.job_of_element(run, "work", item).unwrap();
        t.give(job, &json!(item));
    }
}

/// C4. An added element starts while the adding task is running. The step ends after both, and the next step
/// gets all results in the order in which the elements were added.
#[test]
fn elements_start_when_added_and_the_step_ends_after_its_adders() {
    let (mut t, run) = begin();
    let split = t.job_of(run, "split");
    let first = t.add(split, None, "a", &[json!("one"), json!("two")]).unwrap();
    assert_eq!((&*first.step, first.first, first.count, first.total, first.new), ("work", 0, 2, 2, true));
    let second = t.add(split, Some("work"), "b", &[json!("three")]).unwrap();
    assert_eq!((second.first, second.count, second.total), (2, 1, 3));
    t.check_rebuilt();
    assert_eq!(t.env_of(t.job_of_element(run, "work", 2).unwrap(), "PAGE"), "three 2");
    ends_of_elements(&mut t, run, 0..3);
    assert_eq!(t.step(run, "work"), StepStatus::Running, "further elements may be added");
    assert!(matches!(
        t.why_step(run, "work")[..],
        [StepReason::Elements { .. }, StepReason::AddingSteps { .. }]
    ));
    t.check_rebuilt();
    t.succeed(split);
    assert_eq!(t.env_of(t.job_of(run, "total"), "ALL"), "[0,1,2] of 3");
    t.succeed_step(run, "total");
    assert_eq!(t.status_of_run(run), RunStatus::Succeeded);
}

/// C4, D4. The next execution of a failed task repeats its batches: nothing is added twice.
#[test]
fn repeated_batch_name_adds_nothing() {
    let mut t = Scenario::new();
    let first = t.worker().join();
    let run = t.run(&map_reduce());
    let split = t.job_of(run, "split");
    t.start(split);
    t.add(split, None, "a", &[json!(1), json!(2)]).unwrap();
    t.lose(first);
    t.worker().join();
    t.start(split);
    let again = t.add(split, None, "a", &[json!(1), json!(2), json!(3)]).unwrap();
    assert_eq!((again.first, again.count, again.total, again.new), (0, 2, 2, false));
    assert_eq!(t.add(split, None, "b", &[json!(4)]).unwrap().first, 2);
    assert_eq!(t.rows.batches.len(), 2);
}

/// C4. Elements add elements: a tree of unknown shape is walked. Each element has its own batches.
#[test]
fn elements_add_elements() {
    let (mut t, run) = begin();
    t.add(t.job_of(run, "split"), None, "seed", &[json!("/"), json!("/news")]).unwrap();
    for (item, found) in [(0, "/a"), (1, "/b")] {
        let job = t.job_of_element(run, "work", item).unwrap();
        assert!(t.add(job, None, "links", &[json!(found)]).unwrap().new);
    }
    t.succeed_step(run, "split");
    ends_of_elements(&mut t, run, 0..3);
    t.check_rebuilt();
    assert_eq!(t.step(run, "work"), StepStatus::Running);
    ends_of_elements(&mut t, run, 3..4);
    assert_eq!(t.step(run, "work"), StepStatus::Succeeded);
    assert_eq!(t.row(run, "work").unwrap().total, Some(4));
}

/// C4, D5, I28. Added elements are durable with the reply, wherever the server crashes.
#[test]
fn restart_keeps_added_elements() {
    let (mut t, run) = begin();
    let split = t.job_of(run, "split");
    t.add(split, None, "a", &[json!("one"), json!("two")]).unwrap();
    t.restart();
    t.rejoin_all();
    assert!(!t.add(split, None, "a", &[json!("other")]).unwrap().new);
    t.add(split, None, "b", &[json!("three")]).unwrap();
    t.succeed(split);
    t.restart();
    t.rejoin_all();
    ends_of_elements(&mut t, run, 0..3);
    assert_eq!(t.env_of(t.job_of(run, "total"), "ALL"), "[0,1,2] of 3");
}

/// C4. Elements added to a pending step are kept until it starts.
#[test]
fn elements_added_to_a_pending_step_wait() {
    let mut spec = map_reduce();
    spec.steps.push(job("prepare", &[]));
    spec.steps[1].needs = vec!["prepare".into()];
    let mut t = Scenario::with_room();
    let run = t.run(&spec);
    t.add(t.job_of(run, "split"), None, "a", &[json!("one")]).unwrap();
    t.succeed_step(run, "split");
    t.restart();
    t.rejoin_all();
    assert_eq!((t.step(run, "work"), t.job_of_element(run, "work", 0)), (StepStatus::Pending, None));
    t.succeed_step(run, "prepare");
    ends_of_elements(&mut t, run, 0..1);
    assert_eq!(t.step(run, "work"), StepStatus::Succeeded);
}

/// C4. Without elements there is nothing to do, which is not a failure.
#[test]
fn a_step_to_which_nothing_was_added_succeeds() {
    let (mut t, run) = begin();
    t.succeed_step(run, "split");
    assert_eq!(t.step(run, "work"), StepStatus::Succeeded);
    assert_eq!(t.env_of(t.job_of(run, "total"), "ALL"), "[] of 0");
}

/// C2, C4. An incomplete list must not lead to a success.
#[test]
fn step_fails_if_an_adder_fails() {
    let (mut t, run) = begin();
    t.add(t.job_of(run, "split"), None, "a", &[json!("one")]).unwrap();
    t.fail_step(run, "split");
    ends_of_elements(&mut t, run, 0..1);
    insta::assert_snapshot!(t.steps(run), @"split failed (job_failed), work failed (list_unfinished), total upstream_failed (join_rule)");
}

/// C2, C4. A retry carries the list over and repeats only the failed elements.
#[test]
fn retry_repeats_only_failed_elements_of_the_same_list() {
    let (mut t, run) = begin();
    t.add(t.job_of(run, "split"), None, "a", &[json!("one"), json!("two")]).unwrap();
    t.succeed_step(run, "split");
    t.give(t.job_of_element(run, "work", 0).unwrap(), &json!("done"));
    t.fail(t.job_of_element(run, "work", 1).unwrap(), 1);
    assert_eq!(t.status_of_run(run), RunStatus::Failed);
    let again = try_again(&mut t, run, RetryFrom::Failed);
    assert_eq!(t.job_of_element(again, "work", 0), None);
    t.give(t.job_of_element(again, "work", 1).unwrap(), &json!("again"));
    assert_eq!(t.env_of(t.job_of(again, "total"), "ALL"), r#"["done","again"] of 2"#);
    assert_eq!(t.row(again, "split").unwrap().cause, StepCause::CarriedOver);
}

/// Retries a run from the given point.
fn try_again(t: &mut Scenario, run: RunId, from: RetryFrom<'_>) -> RunId {
    let workflow = t.rows.runs[&run].0.workflow.unwrap();
    let mut new = t.new_run(workflow, &[], &json!({}));
    let before = carried(&new.definition, &t.step_records(run), from);
    new.carried = t.takeover(run, before);
    let again = t.start_with(new);
    t.check_rebuilt();
    again
}

/// C2, C4. A rerun from the step processes all elements that carried-over steps added to it; elements added
/// by its own elements are added again.
#[test]
fn rerun_from_the_step_repeats_every_element() {
    let (mut t, run) = begin();
    let split = t.job_of(run, "split");
    t.add(split, None, "a", &[json!("one")]).unwrap();
    let element = t.job_of_element(run, "work", 0).unwrap();
    t.add(element, None, "links", &[json!("linked")]).unwrap();
    t.add(split, None, "b", &[json!("two")]).unwrap();
    t.succeed_step(run, "split");
    ends_of_elements(&mut t, run, 0..3);
    let again = try_again(&mut t, run, RetryFrom::Step("work"));
    let element = t.job_of_element(again, "work", 0).unwrap();
    assert_eq!(t.env_of(t.job_of_element(again, "work", 1).unwrap(), "PAGE"), "two 1");
    t.add(element, None, "links", &[json!("linked")]).unwrap();
    ends_of_elements(&mut t, again, 0..3);
    assert_eq!(t.env_of(t.job_of(again, "total"), "ALL"), "[0,1,2] of 3");
}

/// C2, C4. One of two adding steps failed: it adds its elements again, and the elements of the other one are
/// not lost.
#[test]
fn retry_keeps_elements_added_by_carried_steps() {
    let mut spec = map_reduce();
    spec.steps.insert(1, job("more", &[]));
    let over = ElementSource::AddedBy(vec!["split".into(), "more".into()]);
    spec.steps[2].for_each = Some(ForEach::new(over));
    let mut t = Scenario::with_room();
    let run = t.run(&spec);
    t.add(t.job_of(run, "more"), None, "a", &[json!("of more")]).unwrap();
    t.add(t.job_of(run, "split"), None, "a", &[json!("of split")]).unwrap();
    t.succeed_step(run, "split");
    t.fail_step(run, "more");
    ends_of_elements(&mut t, run, 0..2);
    assert_eq!(t.status_of_run(run), RunStatus::Failed);
    let again = try_again(&mut t, run, RetryFrom::Failed);
    assert_eq!(t.env_of(t.job_of_element(again, "work", 0).unwrap(), "PAGE"), "of split 0");
    t.add(t.job_of(again, "more"), None, "a", &[json!("of more")]).unwrap();
    t.succeed_step(again, "more");
    ends_of_elements(&mut t, again, 0..2);
    assert_eq!(t.env_of(t.job_of(again, "total"), "ALL"), "[0,1] of 2");
}

/// C2, C4. In an adding mapped step, only the failed elements are repeated: the elements added by the
/// others are kept.
#[test]
fn retry_keeps_elements_added_by_carried_elements() {
    let mut spec = map_reduce();
    spec.steps[0] = each("split", &[], ElementSource::Items(vec![json!("a"), json!("b")]));
    let mut t = Scenario::with_room();
    let run = t.run(&spec);
    let splits = [0, 1].map(|item| t.job_of_element(run, "split", item).unwrap());
    t.add(splits[1], None, "own", &[json!("of b")]).unwrap();
    t.add(splits[0], None, "own", &[json!("of a")]).unwrap();
    t.give(splits[0], &json!(null));
    t.fail(splits[1], 1);
    ends_of_elements(&mut t, run, 0..2);
    let again = try_again(&mut t, run, RetryFrom::Failed);
    assert_eq!(t.env_of(t.job_of_element(again, "work", 0).unwrap(), "PAGE"), "of a 0");
    let split = t.job_of_element(again, "split", 1).unwrap();
    t.add(split, None, "own", &[json!("of b")]).unwrap();
    t.give(split, &json!(null));
    ends_of_elements(&mut t, again, 0..2);
    assert_eq!(t.env_of(t.job_of(again, "total"), "ALL"), "[0,1] of 2");
}

/// C4. An element that cannot be added is refused with the names of the possible steps, and nothing changes.
#[test]
fn a_task_adds_only_where_its_workflow_says() {
    let mut spec = map_reduce();
    // The maximum of 100,000 elements is tested elsewhere.
    spec.steps[1].for_each.as_mut().unwrap().max_parallel = Some(1);
    let mut t = Scenario::with_room();
    let run = t.run(&spec);
    let split = t.job_of(run, "split");
    let one: [Value; 1] = [json!(1)];
    let refused = t.add(split, Some("total"), "a", &one).unwrap_err();
    assert_eq!(refused.to_string(), "step `total` accepts no elements from this task: expected work");
    let alone = t.job().submit();
    t.start(alone);
    assert!(
        matches!(t.add(alone, None, "a", &one), Err(Refusal::ElementsNotAccepted { allowed, .. }) if allowed.is_empty())
    );
    let many = vec![json!(0); limits::ITEMS_MAX];
    t.add(split, None, "a", &many).unwrap();
    let refused = t.add(split, None, "b", &one).unwrap_err();
    assert!(matches!(refused, Refusal::ElementLimit { limit: limits::ITEMS_MAX, .. }));
    assert_eq!(t.rows.batches.len(), 1);
}

/// C4. A step ends once enough elements succeeded; further elements are refused.
#[test]
fn ended_step_accepts_no_elements() {
    let mut spec = map_reduce();
    spec.steps[1].for_each = Some(ForEach {
        min_succeeded: Some(1),
        ..ForEach::new(ElementSource::AddedBy(vec!["split".into()]))
    });
    let mut t = Scenario::with_room();
    let run = t.run(&spec);
    let split = t.job_of(run, "split");
    t.add(split, None, "a", &[json!(1)]).unwrap();
    ends_of_elements(&mut t, run, 0..1);
    assert_eq!(t.step(run, "work"), StepStatus::Succeeded);
    let refused = t.add(split, None, "b", &[json!(2)]).unwrap_err();
    assert!(matches!(refused, Refusal::StepEnded { status: StepStatus::Succeeded, .. }));
}
