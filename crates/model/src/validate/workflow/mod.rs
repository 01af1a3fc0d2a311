//! Validation of workflows.
//!
//! [`graph`] checks the dependencies, and [`steps`] checks each step. [`code`] finds the texts that are program code.
//! [`names`] has the names that expressions can refer to, and [`triggers`] checks the triggers. The check of a
//! workflow with 10,000 steps takes well under 200 ms: sets of earlier steps are bit sets, and each dependency is
//! visited a fixed number of times.

mod code;
mod definition;
mod graph;
mod names;
mod slips;
mod steps;
mod triggers;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

pub use definition::definition;
use names::{ExpressionLocation, StepNames, WorkflowNames};
pub(super) use steps::{NOT_REPLACED, texts_with_references};

use super::{Check, Invalid, Problem, too_many};
use crate::expression::{Expression, Names, Type};
use crate::limits;
use crate::time::{Duration, Timestamp};
use crate::workflow::template::{Template, has_reference};
use crate::workflow::{Action, RunRetryPolicy, Section, WorkflowSpec, schema_problems};

/// Checks a workflow spec beyond its types, including its jobs. Whether the called workflows exist is checked by
/// [`definition`].
///
/// # Errors
/// Returns [`Invalid`] with all problems, in the order of the fields.
pub fn workflow(spec: &WorkflowSpec, now: Timestamp) -> Result<(), Invalid> {
    let mut check = Check::default();
    check.own_name(&spec.name);
    check.name("namespace", &spec.namespace);
    check.owner(spec.owner.as_deref());
    check.labels("labels", &spec.labels);
    let owner = spec.owner.iter().map(|owner| ("owner".to_owned(), owner));
    let labels = spec.labels.iter().map(|(key, value)| (format!("labels.{}", super::shown(key)), value));
    for (at, _) in owner.chain(labels).filter(|(_, text)| has_reference(text)) {
        check.fail(at, NOT_REPLACED);
    }
    check.note("description", spec.description.as_deref());
    parameters(&mut check, spec);
    triggers::triggers(&mut check, spec);
    let count = spec.all_steps().count();
    check.ensure(!spec.steps.is_empty(), "steps", || "must contain at least one step".into());
    if count > limits::STEPS_MAX {
        check.fail("steps", too_many(count, limits::STEPS_MAX));
        return check.finish();
    }
    let graph = graph::Graph::of(&mut check, spec);
    let names = WorkflowNames::new(spec, &graph);
    expressions(&mut check, spec, &names, now);
    retry(&mut check, &spec.retry, &graph);
    limits_of(&mut check, spec);
    check.finish()
}

/// Checks all fields with expressions.
fn expressions(check: &mut Check, spec: &WorkflowSpec, names: &WorkflowNames<'_>, now: Timestamp) {
    for (place, (section, step)) in spec.all_steps().enumerate() {
        steps::step(check, spec, names, place, section, step, now);
    }
    outputs(check, spec, names);
}

/// Returns warnings: parts of a spec that are valid but probably not what the author intended.
pub fn workflow_warnings(spec: &WorkflowSpec) -> Vec<Problem> {
    let text = serde_json::to_string(spec).unwrap_or_default();
    let mut check = Check::default();
    for name in spec.parameters.keys() {
        let used = [format!("params.{name}"), format!("params['{name}']"), format!("params[\\\"{name}\\\"]")];
        check.ensure(used.iter().any(|used| text.contains(used)), &format!("parameters.{name}"), || {
            "is not used by any step or output".into()
        });
    }
    for (place, name) in names::endless_waits(spec) {
        check.fail(place, format!("waits for event `{name}` without a timeout, and may wait forever"));
    }
    unused_outputs(&mut check, spec);
    slips::likely_mistakes(&mut check, spec);
    foreign_files(&mut check, spec);
    check.problems.extend(triggers::of_itself(spec));
    many_attempts(&mut check, spec);
    check.problems
}

fn parameters(check: &mut Check, spec: &WorkflowSpec) {
    check.ensure(spec.parameters.len() <= limits::PARAMETERS_MAX, "parameters", || {
        too_many(spec.parameters.len(), limits::PARAMETERS_MAX)
    });
    for (name, parameter) in &spec.parameters {
        let at = format!("parameters.{}", super::shown(name));
        identifier(check, &at, name);
        for (path, problem) in parameter.schema.iter().flat_map(schema_problems) {
            check.fail(format!("{at}.schema{path}"), problem);
        }
        for problem in parameter.default.iter().flat_map(|value| parameter.problems(value)) {
            check.fail(format!("{at}.default"), problem);
        }
        let default = parameter.default.iter();
        for path in default.flat_map(|value| texts_with_references(value, &format!("{at}.default"))) {
            check.fail(path, NOT_REPLACED);
        }
    }
}

