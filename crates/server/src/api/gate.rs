//! The layer in front of each handler: authorization, limits, and the choice of the server that handles the request.
//!
//! One server of the store is the leader. Changes are forwarded to it, and so are reads that only the leader can answer
//! ([`HandledBy::Leader`]). Every server answers all other requests itself.

use std::time::Duration;

use axum::body::HttpBody as _;
use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, SET_COOKIE};
use axum::middleware::Next;
use axum::response::Response;
use model::limits::BATCH_BODY_BYTES_MAX;

use super::extract::read_body_counted;
use super::limits::{Caller, Limits, Permits};
use super::problem::{ApiError, Code};
use super::recorder::{RecordedRoute, Recorder};
use super::{Api, cookie, forward};
use crate::auth::{Actor, Identity, Resource, Session, Verb, token};
use crate::clock::{Clock, SystemClock};

/// Time after which an incomplete body needs a place in the lane of slow bodies. So slow bodies of a client do not
/// delay its fast ones.
const BODY_GRACE: Duration = Duration::from_millis(500);

/// Right that a route requires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    /// None: health checks, and pages for users without a token.
    Open,
    /// None, but the caller must be authenticated, and not be a worker.
    Account,
    /// The caller must have this right.
    Needs(Verb, Resource),
}

/// Server that handles a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HandledBy {
    /// The server that received the request.
    Here,
    /// The server that received the request for reads; the leader for changes.
    ByMethod,
    /// The leader.
    Leader,
}

/// Handling of a request's body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BodyMode {
    /// Received completely before the request takes a place in its lane.
    Whole,
    /// Read by the handler as it arrives.
    Streamed,
}

/// Lane of a route's requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LaneChoice {
    /// The lane of reads or of changes, depending on the method.
    Method,
    /// The lane of metrics.
    Metrics,
}

/// Settings of the layer in front of one handler.
#[derive(Clone)]
pub(super) struct Gate {
    pub(super) api: Api,
    pub(super) place: HandledBy,
    pub(super) body: BodyMode,
    pub(super) lane: LaneChoice,
    /// Required right; `None` if the caller only has to be authenticated.
    pub(super) right: Option<(Verb, Resource)>,
    /// How requests are recorded in the audit log.
    pub(super) recorded: RecordedRoute,
}

impl Gate {
    /// Returns the caller of a request, if the route is open to it.
    fn actor(&self, identity: Identity, recorder: &Recorder) -> Result<Actor, ApiError> {
        let actor = match self.right {
            Some((verb, resource)) => Actor::new(identity, verb, resource),
            None => Actor::without_right(identity),
        };
        let actor = actor.with_note(recorder.note());
        actor.check_route()?;
        Ok(actor)
    }
}

/// Authenticates a request and passes it to its handler, which finds the [`Actor`] in its extensions. Makes the entry of
/// the audit log.
///
/// A caller without the right in any namespace is refused here. The handler knows the namespace of the object, and
/// checks the right there.
pub(super) async fn pass(
    State(gate): State<Gate>,
    request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    let mut recorder = Recorder::begin(&gate.api, &gate.recorded, gate.right, &request);
    let response = admit(&gate, request, next, &mut recorder).await;
    recorder.end(&response).await;
    response
}

