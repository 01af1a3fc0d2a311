//! Future firings: of a schedule, of a draft, and of all schedules.
//!
//! Previews ignore jitter and pauses; warnings report a paused or exhausted schedule. Timings are compiled on blocking
//! threads.
//!
//! # Limits
//! The firings of all schedules come from at most [`UPCOMING_SCHEDULES_MAX`] schedules and have at most
//! [`UPCOMING_MAX`] entries. The response has the end of the covered range, which is the start of the next request.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use axum::extract::State;
use axum::{Extension, Json};
use model::api::{Preview, PreviewSchedule, Upcoming, UpcomingFiring, Warning};
use model::firing::ScheduleStatus;
use model::limits::{BODY_BYTES_MAX, PREVIEW_MAX};
use model::timing::{Rule, Timing};
use model::{Duration, Timestamp};
use serde::Deserialize;
use store::query::{ScheduleFilter, ScheduleRow};
use timetable::{CalendarMap, Next, Timetable};
use utoipa_axum::routes;

use super::read;
use crate::api::extract::{Params, Path, RawBody};
use crate::api::page::Selection;
use crate::api::problem::{ApiError, Code, field_error, fields_at};
use crate::api::routes::Routes;
use crate::api::{Api, convert, page, rows};
use crate::auth::{Actor, Resource, Verb};
use crate::clock::{Clock, SystemClock};
use crate::preview::{TimingContext, preview};

/// Default number of firings in a preview.
const PREVIEW_DEFAULT: usize = 20;
/// Default range of the firings of all schedules.
const UPCOMING_DEFAULT: Duration = Duration::from_hours(24);
/// Most schedules whose firings are merged.
const UPCOMING_SCHEDULES_MAX: usize = 1_000;
/// Most firings in one response.
const UPCOMING_MAX: usize = 1_000;

pub(super) fn routes(routes: &mut Routes) {
    let schedules = Resource::Schedules;
    routes.needs(Verb::Read, schedules, &[Code::ScheduleNotFound], routes!(get_next_firings));
    let draft_refusals = [Code::InvalidSpec, Code::UnsupportedMediaType];
    routes.needs(Verb::Read, schedules, &draft_refusals, routes!(preview_schedule));
    routes.needs(Verb::Read, schedules, &[Code::QueryTooSlow], routes!(list_upcoming_firings));
}

fn count(n: Option<u32>) -> Result<usize, String> {
    let n = n.map_or(Ok(PREVIEW_DEFAULT), usize::try_from).unwrap_or(usize::MAX);
    if (1..=PREVIEW_MAX).contains(&n) {
        return Ok(n);
    }
    Err(format!("`{n}` is out of range: expected 1 to {PREVIEW_MAX}"))
}

#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
struct NextParams {
    /// Namespace of the name [default: `default`]. Not needed with an id.
    namespace: Option<String>,
    /// Number of firings to return [default: 20].
    #[param(minimum = 1, maximum = 1000)]
    count: Option<u32>,
    /// Start of the range [default: now].
    from: Option<Timestamp>,
}

/// Preview the next firings of a schedule
///
/// Ignores jitter and a pause. Wall clock times that a clock change or a calendar moved are marked.
#[utoipa::path(get, path = "/api/v1/schedules/{name}/next", tag = "schedules",
    params(("name" = String, Path, description = "Name or id"), NextParams),
    responses((status = 200, description = "Next firings, and a description of the timing", body = Preview))
)]
async fn get_next_firings(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Path(name): Path<String>,
    Params(params): Params<NextParams>,
) -> Result<Json<Preview>, ApiError> {
    let n = count(params.count).map_err(|wrong| ApiError::parameter("count", wrong))?;
    let row = rows::schedule(&api, &actor, &name, params.namespace.as_deref()).await?;
    let spec = convert::schedule_spec(&row)?;
    let left = spec.max_firings.map(|max| max.saturating_sub(row.state.fired));
    let n = left.map_or(n, |left| n.min(usize::try_from(left).unwrap_or(usize::MAX)));
    let seed = engine::timetable_seed(&spec.namespace, &spec.name);
    let contradictions = spec.contradictions();
    let mut answer = preview_timing(&api, spec.timing, &spec.namespace, seed, params.from, n.max(1))
        .await?
        .map_err(|problems| ApiError::invalid_fields(fields_at("timing.", &problems)))?;
    if left == Some(0) {
        answer.firings.clear();
        answer.warnings.push(Warning::max_firings_reached());
    }
    if row.state.status == ScheduleStatus::Paused {
        answer.warnings.push(Warning::paused());
    }
    answer.warnings.extend(contradictions.iter().map(Warning::contradicts_guarantee));
    Ok(Json(answer))
}

