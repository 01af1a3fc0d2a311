//! Watching a job or a run until it has ended.
//!
//! The event feed triggers reads of the object. A poll every 5 s is the fallback if an event is missed; without a feed,
//! the object is polled every 500 ms. A run may change very often: it is read at most every 200 ms, and several changes
//! in between are returned as one.

use std::time::Duration;

use futures::stream::{self, StreamExt};
use model::api::{Job, RunSteps, WorkflowRun};
use model::{JobId, RunId};
use tokio::time::Instant;

use crate::error::Error;
use crate::events::{EventFilter, Feed, FeedItem};
use crate::http::Client;
use crate::page::Items;

const POLL: Duration = Duration::from_secs(5);
const POLL_WITHOUT_FEED: Duration = Duration::from_millis(500);
/// Timeout of opening the feed; afterwards the object is read without it.
const FEED_TIMEOUT: Duration = Duration::from_secs(2);
/// Minimum interval between two reads of a run.
const RUN_READ_INTERVAL_MIN: Duration = Duration::from_millis(200);

/// Run with its steps. The steps are read after the run, so they may be newer.
#[derive(Debug, Clone, PartialEq)]
pub struct RunView {
    /// Run.
    pub run: WorkflowRun,
    /// Steps of the run.
    pub steps: RunSteps,
}

impl Client {
    /// Streams the current state of a job, then its state after each change, until the job has ended.
    pub fn watch(&self, job: JobId) -> Items<Job> {
        stream::try_unfold(Watch::new(self.clone(), job), |mut watch| async move {
            Ok(watch.next().await?.map(|job| (job, watch)))
        })
        .boxed()
    }

    /// Streams the current state of a run, then its state after each change of the run or of a step, until the run has
    /// ended.
    ///
    /// Several changes within 200 ms are one item.
    pub fn watch_run(&self, run: RunId) -> Items<WorkflowRun> {
        stream::try_unfold(RunWatch::new(self.clone(), run), |mut watch| async move {
            Ok(watch.next().await?.map(|run| (run, watch)))
        })
        .boxed()
    }

    /// Streams like [`Client::watch_run`], with all steps of the run in each item.
    pub fn watch_run_steps(&self, run: RunId) -> Items<RunView> {
        stream::try_unfold(RunWatch::new(self.clone(), run), |mut watch| async move {
            let Some(run) = watch.next().await? else { return Ok(None) };
            let steps = watch.client.run_steps(run.id).await?;
            Ok(Some((RunView { run, steps }, watch)))
        })
        .boxed()
    }

    /// Waits until a job has ended, and returns it. There is no timeout.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `job_not_found`; [`Error::Unreachable`] only if the server is
    /// unreachable for longer than [`Timeouts::retry_for`](crate::Timeouts::retry_for).
    pub async fn wait(&self, id: JobId) -> Result<Job, Error> {
        let mut watch = Watch::new(self.clone(), id);
        loop {
            match watch.next().await? {
                Some(job) if job.status.is_final() => return Ok(job),
                Some(_) => {}
                // Unreachable: a watch returns an ended job before it ends.
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
    has_ended: bool,
}

impl Watch {
    pub(crate) fn new(client: Client, job: JobId) -> Self {
        let filter = EventFilter { job_id: Some(job), ..EventFilter::default() };
        Self { feed: Some(Feed::new(client.clone(), &filter)), client, job, version: None, has_ended: false }
    }

    /// Returns the job when its version has changed, or `None` after it has ended.
    pub(crate) async fn next(&mut self) -> Result<Option<Job>, Error> {
        if self.has_ended {
            return Ok(None);
        }
        if self.version.is_none() {
            self.open_feed().await;
        }
        loop {
            let job = self.client.job(self.job).await?;
            if self.version != Some(job.version) {
                self.version = Some(job.version);
                self.has_ended = job.status.is_final();
                return Ok(Some(job));
            }
            self.wait_for_change().await;
        }
    }

    /// Opens the feed before the first read, so that no change is missed between the two.
    async fn open_feed(&mut self) {
        let Some(feed) = &mut self.feed else { return };
        if let Ok(Err(_)) = tokio::time::timeout(FEED_TIMEOUT, feed.connect()).await {
            self.feed = None;
        }
    }

    /// Waits until the job may have changed: for an event, or for the poll interval.
    async fn wait_for_change(&mut self) {
        let Some(feed) = &mut self.feed else {
            return tokio::time::sleep(POLL_WITHOUT_FEED).await;
        };
        if let Ok(Err(_)) = tokio::time::timeout(POLL, feed.next()).await {
            self.feed = None;
        }
    }
}

struct RunWatch {
    client: Client,
    run: RunId,
    feed: Option<Feed>,
    version: Option<u64>,
    has_ended: bool,
}

impl RunWatch {
    fn new(client: Client, run: RunId) -> Self {
        Self { client, run, feed: None, version: None, has_ended: false }
    }

    /// Returns the run when its version has changed, or `None` after it has ended.
    async fn next(&mut self) -> Result<Option<WorkflowRun>, Error> {
        if self.has_ended {
            return Ok(None);
        }
        if self.version.is_none() {
            self.open_feed().await?;
        }
        loop {
            if self.version.is_some() {
                self.wait_for_change().await;
            }
            let run = self.client.run(self.run).await?;
            if self.version != Some(run.version) {
                self.version = Some(run.version);
                self.has_ended = run.status.is_final();
                return Ok(Some(run));
            }
        }
    }

    /// Opens the feed before the first read that is returned, so that no change is missed between the two. An earlier
    /// read determines the namespace of the feed.
    async fn open_feed(&mut self) -> Result<(), Error> {
        let run = self.client.run(self.run).await?;
        let kind = Some("run,step".to_owned());
        let filter = EventFilter { namespace: Some(run.namespace), kind, ..EventFilter::default() };
        let mut feed = Feed::new(self.client.clone(), &filter);
        let opened = tokio::time::timeout(FEED_TIMEOUT, feed.connect()).await;
        self.feed = (!matches!(opened, Ok(Err(_)))).then_some(feed);
        Ok(())
    }

    /// Waits until the run may have changed, but at least for [`RUN_READ_INTERVAL_MIN`].
    async fn wait_for_change(&mut self) {
        let pause = Instant::now() + RUN_READ_INTERVAL_MIN;
        self.wait_for_event(Instant::now() + POLL).await;
        // Further events before the next read are covered by it.
        while Instant::now() < pause && self.wait_for_event(pause).await {}
        let extra = if self.feed.is_some() { Duration::ZERO } else { POLL_WITHOUT_FEED };
        tokio::time::sleep_until(pause + extra).await;
    }

    /// Waits for an event of the run. Returns `false` if none arrives before `until`.
    async fn wait_for_event(&mut self, until: Instant) -> bool {
        while let Some(feed) = &mut self.feed {
            match tokio::time::timeout_at(until, feed.next()).await {
                Ok(Ok(FeedItem::Event(event))) if event.run_id != Some(self.run) => {}
                Ok(Ok(_)) => return true,
                Ok(Err(_)) => self.feed = None,
                Err(_) => return false,
            }
        }
        false
    }
}
