//! The OpenAPI document: made from the table of routes, so that it cannot tell of another API.
//!
//! Handlers describe what they answer when all is well. Which refusals a route has follows from what
//! it is (its rights, its parameters, its body), and from the codes that its entry names.

use std::collections::{BTreeMap, BTreeSet};

use utoipa::openapi::path::Operation;
use utoipa::openapi::schema::Components;
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityScheme};
use utoipa::openapi::tag::TagBuilder;
use utoipa::openapi::{
    ContentBuilder, HttpMethod, InfoBuilder, LicenseBuilder, OpenApi, Ref, RefOr, ResponseBuilder,
};
use utoipa::{PartialSchema, ToSchema};

use super::problem::{Code, PROBLEM_JSON};
use super::routes::Access;

/// The name of the way to authenticate.
pub(super) const SCHEME: &str = "token";

const DESCRIPTION: &str = "\
Belfry runs jobs on many machines. This is its REST API.\n\n\
Send `Authorization: Bearer TOKEN`; the first admin token is in the server's data folder, in \
`admin-token`. Bodies are JSON (jobs also YAML) with names in snake_case; times are RFC 3339 in UTC, \
durations are text such as `90s`. Unknown fields of a request are refused; unknown fields of an answer \
are to be ignored. Every refusal is a problem document (RFC 9457) with a stable `code`; \
`/docs/problems` lists them. Lists have pages: send `next_cursor` back as `cursor`, with the same \
filter, until there is none.";

const TAGS: &[(&str, &str)] = &[
    ("jobs", "Units of work that were asked for."),
    ("executions", "The tries of jobs on workers."),
    ("logs", "What executions wrote."),
    ("events", "What happens, as it happens."),
    ("servers", "The servers that share the store."),
    ("workers", "The machines that run executions."),
    ("queues", "Where waiting jobs stand."),
    ("schedules", "Named rules that create jobs, and what became of each of their instants."),
    ("workflows", "DAGs of steps that decide which jobs exist and when."),
    ("runs", "Runs of workflows, their steps, and what is asked of them."),
    ("backfills", "Past ranges of schedules that are made up for."),
    ("calendars", "Named sets of days that schedules refer to."),
    ("artifacts", "Files that jobs bring and leave."),
    ("server", "The server itself."),
];

/// The OpenAPI 3.1 document of the REST API.
pub fn document() -> OpenApi {
    let mut document = super::table().into_openapi();
    document.info = InfoBuilder::new()
        .title("Belfry")
        .version(env!("CARGO_PKG_VERSION"))
        .description(Some(DESCRIPTION))
        .license(Some(LicenseBuilder::new().name("Apache-2.0").identifier(Some("Apache-2.0")).build()))
        .build();
    let tags =
        TAGS.iter().map(|(name, about)| TagBuilder::new().name(*name).description(Some(*about)).build());
    document.tags = Some(tags.collect());
    let components = document.components.get_or_insert_with(Components::new);
    add_problem(components);
    components.add_security_scheme(SCHEME, SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer)));
    document
}

fn add_problem(components: &mut Components) {
    let mut schemas = vec![(model::api::Problem::name().into_owned(), model::api::Problem::schema())];
    model::api::Problem::schemas(&mut schemas);
    components.schemas.extend(schemas);
}

/// Every code that a route may refuse with.
pub(super) fn refusals(
    access: Access,
    method: &HttpMethod,
    path: &str,
    operation: &Operation,
    own: &[Code],
) -> BTreeSet<Code> {
    let mut codes = BTreeSet::from_iter(own.iter().copied());
    codes.extend([Code::HostRefused, Code::MethodNotAllowed, Code::UriTooLong, Code::Busy, Code::Internal]);
    if let Access::Needs(..) = access {
        codes.extend([Code::Unauthenticated, Code::Forbidden, Code::CrossSite, Code::StoreUnavailable]);
    }
    let parameters = operation.parameters.iter().flatten();
    if path.contains('{') || parameters.count() > 0 {
        codes.insert(Code::InvalidParameter);
    }
    if operation.request_body.is_some() {
        codes.extend([Code::MalformedBody, Code::SlowRequest, Code::BodyTooLarge]);
    }
    if let (Access::Needs(..), HttpMethod::Post | HttpMethod::Put | HttpMethod::Patch | HttpMethod::Delete) =
        (access, method)
    {
        codes.extend([Code::OutcomeUnknown, Code::Loading, Code::Stopping, Code::StorageFull]);
    }
    codes
}

/// Adds a response for each status of these codes.
pub(super) fn document_refusals(operation: &mut Operation, codes: &BTreeSet<Code>) {
    let mut by_status: BTreeMap<u16, Vec<&Code>> = BTreeMap::new();
    for code in codes {
        by_status.entry(code.status()).or_default().push(code);
    }
    for (status, codes) in by_status {
        let lines: Vec<_> =
            codes.iter().map(|code| format!("`{}`: {}", code.as_str(), code.title())).collect();
        let content = ContentBuilder::new().schema(Some(Ref::from_schema_name("Problem"))).build();
        let response =
            ResponseBuilder::new().description(lines.join("\n\n")).content(PROBLEM_JSON, content).build();
        operation.responses.responses.insert(status.to_string(), RefOr::T(response));
    }
}
