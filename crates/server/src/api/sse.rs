//! Shared parts of server-sent event streams: format, heartbeat, limit and end.
//!
//! A stream pulls its events one by one from a [`Source`], so a slow reader delays only its own source. While the
//! source has no event, the stream sends heartbeats with its position. A reader whose filter excludes all events can
//! therefore still resume from there. Streams end when the server stops leading, and when the rights of the reader
//! change: the client connects again with the new ones.

use std::convert::Infallible;
use std::time::Duration;

use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse, Response};
use futures::future::BoxFuture;
use serde::Serialize;

use super::Api;
use super::limits::{Caller, Permits};
use super::problem::ApiError;
use crate::auth::{Actor, RightsWatch};

/// Longest time without an event or a heartbeat.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// Delay before a client reconnects after it lost its stream.
const RETRY: Duration = Duration::from_secs(2);

/// Source of the events of a stream.
pub(super) trait Source: Send + 'static {
    /// Returns the next event, or `None` at the end. Cancel-safe at any await.
    fn next(&mut self) -> impl Future<Output = Option<Event>> + Send;

    /// Returns the current position, from which a reader can resume.
    fn resume_position(&self) -> u64;
}

struct Streaming<S> {
    source: S,
    sent_retry: bool,
    stopping: BoxFuture<'static, ()>,
    rights: RightsWatch,
    _place: Permits,
}

/// Returns a streaming response.
///
/// # Errors
/// `busy` or `client_limit` if there are too many streams; `loading` or `stopping` if this server does not lead.
pub(super) fn stream(
    api: &Api,
    actor: &Actor,
    caller: &Caller,
    source: impl Source,
) -> Result<Response, ApiError> {
    api.node.check_leading()?;
    let place = api.shared.limits.streams.enter(caller)?;
    let node = api.node.clone();
    let stopping = Box::pin(async move { node.leadership_ended().await });
    let rights = RightsWatch::new(&api.access, actor.identity());
    let state = Streaming { source, sent_retry: false, stopping, rights, _place: place };
    let events = futures::stream::unfold(state, |mut state| async move {
        let event = next(&mut state).await?;
        Some((Ok::<_, Infallible>(event), state))
    });
    Ok(Sse::new(events).into_response())
}

async fn next<S: Source>(state: &mut Streaming<S>) -> Option<Event> {
    if !state.sent_retry {
        state.sent_retry = true;
        return Some(Event::default().retry(RETRY).comment("belfry"));
    }
    tokio::select! {
        event = state.source.next() => event,
        () = &mut state.stopping => None,
        () = state.rights.changed() => None,
        () = tokio::time::sleep(HEARTBEAT) => {
            Some(Event::default().comment("").id(state.source.resume_position().to_string()))
        }
    }
}

/// Builds an event with JSON data.
pub(super) fn event(name: Option<&str>, id: u64, data: &impl Serialize) -> Event {
    let event = Event::default().id(id.to_string());
    let event = name.map_or_else(|| event.clone(), |name| event.clone().event(name));
    // Our types always serialize to JSON on one line.
    event.data(serde_json::to_string(data).unwrap_or_default())
}
