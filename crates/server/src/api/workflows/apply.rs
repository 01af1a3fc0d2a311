//! Conversion of request bodies to workflows for the engine.
//!
//! A spec is completed with defaults, validated, and serialized once. Workflows of one request may call each
//! other, so called workflows are looked up in the request first.
//!
//! Three routes: `put_workflow` for one workflow, `apply_workflows` for several in one transaction, and
//! `delete_workflow`. A request goes through `heads`, which checks each spec alone on a blocking thread, and
//! [`Checked::complete`], which checks all calls; all errors are reported together. A dry run ends there.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::{ETAG, LOCATION};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use engine::output::AppliedWorkflow as Applied;
use engine::{Expected, NewWorkflow, Reply, WorkflowRequest};
use model::api::{
    AppliedWorkflow, AppliedWorkflows, ApplyChange, ApplyWorkflows, FieldError, Warning, Workflow,
};
use model::limits::{BATCH_BODY_BYTES_MAX, BATCH_SCHEDULES_MAX, WORKFLOW_BYTES_MAX};
use model::run::WorkflowHead;
use model::{Timestamp, WorkflowSpec, validate};
use utoipa_axum::routes;

use super::convert;
use super::pin::{self, KnownSpecs};
use super::warn::warnings;
use crate::api::Api;
use crate::api::definitions::{AppliedDefinition, Batch, COMPARED_MAX, DryRun, PutParams, note_applied};
use crate::api::extract::{Params, Path, RawBody};
use crate::api::headers::{Precondition, etag};
use crate::api::problem::{ApiError, Code, field_error, fields_at};
use crate::api::requests::{self, deleted, unexpected, until_applied};
use crate::api::routes::Routes;
use crate::api::rows::{self, Scope};
use crate::api::secrets;
use crate::auth::{Actor, Resource, Verb};
use crate::clock::{Clock, SystemClock};
use crate::node::RequestError;

/// Most workflows in one request.
const BATCH_WORKFLOWS_MAX: usize = BATCH_SCHEDULES_MAX;

pub(super) fn routes(routes: &mut Routes) {
    let workflows = Resource::Workflows;
    let put_refusals = [
        Code::PriorityClassNotAllowed,
        Code::VersionMismatch,
        Code::InvalidHeader,
        Code::InvalidSpec,
        Code::UnsupportedMediaType,
    ];
    routes.needs(Verb::Change, workflows, &put_refusals, routes!(put_workflow));
    let apply_refusals = [Code::PriorityClassNotAllowed, Code::InvalidSpec, Code::UnsupportedMediaType];
    routes.needs(Verb::Change, workflows, &apply_refusals, routes!(apply_workflows));
    let delete_refusals =
        [Code::WorkflowNotFound, Code::VersionMismatch, Code::RunsWaiting, Code::InvalidHeader];
    routes.needs(Verb::Delete, workflows, &delete_refusals, routes!(delete_workflow));
}

