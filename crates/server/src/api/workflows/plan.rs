//! Plan of a run: its steps and their order, without starting it.

use std::collections::BTreeMap;

use axum::extract::State;
use axum::{Extension, Json};
use model::api::{PlannedStep, RunPlan, StartRun};
use model::expression::{EvaluationError, Expression, Scope as Values};
use model::spec::Run;
use model::workflow::template::Template;
use model::workflow::{Action, ElementSource, StepSpec};
use model::{JobSpec, WorkflowSpec};
use serde_json::{Map, Value};
use utoipa_axum::routes;

use super::convert;
use super::pin::{parameters, pinned};
use crate::api::Api;
use crate::api::extract::{MaybeBody, Params, Path};
use crate::api::problem::{ApiError, Code};
use crate::api::routes::Routes;
use crate::api::rows::{self, Scope};
use crate::auth::{Actor, Resource, Verb};

pub(super) fn routes(routes: &mut Routes) {
    let refusals = [Code::WorkflowNotFound, Code::InvalidSpec, Code::UnsupportedMediaType];
    routes.needs(Verb::Read, Resource::Workflows, &refusals, routes!(plan_run));
}

/// Preview the steps of a run without starting it
///
/// Returns the steps in an order in which they can start, with the values of the parameters. Nothing is stored. Invalid
/// parameters are refused as in a start.
#[utoipa::path(post, path = "/api/v1/workflows/{name}/plan", tag = "workflows",
    params(("name" = String, Path, description = "Name or id"), Scope),
    request_body(content = Option<StartRun>, description = "Same body as for a start"),
    responses((status = 200, description = "Planned steps", body = RunPlan))
)]
async fn plan_run(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Path(name): Path<String>,
    Params(scope): Params<Scope>,
    MaybeBody(body): MaybeBody<StartRun>,
) -> Result<Json<RunPlan>, ApiError> {
    let row = rows::workflow(&api, &actor, &name, scope.namespace()).await?;
    let parameters = parameters(&row.head.spec, &body)?;
    pinned(&api, &row).await?;
    let steps = planned(&row.head.spec, &parameters);
    Ok(Json(RunPlan { parameters, steps }))
}

/// Returns the steps of a workflow, each after its dependencies.
fn planned(spec: &WorkflowSpec, parameters: &Map<String, Value>) -> Vec<PlannedStep> {
    let levels = levels(spec);
    let known = ParameterScope { parameters };
    let mut steps: Vec<PlannedStep> = spec
        .all_steps()
        .map(|(section, step)| PlannedStep {
            name: step.name.clone(),
            section,
            kind: convert::kind(&step.action),
            needs: step.needs.clone(),
            level: levels.get(step.name.as_str()).copied().unwrap_or_default(),
            total: total(step, &known),
            command: match &step.action {
                Action::Job(job) => command(job, &known),
                _ => None,
            },
        })
        .collect();
    steps.sort_by_key(|step| (step.section, step.level));
    steps
}

/// Returns the level of each step: 0 without dependencies, otherwise one more than the highest level of its
/// dependencies. The spec was validated, so it has no cycle.
fn levels(spec: &WorkflowSpec) -> BTreeMap<&str, u32> {
    let mut left: BTreeMap<&str, usize> = BTreeMap::new();
    let mut after: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (_, step) in spec.all_steps() {
        left.insert(&step.name, step.needs.len());
        for need in &step.needs {
            after.entry(need).or_default().push(&step.name);
        }
    }
    let mut levels: BTreeMap<&str, u32> =
        left.iter().filter(|(_, needs)| **needs == 0).map(|(name, _)| (*name, 0)).collect();
    let mut open: Vec<&str> = levels.keys().copied().collect();
    while let Some(name) = open.pop() {
        let next = levels[name] + 1;
        for dependent in after.get(name).into_iter().flatten() {
            let level = levels.entry(dependent).or_default();
            *level = next.max(*level);
            if let Some(needs) = left.get_mut(dependent) {
                *needs -= 1;
                if *needs == 0 {
                    open.push(dependent);
                }
            }
        }
    }
    levels
}

/// Returns the number of elements of a step, if it follows from the parameters.
pub(super) fn total(step: &StepSpec, known: &ParameterScope<'_>) -> Option<u32> {
    match &step.for_each.as_ref()?.over {
        ElementSource::Items(items) => u32::try_from(items.len()).ok(),
        ElementSource::Shards(shards) => Some(*shards),
        ElementSource::List(list) => {
            let value = Expression::parse(list).ok()?.evaluate(known).ok()?;
            u32::try_from(value.as_array()?.len()).ok()
        }
        ElementSource::Workers(_) | ElementSource::AddedBy(_) => None,
    }
}

/// Returns the command of a job: of a container with its image, of a request with its method and URL. An argument with
/// references other than parameters is left unchanged.
fn command(job: &JobSpec, known: &ParameterScope<'_>) -> Option<Vec<String>> {
    let words = match &job.run {
        Run::Process(process) if process.script.is_none() => process.command.clone(),
        Run::Container(container) => {
            [std::slice::from_ref(&container.image), &container.entrypoint, &container.command].concat()
        }
        Run::Http(http) => vec![http.effective_method().to_string(), http.url.clone()],
        _ => return None,
    };
    let rendered = |text: &String| {
        let template = Template::parse(text).ok();
        template.and_then(|template| template.render(known).ok()).unwrap_or_else(|| text.clone())
    };
    Some(words.iter().map(rendered).collect())
}

/// Values that are known before the run: the parameters.
pub(super) struct ParameterScope<'a> {
    pub(super) parameters: &'a Map<String, Value>,
}

impl Values for ParameterScope<'_> {
    fn value(&self, path: &[String]) -> Result<(Value, usize), EvaluationError> {
        let unknown = || EvaluationError("is not known before the run".into());
        match path {
            [root, name, ..] if root == "params" => {
                self.parameters.get(name).map(|value| (value.clone(), 2)).ok_or_else(unknown)
            }
            _ => Err(unknown()),
        }
    }
}
