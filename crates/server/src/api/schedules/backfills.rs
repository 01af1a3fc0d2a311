//! Backfills of past ranges of schedules.
//!
//! The scheduled times of a range are computed here, from the timetable and the ledger of the schedule; the engine runs
//! them. Times that the timing's filters exclude are left out, and so are times that already have a run, unless the
//! user requests them again. A dry run returns both lists.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::LOCATION;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use engine::{NewBackfill, Reply, ScheduleRequest};
use futures::{StreamExt, TryStreamExt};
use model::api::{
    Backfill, BackfillPlan, CancelBackfill, LeftOut, LeftOutReason, List, Reprocess, StartBackfill,
};
use model::firing::{FiringCause, FiringOutcome, Origin, Work};
use model::limits::{BACKFILL_CONCURRENCY_MAX, BACKFILL_TIMES_MAX, BODY_BYTES_MAX, PAGE_MAX, PRIORITY_MAX};
use model::schedule::OverlapPolicy;
use model::{BackfillId, Duration, JobStatus, RunStatus, ScheduleId, ScheduleSpec, Timestamp, validate};
use serde::Deserialize;
use store::query::{BackfillRow, JobFilter, LedgerFilter, Page, RunFilter};
use timetable::Timetable;
use utoipa_axum::routes;

use crate::api::extract::{MaybeBody, Params, Path, RawBody};
use crate::api::page::Selection;
use crate::api::problem::{ApiError, Code, field_error, fields_at};
use crate::api::requests::{self, unexpected};
use crate::api::routes::Routes;
use crate::api::{Api, convert, page, rows};
use crate::auth::{Actor, Resource, Verb};
use crate::clock::{Clock, SystemClock};

/// Most scheduled times of a range that are examined, including excluded ones.
const STEPS_MAX: usize = 200_000;
/// Most left-out times in a response.
const LEFT_OUT_SHOWN: usize = 1_000;
/// Longest search for the scheduled time before the first one.
const BEFORE: Duration = Duration::from_hours(24 * 366);
/// Number of jobs and runs looked up concurrently.
const LOOKUPS: usize = 16;

pub(super) fn routes(routes: &mut Routes) {
    let schedules = Resource::Schedules;
    let start_refusals = [
        Code::ScheduleNotFound,
        Code::NothingToBackfill,
        Code::BackfillLimit,
        Code::InvalidSpec,
        Code::UnsupportedMediaType,
    ];
    routes.needs(Verb::Operate, schedules, &start_refusals, routes!(start_backfill));
    routes.needs(Verb::Read, schedules, &[Code::InvalidCursor, Code::QueryTooSlow], routes!(list_backfills));
    routes.needs(Verb::Read, schedules, &[Code::BackfillNotFound], routes!(get_backfill));
    let cancel_refusals =
        [Code::BackfillNotFound, Code::BackfillEnded, Code::InvalidSpec, Code::UnsupportedMediaType];
    routes.needs(Verb::Operate, schedules, &cancel_refusals, routes!(cancel_backfill));
}

#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
struct StartParams {
    /// Namespace of the name [default: `default`]. Not needed with an id.
    namespace: Option<String>,
    /// Whether to plan only: the response lists the runs that would start and the times that are left out, and nothing
    /// starts [default: false]
    dry_run: bool,
}

