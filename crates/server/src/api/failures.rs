//! Failure groups: list, show, set the state.
//!
//! A namespace has at most about a thousand groups, so filters and orders are applied here and a list has no pages.

use std::cmp::Reverse;

use axum::extract::State;
use axum::{Extension, Json};
use model::Timestamp;
use model::api::{FailureGroup, FailureGroups, FailureOrder, SetFailureState};
use model::failures::{
    FailureGroup as Group, FailureGroupId, FailureMark, FailureState, ParseFailureGroupIdError,
};
use model::limits::{BODY_BYTES_MAX, NOTE_LEN_MAX};
use model::spec::DEFAULT;
use serde::Deserialize;
use store::failures::FailureQuery;
use utoipa_axum::routes;

use super::extract::{Many, Params, Path, RawBody};
use super::page::Selection;
use super::problem::{ApiError, Code, excerpt, field_error};
use super::routes::Routes;
use super::rows::permit;
use super::{Api, page};
use crate::auth::{Actor, Resource, Verb};
use crate::clock::{Clock as _, SystemClock};

/// How often the state of a group is tried to be set while its failures wait for a fold.
const TRIES: usize = 5;

pub(super) fn routes(routes: &mut Routes) {
    let jobs = Resource::Jobs;
    routes.needs(Verb::Read, jobs, &[], routes!(list_failure_groups));
    routes.needs(Verb::Read, jobs, &[Code::FailureGroupNotFound], routes!(get_failure_group));
    let refusals = [Code::FailureGroupNotFound, Code::InvalidSpec, Code::UnsupportedMediaType];
    routes.needs(Verb::Operate, jobs, &refusals, routes!(set_failure_group_state));
}

#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
struct ListFailureGroupsParams {
    /// Only groups of this namespace; `*` for all [default: all].
    namespace: Option<String>,
    /// Only groups that list failures of this job name. A group lists the 50 names with the newest failures.
    name: Option<String>,
    /// Only groups in one of these states, separated by commas.
    #[param(value_type = Option<String>, example = "open,known")]
    state: Many<FailureState>,
    /// Only groups whose message or job names contain this text. Letter case is ignored.
    text: Option<String>,
    /// Only groups with a failure at or after this time.
    since: Option<Timestamp>,
    /// Order of the groups [default: `last_seen`].
    #[param(inline)]
    order: FailureOrder,
    /// Maximum number of groups, from 1 to 1000 [default: 50]
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
}

/// List failures, grouped by their signature
///
/// Failures of a namespace are one group if their error code, their exit code and the first 200 bytes of their message are
/// equal, apart from numbers, dates and IDs in the message. Only the last failure of a job counts. Includes everything
/// that was acknowledged. A group is deleted 90 days after its newest failure. Without a namespace, the list is made of
/// the 5,000 groups with the newest failures.
#[utoipa::path(get, path = "/api/v1/failures", tag = "failures", params(ListFailureGroupsParams), responses(
    (status = 200, description = "The groups", body = FailureGroups),
))]
async fn list_failure_groups(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Params(params): Params<ListFailureGroupsParams>,
) -> Result<Json<FailureGroups>, ApiError> {
    let limit = page::limit(params.limit)?;
    let mut groups = Vec::new();
    for namespace in Selection::of(&actor, page::namespace(params.namespace.clone()).as_deref())?.iter() {
        let query = FailureQuery { namespace: namespace.map(Into::into) };
        groups.extend(api.node.store().failures(&query).await?);
    }
    let text = params.text.as_deref().map(str::to_lowercase);
    groups.retain(|group| matches(group, &params, text.as_deref()));
    let now = SystemClock.now();
    match params.order {
        FailureOrder::LastSeen => groups.sort_by_key(|group| Reverse(group.last_seen)),
        FailureOrder::FirstSeen => groups.sort_by_key(|group| Reverse(group.first_seen)),
        FailureOrder::Count => groups.sort_by_key(|group| Reverse(group.last_24h(now))),
    }
    let total = groups.len() as u64;
    let items = groups.iter().take(limit).map(|group| FailureGroup::of(group, now)).collect();
    Ok(Json(FailureGroups { items, total }))
}

fn matches(group: &Group, params: &ListFailureGroupsParams, text: Option<&str>) -> bool {
    let contains = |found: &str, text: &str| found.to_lowercase().contains(text);
    let has_name = |name: &String| group.names.iter().any(|known| *known.name == **name);
    let has_text =
        |text| contains(&group.message, text) || group.names.iter().any(|known| contains(&known.name, text));
    (params.state.0.is_empty() || params.state.0.contains(&group.state()))
        && params.since.is_none_or(|since| group.last_seen >= since)
        && params.name.as_ref().is_none_or(has_name)
        && text.is_none_or(has_text)
}

