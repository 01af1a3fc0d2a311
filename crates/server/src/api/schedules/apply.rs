//! Conversion of request bodies to schedules for the engine.
//!
//! A spec is completed with defaults, validated, and serialized once; the stored spec is complete. Timings are compiled
//! here only for small batches, or if there are already errors: the engine compiles each timing anyway, and compiling a
//! large batch twice takes noticeable time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::{ETAG, LOCATION};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use engine::output::Applied;
use engine::{Expected, NewSchedule, Reply, ScheduleRequest};
use model::api::{
    AppliedSchedule, AppliedSchedules, ApplyChange, ApplySchedules, FieldError, Schedule, Warning,
};
use model::firing::ScheduleHead;
use model::limits::{BATCH_BODY_BYTES_MAX, BATCH_SCHEDULES_MAX, BODY_BYTES_MAX, SPEC_BYTES_MAX};
use model::{Refusal, ScheduleSpec, Timestamp, validate};
use store::query::ScheduleRow;
use timetable::Timetable;
use utoipa_axum::routes;

use super::{read, warnings};
use crate::api::Api;
use crate::api::definitions::{AppliedDefinition, Batch, COMPARED_MAX, DryRun, PutParams, note_applied};
use crate::api::extract::{Params, Path, RawBody};
use crate::api::headers::{Precondition, etag};
use crate::api::problem::{ApiError, Code, field_error, fields_at};
use crate::api::requests::{self, NotApplied, unexpected, until_applied};
use crate::api::routes::Routes;
use crate::api::secrets;
use crate::auth::{Actor, Resource, Verb};
use crate::clock::{Clock, SystemClock};
use crate::node::RequestError;

/// Most schedules of one request whose timings are compiled here, so that all errors are reported at once.
const COMPILED_MAX: usize = 100;

pub(super) fn routes(routes: &mut Routes) {
    let schedules = Resource::Schedules;
    let put_refusals = [
        Code::PriorityClassNotAllowed,
        Code::VersionMismatch,
        Code::InvalidHeader,
        Code::InvalidSpec,
        Code::UnsupportedMediaType,
    ];
    routes.needs(Verb::Change, schedules, &put_refusals, routes!(put_schedule));
    let create_refusals =
        [Code::ScheduleExists, Code::PriorityClassNotAllowed, Code::InvalidSpec, Code::UnsupportedMediaType];
    routes.needs(Verb::Create, schedules, &create_refusals, routes!(create_schedule));
    let apply_refusals = [Code::PriorityClassNotAllowed, Code::InvalidSpec, Code::UnsupportedMediaType];
    routes.needs(Verb::Change, schedules, &apply_refusals, routes!(apply_schedules));
}

