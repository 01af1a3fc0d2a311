//! Accounts: create, list, show, change, delete.

use std::num::NonZeroU32;

use access::{Binding, Change, Directory, Namespaces, Subject};
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::LOCATION;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use model::access::AccountKind;
use model::api::{
    Account, AccountInvitation, AccountLogin, AccountOidc, Accounts, ChangeAccount, CreateAccount,
    RoleInNamespace,
};
use model::limits::BODY_BYTES_MAX;
use serde::Deserialize;
use utoipa_axum::routes;

use super::change;
use crate::api::Api;
use crate::api::extract::{Params, Path, RawBody};
use crate::api::problem::{ApiError, Code, excerpt};
use crate::api::routes::Routes;
use crate::auth::{Actor, Resource, Verb};
use crate::clock::{Clock, SystemClock};

pub(super) fn routes(routes: &mut Routes) {
    let access = Resource::Access;
    routes.needs(Verb::Read, access, &[], routes!(list_accounts));
    let create = [Code::AccountExists, Code::InvalidSpec, Code::UnsupportedMediaType];
    routes.needs(Verb::Create, access, &create, routes!(create_account));
    routes.of_each_server();
    routes.needs(Verb::Read, access, &[Code::AccountNotFound], routes!(get_account));
    let update = [Code::AccountNotFound, Code::LastAdmin, Code::InvalidSpec, Code::UnsupportedMediaType];
    routes.needs(Verb::Change, access, &update, routes!(change_account));
    routes.of_each_server();
    let delete = [Code::AccountNotFound, Code::LastAdmin];
    routes.needs(Verb::Delete, access, &delete, routes!(delete_account));
    routes.of_each_server();
}

#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
struct ListAccountsParams {
    /// Only accounts whose name or display name contains this text. Letter case is ignored.
    text: Option<String>,
    /// Only accounts that have a role in this namespace, or in all namespaces.
    namespace: Option<String>,
}

/// List accounts, by name
///
/// A caller with rights in some namespaces sees the roles in these namespaces only.
#[utoipa::path(get, path = "/api/v1/accounts", tag = "access", params(ListAccountsParams), responses(
    (status = 200, description = "The accounts", body = Accounts),
))]
async fn list_accounts(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Params(params): Params<ListAccountsParams>,
) -> Result<Json<Accounts>, ApiError> {
    if let Some(namespace) = &params.namespace {
        actor.check(namespace)?;
    }
    let text = params.text.map(|text| text.to_lowercase());
    let has_text = |account: &Account, text: &str| {
        let title = account.title.as_deref().unwrap_or_default();
        account.name.to_lowercase().contains(text) || title.to_lowercase().contains(text)
    };
    let is_in = |account: &Account, namespace: &str| {
        account.roles.iter().any(|role| role.namespace == "*" || role.namespace == namespace)
    };
    let namespaces = actor.namespaces();
    let items = api.access.read(|directory| {
        let sessions = directory.session_counts(SystemClock.now());
        let all = directory.accounts().map(|account| {
            let sessions = sessions.get(account.name.as_str()).copied().unwrap_or_default();
            shown(&api, directory, account, &namespaces, sessions)
        });
        all.map(|account| for_caller(&actor, account))
            .filter(|account| text.as_deref().is_none_or(|text| has_text(account, text)))
            .filter(|account| params.namespace.as_deref().is_none_or(|namespace| is_in(account, namespace)))
            .collect()
    });
    Ok(Json(Accounts { items }))
}

/// Removes the login from an account, unless the caller may read access in the whole cluster, or it is the own account.
fn for_caller(actor: &Actor, account: Account) -> Account {
    let is_own = actor.is_account() && *actor.name == account.name;
    if is_own || actor.may_on_cluster(Verb::Read, Resource::Access) {
        account
    } else {
        Account { login: None, ..account }
    }
}

/// Returns an account with its roles in these namespaces. Roles in all namespaces are always shown: they hold there too.
fn shown(
    api: &Api,
    directory: &Directory,
    account: &access::Account,
    namespaces: &Namespaces,
    sessions: u32,
) -> Account {
    let groups = directory.groups_of(&account.name).iter().cloned().map(Subject::Group);
    let subjects = std::iter::once(Subject::Account(account.name.clone())).chain(groups);
    let bindings = subjects.flat_map(|subject| directory.bindings_of(&subject).collect::<Vec<_>>());
    let visible = bindings.filter(|it| it.namespace == "*" || namespaces.contains(&it.namespace));
    let role = |binding: Binding| RoleInNamespace {
        role: binding.role,
        namespace: binding.namespace,
        group: match binding.subject {
            Subject::Group(name) => Some(name),
            Subject::Account(_) => None,
        },
    };
    let user_default = api.config.limits.submit_rate;
    Account {
        name: account.name.clone(),
        kind: account.kind,
        title: account.title.clone(),
        disabled: account.disabled,
        submit_rate: account.submit_rate,
        jobs_per_minute: account.submit_rate.per_minute(account.kind, user_default).map(NonZeroU32::get),
        login: (account.kind == AccountKind::User).then(|| login(directory, &account.name, sessions)),
        roles: visible.map(role).collect(),
        created_at: account.created_at,
        created_by: account.created_by.clone(),
    }
}

