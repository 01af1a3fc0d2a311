//! Workflows: apply, list, delete, plan and start.
//!
//! A workflow is a named, versioned graph of steps; each change of its spec is a new generation. A
//! [`WorkflowRef`] names a workflow by id, or by name and namespace.
//!
//! A start always carries an idempotency key, which is random unless the caller gives one, so it is retried
//! without starting a second run. Changes accept the expected version, so that a concurrent change is not
//! overwritten.

use std::sync::Arc;

use model::api::{
    AppliedWorkflows, ApplyWorkflows, List, RunPlan, StartDefinition, StartRun, Workflow, WorkflowRun,
};
use model::{WorkflowId, WorkflowSpec};

use crate::error::Error;
use crate::http::{Client, Request};
use crate::jobs::random_key;
use crate::page::{self, Items, Page};

/// Reference to a workflow: by id, or by name and namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkflowRef {
    /// Id or name.
    pub name: String,
    /// Namespace of the name; `None` for `default`. Ignored for an id.
    pub namespace: Option<String>,
}

impl From<WorkflowId> for WorkflowRef {
    fn from(id: WorkflowId) -> Self {
        Self { name: id.to_string(), namespace: None }
    }
}

impl WorkflowRef {
    fn get(&self) -> Request {
        self.scoped(Request::get(["workflows", &self.name]))
    }

    fn post(&self, verb: &str) -> Request {
        self.scoped(Request::post(["workflows", &self.name, verb]))
    }

    fn scoped(&self, request: Request) -> Request {
        // An id already determines the namespace.
        let by_name = self.name.parse::<WorkflowId>().is_err();
        request.query_opt("namespace", self.namespace.as_ref().filter(|_| by_name))
    }
}

/// Filter for workflows. By default it selects all workflows.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WorkflowFilter {
    /// Owner.
    pub owner: Option<String>,
    /// Namespace; `None` selects all namespaces.
    pub namespace: Option<String>,
    /// Part of the name.
    pub text: Option<String>,
    /// Labels, of which the workflow must have all.
    pub labels: Vec<(String, String)>,
    /// Maximum number of newest runs to return for each workflow; `None` returns none.
    pub runs: Option<usize>,
}

impl WorkflowFilter {
    fn request(&self, page: &Page) -> Request {
        let request = Request::get(["workflows"])
            .query_opt("owner", self.owner.as_ref())
            .query_opt("namespace", self.namespace.as_ref())
            .query_opt("text", self.text.as_ref())
            .query_opt("runs", self.runs)
            .page(page);
        self.labels.iter().fold(request, |r, (key, value)| r.query("label", format!("{key}={value}")))
    }
}

impl Client {
    /// Creates a workflow, or replaces its spec. An equal spec changes nothing; a changed spec is a new generation.
    ///
    /// With `version`, the request fails unless the stored workflow has this version; `Some(0)` requires that it does
    /// not exist.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `invalid_spec` and `version_mismatch`.
    pub async fn put_workflow(&self, spec: &WorkflowSpec, version: Option<u64>) -> Result<Workflow, Error> {
        let request = put(spec);
        self.json(match version {
            Some(0) => request.header("if-none-match", "*").once(),
            version => request.if_match(version),
        })
        .await
    }

    /// Validates a workflow and returns it with all defaults, without storing it.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `invalid_spec`.
    pub async fn put_workflow_dry_run(&self, spec: &WorkflowSpec) -> Result<WorkflowSpec, Error> {
        self.json(put(spec).query("dry_run", true)).await
    }

    /// Creates workflows or replaces their specs, in one transaction. The workflows may call each other.
    ///
    /// With `dry_run`, nothing is stored.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `invalid_spec`.
    pub async fn apply_workflows(
        &self,
        workflows: Vec<WorkflowSpec>,
        dry_run: bool,
    ) -> Result<AppliedWorkflows, Error> {
        let request = Request::post(["workflows", "apply"]).json(&ApplyWorkflows { workflows }).repeatable();
        self.json(request.query_opt("dry_run", dry_run.then_some(true))).await
    }

