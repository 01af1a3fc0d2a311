//! Role bindings: which account or group has which role in which namespace.

use access::{Change, Refusal, Subject};
use axum::extract::State;
use axum::http::StatusCode;
use axum::{Extension, Json};
use model::api::{Binding, Bindings, PutBinding};
use model::limits::BODY_BYTES_MAX;
use serde::Deserialize;
use utoipa_axum::routes;

use super::{change, check_namespace, note, note_binding, refused};
use crate::api::Api;
use crate::api::extract::{Params, RawBody};
use crate::api::problem::{ApiError, Code, field_error};
use crate::api::routes::Routes;
use crate::auth::{Actor, ChangeError, Resource, Verb};

pub(super) fn routes(routes: &mut Routes) {
    let access = Resource::Access;
    routes.needs(Verb::Read, access, &[], routes!(list_bindings));
    let put = [
        Code::AccountNotFound,
        Code::RoleNotFound,
        Code::Escalation,
        Code::InvalidSpec,
        Code::UnsupportedMediaType,
    ];
    routes.needs(Verb::Change, access, &put, routes!(put_binding));
    routes.of_each_server();
    let delete = [Code::BindingNotFound, Code::LastAdmin];
    routes.needs(Verb::Change, access, &delete, routes!(delete_binding));
    routes.of_each_server();
}

#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
struct ListBindingsParams {
    /// Only bindings of this account.
    account: Option<String>,
    /// Only bindings of this group.
    group: Option<String>,
    /// Only bindings of this role.
    role: Option<String>,
    /// Only bindings in this namespace; `*` for those in all namespaces.
    namespace: Option<String>,
}

fn shown(binding: access::Binding) -> Binding {
    let access::Binding { role, subject, namespace, created_at, created_by } = binding;
    let (account, group) = match subject {
        Subject::Account(name) => (Some(name), None),
        Subject::Group(name) => (None, Some(name)),
    };
    Binding { role, account, group, namespace, created_at, created_by }
}

/// Returns the subject of a request.
///
/// # Errors
/// `invalid_spec` unless the request has either an account or a group.
fn subject(account: Option<String>, group: Option<String>) -> Result<Subject, ApiError> {
    match (account, group) {
        (Some(name), None) => Ok(Subject::Account(name)),
        (None, Some(name)) => Ok(Subject::Group(name)),
        (Some(_), Some(_)) => {
            let wrong = "cannot be set together with `account`";
            Err(ApiError::invalid_fields(vec![field_error("group", wrong)]))
        }
        (None, None) => {
            let wrong = "is required, or `group`";
            Err(ApiError::invalid_fields(vec![field_error("account", wrong)]))
        }
    }
}

/// List role bindings
///
/// A caller with rights in some namespaces sees the bindings in these namespaces only.
#[utoipa::path(get, path = "/api/v1/bindings", tag = "access", params(ListBindingsParams), responses(
    (status = 200, description = "The bindings", body = Bindings),
))]
async fn list_bindings(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Params(params): Params<ListBindingsParams>,
) -> Result<Json<Bindings>, ApiError> {
    match params.namespace.as_deref() {
        None => {}
        Some("*") => actor.check_cluster()?,
        Some(namespace) => actor.check(namespace)?,
    }
    let namespaces = actor.namespaces();
    let is = |asked: &Option<String>, found: &str| asked.as_deref().is_none_or(|asked| asked == found);
    let items = api.access.read(|directory| {
        let all = directory.bindings().filter(|it| namespaces.contains(&it.namespace));
        let wanted = all.filter(|it| {
            let is_of_group = |asked: &str| matches!(&it.subject, Subject::Group(name) if name == asked);
            params.account.as_deref().is_none_or(|asked| it.subject.account() == Some(asked))
                && params.group.as_deref().is_none_or(is_of_group)
                && is(&params.role, &it.role)
                && is(&params.namespace, &it.namespace)
        });
        wanted.map(shown).collect()
    });
    Ok(Json(Bindings { items }))
}

/// Give an account or a group a role in a namespace
///
/// You need all permissions of the role in the namespace yourself. An existing binding is not changed. A group is a group
/// of the OpenID provider: the accounts with the group at their last login have the role.
#[utoipa::path(put, path = "/api/v1/bindings", tag = "access",
    request_body(content = PutBinding, example = json!({"role": "developer", "account": "ann@example.com", "namespace": "finance"})),
    responses((status = 200, description = "The binding", body = Binding))
)]
async fn put_binding(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    body: RawBody<BODY_BYTES_MAX>,
) -> Result<Json<Binding>, ApiError> {
    let PutBinding { role, account, group, namespace } = body.format.parse(&body.bytes)?;
    let subject = subject(account, group)?;
    let bind = Change::Bind { role: role.clone(), subject: subject.clone(), namespace: namespace.clone() };
    note_binding(&actor, &role, &subject, &namespace);
    check_namespace("namespace", &namespace)?;
    match api.access.change(actor.identity(), &bind).await {
        Err(ChangeError::Refused(Refusal::Exists { .. })) => {}
        changed => {
            note(&actor, &changed.map_err(refused)?);
            tracing::info!(role, %subject, namespace, by = %actor.name, "role bound");
        }
    }
    let found = api.access.read(|directory| {
        directory.bindings_of(&subject).find(|it| it.role == role && it.namespace == namespace)
    });
    found.map(shown).map(Json).ok_or_else(|| {
        let detail = format!("role `{role}` of `{subject}` in `{namespace}` was unbound at the same time");
        ApiError::new(Code::BindingNotFound, detail)
    })
}

#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct DeleteBindingParams {
    /// Name of the role.
    role: String,
    /// Name of the account.
    account: Option<String>,
    /// Name of the group.
    group: Option<String>,
    /// Namespace of the binding; `*` for the binding in all namespaces.
    namespace: String,
}

/// Take a role in a namespace from an account or a group
///
/// The accounts lose the rights on every server within a second. Open streams end and start again with the new rights.
#[utoipa::path(delete, path = "/api/v1/bindings", tag = "access", params(DeleteBindingParams), responses(
    (status = 204, description = "Deleted"),
))]
async fn delete_binding(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Params(params): Params<DeleteBindingParams>,
) -> Result<StatusCode, ApiError> {
    let DeleteBindingParams { role, account, group, namespace } = params;
    let subject = match subject(account, group) {
        Ok(subject) => subject,
        Err(_) => return Err(ApiError::parameter("account", "expected either `account` or `group`")),
    };
    note_binding(&actor, &role, &subject, &namespace);
    let unbind =
        Change::Unbind { role: role.clone(), subject: subject.clone(), namespace: namespace.clone() };
    change(&api, &actor, unbind).await?;
    tracing::info!(role, %subject, namespace, by = %actor.name, "role unbound");
    Ok(StatusCode::NO_CONTENT)
}
