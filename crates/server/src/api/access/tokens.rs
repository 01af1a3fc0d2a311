//! Tokens: create, list, revoke.
//!
//! Everyone manages the tokens of the own account. Tokens of other accounts, and tokens of administrators and workers,
//! need rights on access in the whole cluster.

use access::{Bearer, Change, TokenScope};
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::{CACHE_CONTROL, LOCATION};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use model::api::{CreateToken, CreatedToken, Token, TokenKind, TokenStatus, Tokens};
use model::limits::BODY_BYTES_MAX;
use model::{Duration, Timestamp};
use serde::Deserialize;
use utoipa_axum::routes;

use super::{change, check_namespace, revoke};
use crate::api::Api;
use crate::api::extract::{Many, Params, Path, RawBody};
use crate::api::problem::{ApiError, Code, excerpt, field_error};
use crate::api::routes::Routes;
use crate::auth::{Actor, IdentityKind, Resource, Verb, token};
use crate::clock::{Clock, SystemClock};

/// Default lifetime of a token of an account.
const LIFETIME: Duration = Duration::from_hours(24 * 90);

pub(super) fn routes(routes: &mut Routes) {
    routes.needs_account(&[], routes!(list_tokens));
    let create = [
        Code::AccountNotFound,
        Code::RoleNotFound,
        Code::Escalation,
        Code::TokenLimit,
        Code::InvalidSpec,
        Code::UnsupportedMediaType,
    ];
    routes.needs_account(&create, routes!(create_token));
    routes.of_each_server();
    routes.needs_account(&[Code::TokenNotFound], routes!(get_token));
    routes.needs_account(&[Code::TokenNotFound, Code::LastAdmin], routes!(revoke_token));
    routes.of_each_server();
}

#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
struct ListTokensParams {
    /// Only tokens of this bearer: an account, or the name of an admin or worker token.
    name: Option<String>,
    /// Kinds to list, separated by commas.
    #[param(value_type = Option<String>, example = "admin,worker")]
    kind: Many<TokenKind>,
    /// Whether to list only sessions, or only tokens that are no sessions [default: both]
    session: Option<bool>,
    /// Statuses to list, separated by commas [default: active]
    #[param(value_type = Option<String>, example = "active,expired,revoked")]
    status: Many<TokenStatus>,
}

/// List tokens, newest first
///
/// Without the right to read access in the whole cluster, the list has the tokens of your own account. Ended tokens are
/// kept for 30 days.
#[utoipa::path(get, path = "/api/v1/tokens", tag = "access", params(ListTokensParams), responses(
    (status = 200, description = "The tokens", body = Tokens),
))]
async fn list_tokens(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Params(params): Params<ListTokensParams>,
) -> Json<Tokens> {
    let now = SystemClock.now();
    let statuses = if params.status.0.is_empty() { vec![TokenStatus::Active] } else { params.status.0 };
    let mut items: Vec<Token> = api.access.read(|directory| {
        let visible = directory.tokens().filter(|found| can_see(&actor, found));
        let shown = visible.map(|found| shown(directory, found, now));
        shown
            .filter(|found| params.name.as_ref().is_none_or(|name| *name == found.name))
            .filter(|found| params.kind.0.is_empty() || params.kind.0.contains(&found.kind))
            .filter(|found| params.session.is_none_or(|session| session == found.session))
            .filter(|found| statuses.contains(&found.status))
            .collect()
    });
    items.sort_by(|a, b| b.created_at.cmp(&a.created_at).then_with(|| a.id.cmp(&b.id)));
    Json(Tokens { items })
}

/// Returns whether the caller may see a token: that of its own account, or with the right to read access in the cluster.
fn can_see(actor: &Actor, found: &access::Token) -> bool {
    let is_own =
        matches!(&found.bearer, Bearer::Account(name) if **name == *actor.name && actor.is_account());
    is_own || actor.may_on_cluster(Verb::Read, Resource::Access)
}

/// Returns a token as the API shows it.
pub(in crate::api) fn shown(directory: &access::Directory, found: &access::Token, now: Timestamp) -> Token {
    let kind = match &found.bearer {
        Bearer::Admin(_) => TokenKind::Admin,
        Bearer::Worker(_) => TokenKind::Worker,
        Bearer::Account(name) => match directory.account(name).map(|account| account.kind) {
            Some(model::access::AccountKind::Service) => TokenKind::Service,
            _ => TokenKind::User,
        },
    };
    let status = match found.revoked_at {
        Some(_) => TokenStatus::Revoked,
        None if found.is_usable(now) => TokenStatus::Active,
        None => TokenStatus::Expired,
    };
    Token {
        id: found.id.clone(),
        kind,
        name: found.bearer.name().to_owned(),
        description: found.description.clone(),
        role: found.scope.as_ref().and_then(|scope| scope.role.clone()),
        namespaces: found.scope.as_ref().map(|scope| scope.namespaces.clone()).unwrap_or_default(),
        session: found.session,
        status,
        created_at: found.created_at,
        created_by: found.created_by.clone(),
        expires_at: found.expires_at,
        revoked_at: found.revoked_at,
    }
}

