//! The OpenAPI document, generated from the table of routes, so that it cannot differ from the API.
//!
//! `operations` adds to each handler's description what follows from the entry of its route. This module adds metadata,
//! and corrects the generated schemas: names get their pattern, parameters are never `null`, and lists refer to the
//! schema of their items.

use std::collections::BTreeSet;

use model::JobSpec;
use utoipa::openapi::schema::{
    AdditionalProperties, ArrayItems, Components, OneOfBuilder, Schema, SchemaType, Type,
};
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityScheme};
use utoipa::openapi::tag::TagBuilder;
use utoipa::openapi::{InfoBuilder, LicenseBuilder, ObjectBuilder, OpenApi, Ref, RefOr, ServerBuilder};
use utoipa::{PartialSchema, ToSchema};

use super::operations::{self, SCHEME};
use super::routes::Routes;

const DESCRIPTION: &str = "\
Belfry runs jobs on many machines. This is its REST API.\n\n\
Send `Authorization: Bearer TOKEN`; the first admin token is in the server's data folder, in \
`admin-token`. Bodies are JSON (jobs also YAML) with names in snake_case; times are RFC 3339 in UTC, \
durations are text such as `90s`. Unknown fields of a request are refused; unknown fields of an answer \
are to be ignored. Every refusal is a problem document (RFC 9457) with a stable `code`; \
`/docs/problems` lists them; only a request whose head is larger than 64 KiB gets a bare 431. Artifacts, \
checkpoints and this document are left out (304) if `If-None-Match` names their `ETag`. Lists have pages: send `next_cursor` back as `cursor`, with the same \
filter, until there is none.";

const TAGS: &[(&str, &str)] = &[
    ("jobs", "Units of work with all their executions."),
    ("executions", "Attempts of jobs on workers."),
    ("logs", "Output of executions."),
    ("events", "Changes of all objects, as a stream or in pages."),
    ("servers", "The servers that share the store."),
    ("workers", "The machines that run executions."),
    ("queues", "Queues of waiting jobs, with their limits."),
    ("namespaces", "Quotas of namespaces, and what their jobs use."),
    ("schedules", "Named rules that create jobs, and the outcome of each scheduled time."),
    ("services", "Long-running jobs that are kept at a number of replicas."),
    ("workflows", "DAGs of steps that decide which jobs exist and when."),
    ("runs", "Runs of workflows, their steps and approvals."),
    ("backfills", "Backfills of past schedule ranges."),
    ("alerts", "Alert rules, alerts, channels, silences and notifications."),
    ("monitors", "Monitors of jobs that Belfry does not run, and their pings."),
    ("secrets", "Secrets of jobs, without their values."),
    ("calendars", "Named sets of days that schedules refer to."),
    ("artifacts", "Files that jobs read and store."),
    ("statistics", "What happened over time, and by namespace, queue, job name, schedule and worker."),
    ("failures", "Failures of jobs, grouped by their signature."),
    ("access", "Accounts, roles, role bindings and tokens."),
    ("audit", "The audit log: who did what, from where, and with which outcome."),
    ("server", "The server itself."),
];

/// Returns the OpenAPI 3.1 document of these routes.
pub(super) fn document(routes: Routes) -> OpenApi {
    let mut document = routes.into_openapi();
    document.info = InfoBuilder::new()
        .title("Belfry")
        .version(env!("CARGO_PKG_VERSION"))
        .description(Some(DESCRIPTION))
        .license(Some(LicenseBuilder::new().name("Apache-2.0").identifier(Some("Apache-2.0")).build()))
        .build();
    let tags =
        TAGS.iter().map(|(name, about)| TagBuilder::new().name(*name).description(Some(*about)).build());
    document.tags = Some(tags.collect());
    document.servers = Some(vec![ServerBuilder::new().url("/").description(Some("This server")).build()]);
    for operation in document.paths.paths.values_mut().flat_map(operations::each_mut) {
        for parameter in operation.1.parameters.iter_mut().flatten() {
            if let RefOr::T(parameter) = parameter {
                parameter.schema.iter_mut().for_each(never_null);
            }
        }
    }
    let components = document.components.get_or_insert_with(Components::new);
    add_problem(components);
    open_flattened(components);
    tighten(components);
    refer_to_items(components);
    components.add_security_scheme(SCHEME, SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer)));
    document
}

fn add_problem(components: &mut Components) {
    let mut schemas = vec![(model::api::Problem::name().into_owned(), model::api::Problem::schema())];
    model::api::Problem::schemas(&mut schemas);
    components.schemas.extend(schemas);
}

/// Lets a flattened spec have the fields around it, although the spec alone refuses unknown fields. Otherwise, no value
/// would match the schema.
fn open_flattened(components: &mut Components) {
    let known = components.schemas.clone();
    for schema in components.schemas.values_mut() {
        let RefOr::T(Schema::AllOf(parts)) = schema else { continue };
        for part in &mut parts.items {
            let RefOr::Ref(link) = part else { continue };
            let name = link.ref_location.rsplit('/').next().unwrap_or_default();
            let Some(RefOr::T(Schema::Object(spec))) = known.get(name) else { continue };
            if matches!(spec.additional_properties.as_deref(), Some(AdditionalProperties::FreeForm(false))) {
                let mut open = spec.clone();
                open.additional_properties = None;
                *part = RefOr::T(Schema::Object(open));
            }
        }
    }
}

