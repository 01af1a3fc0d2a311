//! Second factors of logins with passwords: turn on and turn off. `second_factor` checks them.
//!
//! A person turns it on in two steps: the server returns a secret for the authenticator app, and the person sends the first
//! code. The secret is in the response and, sealed, in a text that the person sends back, so an unfinished start leaves
//! nothing behind. In the store, the secret is encrypted with the key of `server.secret_key_file`.

use access::{Change, PasswordHash, Refusal, TokenHash};
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CACHE_CONTROL;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use model::api::{DeleteTotp, PasswordText, PutTotp, RecoveryCodes, StartTotp, StartedTotp};
use model::limits::LOGIN_BODY_BYTES_MAX;
use model::{Duration, Timestamp};
use serde::{Deserialize, Serialize};
use utoipa_axum::routes;

use super::Api;
use super::access::{note, refused};
use super::extract::RawBody;
use super::login::{invalid, own_hash, verify_own};
use super::problem::{ApiError, Code};
use super::routes::Routes;
use super::second_factor::{context, seconds};
use crate::auth::{Actor, ChangeError, TotpSecret, recovery_codes, recovery_hash};
use crate::clock::{Clock, SystemClock};
use crate::seal::Sealer;

/// Time between the start and the first code.
const SETUP_FOR: Duration = Duration::from_secs(600);
/// Context of the sealed text between them.
const SETUP: &str = "belfry totp setup v1";

pub(super) fn routes(routes: &mut Routes) {
    let refusals = [
        Code::NoPasswordLogin,
        Code::Escalation,
        Code::LoginThrottled,
        Code::InvalidSpec,
        Code::UnsupportedMediaType,
    ];
    routes.needs_account(&refusals, routes!(start_totp));
    routes.of_each_server();
    routes.needs_account(&refusals, routes!(put_totp));
    routes.of_each_server();
    routes.needs_account(&refusals, routes!(delete_totp));
    routes.of_each_server();
}

/// Second factor that was started.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Setup {
    account: String,
    password: PasswordHash,
    secret: String,
    started_at: Timestamp,
}

/// Start to turn on the second factor of your account
///
/// The response has a new secret for an authenticator app. The second factor is on after `PUT /api/v1/me/totp` with a first
/// code.
#[utoipa::path(post, path = "/api/v1/me/totp", tag = "access",
    request_body(content = StartTotp, example = json!({"password": "correct horse battery staple"})),
    responses((status = 200, description = "The secret", body = StartedTotp))
)]
async fn start_totp(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    body: RawBody<LOGIN_BODY_BYTES_MAX>,
) -> Result<Response, ApiError> {
    let StartTotp { password } = body.format.parse(&body.bytes)?;
    api.access.refresh().await?;
    let hash = own_hash(&api, &actor)?;
    verify_own(&api, &actor, &hash, "password", &password).await?;
    let secret = TotpSecret::generate();
    let setup = Setup {
        account: actor.name.to_string(),
        password: hash,
        secret: secret.text(),
        started_at: SystemClock.now(),
    };
    let setup = serde_json::to_string(&setup).map_err(|error| ApiError::internal(&error))?;
    let started = StartedTotp {
        secret: PasswordText(secret.text()),
        uri: PasswordText(secret.uri(&actor.name)),
        setup: PasswordText(Sealer::with_key(api.keys.logins).seal(SETUP, &setup)),
    };
    Ok(([(CACHE_CONTROL, "no-store")], Json(started)).into_response())
}

/// Turn on the second factor of your account
///
/// Needs the first code of the authenticator app. From now on, a login with the password needs a code. The response has ten
/// recovery codes, each of which replaces a code once. An earlier second factor is replaced. Sessions and tokens stay.
#[utoipa::path(put, path = "/api/v1/me/totp", tag = "access",
    request_body(content = PutTotp, example = json!({"setup": "v1.…", "code": "123456"})),
    responses((status = 200, description = "The recovery codes", body = RecoveryCodes))
)]
async fn put_totp(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    body: RawBody<LOGIN_BODY_BYTES_MAX>,
) -> Result<Response, ApiError> {
    let PutTotp { setup, code } = body.format.parse(&body.bytes)?;
    let now = SystemClock.now();
    let opened = Sealer::with_key(api.keys.logins).open_text(SETUP, &setup.0).ok();
    let setup = opened.and_then(|text| serde_json::from_str::<Setup>(&text).ok());
    let is_own = |setup: &Setup| actor.is_account() && *actor.name == setup.account;
    let setup = setup.filter(|setup| is_own(setup) && now < setup.started_at + SETUP_FOR);
    let expired = || invalid("setup", "has expired: start again");
    let setup = setup.ok_or_else(expired)?;
    let secret = TotpSecret::parse(&setup.secret).ok_or_else(expired)?;
    let step = secret
        .step_of(&code.0, seconds(now), 0)
        .ok_or_else(|| invalid("code", "is wrong: compare the clock of the device with the app"))?;
    let sealed = api.alerts.sealer().seal(&context(&api, &actor.name)?, &setup.secret);
    let codes = recovery_codes();
    let hashes = codes.iter().filter_map(|code| recovery_hash(code)).map(TokenHash).collect();
    actor.note().object(&actor.name);
    let set = Change::SetTotp { password: setup.password, sealed, step, recovery: hashes };
    match api.access.change(actor.identity(), &set).await {
        Ok(changed) => note(&actor, &changed),
        Err(ChangeError::Refused(Refusal::StaleProof)) => return Err(expired()),
        Err(error) => return Err(refused(error)),
    }
    tracing::info!(account = %actor.name, "second factor turned on");
    let codes = RecoveryCodes { codes: codes.into_iter().map(PasswordText).collect() };
    Ok(([(CACHE_CONTROL, "no-store")], Json(codes)).into_response())
}

/// Turn off the second factor of your account
///
/// Needs the password. The recovery codes end too.
#[utoipa::path(post, path = "/api/v1/me/totp/disable", tag = "access",
    request_body(content = DeleteTotp, example = json!({"password": "correct horse battery staple"})),
    responses((status = 204, description = "Turned off"))
)]
async fn delete_totp(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    body: RawBody<LOGIN_BODY_BYTES_MAX>,
) -> Result<StatusCode, ApiError> {
    let DeleteTotp { password } = body.format.parse(&body.bytes)?;
    api.access.refresh().await?;
    let hash = own_hash(&api, &actor)?;
    verify_own(&api, &actor, &hash, "password", &password).await?;
    actor.note().object(&actor.name);
    let delete = Change::DeleteTotp { account: actor.name.to_string(), password: Some(hash) };
    match api.access.change(actor.identity(), &delete).await {
        Ok(changed) => note(&actor, &changed),
        Err(ChangeError::Refused(Refusal::StaleProof)) => return Err(invalid("password", "is wrong")),
        Err(error) => return Err(refused(error)),
    }
    tracing::info!(account = %actor.name, "second factor turned off");
    Ok(StatusCode::NO_CONTENT)
}
