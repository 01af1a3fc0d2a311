//! Submission of jobs with upstream jobs (`after`).
//!
//! The engine has live jobs only, so the statuses of ended upstream jobs are read from the store and sent with the
//! jobs. An upstream job that ends between the two is unknown to the engine: then the statuses are read again.
//!
//! An upstream job of another namespace is refused as if it did not exist.
//!
//! # Cost
//! Nothing for jobs without `after`. Otherwise one query for each 100 upstream jobs.

use std::collections::BTreeMap;

use engine::{Input, NewJob, Reply};
use model::api::{FieldError, SubmittedJob};
use model::limits::BATCH_JOBS_MAX;
use model::{JobId, JobStatus, Refusal};
use store::query::{JobFilter, Page};

use super::problem::{ApiError, field_error};
use super::requests::unexpected;
use super::{Api, convert};
use crate::node::RequestError;

/// Maximum number of times that the statuses of upstream jobs are read.
const ATTEMPTS: u32 = 5;

/// Upstream jobs that are read with one query: each row has a whole spec.
const QUERY_JOBS: usize = 100;
/// Maximum number of different upstream jobs of one submission.
const UPSTREAM_JOBS_MAX: usize = BATCH_JOBS_MAX;

/// Namespace and status of each upstream job that exists.
#[derive(Default)]
struct Known(BTreeMap<JobId, (String, JobStatus)>);

impl Known {
    fn status(&self, id: JobId) -> Option<JobStatus> {
        self.0.get(&id).map(|&(_, status)| status)
    }

    /// Whether an upstream job belongs to another namespace than its job.
    fn is_foreign(&self, job: &NewJob, id: JobId) -> bool {
        self.0.get(&id).is_some_and(|(namespace, _)| *namespace != job.head.spec.namespace)
    }
}

/// Submits jobs: all or none. `is_batch` decides about the paths of errors.
///
/// # Errors
/// `invalid_spec` if an upstream job does not exist in the namespace of its job; the refusals of the engine.
pub(super) async fn submit(
    api: &Api,
    mut jobs: Vec<NewJob>,
    is_batch: bool,
) -> Result<Vec<SubmittedJob>, ApiError> {
    if jobs.iter().all(|job| job.head.spec.after.is_empty()) {
        return answered(request(api, jobs).await);
    }
    for _ in 0..ATTEMPTS {
        let known = read(api, &jobs).await?;
        if jobs.iter().any(|job| job.head.spec.after.iter().any(|of| known.is_foreign(job, of.job))) {
            return Err(ApiError::invalid_fields(missing(&jobs, is_batch, &known)));
        }
        for job in &mut jobs {
            let upstream = job.head.spec.after.iter().filter_map(|of| Some((of.job, known.status(of.job)?)));
            job.ended = upstream.filter(|(_, status)| status.is_final()).collect();
        }
        match request(api, jobs.clone()).await {
            Err(RequestError::Refused(Refusal::UpstreamJobNotFound { job, .. })) => {
                if known.status(job).is_none() {
                    return Err(ApiError::invalid_fields(missing(&jobs, is_batch, &known)));
                }
            }
            reply => return answered(reply),
        }
    }
    Err(RequestError::Busy { retry_after: model::Duration::from_secs(1) }.into())
}

/// Checks that the upstream jobs of all jobs exist, for a dry run. It does not know idempotency keys: a repeated
/// submission whose upstream jobs were deleted is refused here only.
///
/// # Errors
/// `invalid_spec` with each one that does not exist in the namespace of its job.
pub(super) async fn check(api: &Api, jobs: &[NewJob], is_batch: bool) -> Result<(), ApiError> {
    match missing(jobs, is_batch, &read(api, jobs).await?) {
        missing if missing.is_empty() => Ok(()),
        missing => Err(ApiError::invalid_fields(missing)),
    }
}

async fn request(api: &Api, jobs: Vec<NewJob>) -> Result<Reply, RequestError> {
    api.node.request(|ticket| Input::Submit { ticket, jobs }).await
}

fn answered(reply: Result<Reply, RequestError>) -> Result<Vec<SubmittedJob>, ApiError> {
    match reply? {
        Reply::Submitted(jobs) => {
            Ok(jobs.into_iter().map(|job| SubmittedJob { id: job.job, created: job.new }).collect())
        }
        other => Err(unexpected(&other)),
    }
}

async fn read(api: &Api, jobs: &[NewJob]) -> Result<Known, ApiError> {
    let mut ids: Vec<_> = jobs.iter().flat_map(|job| job.head.spec.after.iter().map(|of| of.job)).collect();
    ids.sort_unstable();
    ids.dedup();
    if ids.len() > UPSTREAM_JOBS_MAX {
        let wrong = format!(
            "has {} different upstream jobs: expected at most {UPSTREAM_JOBS_MAX} in one submission",
            ids.len()
        );
        return Err(ApiError::invalid_fields(vec![field_error("jobs", &wrong)]));
    }
    let mut known = Known::default();
    for ids in ids.chunks(QUERY_JOBS) {
        let filter = JobFilter { ids: ids.to_vec(), ..JobFilter::default() };
        let page = api.node.store().jobs(&filter, Page { after: None, limit: QUERY_JOBS }).await?;
        for row in page.items {
            let job = convert::job(&row)?;
            known.0.insert(row.id, (job.namespace, row.state.status));
        }
    }
    Ok(known)
}

/// Returns an error for each upstream job that does not exist in the namespace of its job.
fn missing(jobs: &[NewJob], is_batch: bool, known: &Known) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (index, job) in jobs.iter().enumerate() {
        let spec = &job.head.spec;
        let is_missing = |id: JobId| known.status(id).is_none() || known.is_foreign(job, id);
        let wrong = spec.after.iter().enumerate().filter(|(_, of)| is_missing(of.job));
        errors.extend(wrong.map(|(position, of)| {
            let at = if is_batch { format!("jobs[{index}].") } else { String::new() };
            let detail = format!("job `{}` does not exist in namespace `{}`", of.job, spec.namespace);
            field_error(&format!("{at}after[{position}].job"), &detail)
        }));
    }
    errors
}
