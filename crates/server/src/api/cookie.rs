//! The cookie that stands for a token in a browser, and whose session a request carries by it.
//!
//! The browser sends the cookie by itself, also for pages of other sites. So it counts only for
//! requests that a page of this server makes ([`is_own_page`]), it is `SameSite=Strict`, and no script
//! can read it. Programs keep sending their token.
//!
//! A request that changes something needs the header [`CSRF`] as well. A form or a link cannot send one, and a
//! script of another page has to ask first, which no route here allows. Reads need none: streams and
//! downloads that a browser opens by itself have no way to add one.

use axum::http::header::{COOKIE, HOST, ORIGIN};
use axum::http::{HeaderMap, HeaderValue, Method, Uri};

use super::Api;
use super::problem::{ApiError, Code};
use crate::auth::Actor;
use crate::clock::{Clock, SystemClock};
use crate::config::Exposure;

/// Sent by the dashboard with everything that changes something, with any value.
const CSRF: &str = "x-belfry-csrf";

/// A cookie with this value, for the server that a request was sent to.
pub(super) fn new(
    api: &Api,
    uri: &Uri,
    headers: &HeaderMap,
    value: &str,
    max_age: Option<u64>,
) -> Result<HeaderValue, ApiError> {
    let mut text = format!("{}={value}; Path=/; HttpOnly; SameSite=Strict", cookie_name(uri, headers));
    if let Some(seconds) = max_age {
        text += &format!("; Max-Age={seconds}");
    }
    if api.config.exposure == Exposure::BehindProxy {
        text += "; Secure";
    }
    HeaderValue::try_from(text).map_err(|error| ApiError::internal(&error))
}

/// Whose session a request carries.
///
/// # Errors
/// `cross_site`, if a page of another site made the browser send the request, or may have.
pub(super) fn actor(
    api: &Api,
    method: &Method,
    uri: &Uri,
    headers: &HeaderMap,
) -> Result<Option<Actor>, ApiError> {
    let name = cookie_name(uri, headers);
    let cookies = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = cookies.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
    let Some((_, value)) = pairs.find(|(found, _)| *found == name) else { return Ok(None) };
    if !is_own_page(method, uri, headers) {
        let detail = "the request has a session, and does not come from a page of this server";
        return Err(ApiError::new(Code::CrossSite, detail));
    }
    if !method.is_safe() && !headers.contains_key(CSRF) {
        let detail = format!("the request has a session, would change something, and has no header `{CSRF}`");
        return Err(ApiError::new(Code::CrossSite, detail));
    }
    let token_id = api.shared.sessions.read(value, SystemClock.now());
    Ok(token_id.and_then(|id| api.tokens.bearer_of(id)))
}

/// Cookies do not know of ports: servers of one machine tell theirs apart by the name.
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

/// Whether a browser sends this for a page of this server, or for its user.
///
/// Browsers say so in `Sec-Fetch-Site`, except to servers without TLS on other machines; what changes
/// something says in `Origin` where it comes from.
fn is_own_page(method: &Method, uri: &Uri, headers: &HeaderMap) -> bool {
    let word = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    match (word("sec-fetch-site"), word(ORIGIN.as_str())) {
        (Some("same-origin"), _) => true,
        // The address bar, a bookmark.
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
        is_own_page(&method, &Uri::from_static("/x"), &all)
    }

    #[test]
    fn a_page_of_this_server_may_do_what_its_user_may() {
        assert!(asked(Method::POST, &[("sec-fetch-site", "same-origin")]));
        assert!(asked(Method::POST, &[("origin", "http://localhost:7070")]));
        assert!(asked(Method::GET, &[("sec-fetch-site", "none")]));
        assert!(asked(Method::GET, &[]));
    }

    /// Another port of this machine is another site's page, though browsers call it the same site.
    #[test]
    fn a_page_of_another_site_may_not_even_read() {
        for site in ["cross-site", "same-site", "?"] {
            assert!(!asked(Method::GET, &[("sec-fetch-site", site)]), "{site}");
            assert!(!asked(Method::POST, &[("sec-fetch-site", site)]), "{site}");
        }
        for origin in ["http://localhost:7071", "http://evil.example", "null", "localhost:7070"] {
            assert!(!asked(Method::POST, &[("origin", origin)]), "{origin}");
        }
    }

    #[test]
    fn what_changes_something_must_say_where_it_comes_from() {
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
