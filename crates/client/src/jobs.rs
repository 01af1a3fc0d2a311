//! Jobs and their executions: submit, list, change, cancel and retry.
//!
//! A job is one unit of work; an execution is one attempt of a job on a worker, numbered from 1. [`Client::submit`]
//! creates a job, [`Client::wait`] waits until it has ended, and [`Client::why`] explains why it is waiting.
//!
//! Submissions carry an idempotency key, so retries of the request never create a second job.

use bytes::Bytes;
use model::api::{
    CancelJob, CancelledJob, Execution, ExecutionUsage, Job, JobEvent, List, SubmittedJob, SubmittedJobs,
    UsageOrder, UsageSample,
};
use model::why::Why;
use model::{
    BackfillId, ExecutionId, ExecutionStatus, JobId, JobSpec, JobStatus, RunId, ScheduleId, ServiceId,
    Timestamp, WorkerId,
};
use rand::RngExt;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::Error;
use crate::http::{Client, Request};
use crate::page::{self, Items, Page};

/// Filter for jobs. By default it selects all jobs.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct JobFilter {
    /// Statuses; an empty list selects all.
    pub status: Vec<JobStatus>,
    /// Owner.
    pub owner: Option<String>,
    /// Namespace; `None` selects all namespaces.
    pub namespace: Option<String>,
    /// Queue.
    pub queue: Option<String>,
    /// Name of the job.
    pub name: Option<String>,
    /// Text that the name contains; letter case is ignored.
    pub text: Option<String>,
    /// Labels, of which the job must have all.
    pub labels: Vec<(String, String)>,
    /// Worker of the newest execution.
    pub worker_id: Option<WorkerId>,
    /// Schedule that created the job.
    pub schedule: Option<ScheduleId>,
    /// Backfill that created the job.
    pub backfill: Option<BackfillId>,
    /// Run of a workflow that created the job.
    pub run: Option<RunId>,
    /// Name of the workflow whose run created the job; called runs are included.
    pub workflow: Option<String>,
    /// Service whose replica the job is.
    pub service: Option<ServiceId>,
    /// Start of the range of submission times, inclusive.
    pub created_after: Option<Timestamp>,
    /// End of the range of submission times, exclusive.
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
            .query_opt("text", self.text.as_ref())
            .query_opt("worker_id", self.worker_id)
            .query_opt("schedule", self.schedule)
            .query_opt("backfill", self.backfill)
            .query_opt("run", self.run)
            .query_opt("workflow", self.workflow.as_ref())
            .query_opt("service", self.service)
            .query_opt("created_after", self.created_after)
            .query_opt("created_before", self.created_before)
            .page(page);
        self.labels.iter().fold(request, |r, (key, value)| r.query("label", format!("{key}={value}")))
    }
}

/// Filter for executions. By default it selects all executions.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ExecutionFilter {
    /// Job.
    pub job_id: Option<JobId>,
    /// Worker.
    pub worker_id: Option<WorkerId>,
    /// Namespace; `None` selects all namespaces.
    pub namespace: Option<String>,
    /// Statuses; an empty list selects all.
    pub status: Vec<ExecutionStatus>,
}

/// Which running executions to list, and their order.
#[derive(Debug, Clone, Default)]
pub struct UsageQuery {
    /// Only this namespace; `None`: all that the caller may read.
    pub namespace: Option<String>,
    /// Only executions on this worker.
    pub worker: Option<WorkerId>,
    /// Only jobs with this name.
    pub name: Option<String>,
    /// Only jobs in this queue.
    pub queue: Option<String>,
    /// What to order by; the highest value is first.
    pub order: UsageOrder,
    /// Maximum number of executions.
    pub limit: Option<u32>,
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

/// Returns a random idempotency key with 128 bits.
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
    /// Submits a job.
    ///
    /// A spec without an idempotency key is sent with a random key, so retries of the request create one job. With a
    /// key, a repeated submission returns the job of the first one, with `created: false`.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `invalid_spec`, `idempotency_key_reused` and `storage_full`.
    ///
    /// ```no_run
    /// # async fn example(belfry: client::Client) -> Result<(), client::Error> {
    /// let spec = model::JobSpec { priority: 80, ..model::JobSpec::command(["make", "report"]) };
    /// let submitted = belfry.submit(&spec).await?;
    /// let ended = belfry.wait(submitted.id).await?;
    /// println!("{}: {}", ended.id, ended.status);
    /// # Ok(()) }
    /// ```
    pub async fn submit(&self, spec: &JobSpec) -> Result<SubmittedJob, Error> {
        let key = spec.idempotency_key.is_none().then(random_key);
        self.json(submission(spec, key.as_deref())).await
    }

    /// Submits several jobs in one transaction: either all are created, or none. Retries of the request create each job
    /// once.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `invalid_spec` and `body_too_large`.
    pub async fn submit_all(&self, jobs: &[JobSpec]) -> Result<Vec<SubmittedJob>, Error> {
        let submitted: SubmittedJobs = self.json(submission(&Batch { jobs }, Some(&random_key()))).await?;
        Ok(submitted.jobs)
    }

    /// Validates a spec and returns it with all defaults, without submitting it.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `invalid_spec`.
    pub async fn submit_dry_run(&self, spec: &JobSpec) -> Result<Value, Error> {
        self.json(submission(spec, None).query("dry_run", true)).await
    }

    /// Returns a job with its spec.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `job_not_found`.
    pub async fn job(&self, id: JobId) -> Result<Job, Error> {
        self.json(Request::get(["jobs".to_owned(), id.to_string()])).await
    }

