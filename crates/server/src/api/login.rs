//! Logins with passwords: log in, use an invitation, change the own password. `oidc` has logins at an OpenID provider,
//! which end here too.
//!
//! ```text
//! login ─> throttle ─> hash of the password ─> session (a token) ─┬─> cookie
//!           └ 429        └ bounded, constant time                 └─> secret, for programs
//! ```
//!
//! These routes need no token, so everything about them is bounded: the body, the hashes at the same time, the failures
//! of an account and of an address. The response does not tell whether the account exists, has no password, is disabled,
//! or has another password.
//!
//! # Invariants
//! - A login creates a new session. A session that the browser had before is not continued.
//! - Each login, failed login and throttled login makes an entry of the audit log. A name that is no account is not
//!   recorded: it may be a password in the wrong field.
//! - A cookie is set only for pages of this server, and a browser can send a login only from them.

use std::net::IpAddr;
use std::time::Instant;

use access::{Change, Changed, PasswordChange, PasswordHash, Refusal, SecondFactor, SessionProof};
use audit::{Entry, Outcome, clean};
use axum::extract::{FromRequestParts, State};
use axum::http::header::{CACHE_CONTROL, SET_COOKIE, USER_AGENT};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use model::Timestamp;
use model::access::{Resource, Verb};
use model::api::{
    AcceptInvitation, ChangePassword, CheckInvitation, CheckedInvitation, LogIn, LoggedIn, PasswordText,
};
use model::limits::LOGIN_BODY_BYTES_MAX;
use utoipa_axum::routes;

use super::access::{me, note, refused, shown_token};
use super::extract::RawBody;
use super::headers::X_REQUEST_ID;
use super::problem::{ApiError, Code, field_error};
use super::routes::Routes;
use super::second_factor::{SecondProblem, second_factor};
use super::{Api, cookie, limits};
use crate::audit::Note;
use crate::auth::{Actor, ChangeError, ClearText, HashError, IdentityKind, Origin, SessionClass, token};
use crate::clock::{Clock, SystemClock};
use crate::listener::network;

/// Longest header of a client in an entry of the audit log, in characters.
const HEADER_CHARS_MAX: usize = 200;
/// Actor of a failed login whose account does not exist.
const UNKNOWN: &str = "(unknown)";

pub(super) fn routes(routes: &mut Routes) {
    let body = [Code::InvalidSpec, Code::UnsupportedMediaType, Code::CrossSite];
    let write = [Code::StoreUnavailable, Code::OutcomeUnknown, Code::StorageFull, Code::Busy];
    let login = [Code::LoginFailed, Code::SecondFactorRequired, Code::LoginThrottled];
    routes.open(&[&body[..], &write, &login].concat(), routes!(log_in));
    let refusals = [Code::InvitationNotFound, Code::StoreUnavailable];
    routes.open(&[&body[..], &refusals].concat(), routes!(check_invitation));
    let refusals = [Code::InvitationNotFound, Code::SecondFactorRequired, Code::LoginThrottled];
    routes.open(&[&body[..], &write, &refusals].concat(), routes!(accept_invitation));
    let refusals = [
        Code::NoPasswordLogin,
        Code::Escalation,
        Code::LoginThrottled,
        Code::InvalidSpec,
        Code::UnsupportedMediaType,
    ];
    routes.needs_account(&refusals, routes!(change_password));
    routes.of_each_server();
}

/// Sender of a request without a token.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) address: Option<IpAddr>,
    user_agent: Option<String>,
    request_id: Option<String>,
}

impl FromRequestParts<Api> for Client {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Self::Rejection> {
        let text = |name| {
            let value = parts.headers.get(name)?;
            Some(clean(&String::from_utf8_lossy(value.as_bytes()), HEADER_CHARS_MAX))
        };
        Ok(Self {
            address: limits::address_in(&parts.extensions, &parts.headers, api.config.exposure),
            user_agent: text(USER_AGENT),
            request_id: text(X_REQUEST_ID),
        })
    }
}

impl Client {
    /// Returns an entry of the audit log about the login of an account.
    pub(super) fn entry(
        &self,
        api: &Api,
        action: &str,
        account: &str,
        outcome: Outcome,
        code: Option<Code>,
    ) -> Entry {
        let is_known = api.access.read(|directory| directory.account(account).is_some());
        Entry {
            actor: if is_known { account } else { UNKNOWN }.to_owned(),
            actor_kind: IdentityKind::User.as_str().to_owned(),
            address: self.address.map(|address| address.to_string()),
            user_agent: self.user_agent.clone(),
            request_id: self.request_id.clone(),
            verb: Verb::Create,
            resource: Resource::Access,
            object: is_known.then(|| account.to_owned()),
            outcome,
            code: code.map(|code| code.as_str().to_owned()),
            ..api.audit.system_entry(action)
        }
    }

