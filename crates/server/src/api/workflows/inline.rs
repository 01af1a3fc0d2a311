//! Runs of definitions in the request: sharded jobs, broadcasts, workflows that run once.
//!
//! No workflow is created. The run is listed under the name of its definition, has no number, and waits for no other
//! run. It is deleted with its definition after its retention.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use engine::NewRun;
use engine::input::CarriedResults;
use model::api::{StartDefinition, StartRun, WorkflowRun};
use model::limits::{BATCH_BODY_BYTES_MAX, WORKFLOW_BYTES_MAX};
use model::workflow::Definition;
use model::{WorkflowSpec, validate};
use utoipa_axum::routes;

use super::cost;
use super::pin::{self, KnownSpecs, parameters};
use super::start::started;
use crate::api::definitions::DryRun;
use crate::api::extract::{Params, RawBody};
use crate::api::headers::IdempotencyKey;
use crate::api::limits::Caller;
use crate::api::problem::{ApiError, Code, field_error, fields_at};
use crate::api::routes::Routes;
use crate::api::{Api, secrets, submit};
use crate::auth::{Actor, Resource, Verb};
use crate::clock::{Clock, SystemClock};

/// Path of the definition in the request.
const AT: &str = "definition.";

pub(super) fn routes(routes: &mut Routes) {
    let refusals = [
        Code::PriorityClassNotAllowed,
        Code::SubmitRate,
        Code::IdempotencyKeyReused,
        Code::InvalidHeader,
        Code::InvalidSpec,
        Code::UnsupportedMediaType,
    ];
    routes.needs(Verb::Create, Resource::Runs, &refusals, routes!(start_definition));
    routes.is_submission();
}

/// Start a run of an inline workflow definition
///
/// For work that runs once, such as a job in shards or on every worker: no workflow is created. Workflows that the
/// definition calls must exist. The run is listed under the name of the definition and kept for the retention of the
/// definition. A retry needs only the id of the run. With an `Idempotency-Key`, you can repeat the request until it is
/// answered.
#[utoipa::path(post, path = "/api/v1/runs", tag = "runs",
    params(
        DryRun,
        ("Idempotency-Key" = Option<String>, Header, description = "Key that makes a repeated request safe; kept for 7 days"),
    ),
    request_body(content(
        (StartDefinition = "application/json", example = json!({"definition": {
            "name": "intake",
            "steps": [{
                "name": "task",
                "for_each": {"over": {"shards": 8}, "max_failed": 1},
                "job": {"run": {"process": {"command": ["./import", "--part", "${{ index }}/${{ total }}"]}}},
            }],
        }})),
        (StartDefinition = "application/yaml"),
    )),
    responses(
        (status = 201, description = "The new run", body = WorkflowRun, headers(
            ("Location" = String, description = "The new run"),
            ("ETag" = String, description = "Version of the resource"),
        )),
        (status = 200, description = "An earlier request with the same idempotency key started the run; in a dry run, the definition", body = StartDefinitionAnswer),
    )
)]
async fn start_definition(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Extension(caller): Extension<Caller>,
    Params(params): Params<DryRun>,
    IdempotencyKey(key): IdempotencyKey,
    body: RawBody<BATCH_BODY_BYTES_MAX>,
) -> Result<Response, ApiError> {
    let parse = move || {
        let asked: StartDefinition = body.format.parse(&body.bytes)?;
        let key = key.map(|key| submit::definition_key(&key, &asked));
        let StartDefinition { mut definition, parameters, priority, note } = asked;
        definition.owner.get_or_insert_with(|| actor.name.to_string());
        definition.fill();
        actor.check(&definition.namespace)?;
        check(&definition)?;
        Ok::<_, ApiError>((actor, key, Arc::new(definition), StartRun { parameters, priority, note }))
    };
    let parsed = tokio::task::spawn_blocking(parse).await.map_err(|error| ApiError::internal(&error))?;
    let (actor, key, spec, how) = parsed?;
    let parameters = parameters(&spec, &how)?;
    let definition = pinned(&api, &spec).await?;
    if params.dry_run {
        actor.note().is_read();
        return Ok(Json(WorkflowSpec::clone(&spec)).into_response());
    }
    secrets::check_references(&api, secrets::jobs_of(&spec, "definition.").into_iter()).await?;
    api.shared.limits.charge(&actor, &caller, cost::jobs(&definition, &parameters, &[]))?;
    let new = NewRun {
        workflow: None,
        generation: 0,
        body: definition.to_json().into(),
        definition: Arc::new(definition),
        parameters: Arc::new(parameters),
        priority: how.priority,
        note: how.note.map(String::into_boxed_str),
        retry_of: None,
        carried: CarriedResults::default(),
        origin: None,
        key,
    };
    started(&api, &actor, new).await
}

/// A run, or in a dry run its definition with all defaults.
#[derive(utoipa::ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "the document's view of what is answered")]
enum StartDefinitionAnswer {
    Run(Box<WorkflowRun>),
    Definition(Box<WorkflowSpec>),
}

/// Validates a completed definition without the workflows that it calls.
fn check(definition: &WorkflowSpec) -> Result<(), ApiError> {
    let mut wrong = match validate::workflow(definition, SystemClock.now()) {
        Ok(()) => Vec::new(),
        Err(invalid) => fields_at(AT, &invalid.problems),
    };
    if definition.max_parallel_runs.is_some() {
        let detail = "applies to stored workflows only: an inline definition has only one run";
        wrong.push(field_error("definition.max_parallel_runs", detail));
    }
    let bytes = serde_json::to_vec(definition).map_or(0, |json| json.len());
    if bytes > WORKFLOW_BYTES_MAX {
        let detail = format!(
            "has {bytes} bytes as JSON: expected at most {WORKFLOW_BYTES_MAX}; put large data into an artifact"
        );
        wrong.push(field_error("definition", &detail));
    }
    if wrong.is_empty() { Ok(()) } else { Err(ApiError::invalid_fields(wrong)) }
}

async fn pinned(api: &Api, spec: &Arc<WorkflowSpec>) -> Result<Definition, ApiError> {
    let definition = pin::definition(api, spec, &KnownSpecs::new()).await?;
    validate::definition(&definition)
        .map_err(|invalid| ApiError::invalid_fields(fields_at(AT, &invalid.problems)))?;
    Ok(definition)
}
