//! Refusal of requests without TLS from other machines, on the port of a server that terminates TLS.
//!
//! A token in such a request has already been sent in plain text, so the request is not processed: its client is
//! misconfigured and must be corrected. A browser that opens a page sends no token, and no cookie of this server, whose
//! cookies are `Secure`. It is redirected to the same page with `https`.
//!
//! A worker gets a gRPC status instead of a document, so that its log shows the reason.

use axum::Router;
use axum::extract::Request;
use axum::http::header::{CACHE_CONTROL, CONNECTION, CONTENT_TYPE, HOST, LOCATION};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderValue, StatusCode, Version};
use axum::response::{IntoResponse as _, Response};

use super::forward::discard;
use super::problem::{ApiError, Code};
use crate::web;

const DETAIL: &str = "this server accepts requests from other machines only with TLS";
const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");

/// Returns the service of connections without TLS.
pub(crate) fn tls_required() -> Router {
    Router::new().fallback(refuse)
}

async fn refuse(request: Request) -> Response {
    let mut response = match secure_page(&request) {
        Some(location) => redirect(location),
        None if is_grpc(request.headers()) => grpc_refusal(),
        None => ApiError::new(Code::TlsRequired, DETAIL).into_document(None),
    };
    // The streams of HTTP/2 end one by one.
    if request.version() < Version::HTTP_2 {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        discard(request.into_body()).await;
    }
    response
}

/// Returns the address of the same page with `https`, if a browser requests a page.
fn secure_page(request: &Request) -> Option<HeaderValue> {
    let (uri, headers) = (request.uri(), request.headers());
    if !web::is_view(request.method(), uri, headers) {
        return None;
    }
    let host = || Authority::try_from(headers.get(HOST)?.as_bytes()).ok();
    let authority = uri.authority().cloned().or_else(host)?;
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    HeaderValue::try_from(format!("https://{authority}{path}")).ok()
}

fn redirect(location: HeaderValue) -> Response {
    // Not permanent, and not stored: the server may later be configured without TLS.
    let headers = [(LOCATION, location), (CACHE_CONTROL, HeaderValue::from_static("no-store"))];
    (StatusCode::TEMPORARY_REDIRECT, headers).into_response()
}

fn is_grpc(headers: &HeaderMap) -> bool {
    headers.get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(GRPC.as_bytes()))
}

fn grpc_refusal() -> Response {
    let text = format!("{DETAIL}: use its address with `https://`");
    tonic::Status::failed_precondition(text).into_http()
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use axum::http::Method;
    use tower::ServiceExt as _;

    use super::*;

    async fn answer(method: Method, path: &str, headers: &[(&str, &str)]) -> Response {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        tls_required().oneshot(request.body(Body::from("{}")).unwrap()).await.unwrap()
    }

    #[tokio::test]
    async fn a_request_of_a_program_is_refused_with_the_next_step() {
        let refused = answer(Method::POST, "/api/v1/jobs", &[("host", "belfry.example:7070")]).await;
        assert_eq!(
            (refused.status(), &refused.headers()["connection"]),
            (StatusCode::BAD_REQUEST, &"close".parse::<HeaderValue>().unwrap())
        );
        let body = axum::body::to_bytes(refused.into_body(), 10_000).await.unwrap();
        let body = String::from_utf8(body.to_vec()).unwrap();
        assert!(body.contains("\"tls_required\"") && body.contains("`https://`"), "{body}");
    }

    #[tokio::test]
    async fn a_browser_that_opens_a_page_is_redirected_to_https() {
        let browser = [("host", "belfry.example:7070"), ("accept", "text/html,*/*;q=0.8")];
        let moved = answer(Method::GET, "/jobs?status=failed", &browser).await;
        assert_eq!(moved.status(), StatusCode::TEMPORARY_REDIRECT);
        assert_eq!(moved.headers()[LOCATION], "https://belfry.example:7070/jobs?status=failed");
        // Neither a change nor a request of a script is redirected.
        for (method, path, host) in [
            (Method::POST, "/jobs", "belfry.example"),
            (Method::GET, "/api/v1/jobs", "belfry.example"),
            (Method::GET, "/jobs", "a b"),
        ] {
            let refused = answer(method, path, &[("host", host), ("accept", "text/html")]).await;
            assert_eq!(refused.status(), StatusCode::BAD_REQUEST, "{path}");
        }
    }

    #[tokio::test]
    async fn a_worker_gets_the_reason_as_a_grpc_status() {
        let refused =
            answer(Method::POST, "/belfry.worker.v1.Worker/Session", &[("content-type", "application/grpc")])
                .await;
        assert_eq!(refused.status(), StatusCode::OK);
        assert_eq!(refused.headers()["grpc-status"], "9");
        assert!(refused.headers().contains_key("grpc-message"));
    }
}