    /// Returns one page of jobs, newest first, without their specs.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors).
    pub async fn jobs_page(&self, filter: &JobFilter, page: &Page) -> Result<List<Job>, Error> {
        self.json(filter.request(page)).await
    }

    /// Streams all jobs that match the filter, newest first, without their specs.
    pub fn jobs(&self, filter: JobFilter) -> Items<Job> {
        let (client, filter) = (self.clone(), std::sync::Arc::new(filter));
        page::all(move |page| {
            let (client, filter) = (client.clone(), filter.clone());
            async move { client.jobs_page(&filter, &page).await }
        })
    }

    /// Changes a job that has not started, by a JSON merge patch (RFC 7386) of its spec.
    ///
    /// With `version`, the request fails unless the job still has this version.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `job_not_found`, `job_started`, `invalid_spec` and
    /// `version_mismatch`.
    pub async fn update_job(&self, id: JobId, patch: &Value, version: Option<u64>) -> Result<Job, Error> {
        let request = Request::patch(["jobs".to_owned(), id.to_string()])
            .json_as("application/merge-patch+json", patch)
            .if_match(version);
        self.json(request).await
    }

    /// Cancels a job. A running execution is stopped first, so the returned status may still be `running`.
    ///
    /// `reason` is recorded in the history of the job.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `job_not_found` and `job_ended`.
    pub async fn cancel_job(&self, id: JobId, reason: Option<&str>) -> Result<CancelledJob, Error> {
        let body = CancelJob { reason: reason.map(str::to_owned) };
        self.json(
            Request::post(["jobs".to_owned(), id.to_string(), "cancel".to_owned()]).json(&body).repeatable(),
        )
        .await
    }

    /// Submits an ended job again, as a new job with the same spec.
    ///
    /// The request is not retried if its outcome is unknown.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `job_not_found`, `job_not_ended` and `schedule_run_limit`.
    pub async fn retry_job(&self, id: JobId) -> Result<SubmittedJob, Error> {
        self.json(Request::post(["jobs".to_owned(), id.to_string(), "retry".to_owned()])).await
    }

    /// Returns the last checkpoint of a job, as its task saved it. [`Job::checkpoint`] has its content type.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `job_not_found` and `checkpoint_not_found`.
    pub async fn job_checkpoint(&self, id: JobId) -> Result<Bytes, Error> {
        let request = Request::get(["jobs", &id.to_string(), "checkpoint"]).header("accept", "*/*");
        let interrupted = |source: reqwest::Error| Error::Interrupted {
            url: self.url().to_owned(),
            source: source.without_url(),
        };
        self.open(&request).await?.bytes().await.map_err(interrupted)
    }

    /// Explains why a job is waiting, or why it ended as it did.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `job_not_found`.
    pub async fn why(&self, id: JobId) -> Result<Why, Error> {
        self.json(Request::get(["jobs".to_owned(), id.to_string(), "why".to_owned()])).await
    }

    /// Returns the history of a job, oldest event first.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `job_not_found`.
    pub async fn job_events(&self, id: JobId) -> Result<Vec<JobEvent>, Error> {
        let history: History<JobEvent> =
            self.json(Request::get(["jobs".to_owned(), id.to_string(), "events".to_owned()])).await?;
        Ok(history.items)
    }

    /// Returns one page of executions, newest first.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors).
    pub async fn executions_page(
        &self,
        filter: &ExecutionFilter,
        page: &Page,
    ) -> Result<List<Execution>, Error> {
        self.json(filter.request(page)).await
    }

    /// Streams all executions that match the filter, newest first.
    pub fn executions(&self, filter: ExecutionFilter) -> Items<Execution> {
        let (client, filter) = (self.clone(), std::sync::Arc::new(filter));
        page::all(move |page| {
            let (client, filter) = (client.clone(), filter.clone());
            async move { client.executions_page(&filter, &page).await }
        })
    }

    /// Returns the executions of a job, newest first.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `job_not_found`.
    pub async fn job_executions(&self, id: JobId) -> Result<List<Execution>, Error> {
        self.json(Request::get(["jobs".to_owned(), id.to_string(), "executions".to_owned()])).await
    }

    /// Returns what running executions use, highest first. Executions of any namespace that the caller may read.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors).
    pub async fn usage(&self, query: &UsageQuery) -> Result<Vec<ExecutionUsage>, Error> {
        let request = Request::get(["usage"])
            .query("order", query.order)
            .query_opt("namespace", query.namespace.as_deref())
            .query_opt("worker_id", query.worker)
            .query_opt("name", query.name.as_deref())
            .query_opt("queue", query.queue.as_deref())
            .query_opt("limit", query.limit);
        Ok(self.json::<List<ExecutionUsage>>(request).await?.items)
    }

    /// Returns the measurements of an execution of the last minutes, oldest first; empty if it does not run.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `execution_not_found`.
    pub async fn execution_usage(&self, id: ExecutionId) -> Result<Vec<UsageSample>, Error> {
        let request = Request::get(["executions".to_owned(), id.to_string(), "usage".to_owned()]);
        Ok(self.json::<List<UsageSample>>(request).await?.items)
    }

    /// Returns an execution.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `execution_not_found`.
    pub async fn execution(&self, id: ExecutionId) -> Result<Execution, Error> {
        self.json(Request::get(["executions".to_owned(), id.to_string()])).await
    }
}
