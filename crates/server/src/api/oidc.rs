//! Logins at an OpenID provider: start, callback of the browser, and exchange of the code of a command line.
//!
//! ```text
//! dashboard     POST start ─> URL, cookie     ┐
//!                                             ├─> provider ─> GET callback ─┬─> session cookie, page
//! command line  GET start  ─> redirect,cookie ┘                             └─> 127.0.0.1:PORT ─> POST exchange ─> secret
//! ```
//!
//! The module `oidc` of the server talks to the provider, and the crate `access` decides about the account. Failures of a
//! callback are shown by the login page or by the command line, so the callback always redirects.
//!
//! # Invariants
//! - A callback without the cookie of its start causes no request to the provider.
//! - A redirect leads to a path of the dashboard, or to the loopback address with the port of a command line.
//! - Each login opens the session whose id was chosen at its start, and the store opens a session once. So neither a
//!   callback nor a code works twice, at any server.

use std::time::Instant;

use access::{Change, Changed, Identity, OidcLink, Refusal, SessionProof};
use audit::Outcome;
use axum::Json;
use axum::extract::State;
use axum::http::header::{CACHE_CONTROL, LOCATION, SET_COOKIE};
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use form_urlencoded::Serializer;
use model::api::{
    ExchangeOidcCode, LoggedIn, LoginMethods, OidcMethod, OidcProblem, StartOidcLogin, StartedOidcLogin,
};
use model::limits::LOGIN_BODY_BYTES_MAX;
use serde::Deserialize;
use utoipa_axum::routes;

use super::extract::{Params, RawBody};
use super::login::{
    Client, Opened, complete, no_invitation, open, respond, session_cookies, throttled, with_changes,
};
use super::problem::{ApiError, Code, field_error};
use super::routes::Routes;
use super::{Api, cookie};
use crate::auth::{ChangeError, SessionClass, token};
use crate::clock::{Clock, SystemClock};
use crate::listener::network;
use crate::oidc::{CliLogin, Failure, Grant, Oidc, Pending, Person};
use crate::seal::Sealer;
use crate::services::Services;

/// Creator of accounts of unknown persons.
const CREATOR: &str = "oidc";
/// Longest path to return to, in bytes.
const RETURN_BYTES_MAX: usize = 2_000;
/// Lengths of a challenge: the base64url of a SHA-256.
const CHALLENGE_LEN: usize = 43;
/// Longest text of a command line that its callback repeats, in bytes.
const CLI_STATE_BYTES_MAX: usize = 128;
/// Fragment of the login page that shows a failure.
const LOGIN_ERROR: &str = "login_error";

pub(super) fn routes(routes: &mut Routes) {
    let body = [Code::InvalidSpec, Code::UnsupportedMediaType, Code::CrossSite];
    let write = [Code::StoreUnavailable, Code::OutcomeUnknown, Code::StorageFull, Code::Busy];
    let start = [Code::OidcNotConfigured, Code::OidcUnavailable, Code::LoginThrottled];
    routes.open(&[], routes!(get_login_methods));
    let refusals = [&body[..], &start, &[Code::InvitationNotFound, Code::StoreUnavailable]].concat();
    routes.open(&refusals, routes!(start_oidc_login));
    let refusals = [&start[..], &[Code::InvalidParameter, Code::CrossSite]].concat();
    routes.open(&refusals, routes!(start_oidc_cli_login));
    routes.open(&[Code::OidcNotConfigured, Code::InvalidParameter], routes!(finish_oidc_login));
    let exchange = [Code::OidcNotConfigured, Code::OidcLoginFailed, Code::LoginThrottled];
    routes.open(&[&body[..], &write, &exchange].concat(), routes!(exchange_oidc_code));
}

/// Logins at the provider of the settings.
pub(super) struct Logins {
    provider: Oidc,
    public_url: String,
    sealer: Sealer,
}

impl Logins {
    /// Creates it; `None` if the settings have no provider.
    pub(super) fn new(services: &Services) -> Option<Self> {
        let config = &services.config;
        let (oidc, url) = (config.oidc.clone()?, config.public_url.clone()?);
        let provider = Oidc::new(oidc, &url, config.private_networks.clone());
        Some(Self { provider, public_url: url, sealer: Sealer::with_key(services.keys.logins) })
    }
}

fn logins(api: &Api) -> Result<&Logins, ApiError> {
    let without = || ApiError::new(Code::OidcNotConfigured, "the server has no OpenID provider");
    api.shared.oidc.as_ref().ok_or_else(without)
}

