//! Artifacts within a run: steps store them, and later steps read them.
//!
//! `storing` and `reading` build steps with one artifact each. `Scenario::store` ends a job with the versions
//! that it stored, and `Scenario::reads` returns the artifacts that a job was assigned, as `data@1`.
//!
//! The last tests cover declared outputs of steps, which are values and not files.
//!
//! # Invariants
//! - A step reads the version that its own run stored, whatever other runs store meanwhile.
//! - If an earlier step of the run should have stored an artifact and did not, the reading step fails; a
//!   version of another run is never used instead.

use engine::input::ExecutionEnd;
use engine::{Report, WorkflowRequest};
use model::record::{FileVersion, Files, Outcome, Usage};
use model::run::{RetryFrom, carried};
use model::spec::{InputFile, OutputFile};
use model::workflow::{Action, Call, ElementSource, ForEach, JoinRule, StepSpec};
use model::{JobId, RunId, RunStatus, StepStatus, WorkflowSpec};
use serde_json::json;

use super::{act, each, env, job};
use crate::scenario::Scenario;

/// A step whose job stores an artifact.
fn storing(name: &str, needs: &[&str], artifact: &str) -> StepSpec {
    let mut step = job(name, needs);
    outputs(&mut step).push(OutputFile { artifact: artifact.into(), path: "out.csv".into(), optional: true });
    step
}

fn outputs(step: &mut StepSpec) -> &mut Vec<OutputFile> {
    let Action::Job(job) = &mut step.action else { panic!("a job is expected") };
    &mut job.outputs
}

/// A step whose job reads an artifact.
fn reading(name: &str, needs: &[&str], artifact: &str) -> StepSpec {
    let mut step = job(name, needs);
    let Action::Job(job) = &mut step.action else { panic!("a job is expected") };
    job.inputs.push(InputFile { artifact: artifact.into(), path: "in".into(), executable: false });
    step
}

fn version(artifact: &str, digit: char) -> FileVersion {
    FileVersion { artifact: artifact.into(), sha256: digit.to_string().repeat(64), path: "out.csv".into() }
}

impl Scenario {
    /// Ends a job that stored these versions.
    fn store(&mut self, job: JobId, outputs: Vec<FileVersion>) {
        let files = Some(Box::new(Files { inputs: Vec::new(), outputs }));
        let outcome = Outcome { files, ..Outcome::default() };
        self.end_with(
            job,
            Report::Finished { how: ExecutionEnd::Succeeded, outcome, usage: Usage::default() },
        );
    }

    /// Returns the artifacts that a job reads, with the first digit of the version: `data@1`.
    fn reads(&self, job: JobId) -> Vec<String> {
        let short = |input: &InputFile| match input.artifact.split_once("@sha256:") {
            Some((name, hash)) => format!("{name}@{} {}", &hash[..1], input.path),
            None => format!("{} {}", input.artifact, input.path),
        };
        self.spec_of(job).inputs.iter().map(short).collect()
    }

    fn message(&self, run: RunId, step: &str) -> String {
        self.row(run, step).unwrap().message.as_deref().unwrap_or_default().to_owned()
    }
}

/// C2. Two runs of a workflow store the same artifact at the same time: each reads its own version, and so
/// does a retry of the first one.
#[test]
fn a_run_reads_what_it_stored_itself() {
    let mut t = Scenario::with_room();
    let spec = WorkflowSpec::new(
        "w",
        vec![storing("make", &[], "data"), job("mid", &["make"]), reading("use", &["mid"], "data")],
    );
    let workflow = t.apply(&spec);
    let [one, two] = [(), ()].map(|()| {
        let new = t.new_run(workflow, &[], &json!({}));
        t.start_with(new)
    });
    t.store(t.job_of(one, "make"), vec![version("data", '1')]);
    t.store(t.job_of(two, "make"), vec![version("data", '2')]);
    t.check_rebuilt();
    t.restart();
    t.rejoin_all();
    for (run, read) in [(one, "data@1 in"), (two, "data@2 in")] {
        t.succeed_step(run, "mid");
        assert_eq!(t.reads(t.job_of(run, "use")), [read]);
    }
    let make = t.job_of(one, "make");
    let row = t.rows.executions.values().find(|record| record.job == make).unwrap();
    assert_eq!(row.files.as_ref().unwrap().outputs, [version("data", '1')]);
    t.fail_step(one, "use");
    let mut new = t.new_run(workflow, &[], &json!({}));
    let before = carried(&new.definition, &t.step_records(one), RetryFrom::Failed);
    new.carried = t.takeover(one, before);
    let again = t.start_with(new);
    assert_eq!(t.reads(t.job_of(again, "use")), ["data@1 in"]);
}

