//! The caller of a request, and questions about rights.

use access::{Identity, Namespaces, Object};
use axum::extract::State;
use axum::{Extension, Json};
use model::access::{Resource, Verb};
use model::api::{AccessDecision, Me, Right, TokenKind};
use serde::Deserialize;
use utoipa_axum::routes;

use crate::api::Api;
use crate::api::extract::Params;
use crate::api::problem::{ApiError, Code, excerpt};
use crate::api::routes::Routes;
use crate::auth::{Actor, IdentityKind};

pub(super) fn routes(routes: &mut Routes) {
    routes.needs_account(&[], routes!(get_me));
    routes.needs_account(&[Code::AccountNotFound], routes!(check_access));
}

/// Show the caller and its rights
#[utoipa::path(get, path = "/api/v1/me", tag = "access", responses(
    (status = 200, description = "The authenticated caller", body = Me),
))]
async fn get_me(State(api): State<Api>, Extension(actor): Extension<Actor>) -> Json<Me> {
    Json(me(&api, &actor))
}

/// Returns the caller with its rights.
pub(in crate::api) fn me(api: &Api, actor: &Actor) -> Me {
    let (title, has_password, has_totp, groups, session) = api.access.read(|directory| {
        let account = directory.account(&actor.name).filter(|_| actor.is_account());
        let login = directory.login(&actor.name).filter(|_| actor.is_account());
        (
            account.and_then(|account| account.title.clone()),
            login.is_some_and(|login| login.password.is_some()),
            login.is_some_and(|login| login.totp.is_some()),
            login.and_then(|login| login.oidc.as_ref()).map_or(Vec::new(), |it| it.groups.clone()),
            directory.token(&actor.token_id).is_some_and(|token| token.session),
        )
    });
    let kind = match actor.kind {
        IdentityKind::Admin => TokenKind::Admin,
        IdentityKind::Worker => TokenKind::Worker,
        IdentityKind::User => TokenKind::User,
        IdentityKind::Service => TokenKind::Service,
    };
    let (name, rights) = (actor.name.to_string(), rights(actor.identity()));
    Me { name, kind, title, has_password, has_totp, groups, session, rights }
}

fn rights(identity: &Identity) -> Vec<Right> {
    let pairs =
        Resource::ALL.iter().flat_map(|&resource| Verb::ALL.iter().map(move |&verb| (resource, verb)));
    let right = |(resource, verb)| {
        let namespaces = match identity.namespaces(verb, resource) {
            Namespaces::All => vec!["*".to_owned()],
            Namespaces::Some(names) => names.iter().map(|name| name.to_string()).collect(),
        };
        (!namespaces.is_empty()).then_some(Right { resource, verb, namespaces })
    };
    pairs.filter_map(right).collect()
}

#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct CheckAccessParams {
    /// Action.
    #[param(inline)]
    verb: Verb,
    /// Kind of resource.
    #[param(inline)]
    resource: Resource,
    /// Namespace of the resource [default: all namespaces and the cluster itself]
    namespace: Option<String>,
    /// Account to check instead of the caller. Needs the right to read access in the whole cluster.
    account: Option<String>,
}

/// Check whether an action is allowed
///
/// The answer comes from the function that decides about requests. A denial has the reason.
#[utoipa::path(get, path = "/api/v1/access/check", tag = "access", params(CheckAccessParams), responses(
    (status = 200, description = "The decision", body = AccessDecision),
))]
async fn check_access(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Params(params): Params<CheckAccessParams>,
) -> Result<Json<AccessDecision>, ApiError> {
    let identity = match params.account.filter(|account| **account != *actor.name || !actor.is_account()) {
        None => actor.identity().clone(),
        Some(account) => {
            actor.identity().decide(Verb::Read, Object::cluster(Resource::Access))?;
            let found = api.access.read(|directory| directory.identity_of_account(&account));
            found.ok_or_else(|| {
                let detail = format!("account `{}` does not exist or is disabled", excerpt(&account));
                ApiError::new(Code::AccountNotFound, detail)
            })?
        }
    };
    let namespace = params.namespace.as_deref().filter(|namespace| *namespace != "*");
    let decision = identity.decide(params.verb, Object { resource: params.resource, namespace });
    let reason = decision.as_ref().err().map(ToString::to_string);
    Ok(Json(AccessDecision { allowed: decision.is_ok(), reason }))
}