/// Show the ways to log in
///
/// A password and a token are accepted by every server. The login page and `belfry login` also offer the OpenID provider
/// of the server, if it has one.
#[utoipa::path(get, path = "/api/v1/login/methods", tag = "access", responses(
    (status = 200, description = "The ways to log in", body = LoginMethods),
))]
async fn get_login_methods(State(api): State<Api>) -> Json<LoginMethods> {
    let method = |logins: &Logins| OidcMethod {
        name: logins.provider.config().name.clone(),
        url: logins.public_url.clone(),
    };
    Json(LoginMethods { oidc: api.shared.oidc.as_ref().map(method) })
}

/// Start a login at the OpenID provider, from the dashboard
///
/// The response has the URL of the provider, and a cookie that binds the login to this browser for 10 minutes. This is only
/// for pages of the server.
#[utoipa::path(post, path = "/api/v1/login/oidc", tag = "access",
    request_body(content = StartOidcLogin, example = json!({"remember": true})),
    responses((status = 200, description = "The started login", body = StartedOidcLogin, headers(
        ("Set-Cookie" = String, description = "Cookie of the started login"),
    )))
)]
async fn start_oidc_login(
    State(api): State<Api>,
    client: Client,
    uri: Uri,
    headers: HeaderMap,
    body: RawBody<LOGIN_BODY_BYTES_MAX>,
) -> Result<Response, ApiError> {
    let StartOidcLogin { remember, return_to, invitation } = body.format.parse(&body.bytes)?;
    cookie::check_login(&Method::POST, &uri, &headers, true)?;
    let logins = logins(&api)?;
    let return_to = return_to.unwrap_or_else(|| "/".to_owned());
    if !is_own_path(&return_to) {
        let wrong = "is not a path of the dashboard, such as `/jobs`";
        return Err(ApiError::invalid_fields(vec![field_error("return_to", wrong)]));
    }
    let invitation = match invitation {
        Some(secret) => {
            let parsed = token::parse_invitation(&secret).ok_or_else(no_invitation)?;
            api.access.invited(&parsed).await?.ok_or_else(no_invitation)?;
            Some(parsed.id.to_owned())
        }
        None => None,
    };
    let pending = Pending::start(token::new_id(), SystemClock.now());
    let pending = Pending { remember, return_to, invitation, ..pending };
    let url = begin(&api, logins, &client, &pending).await?;
    let cookie = cookie::of_pending(&api, &uri, &headers, &pending.seal(&logins.sealer))?;
    let headers = [(CACHE_CONTROL, "no-store".parse().expect("it is a header value")), (SET_COOKIE, cookie)];
    Ok((headers, Json(StartedOidcLogin { url })).into_response())
}

#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct StartCliParams {
    /// Port of the loopback address at which the command line waits.
    port: u16,
    /// SHA-256 of the secret of the command line, in base64url.
    challenge: String,
    /// Text that the result repeats.
    state: String,
    /// Whether the session lasts for 30 days [default: false]
    #[serde(default)]
    remember: bool,
}

/// Start a login at the OpenID provider, for the command line
///
/// The browser is sent to the provider, and from there to `http://127.0.0.1:PORT/`, with a code that only the command line
/// can exchange.
#[utoipa::path(get, path = "/api/v1/login/oidc/cli", tag = "access", params(StartCliParams), responses(
    (status = 303, description = "To the provider"),
))]
async fn start_oidc_cli_login(
    State(api): State<Api>,
    client: Client,
    uri: Uri,
    headers: HeaderMap,
    Params(params): Params<StartCliParams>,
) -> Result<Response, ApiError> {
    cookie::check_start(&Method::GET, &uri, &headers)?;
    let logins = logins(&api)?;
    let StartCliParams { port, challenge, state, remember } = params;
    let is_base64url =
        |text: &str| text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'));
    if challenge.len() != CHALLENGE_LEN || !is_base64url(&challenge) {
        return Err(ApiError::parameter("challenge", "expected the base64url of a SHA-256"));
    }
    if state.is_empty() || state.len() > CLI_STATE_BYTES_MAX || !is_base64url(&state) {
        let wrong = format!("expected 1 to {CLI_STATE_BYTES_MAX} letters, digits, `-` or `_`");
        return Err(ApiError::parameter("state", wrong));
    }
    if port < 1_024 {
        return Err(ApiError::parameter("port", "expected 1024 to 65535"));
    }
    let pending = Pending::start(token::new_id(), SystemClock.now());
    let pending = Pending { remember, cli: Some(CliLogin { port, challenge, state }), ..pending };
    let url = begin(&api, logins, &client, &pending).await?;
    let cookie = cookie::of_pending(&api, &uri, &headers, &pending.seal(&logins.sealer))?;
    let mut response = redirect(&url)?;
    response.headers_mut().append(SET_COOKIE, cookie);
    Ok(response)
}

