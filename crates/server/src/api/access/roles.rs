//! Roles: list, show, define, delete.

use access::Change;
use axum::extract::State;
use axum::http::StatusCode;
use axum::{Extension, Json};
use model::api::{PutRole, Role, RoleRule, Roles};
use model::limits::BODY_BYTES_MAX;
use utoipa_axum::routes;

use super::change;
use crate::api::Api;
use crate::api::extract::{Path, RawBody};
use crate::api::problem::{ApiError, Code, excerpt};
use crate::api::routes::Routes;
use crate::auth::{Actor, Resource, Verb};

pub(super) fn routes(routes: &mut Routes) {
    routes.needs_account(&[], routes!(list_roles));
    routes.needs_account(&[Code::RoleNotFound], routes!(get_role));
    let put =
        [Code::RoleBuiltIn, Code::Escalation, Code::LastAdmin, Code::InvalidSpec, Code::UnsupportedMediaType];
    routes.needs(Verb::Change, Resource::Access, &put, routes!(put_role));
    routes.of_each_server();
    let delete = [Code::RoleNotFound, Code::RoleBuiltIn, Code::RoleInUse];
    routes.needs(Verb::Delete, Resource::Access, &delete, routes!(delete_role));
    routes.of_each_server();
}

fn shown(role: access::Role<'_>) -> Role {
    let rules = role.rules().into_iter();
    Role {
        name: role.name().to_owned(),
        built_in: role.is_built_in(),
        description: role.description().map(str::to_owned),
        rules: rules.map(|rule| RoleRule { verbs: rule.verbs, resources: rule.resources }).collect(),
    }
}

/// List roles: built-in roles first, then custom roles by name
#[utoipa::path(get, path = "/api/v1/roles", tag = "access", responses(
    (status = 200, description = "The roles", body = Roles),
))]
async fn list_roles(State(api): State<Api>) -> Json<Roles> {
    Json(Roles { items: api.access.read(|directory| directory.roles().map(shown).collect()) })
}

/// Show a role
#[utoipa::path(get, path = "/api/v1/roles/{name}", tag = "access", params(("name" = String, Path)), responses(
    (status = 200, description = "The role", body = Role),
))]
async fn get_role(State(api): State<Api>, Path(name): Path<String>) -> Result<Json<Role>, ApiError> {
    find(&api, &name).map(Json)
}

fn find(api: &Api, name: &str) -> Result<Role, ApiError> {
    let found = api.access.read(|directory| directory.role(name).map(shown));
    found.ok_or_else(|| ApiError::new(Code::RoleNotFound, format!("role `{}` does not exist", excerpt(name))))
}

/// Create or replace a custom role
///
/// A change applies at once to all accounts that have the role. You need all permissions of the role yourself, in all
/// namespaces.
#[utoipa::path(put, path = "/api/v1/roles/{name}", tag = "access", params(("name" = String, Path)),
    request_body(content = PutRole, example = json!({
        "description": "Starts and cancels jobs, and reads their logs",
        "rules": [
            {"verbs": ["read", "operate"], "resources": ["jobs", "runs"]},
            {"verbs": ["read"], "resources": ["executions", "logs", "events"]},
        ],
    })),
    responses((status = 200, description = "The role", body = Role))
)]
async fn put_role(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Path(name): Path<String>,
    body: RawBody<BODY_BYTES_MAX>,
) -> Result<Json<Role>, ApiError> {
    let PutRole { description, rules } = body.format.parse(&body.bytes)?;
    let rules = rules.into_iter().map(|rule| access::Rule { verbs: rule.verbs, resources: rule.resources });
    let rules = rules.collect();
    change(&api, &actor, Change::PutRole { name: name.clone(), description, rules }).await?;
    tracing::info!(role = name, by = %actor.name, "role created or changed");
    find(&api, &name).map(Json)
}

/// Delete a custom role
///
/// Refused while an account has the role, or a usable token is limited to it.
#[utoipa::path(delete, path = "/api/v1/roles/{name}", tag = "access", params(("name" = String, Path)), responses(
    (status = 204, description = "Deleted"),
))]
async fn delete_role(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Path(name): Path<String>,
) -> Result<StatusCode, ApiError> {
    change(&api, &actor, Change::DeleteRole { name: name.clone() }).await?;
    tracing::info!(role = name, by = %actor.name, "role deleted");
    Ok(StatusCode::NO_CONTENT)
}
