//! Parts of the OpenAPI document that follow from the table of routes.
//!
//! Handlers describe their successful responses. The refusals of a route follow from its access rule, its parameters
//! and its body, and from the codes in its entry of the table.

use std::collections::{BTreeMap, BTreeSet};

use utoipa::openapi::path::{Operation, ParameterBuilder, ParameterIn};
use utoipa::openapi::schema::Type;
use utoipa::openapi::security::SecurityRequirement;
use utoipa::openapi::{
    ContentBuilder, HttpMethod, ObjectBuilder, PathItem, Ref, RefOr, Required, ResponseBuilder,
};

use super::edge;
use super::gate::Access;
use super::problem::{Code, PROBLEM_JSON};

/// Name of the security scheme.
pub(super) const SCHEME: &str = "token";

/// Returns the operations of a path, with their methods.
pub(super) fn each_mut(item: &mut PathItem) -> impl Iterator<Item = (HttpMethod, &mut Operation)> {
    [
        (HttpMethod::Get, &mut item.get),
        (HttpMethod::Put, &mut item.put),
        (HttpMethod::Post, &mut item.post),
        (HttpMethod::Delete, &mut item.delete),
        (HttpMethod::Patch, &mut item.patch),
    ]
    .into_iter()
    .filter_map(|(method, operation)| Some((method, operation.as_mut()?)))
}

/// Adds to an operation what follows from the entry of its route.
pub(super) fn document(
    access: Access,
    method: &HttpMethod,
    path: &str,
    operation: &mut Operation,
    refusals: &[Code],
) {
    let codes = codes(access, method, path, operation, refusals);
    add_refusals(operation, &codes);
    // An empty list means that a route needs no token; a missing list would be ambiguous.
    let by_token = || SecurityRequirement::new::<_, _, String>(SCHEME, []);
    operation.security = Some((access != Access::Open).then(by_token).into_iter().collect());
    add_conditions(method, path, operation);
}

/// Adds the 304 response to `If-None-Match`, if the `ETag` of the route changes with every byte.
fn add_conditions(method: &HttpMethod, path: &str, operation: &mut Operation) {
    if *method != HttpMethod::Get || !edge::etag_covers_body(path) {
        return;
    }
    let parameter = ParameterBuilder::new()
        .name("If-None-Match")
        .parameter_in(ParameterIn::Header)
        .required(Required::False)
        .description(Some("An `ETag` from before: 304 if it is still right"))
        .schema(Some(ObjectBuilder::new().schema_type(Type::String)))
        .build();
    operation.parameters.get_or_insert_default().push(RefOr::T(parameter));
    let unchanged = ResponseBuilder::new().description("It is still what `If-None-Match` names").build();
    operation.responses.responses.insert("304".to_owned(), RefOr::T(unchanged));
}

/// Returns every code that a route may refuse with.
fn codes(
    access: Access,
    method: &HttpMethod,
    path: &str,
    operation: &Operation,
    own: &[Code],
) -> BTreeSet<Code> {
    let mut codes = BTreeSet::from_iter(own.iter().copied());
    codes.extend([Code::HostNotAllowed, Code::MethodNotAllowed, Code::UriTooLong, Code::Internal]);
    if access != Access::Open {
        codes.extend([
            Code::Unauthenticated,
            Code::ClientLimit,
            Code::Busy,
            Code::Forbidden,
            Code::CrossSite,
            Code::StoreUnavailable,
        ]);
    }
    let parameters = operation.parameters.iter().flatten();
    if path.contains('{') || parameters.count() > 0 {
        codes.insert(Code::InvalidParameter);
    }
    if operation.request_body.is_some() {
        codes.extend([Code::MalformedBody, Code::RequestTimeout, Code::BodyTooLarge]);
    }
    if access != Access::Open && *method != HttpMethod::Get {
        codes.extend([Code::OutcomeUnknown, Code::Loading, Code::Stopping, Code::StorageFull]);
    }
    codes
}

/// Adds a response for each status of these codes.
fn add_refusals(operation: &mut Operation, codes: &BTreeSet<Code>) {
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