    /// Records a login that did not succeed.
    fn failed(&self, api: &Api, account: &str, error: ApiError) -> ApiError {
        self.refused(api, account, error.code().as_str());
        error
    }

    /// Records a login that did not succeed, with the reason.
    pub(super) fn refused(&self, api: &Api, account: &str, code: &str) {
        let entry = self.entry(api, "log_in", account, Outcome::Denied, None);
        let (actor, address) = (&entry.actor, entry.address.as_deref());
        tracing::warn!(account = actor, address, code, "login refused");
        api.audit.not_succeeded(Entry { code: Some(code.to_owned()), ..entry });
    }
}

/// Session that a login has created.
pub(super) struct Opened {
    pub(super) token_id: String,
    secret: String,
    pub(super) changed: Vec<Changed>,
}

/// Log in with a password
///
/// Creates a session: a token that ends after a day, or after 30 days with `remember`. With `cookie`, the session is a
/// cookie for the dashboard, which also ends after 8 hours (7 days with `remember`) without a request; this is only for
/// pages of the server. Otherwise the response has the secret of the session. After several failures, further attempts
/// are delayed.
#[utoipa::path(post, path = "/api/v1/login", tag = "access",
    request_body(content = LogIn, example = json!({"account": "ann@example.com", "password": "correct horse battery staple"})),
    responses((status = 200, description = "The session", body = LoggedIn, headers(
        ("Set-Cookie" = String, description = "Session cookie, with `cookie`"),
    )))
)]
async fn log_in(
    State(api): State<Api>,
    client: Client,
    uri: Uri,
    headers: HeaderMap,
    body: RawBody<LOGIN_BODY_BYTES_MAX>,
) -> Result<Response, ApiError> {
    let LogIn { account, password, code, remember, cookie: sets_cookie } = body.format.parse(&body.bytes)?;
    cookie::check_login(&Method::POST, &uri, &headers, sets_cookie)?;
    let browser = cookie::browser(&api, &uri, &headers, &account);
    let origin = match &browser {
        Some(id) => Origin::Known(id),
        None => Origin::Network(client.address.map(network)),
    };
    let begun = api.shared.throttle.begin(&account, origin, Instant::now());
    let attempt = begun.map_err(|wait| client.failed(&api, &account, throttled(wait)))?;
    let class = SessionClass::of(remember);
    let password = ClearText::new(&password.0);
    match checked_login(&api, &client, &account, &password, code.as_ref(), class).await {
        Ok(Checked::Opened(opened)) => {
            attempt.succeeded();
            let entry = client.entry(&api, "log_in", &account, Outcome::Allowed, None);
            respond(&api, entry, opened, class, sets_cookie.then_some((&uri, &headers))).await
        }
        Ok(Checked::WrongPassword) => {
            let detail = "the account or the password is wrong";
            Err(client.failed(&api, &account, ApiError::new(Code::LoginFailed, detail)))
        }
        Ok(Checked::Second(SecondProblem::Missing)) => {
            attempt.cancel();
            Err(SecondProblem::Missing.into())
        }
        Ok(Checked::Second(problem)) => Err(client.failed(&api, &account, problem.into())),
        Err(error) => {
            attempt.cancel();
            Err(error)
        }
    }
}

/// Result of the check of a password and a second factor.
enum Checked {
    Opened(Opened),
    /// The account or the password is wrong.
    WrongPassword,
    Second(SecondProblem),
}

/// Checks a password and a second factor, and opens a session.
async fn checked_login(
    api: &Api,
    client: &Client,
    account: &str,
    password: &ClearText,
    code: Option<&PasswordText>,
    class: SessionClass,
) -> Result<Checked, ApiError> {
    // Another server may have just set the password.
    api.access.refresh().await?;
    let hash = api.access.read(|directory| {
        let login = directory.login(account)?;
        Some(login.password.as_ref()?.hash.clone())
    });
    let is_right = api.shared.passwords.verify(password, hash.as_ref()).await.map_err(not_hashed)?;
    let Some(hash) = hash.filter(|_| is_right) else { return Ok(Checked::WrongPassword) };
    // Only now: without the password, the response must not tell whether the account has a second factor.
    let second = match second_factor(api, account, code)? {
        Ok(second) => second,
        Err(problem) => return Ok(Checked::Second(problem)),
    };
    let proof = SessionProof::Password(hash, second);
    Ok(match (open(api, client, account, proof, class, token::new_id()).await?, second) {
        (Some(opened), _) => Checked::Opened(opened),
        // Another request has used the code.
        (None, Some(_)) => Checked::Second(SecondProblem::Wrong),
        (None, None) => Checked::WrongPassword,
    })
}

