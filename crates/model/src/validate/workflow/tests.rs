//! Valid and invalid workflows, with the messages of the validation.
//!
//! `told` returns all problems of a workflow as text, one a line with the path of its field, or `fine`; most
//! tests compare it with a snapshot. A workflow with several mistakes is used where all of them must be
//! reported at once.
//!
//! In order: dependencies, added elements, expressions, sizes, outputs, calls, triggers, retry policies,
//! references in fields that are not rendered. Problems refuse a workflow; warnings, which `warned` returns,
//! do not. References in program code have tests of their own, in `code::tests`.

use serde_json::json;

use super::*;
use crate::spec::{Concurrency, Constraint, InputFile, JobSpec, Operator, OutputFile, ProcessRun};
use crate::workflow::{Action, Wait};
use crate::workflow::{
    Approval, Call, Definition, ElementSource, ForEach, JoinRule, Parameter, ParameterType, RunFailure,
    StepSpec,
};

fn step(name: &str, needs: &[&str]) -> StepSpec {
    StepSpec::job(name, JobSpec::command(["true"])).needs(needs.iter().copied())
}

fn told(spec: &WorkflowSpec) -> String {
    match workflow(spec, Timestamp::from_millis(0)) {
        Ok(()) => "fine".into(),
        Err(invalid) => invalid.problems.iter().map(|p| format!("{}: {}\n", p.path, p.message)).collect(),
    }
}

fn process(step: &mut StepSpec) -> &mut ProcessRun {
    let Action::Job(job) = &mut step.action else { panic!("a job is expected") };
    job.run.as_process_mut().unwrap()
}

/// C1.
#[test]
fn a_diamond_is_valid() {
    let steps = vec![step("a", &[]), step("b", &["a"]), step("c", &["a"]), step("d", &["b", "c"])];
    assert_eq!(told(&WorkflowSpec::new("diamond", steps)), "fine");
}

