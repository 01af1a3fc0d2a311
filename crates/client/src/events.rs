//! Event feed: changes of jobs, executions, workers, queues, schedules, workflows and runs.

use futures::stream::{self, StreamExt};
use model::JobId;
use model::api::FeedEvent;

use crate::error::Error;
use crate::http::{Client, Request};
use crate::page::Items;
use crate::sse::EventSource;

/// Filter for events. By default it selects all events from now on.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EventFilter {
    /// Namespace; `None` selects all namespaces, and events without one.
    pub namespace: Option<String>,
    /// Job.
    pub job_id: Option<JobId>,
    /// Types, separated by commas: `job.failed`, or `job` for all types that begin with `job.`.
    pub kind: Option<String>,
    /// Sequence number: only later events are returned. `Some(0)` selects all events that are retained.
    pub since: Option<u64>,
}

/// Item of the feed.
#[derive(Debug, Clone, PartialEq)]
pub enum FeedItem {
    /// An event.
    Event(Box<FeedEvent>),
    /// Events were missed, because their retention ended while the stream was disconnected. Read the objects again. The
    /// feed continues with later events.
    Reset,
}

impl Client {
    /// Streams events as they happen. The stream reconnects after a lost connection.
    ///
    /// It ends only after an error, for example if the server cannot be reached for
    /// [`Timeouts::retry_for`](crate::Timeouts::retry_for).
    ///
    /// ```no_run
    /// # async fn example(belfry: client::Client) -> Result<(), client::Error> {
    /// use futures::TryStreamExt as _;
    ///
    /// let failed = client::EventFilter { kind: Some("job.failed".into()), ..Default::default() };
    /// let mut feed = belfry.events(&failed);
    /// while let Some(item) = feed.try_next().await? {
    ///     if let client::FeedItem::Event(event) = item {
    ///         println!("{:?} failed", event.job_id);
    ///     }
    /// }
    /// # Ok(()) }
    /// ```
    pub fn events(&self, filter: &EventFilter) -> Items<FeedItem> {
        let feed = Feed::new(self.clone(), filter);
        stream::unfold(Some(feed), |feed| async move {
            let mut feed = feed?;
            match feed.next().await {
                Ok(item) => Some((Ok(item), Some(feed))),
                Err(error) => Some((Err(error), None)),
            }
        })
        .boxed()
    }
}

pub(crate) struct Feed {
    client: Client,
    source: EventSource,
}

impl Feed {
    pub(crate) fn new(client: Client, filter: &EventFilter) -> Self {
        let request = Request::get(["events"])
            .query_opt("namespace", filter.namespace.as_ref())
            .query_opt("job_id", filter.job_id)
            .query_opt("type", filter.kind.as_ref())
            .query_opt("since", filter.since);
        Self { source: EventSource::new(client.clone(), request, &["since"]), client }
    }

    /// Opens the feed; it contains all events from then on.
    pub(crate) async fn connect(&mut self) -> Result<(), Error> {
        self.source.connect().await
    }

    /// Returns the next item. Cancel-safe: no event is lost if the future is dropped.
    pub(crate) async fn next(&mut self) -> Result<FeedItem, Error> {
        let event = self.source.next().await?;
        if event.kind == "reset" {
            return Ok(FeedItem::Reset);
        }
        serde_json::from_str(&event.data).map(|event| FeedItem::Event(Box::new(event))).map_err(|error| {
            Error::Protocol {
                url: self.client.url().to_owned(),
                detail: format!("cannot parse an event: {error}"),
            }
        })
    }
}
