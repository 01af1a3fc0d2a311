//! Parameters of workflows: their declaration, and the check of given values.
//!
//! A declared parameter has a type and may have a JSON Schema with a small set of keywords. Unknown keywords are
//! rejected, because users would expect a check that does not exist.
//!
//! The engine calls [`complete`] when a run starts; the validation of workflows checks defaults and schemas.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::expression::Type;

/// Declaration of a workflow parameter. A parameter without a default is required.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Parameter {
    /// Type of the value.
    #[serde(rename = "type")]
    pub kind: ParameterType,
    /// Default value. If absent, each run must set the parameter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<Value>,
    /// JSON Schema of the value. Supported keywords: `type`, `enum`, `const`, `minimum`, `maximum`,
    /// `exclusiveMinimum`, `exclusiveMaximum`, `minLength`, `maxLength`, `items`, `minItems`, `maxItems`,
    /// `uniqueItems`, `properties`, `required`, `additionalProperties`, `title`, `description` and `examples`
    /// [default: all values of the type are allowed].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<Value>,
    /// Description of the parameter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
}

/// Type of a parameter, named as in JSON Schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names say it")]
pub enum ParameterType {
    String,
    Integer,
    Number,
    Boolean,
    Array,
    Object,
}

impl ParameterType {
    /// Returns the name of the type in files.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::String => "string",
            Self::Integer => "integer",
            Self::Number => "number",
            Self::Boolean => "boolean",
            Self::Array => "array",
            Self::Object => "object",
        }
    }

    /// Returns whether a value is of this type.
    pub fn accepts(self, value: &Value) -> bool {
        match self {
            Self::String => value.is_string(),
            Self::Integer => value.is_i64() || value.is_u64(),
            Self::Number => value.is_number(),
            Self::Boolean => value.is_boolean(),
            Self::Array => value.is_array(),
            Self::Object => value.is_object(),
        }
    }

    /// Returns the type of the parameter in expressions.
    pub fn as_type(self) -> Type {
        match self {
            Self::String => Type::Text,
            Self::Integer | Self::Number => Type::Number,
            Self::Boolean => Type::Bool,
            Self::Array => Type::List(Box::new(Type::Any)),
            Self::Object => Type::Map,
        }
    }
}

/// Returns the parameters of a run: the given values, and defaults for the other parameters.
///
/// # Errors
/// Returns all errors as pairs of parameter name and message.
pub fn complete(
    declared: &BTreeMap<String, Parameter>,
    given: &Map<String, Value>,
) -> Result<Map<String, Value>, Vec<(String, String)>> {
    let mut problems = Vec::new();
    for name in given.keys().filter(|name| !declared.contains_key(*name)) {
        let known: Vec<_> = declared.keys().map(|name| format!("`{name}`")).collect();
        let expected = match known.is_empty() {
            true => "the workflow has no parameters".into(),
            false => format!("expected one of {}", known.join(", ")),
        };
        problems.push((name.clone(), format!("is not a parameter of this workflow: {expected}")));
    }
    let mut complete = Map::new();
    for (name, parameter) in declared {
        let Some(value) = given.get(name).or(parameter.default.as_ref()) else {
            problems.push((name.clone(), "is required: the parameter has no default".into()));
            continue;
        };
        problems.extend(parameter.problems(value).into_iter().map(|problem| (name.clone(), problem)));
        complete.insert(name.clone(), value.clone());
    }
    if problems.is_empty() { Ok(complete) } else { Err(problems) }
}

impl Parameter {
    /// Returns a parameter with a type and a default value.
    pub fn new(kind: ParameterType, default: Option<Value>) -> Self {
        Self { kind, default, schema: None, description: None }
    }

