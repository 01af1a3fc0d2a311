//! The feed of everything that happens.

use futures::stream::{self, StreamExt};
use model::JobId;
use model::api::FeedEvent;

use crate::error::Error;
use crate::http::{Client, Request};
use crate::page::Items;
use crate::sse::EventSource;

/// Which events; the default is all that happen from now on.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EventFilter {
    /// Of this namespace.
    pub namespace: Option<String>,
    /// Of this job.
    pub job_id: Option<JobId>,
    /// Of this type, such as `job.failed`.
    pub kind: Option<String>,
    /// After this place in the feed.
    pub since: Option<u64>,
}

/// What comes out of the feed.
#[derive(Debug, Clone, PartialEq)]
pub enum FeedItem {
    /// Something happened.
    Event(Box<FeedEvent>),
    /// What happened meanwhile is no longer known: read anew what matters. The feed goes on.
    Reset,
}

impl Client {
    /// What happens, as it happens; resumes by itself and never ends.
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

    /// Opens the feed; what happens from then on is in it.
    pub(crate) async fn connect(&mut self) -> Result<(), Error> {
        self.source.connect().await
    }

    /// May be dropped and called again without losing an event.
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
