//! Submission of jobs with upstream jobs (`after`).
//!
//! The engine has live jobs only, so the statuses of ended upstream jobs are read from the store and sent with the
//! jobs. An upstream job that ends between the two is unknown to the engine: then the statuses are read again.
//!
//! An upstream job of another namespace is refused as if it did not exist.
//!
//! # Cost
//! Nothing for jobs without `after`. Otherwise one query for each 1,000 upstream jobs.

use std::collections::BTreeMap;

use engine::{Input, NewJob, Reply};
use model::api::{FieldError, SubmittedJob};
use model::limits::PAGE_MAX;
use model::{JobId, JobStatus, Refusal};
use store::query::{JobFilter, Page};

use super::problem::{ApiError, field_error};
use super::requests::unexpected;
use super::{Api, convert};
use crate::node::RequestError;

/// Maximum number of times that the statuses of upstream jobs are read.
const ATTEMPTS: u32 = 5;

/// Namespace and status of each upstream job that exists.
type Known = BTreeMap<JobId, (String, JobStatus)>;

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
        let is_foreign = |job: &NewJob, id: JobId| {
            known.get(&id).is_some_and(|(namespace, _)| *namespace != job.head.spec.namespace)
        };
        let foreign = missing(&jobs, is_batch, is_foreign);
        if !foreign.is_empty() {
            return Err(ApiError::invalid_fields(foreign));
        }
        for job in &mut jobs {
            let status = |id: JobId| known.get(&id).map(|&(_, status)| (id, status));
            let upstream = job.head.spec.after.iter().filter_map(|of| status(of.job));
            job.ended = upstream.filter(|(_, status)| status.is_final()).collect();
        }
        match request(api, jobs.clone()).await {
            Err(RequestError::Refused(Refusal::UpstreamJobNotFound { job, .. })) => {
                if !known.contains_key(&job) {
                    let unknown = missing(&jobs, is_batch, |_, id| !known.contains_key(&id));
                    return Err(ApiError::invalid_fields(unknown));
                }
            }
            reply => return answered(reply),
        }
    }
    Err(RequestError::Busy { retry_after: model::Duration::from_secs(1) }.into())
}

/// Checks that the upstream jobs of all jobs exist.
///
/// # Errors
/// `invalid_spec` with each one that does not exist in the namespace of its job.
pub(super) async fn check(api: &Api, jobs: &[NewJob], is_batch: bool) -> Result<(), ApiError> {
    let known = read(api, jobs).await?;
    let is_missing = |job: &NewJob, id: JobId| {
        known.get(&id).is_none_or(|(namespace, _)| *namespace != job.head.spec.namespace)
    };
    match missing(jobs, is_batch, is_missing) {
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
    let mut known = Known::new();
    for ids in ids.chunks(PAGE_MAX) {
        let filter = JobFilter { ids: ids.to_vec(), ..JobFilter::default() };
        let page = api.node.store().jobs(&filter, Page { after: None, limit: PAGE_MAX }).await?;
        for row in page.items {
            let job = convert::job(&row)?;
            known.insert(row.id, (job.namespace, row.state.status));
        }
    }
    Ok(known)
}

/// Returns an error for each upstream job that `is_missing`.
fn missing(jobs: &[NewJob], is_batch: bool, is_missing: impl Fn(&NewJob, JobId) -> bool) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (index, job) in jobs.iter().enumerate() {
        let spec = &job.head.spec;
        let wrong = spec.after.iter().enumerate().filter(|(_, of)| is_missing(job, of.job));
        errors.extend(wrong.map(|(position, of)| {
            let at = if is_batch { format!("jobs[{index}].") } else { String::new() };
            let detail = format!("job `{}` does not exist in namespace `{}`", of.job, spec.namespace);
            field_error(&format!("{at}after[{position}].job"), &detail)
        }));
    }
    errors
}
