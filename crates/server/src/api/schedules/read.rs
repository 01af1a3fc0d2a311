//! Lists and details of schedules.
//!
//! A list is ordered by creation or by next firing, or has the schedules of given ids. Specs, health and newest runs
//! are optional parts, because they cost more than the row.
//!
//! # Cost
//! A page costs one query. Health costs two queries for each schedule, newest runs two more; [`LOOKUPS`] schedules are
//! read concurrently.

use std::cmp::Reverse;

use axum::extract::State;
use axum::http::header::ETAG;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use futures::{StreamExt, TryStreamExt};
use model::api::{Buffered, LastFiring, List, Schedule, ScheduleRun, ScheduleStatistics};
use model::firing::{RunStatistics, ScheduleState, ScheduleStatus};
use model::timing::{CalendarUnit, Rule, Timing};
use model::{ScheduleId, ScheduleSpec, Timestamp};
use serde::Deserialize;
use store::query::{JobFilter, JobRow, Page, Paged, RunFilter, RunRow, ScheduleFilter, ScheduleRow};
use utoipa_axum::routes;

use super::health;
use crate::api::extract::{self, Labels, Many, Params, Path};
use crate::api::headers::etag;
use crate::api::page::Selection;
use crate::api::problem::{ApiError, Code};
use crate::api::routes::Routes;
use crate::api::rows::{self, Scope};
use crate::api::{Api, convert, page};
use crate::auth::{Actor, Resource, Verb};

/// Number of schedules of a page that are read concurrently.
const LOOKUPS: usize = 16;
/// Most schedules requested by id.
const IDS_MAX: usize = 100;
/// Most runs returned with each schedule.
const RUNS_MAX: usize = 50;

pub(super) fn routes(routes: &mut Routes) {
    let schedules = Resource::Schedules;
    routes.needs(Verb::Read, schedules, &[Code::InvalidCursor, Code::QueryTooSlow], routes!(list_schedules));
    routes.needs(Verb::Read, schedules, &[Code::ScheduleNotFound], routes!(get_schedule));
}

#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
struct ListSchedulesParams {
    /// Only schedules with this status: `active`, `paused` or `completed`.
    #[serde(deserialize_with = "extract::word")]
    status: Option<ScheduleStatus>,
    /// Namespace to list; `*` for all namespaces [default: *]
    namespace: Option<String>,
    /// Only schedules of this owner.
    owner: Option<String>,
    /// Only schedules whose name contains this text. Letter case is ignored.
    text: Option<String>,
    /// Only schedules with this label, as `KEY=VALUE`; repeat to require several labels.
    #[param(value_type = Option<Vec<String>>)]
    label: Labels,
    /// Only schedules whose next firing is before this time.
    due_before: Option<Timestamp>,
    /// IDs of up to 100 schedules, separated by commas. The list keeps their order and omits deleted schedules. Cannot
    /// be used with other filters.
    #[param(value_type = Option<String>)]
    id: Many<ScheduleId>,
    /// Order of the list: `newest` first, or by the `next` firing. With `next`, schedules without a next firing are not
    /// listed [default: newest]
    #[param(inline)]
    order: Order,
    /// Whether to return the health of each schedule: its late and stuck runs [default: false]
    health: bool,
    /// Whether to return the spec of each schedule [default: false]
    specs: bool,
    /// Number of the newest runs to return with each schedule.
    #[param(minimum = 0, maximum = 50)]
    runs: usize,
    /// Maximum number of items on the page, from 1 to 1000 [default: 50]
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// `next_cursor` of the previous page.
    cursor: Option<String>,
    /// Whether to return the number of items on all pages in the header `X-Total-Count`. Allowed only with filters by
    /// status and namespace [default: false]
    count: bool,
}

/// In which order a list is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
enum Order {
    #[default]
    Newest,
    Next,
}

/// Position in the order of next firings, as the text of a cursor.
struct NextPosition(Timestamp, ScheduleId);

impl std::fmt::Display for NextPosition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.0.as_micros(), self.1)
    }
}

impl std::str::FromStr for NextPosition {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (micros, id) = text.split_once('.').ok_or(())?;
        Ok(Self(Timestamp::from_micros(micros.parse().map_err(drop)?), id.parse().map_err(drop)?))
    }
}