fn login(directory: &Directory, account: &str, sessions: u32) -> AccountLogin {
    let now = SystemClock.now();
    let Some(found) = directory.login(account) else {
        return AccountLogin { sessions, ..AccountLogin::default() };
    };
    let invitation = found.invitation.as_ref().filter(|invitation| now < invitation.expires_at);
    AccountLogin {
        password_set_at: found.password.as_ref().map(|password| password.set_at),
        totp_set_at: found.totp.as_ref().map(|totp| totp.set_at),
        last_login_at: found.last_login_at,
        invitation: invitation.map(|invitation| AccountInvitation {
            created_at: invitation.created_at,
            created_by: invitation.created_by.clone(),
            expires_at: invitation.expires_at,
        }),
        oidc: found.oidc.as_ref().map(|identity| AccountOidc {
            issuer: identity.issuer.clone(),
            subject: identity.subject.clone(),
            groups: identity.groups.clone(),
            linked_at: identity.linked_at,
        }),
        sessions,
    }
}

/// Create an account
///
/// The account has no role, no password and no token yet: bind a role with `PUT /api/v1/bindings`, and create an
/// invitation with `POST /api/v1/accounts/NAME/invitation` or a token with `POST /api/v1/tokens`.
#[utoipa::path(post, path = "/api/v1/accounts", tag = "access",
    request_body(content = CreateAccount, example = json!({"name": "ann@example.com", "kind": "user", "title": "Ann 安"})),
    responses((status = 201, description = "The account", body = Account, headers(
        ("Location" = String, description = "The account"),
    )))
)]
async fn create_account(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    body: RawBody<BODY_BYTES_MAX>,
) -> Result<Response, ApiError> {
    let CreateAccount { name, kind, title, submit_rate } = body.format.parse(&body.bytes)?;
    actor.note().object(&name);
    change(&api, &actor, Change::CreateAccount { name: name.clone(), kind, title, submit_rate }).await?;
    tracing::info!(account = name, %kind, by = %actor.name, "account created");
    let location = [(LOCATION, format!("/api/v1/accounts/{name}"))];
    Ok((StatusCode::CREATED, location, Json(find(&api, &actor, &name)?)).into_response())
}

/// Show an account
#[utoipa::path(get, path = "/api/v1/accounts/{name}", tag = "access", params(("name" = String, Path)), responses(
    (status = 200, description = "The account", body = Account),
))]
async fn get_account(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Path(name): Path<String>,
) -> Result<Json<Account>, ApiError> {
    find(&api, &actor, &name).map(Json)
}

fn find(api: &Api, actor: &Actor, name: &str) -> Result<Account, ApiError> {
    let namespaces = actor.namespaces();
    let found = api.access.read(|directory| {
        let account = directory.account(name)?;
        let sessions = directory.sessions_of(name, SystemClock.now()).count();
        let sessions = u32::try_from(sessions).unwrap_or(u32::MAX);
        Some(shown(api, directory, account, &namespaces, sessions))
    });
    found.map(|account| for_caller(actor, account)).ok_or_else(|| not_found(name))
}

/// Returns the refusal for an account that does not exist.
pub(super) fn not_found(name: &str) -> ApiError {
    ApiError::new(Code::AccountNotFound, format!("account `{}` does not exist", excerpt(name)))
}

/// Change an account
///
/// A disabled account keeps its roles, its password and its tokens, but its tokens and sessions are refused on every server
/// within a second.
#[utoipa::path(patch, path = "/api/v1/accounts/{name}", tag = "access", params(("name" = String, Path)),
    request_body(content = ChangeAccount, example = json!({"disabled": true})),
    responses((status = 200, description = "The updated account", body = Account))
)]
async fn change_account(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Path(name): Path<String>,
    body: RawBody<BODY_BYTES_MAX>,
) -> Result<Json<Account>, ApiError> {
    let ChangeAccount { title, disabled, submit_rate } = body.format.parse(&body.bytes)?;
    let title = title.map(|title| (!title.is_empty()).then_some(title));
    change(&api, &actor, Change::ChangeAccount { name: name.clone(), title, disabled, submit_rate }).await?;
    tracing::info!(account = name, disabled, by = %actor.name, "account changed");
    find(&api, &actor, &name).map(Json)
}

/// Delete an account
///
/// Its role bindings and its password are deleted, and its tokens and sessions are revoked. Jobs, schedules and workflows that it owns continue.
#[utoipa::path(delete, path = "/api/v1/accounts/{name}", tag = "access", params(("name" = String, Path)), responses(
    (status = 204, description = "Deleted"),
))]
async fn delete_account(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Path(name): Path<String>,
) -> Result<StatusCode, ApiError> {
    change(&api, &actor, Change::DeleteAccount { name: name.clone() }).await?;
    tracing::info!(account = name, by = %actor.name, "account deleted");
    Ok(StatusCode::NO_CONTENT)
}
