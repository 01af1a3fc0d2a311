//! Endpoints of a service that the job of a task requires: `GET /services/NAME/endpoints`.
//!
//! The response has an `ETag`. With it in `If-None-Match`, the answer is `304` while nothing has changed; with `wait`, a
//! number of seconds, the server waits for a change before it answers.

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, ETAG, HeaderValue, IF_NONE_MATCH};
use hyper::{Request, Response, StatusCode};
use proto::v1::{GetEndpointsRequest, GetEndpointsResponse};
use tonic::{Code, Status};

use super::response::{self, Answer, Refusal};
use super::{Caller, Upstream};

/// Maximum time to wait for a change, in seconds.
const WAIT_SECONDS_MAX: u64 = 30;

/// Returns the name of the service in a path, if it is the path of endpoints.
pub(super) fn service_in(path: &str) -> Option<String> {
    let name = path.strip_prefix("/services/")?.strip_suffix("/endpoints")?;
    (!name.is_empty() && !name.contains('/')).then(|| name.to_owned())
}

pub(super) async fn get(
    request: &Request<Incoming>,
    service: String,
    caller: &Caller,
    upstream: &Upstream,
) -> Answer {
    let wait = wait_in(request.uri().query().unwrap_or_default())?;
    let known = request.headers().get(IF_NONE_MATCH).map(HeaderValue::to_str).transpose();
    let known = known.map_err(|_| response::header(&IF_NONE_MATCH, "the ETag of an earlier response"))?;
    let known = known.unwrap_or_default().trim().trim_matches('"').to_owned();
    let request = GetEndpointsRequest {
        execution_id: caller.execution_id.to_string(),
        fence: caller.fence,
        service,
        known_version: known.clone(),
        wait_ms: wait * 1_000,
    };
    let GetEndpointsResponse { version, endpoints } =
        upstream.endpoints(request).await.map_err(|status| refused(&status))?;
    let is_known = !known.is_empty() && known == version;
    let body = if is_known { Bytes::new() } else { [b"{\"items\":", &*endpoints, b"}\n"].concat().into() };
    let mut response = Response::new(Full::new(body));
    let headers = response.headers_mut();
    headers.extend(HeaderValue::try_from(format!("\"{version}\"")).map(|tag| (ETAG, tag)));
    if is_known {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
    } else {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    }
    Ok(response)
}

/// Returns the time to wait for a change, in seconds.
fn wait_in(query: &str) -> Result<u64, Refusal> {
    let invalid = |what: String| {
        let detail = format!("the parameter {what}");
        Refusal::new(StatusCode::BAD_REQUEST, "invalid_parameter", detail, "correct or omit the parameter")
    };
    let mut wait = 0;
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        if name != "wait" {
            return Err(invalid(format!("`{}` is unknown: expected `wait`", name.escape_debug())));
        }
        let seconds = value.parse().ok().filter(|seconds| *seconds <= WAIT_SECONDS_MAX);
        wait = seconds.ok_or_else(|| {
            let found = value.escape_debug();
            invalid(format!("`wait` is `{found}`: expected a number of seconds from 0 to {WAIT_SECONDS_MAX}"))
        })?;
    }
    Ok(wait)
}

fn refused(status: &Status) -> Refusal {
    match status.code() {
        Code::PermissionDenied => Refusal::new(
            StatusCode::FORBIDDEN,
            "service_not_required",
            status.message().to_owned(),
            "name the service in `requires` of the job",
        ),
        _ => response::refused(status),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_of_endpoints_names_a_service() {
        assert_eq!(service_in("/services/db.v2/endpoints").as_deref(), Some("db.v2"));
        for other in ["/services//endpoints", "/services/a/b/endpoints", "/services/a", "/endpoints"] {
            assert_eq!(service_in(other), None, "{other}");
        }
    }

    #[test]
    fn a_wait_has_at_most_thirty_seconds() {
        let of = |query: &str| wait_in(query).map_err(|refusal| refusal.detail);
        assert_eq!([of(""), of("wait=0"), of("wait=30")], [Ok(0), Ok(0), Ok(30)]);
        let refused = |what: &str| Err(format!("the parameter {what}"));
        assert_eq!(of("wait=31"), refused("`wait` is `31`: expected a number of seconds from 0 to 30"));
        assert_eq!(of("wait=1m"), refused("`wait` is `1m`: expected a number of seconds from 0 to 30"));
        assert_eq!(of("until=1"), refused("`until` is unknown: expected `wait`"));
    }
}