/// List schedules, newest first
///
/// The list omits the specs, unless the request asks for them: they make up most of a page. Health and runs are
/// included only on request, because they cost a query for each schedule of the page.
#[utoipa::path(get, path = "/api/v1/schedules", tag = "schedules", params(ListSchedulesParams), responses(
    (status = 200, description = "One page", body = List<Schedule>, headers(
        ("X-Total-Count" = Option<u64>, description = "Number of items on all pages, with `count=true`"),
    )),
))]
async fn list_schedules(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Params(params): Params<ListSchedulesParams>,
) -> Result<Response, ApiError> {
    let limit = page::limit(params.limit)?;
    if params.runs > RUNS_MAX {
        let wrong = format!("`{}` is out of range: expected 0 to {RUNS_MAX}", params.runs);
        return Err(ApiError::parameter("runs", wrong));
    }
    let look = Include { health: params.health, runs: params.runs, specs: params.specs };
    let filter = ScheduleFilter {
        namespace: page::namespace(params.namespace),
        owner: params.owner,
        status: params.status,
        labels: params.label.0,
        text: params.text,
        due_before: params.due_before,
    };
    let selection = Selection::of(&actor, filter.namespace.as_deref())?;
    let (rows, next_cursor) = match params.order {
        _ if !params.id.0.is_empty() => {
            let alone = filter == ScheduleFilter::default() && params.cursor.is_none() && !params.count;
            (named(&api, &actor, &params.id.0, alone).await?, None)
        }
        Order::Newest => newest(&api, &selection, &filter, params.cursor.as_deref(), limit).await?,
        Order::Next => next(&api, &selection, &filter, params.cursor.as_deref(), limit).await?,
    };
    let items = futures::stream::iter(rows.into_iter().map(|row| with_parts(&api, row, look)));
    let items = items.buffered(LOOKUPS).try_collect().await?;
    let list = Json(List { items, next_cursor });
    if !params.count {
        return Ok(list.into_response());
    }
    Ok(([("x-total-count", total(&api, &selection, &filter).await?)], list).into_response())
}

/// A page of rows, and the cursor of the next page.
type RowsAndCursor = (Vec<ScheduleRow>, Option<String>);

async fn newest(
    api: &Api,
    selection: &Selection,
    filter: &ScheduleFilter,
    cursor: Option<&str>,
    limit: usize,
) -> Result<RowsAndCursor, ApiError> {
    let after = api.shared.cursors.read::<ScheduleId>("schedules", filter, cursor)?;
    let query = |namespace| async move {
        let filter = ScheduleFilter { namespace, ..filter.clone() };
        api.node.store().schedules(&filter, Page { after, limit }).await
    };
    let page = selection.page(limit, query, |row| row.id).await?;
    let last = page.items.last().filter(|_| page.more);
    let cursor = last.map(|row| api.shared.cursors.make("schedules", filter, &row.id.to_string()));
    Ok((page.items, cursor))
}

async fn next(
    api: &Api,
    selection: &Selection,
    filter: &ScheduleFilter,
    cursor: Option<&str>,
    limit: usize,
) -> Result<RowsAndCursor, ApiError> {
    const LIST: &str = "schedules by next firing";
    let after = api.shared.cursors.read::<NextPosition>(LIST, filter, cursor)?;
    let after = after.map(|NextPosition(at, id)| (at, id));
    let Paged { items: rows, more } = upcoming(api, selection, filter, after, limit).await?;
    let place = |row: &ScheduleRow| Some(NextPosition(row.state.next_at?, row.id).to_string());
    let place = rows.last().filter(|_| more).and_then(place);
    Ok((rows, place.map(|place| api.shared.cursors.make(LIST, filter, &place))))
}

/// Returns the schedules with the earliest next firings, after `after`.
pub(super) async fn upcoming(
    api: &Api,
    selection: &Selection,
    filter: &ScheduleFilter,
    after: Option<(Timestamp, ScheduleId)>,
    limit: usize,
) -> Result<Paged<ScheduleRow>, ApiError> {
    let query = |namespace| async move {
        let filter = ScheduleFilter { namespace, ..filter.clone() };
        let mut items = api.node.store().upcoming(&filter, after, limit + 1).await?;
        let more = items.len() > limit;
        items.truncate(limit);
        Ok(Paged { items, more })
    };
    selection.page(limit, query, |row| Reverse((row.state.next_at, row.id))).await
}

