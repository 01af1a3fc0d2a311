//! Calendars: configure, list, show, list days, import, delete.
//!
//! Built-in calendars have no row and no namespace; they are listed after the stored ones and cannot be changed. A
//! stored calendar is compiled with all others of its namespace before it is accepted, because calendars may refer to
//! each other.
//!
//! # Limits
//! A list of days covers ten years; an import reads ten years before and after the current one.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{FromRequest, Request, State};
use axum::http::StatusCode;
use axum::http::header::{CONTENT_TYPE, ETAG};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use engine::{Reply, ScheduleRequest};
use jiff::civil::Date;
use model::api::{Calendar, CalendarDays, IgnoredEvent, ImportedCalendar, List};
use model::calendar::{CalendarRecord, CalendarSpec};
use model::limits::{BODY_BYTES_MAX, ICALENDAR_BYTES_MAX};
use model::spec::DEFAULT;
use model::{Timestamp, validate};
use serde::Deserialize;
use timetable::{CalendarMap, Calendars as _, DaySet, builtin, builtin_names, ics};
use utoipa_axum::routes;

use super::extract::{Params, Path, RawBody, read_body};
use super::headers::{Precondition, etag};
use super::page::Selection;
use super::problem::{ApiError, Code, excerpt, field_error, fields_at};
use super::requests::{deleted, unexpected, until_applied};
use super::routes::Routes;
use super::{Api, requests, rows};
use crate::auth::{Actor, Resource, Verb};
use crate::clock::{Clock, SystemClock};

/// Longest range of days in a list: ten years.
const DAYS_MAX: i32 = 3_660;
/// Number of years before and after the current year that are imported from an iCalendar text.
const IMPORTED_YEARS: i16 = 10;

pub(super) fn routes(routes: &mut Routes) {
    let calendars = Resource::Calendars;
    routes.needs(Verb::Read, calendars, &[], routes!(list_calendars));
    routes.needs(Verb::Read, calendars, &[Code::CalendarNotFound], routes!(get_calendar));
    let put_refusals =
        [Code::VersionMismatch, Code::InvalidHeader, Code::InvalidSpec, Code::UnsupportedMediaType];
    routes.needs(Verb::Change, calendars, &put_refusals, routes!(put_calendar));
    let delete_refusals = [
        Code::CalendarNotFound,
        Code::CalendarInUse,
        Code::CalendarBuiltIn,
        Code::VersionMismatch,
        Code::InvalidHeader,
    ];
    routes.needs(Verb::Delete, calendars, &delete_refusals, routes!(delete_calendar));
    routes.needs(Verb::Read, calendars, &[Code::CalendarNotFound], routes!(get_calendar_days));
    let import_refusals = [Code::InvalidSpec, Code::UnsupportedMediaType];
    routes.needs(Verb::Change, calendars, &import_refusals, routes!(import_calendar));
}

#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
struct Scope {
    /// Namespace of the name [default: `default`].
    namespace: Option<String>,
}

impl Scope {
    fn namespace(&self) -> &str {
        self.namespace.as_deref().unwrap_or(DEFAULT)
    }
}

fn shown(record: CalendarRecord) -> Calendar {
    Calendar {
        name: record.spec.name.clone(),
        namespace: Some(record.spec.namespace.clone()),
        built_in: false,
        description: record.spec.description.clone(),
        known_until: record.spec.known_until,
        version: record.version,
        created_at: Some(record.created_at),
        updated_at: Some(record.updated_at),
        spec: Some(Box::new(record.spec)),
    }
}

fn shown_built_in(name: &str, days: &DaySet) -> Calendar {
    Calendar {
        name: name.to_owned(),
        namespace: None,
        built_in: true,
        description: described(name).map(str::to_owned),
        known_until: days.known_until(),
        version: 0,
        created_at: None,
        updated_at: None,
        spec: None,
    }
}

/// Returns the description of a built-in calendar.
fn described(name: &str) -> Option<&'static str> {
    match name {
        "belfry.cn-holidays" => Some("The days off of China's public holidays."),
        "belfry.cn-makeup-days" => Some("Weekend days that are worked in China in exchange for holidays."),
        "belfry.cn-workdays" => {
            Some("China's working days: Monday to Friday without holidays, with make-up days.")
        }
        _ => None,
    }
}

fn answer(calendar: Calendar) -> Response {
    ([(ETAG, etag(calendar.version))], Json(calendar)).into_response()
}

