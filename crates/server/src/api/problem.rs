//! Refusals: RFC 9457 problem documents with stable codes.
//!
//! One table has every code with its status, its title and its hint; the docs page and the tests iterate over it.
//! Handlers return an [`ApiError`], and [`edge`](super::edge) writes it as JSON, because it has the request id.
//!
//! Messages of unexpected errors go to the log only; the client gets `internal`.

use std::borrow::Cow;

use axum::http::header::{ALLOW, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use model::Refusal;
pub(super) use model::api::Code;
use model::api::{FieldError, Problem};
pub(super) use model::error_chain::Chain;
use model::validate::Invalid;
use store::StoreError;

use crate::auth::Denied;
use crate::node::RequestError;

/// Media type of problem documents.
pub(super) const PROBLEM_JSON: &str = "application/problem+json";

/// Most invalid fields in one document.
const FIELD_ERRORS_MAX: usize = 100;

/// A refusal of a request.
///
/// Boxed, because almost every function here may return one and almost none does.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ApiError(Box<Parts>);

#[derive(Debug, Clone, PartialEq)]
struct Parts {
    code: Code,
    detail: Cow<'static, str>,
    hint: Option<Cow<'static, str>>,
    errors: Vec<FieldError>,
    retry_after_secs: Option<u64>,
    header: Option<(HeaderName, HeaderValue)>,
}

impl ApiError {
    /// Creates a refusal; `detail` says what failed and on which object.
    pub(super) fn new(code: Code, detail: impl Into<Cow<'static, str>>) -> Self {
        let retry_after_secs = matches!(code.status(), 429 | 503).then_some(1);
        let (hint, errors, header) = (None, Vec::new(), None);
        Self(Box::new(Parts { code, detail: detail.into(), hint, errors, retry_after_secs, header }))
    }

    /// Sets the next step for the user, instead of the code's own hint.
    #[must_use]
    pub(super) fn hint(mut self, hint: impl Into<Cow<'static, str>>) -> Self {
        self.0.hint = Some(hint.into());
        self
    }

    /// Adds invalid fields, up to [`FIELD_ERRORS_MAX`].
    #[must_use]
    pub(super) fn fields(mut self, errors: impl IntoIterator<Item = FieldError>) -> Self {
        let room = FIELD_ERRORS_MAX.saturating_sub(self.0.errors.len());
        self.0.errors.extend(errors.into_iter().take(room));
        self
    }

    /// Sets the delay before a retry, rounded up to whole seconds.
    #[must_use]
    pub(super) fn retry_after(mut self, wait: std::time::Duration) -> Self {
        self.0.retry_after_secs = Some(wait.as_millis().div_ceil(1_000).max(1) as u64);
        self
    }

    /// Sets a header of the response; only one is kept.
    #[must_use]
    pub(super) fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.0.header = Some((name, value));
        self
    }

    /// Returns the code of the refusal.
    pub(super) fn code(&self) -> Code {
        self.0.code
    }

    /// Returns what failed, and on which object.
    pub(super) fn detail(&self) -> &str {
        &self.0.detail
    }

    /// Creates a refusal of a body that parses but is invalid; names every problem.
    pub(super) fn invalid(invalid: &Invalid) -> Self {
        let errors = invalid.problems.iter().map(|p| field_error(&p.path, &p.message));
        Self::invalid_fields(errors.collect())
    }

    /// Creates a refusal like [`ApiError::invalid`], from field errors.
    pub(super) fn invalid_fields(errors: Vec<FieldError>) -> Self {
        let detail = match errors.as_slice() {
            [] => "the request is not valid".to_owned(),
            [one] => one_line(one),
            [first, rest @ ..] => format!("{}; and {} more", one_line(first), rest.len()),
        };
        Self::new(Code::InvalidSpec, detail).fields(errors)
    }

    /// Creates a refusal of a query or path parameter.
    pub(super) fn parameter(name: &str, detail: impl Into<String>) -> Self {
        let error = FieldError { pointer: format!("?{name}"), path: name.to_owned(), detail: detail.into() };
        Self::new(Code::InvalidParameter, one_line(&error)).fields([error])
    }

    /// Creates a refusal for an unexpected error; logs the cause and hides it from the client.
    pub(super) fn internal(error: &(dyn std::error::Error + 'static)) -> Self {
        tracing::error!(error = %Chain(error), "request failed");
        Self::new(Code::Internal, "the server failed to handle the request; see its log for the cause")
    }

    fn status(&self) -> StatusCode {
        StatusCode::from_u16(self.0.code.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    /// Returns the document, for the request with this id. It may quote text of the client, but no control characters,
    /// because the document may be printed on a terminal.
    pub(super) fn into_problem(mut self, instance: Option<String>) -> Problem {
        for error in &mut self.0.errors {
            clean(&mut error.pointer);
            clean(&mut error.path);
            clean(&mut error.detail);
        }
        let mut detail = self.0.detail.into_owned();
        clean(&mut detail);
        let hint = self.0.hint.unwrap_or(Cow::Borrowed(self.0.code.hint()));
        Problem {
            kind: format!("/docs/problems#{}", self.0.code.as_str()),
            title: self.0.code.title().to_owned(),
            status: self.0.code.status(),
            detail,
            code: self.0.code.as_str().to_owned(),
            hint: Some(hint.into_owned()),
            errors: self.0.errors,
            instance,
            retry_after: self.0.retry_after_secs,
        }
    }

    /// Returns the complete response.
    pub(super) fn into_document(self, instance: Option<String>) -> Response {
        let status = self.status();
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(PROBLEM_JSON));
        if let Some(seconds) = self.0.retry_after_secs {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.0.code == Code::Unauthenticated {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"belfry\""));
        }
        headers.extend(self.0.header.clone());
        let body = serde_json::to_vec(&self.into_problem(instance)).unwrap_or_default();
        (status, headers, body).into_response()
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        // `edge` writes the body, because it has the request id.
        let mut response = self.status().into_response();
        response.extensions_mut().insert(self);
        response
    }
}

/// Returns the refusal for a bare response of axum, such as its 405. `None` for successful responses and for the
/// forwarded refusals of another server.
pub(super) fn of_bare_response(response: &Response) -> Option<ApiError> {
    if response.headers().get(CONTENT_TYPE).is_some_and(|kind| kind == PROBLEM_JSON) {
        return None;
    }
    let code = match response.status() {
        StatusCode::METHOD_NOT_ALLOWED => Code::MethodNotAllowed,
        StatusCode::NOT_FOUND => Code::NotFound,
        StatusCode::PAYLOAD_TOO_LARGE => Code::BodyTooLarge,
        StatusCode::UNSUPPORTED_MEDIA_TYPE => Code::UnsupportedMediaType,
        status if status.is_client_error() => Code::InvalidParameter,
        status if status.is_server_error() => Code::Internal,
        _ => return None,
    };
    let error = ApiError::new(code, code.title().trim_end_matches('.').to_lowercase());
    Some(match response.headers().get(ALLOW) {
        Some(allow) => error.header(ALLOW, allow.clone()),
        None => error,
    })
}

fn clean(text: &mut String) {
    if text.chars().any(char::is_control) {
        *text = text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    }
}

fn one_line(error: &FieldError) -> String {
    if error.path.is_empty() { error.detail.clone() } else { format!("{}: {}", error.path, error.detail) }
}

/// Returns the beginning of a client's text, for quoting in a refusal.
pub(super) fn excerpt(text: &str) -> String {
    text.chars().take(64).collect()
}

/// Returns an invalid field; derives its pointer from its path.
pub(super) fn field_error(path: &str, detail: &str) -> FieldError {
    FieldError { pointer: pointer(path), path: path.to_owned(), detail: detail.to_owned() }
}

/// Converts a path such as `a.b[2].c` to a JSON pointer, `/a/b/2/c`.
///
/// A map key with dots, such as a label, becomes several segments, because paths do not quote keys.
fn pointer(path: &str) -> String {
    let mut pointer = String::with_capacity(path.len() + 1);
    if !path.is_empty() {
        pointer.push('/');
    }
    for c in path.chars() {
        match c {
            '.' | '[' => pointer.push('/'),
            ']' => {}
            '~' => pointer.push_str("~0"),
            '/' => pointer.push_str("~1"),
            c => pointer.push(c),
        }
    }
    pointer
}

impl From<RequestError> for ApiError {
    fn from(error: RequestError) -> Self {
        let code = match &error {
            RequestError::Refused(refusal) => return refused(refusal),
            RequestError::OutcomeUnknown => Code::OutcomeUnknown,
            RequestError::Busy { .. } => Code::Busy,
            RequestError::Full => Code::StorageFull,
            RequestError::Loading => Code::Loading,
            RequestError::Stopping => Code::Stopping,
            RequestError::Poisoned => Code::Internal,
        };
        let mut refusal = Self::new(code, error.to_string());
        if let RequestError::Busy { retry_after } = error {
            refusal.0.retry_after_secs = Some(retry_after.as_millis().div_ceil(1_000).max(1));
        }
        refusal
    }
}

fn refused(refusal: &Refusal) -> ApiError {
    match refusal.problems() {
        problems if problems.is_empty() => {
            ApiError::new(refusal.code(), refusal.to_string()).hint(refusal.hint())
        }
        problems => ApiError::invalid_fields(fields_at("", &problems)),
    }
}

/// Converts problems to invalid fields, with a prefix to their paths.
pub(super) fn fields_at(at: &str, problems: &[model::validate::Problem]) -> Vec<FieldError> {
    problems.iter().map(|p| field_error(&format!("{at}{}", p.path), &p.message)).collect()
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        let code = match &error {
            StoreError::Full => Code::StorageFull,
            StoreError::OutcomeUnknown { .. } => Code::OutcomeUnknown,
            StoreError::Unavailable { .. } => Code::StoreUnavailable,
            StoreError::TooSlow { .. } => Code::QueryTooSlow,
            _ => return Self::internal(&error),
        };
        tracing::warn!(error = %Chain(&error), "store request failed");
        Self::new(code, error.to_string())
    }
}

