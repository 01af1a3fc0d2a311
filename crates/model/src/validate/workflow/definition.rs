//! Validation of a workflow together with the workflows that it calls.

use super::super::{Check, Invalid, shown};
use super::path_of;
use crate::limits;
use crate::workflow::template::has_reference;
use crate::workflow::{Action, Call, Definition, StepSpec, WorkflowSpec};

/// Checks the calls between workflows: all called workflows exist, none calls itself directly or through others, and
/// each call has valid parameters.
///
/// # Errors
/// Returns [`Invalid`] with all problems. Paths are those of the workflow, or start with the name of the called
/// workflow that has the problem.
pub fn definition(definition: &Definition) -> Result<(), Invalid> {
    let mut check = Check::default();
    check.ensure(definition.calls.len() <= limits::CALLS_MAX, "steps", || {
        format!("call {} workflows: expected at most {}", definition.calls.len(), limits::CALLS_MAX)
    });
    let mut chain = vec![definition.workflow.name.as_str()];
    calls(&mut check, definition, &definition.workflow, "", &mut chain);
    for (name, spec) in &definition.calls {
        let mut chain = vec![name.as_str()];
        calls(&mut check, definition, spec, &format!("{name}: "), &mut chain);
    }
    check.problems.dedup();
    check.finish()
}

/// Returns the steps that call a workflow, with their paths.
fn called(spec: &WorkflowSpec) -> impl Iterator<Item = (String, &StepSpec, &Call)> {
    spec.all_steps().enumerate().filter_map(move |(place, (section, step))| match &step.action {
        Action::Workflow(call) => Some((path_of(spec, place, section), step, call)),
        _ => None,
    })
}

fn calls<'a>(
    check: &mut Check,
    definition: &'a Definition,
    spec: &'a WorkflowSpec,
    prefix: &str,
    chain: &mut Vec<&'a str>,
) {
    for (path, step, call) in called(spec) {
        let at = format!("{prefix}{path}.workflow");
        if chain.contains(&call.name.as_str()) {
            let told: Vec<_> = chain.iter().map(|name| format!("`{name}`")).collect();
            check.fail(
                format!("{at}.name"),
                format!("is part of a call cycle: {} calls `{}`", told.join(" calls "), call.name),
            );
            continue;
        }
        let Some(inner) = definition.calls.get(&call.name) else {
            check.fail(format!("{at}.name"), format!("workflow `{}` does not exist", shown(&call.name)));
            continue;
        };
        if chain.len() >= limits::CALL_DEPTH_MAX {
            check.fail(
                format!("{at}.name"),
                format!("exceeds the maximum call depth of {} workflows", limits::CALL_DEPTH_MAX),
            );
            continue;
        }
        if chain.len() == 1 {
            parameters(check, &at, call, inner);
            outputs(check, &format!("{prefix}{path}.outputs"), step, inner);
            chain.push(&call.name);
            descend(check, definition, inner, &at, chain);
            chain.pop();
        }
    }
}

/// Checks only cycles and depth: other problems of a called workflow are reported once, under its own name.
fn descend<'a>(
    check: &mut Check,
    definition: &'a Definition,
    spec: &'a WorkflowSpec,
    at: &str,
    chain: &mut Vec<&'a str>,
) {
    let mut names: Vec<&str> = called(spec).map(|(_, _, call)| call.name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    for name in names {
        if chain.contains(&name) {
            let told: Vec<_> = chain.iter().map(|name| format!("`{name}`")).collect();
            check.fail(
                format!("{at}.name"),
                format!("is part of a call cycle: {} calls `{name}`", told.join(" calls ")),
            );
        } else if chain.len() >= limits::CALL_DEPTH_MAX {
            let message = format!("exceeds the maximum call depth of {} workflows", limits::CALL_DEPTH_MAX);
            check.fail(format!("{at}.name"), message);
        } else if let Some((name, inner)) = definition.calls.get_key_value(name) {
            chain.push(name);
            descend(check, definition, inner, at, chain);
            chain.pop();
        }
    }
}

/// Checks that the called workflow has the outputs that the step declares.
fn outputs(check: &mut Check, at: &str, step: &StepSpec, inner: &WorkflowSpec) {
    for name in step.outputs.keys() {
        check.ensure(inner.outputs.contains_key(name), &format!("{at}.{}", shown(name)), || {
            format!("workflow `{}` has no output with this name", inner.name)
        });
    }
}

fn parameters(check: &mut Check, at: &str, call: &Call, inner: &WorkflowSpec) {
    for (name, value) in &call.parameters {
        let at = format!("{at}.parameters.{}", shown(name));
        let Some(parameter) = inner.parameters.get(name) else {
            check.fail(at, format!("workflow `{}` has no parameter with this name", call.name));
            continue;
        };
        if !has_reference(&value.to_string()) {
            for problem in parameter.problems(value) {
                check.fail(at.as_str(), problem);
            }
        }
    }
    for (name, parameter) in &inner.parameters {
        check.ensure(
            parameter.default.is_some() || call.parameters.contains_key(name),
            &format!("{at}.parameters.{name}"),
            || format!("is required: workflow `{}` has no default for it", call.name),
        );
    }
}