/// Returns the URL of the provider for a new login.
async fn begin(api: &Api, logins: &Logins, client: &Client, pending: &Pending) -> Result<String, ApiError> {
    let network = client.address.map(network);
    let attempt = api.shared.throttle.begin_elsewhere(network, Instant::now()).map_err(throttled)?;
    let url = logins.provider.authorization_url(pending).await;
    attempt.cancel();
    url.map_err(|failure| {
        tracing::warn!(error = %failure, "cannot start a login at the OpenID provider");
        ApiError::new(Code::OidcUnavailable, failure.problem.message())
    })
}

/// Parameters of a callback. Providers add others.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
struct CallbackParams {
    /// Code of the provider.
    code: Option<String>,
    /// Text that the start has sent.
    state: Option<String>,
    /// URL of the provider.
    iss: Option<String>,
    /// Error of the provider.
    error: Option<String>,
}

/// Finish a login at the OpenID provider
///
/// The provider sends the browser here. The browser then gets a session and goes to the dashboard, or to the command line
/// that has started the login. After a failure, the login page or the command line shows the reason.
#[utoipa::path(get, path = "/api/v1/login/oidc/callback", tag = "access", params(CallbackParams), responses(
    (status = 303, description = "To the dashboard, the login page or the command line"),
))]
async fn finish_oidc_login(
    State(api): State<Api>,
    client: Client,
    uri: Uri,
    headers: HeaderMap,
    Params(params): Params<CallbackParams>,
) -> Result<Response, ApiError> {
    let logins = logins(&api)?;
    let opened = cookie::pending(&api, &uri, &headers)
        .and_then(|sealed| Pending::open(sealed, &logins.sealer, SystemClock.now()));
    let is_of_start =
        |pending: &Pending| params.state.as_deref().is_some_and(|state| pending.has_state(state));
    let Some(pending) = opened.filter(is_of_start) else {
        // The cookie may belong to a later login in the same browser, so it stays.
        client.refused(&api, "", OidcProblem::Expired.as_str());
        return redirect(&format!("/#{LOGIN_ERROR}={}", OidcProblem::Expired.as_str()));
    };
    let finished = finish(&api, logins, &client, (&uri, &headers), &pending, params).await;
    let mut response = match finished {
        Ok(response) => response,
        Err((problem, account)) => {
            client.refused(&api, &account, problem.as_str());
            redirect(&failed_at(&pending, problem))?
        }
    };
    let over = cookie::of_pending(&api, &uri, &headers, "")?;
    response.headers_mut().append(SET_COOKIE, over);
    Ok(response)
}

/// Returns where a failure is shown.
fn failed_at(pending: &Pending, problem: OidcProblem) -> String {
    match &pending.cli {
        Some(cli) => to_cli(cli, &[("error", problem.as_str())]),
        None => format!("/#{LOGIN_ERROR}={}", problem.as_str()),
    }
}

