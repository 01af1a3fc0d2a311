//! Lookup of rows by the id or the name in a path, or a refusal that names the missing object.
//!
//! Handlers use these functions wherever a missing row is a 404, so that every route has the same code and text. A name
//! is looked up in one namespace; an id needs none.
//!
//! Each lookup checks the right of the caller in the namespace of the row. If the caller may not even read it, the
//! answer is that of a row that does not exist.

use model::calendar::{CalendarRecord, CalendarSpec};
use model::spec::DEFAULT;
use model::{BackfillId, ExecutionId, JobId, RunId, ScheduleId, ServiceId, WorkflowId};
use serde::Deserialize;
use store::query::{BackfillRow, ExecutionRow, JobRow, RunRow, ScheduleRow, ServiceRow, WorkflowRow};
use timetable::CalendarMap;

use super::problem::{ApiError, Code, excerpt};
use super::{Api, convert};
use crate::auth::Actor;

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

/// Checks the right of the caller to a row in this namespace.
///
/// # Errors
/// `missing` if the caller may not read the row; `forbidden` if it may only read it.
pub(super) fn permit(
    actor: &Actor,
    namespace: &str,
    missing: impl FnOnce() -> ApiError,
) -> Result<(), ApiError> {
    match actor.check(namespace) {
        Ok(()) => Ok(()),
        Err(denied) if actor.can_read(namespace) => Err(denied.into()),
        Err(_) => {
            actor.note().is_denied();
            Err(missing())
        }
    }
}

pub(super) async fn job(api: &Api, actor: &Actor, id: JobId) -> Result<JobRow, ApiError> {
    let missing = || ApiError::new(Code::JobNotFound, format!("job `{id}` does not exist"));
    let row = api.node.store().job(id).await?.ok_or_else(missing)?;
    if actor.needs_namespace() {
        permit(actor, &convert::job(&row)?.namespace, missing)?;
    }
    Ok(row)
}

/// Checks the right of the caller to a job. Costs nothing if the caller may read it in all namespaces.
pub(super) async fn check_job(api: &Api, actor: &Actor, id: JobId) -> Result<(), ApiError> {
    if !actor.needs_namespace() {
        return Ok(());
    }
    job(api, actor, id).await.map(drop)
}

pub(super) async fn execution(api: &Api, actor: &Actor, id: ExecutionId) -> Result<ExecutionRow, ApiError> {
    let missing = || ApiError::new(Code::ExecutionNotFound, format!("execution `{id}` does not exist"));
    let row = api.node.store().execution(id).await?.ok_or_else(missing)?;
    permit(actor, &row.namespace, missing)?;
    Ok(row)
}

/// Returns a run with its history.
pub(super) async fn run(api: &Api, actor: &Actor, id: RunId) -> Result<RunRow, ApiError> {
    let missing = || ApiError::new(Code::RunNotFound, format!("run `{id}` does not exist"));
    let row = api.node.store().run(id).await?.ok_or_else(missing)?;
    permit(actor, &row.head.definition.workflow.namespace, missing)?;
    Ok(row)
}

/// Checks the right of the caller to a run. Costs nothing if the caller may read it in all namespaces.
pub(super) async fn check_run(api: &Api, actor: &Actor, id: RunId) -> Result<(), ApiError> {
    if !actor.needs_namespace() {
        return Ok(());
    }
    run(api, actor, id).await.map(drop)
}

/// Returns a backfill. The namespace of a deleted schedule is unknown: only a caller with the right in all namespaces
/// finds its backfills.
pub(super) async fn backfill(api: &Api, actor: &Actor, id: BackfillId) -> Result<BackfillRow, ApiError> {
    let missing = || ApiError::new(Code::BackfillNotFound, format!("backfill `{id}` does not exist"));
    let store = api.node.store();
    let row = store.backfill(id).await?.ok_or_else(missing)?;
    if actor.needs_namespace() {
        match store.schedule(row.head.schedule).await? {
            Some(schedule) => permit(actor, &convert::schedule_spec(&schedule)?.namespace, missing)?,
            None if actor.is_unrestricted() => {}
            None => return Err(missing()),
        }
    }
    Ok(row)
}

/// Returns the schedule with this id or name.
pub(super) async fn schedule(
    api: &Api,
    actor: &Actor,
    name: &str,
    namespace: Option<&str>,
) -> Result<ScheduleRow, ApiError> {
    let store = api.node.store();
    let namespace = namespace.unwrap_or(DEFAULT);
    let (found, detail) = match name.parse::<ScheduleId>() {
        Ok(id) => (store.schedule(id).await?, format!("schedule `{id}` does not exist")),
        Err(_) => (store.schedule_named(namespace, name).await?, none_of("schedule", name, namespace)),
    };
    let missing = || ApiError::new(Code::ScheduleNotFound, detail.clone());
    let row = found.ok_or_else(missing)?;
    if actor.needs_namespace() {
        permit(actor, &convert::schedule_spec(&row)?.namespace, missing)?;
    }
    Ok(row)
}

/// Returns the workflow with this id or name.
pub(super) async fn workflow(
    api: &Api,
    actor: &Actor,
    name: &str,
    namespace: Option<&str>,
) -> Result<WorkflowRow, ApiError> {
    let store = api.node.store();
    let namespace = namespace.unwrap_or(DEFAULT);
    let (found, detail) = match name.parse::<WorkflowId>() {
        Ok(id) => (store.workflow(id).await?, format!("workflow `{id}` does not exist")),
        Err(_) => (store.workflow_named(namespace, name).await?, none_of("workflow", name, namespace)),
    };
    let missing = || ApiError::new(Code::WorkflowNotFound, detail.clone());
    let row = found.ok_or_else(missing)?;
    permit(actor, &row.head.spec.namespace, missing)?;
    Ok(row)
}

/// Returns the service with this id or name.
pub(super) async fn service(
    api: &Api,
    actor: &Actor,
    name: &str,
    namespace: Option<&str>,
) -> Result<ServiceRow, ApiError> {
    let store = api.node.store();
    let namespace = namespace.unwrap_or(DEFAULT);
    let (found, detail) = match name.parse::<ServiceId>() {
        Ok(id) => (store.service(id).await?, format!("service `{id}` does not exist")),
        Err(_) => (store.service_named(namespace, name).await?, none_of("service", name, namespace)),
    };
    let missing = || ApiError::new(Code::ServiceNotFound, detail.clone());
    let row = found.ok_or_else(missing)?;
    permit(actor, &row.head.spec.namespace, missing)?;
    Ok(row)
}

/// Returns the calendar with this name; the built-in calendars have no row.
pub(super) async fn calendar(
    api: &Api,
    actor: &Actor,
    name: &str,
    namespace: &str,
) -> Result<CalendarRecord, ApiError> {
    let missing = || no_calendar(name, namespace);
    permit(actor, namespace, missing)?;
    api.node.store().calendar(namespace, name).await?.ok_or_else(missing)
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
