//! JSON Schemas of definition files, for validation and completion in editors.
//!
//! They are generated from the OpenAPI document, so that there is one description of each type. A schema is
//! self-contained: it includes everything that it refers to.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use axum::http::HeaderValue;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};
use utoipa::openapi::OpenApi;
use utoipa_axum::routes;

use super::document;
use super::extract::Path;
use super::problem::{ApiError, Code, excerpt};
use super::routes::Routes;

/// Fields next to `spec` in a definition file, which are moved into the spec when it is read.
const METADATA: [&str; 4] = ["name", "namespace", "owner", "labels"];
const SCHEMA_JSON: HeaderValue = HeaderValue::from_static("application/schema+json");

/// Every schema with its file name; made at the first request.
static SCHEMAS: LazyLock<Vec<(&'static str, bytes::Bytes)>> = LazyLock::new(|| all(&document()));

pub(super) fn routes(routes: &mut Routes) {
    routes.open(&[Code::NotFound], routes!(get_schema));
}

/// Show the JSON Schema of a definition file
///
/// `job.json` describes files for `belfry submit -f`; `schedule.json`, `service.json`, `workflow.json`,
/// `calendar.json`, `channel.json`, `alert.json`, `monitor.json` and `secret.json` describe files for `belfry apply -f`.
#[utoipa::path(get, path = "/schemas/{name}", tag = "server", params(("name" = String, Path)), responses(
    (status = 200, description = "JSON Schema 2020-12", content_type = "application/schema+json", body = Object),
))]
async fn get_schema(Path(name): Path<String>) -> Result<Response, ApiError> {
    let found = SCHEMAS.iter().find(|(known, _)| *known == name);
    let (_, text) = found.ok_or_else(|| {
        let names: Vec<_> = SCHEMAS.iter().map(|(name, _)| *name).collect();
        ApiError::new(Code::NotFound, format!("schema `{}` does not exist", excerpt(&name)))
            .hint(format!("expected one of `{}`", names.join("`, `")))
    })?;
    let headers = [(CONTENT_TYPE, SCHEMA_JSON), (CACHE_CONTROL, HeaderValue::from_static("no-cache"))];
    Ok((headers, text.clone()).into_response())
}

/// Returns every schema with its file name.
fn all(document: &OpenApi) -> Vec<(&'static str, bytes::Bytes)> {
    let document = serde_json::to_value(document).unwrap_or_default();
    let schemas = &document["components"]["schemas"];
    let job = schemas["JobSpec"].clone();
    let made = [
        ("job.json", alone(schemas, "A job of Belfry", job)),
        ("schedule.json", alone(schemas, "A schedule of Belfry", file("schedule", &schemas["ScheduleSpec"]))),
        ("service.json", alone(schemas, "A service of Belfry", file("service", &schemas["ServiceSpec"]))),
        ("workflow.json", alone(schemas, "A workflow of Belfry", file("workflow", &schemas["WorkflowSpec"]))),
        ("calendar.json", alone(schemas, "A calendar of Belfry", file("calendar", &schemas["CalendarSpec"]))),
        ("channel.json", alone(schemas, "A channel of Belfry", file("channel", &schemas["ChannelSpec"]))),
        ("alert.json", alone(schemas, "An alert rule of Belfry", file("alert", &schemas["AlertRuleSpec"]))),
        ("monitor.json", alone(schemas, "A monitor of Belfry", file("monitor", &schemas["MonitorSpec"]))),
        ("secret.json", alone(schemas, "A secret of Belfry", file("secret", &schemas["SecretSpec"]))),
    ];
    let text = |schema: &Value| serde_json::to_string_pretty(schema).unwrap_or_default() + "\n";
    made.into_iter().map(|(name, schema)| (name, text(&schema).into())).collect()
}