/// List calendars, by name
///
/// Returns the calendars of the namespace (`*` for all namespaces), then the built-in calendars.
#[utoipa::path(get, path = "/api/v1/calendars", tag = "calendars", params(Scope), responses(
    (status = 200, description = "All calendars, on one page", body = List<Calendar>),
))]
async fn list_calendars(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Params(scope): Params<Scope>,
) -> Result<Json<List<Calendar>>, ApiError> {
    let namespace = Some(scope.namespace()).filter(|namespace| *namespace != "*");
    let mut records = Vec::new();
    for namespace in Selection::of(&actor, namespace)?.iter() {
        records.extend(api.node.store().calendars(namespace).await?);
    }
    records.sort_by(|a, b| (&a.spec.name, &a.spec.namespace).cmp(&(&b.spec.name, &b.spec.namespace)));
    let kept = records.into_iter().map(|record| Calendar { spec: None, ..shown(record) });
    let built_in = builtin_names().filter_map(|name| Some(shown_built_in(name, builtin(name)?.as_ref())));
    Ok(Json(List { items: kept.chain(built_in).collect(), next_cursor: None }))
}

/// Show a calendar
#[utoipa::path(get, path = "/api/v1/calendars/{name}", tag = "calendars", params(("name" = String, Path), Scope), responses(
    (status = 200, description = "The calendar", body = Calendar, headers(("ETag" = String, description = "Version of the resource"))),
))]
async fn get_calendar(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Path(name): Path<String>,
    Params(scope): Params<Scope>,
) -> Result<Response, ApiError> {
    if let Some(days) = builtin(&name) {
        return Ok(answer(shown_built_in(&name, &days)));
    }
    Ok(answer(shown(rows::calendar(&api, &actor, &name, scope.namespace()).await?)))
}

#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
struct PutParams {
    /// Namespace of the name [default: the namespace in the body].
    namespace: Option<String>,
    /// Whether to validate only: the response has the spec as it would be stored, and nothing is stored [default:
    /// false]
    dry_run: bool,
}

/// Create or replace a calendar
///
/// Replaces the whole calendar. Schedules that refer to it apply the change at once.
#[utoipa::path(put, path = "/api/v1/calendars/{name}", tag = "calendars",
    params(
        ("name" = String, Path), PutParams,
        ("If-Match" = Option<String>, Header, description = "Version that the change is based on; the request is refused if the resource has another version", example = "\"3\""),
        ("If-None-Match" = Option<String>, Header, description = "`*`: only if no resource of this name exists"),
    ),
    request_body(content(
        (CalendarSpec = "application/json", example = json!({
            "name": "our-workdays",
            "steps": [{"include": {"calendar": "belfry.cn-workdays"}}, {"exclude": {"dates": ["2026-12-24..2026-12-31"]}}],
        })),
        (CalendarSpec = "application/yaml"),
    )),
    responses((status = 200, description = "The updated calendar; in a dry run its spec", body = PutCalendarAnswer, headers(
        ("ETag" = Option<String>, description = "Version of the resource"),
    )))
)]
async fn put_calendar(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Path(name): Path<String>,
    Params(params): Params<PutParams>,
    wanted: Precondition,
    body: RawBody<BODY_BYTES_MAX>,
) -> Result<Response, ApiError> {
    let mut spec: CalendarSpec = body.format.parse(&body.bytes)?;
    if spec.name != name {
        let wrong = format!(
            "`{}` is not the name in the address: expected `{}`",
            excerpt(&spec.name),
            excerpt(&name)
        );
        return Err(ApiError::invalid_fields(vec![field_error("name", &wrong)]));
    }
    if let Some(namespace) = params.namespace {
        if spec.namespace != namespace && spec.namespace != DEFAULT {
            let wrong = format!(
                "`{}` is not the namespace in the address: expected `{}`",
                excerpt(&spec.namespace),
                excerpt(&namespace)
            );
            return Err(ApiError::invalid_fields(vec![field_error("namespace", &wrong)]));
        }
        spec.namespace = namespace;
    }
    actor.check(&spec.namespace)?;
    check(&api, &spec).await?;
    if params.dry_run {
        actor.note().is_read();
        return Ok(Json(spec).into_response());
    }
    Ok(answer(shown(set(&api, &actor, spec, &wanted).await?)))
}

/// A calendar, or in a dry run its spec.
#[derive(utoipa::ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "the document's view of what is answered")]
enum PutCalendarAnswer {
    Calendar(Box<Calendar>),
    Spec(Box<CalendarSpec>),
}

