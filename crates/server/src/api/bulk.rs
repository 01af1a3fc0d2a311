//! Changes of many jobs with one request: cancel, retry, update.
//!
//! A request lists jobs, or gives conditions like those of a list. It handles one page of them, newest page first, and
//! returns a cursor for the rest, so that no request runs for long and a client can show progress and continue after
//! an interruption. Within a page, the jobs are handled from the oldest to the newest, so that retried jobs keep their
//! order. Jobs that are created meanwhile are newer than the first page, and so are not selected.
//!
//! Each job is changed by the same function as in a request for one job. A refusal concerns one job and is returned
//! with the others of its code. A temporary failure of the server ends the page, and the client repeats it.
//!
//! # Cost
//! One query for each page, and one input to the engine for each job. The engine commits many inputs at once, because
//! [`CONCURRENT`] of them wait together.

use std::collections::BTreeMap;

use axum::extract::State;
use axum::{Extension, Json};
use futures::StreamExt;
use model::api::{
    BULK_JOBS_MAX, CancelJobs, ChangedJob, ChangedJobs, FieldError, JobSelection, RefusedJobs, RetryJobs,
    UpdateJobs,
};
use model::limits::{BODY_BYTES_MAX, KEY_LEN_MAX};
use model::{JobId, JobStatus};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use store::query::{JobFilter, JobRow, Page};
use tokio::sync::Semaphore;
use utoipa_axum::routes;

use super::extract::{Params, RawBody};
use super::headers::{IdempotencyKey, Precondition};
use super::limits::Caller;
use super::page::Selection;
use super::problem::{ApiError, Code, field_error};
use super::routes::Routes;
use super::{Api, jobs, page};
use crate::auth::{Actor, Resource, Verb};

/// Number of jobs that all requests change at the same time, so that they leave room for the requests of others.
static INPUTS: Semaphore = Semaphore::const_new(1_024);
/// Length of the ID of a job, in bytes.
const JOB_ID_LEN: usize = 30;
/// Idempotency key of retries without a key of the client, so that a repeated request retries no job twice.
const RETRY_KEY: &str = "retry-of";
/// Number of jobs of a page that are changed at the same time.
const CONCURRENT: usize = 256;

pub(super) fn routes(routes: &mut Routes) {
    let jobs = Resource::Jobs;
    let refusals = [Code::InvalidCursor, Code::InvalidSpec, Code::QueryTooSlow, Code::UnsupportedMediaType];
    routes.needs(Verb::Operate, jobs, &refusals, routes!(cancel_jobs));
    let retry_refusals = [&refusals[..], &[Code::InvalidHeader, Code::SubmitRate]].concat();
    routes.needs(Verb::Operate, jobs, &retry_refusals, routes!(retry_jobs));
    routes.needs(Verb::Change, jobs, &refusals, routes!(update_jobs));
}

#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
struct BulkParams {
    /// Whether to return the selected jobs only, without changing them [default: false]
    dry_run: bool,
    /// Maximum number of jobs to handle, from 1 to 1000 [default: 1000]
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// `next_cursor` of the previous response.
    cursor: Option<String>,
}

/// Cancel many jobs
///
/// Each job is cancelled as with `POST /api/v1/jobs/{id}/cancel`. Repeat the request with `cursor` until the response
/// has no `next_cursor`.
#[utoipa::path(post, path = "/api/v1/jobs/cancel", tag = "jobs", params(BulkParams),
    request_body(content(
        (CancelJobs = "application/json", example = json!({"jobs": {"status": ["waiting"], "queue": "import"}, "reason": "wrong input"})),
        (CancelJobs = "application/yaml"),
    )),
    responses((status = 200, description = "The cancelled jobs, and those that were refused", body = ChangedJobs))
)]
async fn cancel_jobs(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Params(params): Params<BulkParams>,
    body: RawBody<BODY_BYTES_MAX>,
) -> Result<Json<ChangedJobs>, ApiError> {
    let CancelJobs { jobs, reason } = parse(&body)?;
    jobs::check_reason(reason.as_deref())?;
    handle(&api, &actor, &Action::Cancel { reason }, jobs, &params).await
}