async fn named(
    api: &Api,
    actor: &Actor,
    ids: &[ScheduleId],
    alone: bool,
) -> Result<Vec<ScheduleRow>, ApiError> {
    if !alone {
        return Err(ApiError::parameter("id", "cannot be used with another filter"));
    }
    if ids.len() > IDS_MAX {
        let wrong = format!("has {} ids: expected at most {IDS_MAX}", ids.len());
        return Err(ApiError::parameter("id", wrong));
    }
    let found = futures::stream::iter(ids.iter().copied().map(|id| api.node.store().schedule(id)));
    let found: Vec<_> = found.buffered(LOOKUPS).try_collect().await?;
    let mut rows: Vec<_> = found.into_iter().flatten().collect();
    if !actor.is_unrestricted() {
        rows.retain(|row| convert::schedule_spec(row).is_ok_and(|spec| actor.may(&spec.namespace)));
    }
    Ok(rows)
}

/// Optional parts of each schedule in a list.
#[derive(Debug, Clone, Copy)]
struct Include {
    health: bool,
    runs: usize,
    specs: bool,
}

/// Returns a schedule for a list. Health costs a query for jobs and one for runs; the newest runs cost two more.
async fn with_parts(api: &Api, row: ScheduleRow, look: Include) -> Result<Schedule, ApiError> {
    let spec = convert::schedule_spec(&row)?;
    let health = match look.health {
        true => Some(health::of(api, &row, &spec).await?),
        false => None,
    };
    let runs = match look.runs {
        0 => None,
        limit => Some(runs(api, row.id, limit).await?),
    };
    let schedule = shown(row.id, &spec, &row.state);
    Ok(Schedule { health, runs, spec: look.specs.then(|| Box::new(spec)), ..schedule })
}

/// Returns the newest jobs and runs: a schedule whose action was changed may have both.
async fn runs(api: &Api, schedule: ScheduleId, limit: usize) -> Result<Vec<ScheduleRun>, ApiError> {
    let jobs = JobFilter { schedule: Some(schedule), ..JobFilter::default() };
    let runs = RunFilter { schedule: Some(schedule), ..RunFilter::default() };
    let store = api.node.store();
    let (jobs, runs) = futures::try_join!(
        store.jobs(&jobs, Page { after: None, limit }),
        store.runs(&runs, Page { after: None, limit }),
    )?;
    let jobs = jobs.items.into_iter().map(|row| (row.id.created_at(), run_of_job(row)));
    let runs = runs.items.into_iter().map(|row| (row.id.created_at(), run_of_workflow(row)));
    let mut newest: Vec<_> = jobs.chain(runs).collect();
    // Stable sort: each list is already ordered, newest first.
    newest.sort_by_key(|(created_at, _)| Reverse(*created_at));
    Ok(newest.into_iter().take(limit).map(|(_, run)| run).collect())
}

fn run_of_job(row: JobRow) -> ScheduleRun {
    ScheduleRun {
        job_id: Some(row.id),
        run_id: None,
        scheduled_for: row.origin.map_or(row.id.created_at(), |origin| origin.scheduled_for),
        status: row.state.status.into(),
        started_at: row.state.started_at,
        finished_at: row.state.finished_at,
    }
}

fn run_of_workflow(row: RunRow) -> ScheduleRun {
    let origin = row.head.origin.as_ref();
    ScheduleRun {
        job_id: None,
        run_id: Some(row.id),
        scheduled_for: origin.map_or(row.id.created_at(), |origin| origin.scheduled_for),
        status: row.state.status.into(),
        started_at: row.state.started_at,
        finished_at: row.state.finished_at,
    }
}

async fn total(api: &Api, selection: &Selection, filter: &ScheduleFilter) -> Result<String, ApiError> {
    let counted = ScheduleFilter {
        status: filter.status,
        namespace: filter.namespace.clone(),
        ..ScheduleFilter::default()
    };
    if *filter != counted {
        return Err(ApiError::parameter("count", "can be used only with `status` and `namespace`"));
    }
    let wanted = |status: &ScheduleStatus| filter.status.is_none_or(|one| one == *status);
    let mut total = 0;
    for namespace in selection.iter() {
        let counts = api.node.store().schedule_counts(namespace).await?;
        total += counts.iter().filter(|(status, _)| wanted(status)).map(|(_, count)| count).sum::<u64>();
    }
    Ok(total.to_string())
}