/// C2. An artifact that a step should have stored and did not is never replaced by one of another run. An
/// artifact that no earlier step stores, or only a skipped one, is read in its newest version.
#[test]
fn an_artifact_that_a_step_did_not_store_is_not_taken_from_another_run() {
    let mut t = Scenario::with_room();
    let anyway =
        |name: &str, need: &str| StepSpec { join: JoinRule::AllDone, ..reading(name, &[need], "data") };
    let skipped = StepSpec { when: Some("false".into()), ..storing("left-out", &[], "data") };
    let spec = WorkflowSpec::new(
        "w",
        vec![
            storing("bad", &[], "data"),
            anyway("after-bad", "bad"),
            storing("none", &[], "data"),
            anyway("after-none", "none"),
            skipped,
            anyway("after-skip", "left-out"),
            job("other", &[]),
            anyway("after-other", "other"),
        ],
    );
    let run = t.run(&spec);
    t.fail_step(run, "bad");
    t.store(t.job_of(run, "none"), Vec::new());
    t.succeed_step(run, "other");
    insta::assert_snapshot!(t.message(run, "after-bad"), @"inputs[0].artifact: step `bad` stored no artifact `data` in this run: it failed");
    insta::assert_snapshot!(t.message(run, "after-none"), @"inputs[0].artifact: step `none` stored no artifact `data` in this run");
    for step in ["after-skip", "after-other"] {
        assert_eq!(t.reads(t.job_of(run, step)), ["data in"], "{step}");
    }
}

/// A step whose job reads an artifact, whatever the outcome of the step before.
fn reading_anyway(name: &str, need: &str, artifact: &str) -> StepSpec {
    StepSpec { join: JoinRule::AllDone, ..reading(name, &[need], artifact) }
}

fn call(name: &str, needs: &[&str], called: &str) -> StepSpec {
    act(name, needs, Action::Workflow(Call { name: called.into(), parameters: Default::default() }))
}

