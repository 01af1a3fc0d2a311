//! Parts of the book that are generated from code are up to date. `make fix` regenerates them.
//!
//! A generated part lies between two markers in its page; `assert_generated` compares it, or writes it if
//! `BELFRY_UPDATE` is set.
//!
//! - Diagrams of jobs, runs and steps show the transitions of the engine's tables.
//! - The job spec and the schedule spec are described from the schemas of their types, with their defaults.
//! - Limits, error codes, routes, commands, settings and test results are listed from their tables.
//!
//! So these texts are changed in the doc comments of the code, not in the pages.

use std::collections::BTreeMap;
use std::fs;

use harness::pages::{assert_file, assert_generated};
use harness::{diagram, repository};
use model::api::Code;
use model::lifecycle::{self, Cause};
use model::{JobSpec, ScheduleSpec, limits};
use serde_json::Value;

fn page(name: &str) -> std::path::PathBuf {
    repository().join("docs/src").join(name)
}

/// Asserts that an image of the book shows these transitions.
fn assert_drawn(image: &str, text: &str, places: &[diagram::Place]) {
    assert_file(&page("images").join(image), &diagram::svg(text, places));
}

/// A7. The docs show the transition table that the engine uses.
#[test]
fn the_lifecycle_of_a_job_is_drawn_from_its_table() {
    assert_drawn(
        "job-lifecycle.svg",
        &lifecycle::diagram(),
        &[
            ("[*]", 0.0, 1.0),
            ("ready", 1.0, 0.0),
            ("waiting", 1.0, 2.0),
            ("retrying", 1.0, 4.0),
            ("running", 2.9, 3.0),
            ("expired", 4.0, 0.0),
            ("cancelled", 4.0, 1.0),
            ("failed", 4.0, 2.0),
            ("succeeded", 4.0, 3.0),
        ],
    );
    let mut text = "![The statuses of a job](../images/job-lifecycle.svg)\n\n\
                    | cause | meaning | from | to |\n|---|---|---|---|\n"
        .to_owned();
    for cause in Cause::ALL {
        let rows: Vec<_> = lifecycle::TRANSITIONS.iter().filter(|t| t.cause == *cause).collect();
        let mut from: Vec<_> = rows.iter().map(|t| t.from.map_or("submission", |s| s.as_str())).collect();
        let mut to: Vec<_> = rows.iter().map(|t| t.to.as_str()).collect();
        for statuses in [&mut from, &mut to] {
            statuses.sort_by_key(|s| model::JobStatus::ALL.iter().position(|known| known.as_str() == *s));
            statuses.dedup();
        }
        text += &format!("| `{cause}` | {} | {} | {} |\n", cause.sentence(), from.join(", "), to.join(", "));
    }
    assert_generated(&page("concepts/job-lifecycle.md"), "lifecycle", &text);
}

/// C2. The same for runs and steps.
#[test]
fn the_lifecycles_of_runs_and_steps_are_drawn_from_their_tables() {
    let (run, step) = model::run::lifecycle::diagrams();
    assert_drawn(
        "run-lifecycle.svg",
        &run,
        &[
            ("[*]", 0.0, 1.5),
            ("waiting", 1.0, 3.3),
            ("running", 1.0, 0.0),
            ("paused", 2.0, 1.2),
            ("retrying", 1.9, 2.1),
            ("stopping", 3.3, 1.2),
            ("succeeded", 4.6, 0.0),
            ("failed", 4.6, 1.2),
            ("cancelled", 4.6, 2.6),
        ],
    );
    assert_drawn(
        "step-lifecycle.svg",
        &step,
        &[
            ("[*]", 0.0, 2.0),
            ("pending", 1.0, 2.0),
            ("running", 2.6, 0.2),
            ("waiting", 2.6, 3.8),
            ("succeeded", 4.4, 0.0),
            ("failed", 4.4, 1.0),
            ("cancelled", 4.4, 2.0),
            ("skipped", 4.4, 3.0),
            ("upstream_failed", 4.4, 4.0),
        ],
    );
    let text = format!(
        "A run:\n\n![The statuses of a run](../images/run-lifecycle.svg)\n\n{}\n\
         A step:\n\n![The statuses of a step](../images/step-lifecycle.svg)\n\n{}",
        diagram::table(&run),
        diagram::table(&step)
    );
    assert_generated(&page("concepts/workflows.md"), "lifecycle", &text);
}

