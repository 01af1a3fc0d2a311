//! Lookup of rows by the id or the name in a path, or a refusal that names the missing object.
//!
//! Handlers use these functions wherever a missing row is a 404, so that every route has the same code and text. A name
//! is looked up in one namespace; an id needs none.

use model::calendar::{CalendarRecord, CalendarSpec};
use model::spec::DEFAULT;
use model::{BackfillId, ExecutionId, JobId, RunId, ScheduleId, WorkflowId};
use serde::Deserialize;
use store::query::{BackfillRow, ExecutionRow, JobRow, RunRow, ScheduleRow, WorkflowRow};
use timetable::CalendarMap;

use super::Api;
use super::problem::{ApiError, Code, excerpt};

/// The namespace of the name in an address.
#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub(super) struct Scope {
    /// Namespace of the name [default: `default`]. Not needed with an id.
    namespace: Option<String>,
}

impl Scope {
    pub(super) fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }
}

pub(super) async fn job(api: &Api, id: JobId) -> Result<JobRow, ApiError> {
    let found = api.node.store().job(id).await?;
    found.ok_or_else(|| ApiError::new(Code::JobNotFound, format!("job `{id}` does not exist")))
}

pub(super) async fn execution(api: &Api, id: ExecutionId) -> Result<ExecutionRow, ApiError> {
    let found = api.node.store().execution(id).await?;
    found.ok_or_else(|| ApiError::new(Code::ExecutionNotFound, format!("execution `{id}` does not exist")))
}

/// Returns a run with its history.
pub(super) async fn run(api: &Api, id: RunId) -> Result<RunRow, ApiError> {
    let found = api.node.store().run(id).await?;
    found.ok_or_else(|| ApiError::new(Code::RunNotFound, format!("run `{id}` does not exist")))
}

pub(super) async fn backfill(api: &Api, id: BackfillId) -> Result<BackfillRow, ApiError> {
    let found = api.node.store().backfill(id).await?;
    found.ok_or_else(|| ApiError::new(Code::BackfillNotFound, format!("backfill `{id}` does not exist")))
}

/// Returns the schedule with this id or name.
pub(super) async fn schedule(
    api: &Api,
    name: &str,
    namespace: Option<&str>,
) -> Result<ScheduleRow, ApiError> {
    let store = api.node.store();
    let namespace = namespace.unwrap_or(DEFAULT);
    let (found, detail) = match name.parse::<ScheduleId>() {
        Ok(id) => (store.schedule(id).await?, format!("schedule `{id}` does not exist")),
        Err(_) => (store.schedule_named(namespace, name).await?, none_of("schedule", name, namespace)),
    };
    found.ok_or_else(|| ApiError::new(Code::ScheduleNotFound, detail))
}

/// Returns the workflow with this id or name.
pub(super) async fn workflow(
    api: &Api,
    name: &str,
    namespace: Option<&str>,
) -> Result<WorkflowRow, ApiError> {
    let store = api.node.store();
    let namespace = namespace.unwrap_or(DEFAULT);
    let (found, detail) = match name.parse::<WorkflowId>() {
        Ok(id) => (store.workflow(id).await?, format!("workflow `{id}` does not exist")),
        Err(_) => (store.workflow_named(namespace, name).await?, none_of("workflow", name, namespace)),
    };
    found.ok_or_else(|| ApiError::new(Code::WorkflowNotFound, detail))
}

/// Returns the calendar with this name; the built-in calendars have no row.
pub(super) async fn calendar(api: &Api, name: &str, namespace: &str) -> Result<CalendarRecord, ApiError> {
    let found = api.node.store().calendar(namespace, name).await?;
    found.ok_or_else(|| no_calendar(name, namespace))
}

pub(super) fn no_calendar(name: &str, namespace: &str) -> ApiError {
    ApiError::new(Code::CalendarNotFound, none_of("calendar", name, namespace))
}

/// Returns all calendars of a namespace, compiled.
pub(super) async fn calendars(api: &Api, namespace: &str) -> Result<CalendarMap, ApiError> {
    let records = api.node.store().calendars(Some(namespace)).await?;
    let specs: Vec<CalendarSpec> = records.into_iter().map(|record| record.spec).collect();
    Ok(CalendarMap::compile(&specs).0)
}

fn none_of(kind: &str, name: &str, namespace: &str) -> String {
    format!("{kind} `{}` does not exist in namespace `{}`", excerpt(name), excerpt(namespace))
}
