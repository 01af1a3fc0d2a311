//! A job's changes, until it ends.
//!
//! The feed of events says when to look, and a slow poll is the seat belt: a watcher that loses the
//! feed, or never had it, is late but not wrong.

use std::time::Duration;

use futures::stream::{self, StreamExt};
use model::JobId;
use model::api::Job;

use crate::error::Error;
use crate::events::{EventFilter, Feed};
use crate::http::Client;
use crate::page::Items;

const POLL: Duration = Duration::from_secs(5);
const POLL_WITHOUT_FEED: Duration = Duration::from_millis(500);
/// How long the feed may take to open before the job is looked at without it.
const FEED_OPENS_WITHIN: Duration = Duration::from_secs(2);

impl Client {
    /// A job as it is, and then each time that it changed, until it has ended.
    pub fn watch(&self, job: JobId) -> Items<Job> {
        stream::try_unfold(Watch::new(self.clone(), job), |mut watch| async move {
            Ok(watch.next().await?.map(|job| (job, watch)))
        })
        .boxed()
    }

    /// Waits until a job has ended, however long that takes.
    ///
    /// # Errors
    /// As every request; the server may be away for as long as the client is patient.
    pub async fn wait(&self, id: JobId) -> Result<Job, Error> {
        let mut watch = Watch::new(self.clone(), id);
        loop {
            match watch.next().await? {
                Some(job) if job.status.is_final() => return Ok(job),
                Some(_) => {}
                // It cannot be: a watch ends only behind an ended job.
                None => return self.job(id).await,
            }
        }
    }
}

pub(crate) struct Watch {
    client: Client,
    job: JobId,
    feed: Option<Feed>,
    version: Option<u64>,
    over: bool,
}

impl Watch {
    pub(crate) fn new(client: Client, job: JobId) -> Self {
        let filter = EventFilter { job_id: Some(job), ..EventFilter::default() };
        Self { feed: Some(Feed::new(client.clone(), &filter)), client, job, version: None, over: false }
    }

    /// The job once it differs from what was told last, or `None` behind its end.
    pub(crate) async fn next(&mut self) -> Result<Option<Job>, Error> {
        if self.over {
            return Ok(None);
        }
        if self.version.is_none() {
            self.open_feed().await;
        }
        loop {
            let job = self.client.job(self.job).await?;
            if self.version != Some(job.version) {
                self.version = Some(job.version);
                self.over = job.status.is_final();
                return Ok(Some(job));
            }
            self.nudge().await;
        }
    }

    /// Opens the feed before the first look, so that no change falls between the two.
    async fn open_feed(&mut self) {
        let Some(feed) = &mut self.feed else { return };
        if let Ok(Err(_)) = tokio::time::timeout(FEED_OPENS_WITHIN, feed.connect()).await {
            self.feed = None;
        }
    }

    /// Waits until the job may have changed.
    async fn nudge(&mut self) {
        let Some(feed) = &mut self.feed else {
            return tokio::time::sleep(POLL_WITHOUT_FEED).await;
        };
        if let Ok(Err(_)) = tokio::time::timeout(POLL, feed.next()).await {
            self.feed = None;
        }
    }
}