/// Exchanges the code of a callback, and opens the session. A failure has the account, if it is known.
async fn finish(
    api: &Api,
    logins: &Logins,
    client: &Client,
    (uri, headers): (&Uri, &HeaderMap),
    pending: &Pending,
    params: CallbackParams,
) -> Result<Response, (OidcProblem, String)> {
    let unknown = |problem| (problem, String::new());
    let CallbackParams { code, iss, error, .. } = params;
    let code = match (code, error.as_deref()) {
        (Some(code), None) => code,
        (_, Some("access_denied")) => return Err(unknown(OidcProblem::AccessDenied)),
        _ => return Err(unknown(OidcProblem::ProviderRefused)),
    };
    let network = client.address.map(network);
    let attempt = api.shared.throttle.begin_elsewhere(network, Instant::now());
    let attempt = attempt.map_err(|_| unknown(OidcProblem::ProviderUnavailable))?;
    let person = logins.provider.exchange(&code, iss.as_deref(), pending).await;
    let person = person.map_err(|Failure { problem, detail }| {
        tracing::warn!(problem = problem.as_str(), error = detail, "login at the OpenID provider failed");
        unknown(problem)
    })?;
    attempt.succeeded();
    let failed = |error: ApiError| {
        tracing::warn!(error = error.detail(), "login at the OpenID provider failed");
        unknown(OidcProblem::ServerError)
    };
    let subject = person.subject.clone();
    let (account, changed) = record(api, logins, pending, person).await?;
    let refused = |problem| (problem, account.clone());
    if let Some(cli) = &pending.cli {
        let grant = Grant {
            account: account.clone(),
            subject,
            token_id: pending.token_id.clone(),
            challenge: cli.challenge.clone(),
            remember: pending.remember,
            granted_at: SystemClock.now(),
        };
        // The exchange of the code makes the entry of the login.
        if !changed.is_empty() {
            let entry = client.entry(api, "finish_oidc_login", &account, Outcome::Allowed, None);
            api.audit.changed(with_changes(entry, &changed)).await;
        }
        let code = grant.seal(&logins.sealer);
        return redirect(&to_cli(cli, &[("code", &code)])).map_err(failed);
    }
    let class = SessionClass::of(pending.remember);
    let proof = proof(logins, subject);
    let opened = open(api, client, &account, proof, class, pending.token_id.clone()).await.map_err(failed)?;
    let opened = opened.ok_or_else(|| refused(OidcProblem::Expired))?;
    let logged_in = logged_in(api, client, &account, changed, opened).await.map_err(failed)?;
    let mut response = redirect(&pending.return_to).map_err(failed)?;
    for cookie in session_cookies(api, uri, headers, &logged_in, class).map_err(failed)? {
        response.headers_mut().append(SET_COOKIE, cookie);
    }
    Ok(response)
}

fn proof(logins: &Logins, subject: String) -> SessionProof {
    SessionProof::Oidc { issuer: logins.provider.config().issuer.clone(), subject }
}

/// Records a login at the provider. Returns the account, and the changed entries.
async fn record(
    api: &Api,
    logins: &Logins,
    pending: &Pending,
    person: Person,
) -> Result<(String, Vec<Changed>), (OidcProblem, String)> {
    let unknown = |problem| (problem, String::new());
    let failed = |error: &dyn std::fmt::Display| {
        tracing::warn!(%error, "cannot record a login at the OpenID provider");
        unknown(OidcProblem::ServerError)
    };
    let config = logins.provider.config();
    let (issuer, subject) = (config.issuer.clone(), person.subject);
    // Another server may have just linked the person.
    api.access.refresh().await.map_err(|error| failed(&error))?;
    let find = || {
        let found = |directory: &access::Directory| {
            directory.account_of_identity(&issuer, &subject).map(|account| account.name.clone())
        };
        api.access.read(found)
    };
    let known = find();
    let link = match (&known, &pending.invitation) {
        (Some(_), _) => OidcLink::Known,
        (None, Some(id)) => OidcLink::Invitation(id.clone()),
        (None, None) if config.create_accounts => {
            let name = person.name.map_err(unknown)?;
            OidcLink::NewAccount { name, title: person.title.map(|title| clean_title(&title)) }
        }
        (None, None) => OidcLink::Known,
    };
    let groups = person.groups;
    let change = Change::RecordOidcLogin { issuer: issuer.clone(), subject: subject.clone(), groups, link };
    let refused = |problem| (problem, known.clone().unwrap_or_default());
    let changed = match api.access.change(&Identity::admin(CREATOR), &change).await {
        Ok(changed) => changed,
        Err(ChangeError::Refused(refusal)) => {
            return Err(match refusal {
                Refusal::NotFound { .. } => refused(OidcProblem::NoAccount),
                Refusal::Exists { .. } => refused(OidcProblem::AccountExists),
                Refusal::NoLogin { .. } => refused(OidcProblem::AccountDisabled),
                Refusal::StaleProof => refused(OidcProblem::InvitationInvalid),
                Refusal::Invalid(_) => {
                    tracing::warn!(error = %refusal, "the OpenID provider names an invalid account");
                    refused(OidcProblem::NoAccountName)
                }
                refusal => failed(&refusal),
            });
        }
        Err(error) => return Err(failed(&error)),
    };
    let account = find().ok_or_else(|| unknown(OidcProblem::ServerError))?;
    Ok((account, changed))
}