/// Create or update a workflow
///
/// A workflow that already has this spec is not changed. The name in the body must equal the name in the path. Running
/// runs keep the definition that they started with.
#[utoipa::path(put, path = "/api/v1/workflows/{name}", tag = "workflows",
    params(
        ("name" = String, Path), PutParams,
        ("If-Match" = Option<String>, Header, description = "Version that the change is based on; the request is refused if the resource has another version", example = "\"3\""),
        ("If-None-Match" = Option<String>, Header, description = "`*`: only if no resource of this name exists"),
    ),
    request_body(content(
        (WorkflowSpec = "application/json", example = json!({
            "name": "nightly",
            "steps": [
                {"name": "extract", "job": {"run": {"process": {"command": ["./extract"]}}}},
                {"name": "load", "needs": ["extract"], "job": {"run": {"process": {"command": ["./load"]}}}},
            ],
        })),
        (WorkflowSpec = "application/yaml"),
    )),
    responses(
        (status = 201, description = "Created; never returned by a dry run", body = Workflow, headers(
            ("Location" = String, description = "The workflow"),
            ("ETag" = String, description = "Version of the resource"),
        )),
        (status = 200, description = "The updated workflow; in a dry run its spec", body = PutWorkflowAnswer, headers(
            ("ETag" = Option<String>, description = "Version of the resource"),
        )),
    )
)]
async fn put_workflow(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Path(name): Path<String>,
    Params(params): Params<PutParams>,
    wanted: Precondition,
    body: RawBody<BATCH_BODY_BYTES_MAX>,
) -> Result<Response, ApiError> {
    let dry_run = params.dry_run;
    let parse = move || {
        let mut spec: WorkflowSpec = body.format.parse(&body.bytes)?;
        params.settle(&name, &spec.name, &mut spec.namespace)?;
        Ok::<_, ApiError>(heads(vec![spec], SystemClock.now()))
    };
    let checked = tokio::task::spawn_blocking(parse).await.map_err(|error| ApiError::internal(&error))??;
    permit(&actor, &checked)?;
    let heads = checked.complete(&api, Batch::One).await?;
    let Some(head) = heads.first() else { return Err(unexpected(&Reply::AppliedWorkflows(Vec::new()))) };
    if dry_run {
        actor.note().is_read();
        return Ok(Json(WorkflowSpec::clone(&head.spec)).into_response());
    }
    check_references(&api, heads.iter().map(|head| &*head.spec), Batch::One).await?;
    let (applied, before) = until_applied(format!("workflow `{}`", head.spec.name), || async {
        let found = api.node.store().workflow_named(&head.spec.namespace, &head.spec.name).await?;
        let version = async { Ok(found.as_ref().map(|row| row.state.version)) };
        let expected =
            requests::expected(wanted.expected_of(format!("workflow `{}`", head.spec.name), version).await?);
        let applied = send(&api, &actor, vec![NewWorkflow { head: Arc::clone(head), expected }]).await?;
        Ok((applied, found.map(|row| Arc::clone(&row.head.body))))
    })
    .await?;
    note(&actor, std::slice::from_ref(head), &applied, vec![before]);
    shown(&api, &actor, applied.first(), head).await
}

/// A workflow, or in a dry run its spec.
#[derive(utoipa::ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "the document's view of what is answered")]
enum PutWorkflowAnswer {
    Workflow(Box<Workflow>),
    Spec(Box<WorkflowSpec>),
}

async fn shown(
    api: &Api,
    actor: &Actor,
    applied: Option<&Applied>,
    head: &Arc<WorkflowHead>,
) -> Result<Response, ApiError> {
    let applied = applied.ok_or_else(|| unexpected(&Reply::AppliedWorkflows(Vec::new())))?;
    let row = rows::workflow(api, actor, &applied.workflow.to_string(), None).await?;
    let spec = Some(Box::new(WorkflowSpec::clone(&row.head.spec)));
    let mut workflow = Workflow { spec, ..convert::workflow(&row) };
    if applied.change != ApplyChange::Unchanged {
        let found = warnings(api, std::slice::from_ref(head)).await?;
        workflow.warnings = found.into_iter().flatten().collect();
    }
    let tag = [(ETAG, etag(workflow.version))];
    Ok(if applied.change == ApplyChange::Created {
        let location = [(LOCATION, format!("/api/v1/workflows/{}", workflow.id))];
        (StatusCode::CREATED, location, tag, Json(workflow)).into_response()
    } else {
        (StatusCode::OK, tag, Json(workflow)).into_response()
    })
}

