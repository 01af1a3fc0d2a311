//! Jobs and executions: submit, find, change, end.

use bytes::Bytes;
use model::api::{CancelJob, CancelledJob, Execution, Job, JobEvent, List, SubmittedJob, SubmittedJobs};
use model::why::Why;
use model::{
    BackfillId, ExecutionId, ExecutionStatus, JobId, JobSpec, JobStatus, RunId, ScheduleId, Timestamp,
    WorkerId,
};
use rand::RngExt;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::Error;
use crate::http::{Client, Request};
use crate::page::{self, Items, Page};

/// Which jobs; the default is all of them.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct JobFilter {
    /// With one of these statuses; any where empty.
    pub status: Vec<JobStatus>,
    /// Of this owner.
    pub owner: Option<String>,
    /// Of this namespace.
    pub namespace: Option<String>,
    /// In this queue.
    pub queue: Option<String>,
    /// With this name.
    pub name: Option<String>,
    /// With all of these labels.
    pub labels: Vec<(String, String)>,
    /// Whose newest execution is, or was, on this worker.
    pub worker_id: Option<WorkerId>,
    /// Of this schedule.
    pub schedule: Option<ScheduleId>,
    /// Of this backfill.
    pub backfill: Option<BackfillId>,
    /// Of this run of a workflow.
    pub run: Option<RunId>,
    /// Submitted at or after this time.
    pub created_after: Option<Timestamp>,
    /// Submitted before this time.
    pub created_before: Option<Timestamp>,
}

impl JobFilter {
    fn request(&self, page: &Page) -> Request {
        let statuses: Vec<_> = self.status.iter().map(|s| s.as_str()).collect();
        let request = Request::get(["jobs"])
            .query_opt("status", (!statuses.is_empty()).then(|| statuses.join(",")))
            .query_opt("owner", self.owner.as_ref())
            .query_opt("namespace", self.namespace.as_ref())
            .query_opt("queue", self.queue.as_ref())
            .query_opt("name", self.name.as_ref())
            .query_opt("worker_id", self.worker_id)
            .query_opt("schedule", self.schedule)
            .query_opt("backfill", self.backfill)
            .query_opt("run", self.run)
            .query_opt("created_after", self.created_after)
            .query_opt("created_before", self.created_before)
            .page(page);
        self.labels.iter().fold(request, |r, (key, value)| r.query("label", format!("{key}={value}")))
    }
}

/// Which executions; the default is all of them.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ExecutionFilter {
    /// Of this job.
    pub job_id: Option<JobId>,
    /// On this worker.
    pub worker_id: Option<WorkerId>,
    /// Of this namespace.
    pub namespace: Option<String>,
    /// With one of these statuses; any where empty.
    pub status: Vec<ExecutionStatus>,
}

impl ExecutionFilter {
    fn request(&self, page: &Page) -> Request {
        let statuses: Vec<_> = self.status.iter().map(|s| s.as_str()).collect();
        Request::get(["executions"])
            .query_opt("job_id", self.job_id)
            .query_opt("worker_id", self.worker_id)
            .query_opt("namespace", self.namespace.as_ref())
            .query_opt("status", (!statuses.is_empty()).then(|| statuses.join(",")))
            .page(page)
    }
}

#[derive(Serialize)]
struct Batch<'a> {
    jobs: &'a [JobSpec],
}

#[derive(Deserialize)]
struct History<T> {
    items: Vec<T>,
}

/// A key that nobody else has: 128 random bits.
pub(crate) fn random_key() -> String {
    format!("cli-{:032x}", rand::rng().random::<u128>())
}

fn submission(body: &impl Serialize, key: Option<&str>) -> Request {
    let request = Request::post(["jobs"]).json(body).repeatable();
    match key {
        Some(key) => request.header("idempotency-key", &format!("\"{key}\"")),
        None => request,
    }
}

impl Client {
    /// Submits one job.
    ///
    /// A spec without an idempotency key is sent with a random one: however often this has to be
    /// tried, it makes one job.
    ///
    /// # Errors
    /// As every request.
    pub async fn submit(&self, spec: &JobSpec) -> Result<SubmittedJob, Error> {
        let key = spec.idempotency_key.is_none().then(random_key);
        self.json(submission(spec, key.as_deref())).await
    }

    /// Submits several jobs, all or none; likewise with a key.
    ///
    /// # Errors
    /// As every request.
    pub async fn submit_all(&self, jobs: &[JobSpec]) -> Result<Vec<SubmittedJob>, Error> {
        let submitted: SubmittedJobs = self.json(submission(&Batch { jobs }, Some(&random_key()))).await?;
        Ok(submitted.jobs)
    }

