//! Parses the parameters of a run from options and a file.
//!
//! A flag has the type that the workflow declares: a string is used unchanged, so that `-p version=1.10` needs no
//! quotes; every other type is parsed as JSON. Flags override the file.

use std::collections::BTreeMap;
use std::path::Path;

use client::{Client, WorkflowRef};
use model::api::FieldError;
use model::workflow::{Parameter, ParameterType};
use serde_json::{Map, Value};

use crate::args::spec::{Pair, read_text};
use crate::args::workflow::ParameterArgs;
use crate::failure::Failure;

/// Returns the parameters from the file and the flags. Requests the workflow, for the types, only if there are flags.
pub(super) async fn read(
    client: &Client,
    workflow: &WorkflowRef,
    args: &ParameterArgs,
) -> Result<Map<String, Value>, Failure> {
    let mut given = args.file.as_deref().map_or_else(|| Ok(Map::new()), from_file)?;
    if !args.parameters.is_empty() {
        let declared = client.workflow(workflow, None).await?.parameters;
        given.extend(from_flags(&declared, &args.parameters)?);
    }
    Ok(given)
}

/// Returns the parameters that each firing of a schedule passes to its workflow. A value with a reference (`${{ … }}`)
/// stays a string, whatever the declared type: it is evaluated when the schedule fires. If the workflow does not exist
/// yet, all values stay strings.
pub(in crate::commands) async fn of_firing(
    client: &Client,
    workflow: &WorkflowRef,
    flags: &[Pair],
) -> Result<BTreeMap<String, Value>, Failure> {
    let (references, plain): (Vec<Pair>, Vec<Pair>) =
        flags.iter().cloned().partition(|Pair(_, text)| text.contains("${{"));
    let declared = match client.workflow(workflow, None).await {
        _ if plain.is_empty() => BTreeMap::new(),
        Ok(found) => found.parameters,
        Err(error) if error.code() == Some("workflow_not_found") => BTreeMap::new(),
        Err(error) => return Err(error.into()),
    };
    let mut given: BTreeMap<_, _> = from_flags(&declared, &plain)?.into_iter().collect();
    given.extend(references.into_iter().map(|Pair(name, text)| (name, Value::String(text))));
    Ok(given)
}

fn from_file(path: &Path) -> Result<Map<String, Value>, Failure> {
    let text = read_text(path)?;
    let name = if path == Path::new("-") { "standard input".into() } else { format!("`{}`", path.display()) };
    from_text(&text).map_err(|detail| {
        Failure::usage(format!("cannot parse parameters in {name}: {detail}"))
            .help("expected one parameter per line, for example `day: 2026-11-21`, or a JSON object")
    })
}

fn from_text(text: &str) -> Result<Map<String, Value>, String> {
    if text.trim_start().starts_with('{') {
        return serde_json::from_str(text).map_err(|error| error.to_string());
    }
    let options = serde_saphyr::options! {
        merge_keys: serde_saphyr::options::MergeKeyPolicy::Error,
        strict_booleans: true,
        with_snippet: false,
    };
    serde_saphyr::from_str_with_options(text, options).map_err(|error| {
        let said = error.to_string();
        said.strip_prefix("error: ").unwrap_or(&said).to_owned()
    })
}

/// Parses flags with the declared types. Reports all errors together. An undeclared name is not an error here: the
/// server rejects it and lists the declared names.
fn from_flags(declared: &BTreeMap<String, Parameter>, flags: &[Pair]) -> Result<Map<String, Value>, Failure> {
    let (mut given, mut wrong) = (Map::new(), Vec::new());
    for Pair(name, text) in flags {
        let kind = declared.get(name).map_or(ParameterType::String, |parameter| parameter.kind);
        let value = match kind {
            ParameterType::String => Some(Value::String(text.clone())),
            _ => serde_json::from_str(text).ok(),
        };
        match value {
            Some(value) => {
                given.insert(name.clone(), value);
            }
            None => wrong.push(FieldError {
                pointer: String::new(),
                path: name.clone(),
                detail: format!("invalid value `{text}`: expected {}", example(kind)),
            }),
        }
    }
    if wrong.is_empty() { Ok(given) } else { Err(Failure::usage("invalid parameters").fields(wrong)) }
}

fn example(kind: ParameterType) -> &'static str {
    match kind {
        ParameterType::String => "a string",
        ParameterType::Integer => "a whole number",
        ParameterType::Number => "a number",
        ParameterType::Boolean => "true or false",
        ParameterType::Array => r#"a JSON list, for example '["eu", "cn"]'"#,
        ParameterType::Object => r#"a JSON object, for example '{"region": "eu"}'"#,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn flags(line: &[(&str, &str)]) -> Result<Value, String> {
        let declared = serde_json::from_value(json!({
            "day": {"type": "string"}, "n": {"type": "integer"}, "dry": {"type": "boolean"},
            "regions": {"type": "array"}, "where": {"type": "object"},
        }));
        let pairs: Vec<_> = line.iter().map(|(name, text)| Pair((*name).into(), (*text).into())).collect();
        from_flags(&declared.unwrap(), &pairs).map(Value::Object).map_err(|failure| failure.render(false))
    }

    #[test]
    fn a_flag_has_the_type_that_the_workflow_declares() {
        let given = flags(&[
            ("day", "20261121"),
            ("n", "3"),
            ("dry", "true"),
            ("regions", r#"["eu"]"#),
            ("where", "{}"),
            ("unknown", "1"),
        ]);
        let expected =
            json!({"day": "20261121", "n": 3, "dry": true, "regions": ["eu"], "where": {}, "unknown": "1"});
        assert_eq!(given, Ok(expected));
    }

    #[test]
    fn every_flag_that_cannot_be_read_is_told() {
        insta::assert_snapshot!(flags(&[("n", "three"), ("regions", "eu,cn"), ("day", "x")]).unwrap_err(), @r#"
        error: invalid parameters
          n: invalid value `three`: expected a whole number
          regions: invalid value `eu,cn`: expected a JSON list, for example '["eu", "cn"]'
        "#);
    }

    #[test]
    fn a_file_has_them_in_yaml_or_json() {
        let expected = json!({"day": "2026-11-21", "n": 3, "answer": "no", "regions": ["eu"]});
        let yaml = "day: 2026-11-21\nn: 3\nanswer: no\nregions: [eu]\n";
        assert_eq!(from_text(yaml).map(Value::Object), Ok(expected.clone()));
        assert_eq!(from_text(&expected.to_string()).map(Value::Object), Ok(expected));
        assert!(from_text("- a\n").is_err() && from_text("{\"a\"}").is_err());
    }
}