/// Create or update several workflows
///
/// The request changes all workflows or none. The workflows may call each other. Workflows that already have their spec
/// are not changed. `warnings` lists probable mistakes in the definitions.
#[utoipa::path(post, path = "/api/v1/workflows/apply", tag = "workflows", params(DryRun),
    request_body(content(
        (ApplyWorkflows = "application/json", example = json!({"workflows": [{
            "name": "nightly", "steps": [{"name": "load", "job": {"run": {"process": {"command": ["./load"]}}}}],
        }]})),
        (ApplyWorkflows = "application/yaml"),
    )),
    responses((status = 200, description = "Result for each item, in the order of the request", body = AppliedWorkflows))
)]
async fn apply_workflows(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Params(params): Params<DryRun>,
    body: RawBody<BATCH_BODY_BYTES_MAX>,
) -> Result<Json<AppliedWorkflows>, ApiError> {
    let now = SystemClock.now();
    let parse = move || {
        let ApplyWorkflows { workflows } = body.format.parse(&body.bytes)?;
        let wrong = match workflows.len() {
            0 => "is empty: expected at least one workflow".to_owned(),
            count if count > BATCH_WORKFLOWS_MAX => {
                format!("has {count} entries: expected at most {BATCH_WORKFLOWS_MAX}")
            }
            _ => return Ok(heads(workflows, now)),
        };
        Err(ApiError::invalid_fields(vec![field_error("workflows", &wrong)]))
    };
    let checked = tokio::task::spawn_blocking(parse).await.map_err(|error| ApiError::internal(&error))??;
    permit(&actor, &checked)?;
    let heads = checked.complete(&api, Batch::Several("workflows")).await?;
    if params.dry_run {
        actor.note().is_read();
        return would_apply(&api, &heads).await.map(Json);
    }
    check_references(&api, heads.iter().map(|head| &*head.spec), Batch::Several("workflows")).await?;
    let mut before = Vec::new();
    for head in heads.iter().take(COMPARED_MAX) {
        let found = api.node.store().workflow_named(&head.spec.namespace, &head.spec.name).await?;
        before.push(found.map(|row| Arc::clone(&row.head.body)));
    }
    let new = heads.iter().map(|head| NewWorkflow { head: Arc::clone(head), expected: Expected::Any });
    let applied = send(&api, &actor, new.collect()).await?;
    note(&actor, &heads, &applied, before);
    let warnings = warnings(&api, &heads).await?;
    let workflows = heads.iter().zip(&applied).zip(warnings).map(|((head, applied), warnings)| {
        let (generation, version) = (applied.generation, applied.version);
        told(head, Some(applied.workflow), applied.change, (generation, version), warnings)
    });
    Ok(Json(AppliedWorkflows { workflows: workflows.collect() }))
}

fn told(
    head: &WorkflowHead,
    id: Option<model::WorkflowId>,
    change: ApplyChange,
    (generation, version): (u64, u64),
    warnings: Vec<Warning>,
) -> AppliedWorkflow {
    let spec = &head.spec;
    let warnings = if change == ApplyChange::Unchanged { Vec::new() } else { warnings };
    let (name, namespace) = (spec.name.clone(), spec.namespace.clone());
    AppliedWorkflow { id, name, namespace, change, generation, version, warnings }
}

/// Adds the changed fields to the entry of the audit log.
fn note(actor: &Actor, heads: &[Arc<WorkflowHead>], applied: &[Applied], before: Vec<Option<Arc<str>>>) {
    let before = before.into_iter().chain(std::iter::repeat(None));
    let applied = heads.iter().zip(applied).zip(before).map(|((head, applied), old)| AppliedDefinition {
        name: &head.spec.name,
        change: applied.change,
        old,
        new: &head.body,
    });
    note_applied(actor, &applied.collect::<Vec<_>>());
}

/// Checks the right of the caller in the namespace of each workflow.
fn permit(actor: &Actor, checked: &Checked) -> Result<(), ApiError> {
    for head in &checked.heads {
        actor.check(&head.spec.namespace)?;
    }
    Ok(())
}

async fn would_apply(api: &Api, heads: &[Arc<WorkflowHead>]) -> Result<AppliedWorkflows, ApiError> {
    let mut workflows = Vec::with_capacity(heads.len());
    for (head, warnings) in heads.iter().zip(warnings(api, heads).await?) {
        let found = api.node.store().workflow_named(&head.spec.namespace, &head.spec.name).await?;
        workflows.push(match &found {
            None => told(head, None, ApplyChange::Created, (1, 1), warnings),
            Some(row) => {
                let (change, by) = match row.head.body == head.body {
                    true => (ApplyChange::Unchanged, 0),
                    false => (ApplyChange::Changed, 1),
                };
                let (generation, version) = (row.state.generation + by, row.state.version + by);
                told(head, Some(row.id), change, (generation, version), warnings)
            }
        });
    }
    Ok(AppliedWorkflows { workflows })
}

async fn send(api: &Api, actor: &Actor, workflows: Vec<NewWorkflow>) -> Result<Vec<Applied>, RequestError> {
    match requests::workflow(api, actor, WorkflowRequest::Apply { workflows }).await? {
        Reply::AppliedWorkflows(applied) => Ok(applied),
        other => {
            tracing::error!(reply = ?other, "unexpected reply of the engine");
            Err(RequestError::OutcomeUnknown)
        }
    }
}

