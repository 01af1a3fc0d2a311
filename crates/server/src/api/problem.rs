//! Refusals: RFC 9457 problem documents with stable codes.
//!
//! Every code stands in one table with its status, its title and what to do next; the docs page and
//! the tests walk it. An [`ApiError`] is a refusal on its way out: handlers return it, and
//! [`edge`](super::edge) writes it as JSON, where the request's id is known.

use std::borrow::Cow;

use axum::http::header::{ALLOW, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use engine::Refusal;
use model::api::{FieldError, Problem};
use model::validate::Invalid;
use store::StoreError;

use crate::auth::Denied;
use crate::node::RequestError;

/// The media type of problem documents.
pub(super) const PROBLEM_JSON: &str = "application/problem+json";

/// A document names this many wrong fields at most.
const FIELD_ERRORS_MAX: usize = 100;

macro_rules! codes {
    ($($(#[$doc:meta])* $variant:ident = $status:literal, $word:literal, $title:literal, $hint:literal;)*) => {
        /// What kind of refusal it is: the stable words for programs.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Code { $($(#[$doc])* #[doc = $title] $variant,)* }

        impl Code {
            /// Every one, by status.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The word in `code`.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word,)* }
            }

            /// The HTTP status.
            pub const fn status(self) -> u16 {
                match self { $(Self::$variant => $status,)* }
            }

            /// The same for every refusal of this code.
            pub const fn title(self) -> &'static str {
                match self { $(Self::$variant => $title,)* }
            }

            /// What to do next, where nothing better is known.
            pub const fn hint(self) -> &'static str {
                match self { $(Self::$variant => $hint,)* }
            }
        }
    };
}