async fn preview_timing(
    api: &Api,
    timing: Timing,
    namespace: &str,
    seed: u64,
    from: Option<Timestamp>,
    n: usize,
) -> Result<Result<Preview, Vec<model::validate::Problem>>, ApiError> {
    let calendars = rows::calendars(api, namespace).await?;
    let zones = api.config.engine.zones.clone();
    let after = from.map_or_else(|| SystemClock.now(), just_before);
    let compute =
        move || preview(&timing, &TimingContext { zones: &zones, calendars: &calendars, seed }, after, n);
    tokio::task::spawn_blocking(compute).await.map_err(|error| ApiError::internal(&error))
}

fn just_before(at: Timestamp) -> Timestamp {
    Timestamp::from_micros(at.as_micros().saturating_sub(1))
}

/// Preview the next firings of a spec
///
/// Nothing is stored. The body has either `timing` or a `cron` expression.
#[utoipa::path(post, path = "/api/v1/schedules/preview", tag = "schedules",
    request_body(content(
        (PreviewSchedule = "application/json", example = json!({"cron": "30 2 * * *", "zone": "Europe/Berlin", "count": 5})),
        (PreviewSchedule = "application/yaml"),
    )),
    responses((status = 200, description = "Next firings, and a description of the timing", body = Preview))
)]
async fn preview_schedule(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    body: RawBody<BODY_BYTES_MAX>,
) -> Result<Json<Preview>, ApiError> {
    let draft: PreviewSchedule = body.format.parse(&body.bytes)?;
    let invalid = |path: &str, wrong: &str| ApiError::invalid_fields(vec![field_error(path, wrong)]);
    let n = count(draft.count).map_err(|wrong| invalid("count", &wrong))?;
    // Error paths must match what the user wrote.
    let (timing, by_cron) = match (draft.timing, draft.cron) {
        (Some(timing), None) if draft.zone.is_none() => (timing, false),
        (Some(_), None) => return Err(invalid("zone", "is set only with `cron`: a timing has its own zone")),
        (None, Some(cron)) => {
            let zone = draft.zone.unwrap_or_else(|| model::timing::UTC.to_owned());
            (Timing { rules: vec![Rule::Cron(cron)], zone, ..Timing::default() }, true)
        }
        _ => return Err(invalid("", "expected either `timing` or `cron`")),
    };
    let namespace = draft.namespace.as_deref().unwrap_or(model::spec::DEFAULT);
    actor.check(namespace)?;
    let seed = engine::timetable_seed(namespace, draft.name.as_deref().unwrap_or_default());
    let looked = preview_timing(&api, timing, namespace, seed, draft.from, n).await?;
    looked.map(Json).map_err(|problems| {
        let at = if by_cron { "" } else { "timing." };
        let mut errors = fields_at(at, &problems);
        if by_cron {
            for error in &mut errors {
                *error = field_error(error.path.trim_start_matches("rules[0]."), &error.detail);
            }
        }
        ApiError::invalid_fields(errors)
    })
}

#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
struct UpcomingParams {
    /// Namespace to list; `*` for all namespaces [default: *]
    namespace: Option<String>,
    /// Start of the range [default: now].
    from: Option<Timestamp>,
    /// End of the range [default: a day after `from`].
    until: Option<Timestamp>,
    /// Maximum number of firings of each schedule; `truncated` lists the schedules that have more.
    #[param(minimum = 1, maximum = 1000)]
    limit_per_schedule: Option<usize>,
}