/// Create or update a schedule
///
/// A schedule that already has this spec is not changed. The name in the body must equal the name in the path. A
/// schedule that never fires is accepted, with a warning in `warnings`.
#[utoipa::path(put, path = "/api/v1/schedules/{name}", tag = "schedules",
    params(
        ("name" = String, Path), PutParams,
        ("If-Match" = Option<String>, Header, description = "Version that the change is based on; the request is refused if the resource has another version", example = "\"3\""),
        ("If-None-Match" = Option<String>, Header, description = "`*`: only if no resource of this name exists"),
    ),
    request_body(content(
        (ScheduleSpec = "application/json", example = json!({
            "name": "nightly-report",
            "timing": {"rules": [{"cron": "0 2 * * *"}], "zone": "Asia/Shanghai", "exclude": [{"calendar": "belfry.cn-holidays"}]},
            "overlap": {"policy": "skip"},
            "job": {"run": {"process": {"command": ["./report"]}}},
        })),
        (ScheduleSpec = "application/yaml"),
    )),
    responses(
        (status = 201, description = "Created; never returned by a dry run", body = Schedule, headers(
            ("Location" = String, description = "The schedule"),
            ("ETag" = String, description = "Version of the resource"),
        )),
        (status = 200, description = "The updated schedule; in a dry run its spec", body = PutScheduleAnswer, headers(
            ("ETag" = Option<String>, description = "Version of the resource"),
        )),
    )
)]
async fn put_schedule(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Path(name): Path<String>,
    Params(params): Params<PutParams>,
    wanted: Precondition,
    body: RawBody<BODY_BYTES_MAX>,
) -> Result<Response, ApiError> {
    let mut spec: ScheduleSpec = body.format.parse(&body.bytes)?;
    params.settle(&name, &spec.name, &mut spec.namespace)?;
    spec.fill();
    actor.check(&spec.namespace)?;
    let head = Arc::new(one(&api, spec).await?);
    if params.dry_run {
        actor.note().is_read();
        return Ok(Json(ScheduleSpec::clone(&head.spec)).into_response());
    }
    check_references(&api, std::slice::from_ref(&head), Batch::One).await?;
    let (applied, before) = until_applied(format!("schedule `{name}`"), || async {
        let found = api.node.store().schedule_named(&head.spec.namespace, &head.spec.name).await?;
        let version = async { Ok(found.as_ref().map(|row| row.state.version)) };
        let expected = requests::expected(wanted.expected_of(format!("schedule `{name}`"), version).await?);
        let new = NewSchedule { head: Arc::clone(&head), expected };
        let applied = send(&api, &actor, vec![new]).await.map_err(refused::<NotApplied>)?;
        Ok((applied, found.map(|row| row.body)))
    })
    .await?;
    note(&actor, std::slice::from_ref(&head), &applied, vec![before]);
    shown(&api, applied.first(), &head).await
}

/// A schedule, or in a dry run its spec.
#[derive(utoipa::ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "the document's view of what is answered")]
enum PutScheduleAnswer {
    Schedule(Box<Schedule>),
    Spec(Box<ScheduleSpec>),
}

/// Create a schedule
///
/// A schedule that never fires is accepted, with a warning in `warnings`.
#[utoipa::path(post, path = "/api/v1/schedules", tag = "schedules", params(DryRun),
    request_body(content(
        (ScheduleSpec = "application/json", example = json!({
            "name": "heartbeat", "timing": {"rules": [{"every": "15m"}]},
            "job": {"run": {"process": {"command": ["true"]}}},
        })),
        (ScheduleSpec = "application/yaml"),
    )),
    responses(
        (status = 201, description = "The schedule", body = Schedule, headers(
            ("Location" = String, description = "The schedule"),
            ("ETag" = String, description = "Version of the resource"),
        )),
        (status = 200, description = "In a dry run: the spec as it would be stored", body = ScheduleSpec),
    )
)]
async fn create_schedule(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Params(params): Params<DryRun>,
    body: RawBody<BODY_BYTES_MAX>,
) -> Result<Response, ApiError> {
    let mut spec: ScheduleSpec = body.format.parse(&body.bytes)?;
    spec.fill();
    actor.note().object(&spec.name);
    // Before the spec is compared with calendars of the namespace, whose names an error could tell.
    actor.check(&spec.namespace)?;
    let head = Arc::new(one(&api, spec).await?);
    if params.dry_run {
        actor.note().is_read();
        return Ok(Json(ScheduleSpec::clone(&head.spec)).into_response());
    }
    check_references(&api, std::slice::from_ref(&head), Batch::One).await?;
    let new = NewSchedule { head: Arc::clone(&head), expected: Expected::Absent };
    let applied = send(&api, &actor, vec![new]).await.map_err(refused::<ApiError>)?;
    note(&actor, std::slice::from_ref(&head), &applied, Vec::new());
    shown(&api, applied.first(), &head).await
}

