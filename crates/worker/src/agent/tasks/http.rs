//! HTTP/1.1 server for the requests of a task over its socket.
//!
//! ```text
//! PUT  /checkpoint            data            ─> 200 {"version":3}
//! GET  /checkpoint                            ─> 200 data · 404
//! POST /elements?batch=NAME   list            ─> 201 added · 200 already added
//! ```
//!
//! An error response is a problem document with `code`, `detail` and `hint`, as in the REST API.

use std::convert::Infallible;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::header::{
    CONTENT_TYPE, ETAG, HeaderMap, HeaderName, HeaderValue, IF_MATCH, IF_NONE_MATCH, RETRY_AFTER,
};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use model::api::{FieldError, Problem};
use model::limits::CHECKPOINT_BYTES_MAX;
use proto::v1::SaveCheckpointRequest;
use serde_json::json;
use tonic::{Code, Status};

use super::{ANSWER_MAX, Caller, Upstream, elements};

/// Maximum time for a request to arrive; applies to the head and to the body separately.
const ARRIVAL_MAX: Duration = Duration::from_secs(10);
/// Maximum size of the head of a request in bytes.
const HEAD_BYTES_MAX: usize = 16 << 10;

/// Error response to a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) status: StatusCode,
    pub(super) code: &'static str,
    pub(super) detail: String,
    pub(super) hint: &'static str,
    pub(super) errors: Vec<FieldError>,
}

/// Size limit of a body in bytes, and the texts for the error.
#[derive(Debug, Clone, Copy)]
pub(super) struct BodyBound {
    pub(super) bytes: usize,
    pub(super) what: &'static str,
    pub(super) hint: &'static str,
}

const CHECKPOINT_BOUND: BodyBound = BodyBound {
    bytes: CHECKPOINT_BYTES_MAX,
    what: "the checkpoint",
    hint: "store large data as an artifact and save its name",
};

pub(super) type Answer = Result<Response<Full<Bytes>>, Refusal>;

/// Serves one connection, which carries one request. Without a place (`has_slot`) the request is refused as `busy`.
pub(super) async fn serve(connection: UnixStream, caller: Caller, upstream: Upstream, has_slot: bool) {
    let stream = connection.set_nonblocking(true).and_then(|()| tokio::net::UnixStream::from_std(connection));
    let stream = match stream {
        Ok(stream) => stream,
        Err(error) => {
            let execution_id = &*caller.execution_id;
            return tracing::warn!(execution_id, %error, "cannot answer a call of a task");
        }
    };
    let service = service_fn(|request| {
        let (caller, upstream) = (caller.clone(), upstream.clone());
        async move {
            let answer = if has_slot { route(request, &caller, &upstream).await } else { Err(busy()) };
            Ok::<_, Infallible>(answer.unwrap_or_else(Refusal::into_response))
        }
    });
    let mut http = http1::Builder::new();
    http.keep_alive(false)
        .max_buf_size(HEAD_BYTES_MAX)
        .timer(TokioTimer::new())
        .header_read_timeout(ARRIVAL_MAX);
    let serving = http.serve_connection(TokioIo::new(stream), service);
    // Also disconnects a client that reads its response too slowly.
    match tokio::time::timeout(ARRIVAL_MAX * 3 + ANSWER_MAX, serving).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(execution_id = &*caller.execution_id, %error, "call interrupted"),
        Err(_) => tracing::debug!(execution_id = &*caller.execution_id, "call timed out"),
    }
}

async fn route(request: Request<Incoming>, caller: &Caller, upstream: &Upstream) -> Answer {
    match (request.method(), request.uri().path()) {
        (&Method::GET | &Method::HEAD, "/checkpoint") => get_checkpoint(caller, upstream).await,
        (&Method::PUT, "/checkpoint") => put_checkpoint(request, caller, upstream).await,
        (&Method::POST, "/elements") => elements::post(request, caller, upstream).await,
        (method, path @ ("/checkpoint" | "/elements")) => Err(Refusal::new(
            StatusCode::METHOD_NOT_ALLOWED,
            "method_not_allowed",
            format!("{path} does not support {method}"),
            match path {
                "/checkpoint" => "use GET to read the last checkpoint, or PUT to save a checkpoint",
                _ => "use POST to add elements",
            },
        )),
        (_, path) => Err(Refusal::new(
            StatusCode::NOT_FOUND,
            "not_found",
            format!("{path} does not exist"),
            "use /checkpoint or /elements",
        )),
    }
}