/// C2. Sixty elements with forty versions each are too many for the row of their step. A restart does not
/// change that.
#[test]
fn an_artifact_of_a_step_with_too_many_versions_is_not_taken_from_another_run() {
    const ELEMENTS: u32 = 60;
    let filler = |i: u32| format!("filler-{i}-{}", "x".repeat(40));
    let mut t = Scenario::with_room();
    let mut part = each("part", &[], ElementSource::Shards(ELEMENTS));
    let names = ["data".to_owned(), "part-${{ index }}".to_owned()];
    for artifact in names.into_iter().chain((0..38).map(filler)) {
        outputs(&mut part).push(OutputFile { path: format!("{artifact}.csv"), artifact, optional: true });
    }
    let mut gathered = reading("gathered", &["gate"], "other");
    *env(&mut gathered, "ALL") = "${{ size(steps.part.files.data) }}".into();
    let readers = [
        reading("by-name", &["gate"], "data"),
        reading("by-template", &["gate"], "part-1"),
        gathered,
        reading("elsewhere", &["gate"], "other"),
    ];
    let readers = readers.map(|step| StepSpec { continue_on_failure: true, ..step });
    let inner = WorkflowSpec::new("inner", [vec![part, job("gate", &["part"])], readers.to_vec()].concat());
    let steps = vec![call("call", &[], "inner"), job("gate", &["call"]), reading("use", &["gate"], "data")];
    let workflow = t.apply(&WorkflowSpec::new("w", steps));
    let new = t.new_run(workflow, &[&inner], &json!({}));
    let outer = t.start_with(new);
    let run = t.row(outer, "call").unwrap().called.unwrap();
    for item in 0..ELEMENTS {
        let job = t.job_of_element(run, "part", item).unwrap();
        let named = [version("data", '1'), version(&format!("part-{item}"), '2')];
        t.store(job, named.into_iter().chain((0..38).map(|i| version(&filler(i), '3'))).collect());
    }
    t.check_rebuilt();
    t.restart();
    t.rejoin_all();
    t.succeed_step(run, "gate");
    insta::assert_snapshot!(t.message(run, "by-name"), @"inputs[0].artifact: the list of artifacts that step `part` stored in this run is larger than 196608 bytes, so the version of `data` is unknown: let the step store fewer artifacts, or name a version");
    insta::assert_snapshot!(t.message(run, "by-template"), @"inputs[0].artifact: the list of artifacts that step `part` stored in this run is larger than 196608 bytes, so the version of `part-1` is unknown: let the step store fewer artifacts, or name a version");
    insta::assert_snapshot!(t.message(run, "gathered"), @"run.process.env.ALL: `size(steps.part.files.data)`: the list of artifacts that step `part` stored is larger than 196608 bytes");
    assert_eq!(t.reads(t.job_of(run, "elsewhere")), ["other in"]);
    t.succeed_step(run, "elsewhere");
    t.restart();
    t.rejoin_all();
    t.succeed_step(outer, "gate");
    insta::assert_snapshot!(t.message(outer, "use"), @"inputs[0].artifact: the list of artifacts that step `call` stored in this run is larger than 196608 bytes, so the version of `data` is unknown: let the step store fewer artifacts, or name a version");
}

/// C2. The artifacts that a called run should store are known from its definition, also if the run failed,
/// and from its end.
#[test]
fn an_artifact_that_a_called_run_did_not_store_is_not_taken_from_another_run() {
    let mut t = Scenario::with_room();
    let failing = WorkflowSpec::new("failing", vec![storing("make", &[], "data")]);
    let lenient = StepSpec { continue_on_failure: true, ..storing("make", &[], "data") };
    let named = StepSpec { continue_on_failure: true, ..storing("name", &[], "part-${{ run.number }}-x") };
    let skipped = StepSpec { when: Some("false".into()), ..storing("left-out", &[], "spare") };
    let going_on = WorkflowSpec::new("going-on", vec![lenient, named, skipped]);
    let around = WorkflowSpec::new("around", vec![call("inner", &[], "going-on")]);
    let failed = StepSpec { continue_on_failure: true, ..call("failed", &[], "failing") };
    let mut lists = call("lists", &[], "failing");
    lists.for_each = Some(ForEach { max_failed: 1, ..ForEach::new(ElementSource::Shards(2)) });
    let mut steps = vec![failed, call("ended", &[], "around"), lists];
    for step in ["failed", "ended", "lists"] {
        steps.push(StepSpec { join: JoinRule::AllDone, ..job(&format!("gate-{step}"), &[step]) });
        steps.push(reading_anyway(&format!("after-{step}"), &format!("gate-{step}"), "data"));
    }
    steps.push(reading_anyway("part-after-ended", "gate-ended", "part-0-x"));
    steps.push(reading_anyway("spare-after-ended", "gate-ended", "spare"));
    steps.push(reading_anyway("elsewhere", "gate-failed", "other"));
    let workflow = t.apply(&WorkflowSpec::new("w", steps));
    let new = t.new_run(workflow, &[&failing, &going_on, &around], &json!({}));
    let run = t.start_with(new);
    let called = |t: &Scenario, run: RunId, step: &str| t.row(run, step).unwrap().called.unwrap();
    let of_failed = called(&t, run, "failed");
    t.fail_step(of_failed, "make");
    let outer = called(&t, run, "ended");
    let inner = called(&t, outer, "inner");
    t.fail_step(inner, "make");
    t.fail_step(inner, "name");
    let elements: Vec<_> = t
        .rows
        .runs
        .iter()
        .filter(|(_, (head, _))| {
            head.caller.as_ref().is_some_and(|caller| caller.run == run && caller.element.is_some())
        })
        .map(|(&id, (head, _))| (head.caller.as_ref().unwrap().element, id))
        .collect();
    for (item, element) in elements {
        let make = t.job_of(element, "make");
        match item {
            Some(0) => t.store(make, Vec::new()),
            _ => t.fail(make, 1),
        }
    }
    t.check_rebuilt();
    t.restart();
    t.rejoin_all();
    for step in ["gate-failed", "gate-ended", "gate-lists"] {
        t.succeed_step(run, step);
    }
    insta::assert_snapshot!(t.message(run, "after-failed"), @"inputs[0].artifact: step `failed` stored no artifact `data` in this run: it failed");
    insta::assert_snapshot!(t.message(run, "after-ended"), @"inputs[0].artifact: step `ended` stored no artifact `data` in this run");
    insta::assert_snapshot!(t.message(run, "after-lists"), @"inputs[0].artifact: step `lists` stored no artifact `data` in this run");
    insta::assert_snapshot!(t.message(run, "part-after-ended"), @"inputs[0].artifact: step `ended` stored no artifact `part-0-x` in this run");
    assert_eq!(t.reads(t.job_of(run, "spare-after-ended")), ["spare in"]);
    assert_eq!(t.reads(t.job_of(run, "elsewhere")), ["other in"]);
}