/// Create or update several schedules
///
/// The request changes all schedules or none. Schedules that already have their spec are not changed. `warnings` lists
/// the new and changed schedules that never fire, or whose policies contradict their guarantee, also in a dry run.
#[utoipa::path(post, path = "/api/v1/schedules/apply", tag = "schedules", params(DryRun),
    request_body(content(
        (ApplySchedules = "application/json", example = json!({"schedules": [{
            "name": "heartbeat", "timing": {"rules": [{"every": "15m"}]},
            "job": {"run": {"process": {"command": ["true"]}}},
        }]})),
        (ApplySchedules = "application/yaml"),
    )),
    responses((status = 200, description = "Result for each item, in the order of the request", body = AppliedSchedules))
)]
async fn apply_schedules(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Params(params): Params<DryRun>,
    body: RawBody<BATCH_BODY_BYTES_MAX>,
) -> Result<Json<AppliedSchedules>, ApiError> {
    let now = SystemClock.now();
    let parse = move || {
        let ApplySchedules { schedules } = body.format.parse(&body.bytes)?;
        let wrong = match schedules.len() {
            0 => "is empty: expected at least one schedule".to_owned(),
            count if count > BATCH_SCHEDULES_MAX => {
                format!("has {count} entries: expected at most {BATCH_SCHEDULES_MAX}")
            }
            _ => return Ok(heads(schedules, now)),
        };
        Err(ApiError::invalid_fields(vec![field_error("schedules", &wrong)]))
    };
    let checked = tokio::task::spawn_blocking(parse).await.map_err(|error| ApiError::internal(&error))??;
    for head in &checked.heads {
        actor.check(&head.spec.namespace)?;
    }
    let heads = checked.complete(&api, Batch::Several("schedules")).await?;
    if params.dry_run {
        actor.note().is_read();
        return would_apply(&api, &heads).await.map(Json);
    }
    check_references(&api, &heads, Batch::Several("schedules")).await?;
    let mut before = Vec::new();
    for head in heads.iter().take(COMPARED_MAX) {
        let found = api.node.store().schedule_named(&head.spec.namespace, &head.spec.name).await?;
        before.push(found.map(|row| row.body));
    }
    let new = heads.iter().map(|head| NewSchedule { head: Arc::clone(head), expected: Expected::Any });
    let applied = match send(&api, &actor, new.collect()).await {
        Ok(applied) => applied,
        Err(error @ RequestError::Refused(Refusal::InvalidTiming { .. })) => {
            // The engine reports only the first invalid timing; the response to a large batch must list all.
            let wrong = timing_errors(&api, &heads, Batch::Several("schedules")).await?;
            return Err(if wrong.is_empty() { error.into() } else { ApiError::invalid_fields(wrong) });
        }
        Err(error) => return Err(error.into()),
    };
    note(&actor, &heads, &applied, before);
    let schedules = heads.iter().zip(&applied).map(|(head, applied)| AppliedSchedule {
        id: Some(applied.schedule),
        name: head.spec.name.clone(),
        namespace: head.spec.namespace.clone(),
        change: applied.change,
        generation: applied.generation,
        version: applied.version,
        warnings: Vec::new(),
    });
    let mut schedules: Vec<_> = schedules.collect();
    let few = heads.len() <= COMPILED_MAX;
    warn(&api, &heads, &mut schedules, |i| few || applied[i].next_at.is_none()).await?;
    Ok(Json(AppliedSchedules { schedules }))
}

/// Adds the changed fields to the entry of the audit log.
fn note(actor: &Actor, heads: &[Arc<ScheduleHead>], applied: &[Applied], before: Vec<Option<Arc<str>>>) {
    let before = before.into_iter().chain(std::iter::repeat(None));
    let applied = heads.iter().zip(applied).zip(before).map(|((head, applied), old)| AppliedDefinition {
        name: &head.spec.name,
        change: applied.change,
        old,
        new: &head.body,
    });
    note_applied(actor, &applied.collect::<Vec<_>>());
}