impl From<Denied> for ApiError {
    fn from(denied: Denied) -> Self {
        Self::new(Code::Forbidden, denied.to_string())
    }
}

#[cfg(test)]
mod tests {
    use model::{Duration, JobId, JobSpec, Timestamp};

    use super::*;

    fn shown(error: ApiError) -> String {
        serde_json::to_string_pretty(&error.into_problem(Some("req-1".into()))).unwrap()
    }

    #[test]
    fn every_wrong_field_of_a_spec_is_named_with_path_and_pointer() {
        let mut spec = JobSpec::command(["true"]);
        spec.name = "pay roll".into();
        spec.retry.backoff.factor = 0.5;
        let invalid = model::validate::job(&spec, Timestamp::from_millis(0)).unwrap_err();
        insta::assert_snapshot!(shown(ApiError::invalid(&invalid)));
    }

    /// A10. A client of a standby must get the leader's refusal unchanged.
    #[test]
    fn a_refusal_that_another_server_wrote_is_passed_on_as_it_is() {
        let bare = StatusCode::SERVICE_UNAVAILABLE.into_response();
        assert_eq!(of_bare_response(&bare).map(|error| error.0.code), Some(Code::Internal));
        let written = ApiError::new(Code::OutcomeUnknown, "the connection failed").into_document(None);
        assert!(of_bare_response(&written).is_none());
    }

