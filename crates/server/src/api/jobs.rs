//! Jobs: submit, list, show, change, cancel, retry, explain.
//!
//! - Submissions go through `submit`. Large bodies are parsed on a blocking thread, so that they do not delay other
//!   requests.
//! - Changes are merge patches (`patch`) with an optional precondition; conflicts with concurrent updates are retried
//!   (`requests`).
//! - Lists and details read the store. Only the explanation of a waiting job needs the leader, whose engine computes
//!   it.

use std::sync::Arc;

use axum::extract::State;
use axum::http::header::{CONTENT_DISPOSITION, CONTENT_TYPE, ETAG, LOCATION};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use engine::{Input, Reply};
use model::api::{CancelJob, CancelledJob, Job, JobEvent, List, SubmitJobs, SubmittedJob, SubmittedJobs};
use model::firing::{FiringCause, Origin};
use model::limits::{BATCH_BODY_BYTES_MAX, BODY_BYTES_MAX, NOTE_LEN_MAX};
use model::record::JobHead;
use model::why::Why;
use model::{
    BackfillId, JobId, JobSpec, JobStatus, Refusal, RunId, ScheduleId, ServiceId, Timestamp, WorkerId,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use store::query::{JobFilter, JobRow, Page, Paged};
use utoipa::ToSchema;
use utoipa_axum::routes;

use super::extract::{Format, Labels, Many, MaybeBody, Params, Path, RawBody};
use super::headers::{IdempotencyKey, Precondition, etag};
use super::limits::Caller;
use super::page::Selection;
use super::problem::{ApiError, Code};
use super::requests::{unexpected, until_applied};
use super::routes::Routes;
use super::submit::{self, Submission};
use super::{Api, convert, page, patch, rows, secrets, upstream};
use crate::api::openapi::JobPatch;
use crate::auth::{Actor, Resource, Verb};
use crate::clock::{Clock, SystemClock};
use crate::node::RequestError;

/// Size in bytes from which a submission is parsed on a blocking thread.
const LARGE_BODY: usize = 64 * 1024;

pub(super) fn routes(routes: &mut Routes) {
    use Code::{
        IdempotencyKeyReused, InvalidHeader, InvalidSpec, JobEnded, JobNotEnded, JobNotFound, JobStarted,
    };
    let jobs = Resource::Jobs;
    let submit_refusals = [
        Code::DownstreamJobLimit,
        Code::NamespaceJobLimit,
        Code::PriorityClassNotAllowed,
        IdempotencyKeyReused,
        InvalidHeader,
        InvalidSpec,
        Code::QueryTooSlow,
        Code::SubmitRate,
        Code::UnsupportedMediaType,
    ];
    routes.needs(Verb::Create, jobs, &submit_refusals, routes!(submit_jobs));
    routes.is_submission();
    routes.needs(Verb::Read, jobs, &[Code::InvalidCursor, Code::QueryTooSlow], routes!(list_jobs));
    routes.needs(Verb::Read, jobs, &[JobNotFound], routes!(get_job));
    let update_refusals = [
        JobNotFound,
        JobStarted,
        JobEnded,
        Code::JobOfService,
        Code::PriorityClassNotAllowed,
        Code::VersionMismatch,
        InvalidHeader,
        InvalidSpec,
        Code::UnsupportedMediaType,
    ];
    routes.needs(Verb::Change, jobs, &update_refusals, routes!(update_job));
    routes.needs(Verb::Operate, jobs, &[JobNotFound, JobEnded], routes!(delete_job));
    let cancel_refusals = [JobNotFound, JobEnded, InvalidSpec, Code::UnsupportedMediaType];
    routes.needs(Verb::Operate, jobs, &cancel_refusals, routes!(cancel_job));
    let retry_refusals = [
        JobNotFound,
        JobNotEnded,
        Code::JobOfService,
        Code::NamespaceJobLimit,
        Code::PriorityClassNotAllowed,
        Code::ScheduleRunLimit,
        Code::SubmitRate,
        IdempotencyKeyReused,
        InvalidHeader,
        InvalidSpec,
    ];
    routes.needs(Verb::Operate, jobs, &retry_refusals, routes!(retry_job));
    routes.needs(Verb::Read, jobs, &[JobNotFound], routes!(get_job_events));
    let no_checkpoint = [JobNotFound, Code::CheckpointNotFound];
    routes.needs(Verb::Read, jobs, &no_checkpoint, routes!(get_checkpoint));
    routes.needs(Verb::Read, jobs, &[JobNotFound, Code::Loading, Code::Stopping], routes!(explain_job));
    routes.of_leader();
}

/// One job, or several that are accepted all or none.
#[derive(ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "the document's view of what `submit::parse` reads")]
enum SubmitBody {
    One(Box<JobSpec>),
    Many(SubmitJobs),
}

/// Response to a submission: the IDs of the jobs, or in a dry run the specs with all defaults.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
enum SubmitAnswer {
    One(SubmittedJob),
    Many(SubmittedJobs),
    OneSpec(Box<JobSpec>),
    ManySpecs(SubmitJobs),
}

#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
#[derive(Default)]
struct SubmitParams {
    /// Whether to validate only: the response has the spec as it would be stored, and nothing is stored [default:
    /// false]
    dry_run: bool,
}

/// Submit one job, or several at once
///
/// A job in the response is stored and cannot be lost. With an `Idempotency-Key`, you can repeat the request until it
/// is answered: the same key with the same body creates one job, and each response returns that job. In a batch, job
/// number N (from 0) without a key of its own gets the key of the header with the suffix `/N`.
#[utoipa::path(
    post, path = "/api/v1/jobs", tag = "jobs",
    params(SubmitParams, ("Idempotency-Key" = Option<String>, Header, description = "Key that makes a repeated request safe; kept for 7 days", example = "order-2381")),
    request_body(
        description = "A job, or `{\"jobs\": […]}`",
        content(
            (SubmitBody = "application/json", example = json!({"name": "hello", "run": {"process": {"command": ["echo", "hello"]}}})),
            (SubmitBody = "application/yaml"),
        )
    ),
    responses(
        (status = 201, description = "At least one job was created", body = SubmitAnswer, headers(
            ("Location" = String, description = "URL of the job, for a single job"),
            ("ETag" = String, description = "Version of the job, for a single job"),
        )),
        (status = 200, description = "An earlier request with the same idempotency key created the job; or a dry run", body = SubmitAnswer),
    )
)]
async fn submit_jobs(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Extension(caller): Extension<Caller>,
    Params(params): Params<SubmitParams>,
    IdempotencyKey(key): IdempotencyKey,
    body: RawBody<BATCH_BODY_BYTES_MAX>,
) -> Result<Response, ApiError> {
    let by = actor.clone();
    let large = body.bytes.len() > LARGE_BODY;
    let prepare = move || {
        let mut submission = submit::parse(body.format, &body.bytes)?;
        submit::fill_in(&mut submission, key.as_deref(), &by)?;
        let batch = matches!(submission, Submission::Many(_));
        Ok::<_, ApiError>((submit::prepare(submission, &by, SystemClock.now())?, batch))
    };
    let (jobs, batch) = if large {
        tokio::task::spawn_blocking(prepare).await.map_err(|error| ApiError::internal(&error))??
    } else {
        prepare()?
    };
    for job in &jobs {
        actor.check(&job.head.spec.namespace)?;
    }
    let paths = |i: usize| if batch { format!("jobs[{i}].") } else { String::new() };
    let specs = jobs.iter().enumerate().map(|(i, job)| (paths(i), job.head.spec.as_ref()));
    secrets::check_references(&api, specs).await?;
    if params.dry_run {
        actor.note().is_read();
        upstream::check(&api, &jobs, batch).await?;
        let mut specs: Vec<_> = jobs.iter().map(|job| JobSpec::clone(&job.head.spec)).collect();
        let answer = match specs.pop() {
            Some(spec) if !batch => SubmitAnswer::OneSpec(Box::new(spec)),
            last => SubmitAnswer::ManySpecs(SubmitJobs { jobs: specs.into_iter().chain(last).collect() }),
        };
        return Ok(Json(answer).into_response());
    }
    api.shared.limits.charge(&actor, &caller, jobs.len())?;
    let jobs = upstream::submit(&api, jobs, batch).await?;
    if batch {
        actor.note().affected(jobs.len());
        let status = if jobs.iter().any(|job| job.created) { StatusCode::CREATED } else { StatusCode::OK };
        return Ok((status, Json(SubmitAnswer::Many(SubmittedJobs { jobs }))).into_response());
    }
    one_submitted(jobs)
}

