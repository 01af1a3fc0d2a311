//! The changes of a job, or of a run, until it ends.
//!
//! The feed of events says when to look, and a slow poll is the seat belt: a watcher that loses the
//! feed, or never had it, is late but not wrong. A run may change much faster than somebody can look:
//! it is looked at no more often than [`RUN_PAUSE`] says, and what happens in between is one change.

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
/// How long the feed may take to open before the job is looked at without it.
const FEED_OPENS_WITHIN: Duration = Duration::from_secs(2);
/// The shortest time between two looks at a run.
const RUN_PAUSE: Duration = Duration::from_millis(200);

/// A run, and its steps at the same time or a little later.
#[derive(Debug, Clone, PartialEq)]
pub struct RunView {
    /// The run.
    pub run: WorkflowRun,
    /// Its steps.
    pub steps: RunSteps,
}

impl Client {
    /// A job as it is, and then each time that it changed, until it has ended.
    pub fn watch(&self, job: JobId) -> Items<Job> {
        stream::try_unfold(Watch::new(self.clone(), job), |mut watch| async move {
            Ok(watch.next().await?.map(|job| (job, watch)))
        })
        .boxed()
    }

    /// A run as it is, and then each time that it or one of its steps changed, until it has ended.
    pub fn watch_run(&self, run: RunId) -> Items<WorkflowRun> {
        stream::try_unfold(RunWatch::new(self.clone(), run), |mut watch| async move {
            Ok(watch.next().await?.map(|run| (run, watch)))
        })
        .boxed()
    }

    /// The same with all of its steps each time.
    pub fn watch_run_steps(&self, run: RunId) -> Items<RunView> {
        stream::try_unfold(RunWatch::new(self.clone(), run), |mut watch| async move {
            let Some(run) = watch.next().await? else { return Ok(None) };
            let steps = watch.client.run_steps(run.id).await?;
            Ok(Some((RunView { run, steps }, watch)))
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

struct RunWatch {
    client: Client,
    run: RunId,
    feed: Option<Feed>,
    version: Option<u64>,
    over: bool,
}

impl RunWatch {
    fn new(client: Client, run: RunId) -> Self {
        Self { client, run, feed: None, version: None, over: false }
    }

    /// The run once it differs from what was told last, or `None` behind its end.
    async fn next(&mut self) -> Result<Option<WorkflowRun>, Error> {
        if self.over {
            return Ok(None);
        }
        if self.version.is_none() {
            self.open_feed().await?;
        }
        loop {
            if self.version.is_some() {
                self.nudge().await;
            }
            let run = self.client.run(self.run).await?;
            if self.version != Some(run.version) {
                self.version = Some(run.version);
                self.over = run.status.is_final();
                return Ok(Some(run));
            }
        }
    }

    /// Opens the feed before the look that counts, so that no change falls between the two; the look
    /// before that tells in which namespace to listen.
    async fn open_feed(&mut self) -> Result<(), Error> {
        let run = self.client.run(self.run).await?;
        let kind = Some("run,step".to_owned());
        let filter = EventFilter { namespace: Some(run.namespace), kind, ..EventFilter::default() };
        let mut feed = Feed::new(self.client.clone(), &filter);
        let opened = tokio::time::timeout(FEED_OPENS_WITHIN, feed.connect()).await;
        self.feed = (!matches!(opened, Ok(Err(_)))).then_some(feed);
        Ok(())
    }

    /// Waits until the run may have changed, and at least for its pause.
    async fn nudge(&mut self) {
        let pause = Instant::now() + RUN_PAUSE;
        self.hears_of_it(Instant::now() + POLL).await;
        // What comes until the next look is in it already.
        while Instant::now() < pause && self.hears_of_it(pause).await {}
        let extra = if self.feed.is_some() { Duration::ZERO } else { POLL_WITHOUT_FEED };
        tokio::time::sleep_until(pause + extra).await;
    }

    /// Whether the feed brings something about the run before then.
    async fn hears_of_it(&mut self, until: Instant) -> bool {
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