/// A parameter is present or absent; it cannot be `null`.
fn never_null(schema: &mut RefOr<Schema>) {
    match schema {
        RefOr::T(Schema::Object(object)) => not_null(&mut object.schema_type),
        RefOr::T(Schema::Array(array)) => not_null(&mut array.schema_type),
        RefOr::T(Schema::OneOf(either)) => {
            let is_null = |item: &RefOr<Schema>| matches!(item, RefOr::T(Schema::Object(object)) if object.schema_type == SchemaType::Type(Type::Null));
            either.items.retain(|item| !is_null(item));
            if let [only] = &*either.items {
                *schema = only.clone();
            }
        }
        _ => {}
    }
}

fn not_null(schema_type: &mut SchemaType) {
    if let SchemaType::Array(types) = schema_type {
        types.retain(|each| *each != Type::Null);
        if let [only] = types.as_slice() {
            *schema_type = SchemaType::Type(only.clone());
        }
    }
}

/// Fields of bodies that are names, by schema.
const NAMES: &[(&str, &[&str])] = &[
    ("JobSpec", &["name", "namespace", "queue"]),
    ("JobPatch", &["name", "queue"]),
    ("ScheduleSpec", &["name", "namespace"]),
    ("WorkflowSpec", &["name", "namespace"]),
    ("CalendarSpec", &["name", "namespace"]),
    ("MonitorSpec", &["name", "namespace"]),
    ("SecretSpec", &["name", "namespace"]),
    ("StepSpec", &["name"]),
    ("OutputFile", &["artifact"]),
];

/// Adds constraints of single fields to the schemas of bodies, as validation enforces them.
fn tighten(components: &mut Components) {
    for (schema, fields) in NAMES {
        let Some(RefOr::T(schema)) = components.schemas.get_mut(*schema) else { continue };
        for field in *fields {
            name_pattern(schema, field);
        }
    }
}

fn name_pattern(schema: &mut Schema, field: &str) {
    match schema {
        Schema::Object(object) => {
            if let Some(RefOr::T(Schema::Object(field))) = object.properties.get_mut(field) {
                field.pattern = Some("^[A-Za-z0-9][A-Za-z0-9._-]*$".to_owned());
                field.min_length = Some(1);
                field.max_length = Some(model::limits::NAME_LEN_MAX);
            }
        }
        Schema::AllOf(parts) => {
            for part in &mut parts.items {
                if let RefOr::T(part) = part {
                    name_pattern(part, field);
                }
            }
        }
        _ => {}
    }
}

/// Replaces the inline schema of a list's items by a reference to the schema of the item.
fn refer_to_items(components: &mut Components) {
    let known: BTreeSet<String> = components.schemas.keys().cloned().collect();
    for (name, schema) in &mut components.schemas {
        let (Some(item), RefOr::T(Schema::Object(list))) = (name.strip_prefix("List_"), schema) else {
            continue;
        };
        if let Some(RefOr::T(Schema::Array(items))) = list.properties.get_mut("items")
            && known.contains(item)
        {
            items.items = ArrayItems::RefOrSchema(Box::new(Ref::from_schema_name(item).into()));
        }
    }
}

/// A merge patch on a job: the fields of its spec, none of them required, `null` for the default.
pub(super) struct JobPatch;

impl PartialSchema for JobPatch {
    fn schema() -> RefOr<Schema> {
        let mut schema = JobSpec::schema();
        if let RefOr::T(Schema::Object(object)) = &mut schema {
            object.required.clear();
            object.description = Some("Fields of a job to change; `null` for the default".to_owned());
            // Fields that cannot be changed.
            for fixed in ["namespace", "after", "idempotency_key"] {
                object.properties.remove(fixed);
            }
            object.properties.values_mut().for_each(nullable);
        }
        schema
    }
}

impl ToSchema for JobPatch {
    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        JobSpec::schemas(schemas);
    }
}

fn nullable(schema: &mut RefOr<Schema>) {
    match schema {
        RefOr::T(Schema::Object(object)) => or_null(&mut object.schema_type),
        RefOr::T(Schema::Array(array)) => or_null(&mut array.schema_type),
        RefOr::T(Schema::OneOf(_)) => {}
        other => {
            let null = ObjectBuilder::new().schema_type(Type::Null);
            *other = OneOfBuilder::new().item(null).item(other.clone()).into();
        }
    }
}

fn or_null(schema_type: &mut SchemaType) {
    match schema_type {
        SchemaType::Type(only) if *only != Type::Null => {
            *schema_type = SchemaType::Array(vec![only.clone(), Type::Null]);
        }
        SchemaType::Array(types) if !types.contains(&Type::Null) => types.push(Type::Null),
        _ => {}
    }
}