fn one_submitted(jobs: Vec<SubmittedJob>) -> Result<Response, ApiError> {
    let [job] = <[SubmittedJob; 1]>::try_from(jobs)
        .map_err(|_| ApiError::new(Code::Internal, "the engine did not create exactly one job"))?;
    let location = [(LOCATION, format!("/api/v1/jobs/{}", job.id))];
    Ok(if job.created {
        (StatusCode::CREATED, location, [(ETAG, etag(1))], Json(SubmitAnswer::One(job))).into_response()
    } else {
        (StatusCode::OK, location, Json(SubmitAnswer::One(job))).into_response()
    })
}

#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
struct ListJobsParams {
    /// Statuses to list, separated by commas.
    #[param(value_type = Option<String>, example = "waiting,running")]
    status: Many<JobStatus>,
    /// Only jobs of this owner.
    owner: Option<String>,
    /// Namespace to list; `*` for all namespaces [default: *]
    namespace: Option<String>,
    /// Only jobs of this queue.
    queue: Option<String>,
    /// Only jobs of this name.
    name: Option<String>,
    /// Only jobs whose name contains this text. Letter case is ignored.
    text: Option<String>,
    /// Only jobs with this label, as `KEY=VALUE`; repeat to require several labels.
    #[param(value_type = Option<Vec<String>>)]
    label: Labels,
    /// Only jobs whose newest execution is or was on this worker.
    worker_id: Option<WorkerId>,
    /// Only jobs of this schedule.
    schedule: Option<ScheduleId>,
    /// Only jobs of this backfill.
    backfill: Option<BackfillId>,
    /// Only jobs of this run of a workflow.
    run: Option<RunId>,
    /// Only jobs of runs of the workflow with this name; runs that other runs called are included.
    workflow: Option<String>,
    /// Only jobs of this service: its replicas, and earlier ones that have ended.
    service: Option<ServiceId>,
    /// Only jobs that were submitted at this time or later.
    created_after: Option<Timestamp>,
    /// Only jobs that were submitted before this time.
    created_before: Option<Timestamp>,
    /// Maximum number of items on the page, from 1 to 1000 [default: 50]
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// `next_cursor` of the previous page.
    cursor: Option<String>,
    /// Whether to return the number of items on all pages in the header `X-Total-Count`. Allowed only with filters by
    /// status and namespace [default: false]
    count: bool,
}

