//! Statistics: series of one subject, and totals of many.
//!
//! The store has series in three resolutions ([`Resolution`]); a response uses the finest one that has the whole range
//! and not too many intervals. Counts are exact whatever the resolution.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::str::FromStr;

use axum::extract::State;
use axum::{Extension, Json};
use model::api::{
    StatisticsCounts, StatisticsOrder, StatisticsPoint, StatisticsSeries, StatisticsTotal, StatisticsTotals,
};
use model::spec::DEFAULT;
use model::statistics::{Point, Resolution, Subject, SubjectKind, Tally};
use model::{Duration, ScheduleId, Timestamp, WorkerId};
use serde::Deserialize;
use store::statistics::{Series, StatisticsQuery, Subjects};
use utoipa_axum::routes;

use super::extract::Params;
use super::page::Selection;
use super::problem::{ApiError, Code};
use super::routes::Routes;
use super::{Api, page, rows};
use crate::auth::{Actor, Resource, Verb};
use crate::clock::{Clock as _, SystemClock};

/// Most intervals of a series.
const POINTS_MAX: u64 = 1_500;
/// Intervals of a series without a `step`: about this many.
const POINTS: u64 = 120;
/// Longest range of totals that are added up from ten seconds, and from minutes.
const TOTALS_FROM_SECONDS: Duration = Duration::from_secs(1_800);
const TOTALS_FROM_MINUTES: Duration = Duration::from_hours(6);
/// Longest range of totals of many subjects: a year of a thousand names would take seconds to add up.
const TOTALS_RANGE_MAX: Duration = Duration::from_hours(24 * 31);

pub(super) fn routes(routes: &mut Routes) {
    routes.needs(Verb::Read, Resource::Jobs, &[Code::ScheduleNotFound], routes!(get_statistics_series));
    routes.needs(Verb::Read, Resource::Jobs, &[], routes!(get_statistics_totals));
}

#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
struct SeriesParams {
    /// Only jobs of this namespace. With `job` or `schedule`: namespace of the name [default: `default`].
    namespace: Option<String>,
    /// Only jobs of this queue.
    queue: Option<String>,
    /// Only jobs with this name.
    job: Option<String>,
    /// Only jobs of this schedule: name or id.
    schedule: Option<String>,
    /// Only executions on this worker.
    worker_id: Option<WorkerId>,
    /// Start of the range, inclusive; rounded down to the start of an interval [default: an hour before `until`].
    from: Option<Timestamp>,
    /// End of the range, exclusive; rounded up to the end of an interval [default: now].
    until: Option<Timestamp>,
    /// Length of the intervals: a multiple of 10 seconds, which are kept for an hour, of a minute, which are kept for two
    /// days, or of an hour, which are kept for a year [default: about 120 intervals].
    #[param(value_type = Option<String>, example = "1m")]
    step: Option<Duration>,
}

/// Show what happened over time
///
/// Returns counts, start delays, run times and levels for each interval of the range: of all jobs, or of one namespace,
/// queue, job name, schedule or worker. Counts are exact, and include everything that was acknowledged.
#[utoipa::path(get, path = "/api/v1/stats/series", tag = "statistics", params(SeriesParams), responses(
    (status = 200, description = "The series", body = StatisticsSeries),
))]
async fn get_statistics_series(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Params(params): Params<SeriesParams>,
) -> Result<Json<StatisticsSeries>, ApiError> {
    let now = SystemClock.now();
    let (from, until) = range(params.from, params.until, Duration::from_hours(1), now)?;
    let (resolution, step) = steps(params.step, from, until, now)?;
    let subject = subject(&api, &actor, params).await?;
    let from = from.floor(step);
    let mut points = BTreeMap::<Timestamp, Point>::new();
    let mut total = Tally::default();
    for subject in permitted(&actor, subject)? {
        let query = StatisticsQuery { resolution, from, until, subjects: Subjects::One(subject.clone()) };
        for (at, point) in api.node.store().statistics(&query).await?.remove(&subject).unwrap_or_default() {
            total.add(&point.tally);
            points.entry(at.floor(step)).or_default().add(&point);
        }
    }
    let points = points.into_iter().map(|(at, point)| StatisticsPoint {
        at,
        counts: StatisticsCounts::from(&point.tally),
        levels: point.level,
    });
    let (points, total) = (points.collect(), StatisticsCounts::from(&total));
    let until = ceil(until, step);
    Ok(Json(StatisticsSeries { from, until, step, total, points }))
}