/// C2. A name with references is rendered again for a step with one job. In a list, each element may have its
/// own.
#[test]
fn an_artifact_whose_name_has_references_and_that_was_not_stored_is_not_taken_from_another_run() {
    let mut t = Scenario::with_room();
    let of_list = |name: &str| {
        let mut step = each(name, &[], ElementSource::Items(vec![json!("1"), json!("2")]));
        step.for_each.as_mut().unwrap().max_failed = 1;
        outputs(&mut step).push(OutputFile {
            artifact: "data-${{ item }}".into(),
            path: "out.csv".into(),
            optional: true,
        });
        step
    };
    let one = |name: &str| storing(name, &[], "data-${{ run.number }}");
    let mut steps =
        vec![of_list("failed"), of_list("none"), of_list("gap"), of_list("all"), one("one"), one("empty")];
    for step in ["failed", "none", "gap", "all", "one", "empty"] {
        steps.push(StepSpec { join: JoinRule::AllDone, ..job(&format!("gate-{step}"), &[step]) });
        steps.push(reading_anyway(&format!("after-{step}"), &format!("gate-{step}"), "data-1"));
    }
    steps.push(reading_anyway("other-name", "gate-one", "data-7"));
    steps.push(reading_anyway("other-list", "gate-all", "data-7"));
    steps.push(reading_anyway("elsewhere", "gate-failed", "date-1"));
    let run = t.run(&WorkflowSpec::new("w", steps));
    for (step, stored) in [
        ("failed", None),
        ("none", Some([false, false])),
        ("gap", Some([false, true])),
        ("all", Some([true, true])),
    ] {
        for item in 0..2 {
            let Some(job) = t.job_of_element(run, step, item) else { continue };
            match stored {
                None => t.fail(job, 1),
                Some(stored) => {
                    let version = version(&format!("data-{}", item + 1), '1');
                    t.store(job, stored[item as usize].then_some(version).into_iter().collect());
                }
            }
        }
    }
    t.fail_step(run, "one");
    t.store(t.job_of(run, "empty"), Vec::new());
    t.check_rebuilt();
    t.restart();
    t.rejoin_all();
    for step in ["failed", "none", "gap", "all", "one", "empty"] {
        t.succeed_step(run, &format!("gate-{step}"));
    }
    insta::assert_snapshot!(t.message(run, "after-failed"), @"inputs[0].artifact: step `failed` stored no artifact `data-1` in this run: it failed");
    insta::assert_snapshot!(t.message(run, "after-none"), @"inputs[0].artifact: step `none` stored no artifact `data-1` in this run");
    insta::assert_snapshot!(t.message(run, "after-gap"), @"inputs[0].artifact: step `gap` stored no artifact `data-1` in this run");
    insta::assert_snapshot!(t.message(run, "after-one"), @"inputs[0].artifact: step `one` stored no artifact `data-1` in this run: it failed");
    insta::assert_snapshot!(t.message(run, "after-empty"), @"inputs[0].artifact: step `empty` stored no artifact `data-1` in this run");
    assert_eq!(t.reads(t.job_of(run, "after-all")), ["data-1@1 in"]);
    for (step, read) in [("other-name", "data-7 in"), ("other-list", "data-7 in"), ("elsewhere", "date-1 in")]
    {
        assert_eq!(t.reads(t.job_of(run, step)), [read], "{step}");
    }
}