impl ListJobsParams {
    fn filter(self) -> JobFilter {
        JobFilter {
            ids: Vec::new(),
            statuses: self.status.0,
            namespace: page::namespace(self.namespace),
            owner: self.owner,
            queue: self.queue,
            name: self.name,
            text: self.text,
            labels: self.label.0,
            worker: self.worker_id,
            schedule: self.schedule,
            backfill: self.backfill,
            run: self.run,
            workflow: self.workflow,
            service: self.service,
            created_after: self.created_after,
            created_before: self.created_before,
        }
    }
}

/// List jobs, newest first
///
/// The list omits the specs.
#[utoipa::path(get, path = "/api/v1/jobs", tag = "jobs", params(ListJobsParams), responses(
    (status = 200, description = "One page", body = List<Job>, headers(
        ("X-Total-Count" = Option<u64>, description = "Number of items on all pages, with `count=true`"),
    )),
))]
async fn list_jobs(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Params(mut params): Params<ListJobsParams>,
) -> Result<Response, ApiError> {
    let limit = page::limit(params.limit)?;
    let (cursor, count) = (params.cursor.take(), params.count);
    let filter = params.filter();
    let after = api.shared.cursors.read::<JobId>("jobs", &filter, cursor.as_deref())?;
    let selection = Selection::of(&actor, filter.namespace.as_deref())?;
    let page = select(&api, &selection, &filter, Page { after, limit }).await?;
    let items = page.items.iter().map(convert::job).collect::<Result<Vec<_>, _>>()?;
    let last = items.last().filter(|_| page.more);
    let next_cursor = last.map(|job| api.shared.cursors.make("jobs", &filter, &job.id.to_string()));
    let list = Json(List { items, next_cursor });
    if !count {
        return Ok(list.into_response());
    }
    Ok(([("x-total-count", total(&api, &selection, &filter).await?)], list).into_response())
}

