//! What the server-sent streams share: their form, their heartbeat, their bound, and their end.
//!
//! A stream is a [`Source`] that is asked for one event after the other, so a reader that is slow
//! holds back its own source and nothing else. While a source has nothing, a heartbeat goes out with
//! the place that was reached: a reader whose filter lets nothing through still resumes from there.
//! Streams end when the server stops.

use std::convert::Infallible;
use std::time::Duration;

use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse, Response};
use futures::future::BoxFuture;
use serde::Serialize;

use super::Api;
use super::limits::{Caller, Places};
use super::problem::ApiError;

/// How long a stream may be silent.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// After how long a client that lost its stream should ask again.
const RETRY: Duration = Duration::from_secs(2);

/// Where the events of a stream come from.
pub(super) trait Source: Send + 'static {
    /// The next event, or `None` at the end. May be dropped and called again at any await.
    fn next(&mut self) -> impl Future<Output = Option<Event>> + Send;

    /// The place that was reached, for a reader to resume from.
    fn place(&self) -> u64;
}

struct Streaming<S> {
    source: S,
    greeted: bool,
    stopping: BoxFuture<'static, ()>,
    _place: Places,
}

/// Answers with a stream.
///
/// # Errors
/// `busy` or `client_limit` if there are too many streams already; `loading` or `stopping` where a stream would end at once.
pub(super) fn stream(api: &Api, caller: &Caller, source: impl Source) -> Result<Response, ApiError> {
    api.node.decides()?;
    let place = api.shared.limits.streams.enter(caller)?;
    let node = api.node.clone();
    let stopping = Box::pin(async move { node.resigned().await });
    let state = Streaming { source, greeted: false, stopping, _place: place };
    let events = futures::stream::unfold(state, |mut state| async move {
        let event = next(&mut state).await?;
        Some((Ok::<_, Infallible>(event), state))
    });
    Ok(Sse::new(events).into_response())
}

async fn next<S: Source>(state: &mut Streaming<S>) -> Option<Event> {
    if !state.greeted {
        state.greeted = true;
        return Some(Event::default().retry(RETRY).comment("belfry"));
    }
    tokio::select! {
        event = state.source.next() => event,
        () = &mut state.stopping => None,
        () = tokio::time::sleep(HEARTBEAT) => {
            Some(Event::default().comment("").id(state.source.place().to_string()))
        }
    }
}

/// An event with JSON data.
pub(super) fn event(name: Option<&str>, id: u64, data: &impl Serialize) -> Event {
    let event = Event::default().id(id.to_string());
    let event = name.map_or_else(|| event.clone(), |name| event.clone().event(name));
    // Our own types always become JSON, on one line.
    event.data(serde_json::to_string(data).unwrap_or_default())
}
