//! Validation of one step: its fan-out, its action, and the references in its texts.
//!
//! The parent module calls [`step`] for each step. A job is checked twice: its spec with placeholders instead of
//! references, and its references against the names of the step. A reference is an error in program code, where its
//! value would run, and in fields in which references are not replaced.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;

use super::super::{Check, shown, too_long, too_many};
use super::code::{Text, references_in_programs};
use super::names::{ExpressionLocation, WorkflowNames};
use super::{expression, identifier, path_of, references, template, templates_in, timeout};
use crate::expression::Type;
use crate::limits;
use crate::spec::{JobSpec, Run};
use crate::time::{Duration, Timestamp};
use crate::workflow::template::has_reference;
use crate::workflow::{
    Action, Approval, Call, ElementSource, ForEach, JobTemplate, JoinRule, LatePolicy, Section, StepSpec,
    Wait, WorkflowSpec,
};

/// Message for a reference in a field in which references are not replaced.
pub(in crate::validate) const NOT_REPLACED: &str =
    "has a reference, but references are not replaced in this field: use the value itself";

pub(super) fn step(
    check: &mut Check,
    spec: &WorkflowSpec,
    names: &WorkflowNames<'_>,
    place: usize,
    section: Section,
    step: &StepSpec,
    now: Timestamp,
) {
    let at = path_of(spec, place, section);
    check.name(&format!("{at}.name"), &step.name);
    check.note(&format!("{at}.description"), step.description.as_deref());
    let needless = step.needs.is_empty() && !matches!(step.join, JoinRule::AllSuccess | JoinRule::Always);
    check.ensure(!needless, &format!("{at}.join"), || "has no effect: the step has no dependencies".into());
    if let Some(when) = &step.when {
        expression(
            check,
            &format!("{at}.when"),
            when,
            &Type::Bool,
            &names.of(ExpressionLocation::Step(place)),
        );
    }
    timeout(check, &format!("{at}.timeout"), step.timeout);
    check_declared_outputs(check, &format!("{at}.outputs"), step);
    if let Some(for_each) = &step.for_each {
        each(check, &format!("{at}.for_each"), names, place, step, for_each);
    }
    match &step.action {
        Action::Job(job) => self::job(check, &format!("{at}.job"), spec, names, place, job, now),
        Action::Workflow(call) => self::call(check, &format!("{at}.workflow"), names, place, call),
        Action::Approval(approval) => {
            self::approval(check, &format!("{at}.approval"), names, place, approval)
        }
        Action::Wait(wait) => self::wait(check, &format!("{at}.wait"), names, place, wait),
    }
}

fn check_declared_outputs(check: &mut Check, at: &str, step: &StepSpec) {
    let count = step.outputs.len();
    check.ensure(count <= limits::PARAMETERS_MAX, at, || too_many(count, limits::PARAMETERS_MAX));
    for name in step.outputs.keys() {
        identifier(check, &format!("{at}.{}", shown(name)), name);
    }
    let gives = match step.action {
        Action::Job(_) | Action::Workflow(_) | Action::Wait(Wait::Event(_)) => true,
        Action::Approval(_) | Action::Wait(Wait::For(_) | Wait::Until(_)) => step.outputs.is_empty(),
    };
    check.ensure(gives, at, || {
        "are allowed only for jobs, workflows and events: the outputs of this step are fixed".into()
    });
}