/// Reads a page of the jobs in these namespaces.
pub(super) async fn select(
    api: &Api,
    selection: &Selection,
    filter: &JobFilter,
    page: Page<JobId>,
) -> Result<Paged<JobRow>, ApiError> {
    let query = |namespace| async move {
        let filter = JobFilter { namespace, ..filter.clone() };
        api.node.store().jobs(&filter, page).await
    };
    selection.page(page.limit, query, |row| row.id).await
}

/// Counts the jobs of a filter, if the store can count them without reading all of them.
async fn total(api: &Api, selection: &Selection, filter: &JobFilter) -> Result<String, ApiError> {
    let counted = JobFilter {
        statuses: filter.statuses.clone(),
        namespace: filter.namespace.clone(),
        ..JobFilter::default()
    };
    if *filter != counted {
        return Err(ApiError::parameter("count", "can be used only with `status` and `namespace`"));
    }
    let wanted = |status: &JobStatus| filter.statuses.is_empty() || filter.statuses.contains(status);
    let mut total = 0;
    for namespace in selection.iter() {
        let counts = api.node.store().counts(namespace).await?;
        total += counts.iter().filter(|(status, _)| wanted(status)).map(|(_, count)| count).sum::<u64>();
    }
    Ok(total.to_string())
}

/// Show a job with its spec
#[utoipa::path(get, path = "/api/v1/jobs/{id}", tag = "jobs", params(("id" = JobId, Path)), responses(
    (status = 200, description = "The job", body = Job, headers(("ETag" = String, description = "Version of the resource"))),
))]
async fn get_job(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Path(id): Path<JobId>,
) -> Result<Response, ApiError> {
    shown(&rows::job(&api, &actor, id).await?)
}

fn shown(row: &JobRow) -> Result<Response, ApiError> {
    let job = convert::job_with_spec(row)?;
    Ok(([(ETAG, etag(job.version))], Json(job)).into_response())
}

