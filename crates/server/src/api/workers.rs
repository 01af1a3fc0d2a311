//! Workers: list, show, cordon, drain, delete.

use std::collections::BTreeMap;

use axum::extract::State;
use axum::http::StatusCode;
use axum::{Extension, Json};
use engine::output::WorkerView;
use engine::{Input, Reply};
use model::WorkerId;
use model::api::{List, Worker};
use model::record::WorkerRecord;
use model::worker::{Admission, WorkerStatus};
use serde::Deserialize;
use utoipa_axum::routes;

use super::extract::{Labels, Many, Params, Path};
use super::problem::{ApiError, Code};
use super::requests::{deleted, unexpected};
use super::routes::Routes;
use super::{Api, convert, page};
use crate::auth::{Actor, Resource, Verb};

pub(super) fn routes(routes: &mut Routes) {
    let workers = Resource::Workers;
    routes.needs(Verb::Read, workers, &[Code::InvalidCursor], routes!(list_workers));
    routes.of_leader();
    routes.needs(Verb::Read, workers, &[Code::WorkerNotFound], routes!(get_worker));
    routes.of_leader();
    routes.needs(Verb::Operate, workers, &[Code::WorkerNotFound], routes!(cordon_worker));
    routes.needs(Verb::Operate, workers, &[Code::WorkerNotFound], routes!(uncordon_worker));
    routes.needs(Verb::Operate, workers, &[Code::WorkerNotFound], routes!(drain_worker));
    routes.needs(
        Verb::Delete,
        workers,
        &[Code::WorkerNotFound, Code::WorkerConnected],
        routes!(delete_worker),
    );
}

#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
struct ListWorkersParams {
    /// Statuses to list, separated by commas.
    #[param(value_type = Option<String>, example = "lost,expected")]
    status: Many<WorkerStatus>,
    /// Admissions to list, separated by commas.
    #[param(value_type = Option<String>, example = "cordoned,draining")]
    admission: Many<Admission>,
    /// Only workers with this label, as `KEY=VALUE`; repeat to require several labels.
    #[param(value_type = Option<Vec<String>>)]
    label: Labels,
    /// Only workers whose name contains this text. Letter case is ignored.
    text: Option<String>,
    /// Maximum number of items on the page, from 1 to 1000 [default: 50]
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// `next_cursor` of the previous page.
    cursor: Option<String>,
}

/// Conditions for a list of workers; all of them must match.
#[derive(Debug)]
struct WorkerFilter {
    statuses: Vec<WorkerStatus>,
    admissions: Vec<Admission>,
    labels: BTreeMap<String, String>,
    /// In lower case.
    text: Option<String>,
}

impl WorkerFilter {
    fn matches(&self, record: &WorkerRecord) -> bool {
        (self.statuses.is_empty() || self.statuses.contains(&record.status))
            && (self.admissions.is_empty() || self.admissions.contains(&record.admission))
            && self.labels.iter().all(|(key, value)| record.labels.get(key) == Some(value))
            && self.text.as_ref().is_none_or(|text| record.name.to_lowercase().contains(text))
    }
}

/// List workers, newest first
#[utoipa::path(get, path = "/api/v1/workers", tag = "workers", params(ListWorkersParams), responses(
    (status = 200, description = "One page", body = List<Worker>),
))]
async fn list_workers(
    State(api): State<Api>,
    Params(params): Params<ListWorkersParams>,
) -> Result<Json<List<Worker>>, ApiError> {
    let limit = page::limit(params.limit)?;
    let filter = WorkerFilter {
        statuses: params.status.0,
        admissions: params.admission.0,
        labels: params.label.0,
        text: params.text.map(|text| text.to_lowercase()),
    };
    let after = api.shared.cursors.read::<WorkerId>("workers", &filter, params.cursor.as_deref())?;
    let mut records = api.node.store().workers().await?;
    records.retain(|record| after.is_none_or(|after| record.id < after) && filter.matches(record));
    records.sort_unstable_by_key(|record| std::cmp::Reverse(record.id));
    let more = records.len() > limit;
    records.truncate(limit);
    let last = records.last().filter(|_| more);
    let next_cursor = last.map(|record| api.shared.cursors.make("workers", &filter, &record.id.to_string()));
    let view = api.node.view();
    let items = records.into_iter().map(|record| {
        let seen = seen(&view.workers, record.id);
        convert::worker(record, seen)
    });
    Ok(Json(List { items: items.collect(), next_cursor }))
}

