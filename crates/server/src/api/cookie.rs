//! Browser sessions in cookies, and protection against cross-site requests.
//!
//! A browser sends the cookie automatically, also for pages of other sites. So a session is accepted only for requests
//! of pages of this server ([`is_same_origin`]), the cookie is `SameSite=Strict`, and no script can read it. Programs send
//! their token instead.
//!
//! A change also needs the header [`CSRF`]. A form or a link cannot send it, and a script of another origin needs a
//! preflight, which no route here allows. Reads need no such header: streams and downloads that the browser opens
//! cannot add one.

use axum::http::header::{COOKIE, HOST, ORIGIN};
use axum::http::{HeaderMap, HeaderValue, Method, Uri};

use model::Timestamp;

use super::Api;
use super::problem::{ApiError, Code};
use crate::auth::{Session, SessionClass};
use crate::clock::{Clock, SystemClock};
use crate::oidc::PENDING_FOR;

/// Header of all changes by the dashboard, with any value.
const CSRF: &str = "x-belfry-csrf";

/// Time for which a browser proves that it has logged in before: 180 days.
const BROWSER_KEPT_SECONDS: u64 = 180 * 24 * 3_600;

/// Returns a cookie with this value for the host and port of the request. Without `max_age` it ends with the browser
/// session.
pub(super) fn new(
    api: &Api,
    uri: &Uri,
    headers: &HeaderMap,
    value: &str,
    max_age: Option<u64>,
) -> Result<HeaderValue, ApiError> {
    named(api, &cookie_name(uri, headers), value, max_age, SameSite::Strict)
}

/// Navigations of other sites that a cookie is sent with.
#[derive(Clone, Copy)]
enum SameSite {
    /// None.
    Strict,
    /// Those that only read.
    Lax,
}

fn named(
    api: &Api,
    name: &str,
    value: &str,
    max_age: Option<u64>,
    same_site: SameSite,
) -> Result<HeaderValue, ApiError> {
    let same_site = match same_site {
        SameSite::Strict => "Strict",
        SameSite::Lax => "Lax",
    };
    let mut text = format!("{name}={value}; Path=/; HttpOnly; SameSite={same_site}");
    if let Some(seconds) = max_age {
        text += &format!("; Max-Age={seconds}");
    }
    if api.config.is_https() {
        text += "; Secure";
    }
    HeaderValue::try_from(text).map_err(|error| ApiError::internal(&error))
}

/// Returns a cookie that renews the session of a login: it ends later, but not after its token.
pub(super) fn renewed(
    api: &Api,
    uri: &Uri,
    headers: &HeaderMap,
    session: &Session,
    now: Timestamp,
) -> Option<HeaderValue> {
    let end = api.access.read(|directory| directory.token(&session.token_id)?.expires_at)?;
    let (class, until) = session.renewed(now, end)?;
    of_login(api, uri, headers, &session.token_id, class, until, now).ok()
}

/// Returns the cookie of the session of a login, valid before `until`.
pub(super) fn of_login(
    api: &Api,
    uri: &Uri,
    headers: &HeaderMap,
    token_id: &str,
    class: SessionClass,
    until: Timestamp,
    now: Timestamp,
) -> Result<HeaderValue, ApiError> {
    let value = api.shared.sessions.open(token_id, until, Some(class));
    let max_age = (class == SessionClass::Remembered).then(|| until.since(now).as_millis() / 1_000);
    new(api, uri, headers, &value, max_age)
}

/// Returns the cookie that proves a later login to come from a browser that has logged in to this account before.
pub(super) fn of_browser(
    api: &Api,
    uri: &Uri,
    headers: &HeaderMap,
    account: &str,
) -> Result<HeaderValue, ApiError> {
    let known = value(&browser_name(uri, headers), headers);
    let id = known.and_then(|proof| api.shared.sessions.browser(proof, account)).map(str::to_owned);
    let id = id.unwrap_or_else(|| format!("{:032x}", rand::random::<u128>()));
    let proof = api.shared.sessions.prove_browser(&id, account);
    named(api, &browser_name(uri, headers), &proof, Some(BROWSER_KEPT_SECONDS), SameSite::Strict)
}