/// Change a job that has not started
///
/// The body is a merge patch (RFC 7386) of the spec: a value replaces the field, and `null` restores its default.
/// Namespace, upstream jobs and idempotency key cannot be changed.
#[utoipa::path(patch, path = "/api/v1/jobs/{id}", tag = "jobs",
    params(
        ("id" = JobId, Path),
        ("If-Match" = Option<String>, Header, description = "Version that the change is based on; the request is refused if the resource has another version", example = "\"3\""),
    ),
    request_body(content(
        (JobPatch = "application/merge-patch+json", example = json!({"priority": 80, "timeout": "10m"})),
        (JobPatch = "application/json"),
    )),
    responses((status = 200, description = "The updated job", body = Job, headers(("ETag" = String, description = "Version of the resource"))))
)]
async fn update_job(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Path(id): Path<JobId>,
    wanted: Precondition,
    body: RawBody<BODY_BYTES_MAX>,
) -> Result<Response, ApiError> {
    if body.format != Format::Json {
        let detail = format!("cannot change job `{id}`: the body must be a merge patch in JSON");
        return Err(ApiError::new(Code::UnsupportedMediaType, detail));
    }
    let change: Value = body.format.parse(&body.bytes)?;
    let (old, new) = apply_patch(&api, &actor, id, &wanted, &change).await?;
    actor.note().changed_bodies("", Some(&old), Some(&new.body));
    shown(&rows::job(&api, &actor, id).await?)
}

/// Returns the head of a job with a merge patch of its spec.
///
/// # Errors
/// `invalid_spec`
pub(super) fn patched(row: &JobRow, change: &Value) -> Result<JobHead, ApiError> {
    let spec = patch::apply(&convert::spec(row)?, change)?;
    let head = submit::head(spec, row.retry_of, SystemClock.now()).map_err(ApiError::invalid_fields)?;
    Ok(JobHead { origin: row.origin.clone(), ..head })
}

/// Applies a merge patch to the spec of a job that has not started. Returns the old spec and the new head.
///
/// # Errors
/// The refusals of [`update_job`].
pub(super) async fn apply_patch(
    api: &Api,
    actor: &Actor,
    id: JobId,
    wanted: &Precondition,
    change: &Value,
) -> Result<(Arc<str>, Arc<JobHead>), ApiError> {
    until_applied(format!("job `{id}`"), || async {
        let row = rows::job(api, actor, id).await?;
        let version = row.state.version;
        wanted.expected(format!("job `{id}`"), version)?;
        if row.state.status.is_final() {
            return Err(ended("change", &row).into());
        }
        let (new, actor) = (Arc::new(patched(&row, change)?), Arc::clone(&actor.name));
        secrets::check_references(api, std::iter::once((String::new(), new.spec.as_ref()))).await?;
        let head = Arc::clone(&new);
        let input = |ticket| Input::Update { ticket, job: id, head, expected_version: Some(version), actor };
        match api.node.request(input).await? {
            Reply::Updated { .. } => Ok((row.body, new)),
            other => Err(unexpected(&other).into()),
        }
    })
    .await
}

fn ended(verb: &str, row: &JobRow) -> ApiError {
    let detail = format!("cannot {verb} job `{}`: it has already ended (`{}`)", row.id, row.state.status);
    ApiError::new(Code::JobEnded, detail)
}

/// Cancel a job
///
/// Same as `POST /api/v1/jobs/{id}/cancel` without a reason.
#[utoipa::path(delete, path = "/api/v1/jobs/{id}", tag = "jobs", params(("id" = JobId, Path)), responses(
    (status = 200, description = "Cancelled", body = CancelledJob),
    (status = 202, description = "Accepted; the job is cancelled once its execution has stopped", body = CancelledJob),
))]
async fn delete_job(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Path(id): Path<JobId>,
) -> Result<Response, ApiError> {
    cancelled(id, cancel(&api, &actor, id, None).await?)
}

/// Cancel a job
///
/// A waiting job is cancelled at once. A running job is stopped first: its process gets SIGTERM, then SIGKILL after
/// `grace`. A repeated cancel is not an error.
#[utoipa::path(post, path = "/api/v1/jobs/{id}/cancel", tag = "jobs", params(("id" = JobId, Path)),
    request_body(content = Option<CancelJob>, description = "Optional"),
    responses(
        (status = 200, description = "Cancelled", body = CancelledJob),
        (status = 202, description = "Accepted; the job is cancelled once its execution has stopped", body = CancelledJob),
    )
)]
async fn cancel_job(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Path(id): Path<JobId>,
    MaybeBody(body): MaybeBody<CancelJob>,
) -> Result<Response, ApiError> {
    check_reason(body.reason.as_deref())?;
    cancelled(id, cancel(&api, &actor, id, body.reason.as_deref()).await?)
}