/// Returns the schema of a definition file: metadata next to a `spec` without it.
fn file(kind: &str, spec: &Value) -> Value {
    let mut spec = spec.clone();
    let mut properties = Map::from_iter([
        ("version".to_owned(), json!({"const": 1, "description": "The version of this form."})),
        ("kind".to_owned(), json!({"const": kind, "description": "What is defined."})),
    ]);
    let mut required: Vec<Value> = vec!["kind".into(), "name".into(), "spec".into()];
    if let Some(own) = spec["properties"].as_object_mut() {
        for name in METADATA {
            properties.extend(own.remove(name).map(|property| (name.to_owned(), property)));
        }
    }
    if let Some(own) = spec["required"].as_array_mut() {
        own.retain(|name| !METADATA.iter().any(|known| name == known));
        if own.is_empty() {
            required.retain(|name| name != "spec");
        }
    }
    let about = spec["description"].clone();
    properties.insert("spec".to_owned(), spec);
    json!({
        "type": "object", "description": about, "properties": properties, "required": required,
        "additionalProperties": false,
    })
}

/// Returns a schema that includes everything that it refers to.
fn alone(schemas: &Value, title: &str, mut schema: Value) -> Value {
    let mut defs = Map::new();
    let mut open: Vec<String> = references(&schema).into_iter().collect();
    while let Some(name) = open.pop() {
        if !defs.contains_key(&name) {
            let found = schemas[&name].clone();
            open.extend(references(&found));
            defs.insert(name, found);
        }
    }
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema".into();
    schema["title"] = title.into();
    schema["$defs"] = Value::Object(defs);
    relink(&mut schema);
    schema
}

fn references(schema: &Value) -> BTreeSet<String> {
    match schema {
        Value::Object(fields) => {
            let own = fields.get("$ref").and_then(Value::as_str).and_then(|link| link.rsplit('/').next());
            let inner = fields.values().flat_map(references);
            own.map(str::to_owned).into_iter().chain(inner).collect()
        }
        Value::Array(items) => items.iter().flat_map(references).collect(),
        _ => BTreeSet::new(),
    }
}

fn relink(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            if let Some(Value::String(link)) = fields.get_mut("$ref") {
                *link = link.replace("#/components/schemas/", "#/$defs/");
            }
            fields.values_mut().for_each(relink);
        }
        Value::Array(items) => items.iter_mut().for_each(relink),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Folder of the checked-in schemas, for editors.
    const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/schemas");

    /// The checked-in copies match the code. `BELFRY_UPDATE=1` writes them again.
    #[test]
    fn the_checked_in_schemas_match_the_code() {
        for (name, made) in all(&document()) {
            let path = std::path::Path::new(FOLDER).join(name);
            if std::env::var_os("BELFRY_UPDATE").is_some() {
                std::fs::create_dir_all(FOLDER).unwrap();
                std::fs::write(&path, &made).unwrap();
            }
            let kept = std::fs::read(&path).unwrap_or_default();
            assert!(kept == made, "docs/schemas/{name} is out of date: run this test with BELFRY_UPDATE=1");
        }
    }

    fn validator(name: &str) -> jsonschema::Validator {
        let all = all(&document());
        let (_, text) = all.iter().find(|(known, _)| *known == name).unwrap();
        jsonschema::validator_for(&serde_json::from_slice(text).unwrap()).unwrap()
    }

    #[test]
    fn a_schema_is_self_contained_and_rejects_what_the_server_rejects() {
        let schedule = validator("schedule.json");
        let file = json!({
            "version": 1, "kind": "schedule", "name": "nightly",
            "spec": {
                "timing": {"rules": [{"cron": "0 2 * * *"}, {"every": {"period": "15m"}}], "exclude": [{"calendar": "belfry.cn-holidays"}]},
                "job": {"run": {"process": {"command": ["true"]}}},
            },
        });
        assert!(
            schedule.is_valid(&file),
            "{:?}",
            schedule.iter_errors(&file).map(|e| e.to_string()).collect::<Vec<_>>()
        );
        for (path, value) in
            [("/kind", json!("job")), ("/spec/job/run", json!({})), ("/spec/jitters", json!(1))]
        {
            let mut wrong = file.clone();
            let (parent, field) = path.rsplit_once('/').unwrap();
            wrong.pointer_mut(parent).unwrap()[field] = value;
            assert!(!schedule.is_valid(&wrong), "{path}");
        }
        assert!(validator("job.json").is_valid(&json!({"run": {"process": {"command": ["true"]}}})));
        let calendar =
            json!({"kind": "calendar", "name": "a", "spec": {"steps": [{"include": {"all": {}}}]}});
        assert!(validator("calendar.json").is_valid(&calendar));
    }
}