fn each(
    check: &mut Check,
    at: &str,
    names: &WorkflowNames<'_>,
    place: usize,
    step: &StepSpec,
    each: &ForEach,
) {
    check.ensure(matches!(step.action, Action::Job(_) | Action::Workflow(_)), at, || {
        "is allowed only for jobs and workflows".into()
    });
    check.ensure(each.max_parallel != Some(0), &format!("{at}.max_parallel"), || "must be at least 1".into());
    let mut known = None;
    match &each.over {
        ElementSource::Items(items) => {
            let at = format!("{at}.over.items");
            known = Some(items.len());
            check.ensure(items.len() <= limits::ITEMS_MAX, &at, || too_many(items.len(), limits::ITEMS_MAX));
            for (i, item) in items.iter().take(limits::ITEMS_MAX).enumerate() {
                let len = item.to_string().len();
                if len > limits::ITEM_BYTES_MAX {
                    check.fail(format!("{at}[{i}]"), too_long(len, limits::ITEM_BYTES_MAX));
                }
                for path in texts_with_references(item, &format!("{at}[{i}]")) {
                    check.fail(
                        path,
                        "has a reference, but references are not replaced in `items`: use `list` with an expression that returns a list",
                    );
                }
            }
        }
        ElementSource::List(text) => {
            let list = Type::List(Box::new(Type::Any));
            expression(
                check,
                &format!("{at}.over.list"),
                text,
                &list,
                &names.of(ExpressionLocation::Step(place)),
            );
        }
        ElementSource::Shards(count) => {
            let count = usize::try_from(*count).unwrap_or(usize::MAX);
            known = Some(count);
            check.ensure((1..=limits::ITEMS_MAX).contains(&count), &format!("{at}.over.shards"), || {
                format!("`{count}` is out of range: expected 1 to {}", limits::ITEMS_MAX)
            });
        }
        // The names of the steps are checked with the dependencies.
        ElementSource::AddedBy(_) => {}
        ElementSource::Workers(constraints) => {
            let at = format!("{at}.over.workers");
            check.ensure(matches!(step.action, Action::Job(_)), &at, || "is allowed only for jobs".into());
            check.ensure(constraints.len() <= limits::CONSTRAINTS_MAX, &at, || {
                too_many(constraints.len(), limits::CONSTRAINTS_MAX)
            });
            for (i, constraint) in constraints.iter().enumerate() {
                check.constraint(&format!("{at}[{i}]"), constraint);
                for (j, _) in constraint.values.iter().enumerate().filter(|(_, value)| has_reference(value)) {
                    check.fail(format!("{at}[{i}].values[{j}]"), NOT_REPLACED);
                }
            }
        }
    }
    if matches!(each.over, ElementSource::AddedBy(_)) {
        check.ensure(!each.adders().is_empty(), &format!("{at}.over.added_by"), || {
            "must contain at least one step whose tasks add elements".into()
        });
    }
    let late = each.late_workers == LatePolicy::default() || matches!(each.over, ElementSource::Workers(_));
    check.ensure(late, &format!("{at}.late_workers"), || "cannot be set without `over.workers`".into());
    let most = known.and_then(|known| u32::try_from(known).ok());
    check.ensure(each.min_succeeded != Some(0), &format!("{at}.min_succeeded"), || {
        "must be at least 1".into()
    });
    for (field, value) in [("min_succeeded", each.min_succeeded), ("max_failed", Some(each.max_failed))] {
        if let (Some(value), Some(most)) = (value, most) {
            check.ensure(value <= most, &format!("{at}.{field}"), || {
                format!("`{value}` must not be more than the number of elements ({most})")
            });
        }
    }
}

fn job(
    check: &mut Check,
    at: &str,
    spec: &WorkflowSpec,
    names: &WorkflowNames<'_>,
    place: usize,
    job: &JobSpec,
    now: Timestamp,
) {
    let scope = names.of(ExpressionLocation::Element(place));
    let template = match JobTemplate::parse(Arc::new(job.clone())) {
        Ok(template) => template,
        Err(problems) => {
            for (path, error) in problems {
                check.fail(format!("{at}.{path}"), error.to_string());
            }
            return;
        }
    };
    for (path, text) in template.templates() {
        references(check, &format!("{at}.{path}"), text, &scope);
    }
    let outline = if template.is_plain() { None } else { Some(template.with_placeholders()) };
    if let Err(invalid) = super::super::job(outline.as_ref().unwrap_or(job), now) {
        for problem in invalid.problems {
            check.fail(format!("{at}.{}", problem.path), problem.message);
        }
    }
    check.ensure(
        job.namespace == spec.namespace || job.namespace == crate::spec::DEFAULT,
        &format!("{at}.namespace"),
        || format!("must be the namespace of the workflow (`{}`)", spec.namespace),
    );
    check.ensure(job.run_at.is_none(), &format!("{at}.run_at"), || {
        "cannot be set in a workflow: use a `wait` step to wait for a time".into()
    });
    check.ensure(job.finish_by.is_none_or(|by| by.at.is_none()), &format!("{at}.finish_by.at"), || {
        "cannot be set in a workflow: use `after`, which counts from the start of the step".into()
    });
    check.ensure(job.after.is_empty(), &format!("{at}.after"), || {
        "cannot be set in a workflow: use `needs` of the step".into()
    });
    check.ensure(job.idempotency_key.is_none(), &format!("{at}.idempotency_key"), || {
        "cannot be set in a workflow: a run creates each of its jobs once".into()
    });
    no_programs(check, at, job);
    if !template.is_plain() || serde_json::to_string(job).is_ok_and(|text| has_reference(&text)) {
        no_other_references(check, at, job, &template);
    }
}