/// Rounds a time up to a multiple of a length, counted from 1970.
fn ceil(at: Timestamp, length: Duration) -> Timestamp {
    let start = at.floor(length);
    if start < at { start + length } else { start }
}

fn range(
    from: Option<Timestamp>,
    until: Option<Timestamp>,
    default: Duration,
    now: Timestamp,
) -> Result<(Timestamp, Timestamp), ApiError> {
    let from = from.unwrap_or(until.unwrap_or(now) - default);
    // Engine time may be a little ahead of this clock.
    let until = until.unwrap_or(now + Resolution::Seconds.interval());
    if from >= until {
        return Err(ApiError::parameter("from", "must be before `until`"));
    }
    // Only a year is kept, and nothing of the future: a longer range would only be longer to search.
    let (first, last) = (now - Resolution::Hour.retention(), now + Resolution::Seconds.interval());
    if from >= last || until <= first {
        let kept = Resolution::Hour.retention();
        return Err(ApiError::parameter(
            "until",
            format!("names a range without statistics: they are kept for {kept}"),
        ));
    }
    Ok((from.max(first), until.min(last)))
}

/// Returns the resolution and the length of the intervals.
fn steps(
    step: Option<Duration>,
    from: Timestamp,
    until: Timestamp,
    now: Timestamp,
) -> Result<(Resolution, Duration), ApiError> {
    let length = until.since(from).as_millis();
    // The finest resolution that has the whole range; if none has, the longest kept.
    let kept = |resolution: &Resolution| now.since(from).as_millis() <= resolution.retention().as_millis();
    let has_range = || Resolution::ALL.iter().copied().filter(kept);
    let Some(step) = step else {
        let resolution = has_range().find(|known| length / known.interval().as_millis() <= POINTS_MAX);
        let resolution = resolution.unwrap_or(Resolution::Hour);
        let interval = resolution.interval().as_millis();
        let step = interval * (length / POINTS).div_ceil(interval).max(1);
        return Ok((resolution, Duration::from_millis(step)));
    };
    let wrong = |reason: String| ApiError::parameter("step", reason);
    let millis = step.as_millis();
    let divides = |known: &Resolution| millis > 0 && millis.is_multiple_of(known.interval().as_millis());
    // The longest intervals suffice, and are the cheapest to add up.
    let resolution = has_range()
        .rfind(divides)
        .or_else(|| (divides(&Resolution::Hour) && has_range().next().is_none()).then_some(Resolution::Hour));
    let resolution = resolution.ok_or_else(|| {
        let known = has_range().next().unwrap_or(Resolution::Hour);
        let interval = known.interval();
        wrong(format!(
            "is {step}: expected a multiple of {interval}, because shorter intervals of `from` are not kept"
        ))
    })?;
    let points = length / millis;
    if points > POINTS_MAX {
        return Err(wrong(format!("gives {points} intervals: expected at most {POINTS_MAX}")));
    }
    Ok((resolution, step))
}

/// Returns the subjects whose series the caller gets: for all jobs, those of the namespaces in which it has the right.
///
/// # Errors
/// `forbidden`. Queues and workers have jobs of all namespaces.
fn permitted(actor: &Actor, subject: Subject) -> Result<Vec<Subject>, ApiError> {
    match &subject {
        Subject::All => {
            let of = |namespace: Option<&str>| match namespace {
                Some(namespace) => Subject::Namespace(namespace.into()),
                None => Subject::All,
            };
            return Ok(Selection::of(actor, None)?.iter().map(of).collect());
        }
        Subject::Namespace(namespace) | Subject::Job { namespace, .. } => actor.check(namespace)?,
        Subject::Queue(_) | Subject::Worker(_) => actor.check_cluster()?,
        // Its right was checked by the lookup.
        Subject::Schedule(_) => {}
    }
    Ok(vec![subject])
}