/// Backfill a past range of a schedule
///
/// The runs of a backfill have their own concurrency limit and a low priority, so that they do not delay current runs.
#[utoipa::path(post, path = "/api/v1/schedules/{name}/backfills", tag = "backfills",
    params(("name" = String, Path, description = "Name or id"), StartParams),
    request_body(content(
        (StartBackfill = "application/json", example = json!({"from": "2026-11-01T00:00:00Z", "until": "2026-11-08T00:00:00Z", "concurrency": 2})),
        (StartBackfill = "application/yaml"),
    )),
    responses(
        (status = 201, description = "The backfill", body = Backfill, headers(("Location" = String, description = "The backfill"))),
        (status = 200, description = "In a dry run: the runs that it would start", body = BackfillPlan),
    )
)]
async fn start_backfill(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Path(name): Path<String>,
    Params(params): Params<StartParams>,
    body: RawBody<BODY_BYTES_MAX>,
) -> Result<Response, ApiError> {
    let asked: StartBackfill = body.format.parse(&body.bytes)?;
    check(&asked, SystemClock.now())?;
    let row = rows::schedule(&api, &actor, &name, params.namespace.as_deref()).await?;
    let spec = convert::schedule_spec(&row)?;
    let mut plan = plan(&api, &spec, &asked).await?;
    if asked.reprocess != Reprocess::All {
        leave_out_completed(&api, row.id, &asked, &mut plan).await?;
    }
    if asked.newest_first {
        plan.scheduled_times.reverse();
    }
    if params.dry_run {
        actor.note().is_read();
        return Ok(Json(plan.shown()).into_response());
    }
    if plan.scheduled_times.is_empty() {
        let detail = match plan.left_out.len() {
            0 => format!("schedule `{name}` has no scheduled time in this range"),
            count => format!(
                "no scheduled time of this range remains to run: {count} are excluded or have already run"
            ),
        };
        let fields = vec![field_error("from", &detail)];
        return Err(ApiError::invalid_fields(fields).hint("a dry run lists them, with the reasons"));
    }
    let request = NewBackfill {
        schedule: row.id,
        scheduled_times: plan.scheduled_times.into(),
        from: asked.from,
        until: asked.until,
        concurrency: asked.concurrency,
        priority: asked.priority,
        overlap: asked.overlap,
        note: asked.note.map(String::into_boxed_str),
    };
    match requests::schedule(&api, &actor, ScheduleRequest::Backfill(Box::new(request))).await? {
        Reply::Backfill { backfill } => {
            let location = [(LOCATION, format!("/api/v1/backfills/{backfill}"))];
            Ok((StatusCode::CREATED, location, Json(one(&api, &actor, backfill).await?)).into_response())
        }
        other => Err(unexpected(&other)),
    }
}

fn check(asked: &StartBackfill, now: Timestamp) -> Result<(), ApiError> {
    let mut wrong = Vec::new();
    let mut ensure = |ok: bool, path: &str, detail: &str| {
        if !ok {
            wrong.push(field_error(path, detail));
        }
    };
    let order = format!("`{}` is after `until` (`{}`)", asked.from, asked.until);
    ensure(asked.from <= asked.until, "from", &order);
    ensure(asked.until <= now, "until", "must not be in the future: a backfill covers past scheduled times");
    let concurrency =
        format!("`{}` is out of range: expected 1 to {BACKFILL_CONCURRENCY_MAX}", asked.concurrency);
    ensure((1..=BACKFILL_CONCURRENCY_MAX).contains(&asked.concurrency), "concurrency", &concurrency);
    let priority = format!("`{}` is out of range: expected 0 to {PRIORITY_MAX}", asked.priority);
    ensure(asked.priority <= PRIORITY_MAX, "priority", &priority);
    let known = matches!(asked.overlap, OverlapPolicy::BufferAll | OverlapPolicy::AllowAll);
    ensure(known, "overlap", "cannot be used for a backfill: expected `buffer_all` or `allow_all`");
    if let Err(invalid) = validate::note("note", asked.note.as_deref()) {
        wrong.extend(fields_at("", &invalid.problems));
    }
    if wrong.is_empty() { Ok(()) } else { Err(ApiError::invalid_fields(wrong)) }
}

/// Scheduled times that a backfill would run, oldest first, each with the previous scheduled time.
struct Plan {
    scheduled_times: Vec<(Timestamp, Option<Timestamp>)>,
    left_out: Vec<LeftOut>,
}

impl Plan {
    fn shown(mut self) -> BackfillPlan {
        let left_out_count = self.left_out.len() as u64;
        self.left_out.sort_by_key(|left_out| left_out.at);
        self.left_out.truncate(LEFT_OUT_SHOWN);
        let scheduled_times = self.scheduled_times.into_iter().map(|(at, _)| at).collect();
        BackfillPlan { scheduled_times, left_out: self.left_out, left_out_count }
    }
}

