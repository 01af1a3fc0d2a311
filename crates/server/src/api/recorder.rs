//! Entries of the audit log for requests of the REST API.
//!
//! The gate [begins](Recorder::begin) a recorder for each request, and [ends](Recorder::end) it with the response. Only
//! then is it known whether the request needs an entry: a successful change, a failed change, or a denied request of any
//! kind. What the object was, and what changed, comes from the handler ([`Note`]), from the path, or from the header
//! `Location` of the response.
//!
//! # Invariants
//! - A request that a server forwards makes no entry there, unless the leader does not answer: the leader makes it.
//! - A client that disconnects before the response cannot prevent the entry.
//! - A request with a token that no server knows makes no entry: anyone can invent tokens.

use std::net::IpAddr;
use std::sync::Arc;

use audit::{Entry, Outcome, clean};
use axum::extract::{MatchedPath, Request};
use axum::http::header::{LOCATION, USER_AGENT};
use axum::http::{HeaderValue, Method, Uri};
use axum::response::Response;

use super::headers::X_REQUEST_ID;
use super::problem::{ApiError, Code};
use super::{Api, limits};
use crate::audit::Note;
use crate::auth::{Identity, Resource, Verb};
use crate::clock::{Clock, SystemClock};

/// Longest `User-Agent` in an entry, in characters.
const USER_AGENT_CHARS_MAX: usize = 200;
/// Longest name of an object in an entry, in characters.
const OBJECT_CHARS_MAX: usize = 200;

/// Which successful requests of a route make an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Recorded {
    /// Changes: requests with another method than `GET` that need another right than to read.
    Changes,
    /// Changes, if submissions are recorded.
    Submissions,
}

/// How the requests of a route are recorded.
#[derive(Debug, Clone)]
pub(super) struct RecordedRoute {
    pub(super) which: Recorded,
    /// Name of the operation, such as `cancel_job`.
    pub(super) action: Arc<str>,
}

/// Caller of a request, as far as it is known.
#[derive(Debug, Clone)]
struct Caller {
    name: String,
    kind: &'static str,
    token_id: String,
}

/// Makes the entry of one request.
pub(super) struct Recorder {
    api: Api,
    action: Arc<str>,
    verb: Verb,
    resource: Resource,
    recorded: Recorded,
    is_change: bool,
    caller: Option<Caller>,
    note: Note,
    address: Option<IpAddr>,
    user_agent: Option<HeaderValue>,
    request_id: Option<HeaderValue>,
    route: Option<MatchedPath>,
    uri: Uri,
    has_ended: bool,
}

impl Recorder {
    /// Begins with a request that is not authenticated yet, to a route that requires a right.
    pub(super) fn begin(
        api: &Api,
        recorded: &RecordedRoute,
        right: Option<(Verb, Resource)>,
        request: &Request,
    ) -> Self {
        let method = request.method();
        let (verb, resource) = right.unwrap_or((verb_of(method), Resource::Access));
        let is_change = !method.is_safe() && verb != Verb::Read;
        Self {
            api: api.clone(),
            action: Arc::clone(&recorded.action),
            verb,
            resource,
            recorded: recorded.which,
            is_change,
            caller: None,
            note: Note::default(),
            address: limits::address(request, api.config.exposure),
            user_agent: request.headers().get(USER_AGENT).cloned(),
            request_id: request.headers().get(X_REQUEST_ID).cloned(),
            route: request.extensions().get::<MatchedPath>().cloned(),
            uri: request.uri().clone(),
            has_ended: false,
        }
    }

    /// Returns what the handler tells about the request.
    pub(super) fn note(&self) -> Note {
        self.note.clone()
    }

    /// Adds the caller.
    pub(super) fn authenticated(&mut self, identity: &Identity) {
        self.caller = Some(Caller {
            name: identity.name.to_string(),
            kind: identity.kind.as_str(),
            token_id: identity.token_id.to_string(),
        });
    }

    /// Adds the bearer of a token that was refused, if the token is known.
    pub(super) fn refused_token(&mut self, token_id: Option<&str>) {
        let bearer = |token_id| self.api.access.known_bearer(token_id);
        self.caller = token_id.and_then(|token_id| {
            let (name, kind) = bearer(token_id)?;
            Some(Caller { name, kind: kind.as_str(), token_id: token_id.to_owned() })
        });
    }

    /// Notes that another server handles the request, and makes its entry.
    pub(super) fn forwarded(&mut self) {
        self.has_ended = true;
    }

    /// Notes that the other server has not answered: it may have crashed before it made the entry.
    pub(super) fn forwarded_in_vain(&mut self) {
        self.has_ended = false;
    }