async fn get_checkpoint(caller: &Caller, upstream: &Upstream) -> Answer {
    let found = upstream.last(caller).await.map_err(|status| refused(&status))?;
    let Some(found) = found else {
        return Err(Refusal::new(
            StatusCode::NOT_FOUND,
            "checkpoint_not_found",
            "the job has no checkpoint".into(),
            "start from the beginning",
        ));
    };
    let mut response = Response::new(Full::new(found.data));
    let headers = response.headers_mut();
    let content_type = HeaderValue::try_from(found.content_type);
    headers.insert(CONTENT_TYPE, content_type.unwrap_or(HeaderValue::from_static(model::checkpoint::BYTES)));
    headers.extend(HeaderValue::try_from(format!("\"{}\"", found.version)).map(|tag| (ETAG, tag)));
    Ok(response)
}

async fn put_checkpoint(request: Request<Incoming>, caller: &Caller, upstream: &Upstream) -> Answer {
    let expected_version = expected_version(request.headers())?;
    let content_type = request.headers().get(CONTENT_TYPE).map(HeaderValue::to_str).transpose();
    let content_type = content_type.map_err(|_| header(&CONTENT_TYPE, "a media type"))?.unwrap_or_default();
    let content_type = content_type.to_owned();
    let data = body(request.into_body(), CHECKPOINT_BOUND).await?;
    let request = SaveCheckpointRequest {
        execution_id: caller.execution_id.to_string(),
        fence: caller.fence,
        data,
        content_type,
        expected_version,
    };
    let version = upstream.put(request).await.map_err(|status| refused(&status))?;
    Ok(json_response(StatusCode::OK, &json!({ "version": version })))
}

/// Reads the whole body, within its size limit and time limit.
pub(super) async fn body(body: Incoming, bound: BodyBound) -> Result<Bytes, Refusal> {
    let BodyBound { bytes, what, hint } = bound;
    let collected = Limited::new(body, bytes).collect();
    match tokio::time::timeout(ARRIVAL_MAX, collected).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(Refusal::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "body_too_large",
            format!("{what} is larger than {bytes} bytes"),
            hint,
        )),
        Ok(Err(error)) => Err(Refusal::new(
            StatusCode::BAD_REQUEST,
            "malformed_body",
            format!("cannot read the request body: {error}"),
            "send the request again",
        )),
        Err(_) => Err(Refusal::new(
            StatusCode::REQUEST_TIMEOUT,
            "request_timeout",
            "the request body arrived too slowly".into(),
            "send the body without pauses",
        )),
    }
}

/// Returns the expected current version: `If-Match: "3"`, or `If-None-Match: *` for no checkpoint.
fn expected_version(headers: &HeaderMap) -> Result<Option<u64>, Refusal> {
    if let Some(value) = headers.get(IF_NONE_MATCH) {
        return match value.as_bytes() {
            b"*" => Ok(Some(0)),
            _ => Err(header(&IF_NONE_MATCH, "`*`")),
        };
    }
    let Some(value) = headers.get(IF_MATCH) else { return Ok(None) };
    let version =
        value.to_str().ok().map(|text| text.trim().trim_matches('"')).and_then(|text| text.parse().ok());
    version.map(Some).ok_or_else(|| header(&IF_MATCH, "a version such as `\"3\"`"))
}

fn header(name: &HeaderName, expected: &str) -> Refusal {
    Refusal::new(
        StatusCode::BAD_REQUEST,
        "invalid_header",
        format!("invalid header `{name}`: expected {expected}"),
        "correct or omit the header",
    )
}