/// C1. Every dependency cycle is rejected, and the message names its steps.
#[test]
fn every_dependency_cycle_is_reported_with_its_steps() {
    let steps = vec![
        step("a", &["c"]),
        step("b", &["a"]),
        step("c", &["b"]),
        step("behind", &["c"]),
        step("x", &["y"]),
        step("y", &["x"]),
        step("self", &["self"]),
    ];
    insta::assert_snapshot!(told(&WorkflowSpec::new("loops", steps)), @"
    steps[6].needs[0]: `self` depends on itself
    steps[0].needs: is part of a dependency cycle: `a` depends on `c` depends on `b` depends on `a`
    steps[4].needs: is part of a dependency cycle: `x` depends on `y` depends on `x`
    ");
}

fn added_by(name: &str, needs: &[&str], adders: &[&str]) -> StepSpec {
    let over = ElementSource::AddedBy(adders.iter().map(|&adder| adder.to_owned()).collect());
    StepSpec { for_each: Some(ForEach::new(over)), ..step(name, needs) }
}

/// C4. A step ends after the steps that add elements to it, so these cannot depend on it.
#[test]
fn a_step_that_adds_elements_cannot_depend_on_their_step() {
    let steps = vec![step("split", &["total"]), added_by("work", &[], &["split"]), step("total", &["work"])];
    insta::assert_snapshot!(told(&WorkflowSpec::new("loop", steps)), @"steps[0].needs: is part of a dependency cycle: `split` depends on `total` depends on `work` receives elements from `split`");
}

/// C4. Only steps with tasks can add elements, and each is listed once.
#[test]
fn only_steps_with_tasks_can_add_elements() {
    let mut spec = WorkflowSpec::new("crawl", vec![step("split", &[])]);
    spec.steps.push(StepSpec::new("ask", Action::Approval(Approval::default())));
    spec.steps.push(added_by("work", &[], &["splt", "split", "split", "ask", "work", "clean"]));
    spec.steps.push(added_by("nobody", &[], &[]));
    spec.finally = vec![step("clean", &[])];
    insta::assert_snapshot!(told(&spec), @"
    steps[2].for_each.over.added_by[0]: there is no step `splt`: did you mean `split`?
    steps[2].for_each.over.added_by[2]: `split` is listed twice
    steps[2].for_each.over.added_by[3]: `ask` has no tasks that can add elements: expected a step with a job
    steps[2].for_each.over.added_by[4]: `work` is the step itself: its own tasks can always add elements
    steps[2].for_each.over.added_by[5]: `clean` is in `finally`: expected a step of the same section
    steps[3].for_each.over.added_by: must contain at least one step whose tasks add elements
    ");
}

/// C4. Steps that add elements may still run when the step starts, but have ended when the step ends.
#[test]
fn downstream_steps_can_refer_to_steps_that_add_elements() {
    let mut work = added_by("work", &[], &["split"]);
    process(&mut work).command.push("${{ steps.split.output }} ${{ item }}".into());
    let mut total = step("total", &["work"]);
    process(&mut total).command.push("${{ steps.split.output }} ${{ steps.work.output }}".into());
    let spec = WorkflowSpec::new("crawl", vec![step("split", &[]), work, total]);
    insta::assert_snapshot!(told(&spec), @"steps[1].job.run.process.command[1]: `steps.split.output`: step `split` does not run before this step: add it, or a step that depends on it, to `needs` at column 2");
}

/// C1, C2. All errors are reported at once, each with its path.
#[test]
fn all_problems_of_a_workflow_are_reported_with_their_paths() {
    let mut spec =
        WorkflowSpec::new("etl", vec![step("extract", &[]), step("load", &["extrct", "extract", "extract"])]);
    spec.steps.push(step("extract", &[]));
    spec.steps.push(StepSpec { join: JoinRule::OneFailed, ..step("alone", &[]) });
    spec.steps.push(StepSpec {
        when: Some("params.days > 'x' && steps.load.status".into()),
        ..step("when", &["load"])
    });
    spec.steps.push(StepSpec { when: Some("steps.when.output.rows > 0".into()), ..step("early", &[]) });
    let mut shell = step("shell", &["load"]);
    process(&mut shell).command =
        vec!["/bin/bash".into(), "-ec".into(), "echo ${{ steps.load.output }}".into()];
    spec.steps.push(shell);
    let mut script = step("script", &["load"]);
    process(&mut script).command.clear();
    process(&mut script).script = Some("echo ${{ params.days }}".into());
    process(&mut script).env.insert("DAYS".into(), "${{ params.dyas }}".into());
    spec.steps.push(script);
    let each =
        ForEach { max_parallel: Some(0), min_succeeded: Some(9), ..ForEach::new(ElementSource::Shards(4)) };
    spec.steps.push(StepSpec {
        for_each: Some(each),
        ..StepSpec::new("ask", Action::Approval(Approval::default()))
    });
    spec.steps.push(StepSpec::new("nap", Action::Wait(Wait::Until("tomorrow".into()))));
    spec.finally.push(step("clean", &["load"]));
    spec.parameters.insert("days".into(), Parameter::new(ParameterType::Integer, Some(json!("three"))));
    spec.parameters.insert("in-flight".into(), Parameter::new(ParameterType::Boolean, None));
    spec.outputs.insert("rows".into(), json!("${{ steps.clean.output }}"));
    spec.max_parallel_steps = Some(0);
    insta::assert_snapshot!(told(&spec));
}

#[test]
fn expressions_can_refer_to_upstream_steps_and_their_element() {
    let mut spec = WorkflowSpec::new("map", vec![step("list", &[])]);
    let mut each = step("each", &["list"]);
    each.for_each = Some(ForEach::new(ElementSource::List("steps.list.output.files".into())));
    process(&mut each).command =
        vec!["load".into(), "${{ item.path }}".into(), "${{ index + 1 }}/${{ total }}".into()];
    spec.steps.push(each);
    let mut reduce = step("reduce", &["each"]);
    reduce.when = Some("steps.each.succeeded > 0 && steps.list.status == 'succeeded'".into());
    process(&mut reduce).stdin = Some("${{ steps.each.output }} ${{ run.id }}".into());
    spec.steps.push(reduce);
    let mut hook = step("tell", &[]);
    process(&mut hook).env.insert("STATUS".into(), "${{ run.status }}: ${{ steps.reduce.message }}".into());
    spec.on_failure.push(hook);
    spec.outputs.insert("rows".into(), json!({"count": "${{ steps.reduce.output.rows }}"}));
    assert_eq!(told(&spec), "fine");
}

/// C1. A workflow of the maximum size is valid; one step more is an error.
#[test]
fn sizes_are_bounded() {
    let chain = |count: usize| {
        let steps = (0..count).map(|i| {
            if i == 0 { step("s0", &[]) } else { step(&format!("s{i}"), &[&format!("s{}", i - 1)]) }
        });
        WorkflowSpec::new("chain", steps.collect())
    };
    assert_eq!(told(&chain(1_000)), "fine");
    insta::assert_snapshot!(told(&chain(limits::STEPS_MAX + 1)), @"steps: has 10001 entries: expected at most 10000");
}

#[test]
fn likely_mistakes_cause_warnings() {
    let mut spec = WorkflowSpec::new("w", vec![step("a", &[])]);
    spec.parameters.insert("unused".into(), Parameter::new(ParameterType::String, None));
    let event = crate::workflow::EventWait { name: "paid".into(), on_timeout: Default::default() };
    spec.steps.push(StepSpec::new("b", Action::Wait(Wait::Event(event))));
    let warnings: String =
        workflow_warnings(&spec).iter().map(|p| format!("{}: {}\n", p.path, p.message)).collect();
    insta::assert_snapshot!(warnings, @"
    parameters.unused: is not used by any step or output
    steps[1].timeout: waits for event `paid` without a timeout, and may wait forever
    ");
}

fn promising(step: StepSpec, outputs: &[(&str, ParameterType)]) -> StepSpec {
    let outputs = outputs.iter().map(|&(name, kind)| (name.to_owned(), kind)).collect();
    StepSpec { outputs, ..step }
}

/// C3. With declared outputs, a wrong name or type is found before the run.
#[test]
fn expressions_can_refer_only_to_declared_outputs() {
    let extract = promising(
        step("extract", &[]),
        &[("rows", ParameterType::Integer), ("files", ParameterType::Array), ("day", ParameterType::String)],
    );
    let mut load = step("load", &["extract"]);
    process(&mut load).command = vec!["load".into(), "${{ steps.extract.output.row }}".into()];
    load.when = Some("steps.extract.output.day > 3".into());
    load.for_each = Some(ForEach::new(ElementSource::List("steps.extract.output.rows".into())));
    let mut sum = step("sum", &["load"]);
    sum.when = Some("steps.load.output.all(gave, gave.count > 0)".into());
    let wait = promising(
        StepSpec::new("wait", Action::Wait(Wait::For(Duration::from_secs(1)))),
        &[("a b", ParameterType::String)],
    );
    let load = promising(load, &[("number", ParameterType::Integer)]);
    let spec = WorkflowSpec::new("w", vec![extract, load, sum, wait]);
    insta::assert_snapshot!(told(&spec), @"
    steps[1].when: cannot compare a string with a number: expected two numbers or two strings at column 26
    steps[1].for_each.over.list: `steps.extract.output.rows` is a number: expected a list
    steps[1].job.run.process.command[1]: `steps.extract.output.row`: there is no `row`: expected one of `day`, `files`, `rows` at column 2
    steps[2].when: there is no `count`: expected one of `number` at column 29
    steps[3].outputs.a b: `a b` is not a valid identifier for expressions: expected [A-Za-z_][A-Za-z0-9_]*, at most 63 characters
    steps[3].outputs: are allowed only for jobs, workflows and events: the outputs of this step are fixed
    ");
}

/// C1. A declared output that no expression uses is probably a mistake.
#[test]
fn unused_outputs_cause_a_warning() {
    let outputs = [("file", ParameterType::String), ("rows", ParameterType::Integer)];
    let mut load = step("load", &["extract", "count", "list"]);
    process(&mut load).command = vec!["load".into(), "${{ steps.extract.output.file }}".into()];
    process(&mut load).stdin = Some("${{ steps.count.output }}".into());
    load.when = Some("steps.list.output.exists(one, one.rows > 0)".into());
    let over = ForEach::new(ElementSource::Shards(2));
    let steps = vec![
        promising(step("extract", &[]), &outputs),
        promising(step("count", &[]), &outputs),
        StepSpec { for_each: Some(over), ..promising(step("list", &[]), &outputs) },
        promising(step("last", &[]), &outputs),
        load,
    ];
    let mut spec = WorkflowSpec::new("w", steps);
    spec.outputs.insert("rows".into(), json!("${{ steps.last.output.rows }}"));
    assert_eq!(told(&spec), "fine");
    let warnings: String =
        workflow_warnings(&spec).iter().map(|p| format!("{}: {}\n", p.path, p.message)).collect();
    insta::assert_snapshot!(warnings, @"
    steps[0].outputs.rows: is not used by any step or output
    steps[3].outputs.file: is not used by any step or output
    ");
}

/// C2. Calls are checked against the called workflow, and call cycles are rejected.
#[test]
fn calls_are_checked_together() {
    let call = |name: &str, workflow: &str, parameters: Value| {
        let parameters = serde_json::from_value(parameters).unwrap();
        StepSpec::new(name, Action::Workflow(Call { name: workflow.into(), parameters }))
    };
    let mut inner = WorkflowSpec::new("inner", vec![call("back", "outer", json!({}))]);
    inner.parameters.insert("day".into(), Parameter::new(ParameterType::Integer, None));
    let outer = WorkflowSpec::new(
        "outer",
        vec![
            call("a", "inner", json!({"day": "x", "extra": 1})),
            call("b", "inner", json!({"day": "${{ run.number }}"})),
            call("c", "nobody", json!({})),
            call("d", "inner", json!({})),
            promising(call("e", "inner", json!({"day": 1})), &[("sum", ParameterType::Integer)]),
        ],
    );
    let mut together = Definition::of(outer);
    together.calls.insert("inner".into(), std::sync::Arc::new(inner));
    let problems = definition(&together).unwrap_err().problems;
    let told: String = problems.iter().map(|p| format!("{}: {}\n", p.path, p.message)).collect();
    insta::assert_snapshot!(told);
}

fn triggered(text: &str) -> String {
    let mut spec = WorkflowSpec::new("w", vec![StepSpec::job("a", JobSpec::command(["true"]))]);
    spec.parameters.insert("n".into(), Parameter::new(ParameterType::Integer, Some(json!(1))));
    spec.triggers = serde_json::from_str(text).unwrap();
    match workflow(&spec, Timestamp::from_millis(0)) {
        Ok(()) => workflow_warnings(&spec).iter().map(|p| format!("{}: {}\n", p.path, p.message)).collect(),
        Err(invalid) => invalid.problems.iter().map(|p| format!("{}: {}\n", p.path, p.message)).collect(),
    }
}

/// C1. The sources and parameters of a trigger are checked at submission.
#[test]
fn triggers_are_checked_when_a_workflow_is_submitted() {
    let right = r#"[{"workflow": "w", "on": "failure", "parameters": {"n": "${{ trigger.output.rows }}"}},
        {"all": [{"job": "a"}, {"job": "b"}], "parameters": {"n": "${{ size(trigger.all) }}"}}]"#;
    let warned = triggered(right);
    assert!(warned.contains("triggers[0]: triggers the workflow after its own runs"), "{warned}");
    let wrong = r#"[{"workflow": "w", "on": "any"}, {"job": "a b", "within": "0s"}, {"job": "x"}, {"job": "x"},
        {"all": [{"job": "a"}, {"job": "a", "on": "any"}], "window": "0s"}, {"all": [{"workflow": "w"}]},
        {"job": "y", "parameters": {"n": "text", "m": 1}},
        {"job": "z", "parameters": {"n": "${{ trigger.all }} ${{ trigger.why }} ${{ params.n }}"}}]"#;
    let told = triggered(wrong);
    for expected in [
        "triggers[0].workflow: is the workflow itself",
        "triggers[1].job: `a b` is not a valid name",
        "triggers[1].within: must be greater than 0",
        "triggers[3]: has the same source as triggers[2]",
        "triggers[4].all[1]: job `a` is listed twice",
        "triggers[4].window: must be greater than 0",
        "triggers[5].all: has 1 entries",
        "triggers[6].parameters.m: the workflow has no parameter with this name",
        "triggers[6].parameters.n: ",
        "triggers[7].parameters.n: ",
    ] {
        assert!(told.contains(expected), "{expected} is missing:\n{told}");
    }
}

/// C2. A retry policy lists existing steps of `steps`, each once.
#[test]
fn a_retry_policy_is_checked_field_by_field() {
    let mut spec = WorkflowSpec::new("w", vec![step("charge", &[]), step("ship", &["charge"])]);
    spec.finally = vec![step("clean", &[])];
    spec.retry.max_retries = 5_000;
    spec.retry.backoff.factor = 0.5;
    spec.retry.final_steps = ["chrge", "charge", "charge", "clean"].map(str::to_owned).to_vec();
    spec.retry.final_causes = vec![RunFailure::TimedOut, RunFailure::TimedOut];
    insta::assert_snapshot!(told(&spec), @"
    retry.max_retries: `5000` is too large: expected at most 1000
    retry.backoff.factor: `0.5` is out of range: expected 1 to 100
    retry.final_steps[0]: there is no step `chrge`: did you mean `charge`?
    retry.final_steps[2]: `charge` is listed twice
    retry.final_steps[3]: `clean` is in `finally`: expected a step of `steps`
    retry.final_causes[1]: `timed_out` is listed twice
    ");
}

/// C2. Retries of a job and of its run multiply; large products cause a warning.
#[test]
fn multiplied_retries_cause_a_warning() {
    let mut spec = WorkflowSpec::new("w", vec![step("a", &[]), step("b", &[])]);
    spec.retry.max_retries = 9;
    let Action::Job(job) = &mut spec.steps[1].action else { panic!("a job is expected") };
    job.retry.max_retries = 2;
    let warnings: String =
        workflow_warnings(&spec).iter().map(|p| format!("{}: {}\n", p.path, p.message)).collect();
    insta::assert_snapshot!(warnings, @"steps[1].job.retry.max_retries: allows 30 executions of a failing task: 3 in each of 10 attempts of the run");
}

/// C2. A reference that would not be replaced is an error with its path.
#[test]
fn a_reference_in_an_unrendered_field_is_rejected() {
    let day = || "${{ params.day }}".to_owned();
    let mut load = step("load", &[]);
    let Action::Job(job) = &mut load.action else { panic!("a job is expected") };
    job.labels.insert("day".into(), day());
    job.concurrency = Some(Concurrency { key: "load-${{ params.day }}".into(), limit: 1 });
    job.resources.custom.insert(day(), 1);
    process(&mut load).interpreter = vec!["python3".into(), day()];
    process(&mut load).script = Some("load".into());
    process(&mut load).command.clear();
    let over = ForEach::new(ElementSource::Items(vec![json!("a"), json!({"day": day()})]));
    let on = Constraint { label: "zone".into(), operator: Operator::In, values: vec![day()] };
    let mut spec = WorkflowSpec::new(
        "w",
        vec![
            load,
            StepSpec { for_each: Some(over), ..step("each", &[]) },
            StepSpec { for_each: Some(ForEach::new(ElementSource::Workers(vec![on]))), ..step("all", &[]) },
        ],
    );
    spec.owner = Some(day());
    spec.labels.insert("day".into(), day());
    spec.parameters.insert("day".into(), Parameter::new(ParameterType::String, None));
    insta::assert_snapshot!(told(&spec), @"
    owner: has a reference, but references are not replaced in this field: use the value itself
    labels.day: has a reference, but references are not replaced in this field: use the value itself
    steps[0].job.resources.custom.${{ params.day }}: `${{ params.day }}` is not a valid name: expected 1 to 63 letters, digits, `-`, `_` or `.`, starting with a letter or digit
    steps[0].job.run.process.interpreter[1]: has a reference, but references are not replaced in this field: use the value itself
    steps[1].for_each.over.items[1].day: has a reference, but references are not replaced in `items`: use `list` with an expression that returns a list
    steps[2].for_each.over.workers[0].values[0]: has a reference, but references are not replaced in this field: use the value itself
    ");
}

/// C2. The syntax of other systems is valid text, but causes a warning.
#[test]
fn syntax_of_other_systems_causes_a_warning() {
    let mut a = step("a", &[]);
    process(&mut a).command.extend(
        [
            "{{ params.day }}",
            "${params.day}",
            "{{inputs.parameters.x}}",
            "{{.Names}}",
            "${HOME}",
            "${{ params.day }}",
        ]
        .map(str::to_owned),
    );
    let b = StepSpec { when: Some("steps.a.status == 'success'".into()), ..step("b", &["a"]) };
    let c = StepSpec { when: Some("steps['a'].status != \"failed\"".into()), ..step("c", &["a"]) };
    let mut spec = WorkflowSpec::new("w", vec![a, b, c]);
    spec.parameters.insert("day".into(), Parameter::new(ParameterType::String, None));
    insta::assert_snapshot!(warned(&spec), @"
    steps[0].job.run.process.command[1]: has `{{ params.day }}`, which is kept as text: the syntax of a reference is `${{ … }}`
    steps[0].job.run.process.command[2]: has `${params.day}`, which is kept as text: the syntax of a reference is `${{ params.day }}`
    steps[0].job.run.process.command[3]: has `{{ inputs.parameters.x }}`, which is kept as text: the syntax of a reference is `${{ … }}`
    steps[1].when: compares `steps.a.status` with `success`, which is never its value: expected one of pending, running, waiting, succeeded, failed, upstream_failed, skipped, cancelled
    ");
}

fn warned(spec: &WorkflowSpec) -> String {
    workflow_warnings(spec).iter().map(|p| format!("{}: {}\n", p.path, p.message)).collect()
}

/// C2. A step that reads the artifact of a step on which it does not depend may read the version of another run.
#[test]
fn reading_an_artifact_before_it_is_stored_causes_a_warning() {
    let files = |mut step: StepSpec, reads: &[&str], stores: &[&str]| {
        let Action::Job(job) = &mut step.action else { panic!("a job is expected") };
        let input =
            |name: &&str| InputFile { artifact: (*name).into(), path: "in".into(), executable: false };
        let output =
            |name: &&str| OutputFile { artifact: (*name).into(), path: "out".into(), optional: false };
        (job.inputs, job.outputs) = (reads.iter().map(input).collect(), stores.iter().map(output).collect());
        step
    };
    let spec = WorkflowSpec::new(
        "w",
        vec![
            files(step("old", &[]), &["state"], &[]),
            files(step("make", &["old"]), &[], &["data", "state"]),
            files(step("use", &["make"]), &["data"], &[]),
            files(step("loose", &[]), &["data"], &[]),
        ],
    );
    insta::assert_snapshot!(warned(&spec), @"steps[3].job.inputs[0].artifact: reads the newest version of `data` from any run: step `make` stores it, but this step does not depend on `make`; add `make` to `needs` to read the version of this run");
}

/// C2. References in a default are not replaced, so they are errors.
#[test]
fn a_reference_in_the_default_of_a_parameter_is_refused() {
    let mut spec = WorkflowSpec::new("defaults", vec![step("a", &[])]);
    let parameter: Parameter =
        serde_json::from_value(json!({"type": "object", "default": {"days": ["${{ run.id }}", "today"]}}))
            .unwrap();
    spec.parameters.insert("period".into(), parameter);
    insta::assert_snapshot!(told(&spec), @"parameters.period.default.days[0]: has a reference, but references are not replaced in this field: use the value itself");
}