    /// Returns a workflow with its spec: that of `generation`, or the newest.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `workflow_not_found`.
    pub async fn workflow(&self, workflow: &WorkflowRef, generation: Option<u64>) -> Result<Workflow, Error> {
        self.json(workflow.get().query_opt("generation", generation)).await
    }

    /// Returns one page of workflows, newest first, without their specs.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors).
    pub async fn workflows_page(
        &self,
        filter: &WorkflowFilter,
        page: &Page,
    ) -> Result<List<Workflow>, Error> {
        self.json(filter.request(page)).await
    }

    /// Streams all workflows that match the filter, newest first, without their specs.
    pub fn workflows(&self, filter: WorkflowFilter) -> Items<Workflow> {
        let (client, filter) = (self.clone(), Arc::new(filter));
        page::all(move |page| {
            let (client, filter) = (client.clone(), filter.clone());
            async move { client.workflows_page(&filter, &page).await }
        })
    }

    /// Deletes a workflow. Its runs continue.
    ///
    /// With `version`, the request fails unless the workflow still has this version.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `workflow_not_found`, `runs_waiting` and `version_mismatch`.
    pub async fn delete_workflow(&self, workflow: &WorkflowRef, version: Option<u64>) -> Result<(), Error> {
        let request = workflow.scoped(Request::delete(["workflows", &workflow.name]));
        self.send_ignoring_body(request.if_match(version)).await
    }

    /// Starts a run. Retries of the request start one run.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `workflow_not_found`, `invalid_spec` and `waiting_run_limit`.
    ///
    /// ```no_run
    /// # async fn example(belfry: client::Client) -> Result<(), client::Error> {
    /// let nightly = client::WorkflowRef { name: "nightly".into(), namespace: None };
    /// let run = belfry.start_run(&nightly, &model::api::StartRun::default()).await?;
    /// println!("started {}", run.id);
    /// # Ok(()) }
    /// ```
    pub async fn start_run(&self, workflow: &WorkflowRef, how: &StartRun) -> Result<WorkflowRun, Error> {
        self.start_run_once(workflow, how, &random_key()).await
    }

    /// Starts a run with an idempotency key: a repeated start with the same key returns the run of the first one.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `workflow_not_found`, `invalid_spec`, `waiting_run_limit` and
    /// `idempotency_key_reused`.
    pub async fn start_run_once(
        &self,
        workflow: &WorkflowRef,
        how: &StartRun,
        key: &str,
    ) -> Result<WorkflowRun, Error> {
        let request = workflow.post("start").json(how).header("idempotency-key", &format!("\"{key}\""));
        self.json(request.repeatable()).await
    }

    /// Starts a run of a definition that is stored with the run only. Retries of the request start one run.
    ///
    /// With `key`, a repeated start with the same key returns the run of the first one.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `invalid_spec` and `idempotency_key_reused`.
    pub async fn start_definition(
        &self,
        how: &StartDefinition,
        key: Option<&str>,
    ) -> Result<WorkflowRun, Error> {
        let key = key.map_or_else(random_key, str::to_owned);
        let request = Request::post(["runs"]).json(how).header("idempotency-key", &format!("\"{key}\""));
        self.json(request.repeatable()).await
    }

    /// Validates a definition and returns it with all defaults, without starting a run.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `invalid_spec`.
    pub async fn start_definition_dry_run(&self, how: &StartDefinition) -> Result<WorkflowSpec, Error> {
        self.json(Request::post(["runs"]).query("dry_run", true).json(how).repeatable()).await
    }

    /// Returns the steps of a run in a possible order, and the values of its parameters, without starting it.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `workflow_not_found` and `invalid_spec`.
    pub async fn plan_run(&self, workflow: &WorkflowRef, how: &StartRun) -> Result<RunPlan, Error> {
        self.json(workflow.post("plan").json(how).repeatable()).await
    }
}

fn put(spec: &WorkflowSpec) -> Request {
    Request::put(["workflows", &spec.name]).query("namespace", &spec.namespace).json(spec)
}