/// Returns the cookie of a login at the OpenID provider that has not ended; an empty value deletes it.
///
/// The provider, which is another site, sends the browser back, so the cookie is `SameSite=Lax`.
pub(super) fn of_pending(
    api: &Api,
    uri: &Uri,
    headers: &HeaderMap,
    sealed: &str,
) -> Result<HeaderValue, ApiError> {
    let seconds = if sealed.is_empty() { 0 } else { PENDING_FOR.as_millis() / 1_000 };
    named(api, &pending_name(api, uri, headers), sealed, Some(seconds), SameSite::Lax)
}

/// Returns the value of the cookie of a login at the OpenID provider.
pub(super) fn pending<'a>(api: &Api, uri: &Uri, headers: &'a HeaderMap) -> Option<&'a str> {
    value(&pending_name(api, uri, headers), headers)
}

/// With TLS, the name has a prefix that no other host and no connection without TLS can set.
fn pending_name(api: &Api, uri: &Uri, headers: &HeaderMap) -> String {
    let prefix = if api.config.is_https() { "__Host-" } else { "" };
    format!("{prefix}{}_oidc", cookie_name(uri, headers))
}

/// Checks the start of a login that the browser follows as a link: no page of another site may start it.
///
/// # Errors
/// `cross_site`
pub(super) fn check_start(method: &Method, uri: &Uri, headers: &HeaderMap) -> Result<(), ApiError> {
    if is_same_origin(method, uri, headers) {
        return Ok(());
    }
    Err(ApiError::new(Code::CrossSite, "the login does not come from a page of this server"))
}

/// Returns the id of the browser, if it has logged in to this account before.
pub(super) fn browser(api: &Api, uri: &Uri, headers: &HeaderMap, account: &str) -> Option<String> {
    let proof = value(&browser_name(uri, headers), headers)?;
    api.shared.sessions.browser(proof, account).map(str::to_owned)
}

/// Checks a login: no page of another site may log a browser in, or use up the attempts of its user. A login that sets a
/// cookie also needs the header [`CSRF`].
///
/// # Errors
/// `cross_site`
pub(super) fn check_login(
    method: &Method,
    uri: &Uri,
    headers: &HeaderMap,
    sets_cookie: bool,
) -> Result<(), ApiError> {
    let is_program = !headers.contains_key("sec-fetch-site") && !headers.contains_key(ORIGIN);
    if (sets_cookie || !is_program) && !is_same_origin(method, uri, headers) {
        let detail = "the login does not come from a page of this server";
        return Err(ApiError::new(Code::CrossSite, detail));
    }
    if sets_cookie && !headers.contains_key(CSRF) {
        let detail = format!("a login with a cookie requires the header `{CSRF}`");
        return Err(ApiError::new(Code::CrossSite, detail));
    }
    Ok(())
}

/// Returns the request's session, if it has a valid one.
///
/// # Errors
/// `cross_site` if a page of another site made, or may have made, the browser send the request.
pub(super) fn session(
    api: &Api,
    method: &Method,
    uri: &Uri,
    headers: &HeaderMap,
) -> Result<Option<Session>, ApiError> {
    let Some(value) = value(&cookie_name(uri, headers), headers) else { return Ok(None) };
    if !is_same_origin(method, uri, headers) {
        let detail = "the request has a session, but does not come from a page of this server";
        return Err(ApiError::new(Code::CrossSite, detail));
    }
    if !method.is_safe() && !headers.contains_key(CSRF) {
        let detail = format!("a change with a session requires the header `{CSRF}`");
        return Err(ApiError::new(Code::CrossSite, detail));
    }
    Ok(api.shared.sessions.read(value, SystemClock.now()))
}