fn seen(workers: &[WorkerView], id: WorkerId) -> Option<&WorkerView> {
    workers.iter().find(|worker| worker.id == id)
}

/// Show a worker
#[utoipa::path(get, path = "/api/v1/workers/{id}", tag = "workers", params(("id" = WorkerId, Path)), responses(
    (status = 200, description = "The worker", body = Worker),
))]
async fn get_worker(State(api): State<Api>, Path(id): Path<WorkerId>) -> Result<Json<Worker>, ApiError> {
    let records = api.node.store().workers().await?;
    let record = records.into_iter().find(|record| record.id == id);
    let record =
        record.ok_or_else(|| ApiError::new(Code::WorkerNotFound, format!("worker `{id}` does not exist")))?;
    Ok(Json(convert::worker(record, seen(&api.node.view().workers, id))))
}

/// Cordon a worker
///
/// The worker gets no new jobs. Running jobs continue.
#[utoipa::path(post, path = "/api/v1/workers/{id}/cordon", tag = "workers", params(("id" = WorkerId, Path)), responses(
    (status = 200, description = "The updated worker", body = Worker),
))]
async fn cordon_worker(
    state: State<Api>,
    actor: Extension<Actor>,
    path: Path<WorkerId>,
) -> Result<Json<Worker>, ApiError> {
    admit(state, actor, path, Admission::Cordoned).await
}

/// Uncordon a worker
///
/// The worker gets jobs again. This also ends a drain.
#[utoipa::path(post, path = "/api/v1/workers/{id}/uncordon", tag = "workers", params(("id" = WorkerId, Path)), responses(
    (status = 200, description = "The updated worker", body = Worker),
))]
async fn uncordon_worker(
    state: State<Api>,
    actor: Extension<Actor>,
    path: Path<WorkerId>,
) -> Result<Json<Worker>, ApiError> {
    admit(state, actor, path, Admission::Open).await
}

/// Drain a worker
///
/// The worker gets no new jobs, and its running jobs are stopped and placed on other workers. No job uses up a retry
/// for this.
#[utoipa::path(post, path = "/api/v1/workers/{id}/drain", tag = "workers", params(("id" = WorkerId, Path)), responses(
    (status = 200, description = "The updated worker", body = Worker),
))]
async fn drain_worker(
    state: State<Api>,
    actor: Extension<Actor>,
    path: Path<WorkerId>,
) -> Result<Json<Worker>, ApiError> {
    admit(state, actor, path, Admission::Draining).await
}

async fn admit(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Path(id): Path<WorkerId>,
    admission: Admission,
) -> Result<Json<Worker>, ApiError> {
    match api.node.request(|ticket| Input::SetAdmission { ticket, worker: id, admission }).await? {
        Reply::Worker => {
            tracing::info!(worker_id = %id, ?admission, by = %actor.name, "worker admission changed");
            get_worker(State(api), Path(id)).await
        }
        other => Err(unexpected(&other)),
    }
}

/// Delete a lost worker
#[utoipa::path(delete, path = "/api/v1/workers/{id}", tag = "workers", params(("id" = WorkerId, Path)), responses(
    (status = 204, description = "Deleted"),
))]
async fn delete_worker(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Path(id): Path<WorkerId>,
) -> Result<StatusCode, ApiError> {
    let reply = api.node.request(|ticket| Input::RemoveWorker { ticket, worker: id }).await?;
    let status = deleted(&reply)?;
    tracing::info!(worker_id = %id, by = %actor.name, "worker removed");
    Ok(status)
}