codes! {
    MalformedBody = 400, "malformed_body", "The body cannot be read.", "send what the content type says, encoded as UTF-8";
    InvalidParameter = 400, "invalid_parameter", "A parameter is invalid.", "see /docs for the parameters of this route";
    InvalidHeader = 400, "invalid_header", "A header is invalid.", "see /docs for the headers of this route";
    InvalidCursor = 400, "invalid_cursor", "The cursor does not belong to this list.", "read the list from its beginning, without `cursor`; keep the filter the same from page to page";
    Unauthenticated = 401, "unauthenticated", "There is no valid token.", "send `Authorization: Bearer TOKEN`; the first admin token is in the server's data folder, in `admin-token`";
    Forbidden = 403, "forbidden", "The token does not allow this.", "use a token of another kind";
    NotApprover = 403, "not_approver", "Somebody else is to approve.", "ask one of those that the step names";
    CrossSite = 403, "cross_site", "A page of somebody else sent the request, or may have.", "open the dashboard of this server; programs send `Authorization: Bearer TOKEN`, and no cookie; a page of this server sends `X-Belfry-Csrf: 1` with what changes something";
    HostRefused = 403, "host_refused", "The server does not go by that name.", "use localhost or an address, or add the name to the server's `host_names`";
    NotFound = 404, "not_found", "There is nothing at this address.", "see /docs for all routes";
    JobNotFound = 404, "job_not_found", "There is no such job.", "it never was, or its retention is over";
    CheckpointNotFound = 404, "checkpoint_not_found", "The job has saved no checkpoint.", "a task saves one through its socket or by $BELFRY_CHECKPOINT; see /docs";
    ExecutionNotFound = 404, "execution_not_found", "There is no such execution.", "it never was, or the retention of its job is over";
    WorkerNotFound = 404, "worker_not_found", "There is no such worker.", "GET /api/v1/workers has all of them";
    ServerNotFound = 404, "server_not_found", "There is no such server.", "GET /api/v1/servers has all that are there; a server has another id after each start";
    QueueNotFound = 404, "queue_not_found", "There is no such queue.", "a queue is made by setting it up (PUT) or by submitting a job to it";
    ArtifactNotFound = 404, "artifact_not_found", "There is no such artifact.", "GET /api/v1/artifacts has all of them; check the namespace";
    ScheduleNotFound = 404, "schedule_not_found", "There is no such schedule.", "GET /api/v1/schedules has all of them; check the namespace";
    BackfillNotFound = 404, "backfill_not_found", "There is no such backfill.", "GET /api/v1/backfills has all that are kept";
    CalendarNotFound = 404, "calendar_not_found", "There is no such calendar.", "GET /api/v1/calendars has all of them; check the namespace";
    WorkflowNotFound = 404, "workflow_not_found", "There is no such workflow.", "GET /api/v1/workflows has all of them; check the namespace";
    RunNotFound = 404, "run_not_found", "There is no such run.", "it never was, or its retention is over";
    StepNotFound = 404, "step_not_found", "The run has no such step.", "GET /api/v1/runs/ID/steps has all of them";
    MethodNotAllowed = 405, "method_not_allowed", "The address does not take this method.", "the `Allow` header names those that it takes";
    SlowRequest = 408, "slow_request", "The request came in too slowly.", "send the body without long pauses";
    JobStarted = 409, "job_started", "The job has started.", "only a job that has not started can be changed; cancel it and submit another";
    JobEnded = 409, "job_ended", "The job has ended.", "to run it again, POST to its /retry";
    JobNotEnded = 409, "job_not_ended", "The job has not ended.", "wait for its end, or cancel it";
    WorkerConnected = 409, "worker_connected", "The worker is connected.", "stop its agent first, and wait until it is lost";
    QueueInUse = 409, "queue_in_use", "The queue has jobs.", "wait for the end of its jobs, or cancel them";
    ArtifactInUse = 409, "artifact_in_use", "A live run needs the artifact.", "wait for the end of the run, or cancel it";
    ScheduleExists = 409, "schedule_exists", "There is a schedule of this name.", "PUT replaces it; or choose another name";
    RunEnded = 409, "run_ended", "The run has ended, or is ending.", "to try it again, POST to its /retry";
    RunNotEnded = 409, "run_not_ended", "The run has not ended.", "wait for its end, or cancel it";
    RepeatForbidden = 409, "repeat_forbidden", "The retry would start a job again that runs at most once.", "find out what the job did; to start it again all the same, name its step in `repeat` (`belfry run retry --repeat STEP`)";
    StepEnded = 409, "step_ended", "The step has ended.", "to do it again, POST to /retry of its run once that has ended";
    StepNotAsked = 409, "step_not_asked", "The step does not wait for approval.", "GET its /why says what holds it";
    NobodyWaits = 409, "nobody_waits", "No step waits for the event, or is still to.", "check the name of the event; the first one of a name counts";
    RunsWaiting = 409, "runs_waiting", "Runs of the workflow wait for their turn.", "cancel them first, or wait until they have begun";
    TooManyRuns = 409, "too_many_runs", "As many runs of the workflow wait for their turn as may.", "wait until some have ended, or raise `max_parallel_runs`";
    RunsNotOver = 409, "runs_not_over", "As many runs of the schedule are not over as may be.", "wait for their end, cancel them, or name another `overlap`";
    NothingToBackfill = 409, "nothing_to_backfill", "Nothing of the range is left to run, or a running backfill has it.", "look at the running backfill, or take another range";
    TooManyBackfills = 409, "too_many_backfills", "As many backfills are running as may be.", "wait for the end of one, or cancel one";
    BackfillEnded = 409, "backfill_ended", "The backfill has ended.", "begin another one";
    CalendarInUse = 409, "calendar_in_use", "Something refers to the calendar.", "take it out of what refers to it first";
    CalendarBuiltIn = 409, "calendar_built_in", "The calendar is part of Belfry.", "make a calendar of your own that includes or excludes its days, and name that";
    NoOtherServer = 409, "no_other_server", "No other server could go on.", "start another server on the same store first, or stop this one";
    VersionMismatch = 412, "version_mismatch", "Somebody changed it meanwhile.", "read it again and repeat the change with the new ETag";
    BodyTooLarge = 413, "body_too_large", "The body is too large.", "split it; a large file belongs into an artifact";
    UriTooLong = 414, "uri_too_long", "The address is too long.", "name fewer labels and statuses";
    UnsupportedMediaType = 415, "unsupported_media_type", "The content type is not taken here.", "send `Content-Type: application/json`";
    InvalidSpec = 422, "invalid_spec", "The request is not valid.", "correct the fields that `errors` names";
    IdempotencyKeyReused = 422, "idempotency_key_reused", "The idempotency key was used for something else.", "use another key, or repeat exactly what was sent first";
    ClientLimit = 429, "client_limit", "The client has reached its limit.", "try again after `Retry-After` seconds, with fewer concurrent requests; the server's settings `client_*` are the limits";
    Busy = 429, "busy", "The server has too much to do.", "try again after `Retry-After` seconds, with fewer requests at a time";
    Internal = 500, "internal", "The server failed.", "this is a defect of Belfry: report it with the request id and the server's log";
    OutcomeUnknown = 503, "outcome_unknown", "It is not known whether the request took effect.", "safe to repeat with the same idempotency key: nothing is done twice";
    Loading = 503, "loading", "The server is starting.", "try again in a moment";
    Stopping = 503, "stopping", "The server is stopping.", "try again when it is back";
    StoreUnavailable = 503, "store_unavailable", "The store does not answer.", "try again in a moment; /readyz?verbose says more";
    QueryTooSlow = 503, "query_too_slow", "The query took too long.", "narrow the filter: name a namespace, a status or a time range";
    StorageFull = 507, "storage_full", "There is no space left for new work.", "free space on the server's volume; it goes on by itself then";
}

