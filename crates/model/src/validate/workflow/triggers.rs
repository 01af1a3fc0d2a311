//! Validation of triggers: their sources, and the parameters of the runs that they start.

use std::collections::{BTreeMap, BTreeSet};

use super::super::{Check, Problem, shown, too_many};
use super::{templates_in, timeout};
use crate::expression::{Names, Type};
use crate::limits;
use crate::time::Duration;
use crate::workflow::template::has_reference;
use crate::workflow::{RequiredResult, Source, SourceKind, TriggerSources, TriggerSpec, WorkflowSpec};

pub(super) fn triggers(check: &mut Check, spec: &WorkflowSpec) {
    let count = spec.triggers.len();
    check.ensure(count <= limits::TRIGGERS_MAX, "triggers", || too_many(count, limits::TRIGGERS_MAX));
    for (i, trigger) in spec.triggers.iter().enumerate() {
        let at = format!("triggers[{i}]");
        listens(check, &at, &spec.name, &trigger.listens);
        parameters(check, &at, spec, trigger);
        let earlier = spec.triggers[..i].iter().position(|earlier| earlier.listens == trigger.listens);
        if let Some(earlier) = earlier {
            check.fail(
                at,
                format!("has the same source as triggers[{earlier}]: each event would start two runs"),
            );
        }
    }
}

fn listens(check: &mut Check, at: &str, own: &str, listens: &TriggerSources) {
    let TriggerSources::All { sources, window } = listens else {
        return source(check, at, own, &listens.sources()[0], false);
    };
    let all = format!("{at}.all");
    let count = sources.len();
    check.ensure((2..=limits::TRIGGER_SOURCES_MAX).contains(&count), &all, || {
        format!("has {count} entries: expected 2 to {}", limits::TRIGGER_SOURCES_MAX)
    });
    timeout(check, &format!("{at}.window"), Some(*window));
    let mut seen = BTreeSet::new();
    for (i, one) in sources.iter().enumerate() {
        let at = format!("{all}[{i}]");
        source(check, &at, own, one, true);
        let unlike = seen.insert((one.kind, &one.name, &one.labels));
        check.ensure(unlike, &at, || {
            format!(
                "{} `{}` is listed twice: expected different sources",
                one.kind.as_str(),
                shown(&one.name)
            )
        });
    }
}

fn source(check: &mut Check, at: &str, own: &str, source: &Source, joined: bool) {
    let path = format!("{at}.{}", source.kind.as_str());
    check.name(&path, &source.name);
    check.labels(&format!("{at}.labels"), &source.labels);
    for (key, _) in source.labels.iter().filter(|(_, value)| has_reference(value)) {
        check.fail(format!("{at}.labels.{}", shown(key)), super::NOT_REPLACED);
    }
    if let Some(within) = source.within {
        let at = format!("{at}.within");
        check.ensure(within > Duration::ZERO, &at, || "must be greater than 0".into());
        check.at_most(&at, within, limits::AHEAD_MAX);
    }
    let itself = source.kind == SourceKind::Workflow && source.name == own;
    check.ensure(!(itself && (joined || source.on == RequiredResult::Any)), &path, || {
        "is the workflow itself, which would trigger itself forever".into()
    });
}

fn parameters(check: &mut Check, at: &str, spec: &WorkflowSpec, trigger: &TriggerSpec) {
    let names = TriggerNames { joins: trigger.listens.joins() };
    for (name, value) in &trigger.parameters {
        let at = format!("{at}.parameters.{}", shown(name));
        let Some(parameter) = spec.parameters.get(name) else {
            check.fail(at, "the workflow has no parameter with this name");
            continue;
        };
        templates_in(check, &at, value, &names);
        if !has_reference(&value.to_string()) {
            for problem in parameter.problems(value) {
                check.fail(at.as_str(), problem);
            }
        }
    }
    for (name, parameter) in &spec.parameters {
        let given = parameter.default.is_some() || trigger.parameters.contains_key(name);
        check.ensure(given, &format!("{at}.parameters.{name}"), || {
            "is required: the workflow has no default for it".into()
        });
    }
}

/// Names that the parameters of a trigger can refer to.
struct TriggerNames {
    joins: bool,
}

impl Names for TriggerNames {
    fn type_of(&self, path: &[String]) -> Result<Type, String> {
        let texts =
            ["id", "kind", "name", "status", "ended_at", "created_at", "scheduled_for", "interval_start"];
        let mut fields: BTreeMap<String, Type> =
            texts.into_iter().map(|name| (name.to_owned(), Type::Text)).collect();
        fields.insert("output".into(), Type::Any);
        if self.joins {
            fields.insert("all".into(), Type::List(Box::new(Type::Any)));
        }
        match path.split_first() {
            Some((first, rest)) if first == "trigger" => Type::Fields(fields).select(rest),
            Some((first, _)) => Err(format!("there is no `{}`: expected `trigger`", shown(first))),
            None => Err("must not be empty".into()),
        }
    }
}

/// Returns warnings for triggers by which a workflow triggers itself.
pub(super) fn of_itself(spec: &WorkflowSpec) -> Vec<Problem> {
    let mut found = Vec::new();
    for (i, trigger) in spec.triggers.iter().enumerate() {
        let itself = |one: &&Source| one.kind == SourceKind::Workflow && one.name == spec.name;
        if trigger.listens.sources().iter().any(|one| itself(&one)) {
            let most = limits::TRIGGER_CHAIN_MAX;
            let message = format!("triggers the workflow after its own runs, at most {most} times in a row");
            found.push(Problem { path: format!("triggers[{i}]"), message });
        }
    }
    found
}