async fn check(api: &Api, spec: &CalendarSpec) -> Result<(), ApiError> {
    validate::calendar(spec).map_err(|invalid| ApiError::invalid(&invalid))?;
    let records = api.node.store().calendars(Some(&spec.namespace)).await?;
    let others = records.iter().map(|record| &record.spec).filter(|other| other.name != spec.name);
    // Compiled together, because the new calendar may close a cycle.
    let (_, mut wrong) = CalendarMap::compile(others.chain([spec]));
    match wrong.remove(&spec.name) {
        Some(problems) => Err(ApiError::invalid_fields(fields_at("", &problems))),
        None => Ok(()),
    }
}

async fn set(
    api: &Api,
    actor: &Actor,
    spec: CalendarSpec,
    wanted: &Precondition,
) -> Result<CalendarRecord, ApiError> {
    let (record, before) = until_applied(format!("calendar `{}`", spec.name), || async {
        let found = api.node.store().calendar(&spec.namespace, &spec.name).await?;
        let version = async { Ok(found.as_ref().map(|record| record.version)) };
        let expected_version = wanted.expected_of(format!("calendar `{}`", spec.name), version).await?;
        let request = ScheduleRequest::SetCalendar { spec: Box::new(spec.clone()), expected_version };
        match requests::schedule(api, actor, request).await? {
            Reply::Calendar(record) => Ok((Arc::unwrap_or_clone(record), found)),
            other => Err(unexpected(&other).into()),
        }
    })
    .await?;
    actor.note().object(&record.spec.name);
    actor.note().changed("", before.as_ref().map(|before| &before.spec), Some(&record.spec));
    Ok(record)
}

/// Delete a calendar
///
/// Refused while a schedule or another calendar refers to it.
#[utoipa::path(delete, path = "/api/v1/calendars/{name}", tag = "calendars",
    params(
        ("name" = String, Path), Scope,
        ("If-Match" = Option<String>, Header, description = "Expected version; the request is refused if the resource has another version", example = "\"3\""),
    ),
    responses((status = 204, description = "Deleted"))
)]
async fn delete_calendar(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Path(name): Path<String>,
    Params(scope): Params<Scope>,
    wanted: Precondition,
) -> Result<StatusCode, ApiError> {
    if builtin(&name).is_some() {
        let detail = format!("cannot delete calendar `{name}`: it is built in");
        return Err(ApiError::new(Code::CalendarBuiltIn, detail));
    }
    let record = rows::calendar(&api, &actor, &name, scope.namespace()).await?;
    let expected_version = wanted.expected(format!("calendar `{name}`"), record.version)?;
    let (namespace, name) = (record.spec.namespace.as_str().into(), record.spec.name.as_str().into());
    let request = ScheduleRequest::RemoveCalendar { namespace, name, expected_version };
    let status = deleted(&requests::schedule(&api, &actor, request).await?)?;
    actor.note().changed("", Some(&record.spec), None);
    Ok(status)
}

#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
struct DaysParams {
    /// Namespace of the name [default: `default`].
    namespace: Option<String>,
    /// First day, such as `2026-10-01` [default: today in UTC].
    #[param(value_type = Option<String>, format = Date)]
    from: Option<String>,
    /// Last day [default: a year after the first day].
    #[param(value_type = Option<String>, format = Date)]
    until: Option<String>,
}

/// List the days of a calendar
#[utoipa::path(get, path = "/api/v1/calendars/{name}/days", tag = "calendars", params(("name" = String, Path), DaysParams), responses(
    (status = 200, description = "Days of the calendar in the range", body = CalendarDays),
))]
async fn get_calendar_days(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Path(name): Path<String>,
    Params(params): Params<DaysParams>,
) -> Result<Json<CalendarDays>, ApiError> {
    let from = day("from", params.from.as_deref())?.unwrap_or_else(|| today(SystemClock.now()));
    let until = day("until", params.until.as_deref())?;
    let until = until.unwrap_or_else(|| from.saturating_add(jiff::Span::new().years(1)));
    let length = from.until(until).map_or(i32::MAX, |span| span.get_days());
    if length < 0 {
        return Err(ApiError::parameter("until", format!("`{until}` is before `from` (`{from}`)")));
    }
    if length > DAYS_MAX {
        let wrong = format!("`{until}` is too far: expected at most {DAYS_MAX} days from `{from}` on");
        return Err(ApiError::parameter("until", wrong));
    }
    let namespace = params.namespace.as_deref().unwrap_or(DEFAULT);
    rows::permit(&actor, namespace, || rows::no_calendar(&name, namespace))?;
    let days = rows::calendars(&api, namespace).await?.days(&name);
    let days = days.ok_or_else(|| rows::no_calendar(&name, namespace))?;
    let range = from.series(jiff::Span::new().days(1)).take_while(|day| *day <= until);
    let known_until = days.known_until();
    Ok(Json(CalendarDays { days: range.filter(|day| days.contains(*day)).collect(), known_until }))
}