fn busy() -> Refusal {
    Refusal::new(
        StatusCode::TOO_MANY_REQUESTS,
        "busy",
        "the task has too many concurrent requests".into(),
        "wait until earlier requests have finished",
    )
}

/// Converts an error of the server, or a missing response, to a refusal.
pub(super) fn refused(status: &Status) -> Refusal {
    let detail = status.message().to_owned();
    match status.code() {
        Code::FailedPrecondition => Refusal::new(
            StatusCode::CONFLICT,
            "not_current",
            detail,
            "exit: another execution continues the job, or the job has ended",
        ),
        Code::Aborted => Refusal::new(
            StatusCode::PRECONDITION_FAILED,
            "version_mismatch",
            detail,
            "read the last checkpoint, then save again with its version",
        ),
        Code::InvalidArgument => {
            Refusal::new(StatusCode::BAD_REQUEST, "invalid_request", detail, "correct the request")
        }
        // The message names a gRPC method, which means nothing to a task.
        Code::Unimplemented => Refusal::new(
            StatusCode::NOT_IMPLEMENTED,
            "not_supported",
            "the server has an older version that does not support this request".into(),
            "upgrade the servers; repeating the request does not help",
        ),
        _ => Refusal::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "outcome_unknown",
            format!("it is unknown whether the request took effect: {detail}"),
            "repeat the request: it takes effect only once",
        ),
    }
}

impl Refusal {
    pub(super) fn new(status: StatusCode, code: &'static str, detail: String, hint: &'static str) -> Self {
        Self { status, code, detail, hint, errors: Vec::new() }
    }

    fn into_response(self) -> Response<Full<Bytes>> {
        let may_pass = matches!(self.status, StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS);
        let problem = Problem {
            kind: "about:blank".into(),
            title: self.status.canonical_reason().unwrap_or_default().into(),
            status: self.status.as_u16(),
            detail: self.detail,
            code: self.code.into(),
            hint: Some(self.hint.into()),
            errors: self.errors,
            instance: None,
            retry_after: may_pass.then_some(1),
        };
        let mut response = json_response(self.status, &json!(problem));
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if may_pass {
            headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}

pub(super) fn json_response(status: StatusCode, body: &serde_json::Value) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(format!("{body}\n")));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_precondition_names_a_version_or_none() {
        let expected = |name: HeaderName, value: &str| {
            let headers = HeaderMap::from_iter([(name, HeaderValue::try_from(value).unwrap())]);
            expected_version(&headers).map_err(|refusal| refusal.detail)
        };
        assert_eq!(expected_version(&HeaderMap::new()), Ok(None));
        assert_eq!(expected(IF_MATCH, "\"3\""), Ok(Some(3)));
        assert_eq!(expected(IF_NONE_MATCH, "*"), Ok(Some(0)));
        let refused = "invalid header `if-match`: expected a version such as `\"3\"`";
        assert_eq!(expected(IF_MATCH, "\"x\""), Err(refused.to_owned()));
        assert!(expected(IF_NONE_MATCH, "\"3\"").is_err());
    }

    #[test]
    fn an_unknown_outcome_differs_from_a_refusal() {
        let told = |status: Status| (refused(&status).status.as_u16(), refused(&status).code);
        assert_eq!(told(Status::failed_precondition("")), (409, "not_current"));
        assert_eq!(told(Status::aborted("")), (412, "version_mismatch"));
        for status in [Status::unavailable(""), Status::internal(""), Status::unknown("")] {
            assert_eq!(told(status), (503, "outcome_unknown"));
        }
        let response = refused(&Status::unavailable("")).into_response();
        assert_eq!(response.headers()[RETRY_AFTER], "1");
        assert_eq!(told(Status::unimplemented("")), (501, "not_supported"));
        assert!(!refused(&Status::unimplemented("")).into_response().headers().contains_key(RETRY_AFTER));
    }
}