/// Create a token
///
/// The response has the secret; the server keeps only its hash. A token has the rights of its account, as they are at
/// the time of each request; `role` and `namespaces` limit it further.
#[utoipa::path(post, path = "/api/v1/tokens", tag = "access",
    request_body(content = CreateToken, example = json!({"description": "laptop", "expires_in": "720h"})),
    responses((status = 201, description = "The token with its secret", body = CreatedToken, headers(
        ("Location" = String, description = "The token"),
    )))
)]
async fn create_token(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    body: RawBody<BODY_BYTES_MAX>,
) -> Result<Response, ApiError> {
    let asked: CreateToken = body.format.parse(&body.bytes)?;
    for (index, namespace) in asked.namespaces.iter().enumerate() {
        check_namespace(&format!("namespaces[{index}]"), namespace)?;
    }
    let (bearer, kind) = bearer(&api, &actor, &asked)?;
    let now = SystemClock.now();
    let default = matches!(bearer, Bearer::Account(_)).then_some(now + LIFETIME);
    let expires_at = match asked.expires_in {
        Some(lifetime) => Some(now + lifetime),
        // A limited token cannot create a token that outlives it.
        None => default.into_iter().chain(own_end(&api, &actor)).min(),
    };
    let scope = (asked.role.is_some() || !asked.namespaces.is_empty())
        .then_some(TokenScope { role: asked.role, namespaces: asked.namespaces });
    let secret = token::generate(kind);
    let parsed = token::parse(&secret).expect("the text was generated, so it is well formed");
    let id = parsed.id.to_owned();
    let create = Change::CreateToken {
        id: id.clone(),
        hash: parsed.hash().into(),
        bearer,
        description: asked.description,
        scope,
        expires_at,
    };
    change(&api, &actor, create).await?;
    tracing::info!(token_id = id, by = %actor.name, "token created");
    let found = api.access.read(|directory| directory.token(&id).map(|found| shown(directory, found, now)));
    let token = found.ok_or_else(|| no_token(&id))?;
    let headers = [(LOCATION, format!("/api/v1/tokens/{id}")), (CACHE_CONTROL, "no-store".to_owned())];
    Ok((StatusCode::CREATED, headers, Json(CreatedToken { secret, token })).into_response())
}

/// Returns the end of the token that sent the request, if it is limited.
fn own_end(api: &Api, actor: &Actor) -> Option<Timestamp> {
    api.access
        .read(|directory| directory.token(&actor.token_id).filter(|own| own.scope.is_some())?.expires_at)
}

/// Returns the bearer of a new token.
fn bearer(api: &Api, actor: &Actor, asked: &CreateToken) -> Result<(Bearer, IdentityKind), ApiError> {
    let invalid = |path: &str, wrong: &str| Err(ApiError::invalid_fields(vec![field_error(path, wrong)]));
    let name = || asked.name.clone();
    match asked.kind {
        Some(TokenKind::Admin | TokenKind::Worker) if asked.account.is_some() => {
            return invalid("account", "cannot be combined with the kind `admin` or `worker`");
        }
        Some(TokenKind::Admin) => {
            return Ok((Bearer::Admin(name().unwrap_or_else(|| "admin".into())), IdentityKind::Admin));
        }
        Some(TokenKind::Worker) => {
            return Ok((Bearer::Worker(name().unwrap_or_else(|| "worker".into())), IdentityKind::Worker));
        }
        _ if asked.name.is_some() => {
            return invalid("name", "is only for the kinds `admin` and `worker`: expected `account`");
        }
        _ => {}
    }
    let account = match &asked.account {
        Some(account) => account.clone(),
        None if actor.is_account() => actor.name.to_string(),
        None => {
            let wrong = "is missing: your own token has no account, so name one, or set `kind`";
            return invalid("account", wrong);
        }
    };
    let found = api.access.read(|directory| directory.account(&account).map(|account| account.kind));
    let (own, expected) = match found {
        Some(model::access::AccountKind::Service) => (IdentityKind::Service, TokenKind::Service),
        // Whether it exists is not told before the rights are checked.
        _ => (IdentityKind::User, TokenKind::User),
    };
    let is_own = actor.is_account() && account == *actor.name;
    let may_know = is_own || actor.may_on_cluster(Verb::Create, Resource::Access);
    if asked.kind.is_some_and(|kind| kind != expected) && found.is_some() && may_know {
        return invalid("kind", &format!("is not that of the account `{account}`: expected `{expected}`"));
    }
    Ok((Bearer::Account(account), own))
}

/// Show a token, without its secret
#[utoipa::path(get, path = "/api/v1/tokens/{id}", tag = "access", params(("id" = String, Path)), responses(
    (status = 200, description = "The token", body = Token),
))]
async fn get_token(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Path(id): Path<String>,
) -> Result<Json<Token>, ApiError> {
    let now = SystemClock.now();
    let found = api.access.read(|directory| {
        let found = directory.token(&id).filter(|found| can_see(&actor, found));
        found.map(|found| shown(directory, found, now))
    });
    found.map(Json).ok_or_else(|| no_token(&id))
}

fn no_token(id: &str) -> ApiError {
    ApiError::new(Code::TokenNotFound, format!("token `{}` does not exist", excerpt(id)))
}

/// Revoke a token
///
/// The token is refused on every server within a second, its browser sessions end, and its streams end. Repeating the
/// request changes nothing.
#[utoipa::path(delete, path = "/api/v1/tokens/{id}", tag = "access", params(("id" = String, Path)), responses(
    (status = 204, description = "Revoked"),
))]
async fn revoke_token(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Path(id): Path<String>,
) -> Result<StatusCode, ApiError> {
    let is_visible = api.access.read(|directory| directory.token(&id).is_some_and(|it| can_see(&actor, it)));
    if !is_visible {
        return Err(no_token(&id));
    }
    revoke(&api, &actor, &id).await?;
    Ok(StatusCode::NO_CONTENT)
}