async fn admit(
    gate: &Gate,
    mut request: Request,
    next: Next,
    recorder: &mut Recorder,
) -> Result<Response, ApiError> {
    let credentials = Credentials::of(&gate.api, &request)?;
    let claimed = credentials.token_id().map(str::to_owned);
    let session = credentials.session().cloned();
    let identity = match credentials.identity(&gate.api).await {
        Ok(identity) => identity,
        Err(error) => {
            recorder.refused_token(claimed.as_deref());
            return Err(error);
        }
    };
    recorder.authenticated(&identity);
    let mut actor = gate.actor(identity, recorder)?;
    let limits = &gate.api.shared.limits;
    let caller = Caller::of(&actor, &request, gate.api.config.exposure);
    let is_read = request.method().is_safe();
    let has_body = !is_read && !request.body().is_end_stream();
    let streams = has_body && gate.body == BodyMode::Streamed;
    let receiving = streams.then(|| limits.bodies.enter(&caller)).transpose()?;
    // The body stays in memory until the response is complete.
    let mut memory = limits.body_bytes.places_of(&caller);
    if has_body && !streams {
        request = received(limits, &caller, &mut memory, request).await?;
        // The body may have taken half a minute, in which the caller may have lost its rights.
        let identity = gate.api.access.bearer_of(&actor.token_id).ok_or_else(invalid_token)?;
        actor = gate.actor(identity, recorder)?;
    }
    let of_leader = match gate.place {
        HandledBy::Here => false,
        HandledBy::ByMethod => !is_read,
        HandledBy::Leader => true,
    };
    if of_leader && let Some(leader) = forward::leader(&gate.api, &request) {
        let _place = receiving.map_or_else(|| limits.forwards.enter(&caller), Ok)?;
        recorder.forwarded();
        let response = forward::to(&gate.api, &leader, request).await;
        if response.as_ref().is_err_and(|error| error.code() == Code::OutcomeUnknown) {
            recorder.forwarded_in_vain();
        }
        return response;
    }
    let lane = match gate.lane {
        LaneChoice::Metrics => &limits.metrics,
        LaneChoice::Method if is_read => &limits.reads,
        LaneChoice::Method => &limits.changes,
    };
    let _place = receiving.map_or_else(|| lane.enter(&caller), Ok)?;
    let renewed = session.filter(|_| is_read).and_then(|session| {
        cookie::renewed(&gate.api, request.uri(), request.headers(), &session, SystemClock.now())
    });
    request.extensions_mut().insert(actor);
    request.extensions_mut().insert(caller);
    let mut response = next.run(request).await;
    if let Some(cookie) = renewed {
        response.headers_mut().append(SET_COOKIE, cookie);
    }
    Ok(response)
}

/// Receives the body before the request takes a place in its lane: a slow body delays no other request.
async fn received(
    limits: &Limits,
    caller: &Caller,
    memory: &mut Permits,
    request: Request,
) -> Result<Request, ApiError> {
    let (parts, body) = request.into_parts();
    let body = {
        let take = |bytes| memory.take(bytes);
        let reading = read_body_counted(&parts.headers, body, BATCH_BODY_BYTES_MAX, take);
        let mut reading = std::pin::pin!(reading);
        match tokio::time::timeout(BODY_GRACE, &mut reading).await {
            Ok(body) => body?,
            Err(_) => {
                let _place = limits.bodies.enter(caller)?;
                reading.await?
            }
        }
    };
    Ok(Request::from_parts(parts, body.into()))
}

/// What a request says about its sender.
enum Credentials {
    /// Token that must be verified.
    Token(String),
    /// Browser session, which represents a token.
    Session(Session),
}

impl Credentials {
    /// Reads the credentials of a request.
    ///
    /// # Errors
    /// `unauthenticated` without a token and without a session; `cross_site` from a page of another site.
    fn of(api: &Api, request: &Request) -> Result<Self, ApiError> {
        let Some(header) = request.headers().get(AUTHORIZATION) else {
            let session = cookie::session(api, request.method(), request.uri(), request.headers())?;
            return session.map(Self::Session).ok_or_else(|| {
                ApiError::new(Code::Unauthenticated, "authentication required: no token was sent")
            });
        };
        let token = header.to_str().ok().and_then(|value| {
            let (scheme, token) = value.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then(|| token.trim().to_owned())
        });
        token.map(Self::Token).ok_or_else(invalid_token)
    }

    /// Returns the ID of the token, which is not verified yet; `None` if the token is malformed.
    fn token_id(&self) -> Option<&str> {
        match self {
            Self::Token(text) => token::parse(text).map(|parsed| parsed.id),
            Self::Session(session) => Some(&session.token_id),
        }
    }

    fn session(&self) -> Option<&Session> {
        match self {
            Self::Token(_) => None,
            Self::Session(session) => Some(session),
        }
    }

    async fn identity(self, api: &Api) -> Result<Identity, ApiError> {
        match self {
            Self::Token(token) => api.access.authenticate(&token).await?.ok_or_else(invalid_token),
            Self::Session(Session { token_id, .. }) => api.access.bearer(&token_id).await?.ok_or_else(|| {
                ApiError::new(Code::Unauthenticated, "the session has ended: its token is no longer valid")
            }),
        }
    }
}

/// The response does not say whether the token was malformed, unknown or wrong: that would help an attacker.
fn invalid_token() -> ApiError {
    ApiError::new(Code::Unauthenticated, "authentication failed: the token is not valid")
}
