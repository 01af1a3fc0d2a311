//! Warnings for valid texts that are probably mistakes, such as the syntax of another workflow system.

use serde_json::Value;

use super::super::{Check, shown};
use crate::run::{RunStatus, StepStatus};
use crate::workflow::WorkflowSpec;

/// First names of references in other systems, between `{{` and `}}`.
const FOREIGN: [&str; 11] = [
    "params",
    "inputs",
    "steps",
    "run",
    "item",
    "workflow",
    "tasks",
    "outputs",
    "parameters",
    "dag_run",
    "ds",
];
/// First names of references in Belfry.
const OWN: [&str; 3] = ["params.", "steps.", "run."];

/// Maximum distance to search for the start and the end of a reference, in bytes.
const REFERENCE_LEN_MAX: usize = 200;

/// Warns of comparisons with unknown statuses, and of references in the syntax of other systems.
pub(super) fn likely_mistakes(check: &mut Check, spec: &WorkflowSpec) {
    if let Ok(value) = serde_json::to_value(spec) {
        check_text(check, String::new(), &value);
    }
}

fn check_text(check: &mut Check, at: String, value: &Value) {
    match value {
        // A description is free text.
        Value::String(_) if at.ends_with("description") => {}
        Value::String(text) => {
            statuses(check, &at, text);
            references(check, &at, text);
        }
        Value::Array(list) => {
            for (i, value) in list.iter().enumerate() {
                check_text(check, format!("{at}[{i}]"), value);
            }
        }
        Value::Object(map) => {
            for (key, value) in map {
                let dot = if at.is_empty() { "" } else { "." };
                check_text(check, format!("{at}{dot}{}", shown(key)), value);
            }
        }
        _ => {}
    }
}

/// `steps.a.status == 'success'` is never true.
fn statuses(check: &mut Check, at: &str, text: &str) {
    for (place, _) in text.match_indices(".status") {
        let before = &text[text.ceil_char_boundary(place.saturating_sub(REFERENCE_LEN_MAX))..place];
        let start =
            before.char_indices().rev().find(|(_, c)| !(c.is_alphanumeric() || "_-.[]'\"".contains(*c)));
        let subject = &before[start.map_or(0, |(start, c)| start + c.len_utf8())..];
        let known: Vec<&str> = match subject.split(['.', '[']).next() {
            Some("steps") => StepStatus::ALL.iter().map(|status| status.as_str()).collect(),
            Some("run") => RunStatus::ALL.iter().map(|status| status.as_str()).collect(),
            _ => continue,
        };
        let rest = text[place + ".status".len()..].trim_start();
        let Some(rest) = rest.strip_prefix("==").or_else(|| rest.strip_prefix("!=")) else { continue };
        let rest = rest.trim_start();
        let Some(quote) = rest.chars().next().filter(|c| matches!(c, '\'' | '"')) else { continue };
        let word = rest[1..].split(quote).next().unwrap_or_default();
        if !known.contains(&word) {
            let known = known.join(", ");
            check.fail(
                at,
                format!(
                    "compares `{}.status` with `{}`, which is never its value: expected one of {known}",
                    shown(subject),
                    shown(word)
                ),
            );
        }
    }
}

/// `{{ params.day }}` and `${params.day}` are plain text in Belfry.
fn references(check: &mut Check, at: &str, text: &str) {
    for (place, _) in text.match_indices("{{") {
        let inner = text[place + 2..].trim_start_matches([' ', '-']);
        let name = inner.split(|c: char| !(c.is_alphanumeric() || c == '_')).next().unwrap_or_default();
        if text[..place].ends_with('$') || !FOREIGN.contains(&name) {
            continue;
        }
        if let Some(end) = nearby(inner, "}}") {
            let inner = shown(inner[..end].trim());
            check.fail(
                at,
                format!(
                    "has `{{{{ {inner} }}}}`, which is kept as text: the syntax of a reference is `${{{{ … }}}}`"
                ),
            );
        }
    }
    for (place, _) in text.match_indices("${") {
        let inner = &text[place + 2..];
        if !OWN.iter().any(|own| inner.starts_with(own)) {
            continue;
        }
        if let Some(end) = nearby(inner, "}") {
            let inner = shown(&inner[..end]);
            check.fail(
                at,
                format!(
                    "has `${{{inner}}}`, which is kept as text: the syntax of a reference is `${{{{ {inner} }}}}`"
                ),
            );
        }
    }
}

/// Returns the end of a reference. The search is bounded: many unclosed references must not each cost a search of the
/// whole text.
fn nearby(text: &str, end: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    bytes[..bytes.len().min(REFERENCE_LEN_MAX)].windows(end.len()).position(|window| window == end.as_bytes())
}