/// Retry many jobs
///
/// Each job is retried as with `POST /api/v1/jobs/{id}/retry`. Repeat the request with `cursor` until the response has
/// no `next_cursor`. A repeated request does not retry a job again while the server keeps idempotency keys, unless it
/// has another `Idempotency-Key`.
#[utoipa::path(post, path = "/api/v1/jobs/retry", tag = "jobs",
    params(BulkParams, ("Idempotency-Key" = Option<String>, Header, description = "Key of the retries, if the jobs may have been retried before; kept for 7 days")),
    request_body(content(
        (RetryJobs = "application/json", example = json!({"jobs": {"status": ["failed"], "name": "sync-crm", "created_after": "2026-10-01T00:00:00Z"}})),
        (RetryJobs = "application/yaml"),
    )),
    responses((status = 200, description = "The retried jobs with their new jobs, and those that were refused", body = ChangedJobs))
)]
async fn retry_jobs(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Extension(caller): Extension<Caller>,
    Params(params): Params<BulkParams>,
    IdempotencyKey(key): IdempotencyKey,
    body: RawBody<BODY_BYTES_MAX>,
) -> Result<Json<ChangedJobs>, ApiError> {
    let RetryJobs { jobs } = parse(&body)?;
    let action = Action::Retry { key, caller };
    handle(&api, &actor, &action, jobs, &params).await
}

/// Change many jobs that have not started
///
/// The patch is applied to each job as with `PATCH /api/v1/jobs/{id}`. Repeat the request with `cursor` until the
/// response has no `next_cursor`.
#[utoipa::path(post, path = "/api/v1/jobs/update", tag = "jobs", params(BulkParams),
    request_body(content(
        (UpdateJobs = "application/json", example = json!({"jobs": {"queue": "import"}, "patch": {"priority": 80}})),
        (UpdateJobs = "application/yaml"),
    )),
    responses((status = 200, description = "The changed jobs, and those that were refused", body = ChangedJobs))
)]
async fn update_jobs(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Params(params): Params<BulkParams>,
    body: RawBody<BODY_BYTES_MAX>,
) -> Result<Json<ChangedJobs>, ApiError> {
    let UpdateJobs { jobs, patch } = parse(&body)?;
    if patch.is_empty() {
        let wrong = "is empty: expected at least one field of a job";
        return Err(ApiError::invalid_fields(vec![field_error("patch", wrong)]));
    }
    handle(&api, &actor, &Action::Update { patch: patch.into() }, jobs, &params).await
}

fn changed_job(id: JobId) -> ChangedJob {
    ChangedJob { id, retried_as: None, already_retried: false }
}

fn parse<T: DeserializeOwned>(body: &RawBody<BODY_BYTES_MAX>) -> Result<T, ApiError> {
    body.format.parse(&body.bytes)
}

/// What a request does to each job.
enum Action {
    Cancel { reason: Option<String> },
    Retry { key: Option<String>, caller: Caller },
    Update { patch: Value },
}