/// Returns every schema that a spec uses, by name.
fn schemas<T: utoipa::ToSchema>() -> BTreeMap<String, Value> {
    let mut found = vec![(T::name().into_owned(), T::schema())];
    T::schemas(&mut found);
    found.into_iter().map(|(name, schema)| (name, serde_json::to_value(schema).unwrap())).collect()
}

/// Table rows for each field, depth first and in source order: path, type, default, meaning.
struct Rows<'a> {
    schemas: &'a BTreeMap<String, Value>,
    source: &'a str,
    text: String,
}

impl Rows<'_> {
    fn object(&mut self, path: &str, schema: &Value, defaults: &Value) {
        let mut fields: Vec<_> = schema["properties"].as_object().into_iter().flatten().collect();
        fields.sort_by_key(|(name, _)| self.source.find(&format!("    pub {name}: ")));
        let required: Vec<_> = schema["required"].as_array().into_iter().flatten().collect();
        for (name, field) in fields {
            let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            let default =
                if required.iter().any(|r| *r == name) { "required".into() } else { shown(&defaults[name]) };
            self.field(&path, field, &default, &defaults[name]);
        }
    }

    fn field(&mut self, path: &str, field: &Value, default: &str, defaults: &Value) {
        let reference = reference(field);
        let (kind, inner) = self.kind(reference.unwrap_or(field));
        let meaning = [Some(field), reference].into_iter().flatten().find_map(|f| f["description"].as_str());
        let meaning = meaning.unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ");
        self.text += &format!("| `{path}` | {kind} | {default} | {} |\n", meaning.replace('|', "\\|"));
        if let Some(inner) = inner {
            let list = if defaults.is_array() { "[]" } else { "" };
            self.object(&format!("{path}{list}"), &inner, defaults.get(0).unwrap_or(defaults));
        }
    }

    /// Returns the type of a field as text, and the object schema that it contains, if any.
    fn kind(&self, field: &Value) -> (String, Option<Value>) {
        if let Some(reference) = field["$ref"].as_str() {
            let name = reference.rsplit('/').next().unwrap();
            return self.named(name, &self.schemas[name]);
        }
        if field["items"].is_object() {
            let (of, inner) = self.kind(&field["items"]);
            return (format!("list of {of}"), inner);
        }
        if field["additionalProperties"].is_object() {
            let (of, _) = self.kind(&field["additionalProperties"]);
            return (format!("map of {of}"), None);
        }
        if field["format"] == "date-time" {
            return ("time".into(), None);
        }
        let plain = match &field["type"] {
            Value::String(name) => name.clone(),
            Value::Array(names) => {
                names.iter().filter_map(Value::as_str).find(|n| *n != "null").unwrap().to_owned()
            }
            _ => "any".to_owned(),
        };
        (plain, None)
    }

    fn named(&self, name: &str, schema: &Value) -> (String, Option<Value>) {
        if let "Rule" | "Filter" = name {
            // These types have their own sections.
            return (format!("[{0}](#{0}s)", name.to_lowercase()), None);
        }
        if let Some(words) = schema["enum"].as_array() {
            let words: Vec<_> = words.iter().filter_map(Value::as_str).map(|w| format!("`{w}`")).collect();
            return (words.join(", "), None);
        }
        let variants: Vec<&Value> = schema["oneOf"].as_array().into_iter().flatten().collect();
        let words: Vec<_> =
            variants.iter().filter_map(|v| v["enum"][0].as_str()).map(|w| format!("`{w}`")).collect();
        if !words.is_empty() {
            return (words.join(", "), None);
        }
        if let Some(first) = variants.first() {
            return ("one of".to_owned(), Some((*first).clone()));
        }
        match name {
            "Duration" => ("duration".into(), None),
            "Timestamp" => ("time".into(), None),
            "Bytes" => ("bytes".into(), None),
            "Millicores" => ("CPU".into(), None),
            // This type has its own page.
            "JobSpec" => ("[job spec](job-spec.md)".into(), None),
            _ if schema["type"] == "string" => ("string".into(), None),
            _ => ("object".into(), Some(schema.clone())),
        }
    }
}