/// Returns the value of a cookie of the request.
fn value<'a>(name: &str, headers: &'a HeaderMap) -> Option<&'a str> {
    let cookies = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = cookies.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(found, _)| *found == name).map(|(_, value)| value)
}

fn browser_name(uri: &Uri, headers: &HeaderMap) -> String {
    format!("{}_browser", cookie_name(uri, headers))
}

/// Cookies do not depend on the port, so servers of one machine use different names.
fn cookie_name(uri: &Uri, headers: &HeaderMap) -> String {
    let port = authority(uri, headers).and_then(|authority| authority.rsplit_once(':')).map(|(_, port)| port);
    match port.and_then(|port| port.parse::<u16>().ok()) {
        Some(port) => format!("belfry_{port}"),
        None => "belfry".to_owned(),
    }
}

fn authority<'a>(uri: &'a Uri, headers: &'a HeaderMap) -> Option<&'a str> {
    uri.authority().map(|authority| authority.as_str()).or_else(|| headers.get(HOST)?.to_str().ok())
}

/// Returns whether the request comes from a page of this server, or directly from the user.
///
/// Browsers send `Sec-Fetch-Site`, except to servers without TLS on other machines. Changes also have `Origin`.
fn is_same_origin(method: &Method, uri: &Uri, headers: &HeaderMap) -> bool {
    let word = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    match (word("sec-fetch-site"), word(ORIGIN.as_str())) {
        (Some("same-origin"), _) => true,
        // The user typed the address or used a bookmark.
        (Some("none"), _) => method.is_safe(),
        (Some(_), _) => false,
        (None, Some(origin)) => {
            let from = origin.split_once("://").map(|(_, from)| from);
            from.is_some_and(|from| authority(uri, headers).is_some_and(|own| own.eq_ignore_ascii_case(from)))
        }
        (None, None) => method.is_safe(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(method: Method, headers: &[(&'static str, &'static str)]) -> bool {
        let mut all: HeaderMap = headers
            .iter()
            .map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_static(value)))
            .collect();
        all.insert(HOST, HeaderValue::from_static("localhost:7070"));
        is_same_origin(&method, &Uri::from_static("/x"), &all)
    }

    #[test]
    fn a_page_of_this_server_may_do_what_its_user_may() {
        assert!(asked(Method::POST, &[("sec-fetch-site", "same-origin")]));
        assert!(asked(Method::POST, &[("origin", "http://localhost:7070")]));
        assert!(asked(Method::GET, &[("sec-fetch-site", "none")]));
        assert!(asked(Method::GET, &[]));
    }

    /// A page on another port of this machine is another origin, although browsers call it the same site.
    #[test]
    fn a_page_of_another_site_cannot_read() {
        for site in ["cross-site", "same-site", "?"] {
            assert!(!asked(Method::GET, &[("sec-fetch-site", site)]), "{site}");
            assert!(!asked(Method::POST, &[("sec-fetch-site", site)]), "{site}");
        }
        for origin in ["http://localhost:7071", "http://evil.example", "null", "localhost:7070"] {
            assert!(!asked(Method::POST, &[("origin", origin)]), "{origin}");
        }
    }

    #[test]
    fn a_change_requires_an_origin() {
        assert!(!asked(Method::POST, &[]));
        assert!(!asked(Method::DELETE, &[("sec-fetch-site", "none")]));
    }

    #[test]
    fn servers_of_one_machine_do_not_share_a_cookie() {
        let name = |host: &'static str| {
            cookie_name(
                &Uri::from_static("/"),
                &HeaderMap::from_iter([(HOST, HeaderValue::from_static(host))]),
            )
        };
        assert_eq!(name("localhost:7070"), "belfry_7070");
        assert_eq!(name("[::1]:7071"), "belfry_7071");
        assert_eq!(name("belfry.example"), "belfry");
    }
}