/// Show a schedule with its spec and its health
#[utoipa::path(get, path = "/api/v1/schedules/{name}", tag = "schedules",
    params(("name" = String, Path, description = "Name or id"), Scope),
    responses((status = 200, description = "The schedule", body = Schedule, headers(("ETag" = String, description = "Version of the resource"))))
)]
async fn get_schedule(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Path(name): Path<String>,
    Params(scope): Params<Scope>,
) -> Result<Response, ApiError> {
    let row = rows::schedule(&api, &actor, &name, scope.namespace()).await?;
    let schedule = schedule_with_spec(&api, &row).await?;
    Ok(([(ETAG, etag(schedule.version))], Json(schedule)).into_response())
}

/// Returns a schedule with its spec and its health.
pub(super) async fn schedule_with_spec(api: &Api, row: &ScheduleRow) -> Result<Schedule, ApiError> {
    let spec = convert::schedule_spec(row)?;
    let health = health::of(api, row, &spec).await?;
    let schedule = shown(row.id, &spec, &row.state);
    Ok(Schedule { health: Some(health), spec: Some(Box::new(spec)), ..schedule })
}

fn shown(id: ScheduleId, spec: &ScheduleSpec, state: &ScheduleState) -> Schedule {
    let fires = state.status == ScheduleStatus::Active;
    Schedule {
        id,
        name: spec.name.clone(),
        namespace: spec.namespace.clone(),
        owner: spec.owner.clone(),
        labels: spec.labels.clone(),
        description: spec.description.clone(),
        status: state.status,
        pause: state.pause.as_deref().cloned(),
        when: summary(&spec.timing),
        zone: spec.timing.zone.clone(),
        generation: state.generation,
        version: state.version,
        created_at: state.created_at,
        updated_at: state.updated_at,
        next_at: state.next_at.filter(|_| fires),
        last: state.last.map(|(scheduled_for, work)| LastFiring {
            scheduled_for,
            job_id: work.job(),
            run_id: work.run(),
        }),
        fired: state.fired,
        skipped: state.skipped,
        buffered: state
            .buffer
            .iter()
            .map(|firing| Buffered { scheduled_for: firing.scheduled_for, cause: firing.cause })
            .collect(),
        statistics: state.statistics.as_deref().map(statistics).unwrap_or_default(),
        health: None,
        runs: None,
        spec: None,
        warnings: Vec::new(),
    }
}

#[expect(clippy::cast_precision_loss, reason = "the precision suffices for a rate")]
fn statistics(statistics: &RunStatistics) -> ScheduleStatistics {
    let runs = statistics.succeeded + statistics.failed;
    ScheduleStatistics {
        succeeded: statistics.succeeded,
        failed: statistics.failed,
        success_rate: (runs > 0).then(|| statistics.succeeded as f64 / runs as f64),
        streak: statistics.streak,
        duration_p10: statistics.percentile(10),
        duration_p50: statistics.percentile(50),
        duration_p90: statistics.percentile(90),
        duration_p95: statistics.percentile(95),
        duration_p99: statistics.percentile(99),
    }
}

/// Returns a short description of a timing's rules.
pub(super) fn summary(timing: &Timing) -> String {
    let rules: Vec<_> = timing.rules.iter().map(rule_summary).collect();
    if rules.is_empty() { "on demand".to_owned() } else { rules.join("; ") }
}

fn rule_summary(rule: &Rule) -> String {
    match rule {
        Rule::Cron(cron) => cron.expression.clone(),
        Rule::Every(every) => format!("every {}", every.period),
        Rule::After(delay) => format!("after {delay}"),
        Rule::At(at) => format!("at {at}"),
        Rule::Calendar(rule) => {
            let unit = match rule.unit {
                CalendarUnit::Days => "days",
                CalendarUnit::Weeks => "weeks",
                CalendarUnit::Months => "months",
                CalendarUnit::Years => "years",
            };
            if rule.every == 1 {
                return format!("every {}", unit.trim_end_matches('s'));
            }
            format!("every {} {unit}", rule.every)
        }
        _ => "a rule of another kind".to_owned(),
    }
}
