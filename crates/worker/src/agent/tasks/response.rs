//! Responses to the requests of tasks, and what all handlers need to answer one.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER};
use hyper::{Response, StatusCode};
use model::api::{FieldError, Problem};
use serde_json::json;
use tonic::{Code, Status};

/// Maximum time for a request to arrive; applies to the head and to the body separately.
pub(super) const ARRIVAL_MAX: Duration = Duration::from_secs(10);

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

pub(super) type Answer = Result<Response<Full<Bytes>>, Refusal>;

impl Refusal {
    pub(super) fn new(status: StatusCode, code: &'static str, detail: String, hint: &'static str) -> Self {
        Self { status, code, detail, hint, errors: Vec::new() }
    }

    pub(super) fn into_response(self) -> Response<Full<Bytes>> {
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

pub(super) fn header(name: &HeaderName, expected: &str) -> Refusal {
    Refusal::new(
        StatusCode::BAD_REQUEST,
        "invalid_header",
        format!("invalid header `{name}`: expected {expected}"),
        "correct or omit the header",
    )
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

#[cfg(test)]
mod tests {
    use super::*;

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