/// Returns a display name of the provider, as an account may have it.
fn clean_title(title: &str) -> String {
    title.chars().filter(|c| !c.is_control()).take(100).collect()
}

/// Records the login in the audit log, and returns the session.
async fn logged_in(
    api: &Api,
    client: &Client,
    account: &str,
    mut changed: Vec<Changed>,
    mut opened: Opened,
) -> Result<LoggedIn, ApiError> {
    let entry = client.entry(api, "log_in", account, Outcome::Allowed, None);
    changed.append(&mut opened.changed);
    opened.changed = changed;
    complete(api, entry, opened).await
}

/// Exchange the code of a login for a session, for the command line
///
/// The browser has brought the code to the command line. It is valid once, for a minute, with the secret of the command
/// line.
#[utoipa::path(post, path = "/api/v1/login/oidc/exchange", tag = "access",
    request_body(content = ExchangeOidcCode, example = json!({"code": "v1.…", "verifier": "…"})),
    responses((status = 200, description = "The session", body = LoggedIn))
)]
async fn exchange_oidc_code(
    State(api): State<Api>,
    client: Client,
    uri: Uri,
    headers: HeaderMap,
    body: RawBody<LOGIN_BODY_BYTES_MAX>,
) -> Result<Response, ApiError> {
    let ExchangeOidcCode { code, verifier } = body.format.parse(&body.bytes)?;
    cookie::check_login(&Method::POST, &uri, &headers, false)?;
    let logins = logins(&api)?;
    let begun = api.shared.throttle.begin_elsewhere(client.address.map(network), Instant::now());
    let attempt = begun.map_err(throttled)?;
    let failed = |account: &str| {
        client.refused(&api, account, Code::OidcLoginFailed.as_str());
        let detail = "the code is not valid: it was used, or it has expired";
        ApiError::new(Code::OidcLoginFailed, detail)
    };
    let grant = Grant::open(&code, &verifier.0, &logins.sealer, SystemClock.now());
    let grant = grant.ok_or_else(|| failed(""))?;
    // Another server may have recorded the login a moment ago.
    api.access.refresh().await?;
    let class = SessionClass::of(grant.remember);
    let proof = proof(logins, grant.subject);
    let opened = open(&api, &client, &grant.account, proof, class, grant.token_id).await?;
    let opened = opened.ok_or_else(|| failed(&grant.account))?;
    attempt.succeeded();
    let entry = client.entry(&api, "log_in", &grant.account, Outcome::Allowed, None);
    respond(&api, entry, opened, class, None).await
}

/// Returns the URL of the command line with the result.
fn to_cli(cli: &CliLogin, result: &[(&str, &str)]) -> String {
    let mut query = Serializer::new(String::new());
    query.extend_pairs(result).append_pair("state", &cli.state);
    format!("http://127.0.0.1:{}/?{}", cli.port, query.finish())
}

fn redirect(to: &str) -> Result<Response, ApiError> {
    let location = to.parse::<axum::http::HeaderValue>().map_err(|error| ApiError::internal(&error))?;
    let no_store = axum::http::HeaderValue::from_static("no-store");
    Ok((StatusCode::SEE_OTHER, [(LOCATION, location), (CACHE_CONTROL, no_store)]).into_response())
}

/// Returns whether a text is a path of this server. Browsers read `//` and `/\` as the begin of another host, and ignore
/// tabs and line ends.
fn is_own_path(path: &str) -> bool {
    path.len() <= RETURN_BYTES_MAX
        && path.starts_with('/')
        && !path.starts_with("//")
        && path.bytes().all(|b| b.is_ascii_graphic() && b != b'\\')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_returns_to_a_path_of_this_server() {
        for path in ["/", "/jobs?status=failed#x", "/runs/a//b"] {
            assert!(is_own_path(path), "{path}");
        }
        for path in [
            "",
            "//evil.example",
            "/\\evil.example",
            "/\t/evil.example",
            "https://evil.example",
            "jobs",
            "/ä",
            "/\n",
        ] {
            assert!(!is_own_path(path), "{path}");
        }
    }

    #[test]
    fn a_result_goes_to_the_loopback_address() {
        let cli = CliLogin { port: 4711, challenge: String::new(), state: "s".into() };
        assert_eq!(
            to_cli(&cli, &[("code", "v1.a+b/c=")]),
            "http://127.0.0.1:4711/?code=v1.a%2Bb%2Fc%3D&state=s"
        );
    }
}