/// Checks the code of a request whose password was not checked. Failures delay further attempts, as those of logins.
fn checked_second_factor(
    api: &Api,
    client: &Client,
    account: &str,
    code: Option<&PasswordText>,
) -> Result<Option<SecondFactor>, ApiError> {
    let origin = Origin::Network(client.address.map(network));
    let attempt = api.shared.throttle.begin(account, origin, Instant::now()).map_err(throttled)?;
    let second = second_factor(api, account, code);
    match &second {
        Ok(Ok(Some(_))) => attempt.succeeded(),
        Ok(Err(SecondProblem::Wrong)) => {
            client.refused(api, account, Code::SecondFactorRequired.as_str());
        }
        Ok(Ok(None) | Err(SecondProblem::Missing)) | Err(_) => attempt.cancel(),
    }
    Ok(second??)
}

/// Opens a session of an account that has proved itself; `None` if the proof is no longer valid, the account is disabled, or
/// a session with this id was opened before.
pub(super) async fn open(
    api: &Api,
    client: &Client,
    account: &str,
    proof: SessionProof,
    class: SessionClass,
    token_id: String,
) -> Result<Option<Opened>, ApiError> {
    let identity = api.access.read(|directory| directory.identity_of_account(account));
    let Some(identity) = identity else { return Ok(None) };
    let secret = token::generate_with_id(IdentityKind::User, &token_id);
    let parsed = token::parse(&secret).expect("the text was generated, so it is well formed");
    let (id, hash) = (parsed.id.to_owned(), parsed.hash().into());
    let open = Change::OpenSession {
        proof,
        id: id.clone(),
        hash,
        description: client.address.map(|address| address.to_string()),
        expires_at: SystemClock.now() + class.lasts(),
    };
    match api.access.change(&identity, &open).await {
        Ok(changed) => {
            tracing::info!(account, token_id = id, "logged in");
            Ok(Some(Opened { token_id: id, secret, changed }))
        }
        Err(ChangeError::Refused(
            Refusal::StaleProof | Refusal::NoLogin { .. } | Refusal::NotFound { .. } | Refusal::Exists { .. },
        )) => Ok(None),
        Err(error) => Err(refused(error)),
    }
}

/// Completes a login, and sends the session. A request of a browser gets it as a cookie.
pub(super) async fn respond(
    api: &Api,
    entry: Entry,
    opened: Opened,
    class: SessionClass,
    browser: Option<(&Uri, &HeaderMap)>,
) -> Result<Response, ApiError> {
    let mut body = complete(api, entry, opened).await?;
    let mut cookies = Vec::new();
    if let Some((uri, headers)) = browser {
        cookies = session_cookies(api, uri, headers, &body, class)?;
        body.secret = None;
    }
    let mut response = ([(CACHE_CONTROL, "no-store")], Json(body)).into_response();
    for cookie in cookies {
        response.headers_mut().append(SET_COOKIE, cookie);
    }
    Ok(response)
}

/// Returns the cookies of a browser that has logged in.
pub(super) fn session_cookies(
    api: &Api,
    uri: &Uri,
    headers: &HeaderMap,
    logged_in: &LoggedIn,
    class: SessionClass,
) -> Result<Vec<HeaderValue>, ApiError> {
    let now = SystemClock.now();
    let end: Timestamp = logged_in.session.expires_at.unwrap_or(now);
    let until = class.until(now, end);
    Ok(vec![
        cookie::of_login(api, uri, headers, &logged_in.session.id, class, until, now)?,
        cookie::of_browser(api, uri, headers, &logged_in.me.name)?,
    ])
}

/// Adds changed entries of the directory to an entry of the audit log.
pub(super) fn with_changes(entry: Entry, changed: &[Changed]) -> Entry {
    let note = Note::default();
    for Changed { kind, key, old, new } in changed {
        note.changed(&format!("{kind}[{key}]"), old.as_ref(), new.as_ref());
    }
    let difference = note.take().difference;
    Entry { changes: difference.changes, changes_truncated: difference.truncated, ..entry }
}