/// C2. Expressions can refer to stored artifacts: to one version, and to those of a list, which become the
/// files of a folder.
#[test]
fn artifacts_of_elements_are_collected() {
    let mut t = Scenario::with_room();
    let mut part = each("part", &[], ElementSource::Items(vec![json!("a"), json!("b"), json!("c")]));
    outputs(&mut part).push(OutputFile {
        artifact: "part-${{ index }}".into(),
        path: "out.csv".into(),
        optional: true,
    });
    let mut merge = reading("merge", &["part"], "${{ steps.part.files['out.csv'] }}");
    *env(&mut merge, "COUNT") = "${{ size(steps.part.files['out.csv']) }}".into();
    outputs(&mut merge).push(OutputFile { artifact: "all".into(), path: "out.csv".into(), optional: false });
    let last = reading("last", &["merge"], "${{ steps.merge.files.all }}");
    let run = t.run(&WorkflowSpec::new("w", vec![part, merge, last]));
    for (item, digit) in [(2, Some('3')), (0, Some('1')), (1, None)] {
        let job = t.job_of_element(run, "part", item).unwrap();
        t.store(job, digit.map(|digit| version(&format!("part-{item}"), digit)).into_iter().collect());
        t.restart();
        t.rejoin_all();
    }
    let merge = t.job_of(run, "merge");
    assert_eq!(t.reads(merge), ["part-0@1 in/0", "part-2@3 in/2"]);
    assert_eq!(t.env_of(merge, "COUNT"), "3");
    t.store(merge, vec![version("all", '9')]);
    assert_eq!(t.reads(t.job_of(run, "last")), ["all@9 in"]);
}

/// C2. Elements that stored different versions under one name are ambiguous.
#[test]
fn an_artifact_of_many_elements_is_not_read_by_its_name() {
    let mut t = Scenario::with_room();
    let mut part = each("part", &[], ElementSource::Shards(2));
    outputs(&mut part).push(OutputFile { artifact: "data".into(), path: "out.csv".into(), optional: false });
    let run = t.run(&WorkflowSpec::new("w", vec![part, reading("use", &["part"], "data")]));
    for (item, digit) in [(0, '1'), (1, '2')] {
        let job = t.job_of_element(run, "part", item).unwrap();
        t.store(job, vec![version("data", digit)]);
    }
    insta::assert_snapshot!(t.message(run, "use"), @"inputs[0].artifact: the elements of step `part` stored different versions of `data`: select them with `steps.part.files`");
}