/// A refusal on its way to the client.
///
/// Boxed, because nearly every function here may return one and nearly none does.
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
    /// A refusal; `detail` says what happened, to which object.
    pub(super) fn new(code: Code, detail: impl Into<Cow<'static, str>>) -> Self {
        let retry_after_secs = matches!(code.status(), 429 | 503).then_some(1);
        let (hint, errors, header) = (None, Vec::new(), None);
        Self(Box::new(Parts { code, detail: detail.into(), hint, errors, retry_after_secs, header }))
    }

    /// What to do next, better than the code's own hint.
    #[must_use]
    pub(super) fn hint(mut self, hint: impl Into<Cow<'static, str>>) -> Self {
        self.0.hint = Some(hint.into());
        self
    }

    /// Which fields are wrong.
    #[must_use]
    pub(super) fn fields(mut self, errors: impl IntoIterator<Item = FieldError>) -> Self {
        let room = FIELD_ERRORS_MAX.saturating_sub(self.0.errors.len());
        self.0.errors.extend(errors.into_iter().take(room));
        self
    }

    /// When to try again, rounded up to whole seconds.
    #[must_use]
    pub(super) fn retry_after(mut self, wait: std::time::Duration) -> Self {
        self.0.retry_after_secs = Some(wait.as_millis().div_ceil(1_000).max(1) as u64);
        self
    }

    /// A header that goes with it.
    #[must_use]
    pub(super) fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.0.header = Some((name, value));
        self
    }

    /// What kind it is.
    pub(super) fn code(&self) -> Code {
        self.0.code
    }

    /// A body that parses but is not valid; every problem is named.
    pub(super) fn invalid(invalid: &Invalid) -> Self {
        let errors = invalid.problems.iter().map(|p| field_error(&p.path, &p.message));
        Self::invalid_fields(errors.collect())
    }

    /// As [`ApiError::invalid`], from problems that were gathered already.
    pub(super) fn invalid_fields(errors: Vec<FieldError>) -> Self {
        let detail = match errors.as_slice() {
            [] => "the request is not valid".to_owned(),
            [one] => one_line(one),
            [first, rest @ ..] => format!("{}; and {} more", one_line(first), rest.len()),
        };
        Self::new(Code::InvalidSpec, detail).fields(errors)
    }

    /// A parameter of the query or the path.
    pub(super) fn parameter(name: &str, detail: impl Into<String>) -> Self {
        let error = FieldError { pointer: format!("?{name}"), path: name.to_owned(), detail: detail.into() };
        Self::new(Code::InvalidParameter, one_line(&error)).fields([error])
    }

    /// Our own mistake; what went wrong is for the log and not for the caller.
    pub(super) fn internal(error: &(dyn std::error::Error + 'static)) -> Self {
        tracing::error!(error = %Chain(error), "request failed");
        Self::new(Code::Internal, "the server failed to handle the request; its log says why")
    }

    fn status(&self) -> StatusCode {
        StatusCode::from_u16(self.0.code.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    /// The document, for the request with this id. What a client sent may be quoted in it; control
    /// characters are not, for the document may end up on a terminal.
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

    /// The whole response.
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
        // The body is written by `edge`, which knows the request's id.
        let mut response = self.status().into_response();
        response.extensions_mut().insert(self);
        response
    }
}

/// The refusal that a bare response of axum's own stands for, such as its 405. Another server's refusal
/// that is passed on is not bare.
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

/// The beginning of a text that a client sent, to be quoted in a refusal.
pub(super) fn excerpt(text: &str) -> String {
    text.chars().take(64).collect()
}

/// A wrong field, with its pointer made from its path.
pub(super) fn field_error(path: &str, detail: &str) -> FieldError {
    FieldError { pointer: pointer(path), path: path.to_owned(), detail: detail.to_owned() }
}

/// `a.b[2].c` as a JSON pointer, `/a/b/2/c`.
///
/// A key of a map that has dots in it (a label) becomes several steps: paths do not quote.
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

/// An error with its causes, on one line.
pub(super) struct Chain<'a>(pub(super) &'a (dyn std::error::Error + 'static));

impl std::fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)?;
        let mut source = self.0.source();
        while let Some(cause) = source {
            write!(f, ": {cause}")?;
            source = cause.source();
        }
        Ok(())
    }
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
    let code = match refusal {
        Refusal::NotLive { .. } => Code::JobEnded,
        Refusal::Started { .. } => Code::JobStarted,
        Refusal::NotCurrent { .. } => Code::JobEnded,
        Refusal::VersionMismatch { .. } => Code::VersionMismatch,
        Refusal::KeyReused { .. } | Refusal::KeyRepeated { .. } => Code::IdempotencyKeyReused,
        Refusal::NoWorker { .. } => Code::WorkerNotFound,
        Refusal::WorkerConnected { .. } => Code::WorkerConnected,
        Refusal::NoQueue { .. } => Code::QueueNotFound,
        Refusal::QueueInUse { .. } => Code::QueueInUse,
        Refusal::NoSchedule { .. } => Code::ScheduleNotFound,
        Refusal::ScheduleExists { .. } => Code::ScheduleExists,
        Refusal::RunsNotOver { .. } => Code::RunsNotOver,
        Refusal::NoBackfill { .. } => Code::BackfillEnded,
        Refusal::NothingToBackfill { .. } => Code::NothingToBackfill,
        Refusal::TooManyBackfills { .. } => Code::TooManyBackfills,
        Refusal::NoCalendar { .. } => Code::CalendarNotFound,
        Refusal::CalendarInUse { .. } => Code::CalendarInUse,
        Refusal::NoWorkflow { .. } => Code::WorkflowNotFound,
        Refusal::WorkflowExists { .. } => Code::VersionMismatch,
        Refusal::RunsWaiting { .. } => Code::RunsWaiting,
        Refusal::TooManyRuns { .. } => Code::TooManyRuns,
        Refusal::RunKeyReused { .. } => Code::IdempotencyKeyReused,
        Refusal::NoRun { .. } => Code::RunNotFound,
        Refusal::NotRunning { .. } => Code::RunEnded,
        Refusal::NoStep { .. } => Code::StepNotFound,
        Refusal::StepOver { .. } => Code::StepEnded,
        Refusal::NotAnAdder { .. } => Code::StepNotFound,
        Refusal::NoApproval { .. } | Refusal::NotAsked { .. } => Code::StepNotAsked,
        Refusal::NotApprover { .. } => Code::NotApprover,
        Refusal::NobodyWaits { .. } => Code::NobodyWaits,
        Refusal::NoMark { .. }
        | Refusal::BadDefinition { .. }
        | Refusal::PayloadTooLarge { .. }
        | Refusal::ListFull { .. } => Code::InvalidSpec,
        Refusal::BadTiming { index, problems } => {
            let at = format!("schedules[{index}].");
            return ApiError::invalid_fields(fields_at(&at, problems));
        }
        Refusal::BadCalendar { problems } => return ApiError::invalid_fields(fields_at("", problems)),
        _ => Code::Internal,
    };
    ApiError::new(code, refusal.to_string())
}