/// Returns the reference in a nullable field.
fn reference(field: &Value) -> Option<&Value> {
    let options = ["oneOf", "anyOf", "allOf"].iter().find_map(|k| field[k].as_array())?;
    options.iter().find(|s| s["$ref"].is_string())
}

fn shown(default: &Value) -> String {
    match default {
        Value::Null | Value::Object(_) | Value::Array(_) => String::new(),
        Value::String(text) => format!("`{text}`"),
        other => format!("`{other}`"),
    }
}

/// Returns a spec with all optional parts, to read the defaults within these parts.
fn defaults() -> Value {
    let spec: JobSpec = serde_json::from_value(serde_json::json!({
        "run": {"process": {}},
        "inputs": [{"artifact": "a", "path": "p"}],
        "outputs": [{"artifact": "a", "path": "p"}],
        "constraints": [{"label": "l"}],
        "concurrency": {"key": "k"},
        "resources": {"limits": {"enforcement": "best_effort"}},
    }))
    .unwrap();
    let mut defaults = serde_json::to_value(spec).unwrap();
    defaults["resources"]["limits"]["enforcement"] =
        serde_json::to_value(model::spec::Enforcement::default()).unwrap();
    defaults
}

/// A6. Every field of the job spec, with its type, default and meaning.
#[test]
fn the_job_spec_is_described_from_its_type() {
    let schemas = schemas::<JobSpec>();
    let source = fs::read_to_string(repository().join("crates/model/src/spec.rs")).unwrap();
    let text = "| field | type | default | meaning |\n|---|---|---|---|\n".to_owned();
    let mut rows = Rows { schemas: &schemas, source: &source, text };
    rows.object("", &schemas["JobSpec"], &defaults());
    for row in [
        "| `run` | one of | required |",
        "| `run.process.command` | list of string |",
        "| `retry.backoff.jitter` | number | `0.2` |",
        "| `resources.limits.enforcement` | `required`, `best_effort` | `required` |",
        "| `inputs[].executable` | boolean | `false` |",
        "| `timeout` | duration |  | Timeout of each execution;",
    ] {
        assert!(rows.text.contains(row), "{row} is missing:\n{}", rows.text);
    }
    assert_generated(&page("reference/job-spec.md"), "spec", &rows.text);
}

/// B1, B3, B4, B5. Every field of the schedule spec, except those outside `spec` in a document.
#[test]
fn the_schedule_spec_is_described_from_its_type() {
    let mut schemas = schemas::<ScheduleSpec>();
    let source = ["schedule", "timing"].map(|module| {
        fs::read_to_string(repository().join(format!("crates/model/src/{module}.rs"))).unwrap()
    });
    let spec: ScheduleSpec = serde_json::from_value(serde_json::json!({
        "name": "a", "jitter": {"max": "1s"}, "expect": {"start_within": "1s"},
        "timing": {"roll": {"to": "next", "calendar": "c"}, "dst": {"gap": "skip"}},
        "job": {"run": {"process": {}}},
    }))
    .unwrap();
    let mut defaults = serde_json::to_value(spec).unwrap();
    defaults["expect"] = serde_json::to_value(model::schedule::Expectation::default()).unwrap();
    defaults["timing"]["dst"] = Value::Null;
    let mut schema = schemas.remove("ScheduleSpec").unwrap();
    for beside in ["name", "namespace", "owner", "labels"] {
        schema["properties"].as_object_mut().unwrap().remove(beside).unwrap();
    }
    let text = "| field | type | default | meaning |\n|---|---|---|---|\n".to_owned();
    let mut rows = Rows { schemas: &schemas, source: &source.concat(), text };
    rows.object("", &schema, &defaults);
    for row in [
        "| `timing.rules` | list of [rule](#rules) |",
        "| `timing.zone` | string | `UTC` |",
        "| `overlap.policy` | `skip`, `buffer_one`,",
        "| `missed.catch_up_window` | duration | `365d` |",
        "| `job` | [job spec](job-spec.md) |  |",
    ] {
        assert!(rows.text.contains(row), "{row} is missing:\n{}", rows.text);
    }
    assert_generated(&page("reference/schedule-spec.md"), "spec", &rows.text);
}