/// Specs as they would be stored, and their errors so far, by index and with paths relative to the spec.
struct Checked {
    heads: Vec<Arc<WorkflowHead>>,
    wrong: BTreeMap<usize, Vec<FieldError>>,
}

fn heads(specs: Vec<WorkflowSpec>, now: Timestamp) -> Checked {
    let mut checked = Checked { heads: Vec::with_capacity(specs.len()), wrong: BTreeMap::new() };
    let mut names = BTreeSet::new();
    for (i, mut spec) in specs.into_iter().enumerate() {
        spec.fill();
        let mut wrong = match validate::workflow(&spec, now) {
            Ok(()) => Vec::new(),
            Err(invalid) => fields_at("", &invalid.problems),
        };
        if !names.insert((spec.namespace.clone(), spec.name.clone())) {
            wrong.push(field_error("name", &format!("`{}` is given twice", spec.name)));
        }
        let body = serde_json::to_string(&spec).unwrap_or_default();
        if body.len() > WORKFLOW_BYTES_MAX {
            let detail = format!(
                "the workflow has {} bytes as JSON: expected at most {WORKFLOW_BYTES_MAX}; put large data into an artifact",
                body.len()
            );
            wrong.push(field_error("", &detail));
        }
        if !wrong.is_empty() {
            checked.wrong.insert(i, wrong);
        }
        checked.heads.push(Arc::new(WorkflowHead { spec: Arc::new(spec), body: body.into() }));
    }
    checked
}

impl Checked {
    /// Returns the heads, if all specs and all their calls are valid.
    ///
    /// # Errors
    /// `invalid_spec` with every invalid field.
    async fn complete(mut self, api: &Api, batch: Batch) -> Result<Vec<Arc<WorkflowHead>>, ApiError> {
        for (i, head) in self.heads.iter().enumerate() {
            if self.wrong.contains_key(&i) {
                continue;
            }
            let alike = self.heads.iter().filter(|other| other.spec.namespace == head.spec.namespace);
            let known: KnownSpecs<'_> = alike.map(|other| (other.spec.name.as_str(), &other.spec)).collect();
            let definition = pin::definition(api, &head.spec, &known).await?;
            if let Err(invalid) = validate::definition(&definition) {
                self.wrong.insert(i, fields_at("", &invalid.problems));
            }
        }
        if self.wrong.is_empty() {
            return Ok(self.heads);
        }
        let all = self.wrong.iter().flat_map(|(&i, errors)| batch.located(i, errors));
        Err(ApiError::invalid_fields(all.collect()))
    }
}

/// Refuses workflows whose secrets do not exist.
async fn check_references(
    api: &Api,
    specs: impl Iterator<Item = &WorkflowSpec>,
    batch: Batch,
) -> Result<(), ApiError> {
    let jobs: Vec<_> =
        specs.enumerate().flat_map(|(i, spec)| secrets::jobs_of(spec, &batch.path(i))).collect();
    secrets::check_references(api, jobs.into_iter()).await
}

/// Delete a workflow
///
/// Running runs continue, and ended runs are kept until their retention ends. Refused while runs of the workflow wait
/// to start.
#[utoipa::path(delete, path = "/api/v1/workflows/{name}", tag = "workflows",
    params(
        ("name" = String, Path), Scope,
        ("If-Match" = Option<String>, Header, description = "Expected version; the request is refused if the resource has another version", example = "\"3\""),
    ),
    responses((status = 204, description = "Deleted"))
)]
async fn delete_workflow(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Path(name): Path<String>,
    Params(scope): Params<Scope>,
    wanted: Precondition,
) -> Result<StatusCode, ApiError> {
    let row = rows::workflow(&api, &actor, &name, scope.namespace()).await?;
    let expected_version = wanted.expected(format!("workflow `{name}`"), row.state.version)?;
    let request = WorkflowRequest::Delete { workflow: row.id, expected_version };
    let status = deleted(&requests::workflow(&api, &actor, request).await?)?;
    actor.note().changed_bodies("", Some(&row.head.body), None);
    tracing::info!(workflow_id = %row.id, by = %actor.name, "workflow deleted");
    Ok(status)
}