impl Action {
    /// Name of the list of jobs, in cursors.
    fn list(&self) -> &'static str {
        match self {
            Self::Cancel { .. } => "cancel-jobs",
            Self::Retry { .. } => "retry-jobs",
            Self::Update { .. } => "update-jobs",
        }
    }

    /// Statuses of the jobs that conditions select if they name no status.
    fn default_statuses(&self) -> &'static [JobStatus] {
        use JobStatus::{Expired, Failed, Ready, Retrying, Running, Waiting};
        match self {
            Self::Cancel { .. } => &[Ready, Waiting, Running, Retrying],
            Self::Retry { .. } => &[Failed, Expired],
            Self::Update { .. } => &[Ready, Waiting],
        }
    }

    /// Whether the action can succeed for a job with this status.
    fn applies_to(&self, status: JobStatus) -> bool {
        match self {
            Self::Retry { .. } => status.is_final(),
            Self::Cancel { .. } | Self::Update { .. } => self.default_statuses().contains(&status),
        }
    }

    /// Changes one job.
    async fn apply(&self, api: &Api, actor: &Actor, row: &JobRow) -> Result<ChangedJob, ApiError> {
        let mut changed = changed_job(row.id);
        match self {
            Self::Cancel { reason } => {
                jobs::cancel(api, actor, row.id, reason.as_deref()).await?;
            }
            Self::Retry { key, .. } => {
                let key = format!("{}/{}", key.as_deref().unwrap_or(RETRY_KEY), row.id);
                if let Some(new) = jobs::retry(api, actor, row, Some(key)).await?.first() {
                    (changed.retried_as, changed.already_retried) = (Some(new.id), !new.created);
                }
            }
            Self::Update { patch } => {
                jobs::apply_patch(api, actor, row.id, &Precondition::None, patch).await?;
            }
        }
        Ok(changed)
    }

    /// Reads one page of the selected jobs.
    async fn select(
        &self,
        api: &Api,
        actor: &Actor,
        selection: JobSelection,
        params: &BulkParams,
    ) -> Result<Selected, ApiError> {
        let limit = page::limit(params.limit.or(Some(BULK_JOBS_MAX)))?;
        if let Some(wrong) = self.invalid_key() {
            return Err(wrong);
        }
        let filter = self.filter(selection).map_err(|wrong| ApiError::invalid_fields(vec![wrong]))?;
        // All listed jobs are in one page, so that the response names those that do not exist.
        let limit = if filter.ids.is_empty() { limit } else { BULK_JOBS_MAX as usize };
        let cursors = &api.shared.cursors;
        let after = cursors.read::<JobId>(self.list(), &filter, params.cursor.as_deref())?;
        let namespaces = Selection::of(actor, filter.namespace.as_deref())?;
        let mut page = jobs::select(api, &namespaces, &filter, Page { after, limit }).await?;
        let last = page.items.last().filter(|_| page.more);
        let next_cursor = last.map(|row| cursors.make(self.list(), &filter, &row.id.to_string()));
        page.items.reverse();
        let missing = missing(&filter.ids, &page.items);
        let again = filter.ids.is_empty().then(|| {
            let before = after.unwrap_or(JobId::from_bits(u128::MAX));
            cursors.make(self.list(), &filter, &before.to_string())
        });
        Ok(Selected { rows: page.items, missing, next_cursor, again })
    }

    /// Returns what is wrong with the idempotency key, to which the ID of each job is added.
    fn invalid_key(&self) -> Option<ApiError> {
        let Self::Retry { key: Some(key), .. } = self else { return None };
        let max = KEY_LEN_MAX - JOB_ID_LEN - 1;
        let detail = format!("`Idempotency-Key` has {} bytes: expected at most {max}", key.len());
        (key.len() > max).then(|| ApiError::new(Code::InvalidHeader, detail))
    }

    /// Returns why the action cannot succeed for a job in this status.
    fn refusal(&self, row: &JobRow) -> Option<ApiError> {
        let status = row.state.status;
        if self.applies_to(status) || matches!((self, status), (Self::Cancel { .. }, JobStatus::Cancelled)) {
            return None;
        }
        let (code, why) = match self {
            Self::Retry { .. } => (Code::JobNotEnded, "it has not ended yet"),
            _ if status.is_final() => (Code::JobEnded, "it has already ended"),
            _ => (Code::JobStarted, "it has started"),
        };
        let verb = match self {
            Self::Cancel { .. } => "cancel",
            Self::Retry { .. } => "retry",
            Self::Update { .. } => "change",
        };
        Some(ApiError::new(code, format!("cannot {verb} job `{}`: {why} (`{status}`)", row.id)))
    }

    /// Checks one job without changing it.
    fn check(&self, row: &JobRow) -> Result<ChangedJob, ApiError> {
        if let Some(refusal) = self.refusal(row) {
            return Err(refusal);
        }
        if let Self::Update { patch } = self {
            jobs::patched(row, patch)?;
        }
        Ok(changed_job(row.id))
    }

    fn filter(&self, selection: JobSelection) -> Result<JobFilter, FieldError> {
        let listed = JobSelection::of(selection.ids.iter().copied());
        if selection == JobSelection::default() {
            return Err(field_error("jobs", "selects no jobs: expected `ids`, or at least one condition"));
        }
        // Every name contains the empty text, so it would select all jobs.
        if selection.text.as_deref() == Some("") {
            return Err(field_error("jobs.text", "is empty"));
        }
        if !listed.ids.is_empty() && selection != listed {
            return Err(field_error("jobs.ids", "cannot be combined with conditions"));
        }
        let max = BULK_JOBS_MAX as usize;
        if listed.ids.len() > max {
            let wrong = format!("has {} entries: expected at most {max}", listed.ids.len());
            return Err(field_error("jobs.ids", &wrong));
        }
        if let Some(at) = selection.status.iter().position(|status| !self.applies_to(*status)) {
            let known: Vec<_> = JobStatus::ALL.iter().filter(|status| self.applies_to(**status)).collect();
            let known: Vec<_> = known.iter().map(|status| status.as_str()).collect();
            let wrong = format!("does not apply: expected one of {}", known.join(", "));
            return Err(field_error(&format!("jobs.status[{at}]"), &wrong));
        }
        let statuses = match (listed.ids.is_empty(), selection.status.is_empty()) {
            (true, true) => self.default_statuses().to_vec(),
            _ => selection.status,
        };
        Ok(JobFilter {
            ids: listed.ids,
            statuses,
            namespace: page::namespace(selection.namespace),
            owner: selection.owner,
            queue: selection.queue,
            name: selection.name,
            text: selection.text,
            labels: selection.labels,
            worker: selection.worker_id,
            created_after: selection.created_after,
            created_before: selection.created_before,
            schedule: selection.schedule,
            backfill: selection.backfill,
            run: selection.run,
            workflow: selection.workflow,
            service: selection.service,
        })
    }
}