/// Checks a name that expressions use.
fn identifier(check: &mut Check, at: &str, name: &str) {
    let ok = name.len() <= limits::NAME_LEN_MAX
        && name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    check.ensure(ok, at, || {
        format!(
            "`{}` is not a valid identifier for expressions: expected [A-Za-z_][A-Za-z0-9_]*, at most {} characters",
            super::shown(name),
            limits::NAME_LEN_MAX
        )
    });
}

fn outputs(check: &mut Check, spec: &WorkflowSpec, names: &WorkflowNames<'_>) {
    check.ensure(spec.outputs.len() <= limits::PARAMETERS_MAX, "outputs", || {
        too_many(spec.outputs.len(), limits::PARAMETERS_MAX)
    });
    let scope = names.of(ExpressionLocation::Outputs);
    for (name, value) in &spec.outputs {
        let at = format!("outputs.{}", super::shown(name));
        identifier(check, &at, name);
        templates_in(check, &at, value, &scope);
    }
}

fn limits_of(check: &mut Check, spec: &WorkflowSpec) {
    for (at, limit) in
        [("max_parallel_steps", spec.max_parallel_steps), ("max_parallel_runs", spec.max_parallel_runs)]
    {
        if let Some(limit) = limit.filter(|limit| !(1..=limits::CONCURRENCY_MAX).contains(limit)) {
            check.fail(at, format!("`{limit}` is out of range: expected 1 to {}", limits::CONCURRENCY_MAX));
        }
    }
    timeout(check, "timeout", spec.timeout);
    check.ensure(spec.priority <= limits::PRIORITY_MAX, "priority", || {
        format!("`{}` is out of range: expected 0 to {}", spec.priority, limits::PRIORITY_MAX)
    });
    check.name("queue", &spec.queue);
    if let Some(retention) = spec.retention {
        check.at_most("retention", retention, limits::RETENTION_MAX);
    }
}

fn retry(check: &mut Check, policy: &RunRetryPolicy, graph: &graph::Graph<'_>) {
    check.ensure(policy.max_retries <= limits::RETRIES_MAX, "retry.max_retries", || {
        format!("`{}` is too large: expected at most {}", policy.max_retries, limits::RETRIES_MAX)
    });
    check.backoff("retry.backoff", &policy.backoff);
    let mut named = BTreeSet::new();
    for (i, name) in policy.final_steps.iter().enumerate() {
        let at = format!("retry.final_steps[{i}]");
        match graph.place(name).map(|place| graph.section(place)) {
            None => check.fail(&at, graph.no_step(name)),
            Some(Section::Steps) => {}
            Some(section) => {
                let (name, section) = (super::shown(name), section.as_str());
                check.fail(&at, format!("`{name}` is in `{section}`: expected a step of `steps`"));
            }
        }
        check.ensure(named.insert(name), &at, || format!("`{}` is listed twice", super::shown(name)));
    }
    let mut causes = BTreeSet::new();
    for (i, cause) in policy.final_causes.iter().enumerate() {
        check.ensure(causes.insert(cause), &format!("retry.final_causes[{i}]"), || {
            format!("`{}` is listed twice", cause.as_str())
        });
    }
}

/// Warns of declared outputs of steps that no expression uses.
fn unused_outputs(check: &mut Check, spec: &WorkflowSpec) {
    if spec.all_steps().all(|(_, step)| step.outputs.is_empty()) {
        return;
    }
    // Only the references in expressions matter here; the errors are reported elsewhere.
    let mut wrong = Check::default();
    let graph = graph::Graph::of(&mut wrong, spec);
    let names = WorkflowNames::new(spec, &graph);
    expressions(&mut wrong, spec, &names, Timestamp::default());
    for (place, section, name) in names.unused_outputs() {
        let at = format!("{}.outputs.{name}", path_of(spec, place, section));
        check.fail(at, "is not used by any step or output");
    }
}