#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
struct OneFailureGroupParams {
    /// Namespace of the group [default: `default`].
    namespace: Option<String>,
}

impl OneFailureGroupParams {
    fn namespace(&self) -> &str {
        self.namespace.as_deref().unwrap_or(DEFAULT)
    }
}

/// Show a failure group
#[utoipa::path(get, path = "/api/v1/failures/{id}", tag = "failures",
    params(("id" = String, Path), OneFailureGroupParams),
    responses((status = 200, description = "The group", body = FailureGroup))
)]
async fn get_failure_group(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Path(id): Path<String>,
    Params(params): Params<OneFailureGroupParams>,
) -> Result<Json<FailureGroup>, ApiError> {
    let (namespace, id) = (params.namespace(), group_id(&id)?);
    permit(&actor, namespace, || unknown(namespace, id))?;
    show(&api, namespace, id).await
}

/// Set the state of a failure group
///
/// `known`: a user works on it. `muted`: overviews do not show the group. `resolved`: the next failure opens the group
/// again. `open`: no state is set. Without `note`, the group keeps its note; an empty note and the state `open` remove it.
#[utoipa::path(post, path = "/api/v1/failures/{id}/state", tag = "failures",
    params(("id" = String, Path), OneFailureGroupParams),
    request_body(content = SetFailureState, example = json!({"state": "known", "note": "OPS-1234"})),
    responses((status = 200, description = "The updated group", body = FailureGroup))
)]
async fn set_failure_group_state(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Path(id): Path<String>,
    Params(params): Params<OneFailureGroupParams>,
    body: RawBody<BODY_BYTES_MAX>,
) -> Result<Json<FailureGroup>, ApiError> {
    let (namespace, id) = (params.namespace(), group_id(&id)?);
    permit(&actor, namespace, || unknown(namespace, id))?;
    let body: SetFailureState = body.format.parse(&body.bytes)?;
    let length = body.note.as_ref().map_or(0, String::len);
    if length > NOTE_LEN_MAX {
        let wrong = format!("has {length} bytes: expected at most {NOTE_LEN_MAX}");
        return Err(ApiError::invalid_fields(vec![field_error("note", &wrong)]));
    }
    if body.state == FailureState::Open && body.note.is_some() {
        let wrong = "cannot be set with the state `open`, which removes the note";
        return Err(ApiError::invalid_fields(vec![field_error("note", wrong)]));
    }
    actor.note().changed("", None, Some(&body));
    let found = find(&api, namespace, id).await?;
    let mark = (body.state != FailureState::Open).then(|| FailureMark {
        state: body.state,
        note: match body.note {
            Some(note) => (!note.is_empty()).then(|| note.into()),
            None => found.mark.and_then(|mark| mark.note),
        },
        by: (&*actor.name).into(),
        at: SystemClock.now(),
        count: found.count,
    });
    let store = api.node.store();
    for _ in 0..TRIES {
        if store.mark_failures(namespace, id, mark.as_ref()).await? {
            tracing::info!(namespace, failure_group = %id, state = %body.state, by = %actor.name, "state of failure group set");
            return show(&api, namespace, id).await;
        }
        // All failures of the group may still be pending. If another server folds them now, this changes nothing.
        store.fold_statistics().await?;
    }
    Err(unknown(namespace, id))
}

async fn find(api: &Api, namespace: &str, id: FailureGroupId) -> Result<Group, ApiError> {
    let query = FailureQuery { namespace: Some(namespace.into()) };
    let groups = api.node.store().failures(&query).await?;
    groups.into_iter().find(|group| group.id() == id).ok_or_else(|| unknown(namespace, id))
}

async fn show(api: &Api, namespace: &str, id: FailureGroupId) -> Result<Json<FailureGroup>, ApiError> {
    Ok(Json(FailureGroup::of(&find(api, namespace, id).await?, SystemClock.now())))
}

fn group_id(text: &str) -> Result<FailureGroupId, ApiError> {
    text.parse().map_err(|error: ParseFailureGroupIdError| {
        ApiError::new(Code::FailureGroupNotFound, error.to_string())
    })
}

fn unknown(namespace: &str, id: FailureGroupId) -> ApiError {
    ApiError::new(
        Code::FailureGroupNotFound,
        format!("namespace `{}` has no failure group `{id}`", excerpt(namespace)),
    )
}
