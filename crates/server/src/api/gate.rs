//! The gate in front of a handler: who may pass, which server answers, and among which requests it counts.
//!
//! One server of a store is the leader. What changes something is handed on to it, and so are the
//! reads of what only it knows ([`Place::Leader`]); everything else any server answers by itself.

use std::time::Duration;

use axum::body::HttpBody as _;
use axum::extract::{Request, State};
use axum::http::header::AUTHORIZATION;
use axum::middleware::Next;
use axum::response::Response;
use model::limits::BATCH_BODY_BYTES_MAX;

use super::extract::read_body_counted;
use super::limits::{Caller, Limits, Places};
use super::problem::{ApiError, Code};
use super::{Api, cookie, forward};
use crate::auth::{Actor, Resource, Verb, authorize};

/// How long a body may take before it needs a place among slow bodies. So slow bodies of a client do not hold up its
/// fast ones.
const BODY_GRACE: Duration = Duration::from_millis(500);

/// Who may take a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    /// Anyone: health for probes, pages for people who have no token yet.
    Open,
    /// Callers that have this right.
    Needs(Verb, Resource),
}

/// Which server answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// The server that received the request.
    Here,
    /// The server that received the request, unless the request changes something.
    ByMethod,
    /// The leader.
    Leader,
}

/// How a route takes the body of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BodyIs {
    /// Received as a whole before the request counts among those that are handled.
    Whole,
    /// Read by the handler as it comes.
    Streamed,
}

/// Among which requests those of a route count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LaneOf {
    /// Reads or changes.
    Method,
    /// Requests of metrics.
    Metrics,
}

/// What stands in front of a handler.
#[derive(Clone)]
pub(super) struct Gate {
    pub(super) api: Api,
    pub(super) place: Place,
    pub(super) body: BodyIs,
    pub(super) lane: LaneOf,
    pub(super) verb: Verb,
    pub(super) resource: Resource,
}

/// Lets a request in whose bearer has the right; handlers find the [`Actor`] in its extensions.
pub(super) async fn pass(
    State(gate): State<Gate>,
    mut request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    let actor = bearer(&gate.api, &request)?;
    authorize(&actor, gate.verb, &gate.resource).inspect_err(|denied| {
        tracing::warn!(error = %denied, token_id = %actor.token_id, "request refused");
    })?;
    let limits = &gate.api.shared.limits;
    let caller = Caller::of(&actor, &request, gate.api.config.exposure);
    let is_read = request.method().is_safe();
    let has_body = !is_read && !request.body().is_end_stream();
    let streams = has_body && gate.body == BodyIs::Streamed;
    let receiving = streams.then(|| limits.bodies.enter(&caller)).transpose()?;
    // The body is in memory until the request is answered.
    let mut memory = limits.body_bytes.places_of(&caller);
    if has_body && !streams {
        request = received(limits, &caller, &mut memory, request).await?;
    }
    let of_leader = match gate.place {
        Place::Here => false,
        Place::ByMethod => !is_read,
        Place::Leader => true,
    };
    if of_leader && let Some(leader) = forward::leader(&gate.api, &request) {
        let _place = receiving.map_or_else(|| limits.forwards.enter(&caller), Ok)?;
        return forward::to(&gate.api, &leader, request).await;
    }
    let lane = match gate.lane {
        LaneOf::Metrics => &limits.metrics,
        LaneOf::Method if is_read => &limits.reads,
        LaneOf::Method => &limits.changes,
    };
    let _place = receiving.map_or_else(|| lane.enter(&caller), Ok)?;
    request.extensions_mut().insert(actor);
    request.extensions_mut().insert(caller);
    Ok(next.run(request).await)
}

/// Waits for the body before the request counts among those that are handled: a slow body holds up nothing else.
async fn received(
    limits: &Limits,
    caller: &Caller,
    memory: &mut Places,
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

fn bearer(api: &Api, request: &Request) -> Result<Actor, ApiError> {
    let Some(header) = request.headers().get(AUTHORIZATION) else {
        let actor = cookie::actor(api, request.method(), request.uri(), request.headers())?;
        return actor.ok_or_else(|| {
            ApiError::new(Code::Unauthenticated, "authentication required: no token was sent")
        });
    };
    let token = header.to_str().ok().and_then(|value| {
        let (scheme, token) = value.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
    });
    // The answer does not say whether the token was malformed, unknown or wrong: that would help an attacker.
    token
        .and_then(|token| api.tokens.verify(token))
        .ok_or_else(|| ApiError::new(Code::Unauthenticated, "the token is not valid"))
}