async fn subject(api: &Api, actor: &Actor, params: SeriesParams) -> Result<Subject, ApiError> {
    let SeriesParams { namespace, queue, job, schedule, worker_id, .. } = params;
    let given = [
        ("queue", queue.is_some()),
        ("job", job.is_some()),
        ("schedule", schedule.is_some()),
        ("worker_id", worker_id.is_some()),
    ];
    let given: Vec<_> = given.iter().filter(|(_, given)| *given).map(|(name, _)| *name).collect();
    if let [first, second, ..] = *given {
        return Err(ApiError::parameter(second, format!("cannot be combined with `{first}`")));
    }
    if let (Some(name @ ("queue" | "worker_id")), true) = (given.first().copied(), namespace.is_some()) {
        return Err(ApiError::parameter("namespace", format!("cannot be combined with `{name}`")));
    }
    if let Some(schedule) = schedule {
        let id = match ScheduleId::from_str(&schedule) {
            // A deleted schedule still has statistics, but no namespace.
            Ok(id) if actor.is_unrestricted() => id,
            _ => rows::schedule(api, actor, &schedule, namespace.as_deref()).await?.id,
        };
        return Ok(Subject::Schedule(id));
    }
    Ok(match (namespace, queue, job, worker_id) {
        (_, Some(queue), ..) => Subject::Queue(queue.into()),
        (_, _, _, Some(worker)) => Subject::Worker(worker),
        (namespace, _, Some(job), _) => {
            Subject::Job { namespace: namespace.as_deref().unwrap_or(DEFAULT).into(), name: job.into() }
        }
        (Some(namespace), ..) if namespace != "*" => Subject::Namespace(namespace.into()),
        _ => Subject::All,
    })
}

#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct TotalsParams {
    /// Kind of the subjects.
    by: SubjectKind,
    /// Only this namespace; for namespaces and job names. `*` for all [default: all].
    namespace: Option<String>,
    /// Start of the range, inclusive; rounded down to an interval of ten seconds, a minute or an hour, the longer the
    /// range. At most 31 days before `until`, unless `by` is `all` [default: 24 hours before `until`].
    from: Option<Timestamp>,
    /// End of the range, exclusive; rounded up to the end of an interval [default: now].
    until: Option<Timestamp>,
    /// Order of the subjects [default: `failed`].
    #[serde(default)]
    #[param(inline)]
    order: StatisticsOrder,
    /// Maximum number of subjects, from 1 to 1000 [default: 50]
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
}

