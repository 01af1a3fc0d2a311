//! The dashboard: the built files of `web/`, served from the binary.
//!
//! `make web` writes `web/dist`, which a release build embeds. A debug build reads it from there at each request, so
//! that a change is visible without compiling. If the dashboard was not built, [`page`] and [`asset`] return `None`,
//! and the server shows a plain page instead.
//!
//! # Invariants
//! - The page can load from this server and connect to it alone, and runs no script except its own files. Its style
//!   elements carry a nonce that is generated for each response.
//! - The name of an asset contains a hash of its bytes, so browsers may cache it forever; the page itself is never
//!   cached.

use axum::http::header::{
    ACCEPT, ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, CONTENT_TYPE, VARY,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};
use axum::response::{IntoResponse, Response};

/// Placeholder of the nonce in the page.
const NONCE_MARK: &str = "__NONCE__";
/// Policy for scripts that run as web workers, which have the policy of their own file, not that of the page. The
/// shared worker of the dashboard reads the event streams for all tabs.
const WORKER_POLICY: HeaderValue =
    HeaderValue::from_static("default-src 'none'; connect-src 'self'; frame-ancestors 'none'");
const FOREVER: HeaderValue = HeaderValue::from_static("public, max-age=31536000, immutable");

#[derive(rust_embed::RustEmbed)]
#[folder = "../../web/dist"]
#[allow_missing = true]
struct Dist;

/// Returns the page of all views of the dashboard; `None` if the dashboard was not built.
pub(crate) fn page() -> Option<Response> {
    let file = Dist::get("index.html")?;
    let nonce = format!("{:032x}", rand::random::<u128>());
    let html = with_nonce(&String::from_utf8_lossy(&file.data), &nonce);
    let headers: [(HeaderName, HeaderValue); 3] = [
        (CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8")),
        (CACHE_CONTROL, HeaderValue::from_static("no-store")),
        (CONTENT_SECURITY_POLICY, policy(&nonce)),
    ];
    Some((headers, html).into_response())
}

/// Returns whether a request without a route comes from a browser that opens a view of the dashboard.
pub(crate) fn is_view(method: &Method, uri: &Uri, headers: &HeaderMap) -> bool {
    let accept = headers.get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let reads = method == Method::GET || method == Method::HEAD;
    let api =
        ["/api/", "/assets/", "/docs/", "/schemas/"].iter().any(|prefix| uri.path().starts_with(prefix));
    reads && !api && accept.contains("text/html")
}

/// Returns a file that the page loads, compressed if the client accepts it and the build contains it.
pub(crate) fn asset(name: &str, headers: &HeaderMap) -> Option<Response> {
    // The folder is flat: a name with a separator is invalid.
    if name.contains(['/', '\\']) {
        return None;
    }
    let path = format!("assets/{name}");
    let accepted = headers.get(ACCEPT_ENCODING).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let packed = encodings(accepted)
        .find_map(|(coding, suffix)| Some((Some(coding), Dist::get(&format!("{path}.{suffix}"))?)));
    let (coding, file) = packed.or_else(|| Some((None, Dist::get(&path)?)))?;
    let mut response = (
        [(CONTENT_TYPE, HeaderValue::from_static(content_type(name))), (CACHE_CONTROL, FOREVER)],
        file.data.into_owned(),
    )
        .into_response();
    response.headers_mut().insert(VARY, HeaderValue::from_static("accept-encoding"));
    if name.ends_with(".js") {
        response.headers_mut().insert(CONTENT_SECURITY_POLICY, WORKER_POLICY);
    }
    if let Some(coding) = coding {
        response.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static(coding));
    }
    Some(response)
}

fn with_nonce(html: &str, nonce: &str) -> String {
    html.replace(NONCE_MARK, nonce)
}

fn policy(nonce: &str) -> HeaderValue {
    let policy = format!(
        "default-src 'none'; script-src 'self'; style-src 'self' 'nonce-{nonce}'; img-src 'self' data:; \
         font-src 'self'; connect-src 'self'; object-src 'none'; base-uri 'none'; form-action 'none'; \
         frame-ancestors 'none'"
    );
    // Hex digits and fixed text are always a valid header.
    HeaderValue::try_from(policy).unwrap_or(HeaderValue::from_static("default-src 'none'"))
}

/// Returns the accepted encodings with the suffixes of their files, the best first.
fn encodings(accepted: &str) -> impl Iterator<Item = (&'static str, &'static str)> {
    let taken = |coding: &str| {
        accepted.split(',').any(|each| {
            let (name, quality) = each.split_once(';').unwrap_or((each, ""));
            let refused = matches!(quality.trim(), "q=0" | "q=0.0" | "q=0.00" | "q=0.000");
            name.trim().eq_ignore_ascii_case(coding) && !refused
        })
    };
    let brotli = taken("br").then_some(("br", "br"));
    brotli.into_iter().chain(taken("gzip").then_some(("gzip", "gz")))
}

fn content_type(name: &str) -> &'static str {
    match name.rsplit_once('.').map(|(_, ending)| ending) {
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        Some("png") => "image/png",
        Some("woff2") => "font/woff2",
        Some("json") => "application/json",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_and_its_policy_carry_the_same_nonce() {
        let html = with_nonce("<meta content=\"__NONCE__\">", "5eed");
        assert_eq!(html, "<meta content=\"5eed\">");
        let policy = policy("5eed");
        let policy = policy.to_str().unwrap();
        assert!(policy.contains("style-src 'self' 'nonce-5eed'"), "{policy}");
        assert!(policy.contains("script-src 'self';") && !policy.contains("unsafe"), "{policy}");
    }

    #[test]
    fn no_two_pages_share_a_nonce() {
        let (Some(a), Some(b)) = (page(), page()) else { return };
        assert_ne!(a.headers()[CONTENT_SECURITY_POLICY], b.headers()[CONTENT_SECURITY_POLICY]);
    }

    #[test]
    fn a_client_gets_an_accepted_encoding_and_brotli_first() {
        let chosen = |accepted| encodings(accepted).map(|(coding, _)| coding).collect::<Vec<_>>();
        assert_eq!(chosen("gzip, deflate, br, zstd"), ["br", "gzip"]);
        assert_eq!(chosen("GZIP;q=0.5"), ["gzip"]);
        assert_eq!(chosen("br;q=0, identity"), Vec::<&str>::new());
        assert_eq!(chosen(""), Vec::<&str>::new());
    }

    #[test]
    fn a_browser_gets_the_page_for_any_view_and_programs_get_refusals() {
        let asked = |method: Method, path: &'static str, accept: &'static str| {
            let headers = HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static(accept))]);
            is_view(&method, &Uri::from_static(path), &headers)
        };
        assert!(asked(Method::GET, "/jobs/job_1?tab=spec", "text/html,application/xhtml+xml"));
        assert!(asked(Method::HEAD, "/workers", "text/html"));
        assert!(!asked(Method::GET, "/jobs", "application/json"));
        assert!(!asked(Method::GET, "/api/v1/nowhere", "text/html"));
        assert!(!asked(Method::GET, "/assets/gone.js", "text/html"));
        assert!(!asked(Method::POST, "/jobs", "text/html"));
    }

    #[test]
    fn no_file_outside_of_the_dashboard_is_served() {
        for name in ["../index.html", "../../package.json", "/etc/passwd", "..%2f..%2fpackage.json"] {
            assert!(asset(name, &HeaderMap::new()).is_none(), "{name}");
        }
    }
}