/// Returns the listed jobs that do not exist.
fn missing(ids: &[JobId], found: &[JobRow]) -> Vec<JobId> {
    let is_found = |id: &JobId| found.binary_search_by_key(id, |row| row.id).is_ok();
    ids.iter().copied().filter(|id| !is_found(id)).collect()
}

/// One page of the jobs of a request.
#[derive(Debug)]
struct Selected {
    /// From the oldest to the newest.
    rows: Vec<JobRow>,
    /// Listed jobs that do not exist.
    missing: Vec<JobId>,
    next_cursor: Option<String>,
    /// Cursor of this page; `None` for listed jobs.
    again: Option<String>,
}

/// Handles one page of the selected jobs.
///
/// If the server fails in the middle of a page, the response has the jobs that were changed, and continues with the same
/// page: jobs that were changed are not selected again, or changed to what they are.
///
/// # Errors
/// Errors of the selection. An error that concerns the server and not a job, such as `loading` or `storage_full`, if no
/// job was changed before it.
async fn handle(
    api: &Api,
    actor: &Actor,
    action: &Action,
    jobs: JobSelection,
    params: &BulkParams,
) -> Result<Json<ChangedJobs>, ApiError> {
    let Selected { rows, missing, next_cursor, again } = action.select(api, actor, jobs, params).await?;
    let mut refused = Refusals::default();
    for id in missing {
        refused.add(id, &ApiError::new(Code::JobNotFound, format!("job `{id}` does not exist")));
    }
    let mut changed = Vec::with_capacity(rows.len());
    if params.dry_run {
        actor.note().is_read();
        for row in &rows {
            match action.check(row) {
                Ok(job) => changed.push(job),
                Err(error) => refused.add(row.id, &error),
            }
        }
        return Ok(Json(ChangedJobs { changed, refused: refused.into_groups(), next_cursor }));
    }
    if let Action::Retry { caller, .. } = action {
        // Refuses a client that has created too many jobs; the new ones are counted below.
        api.shared.limits.charge(actor, caller, 0)?;
    }
    let changes = rows.into_iter().map(|row| async move {
        let _permit = INPUTS.acquire().await;
        let result = action.apply(api, actor, &row).await;
        (row.id, result)
    });
    let mut results = futures::stream::iter(changes).buffered(CONCURRENT);
    let mut failed = Vec::new();
    while let Some((id, result)) = results.next().await {
        match result {
            Ok(job) => changed.push(job),
            Err(error) if concerns_server(error.code()) => failed.push((id, error)),
            Err(error) => refused.add(id, &error),
        }
        if !failed.is_empty() && again.is_some() {
            break;
        }
    }
    drop(results);
    if let Action::Retry { caller, .. } = action {
        let created = changed.iter().filter(|job| !job.already_retried).count();
        // The jobs exist, so the client pays for them with its next request.
        let _ = api.shared.limits.charge(actor, caller, created);
    }
    let next_cursor = match failed.pop() {
        Some((_, error)) if changed.is_empty() => return Err(error),
        Some((id, error)) => {
            for (id, error) in failed.into_iter().chain([(id, error)]).filter(|_| again.is_none()) {
                refused.add(id, &error);
            }
            again
        }
        None => next_cursor,
    };
    actor.note().affected(changed.len());
    if let (Action::Update { patch }, false) = (action, changed.is_empty()) {
        actor.note().changed("patch", None, Some(patch));
    }
    Ok(Json(ChangedJobs { changed, refused: refused.into_groups(), next_cursor }))
}

/// Whether an error has its cause in the server or the client's limits, so that it would meet the other jobs as well.
fn concerns_server(code: Code) -> bool {
    code.status() >= 500 || code.status() == 429
}

/// Refused jobs by code.
#[derive(Debug, Default)]
struct Refusals(BTreeMap<&'static str, RefusedJobs>);

impl Refusals {
    fn add(&mut self, id: JobId, error: &ApiError) {
        let code = error.code().as_str();
        let group = self.0.entry(code).or_insert_with(|| RefusedJobs {
            code: code.to_owned(),
            detail: error.detail().to_owned(),
            jobs: Vec::new(),
        });
        group.jobs.push(id);
    }

    /// Returns the groups, the largest first.
    fn into_groups(self) -> Vec<RefusedJobs> {
        let mut groups: Vec<_> = self.0.into_values().collect();
        groups.sort_by_key(|group| std::cmp::Reverse(group.jobs.len()));
        groups
    }
}