/// Compare what happened by namespace, queue, job name, schedule or worker
///
/// Returns the counts of a range for each subject: for example the job names that failed most often in 24 hours.
#[utoipa::path(get, path = "/api/v1/stats/totals", tag = "statistics", params(TotalsParams), responses(
    (status = 200, description = "The totals", body = StatisticsTotals),
))]
async fn get_statistics_totals(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Params(params): Params<TotalsParams>,
) -> Result<Json<StatisticsTotals>, ApiError> {
    let limit = page::limit(params.limit)?;
    let now = SystemClock.now();
    let (from, until) = range(params.from, params.until, Duration::from_hours(24), now)?;
    let length = until.since(from);
    // A client that asks for the last 31 days has read its clock a little earlier.
    if length > TOTALS_RANGE_MAX + Duration::from_hours(1) && params.by != SubjectKind::All {
        let detail = format!("is more than {TOTALS_RANGE_MAX} before `until`: longer ranges need `by=all`");
        return Err(ApiError::parameter("from", detail));
    }
    let resolution = match length {
        length if length <= TOTALS_FROM_SECONDS => Resolution::Seconds,
        length if length <= TOTALS_FROM_MINUTES => Resolution::Minute,
        _ => Resolution::Hour,
    };
    let kept = |resolution: &Resolution| now.since(from) <= resolution.retention();
    let resolution = Resolution::ALL.iter().copied().find(|known| *known >= resolution && kept(known));
    let resolution = resolution.unwrap_or(Resolution::Hour);
    let namespace = page::namespace(params.namespace);
    let has_namespace = matches!(params.by, SubjectKind::Namespace | SubjectKind::Job);
    if namespace.is_some() && !has_namespace {
        return Err(ApiError::parameter("namespace", "is only for `by=namespace` and `by=job`"));
    }
    if !has_namespace {
        actor.check_cluster()?;
    }
    let from = resolution.start_of(from);
    let mut stored = Series::new();
    for namespace in Selection::of(&actor, namespace.as_deref())?.iter() {
        let subjects = Subjects::Each { kind: params.by, namespace: namespace.map(Into::into) };
        stored.extend(
            api.node.store().statistics(&StatisticsQuery { resolution, from, until, subjects }).await?,
        );
    }
    let mut totals: Vec<(Subject, Tally)> = stored
        .into_iter()
        .map(|(subject, points)| {
            let mut total = Tally::default();
            points.values().for_each(|point| total.add(&point.tally));
            (subject, total)
        })
        .filter(|(_, total)| !total.is_empty())
        .collect();
    // The sort is stable, so equal subjects stay in the order of their names.
    match params.order {
        StatisticsOrder::Failed => {
            totals.sort_by_key(|(_, total)| Reverse(total.failed_total() + total.expired))
        }
        StatisticsOrder::Submitted => totals.sort_by_key(|(_, total)| Reverse(total.submitted)),
        StatisticsOrder::Retried => {
            totals.sort_by_key(|(_, total)| Reverse(total.retried.values().sum::<u64>()))
        }
        StatisticsOrder::StartDelay => {
            totals.sort_by_key(|(_, total)| Reverse(total.start_delay.quantile(0.95)))
        }
        StatisticsOrder::RunTime => totals.sort_by_key(|(_, total)| Reverse(total.run_time.parts().1)),
        StatisticsOrder::Name => {}
    }
    let count = totals.len() as u64;
    let items = totals
        .iter()
        .take(limit)
        .map(|(subject, total)| StatisticsTotal { subject: subject.into(), counts: total.into() });
    let items = items.collect();
    let until = ceil(until, resolution.interval());
    Ok(Json(StatisticsTotals { from, until, by: params.by, subjects: count, items }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);
    const HOUR: Duration = Duration::from_hours(1);

    fn chosen(step: Option<&str>, ago: Duration, length: Duration) -> String {
        let from = NOW - ago;
        let step = step.map(|text| text.parse().unwrap());
        match steps(step, from, from + length, NOW) {
            Ok((resolution, step)) => format!("{step} of {resolution:?}"),
            Err(error) => format!("{error:?}").chars().take(0).collect::<String>() + "refused",
        }
    }

    /// H6. The finest intervals that are kept for the whole range.
    #[test]
    fn the_step_follows_from_the_range() {
        let day = Duration::from_hours(24);
        assert_eq!(chosen(None, HOUR, HOUR), "30s of Seconds");
        assert_eq!(chosen(None, HOUR + HOUR, HOUR), "1m of Minute");
        assert_eq!(chosen(None, day, day), "12m of Minute");
        assert_eq!(chosen(None, Duration::from_hours(24 * 30), Duration::from_hours(24 * 30)), "6h of Hour");
        assert_eq!(
            chosen(None, Duration::from_hours(24 * 500), Duration::from_hours(24 * 500)),
            "4d4h of Hour"
        );
    }

    #[test]
    fn a_requested_step_needs_intervals_that_are_kept() {
        let day = Duration::from_hours(24);
        assert_eq!(chosen(Some("10s"), HOUR, HOUR), "10s of Seconds");
        assert_eq!(chosen(Some("5m"), HOUR, HOUR), "5m of Minute");
        assert_eq!(chosen(Some("1h"), day, day), "1h of Hour");
        assert_eq!(chosen(Some("10s"), day, HOUR), "refused");
        assert_eq!(chosen(Some("15s"), HOUR, HOUR), "refused");
        assert_eq!(chosen(Some("1m"), day + day + day, HOUR), "refused");
        assert_eq!(chosen(Some("1m"), day + day, day + day), "refused");
    }
}