/// Checks the length of the reason for a cancellation.
///
/// # Errors
/// `invalid_spec`
pub(super) fn check_reason(reason: Option<&str>) -> Result<(), ApiError> {
    let length = reason.map_or(0, str::len);
    if length <= NOTE_LEN_MAX {
        return Ok(());
    }
    let wrong = format!("has {length} bytes: expected at most {NOTE_LEN_MAX}");
    Err(ApiError::invalid_fields(vec![super::problem::field_error("reason", &wrong)]))
}

fn cancelled(id: JobId, status: JobStatus) -> Result<Response, ApiError> {
    let code = if status.is_final() { StatusCode::OK } else { StatusCode::ACCEPTED };
    Ok((code, Json(CancelledJob { id, status })).into_response())
}

/// Cancels a job, and returns its status.
///
/// # Errors
/// `job_not_found`; `job_ended` unless it is already cancelled.
pub(super) async fn cancel(
    api: &Api,
    actor: &Actor,
    id: JobId,
    reason: Option<&str>,
) -> Result<JobStatus, ApiError> {
    rows::check_job(api, actor, id).await?;
    let (name, reason) = (Arc::clone(&actor.name), reason.map(Box::from));
    match api.node.request(|ticket| Input::Cancel { ticket, job: id, actor: name, reason }).await {
        Ok(Reply::Cancelling { status, .. }) => Ok(status),
        Ok(other) => Err(unexpected(&other)),
        Err(RequestError::Refused(Refusal::JobNotLive { .. })) => {
            let row = rows::job(api, actor, id).await?;
            match row.state.status {
                JobStatus::Cancelled => Ok(JobStatus::Cancelled),
                _ => Err(ended("cancel", &row)),
            }
        }
        Err(error) => Err(error.into()),
    }
}

/// Retry an ended job
///
/// Creates a new job with the same spec, without its start time, its upstream jobs and its idempotency key. `retry_of` of the new job
/// names the old one.
#[utoipa::path(post, path = "/api/v1/jobs/{id}/retry", tag = "jobs",
    params(
        ("id" = JobId, Path),
        ("Idempotency-Key" = Option<String>, Header, description = "Key that makes a repeated request safe; kept for 7 days"),
    ),
    responses(
        (status = 201, description = "The new job", body = SubmittedJob, headers(
            ("Location" = String, description = "The new job"),
            ("ETag" = String, description = "Version of the resource"),
        )),
        (status = 200, description = "An earlier request with the same idempotency key created the job", body = SubmittedJob),
    )
)]
async fn retry_job(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<JobId>,
    IdempotencyKey(key): IdempotencyKey,
) -> Result<Response, ApiError> {
    api.shared.limits.charge(&actor, &caller, 1)?;
    one_submitted(retry(&api, &actor, &rows::job(&api, &actor, id).await?, key).await?)
}

/// Submits the job that repeats an ended one.
///
/// # Errors
/// The refusals of [`retry_job`].
pub(super) async fn retry(
    api: &Api,
    actor: &Actor,
    row: &JobRow,
    key: Option<String>,
) -> Result<Vec<SubmittedJob>, ApiError> {
    let (id, status) = (row.id, row.state.status);
    if !status.is_final() {
        let detail = format!("cannot retry job `{id}`: it has not ended yet (`{status}`)");
        return Err(ApiError::new(Code::JobNotEnded, detail));
    }
    if let Some(replica) = &row.replica {
        return Err(RequestError::Refused(Refusal::JobOfService {
            job: id,
            name: Arc::clone(&replica.name),
        })
        .into());
    }
    let now = SystemClock.now();
    let mut spec = JobSpec { run_at: None, after: Vec::new(), idempotency_key: key, ..convert::spec(row)? };
    // A deadline that is a time belongs to the ended job; one that is a duration counts from the retry.
    spec.finish_by = spec.finish_by.filter(|by| by.at.is_none());
    let mut job = submit::new_job(spec, Some(id), actor, now).map_err(ApiError::invalid_fields)?;
    if let Some(origin) = &row.origin {
        // Still a run of its schedule, and counted for its overlap policy.
        let origin =
            Origin { cause: FiringCause::Retry, backfill: None, start_by: None, ..Origin::clone(origin) };
        job.head = Arc::new(JobHead { origin: Some(Arc::new(origin)), ..JobHead::clone(&job.head) });
    }
    secrets::check_references(api, std::iter::once((String::new(), job.head.spec.as_ref()))).await?;
    upstream::submit(api, vec![job], false).await
}