fn count(value: u64) -> String {
    let digits: Vec<char> = value.to_string().chars().collect();
    let groups: Vec<String> = digits.rchunks(3).rev().map(|g| g.iter().collect()).collect();
    groups.join(",")
}

/// Returns the value of a constant for people, from its name and its source expression.
fn value(name: &str, expression: &str) -> String {
    let number = |text: &str| text.trim().replace('_', "").parse::<u64>().unwrap();
    let product = |text: &str| -> u64 {
        let (factors, bits) = text.split_once(" << ").unwrap_or((text, "0"));
        factors.split('*').map(number).product::<u64>() << number(bits)
    };
    let inner = |kind: &str| expression.strip_prefix(kind)?.strip_suffix(')');
    if let Some(bytes) = inner("Bytes(") {
        let (one, bits) = bytes.split_once(" << ").unwrap_or((bytes, "0"));
        return model::Bytes(product(one) << bits.parse::<u32>().unwrap()).to_string();
    }
    if let Some(millicores) = inner("Millicores(") {
        return model::Millicores(product(millicores).try_into().unwrap()).to_string();
    }
    let duration = |unit: &str| expression.strip_prefix(unit)?.strip_suffix(')').map(product);
    let seconds =
        duration("Duration::from_hours(").map(|h| h * 3_600).or_else(|| duration("Duration::from_secs("));
    match seconds {
        Some(seconds) => model::Duration::from_secs(seconds).to_string(),
        None if name.contains("BYTES") => model::Bytes(product(expression)).to_string(),
        None => count(product(expression)),
    }
}

#[test]
fn the_limits_are_listed_with_their_values() {
    assert_eq!(
        value("BODY_BYTES_MAX", "1024 * 1024"),
        model::Bytes(limits::BODY_BYTES_MAX as u64).to_string()
    );
    assert_eq!(value("MEMORY_MAX", "Bytes(1 << 50)"), limits::MEMORY_MAX.to_string());
    assert_eq!(value("CPU_MAX", "Millicores(1_000_000_000)"), limits::CPU_MAX.to_string());
    assert_eq!(value("GRACE_MAX", "Duration::from_hours(1)"), limits::GRACE_MAX.to_string());
    let source = fs::read_to_string(repository().join("crates/model/src/limits.rs")).unwrap();
    let lines: Vec<&str> = source.lines().collect();
    let mut text = "| limit | value | constant |\n|---|---|---|\n".to_owned();
    for (i, line) in lines.iter().enumerate() {
        let Some((name, rest)) = line.strip_prefix("pub const ").and_then(|l| l.split_once(':')) else {
            continue;
        };
        let expression = rest.split_once(" = ").unwrap().1.trim_end_matches(';');
        let about =
            lines[i - 1].strip_prefix("/// ").expect("each limit has a comment").trim_end_matches('.');
        text += &format!("| {about} | {} | `{name}` |\n", value(name, expression));
    }
    assert!(text.lines().count() > 20, "{text}");
    assert_generated(&page("reference/limits.md"), "limits", &text);
}

#[test]
fn every_error_code_is_on_its_page() {
    let mut text = "| code | status | what happened | what to do |\n|---|---|---|---|\n".to_owned();
    for code in Code::ALL {
        let (word, status) = (code.as_str(), code.status());
        text += &format!("| `{word}` | {status} | {} | {} |\n", code.title(), code.hint());
    }
    assert_generated(&page("reference/errors.md"), "errors", &text);
}