async fn plan(api: &Api, spec: &ScheduleSpec, asked: &StartBackfill) -> Result<Plan, ApiError> {
    let calendars = rows::calendars(api, &spec.namespace).await?;
    let seed = engine::timetable_seed(&spec.namespace, &spec.name);
    let timetable = Timetable::compile(&spec.timing, seed, &api.config.engine.zones, &calendars)
        .map_err(|problems| ApiError::invalid_fields(fields_at("timing.", &problems)))?;
    let (from, until) = (asked.from, asked.until);
    let walk = tokio::task::spawn_blocking(move || walk(&timetable, from, until)).await;
    walk.map_err(|error| ApiError::internal(&error))?
}

fn walk(timetable: &Timetable, from: Timestamp, until: Timestamp) -> Result<Plan, ApiError> {
    let mut plan = Plan { scheduled_times: Vec::new(), left_out: Vec::new() };
    let mut at = Timestamp::from_micros(from.as_micros().saturating_sub(1));
    let mut before = timetable.last(at - BEFORE, at);
    for _ in 0..STEPS_MAX {
        let Some(step) = timetable.step(at).filter(|step| step.at <= until) else { return Ok(plan) };
        at = step.at;
        match step.held {
            Some(held) => plan.left_out.push(LeftOut {
                at,
                reason: LeftOutReason::Excluded,
                detail: Some(held.filter.to_string()),
                job_id: None,
                run_id: None,
            }),
            None => {
                plan.scheduled_times.push((at, before));
                before = Some(at);
            }
        }
        if plan.scheduled_times.len() > BACKFILL_TIMES_MAX {
            break;
        }
    }
    let detail = format!("the range has more than {BACKFILL_TIMES_MAX} scheduled times: shorten it");
    Err(ApiError::invalid_fields(vec![field_error("until", &detail)]))
}

/// Removes the scheduled times from the plan that have a run in the ledger.
async fn leave_out_completed(
    api: &Api,
    schedule: ScheduleId,
    asked: &StartBackfill,
    plan: &mut Plan,
) -> Result<(), ApiError> {
    let mut ran = runs(api, schedule, asked).await?;
    if asked.reprocess == Reprocess::Failed
        && ran.values().any(|(reason, _)| *reason == LeftOutReason::Failed)
    {
        count_retries(api, schedule, asked, &mut ran).await?;
    }
    plan.scheduled_times.retain(|(at, _)| {
        let Some(&(reason, work)) = ran.get(at) else { return true };
        let again = asked.reprocess == Reprocess::Failed && reason == LeftOutReason::Failed;
        if !again {
            let (job_id, run_id) = (work.and_then(Work::job), work.and_then(Work::run));
            plan.left_out.push(LeftOut { at: *at, reason, detail: None, job_id, run_id });
        }
        again
    });
    Ok(())
}

/// Result of each scheduled time, with its job or run.
type Results = BTreeMap<Timestamp, (LeftOutReason, Option<Work>)>;

/// Replaces failed results by those of later retries by hand, because a retry has no ledger entry.
async fn count_retries(
    api: &Api,
    schedule: ScheduleId,
    asked: &StartBackfill,
    ran: &mut Results,
) -> Result<(), ApiError> {
    let filter =
        JobFilter { schedule: Some(schedule), created_after: Some(asked.from), ..JobFilter::default() };
    let mut after = None;
    loop {
        let page = api.node.store().jobs(&filter, Page { after, limit: PAGE_MAX }).await?;
        after = page.items.last().map(|row| row.id);
        for row in page.items {
            put_retry(ran, row.origin.as_deref(), reason_of(row.state.status), row.id.into());
        }
        if !page.more {
            break;
        }
    }
    let filter = RunFilter { schedule: Some(schedule), ..RunFilter::default() };
    let mut after = None;
    loop {
        let page = api.node.store().runs(&filter, Page { after, limit: PAGE_MAX }).await?;
        after = page.items.last().map(|row| row.id);
        for row in page.items.into_iter().filter(|row| row.head.caller.is_none()) {
            put_retry(ran, row.head.origin.as_deref(), reason_of_run(row.state.status), row.id.into());
        }
        if !page.more {
            return Ok(());
        }
    }
}

