//! Invitations, identities at the OpenID provider, and sessions of accounts, for administrators.
//!
//! The person uses the invitation in [`login`](crate::api::login).

use access::Change;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CACHE_CONTROL;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use model::Duration;
use model::api::{CreateInvitation, CreatedInvitation};
use utoipa_axum::routes;

use super::change;
use crate::api::Api;
use crate::api::extract::{MaybeBody, Path};
use crate::api::problem::{ApiError, Code};
use crate::api::routes::Routes;
use crate::auth::{Actor, Resource, Verb, token};
use crate::clock::{Clock, SystemClock};

/// Default lifetime of an invitation.
const LIFETIME: Duration = Duration::from_hours(24 * 3);

pub(super) fn routes(routes: &mut Routes) {
    let access = Resource::Access;
    let invite = [
        Code::AccountNotFound,
        Code::NoPasswordLogin,
        Code::Escalation,
        Code::LastAdmin,
        Code::InvalidSpec,
        Code::UnsupportedMediaType,
    ];
    routes.needs(Verb::Create, access, &invite, routes!(invite_account));
    routes.of_each_server();
    routes.needs(Verb::Delete, access, &[Code::AccountNotFound], routes!(revoke_invitation));
    routes.of_each_server();
    routes.needs(Verb::Delete, access, &[Code::AccountNotFound], routes!(unlink_account));
    routes.of_each_server();
    let refusals = [Code::AccountNotFound, Code::Escalation];
    routes.needs(Verb::Delete, access, &refusals, routes!(reset_totp));
    routes.of_each_server();
    routes.needs_account(&[Code::AccountNotFound], routes!(end_sessions));
    routes.of_each_server();
}

/// Invite a person to set a password
///
/// The response has the secret of the invitation; the server keeps only its hash. The link is the address of the
/// dashboard with `/#invite=SECRET`. It can be used once, and replaces an earlier one. The same request lets a person
/// replace a forgotten password. You need the role `admin` in all namespaces, because with the link you could act as the
/// account.
#[utoipa::path(post, path = "/api/v1/accounts/{name}/invitation", tag = "access", params(("name" = String, Path)),
    request_body(content((Option<CreateInvitation> = "application/json", example = json!({"expires_in": "72h"})))),
    responses((status = 201, description = "The invitation with its secret", body = CreatedInvitation))
)]
async fn invite_account(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Path(name): Path<String>,
    MaybeBody(asked): MaybeBody<CreateInvitation>,
) -> Result<Response, ApiError> {
    let CreateInvitation { expires_in, reset } = asked;
    let expires_at = SystemClock.now() + expires_in.unwrap_or(LIFETIME);
    let secret = token::generate_invitation();
    let parsed = token::parse_invitation(&secret).expect("the text was generated, so it is well formed");
    let (id, hash) = (parsed.id.to_owned(), parsed.hash().into());
    let invite = Change::Invite { account: name.clone(), id: id.clone(), hash, expires_at, reset };
    change(&api, &actor, invite).await?;
    tracing::info!(account = name, invitation_id = id, reset, by = %actor.name, "account invited");
    let created = CreatedInvitation { account: name, secret, expires_at };
    Ok((StatusCode::CREATED, [(CACHE_CONTROL, "no-store")], Json(created)).into_response())
}

/// Revoke the invitation of an account
///
/// The link stops working. The password of the account stays as it is. Repeating the request changes nothing.
#[utoipa::path(delete, path = "/api/v1/accounts/{name}/invitation", tag = "access", params(("name" = String, Path)),
    responses((status = 204, description = "Revoked"))
)]
async fn revoke_invitation(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Path(name): Path<String>,
) -> Result<StatusCode, ApiError> {
    change(&api, &actor, Change::RevokeInvitation { account: name.clone() }).await?;
    tracing::info!(account = name, by = %actor.name, "invitation revoked");
    Ok(StatusCode::NO_CONTENT)
}

/// Unlink an account from its person at the OpenID provider
///
/// The account loses the groups, and its sessions end. At the next login, the person is treated as unknown. Repeating the
/// request changes nothing.
#[utoipa::path(delete, path = "/api/v1/accounts/{name}/oidc", tag = "access", params(("name" = String, Path)),
    responses((status = 204, description = "Unlinked"))
)]
async fn unlink_account(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Path(name): Path<String>,
) -> Result<StatusCode, ApiError> {
    change(&api, &actor, Change::UnlinkOidc { account: name.clone() }).await?;
    tracing::info!(account = name, by = %actor.name, "account unlinked from the OpenID provider");
    Ok(StatusCode::NO_CONTENT)
}

/// Delete the second factor of an account
///
/// The person logs in with the password alone, and can turn it on again. You need the role `admin` in all namespaces.
/// Repeating the request changes nothing.
#[utoipa::path(delete, path = "/api/v1/accounts/{name}/totp", tag = "access", params(("name" = String, Path)),
    responses((status = 204, description = "Deleted"))
)]
async fn reset_totp(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Path(name): Path<String>,
) -> Result<StatusCode, ApiError> {
    change(&api, &actor, Change::DeleteTotp { account: name.clone(), password: None }).await?;
    tracing::info!(account = name, by = %actor.name, "second factor deleted");
    Ok(StatusCode::NO_CONTENT)
}

/// End the sessions of an account
///
/// Every server refuses the sessions within a second. A session that sends the request stays. Tokens stay too. You can
/// end your own sessions; those of others need rights on access in the whole cluster.
#[utoipa::path(delete, path = "/api/v1/accounts/{name}/sessions", tag = "access", params(("name" = String, Path)),
    responses((status = 204, description = "Ended"))
)]
async fn end_sessions(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Path(name): Path<String>,
) -> Result<StatusCode, ApiError> {
    change(&api, &actor, Change::EndSessions { account: name.clone() }).await?;
    tracing::info!(account = name, by = %actor.name, "sessions ended");
    Ok(StatusCode::NO_CONTENT)
}