fn day(name: &str, text: Option<&str>) -> Result<Option<Date>, ApiError> {
    let parse = |text: &str| {
        let shown = excerpt(text);
        text.parse()
            .map_err(|_| ApiError::parameter(name, format!("`{shown}` is not a date such as `2026-10-01`")))
    };
    text.map(parse).transpose()
}

fn today(now: Timestamp) -> Date {
    jiff::Timestamp::from(now).to_zoned(jiff::tz::TimeZone::UTC).date()
}

#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
struct ImportParams {
    /// Namespace of the calendar [default: `default`].
    namespace: Option<String>,
    /// Name under which the calendar is saved [default: the calendar is not saved]
    name: Option<String>,
}

/// An iCalendar text.
struct CalendarText(String);

impl<S: Send + Sync> FromRequest<S> for CalendarText {
    type Rejection = ApiError;

    async fn from_request(request: Request<Body>, _: &S) -> Result<Self, ApiError> {
        let (parts, body) = request.into_parts();
        let media_type = parts.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("");
        let media_type = media_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        if !matches!(media_type.as_str(), "text/calendar" | "text/plain") {
            let shown = excerpt(&media_type);
            let detail =
                format!("unsupported media type `{shown}`: expected `text/calendar` or `text/plain`");
            return Err(
                ApiError::new(Code::UnsupportedMediaType, detail).hint("send `Content-Type: text/calendar`")
            );
        }
        let bytes = read_body(&parts.headers, body, ICALENDAR_BYTES_MAX).await?;
        let text = String::from_utf8(bytes.into())
            .map_err(|_| ApiError::new(Code::MalformedBody, "cannot read the body: it is not valid UTF-8"))?;
        Ok(Self(text))
    }
}

/// Convert an iCalendar file to a calendar spec
///
/// Each event contributes the days that it covers, within ten years before and after the current year. With `name`, the
/// calendar is also saved. The response lists everything in the file that was ignored.
#[utoipa::path(post, path = "/api/v1/calendars/import", tag = "calendars", params(ImportParams),
    request_body(content = String, content_type = "text/calendar", description = "iCalendar (RFC 5545)"),
    responses((status = 200, description = "The calendar spec, and the parts of the file that were ignored", body = ImportedCalendar))
)]
async fn import_calendar(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Params(params): Params<ImportParams>,
    CalendarText(text): CalendarText,
) -> Result<Json<ImportedCalendar>, ApiError> {
    let namespace = params.namespace.unwrap_or_else(|| DEFAULT.to_owned());
    actor.check(&namespace)?;
    let year = today(SystemClock.now()).year();
    let years = (year - IMPORTED_YEARS)..=(year + IMPORTED_YEARS);
    let read = tokio::task::spawn_blocking(move || ics::import(&text, years)).await;
    let imported = read
        .map_err(|error| ApiError::internal(&error))?
        .map_err(|error| ApiError::invalid_fields(vec![field_error("", &error.to_string())]))?;
    let ignored = imported.ignored.iter().map(|ignored| IgnoredEvent {
        line: ignored.line,
        reason: match &ignored.summary {
            Some(summary) => format!("{summary}: {}", ignored.reason),
            None => ignored.reason.clone(),
        },
    });
    let ignored = ignored.collect();
    let save = params.name.is_some();
    if !save {
        actor.note().is_read();
    }
    let spec = CalendarSpec {
        name: params.name.unwrap_or_else(|| "imported".to_owned()),
        namespace,
        owner: None,
        labels: Default::default(),
        description: None,
        known_until: imported.cut_after,
        steps: imported.into_step().into_iter().collect(),
    };
    check(&api, &spec).await?;
    if save {
        let record = set(&api, &actor, spec, &Precondition::None).await?;
        return Ok(Json(ImportedCalendar { spec: record.spec, saved: true, ignored }));
    }
    Ok(Json(ImportedCalendar { spec, saved: false, ignored }))
}