/// C2. A called run reads artifacts stored before the call, and its own artifacts are read after the call.
#[test]
fn artifacts_pass_into_and_out_of_a_called_run() {
    let mut t = Scenario::with_room();
    let mut inner_step = reading("clean", &[], "raw");
    outputs(&mut inner_step).push(OutputFile {
        artifact: "clean".into(),
        path: "out.csv".into(),
        optional: false,
    });
    let inner = WorkflowSpec::new("inner", vec![inner_step]);
    let call = Action::Workflow(Call { name: "inner".into(), parameters: Default::default() });
    let outer = WorkflowSpec::new(
        "w",
        vec![storing("make", &[], "raw"), act("call", &["make"], call), reading("use", &["call"], "clean")],
    );
    let workflow = t.apply(&outer);
    let new = t.new_run(workflow, &[&inner], &json!({}));
    let run = t.start_with(new);
    t.store(t.job_of(run, "make"), vec![version("raw", '1')]);
    let called = t.row(run, "call").unwrap().called.unwrap();
    let clean = t.job_of(called, "clean");
    assert_eq!(t.reads(clean), ["raw@1 in"]);
    t.store(clean, vec![version("clean", '2')]);
    assert_eq!(t.reads(t.job_of(run, "use")), ["clean@2 in"]);
}

/// C2. The output of a failed task can be read, so that a compensation step gets the error. If there is no
/// output, the message says why.
#[test]
fn the_output_of_a_failed_step_can_be_read() {
    let mut t = Scenario::with_room();
    let mut undo = StepSpec { join: JoinRule::AllDone, ..job("undo", &["charge"]) };
    *env(&mut undo, "CODE") = "${{ steps.charge.output.code }}".into();
    let run = t.run(&WorkflowSpec::new("w", vec![job("charge", &[]), undo.clone()]));
    let outcome = Outcome { output: Some(json!({"code": 7}).to_string().into()), ..Outcome::default() };
    let charge = t.job_of(run, "charge");
    t.end_with(charge, Report::Finished { how: ExecutionEnd::Failed, outcome, usage: Usage::default() });
    assert_eq!(t.step(run, "charge"), StepStatus::Failed);
    assert_eq!(t.env_of(t.job_of(run, "undo"), "CODE"), "7");

    let run = t.run(&WorkflowSpec::new("silent", vec![job("charge", &[]), undo]));
    t.fail_step(run, "charge");
    insta::assert_snapshot!(t.message(run, "undo"), @"run.process.env.CODE: `steps.charge.output.code`: step `charge` has no output to read: it failed");
}

/// C2. Declared outputs are checked for each step: for tasks, elements of a list, and events.
#[test]
fn step_with_an_invalid_output_fails() {
    let mut t = Scenario::with_room();
    let promise = |mut step: StepSpec| {
        step.outputs.insert("rows".into(), model::workflow::ParameterType::Integer);
        step
    };
    let event = model::workflow::EventWait { name: "paid".into(), on_timeout: Default::default() };
    let paid = act("paid", &[], Action::Wait(model::workflow::Wait::Event(event)));
    let list = StepSpec { for_each: Some(ForEach::new(ElementSource::Shards(1))), ..job("list", &[]) };
    let steps = vec![promise(job("one", &[])), promise(job("none", &[])), promise(list), promise(paid)];
    let mut good = promise(job("good", &[]));
    good.needs.clear();
    let run = t.run(&WorkflowSpec::new("w", [steps, vec![good]].concat()));
    t.give(t.job_of(run, "one"), &json!({"rows": "7", "other": 1}));
    t.succeed_step(run, "none");
    let element = t.job_of_element(run, "list", 0).unwrap();
    t.give(element, &json!({"z": 1}));
    t.ask_for(WorkflowRequest::Event { run, event: "paid".into(), payload: "{}".into() }).unwrap();
    t.give(t.job_of(run, "good"), &json!({"rows": 7}));
    insta::assert_snapshot!(t.steps(run), @"one failed (bad_output), none failed (bad_output), list failed (elements_failed), paid failed (bad_output), good succeeded (job_succeeded)");
    insta::assert_snapshot!(t.message(run, "one"), @r#"field `rows` of the output is "7": expected `integer`"#);
    insta::assert_snapshot!(t.message(run, "none"), @"the step produced no output, but declares `rows`");
    insta::assert_snapshot!(t.message(run, "paid"), @"the output has no field `rows`, which the step declares");
    assert_eq!(t.status_of_run(run), RunStatus::Failed);
}
