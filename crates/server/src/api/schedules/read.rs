//! Lists and details of schedules.

use axum::Json;
use axum::extract::State;
use axum::http::header::ETAG;
use axum::response::{IntoResponse, Response};
use model::api::{Buffered, LastFiring, List, Schedule, ScheduleTrack};
use model::firing::{ScheduleState, ScheduleStatus, Track};
use model::timing::{CalendarUnit, Rule, Timing};
use model::{ScheduleId, ScheduleSpec, Timestamp};
use serde::Deserialize;
use store::query::{Page, ScheduleFilter, ScheduleRow};
use utoipa_axum::routes;

use super::super::extract::{Labels, Params, Path};
use super::super::headers::etag;
use super::super::jobs::namespace;
use super::super::problem::{Code, Trouble};
use super::super::routes::Routes;
use super::super::{Api, page};
use super::{Scope, find, health};
use crate::auth::{Resource, Verb};

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
    status: Option<ScheduleStatus>,
    /// Only schedules of this namespace; `*` for all, as without it.
    namespace: Option<String>,
    /// Only schedules of this owner.
    owner: Option<String>,
    /// Only schedules with this in the name, in upper or lower case.
    text: Option<String>,
    /// Only schedules with this label, `KEY=VALUE`; may come several times.
    #[param(value_type = Option<Vec<String>>)]
    label: Labels,
    /// Only schedules whose next firing is before then.
    due_before: Option<Timestamp>,
    /// How many of them, at most.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// `next_cursor` of the page before.
    cursor: Option<String>,
    /// Counts them all, in the header `X-Total-Count`. Only for a filter of status and namespace.
    count: bool,
}

/// List schedules, newest first
///
/// Specs and health are left out.
#[utoipa::path(get, path = "/api/v1/schedules", tag = "schedules", params(ListSchedulesParams), responses(
    (status = 200, description = "One page", body = List<Schedule>, headers(
        ("X-Total-Count" = Option<u64>, description = "With `count=true`: how many there are on all pages"),
    )),
))]
async fn list_schedules(
    State(api): State<Api>,
    Params(params): Params<ListSchedulesParams>,
) -> Result<Response, Trouble> {
    let limit = page::limit(params.limit)?;
    let filter = ScheduleFilter {
        namespace: namespace(params.namespace),
        owner: params.owner,
        status: params.status,
        labels: params.label.0,
        text: params.text,
        due_before: params.due_before,
    };
    let after = api.shared.cursors.read::<ScheduleId>("schedules", &filter, params.cursor.as_deref())?;
    let page = api.node.store().schedules(&filter, Page { after, limit }).await?;
    let items = page.items.iter().map(schedule).collect::<Result<Vec<_>, _>>()?;
    let last = items.last().filter(|_| page.more);
    let next_cursor = last.map(|item| api.shared.cursors.make("schedules", &filter, &item.id.to_string()));
    let list = Json(List { items, next_cursor });
    if !params.count {
        return Ok(list.into_response());
    }
    Ok(([("x-total-count", total(&api, &filter).await?)], list).into_response())
}

async fn total(api: &Api, filter: &ScheduleFilter) -> Result<String, Trouble> {
    let counted = ScheduleFilter {
        status: filter.status,
        namespace: filter.namespace.clone(),
        ..ScheduleFilter::default()
    };
    if *filter != counted {
        return Err(Trouble::parameter("count", "can only be had with `status` and `namespace`"));
    }
    let counts = api.node.store().schedule_counts(filter.namespace.as_deref()).await?;
    let wanted = |status: &ScheduleStatus| filter.status.is_none_or(|one| one == *status);
    Ok(counts.iter().filter(|(status, _)| wanted(status)).map(|(_, count)| count).sum::<u64>().to_string())
}

/// Show a schedule with its spec and its health
#[utoipa::path(get, path = "/api/v1/schedules/{name}", tag = "schedules",
    params(("name" = String, Path, description = "Its name or its id"), Scope),
    responses((status = 200, description = "The schedule", body = Schedule, headers(("ETag" = String, description = "Its version"))))
)]
async fn get_schedule(
    State(api): State<Api>,
    Path(name): Path<String>,
    Params(scope): Params<Scope>,
) -> Result<Response, Trouble> {
    let row = find(&api, &name, &scope).await?;
    let schedule = schedule_with_spec(&api, &row).await?;
    Ok(([(ETAG, etag(schedule.version))], Json(schedule)).into_response())
}

/// The spec of a schedule.
pub(super) fn spec(row: &ScheduleRow) -> Result<ScheduleSpec, Trouble> {
    serde_json::from_str(&row.body).map_err(|error| Trouble::internal(&error))
}

/// A schedule of a list.
fn schedule(row: &ScheduleRow) -> Result<Schedule, Trouble> {
    Ok(shown(row.id, &spec(row)?, &row.state))
}

/// A schedule with its spec and what is late or stuck of it.
pub(super) async fn schedule_with_spec(api: &Api, row: &ScheduleRow) -> Result<Schedule, Trouble> {
    let spec = spec(row)?;
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
        when: in_short(&spec.timing),
        zone: spec.timing.zone.clone(),
        generation: state.generation,
        version: state.version,
        created_at: state.created_at,
        updated_at: state.updated_at,
        next_at: state.next_at.filter(|_| fires),
        last: state.last.map(|(scheduled_for, job_id)| LastFiring { scheduled_for, job_id }),
        fired: state.fired,
        skipped: state.skipped,
        buffered: state
            .buffer
            .iter()
            .map(|firing| Buffered { scheduled_for: firing.scheduled_for, cause: firing.cause })
            .collect(),
        track: state.track.as_deref().map(track).unwrap_or_default(),
        health: None,
        spec: None,
        warnings: Vec::new(),
    }
}

#[expect(clippy::cast_precision_loss, reason = "a rate of so many runs is not told apart")]
fn track(track: &Track) -> ScheduleTrack {
    let runs = track.succeeded + track.failed;
    ScheduleTrack {
        succeeded: track.succeeded,
        failed: track.failed,
        success_rate: (runs > 0).then(|| track.succeeded as f64 / runs as f64),
        streak: track.streak,
        duration_p50: track.percentile(50),
        duration_p95: track.percentile(95),
    }
}

/// The rules of a timing, each in a few words.
pub(super) fn in_short(timing: &Timing) -> String {
    let rules: Vec<_> = timing.rules.iter().map(rule_in_short).collect();
    if rules.is_empty() { "on demand".to_owned() } else { rules.join("; ") }
}

fn rule_in_short(rule: &Rule) -> String {
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