/// Warns of a step that reads an artifact stored by another step on which it does not depend: the step may read the
/// version of another run.
fn foreign_files(check: &mut Check, spec: &WorkflowSpec) {
    let mut producers: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (place, (_, step)) in spec.all_steps().enumerate() {
        let Action::Job(job) = &step.action else { continue };
        for output in &job.outputs {
            producers.entry(&output.artifact).or_default().push(place);
        }
    }
    if producers.is_empty() {
        return;
    }
    let mut wrong = Check::default();
    let graph = graph::Graph::of(&mut wrong, spec);
    let names = WorkflowNames::new(spec, &graph);
    let all: Vec<_> = spec.all_steps().collect();
    for (place, (section, step)) in all.iter().enumerate() {
        let Action::Job(job) = &step.action else { continue };
        for (i, input) in job.inputs.iter().enumerate() {
            let stored_by = producers.get(input.artifact.as_str()).map_or(&[][..], Vec::as_slice);
            let before = |other: &usize| names.comes_before(*other, place);
            // A step that stores the artifact later writes it for the next run.
            let after = |other: &usize| *other == place || names.comes_before(place, *other);
            let beside: Vec<_> = stored_by.iter().filter(|other| !after(other)).collect();
            if let Some(&&other) = beside.first().filter(|_| !stored_by.iter().any(before)) {
                let at = format!("{}.job.inputs[{i}].artifact", path_of(spec, place, *section));
                let (artifact, name) = (super::shown(&input.artifact), super::shown(&all[other].1.name));
                check.fail(at, format!("reads the newest version of `{artifact}` from any run: step `{name}` stores it, but this step does not depend on `{name}`; add `{name}` to `needs` to read the version of this run"));
            }
        }
    }
}

/// Warns of retries of a run and its jobs that multiply to many executions.
fn many_attempts(check: &mut Check, spec: &WorkflowSpec) {
    const MANY: u64 = 20;
    for (i, step) in spec.steps.iter().enumerate() {
        let Action::Job(job) = &step.action else { continue };
        let (of_run, of_job) = (1 + u64::from(spec.retry.max_retries), 1 + u64::from(job.retry.max_retries));
        if of_run > 1 && of_job > 1 && of_run * of_job > MANY {
            let most = of_run * of_job;
            check.fail(
                format!("steps[{i}].job.retry.max_retries"),
                format!("allows {most} executions of a failing task: {of_job} in each of {of_run} attempts of the run"),
            );
        }
    }
}

fn timeout(check: &mut Check, at: &str, timeout: Option<Duration>) {
    if let Some(timeout) = timeout {
        check.ensure(timeout > Duration::ZERO, at, || "must be greater than 0".into());
        check.at_most(at, timeout, limits::TIMEOUT_MAX);
    }
}

/// Checks an expression and its type.
fn expression(check: &mut Check, at: &str, text: &str, expected: &Type, scope: &StepNames<'_>) {
    match Expression::parse(text).and_then(|expression| expression.check(scope)) {
        Err(error) => check.fail(at, error.to_string()),
        Ok(found) if !found.is_compatible_with(expected) => {
            check.fail(at, format!("`{}` is {found}: expected {expected}", super::shown(text)));
        }
        Ok(_) => {}
    }
}

/// Checks the references in a text.
fn template(check: &mut Check, at: &str, text: &str, scope: &dyn Names) {
    if !has_reference(text) {
        return;
    }
    match Template::parse(text) {
        Err(error) => check.fail(at, error.to_string()),
        Ok(template) => references(check, at, &template, scope),
    }
}

fn references(check: &mut Check, at: &str, template: &Template, scope: &dyn Names) {
    for reference in template.references() {
        if let Err(error) = reference.check(scope) {
            check.fail(at, format!("`{}`: {error}", super::shown(reference.text().trim())));
        }
    }
}

/// Checks the references in all texts of a value.
pub(super) fn templates_in(check: &mut Check, at: &str, value: &Value, scope: &dyn Names) {
    match value {
        Value::String(text) => template(check, at, text, scope),
        Value::Array(list) => {
            for (i, value) in list.iter().enumerate() {
                templates_in(check, &format!("{at}[{i}]"), value, scope);
            }
        }
        Value::Object(map) => {
            for (key, value) in map {
                templates_in(check, &format!("{at}.{}", super::shown(key)), value, scope);
            }
        }
        _ => {}
    }
}

/// Returns the path of a step from its index among all steps.
fn path_of(spec: &WorkflowSpec, place: usize, section: Section) -> String {
    let before = match section {
        Section::Steps => 0,
        Section::OnFailure => spec.steps.len(),
        Section::Finally => spec.steps.len() + spec.on_failure.len(),
    };
    format!("{}[{}]", section.as_str(), place - before)
}

#[cfg(test)]
mod tests;