/// Status transitions of a job.
#[derive(Serialize, ToSchema)]
struct JobEvents {
    /// Every transition, oldest first.
    items: Vec<JobEvent>,
}

/// List the status transitions of a job
#[utoipa::path(get, path = "/api/v1/jobs/{id}/events", tag = "jobs", params(("id" = JobId, Path)), responses(
    (status = 200, description = "All transitions, oldest first", body = JobEvents),
))]
async fn get_job_events(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Path(id): Path<JobId>,
) -> Result<Json<JobEvents>, ApiError> {
    let row = rows::job(&api, &actor, id).await?;
    Ok(Json(JobEvents { items: row.state.history.iter().map(convert::job_event).collect() }))
}

/// Download the last checkpoint of a job
///
/// Returns the bytes that the task saved; the next execution of the job resumes from them. The field `checkpoint` of
/// the job has version, size, content type and time.
#[utoipa::path(get, path = "/api/v1/jobs/{id}/checkpoint", tag = "jobs", params(("id" = JobId, Path)),
    responses((status = 200, description = "The checkpoint", body = Vec<u8>, content_type = "application/octet-stream",
        headers(("ETag" = String, description = "Version of the checkpoint"))))
)]
async fn get_checkpoint(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Path(id): Path<JobId>,
) -> Result<Response, ApiError> {
    rows::check_job(&api, &actor, id).await?;
    let Some(record) = api.node.store().checkpoint(id).await? else {
        rows::job(&api, &actor, id).await?;
        return Err(ApiError::new(Code::CheckpointNotFound, format!("job `{id}` has no checkpoint")));
    };
    let headers = [
        // Never a type that a browser displays: a task wrote it, and it would run with the origin of this server.
        (CONTENT_TYPE, HeaderValue::from_static(model::checkpoint::BYTES)),
        (CONTENT_DISPOSITION, HeaderValue::from_static("attachment; filename=\"checkpoint\"")),
        (ETAG, etag(record.version)),
    ];
    Ok((headers, record.data.to_vec()).into_response())
}

/// Explain why a job is waiting, or why it ended as it did
///
/// For a waiting job: all waiting reasons, and for each worker why it is not eligible. The answer comes from the code
/// that places jobs. An ended job has no waiting reasons; see its result.
#[utoipa::path(get, path = "/api/v1/jobs/{id}/why", tag = "jobs", params(("id" = JobId, Path)), responses(
    (status = 200, description = "The explanation", body = Why),
))]
async fn explain_job(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Path(id): Path<JobId>,
) -> Result<Json<Why>, ApiError> {
    rows::check_job(&api, &actor, id).await?;
    match api.node.request(|ticket| Input::Why { ticket, job: id }).await {
        Ok(Reply::Why(why)) => Ok(Json(*why)),
        Ok(other) => Err(unexpected(&other)),
        Err(RequestError::Refused(Refusal::JobNotLive { .. })) => {
            let row = rows::job(&api, &actor, id).await?;
            Ok(Json(Why::ended(id, row.state.status)))
        }
        Err(error) => Err(error.into()),
    }
}