/// Writes the entry of a login in the audit log, and returns the session with its secret.
pub(super) async fn complete(api: &Api, entry: Entry, opened: Opened) -> Result<LoggedIn, ApiError> {
    let Opened { token_id, secret, changed } = opened;
    api.audit.changed(Entry { token_id: Some(token_id.clone()), ..with_changes(entry, &changed) }).await;
    let gone = || ApiError::new(Code::Unauthenticated, "the session has ended: another request has ended it");
    let identity = api.access.bearer_of(&token_id).ok_or_else(gone)?;
    let now = SystemClock.now();
    let session = api.access.read(|directory| {
        let found = directory.token(&token_id)?;
        Some(shown_token(directory, found, now))
    });
    let session = session.ok_or_else(gone)?;
    Ok(LoggedIn { me: me(api, &Actor::without_right(identity)), session, secret: Some(secret) })
}

/// Show the account of an invitation
///
/// The secret is in the body, so that it is in no log of addresses. An invitation that was used, replaced or revoked, or
/// that has expired, does not exist.
#[utoipa::path(post, path = "/api/v1/invitations/check", tag = "access",
    request_body(content = CheckInvitation, example = json!({"secret": "bf_invite_…"})),
    responses((status = 200, description = "The account of the invitation", body = CheckedInvitation))
)]
async fn check_invitation(
    State(api): State<Api>,
    uri: Uri,
    headers: HeaderMap,
    body: RawBody<LOGIN_BODY_BYTES_MAX>,
) -> Result<Json<CheckedInvitation>, ApiError> {
    let CheckInvitation { secret } = body.format.parse(&body.bytes)?;
    cookie::check_login(&Method::POST, &uri, &headers, false)?;
    let parsed = token::parse_invitation(&secret).ok_or_else(no_invitation)?;
    let (account, expires_at) = api.access.invited(&parsed).await?.ok_or_else(no_invitation)?;
    let has_password = |directory: &access::Directory| {
        directory.login(&account.name).is_some_and(|login| login.password.is_some())
    };
    let has_password = api.access.read(has_password);
    Ok(Json(CheckedInvitation { account: account.name, title: account.title, has_password, expires_at }))
}

/// Set a password with an invitation, and log in
///
/// Uses the invitation up, replaces the password, and ends all sessions of the account. The new session is as in
/// `POST /api/v1/login`.
#[utoipa::path(post, path = "/api/v1/invitations/accept", tag = "access",
    request_body(content = AcceptInvitation, example = json!({"secret": "bf_invite_…", "password": "correct horse battery staple"})),
    responses((status = 200, description = "The session", body = LoggedIn, headers(
        ("Set-Cookie" = String, description = "Session cookie, with `cookie`"),
    )))
)]
async fn accept_invitation(
    State(api): State<Api>,
    client: Client,
    uri: Uri,
    headers: HeaderMap,
    body: RawBody<LOGIN_BODY_BYTES_MAX>,
) -> Result<Response, ApiError> {
    let AcceptInvitation { secret, password, code, remember, cookie: sets_cookie } =
        body.format.parse(&body.bytes)?;
    cookie::check_login(&Method::POST, &uri, &headers, sets_cookie)?;
    let parsed = token::parse_invitation(&secret).ok_or_else(no_invitation)?;
    // Before the password: a client without an invitation must not cause hashes.
    let (account, _) = api.access.invited(&parsed).await?.ok_or_else(no_invitation)?;
    let password = ClearText::new(&password.0);
    password.check(&account.name).map_err(|wrong| invalid("password", &wrong))?;
    // An invitation replaces a forgotten password, not a lost second factor.
    let second = checked_second_factor(&api, &client, &account.name, code.as_ref())?;
    let hash = api.shared.passwords.hash(&password).await.map_err(not_hashed)?;
    let identity = api.access.read(|directory| directory.identity_of_account(&account.name));
    let identity = identity.ok_or_else(no_invitation)?;
    let by = PasswordChange::Invitation(parsed.id.to_owned());
    let mut changed =
        match api.access.change(&identity, &Change::SetPassword { hash: hash.clone(), by }).await {
            Ok(changed) => changed,
            // It was used since, perhaps by a request at the same time.
            Err(ChangeError::Refused(
                Refusal::StaleProof | Refusal::NoLogin { .. } | Refusal::NotFound { .. },
            )) => return Err(no_invitation()),
            Err(error) => return Err(refused(error)),
        };
    tracing::info!(account = account.name, invitation_id = parsed.id, "password set with an invitation");
    let class = SessionClass::of(remember);
    let proof = SessionProof::Password(hash, second);
    let opened = open(&api, &client, &account.name, proof, class, token::new_id()).await?;
    let opened = opened.ok_or_else(no_invitation)?;
    changed.extend(opened.changed);
    let entry = client.entry(&api, "accept_invitation", &account.name, Outcome::Allowed, None);
    let opened = Opened { changed, ..opened };
    respond(&api, entry, opened, class, sets_cookie.then_some((&uri, &headers))).await
}