/// List the next firings of all schedules
///
/// Returns at most 1,000 firings, of the first 1,000 schedules. `until` is the end of the range that the response
/// covers; pass it as `from` to get the next range. With `limit_per_schedule`, a
/// schedule that fires every second does not hide the others.
#[utoipa::path(get, path = "/api/v1/schedules/upcoming", tag = "schedules", params(UpcomingParams), responses(
    (status = 200, description = "Firings, earliest first", body = Upcoming),
))]
async fn list_upcoming_firings(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Params(params): Params<UpcomingParams>,
) -> Result<Json<Upcoming>, ApiError> {
    let from = params.from.unwrap_or_else(|| SystemClock.now());
    let mut until = params.until.unwrap_or(from + UPCOMING_DEFAULT);
    let limit_per_schedule = params.limit_per_schedule.unwrap_or(UPCOMING_MAX);
    if !(1..=UPCOMING_MAX).contains(&limit_per_schedule) {
        let wrong = format!("`{limit_per_schedule}` is out of range: expected 1 to {UPCOMING_MAX}");
        return Err(ApiError::parameter("limit_per_schedule", wrong));
    }
    let filter = ScheduleFilter {
        namespace: page::namespace(params.namespace),
        status: Some(ScheduleStatus::Active),
        due_before: Some(until),
        ..ScheduleFilter::default()
    };
    let selection = Selection::of(&actor, filter.namespace.as_deref())?;
    let mut rows = read::upcoming(&api, &selection, &filter, None, UPCOMING_SCHEDULES_MAX + 1).await?.items;
    if rows.len() > UPCOMING_SCHEDULES_MAX {
        // Schedules beyond the limit fire at this time or later.
        until = rows.last().and_then(|row| row.state.next_at).unwrap_or(until).min(until);
        rows.truncate(UPCOMING_SCHEDULES_MAX);
    }
    let mut calendars = std::collections::BTreeMap::new();
    let mut all = Vec::with_capacity(rows.len());
    for row in rows {
        let spec = convert::schedule_spec(&row)?;
        if !calendars.contains_key(&spec.namespace) {
            calendars.insert(spec.namespace.clone(), rows::calendars(&api, &spec.namespace).await?);
        }
        all.push((row, spec));
    }
    let zones = api.config.engine.zones.clone();
    let span = Span { from: params.from, until, limit_per_schedule };
    let compute = move || gather(&all, &zones, &calendars, span);
    let answer = tokio::task::spawn_blocking(compute).await.map_err(|error| ApiError::internal(&error))?;
    Ok(Json(answer))
}

/// Requested range of firings.
struct Span {
    /// Start of the range; `None` includes overdue firings.
    from: Option<Timestamp>,
    until: Timestamp,
    limit_per_schedule: usize,
}

/// Merges the firings of schedules. A timetable is compiled only if more than the next firing is needed.
fn gather(
    all: &[(ScheduleRow, model::ScheduleSpec)],
    zones: &timetable::Zones,
    calendars: &std::collections::BTreeMap<String, CalendarMap>,
    span: Span,
) -> Upcoming {
    let Span { from, until, limit_per_schedule } = span;
    let mut timetables: Vec<Option<Timetable>> = all.iter().map(|_| None).collect();
    let mut next_after = |i: usize, at: Timestamp| {
        let spec = &all[i].1;
        if timetables[i].is_none() {
            let seed = engine::timetable_seed(&spec.namespace, &spec.name);
            let calendars = calendars.get(&spec.namespace).cloned().unwrap_or_default();
            timetables[i] = Timetable::compile(&spec.timing, seed, zones, &calendars).ok();
        }
        match timetables[i].as_ref()?.next(at) {
            Next::At(next) => Some(next),
            _ => None,
        }
    };
    let mut heap = BinaryHeap::with_capacity(all.len());
    for (i, (row, _)) in all.iter().enumerate() {
        let next = row.state.next_at;
        let first = match from.filter(|&from| next.is_some_and(|next| next < from)) {
            Some(from) => next_after(i, just_before(from)),
            None => next,
        };
        heap.extend(first.map(|first| Reverse((first, i))));
    }
    let mut counts = vec![0; all.len()];
    let (mut items, mut truncated) = (Vec::new(), Vec::new());
    while let Some(Reverse((at, i))) = heap.pop() {
        if at >= until {
            break;
        }
        if items.len() == UPCOMING_MAX {
            return Upcoming { items, until: at, truncated };
        }
        let (row, spec) = &all[i];
        if counts[i] == limit_per_schedule {
            truncated.push(row.id);
            continue;
        }
        counts[i] += 1;
        items.push(UpcomingFiring {
            at,
            schedule_id: row.id,
            name: spec.name.clone(),
            namespace: spec.namespace.clone(),
            duration_p50: row.state.statistics.as_deref().and_then(|track| track.percentile(50)),
        });
        heap.extend(next_after(i, at).map(|next| Reverse((next, i))));
    }
    Upcoming { items, until, truncated }
}