/// Adds warnings to each new or changed schedule that `asked` selects.
async fn warn(
    api: &Api,
    heads: &[Arc<ScheduleHead>],
    schedules: &mut [AppliedSchedule],
    asked: impl Fn(usize) -> bool,
) -> Result<(), ApiError> {
    let is_asked = |i: &usize| {
        let spec = &heads[*i].spec;
        let has_rules = !spec.timing.rules.is_empty() && asked(*i);
        schedules[*i].change != ApplyChange::Unchanged && (has_rules || spec.workflow().is_some())
    };
    let places: Vec<usize> = (0..schedules.len()).filter(is_asked).collect();
    let found = warnings::of(api, places.iter().map(|&i| Arc::clone(&heads[i])).collect()).await?;
    for (i, warnings) in places.into_iter().zip(found) {
        schedules[i].warnings = warnings;
    }
    for (schedule, head) in schedules.iter_mut().zip(heads) {
        if schedule.change != ApplyChange::Unchanged {
            let found = head.spec.contradictions();
            schedule.warnings.extend(found.iter().map(Warning::contradicts_guarantee));
        }
    }
    Ok(())
}

async fn would_apply(api: &Api, heads: &[Arc<ScheduleHead>]) -> Result<AppliedSchedules, ApiError> {
    let mut schedules = Vec::with_capacity(heads.len());
    for head in heads {
        let found: Option<ScheduleRow> =
            api.node.store().schedule_named(&head.spec.namespace, &head.spec.name).await?;
        let change = match &found {
            None => ApplyChange::Created,
            Some(row) if row.body == head.body => ApplyChange::Unchanged,
            Some(_) => ApplyChange::Changed,
        };
        let changed = u64::from(change == ApplyChange::Changed);
        schedules.push(AppliedSchedule {
            id: found.as_ref().map(|row| row.id),
            name: head.spec.name.clone(),
            namespace: head.spec.namespace.clone(),
            change,
            generation: found.as_ref().map_or(1, |row| row.state.generation + changed),
            version: found.as_ref().map_or(1, |row| row.state.version + changed),
            warnings: Vec::new(),
        });
    }
    warn(api, heads, &mut schedules, |_| true).await?;
    Ok(AppliedSchedules { schedules })
}

async fn send(api: &Api, actor: &Actor, schedules: Vec<NewSchedule>) -> Result<Vec<Applied>, RequestError> {
    match requests::schedule(api, actor, ScheduleRequest::Apply { schedules }).await? {
        Reply::Applied(applied) => Ok(applied),
        other => {
            tracing::error!(reply = ?other, "unexpected reply of the engine");
            Err(RequestError::OutcomeUnknown)
        }
    }
}

/// Converts a refusal of a request with one schedule; its paths are relative to the spec.
fn refused<E: From<RequestError> + From<ApiError>>(error: RequestError) -> E {
    match error {
        RequestError::Refused(Refusal::InvalidTiming { problems, .. }) => {
            ApiError::invalid_fields(fields_at("", &problems)).into()
        }
        error => error.into(),
    }
}

async fn shown(api: &Api, applied: Option<&Applied>, head: &Arc<ScheduleHead>) -> Result<Response, ApiError> {
    let applied = applied.ok_or_else(|| unexpected(&Reply::Applied(Vec::new())))?;
    let row = api.node.store().schedule(applied.schedule).await?;
    let row = row.ok_or_else(|| {
        ApiError::new(
            Code::ScheduleNotFound,
            format!("schedule `{}` was deleted concurrently", applied.schedule),
        )
    })?;
    let mut schedule = read::schedule_with_spec(api, &row).await?;
    if applied.change != ApplyChange::Unchanged {
        schedule.warnings = warnings::of(api, vec![Arc::clone(head)]).await?.concat();
        let found = head.spec.contradictions();
        schedule.warnings.extend(found.iter().map(Warning::contradicts_guarantee));
    }
    let tag = [(ETAG, etag(schedule.version))];
    Ok(if applied.change == ApplyChange::Created {
        let location = [(LOCATION, format!("/api/v1/schedules/{}", schedule.id))];
        (StatusCode::CREATED, location, tag, Json(schedule)).into_response()
    } else {
        (StatusCode::OK, tag, Json(schedule)).into_response()
    })
}

async fn one(api: &Api, spec: ScheduleSpec) -> Result<ScheduleHead, ApiError> {
    let heads = heads(vec![spec], SystemClock.now()).complete(api, Batch::One).await?;
    heads
        .first()
        .map(|head| ScheduleHead::clone(head))
        .ok_or_else(|| ApiError::new(Code::Internal, "the request did not result in exactly one schedule"))
}