/// Problems as wrong fields, with a prefix to their paths.
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
        tracing::warn!(error = %Chain(&error), "store did not answer");
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
    use std::collections::BTreeSet;

    use model::{Duration, JobId, JobSpec, Timestamp};

    use super::*;

    fn shown(error: ApiError) -> String {
        serde_json::to_string_pretty(&error.into_problem(Some("req-1".into()))).unwrap()
    }

    #[test]
    fn codes_are_words_of_their_own_and_stand_in_the_order_of_their_statuses() {
        let words: BTreeSet<_> = Code::ALL.iter().map(|c| c.as_str()).collect();
        assert_eq!(words.len(), Code::ALL.len());
        assert!(Code::ALL.is_sorted_by_key(|c| c.status()));
        for code in Code::ALL {
            assert!(code.as_str().bytes().all(|b| b.is_ascii_lowercase() || b == b'_'), "{code:?}");
            assert!(code.title().ends_with('.') && !code.hint().ends_with('.'), "{code:?}");
            assert!((400..600).contains(&code.status()), "{code:?}");
        }
    }

    #[test]
    fn every_wrong_field_of_a_spec_is_named_with_path_and_pointer() {
        let mut spec = JobSpec::command(["true"]);
        spec.name = "pay roll".into();
        spec.retry.backoff.factor = 0.5;
        let invalid = model::validate::job(&spec, Timestamp::from_millis(0)).unwrap_err();
        insta::assert_snapshot!(shown(ApiError::invalid(&invalid)));
    }

    /// A10. Whoever asked a server that does not decide must still learn what is known.
    #[test]
    fn a_refusal_that_another_server_wrote_is_passed_on_as_it_is() {
        let bare = StatusCode::SERVICE_UNAVAILABLE.into_response();
        assert_eq!(of_bare_response(&bare).map(|error| error.0.code), Some(Code::Internal));
        let written = ApiError::new(Code::OutcomeUnknown, "it broke off").into_document(None);
        assert!(of_bare_response(&written).is_none());
    }

    #[test]
    fn control_characters_that_a_client_sent_are_not_sent_back() {
        let problem = ApiError::parameter("na\u{7}me", "`\u{1b}[31m` is odd").into_problem(None);
        assert!(!format!("{problem:?}").contains("\\u{"), "{problem:?}");
        assert_eq!(problem.detail, "na\u{fffd}me: `\u{fffd}[31m` is odd");
    }

    #[test]
    fn a_document_stays_small_however_much_is_wrong() {
        let errors = (0..10_000).map(|i| field_error(&format!("jobs[{i}].name"), "is empty")).collect();
        let problem = ApiError::invalid_fields(errors).into_problem(None);
        assert_eq!(problem.errors.len(), FIELD_ERRORS_MAX);
        assert_eq!(problem.detail, "jobs[0].name: is empty; and 9999 more");
    }

    #[test]
    fn each_way_in_which_a_request_fails_has_its_code() {
        let job = JobId::from_bits(1);
        let table = [
            (RequestError::OutcomeUnknown, "503 outcome_unknown"),
            (RequestError::Busy { retry_after: Duration::from_millis(1_500) }, "429 busy"),
            (RequestError::Full, "507 storage_full"),
            (RequestError::Loading, "503 loading"),
            (RequestError::Stopping, "503 stopping"),
            (RequestError::Poisoned, "500 internal"),
            (Refusal::Started { job }.into(), "409 job_started"),
            (Refusal::NotLive { job }.into(), "409 job_ended"),
            (Refusal::VersionMismatch { expected: 1, found: 2 }.into(), "412 version_mismatch"),
            (Refusal::KeyReused { index: 0, job }.into(), "422 idempotency_key_reused"),
            (Refusal::KeyRepeated { index: 1 }.into(), "422 idempotency_key_reused"),
        ];
        for (error, expected) in table {
            let problem = ApiError::from(error).into_problem(None);
            assert_eq!(format!("{} {}", problem.status, problem.code), expected);
        }
    }

    #[test]
    fn a_busy_server_says_in_whole_seconds_when_to_come_back() {
        let busy = RequestError::Busy { retry_after: Duration::from_millis(1_500) };
        let response = ApiError::from(busy).into_document(None);
        assert_eq!(response.headers()[RETRY_AFTER], "2");
    }

    #[test]
    fn an_unknown_outcome_is_safe_to_repeat() {
        insta::assert_snapshot!(shown(RequestError::OutcomeUnknown.into()));
    }

    #[test]
    fn a_defect_of_ours_is_not_explained_to_the_caller() {
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