fn put_retry(ran: &mut Results, origin: Option<&Origin>, reason: LeftOutReason, work: Work) {
    let retried = origin.filter(|origin| origin.cause == FiringCause::Retry);
    if let Some(known) = retried.and_then(|origin| ran.get_mut(&origin.scheduled_for))
        && rank(reason) > rank(known.0)
    {
        *known = (reason, Some(work));
    }
}

const fn reason_of_run(status: RunStatus) -> LeftOutReason {
    match status {
        RunStatus::Succeeded => LeftOutReason::Succeeded,
        status if status.is_final() => LeftOutReason::Failed,
        _ => LeftOutReason::NotEnded,
    }
}

const fn reason_of(status: JobStatus) -> LeftOutReason {
    match status {
        JobStatus::Succeeded => LeftOutReason::Succeeded,
        status if status.is_final() => LeftOutReason::Failed,
        _ => LeftOutReason::NotEnded,
    }
}

/// Returns the results of the scheduled times of a range that have a run; of several runs, the best one.
async fn runs(api: &Api, schedule: ScheduleId, asked: &StartBackfill) -> Result<Results, ApiError> {
    use FiringCause::{Backfill, CatchUp, Timer};
    let filter = LedgerFilter {
        schedule: Some(schedule),
        outcomes: vec![FiringOutcome::Fired, FiringOutcome::FiredLate, FiringOutcome::Buffered],
        causes: vec![Timer, CatchUp, Backfill],
        from: Some(asked.from),
        until: Some(Timestamp::from_micros(asked.until.as_micros().saturating_add(1))),
        ..LedgerFilter::default()
    };
    let mut found = BTreeMap::new();
    let mut after = None;
    loop {
        let page = api.node.store().ledger(&filter, Page { after, limit: PAGE_MAX }).await?;
        after = page.items.last().map(|(place, _)| *place);
        let looked_up = futures::stream::iter(page.items.into_iter().map(|(_, record)| async move {
            let store = api.node.store();
            let known = match record.work {
                None => Some(LeftOutReason::NotEnded),
                Some(Work::Job(job)) => store.job(job).await?.map(|row| reason_of(row.state.status)),
                Some(Work::Run(run)) => store.run(run).await?.map(|row| reason_of_run(row.state.status)),
            };
            let reason = known.unwrap_or(LeftOutReason::Purged);
            Ok::<_, ApiError>((record.first, reason, record.work))
        }));
        let looked_up: Vec<_> = looked_up.buffer_unordered(LOOKUPS).try_collect().await?;
        for (at, reason, work) in looked_up {
            let best = found.entry(at).or_insert((reason, work));
            if rank(reason) > rank(best.0) {
                *best = (reason, work);
            }
        }
        if !page.more {
            return Ok(found);
        }
    }
}

/// Returns the precedence of a result: a success outweighs a failure.
const fn rank(reason: LeftOutReason) -> u8 {
    match reason {
        LeftOutReason::Excluded => 0,
        LeftOutReason::Failed => 1,
        LeftOutReason::Purged => 2,
        LeftOutReason::NotEnded => 3,
        LeftOutReason::Succeeded => 4,
    }
}

#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
struct ListBackfillsParams {
    /// Only backfills of this schedule.
    schedule_id: Option<ScheduleId>,
    /// Namespace to list; `*` for all namespaces [default: *]
    namespace: Option<String>,
    /// Maximum number of items on the page, from 1 to 1000 [default: 50]
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// `next_cursor` of the previous page.
    cursor: Option<String>,
}

