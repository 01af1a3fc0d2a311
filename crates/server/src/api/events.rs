//! The event feed as server-sent events, without gaps or duplicates.
//!
//! A reader follows the broadcast of committed batches. Events that it has missed, because it started later or is slow,
//! are read from the store by position. It subscribes first, then reads the store, and ignores broadcast events that
//! the store has already returned. If the store no longer has the requested position, the reader gets `event: reset`.

use std::collections::VecDeque;
use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use axum::response::sse::Event;
use model::JobId;
use model::api::FeedEvent;
use serde::{Deserialize, Serialize};
use store::{EventSeq, Store, StoreError};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use utoipa::ToSchema;
use utoipa_axum::routes;

use super::extract::{Many, Params};
use super::headers::LastEventId;
use super::limits::Caller;
use super::page::Selection;
use super::problem::{ApiError, Chain, Code, excerpt};
use super::routes::Routes;
use super::{Api, convert, page, sse};
use crate::auth::{Actor, Resource, Verb};
use crate::node::EventBatch;

/// Number of events read from the store at a time.
const CHUNK: usize = 500;

pub(super) fn routes(routes: &mut Routes) {
    routes.needs(
        Verb::Read,
        Resource::Events,
        &[Code::InvalidHeader, Code::Loading, Code::Stopping],
        routes!(follow_events),
    );
    routes.of_leader();
}

#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
struct EventsParams {
    /// Namespace of the events; `*` for all namespaces [default: *]
    namespace: Option<String>,
    /// Only events of this job.
    job_id: Option<JobId>,
    /// Types of the events, separated by commas; `job` stands for all types that begin with `job.`.
    #[serde(rename = "type")]
    #[param(value_type = Option<String>, example = "job.failed,worker")]
    kind: Many<String>,
    /// Position after which the stream starts; `0` returns all retained events [default: the present]
    since: Option<u64>,
}

/// Stream events
///
/// Server-sent events: `id` is the position in the feed, `data` is a FeedEvent as JSON. After a lost connection, a
/// client sends the last id as `Last-Event-ID` and misses nothing. Events are kept for 7 days by default. If the
/// position is no longer available, the stream begins with an event named `reset` and continues from the present:
/// reload the data that you display.
#[utoipa::path(get, path = "/api/v1/events", tag = "events",
    params(EventsParams, ("Last-Event-ID" = Option<u64>, Header, description = "Id of the last event that the client has seen")),
    responses((status = 200, description = "An endless event stream", content_type = "text/event-stream", body = FeedEvent)),
)]
async fn follow_events(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Extension(caller): Extension<Caller>,
    Params(params): Params<EventsParams>,
    LastEventId(last): LastEventId,
) -> Result<Response, ApiError> {
    let from = last.or(params.since).map(EventSeq);
    known_types(&params.kind.0)?;
    let namespace = page::namespace(params.namespace);
    let selection = Selection::of(&actor, namespace.as_deref())?;
    let with_cluster = namespace.is_none();
    let filter = Filter { selection, with_cluster, job: params.job_id, kinds: params.kind.0 };
    let feed = Feed::open(Arc::clone(api.node.store()), api.node.events(), from, filter).await?;
    sse::stream(&api, &actor, &caller, feed)
}

/// Refuses unknown event types: a typing error would otherwise look like a silent feed.
fn known_types(wanted: &[String]) -> Result<(), ApiError> {
    let all: Vec<String> = convert::event_types().collect();
    let group_of = |kind: &str| kind.split('.').next().unwrap_or_default().to_owned();
    for kind in wanted {
        if all.iter().any(|known| known == kind || group_of(known) == *kind) {
            continue;
        }
        let mut expected: Vec<_> =
            all.iter().filter(|known| group_of(known) == group_of(kind)).cloned().collect();
        if expected.is_empty() {
            expected = all.iter().map(|known| group_of(known)).collect();
        }
        expected.sort_unstable();
        expected.dedup();
        let shown = excerpt(kind);
        let detail = format!("`{shown}` is not an event type: expected one of {}", expected.join(", "));
        return Err(ApiError::parameter("type", detail));
    }
    Ok(())
}