/// Specs as they would be stored, and their errors so far, by index and with paths relative to the spec.
struct Checked {
    heads: Vec<Arc<ScheduleHead>>,
    wrong: BTreeMap<usize, Vec<FieldError>>,
}

fn heads(specs: Vec<ScheduleSpec>, now: Timestamp) -> Checked {
    let mut checked = Checked { heads: Vec::with_capacity(specs.len()), wrong: BTreeMap::new() };
    let mut names = BTreeSet::new();
    for (i, mut spec) in specs.into_iter().enumerate() {
        spec.fill();
        let mut wrong = match validate::schedule(&spec, now) {
            Ok(()) => Vec::new(),
            Err(invalid) => fields_at("", &invalid.problems),
        };
        if !names.insert((spec.namespace.clone(), spec.name.clone())) {
            wrong.push(field_error("name", &format!("`{}` is given twice", spec.name)));
        }
        let body = serde_json::to_string(&spec).unwrap_or_default();
        if body.len() > SPEC_BYTES_MAX {
            let detail = format!(
                "the spec has {} bytes as JSON: expected at most {SPEC_BYTES_MAX}; put large data into an artifact",
                body.len()
            );
            wrong.push(field_error("", &detail));
        }
        if !wrong.is_empty() {
            checked.wrong.insert(i, wrong);
        }
        checked.heads.push(Arc::new(ScheduleHead { spec: Arc::new(spec), body: body.into() }));
    }
    checked
}

impl Checked {
    /// Returns the heads, if all specs are valid.
    ///
    /// # Errors
    /// `invalid_spec` with every invalid field, including those of timings.
    async fn complete(self, api: &Api, batch: Batch) -> Result<Vec<Arc<ScheduleHead>>, ApiError> {
        let mut all: Vec<_> = self.wrong.iter().flat_map(|(&i, errors)| batch.located(i, errors)).collect();
        if all.is_empty() && self.heads.len() > COMPILED_MAX {
            return Ok(self.heads);
        }
        let timings = timing_errors(api, &self.heads, batch).await?;
        let known: BTreeSet<String> = all.iter().map(|error| error.path.clone()).collect();
        all.extend(timings.into_iter().filter(|error| !known.contains(&error.path)));
        if all.is_empty() { Ok(self.heads) } else { Err(ApiError::invalid_fields(all)) }
    }
}

/// Refuses schedules whose secrets do not exist.
async fn check_references(api: &Api, heads: &[Arc<ScheduleHead>], batch: Batch) -> Result<(), ApiError> {
    let jobs = heads.iter().enumerate();
    let jobs = jobs.filter_map(|(i, head)| Some((format!("{}job.", batch.path(i)), head.spec.job()?)));
    secrets::check_references(api, jobs).await
}

/// Returns all errors of the timings of these schedules.
async fn timing_errors(
    api: &Api,
    heads: &[Arc<ScheduleHead>],
    batch: Batch,
) -> Result<Vec<FieldError>, ApiError> {
    let calendars = warnings::calendars(api, heads).await?;
    let (heads, zones) = (heads.to_vec(), api.config.engine.zones.clone());
    let compile = move || {
        let wrong = heads.iter().enumerate().flat_map(|(i, head)| {
            let spec = &head.spec;
            let seed = engine::timetable_seed(&spec.namespace, &spec.name);
            let calendars = calendars.get(&spec.namespace).cloned().unwrap_or_default();
            let problems =
                Timetable::compile(&spec.timing, seed, &zones, &calendars).err().unwrap_or_default();
            fields_at(&format!("{}timing.", batch.path(i)), &problems)
        });
        wrong.map(|error| FieldError { path: error.path.trim_end_matches('.').to_owned(), ..error }).collect()
    };
    tokio::task::spawn_blocking(compile).await.map_err(|error| ApiError::internal(&error))
}