    #[test]
    fn control_characters_that_a_client_sent_are_not_sent_back() {
        let problem = ApiError::parameter("na\u{7}me", "`\u{1b}[31m` is odd").into_problem(None);
        assert!(!format!("{problem:?}").contains("\\u{"), "{problem:?}");
        assert_eq!(problem.detail, "na\u{fffd}me: `\u{fffd}[31m` is odd");
    }

    #[test]
    fn a_problem_document_lists_a_bounded_number_of_errors() {
        let errors = (0..10_000).map(|i| field_error(&format!("jobs[{i}].name"), "is empty")).collect();
        let problem = ApiError::invalid_fields(errors).into_problem(None);
        assert_eq!(problem.errors.len(), FIELD_ERRORS_MAX);
        assert_eq!(problem.detail, "jobs[0].name: is empty; and 9999 more");
    }

    #[test]
    fn each_request_error_has_its_code() {
        let job = JobId::from_bits(1);
        let table = [
            (RequestError::OutcomeUnknown, "503 outcome_unknown"),
            (RequestError::Busy { retry_after: Duration::from_millis(1_500) }, "429 busy"),
            (RequestError::Full, "507 storage_full"),
            (RequestError::Loading, "503 loading"),
            (RequestError::Stopping, "503 stopping"),
            (RequestError::Poisoned, "500 internal"),
            (Refusal::JobStarted { job }.into(), "409 job_started"),
            (Refusal::JobNotLive { job }.into(), "409 job_ended"),
            (Refusal::VersionMismatch { expected: 1, found: 2 }.into(), "412 version_mismatch"),
            (Refusal::IdempotencyKeyReused { index: 0, job }.into(), "422 idempotency_key_reused"),
            (Refusal::IdempotencyKeyRepeated { index: 1 }.into(), "422 idempotency_key_reused"),
        ];
        for (error, expected) in table {
            let problem = ApiError::from(error).into_problem(None);
            assert_eq!(format!("{} {}", problem.status, problem.code), expected);
        }
    }

    #[test]
    fn a_busy_server_sends_retry_after_in_whole_seconds() {
        let busy = RequestError::Busy { retry_after: Duration::from_millis(1_500) };
        let response = ApiError::from(busy).into_document(None);
        assert_eq!(response.headers()[RETRY_AFTER], "2");
    }

    #[test]
    fn an_unknown_outcome_is_safe_to_repeat() {
        insta::assert_snapshot!(shown(RequestError::OutcomeUnknown.into()));
    }

    #[test]
    fn an_internal_error_is_not_explained_to_the_client() {
        let error = std::io::Error::other("secret path");
        assert!(!shown(ApiError::internal(&error)).contains("secret"));
    }

    #[test]
    fn paths_become_pointers() {
        assert_eq!(pointer("run.process.env.FOO"), "/run/process/env/FOO");
        assert_eq!(pointer("jobs[12].inputs[0].path"), "/jobs/12/inputs/0/path");
        assert_eq!(pointer(""), "");
        assert_eq!(pointer("labels.a/b~c"), "/labels/a~1b~0c");
    }
}