struct Filter {
    selection: Selection,
    /// Whether events without a namespace match: those of workers, queues and servers.
    with_cluster: bool,
    job: Option<JobId>,
    kinds: Vec<String>,
}

impl Filter {
    fn matches(&self, event: &model::record::Event) -> bool {
        let is_selected = match event.namespace.as_deref() {
            Some(namespace) => self.selection.contains(namespace),
            None => self.with_cluster,
        };
        if !is_selected {
            return false;
        }
        if self.job.is_some() && self.job != convert::event_job(event) {
            return false;
        }
        if self.kinds.is_empty() {
            return true;
        }
        let kind = convert::event_type(event);
        self.kinds.iter().any(|wanted| {
            kind.strip_prefix(wanted.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        })
    }
}

/// Reason for a restart of the stream.
#[derive(Serialize, ToSchema)]
struct Reset {
    /// What happened.
    reason: &'static str,
    /// Position at which the feed continues.
    seq: u64,
}

/// The feed of one reader.
struct Feed {
    store: Arc<dyn Store>,
    live: broadcast::Receiver<Arc<EventBatch>>,
    filter: Filter,
    /// Last position that was sent or filtered out.
    reached: EventSeq,
    /// Whether the store may have events after `reached` that the broadcast does not deliver.
    behind: bool,
    ready: VecDeque<Event>,
}

impl Feed {
    /// Opens a feed. `live` must have been subscribed before this call.
    async fn open(
        store: Arc<dyn Store>,
        live: broadcast::Receiver<Arc<EventBatch>>,
        from: Option<EventSeq>,
        filter: Filter,
    ) -> Result<Self, StoreError> {
        let behind = from.is_some();
        let reached = match from {
            Some(from) => from,
            None => store.events(EventSeq(u64::MAX), 1).await?.newest,
        };
        Ok(Self { store, live, filter, reached, behind, ready: VecDeque::new() })
    }

    /// Reads one chunk of events from the store.
    async fn catch_up(&mut self) -> Result<(), StoreError> {
        let page = self.store.events(self.reached, CHUNK).await?;
        let trimmed = self.reached.0 > 0 && self.reached.0 + 1 < page.oldest.0;
        let foreign = self.reached > page.newest;
        if trimmed || foreign {
            let reason =
                if trimmed { "the position is no longer stored" } else { "the position is not in this feed" };
            self.reached = page.newest;
            let reset = Reset { reason, seq: page.newest.0 };
            self.ready.push_back(sse::event(Some("reset"), page.newest.0, &reset));
            return Ok(());
        }
        for (seq, event) in &page.events {
            self.take(*seq, event);
        }
        self.behind = self.reached < page.newest && !page.events.is_empty();
        Ok(())
    }

    fn take(&mut self, seq: EventSeq, event: &model::record::Event) {
        self.reached = seq;
        if self.filter.matches(event) {
            self.ready.push_back(sse::event(None, seq.0, &convert::feed_event(seq, event)));
        }
    }

    /// Takes the events of a batch after `reached`.
    fn follow(&mut self, batch: &EventBatch) {
        if batch.first.0 > self.reached.0 + 1 {
            // Events in between were missed; the store has them, and this batch.
            self.behind = true;
            return;
        }
        for (seq, event) in batch.iter() {
            if seq > self.reached {
                self.take(seq, event);
            }
        }
    }
}

impl sse::Source for Feed {
    async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            if self.behind {
                if let Err(error) = self.catch_up().await {
                    // The client reconnects with its position and misses nothing.
                    tracing::warn!(error = %Chain(&error), "event stream closed: cannot read the events");
                    return None;
                }
                continue;
            }
            match self.live.recv().await {
                Ok(batch) => self.follow(&batch),
                Err(RecvError::Lagged(_)) => self.behind = true,
                Err(RecvError::Closed) => return None,
            }
        }
    }

    fn resume_position(&self) -> u64 {
        self.reached.0
    }
}