    /// Returns all errors of a value for this parameter; empty if the value is valid.
    pub fn problems(&self, value: &Value) -> Vec<String> {
        if !self.kind.accepts(value) {
            return vec![format!("is {}: expected {}", kind_of(value), self.kind.as_str())];
        }
        let mut problems = Vec::new();
        if let Some(schema) = &self.schema {
            check(schema, value, "", &mut problems);
        }
        problems
    }
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

/// Supported keywords of JSON Schema: constraints on values, and descriptions.
const KEYWORDS: [&str; 19] = [
    "type",
    "enum",
    "const",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "minLength",
    "maxLength",
    "items",
    "minItems",
    "maxItems",
    "uniqueItems",
    "properties",
    "required",
    "additionalProperties",
    "title",
    "description",
    "examples",
];
const TYPES: [&str; 7] = ["string", "integer", "number", "boolean", "array", "object", "null"];
const DEPTH_MAX: usize = 16;

/// Returns the errors of a schema itself, as pairs of path and message. An unsupported keyword is an error.
pub fn schema_problems(schema: &Value) -> Vec<(String, String)> {
    let mut problems = Vec::new();
    examine(schema, String::new(), 0, &mut problems);
    problems
}

fn examine(schema: &Value, path: String, depth: usize, problems: &mut Vec<(String, String)>) {
    let Value::Object(map) = schema else {
        return problems
            .push((path, format!("is {}: expected a schema, which is an object", kind_of(schema))));
    };
    if depth > DEPTH_MAX {
        return problems.push((path, format!("is nested too deeply: expected at most {DEPTH_MAX} levels")));
    }
    for (keyword, value) in map {
        let at = format!("{path}.{keyword}");
        let expected = match keyword.as_str() {
            "type" if value.as_str().is_some_and(|t| TYPES.contains(&t)) => None,
            "type" => Some("one of `string`, `integer`, `number`, `boolean`, `array`, `object`, `null`"),
            "enum" | "required" | "examples" => (!value.is_array()).then_some("an array"),
            "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" => {
                (!value.is_number()).then_some("a number")
            }
            "minLength" | "maxLength" | "minItems" | "maxItems" => {
                (!value.is_u64()).then_some("a non-negative integer")
            }
            "uniqueItems" | "additionalProperties" => (!value.is_boolean()).then_some("a boolean"),
            "title" | "description" => (!value.is_string()).then_some("a string"),
            "items" => {
                examine(value, at.clone(), depth + 1, problems);
                None
            }
            "properties" => match value.as_object() {
                Some(map) => {
                    for (name, inner) in map {
                        examine(inner, format!("{at}.{name}"), depth + 1, problems);
                    }
                    None
                }
                None => Some("an object"),
            },
            known if KEYWORDS.contains(&known) => None,
            _ => {
                let message = format!("is not supported: expected one of {}", KEYWORDS.join(", "));
                problems.push((at.clone(), message));
                None
            }
        };
        if let Some(expected) = expected {
            problems.push((at, format!("is {}: expected {expected}", kind_of(value))));
        }
    }
}

fn is_type(value: &Value, name: &str) -> bool {
    match name {
        "string" => value.is_string(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        _ => value.is_null(),
    }
}

fn check(schema: &Value, value: &Value, path: &str, problems: &mut Vec<String>) {
    let Some(schema) = schema.as_object() else { return };
    let mut fail = |message: String| {
        problems.push(if path.is_empty() { message } else { format!("{path}: {message}") });
    };
    for (keyword, rule) in schema {
        let number = || value.as_f64().zip(rule.as_f64());
        let length = |text: &str| u64::try_from(text.chars().count()).ok().zip(rule.as_u64());
        let entries = |list: &Vec<Value>| u64::try_from(list.len()).ok().zip(rule.as_u64());
        let holds = match keyword.as_str() {
            "type" => rule.as_str().is_none_or(|name| is_type(value, name)),
            "enum" => rule.as_array().is_none_or(|list| list.contains(value)),
            "const" => rule == value,
            "minimum" => number().is_none_or(|(value, rule)| value >= rule),
            "maximum" => number().is_none_or(|(value, rule)| value <= rule),
            "exclusiveMinimum" => number().is_none_or(|(value, rule)| value > rule),
            "exclusiveMaximum" => number().is_none_or(|(value, rule)| value < rule),
            "minLength" => value.as_str().and_then(length).is_none_or(|(len, rule)| len >= rule),
            "maxLength" => value.as_str().and_then(length).is_none_or(|(len, rule)| len <= rule),
            "minItems" => value.as_array().and_then(entries).is_none_or(|(len, rule)| len >= rule),
            "maxItems" => value.as_array().and_then(entries).is_none_or(|(len, rule)| len <= rule),
            "uniqueItems" => {
                value.as_array().is_none_or(|list| rule != &Value::Bool(true) || is_unique(list))
            }
            "required" => value.as_object().is_none_or(|map| {
                let names = rule.as_array().into_iter().flatten().filter_map(Value::as_str);
                names.into_iter().all(|name| map.contains_key(name))
            }),
            "additionalProperties" if rule == &Value::Bool(false) => value.as_object().is_none_or(|map| {
                let known = schema.get("properties").and_then(Value::as_object);
                map.keys().all(|name| known.is_some_and(|known| known.contains_key(name)))
            }),
            _ => true,
        };
        if !holds {
            fail(format!("does not satisfy `{keyword}`: expected {rule}"));
        }
    }
    if let (Some(inner), Some(list)) = (schema.get("items"), value.as_array()) {
        for (i, value) in list.iter().enumerate() {
            check(inner, value, &format!("{path}[{i}]"), problems);
        }
    }
    if let (Some(inner), Some(map)) = (schema.get("properties").and_then(Value::as_object), value.as_object())
    {
        for (name, inner) in inner {
            if let Some(value) = map.get(name) {
                check(inner, value, &format!("{path}.{name}"), problems);
            }
        }
    }
}

fn is_unique(list: &[Value]) -> bool {
    let mut texts: Vec<_> = list.iter().map(Value::to_string).collect();
    texts.sort_unstable();
    texts.windows(2).all(|pair| pair[0] != pair[1])
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn declared() -> BTreeMap<String, Parameter> {
        let parameters = json!({
            "region": {"type": "string", "default": "eu", "schema": {"enum": ["eu", "cn"]}},
            "days": {"type": "integer", "schema": {"minimum": 1, "maximum": 31}},
            "files": {"type": "array", "default": [], "schema": {"items": {"type": "string", "minLength": 1}, "maxItems": 2}},
        });
        serde_json::from_value(parameters).unwrap()
    }

    fn told(given: &Value) -> String {
        match complete(&declared(), given.as_object().unwrap()) {
            Ok(complete) => Value::Object(complete).to_string(),
            Err(problems) => problems.iter().map(|(name, problem)| format!("{name}: {problem}\n")).collect(),
        }
    }

    #[test]
    fn missing_parameters_have_their_defaults() {
        insta::assert_snapshot!(told(&json!({"days": 3})), @r#"{"days":3,"files":[],"region":"eu"}"#);
    }

    #[test]
    fn all_invalid_parameters_are_reported_at_once() {
        insta::assert_snapshot!(told(&json!({"region": "us", "files": ["a", "", 3], "dya": 1})), @r#"
        dya: is not a parameter of this workflow: expected one of `days`, `files`, `region`
        days: is required: the parameter has no default
        files: does not satisfy `maxItems`: expected 2
        files: [1]: does not satisfy `minLength`: expected 1
        files: [2]: does not satisfy `type`: expected "string"
        region: does not satisfy `enum`: expected ["eu","cn"]
        "#);
        insta::assert_snapshot!(told(&json!({"days": "3"})), @"days: is a string: expected integer");
    }

    #[test]
    fn unsupported_schema_keywords_are_rejected() {
        let problems = schema_problems(&json!({"pattern": "^a", "items": {"type": "text"}}));
        assert_eq!(
            problems.iter().map(|(path, _)| path.as_str()).collect::<Vec<_>>(),
            [".items.type", ".pattern"]
        );
    }
}