    /// What a submission would store, with every default filled in; nothing is stored.
    ///
    /// # Errors
    /// As every request.
    pub async fn submit_dry_run(&self, spec: &JobSpec) -> Result<Value, Error> {
        self.json(submission(spec, None).query("dry_run", true)).await
    }

    /// One job, with its spec.
    ///
    /// # Errors
    /// As every request.
    pub async fn job(&self, id: JobId) -> Result<Job, Error> {
        self.json(Request::get(["jobs".to_owned(), id.to_string()])).await
    }

    /// One page of jobs, newest first, without their specs.
    ///
    /// # Errors
    /// As every request.
    pub async fn jobs_page(&self, filter: &JobFilter, page: &Page) -> Result<List<Job>, Error> {
        self.json(filter.request(page)).await
    }

    /// All jobs that the filter lets through, newest first.
    pub fn jobs(&self, filter: JobFilter) -> Items<Job> {
        let (client, filter) = (self.clone(), std::sync::Arc::new(filter));
        page::all(move |page| {
            let (client, filter) = (client.clone(), filter.clone());
            async move { client.jobs_page(&filter, &page).await }
        })
    }

    /// Changes a job that has not started, by a JSON merge patch (RFC 7386) of its spec.
    ///
    /// With `version`, only if it is still that one.
    ///
    /// # Errors
    /// As every request.
    pub async fn update_job(&self, id: JobId, patch: &Value, version: Option<u64>) -> Result<Job, Error> {
        let request = Request::patch(["jobs".to_owned(), id.to_string()])
            .json_as("application/merge-patch+json", patch)
            .if_match(version);
        self.json(request).await
    }

    /// Cancels a job; a running one is stopped first.
    ///
    /// # Errors
    /// As every request.
    pub async fn cancel_job(&self, id: JobId, reason: Option<&str>) -> Result<CancelledJob, Error> {
        let body = CancelJob { reason: reason.map(str::to_owned) };
        self.json(
            Request::post(["jobs".to_owned(), id.to_string(), "cancel".to_owned()]).json(&body).repeatable(),
        )
        .await
    }

    /// Submits an ended job again, as a new one.
    ///
    /// # Errors
    /// As every request.
    pub async fn retry_job(&self, id: JobId) -> Result<SubmittedJob, Error> {
        self.json(Request::post(["jobs".to_owned(), id.to_string(), "retry".to_owned()])).await
    }

    /// The last checkpoint of a job, as its task saved it. The job itself tells of what kind it is.
    ///
    /// # Errors
    /// As every request; `checkpoint_not_found` if it has saved none.
    pub async fn job_checkpoint(&self, id: JobId) -> Result<Bytes, Error> {
        let request = Request::get(["jobs", &id.to_string(), "checkpoint"]).header("accept", "*/*");
        let interrupted = |source: reqwest::Error| Error::Interrupted {
            url: self.url().to_owned(),
            source: source.without_url(),
        };
        self.open(&request).await?.bytes().await.map_err(interrupted)
    }

    /// Why a job stands where it stands.
    ///
    /// # Errors
    /// As every request.
    pub async fn why(&self, id: JobId) -> Result<Why, Error> {
        self.json(Request::get(["jobs".to_owned(), id.to_string(), "why".to_owned()])).await
    }

    /// A job's history, oldest first.
    ///
    /// # Errors
    /// As every request.
    pub async fn job_events(&self, id: JobId) -> Result<Vec<JobEvent>, Error> {
        let history: History<JobEvent> =
            self.json(Request::get(["jobs".to_owned(), id.to_string(), "events".to_owned()])).await?;
        Ok(history.items)
    }

    /// One page of executions, newest first.
    ///
    /// # Errors
    /// As every request.
    pub async fn executions_page(
        &self,
        filter: &ExecutionFilter,
        page: &Page,
    ) -> Result<List<Execution>, Error> {
        self.json(filter.request(page)).await
    }

    /// All executions that the filter lets through, newest first.
    pub fn executions(&self, filter: ExecutionFilter) -> Items<Execution> {
        let (client, filter) = (self.clone(), std::sync::Arc::new(filter));
        page::all(move |page| {
            let (client, filter) = (client.clone(), filter.clone());
            async move { client.executions_page(&filter, &page).await }
        })
    }

    /// The executions of one job.
    ///
    /// # Errors
    /// As every request.
    pub async fn job_executions(&self, id: JobId) -> Result<List<Execution>, Error> {
        self.json(Request::get(["jobs".to_owned(), id.to_string(), "executions".to_owned()])).await
    }

    /// One execution.
    ///
    /// # Errors
    /// As every request.
    pub async fn execution(&self, id: ExecutionId) -> Result<Execution, Error> {
        self.json(Request::get(["executions".to_owned(), id.to_string()])).await
    }
}