/// Change your password
///
/// Ends the other sessions of the account, and an invitation that was not used. Tokens stay.
#[utoipa::path(put, path = "/api/v1/me/password", tag = "access",
    request_body(content = ChangePassword, example = json!({"current": "correct horse battery staple", "new": "four new random words"})),
    responses((status = 204, description = "Changed"))
)]
async fn change_password(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    body: RawBody<LOGIN_BODY_BYTES_MAX>,
) -> Result<StatusCode, ApiError> {
    let ChangePassword { current, new } = body.format.parse(&body.bytes)?;
    api.access.refresh().await?;
    let hash = own_hash(&api, &actor)?;
    let new = ClearText::new(&new.0);
    new.check(&actor.name).map_err(|wrong| invalid("new", &wrong))?;
    verify_own(&api, &actor, &hash, "current", &current).await?;
    let new_hash = api.shared.passwords.hash(&new).await.map_err(not_hashed)?;
    let by = PasswordChange::Current(hash);
    actor.note().object(&actor.name);
    let set = Change::SetPassword { hash: new_hash, by };
    match api.access.change(actor.identity(), &set).await {
        Ok(changed) => note(&actor, &changed),
        // Another request has changed it.
        Err(ChangeError::Refused(Refusal::StaleProof)) => return Err(invalid("current", "is wrong")),
        Err(error) => return Err(refused(error)),
    }
    tracing::info!(account = %actor.name, "password changed");
    Ok(StatusCode::NO_CONTENT)
}

/// Returns the hash of the password of the caller.
///
/// # Errors
/// `no_password_login` if there is none.
pub(super) fn own_hash(api: &Api, actor: &Actor) -> Result<PasswordHash, ApiError> {
    let hash = api.access.read(|directory| {
        let login = directory.login(&actor.name).filter(|_| actor.is_account())?;
        Some(login.password.as_ref()?.hash.clone())
    });
    hash.ok_or_else(|| {
        let detail = format!("cannot change the password of `{}`: there is none", actor.name);
        ApiError::new(Code::NoPasswordLogin, detail)
    })
}

/// Checks the password of the caller, which is in a field of the request. Failures delay further attempts.
///
/// # Errors
/// `invalid_spec` if it is wrong, `login_throttled` or `busy`.
pub(super) async fn verify_own(
    api: &Api,
    actor: &Actor,
    hash: &PasswordHash,
    field: &str,
    password: &PasswordText,
) -> Result<(), ApiError> {
    let origin = Origin::Known(&actor.token_id);
    let attempt = api.shared.throttle.begin(&actor.name, origin, Instant::now()).map_err(throttled)?;
    match api.shared.passwords.verify(&ClearText::new(&password.0), Some(hash)).await {
        Ok(true) => attempt.succeeded(),
        Ok(false) => return Err(invalid(field, "is wrong")),
        Err(error) => {
            attempt.cancel();
            return Err(not_hashed(error));
        }
    }
    Ok(())
}

pub(super) fn invalid(field: &str, wrong: &str) -> ApiError {
    ApiError::invalid_fields(vec![field_error(field, wrong)])
}

pub(super) fn no_invitation() -> ApiError {
    let detail = "the invitation is not valid: it was used, replaced or revoked, or it has expired";
    ApiError::new(Code::InvitationNotFound, detail)
}

pub(super) fn throttled(wait: std::time::Duration) -> ApiError {
    let seconds = wait.as_secs_f64().ceil();
    let detail = format!("too many failed logins: retry in {seconds} s");
    ApiError::new(Code::LoginThrottled, detail).retry_after(wait)
}

fn not_hashed(error: HashError) -> ApiError {
    match error {
        HashError::Busy => ApiError::new(Code::Busy, error.to_string()),
        HashError::Failed => ApiError::internal(&error),
    }
}
