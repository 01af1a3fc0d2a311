//! Changes of many jobs: cancel, retry or update all jobs of a selection.
//!
//! The server handles a page of the jobs with each request; [`Client::change_jobs`] sends one request after the other.

use std::sync::Arc;

use futures::stream::{self, StreamExt};
use model::Timestamp;
use model::api::{CancelJobs, ChangedJobs, JobSelection, RetryJobs, UpdateJobs};

use crate::error::Error;
use crate::http::{Client, Request};
use crate::jobs::JobFilter;
use crate::page::Items;

/// Request for many jobs.
#[derive(Debug, Clone, PartialEq)]
pub enum ChangeJobs {
    /// Cancels the jobs.
    Cancel(CancelJobs),
    /// Submits the ended jobs again, as new jobs.
    Retry(RetryJobs),
    /// Changes the specs of the jobs, which must not have started.
    Update(UpdateJobs),
}

impl ChangeJobs {
    /// Restricts the jobs to those that were submitted before a time.
    pub fn submitted_before(&mut self, at: Option<Timestamp>) {
        let jobs = match self {
            Self::Cancel(CancelJobs { jobs, .. })
            | Self::Retry(RetryJobs { jobs })
            | Self::Update(UpdateJobs { jobs, .. }) => jobs,
        };
        jobs.created_before = jobs.created_before.into_iter().chain(at).min();
    }

    fn request(&self) -> Request {
        match self {
            Self::Cancel(body) => Request::post(["jobs", "cancel"]).json(body),
            Self::Retry(body) => Request::post(["jobs", "retry"]).json(body),
            Self::Update(body) => Request::post(["jobs", "update"]).json(body),
        }
    }
}

impl From<JobFilter> for JobSelection {
    fn from(filter: JobFilter) -> Self {
        Self {
            ids: Vec::new(),
            status: filter.status,
            owner: filter.owner,
            namespace: filter.namespace,
            queue: filter.queue,
            name: filter.name,
            text: filter.text,
            labels: filter.labels.into_iter().collect(),
            worker_id: filter.worker_id,
            schedule: filter.schedule,
            backfill: filter.backfill,
            run: filter.run,
            workflow: filter.workflow,
            service: filter.service,
            created_after: filter.created_after,
            created_before: filter.created_before,
        }
    }
}

impl Client {
    /// Changes many jobs and streams the result of each page; in a dry run, only selects them.
    ///
    /// A request whose outcome is unknown is repeated: a job that is already cancelled or changed stays as it is, and
    /// no job is retried twice. The stream ends after its first error; jobs of earlier pages stay changed.
    ///
    /// # Errors
    /// Items are [request errors](crate#request-errors), among them `invalid_spec` for a selection without a condition.
    pub fn change_jobs(&self, request: ChangeJobs, dry_run: bool) -> Items<ChangedJobs> {
        enum Next {
            Page(Option<String>),
            Nothing,
        }
        let shared = Arc::new((self.clone(), request));
        stream::try_unfold(Next::Page(None), move |next| {
            let shared = Arc::clone(&shared);
            async move {
                let (client, request) = &*shared;
                let Next::Page(cursor) = next else { return Ok::<_, Error>(None) };
                let mut page = request.request().query_opt("cursor", cursor).repeatable();
                if dry_run {
                    page = page.query("dry_run", true);
                }
                let changed: ChangedJobs = client.json(page).await?;
                let next = changed.next_cursor.clone();
                Ok(Some((changed, next.map_or(Next::Nothing, |cursor| Next::Page(Some(cursor))))))
            }
        })
        .boxed()
    }
}