/// Checks that no reference is in program text, where its value would run as code.
fn no_programs(check: &mut Check, at: &str, job: &JobSpec) {
    let (script, words, stdin) = match &job.run {
        Run::Process(process) => (&process.script, process.command.clone(), process.stdin.as_deref()),
        Run::Container(container) => {
            (&container.script, [container.entrypoint.as_slice(), &container.command].concat(), None)
        }
        Run::Http(_) => return,
    };
    let entrypoint = if let Run::Container(container) = &job.run { container.entrypoint.len() } else { 0 };
    let at = format!("{at}.run.{}", job.run.runtime());
    let wrong = "has a reference in program text, so that the value would run as code";
    let instead = "put the value into `env`, or into an argument after the program text";
    check.ensure(!script.as_deref().is_some_and(has_reference), &format!("{at}.script"), || {
        format!("{wrong}: put the value into `env`")
    });
    for text in references_in_programs(&words, stdin) {
        match text {
            Text::Word(i) if i < entrypoint => {
                check.fail(format!("{at}.entrypoint[{i}]"), format!("{wrong}: {instead}"))
            }
            Text::Word(i) => {
                let i = i - entrypoint;
                check.fail(format!("{at}.command[{i}]"), format!("{wrong}: {instead}, or into `stdin`"))
            }
            Text::Stdin => check.fail(format!("{at}.stdin"), format!("{wrong}: {instead}")),
        }
    }
}

/// Checks that no reference is in a field in which references are not replaced.
fn no_other_references(check: &mut Check, at: &str, job: &JobSpec, template: &JobTemplate) {
    let Ok(value) = serde_json::to_value(job) else { return };
    let replaced: BTreeSet<String> = template.templates().map(|(path, _)| path).collect();
    let found = texts_with_references(&value, "");
    let is_program = |path: &str| path.starts_with("run.") && path.ends_with(".script");
    for path in found.into_iter().filter(|path| !replaced.contains(path) && !is_program(path)) {
        check.fail(format!("{at}.{path}"), NOT_REPLACED);
    }
}

/// Returns the paths of all texts with references in a value. Each path starts with `path`.
pub(in crate::validate) fn texts_with_references(value: &Value, path: &str) -> Vec<String> {
    let mut found = Vec::new();
    add_texts_with_references(value, path.to_owned(), &mut found);
    found
}

fn add_texts_with_references(value: &Value, path: String, found: &mut Vec<String>) {
    match value {
        Value::String(text) if has_reference(text) => found.push(path),
        Value::Array(list) => {
            for (i, value) in list.iter().enumerate() {
                add_texts_with_references(value, format!("{path}[{i}]"), found);
            }
        }
        Value::Object(map) => {
            for (key, value) in map {
                let dot = if path.is_empty() { "" } else { "." };
                add_texts_with_references(value, format!("{path}{dot}{key}"), found);
            }
        }
        _ => {}
    }
}

fn call(check: &mut Check, at: &str, names: &WorkflowNames<'_>, place: usize, call: &Call) {
    check.name(&format!("{at}.name"), &call.name);
    for (name, value) in &call.parameters {
        let at = format!("{at}.parameters.{}", shown(name));
        templates_in(check, &at, value, &names.of(ExpressionLocation::Element(place)));
    }
}

fn approval(check: &mut Check, at: &str, names: &WorkflowNames<'_>, place: usize, approval: &Approval) {
    check.ensure(approval.approvers.len() <= limits::APPROVERS_MAX, &format!("{at}.approvers"), || {
        too_many(approval.approvers.len(), limits::APPROVERS_MAX)
    });
    let mut seen = BTreeSet::new();
    for (i, name) in approval.approvers.iter().enumerate() {
        let at = format!("{at}.approvers[{i}]");
        check.ensure(!name.is_empty() && name.len() <= limits::OWNER_LEN_MAX, &at, || {
            format!("has {} bytes: expected 1 to {}", name.len(), limits::OWNER_LEN_MAX)
        });
        check.ensure(seen.insert(name), &at, || format!("`{}` is listed twice", shown(name)));
        template(check, &at, name, &names.of(ExpressionLocation::Step(place)));
    }
    if let Some(message) = &approval.message {
        let at = format!("{at}.message");
        check.ensure(message.len() <= limits::NOTE_LEN_MAX, &at, || {
            too_long(message.len(), limits::NOTE_LEN_MAX)
        });
        template(check, &at, message, &names.of(ExpressionLocation::Step(place)));
    }
}

fn wait(check: &mut Check, at: &str, names: &WorkflowNames<'_>, place: usize, wait: &Wait) {
    match wait {
        Wait::For(length) => {
            check.ensure(*length > Duration::ZERO, &format!("{at}.for"), || "must be greater than 0".into());
            check.at_most(&format!("{at}.for"), *length, limits::AHEAD_MAX);
        }
        Wait::Until(text) => {
            let at = format!("{at}.until");
            if has_reference(text) {
                return template(check, &at, text, &names.of(ExpressionLocation::Step(place)));
            }
            check.ensure(text.parse::<Timestamp>().is_ok(), &at, || {
                format!("`{}` is not a time: expected RFC 3339, such as 2026-11-21T08:00:00Z", shown(text))
            });
        }
        Wait::Event(event) => check.name(&format!("{at}.event.name"), &event.name),
    }
}