    /// Makes the entry, if the request needs one. The returned future waits until the entry of a successful change is
    /// written.
    pub(super) fn end(mut self, response: &Result<Response, ApiError>) -> impl Future<Output = ()> + use<> {
        let ended = match std::mem::replace(&mut self.has_ended, true) {
            true => None,
            false => self.ended(response),
        };
        let log = Arc::clone(&self.api.audit);
        async move {
            match ended {
                None => {}
                Some(entry) if entry.outcome == Outcome::Allowed => log.changed(entry).await,
                // The change may have happened: never counted together with others.
                Some(entry) if entry.outcome == Outcome::Unknown => log.add(entry),
                Some(entry) => log.not_succeeded(entry),
            }
        }
    }

    fn ended(&self, response: &Result<Response, ApiError>) -> Option<Entry> {
        let code = match response {
            Ok(response) => response.extensions().get::<ApiError>().map(ApiError::code),
            Err(error) => Some(error.code()),
        };
        let location = response.as_ref().ok().and_then(|response| response.headers().get(LOCATION));
        let location = location.and_then(|location| location.to_str().ok());
        self.entry(code.map_or(Outcome::Allowed, outcome_of), code, location)
    }

    /// Returns the entry, if the request needs one.
    fn entry(&self, outcome: Outcome, code: Option<Code>, location: Option<&str>) -> Option<Entry> {
        let noted = self.note.take();
        // A foreign object does not exist for the caller, but the attempt is one that was denied.
        let outcome = if noted.is_denied && outcome == Outcome::Failed { Outcome::Denied } else { outcome };
        let is_recorded = match self.recorded {
            Recorded::Changes => true,
            Recorded::Submissions => self.api.config.audit_submissions,
        };
        if outcome != Outcome::Denied && !(self.is_change && is_recorded && !noted.is_read) {
            return None;
        }
        let Caller { name, kind, token_id } = self.caller.clone()?;
        let text = |value: &HeaderValue, chars| clean(&String::from_utf8_lossy(value.as_bytes()), chars);
        let object = noted.object.or_else(|| self.object_in_path()).or_else(|| {
            let (_, name) = location?.rsplit_once('/')?;
            Some(decoded(name))
        });
        Some(Entry {
            at: SystemClock.now(),
            server: self.api.audit.server().to_owned(),
            actor: name,
            actor_kind: kind.to_owned(),
            token_id: Some(token_id).filter(|id| !id.is_empty()),
            address: self.address.map(|address| address.to_string()),
            user_agent: self.user_agent.as_ref().map(|value| text(value, USER_AGENT_CHARS_MAX)),
            request_id: self.request_id.as_ref().map(|value| text(value, USER_AGENT_CHARS_MAX)),
            action: self.action.to_string(),
            verb: self.verb,
            resource: self.resource,
            namespace: noted.namespace,
            object,
            outcome,
            code: code.map(|code| code.as_str().to_owned()),
            affected: noted.affected,
            repeats: None,
            changes: noted.difference.changes,
            changes_truncated: noted.difference.truncated,
        })
    }

    /// Returns the variable parts of the path, such as the name of a schedule.
    fn object_in_path(&self) -> Option<String> {
        let pattern = self.route.as_ref()?.as_str().split('/');
        let variable = pattern.zip(self.uri.path().split('/')).filter(|(part, _)| part.starts_with('{'));
        let parts: Vec<_> = variable.map(|(_, part)| decoded(part)).collect();
        (!parts.is_empty()).then(|| clean(&parts.join("/"), OBJECT_CHARS_MAX))
    }
}

/// The client has disconnected, so the handler was stopped at any point.
impl Drop for Recorder {
    fn drop(&mut self) {
        if self.has_ended {
            return;
        }
        if let Some(entry) = self.entry(Outcome::Unknown, None, None) {
            self.api.audit.add(entry);
        }
    }
}

/// Returns the verb of a route that needs no right.
fn verb_of(method: &Method) -> Verb {
    match *method {
        Method::POST => Verb::Create,
        Method::PUT | Method::PATCH => Verb::Change,
        Method::DELETE => Verb::Delete,
        _ => Verb::Read,
    }
}

/// Returns a part of a path without its escapes.
fn decoded(part: &str) -> String {
    let text = percent_encoding::percent_decode_str(part).decode_utf8_lossy();
    clean(&text, OBJECT_CHARS_MAX)
}

fn outcome_of(code: Code) -> Outcome {
    match code {
        Code::Unauthenticated | Code::Forbidden | Code::Escalation | Code::CrossSite => Outcome::Denied,
        Code::OutcomeUnknown => Outcome::Unknown,
        _ => Outcome::Failed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_path_are_shown_without_escapes() {
        assert_eq!(decoded("ann%40example.com"), "ann@example.com");
        assert_eq!(decoded("a%1B%5Bm"), "a\u{fffd}[m");
        assert_eq!(decoded(""), "");
    }
}
