//! Access control: accounts, roles, role bindings, tokens and logins.
//!
//! The rules are in the crate `access`: [`change`] passes a change to the directory, which checks the rights of the
//! caller and refuses a change that would give rights which the caller does not have. Every server answers these
//! requests itself, so a token can be revoked while there is no leader.
//!
//! - `accounts`: accounts of people and programs.
//! - `roles`: built-in and custom roles.
//! - `bindings`: roles of accounts and groups in namespaces.
//! - `tokens`: tokens of accounts, administrators and workers.
//! - `logins`: invitations and sessions of accounts.
//! - `me`: the caller, its rights, and questions about rights.

mod accounts;
mod bindings;
mod logins;
mod me;
mod roles;
mod tokens;

use access::{Change, Changed, Refusal, Subject};

use super::Api;
use super::problem::{ApiError, Code, excerpt, field_error};
use super::routes::Routes;
use crate::auth::{Actor, ChangeError};

pub(super) use me::me;
pub(super) use tokens::shown as shown_token;

pub(super) fn routes(routes: &mut Routes) {
    accounts::routes(routes);
    roles::routes(routes);
    bindings::routes(routes);
    tokens::routes(routes);
    logins::routes(routes);
    me::routes(routes);
}

/// Revokes a token.
pub(super) async fn revoke(api: &Api, actor: &Actor, id: &str) -> Result<(), ApiError> {
    change(api, actor, Change::RevokeToken { id: id.to_owned() }).await?;
    tracing::info!(token_id = id, by = %actor.name, "token revoked");
    Ok(())
}

/// Makes a change of the directory. It is effective on this server when the function returns, and within a second on
/// all others.
async fn change(api: &Api, actor: &Actor, change: Change) -> Result<(), ApiError> {
    let changed = api.access.change(actor.identity(), &change).await.map_err(refused)?;
    note(actor, &changed);
    Ok(())
}

/// Adds the changed fields of entries to the entry of the audit log.
pub(super) fn note(actor: &Actor, changed: &[Changed]) {
    for Changed { kind, key, old, new } in changed {
        let prefix = if changed.len() == 1 { String::new() } else { format!("{kind}[{key}]") };
        actor.note().changed(&prefix, old.as_ref(), new.as_ref());
    }
}

/// Adds the binding to the entry of the audit log.
fn note_binding(actor: &Actor, role: &str, subject: &Subject, namespace: &str) {
    actor.note().object(format_args!("{role}/{subject}/{namespace}"));
    if namespace != "*" {
        actor.note().namespace(namespace);
    }
}

pub(super) fn refused(error: ChangeError) -> ApiError {
    let refusal = match error {
        ChangeError::Refused(refusal) => refusal,
        ChangeError::Store(error) => return error.into(),
        ChangeError::Revoked => return ApiError::new(Code::Unauthenticated, error.to_string()),
        ChangeError::Contended => return ApiError::new(Code::Busy, error.to_string()),
    };
    let code = match &refusal {
        Refusal::Invalid(invalid) => {
            // A request has the fields of the scope beside the others.
            let path = |path: &str| match path {
                "expires_at" => "expires_in".to_owned(),
                path => path.trim_start_matches("scope.").to_owned(),
            };
            let problems = invalid.problems.iter();
            return ApiError::invalid_fields(
                problems.map(|it| field_error(&path(&it.path), &it.message)).collect(),
            );
        }
        Refusal::Denied(denied) => return denied.clone().into(),
        Refusal::NotFound { what, .. } => not_found(what),
        Refusal::Exists { .. } => Code::AccountExists,
        Refusal::BuiltInRole { .. } => Code::RoleBuiltIn,
        Refusal::RoleInUse { .. } => Code::RoleInUse,
        Refusal::Escalation { .. } | Refusal::WiderScope { .. } | Refusal::LimitedToken { .. } => {
            Code::Escalation
        }
        Refusal::NoLogin { .. } => Code::NoPasswordLogin,
        Refusal::StaleProof => Code::InvitationNotFound,
        Refusal::TokenLimit { .. } => Code::TokenLimit,
        Refusal::LastAdmin { .. } => Code::LastAdmin,
        Refusal::Unreadable { .. } => Code::StoreUnavailable,
        Refusal::SecretLimit { .. } => Code::SecretLimit,
        Refusal::Outdated { .. } => Code::VersionMismatch,
        _ => return ApiError::internal(&refusal),
    };
    ApiError::new(code, refusal.to_string()).hint(refusal.hint())
}

/// Refuses prefixes of namespaces such as `team/*`: no namespace has such a name yet.
fn check_namespace(path: &str, namespace: &str) -> Result<(), ApiError> {
    if !namespace.contains('/') {
        return Ok(());
    }
    let shown = excerpt(namespace);
    let wrong = format!("`{shown}` is not a namespace: expected the name of a namespace, or `*` for all");
    Err(ApiError::invalid_fields(vec![field_error(path, &wrong)]))
}

/// Returns the code for an entry that does not exist.
fn not_found(what: &str) -> Code {
    match what {
        "account" => Code::AccountNotFound,
        "role" => Code::RoleNotFound,
        "binding" => Code::BindingNotFound,
        "secret" => Code::SecretNotFound,
        _ => Code::TokenNotFound,
    }
}