#[test]
fn every_route_is_on_its_page() {
    let document = fs::read_to_string(repository().join("docs/openapi.json")).unwrap();
    let document: Value = serde_json::from_str(&document).unwrap();
    let mut text = "| route | purpose |\n|---|---|\n".to_owned();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for method in ["get", "post", "put", "patch", "delete"] {
            let Some(summary) = methods.get(method).and_then(|m| m["summary"].as_str()) else { continue };
            text += &format!("| `{} {path}` | {} |\n", method.to_uppercase(), summary.trim_end_matches('.'));
        }
    }
    assert!(text.contains("POST /api/v1/jobs"), "{text}");
    assert_generated(&page("reference/rest-api.md"), "routes", &text);
}

/// Returns the output of `belfry ARGS…`, without a home directory or a terminal.
fn printed(args: &[&str]) -> String {
    let output = std::process::Command::new(harness::belfry())
        .args(args)
        .env_clear()
        .env("HOME", "~")
        .output()
        .expect("cannot start the binary");
    assert!(output.status.success(), "belfry {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the name and the purpose of each command in a help text.
fn commands(help: &str) -> Vec<(String, String)> {
    let lines = help.lines().skip_while(|l| *l != "Commands:").skip(1).take_while(|l| l.starts_with("  "));
    let mut found: Vec<(String, String)> = Vec::new();
    for line in lines {
        match line.trim().split_once("  ") {
            Some((name, about)) if !line.starts_with("   ") => {
                found.push((name.to_owned(), about.trim().to_owned()))
            }
            // The continuation of a text that is too long for one line.
            _ => found.last_mut().expect("text of a command").1 += &format!(" {}", line.trim()),
        }
    }
    found.into_iter().filter(|(name, _)| name != "help").collect()
}

fn list_commands(path: &[&str], text: &mut String) {
    let help = printed(&[path, &["--help"]].concat());
    for (name, about) in commands(&help) {
        let path = [path, &[&name]].concat();
        let (about, aliases) = about.split_once(" [alias").map_or((about.as_str(), ""), |(a, b)| (a, b));
        let aliases = aliases.trim_start_matches("es").trim_start_matches(": ").trim_end_matches(']');
        *text += &format!("| `belfry {}` | {about} | {aliases} |\n", path.join(" "));
        list_commands(&path, text);
    }
}

#[test]
fn every_command_is_on_its_page() {
    let mut text = "| command | purpose | alias |\n|---|---|---|\n".to_owned();
    list_commands(&[], &mut text);
    for command in
        ["`belfry submit`", "`belfry job cancel`", "`belfry worker drain`", "`belfry schedule next`"]
    {
        assert!(text.contains(command), "{command} is missing:\n{text}");
    }
    assert_generated(&page("reference/cli.md"), "commands", &text);
}

#[test]
fn every_setting_is_on_its_page() {
    let settings: Vec<Value> = serde_json::from_str(&printed(&["config", "show", "-o", "json"])).unwrap();
    let mut text = "| setting | variable | default | meaning |\n|---|---|---|---|\n".to_owned();
    for setting in &settings {
        let [key, variable, help] = ["key", "variable", "help"].map(|name| setting[name].as_str().unwrap());
        let default = shown(&setting["value"]);
        text += &format!("| `{key}` | `{variable}` | {default} | {help} |\n");
    }
    assert!(settings.len() > 20, "{text}");
    assert_generated(&page("reference/configuration.md"), "configuration", &text);
}

/// The results page shows the stored results, and no others.
#[test]
fn the_test_results_page_shows_the_stored_results() {
    let folder = repository().join("docs/results");
    let mut files: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let bugs = ["mutations.json", "mutations-node.json"].map(|name| folder.join(name));
    files.retain(|file| !bugs.contains(file));
    let bugs = bugs.map(|file| -> sim::results::Bugs {
        serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap()
    });
    assert_generated(&page("test-results.md"), "mutations", &sim::results::bugs(&bugs));
    let results: Vec<sim::results::Results> =
        files.iter().map(|file| serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap()).collect();
    assert!(!results.is_empty(), "there are no results in {}", folder.display());
    assert_generated(&page("test-results.md"), "results", &sim::results::page(&results));
}