/// List backfills, newest first
#[utoipa::path(get, path = "/api/v1/backfills", tag = "backfills", params(ListBackfillsParams), responses(
    (status = 200, description = "One page", body = List<Backfill>),
))]
async fn list_backfills(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Params(params): Params<ListBackfillsParams>,
) -> Result<Json<List<Backfill>>, ApiError> {
    let limit = page::limit(params.limit)?;
    let filter = (params.schedule_id, page::namespace(params.namespace));
    let after = api.shared.cursors.read::<BackfillId>("backfills", &filter, params.cursor.as_deref())?;
    let (schedule, store) = (filter.0, api.node.store());
    let query = |namespace: Option<String>| async move {
        store.backfills(schedule, namespace.as_deref(), Page { after, limit }).await
    };
    let selection = Selection::of(&actor, filter.1.as_deref())?;
    let found = selection.page(limit, query, |row| row.head.id).await?;
    let items = named(&api, &found.items).await?;
    let last = items.last().filter(|_| found.more);
    let next_cursor = last.map(|item| api.shared.cursors.make("backfills", &filter, &item.id.to_string()));
    Ok(Json(List { items, next_cursor }))
}

/// Show a backfill
#[utoipa::path(get, path = "/api/v1/backfills/{id}", tag = "backfills", params(("id" = BackfillId, Path)), responses(
    (status = 200, description = "The backfill", body = Backfill),
))]
async fn get_backfill(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Path(id): Path<BackfillId>,
) -> Result<Json<Backfill>, ApiError> {
    Ok(Json(one(&api, &actor, id).await?))
}

/// Cancel a backfill
///
/// No further run of the backfill starts. Running runs continue, unless the request cancels them too.
#[utoipa::path(post, path = "/api/v1/backfills/{id}/cancel", tag = "backfills", params(("id" = BackfillId, Path)),
    request_body(content = Option<CancelBackfill>, description = "Optional"),
    responses((status = 200, description = "The updated backfill", body = Backfill))
)]
async fn cancel_backfill(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Path(id): Path<BackfillId>,
    MaybeBody(body): MaybeBody<CancelBackfill>,
) -> Result<Json<Backfill>, ApiError> {
    rows::backfill(&api, &actor, id).await?;
    let request = ScheduleRequest::CancelBackfill { backfill: id, cancel_runs: body.cancel_runs };
    match requests::schedule(&api, &actor, request).await? {
        Reply::Backfill { .. } => Ok(Json(one(&api, &actor, id).await?)),
        other => Err(unexpected(&other)),
    }
}

async fn one(api: &Api, actor: &Actor, id: BackfillId) -> Result<Backfill, ApiError> {
    let row = rows::backfill(api, actor, id).await?;
    let name = name_of(api, row.head.schedule).await?;
    Ok(shown(&row, name))
}

/// Returns backfills with the names of their schedules; each name is looked up once.
async fn named(api: &Api, rows: &[BackfillRow]) -> Result<Vec<Backfill>, ApiError> {
    let mut names: BTreeMap<ScheduleId, Option<String>> = BTreeMap::new();
    for row in rows {
        if let Entry::Vacant(name) = names.entry(row.head.schedule) {
            name.insert(name_of(api, row.head.schedule).await?);
        }
    }
    Ok(rows.iter().map(|row| shown(row, names.get(&row.head.schedule).cloned().flatten())).collect())
}

async fn name_of(api: &Api, schedule: ScheduleId) -> Result<Option<String>, ApiError> {
    let row = api.node.store().schedule(schedule).await?;
    row.map(|row| convert::schedule_spec(&row).map(|spec| spec.name)).transpose()
}

fn shown(row: &BackfillRow, schedule: Option<String>) -> Backfill {
    let (head, state) = (&row.head, &row.state);
    Backfill {
        id: head.id,
        schedule_id: head.schedule,
        schedule,
        status: state.status,
        from: head.from,
        until: head.until,
        total: head.scheduled_times.len() as u64,
        started: state.started,
        succeeded: state.succeeded,
        failed: state.failed,
        concurrency: head.concurrency,
        overlap: head.overlap,
        generation: head.generation,
        created_by: head.actor.to_string(),
        note: head.note.as_deref().map(str::to_owned),
        created_at: head.created_at,
        finished_at: state.finished_at,
    }
}
